//! Landlock domains of the job's own, which cannot be carried: nobody can read what they allow.
//!
//! No file tells of one. But there may be only so many, one within the other: a child of each thread that could
//! have taken one on takes on as many as wayfarer itself still could, and tells how many were too many.

use super::CaptureError;
use super::refusal::Refusals;
use super::subject::Subject;
use crate::inject::{CallList, CallRef, CallResults, InsideArg, Workshop};
use crate::procfs::Status;
use crate::snapshot::Thread;
use crate::sys::landlock::{SOME_RULESET, domains_left};
use crate::tracee::{HostTid, StoppedProcess};
use std::io;

const CAP_SYS_ADMIN: u64 = 1 << 21;
const PERMITTED: usize = 1;
const SCHED_DEADLINE: u32 = 6;
const OBJECT: &str = "Landlock";

/// Whether a thread can have taken on a domain (landlock_restrict_self(2)).
fn may_be_confined(status: &Status) -> bool {
    status.no_new_privs || status.capabilities[PERMITTED] & CAP_SYS_ADMIN != 0
}

/// Learns beforehand what takes time.
pub(super) fn warm(subjects: &[Subject]) {
    let mut threads = subjects.iter().flat_map(|subject| &subject.threads);
    if threads.any(|(_, status)| may_be_confined(status)) {
        let _ = domains_left();
    }
}

struct Questions {
    ruleset: CallRef,
    domains: Vec<CallRef>,
}

/// For a child, which has a table of descriptors of its own.
fn ask(list: &mut CallList, domains: usize) -> Questions {
    let value = InsideArg::Value;
    let attr = list.data(&SOME_RULESET);
    let unprivileged = libc::PR_SET_NO_NEW_PRIVS as u64;
    list.call(libc::SYS_prctl, &[value(unprivileged), value(1)]);
    list.call(libc::SYS_close, &[value(0)]);
    let args = [InsideArg::Data(attr), value(SOME_RULESET.len() as u64)];
    // Descriptor 0, the lowest that is free.
    let ruleset = list.call(libc::SYS_landlock_create_ruleset, &args);
    let domains = (0..domains)
        .map(|_| list.call(libc::SYS_landlock_restrict_self, &[]))
        .collect();
    Questions { ruleset, domains }
}

/// Refuses threads that are confined by domains that wayfarer is not in itself. `threads`: as they are recorded, in the order of
/// the subject's.
pub(super) fn examine(
    subject: &Subject,
    threads: &[Thread],
    stopped: &mut StoppedProcess,
    workshop: &mut Workshop,
    refusals: &mut Refusals,
) -> Result<(), CaptureError> {
    let all = subject.threads.iter().zip(threads);
    let asked: Vec<(i32, u32)> = all
        .filter(|((_, status), _)| may_be_confined(status))
        .map(|((tid, _), thread)| (*tid, thread.scheduling.policy))
        .collect();
    if asked.is_empty() {
        return Ok(());
    }
    let left = match domains_left() {
        Ok(Some(left)) => left,
        Ok(None) => return Ok(()),
        Err(errno) => {
            refusals.add(
                subject.who(),
                OBJECT,
                unknown(&io::Error::from_raw_os_error(errno)),
            );
            return Ok(());
        }
    };
    let mut list = CallList::new();
    let questions = ask(&mut list, left);
    let lists = asked.iter().map(|(tid, _)| (HostTid(*tid), list.clone()));
    let answers = workshop
        .run_aside(stopped, lists.collect())
        .map_err(|error| CaptureError::Tracee(Box::new(error)))?;
    for ((tid, policy), answers) in asked.into_iter().zip(&answers) {
        let reason = match answers {
            Ok(answers) => questions.verdict(answers),
            // A thread with a deadline may have no child (sched(7)); it is root's.
            Err(_) if policy == SCHED_DEADLINE => None,
            Err(error) => Some(format!(
                "{}; it may start no process to tell it (RLIMIT_NPROC, pids.max)",
                unknown(error)
            )),
        };
        let object = match tid == subject.tgid {
            true => OBJECT.to_owned(),
            false => format!("thread {tid}: {OBJECT}"),
        };
        if let Some(reason) = reason {
            refusals.add(subject.who(), object, reason);
        }
    }
    Ok(())
}

impl Questions {
    /// Why a thread with these answers is refused.
    fn verdict(&self, answers: &CallResults) -> Option<String> {
        let failed = answers.result(self.ruleset);
        if failed != 0 {
            let errno = i32::try_from(-failed).unwrap_or(libc::EINVAL);
            return Some(unknown(&io::Error::from_raw_os_error(errno)));
        }
        let calls = self.domains.iter();
        match calls.filter(|call| answers.result(**call) != 0).count() {
            0 => None,
            1 => Some("it has a domain of its own, which cannot be carried".to_owned()),
            own => Some(format!(
                "it has {own} domains of its own, which cannot be carried"
            )),
        }
    }
}

fn unknown(error: &io::Error) -> String {
    format!("whether it is confined cannot be told: {error}")
}
