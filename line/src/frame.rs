//! Frames: what belongs to which stream.
//!
//! ```text
//! byte  0        4      7      8
//!       stream   len    kind   bytes of Data      numbers are little-endian
//!       u32      u24    u8
//! ```
//! Open: a stream begins, `len` is its purpose. Data: `len` bytes follow. Close: the sender neither sends nor reads more.
//! Credit: the receiver may send `len` bytes more. A stream is over when both sides have closed it; then its number may be used again.

/// Bytes of a frame before its data.
pub const FRAME_HEAD: usize = 8;
/// Most bytes of data in one frame: how long others wait behind it.
pub const MOST_FRAME: usize = 64 << 10;
/// Bytes of a stream that may be on their way from the beginning: a message and its data, and what was not given back yet.
pub const WINDOW: u32 = (wire::MOST_DATA as u32) + (512 << 10);
/// Credit is given back in steps of this, at least.
pub const CREDIT_STEP: u32 = 256 << 10;
/// Streams of a line at once.
pub const MOST_STREAMS: usize = 1024;

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Purpose {
    /// Requests of the job (docs/PROTOCOL.md).
    Calls = 1,
    /// What the job reads as its standard input.
    Input = 2,
    /// The job's standard output.
    Output = 3,
    /// The job's standard error.
    Errors = 4,
    /// Signals for the job, and how it ended.
    Control = 5,
}

impl Purpose {
    fn from_number(number: u32) -> Option<Self> {
        let all = [
            Purpose::Calls,
            Purpose::Input,
            Purpose::Output,
            Purpose::Errors,
            Purpose::Control,
        ];
        all.into_iter().find(|purpose| *purpose as u32 == number)
    }
}

/// What cannot be a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// No such kind.
    #[error("unknown kind of frame {found}")]
    Kind {
        /// What came.
        found: u8,
    },
    /// More data than a frame may have.
    #[error("a frame of {found} bytes, expected at most {MOST_FRAME}")]
    Long {
        /// What came.
        found: u32,
    },
    /// No such purpose.
    #[error("a stream of unknown purpose {found}")]
    Purpose {
        /// What came.
        found: u32,
    },
    /// It means nothing, and could be sent for ever.
    #[error("an empty frame")]
    Empty,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A stream begins.
    Open(u32, Purpose),
    /// So many bytes of a stream follow.
    Data(u32, u32),
    /// A stream ends.
    Close(u32),
    /// So many bytes more may be sent.
    Credit(u32, u32),
}

impl Frame {
    /// As bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; FRAME_HEAD] {
        let (stream, kind, len) = match self {
            Frame::Open(stream, purpose) => (stream, 1, purpose as u32),
            Frame::Data(stream, len) => (stream, 2, len),
            Frame::Close(stream) => (stream, 3, 0),
            Frame::Credit(stream, len) => (stream, 4, len),
        };
        let stream = stream.to_le_bytes();
        let len = (len & 0xff_ffff).to_le_bytes();
        [
            stream[0], stream[1], stream[2], stream[3], len[0], len[1], len[2], kind,
        ]
    }

    /// Reads a head.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn read(bytes: [u8; FRAME_HEAD]) -> Result<Self, FrameError> {
        let stream = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let len = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], 0]);
        match bytes[7] {
            1 => Purpose::from_number(len)
                .map(|purpose| Frame::Open(stream, purpose))
                .ok_or(FrameError::Purpose { found: len }),
            2 | 4 if len == 0 => Err(FrameError::Empty),
            2 if len as usize > MOST_FRAME => Err(FrameError::Long { found: len }),
            2 => Ok(Frame::Data(stream, len)),
            3 => Ok(Frame::Close(stream)),
            4 => Ok(Frame::Credit(stream, len)),
            found => Err(FrameError::Kind { found }),
        }
    }
}

/// What has come of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A stream begins.
    Open(u32, Purpose),
    /// Bytes of a stream: all of a frame's, or some.
    Data(u32, &'a [u8]),
    /// A stream ends.
    Close(u32),
    /// So many bytes more may be sent.
    Credit(u32, u32),
}

/// Takes what comes apart, in whatever portions it comes; keeps no data.
#[derive(Debug, Default)]
pub struct Pieces {
    head: [u8; FRAME_HEAD],
    filled: usize,
    /// The frame that has begun: its stream, and what is still to come.
    left: (u32, usize),
}

impl Pieces {
    /// The next piece in `bytes`, which is taken from it; none: all is taken.
    ///
    /// # Errors
    /// [`FrameError`]; nothing that comes behind it has a meaning.
    pub fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Piece<'a>>, FrameError> {
        while !bytes.is_empty() {
            let (stream, left) = &mut self.left;
            if *left > 0 {
                let (data, rest) = bytes.split_at(bytes.len().min(*left));
                *left -= data.len();
                *bytes = rest;
                return Ok(Some(Piece::Data(*stream, data)));
            }
            let (part, rest) = bytes.split_at(bytes.len().min(FRAME_HEAD - self.filled));
            self.head[self.filled..self.filled + part.len()].copy_from_slice(part);
            self.filled += part.len();
            *bytes = rest;
            if self.filled < FRAME_HEAD {
                return Ok(None);
            }
            self.filled = 0;
            match Frame::read(self.head)? {
                Frame::Data(stream, len) => self.left = (stream, len as usize),
                Frame::Open(stream, purpose) => return Ok(Some(Piece::Open(stream, purpose))),
                Frame::Close(stream) => return Ok(Some(Piece::Close(stream))),
                Frame::Credit(stream, len) => return Ok(Some(Piece::Credit(stream, len))),
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames() -> impl Strategy<Value = Vec<(Frame, Vec<u8>)>> {
        let data = prop::collection::vec(any::<u8>(), 1..300);
        let one = prop_oneof![
            any::<u32>().prop_map(|stream| (Frame::Open(stream, Purpose::Control), vec![])),
            (any::<u32>(), data)
                .prop_map(|(stream, data)| (Frame::Data(stream, data.len() as u32), data)),
            any::<u32>().prop_map(|stream| (Frame::Close(stream), vec![])),
            (any::<u32>(), 1u32..1 << 24)
                .prop_map(|(stream, len)| (Frame::Credit(stream, len), vec![])),
        ];
        prop::collection::vec(one, 0..20)
    }

    proptest! {
        #[test]
        fn frames_read_back_however_they_are_cut(frames in frames(), step in 1usize..40) {
            let mut bytes = vec![];
            for (frame, data) in &frames {
                bytes.extend(frame.to_bytes());
                bytes.extend(data);
            }
            let mut pieces = Pieces::default();
            let mut found: Vec<(Frame, Vec<u8>)> = vec![];
            let mut wanted = 0;
            for mut part in bytes.chunks(step) {
                while let Some(piece) = pieces.next(&mut part).expect("sound") {
                    match piece {
                        Piece::Open(stream, purpose) => found.push((Frame::Open(stream, purpose), vec![])),
                        Piece::Close(stream) => found.push((Frame::Close(stream), vec![])),
                        Piece::Credit(stream, len) => found.push((Frame::Credit(stream, len), vec![])),
                        Piece::Data(stream, data) if wanted > 0 => {
                            let last = found.last_mut().expect("has begun");
                            last.1.extend(data);
                            prop_assert_eq!(last.0, Frame::Data(stream, (last.1.len() + wanted - data.len()) as u32));
                            wanted -= data.len();
                        }
                        Piece::Data(stream, data) => {
                            let len = frames[found.len()].1.len();
                            wanted = len - data.len();
                            found.push((Frame::Data(stream, len as u32), data.to_vec()));
                        }
                    }
                }
            }
            prop_assert_eq!(found, frames);
        }

        #[test]
        fn any_bytes_are_pieces_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let mut pieces = Pieces::default();
            let mut rest = &bytes[..];
            while let Ok(Some(_)) = pieces.next(&mut rest) {}
        }
    }

    #[test]
    fn what_is_no_frame_is_named() {
        let mut long = Frame::Data(1, MOST_FRAME as u32).to_bytes();
        assert!(Frame::read(long).is_ok());
        long[4] = 1;
        let found = MOST_FRAME as u32 + 1;
        assert_eq!(Frame::read(long), Err(FrameError::Long { found }));
        assert_eq!(Frame::read([0; 8]), Err(FrameError::Kind { found: 0 }));
        assert_eq!(
            Frame::read([0, 0, 0, 0, 0, 0, 0, 2]),
            Err(FrameError::Empty)
        );
        let error = Frame::read([0, 0, 0, 0, 9, 0, 0, 1]);
        assert_eq!(error, Err(FrameError::Purpose { found: 9 }));
    }
}
