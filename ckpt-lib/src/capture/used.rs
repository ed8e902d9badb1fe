//! What a process and its threads have used of processors, as they themselves are told: getrusage(2) and CPU clocks (clock_gettime(2)).
//! It is asked behind all that they have done, so it is never less than what they have seen.

use super::CaptureError;
use super::inside::Answers;
use crate::inject::{CallList, CallRef, CallResults, DataRef, InsideArg};
use crate::snapshot::Process;

/// Words of `struct rusage`.
const USAGE_WORDS: usize = 18;

/// As the kernel tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// On a processor.
    pub runtime_ns: u64,
    /// `struct rusage`.
    pub usage: [u64; USAGE_WORDS],
}

/// By a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadUsed {
    /// As the job calls it.
    pub tid: u32,
    /// The base of its fs segment.
    pub fs_base: u64,
    /// How much.
    pub used: Used,
}

/// By a process since the kernel has made it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessUsed {
    /// As the job calls it.
    pub pid: u32,
    /// All its threads, also those that have ended.
    pub itself: Used,
    /// Its children that have ended and that it has waited for; CPU clocks do not count them.
    pub children: Used,
    /// Those that it has.
    pub threads: Vec<ThreadUsed>,
}

#[derive(Debug)]
pub(super) struct Question {
    usage: (CallRef, DataRef),
    runtime: Option<(CallRef, DataRef)>,
}

fn ask(list: &mut CallList, who: i32, clock: Option<i32>) -> Question {
    let mut into = |call, which: i32, len| {
        let data = list.space(len);
        let which = InsideArg::Value(u64::from(which.cast_unsigned()));
        (list.call(call, &[which, InsideArg::Data(data)]), data)
    };
    Question {
        usage: into(libc::SYS_getrusage, who, 8 * USAGE_WORDS),
        runtime: clock.map(|clock| into(libc::SYS_clock_gettime, clock, 16)),
    }
}

pub(super) fn ask_thread(list: &mut CallList) -> Question {
    let clock = libc::CLOCK_THREAD_CPUTIME_ID;
    ask(list, libc::RUSAGE_THREAD, Some(clock))
}

/// The process itself, and its children.
pub(super) fn ask_process(list: &mut CallList) -> [Question; 2] {
    let clock = libc::CLOCK_PROCESS_CPUTIME_ID;
    [
        ask(list, libc::RUSAGE_SELF, Some(clock)),
        ask(list, libc::RUSAGE_CHILDREN, None),
    ]
}

fn answer(question: &Question, tid: i32, results: &CallResults) -> Result<Used, CaptureError> {
    let answers = Answers { tid, results };
    let runtime_ns = match question.runtime {
        Some(runtime) => {
            let [seconds, nanoseconds] = answers.words(runtime, "clock_gettime of a CPU clock")?;
            seconds
                .wrapping_mul(1_000_000_000)
                .wrapping_add(nanoseconds)
        }
        None => 0,
    };
    Ok(Used {
        runtime_ns,
        usage: answers.words(question.usage, "getrusage")?,
    })
}

/// What the threads of a process were asked, in its order, and the first one about the process.
pub(super) fn answers(
    (of_process, of_each): (&[Question; 2], &Question),
    tids: impl Iterator<Item = i32>,
    results: &[CallResults],
    record: &Process,
) -> Result<ProcessUsed, CaptureError> {
    let mut used = ProcessUsed {
        pid: record.pid,
        ..ProcessUsed::default()
    };
    for (index, (results, tid)) in results.iter().zip(tids).enumerate() {
        let Some(thread) = record.threads.get(index) else {
            break;
        };
        used.threads.push(ThreadUsed {
            tid: thread.tid,
            fs_base: thread.registers.fs_base,
            used: answer(of_each, tid, results)?,
        });
        if index == 0 {
            used.itself = answer(&of_process[0], tid, results)?;
            used.children = answer(&of_process[1], tid, results)?;
        }
    }
    Ok(used)
}
