//! Bytes from one descriptor to another: sendfile(2), splice(2), tee(2), where one of them is remote. They go through a
//! buffer of ours.

use super::contents::part;
use super::{File, Served, limits};
use crate::program::sys::{self, Errno, SysResult, call};
use core::mem::ManuallyDrop;
use core::sync::atomic::Ordering;

/// Most bytes of one call (MAX_RW_COUNT).
const MOST_AT_ONCE: u64 = 0x7fff_f000;
const BUFFER_LEN: u64 = 256 << 10;
/// A pipe that is ready takes so much without waiting (PIPE_BUF).
const PIPE_PIECE: u64 = 4096;
const SPLICE_F_NONBLOCK: u64 = 2;
const POLLIN: i16 = 1;
const POLLOUT: i16 = 4;
const TYPE: u32 = 0o170_000;
const PIPE: u32 = 0o010_000;

pub(super) fn serve(number: u64, args: &[u64; 6]) -> Served {
    let [a, b, c, d, e, f] = *args;
    match number {
        sys::SENDFILE => send_file(a, b, c, d),
        sys::SPLICE => splice([a, b], [c, d], e, f),
        sys::TEE => {
            // Neither is a pipe.
            File::of(a).or_else(|| File::of(b))?;
            Some(Err(Errno(sys::EINVAL)))
        }
        _ => None,
    }
}

/// What is read from or written to.
#[derive(Clone, Copy)]
enum End {
    Remote(File),
    Local(i32),
}

impl End {
    fn of(fd: u64) -> Self {
        File::of(fd).map_or(End::Local(fd as i32), End::Remote)
    }

    fn flags(&self) -> SysResult<u32> {
        match self {
            End::Remote(file) => Ok(file.flags()),
            End::Local(fd) => sys::fcntl(*fd, sys::F_GETFL, 0).map(|flags| flags as u32),
        }
    }

    /// EBADF if it is open for nothing but this.
    fn not_only(&self, mode: u32) -> SysResult<u32> {
        let flags = self.flags()?;
        if flags & sys::O_PATH != 0 || flags & sys::O_ACCMODE == mode {
            return Err(Errno(sys::EBADF));
        }
        Ok(flags)
    }

    /// Type and permissions.
    fn mode(&self) -> SysResult<u32> {
        match self {
            End::Remote(file) => Ok(file.description.mode.load(Ordering::Relaxed)),
            End::Local(fd) => sys::mode(*fd),
        }
    }

    fn is_pipe(&self) -> bool {
        self.mode().is_ok_and(|mode| mode & TYPE == PIPE)
    }

    fn offset(&self) -> SysResult<u64> {
        match self {
            End::Remote(file) => Ok(file.offset()),
            End::Local(fd) => sys::seek(*fd, 0, 1),
        }
    }

    fn move_to(&self, offset: u64) {
        match self {
            End::Remote(file) => file.description.offset.store(offset, Ordering::Relaxed),
            End::Local(fd) => {
                let _ = sys::seek(*fd, offset, 0);
            }
        }
    }

    fn read(&self, buffer: &Buffer, len: u64, at: Option<u64>) -> Result<u64, Errno> {
        match (self, at) {
            (End::Remote(file), at) => file.read(&[part(buffer.0, len)], at),
            // SAFETY: the kernel writes within the buffer.
            (End::Local(fd), Some(at)) => unsafe {
                call(sys::PREAD64, [*fd as u64, buffer.0, len, at])
            },
            // SAFETY: as above.
            (End::Local(fd), None) => unsafe { call(sys::READ, [*fd as u64, buffer.0, len]) },
        }
    }

    fn write(&self, buffer: &Buffer, len: u64, at: Option<u64>) -> Result<u64, Errno> {
        match self {
            End::Remote(file) => file.write(&[part(buffer.0, len)], at),
            // SAFETY: the kernel reads within the buffer.
            End::Local(fd) => unsafe { call(sys::WRITE, [*fd as u64, buffer.0, len]) },
        }
    }

    /// Whether something can be done with it, now or (`waits`) at last.
    fn is_ready(&self, events: i16, waits: bool) -> SysResult<bool> {
        let End::Local(fd) = self else {
            return Ok(true);
        };
        // `struct pollfd`
        let mut watched = u64::from(*fd as u32) | (events as u64) << 32;
        let timeout = if waits { u64::MAX } else { 0 };
        // SAFETY: the kernel reads and writes the one record.
        let ready = unsafe { call(sys::POLL, [&raw mut watched as u64, 1, timeout]) };
        ready.map(|count| count > 0)
    }
}

/// Memory for a while.
struct Buffer(u64);

impl Buffer {
    fn new() -> SysResult<Self> {
        // PROT_READ|WRITE, MAP_PRIVATE|ANONYMOUS
        sys::map(BUFFER_LEN, 3, 0x22, -1).map(|at| Buffer(at as u64))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it was mapped for us.
        let _ = unsafe { call(sys::MUNMAP, [self.0, BUFFER_LEN]) };
    }
}

fn send_file(to: u64, from: u64, place: u64, count: u64) -> Served {
    let (to, from) = (End::of(to), End::of(from));
    if let (End::Local(_), End::Local(_)) = (to, from) {
        return None;
    }
    // SAFETY: the program gives the place of an offset, or none.
    let place = unsafe { (place as *mut u64).as_mut() };
    Some(send(to, from, place, count))
}

fn send(to: End, from: End, place: Option<&mut u64>, count: u64) -> Result<u64, Errno> {
    const REGULAR: u32 = 0o100_000;
    const BLOCKS: u32 = 0o060_000;
    from.not_only(sys::O_WRONLY)?;
    let begin = match &place {
        Some(place) => **place,
        None => from.offset().unwrap_or(0),
    };
    if begin > i64::MAX as u64 {
        return Err(Errno(sys::EINVAL));
    }
    let flags = to.not_only(0)?;
    if flags & sys::O_APPEND != 0 || !matches!(from.mode()? & TYPE, REGULAR | BLOCKS) {
        return Err(Errno(sys::EINVAL));
    }
    let moved = carry(count, |buffer, len, done| {
        let got = from.read(buffer, len, Some(begin + done))?;
        let mut put = to.write(buffer, got, None)?;
        if put < got && limits::are_set() {
            // As the kernel, which goes on with the rest, and so tells of the limit.
            let rest = ManuallyDrop::new(Buffer(buffer.0 + put));
            put += to.write(&rest, got - put, None).unwrap_or(0);
        }
        Ok((put, put < len))
    })?;
    match place {
        Some(place) => *place = begin + moved,
        None => from.move_to(begin + moved),
    }
    Ok(moved)
}

/// Moves bytes until a step says that it is the last.
fn carry(
    count: u64,
    mut step: impl FnMut(&Buffer, u64, u64) -> Result<(u64, bool), Errno>,
) -> Result<u64, Errno> {
    let count = count.min(MOST_AT_ONCE);
    let mut done = 0;
    if count == 0 {
        return Ok(0);
    }
    let buffer = Buffer::new()?;
    while done < count {
        match step(&buffer, (count - done).min(BUFFER_LEN), done) {
            Ok((moved, last)) => {
                done += moved;
                if last {
                    break;
                }
            }
            // What was moved is told first.
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Between a pipe and a remote file: descriptor and place of an offset of each.
fn splice(from: [u64; 2], to: [u64; 2], count: u64, flags: u64) -> Served {
    let (source, target) = (End::of(from[0]), End::of(to[0]));
    if let (End::Local(_), End::Local(_)) = (source, target) {
        return None;
    }
    // SAFETY: the program gives the place of an offset, or none.
    let places = unsafe { [from[1], to[1]].map(|place| (place as *mut u64).as_mut()) };
    Some(splice_ends(source, target, places, count, flags))
}

fn splice_ends(
    source: End,
    target: End,
    places: [Option<&mut u64>; 2],
    count: u64,
    flags: u64,
) -> Result<u64, Errno> {
    if count == 0 {
        return Ok(0);
    }
    source.flags()?;
    target.flags()?;
    if flags & !15 != 0 {
        return Err(Errno(sys::EINVAL));
    }
    source.not_only(sys::O_WRONLY)?;
    let target_flags = target.not_only(0)?;
    let [from_place, to_place] = places;
    let waits = flags & SPLICE_F_NONBLOCK == 0;
    let again = Errno(sys::EAGAIN);
    if target.is_pipe() {
        if to_place.is_some() {
            return Err(Errno(sys::ESPIPE));
        }
        if source.mode()? & TYPE == 0o040_000 {
            return Err(Errno(sys::EINVAL));
        }
        let begin = match &from_place {
            Some(place) => **place,
            None => source.offset()?,
        };
        let moved = carry(count, |buffer, len, done| {
            if !target.is_ready(POLLOUT, waits && done == 0)? {
                return Err(again);
            }
            let got = source.read(buffer, len.min(PIPE_PIECE), Some(begin + done))?;
            if got == 0 {
                return Ok((0, true));
            }
            target.write(buffer, got, None).map(|put| (put, put < got))
        })?;
        match from_place {
            Some(place) => *place = begin + moved,
            None => source.move_to(begin + moved),
        }
        return Ok(moved);
    }
    if !source.is_pipe() {
        return Err(Errno(sys::EINVAL));
    }
    if from_place.is_some() {
        return Err(Errno(sys::ESPIPE));
    }
    if target_flags & sys::O_APPEND != 0 {
        return Err(Errno(sys::EINVAL));
    }
    let begin = to_place.as_ref().map(|place| **place);
    let moved = carry(count, |buffer, len, done| {
        if !source.is_ready(POLLIN, waits && done == 0)? {
            return Err(again);
        }
        let got = source.read(buffer, len, None)?;
        if got == 0 {
            return Ok((0, true));
        }
        let put = target.write(buffer, got, begin.map(|begin| begin + done))?;
        Ok((put, put < got))
    })?;
    if let (Some(place), Some(begin)) = (to_place, begin) {
        *place = begin + moved;
    }
    Ok(moved)
}
