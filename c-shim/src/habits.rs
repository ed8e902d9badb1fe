//! How a job's calls are served, where there is a choice: Condor's `buffer_size` and `buffer_block_size` (condor_submit(1), "standard
//! universe"), and `aggravate_bugs` of its library.
//!
//! # What callers may rely on
//! They are made before the job's first process and never change.

/// Most that is read ahead of a program, bytes.
pub const MOST_AHEAD: u32 = 1 << 20;
/// Most that is kept back of what it writes to a file, bytes.
pub const MOST_BEHIND: u32 = crate::behind::ROOM as u32;
/// What is read ahead at first, bytes.
const FIRST_AHEAD: u32 = 32 << 10;
/// Condor's library never gave these to a program, with `aggravate_bugs`.
const WITHHELD: core::ops::Range<i32> = 3..32;

/// With just these flags, and to read, the shim opens what it reads here and not at the shadow: a checkpoint knows it by them. `O_NONBLOCK | O_DSYNC | O_NOFOLLOW` (open(2)).
pub const READS_HERE: u32 = 0o4_000 | 0o10_000 | 0o400_000;

/// Written once, with the header of the table ([`crate::table::Header`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Habits {
    /// What is read ahead of a program that reads on: so much at first, so much at most; bytes.
    pub ahead: [u32; 2],
    /// How much of what is written may be kept back, of each file; bytes.
    pub behind: u32,
    /// Not zero: descriptors 3 to 31 are never a remote file's.
    pub aggravates: u32,
}

impl Habits {
    /// A buffer of so many bytes for each file (0: none), filled by so many at once at least.
    ///
    /// # Errors
    /// Which of the two is wrong, and what was expected.
    pub fn new(size: Option<u64>, block: Option<u64>, aggravates: bool) -> Result<Self, Wrong> {
        let most = u64::from(MOST_AHEAD);
        let size = size.unwrap_or(most);
        let block = block.unwrap_or_else(|| size.min(FIRST_AHEAD.into()));
        if size > most {
            return Err(Wrong::Size);
        }
        if block > size {
            return Err(Wrong::Block);
        }
        let (size, block) = (size as u32, block as u32);
        Ok(Habits {
            ahead: [block, size],
            behind: size.min(MOST_BEHIND),
            aggravates: aggravates.into(),
        })
    }

    /// The same, as it is kept.
    #[must_use]
    pub fn bytes(&self) -> [u8; size_of::<Self>()] {
        let mut bytes = [0; size_of::<Self>()];
        let words = [self.ahead[0], self.ahead[1], self.behind, self.aggravates];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// How much is read next where so much was read ahead before; bytes.
    #[must_use]
    pub fn next_ahead(&self, last: usize) -> usize {
        let [least, most] = self.ahead.map(|bytes| bytes as usize);
        (last * 2).max(least).min(most)
    }

    /// Whether a remote file may have this descriptor; else the first that is at least this.
    #[must_use]
    pub fn moves(&self, descriptor: i32) -> Option<i32> {
        (self.aggravates != 0 && WITHHELD.contains(&descriptor)).then_some(WITHHELD.end)
    }
}

/// What [`Habits::new`] does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// More than [`MOST_AHEAD`].
    Size,
    /// A block is larger than the buffer.
    Block,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn habits(size: Option<u64>, block: Option<u64>) -> Habits {
        Habits::new(size, block, false).expect("right")
    }

    #[test]
    fn reading_ahead_grows_from_a_block_to_the_buffer() {
        let grown = |habits: Habits| {
            let mut last = 0;
            [(); 4].map(|()| {
                last = habits.next_ahead(last);
                last
            })
        };
        assert_eq!(
            grown(habits(None, None)),
            [32 << 10, 64 << 10, 128 << 10, 256 << 10]
        );
        assert_eq!(
            grown(habits(Some(5000), Some(1000))),
            [1000, 2000, 4000, 5000]
        );
        assert_eq!(grown(habits(Some(0), None)), [0; 4]);
        assert_eq!(grown(habits(Some(100), None)), [100; 4]);
        assert_eq!(habits(Some(100), None).behind, 100);
        assert_eq!(habits(None, None).behind, MOST_BEHIND);
    }

    #[test]
    fn what_is_too_much_is_told() {
        let large = u64::from(MOST_AHEAD) + 1;
        assert_eq!(Habits::new(Some(large), None, false), Err(Wrong::Size));
        assert_eq!(Habits::new(Some(9), Some(10), false), Err(Wrong::Block));
        assert_eq!(Habits::new(None, Some(large), false), Err(Wrong::Block));
    }

    #[test]
    fn low_descriptors_are_withheld() {
        let habits = Habits::new(None, None, true).expect("right");
        let moved = [2, 3, 31, 32].map(|fd| habits.moves(fd));
        assert_eq!(moved, [None, Some(32), Some(32), None]);
        assert_eq!(self::habits(None, None).moves(3), None);
    }
}
