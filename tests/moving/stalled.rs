//! Lines through which nothing goes, and which nobody says are broken.

use super::pool::{DEADLINE, FULL, Pool, Work, signal};
use crate::support::machine::children;
use crate::support::run::poll;
use crate::support::user::User;
use nix::sys::signal::Signal;
use std::fs;
use std::time::Duration;

/// An image is on its way, and does not come: what has become of the job is known nevertheless.
#[test]
fn a_job_that_is_killed_while_its_image_is_on_its_way_goes_on_at_once() {
    let what = "a_job_that_is_killed_while_its_image_is_on_its_way_goes_on_at_once";
    let work = Work {
        steps: 300,
        pause: Duration::from_millis(10),
    };
    let Some(pool) = Pool::new(what, User::Ordinary, work) else {
        return;
    };
    let mut job = pool.submit(&[FULL], &["--every", "1h"]);
    pool.until_on(FULL, 1);
    pool.after_steps(5);
    let _checkpoint = pool.begin_telling(&["checkpoint", "job"]);
    let line = poll(DEADLINE, || {
        let fetches = children(job.pid() as i32).into_iter().flat_map(children);
        fetches
            .into_iter()
            .find(|pid| words(*pid).contains(" checkpoint "))
    });
    let line = line.expect("a line for the image");
    // One that is stopped before has not brought the command there.
    let has_come = || {
        let all = pool.processes();
        all.iter()
            .any(|pid| words(*pid).contains(" checkpoint "))
            .then_some(())
    };
    poll(DEADLINE, has_come).expect("the command comes");
    signal(line, Signal::SIGSTOP);
    // All of it is there, and nothing of it comes.
    let is_made = || (pool.images_on(FULL) == 1).then_some(());
    poll(DEADLINE, is_made).unwrap_or_else(|| panic!("no image: {}", pool.story()));
    let mut all = pool.processes().into_iter();
    let program = all.find(|pid| words(*pid).contains("ledger.py") && comm(*pid) == "python3");
    signal(program.expect("the program"), Signal::SIGKILL);
    pool.until_on(FULL, 2);
    signal(line, Signal::SIGCONT);
    let ended = job.wait(DEADLINE).expect("ends");
    assert_eq!(ended.code(), Some(0), "{}", pool.story());
    pool.check()
        .unwrap_or_else(|why| panic!("{why}\n{}", pool.story()));
    pool.nothing_is_left().expect("nothing is left");
    pool.remove();
}

fn words(pid: i32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).replace('\0', " ")
}

fn comm(pid: i32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm"));
    name.unwrap_or_default().trim().to_owned()
}
