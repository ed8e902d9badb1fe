//! The ELF core file: headers, notes, then the bytes of memory, each segment on a page.

use super::segments::{Segment, SegmentReader, ranges_of, segments};
use super::{Contents, ExportError, notes};
use loader::layout::PAGE;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const ET_CORE: u16 = 4;
const EM_X86_64: u16 = 62;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const EHDR_LEN: u64 = 64;
const PHDR_LEN: u64 = 56;
const SHDR_LEN: u64 = 64;
/// In `e_phnum`: the true number is in the first section header's `sh_info`.
const PN_XNUM: u16 = 0xffff;
/// Bytes read and written at once.
const BLOCK: usize = 1 << 20;

/// Writes the memory and threads of process `pid` of an image (`None`: its first process) as an
/// ELF core, in which gdb shows every thread.
///
/// # Errors
/// [`ExportError`]; nothing is left under the name `out` that was not there before.
pub fn core(contents: &dyn Contents, pid: Option<u32>, out: &Path) -> Result<(), ExportError> {
    let processes = &contents.snapshot().processes;
    let found = processes
        .iter()
        .position(|process| pid.is_none_or(|pid| process.pid == pid));
    let index = found.ok_or(ExportError::NoProcess {
        pid: pid.unwrap_or(0),
        has: processes.iter().map(|process| process.pid).collect(),
    })?;
    let mut name = out.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".partial-{}", std::process::id()));
    let partial = out.with_file_name(name);
    // Errors are about the file that was asked for, whatever it is called until it is whole.
    let failed = |source: io::Error| ExportError::Write {
        path: out.to_owned(),
        source,
    };
    let written = write_core(contents, index, &partial, &failed)
        .and_then(|()| fs::rename(&partial, out).map_err(failed));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&partial);
    }
    written
}

fn write_core(
    contents: &dyn Contents,
    index: usize,
    path: &Path,
    failed: &dyn Fn(io::Error) -> ExportError,
) -> Result<(), ExportError> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(failed)?;
    let snapshot = contents.snapshot();
    let process = &snapshot.processes[index];
    let index = index as u32;
    let notes = notes::notes(snapshot, process);
    let own = ranges_of(contents, index)?;
    let segments = segments(contents, index, &own);
    let head = Head::new(&segments, notes.len() as u64);
    file.write_all(&head.bytes).map_err(failed)?;
    file.write_all(&notes).map_err(failed)?;

    let reader = SegmentReader::new(contents, index, &own);
    let mut block = vec![0; BLOCK];
    for (segment, offset) in segments.iter().zip(&head.offsets) {
        if !segment.filled {
            continue;
        }
        let mapping = &process.memory.mappings[segment.mapping];
        let mut at = segment.range.start;
        while at < segment.range.end {
            let len = (segment.range.end - at).min(BLOCK as u64) as usize;
            let block = &mut block[..len];
            if reader.read(mapping, at, block)? {
                let place = offset + (at - segment.range.start);
                write_sparsely(&file, block, place).map_err(failed)?;
            }
            at += len as u64;
        }
    }
    file.set_len(head.end).map_err(failed)?;
    file.sync_all().map_err(failed)
}

/// Writes what is not zero; pages of zeros stay holes.
fn write_sparsely(file: &File, block: &[u8], offset: u64) -> io::Result<()> {
    let mut from = 0;
    let pages = block.chunks(PAGE as usize).enumerate();
    for (number, page) in pages {
        let at = number * PAGE as usize;
        if page.iter().all(|byte| *byte == 0) {
            file.write_all_at(&block[from..at], offset + from as u64)?;
            from = at + page.len();
        }
    }
    file.write_all_at(&block[from..], offset + from as u64)
}

/// ELF header, program headers, and the section header that a large number of segments needs.
struct Head {
    bytes: Vec<u8>,
    /// File offset of each segment.
    offsets: Vec<u64>,
    /// Length of the file.
    end: u64,
}

impl Head {
    fn new(segments: &[Segment], notes_len: u64) -> Self {
        let count = segments.len() as u64 + 1;
        let many = count >= u64::from(PN_XNUM);
        let sections_at = EHDR_LEN + count * PHDR_LEN;
        let notes_at = sections_at + if many { SHDR_LEN } else { 0 };
        let mut bytes = Vec::with_capacity(notes_at as usize);
        bytes.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
        bytes.extend([ET_CORE, EM_X86_64].into_iter().flat_map(u16::to_le_bytes));
        bytes.extend(1u32.to_le_bytes());
        let sections_at = if many { sections_at } else { 0 };
        let places = [0, EHDR_LEN, sections_at];
        bytes.extend(places.into_iter().flat_map(u64::to_le_bytes));
        bytes.extend(0u32.to_le_bytes());
        let phnum = if many { PN_XNUM } else { count as u16 };
        let (shentsize, shnum) = if many { (SHDR_LEN as u16, 1) } else { (0, 0) };
        let counts = [EHDR_LEN as u16, PHDR_LEN as u16, phnum, shentsize, shnum, 0];
        bytes.extend(counts.into_iter().flat_map(u16::to_le_bytes));

        let mut header = |kind: u32, flags: u32, words: [u64; 6]| {
            bytes.extend([kind, flags].into_iter().flat_map(u32::to_le_bytes));
            bytes.extend(words.into_iter().flat_map(u64::to_le_bytes));
        };
        header(PT_NOTE, 0, [notes_at, 0, 0, notes_len, 0, 4]);
        let mut at = (notes_at + notes_len).next_multiple_of(PAGE);
        let mut offsets = vec![];
        for segment in segments {
            let len = segment.range.end - segment.range.start;
            let in_file = if segment.filled { len } else { 0 };
            let place = [at, segment.range.start, 0, in_file, len, PAGE];
            header(PT_LOAD, elf_flags(segment.prot), place);
            offsets.push(at);
            at += in_file;
        }
        if many {
            // sh_size, sh_link, sh_info of an otherwise empty section header: 1 and the true number.
            let mut section = [0; SHDR_LEN as usize];
            section[32..40].copy_from_slice(&1u64.to_le_bytes());
            section[44..48].copy_from_slice(&(count as u32).to_le_bytes());
            bytes.extend(section);
        }
        Head {
            bytes,
            offsets,
            end: at,
        }
    }
}

/// PROT_READ, WRITE, EXEC are 1, 2, 4; PF_R, PF_W, PF_X are 4, 2, 1.
fn elf_flags(prot: u32) -> u32 {
    (prot & 1) << 2 | prot & 2 | (prot >> 2) & 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Mapping, MappingKind, Process, SnapshotV1, Thread};
    use goblin::elf::Elf;
    use loader::layout::Space;
    use std::ops::Range;

    /// One page of sevens at 0x10000 within a reserve of 1 TiB.
    struct Reserve(SnapshotV1);

    impl Reserve {
        fn new(mappings: usize) -> Self {
            let mapping = |number: usize| Mapping {
                start: 0x1_0000 + ((number as u64) << 41),
                end: 0x1_0000 + ((number as u64) << 41) + (1 << 40),
                prot: 5,
                kind: MappingKind::Anonymous { huge_shift: 0 },
                flags: 0,
                pkey: 0,
                name: Default::default(),
            };
            let mut process = Process {
                pid: 7,
                threads: vec![Thread::default()],
                ..Process::default()
            };
            process.memory.mappings = (0..mappings).map(mapping).collect();
            Reserve(SnapshotV1 {
                processes: vec![process],
                ..SnapshotV1::default()
            })
        }
    }

    impl Contents for Reserve {
        fn snapshot(&self) -> &SnapshotV1 {
            &self.0
        }
        fn ranges(&self, _: Space) -> Result<Vec<Range<u64>>, crate::export::ContentsError> {
            Ok(std::iter::once(0x1_0000..0x1_1000).collect())
        }
        fn read(
            &self,
            _: Space,
            _: u64,
            buf: &mut [u8],
        ) -> Result<(), crate::export::ContentsError> {
            buf.fill(7);
            Ok(())
        }
    }

    #[test]
    fn a_reserve_of_a_terabyte_costs_nothing() {
        let directory = tempfile::tempdir().expect("directory");
        let out = directory.path().join("core");
        core(&Reserve::new(1), None, &out).expect("core");
        let bytes = fs::read(&out).expect("read");
        assert!(bytes.len() < 1 << 20);
        let elf = Elf::parse(&bytes).expect("elf");
        let loads: Vec<_> = elf.program_headers[1..].iter().collect();
        assert_eq!(loads[0].p_vaddr, 0x1_0000);
        assert_eq!(loads[0].p_flags, 5);
        let at = loads[0].p_offset as usize;
        assert_eq!(&bytes[at..at + 2], [7, 7]);
        assert_eq!(loads.iter().map(|load| load.p_memsz).sum::<u64>(), 1 << 40);
    }

    #[test]
    fn more_segments_than_sixteen_bits_can_count() {
        let segment = |number: usize| Segment {
            range: number as u64 * 0x2000..number as u64 * 0x2000 + 0x1000,
            prot: 1,
            filled: true,
            mapping: number,
        };
        let segments: Vec<_> = (0..70_000).map(segment).collect();
        let head = Head::new(&segments, 100);
        assert_eq!(head.bytes[56..58], [0xff, 0xff]);
        let section = EHDR_LEN as usize + 70_001 * PHDR_LEN as usize;
        assert_eq!(
            head.bytes[section + 44..section + 48],
            70_001u32.to_le_bytes()
        );
        assert_eq!(head.bytes.len(), section + SHDR_LEN as usize);
    }

    #[test]
    fn a_process_that_is_not_there_is_named() {
        let out = Path::new("/nonexistent/core");
        let error = core(&Reserve::new(1), Some(8), out).expect_err("no process 8");
        assert!(error.to_string().contains('8'));
        let error = core(&Reserve::new(1), Some(7), out).expect_err("no directory");
        assert!(matches!(error, ExportError::Write { .. }));
    }
}
