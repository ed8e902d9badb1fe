//! Trying what the kernel lets this user do, each thing once, where it can do no harm.
//!
//! ```text
//! caller --fork--> child: tries, writes each outcome into a shared page, _exit
//!    `--- waits with a deadline, then kills; reads the page
//! ```
//! # What callers may rely on
//! A trial changes nothing in the calling process and leaves no process behind. The child makes
//! system calls only: no allocation, no lock, since other threads may exist.

#![allow(unsafe_code)]

pub(crate) mod features;
pub(crate) mod namespaces;
pub(crate) mod programs;
pub(crate) mod tracing;

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// Outcome not written: the child did not get there.
const UNTRIED: i32 = i32::MIN;
/// A child that has not finished by then is killed.
const DEADLINE: Duration = Duration::from_secs(20);
const SLOTS: usize = 32;

/// How a trial went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It worked.
    Works,
    /// The kernel said no, with this errno.
    Errno(i32),
    /// Something else was in the way (an earlier step failed, the child died).
    Untried,
}

impl Outcome {
    /// Of a call.
    pub(super) fn of<T>(result: &Result<T, i32>) -> Self {
        match result {
            Ok(_) => Outcome::Works,
            Err(errno) => Outcome::Errno(*errno),
        }
    }

    pub(crate) fn works(self) -> bool {
        self == Outcome::Works
    }
}

/// Makes a system call.
///
/// # Safety
/// As the call itself: every argument that it takes for an address must be valid for it.
pub(super) unsafe fn call(nr: i64, args: [u64; 6]) -> Result<u64, i32> {
    let [a, b, c, d, e, f] = args;
    // SAFETY: the caller vouches for the arguments.
    let result = unsafe { libc::syscall(nr, a, b, c, d, e, f) };
    if result == -1 {
        return Err(errno());
    }
    Ok(result as u64)
}

/// Makes a system call none of whose arguments is an address that the kernel reads or writes.
pub(super) fn plain(nr: i64, args: [u64; 6]) -> Result<u64, i32> {
    // SAFETY: by the name of this function; it is private to the probes, which keep to it.
    unsafe { call(nr, args) }
}

fn errno() -> i32 {
    nix::errno::Errno::last_raw()
}

/// Outcomes shared between a trial's child and its parent.
pub(super) struct Sheet {
    slots: *const [AtomicI32; SLOTS],
}

impl Sheet {
    fn new() -> Option<Self> {
        let len = size_of::<[AtomicI32; SLOTS]>();
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping at a place of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return None;
        }
        let sheet = Sheet { slots: at.cast() };
        for slot in sheet.slots() {
            slot.store(UNTRIED, Ordering::SeqCst);
        }
        Some(sheet)
    }

    fn slots(&self) -> &[AtomicI32; SLOTS] {
        // SAFETY: mapped in `new`, aligned to a page, unmapped only on drop.
        unsafe { &*self.slots }
    }

    /// Notes the outcome of a call.
    pub(super) fn note<T>(&self, slot: usize, result: &Result<T, i32>) {
        let value = result.as_ref().err().copied().unwrap_or(0);
        self.put(slot, value);
    }

    /// Puts a number into a slot.
    pub(super) fn put(&self, slot: usize, value: i32) {
        self.slots()[slot].store(value, Ordering::SeqCst);
    }

    /// The number in a slot, if the child put one there.
    pub(super) fn get(&self, slot: usize) -> Option<i32> {
        Some(self.slots()[slot].load(Ordering::SeqCst)).filter(|value| *value != UNTRIED)
    }

    /// The outcome noted in a slot.
    pub(super) fn outcome(&self, slot: usize) -> Outcome {
        match self.get(slot) {
            None => Outcome::Untried,
            Some(0) => Outcome::Works,
            Some(errno) => Outcome::Errno(errno),
        }
    }
}

impl Drop for Sheet {
    fn drop(&mut self) {
        let len = size_of::<[AtomicI32; SLOTS]>();
        // SAFETY: this is the mapping made in `new`; no reference outlives `self`.
        unsafe { libc::munmap(self.slots as *mut libc::c_void, len) };
    }
}

/// A child of ours; killed and reaped when dropped.
pub(super) struct Child {
    pub(super) pid: i32,
    /// Wait status, once reaped.
    status: Option<i32>,
}

impl Child {
    /// Forks; the child runs `trial`, which must only make system calls, and leaves.
    pub(super) fn run(trial: impl FnOnce()) -> Option<Self> {
        // SAFETY: getpid has no arguments.
        let parent = unsafe { libc::getpid() };
        // SAFETY: the child only makes system calls (see the module's header) and leaves by _exit.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return None;
        }
        if pid == 0 {
            let kill = libc::SIGKILL as u64;
            let _ = plain(
                libc::SYS_prctl,
                [libc::PR_SET_PDEATHSIG as u64, kill, 0, 0, 0, 0],
            );
            if plain(libc::SYS_getppid, [0; 6]) == Ok(parent as u64) {
                trial();
            }
            exit();
        }
        Some(Child { pid, status: None })
    }

    /// Waits until the child has ended or `deadline` has passed; its wait status.
    pub(super) fn wait(&mut self, deadline: Duration) -> Option<i32> {
        let until = Instant::now() + deadline;
        let mut pause = Duration::from_micros(50);
        while self.status.is_none() {
            self.reap(libc::WNOHANG);
            if self.status.is_some() || Instant::now() >= until {
                break;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(2));
        }
        self.status
    }

    fn reap(&mut self, flags: i32) {
        let mut status = 0;
        // SAFETY: `status` is an int; the pid is that of a child not yet reaped.
        let found = unsafe { libc::waitpid(self.pid, &raw mut status, flags | libc::__WALL) };
        let ended = libc::WIFEXITED(status) || libc::WIFSIGNALED(status);
        if found == self.pid && ended {
            self.status = Some(status);
        } else if found < 0 && errno() == libc::ECHILD {
            // Somebody ignores SIGCHLD, or reaped it for us.
            self.status = Some(0);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.status.is_none() {
            // SAFETY: a child of ours that has not been reaped, so the pid is still its own.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            while self.status.is_none() {
                self.reap(0);
            }
        }
    }
}

/// Leaves a child of [`Child::run`].
pub(super) fn exit() -> ! {
    // SAFETY: _exit takes a number and does not return.
    unsafe { libc::_exit(0) }
}

/// So many children are tried if somebody kills them (for want of memory, say): what that leaves untried is there all the same.
const MOST_KILLED: usize = 5;

/// Runs `trial` in a child and hands back what it wrote, and the child's wait status.
pub(super) fn in_child(trial: impl Fn(&Sheet)) -> Option<(Sheet, Option<i32>)> {
    let mut tried = in_one_child(&trial);
    for _ in 1..MOST_KILLED {
        match tried {
            Some((_, Some(status))) if was_killed(status) => tried = in_one_child(&trial),
            tried => return tried,
        }
    }
    tried
}

/// By whoever can kill anybody; no trial of ours ends so.
fn was_killed(status: i32) -> bool {
    libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL
}

fn in_one_child(trial: impl FnOnce(&Sheet)) -> Option<(Sheet, Option<i32>)> {
    let sheet = Sheet::new()?;
    let mut child = Child::run(|| trial(&sheet))?;
    let status = child.wait(DEADLINE);
    drop(child);
    Some((sheet, status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_somebody_kills_is_followed_by_another() {
        let seen = Sheet::new().expect("memory");
        let (sheet, status) = in_child(|sheet| {
            let so_far = seen.get(0).unwrap_or(0);
            seen.put(0, so_far + 1);
            if so_far < 2 {
                let _ = plain(
                    libc::SYS_kill,
                    [own_pid(), libc::SIGKILL as u64, 0, 0, 0, 0],
                );
            }
            sheet.put(0, 0);
        })
        .expect("child");
        assert_eq!((seen.get(0), status), (Some(3), Some(0)));
        assert_eq!(sheet.outcome(0), Outcome::Works);
        // Not for ever.
        let (sheet, status) = in_child(|_| {
            let _ = plain(
                libc::SYS_kill,
                [own_pid(), libc::SIGKILL as u64, 0, 0, 0, 0],
            );
        })
        .expect("child");
        assert!(status.is_some_and(was_killed));
        assert_eq!(sheet.outcome(0), Outcome::Untried);
    }

    fn own_pid() -> u64 {
        plain(libc::SYS_getpid, [0; 6]).unwrap_or(0)
    }

    #[test]
    fn what_a_child_notes_is_read_and_what_it_does_not_reach_is_untried() {
        let (sheet, status) = in_child(|sheet| {
            sheet.put(0, 0);
            sheet.note::<()>(1, &Err(libc::EPERM));
        })
        .expect("child");
        assert_eq!(sheet.outcome(0), Outcome::Works);
        assert_eq!(sheet.outcome(1), Outcome::Errno(libc::EPERM));
        assert_eq!(sheet.outcome(2), Outcome::Untried);
        assert_eq!(status, Some(0));
    }

    #[test]
    fn a_child_that_hangs_is_killed() {
        let mut child = Child::run(|| {
            let _ = plain(libc::SYS_pause, [0; 6]);
        })
        .expect("child");
        assert_eq!(child.wait(Duration::from_millis(20)), None);
        let pid = child.pid;
        drop(child);
        // SAFETY: signal 0 only asks whether the process exists.
        assert_eq!(unsafe { libc::kill(pid, 0) }, -1);
    }
}
