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
        self.drop_anchor(&again.token)?;
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
        self.anchor = None;
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
    fn drop_anchor(&mut self, token: &Token) -> Result<(), CarrierError> {
        let Some(session) = self.session else {
            return Ok(());
        };
        let mut room = [0; 256];
        let hello = Hello::new(Role::Starter, *token, session, 0).message(&mut room);
        let len = hello.map_err(io::Error::other)?;
        let number = self.open(None, Purpose::Calls)?;
        self.back.extend(Frame::Data(number, len as u32).to_bytes());
        self.back.extend(&room[..len]);
        if let Some(stream) = self.streams.get_mut(&number) {
            stream.credit -= len as u32;
        }
        self.anchor = Some(number);
        self.anchored = false;
        Ok(())
    }

    /// Whether the job has ended but for our own part in it, which is ended then.
    pub(super) fn weigh_anchor(&mut self) -> Result<(), CarrierError> {
        let Some(anchor) = self.anchor else {
            return Ok(());
        };
        if !self.streams.contains_key(&anchor) {
            // The shadow does not know the session, and says so to everybody.
            self.anchor = None;
            return Ok(());
        }
        // Who has not been greeted is not part of the session, and cannot end it.
        if !self.anchored || !self.witnesses.is_empty() {
            return Ok(());
        }
        let others = self.streams.iter().any(|(number, stream)| {
            *number != anchor && !matches!(stream.purpose, Purpose::Input | Purpose::Control)
        });
        if !others {
            self.anchor = None;
            self.close(anchor)?;
            self.collect();
            self.flush()?;
        }
        Ok(())
    }

    /// The shadow greets a process: which session that is.
    pub(super) fn overhear(&mut self, number: u32, bytes: &[u8]) {
        if self.anchor == Some(number) {
            self.anchored = true;
        }
        if self.session.is_some() {
            return;
        }
        let greeting = self.greetings.entry(number).or_default();
        greeting.extend(&bytes[..bytes.len().min(256)]);
        let Ok(head) = Head::read(greeting) else {
            return;
        };
        let body = greeting.get(HEAD_LEN..HEAD_LEN + head.body_len as usize);
        if let Some(Ok(Reply::Welcome(welcome))) = body.map(|body| Reply::decode(head.kind, body)) {
            self.session = Some(welcome.session);
            self.greetings.clear();
        }
    }
}
