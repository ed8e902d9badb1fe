//! Why a line is carried no more.

use crate::carrier::BEGINS_WITHIN;
use line::FrameError;
use nix::errno::Errno as NixErrno;
use rustix::io::Errno;
use std::io;

/// Why a line is carried no more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CarrierError {
    /// The other side is gone, or what is between.
    #[error("the line to the shadow is lost")]
    Lost(#[source] io::Error),
    /// Somebody is there with another line; the one that there is goes on until that one is known to be good.
    #[error("another line has come")]
    Knocked,
    /// It is not the line that is lost, but whoever has submitted the job.
    #[error("whoever has submitted the job has left")]
    Left,
    /// What came is no frame.
    #[error("the shadow sent what is no frame")]
    Garbage(#[from] FrameError),
    /// Frames in an order that has no meaning.
    #[error("the shadow broke a rule on stream {stream}: {rule}")]
    Rule {
        /// The stream.
        stream: u32,
        /// Which rule.
        rule: &'static str,
    },
    /// No process has come.
    #[error("no process of a job has come in {} s", BEGINS_WITHIN.as_secs())]
    Idle,
    /// This machine refuses what is needed.
    #[error("this machine refuses what carrying needs")]
    System(#[from] io::Error),
}

impl From<Errno> for CarrierError {
    fn from(errno: Errno) -> Self {
        CarrierError::System(errno.into())
    }
}

impl From<NixErrno> for CarrierError {
    fn from(errno: NixErrno) -> Self {
        CarrierError::System(errno.into())
    }
}
