//! Threads of the job while they are in the loader, and threads that help to fill memory.
//!
//! ```text
//! clone3(set_tid) -> stream -> parked (futex) -> [finish: registers set from outside]
//! ```
//! # What callers may rely on
//! Every signal is blocked in all of them. A parked thread stays where it is until it is
//! given its registers from outside.

use crate::abi::*;
use crate::context::{Context, Own};
use crate::init::{end_child, note_id};
use crate::interpret::{self, Runner};
use crate::job::{not_created, wants_ids};
use crate::message::{Message, send};
use crate::report::{Outcome, failure};
use crate::sys::{self, Errno, SysResult, call};
use crate::vdso_copy;
use core::sync::atomic::{AtomicU32, Ordering};
use loader::hole::THREAD_STACK_LEN;
use loader::ops::{InProgress, StreamEntry, StreamKind, timeout};
use loader::xstate::Xstate;

const THREAD_FLAGS: u64 =
    CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;

core::arch::global_asm!(
    ".text",
    // wayfarer_clone_thread(args, size, function, first, second, tids): 0 or the error; the child
    // calls function(first, second) on the stack in `args` and ends.
    ".globl wayfarer_clone_thread",
    "wayfarer_clone_thread:",
    "push rbx",
    "push r12",
    "mov rbx, rdx",
    "mov r12, rcx",
    "mov eax, 435",
    "syscall",
    "test rax, rax",
    "jz 2f",
    "pop r12",
    "pop rbx",
    "ret",
    "2:",
    "xor ebp, ebp",
    "mov rdi, r12",
    "mov rsi, r8",
    "call rbx",
    "mov eax, 60",
    "xor edi, edi",
    "syscall",
    "ud2",
    // The same with clone(2), which container filters let through: flags, stack, function, first,
    // child_tid, second.
    ".globl wayfarer_clone_thread_old",
    "wayfarer_clone_thread_old:",
    "push rbx",
    "push r12",
    "mov rbx, rdx",
    "mov r12, rcx",
    "mov r10, r8",
    "xor edx, edx",
    "mov r8, r9", // not looked at without CLONE_SETTLS
    "mov eax, 56",
    "syscall",
    "test rax, rax",
    "jz 2b",
    "pop r12",
    "pop rbx",
    "ret",
);

unsafe extern "C" {
    fn wayfarer_clone_thread(
        args: *const CloneArgs,
        size: u64,
        function: *const (),
        first: *const (),
        second: u64,
    ) -> i64;
    fn wayfarer_clone_thread_old(
        flags: u64,
        stack: u64,
        function: *const (),
        first: *const (),
        child_tid: u64,
        second: u64,
    ) -> i64;
}

/// Starts a helper thread on a stack of its own; `alive` becomes 0 when it is gone (its id a moment
/// later).
pub fn clone_helper<T>(
    stack: u64,
    stack_len: u64,
    function: extern "C" fn(*const T),
    argument: &T,
    alive: &AtomicU32,
    id: Option<i32>,
) -> SysResult<u64> {
    let ids = [id.unwrap_or(0)];
    let args = CloneArgs {
        set_tid: if id.is_some() {
            &raw const ids as u64
        } else {
            0
        },
        set_tid_size: u64::from(id.is_some()),
        flags: THREAD_FLAGS | CLONE_CHILD_CLEARTID,
        child_tid: alive.as_ptr() as u64,
        stack,
        stack_size: stack_len,
        ..CloneArgs::default()
    };
    let size = size_of::<CloneArgs>() as u64;
    let argument = core::ptr::from_ref(argument).cast();
    let function = function as *const ();
    // SAFETY: the stack is nobody else's; the caller waits for the thread before the argument goes.
    let result = sys::checked(unsafe { wayfarer_clone_thread(&args, size, function, argument, 0) });
    match result {
        Err(Errno(ENOSYS | EPERM)) if id.is_none() => {
            let (flags, tid) = (args.flags, args.child_tid);
            // SAFETY: as above.
            sys::checked(unsafe {
                wayfarer_clone_thread_old(flags, stack + stack_len, function, argument, tid, 0)
            })
        }
        other => other,
    }
}

/// The first id above those that the job's processes and threads want; none if any will do. Helper threads
/// are given ids from here on, and so are in nobody's way although an id is free only some time after
/// its thread is gone.
pub fn first_free_id(context: &Context) -> Option<i32> {
    let streams = 1..context.ops.header().streams;
    let ids = streams.filter_map(|index| Some(context.ops.stream(index)?.id));
    let highest = ids.max().and_then(|id| i32::try_from(id).ok());
    wants_ids(context).then_some(highest?.saturating_add(1))
}

/// The stream of a process's first thread.
pub fn first_thread(context: &Context, process: u64, pid: u64) -> Option<(u64, StreamEntry)> {
    context
        .streams_of(StreamKind::Thread, process)
        .find(|(_, entry)| entry.id == pid)
}

fn stack_of(context: &Context, stream: u64) -> u64 {
    context.address(context.layout.thread_stacks) + stream * THREAD_STACK_LEN
}

/// Where the relative time-out of a call in progress stands, for the thread with this stream.
pub fn timeout_place(context: &Context, stream: u64) -> u64 {
    // The lowest bytes of its stack: never reached.
    stack_of(context, stream)
}

/// Puts what is left of a time-out where the call will find it.
pub fn note_timeout(context: &Context, stream: u64, op: &InProgress) {
    if op.timeout_in == timeout::TIMESPEC {
        let place = timeout_place(context, stream) as *mut [u64; 2];
        let time = [
            op.remaining_ns / 1_000_000_000,
            op.remaining_ns % 1_000_000_000,
        ];
        // SAFETY: the stacks are mapped, and nobody else writes these bytes.
        unsafe { place.write(time) };
    }
}

/// Creates the other threads of this process and waits until all have parked.
pub fn spawn(context: &Context, process: u64) -> Outcome<()> {
    let pid = context.ops.stream(process).map_or(0, |entry| entry.id);
    let mut count = 0;
    for (stream, entry) in context.streams_of(StreamKind::Thread, process) {
        if entry.id != pid {
            create(context, stream, entry.id)?;
            count += 1;
        }
    }
    let parked = &context.shared(process + 1).parked;
    loop {
        let now = parked.load(Ordering::Acquire);
        if now >= count {
            return Ok(());
        }
        sys::futex_wait(parked, now);
    }
}

fn create(context: &Context, stream: u64, id: u64) -> Outcome<()> {
    let ids = [id as i32];
    let wants = wants_ids(context);
    let args = CloneArgs {
        flags: THREAD_FLAGS,
        stack: stack_of(context, stream),
        stack_size: THREAD_STACK_LEN,
        set_tid: if wants { &raw const ids as u64 } else { 0 },
        set_tid_size: u64::from(wants),
        ..CloneArgs::default()
    };
    let size = size_of::<CloneArgs>() as u64;
    let function = run as extern "C" fn(&'static Context, u64) as *const ();
    let argument = core::ptr::from_ref(context).cast();
    // SAFETY: the stack belongs to this stream alone; the context outlives the loader.
    let raw = unsafe { wayfarer_clone_thread(&args, size, function, argument, stream) };
    let mut result = sys::checked(raw);
    if let (false, Err(Errno(ENOSYS | EPERM))) = (wants, result) {
        let top = args.stack + args.stack_size;
        // SAFETY: as above.
        let raw =
            unsafe { wayfarer_clone_thread_old(args.flags, top, function, argument, 0, stream) };
        result = sys::checked(raw);
    }
    result
        .map(|_| ())
        .map_err(|error| not_created(context, "thread", id, error))
}

extern "C" fn run(context: &'static Context, stream: u64) {
    note_id(context, stream);
    let Some(entry) = context.ops.stream(stream) else {
        end_child(
            context,
            &failure!(Image, "section .wf.ops: no stream {stream}"),
        );
    };
    let mut runner = Runner::new(context, stream, None);
    if let Err(failure) = interpret::run(&mut runner, &entry) {
        end_child(context, &failure);
    }
    let parked = &context.shared(entry.parent + 1).parked;
    parked.fetch_add(1, Ordering::AcqRel);
    sys::futex_wake(parked);
    park(context)
}

/// The first thread of a process has done everything, and so have the others.
pub fn park_first(context: &Context, process: u64) -> ! {
    send(
        context.fd(Own::ReportWrite),
        Message::Parked(process as u32),
    );
    park(context)
}

fn park(context: &Context) -> ! {
    let word = &context.shared(0).park;
    loop {
        sys::futex_wait(word, 0);
    }
}

/// Notes where this thread goes on if it was inside another machine's vDSO.
pub fn note_rip(context: &Context, stream: u64, rip: u64) {
    if let Some(rip) = vdso_copy::moved(rip) {
        context.shared(stream + 1).rip.store(rip, Ordering::Release);
    }
}

/// A thread with live AMX tiles must have used a tile before they can be set from outside.
pub fn touch_tiles(registers: Xstate<'_>) {
    const TILE_DATA: u64 = 1 << 18;
    const ARCH_GET_XCOMP_PERM: u64 = 0x1022;
    const SYS_ARCH_PRCTL: u64 = 158;
    if registers.in_use() & TILE_DATA == 0 {
        return;
    }
    let mut permitted = 0u64;
    // SAFETY: the kernel writes one word.
    let asked = unsafe {
        call(
            SYS_ARCH_PRCTL,
            [ARCH_GET_XCOMP_PERM, &raw mut permitted as u64],
        )
    };
    if asked.is_err() || permitted & TILE_DATA == 0 {
        return;
    }
    let mut config = [0u8; 64];
    config[0] = 1; // palette
    config[16] = 64; // bytes per row of tile 0
    config[48] = 1; // rows of tile 0
    // SAFETY: the process has permission for tiles; nobody else uses tile state in this thread.
    unsafe {
        core::arch::asm!(
            ".byte 0xc4, 0xe2, 0x78, 0x49, 0x00", // ldtilecfg [rax]
            ".byte 0xc4, 0xe2, 0x7b, 0x49, 0xc0", // tilezero tmm0
            in("rax") config.as_ptr(), options(nostack));
    }
}
