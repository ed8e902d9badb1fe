//! Damaged images that are executed: there is nobody but their own first instructions to see it.

use crate::images::TestImage;
use crate::restore::hello_image;
use loader::guard;
use loader::layout::{HEADER_OFFSET, Header, PAGE, SectionKind};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What became of an execution.
enum Ending {
    /// The kernel started nothing.
    NotStarted(i32),
    /// It said what is wrong, and where.
    Named(String),
    /// It ended otherwise.
    Other(String),
    /// It, or the kernel for it, ended by a signal.
    Died(i32),
}

fn opened(image: &TestImage) -> File {
    let file = OpenOptions::new().read(true).write(true).open(&image.path);
    file.expect("open")
}

fn header(bytes: &[u8]) -> Header {
    Header::decode(&bytes[HEADER_OFFSET as usize..]).expect("sound")
}

/// Executes a damaged image. Whatever it is: nothing of the job runs.
fn executed(image: &TestImage, what: &str) -> Ending {
    let mut command = Command::new(&image.path);
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let until = Instant::now() + Duration::from_secs(10);
    let mut child = loop {
        match command.spawn() {
            Ok(child) => break child,
            // A child of another test's that executes nothing yet has our file open for writing, too.
            Err(error) if error.raw_os_error() == Some(libc::ETXTBSY) && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Ending::NotStarted(error.raw_os_error().unwrap_or(0)),
        }
    };
    let deadline = Instant::now() + Duration::from_secs(3);
    while child.try_wait().expect("waited").is_none() {
        if Instant::now() > deadline {
            child.kill().expect("killed");
            child.wait().expect("waited");
            return Ending::Other("it does not end".to_owned());
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    let output = child.wait_with_output().expect("its output");
    let (status, stderr) = (
        output.status,
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert!(output.stdout.is_empty(), "{what}: something ran: {stderr}");
    if let Some(signal) = status.signal() {
        return Ending::Died(signal);
    }
    let names = stderr.contains(": section .wf.") || stderr.contains(": length: ");
    if status.code() != Some(4) || stderr.lines().count() != 1 || !names {
        return Ending::Other(format!("{status}: {stderr}"));
    }
    Ending::Named(stderr)
}

#[test]
fn an_executed_image_that_was_cut_anywhere_dies_of_no_signal() {
    let image = hello_image();
    let bytes = std::fs::read(&image.path).expect("read");
    let loader = *header(&bytes).section(SectionKind::Loader);
    let mut lens = vec![0, 1, 63, 64, 79, 80, 81, 300, 3871, 3872, 4000, PAGE - 1];
    for section in header(&bytes).sections {
        let end = section.offset + section.len;
        let around = [end.saturating_sub(1), end, end + 1, end - section.len / 2];
        lens.extend(around.into_iter().filter(|len| *len < bytes.len() as u64));
    }
    lens.extend((0..bytes.len() as u64).step_by(7919));
    for len in lens {
        opened(&image).set_len(len).expect("cut");
        let cut = format!("cut to {len}");
        match executed(&image, &cut) {
            Ending::NotStarted(error) => {
                assert!(len < PAGE && error == libc::ENOEXEC, "{cut}: error {error}");
            }
            Ending::Named(text) => {
                assert!(len >= PAGE, "{cut}: {text}");
                let name = image.path.to_string_lossy();
                assert!(text.contains(&*name), "{cut}: {text}");
                if len <= loader.offset + loader.len - PAGE {
                    assert!(text.contains("section .wf.loader: "), "{cut}: {text}");
                }
            }
            Ending::Died(signal) => panic!("{cut}: signal {signal}"),
            Ending::Other(end) => panic!("{cut}: {end}"),
        }
        let file = opened(&image);
        file.write_all_at(&bytes[len as usize..], len)
            .expect("mended");
    }
}

/// Flips a bit for the time of an execution.
fn flipped(image: &TestImage, bytes: &[u8], bit: u64) -> Ending {
    let at = bit / 8;
    let byte = bytes[at as usize];
    let write = |byte: u8| opened(image).write_all_at(&[byte], at).expect("write");
    write(byte ^ 1 << (bit % 8));
    let ending = executed(image, &format!("bit {bit}, byte {at}"));
    write(byte);
    ending
}

#[test]
fn a_flipped_bit_in_an_executed_image_is_named_outside_the_guard() {
    let image = hello_image();
    let bytes = std::fs::read(&image.path).expect("read");
    for section in header(&bytes).sections {
        let kind = SectionKind::from_number(section.kind).expect("a section");
        let first = match kind {
            // What is behind the guard's instructions, up to the program headers.
            SectionKind::Elf => guard::PROGRAM_HEADERS_AT - 1000,
            _ => section.offset,
        };
        let last = match kind {
            SectionKind::Elf => guard::PROGRAM_HEADERS_AT - 1,
            _ => section.offset + section.len - 1,
        };
        // The loader's text and data, which is by far the most that is executed, in many places.
        let places = if kind == SectionKind::Loader { 150 } else { 12 };
        let step = ((last - first) / places).max(1);
        for (turn, at) in (first..last)
            .step_by(step as usize)
            .chain([last])
            .enumerate()
        {
            match flipped(&image, &bytes, at * 8 + turn as u64 % 8) {
                Ending::Named(text) => {
                    assert!(text.contains(kind.name()), "byte {at}: {text}");
                }
                Ending::NotStarted(error) => panic!("byte {at}: error {error}"),
                Ending::Died(signal) => panic!("byte {at}: signal {signal}"),
                Ending::Other(end) => panic!("byte {at}: {end}"),
            }
        }
    }
}

/// What cannot be checked before it acts: the ELF and program headers, by which the kernel goes, and the guard's own
/// instructions. `WF_EVERY_BIT=1` counts all of them, for docs/IMAGE_FORMAT.md.
#[test]
fn a_flipped_bit_in_the_guard_starts_nothing() {
    let image = hello_image();
    let bytes = std::fs::read(&image.path).expect("read");
    let code_end = bytes[..guard::PROGRAM_HEADERS_AT as usize]
        .iter()
        .rposition(|byte| *byte != 0)
        .expect("there is code") as u64
        + 1;
    let step = match std::env::var_os("WF_EVERY_BIT") {
        Some(_) => 1,
        None => 37,
    };
    for (part, range) in [
        ("ELF header", 0..guard::PAGE_SUM),
        ("sums", guard::PAGE_SUM..guard::BEGIN),
        ("first instructions", guard::BEGIN..code_end),
        ("program headers", guard::PROGRAM_HEADERS_AT..PAGE),
    ] {
        let (mut named, mut not_started, mut died, mut other) = (0, 0, 0, 0);
        for bit in (range.start * 8..range.end * 8).step_by(step) {
            match flipped(&image, &bytes, bit) {
                Ending::Named(_) => named += 1,
                Ending::NotStarted(_) => not_started += 1,
                Ending::Died(_) => died += 1,
                Ending::Other(_) => other += 1,
            }
        }
        let all = named + not_started + died + other;
        println!(
            "{part}: {all} bits, {named} named, {not_started} not started, {died} signals, {other} other ends"
        );
        if part == "sums" {
            assert_eq!(named, all);
        }
    }
}
