//! Images written and read back, and damaged in every way.

use super::*;
use crate::loader_code;
use crate::plan::OpsBuilder;
use crate::snapshot::SnapshotV1;
use loader::layout::{PAGE, Space};
use loader::ops::OpsHeader;
use proptest::prelude::*;
use std::path::{Path, PathBuf};

const BASE: u64 = 0x2000_0000_0000;

fn write(path: &Path, memory: &[u8], compression: Option<i32>) -> Committed {
    let options = WriteOptions {
        compression,
        threads: 2,
        overwrite: false,
    };
    let mut writer = ImageWriter::create(path, options).expect("created");
    let len = memory.len() as u64;
    let source = memory.to_vec();
    writer
        .store(Space::Process(0), &[0..len], &source, &|_| ())
        .expect("stored");
    commit(writer)
}

fn commit(writer: ImageWriter) -> Committed {
    let loader = loader_code::link(BASE).expect("linked");
    let meta = Image::encode_snapshot(&SnapshotV1::default()).expect("encoded");
    let ops = OpsBuilder::new(OpsHeader::default()).finish();
    let parts = ImageParts {
        platform: "LINUX X86_64",
        ops: &ops,
        meta: &meta,
        loader: &loader,
        hole: BASE..BASE + (1 << 20),
    };
    writer.commit(&parts).expect("committed")
}

fn check(path: &Path) -> Result<VerifyReport, ImageError> {
    Image::open(path)?.verify(&mut |_| ())
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

fn small_image(directory: &Path) -> PathBuf {
    let path = directory.join("small.img");
    let mut memory = vec![7u8; 3 * PAGE as usize];
    memory.extend(vec![0; 2 * PAGE as usize]);
    memory.extend(vec![9; PAGE as usize]);
    write(&path, &memory, None);
    path
}

#[test]
fn zero_pages_cost_nothing_and_everything_else_reads_back() {
    let directory = directory();
    for compression in [None, Some(3)] {
        let path = directory.path().join(format!("{compression:?}.img"));
        let mut memory = vec![0u8; 5_000_000usize.next_multiple_of(PAGE as usize)];
        for (index, byte) in memory
            .iter_mut()
            .enumerate()
            .filter(|(at, _)| at / 4096 % 3 == 1)
        {
            *byte = (index / 7) as u8 | 1;
        }
        write(&path, &memory, compression);
        let image = Image::open(&path).expect("opens");
        let report = image.verify(&mut |_| ()).expect("sound");
        let pages = (memory.len() / 4096).div_ceil(3) as u64;
        assert!(report.raw_bytes <= pages * 4096, "{report:?}");
        let mut read = vec![1; memory.len()];
        image
            .read_space(Space::Process(0), 0, &mut read)
            .expect("reads");
        assert!(read == memory);
    }
}

#[test]
fn zeros_over_a_file_are_kept() {
    let directory = directory();
    let path = directory.path().join("zeros.img");
    let mut writer = ImageWriter::create(&path, WriteOptions::default()).expect("created");
    let zeros = vec![0; 2 * PAGE as usize];
    let (first, second) = (0..PAGE, PAGE..2 * PAGE);
    writer
        .store(Space::Process(0), &[first], &zeros, &|_| ())
        .expect("stored");
    writer
        .store_with_zeros(Space::Process(0), &[second.clone()], &zeros, &|_| ())
        .expect("stored");
    assert_eq!(writer.stored(Space::Process(0)), [second]);
    commit(writer);
    check(&path).expect("sound");
}

#[test]
fn readelf_sees_the_sections() {
    let directory = directory();
    let path = small_image(directory.path());
    let bytes = std::fs::read(&path).expect("read");
    let elf = goblin::elf::Elf::parse(&bytes).expect("an ELF file");
    let names: Vec<_> = elf
        .section_headers
        .iter()
        .filter_map(|header| elf.shdr_strtab.get_at(header.sh_name))
        .collect();
    for name in [
        ".wf.header",
        ".wf.ops",
        ".wf.meta",
        ".wf.extents",
        ".wf.pages",
        ".wf.platform",
    ] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    assert_eq!(elf.entry & !0xf_ffff, BASE);
}

#[test]
fn every_truncation_is_refused() {
    let directory = directory();
    let path = small_image(directory.path());
    let bytes = std::fs::read(&path).expect("read");
    let cut = directory.path().join("cut.img");
    let lens = (0..bytes.len())
        .step_by(61)
        .chain(bytes.len() - 300..bytes.len());
    for len in lens {
        std::fs::write(&cut, &bytes[..len]).expect("written");
        assert!(check(&cut).is_err(), "{len} of {} bytes", bytes.len());
    }
}

#[test]
fn every_flipped_byte_is_refused() {
    let directory = directory();
    let path = small_image(directory.path());
    let bytes = std::fs::read(&path).expect("read");
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("open");
    let write = |at: usize, byte: u8| {
        std::os::unix::fs::FileExt::write_all_at(&file, &[byte], at as u64).expect("written");
    };
    let mut refused = 0;
    for at in (0..bytes.len()).step_by(3) {
        write(at, bytes[at] ^ (1 << (at % 8)));
        let result = check(&path);
        assert!(result.is_err(), "byte {at} of {}", bytes.len());
        refused += 1;
        write(at, bytes[at]);
    }
    assert!(refused > 10_000, "{refused} images tried");
    check(&path).expect("whole again");
}

proptest! {
    #[test]
    fn soup_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..20_000)) {
        let directory = directory();
        let path = directory.path().join("soup.img");
        std::fs::write(&path, &bytes).expect("written");
        prop_assert!(check(&path).is_err());
    }
}

#[test]
fn what_is_no_file_is_refused_without_waiting() {
    let directory = directory();
    assert!(matches!(
        check(directory.path()),
        Err(ImageError::NotAFile { .. })
    ));
    let fifo = directory.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("made");
    assert!(matches!(check(&fifo), Err(ImageError::NotAFile { .. })));
    let empty = directory.path().join("empty");
    std::fs::write(&empty, b"").expect("written");
    assert!(matches!(check(&empty), Err(ImageError::Length { .. })));
    assert!(matches!(
        check(&directory.path().join("none")),
        Err(ImageError::Io { .. })
    ));
}

#[test]
fn an_existing_image_is_not_overwritten_unasked() {
    let directory = directory();
    let path = small_image(directory.path());
    let again = ImageWriter::create(&path, WriteOptions::default());
    assert!(matches!(again, Err(ImageError::Exists { .. })));
    let options = WriteOptions {
        overwrite: true,
        ..WriteOptions::default()
    };
    commit(ImageWriter::create(&path, options).expect("created"));
    check(&path).expect("the new one");
}

#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    let directory = directory();
    let path = directory.path().join("x.img");
    let mut writer = ImageWriter::create(&path, WriteOptions::default()).expect("created");
    let source = vec![1u8; 8192];
    writer
        .store(Space::Process(0), &[0..8192], &source, &|_| ())
        .expect("stored");
    drop(writer);
    assert_eq!(
        std::fs::read_dir(directory.path()).expect("listed").count(),
        0
    );
}

#[test]
fn an_image_others_may_write_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let directory = directory();
    let path = small_image(directory.path());
    let mode = std::fs::metadata(&path)
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o722)).expect("set");
    assert!(matches!(check(&path), Err(ImageError::Untrusted { .. })));
}

#[test]
fn a_chain_becomes_one_whole_image() {
    let directory = directory();
    let base = directory.path().join("base.img");
    let mut memory: Vec<u8> = (0..700_000u32).map(|n| (n / 5) as u8).collect();
    memory.resize(memory.len().next_multiple_of(PAGE as usize), 0);
    write(&base, &memory, Some(3));
    let base = Image::open(&base).expect("opens");

    // A second image: what the first has, and pages of its own behind it.
    let chained = directory.path().join("chained.img");
    let mut writer = ImageWriter::create(&chained, WriteOptions::default()).expect("created");
    let number = writer.add_base(base.header().id, "base.img");
    for extent in base.tables().extents() {
        assert!(writer.reuse(number, &base, &extent));
    }
    let more = vec![8; 2 * PAGE as usize];
    let whole = [memory.clone(), more.clone()].concat();
    let (end, all) = (memory.len() as u64, whole.len() as u64);
    writer
        .store(Space::Process(0), &[end..all], &whole, &|_| ())
        .expect("stored");
    commit(writer);
    check(&chained).expect("sound");
    let chained = Image::open(&chained).expect("opens");
    assert_eq!(chained.tables().base_count(), 1);

    let path = directory.path().join("flat.img");
    let mut silent = crate::progress::Silent;
    let options = WriteOptions::default();
    let written = flatten(&chained, &path, options.clone(), &mut silent).expect("flattened");
    assert_eq!(written.path, path);
    std::fs::remove_file(base.path()).expect("removed");
    check(&path).expect("sound without its base");
    let flat = Image::open(&path).expect("opens");
    assert_eq!(flat.tables().base_count(), 0);
    let mut found = vec![1; whole.len()];
    flat.read_space(Space::Process(0), 0, &mut found)
        .expect("reads");
    assert!(found == whole);
    let again = flatten(&flat, &path, options, &mut silent);
    assert!(matches!(again, Err(ImageError::Exists { .. })), "{again:?}");
    let lost = Image::open(&directory.path().join("chained.img"));
    assert!(matches!(lost, Err(ImageError::Base { .. })), "{lost:?}");
}
