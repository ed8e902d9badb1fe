//! What the shadow answers.

use crate::{Attributes, FileSystem, Head, Held, Welcome, WireError, decode, encode};
use bincode::{BorrowDecode, Encode};

/// A file was opened; its first bytes are the message's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Opened {
    /// For further requests, in all streams of the session.
    pub handle: u64,
    /// As it is now.
    pub attributes: Attributes,
}

/// Bytes were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Written {
    /// How many.
    pub len: u64,
    /// Where they begin: with `O_APPEND` this was not known before.
    pub offset: u64,
    /// Of the file, now.
    pub size: u64,
}

/// As whom the shadow acts: the files that the job makes are theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Owner {
    /// As `st_uid` of such a file.
    pub uid: u32,
    /// As `st_gid`.
    pub gid: u32,
}

/// The stream is not served; it ends behind this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Refusal<'a> {
    /// For people.
    pub reason: &'a str,
    /// It may be otherwise a little later.
    pub passing: bool,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply<'a> {
    /// To a [`crate::Hello`].
    Welcome(Welcome),
    /// To a [`crate::Hello`], or to bytes that are no message.
    Refused(Refusal<'a>),
    /// It is done; what was asked for is the data.
    Done,
    /// It failed with this `errno`.
    Failed(u16),
    /// A file is open.
    Opened(Opened),
    /// Bytes were written.
    Written(Written),
    /// Attributes.
    Attributes(Attributes),
    /// An offset.
    Number(u64),
    /// A file system.
    FileSystem(FileSystem),
    /// A lock that is in the way.
    Held(Held),
    /// To a [`crate::Identify`].
    Owner(Owner),
}

impl<'a> Reply<'a> {
    /// The number of its kind.
    #[must_use]
    pub fn kind(&self) -> u16 {
        match self {
            Reply::Welcome(_) => 2,
            Reply::Refused(_) => 3,
            Reply::Done => 100,
            Reply::Failed(_) => 101,
            Reply::Opened(_) => 102,
            Reply::Written(_) => 103,
            Reply::Attributes(_) => 104,
            Reply::Number(_) => 105,
            Reply::FileSystem(_) => 106,
            Reply::Held(_) => 107,
            Reply::Owner(_) => 108,
        }
    }

    /// Writes the body into `room`; its length.
    ///
    /// # Errors
    /// [`WireError::NoRoom`].
    pub fn encode(&self, room: &mut [u8]) -> Result<usize, WireError> {
        match self {
            Reply::Welcome(body) => encode(body, room),
            Reply::Refused(body) => encode(body, room),
            Reply::Done => Ok(0),
            Reply::Failed(errno) => encode(errno, room),
            Reply::Opened(body) => encode(body, room),
            Reply::Written(body) => encode(body, room),
            Reply::Attributes(body) => encode(body, room),
            Reply::Number(number) => encode(number, room),
            Reply::FileSystem(body) => encode(body, room),
            Reply::Held(body) => encode(body, room),
            Reply::Owner(body) => encode(body, room),
        }
    }

    /// Writes the whole message but its data into `room`; its length.
    ///
    /// # Errors
    /// [`WireError::NoRoom`].
    pub fn message(
        &self,
        number: u64,
        data_len: usize,
        room: &mut [u8],
    ) -> Result<usize, WireError> {
        Head::frame(self.kind(), number, data_len, room, |body| {
            self.encode(body)
        })
    }

    /// Reads a body of this kind.
    ///
    /// # Errors
    /// [`WireError::Kind`], [`WireError::Body`], [`WireError::Trailing`].
    pub fn decode(kind: u16, body: &'a [u8]) -> Result<Self, WireError> {
        match kind {
            2 => decode(kind, body).map(Reply::Welcome),
            3 => decode(kind, body).map(Reply::Refused),
            100 if body.is_empty() => Ok(Reply::Done),
            100 => Err(WireError::Trailing {
                kind,
                bytes: body.len(),
            }),
            101 => decode(kind, body).map(Reply::Failed),
            102 => decode(kind, body).map(Reply::Opened),
            103 => decode(kind, body).map(Reply::Written),
            104 => decode(kind, body).map(Reply::Attributes),
            105 => decode(kind, body).map(Reply::Number),
            106 => decode(kind, body).map(Reply::FileSystem),
            107 => decode(kind, body).map(Reply::Held),
            108 => decode(kind, body).map(Reply::Owner),
            found => Err(WireError::Kind { found }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LockMode, Span, Stamp};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn replies_read_back_as_written(number: u64, errno: u16, seconds: i64, reason in ".{0,200}") {
            let attributes = Attributes {
                size: number,
                modified: Stamp { seconds, nanoseconds: 999_999_999 },
                born: Some(Stamp::default()),
                ..Attributes::default()
            };
            let all = [
                Reply::Welcome(Welcome { version: 1, session: number, most_in_flight: 1 }),
                Reply::Refused(Refusal { reason: &reason, passing: true }),
                Reply::Done,
                Reply::Failed(errno),
                Reply::Opened(Opened { handle: number, attributes }),
                Reply::Written(Written { len: number, offset: 0, size: number }),
                Reply::Attributes(attributes),
                Reply::Number(number),
                Reply::FileSystem(FileSystem { kind: number, ..FileSystem::default() }),
                Reply::Held(Held {
                    mode: LockMode::Exclusive,
                    span: Span { first: number, last: Span::END },
                    pid: -1,
                }),
                Reply::Owner(Owner { uid: number as u32, gid: 0 }),
            ];
            let mut room = [0; 1024];
            for reply in all {
                let len = reply.encode(&mut room).expect("fits");
                prop_assert_eq!(Reply::decode(reply.kind(), &room[..len]), Ok(reply));
                prop_assert!(Reply::decode(reply.kind(), &room[..len + 1]).is_err());
            }
        }

        #[test]
        fn any_bytes_are_a_reply_or_an_error(kind in 0u16..120, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(reply) = Reply::decode(kind, &bytes) {
                prop_assert_eq!(reply.kind(), kind);
            }
        }
    }
}
