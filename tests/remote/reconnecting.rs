//! The line to another machine is cut: what is told of it, and what becomes of the copy there.

use super::away::Site;
use super::{DEADLINE, SOON};
use crate::support::run::{Run, poll};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// A machine that is not reached as long as a file is there.
struct Cut {
    file: PathBuf,
}

impl Cut {
    fn of(site: &mut Site) -> Self {
        let dir = site.submit.dir.clone();
        let (file, way) = (dir.join("cut"), dir.join("way"));
        let script = format!("#!/bin/sh\ntest -e {file:?} && exit 255\nexec \"$@\"\n");
        fs::write(&way, script).expect("writes");
        fs::set_permissions(&way, fs::Permissions::from_mode(0o755)).expect("sets");
        site.ssh = format!("{} {}", way.display(), site.ssh);
        Cut { file }
    }

    /// The line breaks, and the machine is not reached.
    fn cut(&self, site: &Site) {
        fs::write(&self.file, "").expect("writes");
        site.break_line();
    }

    fn heal(&self) {
        fs::remove_file(&self.file).expect("removes");
    }
}

/// A job that runs there, and is given up after so long.
fn running(what: &str, label: &str, lease: &str) -> Option<(Site, Cut, Run)> {
    let mut site = Site::new(what, label)?;
    let cut = Cut::of(&mut site);
    let options = ["--every", "1h", "--lease", lease];
    let job = site.with_files(site.guest(&["127.0.0.1"], &options));
    site.until("Running", 1);
    site.until_lines(5);
    Some((site, cut, job))
}

#[test]
fn a_line_that_is_cut_is_told_and_so_is_the_next() {
    let what = "a_line_that_is_cut_is_told_and_so_is_the_next";
    let Some((site, cut, mut job)) = running(what, "cut-told", "10m") else {
        return;
    };
    cut.cut(&site);
    site.until("Reconnecting", 1);
    cut.heal();
    site.until("Running", 1);
    site.ends_well(&mut job);
    assert_eq!(
        site.events(),
        ["000", "001", "022", "023", "005"],
        "{}",
        site.story()
    );
}

#[test]
fn a_machine_that_is_not_reached_again_is_told() {
    let what = "a_machine_that_is_not_reached_again_is_told";
    let Some((site, cut, mut job)) = running(what, "cut-ever", "3s") else {
        return;
    };
    cut.cut(&site);
    site.until("Reconnecting", 1);
    site.until("Starting", 1);
    cut.heal();
    site.until("Running", 2);
    site.ends_well(&mut job);
    let expected = ["000", "001", "022", "024", "001", "005"];
    assert_eq!(site.events(), expected, "{}", site.story());
}

/// Here at once; there as soon as it is reached, long before its lease is over.
#[test]
fn a_job_that_is_removed_while_its_line_is_cut_ends_there_as_soon_as_it_is_reached() {
    let what = "a_job_that_is_removed_while_its_line_is_cut";
    let Some((site, cut, mut job)) = running(what, "cut-removed", "10m") else {
        return;
    };
    cut.cut(&site);
    site.until("Reconnecting", 1);
    site.told(&["remove", "job"]);
    let ended = job.wait(SOON).expect("ends");
    assert!(!ended.success(), "{ended}");
    let copies = || site.copies_there().len();
    assert_eq!(
        copies(),
        1,
        "the copy is there, where nobody has reached it"
    );
    cut.heal();
    poll(DEADLINE, || (copies() == 0).then_some(())).expect("it has ended there");
    // Its processes, too.
    site.leaves_nothing();
}
