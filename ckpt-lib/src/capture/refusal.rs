//! What cannot be carried, said so that a person knows what to do about it.

use crate::procfs::ProcfsError;
use std::fmt;
use std::io;

/// Something that cannot be carried. Shown as "process 12 (python3): descriptor 5: TCP socket
/// connected to 10.0.0.1:443 leads out of the job".
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refusal {
    /// The process, as the caller counts processes.
    pub pid: i32,
    /// Its name.
    pub program: String,
    /// What stands in the way: "descriptor 5", "mapping 7f00-7f10", "seccomp".
    pub object: String,
    /// Why.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal {
            pid,
            program,
            object,
            reason,
        } = self;
        write!(f, "process {pid} ({program}): {object}: {reason}")
    }
}

/// Why a job was not captured. It has not been changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// It holds things that cannot be carried; all of them are named.
    #[error("{}", listed(.0))]
    Refused(Vec<Refusal>),
    /// `/proc` could not be read.
    #[error(transparent)]
    Procfs(#[from] ProcfsError),
    /// The kernel refused to tell something.
    #[error("process {pid}: cannot learn {what}")]
    Kernel {
        /// The process or thread asked about.
        pid: i32,
        /// What was asked.
        what: &'static str,
        /// Its answer.
        #[source]
        source: io::Error,
    },
    /// A system call made inside the job failed.
    #[error("thread {tid}: {call} inside the job failed")]
    Inside {
        /// The thread.
        tid: i32,
        /// The call.
        call: &'static str,
        /// Its error.
        #[source]
        source: io::Error,
    },
    /// What lies unread in the job's pipes and sockets could not be kept until it is in the image.
    #[error("no room for what lies unread in the job's pipes and sockets")]
    Unread(#[source] io::Error),
    /// A file whose contents belong to the checkpoint could not be read.
    #[error("cannot read {path} to compare it at restart")]
    Contents {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The picture shows other mappings than were counted on: try again with
    /// [`super::CaptureOptions::flags_while_frozen`].
    #[error("process {pid}: mapping {start:x}-{end:x} changed while the job was being stopped")]
    MappingChanged {
        /// The process.
        pid: i32,
        /// Its first address.
        start: u64,
        /// The first address behind it.
        end: u64,
    },
    /// Guards among its pages could not be looked for.
    #[error(transparent)]
    Pages(Box<crate::pages::PagesError>),
    /// Work inside the job failed.
    #[error(transparent)]
    Tracee(Box<dyn std::error::Error + Send + Sync>),
}

/// Why what a link of `/proc` leads to cannot be carried, if that is its path alone.
pub(super) const TOO_LONG: &str =
    "its path is longer than 4095 bytes (PATH_MAX): the kernel does not tell it";

/// What stands behind an unexpected EPERM or ENOSYS, for the end of a reason.
pub(super) fn where_filters_are(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::ENOSYS) => {
            "; most likely a seccomp filter forbids it (Docker's default profile does: --cap-add SYS_PTRACE \
             allows pidfd_getfd and kcmp there)"
        }
        _ => "",
    }
}

fn listed(refusals: &[Refusal]) -> String {
    let lines: Vec<String> = refusals.iter().map(Refusal::to_string).collect();
    lines.join("\n")
}

/// Collects refusals, each once.
#[derive(Debug, Default)]
pub(super) struct Refusals(Vec<Refusal>);

impl Refusals {
    pub(super) fn add(
        &mut self,
        who: (i32, &str),
        object: impl Into<String>,
        reason: impl Into<String>,
    ) {
        let refusal = Refusal {
            pid: who.0,
            program: who.1.to_owned(),
            object: object.into(),
            reason: reason.into(),
        };
        if !self.0.contains(&refusal) {
            self.0.push(refusal);
        }
    }

    pub(super) fn into_result(self) -> Result<(), Vec<Refusal>> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(self.0)
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(test)]
    pub(super) fn texts(&self) -> Vec<String> {
        self.0.iter().map(Refusal::to_string).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_process_object_and_reason_once() {
        let mut refusals = Refusals::default();
        for _ in 0..2 {
            refusals.add((12, "python3"), "descriptor 5", "leads out of the job");
        }
        let expected = "process 12 (python3): descriptor 5: leads out of the job";
        assert_eq!(refusals.texts(), [expected]);
    }
}
