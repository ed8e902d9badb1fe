//! RLIMIT_FSIZE (getrlimit(2)): the process's own is kept here, and heeded where remote files become longer. The kernel's is as high as it
//! may be, since that counts for the shim's memory files.
//!
//! ```text
//! exec: the kernel's soft limit is lower than its hard one? it is taken over, and raised
//!       else: as the process that executes the program has said (calls/programs.rs)
//! ```
//! # What it does not do
//! Files of this machine may become as long as the kernel's limit says. A child of vfork sets the kernel's soft limit, since its
//! memory is its parent's; the program that it executes takes that over.

use super::{File, Served};
use crate::program::process;
use crate::program::sys::{self, Errno, call};
use core::sync::atomic::{AtomicU64, Ordering};

const RLIMIT_FSIZE: u32 = 1;
const NONE: u64 = u64::MAX;
const REGULAR: u32 = 0o100_000;

static SOFT: AtomicU64 = AtomicU64::new(NONE);
static HARD: AtomicU64 = AtomicU64::new(NONE);

/// Soft and hard limit of the process.
pub(in crate::program) fn own() -> [u64; 2] {
    [&SOFT, &HARD].map(|limit| limit.load(Ordering::Relaxed))
}

fn keep([soft, hard]: [u64; 2]) {
    SOFT.store(soft, Ordering::Relaxed);
    HARD.store(hard, Ordering::Relaxed);
}

fn kernel(new: Option<&[u64; 2]>, old: Option<&mut [u64; 2]>) -> sys::SysResult<u64> {
    let new = new.map_or(0, |new| core::ptr::from_ref(new) as u64);
    let old = old.map_or(0, |old| core::ptr::from_mut(old) as u64);
    // SAFETY: the kernel reads two words and writes two.
    unsafe { call(sys::PRLIMIT64, [0, u64::from(RLIMIT_FSIZE), new, old]) }
}

/// In a new program, before anything is written to a file of the shim's.
pub(in crate::program) fn begin() {
    let mut found = [NONE; 2];
    let _ = kernel(None, Some(&mut found));
    keep(found);
    if found != [NONE; 2] && kernel(Some(&[NONE; 2]), None).is_err() {
        let _ = kernel(Some(&[found[1]; 2]), None);
    }
}

/// What the process has said that executed this program; but what the kernel said of a lower limit counts.
pub(in crate::program) fn inherit([soft, hard]: [u64; 2]) {
    let [found, most] = own();
    let soft = if found < most { found.min(soft) } else { soft };
    keep([soft, hard]);
}

pub(super) fn serve(number: u64, args: &[u64; 6]) -> Served {
    let [first, second, third, fourth, ..] = *args;
    match number {
        sys::GETRLIMIT if first as u32 == RLIMIT_FSIZE => Some(tell(second, own())),
        sys::SETRLIMIT if first as u32 == RLIMIT_FSIZE => Some(set(second)),
        sys::PRLIMIT64
            if second as u32 == RLIMIT_FSIZE
                && (first as u32 == 0 || first as u32 == sys::pid()) =>
        {
            let before = own();
            let done = if third == 0 { Ok(0) } else { set(third) };
            Some(match (done, fourth) {
                (Ok(_), 1..) => tell(fourth, before),
                (done, _) => done,
            })
        }
        _ => None,
    }
}

fn tell(address: u64, limits: [u64; 2]) -> Result<u64, Errno> {
    // SAFETY: the program says that there is room for two words, or nothing.
    let place = unsafe { (address as *mut [u64; 2]).as_mut() };
    *place.ok_or(Errno(sys::EFAULT))? = limits;
    Ok(0)
}

fn set(address: u64) -> Result<u64, Errno> {
    // SAFETY: the program says that two words are there, or nothing.
    let new = unsafe { (address as *const [u64; 2]).as_ref() };
    let new = *new.ok_or(Errno(sys::EFAULT))?;
    let [soft, hard] = new;
    if soft > hard {
        return Err(Errno(sys::EINVAL));
    }
    let [_, most] = own();
    if hard > most && !may_raise() {
        return Err(Errno(sys::EPERM));
    }
    if process::is_own() {
        keep(new);
        return Ok(0);
    }
    let mut found = [NONE; 2];
    kernel(None, Some(&mut found))?;
    kernel(Some(&[soft.min(found[1]), found[1]]), None)
}

/// CAP_SYS_RESOURCE.
fn may_raise() -> bool {
    const CAPGET: u64 = 125;
    const VERSION: u64 = 0x2008_0522;
    const RESOURCE: u32 = 1 << 24;
    let (head, mut found) = (VERSION, [0u32; 6]);
    let args = [&raw const head as u64, found.as_mut_ptr() as u64];
    // SAFETY: the kernel reads and writes two words, and writes six of four bytes.
    unsafe { call(CAPGET, args) }.is_ok() && found[0] & RESOURCE != 0
}

/// Whether there is any.
pub(in crate::program) fn are_set() -> bool {
    SOFT.load(Ordering::Relaxed) != NONE
}

/// SIGXFSZ, which the thread gets.
fn exceeded() -> Errno {
    const SIGXFSZ: u64 = 25;
    let args = [u64::from(sys::pid()), u64::from(sys::tid()), SIGXFSZ];
    // SAFETY: tgkill(2) takes numbers.
    let _ = unsafe { call(sys::TGKILL, args) };
    Errno(sys::EFBIG)
}

/// How many bytes may be written from there on, which are some.
pub(super) fn allow(begin: u64, len: usize) -> Result<usize, Errno> {
    let limit = SOFT.load(Ordering::Relaxed);
    if limit == NONE {
        return Ok(len);
    }
    match limit.checked_sub(begin) {
        None | Some(0) => Err(exceeded()),
        Some(rest) => Ok(usize::try_from(rest).map_or(len, |rest| len.min(rest))),
    }
}

/// Whether a file of this size may get another.
pub(super) fn allow_size(before: u64, after: u64) -> Result<(), Errno> {
    if after > before && after > SOFT.load(Ordering::Relaxed) {
        return Err(exceeded());
    }
    Ok(())
}

impl File {
    /// How much may be written, at the file's own offset or at another. Whether it may be written at all has been looked at.
    pub(super) fn allow(&self, at: Option<u64>, len: usize, appends: bool) -> Result<usize, Errno> {
        if !are_set() || self.kind() != REGULAR {
            return Ok(len);
        }
        let begin = match at {
            _ if appends => self.size()?,
            Some(at) => at,
            None => self.offset(),
        };
        allow(begin, len)
    }

    /// Whether it may be made so long.
    pub(super) fn allow_size(&self, size: u64) -> Result<(), Errno> {
        if !are_set() || self.kind() != REGULAR || self.flags() & sys::O_ACCMODE == 0 {
            return Ok(());
        }
        allow_size(self.size()?, size)
    }
}
