//! Lists of system calls to be made by a thread of the job, and how they lie in its memory.

use super::runner::CALL_LEN;
use crate::tracee::HostTid;
use loader::layout::PAGE;
use std::sync::Arc;

/// A piece of data that travels with a list: bytes that calls read, or space that they fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataRef(pub(super) usize);

/// A call of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallRef(pub(super) usize);

/// An argument of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsideArg {
    /// The number itself.
    Value(u64),
    /// The address of this data inside the job.
    Data(DataRef),
    /// An address inside it, so many bytes behind the first.
    Within(DataRef, usize),
    /// The first page that begins in this data.
    PageIn(DataRef),
}

/// System calls to be made one after another by one thread of the job.
///
/// No call may sleep: a list with one that does is a bug of the caller. Calls that set a restart
/// block of their own when interrupted (`nanosleep`, `poll` and `futex` with a time-out) are
/// forbidden, since they would overwrite the one that the thread's own call goes on with.
///
/// A clone, for another thread, takes no memory until one of them is added to.
#[derive(Clone, Debug, Default)]
pub struct CallList(Arc<Calls>);

#[derive(Clone, Debug, Default)]
struct Calls {
    calls: Vec<Call>,
    data: Vec<Data>,
    data_len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    nr: i64,
    args: [InsideArg; 6],
}

#[derive(Clone, Debug)]
struct Data {
    offset: usize,
    bytes: Vec<u8>,
    len: usize,
}

/// Data is aligned to this, and calls are as long.
const ALIGN: usize = 64;

impl CallList {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        CallList::default()
    }

    /// Bytes that calls read, or read and change. Aligned to 64.
    pub fn data(&mut self, bytes: &[u8]) -> DataRef {
        self.add(bytes.to_vec(), bytes.len())
    }

    /// Zeroed space that calls fill. Aligned to 64.
    pub fn space(&mut self, len: usize) -> DataRef {
        self.add(vec![], len)
    }

    /// Appends a call; missing arguments are 0.
    pub fn call(&mut self, nr: i64, args: &[InsideArg]) -> CallRef {
        let mut all = [InsideArg::Value(0); 6];
        for (place, arg) in all.iter_mut().zip(args) {
            *place = *arg;
        }
        let own = Arc::make_mut(&mut self.0);
        own.calls.push(Call { nr, args: all });
        CallRef(own.calls.len() - 1)
    }

    /// Whether it makes no call.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.calls.is_empty()
    }

    /// Number of calls.
    pub(super) fn len(&self) -> u64 {
        self.0.calls.len() as u64
    }

    fn add(&mut self, bytes: Vec<u8>, len: usize) -> DataRef {
        let own = Arc::make_mut(&mut self.0);
        let offset = own.data_len;
        own.data_len = (offset + len).next_multiple_of(ALIGN);
        own.data.push(Data { offset, bytes, len });
        DataRef(own.data.len() - 1)
    }
}

/// What came of a list.
#[derive(Clone, Debug, Default)]
pub struct CallResults {
    pub(super) results: Vec<i64>,
    pub(super) data: Vec<Vec<u8>>,
}

impl CallResults {
    /// What a call returned: a negative error number if it failed, as the kernel gives it.
    #[must_use]
    pub fn result(&self, call: CallRef) -> i64 {
        self.results
            .get(call.0)
            .copied()
            .unwrap_or(-i64::from(libc::ENOSYS))
    }

    /// A piece of data as it was after the last call.
    #[must_use]
    pub fn bytes(&self, data: DataRef) -> &[u8] {
        self.data.get(data.0).map_or(&[], Vec::as_slice)
    }
}

/// Where the lists of several threads lie in the pool: for each its calls, then its data.
#[derive(Debug)]
pub(super) struct Layout {
    /// Offset of each list's first call.
    pub(super) starts: Vec<u64>,
    /// All.
    pub(super) len: u64,
}

/// Lists that lie in the process's memory.
#[derive(Debug)]
pub(super) struct InPool {
    pub(super) layout: Layout,
    /// Where the pool is.
    pub(super) pool: u64,
}

impl InPool {
    /// Address of what a call of the first list returns.
    pub(super) fn result(&self, call: CallRef) -> u64 {
        let start = self.layout.starts.first().copied().unwrap_or(0);
        self.pool + start + call.0 as u64 * CALL_LEN + 56
    }
}

impl Layout {
    pub(super) fn of<'a>(lists: impl Iterator<Item = &'a CallList>) -> Self {
        let mut starts = vec![];
        let mut len = 0;
        for CallList(list) in lists {
            starts.push(len);
            len += list.calls.len() as u64 * CALL_LEN + list.data_len as u64;
        }
        Layout { starts, len }
    }

    /// The pool's bytes, for address `pool`.
    pub(super) fn bytes(&self, pool: u64, lists: &[(HostTid, CallList)]) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        for ((_, CallList(list)), start) in lists.iter().zip(&self.starts) {
            let data = start + list.calls.len() as u64 * CALL_LEN;
            let mut at = *start as usize;
            for call in &list.calls {
                let address = |DataRef(index)| {
                    let piece = list.data.get(index);
                    piece.map_or(0, |piece: &Data| pool + data + piece.offset as u64)
                };
                let args = call.args.map(|arg| match arg {
                    InsideArg::Value(value) => value,
                    InsideArg::Data(data) => address(data),
                    InsideArg::Within(data, offset) => address(data) + offset as u64,
                    InsideArg::PageIn(data) => address(data).next_multiple_of(PAGE),
                });
                // A call that is not made has not succeeded.
                let result = -i64::from(libc::ENOSYS);
                let words = std::iter::once(call.nr as u64).chain(args);
                for word in words.chain([result.cast_unsigned()]) {
                    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
                    at += 8;
                }
            }
            for piece in &list.data {
                let at = data as usize + piece.offset;
                bytes[at..at + piece.bytes.len()].copy_from_slice(&piece.bytes);
            }
        }
        bytes
    }

    /// What the calls left there.
    pub(super) fn results(&self, bytes: &[u8], lists: &[(HostTid, CallList)]) -> Vec<CallResults> {
        let result_of = |at: usize| {
            let mut raw = [0; 8];
            raw.copy_from_slice(&bytes[at..at + 8]);
            i64::from_le_bytes(raw)
        };
        let mut all = vec![];
        for ((_, CallList(list)), start) in lists.iter().zip(&self.starts) {
            let start = *start as usize;
            let call_len = CALL_LEN as usize;
            let data = start + list.calls.len() * call_len;
            all.push(CallResults {
                results: (0..list.calls.len())
                    .map(|index| result_of(start + index * call_len + 56))
                    .collect(),
                data: list
                    .data
                    .iter()
                    .map(|piece| bytes[data + piece.offset..][..piece.len].to_vec())
                    .collect(),
            });
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_lie_behind_one_another() {
        let mut first = CallList::new();
        let space = first.space(10);
        first.call(1, &[InsideArg::Data(space), InsideArg::Value(7)]);
        let mut second = CallList::new();
        let data = second.data(b"hello");
        second.call(2, &[InsideArg::Data(data)]);
        let lists = [(HostTid(1), first), (HostTid(2), second)];
        let layout = Layout::of(lists.iter().map(|(_, list)| list));
        assert_eq!((layout.starts.clone(), layout.len), (vec![0, 128], 256));
        let mut bytes = layout.bytes(0x1000, &lists);
        let word = |at: usize| bytes[at..at + 8].to_vec();
        assert_eq!(word(8), 0x1040u64.to_le_bytes());
        assert_eq!(word(16), 7u64.to_le_bytes());
        assert_eq!(word(136), 0x10c0u64.to_le_bytes());
        bytes[56..64].copy_from_slice(&9u64.to_le_bytes());
        bytes[64..74].copy_from_slice(b"0123456789");
        let results = layout.results(&bytes, &lists);
        assert_eq!(results[0].result(CallRef(0)), 9);
        assert_eq!(results[0].bytes(space), b"0123456789");
        assert_eq!(results[1].bytes(data), b"hello");
    }
}
