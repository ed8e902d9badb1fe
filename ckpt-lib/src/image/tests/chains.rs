//! Images that take contents from earlier ones.

use super::*;
use crate::image::flatten;
use crate::progress::Silent;
use loader::layout::CHUNK;
use std::fs;
use std::path::PathBuf;

const PAGES: usize = 1200;

/// Writes `name`: what `earlier` has is taken from there.
fn next(
    dir: &Path,
    name: &str,
    memory: &Memory,
    options: WriteOptions,
    earlier: &Image,
) -> PathBuf {
    let path = dir.join(name);
    let mut writer = ImageWriter::create(&path, options).expect("creates");
    let earlier = Image::open(earlier.path()).expect("opens");
    writer.build_on(earlier).expect("can be named");
    let all = [memory.range()];
    writer
        .store(Space::Process(0), &all, memory, &|_| {})
        .expect("stores");
    commit(writer).expect("commits");
    path
}

struct Chain {
    dir: tempfile::TempDir,
    paths: Vec<PathBuf>,
    memory: Memory,
}

/// Three images, each with some pages of its own.
fn chain() -> Chain {
    let dir = directory();
    let mut memory = Memory::new(PAGES, 11, |page| page % 29 == 3);
    let mut paths = vec![dir.path().join("one")];
    let options = WriteOptions {
        compression: Some(1),
        ..WriteOptions::default()
    };
    image_of(&paths[0], &memory, options.clone());
    for (name, from, to) in [("two", 100, 180), ("three", 170, 700)] {
        memory.bytes[from * 4096..to * 4096].fill(name.len() as u8);
        let earlier = Image::open(paths.last().expect("one")).expect("opens");
        paths.push(next(dir.path(), name, &memory, options.clone(), &earlier));
    }
    Chain { dir, paths, memory }
}

fn contents(path: &Path) -> Vec<u8> {
    let image = Image::open(path).expect("opens");
    let mut bytes = vec![1; PAGES * 4096];
    image
        .read_space(Space::Process(0), BASE, &mut bytes)
        .expect("reads");
    bytes
}

#[test]
fn a_chain_reads_as_one_and_becomes_one_whole_image() {
    let chain = chain();
    let last = chain.paths.last().expect("three");
    assert!(contents(last) == chain.memory.bytes);
    let report = check(last).expect("sound");
    assert_eq!(
        report.bases, 2,
        "both earlier ones are named, none through another"
    );
    let own = fs::metadata(last).expect("there").len();
    let first = fs::metadata(&chain.paths[0]).expect("there").len();
    assert!(
        own < 600 * 4096 + (1 << 20) && first > 0,
        "{own} of its own"
    );

    let flat = chain.dir.path().join("flat");
    let image = Image::open(last).expect("opens");
    flatten(&image, &flat, WriteOptions::default(), &mut Silent).expect("flattens");
    for path in &chain.paths {
        fs::remove_file(path).expect("removes");
    }
    assert_eq!(check(&flat).expect("sound alone").bases, 0);
    assert!(contents(&flat) == chain.memory.bytes);
}

#[test]
fn a_missing_base_is_named() {
    let chain = chain();
    fs::remove_file(&chain.paths[0]).expect("removes");
    let error = Image::open(&chain.paths[2]).expect_err("refused");
    assert!(
        matches!(&error, ImageError::Base { base, .. } if *base == chain.paths[0]),
        "{error:?}"
    );
}

#[test]
fn another_image_under_the_name_of_a_base_is_refused() {
    let chain = chain();
    let options = WriteOptions {
        overwrite: true,
        ..WriteOptions::default()
    };
    image_of(&chain.paths[0], &Memory::new(PAGES, 12, |_| false), options);
    let error = Image::open(&chain.paths[1]).expect_err("refused");
    let ImageError::Base { source, .. } = &error else {
        panic!("{error:?}")
    };
    assert!(matches!(**source, ImageError::Id { .. }), "{error:?}");
}

#[test]
fn damage_in_a_base_is_found_and_named() {
    let chain = chain();
    let base = Image::open(&chain.paths[0]).expect("opens");
    // The last page is in no later image.
    let tables = base.tables();
    let last = tables.chunk(tables.chunk_count() - 1).expect("reads");
    let last = last.expect("there");
    let mut bytes = fs::read(&chain.paths[0]).expect("reads");
    bytes[last.offset as usize] ^= 4;
    fs::write(&chain.paths[0], bytes).expect("writes");
    let error = check(&chain.paths[2]).expect_err("refused");
    let ImageError::Base { base, source, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(*base, chain.paths[0]);
    assert!(
        matches!(**source, ImageError::DamagedChunk { .. }),
        "{error:?}"
    );
    let image = Image::open(&chain.paths[2]).expect("its own bytes are right");
    let flat = chain.dir.path().join("flat");
    flatten(&image, &flat, WriteOptions::default(), &mut Silent).expect_err("refused");
    assert!(!flat.exists());
}

#[test]
fn a_truncated_base_is_refused() {
    let chain = chain();
    let len = fs::metadata(&chain.paths[1]).expect("there").len();
    let file = fs::OpenOptions::new().write(true).open(&chain.paths[1]);
    file.and_then(|file| file.set_len(len - 1)).expect("cuts");
    let error = Image::open(&chain.paths[2]).expect_err("refused");
    let ImageError::Base { source, .. } = &error else {
        panic!("{error:?}")
    };
    assert!(matches!(**source, ImageError::Length { .. }), "{error:?}");
}

#[test]
fn an_earlier_image_of_which_only_tables_are_left_tells_what_has_changed() {
    let dir = directory();
    let mut memory = Memory::new(PAGES, 11, |page| page % 29 == 3);
    let [first, copy, second] = ["one", "copy", "two"].map(|name| dir.path().join(name));
    for options in [
        WriteOptions::default(),
        WriteOptions {
            compression: Some(1),
            ..WriteOptions::default()
        },
    ] {
        image_of(&first, &memory, options.clone());
        fs::copy(&first, &copy).expect("copies");
        super::super::leave_tables(&first).expect("this file system can");
        memory.bytes[500 * 4096] ^= 1;
        let earlier = Image::open(&first).expect("its tables are there");
        check(&first).expect_err("its contents are not");
        next(dir.path(), "two", &memory, options, &earlier);
        fs::rename(&copy, &first).expect("is put back");
        let image = Image::open(&second).expect("opens");
        assert_eq!(image.verify_own(&mut |_| {}).expect("is sound").chunks, 1);
        assert!(check(&second).expect("sound").chunks > 1);
        assert!(contents(&second) == memory.bytes);
        for path in [&first, &second] {
            fs::remove_file(path).expect("removes");
        }
    }
}

#[test]
fn an_earlier_image_that_has_nothing_of_it_is_not_named() {
    let dir = directory();
    let [first, second] = ["one", "two"].map(|name| dir.path().join(name));
    image_of(
        &first,
        &Memory::new(PAGES, 11, |_| false),
        WriteOptions::default(),
    );
    let memory = Memory::new(PAGES, 12, |_| false);
    let earlier = Image::open(&first).expect("opens");
    next(
        dir.path(),
        "two",
        &memory,
        WriteOptions::default(),
        &earlier,
    );
    fs::remove_file(&first).expect("removes");
    assert_eq!(check(&second).expect("sound alone").bases, 0);
    assert!(contents(&second) == memory.bytes);
}

/// Memory that must not be read in these pages.
struct Unread<'a>(&'a Memory, Vec<Range<u64>>);

impl ByteSource for Unread<'_> {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = at + buf.len() as u64;
        let touches = |range: &Range<u64>| range.start < end && at < range.end;
        assert!(!self.1.iter().any(touches), "{at:#x}-{end:#x} is read");
        self.0.read_at(at, buf)
    }
}

#[test]
fn what_nobody_has_written_to_is_taken_from_the_earlier_image_unread() {
    let chain = chain();
    let mut memory = Memory::new(PAGES, 11, |page| page % 29 == 3);
    memory.bytes = chain.memory.bytes.clone();
    let earlier = Image::open(&chain.paths[2]).expect("opens");
    let page = |number: u64| BASE + number * 4096;
    // Chunks that are cut by what was written, and zeros, are read.
    memory.bytes[300 * 4096..302 * 4096].fill(9);
    let unwritten = vec![page(0)..page(300), page(302)..page(PAGES as u64)];
    let path = chain.dir.path().join("four");
    let mut writer = ImageWriter::create(&path, WriteOptions::default()).expect("creates");
    let again = Image::open(earlier.path()).expect("opens");
    writer.build_on(again).expect("can be named");
    writer.spare(Space::Process(0), unwritten);
    let tables = earlier.tables();
    let chunks = tables
        .extents()
        .map(|extent| extent.expect("reads"))
        .flat_map(|extent| (0..extent.chunk_count()).map(move |number| (extent, number)));
    let spared: Vec<Range<u64>> = chunks
        .map(|(extent, number)| {
            let chunk = tables.chunk(extent.first_chunk + number);
            let chunk = chunk.expect("reads").expect("there");
            let at = extent.at + number * CHUNK;
            at..at + u64::from(chunk.raw_len)
        })
        .filter(|range| range.end <= page(300) || range.start >= page(302))
        .collect();
    assert!(spared.len() > 10, "{spared:?}");
    writer
        .store(
            Space::Process(0),
            &[memory.range()],
            &Unread(&memory, spared),
            &|_| {},
        )
        .expect("stores");
    commit(writer).expect("commits");
    assert!(contents(&path) == memory.bytes);
    check(&path).expect("sound");
}
