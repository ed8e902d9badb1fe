//! From one image to the next: what was not written to is not read.

use crate::image::ImageWriter;
use crate::inject::{InjectError, Workshop};
use crate::tracee::{HostPid, StoppedProcess};
use crate::watch::Watch;
use loader::layout::{Hash, Space};
use std::os::fd::OwnedFd;

/// Ends the watch of a job that stands still. `earlier`: the image that the writer builds on.
pub(super) fn spare(writer: &mut ImageWriter, pid: HostPid, watch: Watch, earlier: Option<Hash>) {
    let is_of_it = earlier == Some(watch.image());
    match watch.end(pid) {
        Ok(unwritten) if is_of_it => {
            writer.spare(Space::Process(0), unwritten);
        }
        Ok(_) => {}
        Err(error) => tracing::debug!(%error, "all memory is read"),
    }
}

/// Whether what the job writes to is watched.
pub(super) enum Watched {
    /// Nobody wants it, or it cannot be.
    No,
    Wanted,
    /// To be, as soon as nothing of ours is in its memory.
    By(OwnedFd, HostPid),
    On(Watch),
}

impl Watched {
    pub(super) fn of(wanted: bool) -> Self {
        if wanted { Watched::Wanted } else { Watched::No }
    }

    pub(super) fn borrow(
        &mut self,
        workshop: &mut Workshop,
        process: &mut StoppedProcess,
    ) -> Result<(), InjectError> {
        *self = match std::mem::replace(self, Watched::No) {
            Watched::Wanted => match workshop.userfaultfd(process) {
                Ok(fd) => Watched::By(fd, process.pid),
                Err(InjectError::Refused { .. }) => Watched::No,
                Err(error) => return Err(error),
            },
            // Of several processes none is.
            _ => Watched::No,
        };
        Ok(())
    }

    pub(super) fn begin(&mut self) {
        if let Watched::By(fd, pid) = std::mem::replace(self, Watched::No) {
            match Watch::begin(fd, pid) {
                Ok(watch) => *self = Watched::On(watch),
                Err(error) => tracing::debug!(%error, "the next image reads all memory"),
            }
        }
    }

    pub(super) fn on(self) -> Option<Watch> {
        match self {
            Watched::On(watch) => Some(watch),
            _ => None,
        }
    }
}
