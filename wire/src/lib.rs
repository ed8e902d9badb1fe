//! Messages between the shim in a job, the starter and the shadow (docs/PROTOCOL.md).
//!
//! ```text
//! shim or starter                         shadow
//!    | Hello { versions, token, session }    |
//!    |-------------------------------------->|   a version of both, or Refused and the end
//!    |<----------------- Welcome { version } |
//!    | [head][body][data]   request n        |
//!    |-------------------------------------->|
//!    |<------- [head][body][data]   answer n |   answers may come in another order
//! ```
//! A message is a [`Head`] of fixed layout, a small body (bincode, at most [`MOST_BODY`] bytes) and bulk data
//! (at most [`MOST_DATA`] bytes) that no decoder touches.
//!
//! # What callers may rely on
//! No allocation, no libc, no panics: any bytes decode to a message or to a [`WireError`]. Numbers of kinds are
//! explicit and never used again for something else; 0 is none.
//!
//! # What it does not do
//! It does not send: whoever has a stream does. It does not know what a request means.
#![cfg_attr(not(test), no_std)]

mod attributes;
mod contents;
mod elsewhere;
mod entries;
mod error;
mod foreseen;
mod head;
mod hello;
mod images;
mod locks;
mod missing;
mod moves;
mod offered;
mod packed;
mod reply;
mod request;
mod xattr;

pub use attributes::{Attributes, FileSystem, Stamp};
pub use contents::{Allocate, Copy, FlagsOf, Seek, SetAppend, Sync, SyncAll, WriteAs};
pub use elsewhere::{ELSEWHERE, FIFO, Leads, is_local};
pub use entries::{Entries, Entry};
pub use error::WireError;
pub use foreseen::{
    AllForeseen, AllSought, Began, FORESEEN_NAME, Finding, Foresee, Foreseen, MOST_FORESEEN,
    Manner, Sought,
};
pub use head::{HEAD_LEN, Head, MOST_BODY, MOST_DATA};
pub use hello::{
    FIRST_COPY, FORESEES, FORGETS_JOBS, Hello, KEEPS_IMAGES, NEWER_CALLS, NUMBERED_COPIES,
    OFFERS_FOLDERS, Role, Token, VERSION, VERSIONS, Welcome, choose_version,
};
pub use images::{FetchImage, KeepImage, KeptImage, KeptImages};
pub use locks::{
    Attend, Held, Interrupt, Lock, LockMode, LockOwner, Release, Span, TestLock, TestOwn, WatchEnds,
};
pub use missing::{FILTER_WORDS, MISSING_LEN, MOST_NAMES, Missing, Names, bits, steps};
pub use moves::{Complete, Forget, Lease, MakeDurable, Mark, Others, Resume, Settle, TakeUp};
pub use offered::{Offer, Offered, OfferedFiles};
pub use packed::Packer;
pub use reply::{Opened, Owner, Refusal, Reply, Written};
pub use request::{
    Access, Attribute, Change, Close, CloseAll, FileSystemOf, Identify, Link, List, MakeDirectory,
    MakeNode, NameOf, Open, OpenWithin, Place, Read, ReadLink, RemoveName, Rename, Request,
    SymbolicLink, What, Write,
};
pub use xattr::{GetXattr, ListXattr, RemoveXattr, SetXattr};

/// How bodies are encoded: little-endian, short integers, at most [`MOST_BODY`] bytes.
const CODEC: bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Varint,
    bincode::config::Limit<MOST_BODY>,
> = bincode::config::standard().with_limit::<MOST_BODY>();

/// Encodes into `room`; the length.
fn encode<T: bincode::Encode>(value: &T, room: &mut [u8]) -> Result<usize, WireError> {
    bincode::encode_into_slice(value, room, CODEC).map_err(|_| WireError::NoRoom)
}

/// Decodes the whole of `bytes`.
fn decode<'a, T: bincode::BorrowDecode<'a, ()>>(
    kind: u16,
    bytes: &'a [u8],
) -> Result<T, WireError> {
    let decoded = bincode::borrow_decode_from_slice(bytes, CODEC);
    match decoded {
        Ok((value, taken)) if taken == bytes.len() => Ok(value),
        Ok((_, taken)) => Err(WireError::Trailing {
            kind,
            bytes: bytes.len() - taken,
        }),
        Err(_) => Err(WireError::Body { kind }),
    }
}
