//! A place for the workshop where nothing of the job's is near: then its page tables go with it.
//!
//! The kernel frees tables with a mapping only if they serve no other, whether or not that has pages
//! (`free_pgd_range` in mm/memory.c). Where it would put the workshop itself is just below the job's last mapping.

use std::ops::Range;

/// What the tables below the highest two levels serve.
const BLOCK: u64 = 1 << 39;
/// Where a process with four levels of page tables ends, without the block of its stack.
const END: u64 = (1 << 47) - BLOCK;

/// The highest block of addresses in which none of these mappings lies (in order, as `/proc/PID/maps` has them). `None` if
/// there is none.
#[must_use]
pub fn block_apart(mappings: impl IntoIterator<Item = Range<u64>>) -> Option<u64> {
    let mut highest = None;
    // The first block holds the program, and what may not be mapped.
    let mut from = BLOCK;
    for mapping in mappings.into_iter().chain([END..END]) {
        let start = mapping.start.min(END) / BLOCK * BLOCK;
        if from < start {
            highest = Some(start - BLOCK);
        }
        from = from.max(mapping.end.min(END).next_multiple_of(BLOCK));
    }
    highest
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIB: u64 = 1 << 40;

    #[test]
    fn no_mapping_is_in_the_block() {
        let heap = 0x5555_0000_0000..0x5555_0010_0000;
        let reserve = 0x6fff_f000_0000..0x7fff_f000_0000;
        let stack = 0x7fff_f7f0_0000..0x7fff_ffff_f000;
        assert_eq!(
            block_apart([heap.clone(), reserve, stack.clone()]),
            Some(0x6f80_0000_0000 - BLOCK)
        );
        assert_eq!(block_apart([heap, stack]), Some(END - BLOCK));
        assert_eq!(block_apart([]), Some(END - BLOCK));
    }

    #[test]
    fn a_full_address_space_has_none() {
        assert_eq!(block_apart([0x1000..END]), None);
        let every_half_tib = (0..256).map(|block| block * BLOCK + 4096..block * BLOCK + 8192);
        assert_eq!(block_apart(every_half_tib), None);
    }

    proptest::proptest! {
        #[test]
        fn it_is_free_and_aligned(mut starts in proptest::collection::vec(1..1u64 << 35, 0..40), lens in proptest::collection::vec(1..1u64 << 31, 40)) {
            starts.sort_unstable();
            let mut mappings: Vec<Range<u64>> = vec![];
            for (page, pages) in starts.into_iter().zip(lens) {
                let start = (page * 4096).max(mappings.last().map_or(0, |last| last.end));
                let end = (start + pages * 4096).min(128 * TIB - 4096);
                if start < end {
                    mappings.push(start..end);
                }
            }
            let found = block_apart(mappings.clone());
            let free = |at: u64| mappings.iter().all(|mapping| mapping.end <= at || at + BLOCK <= mapping.start);
            if let Some(at) = found {
                proptest::prop_assert!(at % BLOCK == 0 && at >= BLOCK && free(at));
            }
            let any = (1..END / BLOCK).rev().map(|block| block * BLOCK).find(|at| free(*at));
            proptest::prop_assert_eq!(found, any);
        }
    }
}
