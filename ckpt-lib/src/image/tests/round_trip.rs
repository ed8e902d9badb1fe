//! What was written is read back, in every shape.

use super::*;
use crate::image::{Part, Zeros, flatten};
use crate::progress::Silent;
use loader::layout::{CHUNK, SectionKind};
use std::cell::Cell;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

fn read_all(image: &Image, memory: &Memory) -> Vec<u8> {
    let mut bytes = vec![1; memory.bytes.len()];
    image
        .read_space(Space::Process(0), memory.start, &mut bytes)
        .expect("reads");
    bytes
}

fn shapes() -> Vec<(&'static str, Memory)> {
    vec![
        ("one page", Memory::new(1, 1, |_| false)),
        ("all zero", Memory::new(700, 2, |_| true)),
        (
            "every second page zero",
            Memory::new(700, 3, |page| page % 2 == 1),
        ),
        ("runs", Memory::new(3000, 4, |page| page / 37 % 3 == 1)),
        ("nothing zero", Memory::new(1500, 5, |_| false)),
    ]
}

#[test]
fn contents_read_back_as_written() {
    let dir = directory();
    for (name, memory) in shapes() {
        for compression in [None, Some(1)] {
            for threads in [1, 4] {
                let path = dir.path().join(format!("{name} {compression:?} {threads}"));
                let options = WriteOptions {
                    compression,
                    threads,
                    ..WriteOptions::default()
                };
                let committed = image_of(&path, &memory, options);
                assert_eq!(committed.len, fs::metadata(&path).expect("there").len());
                let image = Image::open(&path).expect("opens");
                assert_eq!(image.header().id, committed.id);
                assert!(read_all(&image, &memory) == memory.bytes, "{name}");
                let report = image.verify(&mut |_| {}).expect("sound");
                let full = memory
                    .bytes
                    .chunks(4096)
                    .filter(|p| p.iter().any(|b| *b != 0))
                    .count();
                assert_eq!(
                    report.raw_bytes,
                    full as u64 * PAGE,
                    "{name}: only pages with contents"
                );
            }
        }
    }
    let left: Vec<_> = fs::read_dir(dir.path()).expect("lists").flatten().collect();
    assert_eq!(left.len(), 20, "no partial file is left");
}

#[test]
fn parts_of_a_space_read_back_at_any_place() {
    let dir = directory();
    let path = dir.path().join("image");
    let memory = Memory::new(400, 6, |page| page / 11 % 4 == 2);
    image_of(&path, &memory, WriteOptions::default());
    let image = Image::open(&path).expect("opens");
    for (from, len) in [
        (0, 1),
        (4095, 2),
        (CHUNK - 1, 2),
        (11 * PAGE + 5, 90_000),
        (399 * PAGE, 4096),
    ] {
        let mut found = vec![7; len];
        image
            .read_space(Space::Process(0), BASE + from, &mut found)
            .expect("reads");
        assert!(
            found == memory.bytes[from as usize..from as usize + len],
            "{from} {len}"
        );
    }
    let mut beyond = [7; 100];
    image
        .read_space(Space::Process(1), BASE, &mut beyond)
        .expect("reads");
    assert_eq!(beyond, [0; 100]);
}

#[test]
fn zeros_over_a_file_are_kept() {
    let dir = directory();
    let path = dir.path().join("zeros");
    let mut writer = ImageWriter::create(&path, WriteOptions::default()).expect("creates");
    let zeros = vec![0; 100 * PAGE as usize];
    let (space, second) = (Space::Process(0), PAGE..100 * PAGE);
    writer
        .store(space, &[0..PAGE], &zeros, &|_| ())
        .expect("stores");
    let ranges = vec![second.clone()];
    let kept = Part::new(space, &ranges, &zeros, Zeros::Kept).expect("known");
    writer.store_parts(&[kept], &|_| ()).expect("stores");
    let places = [0..PAGE, PAGE..200 * PAGE];
    let stored = writer.stored_in(space, places).expect("is known");
    assert_eq!(stored, std::slice::from_ref(&second));
    commit(writer).expect("commits");
    let image = Image::open(&path).expect("opens");
    let bytes: u64 = image
        .tables()
        .extents_of(space)
        .map(|extent| extent.expect("reads").len)
        .sum();
    assert_eq!(bytes, second.end - second.start);
    check(&path).expect("sound");
}

#[test]
fn the_end_of_a_file_is_kept_to_the_byte() {
    let dir = directory();
    for compression in [None, Some(3)] {
        let path = dir.path().join(format!("{compression:?}"));
        let mut memory = Memory::new(70, 7, |_| false);
        memory.start = 0;
        memory.bytes.truncate(69 * 4096 + 17);
        let options = WriteOptions {
            compression,
            ..WriteOptions::default()
        };
        let mut writer = ImageWriter::create(&path, options).expect("creates");
        let ranges = [memory.range()];
        let told = Cell::new(0);
        let progress = |bytes| told.set(told.get() + bytes);
        writer
            .store(Space::Inode(3), &ranges, &memory, &progress)
            .expect("stores");
        assert_eq!(told.get(), memory.bytes.len() as u64);
        commit(writer).expect("commits");
        let image = Image::open(&path).expect("opens");
        let mut found = vec![9; memory.bytes.len() + 10];
        image
            .read_space(Space::Inode(3), 0, &mut found)
            .expect("reads");
        assert!(found[..memory.bytes.len()] == memory.bytes);
        assert_eq!(found[memory.bytes.len()..], [0; 10]);
        image.verify(&mut |_| {}).expect("sound");
    }
}

#[test]
fn an_image_is_an_elf_file_that_readelf_accepts() {
    let dir = directory();
    let path = dir.path().join("image");
    image_of(
        &path,
        &Memory::new(10, 8, |_| false),
        WriteOptions::default(),
    );
    let bytes = fs::read(&path).expect("reads");
    let elf = goblin::elf::Elf::parse(&bytes).expect("goblin reads it");
    let names: Vec<_> = elf
        .section_headers
        .iter()
        .filter_map(|s| elf.shdr_strtab.get_at(s.sh_name))
        .collect();
    for kind in SectionKind::ALL {
        if !matches!(kind, SectionKind::Elf | SectionKind::Tail) {
            assert!(names.contains(&kind.name()), "{names:?}");
        }
    }
    assert_eq!(
        elf.entry,
        loader_code::link(HOLE.start).expect("links").entry
    );
    if let Ok(shown) = Command::new("readelf")
        .args(["-W", "-a"])
        .arg(&path)
        .output()
    {
        let complaints = String::from_utf8_lossy(&shown.stderr);
        assert!(
            shown.status.success() && complaints.is_empty(),
            "{complaints}"
        );
    }
    let mode = fs::metadata(&path).expect("there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o700);
}

/// Operations and snapshot.
fn parts_of(image: &Image) -> (Vec<u8>, Vec<u8>) {
    let ops = image.ops().expect("reads");
    (ops, image.meta_bytes().expect("reads"))
}

#[test]
fn an_image_in_memory_is_small_and_sound() {
    let writer = ImageWriter::create_in_memory("wayfarer-run").expect("creates");
    let loader = loader_code::link(HOLE.start).expect("links");
    let ops = operations();
    let parts = ImageParts {
        platform: "p",
        ops: Bytes::from(&ops),
        meta: Bytes::Memory(b""),
        loader: &loader,
        hole: HOLE,
    };
    let file = writer.commit_in_memory(&parts).expect("commits");
    let copy = tempfile::NamedTempFile::new().expect("file");
    fs::write(
        copy.path(),
        fs::read(format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&file)
        ))
        .expect("reads"),
    )
    .expect("writes");
    let image = Image::open(copy.path()).expect("opens");
    assert_eq!(image.platform(), "p");
    assert_eq!(parts_of(&image), (ops.bytes().expect("reads"), vec![]));
    assert_eq!(image.loader().expect("there"), loader);
}

#[test]
fn a_flattened_image_has_the_same_contents() {
    let dir = directory();
    for compression in [None, Some(1)] {
        let memory = Memory::new(900, 9, |page| page % 13 == 1);
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let options = WriteOptions {
            compression,
            overwrite: true,
            ..WriteOptions::default()
        };
        image_of(&from, &memory, options.clone());
        let from = Image::open(&from).expect("opens");
        flatten(&from, &to, options, &mut Silent).expect("flattens");
        let image = Image::open(&to).expect("opens");
        image.verify(&mut |_| {}).expect("sound");
        assert!(read_all(&image, &memory) == memory.bytes);
        assert_eq!(parts_of(&image), parts_of(&from));
        assert_eq!(
            image.loader().expect("there"),
            from.loader().expect("there")
        );
    }
}

/// Memory of which every second MiB can be read by one thread only, as protected memory by its tracer.
struct Protected {
    memory: Memory,
    reader: std::thread::ThreadId,
}

impl ByteSource for Protected {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let protected = at >> 20 & 1 == 1;
        if protected && std::thread::current().id() != self.reader {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.memory.read_at(at, buf)
    }
}

#[test]
fn what_workers_may_not_read_is_read_by_who_stores() {
    let dir = directory();
    let source = Protected {
        memory: Memory::new(5 * 256 + 3, 31, |_| false),
        reader: std::thread::current().id(),
    };
    for (name, compression) in [("raw", None), ("packed", Some(1))] {
        let path = dir.path().join(name);
        let options = WriteOptions {
            compression,
            threads: 3,
            ..WriteOptions::default()
        };
        let mut writer = ImageWriter::create(&path, options).expect("creates");
        let ranges = [source.memory.range()];
        let through = std::cell::Cell::new(0);
        let count = |bytes| through.set(through.get() + bytes);
        writer
            .store(Space::Process(0), &ranges, &source, &count)
            .expect("stores");
        commit(writer).expect("commits");
        let image = Image::open(&path).expect("opens");
        assert!(
            read_all(&image, &source.memory) == source.memory.bytes,
            "{name}"
        );
        assert_eq!(through.get(), source.memory.bytes.len() as u64);
    }
}
