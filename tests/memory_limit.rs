//! Memory that is short: a job in a real control group that it nearly fills is not killed by a checkpoint, and wayfarer itself has
//! 64 MiB at most, whatever a job has in its pipes and sockets, and however many threads and open files.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::memory::supervisors;
use support::promise::{passed, with_job};
use support::run::{self, Run};
use support::scenario::{Guest, Job, Restart};
use support::skip;
use support::stage::{Linking, c_guest};
use support::user::{User, is_root};

/// The guest has 96 MiB, and writes to all of it all the while.
const LIMIT: u64 = 128 << 20;

/// A control group of our own, gone when this is.
struct Group(PathBuf);

impl Group {
    /// One that limits memory, of version 1 or 2.
    fn limited(bytes: u64) -> Result<Self, String> {
        if !is_root() {
            return Err("only root can make a control group".into());
        }
        let hierarchies = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        let mut tried = String::new();
        for (root, limit) in hierarchies {
            let place = Path::new(root).join(format!("wayfarer-{}", std::process::id()));
            let shown = place.join(limit).display().to_string();
            let made = fs::create_dir(&place).map(|()| Group(place));
            let limited = made.and_then(|group| {
                fs::write(group.0.join(limit), bytes.to_string())?;
                Ok(group)
            });
            match limited {
                Ok(group) => return Ok(group),
                Err(error) => tried += &format!("{shown}: {error}; "),
            }
        }
        Err(tried)
    }

    /// How often the kernel has killed somebody for want of memory.
    fn kills(&self) -> Result<u64, String> {
        let words = ["memory.oom_control", "memory.events"]
            .map(|file| fs::read_to_string(self.0.join(file)).unwrap_or_default())
            .concat();
        let line = words
            .lines()
            .find_map(|line| line.strip_prefix("oom_kill "));
        line.and_then(|count| count.parse().ok())
            .ok_or_else(|| format!("no oom_kill in {words:?}"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        run::poll(Duration::from_secs(5), || fs::remove_dir(&self.0).ok());
    }
}

/// Starts the guest there, as an ordinary user.
fn start_in(group: &Group, job: &mut Job) -> Result<(), String> {
    let inner = job.wayfarer(&["run", "--quiet", "--name", "job", "--"]);
    let mut command = job.in_data(run::clean_command("/bin/sh"));
    let enter =
        "echo $$ >\"$0\" && exec setpriv --reuid wftest --regid wftest --clear-groups \"$@\"";
    command
        .args(["-c", enter])
        .arg(group.0.join("cgroup.procs"));
    command.arg(inner.get_program()).args(inner.get_args());
    command.arg(&job.guest.program).args(&job.guest.arguments);
    job.equip(&mut command);
    let mut run = Run::start("the guest", command, User::Root)?;
    let ready = run.wait_line("READY", Duration::from_secs(20));
    job.runs.push(run);
    ready
}

/// Carries out a command, and says the most memory (KiB) that it had.
const MEASURED: &str = "import resource, subprocess, sys\n\
    status = subprocess.run(sys.argv[1:]).returncode\n\
    print('peak', resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n\
    sys.exit(status)\n";

/// Carries out a command, which may have so many MiB.
fn within(mib: u64, job: &mut Job, arguments: &[&str]) -> Result<(), String> {
    let command = job.wayfarer(arguments);
    let mut python = run::clean_command("python3");
    python.args(["-c", MEASURED]).arg(command.get_program());
    python.args(command.get_args());
    let python = job.in_data(python);
    let patience = Duration::from_secs(30);
    let (status, run) = run::finish(arguments[0], python, User::Ordinary, patience)?;
    let said = run.out.text();
    let peak = said.lines().find_map(|line| line.strip_prefix("peak "));
    let peak: Option<u64> = peak.and_then(|kib| kib.trim().parse().ok());
    match peak {
        Some(kib) if status.success() && kib <= mib << 10 => {
            eprintln!("{}: {kib} KiB", arguments[0]);
            Ok(())
        }
        _ => Err(format!(
            "{arguments:?}: {status}: {said}: expected {mib} MiB at most"
        )),
    }
}

/// 25 MiB in pipes: an ordinary user may not have much more. 80 MiB in sockets.
#[test]
fn what_lies_unread_in_pipes_is_not_held_in_memory() {
    nobody_has_more("descriptors", "many_pipes", 24);
}

#[test]
fn what_lies_unread_in_sockets_is_not_held_in_memory() {
    nobody_has_more("descriptors", "many_sockets", 24);
}

#[test]
fn of_thousands_of_files_little_is_held_in_memory() {
    nobody_has_more("descriptors", "many_files", 64);
}

#[test]
fn of_thousands_of_threads_little_is_held_in_memory() {
    nobody_has_more("threads", "throng", 64);
}

/// Than so many MiB.
fn nobody_has_more(guests: &str, name: &str, mib: u64) {
    let program = c_guest(guests, Linking::Dynamic).expect("the guest compiles");
    let guest = Guest::new(name, program, &[name]);
    with_job(&guest, |job| {
        passed(job.start()?)?;
        let image = job.dir.join("first.img");
        let path = image.to_string_lossy();
        within(mib, job, &["checkpoint", "job", "-o", &path])?;
        within(mib, job, &["verify", &path])?;
        within(mib, job, &["inspect", &path])?;
        let whole = job.dir.join("whole.img");
        within(
            mib,
            job,
            &["flatten", &path, "-o", &whole.to_string_lossy()],
        )?;
        job.let_go();
        passed(job.wait_pass()?)?;
        let go = job.dir.join("data/go");
        fs::remove_file(&go).map_err(|error| format!("{}: {error}", go.display()))?;
        job.restart(&image, Restart::Command)?;
        job.wait_up()?;
        // P0 and P1; the job is as one of them until its threads are there.
        let are_small = || {
            let all = supervisors(job);
            (all.len() == 2 && all.iter().all(|(_, _, most)| *most <= mib << 10)).then_some(all)
        };
        let small = run::poll(Duration::from_secs(30), are_small).ok_or_else(|| {
            let all = supervisors(job);
            format!("found {all:?}, expected two of {mib} MiB at most")
        })?;
        eprintln!("supervisors: {small:?}");
        job.let_go();
        passed(job.wait_pass()?)
    });
}

#[test]
fn a_job_near_its_memory_limit_is_not_killed_by_a_checkpoint() {
    let group = match Group::limited(LIMIT) {
        Ok(group) => group,
        Err(reason) => return skip::note("memory_limit", &reason),
    };
    let program = c_guest("machine", Linking::Dynamic).expect("the guest compiles");
    let guest = Guest::new("memory_limit", program, &["written"]);
    with_job(&guest, |job| {
        start_in(&group, job)?;
        // So slowly that the job writes to every page of a picture meanwhile.
        let image = job.dir.join("near.img");
        let path = image.to_string_lossy().into_owned();
        let (code, said) = job.tell(&["checkpoint", "job", "-o", &path, "--compress", "zstd:9"])?;
        if code != Some(0) {
            return Err(format!("checkpoint: exit {code:?}: {said}"));
        }
        job.let_go();
        passed(job.wait_pass()?)?;
        match group.kills()? {
            0 => {}
            kills => return Err(format!("found {kills} killed for memory, expected none")),
        }
        job.restart(&image, Restart::Command)?;
        passed(job.wait_pass()?)
    });
}
