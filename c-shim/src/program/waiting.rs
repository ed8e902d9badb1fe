//! Waiting for a lock, on a stream of its own: it may take for ever, and a signal may end it.
//!
//! ```text
//! asked --answer--> done
//!   `--a signal is to be delivered--> interrupted --answer: had after all--> done
//!                                          `--EINTR--> the signal is let in, then EINTR or asked again
//! ```
//! Signals wait, as they do for every call, until nothing is under way any more: a handler may leave by a jump. The
//! kernel tells of them (signalfd(2)) without delivering them, and which of their handlers let a call go on (SA_RESTART).

use super::lanes::{self, Put};
use super::patience::Patience;
use super::stream::{self, Broken, receive, send};
use super::sys::{self, Errno, call};
use super::{ends, process};
use crate::table::Reserved;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use wire::{Interrupt, Reply, Request};

/// Threads of a process that may wait at once.
const MOST_WAITING: usize = 64;
const SA_RESTART: u64 = 0x1000_0000;
const SFD_NONBLOCK_CLOEXEC: u64 = 0o2_004_000;
const POLLIN: i16 = 1;

/// The descriptors of a thread that waits.
struct Wait {
    taken: AtomicU32,
    stream: AtomicI32,
    signals: AtomicI32,
}

static WAITS: [Wait; MOST_WAITING] = [const {
    Wait {
        taken: AtomicU32::new(0),
        stream: AtomicI32::new(-1),
        signals: AtomicI32::new(-1),
    }
}; MOST_WAITING];

impl Wait {
    fn take() -> Option<&'static Wait> {
        WAITS
            .iter()
            .find(|one| one.taken.swap(1, Ordering::Acquire) == 0)
    }

    fn hang_up(&self) {
        for fd in [&self.stream, &self.signals] {
            let fd = fd.swap(-1, Ordering::Relaxed);
            if fd >= 0 {
                sys::close(fd);
            }
        }
    }

    fn give_back(&self) {
        self.hang_up();
        self.taken.store(0, Ordering::Release);
    }
}

/// We are a fork's child: nobody of us waits.
pub(super) fn forget() {
    for one in &WAITS {
        one.give_back();
    }
}

/// Whether a descriptor is one of ours.
pub(super) fn is_ours(fd: i32) -> bool {
    WAITS.iter().any(|one| {
        one.stream.load(Ordering::Relaxed) == fd || one.signals.load(Ordering::Relaxed) == fd
    })
}

/// How a wait has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Waited {
    /// With what was asked for.
    Had,
    /// With a signal, whose handler has run; whether the call goes on.
    Signalled { goes_on: bool },
}

/// Asks and waits for the answer, or for a signal.
///
/// # Errors
/// What the shadow answered; ENOLCK: too many wait, or no descriptor is left.
pub(super) fn wait(request: &Request<'_>) -> Result<Waited, Errno> {
    let undisturbed = sys::Undisturbed::begin();
    let wait = Wait::take().ok_or(Errno(sys::ENOLCK))?;
    let mut patience = Patience::new();
    let waited = loop {
        let waited = wait_on(wait, request, undisturbed.before());
        wait.hang_up();
        match waited {
            Ok(waited) => break waited,
            // Who asks again for what it has been given gets it again.
            Err(broken) => {
                if let Err(errno) = patience.after(broken) {
                    break Err(errno);
                }
            }
        }
    };
    wait.give_back();
    // Handlers run when `undisturbed` is dropped.
    waited
}

fn wait_on(
    wait: &Wait,
    request: &Request<'_>,
    masked: u64,
) -> Result<Result<Waited, Errno>, Broken> {
    let no_lock = |_| Broken::Here(Errno(sys::ENOLCK));
    let mut room = [0; 512];
    let stream = stream::begin(&mut room, 0)?;
    wait.stream.store(stream, Ordering::Relaxed);
    let wanted = !masked;
    let args = [u64::MAX, &raw const wanted as u64, 8, SFD_NONBLOCK_CLOEXEC];
    // SAFETY: the kernel reads the word.
    let signals = unsafe { call(sys::SIGNALFD4, args) }.map_err(no_lock)?;
    let signals = stream::out_of_the_way(signals as i32).map_err(no_lock)?;
    wait.signals.store(signals, Ordering::Relaxed);
    let number = lanes::next_number();
    let len = request.message(number, 0, &mut room);
    let len = len.map_err(|_| Broken::Here(Errno(sys::EIO)))?;
    send(stream, &room[..len], (core::ptr::null(), 0))?;
    let goes_on = match event(stream, signals) {
        Event::Answer => None,
        Event::Signal => {
            let goes_on = calls_go_on(wanted);
            let request = Request::Interrupt(Interrupt {});
            let len = request.message(lanes::next_number(), 0, &mut room);
            let len = len.map_err(|_| Broken::Here(Errno(sys::EIO)))?;
            send(stream, &room[..len], (core::ptr::null(), 0))?;
            Some(goes_on)
        }
    };
    let reply = receive(stream, &mut room, number, Put::Lane)?.reply;
    Ok(match (reply, goes_on) {
        (Reply::Done, _) => Ok(Waited::Had),
        // It had not begun to wait.
        (Reply::Failed(errno), Some(goes_on))
            if matches!(i32::from(errno), sys::EINTR | sys::EAGAIN) =>
        {
            Ok(Waited::Signalled { goes_on })
        }
        (Reply::Failed(errno), _) => Err(Errno(errno.into())),
        _ => Err(Errno(sys::EIO)),
    })
}

/// What has come first.
enum Event {
    Answer,
    Signal,
}

fn event(stream: i32, signals: i32) -> Event {
    /// `struct pollfd`.
    #[repr(C)]
    struct Watched {
        fd: i32,
        events: i16,
        found: i16,
    }
    let watch = |fd| Watched {
        fd,
        events: POLLIN,
        found: 0,
    };
    // What is closed may be what has the lock. A child of vfork has no lane to tell it on.
    let ends = if process::is_own() {
        Reserved::Ends.number()
    } else {
        -1
    };
    loop {
        let mut watched = [watch(stream), watch(signals), watch(ends)];
        // No time is the end of it.
        let args = [&raw mut watched as u64, 3, u64::MAX];
        // SAFETY: the kernel reads and writes the three records.
        let _ = unsafe { call(sys::POLL, args) };
        let [answer, signal, ended] = watched.map(|one| one.found != 0);
        if answer {
            return Event::Answer;
        }
        if signal {
            return Event::Signal;
        }
        if ended {
            ends::close_ended();
        }
    }
}

/// Whether all signals that are to be delivered let a call go on: they are ignored, stop us for a while or end us, or their
/// handlers are such.
fn calls_go_on(wanted: u64) -> bool {
    let mut pending = 0u64;
    // SAFETY: the kernel writes the word.
    let _ = unsafe { call(sys::RT_SIGPENDING, [&raw mut pending as u64, 8]) };
    (1..=64u64)
        .filter(|signal| pending & wanted & 1 << (signal - 1) != 0)
        .all(|signal| {
            // Handler, flags, restorer, mask.
            let mut action = [0u64; 4];
            let args = [signal, 0, &raw mut action as u64, 8];
            // SAFETY: the kernel writes `struct sigaction` as it has it, four words.
            let _ = unsafe { call(sys::RT_SIGACTION, args) };
            // SIG_DFL, SIG_IGN
            action[0] <= 1 || action[1] & SA_RESTART != 0
        })
}
