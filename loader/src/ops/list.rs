//! Reading the operations section: every stream walked once before anything is believed.

use super::{AnyOp, OPS_MAGIC, OpsHeader, StreamEntry, StreamKind, tails, word};

/// Why an operation list is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpsError {
    /// Offset in the section of the record or table that is wrong.
    pub offset: u64,
    /// What is wrong with it.
    pub what: &'static str,
}

/// A checked operation list.
#[derive(Clone, Copy, Debug)]
pub struct OpsList<'a> {
    bytes: &'a [u8],
    header: OpsHeader,
}

/// One record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Offset of the record in the section.
    pub offset: usize,
    /// The operation.
    pub op: AnyOp,
    /// Its tail.
    pub tail: &'a [u8],
}

impl<'a> OpsList<'a> {
    /// Reads the header and walks every stream once; what each operation has behind it is read, too ([`tails`]).
    ///
    /// # Errors
    /// The first place that does not make sense.
    pub fn read(bytes: &'a [u8]) -> Result<Self, OpsError> {
        let header = OpsHeader::decode(bytes).ok_or(OpsError {
            offset: 0,
            what: "shorter than its header",
        })?;
        if header.magic != OPS_MAGIC {
            return Err(OpsError {
                offset: 0,
                what: "not operations of this version (wrong magic)",
            });
        }
        let list = OpsList { bytes, header };
        let entries_end = header
            .streams
            .checked_mul(StreamEntry::BYTES as u64)
            .and_then(|len| len.checked_add(OpsHeader::BYTES as u64));
        if entries_end.is_none_or(|end| end > bytes.len() as u64) {
            return Err(OpsError {
                offset: 16,
                what: "more streams than bytes",
            });
        }
        let mut end = entries_end.unwrap_or(0);
        for index in 0..header.streams {
            let entry = list.stream(index).ok_or(OpsError {
                offset: 16,
                what: "no such stream",
            })?;
            let at = OpsHeader::BYTES as u64 + index * StreamEntry::BYTES as u64;
            if StreamKind::from_number(entry.kind).is_none() {
                return Err(OpsError {
                    offset: at,
                    what: "unknown kind of stream",
                });
            }
            if entry.parent >= header.streams {
                return Err(OpsError {
                    offset: at,
                    what: "stream of no process",
                });
            }
            // One after another: so each byte is looked at once.
            if entry.offset != end {
                return Err(OpsError {
                    offset: at,
                    what: "stream does not begin where the one before ended",
                });
            }
            end = end.saturating_add(entry.len);
            for record in list.records(&entry) {
                let Record { offset, op, tail } = record?;
                tails::check(&op, tail).map_err(|what| OpsError {
                    offset: offset as u64,
                    what,
                })?;
            }
        }
        if end != bytes.len() as u64 {
            return Err(OpsError {
                offset: end,
                what: "bytes of no stream",
            });
        }
        Ok(list)
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &OpsHeader {
        &self.header
    }

    /// Stream `index`.
    #[must_use]
    pub fn stream(&self, index: u64) -> Option<StreamEntry> {
        if index >= self.header.streams {
            return None;
        }
        let at = OpsHeader::BYTES
            + usize::try_from(index)
                .ok()?
                .checked_mul(StreamEntry::BYTES)?;
        StreamEntry::decode(self.bytes.get(at..)?)
    }

    /// The records of a stream, in order. The iterator ends after the first error.
    pub fn records(
        &self,
        entry: &StreamEntry,
    ) -> impl Iterator<Item = Result<Record<'a>, OpsError>> + use<'a> {
        let start = usize::try_from(entry.offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(usize::try_from(entry.len).unwrap_or(usize::MAX));
        let bytes = self.bytes;
        let mut at = Some(start);
        core::iter::from_fn(move || {
            let here = at?;
            if here == end {
                at = None;
                return None;
            }
            let record = read_record(bytes, here, end);
            at = record.as_ref().ok().map(|(_, next)| *next);
            Some(record.map(|(record, _)| record))
        })
    }
}

/// Whether these bytes are one record that would be believed.
///
/// # Errors
/// What is wrong.
pub fn check_record(bytes: &[u8]) -> Result<(), &'static str> {
    let (record, end) = read_record(bytes, 0, bytes.len()).map_err(|error| error.what)?;
    if end != bytes.len() {
        return Err("bytes behind a record");
    }
    tails::check(&record.op, record.tail)
}

fn read_record(bytes: &[u8], at: usize, end: usize) -> Result<(Record<'_>, usize), OpsError> {
    let wrong = |what| OpsError {
        offset: at as u64,
        what,
    };
    let stream = bytes
        .get(..end)
        .ok_or(wrong("stream ends behind the section"))?;
    let kind = word(stream, at).ok_or(wrong("record cut short"))?;
    let len = word(stream, at + 8).ok_or(wrong("record cut short"))?;
    let len = usize::try_from(len).map_err(|_| wrong("record too long"))?;
    let next = at
        .checked_add(len)
        .filter(|_| len >= 16 && len.is_multiple_of(8));
    let next = next.ok_or(wrong("impossible record length"))?;
    let body = stream
        .get(at + 16..next)
        .ok_or(wrong("record longer than its stream"))?;
    let (op, fields) = AnyOp::decode(kind, body).ok_or(wrong("unknown operation"))?;
    Ok((
        Record {
            offset: at,
            op,
            tail: &body[fields..],
        },
        next,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Call, Expect, Operation};

    fn list() -> Vec<u8> {
        let mut record = vec![];
        let call = Call {
            nr: 39,
            expect: Expect::Success as u64,
            ..Call::default()
        };
        let tail = *b"getpid\0\0";
        let len = 16 + Call::BYTES + tail.len();
        record.extend(Call::KIND.to_le_bytes());
        record.extend((len as u64).to_le_bytes());
        call.encode(|bytes| record.extend(bytes));
        record.extend(tail);
        let mut bytes = vec![];
        let header = OpsHeader {
            magic: OPS_MAGIC,
            streams: 1,
            ..OpsHeader::default()
        };
        header.encode(|b| bytes.extend(b));
        let offset = (OpsHeader::BYTES + StreamEntry::BYTES) as u64;
        let entry = StreamEntry {
            kind: 1,
            id: 0,
            parent: 0,
            offset,
            len: record.len() as u64,
        };
        entry.encode(|b| bytes.extend(b));
        bytes.extend(record);
        bytes
    }

    #[test]
    fn a_record_reads_back_as_written() {
        let bytes = list();
        let list = OpsList::read(&bytes).expect("reads");
        let entry = list.stream(0).expect("stream");
        let records: Vec<_> = list.records(&entry).map(|r| r.expect("record")).collect();
        assert_eq!(records.len(), 1);
        assert!(matches!(records[0].op, AnyOp::Call(call) if call.nr == 39));
        assert_eq!(&records[0].tail[..6], b"getpid");
        let record = &bytes[records[0].offset..];
        assert_eq!(check_record(record), Ok(()));
        assert!(check_record(&record[..record.len() - 8]).is_err());
        let longer = [record, &[0; 8]].concat();
        assert_eq!(check_record(&longer), Err("bytes behind a record"));
    }

    #[test]
    fn operations_of_an_earlier_build_are_told_from_damaged_ones() {
        let mut bytes = list();
        bytes[..8].copy_from_slice(b"WFOPS\0\0\x01");
        let error = OpsList::read(&bytes).expect_err("another version");
        assert_eq!(error.offset, 0);
        assert!(error.what.contains("not operations of this version"));
    }

    #[test]
    fn streams_share_no_bytes() {
        let one = list();
        let header_end = OpsHeader::BYTES;
        let record = &one[header_end + StreamEntry::BYTES..];
        // Two streams, the second where `second` says.
        let two = |second: u64, records: usize| {
            let mut bytes = one[..header_end].to_vec();
            bytes[16..24].copy_from_slice(&2u64.to_le_bytes());
            let first = (header_end + 2 * StreamEntry::BYTES) as u64;
            for offset in [first, first + second] {
                let entry = StreamEntry {
                    kind: 1,
                    id: 0,
                    parent: 0,
                    offset,
                    len: record.len() as u64,
                };
                entry.encode(|b| bytes.extend(b));
            }
            for _ in 0..records {
                bytes.extend(record);
            }
            bytes
        };
        let len = record.len() as u64;
        assert!(OpsList::read(&two(len, 2)).is_ok());
        let error = OpsList::read(&two(0, 1)).expect_err("overlap");
        assert!(error.what.contains("where the one before ended"));
        let error = OpsList::read(&two(len, 3)).expect_err("left over");
        assert!(error.what.contains("no stream"));
    }

    #[test]
    fn any_truncation_is_an_error() {
        let bytes = list();
        for len in 0..bytes.len() {
            assert!(OpsList::read(&bytes[..len]).is_err(), "{len} bytes");
        }
    }
}
