//! The ELF dress of an image: the kernel starts the loader, `readelf -S` shows the sections.

use crate::loader_code::LinkedLoader;
use loader::layout::{PAGE, Section, SectionKind};

const EHDR: u16 = 64;
const PHDR: u16 = 56;
const SHDR: u16 = 64;
const EM_X86_64: u16 = 62;
const ET_EXEC: u16 = 2;
const PT_LOAD: u32 = 1;
const PT_GNU_STACK: u32 = 0x6474_e551;
const READ: u32 = 4;
const WRITE: u32 = 2;
const EXECUTE: u32 = 1;
const SHT_PROGBITS: u32 = 1;
const SHT_STRTAB: u32 = 3;

/// The sections that get an ELF section header.
const SHOWN: [SectionKind; 7] = [
    SectionKind::Header,
    SectionKind::Loader,
    SectionKind::Pages,
    SectionKind::Platform,
    SectionKind::Ops,
    SectionKind::Meta,
    SectionKind::Extents,
];

struct Bytes(Vec<u8>);

impl Bytes {
    fn half(&mut self, value: u16) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }
    fn word(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }
    fn long(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }
}

/// The tail section: section names, then section headers. Its offset in the file must be known.
pub(super) fn tail(sections: &[Section], tail_offset: u64) -> (Vec<u8>, u64) {
    let mut names = vec![0];
    let mut name_at = |name: &str| {
        let at = names.len() as u32;
        names.extend(name.as_bytes());
        names.push(0);
        at
    };
    let shown: Vec<(u32, Section)> = SHOWN
        .iter()
        .map(|kind| (name_at(kind.name()), sections[*kind as usize - 1]))
        .collect();
    let own_name = name_at(".shstrtab");
    let names_len = names.len() as u64;
    names.resize(names.len().next_multiple_of(8), 0);
    let headers_at = tail_offset + names.len() as u64;
    let mut out = Bytes(names);
    out.0.extend([0; SHDR as usize]);
    let mut header = |name: u32, kind: u32, offset: u64, len: u64| {
        out.word(name)
            .word(kind)
            .long(0)
            .long(0)
            .long(offset)
            .long(len);
        out.word(0).word(0).long(1).long(0);
    };
    for (name, section) in shown {
        header(name, SHT_PROGBITS, section.offset, section.used);
    }
    header(own_name, SHT_STRTAB, tail_offset, names_len);
    (out.0, headers_at)
}

/// The first page: ELF header and program headers.
pub(super) fn head(
    loader: &LinkedLoader,
    base: u64,
    loader_offset: u64,
    headers_at: u64,
) -> Vec<u8> {
    let mut out = Bytes(vec![
        0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ]);
    out.half(ET_EXEC).half(EM_X86_64).word(1).long(loader.entry);
    out.long(u64::from(EHDR)).long(headers_at).word(0);
    out.half(EHDR).half(PHDR).half(3);
    let section_count = SHOWN.len() as u16 + 2;
    out.half(SHDR).half(section_count).half(section_count - 1);
    let mut segment = |kind: u32, flags: u32, offset: u64, address: u64, file: u64, memory: u64| {
        out.word(kind)
            .word(flags)
            .long(offset)
            .long(address)
            .long(address);
        out.long(file)
            .long(memory)
            .long(if kind == PT_LOAD { PAGE } else { 16 });
    };
    let text_len = loader.text.len() as u64;
    segment(
        PT_LOAD,
        READ | EXECUTE,
        loader_offset,
        base,
        text_len,
        text_len,
    );
    segment(
        PT_LOAD,
        READ | WRITE,
        loader_offset + text_len,
        base + loader.data_offset,
        loader.data.len() as u64,
        loader.data_mem_len,
    );
    segment(PT_GNU_STACK, READ | WRITE, 0, 0, 0, 0);
    out.0.resize(PAGE as usize, 0);
    out.0
}
