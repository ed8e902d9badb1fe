//! What a move brings to the other machine while the job still runs, and what is left to be brought then.

use super::pool::{DEADLINE, EMPTY, FULL, Pool, Work, signal};
use crate::support::machine::children;
use crate::support::run::{Run, poll};
use crate::support::user::User;
use nix::sys::signal::Signal;
use std::fs;
use std::time::Duration;

/// One of 96 MiB that changes 2 MiB of it in a second, and notes how far it is, the longest time between two of its steps, and whether its memory is
/// what it has made of it.
const GUEST: &str = "\
import os, time
size, step = 96 << 20, 4096
memory = bytearray(os.urandom(size))
known = {}
at = steps = 0
longest = 0.0
last = time.time()
while not os.path.exists('enough'):
    byte = os.urandom(1)[0]
    memory[at] = byte
    known[at] = byte
    at = (at + 2 * step) % size
    steps += 1
    time.sleep(0.004)
    now = time.time()
    longest, last = max(longest, now - last), now
    if steps % 50 == 0:
        open('steps', 'w').write(str(steps))
assert all(memory[at] == byte for at, byte in known.items())
open('longest', 'w').write(f'{longest:.3f}')
";

/// What the machines' own job does, which is not run here.
pub(super) const IDLE: Work = Work {
    steps: 1,
    pause: Duration::ZERO,
};

/// It runs, and has changed something.
fn begin(pool: &Pool) -> Run {
    let program = ["/usr/bin/python3", "-c", GUEST].map(str::to_owned);
    let job = pool.submit_other(&[FULL, EMPTY], &["--every", "1h"], &program);
    pool.until_on(FULL, 1);
    works(pool, 100);
    job
}

/// How far it is.
pub(super) fn steps(pool: &Pool) -> usize {
    let text = fs::read_to_string(pool.home().join("steps")).unwrap_or_default();
    text.parse().unwrap_or(0)
}

/// Waits until it is further than that.
pub(super) fn works(pool: &Pool, least: usize) {
    let there = || (steps(pool) > least).then_some(());
    poll(DEADLINE, there).unwrap_or_else(|| panic!("{}", pool.story()));
}

#[test]
fn a_job_moves_with_what_has_changed_since_its_image_was_brought_there() {
    let what = "a_job_moves_with_what_has_changed_since_its_image_was_brought_there";
    let Some(pool) = Pool::new(what, User::Ordinary, IDLE) else {
        return;
    };
    let home = pool.home();
    let mut job = begin(&pool);
    for (starts, machine) in [(2, EMPTY), (3, FULL)] {
        pool.told(&["migrate", "job", "--to", machine]);
        pool.until_on(machine, starts);
        works(&pool, steps(&pool));
    }
    let log = fs::read_to_string(pool.job("starter.log")).expect("is there");
    // Of each move: a whole image, and as many as follow until it leaves.
    let mut sizes = vec![];
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("whole=") {
            let digits = rest.split_whitespace().next().expect("a number");
            sizes.push(digits.parse::<u64>().expect("a number"));
        } else if line.ends_with("Restarting") {
            let (first, last) = (sizes[0], sizes[sizes.len() - 1]);
            assert!(sizes.len() > 1 && first > 96 << 20, "{sizes:?}: {log}");
            assert!(last < first / 2, "{sizes:?}: {log}");
            sizes.clear();
        }
    }
    // It is told as large as it is, not as what has changed of it.
    let size = pool.status()["ImageSize"].as_u64().expect("a number");
    assert!(size > 96 << 10, "{size} KiB: {}", pool.story());
    // What it is based on is kept with it, and all of it is sound.
    let newest = pool.images().pop().expect("an image");
    pool.told(&["verify", &newest.to_string_lossy()]);
    fs::write(home.join("enough"), "").expect("writes");
    let ended = job.wait(DEADLINE).expect("ends");
    assert_eq!(ended.code(), Some(0), "{}", pool.story());
    let longest = fs::read_to_string(home.join("longest")).expect("is there");
    eprintln!("it stood still for {longest} s at most");
    pool.nothing_is_left().expect("nothing is left");
    pool.remove();
}

/// The line to the other machine takes nothing any more while the image is brought there: the job runs on, and leaves as it is told to.
#[test]
fn a_move_that_hangs_holds_up_nobody() {
    let what = "a_move_that_hangs_holds_up_nobody";
    let Some(pool) = Pool::new(what, User::Ordinary, IDLE) else {
        return;
    };
    let mut job = begin(&pool);
    let mut moving = pool.begin_telling(&["migrate", "job", "--to", EMPTY]);
    let line = poll(DEADLINE, || {
        let mut lines = children(job.pid() as i32).into_iter().flat_map(children);
        lines.find(|pid| words(*pid).contains(" --arriving "))
    });
    // It is 96 MiB, of which a line and what it goes through hold little.
    signal(line.expect("a line to the other"), Signal::SIGSTOP);
    let before = steps(&pool);
    works(&pool, before + 100);
    pool.told(&["checkpoint", "job"]);
    pool.told(&["vacate", "job"]);
    let refused = moving.wait(DEADLINE).expect("ends");
    assert_eq!(refused.code(), Some(1), "{}", moving.err.text());
    let said = moving.err.text();
    assert!(
        said.contains("does not run any more where it was"),
        "{said}"
    );
    let ended = job.wait(DEADLINE).expect("ends");
    assert_eq!(ended.code(), Some(85), "{}", pool.story());
    pool.nothing_is_left().expect("nothing is left");
    pool.remove();
}

fn words(pid: i32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).replace('\0', " ")
}
