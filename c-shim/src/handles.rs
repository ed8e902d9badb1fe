//! Handles whose state the shadow does not know yet, for all processes of the job.
//!
//! ```text
//! open at the shadow --last descriptor closed--> to be closed: told with what is sent next
//! offered: opened by the shadow in advance --opened by the program--> taken: told by whatever is asked about it, or its close
//! ```
//! # What callers may rely on
//! A process may be killed anywhere. What it was just telling stays open at the shadow as long as the session; nothing else is lost.

use core::sync::atomic::{AtomicU64, Ordering};

/// Handles of each kind; the rest are told at once.
const MOST: usize = 256;

/// A set of handles, none of which is 0.
#[derive(Debug)]
#[repr(C)]
pub struct Handles {
    count: AtomicU64,
    all: [AtomicU64; MOST],
}

impl Handles {
    /// Puts one in; whether there was room.
    #[must_use]
    pub fn put(&self, handle: u64) -> bool {
        let free = self.all.iter().find(|place| {
            place.load(Ordering::Relaxed) == 0
                && place
                    .compare_exchange(0, handle, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        });
        if free.is_some() {
            self.count.fetch_add(1, Ordering::Release);
        }
        free.is_some()
    }

    /// Takes one out, if it is there.
    pub fn remove(&self, handle: u64) {
        if self.is_empty() {
            return;
        }
        let gone = self.all.iter().any(|place| {
            place.load(Ordering::Relaxed) == handle
                && place
                    .compare_exchange(handle, 0, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        });
        if gone {
            self.count.fetch_sub(1, Ordering::Release);
        }
    }

    /// Takes out as many as there are and `room` holds; how many.
    pub fn drain(&self, room: &mut [u64]) -> usize {
        let mut len = 0;
        for place in &self.all {
            if len == room.len() || self.is_empty() {
                break;
            }
            let handle = place.swap(0, Ordering::AcqRel);
            if handle != 0 {
                self.count.fetch_sub(1, Ordering::Release);
                room[len] = handle;
                len += 1;
            }
        }
        len
    }

    /// There was none a moment ago.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // A process that was killed between place and count may leave it too high or wrapped.
        self.count.load(Ordering::Acquire) == 0
    }

    /// Those that are in, from its bytes in a job that does not run.
    #[must_use]
    #[cfg(feature = "std")]
    pub fn read(bytes: &[u8]) -> alloc::vec::Vec<u64> {
        let words = bytes.chunks_exact(8).skip(1).take(MOST);
        let all = words.filter_map(|word| Some(u64::from_le_bytes(*word.first_chunk()?)));
        all.filter(|handle| *handle != 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zeroed::zeroed;

    #[test]
    fn what_is_put_in_comes_out_once() {
        let handles = zeroed::<Handles>();
        assert!((1..=MOST as u64).all(|handle| handles.put(handle)));
        assert!(!handles.put(1000), "full");
        handles.remove(7);
        handles.remove(7);
        handles.remove(1000);
        assert!(handles.put(1000));
        let mut room = [0; 100];
        let mut out = alloc::vec::Vec::new();
        while let len @ 1.. = handles.drain(&mut room) {
            out.extend_from_slice(&room[..len]);
        }
        out.sort_unstable();
        let expected = (1..=MOST as u64)
            .filter(|handle| *handle != 7)
            .chain([1000]);
        assert!(out.into_iter().eq(expected));
        assert!(handles.is_empty());
    }

    #[test]
    fn they_are_read_from_bytes() {
        let handles = zeroed::<Handles>();
        assert!(handles.put(5) && handles.put(9));
        let place = (&raw const *handles).cast::<u8>();
        // SAFETY: they are so many bytes.
        #[allow(unsafe_code)]
        let bytes = unsafe { core::slice::from_raw_parts(place, size_of::<Handles>()) };
        assert_eq!(Handles::read(bytes), [5, 9]);
        assert!(Handles::read(&bytes[..4]).is_empty());
    }
}
