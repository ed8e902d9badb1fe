//! Home answers an image that comes there with *slow* or *abort*.

use super::ahead::{begin, ends_well};
use super::pool::{DEADLINE, FULL, Pool};
use super::prepared::{IDLE, steps, works};
use crate::support::run::poll;
use crate::support::user::User;
use std::fs;
use std::time::{Duration, Instant};

/// The job has more than 64 MiB: at this rate no image of it comes here in the time of a test.
const FOR_EVER: &str = "256K";
/// Twice as much as may come in a second when it is slowed.
const FOR_A_WHILE: &str = "20M";
/// On a loaded machine.
const AT_ONCE: Duration = Duration::from_secs(10);
/// As much of it may be here.
const MOST: &str = "8M";

fn is(pool: &Pool, state: &str) {
    let is = || (pool.status()["State"] == state).then_some(());
    poll(DEADLINE, is).unwrap_or_else(|| panic!("never {state}: {}", pool.story()));
}

/// What has come of an image that is not whole.
fn come(pool: &Pool) -> u64 {
    fs::metadata(pool.job("images/.carried")).map_or(0, |part| part.len())
}

fn some_has_come(pool: &Pool) {
    let has_come = || (come(pool) > 0).then_some(());
    poll(DEADLINE, has_come).unwrap_or_else(|| panic!("nothing comes: {}", pool.story()));
}

#[test]
fn what_comes_home_is_slowed_down_and_given_up() {
    let what = "what_comes_home_is_slowed_down_and_given_up";
    for user in [User::Ordinary, User::Root] {
        let Some(pool) = Pool::new(what, user, IDLE) else {
            return;
        };
        let job = begin(&pool, &[]);
        assert_eq!(pool.status()["JobLeaseDuration"], 40 * 60);
        pool.told(&["image-rate", "job", FOR_EVER]);
        for (command, state) in [("checkpoint", "Checkpointing"), ("vacate", "Vacating")] {
            let mut told = pool.begin_telling(&[command, "job"]);
            is(&pool, state);
            match command {
                // It is made before it comes, and the job works meanwhile.
                "checkpoint" => {
                    let began = Instant::now();
                    works(&pool, steps(&pool));
                    let took = began.elapsed();
                    assert!(took < AT_ONCE, "{took:?}");
                }
                _ => some_has_come(&pool),
            }
            pool.told(&["checkpoint", "job", "--abort"]);
            assert_eq!(come(&pool), 0, "nothing of it is left");
            let ended = told.wait(DEADLINE).expect("ends");
            let said = told.err.text();
            assert_eq!(ended.code(), Some(1), "{said}");
            assert!(said.contains("it was aborted"), "{said}");
            is(&pool, "Running");
            works(&pool, steps(&pool));
            assert!(pool.images().is_empty(), "{:?}", pool.images());
        }
        // One that is slowed while it comes, and hastened.
        pool.told(&["image-rate", "job", FOR_A_WHILE]);
        let mut told = pool.begin_telling(&["checkpoint", "job"]);
        some_has_come(&pool);
        pool.told(&["image-rate", "job", FOR_EVER]);
        let before = come(&pool);
        std::thread::sleep(Duration::from_secs(1));
        let grown = come(&pool) - before;
        // A piece or two are under way.
        assert!(grown <= 10 << 20, "{grown}");
        pool.told(&["image-rate", "job", "none"]);
        let ended = told.wait(DEADLINE).expect("ends");
        assert_eq!(ended.code(), Some(0), "{}", told.err.text());
        let newest = pool.images().pop().expect("an image");
        pool.told(&["verify", &newest.to_string_lossy()]);
        pool.told(&["migrate", "job", "--to", super::pool::EMPTY]);
        works(&pool, steps(&pool));
        ends_well(pool, job);
    }
}

/// It is not waited for an image that turns out too large: all of it would take 16 s.
#[test]
fn what_gets_too_large_on_its_way_home_is_given_up_at_once() {
    let what = "what_gets_too_large_on_its_way_home_is_given_up_at_once";
    let Some(pool) = Pool::new(what, User::Ordinary, IDLE) else {
        return;
    };
    let job = begin(&pool, &["--images-max", MOST, "--image-rate", "4M"]);
    let began = Instant::now();
    let (said, status) = pool.tell(&["vacate", "job"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("(--images-max)"), "{said}");
    let took = began.elapsed();
    assert!(took < AT_ONCE, "{took:?}");
    assert_eq!(come(&pool), 0, "nothing of it is left");
    assert!(pool.images().is_empty());
    assert_eq!(pool.status()["RemoteHost"], FULL);
    works(&pool, steps(&pool));
    ends_well(pool, job);
}
