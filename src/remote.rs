//! What a job with remote files is started with: the shim, its table, a session at the shadow.
//!
//! ```text
//! here: session begun, table made ──descriptors 1000..──> the shim, which starts every program of the job
//! ```
//! # What callers may rely on
//! The session lives as long as any process of the job.

use crate::lookup::Program;
use crate::report::{Explain, Failure, Outcome};
use crate::verbs::shadow::read_token;
use c_shim::residents;
use c_shim::table::{Header, RESERVED, Reserved, Table};
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::inotify::{InitFlags, Inotify};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::ffi::OsString;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use wire::{HEAD_LEN, Head, Hello, Reply, Request, Role, Token, WatchEnds};

/// What is executed in place of every program of the job, and puts that into its own process.
const SHIM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/shim"));
/// Descriptors that a job with remote files needs to be able to have.
const FEWEST_DESCRIPTORS: u64 = 1100;

/// What is executed for a command, which the shim then looks for at the shadow.
pub(crate) fn program(command: &[OsString]) -> Program {
    Program {
        path: format!("/proc/self/fd/{}", Reserved::Shim.number()).into(),
        arguments: command.to_vec(),
    }
}

/// Makes what the job inherits, with a shadow behind `socket`. It begins in `directory`, by default where we are.
pub(crate) fn prepare(socket: &Path, directory: Option<&Path>) -> Outcome<()> {
    let token = read_token(socket)?;
    make_room()?;
    let (mut stream, session) = begin_session(socket, &token)
        .context(|| format!("no session with the shadow on {}", socket.display()))?;
    let directory = match directory {
        Some(directory) => directory.to_owned(),
        None => std::env::current_dir()?,
    };
    let header = Header::bytes(
        &token,
        session,
        socket.as_os_str().as_bytes(),
        directory.as_os_str().as_bytes(),
    );
    let header = header.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidFilename))?;
    let table = memory_file(c"wf-table", &header, size_of::<Table>() as u64)?;
    let shim = crate::launch::executable_memory_file(c"wayfarer-shim")?;
    shim.write_all_at(SHIM, 0)?;
    let store = memory_file(c"wf-store", &[], residents::FILE_LEN)?;
    let inotify = || Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC);
    let (ends, lock_ends) = (inotify()?, inotify()?);
    share_ends(&mut stream, &lock_ends)?;
    hand_down(&table, Reserved::Table)?;
    hand_down(&OwnedFd::from(stream), Reserved::Session)?;
    hand_down(&ends, Reserved::Ends)?;
    hand_down(&lock_ends, Reserved::LockEnds)?;
    hand_down(&shim, Reserved::Shim)?;
    hand_down(&store, Reserved::Store)?;
    Ok(())
}

/// The soft limit must leave room for our descriptors behind the job's.
fn make_room() -> Outcome<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft >= FEWEST_DESCRIPTORS {
        return Ok(());
    }
    setrlimit(Resource::RLIMIT_NOFILE, FEWEST_DESCRIPTORS.min(hard), hard)?;
    if hard < FEWEST_DESCRIPTORS {
        let message = format!(
            "a job may have {hard} descriptors here, expected {FEWEST_DESCRIPTORS} (ulimit -Hn)"
        );
        return Err(Failure::new(crate::report::Exit::Host, message));
    }
    Ok(())
}

/// A stream that is greeted, and the session it has begun.
fn begin_session(socket: &Path, token: &Token) -> Outcome<(UnixStream, u64)> {
    let mut stream = UnixStream::connect(socket)?;
    let mut greeting = [0; 256];
    let len = Hello::new(Role::Starter, *token, 0, 0).message(&mut greeting)?;
    stream.write_all(&greeting[..len])?;
    let (kind, body) = answer(&mut stream)?;
    match Reply::decode(kind, &body)? {
        Reply::Welcome(welcome) => Ok((stream, welcome.session)),
        Reply::Refused(refusal) => {
            let message = format!("refused: {}", refusal.reason);
            Err(Failure::new(crate::report::Exit::Failed, message))
        }
        other => {
            let message = format!("it answered {other:?}, expected a welcome");
            Err(Failure::new(crate::report::Exit::Failed, message))
        }
    }
}

/// Lets the shadow see which descriptions end. One that is on another machine does not, behind a socket that is carried
/// there: what a process that is killed has locked is free when the job notices.
fn share_ends(stream: &mut UnixStream, ends: &Inotify) -> Outcome<()> {
    let mut message = [0; 64];
    let len = Request::WatchEnds(WatchEnds {}).message(1, 0, &mut message)?;
    let descriptors = [ends.as_fd().as_raw_fd()];
    let sent = sendmsg::<()>(
        stream.as_raw_fd(),
        &[IoSlice::new(&message[..len])],
        &[ControlMessage::ScmRights(&descriptors)],
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    stream.write_all(&message[sent..len])?;
    let (kind, body) = answer(stream)?;
    match Reply::decode(kind, &body)? {
        Reply::Done | Reply::Failed(_) => Ok(()),
        other => {
            let message = format!("it answered {other:?}, expected that it is done");
            Err(Failure::new(crate::report::Exit::Failed, message))
        }
    }
}

/// Kind and body of what comes next.
fn answer(stream: &mut UnixStream) -> Outcome<(u16, Vec<u8>)> {
    let mut bytes = [0; HEAD_LEN];
    stream.read_exact(&mut bytes)?;
    let head = Head::read(&bytes)?;
    let mut body = vec![0; head.body_len as usize];
    stream.read_exact(&mut body)?;
    Ok((head.kind, body))
}

fn memory_file(name: &std::ffi::CStr, bytes: &[u8], len: u64) -> io::Result<OwnedFd> {
    let file = std::fs::File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC)?);
    file.set_len(len)?;
    file.write_all_at(bytes, 0)?;
    Ok(file.into())
}

/// Gives a descriptor the number that the job knows it by, and lets it be inherited.
fn hand_down(fd: &impl AsFd, reserved: Reserved) -> Outcome<()> {
    let number = reserved.number();
    let held = fcntl(fd.as_fd(), FcntlArg::F_DUPFD(number))?;
    if held != number {
        let message = format!("descriptor {number} is open already; {RESERVED:?} must be free");
        return Err(Failure::new(crate::report::Exit::Failed, message));
    }
    Ok(())
}
