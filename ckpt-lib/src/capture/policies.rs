//! On which nodes memory is to be placed: of threads, and of mappings.
//!
//! The kernel tells of a mapping's policy in `numa_maps`, as long as it is not the thread's (which is shown in its place), and exactly
//! to the process alone, one address at a time. Next to nobody has one. So `numa_maps` is read before the job is stopped; if all is
//! `default` there, nobody is asked, and the picture is looked at in the same way afterwards.

use super::CaptureError;
use crate::inject::{CallList, CallRef, CallResults, DataRef, InsideArg, Workshop};
use crate::procfs::ProcDir;
use crate::snapshot::{Mapping, MappingKind, MemoryPolicy};
use crate::tracee::{HostTid, StoppedProcess};
use std::ops::Range;

/// Most nodes of any kernel (CONFIG_NODES_SHIFT is 10 at most).
const NODES: u64 = 1024;
const MPOL_F_ADDR: u64 = 2;
/// The mode, and behind it the nodes.
const MODE_LEN: usize = 8;
const NODES_LEN: usize = NODES as usize / 8;
/// Addresses that are asked about at once.
const AT_ONCE: usize = 4096;

/// Adds the question for a thread's own policy, or for that of the mapping at `address` (get_mempolicy(2)).
pub(super) fn ask_policy(list: &mut CallList, address: Option<u64>) -> (CallRef, DataRef) {
    let answer = list.space(MODE_LEN + NODES_LEN);
    let args = [
        InsideArg::Data(answer),
        InsideArg::Within(answer, MODE_LEN),
        // One less counts.
        InsideArg::Value(NODES + 1),
        InsideArg::Value(address.unwrap_or(0)),
        InsideArg::Value(address.map_or(0, |_| MPOL_F_ADDR)),
    ];
    (list.call(libc::SYS_get_mempolicy, &args), answer)
}

/// The answer; the default where there are no policies, or nobody may have one (a container's filter).
pub(super) fn policy_of((call, data): (CallRef, DataRef), results: &CallResults) -> MemoryPolicy {
    let bytes = results.bytes(data);
    if results.result(call) != 0 || bytes.len() < MODE_LEN {
        return MemoryPolicy::default();
    }
    let (mode, nodes) = bytes.split_at(MODE_LEN);
    let words = nodes.as_chunks::<8>().0;
    let used = words.iter().rposition(|word| *word != [0; 8]);
    let used = used.map_or(0, |last| last + 1);
    MemoryPolicy {
        mode: mode.first_chunk().copied().map_or(0, u32::from_le_bytes),
        nodes: words[..used].concat(),
    }
}

/// Where a mapping begins whose policy, or that of its process's first thread, is not the default; 0 if that cannot be told. None
/// if all are, or this kernel has none.
pub(super) fn first_placed(dir: &ProcDir) -> Option<u64> {
    match dir.bytes("numa_maps") {
        Ok(text) => first_in(&text),
        Err(error) if error.is_gone() => None,
        Err(_) => Some(0),
    }
}

fn first_in(text: &[u8]) -> Option<u64> {
    let lines = text.split(|byte| *byte == b'\n');
    let mut lines = lines.filter(|line| !line.is_empty());
    let line = lines.find(|line| {
        let policy = line.split(|byte| *byte == b' ').nth(1);
        policy != Some(b"default")
    })?;
    let address = line.split(|byte| *byte == b' ').next();
    let address = address.and_then(|word| std::str::from_utf8(word).ok());
    Some(
        address
            .and_then(|word| u64::from_str_radix(word, 16).ok())
            .unwrap_or(0),
    )
}

/// Asks for the policies of these mappings; those that are adjacent and have the same are one.
pub(super) fn of_mappings<'a>(
    mappings: impl Iterator<Item = &'a Mapping>,
    tid: HostTid,
    stopped: &mut StoppedProcess,
    workshop: &mut Workshop,
) -> Result<Vec<(Range<u64>, MemoryPolicy)>, CaptureError> {
    let of_kernel = |mapping: &&Mapping| {
        matches!(
            mapping.kind,
            MappingKind::Vdso | MappingKind::Vvar | MappingKind::VvarVclock
        )
    };
    let mappings: Vec<&Mapping> = mappings.filter(|mapping| !of_kernel(mapping)).collect();
    let mut found: Vec<(Range<u64>, MemoryPolicy)> = vec![];
    for some in mappings.chunks(AT_ONCE) {
        let mut list = CallList::new();
        let asked: Vec<_> = some
            .iter()
            .map(|mapping| ask_policy(&mut list, Some(mapping.start)))
            .collect();
        let results = workshop
            .run(stopped, vec![(tid, list)])
            .map_err(|error| CaptureError::Tracee(Box::new(error)))?;
        let Some(results) = results.first() else {
            continue;
        };
        for (mapping, asked) in some.iter().zip(asked) {
            let policy = policy_of(asked, results);
            if policy == MemoryPolicy::default() {
                continue;
            }
            match found.last_mut() {
                Some((range, last)) if range.end == mapping.start && *last == policy => {
                    range.end = mapping.end;
                }
                _ => found.push((mapping.start..mapping.end, policy)),
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_seen_in_numa_maps() {
        let none = b"55fd46392000 default file=/usr/bin/a b mapped=2 N0=2\n7f00 default anon=1\n";
        assert_eq!(first_in(none), None);
        let some = b"55fd46392000 default file=/x\n7f01000 interleave=static:0-1 anon=1\n";
        assert_eq!(first_in(some), Some(0x7f0_1000));
        assert_eq!(
            first_in(b"7f01000 prefer (many):0 anon=1\n"),
            Some(0x7f0_1000)
        );
        assert_eq!(first_in(b"?\n"), Some(0));
        assert_eq!(first_in(b""), None);
    }

    #[test]
    fn our_own_memory_has_no_policy() {
        assert_eq!(first_placed(&ProcDir::of_self()), None);
    }
}
