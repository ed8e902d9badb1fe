//! Somebody else has changed files: nothing is undone anywhere, and all of them are named.

use super::job::Job;
use super::picture::assert_same;
use journal::{Difference, Durability, Files, Foreign, Journal, JournalError, Settings};
use std::fs;

fn differences(job: &Job, to: journal::Epoch) -> Vec<Difference> {
    let before = job.picture();
    let told = job.journal().check(to).expect("compares");
    match job.journal().undo_to(to, Files::Fail) {
        Err(JournalError::Differs { differences }) => assert_eq!(differences, told),
        Ok(_) => assert_eq!(told, []),
        Err(error) => panic!("{error}"),
    }
    if !told.is_empty() {
        assert_same(&job.picture(), &before, "nothing is undone");
    }
    told
}

fn one(job: &Job, name: &str, how: Foreign) -> Vec<Difference> {
    let path = job.path(name);
    vec![Difference { path, how }]
}

#[test]
fn each_foreign_change_is_named_and_nothing_is_undone() {
    type Act = fn(&Job);
    let cases: [(&str, Foreign, Act); 9] = [
        ("written", Foreign::Changed, |job| {
            fs::write(job.path("written"), "foreign").expect("writes")
        }),
        ("written", Foreign::Removed, |job| {
            fs::remove_file(job.path("written")).expect("removes")
        }),
        ("new", Foreign::Changed, |job| {
            fs::write(job.path("new"), "foreign").expect("writes")
        }),
        ("new", Foreign::Removed, |job| {
            fs::remove_file(job.path("new")).expect("removes")
        }),
        ("new", Foreign::Replaced, |job| {
            fs::write(job.path("beside"), "foreign").expect("writes");
            fs::rename(job.path("beside"), job.path("new")).expect("moves");
        }),
        ("removed", Foreign::Made, |job| {
            fs::write(job.path("removed"), "foreign").expect("writes")
        }),
        ("folder/foreign", Foreign::Made, |job| {
            fs::write(job.path("folder/foreign"), "foreign").expect("writes");
        }),
        ("chmoded", Foreign::Changed, |job| {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::Permissions::from_mode(0o640);
            fs::set_permissions(job.path("chmoded"), mode).expect("sets");
        }),
        ("untouched", Foreign::Changed, |job| {
            fs::write(job.path("untouched"), "foreign").expect("writes");
        }),
    ];
    for (name, how, act) in cases {
        let job = Job::new();
        for file in ["written", "removed", "chmoded", "untouched"] {
            job.write(file, 0, b"bytes").expect("writes");
        }
        let mark = job.mark();
        let picture = job.picture();
        job.write("written", 1, b"by the job").expect("writes");
        job.remove("removed").expect("removes");
        job.set_mode("chmoded", 0o600).expect("sets");
        job.write("new", 0, b"by the job").expect("writes");
        job.make_folder("folder").expect("makes");
        job.write("folder/own", 0, b"by the job").expect("writes");
        act(&job);
        if name == "untouched" {
            // It is not the job's since the mark.
            assert_eq!(differences(&job, mark), []);
            continue;
        }
        assert_eq!(differences(&job, mark), one(&job, name, how));
        let undone = job
            .journal()
            .undo_to(mark, Files::RollBack)
            .expect("undoes");
        assert_eq!(undone.differences, one(&job, name, how));
        if (name, how) != ("written", Foreign::Removed) {
            // What somebody else has removed is not in the journal.
            assert_same(&job.picture(), &picture, name);
        }
    }
}

#[test]
fn files_are_kept_as_they_are_when_asked() {
    let job = Job::new();
    job.write("file", 0, b"before").expect("writes");
    let mark = job.mark();
    job.write("file", 0, b"by the job").expect("writes");
    fs::write(job.path("file"), "by somebody else").expect("writes");
    let before = job.picture();
    let undone = job.journal().undo_to(mark, Files::Keep).expect("keeps");
    assert!(undone.kept);
    assert_same(&job.picture(), &before, "kept");
    // From here on it can be undone again.
    job.write("file", 0, b"BY").expect("writes");
    job.undo(mark);
    assert_same(&job.picture(), &before, "kept");
}

#[test]
fn two_jobs_that_write_one_file_are_noticed() {
    let one_job = Job::new();
    let other_dir = one_job.dir.with_extension("other");
    let settings = Settings {
        durability: Durability::Kill,
        ..Settings::default()
    };
    let other = Journal::open(&other_dir, &settings).expect("opens");
    one_job.write("shared", 0, b"before both").expect("writes");
    let mark = one_job.mark();
    let other_mark = other.begin_epoch(b"").expect("begins");
    let write_other = |offset: u64, data: &[u8]| {
        use rustix::fd::AsFd;
        use std::os::unix::fs::FileExt;
        let file = fs::OpenOptions::new()
            .write(true)
            .open(one_job.path("shared"))
            .expect("opens");
        let change = other
            .before_write(file.as_fd(), offset, data.len() as u64)
            .expect("saves");
        file.write_all_at(data, offset).expect("writes");
        drop(change);
    };
    one_job.write("shared", 0, b"one").expect("writes");
    write_other(5, b"other");
    // The first writes again: what it left last is there, and yet it is not its alone.
    one_job.write("shared", 0, b"ONE").expect("writes");
    assert_eq!(
        differences(&one_job, mark),
        one(&one_job, "shared", Foreign::Changed)
    );
    let told = other.check(other_mark).expect("compares");
    assert_eq!(told, one(&one_job, "shared", Foreign::Changed));
    // To a mark behind all that nothing is lost.
    let later = one_job.mark();
    one_job.write("shared", 1, b"n").expect("writes");
    assert_eq!(differences(&one_job, later), []);
    assert_eq!(
        fs::read(one_job.path("shared")).expect("reads"),
        b"ONEorotherh"
    );
}

#[test]
fn what_the_journal_itself_does_is_not_foreign() {
    let mut job = Job::new();
    job.write("file", 0, b"bytes").expect("writes");
    job.link("file", "other").expect("links");
    let first = job.mark();
    // It keeps a name of its own, and gives it up again.
    job.remove("other").expect("removes");
    let second = job.mark();
    job.write("file", 0, b"more").expect("writes");
    job.journal().forget_before(second).expect("forgets");
    assert_eq!(job.journal().check(second).expect("compares"), []);
    job.crash();
    job.open().expect("opens");
    assert_eq!(job.journal().check(second).expect("compares"), []);
    job.undo(second);
    assert!(job.journal().check(first).is_err());
}
