//! Writing an image: pages first, then everything that describes them, the header last.
//!
//! ```text
//! create -> build_on (chunks that lie in an earlier image are not stored) -> store -> store ... -> commit
//!        `> send_to (contents go to another machine)
//! ```
//! # What callers may rely on
//! Until [`ImageWriter::commit`] returns, nothing stands under the final name; a writer that is
//! dropped leaves nothing. Files are 0600 while they are written and 0700 at the end: an
//! image is also a program, for its owner. Memory in use does not grow with the contents ([`super::pieces`]),
//! but for the tables of an earlier image that this one is built on, and what is known of its unwritten memory.

use super::bytes::Bytes;
use super::destination::{Destination, write_behind};
use super::earlier::Earlier;
use super::elf;
use super::error::{ImageError, SpaceName};
use super::extents::Piece;
use super::pieces::Pieces;
use super::ranges;
use super::section::SectionFile;
use super::store::{self, Job, PUT_ASIDE, Part, Zeros};
use super::tables::{self, Tables};
use super::{Away, ByteSource, Image};
use crate::loader_code::{self, LinkedLoader};
use crate::pace::{Pace, Rate};
use loader::layout::{
    Base, CHUNK, Chunk, Encoding, Extent, FORMAT_VERSION, HEADER_LEN, HEADER_OFFSET, Hash, Header,
    PAGE, SECTION_COUNT, Section, SectionKind, Space, header_id,
};
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// File offset of the loader.
const LOADER_OFFSET: u64 = HEADER_OFFSET + HEADER_LEN as u64;

/// How an image is written.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// zstd level; none: contents are stored as they are.
    pub compression: Option<i32>,
    /// Threads that read, hash and write; 0: as many as there are processors, 4 at most.
    pub threads: usize,
    /// A file of the final name may be replaced.
    pub overwrite: bool,
    /// Contents are written no faster than that; if it is given up, there is no image.
    pub rate: Option<Rate>,
    /// Until [`ImageWriter::slows_down`] as fast as they can.
    pub hurries: bool,
    /// Called when all is on the disk, and the image is about to get its name.
    pub commits: Option<fn()>,
    /// The file may have so many bytes; more are refused, at the latest some MiB behind that.
    pub most: Option<u64>,
    /// It is taken to another machine, and made durable there: this one's disk is not waited for.
    pub passes: bool,
}

/// What an image holds besides contents.
#[derive(Clone, Debug)]
pub struct ImageParts<'a> {
    /// The CheckpointPlatform string.
    pub platform: &'a str,
    /// The operation list, see [`crate::plan`].
    pub ops: Bytes<'a>,
    /// The snapshot, see [`Image::encode_snapshot`]; may be empty in an image that restores nothing.
    pub meta: Bytes<'a>,
    /// The loader, linked for the beginning of the hole.
    pub loader: &'a LinkedLoader,
    /// Free address space in the job, for the loader.
    pub hole: Range<u64>,
}

/// A whole image under its final name, on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its name.
    pub path: PathBuf,
    /// Its id, see [`Header::id`].
    pub id: Hash,
    /// Its length in bytes.
    pub len: u64,
}

/// An image under construction.
#[derive(Debug)]
pub struct ImageWriter {
    destination: Destination,
    options: WriteOptions,
    pace: Option<Pace>,
    loader_len: u64,
    /// End of what has been written to the pages section.
    end: u64,
    /// Up to here the disk has been told to write.
    behind: u64,
    pieces: Pieces,
    bases: Vec<Base>,
    earlier: Option<Earlier>,
    /// Memory that is as it was when the earlier image was made.
    unwritten: HashMap<u64, Vec<Range<u64>>>,
    away: Option<Arc<dyn Away>>,
    /// A store has failed: the contents are not whole.
    spoilt: bool,
}

impl ImageWriter {
    /// Where what it cannot have in memory is put aside: the image's folder, or one for temporary files if it is in memory itself.
    pub(crate) fn folder(&self) -> PathBuf {
        self.destination.folder()
    }

    /// Begins an image that will be called `final_path`; a partial file appears beside it.
    ///
    /// # Errors
    /// [`ImageError::Exists`], [`ImageError::NotAFile`], [`ImageError::Io`].
    pub fn create(final_path: &Path, options: WriteOptions) -> Result<Self, ImageError> {
        let destination = Destination::beside(final_path, options.overwrite)?;
        Self::new(destination, options)
    }

    /// Begins an image in a memory file (`memfd_create`), for `wayfarer run`.
    ///
    /// # Errors
    /// [`ImageError::Io`].
    pub fn create_in_memory(name: &str) -> Result<Self, ImageError> {
        Self::new(Destination::memory(name)?, WriteOptions::default())
    }

    /// As [`ImageWriter::create`], with the loader of another image.
    pub(super) fn create_for(
        final_path: &Path,
        options: WriteOptions,
        loader: &LinkedLoader,
    ) -> Result<Self, ImageError> {
        let destination = Destination::beside(final_path, options.overwrite)?;
        let loader_len = (loader.text.len() + loader.data.len()) as u64;
        Ok(Self::with_loader(destination, options, loader_len))
    }

    fn new(destination: Destination, options: WriteOptions) -> Result<Self, ImageError> {
        let loader_len = loader_code::file_len().map_err(|error| ImageError::Unwritable {
            image: destination.path.clone(),
            what: error.to_string(),
        })?;
        Ok(Self::with_loader(destination, options, loader_len))
    }

    fn with_loader(destination: Destination, options: WriteOptions, loader_len: u64) -> Self {
        let pages_at = LOADER_OFFSET + loader_len.next_multiple_of(PAGE);
        let mut pace = options.rate.clone().map(Pace::new);
        if let Some(pace) = &mut pace {
            pace.hurries(options.hurries);
        }
        ImageWriter {
            pieces: Pieces::new(destination.folder()),
            destination,
            pace,
            options,
            loader_len,
            end: pages_at,
            behind: pages_at,
            bases: vec![],
            earlier: None,
            unwritten: HashMap::new(),
            away: None,
            spoilt: false,
        }
    }

    /// Stores the contents of these ranges of a space; pages that are all zero are left out. See
    /// [`ImageWriter::store_parts`].
    ///
    /// # Errors
    /// As [`ImageWriter::store_parts`].
    pub fn store(
        &mut self,
        space: Space,
        ranges: &[Range<u64>],
        source: &dyn ByteSource,
        progress: &dyn Fn(u64),
    ) -> Result<(), ImageError> {
        let ranges = ranges.to_vec();
        let part = Part::new(space, &ranges, source, Zeros::Dropped)?;
        self.store_parts(&[part], progress)
    }

    /// Stores contents, of all parts side by side. `progress` is told the bytes of source gone through.
    ///
    /// # Errors
    /// [`ImageError::Source`] or [`ImageError::Ranges`] if a source failed, [`ImageError::Io`] if the file did, [`ImageError::TooLarge`],
    /// [`ImageError::Unwritable`] if a range is not made of pages. Whichever: the image cannot be committed any more.
    pub fn store_parts(
        &mut self,
        parts: &[Part<'_>],
        progress: &dyn Fn(u64),
    ) -> Result<(), ImageError> {
        self.spoilt = true;
        let left = self.take_spared(parts, progress)?;
        let parts: Vec<_> = parts
            .iter()
            .zip(&left)
            .map(|(part, left)| left_of(part, left))
            .collect();
        let job = Job {
            destination: &self.destination,
            parts: &parts,
            compression: self.options.compression,
            pace: self.pace.as_ref(),
            most: self.options.most,
            threads: self.options.threads,
            pieces_before: self.pieces.len(),
            earlier: self.earlier.as_ref(),
            away: self.away.as_deref(),
        };
        let mut behind = self.behind;
        let (destination, passes) = (&self.destination, self.options.passes);
        let start = self.end.next_multiple_of(PAGE);
        let pieces = &mut self.pieces;
        let end = store::run(&job, start, pieces, progress, &mut |written_to| {
            if !passes && written_to >= behind + WRITE_BEHIND {
                write_behind(destination, behind, written_to - behind);
                behind = written_to;
            }
        })?;
        self.end = end;
        self.behind = behind;
        self.spoilt = false;
        Ok(())
    }

    /// No more contents come: the disk may begin with what is left of them.
    pub(crate) fn all_stored(&mut self) {
        if self.end > self.behind && !self.options.passes {
            write_behind(&self.destination, self.behind, self.end - self.behind);
            self.behind = self.end;
        }
    }

    /// Appends a chunk as it is stored elsewhere: number `number` of `extent`.
    pub(super) fn copy_chunk(
        &mut self,
        extent: &Extent,
        number: u64,
        chunk: Chunk,
        stored: &[u8],
    ) -> Result<(), ImageError> {
        let offset = if extent.encoding == Encoding::Raw as u32 {
            self.end.next_multiple_of(PAGE)
        } else {
            self.end
        };
        let written = self.destination.file.write_all_at(stored, offset);
        written.map_err(self.destination.failed("write"))?;
        self.end = offset + stored.len() as u64;
        if self.end >= self.behind + WRITE_BEHIND {
            write_behind(&self.destination, self.behind, self.end - self.behind);
            self.behind = self.end;
        }
        let piece = Piece {
            space: extent.space,
            at: extent.at + number * CHUNK,
            image: 0,
            encoding: extent.encoding,
            chunk: Chunk { offset, ..chunk },
        };
        let kept = self.pieces.push(piece);
        kept.map_err(self.destination.failed(PUT_ASIDE))
    }

    /// From now on a chunk that an earlier image has, or one that it is based on, is not stored again: this image names the file that
    /// has it. To be said before anything is stored.
    ///
    /// The earlier images must lie, and stay, in the directory of this one. Their contents are not read.
    ///
    /// # Errors
    /// [`ImageError::Unwritable`] if the earlier image cannot be referred to by name.
    pub fn build_on(&mut self, earlier: Image) -> Result<(), ImageError> {
        let images = 0..=earlier.tables().base_count() as u32;
        let numbers = images.map(|image| self.base_number(&earlier, image));
        let numbers = numbers.collect::<Result<_, _>>()?;
        self.earlier = Some(Earlier::new(earlier, numbers));
        Ok(())
    }

    /// Memory of a process that is as it was when the image was made that this is built on (in order): what that has of it is not read.
    pub fn spare(&mut self, space: Space, unwritten: Vec<Range<u64>>) {
        self.unwritten.insert(space.number(), unwritten);
    }

    /// Takes from the earlier image what need not be read, and tells for each part what is left of it, if that is not all.
    fn take_spared(
        &mut self,
        parts: &[Part<'_>],
        progress: &dyn Fn(u64),
    ) -> Result<Vec<Option<Vec<Range<u64>>>>, ImageError> {
        let mut all_left = vec![];
        for part in parts {
            let unwritten = self.unwritten.get(&part.space.number());
            let (Some(earlier), Some(unwritten)) = (&self.earlier, unwritten) else {
                all_left.push(None);
                continue;
            };
            let ranges = ranges::all(part.ranges).map_err(|source| ImageError::Ranges {
                space: SpaceName(part.space),
                at: 0,
                source,
            })?;
            let left = earlier.spare(part.space, &ranges, unwritten, |piece| {
                progress(piece.end() - piece.at);
                let kept = self.pieces.push(piece);
                kept.map_err(self.destination.failed(PUT_ASIDE))
            })?;
            all_left.push(Some(left));
        }
        Ok(all_left)
    }

    /// From now on contents are written no faster than they may be.
    pub fn slows_down(&mut self) {
        if let Some(pace) = &mut self.pace {
            pace.hurries(false);
        }
    }

    /// From now on contents go there, and are missing in the file that this writer leaves: it has their tables. To be said before
    /// anything is stored.
    pub fn send_to(&mut self, away: Arc<dyn Away>) {
        self.away = Some(away);
    }

    /// Number in this image of the file that is number `image` in `earlier`.
    fn base_number(&mut self, earlier: &Image, image: u32) -> Result<u32, ImageError> {
        let base = match image.checked_sub(1) {
            None => self.base_of(earlier)?,
            Some(index) => earlier
                .tables()
                .base(u64::from(index))?
                .ok_or_else(|| self.unwritable(format!("the earlier image has no base {image}")))?,
        };
        if let Some(index) = self.bases.iter().position(|known| known.id == base.id) {
            return Ok(index as u32 + 1);
        }
        self.bases.push(base);
        Ok(self.bases.len() as u32)
    }

    fn base_of(&self, earlier: &Image) -> Result<Base, ImageError> {
        use std::os::unix::ffi::OsStrExt;
        let file_name = earlier
            .path()
            .file_name()
            .map_or(&b""[..], |n| n.as_bytes());
        let mut name = [0; 224];
        // One NUL must remain.
        if file_name.is_empty() || file_name.len() >= name.len() {
            return Err(self.unwritable(format!(
                "the name of the earlier image {} is {} bytes long, expected 1 to {}",
                crate::shown::shown(earlier.path()),
                file_name.len(),
                name.len() - 1
            )));
        }
        name[..file_name.len()].copy_from_slice(file_name);
        Ok(Base {
            id: earlier.header().id,
            name,
        })
    }

    /// Of each of these places of a space (in order, apart) that something has been stored in, the range from the first to the last of that.
    ///
    /// # Errors
    /// [`ImageError::Io`].
    pub fn stored_in(
        &mut self,
        space: Space,
        places: impl IntoIterator<Item = Range<u64>>,
    ) -> Result<Vec<Range<u64>>, ImageError> {
        let mut found: Vec<Range<u64>> = vec![];
        let mut places = places.into_iter().peekable();
        for piece in self.pieces.in_order() {
            let piece = piece.map_err(self.destination.failed(PUT_ASIDE))?;
            if piece.space != space.number() {
                continue;
            }
            // A piece may reach from one place into the next.
            while let Some(place) = places.peek() {
                let part = piece.at.max(place.start)..piece.end().min(place.end);
                if !part.is_empty() {
                    match found.last_mut().filter(|last| last.end > place.start) {
                        Some(last) => last.end = part.end,
                        None => found.push(part),
                    }
                }
                if place.end > piece.end() {
                    break;
                }
                places.next();
            }
        }
        Ok(found)
    }

    /// An upper bound of the bytes of the extents section if nothing more is stored: what
    /// [`loader::hole::hole_needed`] asks for.
    #[must_use]
    pub fn extents_len(&self) -> u64 {
        tables::len_bound(self.pieces.len(), self.bases.len())
    }

    /// Writes the rest, makes the file durable and gives it its final name.
    ///
    /// # Errors
    /// [`ImageError::Unwritable`] if the parts do not fit together, [`ImageError::Io`],
    /// [`ImageError::Exists`] if a file of that name has appeared meanwhile.
    pub fn commit(mut self, parts: &ImageParts<'_>) -> Result<Committed, ImageError> {
        let (id, len) = self.finish(parts)?;
        let path = self.destination.path.clone();
        let (rate, commits) = (&self.options.rate, self.options.commits);
        let decide = || {
            rate.iter().try_for_each(Rate::check)?;
            commits.into_iter().for_each(|commits| commits());
            Ok(())
        };
        self.destination.publish(!self.options.passes, decide)?;
        Ok(Committed { path, id, len })
    }

    /// As [`ImageWriter::commit`], for an image made with [`ImageWriter::create_in_memory`].
    ///
    /// # Errors
    /// As [`ImageWriter::commit`].
    pub fn commit_in_memory(mut self, parts: &ImageParts<'_>) -> Result<File, ImageError> {
        self.finish(parts)?;
        let file = self.destination.file.try_clone();
        file.map_err(self.destination.failed("duplicate its descriptor"))
    }

    fn unwritable(&self, what: String) -> ImageError {
        ImageError::Unwritable {
            image: self.destination.path.clone(),
            what,
        }
    }

    fn check(&self, parts: &ImageParts<'_>) -> Result<(), ImageError> {
        let loader = parts.loader;
        let ranged = parts.hole.start <= parts.hole.end
            && parts.hole.start.is_multiple_of(PAGE)
            && parts.hole.end.is_multiple_of(PAGE);
        let problem = if self.spoilt {
            "contents are missing, a store failed"
        } else if (loader.text.len() + loader.data.len()) as u64 != self.loader_len {
            "another loader than the one that room was left for"
        } else if loader.guard.len() as u64 != PAGE {
            "the loader's guard is not one page"
        } else if PAGE + loader.text.len() as u64 != loader.data_offset {
            "the loader's data does not follow its text"
        } else if !ranged || parts.hole.end - parts.hole.start < loader.span {
            "the hole has no room for the loader"
        } else if !(parts.hole.start..parts.hole.start + loader.data_offset).contains(&loader.entry)
        {
            "the loader is not linked for the hole"
        } else {
            return Ok(());
        };
        Err(self.unwritable(problem.to_owned()))
    }

    fn finish(&mut self, parts: &ImageParts<'_>) -> Result<(Hash, u64), ImageError> {
        self.check(parts)?;
        self.all_stored();
        let end = self.end;
        let mut tables = Tables::of(&mut self.pieces, &self.bases, &self.destination)?;
        let destination = &self.destination;
        let mut sections = [Section::default(); SECTION_COUNT];
        let mut place = |kind: SectionKind, offset: u64, used: u64| {
            let len = used.next_multiple_of(PAGE);
            sections[kind as usize - 1] = Section {
                kind: kind as u32,
                offset,
                len,
                used,
                hash: [0; 32],
            };
            offset + len
        };
        let mut at = place(SectionKind::Elf, 0, PAGE);
        at = place(SectionKind::Header, at, HEADER_LEN as u64);
        let loader_at = at;
        at = place(SectionKind::Loader, at, self.loader_len);
        let pages_at = at;
        at = place(SectionKind::Pages, at, end - pages_at);
        let described = [
            (
                SectionKind::Platform,
                Bytes::from(parts.platform.as_bytes()),
            ),
            (SectionKind::Ops, parts.ops),
            (SectionKind::Meta, parts.meta),
        ];
        for (kind, bytes) in described {
            at = place(kind, at, bytes.len());
        }
        at = place(SectionKind::Extents, at, tables.len());
        let tail_at = at;
        place(SectionKind::Tail, tail_at, 0);
        let base = parts.hole.start;
        let (tail, tail_place) = elf::tail(parts.loader, base, &sections, tail_at);
        let elf_page = elf::head(parts.loader, base, loader_at, tail_place);
        let mut write =
            |kind: SectionKind,
             bytes: &mut dyn FnMut(&mut SectionFile<'_>) -> Result<(), ImageError>| {
                let section = &mut sections[kind as usize - 1];
                let mut file = SectionFile::at(destination, section.offset);
                bytes(&mut file)?;
                let end;
                (section.used, section.hash, end) = file.finish()?;
                section.len = end - section.offset;
                Ok::<u64, ImageError>(end)
            };
        write(SectionKind::Elf, &mut |file| file.put(&elf_page))?;
        write(SectionKind::Loader, &mut |file| {
            file.put(&parts.loader.text)?;
            file.put(&parts.loader.data)
        })?;
        for (kind, bytes) in described {
            write(kind, &mut |file| file.put_all(bytes))?;
        }
        write(SectionKind::Extents, &mut |file| tables.write(file))?;
        let image_len = write(SectionKind::Tail, &mut |file| file.put(&tail))?;
        if let Some(most) = self.options.most.filter(|most| image_len > *most) {
            return Err(destination.too_large(most));
        }
        let header = Header {
            version: FORMAT_VERSION,
            image_len,
            id: [0; 32],
            hole_base: base,
            hole_len: parts.hole.end - base,
            sections,
        };
        let page = header.encode();
        destination
            .file
            .set_len(image_len)
            .map_err(destination.failed("set the length"))?;
        destination
            .file
            .write_all_at(&page, HEADER_OFFSET)
            .map_err(destination.failed("write the header"))?;
        Ok((header_id(&page), image_len))
    }
}

/// A part, or what is left of it.
fn left_of<'a>(part: &Part<'a>, left: &'a Option<Vec<Range<u64>>>) -> Part<'a> {
    let Some(left) = left else { return *part };
    Part {
        ranges: left,
        bytes: left.iter().map(|range| range.end - range.start).sum(),
        ..*part
    }
}

/// Bytes after which the disk is told to begin writing: small images gain most by not waiting for all of it.
const WRITE_BEHIND: u64 = 4 << 20;
