//! What a starter costs that has nothing to do, and a shadow of many jobs.

use crate::job::{Job, Station};
use crate::verdicts::Verdicts;
use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How long a starter is watched.
const WATCHED: Duration = Duration::from_secs(30);
/// So many jobs at one shadow.
const JOBS: usize = 200;
const DEADLINE: Duration = Duration::from_secs(300);
/// How many watches of files one user may have (inotify(7)): a job has two.
const INSTANCES: &str = "/proc/sys/fs/inotify/max_user_instances";
const EXPECTED_INSTANCES: usize = 2 * JOBS + 100;
/// Each writes a line a second, and reads them back.
const WRITER: &str = "
import sys, time
name = 'lines-' + sys.argv[1]
for n in range(30):
    with open(name, 'a') as out: print(n, file=out)
    time.sleep(1)
assert open(name).read() == ''.join(f'{n}\\n' for n in range(30))
";

/// Share of a processor, and memory, of a starter whose job works.
pub(crate) fn idle(station: &Station, verdicts: &mut Verdicts) {
    for (what, is_here) in [
        ("an idle starter", true),
        ("one whose job is elsewhere", false),
    ] {
        let job = match is_here {
            true => Job::start_here(station, 1),
            false => Job::start(station, 1, false),
        };
        let mut watched = vec![(what, job.starter())];
        let there = below(job.starter()).into_iter().find(|pid| is_there(*pid));
        watched.extend(there.map(|pid| ("what is on that machine for it", pid)));
        std::thread::sleep(Duration::from_secs(2));
        let before: Vec<Duration> = watched.iter().map(|(_, pid)| on_processor(*pid)).collect();
        std::thread::sleep(WATCHED);
        for ((what, pid), before) in watched.into_iter().zip(before) {
            let share = (on_processor(pid) - before).as_secs_f64() / WATCHED.as_secs_f64();
            let note = format!("of a core, over {} s", WATCHED.as_secs());
            verdicts.line(what, 100.0 * share, 0.1, "%", &note);
            let memory = kibibytes(pid, "VmRSS:") as f64 / 1024.0;
            verdicts.line("its memory", memory, 20.0, "MiB", "resident");
        }
        job.end();
    }
}

/// All processes that come from this one (/proc/PID/task/TID/children, proc(5)).
fn below(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    let lists = threads
        .flatten()
        .map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    let children: Vec<u32> = lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect();
    let mut all = children.clone();
    all.extend(children.into_iter().flat_map(below));
    all
}

/// Whether it is what a keeper has begun on the other machine.
fn is_there(pid: u32) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words
        .split(|byte| *byte == 0)
        .any(|word| word == b"--at-home")
}

/// Time that all its threads had a processor (/proc/PID/schedstat, proc(5)).
fn on_processor(pid: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("is there");
    let times = threads.flatten().map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        let time = text.split(' ').next().and_then(|time| time.parse().ok());
        Duration::from_nanos(time.unwrap_or_default())
    });
    times.sum()
}

fn kibibytes(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("is there");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.expect("a number")
}

/// A shadow of two hundred jobs at once.
pub(crate) fn crowd(station: &Station, verdicts: &mut Verdicts) {
    let text = fs::read_to_string(INSTANCES).unwrap_or_default();
    let instances: usize = text.trim().parse().unwrap_or_default();
    if instances < EXPECTED_INSTANCES {
        println!(
            "  a shadow of {JOBS} jobs: not measured, {INSTANCES} is {instances}, expected {EXPECTED_INSTANCES}: as many jobs are on one machine here"
        );
        return;
    }
    let socket = station.path("crowd");
    let address = format!("unix:{}", socket.display());
    let mut shadow = station.wayfarer(&["shadow", "--allow", "/:ro", "--allow"]);
    shadow.arg(station.path("")).args(["--listen", &address]);
    let mut shadow = Ended(shadow.stderr(Stdio::null()).spawn().expect("starts"));
    let until = Instant::now() + DEADLINE;
    while !socket.exists() {
        assert!(Instant::now() < until, "no shadow");
        std::thread::sleep(Duration::from_millis(5));
    }
    let jobs: Vec<Ended> = (0..JOBS)
        .map(|number| {
            let name = format!("crowd-{number}");
            let mut job = station.wayfarer(&["run", "-q", "--name", &name, "--shadow", &address]);
            job.args(["--", "/usr/bin/python3", "-c", WRITER, &number.to_string()]);
            Ended(job.stderr(Stdio::null()).spawn().expect("starts"))
        })
        .collect();
    let mut ended_well = 0;
    for mut job in jobs {
        let status = loop {
            if let Some(status) = job.0.try_wait().expect("wait") {
                break status;
            }
            assert!(Instant::now() < until, "a job does not end");
            std::thread::sleep(Duration::from_millis(20));
        };
        ended_well += usize::from(status.success());
    }
    assert_eq!(ended_well, JOBS, "jobs that ended well");
    let most = kibibytes(shadow.0.id(), "VmHWM:") as f64 / 1024.0;
    let note = format!("{ended_well} of {JOBS} ended well");
    verdicts.line("a shadow of 200 jobs", most, 400.0, "MiB", &note);
    let _ = shadow.0.kill();
}

/// Killed when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
