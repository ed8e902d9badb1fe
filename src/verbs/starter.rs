//! `wayfarer starter`: carries a job's streams to its shadow. `run` begins it; it is not for people.

use crate::address::Address;
use crate::args::{Run, Starter};
use crate::away::{Asking, Holder, Private, Seat};
use crate::fault;
use crate::identity::Identity;
use crate::jobs::JobStore;
use crate::launch;
use crate::life::{check_room, heed};
use crate::reach::{self, ERROR_MARK};
use crate::report::{Exit, Explain, Failure, Outcome, chain};
use crate::rights::{Executes, keep_those_about_files};
use crate::sys;
use crate::verbs::restart::fits_here;
use caps::Capability;
use line::{Connector, HANDSHAKE_WITHIN, Line, Preface, PrefaceError, SecureError, answer_preface};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;
use starter::{Again, Door, Job, NoLine, Status, Within, take_over, told_by};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wire::Token;

/// How long one address of the shadow's machine may take to answer.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// Becomes nobody's child, says where shims may come, and carries.
pub(crate) fn starter(arguments: &Starter) -> Outcome {
    let identity = Identity::read(&arguments.identity_file);
    // Not the job's: neither its descriptors nor its terminal.
    sys::close_from(3);
    keep_those_about_files(&[], Executes::Nothing)?;
    nix::unistd::daemon(false, true).context(|| "no process for the starter".to_owned())?;
    let begun = identity.and_then(|identity| {
        let begun = begin(arguments, &identity)?;
        Ok((begun, identity))
    });
    let mut out = io::stdout();
    let ((listener, line, door, token), identity) = match begun {
        Ok(begun) => {
            out.write_all(reach::said(begun.0.2.socket()))?;
            begun
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
    let nothing = sys::nothing()?;
    nix::unistd::dup2_stdout(nothing.as_fd())?;
    let address = arguments.shadow.clone();
    let again = Again {
        lease: arguments.lease,
        token,
        connect: Box::new(move || line_again(&address, &identity, &token)),
        knock: None,
    };
    let carried = starter::carry(listener, line, None, Some(again));
    drop(door);
    carried
        .context(|| format!("the shadow on {}", arguments.shadow))
        .exit(Exit::Lost)?;
    Ok(Exit::Done)
}

/// What a starter has begun with.
type Begun = (UnixListener, Line, Door, Token);

fn begin(arguments: &Starter, identity: &Identity) -> Outcome<Begun> {
    raise_limit();
    let address = &arguments.shadow;
    let describe = || format!("no line to the shadow on {address}");
    let (line, preface) = connect(address, identity).context(describe)?;
    let places = reach::places(Some(&arguments.fallback));
    let (door, listener) = Door::make(&places)?;
    door.admit(&preface.token)?;
    Ok((listener, line, door, preface.token))
}

fn connect(address: &Address, identity: &Identity) -> Outcome<(Line, Preface)> {
    let Address::Tls { host, port } = address else {
        let message = "only tls:HOST:PORT is reached by a starter of its own";
        return Err(Failure::new(Exit::Usage, message));
    };
    let connector = Connector::new(&identity.keys, &identity.shadow)?;
    let mut line = fault::of_starter(connector.connect(reached((host, *port))?)?);
    let preface = prefaces(&mut line)?;
    Ok((line, preface))
}

fn reached(place: (&str, u16)) -> io::Result<TcpStream> {
    let mut last = None;
    for place in place.to_socket_addrs()? {
        match TcpStream::connect_timeout(&place, CONNECT_WITHIN) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into()))
}

/// What either side says first. A side that is silent is none.
fn prefaces(line: &mut Line) -> Result<Preface, PrefaceError> {
    line.wait_at_most(Some(HANDSHAKE_WITHIN));
    let preface = Preface::read(&mut *line.input);
    line.wait_at_most(None);
    answer_preface(&mut *line.output, b"")?;
    preface
}

/// One attempt to have a line in the place of one that broke.
fn line_again(address: &Address, identity: &Identity, token: &Token) -> Result<Line, NoLine> {
    let Address::Tls { host, port } = address else {
        return Err(NoLine::Ever("it was no line of this kind".to_owned()));
    };
    let now = |error: &dyn std::error::Error| NoLine::Now(chain(error));
    let connector = Connector::new(&identity.keys, &identity.shadow);
    let connector = connector.map_err(|error| NoLine::Ever(chain(&error)))?;
    let socket = reached((host, *port)).map_err(|error| now(&error))?;
    let line = connector.connect(socket).map_err(|error| match &error {
        SecureError::Stranger(_) => NoLine::Ever(chain(&error)),
        _ => now(&error),
    })?;
    let mut line = fault::of_starter(line);
    match prefaces(&mut line) {
        Ok(preface) if preface.token == *token => Ok(line),
        Ok(_) => {
            let why = "the shadow is another one, which does not know the job (wayfarer shadow --state DIR)";
            Err(NoLine::Ever(why.to_owned()))
        }
        Err(error @ (PrefaceError::Stranger { .. } | PrefaceError::Version { .. })) => {
            Err(NoLine::Ever(chain(&error)))
        }
        Err(error) => Err(now(&error)),
    }
}

fn raise_limit() {
    // With fewer it serves fewer.
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// `wayfarer run --shadow stdio`: the line is our standard input and output, the job a child of ours, whose own input and
/// outputs go along the line, too. With `--at-home` those are files there, and in their place goes what the job's supervisor and its
/// starter there say to each other.
pub(crate) fn host(store: &JobStore, arguments: &Run) -> Outcome {
    let (input, output) = (io::stdin(), io::stdout());
    let input = input.as_fd().try_clone_to_owned()?;
    let mut folder = None;
    let mut image = None;
    let mut holder = None;
    let tie = match arguments.begun.at_home {
        true => Some(Tie::make()?),
        false => None,
    };
    if arguments.begun.at_home {
        let made = Private::make(store, arguments.begun.instead_of.as_deref())?;
        if arguments.begun.only_ends {
            return Ok(Exit::Done);
        }
        if let Some(least) = arguments.begun.leave_free {
            let room = check_room(store.dir(), least, None);
            room.map_err(|why| Failure::new(Exit::Host, why))?;
        }
        if arguments.begun.arriving {
            let mut answers = File::from(output.as_fd().try_clone_to_owned()?);
            // Our terminal, if we have one, is not the job's.
            sys::heed_keys()?;
            let name = arguments.name.as_deref();
            let mut came = |path: &Path| match &mut holder {
                None => holder = Some(Holder::begin(store.dir(), name, path).ok()),
                Some(Some(holder)) => holder.tell(path),
                // There is none, and will be none.
                Some(None) => {}
            };
            let seat = arguments.begun.seated.map(|files| Seat {
                files,
                fits: &fits_here,
                answers: &mut answers,
                came: &mut came,
            });
            image = Some(made.receive(&mut File::from(input.try_clone()?), seat)?);
        }
        folder = Some(made);
    }
    let mut line = Line::plain(input, output.as_fd().try_clone_to_owned()?)?;
    line.is_left = Some(told_by(std::process::id() as i32));
    let describe = || "no line to a shadow on stdio".to_owned();
    let preface = Preface::read(&mut *line.input)
        .context(describe)
        .exit(Exit::Lost)?;
    let token = preface.token;
    let (door, listener) = Door::make(&reach::places(Some(store.dir())))?;
    door.admit(&token)?;
    let (again, place) = door.listen_again()?;
    answer_preface(&mut *line.output, reach::said(&place))
        .context(describe)
        .exit(Exit::Lost)?;
    let tied = tie.as_ref().map(Tie::number);
    let mut command = match &image {
        Some(image) => goes_on(store, arguments, door.socket(), tied, image),
        None => same_job(store, arguments, door.socket(), tied),
    };
    let environment = preface.environment;
    if let Some(block) = &environment {
        command.env_clear().envs(launch::entries(block));
    }
    sys::heed_keys()?;
    let held = holder.flatten();
    let held = held.and_then(|holder| holder.go_on(&command, environment.as_deref()));
    let job = match tie {
        Some(tie) => {
            let runs = folder
                .as_ref()
                .map(|folder| -> Box<dyn FnOnce() + Send> { Box::new(folder.give_back()) });
            tie.job(&mut command, (held, image.is_some()), runs)?
        }
        None => piped_job(&mut command)?,
    };
    // It has its own limit already, and its own capabilities.
    raise_limit();
    keep_those_about_files(&[Capability::CAP_KILL], Executes::Others)?;
    let again = Again {
        lease: arguments.lease,
        token,
        knock: Some(again.as_fd().try_clone_to_owned()?),
        connect: Box::new(move || {
            line_handed_over(&again, &token, &place).map_err(|error| NoLine::Now(chain(&error)))
        }),
    };
    let carried = starter::carry(listener, line, Some(job), Some(again));
    drop(door);
    drop(folder);
    let end = carried
        .context(|| "the job has been ended".to_owned())
        .exit(Exit::Lost)?;
    match end.status {
        Some(Status::Exited(status)) => std::process::exit(status as i32),
        Some(Status::Killed(signal)) => std::process::exit(128 + signal as i32),
        None => Ok(Exit::Done),
    }
}

fn spawned(command: &mut Command) -> Outcome<Child> {
    let spawned = command.stderr(Stdio::piped()).spawn();
    spawned.context(|| "the job's supervisor cannot be started".to_owned())
}

/// Its input and outputs go along the line.
fn piped_job(command: &mut Command) -> Outcome<Job> {
    let child = spawned(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
    let job = Job::new(child).ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
    Ok(job)
}

/// What the job's supervisor and its starter at home say to each other: our end, and that of the supervisor, which gets it by its number.
struct Tie {
    ours: UnixStream,
    theirs: OwnedFd,
}

impl Tie {
    fn make() -> Outcome<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        // Without close-on-exec.
        let theirs = nix::unistd::dup(&theirs)?;
        Ok(Tie { ours, theirs })
    }

    fn number(&self) -> i32 {
        self.theirs.as_raw_fd()
    }

    /// What is said goes along the line. `held` is what the command has become already, if anything has; it may go on from an image.
    /// When the job runs, `runs` is done.
    fn job(
        self,
        command: &mut Command,
        (held, goes_on): (Option<Child>, bool),
        runs: Option<Box<dyn FnOnce() + Send>>,
    ) -> Outcome<Job> {
        let child = match held {
            Some(child) => child,
            None => spawned(command.stdin(sys::nothing()?).stdout(sys::nothing()?))?,
        };
        drop(self.theirs);
        let supervisor = Pid::from_raw(child.id() as i32);
        let (line, ours) = UnixStream::pair()?;
        let told_to_stand = Arc::new(AtomicBool::new(false));
        let asking = Asking {
            supervisor: supervisor.as_raw(),
            theirs: self.ours,
            ours,
            told_to_stand: told_to_stand.clone(),
            goes_on,
            runs,
        };
        asking
            .begin()
            .context(|| "nobody can hear what the job asks for".to_owned())?;
        let heed = Box::new(move |signal| {
            // Before it is, and until it is not.
            if signal == libc::SIGSTOP {
                told_to_stand.store(true, Ordering::Release);
            }
            let is_done = heed(supervisor, signal);
            if signal == libc::SIGCONT {
                told_to_stand.store(false, Ordering::Release);
            }
            is_done
        });
        Ok(Job::tied(child, line.into(), heed)?)
    }
}

/// A line that somebody has handed over, if he knows the job's token.
fn line_handed_over(
    listener: &UnixListener,
    token: &Token,
    place: &Path,
) -> Result<Line, PrefaceError> {
    let none = || io::Error::from(io::ErrorKind::WouldBlock);
    let mut line = take_over(listener)?.ok_or_else(none)?;
    let preface = Preface::read(&mut Within::new(&line, HANDSHAKE_WITHIN)?)?;
    if preface.token != *token {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied).into());
    }
    answer_preface(&mut *line.output, reach::said(place))?;
    Ok(line)
}

/// A supervisor of ours, with a shadow on a socket.
fn supervisor(
    store: &JobStore,
    verb: &[&str],
    run: &Run,
    socket: &Path,
    tied: Option<i32>,
) -> Command {
    let mut command = Command::new("/proc/self/exe");
    let mut shadow = OsString::from("unix:");
    shadow.push(socket);
    command.arg("--dir").arg(store.dir()).args(verb);
    command.args(["--with-parent", "--shadow"]).arg(shadow);
    if let Some(fd) = tied {
        command.args(["--starter-fd", &fd.to_string()]);
    }
    let lease = run.lease.as_secs().max(1);
    command.args(["--lease", &format!("{lease}s")]);
    command
}

/// The job goes on from the image that has come.
fn goes_on(store: &JobStore, run: &Run, socket: &Path, tied: Option<i32>, image: &Path) -> Command {
    let verb = ["restart", "--files", "roll-back"];
    let mut command = supervisor(store, &verb, run, socket, tied);
    if let Some(name) = &run.name {
        command.args(["--name", name]);
    }
    command.args(nice(run));
    if run.confine {
        command.arg("--confine");
    }
    command.args(run.methods.sight.words());
    command.arg("--").arg(image);
    command
}

fn nice(run: &Run) -> Option<String> {
    run.nice.map(|by| format!("--nice={by}"))
}

/// The same job.
fn same_job(store: &JobStore, run: &Run, socket: &Path, tied: Option<i32>) -> Command {
    let mut command = supervisor(store, &["run", "--quiet"], run, socket, tied);
    if let Some(state) = &run.begun.go_back {
        command.args(["--go-back", state]);
    }
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
    command.args(nice(run));
    if let Some(mode) = run.umask {
        command.args(["--umask", &format!("{mode:03o}")]);
    }
    if let Some(directory) = &run.chdir {
        command.arg("--chdir").arg(directory);
    }
    if run.confine {
        command.arg("--confine");
    }
    command.args(run.methods.words());
    command.arg("--").args(&run.command);
    command
}
