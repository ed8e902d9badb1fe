//! Reading chunks, and through them the bytes of a space.
//!
//! # What callers may rely on
//! No byte is handed out whose chunk did not match its checksum just now.

use super::error::{HexHash, ImageError};
use super::reader::{self, Image};
use loader::layout::{CHUNK, Chunk, Encoding, Extent, SectionKind, Space, chunk_hash};
use std::sync::PoisonError;

/// The chunk read last.
#[derive(Debug)]
pub(super) struct Decoded {
    index: u64,
    bytes: Vec<u8>,
}

/// Buffers for reading chunks.
#[derive(Debug, Default)]
pub(super) struct ChunkBuffers {
    stored: Vec<u8>,
    raw: Vec<u8>,
}

impl ChunkBuffers {
    /// Bytes that the chunk takes that was read last.
    pub(super) fn stored_len(&self) -> u64 {
        self.stored.len() as u64
    }
}

impl Image {
    /// Fills `buf` with the bytes at `at` of a space; what is in no extent is zero.
    ///
    /// # Errors
    /// [`ImageError::Damaged`], [`ImageError::Base`], [`ImageError::Io`]. `buf` is undefined then.
    pub fn read_space(&self, space: Space, at: u64, buf: &mut [u8]) -> Result<(), ImageError> {
        buf.fill(0);
        let end = at.saturating_add(buf.len() as u64);
        let mut buffers = ChunkBuffers::default();
        for extent in self.tables().extents_within(space, at, end) {
            let extent = extent?;
            let first = at.saturating_sub(extent.at) / CHUNK;
            for number in first..extent.chunk_count() {
                let chunk_at = extent.at + number * CHUNK;
                if chunk_at >= end {
                    break;
                }
                self.with_chunk(
                    &extent,
                    extent.first_chunk + number,
                    &mut buffers,
                    |bytes| {
                        let chunk_end = chunk_at + bytes.len() as u64;
                        let (from, to) = (chunk_at.max(at), chunk_end.min(end));
                        if from < to {
                            buf[(from - at) as usize..(to - at) as usize].copy_from_slice(
                                &bytes[(from - chunk_at) as usize..(to - chunk_at) as usize],
                            );
                        }
                    },
                )?;
            }
        }
        Ok(())
    }

    /// Shows `use_bytes` the checked bytes of a chunk; the last one is remembered.
    fn with_chunk(
        &self,
        extent: &Extent,
        index: u64,
        buffers: &mut ChunkBuffers,
        use_bytes: impl FnOnce(&[u8]),
    ) -> Result<(), ImageError> {
        let mut decoded = self.decoded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = &*decoded
            && last.index == index
        {
            use_bytes(&last.bytes);
            return Ok(());
        }
        let bytes = self.read_chunk(extent, index, buffers)?;
        use_bytes(bytes);
        let mut keep = decoded.take().map_or_else(Vec::new, |last| last.bytes);
        keep.clear();
        keep.extend_from_slice(bytes);
        *decoded = Some(Decoded { index, bytes: keep });
        Ok(())
    }

    /// The stored bytes of a chunk of this extent, checked.
    pub(super) fn read_stored<'b>(
        &self,
        extent: &Extent,
        index: u64,
        stored: &'b mut Vec<u8>,
    ) -> Result<(Chunk, &'b [u8]), ImageError> {
        let missing = || {
            let what = format!("chunk {index} is not there");
            ImageError::wrong(self.path(), SectionKind::Extents, what)
        };
        let chunk = self.tables().chunk(index)?.ok_or_else(missing)?;
        let (path, file) = self.holder(extent.image).ok_or_else(missing)?;
        // Bounded by the check of the tables: two chunks at most.
        stored.resize(chunk.stored_len as usize, 0);
        let read = reader::read_exact(file, path, stored, chunk.offset);
        read.map_err(|error| self.of_base(extent.image, error))?;
        let found = chunk_hash(stored);
        if found != chunk.hash {
            let damaged = ImageError::DamagedChunk {
                image: self.path().to_owned(),
                chunk: index,
                found: HexHash(found),
                expected: HexHash(chunk.hash),
            };
            return Err(self.of_base(extent.image, damaged));
        }
        Ok((chunk, stored))
    }

    /// The bytes of a chunk as they were in memory, checked.
    pub(super) fn read_chunk<'b>(
        &self,
        extent: &Extent,
        index: u64,
        buffers: &'b mut ChunkBuffers,
    ) -> Result<&'b [u8], ImageError> {
        let (chunk, stored) = self.read_stored(extent, index, &mut buffers.stored)?;
        if extent.encoding == Encoding::Raw as u32 {
            return Ok(stored);
        }
        buffers.raw.resize(chunk.raw_len as usize, 0);
        let unpacked = zstd::bulk::decompress_to_buffer(stored, &mut buffers.raw[..]);
        if unpacked.as_ref().ok() != Some(&(chunk.raw_len as usize)) {
            let found = unpacked.map_or_else(|e| e.to_string(), |len| format!("{len} bytes"));
            let what = format!(
                "chunk {index} unpacks to {found}, expected {} bytes",
                chunk.raw_len
            );
            return Err(ImageError::wrong(self.path(), SectionKind::Pages, what));
        }
        Ok(&buffers.raw)
    }
}
