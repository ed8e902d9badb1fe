//! A descriptor that only a process with the job's memory can make, without its being the job's for a moment.
//!
//! ```text
//! job's thread --clone(VM|VFORK)--> child: userfaultfd, sleeps --we take the descriptor, kill--> gone
//!      `- waits for it, parks
//! ```
//! The child has a table of descriptors of its own. If we die, it ends after a second, and the descriptor with it.

use super::children::{await_birth, await_end, next_child, refusal, refused};
use super::hands::{self, trace};
use super::runner::slot;
use super::site::{Entry, HOST, Site};
use super::{CallList, InjectError, InsideArg};
use crate::sys::foreign::{pidfd_getfd, pidfd_open};
use crate::sys::{ptrace, userfaultfd};
use crate::tracee::{Deadline, HostTid, StoppedProcess};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Seconds that the child waits for us.
const PATIENCE_S: u64 = 1;

pub(super) fn userfaultfd(
    site: &Site,
    process: &mut StoppedProcess,
) -> Result<OwnedFd, InjectError> {
    let pid = process.pid.0;
    let tid = process.threads[HOST].tid;
    // A thread's first entry leads to its list.
    site.run(process, &[(tid, CallList::new())])?;
    let value = InsideArg::Value;
    let mut list = CallList::new();
    let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64 | userfaultfd::USER_MODE_ONLY;
    let made = list.call(libc::SYS_userfaultfd, &[value(flags)]);
    let is_made = list.call(libc::SYS_getpid, &[]);
    let time = [PATIENCE_S, 0].map(u64::to_le_bytes).concat();
    let time = InsideArg::Data(list.data(&time));
    let nothing = value(0);
    list.call(
        libc::SYS_pselect6,
        &[nothing, nothing, nothing, nothing, time],
    );
    let at = site.place(process, &[HOST], &[(tid, list)])?;
    let options = |options| {
        let set = ptrace::set_options(tid.0, options);
        set.map_err(trace(pid, tid, "set options"))
    };
    options(ptrace::OPTION_SYSGOOD | ptrace::OPTION_CLONES)?;
    let results = [made, is_made].map(|call| at.result(call));
    let taken = take(site, process, tid, results);
    // Whatever came of it, the thread is brought to a stop and clones unseen from now on.
    let deadline = Deadline::after(hands::CALL_LIMIT);
    let gathered = site.gather(process, &[HOST], &deadline);
    let reset = options(ptrace::OPTION_SYSGOOD);
    let taken = taken?;
    gathered?;
    reset?;
    Ok(taken)
}

/// `results`: addresses of what the first call gave, and of what the second did, which is never an error.
fn take(
    site: &Site,
    process: &mut StoppedProcess,
    tid: HostTid,
    [made, is_made]: [u64; 2],
) -> Result<OwnedFd, InjectError> {
    let pid = process.pid.0;
    site.launch(process, HOST, Entry::Aside)?;
    let Some(child) = next_child(site, process, tid, slot::INTERMEDIATE)? else {
        return Err(refused(site, process, slot::INTERMEDIATE));
    };
    await_birth(pid, child)?;
    ptrace::cont(tid.0, 0).map_err(trace(pid, tid, "let run"))?;
    ptrace::cont(child.0, 0).map_err(trace(pid, child, "let run"))?;
    let word = |address| -> Result<i64, InjectError> {
        let word = process.memory().read_u64(address);
        let word = word.map_err(|source| InjectError::Memory {
            pid,
            address,
            source,
        })?;
        Ok(word.cast_signed())
    };
    let deadline = Deadline::after(hands::CALL_LIMIT);
    let gone = || InjectError::Refused {
        pid,
        what: "userfaultfd in a child",
        source: io::ErrorKind::PermissionDenied.into(),
    };
    let found = deadline.poll(|| match word(is_made) {
        // A filter may have it stop, or end.
        Ok(result) if result < 0 => match ptrace::try_wait(child.0) {
            Ok(None) => None,
            _ => Some(Err(gone())),
        },
        Ok(_) => Some(word(made)),
        Err(error) => Some(Err(error)),
    });
    let taken = match found {
        None => Err(hands::missed(child, &deadline)),
        Some(Err(error)) => Err(error),
        Some(Ok(made)) => match i32::try_from(made) {
            Ok(number @ 0..) => pidfd_open(child.0)
                .and_then(|child| pidfd_getfd(child.as_fd(), number))
                .map_err(|source| InjectError::Refused {
                    pid,
                    what: "taking a userfaultfd",
                    source,
                }),
            _ => Err(refusal(pid, "userfaultfd", made)),
        },
    };
    // Its parent waits for its end.
    let killed = match ptrace::kill(child.0, libc::SIGKILL) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    killed.map_err(trace(pid, child, "kill"))?;
    await_end(child)?;
    taken
}
