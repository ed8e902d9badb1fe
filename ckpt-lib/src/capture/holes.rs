//! Shared memory that no descriptor leads to: which of its pages there are.
//!
//! Its bytes are read through the process that maps it, and to read a page that was never touched makes one
//! (mm/shmem.c, `shmem_fault`). So the job is asked first (mincore(2)), and then `/proc/PID/smaps`, for what is swapped out
//! is not told from what never was: if some of a mapping is, all of it is read. Of huge pages mincore(2) tells those that this process
//! has touched (mm/mincore.c, `mincore_hugetlb`), not those that there are: all of them are read. They are set aside
//! for the mapping already (with MAP_NORESERVE they are not, and one that cannot be had fails the checkpoint).
//!
//! A deleted file of a disk says the same by its descriptor (SEEK_DATA), or by the mapping of one who may open that; else nothing does,
//! and all of it is read.

use super::CaptureError;
use super::inodes::{Inodes, MemoryPiece};
use super::refusal::Refusals;
use super::subject::Subject;
use crate::inject::{CallList, CallRef, DataRef, InsideArg, Workshop};
use crate::snapshot::InodeKind;
use crate::tracee::{HostTid, StoppedProcess};
use loader::layout::PAGE;
use std::ops::Range;

/// What one call is asked about.
const CHUNK: u64 = 1 << 30;
/// Bytes of such memory that can be carried: the job stands still while it is asked about them, some 50 ns for each page, or while they
/// are read.
const MOST: u64 = 64 << 30;

/// A part of an inode, and a call about it.
struct Question {
    piece: MemoryPiece,
    call: CallRef,
    pages: DataRef,
}

/// Refuses more of it than the job can be asked about, and more of a deleted file than can be read.
pub(super) fn refuse(subjects: &[Subject], inodes: &Inodes, refusals: &mut Refusals) {
    for subject in subjects {
        for (what, pieces) in [
            ("shared memory", pieces_of(subject, inodes, is_in_memory)),
            (
                "a deleted file",
                pieces_of(subject, inodes, |kind| matches!(kind, InodeKind::Deleted)),
            ),
        ] {
            let all: u64 = pieces.iter().map(|(_, piece)| piece.len).sum();
            if let Some((_, first)) = pieces.first()
                && all > MOST
            {
                let object = format!("mapping {:x}", first.address);
                let reason = format!(
                    "{} GiB of {what} to which no descriptor leads, at most {} can be looked through: keep its descriptor open",
                    all >> 30,
                    MOST >> 30
                );
                refusals.add(subject.who(), object, reason);
            }
        }
    }
}

/// Finds out what there is, and tells the inodes.
///
/// # Errors
/// [`CaptureError`]: the job cannot be asked, or `/proc` cannot be read.
pub(super) fn find(
    subject: &Subject,
    stopped: &mut StoppedProcess,
    workshop: &mut Workshop,
    inodes: &mut Inodes,
) -> Result<(), CaptureError> {
    for (inode, piece) in pieces_of(subject, inodes, is_huge) {
        let there = &mut inodes.drafts[inode].there;
        let all = piece.offset..piece.offset + piece.len;
        there.get_or_insert_default().push(all);
    }
    let pieces = pieces_of(subject, inodes, |kind| is_in_memory(kind) && !is_huge(kind));
    let (Some((tid, _)), false) = (subject.threads.first(), pieces.is_empty()) else {
        return Ok(());
    };
    let mut list = CallList::new();
    let mut questions = vec![];
    for (inode, piece) in &pieces {
        for at in (0..piece.len).step_by(CHUNK as usize) {
            let part = MemoryPiece {
                address: piece.address + at,
                offset: piece.offset + at,
                len: CHUNK.min(piece.len - at),
                ..*piece
            };
            let pages = list.space((part.len / PAGE) as usize);
            let [address, len] = [part.address, part.len].map(InsideArg::Value);
            let call = list.call(libc::SYS_mincore, &[address, len, InsideArg::Data(pages)]);
            let question = Question {
                piece: part,
                call,
                pages,
            };
            questions.push((*inode, question));
        }
    }
    let results = workshop
        .run(stopped, vec![(HostTid(*tid), list)])
        .map_err(|error| CaptureError::Tracee(Box::new(error)))?;
    // After that: what has been swapped out since it was asked about is in both.
    let mappings = subject.dir.smaps()?;
    for (inode, Question { piece, call, pages }) in questions {
        let range = piece.address..piece.address + piece.len;
        let swapped = mappings.iter().any(|mapping| {
            mapping.swap_kib > 0 && mapping.line.start < range.end && range.start < mapping.line.end
        });
        let answered = results.first().filter(|results| results.result(call) == 0);
        let there = match answered.filter(|_| !swapped) {
            Some(results) => there(results.bytes(pages), piece.offset),
            None => std::iter::once(piece.offset..piece.offset + piece.len).collect(),
        };
        let draft = &mut inodes.drafts[inode];
        draft.there.get_or_insert_default().extend(there);
    }
    Ok(())
}

/// It has no bytes but in memory.
fn is_in_memory(kind: &InodeKind) -> bool {
    matches!(kind, InodeKind::SharedAnonymous | InodeKind::MemFd { .. })
}

/// It is of huge pages (hugetlb).
fn is_huge(kind: &InodeKind) -> bool {
    matches!(kind, InodeKind::MemFd { huge_shift, .. } if *huge_shift != 0)
}

/// What of the process is read through it, and is of such a kind: by index of the inode.
fn pieces_of(
    subject: &Subject,
    inodes: &Inodes,
    is_wanted: impl Fn(&InodeKind) -> bool,
) -> Vec<(usize, MemoryPiece)> {
    let drafts = inodes.drafts.iter().enumerate();
    let read_through =
        drafts.filter(|(_, draft)| draft.file.is_none() && is_wanted(&draft.record.kind));
    let pieces = read_through
        .flat_map(|(index, draft)| draft.pieces.iter().map(move |piece| (index, *piece)));
    pieces
        .filter(|(_, piece)| piece.pid == subject.pid)
        .collect()
}

/// Ranges of pages whose lowest bit is set, from `offset` on.
fn there(pages: &[u8], offset: u64) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = vec![];
    for (page, at) in pages.iter().zip((offset..).step_by(PAGE as usize)) {
        match ranges.last_mut() {
            _ if page & 1 == 0 => {}
            Some(last) if last.end == at => last.end += PAGE,
            _ => ranges.push(at..at + PAGE),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_there_make_ranges() {
        assert_eq!(there(&[], 5 * PAGE), []);
        assert_eq!(there(&[0, 0xfe], 0), []);
        let found = there(&[1, 1, 0, 3, 0, 0, 1], 2 * PAGE);
        let expected =
            [2..4, 5..6, 8..9].map(|pages: Range<u64>| pages.start * PAGE..pages.end * PAGE);
        assert_eq!(found, expected);
    }
}
