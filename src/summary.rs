//! What a snapshot holds, counted and named for people: pure functions. Names are encoded ([`raw`]).

use crate::raw;
use ckpt_lib::snapshot::{
    ContentCheck, Description, DescriptionKind, InodeKind, InodeRecord, KernelPath, Mapping,
    MappingKind, Process, SnapshotV1, Thread,
};
use loader::call_names::CallName;
use loader::layout::Space;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

/// As JSON has it and tables show it.
fn encoded(name: &KernelPath) -> String {
    raw::encode(OsStr::from_bytes(&name.0))
}

/// A process.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ProcessSummary {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) program: Option<String>,
    pub(crate) cwd: String,
    /// What its first thread was called, if that had ended while others went on.
    pub(crate) ended_first_thread: Option<String>,
    pub(crate) threads: Vec<ThreadSummary>,
    pub(crate) memory: Vec<MemorySummary>,
    pub(crate) descriptors: Vec<DescriptorSummary>,
}

/// A thread.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ThreadSummary {
    pub(crate) tid: u32,
    pub(crate) name: String,
    pub(crate) instruction_pointer: u64,
    /// The call it was in.
    pub(crate) in_call: Option<String>,
    /// The time left of it, if it has a time-out.
    pub(crate) in_call_left_ns: Option<u64>,
}

/// The mappings of one kind.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct MemorySummary {
    pub(crate) kind: &'static str,
    pub(crate) mappings: u64,
    pub(crate) mapped_bytes: u64,
    /// Bytes with contents in the image (without those of inodes).
    pub(crate) stored_bytes: u64,
}

/// A descriptor.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DescriptorSummary {
    pub(crate) fd: i32,
    pub(crate) kind: &'static str,
    pub(crate) what: String,
    pub(crate) access: &'static str,
    pub(crate) offset: Option<u64>,
    pub(crate) close_on_exec: bool,
}

/// A file that the image knows.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct FileSummary {
    pub(crate) kind: &'static str,
    pub(crate) path: String,
    pub(crate) bytes: u64,
    /// Its contents are in the image.
    pub(crate) carried: bool,
    /// The job has it open for writing.
    pub(crate) written: bool,
    /// What the job writes there no shadow knows: a restart compares it, and at most cuts it back.
    pub(crate) not_rolled_back: bool,
    /// By what it is compared at a restart: "hash", "sampled" (the hash of parts), "size", "not".
    pub(crate) compared: &'static str,
}

/// The processes. `stored` tells how many bytes of a place have contents.
pub(crate) fn processes<E>(
    snapshot: &SnapshotV1,
    stored: &dyn Fn(Space, Range<u64>) -> Result<u64, E>,
) -> Result<Vec<ProcessSummary>, E> {
    let summarize = |(index, process): (usize, &Process)| {
        let space = Space::Process(index as u32);
        summarize(snapshot, process, &|place| stored(space, place))
    };
    snapshot
        .processes
        .iter()
        .enumerate()
        .map(summarize)
        .collect()
}

fn summarize<E>(
    snapshot: &SnapshotV1,
    process: &Process,
    stored: &dyn Fn(Range<u64>) -> Result<u64, E>,
) -> Result<ProcessSummary, E> {
    let mut memory: BTreeMap<&'static str, MemorySummary> = BTreeMap::new();
    for mapping in &process.memory.mappings {
        let kind = memory_kind(snapshot, process, mapping);
        let entry = memory.entry(kind).or_insert(MemorySummary {
            kind,
            mappings: 0,
            mapped_bytes: 0,
            stored_bytes: 0,
        });
        entry.mappings += 1;
        entry.mapped_bytes += mapping.len();
        entry.stored_bytes += stored(mapping.start..mapping.end)?;
    }
    let exe = process
        .memory
        .exe
        .and_then(|id| snapshot.inodes.get(id.0 as usize));
    Ok(ProcessSummary {
        pid: process.pid,
        parent: process.ppid,
        program: exe.map(|inode| encoded(&inode.path)),
        cwd: encoded(&process.cwd),
        ended_first_thread: process.ended_first.as_ref().map(encoded),
        threads: process
            .threads
            .iter()
            .map(|thread| ThreadSummary {
                tid: thread.tid,
                name: encoded(&thread.name),
                instruction_pointer: thread.registers.rip,
                in_call: in_call(thread).map(|nr| CallName(nr).to_string()),
                in_call_left_ns: thread.in_call.map(|call| call.remaining_ns),
            })
            .collect(),
        memory: memory.into_values().collect(),
        descriptors: descriptors(snapshot, process),
    })
}

/// The call that a thread enters again when it goes on: the kernel's mark for that is in its registers
/// (ERESTARTSYS to ERESTART_RESTARTBLOCK, include/linux/errno.h), or the loader makes it anew.
fn in_call(thread: &Thread) -> Option<u64> {
    let entered_again = (-516..=-512).contains(&thread.registers.rax.cast_signed())
        && thread.registers.orig_rax.cast_signed() >= 0;
    match thread.in_call {
        Some(call) => Some(call.nr),
        None => entered_again.then_some(thread.registers.orig_rax),
    }
}

fn memory_kind(snapshot: &SnapshotV1, process: &Process, mapping: &Mapping) -> &'static str {
    let layout = &process.memory.layout;
    match mapping.kind {
        MappingKind::Anonymous { huge_shift } if huge_shift > 0 => "huge pages",
        MappingKind::Anonymous { .. } => {
            if (mapping.start..mapping.end).contains(&layout.start_stack) {
                "stack"
            } else if mapping.start >= layout.start_brk
                && mapping.end <= layout.brk.next_multiple_of(4096)
            {
                "heap"
            } else if mapping.prot == 0 {
                "reserved"
            } else {
                "anonymous"
            }
        }
        MappingKind::PrivateFile { .. } => "private file",
        MappingKind::Shared { inode, .. } => {
            match snapshot
                .inodes
                .get(inode.0 as usize)
                .map(|inode| &inode.kind)
            {
                Some(InodeKind::SharedAnonymous) => "shared anonymous",
                Some(InodeKind::MemFd { .. }) => "shared memfd",
                _ => "shared file",
            }
        }
        MappingKind::Vvar | MappingKind::VvarVclock | MappingKind::Vdso => "vdso",
    }
}

fn descriptors(snapshot: &SnapshotV1, process: &Process) -> Vec<DescriptorSummary> {
    let describe = |entry: &ckpt_lib::snapshot::Descriptor| {
        let description = snapshot.descriptions.get(entry.description.0 as usize)?;
        let (kind, what) = describe(snapshot, description);
        Some(DescriptorSummary {
            fd: entry.fd,
            kind,
            what,
            access: access(description.flags),
            offset: matches!(description.kind, DescriptionKind::Inode(_))
                .then_some(description.offset),
            close_on_exec: entry.close_on_exec,
        })
    };
    process.descriptors.iter().filter_map(describe).collect()
}

fn access(flags: u32) -> &'static str {
    let flags = flags as i32;
    if flags & libc::O_PATH != 0 {
        return "path";
    }
    match flags & libc::O_ACCMODE {
        libc::O_RDONLY => "read",
        libc::O_WRONLY => "write",
        _ => "read and write",
    }
}

fn describe(snapshot: &SnapshotV1, description: &Description) -> (&'static str, String) {
    match &description.kind {
        DescriptionKind::Inode(id) => match snapshot.inodes.get(id.0 as usize) {
            Some(inode) => (inode_kind(inode), inode_name(inode)),
            None => ("file", format!("inode {}, which the image lacks", id.0)),
        },
        DescriptionKind::Pipe(id) => {
            let pipe = snapshot.pipes.get(id.0 as usize);
            let unread = pipe.map_or(0, |pipe| pipe.contents.iter().map(|part| part.len).sum());
            ("pipe", format!("within the job, {unread} bytes unread"))
        }
        DescriptionKind::Socket(id) => {
            let socket = snapshot.sockets.get(id.0 as usize);
            let messages = socket.map_or(0, |socket| socket.inbox.len());
            (
                "socket",
                format!("within the job, {messages} messages unread"),
            )
        }
        DescriptionKind::EventFd { count, .. } => ("eventfd", format!("count {count}")),
        DescriptionKind::SignalFd { mask } => ("signalfd", format!("signals {mask:#x}")),
        DescriptionKind::TimerFd { value_ns, .. } => {
            ("timerfd", format!("{} ms left", value_ns / 1_000_000))
        }
        DescriptionKind::Epoll { entries } => ("epoll", format!("{} descriptors", entries.len())),
        DescriptionKind::Inotify { watches } => ("inotify", format!("{} watches", watches.len())),
        DescriptionKind::PidFd { pid } => ("pidfd", format!("process {pid}")),
        DescriptionKind::Session { state } => {
            ("session", format!("at a shadow, {} bytes", state.len()))
        }
        DescriptionKind::External(external) => (
            "external",
            format!(
                "was {}, will be descriptor {} of the restarter",
                external.was, external.inherit
            ),
        ),
    }
}

fn inode_kind(inode: &InodeRecord) -> &'static str {
    match inode.kind {
        InodeKind::Regular => "file",
        InodeKind::Deleted => "deleted file",
        InodeKind::Directory => "directory",
        InodeKind::Device => "device",
        InodeKind::Fifo => "fifo",
        InodeKind::MemFd { .. } => "memfd",
        InodeKind::SharedAnonymous => "shared memory",
        InodeKind::OfProcess => "file of the process",
        InodeKind::Unread => "unread in pipes and sockets",
    }
}

fn inode_name(inode: &InodeRecord) -> String {
    match &inode.kind {
        InodeKind::MemFd { name, .. } => encoded(name),
        _ => encoded(&inode.path),
    }
}

/// Everything with a name or with bytes.
pub(crate) fn files(snapshot: &SnapshotV1) -> Vec<FileSummary> {
    let is_session = |kind: &DescriptionKind| matches!(kind, DescriptionKind::Session { .. });
    let has_session = snapshot
        .descriptions
        .iter()
        .any(|one| is_session(&one.kind));
    let summarize = |inode: &InodeRecord| FileSummary {
        kind: inode_kind(inode),
        path: inode_name(inode),
        bytes: inode.size,
        carried: inode.carried,
        written: inode.written,
        not_rolled_back: has_session && inode.written && inode.kind == InodeKind::Regular,
        compared: match inode.check {
            ContentCheck::Full(_) => "hash",
            ContentCheck::Sampled(_) => "sampled",
            ContentCheck::Size => "size",
            ContentCheck::None => "not",
        },
    };
    snapshot.inodes.iter().map(summarize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ckpt_lib::snapshot::MmLayout;
    use std::convert::Infallible;

    fn mapping(start: u64, end: u64, prot: u32) -> Mapping {
        Mapping {
            start,
            end,
            prot,
            kind: MappingKind::Anonymous { huge_shift: 0 },
            flags: 0,
            pkey: 0,
            name: KernelPath::default(),
        }
    }

    #[test]
    fn memory_is_counted_by_kind_with_what_is_stored_of_it() {
        let mut process = Process {
            pid: 7,
            ..Process::default()
        };
        process.memory.layout = MmLayout {
            start_brk: 0x10000,
            brk: 0x12800,
            start_stack: 0x7000_0800,
            ..MmLayout::default()
        };
        process.memory.mappings = vec![
            mapping(0x10000, 0x13000, 3),
            mapping(0x20000, 0x24000, 3),
            mapping(0x7000_0000, 0x7000_1000, 3),
            mapping(0x8000_0000, 0x9000_0000, 0),
        ];
        let snapshot = SnapshotV1 {
            processes: vec![process],
            ..SnapshotV1::default()
        };
        let stored = |space, place: Range<u64>| {
            assert_eq!(space, Space::Process(0));
            let known = [(0x10000, 0x1000), (0x20000, 0x3000)];
            let found = known.iter().find(|(start, _)| *start == place.start);
            Ok::<_, Infallible>(found.map_or(0, |(_, bytes)| *bytes))
        };
        let Ok(summary) = processes(&snapshot, &stored);
        let found: Vec<_> = summary[0]
            .memory
            .iter()
            .map(|m| (m.kind, m.mappings, m.mapped_bytes, m.stored_bytes))
            .collect();
        let expected = [
            ("anonymous", 1, 0x4000, 0x3000),
            ("heap", 1, 0x3000, 0x1000),
            ("reserved", 1, 0x1000_0000, 0),
            ("stack", 1, 0x1000, 0),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn an_index_that_leads_nowhere_is_shown_and_does_not_panic() {
        let description = Description {
            flags: 0,
            offset: 0,
            owner: None,
            kind: DescriptionKind::Inode(ckpt_lib::snapshot::InodeId(9)),
            locks: vec![],
        };
        let (_, what) = describe(&SnapshotV1::default(), &description);
        assert!(what.contains("which the image lacks"));
    }
}
