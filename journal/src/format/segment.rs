//! A segment: a head, then records to the end of the file.
//!
//! ```text
//! byte  0          8        12  16          32       40           48        64
//!       "WAYFJSEG" version  64  journal id  segment  next object  checksum  records
//!       8 bytes    u32      u32 16 bytes    u64      u64          16 bytes
//! ```
//! # What callers may rely on
//! What was written and synced is read back, or [`JournalError::Damaged`] says what is not. Only records behind
//! the last that was synced may be torn: they end the segment, and none of the changes they were for has been made.

use super::encoding::{u32_at, u64_at};
use super::frame::{self, Frame, FrameError, HEAD_LEN, Key};
use super::record::{ObjectId, Record};
use super::{VERSION, manifest};
use crate::{JournalError, fault};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"WAYFJSEG";
/// Where the first record lies.
pub(crate) const BEGIN: u64 = 64;

pub(crate) fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("segment-{number:016}"))
}

/// A segment that records are added to.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) file: Arc<File>,
    path: PathBuf,
    key: Key,
    /// Bytes that were written.
    pub(crate) end: u64,
    /// Bytes that are durable.
    pub(crate) durable: u64,
    /// Records that are not written yet.
    pending: Vec<u8>,
    /// Up to here there is room on the disk.
    room_to: u64,
}

impl Segment {
    /// Begins one. An unfinished one of this number is replaced.
    pub(crate) fn create(
        dir: &Path,
        (id, number): ([u8; 16], u64),
        key: Key,
        next_object: ObjectId,
    ) -> Result<Self, JournalError> {
        let path = path(dir, number);
        let mut head = Vec::with_capacity(BEGIN as usize);
        head.extend_from_slice(&MAGIC);
        head.extend_from_slice(&VERSION.to_le_bytes());
        head.extend_from_slice(&(BEGIN as u32).to_le_bytes());
        head.extend_from_slice(&id);
        head.extend_from_slice(&number.to_le_bytes());
        head.extend_from_slice(&next_object.0.to_le_bytes());
        let sum = blake3::hash(&head);
        head.extend_from_slice(&sum.as_bytes()[..16]);
        fault::at("segment")?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let made = options.mode(0o600).open(&path).and_then(|file| {
            file.write_all_at(&head, 0)?;
            Ok(file)
        });
        let file = made.map_err(|error| JournalError::io("write", &path, error))?;
        Ok(Segment {
            number,
            file: Arc::new(file),
            path,
            key,
            end: BEGIN,
            durable: 0,
            pending: vec![],
            room_to: BEGIN,
        })
    }

    /// Goes on with one that was read up to `end`; what is behind is cut off.
    pub(crate) fn resume(
        dir: &Path,
        number: u64,
        key: Key,
        end: u64,
    ) -> Result<Self, JournalError> {
        let path = path(dir, number);
        let failed = |error| JournalError::io("open", &path, error);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).open(&path).map_err(failed)?;
        if file.metadata().map_err(failed)?.len() != end {
            fault::at("open")?;
            file.set_len(end).map_err(failed)?;
        }
        Ok(Segment {
            number,
            file: Arc::new(file),
            path,
            key,
            end,
            durable: 0,
            pending: vec![],
            room_to: end,
        })
    }

    /// Adds a record to those that are written next.
    pub(crate) fn push(&mut self, record: &Record, data: &[u8]) -> Result<(), JournalError> {
        let body = record.encode();
        let body = body.filter(|body| body.len() <= frame::MOST_BODY as usize);
        let body = body.ok_or(JournalError::Unsupported {
            what: "a change of so many attributes",
        })?;
        let position = self.end + self.pending.len() as u64;
        let place = (position, self.durable);
        frame::push(
            &self.key,
            place,
            record.kind(),
            (&body, data),
            &mut self.pending,
        );
        Ok(())
    }

    /// Bytes when all that waits is written.
    pub(crate) fn len_to_be(&self) -> u64 {
        self.end + self.pending.len() as u64
    }

    /// Has the disk keep room for what waits and for so many bytes behind it.
    pub(crate) fn keep_room(&mut self, more: u64) -> Result<(), JournalError> {
        let to = self.len_to_be() + more;
        if to > self.room_to {
            let kept = super::keep_room(&self.file, self.room_to, to);
            self.room_to = kept.map_err(|error| JournalError::io("write", &self.path, error))?;
        }
        Ok(())
    }

    /// Writes what waits. If it cannot be, it is forgotten, and the segment is as before.
    pub(crate) fn flush(&mut self) -> Result<(), JournalError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        if let Err(error) = fault::at("append") {
            // Some of it may have been written.
            let half = self.pending.len() / 2;
            let _ = self.file.write_all_at(&self.pending[..half], self.end);
            return Err(error);
        }
        let written = self.file.write_all_at(&self.pending, self.end);
        if let Err(error) = written {
            self.pending.clear();
            // What stays would be found torn.
            let _ = self.file.set_len(self.end);
            self.room_to = self.end;
            return Err(JournalError::io("write", &self.path, error));
        }
        self.end += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Forgets what waits.
    pub(crate) fn discard(&mut self) {
        self.pending.clear();
    }
}

/// A record that was read, and where its data lie.
pub(crate) struct Read<'a> {
    pub(crate) record: Record,
    pub(crate) data: &'a [u8],
    pub(crate) data_position: u64,
}

/// How a segment is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// Its bytes, if they are known: then all must be there and good.
    pub(crate) sealed: Option<u64>,
    /// At least so many bytes were durable.
    pub(crate) durable: u64,
}

/// Reads all records of a segment: the number the next new object has to have at least, and where the good records end.
pub(crate) fn scan(
    dir: &Path,
    (id, number): ([u8; 16], u64),
    key: &Key,
    extent: Extent,
    mut each: impl FnMut(Read<'_>) -> Result<(), &'static str>,
) -> Result<(ObjectId, u64), JournalError> {
    let path = path(dir, number);
    let file = File::open(&path).map_err(|error| JournalError::io("open", &path, error))?;
    let file_len = file
        .metadata()
        .map_err(|error| JournalError::io("read", &path, error))?;
    let file_len = file_len.len();
    if let Some(sealed) = extent.sealed
        && file_len < sealed
    {
        let (found, expected) = (format!("{file_len} bytes"), format!("{sealed} bytes"));
        return Err(JournalError::damaged(path, "length", found, expected));
    }
    let len = extent.sealed.unwrap_or(file_len);
    let next_object = read_head(&file, &path, (id, number))?;
    let mut position = BEGIN;
    let mut buffer = vec![];
    while position < len {
        let frame = match read_frame(&file, key, position, len, &mut buffer) {
            Ok(frame) => frame,
            Err(Bad::Frame(error)) => {
                let torn = extent.sealed.is_none()
                    && position >= extent.durable
                    && !synced_behind(&file, key, position, len)
                        .map_err(|error| JournalError::io("read", &path, error))?;
                if torn {
                    return Ok((next_object, position));
                }
                let found = format!("{error} at byte {position}");
                return Err(JournalError::damaged(
                    path,
                    "record",
                    found,
                    "a whole record",
                ));
            }
            Err(Bad::Io(error)) => return Err(JournalError::io("read", path, error)),
        };
        let head = frame.head;
        let damaged = |found: &str| {
            let found = format!("{found} at byte {position} (kind {})", head.kind);
            JournalError::damaged(&path, "record", found, "a record of this version")
        };
        let record =
            Record::decode(head.kind, frame.body, head.data_len.into()).map_err(damaged)?;
        let read = Read {
            record,
            data: frame.data,
            data_position: position + HEAD_LEN as u64 + u64::from(head.body_len),
        };
        each(read).map_err(damaged)?;
        position += head.len();
    }
    Ok((next_object, position))
}

fn read_head(file: &File, path: &Path, of: ([u8; 16], u64)) -> Result<ObjectId, JournalError> {
    let mut head = [0; BEGIN as usize];
    file.read_exact_at(&mut head, 0)
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                let expected = format!("at least {BEGIN} bytes");
                JournalError::damaged(path, "length", "less", expected)
            }
            _ => JournalError::io("read", path, error),
        })?;
    if head[..8] != MAGIC {
        let found = format!("{:?}", String::from_utf8_lossy(&head[..8]));
        return Err(JournalError::damaged(path, "magic", found, "\"WAYFJSEG\""));
    }
    let found = u32_at(&head, 8);
    if found != VERSION {
        return Err(JournalError::Version {
            path: path.to_owned(),
            found,
            expected: VERSION,
        });
    }
    let sum = blake3::hash(&head[..48]);
    if sum.as_bytes()[..16] != head[48..] {
        let (found, expected) = (
            manifest::hex(&sum.as_bytes()[..16]),
            manifest::hex(&head[48..]),
        );
        return Err(JournalError::damaged(
            path,
            "checksum of the head",
            found,
            expected,
        ));
    }
    let mut id = [0; 16];
    id.copy_from_slice(&head[16..32]);
    let found = (id, u64_at(&head, 32));
    if found != of {
        let show = |(id, number): ([u8; 16], u64)| format!("{number} of {}", manifest::hex(&id));
        return Err(JournalError::damaged(
            path,
            "segment",
            show(found),
            show(of),
        ));
    }
    Ok(ObjectId(u64_at(&head, 40)))
}

enum Bad {
    Frame(FrameError),
    Io(std::io::Error),
}

fn read_frame<'a>(
    file: &File,
    key: &Key,
    position: u64,
    end: u64,
    buffer: &'a mut Vec<u8>,
) -> Result<Frame<'a>, Bad> {
    let found = end - position;
    let head_len = found.min(HEAD_LEN as u64) as usize;
    buffer.resize(head_len, 0);
    file.read_exact_at(buffer, position).map_err(Bad::Io)?;
    let expected = frame::Head::read(buffer).map_err(Bad::Frame)?.len();
    if expected > found {
        return Err(Bad::Frame(FrameError::Short { found, expected }));
    }
    buffer.resize(expected as usize, 0);
    let behind = position + HEAD_LEN as u64;
    file.read_exact_at(&mut buffer[HEAD_LEN..], behind)
        .map_err(Bad::Io)?;
    Frame::read(key, position, buffer).map_err(Bad::Frame)
}

/// Whether a good record behind `position` says that this place was durable: then it is not torn, but damaged.
fn synced_behind(file: &File, key: &Key, position: u64, end: u64) -> std::io::Result<bool> {
    const STEP: u64 = 1 << 20;
    let mut window = vec![0; STEP as usize + HEAD_LEN];
    let mut buffer = vec![];
    let mut from = position + 8;
    while from < end {
        let window = &mut window[..(end - from).min(STEP + HEAD_LEN as u64) as usize];
        file.read_exact_at(window, from)?;
        for at in (0..window.len().min(STEP as usize)).step_by(8) {
            let Ok(head) = frame::Head::read(&window[at..]) else {
                continue;
            };
            let place = from + at as u64;
            if head.position != place || head.durable <= position {
                continue;
            }
            match read_frame(file, key, place, end, &mut buffer) {
                Ok(_) => return Ok(true),
                Err(Bad::Frame(_)) => {}
                Err(Bad::Io(error)) => return Err(error),
            }
        }
        from += STEP;
    }
    Ok(false)
}
