//! A job that is stopped, one that goes on, and its end: what becomes of its session.

use bincode::{BorrowDecode, Encode};

/// The job is frozen: an epoch of its files ends here. The data are what the job knows of its handles and has not told: 8 bytes each,
/// little-endian, how many are closed, these, and then those that were offered ([`crate::Offer`]) and are open. The answer is [`crate::Reply::Done`] with the state of the session as
/// data, which only a shadow understands, or [`crate::Reply::Refused`] with why it cannot be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Mark {}

/// What became of the checkpoint that the last [`Mark`] of this stream was for. If that is not told, there may be an image. The data are the
/// marks that the job may go back to for now, whatever comes of this one, oldest first, 8 bytes each, little-endian: those before the first that there is are let
/// go, and none if there is none of them. Without them, those before the last two images'.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Settle {
    /// There is an image.
    pub committed: bool,
}

/// The job has ended well: nobody goes back to an image of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Complete {}

/// The job has ended: what it has made is to outlive a power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct MakeDurable {}

/// What is done about files that are not as the job left them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub enum Others {
    /// The job does not go on.
    Fail,
    /// They stay as they are.
    Keep,
    /// They go back with the job, as far as they can.
    RollBack,
}

/// The job goes on from a state, which is the data, in this new session. The answer is [`crate::Reply::Number`], that of the copy of the job that
/// begins ([`crate::Reply::Done`] before [`crate::NUMBERED_COPIES`]); nothing is served of older copies any more. Or
/// [`crate::Reply::Refused`] with why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Resume {
    /// What is done about files that are not as the job left them.
    pub others: Others,
}

/// The same, and who has the job go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct TakeUp {
    /// What is done about files that are not as the job left them.
    pub others: Others,
    /// By whom it is kept going: a number of his own, never 0.
    pub starter: u64,
    /// Whoever has it now. If not, it is refused unless the newest copy was begun by the same, or is the first, or none is known.
    pub takes: bool,
}

/// The job whose state (that of an image) the data are is removed: its images that are kept go, and its journal. Nobody is served any more who serves it.
/// Refused, unless the newest copy was begun by this starter, or is the first, or none is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Forget {
    /// By whom the job was kept going: a number of his own, never 0.
    pub starter: u64,
}

/// How long the job waits for a shadow that is gone: as long it keeps the session. Not asked of one that is older.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Lease {
    /// Milliseconds.
    pub ms: u64,
}
