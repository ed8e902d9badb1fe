//! Both sides, and what is no image.

use super::receive::tell_rate;
use super::*;
use ckpt_lib::image::Away;
use ckpt_lib::pace::Rate;
use std::fs::File;
use std::io::{IoSlice, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(bytes).expect("writes");
    file
}

fn contents(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().expect("is there").len() as usize];
    file.read_exact_at(&mut bytes, 0).expect("reads");
    bytes
}

fn random(pages: usize) -> Vec<u8> {
    let mut bytes = vec![0; pages * PAGE];
    let mut reader = blake3::Hasher::new().update(b"some").finalize_xof();
    reader.fill(&mut bytes);
    bytes
}

fn any_rate() -> Rate {
    Rate::told_by(file(&[]))
}

fn carried(image: &[u8], before: &[&[u8]]) -> (Carried, Vec<u8>) {
    let (there, mut here) = UnixStream::pair().expect("a pair");
    let image = file(image);
    let sending = std::thread::spawn(move || {
        let output = there.try_clone()?;
        let sender = Sender::begin(any_rate(), there, output)?;
        let len = image.metadata()?.len();
        // Its end first, as contents come before what describes them.
        let middle = len / 2 / PAGE as u64 * PAGE as u64;
        sender.put_file(&image, middle..len)?;
        sender.put_file(&image, 0..middle)?;
        sender.end(len)
    });
    let before: Vec<File> = before.iter().map(|bytes| file(bytes)).collect();
    let to = file(&[]);
    let mut input = here.try_clone().expect("a copy");
    let mut ends = vec![];
    let mut grows = |end| {
        ends.push(end);
        Ok(())
    };
    let how = Reception {
        rate: &any_rate(),
        begun_at: None,
        grows: &mut grows,
    };
    let carried = receive(&to, &before, how, &mut input, &mut here).expect("comes");
    assert!(ends.is_sorted(), "{ends:?}");
    assert_eq!(ends.last(), Some(&carried.whole));
    here.write_all(&[GOOD]).expect("is told");
    assert_eq!(sending.join().expect("ends").expect("is sent"), carried);
    (carried, contents(&to))
}

#[test]
fn only_what_is_not_there_is_sent() {
    let image = random(2 * MOST_PAGES + 77);
    let (whole, copy) = carried(&image, &[]);
    assert_eq!((whole.sent, &copy), (image.len() as u64, &image));
    let mut next = image.clone();
    next[PAGE + 5] ^= 1;
    let (some, copy) = carried(&next, &[&image]);
    assert_eq!((some.sent, &copy), (PAGE as u64, &next));
    // Moved by whole pages, and shorter.
    let (none, copy) = carried(&image[PAGE..], &[&image]);
    assert_eq!((none.sent, &copy[..]), (0, &image[PAGE..]));
    assert_eq!(carried(&[], &[&image]).1, b"");
    // What lies in two, and an end that is no page.
    let (none, copy) = carried(&image, &[&image[..8192], &image[8192..]]);
    assert_eq!((none.sent, &copy), (0, &image));
    let (end, _) = carried(&image[..PAGE], &[&image[..PAGE - 1]]);
    assert_eq!(end.sent, PAGE as u64);
}

/// As long as an image may be here.
const MOST: u64 = 2 * PAGE as u64;

/// What comes, said by hand.
fn tried(bytes: &[u8], before: &[File]) -> io::Result<Vec<u8>> {
    let to = file(&[]);
    let how = Reception {
        rate: &any_rate(),
        begun_at: None,
        grows: &mut |end| match end > MOST {
            true => Err(wrong(format!("{end} bytes are too many"))),
            false => Ok(()),
        },
    };
    receive(&to, before, how, &mut &bytes[..], &mut vec![])?;
    Ok(contents(&to))
}

#[test]
fn what_is_no_image_is_refused() {
    let page = random(1);
    let piece = |at: u64, number: u32| [&at.to_le_bytes()[..], &number.to_le_bytes()].concat();
    let end = |len: u64| [NO_MORE.to_le_bytes(), len.to_le_bytes()].concat();
    let sound = [&MAGIC[..], &piece(0, 1), &[0], &page, &end(4096)].concat();
    assert_eq!(tried(&sound, &[]).expect("is sound"), page);
    for len in 0..sound.len() {
        assert!(tried(&sound[..len], &[]).is_err(), "{len}");
    }
    let here = [&MAGIC[..], &piece(0, 1), &[1], &checksum(&page), &end(4096)].concat();
    assert_eq!(tried(&here, &[file(&page)]).expect("is here"), page);
    for (bytes, why) in [
        (here, "not here"),
        (b"Welcome to this machine".to_vec(), "expected \"wf-pages\""),
        ([&MAGIC[..], &piece(0, 0)].concat(), "a piece of 0 pages"),
        ([&MAGIC[..], &piece(0, 1025)].concat(), "of 1025 pages"),
        ([&MAGIC[..], &end(1 << 41)].concat(), "at most"),
        ([&MAGIC[..], &end(100)].concat(), "whole pages"),
        (
            [&MAGIC[..], &end(12288)].concat(),
            "12288 bytes are too many",
        ),
        (
            [&MAGIC[..], &piece(8192, 1), &[0], &page].concat(),
            "12288 bytes are too many",
        ),
        (
            [&MAGIC[..], &piece(1 << 40, 1), &[0], &page].concat(),
            "at most",
        ),
        (
            [&MAGIC[..], &piece(7, 1), &[0], &page].concat(),
            "whole pages",
        ),
    ] {
        let error = tried(&bytes, &[]).expect_err(why);
        assert!(error.to_string().contains(why), "{error}");
    }
}

/// Waits until it is so.
fn becomes(rate: &Rate, expected: Option<NonZeroU64>) {
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while rate.get() != expected {
        assert!(std::time::Instant::now() < end, "{:?}", rate.get());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn who_takes_it_says_how_fast_and_when_no_more() {
    let (there, mut here) = UnixStream::pair().expect("a pair");
    here.write_all(&[MAGIC, 0u64.to_le_bytes()].concat())
        .expect("writes");
    let (asked, rate) = (any_rate(), any_rate());
    let output = there.try_clone().expect("a copy");
    let sender = Sender::begin(rate.clone(), there, output).expect("begins");
    let begun_at = NonZeroU64::new(7);
    asked.set(begun_at).expect("is set");
    let mut output = here.try_clone().expect("a copy");
    let (ended, ends) = mpsc::channel();
    let page = random(1);
    std::thread::scope(|scope| {
        let asked = &asked;
        scope.spawn(move || tell_rate((asked, begun_at), &mut output, &ends));
        for wanted in [NonZeroU64::new(1 << 40), NonZeroU64::new(1), None] {
            asked.set(wanted).expect("is set");
            becomes(&rate, wanted);
        }
        sender.put(0, &[IoSlice::new(&page)]).expect("goes");
        asked.set(NonZeroU64::new(1)).expect("is set");
        becomes(&rate, NonZeroU64::new(1));
        sender.put(0, &[IoSlice::new(&page)]).expect("goes");
        // The next would wait for an hour.
        let waiting = scope.spawn(|| sender.put(4096, &[IoSlice::new(&page)]));
        drop(ended);
        here.shutdown(std::net::Shutdown::Both).expect("ends");
        let error = waiting.join().expect("ends").expect_err("is given up");
        assert!(error.to_string().contains("given up"), "{error}");
        sender.end(8192).expect_err("nobody has it");
    });
}

#[test]
fn the_end_says_where_a_copy_is_wanted() {
    for wanted in [None, Some(Path::new("/home/it/own image"))] {
        let said = end_said(wanted);
        let heard = hear_end(&mut &said[..]).expect("is heard");
        assert_eq!(heard.as_deref(), wanted);
        for len in 0..said.len() {
            assert!(hear_end(&mut &said[..len]).is_err(), "{len}");
        }
    }
    let long = "x".repeat(1 << 16);
    assert_eq!(end_said(Some(Path::new(&long))), [GOOD]);
    let twice = [end_said(Some(Path::new("/a"))), end_said(None)].concat();
    let twice = [&twice[..4], &twice[..]].concat();
    assert!(hear_end(&mut &twice[..]).is_err());
}

#[test]
fn who_says_what_is_there_says_nothing_else() {
    let begin = |bytes: &[u8]| {
        let input = io::Cursor::new(bytes.to_vec());
        Sender::begin(any_rate(), input, io::sink())
    };
    let sound = [&MAGIC[..], &1u64.to_le_bytes(), &[7; 16]].concat();
    let sender = begin(&sound).expect("is sound");
    for len in 0..sound.len() {
        assert!(begin(&sound[..len]).is_err(), "{len}");
    }
    let many = [MAGIC, u64::MAX.to_le_bytes()].concat();
    let error = begin(&many).expect_err("too many");
    assert!(
        error.to_string().contains("pages that are there"),
        "{error}"
    );
    let error = sender
        .put(0, &[IoSlice::new(&[0; 100])])
        .expect_err("no page");
    assert!(error.to_string().contains("made of pages"), "{error}");
}

/// Whoever takes an image and cannot keep it says why, and nothing else is waited for.
#[test]
fn why_an_image_is_not_taken_is_said() {
    let (there, mut here) = UnixStream::pair().expect("a pair");
    here.write_all(&[MAGIC, 0u64.to_le_bytes()].concat())
        .expect("is said");
    let rate = Rate::told_by(tempfile::tempfile().expect("a file"));
    let output = there.try_clone().expect("clones");
    let sender = Sender::begin(rate, there, output).expect("begins");
    say_why_not(&mut here, "its disk is full").expect("is said");
    drop(here);
    let error = sender.end(0).expect_err("is not taken");
    assert_eq!(error.to_string(), "its disk is full");
}
