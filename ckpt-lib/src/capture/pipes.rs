//! Pipes and FIFOs: within the job, with their contents, or leading out of it.

use super::descriptors::{Survey, external};
use super::inodes::{self, Inodes};
use super::open_files::{OpenFile, OpenFiles};
use super::outside::Outside;
use super::unread_bytes::UnreadBytes;
use crate::shown;
use crate::snapshot::{DescriptionKind, InodeKind, PipeId, PipeRecord, Unread};
use crate::sys::channels::{poll_now, tee, unread_len};
use c_shim::nodes;
use nix::fcntl::{FcntlArg, fcntl};
use std::collections::HashMap;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

/// All pipes, one record for each that lives within the job.
#[derive(Debug)]
pub(super) struct Pipes {
    pub(super) records: Vec<PipeRecord>,
    by_identity: HashMap<(u64, u64), PipeId>,
    /// Identity → descriptions that read it, that write it.
    ends: HashMap<(u64, u64), (Vec<usize>, Vec<usize>)>,
    /// The file system of FIFOs whose names are at the shadow.
    nodes: Option<u64>,
    /// The other end of one may be in flight in a socket, which is not looked into yet.
    unseen: bool,
}

fn identity(file: &OpenFile) -> (u64, u64) {
    (file.stat.st_dev, file.stat.st_ino)
}

impl Pipes {
    pub(super) fn new(open: &OpenFiles, nodes: Option<u64>, unseen: bool) -> Self {
        let mut ends: HashMap<_, (Vec<usize>, Vec<usize>)> = HashMap::new();
        for (index, file) in open.files.iter().enumerate() {
            if file.stat.st_mode & libc::S_IFMT != libc::S_IFIFO || file.is_path_only() {
                continue;
            }
            let (readers, writers) = ends.entry(identity(file)).or_default();
            if file.reads() {
                readers.push(index);
            }
            if file.writes() {
                writers.push(index);
            }
        }
        Pipes {
            records: vec![],
            by_identity: HashMap::new(),
            ends,
            nodes,
            unseen,
        }
    }

    /// What it is called in the folder of the shim's, if its name is at the shadow.
    fn at_the_shadow(&self, file: &OpenFile) -> Option<Vec<u8>> {
        let is_there = self.nodes == Some(file.stat.st_dev);
        nodes::fifo(&file.name).filter(|_| is_there)?;
        Some([nodes::FOLDER, &file.name[1..]].concat())
    }

    /// Description `index`, which is an end of a pipe.
    pub(super) fn kind(
        &mut self,
        index: usize,
        job: &Survey<'_>,
        open: &OpenFiles,
        outside: &Outside,
        inodes: &mut Inodes,
    ) -> Result<DescriptionKind, String> {
        let file = &open.files[index];
        if file.is_path_only() {
            return Err("a FIFO opened with O_PATH cannot be carried".into());
        }
        let (readers, writers) = self.ends.get(&identity(file)).cloned().unwrap_or_default();
        let events = |end: Option<&usize>, wanted: i16| match end {
            Some(end) => poll_now(open.files[*end].duplicate.as_fd(), wanted),
            None => Ok(0),
        };
        let no_writer = || Ok(events(readers.first(), libc::POLLIN)? & libc::POLLHUP != 0);
        let no_reader = || Ok(events(writers.first(), libc::POLLOUT)? & libc::POLLERR != 0);
        let said = |error: io::Error| format!("the state of this pipe cannot be read ({error})");
        let within = match (readers.is_empty(), writers.is_empty()) {
            // Nobody but the job can have it.
            _ if self.at_the_shadow(file).is_some() => true,
            (false, false) => true,
            // The other end is nobody's: it was closed.
            (false, true) => no_writer().map_err(said)?,
            // A standard output whose reader has gone gets a new one at restart.
            (true, _) => outside.inherit(index).is_none() && no_reader().map_err(said)?,
        };
        if within || self.unseen && outside.inherit(index).is_none() {
            return self.within(index, &readers, &writers, job, open, inodes);
        }
        let name = shown::bytes(&file.name);
        let Some(inherit) = outside.inherit(index) else {
            let end = if file.reads() { "reading" } else { "writing" };
            return Err(format!(
                "the {end} end of {name}, whose other end is not in the job, leads out of it"
            ));
        };
        let mut found = external(inherit, &file.name);
        // Several descriptions of this end share what lies in it; the first serves it.
        if job.stopped && readers.first() == Some(&index) {
            let kept = keep_contents(file.duplicate.as_fd(), &job.unread).map_err(|error| {
                format!("what lies unread in {name} cannot be copied ({error})")
            })?;
            // Whoever serves it does not tell packets apart: they lie one behind the other.
            found.unread = Unread {
                at: kept.first().map_or(0, |first| first.at),
                len: kept.iter().map(|part| part.len).sum(),
            };
        }
        Ok(DescriptionKind::External(found))
    }

    fn within(
        &mut self,
        index: usize,
        readers: &[usize],
        writers: &[usize],
        job: &Survey<'_>,
        open: &OpenFiles,
        inodes: &mut Inodes,
    ) -> Result<DescriptionKind, String> {
        let file = &open.files[index];
        if let Some(id) = self.by_identity.get(&identity(file)) {
            return Ok(DescriptionKind::Pipe(*id));
        }
        let named = !file.name.starts_with(b"pipe:[");
        let fifo = if let Some(path) = self.at_the_shadow(file) {
            let known = inodes.find(file.stat.st_dev, file.stat.st_ino);
            Some(known.unwrap_or_else(|| {
                let record = inodes::record(&file.stat, InodeKind::Fifo, &path);
                inodes.add(record, None)
            }))
        } else if named {
            let id = inodes.of_descriptor(file.duplicate.as_fd(), &file.stat, &file.name)?;
            let path = inodes.get(id).record.path.clone();
            let lookup = inodes.lookup(&path.0, file.stat.st_dev, file.stat.st_ino);
            if !lookup.is_same() {
                return Err(format!(
                    "FIFO {path}, which has been deleted, cannot be carried"
                ));
            }
            Some(id)
        } else {
            None
        };
        let capacity = fcntl(&file.duplicate, FcntlArg::F_GETPIPE_SZ).unwrap_or(65536);
        let mut record = PipeRecord {
            fifo,
            capacity: u32::try_from(capacity).unwrap_or(65536),
            contents: vec![],
            packets: false,
        };
        let ends = readers.iter().chain(writers);
        let mut flags = ends.map(|end| open.files[*end].flags());
        record.packets = flags.any(|flags| flags & libc::O_DIRECT as u32 != 0);
        if job.stopped
            && let Some(reader) = readers.first()
        {
            let reader = open.files[*reader].duplicate.as_fd();
            record.contents = keep_contents(reader, &job.unread)
                .map_err(|error| format!("what lies in this pipe cannot be copied ({error})"))?;
            record.packets |= record.contents.len() > 1;
        }
        let id = PipeId(self.records.len() as u32);
        self.records.push(record);
        self.by_identity.insert(identity(file), id);
        Ok(DescriptionKind::Pipe(id))
    }
}

/// Keeps what lies in a pipe, and leaves it there; one part for each packet.
fn keep_contents(reader: BorrowedFd<'_>, unread: &UnreadBytes) -> io::Result<Vec<Unread>> {
    let len = unread_len(reader)?;
    if len == 0 {
        return Ok(vec![]);
    }
    let (mut copy, sink) = io::pipe()?;
    let capacity = fcntl(reader, FcntlArg::F_GETPIPE_SZ)?;
    fcntl(&sink, FcntlArg::F_SETPIPE_SZ(capacity))?;
    let copied = tee(reader, sink.as_fd(), len)?;
    if copied != len {
        let message = format!("only {copied} of {len} bytes fit into a copy");
        return Err(io::Error::other(message));
    }
    drop(sink);
    let mut parts = vec![];
    let mut buffer = vec![0; len];
    loop {
        // A read ends at the end of a packet; of other contents it takes all.
        let read = copy.read(&mut buffer)?;
        if read == 0 {
            return Ok(parts);
        }
        parts.push(unread.keep(&buffer[..read])?);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;

    /// What of it is kept, behind something else.
    fn kept(reader: BorrowedFd<'_>) -> Vec<Vec<u8>> {
        let unread = UnreadBytes::aside_in(None);
        unread.keep(b"another").expect("is kept");
        let parts = keep_contents(reader, &unread).expect("is kept");
        let (file, _) = unread.finish().expect("is kept").expect("some");
        let read = |part: &Unread| {
            let mut bytes = vec![0; part.len as usize];
            file.read_exact_at(&mut bytes, part.at).expect("reads");
            bytes
        };
        parts.iter().map(read).collect()
    }

    #[test]
    fn a_full_pipe_is_copied_whole_and_stays_full() {
        let (reader, mut writer) = io::pipe().expect("pipe");
        let bytes: Vec<u8> = (0..65536_u32).map(|n| (n / 7) as u8).collect();
        writer.write_all(&bytes).expect("write");
        assert_eq!(kept(reader.as_fd()), [bytes]);
        assert_eq!(unread_len(reader.as_fd()).expect("FIONREAD"), 65536);
    }

    #[test]
    fn packets_stay_apart() {
        let (reader, mut writer) = io::pipe().expect("pipe");
        let flags = nix::fcntl::OFlag::O_DIRECT;
        fcntl(&writer, FcntlArg::F_SETFL(flags)).expect("packet mode");
        writer.write_all(b"one").expect("write");
        writer.write_all(b"three").expect("write");
        let parts = kept(reader.as_fd());
        assert_eq!(parts, [b"one".to_vec(), b"three".to_vec()]);
        assert!(reader.as_raw_fd() >= 0);
    }
}
