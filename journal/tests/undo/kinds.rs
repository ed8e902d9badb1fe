//! Each kind of change by itself.

use super::job::Job;
use super::picture::assert_same;
use rustix::fs::{FallocateFlags, RenameFlags};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};

/// A job with some files, a mark behind them, what it does then, and the undo of it.
fn undone(name: &str, prepare: impl FnOnce(&Job), act: impl FnOnce(&Job)) -> Job {
    let job = Job::new();
    for folder in ["full", "full/inner", "empty"] {
        job.make_folder(folder).expect("makes");
    }
    for (file, len) in [("one", 10), ("two", 200_000), ("full/three", 70_000)] {
        let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        job.write(file, 0, &bytes).expect("writes");
    }
    job.make_link("link", "one").expect("makes");
    job.make_fifo("full/fifo").expect("makes");
    job.set_times("full/three", -3, 123_456_789).expect("sets");
    prepare(&job);
    let mark = job.mark();
    let before = job.picture();
    act(&job);
    assert_ne!(job.picture(), before, "{name}: it does something");
    let undone = job.undo(mark);
    assert_eq!(undone.differences, []);
    assert_same(&job.picture(), &before, name);
    // And with what was there before the job.
    job.undo(journal::Epoch(1));
    assert_eq!(fs::read_dir(&job.root).expect("reads").count(), 0, "{name}");
    job
}

fn check(name: &str, act: impl FnOnce(&Job)) {
    undone(name, |_| (), act);
}

#[test]
fn what_is_made_is_removed() {
    check("file", |job| job.write("new", 5, b"bytes").expect("writes"));
    check("folder", |job| job.make_folder("full/new").expect("makes"));
    check("link", |job| {
        job.make_link("new", "nowhere").expect("makes")
    });
    check("fifo", |job| job.make_fifo("new").expect("makes"));
    check("tree", |job| {
        job.make_folder("new").expect("makes");
        job.make_folder("new/inner").expect("makes");
        job.write("new/inner/file", 0, b"bytes").expect("writes");
        job.move_to("one", "new/one").expect("moves");
        job.move_to("full", "new/inner/full").expect("moves");
    });
}

#[test]
fn what_is_removed_is_there_again() {
    check("file", |job| job.remove("two").expect("removes"));
    check("link", |job| job.remove("link").expect("removes"));
    check("fifo", |job| job.remove("full/fifo").expect("removes"));
    check("folder", |job| job.remove("empty").expect("removes"));
    check("tree", |job| job.remove_tree("full").expect("removes"));
    check("another in its place", |job| {
        job.remove_tree("full").expect("removes");
        job.write("full", 0, b"a file now").expect("writes");
        job.remove("one").expect("removes");
        job.make_folder("one").expect("makes");
        job.write("one/two", 0, b"bytes").expect("writes");
    });
}

#[test]
fn renames_over_files_and_folders_are_undone() {
    check("plain", |job| {
        job.move_to("one", "full/new").expect("moves")
    });
    check("over a file", |job| {
        job.move_to("one", "two").expect("moves")
    });
    check("over an empty folder", |job| {
        job.move_to("full", "empty").expect("moves")
    });
    check("exchange", |job| {
        job.rename("one", "full/three", RenameFlags::EXCHANGE)
            .expect("exchanges");
        job.rename("two", "full", RenameFlags::EXCHANGE)
            .expect("exchanges");
    });
    check("round", |job| {
        job.move_to("one", "spare").expect("moves");
        job.move_to("two", "one").expect("moves");
        job.move_to("spare", "two").expect("moves");
    });
    check("inside out", |job| {
        job.move_to("full/inner", "inner").expect("moves");
        job.move_to("full", "inner/full").expect("moves");
    });
    check("made, renamed, removed", |job| {
        job.write("new", 0, b"bytes").expect("writes");
        job.move_to("new", "newer").expect("moves");
        job.remove("newer").expect("removes");
        job.append("one", b"so that something is left")
            .expect("appends");
    });
}

#[test]
fn contents_are_undone() {
    check("write", |job| {
        job.write("two", 65_530, &[9; 100]).expect("writes")
    });
    check("append", |job| {
        job.append("one", &[9; 100_000]).expect("appends")
    });
    check("cut", |job| job.truncate("two", 70_001).expect("cuts"));
    check("cut to nothing", |job| {
        job.rewrite("two", b"short").expect("writes")
    });
    check("grow", |job| job.truncate("one", 1 << 24).expect("grows"));
    check("cut, then grow", |job| {
        job.truncate("two", 3).expect("cuts");
        job.truncate("two", 150_000).expect("grows");
        job.write("two", 100_000, &[1; 9]).expect("writes");
    });
    check("twice", |job| {
        job.write("two", 10, &[1; 9]).expect("writes");
        job.write("two", 12, &[2; 9]).expect("writes");
    });
    check("hole", |job| {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        job.allocate("two", mode, 100, 100_000).expect("punches");
    });
    check("room", |job| {
        job.allocate("one", FallocateFlags::empty(), 0, 5000)
            .expect("makes")
    });
    check("shift", |job| {
        let mode = FallocateFlags::COLLAPSE_RANGE;
        if job.allocate("two", mode, 4096, 8192).is_err() {
            eprintln!("SKIP a range that is cut out: not on this file system");
            job.append("two", b"bytes").expect("appends");
        }
    });
}

/// Where a file has data, as far as the file system tells.
fn data_of(job: &Job, name: &str) -> Vec<(u64, u64)> {
    use rustix::fs::SeekFrom;
    let file = fs::File::open(job.path(name)).expect("opens");
    let (mut at, mut runs) = (0, vec![]);
    while let Ok(data) = rustix::fs::seek(&file, SeekFrom::Data(at)) {
        at = rustix::fs::seek(&file, SeekFrom::Hole(data)).expect("ends");
        runs.push((data, at));
    }
    runs
}

#[test]
fn sparse_files_keep_their_holes() {
    let far = 1_u64 << 40;
    let job = Job::new();
    job.write("sparse", 1 << 20, &[7; 4096]).expect("writes");
    job.write("sparse", far, &[8; 4096]).expect("writes");
    let (runs, blocks) = (
        data_of(&job, "sparse"),
        fs::metadata(job.path("sparse")).expect("is there").blocks(),
    );
    assert!(blocks * 512 < 1 << 20, "it is sparse here: {blocks} blocks");
    let mark = job.mark();
    job.write("sparse", (1 << 20) - 100_000, &[1; 300_000])
        .expect("writes");
    job.truncate("sparse", 10).expect("cuts");
    job.write("sparse", 1 << 39, &[2; 10]).expect("writes");
    job.undo(mark);
    assert_eq!(data_of(&job, "sparse"), runs);
    let file = fs::File::open(job.path("sparse")).expect("opens");
    let mut bytes = [0; 4096];
    file.read_exact_at(&mut bytes, far).expect("reads");
    assert_eq!(bytes, [8; 4096]);
    assert_eq!(file.metadata().expect("is there").len(), far + 4096);
    assert_eq!(file.metadata().expect("is there").blocks(), blocks);
}

#[test]
fn hard_links_stay_one_file() {
    let linked = |job: &Job| {
        job.link("two", "full/also two").expect("links");
        job.link("two", "again").expect("links");
    };
    let job = undone("removed", linked, |job| {
        job.remove("two").expect("removes");
        job.write("again", 3, b"bytes").expect("writes");
        job.remove("full/also two").expect("removes");
        job.remove("again").expect("removes");
    });
    drop(job);
    check("linked", |job| {
        job.link("one", "full/one").expect("links");
        job.remove("one").expect("removes");
        job.append("full/one", b"more").expect("appends");
    });
    let job = Job::new();
    job.write("one", 0, b"bytes").expect("writes");
    job.link("one", "other").expect("links");
    let mark = job.mark();
    job.remove("other").expect("removes");
    assert_eq!(links(&job.path("one")), 2, "the journal has one of its own");
    let file = fs::File::open(job.path("one")).expect("opens");
    use rustix::fd::AsFd;
    assert_eq!(job.journal().own_links(file.as_fd()).expect("tells"), 1);
    job.undo(mark);
    assert_eq!(links(&job.path("one")), 2);
    assert_eq!(job.journal().own_links(file.as_fd()).expect("tells"), 0);
}

#[test]
fn attributes_are_undone() {
    check("mode", |job| job.set_mode("one", 0o4751).expect("sets"));
    check("mode of a folder", |job| {
        job.write("full/new", 0, b"bytes").expect("writes");
        job.set_mode("full", 0o500).expect("sets");
    });
    check("times", |job| {
        job.set_times("two", 4_000_000_000, 999_999_999)
            .expect("sets")
    });
    check("times of a link", |job| {
        job.set_times("link", 5, 6).expect("sets")
    });
    let prepare = |job: &Job| {
        job.set_xattr("one", "user.old", b"value").expect("sets");
        job.set_xattr("full", "user.gone", b"").expect("sets");
    };
    undone("xattrs", prepare, |job| {
        job.set_xattr("one", "user.old", b"other").expect("sets");
        job.set_xattr("one", "user.new", &[1; 1000]).expect("sets");
        job.remove_xattr("full", "user.gone").expect("removes");
    });
    if rustix::process::geteuid().is_root() {
        check("owner", |job| {
            job.set_owner("two", 4242, 4343).expect("sets");
            job.set_owner("link", 4242, 4343).expect("sets");
        });
    } else {
        eprintln!("SKIP a change of owner: only root may");
    }
}

#[test]
fn an_open_file_that_is_written_after_it_lost_its_name_is_there_again() {
    let job = Job::new();
    job.write("file", 0, &[1; 100_000]).expect("writes");
    let first = job.mark();
    let picture = job.picture();
    let held = job.open_file("file").expect("opens");
    job.remove("file").expect("removes");
    job.write_fd(&held, 50_000, &[2; 100]).expect("writes");
    // In a later epoch, too.
    job.mark();
    job.write_fd(&held, 90_000, &[3; 100_000]).expect("writes");
    job.write("file", 0, b"another").expect("writes");
    job.undo(first);
    assert_same(&job.picture(), &picture, "the mark");
}

/// The names that an inode has.
fn links(path: &std::path::Path) -> u64 {
    fs::symlink_metadata(path).expect("is there").nlink()
}
