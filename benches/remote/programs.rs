//! Whole programs whose input and output are the shadow's, beside the same ones here, in turn.

use super::{Shadow, address, median, remote};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Bytes of input.
const BYTES: usize = 64 << 20;
/// How many times as long it may take as here.
const LIMIT: f64 = 1.2;
const SORT: [&str; 4] = ["sort", "input", "-o", "output"];

fn write_input(dir: &Path) {
    let mut state = 88_172_645_463_325_252_u64;
    let mut text = Vec::with_capacity(BYTES);
    while text.len() < BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        writeln!(text, "{state:016x} a line of some length").expect("memory");
    }
    let mut file = File::create(dir.join("input")).expect("creates");
    file.write_all(&text).expect("writes");
}

fn milliseconds(mut command: Command, dir: &Path) -> f64 {
    let _ = std::fs::remove_file(dir.join("output"));
    let begun = Instant::now();
    let status = command.current_dir(dir).env("LC_ALL", "C").status();
    let took = begun.elapsed().as_secs_f64() * 1e3;
    assert!(status.expect("starts").success(), "{command:?}");
    let sizes = ["input", "output"].map(|name| dir.join(name).metadata().expect("is there").len());
    assert_eq!(sizes[0], sizes[1]);
    took
}

/// How many take longer than they may.
pub(super) fn compare(dir: &Path, repeat: usize) -> usize {
    let dir = dir.join("programs");
    std::fs::create_dir(&dir).expect("makes it");
    write_input(&dir);
    let (_shadow, _) = Shadow::listening(&dir, &address(&dir), &[]);
    let (mut here, mut there) = (vec![], vec![]);
    for _ in 0..=repeat {
        let mut local = Command::new(SORT[0]);
        local.args(&SORT[1..]);
        here.push(milliseconds(local, &dir));
        let mut job = remote(&dir);
        job.args(SORT);
        there.push(milliseconds(job, &dir));
    }
    // The first of each has filled caches.
    let [here, there] = [&here[1..], &there[1..]].map(median);
    let ratio = there / here;
    let mark = if ratio > LIMIT { "OVER" } else { "ok" };
    println!(
        "sort of {} MiB, {repeat} runs each, medians: here {here:.0} ms, there {there:.0} ms, {ratio:.2} times (limit {LIMIT}) {mark}",
        BYTES >> 20
    );
    usize::from(ratio > LIMIT)
}
