//! Writing operation lists: streams of records, padded and counted.

use crate::image::{ByteSource, Bytes};
use crate::spool::Spool;
use loader::ops::{
    Call, Expect, OPS_MAGIC, Operation, OpsHeader, StreamEntry, StreamKind, check_record,
};
use std::io;
use std::ops::Range;
use std::path::Path;

/// An operation list under construction.
#[derive(Debug, Default)]
pub struct OpsBuilder {
    header: OpsHeader,
    streams: Vec<Stream>,
    /// The records of all streams, as they came.
    records: Spool,
    /// The one that is being put together.
    record: Vec<u8>,
    /// Why there are not all of them.
    failed: Option<io::Error>,
}

#[derive(Debug)]
struct Stream {
    entry: StreamEntry,
    /// Where its records are among all.
    runs: Vec<Range<u64>>,
}

/// Index of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamIndex(pub u64);

/// An argument of a [`Call`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arg {
    /// The number itself.
    Value(u64),
    /// A pointer to these bytes.
    Bytes(Vec<u8>),
}

impl OpsBuilder {
    /// A list with this header (magic and stream count are filled in) and a Prepare stream, index 0.
    #[must_use]
    pub fn new(header: OpsHeader) -> Self {
        let mut builder = OpsBuilder {
            header,
            ..OpsBuilder::default()
        };
        builder.stream(StreamKind::Prepare, 0, StreamIndex(0));
        builder
    }

    /// With more than few records put aside in this folder until the list is in its image.
    #[must_use]
    pub fn aside_in(mut self, folder: &Path) -> Self {
        self.records = Spool::in_folder(folder);
        self
    }

    /// Adds a stream.
    pub fn stream(&mut self, kind: StreamKind, id: u64, parent: StreamIndex) -> StreamIndex {
        let entry = StreamEntry {
            kind: kind as u64,
            id,
            parent: parent.0,
            offset: 0,
            len: 0,
        };
        self.streams.push(Stream {
            entry,
            runs: vec![],
        });
        StreamIndex(self.streams.len() as u64 - 1)
    }

    /// The header, to be changed before [`OpsBuilder::finish`].
    pub fn header_mut(&mut self) -> &mut OpsHeader {
        &mut self.header
    }

    /// Appends a record to a stream.
    pub fn push<O: Operation>(&mut self, stream: StreamIndex, op: &O, tail: &[u8]) {
        let record = &mut self.record;
        record.clear();
        record.extend(O::KIND.to_le_bytes());
        record.extend([0; 8]);
        op.put_fields(&mut |field| record.extend(field));
        record.extend(tail);
        record.resize(record.len().next_multiple_of(8), 0);
        let len = record.len() as u64;
        record[8..16].copy_from_slice(&len.to_le_bytes());
        let at = match self.records.append(record) {
            Ok(at) => at,
            Err(error) => {
                self.failed.get_or_insert(error);
                return;
            }
        };
        let stream = &mut self.streams[stream.0 as usize];
        stream.entry.len += len;
        match stream.runs.last_mut().filter(|last| last.end == at) {
            Some(last) => last.end += len,
            None => stream.runs.push(at..at + len),
        }
    }

    /// Appends a system call; missing arguments are 0.
    pub fn call(
        &mut self,
        stream: StreamIndex,
        label: &str,
        nr: i64,
        args: &[Arg],
        expect: Expect,
        value: u64,
    ) {
        let mut tail = label.as_bytes().to_vec();
        tail.retain(|byte| *byte != 0);
        tail.push(0);
        tail.resize(tail.len().next_multiple_of(8), 0);
        let data_start = tail.len();
        let mut words = [0; 6];
        let mut pointers = 0;
        for (index, arg) in args.iter().enumerate() {
            words[index] = match arg {
                Arg::Value(value) => *value,
                Arg::Bytes(bytes) => {
                    let offset = tail.len() - data_start;
                    tail.extend(bytes);
                    tail.resize(tail.len().next_multiple_of(8), 0);
                    pointers |= 1 << index;
                    offset as u64
                }
            };
        }
        let [a0, a1, a2, a3, a4, a5] = words;
        let op = Call {
            nr: nr as u64,
            a0,
            a1,
            a2,
            a3,
            a4,
            a5,
            pointers,
            expect: expect as u64,
            value,
        };
        self.push(stream, &op, &tail);
    }

    /// The list.
    ///
    /// # Errors
    /// There was no room for what is more than a few bytes.
    pub fn finish(mut self) -> io::Result<Operations> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.header.magic = OPS_MAGIC;
        self.header.streams = self.streams.len() as u64;
        let mut list = Operations {
            header: self.header,
            head: vec![],
            runs: vec![],
            records: self.records,
            size: (OpsHeader::BYTES + self.streams.len() * StreamEntry::BYTES) as u64,
        };
        list.header.encode(|field| list.head.extend(field));
        for Stream { mut entry, runs } in self.streams {
            entry.offset = list.size;
            entry.encode(|field| list.head.extend(field));
            for run in runs {
                let at = list.size;
                list.size += run.end - run.start;
                match list
                    .runs
                    .last_mut()
                    .filter(|(_, last)| last.end == run.start)
                {
                    Some((_, last)) => last.end = run.end,
                    None => list.runs.push((at, run)),
                }
            }
        }
        Ok(list)
    }
}

/// A finished operation list, the bytes of a section. More than a few of them are in a file.
#[derive(Debug)]
pub struct Operations {
    header: OpsHeader,
    /// Header and table of streams.
    head: Vec<u8>,
    /// Where in the list these of the records are, in order.
    runs: Vec<(u64, Range<u64>)>,
    records: Spool,
    size: u64,
}

impl Operations {
    /// The header.
    #[must_use]
    pub fn header(&self) -> &OpsHeader {
        &self.header
    }

    /// How many bytes they are.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// All of them, in memory.
    ///
    /// # Errors
    /// They cannot be read again.
    pub fn bytes(&self) -> io::Result<Vec<u8>> {
        let len = usize::try_from(self.size).map_err(io::Error::other)?;
        let mut bytes = vec![0; len];
        self.read_at(0, &mut bytes)?;
        Ok(bytes)
    }

    /// What is wrong with the first stream or record that a reader would not believe, and where that is.
    ///
    /// # Errors
    /// They cannot be read again.
    pub fn fault(&self) -> io::Result<Option<(u64, &'static str)>> {
        const AT_ONCE: u64 = 64 << 10;
        for at in (OpsHeader::BYTES..self.head.len()).step_by(StreamEntry::BYTES) {
            let entry = StreamEntry::decode(&self.head[at..]);
            if entry.is_none_or(|entry| entry.parent >= self.header.streams) {
                return Ok(Some((at as u64, "stream of no process")));
            }
        }
        let mut window: Vec<u8> = vec![];
        // Where the window begins; the record that is looked at, in the window.
        let (mut at, mut begin) = (self.head.len() as u64, 0);
        while at + (begin as u64) < self.size {
            let rest = &window[begin..];
            let len = rest.get(8..16).and_then(|raw| raw.try_into().ok());
            let len = len.map_or(16, u64::from_le_bytes);
            let here = at + begin as u64;
            if let Some(record) = usize::try_from(len).ok().and_then(|len| rest.get(..len))
                && rest.len() >= 16
            {
                if let Err(what) = check_record(record) {
                    return Ok(Some((here, what)));
                }
                begin += record.len();
                continue;
            }
            if here.checked_add(len).is_none_or(|end| end > self.size) {
                return Ok(Some((here, "record longer than the list")));
            }
            (at, begin) = (here, 0);
            window.resize((len + AT_ONCE).min(self.size - at) as usize, 0);
            self.read_at(at, &mut window)?;
        }
        Ok(None)
    }
}

impl<'a> From<&'a Operations> for Bytes<'a> {
    fn from(list: &'a Operations) -> Self {
        Bytes::Elsewhere(list, list.size)
    }
}

impl ByteSource for Operations {
    fn read_at(&self, mut at: u64, mut buf: &mut [u8]) -> io::Result<()> {
        let beyond = || io::Error::from(io::ErrorKind::UnexpectedEof);
        while !buf.is_empty() {
            let in_head = usize::try_from(at).ok().and_then(|at| self.head.get(at..));
            let len = match in_head.filter(|found| !found.is_empty()) {
                Some(found) => {
                    let len = found.len().min(buf.len());
                    buf[..len].copy_from_slice(&found[..len]);
                    len
                }
                None => {
                    let next = self.runs.partition_point(|(begin, _)| *begin <= at);
                    let run = next.checked_sub(1).and_then(|index| self.runs.get(index));
                    let (begin, run) = run.ok_or_else(beyond)?;
                    let from = run.start + (at - begin);
                    let len = run.end.saturating_sub(from).min(buf.len() as u64) as usize;
                    if len == 0 {
                        return Err(beyond());
                    }
                    self.records.read_at(from, &mut buf[..len])?;
                    len
                }
            };
            at += len as u64;
            buf = &mut buf[len..];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loader::ops::{AnyOp, OpsList};

    #[test]
    fn a_built_list_reads_back() {
        let mut builder = OpsBuilder::new(OpsHeader::default());
        let process = builder.stream(StreamKind::Process, 7, StreamIndex(0));
        let args = [Arg::Value(3), Arg::Bytes(b"hello".to_vec()), Arg::Value(5)];
        builder.call(
            process,
            "descriptor 3 (pipe)",
            libc::SYS_write,
            &args,
            Expect::Exactly,
            5,
        );
        let bytes = builder.finish().expect("finishes").bytes().expect("reads");
        let list = OpsList::read(&bytes).expect("reads");
        let entry = list.stream(process.0).expect("stream");
        let record = list.records(&entry).next().expect("one").expect("sound");
        let AnyOp::Call(call) = record.op else {
            panic!("not a call")
        };
        assert_eq!((call.a0, call.pointers, call.value), (3, 2, 5));
        let data = "descriptor 3 (pipe)\0".len().next_multiple_of(8);
        assert_eq!(&record.tail[data..data + 5], b"hello");
    }

    /// Records of two streams by turns, more than stay in memory.
    #[test]
    fn streams_lie_one_behind_the_other_however_they_were_written() {
        let mut builder = OpsBuilder::new(OpsHeader::default());
        let other = builder.stream(StreamKind::Process, 7, StreamIndex(0));
        let label = "x".repeat(9000);
        for number in 0..300 {
            let stream = StreamIndex(number % 2);
            builder.call(stream, &label, number as i64, &[], Expect::Success, 0);
        }
        let list = builder.finish().expect("finishes");
        assert_eq!(list.fault().expect("reads"), None);
        let bytes = list.bytes().expect("reads");
        assert_eq!(bytes.len() as u64, list.size());
        let mut part = vec![0; 20_000];
        for at in (0..list.size() - 20_000).step_by(11_003) {
            list.read_at(at, &mut part).expect("reads");
            assert!(part == bytes[at as usize..][..20_000], "{at}");
        }
        list.read_at(list.size() - 1, &mut [0, 0])
            .expect_err("the end");
        let list = OpsList::read(&bytes).expect("reads");
        for stream in [0, other.0] {
            let entry = list.stream(stream).expect("stream");
            let numbers = list
                .records(&entry)
                .map(|record| match record.expect("sound").op {
                    AnyOp::Call(call) => call.nr,
                    other => panic!("{other:?}"),
                });
            let expected = (0..300).filter(|number| number % 2 == stream);
            assert!(numbers.eq(expected), "{stream}");
        }
    }

    #[test]
    fn a_stream_of_no_process_is_found() {
        let mut builder = OpsBuilder::new(OpsHeader::default());
        builder.stream(StreamKind::Process, 7, StreamIndex(2));
        let list = builder.finish().expect("finishes");
        let at = (OpsHeader::BYTES + StreamEntry::BYTES) as u64;
        let found = list.fault().expect("reads");
        assert_eq!(found, Some((at, "stream of no process")));
    }

    #[test]
    fn a_record_that_nobody_would_believe_is_found() {
        for before in [0, 1, 700] {
            let mut builder = OpsBuilder::new(OpsHeader::default());
            let stream = StreamIndex(0);
            for _ in 0..before {
                builder.call(stream, &"x".repeat(200), 1, &[], Expect::Success, 0);
            }
            let good = builder.records.len();
            builder.push(stream, &loader::ops::Open::default(), b"/no/end.");
            builder.call(stream, "behind it", 1, &[], Expect::Success, 0);
            let list = builder.finish().expect("finishes");
            let at = list.head.len() as u64 + good;
            let found = list.fault().expect("reads");
            assert_eq!(found, Some((at, "a string without an end")));
        }
    }
}
