//! Jobs whose life is here and that run on other machines, which come and go.

use super::lines::sshd;
use super::{DEADLINE, SOON, Submit, missing, output, words};
use crate::support::run::{Run, clean_command, poll};
use crate::support::stage;
use crate::support::user::User;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Writes a line a moment to a file and to its output until it is enough, and checks then that each is there once.
const GUEST: &str = "\
import os, sys, time
memory = os.urandom(1 << 20)
known = hash(memory)
n = 0
with open('log', 'w') as log:
    while not os.path.exists('enough'):
        print(n, file=log, flush=True)
        print('out', n, flush=True)
        n += 1
        time.sleep(0.02)
assert open('log').read() == ''.join(f'{i}\\n' for i in range(n))
assert hash(memory) == known
print('done', sys.stdin.read().strip(), flush=True)
";

/// A home, and a server that other machines are reached by.
pub(super) struct Site {
    /// wayfarer is copied to the other machines, not only executed there.
    copies: bool,
    pub(super) submit: Submit,
    _server: Run,
    pub(super) ssh: String,
}

impl Site {
    pub(super) fn new(what: &str, label: &str) -> Option<Self> {
        if missing(what) {
            return None;
        }
        let submit = Submit::new(label);
        let (server, ssh) = sshd(&submit, what)?;
        fs::write(submit.home().join("guest.py"), GUEST).expect("writes");
        Some(Site {
            copies: false,
            submit,
            _server: server,
            ssh,
        })
    }

    /// A verb of ours.
    fn wayfarer(&self, words: &[&str]) -> Command {
        let mut command = clean_command(stage::wayfarer());
        command.arg("--dir").arg(self.submit.dir.join("own"));
        command.args(words).current_dir(self.submit.home());
        command
    }

    /// A job of this name on these machines.
    pub(super) fn submitted(&self, hosts: &[&str], options: &[&str], all: &[&OsStr]) -> Command {
        let mut command = self.wayfarer(&["submit", "--name", "job", "--ssh", &self.ssh]);
        for host in hosts {
            command.args(["--on", host]);
        }
        if !self.copies {
            command.arg("--wayfarer").arg(stage::wayfarer());
        }
        command.args(options).args(["--allow", "/:ro", "--allow"]);
        command.arg(self.submit.home()).arg("--").args(all);
        command
    }

    pub(super) fn guest(&self, hosts: &[&str], options: &[&str]) -> Command {
        let all = ["python3", "guest.py"].map(OsStr::new);
        self.submitted(hosts, options, &all)
    }

    /// The same with files for input and outputs.
    pub(super) fn with_files(&self, mut command: Command) -> Run {
        let home = self.submit.home();
        fs::write(home.join("in"), "the input\n").expect("writes");
        User::Ordinary.own(&home.join("in"));
        let path = home.join("out");
        let out = File::options().append(true).create(true).open(&path);
        User::Ordinary.own(&path);
        command.stdin(File::open(home.join("in")).expect("opens"));
        Run::start_into(out.expect("opens"), "the job", command, User::Ordinary).expect("starts")
    }

    pub(super) fn told(&self, words: &[&str]) -> String {
        let (out, error, status) = output(words[0], self.wayfarer(words));
        assert_eq!(status, Some(0), "{words:?}: {error}\n{}", self.story());
        out
    }

    pub(super) fn refused(&self, words: &[&str], why: &str) {
        let (_, error, status) = output(words[0], self.wayfarer(words));
        assert!(matches!(status, Some(1..=4)), "{words:?}: {status:?}");
        assert!(error.contains(why), "{words:?}: {error}");
    }

    pub(super) fn status(&self) -> Value {
        let (out, _, _) = output("status", self.wayfarer(&["status", "--json", "job"]));
        serde_json::from_str(&out).unwrap_or_default()
    }

    /// Waits until it is so, `starts` copies of it having run.
    pub(super) fn until(&self, state: &str, starts: u64) {
        let is_so = || {
            let found = self.status();
            (found["State"] == state && found["NumJobStarts"] == starts).then_some(())
        };
        poll(DEADLINE, is_so).unwrap_or_else(|| panic!("not {state}: {}", self.story()));
    }

    /// How many lines the job has written.
    pub(super) fn lines(&self) -> usize {
        let text = fs::read_to_string(self.submit.home().join("log"));
        text.unwrap_or_default().lines().count()
    }

    pub(super) fn until_lines(&self, least: usize) {
        let there = || (self.lines() >= least).then_some(());
        poll(DEADLINE, there).unwrap_or_else(|| panic!("{} lines: {}", self.lines(), self.story()));
    }

    /// The process that keeps its copy.
    pub(super) fn keeper(&self) -> Pid {
        let life = fs::read_to_string(self.job("life.json")).expect("is there");
        let life: Value = serde_json::from_str(&life).expect("JSON");
        let starter = life["starter"]["pid"].as_i64().expect("a number");
        let children = format!("/proc/{starter}/task/{starter}/children");
        let children = fs::read_to_string(children).expect("is there");
        let mut numbers = children.split_whitespace();
        Pid::from_raw(numbers.next().expect("a keeper").parse().expect("a number"))
    }

    /// The line to its copy breaks.
    pub(super) fn break_line(&self) {
        let keeper = self.keeper();
        let children = format!("/proc/{keeper}/task/{keeper}/children");
        let ssh = poll(SOON, || {
            let children = fs::read_to_string(&children).ok()?;
            children.split_whitespace().next()?.parse().ok()
        });
        kill(Pid::from_raw(ssh.expect("an ssh")), Signal::SIGKILL).expect("is there");
    }

    /// The events of its log.
    pub(super) fn events(&self) -> Vec<String> {
        let log = self.told(&["log", "job"]);
        let heads = log.lines().filter(|line| line.contains(") 20"));
        heads.map(|line| line[..3].to_owned()).collect()
    }

    fn job(&self, name: &str) -> PathBuf {
        self.submit.dir.join("own/jobs/job").join(name)
    }

    /// What its starter did, and what its standard error says.
    pub(super) fn story(&self) -> String {
        let log = fs::read_to_string(self.job("starter.log"));
        format!("{}\n{}", self.status(), log.unwrap_or_default())
    }

    /// The folders of its copies, where they run.
    pub(super) fn copies_there(&self) -> Vec<OsString> {
        let cache = self.submit.dir.join("state/cache/wayfarer");
        let entries = fs::read_dir(&cache).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name());
        names
            .filter(|name| name.to_string_lossy().starts_with("away-"))
            .collect()
    }

    /// Nothing of its copies is left where they ran.
    pub(super) fn leaves_nothing(&self) {
        let empty = poll(SOON, || self.copies_there().is_empty().then_some(()));
        empty.unwrap_or_else(|| panic!("left: {:?}", self.copies_there()));
    }

    /// It may end, and has done all of its work then, once.
    pub(super) fn ends_well(&self, job: &mut Run) {
        fs::write(self.submit.home().join("enough"), "").expect("writes");
        ends(job, 0, self);
        let lines = self.lines();
        let text = fs::read_to_string(self.submit.home().join("out")).expect("is there");
        let mut expected: Vec<String> = (0..lines).map(|line| format!("out {line}")).collect();
        expected.push("done the input".to_owned());
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
        self.leaves_nothing();
    }
}

pub(super) fn ends(job: &mut Run, status: i32, site: &Site) {
    let ended = job.wait(DEADLINE).expect("ends");
    assert_eq!(ended.code(), Some(status), "{}", site.story());
}

#[test]
fn a_job_outlives_whatever_is_lost_on_its_way() {
    let what = "a_job_outlives_whatever_is_lost_on_its_way";
    let Some(site) = Site::new(what, "away-way") else {
        return;
    };
    let options = ["--every", "1h"];
    let mut job = site.with_files(site.guest(&["127.0.0.1"], &options));
    site.until("Running", 1);
    site.until_lines(10);
    // Without an image it begins again, with its files as they were.
    kill(site.keeper(), Signal::SIGKILL).expect("is there");
    site.until("Running", 2);
    site.until_lines(10);
    let said = site.told(&["checkpoint", "job"]);
    assert!(said.contains("job-1.img"), "{said}");
    let before = site.lines();
    site.told(&["migrate", "job", "--to", "localhost"]);
    site.until("Running", 3);
    assert_eq!(site.status()["RemoteHost"], "localhost", "{}", site.story());
    site.until_lines(before + 10);
    // The line breaks, and is made anew.
    site.break_line();
    let before = site.lines();
    site.until_lines(before + 40);
    assert_eq!(site.status()["NumJobStarts"], 3, "{}", site.story());
    // From its image.
    kill(site.keeper(), Signal::SIGKILL).expect("is there");
    site.until("Running", 4);
    site.told(&["vacate", "job"]);
    ends(&mut job, 85, &site);
    site.leaves_nothing();
    let mut job = site.with_files(site.guest(&["127.0.0.1"], &["--resume"]));
    site.ends_well(&mut job);
    let log = site.told(&["log", "job"]);
    let events = site.events();
    let expected = [
        "000", "001", "007", "001", "006", "003", "004", "001", "022", "023", "007", "001", "004",
        "001", "005",
    ];
    // As many images are made before it moves as the machine is slow.
    let mut others = events.clone();
    while others[6..].starts_with(&["006".to_owned(), "003".to_owned()]) {
        others.drain(6..8);
    }
    assert!(
        others.len() < events.len(),
        "it moves with one of its own: {log}"
    );
    assert_eq!(others, expected, "{log}");
    assert!(log.contains("executing on host: localhost"), "{log}");
    // It has ended once and for all.
    let mut job = site.with_files(site.guest(&["127.0.0.1"], &["--resume"]));
    let before = site.lines();
    ends(&mut job, 0, &site);
    assert_eq!(site.lines(), before);
}

#[test]
fn images_come_home_and_only_what_is_not_there() {
    let what = "images_come_home_and_only_what_is_not_there";
    let Some(site) = Site::new(what, "away-img") else {
        return;
    };
    let options = ["--every", "300ms", "--keep", "3"];
    let mut job = site.with_files(site.guest(&["localhost"], &options));
    let log = site.job("starter.log");
    let come = || {
        let log = fs::read_to_string(&log).unwrap_or_default();
        let lines = log
            .lines()
            .filter(|line| line.contains("an image has come"));
        let number = |line: &str, name: &str| -> u64 {
            let (_, rest) = line.split_once(name).expect("is said");
            let digits = rest.split_whitespace().next().expect("a number");
            digits.parse().expect("a number")
        };
        lines
            .map(|line| (number(line, "whole="), number(line, "sent=")))
            .collect::<Vec<(u64, u64)>>()
    };
    site.until_lines(1);
    let early = come().len();
    let enough = || Some(come()).filter(|all| all.len() >= early + 4);
    let all = poll(DEADLINE, enough).unwrap_or_else(|| panic!("{}", site.story()));
    let (whole, first) = all[0];
    assert_eq!(whole, first, "{all:?}");
    // One may just be made of a program that has not begun yet, and the next one holds what differs from that.
    for (whole, sent) in &all[early + 2..] {
        assert!(*sent < whole / 2, "{all:?}");
    }
    let images = fs::read_dir(site.job("images")).expect("lists").count();
    assert!((3..=4).contains(&images), "{images}");
    // It stands still, and an image of it does, too.
    site.told(&["suspend", "job"]);
    // As soon as the line has brought that. What it has written before may come later.
    let stands_still = || {
        let still = || {
            let before = site.lines();
            std::thread::sleep(Duration::from_millis(300));
            (site.lines() == before).then_some(())
        };
        poll(DEADLINE, still).expect("stands still");
    };
    stands_still();
    site.told(&["checkpoint", "job"]);
    kill(site.keeper(), Signal::SIGKILL).expect("is there");
    site.until("Suspended", 2);
    stands_still();
    let before = site.lines();
    site.told(&["continue", "job"]);
    site.until_lines(before + 20);
    site.ends_well(&mut job);
}

#[test]
fn what_was_piped_in_and_shown_comes_through() {
    let what = "what_was_piped_in_and_shown_comes_through";
    let Some(mut site) = Site::new(what, "away-pipe") else {
        return;
    };
    site.copies = true;
    let script = "cat; echo \"to errors\" >&2; exit 7";
    let all = ["sh", "-c", script].map(OsStr::new);
    let mut command = site.submitted(&["127.0.0.1"], &["--every", "1h"], &all);
    command.stdin(Stdio::piped());
    let mut job = Run::start_with_stdin("the job", command, User::Ordinary).expect("starts");
    let mut stdin = job.stdin().expect("a pipe");
    std::io::Write::write_all(&mut stdin, b"through a pipe\n").expect("is taken");
    drop(stdin);
    ends(&mut job, 7, &site);
    assert_eq!(job.out.text(), "through a pipe\n");
    let errors = job.err.text();
    assert!(errors.ends_with("to errors\n"), "{errors}");
    assert!(errors.contains("tail -f job"), "{errors}");
    let tail = site.told(&["tail", "job"]);
    assert_eq!(tail, "through a pipe\n");
    site.leaves_nothing();
    // By a signal, and by command.
    let all = words(&["sh", "-c", "kill -USR1 $$; sleep 60"]);
    let command = site.submitted(&["127.0.0.1"], &["--replace"], &all);
    let mut job = Run::start("the job", command, User::Ordinary).expect("starts");
    let ended = job.wait(DEADLINE).expect("ends");
    assert_eq!(
        ended.signal(),
        Some(Signal::SIGUSR1 as i32),
        "{}",
        site.story()
    );
    let all = words(&["sleep", "60"]);
    let command = site.submitted(&["127.0.0.1"], &["--replace"], &all);
    let mut job = Run::start("the job", command, User::Ordinary).expect("starts");
    site.until("Running", 1);
    site.told(&["kill", "-s", "KILL", "job"]);
    let ended = job.wait(DEADLINE).expect("ends");
    assert_eq!(ended.signal(), Some(9), "{}", site.story());
    site.leaves_nothing();
}

#[test]
fn machines_that_are_not_there_are_passed_over() {
    let what = "machines_that_are_not_there_are_passed_over";
    let Some(site) = Site::new(what, "away-hosts") else {
        return;
    };
    let all = words(&["echo", "there"]);
    let (out, error, status) = output(
        "the job",
        site.submitted(&["no.invalid"], &["--every", "1h"], &all),
    );
    assert_eq!((out.as_str(), status), ("", Some(5)), "{error}");
    let reason = |error: &str, what: &str| {
        let line = error.lines().find(|line| line.contains(what));
        line.map(str::to_owned)
            .unwrap_or_else(|| panic!("no {what}: {error}"))
    };
    // With what ssh has said.
    let lost = reason(&error, "no.invalid is lost");
    assert!(lost.contains("hostname no.invalid"), "{lost}");
    let jobs = fs::read_dir(site.submit.dir.join("own/jobs")).expect("lists");
    let left: Vec<_> = jobs
        .flatten()
        .map(|entry| entry.file_name())
        .filter(|name| !name.to_string_lossy().starts_with('.'))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let hosts = ["no.invalid", "127.0.0.1"];
    let (out, error, status) = output("the job", site.submitted(&hosts, &[], &all));
    assert_eq!((out.as_str(), status), ("there\n", Some(0)), "{error}");
    assert!(error.contains("127.0.0.1 is tried"), "{error}");
    // One that is there, and refuses.
    let refuses = [
        "--every",
        "1h",
        "--wayfarer",
        "/no/wayfarer",
        "--name",
        "refused",
    ];
    let mut command = site.wayfarer(&["submit", "--ssh", &site.ssh, "--on", "localhost"]);
    command.args(refuses).args(["--", "true"]);
    let (_, error, status) = output("the job", command);
    assert_eq!(status, Some(1), "{error}");
    let refused = reason(&error, "ended with status 127");
    assert!(refused.contains("/no/wayfarer"), "{refused}");
    // A job that has run waits for them, and can leave meanwhile.
    let options = ["--every", "1h", "--replace"];
    let mut job = site.with_files(site.guest(&["127.0.0.1"], &options));
    site.until("Running", 1);
    site.until_lines(10);
    site.told(&["vacate", "job"]);
    ends(&mut job, 85, &site);
    let mut job = site.with_files(site.guest(&["no.invalid"], &["--resume"]));
    let waits = || {
        let log = fs::read_to_string(site.job("starter.log")).unwrap_or_default();
        log.contains("no.invalid is tried in").then_some(())
    };
    poll(DEADLINE, waits).unwrap_or_else(|| panic!("{}", site.story()));
    site.told(&["vacate", "job"]);
    ends(&mut job, 85, &site);
    let mut job = site.with_files(site.guest(&["no.invalid", "localhost"], &["--resume"]));
    site.ends_well(&mut job);
}

#[test]
fn what_a_job_elsewhere_cannot_do_is_refused() {
    let what = "what_a_job_elsewhere_cannot_do_is_refused";
    let Some(site) = Site::new(what, "away-no") else {
        return;
    };
    let mut job = site.with_files(site.guest(&["127.0.0.1"], &["--every", "1h"]));
    site.until("Running", 1);
    site.until_lines(5);
    site.refused(&["kill", "-s", "40", "job"], "expected 1 to 31");
    site.refused(&["io", "job"], "runs on 127.0.0.1");
    site.refused(
        &["checkpoint", "job", "-o", "x"],
        "made as its starter was told",
    );
    site.refused(&["checkpoint", "job", "--then", "kill"], "vacate job");
    // A machine that is not there: it runs on where it is.
    let away = ["migrate", "job", "--to", "no.invalid"];
    site.refused(&away, "no.invalid does not take it, so it stays");
    let status = site.status();
    assert_eq!(
        (&status["RemoteHost"], &status["NumJobStarts"]),
        (&"127.0.0.1".into(), &1.into())
    );
    let before = site.lines();
    site.until_lines(before + 5);
    site.told(&["vacate", "job"]);
    ends(&mut job, 85, &site);
    site.refused(&["restart", "job"], "runs on other machines");
    let here = ["run", "--resume", "--name", "job", "--", "true"];
    site.refused(&here, "runs on other machines");
    let options = ["--resume", "--want-remote-io", "no"];
    let (_, error, status) = output("local files", site.guest(&["127.0.0.1"], &options));
    assert_eq!(status, Some(2), "{error}");
    let mut job = site.with_files(site.guest(&["127.0.0.1"], &["--resume"]));
    site.ends_well(&mut job);
    // One that runs here.
    let mut command = site.wayfarer(&["run", "--quiet", "--every", "1h", "--name", "here"]);
    command.args(["--", "sleep", "60"]);
    let mut here = Run::start("a job here", command, User::Ordinary).expect("starts");
    let asked = || {
        let (_, error, _) = output("migrate", site.wayfarer(&["migrate", "here", "--to", "x"]));
        error.contains("it runs where its starter is").then_some(())
    };
    poll(SOON, asked).expect("is refused");
    site.told(&["remove", "here"]);
    here.wait(SOON).expect("ends");
}

/// Its starter is killed when it has ended there, before that is written down here: it ends again, as it did.
#[test]
fn an_end_that_is_not_written_down_happens_again_with_its_status() {
    let what = "an_end_that_is_not_written_down_happens_again_with_its_status";
    let Some(site) = Site::new(what, "away-uncommitted") else {
        return;
    };
    let program = "exec(open('guest.py').read()); sys.exit(3)";
    let all = ["python3", "-c", program].map(OsStr::new);
    let mut command = site.submitted(&["127.0.0.1"], &["--every", "1h"], &all);
    command.env("WAYFARER_FAULT", "life:ended:1");
    let mut job = site.with_files(command);
    site.until("Running", 1);
    site.until_lines(10);
    site.told(&["checkpoint", "job"]);
    fs::write(site.submit.home().join("enough"), "").expect("writes");
    let ended = job.wait(DEADLINE).expect("ends");
    assert_eq!(ended.signal(), Some(9), "{}", site.story());
    let status = site.status();
    assert_eq!(
        (&status["State"], &status["ExitCode"]),
        (&"Idle".into(), &Value::Null),
        "{status}"
    );
    for _ in 0..2 {
        let again = site.submitted(&["127.0.0.1"], &["--resume"], &all);
        let mut job = site.with_files(again);
        ends(&mut job, 3, &site);
        let status = site.status();
        let found = (
            &status["State"],
            &status["ExitCode"],
            &status["NumJobStarts"],
        );
        assert_eq!(
            found,
            (&"Completed".into(), &3.into(), &2.into()),
            "{}",
            site.story()
        );
    }
    site.leaves_nothing();
}

/// Both words wait until the copy runs, and come to it one behind the other.
#[test]
fn a_job_that_is_suspended_and_continued_while_it_is_restarted_works_on() {
    let what = "a_job_that_is_suspended_and_continued_while_it_is_restarted_works_on";
    let Some(site) = Site::new(what, "away-both") else {
        return;
    };
    let mut job = site.with_files(site.guest(&["127.0.0.1"], &["--every", "1h"]));
    site.until("Running", 1);
    site.until_lines(5);
    for round in 2..8 {
        // From one image it goes on three times.
        site.told(&["checkpoint", "job"]);
        kill(site.keeper(), Signal::SIGKILL).expect("is there");
        let words = ["suspend", "continue"].map(|word| {
            let command = site.wayfarer(&[word, "job"]);
            Run::start(word, command, User::Ordinary).expect("starts")
        });
        for mut word in words {
            word.wait(DEADLINE).expect("is answered");
        }
        let runs = || {
            let found = site.status();
            let state = found["State"].as_str().unwrap_or_default().to_owned();
            let is_there = found["NumJobStarts"] == round && state != "Restarting";
            is_there.then_some(state)
        };
        let state = poll(DEADLINE, runs);
        if state.as_deref() == Some("Suspended") {
            // They came the other way round.
            site.told(&["continue", "job"]);
        }
        site.until("Running", round);
        let before = site.lines();
        site.until_lines(before + 5);
    }
    site.ends_well(&mut job);
}

/// The copy's machine has of an image what is left when it was carried home, and has not come to count there.
#[test]
fn an_image_that_did_not_count_at_home_is_made_once_more() {
    let what = "an_image_that_did_not_count_at_home_is_made_once_more";
    let Some(site) = Site::new(what, "away-more") else {
        return;
    };
    let mut job = site.with_files(site.guest(&["127.0.0.1"], &["--every", "1h"]));
    site.until("Running", 1);
    site.until_lines(5);
    site.told(&["checkpoint", "job"]);
    let there = &site.copies_there()[0];
    let images = site
        .submit
        .dir
        .join("state/cache/wayfarer")
        .join(there)
        .join("jobs/job/images");
    fs::copy(images.join("job-1.img"), images.join("job-2.img")).expect("is left");
    let said = site.told(&["checkpoint", "job"]);
    assert!(said.contains("job-2.img"), "{said}");
    let image = site.job("images/job-2.img");
    site.told(&["verify", &image.to_string_lossy()]);
    site.ends_well(&mut job);
}
