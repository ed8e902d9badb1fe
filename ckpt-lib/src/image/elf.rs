//! The ELF clothes of an image: what the kernel and `readelf` see of it.
//!
//! ```text
//! 0     ELF header, guard, program headers     PT_LOAD guard, text, data, PT_GNU_STACK
//! tail  section names, section headers  .wf.header, .wf.loader ... .wf.shstrtab
//! ```
//! # What callers may rely on
//! Pure functions of the numbers given. The kernel maps the loader and nothing else.

use crate::loader_code::LinkedLoader;
use loader::guard;
use loader::layout::{PAGE, SECTION_COUNT, Section, SectionKind};

const EHDR_LEN: u16 = 64;
const PHDR_LEN: u16 = 56;
const SHDR_LEN: u16 = 64;
const ET_EXEC: u16 = 2;
const EM_X86_64: u16 = 62;
const PT_LOAD: u32 = 1;
const PT_GNU_STACK: u32 = 0x6474_e551;
const SHT_PROGBITS: u32 = 1;
const SHT_STRTAB: u32 = 3;
const SHF_WRITE: u64 = 1;
const SHF_ALLOC: u64 = 2;
const SHF_EXECINSTR: u64 = 4;
/// Name of the section of names itself.
const NAMES: &str = ".wf.shstrtab";
/// Name of the loader's second segment; the first has the section's own name.
const LOADER_DATA: &str = ".wf.loader.data";

/// Numbers of the ELF header that depend on the tail.
#[derive(Clone, Copy, Debug)]
pub(super) struct TailPlace {
    /// File offset of the section headers.
    pub(super) headers_at: u64,
    /// Number of section headers.
    pub(super) headers: u16,
}

fn put<const N: usize>(bytes: &mut Vec<u8>, raw: [u8; N]) {
    bytes.extend_from_slice(&raw);
}

/// The first page of the file.
pub(super) fn head(loader: &LinkedLoader, base: u64, loader_at: u64, tail: TailPlace) -> Vec<u8> {
    let mut head = vec![];
    // ELF64, little endian, version 1, System V
    put(&mut head, *b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    put(&mut head, ET_EXEC.to_le_bytes());
    put(&mut head, EM_X86_64.to_le_bytes());
    put(&mut head, 1u32.to_le_bytes());
    put(&mut head, loader.entry.to_le_bytes());
    put(&mut head, guard::PROGRAM_HEADERS_AT.to_le_bytes());
    put(&mut head, tail.headers_at.to_le_bytes());
    put(&mut head, 0u32.to_le_bytes());
    for half in [
        EHDR_LEN,
        PHDR_LEN,
        guard::PROGRAM_HEADERS as u16,
        SHDR_LEN,
        tail.headers,
        tail.headers - 1,
    ] {
        put(&mut head, half.to_le_bytes());
    }
    let mut page = loader.guard.clone();
    let headers_at = guard::PROGRAM_HEADERS_AT as usize;
    page.truncate(headers_at);
    page.extend_from_slice(&program_headers(loader, base, loader_at));
    page[..head.len()].copy_from_slice(&head);
    let loaded = [&loader.text[..], &loader.data].concat();
    for (at, sum) in [
        (
            guard::PAGE_SUM as usize,
            guard::sum(&page[guard::BEGIN as usize..]),
        ),
        (guard::LOADER_SUM as usize, guard::sum(&loaded)),
    ] {
        page[at..at + 8].copy_from_slice(&sum.to_le_bytes());
    }
    page
}

fn program_headers(loader: &LinkedLoader, base: u64, loader_at: u64) -> Vec<u8> {
    let (guard_len, text_len) = (loader.guard.len() as u64, loader.text.len() as u64);
    let data_len = loader.data.len() as u64;
    let (read, write, execute) = (4, 2, 1);
    let segments = [
        (PT_LOAD, read | execute, 0, base, guard_len, guard_len),
        (
            PT_LOAD,
            read | execute,
            loader_at,
            base + guard_len,
            text_len,
            text_len,
        ),
        (
            PT_LOAD,
            read | write,
            loader_at + text_len,
            base + loader.data_offset,
            data_len,
            loader.data_mem_len,
        ),
        (PT_GNU_STACK, read | write, 0, 0, 0, 0),
    ];
    let mut headers = vec![];
    for (kind, flags, offset, address, file_len, memory_len) in segments {
        put(&mut headers, u32::to_le_bytes(kind));
        put(&mut headers, u32::to_le_bytes(flags));
        let align = if kind == PT_LOAD { PAGE } else { 16 };
        for word in [offset, address, address, file_len, memory_len, align] {
            put(&mut headers, word.to_le_bytes());
        }
    }
    headers
}

struct Entry {
    name: &'static str,
    kind: u32,
    flags: u64,
    address: u64,
    offset: u64,
    len: u64,
}

/// The bytes of the tail section, which begins at `tail_at`, and where its headers lie.
pub(super) fn tail(
    loader: &LinkedLoader,
    base: u64,
    sections: &[Section; SECTION_COUNT],
    tail_at: u64,
) -> (Vec<u8>, TailPlace) {
    let mut entries = vec![];
    for section in sections {
        let Some(kind) = SectionKind::from_number(section.kind) else {
            continue;
        };
        match kind {
            SectionKind::Elf | SectionKind::Tail => {}
            SectionKind::Loader => {
                let text_len = loader.text.len() as u64;
                entries.push(Entry {
                    name: kind.name(),
                    kind: SHT_PROGBITS,
                    flags: SHF_ALLOC | SHF_EXECINSTR,
                    address: base + loader.guard.len() as u64,
                    offset: section.offset,
                    len: text_len,
                });
                entries.push(Entry {
                    name: LOADER_DATA,
                    kind: SHT_PROGBITS,
                    flags: SHF_ALLOC | SHF_WRITE,
                    address: base + loader.data_offset,
                    offset: section.offset + text_len,
                    len: loader.data.len() as u64,
                });
            }
            _ => entries.push(Entry {
                name: kind.name(),
                kind: SHT_PROGBITS,
                flags: 0,
                address: 0,
                offset: section.offset,
                len: section.used,
            }),
        }
    }
    let mut names = vec![0];
    let mut headers = vec![0; usize::from(SHDR_LEN)];
    let names_len = 1 + entries.iter().map(|e| e.name.len() + 1).sum::<usize>() + NAMES.len() + 1;
    entries.push(Entry {
        name: NAMES,
        kind: SHT_STRTAB,
        flags: 0,
        address: 0,
        offset: tail_at,
        len: names_len as u64,
    });
    for entry in &entries {
        put(&mut headers, (names.len() as u32).to_le_bytes());
        put(&mut headers, entry.kind.to_le_bytes());
        for word in [entry.flags, entry.address, entry.offset, entry.len] {
            put(&mut headers, word.to_le_bytes());
        }
        put(&mut headers, [0; 8]); // link, info
        let align = if entry.kind == SHT_STRTAB { 1 } else { PAGE };
        put(&mut headers, align.to_le_bytes());
        put(&mut headers, [0; 8]); // entry size
        names.extend_from_slice(entry.name.as_bytes());
        names.push(0);
    }
    let mut bytes = names;
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let place = TailPlace {
        headers_at: tail_at + bytes.len() as u64,
        headers: entries.len() as u16 + 1,
    };
    bytes.extend_from_slice(&headers);
    (bytes, place)
}
