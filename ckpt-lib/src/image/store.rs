//! From a source to the pages section: batches, read, searched for zeros, hashed and written by
//! several threads.
//!
//! ```text
//! parts -> batches of 1 MiB -> worker: read | leave out zero pages | hash | reserve room | pwritev
//!                                 `----------- pieces ----> caller: progress, write-behind
//! ```
//! What a worker may not read (EIO), the caller reads itself when the workers are done.
//! # What callers may rely on
//! One buffer per worker (two with compression); bytes are copied by the kernel only. After an error
//! all workers have stopped.

use super::batches::{BATCH, Batch, Batches};
use super::blocks::BlocksAhead;
use super::destination::Destination;
use super::earlier::Earlier;
use super::error::{ImageError, SpaceName};
use super::extents::Piece;
use super::pieces::Pieces;
use super::ranges::{Ranges, bytes_of};
use super::{Away, ByteSource};
use crate::pace::Pace;
use loader::layout::{CHUNK, Chunk, Encoding, PAGE, Space, chunk_hash};
use nix::errno::Errno;
use nix::sys::uio::pwritev;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

/// With this many runs, a few zero pages are kept rather than a run cut in two: the tables must
/// not outgrow memory.
const MANY_PIECES: usize = 200_000;
const MOST_THREADS: usize = 16;

/// What becomes of pages of zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeros {
    /// They are left out: the restart finds zeros where nothing is stored.
    Dropped,
    /// They are stored like others: a process changed them in a private mapping of a file, whose bytes the restart would
    /// find otherwise.
    Kept,
}

/// Contents of one space that are to be stored.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    /// Where they belong.
    pub space: Space,
    /// Which addresses, or which bytes of the file. They begin at multiples of 4096, and end there but for the last of an inode, which
    /// may end where the file does.
    pub ranges: &'a dyn Ranges,
    /// So many bytes they are.
    pub(super) bytes: u64,
    /// Where they are read.
    pub source: &'a dyn ByteSource,
    /// Whether pages of zeros are left out.
    pub zeros: Zeros,
}

impl<'a> Part<'a> {
    /// These ranges of a space.
    ///
    /// # Errors
    /// [`ImageError::Ranges`]: it is not known how many bytes they are.
    pub fn new(
        space: Space,
        ranges: &'a dyn Ranges,
        source: &'a dyn ByteSource,
        zeros: Zeros,
    ) -> Result<Self, ImageError> {
        let bytes = bytes_of(ranges).map_err(|source| ImageError::Ranges {
            space: SpaceName(space),
            at: 0,
            source,
        })?;
        Ok(Part {
            space,
            ranges,
            bytes,
            source,
            zeros,
        })
    }

    /// So many bytes its ranges are.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// What is to be stored, and how.
pub(super) struct Job<'a> {
    pub(super) destination: &'a Destination,
    pub(super) parts: &'a [Part<'a>],
    pub(super) compression: Option<i32>,
    pub(super) pace: Option<&'a Pace>,
    /// So many bytes may the file have.
    pub(super) most: Option<u64>,
    pub(super) threads: usize,
    /// Of so many pieces are the contents that were stored before.
    pub(super) pieces_before: usize,
    /// What is in it is not stored again.
    pub(super) earlier: Option<&'a Earlier>,
    /// Where contents go instead of the file.
    pub(super) away: Option<&'a dyn Away>,
}

struct Done {
    source_len: u64,
    pieces: Vec<Piece>,
    /// Room that was reserved and is filled now.
    filled: Range<u64>,
}

/// Stores all parts, in the file from `start` on; gives the end of the last byte written. `written` is told how far the file is filled
/// without gaps.
pub(super) fn run(
    job: &Job<'_>,
    start: u64,
    pieces: &mut Pieces,
    progress: &dyn Fn(u64),
    written: &mut dyn FnMut(u64),
) -> Result<u64, ImageError> {
    // The last page of a file counts whole.
    let bytes = job
        .parts
        .iter()
        .map(|part| part.bytes.next_multiple_of(PAGE));
    let bytes: u64 = bytes.sum();
    let end = start.saturating_add(bytes);
    // Of what is compressed or stored elsewhere nobody knows how much comes.
    let known = job.compression.is_none() && job.earlier.is_none() && job.away.is_none();
    let end = known.then(|| end.min(job.most.unwrap_or(u64::MAX)));
    let shared = Shared {
        job,
        batches: Batches::of(job),
        blocks: BlocksAhead::of(&job.destination.file, start, end),
        end: AtomicU64::new(start),
        stop: AtomicBool::new(false),
        pieces: AtomicUsize::new(job.pieces_before),
        unreadable: Mutex::default(),
    };
    let mut gaps = Gaps::new(start);
    let mut kept = Ok(());
    let mut take = |done: Done| {
        if kept.is_ok() {
            kept = pieces.extend(done.pieces);
        }
        written(gaps.fill(done.filled));
        progress(done.source_len);
        kept.is_ok()
    };
    let most = usize::try_from(bytes.div_ceil(BATCH)).unwrap_or(usize::MAX);
    let workers = worker_count(job.threads).min(most);
    if workers > 1 {
        shared.work_in_threads(workers, &mut take)?;
        shared.work_on_the_rest(&mut take)?;
    }
    // All of it, if one is enough or no thread can be had.
    shared.work(false, &mut take)?;
    kept.map_err(job.destination.failed(PUT_ASIDE))?;
    Ok(shared.end.load(Ordering::Relaxed))
}

/// What fails if chunks cannot be put aside.
pub(super) const PUT_ASIDE: &str = "put the table of its chunks aside";

fn worker_count(asked: usize) -> usize {
    match asked {
        0 => thread::available_parallelism().map_or(1, |count| count.get().min(4)),
        _ => asked.min(MOST_THREADS),
    }
}

/// How far a file is filled when its parts are filled in any order.
struct Gaps {
    filled_to: u64,
    ahead: Vec<Range<u64>>,
}

impl Gaps {
    fn new(start: u64) -> Self {
        Gaps {
            filled_to: start,
            ahead: vec![],
        }
    }

    fn fill(&mut self, part: Range<u64>) -> u64 {
        self.ahead.push(part);
        while let Some(index) = self.ahead.iter().position(|p| p.start <= self.filled_to) {
            self.filled_to = self.filled_to.max(self.ahead.swap_remove(index).end);
        }
        self.filled_to
    }
}

struct Shared<'a> {
    job: &'a Job<'a>,
    batches: Batches<'a>,
    blocks: BlocksAhead<'a>,
    end: AtomicU64,
    stop: AtomicBool,
    pieces: AtomicUsize,
    /// Batches that no worker may read.
    unreadable: Mutex<Vec<Batch<'a>>>,
}

/// What a worker needs to compress.
#[derive(Default)]
struct Packer {
    compressor: Option<zstd::bulk::Compressor<'static>>,
    packed: Vec<u8>,
}

/// A chunk on its way: where it is in the space and in the buffer.
#[derive(Clone, Copy)]
struct Cut {
    at: u64,
    from: usize,
    len: usize,
}

impl<'a> Shared<'a> {
    /// `helps`: it is not the thread that was asked to store, which may read more.
    fn work(&self, helps: bool, done: &mut dyn FnMut(Done) -> bool) -> Result<(), ImageError> {
        let mut buffer = vec![0; BATCH as usize];
        let mut packer = Packer::default();
        while !self.stop.load(Ordering::Relaxed) {
            let next = self.batches.next();
            let batch = next.inspect_err(|_| self.stop.store(true, Ordering::Relaxed))?;
            let Some(batch) = batch else { break };
            let result = self.batch(&batch, &mut buffer, &mut packer);
            match result {
                Ok(one) => {
                    if !done(one) {
                        break;
                    }
                }
                Err(ImageError::Source { source, .. })
                    if helps && source.raw_os_error() == Some(libc::EIO) =>
                {
                    let unreadable = self.unreadable.lock();
                    unreadable
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(batch);
                }
                Err(error) => {
                    self.stop.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// As many threads as can be had, up to `workers`.
    fn work_in_threads(
        &self,
        workers: usize,
        take: &mut dyn FnMut(Done) -> bool,
    ) -> Result<(), ImageError> {
        thread::scope(|scope| {
            let (sender, receiver) = mpsc::sync_channel(4 * workers);
            let begun = (0..workers).map_while(|_| {
                let sender = sender.clone();
                let work = move || self.work(true, &mut |done| sender.send(done).is_ok());
                thread::Builder::new().spawn_scoped(scope, work).ok()
            });
            let begun: Vec<_> = begun.collect();
            drop(sender);
            for done in receiver {
                if !take(done) {
                    self.stop.store(true, Ordering::Relaxed);
                }
            }
            let mut result = Ok(());
            for worker in begun {
                let ended = worker.join().unwrap_or_else(|_| {
                    Err(ImageError::Unwritable {
                        image: self.job.destination.path.clone(),
                        what: "a thread that wrote it has ended abnormally".to_owned(),
                    })
                });
                result = result.and(ended);
            }
            result
        })
    }

    /// What workers might not read: memory that is protected can be read by the thread that traces only, on some kernels.
    fn work_on_the_rest(&self, done: &mut dyn FnMut(Done) -> bool) -> Result<(), ImageError> {
        let rest = self.unreadable.lock();
        let rest = rest.unwrap_or_else(PoisonError::into_inner);
        let mut buffer = vec![0; if rest.is_empty() { 0 } else { BATCH as usize }];
        let mut packer = Packer::default();
        for batch in rest.iter() {
            if !done(self.batch(batch, &mut buffer, &mut packer)?) {
                break;
            }
        }
        Ok(())
    }

    fn batch(
        &self,
        batch: &Batch<'_>,
        buffer: &mut [u8],
        packer: &mut Packer,
    ) -> Result<Done, ImageError> {
        let mut cuts = vec![];
        let mut from = 0;
        let mut source_len = 0;
        let Batch { part, ranges } = batch;
        for range in ranges {
            let len = (range.end - range.start) as usize;
            let bytes = &mut buffer[from..from + len];
            let read = part.source.read_at(range.start, bytes);
            read.map_err(|source| ImageError::Source {
                space: SpaceName(part.space),
                at: range.start,
                len: len as u64,
                source,
            })?;
            match part.zeros {
                Zeros::Kept => push_run(0..len, range.start, from, &mut cuts),
                Zeros::Dropped => {
                    let many = self.pieces.load(Ordering::Relaxed) > MANY_PIECES;
                    let gap = if many { 16 } else { 1 };
                    cut(bytes, range.start, from, gap, &mut cuts);
                }
            }
            // The end of a file's last page is written, too.
            let next = from + len.next_multiple_of(PAGE as usize);
            buffer[from + len..next].fill(0);
            from = next;
            source_len += len as u64;
        }
        let written = match self.job.compression {
            None => self.write_raw(part.space, &cuts, buffer),
            Some(level) => self.write_packed(part.space, &cuts, buffer, packer, level),
        };
        let what = match self.job.away {
            None => "write pages",
            Some(_) => "bring pages to where it is kept",
        };
        // An earlier image may be what is wrong.
        let failed = |error: io::Error| {
            let own = error.downcast::<ImageError>();
            own.unwrap_or_else(self.job.destination.failed(what))
        };
        let (pieces, filled) = written.map_err(failed)?;
        if let Some(most) = self.job.most.filter(|most| filled.end > *most) {
            return Err(self.job.destination.too_large(most));
        }
        self.pieces.fetch_add(pieces.len(), Ordering::Relaxed);
        Ok(Done {
            source_len,
            pieces,
            filled,
        })
    }

    fn reserve(&self, len: u64) -> Range<u64> {
        let len = len.next_multiple_of(PAGE);
        let start = self.end.fetch_add(len, Ordering::Relaxed);
        start..start + len
    }

    /// What an earlier image has of this.
    fn known(
        &self,
        space: Space,
        at: u64,
        encoding: Encoding,
        chunk: &Chunk,
    ) -> io::Result<Option<Piece>> {
        let Some(earlier) = self.job.earlier else {
            return Ok(None);
        };
        let same = earlier.same(space, at, encoding, chunk);
        same.map_err(io::Error::other)
    }

    fn write_raw(
        &self,
        space: Space,
        cuts: &[Cut],
        buffer: &[u8],
    ) -> io::Result<(Vec<Piece>, Range<u64>)> {
        // Offsets are from the beginning of the room that is reserved when its length is known.
        let mut len = 0;
        let mut pieces = Vec::with_capacity(cuts.len());
        let mut slices: Vec<IoSlice<'_>> = vec![];
        let mut joined: Option<Range<usize>> = None;
        for cut in cuts {
            let bytes = &buffer[cut.from..cut.from + cut.len];
            let chunk = Chunk {
                offset: len,
                stored_len: cut.len as u32,
                raw_len: cut.len as u32,
                hash: chunk_hash(bytes),
            };
            if let Some(known) = self.known(space, cut.at, Encoding::Raw, &chunk)? {
                pieces.push(known);
                continue;
            }
            pieces.push(Piece::new(space, cut.at, Encoding::Raw, chunk));
            let whole = cut.from..cut.from + cut.len.next_multiple_of(PAGE as usize);
            len += whole.len() as u64;
            joined = match joined {
                Some(before) if before.end == whole.start => Some(before.start..whole.end),
                before => {
                    slices.extend(before.map(|part| IoSlice::new(&buffer[part])));
                    Some(whole)
                }
            };
        }
        slices.extend(joined.map(|part| IoSlice::new(&buffer[part])));
        let room = self.placed(&mut pieces, len);
        self.write_all(&mut slices, room.start)?;
        Ok((pieces, room))
    }

    /// Room for so many bytes; the pieces that lie in it are moved there.
    fn placed(&self, pieces: &mut [Piece], len: u64) -> Range<u64> {
        let room = self.reserve(len);
        for piece in pieces.iter_mut().filter(|piece| piece.image == 0) {
            piece.chunk.offset += room.start;
        }
        room
    }

    fn write_packed(
        &self,
        space: Space,
        cuts: &[Cut],
        buffer: &[u8],
        packer: &mut Packer,
        level: i32,
    ) -> io::Result<(Vec<Piece>, Range<u64>)> {
        let Packer { compressor, packed } = packer;
        let compressor = match compressor {
            Some(made) => made,
            none => none.insert(zstd::bulk::Compressor::new(level)?),
        };
        packed.clear();
        let mut pieces = Vec::with_capacity(cuts.len());
        for cut in cuts {
            let bytes = &buffer[cut.from..cut.from + cut.len];
            let frame = compressor.compress(bytes)?;
            // What does not shrink is kept as it is, from the next page on.
            let (encoding, stored) = if frame.len() < bytes.len() {
                (Encoding::Zstd, &frame[..])
            } else {
                (Encoding::Raw, bytes)
            };
            let mut chunk = Chunk {
                offset: 0,
                stored_len: stored.len() as u32,
                raw_len: cut.len as u32,
                hash: chunk_hash(stored),
            };
            if let Some(known) = self.known(space, cut.at, encoding, &chunk)? {
                pieces.push(known);
                continue;
            }
            if encoding == Encoding::Raw {
                packed.resize(packed.len().next_multiple_of(PAGE as usize), 0);
            }
            chunk.offset = packed.len() as u64;
            pieces.push(Piece::new(space, cut.at, encoding, chunk));
            packed.extend_from_slice(stored);
        }
        packed.resize(packed.len().next_multiple_of(PAGE as usize), 0);
        let room = self.placed(&mut pieces, packed.len() as u64);
        self.write_all(&mut [IoSlice::new(packed)], room.start)?;
        Ok((pieces, room))
    }

    fn write_all(&self, mut slices: &mut [IoSlice<'_>], mut at: u64) -> io::Result<()> {
        const MOST_SLICES: usize = 1024; // IOV_MAX
        if let Some(away) = self.job.away {
            return away.put(at, slices);
        }
        if let Some(pace) = self.job.pace {
            pace.pass(slices.iter().map(|slice| slice.len() as u64).sum())?;
        }
        self.blocks
            .have(at + slices.iter().map(|slice| slice.len() as u64).sum::<u64>());
        while !slices.is_empty() {
            let count = slices.len().min(MOST_SLICES);
            let offset = i64::try_from(at).map_err(|_| io::ErrorKind::FileTooLarge)?;
            if slices[..count].iter().all(|slice| slice.is_empty()) {
                return Ok(());
            }
            match pwritev(&self.job.destination.file, &slices[..count], offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => {
                    at += len as u64;
                    IoSlice::advance_slices(&mut slices, len);
                }
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

const ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];

/// Cuts what is not zero into chunks. A run ends at `gap` zero pages.
fn cut(bytes: &[u8], at: u64, from: usize, gap: usize, cuts: &mut Vec<Cut>) {
    let page = PAGE as usize;
    let mut push = |run| push_run(run, at, from, cuts);
    let mut run: Option<Range<usize>> = None;
    for start in (0..bytes.len()).step_by(page) {
        let end = bytes.len().min(start + page);
        if bytes[start..end] == ZEROS[..end - start] {
            continue;
        }
        run = match run {
            Some(before) if start - before.end < gap * page => Some(before.start..end),
            before => {
                if let Some(before) = before {
                    push(before);
                }
                Some(start..end)
            }
        };
    }
    if let Some(last) = run {
        push(last);
    }
}

/// Cuts a run of `bytes` that begin at `at` in the space and at `from` in the buffer.
fn push_run(run: Range<usize>, at: u64, from: usize, cuts: &mut Vec<Cut>) {
    let mut start = run.start;
    while start < run.end {
        let len = (run.end - start).min(CHUNK as usize);
        cuts.push(Cut {
            at: at + start as u64,
            from: from + start,
            len,
        });
        start += len;
    }
}
