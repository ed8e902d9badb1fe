//! Carrying out a stream: one function for each operation.
//!
//! # What callers may rely on
//! The first operation that does not do what it should ends the stream with a failure that
//! names what it was to bring back.

use crate::abi::*;
use crate::address_space;
use crate::context::{Context, Own};
use crate::device;
use crate::enforce;
use crate::epoll;
use crate::exec;
use crate::feed::Feeds;
use crate::fill;
use crate::held;
use crate::inodes;
use crate::objects;
use crate::options::Files;
use crate::report::{self, Outcome, Raw, failure};
use crate::roll_back;
use crate::sockets;
use crate::sys::{self, Errno};
use crate::threads;
use crate::unread;
use crate::vdso::{self, OldVdso};
use loader::call_names::CallName;
use loader::hole::HUGE_PAGE;
use loader::ops::tails::{self, CallTail, Unfit};
use loader::ops::{AnyOp, Call, Expect, Record, StreamEntry};
use loader::page_advice::PageAdvice;

/// Who carries out a stream.
pub struct Runner<'a> {
    pub context: &'a Context,
    /// Index of the stream.
    pub stream: u64,
    /// Prepare stream only.
    pub feeds: Option<&'a mut Feeds>,
    /// What `Vdso` has left for `Fill` to do.
    pub old_vdso: OldVdso,
    pub advice: PageAdvice,
}

impl<'a> Runner<'a> {
    pub fn new(context: &'a Context, stream: u64, feeds: Option<&'a mut Feeds>) -> Self {
        Runner {
            context,
            stream,
            feeds,
            old_vdso: OldVdso::None,
            advice: PageAdvice::default(),
        }
    }
}

/// What a record has behind its fields, if it fits.
pub fn fits<T>(read: Result<T, Unfit>) -> Outcome<T> {
    read.map_err(|what| failure!(Image, "section .wf.ops: {what}"))
}

/// A path in a record's tail.
pub fn text(tail: &'static [u8]) -> Outcome<&'static core::ffi::CStr> {
    fits(tails::text(tail))
}

/// Carries out all records of a stream.
pub fn run(runner: &mut Runner<'_>, entry: &StreamEntry) -> Outcome<()> {
    for record in runner.context.ops.records(entry) {
        let record = record.map_err(|error| {
            failure!(
                Image,
                "section .wf.ops: {} at offset {}",
                error.what,
                error.offset
            )
        })?;
        step(runner, &record)?;
    }
    Ok(())
}

fn step(runner: &mut Runner<'_>, record: &Record<'static>) -> Outcome<()> {
    let context = runner.context;
    let tail = record.tail;
    if let AnyOp::Call(op) = &record.op {
        note_advice(&mut runner.advice, op);
    }
    match &record.op {
        AnyOp::Call(op) if context.kept.is_there(op) => Ok(()),
        AnyOp::Call(op) => call(context, op, tail),
        AnyOp::Inode(op) => inodes::find(context, op, tail),
        AnyOp::Open(op) => inodes::open(context, op, tail),
        AnyOp::Inherit(op) => objects::inherit(context, op, tail),
        AnyOp::Device(op) => device::open(context, op, tail),
        AnyOp::FillInode(op) => inodes::fill(context, op.slot as i32, op.inode, op.size),
        AnyOp::Send(op) => sockets::send(context, op, tail),
        AnyOp::Refill(op) => unread::refill(context, op, tail),
        AnyOp::Watch(op) => objects::watch(op, tail),
        AnyOp::Fired(op) => epoll::add_fired(context, op),
        AnyOp::UnmapAll(_) => address_space::unmap_all(context),
        AnyOp::Fill(op) => {
            fill::fill(context, op.process, &runner.old_vdso, &runner.advice)?;
            let kept = runner.old_vdso.kept();
            held::check(context, runner.stream, op.process, &kept)?;
            vdso::redirect(context, op.process, &runner.old_vdso)
        }
        AnyOp::Vdso(op) => {
            runner.old_vdso = vdso::place(op, tail)?;
            Ok(())
        }
        AnyOp::MmMap(op) => address_space::layout(context, op, tail),
        AnyOp::SpawnThreads(_) => threads::spawn(context, runner.stream),
        AnyOp::TimerCreate(op) => objects::timer(context, op, tail),
        AnyOp::Exec(op) => exec::exec(context, op, tail),
        AnyOp::Pipe(op) => objects::pipe(op),
        AnyOp::SocketPair(op) => objects::socket_pair(op),
        AnyOp::OwnId(op) => {
            address_space::write_own_id(op.address);
            Ok(())
        }
        AnyOp::Feed(op) => match &mut runner.feeds {
            Some(feeds) => feeds.add(context, op),
            None => Err(failure!(
                Image,
                "section .wf.ops: Feed in the stream of a process"
            )),
        },
        AnyOp::InProgress(op) => {
            threads::note_timeout(context, runner.stream, op);
            Ok(())
        }
        AnyOp::Registers(op) => {
            threads::touch_tiles(fits(tails::registers(tail))?);
            threads::note_rip(context, runner.stream, op.rip);
            Ok(())
        }
        // Done by whoever finishes the restart.
        AnyOp::Stopped(_) | AnyOp::Terminal(_) | AnyOp::Enforce(_) | AnyOp::Ended(_) => Ok(()),
        AnyOp::CutBack(op) => roll_back::check_growth(context, op, tail),
    }
}

/// Remembers what a call says about pages. Where no huge page fits, it says nothing.
fn note_advice(advice: &mut PageAdvice, op: &Call) {
    let memory = op.a0..op.a0.saturating_add(op.a1);
    let fits = op.a1 >= HUGE_PAGE;
    match (op.nr, op.a2) {
        (SYS_MADVISE, MADV_HUGEPAGE) => advice.ask_for_huge(),
        (SYS_MADVISE, MADV_NOHUGEPAGE) if fits => advice.keep_small(&memory),
        (SYS_MBIND | SYS_SET_MEMPOLICY_HOME_NODE, _) if fits => advice.keep_small(&memory),
        _ => {}
    }
}

/// Cuts grown files back, when next to nothing else can fail any more: first every tail is saved, then
/// all files are cut.
pub fn cut_back_files(context: &Context, prepare: &StreamEntry) -> Outcome<()> {
    if context.options.files != Files::RollBack {
        return Ok(());
    }
    for step in [roll_back::save_tail, roll_back::cut] {
        for record in context.ops.records(prepare).filter_map(Result::ok) {
            if let AnyOp::CutBack(op) = record.op {
                step(context, &op, record.tail)?;
            }
        }
    }
    Ok(())
}

/// Sets what others beside the job see: flags of the restarter's descriptors, its terminal.
pub fn take_over(context: &Context, prepare: &StreamEntry) {
    for record in context.ops.records(prepare).filter_map(Result::ok) {
        match record.op {
            AnyOp::Inherit(op) => objects::set_flags(op.fd, op.flags),
            AnyOp::Feed(op) => objects::set_flags(op.fd, op.flags),
            AnyOp::Terminal(op) if context.in_foreground => {
                objects::terminal(context, &op, record.tail);
            }
            _ => {}
        }
    }
}

fn call(context: &Context, op: &Call, tail: &'static [u8]) -> Outcome<()> {
    let tail = fits(CallTail::read(op, tail))?;
    let label = Raw(tail.label.to_bytes());
    let mut args = [op.a0, op.a1, op.a2, op.a3, op.a4, op.a5];
    for (index, argument) in args.iter_mut().enumerate() {
        if op.pointers & 1 << index != 0 {
            let place = tail.pointed(*argument).unwrap_or(&[]);
            *argument = place.as_ptr() as u64;
        }
    }
    if is_left_to_the_finish(op.nr, op.a0) {
        return Ok(());
    }
    // Without somebody to ask, CPUID must not fault; what that means was said.
    let faults = op.nr == SYS_ARCH_PRCTL && op.a0 == ARCH_SET_CPUID;
    if faults && enforce::is_wanted(context) && context.fd(Own::Listener) < 0 {
        enforce::give_up();
        return Ok(());
    }
    translate_ids(context, op.nr, &mut args);
    let owner;
    if let Some(was) = tail.owner(op) {
        owner = owner_now(context, was, &label);
        args[2] = owner.as_ptr() as u64;
    }
    // SAFETY: the list decides what is called; its section is under a checksum, and an image is
    // a program like any other. Addresses lie in the job's memory, not in the hole.
    let mut result = unsafe { sys::syscall(op.nr, args) };
    if op.nr == SYS_MEMFD_CREATE && sys::checked(result) == Err(Errno(EACCES)) {
        // vm.memfd_noexec = 2: only those that cannot be executed may be made.
        args[1] |= MFD_NOEXEC_SEAL;
        // SAFETY: the same call.
        result = unsafe { sys::syscall(op.nr, args) };
    }
    judge(context, op, result, &label)
}

fn judge(context: &Context, op: &Call, result: i64, label: &Raw<'_>) -> Outcome<()> {
    // Known: the list has been read.
    let expect = Expect::from_number(op.expect).unwrap_or(Expect::Success);
    match (expect, sys::checked(result)) {
        (Expect::Ignore, _) => Ok(()),
        (Expect::Exactly, Ok(value)) if value != op.value => {
            let expected = op.value;
            Err(failure!(
                Failed,
                "{label}: {}: found {value:#x}, expected {expected:#x}",
                CallName(op.nr)
            ))
        }
        (Expect::Slot, Ok(fd)) => {
            let moved = if fd == op.value {
                sys::fcntl(fd as i32, F_SETFD, FD_CLOEXEC)
            } else {
                let moved = sys::dup_to(fd as i32, op.value as i32);
                sys::close(fd as i32);
                moved
            };
            moved
                .map(|_| ())
                .map_err(|error| failure!(Failed, "{label}: descriptor {}: {error}", op.value))
        }
        (_, Ok(_)) => Ok(()),
        (Expect::OrNoted, Err(error)) => {
            report::say(context.name(), format_args!("note: {label}: {error}"));
            Ok(())
        }
        (Expect::OrDegraded, Err(error)) if context.options.degraded => {
            report::say(context.name(), format_args!("lost: {label}: {error}"));
            Ok(())
        }
        (Expect::OrDegraded, Err(error)) => Err(failure!(
            Host,
            "{label}: {error}; --degraded goes on without it"
        )),
        (_, Err(error)) => Err(failed_call(op.nr, error, label)),
    }
}

fn failed_call(nr: u64, error: Errno, label: &Raw<'_>) -> report::Failure {
    failure!(Failed, "{label}: {}: {error}", CallName(nr))
}

/// Syscall user dispatch would trap the loader's own calls, and until the end a process of the job dies
/// with its parent: both are set from outside.
fn is_left_to_the_finish(nr: u64, option: u64) -> bool {
    nr == SYS_PRCTL && matches!(option, PR_SET_SYSCALL_USER_DISPATCH | PR_SET_PDEATHSIG)
}

/// `struct f_owner_ex` with the id that a process, thread or group of the job has now. Nobody else is
/// told about what happens to the job's descriptors.
fn owner_now(context: &Context, [kind, id]: [u32; 2], label: &Raw<'_>) -> [u32; 2] {
    let now = context.id_in_job(u64::from(id)).unwrap_or(0) as u32;
    if now == 0 && id != 0 {
        report::say(
            context.name(),
            format_args!("note: {label}: {id} is not of the job: nobody is told"),
        );
    }
    [kind, now]
}

/// Calls that name a process or thread of the job by its old id.
fn translate_ids(context: &Context, nr: u64, args: &mut [u64; 6]) {
    match nr {
        SYS_RT_SIGQUEUEINFO => args[0] = sys::pid() as u64,
        SYS_RT_TGSIGQUEUEINFO => {
            args[0] = sys::pid() as u64;
            args[1] = context.id_now(args[1]);
        }
        SYS_PIDFD_OPEN => args[0] = context.id_now(args[0]),
        _ => {}
    }
}
