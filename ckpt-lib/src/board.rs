//! A job's board: a page in which a program writes what it wants of whoever keeps it, and is answered (contrib/inside/wayfarer.c).
//!
//! ```text
//! job      wants, number n ──SIGURG──> its parent ──ASKS──> starter     reads the board
//! starter  does it ──> result, answered = n                              the job waits for that
//! whoever makes an image  call = n, SIGURG to the thread that keeps the job's hooks ──> before(), ready = n;  over = n ──> after()
//! job      disabled > 0: no image; waits = 1 (by the starter): tell me when it is 0 again
//! ```
//! The page is the first of a memfd of that [name](NAME), mapped shared, so that it is found in any process whose image it was in.
//! # What callers may rely on
//! What the job has written there is foreign: it is read within the page, and means something only if the page begins with [`MAGIC`].

use crate::procfs::{MapsLine, ProcDir, ProcfsError, parse_maps};
use crate::tracee::{HostPid, Memory};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// What the memfd is called.
pub const NAME: &[u8] = b"wayfarer-board";
/// How a page begins that is one.
pub const MAGIC: [u8; 8] = *b"wayfarer";
/// Its layout.
pub const VERSION: u32 = 1;

const LEN: usize = 4096;
/// Where the parts of a board are: numbers of four bytes, then texts that end with NUL.
mod at {
    use std::ops::Range;

    pub(super) const VERSION: usize = 8;
    pub(super) const DISABLED: usize = 12;
    pub(super) const WANTED: usize = 16;
    pub(super) const KIND: usize = 20;
    pub(super) const ANSWERED: usize = 24;
    pub(super) const RESULT: usize = 28;
    pub(super) const WAITS: usize = 32;
    pub(super) const HOOKS: usize = 36;
    pub(super) const CALL: usize = 40;
    pub(super) const READY: usize = 44;
    pub(super) const OVER: usize = 48;
    pub(super) const WHY: Range<usize> = 64..512;
    pub(super) const FILE: Range<usize> = 512..4096;
}

/// What a job can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// An image.
    Checkpoint,
    /// An image, then leave.
    Leave,
    /// Be again as it was at its last image.
    GoBack,
    /// Something that is not known here, by its number.
    Unknown(u32),
}

impl From<u32> for Want {
    fn from(kind: u32) -> Self {
        match kind {
            1 => Want::Checkpoint,
            2 => Want::Leave,
            3 => Want::GoBack,
            other => Want::Unknown(other),
        }
    }
}

impl Want {
    /// As it stands on a board.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Want::Checkpoint => 1,
            Want::Leave => 2,
            Want::GoBack => 3,
            Want::Unknown(kind) => kind,
        }
    }
}

/// What is written on a board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// So many times checkpoints were forbidden and not yet allowed again.
    pub disabled: u32,
    /// What it waits for, and the number of that.
    pub wants: Option<(u32, Want)>,
    /// Each image is to be copied there.
    pub file: Option<PathBuf>,
}

/// A board of a process.
#[derive(Debug)]
pub struct Board {
    memory: Memory,
    start: u64,
}

impl Board {
    /// All boards of a process: each library in it may have its own.
    ///
    /// # Errors
    /// Its mappings or its memory cannot be read.
    pub fn all_of(pid: HostPid) -> Result<Vec<Self>, ProcfsError> {
        let lines = ProcDir::of(pid.0).parsed("maps", parse_maps)?;
        let is_board = |line: &MapsLine| {
            let name = line.name.strip_prefix(b"/memfd:");
            let name = name.map(|name| name.strip_suffix(b" (deleted)").unwrap_or(name));
            name == Some(NAME) && line.shared && line.offset == 0
        };
        let mut boards = vec![];
        for line in lines.iter().filter(|line| is_board(line)) {
            let start = line.start;
            let denied = |source| ProcfsError::Read {
                path: ProcDir::of(pid.0).file("mem"),
                source,
            };
            let memory = Memory::open(pid).map_err(denied)?;
            let board = Board { memory, start };
            if board.bytes().is_ok_and(|page| is_one(&page)) {
                boards.push(board);
            }
        }
        Ok(boards)
    }

    /// Where a process wants images of it copied to, if it says that on one of its boards.
    #[must_use]
    pub fn wanted_file(pid: HostPid) -> Option<PathBuf> {
        let boards = Self::all_of(pid).ok()?;
        boards.iter().find_map(|board| board.read().ok()?.file)
    }

    fn bytes(&self) -> io::Result<[u8; LEN]> {
        let mut page = [0; LEN];
        self.memory.read(self.start, &mut page)?;
        Ok(page)
    }

    /// What is written there now.
    ///
    /// # Errors
    /// The process is gone, or what was there.
    pub fn read(&self) -> io::Result<Notice> {
        Ok(understood(&self.bytes()?))
    }

    /// The job waits for the answer to `number` no more.
    ///
    /// # Errors
    /// The process is gone, or what was there.
    pub fn answer(&self, number: u32, result: Result<(), &str>) -> io::Result<()> {
        let why = result.err().unwrap_or_default();
        let mut text = [0; at::WHY.end - at::WHY.start];
        let mut len = why.len().min(text.len() - 1);
        while !why.is_char_boundary(len) {
            len -= 1;
        }
        text[..len].copy_from_slice(&why.as_bytes()[..len]);
        self.memory
            .write(self.start + at::WHY.start as u64, &text)?;
        self.put(at::RESULT, u32::from(result.is_err()))?;
        // Behind all that it says.
        self.put(at::ANSWERED, number)
    }

    /// Lets the job tell when it allows checkpoints again.
    ///
    /// # Errors
    /// The process is gone, or what was there.
    pub fn wait(&self) -> io::Result<()> {
        self.put(at::WAITS, 1)
    }

    /// The thread that carries the job's hooks out, if it has some, as the job calls it.
    pub(crate) fn hooks(&self) -> io::Result<Option<i32>> {
        let tid = number(&self.bytes()?, at::HOOKS);
        Ok(i32::try_from(tid).ok().filter(|tid| *tid > 0))
    }

    /// A checkpoint begins, the one of this number.
    pub(crate) fn call(&self) -> io::Result<u32> {
        let number = number(&self.bytes()?, at::CALL).wrapping_add(1);
        self.put(at::CALL, number).map(|()| number)
    }

    /// Whether the job is ready for that.
    pub(crate) fn is_ready(&self, for_it: u32) -> io::Result<bool> {
        Ok(number(&self.bytes()?, at::READY) == for_it)
    }

    /// That checkpoint disturbs nobody any more.
    pub(crate) fn over(&self, number: u32) -> io::Result<()> {
        self.put(at::OVER, number)
    }

    fn put(&self, at: usize, number: u32) -> io::Result<()> {
        let at = self.start + at as u64;
        self.memory.write(at, &number.to_le_bytes())
    }
}

fn number(page: &[u8; LEN], at: usize) -> u32 {
    let [a, b, c, d] = [0, 1, 2, 3].map(|byte| page[at + byte]);
    u32::from_le_bytes([a, b, c, d])
}

fn is_one(page: &[u8; LEN]) -> bool {
    page.starts_with(&MAGIC) && number(page, at::VERSION) == VERSION
}

fn understood(page: &[u8; LEN]) -> Notice {
    let wanted = number(page, at::WANTED);
    let kind = Want::from(number(page, at::KIND));
    let file = page[at::FILE].split(|byte| *byte == 0).next();
    // Without an end it is none.
    let file = file.filter(|name| !name.is_empty() && name.len() < at::FILE.len());
    Notice {
        disabled: number(page, at::DISABLED),
        wants: (wanted != number(page, at::ANSWERED)).then_some((wanted, kind)),
        file: file.map(|name| OsString::from_vec(name.to_vec()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(numbers: &[(usize, u32)], file: &[u8]) -> [u8; LEN] {
        let mut page = [0; LEN];
        page[..MAGIC.len()].copy_from_slice(&MAGIC);
        for (at, number) in numbers {
            page[*at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        page[at::FILE][..file.len()].copy_from_slice(file);
        page
    }

    #[test]
    fn a_board_is_read_as_it_is_written() {
        let numbers = [(at::VERSION, VERSION), (at::DISABLED, 2), (at::WANTED, 7)];
        let written = page(&numbers, b"/home/it/image");
        assert!(is_one(&written));
        let wants = |numbers: &[(usize, u32)]| understood(&page(numbers, b"")).wants;
        assert_eq!(
            understood(&written),
            Notice {
                disabled: 2,
                wants: Some((7, Want::Unknown(0))),
                file: Some("/home/it/image".into()),
            }
        );
        assert_eq!(
            wants(&[(at::WANTED, 1), (at::KIND, 3)]),
            Some((1, Want::GoBack))
        );
        assert_eq!(wants(&[(at::WANTED, 1), (at::ANSWERED, 1)]), None);
    }

    #[test]
    fn what_is_no_board_is_none_and_a_name_without_end_is_none() {
        assert!(!is_one(&[0; LEN]));
        assert!(!is_one(&page(&[(at::VERSION, 2)], b"")));
        let long = vec![b'x'; at::FILE.len()];
        assert_eq!(understood(&page(&[], &long)).file, None);
    }
}
