//! The chunks of an image under construction, however many they are.
//!
//! ```text
//! push -> some in memory -full-> sorted, behind the others in a nameless file beside the image
//! in_order: all of them by their place, merged
//! ```
//! # What callers may rely on
//! Memory in use does not grow with their number. Nothing is written to the disk while they are few: so many stand for some
//! GiB.

use super::extents::{PIECE_BYTES, Piece};
use itertools::Itertools;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// So many are kept in memory, 2 MiB of them.
const MOST_IN_MEMORY: usize = 32 << 10;
/// Read at a time from each sorted run.
const READ_AT_ONCE: usize = 128;

/// All of them, in the order in which they came or better.
#[derive(Debug)]
pub(super) struct Pieces {
    recent: Vec<Piece>,
    most_in_memory: usize,
    /// Where the file is made, if it is needed.
    folder: PathBuf,
    file: Option<File>,
    /// Where in the file each sorted run ends, in pieces.
    ends: Vec<usize>,
}

impl Pieces {
    /// None yet; what does not fit into memory goes into a file in this folder.
    pub(super) fn new(folder: PathBuf) -> Self {
        Pieces {
            recent: vec![],
            most_in_memory: MOST_IN_MEMORY,
            folder,
            file: None,
            ends: vec![],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0) + self.recent.len()
    }

    /// # Errors
    /// When the file cannot be made or written.
    pub(super) fn push(&mut self, piece: Piece) -> io::Result<()> {
        self.recent.push(piece);
        match self.recent.len() < self.most_in_memory {
            true => Ok(()),
            false => self.put_aside(),
        }
    }

    /// # Errors
    /// As [`Pieces::push`].
    pub(super) fn extend(&mut self, pieces: impl IntoIterator<Item = Piece>) -> io::Result<()> {
        pieces.into_iter().try_for_each(|piece| self.push(piece))
    }

    fn put_aside(&mut self) -> io::Result<()> {
        self.recent.sort_unstable_by_key(Piece::place);
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile_in(&self.folder)?),
        };
        let begin = self.ends.last().copied().unwrap_or(0);
        let mut at = (begin * PIECE_BYTES) as u64;
        let mut bytes = Vec::with_capacity(READ_AT_ONCE * PIECE_BYTES);
        for some in self.recent.chunks(READ_AT_ONCE) {
            bytes.clear();
            some.iter()
                .for_each(|piece| bytes.extend_from_slice(&piece.encode()));
            file.write_all_at(&bytes, at)?;
            at += bytes.len() as u64;
        }
        self.ends.push(begin + self.recent.len());
        self.recent.clear();
        Ok(())
    }

    /// All of them, by space and place.
    pub(super) fn in_order(&mut self) -> impl Iterator<Item = io::Result<Piece>> + use<'_> {
        self.recent.sort_unstable_by_key(Piece::place);
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        let file = self.file.as_ref();
        let runs = begins.zip(&self.ends).filter_map(move |(begin, end)| {
            let run = Run {
                file: file?,
                left: begin..*end,
                read: vec![].into_iter(),
            };
            Some(Sorted::Aside(run))
        });
        let recent = Sorted::Recent(self.recent.iter());
        let all = runs.chain([recent]);
        // What cannot be read is told at once.
        let place = |piece: &io::Result<Piece>| piece.as_ref().map(Piece::place).unwrap_or((0, 0));
        all.kmerge_by(move |one, other| place(one) < place(other))
    }
}

enum Sorted<'a> {
    Aside(Run<'a>),
    Recent(std::slice::Iter<'a, Piece>),
}

impl Iterator for Sorted<'_> {
    type Item = io::Result<Piece>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Sorted::Aside(run) => run.next().transpose(),
            Sorted::Recent(pieces) => pieces.next().map(|piece| Ok(*piece)),
        }
    }
}

/// A sorted part of the file.
struct Run<'a> {
    file: &'a File,
    left: std::ops::Range<usize>,
    read: std::vec::IntoIter<Piece>,
}

impl Run<'_> {
    fn next(&mut self) -> io::Result<Option<Piece>> {
        if let Some(piece) = self.read.next() {
            return Ok(Some(piece));
        }
        let count = self.left.len().min(READ_AT_ONCE);
        let mut bytes = vec![0; count * PIECE_BYTES];
        let at = (self.left.start * PIECE_BYTES) as u64;
        // An error is told once.
        let left = std::mem::take(&mut self.left);
        self.file.read_exact_at(&mut bytes, at)?;
        self.left = left.start + count..left.end;
        let (pieces, _) = bytes.as_chunks();
        let pieces: Vec<_> = pieces.iter().map(Piece::decode).collect();
        self.read = pieces.into_iter();
        Ok(self.read.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loader::layout::{Chunk, Encoding, Space};
    use proptest::prelude::*;

    fn piece(number: u64) -> Piece {
        let chunk = Chunk {
            offset: number * 7,
            stored_len: 4096,
            raw_len: 4096,
            hash: [number as u8; 32],
        };
        let space = Space::Process((number % 3) as u32);
        Piece::new(space, number * 4096, Encoding::Raw, chunk)
    }

    proptest! {
        /// Few enough to be in memory, and many runs: each comes once, by its place, twice over.
        #[test]
        fn each_comes_once_and_in_order(
            numbers in prop::collection::btree_set(0u64..5000, 0..1200),
            order in any::<u64>(),
            most in 1usize..400,
        ) {
            let folder = tempfile::tempdir().expect("a folder");
            let mut pieces = Pieces::new(folder.path().to_owned());
            pieces.most_in_memory = most;
            let mut shuffled: Vec<u64> = numbers.iter().copied().collect();
            shuffled.sort_by_key(|number| number.wrapping_mul(order | 1));
            pieces.extend(shuffled.iter().map(|number| piece(*number))).expect("are kept");
            prop_assert_eq!(pieces.len(), numbers.len());
            prop_assert!(pieces.recent.len() < most);
            let mut expected: Vec<Piece> = numbers.iter().map(|number| piece(*number)).collect();
            expected.sort_by_key(Piece::place);
            for _ in 0..2 {
                let found: Vec<Piece> = pieces.in_order().collect::<Result<_, _>>().expect("are read");
                prop_assert_eq!(&found, &expected);
            }
            // Nothing of it has a name.
            prop_assert_eq!(std::fs::read_dir(folder.path()).expect("lists").count(), 0);
        }
    }

    #[test]
    fn what_is_lost_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut pieces = Pieces::new(folder.path().to_owned());
        pieces.most_in_memory = 100;
        pieces.extend((0..1000).map(piece)).expect("are kept");
        let file = pieces.file.as_ref().expect("is there");
        file.set_len(500 * PIECE_BYTES as u64).expect("is cut");
        let read: Result<Vec<Piece>, _> = pieces.in_order().collect();
        let error = read.expect_err("cut").kind();
        assert_eq!(error, io::ErrorKind::UnexpectedEof);
    }
}
