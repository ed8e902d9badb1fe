//! What is done to a job: nothing; a checkpoint after which it goes on; a
//! checkpoint, its death and a restart; that ten times in a row.
//!
//! ```text
//! start --READY--> (random moment) --checkpoint--> go on ------------.
//!                        |                `-kill-> restart (x1, x10) -+-> go! --> PASS
//!                        `---------------- undisturbed ---------------'
//! ```

use super::host::Host;
use super::random::{Random, seed};
use super::run::{self, Run, clean_command};
use super::skip;
use super::stage;
use super::user::User;
use super::variants::{is_full, variants};
use super::without;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What happens to the job between READY and the verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing, and without wayfarer: is the program itself right?
    Undisturbed,
    /// Nothing, under `wayfarer run`.
    Supervised,
    /// A checkpoint; the job goes on.
    GoOn,
    /// A checkpoint, death, a restart.
    KillRestart,
    /// The same on an empty host.
    EmptyHost,
    /// Ten checkpoints, deaths and restarts at random moments.
    TenTimes,
}

/// A guest program with its surroundings.
#[derive(Clone, Debug)]
pub struct Guest {
    /// Names the test's files.
    pub label: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// More environment.
    pub environment: Vec<(String, String)>,
    /// Between READY and the first checkpoint, milliseconds.
    pub moment_ms: (u64, u64),
    /// It sits in a call with a time-out.
    pub timed: bool,
    /// It needs /dev, /tmp or the like, which an empty host has not.
    pub needs_system: bool,
    /// Only root may do what it does: every variant runs as root.
    pub only_root: bool,
    /// Undisturbed, it leads its process group (and so could not begin a session).
    pub leads_group: bool,
    /// How long it may take from READY, or from a restart, to its end.
    pub deadline: Duration,
}

/// One execution.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// What is done.
    pub mode: Mode,
    /// As whom.
    pub user: User,
    /// With this many busy threads beside.
    pub threads: u32,
}

/// How an execution ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It said PASS.
    Passed,
    /// It was not possible here.
    Skipped(String),
}

/// Exit status of a guest that cannot be tested here.
const SKIPPED: i32 = 77;
/// How long a call lasts that is stopped late. Guests allow it half of that again (tests/guests/calls.c).
const LONG_CALL_MS: u64 = 4000;
/// A checkpoint or a restart may take this long, on a loaded machine.
const STEP: Duration = Duration::from_secs(30);

impl Guest {
    /// A program with arguments.
    pub fn new(label: &str, program: impl Into<PathBuf>, arguments: &[&str]) -> Self {
        Guest {
            label: label.to_owned(),
            program: program.into(),
            arguments: arguments.iter().map(OsString::from).collect(),
            environment: vec![],
            moment_ms: (5, 120),
            timed: false,
            needs_system: false,
            only_root: false,
            leads_group: true,
            deadline: Duration::from_secs(40),
        }
    }

    /// Carries out one variant.
    ///
    /// # Errors
    /// What went wrong, with everything that was said, and where the files lie.
    pub fn execute(&self, variant: Variant) -> Result<Verdict, String> {
        if let Some(reason) = variant.user.missing() {
            return Ok(Verdict::Skipped(reason));
        }
        if variant.mode == Mode::EmptyHost && self.needs_system {
            return Ok(Verdict::Skipped("needs more than an empty host has".into()));
        }
        let seed = seed();
        let mut job = Job::new(self, variant, seed);
        let result = job.perform();
        let alive = run::marked(&job.mark);
        let autopsy = match &result {
            Err(_) => run::autopsy(&alive),
            Ok(_) => String::new(),
        };
        let log: String = job.runs.iter().map(Run::describe).collect();
        drop(std::mem::take(&mut job.runs));
        run::end_marked(&job.mark);
        match result {
            Ok(verdict) => {
                let _ = fs::remove_dir_all(&job.dir);
                Ok(verdict)
            }
            Err(what) => {
                let log = format!("{variant:?}, WF_SEED={seed}\n{what}\n{log}{autopsy}");
                let place = stage::keep_artefacts(&job.dir, &log);
                Err(format!("{log}files: {}\n", place.display()))
            }
        }
    }
}

/// A job in the hands of a test.
pub struct Job<'a> {
    /// What it runs.
    pub guest: &'a Guest,
    variant: Variant,
    /// Where all its files are.
    pub dir: PathBuf,
    /// `NAME=value` in the environment of everything that belongs to it.
    pub mark: String,
    random: Random,
    /// Everything started for it, oldest first.
    pub runs: Vec<Run>,
    images: u32,
}

impl<'a> Job<'a> {
    /// A job that has not been started.
    pub fn new(guest: &'a Guest, variant: Variant, seed: u64) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let label = format!(
            "{}-{:?}-{:?}-{}",
            guest.label, variant.mode, variant.user, variant.threads
        );
        let dir = stage::job_dir(&label, variant.user);
        for sub in ["data", "state"] {
            fs::create_dir(dir.join(sub)).expect("make the job's directories");
            variant.user.own(&dir.join(sub));
        }
        let random = Random::new(seed, &label);
        let mark = format!("WF_TEST={}-{number}", std::process::id());
        Job {
            guest,
            variant,
            dir,
            mark,
            random,
            runs: vec![],
            images: 0,
        }
    }

    /// Whose it is.
    pub fn user(&self) -> User {
        self.variant.user
    }

    fn marked_command(&self, program: &Path) -> Command {
        let mut command = clean_command(program);
        if let Some((name, value)) = self.mark.split_once('=') {
            command.env(name, value);
        }
        command.current_dir(self.dir.join("data"));
        command
    }

    /// `wayfarer --dir ... ARGUMENTS`.
    pub fn wayfarer(&self, arguments: &[&str]) -> Command {
        let mut command = self.marked_command(&stage::wayfarer());
        command
            .arg("--dir")
            .arg(self.dir.join("state"))
            .args(arguments);
        command
    }

    /// Gives a command what guests expect in their environment.
    pub fn equip(&self, command: &mut Command) {
        // A loaded machine; ten restarts add up. What is forgotten is later than these.
        let late_ms = match (self.variant.mode, self.variant.threads) {
            (_, 2..) => 1500,
            (Mode::TenTimes, _) => 600,
            _ => 250,
        };
        command.env("WF_GO", self.dir.join("data/go"));
        command.env("WF_DATA", self.dir.join("data"));
        command.env("WF_THREADS", self.variant.threads.to_string());
        command.env("WF_LATE_MS", late_ms.to_string());
        if self.is_long() {
            command.env("WF_CALL_MS", LONG_CALL_MS.to_string());
        }
        if !matches!(
            self.variant.mode,
            Mode::Undisturbed | Mode::Supervised | Mode::GoOn
        ) {
            // Only for what docs/VISIBLE.md says a moved job can notice.
            command.env("WF_MOVED", "1");
        }
        command.envs(self.guest.environment.iter().cloned());
    }

    /// Starts the guest, with wayfarer unless it is to be undisturbed.
    ///
    /// # Errors
    /// It could not be started, or did not get ready.
    pub fn start(&mut self) -> Result<Verdict, String> {
        let mut command = if self.variant.mode == Mode::Undisturbed {
            if self.guest.leads_group {
                self.marked_command(&self.guest.program)
            } else {
                let mut command = self.marked_command(Path::new("/bin/sh"));
                command.args(["-c", "\"$@\"; exit $?", "sh"]);
                command.arg(&self.guest.program);
                command
            }
        } else {
            let mut command = self.wayfarer(&["run", "--quiet", "--name", "job", "--"]);
            command.arg(&self.guest.program);
            command
        };
        command.args(&self.guest.arguments);
        self.equip(&mut command);
        let mut run = Run::start("the guest", command, self.variant.user)?;
        let ready = run.wait_line("READY", STEP);
        let code = run.ended().and_then(|status| status.code());
        let skipped = run
            .out
            .text()
            .lines()
            .find_map(|line| line.strip_prefix("SKIP: ").map(String::from));
        self.runs.push(run);
        match (ready, code, skipped) {
            (Err(_), Some(SKIPPED), Some(reason)) => Ok(Verdict::Skipped(reason)),
            (ready, ..) => ready.map(|()| Verdict::Passed),
        }
    }

    /// Lets the guest verify and end.
    pub fn let_go(&self) {
        let path = self.dir.join("data/go");
        fs::write(&path, "").expect("let the guest go");
    }

    /// Whether its call is longer than what such a guest may be late where it is restarted often, or beside others
    /// (`WF_FULL`: that takes its time).
    fn is_long(&self) -> bool {
        let beside = self.variant.mode == Mode::TenTimes || self.variant.threads >= 2;
        self.guest.timed && beside && is_full()
    }

    /// Sleeps until the next random moment.
    pub fn wait_random(&mut self) {
        let (from, to) = self.guest.moment_ms;
        std::thread::sleep(self.random.millis(from, to));
    }

    /// The same for the first: of a long call more than half is over then, so that one begun anew is noticed.
    fn wait_first(&mut self) {
        match self.is_long() {
            true => std::thread::sleep(
                self.random
                    .millis(LONG_CALL_MS * 5 / 8, LONG_CALL_MS * 6 / 8),
            ),
            false => self.wait_random(),
        }
    }

    /// Runs wayfarer with these arguments; its output is kept for the log.
    ///
    /// # Errors
    /// It did not end in time.
    pub fn tell(&mut self, arguments: &[&str]) -> Result<(Option<i32>, String), String> {
        let label = format!("wayfarer {}", arguments.join(" "));
        let command = self.wayfarer(arguments);
        let mut run = Run::start(&label, command, self.variant.user)?;
        let status = run.wait(STEP);
        let said = run.out.text() + &run.err.text();
        self.runs.push(run);
        status.map(|status| (status.code(), said))
    }

    /// Writes an image of the running job; a job that is still being restarted is asked again.
    ///
    /// # Errors
    /// What the command said.
    pub fn checkpoint(&mut self, then: &str) -> Result<PathBuf, String> {
        self.images += 1;
        let image = self.dir.join(format!("{}.img", self.images));
        let path = image.to_string_lossy().into_owned();
        let arguments = ["checkpoint", "job", "-o", &path, "--then", then];
        let (code, said) = self.tell(&arguments)?;
        if code != Some(0) {
            return Err(format!("checkpoint {}: exit {code:?}: {said}", self.images));
        }
        if !image.exists() {
            return Err(format!("checkpoint {}: no image at {path}", self.images));
        }
        Ok(image)
    }

    /// Waits until the last started program has ended because its job was killed.
    ///
    /// # Errors
    /// It has not, or processes of it are left.
    pub fn wait_killed(&mut self) -> Result<(), String> {
        let starter = self
            .runs
            .iter_mut()
            .rev()
            .find(|run| run.label.starts_with("the guest"));
        let run = starter.ok_or("nothing was started")?;
        let status = run.wait(STEP)?;
        if status.success() {
            return Err(format!(
                "{}: found a clean end, expected death after --then kill",
                run.label
            ));
        }
        let mark = self.mark.clone();
        match run::poll(STEP, || run::marked(&mark).is_empty().then_some(())) {
            Some(()) => Ok(()),
            None => Err(format!(
                "still there after --then kill: {:?}",
                run::marked(&mark)
            )),
        }
    }

    /// Starts the image: by `wayfarer restart`, by itself, or on an empty host.
    ///
    /// # Errors
    /// It could not be started.
    pub fn restart(&mut self, image: &Path, how: Restart) -> Result<(), String> {
        let command = match how {
            Restart::Command | Restart::NewIds => {
                let mut command = self.wayfarer(&["restart", "--name", "job"]);
                if how == Restart::NewIds {
                    command.args(["--pids", "host"]);
                }
                command.arg(image);
                command
            }
            Restart::Image => self.marked_command(image),
            Restart::EmptyHost => {
                let data = self.dir.join("data");
                let mut command = Host::empty()?.with(image).with(&data).command(image);
                if let Some((name, value)) = self.mark.split_once('=') {
                    command.env(name, value);
                }
                command
            }
        };
        let label = format!("the guest, restarted ({how:?})");
        self.runs
            .push(Run::start(&label, command, self.variant.user)?);
        Ok(())
    }

    /// The same command, in the job's data directory and with its mark.
    pub fn in_data(&self, command: Command) -> Command {
        let mut marked = self.marked_command(Path::new(command.get_program()));
        marked.args(command.get_args());
        marked.envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        marked
    }

    /// What the guest has written since it was last started or restarted.
    pub fn guest_output(&self) -> String {
        let run = self
            .runs
            .iter()
            .rev()
            .find(|run| run.label.starts_with("the guest"));
        run.map(|run| run.out.text()).unwrap_or_default()
    }

    /// Waits until the guest has ended.
    ///
    /// # Errors
    /// The deadline passed.
    pub fn wait_end(&mut self, deadline: Duration) -> Result<std::process::ExitStatus, String> {
        let run = self
            .runs
            .iter_mut()
            .rev()
            .find(|run| run.label.starts_with("the guest"));
        run.ok_or("nothing was started")?.wait(deadline)
    }

    /// Waits for the guest's PASS and its exit status.
    ///
    /// # Errors
    /// What it said instead.
    pub fn wait_pass(&mut self) -> Result<Verdict, String> {
        let deadline = self.guest.deadline;
        let run = self
            .runs
            .iter_mut()
            .rev()
            .find(|run| run.label.starts_with("the guest"));
        let run = run.ok_or("nothing was started")?;
        let status = run.wait(deadline)?;
        let text = run.out.text();
        if let Some(reason) = text.lines().find_map(|line| line.strip_prefix("SKIP: ")) {
            return Ok(Verdict::Skipped(reason.to_owned()));
        }
        let last = text.lines().last().unwrap_or("nothing");
        if last == "PASS" && status.success() {
            return Ok(Verdict::Passed);
        }
        let signal = status
            .signal()
            .map_or(String::new(), |signal| format!(", signal {signal}"));
        Err(format!(
            "{}: found {last:?} and {status}{signal}, expected PASS and 0",
            run.label
        ))
    }

    fn perform(&mut self) -> Result<Verdict, String> {
        let mode = self.variant.mode;
        let ready = self.start()?;
        if ready != Verdict::Passed {
            return Ok(ready);
        }
        self.wait_first();
        match mode {
            Mode::Undisturbed | Mode::Supervised => {}
            Mode::GoOn => {
                self.checkpoint("go-on")?;
            }
            Mode::KillRestart => {
                let image = self.checkpoint("kill")?;
                self.wait_killed()?;
                let how = if self.random.below(2) == 0 {
                    Restart::Command
                } else {
                    Restart::Image
                };
                self.restart(&image, how)?;
            }
            Mode::EmptyHost => {
                let image = self.checkpoint("kill")?;
                self.wait_killed()?;
                self.restart(&image, Restart::EmptyHost)?;
            }
            Mode::TenTimes => self.ten_times()?,
        }
        self.wait_random();
        self.let_go();
        self.wait_pass()
    }

    /// Each generation lives until a random moment after it came up.
    fn ten_times(&mut self) -> Result<(), String> {
        for generation in 1..=10 {
            let image = self.checkpoint("kill")?;
            self.wait_killed()?;
            self.restart(&image, Restart::Command)?;
            if generation < 10 {
                self.wait_up()?;
                // A random moment of this generation's life.
                let pause = self.random.millis(0, 60);
                std::thread::sleep(pause);
            }
        }
        Ok(())
    }

    /// Waits until the restarted job can be told to do something.
    ///
    /// # Errors
    /// It ended, or did not come up.
    pub fn wait_up(&mut self) -> Result<(), String> {
        let mut last = String::new();
        for _ in 0..600 {
            let command = self.wayfarer(&["ps", "--json", "job"]);
            let (_, run) = run::finish("wayfarer ps", command, self.variant.user, STEP)?;
            last = run.out.text() + &run.err.text();
            if last.contains("\"running\"") {
                return Ok(());
            }
            if let Some(ended) = self.runs.last_mut().and_then(Run::ended) {
                return Err(format!("the restarted job ended at once: {ended}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("the restarted job did not come up; ps says {last}"))
    }
}

/// How an image is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// `wayfarer restart IMAGE`.
    Command,
    /// The same, without namespaces.
    NewIds,
    /// `./IMAGE`.
    Image,
    /// `./IMAGE` where there is nothing else.
    EmptyHost,
}

/// Puts a guest through all variants (only those named in `WF_ONLY`, if set).
///
/// # Panics
/// With every variant that failed.
pub fn check(guest: &Guest) {
    if let Some(notes) = std::env::var_os("WF_WITHOUT") {
        return without::check(guest, Path::new(&notes));
    }
    let only = std::env::var("WF_ONLY").ok();
    let mut failures = String::new();
    let mut failed = vec![];
    for mut variant in variants() {
        if guest.only_root {
            variant.user = User::Root;
        }
        let name = format!("{:?}-{:?}-{}", variant.mode, variant.user, variant.threads);
        if only
            .as_ref()
            .is_some_and(|only| !name.contains(only.as_str()))
        {
            continue;
        }
        match guest.execute(variant) {
            Ok(Verdict::Passed) => {}
            Ok(Verdict::Skipped(reason)) => {
                skip::note(&format!("{} {name}", guest.label), &reason);
                if variant.mode == Mode::Undisturbed {
                    return;
                }
            }
            Err(what) => {
                failures.push_str(&format!("=== {name}: {what}\n"));
                failed.push(name);
                if variant.mode == Mode::Undisturbed {
                    break;
                }
            }
        }
    }
    assert!(
        failed.is_empty(),
        "{}: {} failed\n{failures}",
        guest.label,
        failed.join(", ")
    );
}
