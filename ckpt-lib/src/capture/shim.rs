//! A job with remote files (docs/adr/0009): which of its descriptors are the shim's, and what becomes of each.
//!
//! | descriptor | in the image | at a restart |
//! |---|---|---|
//! | link, session, ends for the shadow, folder of FIFOs and sockets | what leads outside | the restarter's take their places |
//! | ends of descriptions | an inotify instance | the shim makes its watches anew |
//! | streams to the shadow | sockets whose other end is closed | the shim makes them anew |
//! | a file that is just being read here, not at the shadow | an inotify instance | the shim finds that it is none, and asks the shadow |
//! | placeholders | empty memory files, by their names | made anew, with the same names |
//! | table, store, shim | memory files with their contents | as any |
//!
//! # What it does not do
//! It knows nothing of what the table says.

use super::descriptors::external;
use super::open_files::{OpenFile, OpenFiles};
use crate::snapshot::DescriptionKind;
use c_shim::habits::READS_HERE;
use c_shim::link::LINK_NAME;
use c_shim::table::Reserved;
use loader::ops::OF_THE_SHADOW;
use nix::sys::socket::{SockaddrStorage, getpeername};
use std::os::fd::AsRawFd;

/// How it begins for a placeholder.
const PLACEHOLDER: &[u8] = b"/memfd:wf-";
/// Bytes of a placeholder's random name.
const NAME_LEN: usize = 32;

/// The shim of a job.
#[derive(Debug)]
pub(super) struct Shim {
    /// Where its streams lead.
    shadow: SockaddrStorage,
}

impl Shim {
    /// That of this job, if it has one.
    pub(super) fn find(open: &OpenFiles) -> Option<Self> {
        open.files
            .iter()
            .find(|file| file.name == LINK_NAME && is(file, Reserved::Link))?;
        let session = open.files.iter().find(|file| is(file, Reserved::Session))?;
        let shadow = getpeername(session.duplicate.as_raw_fd()).ok()?;
        Some(Shim { shadow })
    }

    /// What a description is if it is one of those that the shim has at fixed numbers.
    pub(super) fn kind(&self, file: &OpenFile) -> Option<DescriptionKind> {
        if is(file, Reserved::Session) {
            return Some(DescriptionKind::Session { state: vec![] });
        }
        if is(file, Reserved::Ends) || is_read_here(file) {
            return Some(DescriptionKind::Inotify { watches: vec![] });
        }
        if is(file, Reserved::Nodes) && !is_nodes(file) {
            // The shim is older; it is the program's own.
            return None;
        }
        let outside = [Reserved::Link, Reserved::LockEnds, Reserved::Nodes];
        let found = outside.into_iter().find(|reserved| is(file, *reserved))?;
        let number = found.number().cast_unsigned();
        Some(DescriptionKind::External(external(
            number,
            OF_THE_SHADOW.to_bytes(),
        )))
    }

    /// Of which file system the folder is where the job has its FIFOs.
    pub(super) fn nodes(open: &OpenFiles) -> Option<u64> {
        let mut files = open.files.iter();
        let found = files.find(|file| is(file, Reserved::Nodes) && is_nodes(file))?;
        Some(found.stat.st_dev)
    }

    /// Whether it is a stream to the shadow.
    pub(super) fn is_stream(&self, file: &OpenFile) -> bool {
        let peer = getpeername::<SockaddrStorage>(file.duplicate.as_raw_fd());
        peer.is_ok_and(|peer| peer == self.shadow)
    }
}

/// Whether it is the folder where the job has its FIFOs and sockets, or what stands for it.
fn is_nodes(file: &OpenFile) -> bool {
    let is_folder = file.stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
    is_folder && file.name == b"/" || file.name == b"/memfd:wf-nodes (deleted)"
}

/// Whether the shim has it open to read it here, for a moment (docs/adr/0022-files-seen-twice.md).
fn is_read_here(file: &OpenFile) -> bool {
    const O_LARGEFILE: u32 = 0o100_000;
    let is_regular = file.stat.st_mode & libc::S_IFMT == libc::S_IFREG;
    is_regular && file.flags() & !O_LARGEFILE == READS_HERE
}

/// Whether it is a placeholder of a remote file.
pub(super) fn is_placeholder(file: &OpenFile) -> bool {
    let digits = file.name.strip_prefix(PLACEHOLDER);
    file.is_path_only()
        && digits
            .and_then(|rest| rest.get(..NAME_LEN))
            .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

fn is(file: &OpenFile, reserved: Reserved) -> bool {
    file.holders.iter().any(|(_, fd)| *fd == reserved.number())
}
