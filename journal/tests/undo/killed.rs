//! A process that is killed with SIGKILL at each fault point, in the middle of its changes and of an undo.

use super::job::Job;
use super::picture::{Picture, compare};
use journal::{Durability, Epoch, Files, Journal, Settings, fault};
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const PLACE: &str = "WF_JOURNAL_PLACE";

/// What the child does: everything once, then an undo.
fn work(job: &Job) {
    job.write("file", 0, &[2; 100_000]).expect("writes");
    job.truncate("file", 70_000).expect("cuts");
    job.move_to("file", "folder/file").expect("moves");
    job.remove("folder/old").expect("removes");
    job.remove_tree("tree").expect("removes");
    job.set_mode("folder", 0o711).expect("sets");
    job.mark();
    job.write("folder/new", 0, b"bytes").expect("writes");
    let aborted = job.mark();
    job.write("folder/file", 0, b"bytes").expect("writes");
    job.journal().abort_epoch(aborted).expect("merges");
    let last = job.mark();
    job.journal().forget_before(Epoch(2)).expect("forgets");
    job.write("late", 0, b"bytes").expect("writes");
    job.undo(last);
    job.undo(Epoch(2));
}

fn prepare() -> (Job, Picture) {
    let mut job = Job::new();
    for folder in ["folder", "tree", "tree/inner"] {
        job.make_folder(folder).expect("makes");
    }
    for file in ["file", "folder/old", "tree/inner/file"] {
        job.write(file, 0, &[1; 90_000]).expect("writes");
    }
    assert_eq!(job.mark(), Epoch(2));
    let picture = job.picture();
    job.close().expect("closes");
    (job, picture)
}

/// Not a test of its own: the process that is killed.
#[test]
fn child() {
    let Some(place) = std::env::var_os(PLACE) else {
        return;
    };
    let place = PathBuf::from(place);
    let job = Job::at(place.join("files"), place.join("journal"));
    work(&job);
}

/// Runs the child; whether it was killed.
fn run(place: &Path, fault: &str) -> bool {
    let own = std::env::current_exe().expect("is known");
    let mut command = Command::new(own);
    command
        .args(["--exact", "killed::child"])
        .env(PLACE, place)
        .env("WAYFARER_FAULT", fault);
    let output = command.output().expect("runs");
    let killed = output.status.signal() == Some(9);
    assert!(killed || output.status.success(), "{fault}: {output:?}");
    killed
}

#[test]
fn a_process_killed_at_any_fault_point_loses_nothing() {
    let mut died = BTreeSet::new();
    for point in fault::POINTS {
        for step in [1, 2, 4, 7] {
            let (job, picture) = prepare();
            let place = job.root.parent().expect("has one").to_owned();
            if !run(&place, &format!("journal:{point}:{step}")) {
                break;
            }
            died.insert(point);
            let settings = Settings {
                durability: Durability::Kill,
                ..Settings::default()
            };
            let journal = Journal::open(&job.dir, &settings).expect("opens");
            // What was begun is finished by itself, too, where somebody wants to go further back.
            if let Some(to) = journal.undoing().filter(|_| step != 2) {
                journal.undo_to(to, Files::Fail).expect("finishes");
            }
            let undone = journal.undo_to(Epoch(2), Files::Fail);
            undone.unwrap_or_else(|error| panic!("{point}:{step}: {error}"));
            let same = compare(&job.picture(), &picture);
            same.unwrap_or_else(|text| panic!("{point}:{step}: {text}"));
        }
    }
    // Only where a journal of 4 MiB and more, or a torn one, is met.
    let rest: Vec<_> = fault::POINTS
        .iter()
        .filter(|point| !died.contains(*point))
        .collect();
    assert_eq!(rest, [&"blocks", &"clean", &"open"]);
}
