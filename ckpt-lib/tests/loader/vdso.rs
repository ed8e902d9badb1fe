//! The vDSO at its old place, or behind its old entry points.

use crate::images::{CODE, PID, STACK, Tiny, execute, map};
use crate::restore::Code;
use ckpt_lib::plan::{OpsBuilder, StreamIndex};
use ckpt_lib::vdso::VdsoImage;
use loader::ops::{Fill, OpsHeader, StreamKind, UnmapAll, Vdso, VdsoPiece, VdsoSymbol};
use std::ops::Range;

/// Where the job of these tests had its vDSO.
const PLACE: u64 = 0x7000_0000_0000;
const REFUGE: u64 = 0x6000_0000_0000;

/// This machine's pieces: kind and range, in order of address.
fn pieces() -> Vec<(u64, Range<u64>)> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let piece = |line: &str| {
        let kind = match line.split_whitespace().nth(5)? {
            "[vvar]" => 1,
            "[vvar_vclock]" => 2,
            "[vdso]" => 3,
            _ => return None,
        };
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).expect("address");
        Some((kind, number(start)..number(end)))
    };
    maps.lines().filter_map(piece).collect()
}

fn first_word(hash: &[u8; 32]) -> u64 {
    u64::from_le_bytes(hash[..8].try_into().expect("8"))
}

/// A program that calls `clock_gettime` of its vDSO; `first` is what the function's first two
/// bytes must be.
fn caller(fingerprint_differs: bool, with_symbols: bool, is_jump: bool) -> Tiny {
    let own = ckpt_lib::vdso::own().expect("vdso");
    let record = own.record().expect("record");
    let moved = |address: u64| address.wrapping_sub(own.start).wrapping_add(PLACE);
    let function = record
        .symbols
        .iter()
        .find(|symbol| symbol.name == "__vdso_clock_gettime")
        .expect("clock_gettime");
    let address = moved(function.address).to_le_bytes();
    let branch = if is_jump { 0x74 } else { 0x75 };
    let leave = Code::default().exit(4).0;
    let code = Code::default()
        .mov(7, 1)
        .mov(6, STACK as u32)
        .bytes(&[0x48, 0xb8])
        .bytes(&address) // mov rax, function
        .bytes(&[0x66, 0x81, 0x38, 0x48, 0xb8]) // cmp word [rax], movabs rax
        .bytes(&[branch, leave.len() as u8])
        .bytes(&leave)
        .bytes(&[0xff, 0xd0, 0x85, 0xc0]) // call rax; test eax, eax
        .or_exit(3)
        .bytes(&[0x83, 0x3c, 0x25])
        .bytes(&(STACK as u32).to_le_bytes())
        .bytes(&[0, 0x75, leave.len() as u8]) // cmp dword [STACK], 0: seconds were written
        .bytes(&leave)
        .exit(5);
    let header = OpsHeader {
        slot_base: 200,
        uid: 1000,
        gid: 1000,
        ..OpsHeader::default()
    };
    let mut ops = OpsBuilder::new(header);
    let process = ops.stream(StreamKind::Process, PID, StreamIndex(0));
    ops.push(process, &UnmapAll::default(), &[]);
    let pieces = pieces();
    let symbols = if with_symbols {
        record.symbols.as_slice()
    } else {
        &[]
    };
    let op = Vdso {
        pieces: pieces.len() as u64,
        symbols: symbols.len() as u64,
        fingerprint: first_word(&record.hash) ^ u64::from(fingerprint_differs),
        refuge: REFUGE,
    };
    let mut tail = vec![];
    for (kind, range) in &pieces {
        let piece = VdsoPiece {
            kind: *kind,
            start: moved(range.start),
            len: range.end - range.start,
        };
        piece.encode(|bytes| tail.extend(bytes));
    }
    for symbol in symbols {
        let symbol = VdsoSymbol {
            address: moved(symbol.address),
            len: symbol.len,
            name_hash: first_word(blake3::hash(symbol.name.as_bytes()).as_bytes()),
        };
        symbol.encode(|bytes| tail.extend(bytes));
    }
    ops.push(process, &op, &tail);
    map(&mut ops, process, CODE, 4096, 7);
    map(&mut ops, process, STACK, 8192, 3);
    ops.push(process, &Fill { process: 0 }, &[]);
    let mut page = code.0;
    page.resize(4096, 0xcc);
    let VdsoImage { bytes, .. } = own;
    let mut tiny = Tiny {
        ops,
        process,
        contents: vec![(CODE, page), (PLACE, bytes)],
        unread: vec![],
    };
    tiny.thread(PID, CODE, STACK + 8192);
    tiny
}

#[test]
fn the_same_vdso_is_moved_to_its_old_place() {
    let image = caller(false, true, false).image();
    for pids in ["namespace", "host"] {
        let ended = execute(&image, &["--pids", pids, "--accept-new-ids"]);
        assert_eq!(
            ended.code(),
            Some(5),
            "{:?} {}",
            ended.signal(),
            ended.stderr
        );
    }
}

#[test]
fn the_entry_points_of_a_foreign_vdso_lead_to_ours() {
    let ended = execute(&caller(true, true, true).image(), &[]);
    assert_eq!(
        ended.code(),
        Some(5),
        "{:?} {}",
        ended.signal(),
        ended.stderr
    );
}

#[test]
fn old_code_that_somebody_is_inside_of_still_works() {
    // No entry point is known, so the old code itself runs, on zero pages for data.
    let ended = execute(&caller(true, false, false).image(), &[]);
    assert_eq!(
        ended.code(),
        Some(5),
        "{:?} {}",
        ended.signal(),
        ended.stderr
    );
}
