//! Settings that only the job itself can be asked for, and that few programs have: where its memory is placed, what its processor may
//! guess, its segments, its keyrings.

use super::CaptureError;
use super::policies::{ask_policy, policy_of};
use crate::inject::{CallList, CallRef, CallResults, DataRef, InsideArg, Workshop};
use crate::snapshot::{Process, ThreadSettings};
use crate::sys::foreign::core_cookie;
use crate::sys::segments::{has_ports, has_thread_areas};
use crate::tracee::{HostTid, StoppedProcess};

const PR_GET_SPECULATION_CTRL: u64 = 52;
const PR_MCE_KILL_GET: u64 = 34;
const PR_MCE_KILL_DEFAULT: i64 = 2;
const PR_GET_IO_FLUSHER: u64 = 58;
const PR_SCHED_CORE: u64 = 62;
const PR_SPEC_PRCTL: i64 = 1;
const PR_SPEC_ENABLE: u32 = 2;
const PR_SPEC_DISABLE: u32 = 4;
/// What is asked about, in the order of [`ThreadSettings::speculation`], and what a thread has by itself.
const SPECULATION: [(u64, u32); 3] = [
    (0, PR_SPEC_ENABLE),
    (1, PR_SPEC_ENABLE),
    (2, PR_SPEC_DISABLE),
];
const KEYCTL_GET_KEYRING_ID: u64 = 0;
/// `KEY_SPEC_THREAD_KEYRING`, `KEY_SPEC_PROCESS_KEYRING` (keyctl(2)); `fork` and `execve` hand on neither, so
/// one that is there the job has made.
const KEYRINGS: [(i32, &str); 2] = [(-1, "thread keyring"), (-2, "process keyring")];
/// An entry of a local descriptor table, and all of them (modify_ldt(2)).
const DESCRIPTOR: usize = 8;
const DESCRIPTORS: usize = 8192;

/// What a thread was asked.
#[derive(Debug)]
pub(super) struct ThreadQuestions {
    memory_policy: (CallRef, DataRef),
    speculation: [CallRef; 3],
    memory_failure: CallRef,
    flushes_io: CallRef,
    cookie: (CallRef, DataRef),
    keyrings: [CallRef; 2],
}

/// Adds the questions to a thread about itself.
pub(super) fn ask_thread(list: &mut CallList) -> ThreadQuestions {
    let mut prctl = |numbers: &[u64]| {
        let args: Vec<InsideArg> = numbers.iter().copied().map(InsideArg::Value).collect();
        list.call(libc::SYS_prctl, &args)
    };
    let speculation = SPECULATION.map(|(which, _)| prctl(&[PR_GET_SPECULATION_CTRL, which]));
    let memory_failure = prctl(&[PR_MCE_KILL_GET]);
    let flushes_io = prctl(&[PR_GET_IO_FLUSHER]);
    let cookie = list.space(8);
    let args = [
        InsideArg::Value(PR_SCHED_CORE),
        InsideArg::Value(0),
        InsideArg::Value(0),
        InsideArg::Value(0),
        InsideArg::Data(cookie),
    ];
    let cookie = (list.call(libc::SYS_prctl, &args), cookie);
    let keyrings = KEYRINGS.map(|(which, _)| {
        let which = u64::from(which.cast_unsigned());
        let args = [KEYCTL_GET_KEYRING_ID, which, 0].map(InsideArg::Value);
        list.call(libc::SYS_keyctl, &args)
    });
    ThreadQuestions {
        memory_policy: ask_policy(list, None),
        speculation,
        memory_failure,
        flushes_io,
        cookie,
        keyrings,
    }
}

/// Puts a thread's answers into its settings; returns what cannot be carried: object and reason.
pub(super) fn answer_thread(
    questions: &ThreadQuestions,
    tid: i32,
    results: &CallResults,
    settings: &mut ThreadSettings,
) -> Vec<(&'static str, String)> {
    let mut refused = vec![];
    settings.memory_policy = policy_of(questions.memory_policy, results);
    let asked = questions.speculation.iter().zip(SPECULATION);
    for (setting, (call, (_, usual))) in settings.speculation.iter_mut().zip(asked) {
        // An error: this kernel or processor has nothing to set.
        let found = results.result(*call);
        let state = u32::try_from(found & !PR_SPEC_PRCTL).unwrap_or(0);
        let is_set = found > 0 && found & PR_SPEC_PRCTL != 0 && state != usual;
        *setting = if is_set { state } else { 0 };
    }
    let policy = results.result(questions.memory_failure);
    settings.memory_failure = u32::try_from(policy)
        .ok()
        .filter(|_| policy != PR_MCE_KILL_DEFAULT);
    // EPERM: it may not ask, nor set it.
    settings.flushes_io = results.result(questions.flushes_io) == 1;
    let cookie = results.bytes(questions.cookie.1);
    let cookie = cookie.first_chunk().copied().map_or(0, u64::from_le_bytes);
    let asked = results.result(questions.cookie.0) == 0;
    if asked && cookie != 0 && cookie != core_cookie() {
        let reason =
            "it may only run beside threads of its own (PR_SCHED_CORE), which cannot be carried";
        refused.push(("core scheduling", reason.into()));
    }
    for (call, (_, name)) in questions.keyrings.iter().zip(KEYRINGS) {
        if is_there(results.result(*call)) {
            refused.push((name, "its keys cannot be carried".into()));
        }
    }
    match has_thread_areas(tid) {
        Ok(false) => {}
        Ok(true) => refused.push((
            "set_thread_area",
            "segments of the global descriptor table cannot be carried".into(),
        )),
        Err(error) => refused.push((
            "set_thread_area",
            format!("it cannot be told whether it has segments of its own ({error})"),
        )),
    }
    if has_ports(tid) {
        let reason = "access to ports of devices cannot be carried";
        refused.push(("ioperm", reason.into()));
    }
    refused
}

/// Whether a keyring exists: other errors say that there is none, or that nobody may ask (a container's filter), and then nobody could
/// make one.
fn is_there(result: i64) -> bool {
    let barred =
        [libc::EACCES, libc::EKEYREVOKED, libc::EKEYEXPIRED].map(|errno| -i64::from(errno));
    result >= 0 || barred.contains(&result)
}

/// Adds the question to a process whether it has a local descriptor table.
pub(super) fn ask_descriptors(list: &mut CallList) -> CallRef {
    let first = list.space(DESCRIPTOR);
    read_descriptors(list, first, DESCRIPTOR)
}

fn read_descriptors(list: &mut CallList, into: DataRef, len: usize) -> CallRef {
    let args = [
        InsideArg::Value(0),
        InsideArg::Data(into),
        InsideArg::Value(len as u64),
    ];
    list.call(libc::SYS_modify_ldt, &args)
}

/// Reads the table of a process that has one (`answer`); what is behind the last used entry is left out.
pub(super) fn read_ldt(
    answer: i64,
    tid: HostTid,
    stopped: &mut StoppedProcess,
    workshop: &mut Workshop,
    process: &mut Process,
) -> Result<(), CaptureError> {
    // Errors come as 32 bits: below zero only in these.
    if answer as i32 <= 0 {
        return Ok(());
    }
    let mut list = CallList::new();
    let table = list.space(DESCRIPTOR * DESCRIPTORS);
    read_descriptors(&mut list, table, DESCRIPTOR * DESCRIPTORS);
    let results = workshop
        .run(stopped, vec![(tid, list)])
        .map_err(|error| CaptureError::Tracee(Box::new(error)))?;
    let bytes = results
        .first()
        .map_or(&[][..], |results| results.bytes(table));
    let words = bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes);
    let mut entries: Vec<u64> = words.collect();
    let used = entries.iter().rposition(|entry| *entry != 0);
    entries.truncate(used.map_or(0, |last| last + 1));
    process.settings.local_descriptors = entries;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keyring_that_nobody_may_ask_for_is_none() {
        for (errno, there) in [
            (libc::ENOKEY, false),
            (libc::ENOSYS, false),
            (libc::EPERM, false),
            (libc::EACCES, true),
            (libc::EKEYREVOKED, true),
        ] {
            assert_eq!(is_there(-i64::from(errno)), there, "{errno}");
        }
        assert!(is_there(0x1234_5678));
    }
}
