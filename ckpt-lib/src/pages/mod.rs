//! Pages: which parts of an address range have contents that must be kept.
//!
//! # What callers may rely on
//! Asking costs time in proportion to what is present, and no page tables grow: reserves of
//! terabytes that were never touched cost nothing.
//!
//! # What it does not do
//! It does not read contents. The huge page of zeros counts as contents, and so does, on kernels
//! before 6.7, the ordinary one: who reads pages sees that they are zero.

mod entries;

use crate::sys::pagemap::{self, FILE, GUARD, PRESENT, Question, SWAPPED, ZERO};
use crate::tracee::HostPid;
use std::fs::File;
use std::io;
use std::ops::Range;

/// Which pages are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKinds {
    /// Anonymous memory: present or swapped, and not the shared page of zeros.
    Anonymous,
    /// A private mapping of a file: only pages that the process has changed (they are anonymous now).
    PrivateFile,
    /// Shared memory: whatever is present or swapped in this process's tables.
    Shared,
}

/// Why pages could not be asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PagesError {
    /// The kernel refused.
    #[error("cannot ask which pages of process {pid} at {address:#x} have contents")]
    Pagemap {
        /// Which process.
        pid: i32,
        /// Where.
        address: u64,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// The parts of `range` (multiples of 4096) in process `pid` that have contents, in order, adjacent
/// ones joined. Guards (`MADV_GUARD_INSTALL`) have none: see [`guards`].
///
/// # Errors
/// [`PagesError::Pagemap`].
pub fn resident(
    pid: HostPid,
    range: Range<u64>,
    want: PageKinds,
) -> Result<Vec<Range<u64>>, PagesError> {
    PageTables::open(pid, range.start)?.resident(range, want)
}

/// The page tables of a process, to be asked more than once.
#[derive(Debug)]
pub struct PageTables {
    pid: HostPid,
    file: File,
}

impl PageTables {
    /// Opens those of a process; `address` is for the message.
    ///
    /// # Errors
    /// [`PagesError::Pagemap`].
    pub fn open(pid: HostPid, address: u64) -> Result<Self, PagesError> {
        let file = open(pid, address)?;
        Ok(PageTables { pid, file })
    }

    /// As [`resident`].
    ///
    /// # Errors
    /// [`PagesError::Pagemap`].
    pub fn resident(
        &self,
        range: Range<u64>,
        want: PageKinds,
    ) -> Result<Vec<Range<u64>>, PagesError> {
        let (mut all, mut at) = (vec![], range.start);
        while at < range.end {
            let (some, end) = self.some(at..range.end, want)?;
            some.into_iter().for_each(|range| join(&mut all, range));
            at = end;
        }
        Ok(all)
    }

    /// The same up to an address, which comes with it: some hundred ranges, or all on kernels before 6.7. None of them goes on behind
    /// that address.
    ///
    /// # Errors
    /// [`PagesError::Pagemap`].
    pub fn some(
        &self,
        range: Range<u64>,
        want: PageKinds,
    ) -> Result<(Vec<Range<u64>>, u64), PagesError> {
        let pid = self.pid;
        some_by(&self.file, range.clone(), want)
            .or_else(|error| {
                if is_unknown(&error) {
                    let all = entries::resident(pid, &self.file, range.clone(), want)?;
                    Ok((all, range.end))
                } else {
                    Err(error)
                }
            })
            .map_err(|source| wrong(pid, range.start, source))
    }
}

/// The parts of `range` that are guards (`MADV_GUARD_INSTALL`, Linux 6.13; told since 6.15).
///
/// # Errors
/// [`PagesError::Pagemap`].
pub fn guards(pid: HostPid, range: Range<u64>) -> Result<Vec<Range<u64>>, PagesError> {
    let file = open(pid, range.start)?;
    let mut found = vec![];
    let guards = Question {
        any_of: GUARD,
        ..Question::default()
    };
    match pagemap::scan(&file, range.clone(), guards, &mut |range| {
        join(&mut found, range);
    }) {
        Ok(()) => Ok(found),
        Err(error) if is_unknown(&error) => Ok(vec![]),
        Err(source) => Err(wrong(pid, range.start, source)),
    }
}

/// Whether this kernel may have guards in a mapping whose flags do not say so: 6.13 to 6.17 (of which 6.13 and 6.14 do not tell
/// them either).
#[must_use]
pub fn guards_have_no_flag() -> bool {
    let release = nix::sys::utsname::uname();
    let release = release
        .as_ref()
        .map(|name| name.release().to_string_lossy());
    release.is_ok_and(|release| is_without_flag(&release))
}

fn is_without_flag(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next()?.parse::<u32>().ok();
    matches!((number(), number()), (Some(6), Some(13..=17)))
}

fn some_by(file: &File, range: Range<u64>, want: PageKinds) -> io::Result<(Vec<Range<u64>>, u64)> {
    let none_of = match want {
        PageKinds::Anonymous => ZERO,
        PageKinds::PrivateFile => ZERO | FILE,
        PageKinds::Shared => 0,
    };
    let scan = |none_of| {
        let contents = Question {
            any_of: PRESENT | SWAPPED,
            none_of,
            ..Question::default()
        };
        let (mut found, mut at) = (vec![], range.start);
        while at < range.end {
            let mut keep = |range| join(&mut found, range);
            at = pagemap::scan_some(file, at..range.end, contents, &mut keep)?;
            // The last one may go on: it is asked for again, unless it is the only one.
            match found.last().cloned() {
                Some(last) if last.end < at => break,
                Some(last) if found.len() > 1 && at < range.end => {
                    found.pop();
                    at = last.start;
                    break;
                }
                _ => {}
            }
        }
        Ok((found, at))
    };
    // A kernel that does not know guards refuses the question, and has none (or, 6.13 and 6.14, has
    // them and shows them as swapped: reading those pages fails, and so does the checkpoint).
    scan(none_of | GUARD).or_else(|error: io::Error| {
        if error.raw_os_error() == Some(libc::EINVAL) {
            scan(none_of)
        } else {
            Err(error)
        }
    })
}

/// `PAGEMAP_SCAN` is not there (before 6.7, or denied by a filter), or not with this question.
fn is_unknown(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOTTY | libc::EINVAL | libc::ENOSYS | libc::EPERM)
    )
}

fn open(pid: HostPid, address: u64) -> Result<File, PagesError> {
    File::open(format!("/proc/{}/pagemap", pid.0)).map_err(|source| wrong(pid, address, source))
}

fn wrong(pid: HostPid, address: u64, source: io::Error) -> PagesError {
    PagesError::Pagemap {
        pid: pid.0,
        address,
        source,
    }
}

/// Appends a range, joined with the last if adjacent.
fn join(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More runs than are told at once, here and there two of different kinds side by side.
    #[test]
    fn many_runs_are_told_some_at_a_time() {
        const PAGE: usize = 4096;
        let mut memory = memmap2::MmapMut::map_anon(4000 * PAGE).expect("maps");
        memory
            .advise(memmap2::Advice::NoHugePage)
            .expect("is advised");
        let start = memory.as_ptr() as u64;
        for page in (0..4000).filter(|page| page % 3 != 1) {
            memory[page * PAGE] = 1;
        }
        let pid = HostPid(i32::try_from(std::process::id()).expect("pid"));
        let tables = PageTables::open(pid, start).expect("pagemap");
        let (mut told, mut at, mut times) = (vec![], start, 0);
        let end = start + memory.len() as u64;
        while at < end {
            let (some, up_to) = tables.some(at..end, PageKinds::Anonymous).expect("is told");
            assert!(
                up_to > at
                    && some
                        .iter()
                        .all(|range| at <= range.start && range.end <= up_to)
            );
            told.extend(some);
            (at, times) = (up_to, times + 1);
        }
        let page = |number: u64| start + number * PAGE as u64;
        let all = (0..4000).filter(|number| number % 3 != 1);
        let mut expected = vec![];
        all.for_each(|number| join(&mut expected, page(number)..page(number + 1)));
        assert_eq!(told, expected);
        let whole = tables.resident(start..end, PageKinds::Anonymous);
        assert_eq!(whole.expect("is told"), expected);
        println!("told {times} times");
    }

    #[test]
    fn kernels_that_hide_guards_are_known_by_their_release() {
        for (release, hides) in [
            ("6.12.9", false),
            ("6.13.0-rc1", true),
            ("6.17", true),
            ("6.18.44-fc-v782", false),
            ("5.15.0", false),
            ("7.14.0", false),
            ("", false),
        ] {
            assert_eq!(is_without_flag(release), hides, "{release}");
        }
    }
}
