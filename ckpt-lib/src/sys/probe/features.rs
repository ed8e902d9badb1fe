//! Kernel features that a restored process may need again.
#![allow(unsafe_code)]

use super::{Outcome, Sheet, call, in_child, plain};

const PAGE: usize = 4096;
const HUGE: usize = 2 << 20;

const ARCH_SET_CPUID: u64 = 0x1012;
const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
const XFEATURE_XTILE_DATA: u64 = 18;
const MADV_COLLAPSE: u64 = 25;
const PR_SET_MM_MAP_SIZE: u64 = 15;
const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
const PR_TIMER_CREATE_RESTORE_IDS: u64 = 77;
const PR_TIMER_CREATE_RESTORE_IDS_GET: u64 = 2;
const PR_SET_VMA: u64 = 0x5356_4d41;

/// Outcomes of [`kernel_features`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelFeatures {
    pub(crate) rseq: Outcome,
    pub(crate) membarrier: Outcome,
    pub(crate) transparent_huge_pages: Outcome,
    pub(crate) same_page_merging: Outcome,
    pub(crate) names_of_memory: Outcome,
    pub(crate) collapse: Outcome,
    pub(crate) syscall_dispatch: Outcome,
    pub(crate) timer_ids: Outcome,
    pub(crate) mm_map_known: Outcome,
    pub(crate) tiles: Outcome,
    pub(crate) protection_keys: Outcome,
    pub(crate) realtime: Outcome,
    pub(crate) raise_priority: Outcome,
}

/// Tries every feature, in one child; `MADV_COLLAPSE` only if asked to, since it waits for every CPU
/// and is slow where they are busy.
pub(crate) fn kernel_features(with_collapse: bool) -> KernelFeatures {
    let tried = in_child(|sheet| {
        let memory = try_all(sheet);
        if let Some(memory) = memory.filter(|_| with_collapse) {
            try_collapse(sheet, memory);
        }
    });
    let at = |slot| {
        tried
            .as_ref()
            .map_or(Outcome::Untried, |(sheet, _)| sheet.outcome(slot))
    };
    KernelFeatures {
        rseq: at(0),
        membarrier: at(1),
        transparent_huge_pages: at(2),
        same_page_merging: at(3),
        names_of_memory: at(4),
        collapse: at(5),
        syscall_dispatch: at(6),
        timer_ids: at(7),
        mm_map_known: at(8),
        tiles: at(9),
        protection_keys: at(10),
        realtime: at(11),
        raise_priority: at(12),
    }
}

/// Returns the memory that was tried on.
fn try_all(sheet: &Sheet) -> Option<u64> {
    // rseq with flags that do not exist: EINVAL where the call exists.
    let exists = |result: Result<u64, i32>| match result {
        Err(libc::EINVAL) | Ok(_) => Ok(0),
        other => other,
    };
    let no_such_flags = 0x4000_0000;
    sheet.note(
        0,
        &exists(plain(libc::SYS_rseq, [0, 32, no_such_flags, 0, 0, 0])),
    );
    sheet.note(1, &plain(libc::SYS_membarrier, [0; 6]));
    let memory = try_memory(sheet);
    let dispatch = [PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0, 0];
    sheet.note(6, &plain(libc::SYS_prctl, dispatch));
    let timer_ids = [
        PR_TIMER_CREATE_RESTORE_IDS,
        PR_TIMER_CREATE_RESTORE_IDS_GET,
        0,
        0,
        0,
        0,
    ];
    sheet.note(7, &plain(libc::SYS_prctl, timer_ids));
    let mut size = 0u32;
    let map_size = [
        libc::PR_SET_MM as u64,
        PR_SET_MM_MAP_SIZE,
        &raw mut size as u64,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel writes four bytes to `size`.
    sheet.note(8, &unsafe { call(libc::SYS_prctl, map_size) });
    let tiles = [ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA, 0, 0, 0, 0];
    sheet.note(9, &plain(libc::SYS_arch_prctl, tiles));
    sheet.note(10, &plain(libc::SYS_pkey_alloc, [0; 6]));
    let priority: i32 = 1;
    let fifo = [
        0,
        libc::SCHED_FIFO as u64,
        &raw const priority as u64,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel reads a struct sched_param, one int.
    let realtime = unsafe { call(libc::SYS_sched_setscheduler, fifo) };
    sheet.note(11, &realtime);
    if realtime.is_ok() {
        let back = [0, libc::SCHED_OTHER as u64, &raw const ZERO as u64, 0, 0, 0];
        // SAFETY: as above.
        let _ = unsafe { call(libc::SYS_sched_setscheduler, back) };
    }
    let raise = [libc::PRIO_PROCESS as u64, 0, -20i64 as u64, 0, 0, 0];
    sheet.note(12, &plain(libc::SYS_setpriority, raise));
    memory
}

static ZERO: i32 = 0;

fn advise(memory: u64, advice: u64) -> Result<u64, i32> {
    plain(libc::SYS_madvise, [memory, HUGE as u64, advice, 0, 0, 0])
}

fn try_memory(sheet: &Sheet) -> Option<u64> {
    let len = 2 * HUGE as u64;
    let prot = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let at = plain(libc::SYS_mmap, [0, len, prot, flags, -1i64 as u64, 0]).ok()?;
    let aligned = at.next_multiple_of(HUGE as u64);
    sheet.note(3, &advise(aligned, libc::MADV_MERGEABLE as u64));
    let name = c"wayfarer-probe";
    let named = [PR_SET_VMA, 0, aligned, PAGE as u64, name.as_ptr() as u64, 0];
    // SAFETY: the kernel reads a C string.
    sheet.note(4, &unsafe { call(libc::SYS_prctl, named) });
    sheet.note(2, &advise(aligned, libc::MADV_HUGEPAGE as u64));
    Some(aligned)
}

fn try_collapse(sheet: &Sheet, memory: u64) {
    // SAFETY: the page was mapped readable and writable, and nothing else uses it.
    unsafe { (memory as *mut u8).write_volatile(1) };
    let collapsed = match advise(memory, MADV_COLLAPSE) {
        // No huge page was free just now: the call itself is there.
        Err(libc::EAGAIN | libc::ENOMEM | libc::EBUSY) => Ok(0),
        other => other,
    };
    sheet.note(5, &collapsed);
}

/// Whether CPUID can be made to raise SIGSEGV: switched on and executed in a child.
pub(crate) fn cpuid_faults() -> Outcome {
    let tried = in_child(|sheet| {
        let no_core = [libc::PR_SET_DUMPABLE as u64, 0, 0, 0, 0, 0];
        let _ = plain(libc::SYS_prctl, no_core);
        let off = plain(libc::SYS_arch_prctl, [ARCH_SET_CPUID, 0, 0, 0, 0, 0]);
        sheet.note(0, &off);
        if off.is_ok() {
            default_segv();
            crate::sys::cpu::execute_cpuid();
            sheet.put(1, 0);
        }
    });
    let Some((sheet, status)) = tried else {
        return Outcome::Untried;
    };
    let faulted =
        status.is_some_and(|s| libc::WIFSIGNALED(s) && libc::WTERMSIG(s) == libc::SIGSEGV);
    match sheet.outcome(0) {
        Outcome::Works if faulted => Outcome::Works,
        Outcome::Works => Outcome::Untried,
        refused => refused,
    }
}

fn default_segv() {
    // SAFETY: resets a disposition in a process that is about to end.
    unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
}
