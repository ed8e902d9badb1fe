//! `VmFlags` of a mapping, as `/proc/PID/smaps` shows them.

use crate::snapshot::mapping_flags;

/// What `VmFlags` say, as far as a snapshot holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct VmFlags {
    /// Bits of [`mapping_flags`].
    pub(super) bits: u32,
    /// VM_MAYWRITE.
    pub(super) may_write: bool,
    /// VM_HUGETLB.
    pub(super) huge: bool,
}

/// Reads the two-letter codes (`show_smap_vma_flags` in `fs/proc/task_mmu.c`); an unknown one, or
/// one that cannot be carried, is an error.
pub(super) fn vm_flags(codes: &[[u8; 2]], of_kernel: bool) -> Result<VmFlags, String> {
    let mut flags = VmFlags::default();
    let mut on_fault = false;
    for code in codes {
        match code {
            // In the permissions already, or about what could be allowed later: implied by the kind.
            b"rd" | b"wr" | b"ex" | b"sh" | b"mr" | b"me" | b"ms" => {}
            // Not to be grown by mremap; soft-dirty: neither is the job's doing.
            b"de" | b"sd" => {}
            b"mw" => flags.may_write = true,
            b"gd" => flags.bits |= mapping_flags::GROWSDOWN,
            b"lo" => flags.bits |= mapping_flags::LOCKED,
            b"lf" => on_fault = true,
            b"nr" => flags.bits |= mapping_flags::NORESERVE,
            b"dc" => flags.bits |= mapping_flags::DONTFORK,
            b"wf" => flags.bits |= mapping_flags::WIPEONFORK,
            b"dd" => flags.bits |= mapping_flags::DONTDUMP,
            b"hg" => flags.bits |= mapping_flags::HUGEPAGE,
            b"nh" => flags.bits |= mapping_flags::NOHUGEPAGE,
            b"mg" => flags.bits |= mapping_flags::MERGEABLE,
            b"sr" => flags.bits |= mapping_flags::SEQUENTIAL,
            b"rr" => flags.bits |= mapping_flags::RANDOM,
            b"ac" => flags.bits |= mapping_flags::ACCOUNT,
            b"ht" => flags.huge = true,
            // The vDSO's data pages.
            b"pf" | b"io" | b"mm" | b"ar" if of_kernel => {}
            b"pf" | b"io" | b"mm" | b"ar" => {
                return Err("memory of a device cannot be carried".into());
            }
            b"um" | b"uw" | b"ui" => {
                return Err("it is registered with a userfaultfd, which cannot be carried".into());
            }
            b"sf" => return Err("synchronous faults (DAX) cannot be carried".into()),
            b"ss" => return Err("a shadow stack cannot be carried".into()),
            b"sl" if of_kernel => {}
            b"sl" => return Err("a sealed mapping (mseal) cannot be carried".into()),
            b"gu" => flags.bits |= mapping_flags::GUARDED,
            b"dp" => flags.bits |= mapping_flags::DROPPABLE,
            [a, b] => {
                return Err(format!(
                    "it has the unknown flag {:?}",
                    format!("{}{}", char::from(*a), char::from(*b))
                ));
            }
        }
    }
    if on_fault {
        flags.bits |= mapping_flags::LOCK_ONFAULT;
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_is_carried_harmless_or_refused() {
        let flags = vm_flags(&[*b"rd", *b"mw", *b"gd", *b"wf", *b"lo", *b"lf"], false);
        let flags = flags.expect("known");
        let expected = mapping_flags::GROWSDOWN
            | mapping_flags::WIPEONFORK
            | mapping_flags::LOCKED
            | mapping_flags::LOCK_ONFAULT;
        assert_eq!((flags.bits, flags.may_write), (expected, true));
        for code in [b"pf", b"uw", b"ss", b"sl", b"sf", b"??", b"zz"] {
            assert!(vm_flags(&[*code], false).is_err(), "{code:?}");
        }
        assert!(vm_flags(&[*b"pf", *b"io"], true).is_ok());
    }
}
