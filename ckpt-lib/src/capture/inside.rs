//! What only the job itself can be asked: one list of calls for each thread.
//!
//! No call of these sleeps, changes anything, or can raise a signal.

use super::CaptureError;
use crate::inject::{CallList, CallRef, CallResults, DataRef, InsideArg};
use crate::snapshot::{AlternateStack, IntervalTimer, Process, SignalAction, Thread};
use loader::layout::PAGE;
use std::io;

const PR_GET_MDWE: u64 = 66;
const PR_GET_MEMORY_MERGE: i32 = 68;
const ARCH_GET_CPUID: u64 = 0x1011;
const ARCH_GET_XCOMP_PERM: u64 = 0x1022;
const MEMBARRIER_GET_REGISTRATIONS: u64 = 1 << 9;
/// Registration for MEMBARRIER_CMD_GLOBAL_EXPEDITED: it says nothing to who has it, so that it cannot be found out.
const MEMBARRIER_REGISTER_GLOBAL: u32 = 1 << 2;
/// Commands that fail with EPERM unless registered for, and the bit of their registration.
const MEMBARRIER_PROBES: [(u64, u32); 3] = [(1 << 3, 1 << 4), (1 << 5, 1 << 6), (1 << 7, 1 << 8)];
const SS_ONSTACK: u32 = 1;
const SIGNALS: u64 = 64;
const SIGNAL_SET_LEN: u64 = 8;

/// What a thread was asked.
#[derive(Debug)]
pub(super) struct ThreadQuestions {
    alternate_stack: (CallRef, DataRef),
    tid_address: (CallRef, DataRef),
    parent_death: (CallRef, DataRef),
    securebits: CallRef,
    tsc: (CallRef, DataRef),
    cpuid: CallRef,
    slack: CallRef,
}

/// What the first thread was asked about its process.
#[derive(Debug)]
pub(super) struct ProcessQuestions {
    actions: Vec<(CallRef, DataRef)>,
    interval_timers: Vec<(CallRef, DataRef)>,
    timers: Vec<(CallRef, DataRef)>,
    dumpable: CallRef,
    subreaper: (CallRef, DataRef),
    huge_pages: CallRef,
    merges_memory: CallRef,
    membarrier: CallRef,
    membarrier_probes: Vec<(CallRef, u32)>,
    brk: CallRef,
    xcomp: (CallRef, DataRef),
    write_execute: CallRef,
    protection_keys: Vec<(CallRef, u32)>,
}

fn prctl(list: &mut CallList, option: i32) -> CallRef {
    let args = [InsideArg::Value(u64::from(option.cast_unsigned()))];
    list.call(libc::SYS_prctl, &args)
}

fn prctl_into(list: &mut CallList, option: i32, len: usize) -> (CallRef, DataRef) {
    let data = list.space(len);
    let args = [
        InsideArg::Value(u64::from(option.cast_unsigned())),
        InsideArg::Data(data),
    ];
    (list.call(libc::SYS_prctl, &args), data)
}

/// Adds the questions to a thread about itself.
pub(super) fn ask_thread(list: &mut CallList) -> ThreadQuestions {
    let stack = list.space(24);
    let args = [InsideArg::Value(0), InsideArg::Data(stack)];
    let alternate_stack = (list.call(libc::SYS_sigaltstack, &args), stack);
    ThreadQuestions {
        alternate_stack,
        tid_address: prctl_into(list, libc::PR_GET_TID_ADDRESS, 8),
        parent_death: prctl_into(list, libc::PR_GET_PDEATHSIG, 4),
        securebits: prctl(list, libc::PR_GET_SECUREBITS),
        tsc: prctl_into(list, libc::PR_GET_TSC, 4),
        cpuid: list.call(libc::SYS_arch_prctl, &[InsideArg::Value(ARCH_GET_CPUID)]),
        slack: prctl(list, libc::PR_GET_TIMERSLACK),
    }
}

/// Adds the questions to the first thread about its process, whose POSIX timers are known.
pub(super) fn ask_process(list: &mut CallList, process: &Process) -> ProcessQuestions {
    let mut actions = vec![];
    for signal in 1..=SIGNALS {
        let action = list.space(32);
        let args = [
            InsideArg::Value(signal),
            InsideArg::Value(0),
            InsideArg::Data(action),
            InsideArg::Value(SIGNAL_SET_LEN),
        ];
        actions.push((list.call(libc::SYS_rt_sigaction, &args), action));
    }
    let mut interval_timers = vec![];
    for which in 0..3 {
        let value = list.space(32);
        let args = [InsideArg::Value(which), InsideArg::Data(value)];
        interval_timers.push((list.call(libc::SYS_getitimer, &args), value));
    }
    let mut timers = vec![];
    for timer in &process.posix_timers {
        let value = list.space(32);
        let id = u64::from(timer.id.cast_unsigned());
        let args = [InsideArg::Value(id), InsideArg::Data(value)];
        timers.push((list.call(libc::SYS_timer_gettime, &args), value));
    }
    let membarrier = |list: &mut CallList, command| {
        list.call(libc::SYS_membarrier, &[InsideArg::Value(command)])
    };
    let registrations = membarrier(list, MEMBARRIER_GET_REGISTRATIONS);
    let membarrier_probes = if crate::sys::foreign::membarrier_tells() {
        vec![]
    } else {
        MEMBARRIER_PROBES
            .iter()
            .map(|(command, bit)| (membarrier(list, *command), *bit))
            .collect()
    };
    let xcomp = list.space(8);
    let args = [
        InsideArg::Value(ARCH_GET_XCOMP_PERM),
        InsideArg::Data(xcomp),
    ];
    let xcomp = (list.call(libc::SYS_arch_prctl, &args), xcomp);
    let protection_keys = if crate::sys::cpu::has_protection_keys() {
        ask_keys(list)
    } else {
        vec![]
    };
    ProcessQuestions {
        protection_keys,
        actions,
        interval_timers,
        timers,
        dumpable: prctl(list, libc::PR_GET_DUMPABLE),
        subreaper: prctl_into(list, libc::PR_GET_CHILD_SUBREAPER, 4),
        huge_pages: prctl(list, libc::PR_GET_THP_DISABLE),
        merges_memory: prctl(list, PR_GET_MEMORY_MERGE),
        membarrier: registrations,
        membarrier_probes,
        brk: list.call(libc::SYS_brk, &[InsideArg::Value(0)]),
        xcomp,
        write_execute: list.call(libc::SYS_prctl, &[InsideArg::Value(PR_GET_MDWE)]),
    }
}

/// A page that nobody needs takes on each key in turn, as far as it has been allocated.
fn ask_keys(list: &mut CallList) -> Vec<(CallRef, u32)> {
    const PROT: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    const KEYS: u32 = 16;
    let room = list.space(2 * PAGE as usize);
    let mut put_on = |key: u32| {
        let numbers = [PAGE, PROT, u64::from(key)].map(InsideArg::Value);
        let [len, prot, key] = numbers;
        let args = [InsideArg::PageIn(room), len, prot, key];
        list.call(libc::SYS_pkey_mprotect, &args)
    };
    let asked = (1..KEYS).map(|key| (put_on(key), key)).collect();
    put_on(0);
    asked
}

/// Reads answers.
pub(super) struct Answers<'a> {
    pub(super) tid: i32,
    pub(super) results: &'a CallResults,
}

impl Answers<'_> {
    fn value(&self, call: CallRef, name: &'static str) -> Result<i64, CaptureError> {
        let value = self.results.result(call);
        // -4095 ... -1 are errors; brk and the like return addresses.
        if (-4095..0).contains(&value) {
            return Err(CaptureError::Inside {
                tid: self.tid,
                call: name,
                source: io::Error::from_raw_os_error((-value) as i32),
            });
        }
        Ok(value)
    }

    /// As `value`, but for calls that older kernels do not know: 0 then.
    fn value_if_known(&self, call: CallRef, name: &'static str) -> Result<i64, CaptureError> {
        let unknown = [libc::EINVAL, libc::ENOSYS, libc::ENODEV].map(|errno| -i64::from(errno));
        if unknown.contains(&self.results.result(call)) {
            return Ok(0);
        }
        self.value(call, name)
    }

    pub(super) fn words<const N: usize>(
        &self,
        (call, data): (CallRef, DataRef),
        name: &'static str,
    ) -> Result<[u64; N], CaptureError> {
        self.value(call, name)?;
        Ok(words(self.results.bytes(data)))
    }
}

/// The first `N` words; what is missing is 0.
fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut words = [0; N];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut raw = [0; 8];
        raw[..chunk.len()].copy_from_slice(chunk);
        *word = u64::from_le_bytes(raw);
    }
    words
}

/// Puts a thread's answers into its record.
pub(super) fn answer_thread(
    questions: &ThreadQuestions,
    tid: i32,
    results: &CallResults,
    thread: &mut Thread,
) -> Result<(), CaptureError> {
    let answers = Answers { tid, results };
    let [address, flags, size] = answers.words(questions.alternate_stack, "sigaltstack")?;
    thread.alternate_stack = AlternateStack {
        address,
        flags: flags as u32 & !SS_ONSTACK,
        size,
    };
    [thread.clear_child_tid] = answers.words(questions.tid_address, "prctl(PR_GET_TID_ADDRESS)")?;
    let [signal] = answers.words(questions.parent_death, "prctl(PR_GET_PDEATHSIG)")?;
    thread.parent_death_signal = signal as u32;
    let bits = answers.value(questions.securebits, "prctl(PR_GET_SECUREBITS)")?;
    thread.securebits = bits as u32;
    let [tsc] = answers.words(questions.tsc, "prctl(PR_GET_TSC)")?;
    thread.tsc_faults = tsc as i32 == libc::PR_TSC_SIGSEGV;
    // ENODEV: a processor without CPUID faulting; then it cannot be on.
    let unable = results.result(questions.cpuid) == -i64::from(libc::ENODEV);
    thread.cpuid_faults =
        !unable && answers.value(questions.cpuid, "arch_prctl(ARCH_GET_CPUID)")? == 0;
    let slack = answers.value(questions.slack, "prctl(PR_GET_TIMERSLACK)")?;
    thread.timer_slack_ns = slack as u64;
    Ok(())
}

/// Puts the answers about a process into its record; returns what cannot be carried: object and
/// reason.
pub(super) fn answer_process(
    questions: &ProcessQuestions,
    tid: i32,
    results: &CallResults,
    process: &mut Process,
) -> Result<Vec<(&'static str, String)>, CaptureError> {
    let answers = Answers { tid, results };
    let mut refused = vec![];
    process.actions.clear();
    for action in &questions.actions {
        let [handler, flags, restorer, mask] = answers.words(*action, "rt_sigaction")?;
        process.actions.push(SignalAction {
            handler,
            flags,
            restorer,
            mask,
        });
    }
    for (timer, asked) in process
        .interval_timers
        .iter_mut()
        .zip(&questions.interval_timers)
    {
        let [every_s, every_us, left_s, left_us] = answers.words(*asked, "getitimer")?;
        *timer = IntervalTimer {
            value_us: left_s.saturating_mul(1_000_000).saturating_add(left_us),
            interval_us: every_s.saturating_mul(1_000_000).saturating_add(every_us),
        };
    }
    for (timer, asked) in process.posix_timers.iter_mut().zip(&questions.timers) {
        let [every_s, every_ns, left_s, left_ns] = answers.words(*asked, "timer_gettime")?;
        timer.left_ns = left_s.saturating_mul(1_000_000_000).saturating_add(left_ns);
        timer.interval_ns = every_s
            .saturating_mul(1_000_000_000)
            .saturating_add(every_ns);
    }
    process.dumpable = answers.value(questions.dumpable, "prctl(PR_GET_DUMPABLE)")? as u32;
    if process.dumpable != 1 {
        let reason =
            "it does not let itself be looked at (PR_SET_DUMPABLE 0), which cannot be carried";
        refused.push(("dumpable", reason.into()));
    }
    let [subreaper] = answers.words(questions.subreaper, "prctl(PR_GET_CHILD_SUBREAPER)")?;
    process.subreaper = subreaper as u32 != 0;
    match answers.value_if_known(questions.huge_pages, "prctl(PR_GET_THP_DISABLE)")? {
        0 => process.thp_disabled = false,
        // The lowest bit says that there are any, the others how (PR_THP_DISABLE_EXCEPT_ADVISED, Linux 6.18).
        restricted => {
            process.thp_disabled = true;
            process.settings.thp_flags = restricted as u32 & !1;
        }
    }
    let merges = answers.value_if_known(questions.merges_memory, "prctl(PR_GET_MEMORY_MERGE)")?;
    process.settings.merges_memory = merges == 1;
    process.membarrier = if questions.membarrier_probes.is_empty() {
        answers.value_if_known(questions.membarrier, "membarrier")? as u32
    } else {
        let registered = questions.membarrier_probes.iter();
        registered
            .filter(|(call, _)| results.result(*call) == 0)
            // Who has it without need is only interrupted more often.
            .fold(MEMBARRIER_REGISTER_GLOBAL, |bits, (_, bit)| bits | bit)
    };
    // Whether it is allocated is looked at first; what fails behind that (ENOMEM) does not matter.
    let not_allocated = [libc::EINVAL, libc::ENOSYS, libc::EPERM].map(|errno| -i64::from(errno));
    let asked = questions.protection_keys.iter();
    process.memory.protection_keys = asked
        .filter(|(call, _)| !not_allocated.contains(&results.result(*call)))
        .fold(0, |keys, (_, key)| keys | 1 << key);
    process.memory.layout.brk = answers.value(questions.brk, "brk")? as u64;
    if answers.value_if_known(questions.xcomp.0, "arch_prctl(ARCH_GET_XCOMP_PERM)")? == 0 {
        [process.xcomp_permitted] = words(results.bytes(questions.xcomp.1));
    }
    if answers.value_if_known(questions.write_execute, "prctl(PR_GET_MDWE)")? != 0 {
        let reason = "memory that is writable and executable in turn is forbidden to it for ever";
        refused.push(("PR_SET_MDWE", reason.into()));
    }
    Ok(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_what_is_there() {
        assert_eq!(words::<2>(&[1, 0, 0, 0, 0, 0, 0, 0, 2]), [1, 2]);
        assert_eq!(words::<1>(&[7, 0, 0, 0]), [7]);
        assert_eq!(words::<1>(&[]), [0]);
    }
}
