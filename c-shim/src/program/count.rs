//! What the job does with its files, counted where calls are served and answers come ([`crate::usage`]).

use super::process;
use super::sys;
use crate::table::Description;
use crate::usage::{Count, Counters};
use core::sync::atomic::Ordering;
use wire::{Attributes, Request};

/// A file was opened.
pub(super) fn opened(description: &Description, attributes: &Attributes, name: &[u8]) {
    let Some(table) = process::table() else {
        return;
    };
    let usage = &table.usage;
    let index = usage.file(attributes.device, attributes.inode, name);
    description.usage.store(index as u32 + 1, Ordering::Relaxed);
    usage.opened(description.handle.load(Ordering::Relaxed), index);
    usage.counters(index).add(Count::Opens, 1);
}

/// What is counted about an open file.
pub(super) fn of(description: &Description) -> Option<&'static Counters> {
    let index = description.usage.load(Ordering::Relaxed).checked_sub(1)?;
    Some(process::table()?.usage.counters(index as usize))
}

/// A call on an open file has ended well.
pub(super) fn served(number: u64, description: &Description, result: u64) {
    let (calls, bytes) = match number {
        sys::READ | sys::PREAD64 | sys::READV | sys::PREADV | sys::PREADV2 => {
            (Count::Reads, Some(Count::ReadBytes))
        }
        sys::WRITE | sys::PWRITE64 | sys::WRITEV | sys::PWRITEV | sys::PWRITEV2 => {
            (Count::Writes, Some(Count::WrittenBytes))
        }
        sys::LSEEK => (Count::Seeks, None),
        _ => return,
    };
    let Some(counters) = of(description) else {
        return;
    };
    counters.add(calls, 1);
    if let Some(bytes) = bytes {
        counters.add(bytes, result);
    }
}

/// A question that is being waited for; counted when it is dropped.
pub(super) struct Waiting {
    counters: Option<&'static Counters>,
    reads: bool,
    since_ns: u64,
}

impl Waiting {
    pub(super) fn begin(request: &Request<'_>) -> Self {
        let table = process::table();
        let counters = table.map(|table| match handle(request) {
            Some(handle) => table.usage.of_handle(handle),
            None => &table.usage.names,
        });
        Waiting {
            counters,
            reads: matches!(request, Request::Read(_)),
            since_ns: sys::nanoseconds(),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(counters) = self.counters else {
            return;
        };
        counters.add(Count::Trips, 1);
        if self.reads {
            counters.add(Count::ReadTrips, 1);
        }
        let waited = sys::nanoseconds().saturating_sub(self.since_ns);
        counters.add(Count::WaitedNs, waited);
    }
}

/// The open file that a request is about.
fn handle(request: &Request<'_>) -> Option<u64> {
    match request {
        Request::Read(read) => Some(read.handle),
        Request::Write(write) => Some(write.handle),
        Request::WriteAs(write) => Some(write.handle),
        Request::Sync(sync) => Some(sync.handle),
        Request::List(list) => Some(list.handle),
        Request::Allocate(allocate) => Some(allocate.handle),
        Request::Seek(seek) => Some(seek.handle),
        Request::Close(close) => Some(close.handle),
        Request::Lock(lock) => Some(lock.handle),
        Request::Attribute(attribute) if attribute.place.name.is_empty() => {
            Some(attribute.place.at)
        }
        Request::Change(change) if change.place.name.is_empty() => Some(change.place.at),
        _ => None,
    }
}
