//! Lists of system calls to be made by a thread of the job.

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
}

/// System calls to be made one after another by one thread of the job.
///
/// No call may sleep: a list with one that does is a bug of the caller. Calls that set a restart
/// block of their own when interrupted (`nanosleep`, `poll` and `futex` with a time-out) are
/// forbidden, since they would overwrite the one that the thread's own call goes on with.
#[derive(Clone, Debug, Default)]
pub struct CallList {
    pub(super) calls: Vec<Call>,
    pub(super) data: Vec<Data>,
    pub(super) data_len: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) nr: i64,
    pub(super) args: [InsideArg; 6],
}

#[derive(Clone, Debug)]
pub(super) struct Data {
    pub(super) offset: usize,
    pub(super) bytes: Vec<u8>,
    pub(super) len: usize,
}

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
        self.calls.push(Call { nr, args: all });
        CallRef(self.calls.len() - 1)
    }

    /// Whether it makes no call.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    fn add(&mut self, bytes: Vec<u8>, len: usize) -> DataRef {
        let offset = self.data_len;
        self.data_len = (offset + len).next_multiple_of(ALIGN);
        self.data.push(Data { offset, bytes, len });
        DataRef(self.data.len() - 1)
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
