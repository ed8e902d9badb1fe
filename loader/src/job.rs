//! A process of the job while it is still ours: from its creation to the parked first thread.
//!
//! ```text
//! create -> children created -> process stream -> first thread's stream -> parked
//! ```

use crate::abi::*;
use crate::context::Context;
use crate::enforce;
use crate::init::{Role, become_role, end_child, note_id};
use crate::interpret::{self, Runner};
use crate::report::{Outcome, failure};
use crate::supervise::ids_must_match;
use crate::sys::{self, Errno};
use crate::threads;
use loader::ops::{StreamEntry, StreamKind};

/// Whether new processes and threads are asked to have their old ids.
pub fn wants_ids(context: &Context) -> bool {
    !context.is_run() && (context.namespaces || ids_must_match(context))
}

/// Creates a process of the job; its pid.
pub fn create(context: &mut Context, stream: u64, entry: &StreamEntry) -> Outcome<i32> {
    let flags = if context.is_run() {
        0
    } else {
        CLONE_CLEAR_SIGHAND
    };
    let id = wants_ids(context).then_some(entry.id as i32);
    let parent = sys::pid();
    let created = match sys::clone_process(flags, id) {
        // Without CLONE_CLEAR_SIGHAND (before Linux 5.5, or refused by a filter).
        Err(Errno(EINVAL | ENOSYS | EPERM)) if id.is_none() => sys::clone_process(0, None),
        other => other,
    };
    match created {
        Ok(0) => {
            become_role(Role::OfTheJob);
            // Kept until the finish has taken hold of us (docs/adr/0003).
            let _ = sys::prctl(PR_SET_PDEATHSIG, u64::from(SIGKILL));
            if sys::parent() != parent {
                sys::exit_group(0);
            }
            if entry.parent == 0 {
                enforce::begin(context);
            }
            run(context, stream, entry)
        }
        Ok(pid) => Ok(pid),
        Err(error) => Err(not_created(context, "process", entry.id, error)),
    }
}

/// Why a process or thread could not be created with its id.
pub fn not_created(context: &Context, what: &str, id: u64, error: Errno) -> crate::report::Failure {
    match error.0 {
        // Filters of containers know no clone3, the only call that gives a chosen id.
        EPERM | ENOSYS if !context.namespaces && wants_ids(context) => failure!(
            Host,
            "{what} {id}: its id cannot be given back without namespaces ({error}); \
             --accept-new-ids lets it have another"
        ),
        EEXIST => failure!(Host, "{what} {id}: its id is taken on this machine"),
        EINVAL => failure!(
            Host,
            "{what} {id}: this kernel does not give such an id (pid_max)"
        ),
        EAGAIN => no_more_processes(what),
        _ => failure!(Failed, "{what} {id}: {error}"),
    }
}

/// The kernel makes no more of them.
pub fn no_more_processes(what: &str) -> crate::report::Failure {
    let (found, _) = sys::limit(RLIMIT_NPROC).unwrap_or((u64::MAX, 0));
    if found == u64::MAX {
        return failure!(
            Host,
            "no {what} can be made (EAGAIN): its cgroup (pids.max) or the machine has no room for more"
        );
    }
    failure!(
        Host,
        "no {what} can be made (EAGAIN): limit on the user's processes and threads (RLIMIT_NPROC): found {found}, and that \
         many are there, or its cgroup (pids.max) has no room for more"
    )
}

fn run(context: &mut Context, stream: u64, entry: &StreamEntry) -> ! {
    note_id(context, stream);
    if let Err(failure) = streams(context, stream, entry) {
        end_child(context, &failure);
    }
    threads::park_first(context, stream)
}

fn streams(context: &mut Context, stream: u64, entry: &StreamEntry) -> Outcome<()> {
    for (child, child_entry) in context.streams_of(StreamKind::Process, stream) {
        create(context, child, &child_entry)?;
    }
    // Wayfarer may look at the job later where only ancestors may (Yama).
    let _ = sys::prctl(PR_SET_PTRACER, u64::MAX);
    let mut runner = Runner::new(context, stream, None);
    interpret::run(&mut runner, entry)?;
    if let Some((own, own_entry)) = threads::first_thread(context, stream, entry.id) {
        note_id(context, own);
        let mut runner = Runner::new(context, own, None);
        interpret::run(&mut runner, &own_entry)?;
    }
    Ok(())
}
