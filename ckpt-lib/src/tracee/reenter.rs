//! Calls in progress: entered again with the time that was left (ADR 0004).
//!
//! | left by the kernel | a mere checkpoint | a snapshot |
//! |---|---|---|
//! | -512 ... -514 | as it is | as it is |
//! | -516, a relative time-out | as it is: the restart block is still there | the call and the rest, made anew by the loader |
//! | -516, no time-out or an absolute one | as it is | -514: entered again with its own arguments |
//! | -4, only because of the stop | -514, with the rest as time-out | the same |
//!
//! Everything is told from the registers as they were at the stop, so it may be asked again and again.
//!
//! A thread goes on with -514 and the call's number in `orig_rax`, never with a `rip` set back: so
//! the kernel itself decides, when it goes on, whether a handler must run and the call must
//! end with EINTR after all. The exception are calls with a signal mask of their own, which the
//! kernel forgets when a tracer sets the thread's (ADR 0001): see [`StoppedThread::call_to_enter`].

use super::{Memory, StoppedThread};
use crate::snapshot::{Registers, TimedCall};
use std::ops::Range;

const EINTR: i64 = -4;
const ERESTARTSYS: i64 = -512;
const ERESTARTNOHAND: i64 = -514;
const ERESTART_RESTARTBLOCK: i64 = -516;
/// Bytes below the stack pointer that belong to the program (System V ABI).
const RED_ZONE: u64 = 128;
/// Bytes of a `struct timespec`, or `timeval`.
const REST_LEN: u64 = 16;
/// Length of `syscall`.
const SYSCALL_LEN: u64 = 2;
const FUTEX_CMD_MASK: u64 = 127;
const FUTEX_WAIT: u64 = 0;
const NANOS: u64 = 1_000_000_000;
/// A time-out that never comes.
const FOREVER_NS: u64 = u64::MAX;

/// A call in progress that does not simply go on as the kernel left it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interrupted {
    /// Which.
    pub(super) nr: i64,
    /// What is left of its time-out; [`FOREVER_NS`] if it has none or waits for a moment, none if it
    /// cannot be read: then the call will say so itself.
    rest_ns: Option<u64>,
    /// The stop has ended it with EINTR.
    pub(super) ended: bool,
}

impl Interrupted {
    /// What is left of a relative time-out.
    pub(super) fn timed_rest_ns(&self) -> Option<u64> {
        self.rest_ns.filter(|rest_ns| *rest_ns != FOREVER_NS)
    }
}

/// The call that a thread was stopped in, if the registers do not say all about it. `now_ns` is the
/// CLOCK_MONOTONIC moment that the rest is counted from.
pub(super) fn interrupted(
    thread: &StoppedThread,
    memory: &Memory,
    now_ns: u64,
) -> Option<Interrupted> {
    let registers = thread.registers();
    let nr = call_number(&registers)?;
    let noted = |(nr, expiry_ns): (i64, u64)| (nr, Some(expiry_ns.saturating_sub(now_ns)));
    let (nr, rest_ns) = match (registers.rax as i64, nr) {
        (EINTR, nr) if ENDED_BY_STOPS.contains(&nr) => {
            let noted = thread
                .remembered()
                .filter(|(noted, _)| *noted == nr)
                .map(noted);
            match noted.filter(|_| thread.before.asleep_ns.is_none()) {
                Some(noted) => noted,
                None => (nr, remaining(thread, memory, nr, &registers, now_ns)),
            }
        }
        (ERESTART_RESTARTBLOCK, libc::SYS_restart_syscall) => {
            if let Some(remembered) = thread.remembered() {
                noted(remembered)
            } else {
                let time_at = |address| read_timespec(memory, address);
                let nr = behind_restart(&registers, &thread.before.wchan, time_at)?;
                (nr, remaining(thread, memory, nr, &registers, now_ns))
            }
        }
        (ERESTART_RESTARTBLOCK, nr) => (nr, remaining(thread, memory, nr, &registers, now_ns)),
        _ => return None,
    };
    Some(Interrupted {
        nr,
        rest_ns,
        ended: registers.rax as i64 == EINTR,
    })
}

/// What a snapshot says of a thread that was stopped in a call, when that is not what the kernel
/// left in its registers; and the call and its remaining time, if the loader must make it anew.
/// `None`: it was in no call, or the registers are right as they are.
///
/// `now_ns` is the CLOCK_MONOTONIC moment that the rest is counted from. A rest that a call finds in
/// memory is written there, below the red zone of the thread's stack.
#[must_use]
pub fn translate(
    thread: &StoppedThread,
    memory: &Memory,
    now_ns: u64,
) -> Option<(Registers, Option<TimedCall>)> {
    let call = interrupted(thread, memory, now_ns)?;
    let mut again = thread.registers();
    again.orig_rax = call.nr as u64;
    if call.timed_rest_ns().is_none() || call.ended {
        again.rax = ERESTARTNOHAND as u64;
    }
    let Some(remaining_ns) = call.timed_rest_ns() else {
        return Some((again, None));
    };
    // After the restart a call shows as restart_syscall: the next checkpoint finds the rest in the
    // arguments.
    set_rest(memory, call.nr, &mut again, remaining_ns);
    let made_anew = TimedCall {
        nr: call.nr as u64,
        remaining_ns,
    };
    Some((again, (!call.ended).then_some(made_anew)))
}

/// What a thread goes on with after a mere checkpoint, if its call would return EINTR only because
/// of the stop.
pub(crate) fn go_on(thread: &StoppedThread, memory: &Memory, now_ns: u64) -> Option<Registers> {
    let call = interrupted(thread, memory, now_ns).filter(|call| call.ended)?;
    let mut again = thread.registers();
    again.rax = ERESTARTNOHAND as u64;
    if let Some(rest_ns) = call.timed_rest_ns() {
        set_rest(memory, call.nr, &mut again, rest_ns);
    }
    Some(again)
}

/// Registers with which a thread that was stopped in a call enters it again by itself, as the kernel would
/// have it do if nothing else was to be done before.
pub(super) fn entering(registers: &Registers) -> Option<Registers> {
    let nr = call_number(registers)?;
    let again = (ERESTARTNOHAND..=ERESTARTSYS).contains(&(registers.rax as i64));
    again.then_some(Registers {
        rax: nr as u64,
        orig_rax: u64::MAX,
        rip: registers.rip.wrapping_sub(SYSCALL_LEN),
        ..*registers
    })
}

/// How a call is told its time-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeIn {
    Milliseconds,
    Timespec,
    Timeval,
}

/// The argument of call `nr` that is its time-out.
fn time_argument(nr: i64, registers: &mut Registers) -> (TimeIn, &mut u64) {
    match nr {
        libc::SYS_poll => (TimeIn::Milliseconds, &mut registers.rdx),
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => (TimeIn::Milliseconds, &mut registers.r10),
        libc::SYS_nanosleep => (TimeIn::Timespec, &mut registers.rdi),
        libc::SYS_clock_nanosleep | libc::SYS_rt_sigtimedwait | libc::SYS_ppoll => {
            (TimeIn::Timespec, &mut registers.rdx)
        }
        libc::SYS_pselect6 => (TimeIn::Timespec, &mut registers.r8),
        libc::SYS_select => (TimeIn::Timeval, &mut registers.r8),
        _ => (TimeIn::Timespec, &mut registers.r10),
    }
}

/// The call that does the same with its time-out in milliseconds, in a register, where nothing of the program's memory is
/// needed for the rest: its number, and what has to be in the registers.
fn in_milliseconds(nr: i64, registers: &Registers, rest_ns: u64) -> Option<Registers> {
    // More than an `int` holds.
    if rest_ns.div_ceil(1_000_000) > i32::MAX as u64 {
        return None;
    }
    let mut same = *registers;
    let (number, argument) = match nr {
        libc::SYS_epoll_pwait2 => (libc::SYS_epoll_pwait, &mut same.r10),
        // Without a signal mask.
        libc::SYS_ppoll if registers.r10 == 0 => (libc::SYS_poll, &mut same.rdx),
        _ => return None,
    };
    *argument = our_milliseconds(rest_ns);
    same.orig_rax = number.cast_unsigned();
    Some(same)
}

/// Where the rest of a call's time-out would have to be written if its thread, which is in it, was stopped (`/proc/PID/task/TID/syscall`),
/// and where the program has the whole of it; none if none is written.
pub(crate) fn place_needed(nr: i64, args: [u64; 6], rsp: u64) -> Option<Needed> {
    let [rdi, rsi, rdx, r10, r8, r9] = args;
    let mut registers = Registers {
        rdi,
        rsi,
        rdx,
        r10,
        r8,
        r9,
        rsp,
        ..Registers::default()
    };
    let call = match nr {
        libc::SYS_rt_sigtimedwait => "rt_sigtimedwait",
        libc::SYS_select => "select",
        libc::SYS_pselect6 => "pselect6",
        libc::SYS_ppoll if r10 != 0 => "ppoll",
        _ => return None,
    };
    let place = rest_place(&registers);
    let (_, timeout) = time_argument(nr, &mut registers);
    (*timeout != 0).then_some(Needed {
        call,
        place: place..place.wrapping_add(REST_LEN),
        written_back: (nr != libc::SYS_rt_sigtimedwait).then_some(*timeout),
    })
}

/// See [`place_needed`].
pub(crate) struct Needed {
    /// The call.
    pub(crate) call: &'static str,
    /// The addresses.
    pub(crate) place: Range<u64>,
    /// Where the kernel itself writes what is left, if it can.
    pub(crate) written_back: Option<u64>,
}

/// Where a rest that a call finds in memory is written: below the red zone of the thread's stack.
fn rest_place(registers: &Registers) -> u64 {
    registers.rsp.wrapping_sub(RED_ZONE + REST_LEN) & !15
}

/// Makes `rest_ns` the time-out argument of call `nr`, or of one that does the same. If it can neither be written to memory nor be
/// said without, the argument stays as it is.
fn set_rest(memory: &Memory, nr: i64, registers: &mut Registers, rest_ns: u64) {
    if let Some(same) = in_milliseconds(nr, registers, rest_ns) {
        *registers = same;
        return;
    }
    let place = rest_place(registers);
    let (time_in, argument) = time_argument(nr, registers);
    let words = match time_in {
        TimeIn::Milliseconds => {
            *argument = our_milliseconds(rest_ns);
            return;
        }
        TimeIn::Timespec => [rest_ns / NANOS, rest_ns % NANOS],
        TimeIn::Timeval => {
            let micros = rest_ns.div_ceil(1000);
            [micros / 1_000_000, micros % 1_000_000]
        }
    };
    let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    if memory.is_readable(place, bytes.len()) && memory.write(place, &bytes).is_ok() {
        *argument = place;
    }
}

/// At the top of a time-out in milliseconds that we have set, of which the kernel takes the lower half (an `int`).
const OUR_TIME: u64 = 0x7766 << 48;

/// A time-out in milliseconds, rounded up, and by how many microseconds it was: a call that is stopped again and again
/// before a millisecond is over would never end if that was lost each time.
fn our_milliseconds(rest_ns: u64) -> u64 {
    let rest_us = rest_ns.div_ceil(1000);
    let rest_ms = rest_us.div_ceil(1000).min(i32::MAX as u64);
    let more_us = (rest_ms * 1000).saturating_sub(rest_us);
    OUR_TIME | more_us << 32 | rest_ms
}

/// Nanoseconds of a time-out in milliseconds; none if it is no time-out.
fn milliseconds_ns(argument: u64) -> Option<u64> {
    let ns = u64::try_from(argument as i32).ok()? * 1_000_000;
    let more_us = match is_our_milliseconds(argument) {
        true => argument >> 32 & 0xffff,
        false => 0,
    };
    Some(ns.saturating_sub(more_us * 1000))
}

fn is_our_milliseconds(argument: u64) -> bool {
    argument >> 48 == OUR_TIME >> 48
}

/// Whether the time-out argument of call `nr` is one that [`set_rest`] has set, and not the program itself: below its
/// red zone, or marked.
pub(super) fn has_our_time(nr: i64, registers: &Registers) -> bool {
    let mut registers = *registers;
    let place = rest_place(&registers);
    match time_argument(nr, &mut registers) {
        (TimeIn::Milliseconds, argument) => is_our_milliseconds(*argument),
        (_, argument) => *argument == place,
    }
}

/// Calls that a mere stop ends with EINTR (signal(7), "Interruption of system calls by stop signals");
/// and those that it ends so when the kernel cannot or may not write back what is left (a time-out in memory
/// that is read-only, STICKY_TIMEOUTS: fs/select.c, `poll_select_finish`); and calls on sockets that have a time-out (SO_RCVTIMEO, SO_SNDTIMEO;
/// include/net/sock.h, `sock_intr_errno`), which wait for the whole of it again. `connect` is none: the connection is being made meanwhile.
const ENDED_BY_STOPS: [i64; 20] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
];

fn call_number(registers: &Registers) -> Option<i64> {
    let nr = registers.orig_rax as i64;
    (nr >= 0).then_some(nr)
}

/// The call that `restart_syscall` stands for: told by where it slept, else by its arguments.
/// `time_at` reads a `struct timespec`, if one can be there.
fn behind_restart(
    registers: &Registers,
    wchan: &str,
    time_at: impl Fn(u64) -> Option<u64>,
) -> Option<i64> {
    let Registers { rdi, rsi, rdx, .. } = *registers;
    // Clock ids are small numbers (negative ones are clocks of processes and devices).
    let sleep = if rdi < 16 || (rdi as u32 as i32) < 0 && rdi >> 32 == 0 {
        libc::SYS_clock_nanosleep
    } else {
        libc::SYS_nanosleep
    };
    // Only calls with a time-out are restarted so. The second argument is a place for the remainder or
    // none, an operation, a number of descriptors.
    let is_time = |address: u64| address != 0 && time_at(address).is_some_and(|time| time > 0);
    let futex = rdi.is_multiple_of(4)
        && rsi < 512
        && [0, 9].contains(&(rsi & FUTEX_CMD_MASK))
        && is_time(registers.r10);
    let poll = rsi < 1 << 20 && rdx as i32 >= 0 && (rsi != 0 || rdi == 0 || !is_time(rdi));
    if wchan.contains("nanosleep") {
        Some(sleep)
    } else if wchan.contains("futex") {
        Some(libc::SYS_futex)
    } else if wchan.contains("poll") {
        Some(libc::SYS_poll)
    } else if sleep == libc::SYS_clock_nanosleep && rsi <= 1 {
        Some(sleep)
    } else if futex {
        Some(libc::SYS_futex)
    } else if poll {
        Some(libc::SYS_poll)
    } else {
        Some(sleep)
    }
}

/// What is left of the time-out of call `nr`; [`FOREVER_NS`] if it has none or waits for a moment.
fn remaining(
    thread: &StoppedThread,
    memory: &Memory,
    nr: i64,
    registers: &Registers,
    now_ns: u64,
) -> Option<u64> {
    let stopped_for = now_ns.saturating_sub(thread.stopped_at_ns);
    let sleep = Sleep {
        ns: thread.before.asleep_ns.unwrap_or(0),
        is_this_calls: has_our_time(nr, registers) || thread.before.woken_by_stop,
    };
    let left = |timeout_ns: u64| rest(timeout_ns, &sleep, stopped_for);
    let relative = |address: u64| match address {
        0 => Some(FOREVER_NS),
        _ => Some(left(thread.timeout_ns(|| read_timespec(memory, address))?)),
    };
    // The kernel has written what is left to where the program asked for it.
    let nanosleep = |request: u64, remainder: u64| match remainder {
        0 => relative(request),
        _ => Some(read_timespec(memory, remainder)?.saturating_sub(stopped_for)),
    };
    let milliseconds = |argument: u64| milliseconds_ns(argument).map_or(FOREVER_NS, left);
    match nr {
        libc::SYS_nanosleep => nanosleep(registers.rdi, registers.rsi),
        libc::SYS_clock_nanosleep if registers.rsi & libc::TIMER_ABSTIME as u64 != 0 => {
            Some(FOREVER_NS)
        }
        libc::SYS_clock_nanosleep => nanosleep(registers.rdx, registers.r10),
        libc::SYS_futex if registers.rsi & FUTEX_CMD_MASK == FUTEX_WAIT => relative(registers.r10),
        libc::SYS_epoll_pwait2 | libc::SYS_semtimedop => relative(registers.r10),
        libc::SYS_rt_sigtimedwait | libc::SYS_ppoll => relative(registers.rdx),
        libc::SYS_pselect6 => relative(registers.r8),
        libc::SYS_select if registers.r8 != 0 => Some(left(
            thread.timeout_ns(|| read_timeval(memory, registers.r8))?,
        )),
        libc::SYS_poll => Some(milliseconds(registers.rdx)),
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => Some(milliseconds(registers.r10)),
        _ => Some(FOREVER_NS),
    }
}

/// How long a thread had been asleep, as far as is known.
struct Sleep {
    /// Until it had stopped.
    ns: u64,
    /// It is certain that this was in the very call that it was stopped in. Else it may be the sleep of the call before: one that
    /// has only begun, and had not slept yet, cannot be told from it.
    is_this_calls: bool,
}

/// The longest sleep that is rather left out of account than taken for that of a call that may not be its own. A thread that
/// wakes by itself in the microseconds between the look at it and its stop is rare after longer ones; to take one off a
/// call that has only begun ends it early, to leave it out makes a call as much longer.
const DOUBTED_NS: u64 = NANOS / 10;
/// How much longer than its time-out a stopped thread may have slept by its account: the stop, and what came late.
const LATE_NS: u64 = NANOS;

/// What is left of a time-out. A call that was stopped had not timed out; if by its account it had, the
/// account is that of the call before, and this one has only begun; if it had long ago, it is nobody's.
fn rest(timeout_ns: u64, sleep: &Sleep, stopped_for_ns: u64) -> u64 {
    let is_nobodys = sleep.ns > timeout_ns.saturating_add(LATE_NS);
    let may_be_anothers = sleep.ns <= DOUBTED_NS || sleep.ns >= timeout_ns;
    let is_doubted = is_nobodys || (!sleep.is_this_calls && may_be_anothers);
    let gone_ns = if is_doubted { 0 } else { sleep.ns };
    timeout_ns.saturating_sub(gone_ns.saturating_add(stopped_for_ns))
}

fn read_timespec(memory: &Memory, address: u64) -> Option<u64> {
    let seconds = memory.read_u64(address).ok()?;
    let nanos = memory.read_u64(address.wrapping_add(8)).ok()?;
    if nanos >= NANOS {
        return None;
    }
    Some(
        seconds
            .saturating_mul(NANOS)
            .saturating_add(nanos)
            .min(FOREVER_NS - 1),
    )
}

fn read_timeval(memory: &Memory, address: u64) -> Option<u64> {
    let seconds = memory.read_u64(address).ok()?;
    let micros = memory.read_u64(address.wrapping_add(8)).ok()?;
    Some(
        seconds
            .saturating_mul(NANOS)
            .saturating_add(micros.saturating_mul(1000))
            .min(FOREVER_NS - 1),
    )
}

#[cfg(test)]
mod tests;
