//! Writing an image: beside its final name, then fsync, then the name.

use super::error::ImageError;
use super::pieces::{Piece, Store, tables};
use super::reader::Image;
use super::{ByteSource, elf};
use crate::loader_code::{self, LinkedLoader};
use crate::sys::memfd;
use loader::layout::ExtentsHeader;
use loader::layout::{
    Base, CHUNK, Encoding, Extent, FORMAT_VERSION, HEADER_LEN, HEADER_OFFSET, Hash, Header, PAGE,
    SECTION_COUNT, Section, SectionKind, Space,
};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// How an image is written.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// zstd level; none: pages as they are.
    pub compression: Option<i32>,
    /// Worker threads.
    pub threads: usize,
    /// An image of the final name may be replaced.
    pub overwrite: bool,
}

impl Default for WriteOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, |count| count.get().min(4));
        WriteOptions {
            compression: None,
            threads,
            overwrite: false,
        }
    }
}

/// Everything but contents.
#[derive(Debug)]
pub struct ImageParts<'a> {
    /// The CheckpointPlatform string.
    pub platform: &'a str,
    /// The operation list.
    pub ops: &'a [u8],
    /// The encoded snapshot.
    pub meta: &'a [u8],
    /// The loader, linked for the start of the hole.
    pub loader: &'a LinkedLoader,
    /// The hole.
    pub hole: Range<u64>,
}

/// An image that is on disk under its final name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Where.
    pub path: PathBuf,
    /// Its id.
    pub id: Hash,
    /// Bytes of the file.
    pub len: u64,
}

/// An image being written. Dropped without [`ImageWriter::commit`], it leaves nothing behind.
#[derive(Debug)]
pub struct ImageWriter {
    file: File,
    /// Where the image will stand; for messages only if it stays in memory.
    path: PathBuf,
    partial: Option<PathBuf>,
    options: WriteOptions,
    next_offset: AtomicU64,
    pages_at: u64,
    pieces: Vec<Piece>,
    bases: Vec<Base>,
}

impl Drop for ImageWriter {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            // Nothing can be done about a failure, and the name says what it is.
            let _ = std::fs::remove_file(partial);
        }
    }
}

impl ImageWriter {
    /// Begins an image beside its final name (`.NAME.PID.partial`).
    ///
    /// # Errors
    /// [`ImageError::Exists`], or [`ImageError::Io`] naming what could not be done.
    pub fn create(path: &Path, options: WriteOptions) -> Result<Self, ImageError> {
        match std::fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_dir() => {
                return Err(ImageError::NotAFile {
                    image: path.into(),
                    found: "a directory",
                });
            }
            Ok(_) if !options.overwrite => return Err(ImageError::Exists { image: path.into() }),
            _ => {}
        }
        let name = path.file_name().ok_or_else(|| ImageError::NotAFile {
            image: path.into(),
            found: "not a file name",
        })?;
        let mut partial_name = std::ffi::OsString::from(".");
        partial_name.push(name);
        partial_name.push(format!(".{}.partial", std::process::id()));
        let partial = path.with_file_name(partial_name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&partial)
            .map_err(ImageError::io(&partial, "create it"))?;
        Self::new(file, path.into(), Some(partial), options)
    }

    /// Begins an image that stays in memory (a memfd), for `wayfarer run`.
    ///
    /// # Errors
    /// [`ImageError::Io`].
    pub fn create_in_memory(name: &str) -> Result<Self, ImageError> {
        let path = PathBuf::from(name);
        let file = memfd::create(name).map_err(ImageError::io(&path, "create it in memory"))?;
        Self::new(
            file,
            path,
            None,
            WriteOptions {
                threads: 1,
                ..WriteOptions::default()
            },
        )
    }

    fn new(
        file: File,
        path: PathBuf,
        partial: Option<PathBuf>,
        options: WriteOptions,
    ) -> Result<Self, ImageError> {
        let loader_len = loader_code::file_len().map_err(|error| ImageError::Io {
            image: path.clone(),
            what: "read the carried loader",
            source: io::Error::other(error),
        })?;
        let pages_at = HEADER_OFFSET + HEADER_LEN as u64 + loader_len;
        Ok(ImageWriter {
            file,
            path,
            partial,
            options,
            next_offset: AtomicU64::new(pages_at),
            pages_at,
            pieces: vec![],
            bases: vec![],
        })
    }

    /// Stores the pages of these ranges that are not all zero. Ranges begin at multiples of the page
    /// size; `progress` hears of every byte gone through.
    ///
    /// # Errors
    /// [`ImageError::Source`] if the bytes cannot be read, [`ImageError::Io`] if they cannot be written.
    pub fn store(
        &mut self,
        space: Space,
        ranges: &[Range<u64>],
        source: &dyn ByteSource,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), ImageError> {
        self.store_pages(space, ranges, source, progress, false)
    }

    /// As [`ImageWriter::store`], but pages of zeros are stored too: those that a process changed in
    /// a private mapping of a file, where the restart finds the file's bytes otherwise.
    ///
    /// # Errors
    /// As [`ImageWriter::store`].
    pub fn store_with_zeros(
        &mut self,
        space: Space,
        ranges: &[Range<u64>],
        source: &dyn ByteSource,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), ImageError> {
        self.store_pages(space, ranges, source, progress, true)
    }

    fn store_pages(
        &mut self,
        space: Space,
        ranges: &[Range<u64>],
        source: &dyn ByteSource,
        progress: &(dyn Fn(u64) + Sync),
        keep_zeros: bool,
    ) -> Result<(), ImageError> {
        let store = Store {
            file: &self.file,
            path: &self.path,
            options: &self.options,
            next_offset: &self.next_offset,
            keep_zeros,
        };
        self.pieces
            .extend(store.store(space, ranges, source, progress)?);
        Ok(())
    }

    /// Names an earlier image in the same directory whose pages this one uses; returns its number.
    pub fn add_base(&mut self, id: Hash, name: &str) -> u32 {
        let mut padded = [0; 224];
        let len = name.len().min(padded.len());
        padded[..len].copy_from_slice(&name.as_bytes()[..len]);
        self.bases.push(Base { id, name: padded });
        self.bases.len() as u32
    }

    /// Points at an extent that image `number` ([`ImageWriter::add_base`]) has in its own file,
    /// instead of storing its bytes again. Extents that `base` itself takes from elsewhere, and
    /// encodings it does not know, are left alone: `false`.
    pub fn reuse(&mut self, number: u32, base: &Image, extent: &Extent) -> bool {
        let encodings = [Encoding::Raw, Encoding::Zstd];
        let encoding = encodings
            .into_iter()
            .find(|known| *known as u32 == extent.encoding);
        let space = Space::from_number(extent.space);
        let (Some(space), Some(encoding), 0) = (space, encoding, extent.image) else {
            return false;
        };
        let tables = base.tables();
        for index in 0..extent.chunk_count() {
            let Some(chunk) = tables.chunk(extent.first_chunk + index) else {
                return false;
            };
            self.pieces.push(Piece {
                space,
                at: extent.at + index * CHUNK,
                len: chunk.raw_len,
                image: number,
                encoding,
                offset: chunk.offset,
                stored_len: chunk.stored_len,
                hash: chunk.hash,
            });
        }
        true
    }

    /// The ranges of a space that have been stored so far, in order.
    #[must_use]
    pub fn stored(&self, space: Space) -> Vec<Range<u64>> {
        let own = self.pieces.iter().filter(|piece| piece.space == space);
        let mut ranges: Vec<_> = own
            .map(|piece| piece.at..piece.at + u64::from(piece.len))
            .collect();
        ranges.sort_by_key(|range| range.start);
        let mut joined: Vec<Range<u64>> = vec![];
        for range in ranges {
            match joined.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => joined.push(range),
            }
        }
        joined
    }

    /// Bytes the extents section will have, from what has been stored so far.
    #[must_use]
    pub fn extents_len(&self) -> u64 {
        let (extents, chunks) = tables(self.pieces.clone());
        let extents = extents.len() * loader::layout::EXTENT_BYTES;
        let chunks = chunks.len() * loader::layout::CHUNK_BYTES;
        let bases = self.bases.len() * loader::layout::BASE_BYTES;
        (loader::layout::EXTENTS_HEADER_BYTES + extents + chunks + bases) as u64
    }

    /// Writes what is left, brings everything to the disk, and gives the image its name.
    ///
    /// # Errors
    /// [`ImageError::Io`] naming the step; nothing is under the final name then.
    pub fn commit(mut self, parts: &ImageParts<'_>) -> Result<Committed, ImageError> {
        let (id, len) = self.finish(parts)?;
        let directory = parent(&self.path);
        if let Some(partial) = self.partial.take() {
            let result = self.name(&partial, &directory);
            if let Err(error) = result {
                self.partial = Some(partial);
                return Err(error);
            }
        }
        Ok(Committed {
            path: self.path.clone(),
            id,
            len,
        })
    }

    /// Like [`ImageWriter::commit`] for an image in memory: gives back the memfd.
    ///
    /// # Errors
    /// [`ImageError::Io`].
    pub fn commit_in_memory(mut self, parts: &ImageParts<'_>) -> Result<File, ImageError> {
        self.finish(parts)?;
        self.file
            .try_clone()
            .map_err(ImageError::io(&self.path, "keep it open"))
    }

    fn name(&self, partial: &Path, directory: &Path) -> Result<(), ImageError> {
        self.file
            .set_permissions(std::fs::Permissions::from_mode(0o700))
            .map_err(ImageError::io(&self.path, "make it executable"))?;
        self.file
            .sync_all()
            .map_err(ImageError::io(&self.path, "bring it to the disk"))?;
        if self.options.overwrite {
            std::fs::rename(partial, &self.path)
                .map_err(ImageError::io(&self.path, "give it its name"))?;
        } else {
            nix::fcntl::renameat2(
                nix::fcntl::AT_FDCWD,
                partial,
                nix::fcntl::AT_FDCWD,
                &self.path,
                nix::fcntl::RenameFlags::RENAME_NOREPLACE,
            )
            .map_err(|error| match error {
                nix::errno::Errno::EEXIST => ImageError::Exists {
                    image: self.path.clone(),
                },
                other => ImageError::io(&self.path, "give it its name")(other.into()),
            })?;
        }
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(ImageError::io(directory, "bring the directory to the disk"))
    }

    fn finish(&mut self, parts: &ImageParts<'_>) -> Result<(Hash, u64), ImageError> {
        let (extents, chunks) = tables(std::mem::take(&mut self.pieces));
        let head = ExtentsHeader {
            extents: extents.len() as u64,
            chunks: chunks.len() as u64,
            bases: self.bases.len() as u64,
        };
        let mut table = head.encode().to_vec();
        table.extend(extents.iter().flat_map(|extent| extent.encode()));
        table.extend(chunks.iter().flat_map(|chunk| chunk.encode()));
        table.extend(self.bases.iter().flat_map(|base| base.encode()));

        let mut sections = [Section::default(); SECTION_COUNT];
        let place = |sections: &mut [Section], kind: SectionKind, offset: u64, used: u64| {
            let len = used.next_multiple_of(PAGE);
            let section = Section {
                kind: kind as u32,
                offset,
                len,
                used,
                hash: [0; 32],
            };
            sections[kind as usize - 1] = section;
            offset + len
        };
        let loader_used = (parts.loader.text.len() + parts.loader.data.len()) as u64;
        let pages_used = self.next_offset.load(Ordering::Relaxed) - self.pages_at;
        place(&mut sections, SectionKind::Elf, 0, PAGE);
        place(
            &mut sections,
            SectionKind::Header,
            HEADER_OFFSET,
            HEADER_LEN as u64,
        );
        let loader_at = HEADER_OFFSET + HEADER_LEN as u64;
        let at = place(&mut sections, SectionKind::Loader, loader_at, loader_used);
        let at = place(&mut sections, SectionKind::Pages, at, pages_used);
        let at = place(
            &mut sections,
            SectionKind::Platform,
            at,
            parts.platform.len() as u64,
        );
        let at = place(&mut sections, SectionKind::Ops, at, parts.ops.len() as u64);
        let at = place(
            &mut sections,
            SectionKind::Meta,
            at,
            parts.meta.len() as u64,
        );
        let at = place(&mut sections, SectionKind::Extents, at, table.len() as u64);
        let (tail, headers_at) = elf::tail(&sections, at);
        let image_len = place(&mut sections, SectionKind::Tail, at, tail.len() as u64);
        let elf_head = elf::head(parts.loader, parts.hole.start, loader_at, headers_at);
        let mut loader_bytes = parts.loader.text.clone();
        loader_bytes.extend(&parts.loader.data);

        let bodies: [(SectionKind, &[u8]); 7] = [
            (SectionKind::Elf, &elf_head),
            (SectionKind::Loader, &loader_bytes),
            (SectionKind::Platform, parts.platform.as_bytes()),
            (SectionKind::Ops, parts.ops),
            (SectionKind::Meta, parts.meta),
            (SectionKind::Extents, &table),
            (SectionKind::Tail, &tail),
        ];
        let write = |offset, bytes: &[u8]| {
            self.file
                .write_all_at(bytes, offset)
                .map_err(ImageError::io(&self.path, "write it"))
        };
        self.file
            .set_len(image_len)
            .map_err(ImageError::io(&self.path, "set its length"))?;
        for (kind, bytes) in bodies {
            let section = &mut sections[kind as usize - 1];
            let mut hasher = blake3::Hasher::new();
            hasher.update(bytes);
            let padding = section.len - bytes.len() as u64;
            hasher.update(&vec![0; padding as usize]);
            section.hash = *hasher.finalize().as_bytes();
            write(section.offset, bytes)?;
        }
        let header = Header {
            version: FORMAT_VERSION,
            image_len,
            id: [0; 32],
            hole_base: parts.hole.start,
            hole_len: parts.hole.end - parts.hole.start,
            sections,
        };
        let page = header.encode();
        write(HEADER_OFFSET, &page)?;
        let id = loader::layout::header_id(&page);
        Ok((id, image_len))
    }
}

/// The directory a path is in.
fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.into(),
        _ => PathBuf::from("."),
    }
}
