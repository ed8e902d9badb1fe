//! The tables of the image: little of them in memory at a time, the same for all threads of a process.
//!
//! ```text
//! hole: | TableFile | windows ... | their checksums ... |      what is not there is read again from the image
//! ```
//! # What callers may rely on
//! A row that is given is the one that was there when the image was checked. Where it cannot be had any more, or is
//! another, the restart ends here, whoever asks.

use crate::abi::*;
use crate::image::{Image, check_padding, compare};
use crate::init;
use crate::report::{Failure, Outcome, failure};
use crate::sys;
use core::cell::UnsafeCell;
use core::convert::Infallible;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use loader::hole::{Part, TABLES_LEN};
use loader::layout::{
    ExtentTables, ExtentsHeader, LayoutError, Lost, Rows, Section, SectionKind, Unsound, WindowSum,
    Windows,
};

/// The tables, whoever has them.
pub type Tables = ExtentTables<&'static TableFile>;

const NAME: &str = ".wf.extents";

/// The extents section of an open image.
pub struct TableFile {
    fd: AtomicI32,
    section: Section,
    /// 0: free, 1: held, 2: held, and waited for.
    lock: AtomicU32,
    windows: UnsafeCell<Windows<&'static mut [u8], &'static mut [WindowSum]>>,
}

// SAFETY: the windows are used by who has the lock.
unsafe impl Sync for TableFile {}

const _: () = assert!(size_of::<TableFile>() as u64 <= TABLES_LEN);

/// Reads the tables for the first time: they are as they were written, and sound by themselves.
///
/// # Safety
/// `part` at `base` is mapped, empty, as long as [`loader::hole::HoleLayout`] says, and nobody else's.
pub unsafe fn read(image: &Image, base: u64, part: Part) -> Outcome<Tables> {
    let section = *image.header.section(SectionKind::Extents);
    let (places, sums) = Windows::room(section.len);
    let at = base + part.offset;
    let places_at = at + TABLES_LEN;
    // SAFETY: behind what is noted about the tables; the caller's promise.
    let windows = unsafe { core::slice::from_raw_parts_mut(places_at as *mut u8, places as usize) };
    let sums_at = (places_at + places) as *mut WindowSum;
    // SAFETY: behind the windows; the caller's promise.
    let sums = unsafe { core::slice::from_raw_parts_mut(sums_at, sums as usize) };
    let mut seed = [0; 8];
    // Without chance, a moment in nanoseconds is all but as good.
    if sys::random(&mut seed).is_err() {
        seed = (sys::clock(CLOCK_MONOTONIC) as u64).to_le_bytes();
    }
    let mut windows = Windows::new(section.len, u64::from_le_bytes(seed), windows, sums);
    let mut hasher = blake3::Hasher::new();
    let (mut seen, mut padded) = (0, None);
    windows.read_first(
        |at, to| image.read_part(NAME, section.offset + at, to),
        |bytes| {
            hasher.update(bytes);
            let padding = section.used.saturating_sub(seen).min(bytes.len() as u64);
            let found = bytes[padding as usize..].iter().position(|byte| *byte != 0);
            padded = padded.or(found.map(|found| seen + padding + found as u64 - section.used));
            seen += bytes.len() as u64;
        },
    )?;
    compare(NAME, &hasher.finalize().into(), &section.hash)?;
    check_padding(NAME, padded)?;
    let file = at as *mut TableFile;
    // SAFETY: the first page of the part, page aligned and big enough.
    let file: &'static TableFile = unsafe {
        file.write(TableFile {
            fd: AtomicI32::new(image.fd),
            section,
            lock: AtomicU32::new(0),
            windows: UnsafeCell::new(windows),
        });
        &*file
    };
    ExtentTables::read(file).map_err(|error| match error {
        Unsound::Wrong(LayoutError::Table(error)) => failure!(Image, "section {NAME}: {error}"),
        Unsound::Wrong(_) => failure!(Image, "section {NAME}: shorter than its head"),
    })
}

impl TableFile {
    /// The image is open under another number now.
    pub fn is_at(&self, fd: i32) {
        self.fd.store(fd, Ordering::Relaxed);
    }

    /// The tables of no contents, for who asks for nothing any more.
    pub fn none(&'static self) -> Tables {
        ExtentTables::of(ExtentsHeader::default(), self)
    }

    fn lock(&self) {
        let mut found = self
            .lock
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .map_or_else(|found| found, |_| 0);
        while found != 0 {
            if found == 1 {
                found = self.lock.swap(2, Ordering::Acquire);
                if found == 0 {
                    return;
                }
            }
            sys::futex_wait(&self.lock, 2);
            found = self.lock.swap(2, Ordering::Acquire);
        }
    }

    fn unlock(&self) {
        if self.lock.swap(0, Ordering::Release) == 2 {
            sys::futex_wake(&self.lock);
        }
    }

    fn lost(&self, lost: Lost<sys::Errno>) -> Failure {
        match lost {
            Lost::Changed(changed) => failure!(
                Image,
                "section {NAME}: the image was changed while it was read, from byte {} of the section on",
                changed.at
            ),
            Lost::Unread(error) => failure!(Image, "section {NAME}: cannot be read ({error})"),
        }
    }
}

impl Rows for TableFile {
    type Error = Infallible;

    fn used(&self) -> u64 {
        self.section.used
    }

    fn read(&self, at: u64, to: &mut [u8]) -> Result<(), Infallible> {
        self.lock();
        // SAFETY: we have the lock.
        let windows = unsafe { &mut *self.windows.get() };
        let copied = windows.copy(at, to, |at, to| {
            let fd = self.fd.load(Ordering::Relaxed);
            match sys::pread_full(fd, to, self.section.offset + at)? {
                found if found == to.len() => Ok(()),
                _ => Err(sys::Errno(EIO)),
            }
        });
        if let Err(lost) = copied {
            // Others wait until they end with us, and say nothing.
            init::end_anywhere(&self.lost(lost));
        }
        self.unlock();
        Ok(())
    }
}
