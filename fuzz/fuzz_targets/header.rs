//! The header page. Its checksum is made right, so that what lies behind it is reached.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loader::layout::{HEADER_LEN, Header};

const ID: std::ops::Range<usize> = 24..56;

fuzz_target!(|bytes: &[u8]| {
    let _ = Header::decode(bytes);
    let mut page = [0; HEADER_LEN];
    let len = bytes.len().min(HEADER_LEN);
    page[..len].copy_from_slice(&bytes[..len]);
    page[..8].copy_from_slice(&loader::layout::MAGIC);
    page[8..12].copy_from_slice(&loader::layout::FORMAT_VERSION.to_le_bytes());
    page[ID].fill(0);
    let id = *blake3::hash(&page).as_bytes();
    page[ID].copy_from_slice(&id);
    if let Ok(header) = Header::decode(&page) {
        let end = header
            .sections
            .iter()
            .map(|section| section.len)
            .sum::<u64>();
        assert_eq!(end, header.image_len, "sections tile the file");
    }
});
