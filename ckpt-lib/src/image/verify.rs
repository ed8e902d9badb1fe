//! Checking every byte of an image, and of the chunks it takes from earlier ones.

use super::chain;
use super::contents::ChunkBuffers;
use super::error::{HexHash, ImageError};
use super::reader::{self, Image};
use itertools::Itertools;
use loader::layout::{Extent, PAGE, SectionKind};
use loader::meaning;
use loader::ops::OpsList;
use serde::Serialize;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

/// What was found to be whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Bytes of this file.
    pub image_bytes: u64,
    /// Chunks checked.
    pub chunks: u64,
    /// Bytes stored for them, here and in earlier images.
    pub stored_bytes: u64,
    /// Bytes of memory and files they stand for.
    pub raw_bytes: u64,
    /// Earlier images that hold some of them.
    pub bases: u64,
}

impl Image {
    /// Reads and checks every byte again, also of what lies in earlier images. `progress` is told the
    /// bytes of memory and files gone through.
    ///
    /// # Errors
    /// The first damage in the order of the file; of several damaged chunks, the first.
    pub fn verify(&self, progress: &mut dyn FnMut(u64)) -> Result<VerifyReport, ImageError> {
        self.verify_those(&|_| true, progress)
    }

    /// As [`Image::verify`], without what lies in earlier images: that was read when they were new.
    ///
    /// # Errors
    /// As [`Image::verify`].
    pub fn verify_own(&self, progress: &mut dyn FnMut(u64)) -> Result<VerifyReport, ImageError> {
        self.verify_those(&|extent| extent.image == 0, progress)
    }

    fn verify_those(
        &self,
        wanted: &(dyn Fn(&Extent) -> bool + Sync),
        progress: &mut dyn FnMut(u64),
    ) -> Result<VerifyReport, ImageError> {
        let (_, header) = reader::open_header(self.path())?;
        if header != *self.header() {
            return Err(ImageError::Id {
                image: self.path().to_owned(),
                found: HexHash(header.id),
                expected: HexHash(self.header().id),
            });
        }
        for kind in SectionKind::ALL {
            if !matches!(kind, SectionKind::Header | SectionKind::Pages) {
                reader::check_section(self.file(), self.path(), header.section(kind))?;
            }
        }
        if header.section(SectionKind::Meta).used > 0 {
            self.snapshot()?;
        }
        self.check_meaning()?;
        self.check_padding()?;
        let mut report = VerifyReport {
            image_bytes: header.image_len,
            bases: self.tables().base_count(),
            ..VerifyReport::default()
        };
        self.check_chunks(wanted, &mut |stored, raw| {
            report.chunks += 1;
            report.stored_bytes += stored;
            report.raw_bytes += raw;
            progress(raw);
        })?;
        Ok(report)
    }

    /// Bytes stored for all chunks, here and in earlier images.
    ///
    /// # Errors
    /// As [`Image::contents_bytes`].
    pub fn stored_bytes(&self) -> Result<u64, ImageError> {
        let tables = self.tables();
        let (mut stored, mut chunks) = (0, tables.chunks());
        for index in 0..tables.chunk_count() {
            let chunk = chunks.get(index)?;
            stored += chunk.map_or(0, |chunk| u64::from(chunk.stored_len));
        }
        Ok(stored)
    }

    /// Operations, hole and contents go together.
    fn check_meaning(&self) -> Result<(), ImageError> {
        let wrong = |section, what: String| ImageError::wrong(self.path(), section, what);
        let bytes = self.ops()?;
        let ops = OpsList::read(&bytes).map_err(|error| {
            let what = format!("{} at byte {}", error.what, error.offset);
            wrong(SectionKind::Ops, what)
        })?;
        let span = self.loader()?.span;
        meaning::check(self.header(), span, &ops, &self.tables())
            .map(|_| ())
            .map_err(|error| chain::unfit(self.path(), error))
    }

    /// Between chunks, and behind the last, there are only zeros.
    fn check_padding(&self) -> Result<(), ImageError> {
        let (header, tables) = (self.header(), self.tables());
        chain::check_tables(self.path(), header, &tables, &self.bases, |range| {
            // Shorter than a page: the places were checked.
            let mut gap = [0; PAGE as usize];
            let gap = &mut gap[..(range.end - range.start).min(PAGE) as usize];
            reader::read_exact(self.file(), self.path(), gap, range.start)?;
            if let Some(at) = gap.iter().position(|byte| *byte != 0) {
                let at = range.start + at as u64;
                let what = format!("byte {at} belongs to no chunk, is not 0");
                return Err(ImageError::wrong(self.path(), SectionKind::Pages, what));
            }
            Ok(())
        })
    }

    fn check_chunks(
        &self,
        wanted: &(dyn Fn(&Extent) -> bool + Sync),
        checked: &mut dyn FnMut(u64, u64),
    ) -> Result<(), ImageError> {
        let chunks_of = |extent: Extent| {
            (0..extent.chunk_count()).map(move |chunk| (extent, extent.first_chunk + chunk))
        };
        let extents = self.tables().extents().filter_ok(wanted);
        let parts = extents.map_ok(chunks_of).flatten_ok();
        let next = Mutex::new(parts.fuse());
        let next = || next.lock().unwrap_or_else(PoisonError::into_inner).next();
        let workers = thread::available_parallelism().map_or(1, |count| count.get().min(4));
        let first_bad = AtomicU64::new(u64::MAX);
        let worst: Mutex<Option<(u64, ImageError)>> = Mutex::new(None);
        let is_bad = |index, error| {
            first_bad.fetch_min(index, Ordering::Relaxed);
            let mut worst = worst.lock().unwrap_or_else(PoisonError::into_inner);
            if worst.as_ref().is_none_or(|(known, _)| index < *known) {
                *worst = Some((index, error));
            }
        };
        let work = |good: &mut dyn FnMut(u64, u64) -> bool| {
            let mut buffers = ChunkBuffers::default();
            while let Some(part) = next() {
                let (extent, index) = match part {
                    Ok((_, index)) if index > first_bad.load(Ordering::Relaxed) => break,
                    Ok(part) => part,
                    // Behind all that could be looked at.
                    Err(error) => {
                        is_bad(self.tables().chunk_count(), error);
                        break;
                    }
                };
                match self.read_chunk(&extent, index, &mut buffers) {
                    Ok(raw) => {
                        let raw = raw.len() as u64;
                        if !good(buffers.stored_len(), raw) {
                            break;
                        }
                    }
                    Err(error) => is_bad(index, error),
                }
            }
        };
        thread::scope(|scope| {
            let (sender, receiver) = mpsc::sync_channel(64);
            let chunks = usize::try_from(self.tables().chunk_count()).unwrap_or(usize::MAX);
            for _ in 0..workers.min(chunks) {
                let (sender, work) = (sender.clone(), &work);
                let work = move || work(&mut |stored, raw| sender.send((stored, raw)).is_ok());
                if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            drop(sender);
            receiver
                .into_iter()
                .for_each(|(stored, raw)| checked(stored, raw));
        });
        // All of it, if no thread can be had.
        work(&mut |stored, raw| {
            checked(stored, raw);
            true
        });
        let worst = worst.into_inner().unwrap_or_else(PoisonError::into_inner);
        worst.map_or(Ok(()), |(_, error)| Err(error))
    }
}
