//! Words that several processes share without a lock.
//!
//! Whoever writes makes the sequence odd first; what was read is believed if the sequence was even and has not changed
//! meanwhile. One whose writer was killed is not used again.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// So many words, all zero and not to be read until they are written.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Sequenced<const WORDS: usize> {
    sequence: AtomicU32,
    words: [AtomicU64; WORDS],
}

impl<const WORDS: usize> Sequenced<WORDS> {
    /// Nothing was written yet.
    #[must_use]
    pub const fn nothing() -> Self {
        Sequenced {
            sequence: AtomicU32::new(0),
            words: [const { AtomicU64::new(0) }; WORDS],
        }
    }

    /// What `look` sees of the words, if they were whole all the time.
    pub fn read<T>(&self, look: impl FnOnce(&[AtomicU64; WORDS]) -> Option<T>) -> Option<T> {
        let before = self.sequence.load(Ordering::Acquire);
        if before == 0 || !before.is_multiple_of(2) {
            return None;
        }
        let found = look(&self.words);
        fence(Ordering::Acquire);
        let same = self.sequence.load(Ordering::Relaxed) == before;
        found.filter(|_| same)
    }

    /// Puts other words there, unless somebody else is about to.
    pub fn write(&self, words: impl Iterator<Item = u64>) {
        let before = self.sequence.load(Ordering::Relaxed);
        let ours = before.is_multiple_of(2)
            && self
                .sequence
                .compare_exchange(before, before + 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if !ours {
            return;
        }
        fence(Ordering::Release);
        for (place, word) in self.words.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        // Never 0 again.
        let after = before.wrapping_add(2).max(2);
        self.sequence.store(after, Ordering::Release);
    }
}

/// Bytes as words; behind the last there are zeros.
pub fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks(8).map(|part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        u64::from_ne_bytes(word)
    })
}

/// The bytes of words, as many as there is room for.
pub fn bytes_of(words: &[AtomicU64], room: &mut [u8]) {
    for (place, word) in room.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zeroed::zeroed;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn one_whose_writer_was_killed_tells_nothing() {
        let shared = zeroed::<Sequenced<4>>();
        shared.sequence.store(7, Ordering::Relaxed);
        shared.write([1; 4].into_iter());
        assert_eq!(shared.read(|_| Some(())), None);
        assert_eq!(shared.sequence.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn what_is_read_was_written_at_once() {
        let shared = zeroed::<Sequenced<40>>();
        assert_eq!(shared.read(|_| Some(())), None);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..2u64 {
                let (shared, over) = (&shared, &over);
                scope.spawn(move || {
                    for round in 0..20_000 {
                        shared.write(std::iter::repeat_n(round * 2 + writer, 40));
                    }
                    over.store(true, Ordering::Relaxed);
                });
            }
            while !over.load(Ordering::Relaxed) {
                let words = |words: &[AtomicU64; 40]| {
                    let word = |at: &AtomicU64| at.load(Ordering::Relaxed);
                    Some((words.iter().map(word).min(), words.iter().map(word).max()))
                };
                if let Some((least, most)) = shared.read(words) {
                    assert_eq!(least, most);
                }
            }
        });
        assert!(shared.read(|_| Some(())).is_some());
    }
}
