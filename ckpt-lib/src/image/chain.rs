//! Images that build on earlier ones.
//!
//! ```text
//! chunk table of C: [ in C | in B (base 1) | in A (base 2) ]     one step, never more: C names
//!                                                                every file its bytes lie in
//! ```
//! # What callers may rely on
//! A base is known by its id (the checksum of its header page); its name only says where to look, in
//! the directory of the image that needs it.

use super::error::{HexHash, ImageError};
use super::limits;
use super::reader::{self, Image};
use super::table_file::Tables;
use loader::layout::{Base, Header, SectionKind, Unsound};
use loader::meaning::{self, Place, Unfit};
use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// An earlier image, open as far as its header.
#[derive(Debug)]
pub(super) struct Holder {
    file: File,
    path: PathBuf,
    /// Its pages section.
    pages: Range<u64>,
}

impl Image {
    /// Path of base number `index`, for messages.
    #[must_use]
    pub fn base_path(&self, index: usize) -> Option<&Path> {
        self.bases.get(index).map(|base| base.path.as_path())
    }

    /// All files that its bytes lie in: those that it is based on, and itself at last.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let bases = self.bases.iter().map(|base| base.path.as_path());
        bases.chain([self.path()])
    }

    /// The file that holds image number `image` of an extent.
    pub(super) fn holder(&self, image: u32) -> Option<(&Path, &File)> {
        match image {
            0 => Some((self.path(), self.file())),
            n => {
                let base = self.bases.get(n as usize - 1)?;
                Some((&base.path, &base.file))
            }
        }
    }

    /// An error about bytes of image number `image`, as this image sees it.
    pub(super) fn of_base(&self, image: u32, error: ImageError) -> ImageError {
        match self.base_path((image as usize).wrapping_sub(1)) {
            Some(base) => ImageError::Base {
                image: self.path().to_owned(),
                base: base.to_owned(),
                source: Box::new(error),
            },
            None => error,
        }
    }
}

/// Opens the bases of an image at `path`.
pub(super) fn open_bases(path: &Path, tables: &Tables<'_>) -> Result<Vec<Holder>, ImageError> {
    let count = tables.base_count();
    if count > limits::BASES {
        let what = format!("{count} bases, expected {} at most", limits::BASES);
        return Err(ImageError::wrong(path, SectionKind::Extents, what));
    }
    let open = |index| {
        let named = tables.base(index)?;
        let named = named
            .as_ref()
            .and_then(|base| Some((base, base_name(base)?)));
        let Some((base, name)) = named else {
            let what = format!("base {index} has no usable name");
            return Err(ImageError::wrong(path, SectionKind::Extents, what));
        };
        let base_path = path.with_file_name(OsStr::from_bytes(name));
        open_base(&base_path, base).map_err(|source| ImageError::Base {
            image: path.to_owned(),
            base: base_path,
            source: Box::new(source),
        })
    };
    (0..count).map(open).collect()
}

fn open_base(path: &Path, base: &Base) -> Result<Holder, ImageError> {
    let (file, header) = reader::open_header(path)?;
    if header.id != base.id {
        return Err(ImageError::Id {
            image: path.to_owned(),
            found: HexHash(header.id),
            expected: HexHash(base.id),
        });
    }
    let pages = header.section(SectionKind::Pages);
    Ok(Holder {
        file,
        path: path.to_owned(),
        pages: pages.offset..pages.offset + pages.len,
    })
}

fn within(pages: &Range<u64>, offset: u64, len: u64) -> bool {
    offset >= pages.start && offset.checked_add(len).is_some_and(|end| end <= pages.end)
}

/// The file name of a base: not empty, one component, NUL padded.
fn base_name(base: &Base) -> Option<&[u8]> {
    let len = base.name.iter().position(|byte| *byte == 0)?;
    let (name, padding) = base.name.split_at(len);
    let usable = !name.is_empty()
        && !name.contains(&b'/')
        && name != b"."
        && name != b".."
        && padding.iter().all(|byte| *byte == 0);
    usable.then_some(name)
}

/// The meaning of tables whose form is right: places of chunks, and that the chunks of this file fill
/// its pages section, each byte once. `gap` is told what lies between them: less than a page each time.
pub(super) fn check_tables(
    path: &Path,
    header: &Header,
    tables: &Tables<'_>,
    bases: &[Holder],
    mut gap: impl FnMut(Range<u64>) -> Result<(), ImageError>,
) -> Result<(), ImageError> {
    let wrong = |what: String| ImageError::wrong(path, SectionKind::Extents, what);
    let mut chunks = tables.chunks();
    for extent in tables.extents() {
        let extent = extent?;
        if extent.image == 0 {
            continue;
        }
        let holder = bases.get(extent.image as usize - 1);
        for index in extent.first_chunk..extent.first_chunk + extent.chunk_count() {
            let (Some(chunk), Some(holder)) = (chunks.get(index)?, holder) else {
                return Err(wrong(format!("chunk {index} is not there")));
            };
            if !within(&holder.pages, chunk.offset, u64::from(chunk.stored_len)) {
                return Err(wrong(format!("chunk {index} lies outside .wf.pages")));
            }
        }
    }
    let room = meaning::own_chunks(tables)?.clamp(2, meaning::PLACES as u64);
    let mut room = vec![Place::default(); room as usize];
    let gap = |range| gap(range).map_err(Unsound::Unread);
    meaning::check_places(header, tables, &mut room, gap).map_err(|error| unfit(path, error))
}

/// What does not fit, as an error of the image at `path`.
pub(super) fn unfit(path: &Path, error: Unfit<ImageError>) -> ImageError {
    match error {
        Unsound::Wrong(error) => ImageError::wrong(path, error.section, error.to_string()),
        Unsound::Unread(error) => error,
    }
}
