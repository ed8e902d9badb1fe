//! `struct flock` of x86-64 (fcntl(2)), the program's and our own.
//!
//! Our own locks are of the shim's own file, which is opened by nobody who could close it again: that would end them. They go
//! with whoever is killed.

use super::sys::{self, SysResult};
use crate::table::Reserved;

pub(super) const F_RDLCK: i16 = 0;
pub(super) const F_WRLCK: i16 = 1;
pub(super) const F_UNLCK: i16 = 2;

pub(super) const F_GETLK: u64 = 5;
pub(super) const F_SETLK: u64 = 6;
pub(super) const F_SETLKW: u64 = 7;

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct RecordLock {
    pub(super) kind: i16,
    pub(super) whence: i16,
    pub(super) start: i64,
    pub(super) len: i64,
    pub(super) pid: i32,
}

/// Takes or gives back a piece of the shim's own file; waits only with `F_SETLKW`.
pub(super) fn set_own(command: u64, kind: i16, start: i64, len: i64) -> SysResult<u64> {
    let record = RecordLock {
        kind,
        whence: 0,
        start,
        len,
        pid: 0,
    };
    sys::fcntl(Reserved::Shim.number(), command, &raw const record as u64)
}

/// Whether another process has this piece of the shim's own file. What cannot be asked is had.
pub(super) fn is_anothers(start: i64) -> bool {
    let mut record = RecordLock {
        kind: F_WRLCK,
        whence: 0,
        start,
        len: 1,
        pid: 0,
    };
    let place = &raw mut record as u64;
    sys::fcntl(Reserved::Shim.number(), F_GETLK, place).is_err() || record.kind != F_UNLCK
}
