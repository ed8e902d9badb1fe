//! What is done with the contents of open files, but for reading and writing them.

use bincode::{BorrowDecode, Encode};

/// fsync(2), fdatasync(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Sync {
    /// What was opened.
    pub handle: u64,
    /// Only what is needed to read the data.
    pub data_only: bool,
}

/// fallocate(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Allocate {
    /// What was opened.
    pub handle: u64,
    /// `FALLOC_FL_…`.
    pub mode: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// lseek(2) with `SEEK_DATA` or `SEEK_HOLE`; the answer is [`crate::Reply::Number`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Seek {
    /// What was opened.
    pub handle: u64,
    /// From here on.
    pub offset: u64,
    /// A hole, not data.
    pub hole: bool,
}

/// copy_file_range(2) between two open files; the answer is [`crate::Reply::Written`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Copy {
    /// Read from.
    pub from: u64,
    /// First byte there.
    pub from_offset: u64,
    /// Written to.
    pub to: u64,
    /// First byte there.
    pub to_offset: u64,
    /// Bytes.
    pub len: u64,
}

/// fcntl(2) with `F_SETFL`: whether bytes are written at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct SetAppend {
    /// What was opened.
    pub handle: u64,
    /// `O_APPEND` from now on.
    pub append: bool,
}

/// pwritev2(2) with `RWF_APPEND` or `RWF_NOAPPEND`: of the data, at the end or not, however the file was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct WriteAs {
    /// What was opened.
    pub handle: u64,
    /// First byte; not looked at if it is at the end.
    pub offset: u64,
    /// At the end.
    pub append: bool,
}

/// syncfs(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct SyncAll {
    /// Something open of the file system.
    pub handle: u64,
}

/// ioctl(2) with `FS_IOC_GETFLAGS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct FlagsOf {
    /// What was opened.
    pub handle: u64,
}
