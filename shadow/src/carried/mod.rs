//! Many streams on one line, as a starter sends them: each is served like one that came by itself.
//!
//! ```text
//! line --pieces of frames--> reader (one thread) --socket pair--> stream's thread: greet, serve
//!   ^---------------------- frames of answers, within the credit ----------'
//! ```
//! # What callers may rely on
//! A stream that is not read, or is parked, holds up no other. What waits to be read on all streams is bounded: above that
//! the line is not read. A peer that breaks the rules loses the line, and with it all its streams.

mod stream;

pub use stream::{Carried, CarriedWriter};

use crate::connection::{Incoming, StreamError, greet, serve};
use crate::sessions::Sessions;
use line::{
    Frame, FrameError, HANDSHAKE_WITHIN, Line, MOST_STREAMS, Piece, Pieces, Preface, PrefaceError,
    Purpose,
};
use std::collections::HashMap;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stream::Inner;

/// Bytes that wait in memory to be read, on all streams of a line: as many as 64 of the largest messages.
const MOST_WAITING: usize = 64 << 20;
/// Bytes read at once.
const PORTION: usize = 256 << 10;
/// How long what is being served may take when the line is gone.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// A line has ended otherwise than it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CarryError {
    /// The other side is no starter.
    #[error("no starter is at the other end of the line")]
    Preface(#[from] PrefaceError),
    /// It broke.
    #[error("the line broke")]
    Broken(#[from] io::Error),
    /// What came is no frame.
    #[error("the starter sent what is no frame")]
    Garbage(#[from] FrameError),
    /// Frames in an order that has no meaning.
    #[error("the starter broke a rule on stream {stream}: {rule}")]
    Rule {
        /// The stream.
        stream: u32,
        /// Which rule.
        rule: &'static str,
    },
}

/// Takes streams that are not the job's requests; called for each in a thread of its own.
pub type Taker = dyn Fn(Purpose, Carried) + Send + Sync;

/// Says who we are, and hears whether a starter is there; where that is found again if the line breaks, or nothing.
///
/// # Errors
/// [`CarryError::Preface`].
pub fn introduce(line: &mut Line, preface: &Preface) -> Result<Vec<u8>, CarryError> {
    line.wait_at_most(Some(HANDSHAKE_WITHIN));
    let place = preface.exchange(&mut *line.input, &mut *line.output)?;
    line.wait_at_most(None);
    Ok(place)
}

/// Serves a line on which both have said who they are until its end, which the starter makes when the last of the job's streams has ended.
///
/// # Errors
/// [`CarryError`].
pub fn carry(
    mut line: Line,
    sessions: &Arc<Sessions>,
    taker: &Arc<Taker>,
) -> Result<(), CarryError> {
    let carrier = Arc::new(Carrier {
        output: Mutex::new(line.output),
        ends: line.ends,
        streams: Mutex::default(),
        last: Condvar::new(),
        waiting: Mutex::default(),
        taken: Condvar::new(),
    });
    let result = carrier.read(&mut *line.input, sessions, taker);
    carrier.end();
    result
}

/// What the threads of a line share.
struct Carrier {
    output: Mutex<Box<dyn Write + Send>>,
    ends: (OwnedFd, OwnedFd),
    streams: Mutex<HashMap<u32, Arc<Inner>>>,
    /// Rings when a stream is over.
    last: Condvar,
    /// Bytes in memory that wait to be read.
    waiting: Mutex<usize>,
    /// Rings when there are fewer.
    taken: Condvar,
}

impl std::fmt::Debug for Carrier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Carrier")
            .field("ends", &self.ends)
            .finish_non_exhaustive()
    }
}

impl Carrier {
    fn read(
        self: &Arc<Self>,
        input: &mut dyn Read,
        sessions: &Arc<Sessions>,
        taker: &Arc<Taker>,
    ) -> Result<(), CarryError> {
        let mut portion = vec![0; PORTION];
        let mut pieces = Pieces::default();
        loop {
            let len = match input.read(&mut portion) {
                Ok(0) if self.streams().is_empty() => return Ok(()),
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            let mut rest = &portion[..len];
            while let Some(piece) = pieces.next(&mut rest)? {
                self.heed(piece, sessions, taker)?;
            }
            let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let _below = self
                .taken
                .wait_while(waiting, |waiting| *waiting > MOST_WAITING);
        }
    }

    fn heed(
        self: &Arc<Self>,
        piece: Piece<'_>,
        sessions: &Arc<Sessions>,
        taker: &Arc<Taker>,
    ) -> Result<(), CarryError> {
        let broken = |stream| move |rule| CarryError::Rule { stream, rule };
        let known = |stream| self.stream(stream).ok_or("it is not open");
        match piece {
            Piece::Open(stream, purpose) => self
                .open(stream, purpose, sessions, taker)
                .map_err(broken(stream)),
            Piece::Data(stream, bytes) => known(stream)
                .and_then(|inner| inner.receive(bytes))
                .map_err(broken(stream)),
            Piece::Credit(stream, len) => known(stream)
                .and_then(|inner| inner.credit(len))
                .map_err(broken(stream)),
            Piece::Close(stream) => known(stream)
                .and_then(|inner| inner.close())
                .map_err(broken(stream)),
        }
    }

    fn open(
        self: &Arc<Self>,
        number: u32,
        purpose: Purpose,
        sessions: &Arc<Sessions>,
        taker: &Arc<Taker>,
    ) -> Result<(), &'static str> {
        let mut streams = self.streams();
        if streams.len() >= MOST_STREAMS {
            return Err("it is one too many");
        }
        if streams.contains_key(&number) {
            return Err("it is open already");
        }
        let (inner, carried) = match Carried::begin(self, number) {
            Ok(begun) => begun,
            Err(error) => {
                drop(streams);
                tracing::warn!(%error, "a stream is refused: no sockets for it");
                let _ = self.send(&[&Frame::Close(number).to_bytes()]);
                return Err("there are no sockets for it");
            }
        };
        streams.insert(number, inner);
        drop(streams);
        let (sessions, taker) = (sessions.clone(), taker.clone());
        let spawned = std::thread::Builder::new().spawn(move || match purpose {
            Purpose::Calls => {
                if let Err(error) = converse(carried, &sessions) {
                    let error: &dyn std::error::Error = &error;
                    tracing::info!(error, "a stream has ended");
                }
            }
            other => taker(other, carried),
        });
        if let Err(error) = spawned {
            // The stream went with what was to be the thread's.
            tracing::warn!(%error, "a stream is refused: no thread for it");
        }
        Ok(())
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<u32, Arc<Inner>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stream(&self, number: u32) -> Option<Arc<Inner>> {
        self.streams().get(&number).cloned()
    }

    /// Both sides have closed it.
    fn forget(&self, number: u32) {
        let mut streams = self.streams();
        streams.remove(&number);
        drop(streams);
        self.last.notify_all();
    }

    /// Sends a frame whole.
    fn send(&self, parts: &[&[u8]]) -> io::Result<()> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let mut slices = [IoSlice::new(&[]); 4];
        for (slice, part) in slices.iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        let mut slices = &mut slices[..parts.len()];
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            match output.write_vectored(slices) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut slices, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        output.flush()
    }

    fn wait_more(&self, bytes: usize) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting += bytes;
    }

    fn wait_less(&self, bytes: usize) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting -= bytes.min(*waiting);
        drop(waiting);
        self.taken.notify_one();
    }

    /// Its reader finds it ended, and ends its streams.
    fn break_off(&self) {
        for end in [&self.ends.0, &self.ends.1] {
            let _ = rustix::net::shutdown(end, rustix::net::Shutdown::Both);
        }
    }

    /// The line is gone: streams end, and what they have begun is waited for.
    fn end(&self) {
        // Whoever waits to send does not any more; pipes tell it by themselves.
        let _ = rustix::net::shutdown(&self.ends.0, rustix::net::Shutdown::Both);
        let streams: Vec<_> = self.streams().values().cloned().collect();
        for stream in &streams {
            stream.line_is_gone();
        }
        drop(streams);
        let ended = self
            .last
            .wait_timeout_while(self.streams(), ENDS_WITHIN, |streams| !streams.is_empty());
        if let Ok((left, time)) = ended
            && time.timed_out()
        {
            tracing::warn!(
                streams = left.len(),
                "streams of a lost line are still served"
            );
        }
    }
}

/// Serves requests on a stream.
fn converse(mut stream: Carried, sessions: &Arc<Sessions>) -> Result<(), StreamError> {
    let mut incoming = Incoming::new();
    stream.set_read_timeout(Some(HANDSHAKE_WITHIN))?;
    let Some(membership) = greet(&mut stream, &mut incoming, sessions)? else {
        return Ok(());
    };
    stream.set_read_timeout(None)?;
    serve(&mut stream, &mut incoming, &membership)
}
