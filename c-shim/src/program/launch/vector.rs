//! What lies on a program's stack when it begins (System V ABI for x86-64, 3.4.1).
//!
//! ```text
//! rsp -> argc  argv[0] ... 0  envp[0] ... 0  (auxv type, value) ... (0, 0)
//! ```

use core::ffi::{CStr, c_char};

/// `AT_…` (getauxval(3)).
pub(super) mod aux {
    pub(crate) const PHDR: u64 = 3;
    pub(crate) const PHNUM: u64 = 5;
    pub(crate) const BASE: u64 = 7;
    pub(crate) const ENTRY: u64 = 9;
    pub(crate) const EXECFN: u64 = 31;
    pub(crate) const SYSINFO_EHDR: u64 = 33;
}

/// The words on the stack.
pub(super) struct Vector {
    at: *mut u64,
}

/// More words than there can ever be room for before it.
const MOST_NEW: usize = 64;

impl Vector {
    /// # Safety
    /// `at` is where the kernel has put them; below it, [`Vector::ROOM`] bytes are free.
    pub(super) unsafe fn new(at: *mut u64) -> Self {
        Vector { at }
    }

    /// Bytes below it that must be free.
    pub(super) const ROOM: usize = 8 * (MOST_NEW + 2);

    fn word(&self, index: usize) -> u64 {
        // SAFETY: only words up to the end of the auxiliary vector are asked for.
        unsafe { self.at.wrapping_add(index).read() }
    }

    fn set(&self, index: usize, word: u64) {
        // SAFETY: as in `word`, or in the room before.
        unsafe { self.at.wrapping_add(index).write(word) };
    }

    fn count(&self) -> usize {
        self.word(0) as usize
    }

    fn string(&self, index: usize) -> Option<&'static CStr> {
        let at = self.word(index) as *const c_char;
        if at.is_null() {
            return None;
        }
        // SAFETY: the kernel has put strings there, which stay.
        Some(unsafe { CStr::from_ptr(at) })
    }

    /// The program's first argument.
    pub(super) fn first(&self) -> Option<&'static CStr> {
        (self.count() > 0).then(|| self.string(1)).flatten()
    }

    /// A variable's value.
    pub(super) fn variable(&self, name: &[u8]) -> Option<&'static [u8]> {
        let begin = self.count() + 2;
        let entries = (begin..).map_while(|index| self.string(index));
        let mut values = entries.filter_map(|entry| {
            let rest = entry.to_bytes().strip_prefix(name)?;
            rest.strip_prefix(b"=")
        });
        values.next()
    }

    fn auxiliary(&self) -> usize {
        let begin = self.count() + 2;
        let variables = (begin..).take_while(|index| self.word(*index) != 0).count();
        begin + variables + 1
    }

    /// Words up to the end of the auxiliary vector.
    fn len(&self) -> usize {
        let pairs = (self.auxiliary()..).step_by(2);
        pairs
            .take_while(|at| self.word(*at) != 0)
            .last()
            .unwrap_or(0)
            + 4
    }

    /// A value of the auxiliary vector.
    pub(super) fn auxiliary_value(&self, kind: u64) -> Option<u64> {
        let pairs = (self.auxiliary()..).step_by(2);
        let mut kinds = pairs.take_while(|at| self.word(*at) != 0);
        let at = kinds.find(|at| self.word(*at) == kind)?;
        Some(self.word(at + 1))
    }

    /// Sets values of the auxiliary vector that are there.
    pub(super) fn set_auxiliary(&self, values: &[(u64, u64)]) {
        for at in (self.auxiliary()..)
            .step_by(2)
            .take_while(|at| self.word(*at) != 0)
        {
            if let Some((_, value)) = values.iter().find(|(kind, _)| *kind == self.word(at)) {
                self.set(at + 1, *value);
            }
        }
    }

    /// Puts other words in the first argument's place, the last one first. False if there are too many.
    pub(super) fn replace_first<'a>(
        &mut self,
        last_first: impl Iterator<Item = &'a CStr> + Clone,
    ) -> bool {
        let new = last_first.clone().count();
        if new == 0 {
            return true;
        }
        let had = self.count().min(1);
        let more = new - had;
        if more > MOST_NEW {
            return false;
        }
        let len = self.len();
        // The stack is aligned to 16 bytes.
        let shift = more.next_multiple_of(2);
        let rest = 1 + had;
        let count = self.word(0);
        let to = self.at.wrapping_sub(shift);
        let (from, behind) = (self.at.wrapping_add(rest), to.wrapping_add(1 + new));
        // SAFETY: there is room before, and what is moved ends with the auxiliary vector.
        unsafe { core::ptr::copy(from, behind, len - rest) };
        self.at = to;
        self.set(0, count + more as u64);
        for (index, word) in last_first.enumerate() {
            self.set(new - index, word.as_ptr() as u64);
        }
        true
    }

    /// Where it begins.
    pub(super) fn start(&self) -> u64 {
        self.at as u64
    }
}
