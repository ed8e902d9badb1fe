//! Remote files in memory: a file of the kernel's own, filled whole, stands for one.

use super::{File, Served};
use crate::program::lanes::{Put, ask};
use crate::program::sys::{self, Errno, call};
use wire::{MOST_DATA, Read, Request};

const MAP_SHARED: u64 = 1;
const MAP_TYPE: u64 = 15;
const MAP_ANONYMOUS: u64 = 0x20;
const PROT_WRITE: u64 = 2;

pub(super) fn serve(number: u64, args: &[u64; 6]) -> Served {
    let [address, len, protection, flags, fd, offset] = *args;
    if number != sys::MMAP || flags & MAP_ANONYMOUS != 0 {
        return None;
    }
    let file = File::of(fd)?;
    let shared = matches!(flags & MAP_TYPE, MAP_SHARED | 3);
    if shared && protection & PROT_WRITE != 0 {
        return Some(Err(Errno(sys::ENODEV)));
    }
    if file.flags() & sys::O_PATH != 0 || file.flags() & sys::O_ACCMODE == sys::O_WRONLY {
        return Some(Err(Errno(13)));
    }
    Some(copy_of(&file).and_then(|copy| {
        // What is shared for reading can never be written to by mprotect(2).
        let copy = if shared { read_only(copy)? } else { copy };
        let args = [address, len, protection, flags, copy as u64, offset];
        // SAFETY: it is what the program asked for, with another file of the same contents.
        let mapped = unsafe { call(sys::MMAP, args) };
        sys::close(copy);
        mapped
    }))
}

fn read_only(copy: i32) -> Result<i32, Errno> {
    let again = sys::open(sys::DescriptorName::of(copy).get(), sys::O_CLOEXEC);
    sys::close(copy);
    again
}

fn copy_of(file: &File) -> Result<i32, Errno> {
    let size = file.size()?;
    let copy = sys::memfd(c"wf-mapped", 1)?;
    let filled = sys::ftruncate(copy, size).and_then(|_| fill(file, copy, size));
    if filled.is_err() {
        sys::close(copy);
    }
    filled.map(|()| copy)
}

fn fill(file: &File, copy: i32, size: u64) -> Result<(), Errno> {
    if size == 0 {
        return Ok(());
    }
    // SAFETY: without MAP_FIXED nothing that is there is touched; PROT_READ|WRITE, MAP_SHARED.
    let place = unsafe { call(sys::MMAP, [0, size, 3, MAP_SHARED, copy as u64, 0]) }?;
    let mut at = 0;
    let result = loop {
        if at >= size {
            break Ok(());
        }
        let len = (size - at).min(MOST_DATA as u64);
        let request = Request::Read(Read {
            handle: file.handle(),
            offset: at,
            len: len as u32,
        });
        let into = Put::Program((place + at) as *mut u8, len as usize);
        match ask(&request, (core::ptr::null(), 0), into, |answer| {
            Ok(answer.data.len())
        }) {
            Ok(0) => break Ok(()),
            Ok(got) => at += got as u64,
            Err(error) => break Err(error),
        }
    };
    // SAFETY: it was mapped above.
    let _ = unsafe { call(sys::MUNMAP, [place, size]) };
    result
}
