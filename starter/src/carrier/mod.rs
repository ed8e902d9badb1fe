//! The one thread that carries: waits for whatever is ready, moves bytes, waits again.
//!
//! ```text
//! round:  closings ─┐  then what processes have sent ──> frames ──> line
//!         line ──> pieces ──> descriptors; what they have no room for waits, within their credit
//! line has no room: nothing is read from processes until it has
//! ```
//! A process that has seen another end must find its locks free at the shadow (docs/adr/0010), so in each round closings go
//! before data, and once more after data were read: whatever was closed before they were sent is seen then.

mod anew;
mod traffic;

pub use anew::{Again, NoLine};

use crate::error::CarrierError;
use crate::job::{Job, Status};
use crate::streams::{Stream, Taken};
use anew::Anchor;
use line::{Frame, Line, MOST_FRAME, MOST_STREAMS, Pieces, Purpose};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

/// Streams that are not processes': the job's input and outputs, control.
const RESERVE: usize = 8;
/// How long a starter waits for its first stream.
pub(crate) const BEGINS_WITHIN: Duration = Duration::from_secs(60);

const LINE_IN: u64 = 0;
const LINE_OUT: u64 = 1;
const LISTENER: u64 = 2;
const SIGNALS: u64 = 3;
const KNOCK: u64 = 4;
/// The number of a stream and this is what its events are called.
const STREAMS: u64 = 16;
/// The same for a stream of a line that has broken.
const WITNESSES: u64 = 1 << 40;

/// How it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// How the job has, if the starter has begun it.
    pub status: Option<Status>,
}

/// Carries what comes to the listener, and the job's input and outputs, until the last stream has ended. A line that breaks is made `again`.
///
/// # Errors
/// [`CarrierError`]. A job that the starter has begun has ended then, too.
pub fn carry(
    listener: UnixListener,
    line: Line,
    job: Option<Job>,
    mut again: Option<Again>,
) -> Result<End, CarrierError> {
    let knock = again.as_mut().and_then(|again| again.knock.take());
    let mut carrier = Carrier::new(listener, line, job, knock)?;
    let result = loop {
        match carrier.run() {
            // There was nobody left to lose it.
            Err(CarrierError::Lost(_)) if carrier.is_idle() && again.is_none() => {
                break Ok(End { status: None });
            }
            Err(CarrierError::Lost(_))
                if carrier.line.is_left.as_mut().is_some_and(|left| left()) =>
            {
                break Err(CarrierError::Left);
            }
            Err(CarrierError::Lost(error)) => match &mut again {
                Some(again) => match carrier.begin_anew(error, again) {
                    Ok(true) => {}
                    Ok(false) => break Ok(End { status: None }),
                    Err(error) => break Err(error),
                },
                None => break Err(CarrierError::Lost(error)),
            },
            Err(CarrierError::Knocked) => {
                if let Some(Err(error)) = again.as_mut().map(|again| carrier.answer(again)) {
                    break Err(error);
                }
            }
            result => break result,
        }
    };
    if result.is_err() {
        carrier.end_job();
    }
    result
}

struct Carrier {
    listener: UnixListener,
    line: Line,
    job: Option<Job>,
    epoll: OwnedFd,
    signals: Option<SignalFd>,
    /// Readable when there is another line.
    knock: Option<OwnedFd>,
    streams: HashMap<u32, Stream>,
    /// Streams of lines that have broken, whose processes have not noticed yet.
    witnesses: HashMap<u32, OwnedFd>,
    /// The job's input and outputs, as long as there is no line.
    parked: Vec<Stream>,
    anchor: Anchor,
    /// The job's session, and what the shadow has said first on streams until that is known.
    session: Option<u64>,
    greetings: HashMap<u32, Vec<u8>>,
    last_number: u32,
    control: Option<u32>,
    control_in: Vec<u8>,
    /// Frames for the line; the first `sent` bytes have gone.
    out: Vec<u8>,
    sent: usize,
    /// The line has no room.
    stalled: bool,
    /// Frames of this round: those that go first, the others.
    front: Vec<u8>,
    back: Vec<u8>,
    round: u64,
    pieces: Pieces,
    inbox: Vec<u8>,
    scratch: Vec<u8>,
    /// There has been a stream of a process.
    begun: bool,
    started: Instant,
}

impl Carrier {
    fn new(
        listener: UnixListener,
        line: Line,
        job: Option<Job>,
        knock: Option<OwnedFd>,
    ) -> Result<Self, CarrierError> {
        listener.set_nonblocking(true)?;
        line.set_nonblocking()?;
        let mut signals = None;
        if job.is_some() {
            let all = [
                Signal::SIGCHLD,
                Signal::SIGTERM,
                Signal::SIGINT,
                Signal::SIGHUP,
            ];
            let all: SigSet = all.into_iter().collect();
            all.thread_block()?;
            let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
            signals = Some(SignalFd::with_flags(&all, flags)?);
        }
        let mut carrier = Carrier {
            listener,
            line,
            job,
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            signals,
            knock,
            streams: HashMap::new(),
            witnesses: HashMap::new(),
            parked: vec![],
            anchor: Anchor::default(),
            session: None,
            greetings: HashMap::new(),
            last_number: 0,
            control: None,
            control_in: vec![],
            out: vec![],
            sent: 0,
            stalled: false,
            front: vec![],
            back: vec![],
            round: 0,
            pieces: Pieces::default(),
            inbox: vec![0; traffic::PORTION],
            scratch: vec![0; MOST_FRAME],
            begun: false,
            started: Instant::now(),
        };
        carrier.await_all()?;
        if let Some(ends) = carrier.job.as_mut().and_then(|job| job.ends.take()) {
            carrier.control = Some(carrier.open(None, Purpose::Control)?);
            let purposes = [Purpose::Input, Purpose::Output, Purpose::Errors];
            for (fd, purpose) in ends.into_iter().zip(purposes) {
                rustix::io::ioctl_fionbio(&fd, true)?;
                carrier.open(Some(fd), purpose)?;
            }
        }
        Ok(carrier)
    }

    /// Tells the kernel of everything but streams that is waited for.
    fn await_all(&self) -> Result<(), CarrierError> {
        let await_one = |fd: BorrowedFd<'_>, name: u64, flags: EventFlags| {
            epoll::add(&self.epoll, fd, EventData::new_u64(name), flags)
        };
        await_one(self.line.ends.0.as_fd(), LINE_IN, EventFlags::IN)?;
        await_one(self.line.ends.1.as_fd(), LINE_OUT, EventFlags::empty())?;
        await_one(self.listener.as_fd(), LISTENER, EventFlags::IN)?;
        if let Some(signals) = &self.signals {
            await_one(signals.as_fd(), SIGNALS, EventFlags::IN)?;
        }
        if let Some(knock) = &self.knock {
            await_one(knock.as_fd(), KNOCK, EventFlags::IN)?;
        }
        Ok(())
    }

    fn run(&mut self) -> Result<End, CarrierError> {
        let mut events = Vec::with_capacity(MOST_STREAMS + STREAMS as usize);
        let mut more = false;
        // Before its end could be told.
        self.look();
        loop {
            self.collect();
            self.flush()?;
            if let Some(end) = self.ended()? {
                return Ok(end);
            }
            if !self.wait(&mut events, more)? {
                more = self.read_line()?;
                continue;
            }
            let line_ready = self.heed(&events)?;
            self.collect();
            // What was asked goes before what was answered is handed out.
            self.flush()?;
            more = (line_ready || more) && self.read_line()?;
        }
    }

    /// Processes have come, and all have gone; only the shadow has not said yet that it knows.
    fn is_idle(&self) -> bool {
        self.begun
            && self.job.is_none()
            && self.witnesses.is_empty()
            && self.streams.values().all(|stream| stream.told)
    }

    /// Whether it is over; the last thing said is how the job has ended.
    fn ended(&mut self) -> Result<Option<End>, CarrierError> {
        self.weigh_anchor()?;
        let idle = |stream: &Stream| matches!(stream.purpose, Purpose::Input | Purpose::Control);
        if !self.witnesses.is_empty() || self.anchor.again.is_some() {
            return Ok(None);
        }
        if !self.streams.values().all(idle) {
            self.begun = true;
            return Ok(None);
        }
        let status = self.job.as_ref().map(|job| job.status);
        match (status, self.control) {
            (Some(None), _) => return Ok(None),
            (Some(Some(status)), Some(control)) => {
                let notices = Job::last_notices(status);
                self.out
                    .extend(Frame::Data(control, notices.len() as u32).to_bytes());
                self.out.extend(notices);
                self.out.extend(Frame::Close(control).to_bytes());
                self.control = None;
                if let Some(stream) = self.streams.get_mut(&control) {
                    stream.told = true;
                }
                self.flush()?;
                return Ok(None);
            }
            (Some(Some(_)), None) => {
                let told = |stream: &Stream| stream.purpose == Purpose::Control;
                if self.streams.values().any(told) {
                    return Ok(None);
                }
            }
            (None, _) if !self.begun => return Ok(None),
            (None, _) => {}
        }
        let status = status.flatten();
        Ok(Some(End { status }))
    }

    /// Waits until something is ready; false: only the line was looked at, and may have something.
    fn wait(&mut self, events: &mut Vec<Event>, now: bool) -> Result<bool, CarrierError> {
        events.clear();
        if self.out.len() - self.sent > traffic::MOST_OUT {
            let mut fds = vec![
                PollFd::new(&self.line.ends.0, PollFlags::IN),
                PollFd::new(&self.line.ends.1, PollFlags::OUT),
            ];
            fds.extend(
                self.signals
                    .as_ref()
                    .map(|fd| PollFd::new(fd, PollFlags::IN)),
            );
            let knock = fds.len();
            fds.extend(self.knock.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
            let timeout = now.then(Timespec::default);
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if fds.get(knock).is_some_and(|fd| !fd.revents().is_empty()) {
                return Err(CarrierError::Knocked);
            }
            self.heed_signals();
            return Ok(false);
        }
        let timeout = if now {
            Some(Timespec::default())
        } else if let Some(when) = self.anchor.again {
            let left = when.saturating_duration_since(Instant::now());
            Some(Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            })
        } else if self.begun || self.job.is_some() {
            None
        } else {
            let left = BEGINS_WITHIN.saturating_sub(self.started.elapsed());
            if left.is_zero() {
                return Err(CarrierError::Idle);
            }
            Some(Timespec {
                tv_sec: left.as_secs() as i64 + 1,
                tv_nsec: 0,
            })
        };
        match epoll::wait(&self.epoll, spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// One round; whether the line has something.
    fn heed(&mut self, events: &[Event]) -> Result<bool, CarrierError> {
        self.round += 1;
        let mut line_ready = false;
        let mut knocked = false;
        let mut readable = vec![];
        for event in events {
            let flags = event.flags;
            match event.data.u64() {
                LINE_IN | LINE_OUT if flags.intersects(EventFlags::ERR) => {
                    let error = io::Error::from(io::ErrorKind::BrokenPipe);
                    return Err(CarrierError::Lost(error));
                }
                LINE_IN => line_ready = true,
                LINE_OUT => {}
                LISTENER => knocked = true,
                SIGNALS => {
                    self.heed_signals();
                }
                KNOCK => return Err(CarrierError::Knocked),
                name @ WITNESSES.. => self.end_witness((name - WITNESSES) as u32)?,
                name => {
                    let number = (name - STREAMS) as u32;
                    if is_end(flags) {
                        self.read_to_end(number)?;
                        continue;
                    }
                    if flags.contains(EventFlags::OUT) {
                        self.drain(number)?;
                    }
                    if flags.contains(EventFlags::IN) {
                        readable.push(number);
                    }
                }
            }
        }
        for number in &readable {
            self.read(*number)?;
        }
        if !readable.is_empty() {
            self.look_for_ends()?;
        }
        if knocked {
            self.accept()?;
        }
        Ok(line_ready)
    }

    /// Streams whose end was there before what has been read was sent.
    fn look_for_ends(&mut self) -> Result<(), CarrierError> {
        let mut events: Vec<Event> = Vec::with_capacity(MOST_STREAMS + STREAMS as usize);
        let now = Timespec::default();
        match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&now)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let name = event.data.u64();
            let flags = event.flags;
            if !(STREAMS..WITNESSES).contains(&name) || !is_end(flags) {
                continue;
            }
            let number = (name - STREAMS) as u32;
            let spoken = self
                .streams
                .get(&number)
                .is_some_and(|stream| stream.round == self.round);
            if spoken {
                self.read_to_end(number)?;
            } else {
                // With nothing of its own in this round it may go in front.
                std::mem::swap(&mut self.front, &mut self.back);
                let result = self.read_to_end(number);
                std::mem::swap(&mut self.front, &mut self.back);
                result?;
            }
        }
        Ok(())
    }

    /// Reads once from a stream.
    fn read(&mut self, number: u32) -> Result<bool, CarrierError> {
        let Some(stream) = self.streams.get_mut(&number) else {
            return Ok(false);
        };
        let Some(fd) = stream.fd.as_ref().filter(|_| !stream.closed) else {
            return Ok(false);
        };
        let most = self.scratch.len().min(stream.credit as usize);
        if most == 0 || stream.purpose == Purpose::Input {
            return Ok(false);
        }
        match rustix::io::read(fd, &mut self.scratch[..most]) {
            Ok(len @ 1..) => {
                stream.send(&self.scratch[..len]);
                stream.round = self.round;
                self.back.extend(Frame::Data(number, len as u32).to_bytes());
                self.back.extend(&self.scratch[..len]);
                self.await_stream(number)?;
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            // Its end, in peace or not.
            Ok(0) | Err(_) => {
                self.close(number)?;
                Ok(false)
            }
        }
    }

    /// Nobody sends on it any more.
    fn read_to_end(&mut self, number: u32) -> Result<(), CarrierError> {
        while self.read(number)? {}
        let Some(stream) = self.streams.get_mut(&number) else {
            return Ok(());
        };
        if stream.closed || stream.purpose == Purpose::Input {
            stream.forget_backlog();
            self.close(number)?;
        }
        Ok(())
    }

    fn drain(&mut self, number: u32) -> Result<(), CarrierError> {
        if let Some(stream) = self.streams.get_mut(&number) {
            let taken = stream.drain();
            self.tell(number, taken)?;
        }
        Ok(())
    }

    fn tell(&mut self, number: u32, taken: Taken) -> Result<(), CarrierError> {
        match taken {
            Taken::Quiet => {}
            Taken::Credit(len) => {
                self.back.extend(Frame::Credit(number, len).to_bytes());
                // Its end may not overtake this.
                if let Some(stream) = self.streams.get_mut(&number) {
                    stream.round = self.round;
                }
            }
            Taken::Over => return self.close(number),
        }
        let done = self
            .streams
            .get(&number)
            .is_some_and(|stream| stream.closed && !stream.has_backlog());
        if done {
            return self.close(number);
        }
        self.await_stream(number)
    }

    /// We neither read nor write it any more.
    fn close(&mut self, number: u32) -> Result<(), CarrierError> {
        let Some(stream) = self.streams.get_mut(&number) else {
            return Ok(());
        };
        stream.forget_backlog();
        if let Some(fd) = stream.fd.take()
            && stream.awaited.take().is_some()
        {
            epoll::delete(&self.epoll, &fd)?;
        }
        if !stream.told {
            stream.told = true;
            self.back.extend(Frame::Close(number).to_bytes());
        }
        if stream.is_over() {
            self.streams.remove(&number);
        }
        Ok(())
    }

    /// Tells the kernel what a stream waits for.
    fn await_stream(&mut self, number: u32) -> Result<(), CarrierError> {
        let Some(stream) = self.streams.get_mut(&number) else {
            return Ok(());
        };
        let (wanted, before) = (stream.wanted(), stream.awaited);
        let Some(fd) = stream.fd.as_ref().filter(|_| wanted != before) else {
            return Ok(());
        };
        let name = EventData::new_u64(STREAMS + u64::from(number));
        match (before, wanted) {
            (None, Some(flags)) => epoll::add(&self.epoll, fd, name, flags)?,
            (Some(_), Some(flags)) => epoll::modify(&self.epoll, fd, name, flags)?,
            (Some(_), None) => epoll::delete(&self.epoll, fd)?,
            (None, None) => {}
        }
        stream.awaited = wanted;
        Ok(())
    }

    fn open(&mut self, fd: Option<OwnedFd>, purpose: Purpose) -> Result<u32, CarrierError> {
        self.begin_stream(Stream::new(fd, purpose))
    }

    fn begin_stream(&mut self, mut stream: Stream) -> Result<u32, CarrierError> {
        let mut number = self.last_number.wrapping_add(1);
        while self.streams.contains_key(&number) {
            number = number.wrapping_add(1);
        }
        self.last_number = number;
        let purpose = stream.purpose;
        stream.round = self.round;
        self.streams.insert(number, stream);
        self.back.extend(Frame::Open(number, purpose).to_bytes());
        self.await_stream(number)?;
        Ok(number)
    }

    fn accept(&mut self) -> Result<(), CarrierError> {
        loop {
            let flags = rustix::net::SocketFlags::NONBLOCK | rustix::net::SocketFlags::CLOEXEC;
            let fd = match rustix::net::accept_with(&self.listener, flags) {
                Ok(fd) => fd,
                // Whoever has come is there yet when there are descriptors again.
                Err(_) => return Ok(()),
            };
            let own = rustix::net::sockopt::socket_peercred(&fd)
                .is_ok_and(|peer| peer.uid == rustix::process::geteuid());
            if own && self.streams.len() < MOST_STREAMS - RESERVE {
                self.open(Some(fd), Purpose::Calls)?;
            }
        }
    }

    /// Signals that are for the job, and that of its end; whether one was for a job that has ended, and so for us.
    fn heed_signals(&mut self) -> bool {
        let mut ours = false;
        while let Some(Ok(Some(info))) = self.signals.as_ref().map(SignalFd::read_signal) {
            match &self.job {
                Some(job) if info.ssi_signo != Signal::SIGCHLD as u32 => {
                    job.signal(info.ssi_signo);
                    ours |= job.status.is_some();
                }
                _ => self.look(),
            }
        }
        ours
    }

    fn look(&mut self) {
        if let Some(job) = &mut self.job {
            job.look();
        }
    }

    /// The line is lost: the job cannot go on.
    fn end_job(&mut self) {
        // Whoever waits for an answer gets none.
        self.streams.clear();
        if let (Some(job), Some(signals)) = (&mut self.job, &self.signals) {
            job.end(signals);
        }
    }
}

fn is_end(flags: EventFlags) -> bool {
    flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR)
}
