//! The runner: what all threads of a workshop execute for us, each with its slot.
//!
//! ```text
//! enter: block signals -> list: the calls -> done=1 -> park 2 s ---------> home
//! picture: clone -> intermediate -> clone -> picture   -> done=1 -> park -> home
//! aside: clone -> child: the calls, exit               -> done=1 -> park -> home
//! ```
//! As in the stubs, no instruction changes a flag, touches the stack, or an extended register.

use super::asm::{Asm, Label, Reg};
use super::gate::Gate;
use super::stub::EINTR;

const CLOSE_RANGE_UNSHARE: u32 = 2;
const WALL: u32 = 0x4000_0000;

/// A thread's place in the workshop's data. Words of 8 bytes.
pub(super) mod slot {
    /// Address of the first call of the list.
    pub(crate) const CALLS: i32 = 0;
    /// How many.
    pub(crate) const COUNT: i32 = 8;
    /// Address of the thread's `done` word.
    pub(crate) const DONE: i32 = 16;
    /// Entries of its way home.
    pub(crate) const PLAIN: i32 = 24;
    pub(crate) const INTERRUPTED: i32 = 32;
    /// Time to park, seconds and nanoseconds.
    pub(crate) const PARK: i32 = 40;
    /// Result of the `clone` that makes a child: for the calls, or the first of a picture.
    pub(crate) const INTERMEDIATE: i32 = 56;
    /// Result of the second.
    pub(crate) const PICTURE: i32 = 64;
    /// How long a picture waits for us.
    pub(crate) const PATIENCE: i32 = 72;
    /// Data of the way home.
    pub(crate) const HOME: i32 = 96;
    /// All; as long as a way home, so that every way home is equally far from its data.
    pub(crate) const LEN: u64 = crate::inject::stub::HOME_CODE;
}

/// One call of a list: number, six arguments, result.
pub(super) const CALL_LEN: u64 = 64;
/// Seconds that a thread waits for us before it goes home.
pub(super) const PARK_S: u64 = 2;
/// Seconds that a picture waits for us before it ends.
pub(super) const PATIENCE_S: u64 = 5;

/// Code shared by all threads, `rbx` pointing to the slot.
#[derive(Debug)]
pub(super) struct Runner {
    pub(super) bytes: Vec<u8>,
    /// A call: the first of a thread, `rt_sigprocmask`, then its list.
    pub(super) enter: u64,
    /// The list, for a thread whose signals are blocked.
    pub(super) list: u64,
    /// The picture, likewise.
    pub(super) picture: u64,
    /// The list, made by a child that is gone before anybody looks, likewise.
    pub(super) aside: u64,
}

/// The runner for address `at`.
pub(super) fn runner(gate: Gate, at: u64) -> Option<Runner> {
    let mut asm = Asm::at(at, gate);
    let (list, done, interrupted) = (asm.label(), asm.label(), asm.label());
    asm.syscall();
    asm.add(Reg::Rcx, Reg::Rax, -(EINTR as i32));
    asm.if_rcx_zero(interrupted);
    asm.jump(list);
    asm.bind(interrupted);
    asm.jump_through_at(Reg::Rbx, slot::INTERRUPTED);

    let list_at = asm.here();
    asm.bind(list);
    emit_calls(&mut asm, done);

    asm.bind(done);
    asm.load_at(Reg::Rax, Reg::Rbx, slot::DONE);
    asm.set(Reg::Rcx, 1);
    asm.store_at(Reg::Rax, 0, Reg::Rcx);
    // No restart block: pselect6 has none, futex and nanosleep would overwrite the job's.
    emit_wait(&mut asm, slot::PARK);
    asm.add(Reg::Rcx, Reg::Rax, -(EINTR as i32));
    let woken = asm.label();
    asm.if_rcx_zero(woken);
    asm.jump_through_at(Reg::Rbx, slot::PLAIN);
    asm.bind(woken);
    asm.jump_through_at(Reg::Rbx, slot::INTERRUPTED);

    let picture_at = asm.here();
    emit_picture(&mut asm, done);
    let aside_at = asm.here();
    emit_aside(&mut asm, done);
    Some(Runner {
        bytes: asm.finish()?,
        enter: at,
        list: list_at,
        picture: picture_at,
        aside: aside_at,
    })
}

/// The calls of the slot's list, one after another; then goes to `after`, which must be near.
fn emit_calls(asm: &mut Asm, after: Label) {
    let next = asm.label();
    asm.load_at(Reg::R12, Reg::Rbx, slot::CALLS);
    asm.load_at(Reg::R13, Reg::Rbx, slot::COUNT);
    asm.bind(next);
    asm.copy(Reg::Rcx, Reg::R13);
    asm.if_rcx_zero(after);
    let args = [
        Reg::Rax,
        Reg::Rdi,
        Reg::Rsi,
        Reg::Rdx,
        Reg::R10,
        Reg::R8,
        Reg::R9,
    ];
    for (index, reg) in args.into_iter().enumerate() {
        asm.load_at(reg, Reg::R12, 8 * index as i32);
    }
    asm.syscall();
    asm.store_at(Reg::R12, 56, Reg::Rax);
    asm.add(Reg::R12, Reg::R12, CALL_LEN as i32);
    asm.add(Reg::R13, Reg::R13, -1);
    asm.jump(next);
}

fn emit_wait(asm: &mut Asm, time: i32) {
    asm.set(Reg::Rax, libc::SYS_pselect6 as u32);
    for reg in [Reg::Rdi, Reg::Rsi, Reg::Rdx, Reg::R10, Reg::R9] {
        asm.set(reg, 0);
    }
    asm.add(Reg::R8, Reg::Rbx, time);
    asm.syscall();
}

fn emit_clone(asm: &mut Asm, flags: i32) {
    asm.set(Reg::Rax, libc::SYS_clone as u32);
    asm.set(Reg::Rdi, flags as u32);
    for reg in [Reg::Rsi, Reg::Rdx, Reg::R10, Reg::R8] {
        asm.set(reg, 0);
    }
    asm.syscall();
}

/// Makes a child that shares memory and what is `shared` besides, and begins at `child`, waits for its end, and goes to `done`.
fn emit_child(asm: &mut Asm, shared: i32, child: Label, done: Label) {
    let born = asm.label();
    emit_clone(asm, libc::CLONE_VM | libc::CLONE_VFORK | shared);
    asm.copy(Reg::Rcx, Reg::Rax);
    asm.if_rcx_zero(child);
    asm.store_at(Reg::Rbx, slot::INTERMEDIATE, Reg::Rax);
    asm.copy(Reg::Rdi, Reg::Rax);
    asm.error_to_rcx();
    asm.if_rcx_zero(born);
    asm.jump(done);
    asm.bind(born);
    // It has no exit signal, so only __WALL sees it.
    asm.set(Reg::Rax, libc::SYS_wait4 as u32);
    asm.set(Reg::Rsi, 0);
    asm.set(Reg::Rdx, WALL);
    asm.set(Reg::R10, 0);
    asm.syscall();
    asm.jump(done);
}

fn emit_leave(asm: &mut Asm) {
    asm.set(Reg::Rax, libc::SYS_exit_group as u32);
    asm.set(Reg::Rdi, 0);
    asm.syscall();
    asm.never();
}

/// What the calls change of a thread, or of its table of descriptors, they change of a child.
fn emit_aside(asm: &mut Asm, done: Label) {
    let (child, over) = (asm.label(), asm.label());
    emit_child(asm, libc::CLONE_FS, child, done);
    asm.bind(child);
    emit_calls(asm, over);
    asm.bind(over);
    emit_leave(asm);
}

/// ADR 0002: a child that shares everything makes the picture and is gone before anybody looks.
fn emit_picture(asm: &mut Asm, done: Label) {
    let (intermediate, picture, leave) = (asm.label(), asm.label(), asm.label());
    emit_child(asm, libc::CLONE_FILES, intermediate, done);
    asm.bind(intermediate);
    emit_clone(asm, libc::CLONE_FILES);
    asm.copy(Reg::Rcx, Reg::Rax);
    asm.if_rcx_zero(picture);
    asm.store_at(Reg::Rbx, slot::PICTURE, Reg::Rax);
    asm.bind(leave);
    emit_leave(asm);

    // An empty table of its own. (Newer kernels copy none of the descriptors; older ones copy the table
    // and close the copies at once: before the job goes on in either case.)
    asm.bind(picture);
    asm.set(Reg::Rax, libc::SYS_close_range as u32);
    asm.set(Reg::Rdi, 0);
    asm.set(Reg::Rsi, u32::MAX);
    asm.set(Reg::Rdx, CLOSE_RANGE_UNSHARE);
    asm.syscall();
    asm.copy(Reg::Rcx, Reg::Rax);
    let closed = asm.label();
    asm.if_rcx_zero(closed);
    asm.jump(leave);
    asm.bind(closed);
    emit_wait(asm, slot::PATIENCE);
    asm.jump(leave);
}
