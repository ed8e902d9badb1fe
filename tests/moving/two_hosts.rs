//! A job with input, output, appended and overwritten files moves between two machines.

use super::pool::{DEADLINE, EMPTY, FULL, Pool, Work};
use crate::support::user::User;
use std::time::Duration;

/// Twenty-four seconds of work; a minute where there is time.
fn work() -> Work {
    let seconds = if std::env::var_os("WF_FULL").is_some() {
        60
    } else {
        24
    };
    Work {
        steps: 50 * seconds,
        pause: Duration::from_millis(20),
    }
}

fn moves(what: &str, user: User) {
    let Some(pool) = Pool::new(what, user, work()) else {
        return;
    };
    let mut job = pool.submit(&[FULL, EMPTY], &["--every", "1h"]);
    pool.until_on(FULL, 1);
    pool.after_steps(20);
    let said = pool.told(&["checkpoint", "job"]);
    assert!(said.contains("job-1.img"), "{said}");
    pool.after_steps(20);
    for (moved, to) in [EMPTY, FULL, EMPTY, FULL, EMPTY].into_iter().enumerate() {
        pool.told(&["migrate", "job", "--to", to]);
        pool.until_on(to, moved as u64 + 2);
        pool.after_steps(20);
    }
    pool.told(&["vacate", "job"]);
    let left = job.wait(DEADLINE).expect("leaves");
    assert_eq!(left.code(), Some(85), "{}", pool.story());
    pool.nothing_is_left().expect("nothing is left");
    let mut job = pool.submit(&[EMPTY, FULL], &["--resume"]);
    pool.until_on(EMPTY, 7);
    let ended = job.wait(DEADLINE).expect("ends");
    assert_eq!(
        ended.code(),
        Some(0),
        "{}\n{}",
        job.describe(),
        pool.story()
    );
    // What was used on other machines is known here.
    let status = pool.status();
    let used = ["RemoteUserCpu", "RemoteSysCpu"].map(|name| status[name].as_f64().unwrap_or(0.0));
    assert!(used[0] > 0.1 && used[1] > 0.0 && used[0] < 60.0, "{status}");
    pool.check()
        .unwrap_or_else(|why| panic!("{why}\n{}", pool.story()));
    pool.nothing_is_left().expect("nothing is left");
    pool.remove();
}

#[test]
fn a_job_moves_five_times_between_two_machines() {
    moves(
        "a_job_moves_five_times_between_two_machines",
        User::Ordinary,
    );
}

#[test]
fn a_job_of_root_moves_five_times_between_two_machines() {
    moves(
        "a_job_of_root_moves_five_times_between_two_machines",
        User::Root,
    );
}
