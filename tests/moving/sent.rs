//! What of an image goes along the line.

use super::pool::{DEADLINE, FULL, Pool, Work};
use crate::support::run::poll;
use crate::support::user::User;
use std::fs;
use std::time::Duration;

/// It has so much memory, and changes a hundredth of it between two images.
const MEMORY: u64 = 256 << 20;

/// One of 256 MiB, which says when it has changed so much again.
const GUEST: &str = "\
import os, sys, time
memory = bytearray(os.urandom(256 << 20))
part = len(memory) // 100
done = 0
while not os.path.exists('enough'):
    if os.path.exists(f'change.{done}'):
        at = 7 * part * (done + 1) % (len(memory) - part)
        memory[at:at + part] = os.urandom(part)
        open(f'changed.{done}', 'w').close()
        done += 1
    time.sleep(0.02)
";

#[test]
fn a_second_image_sends_little_more_than_what_has_changed() {
    let what = "a_second_image_sends_little_more_than_what_has_changed";
    let work = Work {
        steps: 1,
        pause: Duration::ZERO,
    };
    let Some(pool) = Pool::new(what, User::Ordinary, work) else {
        return;
    };
    let home = pool.home();
    let program = ["/usr/bin/python3", "-c", GUEST].map(str::to_owned);
    let mut job = pool.submit_other(&[FULL], &["--every", "1h"], &program);
    pool.until_on(FULL, 1);
    let image = |number: usize| {
        let change = home.join(format!("changed.{number}"));
        fs::write(home.join(format!("change.{number}")), "").expect("writes");
        poll(DEADLINE, || change.exists().then_some(())).expect("it is changed");
        pool.told(&["checkpoint", "job"]);
    };
    image(0);
    image(1);
    let log = fs::read_to_string(pool.job("starter.log")).expect("is there");
    let come = log
        .lines()
        .filter(|line| line.contains("an image has come"));
    let number = |line: &str, name: &str| -> u64 {
        let (_, rest) = line.split_once(name).expect("is said");
        let digits = rest.split_whitespace().next().expect("a number");
        digits.parse().expect("a number")
    };
    let all: Vec<(u64, u64)> = come
        .map(|line| (number(line, "whole="), number(line, "sent=")))
        .collect();
    let [(whole, first), (_, second)] = all[..] else {
        panic!("{log}");
    };
    assert!(first == whole && whole > MEMORY, "{all:?}");
    // Of each chunk of 4 KiB, its checksum goes along in any case.
    let second = second + whole / (4 << 10) * 16;
    eprintln!(
        "{second} of {whole} bytes: {:.2} %",
        second as f64 * 100.0 / whole as f64
    );
    assert!(second * 50 <= whole, "{second} of {whole} bytes");
    fs::write(home.join("enough"), "").expect("writes");
    let ended = job.wait(DEADLINE).expect("ends");
    assert_eq!(ended.code(), Some(0), "{}", pool.story());
    pool.nothing_is_left().expect("nothing is left");
    pool.remove();
}
