//! Writing operation lists: streams of records, padded and counted.

use loader::ops::{Call, Expect, OPS_MAGIC, Operation, OpsHeader, StreamEntry, StreamKind};

/// An operation list under construction.
#[derive(Debug, Default)]
pub struct OpsBuilder {
    header: OpsHeader,
    streams: Vec<(StreamEntry, Vec<u8>)>,
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
            streams: vec![],
        };
        builder.stream(StreamKind::Prepare, 0, StreamIndex(0));
        builder
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
        self.streams.push((entry, vec![]));
        StreamIndex(self.streams.len() as u64 - 1)
    }

    /// The header, to be changed before [`OpsBuilder::finish`].
    pub fn header_mut(&mut self) -> &mut OpsHeader {
        &mut self.header
    }

    /// Appends a record to a stream.
    pub fn push<O: Operation>(&mut self, stream: StreamIndex, op: &O, tail: &[u8]) {
        let bytes = &mut self.streams[stream.0 as usize].1;
        let start = bytes.len();
        bytes.extend(O::KIND.to_le_bytes());
        bytes.extend([0; 8]);
        op.put_fields(&mut |field| bytes.extend(field));
        bytes.extend(tail);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let len = (bytes.len() - start) as u64;
        bytes[start + 8..start + 16].copy_from_slice(&len.to_le_bytes());
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

    /// The bytes of the section.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.header.magic = OPS_MAGIC;
        self.header.streams = self.streams.len() as u64;
        let mut head = vec![];
        self.header.encode(|field| head.extend(field));
        let mut offset = OpsHeader::BYTES + self.streams.len() * StreamEntry::BYTES;
        for (entry, records) in &mut self.streams {
            entry.offset = offset as u64;
            entry.len = records.len() as u64;
            offset += records.len();
            entry.encode(|field| head.extend(field));
        }
        // The first stream may be large, and is not to be there twice: the others follow it.
        let mut streams = self.streams.into_iter().map(|(_, records)| records);
        let mut bytes = streams.next().unwrap_or_default();
        bytes.reserve_exact(offset - bytes.len());
        bytes.splice(0..0, head);
        streams.for_each(|records| bytes.extend(records));
        bytes
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
        let bytes = builder.finish();
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
}
