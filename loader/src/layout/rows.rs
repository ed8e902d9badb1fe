//! Where the rows of tables lie: in memory, or in a file of which little is in memory at a time ([`super::Windows`]).

use core::convert::Infallible;

/// The bytes of a section that has tables.
pub trait Rows {
    /// Why bytes could not be read.
    type Error;

    /// Number of bytes that are used, which is without the padding of the section.
    fn used(&self) -> u64;

    /// The bytes at `at`; those behind the end are zeros.
    ///
    /// # Errors
    /// What whoever has them gave.
    fn read(&self, at: u64, to: &mut [u8]) -> Result<(), Self::Error>;
}

impl Rows for [u8] {
    type Error = Infallible;

    fn used(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, at: u64, to: &mut [u8]) -> Result<(), Infallible> {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let found = self.get(at..).unwrap_or(&[]);
        let count = found.len().min(to.len());
        to[..count].copy_from_slice(&found[..count]);
        to[count..].fill(0);
        Ok(())
    }
}

impl<R: Rows + ?Sized> Rows for &R {
    type Error = R::Error;

    fn used(&self) -> u64 {
        (**self).used()
    }

    fn read(&self, at: u64, to: &mut [u8]) -> Result<(), R::Error> {
        (**self).read(at, to)
    }
}

/// Rows of one table that are asked for in order: some are read at a time.
#[derive(Clone, Debug)]
pub(super) struct InOrder<const BYTES: usize> {
    bytes: [u8; 1024],
    first: u64,
    count: u64,
}

impl<const BYTES: usize> InOrder<BYTES> {
    pub(super) const NONE: Self = InOrder {
        bytes: [0; 1024],
        first: 0,
        count: 0,
    };

    /// Row `index` of `total` that begin at `at`.
    pub(super) fn row<R: Rows>(
        &mut self,
        rows: &R,
        at: u64,
        index: u64,
        total: u64,
    ) -> Result<Option<&[u8; BYTES]>, R::Error> {
        if index >= total {
            return Ok(None);
        }
        let row = BYTES as u64;
        if !(self.first..self.first + self.count).contains(&index) {
            let count = (self.bytes.len() as u64 / row).min(total - index);
            self.count = 0;
            let to = &mut self.bytes[..(count * row) as usize];
            rows.read(at + index * row, to)?;
            (self.first, self.count) = (index, count);
        }
        let from = ((index - self.first) * row) as usize;
        Ok(self.bytes[from..].first_chunk())
    }
}

/// Why what tables say is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsound<W, E> {
    /// They are wrong.
    Wrong(W),
    /// They could not be read.
    Unread(E),
}

impl<W> Unsound<W, Infallible> {
    /// What is wrong with tables that can always be read.
    pub fn wrong(self) -> W {
        let Unsound::Wrong(wrong) = self;
        wrong
    }
}
