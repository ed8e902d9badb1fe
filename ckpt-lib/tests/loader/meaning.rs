//! Images whose checksums are right and whose parts do not fit together: refused by the loader and by
//! `ckpt_lib` alike, at once, and before anything runs.

use crate::images::{
    COMPRESSION, Ended, HOLE, PID, STACK, TestImage, Tiny, execute, image_with, spawn, store, tiny,
};
use crate::restore::{Code, hello, hello_image};
use ckpt_lib::image::Image;
use ckpt_lib::plan::{Arg, OpsBuilder, StreamIndex};
use loader::layout::{
    CHUNK_BYTES, ExtentTables, HEADER_LEN, HEADER_OFFSET, Header, SectionKind, Space, chunk_hash,
};
use loader::ops::{Expect, Inode, Open, OpsHeader, Registers, Send, StreamKind, TimerCreate};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// Changes the bytes of an image, and then makes all checksums in the header right again.
fn change(image: &TestImage, how: impl FnOnce(&mut Vec<u8>, &mut Header)) {
    let mut bytes = std::fs::read(&image.path).expect("read");
    let at = HEADER_OFFSET as usize;
    let mut header = Header::decode(&bytes[at..]).expect("sound");
    how(&mut bytes, &mut header);
    for section in &mut header.sections {
        let kind = SectionKind::from_number(section.kind);
        if !matches!(kind, Some(SectionKind::Header | SectionKind::Pages)) {
            let range = section.offset as usize..(section.offset + section.len) as usize;
            section.hash = *blake3::hash(&bytes[range]).as_bytes();
        }
    }
    bytes[at..at + HEADER_LEN].copy_from_slice(&header.encode());
    std::fs::write(&image.path, bytes).expect("written");
}

fn refused(ended: &Ended, expected: &str) {
    let found = (ended.code(), ended.stdout.as_str());
    assert_eq!(found, (Some(4), ""), "{expected}: {}", ended.stderr);
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
}

/// Both readers refuse it, for this reason.
fn refused_by_both(image: &TestImage, expected: &str) {
    for options in [&["--verify"][..], &[]] {
        refused(&execute(image, options), expected);
    }
    let verified = Image::open(&image.path).and_then(|image| image.verify(&mut |_| {}));
    let error = verified.expect_err("refused").to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_hole_that_is_too_small() {
    let image = hello_image();
    change(&image, |_, header| header.hole_len = 1 << 20);
    refused(&execute(&image, &["--verify"]), "hole");
    let verified = Image::open(&image.path).and_then(|image| image.verify(&mut |_| {}));
    let error = verified.expect_err("refused").to_string();
    assert!(error.contains("bytes of the loader's hole"), "{error}");
}

#[test]
fn a_list_without_a_process() {
    let ops = OpsBuilder::new(OpsHeader::default());
    let image = image_with(HOLE, ops, |_| {});
    refused_by_both(&image, "no process to start");
}

#[test]
fn contents_outside_the_mappings_or_over_the_hole() {
    for (at, expected) in [
        (0x48_0000, "contents where nothing is mapped"),
        (0x60_0000, "contents behind the last mapping"),
        (HOLE, "contents behind the last mapping"),
    ] {
        let mut tiny = hello();
        tiny.thread(PID, 0x40_0000, STACK);
        tiny.contents.push((at, vec![1; 4096]));
        refused_by_both(&tiny.image(), expected);
    }
    let mut tiny = tiny(&Code::default().exit(5).0);
    tiny.thread(PID, 0x40_0000, STACK);
    let process = tiny.process;
    crate::images::map(&mut tiny.ops, process, HOLE + 4096, 4096, 3);
    refused_by_both(&tiny.image(), "mapping over the loader's hole");
}

/// What stands behind an operation's fields is read before anything is made, not when its turn has come.
#[test]
fn an_operation_whose_tail_does_not_fit() {
    let said = |tiny: &mut Tiny| {
        let args = [
            Arg::Value(1),
            Arg::Bytes(b"begun\n".to_vec()),
            Arg::Value(6),
        ];
        let process = tiny.process;
        let write = libc::SYS_write;
        tiny.ops
            .call(process, "a line", write, &args, Expect::Ignore, 0);
    };
    let refuses = |damage: &dyn Fn(&mut OpsBuilder, StreamIndex), expected: &str| {
        let mut tiny = hello();
        said(&mut tiny);
        let process = tiny.process;
        damage(&mut tiny.ops, process);
        tiny.thread(PID, 0x40_0000, STACK);
        refused_by_both(&tiny.image(), expected);
    };
    refuses(
        &|ops, process| ops.push(process, &Open::default(), b"/no/end."),
        "a string without an end",
    );
    let many = Send {
        fds: 300,
        ..Send::default()
    };
    refuses(
        &|ops, process| ops.push(process, &many, &[0; 4096]),
        "a message of more descriptors than one may have",
    );
    let odd = Inode {
        check: 17,
        ..Inode::default()
    };
    refuses(
        &|ops, process| ops.push(process, &odd, &[0; 40]),
        "compared as nobody knows",
    );
    refuses(
        &|ops, process| ops.push(process, &TimerCreate::default(), &[0; 8]),
        "TimerCreate does not fit",
    );
    refuses(
        &|ops, process| ops.push(process, &Registers::default(), &[0; 64]),
        "registers cut short",
    );
}

#[test]
fn a_byte_between_the_chunks() {
    let mut tiny = hello();
    tiny.thread(PID, 0x40_0000, STACK);
    let image = image_with(HOLE, tiny.ops, |writer| {
        store(writer, &tiny.contents);
        let file = b"a hundred bytes, more or less".to_vec();
        let len = file.len() as u64;
        writer
            .store(Space::Inode(0), &[0..len], &file, &|_| {})
            .expect("stored");
    });
    assert_eq!(execute(&image, &[]).code(), Some(5));
    change(&image, |bytes, header| {
        let pages = header.section(SectionKind::Pages);
        bytes[(pages.offset + pages.len - 1) as usize] = 1;
    });
    refused_by_both(&image, "belongs to no chunk");
}

#[test]
fn a_section_of_terabytes_is_not_read() {
    let (good, bad) = (hello_image(), hello_image());
    let growth = 4u64 << 40;
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&bad.path)
        .expect("open");
    let mut page = [0; HEADER_LEN];
    file.read_exact_at(&mut page, HEADER_OFFSET).expect("read");
    let mut header = Header::decode(&page).expect("sound");
    for section in &mut header.sections {
        match section.kind {
            7 => section.len += growth,
            8.. => section.offset += growth,
            _ => {}
        }
    }
    header.image_len += growth;
    file.write_all_at(&header.encode(), HEADER_OFFSET)
        .expect("written");
    file.set_len(header.image_len).expect("grown");
    let began = Instant::now();
    let ended = crate::damage::execute_with(&good, &bad);
    refused(&ended, "section .wf.meta: found 439804651");
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_frame_that_is_a_bomb_or_says_what_no_frame_says() {
    // 64 MiB of nothing; one that says it is a chunk, and one that does not.
    let honest = zstd::bulk::compress(&vec![0; 64 << 20], 3).expect("compressed");
    let mut liar = honest.clone();
    // The field for the length of the contents: four bytes behind magic, descriptor (and window).
    let single = liar[4] & 0x20 != 0;
    assert_eq!(liar[4] >> 6, 2, "a length of four bytes");
    let at = if single { 5 } else { 6 };
    liar[at..at + 4].copy_from_slice(&(256u32 << 10).to_le_bytes());
    // A chunk, but for a bit of its descriptor that is reserved.
    let mut reserved = zstd::bulk::compress(&vec![1; 256 << 10], 3).expect("compressed");
    reserved[4] |= 8;
    for (bomb, expected) in [
        (honest, "chunk 1: a zstd frame whose header"),
        (liar, "section .wf.pages: "),
        (reserved, "chunk 1: a zstd frame whose header"),
    ] {
        let image = bombed(&bomb);
        for options in [&["--verify"][..], &[]] {
            let ended = execute(&image, options);
            refused(&ended, expected);
            assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        }
        let verified = Image::open(&image.path).and_then(|image| image.verify(&mut |_| {}));
        verified.expect_err("refused");
    }
}

/// An image whose second chunk is this frame.
fn bombed(bomb: &[u8]) -> TestImage {
    let mut tiny = hello();
    let process = tiny.process;
    let at = 0x2000_0000;
    // Room for the frame: noise in a quarter of the chunk.
    let mut seed = 1u64;
    let mut noise = move || {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 56) as u8
    };
    let bytes: Vec<u8> = (0..256 << 10)
        .map(|index| if index < bomb.len() { noise() } else { 1 })
        .collect();
    // The planner's order: mappings before `Fill`.
    let mut ops = OpsBuilder::new(*tiny.ops.header_mut());
    let stream = ops.stream(StreamKind::Process, PID, StreamIndex(0));
    assert_eq!(stream, process);
    ops.push(stream, &loader::ops::UnmapAll::default(), &[]);
    crate::images::map(&mut ops, stream, 0x40_0000, 4096, 7);
    crate::images::map(&mut ops, stream, STACK, 8192, 3);
    crate::images::map(&mut ops, stream, at, 256 << 10, 3);
    ops.push(stream, &loader::ops::Fill { process: 0 }, &[]);
    tiny.ops = ops;
    tiny.thread(PID, 0x40_0000, STACK + 8192);
    tiny.contents.push((at, bytes));
    COMPRESSION.set(Some(3));
    let image = tiny.image();
    COMPRESSION.set(None);
    change(&image, |bytes, header| {
        let section = *header.section(SectionKind::Extents);
        let range = section.offset as usize..(section.offset + section.used) as usize;
        let tables = ExtentTables::read(&bytes[range.clone()]).expect("tables");
        let last = tables.chunk_count() - 1;
        let Ok(chunk) = tables.chunk(last);
        let mut chunk = chunk.expect("a chunk");
        let place = chunk.offset as usize..chunk.offset as usize + chunk.stored_len as usize;
        assert!(place.len() >= bomb.len() && place.len() < bomb.len() + 4000);
        bytes[place.clone()].fill(0);
        bytes[place.start..place.start + bomb.len()].copy_from_slice(bomb);
        chunk.stored_len = bomb.len() as u32;
        chunk.hash = chunk_hash(bomb);
        // Behind the chunks come the bases, of which there are none.
        let at = range.end - CHUNK_BYTES;
        bytes[at..range.end].copy_from_slice(&chunk.encode());
    });
    image
}

#[test]
fn a_fifo_in_the_place_of_a_base() {
    let dir = tempfile::tempdir().expect("directory");
    let (base, later) = (dir.path().join("base"), dir.path().join("later"));
    let mut tiny = hello();
    tiny.thread(PID, 0x40_0000, STACK + 8192);
    let again = {
        let mut tiny = hello();
        tiny.thread(PID, 0x40_0000, STACK + 8192);
        tiny.ops
    };
    crate::images::write_image_with(&base, HOLE, tiny.ops, |writer| {
        store(writer, &tiny.contents);
    });
    crate::images::write_image_with(&later, HOLE, again, |writer| {
        let earlier = Image::open(&base).expect("opens");
        writer.build_on(earlier).expect("can be named");
        store(writer, &tiny.contents);
    });
    let run = || {
        let mut command = Command::new(&later);
        crate::images::finish({
            command.arg("--verify");
            command
        })
    };
    assert_eq!(run().stdout, "ok\n");
    std::fs::remove_file(&base).expect("removed");
    nix::unistd::mkfifo(&base, nix::sys::stat::Mode::S_IRWXU).expect("made");
    refused(&run(), "base image base: found a file of kind");
}

/// Waits until the loader or a child of it is in nanosleep.
fn await_nap(pid: u32) {
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let nap = format!("{} ", libc::SYS_nanosleep);
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let children = read(format!("/proc/{pid}/task/{pid}/children"));
        let all = format!("{pid} {children}");
        let mut all = all.split_whitespace();
        if all.any(|pid| read(format!("/proc/{pid}/syscall")).starts_with(&nap)) {
            return;
        }
        assert!(Instant::now() < deadline, "nobody naps under {pid}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_signal_ends_what_is_still_being_prepared() {
    let mut tiny = hello();
    tiny.thread(PID, 0x40_0000, STACK + 8192);
    let time = [30u64, 0].map(u64::to_le_bytes).concat();
    let args = [Arg::Bytes(time), Arg::Value(0)];
    let nr = libc::SYS_nanosleep;
    tiny.ops
        .call(StreamIndex(0), "rest", nr, &args, Expect::Success, 0);
    let image = tiny.image();
    for pids in ["namespace", "host"] {
        for signal in [libc::SIGTERM, libc::SIGINT] {
            let began = Instant::now();
            let mut command = Command::new(&image.path);
            let mut child = spawn(command.args(["--pids", pids, "--accept-new-ids"]));
            await_nap(child.id());
            let pid = nix::unistd::Pid::from_raw(child.id() as i32);
            let sent = nix::sys::signal::Signal::try_from(signal).expect("signal");
            nix::sys::signal::kill(pid, sent).expect("sent");
            let status = child.wait().expect("waited");
            let found = std::os::unix::process::ExitStatusExt::signal(&status);
            assert_eq!(found, Some(signal), "{pids}");
            assert!(began.elapsed() < Duration::from_secs(15), "{pids}");
        }
    }
}

#[test]
fn unread_bytes_that_are_not_there() {
    use ckpt_lib::plan::StreamIndex;
    use loader::ops::{Feed, Refill};
    let send = |from, at, len| Send {
        from,
        at,
        len,
        ..Send::default()
    };
    let check = |expected: Option<&str>, push: &dyn Fn(&mut OpsBuilder)| {
        let mut tiny = hello();
        tiny.unread(202, vec![7; 1000]);
        push(&mut tiny.ops);
        tiny.thread(PID, 0x40_0000, STACK);
        let image = tiny.image();
        match expected {
            Some(expected) => refused_by_both(&image, expected),
            None => assert_eq!(execute(&image, &["--verify"]).code(), Some(0)),
        }
    };
    let beyond = Some("end of unread bytes, or none");
    let nowhere = Some("slot of unread bytes that nothing fills");
    for (expected, send) in [
        (None, send(202, 1, 999)),
        (None, send(99, 5000, 0)),
        (beyond, send(202, 1, 1000)),
        (beyond, send(202, u64::MAX, 2)),
        (nowhere, send(203, 0, 1)),
    ] {
        let push = |ops: &mut OpsBuilder| ops.push(StreamIndex(0), &send, b"socket 1\0");
        check(expected, &push);
    }
    let refill = Refill {
        from: 202,
        len: 1001,
        ..Refill::default()
    };
    check(beyond, &|ops| ops.push(StreamIndex(0), &refill, b"pipe\0"));
    let nothing = Feed {
        from: 202,
        ..Feed::default()
    };
    check(beyond, &|ops| ops.push(StreamIndex(0), &nothing, &[]));
    // One is as it should be, one is not.
    check(nowhere, &|ops| {
        ops.push(StreamIndex(0), &send(202, 0, 1), b"socket 1\0");
        ops.push(StreamIndex(0), &send(201, 0, 1), b"socket 1\0");
    });
}
