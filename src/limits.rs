//! Limits of the caller's (getrlimit(2)) that the job could live with, and we could not.
//!
//! ```text
//! check: before anything is allocated that is to last            raise: before a job is begun
//!        `- soft limits on memory are raised, as far as needed          `- the others too, as far as they may be
//! the job: the limits that we were started with, set last (loader, Exec), but for descriptors that the shim needs (leave_the_job)
//! ```
//! # What callers may rely on
//! Where a hard limit is in the way, that is an error that says which, found and needed; nobody dies of it.

use crate::report::{Exit, Failure, Outcome};
use crate::sys;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A limit, and how much of it we need.
struct Limit {
    resource: Resource,
    /// Its name, of the manual's.
    name: &'static str,
    /// What it is on.
    what: &'static str,
    unit: &'static str,
}

const DATA: Limit = Limit {
    resource: Resource::RLIMIT_DATA,
    name: "RLIMIT_DATA",
    what: "private memory",
    unit: " bytes",
};
const SPACE: Limit = Limit {
    resource: Resource::RLIMIT_AS,
    name: "RLIMIT_AS",
    what: "the address space",
    unit: " bytes",
};
const FILE_SIZE: Limit = Limit {
    resource: Resource::RLIMIT_FSIZE,
    name: "RLIMIT_FSIZE",
    what: "the size of files, which counts for the memory file of the loader",
    unit: " bytes",
};
const FILES: Limit = Limit {
    resource: Resource::RLIMIT_NOFILE,
    name: "RLIMIT_NOFILE",
    what: "open files",
    unit: "",
};
const PROCESSES: Limit = Limit {
    resource: Resource::RLIMIT_NPROC,
    name: "RLIMIT_NPROC",
    what: "processes",
    unit: "",
};
const ALL: [Limit; 5] = [DATA, SPACE, FILE_SIZE, FILES, PROCESSES];

/// Private memory that the command needs, and the loader (measured: 26 MiB), which has most of it untouched.
const DATA_NEEDED: u64 = 32 << 20;
/// Address space: the same, and the command's file.
const SPACE_NEEDED: u64 = 40 << 20;
/// The loader, and what it is told but for words and environment.
const FILE_NEEDED: u64 = 1 << 20;
/// Descriptors beside those that we are given.
const FILES_NEEDED: u64 = 24;

/// Descriptors that the job may have at least, whatever its caller may.
static OF_THE_JOB: AtomicU64 = AtomicU64::new(0);
/// The limits that we were started with: number, soft, hard.
static FIRST: OnceLock<Vec<[u64; 3]>> = OnceLock::new();

fn first() -> &'static [[u64; 3]] {
    FIRST.get_or_init(|| ALL.iter().filter_map(Limit::now).collect())
}

/// What has to be given back to a job: limits that are others by now, as they were (number, soft, hard).
pub(crate) fn to_give_back() -> Vec<[u64; 3]> {
    let now: Vec<_> = ALL.iter().filter_map(Limit::now).collect();
    let least = OF_THE_JOB.load(Ordering::Relaxed);
    let given = first().iter().map(|&[number, soft, hard]| {
        let files = number == FILES.resource as u64;
        let soft = if files { soft.max(least) } else { soft };
        [number, soft, hard]
    });
    given.filter(|limit| !now.contains(limit)).collect()
}

/// The job may have so many descriptors: the shim's lie behind its own. Its hard limit stays as it is.
pub(crate) fn leave_the_job(least: u64) -> Outcome<()> {
    let (soft, hard) = getrlimit(FILES.resource)?;
    if hard < least {
        let message = format!(
            "limit on {} ({}) of a job with remote files: found {hard}, expected {least} at least (ulimit -Hn)",
            FILES.what, FILES.name
        );
        return Err(Failure::new(Exit::Host, message));
    }
    setrlimit(FILES.resource, soft.max(least), hard)?;
    OF_THE_JOB.store(least, Ordering::Relaxed);
    Ok(())
}

/// The job's shim has files in memory that are so long; what the job itself may, its shim says ([`to_give_back`]).
pub(crate) fn make_room_for_files(longest: u64) -> Outcome<()> {
    let what =
        "the size of files, which counts for memory files of a job with remote ones (ulimit -Hf)";
    Limit { what, ..FILE_SIZE }.make_room(longest)
}

/// There is no memory for a stack of our own beside a small one.
pub(crate) fn no_stack(errno: Errno) -> Failure {
    let (found, _) = getrlimit(Resource::RLIMIT_STACK).unwrap_or_default();
    let message = format!(
        "limit on the stack (RLIMIT_STACK): found {found} bytes, and no memory for another: {}",
        errno.desc()
    );
    Failure::new(Exit::Host, message)
}

/// A process like this one ([`sys::fork`]).
///
/// # Errors
/// There may be no more ([`no_more`]).
pub(crate) fn process() -> Outcome<Option<Pid>> {
    sys::fork().map_err(|errno| no_more("process", errno))
}

/// A thread that nobody waits for.
///
/// # Errors
/// There may be no more ([`no_more`]).
pub(crate) fn thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Outcome<()> {
    let begun = std::thread::Builder::new().spawn(work);
    begun.map(|_| ()).map_err(|error| {
        let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
        no_more("thread", errno)
    })
}

/// The kernel makes no more of them (fork(2), EAGAIN; pthread_create(3) says the same if there is no memory for a stack).
fn no_more(what: &str, errno: Errno) -> Failure {
    let (found, _) = getrlimit(PROCESSES.resource).unwrap_or((u64::MAX, 0));
    let limit = match found {
        u64::MAX => String::new(),
        found => format!(
            "; limit on the user's processes and threads ({}): found {found}",
            PROCESSES.name
        ),
    };
    if errno != Errno::EAGAIN {
        let message = format!("no {what} can be made: {}", errno.desc());
        return Failure::new(Exit::Failed, message);
    }
    let memory = match what {
        "thread" => ", or there is no memory for its stack (RLIMIT_AS, RLIMIT_DATA)",
        _ => "",
    };
    let message = format!(
        "no {what} can be made (EAGAIN): the user, its cgroup (pids.max) or the machine has as many as there may be{memory}{limit}"
    );
    Failure::new(Exit::Host, message)
}

/// Makes room in memory for ourselves.
pub(crate) fn check() -> Outcome<()> {
    first();
    DATA.make_room(DATA_NEEDED)?;
    SPACE.make_room(SPACE_NEEDED)
}

/// Makes room for beginning a job; `words_len`: bytes of its words and environment.
pub(crate) fn raise(words_len: u64) -> Outcome<()> {
    FILE_SIZE.make_room(FILE_NEEDED + words_len)?;
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    FILES.make_room(open as u64 + FILES_NEEDED)?;
    // How many there are only the kernel knows.
    if let Some([_, soft, hard]) = PROCESSES.now()
        && soft < hard
    {
        let _ = setrlimit(PROCESSES.resource, hard, hard);
    }
    Ok(())
}

impl Limit {
    fn now(&self) -> Option<[u64; 3]> {
        let (soft, hard) = getrlimit(self.resource).ok()?;
        Some([self.resource as u64, soft, hard])
    }

    /// Raises the soft limit if that is too low for so much, and the hard one too if that may be.
    fn make_room(&self, needed: u64) -> Outcome<()> {
        let Some([_, soft, hard]) = self.now() else {
            return Ok(());
        };
        if soft >= needed || setrlimit(self.resource, hard.max(needed), hard.max(needed)).is_ok() {
            return Ok(());
        }
        if hard >= needed && setrlimit(self.resource, hard, hard).is_ok() {
            return Ok(());
        }
        let Limit {
            name, what, unit, ..
        } = self;
        let message =
            format!("limit on {what} ({name}): found {hard}{unit}, expected {needed} at least");
        Err(Failure::new(Exit::Host, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_enough_stays_as_it_is() {
        let before = FILES.now();
        FILES.make_room(3).expect("there is room");
        assert_eq!(FILES.now(), before);
        assert!(to_give_back().is_empty());
    }
}
