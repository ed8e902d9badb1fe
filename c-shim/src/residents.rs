//! Files that are resident: somebody of the job has mapped them shared, so that for the job their contents are here and nowhere else
//! (DESIGN §6, "Inside one job: one local file system").
//!
//! ```text
//! Reserved::Store: programs and libraries | window 0, its copy | window 1, its copy | ...      (sparse)
//! window: what all processes have mapped     copy: the same as the shadow has it, so that what was changed is found
//! ```
//! Each process that has mapped one holds it by the end of something that only its mappings keep alive ([`Hold`]): the last end is
//! the file's end here.

use crate::store::STORE_LEN;
use core::ops::Range;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// Files that a job may have mapped shared at once.
pub const RESIDENTS: usize = 64;
/// Processes that hold one, each counted for each file; those that a fork has made count with their parent.
pub const HOLDS: usize = 1024;
/// Most bytes of such a file, and of a mapping of it from the file's beginning.
pub const WINDOW: u64 = 64 << 30;
/// Bytes of the whole file behind [`crate::table::Reserved::Store`].
pub const FILE_LEN: u64 = STORE_LEN + 2 * RESIDENTS as u64 * WINDOW;
/// Differences with fewer equal bytes between them are one.
const GAP: usize = 256;

/// A file that is resident.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Resident {
    /// [`FREE`] or [`LIVE`].
    pub state: AtomicU32,
    /// Not zero when its contents are there.
    pub filled: AtomicU32,
    /// Not zero when it may be changed by a mapping, so that there is a copy.
    pub copied: AtomicU32,
    /// How many hold it.
    pub holders: AtomicU32,
    /// Where it lies at the shadow's.
    pub device: AtomicU64,
    /// Which it is there.
    pub inode: AtomicU64,
    /// Bytes.
    pub size: AtomicU64,
    /// Opened for writing at the shadow, for us alone; 0: not yet.
    pub handle: AtomicU64,
    /// When it was compared with what the shadow has.
    pub seen_ms: AtomicU64,
    /// Times of its last change that are known, 0 after a change of the job's own.
    pub changed: AtomicU64,
}

/// Nobody's.
pub const FREE: u32 = 0;
/// Somebody has it mapped, or is about to.
pub const LIVE: u32 = 1;

/// Something that is there as long as a process has a file mapped.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Hold {
    /// The inotify watch that tells of its end; 0: none.
    watch: AtomicI32,
    resident: AtomicU32,
}

/// All of them.
#[derive(Debug)]
#[repr(C)]
pub struct Residents {
    /// How many are live.
    pub live: AtomicU32,
    slots: [Resident; RESIDENTS],
    holds: [Hold; HOLDS],
}

/// Where the window of a file begins.
#[must_use]
pub fn window(index: usize) -> u64 {
    STORE_LEN + 2 * index as u64 * WINDOW
}

/// Where its copy begins.
#[must_use]
pub fn copy(index: usize) -> u64 {
    window(index) + WINDOW
}

impl Residents {
    /// One of them.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&Resident> {
        self.slots.get(index)
    }

    /// The live one that is this file.
    #[must_use]
    pub fn find(&self, device: u64, inode: u64) -> Option<usize> {
        if self.live.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.slots.iter().position(|slot| slot.is(device, inode))
    }

    /// The same, or one that becomes it. Only one process at a time may ask.
    #[must_use]
    pub fn find_or_take(&self, device: u64, inode: u64) -> Option<usize> {
        if let Some(index) = self.find(device, inode) {
            return Some(index);
        }
        let is_free = |slot: &Resident| slot.state.load(Ordering::Acquire) == FREE;
        let index = self.slots.iter().position(is_free)?;
        let slot = &self.slots[index];
        for word in [&slot.size, &slot.handle, &slot.seen_ms, &slot.changed] {
            word.store(0, Ordering::Relaxed);
        }
        for word in [&slot.filled, &slot.copied, &slot.holders] {
            word.store(0, Ordering::Relaxed);
        }
        slot.device.store(device, Ordering::Relaxed);
        slot.inode.store(inode, Ordering::Relaxed);
        slot.state.store(LIVE, Ordering::Release);
        self.live.fetch_add(1, Ordering::AcqRel);
        Some(index)
    }

    /// It is not resident any more.
    pub fn give_back(&self, index: usize) {
        if let Some(slot) = self.slots.get(index) {
            slot.state.store(FREE, Ordering::Release);
            self.live.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// A process holds a file, as long as this watch has not told of an end. False: too many do.
    #[must_use]
    pub fn hold(&self, watch: i32, index: usize) -> bool {
        let Some(slot) = self.slots.get(index) else {
            return false;
        };
        // Counted first: it may end as soon as it can be found.
        slot.holders.fetch_add(1, Ordering::AcqRel);
        let taken = self.holds.iter().any(|hold| {
            let taken = hold
                .watch
                .compare_exchange(0, -1, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                hold.resident.store(index as u32, Ordering::Relaxed);
                hold.watch.store(watch, Ordering::Release);
            }
            taken.is_ok()
        });
        if !taken {
            slot.holders.fetch_sub(1, Ordering::AcqRel);
        }
        taken
    }

    /// After a restart: nothing tells of the ends of what was held.
    pub fn forget_holds(&self) {
        for hold in &self.holds {
            hold.watch.store(0, Ordering::Release);
        }
        for slot in &self.slots {
            slot.holders.store(0, Ordering::Release);
        }
    }

    /// A watch has told of an end; whether it was that of a hold, and of which file, if it was the last.
    pub fn hold_ended(&self, watch: i32) -> Option<Option<usize>> {
        let ended = |hold: &&Hold| {
            let ended =
                hold.watch
                    .compare_exchange(watch, -1, Ordering::Acquire, Ordering::Relaxed);
            ended.is_ok()
        };
        let hold = self.holds.iter().find(ended)?;
        let index = hold.resident.load(Ordering::Relaxed) as usize;
        hold.watch.store(0, Ordering::Release);
        let slot = self.slots.get(index)?;
        let last = slot.holders.fetch_sub(1, Ordering::AcqRel) == 1;
        Some(last.then_some(index))
    }
}

impl Resident {
    /// It is this file.
    #[must_use]
    pub fn is(&self, device: u64, inode: u64) -> bool {
        self.state.load(Ordering::Acquire) == LIVE
            && self.inode.load(Ordering::Relaxed) == inode
            && self.device.load(Ordering::Relaxed) == device
    }
}

/// Where two pieces of the same length differ, from `from` on: the next difference, with those that are close behind it.
#[must_use]
pub fn difference(one: &[u8], other: &[u8], from: usize) -> Option<Range<usize>> {
    let begin = from + first_difference(one.get(from..)?, other.get(from..)?)?;
    let mut end = begin + 1;
    while let Some(at) = first_difference(&one[end..], &other[end..]) {
        if at >= GAP {
            break;
        }
        end += at + 1;
    }
    Some(begin..end)
}

fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    const WORD: usize = 8;
    let word = |bytes: &[u8]| {
        let mut word = [0; WORD];
        word.copy_from_slice(bytes);
        u64::from_ne_bytes(word)
    };
    let same = one
        .chunks_exact(WORD)
        .zip(other.chunks_exact(WORD))
        .take_while(|(one, other)| word(one) == word(other))
        .count();
    let from = same * WORD;
    let mut rest = one[from..].iter().zip(&other[from..]);
    rest.position(|(one, other)| one != other)
        .map(|at| from + at)
}

/// What the shadow has now becomes visible where the job has changed nothing: into `here`, of which `copy` was known to be there.
/// Whether anything becomes other than it was.
pub fn merge(here: &mut [u8], copy: &[u8], there: &[u8]) -> bool {
    let mut other = false;
    for ((here, copy), there) in here.iter_mut().zip(copy).zip(there) {
        if there != copy && here == copy {
            *here = *there;
            other = true;
        }
    }
    other
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zeroed::zeroed;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn a_file_is_resident_as_long_as_somebody_holds_it() {
        let all = zeroed::<Residents>();
        assert_eq!(all.find(1, 2), None);
        let index = all.find_or_take(1, 2).expect("there is room");
        assert_eq!(
            (all.find_or_take(1, 2), all.find(1, 2)),
            (Some(index), Some(index))
        );
        assert_ne!(all.find_or_take(1, 3), Some(index));
        assert!(all.hold(7, index) && all.hold(9, index));
        assert_eq!(all.hold_ended(8), None, "nobody's");
        assert_eq!(all.hold_ended(7), Some(None), "another one holds it");
        assert_eq!(all.hold_ended(7), None, "once only");
        assert_eq!(all.hold_ended(9), Some(Some(index)));
        all.give_back(index);
        assert_eq!(all.find(1, 2), None);
        assert!(all.find(1, 3).is_some());
    }

    #[test]
    fn there_are_only_so_many() {
        let all = zeroed::<Residents>();
        for inode in 0..RESIDENTS as u64 {
            assert!(all.find_or_take(1, inode).is_some());
        }
        assert_eq!(all.find_or_take(2, 0), None);
        for watch in 1..=HOLDS as i32 {
            assert!(all.hold(watch, 0));
        }
        assert!(!all.hold(5000, 0));
        assert_eq!(all.hold_ended(1), Some(None));
        assert!(all.hold(5000, 0));
        all.forget_holds();
        assert_eq!(all.hold_ended(5000), None);
    }

    #[test]
    fn windows_do_not_touch_each_other_nor_programs() {
        assert!(window(0) >= STORE_LEN);
        for index in 0..RESIDENTS {
            assert_eq!(copy(index) + WINDOW, window(index + 1));
        }
        assert_eq!(window(RESIDENTS), FILE_LEN);
    }

    proptest! {
        #[test]
        fn all_differences_are_found(
            bytes in prop::collection::vec(any::<u8>(), 0..3000), changes in prop::collection::vec((0usize..3000, any::<u8>()), 0..9)
        ) {
            let mut other = bytes.clone();
            for (at, byte) in changes {
                if let Some(place) = other.get_mut(at) {
                    *place = byte;
                }
            }
            let (mut from, mut made, mut sent) = (0, bytes.clone(), 0);
            while let Some(piece) = difference(&other, &bytes, from) {
                prop_assert!(piece.start >= from && !piece.is_empty());
                made[piece.clone()].copy_from_slice(&other[piece.clone()]);
                sent += piece.len();
                from = piece.end;
            }
            prop_assert_eq!(&made, &other);
            let apart: usize = bytes.iter().zip(&other).filter(|(a, b)| a != b).count();
            prop_assert!(sent <= apart * GAP);
        }

        #[test]
        fn what_both_have_changed_is_ours_and_all_else_theirs(
            bytes in prop::collection::vec(any::<(u8, bool, bool)>(), 0..300)
        ) {
            let copy: Vec<u8> = bytes.iter().map(|(byte, ..)| *byte).collect();
            let mut here: Vec<u8> = bytes.iter().map(|(byte, ours, _)| byte ^ u8::from(*ours)).collect();
            let there: Vec<u8> = bytes.iter().map(|(byte, _, theirs)| byte ^ (2 * u8::from(*theirs))).collect();
            let changed = merge(&mut here, &copy, &there);
            prop_assert_eq!(changed, bytes.iter().any(|(_, ours, theirs)| *theirs && !ours));
            for (found, (byte, ours, theirs)) in here.iter().zip(bytes) {
                let expected = if ours { byte ^ 1 } else { byte ^ (2 * u8::from(theirs)) };
                prop_assert_eq!(*found, expected);
            }
        }
    }
}
