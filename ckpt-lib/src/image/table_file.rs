//! The tables of an image that is open: little of them in memory at a time.
//!
//! # What callers may rely on
//! A row that is given is the one that was there when the image was opened, or there is an error: an image that is
//! changed meanwhile is noticed ([`loader::layout::Windows`]).

use super::error::ImageError;
use super::reader::{self, read_exact};
use loader::layout::{
    ExtentTables, ExtentsHeader, Lost, Rows, Section, SectionKind, Unsound, WindowSum, Windows,
};
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The extents section of an image file.
#[derive(Debug)]
pub struct TableFile {
    file: Arc<File>,
    path: PathBuf,
    section: Section,
    windows: Mutex<Windows<Vec<u8>, Vec<WindowSum>>>,
    head: ExtentsHeader,
}

/// The tables of an image, which are read as they are asked for.
pub type Tables<'a> = ExtentTables<&'a TableFile>;

impl TableFile {
    /// Reads all of it once: it is as it was written, and its tables are sound by themselves.
    pub(super) fn open(
        file: &Arc<File>,
        path: &Path,
        section: &Section,
    ) -> Result<Self, ImageError> {
        let (places, sums) = Windows::room(section.len);
        let (places, sums) = (vec![0; places as usize], vec![0; sums as usize]);
        // The standard library has them by chance.
        let seed = RandomState::new().build_hasher().finish();
        let mut windows = Windows::new(section.len, seed, places, sums);
        let mut hasher = blake3::Hasher::new();
        let (mut seen, mut not_zero) = (0, None);
        windows.read_first(
            |at, to| read_exact(file, path, to, section.offset + at),
            |bytes| {
                hasher.update(bytes);
                let used = section.used.saturating_sub(seen).min(bytes.len() as u64);
                let found = bytes[used as usize..].iter().position(|byte| *byte != 0);
                let found = found.map(|at| seen + used + at as u64 - section.used);
                not_zero = not_zero.or(found);
                seen += bytes.len() as u64;
            },
        )?;
        reader::compare(path, section, hasher.finalize())?;
        reader::check_padding(path, section, not_zero)?;
        let mut tables = TableFile {
            file: Arc::clone(file),
            path: path.to_owned(),
            section: *section,
            windows: Mutex::new(windows),
            head: ExtentsHeader::default(),
        };
        let head = ExtentTables::read(&tables).map(|read| read.head());
        tables.head = head.map_err(|error| match error {
            Unsound::Wrong(wrong) => ImageError::layout(path, SectionKind::Extents, wrong),
            Unsound::Unread(error) => error,
        })?;
        Ok(tables)
    }

    /// What they say.
    pub(super) fn tables(&self) -> Tables<'_> {
        ExtentTables::of(self.head, self)
    }
}

impl Rows for TableFile {
    type Error = ImageError;

    fn used(&self) -> u64 {
        self.section.used
    }

    fn read(&self, at: u64, to: &mut [u8]) -> Result<(), ImageError> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let load =
            |at, to: &mut [u8]| read_exact(&self.file, &self.path, to, self.section.offset + at);
        windows.copy(at, to, load).map_err(|lost| match lost {
            Lost::Unread(error) => error,
            Lost::Changed(changed) => {
                let at = changed.at;
                let what = format!("changed while it was read, from its byte {at} on");
                ImageError::wrong(&self.path, SectionKind::Extents, what)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loader::layout::{Chunk, Encoding, Extent, PAGE, Space, WINDOW};
    use std::io::Write;
    use std::os::unix::fs::FileExt;
    use tempfile::NamedTempFile;

    const ROWS: u64 = 40_000;

    /// Tables of so many pages that lie alone, in a file, and its section.
    fn long_tables() -> (NamedTempFile, Section) {
        let head = ExtentsHeader {
            extents: ROWS,
            chunks: ROWS,
            bases: 0,
        };
        let mut bytes = head.encode().to_vec();
        for row in 0..ROWS {
            let extent = Extent {
                space: Space::Process(0).number(),
                at: 2 * row * PAGE,
                len: PAGE,
                image: 0,
                encoding: Encoding::Raw as u32,
                first_chunk: row,
            };
            bytes.extend(extent.encode());
        }
        for row in 0..ROWS {
            let chunk = Chunk {
                offset: row * PAGE,
                stored_len: PAGE as u32,
                raw_len: PAGE as u32,
                hash: [0; 32],
            };
            bytes.extend(chunk.encode());
        }
        let used = bytes.len() as u64;
        bytes.resize(bytes.len().next_multiple_of(PAGE as usize), 0);
        let section = Section {
            kind: SectionKind::Extents as u32,
            offset: 0,
            len: bytes.len() as u64,
            used,
            hash: *blake3::hash(&bytes).as_bytes(),
        };
        let mut file = NamedTempFile::new().expect("a file");
        file.write_all(&bytes).expect("writes");
        (file, section)
    }

    fn open(file: &NamedTempFile, section: &Section) -> Result<TableFile, ImageError> {
        let again = Arc::new(File::open(file.path()).expect("opens"));
        TableFile::open(&again, file.path(), section)
    }

    #[test]
    fn rows_of_long_tables_are_found_from_anywhere() {
        let (file, section) = long_tables();
        let tables = open(&file, &section).expect("sound");
        let tables = tables.tables();
        for at in (0..2 * ROWS).rev().step_by(977) {
            let mut found = tables.extents_within(Space::Process(0), at * PAGE, (at + 1) * PAGE);
            let extent = found.next().transpose().expect("reads");
            let expected = at.is_multiple_of(2).then_some(at / 2);
            assert_eq!(extent.map(|extent| extent.first_chunk), expected);
            let chunk = tables.chunk(at / 2).expect("reads").expect("there");
            assert_eq!(chunk.offset, at / 2 * PAGE);
        }
        let all = tables.extents().collect::<Result<Vec<_>, _>>();
        assert_eq!(all.expect("reads").len() as u64, ROWS);
    }

    #[test]
    fn tables_that_change_after_they_were_checked_are_an_error() {
        let (file, section) = long_tables();
        let tables = open(&file, &section).expect("sound");
        let tables = tables.tables();
        file.as_file().write_all_at(&[7], 40).expect("writes");
        let error = tables.extent(0).expect_err("changed");
        let said = error.to_string();
        assert!(said.contains(".wf.extents"), "{said}");
        assert!(said.contains("changed while it was read"), "{said}");
        // What is not in that part is as it was; nothing comes behind what cannot be read.
        let far = tables.extent(WINDOW / 40 + 2).expect("reads");
        assert!(far.is_some());
        let mut all = tables.extents();
        assert!(all.next().is_some_and(|first| first.is_err()));
        assert!(all.next().is_none());
        file.as_file().set_len(100).expect("cut short");
        let tables = tables
            .extents_of(Space::Process(0))
            .collect::<Result<Vec<_>, _>>();
        assert!(tables.is_err());
    }

    #[test]
    fn damage_and_padding_are_found_at_once() {
        let (file, section) = long_tables();
        let other = Section {
            hash: [0; 32],
            ..section
        };
        let error = open(&file, &other).expect_err("damaged");
        assert!(
            matches!(error, ImageError::DamagedSection { .. }),
            "{error}"
        );
        let mut bytes = std::fs::read(file.path()).expect("reads");
        let last = bytes.len() - 1;
        bytes[last] = 1;
        std::fs::write(file.path(), &bytes).expect("writes");
        let padded = Section {
            hash: *blake3::hash(&bytes).as_bytes(),
            ..section
        };
        let said = open(&file, &padded).expect_err("padding").to_string();
        let at = last as u64 - section.used;
        assert!(
            said.contains(&format!("byte {at} of its padding")),
            "{said}"
        );
    }
}
