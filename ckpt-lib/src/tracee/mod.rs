//! Quiescing: bringing every thread of a job to a stop it can be copied in.
//!
//! ```text
//! running --seize all--> settling --all stopped--> quiesced --drop--> running
//!                           `--deadline, death--> running, or gone
//! ```
//! # What callers may rely on
//! While a [`Quiesced`] exists, no thread of the job executes an instruction.
//! Dropping it lets the job run, so no error path can leave a job stopped.
//! A `Quiesced` belongs to the thread that made it (ptrace knows threads, not processes).
//!
//! # What it does not do
//! It runs nothing in the job (see [`crate::inject`]).

mod before;
mod expiry;
mod holder;
mod memory;
mod reaper;
pub mod reenter;
mod settle;
mod thread;
mod vdso_exit;

pub use before::BeforeStop;
pub use expiry::{CallNotes, ExpiryNote, SharedNotes};
pub(crate) use holder::lets_go_soon;
pub use memory::Memory;
use reaper::Reaper;
pub(crate) use settle::{Deadline, is_at_known_stop, wait_stopped};
pub use thread::StoppedThread;

use crate::procfs::ProcfsError;
use crate::sys::{foreign, ptrace};
use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

/// A process id as wayfarer itself sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPid(pub i32);

/// A thread id as wayfarer itself sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostTid(pub i32);

/// Why a job could not be stopped, or a stopped thread not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StopError {
    /// The process has ended.
    #[error("process {pid} has ended")]
    Gone {
        /// Which.
        pid: i32,
    },
    /// Its threads cannot be listed, though it lives.
    #[error("the threads of process {pid} cannot be listed")]
    Unlisted {
        /// Which.
        pid: i32,
        /// Why.
        #[source]
        source: ProcfsError,
    },
    /// The kernel does not let us trace it.
    #[error("may not trace thread {tid} of process {pid}")]
    Denied {
        /// Which process.
        pid: i32,
        /// Which thread.
        tid: i32,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Somebody else traces it.
    #[error("process {pid} is traced by process {tracer}")]
    Traced {
        /// Which.
        pid: i32,
        /// By whom.
        tracer: i32,
    },
    /// It did not come to a stop in time.
    #[error("thread {tid} of process {pid} did not stop within {waited_ms} ms")]
    Deadline {
        /// Which process.
        pid: i32,
        /// Which thread.
        tid: i32,
        /// How long it was given.
        waited_ms: u64,
    },
    /// Something of ours could not be taken out of it; its threads go home by themselves.
    #[error("not all could be undone in process {pid}")]
    LeftBehind {
        /// Which process.
        pid: i32,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A request about a stopped thread failed.
    #[error("cannot {what} of thread {tid}")]
    Request {
        /// Which thread.
        tid: i32,
        /// What was asked.
        what: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

impl StopError {
    /// Whether it only says that a thread is not at its stop: killed, or gone to execute a program.
    fn is_not_stopped(&self) -> bool {
        matches!(self, StopError::Request { source, .. } if source.raw_os_error() == Some(libc::ESRCH))
    }
}

/// A job at rest. While it exists no thread of the job executes an instruction.
#[derive(Debug)]
pub struct Quiesced {
    processes: Vec<StoppedProcess>,
    /// Where it is remembered when calls in progress time out.
    notes: Option<SharedNotes>,
    /// The processes once more, as nobody else can be: after the reaper has taken notice of the end of one, its id may be another's.
    handles: Vec<io::Result<OwnedFd>>,
    /// The end of a killed process's first thread is told when notice has been taken of all others: until then
    /// a wait for the first one would be in vain.
    _reaper: Reaper,
    one_thread_only: PhantomData<*const ()>,
}

/// A process all of whose threads are at a ptrace stop.
#[derive(Debug)]
pub struct StoppedProcess {
    /// Its id.
    pub pid: HostPid,
    /// Its threads, that of `pid` first.
    pub threads: Vec<StoppedThread>,
    /// The signal of job control that it is stopped by.
    pub group_stopped: Option<i32>,
    memory: Memory,
    /// Where it has its vDSO.
    vdso: Option<Range<u64>>,
    /// Whoever has put something into the process and must take it out before it goes on.
    resident: Option<Rc<dyn Resident>>,
}

/// Something of ours that lives in a stopped process.
pub(crate) trait Resident: std::fmt::Debug {
    /// Takes everything out of the process again and brings its threads home.
    fn leave(&self, process: &mut StoppedProcess) -> Result<(), StopError>;
}

impl Quiesced {
    /// Stops all threads of these processes.
    ///
    /// Processes that they start meanwhile are not stopped: look for children afterwards.
    ///
    /// # Errors
    /// [`StopError`]; everything that had been stopped runs again.
    pub fn stop(roots: &[HostPid], deadline: Duration) -> Result<Quiesced, StopError> {
        let (mut processes, reaper) = settle::stop_all(roots, deadline)?;
        for process in &mut processes {
            process.be_ready_to_go_on();
        }
        let handles = processes.iter();
        let handles = handles.map(|process| foreign::pidfd_open(process.pid.0));
        let quiesced = Quiesced {
            handles: handles.collect(),
            processes,
            notes: None,
            _reaper: reaper,
            one_thread_only: PhantomData,
        };
        // By what has ended a process cannot be looked at any more.
        let is_gone = |process: &&StoppedProcess| process.thread(HostTid(process.pid.0)).is_none();
        match quiesced.processes.iter().find(is_gone) {
            Some(process) => Err(StopError::Gone { pid: process.pid.0 }),
            None => Ok(quiesced),
        }
    }

    /// The processes, in the order they were asked for.
    #[must_use]
    pub fn processes(&self) -> &[StoppedProcess] {
        &self.processes
    }

    /// The processes, to work in them.
    pub fn processes_mut(&mut self) -> &mut [StoppedProcess] {
        &mut self.processes
    }

    /// Lets all threads go on; calls that would return EINTR only because of the stop are entered again.
    /// A process that was stopped by job control stays stopped.
    ///
    /// # Errors
    /// The first thread that could not be let go, after all have been tried.
    pub fn resume(mut self) -> Result<(), StopError> {
        self.let_go()
    }

    /// Kills all processes.
    ///
    /// # Errors
    /// The first that could not be killed, after all have been tried.
    pub fn kill(mut self) -> Result<(), StopError> {
        let mut result = Ok(());
        let handles = std::mem::take(&mut self.handles);
        for (process, handle) in std::mem::take(&mut self.processes).into_iter().zip(handles) {
            let killed = match handle {
                Ok(handle) => foreign::pidfd_kill(handle.as_fd()),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
                // A filter that knows no pidfds.
                Err(_) => ptrace::kill(process.pid.0, libc::SIGKILL),
            };
            // Who has ended meanwhile is as dead as was asked for.
            let alive = |error: &io::Error| error.raw_os_error() != Some(libc::ESRCH);
            if let Some(source) = killed.err().filter(alive) {
                result = result.and(Err(StopError::Request {
                    tid: process.pid.0,
                    what: "kill the process",
                    source,
                }));
            }
            // The leader's end is told when all others have been taken notice of.
            for thread in process.threads.iter().rev() {
                // Killed, it ends by itself; being its tracer, we have to take notice.
                Deadline::after(KILL_WAIT).poll(|| has_ended(thread.tid.0));
            }
        }
        result
    }

    fn let_go(&mut self) -> Result<(), StopError> {
        if self.processes.is_empty() {
            return Ok(());
        }
        let mut result = Ok(());
        for process in &mut self.processes {
            if let Some(resident) = process.resident.take() {
                result = result.and(resident.leave(process));
            }
            process.enter_again(Some(ptrace::monotonic_ns()));
            for thread in &mut process.threads {
                result = result.and(thread.bring_home());
            }
        }
        // From here on they do nothing more for us.
        let notes = self.notes.take().map(|notes| (self.expiry_notes(), notes));
        let processes = std::mem::take(&mut self.processes);
        let threads = processes.iter().flat_map(|process| {
            let group_stopped = process.group_stopped.is_some();
            process
                .threads
                .iter()
                .map(move |thread| (thread, group_stopped))
        });
        for (thread, group_stopped) in threads {
            if thread.is_abandoned() {
                settle::let_go(thread.tid.0);
                continue;
            }
            match thread.detach(group_stopped) {
                // Killed while it was stopped.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                    settle::let_go(thread.tid.0);
                }
                Err(source) => {
                    result = result.and(Err(StopError::Request {
                        tid: thread.tid.0,
                        what: "let go",
                        source,
                    }));
                }
                Ok(()) => {}
            }
        }
        if let Some((now, notes)) = notes {
            notes.borrow_mut().replace(now);
        }
        result
    }
}

/// Takes notice of the end of a killed thread, if it has come.
pub(crate) fn has_ended(tid: i32) -> Option<()> {
    matches!(
        ptrace::try_wait(tid),
        Ok(Some(ptrace::Waited::Ended)) | Err(_)
    )
    .then_some(())
}

/// How long the kernel may take to end a killed thread.
const KILL_WAIT: Duration = Duration::from_secs(5);

impl Drop for Quiesced {
    fn drop(&mut self) {
        let _ = self.let_go();
    }
}

impl StoppedProcess {
    /// Its memory.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// One of its threads.
    #[must_use]
    pub fn thread(&self, tid: HostTid) -> Option<&StoppedThread> {
        self.threads.iter().find(|thread| thread.tid == tid)
    }

    /// The same, to change what it goes on with.
    pub fn thread_mut(&mut self, tid: HostTid) -> Option<&mut StoppedThread> {
        self.threads.iter_mut().find(|thread| thread.tid == tid)
    }

    /// Has calls that would return EINTR only because of the stop entered again, with what is left at
    /// `now_ns`, or was left at the stop. The latter is what memory must say while it is copied.
    pub(crate) fn enter_again(&mut self, now_ns: Option<u64>) {
        for thread in &mut self.threads {
            if thread.is_abandoned() {
                continue;
            }
            let now_ns = now_ns.unwrap_or(thread.stopped_at_ns);
            if let Some(registers) = reenter::go_on(thread, &self.memory, now_ns) {
                thread.set_registers(&registers);
            }
        }
    }

    /// Has calls entered again also if we are killed (SIGKILL) while it stands still: then the kernel lets it go with what is in force.
    fn be_ready_to_go_on(&mut self) {
        self.enter_again(None);
        for thread in &mut self.threads {
            // One that fails has been killed, which whoever works with it next will see.
            let _ = thread.bring_home();
        }
    }

    pub(crate) fn parts(&mut self) -> (&mut [StoppedThread], &Memory) {
        (&mut self.threads, &self.memory)
    }

    pub(crate) fn vdso(&self) -> Option<Range<u64>> {
        self.vdso.clone()
    }

    pub(crate) fn set_resident(&mut self, resident: Option<Rc<dyn Resident>>) {
        self.resident = resident;
    }
}
