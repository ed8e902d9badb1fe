//! A little of a long section in memory at a time.
//!
//! ```text
//! file:    |window|window|window|window|...      read once from the front: its checksum is the header's,
//! memory:     [window 2] [window 0] ... sums      and each window's is kept; a window that is read again has the same
//! ```
//! # What callers may rely on
//! What [`Windows::copy`] gives is what was there when the section was read first, or an error: a file that is changed
//! meanwhile is noticed, also one that somebody makes to look the same: nobody knows the seed of the sums. It takes [`Windows::room`], whatever the length but for 16 bytes for each [`WINDOW`].
//!
//! # What it does not do
//! It does not read: whoever uses it does, and lets one user in at a time.

use core::ops::DerefMut;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Bytes that are read at a time.
pub const WINDOW: u64 = 64 << 10;
/// Most windows in memory: those of a search, from its beginning to its end, in a table as long as one may be, and some.
const MOST: u64 = 20;

/// Places that are looked at first: rows of several tables are asked for in turn.
const HINTS: usize = 8;

/// The checksum of a window, by the seed of who reads.
pub type WindowSum = u128;

/// A window was found changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Its first byte.
    pub at: u64,
}

/// Why bytes cannot be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost<E> {
    /// They are not what they were.
    Changed(Changed),
    /// They could not be read.
    Unread(E),
}

/// What a place in memory holds.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// The number of the window, and one.
    window: u64,
    /// When it was used last.
    used: u64,
}

/// The windows of one section.
#[derive(Debug)]
pub struct Windows<B, S> {
    /// Bytes of the section.
    len: u64,
    seed: u64,
    places: B,
    sums: S,
    held: [Held; MOST as usize],
    now: u64,
    /// Where a window was last, by its number's remainder.
    hints: [u8; HINTS],
}

impl Windows<(), ()> {
    /// What a section of `len` bytes needs: bytes for windows, and sums.
    #[must_use]
    pub fn room(len: u64) -> (u64, u64) {
        let windows = len.div_ceil(WINDOW);
        (windows.min(MOST) * WINDOW, windows)
    }
}

impl<B: DerefMut<Target = [u8]>, S: DerefMut<Target = [WindowSum]>> Windows<B, S> {
    /// Nothing is read yet. `places` and `sums` are as large as [`Windows::room`] says, `seed` is by chance.
    pub fn new(len: u64, seed: u64, places: B, sums: S) -> Self {
        Windows {
            len,
            seed,
            places,
            sums,
            held: [Held::default(); MOST as usize],
            now: 0,
            hints: [0; HINTS],
        }
    }

    /// Reads the section from its front to its end, the first time: `load` is given each window's first byte and where
    /// its bytes are to go, `see` shows them to who knows whether they are right.
    ///
    /// # Errors
    /// What `load` gave.
    pub fn read_first<E>(
        &mut self,
        mut load: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
        mut see: impl FnMut(&[u8]),
    ) -> Result<(), E> {
        for window in 0..self.len.div_ceil(WINDOW) {
            let place = self.oldest();
            self.load(place, window, &mut load)?;
            let bytes = self.bytes(place, window);
            let sum = xxh3_128_with_seed(bytes, self.seed);
            see(bytes);
            if let Some(known) = self.sums.get_mut(window as usize) {
                *known = sum;
            }
        }
        Ok(())
    }

    /// The bytes at `at`; those behind the end are zeros. `load`: as for [`Windows::read_first`].
    ///
    /// # Errors
    /// [`Lost`]; what is in `to` then does not matter.
    pub fn copy<E>(
        &mut self,
        at: u64,
        to: &mut [u8],
        mut load: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), Lost<E>> {
        let (mut at, mut to) = (at, to);
        while !to.is_empty() && at < self.len {
            let window = at / WINDOW;
            let place = self.place_of(window, &mut load)?;
            let found = &self.bytes(place, window)[(at % WINDOW) as usize..];
            let count = found.len().min(to.len());
            let (now, later) = core::mem::take(&mut to).split_at_mut(count);
            now.copy_from_slice(&found[..count]);
            at += count as u64;
            to = later;
        }
        to.fill(0);
        Ok(())
    }

    /// Where a window is, or is now.
    fn place_of<E>(
        &mut self,
        window: u64,
        load: &mut impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<usize, Lost<E>> {
        let holds = |held: &Held| held.window == window + 1;
        let hint = usize::from(self.hints[window as usize % HINTS]);
        let place = match holds(&self.held[hint]) {
            true => Some(hint),
            false => self.held.iter().position(holds),
        };
        if let Some(place) = place {
            self.use_place(place, window);
            return Ok(place);
        }
        let place = self.oldest();
        self.load(place, window, load).map_err(Lost::Unread)?;
        let sum = xxh3_128_with_seed(self.bytes(place, window), self.seed);
        if self.sums.get(window as usize) == Some(&sum) {
            return Ok(place);
        }
        self.held[place] = Held::default();
        Err(Lost::Changed(Changed {
            at: window * WINDOW,
        }))
    }

    fn load<E>(
        &mut self,
        place: usize,
        window: u64,
        load: &mut impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.held[place] = Held::default();
        let len = self.len_of(window);
        let from = place * WINDOW as usize;
        load(window * WINDOW, &mut self.places[from..from + len])?;
        self.use_place(place, window);
        Ok(())
    }

    fn use_place(&mut self, place: usize, window: u64) {
        self.now += 1;
        self.held[place] = Held {
            window: window + 1,
            used: self.now,
        };
        self.hints[window as usize % HINTS] = place as u8;
    }

    fn len_of(&self, window: u64) -> usize {
        WINDOW.min(self.len - window * WINDOW) as usize
    }

    fn bytes(&self, place: usize, window: u64) -> &[u8] {
        let from = place * WINDOW as usize;
        &self.places[from..from + self.len_of(window)]
    }

    /// The place that has not been used for longest.
    fn oldest(&self) -> usize {
        let places = self.places.len() / WINDOW as usize;
        let held = self.held.iter().take(places).enumerate();
        let oldest = held.min_by_key(|(_, held)| held.used);
        oldest.map_or(0, |(place, _)| place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::limits;
    use proptest::prelude::*;

    fn section(len: u64) -> Vec<u8> {
        (0..len).map(|at| (at * 31 / 7 % 251) as u8).collect()
    }

    fn windows(bytes: &[u8]) -> Windows<Vec<u8>, Vec<WindowSum>> {
        let (places, sums) = Windows::room(bytes.len() as u64);
        let (places, sums) = (vec![0; places as usize], vec![0; sums as usize]);
        let mut windows = Windows::new(bytes.len() as u64, 5, places, sums);
        let mut seen = vec![];
        let read = windows.read_first(
            |at, to| {
                to.copy_from_slice(&bytes[at as usize..][..to.len()]);
                Ok::<(), ()>(())
            },
            |part| seen.extend_from_slice(part),
        );
        assert_eq!((read, seen == bytes), (Ok(()), true));
        windows
    }

    #[test]
    fn no_more_is_in_memory_however_long_it_is() {
        assert_eq!(Windows::room(1), (WINDOW, 1));
        let most = limits::EXTENTS_LEN;
        assert_eq!(Windows::room(most), (MOST * WINDOW, most / WINDOW));
        assert!(most / WINDOW * 16 <= 4 << 20);
        assert_eq!(Windows::room(0), (0, 0));
    }

    #[test]
    fn what_is_changed_is_noticed() {
        let mut bytes = section((MOST + 4) * WINDOW);
        let mut windows = windows(&bytes);
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        bytes[5] ^= 1;
        let mut row = [0; 40];
        let mut at = |at: u64| {
            let load = |at: u64, to: &mut [u8]| {
                to.copy_from_slice(&bytes[at as usize..][..to.len()]);
                Ok::<(), ()>(())
            };
            windows.copy(at, &mut row, load)
        };
        // The last ones are in memory.
        assert_eq!(at(last as u64), Ok(()));
        assert_eq!(at(0), Err(Lost::Changed(Changed { at: 0 })));
        assert_eq!(at(0), Err(Lost::Changed(Changed { at: 0 })));
        assert_eq!(at(WINDOW), Ok(()));
    }

    #[test]
    fn what_cannot_be_read_is_not_given() {
        let bytes = section((MOST + 4) * WINDOW);
        let mut windows = windows(&bytes);
        let mut row = [0; 40];
        let lost = windows.copy(0, &mut row, |_, _| Err("gone"));
        assert_eq!(lost, Err(Lost::Unread("gone")));
        let lost = windows.copy(8, &mut row, |_, _| Err("still gone"));
        assert_eq!(lost, Err(Lost::Unread("still gone")));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn rows_are_those_of_the_section(
            len in 0..40 * WINDOW,
            rows in prop::collection::vec((0..41 * WINDOW, 0..200_000usize), 1..100),
        ) {
            let bytes = section(len);
            let mut windows = windows(&bytes);
            for (at, count) in rows {
                let (mut found, mut expected) = (vec![1; count], vec![2; count]);
                let load = |at: u64, to: &mut [u8]| {
                    to.copy_from_slice(&bytes[at as usize..][..to.len()]);
                    Ok::<(), ()>(())
                };
                prop_assert_eq!(windows.copy(at, &mut found, load), Ok(()));
                let Ok(()) = super::super::Rows::read(&bytes[..], at, &mut expected);
                prop_assert!(found == expected);
            }
        }
    }
}
