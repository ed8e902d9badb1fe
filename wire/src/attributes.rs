//! What is known of a file, as statx(2) and statfs(2) tell it.

use bincode::{BorrowDecode, Encode};

/// A moment: seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, BorrowDecode)]
pub struct Stamp {
    /// Seconds, negative before 1970.
    pub seconds: i64,
    /// Below a thousand million.
    pub nanoseconds: u32,
}

/// Attributes of a file (statx(2), `STATX_BASIC_STATS | STATX_BTIME`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Attributes {
    /// Device that it lies on, as in `st_dev`.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Names it has.
    pub links: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Which device it is, if it is one, as in `st_rdev`.
    pub special: u64,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes that it takes.
    pub blocks: u64,
    /// Bytes that are best read at once.
    pub block_size: u32,
    /// Last read.
    pub accessed: Stamp,
    /// Last change of the contents.
    pub modified: Stamp,
    /// Last change of anything.
    pub changed: Stamp,
    /// Beginning, where the file system knows it.
    pub born: Option<Stamp>,
    /// `stx_attributes`, and which of them mean something.
    pub flags: (u64, u64),
    /// It has no extended attributes, for certain.
    pub bare: bool,
}

/// A file system (statfs(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, BorrowDecode)]
pub struct FileSystem {
    /// `f_type`.
    pub kind: u64,
    /// `f_bsize`.
    pub block_size: u64,
    /// `f_frsize`.
    pub fragment_size: u64,
    /// Blocks in all, free, and free for users.
    pub blocks: (u64, u64, u64),
    /// Inodes in all and free.
    pub files: (u64, u64),
    /// `f_fsid`.
    pub id: u64,
    /// `f_namelen`.
    pub longest_name: u64,
    /// `f_flags`.
    pub flags: u64,
}
