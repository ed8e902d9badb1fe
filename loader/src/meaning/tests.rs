//! Lists and tables that do not go together.

use super::*;
use crate::layout::{Chunk, Encoding, Extent, ExtentsHeader, PAGE, SECTION_COUNT, Section};
use crate::ops::{Call, Expect, Fill, OPS_MAGIC, Operation, OpsHeader, Vdso, VdsoPiece};
use core::convert::Infallible;
use proptest::prelude::*;

const HOLE: u64 = 0x10_0000_0000;

fn record<O: Operation>(op: &O, tail: &[u8]) -> Vec<u8> {
    let mut fields = vec![];
    op.put_fields(&mut |field| fields.extend(field));
    let len = (16 + fields.len() + tail.len()) as u64;
    [
        &O::KIND.to_le_bytes(),
        &len.to_le_bytes(),
        &fields[..],
        tail,
    ]
    .concat()
}

fn map(at: u64, len: u64) -> Vec<u8> {
    let call = Call {
        nr: SYS_MMAP,
        a0: at,
        a1: len,
        a3: MAP_FIXED,
        expect: Expect::Success as u64,
        ..Call::default()
    };
    record(&call, b"mapping\0")
}

/// A Prepare stream, and one of a process with these records.
fn ops(streams: u64, records: &[Vec<u8>]) -> Vec<u8> {
    let header = OpsHeader {
        magic: OPS_MAGIC,
        streams,
        ..OpsHeader::default()
    };
    let records = records.concat();
    let mut bytes = vec![];
    header.encode(|field| bytes.extend(field));
    let offset = (OpsHeader::BYTES + streams as usize * StreamEntry::BYTES) as u64;
    for index in 0..streams {
        let entry = StreamEntry {
            kind: index + 1,
            id: 7,
            parent: 0,
            offset,
            len: if index == 1 { records.len() as u64 } else { 0 },
        };
        entry.encode(|field| bytes.extend(field));
    }
    if streams > 1 {
        bytes.extend(records);
    }
    bytes
}

fn tables(contents: &[(Space, u64, u64)]) -> Vec<u8> {
    let head = ExtentsHeader {
        extents: contents.len() as u64,
        chunks: contents.len() as u64,
        bases: 0,
    };
    let mut bytes = head.encode().to_vec();
    for (number, (space, at, len)) in contents.iter().enumerate() {
        let extent = Extent {
            space: space.number(),
            at: *at,
            len: *len,
            image: 0,
            encoding: Encoding::Raw as u32,
            first_chunk: number as u64,
        };
        bytes.extend(extent.encode());
    }
    let mut offset = 3 * PAGE;
    for (_, _, len) in contents {
        let chunk = Chunk {
            offset,
            stored_len: *len as u32,
            raw_len: *len as u32,
            hash: [0; 32],
        };
        bytes.extend(chunk.encode());
        offset += len;
    }
    bytes
}

fn header(pages: u64) -> Header {
    let mut sections = [Section::default(); SECTION_COUNT];
    sections[SectionKind::Pages as usize - 1] = Section {
        kind: SectionKind::Pages as u32,
        offset: 3 * PAGE,
        len: pages,
        used: pages,
        hash: [0; 32],
    };
    Header {
        version: 1,
        image_len: 0,
        id: [0; 32],
        hole_base: HOLE,
        hole_len: 64 << 20,
        sections,
    }
}

/// What is said about these, if anything.
fn said(records: &[Vec<u8>], contents: &[(Space, u64, u64)]) -> Option<&'static str> {
    let (ops, tables) = (ops(2, records), tables(contents));
    let ops = OpsList::read(&ops).expect("a list");
    let tables = ExtentTables::read(&tables[..]).expect("tables");
    let checked = check(&header(0), PAGE, &ops, &tables);
    checked.err().map(|error| error.wrong().what)
}

#[test]
fn contents_must_lie_in_mappings() {
    let fill = record(&Fill { process: 0 }, &[]);
    let memory = |at, len| (Space::Process(0), at, len);
    let maps = [
        map(0x1000, 0x2000),
        map(0x3000, 0x1000),
        map(0x8000, 0x1000),
    ];
    let records: Vec<_> = maps.into_iter().chain([fill]).collect();
    let with = |contents: &[_]| said(&records, contents);
    // Two mappings that touch; one alone.
    let sound = [memory(0x2000, 0x2000), memory(0x8000, 0x1000)];
    assert_eq!(with(&sound), None);
    let between = Some("contents where nothing is mapped");
    assert_eq!(with(&[memory(0x3000, 0x2000)]), between);
    assert_eq!(with(&[memory(0x5000, 0x1000)]), between);
    let behind = Some("contents behind the last mapping");
    assert_eq!(with(&[memory(0x8000, 0x2000)]), behind);
    let other = Some("contents of a process that no stream fills");
    assert_eq!(with(&[(Space::Process(1), 0x1000, 0x1000)]), other);
    // Files are no memory.
    assert_eq!(with(&[(Space::Inode(9), 0, 0x1000)]), None);
}

#[test]
fn the_old_vdso_has_contents_too() {
    let mut tail = vec![];
    let piece = VdsoPiece {
        kind: VdsoTail::TEXT,
        start: 0x7000,
        len: 0x2000,
    };
    piece.encode(|field| tail.extend(field));
    let vdso = Vdso {
        pieces: 1,
        ..Vdso::default()
    };
    let records = [record(&vdso, &tail), record(&Fill { process: 0 }, &[])];
    assert_eq!(said(&records, &[(Space::Process(0), 0x7000, 0x2000)]), None);
    let beyond = said(&records, &[(Space::Process(0), 0x8000, 0x2000)]);
    assert_eq!(beyond, Some("contents behind the last mapping"));
}

#[test]
fn nothing_may_lie_over_the_hole() {
    let over = Some("mapping over the loader's hole");
    assert_eq!(said(&[map(HOLE - 0x1000, 0x2000)], &[]), over);
    assert_eq!(said(&[map(HOLE + (64 << 20) - 0x1000, 0x2000)], &[]), over);
    assert_eq!(said(&[map(HOLE - 0x1000, 0x1000)], &[]), None);
}

#[test]
fn there_must_be_a_process_and_room() {
    let (none, one, tables) = (ops(1, &[]), ops(2, &[]), tables(&[]));
    let tables = ExtentTables::read(&tables[..]).expect("tables");
    let with = |ops: &[u8], hole_len| {
        let list = OpsList::read(ops).expect("a list");
        let header = Header {
            hole_len,
            ..header(0)
        };
        let checked = check(&header, PAGE, &list, &tables);
        checked.err().map(|error| error.wrong().what)
    };
    assert_eq!(
        with(&none, 64 << 20),
        Some("no process to start; processes")
    );
    assert_eq!(with(&one, PAGE), Some("bytes of the loader's hole"));
    assert_eq!(with(&one, u64::MAX), Some("bytes of the loader's hole"));
    assert_eq!(with(&one, 64 << 20), None);
}

#[test]
fn every_byte_of_the_pages_is_in_one_chunk() {
    let contents = [
        (Space::Process(0), 0x1000, 0x2000),
        (Space::Inode(0), 0, 100),
    ];
    let bytes = tables(&contents);
    let read = ExtentTables::read(&bytes[..]).expect("tables");
    assert_eq!(own_chunks(&read), Ok(2));
    let sound = header(3 * PAGE);
    let gap = 5 * PAGE + 100..6 * PAGE;
    assert_eq!(places(&sound, &read, 2), Ok(vec![gap]));
    let what = |pages| places(&header(pages), &read, 2).expect_err("wrong").what;
    assert_eq!(what(2 * PAGE), "chunk outside .wf.pages: end");
    let none = "bytes of .wf.pages that belong to no chunk, from";
    assert_eq!(what(5 * PAGE), none);
    // The second chunk where the first is.
    let mut twice = bytes.clone();
    let at = bytes.len() - crate::layout::CHUNK_BYTES;
    twice[at..at + 8].copy_from_slice(&(4 * PAGE).to_le_bytes());
    let read = ExtentTables::read(&twice[..]).expect("tables");
    let both = "bytes of the file that belong to two chunks, from";
    let error = places(&sound, &read, 2).expect_err("overlap");
    assert_eq!(error.what, both);
}

/// The gaps that are found with room for so many places.
fn places(
    header: &Header,
    tables: &ExtentTables<&[u8]>,
    room: usize,
) -> Result<Vec<Range<u64>>, MeaningError> {
    let mut found = vec![];
    let mut room = vec![Place::default(); room];
    let gap = |range| {
        found.push(range);
        Ok::<_, Unfit<Infallible>>(())
    };
    let checked = check_places(header, tables, &mut room, gap);
    checked.map(|()| found).map_err(Unsound::wrong)
}

/// What is said of chunks of a page each, some of them shorter, of which chunk `n` lies at page `pages[n]`.
fn said_of(pages: &[u64], short: u64, room: usize) -> Result<u64, &'static str> {
    let len = |page: u64| {
        if short >> (page % 64) & 1 == 1 {
            100
        } else {
            PAGE
        }
    };
    let lens = pages.iter().map(|page| len(*page)).zip(0..);
    let contents: Vec<_> = lens
        .map(|(len, index)| (Space::Inode(index), 0, len))
        .collect();
    let mut bytes = tables(&contents);
    let chunks_at = bytes.len() - pages.len() * crate::layout::CHUNK_BYTES;
    for (index, page) in pages.iter().enumerate() {
        let at = chunks_at + index * crate::layout::CHUNK_BYTES;
        bytes[at..at + 8].copy_from_slice(&((3 + page) * PAGE).to_le_bytes());
    }
    let read = ExtentTables::read(&bytes[..]).expect("tables");
    let end = pages.iter().max().map_or(0, |last| last + 1);
    let found = places(&header(end * PAGE), &read, room);
    let gaps = found.map_err(|error| error.what)?;
    let expected = (0..end).map(|page| PAGE - len(page)).sum::<u64>();
    let found = gaps.iter().map(|gap| gap.end - gap.start).sum();
    assert_eq!(expected, found);
    Ok(found)
}

const BOTH: &str = "bytes of the file that belong to two chunks, from";
const NONE: &str = "bytes of .wf.pages that belong to no chunk, from";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    /// Chunks in any order, or nearly in theirs.
    #[test]
    fn little_room_finds_what_much_room_finds(
        count in 2..60u64,
        swaps in prop::collection::vec((any::<prop::sample::Index>(), 1..60usize), 0..60),
        short in any::<u64>(),
        twice in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        missing in any::<prop::sample::Index>(),
        room in 2..70usize,
    ) {
        let mut pages: Vec<u64> = (0..count).collect();
        for (at, distance) in swaps {
            let at = at.index(pages.len());
            let other = (at + distance) % pages.len();
            pages.swap(at, other);
        }
        prop_assert!(said_of(&pages, short, room).is_ok());
        // One more chunk, where another is: all bytes are in one, and some in two.
        let mut both = pages.clone();
        both.insert(place.index(pages.len() + 1), pages[twice.index(pages.len())]);
        prop_assert_eq!(said_of(&both, short, room), Err(BOTH));
        prop_assert_eq!(said_of(&both, short, 70), Err(BOTH));
        // Not the last: the section would end there.
        let mut none = pages.clone();
        let gone = missing.index(count as usize - 1) as u64;
        none.retain(|page| *page != gone);
        prop_assert_eq!(said_of(&none, short, room), Err(NONE));
        prop_assert_eq!(said_of(&none, short, 70), Err(NONE));
    }
}

#[test]
fn great_disorder_and_no_room_are_errors() {
    let backwards: Vec<u64> = (0..1000).rev().collect();
    assert_eq!(said_of(&backwards, 0, 1000), Ok(0));
    assert_eq!(said_of(&backwards, 0, 100), Ok(0));
    let disorder = "chunks out of order; passes to go through them";
    assert_eq!(said_of(&backwards, 0, 4), Err(disorder));
    let none = "places that there is room for";
    for room in [0, 1] {
        assert_eq!(said_of(&backwards, 0, room), Err(none));
    }
    // In order: little room is enough, in one pass.
    let forwards: Vec<u64> = (0..200).collect();
    assert_eq!(said_of(&forwards, 0, 4), Ok(0));
}
