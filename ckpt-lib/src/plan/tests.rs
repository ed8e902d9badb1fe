//! The planner on made-up snapshots.

use super::*;
use crate::snapshot::{
    Description, DescriptionId, DescriptionKind, Descriptor, InodeId, InodeKind, InodeRecord,
    KernelPath, Mapping, MappingKind, PipeId, PipeRecord, Process, SocketId, SocketMessage,
    SocketRecord, SocketSettings, Thread, TimedCall, Unread,
};
use loader::ops::{AnyOp, Expect, OpsList};
use loader::xstate::Xstate;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn operations(snapshot: &SnapshotV1, contents: &Contents) -> Result<Operations, PlanError> {
    super::operations(snapshot, contents, &std::env::temp_dir())
}

fn description(kind: DescriptionKind, flags: i32) -> Description {
    Description {
        flags: flags as u32,
        offset: 0,
        owner: None,
        kind,
        locks: vec![],
    }
}

pub(super) fn inode(kind: InodeKind, path: &str) -> InodeRecord {
    InodeRecord {
        kind,
        path: KernelPath(path.as_bytes().to_vec()),
        size: 4096,
        mode: 0o100_644,
        dev: 1,
        ino: 2,
        rdev: 0,
        mtime_ns: 0,
        check: crate::snapshot::ContentCheck::None,
        carried: false,
        written: false,
    }
}

/// A job with one process and these descriptions at descriptors 0, 1, 2 ...
fn job(descriptions: Vec<Description>) -> SnapshotV1 {
    let descriptors = (0..descriptions.len())
        .map(|index| Descriptor {
            fd: index as i32,
            description: DescriptionId(index as u32),
            close_on_exec: index % 2 == 1,
        })
        .collect();
    let process = Process {
        pid: 7,
        threads: vec![Thread {
            tid: 7,
            xstate: vec![0; Xstate::LEAST],
            ..Thread::default()
        }],
        descriptors,
        cwd: KernelPath(b"/".to_vec()),
        ..Process::default()
    };
    SnapshotV1 {
        descriptions,
        processes: vec![process],
        ..SnapshotV1::default()
    }
}

fn every_record(ops: &Operations) -> Vec<(u64, AnyOp, Vec<u8>)> {
    let bytes = ops.bytes().expect("reads");
    let list = OpsList::read(&bytes).expect("the planner writes sound lists");
    let mut all = vec![];
    for index in 0..list.header().streams {
        let entry = list.stream(index).expect("stream");
        for record in list.records(&entry) {
            let record = record.expect("record");
            all.push((index, record.op, record.tail.to_vec()));
        }
    }
    all
}

/// Slots that hold a descriptor after this operation.
fn fills(op: &AnyOp) -> Vec<u64> {
    match op {
        AnyOp::Call(call) if call.expect == Expect::Slot as u64 => vec![call.value],
        AnyOp::Call(call) if call.nr == libc::SYS_dup3 as u64 => vec![call.a1],
        AnyOp::Inode(inode) => vec![inode.slot],
        AnyOp::Open(open) => vec![open.slot],
        AnyOp::Inherit(inherit) => vec![inherit.slot],
        AnyOp::Device(device) => vec![device.slot],
        AnyOp::Feed(feed) => vec![feed.slot],
        AnyOp::Pipe(pipe) => vec![pipe.read_slot, pipe.write_slot],
        AnyOp::SocketPair(pair) => vec![pair.first_slot, pair.second_slot],
        _ => vec![],
    }
}

/// Every `dup3` into a descriptor of the job finds its slot filled.
fn assert_descriptors_have_sources(snapshot: &SnapshotV1) {
    let ops = operations(snapshot, &vec![]).expect("planned");
    let mut filled = BTreeSet::new();
    let mut installed = 0;
    for (_, op, _) in every_record(&ops) {
        if let AnyOp::Call(call) = op
            && call.nr == libc::SYS_dup3 as u64
            && call.expect == Expect::Exactly as u64
        {
            assert!(filled.contains(&call.a0), "slot {} is empty", call.a0);
            installed += 1;
        }
        filled.extend(fills(&op));
    }
    assert_eq!(installed, snapshot.processes[0].descriptors.len());
}

fn any_kind() -> impl Strategy<Value = (DescriptionKind, i32)> {
    prop_oneof![
        Just((
            DescriptionKind::EventFd {
                count: 3,
                semaphore: true
            },
            libc::O_RDWR
        )),
        Just((DescriptionKind::SignalFd { mask: 4 }, libc::O_RDWR)),
        Just((DescriptionKind::Epoll { entries: vec![] }, libc::O_RDWR)),
        Just((DescriptionKind::Inotify { watches: vec![] }, libc::O_RDONLY)),
        Just((DescriptionKind::PidFd { pid: 7 }, libc::O_RDWR)),
        Just((DescriptionKind::Inode(InodeId(0)), libc::O_RDONLY)),
        Just((DescriptionKind::Inode(InodeId(1)), libc::O_RDWR)),
        Just((DescriptionKind::Inode(InodeId(2)), libc::O_RDWR)),
        Just((DescriptionKind::Inode(InodeId(3)), libc::O_RDWR)),
        Just((DescriptionKind::Pipe(PipeId(0)), libc::O_RDONLY)),
        Just((DescriptionKind::Pipe(PipeId(0)), libc::O_WRONLY)),
        Just((DescriptionKind::Pipe(PipeId(1)), libc::O_WRONLY)),
        Just((DescriptionKind::Socket(SocketId(0)), libc::O_RDWR)),
        Just((DescriptionKind::Socket(SocketId(1)), libc::O_RDWR)),
        Just((DescriptionKind::Socket(SocketId(2)), libc::O_RDWR)),
    ]
}

fn socket(peer: Option<u32>) -> SocketRecord {
    SocketRecord {
        kind: libc::SOCK_STREAM,
        peer: peer.map(SocketId),
        inbox: vec![SocketMessage {
            bytes: Unread { at: 0, len: 6 },
            descriptions: vec![],
        }],
        shutdown: 0,
        buffers: [212_992, 212_992],
        pass_credentials: false,
        settings: SocketSettings::default(),
    }
}

proptest! {
    #[test]
    fn every_descriptor_is_made_before_it_is_put_in_place(
        kinds in proptest::collection::vec(any_kind(), 0..20),
    ) {
        let mut descriptions: Vec<Description> = vec![];
        for (kind, flags) in kinds {
            // A socket has one description only; it cannot be reopened.
            let twice = descriptions.iter().any(|other| other.kind == kind);
            if !(twice && matches!(kind, DescriptionKind::Socket(_))) {
                descriptions.push(description(kind, flags));
            }
        }
        let mut snapshot = job(descriptions);
        let memfd = InodeKind::MemFd { name: KernelPath(b"m".to_vec()), seals: 0, huge_shift: 0 };
        snapshot.inodes = vec![
            inode(InodeKind::Regular, "/etc/passwd"),
            inode(InodeKind::Deleted, "/tmp/gone"),
            inode(memfd, ""),
            inode(InodeKind::Device, "/dev/null"),
            inode(InodeKind::Unread, ""),
        ];
        let contents = vec![Unread { at: 6, len: 11 }];
        snapshot.pipes = vec![PipeRecord { contents, ..PipeRecord::default() }; 2];
        snapshot.sockets = vec![socket(Some(1)), socket(Some(0)), socket(None)];
        assert_descriptors_have_sources(&snapshot);
    }
}

/// Keys have the numbers they had; what may only be executed gets the kernel's own.
#[test]
fn protection_keys_are_allocated_by_number() {
    let mut snapshot = job(vec![]);
    let mapping = |index: u64, pkey, prot: i32| Mapping {
        start: 0x10_0000 * index,
        end: 0x10_0000 * index + 0x1000,
        prot: prot.cast_unsigned(),
        kind: MappingKind::Anonymous { huge_shift: 0 },
        flags: 0,
        pkey,
        name: KernelPath::default(),
    };
    let memory = &mut snapshot.processes[0].memory;
    memory.mappings = vec![
        mapping(1, 1, libc::PROT_EXEC),
        mapping(2, 2, libc::PROT_READ),
        mapping(3, 3, libc::PROT_READ),
    ];
    // 3 has been freed though a mapping has it.
    memory.protection_keys = 1 << 2;
    let ops = operations(&snapshot, &vec![vec![]]).expect("planned");
    let keys = [
        libc::SYS_pkey_alloc,
        libc::SYS_pkey_free,
        libc::SYS_pkey_mprotect,
        libc::SYS_mmap,
    ];
    let calls: Vec<(i64, u64)> = every_record(&ops)
        .into_iter()
        .filter_map(|(_, op, _)| match op {
            AnyOp::Call(call) if keys.contains(&(call.nr as i64)) => Some(match call.nr as i64 {
                libc::SYS_pkey_alloc => (libc::SYS_pkey_alloc, call.value),
                libc::SYS_pkey_free => (libc::SYS_pkey_free, call.a0),
                libc::SYS_mmap => (libc::SYS_mmap, call.a0),
                number => (number, call.a3),
            }),
            _ => None,
        })
        .collect();
    let [alloc, free, protect, map] = keys;
    let expected = [
        (alloc, 1),
        (alloc, 2),
        (alloc, 3),
        (free, 1),
        (map, 0x10_0000),
        (map, 0x20_0000),
        (map, 0x30_0000),
        (protect, 2),
        (protect, 3),
        (free, 3),
    ];
    assert_eq!(calls, expected);
}

#[test]
fn only_memory_with_contents_is_made_writable() {
    let mut snapshot = job(vec![]);
    let reserve = Mapping {
        start: 0x10_0000_0000,
        end: 0x10_0000_0000 + (16 << 40),
        prot: 0,
        kind: MappingKind::Anonymous { huge_shift: 0 },
        flags: 0,
        pkey: 0,
        name: KernelPath::default(),
    };
    let guard = Mapping {
        start: 0x1_0000,
        end: 0x1_2000,
        ..reserve.clone()
    };
    snapshot.processes[0].memory.mappings = vec![guard, reserve];
    let contents: Contents = vec![[0x1_1000..0x1_2000].to_vec()];
    let ops = operations(&snapshot, &contents).expect("planned");
    let maps: Vec<_> = every_record(&ops)
        .into_iter()
        .filter_map(|(_, op, _)| match op {
            AnyOp::Call(call) if call.nr == libc::SYS_mmap as u64 => Some((call.a0, call.a2)),
            _ => None,
        })
        .collect();
    let read_write = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    assert_eq!(maps, [(0x1_0000, read_write), (0x10_0000_0000, 0)]);
}

#[test]
fn a_sleep_goes_on_with_the_time_that_was_left() {
    let mut snapshot = job(vec![]);
    let thread = &mut snapshot.processes[0].threads[0];
    thread.registers.rdi = 0x1000;
    thread.registers.rsi = 0x2000;
    thread.registers.rax = -516i64 as u64;
    thread.in_call = Some(TimedCall {
        nr: libc::SYS_nanosleep as u64,
        remaining_ns: 5,
    });
    let ops = operations(&snapshot, &vec![]).expect("planned");
    let records = every_record(&ops);
    let call = records.iter().find_map(|(_, op, _)| match op {
        AnyOp::InProgress(call) => Some(*call),
        _ => None,
    });
    let call = call.expect("a call in progress");
    assert_eq!((call.nr, call.a1, call.remaining_ns), (35, 0x2000, 5));
    let Some((_, AnyOp::Registers(registers), _)) = records.last() else {
        panic!("no registers")
    };
    assert_eq!((registers.rax as i64, registers.orig_rax), (-516, 35));
}

/// Limits on threads and queued signals stop nothing that was there before they were set.
#[test]
fn limits_come_after_what_they_could_forbid() {
    let mut snapshot = job(vec![]);
    let process = &mut snapshot.processes[0];
    process.rlimits = [(0, 0); 16].to_vec();
    process.pending = vec![vec![10; 128]];
    process.threads[0].pending = vec![vec![10; 128]];
    process.threads.push(Thread {
        tid: 8,
        xstate: vec![0; Xstate::LEAST],
        ..Thread::default()
    });
    let ops = operations(&snapshot, &vec![]).expect("planned");
    let (mut limits, mut streams) = (0, BTreeSet::new());
    for (stream, op, _) in every_record(&ops) {
        let limited = limits > 0 && streams.contains(&stream);
        match op {
            AnyOp::Call(call) if call.nr == libc::SYS_prlimit64 as u64 => {
                limits += 1;
                streams.insert(stream);
            }
            AnyOp::SpawnThreads(_) | AnyOp::TimerCreate(_) => assert_eq!(limits, 0),
            AnyOp::Call(call) => {
                let queues = [libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo];
                let queues = queues.contains(&(call.nr as i64));
                assert!(!(limited && queues), "queued under the limit");
            }
            _ => {}
        }
    }
    // Once, in the first thread's stream, the last to be carried out.
    assert_eq!((limits, streams), (16, BTreeSet::from([2])));
}

/// What a thread has kept that another has dropped is dropped by that one, all else once.
#[test]
fn bounding_sets_are_dropped_from_once_where_all_threads_have_the_same() {
    let mut snapshot = job(vec![]);
    let threads = &mut snapshot.processes[0].threads;
    threads[0].capabilities.bounding = (1 << 41) - 1;
    let mut other = threads[0].clone();
    other.tid = 8;
    threads.push(other.clone());
    other.tid = 9;
    other.capabilities.bounding &= !(1 << 21);
    threads.push(other);
    let ops = operations(&snapshot, &vec![]).expect("planned");
    let mut dropped: Vec<(u64, Vec<u64>)> = vec![];
    let mut alone = true;
    for (stream, op, _) in every_record(&ops) {
        match op {
            AnyOp::SpawnThreads(_) => alone = false,
            AnyOp::Call(call)
                if call.nr == libc::SYS_prctl as u64 && call.a0 == libc::PR_CAPBSET_DROP as u64 =>
            {
                assert_eq!(alone, stream == 1);
                match dropped.last_mut().filter(|(last, _)| *last == stream) {
                    Some((_, all)) => all.push(call.a1),
                    None => dropped.push((stream, vec![call.a1])),
                }
            }
            _ => {}
        }
    }
    assert_eq!(dropped, [(1, (41..64).collect()), (4, vec![21])]);
}

/// A pipe with more in it than a machine may give it room for: the write must not wait.
#[test]
fn what_was_unread_in_a_pipe_is_written_without_waiting() {
    let mut snapshot = job(vec![
        description(DescriptionKind::Pipe(PipeId(0)), libc::O_RDONLY),
        description(DescriptionKind::Pipe(PipeId(0)), libc::O_WRONLY),
    ]);
    let part = Unread {
        at: 100,
        len: 40_000,
    };
    snapshot.pipes = vec![PipeRecord {
        contents: vec![part],
        capacity: 65_536,
        ..PipeRecord::default()
    }];
    let missing = operations(&snapshot, &vec![]).expect_err("they are nowhere");
    assert!(matches!(missing, PlanError::Unread { len: 40_000 }));
    snapshot.inodes = vec![inode(InodeKind::Unread, "")];
    let ops = operations(&snapshot, &vec![]).expect("planned");
    let (mut waits, mut flags, mut made) = (true, None, None);
    let mut refilled = vec![];
    for (stream, op, tail) in every_record(&ops) {
        match op {
            _ if stream != 0 => {}
            AnyOp::Call(call)
                if call.nr == libc::SYS_fcntl as u64 && call.a1 == libc::F_SETFL as u64 =>
            {
                waits = call.a2 & libc::O_NONBLOCK as u64 == 0;
                flags = Some(call.a2);
            }
            AnyOp::FillInode(fill) => made = Some(fill.slot),
            AnyOp::Refill(op) => {
                assert!(!waits, "would wait for a reader");
                let label = b"pipe 0 (40000 bytes unread, capacity 65536)\0";
                assert!(tail.starts_with(label));
                assert!(tail.len() < label.len() + 8, "not the bytes themselves");
                assert_eq!(Some(op.from), made, "filled before");
                refilled.push((op.at, op.len));
            }
            _ => {}
        }
    }
    assert_eq!(refilled, [(100, 40_000)]);
    // The job's own flags come back.
    assert_eq!(flags, Some(0));
}
