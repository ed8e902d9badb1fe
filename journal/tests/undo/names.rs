//! Names as foreign calls give them.

use super::job::Job;
use journal::JournalError;
use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

#[test]
fn wrong_names_fail_as_the_call_would() {
    let job = Job::new();
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let folder = rustix::fs::open(&job.root, flags, Mode::empty()).expect("opens");
    let long = [b'x'; 300];
    let cases: [(&[u8], Errno); 5] = [
        (b"", Errno::INVAL),
        (b".", Errno::INVAL),
        (b"..", Errno::INVAL),
        (b"a/b", Errno::INVAL),
        (&long, Errno::NAMETOOLONG),
    ];
    for (name, errno) in cases {
        let error = job
            .journal()
            .before_create(folder.as_fd(), name)
            .expect_err("is refused");
        assert_eq!(error.errno(), errno, "{error}");
    }
    // mkdir(2) takes a slash behind it.
    let change = job
        .journal()
        .before_create(folder.as_fd(), b"folder//")
        .expect("may be");
    std::fs::create_dir(job.path("folder")).expect("makes");
    drop(change);
    job.undo(job.journal().epoch());
    assert!(!job.path("folder").exists());
}

#[test]
fn a_call_that_fails_leaves_nothing_to_undo() {
    let job = Job::new();
    job.make_folder("folder").expect("makes");
    job.write("folder/file", 0, b"bytes").expect("writes");
    job.write("file", 0, b"bytes").expect("writes");
    let mark = job.mark();
    let picture = job.picture();
    assert!(job.remove("folder").is_err(), "it is not empty");
    assert!(job.remove("nothing").is_err());
    assert!(job.move_to("folder", "folder/inner").is_err());
    assert!(job.move_to("file", "folder").is_err());
    assert!(job.make_folder("file").is_err());
    assert!(job.link("file", "folder/file").is_err());
    assert_eq!(job.journal().check(mark).expect("compares"), []);
    let undone = job.undo(mark);
    assert_eq!((undone.names, undone.files), (0, 0));
    super::picture::assert_same(&job.picture(), &picture, "the mark");
}

#[test]
fn a_file_that_is_no_folder_is_no_folder() {
    let job = Job::new();
    let file = job.open_file("file").expect("opens");
    let error = job
        .journal()
        .before_create(file.as_fd(), b"name")
        .expect_err("is refused");
    assert!(matches!(error, JournalError::Io { .. }), "{error}");
    assert_eq!(error.errno(), Errno::NOTDIR);
}
