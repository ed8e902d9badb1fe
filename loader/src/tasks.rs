//! The threads of a process of the job, as /proc lists them, held all at once.
//!
//! # What callers may rely on
//! [`Stopped::hold_process`] succeeds only when every thread stands still. A thread that does not come to a stop
//! soon (in vfork, on a dead file system) is let go at its next stop by whoever reaps.
//!
//! # What it does not do
//! It holds no more than [`MOST`] threads.

use crate::abi::*;
use crate::report::Line;
use crate::sys::{self, Errno, SysResult, call};
use crate::traced::{Held, ptrace};
use core::ffi::CStr;
use core::fmt::Write;

/// Most threads held at once.
const MOST: usize = 4096;

/// Of what process a thread is, and whose child that is.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    pub process: i32,
    pub parent: i32,
}

fn file<'a>(room: &'a mut [u8], path: core::fmt::Arguments<'_>) -> Option<&'a [u8]> {
    let mut line = Line::new();
    let _ = write!(line, "{path}\0");
    let path = CStr::from_bytes_until_nul(line.bytes()).ok()?;
    let fd = sys::open(path, O_RDONLY).ok()?;
    let len = sys::pread_full(fd, room, 0);
    sys::close(fd);
    room.get(..len.ok()?)
}

fn number(text: &[u8]) -> Option<i32> {
    core::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// What /proc says about a thread.
pub fn status(tid: i32) -> Option<Status> {
    let mut room = [0; 4096];
    let text = file(&mut room, format_args!("/proc/{tid}/status"))?;
    let field = |name: &[u8]| {
        let mut lines = text.split(|byte| *byte == b'\n');
        number(lines.find_map(|line| line.strip_prefix(name))?)
    };
    Some(Status {
        process: field(b"Tgid:")?,
        parent: field(b"PPid:")?,
    })
}

/// Of a thread, as /proc says it: `D` if it sleeps where nothing interrupts it, as in vfork.
fn state(tid: i32) -> Option<u8> {
    let mut room = [0; 512];
    let text = file(&mut room, format_args!("/proc/{tid}/stat"))?;
    let name_end = text.iter().rposition(|byte| *byte == b')')?;
    text.get(name_end + 2).copied()
}

/// Whether a thread is dead: listed until somebody waits for it, or for a moment only.
fn has_ended(tid: i32) -> bool {
    matches!(state(tid), None | Some(b'Z' | b'X'))
}

/// Threads that stand still.
pub struct Stopped {
    held: &'static mut [Held],
    count: usize,
    ended: Option<(i32, u32)>,
}

impl Stopped {
    pub fn new() -> SysResult<Self> {
        let len = (MOST * size_of::<Held>()) as u64;
        // SAFETY: new memory, anywhere.
        let at = unsafe { sys::map(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS) }?;
        // SAFETY: just mapped, big enough; zeros are a `Held` that nobody looks at.
        let held = unsafe { core::slice::from_raw_parts_mut(at as *mut Held, MOST) };
        Ok(Stopped {
            held,
            count: 0,
            ended: None,
        })
    }

    fn is_held(&self, tid: i32) -> bool {
        self.held
            .iter()
            .take(self.count)
            .any(|held| held.tid == tid)
    }

    /// Brings a thread to a stop; one that has ended is none.
    pub fn hold(&mut self, tid: i32, looks: u32, between: Timespec) -> SysResult<()> {
        let mut left = looks;
        while state(tid) == Some(b'D') {
            left = left.checked_sub(1).ok_or(Errno(EAGAIN))?;
            let _ = sys::poll(&mut [], Some(between));
        }
        match ptrace(PTRACE_SEIZE, tid, 0, PTRACE_O_TRACESYSGOOD) {
            Err(Errno(ESRCH)) => return Ok(()),
            Err(Errno(EPERM)) if has_ended(tid) => return Ok(()),
            other => other?,
        };
        let _ = ptrace(PTRACE_INTERRUPT, tid, 0, 0);
        let mut held = Held::new(tid);
        while let Some(stop) = held.wait_for(looks, between) {
            if stop >> 8 == PTRACE_EVENT_STOP {
                *self.held.get_mut(self.count).ok_or(Errno(EAGAIN))? = held;
                self.count += 1;
                return Ok(());
            }
            ptrace(PTRACE_CONT, tid, 0, u64::from(stop & 0x7f))?;
        }
        match held.ended {
            Some(ended) => {
                self.ended = Some(ended);
                Ok(())
            }
            None => Err(Errno(EAGAIN)),
        }
    }

    /// Brings all threads of a process to a stop.
    ///
    /// A thread that ends while they are listed can hide others (fs/proc/base.c, `next_tid`). If it was listed itself, it is not held: none
    /// may be there any more when nobody is left to be held. If it was not (`proc_task_readdir`), there are more than listed.
    pub fn hold_process(&mut self, process: i32, looks: u32, between: Timespec) -> SysResult<()> {
        let mut waits = 0;
        while waits < looks {
            let before = self.count;
            if self.hold_listed(process, looks, between)? {
                return Ok(());
            }
            if self.count == before {
                // For those that end to be gone.
                waits += 1;
                let _ = sys::poll(&mut [], Some(between));
            }
        }
        Err(Errno(EAGAIN))
    }

    /// Holds all that are listed; whether all were held before, but for a first thread that has ended.
    fn hold_listed(&mut self, process: i32, looks: u32, between: Timespec) -> SysResult<bool> {
        let mut line = Line::new();
        let _ = write!(line, "/proc/{process}/task\0");
        let path = CStr::from_bytes_until_nul(line.bytes()).map_err(|_| Errno(EINVAL))?;
        let directory = sys::open(path, O_RDONLY | O_DIRECTORY)?;
        let mut result = Ok(true);
        let mut listed = 0;
        let mut room = [0u64; 512];
        while result.is_ok() {
            let args = [
                directory as u64,
                room.as_mut_ptr() as u64,
                size_of_val(&room) as u64,
            ];
            // SAFETY: the kernel writes within the array.
            let len = match unsafe { call(SYS_GETDENTS64, args) } {
                Ok(0) => break,
                Ok(len) => len as usize,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            };
            // SAFETY: as many bytes of the array.
            let bytes = unsafe { core::slice::from_raw_parts(room.as_ptr().cast::<u8>(), len) };
            let mut at = 0;
            // struct linux_dirent64: length at 16, name from 19.
            while let Some([low, high]) = bytes.get(at + 16..at + 18) {
                let end = at + usize::from(u16::from_le_bytes([*low, *high]));
                let name = bytes.get(at + 19..end).unwrap_or(&[]);
                at = end;
                let name = name.split(|byte| *byte == 0).next().unwrap_or(&[]);
                let Some(tid) = number(name) else {
                    continue;
                };
                listed += 1;
                if !self.is_held(tid) && result.is_ok() && !(tid == process && has_ended(tid)) {
                    result = self.hold(tid, looks, between).map(|()| false);
                }
            }
        }
        // Two links, and one for each thread (fs/proc/base.c, `proc_task_getattr`).
        let links = sys::stat(directory).map(|stat| stat.nlink);
        sys::close(directory);
        result.and_then(|all_held| Ok(all_held && links? == listed + 2))
    }

    pub fn each(&mut self, mut work: impl FnMut(&mut Held)) {
        self.held.iter_mut().take(self.count).for_each(&mut work);
    }

    /// Lets all go on; a process that has ended meanwhile, and how.
    pub fn let_go(mut self) -> Option<(i32, u32)> {
        let mut ended = self.ended;
        self.each(|held| {
            held.let_go();
            ended = held.ended.or(ended);
        });
        let (at, len) = (self.held.as_ptr() as u64, size_of_val(self.held) as u64);
        // SAFETY: mapped by `new`, and not used any more.
        let _ = unsafe { sys::unmap(at, len) };
        ended
    }
}
