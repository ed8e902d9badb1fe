//! Random steps of a job.

use super::job::{Done, Job, Not};
use proptest::prelude::*;
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, RenameFlags};
use rustix::io::Errno;

/// What a job does next. Names are few, so that steps meet.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Write(String, u64, usize, u8),
    Append(String, usize),
    Truncate(String, u64),
    Rewrite(String, usize),
    Punch(String, u64, u64),
    Folder(String),
    Link(String, String),
    Fifo(String),
    Remove(String),
    RemoveTree(String),
    Move(String, String),
    MoveToNew(String, String),
    Exchange(String, String),
    HardLink(String, String),
    Mode(String, u32),
    Times(String, i64, i64),
    Xattr(String, u8, usize),
    NoXattr(String, u8),
    Hold(String),
    WriteHeld(u64, usize, u8),
    Mark,
    Abort,
    Forget,
    Undo(usize),
    Reopen,
}

fn name() -> impl Strategy<Value = String> {
    let part = || prop::sample::select(vec!["a", "b", "c"]);
    prop_oneof![
        3 => part().prop_map(str::to_owned),
        4 => (part(), part()).prop_map(|(one, two)| format!("{one}/{two}")),
        2 => (part(), part(), part()).prop_map(|(one, two, three)| format!("{one}/{two}/{three}")),
    ]
}

/// Around blocks, ends, and far away.
fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..5_000_u64,
        3 => 65_000..66_500_u64,
        2 => 130_000..140_000_u64,
        1 => 0..3_000_000_u64,
    ]
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 1..3_000_usize, 1 => 60_000..140_000_usize]
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let modes = vec![0o755, 0o700, 0o500, 0o1777, 0o644, 0o600, 0o400];
    prop_oneof![
        8 => (name(), offset(), len(), any::<u8>())
            .prop_map(|(name, at, len, byte)| Step::Write(name, at, len, byte)),
        3 => (name(), len()).prop_map(|(name, len)| Step::Append(name, len)),
        3 => (name(), offset()).prop_map(|(name, size)| Step::Truncate(name, size)),
        3 => (name(), len()).prop_map(|(name, len)| Step::Rewrite(name, len)),
        2 => (name(), offset(), offset()).prop_map(|(name, at, len)| Step::Punch(name, at, len + 1)),
        8 => name().prop_map(Step::Folder),
        1 => (name(), name()).prop_map(|(name, target)| Step::Link(name, target)),
        1 => name().prop_map(Step::Fifo),
        6 => name().prop_map(Step::Remove),
        2 => name().prop_map(Step::RemoveTree),
        8 => (name(), name()).prop_map(|(from, to)| Step::Move(from, to)),
        1 => (name(), name()).prop_map(|(from, to)| Step::MoveToNew(from, to)),
        4 => (name(), name()).prop_map(|(one, other)| Step::Exchange(one, other)),
        4 => (name(), name()).prop_map(|(from, to)| Step::HardLink(from, to)),
        2 => (name(), prop::sample::select(modes)).prop_map(|(name, mode)| Step::Mode(name, mode)),
        1 => (name(), -5_000_000_000..5_000_000_000_i64, 0..1_000_000_000_i64)
            .prop_map(|(name, seconds, nanoseconds)| Step::Times(name, seconds, nanoseconds)),
        2 => (name(), 0..3_u8, 0..200_usize)
            .prop_map(|(name, key, len)| Step::Xattr(name, key, len)),
        1 => (name(), 0..3_u8).prop_map(|(name, key)| Step::NoXattr(name, key)),
        2 => name().prop_map(Step::Hold),
        3 => (offset(), len(), any::<u8>())
            .prop_map(|(at, len, byte)| Step::WriteHeld(at, len, byte)),
        4 => Just(Step::Mark),
        1 => Just(Step::Abort),
        1 => Just(Step::Forget),
        1 => any::<usize>().prop_map(Step::Undo),
        1 => Just(Step::Reopen),
    ]
}

/// Makes a change. What cannot be done is not; only what the journal should not do is an error.
pub(crate) fn change(job: &Job, held: &mut Option<OwnedFd>, step: &Step) -> Result<(), Not> {
    let filled = |byte: u8, len: usize| -> Vec<u8> {
        (0..len)
            .map(|at| byte.wrapping_add((at / 7) as u8))
            .collect()
    };
    let key = |number: &u8| format!("user.key{number}");
    let done: Done = match step {
        Step::Write(name, at, len, byte) => job.write(name, *at, &filled(*byte, *len)),
        Step::Append(name, len) => job.append(name, &filled(9, *len)),
        Step::Truncate(name, size) => job.truncate(name, *size),
        Step::Rewrite(name, len) => job.rewrite(name, &filled(77, *len)),
        Step::Punch(name, at, len) => {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            job.allocate(name, mode, *at, *len)
        }
        Step::Folder(name) => job.make_folder(name),
        Step::Link(name, target) => job.make_link(name, target),
        Step::Fifo(name) => job.make_fifo(name),
        Step::Remove(name) => job.remove(name),
        Step::RemoveTree(name) => job.remove_tree(name),
        Step::Move(from, to) => job.move_to(from, to),
        Step::MoveToNew(from, to) => job.rename(from, to, RenameFlags::NOREPLACE),
        Step::Exchange(one, other) => job.rename(one, other, RenameFlags::EXCHANGE),
        Step::HardLink(from, to) => job.link(from, to),
        Step::Mode(name, mode) => {
            // The owner must still see it.
            let folder = job.path(name).is_dir();
            job.set_mode(name, if folder { mode | 0o500 } else { mode | 0o400 })
        }
        Step::Times(name, seconds, nanoseconds) => job.set_times(name, *seconds, *nanoseconds),
        Step::Xattr(name, number, len) => job.set_xattr(name, &key(number), &filled(3, *len)),
        Step::NoXattr(name, number) => job.remove_xattr(name, &key(number)),
        Step::Hold(name) => match job.open_file(name) {
            Ok(fd) => {
                *held = Some(fd);
                Ok(())
            }
            Err(not) => Err(not),
        },
        Step::WriteHeld(at, len, byte) => match held {
            Some(fd) => job.write_fd(fd, *at, &filled(*byte, *len)),
            None => Ok(()),
        },
        Step::Mark | Step::Abort | Step::Forget | Step::Undo(_) | Step::Reopen => Ok(()),
    };
    match done {
        Err(Not::Failed(Errno::IO)) => done,
        Err(Not::Failed(_)) => Ok(()),
        done => done,
    }
}
