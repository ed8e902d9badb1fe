//! Whoever serves a job on its machine, or is of it, is killed: what the job was told that it has done is done, once, and nothing of it is left.
//!
//! ```text
//! the guest, step by step, undisturbed --> the states that its files may be in
//! the guest, remote --some steps, then somebody is killed--> one of two of these states; all processes, locks, sessions, sockets gone;
//!                                                            the shadow serves the next
//! ```
//! A few moments chosen by the seed; many with `WF_FULL`.

use super::cut::start_secure;
use super::durable::{KEPT, Mortal, python};
use super::lines::processes_with;
use super::*;
use c_shim::faults::POINTS;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use support::run::{autopsy, end_marked, marked, poll};

/// What the shadow keeps of a job that goes back.
const GOING_BACK: [&str; 6] = ["--allow", "/:ro", "--state", "keep", "--journal", "undo"];
/// Rounds of the guest, and steps of each.
const ROUNDS: usize = 8;
const ROUND: usize = 18;
/// Writes that may come one after another; everything else that a job asks has them sent before.
const WRITES: usize = 3;

type Tree = BTreeMap<PathBuf, (u32, Vec<u8>)>;

fn guest() -> PathBuf {
    c_guest("remote_steps", Linking::Dynamic).expect("the guest compiles")
}

/// How often something is tried.
fn times(few: usize, many: usize) -> usize {
    match std::env::var_os("WF_FULL") {
        Some(_) => many,
        None => few,
    }
}

/// What the guest's files are after each step.
struct States(Vec<Tree>);

impl States {
    fn of(submit: &Submit) -> Self {
        let mut command = clean_command(guest());
        command.args([&ROUNDS.to_string(), "0", "paced"]);
        command.current_dir(submit.local()).stdin(Stdio::piped());
        let mut run = Run::start_with_stdin("the guest here", command, User::Ordinary);
        let run = run.as_mut().expect("starts");
        let mut stdin = run.stdin().expect("a pipe");
        let mut states = vec![];
        for told in 1..=ROUNDS * ROUND + 1 {
            let has_told = || (run.out.bytes().len() == told).then_some(());
            poll(SOON, has_told).unwrap_or_else(|| panic!("{}", run.describe()));
            states.push(tree(&submit.local()));
            // After the last it is gone.
            let _ = stdin.write_all(b"x");
        }
        States(states)
    }

    fn last(&self) -> &Tree {
        self.0.last().expect("it has begun")
    }

    /// Whether files may be so when the guest has told of so many steps (the first: that it has begun). Writes that nobody has waited for
    /// are lost with the machine.
    fn allow(&self, found: &Tree, told: usize, lost: bool) -> Result<(), String> {
        let Some(done) = told.checked_sub(1) else {
            let beginning = found
                .iter()
                .all(|(name, is)| self.0[0].get(name) == Some(is));
            let one = self.0[..2].contains(found);
            return (beginning || one)
                .then_some(())
                .ok_or("not as it begins".to_owned());
        };
        let may_be = &self.0[done..self.0.len().min(done + 2)];
        let before = &self.0[done.saturating_sub(if lost { WRITES } else { 0 })..];
        let before = &before[..before.len().min(WRITES + 2)];
        let is = |state: &Tree| {
            let same = |(name, (mode, bytes)): (&PathBuf, &(u32, Vec<u8>))| {
                let Some((expected, contents)) = state.get(name) else {
                    return false;
                };
                let older = |state: &Tree| state.get(name).is_some_and(|(_, old)| old == bytes);
                mode == expected && (contents == bytes || lost && before.iter().any(older))
            };
            state.len() == found.len() && found.iter().all(same)
        };
        if may_be.iter().any(is) {
            return Ok(());
        }
        let differs = |name: &&PathBuf| found.get(*name) != may_be[0].get(*name);
        let names: Vec<_> = found
            .keys()
            .chain(may_be[0].keys())
            .filter(differs)
            .collect();
        let at = (done + ROUND - 1) % ROUND;
        Err(format!(
            "after {done} steps (the last of kind {at}) {names:?} differ"
        ))
    }
}

/// What serves a job, and the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Supervisor,
    /// Pid 1 of its namespace.
    Init,
    Program,
    Keeper,
    Starter,
}

fn child_of(pid: i32) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// A folder and its shadow, and jobs that are not left in peace.
struct Deaths {
    mortal: Mortal,
    states: States,
    mark: String,
}

impl Deaths {
    fn new(label: &str, options: &[&'static str]) -> Self {
        let mortal = Mortal::new(options);
        let states = States::of(&mortal.submit);
        let mark = format!("WF_MARK={label}-{}", std::process::id());
        Deaths {
            mortal,
            states,
            mark,
        }
    }

    fn home(&self) -> PathBuf {
        self.mortal.submit.home()
    }

    fn wayfarer(&self, all: &[&str]) -> Command {
        let mut command = clean_command(stage::wayfarer());
        let (name, value) = self.mark.split_once('=').expect("has a name");
        command.env(name, value);
        command.env("XDG_RUNTIME_DIR", self.mortal.submit.dir.join("door"));
        command
            .arg("--dir")
            .arg(self.mortal.submit.dir.join("state"));
        command.args(all).current_dir(self.home());
        command
    }

    /// A job in an empty folder.
    fn begin(&self, options: &[&str], words: &[&OsStr], fault: Option<&str>) -> Run {
        for entry in fs::read_dir(self.home()).expect("lists").flatten() {
            let path = entry.path();
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let removed = if is_dir {
                fs::remove_dir_all(path)
            } else {
                fs::remove_file(path)
            };
            removed.expect("removes");
        }
        let mut command = self.wayfarer(&["run", "-q", "--replace", "--name", "job"]);
        command.args(options).arg("--").args(words);
        if let Some(fault) = fault {
            command.env("WAYFARER_FAULT", fault);
        }
        Run::start("the job", command, User::Ordinary).expect("starts")
    }

    fn here(&self) -> [String; 2] {
        ["--shadow".to_owned(), address(&self.mortal.submit.dir)]
    }

    fn begin_here(&self, words: &[&OsStr], fault: Option<&str>) -> Run {
        let here = self.here();
        self.begin(&here.each_ref().map(String::as_str), words, fault)
    }

    /// A process of the job, or beside it.
    fn find(&self, part: Part, job: &Run) -> Option<i32> {
        let supervisor = job.pid() as i32;
        let beside = |word: &str| {
            let all = marked(&self.mark);
            processes_with(word)
                .into_iter()
                .find(|pid| all.contains(pid))
        };
        match part {
            Part::Supervisor => Some(supervisor),
            Part::Init => child_of(supervisor),
            Part::Program => child_of(child_of(supervisor)?),
            Part::Keeper => beside("keeper"),
            Part::Starter => beside("starter"),
        }
    }

    fn ends_as_undisturbed(&self, job: &mut Run) {
        let status = job.wait(DEADLINE).expect("ends");
        assert!(status.success(), "{}", self.describe(job));
        let is_so = tree(&self.home()) == *self.states.last();
        assert!(is_so, "{}", self.describe(job));
    }

    fn kill(&self, part: Part, job: &mut Run) {
        let was_killed = self.kill_if_there(part, job);
        assert!(was_killed, "no {part:?}: {}", job.describe());
    }

    /// Whether it was there: its job may have ended.
    fn kill_if_there(&self, part: Part, job: &mut Run) -> bool {
        if job.ended().is_some() {
            return false;
        }
        let pid = self.find(part, job);
        pid.is_some_and(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok())
    }

    /// The guest has told of so many steps.
    fn has_told(&self, job: &mut Run, steps: usize) {
        let told = || {
            let enough = job.out.bytes().len() >= steps || job.ended().is_some();
            enough.then_some(())
        };
        poll(SOON, told).unwrap_or_else(|| panic!("{}", self.describe(job)));
    }

    fn describe(&self, job: &Run) -> String {
        let left = autopsy(&marked(&self.mark));
        let shadow = self.mortal.submit.shadow.err.text();
        format!("{}{left}{shadow}", job.describe())
    }

    /// Of a job whose end is near: its processes are gone, its session is over, and its files are as they may be.
    fn leaves_in_order(&self, job: &mut Run, lost: bool, sessions: &Path) -> ExitStatus {
        let status = job.wait(DEADLINE);
        let status = status.unwrap_or_else(|why| panic!("{why}: {}", self.describe(job)));
        let alone = || marked(&self.mark).is_empty().then_some(());
        poll(SOON, alone).unwrap_or_else(|| panic!("some are left: {}", self.describe(job)));
        let kept = || fs::read_dir(sessions).expect("lists").count();
        let over = || (kept() == 0).then_some(());
        poll(SOON, over).unwrap_or_else(|| panic!("a session stays: {}", self.describe(job)));
        let told = job.out.bytes();
        let told = told.iter().take_while(|byte| **byte == b'x').count();
        let allowed = self.states.allow(&tree(&self.home()), told, lost);
        allowed.unwrap_or_else(|why| panic!("{why}: {}", self.describe(job)));
        status
    }

    fn sessions(&self, state: &str) -> PathBuf {
        self.mortal.submit.dir.join(state).join("sessions")
    }

    /// Another job is served, and has what the dead had locked.
    fn serves_the_next(&self) {
        let mut command = self.wayfarer(&["run", "-q"]);
        command.args(self.here()).arg("--").arg(guest()).arg("free");
        let found = output("the next job", command);
        assert_eq!(found, ("free\n".into(), String::new(), Some(0)));
    }

    /// No socket of somebody dead.
    fn leaves_no_door(&self) {
        let empty = || {
            let entries = fs::read_dir(self.mortal.submit.dir.join("door"));
            let mut names = entries
                .expect("lists")
                .flatten()
                .map(|entry| entry.file_name());
            (!names.any(|name| name.to_string_lossy().starts_with("wayfarer-"))).then_some(())
        };
        poll(SOON, empty).expect("no door is left");
    }
}

impl Drop for Deaths {
    fn drop(&mut self) {
        end_marked(&self.mark);
    }
}

/// Of a process that is killed within a call, the call is done or is not; the rest of its job goes on, and has its locks at once.
#[test]
fn a_program_killed_at_any_step_has_done_what_it_told() {
    const SCRIPT: &str =
        "WAYFARER_FAULT=$1 \"$0\" $2 0; status=$?; echo; echo \"ended $status\"; exec \"$0\" free";
    let what = "a_program_killed_at_any_step_has_done_what_it_told";
    if missing(what) {
        return;
    }
    let mut deaths = Deaths::new("programs", &KEPT);
    let (guest, rounds) = (guest(), ROUNDS.to_string());
    for point in POINTS {
        let mut died = 0;
        for turn in 0..times(5, 40) as u64 {
            // The first buffers, and any time.
            let later = deaths.mortal.random.below(60);
            let step = 1 + if turn < 3 { turn } else { later };
            let fault = format!("shim:{point}:{step}");
            let words = ["/bin/sh", "-c", SCRIPT].map(OsStr::new);
            let more = [guest.as_os_str(), OsStr::new(&fault), OsStr::new(&rounds)];
            let mut job = deaths.begin_here(&[&words[..], &more].concat(), None);
            let status = deaths.leaves_in_order(&mut job, false, &deaths.sessions("keep"));
            let said = job.out.text();
            let was_killed = said.contains("\nended 137\n");
            assert!(
                status.success() && said.ends_with("\nfree\n"),
                "{fault}: {}",
                job.describe()
            );
            assert!(
                was_killed || said.contains("\nended 0\n"),
                "{fault}: {}",
                job.describe()
            );
            died += u64::from(was_killed);
        }
        println!("{point}: died {died} times");
        assert!(died > 0, "{point} is never come by");
    }
    deaths.serves_the_next();
}

/// What was told is done, whoever of the job or beside it is killed, as long as the keeper lives; and if it is the keeper, as long as
/// the program does.
#[test]
fn whoever_of_a_job_is_killed_harms_no_file() {
    let what = "whoever_of_a_job_is_killed_harms_no_file";
    if missing(what) {
        return;
    }
    let mut deaths = Deaths::new("parts", &KEPT);
    let (guest, rounds) = (guest(), ROUNDS.to_string());
    let words = [guest.as_os_str(), OsStr::new(&rounds), OsStr::new("1500")];
    for part in [Part::Supervisor, Part::Init, Part::Program, Part::Keeper] {
        let mut killed = 0;
        for turn in 0..times(3, 50) {
            // The first is killed before the end, others perhaps when it has come.
            let most = if turn == 0 {
                ROUNDS * ROUND * 3 / 4
            } else {
                ROUNDS * ROUND
            };
            let steps = 1 + deaths.mortal.random.below(most as u64) as usize;
            println!("{turn}: {part:?} after {steps}");
            let mut job = deaths.begin_here(&words, None);
            deaths.has_told(&mut job, steps);
            let was_killed = deaths.kill_if_there(part, &mut job);
            killed += usize::from(was_killed);
            let status = deaths.leaves_in_order(&mut job, false, &deaths.sessions("keep"));
            if !was_killed {
                assert!(status.success(), "{}", deaths.describe(&job));
            } else if part == Part::Keeper && status.success() {
                // It had just said that nothing is missing.
                assert!(tree(&deaths.home()) == *deaths.states.last());
            } else if part == Part::Keeper {
                // Nobody knows whether it had something that nobody else has sent.
                assert_eq!(status.code(), Some(5), "{}", deaths.describe(&job));
                assert!(tree(&deaths.home()) == *deaths.states.last());
            } else if job.out.bytes().len() <= ROUNDS * ROUND {
                assert_eq!(status.signal(), Some(9), "{}", deaths.describe(&job));
            }
            deaths.serves_the_next();
        }
        assert!(killed > 0, "{part:?} was never killed");
    }
    deaths.leaves_no_door();
}

/// A keeper that is killed with a buffer in its hands has sent it once, or has not.
#[test]
fn what_a_killed_keeper_was_sending_is_sent_once() {
    const APPENDS: &str = "
import os, time
log = os.open('log', os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
file = os.open('file', os.O_WRONLY | os.O_CREAT, 0o644)
for i in range(4): os.write(log, b'line %d\\n' % i); os.write(file, b'%d' % i); time.sleep(0.4)
print('the end')
";
    let what = "what_a_killed_keeper_was_sending_is_sent_once";
    if missing(what) {
        return;
    }
    let deaths = Deaths::new("keepers", &KEPT);
    let words = python(APPENDS);
    for step in 1..=times(2, 6) {
        for point in ["held", "noted", "answered", "sent"] {
            let fault = format!("keeper:{point}:{step}");
            let mut job = deaths.begin_here(&words, Some(&fault));
            let status = job.wait(DEADLINE).expect("ends");
            assert_eq!(status.code(), Some(5), "{fault}: {}", deaths.describe(&job));
            assert_eq!(job.out.text(), "the end\n", "{fault}");
            let read = |name: &str| fs::read_to_string(deaths.home().join(name)).expect("is text");
            let found = (read("log"), read("file"));
            let expected = "line 0\nline 1\nline 2\nline 3\n";
            assert_eq!(found, (expected.to_owned(), "0123".to_owned()), "{fault}");
            // Nobody of it is left.
            let alone = || marked(&deaths.mark).is_empty().then_some(());
            poll(SOON, alone).unwrap_or_else(|| panic!("{}", deaths.describe(&job)));
        }
    }
}

/// With the starter goes all that a job has; so this copy ends when its lease is over, and what it did not synchronise may be lost.
#[test]
fn a_killed_starter_leaves_whole_files_and_nothing_else() {
    let what = "a_killed_starter_leaves_whole_files_and_nothing_else";
    if missing(what) {
        return;
    }
    let mut deaths = Deaths::new("starters", &KEPT);
    let (_shadow, secure) = start_secure(&deaths.mortal, 0, &["--state", "keep-tls"]);
    let identity = deaths
        .mortal
        .submit
        .dir
        .join("door/identity")
        .display()
        .to_string();
    let options = [
        "--lease",
        "1s",
        "--shadow",
        &secure,
        "--identity-file",
        &identity,
    ];
    let (guest, rounds) = (guest(), ROUNDS.to_string());
    let words = [guest.as_os_str(), OsStr::new(&rounds), OsStr::new("500")];
    for turn in 0..times(1, 25) {
        for point in ["", "comes", "goes", "gone"] {
            // One that is killed from here is to have some steps left.
            let most = if point.is_empty() { 80 } else { 120 };
            let step = 20 + deaths.mortal.random.below(most);
            let fault = format!("starter:{point}:{step}");
            println!("{turn}: {fault}");
            let mut job = deaths.begin(
                &options,
                &words,
                Some(&fault)
                    .filter(|_| !point.is_empty())
                    .map(String::as_str),
            );
            if point.is_empty() {
                deaths.has_told(&mut job, step as usize);
                deaths.kill(Part::Starter, &mut job);
            }
            let status = deaths.leaves_in_order(&mut job, true, &deaths.sessions("keep-tls"));
            // Who has ended well before has lost nothing.
            let whole = || tree(&deaths.home()) == *deaths.states.last();
            let is_told = !status.success() || whole();
            assert!(is_told, "{fault}: {}", deaths.describe(&job));
            deaths.serves_the_next();
        }
    }
    // The next one takes away what they have left.
    let mut last = deaths.wayfarer(&["run", "-q"]);
    last.args(options).arg("--").arg(&guest).arg("free");
    let found = output("the last job", last);
    assert_eq!(found, ("free\n".into(), String::new(), Some(0)));
    deaths.leaves_no_door();
}

/// What was in an image is had again, whoever was killed after it; also if it is the restart itself.
#[test]
fn whoever_is_killed_after_a_checkpoint_a_restart_brings_all_back() {
    let what = "whoever_is_killed_after_a_checkpoint_a_restart_brings_all_back";
    if missing(what) {
        return;
    }
    let mut deaths = Deaths::new("restarts", &GOING_BACK);
    let (guest, rounds) = (guest(), ROUNDS.to_string());
    let words = [guest.as_os_str(), OsStr::new(&rounds), OsStr::new("8000")];
    let image = deaths.mortal.submit.dir.join("state/image");
    let restart = |deaths: &Deaths| {
        let mut command = deaths.wayfarer(&["restart", "--files", "roll-back"]);
        command.args(deaths.here()).arg(&image);
        Run::start("the restarted job", command, User::Ordinary).expect("starts")
    };
    for turn in 0..times(1, 15) {
        for part in [Part::Supervisor, Part::Init, Part::Program, Part::Keeper] {
            let steps = 1 + deaths.mortal.random.below((ROUNDS * ROUND / 2) as u64) as usize;
            println!("{turn}: {part:?}, checkpoint after {steps}");
            let mut job = deaths.begin_here(&words, None);
            deaths.has_told(&mut job, steps);
            let _ = fs::remove_file(&image);
            let mut command = deaths.wayfarer(&["checkpoint", "job", "-o"]);
            command.arg(&image);
            let (_, said, status) = output("the checkpoint", command);
            assert_eq!(status, Some(0), "{said}{}", deaths.describe(&job));
            deaths.has_told(&mut job, steps + 20);
            deaths.kill(part, &mut job);
            if part == Part::Keeper {
                deaths.kill(Part::Program, &mut job);
            }
            deaths.leaves_in_order(&mut job, part == Part::Keeper, &deaths.sessions("keep"));
            // In the middle of going back, or a little later.
            let mut killed = restart(&deaths);
            std::thread::sleep(deaths.mortal.random.millis(0, 150));
            deaths.kill(Part::Supervisor, &mut killed);
            killed.wait(SOON).expect("is dead");
            let alone = || marked(&deaths.mark).is_empty().then_some(());
            poll(SOON, alone)
                .unwrap_or_else(|| panic!("some are left: {}", deaths.describe(&killed)));
            let mut again = restart(&deaths);
            deaths.ends_as_undisturbed(&mut again);
            deaths.serves_the_next();
        }
    }
}

/// The shadow has been told of a mark, and nothing more: the job goes on, and so does whoever takes the next image.
#[test]
fn a_checkpoint_that_is_killed_harms_no_remote_file() {
    let what = "a_checkpoint_that_is_killed_harms_no_remote_file";
    if missing(what) {
        return;
    }
    let mut deaths = Deaths::new("checkpoints", &GOING_BACK);
    let (guest, rounds) = (guest(), ROUNDS.to_string());
    let words = [guest.as_os_str(), OsStr::new(&rounds), OsStr::new("16000")];
    let image = deaths.mortal.submit.dir.join("state/image");
    let mut restarted = 0;
    for turn in 0..times(4, 40) {
        let fault = format!("ptrace:{}", 1 + deaths.mortal.random.below(160));
        println!("{turn}: {fault}");
        let mut job = deaths.begin_here(&words, None);
        deaths.has_told(&mut job, 10);
        let _ = fs::remove_file(&image);
        let checkpoint = |deaths: &Deaths, fault: Option<&str>| {
            let mut command = deaths.wayfarer(&["checkpoint", "job", "-o"]);
            command.arg(&image);
            command.envs(fault.map(|fault| ("WAYFARER_FAULT", fault)));
            let mut run = Run::start("the checkpoint", command, User::Ordinary).expect("starts");
            let status = run.wait(SOON).expect("ends");
            (status, run.describe())
        };
        let (status, said) = checkpoint(&deaths, Some(&fault));
        let died = status.signal() == Some(9);
        assert!(
            died || status.success(),
            "{fault}: {said}{}",
            deaths.describe(&job)
        );
        let told = job.out.bytes().len();
        deaths.has_told(&mut job, told + 10);
        let _ = fs::remove_file(&image);
        let (status, said) = checkpoint(&deaths, None);
        if !status.success() {
            // A picture that nobody has taken yet ends after five seconds (docs/adr/0002): this job, which goes on meanwhile, ends before.
            let had = died && said.contains(" has ended");
            assert!(had, "{fault}: {said}{}", deaths.describe(&job));
            let status = deaths.leaves_in_order(&mut job, false, &deaths.sessions("keep"));
            assert!(status.success(), "{}", deaths.describe(&job));
            println!("the job ended before what the checkpoint had left");
            continue;
        }
        deaths.has_told(&mut job, told + 30);
        deaths.kill(Part::Program, &mut job);
        deaths.leaves_in_order(&mut job, false, &deaths.sessions("keep"));
        let mut command = deaths.wayfarer(&["restart", "--files", "roll-back"]);
        command.args(deaths.here()).arg(&image);
        let mut again = Run::start("the restarted job", command, User::Ordinary).expect("starts");
        deaths.ends_as_undisturbed(&mut again);
        deaths.serves_the_next();
        restarted += 1;
    }
    assert!(restarted > 0, "no turn came to its restart");
}
