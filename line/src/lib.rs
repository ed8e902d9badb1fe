//! A line: one byte stream between a starter and a shadow that carries many (docs/adr/0012).
//!
//! ```text
//! shims == unix streams ==> starter ---- one line: pipes of ssh, or TLS ----> shadow == streams ==> sessions
//!                           frames: Open, Data, Close, Credit
//! ```
//! # What callers may rely on
//! Any bytes are pieces of frames or a [`FrameError`]; nothing is allocated for what a peer only announces. A TLS line
//! exists only between the two holders of the keys that were made for it.
//!
//! # What it does not do
//! It keeps no streams and grants no credit: both ends do that, each in its own way.

mod frame;
mod keys;
mod preface;
mod secure;

pub use frame::{
    CREDIT_STEP, FRAME_HEAD, Frame, FrameError, MOST_FRAME, MOST_STREAMS, Piece, Pieces, Purpose,
    WINDOW,
};
pub use keys::{KeyError, Keys};
pub use preface::{Preface, PrefaceError, answer_preface};
pub use secure::{Acceptor, Connector, SecureError};

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// How long a peer may take to say who it is.
pub const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// Both directions of a line, each for one thread.
pub struct Line {
    /// What comes.
    pub input: Box<dyn Read + Send>,
    /// What goes. It may keep bytes until it is flushed.
    pub output: Box<dyn Write + Send>,
    /// Descriptors to wait for: readable, writable.
    pub ends: (OwnedFd, OwnedFd),
    /// Of a line that has ended: whether the other side has ended it, and not the connection between. None: that cannot be told.
    pub is_left: Option<Box<dyn FnMut() -> bool + Send>>,
}

impl Line {
    /// A line of two descriptors, which may be the same.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn plain(input: OwnedFd, output: OwnedFd) -> io::Result<Self> {
        let ends = (input.try_clone()?, output.try_clone()?);
        Ok(Line {
            input: Box::new(std::fs::File::from(input)),
            output: Box::new(std::fs::File::from(output)),
            ends,
            is_left: None,
        })
    }

    /// Reading waits so long at most (none: for ever), where the line is a socket; where it is none there is nobody but us on it.
    pub fn wait_at_most(&self, time: Option<Duration>) {
        let end = rustix::net::sockopt::Timeout::Recv;
        let _ = rustix::net::sockopt::set_socket_timeout(&self.ends.0, end, time);
    }

    /// Reading and writing do not wait any more.
    ///
    /// # Errors
    /// As fcntl(2).
    pub fn set_nonblocking(&self) -> io::Result<()> {
        for end in [&self.ends.0, &self.ends.1] {
            rustix::io::ioctl_fionbio(end.as_fd(), true)?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line")
            .field("ends", &self.ends)
            .finish_non_exhaustive()
    }
}
