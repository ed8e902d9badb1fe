//! Reading an image: nothing is believed before its checksum has been compared.

use super::error::{HexHash, ImageError};
use crate::snapshot::SnapshotV1;
use loader::layout::{
    CHUNK, Chunk, ExtentTables, HEADER_LEN, HEADER_OFFSET, Hash, Header, Section, SectionKind,
    Space,
};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Metadata sections longer than this are refused before memory is taken for them.
const LONGEST_SECTION: u64 = 4 << 30;
/// Bytes that decoding a snapshot may take.
const META_LIMIT: usize = 1 << 30;

/// An image whose header, sections and tables have been checked.
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
    file: File,
    header: Header,
    platform: String,
    ops: Vec<u8>,
    meta: Vec<u8>,
    extents: Vec<u8>,
    bases: Vec<(PathBuf, File)>,
}

impl Image {
    /// Opens and checks everything but the contents of memory.
    ///
    /// # Errors
    /// [`ImageError`] naming section and place of the first thing that is wrong.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        let (file, metadata) = open_regular(path)?;
        check_owner(path, &metadata)?;
        let mut page = vec![0; HEADER_LEN];
        if metadata.len() < HEADER_OFFSET + HEADER_LEN as u64 {
            return Err(ImageError::Length {
                image: path.into(),
                found: metadata.len(),
                expected: HEADER_OFFSET + HEADER_LEN as u64,
            });
        }
        file.read_exact_at(&mut page, HEADER_OFFSET)
            .map_err(ImageError::io(path, "read its header"))?;
        let header = Header::decode(&page)
            .map_err(|error| ImageError::layout(path, SectionKind::Header, error))?;
        if metadata.len() != header.image_len {
            return Err(ImageError::Length {
                image: path.into(),
                found: metadata.len(),
                expected: header.image_len,
            });
        }
        let mut image = Image {
            path: path.into(),
            file,
            header,
            platform: String::new(),
            ops: vec![],
            meta: vec![],
            extents: vec![],
            bases: vec![],
        };
        for kind in [SectionKind::Elf, SectionKind::Loader, SectionKind::Tail] {
            image.read_section(kind)?;
        }
        let platform = image.read_section(SectionKind::Platform)?;
        image.platform = String::from_utf8(platform).map_err(|_| ImageError::Layout {
            image: path.into(),
            section: SectionKind::Platform.name(),
            what: "not UTF-8".into(),
        })?;
        image.ops = image.read_section(SectionKind::Ops)?;
        loader::ops::OpsList::read(&image.ops).map_err(|error| ImageError::Layout {
            image: path.into(),
            section: SectionKind::Ops.name(),
            what: format!("{} at byte {}", error.what, error.offset),
        })?;
        image.meta = image.read_section(SectionKind::Meta)?;
        image.extents = image.read_section(SectionKind::Extents)?;
        ExtentTables::read(&image.extents)
            .map_err(|error| ImageError::layout(path, SectionKind::Extents, error))?;
        image.open_bases()?;
        image.check_chunk_places()?;
        Ok(image)
    }

    fn read_section(&self, kind: SectionKind) -> Result<Vec<u8>, ImageError> {
        let section: Section = *self.header.section(kind);
        if section.len > LONGEST_SECTION {
            return Err(ImageError::Layout {
                image: self.path.clone(),
                section: kind.name(),
                what: format!("{} bytes, expected at most {LONGEST_SECTION}", section.len),
            });
        }
        let mut bytes = vec![0; section.len as usize];
        self.file
            .read_exact_at(&mut bytes, section.offset)
            .map_err(ImageError::io(&self.path, "read a section"))?;
        let found = *blake3::hash(&bytes).as_bytes();
        if found != section.hash {
            return Err(ImageError::DamagedSection {
                image: self.path.clone(),
                section: kind.name(),
                found: HexHash(found),
                expected: HexHash(section.hash),
            });
        }
        bytes.truncate(section.used as usize);
        Ok(bytes)
    }

    fn open_bases(&mut self) -> Result<(), ImageError> {
        let mut bases = vec![];
        let tables = self.tables();
        for index in 0..tables.base_count() {
            let Some(base) = tables.base(index) else {
                break;
            };
            let name = base
                .name
                .split(|byte| *byte == 0)
                .next()
                .unwrap_or_default();
            let name = String::from_utf8_lossy(name).into_owned();
            let sound = !name.is_empty() && !name.contains('/');
            let path = self.path.with_file_name(if sound { &name } else { "?" });
            let wrong = |found: String, expected: String| ImageError::Base {
                image: self.path.clone(),
                base: path.clone(),
                found,
                expected,
            };
            if !sound {
                return Err(wrong(
                    format!("the name {name:?}"),
                    "a plain file name".into(),
                ));
            }
            let (file, metadata) = open_regular(&path)
                .map_err(|error| wrong(error.to_string(), "an earlier image".into()))?;
            check_owner(&path, &metadata)?;
            let mut page = vec![0; HEADER_LEN];
            file.read_exact_at(&mut page, HEADER_OFFSET)
                .map_err(ImageError::io(&path, "read its header"))?;
            let header = Header::decode(&page)
                .map_err(|error| ImageError::layout(&path, SectionKind::Header, error))?;
            if header.id != base.id {
                let id = |hash| format!("image {}", HexHash(hash));
                return Err(wrong(id(header.id), id(base.id)));
            }
            bases.push((path, file));
        }
        self.bases = bases;
        Ok(())
    }

    /// Chunks of this file lie inside its Pages section.
    fn check_chunk_places(&self) -> Result<(), ImageError> {
        let pages = self.header.section(SectionKind::Pages);
        let end = pages.offset + pages.used;
        let tables = self.tables();
        for extent in tables.extents().filter(|extent| extent.image == 0) {
            for index in 0..extent.chunk_count() {
                let number = extent.first_chunk + index;
                let inside = tables.chunk(number).is_some_and(|chunk| {
                    let chunk_end = chunk.offset.checked_add(u64::from(chunk.stored_len));
                    chunk.offset >= pages.offset && chunk_end.is_some_and(|at| at <= end)
                });
                if !inside {
                    return Err(ImageError::Layout {
                        image: self.path.clone(),
                        section: SectionKind::Extents.name(),
                        what: format!("chunk {number} lies outside .wf.pages"),
                    });
                }
            }
        }
        Ok(())
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The CheckpointPlatform string.
    #[must_use]
    pub fn platform(&self) -> &str {
        &self.platform
    }

    /// The operation list's bytes.
    #[must_use]
    pub fn ops(&self) -> &[u8] {
        &self.ops
    }

    /// The extent tables.
    ///
    /// # Panics
    /// Never: they were read once when the image was opened.
    #[must_use]
    #[allow(clippy::expect_used)]
    pub fn tables(&self) -> ExtentTables<'_> {
        ExtentTables::split(&self.extents).expect("checked when the image was opened")
    }

    /// The snapshot.
    ///
    /// # Errors
    /// [`ImageError::Meta`].
    pub fn snapshot(&self) -> Result<SnapshotV1, ImageError> {
        let config = bincode::config::standard().with_limit::<META_LIMIT>();
        let (snapshot, len) =
            bincode::serde::decode_from_slice(&self.meta, config).map_err(|error| {
                ImageError::Meta {
                    image: self.path.clone(),
                    what: error.to_string(),
                }
            })?;
        if len != self.meta.len() {
            let what = format!("{} bytes found, {len} expected", self.meta.len());
            return Err(ImageError::Meta {
                image: self.path.clone(),
                what,
            });
        }
        Ok(snapshot)
    }

    /// The bytes of a snapshot as [`Image::snapshot`] reads them.
    ///
    /// # Errors
    /// [`ImageError::Meta`].
    pub fn encode_snapshot(snapshot: &SnapshotV1) -> Result<Vec<u8>, ImageError> {
        bincode::serde::encode_to_vec(snapshot, bincode::config::standard()).map_err(|error| {
            ImageError::Meta {
                image: PathBuf::new(),
                what: error.to_string(),
            }
        })
    }

    /// The file that holds image number `image` of an extent.
    pub(super) fn image_file(&self, image: u32) -> Option<(&Path, &File)> {
        match image {
            0 => Some((&self.path, &self.file)),
            n => self
                .bases
                .get(n as usize - 1)
                .map(|(path, file)| (path.as_path(), file)),
        }
    }

    /// The bytes of one chunk in memory, checked.
    ///
    /// # Errors
    /// [`ImageError::DamagedChunk`], or what reading the file gave.
    pub fn chunk_bytes(
        &self,
        image: u32,
        encoding: u32,
        number: u64,
    ) -> Result<Vec<u8>, ImageError> {
        let damaged_table = || ImageError::Layout {
            image: self.path.clone(),
            section: SectionKind::Extents.name(),
            what: format!("chunk {number} is not there"),
        };
        let chunk: Chunk = self.tables().chunk(number).ok_or_else(damaged_table)?;
        let (path, file) = self.image_file(image).ok_or_else(damaged_table)?;
        let mut stored = vec![0; chunk.stored_len as usize];
        file.read_exact_at(&mut stored, chunk.offset)
            .map_err(ImageError::io(path, "read pages"))?;
        let found: Hash = *blake3::hash(&stored).as_bytes();
        if found != chunk.hash {
            return Err(ImageError::DamagedChunk {
                image: path.into(),
                chunk: number,
                found: HexHash(found),
                expected: HexHash(chunk.hash),
            });
        }
        if encoding == loader::layout::Encoding::Raw as u32 {
            return Ok(stored);
        }
        let raw = zstd::bulk::decompress(&stored, chunk.raw_len as usize)
            .map_err(ImageError::io(path, "decompress pages"))?;
        if raw.len() != chunk.raw_len as usize {
            return Err(ImageError::Layout {
                image: path.into(),
                section: SectionKind::Pages.name(),
                what: format!(
                    "chunk {number}: {} bytes, expected {}",
                    raw.len(),
                    chunk.raw_len
                ),
            });
        }
        Ok(raw)
    }

    /// Fills `buf` with the contents of a space from `at` on; what has no contents is zero.
    ///
    /// # Errors
    /// As [`Image::chunk_bytes`].
    pub fn read_space(&self, space: Space, at: u64, buf: &mut [u8]) -> Result<(), ImageError> {
        buf.fill(0);
        let end = at.saturating_add(buf.len() as u64);
        for extent in self.tables().extents_within(space, at, end) {
            let first = at.saturating_sub(extent.at) / CHUNK;
            for index in first..extent.chunk_count() {
                let chunk_at = extent.at + index * CHUNK;
                let chunk_end = (chunk_at + CHUNK).min(extent.at + extent.len);
                if chunk_at >= end {
                    break;
                }
                let number = extent.first_chunk + index;
                let bytes = self.chunk_bytes(extent.image, extent.encoding, number)?;
                let from = at.max(chunk_at);
                let to = end.min(chunk_end);
                buf[(from - at) as usize..(to - at) as usize]
                    .copy_from_slice(&bytes[(from - chunk_at) as usize..(to - chunk_at) as usize]);
            }
        }
        Ok(())
    }
}

fn open_regular(path: &Path) -> Result<(File, std::fs::Metadata), ImageError> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(ImageError::io(path, "open it"))?;
    let metadata = file
        .metadata()
        .map_err(ImageError::io(path, "look at it"))?;
    let kind = metadata.file_type();
    if !kind.is_file() {
        let found = if kind.is_dir() {
            "a directory"
        } else if kind.is_fifo() {
            "a FIFO"
        } else {
            "a special file"
        };
        return Err(ImageError::NotAFile {
            image: path.into(),
            found,
        });
    }
    Ok((file, metadata))
}

/// An image is a program: it must be the user's own (or root's), and nobody else may write it.
fn check_owner(path: &Path, metadata: &std::fs::Metadata) -> Result<(), ImageError> {
    let user = nix::unistd::geteuid().as_raw();
    let owner = metadata.uid();
    // Inside a user namespace without a mapping for root its files show as the overflow id.
    if owner != user && owner != 0 && user != 0 {
        return Err(ImageError::Untrusted {
            image: path.into(),
            found: format!("owned by user {owner}"),
            expected: format!("user {user} or root"),
        });
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(ImageError::Untrusted {
            image: path.into(),
            found: format!("mode {:o}", metadata.mode() & 0o7777),
            expected: "not writable by group or others".into(),
        });
    }
    Ok(())
}

impl Image {
    /// Path of base number `index`, for messages.
    #[must_use]
    pub fn base_path(&self, index: usize) -> Option<&Path> {
        self.bases.get(index).map(|(path, _)| path.as_path())
    }
}

impl super::ByteSource for (&Image, Space) {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_space(self.1, at, buf).map_err(io::Error::other)
    }
}
