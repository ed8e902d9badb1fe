//! What memory wayfarer itself takes for a job whose pages lie scattered: the tables of such an image are long.

use super::support::promise::{passed, with_job};
use super::support::run::{self, Run};
use super::support::scenario::{Guest, Job, Restart};
use super::support::stage::{Linking, c_guest};
use super::support::user::User;
use std::fs;
use std::time::Duration;

const STEP: Duration = Duration::from_secs(60);
/// A checkpoint of a small job takes 12 MiB. With all runs of pages in a list it was 38.
const MOST_OF_A_CHECKPOINT_KIB: u64 = 20 << 10;
/// With the tables, of 12 MiB, in memory it was 23 and more.
const MOST_OF_A_READER_KIB: u64 = 18 << 10;
/// Less would say that nobody has looked.
const LEAST_KIB: u64 = 4 << 10;
/// Who watches over the job keeps none of its tables.
const MOST_OF_A_SUPERVISOR_KIB: u64 = 2 << 10;
/// Nor has it had them all at once, which was 14.
const MOST_OF_A_START_KIB: u64 = 8 << 10;

fn kib(pid: i32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line?.split_whitespace().next()?.parse().ok()
}

/// Most memory that a command of wayfarer's takes, in KiB.
fn peak_of(job: &mut Job<'_>, words: &[&str]) -> Result<u64, String> {
    let command = job.wayfarer(words);
    let mut run = Run::start("wayfarer", command, User::Ordinary)?;
    let pid = run.pid() as i32;
    let mut peak = 0;
    let ended = run::poll(STEP, || {
        peak = kib(pid, "VmHWM:").unwrap_or(0).max(peak);
        run.ended()
    });
    match ended {
        Some(status) if status.success() => Ok(peak),
        _ => Err(run.describe()),
    }
}

/// The processes of wayfarer's that watch over a job, with the memory that is their own, and the most that they had: P0 since
/// it was executed, P1 since it is a process of its own.
fn supervisors(job: &Job<'_>) -> Vec<(i32, u64, u64)> {
    let pids = run::marked(&job.mark).into_iter();
    let ours = pids.filter(|pid| {
        // P0's is the name of the file that was executed, or its descriptor.
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        !comm.starts_with("scattered")
    });
    ours.filter_map(|pid| Some((pid, kib(pid, "RssAnon:")?, kib(pid, "VmHWM:")?)))
        .collect()
}

#[test]
fn a_job_with_scattered_pages_costs_wayfarer_little_memory() {
    let program = c_guest("scattered", Linking::Dynamic).expect("the guest compiles");
    let guest = Guest::new("scattered", program, &["scattered"]);
    with_job(&guest, |job| {
        passed(job.start()?)?;
        let image = job.dir.join("image");
        let name = image.to_string_lossy().into_owned();
        let words = ["checkpoint", "job", "-o", &name, "--then", "kill"];
        let peak = peak_of(job, &words)?;
        println!("checkpoint: {peak} KiB");
        let expected = LEAST_KIB..=MOST_OF_A_CHECKPOINT_KIB;
        if !expected.contains(&peak) {
            return Err(format!("found {peak} KiB, expected {expected:?}"));
        }
        job.wait_killed()?;
        for verb in ["verify", "inspect"] {
            let peak = peak_of(job, &[verb, &name])?;
            println!("{verb}: {peak} KiB");
            let expected = LEAST_KIB..=MOST_OF_A_READER_KIB;
            if !expected.contains(&peak) {
                return Err(format!("{verb}: found {peak} KiB, expected {expected:?}"));
            }
        }
        job.restart(&image, Restart::Command)?;
        job.wait_up()?;
        let are_small = || {
            let all = supervisors(job);
            let are_small = all.iter().all(|(_, now, most)| {
                *now <= MOST_OF_A_SUPERVISOR_KIB && *most <= MOST_OF_A_START_KIB
            });
            // P0 and P1.
            (all.len() == 2 && are_small).then_some(())
        };
        run::poll(STEP, are_small).ok_or_else(|| {
            let all = supervisors(job);
            format!(
                "found {all:?}, expected two of {MOST_OF_A_SUPERVISOR_KIB} KiB each at most, \
                 {MOST_OF_A_START_KIB} as they started"
            )
        })?;
        println!("supervisors: {:?}", supervisors(job));
        job.let_go();
        passed(job.wait_pass()?)
    });
}
