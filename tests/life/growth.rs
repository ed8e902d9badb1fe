//! What a job and those around it have does not grow, however often it is checkpointed and restarted.

use super::*;
use std::collections::BTreeMap;

/// How often: checkpoints in all, and restarts among them.
fn rounds() -> (u64, u64) {
    match std::env::var_os("WF_FULL") {
        Some(_) => (1000, 100),
        None => (60, 6),
    }
}

/// What one of its processes has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Has {
    processes: u64,
    threads: u64,
    descriptors: u64,
    mappings: u64,
    /// Anonymous memory.
    kib: u64,
}

/// What may be more at the end: the allocators of Python and of others keep what they once needed.
const MORE_KIB: u64 = 1024;
const MORE_MAPPINGS: u64 = 4;

#[test]
fn nothing_grows_with_checkpoints_and_restarts() {
    with_job(&chain("growth"), |job| {
        start(job, &["--every", "1h", "--journal"])?;
        let (checkpoints, restarts) = rounds();
        let between = checkpoints / restarts;
        // Those that the first round brings: what is made once, and kept.
        round(job, between, 0)?;
        round(job, between, 1)?;
        let (first, files) = (all(job), files(job));
        for done in 2..restarts {
            round(job, between, done)?;
        }
        // Threads and streams of a copy that was killed take a moment to be gone.
        let settled = run::poll(STEP, || grown(&first, &all(job)).is_none().then_some(()));
        if settled.is_none() {
            return Err(grown(&first, &all(job)).unwrap_or_default());
        }
        let now = self::files(job);
        if now > files {
            return Err(format!("found {now} files, expected {files}"));
        }
        ends_well(job)
    });
}

/// Who has more than before.
fn grown(first: &BTreeMap<String, Has>, last: &BTreeMap<String, Has>) -> Option<String> {
    last.iter().find_map(|(name, last)| {
        let first = first.get(name).copied().unwrap_or_default();
        let grows = last.processes > first.processes
            || last.threads > first.threads
            || last.descriptors > first.descriptors
            || last.mappings > first.mappings + MORE_MAPPINGS
            || last.kib > first.kib + MORE_KIB;
        grows.then(|| format!("{name}: found {last:?}, expected {first:?}"))
    })
}

/// So many checkpoints; then it is killed, and goes on from the last.
fn round(job: &mut Job, checkpoints: u64, restarts: u64) -> Result<(), String> {
    until(job, "running", |status| status["State"] == "Running")?;
    let before = status_of(job)?["NumCkpts"].as_u64().unwrap_or(0);
    for made in 1..=checkpoints {
        signal_starter(job, Signal::SIGUSR2)?;
        until_images(job, before + made)?;
    }
    let pid = root_of(job)?;
    kill(pid, Signal::SIGKILL).map_err(|error| error.to_string())?;
    until(job, "a restart", |status| {
        status["NumRestarts"].as_u64() > Some(restarts) && status["State"] == "Running"
    })?;
    until_served(job)
}

/// Streams to the shadow are begun when something is asked or sent first: now all of this copy are there.
fn until_served(job: &mut Job) -> Result<(), String> {
    let first = trips(job)?;
    let asked = run::poll(STEP, || (trips(job).ok()? > first).then_some(()));
    asked.ok_or("the job asks nothing")?;
    until_longer(job)
}

/// How many questions the job has waited for.
fn trips(job: &mut Job) -> Result<u64, String> {
    let (_, said) = job.tell(&["io", "--json", "job"])?;
    let report: serde_json::Value =
        serde_json::from_str(&said).map_err(|error| format!("{said}: {error}"))?;
    let trips = report["all"]["RoundTrips"].as_u64();
    trips.ok_or_else(|| format!("no round trips: {said}"))
}

/// By name: what its processes have, and those of wayfarer around it.
fn all(job: &Job) -> BTreeMap<String, Has> {
    let mut all: BTreeMap<String, Has> = BTreeMap::new();
    for pid in run::marked(&job.mark) {
        let count = |what: &str| {
            let entries = fs::read_dir(format!("/proc/{pid}/{what}"));
            entries.map_or(0, |entries| entries.count() as u64)
        };
        let text = |what: &str| {
            let text = fs::read_to_string(format!("/proc/{pid}/{what}"));
            text.unwrap_or_default()
        };
        let status = text("status");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        // Each copy's supervisor has a number in its name.
        let name: String = text("comm")
            .chars()
            .take_while(|c| !"+:".contains(*c))
            .collect();
        let has = all.entry(name.trim().to_owned()).or_default();
        has.processes += 1;
        has.threads += count("task");
        has.descriptors += count("fd");
        has.mappings += text("maps").lines().count() as u64;
        has.kib += kib.unwrap_or(0);
    }
    all
}

/// How many files the job's store has.
fn files(job: &Job) -> usize {
    fn below(dir: &std::path::Path) -> usize {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let count = |entry: fs::DirEntry| match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => 1 + below(&entry.path()),
            false => 1,
        };
        entries.map(count).sum()
    }
    below(&job.dir.join("state"))
}
