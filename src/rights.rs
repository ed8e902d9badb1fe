//! Capabilities (capabilities(7)) that processes beside a job keep when they are begun with some, by root or in a namespace.
//!
//! | process | keeps |
//! |---|---|
//! | shadow at home, keeper of a copy, `submit` | those about files: it does on files what its owner may |
//! | `shadow` | those; on a unix socket SYS_PTRACE, to find jobs in `/proc` that are still there; by TLS NET_BIND_SERVICE |
//! | starter on the job's machine | those, for its folder, and to end the job's processes |
//! | watcher of a job that moves | those about files, to remove its socket |
//! | keeper of what is written | those about files, for sockets in folders of others, and SYS_PTRACE, to find the job's processes in `/proc` |
//! | `reattach` | those about files |
//! | supervisor of a job with namespaces (the loader's P0), once the job runs | none |
//! | starter of a job's life elsewhere | those about files |
//! | starter of a job's life here, `startd` | effective are those about files, SYS_PTRACE, to see the job, and KILL; the rest is laid down, for the children that make copies and images |
//! | whoever makes an image or a copy here | all: from them the engine and the job have theirs |
//!
//! Nobody who was begun without any notices. Who executes nothing gives its bounding set up, too.
//!
//! # What callers may rely on
//! Threads that are begun behind it have no others. Those before it keep theirs.

use crate::report::{Exit, Failure, Outcome};
use caps::{CapSet, Capability, CapsHashSet};

/// What doing something on files may take: owners and modes of others, the disk's last blocks, device nodes, flags, attributes.
const ABOUT_FILES: [Capability; 9] = [
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_FOWNER,
    Capability::CAP_FSETID,
    Capability::CAP_LINUX_IMMUTABLE,
    Capability::CAP_MKNOD,
    Capability::CAP_SETFCAP,
    Capability::CAP_SYS_RESOURCE,
];

/// Whether other programs are executed, which are to have what they have by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Executes {
    /// None.
    Nothing,
    /// Some: ssh, what begins the job.
    Others,
}

fn cannot(what: &str) -> impl Fn(caps::errors::CapsError) -> Failure {
    move |error| {
        Failure::new(
            Exit::Failed,
            format!("capabilities cannot be {what}: {error}"),
        )
    }
}

/// Lays down what a process has that looks after jobs here, but those about files and what it takes to see jobs and to end them. What it executes is not
/// touched by that.
///
/// # Errors
/// The kernel does not take them, which it always does.
pub(crate) fn lay_down() -> Outcome<()> {
    let describe = cannot("laid down");
    let had = caps::read(None, CapSet::Permitted).map_err(&describe)?;
    let more = [Capability::CAP_SYS_PTRACE, Capability::CAP_KILL];
    let wanted: CapsHashSet = ABOUT_FILES.into_iter().chain(more).collect();
    let kept: CapsHashSet = had.intersection(&wanted).copied().collect();
    match had.is_empty() {
        true => Ok(()),
        false => caps::set(None, CapSet::Effective, &kept).map_err(&describe),
    }
}

/// What was laid down is had again, by a child that needs it.
///
/// # Errors
/// The kernel does not give them, which it always does.
pub(crate) fn take_up() -> Outcome<()> {
    let describe = cannot("taken up");
    let had = caps::read(None, CapSet::Permitted).map_err(&describe)?;
    match had.is_empty() {
        true => Ok(()),
        false => caps::set(None, CapSet::Effective, &had).map_err(&describe),
    }
}

/// Gives up all that this process has but those about files and `more`.
///
/// # Errors
/// The kernel does not take them, which it always does.
pub(crate) fn keep_those_about_files(more: &[Capability], executes: Executes) -> Outcome<()> {
    let describe = cannot("given up");
    let describe = &describe;
    let had = caps::read(None, CapSet::Permitted).map_err(describe)?;
    if had.is_empty() {
        return Ok(());
    }
    let wanted: CapsHashSet = ABOUT_FILES.iter().chain(more).copied().collect();
    let kept: CapsHashSet = had.intersection(&wanted).copied().collect();
    // While there is the capability for that; without it the set is of no use to us either.
    if executes == Executes::Nothing && had.contains(&Capability::CAP_SETPCAP) {
        let bounding = caps::read(None, CapSet::Bounding).map_err(describe)?;
        for one in bounding.difference(&wanted) {
            caps::drop(None, CapSet::Bounding, *one).map_err(describe)?;
        }
    }
    caps::clear(None, CapSet::Ambient).map_err(describe)?;
    caps::clear(None, CapSet::Inheritable).map_err(describe)?;
    caps::set(None, CapSet::Effective, &kept).map_err(describe)?;
    caps::set(None, CapSet::Permitted, &kept).map_err(describe)
}
