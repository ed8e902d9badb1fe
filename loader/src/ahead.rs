//! A process that puts memory of a job in its place while the job still runs elsewhere, and from which P1 is made then.
//!
//! ```text
//! D: checks an image, maps, fills, notes --told of a newer one--> what differs is filled, what is gone becomes zeros ...
//!    `--asked by P0 for P1--> the same once more, clone(CLONE_PARENT): a child of P0 with that memory; D ends
//! ```
//! # What callers may rely on
//! Every byte was hashed after it was read, and a chunk that stays has the checksum at that place that the last image names.
//! It says nothing to anybody; whatever goes wrong ends it, and P0 goes on without it. It ends with P0.

use crate::abi::*;
use crate::context::{Context, Own};
use crate::door;
use crate::fill;
use crate::image::Image;
use crate::kept::{Kept, Run};
use crate::namespaces;
use crate::report::{Outcome, failure};
use crate::supervise;
use crate::sys;
use crate::tables::Tables;
use core::ops::Range;
use loader::layout::{CHUNK, Chunk, Extent, Hash, PAGE, SectionKind, Space};

/// A chunk that is in its place.
#[derive(Clone, Copy)]
struct Note {
    at: u64,
    len: u64,
    encoding: u32,
    hash: Hash,
}

/// What is in its place.
pub struct Notes {
    /// The [`loader::layout::Header::id`] of the image it is from.
    image: Hash,
    /// The checksum of the loader that has put it there, which may go on only with the same.
    loader: Hash,
    kept: Kept,
    /// In order of their addresses, in memory of its own.
    chunks: &'static [Note],
}

impl Notes {
    /// Nothing is in its place yet.
    pub fn none(image: &Image) -> Notes {
        Notes {
            image: [0; 32],
            loader: image.header.section(SectionKind::Loader).hash,
            kept: Kept::NONE,
            chunks: &[],
        }
    }

    /// Whether we can go on with this image: our instructions are its own, and nothing lies where it wants them to.
    pub fn fit(&self, image: &Image) -> bool {
        let header = &image.header;
        header.section(SectionKind::Loader).hash == self.loader
            && !self.kept.touches(header.hole_base, header.hole_len)
    }

    /// Whether a chunk of the image is in its place.
    pub fn knows(
        &self,
        kept: &Kept,
        extent: &Extent,
        (at, len): (u64, u64),
        chunk: &Chunk,
    ) -> bool {
        let found = self.chunks.binary_search_by_key(&at, |note| note.at);
        let note = found.ok().and_then(|index| self.chunks.get(index));
        let is_same = |note: &Note| {
            (note.len, note.encoding, note.hash) == (len, extent.encoding, chunk.hash)
        };
        note.is_some_and(is_same) && kept.knows(at, len)
    }

    /// Notes what is in its place now.
    fn of(context: &Context, before: &Notes) -> Outcome<Notes> {
        let mut kept = context.kept;
        for run in kept.runs_mut() {
            run.known = (run.start, run.end);
        }
        let count = chunks(&context.extents, &kept).count();
        let len = (count * size_of::<Note>()).next_multiple_of(PAGE as usize);
        let len = len.max(PAGE as usize) as u64;
        let flags = MAP_PRIVATE | MAP_ANONYMOUS;
        // SAFETY: a new mapping, anywhere.
        let at = unsafe { sys::map(0, len, PROT_READ | PROT_WRITE, flags) }
            .map_err(|error| failure!(Host, "{len} bytes for notes: {error}"))?;
        // SAFETY: just mapped with room for `count` of them, and zeros are notes.
        let notes = unsafe { core::slice::from_raw_parts_mut(at as *mut Note, count) };
        for (to, note) in notes.iter_mut().zip(chunks(&context.extents, &kept)) {
            *to = note;
        }
        Ok(Notes {
            image: context.image.header.id,
            loader: before.loader,
            kept,
            chunks: notes,
        })
    }

    /// Gives up the memory of the notes.
    fn forget(self) {
        if !self.chunks.is_empty() {
            let len = size_of_val(self.chunks).next_multiple_of(PAGE as usize);
            // SAFETY: mapped by `of`, and nobody has it any more.
            let _ = unsafe { sys::unmap(self.chunks.as_ptr() as u64, len as u64) };
        }
    }
}

/// The chunks that lie in kept memory as a whole.
fn chunks<'a>(extents: &'a Tables, kept: &'a Kept) -> impl Iterator<Item = Note> + 'a {
    let own = extents.extents_of(Space::Process(0)).map(|Ok(one)| one);
    let of_extent = move |extent: Extent| {
        (0..extent.chunk_count()).filter_map(move |index| {
            let at = extent.at + index * CHUNK;
            let len = CHUNK.min(extent.len - index * CHUNK);
            let Ok(chunk) = extents.chunk(extent.first_chunk + index);
            let chunk = chunk?;
            let note = Note {
                at,
                len,
                encoding: extent.encoding,
                hash: chunk.hash,
            };
            kept.has(at, len).then_some(note)
        })
    };
    own.flat_map(of_extent)
}

/// Puts what the image has in its place, as far as it is not there.
pub fn put(context: &mut Context, notes: Notes) -> Outcome<Notes> {
    if notes.image == context.image.header.id {
        context.kept = notes.kept;
        return Ok(notes);
    }
    let mut kept = Kept::wanted(context);
    map(&mut kept, &notes.kept);
    context.kept = kept;
    clear(context, &notes);
    fill::fill_ahead(context, &notes)?;
    let new = Notes::of(context, &notes)?;
    notes.forget();
    Ok(new)
}

/// Makes the mappings what they are to be. What grows stays one with what was there; a run in whose way something lies is none.
fn map(kept: &mut Kept, before: &Kept) {
    for run in kept.runs_mut() {
        let same = before.runs().iter().filter(|old| old.kind == run.kind);
        let common = same.map(|old| run.common(&old.range()));
        let largest = common.max_by_key(|range| range.end - range.start);
        run.known = largest.map_or((0, 0), |range| (range.start, range.end));
        if run.known.0 == run.known.1 {
            run.known = (run.start, run.start);
        }
    }
    for old in before.runs() {
        let mut at = old.start;
        for run in kept.runs() {
            let (start, end) = run.known;
            if start < end && old.start <= start && end <= old.end {
                unmap(at..start);
                at = end;
            }
        }
        unmap(at..old.end);
    }
    kept.retain(|run| {
        let pieces = [run.start..run.known.0, run.known.1..run.end];
        let is_mapped = pieces.iter().all(|piece| map_piece(run, piece));
        if !is_mapped {
            unmap(run.known.0..run.known.1);
        }
        is_mapped
    });
}

fn unmap(range: Range<u64>) {
    if range.start < range.end {
        // SAFETY: memory of the job that we have mapped, and nothing else.
        let _ = unsafe { sys::unmap(range.start, range.end - range.start) };
    }
}

fn map_piece(run: &Run, piece: &Range<u64>) -> bool {
    if piece.start >= piece.end {
        return true;
    }
    let len = piece.end - piece.start;
    let flags = run.kind.flags & !MAP_FIXED | MAP_FIXED_NOREPLACE;
    // SAFETY: nothing is replaced.
    let mapped = unsafe { sys::map(piece.start, len, run.kind.prot, flags) };
    match mapped {
        Ok(at) if at == piece.start => {
            let advice = run.kind.advice;
            advice == 0 || sys::advise_on_pages(piece.start, len, advice).is_ok()
        }
        Ok(at) => {
            unmap(at..at + len);
            false
        }
        Err(_) => false,
    }
}

/// Makes zeros of what was noted and is in no extent any more.
fn clear(context: &Context, notes: &Notes) {
    let zero = |range: Range<u64>| {
        if range.start < range.end {
            let _ = sys::empty(range.start, range.end - range.start);
        }
    };
    for note in notes.chunks {
        for run in context.kept.runs() {
            let (start, end) = run.known;
            let end = end.min(note.at + note.len);
            let mut at = start.max(note.at);
            if at >= end {
                continue;
            }
            for Ok(extent) in context.extents.extents_within(Space::Process(0), at, end) {
                zero(at..extent.at.min(end));
                at = at.max(extent.at.saturating_add(extent.len));
            }
            zero(at..end);
        }
    }
}

/// What P0 has sent for its P1.
#[derive(Clone, Copy)]
pub struct Successor {
    /// Where P1 and P0 speak.
    pub control: i32,
    /// Where P0 is answered.
    pub door: i32,
}

/// Entry on the loader's own stack, which the job's process goes on with.
pub extern "C" fn main(context: &'static mut Context) -> ! {
    if let Some(successor) = context.successor.take() {
        // Whoever has asked finds that nobody answers.
        let _ = become_init(context, successor);
    }
    sys::exit_group(0)
}

/// Makes a P1, a child of P0, with what is in its place here.
fn become_init(context: &mut Context, successor: Successor) -> Outcome<()> {
    let header = context.ops.header();
    let own = context.own_number(Own::Image);
    let taken = header.slot_base..own + crate::context::OWN_COUNT;
    let fds = [successor.control, successor.door];
    if fds.iter().any(|fd| taken.contains(&(*fd as u64))) || context.kept.runs().is_empty() {
        return Err(failure!(Host, "nothing is in its place"));
    }
    sys::set_mask(supervise::ALL_SIGNALS);
    supervise::look_around(context)?;
    let ids = sys::effective_ids();
    match sys::clone_process(CLONE_PARENT | namespaces::FLAGS, None) {
        Ok(0) => {
            sys::close(successor.door);
            crate::report::be_silent(false);
            namespaces::become_init(context, successor.control, ids, true)
        }
        Ok(pid) => {
            door::answer(successor.door, pid);
            sys::exit_group(0)
        }
        Err(error) => Err(failure!(Host, "no P1: {error}")),
    }
}
