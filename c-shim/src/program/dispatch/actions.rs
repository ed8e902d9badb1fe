//! Signals of a program whose calls are dispatched: SIGSYS is never blocked and has our handler, and handlers find the
//! program where it would be without us.
//!
//! ```text
//! rt_sigaction: handler -> wf_handler (noted here)     signal -> wf_handler: out of the stub -> the program's handler
//! masks: without SIGSYS
//! ```
//! The kernel ends a thread whose dispatched call finds SIGSYS blocked.

use super::sites::seen;
use super::{BIT, Context, Info, SIGSYS, frames, rooms, trapped};
use crate::program::entry::{Frame, handle};
use crate::program::sys::{
    self, Errno, RT_SIGACTION, RT_SIGPROCMASK, SIGALTSTACK, SysResult, call,
};
use core::sync::atomic::{AtomicU64, Ordering};

const SIGNALS: usize = 65;
/// SIG_DFL and SIG_IGN.
const NO_HANDLER: [u64; 2] = [0, 1];
const SA_SIGINFO: u64 = 4;
const SA_ONSTACK: u64 = 0x0800_0000;
const SA_RESTORER: u64 = 0x0400_0000;

/// `struct sigaction`, as the kernel has it.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Action {
    handler: u64,
    flags: u64,
    restorer: u64,
    mask: u64,
}

/// What the program has asked for, by signal.
struct Wanted {
    handler: AtomicU64,
    flags: AtomicU64,
    restorer: AtomicU64,
    /// Of its mask, the bit that the kernel is not told.
    bit: AtomicU64,
}

static WANTED: [Wanted; SIGNALS] = [const {
    Wanted {
        handler: AtomicU64::new(0),
        flags: AtomicU64::new(0),
        restorer: AtomicU64::new(0),
        bit: AtomicU64::new(0),
    }
}; SIGNALS];
/// The program's mask of SIGSYS.
static SIGSYS_MASK: AtomicU64 = AtomicU64::new(0);

// `wf_return` is what unwinders know a signal's frame by: these very instructions.
core::arch::global_asm!(
    ".text",
    ".globl wf_handler",
    ".hidden wf_handler",
    ".type wf_handler, @function",
    "wf_handler:",
    "push rdi",
    "push rsi",
    "push rdx",
    "mov rsi, rdx",
    "call {aim}",
    "mov rcx, rax",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "xor eax, eax",
    "jmp rcx",
    ".size wf_handler, . - wf_handler",
    "nop",
    ".globl wf_return",
    ".hidden wf_return",
    ".type wf_return, @function",
    "wf_return:",
    "mov rax, 15",
    "syscall",
    ".size wf_return, . - wf_return",
    aim = sym aim,
);

unsafe extern "C" {
    fn wf_handler();
    fn wf_return();
}

/// The program's handler of a signal that has come; its context is as if the program had made its call itself.
extern "C" fn aim(signal: u32, context: &mut Context) -> u64 {
    context.rip = seen(context.rip);
    let wanted = WANTED.get(signal as usize).unwrap_or(&WANTED[0]);
    wanted.handler.load(Ordering::Relaxed)
}

/// SIGSYS is ours.
pub(super) fn begin() -> SysResult<()> {
    let ours = Action {
        handler: trapped as *const () as u64,
        flags: SA_SIGINFO | SA_ONSTACK | SA_RESTORER,
        restorer: wf_return as *const () as u64,
        mask: u64::MAX,
    };
    let mut was = Action::default();
    set(SIGSYS, &raw const ours, &raw mut was)?;
    WANTED[SIGSYS as usize]
        .handler
        .store(was.handler, Ordering::Relaxed);
    Ok(())
}

fn set(signal: u64, new: *const Action, old: *mut Action) -> SysResult<u64> {
    // SAFETY: the kernel reads and writes a structure where there is one.
    unsafe { call(RT_SIGACTION, [signal, new as u64, old as u64, 8]) }
}

/// Whether a call must be looked at for its masks, or its handlers.
pub(super) fn is_about_signals(number: u64) -> bool {
    match number {
        RT_SIGACTION | RT_SIGPROCMASK => true,
        SIGALTSTACK => rooms::are_stacks_small(),
        _ => masked(number).is_some(),
    }
}

/// Of calls that wait with another mask, which argument that is.
fn masked(number: u64) -> Option<usize> {
    match number {
        sys::RT_SIGSUSPEND => Some(0),
        sys::PPOLL => Some(3),
        sys::EPOLL_PWAIT | sys::EPOLL_PWAIT2 => Some(4),
        sys::PSELECT6 => Some(5),
        _ => None,
    }
}

/// Serves what is about signals.
pub(super) fn serve(frame: &mut Frame) -> Option<u64> {
    let result = match frame.number {
        RT_SIGACTION => {
            // It is noted there, and left to the kernel.
            let _ = handle(frame);
            action(&frame.args)
        }
        RT_SIGPROCMASK => {
            let mut args = frame.args;
            with_mask(&mut args, 1, |args| {
                // SAFETY: it is what the program asked for.
                unsafe { call(RT_SIGPROCMASK, *args) }
            })
        }
        SIGALTSTACK => frames::alternate(&frame.args),
        number => wait(frame, masked(number)?)?,
    };
    Some(raw(result))
}

fn raw(result: SysResult<u64>) -> u64 {
    result.unwrap_or_else(Errno::raw)
}

/// Does something with a mask without SIGSYS in the place of the one that an argument points to.
fn with_mask<T>(args: &mut [u64; 6], index: usize, act: impl FnOnce(&[u64; 6]) -> T) -> T {
    let place = args[index] as *const u64;
    if place.is_null() {
        return act(args);
    }
    // SAFETY: the program says that a mask is there.
    let mask = unsafe { place.read_unaligned() } & !BIT;
    args[index] = &raw const mask as u64;
    act(args)
}

/// A call that waits with another mask. None if that is as it should be.
fn wait(frame: &mut Frame, index: usize) -> Option<SysResult<u64>> {
    let had = frame.args;
    if had[index] == 0 {
        return None;
    }
    let place = if frame.number == sys::PSELECT6 {
        // SAFETY: the program says that the mask's address and length are there.
        unsafe { (had[index] as *const u64).read_unaligned() }
    } else {
        had[index]
    };
    if place == 0 {
        return None;
    }
    // SAFETY: the program says that a mask is there.
    let mask = unsafe { (place as *const u64).read_unaligned() };
    if mask & BIT == 0 {
        return None;
    }
    let mask = mask & !BIT;
    let mut pair = [&raw const mask as u64, 8];
    frame.args[index] = pair[0];
    if frame.number == sys::PSELECT6 {
        // SAFETY: as above.
        pair[1] = unsafe { (had[index] as *const u64).wrapping_add(1).read_unaligned() };
        frame.args[index] = pair.as_ptr() as u64;
    }
    let number = frame.number;
    let result = if handle(frame) != 0 {
        Ok(frame.number)
    } else {
        // SAFETY: it is what the program asked for, with our mask.
        unsafe { call(number, frame.args) }
    };
    frame.args = had;
    Some(result)
}

/// rt_sigaction(2).
fn action(args: &[u64; 6]) -> SysResult<u64> {
    let [signal, new, old, size, ..] = *args;
    let (new, old) = (new as *const Action, old as *mut Action);
    let Some(wanted) = WANTED.get(signal as usize).filter(|_| size == 8) else {
        // SAFETY: the kernel says what is wrong.
        return unsafe { call(RT_SIGACTION, *args) };
    };
    // SAFETY: the program says that a structure is there, if it gives one.
    let asked = (!new.is_null()).then(|| unsafe { new.read_unaligned() });
    let mut was = wanted.read();
    if signal == SIGSYS {
        was.mask = SIGSYS_MASK.load(Ordering::Relaxed);
        if let Some(asked) = &asked {
            wanted.note(asked);
            SIGSYS_MASK.store(asked.mask, Ordering::Relaxed);
        }
    } else {
        let theirs = asked.map(|asked| asked.with_ours());
        let place = theirs
            .as_ref()
            .map_or(core::ptr::null(), core::ptr::from_ref);
        // What another thread's signal finds meanwhile must be a handler.
        if let Some(asked) = asked.as_ref().filter(|asked| asked.is_handled()) {
            wanted.note(asked);
        }
        let mut found = Action::default();
        set(signal, place, &raw mut found)?;
        was = found.as_wanted(&was);
    }
    if !old.is_null() {
        // SAFETY: the program says that there is room.
        unsafe { old.write_unaligned(was) };
    }
    Ok(0)
}

impl Wanted {
    fn read(&self) -> Action {
        Action {
            handler: self.handler.load(Ordering::Relaxed),
            flags: self.flags.load(Ordering::Relaxed),
            restorer: self.restorer.load(Ordering::Relaxed),
            mask: self.bit.load(Ordering::Relaxed),
        }
    }

    fn note(&self, action: &Action) {
        self.flags.store(action.flags, Ordering::Relaxed);
        self.restorer.store(action.restorer, Ordering::Relaxed);
        self.bit.store(action.mask & BIT, Ordering::Relaxed);
        self.handler.store(action.handler, Ordering::Relaxed);
    }
}

impl Action {
    fn is_handled(&self) -> bool {
        !NO_HANDLER.contains(&self.handler)
    }

    /// What the kernel is told.
    fn with_ours(&self) -> Action {
        if !self.is_handled() {
            return *self;
        }
        Action {
            handler: wf_handler as *const () as u64,
            flags: self.flags | SA_RESTORER,
            restorer: wf_return as *const () as u64,
            mask: self.mask & !BIT,
        }
    }

    /// What the program is told.
    fn as_wanted(&self, wanted: &Action) -> Action {
        if self.handler != wf_handler as *const () as u64 {
            return *self;
        }
        Action {
            mask: self.mask | wanted.mask,
            ..*wanted
        }
    }
}

/// A SIGSYS that is none of ours.
///
/// # Safety
/// Called by its handler with what that was given.
pub(super) unsafe fn forward(signal: i32, info: &Info, context: &mut Context) {
    let handler = WANTED[SIGSYS as usize].handler.load(Ordering::Relaxed);
    match handler {
        1 => {}
        0 => {
            let none = Action::default();
            let _ = set(SIGSYS, &raw const none, core::ptr::null_mut());
            let (pid, tid) = (sys::pid().into(), sys::tid().into());
            // SAFETY: tgkill(2) takes numbers; it ends us when we return.
            let _ = unsafe { call(sys::TGKILL, [pid, tid, SIGSYS]) };
        }
        handler => {
            context.rip = seen(context.rip);
            // SAFETY: the program says that this is its handler.
            let handler: extern "C" fn(i32, *const Info, *mut Context) =
                unsafe { core::mem::transmute(handler) };
            handler(signal, info, context);
        }
    }
}
