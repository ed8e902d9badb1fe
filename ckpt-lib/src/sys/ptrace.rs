//! `ptrace(2)` and waiting, one function per request.
//!
//! # What callers may rely on
//! A wrong or ended thread id is an error (ESRCH), never undefined behaviour: the kernel looks the id
//! up among the tracees of the calling thread. Every request that can change a tracee is counted;
//! with `WAYFARER_FAULT=ptrace:K` in the environment the process kills itself right after the K-th.
#![allow(unsafe_code)]

use super::fault;
use crate::snapshot::{Registers, Rseq, SyscallDispatch};
use libc::{c_long, c_uint, c_void, pid_t};
use std::io;
use std::ptr::{from_mut, from_ref, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

const NT_PRSTATUS: usize = 1;
const NT_X86_XSTATE: usize = 0x202;
const PTRACE_GETSIGMASK: c_uint = 0x420a;
const PTRACE_SETSIGMASK: c_uint = 0x420b;
const PTRACE_GET_RSEQ_CONFIGURATION: c_uint = 0x420f;
const PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG: c_uint = 0x4211;
/// More than any register set of any processor so far (AMX: 11 008 bytes).
const XSTATE_MAX: usize = 64 * 1024;

/// Stops at system calls are told apart from SIGTRAP.
pub(crate) const OPTION_SYSGOOD: i32 = libc::PTRACE_O_TRACESYSGOOD;
/// The tracee dies with the tracer.
pub(crate) const OPTION_EXITKILL: i32 = libc::PTRACE_O_EXITKILL;
/// Children of `clone(CLONE_VFORK)` and of other `clone`s are traced from their first instruction.
pub(crate) const OPTION_CLONES: i32 = libc::PTRACE_O_TRACEVFORK | libc::PTRACE_O_TRACECLONE;

/// A request whose last argument the kernel does not follow as a pointer, or one that `data` is valid for.
///
/// # Safety
/// `data` must be what the request wants: a number, or a pointer valid for what the kernel reads or writes there.
unsafe fn request(
    request: c_uint,
    tid: pid_t,
    address: usize,
    data: *mut c_void,
) -> io::Result<c_long> {
    // SAFETY: the caller vouches for `data`; `address` is a number in every request used here.
    let result = unsafe { libc::ptrace(request, tid, address as *mut c_void, data) };
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn number(what: c_uint, tid: pid_t, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: only used for requests whose `data` is a number.
    let result = unsafe { request(what, tid, address, data as *mut c_void) };
    fault::step();
    result.map(|_| ())
}

/// Starts to trace a thread without stopping it.
pub(crate) fn seize(tid: i32, options: i32) -> io::Result<()> {
    number(libc::PTRACE_SEIZE, tid, 0, options as usize)
}

/// Asks a traced thread to stop.
pub(crate) fn interrupt(tid: i32) -> io::Result<()> {
    number(libc::PTRACE_INTERRUPT, tid, 0, 0)
}

/// Lets a stopped thread run, delivering `signal` if not 0.
pub(crate) fn cont(tid: i32, signal: i32) -> io::Result<()> {
    number(libc::PTRACE_CONT, tid, 0, signal as usize)
}

/// Lets a stopped thread run up to the next entry to or exit from a system call, delivering `signal` if not 0.
pub(crate) fn cont_to_syscall(tid: i32, signal: i32) -> io::Result<()> {
    number(libc::PTRACE_SYSCALL, tid, 0, signal as usize)
}

/// Stops tracing a stopped thread, delivering `signal` if not 0.
pub(crate) fn detach(tid: i32, signal: i32) -> io::Result<()> {
    number(libc::PTRACE_DETACH, tid, 0, signal as usize)
}

/// Sets `PTRACE_O_*`.
pub(crate) fn set_options(tid: i32, options: i32) -> io::Result<()> {
    number(libc::PTRACE_SETOPTIONS, tid, 0, options as usize)
}

/// Writes one word, whatever the protection of the page.
pub(crate) fn poke(tid: i32, address: u64, word: u64) -> io::Result<()> {
    number(libc::PTRACE_POKEDATA, tid, address as usize, word as usize)
}

/// Reads one word, whatever the protection of the page. Only for the thread that traces it.
pub(crate) fn peek_word(tid: i32, address: u64) -> io::Result<u64> {
    let mut word = 0u64;
    // SAFETY: the kernel writes one word to `word`; unlike the C library's, the call itself returns no data.
    let result = unsafe {
        libc::syscall(
            libc::SYS_ptrace,
            libc::PTRACE_PEEKDATA,
            tid,
            address,
            from_mut(&mut word),
        )
    };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(word)
}

/// What the event the thread is stopped at came with: the id of a new child.
pub(crate) fn event_message(tid: i32) -> io::Result<u64> {
    let mut message = 0u64;
    // SAFETY: the kernel writes one unsigned long.
    unsafe {
        request(
            libc::PTRACE_GETEVENTMSG,
            tid,
            0,
            from_mut(&mut message).cast(),
        )
    }?;
    Ok(message)
}

pub(super) fn get_set(tid: i32, kind: usize, buf: &mut [u8]) -> io::Result<usize> {
    let mut vector = libc::iovec {
        iov_base: buf.as_mut_ptr().cast(),
        iov_len: buf.len(),
    };
    // SAFETY: the kernel writes at most `iov_len` bytes to `buf` and the number written to `vector`.
    unsafe {
        request(
            libc::PTRACE_GETREGSET,
            tid,
            kind,
            from_mut(&mut vector).cast(),
        )
    }?;
    Ok(vector.iov_len)
}

fn set_set(tid: i32, kind: usize, bytes: &[u8]) -> io::Result<()> {
    let mut vector = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: the kernel reads `iov_len` bytes of `bytes` and writes only to `vector`.
    let result = unsafe {
        request(
            libc::PTRACE_SETREGSET,
            tid,
            kind,
            from_mut(&mut vector).cast(),
        )
    };
    fault::step();
    result.map(|_| ())
}

/// Number of registers in `struct user_regs_struct`.
const WORDS: usize = 27;

/// The general registers.
pub(crate) fn registers(tid: i32) -> io::Result<Registers> {
    let mut bytes = [0; WORDS * 8];
    let len = get_set(tid, NT_PRSTATUS, &mut bytes)?;
    if len != bytes.len() {
        // As many as a 32-bit task has.
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "it executes 32-bit code (i386), which cannot be carried",
        ));
    }
    let mut words = [0; WORDS];
    for (word, raw) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*raw);
    }
    let [
        r15,
        r14,
        r13,
        r12,
        rbp,
        rbx,
        r11,
        r10,
        r9,
        r8,
        rax,
        rcx,
        rdx,
        rsi,
        rdi,
        orig_rax,
        rip,
        cs,
        eflags,
        rsp,
        ss,
        fs_base,
        gs_base,
        ds,
        es,
        fs,
        gs,
    ] = words;
    Ok(Registers {
        r15,
        r14,
        r13,
        r12,
        rbp,
        rbx,
        r11,
        r10,
        r9,
        r8,
        rax,
        rcx,
        rdx,
        rsi,
        rdi,
        orig_rax,
        rip,
        cs,
        eflags,
        rsp,
        ss,
        fs_base,
        gs_base,
        ds,
        es,
        fs,
        gs,
    })
}

/// Sets the general registers.
pub(crate) fn set_registers(tid: i32, r: &Registers) -> io::Result<()> {
    let words: [u64; WORDS] = [
        r.r15, r.r14, r.r13, r.r12, r.rbp, r.rbx, r.r11, r.r10, r.r9, r.r8, r.rax, r.rcx, r.rdx,
        r.rsi, r.rdi, r.orig_rax, r.rip, r.cs, r.eflags, r.rsp, r.ss, r.fs_base, r.gs_base, r.ds,
        r.es, r.fs, r.gs,
    ];
    let mut bytes = [0; WORDS * 8];
    for (raw, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *raw = word.to_le_bytes();
    }
    set_set(tid, NT_PRSTATUS, &bytes)
}

/// The extended state in its full size, dynamic features included.
pub(crate) fn xstate(tid: i32) -> io::Result<Vec<u8>> {
    // As many as the last thread had, and one to tell whether this one has more.
    static ROOM: AtomicUsize = AtomicUsize::new(XSTATE_MAX);
    for room in [ROOM.load(Ordering::Relaxed), XSTATE_MAX] {
        let mut bytes = vec![0; room];
        let len = get_set(tid, NT_X86_XSTATE, &mut bytes)?;
        if len < room || room == XSTATE_MAX {
            ROOM.store((len + 8).min(XSTATE_MAX), Ordering::Relaxed);
            return Ok(bytes[..len].to_vec());
        }
    }
    Err(io::Error::other("a register set of no size"))
}

/// Blocked signals: those that will be blocked when a call that changed the mask has returned.
pub(crate) fn signal_mask(tid: i32) -> io::Result<u64> {
    let mut mask = 0u64;
    // SAFETY: the kernel writes 8 bytes, as `address` says.
    unsafe { request(PTRACE_GETSIGMASK, tid, 8, from_mut(&mut mask).cast()) }?;
    Ok(mask)
}

/// Sets the blocked signals.
pub(crate) fn set_signal_mask(tid: i32, mask: u64) -> io::Result<()> {
    // SAFETY: the kernel reads 8 bytes, as `address` says.
    let result = unsafe { request(PTRACE_SETSIGMASK, tid, 8, from_ref(&mask).cast_mut().cast()) };
    fault::step();
    result.map(|_| ())
}

#[repr(C)]
struct PeekArgs {
    offset: u64,
    flags: u32,
    count: i32,
}

/// Pending signals, oldest first: of the thread, or (`shared`) of its process.
///
/// The kernel breaks off in the middle when a signal is pending for the caller (`ptrace_peek_siginfo`,
/// kernel/ptrace.c), so only an empty answer says that there are no more.
pub(crate) fn pending(tid: i32, shared: bool) -> io::Result<Vec<[u8; 128]>> {
    const BATCH: usize = 32;
    let mut found = vec![];
    loop {
        let args = PeekArgs {
            offset: found.len() as u64,
            flags: u32::from(shared),
            count: BATCH as i32,
        };
        let mut batch = [[0u8; 128]; BATCH];
        // SAFETY: the kernel reads `args` (its address is the number `address`), which lives to the end
        // of the block, and writes at most `count` siginfo_t of 128 bytes each to `batch`.
        let count = unsafe {
            request(
                libc::PTRACE_PEEKSIGINFO,
                tid,
                from_ref(&args) as usize,
                batch.as_mut_ptr().cast(),
            )
        }?;
        let count = usize::try_from(count).unwrap_or(0).min(BATCH);
        if count == 0 {
            return Ok(found);
        }
        found.extend_from_slice(&batch[..count]);
    }
}

#[repr(C)]
#[derive(Default)]
struct RseqConfiguration {
    pointer: u64,
    size: u32,
    signature: u32,
    flags: u32,
    pad: u32,
}

/// Registration of restartable sequences; `Ok(None)` if there is none or the kernel (before 5.13) cannot tell.
pub(crate) fn rseq(tid: i32) -> io::Result<Option<Rseq>> {
    let mut config = RseqConfiguration::default();
    let size = size_of::<RseqConfiguration>();
    // SAFETY: the kernel writes at most `size` bytes.
    let result = unsafe {
        request(
            PTRACE_GET_RSEQ_CONFIGURATION,
            tid,
            size,
            from_mut(&mut config).cast(),
        )
    };
    match result {
        Ok(_) if config.pointer == 0 => Ok(None),
        Ok(_) => Ok(Some(Rseq {
            address: config.pointer,
            len: config.size,
            signature: config.signature,
            flags: config.flags,
        })),
        Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(None),
        Err(error) => Err(error),
    }
}

#[repr(C)]
#[derive(Default)]
struct DispatchConfiguration {
    mode: u64,
    selector: u64,
    offset: u64,
    len: u64,
}

/// Syscall user dispatch; `Ok(None)` if it is off, or the kernel (before 6.4) cannot tell.
pub(crate) fn syscall_dispatch(tid: i32) -> io::Result<Option<SyscallDispatch>> {
    let config = dispatch_configuration(tid)?;
    Ok(config
        .filter(|config| config.mode != 0)
        .map(|config| SyscallDispatch {
            mode: config.mode,
            offset: config.offset,
            len: config.len,
            selector: config.selector,
        }))
}

/// Whether the kernel can tell (Linux 6.4).
pub(crate) fn tells_syscall_dispatch(tid: i32) -> bool {
    !matches!(dispatch_configuration(tid), Ok(None))
}

/// None: the kernel cannot tell.
fn dispatch_configuration(tid: i32) -> io::Result<Option<DispatchConfiguration>> {
    let mut config = DispatchConfiguration::default();
    let size = size_of::<DispatchConfiguration>();
    // SAFETY: the kernel writes `size` bytes.
    let result = unsafe {
        request(
            PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG,
            tid,
            size,
            from_mut(&mut config).cast(),
        )
    };
    match result {
        Ok(_) => Ok(Some(config)),
        Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What a wait for a tracee tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// Stopped because we asked for it (`signal` is SIGTRAP), or by job control (SIGSTOP ...).
    EventStop {
        /// SIGTRAP or the signal of job control.
        signal: i32,
    },
    /// Stopped at another event (`PTRACE_EVENT_*`).
    Event(i32),
    /// Stopped at the entry to or exit from a system call.
    Syscall,
    /// Stopped before this signal is delivered.
    Signal(i32),
    /// It has ended.
    Ended,
}

/// A status of a tracee, if there is one. `Err(ECHILD)`: it is no tracee (any more).
///
/// [`Waited::Signal`] is only looked at, and told again until the thread is let run: the kernel keeps the
/// signal where a wait empties it (`wait_task_stopped`, kernel/exit.c), and what it finds there when a
/// tracer dies is what it delivers. If it were taken, our death before `cont(signal)` would lose it.
pub(crate) fn try_wait(tid: i32) -> io::Result<Option<Waited>> {
    let Some(seen) = peek(tid)? else {
        return Ok(None);
    };
    if matches!(seen, Waited::Signal(_)) {
        fault::step();
        return Ok(Some(seen));
    }
    let mut status = 0;
    // SAFETY: the kernel writes one int.
    let got = unsafe { libc::waitpid(tid, from_mut(&mut status), libc::WNOHANG | libc::__WALL) };
    fault::step();
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    if got > 0 && !libc::WIFSTOPPED(status) {
        return Ok(Some(Waited::Ended));
    }
    // Killed in between, it is at its stop no more.
    Ok((got > 0).then_some(seen))
}

/// Looks at the status of a tracee.
fn peek(tid: i32) -> io::Result<Option<Waited>> {
    let which = libc::WEXITED | libc::WSTOPPED;
    let options = which | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: all zeros is a valid siginfo_t.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one siginfo_t.
    if unsafe { libc::waitid(libc::P_PID, tid as libc::id_t, from_mut(&mut info), options) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled in by waitid, or zero.
    if unsafe { info.si_pid() } == 0 {
        return Ok(None);
    }
    if ![libc::CLD_TRAPPED, libc::CLD_STOPPED].contains(&info.si_code) {
        return Ok(Some(Waited::Ended));
    }
    // SAFETY: filled in by waitid.
    let status = unsafe { info.si_status() };
    let signal = status & 0xff;
    Ok(Some(match status >> 8 {
        0 if signal == libc::SIGTRAP | 0x80 => Waited::Syscall,
        0 => Waited::Signal(signal),
        libc::PTRACE_EVENT_STOP => Waited::EventStop { signal },
        event => Waited::Event(event),
    }))
}

/// Takes notice of the end of a tracee of any thread of this process, if it has ended; leaves stops alone.
///
/// A wait takes the stops of tracees whatever it asks for (`wait_task_stopped`, kernel/exit.c), so
/// it is looked first what there is to take.
pub(crate) fn reap(tid: i32) {
    let options = libc::WEXITED | libc::WNOHANG | libc::__WALL;
    // SAFETY: all zeros is a valid siginfo_t.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let (id, look) = (tid as libc::id_t, options | libc::WNOWAIT);
    // SAFETY: the kernel writes one siginfo_t.
    let result = unsafe { libc::waitid(libc::P_PID, id, from_mut(&mut info), look) };
    let ended = [libc::CLD_EXITED, libc::CLD_KILLED, libc::CLD_DUMPED];
    // SAFETY: filled in by waitid, or zero.
    if result == 0 && unsafe { info.si_pid() } != 0 && ended.contains(&info.si_code) {
        // SAFETY: the kernel writes no siginfo where the pointer is null.
        unsafe { libc::waitid(libc::P_PID, id, null_mut(), options) };
    }
}

/// Whether [`try_wait`] would have something to tell of a tracee.
pub(crate) fn is_told(tid: i32) -> bool {
    matches!(peek(tid), Ok(Some(_)))
}

/// Sends a signal to a process.
pub(crate) fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: takes two numbers.
    if unsafe { libc::kill(pid, signal) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Reads memory of another process without its help; the number of bytes read, which may be fewer.
pub(crate) fn vm_read(pid: i32, address: u64, buf: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec {
        iov_base: buf.as_mut_ptr().cast(),
        iov_len: buf.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut c_void,
        iov_len: buf.len(),
    };
    // SAFETY: the kernel writes at most `buf.len()` bytes to `buf`; `remote` is an address over there.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// Lets others run, or sleeps a little: one step of a wait that began `tries` steps ago.
pub(crate) fn pause(tries: u32) {
    if tries < 200 {
        // SAFETY: takes nothing and cannot fail.
        unsafe { libc::sched_yield() };
        return;
    }
    let nap = libc::timespec {
        tv_sec: 0,
        tv_nsec: if tries < 1000 { 50_000 } else { 1_000_000 },
    };
    // SAFETY: reads one timespec.
    unsafe { libc::nanosleep(from_ref(&nap), null_mut()) };
}

/// CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec; this clock cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, from_mut(&mut now)) };
    (now.tv_sec as u64) * 1_000_000_000 + now.tv_nsec as u64
}
