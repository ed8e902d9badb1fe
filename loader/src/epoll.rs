//! Members of an epoll set that have fired (EPOLLONESHOT): the kernel watches them no more until the program says so.
//!
//! No call adds such a member: each new one is watched for EPOLLERR and EPOLLHUP at least (`do_epoll_ctl`, fs/eventpoll.c).
//! So it is added for everything, and fires at once.
//!
//! ```text
//! add for all events --is ready--> epoll_wait: fired
//!         `-an empty pipe of the job--> a byte is written, epoll_wait: fired, the byte is read
//!         `-anything else--> watched for hang-up and errors, which is said
//! ```

use crate::abi::*;
use crate::context::Context;
use crate::report::{self, Line, Outcome, failure};
use crate::sys::{self, Errno, SysResult, call};
use core::ffi::CStr;
use core::fmt::Write;
use loader::ops;

const EPOLL_CTL_ADD: u64 = 1;
const EPOLL_CTL_MOD: u64 = 3;
/// EPOLLIN, EPOLLPRI, EPOLLOUT, EPOLLRDHUP; the kernel adds EPOLLERR and EPOLLHUP.
const EVERY: u32 = 0x2007;
/// Bytes of `struct epoll_event`, which is packed.
const EVENT_LEN: usize = 12;

/// Adds a member that is not watched. No member of the set is watched when that is done.
pub fn add_fired(context: &Context, op: &ops::Fired) -> Outcome<()> {
    let failed = |error: Errno| {
        failure!(
            Failed,
            "descriptor {} (epoll): member {}, which has fired: {error}",
            op.epoll,
            op.fd
        )
    };
    let flags = op.events as u32;
    control(op, EPOLL_CTL_ADD, flags | EVERY).map_err(failed)?;
    if fires(op).map_err(failed)? || op.pipe == 1 && is_made_to_fire(op) {
        return Ok(());
    }
    control(op, EPOLL_CTL_MOD, flags).map_err(failed)?;
    report::say(
        context.name(),
        format_args!(
            "note: descriptor {} (epoll): member {}, which was not watched (EPOLLONESHOT), is watched for EPOLLHUP and EPOLLERR",
            op.epoll, op.fd
        ),
    );
    Ok(())
}

fn control(op: &ops::Fired, command: u64, events: u32) -> SysResult<u64> {
    let mut event = [0u8; EVENT_LEN];
    let (mask, data) = event.split_at_mut(4);
    mask.copy_from_slice(&events.to_le_bytes());
    data.copy_from_slice(&op.data.to_le_bytes());
    let args = [op.epoll, command, op.fd, event.as_ptr() as u64];
    // SAFETY: the kernel reads an epoll_event.
    unsafe { call(SYS_EPOLL_CTL, args) }
}

/// Takes an event, if there is one: the member is not watched then.
fn fires(op: &ops::Fired) -> SysResult<bool> {
    let mut event = [0u8; EVENT_LEN];
    let args = [op.epoll, event.as_mut_ptr() as u64, 1, 0, 0, 8];
    // SAFETY: the kernel writes one epoll_event at most.
    unsafe { call(SYS_EPOLL_PWAIT, args) }.map(|found| found == 1)
}

/// An empty pipe has a byte for a moment.
fn is_made_to_fire(op: &ops::Fired) -> bool {
    let mut link = Line::new();
    let _ = write!(link, "/proc/self/fd/{}\0", op.fd);
    let link = CStr::from_bytes_until_nul(link.bytes()).unwrap_or(c"");
    let Ok(end) = sys::open(link, O_WRONLY | O_NONBLOCK) else {
        return false;
    };
    let mut fired = false;
    if sys::write(end, b".") == Ok(1) {
        fired = fires(op) == Ok(true);
        let _ = sys::read(op.fd as i32, &mut [0]);
    }
    sys::close(end);
    fired
}
