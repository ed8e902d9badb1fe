//! Extended attributes (xattr(7)).

use crate::Place;
use bincode::{BorrowDecode, Encode};

/// getxattr(2); the answer is [`crate::Reply::Done`] with the value as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct GetXattr<'a> {
    /// Of what.
    pub place: Place<'a>,
    /// A link in the last part is followed.
    pub follow: bool,
    /// With its name space.
    pub name: &'a [u8],
}

/// setxattr(2) to the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct SetXattr<'a> {
    /// Of what.
    pub place: Place<'a>,
    /// A link in the last part is followed.
    pub follow: bool,
    /// With its name space.
    pub name: &'a [u8],
    /// `XATTR_…`.
    pub flags: u32,
}

/// listxattr(2); the answer is [`crate::Reply::Done`] with names as data, each with a NUL behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct ListXattr<'a> {
    /// Of what.
    pub place: Place<'a>,
    /// A link in the last part is followed.
    pub follow: bool,
}

/// removexattr(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct RemoveXattr<'a> {
    /// Of what.
    pub place: Place<'a>,
    /// A link in the last part is followed.
    pub follow: bool,
    /// With its name space.
    pub name: &'a [u8],
}
