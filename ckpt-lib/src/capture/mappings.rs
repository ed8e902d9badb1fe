//! The mappings of a process, and which of their contents are to be read from where.
//!
//! `smaps`, the only text that tells the flags of mappings, takes the kernel 17 ms for each GiB.
//! So it is read before the job is stopped; while it is, only `maps` is, and a line that is the
//! same keeps its flags. What is new gets its flags from the picture afterwards
//! ([`super::Captured::verify_mappings`]).

use super::inodes::{Inodes, MemoryPiece};
use super::refusal::Refusals;
use super::subject::Subject;
use super::vm_flags::{VmFlags, vm_flags};
use crate::procfs::{MapsLine, SmapsEntry};
use crate::shown;
use crate::snapshot::{
    ContentCheck, InodeId, InodeKind, InodeRecord, KernelPath, Mapping, MappingKind, mapping_flags,
};
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

/// Addresses whose contents belong to a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// The addresses.
    pub addresses: Range<u64>,
    /// Not in the picture, or not as they are: to be copied before the job goes on.
    pub while_frozen: bool,
    /// A private mapping of a file: only pages that the job has changed have contents of their own.
    pub only_changed: bool,
}

/// A mapping; one that has come since its flags were read has none yet.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) entry: SmapsEntry,
}

/// Joins what is mapped now with the flags read before. `None` if flags that must be known while
/// the job is stopped are not.
pub(super) fn join(now: Vec<MapsLine>, before: Vec<SmapsEntry>) -> Option<Vec<Found>> {
    let mut before = before.into_iter().peekable();
    let mut found = vec![];
    for line in now {
        while before
            .next_if(|entry| entry.line.start < line.start)
            .is_some()
        {}
        match before.next_if(|entry| entry.line == line) {
            Some(entry) => found.push(Found { entry }),
            None if line.shared || line.name.starts_with(b"/anon_hugepage") => return None,
            None => found.push(Found {
                entry: SmapsEntry {
                    line,
                    page_kib: 4,
                    ..SmapsEntry::default()
                },
            }),
        }
    }
    Some(found)
}

/// What a line of `maps` is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Class {
    /// Left out.
    Vsyscall,
    Kernel(MappingKind),
    Anonymous(KernelPath),
    SharedAnonymous(KernelPath),
    HugeAnonymous,
    SharedHuge,
    MemFd(Vec<u8>),
    File,
}

fn classify(line: &MapsLine) -> Result<Class, String> {
    let name = line.name.as_slice();
    let within = |prefix: &[u8]| {
        let rest = name.strip_prefix(prefix)?;
        rest.strip_suffix(b"]").map(KernelPath::from)
    };
    match name {
        b"[vsyscall]" => return Ok(Class::Vsyscall),
        b"[vdso]" => return Ok(Class::Kernel(MappingKind::Vdso)),
        b"[vvar]" => return Ok(Class::Kernel(MappingKind::Vvar)),
        b"[vvar_vclock]" => return Ok(Class::Kernel(MappingKind::VvarVclock)),
        b"[uprobes]" => return Err("a probe (uprobe) is set in it".into()),
        _ => {}
    }
    if let Some(name) = within(b"[anon:") {
        return Ok(Class::Anonymous(name));
    }
    if let Some(name) = within(b"[anon_shmem:") {
        return Ok(Class::SharedAnonymous(name));
    }
    if name == b"/dev/zero" && !line.shared {
        return Ok(Class::Anonymous(KernelPath::default()));
    }
    if name == b"/dev/zero (deleted)" && line.shared {
        return Ok(Class::SharedAnonymous(KernelPath::default()));
    }
    if name.starts_with(b"/anon_hugepage") {
        return Ok(match line.shared {
            true => Class::SharedHuge,
            false => Class::HugeAnonymous,
        });
    }
    if let Some(name) = name.strip_prefix(b"/memfd:") {
        let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
        return Ok(Class::MemFd(name.to_vec()));
    }
    let text = String::from_utf8_lossy(name);
    if name.starts_with(b"/SYSV") {
        return Err("System V shared memory cannot be carried".into());
    }
    if name.starts_with(b"/[aio]") {
        return Err("a ring of asynchronous I/O (io_setup) cannot be carried".into());
    }
    if name.starts_with(b"/secretmem") {
        return Err("secret memory cannot be carried".into());
    }
    if name.starts_with(b"anon_inode:") {
        return Err(format!("{text} cannot be carried"));
    }
    let plain = name.is_empty() || matches!(name, b"[heap]" | b"[stack]");
    match (plain, line.inode, line.shared) {
        (true, 0, false) => Ok(Class::Anonymous(KernelPath::default())),
        (false, ino, _) if ino != 0 && name.starts_with(b"/") => Ok(Class::File),
        _ => Err(format!("an unknown kind of mapping {text:?}")),
    }
}

/// Turns what was found into records. `skip` are addresses that are not the job's own.
pub(super) fn record(
    subject: &Subject,
    found: &[Found],
    skip: &[Range<u64>],
    inodes: &mut Inodes,
    refusals: &mut Refusals,
) -> (Vec<Mapping>, Vec<MemoryRange>) {
    let mut mappings = vec![];
    let mut contents = vec![];
    for item in found {
        let line = &item.entry.line;
        for part in without(line.start..line.end, skip) {
            let mut refuse = |reason: String| {
                let object = format!("mapping {:x}-{:x}", line.start, line.end);
                refusals.add(subject.who(), object, reason);
            };
            match one(subject, item, part, inodes) {
                Ok(Some((mapping, range))) => {
                    mappings.push(mapping);
                    contents.extend(range);
                }
                Ok(None) => {}
                Err(reason) => refuse(reason),
            }
        }
    }
    (mappings, contents)
}

fn one(
    subject: &Subject,
    item: &Found,
    part: Range<u64>,
    inodes: &mut Inodes,
) -> Result<Option<(Mapping, Option<MemoryRange>)>, String> {
    let entry = &item.entry;
    let line = &entry.line;
    let class = classify(line)?;
    let of_kernel = matches!(class, Class::Kernel(_));
    if class == Class::Vsyscall {
        return Ok(None);
    }
    let flags = vm_flags(&entry.vm_flags, of_kernel)?;
    let huge_shift = if flags.huge {
        (entry.page_kib * 1024).trailing_zeros()
    } else {
        0
    };
    let offset = line.offset + (part.start - line.start);
    let mut name = KernelPath::default();
    let kind = match class {
        Class::Vsyscall => return Ok(None),
        Class::Kernel(kind) => kind,
        Class::Anonymous(called) => {
            name = called;
            MappingKind::Anonymous { huge_shift: 0 }
        }
        Class::HugeAnonymous => MappingKind::Anonymous { huge_shift },
        Class::SharedAnonymous(called) => {
            name = called;
            let inode = shared_memory(line, InodeKind::SharedAnonymous, subject, inodes);
            shared(inode, offset, true)
        }
        Class::SharedHuge => {
            // As other shared memory is brought back: by a memfd that nobody may seal.
            let kind = InodeKind::MemFd {
                name: b"shared"[..].into(),
                seals: libc::F_SEAL_SEAL.cast_unsigned(),
                huge_shift,
            };
            let inode = shared_memory(line, kind, subject, inodes);
            shared(inode, offset, true)
        }
        Class::MemFd(called) => {
            let kind = InodeKind::MemFd {
                name: KernelPath(called),
                seals: 0,
                huge_shift,
            };
            let inode = shared_memory(line, kind, subject, inodes);
            backed(line, inode, offset, flags)
        }
        Class::File => {
            let id = file(line, may_be_written(line, flags), subject, inodes)?;
            backed(line, id, offset, flags)
        }
    };
    note_use(&kind, line, &part, offset, subject, inodes);
    let range = MemoryRange {
        addresses: part.clone(),
        // Huge pages of a copy may be taken away when the original is written.
        while_frozen: huge_shift != 0
            || flags.bits & (mapping_flags::DONTFORK | mapping_flags::WIPEONFORK) != 0,
        only_changed: matches!(kind, MappingKind::PrivateFile { .. }),
    };
    // What may be dropped at any time is: the state of random generators, which two jobs from one
    // image must not share.
    let has_contents = flags.bits & mapping_flags::DROPPABLE == 0
        && matches!(
            kind,
            MappingKind::Anonymous { .. } | MappingKind::PrivateFile { .. }
        );
    let mapping = Mapping {
        start: part.start,
        end: part.end,
        prot: line.prot,
        kind,
        flags: flags.bits,
        pkey: entry.pkey,
        name,
    };
    Ok(Some((mapping, has_contents.then_some(range))))
}

fn shared(inode: InodeId, offset: u64, may_write: bool) -> MappingKind {
    MappingKind::Shared {
        inode,
        offset,
        may_write,
    }
}

/// Whether what the job writes there goes into the file.
fn may_be_written(line: &MapsLine, flags: VmFlags) -> bool {
    let writable = line.prot & libc::PROT_WRITE as u32 != 0;
    line.shared && (flags.may_write || writable)
}

fn backed(line: &MapsLine, inode: InodeId, offset: u64, flags: VmFlags) -> MappingKind {
    if line.shared {
        shared(inode, offset, may_be_written(line, flags))
    } else {
        MappingKind::PrivateFile { inode, offset }
    }
}

/// Tells the inode that it is mapped here, and how.
fn note_use(
    kind: &MappingKind,
    line: &MapsLine,
    part: &Range<u64>,
    offset: u64,
    subject: &Subject,
    inodes: &mut Inodes,
) {
    let (inode, may_write) = match kind {
        MappingKind::PrivateFile { inode, .. } => (*inode, false),
        MappingKind::Shared {
            inode, may_write, ..
        } => (*inode, *may_write),
        _ => return,
    };
    let draft = inodes.get_mut(inode);
    draft.mapped = true;
    draft.program |= line.prot & libc::PROT_EXEC as u32 != 0;
    draft.record.written |= may_write;
    draft.mapped_written |= may_write;
    let len = part.end - part.start;
    if draft.file.is_none() {
        draft.pieces.push(MemoryPiece {
            pid: subject.pid,
            address: part.start,
            len,
            offset,
        });
        draft.record.size = draft.record.size.max(offset + len);
    }
}

/// Memory that has no name: what a descriptor refers to as well, or known from mappings only.
fn shared_memory(
    line: &MapsLine,
    kind: InodeKind,
    subject: &Subject,
    inodes: &mut Inodes,
) -> InodeId {
    let dev = device(line);
    match inodes.find(dev, line.inode) {
        Some(id) => id,
        None => unnamed(line, kind, b"", subject, inodes),
    }
}

fn unnamed(
    line: &MapsLine,
    kind: InodeKind,
    path: &[u8],
    subject: &Subject,
    inodes: &mut Inodes,
) -> InodeId {
    // Allowed with CAP_CHECKPOINT_RESTORE only; without, the contents are read from memory.
    let link = format!("map_files/{:x}-{:x}", line.start, line.end);
    let file = File::open(subject.dir.file(&link)).ok();
    let found = file.as_ref().and_then(|file| file.metadata().ok());
    let size = found.as_ref().map_or(0, std::fs::Metadata::len);
    let record = InodeRecord {
        kind,
        path: path.into(),
        size,
        mode: libc::S_IFREG | 0o600,
        dev: device(line),
        ino: line.inode,
        rdev: 0,
        mtime_ns: 0,
        check: ContentCheck::None,
        carried: true,
        written: false,
    };
    inodes.add(record, file.map(Arc::new))
}

fn file(
    line: &MapsLine,
    written: bool,
    subject: &Subject,
    inodes: &mut Inodes,
) -> Result<InodeId, String> {
    let dev = device(line);
    if let Some(id) = inodes.find(dev, line.inode) {
        return match inodes.get(id).record.kind {
            InodeKind::Device | InodeKind::Fifo | InodeKind::Directory => {
                Err(device_reason(&line.name))
            }
            _ => Ok(id),
        };
    }
    let path = unescape(&line.name);
    let found = inodes.of_path(&path, line.inode);
    if let Ok(Some(id)) = found {
        return Ok(id);
    }
    // On some file systems (overlay, btrfs) `maps` shows another device than `stat`.
    let stripped = path.strip_suffix(b" (deleted)");
    let bare = stripped.unwrap_or(&path);
    let same = inodes.drafts.iter().position(|draft| {
        draft.record.ino == line.inode && draft.record.path.0 == bare && draft.file.is_some()
    });
    if let Some(index) = same {
        return Ok(InodeId(index as u32));
    }
    if let Ok(found) = std::fs::symlink_metadata(inodes.path(&path))
        && !found.is_file()
        && std::os::unix::fs::MetadataExt::ino(&found) == line.inode
    {
        return Err(device_reason(&line.name));
    }
    // What the job writes to a file must not go into a copy that nobody sees. (Of what it only
    // reads, a copy is as good.)
    let shown = shown::bytes(&path);
    match found {
        Err(error) if written => Err(format!(
            "{shown} cannot be reached by this path any more ({error}), so a restart could not map it again"
        )),
        _ if written && stripped.is_none() => Err(format!(
            "{shown} has not been deleted, but this path does not lead to it, so a restart could not map it again"
        )),
        _ => Ok(unnamed(line, InodeKind::Deleted, bare, subject, inodes)),
    }
}

fn device_reason(name: &[u8]) -> String {
    format!("memory of device {} cannot be carried", shown::bytes(name))
}

fn device(line: &MapsLine) -> u64 {
    libc::makedev(line.device.0, line.device.1)
}

/// `maps` writes a newline in a name as `\012`, and nothing else in another way.
fn unescape(name: &[u8]) -> Vec<u8> {
    let mut plain = vec![];
    let mut rest = name;
    while let Some((first, tail)) = rest.split_first() {
        if let Some(tail) = rest.strip_prefix(b"\\012") {
            plain.push(b'\n');
            rest = tail;
        } else {
            plain.push(*first);
            rest = tail;
        }
    }
    plain
}

/// Flags of `mlockall` for what is mapped later: our own mappings (`ours`) got them, too.
pub(super) fn lock_future(found: &[Found], ours: &[Range<u64>]) -> u32 {
    let locked = found.iter().find(|item| {
        let line = &item.entry.line;
        let overlaps = |range: &Range<u64>| range.start < line.end && line.start < range.end;
        ours.iter().any(overlaps) && item.entry.vm_flags.contains(b"lo")
    });
    let Some(locked) = locked else { return 0 };
    let on_fault = locked.entry.vm_flags.contains(b"lf");
    let flags = libc::MCL_FUTURE | if on_fault { libc::MCL_ONFAULT } else { 0 };
    flags.cast_unsigned()
}

/// What is left of a range without those of `skip`.
fn without(range: Range<u64>, skip: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut parts = vec![range];
    for hole in skip {
        parts = parts
            .into_iter()
            .flat_map(|part| {
                [
                    part.start..part.end.min(hole.start),
                    part.start.max(hole.end)..part.end,
                ]
            })
            .filter(|part| part.start < part.end)
            .collect();
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::{parse_maps, parse_smaps};

    #[test]
    fn a_hole_is_cut_out() {
        assert_eq!(without(0..10, &[3..5]), [0..3, 5..10]);
        assert_eq!(without(0..10, &[0..5, 20..30]), [5..10]);
        assert!(without(0..10, &[0..10]).is_empty());
    }

    #[test]
    fn lines_are_told_apart() {
        let class = |name: &str, mode: &str, ino: u64| {
            let text = format!("1000-2000 {mode} 00000000 00:01 {ino}      {name}");
            classify(&parse_maps(text.as_bytes()).expect("parses")[0])
        };
        assert_eq!(
            class("[heap]", "rw-p", 0),
            Ok(Class::Anonymous(KernelPath::default()))
        );
        assert_eq!(
            class("[anon:abc]", "rw-p", 0),
            Ok(Class::Anonymous(KernelPath(b"abc".to_vec())))
        );
        assert_eq!(
            class("/dev/zero", "rw-p", 5),
            Ok(Class::Anonymous(KernelPath::default()))
        );
        assert_eq!(
            class("/dev/zero (deleted)", "rw-s", 5),
            Ok(Class::SharedAnonymous(KernelPath::default()))
        );
        assert_eq!(
            class("/memfd:a b (deleted)", "rw-s", 5),
            Ok(Class::MemFd(b"a b".to_vec()))
        );
        assert_eq!(class("/usr/lib/x", "r-xp", 5), Ok(Class::File));
        assert_eq!(
            ["rw-s", "rw-p"].map(|mode| class("/anon_hugepage (deleted)", mode, 5)),
            [Ok(Class::SharedHuge), Ok(Class::HugeAnonymous)]
        );
        for name in [
            "/SYSV00000000 (deleted)",
            "/[aio] (deleted)",
            "anon_inode:[io_uring]",
            "[new]",
            "[uprobes]",
        ] {
            assert!(class(name, "rw-s", 5).is_err(), "{name}");
        }
        assert!(class("", "rw-s", 0).is_err());
    }

    #[test]
    fn flags_of_unchanged_lines_are_kept() {
        let smaps = b"1000-2000 rw-p 00000000 00:00 0 \nVmFlags: rd wr dc \n\
            3000-4000 rw-p 00000000 00:00 0 \nVmFlags: rd wr \n";
        let before = parse_smaps(smaps).expect("parses");
        let now = b"1000-2000 rw-p 00000000 00:00 0 \n3000-5000 rw-p 00000000 00:00 0 \n";
        let found = join(parse_maps(now).expect("parses"), before.clone()).expect("private");
        assert_eq!(
            (found[0].entry.vm_flags.len(), found[1].entry.vm_flags.len()),
            (3, 0)
        );
        let now = b"1000-3000 rw-s 00000000 00:01 7      /dev/zero (deleted)\n";
        assert!(join(parse_maps(now).expect("parses"), before.clone()).is_none());
    }

    #[test]
    fn a_newline_in_a_name_comes_back() {
        assert_eq!(unescape(b"/a\\012b\\040"), b"/a\nb\\040");
    }
}
