//! Placeholders: how they are made, recognised, and how their end is found out.
//!
//! ```text
//! memfd "wf-..." -> inotify watch -> mode 0 -> O_PATH descriptor of it, in the memfd's place    (first lock: another watch)
//! last descriptor closed, in whatever process -> IN_DELETE_SELF -> handle closed at the shadow
//! ```

use super::behind;
use super::fault;
use super::nodes;
use super::process;
use super::renewal;
use super::resident;
use super::sys::{self, DescriptorName, Errno};
use super::{lanes, sys::SysResult};
use crate::table::{CHANGING, Description, FREE, LOST, OPEN, Reserved, Table};
use core::ffi::CStr;
use core::sync::atomic::Ordering;
use wire::{Close, Opened, Request, Sync};

const PREFIX: &[u8] = b"wf-";
const NAME_LEN: usize = PREFIX.len() + 32;
/// What the kernel says of a memfd in `/proc/self/fd`.
const SHOWN_BEFORE: &[u8] = b"/memfd:";
const IN_DELETE_SELF: u32 = 0x400;
const MFD_CLOEXEC: u64 = 1;
/// Bytes of `struct inotify_event` without a name.
const EVENT_LEN: usize = 16;

fn name_text(name: [u64; 2]) -> [u8; NAME_LEN + 1] {
    let mut text = [0; NAME_LEN + 1];
    text[..PREFIX.len()].copy_from_slice(PREFIX);
    let digits = name.iter().flat_map(|half| {
        (0..16).map(move |at| b"0123456789abcdef"[(half >> (60 - 4 * at) & 15) as usize])
    });
    for (place, digit) in text[PREFIX.len()..].iter_mut().zip(digits) {
        *place = digit;
    }
    text
}

fn parse_name(text: &[u8]) -> Option<[u64; 2]> {
    let digits = text
        .strip_prefix(SHOWN_BEFORE)?
        .strip_prefix(PREFIX)?
        .first_chunk::<32>()?;
    let mut name = [0u64; 2];
    for (at, digit) in digits.iter().enumerate() {
        let value = (*digit as char).to_digit(16)?;
        name[at / 16] = name[at / 16] << 4 | u64::from(value);
    }
    Some(name)
}

/// A new description and its placeholder, which is the lowest free descriptor.
pub(super) fn make(table: &Table, opened: &Opened, flags: u32) -> SysResult<(i32, usize)> {
    let index = table.take().ok_or(Errno(sys::ENFILE))?;
    let description = &table.descriptions[index];
    match place(table, index, flags) {
        Ok(fd) => {
            fault::at("placed");
            let Opened { handle, attributes } = opened;
            let file = resident::number(attributes.device, attributes.inode);
            description.handle.store(*handle, Ordering::Relaxed);
            description.file.store(file, Ordering::Relaxed);
            description
                .device
                .store(attributes.device, Ordering::Relaxed);
            description.inode.store(attributes.inode, Ordering::Relaxed);
            description.offset.store(0, Ordering::Relaxed);
            description.flags.store(flags, Ordering::Relaxed);
            description.mode.store(attributes.mode, Ordering::Relaxed);
            description.object.store(0, Ordering::Relaxed);
            description.fetched.store(0, Ordering::Relaxed);
            description.usage.store(0, Ordering::Relaxed);
            description.locked.store(0, Ordering::Relaxed);
            description.error.store(0, Ordering::Relaxed);
            description.state.store(OPEN, Ordering::Release);
            process::set_remote(fd, Some(index));
            Ok((fd, index))
        }
        Err(error) => {
            table.give_back(index);
            Err(error)
        }
    }
}

fn place(table: &Table, index: usize, flags: u32) -> SysResult<i32> {
    let mut bytes = [0; 16];
    sys::random(&mut bytes)?;
    let (first, second) = bytes.split_at(8);
    let half = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0u64, |all, byte| all << 8 | u64::from(*byte))
    };
    let name = [half(first), half(second)];
    let text = name_text(name);
    let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
    let fd = not_withheld(sys::memfd(text, MFD_CLOEXEC)?, sys::F_DUPFD_CLOEXEC)?;
    let made = (|| {
        let path = DescriptorName::of(fd);
        let watch = watch_end(fd)?;
        sys::fchmod(fd, 0)?;
        let marker = match sys::open_as_path(fd) {
            Err(_) => sys::open(path.get(), sys::O_PATH | sys::O_CLOEXEC)?,
            Ok(marker) => marker,
        };
        let moved = sys::dup3(marker, fd, flags & sys::O_CLOEXEC);
        sys::close(marker);
        moved?;
        let description = &table.descriptions[index];
        description.watch.store(watch, Ordering::Relaxed);
        description.lock_watch.store(0, Ordering::Relaxed);
        description.name[0].store(name[0], Ordering::Relaxed);
        description.name[1].store(name[1], Ordering::Relaxed);
        Ok(fd)
    })();
    if made.is_err() {
        sys::close(fd);
    }
    made
}

/// A new descriptor, or another one instead that a remote file may have: made by `F_DUPFD` or `F_DUPFD_CLOEXEC`.
pub(super) fn not_withheld(fd: i32, command: u64) -> SysResult<i32> {
    let Some(least) = process::habits().and_then(|habits| habits.moves(fd)) else {
        return Ok(fd);
    };
    let moved = sys::fcntl(fd, command, least as u64);
    sys::close(fd);
    moved.map(|fd| fd as i32)
}

/// Has the shadow told of the end of a description that is to have locks: it may come when nobody of the job is there to see it.
/// What it is called.
pub(super) fn tell_shadow_of_end(fd: i32, description: &Description) -> i32 {
    if let Some(table) = process::table() {
        renewal::check(table);
    }
    let known = description.lock_watch.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let path = DescriptorName::of(fd);
    let others = Reserved::LockEnds.number();
    // Only what may be read can be watched. The mode is the whole file's, so another process may do the same now.
    let _ = sys::chmod(path.get(), 0o400);
    let watch = sys::watch(others, path.get(), IN_DELETE_SELF.into());
    let _ = sys::chmod(path.get(), 0);
    if let Ok(watch) = watch {
        // Whoever else does it finds the same.
        description.lock_watch.store(watch, Ordering::Relaxed);
    }
    // The shadow may not be there to read them: then its locks end with its handle.
    description.lock_watch.load(Ordering::Relaxed)
}

/// What tells, in whatever process, that nobody has this file of the kernel's open or mapped any more.
pub(super) fn watch_end(fd: i32) -> SysResult<i32> {
    let path = DescriptorName::of(fd);
    sys::watch(Reserved::Ends.number(), path.get(), IN_DELETE_SELF.into())
}

/// Which description a descriptor stands for, as the kernel's own table says.
pub(super) fn ask_kernel(fd: i32) -> Option<usize> {
    process::table()?.find(name_of(fd)?)
}

/// As [`ask_kernel`], also of a description that is being made.
pub(super) fn placeholder(table: &Table, fd: i32) -> Option<usize> {
    let name = name_of(fd)?;
    table.descriptions.iter().position(|one| {
        one.state.load(Ordering::Acquire) != FREE
            && one.name[0].load(Ordering::Relaxed) == name[0]
            && one.name[1].load(Ordering::Relaxed) == name[1]
    })
}

/// As [`ask_kernel`], of one that was inherited or received.
pub(super) fn recognise(fd: i32) -> Option<usize> {
    let mut text = [0; SHOWN_LEN];
    let shown = shown(fd, &mut text)?;
    nodes::look_at(shown);
    process::table()?.find(parse_name(shown)?)
}

/// Room for what the kernel says of our own.
const SHOWN_LEN: usize = 64;

/// What the kernel says of a descriptor in `/proc/self/fd`.
fn shown(fd: i32, text: &mut [u8; SHOWN_LEN]) -> Option<&[u8]> {
    let len = sys::readlink(DescriptorName::of(fd).get(), text).ok()?;
    text.get(..len)
}

fn name_of(fd: i32) -> Option<[u64; 2]> {
    parse_name(shown(fd, &mut [0; SHOWN_LEN])?)
}

/// Closes at the shadow what nobody has open any more.
pub(super) fn close_ended() {
    let Some(table) = process::table() else {
        return;
    };
    // Numbers of watches mean something else after a restart, which may be at any instruction.
    let generation = table.generation.load(Ordering::Acquire);
    if table.lost.swap(0, Ordering::AcqRel) != 0 {
        for (index, one) in table.descriptions.iter().enumerate() {
            if one.watch.load(Ordering::Relaxed) == LOST {
                end(table, index, generation);
            }
        }
    }
    let mut events = [0; 64 * EVENT_LEN];
    while let Ok(len @ 1..) = sys::read(Reserved::Ends.number(), &mut events) {
        renewal::check(table);
        for event in events[..len].chunks_exact(EVENT_LEN) {
            let word = |at: usize| {
                let mut bytes = [0; 4];
                bytes.copy_from_slice(&event[at..at + 4]);
                u32::from_le_bytes(bytes)
            };
            let watch = word(0) as i32;
            if table.generation.load(Ordering::Acquire) != generation {
                // What has ended was found out when the watches were made anew.
                return;
            }
            if word(4) & IN_DELETE_SELF == 0 {
                continue;
            }
            if let Some(index) = table.watched(watch) {
                end(table, index, generation);
            } else if table.residents.hold_ended(watch).is_some() {
                resident::end_unused();
            }
        }
        if len < events.len() {
            break;
        }
    }
}

fn end(table: &Table, index: usize, generation: u64) {
    let description = &table.descriptions[index];
    let ours =
        description
            .state
            .compare_exchange(OPEN, CHANGING, Ordering::Acquire, Ordering::Relaxed);
    if ours.is_err() {
        return;
    }
    if table.generation.load(Ordering::Acquire) != generation {
        description.state.store(OPEN, Ordering::Release);
        return;
    }
    fault::at("ending");
    behind::send_last(table, index);
    let handle = description.handle.load(Ordering::Relaxed);
    let sync = Sync {
        handle,
        data_only: true,
    };
    if description.is_to_be_stored() && lanes::tell(&Request::Sync(sync)).is_err() {
        // Nobody is left to tell: the keeper finds it, tries again when the job ends, and tells then.
        description.state.store(OPEN, Ordering::Release);
        return;
    }
    table.taken.remove(handle);
    // What could fail has been told before.
    if description.locked.load(Ordering::Relaxed) != 0 {
        let _ = lanes::tell(&Request::Close(Close { handle }));
    } else {
        lanes::close(handle);
    }
    fault::at("given-back");
    table.give_back(index);
}
