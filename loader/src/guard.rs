//! What an image's first page and its first instructions agree on: the guard (docs/IMAGE_FORMAT.md).
//!
//! ```text
//! 0           64         80            ...            3872              4096
//! | ELF header | two sums | first instructions | zeros | program headers |
//! ```
//! An executed image can be looked at only by its own instructions. Those of the guard lie in the page that
//! the program headers end, so a kernel that starts the image at all has them whole; they
//! look at that page and at the loader before anything of the loader runs.
//!
//! # What it does not do
//! A sum finds accidents, and each change within one word for certain. What is to be believed is under BLAKE3.

use crate::layout::PAGE;

/// Where in the page the sum of what follows the two sums lies.
pub const PAGE_SUM: u64 = 64;
/// Where in the page the sum of the loader lies.
pub const LOADER_SUM: u64 = 72;
/// Where in the page the first instructions begin, and what the first sum is over.
pub const BEGIN: u64 = 80;
/// Program headers: the guard, the loader's text, its data, the stack.
pub const PROGRAM_HEADERS: u64 = 4;
/// Where in the page the program headers begin: they end it.
pub const PROGRAM_HEADERS_AT: u64 = PAGE - PROGRAM_HEADERS * 56;
/// Odd, so that no multiplication by it loses a bit.
pub const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
/// By how many bits each step rotates.
pub const ROTATION: u32 = 29;

/// The sum of whole words, as the first instructions make it: each step is one to one, so two rows of words that
/// differ in one word have different sums.
#[must_use]
pub fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0, |sum: u64, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (sum ^ u64::from_le_bytes(word))
            .rotate_left(ROTATION)
            .wrapping_mul(MULTIPLIER)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_changes_the_sum() {
        let bytes: [u8; 256] = core::array::from_fn(|index| index as u8);
        let expected = sum(&bytes);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(sum(&flipped), expected, "bit {bit}");
        }
        // The highest bits of two words do not cancel each other.
        let mut flipped = bytes;
        flipped[7] ^= 0x80;
        flipped[15] ^= 0x80;
        assert_ne!(sum(&flipped), expected);
    }
}
