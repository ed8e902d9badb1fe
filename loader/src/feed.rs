//! Input pipes from outside: bytes that were unread at the checkpoint first, then whatever
//! comes from the restarter's descriptor.
//!
//! ```text
//! restarter's descriptor -> feeder process -> pipe -> job
//! ```

use crate::abi::*;
use crate::context::{Context, OWN_COUNT};
use crate::family::Family;
use crate::objects::to_slot;
use crate::report::{Outcome, failure};
use crate::supervise;
use crate::sys;
use crate::unread::{self, Unread};
use core::sync::atomic::Ordering;
use loader::ops;

const MOST_FEEDS: usize = 16;
/// `fcntl` commands.
const F_SETPIPE_SZ: u64 = 1031;

#[derive(Clone, Copy)]
struct Feed {
    from: i32,
    to: i32,
    left: Unread,
}

/// The feeders, one process each.
pub struct Feeds {
    feeds: [Option<Feed>; MOST_FEEDS],
}

/// Number of descriptors that feeds need behind the loader's own.
pub fn count(ops: &ops::OpsList<'_>) -> u64 {
    let prepare = ops.stream(0);
    let records = prepare.iter().flat_map(|entry| ops.records(entry));
    let feeds =
        records.filter(|record| matches!(record, Ok(r) if matches!(r.op, ops::AnyOp::Feed(_))));
    feeds.count().min(MOST_FEEDS) as u64
}

impl Feeds {
    pub fn new() -> Self {
        Feeds {
            feeds: [None; MOST_FEEDS],
        }
    }

    /// Makes the pipe; as much of the old bytes as it holds is in it at once.
    pub fn add(&mut self, context: &Context, op: &ops::Feed) -> Outcome<()> {
        let fd = op.fd;
        let mut left = Unread::new(op.from, op.at, op.len);
        let place = self.feeds.iter_mut().find(|feed| feed.is_none());
        let place = place.ok_or_else(|| failure!(Failed, "more than {MOST_FEEDS} input pipes"))?;
        if !context.options.may_inherit(fd) || sys::fcntl(fd as i32, F_GETFD, 0).is_err() {
            return Err(failure!(
                Failed,
                "input pipe {fd}: no such descriptor to go on reading from (give one with --inherit-fd {fd})"
            ));
        }
        let failed = |error| failure!(Failed, "input pipe {fd}: {error}");
        let [read, write] = sys::pipe(O_CLOEXEC).map_err(failed)?;
        let _ = sys::fcntl(write, F_SETPIPE_SZ, op.len.max(1 << 16));
        let _ = sys::fcntl(write, F_SETFL, O_NONBLOCK);
        while !left.is_empty() {
            match sys::write(write, left.read(unread::buffer(context))?) {
                Ok(len) => left.pass(len),
                Err(_) => break,
            }
        }
        let _ = sys::fcntl(write, F_SETFL, 0);
        let header = context.ops.header();
        let behind = header.slot_base + header.slot_count + OWN_COUNT;
        let to = sys::fcntl(write, F_DUPFD_CLOEXEC, behind).map_err(failed)? as i32;
        sys::close(write);
        to_slot(read, op.slot, "input pipe")?;
        let _ = sys::fcntl(op.slot as i32, F_SETFL, op.flags);
        *place = Some(Feed {
            from: fd as i32,
            to,
            left,
        });
        Ok(())
    }

    /// Starts a process for each; they end with their parent. When this returns, they hold nothing that the job has
    /// but the ends they write to: its readers and writers must see others end.
    /// They take nothing from the outside before [`Feeds::go`]: a restart that fails loses no byte.
    pub fn start(&self, context: &Context, family: &mut Family) -> Outcome<()> {
        if self.feeds.iter().flatten().next().is_none() {
            return Ok(());
        }
        let failed = |error| failure!(Failed, "input pipes: {error}");
        let [told, tell] = sys::pipe(O_CLOEXEC).map_err(failed)?;
        for feed in self.feeds.iter().flatten() {
            match sys::clone_process(0, None) {
                Ok(0) => {
                    let _ = sys::prctl(PR_SET_PDEATHSIG, u64::from(SIGKILL));
                    feed.close_others();
                    supervise::forget_contents(context);
                    let go = &context.shared(0).parked;
                    while go.load(Ordering::Acquire) == 0 {
                        sys::futex_wait(go, 0);
                    }
                    feed.run();
                }
                Ok(pid) => family.add(pid),
                Err(error) => {
                    let fd = feed.from;
                    return Err(failure!(Failed, "input pipe {fd}: no process ({error})"));
                }
            }
        }
        sys::close(tell);
        // It ends when the last of them has closed it, with all else.
        while sys::read(told, &mut [0]) == Err(sys::Errno(EINTR)) {}
        sys::close(told);
        Ok(())
    }

    /// The job runs.
    pub fn go(&self, context: &Context) {
        let go = &context.shared(0).parked;
        go.store(1, Ordering::Release);
        sys::futex_wake(go);
    }
}

impl Feed {
    fn close_others(&self) {
        let mut own = [self.from, self.to, self.left.from].map(|fd| fd as u64);
        own.sort_unstable();
        let mut next = 0;
        for fd in own {
            if next < fd {
                sys::close_range(next, fd - 1);
            }
            next = fd + 1;
        }
        sys::close_range(next, u64::from(u32::MAX));
    }

    fn run(&self) -> ! {
        let mut buffer = [0u8; 16384];
        let mut left = self.left;
        while !left.is_empty() {
            // They are there, in memory: that was seen.
            match left.read(&mut buffer) {
                Ok(bytes) if write_all(self.to, bytes) => left.pass(bytes.len()),
                _ => sys::exit_group(0),
            }
        }
        sys::close(left.from);
        loop {
            match sys::read(self.from, &mut buffer) {
                Ok(0) => sys::exit_group(0),
                Ok(len) => {
                    if !write_all(self.to, &buffer[..len]) {
                        sys::exit_group(0);
                    }
                }
                Err(sys::Errno(EAGAIN)) => {
                    let mut fds = [PollFd {
                        fd: self.from,
                        events: POLLIN,
                        revents: 0,
                    }];
                    let _ = sys::poll(&mut fds, None);
                }
                Err(sys::Errno(EINTR)) => {}
                Err(_) => sys::exit_group(0),
            }
        }
    }
}

/// Writes everything; false when nobody reads any more.
pub fn write_all(fd: i32, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match sys::write(fd, bytes) {
            Ok(len) => bytes = &bytes[len..],
            Err(sys::Errno(EINTR)) => {}
            Err(_) => return false,
        }
    }
    true
}
