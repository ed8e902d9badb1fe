//! A stream to a shadow, as the command has it: greeted, one request at a time.

use super::sees::Sees;
use super::{By, Identity};
use crate::report::{Exit, Failure, Outcome};
use c_shim::link::Link;
use c_shim::table::MACHINE_NAME;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fmt::Display;
use std::io::{self, IoSlice, Read, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use wire::{
    HEAD_LEN, Head, Hello, MOST_BODY, MOST_DATA, NUMBERED_COPIES, Others, Reply, Request, Resume,
    Role, TakeUp, Token, WireError, Write,
};

/// A shadow that says nothing for so long is not there.
const PATIENCE: Duration = Duration::from_secs(60);
/// So long it may take to have a job's files go back.
const GOES_BACK_WITHIN: Duration = Duration::from_secs(3600);

/// Why something is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotWritten {
    /// The shadow says why.
    Errno(i32),
    /// It does not serve us, and never will.
    Refused,
    /// It is not there, and nobody knows whether it is written.
    Broken,
}

/// Why a session does not go on from a state.
#[derive(Debug)]
pub(crate) enum NotResumed {
    /// In a moment it may: the shadow's words.
    Now(String),
    /// Anything else.
    Failed(Failure),
}

impl From<Failure> for NotResumed {
    fn from(failure: Failure) -> Self {
        NotResumed::Failed(failure)
    }
}

impl From<NotResumed> for Failure {
    fn from(why: NotResumed) -> Self {
        match why {
            NotResumed::Now(reason) => Failure::new(Exit::Failed, format!("refused: {reason}")),
            NotResumed::Failed(failure) => failure,
        }
    }
}

/// Why a stream has not begun.
#[derive(Debug)]
pub(crate) enum NotBegun {
    /// The shadow does not serve us, and never will: its words.
    Refused(String),
    /// Anything that may be otherwise another time.
    Failed(Failure),
}

impl From<Failure> for NotBegun {
    fn from(failure: Failure) -> Self {
        NotBegun::Failed(failure)
    }
}

impl From<NotBegun> for Failure {
    fn from(why: NotBegun) -> Self {
        match why {
            NotBegun::Refused(reason) => Failure::new(Exit::Failed, format!("refused: {reason}")),
            NotBegun::Failed(failure) => failure,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Client {
    stream: UnixStream,
    session: u64,
    /// Of the protocol.
    version: u16,
    number: u64,
}

impl Client {
    /// A stream of a new session.
    pub(crate) fn begin(socket: &Path, token: &Token) -> Outcome<Self> {
        // Who has begun it is there as long as the job.
        let hello = Hello::new(Role::Starter, *token, 0, 0);
        Ok(Self::greeted(socket, hello)?)
    }

    /// A stream of the session of a copy of a job, known to the shadow by a number (0: it is not).
    pub(crate) fn join(socket: &Path, link: &Link, lane: u64) -> Result<Self, NotBegun> {
        // Who joins a session may leave it before the job does.
        let hello = Hello::new(Role::Shim, link.token, link.session, link.incarnation);
        Self::greeted(socket, hello.of_lane(lane))
    }

    fn greeted(socket: &Path, hello: Hello) -> Result<Self, NotBegun> {
        let (client, answer) = Self::greet(socket, hello)?;
        match Reply::decode(answer.0, &answer.1).map_err(Failure::from)? {
            Reply::Welcome(welcome) => Ok(Client {
                session: welcome.session,
                version: welcome.version,
                ..client
            }),
            Reply::Refused(refusal) if !refusal.passing => {
                Err(NotBegun::Refused(refusal.reason.to_owned()))
            }
            other => Err(unexpected(&other, "a welcome").into()),
        }
    }

    /// It ends with this process, whatever else we do: nobody waits for what we say of one that is gone.
    ///
    /// # Errors
    /// As pidfd_open(2), and of beginning a thread.
    pub(crate) fn ends_with(&self, pid: i32) -> io::Result<()> {
        let stream = self.stream.try_clone()?;
        let process = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
        let process = pidfd_open(process, PidfdFlags::empty())?;
        std::thread::Builder::new().spawn(move || {
            while poll(&mut [PollFd::new(&process, PollFlags::IN)], None) == Err(Errno::INTR) {}
            let _ = stream.shutdown(Shutdown::Both);
        })?;
        Ok(())
    }

    /// Kind and body of what the shadow says to us.
    fn greet(socket: &Path, hello: Hello) -> Outcome<(Self, (u16, Vec<u8>))> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut client = Client {
            stream,
            session: hello.session,
            version: 0,
            number: 0,
        };
        let mut greeting = [0; 256];
        let len = hello.message(&mut greeting)?;
        client.stream.write_all(&greeting[..len])?;
        let (kind, body, _) = client.answer()?;
        Ok((client, (kind, body)))
    }

    /// Which session it is.
    pub(crate) fn session(&self) -> u64 {
        self.session
    }

    /// Refuses a shadow that is older than that; `what` it does not do.
    pub(crate) fn is_spoken(&self, version: u16, what: &str) -> Outcome<()> {
        if self.version >= version {
            return Ok(());
        }
        let message = format!("the shadow is of an older wayfarer: {what}");
        Err(Failure::new(Exit::Failed, message))
    }

    /// Asks for bytes, which come behind the answer; how many, and these, or why there are none.
    pub(crate) fn ask_for_bytes(
        &mut self,
        request: &Request<'_>,
        data: &[u8],
    ) -> Outcome<Result<(u64, impl Read + '_), String>> {
        let message = self.message(request, data.len())?;
        self.stream.write_all(&message)?;
        self.stream.write_all(data)?;
        let (kind, body, _) = self.answer()?;
        match Reply::decode(kind, &body)? {
            Reply::Number(len) => Ok(Ok((len, (&self.stream).take(len)))),
            Reply::Refused(refusal) => Ok(Err(refusal.reason.to_owned())),
            other => Err(unexpected(&other, "how many bytes")),
        }
    }

    /// Asks for what is done, or refused; the answer's data.
    pub(crate) fn ask(&mut self, request: &Request<'_>, data: &[u8]) -> Outcome<Vec<u8>> {
        let message = self.message(request, data.len())?;
        self.stream.write_all(&message)?;
        self.stream.write_all(data)?;
        self.done()
    }

    /// Has the session go on from a state; which copy of the job it is then, 0 if the shadow does not count them.
    pub(crate) fn resume(
        &mut self,
        (others, by): (Others, By),
        state: &[u8],
    ) -> Result<u64, NotResumed> {
        let request = match self.version >= NUMBERED_COPIES {
            true => Request::TakeUp(TakeUp {
                others,
                starter: by.starter,
                takes: by.takes,
            }),
            false => Request::Resume(Resume { others }),
        };
        let exchanged = (|| -> Outcome<_> {
            let message = self.message(&request, state.len())?;
            self.stream.write_all(&message)?;
            self.stream.write_all(state)?;
            self.stream.set_read_timeout(Some(GOES_BACK_WITHIN))?;
            let answer = self.answer();
            self.stream.set_read_timeout(Some(PATIENCE))?;
            answer
        })();
        let (kind, body, _) = exchanged?;
        match Reply::decode(kind, &body).map_err(Failure::from)? {
            Reply::Number(incarnation) => Ok(incarnation),
            Reply::Done => Ok(0),
            Reply::Refused(refusal) if refusal.passing => {
                Err(NotResumed::Now(refusal.reason.to_owned()))
            }
            other => Err(unexpected(&other, "which copy goes on").into()),
        }
    }

    /// Asks for what is done; whether there was an answer, whatever it was.
    pub(crate) fn tell(&mut self, request: &Request<'_>) -> bool {
        let exchanged = self.message(request, 0).map(|message| {
            self.stream.write_all(&message)?;
            self.answer()
        });
        matches!(exchanged, Ok(Ok(_)))
    }

    /// Asks for what is done; whether it was.
    pub(crate) fn has_done(&mut self, request: &Request<'_>) -> bool {
        let message = self.message(request, 0).ok();
        let answer = message.and_then(|message| {
            self.stream.write_all(&message).ok()?;
            self.answer().ok()
        });
        answer.is_some_and(|(kind, body, _)| matches!(Reply::decode(kind, &body), Ok(Reply::Done)))
    }

    /// Whose files the shadow serves, and where; what it says of itself besides is put into `sees`.
    pub(super) fn identify(&mut self, sees: &mut Sees) -> Outcome<Identity> {
        let message = self.message(&Request::Identify(wire::Identify {}), 0)?;
        self.stream.write_all(&message)?;
        let (kind, body, data) = self.answer()?;
        match Reply::decode(kind, &body)? {
            Reply::Owner(owner) => {
                *sees = Sees::of(&data);
                identity_of(owner, &data)
            }
            other => Err(unexpected(&other, "who it is")),
        }
    }

    /// Writes to what is open, by a request of this number; where it begins, and how much.
    pub(crate) fn write(
        &mut self,
        number: u64,
        handle: u64,
        offset: u64,
        data: &[u8],
    ) -> Result<(u64, u64), NotWritten> {
        let request = Request::Write(Write { handle, offset });
        self.number = number.wrapping_sub(1);
        let exchanged = (|| {
            let message = self.message(&request, data.len())?;
            self.stream.write_all(&message)?;
            self.stream.write_all(data)?;
            self.answer()
        })();
        let Ok((kind, body, _)) = exchanged else {
            return Err(NotWritten::Broken);
        };
        match Reply::decode(kind, &body) {
            Ok(Reply::Written(written)) => Ok((written.offset, written.len)),
            Ok(Reply::Failed(errno)) => Err(NotWritten::Errno(errno.into())),
            Ok(Reply::Refused(refusal)) if !refusal.passing => Err(NotWritten::Refused),
            _ => Err(NotWritten::Broken),
        }
    }

    /// As [`Client::ask`], with a descriptor beside it.
    pub(crate) fn hand_over(&mut self, request: &Request<'_>, fd: BorrowedFd<'_>) -> Outcome<()> {
        let message = self.message(request, 0)?;
        let descriptors = [fd.as_raw_fd()];
        let sent = sendmsg::<()>(
            self.stream.as_raw_fd(),
            &[IoSlice::new(&message)],
            &[ControlMessage::ScmRights(&descriptors)],
            MsgFlags::MSG_NOSIGNAL,
            None,
        )?;
        self.stream.write_all(&message[sent..])?;
        let (kind, body, _) = self.answer()?;
        match Reply::decode(kind, &body)? {
            // A shadow that cannot have it says so.
            Reply::Done | Reply::Failed(_) => Ok(()),
            other => Err(unexpected(&other, "that it is done")),
        }
    }

    /// The stream, for whoever keeps it.
    pub(crate) fn into_stream(self) -> Outcome<UnixStream> {
        self.stream.set_read_timeout(None)?;
        self.stream.set_write_timeout(None)?;
        Ok(self.stream)
    }

    fn message(&mut self, request: &Request<'_>, data_len: usize) -> Result<Vec<u8>, WireError> {
        self.number += 1;
        let mut message = vec![0; HEAD_LEN + MOST_BODY];
        let len = request.message(self.number, data_len, &mut message)?;
        message.truncate(len);
        Ok(message)
    }

    fn done(&mut self) -> Outcome<Vec<u8>> {
        let (kind, body, data) = self.answer()?;
        match Reply::decode(kind, &body)? {
            Reply::Done => Ok(data),
            other => Err(unexpected(&other, "that it is done")),
        }
    }

    /// Kind, body and data of what comes next.
    fn answer(&mut self) -> Outcome<(u16, Vec<u8>, Vec<u8>)> {
        let mut bytes = [0; HEAD_LEN];
        self.stream.read_exact(&mut bytes)?;
        let head = Head::read(&bytes)?;
        let mut body = vec![0; head.body_len as usize];
        self.stream.read_exact(&mut body)?;
        let mut data = vec![0; (head.data_len as usize).min(MOST_DATA)];
        self.stream.read_exact(&mut data)?;
        Ok((head.kind, body, data))
    }
}

/// What a shadow says of itself, if a job can be that.
fn identity_of(owner: wire::Owner, names: &[u8]) -> Outcome<Identity> {
    let way_out = "(--identity execute does without)";
    let (uid, gid) = (owner.uid, owner.gid);
    if uid == u32::MAX || gid == u32::MAX {
        let message = format!("it is user {uid} of group {gid}, which nobody can be {way_out}");
        return Err(Failure::new(Exit::Failed, message));
    }
    let mut names = names.split(|byte| *byte == 0).map(<[u8]>::to_vec);
    let mut name = || names.next().unwrap_or_default();
    let machine = [name(), name()];
    if let Some(long) = machine.iter().find(|name| name.len() >= MACHINE_NAME) {
        let (found, most) = (long.len(), MACHINE_NAME - 1);
        let message =
            format!("its machine's name has {found} bytes, expected at most {most} {way_out}");
        return Err(Failure::new(Exit::Failed, message));
    }
    Ok(Identity { uid, gid, machine })
}

fn unexpected(reply: &Reply<'_>, expected: impl Display) -> Failure {
    let message = match reply {
        Reply::Refused(refusal) if refusal.passing => {
            format!("refused for now: {}", refusal.reason)
        }
        Reply::Refused(refusal) => format!("refused: {}", refusal.reason),
        Reply::Failed(errno) => std::io::Error::from_raw_os_error((*errno).into()).to_string(),
        other => format!("it answered {other:?}, expected {expected}"),
    };
    Failure::new(Exit::Failed, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Owner;

    /// A line that breaks is made anew; if whoever only joins were the starter, what ends first on it would end the job's session.
    #[test]
    fn who_joins_a_session_is_not_its_starter() {
        let dir = tempfile::tempdir().expect("a folder");
        let socket = dir.path().join("shadow");
        let listener = std::os::unix::net::UnixListener::bind(&socket).expect("binds");
        let mut link = Link::new(&[1; 32], 7, 1, 1, b"").expect("fits");
        link.incarnation = 3;
        for (session, expected) in [(0, Role::Starter), (7, Role::Shim)] {
            let at = socket.clone();
            let joins = std::thread::spawn(move || match session {
                0 => Client::begin(&at, &[1; 32]).is_err(),
                _ => Client::join(&at, &link, 0).is_err(),
            });
            let (mut stream, _) = listener.accept().expect("comes");
            let mut head = [0; HEAD_LEN];
            stream.read_exact(&mut head).expect("a head");
            let mut body = vec![0; Head::read(&head).expect("sound").body_len as usize];
            stream.read_exact(&mut body).expect("a body");
            drop(stream);
            let hello = Hello::decode(&body).expect("sound");
            assert_eq!((hello.role, hello.session), (expected, session));
            assert_eq!(hello.incarnation, if session == 0 { 0 } else { 3 });
            assert!(joins.join().expect("ends"), "nobody has answered");
        }
    }

    #[test]
    fn a_job_is_nobody_who_cannot_be() {
        let me = Owner { uid: 7, gid: 8 };
        let identity = identity_of(me, b"home\0example\0").expect("can be");
        assert_eq!((identity.uid, identity.gid), (7, 8));
        assert_eq!(identity.machine, [b"home".to_vec(), b"example".to_vec()]);
        let identity = identity_of(me, b"").expect("can be");
        assert!(identity.machine.iter().all(Vec::is_empty));
        let nobody = Owner {
            uid: 7,
            gid: u32::MAX,
        };
        let refused = identity_of(nobody, b"home\0\0").expect_err("cannot be");
        assert!(
            refused.to_string().contains("--identity execute"),
            "{refused}"
        );
        let long = [&[b'a'; MACHINE_NAME][..], b"\0"].concat();
        let refused = identity_of(me, &long).expect_err("cannot be");
        assert!(
            refused
                .to_string()
                .contains("65 bytes, expected at most 64"),
            "{refused}"
        );
    }
}
