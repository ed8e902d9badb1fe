//! What a job writes to while it is about to move is watched, so that what it leaves with is found without reading all of its memory.

use super::ahead::{begin, ends_well, words};
use super::pool::{DEADLINE, EMPTY, FULL, Pool, signal};
use super::prepared::{IDLE, steps, works};
use crate::support::run::poll;
use crate::support::skip;
use crate::support::user::User;
use ckpt_lib::host::Host;
use nix::sys::signal::Signal;
use std::fs;
use std::path::Path;

/// A watcher is there for the moment between two images; so often the job moves until one was seen.
const MOVES: usize = 8;

fn cannot_watch(what: &str) -> bool {
    let can = Host::probe(Path::new("/tmp")).write_protect_async.works();
    if !can {
        skip::note(
            what,
            "this kernel does not tell what is written to (Linux 6.7)",
        );
    }
    !can
}

fn watchers(pool: &Pool) -> Vec<i32> {
    let all = pool.processes().into_iter();
    all.filter(|pid| words(*pid).contains(" watcher --image "))
        .collect()
}

/// Whether memory of any of the job's processes is watched.
fn is_watched(pool: &Pool) -> bool {
    let is_watched = |pid: &i32| {
        let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
        let mut flags = smaps.lines().filter(|line| line.starts_with("VmFlags"));
        flags.any(|line| line.contains(" uw"))
    };
    pool.processes().iter().any(is_watched)
}

/// Has the job move until a watcher was seen, to which `seen` does something.
fn moves_until(pool: &Pool, seen: impl Fn(i32)) {
    let mut at = 1;
    for machine in [EMPTY, FULL].into_iter().cycle().take(MOVES) {
        let mut moving = pool.begin_telling(&["migrate", "job", "--to", machine]);
        let mut was_seen = false;
        let ended = poll(DEADLINE, || {
            if let (false, Some(watcher)) = (was_seen, watchers(pool).first()) {
                was_seen = true;
                seen(*watcher);
            }
            moving.ended()
        });
        let ended = ended.unwrap_or_else(|| panic!("{}", pool.story()));
        assert_eq!(ended.code(), Some(0), "{}", moving.err.text());
        at += 1;
        pool.until_on(machine, at);
        works(pool, steps(pool));
        let gone = poll(DEADLINE, || watchers(pool).is_empty().then_some(()));
        assert!(gone.is_some(), "{}", pool.story());
        assert!(!is_watched(pool), "{}", pool.story());
        if was_seen {
            return;
        }
    }
    panic!("nobody has watched it: {}", pool.story());
}

#[test]
fn what_a_job_that_moves_writes_to_is_watched_and_then_no_more() {
    let what = "what_a_job_that_moves_writes_to_is_watched_and_then_no_more";
    if cannot_watch(what) {
        return;
    }
    for user in [User::Ordinary, User::Root] {
        let Some(pool) = Pool::new(what, user, IDLE) else {
            return;
        };
        let job = begin(&pool, &[]);
        moves_until(&pool, |_| {});
        ends_well(pool, job);
    }
}

#[test]
fn a_move_does_without_its_watcher() {
    let what = "a_move_does_without_its_watcher";
    if cannot_watch(what) {
        return;
    }
    let Some(pool) = Pool::new(what, User::Ordinary, IDLE) else {
        return;
    };
    let job = begin(&pool, &[]);
    moves_until(&pool, |watcher| {
        signal(watcher, Signal::SIGKILL);
    });
    ends_well(pool, job);
}
