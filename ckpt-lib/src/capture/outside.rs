//! What leads out of the job and may: descriptors 0 to 2, what the job was begun with there, and those the user has named.

use super::descriptors::{Survey, external};
use super::open_files::{OpenFile, OpenFiles};
use crate::snapshot::{
    Description, DescriptionId, DescriptionKind, Descriptor, EpollEntry, External, Terminal, Unread,
};
use crate::sys::channels::{termios2, window};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::AsFd;

/// Device and inode; who reads and who writes, but of a device.
type End = (u64, u64, Option<(bool, bool)>);

fn end_of(file: &OpenFile) -> End {
    let is_device = file.stat.st_mode & libc::S_IFMT == libc::S_IFCHR;
    let access = (!is_device).then(|| (file.reads(), file.writes()));
    (file.stat.st_dev, file.stat.st_ino, access)
}

/// Which of descriptors 0 to 2 this was when the job was begun, if it was one of them.
fn moved(file: &OpenFile, streams: &[Option<(u64, u64)>; 3]) -> Option<u32> {
    let is_it = |fd: u32, stream: &Option<(u64, u64)>| {
        let goes = if fd == 0 { file.reads() } else { file.writes() };
        goes && *stream == Some((file.stat.st_dev, file.stat.st_ino))
    };
    let mut numbered = (0..).zip(streams);
    numbered.find_map(|(fd, stream)| is_it(fd, stream).then_some(fd))
}

/// For each description, the restarter's descriptor that may take its place.
#[derive(Debug)]
pub(super) struct Outside {
    inherit: Vec<Option<u32>>,
}

impl Outside {
    pub(super) fn new(job: &Survey<'_>, open: &OpenFiles) -> Self {
        let allowed = |fd: i32| {
            let fd = u32::try_from(fd).ok()?;
            (fd <= 2 || job.options.inherit_fds.contains(&fd)).then_some(fd)
        };
        let direct: Vec<Option<u32>> = open
            .files
            .iter()
            .map(|file| file.holders.iter().filter_map(|(_, fd)| allowed(*fd)).min())
            .collect();
        // Another opening of the same terminal or pipe end goes where the first goes.
        let mut firsts: HashMap<End, u32> = HashMap::new();
        for (file, direct) in open.files.iter().zip(&direct) {
            if let Some(fd) = *direct {
                let first = firsts.entry(end_of(file)).or_insert(fd);
                *first = fd.min(*first);
            }
        }
        let files = open.files.iter().zip(direct);
        let inherit = files
            .map(|(file, direct)| {
                let first = || firsts.get(&end_of(file)).copied();
                direct
                    .or_else(first)
                    .or_else(|| moved(file, &job.options.streams))
            })
            .collect();
        Outside { inherit }
    }

    /// The restarter's descriptor for description `index`, if it may lead outside.
    pub(super) fn inherit(&self, index: usize) -> Option<u32> {
        self.inherit[index]
    }

    /// Description `index` as a terminal that leads outside, if it is one and may.
    pub(super) fn terminal(
        &self,
        index: usize,
        job: &Survey<'_>,
        open: &OpenFiles,
    ) -> Option<External> {
        let file = &open.files[index];
        let inherit = self.inherit(index)?;
        let termios2 = termios2(file.duplicate.as_fd()).ok()?;
        let root = job.subjects.first()?;
        let controlling =
            root.stat.tty != 0 && old_number(file.stat.st_rdev) == Some(root.stat.tty);
        let mut found = external(inherit, &file.name);
        found.terminal = Some(Terminal {
            termios2,
            window: window(file.duplicate.as_fd()).unwrap_or_default(),
            controlling,
            foreground: controlling && root.stat.foreground == root.stat.pgrp,
        });
        Some(found)
    }
}

/// Has descriptors 0 to 2 stand for themselves where they share a description that leads outside (a terminal,
/// as a rule): each then takes the restarter's of its own number, which may have been redirected. Those of the
/// restarter's that are one description become one again.
pub(super) fn stand_apart<'a>(
    tables: impl Iterator<Item = &'a mut Vec<Descriptor>>,
    descriptions: &mut Vec<Description>,
) {
    let mut apart: BTreeMap<(DescriptionId, i32), DescriptionId> = BTreeMap::new();
    for descriptor in tables.flatten() {
        let (shared, fd) = (descriptor.description, descriptor.fd);
        if let Some(own) = apart.get(&(shared, fd)) {
            descriptor.description = *own;
            continue;
        }
        let Some(description) = descriptions.get(shared.0 as usize) else {
            continue;
        };
        let Some(own) = standing_for(description, fd) else {
            continue;
        };
        descriptor.description = DescriptionId(descriptions.len() as u32);
        apart.insert((shared, fd), descriptor.description);
        descriptions.push(own);
    }
    for description in descriptions {
        if let DescriptionKind::Epoll { entries } = &mut description.kind {
            for EpollEntry { fd, target, .. } in entries {
                *target = apart.get(&(*target, *fd)).copied().unwrap_or(*target);
            }
        }
    }
}

/// The description as descriptor `fd`'s own, if it is that of another of 0 to 2.
fn standing_for(description: &Description, fd: i32) -> Option<Description> {
    let fd = u32::try_from(fd).ok().filter(|fd| *fd <= 2)?;
    let DescriptionKind::External(external) = &description.kind else {
        return None;
    };
    (external.inherit <= 2 && external.inherit != fd).then(|| Description {
        kind: DescriptionKind::External(External {
            inherit: fd,
            // Served once.
            unread: Unread::default(),
            ..external.clone()
        }),
        ..description.clone()
    })
}

/// A device number as `/proc/PID/stat` writes it: minor bits 0-7, major 8-19, minor 20-31.
fn old_number(device: u64) -> Option<u32> {
    let major = u32::try_from(nix::sys::stat::major(device)).ok()?;
    let minor = u32::try_from(nix::sys::stat::minor(device)).ok()?;
    Some((minor & 0xff) | major << 8 | (minor & !0xff) << 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(kind: DescriptionKind) -> Description {
        Description {
            kind,
            flags: libc::O_RDWR as u32,
            offset: 0,
            owner: None,
            locks: vec![],
        }
    }

    fn external(inherit: u32) -> Description {
        description(DescriptionKind::External(External {
            inherit,
            was: b"/dev/pts/0"[..].into(),
            unread: Unread { at: 3, len: 5 },
            terminal: None,
        }))
    }

    #[test]
    fn standard_descriptors_of_one_terminal_take_their_own_numbers() {
        let mut descriptions = vec![
            external(0),
            external(7),
            description(DescriptionKind::Epoll {
                entries: vec![EpollEntry {
                    fd: 1,
                    target: DescriptionId(0),
                    events: 1,
                    data: 0,
                }],
            }),
        ];
        let shared = [(0, 0), (1, 0), (2, 0), (5, 0), (7, 1)];
        let table = shared.map(|(fd, description)| Descriptor {
            fd,
            description: DescriptionId(description),
            close_on_exec: false,
        });
        let mut tables = [table.to_vec(), table[..2].to_vec()];
        stand_apart(tables.iter_mut(), &mut descriptions);
        let numbers = |table: &Vec<Descriptor>| -> Vec<u32> {
            table
                .iter()
                .map(|descriptor| descriptor.description.0)
                .collect()
        };
        assert_eq!(numbers(&tables[0]), [0, 3, 4, 0, 1]);
        assert_eq!(numbers(&tables[1]), [0, 3]);
        let inherited: Vec<(u32, u64)> = [3, 4]
            .into_iter()
            .filter_map(|index: usize| match &descriptions[index].kind {
                DescriptionKind::External(found) => Some((found.inherit, found.unread.len)),
                _ => None,
            })
            .collect();
        assert_eq!(inherited, [(1, 0), (2, 0)]);
        let DescriptionKind::Epoll { entries } = &descriptions[2].kind else {
            panic!("{:?}", descriptions[2]);
        };
        assert_eq!(entries[0].target, DescriptionId(3));
    }
}
