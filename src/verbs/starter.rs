//! `wayfarer starter`: carries a job's streams to its shadow. `run` begins it; it is not for people.

use crate::address::Address;
use crate::args::{Run, Starter};
use crate::identity::Identity;
use crate::jobs::JobStore;
use crate::reach::{self, ERROR_MARK};
use crate::report::{Exit, Explain, Failure, Outcome};
use crate::sys;
use line::{Connector, Line, Preface, answer_preface};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use starter::{Door, Job, Status};
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long one address of the shadow's machine may take to answer.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// Becomes nobody's child, says where shims may come, and carries.
pub(crate) fn starter(arguments: &Starter) -> Outcome {
    let identity = Identity::read(&arguments.identity_file);
    // Not the job's: neither its descriptors nor its terminal.
    sys::close_from(3);
    nix::unistd::daemon(false, true).context(|| "no process for the starter".to_owned())?;
    let begun = identity.and_then(|identity| begin(arguments, &identity));
    let mut out = io::stdout();
    let (listener, line, door) = match begun {
        Ok((listener, line, door)) => {
            out.write_all(reach::said(door.socket()))?;
            (listener, line, door)
        }
        Err(failure) => {
            out.write_all(&[ERROR_MARK])?;
            out.write_all(failure.to_string().as_bytes())?;
            out.flush()?;
            // It has been said.
            return Err(Failure::reader_gone());
        }
    };
    out.flush()?;
    let nothing = OpenOptions::new().write(true).open("/dev/null")?;
    nix::unistd::dup2_stdout(nothing.as_fd())?;
    let carried = starter::carry(listener, line, None);
    drop(door);
    carried
        .context(|| format!("the shadow on {}", arguments.shadow))
        .exit(Exit::Lost)?;
    Ok(Exit::Done)
}

fn begin(arguments: &Starter, identity: &Identity) -> Outcome<(UnixListener, Line, Door)> {
    raise_limit();
    let address = &arguments.shadow;
    let describe = || format!("no line to the shadow on {address}");
    let (line, preface) = connect(address, identity).context(describe)?;
    let places = reach::places(Some(&arguments.fallback));
    let (door, listener) = Door::make(&places)?;
    door.admit(&preface.token)?;
    Ok((listener, line, door))
}

fn connect(address: &Address, identity: &Identity) -> Outcome<(Line, Preface)> {
    let Address::Tls { host, port } = address else {
        let message = "only tls:HOST:PORT is reached by a starter of its own";
        return Err(Failure::new(Exit::Usage, message));
    };
    let connector = Connector::new(&identity.keys, &identity.shadow)?;
    let mut last = None;
    for place in (host.as_str(), *port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&place, CONNECT_WITHIN) {
            Ok(socket) => {
                let mut line = connector.connect(socket)?;
                let preface = Preface::read(&mut *line.input)?;
                answer_preface(&mut *line.output)?;
                return Ok((line, preface));
            }
            Err(error) => last = Some(error),
        }
    }
    let error = last.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into());
    Err(error.into())
}

fn raise_limit() {
    // With fewer it serves fewer.
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// `wayfarer run --shadow stdio`: the line is our standard input and output, the job a child of ours, whose own input and
/// outputs go along the line, too.
pub(crate) fn host(store: &JobStore, arguments: &Run) -> Outcome {
    let (input, output) = (io::stdin(), io::stdout());
    let line = Line::plain(
        input.as_fd().try_clone_to_owned()?,
        output.as_fd().try_clone_to_owned()?,
    );
    let mut line = line?;
    let describe = || "no line to a shadow on stdio".to_owned();
    let preface = Preface::read(&mut *line.input)
        .context(describe)
        .exit(Exit::Lost)?;
    answer_preface(&mut *line.output)
        .context(describe)
        .exit(Exit::Lost)?;
    let (door, listener) = Door::make(&reach::places(Some(store.dir())))?;
    door.admit(&preface.token)?;
    let mut command = again(store, arguments, door.socket());
    if let Some(block) = preface.environment {
        command.env_clear().envs(entries(&block));
    }
    // Our terminal, if we have one, is not the job's.
    sys::heed_keys()?;
    let child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context(|| "the job's supervisor cannot be started".to_owned())?;
    // It has its own limit already.
    raise_limit();
    let job = Job::new(child).ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
    let carried = starter::carry(listener, line, Some(job));
    drop(door);
    let end = carried
        .context(|| "the job has been ended".to_owned())
        .exit(Exit::Lost)?;
    match end.status {
        Some(Status::Exited(status)) => std::process::exit(status as i32),
        Some(Status::Killed(signal)) => std::process::exit(128 + signal as i32),
        None => Ok(Exit::Done),
    }
}

/// The same job, with a shadow on a socket.
fn again(store: &JobStore, run: &Run, socket: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    let mut shadow = OsString::from("unix:");
    shadow.push(socket);
    command
        .arg("--dir")
        .arg(store.dir())
        .args(["run", "--quiet", "--with-parent", "--shadow"]);
    command.arg(shadow);
    if let Some(name) = &run.name {
        command.args(["--name", name]);
    }
    if run.replace {
        command.arg("--replace");
    }
    let pids = clap::ValueEnum::to_possible_value(&run.pids);
    command.args(pids.iter().flat_map(|value| ["--pids", value.get_name()]));
    if let Some(level) = run.baseline {
        command.args(["--baseline", level.name()]);
    }
    if let Some(mode) = run.umask {
        command.args(["--umask", &format!("{mode:03o}")]);
    }
    if let Some(directory) = &run.chdir {
        command.arg("--chdir").arg(directory);
    }
    command.args(run.methods.words());
    command.arg("--").args(&run.command);
    command
}

/// Entries of an environment that have a name.
fn entries(block: &[u8]) -> impl Iterator<Item = (&OsStr, OsString)> {
    block.split(|byte| *byte == 0).filter_map(|entry| {
        let at = entry.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (&entry[..at], entry[at + 1..].to_vec());
        (at > 0).then(|| (OsStr::from_bytes(name), OsString::from_vec(value)))
    })
}
