//! A whole copy of a foreign vDSO, in which those go on who were inside it.
//!
//! ```text
//! old place:  [data: clocks of now][text: entry points are jumps to this machine's vDSO]
//! refuge:     [this machine's vDSO]
//! copy:       [data: clocks of now][text: as it was]
//! ```
//! A thread's `rip`, and every word of memory that points inside a function of the old text (signal
//! frames, return addresses), is changed to the same place in the copy, where no jump has been put
//! over any instruction. Its registers may point to the data at the old place, so that has the same
//! contents. Words that point to a function's first instruction stay: they are calls to come.
//!
//! # What callers may rely on
//! In the copy, clocks that need the cycle counter find a data page in which no clock is readable, and fall back to
//! system calls; what is only read (`time`, the coarse clocks, resolutions) finds the values of the
//! moment of the restart. Where these lie differs from kernel to kernel: the old functions themselves are called
//! on pages full of marks, and what they return tells where they have read.
//!
//! # What it does not do
//! It does not look into shared memory for such words.

use crate::abi::*;
use crate::context::Context;
use crate::fill;
use crate::report::{Outcome, failure};
use crate::sys;
use core::sync::atomic::{AtomicU64, Ordering};
use loader::hole::VDSO_LEN;
use loader::layout::PAGE;
use loader::ops::tails::Symbols;

/// Distance of the copy from the refuge, where the machine's own vDSO goes.
pub const COPY_AT: u64 = VDSO_LEN;

/// A copy in this address space.
#[derive(Clone, Copy)]
pub struct TextCopy {
    /// The lowest piece of it, and bytes of data before the text.
    pub base: u64,
    pub data_len: u64,
    /// The old text.
    pub start: u64,
    pub end: u64,
    pub symbols: Symbols<'static>,
}

/// What threads have to know: old text's start, the copy's text, where the symbols are, their bytes.
static PLACE: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

impl TextCopy {
    fn text(&self) -> u64 {
        self.base + self.data_len
    }

    /// Makes it, of the old text as it has been filled.
    pub fn make(&self, context: &Context, process: u64) -> Outcome<()> {
        let len = self.end - self.start;
        let failed = |what: &str, error| failure!(Failed, "copy of the old vDSO: {what}: {error}");
        // SAFETY: the old text is filled, the copy was reserved with the same length.
        unsafe {
            core::ptr::copy_nonoverlapping(
                self.start as *const u8,
                self.text() as *mut u8,
                len as usize,
            )
        };
        // SAFETY: nobody writes it any more.
        unsafe { sys::protect(self.text(), len, PROT_READ | PROT_EXEC) }
            .map_err(|error| failed("text", error))?;
        self.set_clocks();
        for (data, what) in [
            (self.base, "data"),
            (self.start - self.data_len, "old data"),
        ] {
            if data != self.base {
                // SAFETY: the old pieces' place, writable yet; the two do not overlap.
                unsafe {
                    core::ptr::copy_nonoverlapping(
                        self.base as *const u8,
                        data as *mut u8,
                        self.data_len as usize,
                    )
                };
            }
            // SAFETY: nobody writes it any more.
            unsafe { sys::protect(data, self.data_len, PROT_READ) }
                .map_err(|error| failed(what, error))?;
        }
        let values = [
            self.start,
            self.text(),
            self.symbols.bytes().as_ptr() as u64,
            self.symbols.bytes().len() as u64,
        ];
        for (place, value) in PLACE.iter().zip(values) {
            place.store(value, Ordering::Release);
        }
        let old = self.start..self.end;
        fill::change_words(context, process, &old, |word| {
            if old.contains(&word) {
                moved(word)
            } else {
                None
            }
        });
        Ok(())
    }

    /// Fills in what functions only read.
    fn set_clocks(&self) {
        const TIME: &str = "time";
        const CLOCK_GETTIME: &str = "clock_gettime";
        const CLOCK_GETRES: &str = "clock_getres";
        let mut set = [(0, 0); 6];
        let mut count = 0;
        let mut note = |mark: u64, value: u64| {
            if let Some(offset) = self.offset_of(mark)
                && let Some(place) = set.get_mut(count)
            {
                *place = (offset, value);
                count += 1;
            }
        };
        self.put_marks();
        if let Some(function) = self.function(TIME) {
            // SAFETY: the kernel's function of that name; a null pointer is allowed.
            let time: extern "C" fn(u64) -> u64 =
                unsafe { core::mem::transmute(function as *const ()) };
            note(time(0), (sys::clock(0) / NANOSECONDS) as u64);
        }
        if let Some(function) = self.function(CLOCK_GETTIME) {
            for clock in [REALTIME_COARSE, MONOTONIC_COARSE] {
                let marks = ask(function, clock);
                let now = sys::clock(clock);
                note(marks.0, (now / NANOSECONDS) as u64);
                note(marks.1, (now % NANOSECONDS) as u64);
            }
        }
        if let Some(function) = self.function(CLOCK_GETRES) {
            let marks = ask(function, 1);
            let mut resolution = Timespec::default();
            let _ = sys::clock_resolution(1, &mut resolution);
            note(marks.1, resolution.nanoseconds as u64);
        }
        // SAFETY: reserved for this, writable yet.
        unsafe { core::ptr::write_bytes(self.base as *mut u8, 0, self.data_len as usize) };
        for (offset, value) in &set[..count] {
            // In a time namespace two pages change places: each gets the same.
            for page in (0..self.data_len).step_by(PAGE as usize) {
                let at = self.base + page + offset % PAGE;
                // SAFETY: a whole word inside the data pages, see `offset_of`.
                unsafe { (at as *mut u64).write(*value) };
            }
        }
    }

    /// Every word says where it is. The low half is even, the upper one zero: a consistent state
    /// in which no clock is readable.
    fn put_marks(&self) {
        for offset in (0..self.data_len).step_by(8) {
            // SAFETY: inside the data pages, writable yet.
            unsafe { ((self.base + offset) as *mut u64).write(MARK + offset) };
        }
    }

    /// The offset in the data that a value read from it tells.
    fn offset_of(&self, mark: u64) -> Option<u64> {
        let offset = mark.checked_sub(MARK)?;
        (offset < self.data_len && offset % 8 == 0).then_some(offset)
    }

    /// A function of the copy.
    fn function(&self, name: &str) -> Option<u64> {
        let mut symbols = self.symbols.iter();
        let found = symbols.find(|symbol| crate::vdso::is_called(symbol.name_hash, name))?;
        let offset = found.address.checked_sub(self.start)?;
        (found.address < self.end).then(|| self.text() + offset)
    }
}

const MARK: u64 = 0x2000_0000;
const NANOSECONDS: i128 = 1_000_000_000;
const REALTIME_COARSE: u64 = 5;
const MONOTONIC_COARSE: u64 = 6;

/// Seconds and nanoseconds that `clock_gettime` or `clock_getres` at `function` gives.
fn ask(function: u64, clock: u64) -> (u64, u64) {
    let mut time = Timespec::default();
    // SAFETY: the kernel's function with this signature.
    let function: extern "C" fn(u64, *mut Timespec) -> i32 =
        unsafe { core::mem::transmute(function as *const ()) };
    function(clock, &raw mut time);
    (time.seconds as u64, time.nanoseconds as u64)
}

/// Where whoever stands at `address` of the old text goes on; `None` if there, or if it is the
/// first instruction of a function or none of its instructions.
pub fn moved(address: u64) -> Option<u64> {
    let [start, text, symbols, len] = PLACE.each_ref().map(|place| place.load(Ordering::Acquire));
    if text == 0 {
        return None;
    }
    // SAFETY: set once, from a slice of the operation list, which stays for as long as we run.
    let symbols = unsafe { core::slice::from_raw_parts(symbols as *const u8, len as usize) };
    let inside = Symbols::of(symbols).has_inside(address);
    inside.then(|| address - start + text)
}
