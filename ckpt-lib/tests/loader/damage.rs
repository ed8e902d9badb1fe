//! Damaged images: refused by name, with exit code 4, before anything of the job runs.

use crate::images::{Ended, TestImage, execute, finish, image_at, run_image};
use crate::restore::hello_image;
use loader::layout::{HEADER_OFFSET, Header, SectionKind};
use std::os::unix::fs::FileExt;

fn header(image: &TestImage) -> Header {
    let bytes = std::fs::read(&image.path).expect("read");
    Header::decode(&bytes[HEADER_OFFSET as usize..]).expect("sound")
}

fn flip(image: &TestImage, offset: u64) {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&image.path)
        .expect("open");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("read");
    file.write_all_at(&[byte[0] ^ 0x10], offset).expect("write");
}

fn refused(ended: &Ended, section: &str) {
    assert_eq!(ended.code(), Some(4), "{section}: {}", ended.stderr);
    assert_eq!(ended.stdout, "", "{section}: something ran");
    assert!(
        ended.stderr.contains(section),
        "{section}: {}",
        ended.stderr
    );
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
}

/// The loader executed from an undamaged copy, reading the damaged image.
pub(crate) fn execute_with(good: &TestImage, bad: &TestImage) -> Ended {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "exec \"$0\" --image-fd 7 7<\"$1\""]);
    command.arg(&good.path).arg(&bad.path);
    finish(command)
}

#[test]
fn a_flipped_bit_in_any_section_is_found() {
    let good = hello_image();
    for kind in SectionKind::ALL {
        let section = *header(&good).section(kind);
        for at in [
            section.offset,
            section.offset + section.len / 2,
            section.offset + section.len - 1,
        ] {
            // A page of contents is padded by nothing: every byte of it is under a checksum.
            let bad = hello_image();
            flip(&bad, at);
            refused(&execute_with(&good, &bad), kind.name());
        }
    }
}

#[test]
fn a_cut_image_is_refused() {
    let good = hello_image();
    let len = header(&good).image_len;
    for cut in [1, 4096, len / 2, len - HEADER_OFFSET - 1, len - 1, len] {
        let bad = hello_image();
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(&bad.path)
            .expect("open");
        file.set_len(len - cut).expect("cut");
        let ended = execute_with(&good, &bad);
        assert_eq!(
            (ended.code(), ended.stdout.as_str()),
            (Some(4), ""),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn an_image_that_was_made_longer_is_refused() {
    let (good, bad) = (hello_image(), hello_image());
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&bad.path)
        .expect("open");
    file.set_len(header(&bad).image_len + 1).expect("longer");
    refused(&execute_with(&good, &bad), "length");
}

#[test]
fn what_is_no_image_is_refused() {
    let good = hello_image();
    for nothing in ["/dev/null", "/bin/sh", "/"] {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "exec \"$0\" --image-fd 7 7<\"$1\""]);
        command.arg(&good.path).arg(nothing);
        let ended = finish(command);
        assert_eq!(
            (ended.code(), ended.stdout.as_str()),
            (Some(4), ""),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn verify_checks_everything_and_starts_nothing() {
    let image = hello_image();
    let ended = execute(&image, &["--verify"]);
    assert_eq!(
        (ended.code(), ended.stdout.as_str()),
        (Some(0), "ok\n"),
        "{}",
        ended.stderr
    );
    flip(
        &image,
        header(&image).section(SectionKind::Pages).offset + 100,
    );
    refused(
        &execute(&image, &["--verify"]),
        "section .wf.pages: chunk 0",
    );
}

#[test]
fn a_loader_for_another_address_is_refused() {
    let elsewhere = {
        use ckpt_lib::plan::{OpsBuilder, StreamIndex};
        let mut ops = OpsBuilder::new(loader::ops::OpsHeader::default());
        ops.stream(loader::ops::StreamKind::Process, 1, StreamIndex(0));
        image_at(0x20_0000_0000, ops, &vec![])
    };
    refused(
        &execute_with(&run_image(&["/bin/true"]), &elsewhere),
        "linked for 0x2000000000",
    );
}

#[test]
fn a_name_with_control_characters_is_shown_without_them() {
    let image = hello_image();
    let moved = image.path.with_file_name("a\u{1b}[2Jb\nc\u{9b}é");
    std::fs::rename(&image.path, &moved).expect("moved");
    let ended = finish(std::process::Command::new(&moved));
    assert_eq!(ended.stdout, "went on\n", "{}", ended.stderr);
    let bytes = std::fs::read(&moved).expect("read");
    std::fs::write(&moved, &bytes[..bytes.len() - 1]).expect("cut");
    let ended = finish(std::process::Command::new(&moved));
    refused(&ended, "/a\\x1b[2Jb\\x0ac\\u{9b}é: length: found");
    // The first instructions say no such name at all.
    std::fs::write(&moved, &bytes[..9000]).expect("cut");
    let ended = finish(std::process::Command::new(&moved));
    refused(&ended, "wayfarer: image: section .wf.loader: ");
}

#[test]
fn of_a_long_name_the_reason_is_not_lost() {
    let mut tiny = crate::restore::hello();
    let process = tiny.process;
    let label = format!("descriptor 9 ({})", "lamp/".repeat(300));
    let args = [ckpt_lib::plan::Arg::Value(u64::MAX)];
    let expect = loader::ops::Expect::Success;
    tiny.ops
        .call(process, &label, libc::SYS_close, &args, expect, 0);
    let image = crate::restore::alone(tiny);
    // And so is the image's own name.
    let folder = image.path.with_file_name("f".repeat(250));
    std::fs::create_dir(&folder).expect("made");
    let moved = folder.join("i".repeat(250));
    std::fs::rename(&image.path, &moved).expect("moved");
    let ended = finish(std::process::Command::new(&moved));
    assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.ends_with("lamp/): close: EBADF\n"),
        "{}",
        ended.stderr
    );
    assert!(
        ended.stderr.contains("descriptor 9 (lamp/lamp/"),
        "{}",
        ended.stderr
    );
}

#[test]
fn padding_that_is_not_zero_is_found() {
    let image = hello_image();
    let mut bytes = std::fs::read(&image.path).expect("read");
    let mut header = header(&image);
    let section = *header.section(SectionKind::Extents);
    assert!(section.used < section.len);
    let range = section.offset as usize..(section.offset + section.len) as usize;
    bytes[range.end - 1] = 7;
    header.sections[SectionKind::Extents as usize - 1].hash =
        *blake3::hash(&bytes[range]).as_bytes();
    let at = HEADER_OFFSET as usize;
    let page = header.encode();
    bytes[at..at + page.len()].copy_from_slice(&page);
    std::fs::write(&image.path, bytes).expect("written");
    refused(&execute(&image, &[]), "section .wf.extents: byte");
    let error = ckpt_lib::image::Image::open(&image.path).expect_err("refused");
    assert!(error.to_string().contains("padding"), "{error}");
}
