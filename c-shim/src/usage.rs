//! What a job does with its remote files: how often, how many bytes, how much of it needed the shadow (Condor's FileReadCount,
//! FileReadBytes, FileWriteCount, FileWriteBytes, FileSeekCount; condor_q -io).
//!
//! # What callers may rely on
//! All processes of the job count here, without a lock; a number is never less than it was. A process that is killed loses nothing that it has counted.
//!
//! # What it does not do
//! What is read or written through a mapping is the kernel's, and is not counted.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Files that are told from each other; the others share the last place.
pub const FILES: usize = 1024;
/// Bytes of a file's name that are kept: the last ones.
pub const NAME_LEN: usize = 200;
/// Places where a file is looked for.
const PROBES: usize = 32;
/// Handles that lead to their file without a search.
const HANDLES: usize = 8192;

/// Nobody's.
const FREE: u32 = 0;
/// Somebody writes who it is.
const TAKEN: u32 = 1;
/// It is known whose it is.
const KNOWN: u32 = 2;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Count {
    /// Opens.
    Opens,
    /// Calls that read.
    Reads,
    /// Bytes that they gave.
    ReadBytes,
    /// Calls that write.
    Writes,
    /// Bytes that they took.
    WrittenBytes,
    /// Calls of lseek(2).
    Seeks,
    /// Questions that were waited for (round trips).
    Trips,
    /// Of those, for bytes.
    ReadTrips,
    /// How long they were waited for, in nanoseconds.
    WaitedNs,
}

const COUNTS: usize = 9;

/// Numbers of a file, or of all.
#[derive(Debug)]
#[repr(C)]
pub struct Counters([AtomicU64; COUNTS]);

impl Counters {
    /// Counts so many.
    pub fn add(&self, what: Count, many: u64) {
        self.0[what as usize].fetch_add(many, Ordering::Relaxed);
    }

    /// How many there were.
    #[must_use]
    pub fn get(&self, what: Count) -> u64 {
        self.0[what as usize].load(Ordering::Relaxed)
    }
}

/// A file.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct FileUsage {
    state: AtomicU32,
    name_len: AtomicU32,
    device: AtomicU64,
    inode: AtomicU64,
    /// What is counted about it.
    pub counters: Counters,
    name: [AtomicU64; NAME_LEN / 8],
}

impl FileUsage {
    fn is(&self, device: u64, inode: u64) -> bool {
        self.device.load(Ordering::Relaxed) == device && self.inode.load(Ordering::Relaxed) == inode
    }

    fn set_name(&self, name: &[u8]) {
        let from = name.len().saturating_sub(NAME_LEN);
        let kept = &name[from..];
        for (place, bytes) in self.name.iter().zip(kept.chunks(8)) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            place.store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        self.name_len.store(kept.len() as u32, Ordering::Relaxed);
    }

    /// What it was called when it was opened first: the last bytes of it.
    #[must_use]
    pub fn name(&self) -> ([u8; NAME_LEN], usize) {
        let mut bytes = [0; NAME_LEN];
        for (place, word) in bytes.chunks_mut(8).zip(&self.name) {
            place.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        let len = self.name_len.load(Ordering::Relaxed) as usize;
        (bytes, len.min(NAME_LEN))
    }
}

/// Everything that is counted.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Usage {
    /// What is about no file, or about names.
    pub names: Counters,
    files: [FileUsage; FILES],
    /// By the handle's last bits: a file and 1.
    handles: [AtomicU32; HANDLES],
}

impl Usage {
    /// A file's place; the last one for those that have none of their own.
    #[must_use]
    pub fn file(&self, device: u64, inode: u64, name: &[u8]) -> usize {
        let hash = (device ^ inode.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        for probe in 0..PROBES {
            let index = (hash as usize + probe) % (FILES - 1);
            let one = &self.files[index];
            let taken =
                one.state
                    .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Acquire);
            match taken {
                Ok(_) => {
                    one.device.store(device, Ordering::Relaxed);
                    one.inode.store(inode, Ordering::Relaxed);
                    one.set_name(name);
                    one.state.store(KNOWN, Ordering::Release);
                    return index;
                }
                // One that is being written is perhaps the same; then it is there twice.
                Err(KNOWN) if one.is(device, inode) => return index,
                Err(_) => {}
            }
        }
        let last = &self.files[FILES - 1];
        if last.state.swap(KNOWN, Ordering::Release) == FREE {
            last.set_name(b"(others)");
        }
        FILES - 1
    }

    /// What is counted about a place.
    #[must_use]
    pub fn counters(&self, index: usize) -> &Counters {
        match self.files.get(index) {
            Some(file) => &file.counters,
            None => &self.names,
        }
    }

    /// A handle leads to a file.
    pub fn opened(&self, handle: u64, index: usize) {
        let place = &self.handles[handle as usize % HANDLES];
        place.store(index as u32 + 1, Ordering::Relaxed);
    }

    /// Where it leads, or names' numbers. Handles that are far apart may be taken for one another.
    #[must_use]
    pub fn of_handle(&self, handle: u64) -> &Counters {
        let index = self.handles[handle as usize % HANDLES].load(Ordering::Relaxed);
        match index {
            0 => &self.names,
            index => self.counters(index as usize - 1),
        }
    }

    /// The files that are known.
    pub fn files(&self) -> impl Iterator<Item = &FileUsage> {
        let known = |file: &&FileUsage| file.state.load(Ordering::Acquire) == KNOWN;
        self.files.iter().filter(known)
    }
}

/// Numbers, as they were at a moment.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers([u64; COUNTS]);

#[cfg(feature = "std")]
impl Numbers {
    /// How many there were.
    #[must_use]
    pub fn get(&self, what: Count) -> u64 {
        self.0[what as usize]
    }

    /// These and others.
    #[must_use]
    pub fn plus(&self, others: &Numbers) -> Numbers {
        Numbers(core::array::from_fn(|at| {
            self.0[at].wrapping_add(others.0[at])
        }))
    }

    fn read(bytes: &[u8], at: usize) -> Option<Self> {
        let mut numbers = [0; COUNTS];
        for (index, number) in numbers.iter_mut().enumerate() {
            *number = word(bytes, at + 8 * index)?;
        }
        Some(Numbers(numbers))
    }
}

/// A file, as it was at a moment.
#[cfg(feature = "std")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedFile {
    /// The last bytes of what it was called when it was opened first.
    pub name: alloc::vec::Vec<u8>,
    /// What was done with it.
    pub numbers: Numbers,
}

/// Everything, as it was at a moment.
#[cfg(feature = "std")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    /// What is about no file, or about names.
    pub names: Numbers,
    /// Each file.
    pub files: alloc::vec::Vec<UsedFile>,
}

#[cfg(feature = "std")]
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(feature = "std")]
impl Used {
    /// From the bytes of a [`Usage`] that may be counted on meanwhile; none if they are too few.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        use core::mem::offset_of;
        let mut files = alloc::vec::Vec::new();
        for index in 0..FILES {
            let at = offset_of!(Usage, files) + index * size_of::<FileUsage>();
            let state = word(bytes, at + offset_of!(FileUsage, state))? as u32;
            if state != KNOWN {
                continue;
            }
            let name_at = at + offset_of!(FileUsage, name);
            let len = word(bytes, at + offset_of!(FileUsage, name_len))? as u32 as usize;
            let name = bytes.get(name_at..name_at + len.min(NAME_LEN))?.to_vec();
            let numbers = Numbers::read(bytes, at + offset_of!(FileUsage, counters))?;
            files.push(UsedFile { name, numbers });
        }
        let names = Numbers::read(bytes, offset_of!(Usage, names))?;
        Some(Used { names, files })
    }

    /// All together.
    #[must_use]
    pub fn all(&self) -> Numbers {
        let files = self.files.iter();
        files.fold(self.names, |all, file| all.plus(&file.numbers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zeroed::zeroed;

    #[test]
    fn files_are_told_from_each_other_by_device_and_inode() {
        let usage = zeroed::<Usage>();
        let first = usage.file(1, 5, b"data");
        let second = usage.file(2, 5, b"other");
        assert_ne!(first, second);
        assert_eq!(usage.file(1, 5, b"another name"), first);
        usage.counters(first).add(Count::Reads, 3);
        usage.counters(first).add(Count::Reads, 4);
        assert_eq!(usage.counters(first).get(Count::Reads), 7);
        assert_eq!(usage.counters(second).get(Count::Reads), 0);
        let (name, len) = usage.files().next().expect("there are two").name();
        assert!([&b"data"[..], b"other"].contains(&&name[..len]));
        assert_eq!(usage.files().count(), 2);
    }

    #[test]
    fn a_handle_leads_to_its_file() {
        let usage = zeroed::<Usage>();
        let file = usage.file(1, 1, b"a");
        usage.opened(77, file);
        usage.of_handle(77).add(Count::Trips, 1);
        usage.of_handle(78).add(Count::Trips, 1);
        assert_eq!(usage.counters(file).get(Count::Trips), 1);
        assert_eq!(usage.names.get(Count::Trips), 1);
    }

    #[test]
    fn what_is_read_is_what_was_counted() {
        let usage = zeroed::<Usage>();
        let index = usage.file(3, 4, b"data.csv");
        usage.counters(index).add(Count::ReadBytes, 1 << 40);
        usage.names.add(Count::WaitedNs, 9);
        let place = (&raw const *usage).cast::<u8>();
        // SAFETY: a usage is so many bytes.
        #[allow(unsafe_code)]
        let bytes = unsafe { core::slice::from_raw_parts(place, size_of::<Usage>()) };
        let used = Used::read(bytes).expect("enough bytes");
        assert_eq!(used.files.len(), 1);
        assert_eq!(used.files[0].name, b"data.csv");
        assert_eq!(used.all().get(Count::ReadBytes), 1 << 40);
        assert_eq!(used.names.get(Count::WaitedNs), 9);
        assert_eq!(Used::read(&bytes[..1000]), None);
    }

    #[test]
    fn more_files_than_places_share_one() {
        let usage = zeroed::<Usage>();
        let places: Vec<_> = (0..3000).map(|inode| usage.file(1, inode, b"x")).collect();
        assert!(places.iter().filter(|place| **place == FILES - 1).count() > 1900);
        assert!(usage.files().count() <= FILES);
        let others = usage.files().last().expect("others");
        let (name, len) = others.name();
        assert_eq!(&name[..len], b"(others)");
    }

    #[test]
    fn of_a_long_name_the_end_is_kept() {
        let usage = zeroed::<Usage>();
        let long = [b"first/".repeat(100).as_slice(), b"last"].concat();
        let index = usage.file(1, 1, &long);
        let (name, len) = usage.files[index].name();
        assert_eq!(len, NAME_LEN);
        assert!(name.ends_with(b"first/last"));
    }

    use alloc::vec::Vec;
}
