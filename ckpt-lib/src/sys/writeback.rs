//! Starting to write a file's pages to the disk without waiting for it.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;

/// Asks the kernel to begin writing these bytes of the file (sync_file_range(2)). A hint: errors do not
/// matter, `fsync` later reports what went wrong.
pub(crate) fn begin(file: &File, offset: u64, len: u64) {
    let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else {
        return;
    };
    // SAFETY: reads and writes no memory of ours; the descriptor is open while `file` is borrowed.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE);
    }
}
