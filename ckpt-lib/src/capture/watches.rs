//! Inotify watches: which path leads to what is watched.
//!
//! The kernel tells inode numbers only. Paths are looked for among what the job has open, its
//! working directories and mount points, and then a bounded way down from there. What was found
//! once is remembered, so that the long search happens before the job is stopped.

use super::inodes::Inodes;
use super::subject::Subject;
use crate::procfs::{InotifyLine, ProcDir, parse_mountinfo};
use crate::snapshot::{InotifyWatch, KernelPath};
use std::collections::{HashMap, VecDeque};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// Directory entries looked at before a search is given up.
const ENTRIES_MAX: usize = 50_000;
/// And how long it may take.
const SEARCH_MAX: Duration = Duration::from_millis(500);

/// Device (major, minor) and inode number.
type Identity = ((u32, u32), u64);

/// Paths found so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Watches {
    known: HashMap<Identity, Vec<u8>>,
}

impl Watches {
    /// The watches of an inotify descriptor with their paths, or why one has none.
    pub(super) fn find(
        &mut self,
        lines: &[InotifyLine],
        subjects: &[Subject],
        inodes: &Inodes,
    ) -> Result<Vec<InotifyWatch>, String> {
        let missing: Vec<Identity> = lines
            .iter()
            .map(|line| (line.device, line.inode))
            .filter(|wanted| !self.holds(wanted, inodes))
            .collect();
        if !missing.is_empty() {
            self.search(&missing, subjects, inodes);
        }
        let mut watches = vec![];
        for line in lines {
            let path = self.known.get(&(line.device, line.inode)).ok_or_else(|| {
                format!(
                    "inotify watch {} on inode {}, to which no path was found",
                    line.wd, line.inode
                )
            })?;
            // The kernel does not tell this flag; what is watched does: else it would be what the link leads to.
            let found = std::fs::symlink_metadata(inodes.path(path));
            let is_link = found.is_ok_and(|found| found.file_type().is_symlink());
            watches.push(InotifyWatch {
                wd: line.wd,
                mask: line.mask | if is_link { libc::IN_DONT_FOLLOW } else { 0 },
                path: KernelPath(path.clone()),
            });
        }
        Ok(watches)
    }

    /// Whether the remembered path still leads there.
    fn holds(&mut self, wanted: &Identity, inodes: &Inodes) -> bool {
        let holds = self
            .known
            .get(wanted)
            .is_some_and(|path| identity(inodes, path) == Some(*wanted));
        if !holds {
            self.known.remove(wanted);
        }
        holds
    }

    fn search(&mut self, wanted: &[Identity], subjects: &[Subject], inodes: &Inodes) {
        let started = Instant::now();
        let mut queue: VecDeque<Vec<u8>> = starts(subjects, inodes).into();
        let mut left = ENTRIES_MAX;
        let mut missing = wanted.to_vec();
        let mut seen = std::collections::HashSet::new();
        while let Some(path) = queue.pop_front() {
            if left == 0 || missing.is_empty() || started.elapsed() > SEARCH_MAX {
                return;
            }
            left -= 1;
            let Ok(found) = std::fs::symlink_metadata(inodes.path(&path)) else {
                continue;
            };
            let own = as_identity(&found);
            if !seen.insert(own) {
                continue;
            }
            if missing.contains(&own) {
                self.known.insert(own, path.clone());
                missing.retain(|wanted| *wanted != own);
            }
            if !found.is_dir() {
                continue;
            }
            let Ok(entries) = std::fs::read_dir(inodes.path(&path)) else {
                continue;
            };
            for entry in entries.flatten() {
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                // A plain file is only worth a look if its number is wanted.
                let number = std::os::unix::fs::DirEntryExt::ino(&entry);
                if is_folder || missing.iter().any(|(_, ino)| *ino == number) {
                    let mut below = path.clone();
                    if below != b"/" {
                        below.push(b'/');
                    }
                    below.extend(entry.file_name().as_bytes());
                    queue.push_back(below);
                }
            }
        }
    }
}

/// Where to begin: near first.
fn starts(subjects: &[Subject], inodes: &Inodes) -> Vec<Vec<u8>> {
    let mut starts: Vec<Vec<u8>> = vec![];
    for draft in &inodes.drafts {
        let path = &draft.record.path.0;
        if path.starts_with(b"/") {
            starts.push(path.clone());
            if let Some(end) = path.iter().rposition(|byte| *byte == b'/') {
                starts.push(path[..end.max(1)].to_vec());
            }
        }
    }
    for subject in subjects {
        starts.extend(subject.dir.link("cwd").ok());
    }
    for subject in subjects.iter().take(1) {
        let environment = subject.dir.bytes("environ").unwrap_or_default();
        let home = environment
            .split(|byte| *byte == 0)
            .find_map(|entry| entry.strip_prefix(b"HOME="));
        starts.extend(home.map(<[u8]>::to_vec));
    }
    let own = ProcDir::of_self();
    let dir = subjects.first().map_or(&own, |subject| &subject.dir);
    let temporary = std::env::temp_dir().into_os_string().into_vec();
    starts.extend([temporary, b"/etc".to_vec(), b"/dev".to_vec()]);
    if let Ok(mounts) = dir.parsed("mountinfo", parse_mountinfo) {
        let real = mounts
            .into_iter()
            .filter(|mount| !matches!(mount.kind.as_slice(), b"proc" | b"sysfs" | b"cgroup2"));
        starts.extend(real.map(|mount| mount.mount_point));
    }
    starts
}

fn identity(inodes: &Inodes, path: &[u8]) -> Option<Identity> {
    let found = std::fs::symlink_metadata(inodes.path(path)).ok()?;
    Some(as_identity(&found))
}

fn as_identity(found: &std::fs::Metadata) -> Identity {
    let device = found.dev();
    let major = nix::sys::stat::major(device) as u32;
    let minor = nix::sys::stat::minor(device) as u32;
    ((major, minor), found.ino())
}
