//! A journal that is damaged or not one: an error names the file, and nothing is changed.

use super::job::Job;
use super::picture::assert_same;
use journal::JournalError;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A journal of two marks that is closed.
fn closed() -> Job {
    let mut job = Job::new();
    job.write("file", 0, &[1; 1000]).expect("writes");
    job.mark();
    job.write("file", 100, b"bytes").expect("writes");
    job.mark();
    job.remove("file").expect("removes");
    job.write("other", 0, b"bytes").expect("writes");
    job.close().expect("closes");
    job
}

fn files_of(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(dir)
        .expect("reads")
        .map(|entry| entry.expect("reads").path());
    entries
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), fs::read(path).expect("reads")))
        .collect()
}

/// Opening says what is wrong with which file, and changes nothing.
fn refused(job: &mut Job, file: &str, expected: &str) {
    let (files, tree) = (files_of(&job.dir), job.picture());
    let error = job.open().expect_err("is refused");
    let text = error.to_string();
    assert!(text.contains(file) && text.contains(expected), "{text}");
    assert_same(&job.picture(), &tree, "nothing is changed");
    assert_eq!(files_of(&job.dir), files);
}

#[test]
fn missing_short_and_foreign_files_are_named() {
    const SEGMENT: &str = "segment-0000000000000002";
    type Act = fn(&Path);
    let cases: [(&str, &str, Act); 9] = [
        (SEGMENT, "cannot open", |path| {
            fs::remove_file(path).expect("removes")
        }),
        (SEGMENT, "length: found", |path| {
            let bytes = fs::read(path).expect("reads");
            fs::write(path, &bytes[..bytes.len() - 8]).expect("writes");
        }),
        (SEGMENT, "magic: found", |path| {
            fs::write(path, [b'x'; 5000]).expect("writes")
        }),
        (SEGMENT, "version 9, expected 1", |path| put(path, 8, 9)),
        (SEGMENT, "segment: found 3", |path| {
            fs::copy(path.with_file_name("segment-0000000000000003"), path).expect("copies");
            let bytes = [fs::read(path).expect("reads"), vec![0; 5000]].concat();
            fs::write(path, bytes).expect("writes");
        }),
        (
            SEGMENT,
            "record: found a wrong checksum at byte 64",
            |path| flip(path, 140),
        ),
        ("manifest", "version 7, expected 2", |path| put(path, 8, 7)),
        ("manifest", "checksum: found", |path| flip(path, 70)),
        ("manifest", "found none, beside", |path| {
            fs::remove_file(path).expect("removes")
        }),
    ];
    for (file, expected, act) in cases {
        let mut job = closed();
        act(&job.dir.join(file));
        refused(&mut job, file, expected);
    }
    let mut job = closed();
    fs::remove_dir_all(job.dir.join("kept")).expect("removes");
    refused(&mut job, "kept", "side folder: found none");
}

fn put(path: &Path, at: usize, byte: u8) {
    change(path, at, |_| byte);
}

/// Another byte than there was: what is made of times and checksums can be any.
fn flip(path: &Path, at: usize) {
    change(path, at, |byte| byte ^ 0xee);
}

fn change(path: &Path, at: usize, to: impl Fn(u8) -> u8) {
    let mut bytes = fs::read(path).expect("reads");
    let (old, new) = (bytes[at], to(bytes[at]));
    assert_ne!(old, new, "byte {at} of {} is damaged", path.display());
    bytes[at] = new;
    fs::write(path, bytes).expect("writes");
}

#[test]
fn damage_before_what_was_durable_is_not_taken_for_a_torn_end() {
    let mut job = closed();
    let path = job.dir.join("segment-0000000000000003");
    let len = fs::metadata(&path).expect("is there").len() as usize;
    flip(&path, len - 20);
    refused(
        &mut job,
        "segment-0000000000000003",
        "expected a whole record",
    );
}

#[test]
fn a_journal_is_one_processs() {
    let mut job = Job::new();
    let second = journal::Journal::open(&job.dir, &job.settings);
    assert!(
        matches!(second, Err(JournalError::InUse { .. })),
        "{second:?}"
    );
    job.close().expect("closes");
    job.open().expect("opens");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// It opens, or is refused; it does not panic, and the job's files stay.
    #[test]
    fn any_damage_is_an_error_or_harmless(
        file in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 1..40),
        cut in any::<bool>(),
    ) {
        let mut job = closed();
        let paths: Vec<PathBuf> = files_of(&job.dir).into_keys().filter(|path| !path.ends_with("lock")).collect();
        let path = file.get(&paths);
        let mut contents = fs::read(path).expect("reads");
        let at = at.index(contents.len());
        if cut {
            contents.truncate(at);
        } else {
            let end = contents.len().min(at + bytes.len());
            contents[at..end].copy_from_slice(&bytes[..end - at]);
        }
        fs::write(path, contents).expect("writes");
        let tree = job.picture();
        if let Err(error) = job.open() {
            let name = path.file_name().expect("has one").to_string_lossy().into_owned();
            prop_assert!(error.to_string().contains(&name), "{error}");
        }
        assert_same(&job.picture(), &tree, "nothing is changed");
    }
}
