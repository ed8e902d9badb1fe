//! Files found again, made anew, or refused; images that take contents from earlier ones.

use crate::images::{CODE, Contents, HOLE, PID, STACK, Tiny, execute, tiny, write_image_with};
use crate::restore::{Code, hello};
use ckpt_lib::image::Image;
use ckpt_lib::plan::{Arg, StreamIndex};
use loader::layout::Space;
use loader::ops::{CutBack, Expect, Inode, Open, check, inode_flags};
use std::path::Path;

const PREPARE: StreamIndex = StreamIndex(0);
const INODE_SLOT: u64 = 200;
const SLOT: u64 = 201;

/// A program that reads descriptor 7 and writes what it got to descriptor 1.
fn reader() -> Tiny {
    let code = Code::default()
        .mov(7, 7)
        .mov(6, STACK as u32)
        .mov(2, 100)
        .mov(0, 0)
        .bytes(&[0x0f, 0x05, 0x89, 0xc2]) // syscall; mov edx, eax
        .mov(7, 1)
        .mov(6, STACK as u32)
        .mov(0, 1)
        .bytes(&[0x0f, 0x05])
        .exit(5);
    tiny(&code.0)
}

struct Wanted<'a> {
    path: &'a Path,
    was: &'a [u8],
    check: u64,
    flags: u64,
    offset: u64,
}

/// The reader, with descriptor 7 on a file as `wanted` describes it.
fn reading(wanted: &Wanted<'_>) -> Tiny {
    let mut tiny = reader();
    let path = [wanted.path.to_str().expect("text").as_bytes(), b"\0"].concat();
    let op = Inode {
        slot: INODE_SLOT,
        inode: 0,
        size: wanted.was.len() as u64,
        check: wanted.check,
        flags: wanted.flags,
        mode: 0o640,
    };
    let hash = *blake3::hash(wanted.was).as_bytes();
    tiny.ops.push(PREPARE, &op, &[&hash[..], &path].concat());
    let open = Open {
        slot: SLOT,
        inode_slot: INODE_SLOT,
        flags: libc::O_RDONLY as u64,
        offset: wanted.offset,
    };
    tiny.ops.push(PREPARE, &open, &path);
    let process = tiny.process;
    let args = [SLOT, 7, 0].map(Arg::Value);
    tiny.ops.call(
        process,
        "descriptor 7",
        libc::SYS_dup3,
        &args,
        Expect::Exactly,
        7,
    );
    tiny.thread(PID, CODE, STACK + 8192);
    tiny
}

/// The image of a reader, the contents of the file carried along or not.
fn image_of(tiny: Tiny, carried: Option<&[u8]>) -> crate::images::TestImage {
    crate::images::image_with(HOLE, tiny.ops, |writer| {
        crate::images::store(writer, &tiny.contents);
        if let Some(bytes) = carried {
            let len = bytes.len() as u64;
            let source = bytes.to_vec();
            let range = 0..len.next_multiple_of(4096);
            writer
                .store(Space::Inode(0), &[range], &source, &|_| {})
                .expect("stored");
        }
    })
}

#[test]
fn an_unchanged_file_is_read_from_where_it_was() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("data");
    std::fs::write(&path, b"hello, world").expect("write");
    let wanted = Wanted {
        path: &path,
        was: b"hello, world",
        check: check::FULL,
        flags: 0,
        offset: 7,
    };
    let image = image_of(reading(&wanted), None);
    let ended = execute(&image, &[]);
    assert_eq!(
        (ended.code(), ended.stdout.as_str()),
        (Some(5), "world"),
        "{}",
        ended.stderr
    );

    std::fs::write(&path, b"hello, moon!").expect("write");
    let ended = execute(&image, &[]);
    assert_eq!((ended.code(), ended.stdout.as_str()), (Some(1), ""));
    assert!(
        ended.stderr.contains("data has changed: blake3"),
        "{}",
        ended.stderr
    );
    let ended = execute(&image, &["--files", "keep"]);
    assert_eq!(
        (ended.code(), ended.stdout.as_str()),
        (Some(5), "moon!"),
        "{}",
        ended.stderr
    );

    std::fs::write(&path, b"hello").expect("write");
    let ended = execute(&image, &[]);
    assert!(
        ended.stderr.contains("found 5 bytes, expected 12"),
        "{}",
        ended.stderr
    );
    std::fs::remove_file(&path).expect("remove");
    let ended = execute(&image, &["--files", "keep"]);
    assert_eq!(ended.code(), Some(1));
    assert!(ended.stderr.contains("is missing"), "{}", ended.stderr);
}

#[test]
fn a_carried_file_is_made_when_it_is_not_there() {
    let wanted = Wanted {
        path: Path::new("/nonexistent/libx.so"),
        was: b"carried bytes",
        check: check::FULL,
        flags: inode_flags::CARRIED,
        offset: 8,
    };
    let ended = execute(&image_of(reading(&wanted), Some(wanted.was)), &[]);
    assert_eq!(
        (ended.code(), ended.stdout.as_str()),
        (Some(5), "bytes"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_deleted_file_is_there_again_and_has_no_name() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("gone");
    let wanted = Wanted {
        path: &path,
        was: b"deleted bytes",
        check: check::NONE,
        flags: inode_flags::CARRIED | inode_flags::DELETED,
        offset: 0,
    };
    let ended = execute(&image_of(reading(&wanted), Some(wanted.was)), &[]);
    assert_eq!(
        (ended.code(), ended.stdout.as_str()),
        (Some(5), "deleted bytes"),
        "{}",
        ended.stderr
    );
    assert_eq!(std::fs::read_dir(dir.path()).expect("dir").count(), 0);
}

#[test]
fn a_grown_file_is_cut_back_only_when_asked_and_its_tail_is_saved() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("log");
    std::fs::write(&path, b"before|after").expect("write");
    let name = [path.to_str().expect("text").as_bytes(), b"\0"].concat();
    let mut tiny = hello();
    let op = Inode {
        slot: INODE_SLOT,
        inode: 0,
        size: 7,
        check: check::FULL_PREFIX,
        flags: inode_flags::WRITTEN,
        mode: 0o640,
    };
    let hash = *blake3::hash(b"before|").as_bytes();
    tiny.ops.push(PREPARE, &op, &[&hash[..], &name].concat());
    let op = CutBack {
        size: 7,
        slot: INODE_SLOT,
    };
    tiny.ops.push(PREPARE, &op, &name);
    tiny.thread(PID, CODE, STACK + 8192);
    let image = tiny.image();
    let refused = execute(&image, &[]);
    assert_eq!(refused.code(), Some(1));
    assert!(
        refused
            .stderr
            .contains("has grown: found 12 bytes, expected 7"),
        "{}",
        refused.stderr
    );
    assert_eq!(execute(&image, &["--files", "keep"]).code(), Some(5));
    assert_eq!(std::fs::read(&path).expect("read"), b"before|after");
    // A tail saved before stays what it is, and a link's target is not cut.
    let saved = |number: &str| dir.path().join(format!("log.wayfarer-tail{number}"));
    std::fs::write(saved(""), b"older").expect("write");
    std::fs::rename(&path, dir.path().join("elsewhere")).expect("rename");
    std::os::unix::fs::symlink("elsewhere", &path).expect("link");
    let ended = execute(&image, &["--files", "roll-back"]);
    assert_eq!(ended.code(), Some(1));
    assert!(ended.stderr.contains("symbolic link"), "{}", ended.stderr);
    assert_eq!(std::fs::read(&path).expect("read"), b"before|after");
    std::fs::rename(dir.path().join("elsewhere"), &path).expect("rename");
    let ended = execute(&image, &["--files", "roll-back"]);
    assert_eq!(ended.code(), Some(5), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("log.wayfarer-tail.001"),
        "{}",
        ended.stderr
    );
    assert_eq!(std::fs::read(&path).expect("read"), b"before|");
    assert_eq!(std::fs::read(saved("")).expect("tail"), b"older");
    assert_eq!(std::fs::read(saved(".001")).expect("tail"), b"after");
    // What differs in the bytes it had is not cut.
    std::fs::write(&path, b"BEFORE|after").expect("write");
    let ended = execute(&image, &["--files", "roll-back"]);
    assert_eq!(ended.code(), Some(1));
    assert!(
        ended
            .stderr
            .contains("has changed within the 7 bytes it had"),
        "{}",
        ended.stderr
    );
    assert_eq!(std::fs::read(&path).expect("read"), b"BEFORE|after");
}

#[test]
fn contents_of_an_earlier_image_are_found_beside_it() {
    let dir = tempfile::tempdir().expect("dir");
    let (old, new) = (dir.path().join("one.img"), dir.path().join("two.img"));
    let mut tiny = hello();
    tiny.thread(PID, CODE, STACK + 8192);
    let contents: Contents = tiny.contents.clone();
    let ops = |tiny: Tiny| tiny.ops;
    write_image_with(&old, HOLE, ops(tiny), |writer| {
        crate::images::store(writer, &contents)
    });
    let base = Image::open(&old).expect("sound");
    let mut tiny = hello();
    tiny.thread(PID, CODE, STACK + 8192);
    write_image_with(&new, HOLE, tiny.ops, |writer| {
        writer.build_on(base).expect("can be named");
        crate::images::store(writer, &contents);
    });
    let built = Image::open(&new).expect("sound");
    assert!(
        built
            .tables()
            .extents()
            .all(|extent| extent.is_ok_and(|extent| extent.image == 1))
    );
    let run = || crate::images::finish(std::process::Command::new(&new));
    let ended = run();
    assert_eq!(
        (ended.code(), ended.stdout.as_str()),
        (Some(5), "went on\n"),
        "{}",
        ended.stderr
    );
    // Another image of that name is not the one that is meant.
    std::fs::remove_file(&old).expect("remove");
    let ended = run();
    assert_eq!(ended.code(), Some(4));
    assert!(
        ended.stderr.contains("base image one.img cannot be opened"),
        "{}",
        ended.stderr
    );
    std::fs::copy(&new, &old).expect("copy");
    let ended = run();
    assert_eq!((ended.code(), ended.stdout.as_str()), (Some(4), ""));
    assert!(
        ended.stderr.contains("base image one.img: found id"),
        "{}",
        ended.stderr
    );
}
