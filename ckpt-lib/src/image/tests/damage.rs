//! Images damaged in every way: none is accepted, none panics, none hangs.

use super::*;
use loader::layout::{HEADER_LEN, HEADER_OFFSET, Header, SectionKind};
use proptest::prelude::*;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Seven pages with contents in three extents, one of them compressed.
fn small_image(dir: &Path) -> PathBuf {
    let path = dir.join("small");
    let memory = Memory::new(9, 31, |page| page % 4 == 2);
    let options = WriteOptions {
        compression: Some(1),
        ..WriteOptions::default()
    };
    image_of(&path, &memory, options);
    path
}

/// The section that the error's text names, and none other.
fn section_of(error: &ImageError) -> Option<&'static str> {
    let text = error.to_string();
    let mut named = SectionKind::ALL.map(SectionKind::name).into_iter();
    let mut named = named.by_ref().filter(|name| text.contains(name));
    named.next().filter(|_| named.next().is_none())
}

#[test]
fn every_truncation_is_refused() {
    let dir = directory();
    let path = small_image(dir.path());
    let len = fs::metadata(&path).expect("there").len();
    let sections = Image::open(&path).expect("opens").header().sections;
    let name = |last: u64| {
        let kind = sections
            .iter()
            .rfind(|section| section.offset <= last)?
            .kind;
        Some(SectionKind::from_number(kind)?.name())
    };
    let file = OpenOptions::new().write(true).open(&path).expect("opens");
    for len in (0..len).rev() {
        file.set_len(len).expect("cuts");
        let error = check(&path).expect_err("refused");
        assert!(
            matches!(error, ImageError::Length { found, .. } if found == len),
            "{len}: {error}"
        );
        // Without the header nobody knows of sections.
        let place = match len {
            0..8192 => "before the end of .wf.header".to_owned(),
            _ => format!("in {}", name(len - 1).expect("a section")),
        };
        assert!(
            error.to_string().ends_with(&place),
            "{error}, expected {place}"
        );
    }
}

#[test]
fn bytes_behind_the_end_are_refused() {
    let dir = directory();
    let path = small_image(dir.path());
    let mut bytes = fs::read(&path).expect("reads");
    bytes.push(0);
    fs::write(&path, bytes).expect("writes");
    assert!(matches!(check(&path), Err(ImageError::Length { .. })));
}

#[test]
fn a_flipped_bit_in_any_byte_is_refused_and_its_section_named() {
    let dir = directory();
    let path = small_image(dir.path());
    let bytes = fs::read(&path).expect("reads");
    let header = *Image::open(&path).expect("opens").header();
    let file = OpenOptions::new().write(true).open(&path).expect("opens");
    let mut tried = 0;
    for section in header.sections {
        let kind = SectionKind::from_number(section.kind).expect("known");
        // Every byte, but for the long run of the loader's text, of which one in eleven.
        let step = if kind == SectionKind::Loader { 11 } else { 1 };
        for at in (section.offset..section.offset + section.len).step_by(step) {
            let right = bytes[at as usize];
            let bits = [(at % 8) as u8, (at / 8 % 8) as u8];
            for bit in &bits[..1 + usize::from(at % 5 == 0 && bits[0] != bits[1])] {
                file.write_all_at(&[right ^ (1 << bit)], at)
                    .expect("writes");
                let error = check(&path).expect_err("refused");
                assert_eq!(
                    section_of(&error),
                    Some(kind.name()),
                    "byte {at} bit {bit}: {error}"
                );
                let place = format!(" {} bytes from byte {} of", section.len, section.offset);
                let tells_place = match kind {
                    // A chunk or a byte is a place, and the header says what of it is wrong.
                    SectionKind::Pages => {
                        let text = error.to_string();
                        text.contains(" chunk ") || text.contains(&format!(" byte {at} "))
                    }
                    SectionKind::Header => true,
                    _ => error.to_string().contains(&place),
                };
                assert!(tells_place, "byte {at} bit {bit}: {error}");
                tried += 1;
            }
            file.write_all_at(&[right], at).expect("writes");
        }
    }
    assert!(tried > 10_000, "{tried} images");
    check(&path).expect("whole again");
}

/// Changes a header and makes its checksum right again.
fn with_header(path: &Path, change: impl FnOnce(&mut Header)) {
    let mut header = *Image::open(path).expect("opens").header();
    change(&mut header);
    let file = OpenOptions::new().write(true).open(path).expect("opens");
    file.write_all_at(&header.encode(), HEADER_OFFSET)
        .expect("writes");
}

#[test]
fn another_version_is_refused() {
    let dir = directory();
    let path = small_image(dir.path());
    with_header(&path, |header| header.version = 7);
    let error = check(&path).expect_err("refused");
    assert!(
        matches!(error, ImageError::Version { found: 7, .. }),
        "{error}"
    );
}

#[test]
fn absurd_lengths_are_refused_before_memory_is_taken() {
    let dir = directory();
    let began = Instant::now();
    for kind in [
        SectionKind::Platform,
        SectionKind::Ops,
        SectionKind::Meta,
        SectionKind::Extents,
    ] {
        let path = small_image(dir.path());
        // A file of terabytes without blocks, in which everything else is right.
        let growth = 1 << 42;
        with_header(&path, |header| {
            let mut moved = 0;
            for section in &mut header.sections {
                section.offset += moved;
                if section.kind == kind as u32 {
                    section.len += growth;
                    section.used += growth;
                    moved = growth;
                }
            }
            header.image_len += growth;
        });
        let file = OpenOptions::new().write(true).open(&path).expect("opens");
        let len = file.metadata().expect("there").len();
        file.set_len(len + growth).expect("grows");
        let error = Image::open(&path).expect_err("refused");
        assert!(
            matches!(error, ImageError::TooLong { section, .. } if section == kind.name()),
            "{error}"
        );
        fs::remove_file(&path).expect("removes");
    }
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[test]
fn what_is_no_file_is_refused_without_waiting() {
    let dir = directory();
    assert!(matches!(
        check(dir.path()),
        Err(ImageError::NotAFile { .. })
    ));
    let fifo = dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("made");
    assert!(matches!(check(&fifo), Err(ImageError::NotAFile { .. })));
    assert!(matches!(
        check(Path::new("/dev/null")),
        Err(ImageError::NotAFile { .. })
    ));
    let empty = dir.path().join("empty");
    fs::write(&empty, b"").expect("written");
    assert!(matches!(
        check(&empty),
        Err(ImageError::Length { found: 0, .. })
    ));
    assert!(matches!(
        check(&dir.path().join("none")),
        Err(ImageError::Io { .. })
    ));
}

#[test]
fn an_image_others_may_write_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = directory();
    let path = small_image(dir.path());
    for mode in [0o720, 0o702] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        assert!(matches!(check(&path), Err(ImageError::Untrusted { .. })));
    }
}

/// Writes `bytes` as a section of a copy of this image and makes every checksum right again.
fn with_section(original: &Path, kind: SectionKind, bytes: &[u8]) -> PathBuf {
    let path = original.with_file_name("changed");
    let mut image = fs::read(original).expect("reads");
    let mut header = *Image::open(original).expect("opens").header();
    let old = *header.section(kind);
    let mut body = bytes.to_vec();
    body.resize(body.len().next_multiple_of(PAGE as usize), 0);
    let range = old.offset as usize..(old.offset + old.len) as usize;
    image.splice(range, body.iter().copied());
    let moved = body.len() as u64;
    for section in &mut header.sections {
        if section.kind == kind as u32 {
            section.len = moved;
            section.used = bytes.len() as u64;
            section.hash = *blake3::hash(&body).as_bytes();
        } else if section.offset > old.offset {
            section.offset = section.offset - old.len + moved;
        }
    }
    header.image_len = image.len() as u64;
    let at = HEADER_OFFSET as usize;
    image[at..at + HEADER_LEN].copy_from_slice(&header.encode());
    fs::write(&path, image).expect("writes");
    path
}

fn section_bytes(path: &Path, kind: SectionKind) -> Vec<u8> {
    let image = Image::open(path).expect("opens");
    let section = image.header().section(kind);
    let mut bytes = vec![0; section.used as usize];
    image
        .file()
        .read_exact_at(&mut bytes, section.offset)
        .expect("reads");
    bytes
}

/// What bad luck does not make but malice could: wrong bytes under right checksums. They are errors or
/// another sound image, never a panic, and nothing is read outside the pages.
#[test]
fn wrong_bytes_under_right_checksums_do_no_harm() {
    let dir = directory();
    let began = Instant::now();
    let original = small_image(dir.path());
    let kinds = [
        SectionKind::Elf,
        SectionKind::Platform,
        SectionKind::Ops,
        SectionKind::Meta,
        SectionKind::Extents,
    ];
    let mut state = 0x5eed_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    let whole: Vec<_> = kinds
        .map(|kind| (kind, section_bytes(&original, kind)))
        .into();
    let mut refused = 0;
    const ROUNDS: usize = 1500;
    for round in 0..ROUNDS {
        let (kind, right) = &whole[round % kinds.len()];
        let mut bytes = right.clone();
        for _ in 0..1 + random(3) {
            let at = random(bytes.len());
            match random(4) {
                0 => bytes.truncate(at),
                1 => bytes.extend_from_slice(&right[at.min(right.len())..]),
                2 => bytes[at..].iter_mut().take(8).for_each(|byte| *byte = 0xff),
                _ => bytes[at] = random(256) as u8,
            }
            if bytes.is_empty() {
                break;
            }
        }
        let path = with_section(&original, *kind, &bytes);
        refused += usize::from(check(&path).is_err());
    }
    assert!(refused > ROUNDS / 3, "{refused} refused");
    assert!(began.elapsed() < Duration::from_secs(60));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn soup_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..20_000)) {
        let dir = directory();
        let path = dir.path().join("soup");
        fs::write(&path, &bytes).expect("writes");
        prop_assert!(check(&path).is_err());
    }

    #[test]
    fn soup_in_place_of_a_section_does_no_harm(
        kind in prop::sample::select(vec![
            SectionKind::Elf,
            SectionKind::Ops,
            SectionKind::Meta,
            SectionKind::Extents,
        ]),
        bytes in proptest::collection::vec(any::<u8>(), 1..5000),
    ) {
        let dir = directory();
        let path = with_section(&small_image(dir.path()), kind, &bytes);
        prop_assert!(check(&path).is_err());
    }

    #[test]
    fn bytes_exchanged_or_repeated_are_refused(from in 0..60_000usize, to in 0..60_000usize, len in 1..9000usize) {
        let dir = directory();
        let path = small_image(dir.path());
        let mut bytes = fs::read(&path).expect("reads");
        let (from, to) = (from % bytes.len(), to % bytes.len());
        let len = len.min(bytes.len() - from.max(to));
        let before = bytes.clone();
        bytes.copy_within(from..from + len, to);
        fs::write(&path, &bytes).expect("writes");
        prop_assert_eq!(check(&path).is_err(), bytes != before);
    }
}
