//! Shadows that are on other machines: through TLS, and through ssh.

use super::{
    DEADLINE, SCRIPT, SOON, Submit, cannot_hide, here_and_elsewhere, missing, output, same_through,
    words,
};
use crate::support::run::{Run, clean_command, poll};
use crate::support::skip;
use crate::support::stage;
use crate::support::user::User;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A shadow that is reached by TLS, beside the other of the same folder.
struct Secure {
    shadow: Run,
    address: String,
    identity: PathBuf,
}

impl Secure {
    fn new(submit: &Submit) -> Self {
        let number = fs::read_dir(submit.dir.join("door"))
            .expect("lists")
            .count();
        let identity = submit.dir.join(format!("door/identity-{number}"));
        let mut command = clean_command(stage::wayfarer());
        command.args([
            "shadow",
            "--listen",
            "tls:127.0.0.1:0",
            "--allow",
            "/:ro",
            "--allow",
        ]);
        command
            .arg(submit.home())
            .arg("--identity-file")
            .arg(&identity);
        let shadow = Run::start("the shadow", command, User::Ordinary).expect("starts");
        let address = poll(SOON, || {
            let said = shadow.out.text();
            let line = said.lines().next().filter(|_| said.contains('\n'))?;
            line.strip_prefix("listening on ").map(str::to_owned)
        });
        Secure {
            address: address.expect("listens"),
            shadow,
            identity,
        }
    }

    /// A command whose files are the shadow's.
    fn remote(&self, submit: &Submit, command: &mut Command, all: &[&OsStr]) {
        command
            .arg("--dir")
            .arg(submit.dir.join("state"))
            .args(["run", "-q", "--shadow", &self.address, "--identity-file"])
            .arg(&self.identity)
            .arg("--chdir")
            .arg(submit.home())
            .arg("--")
            .args(all);
    }
}

#[test]
fn programs_work_on_files_that_come_by_tls() {
    let what = "programs_work_on_files_that_come_by_tls";
    here_and_elsewhere(what, "tls-programs", SCRIPT, |submit, all| {
        let secure = Secure::new(submit);
        let mut command = submit.bare_machine();
        secure.remote(submit, &mut command, all);
        submit.others.push(secure.shadow);
        command
    });
}

#[test]
fn locks_are_the_same_through_tls() {
    let what = "locks_are_the_same_through_tls";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("tls-locks");
    let secure = Secure::new(&submit);
    same_through(&submit, "remote_locks", 250, |all| {
        let mut command = submit.bare_machine();
        secure.remote(&submit, &mut command, all);
        command
    });
}

/// Processes that were started with this word.
pub(super) fn processes_with(word: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("lists").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let with = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0)
            .any(|part| part == word.as_bytes())
    };
    pids.filter(with).collect()
}

/// Fields behind the command's name: 1 is the parent, 3 the session.
fn stat(pid: i32) -> Vec<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("is there");
    let (_, rest) = stat.rsplit_once(") ").expect("has a name");
    rest.split(' ').map(str::to_owned).collect()
}

#[test]
fn a_starter_is_nobodys_child_hears_no_key_and_ends_with_its_job() {
    let what = "a_starter_is_nobodys_child_hears_no_key_and_ends_with_its_job";
    if missing(what) {
        return;
    }
    let submit = Submit::new("tls-starter");
    let secure = Secure::new(&submit);
    let mut command = clean_command(stage::wayfarer());
    command.env("XDG_RUNTIME_DIR", submit.dir.join("door"));
    let script = "trap 'cat file' INT; echo ready; sleep 60 & wait; wait $!; exit 3";
    fs::write(submit.home().join("file"), "after the key\n").expect("writes");
    secure.remote(&submit, &mut command, &words(&["bash", "-c", script]));
    let mut job = Run::start("the job", command, User::Ordinary).expect("starts");
    job.wait_line("ready", SOON).expect("begins");
    let own = |pid: &i32| processes_with(&secure.address).contains(pid);
    let starters: Vec<_> = processes_with("starter").into_iter().filter(own).collect();
    let [starter] = starters[..] else {
        panic!("{starters:?}")
    };
    let supervisor = job.pid().to_string();
    assert_ne!(stat(starter)[1], supervisor);
    assert_ne!(stat(starter)[3], stat(job.pid() as i32)[3], "sessions");
    // None but its own: the line, the listener, epoll, a stream.
    let inherited = fs::read_link(format!("/proc/{starter}/fd/1"));
    assert_eq!(inherited.expect("is open"), Path::new("/dev/null"));
    killpg(Pid::from_raw(job.pid() as i32), Signal::SIGINT).expect("is there");
    job.wait_line("after the key", SOON).expect("is served yet");
    kill(Pid::from_raw(job.pid() as i32), Signal::SIGTERM).expect("is there");
    job.wait(SOON).expect("ends");
    let gone = || (!Path::new(&format!("/proc/{starter}/root")).exists()).then_some(());
    poll(SOON, gone).expect("the starter ends");
    let left: Vec<_> = fs::read_dir(submit.dir.join("door"))
        .expect("lists")
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("wayfarer-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn whoever_has_another_key_or_none_is_told_so() {
    if missing("whoever_has_another_key_or_none_is_told_so") {
        return;
    }
    let submit = Submit::new("tls-keys");
    let (one, other) = (Secure::new(&submit), Secure::new(&submit));
    let tried = |identity: &Path, address: &str| {
        let mut command = clean_command(stage::wayfarer());
        command.arg("--dir").arg(submit.dir.join("state"));
        command.args(["run", "-q", "--shadow", address, "--identity-file"]);
        command.arg(identity).args(["--", "true"]);
        output("a stranger", command)
    };
    let (_, error, status) = tried(&other.identity, &one.address);
    assert_eq!(status, Some(5), "{error}");
    assert!(
        error.contains("the other side is not who it should be"),
        "{error}"
    );
    let (_, error, status) = tried(&one.identity, "tls:127.0.0.1:1");
    assert_eq!(status, Some(5), "{error}");
    assert!(error.contains("Connection refused"), "{error}");
    let absent = submit.dir.join("absent");
    let (_, error, status) = tried(&absent, &one.address);
    assert_eq!(status, Some(5), "{error}");
    assert!(error.contains("cannot read"), "{error}");
    let mode = fs::metadata(&one.identity)
        .expect("is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// What is executed in place of ssh: its last argument, where nothing is installed.
pub(super) fn stand_in(submit: &Submit) -> PathBuf {
    let machine = submit.bare_machine();
    let quote = |word: &OsStr| format!("'{}'", word.to_string_lossy());
    let tool = quote(machine.get_program());
    let options: Vec<_> = machine.get_args().map(quote).collect();
    let (state, door) = (submit.dir.join("state"), submit.dir.join("door"));
    let script = format!(
        "#!/bin/sh\nexport XDG_STATE_HOME={} XDG_RUNTIME_DIR={}\n\
         eval \"set -- $2\"; shift 2\nexec {tool} {} \"$@\"\n",
        state.display(),
        door.display(),
        options.join(" ")
    );
    executable(&submit.dir.join("stand-in"), &script)
}

pub(super) fn executable(path: &Path, script: &str) -> PathBuf {
    fs::write(path, script).expect("writes");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("sets");
    path.to_owned()
}

pub(super) fn submitted(
    submit: &Submit,
    ssh: &OsStr,
    more: &[OsString],
    all: &[&OsStr],
) -> Command {
    let mut command = clean_command(stage::wayfarer());
    command.args(["submit", "--on", "there", "--ssh"]).arg(ssh);
    command
        .args(["--allow", "/:ro", "--allow"])
        .arg(submit.home());
    command.args(more).arg("--").args(all);
    command.current_dir(submit.home());
    command
}

#[test]
fn programs_work_on_files_that_come_by_two_pipes() {
    let what = "programs_work_on_files_that_come_by_two_pipes";
    here_and_elsewhere(what, "pipe-programs", SCRIPT, |submit, all| {
        let wayfarer = [OsString::from("--wayfarer"), stage::wayfarer().into()];
        submitted(submit, stand_in(submit).as_os_str(), &wayfarer, all)
    });
}

/// What is executed in place of ssh: a shell of this machine, with folders of its own.
pub(super) fn shell(submit: &Submit, pipe: &str) -> PathBuf {
    let at = |name: &str| submit.dir.join(name).display().to_string();
    let script = format!(
        "#!/bin/sh\nshift\nexport XDG_STATE_HOME={} XDG_RUNTIME_DIR={} XDG_CACHE_HOME={}\n\
         echo Welcome to this machine\n{}\n",
        at("state"),
        at("door"),
        at("state/cache"),
        pipe.replace("SH", "sh -c \"$*\"")
    );
    executable(&submit.dir.join("shell"), &script)
}

/// Nothing of a job is left where it ran.
pub(super) fn leaves_nothing(submit: &Submit) {
    let empty = || {
        let mut entries = fs::read_dir(submit.dir.join("door"))
            .expect("lists")
            .flatten();
        let left =
            entries.any(|entry| entry.file_name().to_string_lossy().starts_with("wayfarer-"));
        (!left).then_some(())
    };
    poll(SOON, empty).expect("the starter ends");
}

#[test]
fn a_submitted_job_passes_everything_through() {
    if missing("a_submitted_job_passes_everything_through") {
        return;
    }
    let submit = Submit::new("submitted");
    let ssh = shell(&submit, "exec SH");
    fs::write(submit.home().join("file"), "from here\n").expect("writes");
    let script =
        "cat file - > all; wc -c < all; echo to stderr >&2; echo \"$VARIABLE\"; umask; exit 7";
    let mut command = submitted(&submit, ssh.as_os_str(), &[], &words(&["sh", "-c", script]));
    command.env("VARIABLE", "it's set").stdin(Stdio::piped());
    let mut job = Run::start_with_stdin("the job", command, User::Ordinary).expect("starts");
    let mut stdin = job.stdin().expect("a pipe");
    let data = vec![b'x'; 3 << 20];
    stdin.write_all(&data).expect("is taken");
    drop(stdin);
    let status = job.wait(DEADLINE).expect("ends");
    assert_eq!(status.code(), Some(7), "{}", job.describe());
    let mask = job.out.text().lines().last().map(str::to_owned);
    assert_eq!(
        job.out.text(),
        format!("{}\nit's set\n{}\n", data.len() + 10, mask.expect("lines"))
    );
    assert_eq!(job.err.text(), "to stderr\n");
    let all = fs::read(submit.home().join("all")).expect("is there");
    assert!(all == [b"from here\n", &data[..]].concat());
    leaves_nothing(&submit);

    // The program is there now, and stays.
    let cache = submit.dir.join("state/cache/wayfarer");
    let copies = || {
        let entries = fs::read_dir(&cache).expect("lists").flatten();
        let copies = entries.map(|entry| {
            let metadata = entry.metadata().expect("is there");
            (
                entry.path(),
                metadata.permissions().mode() & 0o777,
                metadata.modified().ok(),
            )
        });
        copies.collect::<Vec<_>>()
    };
    let before = copies();
    assert_eq!((before.len(), before[0].1), (1, 0o700), "{before:?}");
    let command = submitted(
        &submit,
        ssh.as_os_str(),
        &[],
        &words(&["sh", "-c", "kill -9 $$"]),
    );
    let mut job = Run::start("the job", command, User::Ordinary).expect("starts");
    let status = job.wait(DEADLINE).expect("ends");
    assert_eq!(status.signal(), Some(9), "{}", job.describe());
    assert_eq!(copies(), before);
    let command = submitted(&submit, ssh.as_os_str(), &[], &words(&["./absent"]));
    let (_, error, status) = output("no program", command);
    assert_eq!(status, Some(127), "{error}");
}

#[test]
fn a_key_at_the_terminal_ends_a_submitted_job() {
    if missing("a_key_at_the_terminal_ends_a_submitted_job") {
        return;
    }
    let submit = Submit::new("submit-key");
    let ssh = shell(&submit, "exec SH");
    for (script, code, signal) in [
        ("echo started; exec sleep 60", None, Some(2)),
        (
            "trap 'exit 9' INT; echo started; sleep 60 & wait",
            Some(9),
            None,
        ),
    ] {
        let command = submitted(&submit, ssh.as_os_str(), &[], &words(&["sh", "-c", script]));
        let mut job = Run::start("the job", command, User::Ordinary).expect("starts");
        job.wait_line("started", SOON).expect("begins");
        killpg(Pid::from_raw(job.pid() as i32), Signal::SIGINT).expect("is there");
        let status = job.wait(SOON).expect("ends");
        assert_eq!(
            (status.code(), status.signal()),
            (code, signal),
            "{}",
            job.describe()
        );
        leaves_nothing(&submit);
    }
}

#[test]
fn a_machine_that_is_lost_is_named_and_its_job_ended() {
    if missing("a_machine_that_is_lost_is_named_and_its_job_ended") {
        return;
    }
    let submit = Submit::new("submit-lost");
    let number = submit.dir.join("state/number");
    let away = submit.dir.join("state/away");
    let cut = format!(
        "[ ! -e {} ] || exit 255; SH | sh -c 'echo $$ > {}; exec cat'",
        away.display(),
        number.display()
    );
    let ssh = shell(&submit, &cut);
    let script = "echo started; trap '' HUP; while :; do date > file; done";
    let lease = ["--lease".into(), "2s".into()];
    let all = words(&["sh", "-c", script]);
    let command = submitted(&submit, ssh.as_os_str(), &lease, &all);
    let mut job = Run::start("the job", command, User::Ordinary).expect("starts");
    job.wait_line("started", SOON).expect("begins");
    fs::write(&away, "").expect("writes");
    let number = fs::read_to_string(number).expect("is written");
    let number = number.trim().parse().expect("a number");
    kill(Pid::from_raw(number), Signal::SIGKILL).expect("is there");
    let status = job.wait(DEADLINE).expect("ends");
    assert_eq!(status.code(), Some(5), "{}", job.describe());
    assert!(
        job.err.text().contains("there is lost"),
        "{}",
        job.err.text()
    );
    leaves_nothing(&submit);
    let supervisors = || {
        let word = submit.dir.join("state").display().to_string();
        processes_with(&word).is_empty().then_some(())
    };
    poll(SOON, supervisors).expect("the job has ended");

    for (ssh, said) in [
        ("/bin/false", "/bin/false has ended with status 1"),
        ("/nonexistent", "cannot start"),
    ] {
        let command = submitted(&submit, OsStr::new(ssh), &[], &words(&["true"]));
        let (_, error, status) = output("no machine", command);
        assert_eq!(status, Some(5), "{error}");
        assert!(error.contains(said), "{error}");
    }
}

/// An ssh server of our own, and how it is reached.
pub(super) fn sshd(submit: &Submit, what: &str) -> Option<(Run, String)> {
    const SERVER: &str = "/usr/sbin/sshd";
    if !Path::new(SERVER).exists() {
        skip::note(what, "no sshd (openssh-server)");
        return None;
    }
    let dir = submit.dir.join("state");
    let at = |name: &str| dir.join(name).display().to_string();
    for name in ["host", "user"] {
        let mut keygen = clean_command("ssh-keygen");
        keygen
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(at(name));
        let (_, error, status) = output("ssh-keygen", keygen);
        assert_eq!(status, Some(0), "{error}");
    }
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("a port").port();
    drop(listener);
    let settings = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\n\
         StrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         SetEnv XDG_CACHE_HOME={} XDG_STATE_HOME={} XDG_RUNTIME_DIR={}\n",
        at("host"),
        at("user.pub"),
        at("cache"),
        at("jobs"),
        submit.dir.join("door").display()
    );
    fs::write(dir.join("sshd_config"), settings).expect("writes");
    User::Ordinary.own(&dir.join("sshd_config"));
    let mut command = clean_command(SERVER);
    command
        .args(["-D", "-e", "-f"])
        .arg(dir.join("sshd_config"));
    let server = Run::start("sshd", command, User::Ordinary).expect("starts");
    let listens = || server.err.text().contains("Server listening").then_some(());
    poll(SOON, listens).unwrap_or_else(|| panic!("{}", server.describe()));
    let ssh = format!(
        "ssh -F none -p {port} -i {} -o IdentitiesOnly=yes -o BatchMode=yes -o LogLevel=ERROR \
         -o StrictHostKeyChecking=no -o UserKnownHostsFile={}",
        at("user"),
        at("known")
    );
    Some((server, ssh))
}

#[test]
fn jobs_are_submitted_through_ssh() {
    if missing("jobs_are_submitted_through_ssh") {
        return;
    }
    let submit = Submit::new("ssh");
    let Some((_server, ssh)) = sshd(&submit, "jobs_are_submitted_through_ssh") else {
        return;
    };
    let on = |all: &[&OsStr]| {
        let mut command = clean_command(stage::wayfarer());
        command.args(["submit", "--on", "127.0.0.1", "--ssh", &ssh]);
        command
            .args(["--allow", "/:ro", "--allow"])
            .arg(submit.home());
        command.arg("--").args(all).current_dir(submit.home());
        command
    };
    let script = "import sys; open('made', 'w').write('x' * 100000); print(len(open('made').read())); sys.exit(4)";
    for _ in 0..2 {
        let (out, error, status) = output("through ssh", on(&words(&["python3", "-c", script])));
        assert_eq!((out.as_str(), status), ("100000\n", Some(4)), "{error}");
        assert_eq!(error, "");
    }
    let mut job = Run::start(
        "the job",
        on(&words(&["sh", "-c", "echo started; exec sleep 60"])),
        User::Ordinary,
    )
    .expect("starts");
    job.wait_line("started", SOON).expect("begins");
    killpg(Pid::from_raw(job.pid() as i32), Signal::SIGINT).expect("is there");
    let status = job.wait(SOON).expect("ends");
    assert_eq!(status.signal(), Some(2), "{}", job.describe());
    leaves_nothing(&submit);
}
