//! Waiting for descriptors: poll(2), select(2) and theirs. A file is always ready; the others are the kernel's to ask,
//! without waiting then.

use super::{File, Served};
use crate::program::sys::{self, Errno, call};

/// POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM: what a file is ready for.
const READY: i16 = 0x145;
/// More descriptors than a process may have.
const MOST: u64 = 1 << 20;

pub(super) fn serve(number: u64, args: &[u64; 6]) -> Served {
    match number {
        sys::POLL | sys::PPOLL => poll(number, args),
        sys::SELECT | sys::PSELECT6 => select(number, args),
        sys::EPOLL_CTL => control(args),
        _ => None,
    }
}

/// A remote file that is open for more than its name: of the others the kernel says what is right.
fn is_file(fd: u64) -> bool {
    File::of(fd).is_some_and(|file| file.flags() & sys::O_PATH == 0)
}

/// Memory for a while, zero at first.
struct Copy {
    at: *mut u8,
    len: u64,
}

impl Copy {
    fn new(len: u64) -> sys::SysResult<Self> {
        // PROT_READ|WRITE, MAP_PRIVATE|ANONYMOUS
        let at = sys::map(len, 3, 0x22, -1)?;
        Ok(Copy { at, len })
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // SAFETY: it was mapped for us.
        let _ = unsafe { call(sys::MUNMAP, [self.at as u64, self.len]) };
    }
}

/// `struct pollfd`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Watched {
    fd: i32,
    events: i16,
    found: i16,
}

fn poll(number: u64, args: &[u64; 6]) -> Served {
    let [place, count, ..] = *args;
    if place == 0 || count == 0 || count > MOST {
        return None;
    }
    let count = count as usize;
    // SAFETY: the program says that there are so many, which nobody else changes meanwhile.
    let theirs = unsafe { core::slice::from_raw_parts_mut(place as *mut Watched, count) };
    let is_remote = |one: &Watched| one.fd >= 0 && is_file(one.fd as u64);
    if !theirs.iter().any(is_remote) {
        return None;
    }
    let copy = match Copy::new((count * size_of::<Watched>()) as u64) {
        Ok(copy) => copy,
        Err(error) => return Some(Err(error)),
    };
    // SAFETY: so much was mapped just now, for a page.
    let ours = unsafe { core::slice::from_raw_parts_mut(copy.at.cast::<Watched>(), count) };
    let mut ready = 0;
    for (one, other) in theirs.iter().zip(ours.iter_mut()) {
        *other = *one;
        if is_remote(one) {
            // The kernel leaves it out.
            other.fd = -1;
            ready += u64::from(one.events & READY != 0);
        }
    }
    let mut asked = *args;
    asked[0] = copy.at as u64;
    let no_time = [0u64; 2];
    if ready > 0 {
        asked[2] = match number {
            sys::POLL => 0,
            _ => &raw const no_time as u64,
        };
    }
    // SAFETY: it is what the program asked for, with an array of ours.
    let found = unsafe { call(number, asked) };
    Some(found.map(|found| {
        for (one, other) in theirs.iter_mut().zip(ours.iter()) {
            one.found = if one.fd == other.fd {
                other.found
            } else {
                one.events & READY
            };
        }
        found + ready
    }))
}

/// Sets of descriptors: to be read, to be written, exceptional.
fn select(number: u64, args: &[u64; 6]) -> Served {
    let count = u64::from(args[0] as u32);
    if count == 0 || count > MOST {
        return None;
    }
    let words = count.div_ceil(64) as usize;
    let mut sets = [args[1], args[2], args[3]].map(|place| {
        // SAFETY: the program says that a set that is there has so many bits, which nobody else changes meanwhile.
        (place != 0).then(|| unsafe { core::slice::from_raw_parts_mut(place as *mut u64, words) })
    });
    let is_wanted = |sets: &[Option<&mut [u64]>; 3], fd: u64| {
        let in_set = |set: &&mut [u64]| set[fd as usize / 64] & 1 << (fd % 64) != 0;
        sets.iter().any(|set| set.as_ref().is_some_and(in_set))
    };
    let first = (0..count).find(|fd| is_wanted(&sets, *fd) && is_file(*fd))?;
    let copy = match Copy::new((3 * 8 * words) as u64) {
        Ok(copy) => copy,
        Err(error) => return Some(Err(error)),
    };
    // SAFETY: so much was mapped just now, for a page.
    let files = unsafe { core::slice::from_raw_parts_mut(copy.at.cast::<u64>(), 3 * words) };
    let mut ready = 0;
    for fd in first..count {
        if !is_wanted(&sets, fd) || !is_file(fd) {
            continue;
        }
        let (word, bit) = (fd as usize / 64, 1 << (fd % 64));
        for (kind, set) in sets.iter_mut().enumerate() {
            let Some(set) = set.as_mut().filter(|set| set[word] & bit != 0) else {
                continue;
            };
            set[word] &= !bit;
            files[kind * words + word] |= bit;
            // Nothing exceptional is ever about a file.
            ready += u64::from(kind < 2);
        }
    }
    let mut asked = *args;
    let no_time = [0u64; 2];
    if ready > 0 {
        asked[4] = &raw const no_time as u64;
    }
    // SAFETY: it is what the program asked for, without what is remote.
    let found = unsafe { call(number, asked) };
    for (kind, set) in sets.iter_mut().enumerate() {
        // On failure they are as they were.
        if let Some(set) = set
            && (kind < 2 || found.is_err())
        {
            for (word, bits) in set.iter_mut().zip(&files[kind * words..]) {
                *word |= bits;
            }
        }
    }
    Some(found.map(|found| found + ready))
}

/// epoll_ctl(2): a file is not waited for.
fn control(args: &[u64; 6]) -> Served {
    let [instance, _, fd, ..] = *args;
    let is_open = |fd: u64| is_file(fd) || sys::fcntl(fd as i32, sys::F_GETFD, 0).is_ok();
    let errno = match (is_file(instance), is_file(fd)) {
        (false, false) => return None,
        (_, true) if is_open(instance) => sys::EPERM,
        (true, false) if is_open(fd) => sys::EINVAL,
        _ => sys::EBADF,
    };
    Some(Err(Errno(errno)))
}
