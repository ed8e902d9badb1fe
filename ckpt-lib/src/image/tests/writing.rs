//! What goes wrong while an image is written, and what is left then.

use super::*;
use crate::image::Away;
use loader::layout::SectionKind;
use std::fs;
use std::io::IoSlice;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("lists").flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    let dir = directory();
    let memory = Memory::new(300, 21, |_| false);
    let mut writer =
        ImageWriter::create(&dir.path().join("x"), WriteOptions::default()).expect("creates");
    // Without a name, or under one of its own that nobody else may read (`destination` tests both).
    for partial in names(dir.path()) {
        let found = fs::metadata(dir.path().join(&partial)).expect("there");
        let expected = format!(".x.{}.partial", std::process::id());
        assert_eq!(
            (partial, found.permissions().mode() & 0o777),
            (expected, 0o600)
        );
    }
    writer
        .store(Space::Process(0), &[memory.range()], &memory, &|_| {})
        .expect("stores");
    drop(writer);
    assert!(names(dir.path()).is_empty());
}

#[test]
fn an_existing_file_is_not_replaced_unasked() {
    let dir = directory();
    let path = dir.path().join("x");
    let early = ImageWriter::create(&path, WriteOptions::default()).expect("creates");
    fs::write(&path, "precious").expect("writes");
    assert!(
        matches!(commit(early), Err(ImageError::Exists { .. })),
        "it came later"
    );
    let late = ImageWriter::create(&path, WriteOptions::default());
    assert!(matches!(late, Err(ImageError::Exists { .. })));
    assert_eq!(fs::read(&path).expect("reads"), b"precious");
    let options = WriteOptions {
        overwrite: true,
        ..WriteOptions::default()
    };
    commit(ImageWriter::create(&path, options).expect("creates")).expect("replaces");
    check(&path).expect("sound");
    assert_eq!(names(dir.path()), ["x"]);
}

#[test]
fn a_directory_is_no_place_for_an_image() {
    let dir = directory();
    for overwrite in [false, true] {
        let options = WriteOptions {
            overwrite,
            ..WriteOptions::default()
        };
        let error = ImageWriter::create(dir.path(), options);
        assert!(matches!(error, Err(ImageError::NotAFile { .. })));
    }
    let nowhere = dir.path().join("none").join("x");
    let error = ImageWriter::create(&nowhere, WriteOptions::default()).expect_err("refused");
    assert!(matches!(error, ImageError::Io { .. }), "{error:?}");
}

#[test]
fn an_image_gets_no_larger_than_it_may() {
    let dir = directory();
    let path = dir.path().join("x");
    let memory = Memory::new(5000, 22, |_| false);
    let whole = image_of(&path, &memory, WriteOptions::default()).len;
    fs::remove_file(&path).expect("is removed");
    for threads in [1, 3] {
        let limited = |most| WriteOptions {
            threads,
            most: Some(most),
            ..WriteOptions::default()
        };
        assert_eq!(image_of(&path, &memory, limited(whole)).len, whole);
        fs::remove_file(&path).expect("is removed");
        // What is only known at the end, and what is known long before.
        for most in [whole - 1, whole / 4, 0] {
            let mut writer = ImageWriter::create(&path, limited(most)).expect("creates");
            let stored = writer.store(Space::Process(0), &[memory.range()], &memory, &|_| {});
            assert_eq!(stored.is_ok(), most == whole - 1, "{most}");
            let error = match stored {
                Ok(()) => commit(writer).expect_err("is refused"),
                Err(error) => {
                    assert!(commit(writer).is_err(), "it is not whole");
                    error
                }
            };
            let is_said = matches!(error, ImageError::TooLarge { most: said, .. } if said == most);
            assert!(is_said, "{error}");
            assert!(names(dir.path()).is_empty());
        }
    }
}

/// Fails from the third read on.
struct Failing(AtomicU64);

impl ByteSource for Failing {
    fn read_at(&self, _: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.fill(1);
        match self.0.fetch_add(1, Ordering::Relaxed) {
            0..2 => Ok(()),
            _ => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }
}

#[test]
fn a_source_that_fails_is_named_and_spoils_the_image() {
    let dir = directory();
    for threads in [1, 3] {
        let path = dir.path().join("x");
        let options = WriteOptions {
            threads,
            ..WriteOptions::default()
        };
        let mut writer = ImageWriter::create(&path, options).expect("creates");
        let source = Failing(AtomicU64::new(0));
        let range = BASE..BASE + (64 << 20);
        let error = writer
            .store(Space::Process(2), &[range], &source, &|_| {})
            .expect_err("fails");
        assert!(
            error
                .to_string()
                .contains("the memory of process no. 2 of the job"),
            "{error}"
        );
        assert!(matches!(commit(writer), Err(ImageError::Unwritable { .. })));
        assert!(names(dir.path()).is_empty());
    }
}

#[test]
fn the_same_bytes_twice_and_ranges_that_are_no_pages_are_refused() {
    let dir = directory();
    let memory = Memory::new(10, 22, |_| false);
    let create =
        || ImageWriter::create(&dir.path().join("x"), WriteOptions::default()).expect("creates");
    let space = Space::Process(0);
    let mut writer = create();
    writer
        .store(space, &[memory.range()], &memory, &|_| {})
        .expect("stores");
    writer
        .store(space, &[BASE + PAGE..BASE + 2 * PAGE], &memory, &|_| {})
        .expect("stores");
    let error = commit(writer).expect_err("refused").to_string();
    assert!(error.contains("stored twice"), "{error}");
    for odd in [BASE + 1..BASE + PAGE, BASE..BASE + 1] {
        let error = create().store(space, &[odd], &memory, &|_| {});
        assert!(
            matches!(error, Err(ImageError::Unwritable { .. })),
            "{error:?}"
        );
    }
}

/// A limit on file sizes fails like a full disk does: a write comes back short, the next is an error.
#[test]
fn a_full_disk_is_an_error_and_leaves_nothing() {
    let dir = directory();
    let own = std::env::current_exe().expect("known");
    // 6144 blocks of 512 bytes; without the trap the limit would kill.
    let script = "ulimit -f 6144; trap '' XFSZ; exec \"$0\" --exact --ignored image::tests::writing::fills_up";
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(own)
        .env("WF_TEST_DIRECTORY", dir.path())
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
    assert!(names(dir.path()).is_empty(), "{:?}", names(dir.path()));
}

#[test]
#[ignore = "runs under a limit, by the test above"]
fn fills_up() {
    let dir = std::env::var_os("WF_TEST_DIRECTORY").expect("set by the test above");
    let memory = Memory::new(2000, 23, |_| false);
    for threads in [1, 2] {
        let options = WriteOptions {
            threads,
            ..WriteOptions::default()
        };
        let path = Path::new(&dir).join("x");
        let mut writer = ImageWriter::create(&path, options).expect("creates");
        let stored = writer.store(Space::Process(0), &[memory.range()], &memory, &|_| {});
        let error = stored.expect_err("too much");
        assert!(
            matches!(
                &error,
                ImageError::Io {
                    what: "write pages",
                    ..
                }
            ),
            "{error:?}"
        );
    }
}

/// Writes at the same places into another file.
#[derive(Debug)]
struct Elsewhere(fs::File);

impl Away for Elsewhere {
    fn put(&self, at: u64, bytes: &[IoSlice<'_>]) -> io::Result<()> {
        let mut at = at;
        for part in bytes {
            self.0.write_all_at(part, at)?;
            at += part.len() as u64;
        }
        Ok(())
    }
}

#[test]
fn contents_that_go_elsewhere_and_the_file_are_the_image() {
    let dir = directory();
    let memory = Memory::new(3000, 22, |page| page % 7 == 0);
    for compression in [None, Some(3)] {
        let path = dir.path().join(format!("{compression:?}"));
        let elsewhere = dir.path().join("elsewhere");
        let options = WriteOptions {
            compression,
            passes: true,
            threads: 3,
            ..WriteOptions::default()
        };
        let mut writer = ImageWriter::create(&path, options).expect("creates");
        let file = fs::File::create(&elsewhere).expect("creates");
        writer.send_to(Arc::new(Elsewhere(file)));
        writer
            .store(Space::Process(0), &[memory.range()], &memory, &|_| {})
            .expect("stores");
        commit(writer).expect("commits");
        check(&path).expect_err("its contents are elsewhere");
        let image = Image::open(&path).expect("opens");
        let contents = image.header().section(SectionKind::Pages);
        let mut bytes = vec![0; contents.len as usize];
        let file = fs::File::open(&elsewhere).expect("opens");
        ByteSource::read_at(&file, contents.offset, &mut bytes).expect("reads");
        let whole = fs::File::options().write(true).open(&path).expect("opens");
        whole.write_all_at(&bytes, contents.offset).expect("writes");
        let report = check(&path).expect("is whole");
        assert_eq!(
            report.image_bytes,
            fs::metadata(&path).expect("is there").len()
        );
    }
}

#[test]
fn blocks_that_were_given_ahead_and_not_written_to_are_given_back() {
    let dir = directory();
    let path = dir.path().join("x");
    // Three pages in 16 MiB.
    let memory = Memory::new(4096, 30, |page| page % 2000 != 7);
    let mut writer = ImageWriter::create(&path, WriteOptions::default()).expect("creates");
    let stored = writer.store(Space::Process(0), &[memory.range()], &memory, &|_| {});
    stored.expect("stores");
    let partial = unfinished(dir.path());
    let len = partial.len();
    let committed = commit(writer).expect("commits");
    if nix::sys::statfs::statfs(dir.path())
        .expect("statfs")
        .filesystem_type()
        == nix::sys::statfs::EXT4_SUPER_MAGIC
    {
        assert!(len > 4 << 20, "{len} bytes were given blocks");
    } else {
        eprintln!("skipped: no blocks are given ahead here, which is not ext4");
    }
    let found = fs::metadata(&path).expect("there");
    assert_eq!(found.len(), committed.len);
    assert!(
        found.blocks() * 512 <= committed.len.next_multiple_of(64 << 10) + (64 << 10),
        "{} blocks for {} bytes",
        found.blocks(),
        committed.len
    );
    check(&path).expect("sound");
}

/// The image that we are writing in this folder, whether or not it has a name.
fn unfinished(dir: &Path) -> fs::Metadata {
    let descriptors = fs::read_dir("/proc/self/fd").expect("lists").flatten();
    let of_dir = descriptors.map(|entry| entry.path()).filter(|fd| {
        let path = fs::read_link(fd).unwrap_or_default();
        path.starts_with(dir) && path != dir
    });
    let found: Vec<_> = of_dir.collect();
    assert!(!found.is_empty(), "no descriptor of a file in {dir:?}");
    fs::metadata(&found[0]).expect("there")
}
