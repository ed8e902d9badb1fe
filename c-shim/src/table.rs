//! The file table: one mapping that all processes of a job share (DESIGN §6, "File table").
//!
//! ```text
//! descriptor --(kernel: which placeholder)--> Description { offset, flags } --> handle at the shadow
//! ```
//! A placeholder is an `O_PATH` descriptor of an unnamed file whose name, `wf-` and 32 hexadecimal digits, says which
//! description it stands for.

use crate::behind::Behind;
use crate::folders::Folders;
use crate::habits::Habits;
use crate::handles::Handles;
use crate::libraries::Libraries;
use crate::remembered::Remembered;
use crate::residents::Residents;
use crate::rules::Rules;
use crate::store::Store;
use crate::usage::Usage;
use crate::used::Used;
use crate::versions::Versions;
use core::mem::offset_of;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// What `/proc` calls the descriptor that it is mapped from.
pub const TABLE_NAME: &[u8] = b"/memfd:wf-table (deleted)";
/// Begins the mapping.
pub const MAGIC: u64 = u64::from_le_bytes(*b"wf-table");
/// Of this layout.
pub const VERSION: u32 = 12;
/// Files that a job may have open at once.
pub const DESCRIPTIONS: usize = 4096;
/// Descriptors of ours begin here; the job does not see them.
pub const RESERVED: [i32; 12] = [
    1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009, 1010, 1011,
];

/// What each reserved descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Reserved {
    /// The mapping.
    Table = 0,
    /// A stream that keeps the session alive as long as any process of the job.
    Session = 1,
    /// The inotify instance that tells of placeholders' ends.
    Ends = 2,
    /// The shim itself, which is executed in place of each program.
    Shim = 3,
    /// The placeholder of the current directory.
    Directory = 4,
    /// The placeholder of the program that the process executes.
    Program = 5,
    /// What a program that is about to begin is told.
    Start = 6,
    /// The contents of programs and libraries ([`crate::store`]), and of what is mapped shared ([`crate::residents`]).
    Store = 7,
    /// A stream that a process with record locks does not share with anybody; closed in others.
    Presence = 8,
    /// The inotify instance that tells the shadow of placeholders' ends.
    LockEnds = 9,
    /// Where the shadow is ([`crate::link`]).
    Link = 10,
    /// The folder of the FIFOs and sockets whose names are at the shadow ([`crate::nodes`]), or an empty memory file.
    Nodes = 11,
}

impl Reserved {
    /// Its number.
    #[must_use]
    pub const fn number(self) -> i32 {
        RESERVED[self as usize]
    }
}

/// Begins the mapping; written once, before the job's first process.
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// Bytes of `directory`.
    pub directory_len: u32,
    /// Where the job begins.
    pub directory: [u8; 2048],
    /// What uname(2) calls the machine, and its domain; empty: as it is called where the job runs.
    pub machine: [[u8; MACHINE_NAME]; 2],
    /// How its calls are served.
    pub habits: Habits,
}

/// Bytes of such a name with the NUL behind it (`__NEW_UTS_LEN`, include/uapi/linux/utsname.h).
pub const MACHINE_NAME: usize = 65;

impl Header {
    /// The first bytes of a new mapping; the rest is zero. None if a name is too long.
    #[must_use]
    pub fn bytes(
        directory: &[u8],
        machine: [&[u8]; 2],
        habits: &Habits,
    ) -> Option<[u8; size_of::<Header>()]> {
        let mut bytes = [0; size_of::<Header>()];
        // A name ends with a NUL.
        let is_long = |name: &&[u8]| name.len() >= MACHINE_NAME;
        if directory.len() >= 2048 || machine.iter().any(is_long) {
            return None;
        }
        let machine_at = offset_of!(Header, machine);
        let directory_len = (directory.len() as u32).to_le_bytes();
        let fields: [(usize, &[u8]); 7] = [
            (offset_of!(Header, magic), &MAGIC.to_le_bytes()),
            (offset_of!(Header, version), &VERSION.to_le_bytes()),
            (offset_of!(Header, directory_len), &directory_len),
            (offset_of!(Header, directory), directory),
            (machine_at, machine[0]),
            (machine_at + MACHINE_NAME, machine[1]),
            (offset_of!(Header, habits), &habits.bytes()),
        ];
        for (at, field) in fields {
            bytes[at..at + field.len()].copy_from_slice(field);
        }
        Some(bytes)
    }
}

/// An open file description.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Description {
    /// [`FREE`], [`CHANGING`] or [`OPEN`].
    pub state: AtomicU32,
    /// The inotify watch that tells of its end.
    pub watch: AtomicI32,
    /// The placeholder's.
    pub name: [AtomicU64; 2],
    /// At the shadow.
    pub handle: AtomicU64,
    /// Where the next byte is read or written.
    pub offset: AtomicU64,
    /// `O_…`.
    pub flags: AtomicU32,
    /// Type and permissions when it was opened.
    pub mode: AtomicU32,
    /// The object in the store with its contents and 1, or 0.
    pub object: AtomicU32,
    /// What [`crate::versions::Version::contents_count`] was then.
    pub object_at: AtomicU64,
    /// Tells most files from each other.
    pub file: AtomicU64,
    /// Where the file lies at the shadow's.
    pub device: AtomicU64,
    /// Which it is there.
    pub inode: AtomicU64,
    /// Not zero: it may have locks, so its end must be known at the shadow before anybody goes on.
    pub locked: AtomicU32,
    /// What the shadow knows its end by; 0: nothing.
    pub lock_watch: AtomicI32,
    /// Not zero: reads are served from the store while it has the contents ([`crate::rules::Kind::Fetch`]).
    pub fetched: AtomicU32,
    /// What is counted about the file: the place in [`Table::usage`] and 1, or 0.
    pub usage: AtomicU32,
    /// `errno` of what was written behind and could not be sent, until somebody is told; 0: none.
    pub error: AtomicI32,
}

impl Description {
    /// Whether what is written to it is stored only when that is asked for ([`crate::rules::Kind::Compress`]).
    #[must_use]
    pub fn is_to_be_stored(&self) -> bool {
        const O_ACCMODE: u32 = 3;
        let flags = self.flags.load(Ordering::Relaxed);
        flags & wire::Open::COMPRESSED != 0 && flags & O_ACCMODE != 0
    }
}

/// The watch of a description, while watches are made anew after a restart.
pub const UNWATCHED: i32 = -1;
/// The watch of a description that nobody has any more, as was found out after a restart.
pub const LOST: i32 = -2;
/// Nobody's.
pub const FREE: u32 = 0;
/// Somebody is making or ending it.
pub const CHANGING: u32 = 1;
/// In use.
pub const OPEN: u32 = 2;

/// The mapping.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Table {
    /// What does not change.
    pub header: Header,
    /// Where the search for a free one begins.
    pub hint: AtomicU32,
    /// Not zero when the job's first process has its current directory.
    pub begun: AtomicU32,
    /// Which copy of the job has made the watches ([`crate::link::Link::generation`]).
    pub generation: AtomicU64,
    /// Not zero: there are descriptions with the watch [`LOST`].
    pub lost: AtomicU32,
    /// Not zero: there was a checkpoint, so there may be an image.
    pub marked: AtomicU32,
    /// Not zero: wayfarer was asked to send it a signal that ends programs.
    pub told_to_end: AtomicU32,
    /// Version of the protocol that is spoken with the shadow ([`wire::Welcome`]).
    pub spoken: AtomicU32,
    /// Where they are.
    pub descriptions: [Description; DESCRIPTIONS],
    /// Where programs and libraries are.
    pub store: Store,
    /// How often what was changed.
    pub versions: Versions,
    /// Which files are mapped shared.
    pub residents: Residents,
    /// Which names were asked about.
    pub remembered: Remembered,
    /// Which names folders do not have.
    pub folders: Folders,
    /// Which libraries were asked for.
    pub libraries: Libraries,
    /// Which names mean something else; written once, like the header.
    pub rules: Rules,
    /// To be closed at the shadow.
    pub closing: Handles,
    /// Offered by the shadow, and opened by a program since.
    pub taken: Handles,
    /// What was done with files.
    pub usage: Usage,
    /// What was written and is not sent yet.
    pub behind: Behind,
    /// What was used of processors before a restart.
    pub used: Used,
}

impl Table {
    /// It is a table of this version.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.header.magic == MAGIC && self.header.version == VERSION
    }

    /// Takes a free description; its index.
    #[must_use]
    pub fn take(&self) -> Option<usize> {
        let hint = self.hint.load(Ordering::Relaxed) as usize;
        let (early, late) = self.descriptions.split_at(hint.min(DESCRIPTIONS));
        let found = late
            .iter()
            .chain(early)
            .zip((hint..DESCRIPTIONS).chain(0..hint))
            .find(|(one, _)| {
                let taken = one.state.compare_exchange(
                    FREE,
                    CHANGING,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                );
                taken.is_ok()
            });
        let (_, index) = found?;
        let next = (index as u32 + 1) % DESCRIPTIONS as u32;
        self.hint.store(next, Ordering::Relaxed);
        Some(index)
    }

    /// It is free again.
    pub fn give_back(&self, index: usize) {
        if let Some(one) = self.descriptions.get(index) {
            one.state.store(FREE, Ordering::Release);
            // Low ones are found sooner.
            self.hint.fetch_min(index as u32, Ordering::Relaxed);
        }
    }

    /// The open description with this name.
    #[must_use]
    pub fn find(&self, name: [u64; 2]) -> Option<usize> {
        self.descriptions.iter().position(|one| {
            one.state.load(Ordering::Acquire) == OPEN
                && one.name[0].load(Ordering::Relaxed) == name[0]
                && one.name[1].load(Ordering::Relaxed) == name[1]
        })
    }

    /// The open description whose end this watch tells.
    #[must_use]
    pub fn watched(&self, watch: i32) -> Option<usize> {
        self.descriptions.iter().position(|one| {
            one.state.load(Ordering::Acquire) == OPEN && one.watch.load(Ordering::Relaxed) == watch
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zeroed::zeroed;
    use alloc::vec::Vec;

    #[test]
    fn descriptions_are_taken_once_and_found_by_their_names() {
        let table = zeroed::<Table>();
        assert!(!table.is_known());
        let mut taken: Vec<_> = (0..DESCRIPTIONS).filter_map(|_| table.take()).collect();
        assert_eq!(table.take(), None);
        table.give_back(7);
        assert_eq!(table.take(), Some(7));
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), DESCRIPTIONS);
        let one = &table.descriptions[9];
        one.name[1].store(5, Ordering::Relaxed);
        one.watch.store(3, Ordering::Relaxed);
        assert_eq!(table.find([0, 5]), None, "not open yet");
        one.state.store(OPEN, Ordering::Release);
        assert_eq!((table.find([0, 5]), table.watched(3)), (Some(9), Some(9)));
    }
}
