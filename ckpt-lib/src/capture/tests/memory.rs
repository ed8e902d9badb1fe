//! What is recorded of memory.

use super::super::*;
use super::guest::Guest;
use super::{look_and_refuse, look_at, look_with};
use crate::snapshot::{InodeKind, mapping_flags};

fn mapping(seen: &Look, address: i64) -> &Mapping {
    let address = address.cast_unsigned();
    let mappings = &seen.spaces[0].0;
    let found = mappings
        .iter()
        .find(|mapping| mapping.start <= address && address < mapping.end);
    found.expect("mapped")
}

#[test]
fn mappings_are_recorded_with_kind_and_flags() {
    let guest = Guest::start(
        "def m(prot, flags, fd=-1, size=8192): a = call(libc.mmap(None, size, prot, flags, fd, 0)); say(a); return a\n\
         def advise(how): a = m(3, 34); call(libc.madvise(a, 8192, how)); m(0, 34, size=4096)\n\
         m(3, 0x21); f = os.memfd_create('x'); os.ftruncate(f, 8192); m(3, 1, f); os.close(f)\n\
         advise(10); advise(18); advise(16); m(0, 0x4022, size=1 << 40)\n\
         e = os.open('/etc/passwd', os.O_RDONLY); m(1, 2, e, 4096); m(1, 1, e, 4096)\n\
         z = os.open('/dev/zero', os.O_RDWR); m(3, 2, z)\n\
         a = m(3, 34); libc.prctl(0x53564d41, 0, ctypes.c_ulong(a), ctypes.c_ulong(8192), b'named')\n",
    );
    let seen = look_at(&guest);
    let found = |index| mapping(&seen, guest.number(index));
    let shared = |index| match found(index).kind {
        MappingKind::Shared { inode, .. } => seen.inodes.get(inode).record.kind.clone(),
        ref other => panic!("{other:?}"),
    };
    assert_eq!(shared(0), InodeKind::SharedAnonymous);
    assert!(matches!(shared(1), InodeKind::MemFd { .. }));
    assert!(found(2).has(mapping_flags::DONTFORK));
    assert!(found(4).has(mapping_flags::WIPEONFORK));
    assert!(found(6).has(mapping_flags::DONTDUMP));
    assert!(found(8).has(mapping_flags::NORESERVE));
    assert_eq!((found(8).prot, found(8).len() >> 40), (0, 1));
    assert!(matches!(found(9).kind, MappingKind::PrivateFile { .. }));
    let MappingKind::Shared {
        inode, may_write, ..
    } = found(10).kind
    else {
        panic!()
    };
    assert!(!may_write);
    assert_eq!(
        seen.inodes.get(inode).record.path.to_string(),
        "/etc/passwd"
    );
    assert!(!seen.inodes.get(inode).record.written);
    let anonymous = MappingKind::Anonymous { huge_shift: 0 };
    assert_eq!((found(11).kind, found(12).kind), (anonymous, anonymous));
    if !found(12).name.0.is_empty() {
        assert_eq!(found(12).name.0, b"named");
    }
    let plan = &seen.spaces[0].1;
    let planned = |index: usize| {
        let address = guest.number(index).cast_unsigned();
        plan.iter().find(|range| range.addresses.contains(&address))
    };
    assert_eq!(
        planned(0),
        None,
        "contents of shared memory belong to its inode"
    );
    assert!(planned(2).expect("planned").while_frozen);
    assert!(planned(4).expect("planned").while_frozen);
    assert!(!planned(6).expect("planned").while_frozen);
    assert!(planned(9).expect("planned").only_changed);
    let sum: u64 = seen.spaces[0].0.iter().map(Mapping::len).sum();
    assert!(sum > 1 << 40);
}

#[test]
fn the_program_and_its_libraries_are_carried() {
    let guest = Guest::start("");
    let seen = look_at(&guest);
    let exe = seen.processes[0].memory.exe.expect("a program");
    let libc_of = |look: &Look| {
        let found = look.inodes.drafts.iter();
        found
            .into_iter()
            .position(|draft| draft.record.path.0.ends_with(b"/libc.so.6"))
    };
    let library = libc_of(&seen).expect("its libc");
    let (records, sources, tasks) = seen.inodes.finish(&CaptureOptions::default());
    for index in [exe.0 as usize, library] {
        assert!(records[index].carried, "{:?}", records[index]);
        assert!(
            sources
                .iter()
                .any(|(id, source)| id.0 as usize == index && !source.while_frozen)
        );
        assert!(tasks.iter().any(|task| task.inode.0 as usize == index));
    }
    let options = CaptureOptions {
        carry_max: 1000,
        ..CaptureOptions::default()
    };
    let seen = look_with(&guest, &options);
    let library = libc_of(&seen).expect("its libc");
    assert!(!seen.inodes.finish(&options).0[library].carried);
}

#[test]
fn flags_read_before_are_kept_while_stopped() {
    let guest = Guest::start(
        "a = call(libc.mmap(None, 8192, 3, 34, -1, 0)); call(libc.madvise(a, 8192, 10)); say(a)\n",
    );
    let options = CaptureOptions::default();
    let mut early = refuse_early(&[guest.host_pid()], &options).expect("not refused");
    let mut refusals = Refusals::default();
    let skip = [vec![]];
    let seen = look(
        &[guest.host_pid()],
        &options,
        Some(&skip),
        &mut early,
        &mut refusals,
    );
    let seen = seen.expect("looks");
    assert!(seen.asked[0].from_before);
    assert!(mapping(&seen, guest.number(0)).has(mapping_flags::DONTFORK));
}

#[test]
fn addresses_of_the_workshop_are_left_out() {
    let guest = Guest::start("a = call(libc.mmap(None, 12288, 3, 34, -1, 0)); say(a)\n");
    let address = guest.number(0).cast_unsigned();
    let mut early = EarlyView::default();
    let mut refusals = Refusals::default();
    let skip = [vec![address + 4096..address + 8192]];
    let options = CaptureOptions::default();
    let seen = look(
        &[guest.host_pid()],
        &options,
        Some(&skip),
        &mut early,
        &mut refusals,
    );
    let seen = seen.expect("looks");
    let mappings = &seen.spaces[0].0;
    assert!(
        !mappings
            .iter()
            .any(|mapping| mapping.start <= address + 4096 && address + 4096 < mapping.end)
    );
    assert!(
        mappings
            .iter()
            .any(|mapping| mapping.start == address + 8192)
    );
    let _ = look_and_refuse(&guest, &options, &mut refusals);
}

#[test]
fn memory_locked_for_the_future_is_known_by_our_own_mappings() {
    let guest = Guest::start(
        "a = call(libc.mmap(None, 4096, 3, 34, -1, 0)); call(libc.mlockall(2))\n\
         b = call(libc.mmap(None, 4096, 3, 34, -1, 0)); say(a); say(b)\n",
    );
    let options = CaptureOptions::default();
    let mut early = refuse_early(&[guest.host_pid()], &options).expect("not refused");
    let mut refusals = Refusals::default();
    let ours = guest.number(1).cast_unsigned();
    let skip = [vec![ours..ours + 4096]];
    let seen = look(
        &[guest.host_pid()],
        &options,
        Some(&skip),
        &mut early,
        &mut refusals,
    );
    let seen = seen.expect("looks");
    assert_eq!(
        seen.processes[0].memory.lock_future,
        libc::MCL_FUTURE as u32
    );
    assert!(!mapping(&seen, guest.number(0)).has(mapping_flags::LOCKED));
}

#[test]
fn droppable_memory_is_carried_without_contents() {
    let body = "a = libc.mmap(None, 8192, 3, 0x28, -1, 0)\nif a == 2**64 - 1: say('skip: no MAP_DROPPABLE')\nsay(a)\n";
    let Some(guest) = Guest::try_start(body) else {
        return;
    };
    let seen = look_at(&guest);
    let found = mapping(&seen, guest.number(0));
    assert!(found.has(mapping_flags::DROPPABLE));
    let start = found.start;
    assert!(
        !seen.spaces[0]
            .1
            .iter()
            .any(|range| range.addresses.contains(&start))
    );
}
