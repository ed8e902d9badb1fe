//! The older way: `/proc/PID/pagemap` as a file of one 64-bit entry per page.
//!
//! Reading entries of what was never touched grows no page tables, but takes time: 8 bytes per page.
//! So a large mapping is read only until everything that `smaps` counts in it has been found. What
//! cannot be told from the page of zeros (it is mapped by others, too) is kept but not counted, so
//! nothing is ever left out. Nor is it by khugepaged, which makes huge pages of small ones and holes while a job stands still
//! (mm/khugepaged.c, `collapse_huge_page`): where `smaps` counts more afterwards, all is read. What is filled up behind that is zeros.

use super::{PageKinds, join};
use crate::tracee::HostPid;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

const PAGE: u64 = 4096;
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// A page of a file or of shared memory.
const FILE: u64 = 1 << 61;
const GUARD: u64 = 1 << 58;
const EXCLUSIVE: u64 = 1 << 56;
/// Above this, `smaps` is asked first.
const LARGE: u64 = 1 << 30;

pub(super) fn resident(
    pid: HostPid,
    pagemap: &File,
    range: Range<u64>,
    want: PageKinds,
) -> io::Result<Vec<Range<u64>>> {
    let mut found = vec![];
    if range.end - range.start <= LARGE {
        read(pagemap, range, want, u64::MAX, &mut found)?;
        return Ok(found);
    }
    let counted = || -> io::Result<Vec<(Range<u64>, u64)>> {
        let smaps = std::fs::read_to_string(format!("/proc/{}/smaps", pid.0))?;
        let mut counted = counts(&smaps);
        counted.retain(|(mapping, _)| mapping.start < range.end && range.start < mapping.end);
        Ok(counted)
    };
    let before = counted()?;
    for (mapping, pages) in &before {
        let part = mapping.start.max(range.start)..mapping.end.min(range.end);
        // A part of a mapping may hold fewer pages than the whole: then it is read to its end.
        read(pagemap, part, want, *pages, &mut found)?;
    }
    if has_grown(&before, &counted()?) {
        found.clear();
        read(pagemap, range, want, u64::MAX, &mut found)?;
    }
    Ok(found)
}

/// Whether any mapping has more pages than before.
fn has_grown(before: &[(Range<u64>, u64)], now: &[(Range<u64>, u64)]) -> bool {
    before.iter().zip(now).any(|(before, now)| now.1 > before.1)
}

/// Reads entries until `enough` pages that surely have contents were seen.
fn read(
    pagemap: &File,
    range: Range<u64>,
    want: PageKinds,
    enough: u64,
    found: &mut Vec<Range<u64>>,
) -> io::Result<()> {
    let mut buf = vec![0; 1 << 19];
    let mut address = range.start;
    let mut seen = 0;
    while address < range.end && seen < enough {
        let pages = ((range.end - address) / PAGE).min((buf.len() / 8) as u64);
        let part = &mut buf[..pages as usize * 8];
        pagemap.read_exact_at(part, address / PAGE * 8)?;
        for raw in part.as_chunks::<8>().0 {
            let entry = u64::from_le_bytes(*raw);
            let has = entry & (PRESENT | SWAPPED) != 0 && entry & GUARD == 0;
            let wanted = match want {
                PageKinds::PrivateFile => entry & FILE == 0,
                PageKinds::Anonymous | PageKinds::Shared => true,
            };
            if has && wanted {
                join(found, address..address + PAGE);
            }
            if has && (entry & (SWAPPED | EXCLUSIVE) != 0) {
                seen += 1;
            }
            address += PAGE;
        }
    }
    Ok(())
}

/// Each mapping with the number of pages that `Rss:` and `Swap:` count in it.
fn counts(smaps: &str) -> Vec<(Range<u64>, u64)> {
    let mut counts: Vec<(Range<u64>, u64)> = vec![];
    for line in smaps.lines() {
        let kib = |name: &str| {
            let text = line.strip_prefix(name)?.trim().strip_suffix("kB")?;
            text.trim().parse::<u64>().ok()
        };
        if let Some(kib) = kib("Rss:").or_else(|| kib("Swap:")) {
            if let Some((_, pages)) = counts.last_mut() {
                *pages += kib / 4;
            }
            continue;
        }
        let bounds = line.split(' ').next().and_then(|word| word.split_once('-'));
        let parse = |text| u64::from_str_radix(text, 16).ok();
        if let Some((start, end)) = bounds.and_then(|(s, e)| Some((parse(s)?, parse(e)?))) {
            counts.push((start..end, 0));
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaps_is_counted() {
        let text = "1000-3000 rw-p 00000000 00:00 0 \n\
            Size:                  8 kB\nRss:                   8 kB\nSwap:                  4 kB\n\
            SwapPss:               4 kB\nVmFlags: rd wr\n\
            5000-6000 r--p 00000000 00:00 0 [x]\nRss:                   0 kB\n";
        assert_eq!(counts(text), [(0x1000..0x3000, 3), (0x5000..0x6000, 0)]);
    }

    #[test]
    fn what_has_grown_meanwhile_is_read_again() {
        let counted = |pages: [u64; 2]| [(0x1000..0x9000, pages[0]), (0x9000..0xa000, pages[1])];
        assert!(has_grown(&counted([3, 0]), &counted([3, 1])));
        assert!(!has_grown(&counted([3, 1]), &counted([3, 1])));
        // Others may take pages of files out of memory.
        assert!(!has_grown(&counted([3, 1]), &counted([2, 1])));
    }

    #[test]
    fn both_ways_find_ones_own_pages() {
        let len = 64 * PAGE as usize;
        let mut memory = vec![0u8; len + PAGE as usize];
        let start = (memory.as_ptr() as u64).next_multiple_of(PAGE);
        let skip = (start - memory.as_ptr() as u64) as usize;
        for page in [3, 4, 9] {
            memory[skip + page * PAGE as usize] = 1;
        }
        let pid = HostPid(i32::try_from(std::process::id()).expect("pid"));
        let range = start..start + len as u64;
        let file = File::open("/proc/self/pagemap").expect("pagemap");
        let entries = resident(pid, &file, range.clone(), PageKinds::Anonymous).expect("entries");
        let asked = super::super::resident(pid, range, PageKinds::Anonymous).expect("scan");
        for page in [3, 9] {
            let address = start + page * PAGE;
            assert!(asked.iter().any(|range| range.contains(&address)));
        }
        assert_eq!(entries, asked);
        assert!(memory[skip] == 0);
    }
}
