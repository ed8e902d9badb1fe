//! One stream: messages in, answers out, under limits.
//!
//! ```text
//! begun --Hello--> greeted --request, answer--> greeted ... --end--> over
//!   `--no Hello, stranger, other version--> Refused, over    `--no message--> Refused, over
//! ```

use crate::copies::By;
use crate::images;
use crate::locks::{Attendance, Ends};
use crate::peer::Peer;
use crate::saved::PendingMark;
use crate::serve::failed;
use crate::session::Session;
use crate::sessions::{Membership, Sessions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, IoSlice, Read, Write};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::{
    HEAD_LEN, Head, Hello, MOST_BODY, NUMBERED_COPIES, Refusal, Reply, Request, Role, Welcome,
    WireError, choose_version,
};

/// Bytes that a stream's buffer has at first.
const FIRST_ROOM: usize = 64 << 10;

/// A stream has ended otherwise than it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The peer is gone, or the stream is broken.
    #[error("the stream broke off")]
    Broken(#[from] io::Error),
    /// It ended within a message.
    #[error("the stream ended {missing} bytes before the end of a message")]
    Cut {
        /// Bytes that are missing at least.
        missing: usize,
    },
    /// What came is no message.
    #[error("the peer sent what is no message")]
    Garbage(#[from] WireError),
    /// It was told that it is not served.
    #[error("the peer is not served: {reason}")]
    Refused {
        /// Why.
        reason: String,
        /// It may be a little later.
        passing: bool,
    },
}

/// Serves a stream until its end.
///
/// # Errors
/// [`StreamError`]; the peer has been told the reason if that was possible.
pub fn serve_stream<S: Peer>(stream: &mut S, sessions: &Arc<Sessions>) -> Result<(), StreamError> {
    let mut incoming = Incoming::new();
    match greet(stream, &mut incoming, sessions)? {
        Some(membership) => serve(stream, &mut incoming, &membership),
        None => Ok(()),
    }
}

/// The first message; none if the stream ends before it.
pub(crate) fn greet<S: Peer>(
    stream: &mut S,
    incoming: &mut Incoming,
    sessions: &Arc<Sessions>,
) -> Result<Option<Membership>, StreamError> {
    let first = incoming.message(stream);
    let Some(message) = or_tell(stream, first)? else {
        return Ok(None);
    };
    let head = message.head;
    let hello = match head.kind {
        Hello::KIND if head.data_len == 0 => Hello::decode(incoming.body(&message)),
        found => Err(WireError::Kind { found }),
    };
    let hello = or_tell(stream, hello.map_err(StreamError::from))?;
    let refused = |reason: String, passing| StreamError::Refused { reason, passing };
    let joined = match choose_version(hello.versions) {
        Some(version) => sessions
            .join(&hello.token, hello.session, hello.lane, hello.incarnation)
            .map(|membership| (version, membership.of(hello.role, version)))
            .map_err(|why| refused(why.reason.into_owned(), why.passing)),
        None => {
            let reason = format!(
                "versions {} to {} are spoken there, {} to {} here",
                hello.versions.0,
                hello.versions.1,
                wire::VERSIONS.start(),
                wire::VERSIONS.end()
            );
            Err(refused(reason, false))
        }
    };
    let (version, membership) = or_tell(stream, joined)?;
    let welcome = Reply::Welcome(Welcome {
        version,
        session: membership.session.id(),
        most_in_flight: 16,
    });
    send(stream, head.number, &welcome, &[])?;
    Ok(Some(membership))
}

/// Answers requests until the stream ends.
pub(crate) fn serve<S: Peer>(
    stream: &mut S,
    incoming: &mut Incoming,
    membership: &Membership,
) -> Result<(), StreamError> {
    let session: &Session = &membership.session;
    // What a process had is gone when its stream has ended.
    let _noting = NoteLocks(session);
    let _ending = session.enders.keep(stream.ender()?);
    // It may have been superseded before its streams could be ended by that.
    still_served(stream, session)?;
    let mut attendance: Option<Attendance<'_>> = None;
    let served = answer_all(stream, incoming, membership, &mut attendance);
    if membership.may_come_again() {
        if stream
            .loss()
            .is_some_and(|lost| lost.load(Ordering::SeqCst))
        {
            session.go_on_alone();
            if let Some(attendance) = attendance.take() {
                attendance.comes_again();
            }
        } else if membership.role == Role::Starter {
            session.is_over_with_its_streams();
        }
    }
    served
}

fn answer_all<'a, S: Peer>(
    stream: &mut S,
    incoming: &mut Incoming,
    membership: &'a Membership,
    attendance: &mut Option<Attendance<'a>>,
) -> Result<(), StreamError> {
    let session: &Session = &membership.session;
    let mut out = vec![];
    let mut pending = PendingMark::none(session);
    let mut watches_ends = false;
    loop {
        if incoming.filled.is_empty() {
            let ends = session.locks.ends.get().filter(|_| watches_ends);
            watches_ends = ends.is_some_and(|ends| ends.watch(session, stream.as_fd()));
        }
        let next = incoming.message(stream);
        let Some(message) = or_tell(stream, next)? else {
            return Ok(());
        };
        still_served(stream, session)?;
        let request = Request::decode(message.head.kind, incoming.body(&message));
        let request = or_tell(stream, request.map_err(StreamError::from))?;
        let why;
        let reply = match &request {
            // What it was to end has been answered already.
            Request::Interrupt(_) => continue,
            Request::Attend(attend) => {
                out.clear();
                match attendance.as_ref() {
                    Some(present) => present.executed(attend.pid).map(|()| present.number),
                    None => Attendance::begin(&session.locks, *attend, stream)
                        .map(|present| attendance.insert(present).number),
                }
                .map_or_else(failed, |number| {
                    session.note_locks();
                    Reply::Number(number)
                })
            }
            Request::WatchEnds(_) => {
                out.clear();
                let ends = stream.take_descriptor().map(Ends::new);
                // The first that comes is the session's.
                watches_ends = ends.is_some_and(|ends| session.locks.ends.set(ends).is_ok());
                if watches_ends {
                    Reply::Done
                } else {
                    failed(Errno::NOTSUP)
                }
            }
            Request::Lock(lock) if lock.wait && incoming.filled.is_empty() => {
                out.clear();
                session.wait_for_lock(lock, stream.as_fd())
            }
            Request::Mark(_)
            | Request::Settle(_)
            | Request::Resume(_)
            | Request::TakeUp(_)
            | Request::Forget(_) => {
                out.clear();
                let data = incoming.data(&message);
                let resumes = match &request {
                    Request::Resume(resume) => Some((resume.others, By::ANYBODY)),
                    Request::TakeUp(up) => Some((up.others, By::of(up))),
                    _ => None,
                };
                let is_there = || is_there(stream.as_fd());
                let moved = match (resumes, &request) {
                    (Some(how), _) => membership.resume(data, how, &is_there),
                    (None, Request::Forget(forget)) => {
                        membership.forget(data, By::only(forget.starter), &is_there)
                    }
                    (None, _) => session.moved(&request, data, &mut pending, &mut out),
                };
                let numbered = resumes.is_some() && membership.version >= NUMBERED_COPIES;
                match moved {
                    Ok(()) if numbered => Reply::Number(session.incarnation()),
                    Ok(()) => Reply::Done,
                    Err(error) => {
                        why = error.chain();
                        tracing::info!(why, kind = message.head.kind, "a job cannot be moved");
                        Reply::Refused(Refusal {
                            reason: &why,
                            passing: error.passes(),
                        })
                    }
                }
            }
            Request::KeepImage(_) | Request::KeptImages(_) | Request::FetchImage(_) => {
                let asked = (&request, incoming.data(&message));
                images::serve(stream, membership, message.head.number, asked)?;
                return Ok(());
            }
            _ => {
                let request = (&request, incoming.data(&message));
                let lane = membership.lane.as_deref();
                if matches!(request.0, Request::Lease(_)) {
                    session.set_here(stream.is_here());
                }
                session.answer_once(lane, message.head.number, request, &mut out)
            }
        };
        still_served(stream, session)?;
        send(stream, message.head.number, &reply, &out)?;
        session.shorten_log();
        if out.capacity() > FIRST_ROOM && out.len() <= FIRST_ROOM / 2 {
            out = vec![];
        }
    }
}

/// Whether somebody waits for an answer.
fn is_there(stream: BorrowedFd<'_>) -> bool {
    let mut one = [PollFd::from_borrowed_fd(
        stream,
        PollFlags::RDHUP | PollFlags::HUP,
    )];
    let now = Timespec::default();
    matches!(poll(&mut one, Some(&now)), Ok(0) | Err(Errno::INTR))
}

fn still_served<S: Write>(stream: &mut S, session: &Session) -> Result<(), StreamError> {
    let Some(why) = session.lost() else {
        return Ok(());
    };
    let (reason, passing) = (format!("the session cannot go on: {why}"), false);
    or_tell(stream, Err(StreamError::Refused { reason, passing }))
}

/// At the end of a stream.
struct NoteLocks<'a>(&'a Session);

impl Drop for NoteLocks<'_> {
    fn drop(&mut self) {
        self.0.note_locks_of_closed();
    }
}

/// Tells the peer why it is not served any longer.
fn or_tell<S: Write, T>(stream: &mut S, result: Result<T, StreamError>) -> Result<T, StreamError> {
    if let Err(error) = &result {
        let (reason, passing) = match error {
            StreamError::Garbage(error) => (error.to_string(), false),
            StreamError::Refused { reason, passing } => (reason.clone(), *passing),
            StreamError::Broken(_) | StreamError::Cut { .. } => return result,
        };
        // It may be gone already.
        let refusal = Refusal {
            reason: &reason,
            passing,
        };
        let _ = send(stream, 0, &Reply::Refused(refusal), &[]);
    }
    result
}

pub(crate) fn send<S: Write>(
    stream: &mut S,
    number: u64,
    reply: &Reply<'_>,
    data: &[u8],
) -> Result<(), StreamError> {
    let mut room = [0; HEAD_LEN + 1024];
    let len = reply.message(number, data.len(), &mut room)?;
    let prefix = &room[..len];
    let mut slices = &mut [IoSlice::new(prefix), IoSlice::new(data)][..];
    // Empty slices would end the loop too early.
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match stream.write_vectored(slices) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
            Ok(written) => IoSlice::advance_slices(&mut slices, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A message in the buffer.
pub(crate) struct Message {
    head: Head,
    body: Range<usize>,
    data: Range<usize>,
}

/// What has come and is not answered yet.
pub(crate) struct Incoming {
    buffer: Vec<u8>,
    /// What has come and was not taken yet.
    filled: Range<usize>,
}

impl Incoming {
    pub(crate) fn new() -> Self {
        Incoming {
            buffer: vec![0; FIRST_ROOM],
            filled: 0..0,
        }
    }

    fn body(&self, message: &Message) -> &[u8] {
        &self.buffer[message.body.clone()]
    }

    fn data(&self, message: &Message) -> &[u8] {
        &self.buffer[message.data.clone()]
    }

    /// The next message, in place until the one behind it is asked for; none if the stream has ended.
    fn message<S: Read>(&mut self, stream: &mut S) -> Result<Option<Message>, StreamError> {
        if !self.fill(stream, HEAD_LEN)? {
            return Ok(None);
        }
        let head = Head::read(&self.buffer[self.filled.clone()])?;
        let (body_len, data_len) = (head.body_len as usize, head.data_len as usize);
        self.fill(stream, HEAD_LEN + body_len + data_len)?;
        let body = self.filled.start + HEAD_LEN;
        let data = body + body_len;
        self.filled.start = data + data_len;
        Ok(Some(Message {
            head,
            body: body..data,
            data: data..data + data_len,
        }))
    }

    /// Reads until `len` bytes are there; false at the end of the stream, if nothing is.
    fn fill<S: Read>(&mut self, stream: &mut S, len: usize) -> Result<bool, StreamError> {
        if self.filled.len() >= len {
            return Ok(true);
        }
        if self.filled.start + len > self.buffer.len() || self.filled.is_empty() {
            self.buffer.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
            let room = len.max(FIRST_ROOM);
            if room > self.buffer.len() {
                self.buffer.resize(room, 0);
            } else if self.filled.len() <= FIRST_ROOM && room == FIRST_ROOM {
                // What a long message took is given back.
                self.buffer.truncate(FIRST_ROOM);
                self.buffer.shrink_to_fit();
            }
        }
        while self.filled.len() < len {
            match stream.read(&mut self.buffer[self.filled.end..]) {
                Ok(0) if self.filled.is_empty() => return Ok(false),
                Ok(0) => {
                    return Err(StreamError::Cut {
                        missing: len - self.filled.len(),
                    });
                }
                Ok(read) => self.filled.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Who has ended without reading the last answer.
                Err(error)
                    if error.kind() == io::ErrorKind::ConnectionReset && self.filled.is_empty() =>
                {
                    return Ok(false);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

const _: () = assert!(HEAD_LEN + MOST_BODY <= FIRST_ROOM);
