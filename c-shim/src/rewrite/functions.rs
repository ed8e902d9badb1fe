//! Where the functions of an object are: `.eh_frame_hdr`, which stripped objects have, too, or `.eh_frame` itself, where a static
//! program has nothing else (LSB, "Exception Frames").

use core::fmt;
use core::ops::Range;

/// The table of functions cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnwindError {
    /// Encoded otherwise than by GNU ld, gold and lld: version and the three encodings.
    Encoding {
        /// What was found.
        found: [u8; 4],
    },
    /// Something lies outside of the object.
    Bounds {
        /// Address relative to the object's.
        at: u64,
    },
}

impl fmt::Display for UnwindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnwindError::Encoding { found } => write!(
                f,
                "a table of functions that begins with {found:02x?}, expected {EXPECTED:02x?}"
            ),
            UnwindError::Bounds { at } => {
                write!(
                    f,
                    "a table of functions leads to {at:#x}, outside of the object"
                )
            }
        }
    }
}

impl core::error::Error for UnwindError {}

/// Version 1, DW_EH_PE_pcrel|sdata4, DW_EH_PE_udata4, DW_EH_PE_datarel|sdata4.
const EXPECTED: [u8; 4] = [1, 0x1b, 0x03, 0x3b];

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its addresses.
    pub range: Range<u64>,
    /// What a signal handler returns to: its description begins a byte early, so that its instructions cannot be told from there.
    pub is_signal_frame: bool,
    /// Exceptions lead to somewhere in it, perhaps.
    pub catches: bool,
}

/// Where an object says where its functions are; addresses relative to the object's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Table {
    /// `.eh_frame_hdr` (`PT_GNU_EH_FRAME`).
    Sorted(u64),
    /// `.eh_frame`.
    Described(Range<u64>),
}

/// Functions of an object.
#[derive(Clone, Debug)]
pub struct Functions<'a> {
    object: &'a [u8],
    left: Left,
}

/// What has not been read yet.
#[derive(Clone, Debug)]
enum Left {
    /// Entries of the table at this address.
    Sorted(u64, Range<u64>),
    Described(Range<u64>),
}

/// DW_EH_PE_pcrel|sdata4: how the first addresses of functions are told.
const NEAR: u8 = 0x1b;

impl<'a> Functions<'a> {
    /// Of an object that is mapped as `object`.
    ///
    /// # Errors
    /// [`UnwindError`].
    pub fn new(object: &'a [u8], table: &Table) -> Result<Self, UnwindError> {
        let left = match table {
            Table::Sorted(header) => {
                let found = bytes(object, *header)?;
                if found != EXPECTED {
                    return Err(UnwindError::Encoding { found });
                }
                let count = u32::from_le_bytes(bytes(object, header.wrapping_add(8))?);
                Left::Sorted(*header, 0..count.into())
            }
            Table::Described(section) => Left::Described(section.clone()),
        };
        Ok(Functions { object, left })
    }

    fn word(&self, at: u64) -> Result<u32, UnwindError> {
        bytes(self.object, at).map(u32::from_le_bytes)
    }

    /// What lies a signed distance from where that is told.
    fn near(&self, at: u64, from: u64) -> Result<u64, UnwindError> {
        let distance = self.word(at)?.cast_signed();
        Ok(from.wrapping_add_signed(distance.into()))
    }

    fn entry(&self, header: u64, index: u64) -> Result<Function, UnwindError> {
        let entry = header.wrapping_add(12 + 8 * index);
        let start = self.near(entry, header)?;
        let description = self.near(entry.wrapping_add(4), header)?;
        self.function(start, description)
    }

    /// With the description at this address: length, CIE, first address, then how many bytes.
    fn function(&self, start: u64, description: u64) -> Result<Function, UnwindError> {
        let len = self.word(description.wrapping_add(12))?;
        let end = start.wrapping_add(len.into());
        if end < start || end > self.object.len() as u64 {
            return Err(UnwindError::Bounds { at: end });
        }
        let (is_signal_frame, catches) = self.kind(description)?;
        Ok(Function {
            range: start..end,
            is_signal_frame,
            catches,
        })
    }

    /// The next of these descriptions; between them are the common parts.
    fn description(&self, left: &mut Range<u64>) -> Option<Result<Function, UnwindError>> {
        while left.start < left.end {
            let at = left.start;
            let (len, back) = match (self.word(at), self.word(at.wrapping_add(4))) {
                // The end.
                (Ok(0), _) => return None,
                (Ok(len), Ok(back)) => (len, back),
                (Err(error), _) | (_, Err(error)) => return Some(Err(error)),
            };
            if len == u32::MAX {
                let found = len.to_le_bytes();
                return Some(Err(UnwindError::Encoding { found }));
            }
            left.start = at.saturating_add(4 + u64::from(len));
            if back != 0 {
                let common = at.wrapping_add(4).wrapping_sub(back.into());
                return Some(self.described(at, common));
            }
        }
        None
    }

    fn described(&self, at: u64, common: u64) -> Result<Function, UnwindError> {
        let found = self.encoding(common)?;
        if found != NEAR {
            let found = [found, 0, 0, 0];
            return Err(UnwindError::Encoding { found });
        }
        let start = self.near(at.wrapping_add(8), at.wrapping_add(8))?;
        self.function(start, at)
    }

    /// How a common part says that addresses are told (its augmentation's R).
    fn encoding(&self, common: u64) -> Result<u8, UnwindError> {
        let byte = |at: u64| bytes(self.object, at).map(|bytes| bytes[0]);
        let letters = common.wrapping_add(9);
        let mut at = letters;
        while byte(at)? != 0 {
            at += 1;
        }
        // Two alignments, the return address's column, and the length of what follows, each LEB128.
        at += 1;
        for _ in 0..4 {
            while byte(at)? & 0x80 != 0 {
                at += 1;
            }
            at += 1;
        }
        for letter in letters + 1.. {
            match byte(letter)? {
                b'R' => return byte(at),
                b'L' => at += 1,
                b'P' => {
                    at += match byte(at)? & 7 {
                        2 => 3,
                        3 => 5,
                        _ => 9,
                    }
                }
                b'S' => {}
                _ => break,
            }
        }
        Ok(0)
    }

    /// The common part's augmentation ("zR", "zPLR") has an S; it has an L.
    fn kind(&self, description: u64) -> Result<(bool, bool), UnwindError> {
        let place = description.wrapping_add(4);
        let back = u32::from_le_bytes(bytes(self.object, place)?);
        let augmentation = place.wrapping_sub(back.into()).wrapping_add(9);
        let (mut is_signal_frame, mut catches) = (false, false);
        for at in augmentation..augmentation.saturating_add(8) {
            match bytes(self.object, at)?[0] {
                0 => break,
                b'S' => is_signal_frame = true,
                b'L' => catches = true,
                _ => {}
            }
        }
        Ok((is_signal_frame, catches))
    }
}

impl Iterator for Functions<'_> {
    type Item = Result<Function, UnwindError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut left = self.left.clone();
        let read = match &mut left {
            Left::Sorted(header, left) => {
                let index = left.next()?;
                self.entry(*header, index)
            }
            Left::Described(left) => self.description(left)?,
        };
        if read.is_err() {
            left = Left::Described(0..0);
        }
        self.left = left;
        Some(read)
    }
}

fn bytes(object: &[u8], at: u64) -> Result<[u8; 4], UnwindError> {
    let start = usize::try_from(at).ok();
    let found = start.and_then(|start| object.get(start..)?.first_chunk::<4>());
    found.copied().ok_or(UnwindError::Bounds { at })
}
