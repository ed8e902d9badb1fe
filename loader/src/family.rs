//! The children of whoever keeps the job: which of them are the job's, and how they are ended.
//!
//! ```text
//! children at the start --spared--> never touched
//! created by us         --kill, wait-->  gone
//! orphans of the job    --come to us (subreaper), found in /proc--kill, wait--> gone
//! ```
//! # What callers may rely on
//! [`Family::end`] sends SIGKILL to nobody else, and returns when all it sent it to are gone: it sleeps in
//! `wait`, and asks nobody twice.
//!
//! # What it does not do
//! Orphans of a child that was there at the start cannot be told from the job's. Without /proc only
//! children that we created, and process groups they lead, are found.

use crate::abi::*;
use crate::report::Line;
use crate::sys;
use core::ffi::CStr;
use core::fmt::Write;

/// Most processes remembered of one kind.
const MOST: usize = 1000;
/// Rounds in which orphans are looked for: processes that fork faster than they are killed.
const ROUNDS: usize = 1000;

/// A few process ids.
#[derive(Clone, Copy)]
struct Pids {
    pids: [i32; MOST],
    count: usize,
}

impl Pids {
    const NONE: Pids = Pids {
        pids: [0; MOST],
        count: 0,
    };

    fn all(&self) -> &[i32] {
        &self.pids[..self.count]
    }

    /// Whether there was room.
    fn add(&mut self, pid: i32) -> bool {
        let place = self.pids.get_mut(self.count);
        let fits = place.is_some();
        if let Some(place) = place {
            *place = pid;
            self.count += 1;
        }
        fits
    }

    fn remove(&mut self, pid: i32) {
        if let Some(at) = self.all().iter().position(|other| *other == pid) {
            self.count -= 1;
            self.pids[at] = self.pids[self.count];
        }
    }
}

/// Our children.
pub struct Family {
    spared: Pids,
    created: Pids,
    /// More children at the start than can be remembered: orphans are let live.
    crowded: bool,
}

impl Family {
    /// Notes which children were there before the job.
    pub fn meet() -> Family {
        let mut family = Family {
            spared: Pids::NONE,
            created: Pids::NONE,
            crowded: false,
        };
        let crowded = &mut family.crowded;
        let spared = &mut family.spared;
        each_child(|pid| *crowded |= !spared.add(pid));
        family
    }

    /// A process that we have created.
    pub fn add(&mut self, pid: i32) {
        self.created.add(pid);
    }

    /// One that has been waited for: its id is somebody else's from now on.
    pub fn reaped(&mut self, pid: i32) {
        self.created.remove(pid);
        self.spared.remove(pid);
    }

    /// Ends what is left of the job.
    pub fn end(&mut self) {
        let created = self.created;
        let has_proc = each_child(|_| {});
        for pid in created.all() {
            let leads = sys::process_group(*pid) == Ok(*pid as u64);
            if !has_proc && leads {
                let _ = sys::kill(-pid, SIGKILL);
            }
            let _ = sys::kill(*pid, SIGKILL);
        }
        self.wait_for(created);
        for _ in 0..ROUNDS {
            let mut killed = Pids::NONE;
            let spared = self.spared;
            if !self.crowded {
                each_child(|pid| {
                    let ours = !spared.all().contains(&pid);
                    if ours && sys::kill(pid, SIGKILL).is_ok() {
                        killed.add(pid);
                    }
                });
            }
            if killed.count == 0 {
                return;
            }
            self.wait_for(killed);
        }
    }

    /// Waits until all of these are gone. Threads that we trace must be taken away, too, before their
    /// process ends: so whoever has something to say is heard.
    fn wait_for(&mut self, mut pids: Pids) {
        while pids.count > 0 {
            match sys::wait(-1, WALL) {
                Ok((_, status)) if status & 0xff == 0x7f => {}
                Ok((pid, _)) => {
                    pids.remove(pid);
                    self.reaped(pid);
                }
                Err(_) => return,
            }
        }
    }
}

/// Calls `each` for every child of this thread; false if this kernel or root does not show them.
fn each_child(mut each: impl FnMut(i32)) -> bool {
    let mut path = Line::new();
    let _ = write!(path, "/proc/self/task/{}/children\0", sys::tid());
    let path = CStr::from_bytes_until_nul(path.bytes());
    let Some(fd) = path.ok().and_then(|path| sys::open(path, O_RDONLY).ok()) else {
        return false;
    };
    let mut text = [0u8; 4096];
    let mut number = None;
    while let Ok(len @ 1..) = sys::read(fd, &mut text) {
        // A number may be cut by the end of the buffer: it goes on in the next.
        for byte in &text[..len] {
            number = match (number, byte) {
                (before, b'0'..=b'9') => {
                    let before: i32 = before.unwrap_or(0);
                    Some(before.wrapping_mul(10).wrapping_add(i32::from(byte - b'0')))
                }
                (Some(pid), _) => {
                    each(pid);
                    None
                }
                (None, _) => None,
            };
        }
    }
    if let Some(pid) = number {
        each(pid);
    }
    sys::close(fd);
    true
}
