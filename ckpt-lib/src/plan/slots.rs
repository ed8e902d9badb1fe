//! Which descriptor number each inode and description is made at.

use super::PlanError;
use crate::snapshot::{
    DescriptionId, DescriptionKind, InodeId, InodeKind, InodeRecord, MappingKind, SnapshotV1,
    Unread,
};
use std::collections::{BTreeSet, HashMap};

/// Descriptor numbers kept free behind the slots for the loader itself.
const LOADER_OWN: u64 = 16;
/// Slots are looked for below this number.
const HIGHEST: u64 = 1 << 20;

/// The slots of a snapshot: inodes first, then descriptions, then extra ones.
#[derive(Debug)]
pub(super) struct Slots {
    base: u64,
    inodes: u64,
    descriptions: u64,
    /// Files that shared mappings need to be open for writing → which of them.
    writable: HashMap<InodeId, u64>,
    /// Number of the inode that has what lay unread.
    unread: Option<InodeId>,
}

impl Slots {
    /// Finds a run of numbers that no process uses. The lowest is taken, so that small
    /// limits on open files suffice.
    pub(super) fn choose(snapshot: &SnapshotV1) -> Result<Self, PlanError> {
        let inodes = snapshot.inodes.len() as u64;
        let descriptions = snapshot.descriptions.len() as u64;
        let writable = opened_for_writing(snapshot);
        // A second slot for such an inode, for each pipe and socket the end that nobody has, and one to work with.
        let ends = 2 * (snapshot.pipes.len() + snapshot.sockets.len()) as u64;
        let needed = inodes + writable.len() as u64 + descriptions + ends + 1 + LOADER_OWN;
        let descriptors = snapshot
            .processes
            .iter()
            .flat_map(|process| &process.descriptors)
            .map(|descriptor| descriptor.fd);
        // Numbers that are closed now are taken on again for a moment.
        let watched = snapshot
            .descriptions
            .iter()
            .flat_map(|description| match &description.kind {
                DescriptionKind::Epoll { entries } => entries.as_slice(),
                _ => &[],
            })
            .map(|entry| entry.fd);
        let used: BTreeSet<u64> = descriptors
            .chain(watched)
            .filter_map(|fd| u64::try_from(fd).ok())
            .collect();
        let mut base = 3;
        for fd in used {
            if fd >= base + needed {
                break;
            }
            base = base.max(fd + 1);
        }
        if base + needed > HIGHEST {
            return Err(PlanError::NoSlots {
                needed,
                limit: HIGHEST,
            });
        }
        let kept = |inode: &InodeRecord| inode.kind == InodeKind::Unread;
        let unread = snapshot.inodes.iter().position(kept);
        Ok(Slots {
            base,
            inodes,
            descriptions: descriptions + ends,
            writable,
            unread: unread.map(|index| InodeId(index as u32)),
        })
    }

    pub(super) fn base(&self) -> u64 {
        self.base
    }

    pub(super) fn count(&self) -> u64 {
        self.first_description() - self.base + self.descriptions + 1
    }

    /// First number behind the slots and the loader's own descriptors.
    pub(super) fn end(&self) -> u64 {
        self.base + self.count() + LOADER_OWN
    }

    pub(super) fn inode(&self, inode: InodeId) -> u64 {
        self.base + u64::from(inode.0)
    }

    /// Where these bytes are found.
    pub(super) fn unread(&self, unread: Unread) -> Result<u64, PlanError> {
        let inode = self.unread.ok_or(PlanError::Unread { len: unread.len })?;
        Ok(self.inode(inode))
    }

    /// The same inode, opened for reading and writing, if some mapping needs that.
    pub(super) fn inode_writable(&self, inode: InodeId) -> Option<u64> {
        let which = self.writable.get(&inode)?;
        Some(self.base + self.inodes + which)
    }

    fn first_description(&self) -> u64 {
        self.base + self.inodes + self.writable.len() as u64
    }

    pub(super) fn description(&self, description: DescriptionId) -> u64 {
        self.first_description() + u64::from(description.0)
    }

    /// Slot number `index` among those for ends of pipes and sockets that no description has.
    pub(super) fn spare_end(&self, snapshot: &SnapshotV1, index: usize) -> u64 {
        self.first_description() + snapshot.descriptions.len() as u64 + index as u64
    }

    /// A slot for passing use.
    pub(super) fn work(&self) -> u64 {
        self.base + self.count() - 1
    }
}

/// The files with names that are mapped so that they can be written to.
fn opened_for_writing(snapshot: &SnapshotV1) -> HashMap<InodeId, u64> {
    let mut found = HashMap::new();
    let processes = snapshot.processes.iter();
    for mapping in processes.flat_map(|process| &process.memory.mappings) {
        let MappingKind::Shared {
            inode,
            may_write: true,
            ..
        } = mapping.kind
        else {
            continue;
        };
        let record = snapshot.inodes.get(inode.0 as usize);
        if record
            .is_some_and(|record| matches!(record.kind, InodeKind::Regular | InodeKind::Deleted))
        {
            let which = found.len() as u64;
            found.entry(inode).or_insert(which);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::inode;
    use crate::snapshot::{Descriptor, KernelPath, Mapping, Process};

    #[test]
    fn slots_avoid_every_descriptor_of_the_job() {
        let descriptors = [0, 1, 2, 5, 30, 1000].map(|fd| Descriptor {
            fd,
            description: DescriptionId(0),
            close_on_exec: false,
        });
        let process = Process {
            descriptors: descriptors.to_vec(),
            ..Process::default()
        };
        let snapshot = SnapshotV1 {
            processes: vec![process],
            ..SnapshotV1::default()
        };
        let slots = Slots::choose(&snapshot).expect("chosen");
        for fd in [0, 1, 2, 5, 30, 1000] {
            assert!(fd < slots.base() || fd >= slots.end(), "{fd} in {slots:?}");
        }
        assert_eq!(slots.base(), 6);
    }

    #[test]
    fn only_files_that_are_mapped_for_writing_have_two_slots() {
        let shared = |inode: u32, may_write| Mapping {
            start: 0,
            end: 4096,
            prot: 3,
            kind: MappingKind::Shared {
                inode: InodeId(inode),
                offset: 0,
                may_write,
            },
            flags: 0,
            pkey: 0,
            name: KernelPath::default(),
        };
        let kinds = [
            InodeKind::Regular,
            InodeKind::SharedAnonymous,
            InodeKind::Deleted,
            InodeKind::Regular,
        ];
        let mut process = Process::default();
        let written = [0, 1, 2, 2, 0].map(|inode| shared(inode, true));
        process.memory.mappings = [&written[..], &[shared(3, false)]].concat();
        let snapshot = SnapshotV1 {
            inodes: kinds.map(|kind| inode(kind, "")).to_vec(),
            processes: vec![process],
            ..SnapshotV1::default()
        };
        let slots = Slots::choose(&snapshot).expect("chosen");
        let own = |inode| slots.inode_writable(InodeId(inode));
        let base = slots.base();
        assert_eq!([own(0), own(2)], [Some(base + 4), Some(base + 5)]);
        assert_eq!([own(1), own(3)], [None, None]);
        assert_eq!(slots.description(DescriptionId(0)), base + 6);
        assert_eq!(slots.work(), base + 6);
        assert_eq!(slots.count(), 7);
    }
}
