//! `submit --confine`: a job that sees nothing of the machines it runs on, wherever it moves (docs/adr/0027-confined-jobs.md).

use super::pool::{DEADLINE, EMPTY, FULL, Pool, Work};
use crate::support::run::{Run, poll};
use crate::support::stage::{self, Linking};
use crate::support::user::User;
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

const MARK: &str = "mark-of-a-job";

fn work() -> Work {
    Work {
        steps: 600,
        pause: Duration::from_millis(20),
    }
}

/// What is written in `/proc` of the job's processes on a machine: those whose root is one of ours.
fn confined(pool: &Pool) -> Vec<(i32, BTreeMap<String, String>)> {
    let of = |pid: i32| {
        let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).ok()?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let fields = status.lines().filter_map(|line| line.split_once(":\t"));
        let fields = fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
        let fields: BTreeMap<_, _> = fields.collect();
        // Pid 1 of the job's namespace, which begins it and brings it back, keeps its rights there.
        let is_job = mounts.contains("wayfarer-confined") && !fields.get("NSpid")?.ends_with("\t1");
        is_job.then_some((pid, fields))
    };
    pool.processes().into_iter().filter_map(of).collect()
}

fn niceness(pid: i32) -> i64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("is there");
    let (_, rest) = stat.rsplit_once(") ").expect("a name");
    let word = rest.split(' ').nth(16).expect("a niceness");
    word.parse().expect("a number")
}

/// The job that runs is confined, and as nice as was asked for.
fn is_confined(pool: &Pool) {
    let found = poll(DEADLINE, || {
        let found = confined(pool);
        (!found.is_empty()).then_some(found)
    });
    let found = found.unwrap_or_else(|| panic!("no job is confined: {}", pool.story()));
    for (pid, status) in found {
        assert_eq!(niceness(pid), niceness(std::process::id() as i32) + 2);
        assert_eq!(status["NoNewPrivs"], "1", "{status:?}");
        for set in ["CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(status[set], "0000000000000000", "{set}: {status:?}");
        }
        let names = fs::read_dir(format!("/proc/{pid}/root"))
            .expect("lists")
            .flatten();
        let mut names: Vec<_> = names.map(|one| one.file_name()).collect();
        names.sort();
        assert!(
            names
                .iter()
                .all(|name| ["dev", "home", "proc", "tmp", "var"]
                    .iter()
                    .any(|one| name == one)),
            "{names:?}"
        );
    }
}

/// What a process may of what is of root, or of the root of its namespace.
fn capabilities(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("is there");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:\t"));
    u64::from_str_radix(line.expect("is said"), 16).expect("a number")
}

/// Who keeps the copy here and there, and its supervisor, have no more than they need (src/rights.rs).
fn have_given_up(pool: &Pool, job: &Run) {
    const ABOUT_FILES: u64 =
        1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 9 | 1 << 24 | 1 << 27 | 1 << 31;
    const KILL: u64 = 1 << 5;
    const TRACE: u64 = 1 << 19;
    let (keepers, _) = Pool::between(job);
    assert!(!keepers.is_empty());
    for keeper in keepers {
        assert_eq!(
            capabilities(keeper),
            ABOUT_FILES & capabilities(job.pid() as i32),
            "keeper {keeper}"
        );
    }
    let mut found = [0; 3];
    for pid in pool.processes() {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = words.split(|byte| *byte == 0).collect();
        let has = |word: &str| words.contains(&word.as_bytes());
        let is_supervisor = words[0] == b"wayfarer: job";
        let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        let (which, most) = match (has("--at-home"), has("keeper"), is_supervisor) {
            (true, _, _) => (0, ABOUT_FILES | KILL),
            (_, true, _) => (1, ABOUT_FILES | TRACE),
            // Pid 1 of the job's namespace is called so, too, and keeps what it needs.
            (_, _, true) if !mounts.contains("wayfarer-confined") => (2, 0),
            _ => continue,
        };
        found[which] += 1;
        assert_eq!(capabilities(pid) & !most, 0, "{pid}: {which}");
    }
    assert_eq!(
        found,
        [1, 1, 1],
        "the starter there, the keeper of what is written, the supervisor"
    );
}

fn moves(what: &str, user: User) {
    let Some(pool) = Pool::new(what, user, work()) else {
        return;
    };
    let mut job = pool.submit(
        &[FULL, EMPTY],
        &["--confine", "--nice", "2", "--every", "1h"],
    );
    pool.until_on(FULL, 1);
    pool.after_steps(20);
    is_confined(&pool);
    pool.told(&["checkpoint", "job"]);
    pool.told(&["migrate", "job", "--to", EMPTY]);
    pool.until_on(EMPTY, 2);
    pool.after_steps(20);
    is_confined(&pool);
    if user == User::Root {
        have_given_up(&pool, &job);
    }
    pool.told(&["migrate", "job", "--to", FULL]);
    pool.until_on(FULL, 3);
    pool.after_steps(20);
    is_confined(&pool);
    pool.told(&["vacate", "job"]);
    let left = job.wait(DEADLINE).expect("leaves");
    assert_eq!(left.code(), Some(85), "{}", pool.story());
    pool.nothing_is_left().expect("nothing is left");
    // It is not said again, and remembered.
    let mut job = pool.submit(&[EMPTY], &["--resume"]);
    pool.until_on(EMPTY, 4);
    is_confined(&pool);
    let ended = job.wait(DEADLINE).expect("ends");
    let said = || format!("{}\n{}", job.describe(), pool.story());
    assert_eq!(ended.code(), Some(0), "{}", said());
    pool.check()
        .unwrap_or_else(|why| panic!("{why}\n{}", pool.story()));
    pool.nothing_is_left().expect("nothing is left");
    pool.remove();
}

#[test]
fn a_confined_job_moves_and_stays_confined() {
    moves("a_confined_job_moves_and_stays_confined", User::Ordinary);
}

#[test]
fn a_confined_job_of_root_moves_and_stays_confined() {
    moves(
        "a_confined_job_of_root_moves_and_stays_confined",
        User::Root,
    );
}

/// What a program says of its attempts: reached, and kept from it.
fn attempts(pool: &Pool, machine: &'static str, options: &[&str]) -> (Vec<String>, Vec<String>) {
    let guest = stage::c_guest("confined", Linking::Dynamic).expect("compiles");
    let out = pool.home().join("out");
    let _ = fs::remove_file(&out);
    // It is there on both machines, for whoever may look.
    let secret = stage::wayfarer();
    let secret = secret.to_string_lossy();
    let outside = std::process::id().to_string();
    let words = [
        guest.to_string_lossy().as_ref(),
        secret.as_ref(),
        outside.as_str(),
        MARK,
    ]
    .map(str::to_owned);
    let mut options = options.to_vec();
    options.extend(["--replace"]);
    let mut job = pool.submit_other(&[machine], &options, &words);
    let ended = job.wait(DEADLINE).expect("ends");
    let text = fs::read_to_string(&out).expect("is there");
    assert_eq!(
        ended.code(),
        Some(0),
        "{text}\n{}\n{}",
        job.describe(),
        pool.story()
    );
    assert!(text.ends_with("done\n"), "{text}");
    let those = |word: &str| {
        let lines = text.lines().filter_map(|line| line.strip_prefix(word));
        lines.map(str::to_owned).collect()
    };
    (those("reached "), those("kept "))
}

fn tries(what: &str, user: User) {
    let Some(pool) = Pool::new(what, user, work()) else {
        return;
    };
    for machine in [FULL, EMPTY] {
        let (reached, kept) = attempts(&pool, machine, &["--confine"]);
        assert!(reached.is_empty(), "{machine}: {reached:?}\n{kept:?}");
        assert!(kept.len() >= 25, "{kept:?}");
        let is_marked = |folder: &str| pool.on(machine, &format!("{folder}/{MARK}")).exists();
        let marked: Vec<_> = ["", "/home"]
            .into_iter()
            .filter(|one| is_marked(one))
            .collect();
        assert!(marked.is_empty(), "{marked:?}");
        // The same program sees all of that where it is not confined.
        let (reached, _) = attempts(&pool, machine, &[]);
        for name in ["name:", "name:/proc/self/root", "user-namespace"] {
            assert!(
                reached.iter().any(|one| one == name),
                "{machine}: {name}: {reached:?}"
            );
        }
        assert!(is_marked("/home"), "{machine}");
    }
    pool.nothing_is_left().expect("nothing is left");
    pool.remove();
}

#[test]
fn a_confined_job_reaches_nothing_of_its_machine() {
    tries(
        "a_confined_job_reaches_nothing_of_its_machine",
        User::Ordinary,
    );
}

#[test]
fn a_confined_job_of_root_reaches_nothing_of_its_machine() {
    tries(
        "a_confined_job_of_root_reaches_nothing_of_its_machine",
        User::Root,
    );
}
