//! One stream of a line, and what its thread sees of it: a socket to read from, which can be waited for as any other.
//!
//! ```text
//!          begun: open both ways
//!   Close comes: read to its end, no more is sent      dropped here: Close goes, what comes is thrown away
//!          both: over
//! ```

use super::Carrier;
use crate::copies::Ender;
use crate::peer::Peer;
use line::{CREDIT_STEP, Frame, MOST_FRAME, WINDOW};
use rustix::net::SendFlags;
use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What the line's reader and the stream's thread share.
#[derive(Debug)]
pub(super) struct Inner {
    number: u32,
    carrier: Arc<Carrier>,
    state: Mutex<State>,
    /// The line broke before the peer closed it.
    lost: Arc<AtomicBool>,
    /// Rings when more may be sent, or nothing any more.
    credit: Condvar,
}

#[derive(Debug)]
struct State {
    /// Bytes that we may send.
    credit: u32,
    /// Bytes that the peer may send.
    granted: u32,
    /// The reader's end of the socket pair.
    socket: UnixStream,
    /// What the socket has no room for. If there is something, the stream's thread has something to read.
    backlog: VecDeque<u8>,
    /// The peer has closed it.
    closed: bool,
    /// The stream's thread is done with it.
    dropped: bool,
    /// There is no line any more.
    gone: bool,
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes have come.
    pub(super) fn receive(&self, bytes: &[u8]) -> Result<(), &'static str> {
        let mut state = self.state();
        if state.closed {
            return Err("it has been closed");
        }
        let len = bytes.len() as u32;
        state.granted = state.granted.checked_sub(len).ok_or("it has no credit")?;
        if state.dropped {
            return Ok(());
        }
        let sent = if state.backlog.is_empty() {
            offer(&state.socket, bytes)
        } else {
            0
        };
        state.backlog.extend(&bytes[sent..]);
        drop(state);
        if sent < bytes.len() {
            self.carrier.wait_more(bytes.len() - sent);
        }
        Ok(())
    }

    /// More may be sent.
    pub(super) fn credit(&self, len: u32) -> Result<(), &'static str> {
        let mut state = self.state();
        state.credit = state
            .credit
            .checked_add(len)
            .ok_or("it has too much credit")?;
        drop(state);
        self.credit.notify_one();
        Ok(())
    }

    /// The peer has closed it.
    pub(super) fn close(&self) -> Result<(), &'static str> {
        let mut state = self.state();
        if std::mem::replace(&mut state.closed, true) {
            return Err("it has been closed");
        }
        if state.backlog.is_empty() {
            let _ = state.socket.shutdown(std::net::Shutdown::Write);
        }
        let over = state.dropped;
        drop(state);
        self.credit.notify_one();
        if over {
            self.carrier.forget(self.number);
        }
        Ok(())
    }

    /// Nothing will come any more, and nothing can be sent. What has come can be read yet.
    pub(super) fn line_is_gone(&self) {
        let mut state = self.state();
        // Before anybody sees its end.
        self.lost.fetch_or(!state.closed, Ordering::SeqCst);
        state.gone = true;
        state.closed = true;
        if state.backlog.is_empty() {
            let _ = state.socket.shutdown(std::net::Shutdown::Both);
        }
        let over = state.dropped;
        drop(state);
        self.credit.notify_one();
        if over {
            self.carrier.forget(self.number);
        }
    }

    /// The socket has room again: what waits moves up.
    fn refill(&self) {
        let mut state = self.state();
        let before = state.backlog.len();
        if before == 0 {
            return;
        }
        while !state.backlog.is_empty() {
            let state = &mut *state;
            let (front, _) = state.backlog.as_slices();
            let sent = offer(&state.socket, front);
            if sent == 0 {
                break;
            }
            state.backlog.drain(..sent);
        }
        let left = state.backlog.len();
        if left == 0 {
            state.backlog = VecDeque::new();
            if state.closed {
                let _ = state.socket.shutdown(std::net::Shutdown::Write);
            }
        }
        drop(state);
        self.carrier.wait_less(before - left);
    }

    /// So many bytes have been read: the peer may send as many more.
    fn give_back(&self, len: u32) -> io::Result<()> {
        let mut state = self.state();
        if state.closed || state.gone {
            return Ok(());
        }
        state.granted += len;
        drop(state);
        let credit = Frame::Credit(self.number, len).to_bytes();
        let sent = self.carrier.send(&[&credit]);
        if sent.is_err() {
            self.lost.store(true, Ordering::SeqCst);
        }
        sent
    }
}

/// As many bytes as there is room for. Who is gone takes all of them.
fn offer(socket: &UnixStream, bytes: &[u8]) -> usize {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match rustix::net::send(socket, bytes, flags) {
        Ok(sent) => sent,
        Err(rustix::io::Errno::AGAIN) => 0,
        Err(_) => bytes.len(),
    }
}

/// A stream of a line. Dropped, it is closed.
#[derive(Debug)]
pub struct Carried {
    inner: Arc<Inner>,
    socket: UnixStream,
    /// Bytes read for which no credit has been given yet.
    read: u32,
}

impl Carried {
    pub(super) fn begin(carrier: &Arc<Carrier>, number: u32) -> io::Result<(Arc<Inner>, Self)> {
        let (theirs, ours) = UnixStream::pair()?;
        let inner = Arc::new(Inner {
            number,
            carrier: carrier.clone(),
            lost: Arc::default(),
            state: Mutex::new(State {
                credit: WINDOW,
                granted: WINDOW,
                socket: theirs,
                backlog: VecDeque::new(),
                closed: false,
                dropped: false,
                gone: false,
            }),
            credit: Condvar::new(),
        });
        let carried = Carried {
            inner: inner.clone(),
            socket: ours,
            read: 0,
        };
        Ok((inner, carried))
    }

    pub(super) fn set_read_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(time)
    }

    /// A second handle, for another thread.
    #[must_use]
    pub fn writer(&self) -> CarriedWriter {
        CarriedWriter {
            inner: self.inner.clone(),
        }
    }
}

/// Sends on a stream that another thread reads.
#[derive(Clone, Debug)]
pub struct CarriedWriter {
    inner: Arc<Inner>,
}

impl Peer for Carried {
    fn loss(&self) -> Option<Arc<AtomicBool>> {
        Some(self.inner.lost.clone())
    }

    fn writer(&self) -> io::Result<Box<dyn Write + Send>> {
        Ok(Box::new(CarriedWriter {
            inner: self.inner.clone(),
        }))
    }

    /// With the line: its other end may be gone without anybody having noticed, and whoever waits to send on it does not notice either.
    fn ender(&self) -> io::Result<Ender> {
        let inner = self.inner.clone();
        Ok(Box::new(move || inner.carrier.break_off()))
    }
}

impl AsFd for Carried {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Read for Carried {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.socket.read(buffer)?;
        if len == 0 {
            return Ok(0);
        }
        self.inner.refill();
        self.read += len as u32;
        if self.read >= CREDIT_STEP {
            self.inner.give_back(std::mem::take(&mut self.read))?;
        }
        Ok(len)
    }
}

impl Inner {
    /// Sends the beginning of the slices, as much as the credit and a frame allow.
    fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        // A message and its data.
        let part = |at: usize| slices.get(at).map_or(&[][..], |slice| &slice[..]);
        let (first, second) = (part(0), part(1));
        let wanted = first.len() + second.len();
        if wanted == 0 {
            return Ok(0);
        }
        let mut state = self.state();
        while state.credit == 0 && !state.closed && !state.gone {
            state = self
                .credit
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed || state.gone {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let len = wanted.min(MOST_FRAME).min(state.credit as usize);
        state.credit -= len as u32;
        drop(state);
        let first = &first[..first.len().min(len)];
        let second = &second[..len - first.len()];
        let head = Frame::Data(self.number, len as u32).to_bytes();
        let sent = self.carrier.send(&[&head, first, second]);
        if sent.is_err() {
            self.lost.store(true, Ordering::SeqCst);
        }
        sent.map(|()| len)
    }
}

impl Write for Carried {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.send(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.inner.send(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for CarriedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.send(&[IoSlice::new(bytes)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        let mut state = self.inner.state();
        state.dropped = true;
        let left = std::mem::take(&mut state.backlog);
        let _ = state.socket.shutdown(std::net::Shutdown::Both);
        let (over, gone) = (state.closed || state.gone, state.gone);
        drop(state);
        self.inner.carrier.wait_less(left.len());
        // Before the peer may use the number again.
        if over {
            self.inner.carrier.forget(self.inner.number);
        }
        if !gone {
            let close = Frame::Close(self.inner.number).to_bytes();
            // If it fails, the line's reader will know, too.
            let _ = self.inner.carrier.send(&[&close]);
        }
    }
}
