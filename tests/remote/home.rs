//! Jobs on the machine that has their files, under a journal: what came after an image is undone before a restart from it.

use super::restart::{PYTHON, SQLITE, job_words, job_words_held};
use super::*;
use std::ffi::OsString;
use std::io::Write;
use std::process::Stdio;
use support::random::{Random, seed};

/// Killed so often.
const TIMES: usize = 3;

/// A folder for the job and its twin, and wayfarer's.
struct AtHome {
    submit: Submit,
    random: Random,
}

impl AtHome {
    fn new(label: &str) -> Self {
        let seed = seed();
        println!("WF_SEED={seed}");
        AtHome {
            submit: Submit::allowing(label, &[]),
            random: Random::new(seed, label),
        }
    }

    fn wayfarer(&self, all: &[&str]) -> Command {
        let mut command = clean_command(stage::wayfarer());
        command.env("XDG_RUNTIME_DIR", self.submit.dir.join("door"));
        command.arg("--dir").arg(self.submit.dir.join("state"));
        command.args(all).current_dir(self.submit.home());
        command
    }

    fn begin(&self, job: &[OsString]) -> Run {
        let mut command = self.wayfarer(&["run", "-q", "--journal", "--name", "job", "--"]);
        command.args(job);
        start_held("the job", command)
    }

    fn checkpoint(&self, job: &mut Run) -> bool {
        let end = std::time::Instant::now() + SOON;
        loop {
            let (_, said, status) = output("the checkpoint", self.wayfarer(&["checkpoint", "job"]));
            if status == Some(0) {
                return true;
            }
            if let Some(status) = job.ended() {
                assert!(status.success(), "{}", job.describe());
                return false;
            }
            // It is just being begun or brought back, or just ending.
            let passes = said.contains("has ended") || said.contains("no job job");
            assert!(
                passes && std::time::Instant::now() < end,
                "{said}\n{}",
                job.describe()
            );
        }
    }

    /// Whether it had ended well before.
    fn kill(&self, job: &mut Run) -> bool {
        // It may be just being brought back.
        let killed = support::run::poll(SOON, || {
            let _ = output("the kill", self.wayfarer(&["kill", "job", "-s", "KILL"]));
            job.wait(Duration::from_secs(1)).ok()
        });
        killed.expect("is dead").success()
    }

    fn restart(&self) -> Run {
        start_held("the restarted job", self.wayfarer(&["restart", "job"]))
    }

    fn leaves_no_shadow(&self) {
        let empty = || {
            let mut entries = fs::read_dir(self.submit.dir.join("door")).ok()?.flatten();
            let left =
                entries.any(|one| one.file_name().to_string_lossy().starts_with("wayfarer-"));
            (!left).then_some(())
        };
        support::run::poll(SOON, empty).expect("the shadow at home ends");
    }
}

/// Its standard input stays open until somebody drops it.
fn start_held(label: &str, mut command: Command) -> Run {
    command.stdin(Stdio::piped());
    Run::start_with_stdin(label, command, User::Ordinary).expect("starts")
}

/// However long a checkpoint takes, the job does not end before it has been moved so many times: it waits for the end of its standard input.
fn goes_on_at_home(what: &str, program: &str, script: &str) {
    if missing(what) {
        return;
    }
    let words = job_words_held(program, script);
    let mut at_home = AtHome::new(what);
    let mut here = clean_command(&words[0]);
    here.args(&words[1..]).current_dir(at_home.submit.local());
    let (said, error, status) = output("the job here", here);
    assert_eq!((said.as_str(), status), ("the end\n", Some(0)), "{error}");
    let mut job = at_home.begin(&words);
    for _ in 0..TIMES {
        std::thread::sleep(at_home.random.millis(50, 500));
        assert!(at_home.checkpoint(&mut job), "{}", job.describe());
        std::thread::sleep(at_home.random.millis(0, 300));
        assert!(!at_home.kill(&mut job), "{}", job.describe());
        at_home.leaves_no_shadow();
        job = at_home.restart();
    }
    drop(job.stdin());
    let status = job.wait(DEADLINE).expect("ends");
    assert!(status.success(), "{}", job.describe());
    let (home, local) = (at_home.submit.home(), at_home.submit.local());
    assert_eq!(tree(&home), tree(&local));
    at_home.leaves_no_shadow();
}

#[test]
fn a_local_job_goes_back_with_its_files() {
    let what = "a_local_job_goes_back_with_its_files";
    goes_on_at_home(what, "/usr/bin/python3", PYTHON);
}

#[test]
fn a_local_data_base_goes_back_with_its_job() {
    let what = "a_local_data_base_goes_back_with_its_job";
    goes_on_at_home(what, "/usr/bin/python3", SQLITE);
}

#[test]
fn what_others_have_changed_is_named_and_kept() {
    let what = "what_others_have_changed_is_named_and_kept";
    if missing(what) {
        return;
    }
    let at_home = AtHome::new(what);
    let file = at_home.submit.home().join("file");
    let script = "echo one > file; echo ready; read word; echo two > file; echo done; read word";
    let mut command = at_home.wayfarer(&["run", "-q", "--journal", "--name", "job", "--"]);
    command.args(["sh", "-c", script]).stdin(Stdio::piped());
    let mut job = Run::start_with_stdin("the job", command, User::Ordinary).expect("starts");
    let mut stdin = job.stdin().expect("a pipe");
    job.wait_line("ready", SOON).expect("begins");
    assert!(at_home.checkpoint(&mut job), "{}", job.describe());
    stdin.write_all(b"go\n").expect("is taken");
    job.wait_line("done", SOON).expect("goes on");
    assert_eq!(fs::read_to_string(&file).expect("is there"), "two\n");
    at_home.kill(&mut job);
    at_home.leaves_no_shadow();
    fs::write(&file, "somebody else's\n").expect("writes");
    let (_, said, status) = output("the restart", at_home.wayfarer(&["restart", "job"]));
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("home/file"), "{said}");
    let now = fs::read_to_string(&file).expect("is there");
    assert_eq!(now, "somebody else's\n");
    let mut command = at_home.wayfarer(&["restart", "--files", "roll-back", "job"]);
    command.stdin(Stdio::piped());
    let mut job = Run::start_with_stdin("again", command, User::Ordinary).expect("starts");
    let mut stdin = job.stdin().expect("a pipe");
    support::run::poll(SOON, || {
        (fs::read_to_string(&file).ok()? == "one\n").then_some(())
    })
    .unwrap_or_else(|| panic!("{}", job.describe()));
    stdin.write_all(b"go\n").expect("is taken");
    job.wait_line("done", SOON).expect("goes on");
    drop(stdin);
    job.wait(SOON).expect("ends");
    assert_eq!(fs::read_to_string(&file).expect("is there"), "two\n");
}

/// One that ends otherwise may be wanted back, with its files.
#[test]
fn the_journal_of_a_job_that_has_ended_well_goes() {
    let what = "the_journal_of_a_job_that_has_ended_well_goes";
    if missing(what) {
        return;
    }
    let at_home = AtHome::new(what);
    let file = at_home.submit.home().join("file");
    let journals = || {
        let journals = fs::read_dir(at_home.submit.dir.join("state/journals"));
        journals.expect("lists").count()
    };
    let ends = |label: &str, words: &[&str], status: &str| {
        let mut command = at_home.wayfarer(words);
        command.stdin(Stdio::piped());
        let mut job = Run::start_with_stdin(label, command, User::Ordinary).expect("starts");
        let mut stdin = job.stdin().expect("a pipe");
        if label == "the job" {
            job.wait_line("ready", SOON).expect("begins");
            assert!(at_home.checkpoint(&mut job), "{}", job.describe());
        }
        stdin.write_all(status.as_bytes()).expect("is taken");
        let ended = job.wait(SOON).expect("ends");
        at_home.leaves_no_shadow();
        (ended.code(), fs::read_to_string(&file).expect("is there"))
    };
    let script = "echo one > file; echo ready; read status; echo two >> file; exit $status";
    let run = ["run", "-q", "--journal", "--name", "job", "--", "sh", "-c"];
    let begin = [&run[..], &[script]].concat();
    let changed = "one\ntwo\n".to_owned();
    assert_eq!(ends("the job", &begin, "3\n"), (Some(3), changed.clone()));
    assert_eq!(journals(), 1);
    let restart = ["restart", "job"];
    assert_eq!(ends("restarted", &restart, "0\n"), (Some(0), changed));
    assert_eq!(journals(), 0);
    let (_, said, status) = output("too late", at_home.wayfarer(&restart));
    assert_eq!(status, Some(1), "{said}");
    assert!(
        said.contains("is not there: the job has ended well"),
        "{said}"
    );
    let keep = ["restart", "--files", "keep", "job"];
    let mut command = at_home.wayfarer(&keep);
    command.stdin(Stdio::piped());
    let mut killed = Run::start_with_stdin("killed", command, User::Ordinary).expect("starts");
    let runs = || (journals() == 1).then_some(());
    support::run::poll(SOON, runs).expect("goes on with a journal of its own");
    at_home.kill(&mut killed);
    at_home.leaves_no_shadow();
    let more = "one\ntwo\ntwo\n".to_owned();
    assert_eq!(ends("kept", &keep, "0\n"), (Some(0), more));
    assert_eq!(journals(), 0);
}

/// It was taken off its machine, and could tidy up.
#[test]
fn the_journal_of_a_job_that_was_told_to_end_stays() {
    let what = "the_journal_of_a_job_that_was_told_to_end_stays";
    if missing(what) {
        return;
    }
    for by_supervisor in [false, true] {
        let at_home = AtHome::new(what);
        let file = at_home.submit.home().join("file");
        let script = "
import signal, sys
def tidy(*_): open('file', 'w').write('tidy\\n'); sys.exit(0)
signal.signal(signal.SIGTERM, tidy)
open('file', 'w').write('one\\n'); print('ready', flush=True)
while True: signal.pause()
";
        let mut job = at_home.begin(&job_words("/usr/bin/python3", script));
        job.wait_line("ready", SOON).expect("begins");
        assert!(at_home.checkpoint(&mut job), "{}", job.describe());
        if by_supervisor {
            let pid = nix::unistd::Pid::from_raw(job.pid() as i32);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("is sent");
        } else {
            let (_, said, status) = output("the kill", at_home.wayfarer(&["kill", "job"]));
            assert_eq!((said.as_str(), status), ("", Some(0)));
        }
        assert_eq!(job.wait(SOON).expect("ends").code(), Some(0));
        at_home.leaves_no_shadow();
        assert_eq!(fs::read_to_string(&file).expect("is there"), "tidy\n");
        let mut job = at_home.restart();
        let is_back = || (fs::read_to_string(&file).ok()? == "one\n").then_some(());
        support::run::poll(SOON, is_back).unwrap_or_else(|| panic!("{}", job.describe()));
        at_home.kill(&mut job);
    }
}

#[test]
fn a_job_that_was_not_journalled_says_so() {
    let what = "a_job_that_was_not_journalled_says_so";
    if missing(what) {
        return;
    }
    let at_home = AtHome::new(what);
    let command = at_home.wayfarer(&["run", "-q", "--name", "job", "--", "sleep", "60"]);
    let mut job = Run::start("the job", command, User::Ordinary).expect("starts");
    assert!(at_home.checkpoint(&mut job));
    at_home.kill(&mut job);
    let command = at_home.wayfarer(&["restart", "--journal", "job"]);
    let (_, said, status) = output("the restart", command);
    assert_eq!(status, Some(2), "{said}");
    assert!(
        said.contains("has its files here, not at a shadow"),
        "{said}"
    );
}

/// What whoever began the job has opened for it is none of the journal's.
#[test]
fn a_file_that_was_opened_outside_is_named_and_not_rolled_back() {
    let what = "a_file_that_was_opened_outside_is_named_and_not_rolled_back";
    if missing(what) {
        return;
    }
    let at_home = AtHome::new(what);
    let home = at_home.submit.home();
    let read = |name: &str| fs::read_to_string(home.join(name)).expect("is there");
    let script = "
import os, sys
def write(text): os.write(3, text); open('inside', 'wb').write(text)
write(b'one\\n'); print('ready', flush=True); sys.stdin.readline()
write(b'two\\n'); print('done', flush=True); sys.stdin.readline()
";
    let run = ["run", "-q", "--journal", "--name", "job", "--", "python3"];
    let begins = at_home.wayfarer(&[&run[..], &["-c", script]].concat());
    let mut command = clean_command("/bin/sh");
    command
        .args(["-c", "exec \"$@\" 3>>outside", "sh"])
        .arg(begins.get_program())
        .args(begins.get_args())
        .env("XDG_RUNTIME_DIR", at_home.submit.dir.join("door"))
        .current_dir(&home)
        .stdin(Stdio::piped());
    let mut job = Run::start_with_stdin("the job", command, User::Ordinary).expect("starts");
    let mut stdin = job.stdin().expect("a pipe");
    job.wait_line("ready", SOON).expect("begins");
    let image = at_home.submit.dir.join("state/image");
    let mut command = at_home.wayfarer(&["checkpoint", "job", "-o"]);
    command.arg(&image);
    let (_, said, status) = output("the checkpoint", command);
    assert_eq!(status, Some(0), "{said}");
    let mut command = at_home.wayfarer(&["inspect", "--json"]);
    command.arg(&image);
    let (told, said, status) = output("inspect", command);
    assert_eq!(status, Some(0), "{said}");
    let told: serde_json::Value = serde_json::from_str(&told).expect("is JSON");
    let files = told["files"].as_array().expect("a list");
    let outside: Vec<_> = files
        .iter()
        .filter(|file| file["not_rolled_back"] == true)
        .filter_map(|file| file["path"].as_str())
        .filter(|path| Path::new(path).starts_with(&home))
        .collect();
    let expected = home.join("outside");
    assert_eq!(outside, [expected.to_str().expect("is text")]);
    stdin.write_all(b"go\n").expect("is taken");
    job.wait_line("done", SOON).expect("goes on");
    at_home.kill(&mut job);
    at_home.leaves_no_shadow();
    assert_eq!(
        (read("outside"), read("inside")),
        ("one\ntwo\n".into(), "two\n".into())
    );
    let restart = |files: &str| {
        let mut command = at_home.wayfarer(&["restart", "--journal", "--name", "job", "--files"]);
        command.arg(files).arg(&image).stdin(Stdio::piped());
        command
    };
    let (_, said, status) = output("the restart", restart("fail"));
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("home/outside has grown"), "{said}");
    assert_eq!(read("outside"), "one\ntwo\n");
    let mut job =
        Run::start_with_stdin("again", restart("roll-back"), User::Ordinary).expect("starts");
    let mut stdin = job.stdin().expect("a pipe");
    stdin.write_all(b"go\n").expect("is taken");
    job.wait_line("done", SOON).expect("goes on");
    assert_eq!(
        (read("outside"), read("inside")),
        ("one\ntwo\n".into(), "two\n".into())
    );
    drop(stdin);
    job.wait(SOON).expect("ends");
}
