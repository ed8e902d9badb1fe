//! Submitted jobs whose line breaks: they go on over another one.

use super::lines::{executable, leaves_nothing, shell, sshd, submitted};
use super::{DEADLINE, SOON, Submit, missing, output, words};
use crate::support::run::{Run, clean_command, poll};
use crate::support::stage;
use crate::support::user::User;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Reads all of its input, writes numbered lines to both outputs and to a file, and says what it has read.
const WORKER: &str = r"
import hashlib, os, sys, threading, time
read = hashlib.sha256()
def listen():
    while True:
        part = os.read(0, 65536)
        if not part: return
        read.update(part)
reader = threading.Thread(target=listen)
reader.start()
begun, line = time.monotonic(), 0
with open('log', 'a') as log:
    while line < 20000 or time.monotonic() - begun < 20:
        print('line', line, 'x' * 40)
        if line % 50 == 0:
            print('error', line, file=sys.stderr)
            log.write(f'{line}\n'); log.flush()
            time.sleep(0.005)
        line += 1
print('lines', line)
reader.join()
print('read', read.hexdigest())
sys.exit(9)
";

fn ssh_of(submit: u32) -> Option<Pid> {
    let list = fs::read_to_string(format!("/proc/{submit}/task/{submit}/children")).ok()?;
    let first = list.split_whitespace().next()?;
    first.parse().ok().map(Pid::from_raw)
}

/// How often a job was reached again.
fn times_again(job: &Run) -> usize {
    job.err.text().matches("is reached again").count()
}

/// Breaks the line so often, each time when the one before is there.
fn break_lines(job: &Run, times: usize) {
    for broken in 0..times {
        let there = poll(DEADLINE, || (times_again(job) >= broken).then_some(()));
        there.unwrap_or_else(|| panic!("{}", job.describe()));
        // Anywhere in the work: the moment is not to be awaited.
        std::thread::sleep(Duration::from_millis(300 + 170 * broken as u64));
        let ssh = ssh_of(job.pid()).unwrap_or_else(|| panic!("{}", job.describe()));
        kill(ssh, Signal::SIGKILL).expect("is there");
    }
}

fn check_worker(submit: &Submit, mut job: Run, times: usize) {
    let mut stdin = job.stdin().expect("a pipe");
    // More than fits on the way.
    let data: Vec<u8> = (0..6_u32 << 20).map(|at| (at / 7) as u8).collect();
    let sent = data.clone();
    let feeding = std::thread::spawn(move || {
        for part in sent.chunks(100_000) {
            stdin.write_all(part).expect("is taken");
            std::thread::sleep(Duration::from_millis(30));
        }
    });
    break_lines(&job, times);
    feeding.join().expect("feeds");
    let status = job.wait(DEADLINE).expect("ends");
    assert_eq!(status.code(), Some(9), "{}", job.describe());
    let said = job.out.text();
    let mut lines = said.lines();
    let mut count = 0;
    let last = loop {
        let line = lines.next().expect("more");
        match line.strip_prefix("lines ") {
            Some(last) => break last.parse::<usize>().expect("a number"),
            None => assert_eq!(line, format!("line {count} {}", "x".repeat(40))),
        }
        count += 1;
    };
    assert_eq!(count, last);
    let path = submit.dir.join("sent");
    fs::write(&path, &data).expect("writes");
    let mut sum = Command::new("sha256sum");
    sum.arg(&path);
    let (sum, ..) = output("sha256sum", sum);
    let sum = sum.split(' ').next().expect("a sum");
    assert_eq!(lines.next(), Some(format!("read {sum}").as_str()));
    assert_eq!(lines.next(), None);
    let numbers: Vec<String> = (0..last).step_by(50).map(|line| line.to_string()).collect();
    let errors = job.err.text();
    let errors: Vec<&str> = errors
        .lines()
        .filter_map(|line| line.strip_prefix("error "))
        .collect();
    assert_eq!(errors, numbers);
    let log = fs::read_to_string(submit.home().join("log")).expect("is there");
    assert_eq!(log.lines().collect::<Vec<_>>(), numbers);
    assert_eq!(times_again(&job), times, "{}", job.err.text());
}

#[test]
fn a_submitted_job_goes_on_when_ssh_is_killed() {
    let what = "a_submitted_job_goes_on_when_ssh_is_killed";
    if missing(what) {
        return;
    }
    let submit = Submit::new("ssh-killed");
    let Some((_server, ssh)) = sshd(&submit, what) else {
        return;
    };
    let mut command = clean_command(stage::wayfarer());
    command.args(["submit", "--on", "127.0.0.1", "--ssh", &ssh]);
    command
        .args(["--allow", "/:ro", "--allow"])
        .arg(submit.home());
    command.args(["--", "python3", "-c", WORKER]);
    command.current_dir(submit.home()).stdin(Stdio::piped());
    let job = Run::start_with_stdin("the job", command, User::Ordinary).expect("starts");
    poll(SOON, || job.out.text().contains("line").then_some(())).expect("begins");
    check_worker(&submit, job, 5);
    leaves_nothing(&submit);
}

/// In place of ssh: a session of its own whose two pipes go through others, so that both end when those are killed.
fn breakable(submit: &Submit) -> std::path::PathBuf {
    let inner = shell(submit, "exec SH");
    let fifos = submit.dir.join("state");
    let script = format!(
        "#!/bin/sh\nif [ -e {0}/away ]; then exit 255; fi\n\
         mkfifo {0}/in.$$ {0}/out.$$\n\
         setsid {1} \"$@\" < {0}/in.$$ > {0}/out.$$ &\n\
         exec 3> {0}/in.$$ 4< {0}/out.$$\n\
         rm {0}/in.$$ {0}/out.$$\n\
         exec python3 -c '\nimport os, threading\n\
         def carry(a, b):\n  while True:\n    part = os.read(a, 65536)\n    if not part: os._exit(0)\n    \
         while part: part = part[os.write(b, part):]\n\
         threading.Thread(target=carry, args=(0, 3), daemon=True).start()\ncarry(4, 1)'\n",
        fifos.display(),
        inner.display(),
    );
    executable(&submit.dir.join("breakable"), &script)
}

#[test]
fn a_submitted_job_goes_on_over_another_line() {
    if missing("a_submitted_job_goes_on_over_another_line") {
        return;
    }
    let submit = Submit::new("submit-again");
    let ssh = breakable(&submit);
    let all = words(&["python3", "-c", WORKER]);
    let mut command = submitted(&submit, ssh.as_os_str(), &[], &all);
    command.stdin(Stdio::piped());
    let job = Run::start_with_stdin("the job", command, User::Ordinary).expect("starts");
    poll(SOON, || job.out.text().contains("line").then_some(())).expect("begins");
    check_worker(&submit, job, 4);
    leaves_nothing(&submit);
}

/// In place of ssh: the client can be killed, and the server on the other machine does not notice.
fn unnoticed(submit: &Submit) -> std::path::PathBuf {
    let inner = shell(submit, "exec SH");
    let dir = submit.dir.join("state");
    let script = format!(
        r#"#!/bin/sh
mkfifo {0}/in.$$ {0}/out.$$
setsid python3 -c '
import os, subprocess, sys, threading
inner, out, come = sys.argv[3:], os.open(sys.argv[2], os.O_RDWR), os.open(sys.argv[1], os.O_RDWR)
child = subprocess.Popen(inner, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
def carry(a, b):
    while True:
        part = os.read(a, 65536)
        if not part: return
        while part: part = part[os.write(b, part):]
threading.Thread(target=carry, args=(come, child.stdin.fileno()), daemon=True).start()
threading.Thread(target=carry, args=(child.stdout.fileno(), out), daemon=True).start()
os._exit(child.wait())
' {0}/in.$$ {0}/out.$$ {1} "$@" > /dev/null 2>&1 &
exec python3 -c '
import os, sys, threading
there, come = os.open(sys.argv[1], os.O_WRONLY), os.open(sys.argv[2], os.O_RDONLY)
def carry(a, b):
    while True:
        part = os.read(a, 65536)
        if not part: os._exit(0)
        while part: part = part[os.write(b, part):]
threading.Thread(target=carry, args=(0, there), daemon=True).start()
carry(come, 1)
' {0}/in.$$ {0}/out.$$
"#,
        dir.display(),
        inner.display(),
    );
    executable(&submit.dir.join("unnoticed"), &script)
}

#[test]
fn a_new_line_takes_the_place_of_one_whose_end_nobody_has_noticed() {
    let what = "a_new_line_takes_the_place_of_one_whose_end_nobody_has_noticed";
    if missing(what) {
        return;
    }
    let submit = Submit::new("submit-unnoticed");
    let ssh = unnoticed(&submit);
    let all = words(&["python3", "-c", WORKER]);
    let mut command = submitted(&submit, ssh.as_os_str(), &[], &all);
    command.stdin(Stdio::piped());
    let job = Run::start_with_stdin("the job", command, User::Ordinary).expect("starts");
    poll(SOON, || job.out.text().contains("line").then_some(())).expect("begins");
    check_worker(&submit, job, 3);
}

#[test]
fn a_job_that_ends_while_its_line_is_away_says_so_later() {
    if missing("a_job_that_ends_while_its_line_is_away_says_so_later") {
        return;
    }
    let submit = Submit::new("submit-ends-away");
    let ssh = breakable(&submit);
    // What it does meanwhile asks for nothing. It is to outlive the cut, and to end before the line is there again.
    let script =
        "echo begun; i=0; while [ $i -lt 600000 ]; do i=$((i + 1)); done; echo ended; exit 3";
    let command = submitted(&submit, ssh.as_os_str(), &[], &words(&["sh", "-c", script]));
    let mut job = Run::start("the job", command, User::Ordinary).expect("starts");
    job.wait_line("begun", SOON).expect("begins");
    let away = submit.dir.join("state/away");
    fs::write(&away, "").expect("writes");
    kill(ssh_of(job.pid()).expect("an ssh"), Signal::SIGKILL).expect("is there");
    poll(SOON, || {
        job.err.text().contains("trying again").then_some(())
    })
    .expect("is noticed");
    std::thread::sleep(Duration::from_secs(2));
    fs::remove_file(&away).expect("is there");
    let status = job.wait(DEADLINE).expect("ends");
    assert_eq!(status.code(), Some(3), "{}", job.describe());
    assert_eq!(job.out.text(), "begun\nended\n");
    leaves_nothing(&submit);
}

#[test]
fn a_machine_that_stays_away_is_given_up_and_its_job_ended() {
    if missing("a_machine_that_stays_away_is_given_up_and_its_job_ended") {
        return;
    }
    let submit = Submit::new("submit-away");
    let ssh = breakable(&submit);
    let lease = ["--lease".into(), "2s".into()];
    let script = "echo begun; trap '' HUP; while :; do date > file; done";
    let command = submitted(
        &submit,
        ssh.as_os_str(),
        &lease,
        &words(&["sh", "-c", script]),
    );
    let mut job = Run::start("the job", command, User::Ordinary).expect("starts");
    job.wait_line("begun", SOON).expect("begins");
    fs::write(submit.dir.join("state/away"), "").expect("writes");
    let cut = Instant::now();
    kill(ssh_of(job.pid()).expect("an ssh"), Signal::SIGKILL).expect("is there");
    let status = job.wait(DEADLINE).expect("ends");
    assert_eq!(status.code(), Some(5), "{}", job.describe());
    assert!(cut.elapsed() >= Duration::from_secs(2));
    let said = job.err.text();
    assert!(
        said.contains("there is lost") && said.contains("status 255"),
        "{said}"
    );
    leaves_nothing(&submit);
}

#[test]
fn a_job_whose_submitter_is_killed_is_ended_at_once() {
    let what = "a_job_whose_submitter_is_killed_is_ended_at_once";
    if missing(what) {
        return;
    }
    let submit = Submit::new("submit-killed");
    let Some((_server, ssh)) = sshd(&submit, what) else {
        return;
    };
    let mut command = clean_command(stage::wayfarer());
    command.args(["submit", "--on", "127.0.0.1", "--ssh", &ssh]);
    command.args(["--", "sh", "-c", "echo begun; exec sleep 1000"]);
    command.current_dir(submit.home());
    let mut job = Run::start("the job", command, User::Ordinary).expect("starts");
    job.wait_line("begun", SOON).expect("begins");
    kill(Pid::from_raw(job.pid() as i32), Signal::SIGKILL).expect("is there");
    leaves_nothing(&submit);
}
