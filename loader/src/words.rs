//! What a job's supervisor, its keeper and its starter say to each other: single bytes.
//!
//! ```text
//! supervisor -> keeper (--keeper-fd)     RUNS, then ENDED or COMPLETE; or MAY_BE_COMPLETE, and COMPLETE behind that, or nothing
//! keeper -> supervisor                   READY to whoever begins it; at last DONE or LOST
//! supervisor -> starter (--starter-fd)   RUNS, then ASKS as often as the job asks for something, then ENDED or LOST with the wait status in four bytes;
//!                                        or REFUSED and why, up to the end
//! starter -> supervisor                  COMMITTED or NOT_COMMITTED
//! ```

/// The job runs.
pub const RUNS: u8 = b'r';
/// Nothing of the job is left.
pub const ENDED: u8 = b'e';
/// The same, and that its first process has exited with 0 without having been told to end: nobody will go back to an image of it.
pub const COMPLETE: u8 = b'c';
/// Nothing is left, and whether that is [`COMPLETE`] says a starter when it has written the end down.
pub const MAY_BE_COMPLETE: u8 = b'm';
/// The end is written down, and nobody will go back behind it.
pub const COMMITTED: u8 = b'c';
/// It is not, or somebody may go back.
pub const NOT_COMMITTED: u8 = b'n';
/// The job has written on its board what it wants.
pub const ASKS: u8 = b'a';
/// The keeper is there.
pub const READY: u8 = b'k';
/// The keeper ends, and nothing is lost. One that was killed says nothing.
pub const DONE: u8 = b'd';
/// Something that the job has written is nowhere. To a starter: in place of [`ENDED`].
pub const LOST: u8 = b'l';

/// In place of [`RUNS`]: the job cannot be begun, or not from this image. Loaders of images of before 2026 end without it.
pub const REFUSED: u8 = b'x';

/// What the job's parent is called (`/proc/PID/comm`) if there is a starter above it, before characters that no two copies share.
pub const WITH_STARTER: &[u8] = b"wayfarer+";
/// The same if there is none.
pub const WITHOUT_STARTER: &[u8] = b"wayfarer-";
/// The value (sigqueue(3)) of the SIGURG by which a job tells its parent that it asks for something.
pub const ASKING: u32 = 0x7761_7966;
