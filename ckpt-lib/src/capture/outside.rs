//! What leads out of the job and may: descriptors 0 to 2 and those the user has named.

use super::descriptors::{Survey, external};
use super::open_files::OpenFiles;
use crate::snapshot::{External, Terminal};
use crate::sys::channels::{termios2, window};
use std::os::fd::AsFd;

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
        let inherit = (0..open.files.len())
            .map(|index| {
                direct[index].or_else(|| {
                    let file = &open.files[index];
                    let twin = |other: &usize| {
                        let candidate = &open.files[*other];
                        let device = candidate.stat.st_mode & libc::S_IFMT == libc::S_IFCHR;
                        (candidate.stat.st_dev, candidate.stat.st_ino)
                            == (file.stat.st_dev, file.stat.st_ino)
                            && (device
                                || (candidate.reads(), candidate.writes())
                                    == (file.reads(), file.writes()))
                    };
                    let found = (0..open.files.len()).filter(twin);
                    found.filter_map(|other| direct[other]).min()
                })
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

/// A device number as `/proc/PID/stat` writes it: minor bits 0-7, major 8-19, minor 20-31.
fn old_number(device: u64) -> Option<u32> {
    let major = u32::try_from(nix::sys::stat::major(device)).ok()?;
    let minor = u32::try_from(nix::sys::stat::minor(device)).ok()?;
    Some((minor & 0xff) | major << 8 | (minor & !0xff) << 12)
}
