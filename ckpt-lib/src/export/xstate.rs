//! NT_X86_XSTATE as debuggers read it.
//!
//! Processors differ in where the XSAVE area has its components. A kernel's core does not say where they are
//! (before NT_X86_XSAVE_LAYOUT, Linux 6.12, which no gdb of today's distributions reads): gdb up to 13 counts on the offsets of
//! Intel's processors and refuses a note that is shorter (`Section .reg-xstate too small`), later ones tell by
//! XCR0 and the length of the note whose it is (gdb, `i387_guess_xsave_layout`). So a register set that was taken on another
//! processor is written as Intel's would have it, which all of them read.

use loader::xstate::{XCR0_AT, Xstate};
use std::collections::BTreeMap;

/// Components that gdb knows, by their bit: offset and length on Intel's processors (Intel SDM 1, 13.4 and 13.5).
const COMPONENTS: [(u32, usize, usize); 9] = [
    (2, 576, 256),    // AVX
    (3, 960, 64),     // MPX bounds
    (4, 1024, 64),    // MPX configuration
    (5, 1088, 64),    // AVX-512 masks
    (6, 1152, 512),   // upper halves of zmm0-15
    (7, 1664, 1024),  // zmm16-31
    (9, 2688, 8),     // PKRU
    (17, 2752, 64),   // AMX tiles: their settings
    (18, 2816, 8192), // and themselves
];

/// The register set with its components where gdb looks for them. `layout`: where they are in it.
pub(super) fn for_gdb(xstate: &[u8], layout: &BTreeMap<u32, u32>) -> Vec<u8> {
    let Some(raw) = xstate.get(XCR0_AT..XCR0_AT + 8) else {
        return xstate.to_vec();
    };
    let enabled = raw
        .iter()
        .rev()
        .fold(0u64, |word, byte| word << 8 | u64::from(*byte));
    let known = || {
        let known = COMPONENTS.into_iter();
        known.filter(|(bit, ..)| enabled >> bit & 1 != 0)
    };
    let is_there = |(bit, at, len): (u32, usize, usize)| {
        xstate.len() >= at + len && layout.get(&bit).is_none_or(|own| *own as usize == at)
    };
    if xstate.len() < Xstate::LEAST || known().all(is_there) {
        return xstate.to_vec();
    }
    let mut moved = xstate[..Xstate::LEAST].to_vec();
    for (bit, at, len) in known() {
        moved.resize(moved.len().max(at + len), 0);
        // What is nowhere was not in use.
        let own = layout.get(&bit).map(|own| *own as usize);
        let from = own.and_then(|own| xstate.get(own..own.checked_add(len)?));
        if let Some(from) = from {
            moved[at..at + len].copy_from_slice(from);
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As AMD's processors have it: no room for MPX.
    fn other() -> (Vec<u8>, BTreeMap<u32, u32>) {
        let layout = BTreeMap::from([(2, 576), (5, 832), (6, 896), (7, 1408), (9, 2432)]);
        let mut xstate = vec![0; 2440];
        xstate[XCR0_AT..XCR0_AT + 8].copy_from_slice(&0x2e7u64.to_le_bytes());
        for (bit, at) in &layout {
            xstate[*at as usize] = *bit as u8;
        }
        (xstate, layout)
    }

    #[test]
    fn components_are_where_gdb_looks_for_them() {
        let (xstate, layout) = other();
        let moved = for_gdb(&xstate, &layout);
        assert_eq!(moved.len(), 2696);
        assert_eq!(moved[..Xstate::LEAST], xstate[..Xstate::LEAST]);
        for (bit, at) in [(2, 576), (5, 1088), (6, 1152), (7, 1664), (9, 2688)] {
            assert_eq!(moved[at], bit);
        }
        assert_eq!(moved[832], 0);
    }

    #[test]
    fn what_is_there_already_stays() {
        let mut xstate = vec![0; 11008];
        xstate[XCR0_AT..XCR0_AT + 8].copy_from_slice(&0x602e7u64.to_le_bytes());
        xstate[8192] = 7; // tiles
        let layout = BTreeMap::from([(5, 1088), (6, 1152), (7, 1664), (9, 2688), (18, 2816)]);
        assert!(for_gdb(&xstate, &layout) == xstate);
        assert_eq!(for_gdb(&[1; 100], &layout), [1; 100]);
    }

    #[test]
    fn tiles_that_are_not_there_have_their_room() {
        let mut xstate = vec![7; 2752];
        xstate[XCR0_AT..XCR0_AT + 8].copy_from_slice(&0x602e7u64.to_le_bytes());
        let layout = COMPONENTS.into_iter().map(|(bit, at, _)| (bit, at as u32));
        let found = for_gdb(&xstate, &layout.collect());
        assert_eq!(found.len(), 11008);
        for (bit, at, len) in COMPONENTS
            .into_iter()
            .filter(|(bit, ..)| 0x602e7 >> bit & 1 != 0)
        {
            let expected = if bit < 17 { 7 } else { 0 };
            assert!(
                found[at..at + len].iter().all(|byte| *byte == expected),
                "{bit}"
            );
        }
    }
}
