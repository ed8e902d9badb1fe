//! Kernel features that a restored process may need again.
#![allow(unsafe_code)]

use super::{Outcome, Sheet, call, in_child, plain};

const PAGE: usize = 4096;
const HUGE: usize = 2 << 20;

const ARCH_SET_CPUID: u64 = 0x1012;
const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
const XFEATURE_XTILE_DATA: u64 = 18;
const PR_SET_MM_MAP_SIZE: u64 = 15;
const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
const PR_TIMER_CREATE_RESTORE_IDS: u64 = 77;
const PR_TIMER_CREATE_RESTORE_IDS_GET: u64 = 2;
const PR_SET_VMA: u64 = 0x5356_4d41;

/// Outcomes of [`kernel_features`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelFeatures {
    pub(crate) asked_for: AskedFor,
    pub(crate) transparent_huge_pages: Outcome,
    pub(crate) same_page_merging: Outcome,
    pub(crate) names_of_memory: Outcome,
    pub(crate) syscall_dispatch: Outcome,
    pub(crate) timer_ids: Outcome,
    pub(crate) tiles: Outcome,
    pub(crate) protection_keys: Outcome,
    pub(crate) realtime: Outcome,
    pub(crate) raise_priority: Outcome,
}

/// Features that are found out without a child: asking for them changes nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedFor {
    pub(crate) rseq: Outcome,
    pub(crate) membarrier: Outcome,
    pub(crate) mm_map_known: Outcome,
}

/// Asks for them.
pub(crate) fn asked_for() -> AskedFor {
    // rseq with flags that do not exist: EINVAL where the call exists.
    let no_such_flags = 0x4000_0000;
    let rseq = match plain(libc::SYS_rseq, [0, 32, no_such_flags, 0, 0, 0]) {
        Err(libc::EINVAL) => Ok(0),
        other => other,
    };
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
    let mm_map_known = unsafe { call(libc::SYS_prctl, map_size) };
    AskedFor {
        rseq: Outcome::of(&rseq),
        membarrier: Outcome::of(&plain(libc::SYS_membarrier, [0; 6])),
        mm_map_known: Outcome::of(&mm_map_known),
    }
}

/// Tries every feature, in one child.
pub(crate) fn kernel_features() -> KernelFeatures {
    let asked_for = asked_for();
    let tried = in_child(try_all);
    let at = |slot| {
        tried
            .as_ref()
            .map_or(Outcome::Untried, |(sheet, _)| sheet.outcome(slot))
    };
    KernelFeatures {
        asked_for,
        transparent_huge_pages: at(0),
        same_page_merging: at(1),
        names_of_memory: at(2),
        syscall_dispatch: at(3),
        timer_ids: at(4),
        tiles: at(5),
        protection_keys: at(6),
        realtime: at(7),
        raise_priority: at(8),
    }
}

fn try_all(sheet: &Sheet) {
    try_memory(sheet);
    let dispatch = [PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0, 0];
    sheet.note(3, &plain(libc::SYS_prctl, dispatch));
    let timer_ids = [
        PR_TIMER_CREATE_RESTORE_IDS,
        PR_TIMER_CREATE_RESTORE_IDS_GET,
        0,
        0,
        0,
        0,
    ];
    sheet.note(4, &plain(libc::SYS_prctl, timer_ids));
    let tiles = [ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA, 0, 0, 0, 0];
    sheet.note(5, &plain(libc::SYS_arch_prctl, tiles));
    sheet.note(6, &plain(libc::SYS_pkey_alloc, [0; 6]));
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
    sheet.note(7, &realtime);
    if realtime.is_ok() {
        let back = [0, libc::SCHED_OTHER as u64, &raw const ZERO as u64, 0, 0, 0];
        // SAFETY: as above.
        let _ = unsafe { call(libc::SYS_sched_setscheduler, back) };
    }
    let raise = [libc::PRIO_PROCESS as u64, 0, -20i64 as u64, 0, 0, 0];
    sheet.note(8, &plain(libc::SYS_setpriority, raise));
}

static ZERO: i32 = 0;

fn advise(memory: u64, advice: u64) -> Result<u64, i32> {
    plain(libc::SYS_madvise, [memory, HUGE as u64, advice, 0, 0, 0])
}

fn try_memory(sheet: &Sheet) {
    let len = 2 * HUGE as u64;
    let prot = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let Ok(at) = plain(libc::SYS_mmap, [0, len, prot, flags, -1i64 as u64, 0]) else {
        return;
    };
    let aligned = at.next_multiple_of(HUGE as u64);
    sheet.note(1, &advise(aligned, libc::MADV_MERGEABLE as u64));
    let name = c"wayfarer-probe";
    let named = [PR_SET_VMA, 0, aligned, PAGE as u64, name.as_ptr() as u64, 0];
    // SAFETY: the kernel reads a C string.
    sheet.note(2, &unsafe { call(libc::SYS_prctl, named) });
    sheet.note(0, &advise(aligned, libc::MADV_HUGEPAGE as u64));
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
