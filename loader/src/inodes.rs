//! Files: found again and compared, or made from the image.
//!
//! ```text
//! Inode: path leads to the same file? -yes-> a descriptor of it            (found)
//!            `-no, carried-> memfd with the contents                       (made)
//!            `-no-> an error that says what differs, unless --files keep
//! Open:  found -> open the path; made -> open what was made once more
//! ```

use crate::abi::*;
use crate::chain::read_chunk;
use crate::context::Context;
use crate::interpret::{fits, text};
use crate::objects::to_slot;
use crate::options::Files;
use crate::progress::Progress;
use crate::report::{self, Failure, Line, Outcome, Raw, Short, failure};
use crate::sys::{self, Errno};
use core::ffi::CStr;
use core::fmt::Write;
use loader::layout::{CHUNK, Space};
use loader::ops::tails::InodeTail;
use loader::ops::{self, check, inode_flags};

/// States of a slot in the slot table.
const FOUND: u8 = 1;
const MADE: u8 = 2;
/// Of an inode's first slot: its contents have been read from the image.
const FILLED: u8 = 4;

fn slot_state(context: &Context, slot: u64) -> Option<&'static mut u8> {
    let index = slot.checked_sub(context.ops.header().slot_base)?;
    let index = usize::try_from(index).ok()?;
    // SAFETY: the table is used by the one thread that carries out a stream, for a moment each.
    unsafe { context.bytes(context.layout.slots) }.get_mut(index)
}

fn set_state(context: &Context, slot: u64, state: u8) {
    if let Some(place) = slot_state(context, slot) {
        *place = *place & FILLED | state;
    }
}

/// Whether the contents of an inode have been read from the image, and so checked.
pub fn is_filled(context: &Context, inode: u64) -> bool {
    let slot = context.ops.header().slot_base.saturating_add(inode);
    slot_state(context, slot).is_some_and(|state| *state & FILLED != 0)
}

/// How a file differs from what it was.
enum Difference {
    Missing(Errno),
    Unreadable(Errno),
    Kind { found: u32 },
    Size { found: u64 },
    Contents { found: [u8; 32] },
}

/// Brings an inode back.
pub fn find(context: &Context, op: &ops::Inode, tail: &'static [u8]) -> Outcome<()> {
    let InodeTail { hash, path } = fits(InodeTail::read(op, tail))?;
    let flag = |bit: u64| op.flags & bit != 0;
    let carried = flag(inode_flags::CARRIED);
    let always_made = flag(inode_flags::DELETED) || carried && op.check == check::NONE;
    if always_made {
        let fd = if flag(inode_flags::DELETED) {
            make_nameless(path, op.mode)
        } else {
            sys::memfd(c"wayfarer")
        };
        return make(context, op, path, fd);
    }
    let difference = match open_and_compare(context, op, path, hash) {
        Ok(fd) => return keep_found(context, op, path, fd),
        Err(difference) => difference,
    };
    if carried && !flag(inode_flags::WRITTEN) {
        return make(context, op, path, sys::memfd(c"wayfarer"));
    }
    if let (true, Difference::Missing(Errno(ENOENT))) = (carried, &difference) {
        let created = sys::open_at(
            AT_FDCWD,
            path,
            O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
            op.mode,
        );
        let fd = created
            .map_err(|error| failure!(Failed, "file {}: cannot be made ({error})", name(path)))?;
        fill(context, fd, op.inode, op.size)?;
        return keep_found(context, op, path, fd);
    }
    let acceptable = !matches!(difference, Difference::Missing(_) | Difference::Kind { .. });
    if acceptable && context.options.files == Files::Keep {
        let fd = open_somehow(path, 0)
            .map_err(|error| failure!(Failed, "file {}: {error}", name(path)))?;
        report::say(
            context.name(),
            format_args!(
                "note: file {} is used as it is, though it has changed",
                name(path)
            ),
        );
        return keep_found(context, op, path, fd);
    }
    Err(describe(op, path, hash, &difference))
}

pub fn name(path: &CStr) -> Raw<'_> {
    Raw(path.to_bytes())
}

/// What a file with this mode is.
fn kind(mode: u32) -> &'static str {
    match mode & S_IFMT {
        S_IFREG => "a regular file",
        S_IFDIR => "a directory",
        S_IFIFO => "a FIFO",
        S_IFSOCK => "a socket",
        S_IFCHR => "a character device",
        S_IFBLK => "a block device",
        _ => "neither file nor directory",
    }
}

fn describe(op: &ops::Inode, path: &CStr, hash: &[u8; 32], difference: &Difference) -> Failure {
    let path = name(path);
    let hint = "--files keep uses it as it is";
    match difference {
        Difference::Missing(error) => failure!(Failed, "file {path} is missing ({error})"),
        Difference::Unreadable(error) => failure!(Failed, "file {path} cannot be read ({error})"),
        Difference::Kind { found } => failure!(
            Failed,
            "file {path} is of another kind than it was: found {}, expected {}",
            kind(*found),
            match op.flags & inode_flags::DIRECTORY {
                0 => kind(S_IFREG),
                _ => kind(S_IFDIR),
            }
        ),
        Difference::Size { found } => failure!(
            Failed,
            "file {path} has changed: found {found} bytes, expected {}; {hint}",
            op.size
        ),
        Difference::Contents { found } if op.flags & inode_flags::WRITTEN != 0 => failure!(
            Failed,
            "file {path} has changed within the {} bytes it had: blake3 found {}, expected {}; {hint}",
            op.size,
            Short(found),
            Short(hash)
        ),
        Difference::Contents { found } => failure!(
            Failed,
            "file {path} has changed: blake3 found {}, expected {}; {hint}",
            Short(found),
            Short(hash)
        ),
    }
}

fn keep_found(context: &Context, op: &ops::Inode, path: &CStr, fd: i32) -> Outcome<()> {
    if op.slot == u64::MAX {
        sys::close(fd);
        return Ok(());
    }
    let mut what = Line::new();
    what.push(path.to_bytes());
    to_slot(
        fd,
        op.slot,
        core::str::from_utf8(what.bytes()).unwrap_or("file"),
    )?;
    set_state(context, op.slot, FOUND);
    Ok(())
}

/// Opens for reading, or only to look at it when that is not allowed.
fn open_somehow(path: &CStr, flags: u64) -> Result<i32, Errno> {
    match sys::open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | flags) {
        Err(Errno(EACCES | EPERM)) => sys::open(path, O_PATH | flags),
        other => other,
    }
}

fn open_and_compare(
    context: &Context,
    op: &ops::Inode,
    path: &CStr,
    hash: &[u8; 32],
) -> Result<i32, Difference> {
    let is_directory = op.flags & inode_flags::DIRECTORY != 0;
    let opened = if op.check == check::NONE && !is_directory {
        sys::open(path, O_PATH)
    } else {
        open_somehow(path, 0)
    };
    let fd = opened.map_err(|error| match error.0 {
        ENOENT | ENOTDIR => Difference::Missing(error),
        _ => Difference::Unreadable(error),
    })?;
    match compare(context, op, fd, is_directory, hash) {
        Ok(()) => Ok(fd),
        Err(difference) => {
            sys::close(fd);
            Err(difference)
        }
    }
}

fn compare(
    context: &Context,
    op: &ops::Inode,
    fd: i32,
    is_directory: bool,
    hash: &[u8; 32],
) -> Result<(), Difference> {
    let stat = sys::stat(fd).map_err(Difference::Unreadable)?;
    let found_directory = stat.mode & S_IFMT == S_IFDIR;
    if found_directory != is_directory {
        return Err(Difference::Kind { found: stat.mode });
    }
    if is_directory || op.check == check::NONE {
        return Ok(());
    }
    if stat.mode & S_IFMT != S_IFREG {
        return Err(Difference::Kind { found: stat.mode });
    }
    let found = stat.size as u64;
    let right = match op.check {
        check::FULL | check::SAMPLED => found == op.size,
        _ => found >= op.size,
    };
    if !right {
        return Err(Difference::Size { found });
    }
    let sampled = match op.check {
        check::FULL | check::FULL_PREFIX => false,
        check::SAMPLED | check::SAMPLED_PREFIX => true,
        _ => return Ok(()),
    };
    // SAFETY: the buffers are used by the one thread that carries out a stream.
    let buffer = &mut unsafe { context.bytes(context.layout.buffers) }[..CHUNK as usize];
    let found = hash_file(fd, op.size, sampled, buffer).map_err(Difference::Unreadable)?;
    if found == *hash {
        Ok(())
    } else {
        Err(Difference::Contents { found })
    }
}

/// The checksum of the first `size` bytes of a file, whole or sampled (`loader::ops::check`).
fn hash_file(fd: i32, size: u64, sampled: bool, buffer: &mut [u8]) -> Result<[u8; 32], Errno> {
    const EDGE: u64 = 64 << 10;
    let mut hasher = blake3::Hasher::new();
    let mut absorb = |from: u64, len: u64| {
        let mut done = 0;
        while done < len {
            let part = (len - done).min(buffer.len() as u64) as usize;
            let found = sys::pread_full(fd, &mut buffer[..part], from + done)?;
            if found < part {
                return Err(Errno(5));
            }
            hasher.update(&buffer[..part]);
            done += part as u64;
        }
        Ok(())
    };
    if !sampled || size < 2 * EDGE {
        absorb(0, size)?;
    } else {
        absorb(0, EDGE)?;
        for index in 1..=62u128 {
            let at = (index * u128::from(size) / 64) as u64 & !4095;
            absorb(at, 4096.min(size - at))?;
        }
        absorb(size - EDGE, EDGE)?;
    }
    Ok(hasher.finalize().into())
}

/// An unlinked file beside `path`, in `/var/tmp` or `/tmp`, or in memory.
fn make_nameless(path: &CStr, mode: u64) -> Result<i32, Errno> {
    let bytes = path.to_bytes();
    let folder = &bytes[..bytes.iter().rposition(|byte| *byte == b'/').unwrap_or(0)];
    let mut beside = Line::new();
    beside.push(if folder.is_empty() { b"/" } else { folder });
    beside.push(b"\0");
    let beside = CStr::from_bytes_until_nul(beside.bytes()).unwrap_or(c"/tmp");
    for place in [beside, c"/var/tmp", c"/tmp"] {
        if let Ok(fd) = sys::open_at(AT_FDCWD, place, O_TMPFILE | O_RDWR | O_CLOEXEC, mode) {
            return Ok(fd);
        }
    }
    sys::memfd(c"deleted")
}

/// Fills what was made and puts it into its slot.
fn make(context: &Context, op: &ops::Inode, path: &CStr, fd: Result<i32, Errno>) -> Outcome<()> {
    let failed = |error: Errno| failure!(Failed, "file {}: cannot be made ({error})", name(path));
    let fd = fd.map_err(failed)?;
    fill(context, fd, op.inode, op.size)?;
    let _ = sys::chmod(fd, op.mode & 0o7777);
    if op.slot == u64::MAX {
        sys::close(fd);
        return Ok(());
    }
    to_slot(fd, op.slot, "made file")?;
    set_state(context, op.slot, MADE);
    Ok(())
}

/// Writes the contents of an inode from the image.
pub fn fill(context: &Context, fd: i32, inode: u64, size: u64) -> Outcome<()> {
    let failed = |error: Errno| failure!(Failed, "contents of inode {inode}: {error}");
    sys::truncate(fd, size).map_err(failed)?;
    // SAFETY: the buffers are used by the one thread that carries out a stream.
    let buffers = unsafe { context.bytes(context.layout.buffers) };
    let (chunk_bytes, scratch) = buffers.split_at_mut(CHUNK as usize);
    let space = Space::Inode(inode as u32);
    let extents = || context.extents.extents_of(space).filter_map(Result::ok);
    let mut progress = Progress::begin("filling files", extents().map(|extent| extent.len).sum());
    let mut filled = 0;
    for extent in extents() {
        for index in 0..extent.chunk_count() {
            let at = extent.at + index * CHUNK;
            let len = CHUNK.min(extent.len - index * CHUNK);
            let bytes = &mut chunk_bytes[..len as usize];
            read_chunk(context, &extent, index, bytes, scratch)?;
            progress.at(filled);
            filled += len;
            let useful = size.saturating_sub(at).min(len) as usize;
            let mut done = 0;
            while done < useful {
                match sys::pwrite(fd, &bytes[done..useful], at + done as u64) {
                    Ok(written) => done += written,
                    Err(Errno(EINTR)) => {}
                    Err(Errno(EINVAL)) => {
                        write_mapped(fd, &bytes[done..useful], at + done as u64).map_err(failed)?;
                        done = useful;
                    }
                    Err(error) => return Err(failed(error)),
                }
            }
        }
    }
    let slot = context.ops.header().slot_base.saturating_add(inode);
    if let Some(state) = slot_state(context, slot) {
        *state |= FILLED;
    }
    Ok(())
}

/// Writes through a mapping: files of huge pages cannot be written otherwise.
fn write_mapped(fd: i32, bytes: &[u8], at: u64) -> Result<(), Errno> {
    const HUGE: u64 = 1 << 30;
    let size = sys::stat(fd)?.rest[0].clamp(4096, HUGE);
    let start = at / size * size;
    let len = (at + bytes.len() as u64 - start).next_multiple_of(size);
    let args = [0, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd as u64, start];
    // SAFETY: a new mapping, somewhere; unmapped below.
    unsafe {
        let place = sys::call(SYS_MMAP, args)?;
        let to = (place + (at - start)) as *mut u8;
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        sys::unmap(place, len).map(|_| ())
    }
}

/// Makes an open file description.
pub fn open(context: &Context, op: &ops::Open, tail: &'static [u8]) -> Outcome<()> {
    let path = text(tail)?;
    let state = slot_state(context, op.inode_slot).map_or(0, |state| *state & !FILLED);
    let failed = |error: Errno| failure!(Failed, "file {}: cannot be opened ({error})", name(path));
    // Memory has no path.
    let made = state == MADE || path.is_empty();
    let fd = if made {
        reopen(context, op)
    } else {
        sys::open_at(AT_FDCWD, path, op.flags | O_CLOEXEC | O_NOCTTY, 0)
    };
    let fd = fd.map_err(failed)?;
    if op.offset != 0 && op.flags & O_PATH == 0 {
        sys::seek(fd, op.offset).map_err(failed)?;
    }
    to_slot(fd, op.slot, "open file")?;
    set_state(context, op.slot, state);
    Ok(())
}

/// Opens the file in a slot once more.
fn reopen(context: &Context, op: &ops::Open) -> Result<i32, Errno> {
    let mut link = Line::new();
    let _ = write!(link, "/proc/self/fd/{}\0", op.inode_slot);
    let link = CStr::from_bytes_until_nul(link.bytes()).unwrap_or(c"");
    match sys::open(link, op.flags & !O_NOFOLLOW) {
        Err(Errno(ENOENT)) => {
            // A root without /proc: the description that made the file serves.
            let fd = sys::fcntl(op.inode_slot as i32, F_DUPFD_CLOEXEC, 3)? as i32;
            let _ = sys::fcntl(fd, F_SETFL, op.flags & (O_APPEND | O_NONBLOCK));
            if op.flags & O_ACCMODE != O_RDWR {
                report::say(
                    context.name(),
                    format_args!(
                        "note: descriptor of a made file can be read and written (no /proc)"
                    ),
                );
            }
            Ok(fd)
        }
        other => other,
    }
}
