//! The tables of extents, chunks and bases.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loader::layout::{CHUNK, ExtentTables, Space};

fuzz_target!(|bytes: &[u8]| {
    let Ok(tables) = ExtentTables::read(bytes) else {
        return;
    };
    for Ok(extent) in tables.extents() {
        let space = Space::from_number(extent.space).expect("checked");
        let found = tables.extents_within(space, extent.at, extent.at + extent.len);
        assert_eq!(found.count(), 1, "extents do not overlap");
        for index in 0..extent.chunk_count() {
            let Ok(chunk) = tables.chunk(extent.first_chunk + index);
            let chunk = chunk.expect("checked");
            assert!(u64::from(chunk.raw_len) <= CHUNK);
        }
    }
    for index in 0..tables.base_count() {
        let Ok(base) = tables.base(index);
        assert!(base.is_some());
    }
});
