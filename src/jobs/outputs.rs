//! Where a job's standard output and error go, written down with the job for whoever wants to see them later.
//!
//! # What callers may rely on
//! What is noted is what the job was given when it was begun, or what it had in the image that it goes on from. A program that leads
//! its output elsewhere by itself is not followed there before its next restart.

use ckpt_lib::snapshot::{DescriptionKind, InodeKind, InodeRecord, SnapshotV1};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Both of them, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Outputs {
    /// Standard output.
    pub(crate) out: Option<Output>,
    /// Standard error.
    pub(crate) errors: Option<Output>,
}

/// Where one of them goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Output {
    /// What that is.
    pub(crate) kind: OutputKind,
    /// Its name, as `/proc/PID/fd` has it: a path, or such as `pipe:[7]`.
    #[serde(with = "crate::raw::path")]
    pub(crate) path: PathBuf,
    /// Which file it is, if it was there.
    pub(crate) file: Option<FileId>,
}

/// What an output is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OutputKind {
    /// A regular file.
    File,
    /// A terminal.
    Terminal,
    /// A pipe, with a name or without.
    Pipe,
    /// A socket.
    Socket,
    /// Another device, such as `/dev/null`.
    Device,
    /// It is closed.
    Closed,
    /// What a newer wayfarer may know.
    #[serde(other)]
    Other,
}

/// One file among all of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileId {
    /// Its file system, as this boot of the machine numbers it.
    pub(crate) device: u64,
    /// Its number there.
    pub(crate) inode: u64,
}

impl FileId {
    /// That of the file which was looked at.
    pub(crate) fn of(found: &Metadata) -> Self {
        FileId {
            device: found.dev(),
            inode: found.ino(),
        }
    }
}

/// Which files descriptors 0 to 2 of this process are.
pub(super) fn streams_of_self() -> [Option<FileId>; 3] {
    [0, 1, 2].map(|fd| {
        let found = fs::metadata(format!("/proc/self/fd/{fd}"));
        found.ok().map(|found| FileId::of(&found))
    })
}

impl Outputs {
    /// Those of this process, which a job that it begins will have.
    pub(crate) fn of_self() -> Self {
        Outputs {
            out: Some(Output::of_own(1)),
            errors: Some(Output::of_own(2)),
        }
    }

    /// Those of a job that this process begins from an image.
    pub(crate) fn of_image(snapshot: &SnapshotV1) -> Self {
        Outputs {
            out: Output::of_image(snapshot, 1),
            errors: Output::of_image(snapshot, 2),
        }
    }

    /// What is not known here is as it was before.
    pub(crate) fn or(self, before: Option<&Outputs>) -> Self {
        let before = before.cloned().unwrap_or_default();
        Outputs {
            out: self.out.or(before.out),
            errors: self.errors.or(before.errors),
        }
    }
}

impl Output {
    /// What this descriptor of ours leads to.
    fn of_own(fd: u32) -> Self {
        if crate::sys::was_closed(fd) {
            return Output::unnamed(OutputKind::Closed);
        }
        let link = PathBuf::from(format!("/proc/self/fd/{fd}"));
        let (Ok(path), Ok(found)) = (fs::read_link(&link), fs::metadata(&link)) else {
            return Output::unnamed(OutputKind::Closed);
        };
        Output {
            kind: kind_of(&found),
            path: match found.nlink() {
                0 => without_mark(path),
                _ => path,
            },
            file: Some(FileId::of(&found)),
        }
    }

    /// What it will lead to in a job that goes on from this image; nothing is known of what a shadow serves.
    fn of_image(snapshot: &SnapshotV1, fd: i32) -> Option<Self> {
        let mut table = snapshot.processes.first()?.descriptors.iter();
        let Some(descriptor) = table.find(|one| one.fd == fd) else {
            return Some(Output::unnamed(OutputKind::Closed));
        };
        let description = snapshot
            .descriptions
            .get(descriptor.description.0 as usize)?;
        match &description.kind {
            DescriptionKind::External(external) => Some(Output::of_own(external.inherit)),
            DescriptionKind::Inode(id) => {
                Some(Output::of_inode(snapshot.inodes.get(id.0 as usize)?))
            }
            DescriptionKind::Pipe(_) => Some(Output::unnamed(OutputKind::Pipe)),
            DescriptionKind::Socket(_) => Some(Output::unnamed(OutputKind::Socket)),
            DescriptionKind::Session { .. } => None,
            _ => Some(Output::unnamed(OutputKind::Other)),
        }
    }

    fn of_inode(inode: &InodeRecord) -> Self {
        let path = PathBuf::from(OsStr::from_bytes(&inode.path.0));
        let kind = match inode.kind {
            InodeKind::Regular | InodeKind::Deleted => OutputKind::File,
            InodeKind::Device if is_terminal(inode.rdev) => OutputKind::Terminal,
            InodeKind::Device => OutputKind::Device,
            InodeKind::Fifo => OutputKind::Pipe,
            _ => OutputKind::Other,
        };
        let found = fs::metadata(&path).ok();
        let found = found.filter(|_| inode.kind == InodeKind::Regular);
        Output {
            kind,
            file: found.as_ref().map(FileId::of),
            path,
        }
    }

    /// Its path, if it has one for more than this moment.
    pub(crate) fn lasting_path(&self) -> Option<&Path> {
        let lasts = matches!(self.kind, OutputKind::File | OutputKind::Device);
        Some(self.path.as_path()).filter(|_| lasts)
    }

    fn unnamed(kind: OutputKind) -> Self {
        Output {
            kind,
            path: PathBuf::new(),
            file: None,
        }
    }
}

fn kind_of(found: &Metadata) -> OutputKind {
    let kind = found.file_type();
    if kind.is_file() {
        OutputKind::File
    } else if kind.is_fifo() {
        OutputKind::Pipe
    } else if kind.is_socket() {
        OutputKind::Socket
    } else if kind.is_char_device() && is_terminal(found.rdev()) {
        OutputKind::Terminal
    } else if kind.is_char_device() || kind.is_block_device() {
        OutputKind::Device
    } else {
        OutputKind::Other
    }
}

/// Consoles and serial lines, the terminal of whoever asks, pseudoterminals (Documentation/admin-guide/devices.txt).
fn is_terminal(device: u64) -> bool {
    matches!(nix::sys::stat::major(device), 4 | 5 | 136..=143)
}

/// The name that a file had which has none any more.
fn without_mark(path: PathBuf) -> PathBuf {
    let bytes = path.into_os_string().into_vec();
    let name = bytes.strip_suffix(b" (deleted)").unwrap_or(&bytes);
    Path::new(OsStr::from_bytes(name)).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ckpt_lib::snapshot::{
        ContentCheck, Description, DescriptionId, Descriptor, External, InodeId, KernelPath,
        Process,
    };

    /// A job whose descriptors 1 and 2 are these.
    fn job(kinds: [Option<DescriptionKind>; 2], inodes: Vec<InodeRecord>) -> SnapshotV1 {
        let mut snapshot = SnapshotV1 {
            inodes,
            ..SnapshotV1::default()
        };
        let mut root = Process::default();
        for (fd, kind) in (1..).zip(kinds) {
            let Some(kind) = kind else { continue };
            root.descriptors.push(Descriptor {
                fd,
                description: DescriptionId(snapshot.descriptions.len() as u32),
                close_on_exec: false,
            });
            snapshot.descriptions.push(Description {
                flags: 0,
                offset: 0,
                owner: None,
                kind,
                locks: vec![],
            });
        }
        snapshot.processes.push(root);
        snapshot
    }

    #[test]
    fn files_of_an_image_are_those_at_their_paths() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let inode = InodeRecord {
            kind: InodeKind::Regular,
            path: KernelPath(file.path().as_os_str().as_bytes().to_vec()),
            size: 0,
            mode: 0,
            dev: 0,
            ino: 0,
            rdev: 0,
            mtime_ns: 0,
            check: ContentCheck::None,
            carried: false,
            written: true,
        };
        let own = External {
            inherit: 1,
            was: KernelPath(b"pipe:[1]".to_vec()),
            unread: ckpt_lib::snapshot::Unread::default(),
            terminal: None,
        };
        let kinds = [
            DescriptionKind::Inode(InodeId(0)),
            DescriptionKind::External(own),
        ];
        let found = Outputs::of_image(&job(kinds.map(Some), vec![inode]));
        let out = found.out.expect("known");
        assert_eq!(out.kind, OutputKind::File);
        assert_eq!(out.path, file.path());
        let there = file.as_file().metadata().expect("metadata");
        assert_eq!(out.file, Some(FileId::of(&there)));
        // What led out of the job is ours now.
        assert_eq!(found.errors, Some(Output::of_own(1)));
    }

    #[test]
    fn what_an_image_does_not_tell_stays_as_it_was() {
        let session = DescriptionKind::Session { state: vec![] };
        let found = Outputs::of_image(&job([Some(session), None], vec![]));
        let before = Outputs {
            out: Some(Output::unnamed(OutputKind::Socket)),
            errors: Some(Output::unnamed(OutputKind::Socket)),
        };
        let merged = found.or(Some(&before));
        assert_eq!(merged.out, before.out);
        assert_eq!(merged.errors, Some(Output::unnamed(OutputKind::Closed)));
    }

    #[test]
    fn names_and_kinds_that_nobody_knows_are_read() {
        let output = Output {
            kind: OutputKind::File,
            path: OsStr::from_bytes(b"/d\xff/out").into(),
            file: Some(FileId {
                device: 1,
                inode: 2,
            }),
        };
        let text = serde_json::to_string(&output).expect("JSON");
        assert_eq!(
            serde_json::from_str::<Output>(&text).expect("reads"),
            output
        );
        let newer = text.replace("\"file\",", "\"hologram\",");
        let read: Output = serde_json::from_str(&newer).expect("reads");
        assert_eq!(read.kind, OutputKind::Other);
        assert_eq!(without_mark("/a b (deleted)".into()), Path::new("/a b"));
    }
}
