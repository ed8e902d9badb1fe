//! Who we are: a process with its own memory and descriptors, or a child of vfork(2) that borrows its parent's
//! memory.
//!
//! ```text
//! fork:  memory is copied, and a page that is wiped then tells the child so
//! vfork: memory is shared, descriptors are not; while there may be such a child, DOUBT is set, and the
//!        process id tells who asks
//! ```

use super::cache;
use super::calls;
use super::direct;
use super::dispatch;
use super::entry::{DOUBT, REMOTE};
use super::foreseen;
use super::lanes;
use super::launch;
use super::offered;
use super::presence;
use super::resident;
use super::sys::{self, MADVISE, call};
use crate::habits::Habits;
use crate::table::Table;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Threads that may wait for a child of vfork at once.
const MOST_WAITING: usize = 64;
/// In the place of a process id, while a forked child gives up what is its parent's.
pub(super) const SETTLING: u32 = u32::MAX;
/// MADV_WIPEONFORK
const WIPE_ON_FORK: u64 = 18;

static TABLE: AtomicPtr<Table> = AtomicPtr::new(core::ptr::null_mut());
/// On a page of its own, zero after a fork.
static OWN: AtomicPtr<Own> = AtomicPtr::new(core::ptr::null_mut());
/// Thread ids, or 0.
static WAITING: [AtomicU32; MOST_WAITING] = [const { AtomicU32::new(0) }; MOST_WAITING];
/// Bits of umask(2).
pub(super) static UMASK: AtomicU32 = AtomicU32::new(0o22);

/// What a forked child does not have of its parent's.
#[repr(C)]
pub(super) struct Own {
    /// Our process id.
    pub(super) pid: AtomicU32,
    /// Whether the shadow knows us ([`presence`]).
    pub(super) attending: AtomicU32,
    /// By which number.
    pub(super) number: AtomicU64,
    /// By which number buffers are held ([`super::behind`]); 0: none yet.
    pub(super) writer: AtomicU32,
    /// Not zero: we are the process that the job began with, which is the one that is restarted ([`crate::used`]).
    pub(super) first: AtomicU32,
    /// A bit for many files: we may have record locks of one of them.
    pub(super) locked: [AtomicU64; Own::WORDS],
}

impl Own {
    pub(super) const WORDS: usize = 64;
}

const _: () = assert!(size_of::<Own>() <= 4096);

/// Says who we are, once.
pub(super) fn begin(table: &'static Table) -> sys::SysResult<()> {
    // PROT_READ|WRITE, MAP_PRIVATE|ANONYMOUS
    let page = sys::map(4096, 3, 0x22, -1)?;
    // SAFETY: the page was mapped just now.
    unsafe { call(MADVISE, [page as u64, 4096, WIPE_ON_FORK]) }?;
    let own = page.cast::<Own>();
    // SAFETY: the page is zero, aligned, and stays mapped.
    unsafe { &*own }.pid.store(sys::pid(), Ordering::Relaxed);
    OWN.store(own, Ordering::Release);
    TABLE.store(core::ptr::from_ref(table).cast_mut(), Ordering::Release);
    Ok(())
}

/// The file table; none if we serve nothing.
pub(super) fn table() -> Option<&'static Table> {
    // SAFETY: it is mapped as long as the process lives.
    unsafe { TABLE.load(Ordering::Acquire).as_ref() }
}

/// How the job's calls are served.
pub(super) fn habits() -> Option<&'static Habits> {
    table().map(|table| &table.header.habits)
}

/// What is ours alone, if memory is.
pub(super) fn own() -> Option<&'static Own> {
    // SAFETY: as in `begin`.
    unsafe { OWN.load(Ordering::Acquire).as_ref() }
}

/// We are the process that the job began with.
pub(super) fn begins_the_job() {
    if let Some(own) = own() {
        own.first.store(1, Ordering::Relaxed);
    }
}

/// Whether we are.
pub(super) fn is_first() -> bool {
    // A child's page is empty.
    own().is_some_and(|own| own.first.load(Ordering::Relaxed) != 0) && is_own()
}

/// Whether memory is ours alone; a child of vfork may change nothing of it.
pub(super) fn is_own() -> bool {
    let Some(own) = own() else {
        return true;
    };
    let owner = &own.pid;
    if !matches!(owner.load(Ordering::Acquire), 0 | SETTLING) && DOUBT.load(Ordering::Relaxed) == 0
    {
        return true;
    }
    let forked = owner.compare_exchange(0, SETTLING, Ordering::Acquire, Ordering::Acquire);
    if forked == Err(SETTLING) {
        // Another thread of a new process does what follows.
        while owner.load(Ordering::Acquire) == SETTLING {
            core::hint::spin_loop();
        }
    }
    if forked.is_ok() {
        // We have been forked.
        lanes::forget();
        cache::forget();
        direct::forget();
        offered::forget();
        foreseen::forget();
        launch::forget();
        dispatch::forget();
        presence::forget(own);
        resident::forget();
        calls::forget();
        for one in &WAITING {
            one.store(0, Ordering::Relaxed);
        }
        DOUBT.store(0, Ordering::Relaxed);
        owner.store(sys::pid(), Ordering::Release);
        return true;
    }
    if DOUBT.load(Ordering::Relaxed) == 0 {
        return true;
    }
    if owner.load(Ordering::Relaxed) != sys::pid() {
        return false;
    }
    // Whoever makes a call again does not wait any more.
    let tid = sys::tid();
    for one in &WAITING {
        let was = one.compare_exchange(tid, 0, Ordering::Relaxed, Ordering::Relaxed);
        if was.is_ok() {
            DOUBT.fetch_sub(1, Ordering::Relaxed);
        }
    }
    true
}

/// The process whose memory this is, if that is settled; changes nothing.
pub(super) fn owner() -> Option<u32> {
    let owner = own()?.pid.load(Ordering::Acquire);
    (!matches!(owner, 0 | SETTLING)).then_some(owner)
}

/// Whether we are a child of vfork; changes nothing.
pub(super) fn is_borrowing() -> bool {
    DOUBT.load(Ordering::Relaxed) != 0 && owner().is_some_and(|owner| owner != sys::pid())
}

/// A child is made now that shares our memory but not our descriptors.
pub(super) fn shares_memory_now() {
    if !is_own() {
        return;
    }
    let tid = sys::tid();
    let free = WAITING.iter().any(|one| {
        let took = one.compare_exchange(0, tid, Ordering::Relaxed, Ordering::Relaxed);
        took.is_ok()
    });
    // With no room it stays in doubt for good, which is slow and right.
    let _ = free;
    DOUBT.fetch_add(1, Ordering::Relaxed);
}

/// Which description a descriptor stands for.
pub(super) fn remote(fd: i32) -> Option<usize> {
    if !is_own() {
        return super::ends::ask_kernel(fd);
    }
    let index = REMOTE.get(usize::try_from(fd).ok()?)?;
    match index.load(Ordering::Relaxed) {
        0 => None,
        index => Some(usize::from(index) - 1),
    }
}

/// Notes what a descriptor stands for now.
pub(super) fn set_remote(fd: i32, description: Option<usize>) {
    if !is_own() {
        return;
    }
    let place = usize::try_from(fd).ok().and_then(|fd| REMOTE.get(fd));
    if let Some(place) = place {
        let index = description.map_or(0, |index| index as u16 + 1);
        place.store(index, Ordering::Relaxed);
    }
}
