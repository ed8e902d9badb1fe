//! Where things lie in an image file: the fixed header, the table of sections,
//! and the tables of extents and chunks. `docs/IMAGE_FORMAT.md` shows it as
//! byte tables.
//!
//! ```text
//! 0      ELF header + program headers            (section Elf)
//! 4096   Header, one page                        (section Header)
//! 8192   loader text, loader data                (section Loader)
//! ...    pages                                   (section Pages)
//! ...    platform, ops, meta, extents, ELF tail  (in this order)
//! ```
//! The sections tile the file: each begins on a page where the one before it
//! ended, padding included, so that every byte of the file belongs to exactly
//! one section and is under exactly one checksum.

mod extents;
mod rows;
mod sums;
mod tables;
mod windows;

pub use extents::{
    BASE_BYTES, Base, CHUNK_BYTES, Chunk, EXTENT_BYTES, EXTENTS_HEADER_BYTES, Encoding, Extent,
    ExtentsHeader, Space,
};
pub use rows::{Rows, Unsound};
pub use sums::{chunk_hash, damage_part, damage_sum};
pub use tables::{Chunks, ExtentTables, UnsoundTables};
pub use windows::{Changed, Lost, WINDOW, WindowSum, Windows};

/// First bytes of the header.
pub const MAGIC: [u8; 8] = *b"WAYFARER";
/// Version of everything in this file. A reader accepts its own and the one before.
pub const FORMAT_VERSION: u32 = 1;
/// File offset of [`Header`].
pub const HEADER_OFFSET: u64 = 4096;
/// Bytes that the header occupies in the file (the rest of the page is zero).
pub const HEADER_LEN: usize = 4096;
/// Sections begin at multiples of this.
pub const PAGE: u64 = 4096;
/// Bytes of memory under one checksum, at most.
pub const CHUNK: u64 = 256 * 1024;
/// Length of every checksum, bytes: BLAKE3, but of chunks ([`chunk_hash`]).
pub const HASH_LEN: usize = 32;

/// A checksum.
pub type Hash = [u8; HASH_LEN];

/// Kinds of section, in file order. 0 is never valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum SectionKind {
    /// ELF header and program headers, one page.
    Elf = 1,
    /// The page that holds [`Header`]; its checksum is [`Header::id`].
    Header = 2,
    /// The loader's two segments, as the kernel maps them.
    Loader = 3,
    /// Contents of memory and files; covered by the chunk table, not by a section checksum.
    Pages = 4,
    /// The CheckpointPlatform string, UTF-8.
    Platform = 5,
    /// The operation list ([`crate::ops`]).
    Ops = 6,
    /// The snapshot, bincode, for people and tools.
    Meta = 7,
    /// [`ExtentsHeader`] and its tables.
    Extents = 8,
    /// ELF section names and section headers.
    Tail = 9,
}

/// Number of sections of a version 1 image.
pub const SECTION_COUNT: usize = 9;

impl SectionKind {
    /// All kinds in file order.
    pub const ALL: [SectionKind; SECTION_COUNT] = [
        SectionKind::Elf,
        SectionKind::Header,
        SectionKind::Loader,
        SectionKind::Pages,
        SectionKind::Platform,
        SectionKind::Ops,
        SectionKind::Meta,
        SectionKind::Extents,
        SectionKind::Tail,
    ];

    /// The kind with this number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }

    /// Bytes that a section of this kind may have, if that is limited.
    #[must_use]
    pub fn limit(self) -> Option<u64> {
        match self {
            SectionKind::Elf | SectionKind::Header => Some(PAGE),
            SectionKind::Loader | SectionKind::Tail => Some(limits::FIXED_LEN),
            SectionKind::Platform => Some(limits::PLATFORM_LEN),
            SectionKind::Ops => Some(limits::OPS_LEN),
            SectionKind::Meta => Some(limits::META_LEN),
            SectionKind::Extents => Some(limits::EXTENTS_LEN),
            SectionKind::Pages => None,
        }
    }

    /// The name used in messages and as ELF section name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SectionKind::Elf => ".wf.elf",
            SectionKind::Header => ".wf.header",
            SectionKind::Loader => ".wf.loader",
            SectionKind::Pages => ".wf.pages",
            SectionKind::Platform => ".wf.platform",
            SectionKind::Ops => ".wf.ops",
            SectionKind::Meta => ".wf.meta",
            SectionKind::Extents => ".wf.extents",
            SectionKind::Tail => ".wf.tail",
        }
    }
}

/// One section of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// [`SectionKind`] as number.
    pub kind: u32,
    /// File offset, a multiple of [`PAGE`] (but for the first, 0).
    pub offset: u64,
    /// Bytes up to the next section or the end of the file, padding included.
    pub len: u64,
    /// Bytes that mean something; the rest, up to `len`, is zero.
    pub used: u64,
    /// BLAKE3 of all `len` bytes; all zero for Header and Pages.
    pub hash: Hash,
}

/// The fixed header: readable before anything else is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Version of the format, see [`FORMAT_VERSION`].
    pub version: u32,
    /// Length of the whole file.
    pub image_len: u64,
    /// BLAKE3 of the header page with these 32 bytes zero. Names the image.
    pub id: Hash,
    /// First address of the hole the loader lives in.
    pub hole_base: u64,
    /// Length of the hole.
    pub hole_len: u64,
    /// The sections, in the order of [`SectionKind::ALL`].
    pub sections: [Section; SECTION_COUNT],
}

/// Why a header, section table or extent table is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// Fewer bytes than the structure needs.
    Short {
        /// Bytes found.
        found: u64,
        /// Bytes expected.
        expected: u64,
    },
    /// The first eight bytes are not [`MAGIC`].
    Magic,
    /// A version this reader does not know.
    Version {
        /// Version found in the header.
        found: u32,
    },
    /// The header's own checksum does not match.
    HeaderHash,
    /// Sections do not tile the file, or are not in order.
    Sections {
        /// Index of the first wrong section.
        index: u32,
    },
    /// A section is longer than a reader is willing to believe.
    TooLong {
        /// Which.
        kind: SectionKind,
        /// Its length.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// A row of a table does not fit, or the tables do not fit their section.
    Table(TableError),
}

/// What is wrong with a table of the extents section, and in which row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableError {
    /// `extent`, `chunk` or `base`.
    pub table: &'static str,
    /// The row.
    pub row: u64,
    /// Which value.
    pub what: &'static str,
    /// The value.
    pub found: u64,
    /// What it must be, or the limit that it breaks.
    pub expected: u64,
}

impl core::fmt::Display for TableError {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let TableError {
            table,
            row,
            what,
            found,
            expected,
        } = self;
        write!(
            to,
            "{table} {row}: {what}: found {found:#x}, expected {expected:#x}"
        )
    }
}

impl From<TableError> for LayoutError {
    fn from(error: TableError) -> Self {
        LayoutError::Table(error)
    }
}

/// Bounds on what a reader takes into memory, checked before anything is allocated.
pub mod limits {
    /// The platform string.
    pub const PLATFORM_LEN: u64 = 64 << 10;
    /// The operation list.
    pub const OPS_LEN: u64 = 1 << 30;
    /// The snapshot.
    pub const META_LEN: u64 = 1 << 30;
    /// The tables of extents and chunks, of which a reader has [`super::Windows::room`] in memory.
    pub const EXTENTS_LEN: u64 = 16 << 30;
    /// The loader; the ELF tail.
    pub const FIXED_LEN: u64 = 16 << 20;
    /// Images that one image may take contents from.
    pub const BASES: u64 = 512;
}

const SECTION_BYTES: usize = 4 + 4 + 8 + 8 + 8 + HASH_LEN;
const ID_AT: usize = 24;
const SECTIONS_AT: usize = ID_AT + HASH_LEN + 16;

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(raw)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(raw)
}

fn hash_at(bytes: &[u8], at: usize) -> Hash {
    let mut raw = [0; HASH_LEN];
    raw.copy_from_slice(&bytes[at..at + HASH_LEN]);
    raw
}

impl Header {
    /// The header page, its checksum filled in.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut page = [0; HEADER_LEN];
        page[0..8].copy_from_slice(&MAGIC);
        page[8..12].copy_from_slice(&self.version.to_le_bytes());
        page[12..16].copy_from_slice(&(HEADER_LEN as u32).to_le_bytes());
        page[16..24].copy_from_slice(&self.image_len.to_le_bytes());
        let after_id = ID_AT + HASH_LEN;
        page[after_id..after_id + 8].copy_from_slice(&self.hole_base.to_le_bytes());
        page[after_id + 8..after_id + 16].copy_from_slice(&self.hole_len.to_le_bytes());
        for (index, section) in self.sections.iter().enumerate() {
            let at = SECTIONS_AT + index * SECTION_BYTES;
            page[at..at + 4].copy_from_slice(&section.kind.to_le_bytes());
            page[at + 8..at + 16].copy_from_slice(&section.offset.to_le_bytes());
            page[at + 16..at + 24].copy_from_slice(&section.len.to_le_bytes());
            page[at + 24..at + 32].copy_from_slice(&section.used.to_le_bytes());
            page[at + 32..at + 32 + HASH_LEN].copy_from_slice(&section.hash);
        }
        let id = *blake3::hash(&page).as_bytes();
        page[ID_AT..ID_AT + HASH_LEN].copy_from_slice(&id);
        page
    }

    /// Reads a header page: length, magic, version, checksum, then meaning.
    ///
    /// # Errors
    /// The first [`LayoutError`] found, in that order.
    pub fn decode(page: &[u8]) -> Result<Self, LayoutError> {
        if page.len() < HEADER_LEN {
            return Err(LayoutError::Short {
                found: page.len() as u64,
                expected: HEADER_LEN as u64,
            });
        }
        let page = &page[..HEADER_LEN];
        if page[0..8] != MAGIC {
            return Err(LayoutError::Magic);
        }
        let version = u32_at(page, 8);
        if version != FORMAT_VERSION {
            return Err(LayoutError::Version { found: version });
        }
        let id = hash_at(page, ID_AT);
        let mut hasher = blake3::Hasher::new();
        hasher.update(&page[..ID_AT]);
        hasher.update(&[0; HASH_LEN]);
        hasher.update(&page[ID_AT + HASH_LEN..]);
        if *hasher.finalize().as_bytes() != id {
            return Err(LayoutError::HeaderHash);
        }
        let mut sections = [Section::default(); SECTION_COUNT];
        for (index, section) in sections.iter_mut().enumerate() {
            let at = SECTIONS_AT + index * SECTION_BYTES;
            *section = Section {
                kind: u32_at(page, at),
                offset: u64_at(page, at + 8),
                len: u64_at(page, at + 16),
                used: u64_at(page, at + 24),
                hash: hash_at(page, at + 32),
            };
        }
        let after_id = ID_AT + HASH_LEN;
        let header = Header {
            version,
            image_len: u64_at(page, 16),
            id,
            hole_base: u64_at(page, after_id),
            hole_len: u64_at(page, after_id + 8),
            sections,
        };
        header.check_tiling()?;
        Ok(header)
    }

    fn check_tiling(&self) -> Result<(), LayoutError> {
        let mut end = 0u64;
        for (index, section) in self.sections.iter().enumerate() {
            let wrong = LayoutError::Sections {
                index: index as u32,
            };
            let next = section.offset.checked_add(section.len).ok_or(wrong)?;
            let ordered = section.kind == SectionKind::ALL[index] as u32
                && section.offset == end
                && section.offset.is_multiple_of(PAGE)
                && section.used <= section.len;
            if !ordered {
                return Err(wrong);
            }
            end = next;
        }
        let header = self.sections[1];
        if header.offset != HEADER_OFFSET
            || header.len != HEADER_LEN as u64
            || end != self.image_len
        {
            return Err(LayoutError::Sections {
                index: SECTION_COUNT as u32,
            });
        }
        let too_long = |kind: SectionKind| {
            let found = self.section(kind).len;
            let limit = kind.limit().filter(|limit| found > *limit)?;
            Some(LayoutError::TooLong { kind, found, limit })
        };
        SectionKind::ALL
            .into_iter()
            .find_map(too_long)
            .map_or(Ok(()), Err)
    }

    /// The section of this kind.
    #[must_use]
    pub fn section(&self, kind: SectionKind) -> &Section {
        &self.sections[kind as usize - 1]
    }
}

/// [`Header::id`] as it stands in an encoded page.
#[must_use]
pub fn header_id(page: &[u8; HEADER_LEN]) -> Hash {
    hash_at(page, ID_AT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let mut sections = [Section::default(); SECTION_COUNT];
        let mut offset = 0;
        for (index, section) in sections.iter_mut().enumerate() {
            *section = Section {
                kind: SectionKind::ALL[index] as u32,
                offset,
                len: PAGE,
                used: 100,
                hash: [index as u8; 32],
            };
            offset += PAGE;
        }
        Header {
            version: FORMAT_VERSION,
            image_len: offset,
            id: [0; 32],
            hole_base: 0x1000,
            hole_len: 0x2000,
            sections,
        }
    }

    #[test]
    fn a_header_reads_back_as_written() {
        let page = header().encode();
        let mut read = Header::decode(&page).expect("decodes");
        read.id = [0; 32];
        assert_eq!(read, header());
    }

    #[test]
    fn any_flipped_bit_of_a_header_is_an_error() {
        let page = header().encode();
        for bit in 0..page.len() * 8 {
            let mut damaged = page;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&damaged).is_err(), "bit {bit}");
        }
    }
}
