//! The loader's machine code, moved to the address where a job has room for it.
//!
//! ```text
//! base    base + text_offset     base + data_offset              base + span
//! | guard | text, read-only data | data | zeroes (bss, no file part) |
//! ```
//! # What callers may rely on
//! [`link`] is a pure function; the bytes are ready to be mapped, nothing is
//! left to relocate. The carried program is read once in a process.

use goblin::elf::program_header::{PF_X, PT_LOAD, ProgramHeader};
use goblin::elf::{Elf, reloc::R_X86_64_RELATIVE};
use loader::guard;
use loader::layout::PAGE;
use std::sync::OnceLock;

/// The program built by `build.rs`.
static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/loader"));

/// The loader, ready to be mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkedLoader {
    /// Address of its first instruction.
    pub entry: u64,
    /// One page, to be mapped at the base: zeros, the first instructions, zeros ([`loader::guard`]). An image
    /// has its ELF header, the sums and its program headers there, too. Empty in images from before there was one, which are read
    /// and restarted, but not flattened.
    pub guard: Vec<u8>,
    /// Read and execute segment, a whole number of pages, to be mapped behind the guard.
    pub text: Vec<u8>,
    /// Where the read and write segment begins, counted from the base.
    pub data_offset: u64,
    /// File part of the read and write segment, a whole number of pages.
    pub data: Vec<u8>,
    /// Bytes of the read and write segment in memory.
    pub data_mem_len: u64,
    /// Bytes from the base to the end of all segments, a whole number of pages.
    pub span: u64,
}

impl LinkedLoader {
    /// The loader as it is in an image: its first `page`, the bytes of the section that lies `at` there, linked for `base`.
    ///
    /// # Errors
    /// What is wrong with the ELF headers.
    pub fn in_image(
        page: Vec<u8>,
        bytes: &[u8],
        at: u64,
        base: u64,
    ) -> Result<LinkedLoader, &'static str> {
        let head = Elf::parse_header(&page).map_err(|_| "no ELF header")?;
        let parsed = Elf::lazy_parse(head).map_err(|_| "no ELF header")?;
        let headers = ProgramHeader::parse(
            &page,
            head.e_phoff as usize,
            usize::from(head.e_phnum).min(16),
            goblin::container::Ctx::new(
                goblin::container::Container::Big,
                goblin::container::Endian::Little,
            ),
        )
        .map_err(|_| "no program headers")?;
        let entry = parsed.header.e_entry;
        let loads: Vec<_> = headers.iter().filter(|h| h.p_type == PT_LOAD).collect();
        let (first, text, data) = match loads[..] {
            [first, text, data] => (first, text, data),
            // From before there was a guard.
            [text, data] => (text, text, data),
            _ => return Err("the loader has not two or three segments"),
        };
        let is_guarded = first.p_vaddr != text.p_vaddr;
        let guarded = (first.p_offset, first.p_filesz, page.len() as u64) == (0, PAGE, PAGE);
        if is_guarded && (!guarded || first.p_vaddr.checked_add(PAGE) != Some(text.p_vaddr)) {
            return Err("the first page is not the loader's guard");
        }
        if first.p_vaddr != base {
            return Err("the loader is not linked for its hole");
        }
        let part = |header: &ProgramHeader| {
            let start = header.p_offset.checked_sub(at)?;
            let end = start.checked_add(header.p_filesz)?;
            Some(
                bytes
                    .get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)?
                    .to_vec(),
            )
        };
        let distance = data.p_vaddr.checked_sub(first.p_vaddr);
        let (Some(text_bytes), Some(data_bytes), Some(data_offset)) =
            (part(text), part(data), distance)
        else {
            return Err("a segment reaches beyond the loader");
        };
        let span = data_offset
            .checked_add(data.p_memsz)
            .and_then(|end| end.checked_next_multiple_of(PAGE));
        match span {
            Some(span) if text.p_flags & PF_X != 0 => Ok(LinkedLoader {
                entry,
                guard: if is_guarded { guard_code(page) } else { vec![] },
                text: text_bytes,
                data_offset,
                data: data_bytes,
                data_mem_len: data.p_memsz,
                span,
            }),
            _ => Err("segments that cannot be mapped"),
        }
    }
}

/// The first page without what each image has of its own there.
fn guard_code(mut page: Vec<u8>) -> Vec<u8> {
    page[..guard::BEGIN as usize].fill(0);
    page[guard::PROGRAM_HEADERS_AT as usize..].fill(0);
    page
}

/// The carried program is not what the build script is meant to make.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoaderCodeError {
    /// It is no ELF file.
    #[error("the carried loader cannot be read")]
    Elf(#[from] goblin::error::Error),
    /// Its segments are not a guard, a text and a data segment in this order.
    #[error("the carried loader has {found} segments, expected guard, text and data")]
    Segments {
        /// Number of PT_LOAD segments.
        found: usize,
    },
    /// It wants something of a dynamic linker.
    #[error(
        "the carried loader has a relocation of type {kind} at {offset:#x}, expected RELATIVE only"
    )]
    Relocation {
        /// Type of the relocation.
        kind: u32,
        /// Address it is for.
        offset: u64,
    },
}

/// The loader for load address 0, and where words of its data are to be moved along.
struct Unmoved {
    loader: LinkedLoader,
    words: Vec<usize>,
}

/// Bytes of address space the loader's own segments take.
///
/// # Errors
/// [`LoaderCodeError`] if the build went wrong.
pub fn span() -> Result<u64, LoaderCodeError> {
    Ok(unmoved()?.loader.span)
}

/// Bytes that the loader's segments take in a file, a multiple of the page size.
///
/// # Errors
/// [`LoaderCodeError`] if the build went wrong.
pub fn file_len() -> Result<u64, LoaderCodeError> {
    let loader = &unmoved()?.loader;
    Ok((loader.text.len() + loader.data.len()) as u64)
}

/// The loader for load address `base`, a multiple of the page size.
///
/// # Errors
/// [`LoaderCodeError`] if the build went wrong.
pub fn link(base: u64) -> Result<LinkedLoader, LoaderCodeError> {
    let unmoved = unmoved()?;
    let mut loader = unmoved.loader.clone();
    loader.entry += base;
    for at in &unmoved.words {
        let word = &mut loader.data[*at..*at + 8];
        let mut value = [0; 8];
        value.copy_from_slice(word);
        let moved = base.wrapping_add(u64::from_le_bytes(value));
        word.copy_from_slice(&moved.to_le_bytes());
    }
    Ok(loader)
}

fn unmoved() -> Result<&'static Unmoved, LoaderCodeError> {
    static UNMOVED: OnceLock<Unmoved> = OnceLock::new();
    if let Some(unmoved) = UNMOVED.get() {
        return Ok(unmoved);
    }
    let read = read()?;
    Ok(UNMOVED.get_or_init(|| read))
}

fn read() -> Result<Unmoved, LoaderCodeError> {
    let elf = Elf::parse(PROGRAM)?;
    let loads: Vec<_> = elf
        .program_headers
        .iter()
        .filter(|header| header.p_type == PT_LOAD)
        .collect();
    let [guard_header, text_header, data_header] = loads[..] else {
        return Err(LoaderCodeError::Segments { found: loads.len() });
    };
    let fits = guard_header.p_vaddr == guard::BEGIN
        && guard_header.p_vaddr + guard_header.p_memsz <= guard::PROGRAM_HEADERS_AT
        && elf.entry == guard::BEGIN
        && text_header.p_vaddr == PAGE
        && text_header.p_flags & PF_X != 0
        && data_header.p_flags & PF_X == 0
        && data_header.p_vaddr % PAGE == 0
        && data_header.p_vaddr >= PAGE + text_header.p_memsz;
    let part = |header: &ProgramHeader| PROGRAM.get(header.file_range());
    let (Some(guard_bytes), Some(text_bytes), Some(data_bytes), true) = (
        part(guard_header),
        part(text_header),
        part(data_header),
        fits,
    ) else {
        return Err(LoaderCodeError::Segments { found: loads.len() });
    };
    let data_offset = data_header.p_vaddr;
    let mut guard = vec![0; guard::BEGIN as usize];
    guard.extend_from_slice(guard_bytes);
    guard.resize(PAGE as usize, 0);
    let mut text = text_bytes.to_vec();
    text.resize((data_offset - PAGE) as usize, 0);
    let mut data = data_bytes.to_vec();
    data.resize(data.len().next_multiple_of(PAGE as usize), 0);
    let mut words = vec![];
    for relocation in elf.dynrelas.iter() {
        let wrong = LoaderCodeError::Relocation {
            kind: relocation.r_type,
            offset: relocation.r_offset,
        };
        let place = relocation
            .r_offset
            .checked_sub(data_offset)
            .map(|at| at as usize);
        let word = place.and_then(|at| Some((at, data.get_mut(at..at.checked_add(8)?)?)));
        let (Some((at, word)), R_X86_64_RELATIVE) = (word, relocation.r_type) else {
            return Err(wrong);
        };
        let value = relocation.r_addend.unwrap_or(0) as u64;
        word.copy_from_slice(&value.to_le_bytes());
        words.push(at);
    }
    if let Some(other) = elf.dynrels.iter().chain(elf.pltrelocs.iter()).next() {
        return Err(LoaderCodeError::Relocation {
            kind: other.r_type,
            offset: other.r_offset,
        });
    }
    let end = data_offset + data_header.p_memsz.max(data.len() as u64);
    let loader = LinkedLoader {
        entry: elf.entry,
        guard,
        text,
        data_offset,
        data,
        data_mem_len: end - data_offset,
        span: end.next_multiple_of(PAGE),
    };
    Ok(Unmoved { loader, words })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linking_elsewhere_moves_every_pointer_by_the_same_distance() {
        let (low, high) = (
            link(0x1000_0000).expect("links"),
            link(0x7000_0000_0000).expect("links"),
        );
        let distance = 0x7000_0000_0000u64 - 0x1000_0000;
        assert_eq!(high.entry - low.entry, distance);
        assert_eq!(
            (PAGE + low.text.len() as u64, low.span % PAGE),
            (low.data_offset, 0)
        );
        let mut moved = 0;
        for (one, other) in low.data.chunks_exact(8).zip(high.data.chunks_exact(8)) {
            let [one, other] = [one, other].map(|raw| {
                let mut word = [0; 8];
                word.copy_from_slice(raw);
                u64::from_le_bytes(word)
            });
            assert!(one == other || other.wrapping_sub(one) == distance);
            moved += usize::from(one != other);
        }
        assert!(moved > 0, "no relocation was applied");
        assert!(low.entry >= 0x1000_0000 && low.entry < 0x1000_0000 + low.data_offset);
    }
}
