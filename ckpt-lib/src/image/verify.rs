//! Checking every byte of an image.

use super::error::ImageError;
use super::reader::Image;
use loader::layout::{Encoding, PAGE, SectionKind};
use std::os::unix::fs::FileExt;

/// What was gone through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Chunks checked.
    pub chunks: u64,
    /// Bytes of memory and files they stand for.
    pub raw_bytes: u64,
    /// Bytes they take in the files.
    pub stored_bytes: u64,
}

impl Image {
    /// Checks the contents: every chunk against its checksum, and that nothing lies between them.
    ///
    /// # Errors
    /// The first [`ImageError`] found.
    pub fn verify(&self, progress: &mut dyn FnMut(u64)) -> Result<VerifyReport, ImageError> {
        self.snapshot()?;
        let mut report = VerifyReport::default();
        let mut places = vec![];
        let tables = self.tables();
        for extent in tables.extents() {
            for index in 0..extent.chunk_count() {
                let number = extent.first_chunk + index;
                let raw = self.chunk_bytes(extent.image, extent.encoding, number)?;
                let Some(chunk) = tables.chunk(number) else {
                    continue;
                };
                report.chunks += 1;
                report.raw_bytes += raw.len() as u64;
                report.stored_bytes += u64::from(chunk.stored_len);
                progress(raw.len() as u64);
                if extent.image == 0 {
                    let stored = u64::from(chunk.stored_len);
                    let room = match extent.encoding {
                        raw if raw == Encoding::Raw as u32 => stored.next_multiple_of(PAGE),
                        _ => stored,
                    };
                    places.push((chunk.offset, stored, room));
                }
            }
        }
        self.check_coverage(places)?;
        Ok(report)
    }

    /// The chunks cover the Pages section; between and behind them there are only zeros.
    fn check_coverage(&self, mut places: Vec<(u64, u64, u64)>) -> Result<(), ImageError> {
        places.sort_unstable();
        let pages = self.header().section(SectionKind::Pages);
        let mut at = pages.offset;
        for (offset, stored, room) in places {
            if offset < at {
                return Err(self.pages_wrong(format!("two chunks share byte {offset}")));
            }
            self.check_zero(at, offset)?;
            self.check_zero(offset + stored, offset + room)?;
            at = offset + room;
        }
        self.check_zero(at, pages.offset + pages.len)
    }

    fn check_zero(&self, from: u64, to: u64) -> Result<(), ImageError> {
        let mut buffer = vec![0; 64 * 1024];
        let mut at = from;
        while at < to {
            let len = (to - at).min(buffer.len() as u64) as usize;
            self.file()
                .read_exact_at(&mut buffer[..len], at)
                .map_err(ImageError::io(self.path(), "read pages"))?;
            if let Some(index) = buffer[..len].iter().position(|byte| *byte != 0) {
                let place = at + index as u64;
                return Err(self.pages_wrong(format!("byte {place} belongs to no chunk, is not 0")));
            }
            at += len as u64;
        }
        Ok(())
    }

    fn pages_wrong(&self, what: String) -> ImageError {
        ImageError::Layout {
            image: self.path().into(),
            section: SectionKind::Pages.name(),
            what,
        }
    }
}
