//! Shadows that are killed and started again: the job, its files and its locks go on as if nothing had happened.

use super::restart::{PYTHON, SQLITE, THREADS};
use super::undone::{picture, undo};
use super::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::Write;
use std::process::{ExitStatus, Stdio};
use std::time::Instant;
use support::random::{Random, seed};
use support::run::poll;

/// Sessions are kept beside the files.
pub(super) const KEPT: [&str; 4] = ["--allow", "/:ro", "--state", "keep"];
const KEPT_AND_JOURNALLED: [&str; 9] = [
    "--allow",
    "/:ro",
    "--state",
    "keep",
    "--journal",
    "undo",
    "--keep-journals",
    "--journal-durability",
    "kill",
];
/// Steps that a shadow comes by while it takes over sessions.
const TAKING_OVER: [&str; 5] = [
    "adopting",
    "settled",
    "whole-written",
    "whole-renamed",
    "adopted",
];
/// Rounds of the guest: about 20 ms each.
const ROUNDS: &str = "12";

/// A folder whose shadow dies now and then.
pub(super) struct Mortal {
    pub(super) submit: Submit,
    options: Vec<&'static str>,
    pub(super) random: Random,
}

impl Mortal {
    pub(super) fn new(options: &[&'static str]) -> Self {
        let seed = seed();
        println!("WF_SEED={seed}");
        Mortal {
            submit: Submit::allowing("durable", options),
            options: options.to_vec(),
            random: Random::new(seed, "durable"),
        }
    }

    /// Kills the shadow, wherever it is.
    fn kill_shadow(&mut self) {
        let pid = Pid::from_raw(self.submit.shadow.pid() as i32);
        let _ = kill(pid, Signal::SIGKILL);
        self.submit.shadow.wait(SOON).expect("is dead");
    }

    /// The same command again; with a fault, it may end before it listens.
    fn start_shadow(&mut self, fault: Option<&str>) {
        let mut command = shadow_command(&self.submit.dir, &[], &self.options);
        if let Some(fault) = fault {
            command.env("WAYFARER_FAULT", fault);
        }
        let mut shadow = Run::start("the shadow", command, User::Ordinary).expect("starts");
        let line = format!("listening on {}", address(&self.submit.dir));
        let listens = shadow.wait_line(&line, SOON);
        if fault.is_none() {
            listens.unwrap_or_else(|why| panic!("{why}\n{}", shadow.describe()));
        }
        self.submit.shadow = shadow;
    }

    fn sessions(&self) -> usize {
        let sessions = fs::read_dir(self.submit.dir.join("keep/sessions"));
        sessions.expect("lists").count()
    }

    fn begin(&self, words: &[&OsStr]) -> Run {
        Run::start("the job", self.submit.remote(words), User::Ordinary).expect("starts")
    }

    /// The job has done something already.
    pub(super) fn has_begun(&self, job: &mut Run) {
        let begun = poll(SOON, || {
            let some = fs::read_dir(self.submit.home()).expect("lists").next();
            some.map(drop).or(job.ended().map(drop))
        });
        assert!(begun.is_some(), "{}", job.describe());
    }

    /// The job has ended well, and nothing is kept of it.
    fn ends_well(&mut self, mut job: Run, said: &str) {
        let status = job.wait(DEADLINE).expect("ends");
        let shadow = self.submit.shadow.err.text();
        assert!(status.success(), "{}{shadow}", job.describe());
        assert_eq!(job.out.text(), said);
        let gone = poll(SOON, || (self.sessions() == 0).then_some(()));
        assert!(gone.is_some(), "a session stays: {shadow}");
    }

    pub(super) fn same_as_undisturbed(&self) {
        assert_eq!(tree(&self.submit.home()), tree(&self.submit.local()));
    }
}

pub(super) fn guest() -> PathBuf {
    c_guest("remote_durable", Linking::Dynamic).expect("the guest compiles")
}

/// The guest where nobody disturbs it.
pub(super) fn undisturbed(submit: &Submit, words: &[&OsStr]) {
    let mut here = clean_command(words[0]);
    here.args(&words[1..]).current_dir(submit.local());
    let (_, error, status) = output("the job here", here);
    assert_eq!((error.as_str(), status), ("", Some(0)));
}

/// The guest, with shadows that die at the `k`-th step of a name.
fn dies_at(options: &[&'static str], fault: &str) {
    let guest = guest();
    let words = [guest.as_os_str(), OsStr::new(ROUNDS)];
    let mut mortal = Mortal::new(options);
    undisturbed(&mortal.submit, &words);
    mortal.kill_shadow();
    mortal.start_shadow(Some(fault));
    let job = mortal.begin(&words);
    let died = poll(DEADLINE, || {
        let ended = mortal.submit.shadow.ended().is_some();
        (ended
            || mortal.sessions() == 0
                && !mortal.submit.home().join("log").exists()
                && mortal.submit.home().join("by-flock").exists())
        .then_some(ended)
    });
    assert_eq!(died, Some(true), "{fault}: {}", job.describe());
    mortal.start_shadow(None);
    mortal.ends_well(job, "PASS\n");
    mortal.same_as_undisturbed();
}

/// Each step of serving a job, early and late.
fn dies_at_each(what: &str, options: &[&'static str], points: &[&str]) {
    if missing(what) {
        return;
    }
    let mut random = Random::new(seed(), what);
    for point in points {
        for k in [1, 2 + random.below(30)] {
            println!("{point}, step {k}");
            dies_at(options, &format!("shadow:{point}:{k}"));
        }
    }
}

#[test]
fn a_shadow_killed_before_or_after_a_change_makes_it_once() {
    let what = "a_shadow_killed_before_or_after_a_change_makes_it_once";
    dies_at_each(what, &KEPT, &["begun", "done", "renamed", "noted"]);
}

#[test]
fn a_shadow_killed_at_an_open_or_a_close_knows_what_is_open() {
    let what = "a_shadow_killed_at_an_open_or_a_close_knows_what_is_open";
    let points = ["opened", "opened-noted", "closing", "closed"];
    dies_at_each(what, &KEPT, &points);
}

#[test]
fn a_shadow_killed_at_a_lock_keeps_it() {
    let what = "a_shadow_killed_at_a_lock_keeps_it";
    dies_at_each(what, &KEPT, &["locked", "locks-noted"]);
}

#[test]
fn a_shadow_with_a_journal_killed_at_any_step_goes_on() {
    let what = "a_shadow_with_a_journal_killed_at_any_step_goes_on";
    if missing(what) {
        return;
    }
    let mut random = Random::new(seed(), what);
    for who in ["shadow", "shadow", "journal", "journal"] {
        let fault = format!("{who}:any:{}", 20 + random.below(200));
        println!("{fault}");
        dies_at(&KEPT_AND_JOURNALLED, &fault);
    }
}

/// Killed again while it takes over what the one before has left.
#[test]
fn a_shadow_killed_while_it_takes_over_is_taken_over() {
    let what = "a_shadow_killed_while_it_takes_over_is_taken_over";
    if missing(what) {
        return;
    }
    let guest = guest();
    let words = [guest.as_os_str(), OsStr::new("60")];
    let mut mortal = Mortal::new(&KEPT);
    undisturbed(&mortal.submit, &words);
    let mut job = mortal.begin(&words);
    mortal.has_begun(&mut job);
    for point in TAKING_OVER {
        let pause = mortal.random.millis(20, 100);
        std::thread::sleep(pause);
        mortal.kill_shadow();
        mortal.start_shadow(Some(&format!("shadow:{point}:1")));
        let ended = mortal.submit.shadow.wait(SOON).expect("dies");
        assert!(!ended.success(), "{point}");
        mortal.start_shadow(None);
    }
    mortal.ends_well(job, "PASS\n");
    mortal.same_as_undisturbed();
}

/// Killed at random until the job has ended.
fn ends_as_undisturbed(what: &str, options: &[&'static str], words: &[&OsStr], said: &str) {
    if missing(what) {
        return;
    }
    let mut mortal = Mortal::new(options);
    let before = picture::take(&mortal.submit.home());
    undisturbed(&mortal.submit, words);
    let mut job = mortal.begin(words);
    mortal.has_begun(&mut job);
    let mut times = 0;
    while job.ended().is_none() {
        let pause = mortal.random.millis(10, 400);
        std::thread::sleep(pause);
        mortal.kill_shadow();
        mortal.start_shadow(None);
        times += 1;
    }
    println!("killed {times} times");
    mortal.ends_well(job, said);
    assert!(times > 1, "it ended too early");
    mortal.same_as_undisturbed();
    if options.contains(&"--journal") {
        undo(mortal.submit, User::Ordinary, &before);
    }
}

pub(super) fn python(script: &str) -> [&OsStr; 3] {
    ["/usr/bin/python3", "-c", script].map(OsStr::new)
}

#[test]
fn a_job_that_changes_files_in_every_way_outlives_its_shadows() {
    let what = "a_job_that_changes_files_in_every_way_outlives_its_shadows";
    ends_as_undisturbed(what, &KEPT, &python(PYTHON), "the end\n");
}

#[test]
fn what_was_done_through_several_shadows_is_undone() {
    let what = "what_was_done_through_several_shadows_is_undone";
    let words = python(PYTHON);
    ends_as_undisturbed(what, &KEPT_AND_JOURNALLED, &words, "the end\n");
}

#[test]
fn a_job_of_several_threads_outlives_its_shadows() {
    let what = "a_job_of_several_threads_outlives_its_shadows";
    ends_as_undisturbed(what, &KEPT, &python(THREADS), "the end\n");
}

#[test]
fn a_data_base_outlives_its_shadows() {
    let what = "a_data_base_outlives_its_shadows";
    ends_as_undisturbed(what, &KEPT, &python(SQLITE), "the end\n");
}

#[test]
fn processes_that_exclude_each_other_outlive_their_shadows() {
    let what = "processes_that_exclude_each_other_outlive_their_shadows";
    let guest = guest();
    let words = [guest.as_os_str(), OsStr::new("100")];
    ends_as_undisturbed(what, &KEPT, &words, "PASS\n");
}

/// A job that asks for nothing has no stream, and is not forgotten, however short its lease is.
#[test]
fn a_job_that_asks_for_nothing_is_not_forgotten() {
    const IDLE: &str = "
import sys
file = open('file', 'w'); file.write('before '); file.flush()
print('idle', flush=True)
sys.stdin.readline()
file.write('after'); file.close()
print('the end')
";
    let what = "a_job_that_asks_for_nothing_is_not_forgotten";
    if missing(what) {
        return;
    }
    let mut mortal = Mortal::new(&KEPT);
    let mut command = clean_command(stage::wayfarer());
    let lease = [OsStr::new("--lease"), OsStr::new("1s")];
    let words = python(IDLE);
    mortal.submit.run(&mut command, &lease, &words);
    command
        .current_dir(mortal.submit.home())
        .stdin(Stdio::piped());
    let mut job = Run::start_with_stdin("the job", command, User::Ordinary).expect("starts");
    job.wait_line("idle", SOON).expect("is idle");
    mortal.kill_shadow();
    mortal.start_shadow(None);
    // The lease is a time, so that it has passed can only be waited for.
    let over = Instant::now() + Duration::from_millis(2500);
    while Instant::now() < over {
        assert_eq!(mortal.sessions(), 1, "{}", mortal.submit.shadow.err.text());
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(job.stdin());
    mortal.ends_well(job, "idle\nthe end\n");
    let file = fs::read(mortal.submit.home().join("file")).expect("is there");
    assert_eq!(file, b"before after");
}

/// Of a job that has ended meanwhile nothing is kept, not its journal either.
#[test]
fn a_job_that_ended_without_a_shadow_is_forgotten() {
    let what = "a_job_that_ended_without_a_shadow_is_forgotten";
    if missing(what) {
        return;
    }
    let options = [&KEPT[..], &["--journal", "undo"]].concat();
    let mut mortal = Mortal::new(&options);
    let script = "open('file', 'w').write('x'); print('idle', flush=True); input()";
    let mut command = mortal.submit.remote(&python(script));
    command.stdin(Stdio::piped());
    let mut job = Run::start_with_stdin("the job", command, User::Ordinary).expect("starts");
    job.wait_line("idle", SOON).expect("is idle");
    let journals = mortal.submit.dir.join("undo");
    let count = || fs::read_dir(&journals).expect("lists").count();
    assert_eq!((mortal.sessions(), count()), (1, 1));
    mortal.kill_shadow();
    let mut command = clean_command(stage::wayfarer());
    command.arg("--dir").arg(mortal.submit.dir.join("state"));
    command.args(["kill", "python3-1", "-s", "KILL"]);
    let (_, said, status) = output("the kill", command);
    assert_eq!(status, Some(0), "{said}");
    job.wait(SOON).expect("is dead");
    mortal.start_shadow(None);
    // It looks again where there are processes that it cannot look into, other tests' that are just beginning.
    let gone = poll(SOON, || {
        ((mortal.sessions(), count()) == (0, 0)).then_some(())
    });
    assert!(gone.is_some(), "{}", mortal.submit.shadow.err.text());
}

/// The job waits for a lock that somebody else has taken while there was no shadow, and nobody takes one that it has again.
#[test]
fn locks_are_had_again_before_anything_else() {
    const LOCKS: &str = "
import fcntl, sys
file = open('file', 'r+')
fcntl.lockf(file, fcntl.LOCK_EX)
print('held', flush=True)
sys.stdin.readline()
file.write('mine'); file.flush()
print('the end')
";
    const TAKES: &str = "
import fcntl, sys
file = open('file', 'r+')
fcntl.lockf(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if sys.argv[1] == 'try' else 0))
print('had', flush=True)
sys.stdin.readline()
";
    let what = "locks_are_had_again_before_anything_else";
    if missing(what) {
        return;
    }
    let mut mortal = Mortal::new(&KEPT);
    let file = mortal.submit.home().join("file");
    fs::write(&file, "").expect("writes");
    User::Ordinary.own(&file);
    let mut command = mortal.submit.remote(&python(LOCKS));
    command.stdin(Stdio::piped());
    let mut job = Run::start_with_stdin("the job", command, User::Ordinary).expect("starts");
    job.wait_line("held", SOON).expect("has it");
    let home = mortal.submit.home();
    let takes = |how: &str| {
        let mut other = clean_command("/usr/bin/python3");
        other.args(["-c", TAKES, how]).current_dir(&home);
        other.stdin(Stdio::piped());
        Run::start_with_stdin("another", other, User::Ordinary).expect("starts")
    };
    mortal.kill_shadow();
    mortal.start_shadow(None);
    let mut refused = takes("try");
    assert!(
        !refused.wait(SOON).expect("ends").success(),
        "it is held again"
    );
    mortal.kill_shadow();
    let mut taker = takes("wait");
    taker.wait_line("had", SOON).expect("nobody has it");
    mortal.start_shadow(None);
    drop(job.stdin());
    let told = poll(SOON, || {
        let said = mortal.submit.shadow.err.text();
        let told =
            said.contains("a session waits") && said.contains(&format!("process {}", taker.pid()));
        told.then_some(())
    });
    assert!(told.is_some(), "{}", mortal.submit.shadow.err.text());
    assert_eq!(fs::read(&file).expect("is there"), b"");
    drop(taker.stdin());
    mortal.ends_well(job, "held\nthe end\n");
    assert_eq!(fs::read(&file).expect("is there"), b"mine");
}

/// A second shadow does not take the sessions of one that lives.
#[test]
fn two_shadows_do_not_share_a_state() {
    let what = "two_shadows_do_not_share_a_state";
    if missing(what) {
        return;
    }
    let mortal = Mortal::new(&KEPT);
    let mut command = clean_command(stage::wayfarer());
    command.args(["shadow", "--state", "keep", "--listen", "unix:door/other"]);
    command.current_dir(&mortal.submit.dir);
    let (_, said, status) = output("the second", command);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("is in use by another shadow"), "{said}");
}

/// What cannot be had again ends the job, rather than to let it go on with something else.
/// The close of a file is not always told before its removal.
#[test]
fn a_file_that_is_gone_can_be_closed() {
    let what = "a_file_that_is_gone_can_be_closed";
    if missing(what) {
        return;
    }
    let script = "
import os, sys
kept = open('kept', 'wb', 0); gone = open('gone', 'wb', 0); os.unlink('gone')
for step in range(2):
    print('ready', step, flush=True); sys.stdin.readline()
    kept.write(bytes(10))
gone.close()
open('kept2', 'wb').close(); print('PASS', flush=True)
";
    let mut mortal = Mortal::new(&KEPT);
    let mut command = mortal.submit.remote(&python(script));
    command.stdin(Stdio::piped());
    let mut job = Run::start_with_stdin("the job", command, User::Ordinary).expect("starts");
    let mut input = job.stdin().expect("its input");
    // A shadow that has taken over knows of it, too.
    for step in 0..2 {
        let ready = format!("ready {step}");
        job.wait_line(&ready, SOON).expect("is ready");
        mortal.kill_shadow();
        mortal.start_shadow(None);
        input.write_all(b"\n").expect("goes on");
    }
    mortal.ends_well(job, "ready 0\nready 1\nPASS\n");
    let kept = mortal.submit.home().join("kept");
    assert_eq!(fs::read(kept).expect("reads").len(), 20);
}

#[test]
fn a_file_without_a_name_is_named() {
    let what = "a_file_without_a_name_is_named";
    if missing(what) {
        return;
    }
    let script = "
import os, sys
file = open('gone', 'w+b', 0); os.unlink('gone'); file.write(bytes(200000))
print('ready', flush=True); sys.stdin.readline()
file.write(bytes(200000))
";
    let (mortal, job, status) = over_a_killed_shadow(script);
    let said = job.err.text();
    assert!(!status.success(), "{said}");
    let expected = "this copy of the job ends, the shadow does not serve it any more";
    assert!(said.contains(expected), "{said}");
    let named = |log: &str| log.contains("home/gone cannot be opened as it was");
    let log = mortal.submit.shadow.err.text_once(named);
    assert!(named(&log), "{log}");
}

/// The shadow is killed, and another one begun, when the job has said that it is ready; then this gets a line.
fn over_a_killed_shadow(script: &str) -> (Mortal, Run, ExitStatus) {
    over_a_killed_shadow_with(Mortal::new(&KEPT), &[], script)
}

/// The same, of a job that is begun with options.
pub(super) fn over_a_killed_shadow_with(
    mut mortal: Mortal,
    options: &[&str],
    script: &str,
) -> (Mortal, Run, ExitStatus) {
    let mut command = clean_command(stage::wayfarer());
    let options: Vec<_> = options.iter().map(OsStr::new).collect();
    mortal.submit.run(&mut command, &options, &python(script));
    command.current_dir(mortal.submit.home());
    command.stdin(Stdio::piped());
    let mut job = Run::start_with_stdin("the job", command, User::Ordinary).expect("starts");
    job.wait_line("ready", SOON).expect("is ready");
    mortal.kill_shadow();
    mortal.start_shadow(None);
    drop(job.stdin());
    let status = job.wait(SOON).expect("ends");
    (mortal, job, status)
}

/// What was made without a name is known by the one that it was given.
#[test]
fn a_file_that_got_a_name_outlives_its_shadow() {
    let what = "a_file_that_got_a_name_outlives_its_shadow";
    if missing(what) {
        return;
    }
    let script = "
import os, sys
here = os.open('.', os.O_RDONLY)
file = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o640); os.write(file, b'one ')
os.link(f'/proc/self/fd/{file}', 'named', src_dir_fd=here, follow_symlinks=True); os.fsync(file)
print('ready', flush=True); sys.stdin.readline()
os.write(file, b'two'); os.fsync(file)
print(os.pread(file, 99, 0), open('named').read(), os.fstat(file).st_nlink)
";
    let (_mortal, job, status) = over_a_killed_shadow(script);
    assert!(status.success(), "{}", job.describe());
    assert_eq!(job.out.text(), "ready\nb'one two' one two 1\n");
}
