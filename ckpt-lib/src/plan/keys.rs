//! Protection keys (pkeys(7)): which a process has, and which of its mappings have them.

use super::{Arg, OpsBuilder, StreamIndex};
use crate::snapshot::{AddressSpace, Mapping};
use loader::ops::Expect;

fn bit(key: u32) -> u16 {
    1u16.checked_shl(key).unwrap_or(0)
}

/// Whether the key of a mapping is the one that the kernel itself has chosen for what may only be executed
/// (arch/x86/mm/pkeys.c, `execute_only_pkey`): it chooses one again.
pub(super) fn is_kernels(mapping: &Mapping, allocated: u16) -> bool {
    mapping.prot == libc::PROT_EXEC as u32 && allocated & bit(mapping.pkey) == 0
}

/// Protection keys of a process, a bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    /// Allocated by the program.
    pub(super) allocated: u16,
    /// Freed by it, though mappings have them still.
    freed: u16,
}

impl Keys {
    pub(super) fn of(memory: &AddressSpace) -> Self {
        let allocated = memory.protection_keys;
        let mappings = memory.mappings.iter();
        let named = mappings.filter(|mapping| mapping.pkey != 0 && !is_kernels(mapping, allocated));
        let used = named.fold(0, |keys, mapping| keys | bit(mapping.pkey));
        Keys {
            allocated,
            freed: used & !allocated,
        }
    }

    /// The kernel gives the lowest that is free.
    pub(super) fn emit_allocation(self, ops: &mut OpsBuilder, stream: StreamIndex) {
        let wanted = self.allocated | self.freed;
        let top = u16::BITS - wanted.leading_zeros();
        for key in 1..top {
            let label = format!("protection key {key}");
            let args = [Arg::Value(0), Arg::Value(0)];
            let expected = Expect::Exactly;
            ops.call(
                stream,
                &label,
                libc::SYS_pkey_alloc,
                &args,
                expected,
                u64::from(key),
            );
        }
        emit_frees(ops, stream, (1..top).filter(|key| wanted & bit(*key) == 0));
    }

    pub(super) fn emit_freeing(self, ops: &mut OpsBuilder, stream: StreamIndex) {
        emit_frees(
            ops,
            stream,
            (1..u16::BITS).filter(|key| self.freed & bit(*key) != 0),
        );
    }
}

fn emit_frees(ops: &mut OpsBuilder, stream: StreamIndex, keys: impl Iterator<Item = u32>) {
    for key in keys {
        let label = format!("protection key {key}");
        let args = [Arg::Value(u64::from(key))];
        ops.call(
            stream,
            &label,
            libc::SYS_pkey_free,
            &args,
            Expect::Success,
            0,
        );
    }
}
