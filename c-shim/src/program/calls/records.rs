//! What the kernel writes into a program's memory: `struct stat`, `statx`, `statfs`, `linux_dirent64`.

use wire::{Attributes, Entry, FileSystem, Stamp};

/// Room in the program's memory.
pub(super) struct Room {
    at: *mut u8,
    len: usize,
    used: usize,
}

impl Room {
    pub(super) fn new(at: *mut u8, len: usize) -> Self {
        Room { at, len, used: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(self.len - self.used)];
        let to = self.at.wrapping_add(self.used);
        // SAFETY: the program says that there is so much room.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        self.used += bytes.len();
    }

    fn words(&mut self, words: &[u64]) {
        for word in words {
            self.push(&word.to_le_bytes());
        }
    }

    fn halves(&mut self, halves: &[u32]) {
        for half in halves {
            self.push(&half.to_le_bytes());
        }
    }
}

/// `struct linux_dirent64`; false if there is no room for it.
pub(super) fn entry(room: &mut Room, entry: &Entry<'_>) -> bool {
    const BEFORE_NAME: usize = 19;
    let len = (BEFORE_NAME + entry.name.len() + 1).next_multiple_of(8);
    if room.len - room.used < len {
        return false;
    }
    room.words(&[entry.inode, entry.next]);
    room.push(&(len as u16).to_le_bytes());
    room.push(&[entry.kind]);
    room.push(entry.name);
    room.push(&[0; 8][..len - BEFORE_NAME - entry.name.len()]);
    true
}

fn stamp_words(stamp: Stamp) -> [u64; 2] {
    [stamp.seconds as u64, stamp.nanoseconds.into()]
}

/// `struct stat` of x86-64.
pub(super) fn stat(to: u64, attributes: &Attributes) {
    let mut room = Room::new(to as *mut u8, 144);
    room.words(&[attributes.device, attributes.inode, attributes.links]);
    room.halves(&[attributes.mode, attributes.uid, attributes.gid, 0]);
    room.words(&[
        attributes.special,
        attributes.size,
        attributes.block_size.into(),
        attributes.blocks,
    ]);
    for stamp in [attributes.accessed, attributes.modified, attributes.changed] {
        room.words(&stamp_words(stamp));
    }
    room.words(&[0; 3]);
}

/// `struct statx`.
pub(super) fn statx(to: u64, attributes: &Attributes) {
    const BASIC_STATS: u32 = 0x7ff;
    const BTIME: u32 = 0x800;
    let mut room = Room::new(to as *mut u8, 256);
    let mask = BASIC_STATS | attributes.born.map_or(0, |_| BTIME);
    room.halves(&[mask, attributes.block_size]);
    room.words(&[attributes.flags.0]);
    room.halves(&[attributes.links as u32, attributes.uid, attributes.gid]);
    room.push(&(attributes.mode as u16).to_le_bytes());
    room.push(&[0; 2]);
    room.words(&[
        attributes.inode,
        attributes.size,
        attributes.blocks,
        attributes.flags.1,
    ]);
    for stamp in [
        attributes.accessed,
        attributes.born.unwrap_or_default(),
        attributes.changed,
        attributes.modified,
    ] {
        room.words(&[stamp.seconds as u64]);
        room.halves(&[stamp.nanoseconds, 0]);
    }
    room.halves(&[
        major(attributes.special),
        minor(attributes.special),
        major(attributes.device),
        minor(attributes.device),
    ]);
    room.push(&[0; 112]);
}

/// As glibc's gnu_dev_major.
fn major(device: u64) -> u32 {
    (device >> 8 & 0xfff | device >> 32 & 0xffff_f000) as u32
}

fn minor(device: u64) -> u32 {
    (device & 0xff | device >> 12 & 0xffff_ff00) as u32
}

/// `struct statfs` of x86-64.
pub(super) fn statfs(to: u64, system: &FileSystem) {
    let mut room = Room::new(to as *mut u8, 120);
    room.words(&[
        system.kind,
        system.block_size,
        system.blocks.0,
        system.blocks.1,
        system.blocks.2,
        system.files.0,
        system.files.1,
        system.id,
        system.longest_name,
        system.fragment_size,
        system.flags,
    ]);
    room.push(&[0; 32]);
}
