//! Whether the parts of an image fit together: operations and tables that are right by themselves.
//!
//! Bytes: base and length of the hole, length of the loader, length of the operations (8 each), then
//! the operations, then the tables.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loader::layout::{
    ExtentTables, FORMAT_VERSION, Header, PAGE, SECTION_COUNT, Section, SectionKind,
};
use loader::meaning::{self, Place, Unfit};
use loader::ops::OpsList;
use std::convert::Infallible;

fuzz_target!(|bytes: &[u8]| {
    let Some((numbers, rest)) = bytes.split_first_chunk::<32>() else {
        return;
    };
    let number =
        |at: usize| u64::from_le_bytes(numbers[at * 8..][..8].try_into().expect("8 bytes"));
    let (ops, extents) = rest.split_at(rest.len().min(number(3) as usize));
    let (Ok(list), Ok(tables)) = (OpsList::read(ops), ExtentTables::read(extents)) else {
        return;
    };
    let mut header = Header {
        version: FORMAT_VERSION,
        image_len: 0,
        id: [0; 32],
        hole_base: number(0),
        hole_len: number(1),
        sections: [Section::default(); SECTION_COUNT],
    };
    for (section, kind) in header.sections.iter_mut().zip(SectionKind::ALL) {
        section.kind = kind as u32;
        section.len = match kind {
            SectionKind::Ops => ops.len() as u64,
            SectionKind::Extents => extents.len() as u64,
            SectionKind::Pages => 1 << 20,
            _ => 0,
        };
    }
    let mut room = [Place::default(); 4];
    let _ = meaning::check_places(&header, &tables, &mut room, |gap| {
        assert!(gap.end - gap.start < PAGE, "gaps are shorter than a page");
        Ok::<_, Unfit<Infallible>>(())
    });
    if let Ok(layout) = meaning::check(&header, number(2), &list, &tables) {
        assert!(
            layout.needed <= header.hole_len,
            "the loader fits into its hole"
        );
    }
});
