//! Threads of the job that we trace: their registers, and calls made in them.
//!
//! # What callers may rely on
//! After [`Thread::call`] a thread stands where the kernel looks for signals: with a call in progress in its
//! registers it goes on with that call (docs/adr/0003).
//!
//! A [`Held`] thread of a running job gets back registers, mask and call in progress, and every signal that came.
//!
//! # What it does not do
//! It does not know why a thread is traced (`finish`: the end of a restart; `enforcer`: CPUID).

use crate::abi::*;
use crate::sys::{self, Errno, SysResult, call};

core::arch::global_asm!(
    ".text",
    ".globl wayfarer_call_here",
    "wayfarer_call_here:",
    "syscall",
    "ud2",
);

unsafe extern "C" {
    static wayfarer_call_here: u8;
}

/// Words of `struct user_regs_struct`.
pub const REGISTER_COUNT: usize = 27;
pub const RAX: usize = 10;
pub const ORIG_RAX: usize = 15;
pub const RIP: usize = 16;
/// Where the call's arguments travel: rdi, rsi, rdx, r10, r8, r9.
pub const ARGUMENTS: [usize; 6] = [14, 13, 12, 7, 9, 8];

pub type RegisterWords = [u64; REGISTER_COUNT];

/// A thread of the job that we trace; stopped between calls.
pub struct Thread {
    pub tid: i32,
}

/// `ptrace` with a request that reads and writes only what `data` points to, or a number.
pub fn ptrace(request: u64, tid: i32, address: u64, data: u64) -> SysResult<u64> {
    // SAFETY: the requests used here read and write only what `data` points to, which is
    // memory of the callers below.
    unsafe { call(SYS_PTRACE, [request, tid as u64, address, data]) }
}

/// Lets a thread go that has come to a stop.
pub fn let_go(tid: i32) {
    let _ = ptrace(PTRACE_DETACH, tid, 0, 0);
}

impl Thread {
    /// Takes hold of a parked thread.
    pub fn seize(tid: i32) -> SysResult<Thread> {
        let options = PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL;
        ptrace(PTRACE_SEIZE, tid, 0, options)?;
        ptrace(PTRACE_INTERRUPT, tid, 0, 0)?;
        let thread = Thread { tid };
        thread.wait_event()?;
        Ok(thread)
    }

    /// Waits for a stop: signal in the low byte, event above.
    pub fn wait(&self) -> SysResult<u32> {
        match sys::wait(self.tid, WALL) {
            Ok((_, status)) if status & 0xff == 0x7f => Ok(status >> 8),
            Ok(_) => Err(Errno(ESRCH)),
            Err(error) => Err(error),
        }
    }

    pub fn wait_event(&self) -> SysResult<()> {
        loop {
            let stop = self.wait()?;
            if stop >> 8 == PTRACE_EVENT_STOP {
                return Ok(());
            }
            ptrace(PTRACE_CONT, self.tid, 0, 0)?;
        }
    }

    pub fn registers(&self) -> SysResult<RegisterWords> {
        let mut words = [0; REGISTER_COUNT];
        let part = IoVec {
            base: words.as_mut_ptr() as u64,
            len: 8 * REGISTER_COUNT as u64,
        };
        ptrace(
            PTRACE_GETREGSET,
            self.tid,
            NT_PRSTATUS,
            &raw const part as u64,
        )?;
        Ok(words)
    }

    pub fn set(&self, kind: u64, bytes: &[u8]) -> SysResult<()> {
        let part = IoVec {
            base: bytes.as_ptr() as u64,
            len: bytes.len() as u64,
        };
        ptrace(PTRACE_SETREGSET, self.tid, kind, &raw const part as u64).map(|_| ())
    }

    pub fn set_registers(&self, words: &RegisterWords) -> SysResult<()> {
        let mut bytes = [0; 8 * REGISTER_COUNT];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        self.set(NT_PRSTATUS, &bytes)
    }

    /// A word of its memory.
    pub fn word(&self, address: u64) -> SysResult<u64> {
        let mut word = 0u64;
        ptrace(PTRACE_PEEKDATA, self.tid, address, &raw mut word as u64)?;
        Ok(word)
    }

    pub fn set_mask(&self, mask: u64) -> SysResult<()> {
        ptrace(PTRACE_SETSIGMASK, self.tid, 8, &raw const mask as u64).map(|_| ())
    }

    /// Lets the thread enter a system call and stops it at the entry.
    pub fn enter_call(&self, nr: u64, args: [u64; 6]) -> SysResult<()> {
        let mut words = self.registers()?;
        for (place, argument) in ARGUMENTS.into_iter().zip(args) {
            words[place] = argument;
        }
        words[RAX] = nr;
        words[ORIG_RAX] = u64::MAX;
        words[RIP] = &raw const wayfarer_call_here as u64;
        self.set_registers(&words)?;
        self.to_call_stop()
    }

    fn to_call_stop(&self) -> SysResult<()> {
        ptrace(PTRACE_SYSCALL, self.tid, 0, 0)?;
        match self.wait()? & 0xffff {
            stop if stop == SIGTRAP | 0x80 => Ok(()),
            _ => Err(Errno(71)),
        }
    }

    /// Goes on until the thread is about to return to its program; what the call returned.
    pub fn leave_call(&self) -> SysResult<i64> {
        ptrace(PTRACE_INTERRUPT, self.tid, 0, 0)?;
        ptrace(PTRACE_CONT, self.tid, 0, 0)?;
        self.wait_event()?;
        Ok(self.registers()?[RAX] as i64)
    }

    /// Makes the thread carry out a call that does not sleep.
    pub fn call(&self, nr: u64, args: [u64; 6]) -> SysResult<u64> {
        self.enter_call(nr, args)?;
        self.to_call_stop()?;
        sys::checked(self.leave_call()?)
    }
}

impl Thread {
    /// Has the thread end by itself, and lets go of it on its way out, where nothing that it did not have before is done in its name any more.
    pub fn end(&self) -> SysResult<()> {
        self.enter_call(SYS_EXIT, [0; 6])?;
        let options = PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL | PTRACE_O_TRACEEXIT;
        ptrace(PTRACE_SETOPTIONS, self.tid, 0, options)?;
        ptrace(PTRACE_CONT, self.tid, 0, 0)?;
        while self.wait()? >> 8 != PTRACE_EVENT_EXIT {
            ptrace(PTRACE_CONT, self.tid, 0, 0)?;
        }
        ptrace(PTRACE_DETACH, self.tid, 0, 0).map(|_| ())
    }
}

/// A thread of a job that runs, held for a moment.
#[derive(Clone, Copy)]
pub struct Held {
    pub tid: i32,
    /// Where it stood, once it is at rest.
    pub registers: RegisterWords,
    pub mask: u64,
    at_rest: bool,
    /// It has ended meanwhile: its id and wait status.
    pub ended: Option<(i32, u32)>,
}

impl Held {
    /// A thread that was seized.
    pub fn new(tid: i32) -> Self {
        Held {
            tid,
            registers: [0; REGISTER_COUNT],
            mask: 0,
            at_rest: false,
            ended: None,
        }
    }

    fn seen(&mut self, status: u32) -> Option<u32> {
        if status & 0xff == 0x7f {
            return Some(status >> 8);
        }
        self.ended = Some((self.tid, status));
        None
    }

    /// Waits for a stop: signal in the low byte, event above; none when it has ended.
    pub fn wait(&mut self) -> Option<u32> {
        let (_, status) = sys::wait(self.tid, WALL).ok()?;
        self.seen(status)
    }

    /// The same, looking only so often.
    pub fn wait_for(&mut self, looks: u32, between: Timespec) -> Option<u32> {
        for _ in 0..looks {
            match sys::wait(self.tid, WALL | WNOHANG) {
                Ok((0, _)) => {
                    let _ = sys::poll(&mut [], Some(between));
                }
                Ok((_, status)) => return self.seen(status),
                Err(_) => return None,
            }
        }
        None
    }

    /// Brings a seized thread to where the kernel looks for signals, from a stop.
    pub fn interrupt(&mut self) -> SysResult<()> {
        ptrace(PTRACE_INTERRUPT, self.tid, 0, 0)?;
        self.go_to(PTRACE_CONT, |stop| stop >> 8 == PTRACE_EVENT_STOP)
    }

    /// Goes on until a stop that is looked for. Signals are let through.
    fn go_to(&mut self, how: u64, wanted: impl Fn(u32) -> bool) -> SysResult<()> {
        let mut signal = 0;
        loop {
            ptrace(how, self.tid, 0, u64::from(signal))?;
            let stop = self.wait().ok_or(Errno(ESRCH))?;
            if wanted(stop) {
                return Ok(());
            }
            signal = if stop >> 8 == 0 { stop & 0x7f } else { 0 };
        }
    }

    /// Reads where it stands and blocks its signals; it is in an event stop, or about to be.
    pub fn come_to_rest(&mut self) -> SysResult<()> {
        let mut mask = 0u64;
        self.registers = self.traced().registers()?;
        ptrace(PTRACE_GETSIGMASK, self.tid, 8, &raw mut mask as u64)?;
        self.mask = mask;
        self.traced().set_mask(!0)?;
        self.at_rest = true;
        self.leave_sequence();
        Ok(())
    }

    /// The kernel aborts a restartable sequence (rseq(2)) of a thread that was stopped in it, but would not see
    /// it where we let it make calls.
    fn leave_sequence(&mut self) {
        // struct ptrace_rseq_configuration; rseq_cs is at 8 of the area. struct rseq_cs: version and flags,
        // start, length, where to go.
        let mut area = [0u64; 3];
        let size = size_of_val(&area) as u64;
        let asked = ptrace(
            PTRACE_GET_RSEQ_CONFIGURATION,
            self.tid,
            size,
            &raw mut area as u64,
        );
        let place = area[0] + 8;
        if asked.is_err() || area[0] == 0 {
            return;
        }
        let Some(sequence) = self.word(place).ok().filter(|at| *at != 0) else {
            return;
        };
        let [start, len, abort] = [8, 16, 24].map(|at| self.word(sequence + at).unwrap_or(0));
        if self.registers[RIP].wrapping_sub(start) < len {
            self.registers[RIP] = abort;
        }
        let _ = self.set_word(place, 0);
    }

    fn traced(&self) -> Thread {
        Thread { tid: self.tid }
    }

    pub fn word(&self, address: u64) -> SysResult<u64> {
        self.traced().word(address)
    }

    /// Writes a word, also where the program could not.
    pub fn set_word(&self, address: u64, word: u64) -> SysResult<()> {
        ptrace(PTRACE_POKEDATA, self.tid, address, word).map(|_| ())
    }

    /// Makes a thread at rest carry out a call that does not sleep, by the `syscall` instruction at `at`.
    pub fn call(&mut self, at: u64, nr: u64, args: [u64; 6]) -> SysResult<u64> {
        let mut words = self.registers;
        for (place, argument) in ARGUMENTS.into_iter().zip(args) {
            words[place] = argument;
        }
        words[RAX] = nr;
        words[ORIG_RAX] = u64::MAX;
        words[RIP] = at;
        self.traced().set_registers(&words)?;
        let at_call = |stop: u32| stop & 0xffff == SIGTRAP | 0x80;
        self.go_to(PTRACE_SYSCALL, at_call)?;
        self.go_to(PTRACE_SYSCALL, at_call)?;
        self.interrupt()?;
        sys::checked(self.traced().registers()?[RAX] as i64)
    }

    /// Lets it go on as if nothing had been.
    pub fn let_go(&mut self) {
        if self.at_rest {
            let _ = self.traced().set_registers(&self.registers);
            let _ = self.traced().set_mask(self.mask);
            self.at_rest = false;
        }
        let _ = ptrace(PTRACE_DETACH, self.tid, 0, 0);
    }
}
