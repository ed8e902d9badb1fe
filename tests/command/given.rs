//! What the caller gives a job without a word: limits, closed descriptors, signals.

use crate::station::{Running, Station, descendants, finish, text};
use nix::sys::signal::Signal;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

/// `wayfarer run` of words, from a shell that says `before` first, as root or (with a copy of the command and a place of
/// his own) as an ordinary user.
fn from_shell(station: &Station, before: &str, words: &str, is_ordinary: bool) -> Output {
    told_by_shell(station, before, &format!("run -q -- {words}"), is_ordinary)
}

/// The same of any verb.
fn told_by_shell(station: &Station, before: &str, words: &str, is_ordinary: bool) -> Output {
    let dir = station.state.path();
    let mut program = env!("CARGO_BIN_EXE_wayfarer").to_owned();
    let mut command = Command::new("setpriv");
    if is_ordinary && nix::unistd::getuid().is_root() {
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777)).expect("chmod");
        let copy = dir.join("wayfarer");
        if !copy.exists() {
            let mut cp = Command::new("cp");
            cp.arg(&program).arg(&copy);
            assert_eq!(finish(Running::start(cp)).status.code(), Some(0));
        }
        program = copy.display().to_string();
        command.args(["--reuid", "54321", "--regid", "54321", "--clear-groups"]);
    }
    let place = dir.join(if is_ordinary { "ordinary" } else { "own" });
    let script = format!("{before}; exec {program} --dir {} {words}", place.display());
    command.args(["bash", "-c", &script]);
    command.current_dir("/").stdin(Stdio::null());
    finish(Running::start(command))
}

const SHOW_LIMITS: &str = "cat /proc/self/limits";

#[test]
fn the_job_has_the_limits_of_its_caller() {
    let station = Station::new();
    for limit in [
        "-Ss 64", "-Sd 1000", "-Sf 100", "-Sn 8", "-Su 1", "-s 64", "-n 400",
    ] {
        for is_ordinary in [false, true] {
            let output = from_shell(
                &station,
                &format!("ulimit {limit}"),
                SHOW_LIMITS,
                is_ordinary,
            );
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{limit}: {said}");
            let mut direct = Command::new("bash");
            direct.args(["-c", &format!("ulimit {limit}; exec {SHOW_LIMITS}")]);
            let direct = finish(Running::start(direct));
            // Those of numbers of processes and pending signals are the user's.
            let comparable = |output: &Output| -> Vec<String> {
                let lines = text(&output.stdout);
                let lines = lines.lines().filter(|line| {
                    let is_his = line.contains("pending signals") || line.contains("Max processes");
                    !is_his || limit == "-Su 1" && line.contains("Max processes")
                });
                lines
                    .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
                    .collect()
            };
            assert_eq!(comparable(&output), comparable(&direct), "{limit}");
        }
    }
}

#[test]
fn a_hard_limit_that_is_in_the_way_is_named() {
    let station = Station::new();
    for (limit, name, found) in [
        ("-d 1000", "RLIMIT_DATA", "found 1024000 bytes, expected "),
        ("-f 100", "RLIMIT_FSIZE", "found 102400 bytes, expected "),
        ("-n 8", "RLIMIT_NOFILE", "found 8, expected "),
        ("-u 1", "RLIMIT_NPROC", "found 1"),
    ] {
        let output = from_shell(&station, &format!("ulimit {limit}"), "true", true);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{limit}: {said}");
        assert!(
            said.contains(name) && said.contains(found),
            "{limit}: {said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let mut raises = Command::new("bash");
    raises.args(["-c", "ulimit -n 90 && ulimit -n 91"]);
    if finish(Running::start(raises)).status.success() {
        // Who may raise it (CAP_SYS_RESOURCE) does, and the job has what it would have.
        for limit in ["-d 1000", "-f 100", "-n 8"] {
            let output = from_shell(
                &station,
                &format!("ulimit {limit}"),
                "bash -c 'ulimit -a'",
                false,
            );
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{limit}: {said}");
            let number = limit.split_once(' ').map_or("", |(_, number)| number);
            let shown = text(&output.stdout);
            assert!(
                shown
                    .lines()
                    .any(|line| line.ends_with(&format!(") {number}"))),
                "{shown}"
            );
        }
    }
}

/// Its user has as many processes as they may have: whoever needs one says so.
#[test]
fn where_there_may_be_no_more_processes_that_is_said() {
    let station = Station::new();
    let dir = station.state.path().display();
    let limit = "limit on the user's processes and threads (RLIMIT_NPROC): found 1";
    let of_shadow = "the shadow at home cannot be begun: Resource temporarily unavailable";
    for (words, expected, status) in [
        ("run -q --every 1s -- true", limit, 3),
        ("run -q --journal -- true", of_shadow, 1),
        (
            &format!("shadow --listen unix:{dir}/socket --allow /"),
            limit,
            3,
        ),
        ("shadow --listen stdio --allow /", limit, 3),
        ("submit --on nowhere -- true", limit, 3),
    ] {
        let output = told_by_shell(&station, "ulimit -u 1", words, true);
        let said = text(&output.stderr);
        assert!(said.contains(expected), "{words}: {said}");
        assert!(!said.contains("panicked"), "{words}: {said}");
        assert_eq!(output.status.code(), Some(status), "{words}: {said}");
    }
}

#[test]
fn a_closed_standard_descriptor_is_closed_for_the_job() {
    let station = Station::new();
    let dir = station.state.path().display();
    let wayfarer = env!("CARGO_BIN_EXE_wayfarer");
    let open = "for n in 0 1 2; do [ -e /proc/$$/fd/$n ] && e=\"$e $n\"; done; echo $e";
    for (closed, words) in [
        (
            ">&-",
            format!("bash -c 'echo hi; e=$?; {open} >&2; exit 1'"),
        ),
        ("<&-", format!("bash -c 'read x; e=$?; {open}; exit 1'")),
        (
            "<&- >&-",
            format!("bash -c 'echo hi; e=$?; {open} >&2; exit 1'"),
        ),
        (
            "2>&-",
            format!("bash -c 'echo hi >&2; e=$?; {open}; exit 1'"),
        ),
    ] {
        let run = |prefix: &str| {
            let mut shell = Command::new("bash");
            shell.args(["-c", &format!("{prefix} {words} {closed}")]);
            shell.stdin(Stdio::null());
            let output = finish(Running::start(shell));
            let said = text(&output.stdout) + &text(&output.stderr);
            (output.status.code(), said)
        };
        let direct = run("");
        assert!(direct.1.contains("1 "), "the call failed: {direct:?}");
        assert_eq!(
            run(&format!("{wayfarer} --dir {dir} run -q --")),
            direct,
            "{closed}"
        );
    }
}

/// A job that says how often it was continued, when it is told to end.
const COUNTS: &str = "import signal, sys, time\n\
n = 0\n\
def cont(*_):\n    global n\n    n += 1\n    print('cont', n, flush=True)\n\
def end(*_):\n    print('count', n, flush=True)\n    sys.exit(0)\n\
signal.signal(signal.SIGCONT, cont)\nsignal.signal(signal.SIGUSR1, end)\n\
print('ready', flush=True)\nwhile True: time.sleep(10)";

#[test]
fn sigcont_is_passed_on_once_however_it_comes() {
    let station = Station::new();
    for pids in ["auto", "host"] {
        let name = format!("cont-{pids}");
        let mut command = station.wayfarer(&[
            "run", "-q", "--pids", pids, "--name", &name, "--", "python3", "-c", COUNTS,
        ]);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut running = Running::start(command);
        running.wait_for("ready");
        // Alone, to a job that runs.
        running.signal(Signal::SIGCONT);
        running.wait_for("cont 1");
        // Of a job that was stopped: by whoever asks the command, then as a shell does.
        let stop = |running: &Running| {
            station.output(&["kill", &name, "-s", "STOP"]);
            crate::station::eventually("the supervisor stops too", || {
                std::fs::read_to_string(format!("/proc/{}/stat", running.pid()))
                    .is_ok_and(|stat| stat.contains(") T "))
            });
        };
        stop(&running);
        station.output(&["kill", &name, "-s", "CONT"]);
        running.wait_for("cont 2");
        stop(&running);
        let group = nix::unistd::Pid::from_raw(-running.pid());
        nix::sys::signal::kill(group, Signal::SIGCONT).expect("kill");
        running.wait_for("cont 3");
        // To the command, which lets a job go on that is stopped.
        stop(&running);
        running.signal(Signal::SIGCONT);
        running.wait_for("cont 4");
        // By whoever asks the command, of a job that runs.
        station.output(&["kill", &name, "-s", "CONT"]);
        running.wait_for("cont 5");
        let mut expected = 5;
        if pids == "auto" && descendants(running.pid()).len() > 1 {
            nix::sys::signal::kill(group, Signal::SIGCONT).expect("kill");
            running.wait_for("cont 6");
            expected = 6;
        }
        running.signal(Signal::SIGUSR1);
        let said = running.wait_for("count");
        let said = said + &running.wait_for("\n");
        assert!(
            said.contains(&format!("count {expected}\n")),
            "{pids}: {said}"
        );
        assert_eq!(running.wait(), Some(0));
    }
}
