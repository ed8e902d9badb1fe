//! The extended registers of a thread, as ptrace(2) gives them (`NT_X86_XSTATE`): the layout of XSAVE without compaction,
//! with XCR0 in the bytes for software (Intel SDM vol. 1, 13.4; arch/x86/kernel/fpu/xstate.c).
//!
//! # What callers may rely on
//! A register set is read and merged whatever its bytes; only its length is given.

use core::ops::Range;

/// A register set.
#[derive(Clone, Copy, Debug)]
pub struct Xstate<'a>(&'a [u8]);

/// Where XCR0 is: in the bytes that are left to software.
pub const XCR0_AT: usize = 464;
/// Where the components in use are (XSTATE_BV).
pub const IN_USE_AT: usize = 512;

const XCR0: Range<usize> = XCR0_AT..XCR0_AT + 8;
const IN_USE: Range<usize> = IN_USE_AT..IN_USE_AT + 8;

impl<'a> Xstate<'a> {
    /// The legacy region and the header: no register set is shorter.
    pub const LEAST: usize = 576;
    /// No register set is longer.
    pub const MOST: usize = 1 << 16;

    /// A register set, if these bytes are as many as one has at least.
    #[must_use]
    pub fn of(bytes: &'a [u8]) -> Option<Self> {
        (bytes.len() >= Self::LEAST).then_some(Xstate(bytes))
    }

    /// Components in use (XSTATE_BV).
    #[must_use]
    pub fn in_use(&self) -> u64 {
        word(self.0, IN_USE)
    }

    /// Four bytes of a component, if it has them.
    #[must_use]
    pub fn half_word(&self, at: usize) -> Option<u32> {
        let bytes = self.0.get(at..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    }

    /// Puts it over a register set of this machine, whose length and XCR0 stay, but for the components `not`.
    ///
    /// # Errors
    /// Components in use that the machine has not; nothing is put then.
    pub fn put_over(&self, machine: &mut [u8], not: u64) -> Result<(), u64> {
        let xcr0 = word(machine, XCR0);
        let in_use = self.in_use() & !not;
        match in_use & !xcr0 {
            0 => {}
            missing => return Err(missing),
        }
        let len = self.0.len().min(machine.len());
        machine.fill(0);
        machine[..len].copy_from_slice(&self.0[..len]);
        put(machine, XCR0, xcr0);
        put(machine, IN_USE, in_use);
        Ok(())
    }
}

/// Components that a machine's register set has room for.
#[must_use]
pub fn offered(machine: &[u8]) -> u64 {
    word(machine, XCR0)
}

fn word(bytes: &[u8], place: Range<usize>) -> u64 {
    let found = bytes.get(place).and_then(|raw| raw.try_into().ok());
    found.map_or(0, u64::from_le_bytes)
}

fn put(bytes: &mut [u8], place: Range<usize>, word: u64) {
    if let Some(to) = bytes.get_mut(place) {
        to.copy_from_slice(&word.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(len: usize, xcr0: u64, in_use: u64) -> Vec<u8> {
        let mut bytes = vec![7; len];
        put(&mut bytes, XCR0, xcr0);
        put(&mut bytes, IN_USE, in_use);
        bytes
    }

    #[test]
    fn what_the_machine_has_stays_its_own() {
        let old = set(900, 0xff, 0b11);
        let mut machine = set(1000, 0b111, 0b100);
        let found = Xstate::of(&old).expect("long enough");
        found.put_over(&mut machine, 0).expect("has all");
        assert_eq!((offered(&machine), word(&machine, IN_USE)), (0b111, 0b11));
        assert_eq!(machine[..XCR0.start], old[..XCR0.start]);
        assert_eq!(machine[IN_USE.end..900], old[IN_USE.end..]);
        assert!(machine[900..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn what_the_machine_lacks_is_named_and_nothing_is_put() {
        let old = set(900, 0xff, 0b1011);
        let mut machine = set(700, 0b11, 0);
        let before = machine.clone();
        let found = Xstate::of(&old).expect("long enough");
        assert_eq!(found.put_over(&mut machine, 0), Err(0b1000));
        assert_eq!(machine, before);
        // Unless nobody needs it.
        found.put_over(&mut machine, 0b1000).expect("has the rest");
        assert_eq!(word(&machine, IN_USE), 0b11);
    }

    #[test]
    fn no_length_is_too_short() {
        let old = set(900, 0, 0);
        for len in 0..600 {
            let found = Xstate::of(&old[..len]);
            assert_eq!(found.is_some(), len >= Xstate::LEAST, "{len}");
            let mut machine = set(600, 0, 0);
            machine.truncate(len);
            let whole = Xstate::of(&old).expect("long enough");
            whole.put_over(&mut machine, 0).expect("nothing in use");
        }
        let found = Xstate::of(&old).expect("long enough");
        assert_eq!(found.half_word(896), Some(0x0707_0707));
        assert_eq!(found.half_word(897), None);
        assert_eq!(found.half_word(usize::MAX), None);
    }
}
