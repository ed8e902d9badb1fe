//! What a job had used of processors before it was restarted: the kernel counts from 0 then, the job's clocks do not.
//!
//! ```text
//! freeze n   --checkpoint, while all stand still--> the slot that is not in use: what was used in all; freezes = n
//! the image  has it, for it is in the file table
//! a restart  is another copy, so the newest slot of an older copy is what is added to the kernel's numbers
//! the copy that went on is the one that the slot was written in: it adds the slot of before
//! ```
//! # What callers may rely on
//! A slot that is in use is never written. Who finds the same [`Used::freezes`] before and after he has asked the kernel has not been
//! restarted in between, since every restart is of an image, and every image has a freeze of its own.
//!
//! # What it does not do
//! Only the process that was restarted has used anything before; others begin at 0, as by the kernel.

use core::sync::atomic::{AtomicU64, Ordering};

/// Threads whose own clocks go on; those of others count from the restart.
pub const THREADS: usize = 1024;
/// Words of `struct rusage` (getrusage(2)).
pub const USAGE_WORDS: usize = 18;
/// Those that are no sums: seconds and microseconds of two times, and the largest size.
const MAX_RSS: usize = 4;

/// What was used, as the kernel tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// On a processor (CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID).
    pub runtime_ns: u64,
    /// getrusage(2).
    pub usage: [u64; USAGE_WORDS],
}

impl Amount {
    /// Both, one after the other.
    #[must_use]
    pub fn and(&self, other: &Amount) -> Amount {
        Amount {
            runtime_ns: self.runtime_ns.wrapping_add(other.runtime_ns),
            usage: sum(&self.usage, &other.usage),
        }
    }

    /// In user mode.
    #[must_use]
    pub fn user_us(&self) -> u64 {
        microseconds(&self.usage, 0)
    }

    /// In the kernel.
    #[must_use]
    pub fn system_us(&self) -> u64 {
        microseconds(&self.usage, 2)
    }
}

fn microseconds(usage: &[u64; USAGE_WORDS], at: usize) -> u64 {
    let seconds = usage[at].wrapping_mul(1_000_000);
    seconds.wrapping_add(usage[at + 1])
}

/// Of two `struct rusage`.
#[must_use]
pub fn sum(one: &[u64; USAGE_WORDS], other: &[u64; USAGE_WORDS]) -> [u64; USAGE_WORDS] {
    let mut all = [0; USAGE_WORDS];
    for (index, word) in all.iter_mut().enumerate() {
        *word = match index {
            MAX_RSS => one[index].max(other[index]),
            _ => one[index].wrapping_add(other[index]),
        };
    }
    for at in [0, 2] {
        let time = microseconds(&all, at);
        [all[at], all[at + 1]] = [time / 1_000_000, time % 1_000_000];
    }
    all
}

/// An [`Amount`] in the table.
#[derive(Debug)]
#[repr(C)]
pub struct Figures {
    runtime_ns: AtomicU64,
    usage: [AtomicU64; USAGE_WORDS],
}

impl Figures {
    /// What is there.
    #[must_use]
    pub fn read(&self) -> Amount {
        let mut usage = [0; USAGE_WORDS];
        for (word, place) in usage.iter_mut().zip(&self.usage) {
            *word = place.load(Ordering::Relaxed);
        }
        Amount {
            runtime_ns: self.runtime_ns.load(Ordering::Relaxed),
            usage,
        }
    }

    fn write(&self, amount: &Amount) {
        self.runtime_ns.store(amount.runtime_ns, Ordering::Relaxed);
        for (word, place) in amount.usage.iter().zip(&self.usage) {
            place.store(*word, Ordering::Relaxed);
        }
    }
}

/// What a thread has used.
#[derive(Clone, Copy, Debug)]
pub struct ThreadAmount {
    /// As the job calls it.
    pub tid: u32,
    /// The base of its fs.
    pub data: u64,
    /// Since the kernel has made it.
    pub amount: Amount,
}

/// A thread's.
#[derive(Debug)]
#[repr(C)]
pub struct ThreadFigures {
    /// As the job calls it.
    pub tid: AtomicU64,
    /// Where its own data is (the base of fs): tells it from another that has its id later.
    pub data: AtomicU64,
    /// What it had used.
    pub figures: Figures,
}

/// What was used up to a freeze.
#[derive(Debug)]
#[repr(C)]
pub struct Slot {
    /// In which copy of the job ([`crate::link::Link::generation`]); 0: nothing is written here.
    pub copy: AtomicU64,
    /// At which freeze.
    pub freeze: AtomicU64,
    /// The process's id, as the job calls it.
    pub pid: AtomicU64,
    /// By the process.
    pub itself: Figures,
    /// By its children that have ended.
    pub children: Figures,
    /// So many of `threads`.
    pub count: AtomicU64,
    /// By each of its threads.
    pub threads: [ThreadFigures; THREADS],
}

impl Slot {
    /// It was written of a process that is called so: ids are those of before.
    #[must_use]
    pub fn is_of(&self, pid: u32) -> bool {
        self.pid.load(Ordering::Relaxed) == u64::from(pid)
    }

    /// The thread with this id, whose own data is there. `knows_ids`: ids are those of before.
    #[must_use]
    pub fn thread(&self, tid: u32, data: u64, knows_ids: bool) -> Option<Amount> {
        let count = self.count.load(Ordering::Relaxed) as usize;
        let found = self.threads.iter().take(count).find(|one| {
            let is_at = one.data.load(Ordering::Relaxed) == data;
            let is_called = one.tid.load(Ordering::Relaxed) == u64::from(tid);
            is_at && (is_called || !knows_ids && data != 0)
        });
        found.map(|one| one.figures.read())
    }

    /// The thread that is called so.
    #[must_use]
    pub fn thread_called(&self, tid: u32) -> Option<Amount> {
        let count = self.count.load(Ordering::Relaxed) as usize;
        let is_called = |one: &&ThreadFigures| one.tid.load(Ordering::Relaxed) == u64::from(tid);
        let found = self.threads.iter().take(count).find(is_called);
        found.map(|one| one.figures.read())
    }
}

/// What is in the table.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Used {
    /// How often the job was frozen.
    pub freezes: AtomicU64,
    /// What the job itself has found out: at which freeze, and behind that in two bits the slot in use and 1, or 0.
    pub found: AtomicU64,
    /// Two, of which one may be written.
    pub slots: [Slot; 2],
}

impl Used {
    /// Which slot counts in this copy of the job.
    #[must_use]
    pub fn in_use(&self, copy: u64) -> Option<usize> {
        let newest = |index: &usize| self.slots[*index].freeze.load(Ordering::Relaxed);
        (0..2)
            .filter(|index| {
                let of = self.slots[*index].copy.load(Ordering::Relaxed);
                of != 0 && of != copy
            })
            .max_by_key(newest)
    }

    /// Which one can be written.
    fn free(&self, copy: u64) -> usize {
        self.in_use(copy).map_or(0, |used| 1 - used)
    }

    /// The frozen job: what the kernel says that its process, its children that have ended, and its threads have used in this copy.
    pub fn note(
        &self,
        copy: u64,
        pid: u32,
        [itself, children]: &[Amount; 2],
        threads: impl Iterator<Item = ThreadAmount>,
    ) {
        let before = self.in_use(copy).and_then(|index| self.slots.get(index));
        let slot = &self.slots[self.free(copy)];
        // Who is killed meanwhile leaves one that nobody takes for written.
        slot.copy.store(0, Ordering::Release);
        let freeze = self.freezes.load(Ordering::Relaxed) + 1;
        let all = |before: Option<Amount>, now: &Amount| before.unwrap_or_default().and(now);
        slot.itself
            .write(&all(before.map(|slot| slot.itself.read()), itself));
        slot.children
            .write(&all(before.map(|slot| slot.children.read()), children));
        // Without namespaces of its own a restarted job has other ids.
        let knows_ids = before.is_some_and(|slot| slot.is_of(pid));
        let mut count = 0;
        for (place, thread) in slot.threads.iter().zip(threads) {
            let earlier = before.and_then(|slot| slot.thread(thread.tid, thread.data, knows_ids));
            place.tid.store(thread.tid.into(), Ordering::Relaxed);
            place.data.store(thread.data, Ordering::Relaxed);
            place.figures.write(&all(earlier, &thread.amount));
            count += 1;
        }
        slot.count.store(count, Ordering::Relaxed);
        slot.pid.store(pid.into(), Ordering::Relaxed);
        slot.freeze.store(freeze, Ordering::Relaxed);
        slot.copy.store(copy, Ordering::Release);
        self.freezes.store(freeze, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zeroed::zeroed;
    use alloc::vec::Vec;

    fn amount(runtime_ns: u64) -> Amount {
        Amount {
            runtime_ns,
            ..Amount::default()
        }
    }

    /// A copy in which the process has used so much, and its threads as much as they are called.
    fn freeze(used: &Used, copy: u64, runtime_ns: u64, tids: &[u32]) {
        let threads = tids.iter().map(|tid| ThreadAmount {
            tid: *tid,
            data: 0x1000 * u64::from(*tid),
            amount: amount((*tid).into()),
        });
        used.note(copy, 40, &[amount(runtime_ns), amount(1)], threads);
    }

    fn before(used: &Used, copy: u64) -> u64 {
        let slot = used.in_use(copy).map(|index| &used.slots[index]);
        slot.map_or(0, |slot| slot.itself.read().runtime_ns)
    }

    #[test]
    fn what_is_in_use_stays_whatever_comes_and_each_copy_has_all_of_before() {
        let used = zeroed::<Used>();
        freeze(&used, 7, 5, &[40]);
        freeze(&used, 7, 10, &[40, 41]);
        assert_eq!(before(&used, 7), 0, "it goes on, and nothing was before it");
        for (index, copy) in (8..20).enumerate() {
            let all = 10 + 3 * index as u64;
            assert_eq!(before(&used, copy), all);
            for runtime_ns in 1..=3 {
                freeze(&used, copy, runtime_ns, &[41, 42 + copy as u32]);
                assert_eq!(before(&used, copy), all);
            }
        }
        let last = &used.slots[used.in_use(20).expect("there is one")];
        assert_eq!(last.children.read().runtime_ns, 13, "one in each copy");
        let of = |tid: u32| last.thread(tid, 0x1000 * u64::from(tid), true);
        assert_eq!(of(41), Some(amount(41 * 13)));
        assert_eq!(of(61), Some(amount(61)), "it began in the last");
        assert_eq!(of(60), None, "it has ended before");
    }

    #[test]
    fn more_threads_than_there_is_room_for_do_no_harm() {
        let used = zeroed::<Used>();
        let tids: Vec<u32> = (1..=THREADS as u32 + 5).collect();
        freeze(&used, 1, 5, &tids);
        let slot = &used.slots[0];
        assert!(slot.thread_called(THREADS as u32).is_some());
        assert!(slot.thread_called(THREADS as u32 + 1).is_none());
    }

    #[test]
    fn amounts_are_summed_as_the_kernel_counts() {
        let mut usage = [3; USAGE_WORDS];
        usage[1] = 700_000;
        let one = Amount {
            runtime_ns: 5,
            usage,
        };
        usage[MAX_RSS] = 2;
        let both = one.and(&Amount {
            runtime_ns: 6,
            usage,
        });
        assert_eq!((both.runtime_ns, both.user_us()), (11, 7_400_000));
        assert_eq!(both.usage[..6], [7, 400_000, 6, 6, 3, 6]);
    }

    #[test]
    fn a_thread_is_known_by_its_id_and_where_its_data_is() {
        let used = zeroed::<Used>();
        let slot = &used.slots[0];
        slot.count.store(1, Ordering::Relaxed);
        slot.threads[0].tid.store(40, Ordering::Relaxed);
        slot.threads[0].data.store(0x7000, Ordering::Relaxed);
        assert!(slot.thread(40, 0x7000, true).is_some());
        assert!(slot.thread(40, 0x8000, true).is_none(), "another one since");
        assert!(slot.thread(41, 0x7000, true).is_none());
        assert!(slot.thread(41, 0x7000, false).is_some(), "ids are new");
        assert!(slot.thread_called(40).is_some() && slot.thread_called(0).is_none());
    }
}
