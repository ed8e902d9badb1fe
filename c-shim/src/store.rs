//! Programs and libraries of a job, each fetched once: their contents lie one behind another in a file of the kernel's that all
//! processes of the job have inherited, and the table says where (DESIGN §6, "shared by the job").
//!
//! ```text
//! attributes (device, inode, size, times) -> Object { offset of the contents, offset of its sites } -> Reserved::Store
//! ```
//! What has changed at the shadow has other attributes, so it is another object. Nothing is removed before the job ends.

use crate::rewrite::{Number, Site};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Objects that a job may have.
pub const OBJECTS: usize = 1024;
/// Bytes of the file, all told: more is not kept.
pub const STORE_LEN: u64 = 1 << 30;
const PAGE: u64 = 4096;

/// What a file was like when it was fetched.
pub type Stamp = [u64; 6];

/// A program or library.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Object {
    /// [`NONE`], [`FETCHED`] or [`READY`].
    state: AtomicU32,
    site_count: AtomicU32,
    stamp: [AtomicU64; 6],
    offset: AtomicU64,
    /// 0: not looked for yet, or not all could be led elsewhere.
    sites: AtomicU64,
}

/// Nobody's.
const NONE: u32 = 0;
/// Somebody fetches it, or has ended while doing so.
const FETCHED: u32 = 1;
/// Its contents are there.
const READY: u32 = 2;

/// A `syscall` instruction, as it is kept: the addresses of [`crate::rewrite::Site`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct KeptSite {
    /// The instruction.
    pub syscall: u64,
    /// The window's first address.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// Not zero: what was compared before is asked behind it.
    pub needs_flags: u64,
}

impl From<&Site> for KeptSite {
    fn from(site: &Site) -> Self {
        KeptSite {
            syscall: site.syscall,
            start: site.window.start,
            end: site.window.end,
            needs_flags: site.needs_flags.into(),
        }
    }
}

impl From<&KeptSite> for Site {
    fn from(kept: &KeptSite) -> Self {
        Site {
            syscall: kept.syscall,
            window: kept.start..kept.end,
            // Which call it is has been looked at.
            number: Number::Computed,
            needs_flags: kept.needs_flags != 0,
        }
    }
}

/// All of them.
#[derive(Debug)]
#[repr(C)]
pub struct Store {
    used: AtomicU64,
    objects: [Object; OBJECTS],
}

/// What asking for an object comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It is there.
    Ready(usize),
    /// It is to be put at this offset, then [`Store::ready`] is to be told.
    Fetch(usize, u64),
    /// It is not kept: there is no room, or somebody else is fetching it.
    No,
}

impl Store {
    /// Asks for an object; its size is the third word of the stamp.
    #[must_use]
    pub fn ask(&self, stamp: &Stamp) -> Asked {
        for (index, object) in self.objects.iter().enumerate() {
            match object.state.load(Ordering::Acquire) {
                READY if object.has(stamp) => return Asked::Ready(index),
                NONE => {
                    let taken = object.state.compare_exchange(
                        NONE,
                        FETCHED,
                        Ordering::Acquire,
                        Ordering::Relaxed,
                    );
                    if taken.is_err() {
                        // Somebody else's now, and perhaps the same.
                        return Asked::No;
                    }
                    let Some(offset) = self.room(stamp[2]) else {
                        object.state.store(NONE, Ordering::Release);
                        return Asked::No;
                    };
                    for (place, word) in object.stamp.iter().zip(stamp) {
                        place.store(*word, Ordering::Relaxed);
                    }
                    object.offset.store(offset, Ordering::Relaxed);
                    return Asked::Fetch(index, offset);
                }
                _ => {}
            }
        }
        Asked::No
    }

    /// Pages that nobody else has; none if there are no more.
    #[must_use]
    pub fn room(&self, len: u64) -> Option<u64> {
        let len = len.checked_next_multiple_of(PAGE)?;
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                // The first page stays empty: offset 0 is none.
                let end = used.max(PAGE).checked_add(len)?;
                (end <= STORE_LEN).then_some(end)
            });
        taken.ok().map(|used| used.max(PAGE))
    }

    /// There is room for what is not a program or library, too.
    #[must_use]
    pub fn has_plenty(&self) -> bool {
        let half = &self.objects[OBJECTS / 2];
        half.state.load(Ordering::Relaxed) == NONE
            && self.used.load(Ordering::Relaxed) < STORE_LEN / 2
    }

    fn object(&self, index: usize) -> Option<&Object> {
        self.objects.get(index)
    }

    /// An object's contents have been put where they belong.
    pub fn ready(&self, index: usize) {
        if let Some(object) = self.object(index) {
            object.state.store(READY, Ordering::Release);
        }
    }

    /// Where an object's contents begin, and how long they are.
    #[must_use]
    pub fn place(&self, index: usize) -> Option<(u64, u64)> {
        let object = self.object(index)?;
        let size = object.stamp[2].load(Ordering::Relaxed);
        Some((object.offset.load(Ordering::Relaxed), size))
    }

    /// Where the sites of an object begin, and how many they are, if they are known.
    #[must_use]
    pub fn sites(&self, index: usize) -> Option<(u64, usize)> {
        let object = self.object(index)?;
        let offset = object.sites.load(Ordering::Acquire);
        let count = object.site_count.load(Ordering::Relaxed);
        (offset != 0).then_some((offset, count as usize))
    }

    /// The sites of an object have been put at an offset. All who look for them find the same ones.
    pub fn set_sites(&self, index: usize, offset: u64, count: usize) {
        if let Some(object) = self.object(index) {
            object.site_count.store(count as u32, Ordering::Relaxed);
            object.sites.store(offset, Ordering::Release);
        }
    }
}

impl Object {
    fn has(&self, stamp: &Stamp) -> bool {
        let words = self.stamp.iter().zip(stamp);
        words
            .into_iter()
            .all(|(kept, word)| kept.load(Ordering::Relaxed) == *word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zeroed::zeroed;

    #[test]
    fn an_object_is_fetched_once() {
        let store = zeroed::<Store>();
        let stamp = |inode, size| [1, inode, size, 4, 5, 6];
        assert!(store.has_plenty());
        let Asked::Fetch(first, offset) = store.ask(&stamp(7, 5000)) else {
            panic!("is to be fetched");
        };
        assert_eq!(offset, 4096, "the first page is nobody's");
        let Asked::Fetch(second, behind) = store.ask(&stamp(8, 1)) else {
            panic!("is to be fetched");
        };
        assert_eq!(behind, offset + 8192);
        store.ready(first);
        store.ready(second);
        assert_eq!(store.ask(&stamp(7, 5000)), Asked::Ready(first));
        assert_eq!(store.ask(&stamp(8, 1)), Asked::Ready(second));
        assert_eq!(store.place(first), Some((offset, 5000)));
        assert!(matches!(store.ask(&stamp(7, 5001)), Asked::Fetch(2, _)));
        assert_eq!(store.sites(first), None);
        store.set_sites(first, 1 << 20, 3);
        assert_eq!(store.sites(first), Some((1 << 20, 3)));
    }

    #[test]
    fn a_full_store_keeps_what_it_has() {
        let store = zeroed::<Store>();
        let whole = STORE_LEN - PAGE;
        assert_eq!(store.ask(&[1, 2, STORE_LEN, 4, 5, 6]), Asked::No);
        assert_eq!(store.ask(&[1, 2, u64::MAX, 4, 5, 6]), Asked::No);
        assert_eq!(store.ask(&[1, 2, whole, 4, 5, 6]), Asked::Fetch(0, PAGE));
        store.ready(0);
        assert_eq!(store.ask(&[1, 3, 1, 4, 5, 6]), Asked::No);
        assert_eq!(store.ask(&[1, 2, whole, 4, 5, 6]), Asked::Ready(0));
        assert_eq!(store.ask(&[1, 3, 0, 4, 5, 6]), Asked::Fetch(1, STORE_LEN));
    }

    #[test]
    fn there_are_only_so_many() {
        let store = zeroed::<Store>();
        for inode in 0..OBJECTS as u64 {
            let Asked::Fetch(index, _) = store.ask(&[1, inode, 1, 4, 5, 6]) else {
                panic!("there is room");
            };
            store.ready(index);
        }
        assert_eq!(store.ask(&[2, 0, 1, 4, 5, 6]), Asked::No);
        assert!(!store.has_plenty());
        assert_eq!(store.ask(&[1, 9, 1, 4, 5, 6]), Asked::Ready(9));
    }
}
