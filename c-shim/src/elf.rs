//! What of an ELF file matters to whoever maps it (elf(5)). Nothing in it is believed: what does not fit is no program.

use crate::rewrite::Table;
use core::ops::Range;

const PAGE: u64 = 4096;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
const PT_PHDR: u32 = 6;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PT_GNU_STACK: u32 = 0x6474_e551;
const ET_EXEC: u16 = 2;
const ET_DYN: u16 = 3;
const X86_64: u16 = 62;
/// Bytes of `Elf64_Phdr`.
const HEADER_LEN: u64 = 56;
/// No program has a larger span: what says so is damaged.
const MOST_SPAN: u64 = 1 << 40;

/// `Elf64_Phdr`.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    kind: u32,
    flags: u32,
    /// Where it begins in the file.
    pub offset: u64,
    /// Where it begins in memory, relative to the object.
    pub address: u64,
    /// Its bytes in the file.
    pub in_file: u64,
    /// Its bytes in memory; those that are not in the file are zero.
    pub in_memory: u64,
    align: u64,
}

impl Segment {
    /// Code.
    #[must_use]
    pub fn is_executable(&self) -> bool {
        self.flags & 1 != 0
    }

    /// Data.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.flags & 2 != 0
    }

    /// PROT_READ, PROT_WRITE, PROT_EXEC.
    #[must_use]
    pub fn protection(&self) -> u64 {
        u64::from(self.flags >> 2 & 1 | self.flags & 2 | (self.flags & 1) << 2)
    }

    /// The first address of its first page, and the offset of that; 0 where there is none.
    #[must_use]
    pub fn page(&self) -> (u64, u64) {
        let within = self.address % PAGE;
        (self.address - within, self.offset.saturating_sub(within))
    }

    fn end(&self) -> u64 {
        self.address + self.in_memory
    }

    fn is_sound(&self, file_len: u64) -> bool {
        let in_file = self.offset.checked_add(self.in_file);
        let in_memory = self.address.checked_add(self.in_memory);
        in_file.is_some_and(|end| end <= file_len)
            && in_memory.is_some_and(|end| end < 1 << 47)
            && self.in_file <= self.in_memory
            && (self.in_file == 0 || self.address % PAGE == self.offset % PAGE)
    }
}

/// A program or library for this machine.
#[derive(Clone, Copy, Debug)]
pub struct Elf<'a> {
    file: &'a [u8],
    kind: u16,
    /// Where it begins, relative to the object.
    pub entry: u64,
    headers: u64,
    /// Program headers.
    pub count: u16,
}

/// What matters of `Elf64_Shdr`.
struct Section {
    /// Where its name is among the names.
    name: u64,
    flags: u64,
    range: Range<u64>,
}

fn number<const N: usize>(file: &[u8], at: u64) -> Option<u64> {
    let start = usize::try_from(at).ok()?;
    let bytes = file.get(start..)?.first_chunk::<N>()?;
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(bytes);
    Some(u64::from_le_bytes(wide))
}

/// Whether these first bytes are of a program that this machine can execute.
#[must_use]
pub fn is_program(first: &[u8]) -> bool {
    let kind = number::<2>(first, 16).unwrap_or(0) as u16;
    first.starts_with(b"\x7fELF\x02\x01")
        && matches!(kind, ET_EXEC | ET_DYN)
        && number::<2>(first, 18) == Some(X86_64.into())
}

impl<'a> Elf<'a> {
    /// None if it is damaged, or for another machine.
    #[must_use]
    pub fn read(file: &'a [u8]) -> Option<Self> {
        if !is_program(file) || number::<2>(file, 54)? != HEADER_LEN {
            return None;
        }
        let elf = Elf {
            file,
            kind: number::<2>(file, 16)? as u16,
            entry: number::<8>(file, 24)?,
            headers: number::<8>(file, 32)?,
            count: number::<2>(file, 56)? as u16,
        };
        // All of them are there, and at least one is loaded.
        elf.segment(elf.count.checked_sub(1)?)?;
        let len = file.len() as u64;
        if !elf.loads().all(|load| load.is_sound(len)) {
            return None;
        }
        let span = elf.span();
        (span.start < span.end && span.end - span.start < MOST_SPAN).then_some(elf)
    }

    fn segment(&self, index: u16) -> Option<Segment> {
        let at = self.headers.checked_add(u64::from(index) * HEADER_LEN)?;
        let word = |within| number::<8>(self.file, at.checked_add(within)?);
        Some(Segment {
            kind: number::<4>(self.file, at)? as u32,
            flags: number::<4>(self.file, at.checked_add(4)?)? as u32,
            offset: word(8)?,
            address: word(16)?,
            in_file: word(32)?,
            in_memory: word(40)?,
            align: word(48)?,
        })
    }

    fn segments(&self) -> impl Iterator<Item = Segment> + use<'a> {
        let elf = *self;
        (0..elf.count).filter_map(move |index| elf.segment(index))
    }

    /// What is mapped; all of it lies in the file and below 2^47.
    pub fn loads(&self) -> impl Iterator<Item = Segment> + use<'a> {
        self.segments().filter(|one| one.kind == PT_LOAD)
    }

    /// It lies where it says, and nowhere else.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        self.kind == ET_EXEC
    }

    /// All its pages.
    #[must_use]
    pub fn span(&self) -> Range<u64> {
        let start = self.loads().map(|load| load.page().0).min().unwrap_or(0);
        let end = self.loads().map(|load| load.end()).max().unwrap_or(0);
        start..end.next_multiple_of(PAGE)
    }

    /// The largest alignment that a segment wants.
    #[must_use]
    pub fn align(&self) -> u64 {
        let wanted = self.loads().map(|load| load.align).max().unwrap_or(PAGE);
        if wanted.is_power_of_two() {
            wanted.clamp(PAGE, 1 << 30)
        } else {
            PAGE
        }
    }

    /// Where the program headers lie in memory.
    #[must_use]
    pub fn headers_address(&self) -> Option<u64> {
        let own = self.segments().find(|one| one.kind == PT_PHDR);
        own.map(|own| own.address).or_else(|| {
            let holds =
                |load: &Segment| (load.offset..load.offset + load.in_file).contains(&self.headers);
            let load = self.loads().find(holds)?;
            Some(self.headers - load.offset + load.address)
        })
    }

    fn bytes(&self, offset: u64, len: u64) -> Option<&'a [u8]> {
        let start = usize::try_from(offset).ok()?;
        self.file.get(start..)?.get(..usize::try_from(len).ok()?)
    }

    /// The dynamic linker that it names.
    #[must_use]
    pub fn interpreter(&self) -> Option<&'a [u8]> {
        let named = self.segments().find(|one| one.kind == PT_INTERP)?;
        let text = self.bytes(named.offset, named.in_file)?;
        text.split(|byte| *byte == 0).next()
    }

    /// What is mapped to be executed.
    pub fn texts(&self) -> impl Iterator<Item = Segment> + use<'a> {
        self.loads().filter(Segment::is_executable)
    }

    /// The bytes of a segment that are in the file.
    #[must_use]
    pub fn bytes_of(&self, segment: &Segment) -> &'a [u8] {
        self.bytes(segment.offset, segment.in_file)
            .unwrap_or_default()
    }

    /// The addresses of its code: sections of instructions, or, where it has none, all that is mapped to be executed.
    pub fn code(&self) -> impl Iterator<Item = Range<u64>> + use<'a> {
        /// SHF_ALLOC, SHF_EXECINSTR.
        const INSTRUCTIONS: u64 = 2 | 4;
        let sections = self.sections().filter(|one| {
            one.flags & INSTRUCTIONS == INSTRUCTIONS && one.range.start < one.range.end
        });
        let mut sections = sections.map(|one| one.range).peekable();
        let has_some = sections.peek().is_some();
        let whole = self.texts().filter(move |_| !has_some);
        sections.chain(whole.map(|text| text.address..text.address + text.in_file))
    }

    /// Its stack is to be executable.
    #[must_use]
    pub fn executes_stack(&self) -> bool {
        let asked = self.segments().find(|one| one.kind == PT_GNU_STACK);
        asked.is_some_and(|one| one.is_executable())
    }

    /// Go's linker has made it.
    #[must_use]
    pub fn is_go(&self) -> bool {
        let notes = self.segments().filter(|one| one.kind == PT_NOTE);
        notes
            .filter_map(|one| self.bytes(one.offset, one.in_file))
            .any(|notes| {
                let names = core::iter::successors(Some(notes), |notes| {
                    let len = |at| number::<4>(notes, at).map(|len| len.next_multiple_of(4));
                    notes.get(usize::try_from(12 + len(0)? + len(4)?).ok()?..)
                });
                names.take_while(|note| !note.is_empty()).any(|note| {
                    number::<4>(note, 0) == Some(4) && note.get(12..16) == Some(b"Go\0\0")
                })
            })
    }

    /// Where it says where its functions are.
    #[must_use]
    pub fn functions(&self) -> Option<Table> {
        let table = self.segments().find(|one| one.kind == PT_GNU_EH_FRAME);
        match table {
            Some(table) => Some(Table::Sorted(table.address)),
            None => self.section(b".eh_frame").map(Table::Described),
        }
    }

    /// The addresses of a section that is loaded.
    fn section(&self, wanted: &[u8]) -> Option<Range<u64>> {
        let names = self.header_of_section(number::<2>(self.file, 62)?, 24)?;
        let mut sections = self.sections();
        let found = sections.find(|one| {
            let at = names.checked_add(one.name);
            let text = at.and_then(|at| self.file.get(usize::try_from(at).ok()?..));
            text.is_some_and(|text| text.split(|byte| *byte == 0).next() == Some(wanted))
        });
        found.map(|one| one.range)
    }

    /// A word of a section's header.
    fn header_of_section(&self, index: u64, within: u64) -> Option<u64> {
        /// Bytes of `Elf64_Shdr`.
        const LEN: u64 = 64;
        let table = number::<8>(self.file, 40).filter(|_| number::<2>(self.file, 58) == Some(LEN));
        let header = table?.checked_add(index * LEN)?;
        number::<8>(self.file, header.checked_add(within)?)
    }

    /// Sections that are loaded from where they say.
    fn sections(&self) -> impl Iterator<Item = Section> + use<'a> {
        let elf = *self;
        let count = number::<2>(self.file, 60).unwrap_or(0);
        (0..count).filter_map(move |index| {
            let word = |within| elf.header_of_section(index, within);
            let (address, offset, len) = (word(16)?, word(24)?, word(32)?);
            let range = address..address.checked_add(len)?;
            let holds = |load: Segment| {
                let first = range.start.checked_sub(load.address);
                let is_there = first.and_then(|first| first.checked_add(load.offset));
                is_there == Some(offset) && range.end <= load.address + load.in_file
            };
            elf.loads().any(holds).then_some(Section {
                name: word(0)? & u64::from(u32::MAX),
                flags: word(8)?,
                range: range.clone(),
            })
        })
    }

    fn offset_of(&self, address: u64) -> Option<u64> {
        let holds = |load: &Segment| (load.address..load.address + load.in_file).contains(&address);
        let load = self.loads().find(holds)?;
        Some(address - load.address + load.offset)
    }

    /// What it is called by those that need it (`DT_SONAME`).
    #[must_use]
    pub fn name(&self) -> Option<&'a [u8]> {
        const DT_STRTAB: u64 = 5;
        const DT_SONAME: u64 = 14;
        let dynamic = self.segments().find(|one| one.kind == PT_DYNAMIC)?;
        let entries = self.bytes(dynamic.offset, dynamic.in_file)?;
        let value = |tag: u64| {
            entries
                .chunks_exact(16)
                .find(|entry| number::<8>(entry, 0) == Some(tag))
                .and_then(|entry| number::<8>(entry, 8))
        };
        let strings = self.offset_of(value(DT_STRTAB)?)?;
        let start = usize::try_from(strings.checked_add(value(DT_SONAME)?)?).ok()?;
        self.file.get(start..)?.split(|byte| *byte == 0).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    const PROGRAMS: [&str; 4] = [
        "/bin/sh",
        "/usr/bin/env",
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/x86_64-linux-gnu/libc.so.6",
    ];

    #[test]
    fn it_says_of_programs_what_goblin_says() {
        for path in PROGRAMS {
            let file = fs::read(path).expect("is there");
            let (ours, theirs) = (
                Elf::read(&file).expect("sound"),
                goblin::elf::Elf::parse(&file).expect("sound"),
            );
            assert_eq!(ours.entry, theirs.entry, "{path}");
            assert_eq!(
                usize::from(ours.count),
                theirs.program_headers.len(),
                "{path}"
            );
            let interpreter = theirs.interpreter.map(str::as_bytes);
            assert_eq!(ours.interpreter(), interpreter, "{path}");
            assert_eq!(ours.name(), theirs.soname.map(str::as_bytes), "{path}");
            let of_kind = |kind| {
                theirs
                    .program_headers
                    .iter()
                    .filter(move |one| one.p_type == kind)
            };
            let table = of_kind(PT_GNU_EH_FRAME)
                .next()
                .map(|one| Table::Sorted(one.p_vaddr));
            assert_eq!(ours.functions(), table, "{path}");
            let loads: Vec<_> = of_kind(PT_LOAD)
                .map(|one| (one.p_offset, one.p_vaddr, one.p_filesz, one.p_memsz))
                .collect();
            let found: Vec<_> = ours
                .loads()
                .map(|one| (one.offset, one.address, one.in_file, one.in_memory))
                .collect();
            assert_eq!(found, loads, "{path}");
            let texts: Vec<_> = ours.texts().collect();
            let [text] = texts[..] else {
                panic!("{path} has one text");
            };
            assert!(
                text.is_executable() && !text.is_writable() && text.protection() == 5,
                "{path}"
            );
            assert!(
                ours.headers_address().is_some() && !ours.is_fixed() && ours.align() == PAGE,
                "{path}"
            );
            let last = loads.last().expect("some");
            assert_eq!(
                ours.span(),
                0..(last.1 + last.3).next_multiple_of(PAGE),
                "{path}"
            );
        }
    }

    /// A damaged one may begin anywhere.
    #[test]
    fn a_segment_with_nothing_of_the_file_begins_in_it() {
        let one = Segment {
            kind: 1,
            flags: 4,
            offset: 0x10,
            address: 0x5123,
            in_file: 0,
            in_memory: 8,
            align: PAGE,
        };
        assert!(one.is_sound(0x10));
        assert_eq!(one.page(), (0x5000, 0));
    }

    /// Everything that whoever maps it asks.
    fn ask_all(file: &[u8]) {
        let Some(elf) = Elf::read(file) else { return };
        for load in elf.loads() {
            let (page, offset) = load.page();
            assert!(page <= load.address && offset <= load.offset);
            assert!(load.offset + load.in_file <= file.len() as u64);
            assert!(elf.span().contains(&page) && load.protection() < 8);
        }
        assert!(elf.span().end <= 1 << 48 && elf.align() >= PAGE);
        for code in elf.code().chain(elf.section(b".eh_frame")) {
            let holds = |load: Segment| {
                load.address <= code.start && code.end <= load.address + load.in_file
            };
            assert!(elf.loads().any(holds), "{code:x?}");
        }
        let _ = (
            elf.interpreter(),
            elf.texts()
                .map(|text| elf.bytes_of(&text).len())
                .sum::<usize>(),
            elf.functions(),
            elf.name(),
            elf.headers_address(),
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn damaged_programs_are_refused_or_harmless(
            program in 0..3usize,
            damage in prop::collection::vec((0..1000usize, any::<u8>()), 1..8),
            len in 0..4000usize,
        ) {
            let mut file = fs::read(PROGRAMS[program]).expect("is there");
            for (at, byte) in damage {
                file[at] = byte;
            }
            ask_all(&file);
            ask_all(&file[..len]);
        }
    }
}
