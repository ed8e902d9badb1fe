//! What may be asked of the shadow.
//!
//! Flags, modes and other numbers are those of Linux on x86-64, as the system call takes them. A name is any
//! bytes but NUL.

use crate::{
    Allocate, Attend, Began, Complete, Copy, FORGETS_JOBS, FetchImage, FlagsOf, Foresee, Forget,
    GetXattr, Head, Interrupt, KEEPS_IMAGES, KeepImage, KeptImages, Leads, Lease, ListXattr, Lock,
    MakeDurable, Mark, NEWER_CALLS, NUMBERED_COPIES, Offer, Release, RemoveXattr, Resume, Seek,
    SetAppend, SetXattr, Settle, Stamp, Sync, SyncAll, TakeUp, TestLock, TestOwn, WatchEnds,
    WireError, WriteAs, decode, encode,
};
use bincode::{BorrowDecode, Encode};

/// Where something is: a name, and what it is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Place<'a> {
    /// An open directory that a relative name begins at; an empty name means what is open itself.
    pub at: u64,
    /// Absolute, relative or empty; at most 4095 bytes.
    pub name: &'a [u8],
}

macro_rules! requests {
    ($($(#[$doc:meta])* $number:literal $name:ident($body:ty),)*) => {
        /// A request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Request<'a> {
            $($(#[$doc])* $name($body),)*
        }

        impl<'a> Request<'a> {
            /// All kinds.
            pub const KINDS: &'static [u16] = &[$($number,)*];

            /// The number of its kind.
            #[must_use]
            pub fn kind(&self) -> u16 {
                match self {
                    $(Request::$name(_) => $number,)*
                }
            }

            /// The name of its kind, for logs.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $(Request::$name(_) => stringify!($name),)*
                }
            }

            /// Writes the body into `room`; its length.
            ///
            /// # Errors
            /// [`WireError::NoRoom`].
            pub fn encode(&self, room: &mut [u8]) -> Result<usize, WireError> {
                match self {
                    $(Request::$name(body) => encode(body, room),)*
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
                Head::frame(self.kind(), number, data_len, room, |body| self.encode(body))
            }

            /// Reads a body of this kind.
            ///
            /// # Errors
            /// [`WireError::Kind`], [`WireError::Body`], [`WireError::Trailing`].
            pub fn decode(kind: u16, body: &'a [u8]) -> Result<Self, WireError> {
                match kind {
                    $($number => decode(kind, body).map(Request::$name),)*
                    found => Err(WireError::Kind { found }),
                }
            }
        }
    };
}

requests! {
    /// openat2(2). The answer is [`crate::Reply::Opened`], with first bytes of a regular file as data, or first
    /// [`crate::Entries`] of a directory with `O_DIRECTORY`: if they are all, one without a name is behind them.
    10 Open(Open<'a>),
    /// close(2) of the last descriptor.
    11 Close(Close),
    /// pread(2); the answer is [`crate::Reply::Done`] with data, fewer than asked for at the end only.
    12 Read(Read),
    /// pwrite(2) of the data, or write(2) at the end if it is open with `O_APPEND`.
    13 Write(Write),
    /// statx(2).
    14 Attribute(Attribute<'a>),
    /// chmod(2), chown(2), utimensat(2), truncate(2).
    15 Change(Change<'a>),
    /// fsync(2), fdatasync(2).
    16 Sync(Sync),
    /// getdents64(2); the answer is [`crate::Reply::Done`] with [`crate::Entries`], none at the end.
    17 List(List),
    /// fallocate(2).
    18 Allocate(Allocate),
    /// lseek(2) with `SEEK_DATA` or `SEEK_HOLE`; the answer is [`crate::Reply::Number`].
    19 Seek(Seek),
    /// faccessat2(2).
    20 Access(Access<'a>),
    /// readlinkat(2); the answer is [`crate::Reply::Done`] with the target as data.
    21 ReadLink(ReadLink<'a>),
    /// mkdirat(2).
    22 MakeDirectory(MakeDirectory<'a>),
    /// mknodat(2) of FIFOs, sockets and regular files.
    23 MakeNode(MakeNode<'a>),
    /// unlinkat(2).
    24 RemoveName(RemoveName<'a>),
    /// renameat2(2).
    25 Rename(Rename<'a>),
    /// linkat(2).
    26 Link(Link<'a>),
    /// symlinkat(2).
    27 SymbolicLink(SymbolicLink<'a>),
    /// statfs(2); the answer is [`crate::Reply::FileSystem`].
    28 FileSystemOf(FileSystemOf<'a>),
    /// getxattr(2); the answer is [`crate::Reply::Done`] with the value as data.
    29 GetXattr(GetXattr<'a>),
    /// setxattr(2) to the data.
    30 SetXattr(SetXattr<'a>),
    /// listxattr(2); the answer is [`crate::Reply::Done`] with names as data, each with a NUL behind it.
    31 ListXattr(ListXattr<'a>),
    /// removexattr(2).
    32 RemoveXattr(RemoveXattr<'a>),
    /// copy_file_range(2) between two open files; the answer is [`crate::Reply::Written`].
    33 Copy(Copy),
    /// getcwd(2): the absolute name of what is open; the answer is [`crate::Reply::Done`] with it as data.
    34 NameOf(NameOf),
    /// fcntl(2) with `F_SETFL`: whether bytes are written at the end.
    35 SetAppend(SetAppend),
    /// This stream is a process of the job; the answer is [`crate::Reply::Number`].
    36 Attend(Attend),
    /// fcntl(2) with `F_SETLK` and the like, flock(2).
    37 Lock(Lock),
    /// fcntl(2) with `F_GETLK`; the answer is [`crate::Reply::Held`], or [`crate::Reply::Done`] if nothing is in the way.
    38 TestLock(TestLock),
    /// A process closes a descriptor of a file: its locks of that file go.
    39 Release(Release),
    /// A waiting [`Lock`] of this stream is not wanted any longer; has no answer of its own.
    40 Interrupt(Interrupt),
    /// With it comes what tells of the ends of open file descriptions.
    41 WatchEnds(WatchEnds),
    /// pwritev2(2); the answer is [`crate::Reply::Written`].
    43 WriteAs(WriteAs),
    /// syncfs(2).
    44 SyncAll(SyncAll),
    /// ioctl(2) with `FS_IOC_GETFLAGS`; the answer is [`crate::Reply::Number`].
    45 FlagsOf(FlagsOf),
    /// openat2(2) with flags for the name; the answer is as that of an [`Open`].
    46 OpenWithin(OpenWithin<'a>),
    /// fcntl(2) with `F_OFD_GETLK` and `F_UNLCK`; the answer is as that of a [`TestLock`].
    47 TestOwn(TestOwn),
    /// Where a name leads that was answered with [`crate::ELSEWHERE`]; the answer is [`crate::Reply::Done`] with the absolute name as data.
    42 Leads(Leads<'a>),
    /// The job is frozen for a checkpoint; the answer is [`crate::Reply::Done`] with the session's state as data.
    50 Mark(Mark),
    /// What became of that checkpoint.
    51 Settle(Settle),
    /// The job goes on from the state that is the data, in this session, which must be new.
    52 Resume(Resume),
    /// The same, and who has it go on, who may have lost it to somebody else meanwhile.
    53 TakeUp(TakeUp),
    /// How long the session is kept when it has no stream.
    60 Lease(Lease),
    /// close(2) of each handle in the data, 8 bytes little-endian; those that are not open are passed over.
    61 CloseAll(CloseAll),
    /// Opens small files of a folder that a program is walking through, in advance; the answer is [`crate::Reply::Done`] with
    /// [`crate::Offered`], perhaps none.
    62 Offer(Offer<'a>),
    /// Whose files these are; the answer is [`crate::Reply::Owner`] with the machine's name and its domain's (uname(2)) as data,
    /// each with a NUL behind it.
    63 Identify(Identify),
    /// The job has ended well, and all that it has written was told: no image of it is needed, nor what is kept for one.
    64 Complete(Complete),
    /// sync(2): the job has ended, and that is about to be written down where it runs; what it has made is to outlive a power loss before.
    65 MakeDurable(MakeDurable),
    /// What a program that begins is likely to ask about; the answer is [`crate::Reply::Done`] with [`crate::Foreseen`], perhaps none.
    66 Foresee(Foresee),
    /// What a program has asked about as it began, of which nothing was foreseen: the data are [`crate::Sought`].
    67 Began(Began),
    /// An image of the job is to be kept; its name is the data.
    68 KeepImage(KeepImage),
    /// Which images are kept of the job whose name the data are.
    69 KeptImages(KeptImages),
    /// One of them.
    70 FetchImage(FetchImage),
    /// The job whose state the data are is removed.
    71 Forget(Forget),
}

impl Request<'_> {
    /// Whether a peer is served that speaks this version.
    #[must_use]
    pub fn is_spoken_in(&self, version: u16) -> bool {
        let about_images = matches!(
            self,
            Request::KeepImage(_) | Request::KeptImages(_) | Request::FetchImage(_)
        );
        if about_images {
            return version >= KEEPS_IMAGES;
        }
        if matches!(self, Request::Forget(_)) {
            return version >= FORGETS_JOBS;
        }
        if matches!(self, Request::TakeUp(_)) {
            return version >= NUMBERED_COPIES;
        }
        let is_newer = matches!(
            self,
            Request::WriteAs(_)
                | Request::SyncAll(_)
                | Request::FlagsOf(_)
                | Request::OpenWithin(_)
                | Request::TestOwn(_)
        );
        !is_newer || version >= NEWER_CALLS
    }

    /// Whether doing it twice is otherwise than doing it once.
    #[must_use]
    pub fn is_once(&self) -> bool {
        !matches!(
            self,
            Request::Read(_)
                | Request::Close(_)
                | Request::CloseAll(_)
                | Request::Offer(_)
                | Request::Foresee(_)
                | Request::Began(_)
                | Request::Identify(_)
                | Request::Complete(_)
                | Request::MakeDurable(_)
                | Request::Attribute(_)
                | Request::Sync(_)
                | Request::List(_)
                | Request::Seek(_)
                | Request::Access(_)
                | Request::ReadLink(_)
                | Request::FileSystemOf(_)
                | Request::GetXattr(_)
                | Request::ListXattr(_)
                | Request::NameOf(_)
                | Request::Leads(_)
                | Request::TestLock(_)
                | Request::TestOwn(_)
                | Request::SyncAll(_)
                | Request::FlagsOf(_)
        )
    }
}

/// Who serves, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Identify {}

/// close(2) of many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct CloseAll {}

/// openat2(2). The answer is [`crate::Reply::Opened`], with first bytes of a regular file as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Open<'a> {
    /// What.
    pub place: Place<'a>,
    /// `O_…`, and perhaps [`Open::EXECUTE`] or [`Open::COMPRESSED`].
    pub flags: u32,
    /// Permissions of a new file, without the umask's.
    pub mode: u32,
    /// Most first bytes that are wanted.
    pub first: u32,
}

impl Open<'_> {
    /// EACCES, unless it may be executed (faccessat2(2) with `AT_EACCESS`). No flag of Linux's.
    pub const EXECUTE: u32 = 1 << 31;
    /// A regular file is stored compressed, and read and written as if it were not. No flag of Linux's: a shadow that does not know it
    /// answers EINVAL.
    pub const COMPRESSED: u32 = 1 << 30;
}

/// openat2(2) with flags for the name, which is relative to an open directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct OpenWithin<'a> {
    /// What, and how.
    pub open: Open<'a>,
    /// `RESOLVE_NO_XDEV`, `RESOLVE_NO_SYMLINKS`, `RESOLVE_BENEATH`, `RESOLVE_IN_ROOT`.
    pub resolve: u32,
}

/// close(2) of the last descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Close {
    /// What was opened.
    pub handle: u64,
}

/// pread(2); the answer is [`crate::Reply::Done`] with data, fewer than asked for at the end only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Read {
    /// What was opened.
    pub handle: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

/// pwrite(2) of the data, or write(2) at the end if it is open with `O_APPEND`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Write {
    /// What was opened.
    pub handle: u64,
    /// First byte; not looked at with `O_APPEND`.
    pub offset: u64,
}

/// statx(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Attribute<'a> {
    /// Of what.
    pub place: Place<'a>,
    /// A link in the last part is followed.
    pub follow: bool,
}

/// chmod(2), chown(2), utimensat(2), truncate(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Change<'a> {
    /// Of what.
    pub place: Place<'a>,
    /// A link in the last part is followed.
    pub follow: bool,
    /// To what.
    pub what: What,
}

/// getdents64(2); the answer is [`crate::Reply::Done`] with [`crate::Entries`], none at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct List {
    /// An open directory.
    pub handle: u64,
    /// `next` of the entry before, 0 for the first.
    pub from: u64,
    /// Most bytes of entries.
    pub len: u32,
    /// With the attributes of each.
    pub attributes: bool,
}

/// faccessat2(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Access<'a> {
    /// To what.
    pub place: Place<'a>,
    /// `R_OK`, `W_OK`, `X_OK`.
    pub mode: u32,
    /// A link in the last part is followed.
    pub follow: bool,
    /// With effective ids.
    pub effective: bool,
}

/// readlinkat(2); the answer is [`crate::Reply::Done`] with the target as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct ReadLink<'a> {
    /// The link.
    pub place: Place<'a>,
}

/// mkdirat(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct MakeDirectory<'a> {
    /// Its name.
    pub place: Place<'a>,
    /// Permissions, without the umask's.
    pub mode: u32,
}

/// mknodat(2) of FIFOs, sockets and regular files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct MakeNode<'a> {
    /// Its name.
    pub place: Place<'a>,
    /// Type and permissions, without the umask's.
    pub mode: u32,
}

/// unlinkat(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct RemoveName<'a> {
    /// What.
    pub place: Place<'a>,
    /// An empty directory (`AT_REMOVEDIR`).
    pub directory: bool,
}

/// renameat2(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Rename<'a> {
    /// What.
    pub from: Place<'a>,
    /// Its new name.
    pub to: Place<'a>,
    /// `RENAME_…`.
    pub flags: u32,
}

/// linkat(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Link<'a> {
    /// What.
    pub from: Place<'a>,
    /// A further name.
    pub to: Place<'a>,
    /// A link in the last part of `from` is followed.
    pub follow: bool,
}

/// symlinkat(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct SymbolicLink<'a> {
    /// Where it leads, as it is.
    pub target: &'a [u8],
    /// Its name.
    pub place: Place<'a>,
}

/// statfs(2); the answer is [`crate::Reply::FileSystem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct FileSystemOf<'a> {
    /// Of what.
    pub place: Place<'a>,
}

/// getcwd(2): the absolute name of what is open; the answer is [`crate::Reply::Done`] with it as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct NameOf {
    /// What was opened.
    pub handle: u64,
}

/// A new attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub enum What {
    /// Permissions.
    Mode(u32),
    /// Owner and group; `u32::MAX` leaves one as it is.
    Owner(u32, u32),
    /// Last read and last change: none leaves it, else that moment or (inner none) now.
    Times(Option<Option<Stamp>>, Option<Option<Stamp>>),
    /// Bytes.
    Size(u64),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LockMode, LockOwner, Span};
    use proptest::prelude::*;

    fn place() -> impl Strategy<Value = (u64, Vec<u8>)> {
        (any::<u64>(), prop::collection::vec(1u8..=255, 0..4096))
    }

    proptest! {
        #[test]
        fn requests_read_back_as_written(
            (at, name) in place(), (at2, name2) in place(), offset: u64, len: u32, flag: bool
        ) {
            let (place, to) = (Place { at, name: &name }, Place { at: at2, name: &name2 });
            let all = [
                Request::Open(Open { place, flags: len, mode: 0o644, first: len }),
                Request::Read(Read { handle: at, offset, len }),
                Request::OpenWithin(OpenWithin {
                    open: Open { place, flags: len, mode: 0, first: 0 },
                    resolve: len,
                }),
                Request::WriteAs(WriteAs { handle: at, offset, append: flag }),
                Request::SyncAll(SyncAll { handle: at }),
                Request::FlagsOf(FlagsOf { handle: at }),
                Request::TestOwn(TestOwn { handle: at, span: Span { first: offset, last: at2 } }),
                Request::Write(Write { handle: at, offset }),
                Request::Change(Change { place, follow: flag, what: What::Owner(len, u32::MAX) }),
                Request::Change(Change {
                    place,
                    follow: flag,
                    what: What::Times(Some(None), Some(Some(Stamp { seconds: -1, nanoseconds: len }))),
                }),
                Request::Rename(Rename { from: place, to, flags: len }),
                Request::SymbolicLink(SymbolicLink { target: &name2, place }),
                Request::Copy(Copy { from: at, from_offset: offset, to: at2, to_offset: offset, len: offset }),
                Request::Attend(Attend { number: at, pid: len }),
                Request::Lock(Lock {
                    handle: at,
                    owner: if flag { LockOwner::Process(at2) } else { LockOwner::Whole },
                    mode: flag.then_some(LockMode::Exclusive),
                    span: Span { first: offset, last: Span::END },
                    wait: flag,
                    watch: -1,
                }),
                Request::TestLock(TestLock {
                    handle: at,
                    owner: LockOwner::Description,
                    mode: LockMode::Shared,
                    span: Span { first: offset, last: at2 },
                }),
                Request::Release(Release { process: at, handle: at2, at_exec: flag }),
                Request::Interrupt(Interrupt {}),
                Request::WatchEnds(WatchEnds {}),
                Request::Mark(Mark {}),
                Request::Settle(Settle { committed: flag }),
                Request::Lease(Lease { ms: at }),
                Request::Identify(Identify {}),
                Request::Complete(Complete {}),
                Request::MakeDurable(MakeDurable {}),
                Request::KeepImage(KeepImage {
                    generation: at,
                    keep: len,
                    most: offset,
                    least_free: at2,
                    expected: offset,
                }),
                Request::KeptImages(KeptImages {}),
                Request::FetchImage(FetchImage { generation: at }),
                Request::Forget(Forget { starter: at }),
                Request::Resume(Resume { others: crate::Others::RollBack }),
                Request::TakeUp(TakeUp { others: crate::Others::RollBack, starter: at, takes: flag }),
            ];
            let mut room = [0; crate::MOST_BODY];
            for request in all {
                let len = request.encode(&mut room).expect("two names fit");
                prop_assert_eq!(Request::decode(request.kind(), &room[..len]), Ok(request));
                if let Some(cut) = len.checked_sub(1) {
                    prop_assert!(Request::decode(request.kind(), &room[..cut]).is_err());
                }
                prop_assert_eq!(
                    Request::decode(request.kind(), &room[..len + 1]),
                    Err(WireError::Trailing { kind: request.kind(), bytes: 1 })
                );
            }
        }

        #[test]
        fn any_bytes_are_a_request_or_an_error(kind in 0u16..72, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(request) = Request::decode(kind, &bytes) {
                prop_assert_eq!(request.kind(), kind);
            }
        }
    }

    #[test]
    fn every_kind_has_one_number_and_none_is_zero() {
        let mut kinds = Request::KINDS.to_vec();
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds.len(), Request::KINDS.len());
        assert!(kinds.iter().all(|kind| (10..100).contains(kind)));
        assert_eq!(Request::decode(0, &[]), Err(WireError::Kind { found: 0 }));
    }
}
