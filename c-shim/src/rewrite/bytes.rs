//! What is told by bytes alone, without instructions: where a `syscall` may be, and what a jump may lead to.

use alloc::vec::Vec;
use core::ops::Range;

/// The instruction.
pub(super) const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Whether the instruction may be in this code at all. Fast: most libraries have none.
#[must_use]
pub fn may_call(code: &[u8]) -> bool {
    const PIECE: usize = 256;
    let behind = code.get(1..).unwrap_or_default();
    let mut pieces = code.chunks(PIECE).zip(behind.chunks(PIECE));
    // Without a way out within a piece it is done with vectors.
    pieces.any(|(first, second)| {
        let pairs = first.iter().zip(second);
        let differs = |pair: (&u8, &u8)| (pair.0 ^ SYSCALL[0]) | (pair.1 ^ SYSCALL[1]);
        pairs.map(differs).fold(u8::MAX, u8::min) == 0
    })
}

pub(super) fn slice<'a>(object: &'a [u8], range: &Range<u64>) -> &'a [u8] {
    object
        .get(range.start as usize..range.end as usize)
        .unwrap_or_default()
}

/// Where the bytes of the instruction are, in order.
pub(super) fn occurrences(object: &[u8], code: &[Range<u64>]) -> Vec<u64> {
    const PIECE: usize = 4096;
    let mut found = Vec::new();
    for part in code {
        let bytes = slice(object, part);
        for begin in (0..bytes.len()).step_by(PIECE) {
            // With the first byte of the next one.
            let piece = &bytes[begin..bytes.len().min(begin + PIECE + 1)];
            if may_call(piece) {
                let pairs = piece.windows(2).zip(part.start + begin as u64..);
                found.extend(pairs.filter(|(pair, _)| *pair == SYSCALL).map(|(_, at)| at));
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Whether an address lies in one of these ranges, which are in order.
pub(super) fn lies_in(ranges: &[Range<u64>], at: u64) -> bool {
    let behind = ranges.partition_point(|range| range.start <= at);
    ranges[..behind]
        .last()
        .is_some_and(|range| range.contains(&at))
}

/// Adds what jumps and calls of 4 bytes may lead to in these ranges, which are in order: all that there are, and some bytes that only look
/// like one.
pub(super) fn add_far_targets(
    object: &[u8],
    code: &[Range<u64>],
    ranges: &[Range<u64>],
    targets: &mut Vec<u64>,
) {
    let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
        return;
    };
    let all = first.start..last.end;
    for part in code {
        let bytes = slice(object, part);
        for (at, place) in bytes.windows(5).zip(part.start..) {
            // call, jmp, jcc.
            let distance = match at[..2] {
                [0xe8 | 0xe9, _] => 1,
                [0x0f, 0x80..=0x8f] => 2,
                _ => continue,
            };
            let from = (place - part.start) as usize + distance;
            let Some(bytes) = bytes.get(from..).and_then(|rest| rest.first_chunk::<4>()) else {
                continue;
            };
            let behind = place + distance as u64 + 4;
            let target = behind.wrapping_add_signed(i32::from_le_bytes(*bytes).into());
            if all.contains(&target) && lies_in(ranges, target) {
                targets.push(target);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_instruction_is_seen_wherever_it_is() {
        for len in [0, 1, 2, 3, 255, 256, 257, 300, 600] {
            let mut code = vec![0x0f; len];
            assert!(!may_call(&code), "{len}");
            for at in 1..len {
                code[at] = 5;
                assert!(may_call(&code), "{at} of {len}");
                code[at] = 0x0f;
            }
        }
        assert!(!may_call(&[5, 0x0f]));
    }

    #[test]
    fn jumps_of_four_bytes_are_seen_and_others_are_not() {
        // call, jmp, je, mov $imm32 %eax, and je's second byte alone.
        let code = [
            0xe8, 11, 0, 0, 0, 0xe9, 6, 0, 0, 0, 0x0f, 0x84, 0, 0, 0, 0, 0x90, 0xb8, 1, 0, 0, 0,
            0x84, 1, 0, 0, 0,
        ];
        let mut targets = vec![];
        let all = 0..code.len() as u64;
        add_far_targets(&code, core::slice::from_ref(&all), &[10..27], &mut targets);
        assert_eq!(targets, [16, 16, 16]);
        targets.clear();
        add_far_targets(&code, &[all], &[0..4, 20..27], &mut targets);
        assert_eq!(targets, [0u64; 0]);
    }
}
