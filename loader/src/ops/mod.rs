//! The operation list: what the loader does, step by step, to bring a job back.
//!
//! ```text
//! OpsHeader
//! StreamEntry * streams
//! stream 0: Prepare   once, before any process of the job exists
//! stream n: Process   in process n, by its first thread
//! stream m: Thread    in that thread
//! ```
//! A stream is a run of records. A record is a head of two words (kind, length
//! of the whole record in bytes, a multiple of 8), the fields of the operation as
//! `u64`s, and a tail of bytes. Most of a restore is plain system calls with
//! known arguments; they are all one operation, [`Call`]. The other kinds are
//! what cannot be written down as a call beforehand.
//!
//! Descriptors are made in *slots*: descriptor numbers in a gap that no process
//! of the job uses, chosen by the planner. Processes inherit all slots, copy
//! theirs into place (`dup3` calls in their stream) and close the slots. The loader keeps every
//! descriptor of its own (image, status pipe ...) in `slot_base + slot_count ..+ 16`: a process stream closes
//! everything below and above these, its last slots at its end; the loader closes its own.

mod list;
pub mod tails;

pub use list::{OpsError, OpsList, Record, check_record};

/// What an [`Inherit`] says of a descriptor that only `wayfarer restart --shadow` can give.
pub const OF_THE_SHADOW: &core::ffi::CStr = c"the shadow's";

/// First word of the section.
pub const OPS_MAGIC: u64 = u64::from_le_bytes(*b"WFOPS\0\0\x04");

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum StreamKind {
    /// Run once in the common ancestor of the job's processes.
    Prepare = 1,
    /// Run by the first thread of a process; `id` is its pid, `parent` the index of
    /// the parent's stream (0: the ancestor).
    Process = 2,
    /// Run by a thread; `id` is its tid, `parent` the index of its process's stream.
    /// The first thread of a process has a stream of its own, with `id` = pid, run last.
    Thread = 3,
}

impl StreamKind {
    /// The kind with this number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        match number {
            1 => Some(StreamKind::Prepare),
            2 => Some(StreamKind::Process),
            3 => Some(StreamKind::Thread),
            _ => None,
        }
    }
}

/// Bits of [`OpsHeader::flags`].
pub mod flags {
    /// Nothing is restored: the one process stream ends in [`super::Exec`] (`wayfarer run`).
    pub const RUN: u64 = 1;
    /// The job's ids cannot be corrected in memory: namespaces are a must unless
    /// `--accept-new-ids` is given.
    pub const IDS_MUST_MATCH: u64 = 2;
    /// The job sees nothing of the machine: it goes on only so (`--confine`).
    pub const CONFINED: u64 = 4;
}

/// What the root of a job that sees nothing of the machine is mounted from, as `/proc/PID/mountinfo` has it.
pub const CONFINED_ROOT: &core::ffi::CStr = c"wayfarer-confined";

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[allow(missing_docs)] // where one comment stands for several fields
        pub struct $name { $($(#[$field_doc])* pub $field: u64),* }

        impl $name {
            /// Bytes of the encoded fields.
            pub const BYTES: usize = 8 * [$(stringify!($field)),*].len();

            /// The fields as stored, one after another.
            pub fn encode(&self, mut put: impl FnMut(&[u8])) {
                $(put(&self.$field.to_le_bytes());)*
            }

            /// Reads the fields from the front of `bytes`.
            #[must_use]
            #[allow(unused_assignments)] // the offset after the last field
            pub fn decode(bytes: &[u8]) -> Option<Self> {
                let mut at = 0;
                $(let $field = word(bytes, at)?; at += 8;)*
                Some(Self { $($field),* })
            }
        }
    };
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let mut raw = [0; 8];
    raw.copy_from_slice(bytes.get(at..at.checked_add(8)?)?);
    Some(u64::from_le_bytes(raw))
}

words! {
    /// Head of the section.
    OpsHeader {
        /// [`OPS_MAGIC`].
        magic,
        /// Bits of [`flags`].
        flags,
        /// Number of streams.
        streams,
        /// First descriptor number of the slots.
        slot_base,
        /// Number of slots; the loader may use `slot_count .. slot_count + 16` for itself.
        slot_count,
        /// User id the job saw.
        uid,
        /// Group id the job saw.
        gid,
        /// CLOCK_MONOTONIC as the job saw it, nanoseconds.
        monotonic_ns,
        /// CLOCK_MONOTONIC_RAW as the job saw it, nanoseconds.
        monotonic_raw_ns,
        /// CLOCK_BOOTTIME as the job saw it, nanoseconds.
        boottime_ns,
    }
}

words! {
    /// One stream of the list.
    StreamEntry {
        /// [`StreamKind`] as number.
        kind,
        /// Pid or tid, see [`StreamKind`].
        id,
        /// Index of the stream this one belongs to.
        parent,
        /// Offset of its first record from the start of the section: where the stream before ends, or the
        /// table of streams.
        offset,
        /// Bytes of its records.
        len,
    }
}

/// What the loader makes of the result of a [`Call`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Expect {
    /// A negative result ends the restart with the call's label and the error.
    Success = 1,
    /// Anything but `value` ends the restart.
    Exactly = 2,
    /// The result is a descriptor; it is moved to number `value`, keeping close-on-exec set.
    Slot = 3,
    /// A negative result is a loss: reported, and an error unless `--degraded` was given.
    OrDegraded = 4,
    /// The result does not matter.
    Ignore = 5,
    /// A negative result is reported on stderr as a note; the restart goes on.
    OrNoted = 6,
}

impl Expect {
    /// The expectation with this number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        [
            Self::Success,
            Self::Exactly,
            Self::Slot,
            Self::OrDegraded,
            Self::Ignore,
            Self::OrNoted,
        ]
        .into_iter()
        .find(|expect| *expect as u64 == number)
    }
}

/// How a file's contents are compared at restart ([`Inode::check`]).
pub mod check {
    /// Not at all (its contents are carried and always used, or it is a device).
    pub const NONE: u64 = 0;
    /// Size and BLAKE3 of the whole file.
    pub const FULL: u64 = 1;
    /// Size and BLAKE3 of samples: the first and last 64 KiB and 62 blocks of 4 KiB spread evenly
    /// between (block i of 62 begins at `(i + 1) * size / 64`, rounded down to a multiple of 4096).
    pub const SAMPLED: u64 = 2;
    /// The same as `FULL`, but the file may have grown (it was open for writing): compare the
    /// first `size` bytes.
    pub const FULL_PREFIX: u64 = 3;
    /// The same as `SAMPLED` over the first `size` bytes of a file that may have grown.
    pub const SAMPLED_PREFIX: u64 = 4;
    /// Size at least; contents may have changed (the job itself was writing to it).
    pub const SIZE: u64 = 5;
}

/// Bits of [`Inode::flags`].
pub mod inode_flags {
    /// The contents are in the image: when the path does not lead to the same file, a memfd
    /// with these contents takes its place.
    pub const CARRIED: u64 = 1;
    /// Do not look at the path: the file was deleted. An unlinked file is made beside the path,
    /// else in `/var/tmp` or `/tmp`, else a memfd.
    pub const DELETED: u64 = 2;
    /// The job had it open for writing.
    pub const WRITTEN: u64 = 4;
    /// It is a directory.
    pub const DIRECTORY: u64 = 8;
}

/// Bits of [`InProgress::timeout_in`]: how the call takes its time-out.
pub mod timeout {
    /// There is none.
    pub const NONE: u64 = 0;
    /// Argument `timeout_arg` is a number of milliseconds (poll, epoll_wait).
    pub const MILLISECONDS: u64 = 1;
    /// Argument `timeout_arg` points to a relative `struct timespec` (nanosleep, futex,
    /// sigtimedwait, epoll_pwait2).
    pub const TIMESPEC: u64 = 2;
}

macro_rules! operations {
    ($($(#[$doc:meta])* $number:literal $name:ident { $($(#[$field_doc:meta])* $field:ident),* $(,)? })*) => {
        $(words! { $(#[$doc])* $name { $($(#[$field_doc])* $field),* } }

        impl Operation for $name {
            const KIND: u64 = $number;
            fn put_fields(&self, put: &mut dyn FnMut(&[u8])) { self.encode(put); }
        })*

        /// Any operation, as read.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum AnyOp { $($(#[$doc])* $name($name)),* }

        impl AnyOp {
            fn decode(kind: u64, fields: &[u8]) -> Option<(Self, usize)> {
                match kind {
                    $($number => Some((Self::$name(<$name>::decode(fields)?), <$name>::BYTES)),)*
                    _ => None,
                }
            }

            /// The operation's name, for messages.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self { $(Self::$name(_) => stringify!($name)),* }
            }
        }
    };
}

/// An operation: its number and its fields.
pub trait Operation {
    /// Number in the record's head.
    const KIND: u64;
    /// Hands the encoded fields to `put`.
    fn put_fields(&self, put: &mut dyn FnMut(&[u8]));
}

operations! {
    /// One system call. Tail: `label NUL`, padding to 8, then data; the label says in messages
    /// what the call restores ("descriptor 5 (eventfd)").
    1 Call {
        /// System call number.
        nr,
        /// Arguments.
        a0, /// .
        a1, /// .
        a2, /// .
        a3, /// .
        a4, /// .
        a5,
        /// Bit i: argument i is an offset into the tail's data, passed as pointer to it.
        pointers,
        /// [`Expect`] as number.
        expect,
        /// What `expect` compares with, or the slot.
        value,
    }
    /// A file that the job had open or mapped: found again and compared, or made from the image.
    /// Tail: 32 bytes of checksum, `path NUL`.
    2 Inode {
        /// Slot for a descriptor of it (read-only if found at its path; `u64::MAX`: only compare).
        slot,
        /// Index in the snapshot, which is also its [`crate::layout::Space::Inode`].
        inode,
        /// Size at the checkpoint.
        size,
        /// One of [`check`].
        check,
        /// Bits of [`inode_flags`].
        flags,
        /// Permission bits, for files that are made anew.
        mode,
    }
    /// An open file description of a file. If the inode was found at its path, that is opened
    /// with `flags`, else the made file's descriptor is reopened. Tail: `path NUL`.
    3 Open {
        /// Slot to put it in.
        slot,
        /// The slot of its [`Inode`].
        inode_slot,
        /// `open(2)` flags without O_CREAT, O_EXCL, O_TRUNC, O_CLOEXEC.
        flags,
        /// Position.
        offset,
    }
    /// A descriptor of the restarter takes the place of one that led outside the job.
    /// Tail: a description for messages, NUL.
    4 Inherit {
        /// Slot to put it in.
        slot,
        /// Descriptor number in the restarter.
        fd,
        /// File status flags the job had set (O_NONBLOCK, O_APPEND); applied only if the
        /// restarter's description is not shared with a terminal.
        flags,
    }
    /// Fills the file in `slot` from the extents of inode `inode`.
    5 FillInode { /// Its slot.
        slot, /// Whose contents.
        inode, /// Size to set first.
        size }
    /// Puts a message into a socket: sent through `slot`, without waiting. Tail: `fds` slots as u64, then the socket's name for
    /// messages, NUL.
    6 Send {
        /// Slot of the socket to send from.
        slot,
        /// Number of descriptors sent with it.
        fds,
        /// Flags for `sendmsg`.
        flags,
        /// Slot of the file that has its bytes, if it has any.
        from,
        /// Where they begin there.
        at,
        /// How many they are.
        len,
    }
    /// Adds an inotify watch until it gets the number `wd`. Tail: `path NUL`.
    7 Watch { /// Slot of the inotify descriptor.
        slot, /// The number it had.
        wd, /// Its mask.
        mask }
    /// Everything but the loader's hole, the stack the loader stands on and the vDSO is unmapped.
    8 UnmapAll { /// Zero.
        reserved }
    /// Fills the memory of this process from its extents.
    9 Fill { /// Index of the process in the snapshot, see [`crate::layout::Space::Process`].
        process }
    /// Brings the vDSO to its old place; directly after `UnmapAll`, before any mapping is made. If the
    /// machine's vDSO has the same fingerprint, its pieces are moved to the old addresses. If not, it is
    /// moved to `refuge`, and the old `[vdso]` range becomes anonymous memory; its old bytes are
    /// in the extents of the process, and at the end of `Fill` they are copied to [`crate::hole::VDSO_LEN`] behind the
    /// refuge, where whoever was inside goes on, the entry points in it are overwritten by jumps
    /// and the range is made read and execute. With the same vDSO `Fill` skips that range. Tail: `n` pieces of [`VdsoPiece`], then `symbols` entries
    /// of [`VdsoSymbol`].
    10 Vdso {
        /// Number of pieces.
        pieces,
        /// Number of symbols.
        symbols,
        /// First eight bytes of the BLAKE3 of the old `[vdso]` mapping.
        fingerprint,
        /// A free place for the machine's own vDSO when it differs from the old one, and for a copy of
        /// that: twice [`crate::hole::VDSO_LEN`].
        refuge,
    }
    /// `prctl(PR_SET_MM, PR_SET_MM_MAP)`. Tail: the auxiliary vector.
    11 MmMap {
        /// As in `struct prctl_mm_map`.
        start_code, end_code, start_data, end_data, start_brk, brk, start_stack,
        arg_start, arg_end, env_start, env_end,
        /// Slot of the program's file, or `u64::MAX`.
        exe_slot,
    }
    /// Creates the other threads of this process, each running its stream, and waits for them.
    12 SpawnThreads { /// Zero.
        reserved }
    /// A POSIX timer with the id it had. Tail: `struct sigevent`, 64 bytes.
    13 TimerCreate { /// Its clock.
        clock, /// The id it had.
        id }
    /// The call this thread was in, entered again with the time that was left. The loader makes
    /// the call itself and is stopped in it, so that the kernel's own restart logic goes on with it.
    14 InProgress {
        /// System call number.
        nr,
        /// Arguments.
        a0, /// .
        a1, /// .
        a2, /// .
        a3, /// .
        a4, /// .
        a5,
        /// One of [`timeout`].
        timeout_in,
        /// Number of the argument that is or points to the time-out.
        timeout_arg,
        /// What was left of it.
        remaining_ns,
    }
    /// The registers the thread goes on with, and its signal mask; the last record of a thread.
    /// Tail: the `NT_X86_XSTATE` register set.
    15 Registers {
        /// As in `struct user_regs_struct`.
        r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, orig_rax,
        rip, cs, eflags, rsp, ss, fs_base, gs_base, ds, es, fs, gs,
        /// Blocked signals.
        mask,
    }
    /// Starts a program. Tail: `limits` times three words (getrlimit(2): number, soft, hard), set last; `path NUL`, then `args` and
    /// then `envs` strings, each `NUL`.
    16 Exec { /// Number of arguments.
        args, /// Number of environment strings.
        envs, /// Number of limits that are not those the program is to have.
        limits }
    /// The process had been stopped by a signal; it is stopped again at the end, by SIGSTOP whatever the signal
    /// was: SIGTSTP, SIGTTIN and SIGTTOU may be blocked or caught, and the kernel drops them in a process
    /// group that no shell looks after, as the job's may be now.
    17 Stopped { /// The signal it was, or 0: then it is not stopped.
        signal }
    /// A file that the job writes is cut back to the size it had, the tail saved beside it
    /// (`--files roll-back`), or accepted as it is (`keep`), or refused (`fail`). Tail: `path NUL`.
    18 CutBack { /// Size at the checkpoint.
        size, /// Slot of the file that was found and compared.
        slot }
    /// A pipe. Ends that nobody has any more have slot `u64::MAX` and are closed by a later record
    /// (`close` of the slot they were given while contents are written), never left open.
    19 Pipe { /// Slot of the read end.
        read_slot, /// Slot of the write end.
        write_slot, /// Flags for `pipe2`.
        flags }
    /// A pair of connected unix sockets.
    20 SocketPair { /// Slot of the first.
        first_slot, /// Slot of the second.
        second_slot, /// Type for `socketpair`.
        kind }
    /// An input pipe from outside with bytes unread at the checkpoint: a new pipe takes its place, these
    /// bytes first, then whatever comes from the restarter's descriptor `fd`, moved by a
    /// process of the loader's until end of file. Ended with the job.
    21 Feed { /// Slot for the read end.
        slot, /// Descriptor of the restarter.
        fd, /// File status flags for the read end.
        flags, /// Slot of the file that has the bytes.
        from, /// Where they begin there.
        at, /// How many they are.
        len }
    /// Writes the thread's id, 32 bits, to where its C library keeps it (`--pids host`: the id is new).
    22 OwnId { /// Where.
        address }
    /// Settings of a terminal that the restarter's descriptor may be; done last, and only where the restarter
    /// is in its foreground. Tail: `struct termios2`.
    23 Terminal { /// Slot of its descriptor.
        slot, /// Process group of the job that was in its foreground; 0 if that was not the job's own.
        group }
    /// CPUID is answered by two pages in each of the job's processes, and P1 is asked what would be in their way
    /// (docs/adr/0007). Tail: the pages, [`crate::processor::handler::HANDLER_LEN`] bytes, as they are for
    /// a program that has yet to begin.
    24 Enforce { /// Where PKRU is in the register sets, or 0: with the kernel's own value, a machine need not have it.
        pkru_at }
    /// An open file description of a character device that is the same everywhere. Where its name leads elsewhere or nowhere, the same device
    /// among the restarter's descriptors serves. Tail: `path NUL`.
    25 Device { /// Slot to put it in.
        slot, /// `open(2)` flags.
        flags, /// `st_rdev`.
        device, /// The least descriptor of the job that it is, or `u64::MAX`.
        fd }
    /// The process's first thread had ended while others went on (`pthread_exit` in `main`), and ends at the end of the restart. In place of
    /// [`Registers`].
    26 Ended { /// Zero.
        reserved }
    /// Bytes that lay unread in a pipe are written into it: one packet, if it has those. Tail: the pipe's name for messages, NUL.
    27 Refill { /// Slot of its write end, which does not wait.
        slot, /// Slot of the file that has them.
        from, /// Where they begin there.
        at, /// How many they are.
        len }
    /// Adds a member to an epoll set as one that has fired (EPOLLONESHOT) and is not watched any more, before others are
    /// added.
    28 Fired { /// Descriptor of the epoll set.
        epoll, /// Number the member is added under.
        fd, /// Its flags: what is left of its events.
        events, /// Its user data.
        data, /// 1: it is the end to read from of a pipe that nobody else has; 0: it is not.
        pipe }
}

words! {
    /// A piece of the vDSO in the old address space.
    VdsoPiece {
        /// 1 `[vvar]`, 2 `[vvar_vclock]`, 3 `[vdso]`.
        kind,
        /// Address.
        start,
        /// Bytes.
        len,
    }
}

words! {
    /// An entry point of the old vDSO.
    VdsoSymbol {
        /// Address in the old address space.
        address,
        /// Bytes of the function.
        len,
        /// First eight bytes of the BLAKE3 of the symbol's name (`__vdso_clock_gettime` ...).
        name_hash,
    }
}
