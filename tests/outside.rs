//! What leads out of a job: pipes and sockets whose other end somebody else has are the restarter's after a
//! restart; connections that are brief are waited for.

mod support;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;
use support::host::Host;
use support::promise::{passed, with_job};
use support::python::python;
use support::run::{self, Run, clean_command};
use support::scenario::{Guest, Job, Restart};
use support::stage::{Linking, c_guest};
use support::user::User;

const DEADLINE: Duration = Duration::from_secs(20);
const RUN: [&str; 5] = ["run", "--quiet", "--name", "job", "--"];

fn stdio(label: &str, argument: &str) -> Guest {
    let program = c_guest("stdio", Linking::Dynamic).expect("the guest compiles");
    Guest::new(label, program, &[argument])
}

/// What connects a job with the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Pipe,
    Unix,
    Tcp,
    Terminal,
}

impl Line {
    /// The end that the job reads, and the test's.
    fn ends(self) -> Result<(OwnedFd, File), String> {
        let made = || -> std::io::Result<(OwnedFd, OwnedFd)> {
            Ok(match self {
                Line::Pipe => {
                    let (reader, writer) = std::io::pipe()?;
                    (reader.into(), writer.into())
                }
                Line::Unix => {
                    let (theirs, ours) = UnixStream::pair()?;
                    ours.set_read_timeout(Some(DEADLINE))?;
                    (theirs.into(), ours.into())
                }
                Line::Tcp => {
                    let listener = TcpListener::bind("127.0.0.1:0")?;
                    let ours = TcpStream::connect(listener.local_addr()?)?;
                    ours.set_read_timeout(Some(DEADLINE))?;
                    (listener.accept()?.0.into(), ours.into())
                }
                Line::Terminal => {
                    let pair = nix::pty::openpty(None, None)?;
                    for end in [&pair.slave, &pair.master] {
                        fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
                    }
                    (pair.slave, pair.master)
                }
            })
        };
        let (theirs, ours) = text(made())?;
        Ok((theirs, ours.into()))
    }
}

fn text<T>(result: std::io::Result<T>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

/// Reads until the last line is this one; everything that came.
fn read_until(from: &mut File, line: &str) -> Result<String, String> {
    let mut seen = String::new();
    let mut byte = [0];
    while !seen.ends_with(line) {
        match from.read(&mut byte) {
            Ok(1) => seen.push(char::from(byte[0])),
            end => return Err(format!("found {seen:?} and {end:?}, expected {line:?}")),
        }
    }
    Ok(seen)
}

/// `wayfarer ARGUMENTS` with these redirections of a shell.
fn redirected(job: &Job, redirections: &str, arguments: &[&str]) -> Command {
    let command = job.wayfarer(arguments);
    let mut shell = clean_command("/bin/sh");
    let script = format!("exec {redirections}; exec \"$@\"");
    shell.args(["-c", &script, "sh"]);
    shell.arg(command.get_program()).args(command.get_args());
    job.in_data(shell)
}

/// Starts the guest with this command and, if it is not `None`, this standard input.
fn start(job: &mut Job, mut command: Command, input: Option<OwnedFd>) -> Result<(), String> {
    command.arg(&job.guest.program).args(&job.guest.arguments);
    job.equip(&mut command);
    launch(job, "the guest", command, input)
}

fn launch(
    job: &mut Job,
    label: &str,
    mut command: Command,
    input: Option<OwnedFd>,
) -> Result<(), String> {
    let run = match input {
        Some(input) => {
            command.stdin(input);
            Run::start_with_stdin(label, command, User::Ordinary)?
        }
        None => Run::start(label, command, User::Ordinary)?,
    };
    job.runs.push(run);
    Ok(())
}

fn wait_ready(job: &mut Job) -> Result<(), String> {
    let run = job.runs.last_mut().ok_or("nothing was started")?;
    run.wait_line("READY", DEADLINE)
}

#[test]
fn outputs_that_were_one_are_redirected_each_by_its_number() {
    let guest = stdio("outputs", "both");
    with_job(&guest, |job| {
        // As on a terminal: both are one description.
        start(job, redirected(job, "2>&1", &RUN), None)?;
        wait_ready(job)?;
        let image = job.checkpoint("kill")?;
        job.wait_killed()?;
        job.restart(&image, Restart::Command)?;
        job.let_go();
        passed(job.wait_pass()?)?;
        let run = job.runs.last().ok_or("nothing was restarted")?;
        match (run.out.text().as_str(), run.err.text().as_str()) {
            ("by one\nPASS\n", "by two\n") => Ok(()),
            found => Err(format!("found {found:?}, expected each at its own number")),
        }
    });
}

/// Has what is its standard input as descriptor 7 instead.
const INPUT_AT_SEVEN: &str = "7>&0 0</dev/null";

/// Of a pipe whatever its number, of a stream socket that is descriptor 0.
#[test]
fn unread_input_is_served_first() {
    for (seven, before, after) in [
        (false, Line::Pipe, Line::Pipe),
        (false, Line::Unix, Line::Unix),
        (false, Line::Tcp, Line::Tcp),
        (false, Line::Tcp, Line::Pipe),
        (true, Line::Pipe, Line::Pipe),
    ] {
        let (guest, redirections, given) = match seven {
            true => ("input_seven", INPUT_AT_SEVEN, &["--inherit-fd", "7"][..]),
            false => ("input", "", &[][..]),
        };
        let guest = stdio(&format!("{guest}_{before:?}_{after:?}"), guest);
        with_job(&guest, |job| {
            let (theirs, mut input) = before.ends()?;
            text(input.write_all(b"first line\nsecond "))?;
            start(job, redirected(job, redirections, &RUN), Some(theirs))?;
            wait_ready(job)?;
            let path = match seven {
                true => checkpoint_without_seven(job, "--inherit-fd 7")?,
                false => {
                    let image = job.checkpoint("kill")?;
                    job.wait_killed()?;
                    image.to_string_lossy().into_owned()
                }
            };
            drop(input);
            let (theirs, mut input) = after.ends()?;
            let arguments = [&["restart", "--name", "job"], given, &[&path]].concat();
            let command = redirected(job, redirections, &arguments);
            launch(job, "the guest, restarted", command, Some(theirs))?;
            text(input.write_all(b"line\nthird line\n"))?;
            drop(input);
            job.let_go();
            passed(job.wait_pass()?)
        });
    }
}

/// Of a socket they cannot be: it is refused, and the job has them still.
#[test]
fn unread_input_of_a_socket_of_another_number_is_refused() {
    for line in [Line::Unix, Line::Tcp] {
        let guest = stdio(&format!("unread_socket_{line:?}"), "input_seven");
        with_job(&guest, |job| {
            let (theirs, mut input) = line.ends()?;
            text(input.write_all(b"first line\nsecond "))?;
            start(job, redirected(job, INPUT_AT_SEVEN, &RUN), Some(theirs))?;
            wait_ready(job)?;
            let arguments = ["checkpoint", "job", "--inherit-fd", "7", "--then", "kill"];
            let (code, said) = job.tell(&arguments)?;
            let words = ["descriptor 7", "what lies unread in it cannot be carried"];
            if code == Some(0) || !words.iter().all(|word| said.contains(word)) {
                return Err(format!(
                    "found exit {code:?}, expected a refusal with {words:?}\n{said}"
                ));
            }
            text(input.write_all(b"line\nthird line\n"))?;
            drop(input);
            job.let_go();
            passed(job.wait_pass()?)
        });
    }
}

/// As inetd starts programs.
#[test]
fn one_socket_that_is_input_and_output_is_the_restarters() {
    for line in [Line::Unix, Line::Tcp] {
        let guest = stdio(&format!("inetd_{line:?}"), "input");
        with_job(&guest, |job| {
            let (theirs, mut ours) = line.ends()?;
            text(ours.write_all(b"first line\n"))?;
            start(job, redirected(job, ">&0", &RUN), Some(theirs))?;
            read_until(&mut ours, "READY\n")?;
            let image = job.checkpoint("kill")?;
            job.wait_killed()?;
            let (theirs, mut ours) = line.ends()?;
            let image = image.to_string_lossy();
            let command = redirected(job, ">&0", &["restart", "--name", "job", &image]);
            launch(job, "the guest, restarted", command, Some(theirs))?;
            text(ours.write_all(b"second line\nthird line\n"))?;
            let end = rustix::net::shutdown(&ours, rustix::net::Shutdown::Write);
            end.map_err(|error| error.to_string())?;
            job.let_go();
            match read_until(&mut ours, "PASS\n")?.as_str() {
                "PASS\n" if job.wait_end(DEADLINE)?.success() => Ok(()),
                other => Err(format!("found {other:?}, expected PASS and a clean end")),
            }
        });
    }
}

/// Whatever is started in the background has null as its input; an empty machine has no /dev.
#[test]
fn null_is_had_again_where_there_is_no_dev() {
    for (guest, null_is_given, argument) in
        [("null", true, None), ("nothing", false, Some("--degraded"))]
    {
        let guest = stdio(&format!("no_dev_{guest}"), guest);
        with_job(&guest, |job| {
            let null = || File::open("/dev/null").map(OwnedFd::from);
            start(job, job.wayfarer(&RUN), Some(text(null())?))?;
            wait_ready(job)?;
            let image = job.checkpoint("kill")?;
            job.wait_killed()?;
            let data = job.dir.join("data");
            let host = Host::empty()?.with(&image).with(&data);
            let (status, run) =
                run::finish("no null", host.command(&image), User::Ordinary, DEADLINE)?;
            let said = run.err.text();
            let words = ["descriptor 0", "/dev/null", "--degraded"];
            if status.code() != Some(3) || !words.iter().all(|word| said.contains(word)) {
                let found = run.describe();
                return Err(format!(
                    "found {status}, expected a refusal with {words:?}\n{found}"
                ));
            }
            let mut command = job.in_data(host.command(&image));
            command.args(argument);
            let input = null_is_given.then(null).transpose();
            launch(job, "the guest, restarted", command, text(input)?)?;
            job.let_go();
            passed(job.wait_pass()?)
        });
    }
}

/// Descriptor 7 leads to where standard error of the harness does.
const SEVEN: &str = "7>&2 2>/dev/null";

/// The job's image, and the job is killed; refused with `word` unless descriptor 7 is to be given anew.
fn checkpoint_without_seven(job: &mut Job, word: &str) -> Result<String, String> {
    let image = job.dir.join("seven.img");
    let path = image.to_string_lossy().into_owned();
    let mut arguments = vec!["checkpoint", "job", "-o", &path, "--then", "kill"];
    let (code, said) = job.tell(&arguments)?;
    if code == Some(0) || !said.contains("descriptor 7") || !said.contains(word) {
        return Err(format!("found exit {code:?}, expected a refusal\n{said}"));
    }
    arguments.extend(["--inherit-fd", "7"]);
    let (code, said) = job.tell(&arguments)?;
    if code != Some(0) {
        return Err(format!("checkpoint --inherit-fd 7: exit {code:?}\n{said}"));
    }
    job.wait_killed()?;
    Ok(path)
}

#[test]
fn a_descriptor_that_leads_outside_is_given_anew() {
    let guest = stdio("inherit_fd", "seven");
    with_job(&guest, |job| {
        start(job, redirected(job, SEVEN, &RUN), None)?;
        wait_ready(job)?;
        let path = checkpoint_without_seven(job, "--inherit-fd 7")?;
        let (code, said) = job.tell(&["restart", "--name", "job", &path])?;
        if code == Some(0) || !said.contains("descriptor 7") {
            return Err(format!(
                "without it: found exit {code:?}, expected a refusal\n{said}"
            ));
        }
        let arguments = ["restart", "--name", "job", "--inherit-fd", "7", &path];
        let command = redirected(job, SEVEN, &arguments);
        launch(job, "the guest, restarted", command, None)?;
        job.let_go();
        passed(job.wait_pass()?)?;
        let said = job
            .runs
            .last()
            .map(|run| run.err.text())
            .unwrap_or_default();
        match said.as_str() {
            "through seven\n" => Ok(()),
            other => Err(format!("descriptor 7: found {other:?}, expected a line")),
        }
    });
}

/// A job has the descriptors that it had, and none of its restarter's.
#[test]
fn what_the_restarter_has_open_is_not_the_jobs() {
    const SCRIPT: &str = "cd /proc/$$/fd; echo has *; echo READY
while [ ! -e \"$WF_GO\" ]; do :; done
echo has *; echo PASS";
    let guest = Guest::new("restarters_open", "/bin/bash", &["-c", SCRIPT]);
    with_job(&guest, |job| {
        passed(job.start()?)?;
        let had = job.guest_output();
        let image = job.checkpoint("kill")?;
        job.wait_killed()?;
        let path = image.to_string_lossy().into_owned();
        let arguments = ["restart", "--name", "job", &path];
        let command = redirected(job, "9</dev/null 8>&2 7<.", &arguments);
        launch(job, "the guest, restarted", command, None)?;
        job.let_go();
        passed(job.wait_pass()?)?;
        let last = job.runs.last().map(|run| run.out.text());
        let has = last.unwrap_or_default();
        let line = |text: &str| {
            text.lines()
                .find(|line| line.starts_with("has "))
                .map(str::to_owned)
        };
        match (line(&had), line(&has)) {
            (Some(had), Some(has)) if had == has => Ok(()),
            found => Err(format!("found {found:?}, expected the same twice")),
        }
    });
}

#[test]
fn a_socket_or_terminal_that_leads_outside_is_given_anew() {
    for (line, reason, end) in [
        (Line::Unix, "whose other end is not in the job", "\n"),
        (Line::Tcp, "TCP socket connected to 127.0.0.1:", "\n"),
        (Line::Terminal, "terminal", "\r\n"),
    ] {
        let guest = stdio(&format!("inherit_{line:?}"), "seven");
        with_job(&guest, |job| {
            let (theirs, first) = line.ends()?;
            start(job, redirected(job, INPUT_AT_SEVEN, &RUN), Some(theirs))?;
            wait_ready(job)?;
            let path = checkpoint_without_seven(job, reason)?;
            drop(first);
            let (theirs, mut second) = line.ends()?;
            let arguments = ["restart", "--name", "job", "--inherit-fd", "7", &path];
            let command = redirected(job, INPUT_AT_SEVEN, &arguments);
            launch(job, "the guest, restarted", command, Some(theirs))?;
            job.let_go();
            passed(job.wait_pass()?)?;
            read_until(&mut second, &format!("through seven{end}")).map(drop)
        });
    }
}

#[test]
fn a_brief_connection_is_waited_for() {
    let guest = python(
        "brief",
        "import threading\n\
         listener = socket.create_server(('127.0.0.1', 0))\n\
         ends = [listener, socket.create_connection(listener.getsockname()), listener.accept()[0]]\n\
         def close():\n\
         \x20   while not os.path.exists('close'): time.sleep(0.01)\n\
         \x20   for end in ends: end.close()\n\
         closer = threading.Thread(target=close); closer.start()\n\
         ready(); closer.join(); print('PASS')\n",
    );
    with_job(&guest, |job| {
        passed(job.start()?)?;
        let image = job.dir.join("brief.img");
        let path = image.to_string_lossy().into_owned();
        let arguments = ["checkpoint", "job", "-o", &path, "--then", "kill"];
        let (code, said) = job.tell(&arguments)?;
        if code == Some(0) || !said.contains("TCP socket") {
            return Err(format!("found exit {code:?}, expected a refusal\n{said}"));
        }
        let command = job.wayfarer(&[&arguments[..], &["--wait-for-sockets", "20s"]].concat());
        let mut waiting = Run::start("checkpoint, waiting", command, User::Ordinary)?;
        let syscall = format!("/proc/{}/syscall", waiting.pid());
        let sleeps = || {
            let call = fs::read_to_string(&syscall).unwrap_or_default();
            let number = call.split_whitespace().next()?.parse().ok();
            [libc::SYS_nanosleep, libc::SYS_clock_nanosleep]
                .contains(&number?)
                .then_some(())
        };
        let asleep = run::poll(DEADLINE, sleeps);
        text(fs::write(job.dir.join("data/close"), ""))?;
        let status = waiting.wait(DEADLINE);
        job.runs.push(waiting);
        if asleep.is_none() || !status?.success() {
            return Err(format!(
                "found asleep: {asleep:?}, expected it, and an image"
            ));
        }
        job.wait_killed()?;
        job.restart(&image, Restart::Command)?;
        job.let_go();
        passed(job.wait_pass()?)
    });
}
