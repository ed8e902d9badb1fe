//! What comes between an image and the job that goes on from it: killed on the way.

use super::*;

/// As [`CHAIN`], with so much memory that a restart takes a while.
fn large_chain(label: &str) -> Guest {
    let large = format!("import os\nballast = os.urandom(96 << 20)\n{CHAIN}");
    Guest::new(label, "/usr/bin/python3", &["-c", &large])
}

fn children(pid: i32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let text = text.unwrap_or_default();
    text.split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

/// The process so far down from the starter: 1 supervises the job, 2 is its pid 1, 3 its first process.
fn below(starter: i32, depth: usize) -> Option<i32> {
    (0..depth).try_fold(starter, |pid, _| children(pid).first().copied())
}

/// Kills the job, and what takes its place as soon as that is there.
fn kill_twice(job: &mut Job, depth: usize) -> Result<(), String> {
    let starter = starter(job)?.pid().cast_signed();
    let root = root_of(job)?;
    let supervisor = below(starter, 1).ok_or("nothing is below the starter")?;
    kill(root, Signal::SIGKILL).map_err(|error| error.to_string())?;
    let deadline = std::time::Instant::now() + STEP;
    // Without a pause: it is there for a moment.
    while std::time::Instant::now() < deadline {
        let Some(next) = below(starter, 1).filter(|next| *next != supervisor) else {
            continue;
        };
        // Before the loader is there, wayfarer has a child that looks what the machine offers, and that has none.
        let is_there = depth == 1 || below(next, 2).is_some();
        if let Some(pid) = below(next, depth - 1).filter(|_| is_there) {
            return kill(Pid::from_raw(pid), Signal::SIGKILL).map_err(|error| error.to_string());
        }
    }
    Err("nothing took its place".to_owned())
}

/// Out of memory, say: the job's first process, its pid 1, its supervisor.
#[test]
fn a_job_that_is_killed_while_it_is_restarted_is_tried_again() {
    with_job(&large_chain("killed_restarting"), |job| {
        start(job, &["--keep", "1"])?;
        until_longer(job)?;
        for (depth, restarts) in [(3, 1), (2, 2), (1, 3)] {
            ask(job, &["checkpoint", "job"])?;
            kill_twice(job, depth)?;
            let said = |job: &mut Job| starter(job).map(|run| run.err.text());
            until(job, "a restart", |status| {
                status["NumRestarts"] == restarts && status["State"] == "Running"
            })?;
            let said = said(job)?;
            let paused = said.matches("was killed before it ran").count();
            if paused as u64 != restarts {
                return Err(format!(
                    "{said}\nfound {paused} pauses, expected {restarts}"
                ));
            }
            until_longer(job)?;
        }
        ends_well(job)
    });
}
