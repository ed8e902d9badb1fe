//! Checksums of chunks.
//!
//! ```text
//! Chunk::hash    0..16 the first half of BLAKE3: which bytes they are      16..32 XXH3-128: whether they came whole
//! ```
//! Whether chunks are the same is asked of all of it, and nobody finds two that differ and have the same. A restart only has to see
//! damage: XXH3 takes a quarter of the time of BLAKE3 for that, which was a third of a restart.

use super::{HASH_LEN, Hash};

const HALF: usize = HASH_LEN / 2;

/// The checksum of a chunk, as it is stored.
#[must_use]
pub fn chunk_hash(bytes: &[u8]) -> Hash {
    let mut hash = *blake3::hash(bytes).as_bytes();
    hash[HALF..].copy_from_slice(&damage_sum(bytes));
    hash
}

/// What damage changes.
#[must_use]
pub fn damage_sum(bytes: &[u8]) -> [u8; HALF] {
    xxhash_rust::xxh3::xxh3_128(bytes).to_le_bytes()
}

/// The part of a chunk's checksum that [`damage_sum`] gives.
#[must_use]
pub fn damage_part(hash: &Hash) -> &[u8] {
    &hash[HALF..]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The two halves of it are what the format says.
    #[test]
    fn a_chunk_has_both_sums() {
        let hash = chunk_hash(b"");
        let expected = "af1349b9f5f9a1a6a0404dea36dcc949".as_bytes();
        let digit = |at: usize| (expected[at] as char).to_digit(16).unwrap_or(16) as u8;
        for (at, byte) in hash.iter().take(HALF).enumerate() {
            assert_eq!(*byte, digit(2 * at) << 4 | digit(2 * at + 1), "byte {at}");
        }
        // XXH3-128 of nothing, seed 0: 99aa06d3014798d86001c324468d497f.
        let sum = 0x99aa_06d3_0147_98d8_6001_c324_468d_497f_u128;
        assert_eq!(damage_part(&hash), sum.to_le_bytes());
    }

    #[test]
    fn a_flipped_bit_is_seen() {
        for len in [1, 16, 17, 240, 241, 4096, 9001] {
            let bytes: Vec<u8> = (0..len).map(|at| (at * 7 % 251) as u8).collect();
            let hash = chunk_hash(&bytes);
            assert_eq!(damage_part(&hash), damage_sum(&bytes));
            for place in (0..len).step_by(1 + len / 100) {
                let mut other = bytes.clone();
                other[place] ^= 1 << (place % 8);
                assert_ne!(damage_part(&hash), damage_sum(&other), "{place} of {len}");
                assert_ne!(hash[..HALF], chunk_hash(&other)[..HALF], "{place} of {len}");
            }
        }
    }
}
