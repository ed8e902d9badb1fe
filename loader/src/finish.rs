//! The end of a restart, from outside: every thread is given its registers, the loader's
//! memory is unmapped, and nothing of the loader is left (docs/adr/0003).
//!
//! ```text
//! parked --seize, interrupt--> stopped --call in progress entered--> stopped in it
//!   parent death signal: SIGKILL until here, now the job's own
//!   a first thread that had ended while others went on: ends
//!   first thread that lives: close_range(own descriptors), munmap(hole)
//!   all: signal mask, xstate, registers --detach--> the job goes on
//! ```
//! # What callers may rely on
//! Until the last step no instruction of the job runs. If we die on the way, the job dies with us.

use crate::abi::*;
use crate::context::{Context, OWN_COUNT, Own};
use crate::enforce;
use crate::interpret::fits;
use crate::report::{self, Failure, Outcome, failure};
use crate::sys::{self, Errno, SysResult};
use crate::threads::timeout_place;
use crate::traced::{ARGUMENTS, ORIG_RAX, RAX, REGISTER_COUNT, RIP, RegisterWords, Thread, ptrace};
use core::sync::atomic::Ordering;
use loader::ops::{AnyOp, InProgress, Registers, StreamEntry, StreamKind, tails, timeout};
use loader::processor::{USUAL_PKRU, component};
use loader::xstate::{Xstate, offered};

/// Why something cannot be done to a thread that stands still.
macro_rules! stopped {
    ($error:ident, $($text:tt)*) => {
        Failure::new(report::exit_of_stopped($error), format_args!($($text)*))
    };
}

/// What a thread stream says about the end.
#[derive(Default)]
struct Ending {
    has_ended: bool,
    registers: Option<(Registers, &'static [u8])>,
    in_progress: Option<InProgress>,
    dispatch: Option<[u64; 4]>,
    death_signal: u64,
}

fn ending(context: &Context, entry: &StreamEntry) -> Ending {
    let mut ending = Ending::default();
    for record in context.ops.records(entry).filter_map(Result::ok) {
        match record.op {
            AnyOp::Registers(op) => ending.registers = Some((op, record.tail)),
            AnyOp::Ended(_) => ending.has_ended = true,
            AnyOp::InProgress(op) => ending.in_progress = Some(op),
            AnyOp::Call(op) if op.nr == SYS_PRCTL && op.a0 == PR_SET_SYSCALL_USER_DISPATCH => {
                // struct ptrace_sud_config: mode, selector, offset, length.
                ending.dispatch = Some([op.a1, op.a4, op.a2, op.a3]);
            }
            AnyOp::Call(op) if op.nr == SYS_PRCTL && op.a0 == PR_SET_PDEATHSIG => {
                ending.death_signal = op.a1;
            }
            _ => {}
        }
    }
    ending
}

fn tid_of(context: &Context, stream: u64) -> i32 {
    context.shared(stream + 1).tid.load(Ordering::Acquire) as i32
}

/// All streams of a kind, with their index.
fn streams(
    context: &Context,
    kind: StreamKind,
) -> impl Iterator<Item = (u64, StreamEntry)> + use<'_> {
    (1..context.ops.header().streams)
        .filter_map(|index| Some((index, context.ops.stream(index)?)))
        .filter(move |(_, entry)| entry.kind == kind as u64)
}

/// Finishes all processes of the job, which stand still yet when this returns: [`let_run`] is next.
pub fn finish(context: &Context) -> Outcome<()> {
    let of_kind = |kind| streams(context, kind);
    for (stream, entry) in of_kind(StreamKind::Thread) {
        let tid = tid_of(context, stream);
        let failed =
            |error: Errno| stopped!(error, "thread {}: cannot be finished ({error})", entry.id);
        let thread = Thread::seize(tid).map_err(failed)?;
        if let Some(op) = ending(context, &entry).in_progress {
            let result = enter_again(context, stream, &thread, &op).map_err(failed)?;
            // What the call has returned, or -516: found again when registers are set.
            context
                .shared(stream + 1)
                .result
                .store(result as u32, Ordering::Relaxed);
        }
    }
    // All of them would die with us now, and need not die with their parents any more, but for the first if there is no pid 1 with whom it would be gone.
    for (stream, entry) in of_kind(StreamKind::Thread) {
        let of_process = context.ops.stream(entry.parent);
        let is_first = of_process.is_some_and(|process| process.id == entry.id);
        let signal = ending(context, &entry).death_signal;
        if is_first || signal != 0 {
            let thread = Thread {
                tid: tid_of(context, stream),
            };
            let is_root = of_process.is_some_and(|process| process.parent == 0);
            let signal = match signal {
                0 if is_first && is_root && !context.namespaces => u64::from(SIGKILL),
                signal => signal,
            };
            let set = [PR_SET_PDEATHSIG, signal, 0, 0, 0, 0];
            thread.call(SYS_PRCTL, set).map_err(|error| {
                let id = entry.id;
                stopped!(error, "thread {id}: parent death signal ({error})")
            })?;
        }
    }
    for (stream, entry) in of_kind(StreamKind::Process) {
        let failed = |error: Errno| {
            stopped!(
                error,
                "process {}: the loader cannot be taken out of it ({error})",
                entry.id
            )
        };
        let living = living_thread(context, stream)?;
        end_those_that_had(context, stream)?;
        let thread = Thread {
            tid: tid_of(context, living),
        };
        let own = context.own_number(Own::Image);
        let close = [own, own + OWN_COUNT - 1, 0, 0, 0, 0];
        thread.call(SYS_CLOSE_RANGE, close).map_err(failed)?;
        let hole = [context.base, context.image.header.hole_len, 0, 0, 0, 0];
        thread.call(SYS_MUNMAP, hole).map_err(failed)?;
    }
    for (stream, entry) in of_kind(StreamKind::Thread) {
        set_state(context, stream, &entry)?;
    }
    Ok(())
}

/// The first thread of a process that goes on; only its first one may have ended.
fn living_thread(context: &Context, process: u64) -> Outcome<u64> {
    let id = context.ops.stream(process).map_or(0, |entry| entry.id);
    let mut living = None;
    for (stream, entry) in context.streams_of(StreamKind::Thread, process) {
        match ending(context, &entry).has_ended {
            false => living = living.or(Some(stream)),
            true if entry.id == id => {}
            true => {
                return Err(failure!(
                    Image,
                    "section .wf.ops: thread {} has ended, and is not the first of process {id}",
                    entry.id
                ));
            }
        }
    }
    living.ok_or_else(|| {
        failure!(
            Image,
            "section .wf.ops: process {id} has no thread that lives"
        )
    })
}

/// Ends what had ended at the checkpoint: it is on its way out when this returns.
fn end_those_that_had(context: &Context, process: u64) -> Outcome<()> {
    for (stream, entry) in context.streams_of(StreamKind::Thread, process) {
        if ending(context, &entry).has_ended {
            let thread = Thread {
                tid: tid_of(context, stream),
            };
            let ended = thread.end();
            ended.map_err(|error| stopped!(error, "thread {}: cannot end ({error})", entry.id))?;
        }
    }
    Ok(())
}

/// Lets all processes of the job run.
pub fn let_run(context: &Context) -> Outcome<()> {
    let of_kind = |kind| streams(context, kind);
    for (stream, entry) in of_kind(StreamKind::Process) {
        let stopped = context
            .ops
            .records(&entry)
            .filter_map(Result::ok)
            .any(|record| matches!(record.op, AnyOp::Stopped(op) if op.signal != 0));
        if stopped {
            let _ = sys::kill(tid_of(context, stream), SIGSTOP);
        }
    }
    for (stream, entry) in of_kind(StreamKind::Thread) {
        if let Some(least) = context.options.niceness {
            sys::be_nicer(tid_of(context, stream), least).map_err(|error| {
                failure!(
                    Host,
                    "thread {}: niceness {least} is refused ({error})",
                    entry.id
                )
            })?;
        }
        match ptrace(PTRACE_DETACH, tid_of(context, stream), 0, 0) {
            // Those already let go may have ended the process by now.
            Ok(_) | Err(Errno(ESRCH)) => {}
            Err(error) => {
                return Err(failure!(
                    Failed,
                    "thread {}: cannot be let go ({error})",
                    entry.id
                ));
            }
        }
    }
    Ok(())
}

/// Enters the call a thread was in, with the time that was left, and interrupts it: so the
/// kernel's own note of how to go on with it is the thread's. Gives what the call returned.
fn enter_again(context: &Context, stream: u64, thread: &Thread, op: &InProgress) -> SysResult<i64> {
    let mut args = [op.a0, op.a1, op.a2, op.a3, op.a4, op.a5];
    let time = match op.timeout_in {
        timeout::MILLISECONDS => Some(op.remaining_ns.div_ceil(1_000_000)),
        timeout::TIMESPEC => Some(timeout_place(context, stream)),
        _ => None,
    };
    if let (Some(place), Some(time)) = (args.get_mut(op.timeout_arg as usize), time) {
        *place = time;
    }
    thread.enter_call(op.nr, args)?;
    thread.leave_call()
}

/// The signals that a call blocks while it lasts, if a thread was stopped in one that has a mask of its own
/// and is entered again.
fn mask_of_call(thread: &Thread, words: &RegisterWords) -> Option<u64> {
    const ERESTARTNOHAND: u64 = -514i64 as u64;
    /// SIGKILL and SIGSTOP.
    const UNBLOCKABLE: u64 = 1 << 8 | 1 << 18;
    let [rdi, _, _, r10, r8, r9] = ARGUMENTS.map(|argument| words[argument]);
    let address = match words[ORIG_RAX] {
        _ if words[RAX] != ERESTARTNOHAND => 0,
        SYS_RT_SIGSUSPEND => rdi,
        SYS_PPOLL => r10,
        SYS_EPOLL_PWAIT | SYS_EPOLL_PWAIT2 => r8,
        // Behind a pointer to the mask and its size.
        SYS_PSELECT6 if r9 != 0 => thread.word(r9).unwrap_or(0),
        _ => 0,
    };
    if address == 0 {
        return None;
    }
    Some(thread.word(address).ok()? & !UNBLOCKABLE)
}

/// Lets a thread enter such a call with its own registers, all signals blocked, and stops it at the entry. With
/// its mask set there, signals are handled as the call's own mask has it; before it, one that
/// only that mask blocks would be handled too early and end the call (docs/adr/0001). Being let go there
/// looks like a signal until a mask is set, which a call does only if it has another.
fn enter_with_mask(thread: &Thread, words: &mut RegisterWords) -> SysResult<()> {
    words[RAX] = words[ORIG_RAX];
    words[ORIG_RAX] = u64::MAX;
    words[RIP] = words[RIP].wrapping_sub(2);
    thread.set_mask(u64::MAX)?;
    thread.set_registers(words)?;
    let mut signal = 0;
    loop {
        ptrace(PTRACE_SYSCALL, thread.tid, 0, signal)?;
        let stop = thread.wait()?;
        match stop & 0xff {
            entry if entry == SIGTRAP | 0x80 => return Ok(()),
            _ if stop >> 8 != 0 => signal = 0,
            // It cannot be blocked. Anything else is a fault.
            SIGSTOP => signal = u64::from(SIGSTOP),
            _ => return Err(Errno(ESRCH)),
        }
    }
}

/// Gives a stopped thread mask, registers and everything else that only goes from outside.
fn set_state(context: &Context, stream: u64, entry: &StreamEntry) -> Outcome<()> {
    let id = entry.id;
    let failed = |what: &'static str| {
        move |error: Errno| stopped!(error, "thread {id}: {what} cannot be set ({error})")
    };
    let ending = ending(context, entry);
    if ending.has_ended {
        return Ok(());
    }
    let Some((registers, xstate)) = ending.registers else {
        return Err(failure!(
            Image,
            "section .wf.ops: thread {id} has no registers"
        ));
    };
    let thread = Thread {
        tid: tid_of(context, stream),
    };
    set_xstate(context, &thread, id, xstate)?;
    let mut words = [0; REGISTER_COUNT];
    let mut bytes = [0; 8 * REGISTER_COUNT];
    let mut at = 0;
    registers.encode(|field| {
        if let Some(place) = bytes.get_mut(at..at + field.len()) {
            place.copy_from_slice(field);
        }
        at += field.len();
    });
    for (word, raw) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut array = [0; 8];
        array.copy_from_slice(raw);
        *word = u64::from_le_bytes(array);
    }
    if ending.in_progress.is_some() {
        let result = context.shared(stream + 1).result.load(Ordering::Relaxed) as i32;
        words[RAX] = i64::from(result) as u64;
    }
    let moved = context.shared(stream + 1).rip.load(Ordering::Acquire);
    if moved != 0 {
        words[RIP] = moved;
    }
    let mask = registers.mask;
    if mask_of_call(&thread, &words).is_some_and(|call_mask| call_mask != mask) {
        enter_with_mask(&thread, &mut words).map_err(failed("call in progress"))?;
    } else {
        thread.set_registers(&words).map_err(failed("registers"))?;
    }
    thread.set_mask(mask).map_err(failed("signal mask"))?;
    if let Some(dispatch) = ending.dispatch {
        let size = size_of_val(&dispatch) as u64;
        ptrace(
            PTRACE_SET_SYSCALL_USER_DISPATCH_CONFIG,
            thread.tid,
            size,
            &raw const dispatch as u64,
        )
        .map_err(failed("syscall user dispatch"))?;
    }
    Ok(())
}

/// Sets x87, SSE, AVX ... The register set's length is the machine's; what the image has more or
/// less must be of no consequence.
fn set_xstate(context: &Context, thread: &Thread, id: u64, xstate: &'static [u8]) -> Outcome<()> {
    let registers = fits(tails::registers(xstate))?;
    let failed = |error: Errno| {
        stopped!(
            error,
            "thread {id}: extended registers cannot be set ({error})"
        )
    };
    // SAFETY: the buffers are used by nobody else in this process.
    let buffer = &mut unsafe { context.bytes(context.layout.buffers) }[..Xstate::MOST];
    let mut part = IoVec {
        base: buffer.as_mut_ptr() as u64,
        len: buffer.len() as u64,
    };
    ptrace(
        PTRACE_GETREGSET,
        thread.tid,
        NT_X86_XSTATE,
        &raw mut part as u64,
    )
    .map_err(failed)?;
    let machine = &mut buffer[..(part.len as usize).clamp(Xstate::LEAST, Xstate::MOST)];
    // A job that could not see protection keys has the value that every process begins with.
    let usual = enforce::pkru_at(context)
        .and_then(|at| registers.half_word(at))
        .is_some_and(|pkru| pkru == USUAL_PKRU);
    let needless = if usual {
        component::PKRU & !offered(machine)
    } else {
        0
    };
    registers.put_over(machine, needless).map_err(|missing| {
        failure!(
            Host,
            "thread {id}: this processor or kernel lacks register components {missing:#x} in use"
        )
    })?;
    thread.set(NT_X86_XSTATE, machine).map_err(failed)
}
