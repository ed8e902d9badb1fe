//! Where the functions of an object are: `.eh_frame_hdr`, which stripped objects have, too (LSB, "Exception
//! Frames").

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

/// A function, and whether signal handlers return to it: then its description begins a byte early, so that its instructions
/// cannot be told from there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its addresses.
    pub range: Range<u64>,
    /// What a signal handler returns to.
    pub is_signal_frame: bool,
}

/// Functions, in the order of their addresses.
#[derive(Clone, Debug)]
pub struct Functions<'a> {
    object: &'a [u8],
    header: u64,
    left: Range<u64>,
}

impl<'a> Functions<'a> {
    /// Of an object that is mapped as `object`, with its `.eh_frame_hdr` (`PT_GNU_EH_FRAME`) at `header`.
    ///
    /// # Errors
    /// [`UnwindError`].
    pub fn new(object: &'a [u8], header: u64) -> Result<Self, UnwindError> {
        let found = bytes(object, header)?;
        if found != EXPECTED {
            return Err(UnwindError::Encoding { found });
        }
        let count = u32::from_le_bytes(bytes(object, header + 8)?);
        Ok(Functions {
            object,
            header,
            left: 0..count.into(),
        })
    }

    fn read(&self, index: u64) -> Result<Function, UnwindError> {
        let entry = self.header + 12 + 8 * index;
        let near = |at| {
            let offset = i32::from_le_bytes(bytes(self.object, at)?);
            Ok(self.header.wrapping_add_signed(offset.into()))
        };
        let start = near(entry)?;
        let description = near(entry + 4)?;
        // Length, CIE, first address, then how many bytes.
        let len = u32::from_le_bytes(bytes(self.object, description.wrapping_add(12))?);
        let end = start.wrapping_add(len.into());
        if end < start || end > self.object.len() as u64 {
            return Err(UnwindError::Bounds { at: end });
        }
        Ok(Function {
            range: start..end,
            is_signal_frame: self.is_signal_frame(description)?,
        })
    }

    /// The common part's augmentation ("zR", "zPLR") has an S.
    fn is_signal_frame(&self, description: u64) -> Result<bool, UnwindError> {
        let place = description.wrapping_add(4);
        let back = u32::from_le_bytes(bytes(self.object, place)?);
        let augmentation = place.wrapping_sub(back.into()).wrapping_add(9);
        for at in augmentation..augmentation.saturating_add(8) {
            match bytes(self.object, at)?[0] {
                0 => break,
                b'S' => return Ok(true),
                _ => {}
            }
        }
        Ok(false)
    }
}

impl Iterator for Functions<'_> {
    type Item = Result<Function, UnwindError>;

    fn next(&mut self) -> Option<Self::Item> {
        let index = self.left.next()?;
        let read = self.read(index);
        if read.is_err() {
            self.left = 0..0;
        }
        Some(read)
    }
}

fn bytes(object: &[u8], at: u64) -> Result<[u8; 4], UnwindError> {
    let start = usize::try_from(at).ok();
    let found = start.and_then(|start| object.get(start..)?.first_chunk::<4>());
    found.copied().ok_or(UnwindError::Bounds { at })
}
