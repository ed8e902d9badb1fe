//! Images that take contents from earlier ones.

use super::*;
use crate::image::flatten;
use crate::progress::Silent;
use std::fs;
use std::path::PathBuf;

const PAGES: usize = 1200;

/// Writes `name`: what `memory` has within `dirty` is stored, all else is taken from `earlier`.
fn next(dir: &Path, name: &str, memory: &Memory, dirty: Range<u64>, earlier: &Image) -> PathBuf {
    let path = dir.join(name);
    let mut writer = ImageWriter::create(&path, WriteOptions::default()).expect("creates");
    let space = Space::Process(0);
    let mut store = vec![dirty.clone()];
    for clean in [memory.start..dirty.start, dirty.end..memory.range().end] {
        store.extend(writer.refer(space, clean, earlier).expect("refers"));
    }
    writer
        .store(space, &store, memory, &|_| {})
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
    image_of(&paths[0], &memory, options);
    for (name, from, to) in [("two", 100, 180), ("three", 170, 700)] {
        memory.bytes[from * 4096..to * 4096].fill(name.len() as u8);
        let dirty = BASE + from as u64 * PAGE..BASE + to as u64 * PAGE;
        let earlier = Image::open(paths.last().expect("one")).expect("opens");
        paths.push(next(dir.path(), name, &memory, dirty, &earlier));
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
    let last = tables.chunk(tables.chunk_count() - 1).expect("there");
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
