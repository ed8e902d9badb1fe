//! Opening an image: nothing is believed before its checksum has been.
//!
//! ```text
//! regular file? owner, mode -> header -> length -> limits -> checksums of sections -> tables
//! ```
//! # What callers may rely on
//! An [`Image`] is whole but for the contents of its chunks, which are checked when they are
//! read ([`Image::read_space`], [`Image::verify`]). The images that it builds on are there.

use super::chain::{self, Holder};
use super::contents::Decoded;
use super::error::{HexHash, ImageError};
use super::table_file::{TableFile, Tables};
use crate::loader_code::LinkedLoader;
use loader::layout::{HEADER_LEN, HEADER_OFFSET, Header, Section, SectionKind};
use loader::ops::OpsList;
use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Bytes read at a time where only the checksum matters.
const PIECE: usize = 256 << 10;

/// An image file, opened and checked.
#[derive(Debug)]
pub struct Image {
    file: Arc<File>,
    path: PathBuf,
    header: Header,
    platform: String,
    extents: TableFile,
    pub(super) bases: Vec<Holder>,
    pub(super) decoded: Mutex<Option<Decoded>>,
}

impl Image {
    /// Opens and checks everything but the contents of memory and files.
    ///
    /// # Errors
    /// [`ImageError`] naming section and place of the first thing that is wrong.
    pub fn open(path: &Path) -> Result<Image, ImageError> {
        let (file, header) = open_header(path)?;
        let file = Arc::new(file);
        for kind in [SectionKind::Elf, SectionKind::Loader, SectionKind::Tail] {
            check_section(&file, path, header.section(kind))?;
        }
        let section = |kind| read_section(&file, path, header.section(kind));
        let platform = String::from_utf8(section(SectionKind::Platform)?).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            ImageError::wrong(
                path,
                SectionKind::Platform,
                format!("byte {at} is not UTF-8"),
            )
        })?;
        let ops = section(SectionKind::Ops)?;
        OpsList::read(&ops).map_err(|error| {
            let what = format!("{} at byte {}", error.what, error.offset);
            ImageError::wrong(path, SectionKind::Ops, what)
        })?;
        // Kept in nobody's memory: they grow with the job's threads and mappings.
        drop(ops);
        section(SectionKind::Meta)?;
        let extents = TableFile::open(&file, path, header.section(SectionKind::Extents))?;
        let bases = chain::open_bases(path, &extents.tables())?;
        chain::check_tables(path, &header, &extents.tables(), &bases, |_| Ok(()))?;
        Ok(Image {
            file,
            path: path.to_owned(),
            header,
            platform,
            extents,
            bases,
            decoded: Mutex::new(None),
        })
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file, positioned anywhere.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The fixed header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The CheckpointPlatform string.
    #[must_use]
    pub fn platform(&self) -> &str {
        &self.platform
    }

    /// The operation list ([`loader::ops::OpsList::read`]), read and checked again.
    ///
    /// # Errors
    /// [`ImageError`] when it has changed since the image was opened, or cannot be read any more.
    pub fn ops(&self) -> Result<Vec<u8>, ImageError> {
        self.read_again(SectionKind::Ops)
    }

    /// The snapshot as bytes, read and checked again.
    ///
    /// # Errors
    /// As [`Image::ops`].
    pub fn meta_bytes(&self) -> Result<Vec<u8>, ImageError> {
        self.read_again(SectionKind::Meta)
    }

    fn read_again(&self, kind: SectionKind) -> Result<Vec<u8>, ImageError> {
        read_section(&self.file, &self.path, self.header.section(kind))
    }

    /// The tables of extents, chunks and bases, which were read once when the image was opened.
    #[must_use]
    pub fn tables(&self) -> Tables<'_> {
        self.extents.tables()
    }

    /// Its tables, without the rest.
    pub(super) fn into_tables(self) -> TableFile {
        self.extents
    }

    /// Bytes of memory and files that it has.
    ///
    /// # Errors
    /// [`ImageError`] when its tables cannot be read any more.
    pub fn contents_bytes(&self) -> Result<u64, ImageError> {
        let mut extents = self.tables().extents();
        extents.try_fold(0, |sum, extent| Ok(sum + extent?.len))
    }

    /// The loader as it is in the image.
    ///
    /// # Errors
    /// [`ImageError::Meaning`] if the program headers are not those of an image.
    pub fn loader(&self) -> Result<LinkedLoader, ImageError> {
        let wrong = |what: &str| ImageError::wrong(&self.path, SectionKind::Elf, what);
        let page = read_section(
            &self.file,
            &self.path,
            self.header.section(SectionKind::Elf),
        )?;
        let section = self.header.section(SectionKind::Loader);
        let bytes = read_section(&self.file, &self.path, section)?;
        let base = self.header.hole_base;
        LinkedLoader::in_image(page, &bytes, section.offset, base).map_err(wrong)
    }
}

/// Opens an image file as far as its header.
pub(super) fn open_header(path: &Path) -> Result<(File, Header), ImageError> {
    // Opening a FIFO must not wait for somebody at its other end.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(ImageError::io(path, "open it"))?;
    let metadata = file
        .metadata()
        .map_err(ImageError::io(path, "look at it"))?;
    check_kind(path, &metadata)?;
    check_owner(path, &metadata)?;
    let least = HEADER_OFFSET + HEADER_LEN as u64;
    let length = |expected, place| ImageError::Length {
        image: path.to_owned(),
        found: metadata.len(),
        expected,
        place,
    };
    if metadata.len() < least {
        let place = format!("before the end of {}", SectionKind::Header.name());
        return Err(length(least, place));
    }
    let mut page = [0; HEADER_LEN];
    read_exact(&file, path, &mut page, HEADER_OFFSET)?;
    let header = Header::decode(&page)
        .map_err(|error| ImageError::layout(path, SectionKind::Header, error))?;
    if header.image_len != metadata.len() {
        return Err(length(header.image_len, end_at(&header, metadata.len())));
    }
    Ok((file, header))
}

/// Where an image ends that has this length.
fn end_at(header: &Header, len: u64) -> String {
    if len > header.image_len {
        return "behind its last section".to_owned();
    }
    let has_begun = |kind: &SectionKind| header.section(*kind).offset < len;
    let last = SectionKind::ALL.into_iter().rfind(has_begun);
    format!("in {}", last.unwrap_or(SectionKind::Elf).name())
}

fn check_kind(path: &Path, metadata: &Metadata) -> Result<(), ImageError> {
    let kind = metadata.file_type();
    let found = match kind {
        _ if kind.is_file() => return Ok(()),
        _ if kind.is_dir() => "a directory",
        _ if kind.is_fifo() => "a FIFO",
        _ => "a special file",
    };
    Err(ImageError::NotAFile {
        image: path.to_owned(),
        found,
    })
}

/// An image is a program: it must be the user's own (or root's), and nobody else may write it.
fn check_owner(path: &Path, metadata: &Metadata) -> Result<(), ImageError> {
    let user = nix::unistd::geteuid().as_raw();
    let owner = metadata.uid();
    let untrusted = |found, expected: &str| ImageError::Untrusted {
        image: path.to_owned(),
        found,
        expected: expected.to_owned(),
    };
    if owner != user && owner != 0 && user != 0 {
        let expected = format!("user {user} or root");
        return Err(untrusted(format!("owned by user {owner}"), &expected));
    }
    if metadata.mode() & 0o022 != 0 {
        let found = format!("mode {:o}", metadata.mode() & 0o7777);
        return Err(untrusted(found, "not writable by group or others"));
    }
    Ok(())
}

pub(super) fn read_exact(
    file: &File,
    path: &Path,
    to: &mut [u8],
    at: u64,
) -> Result<(), ImageError> {
    file.read_exact_at(to, at)
        .map_err(ImageError::io(path, "read it"))
}

/// Whether a section is what it was written as.
pub(super) fn compare(
    path: &Path,
    section: &Section,
    found: blake3::Hash,
) -> Result<(), ImageError> {
    if *found.as_bytes() == section.hash {
        return Ok(());
    }
    let kind = SectionKind::from_number(section.kind);
    Err(ImageError::DamagedSection {
        image: path.to_owned(),
        section: kind.map_or("a section", SectionKind::name),
        at: section.offset,
        len: section.len,
        found: HexHash(found.into()),
        expected: HexHash(section.hash),
    })
}

/// Reads a section only for its checksum.
pub(super) fn check_section(file: &File, path: &Path, section: &Section) -> Result<(), ImageError> {
    let mut buffer = vec![0; PIECE.min(section.len as usize)];
    let mut hasher = blake3::Hasher::new();
    let mut done = 0;
    while done < section.len {
        let len = (section.len - done).min(PIECE as u64) as usize;
        read_exact(file, path, &mut buffer[..len], section.offset + done)?;
        hasher.update(&buffer[..len]);
        done += len as u64;
    }
    compare(path, section, hasher.finalize())
}

/// The used bytes of a section, whose length is within its limit. The rest must be zero.
fn read_section(file: &File, path: &Path, section: &Section) -> Result<Vec<u8>, ImageError> {
    let mut bytes = vec![0; section.len as usize];
    read_exact(file, path, &mut bytes, section.offset)?;
    compare(path, section, blake3::hash(&bytes))?;
    let padding = bytes.get(section.used as usize..).unwrap_or(&[]);
    let found = padding.iter().position(|byte| *byte != 0);
    check_padding(path, section, found.map(|at| at as u64))?;
    bytes.truncate(section.used as usize);
    Ok(bytes)
}

/// `not_zero`: the first byte of a section's padding that is not.
pub(super) fn check_padding(
    path: &Path,
    section: &Section,
    not_zero: Option<u64>,
) -> Result<(), ImageError> {
    let Some(at) = not_zero else { return Ok(()) };
    let kind = SectionKind::from_number(section.kind).unwrap_or(SectionKind::Header);
    let what = format!("byte {at} of its padding is not 0");
    Err(ImageError::wrong(path, kind, what))
}
