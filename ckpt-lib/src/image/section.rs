//! One section of an image as it is written: piece by piece, hashed on the way, padded to whole pages.

use super::bytes::Bytes;
use super::destination::Destination;
use super::error::ImageError;
use loader::layout::{Hash, PAGE};
use std::os::unix::fs::FileExt;

/// What a source could not do.
const READ_AGAIN: &str = "read again what its sections are made of";
/// Bytes that are gathered before they are written.
const GATHERED: usize = 64 << 10;

/// A section that is being written.
pub(super) struct SectionFile<'a> {
    destination: &'a Destination,
    gathered: Vec<u8>,
    hasher: blake3::Hasher,
    used: u64,
    /// Where the next bytes are written.
    at: u64,
}

impl<'a> SectionFile<'a> {
    /// One that begins at this offset.
    pub(super) fn at(destination: &'a Destination, offset: u64) -> Self {
        SectionFile {
            destination,
            gathered: vec![],
            hasher: blake3::Hasher::new(),
            used: 0,
            at: offset,
        }
    }

    /// # Errors
    /// [`ImageError::Io`].
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<(), ImageError> {
        self.used += bytes.len() as u64;
        if bytes.len() >= GATHERED {
            self.write_gathered()?;
            return self.write(bytes);
        }
        self.gathered.extend_from_slice(bytes);
        match self.gathered.len() < GATHERED {
            true => Ok(()),
            false => self.write_gathered(),
        }
    }

    /// # Errors
    /// As [`SectionFile::put`].
    pub(super) fn put_all(&mut self, bytes: Bytes<'_>) -> Result<(), ImageError> {
        let mut buffer = vec![0; GATHERED.min(bytes.len() as usize)];
        let mut at = 0;
        while at < bytes.len() {
            let part = &mut buffer[..(bytes.len() - at).min(GATHERED as u64) as usize];
            let read = bytes.read_at(at, part);
            read.map_err(self.destination.failed(READ_AGAIN))?;
            self.put(part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn write_gathered(&mut self) -> Result<(), ImageError> {
        let gathered = std::mem::take(&mut self.gathered);
        self.write(&gathered)?;
        self.gathered = gathered;
        self.gathered.clear();
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ImageError> {
        self.hasher.update(bytes);
        let written = self.destination.file.write_all_at(bytes, self.at);
        written.map_err(self.destination.failed("write"))?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Bytes used, checksum with the padding, and where it ends.
    ///
    /// # Errors
    /// As [`SectionFile::put`].
    pub(super) fn finish(mut self) -> Result<(u64, Hash, u64), ImageError> {
        let used = self.used;
        let padding = used.next_multiple_of(PAGE) - used;
        self.gathered
            .resize(self.gathered.len() + padding as usize, 0);
        self.write_gathered()?;
        Ok((used, self.hasher.finalize().into(), self.at))
    }
}
