//! The first message of either side.

use crate::{Head, WireError, decode, encode};
use bincode::{BorrowDecode, Encode};
use core::ops::RangeInclusive;

/// The version that this code speaks best.
pub const VERSION: u16 = 5;
/// All that it speaks.
pub const VERSIONS: RangeInclusive<u16> = 2..=5;

/// From which version on there is [`crate::Request::Foresee`].
pub const FORESEES: u16 = 3;
/// From which version on there are [`crate::WriteAs`], [`crate::SyncAll`], [`crate::FlagsOf`], [`crate::OpenWithin`] and [`crate::TestOwn`].
pub const NEWER_CALLS: u16 = 3;
/// From which version on there is [`crate::Offer::FOLDERS`].
pub const OFFERS_FOLDERS: u16 = 3;

/// From which version on [`crate::Request::Resume`] is answered by the number of the copy that goes on.
pub const NUMBERED_COPIES: u16 = 4;

/// From which version on there are [`crate::Request::KeepImage`], [`crate::Request::KeptImages`] and [`crate::Request::FetchImage`].
pub const KEEPS_IMAGES: u16 = 4;

/// From which version on there is [`crate::Request::Forget`].
pub const FORGETS_JOBS: u16 = 5;

/// The number of a job's first copy.
pub const FIRST_COPY: u64 = 1;

/// What proves that a peer belongs to the job; made at submit.
pub type Token = [u8; 32];

const MAGIC: [u8; 8] = *b"wayfarer";

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub enum Role {
    /// A process of the job, or who speaks for one.
    Shim,
    /// The starter, which has a stream as long as there are processes of the job: where it ends in peace, they have ended.
    Starter,
}

/// Begins a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Hello {
    magic: [u8; 8],
    /// Versions that the sender speaks, least and most.
    pub versions: (u16, u16),
    /// Who it is.
    pub role: Role,
    /// The job's.
    pub token: Token,
    /// The session that this stream belongs to; 0: a new one.
    pub session: u64,
    /// Copy of the job that speaks (DESIGN §7): one that is not the session's is refused. 0: it does not say.
    pub incarnation: u64,
    /// By which the shadow knows this stream again when it is made anew, and remembers what it answered last; 0: it
    /// need not.
    pub lane: u64,
}

impl Hello {
    /// Number of this kind of message.
    pub const KIND: u16 = 1;

    /// For a stream of `session`.
    #[must_use]
    pub fn new(role: Role, token: Token, session: u64, incarnation: u64) -> Self {
        Hello {
            magic: MAGIC,
            versions: (*VERSIONS.start(), *VERSIONS.end()),
            role,
            token,
            session,
            incarnation,
            lane: 0,
        }
    }

    /// As the stream that is known by this number.
    #[must_use]
    pub fn of_lane(self, lane: u64) -> Self {
        Hello { lane, ..self }
    }

    /// Writes the body into `room`; its length.
    ///
    /// # Errors
    /// [`WireError::NoRoom`].
    pub fn encode(&self, room: &mut [u8]) -> Result<usize, WireError> {
        encode(self, room)
    }

    /// Writes the whole message into `room`; its length.
    ///
    /// # Errors
    /// [`WireError::NoRoom`].
    pub fn message(&self, room: &mut [u8]) -> Result<usize, WireError> {
        Head::frame(Self::KIND, 0, 0, room, |body| self.encode(body))
    }

    /// Reads a body.
    ///
    /// # Errors
    /// [`WireError`]; [`WireError::Body`] also for a peer that speaks something else.
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let hello: Hello = decode(Self::KIND, body)?;
        if hello.magic != MAGIC {
            return Err(WireError::Body { kind: Self::KIND });
        }
        Ok(hello)
    }
}

/// The answer to a [`Hello`] that is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Welcome {
    /// Spoken from here on.
    pub version: u16,
    /// The session, for further streams.
    pub session: u64,
    /// Requests that may be on the way on this stream at once.
    pub most_in_flight: u32,
}

/// The best version that both speak.
#[must_use]
pub fn choose_version(theirs: (u16, u16)) -> Option<u16> {
    let best = theirs.1.min(*VERSIONS.end());
    (best >= theirs.0 && VERSIONS.contains(&best)).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_reads_back_and_another_protocol_is_refused() {
        let hello = Hello::new(Role::Starter, [7; 32], 9, 3).of_lane(u64::MAX);
        let mut room = [0; 128];
        let len = hello.encode(&mut room).expect("fits");
        assert_eq!(Hello::decode(&room[..len]), Ok(hello));
        room[0] ^= 1;
        assert_eq!(
            Hello::decode(&room[..len]),
            Err(WireError::Body { kind: 1 })
        );
        assert_eq!(
            Hello::decode(b"GET / HTTP/1.1"),
            Err(WireError::Body { kind: 1 })
        );
    }

    #[test]
    fn the_best_common_version_is_chosen() {
        assert_eq!(choose_version((1, 9)), Some(5));
        assert_eq!(choose_version((0, 2)), Some(2));
        assert_eq!(choose_version((2, 3)), Some(3));
        assert_eq!(choose_version((4, 9)), Some(5));
        assert_eq!(choose_version((2, 4)), Some(4));
        assert_eq!(choose_version((6, 9)), None);
        assert_eq!(choose_version((0, 1)), None);
        assert_eq!(choose_version((0, 0)), None);
        assert_eq!(choose_version((9, 1)), None, "a range turned round");
    }
}
