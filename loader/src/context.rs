//! What every part of the loader needs to know. Lives in the hole, is inherited by every
//! process of a restart, and shared by the threads of each.

use crate::abi::F_DUPFD_CLOEXEC;
use crate::ahead::Successor;
use crate::image::Image;
use crate::kept::Kept;
use crate::options::Options;
use crate::sys;
use crate::tables::Tables;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use loader::hole::{HoleLayout, Part, SHARED_ENTRY_LEN};
use loader::ops::{OpsList, StreamEntry, StreamKind, flags};

/// Descriptors of the loader's own, by their place behind the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Own {
    Image = 0,
    Stderr = 1,
    ReportWrite = 2,
    ReportRead = 3,
    Control = 4,
    Signals = 5,
    Folder = 6,
    Base = 7,
    Keeper = 8,
    Listener = 9,
    Starter = 10,
}

/// The context, once there is one: for a failure that comes from where it was not handed to.
pub static CONTEXT: AtomicPtr<Context> = AtomicPtr::new(core::ptr::null_mut());

/// Number of descriptors behind the slots that are the loader's.
pub const OWN_COUNT: u64 = 16;

/// Facts of one restart.
pub struct Context {
    pub options: Options,
    pub image: Image,
    pub base: u64,
    pub layout: HoleLayout,
    pub ops: OpsList<'static>,
    pub extents: Tables,
    /// The words we were started with.
    pub words: Words,
    /// Memory of the job that is in its place already.
    pub kept: Kept,
    /// A P1 is to be made of us.
    pub successor: Option<Successor>,
    /// Signals that were blocked when the loader was started.
    pub first_mask: u64,
    /// Disposition of SIGCHLD when the loader was started.
    pub first_child_action: [u64; 4],
    /// Limits on open files when the loader was started.
    pub first_files: (u64, u64),
    /// Address of the kernel's vDSO.
    pub vdso: u64,
    /// The job gets namespaces of its own.
    pub namespaces: bool,
    /// The kernel gives huge pages to who does not ask for them.
    pub huge_pages_come: bool,
    /// A terminal among the descriptors that the job may be given is ours, and we are in its foreground.
    pub in_foreground: bool,
    /// Descriptors of the loader's own, by [`Own`].
    pub fds: [i32; 11],
}

/// The words of the command line, as the kernel left them.
#[derive(Clone, Copy)]
pub struct Words {
    /// So many strings, which stay for as long as we have not emptied the address space.
    pub argv: *const *const c_char,
    pub argc: usize,
}

impl Words {
    pub fn get(&self, index: usize) -> Option<&'static CStr> {
        (index < self.argc).then(|| {
            // SAFETY: the kernel's argv has `argc` strings.
            unsafe { CStr::from_ptr(*self.argv.add(index)) }
        })
    }

    /// All, the name we were started by first.
    pub fn all(&self) -> impl Iterator<Item = &'static CStr> + '_ {
        (0..self.argc).filter_map(|index| self.get(index))
    }
}

/// One entry of the shared table; entry 0 is about the whole restart, entry n+1 about stream n.
#[repr(C, align(64))]
pub struct SharedEntry {
    /// The id the process or thread really has.
    pub tid: AtomicU32,
    /// Entry 0: nobody ever changes it, parked threads wait for that.
    pub park: AtomicU32,
    /// Process streams: threads that have parked. Entry 0: not zero when feeders may begin.
    pub parked: AtomicU32,
    /// Thread streams: what the call in progress returned (-516 as a rule).
    pub result: AtomicU32,
    /// Thread streams: where it goes on, if not where it stood (another vDSO); else zero.
    pub rip: AtomicU64,
}

const _: () = assert!(size_of::<SharedEntry>() as u64 == SHARED_ENTRY_LEN);

impl Context {
    /// First address of a part of the hole.
    pub fn address(&self, part: Part) -> u64 {
        self.base + part.offset
    }

    /// The bytes of a part of the hole.
    ///
    /// # Safety
    /// Nobody else may use the part as long as the slice lives.
    #[allow(clippy::mut_from_ref)] // the memory belongs to the hole, not to the context
    pub unsafe fn bytes(&self, part: Part) -> &'static mut [u8] {
        // SAFETY: the hole is mapped read and write for as long as the loader runs; the caller
        // promises that the slice is the only one.
        unsafe { core::slice::from_raw_parts_mut(self.address(part) as *mut u8, part.len as usize) }
    }

    /// Entry of the shared table; 0: the restart, n+1: stream n.
    pub fn shared(&self, index: u64) -> &SharedEntry {
        let last = self.ops.header().streams;
        let at = self.address(self.layout.shared) + index.min(last) * SHARED_ENTRY_LEN;
        // SAFETY: inside the shared part, which has `streams + 1` entries of atomics.
        unsafe { &*(at as *const SharedEntry) }
    }

    /// Whether this image starts a program instead of bringing one back.
    pub fn is_run(&self) -> bool {
        self.ops.header().flags & flags::RUN != 0
    }

    /// Descriptor number behind the slots.
    pub fn own_number(&self, own: Own) -> u64 {
        let header = self.ops.header();
        header.slot_base + header.slot_count + own as u64
    }

    /// The loader's descriptor, -1 if it is not open.
    pub fn fd(&self, own: Own) -> i32 {
        self.fds[own as usize]
    }

    /// Moves a descriptor to its number behind the slots, where it is in nobody's way.
    /// (`run` has no slots: descriptors stay where they are and close on exec.)
    pub fn place(&mut self, own: Own, fd: i32) {
        let number = self.own_number(own) as i32;
        let moved = !self.is_run() && fd != number && sys::dup_to(fd, number).is_ok();
        if moved {
            sys::close(fd);
        }
        self.fds[own as usize] = if moved { number } else { fd };
    }

    /// Another number for a descriptor that has come at one of those behind the slots, which another may be moved to.
    pub fn out_of_the_way(&self, fd: i32) -> i32 {
        let first = self.own_number(Own::Image);
        let behind_slots = first..first + OWN_COUNT;
        if self.is_run() || !behind_slots.contains(&(fd as u64)) {
            return fd;
        }
        // In the slots there is nothing yet.
        match sys::fcntl(fd, F_DUPFD_CLOEXEC, 3) {
            Ok(copy) if !behind_slots.contains(&copy) => {
                sys::close(fd);
                copy as i32
            }
            Ok(copy) => {
                sys::close(copy as i32);
                fd
            }
            Err(_) => fd,
        }
    }

    pub fn forget(&mut self, own: Own) {
        sys::close(self.fds[own as usize]);
        self.fds[own as usize] = -1;
    }

    /// Streams of a kind that belong to `parent`, with their index.
    pub fn streams_of(
        &self,
        kind: StreamKind,
        parent: u64,
    ) -> impl Iterator<Item = (u64, StreamEntry)> + use<> {
        let ops = self.ops;
        (1..ops.header().streams)
            .filter_map(move |index| Some((index, ops.stream(index)?)))
            .filter(move |(_, entry)| entry.kind == kind as u64 && entry.parent == parent)
    }

    /// The id that what was `id` at the checkpoint has now; a stranger's is what it was.
    pub fn id_now(&self, id: u64) -> u64 {
        self.id_in_job(id).unwrap_or(id)
    }

    /// The same, if it is of the job and there already.
    pub fn id_in_job(&self, id: u64) -> Option<u64> {
        let streams = self.ops.header().streams;
        let found = (1..streams).find(|index| {
            let entry = self.ops.stream(*index);
            entry.is_some_and(|entry| entry.id == id && entry.kind != StreamKind::Prepare as u64)
        });
        let tid = self.shared(found? + 1).tid.load(Ordering::Acquire);
        (tid != 0).then_some(u64::from(tid))
    }

    pub fn name(&self) -> &[u8] {
        if self.is_run() {
            return b"";
        }
        self.image.path()
    }
}
