//! Many jobs at one shadow.

use super::Verdicts;
use super::job::Station;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const JOBS: usize = 200;
const DEADLINE: Duration = Duration::from_secs(300);

/// Killed when dropped.
struct Processes(Vec<Child>);

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
        }
        for child in &mut self.0 {
            let _ = child.wait();
        }
    }
}

/// 200 jobs have a file open there, and have read and written it.
pub(crate) fn measure(station: &Station, verdicts: &mut Verdicts) {
    let home = station.path("home");
    fs::create_dir_all(&home).expect("makes it");
    let socket = format!("unix:{}", home.join("socket").display());
    let mut shadow = station.wayfarer(&["shadow", "--listen", &socket, "--allow", "/:ro"]);
    shadow.arg("--allow").arg(&home).stdout(Stdio::piped());
    let mut shadow = Processes(vec![shadow.spawn().expect("starts")]);
    let mut said = String::new();
    let out = shadow.0[0].stdout.take().expect("a pipe");
    BufReader::new(out).read_line(&mut said).expect("listens");
    let script = "exec 3<>\"$0\"; echo ready >&3; read line <\"$0\"; : >\"$0.ready\"; while test ! -e enough; do sleep 0.5; done";
    let mut jobs = Processes(vec![]);
    let begun = Instant::now();
    for number in 0..JOBS {
        let name = format!("many-{number}");
        let mut command =
            station.wayfarer(&["run", "--quiet", "--name", &name, "--shadow", &socket]);
        command.arg("--chdir").arg(&home);
        command.args(["--", "/bin/bash", "-c", script, &name]);
        jobs.0.push(command.spawn().expect("starts"));
    }
    let is_there = |number: &usize| home.join(format!("many-{number}.ready")).exists();
    while !(0..JOBS).all(|number| is_there(&number)) {
        assert!(begun.elapsed() < DEADLINE, "they do not begin");
        std::thread::sleep(Duration::from_millis(50));
    }
    let note = format!("all there after {:.0} s", begun.elapsed().as_secs_f64());
    let rss = resident_mib(shadow.0[0].id());
    verdicts.line("a shadow with 200 jobs", rss, 400.0, "MiB", &note);
    fs::write(home.join("enough"), "").expect("writes");
    for job in &mut jobs.0 {
        let until = Instant::now() + DEADLINE;
        while job.try_wait().expect("wait").is_none() {
            assert!(Instant::now() < until, "a job does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn resident_mib(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("is there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: f64 = line
        .and_then(|line| line.split_whitespace().next()?.parse().ok())
        .expect("VmHWM");
    kib / 1024.0
}
