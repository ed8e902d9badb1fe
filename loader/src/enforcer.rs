//! Keeps the job's processes on the lesser processor that `--baseline` asked for (docs/adr/0007).
//!
//! ```text
//! the job's first process: a filter, inherited by all --asks--> P1, at
//!   execve                   let go, and held where not one instruction of the new program has run:
//!                            pages mapped, SIGSEGV led to them, CPUID made to fault
//!   rt_sigaction(SIGSEGV)    default action, or only asked: answered here, as if there were no handler
//!   SIGSEGV taken or blocked the process falls: CPUID tells the truth again, and then the call is made
//! ```
//! # What callers may rely on
//! A process whose pages have not fallen has SIGSEGV led to them in every thread, not blocked, and CPUID
//! faulting, but for the moments in which a C library blocks every signal. Nothing fails for want of
//! enforcement: where a step is refused the program runs as ever, and its image says so.
//!
//! # What it does not do
//! It does not follow what other filters, tracers or 32-bit programs do.

use crate::abi::*;
use crate::context::{Context, Own};
use crate::enforce;
use crate::report::{Outcome, failure};
use crate::sys::{self, Errno, SysResult, call};
use crate::tasks;
use crate::traced::{Held, RIP, ptrace};
use loader::processor::filter::SIGSEGV;
use loader::processor::handler::{
    ACTION_AT, CALL_AT, DEFAULT_AT, FALLEN_AT, HANDLER_AT, HANDLER_LEN, are_pages, have_fallen,
};

/// `struct seccomp_notif`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Notice {
    id: u64,
    tid: u32,
    flags: u32,
    nr: u32,
    arch: u32,
    at: u64,
    args: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct Reply {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

const RECEIVE: u64 = 0xc050_2100;
const SEND: u64 = 0xc018_2101;
const IS_VALID: u64 = 0x4008_2102;
/// Let the call be made.
const CONTINUE: u32 = 1;

const SEGV_BIT: u64 = 1 << (SIGSEGV - 1);
/// What C libraries block for a moment, with the signals of their own: no program can ask them for these.
const EVERY_SIGNAL: u64 = !0;
/// The same for good, at the end of a thread of glibc's: all but the one by which threads change ids (33).
const ENDING_THREAD: u64 = !(1 << 32);
const SIG_BLOCK: u32 = 0;
/// Place of `cs` and `rsp` among the registers.
const CS: usize = 17;
const RSP: usize = 19;
const CS_64: u64 = 0x33;
/// Below the stack pointer of a new program, where nothing is.
const SCRATCH: u64 = 1024;
/// How long an execve is given before it is looked at.
const EXEC_PATIENCE: u32 = 20;
/// The same, for a thread to stand still.
const HOLD_PATIENCE: u32 = 400;
/// How often, and how long between, for whoever traces a thread to let it go: ten seconds.
const TRACER_PATIENCE: u32 = 5_000;
const LATER: Timespec = Timespec {
    seconds: 0,
    nanoseconds: 2_000_000,
};
/// Most calls that wait for that.
const MOST_LATER: usize = 16;
/// How often a process is asked to stand still for one call: a minute.
const MOST_TRIES: u32 = 3_000;
const STEP: Timespec = Timespec {
    seconds: 0,
    nanoseconds: 50_000,
};

/// P1's side.
pub struct Enforcer {
    pages: Option<&'static [u8; HANDLER_LEN]>,
    /// Where P1 is asked; -1: nobody asks.
    pub listener: i32,
    /// The loader's own calls are answered unseen until the job runs.
    pub job_runs: bool,
    /// A process that ended while it was held, and how: nobody else hears of it.
    pub ended: Option<(i32, u32)>,
    later: [Option<(Notice, u32)>; MOST_LATER],
    /// Who could not be let fall yet, and how often that was tried.
    again: (i32, u32),
}

impl Enforcer {
    pub fn new(context: &Context) -> Self {
        Enforcer {
            pages: enforce::pages(context),
            listener: -1,
            job_runs: context.is_run(),
            ended: None,
            later: [None; MOST_LATER],
            again: (0, 0),
        }
    }

    /// Takes the listener out of the job's first process.
    pub fn take(&mut self, context: &mut Context, root: i32, fd: u32) -> Outcome<()> {
        let failed = |error: Errno| {
            failure!(
                Failed,
                "the job's first process cannot be listened to ({error})"
            )
        };
        // SAFETY: no pointers.
        let process = unsafe { call(SYS_PIDFD_OPEN, [root as u64, 0]) }.map_err(failed)?;
        // SAFETY: no pointers.
        let lent = unsafe { call(SYS_PIDFD_GETFD, [process, u64::from(fd), 0]) };
        sys::close(process as i32);
        context.place(Own::Listener, lent.map_err(failed)? as i32);
        self.listener = context.fd(Own::Listener);
        Ok(())
    }

    /// What to wait for.
    pub fn watched(&self) -> PollFd {
        PollFd {
            fd: self.listener,
            events: POLLIN,
            revents: 0,
        }
    }

    /// Answers one call, if there is one to answer.
    pub fn serve(&mut self, seen: &PollFd) {
        self.try_again();
        if seen.revents & POLLIN == 0 {
            if seen.revents != 0 {
                // Nobody is left who could ask.
                self.listener = -1;
            }
            return;
        }
        let mut notice = Notice::default();
        // SAFETY: the kernel writes a struct seccomp_notif, 80 bytes, which must be zero.
        let received = unsafe {
            let place = &raw mut notice as u64;
            call(SYS_IOCTL, [self.listener as u64, RECEIVE, place])
        };
        if received.is_err() {
            return;
        }
        if !self.job_runs {
            return self.go_on(&notice);
        }
        match u64::from(notice.nr) {
            SYS_EXECVE | SYS_EXECVEAT => self.follow(&notice),
            SYS_RT_SIGACTION => self.action(&notice),
            _ => self.mask(&notice),
        }
    }

    fn reply(&self, notice: &Notice, value: i64, error: i32, flags: u32) {
        let reply = Reply {
            id: notice.id,
            value,
            error,
            flags,
        };
        // SAFETY: the kernel reads a struct seccomp_notif_resp, 24 bytes. Who is gone hears nothing.
        let _ = unsafe {
            call(
                SYS_IOCTL,
                [self.listener as u64, SEND, &raw const reply as u64],
            )
        };
    }

    fn go_on(&self, notice: &Notice) {
        self.reply(notice, 0, 0, CONTINUE);
    }

    /// `rt_sigaction(signal, action, old, 8)`.
    fn action(&mut self, notice: &Notice) {
        let [signal, action, old, size, ..] = notice.args;
        if !is_enforced(notice.tid) || size != 8 {
            return self.go_on(notice);
        }
        let mut words = [0u64; 4];
        if action != 0 && read(notice.tid, action, &mut words).is_err() {
            return self.go_on(notice);
        }
        let [handler, _, _, mask] = words;
        if signal as u32 != SIGSEGV {
            // CPUID in a handler that blocks SIGSEGV would be the end.
            return match mask & SEGV_BIT {
                0 => self.go_on(notice),
                _ => self.fall(notice),
            };
        }
        if handler != SIG_DFL {
            return self.fall(notice);
        }
        let told = old == 0 || write(notice.tid, old, &[0; 4]).is_ok();
        self.reply(notice, 0, if told { 0 } else { -EFAULT }, 0);
    }

    /// `rt_sigprocmask(how, set, old, 8)`, which does not unblock.
    fn mask(&mut self, notice: &Notice) {
        let mut set = [0u64];
        let seen = read(notice.tid, notice.args[1], &mut set).is_ok();
        let ends = notice.args[0] as u32 == SIG_BLOCK && set[0] == ENDING_THREAD;
        let brief = set[0] == EVERY_SIGNAL || ends;
        let harmless = !seen || set[0] & SEGV_BIT == 0 || brief;
        if harmless || !is_enforced(notice.tid) {
            return self.go_on(notice);
        }
        self.fall(notice);
    }

    /// Lets a process execute a program, and prepares that.
    fn follow(&mut self, notice: &Notice) {
        let tid = notice.tid as i32;
        let is_first = tasks::status(tid).is_some_and(|status| status.process == tid);
        let options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC;
        // Somebody else may trace it: then it is theirs.
        if !is_first || ptrace(PTRACE_SEIZE, tid, 0, options).is_err() {
            return self.go_on(notice);
        }
        self.go_on(notice);
        let mut held = Held::new(tid);
        let mut stop = held.wait_for(EXEC_PATIENCE, STEP);
        if stop.is_none() {
            // If there is no such program it goes on, and nothing says so.
            let _ = ptrace(PTRACE_INTERRUPT, tid, 0, 0);
        }
        loop {
            let Some(seen) = stop.or_else(|| held.wait()) else {
                self.ended = self.ended.or(held.ended);
                return;
            };
            stop = None;
            match seen >> 8 {
                PTRACE_EVENT_EXEC => {
                    let _ = self.enforce(&mut held);
                    break;
                }
                PTRACE_EVENT_STOP => break,
                0 => {
                    let _ = ptrace(PTRACE_CONT, tid, 0, u64::from(seen & 0xff));
                }
                _ => {
                    let _ = ptrace(PTRACE_CONT, tid, 0, 0);
                }
            }
        }
        held.let_go();
        self.ended = self.ended.or(held.ended);
    }

    /// Prepares a program that has not begun; without success it is as it was.
    fn enforce(&self, held: &mut Held) -> SysResult<()> {
        const PRIVATE: u64 = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        let pages = self.pages.ok_or(Errno(EINVAL))?;
        held.interrupt()?;
        held.come_to_rest()?;
        let registers = held.registers;
        if registers[CS] != CS_64 || held.mask & SEGV_BIT != 0 {
            return Err(Errno(EINVAL));
        }
        let len = HANDLER_LEN as u64;
        let entry = registers[RIP];
        let there = held.word(entry)?;
        held.set_word(entry, there & !0xffff | 0x050f)?; // syscall
        let mapped = held
            .call(
                entry,
                SYS_MMAP,
                [HANDLER_AT, len, PROT_READ | PROT_WRITE, PRIVATE, !0, 0],
            )
            .and_then(|at| {
                if at == HANDLER_AT {
                    Ok(())
                } else {
                    Err(Errno(EEXIST))
                }
            })
            .and_then(|()| write(held.tid as u32, HANDLER_AT, pages))
            .and_then(|()| {
                let protection = PROT_READ | PROT_EXEC;
                held.call(entry, SYS_MPROTECT, [HANDLER_AT, len, protection, 0, 0, 0])
            });
        held.set_word(entry, there)?;
        mapped?;
        let own = HANDLER_AT + CALL_AT as u64;
        let scratch = (registers[RSP] - SCRATCH) & !7;
        let segv = u64::from(SIGSEGV);
        let action = HANDLER_AT + ACTION_AT as u64;
        let done = held
            .call(own, SYS_RT_SIGACTION, [segv, 0, scratch, 8, 0, 0])
            .and_then(|_| match held.word(scratch)? {
                SIG_DFL => Ok(()),
                _ => Err(Errno(EEXIST)),
            })
            .and_then(|()| held.call(own, SYS_ARCH_PRCTL, [ARCH_SET_CPUID, 0, 0, 0, 0, 0]))
            .and_then(|_| held.call(own, SYS_RT_SIGACTION, [segv, action, 0, 8, 0, 0]));
        if done.is_err() {
            let _ = held.call(own, SYS_ARCH_PRCTL, [ARCH_SET_CPUID, 1, 0, 0, 0, 0]);
            let _ = held.call(own, SYS_MUNMAP, [HANDLER_AT, len, 0, 0, 0, 0]);
        }
        done.map(|_| ())
    }

    /// Switches faulting off in all threads of a process. Those that were interrupted make their calls again,
    /// and are let go then; if it cannot be done yet, they ask again.
    fn fall(&mut self, notice: &Notice) {
        self.try_to_fall(notice, TRACER_PATIENCE);
    }

    /// Somebody else traces the thread: a checkpoint, which is short, or a debugger. The call waits; who waits for too
    /// long is let go, and the program may end by what it has asked for.
    fn put_off(&mut self, notice: &Notice, patience: u32) {
        let free = self.later.iter_mut().find(|later| later.is_none());
        match (patience.checked_sub(1), free) {
            (Some(patience), Some(place)) => *place = Some((*notice, patience)),
            _ => self.go_on(notice),
        }
    }

    /// How long P1 may sleep.
    pub fn patience(&self) -> Option<Timespec> {
        self.later.iter().any(Option::is_some).then_some(LATER)
    }

    /// Tries again what was put off.
    fn try_again(&mut self) {
        for (notice, patience) in core::mem::take(&mut self.later).into_iter().flatten() {
            // SAFETY: the kernel reads a number. Whoever was interrupted asks anew.
            let asks = unsafe {
                let id = &raw const notice.id as u64;
                call(SYS_IOCTL, [self.listener as u64, IS_VALID, id])
            };
            if asks.is_ok() {
                self.try_to_fall(&notice, patience);
            }
        }
    }

    fn try_to_fall(&mut self, notice: &Notice, patience: u32) {
        let tid = notice.tid as i32;
        let Some(status) = tasks::status(tid) else {
            return self.go_on(notice);
        };
        if status.process != status.parent && share_memory(status.process, status.parent) {
            // Between vfork and execve: it asks CPUID nothing, and its memory is its parent's.
            return self.go_on(notice);
        }
        let mut all = match tasks::Stopped::new() {
            Ok(all) => all,
            Err(_) => return self.go_on(notice),
        };
        if all.hold(tid, HOLD_PATIENCE, STEP) == Err(Errno(EPERM)) {
            let _ = all.let_go();
            return self.put_off(notice, patience);
        }
        if all
            .hold_process(status.process, HOLD_PATIENCE, STEP)
            .is_ok()
        {
            let own = HANDLER_AT + CALL_AT as u64;
            let mut first = true;
            all.each(|held| {
                if held.come_to_rest().is_err() {
                    return;
                }
                let _ = held.call(own, SYS_ARCH_PRCTL, [ARCH_SET_CPUID, 1, 0, 0, 0, 0]);
                if first {
                    let default = HANDLER_AT + DEFAULT_AT as u64;
                    let segv = u64::from(SIGSEGV);
                    let _ = held.call(own, SYS_RT_SIGACTION, [segv, default, 0, 8, 0, 0]);
                    let fallen = HANDLER_AT + FALLEN_AT as u64;
                    if let Ok(word) = held.word(fallen) {
                        let _ = held.set_word(fallen, word | 1);
                    }
                    first = false;
                }
            });
        }
        self.ended = self.ended.or(all.let_go());
    }
}

/// Whether CPUID faults in a process, and is answered.
fn is_enforced(tid: u32) -> bool {
    let mut head = [0u64; 2];
    if read(tid, HANDLER_AT, &mut head).is_err() {
        return false;
    }
    let mut bytes = [0; 16];
    for (to, word) in bytes.chunks_exact_mut(8).zip(head) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    are_pages(&bytes) && !have_fallen(&bytes)
}

fn share_memory(first: i32, second: i32) -> bool {
    const KCMP_VM: u64 = 1;
    // SAFETY: no pointers.
    unsafe { call(SYS_KCMP, [first as u64, second as u64, KCMP_VM, 0, 0]) == Ok(0) }
}

/// Reads words of a thread's memory, all or none.
fn read(tid: u32, address: u64, words: &mut [u64]) -> SysResult<()> {
    let len = size_of_val(words) as u64;
    let own = IoVec {
        base: words.as_mut_ptr() as u64,
        len,
    };
    let other = IoVec { base: address, len };
    transfer(SYS_PROCESS_VM_READV, tid, &own, &other)
}

/// Writes plain values into a thread's memory, all or nothing that matters.
fn write<T: Copy>(tid: u32, address: u64, values: &[T]) -> SysResult<()> {
    let len = size_of_val(values) as u64;
    let own = IoVec {
        base: values.as_ptr() as u64,
        len,
    };
    let other = IoVec { base: address, len };
    transfer(SYS_PROCESS_VM_WRITEV, tid, &own, &other)
}

fn transfer(nr: u64, tid: u32, own: &IoVec, other: &IoVec) -> SysResult<()> {
    let args = [
        u64::from(tid),
        core::ptr::from_ref(own) as u64,
        1,
        core::ptr::from_ref(other) as u64,
        1,
        0,
    ];
    // SAFETY: our side is a borrowed slice of the callers above, theirs is another process's.
    match unsafe { call(nr, args) } {
        Ok(len) if len == own.len => Ok(()),
        Ok(_) => Err(Errno(EFAULT)),
        Err(error) => Err(error),
    }
}
