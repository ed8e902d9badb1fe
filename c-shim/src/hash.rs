//! Where something is looked for in the tables that the processes of a job share: FNV-1a, and what follows from it.

/// FNV-1a of `bytes`; `seed` tells those of one text from each other.
pub fn fnv(seed: u64, bytes: &[u8]) -> u64 {
    let begin = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bytes.iter().fold(begin, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The two places, of `count`, where a thing with this hash may be.
pub fn places(hash: u64, count: usize) -> [usize; 2] {
    let first = (hash ^ hash >> 32) as usize % count;
    let other = (hash >> 20) as usize % (count - 1) + 1;
    [first, (first + other) % count]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn places_are_two(hash: u64, count in 2usize..5000) {
            let [first, other] = places(hash, count);
            prop_assert!(first < count && other < count && first != other);
        }
    }

    #[test]
    fn it_is_fnv_1a() {
        // The published vectors.
        assert_eq!(fnv(0, b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(0, b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv(0, b"foobar"), 0x8594_4171_f739_67e8);
        assert_ne!(fnv(1, b"a"), fnv(0, b"a"));
    }
}
