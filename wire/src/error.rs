//! What can be wrong with bytes from a peer.

use core::fmt;

/// Bytes that are no message, or a message for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireError {
    /// The buffer that was given is too small.
    NoRoom,
    /// Fewer bytes than a head has.
    ShortHead {
        /// Bytes that were there.
        found: usize,
    },
    /// The body is said to be longer than any may be.
    LongBody {
        /// Bytes.
        found: u32,
    },
    /// The data are said to be longer than any may be.
    LongData {
        /// Bytes.
        found: u32,
    },
    /// A kind that this version does not know.
    Kind {
        /// Its number.
        found: u16,
    },
    /// A body that is none of its kind.
    Body {
        /// The kind's number.
        kind: u16,
    },
    /// Bytes behind a body.
    Trailing {
        /// The kind's number.
        kind: u16,
        /// How many.
        bytes: usize,
    },
    /// Entries of a listing that are cut off or out of bounds.
    Entries,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::NoRoom => write!(f, "no room for the message"),
            WireError::ShortHead { found } => {
                write!(
                    f,
                    "a head of {found} bytes, expected {}",
                    crate::head::HEAD_LEN
                )
            }
            WireError::LongBody { found } => {
                write!(
                    f,
                    "a body of {found} bytes, expected at most {}",
                    crate::head::MOST_BODY
                )
            }
            WireError::LongData { found } => {
                write!(
                    f,
                    "data of {found} bytes, expected at most {}",
                    crate::head::MOST_DATA
                )
            }
            WireError::Kind { found } => write!(f, "unknown kind of message {found}"),
            WireError::Body { kind } => write!(f, "a damaged message of kind {kind}"),
            WireError::Trailing { kind, bytes } => {
                write!(f, "{bytes} bytes behind a message of kind {kind}")
            }
            WireError::Entries => write!(f, "damaged entries of a listing"),
        }
    }
}

impl core::error::Error for WireError {}
