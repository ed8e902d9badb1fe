//! The undo journal at home of a job elsewhere, nearly full.

use super::pool::{DEADLINE, FULL, Pool};
use super::prepared::IDLE;
use crate::support::filling;
use crate::support::user::User;

#[test]
fn a_journal_at_home_that_is_nearly_full_has_images_made_before_it_is() {
    let what = "a_journal_at_home_that_is_nearly_full_has_images_made_before_it_is";
    let Some(pool) = Pool::new(what, User::Ordinary, IDLE) else {
        return;
    };
    filling::prepare(&pool.home(), User::Ordinary);
    let program = ["/usr/bin/python3", "-c", filling::PROGRAM].map(str::to_owned);
    let options = ["--every", "1h", "--journal-max", filling::MOST];
    let mut job = pool.submit_other(&[FULL], &options, &program);
    let ended = job.wait(DEADLINE).expect("ends");
    assert_eq!(ended.code(), Some(0), "{}", pool.story());
    let status = pool.status();
    assert!(status["NumCkpts"].as_u64() >= Some(3), "{status}");
    assert!(filling::is_filled(&pool.home()));
    pool.nothing_is_left().expect("nothing is left");
    pool.remove();
}
