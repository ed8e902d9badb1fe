//! Taking a picture (ADR 0002).
//!
//! ```text
//! job's thread --clone(VM|VFORK|FILES)--> intermediate --clone(FILES)--> picture
//!      |  waits for it                        | exits                        | drops all descriptors
//!      `- parks                               `- reaped by the job's thread  `- stays at a ptrace stop
//! ```
//! Intermediate and picture are traced by us from their first instruction, since the job's thread
//! is while it clones. If we die, the intermediate exits, the thread goes home, and the picture
//! ends itself after some seconds (or at once, as soon as it is said to end with us).

use super::children::{await_birth, await_end, next_child, refusal, refused};
use super::hands::{self, trace};
use super::runner::slot;
use super::site::{Entry, HOST, Site};
use super::{CallList, InjectError, InsideArg};
use crate::picture::Picture;
use crate::procfs::{ProcDir, memory_room, parse_status};
use crate::sys::ptrace;
use crate::tracee::{Deadline, HostPid, HostTid, StoppedProcess};

pub(super) fn take(site: &Site, process: &mut StoppedProcess) -> Result<Picture, InjectError> {
    check_room(process)?;
    check_reaper(site, process)?;
    let pid = process.pid.0;
    let tid = process.threads[HOST].tid;
    site.hand_out(process, &[])?;
    ptrace::set_options(tid.0, ptrace::OPTION_SYSGOOD | ptrace::OPTION_CLONES).map_err(trace(
        pid,
        tid,
        "set options",
    ))?;
    let born = follow(site, process, tid);
    // Whatever came of it, the thread is brought to a stop and clones unseen from now on.
    let deadline = Deadline::after(hands::CALL_LIMIT);
    let gathered = site.gather(process, &[HOST], &deadline);
    let reset = ptrace::set_options(tid.0, ptrace::OPTION_SYSGOOD);
    let picture = born?;
    gathered?;
    reset.map_err(trace(pid, tid, "set options"))?;
    site.clean(picture.memory())?;
    Ok(picture)
}

/// All pages may have to be copied, when the job writes to all of them while the picture exists.
fn check_room(process: &StoppedProcess) -> Result<(), InjectError> {
    let pid = process.pid.0;
    let Some(room) = memory_room(pid) else {
        return Ok(());
    };
    let status = ProcDir::of(pid).bytes("status").unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let needed = kib.unwrap_or(0) * 1024;
    if needed > room.left() {
        return Err(InjectError::NoRoom {
            pid,
            needed,
            left: room.left(),
        });
    }
    Ok(())
}

/// An orphan is given to the nearest reaper, which must not be the job itself.
fn check_reaper(site: &Site, process: &mut StoppedProcess) -> Result<(), InjectError> {
    let pid = process.pid.0;
    let status = ProcDir::of(pid).parsed("status", parse_status);
    let inner = status
        .ok()
        .and_then(|status| status.ns_tgid.last().copied());
    if inner == Some(1) {
        return Err(InjectError::Reaper { pid });
    }
    let mut list = CallList::new();
    let flag = list.space(4);
    let get = InsideArg::Value(libc::PR_GET_CHILD_SUBREAPER as u64);
    list.call(libc::SYS_prctl, &[get, InsideArg::Data(flag)]);
    let tid = process.threads[HOST].tid;
    let results = site.run(process, &[(tid, list)])?;
    let set = results
        .first()
        .is_some_and(|results| results.bytes(flag) != [0; 4]);
    if set {
        return Err(InjectError::Reaper { pid });
    }
    Ok(())
}

/// Follows the clones until the picture has dropped its descriptors and the intermediate is gone.
fn follow(site: &Site, process: &mut StoppedProcess, tid: HostTid) -> Result<Picture, InjectError> {
    let pid = process.pid.0;
    site.launch(process, HOST, Entry::Picture)?;
    let Some(intermediate) = next_child(site, process, tid, slot::INTERMEDIATE)? else {
        return Err(refused(site, process, slot::INTERMEDIATE));
    };
    await_birth(pid, intermediate)?;
    ptrace::cont(tid.0, 0).map_err(trace(pid, tid, "let run"))?;
    ptrace::cont(intermediate.0, 0).map_err(trace(pid, intermediate, "let run"))?;
    let Some(picture) = next_child(site, process, intermediate, slot::PICTURE)? else {
        // It leaves without a child; we have to take notice before its parent can.
        await_end(intermediate)?;
        return Err(refused(site, process, slot::PICTURE));
    };
    let picture = settle(pid, picture);
    // The intermediate must go, whatever became of the picture, for the job's thread waits for it.
    ptrace::cont(intermediate.0, 0).map_err(trace(pid, intermediate, "let run"))?;
    await_end(intermediate)?;
    picture
}

/// Brings the picture from its birth to where it holds nothing.
fn settle(pid: i32, picture: HostTid) -> Result<Picture, InjectError> {
    await_birth(pid, picture)?;
    let options = ptrace::OPTION_SYSGOOD | ptrace::OPTION_EXITKILL;
    ptrace::set_options(picture.0, options).map_err(trace(pid, picture, "set options"))?;
    let guard = Picture::adopt(HostPid(picture.0)).map_err(|source| InjectError::Memory {
        pid: picture.0,
        address: 0,
        source,
    })?;
    hands::to_syscall_stop(pid, picture)?;
    hands::to_syscall_stop(pid, picture)?;
    let registers = ptrace::registers(picture.0).map_err(trace(pid, picture, "read registers"))?;
    if registers.rax != 0 {
        return Err(refusal(
            pid,
            "close_range in a picture",
            registers.rax as i64,
        ));
    }
    Ok(guard)
}
