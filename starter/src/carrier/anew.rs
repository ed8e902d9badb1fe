//! A line that breaks is made anew, as long as the job's lease lasts.
//!
//! ```text
//! broken: the shims' streams get their end --they make new ones, which wait--> line again: anchor, then what has come meanwhile
//!   `-- each old stream is a witness: the job is there as long as one is --none is left--> over
//! ```
//! A stream that nobody asks anything on (the session's, a lane that is not in use) does not learn that the line broke, so its end is the end of the
//! processes that have it. For a job that asks nothing the starter has a stream of its own in the session, the *anchor*, whose end says that the job has
//! ended.

use super::{Carrier, WITNESSES};
use crate::error::CarrierError;
use crate::streams::Stream;
use line::{Frame, Line, Purpose};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{Shutdown, shutdown};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use wire::{HEAD_LEN, Head, Hello, Reply, Role, Token};

/// As long a shadow is looked for that is to be told that the job has ended.
const FAREWELL: Duration = Duration::from_secs(60);
/// How long after a line was made anew our own stream may be refused for now.
const ANCHORED_WITHIN: Duration = Duration::from_secs(60);
const ANCHOR_AGAIN: Duration = Duration::from_millis(200);
/// Bytes of what is said first on a stream, at most.
const GREETING: usize = HEAD_LEN + 1024;
/// The first pause between two attempts, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// There is no line.
#[derive(Debug)]
pub enum NoLine {
    /// Perhaps there is one later.
    Now(String),
    /// There never will be.
    Ever(String),
}

/// How a line is made anew.
pub struct Again {
    /// As long it is tried.
    pub lease: Duration,
    /// The job's.
    pub token: Token,
    /// Tries once; both have said what they say first.
    pub connect: Box<dyn FnMut() -> Result<Line, NoLine>>,
    /// Readable when it is worth trying, which is at once; none: it is tried again and again.
    pub knock: Option<OwnedFd>,
}

impl fmt::Debug for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Again")
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// Our own stream in the session, once a line has broken.
#[derive(Default)]
pub(super) struct Anchor {
    number: Option<u32>,
    /// The shadow has greeted it.
    greeted: bool,
    /// It was refused for now: when it is tried again.
    pub(super) again: Option<Instant>,
    /// How long that is tried.
    until: Option<Instant>,
    token: Option<Token>,
}

impl Carrier {
    /// Waits for another line; whether there is one. If the job has ended meanwhile, and there is none, the shadow is not told.
    ///
    /// # Errors
    /// The lease is over, or it is no use: [`CarrierError::Lost`].
    pub(super) fn begin_anew(
        &mut self,
        lost: io::Error,
        again: &mut Again,
    ) -> Result<bool, CarrierError> {
        self.break_streams();
        let began = Instant::now();
        let mut ended: Option<Instant> = None;
        let (mut pause, longest) = PAUSES;
        let line = loop {
            // A job of our own is told of, as long as there may be somebody to tell.
            if self.job.is_none() && self.witnesses.is_empty() {
                let ended = ended.get_or_insert_with(Instant::now);
                if self.session.is_none() || ended.elapsed() >= FAREWELL {
                    return Ok(false);
                }
            }
            match (again.connect)() {
                Ok(line) => break line,
                Err(_) if ended.is_some() && began.elapsed() >= again.lease => return Ok(false),
                Err(NoLine::Ever(why)) => return Err(CarrierError::Lost(io::Error::other(why))),
                Err(NoLine::Now(_)) if began.elapsed() >= again.lease => {
                    return Err(CarrierError::Lost(lost));
                }
                Err(NoLine::Now(_)) => {}
            }
            if self.knock.is_some() {
                // Nothing changes before there is a knock.
                pause = again.lease.saturating_sub(began.elapsed());
            }
            self.look_at_witnesses(pause)?;
            if self.heed_signals() {
                return Err(CarrierError::Left);
            }
            pause = longest.min(pause * 2);
        };
        self.go_over(line, again)?;
        Ok(true)
    }

    /// Somebody has come with another line. If it is good, the one that we have is broken, though neither we nor its server have noticed.
    ///
    /// # Errors
    /// [`CarrierError::System`].
    pub(super) fn answer(&mut self, again: &mut Again) -> Result<(), CarrierError> {
        match (again.connect)() {
            Ok(line) => {
                self.break_streams();
                self.go_over(line, again)
            }
            Err(_) => Ok(()),
        }
    }

    /// Goes on over another line.
    fn go_over(&mut self, line: Line, again: &Again) -> Result<(), CarrierError> {
        line.set_nonblocking()?;
        self.line = line;
        self.epoll = epoll::create(CreateFlags::CLOEXEC)?;
        self.await_all()?;
        for (number, fd) in &self.witnesses {
            let name = EventData::new_u64(WITNESSES + u64::from(*number));
            epoll::add(&self.epoll, fd, name, EventFlags::IN | EventFlags::RDHUP)?;
        }
        self.anchor.until = Some(Instant::now() + ANCHORED_WITHIN);
        self.anchor.token = Some(again.token);
        self.drop_anchor()?;
        self.go_on_with_job()
    }

    /// The job's input and outputs go on where they were, and what is said of it is said again.
    fn go_on_with_job(&mut self) -> Result<(), CarrierError> {
        if self.job.is_none() {
            return Ok(());
        }
        self.control = Some(self.open(None, Purpose::Control)?);
        for mut stream in std::mem::take(&mut self.parked) {
            let count = stream.go_on();
            let number = self.begin_stream(stream)?;
            if let Some(count) = count {
                let frame = Frame::Data(number, count.len() as u32);
                self.back.extend(frame.to_bytes());
                self.back.extend(count);
            }
        }
        Ok(())
    }

    /// Whoever waits for an answer finds its stream broken; the others are witnesses.
    fn break_streams(&mut self) {
        for (number, stream) in self.streams.drain() {
            if stream.is_jobs() {
                if stream.goes_on() {
                    self.parked.push(stream);
                }
                continue;
            }
            let Stream {
                fd, purpose, told, ..
            } = stream;
            if let (Some(fd), Purpose::Calls, false) = (fd, purpose, told) {
                let _ = shutdown(&fd, Shutdown::Write);
                self.witnesses.insert(number, fd);
            }
        }
        for bytes in [&mut self.out, &mut self.front, &mut self.back] {
            bytes.clear();
        }
        self.sent = 0;
        self.stalled = false;
        self.pieces = line::Pieces::default();
        self.greetings.clear();
        self.anchor = Anchor::default();
        self.control = None;
        self.control_in.clear();
    }

    /// Until something has become of a witness, or so long: what has ended, or is used again and thereby found broken, is none any more.
    fn look_at_witnesses(&mut self, longest: Duration) -> Result<(), CarrierError> {
        let witnesses: Vec<(u32, OwnedFd)> = self.witnesses.drain().collect();
        let wanted = PollFlags::IN | PollFlags::RDHUP;
        let mut fds: Vec<_> = witnesses
            .iter()
            .map(|(_, fd)| PollFd::new(fd, wanted))
            .collect();
        let signals = self.signals.as_ref().map(AsFd::as_fd);
        let others = [signals, self.knock.as_ref().map(AsFd::as_fd)];
        fds.extend(
            others
                .iter()
                .flatten()
                .map(|fd| PollFd::new(fd, PollFlags::IN)),
        );
        let longest = Timespec {
            tv_sec: longest.as_secs() as i64,
            tv_nsec: longest.subsec_nanos().into(),
        };
        match poll(&mut fds, Some(&longest)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let quiet: Vec<bool> = fds.iter().map(|fd| fd.revents().is_empty()).collect();
        let mut spoke = false;
        for ((number, fd), quiet) in witnesses.into_iter().zip(quiet) {
            if quiet {
                self.witnesses.insert(number, fd);
            }
            spoke |= !quiet;
        }
        if spoke && !self.witnesses.is_empty() {
            // They come one by one, and are not to have us try the line each time.
            std::thread::sleep(PAUSES.0);
        }
        Ok(())
    }

    /// A witness has ended, or is used no more.
    pub(super) fn end_witness(&mut self, number: u32) -> Result<(), CarrierError> {
        if let Some(fd) = self.witnesses.remove(&number) {
            epoll::delete(&self.epoll, &fd)?;
        }
        Ok(())
    }

    /// A stream of our own, in the session of the job.
    fn drop_anchor(&mut self) -> Result<(), CarrierError> {
        let (Some(session), Some(token)) = (self.session, self.anchor.token) else {
            return Ok(());
        };
        let mut room = [0; 256];
        let hello = Hello::new(Role::Starter, token, session, 0).message(&mut room);
        let len = hello.map_err(io::Error::other)?;
        let number = self.open(None, Purpose::Calls)?;
        self.back.extend(Frame::Data(number, len as u32).to_bytes());
        self.back.extend(&room[..len]);
        if let Some(stream) = self.streams.get_mut(&number) {
            stream.credit -= len as u32;
        }
        self.anchor.number = Some(number);
        (self.anchor.greeted, self.anchor.again) = (false, None);
        Ok(())
    }

    /// Whether the job has ended but for our own part in it, which is ended then.
    pub(super) fn weigh_anchor(&mut self) -> Result<(), CarrierError> {
        if self.anchor.again.is_some_and(|when| Instant::now() >= when) {
            self.drop_anchor()?;
            self.collect();
            self.flush()?;
        }
        let Some(anchor) = self.anchor.number else {
            return Ok(());
        };
        if !self.streams.contains_key(&anchor) {
            // It has been closed there; if not for now, the shadow does not know the session, and says so to everybody.
            self.anchor.number = None;
            return Ok(());
        }
        // Who has not been greeted is not part of the session, and cannot end it.
        if !self.anchor.greeted || !self.witnesses.is_empty() {
            return Ok(());
        }
        let others = self.streams.iter().any(|(number, stream)| {
            *number != anchor && !matches!(stream.purpose, Purpose::Input | Purpose::Control)
        });
        if !others {
            self.anchor.number = None;
            self.close(anchor)?;
            self.collect();
            self.flush()?;
        }
        Ok(())
    }

    /// The shadow greets a process: which session that is.
    pub(super) fn overhear(&mut self, number: u32, bytes: &[u8]) {
        let is_anchor = self.anchor.number == Some(number) && !self.anchor.greeted;
        if self.session.is_some() && !is_anchor {
            return;
        }
        let greeting = self.greetings.entry(number).or_default();
        let room = GREETING - greeting.len().min(GREETING);
        greeting.extend(&bytes[..bytes.len().min(room)]);
        let Ok(head) = Head::read(greeting) else {
            return;
        };
        let body = greeting.get(HEAD_LEN..HEAD_LEN + head.body_len as usize);
        match body.map(|body| Reply::decode(head.kind, body)) {
            Some(Ok(Reply::Welcome(welcome))) => {
                self.anchor.greeted |= is_anchor;
                self.session = Some(welcome.session);
                self.greetings.clear();
            }
            // Without it the session would stay when the job has ended.
            Some(Ok(Reply::Refused(refusal)))
                if is_anchor
                    && refusal.passing
                    && self.anchor.until.is_some_and(|end| Instant::now() < end) =>
            {
                self.anchor.again = Some(Instant::now() + ANCHOR_AGAIN);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier::{End, carry};
    use line::{Piece, Pieces};
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::sync::mpsc;
    use wire::{Refusal, Welcome};

    const SOON: Duration = Duration::from_secs(20);
    const TOKEN: Token = [4; 32];

    /// The shadow's end of a line.
    struct Shadow {
        stream: UnixStream,
        pieces: Pieces,
        unread: Vec<u8>,
    }

    impl Shadow {
        fn line() -> (Line, Self) {
            let (ours, stream) = UnixStream::pair().expect("a pair");
            stream.set_read_timeout(Some(SOON)).expect("sets");
            let output = ours.try_clone().expect("clones");
            let line = Line::plain(ours.into(), output.into()).expect("a line");
            let shadow = Shadow {
                stream,
                pieces: Pieces::default(),
                unread: vec![],
            };
            (line, shadow)
        }

        /// The next stream that says hello, and what it says.
        fn greeted(&mut self) -> (u32, Hello) {
            let mut said = vec![];
            loop {
                while !self.unread.is_empty() {
                    let mut rest = &self.unread[..];
                    let piece = self.pieces.next(&mut rest).expect("sound");
                    if let Some(Piece::Data(number, bytes)) = piece {
                        said.extend(bytes);
                        if let Some(body) = said.get(HEAD_LEN..)
                            && let Ok(hello) = Hello::decode(body)
                        {
                            self.unread = rest.to_vec();
                            return (number, hello);
                        }
                    }
                    self.unread = rest.to_vec();
                }
                self.fill();
            }
        }

        /// Until this stream is closed.
        fn closed(&mut self, number: u32) {
            loop {
                while !self.unread.is_empty() {
                    let mut rest = &self.unread[..];
                    let piece = self.pieces.next(&mut rest).expect("sound");
                    let is_it = matches!(piece, Some(Piece::Close(closed)) if closed == number);
                    self.unread = rest.to_vec();
                    if is_it {
                        return;
                    }
                }
                self.fill();
            }
        }

        fn fill(&mut self) {
            let mut bytes = [0; 4096];
            let len = self.stream.read(&mut bytes).expect("says something");
            assert!(len > 0, "the line has ended");
            self.unread.extend(&bytes[..len]);
        }

        fn answer(&mut self, number: u32, reply: &Reply<'_>) {
            let mut room = [0; HEAD_LEN + 1024];
            let len = reply.message(1, 0, &mut room).expect("fits");
            let frame = Frame::Data(number, len as u32).to_bytes();
            self.stream.write_all(&frame).expect("sends");
            self.stream.write_all(&room[..len]).expect("sends");
        }

        fn close(&mut self, number: u32) {
            let frame = Frame::Close(number).to_bytes();
            self.stream.write_all(&frame).expect("sends");
        }
    }

    /// The job has ended while there was no line, and the shadow has no room for the stream that is to say so.
    #[test]
    fn an_end_that_is_refused_for_now_is_told_again() {
        let dir = tempfile::tempdir().expect("a folder");
        let door = dir.path().join("door");
        let listener = UnixListener::bind(&door).expect("listens");
        let (line, mut shadow) = Shadow::line();
        let (lines, next) = mpsc::channel();
        let starter = std::thread::spawn(move || {
            let connect = move || next.try_recv().map_err(|_| NoLine::Now(String::new()));
            let again = Again {
                lease: SOON,
                token: TOKEN,
                connect: Box::new(connect),
                knock: None,
            };
            carry(listener, line, None, Some(again))
        });
        let mut process = UnixStream::connect(&door).expect("connects");
        let mut room = [0; 256];
        let hello = Hello::new(Role::Shim, TOKEN, 0, 0).message(&mut room);
        let len = hello.expect("fits");
        process.write_all(&room[..len]).expect("sends");
        let (number, _) = shadow.greeted();
        let welcome = Reply::Welcome(Welcome {
            version: wire::VERSION,
            session: 7,
            most_in_flight: 1,
        });
        shadow.answer(number, &welcome);
        let mut head = [0; HEAD_LEN];
        process.read_exact(&mut head).expect("is welcome");
        drop(shadow);
        drop(process);
        let (line, mut shadow) = Shadow::line();
        lines.send(line).expect("is wanted");
        let refused = Reply::Refused(Refusal {
            reason: "too many streams",
            passing: true,
        });
        for _ in 0..2 {
            let (number, hello) = shadow.greeted();
            assert_eq!((hello.role, hello.session), (Role::Starter, 7));
            shadow.answer(number, &refused);
            shadow.close(number);
        }
        let (number, hello) = shadow.greeted();
        assert_eq!((hello.role, hello.session), (Role::Starter, 7));
        shadow.answer(number, &welcome);
        shadow.closed(number);
        shadow.close(number);
        let end = starter.join().expect("ends");
        assert_eq!(end.expect("in peace"), End { status: None });
    }
}
