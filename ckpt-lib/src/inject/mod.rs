//! System calls made by the job's own threads, for what cannot be read from outside (ADR 0001).
//!
//! # What callers may rely on
//! If wayfarer dies at any moment, every thread finds its way back alone: registers, signal mask and
//! the call it was in are as they were.
//!
//! # What it does not do
//! It does not know what the calls are for.

mod apart;
mod asm;
mod borrow;
mod children;
mod forbidden;
mod gate;
mod hands;
mod list;
mod pictures;
mod place;
mod runner;
mod site;
mod stub;

pub use apart::block_apart;
pub use list::{CallList, CallRef, CallResults, DataRef, InsideArg};

use crate::picture::Picture;
use crate::procfs::ProcfsError;
use crate::tracee::{HostTid, StopError, StoppedProcess};
use itertools::Itertools;
use site::Site;
use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// How many lists are in the process's memory at once, and as bytes in wayfarer's.
const LISTS_AT_ONCE: usize = 1024;

/// Why calls could not be made inside a process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InjectError {
    /// A seccomp filter that wayfarer is not under itself might kill the process for our calls.
    #[error("process {pid}: seccomp: {reason}")]
    Forbidden {
        /// Which process.
        pid: i32,
        /// What was found.
        reason: String,
    },
    /// What might forbid them could not be learnt.
    #[error("process {pid}: cannot learn what its threads are allowed")]
    Unknown {
        /// Which process.
        pid: i32,
        /// Why.
        #[source]
        source: Box<ProcfsError>,
    },
    /// Syscall user dispatch is on: the program would be asked about our calls.
    #[error(
        "thread {tid} of process {pid} has its system calls dispatched by the program (PR_SET_SYSCALL_USER_DISPATCH)"
    )]
    Dispatched {
        /// Which process.
        pid: i32,
        /// Which thread.
        tid: i32,
    },
    /// As our shim has them dispatched where it must, and the kernel does not tell whether it has.
    #[error(
        "process {pid} has remote files and handles SIGSYS: its system calls may be dispatched, which this kernel does not tell (Linux 6.4)"
    )]
    Untold {
        /// Which process.
        pid: i32,
    },
    /// A call of the 32-bit kind is in progress, which stubs cannot enter again.
    #[error("thread {tid} of process {pid} is in a 32-bit system call (int 0x80)")]
    Compat {
        /// Which process.
        pid: i32,
        /// Which thread.
        tid: i32,
    },
    /// No executable place for the first stub.
    #[error("process {pid} has no free place for code: {why}")]
    NoPlace {
        /// Which process.
        pid: i32,
        /// Why.
        why: &'static str,
    },
    /// A call that the workshop itself needs was refused.
    #[error("process {pid}: {what} was refused")]
    Refused {
        /// Which process.
        pid: i32,
        /// Which call.
        what: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The calls of a thread did not end in time.
    #[error("injected calls of thread {tid} did not end within {waited_ms} ms")]
    Deadline {
        /// Which thread.
        tid: i32,
        /// How long they were given.
        waited_ms: u64,
    },
    /// The thread did something that the stub cannot have done.
    #[error("thread {tid} left the injected code: {what}")]
    Escaped {
        /// Which thread.
        tid: i32,
        /// What was seen.
        what: String,
    },
    /// Wayfarer came too late: threads that had waited for it for a while went on with the job.
    #[error(
        "thread {tid} (of {count} such) waited {park_s} s for wayfarer, which got no processor time, and went on by itself; the job is unharmed, but there is no one moment to be carried: try again"
    )]
    WentHome {
        /// The first of them.
        tid: i32,
        /// How many.
        count: usize,
        /// How long each had waited, at least.
        park_s: u64,
    },
    /// The workshop could not be taken away.
    #[error(
        "{len} bytes of wayfarer's stay in the memory of process {pid}: a thread may need them to get home"
    )]
    LeftBehind {
        /// Which process.
        pid: i32,
        /// How much.
        len: u64,
    },
    /// Something failed, and then something else while it was being undone.
    #[error("{cleanup}, while this was being undone")]
    Unclean {
        /// What failed first.
        #[source]
        first: Box<InjectError>,
        /// What failed then.
        cleanup: Box<InjectError>,
    },
    /// The process ended meanwhile.
    #[error("process {pid} has ended")]
    Gone {
        /// Which.
        pid: i32,
    },
    /// A thread that a list was made for is not one of the process.
    #[error("thread {tid} is not a stopped thread of process {pid}")]
    Stranger {
        /// Which process.
        pid: i32,
        /// Which thread.
        tid: i32,
    },
    /// A picture might need more memory than the process may have.
    #[error("a picture of process {pid} may need {needed} bytes more, {left} are left")]
    NoRoom {
        /// Which process.
        pid: i32,
        /// What all its pages come to.
        needed: u64,
        /// What its memory limits leave.
        left: u64,
    },
    /// A picture would become the child of the job itself.
    #[error("process {pid} is the one that orphans are given to")]
    Reaper {
        /// Which.
        pid: i32,
    },
    /// Its memory could not be read or written.
    #[error("memory of process {pid} at {address:#x}")]
    Memory {
        /// Which process.
        pid: i32,
        /// Where.
        address: u64,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A ptrace request failed.
    #[error("tracing process {pid} failed")]
    Trace {
        /// Which.
        pid: i32,
        /// How.
        #[source]
        source: StopError,
    },
}

impl InjectError {
    /// This error, and what failed while it was being undone.
    fn and_then(self, cleanup: InjectError) -> InjectError {
        InjectError::Unclean {
            first: Box::new(self),
            cleanup: Box::new(cleanup),
        }
    }
}

/// A place inside a stopped process from which its threads make calls for us.
///
/// [`Workshop::close`] takes it away; if that is not called, the end of the stop does.
#[derive(Debug)]
pub struct Workshop {
    site: Rc<Site>,
}

impl Workshop {
    /// Opens a workshop. Everything that forbids it is looked for before anything is touched.
    /// `apart`: where it would be apart from all mappings ([`block_apart`]); else it is where the kernel puts it.
    ///
    /// # Errors
    /// [`InjectError`]; the process is as it was.
    pub fn open(process: &mut StoppedProcess, apart: Option<u64>) -> Result<Workshop, InjectError> {
        let gate = forbidden::check(process)?;
        let site = Rc::new(Site::set_up(process, gate, apart)?);
        process.set_resident(Some(site.clone()));
        Ok(Workshop { site })
    }

    /// Runs each thread's list, many at once; results are in the order of `lists`. A thread has one
    /// list at most.
    ///
    /// # Errors
    /// [`InjectError`].
    pub fn run(
        &mut self,
        process: &mut StoppedProcess,
        lists: Vec<(HostTid, CallList)>,
    ) -> Result<Vec<CallResults>, InjectError> {
        let mut known = HashSet::new();
        if let Some((tid, _)) = lists.iter().find(|(tid, _)| !known.insert(*tid)) {
            let (pid, tid) = (process.pid.0, tid.0);
            return Err(InjectError::Stranger { pid, tid });
        }
        let some = lists.chunks(LISTS_AT_ONCE);
        let results = some.map(|lists| self.site.run(process, lists));
        results.flatten_ok().collect()
    }

    /// As [`Workshop::run`], but each thread makes a child that makes the calls: what these change of a
    /// thread, they change of nobody who lives on. The child shares memory with it, and has its descriptors in a table of
    /// its own. Who may have no child (clone(2)) makes no
    /// call.
    ///
    /// # Errors
    /// As [`Workshop::run`].
    pub fn run_aside(
        &mut self,
        process: &mut StoppedProcess,
        lists: Vec<(HostTid, CallList)>,
    ) -> Result<Vec<io::Result<CallResults>>, InjectError> {
        self.site.run_aside(process, &lists)
    }

    /// Makes a copy-on-write picture of the memory (ADR 0002). [`Workshop::ranges`] are in it, too.
    ///
    /// # Errors
    /// [`InjectError::Refused`], [`InjectError::NoRoom`], [`InjectError::Reaper`] if there can be no
    /// picture: then read from the stopped process itself. The process is as before.
    pub fn take_picture(&mut self, process: &mut StoppedProcess) -> Result<Picture, InjectError> {
        pictures::take(&self.site, process)
    }

    /// A userfaultfd(2) of this process's memory, which is not among its descriptors and never was. Nothing has been said to it yet
    /// (`UFFDIO_API`).
    ///
    /// # Errors
    /// [`InjectError::Refused`] if there can be none. The process is as before.
    pub fn userfaultfd(&mut self, process: &mut StoppedProcess) -> Result<OwnedFd, InjectError> {
        borrow::userfaultfd(&self.site, process)
    }

    /// Addresses that belong to the workshop, not to the job: not to be in the image. A mapping of the
    /// job may have grown by them, since adjacent mappings of a kind are shown as one.
    #[must_use]
    pub fn ranges(&self) -> Vec<Range<u64>> {
        self.site.ranges()
    }

    /// Takes the workshop away; all threads are at a stop as before, with their own registers and masks.
    ///
    /// # Errors
    /// The first thing that failed, after all has been tried.
    pub fn close(self, process: &mut StoppedProcess) -> Result<(), InjectError> {
        process.set_resident(None);
        self.site.close(process)
    }
}
