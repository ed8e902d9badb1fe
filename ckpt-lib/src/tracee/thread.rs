//! A stopped thread: what ptrace tells of it, and what it goes on with.

use super::{BeforeStop, Deadline, HostTid, Memory, StopError, reenter};
use crate::procfs::{ProcDir, Status, parse_status};
use crate::snapshot::{Registers, Rseq, SyscallDispatch};
use crate::sys::ptrace::{self, Waited};
use std::cell::OnceCell;
use std::io;
use std::time::Duration;

/// A thread at a ptrace stop.
#[derive(Debug)]
pub struct StoppedThread {
    /// Its id.
    pub tid: HostTid,
    /// What was seen of it before.
    pub before: BeforeStop,
    /// CLOCK_MONOTONIC when it had stopped, nanoseconds.
    pub stopped_at_ns: u64,
    /// Registers at the stop.
    registers: Registers,
    /// Mask at the stop.
    mask: u64,
    /// Blocked signals while its call lasts, if these are others (`sigsuspend`, `ppoll` ...).
    call_mask: Option<u64>,
    /// What it goes on with, if not what it was stopped with.
    home_registers: Option<Registers>,
    home_mask: Option<u64>,
    /// Live registers or mask may be others than those it goes on with.
    away: bool,
    /// It goes home by itself, or is there: nothing is written to it any more.
    abandoned: bool,
    /// Its mask has been set since the stop: the kernel has forgotten that its call has one of its own.
    masked: bool,
    /// What `rseq_abort_ip` said before the first stub ran (the kernel forgets it then).
    rseq_abort: Option<Option<u64>>,
    /// The time-out in memory of the call it was in, as it was at the stop.
    timeout_ns: OnceCell<Option<u64>>,
    /// The call behind `restart_syscall` and when it times out, from an earlier stop.
    remembered: Option<(i64, u64)>,
}

impl StoppedThread {
    /// Reads a thread that is at a ptrace stop.
    pub(super) fn read(tid: HostTid, before: BeforeStop) -> Result<Self, StopError> {
        let registers = ptrace::registers(tid.0).map_err(failed(tid, "read registers"))?;
        let mask = ptrace::signal_mask(tid.0).map_err(failed(tid, "read signal mask"))?;
        Ok(StoppedThread {
            tid,
            before,
            stopped_at_ns: ptrace::monotonic_ns(),
            registers,
            mask,
            call_mask: mask_of_call(tid, &registers).filter(|call_mask| *call_mask != mask),
            home_registers: None,
            home_mask: None,
            away: false,
            abandoned: false,
            masked: false,
            rseq_abort: None,
            timeout_ns: OnceCell::new(),
            remembered: None,
        })
    }

    /// Its registers as they were at the stop, also while an injected call runs in it.
    #[must_use]
    pub fn registers(&self) -> Registers {
        self.registers
    }

    /// Whether it was stopped in a system call: then the number of the call.
    #[must_use]
    pub fn in_call(&self) -> Option<i64> {
        let nr = self.registers.orig_rax as i64;
        (nr >= 0).then_some(nr)
    }

    /// Sets the registers it goes on with; they are put in force when it does.
    pub fn set_registers(&mut self, registers: &Registers) {
        self.home_registers = Some(*registers);
        self.away = true;
    }

    /// The NT_X86_XSTATE register set in its full size.
    ///
    /// # Errors
    /// [`StopError::Request`].
    pub fn xstate(&self) -> Result<Vec<u8>, StopError> {
        ptrace::xstate(self.tid.0).map_err(failed(self.tid, "read extended state"))
    }

    /// Blocked signals as they were at the stop (the saved mask in sigsuspend, ppoll ...).
    #[must_use]
    pub fn signal_mask(&self) -> u64 {
        self.mask
    }

    /// Sets the mask it goes on with; it is put in force when it does.
    pub fn set_signal_mask(&mut self, mask: u64) {
        self.home_mask = Some(mask);
        self.away = true;
    }

    /// Signals pending for this thread, oldest first; `siginfo_t` each.
    ///
    /// # Errors
    /// [`StopError::Request`].
    pub fn pending(&self) -> Result<Vec<[u8; 128]>, StopError> {
        ptrace::pending(self.tid.0, false).map_err(failed(self.tid, "read pending signals"))
    }

    /// Signals pending for the whole process, oldest first; `siginfo_t` each.
    ///
    /// # Errors
    /// [`StopError::Request`].
    pub fn process_pending(&self) -> Result<Vec<[u8; 128]>, StopError> {
        ptrace::pending(self.tid.0, true).map_err(failed(self.tid, "read pending signals"))
    }

    /// Its registration of restartable sequences.
    ///
    /// # Errors
    /// [`StopError::Request`].
    pub fn rseq(&self) -> Result<Option<Rseq>, StopError> {
        ptrace::rseq(self.tid.0).map_err(failed(self.tid, "read the rseq registration"))
    }

    /// Syscall user dispatch, if it is on.
    ///
    /// # Errors
    /// [`StopError::Request`].
    pub fn syscall_dispatch(&self) -> Result<Option<SyscallDispatch>, StopError> {
        ptrace::syscall_dispatch(self.tid.0).map_err(failed(self.tid, "read syscall dispatch"))
    }

    /// Whether the kernel tells of syscall user dispatch.
    #[must_use]
    pub fn tells_syscall_dispatch(&self) -> bool {
        ptrace::tells_syscall_dispatch(self.tid.0)
    }

    /// Where it must go on if it was stopped inside a restartable sequence: the abort handler, as the
    /// kernel would have it do, since being stopped is being preempted.
    ///
    /// # Errors
    /// [`StopError::Request`].
    pub fn rseq_abort_ip(&self, memory: &Memory) -> Result<Option<u64>, StopError> {
        if let Some(known) = self.rseq_abort {
            return Ok(known);
        }
        // Restartable sequences make no system calls.
        if self.in_call().is_some() {
            return Ok(None);
        }
        let Some(rseq) = self.rseq()? else {
            return Ok(None);
        };
        let read = |address, buf: &mut [u8]| {
            memory
                .read(address, buf)
                .map_err(failed(self.tid, "read the rseq area"))
        };
        // struct rseq: cpu_id_start, cpu_id, rseq_cs; a descriptor: version, flags, start, length, abort.
        let mut pointer = [0; 8];
        read(rseq.address.wrapping_add(8), &mut pointer)?;
        let pointer = u64::from_le_bytes(pointer);
        if pointer == 0 {
            return Ok(None);
        }
        let mut descriptor = [0; 32];
        if memory.read(pointer, &mut descriptor).is_err() {
            // The kernel would send SIGSEGV for it; that is its business.
            return Ok(None);
        }
        let words = descriptor.as_chunks::<8>().0;
        let [start, len, abort] = [1, 2, 3].map(|index| u64::from_le_bytes(words[index]));
        let inside = self.registers.rip.wrapping_sub(start) < len;
        Ok(inside.then_some(abort))
    }

    /// Has it go on at the abort handler if it was stopped inside a restartable sequence. To be called
    /// before anything is run in it: the kernel forgets the sequence when it sees `rip` elsewhere.
    pub(crate) fn settle_rseq(&mut self, memory: &Memory) -> Result<(), StopError> {
        let abort = self.rseq_abort_ip(memory)?;
        self.rseq_abort = Some(abort);
        if let Some(rip) = abort {
            let registers = Registers {
                rip,
                ..self.home_registers()
            };
            self.set_registers(&registers);
        }
        Ok(())
    }

    /// Says which call is behind `restart_syscall`, and at which CLOCK_MONOTONIC it times out.
    pub(super) fn remember(&mut self, nr: i64, expiry_ns: u64) {
        self.remembered = Some((nr, expiry_ns));
    }

    /// What [`StoppedThread::remember`] was told.
    pub(super) fn remembered(&self) -> Option<(i64, u64)> {
        self.remembered
    }

    /// The time-out that its call finds in memory. Read once: what is left of it may be written to
    /// the same place.
    pub(super) fn timeout_ns(&self, read: impl FnOnce() -> Option<u64>) -> Option<u64> {
        *self.timeout_ns.get_or_init(read)
    }

    /// The registers it goes on with.
    pub(crate) fn home_registers(&self) -> Registers {
        self.home_registers.unwrap_or(self.registers)
    }

    /// The mask it goes on with.
    pub(crate) fn home_mask(&self) -> u64 {
        self.home_mask.unwrap_or(self.mask)
    }

    /// Signals that are blocked both where it goes on and in the call it goes on with: all others end
    /// that call if a handler takes them.
    pub(crate) fn ending_mask(&self) -> u64 {
        self.home_mask() | self.call_mask.unwrap_or(0)
    }

    /// Says that live registers or mask are now others than those it goes on with.
    pub(crate) fn leave(&mut self) {
        self.away = true;
        self.masked = true;
    }

    /// Says that it goes home by itself, or is there: what it was stopped with is not what it is at now.
    pub(crate) fn abandon(&mut self) {
        self.abandoned = true;
    }

    /// Whether [`StoppedThread::abandon`] was said.
    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned
    }

    /// Puts in force what it goes on with. The thread is at a ptrace stop.
    ///
    /// The mask comes first: if we die in between, the thread is in a stub with its own mask, which
    /// the stub bears, and not at home with all signals blocked, which nobody would ever undo.
    pub(crate) fn bring_home(&mut self) -> Result<(), StopError> {
        if !self.away || self.abandoned {
            return Ok(());
        }
        if self.masked || self.home_mask.is_some() {
            ptrace::set_signal_mask(self.tid.0, self.home_mask())
                .map_err(failed(self.tid, "set signal mask"))?;
            self.masked = true;
        }
        let registers = self.call_to_enter().unwrap_or(self.home_registers());
        ptrace::set_registers(self.tid.0, &registers).map_err(failed(self.tid, "set registers"))?;
        self.away = false;
        Ok(())
    }

    /// Registers to enter its call with, if that has a mask of its own which the kernel has forgotten and no
    /// signal ends it: with the code for a restart in `rax`, one that only that mask blocks would.
    pub(crate) fn call_to_enter(&self) -> Option<Registers> {
        self.call_mask.filter(|_| self.masked)?;
        let entering = reenter::entering(&self.home_registers())?;
        let is_ended = self
            .status()
            .is_some_and(|status| self.ends_call(&status, status.pending));
        (!is_ended).then_some(entering)
    }

    fn ends_call(&self, status: &Status, signals: u64) -> bool {
        signals & status.caught & !self.ending_mask() != 0
    }

    fn status(&self) -> Option<Status> {
        let status = ProcDir::of(self.tid.0).parsed("status", parse_status);
        status.ok()
    }

    /// Lets go of a thread that is at home. If its call has a mask of its own which the kernel has forgotten,
    /// it is first let into the call, so that no signal comes in between. If one is there before, the
    /// thread goes on with it, and the call with EINTR if it would have ended the call.
    pub(super) fn detach(&self, group_stopped: bool) -> io::Result<()> {
        let mut signal = 0;
        if self.call_mask.is_some() && self.masked && !group_stopped {
            // It may have changed since the thread came home: a timer has run out.
            match self.call_to_enter() {
                Some(registers) => {
                    ptrace::set_registers(self.tid.0, &registers)?;
                    signal = self.enter_call()?;
                }
                None => ptrace::set_registers(self.tid.0, &self.home_registers())?,
            }
        }
        ptrace::detach(self.tid.0, signal)
    }

    /// Runs up to the entry to a call, or to a signal that is to be handled before.
    fn enter_call(&self) -> io::Result<i32> {
        ptrace::cont_to_syscall(self.tid.0, 0)?;
        let deadline = Deadline::after(ENTRY_LIMIT);
        let mut tries = 0;
        while !deadline.is_over() {
            match ptrace::try_wait(self.tid.0)? {
                None => {
                    ptrace::pause(tries);
                    tries += 1;
                }
                Some(Waited::Signal(signal)) => {
                    let bit = 1u64.checked_shl(signal as u32 - 1).unwrap_or(0);
                    if self
                        .status()
                        .is_some_and(|status| self.ends_call(&status, bit))
                    {
                        ptrace::set_registers(self.tid.0, &self.home_registers())?;
                    }
                    return Ok(signal);
                }
                Some(_) => break,
            }
        }
        Ok(0)
    }
}

/// How long a thread may take to the entry of its call: two bytes of code, which may have to be read.
const ENTRY_LIMIT: Duration = Duration::from_secs(1);

/// Calls that block signals of their own while they last (others are of io contexts and rings, which are
/// not carried).
const WITH_MASK: [i64; 5] = [
    libc::SYS_rt_sigsuspend,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
];

/// The signals that are blocked now, in a thread that may be in a call with a mask of its own:
/// PTRACE_GETSIGMASK tells those that will be blocked when it has returned.
fn mask_of_call(tid: HostTid, registers: &Registers) -> Option<u64> {
    if !WITH_MASK.contains(&(registers.orig_rax as i64)) {
        return None;
    }
    let status = ProcDir::of(tid.0).parsed("status", parse_status);
    Some(status.ok()?.blocked)
}

pub(super) fn failed(tid: HostTid, what: &'static str) -> impl Fn(io::Error) -> StopError {
    move |source| StopError::Request {
        tid: tid.0,
        what,
        source,
    }
}
