//! Address spaces and the inodes that back them.

use super::KernelPath;
use serde::{Deserialize, Serialize};

/// Index into `SnapshotV1::inodes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InodeId(pub u32);

/// Something with a name or with bytes: file, directory, device, memfd, shared memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InodeRecord {
    /// What it is.
    pub kind: InodeKind,
    /// Path as the job sees it, without " (deleted)"; empty for what has none.
    pub path: KernelPath,
    /// Size in bytes.
    pub size: u64,
    /// `st_mode`.
    pub mode: u32,
    /// `st_dev` and `st_ino`: hints, meaningful on the same file system only.
    pub dev: u64,
    /// See `dev`.
    pub ino: u64,
    /// `st_rdev` of a device.
    pub rdev: u64,
    /// Modification time, nanoseconds since 1970; a hint.
    pub mtime_ns: i64,
    /// How the file found at restart is compared with this one.
    pub check: ContentCheck,
    /// Its contents are in the image (`Space::Inode`).
    pub carried: bool,
    /// The job has it open for writing, or mapped shared and writable.
    pub written: bool,
}

/// Kinds of inode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InodeKind {
    /// A regular file that has a name.
    Regular,
    /// A regular file without a name any more; always carried.
    Deleted,
    /// A directory.
    Directory,
    /// A character device that is the same everywhere (null, zero, full, random, urandom, tty).
    Device,
    /// A named pipe; its contents are in the `PipeRecord`.
    Fifo,
    /// `memfd_create`; always carried.
    MemFd {
        /// Name without "memfd:".
        name: KernelPath,
        /// `F_GET_SEALS`.
        seals: u32,
        /// log2 of the huge page size, 0 for ordinary pages.
        huge_shift: u32,
    },
    /// Memory of `MAP_SHARED | MAP_ANONYMOUS`; always carried.
    SharedAnonymous,
    /// A file or directory of `/proc` about the process that has it open ("/proc/2/status"): opened
    /// again, for reading, by that process when it exists.
    OfProcess,
    /// No file of the job: all that lay unread in its pipes and sockets ([`super::Unread`]), one behind the other. There is one such at
    /// most; always carried.
    Unread,
}

/// See `loader::ops::check`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContentCheck {
    /// Not compared.
    None,
    /// BLAKE3 of the whole file.
    Full([u8; 32]),
    /// BLAKE3 of samples (a large file).
    Sampled([u8; 32]),
    /// Only the size, which may have grown: nobody may read the file, or it changed before it was read.
    Size,
}

/// The memory of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressSpace {
    /// Mappings in order of address, without `[vsyscall]`.
    pub mappings: Vec<Mapping>,
    /// What `PR_SET_MM_MAP` sets.
    pub layout: MmLayout,
    /// The auxiliary vector, as in `/proc/PID/auxv`.
    pub auxv: Vec<u8>,
    /// The program's file (`/proc/PID/exe`).
    pub exe: Option<InodeId>,
    /// The vDSO: entry points, for machines whose vDSO differs.
    pub vdso: Option<VdsoRecord>,
    /// `/proc/PID/coredump_filter`.
    pub coredump_filter: u32,
    /// `mlockall(MCL_FUTURE [| MCL_ONFAULT])` flags, 0 if not asked for.
    pub lock_future: u32,
    /// Protection keys that the process has allocated (pkey_alloc(2)): bit k for key k. In the image behind all else, where older ones
    /// have nothing.
    #[serde(skip)]
    pub protection_keys: u16,
}

/// Fields of `struct prctl_mm_map` (prctl(2), PR_SET_MM_MAP).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct MmLayout {
    pub start_code: u64,
    pub end_code: u64,
    pub start_data: u64,
    pub end_data: u64,
    pub start_brk: u64,
    pub brk: u64,
    pub start_stack: u64,
    pub arg_start: u64,
    pub arg_end: u64,
    pub env_start: u64,
    pub env_end: u64,
}

/// One mapping (a line of `/proc/PID/smaps`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// `PROT_READ | PROT_WRITE | PROT_EXEC` now in force.
    pub prot: u32,
    /// What is mapped.
    pub kind: MappingKind,
    /// Bits of [`mapping_flags`].
    pub flags: u32,
    /// Protection key (0 where there are none).
    pub pkey: u32,
    /// Name given with `PR_SET_VMA_ANON_NAME`; empty if none.
    pub name: KernelPath,
}

/// What a mapping shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MappingKind {
    /// Private anonymous memory (heap and stack too).
    Anonymous {
        /// log2 of the page size of `MAP_HUGETLB` memory, 0 for ordinary pages.
        huge_shift: u32,
    },
    /// Private mapping of an inode; pages the job changed are in extents of the process.
    PrivateFile {
        /// Which.
        inode: InodeId,
        /// Offset in it, bytes.
        offset: u64,
    },
    /// Shared mapping of an inode (file, memfd, shared anonymous memory).
    Shared {
        /// Which.
        inode: InodeId,
        /// Offset in it, bytes.
        offset: u64,
        /// `PROT_WRITE` may be added (VM_MAYWRITE): it was opened for writing.
        may_write: bool,
    },
    /// `[vvar]`.
    Vvar,
    /// `[vvar_vclock]`.
    VvarVclock,
    /// `[vdso]`.
    Vdso,
}

/// Bits of [`Mapping::flags`], from VmFlags (`fs/proc/task_mmu.c`, show_smap_vma_flags).
#[allow(missing_docs)]
pub mod mapping_flags {
    pub const GROWSDOWN: u32 = 1 << 0; // gd
    pub const LOCKED: u32 = 1 << 1; // lo
    pub const LOCK_ONFAULT: u32 = 1 << 2; // lo + lf
    pub const NORESERVE: u32 = 1 << 3; // nr
    pub const DONTFORK: u32 = 1 << 4; // dc
    pub const WIPEONFORK: u32 = 1 << 5; // wf
    pub const DONTDUMP: u32 = 1 << 6; // dd
    pub const HUGEPAGE: u32 = 1 << 7; // hg
    pub const NOHUGEPAGE: u32 = 1 << 8; // nh
    pub const MERGEABLE: u32 = 1 << 9; // mg
    pub const SEQUENTIAL: u32 = 1 << 10; // sr
    pub const RANDOM: u32 = 1 << 11; // rr
    pub const ACCOUNT: u32 = 1 << 12; // ac
    pub const DROPPABLE: u32 = 1 << 13; // dp: MAP_DROPPABLE; its contents are never carried
    pub const GUARDED: u32 = 1 << 14; // gu: some of its pages may be guards (MADV_GUARD_INSTALL)
}

/// Entry points of a vDSO.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdsoRecord {
    /// Address of `[vdso]`.
    pub start: u64,
    /// BLAKE3 of the mapping's bytes as the kernel gives them.
    pub hash: [u8; 32],
    /// Exported functions.
    pub symbols: Vec<VdsoFunction>,
}

/// An exported function of a vDSO.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdsoFunction {
    /// Its name.
    pub name: String,
    /// Its address in the process.
    pub address: u64,
    /// Its length in bytes.
    pub len: u64,
}

impl Mapping {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    /// A mapping is never empty; here for completeness.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end == self.start
    }

    /// Whether the bit of [`mapping_flags`] is set.
    #[must_use]
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}
