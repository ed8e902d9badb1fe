//! Tails that fit, are cut short, and say what cannot be.

use super::*;
use crate::ops::{
    Device, Feed, MmMap, OPS_MAGIC, Operation, OpsHeader, OpsList, Pipe, Refill, Registers,
    StreamEntry, Terminal,
};
use proptest::prelude::*;

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// What is said about a list of one such operation, if anything.
fn said<O: Operation>(op: &O, tail: &[u8]) -> Option<&'static str> {
    let mut record = words(&[O::KIND, 0]);
    op.put_fields(&mut |field| record.extend(field));
    record.extend(tail);
    record.resize(record.len().next_multiple_of(8), 0);
    let len = record.len() as u64;
    record[8..16].copy_from_slice(&len.to_le_bytes());
    let mut bytes = vec![];
    let header = OpsHeader {
        magic: OPS_MAGIC,
        streams: 1,
        ..OpsHeader::default()
    };
    header.encode(|field| bytes.extend(field));
    let entry = StreamEntry {
        kind: 1,
        offset: (OpsHeader::BYTES + StreamEntry::BYTES) as u64,
        len,
        ..StreamEntry::default()
    };
    entry.encode(|field| bytes.extend(field));
    bytes.extend(record);
    let read = OpsList::read(&bytes);
    read.err().map(|error| {
        assert_eq!(error.offset, entry.offset, "{}", error.what);
        error.what
    })
}

fn call() -> Call {
    Call {
        expect: Expect::Success as u64,
        ..Call::default()
    }
}

#[test]
fn a_call_has_a_label_and_points_into_its_data() {
    let with = |pointers, a1| Call {
        pointers,
        a1,
        ..call()
    };
    let tail = b"label\0\0\0data";
    assert_eq!(said(&with(2, 0), tail), None);
    // Padded with zeros to 8.
    assert_eq!(said(&with(2, 7), tail), None);
    let outside = Some("an argument of a call points outside its record");
    assert_eq!(said(&with(2, 8), tail), outside);
    assert_eq!(said(&with(2, u64::MAX), tail), outside);
    assert_eq!(said(&with(2, 0), b"label"), outside);
    assert_eq!(said(&with(0, 8), tail), None);
    assert_eq!(said(&with(0, 0), b""), Some("a call without label"));
    assert_eq!(said(&with(0, 0), b"no end.."), Some("a call without label"));
    for expect in [0, 7, u64::MAX] {
        let op = Call { expect, ..call() };
        assert!(said(&op, tail).is_some_and(|said| said.contains("expected")));
    }
    let read = CallTail::read(&with(2, 2), tail).expect("fits");
    assert_eq!(read.label, c"label");
    assert_eq!(read.pointed(2), Some(&b"ta"[..]));
}

#[test]
fn an_owner_of_a_descriptor_is_whole() {
    let op = |a2| Call {
        nr: FCNTL,
        a1: F_SETOWN_EX,
        a2,
        pointers: 4,
        ..call()
    };
    let tail = [&b"owner\0\0\0"[..], &words(&[7 << 32 | 1])].concat();
    let read = CallTail::read(&op(0), &tail).expect("fits");
    assert_eq!(read.owner(&op(0)), Some([1, 7]));
    assert_eq!(said(&op(1), &tail), Some("an owner cut short"));
    let other = Call { a1: 1, ..op(1) };
    assert_eq!(said(&other, &tail), None);
    let read = CallTail::read(&other, &tail).expect("fits");
    assert_eq!(read.owner(&other), None);
}

#[test]
fn paths_end() {
    let device = Device::default();
    assert_eq!(said(&device, b"/dev/null\0"), None);
    for tail in [&b""[..], b"/dev/zer"] {
        assert_eq!(said(&device, tail), Some("a string without an end"));
    }
}

#[test]
fn an_inode_has_a_checksum_and_a_path() {
    let tail = [&[5; 32][..], b"/file\0"].concat();
    let op = Inode::default();
    let read = InodeTail::read(&op, &tail).expect("fits");
    assert_eq!((read.hash, read.path), (&[5; 32], c"/file"));
    assert_eq!(
        said(&op, &tail[..24]),
        Some("Inode does not fit its record")
    );
    assert_eq!(said(&op, &tail[..32]), Some("a string without an end"));
    let check = Inode { check: 6, ..op };
    assert!(said(&check, &tail).is_some());
    let number = Inode {
        inode: 1 << 32,
        ..op
    };
    assert_eq!(
        said(&number, &tail),
        Some("an inode of an impossible number")
    );
}

#[test]
fn a_message_has_its_slots_and_a_name() {
    let op = Send {
        fds: 2,
        ..Send::default()
    };
    let tail = [&words(&[9, u64::MAX])[..], b"a socket\0"].concat();
    let read = SendTail::read(&op, &tail).expect("fits");
    assert_eq!(read.slots().collect::<Vec<_>>(), [9, u64::MAX]);
    assert_eq!(read.socket, c"a socket");
    for len in 0..tail.len() {
        assert!(SendTail::read(&op, &tail[..len]).is_err(), "{len}");
    }
    for op in [Send { fds: 254, ..op }, Send { fds: 1 << 61, ..op }] {
        assert!(SendTail::read(&op, &[0; 4096]).is_err(), "{op:?}");
    }
}

#[test]
fn a_program_has_all_its_strings_and_limits() {
    let op = Exec {
        args: 2,
        envs: 1,
        limits: 1,
    };
    let tail = [&words(&[7, 1024, u64::MAX])[..], b"/bin/it\0it\0\0A=b\0"].concat();
    let read = ExecTail::read(&op, &tail).expect("fits");
    assert_eq!(read.path, c"/bin/it");
    assert_eq!(read.args().collect::<Vec<_>>(), [c"it", c""]);
    assert_eq!(read.envs().collect::<Vec<_>>(), [c"A=b"]);
    assert_eq!(read.limits().collect::<Vec<_>>(), [[7, 1024, u64::MAX]]);
    for len in 0..tail.len() {
        assert!(ExecTail::read(&op, &tail[..len]).is_err(), "{len}");
    }
    for op in [
        Exec { args: 3, ..op },
        Exec {
            args: u64::MAX,
            ..op
        },
        Exec {
            limits: u64::MAX / 24 + 1,
            ..op
        },
    ] {
        assert!(ExecTail::read(&op, &tail).is_err(), "{op:?}");
    }
}

/// Kind, start and length of each.
fn vdso(pieces: &[[u64; 3]], symbols: &[[u64; 3]]) -> (Vdso, Vec<u8>) {
    let op = Vdso {
        pieces: pieces.len() as u64,
        symbols: symbols.len() as u64,
        ..Vdso::default()
    };
    (op, words(&[pieces, symbols].concat().concat()))
}

#[test]
fn an_old_vdso_is_one_piece_with_its_text_last() {
    const PAGE: u64 = 4096;
    let place = |pieces: &[[u64; 3]], longest| {
        let (op, tail) = vdso(pieces, &[]);
        VdsoTail::read(&op, &tail).expect("fits").place(longest)
    };
    let text = [3, 8 * PAGE, 2 * PAGE];
    let whole = [[1, 4 * PAGE, 3 * PAGE], [2, 7 * PAGE, PAGE], text];
    let expected = OldPlace {
        data: 4 * PAGE..8 * PAGE,
        text: 8 * PAGE..10 * PAGE,
    };
    assert_eq!(place(&whole, 4 * PAGE), Some(expected));
    assert_eq!(place(&whole, 4 * PAGE - 1), None);
    assert_eq!(
        place(&[text], 2 * PAGE).map(|old| old.text),
        Some(8 * PAGE..10 * PAGE)
    );
    assert_eq!(place(&[text], 2 * PAGE - 1), None);
    // A gap, one above the text, and no text.
    assert_eq!(place(&[whole[0], text], 4 * PAGE), None);
    assert_eq!(
        place(&[whole[0], whole[1], text, [2, 10 * PAGE, PAGE]], 8 * PAGE),
        None
    );
    assert_eq!(place(&whole[..2], 8 * PAGE), None);
    let (op, tail) = vdso(&[[3, u64::MAX, 1]], &[]);
    assert_eq!(
        said(&op, &tail),
        Some("a piece of the vDSO that has no end")
    );
}

#[test]
fn a_vdso_has_its_functions() {
    let (op, tail) = vdso(&[[3, 4096, 4096]], &[[4096, 16, 1], [5000, 100, 2]]);
    let read = VdsoTail::read(&op, &tail).expect("fits");
    let found: Vec<_> = read.symbols.iter().map(|symbol| symbol.name_hash).collect();
    assert_eq!(found, [1, 2]);
    let again = Symbols::of(read.symbols.bytes());
    for (address, inside) in [
        (4096, false),
        (4097, true),
        (4111, true),
        (4112, false),
        (5099, true),
        (5100, false),
        (0, false),
    ] {
        assert_eq!(again.has_inside(address), inside, "{address}");
    }
    for len in 0..tail.len() {
        assert!(VdsoTail::read(&op, &tail[..len]).is_err(), "{len}");
    }
    for op in [
        Vdso {
            pieces: u64::MAX / 16,
            ..op
        },
        Vdso { symbols: 3, ..op },
    ] {
        assert_eq!(said(&op, &tail), Some("Vdso does not fit its record"));
    }
}

#[test]
fn a_timer_tells_a_thread() {
    let mut tail = [0u8; SIGEVENT_LEN];
    let op = TimerCreate::default();
    tail[16] = 77;
    let thread = |tail: &[u8]| SigEvent::read(&op, tail).expect("fits").thread();
    assert_eq!(thread(&tail), None);
    tail[12] = 4;
    assert_eq!(thread(&tail), Some(77));
    assert_eq!(
        said(&op, &tail[..56]),
        Some("TimerCreate does not fit its record")
    );
}

#[test]
fn what_is_read_outright_is_whole() {
    assert_eq!(said(&Refill::default(), b"pipe 3\0"), None);
    assert!(said(&Refill::default(), b"pipe 345").is_some());
    assert!(said(&Feed::default(), b"something").is_some());
    let terminal = Terminal::default();
    assert_eq!(said(&terminal, &[0; TERMIOS_LEN]), None);
    assert_eq!(
        said(&terminal, &[0; 40]),
        Some("Terminal does not fit its record")
    );
    let enforce = Enforce { pkru_at: 2688 };
    assert_eq!(said(&enforce, &[0; HANDLER_LEN]), None);
    assert!(said(&enforce, &[0; HANDLER_LEN - 8]).is_some());
    let outside = Enforce { pkru_at: u64::MAX };
    assert!(said(&outside, &[0; HANDLER_LEN]).is_some());
    let registers_op = Registers::default();
    assert_eq!(said(&registers_op, &[0; Xstate::LEAST]), None);
    assert_eq!(
        said(&registers_op, &[0; Xstate::LEAST - 8]),
        Some("registers cut short")
    );
    assert_eq!(said(&MmMap::default(), &[1; 40]), None);
    assert_eq!(auxiliary_vector(&[1; 40]).len(), 32);
    assert_eq!(said(&Pipe::default(), b""), None);
    assert!(said(&Pipe::default(), b"something").is_some());
    for timeout_in in 0..4 {
        let op = InProgress {
            timeout_in,
            ..InProgress::default()
        };
        assert_eq!(said(&op, b"").is_some(), timeout_in > 2);
    }
}

proptest! {
    /// Numbers and bytes of all kinds: what is given lies in the tail, and there is as much of it as was asked for.
    #[test]
    fn nothing_is_read_from_elsewhere(
        numbers in prop::array::uniform4(prop_oneof![0u64..9, any::<u64>()]),
        tail in prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..200),
    ) {
        let [a, b, c, d] = numbers;
        let inside = |part: &[u8]| part.is_empty() || tail.as_ptr_range().start <= part.as_ptr() && part.as_ptr_range().end <= tail.as_ptr_range().end;
        let op = Call { nr: FCNTL, a0: a, a1: F_SETOWN_EX, a2: b, pointers: c, expect: d % 7, ..call() };
        if let Ok(read) = CallTail::read(&op, &tail) {
            prop_assert!(inside(read.label.to_bytes_with_nul()));
            prop_assert!(inside(read.pointed(b).unwrap_or(&[])));
            prop_assert_eq!(read.owner(&op).is_some(), c & 4 != 0);
        }
        let op = Send { fds: a, ..Send::default() };
        if let Ok(read) = SendTail::read(&op, &tail) {
            prop_assert!(inside(read.socket.to_bytes_with_nul()));
            prop_assert_eq!(read.slots().count() as u64, a);
        }
        let op = Exec { args: a, envs: b, limits: c };
        if let Ok(read) = ExecTail::read(&op, &tail) {
            let found = [read.args().count(), read.envs().count(), read.limits().count()];
            prop_assert_eq!(found.map(|count| count as u64), [a, b, c]);
            prop_assert!(read.envs().chain(read.args()).all(|string| inside(string.to_bytes_with_nul())));
        }
        let op = Vdso { pieces: a, symbols: b, ..Vdso::default() };
        if let Ok(read) = VdsoTail::read(&op, &tail) {
            prop_assert_eq!([read.pieces().count() as u64, read.symbols.iter().count() as u64], [a, b]);
            if let Some(place) = read.place(d) {
                prop_assert!(place.data.end == place.text.start && place.text.end - place.text.start <= d);
            }
            let _ = read.symbols.has_inside(c);
        }
    }
}
