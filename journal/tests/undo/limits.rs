//! No room, no hard links, no old state: a change is refused whole, or kept by a copy.

use super::job::{Job, Not};
use super::picture::assert_same;
use journal::{Durability, JournalError, Settings};
use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags, RenameFlags};
use std::fs;

#[test]
fn without_room_a_change_is_refused_with_edquot_and_nothing_is_half() {
    let job = Job::with(Settings {
        durability: Durability::Kill,
        most_bytes: 300_000,
        ..Settings::default()
    });
    job.write("file", 0, &[1; 1_000_000])
        .expect("what is new needs no room");
    job.make_folder("folder").expect("makes");
    let mark = job.mark();
    let picture = job.picture();
    let mut refused = 0;
    for round in 0..20_u64 {
        let before = job.picture();
        match job.write("file", round * 50_000, &[2; 10]) {
            Ok(()) => {}
            Err(Not::Journal(error @ JournalError::Full { .. })) => {
                assert_eq!(error.errno(), rustix::io::Errno::DQUOT);
                assert_same(&job.picture(), &before, "refused");
                refused += 1;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(refused > 5, "{refused} of 20");
    let full = job.truncate("file", 0);
    assert!(
        matches!(full, Err(Not::Journal(JournalError::Full { .. }))),
        "{full:?}"
    );
    let full = job.remove("file");
    assert!(
        matches!(full, Err(Not::Journal(JournalError::Full { .. }))),
        "{full:?}"
    );
    job.undo(mark);
    assert_same(&job.picture(), &picture, "the mark");
    job.write("file", 0, &[3; 10]).expect("there is room again");
}

#[test]
fn what_cannot_be_linked_is_kept_as_a_copy() {
    let job = Job::with(Settings {
        durability: Durability::Kill,
        no_links: true,
        ..Settings::default()
    });
    job.make_folder("folder").expect("makes");
    job.write("file", 100_000, &[1; 100_000]).expect("writes");
    job.write("folder/other", 0, b"other").expect("writes");
    job.make_link("link", "file").expect("makes");
    job.make_fifo("fifo").expect("makes");
    job.set_times("file", 5, 6).expect("sets");
    job.set_xattr("file", "user.key", b"value").expect("sets");
    let mark = job.mark();
    let picture = job.picture();
    job.write("file", 150_000, b"changed").expect("writes");
    for name in ["file", "link", "fifo"] {
        job.remove(name).expect("removes");
    }
    job.write("file", 0, b"another").expect("writes");
    let later = job.mark();
    let later_picture = job.picture();
    job.rename("file", "folder/other", RenameFlags::empty())
        .expect("moves");
    job.undo(later);
    assert_same(&job.picture(), &later_picture, "the later mark");
    job.undo(mark);
    assert_same(&job.picture(), &picture, "the mark");
}

#[test]
fn what_is_durable_against_a_power_loss_is_undone_as_well() {
    let mut job = Job::with(Settings::default());
    job.make_folder("folder").expect("makes");
    job.write("folder/file", 0, &[1; 100_000]).expect("writes");
    let mark = job.mark();
    let picture = job.picture();
    job.write("folder/file", 7, &[2; 100]).expect("writes");
    job.remove_tree("folder").expect("removes");
    job.crash();
    job.open().expect("opens");
    job.undo(mark);
    assert_same(&job.picture(), &picture, "the mark");
}

#[test]
fn a_side_folder_is_made_on_another_mount_and_removed_at_the_end() {
    let elsewhere = "/dev/shm";
    let device = |path: &str| {
        fs::metadata(path).map(|metadata| std::os::unix::fs::MetadataExt::dev(&metadata))
    };
    let mut job = Job::new();
    let own = device(job.root.to_str().expect("is text")).expect("is there");
    let (Ok(folder), Ok(other)) = (tempfile::tempdir_in(elsewhere), device(elsewhere)) else {
        eprintln!("SKIP a side folder on another mount: no {elsewhere}");
        return;
    };
    if own == other {
        eprintln!("SKIP a side folder on another mount: the temporary folder is there, too");
        return;
    }
    job.settings.side_folders = vec![folder.path().to_owned()];
    job.open().expect("opens");
    fs::write(folder.path().join("file"), "bytes").expect("writes");
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let fd = rustix::fs::open(folder.path(), flags, Mode::empty()).expect("opens");
    let mark = job.mark();
    let change = job
        .journal()
        .before_remove(fd.as_fd(), b"file")
        .expect("keeps");
    fs::remove_file(folder.path().join("file")).expect("removes");
    drop(change);
    assert_eq!(
        fs::read_dir(folder.path()).expect("reads").count(),
        1,
        "the side folder"
    );
    job.undo(mark);
    assert_eq!(
        fs::read(folder.path().join("file")).expect("reads"),
        b"bytes"
    );
    job.remove_journal();
    let left: Vec<_> = fs::read_dir(folder.path())
        .expect("reads")
        .map(|entry| entry.expect("reads").file_name())
        .collect();
    assert_eq!(left, ["file"]);
}
