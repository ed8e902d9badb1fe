//! Storing contents: worker threads read, drop pages of zeros, hash, compress and write.
//!
//! ```text
//! ranges --blocks of 256 KiB--> workers --pieces--> sorted at the end into extents and chunks
//! ```
//! Each worker holds one block and its compressed form, so memory is bounded whatever the job's size.

use super::error::ImageError;
use super::{ByteSource, writer::WriteOptions};
use crate::sys::writeback;
use loader::layout::{CHUNK, Chunk, Encoding, Extent, Hash, PAGE, Space};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// A run of pages without an all-zero page, in one chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) space: Space,
    pub(super) at: u64,
    pub(super) len: u32,
    pub(super) image: u32,
    pub(super) encoding: Encoding,
    pub(super) offset: u64,
    pub(super) stored_len: u32,
    pub(super) hash: Hash,
}

/// What the workers share.
pub(super) struct Store<'a> {
    pub(super) file: &'a File,
    pub(super) path: &'a Path,
    pub(super) options: &'a WriteOptions,
    pub(super) next_offset: &'a AtomicU64,
    /// Pages of zeros are stored like others: behind them lies something else than zeros.
    pub(super) keep_zeros: bool,
}

static ZERO_PAGE: [u8; PAGE as usize] = [0; PAGE as usize];

/// Blocks of at most one chunk that cover the ranges.
fn blocks(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut blocks = vec![];
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            let end = (at + CHUNK).min(range.end);
            blocks.push(at..end);
            at = end;
        }
    }
    blocks
}

/// The runs of pages of `bytes` that are not all zero, or with `keep_zeros` all of them.
fn runs(bytes: &[u8], keep_zeros: bool) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = vec![];
    let page = PAGE as usize;
    for (index, bytes) in bytes.chunks(page).enumerate() {
        if !keep_zeros && *bytes == ZERO_PAGE[..bytes.len()] {
            continue;
        }
        let start = index * page;
        let end = start + bytes.len();
        match runs.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => runs.push(start..end),
        }
    }
    runs
}

impl Store<'_> {
    /// Stores the contents of `ranges` and returns where each piece went.
    pub(super) fn store(
        &self,
        space: Space,
        ranges: &[Range<u64>],
        source: &dyn ByteSource,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Vec<Piece>, ImageError> {
        let blocks = blocks(ranges);
        let next = AtomicUsize::new(0);
        let stop = AtomicBool::new(false);
        let work = || {
            let mut pieces = vec![];
            let mut buffer = vec![0; CHUNK as usize];
            while !stop.load(Ordering::Relaxed) {
                let Some(block) = blocks.get(next.fetch_add(1, Ordering::Relaxed)) else {
                    break;
                };
                let bytes = &mut buffer[..(block.end - block.start) as usize];
                let stored = source
                    .read_at(block.start, bytes)
                    .map_err(|source| ImageError::Source {
                        space: format!("{space:?}"),
                        at: block.start,
                        source,
                    })
                    .and_then(|()| self.store_block(space, block.start, bytes, &mut pieces));
                if let Err(error) = stored {
                    stop.store(true, Ordering::Relaxed);
                    return Err(error);
                }
                progress(block.end - block.start);
            }
            Ok(pieces)
        };
        let threads = self.options.threads.clamp(1, blocks.len().max(1));
        if threads == 1 || blocks.len() < 8 {
            return work();
        }
        let results: Vec<_> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            workers
                .into_iter()
                .map(|worker| {
                    worker
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
                .collect()
        });
        let mut pieces = vec![];
        for result in results {
            pieces.extend(result?);
        }
        Ok(pieces)
    }

    fn store_block(
        &self,
        space: Space,
        at: u64,
        bytes: &[u8],
        pieces: &mut Vec<Piece>,
    ) -> Result<(), ImageError> {
        for run in runs(bytes, self.keep_zeros) {
            let raw = &bytes[run.clone()];
            let compressed = match self.options.compression {
                Some(level) => Some(
                    zstd::bulk::compress(raw, level)
                        .map_err(ImageError::io(self.path, "compress pages"))?,
                ),
                None => None,
            };
            let (stored, encoding) = match &compressed {
                Some(bytes) if bytes.len() < raw.len() => (&bytes[..], Encoding::Zstd),
                _ => (raw, Encoding::Raw),
            };
            let room = match encoding {
                Encoding::Raw => (stored.len() as u64).next_multiple_of(PAGE),
                Encoding::Zstd => stored.len() as u64,
            };
            let offset = self.next_offset.fetch_add(room, Ordering::Relaxed);
            self.write(offset, stored)?;
            pieces.push(Piece {
                space,
                at: at + run.start as u64,
                len: raw.len() as u32,
                image: 0,
                encoding,
                offset,
                stored_len: stored.len() as u32,
                hash: *blake3::hash(stored).as_bytes(),
            });
        }
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), ImageError> {
        self.file
            .write_all_at(bytes, offset)
            .map_err(ImageError::io(self.path, "write pages"))?;
        // Ask for the disk's attention now, so that the fsync at the end is short.
        writeback::begin(self.file, offset, bytes.len() as u64);
        Ok(())
    }
}

/// Sorts the pieces and makes extents and chunks of them; adjacent whole chunks become one extent.
pub(super) fn tables(mut pieces: Vec<Piece>) -> (Vec<Extent>, Vec<Chunk>) {
    pieces.sort_by_key(|piece| (piece.space.number(), piece.at));
    let mut extents: Vec<Extent> = vec![];
    let mut chunks = vec![];
    for piece in pieces {
        let chunk = Chunk {
            offset: piece.offset,
            stored_len: piece.stored_len,
            raw_len: piece.len,
            hash: piece.hash,
        };
        let space = piece.space.number();
        match extents.last_mut() {
            Some(last)
                if last.space == space
                    && last.at + last.len == piece.at
                    && last.len.is_multiple_of(CHUNK)
                    && last.image == piece.image
                    && last.encoding == piece.encoding as u32 =>
            {
                last.len += u64::from(piece.len);
            }
            _ => extents.push(Extent {
                space,
                at: piece.at,
                len: u64::from(piece.len),
                image: piece.image,
                encoding: piece.encoding as u32,
                first_chunk: chunks.len() as u64,
            }),
        }
        chunks.push(chunk);
    }
    (extents, chunks)
}
