//! `/proc/PID/maps` and `smaps`: the mappings of a process.

use super::text::{ParseError, decimal, hexadecimal, key_value, lines, words};
use std::collections::HashMap;
use std::sync::Arc;

/// A line of `maps`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapsLine {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// `r`, `w`, `x` as `PROT_READ | PROT_WRITE | PROT_EXEC`.
    pub prot: u32,
    /// `s` instead of `p`.
    pub shared: bool,
    /// Offset in the file.
    pub offset: u64,
    /// Device of the file as the kernel numbers it: major, minor.
    pub device: (u32, u32),
    /// Inode number.
    pub inode: u64,
    /// Path or bracketed name, as written: a newline in it is `\012`, and " (deleted)" may follow.
    pub name: Vec<u8>,
}

/// Two-letter codes of `VmFlags`.
pub(super) type VmCodes = Arc<[[u8; 2]]>;

/// A mapping as `smaps` describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SmapsEntry {
    /// Its first line.
    pub line: MapsLine,
    /// Size of its pages.
    pub page_kib: u64,
    /// KiB of it that are swapped out.
    pub swap_kib: u64,
    /// Protection key.
    pub pkey: u32,
    /// Two-letter codes of `VmFlags`, in order; most mappings of a process share them.
    pub vm_flags: VmCodes,
}

/// Reads `maps`.
///
/// # Errors
/// The first line that makes no sense.
pub fn parse_maps(bytes: &[u8]) -> Result<Vec<MapsLine>, ParseError> {
    lines(bytes).map(parse_line).collect()
}

/// Reads `smaps`, line by line: it is some hundred bytes for each mapping.
#[derive(Debug, Default)]
pub(super) struct SmapsReader {
    /// The mapping whose lines are being read.
    current: Option<SmapsEntry>,
    /// `VmFlags` as written → read.
    codes: HashMap<Vec<u8>, VmCodes>,
}

impl SmapsReader {
    /// Reads the next line, which may have its end. The mapping before, if that is complete now.
    pub(super) fn line(&mut self, line: &[u8]) -> Result<Option<SmapsEntry>, ParseError> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        if line.first().is_some_and(u8::is_ascii_uppercase) {
            let entry = self.current.as_mut();
            let entry =
                entry.ok_or_else(|| ParseError::new("a mapping before its attributes", line))?;
            attribute(entry, line, &mut self.codes)?;
            return Ok(None);
        }
        Ok(self.current.replace(SmapsEntry {
            line: parse_line(line)?,
            ..SmapsEntry::default()
        }))
    }

    /// The last mapping.
    pub(super) fn last(self) -> Option<SmapsEntry> {
        self.current
    }
}

/// Reads all of it.
#[cfg(test)]
pub(crate) fn parse_smaps(bytes: &[u8]) -> Result<Vec<SmapsEntry>, ParseError> {
    let mut reader = SmapsReader::default();
    let mut entries = vec![];
    for line in lines(bytes) {
        entries.extend(reader.line(line)?);
    }
    entries.extend(reader.last());
    Ok(entries)
}

fn attribute(
    entry: &mut SmapsEntry,
    line: &[u8],
    codes: &mut HashMap<Vec<u8>, VmCodes>,
) -> Result<(), ParseError> {
    let (key, value) =
        key_value(line).ok_or_else(|| ParseError::new("an attribute of a mapping", line))?;
    let number = |what| decimal(what, words(value).next().unwrap_or_default());
    match key {
        b"KernelPageSize" => entry.page_kib = number("a page size")?,
        b"Swap" => entry.swap_kib = number("swapped KiB")?,
        b"ProtectionKey" => {
            entry.pkey = u32::try_from(number("a protection key")?)
                .map_err(|_| ParseError::new("a protection key", value))?;
        }
        b"VmFlags" => {
            if let Some(read) = codes.get(value) {
                entry.vm_flags = read.clone();
                return Ok(());
            }
            entry.vm_flags = words(value)
                .map(|code| {
                    code.try_into()
                        .map_err(|_| ParseError::new("a VmFlag", code))
                })
                .collect::<Result<_, _>>()?;
            codes.insert(value.to_vec(), entry.vm_flags.clone());
        }
        _ => {}
    }
    Ok(())
}

fn parse_line(line: &[u8]) -> Result<MapsLine, ParseError> {
    let wrong = |what| ParseError::new(what, line);
    let mut rest = line;
    let mut word = |what| {
        let end = rest.iter().position(|byte| *byte == b' ');
        let (word, tail) = match end {
            Some(end) => (&rest[..end], &rest[end + 1..]),
            None => (rest, &rest[rest.len()..]),
        };
        rest = tail;
        if word.is_empty() {
            Err(wrong(what))
        } else {
            Ok(word)
        }
    };
    let (start, end) = split(word("an address range")?, b'-').ok_or(wrong("an address range"))?;
    let permissions = word("permissions")?;
    let offset = word("an offset")?;
    let (major, minor) = split(word("a device")?, b':').ok_or(wrong("a device"))?;
    let inode = word("an inode")?;
    let name = rest.trim_ascii_start();
    let [r, w, x, share] = permissions else {
        return Err(wrong("four permissions"));
    };
    let mut prot = 0;
    for (found, letter, bit) in [
        (r, b'r', libc::PROT_READ),
        (w, b'w', libc::PROT_WRITE),
        (x, b'x', libc::PROT_EXEC),
    ] {
        if *found == letter {
            prot |= bit as u32;
        } else if *found != b'-' {
            return Err(wrong("four permissions"));
        }
    }
    let small = |word| {
        u32::try_from(hexadecimal("a device", word)?).map_err(|_| ParseError::new("a device", word))
    };
    let parsed = MapsLine {
        start: hexadecimal("an address", start)?,
        end: hexadecimal("an address", end)?,
        prot,
        shared: match share {
            b's' => true,
            b'p' => false,
            _ => return Err(wrong("four permissions")),
        },
        offset: hexadecimal("an offset", offset)?,
        device: (small(major)?, small(minor)?),
        inode: decimal("an inode", inode)?,
        name: name.to_vec(),
    };
    if parsed.start >= parsed.end {
        return Err(wrong("a range that is not empty"));
    }
    Ok(parsed)
}

fn split(word: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let index = word.iter().position(|byte| *byte == at)?;
    Some((&word[..index], &word[index + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_lines_read_right() {
        let text = b"7f28808ef000-7f28808f1000 rw-p 001d3000 fe:00 326279                     /usr/lib/a b (deleted)\n\
            7f28808f1000-7f28808fe000 r-xs 00000000 00:00 0 \n\
            ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n";
        let lines = parse_maps(text).expect("parses");
        assert_eq!(lines[0].name, b"/usr/lib/a b (deleted)");
        assert_eq!(lines[0].device, (0xfe, 0));
        assert_eq!((lines[0].inode, lines[0].offset), (326_279, 0x1d_3000));
        assert_eq!(lines[0].prot, 3);
        assert!(lines[1].shared && lines[1].prot == 5 && lines[1].name.is_empty());
        assert_eq!(lines[2].end, 0xffff_ffff_ff60_1000);
    }

    #[test]
    fn attributes_belong_to_the_mapping_above() {
        let text = b"1000-2000 rw-p 00000000 00:00 0                  [stack]\n\
            Size:                132 kB\nKernelPageSize:        4 kB\nSwap:  8 kB\n\
            ProtectionKey:         2\nVmFlags: rd wr mr mw me gd ac \n\
            2000-3000 ---p 00000000 00:00 0 \nKernelPageSize:  2048 kB\nVmFlags: mr mw me de ht \n";
        let entries = parse_smaps(text).expect("parses");
        assert_eq!(entries[0].vm_flags.len(), 7);
        assert_eq!(
            (entries[0].pkey, entries[0].swap_kib, entries[0].page_kib),
            (2, 8, 4)
        );
        assert_eq!(entries[1].page_kib, 2048);
        assert_eq!(entries[1].vm_flags[3], *b"de");
    }

    #[test]
    fn nonsense_is_an_error() {
        for text in [
            "2000-1000 rw-p 00000000 00:00 0",
            "1000-2000 rwxq 00000000 00:00 0",
            "1000-2000 rw-p 0 00:00",
            "1000 rw-p 0 00:00 0",
            "VmFlags: rd",
            "1000-2000 rw-p 0 0:0 0\nVmFlags: rdx",
        ] {
            assert!(parse_smaps(text.as_bytes()).is_err(), "{text}");
        }
    }
}
