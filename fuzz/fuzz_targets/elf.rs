//! The ELF header and program headers of an image, and the loader that they describe: the first page, then that section.
#![no_main]

use ckpt_lib::loader_code::LinkedLoader;
use libfuzzer_sys::fuzz_target;
use loader::layout::{HEADER_LEN, HEADER_OFFSET, PAGE};

/// Where an image has its loader.
const AT: u64 = HEADER_OFFSET + HEADER_LEN as u64;

fuzz_target!(|bytes: &[u8]| {
    let (page, section) = bytes.split_at(bytes.len().min(PAGE as usize));
    // `p_vaddr` of an image's first program header: what lies behind the question for it is reached.
    let first = loader::guard::PROGRAM_HEADERS_AT as usize + 16;
    let base = page.get(first..first + 8).map_or(0, |word| {
        u64::from_le_bytes(word.try_into().expect("eight bytes"))
    });
    for base in [base, 0x10000] {
        if let Ok(loader) = LinkedLoader::in_image(page.to_vec(), section, AT, base) {
            assert!(loader.text.len() + loader.data.len() <= 2 * section.len());
            assert!(loader.span.is_multiple_of(PAGE));
        }
    }
});
