//! What a process as a whole must not be: traced, confined by others, of two users, elsewhere.

use super::refusal::Refusals;
use super::subject::Subject;
use super::{CaptureError, CaptureOptions};
use crate::filters::Filters;
use crate::procfs::{ProcDir, parse_maps, parse_stat, parse_status};
use crate::sys::foreign::{Compare, kcmp};
use crate::tracee::reenter;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Namespaces that must be wayfarer's own.
const SHARED: [&str; 4] = ["net", "ipc", "uts", "cgroup"];
/// Namespaces that a job of ours has for itself, the same for all its processes.
const OWN: [&str; 6] = [
    "user",
    "pid",
    "pid_for_children",
    "mnt",
    "time",
    "time_for_children",
];

/// Looks at all processes; `traced_by_us` once they are stopped.
pub(super) fn examine(
    subjects: &[Subject],
    options: &CaptureOptions,
    traced_by_us: bool,
    refusals: &mut Refusals,
) -> Result<(), CaptureError> {
    let own = ProcDir::of_self().parsed("status", parse_status)?;
    let filters = Filters::of(&own);
    for subject in subjects {
        for (tid, status) in &subject.threads {
            let prefix = if *tid == subject.tgid {
                String::new()
            } else {
                format!("thread {tid}: ")
            };
            let mut refuse = |object: &str, reason: String| {
                refusals.add(subject.who(), format!("{prefix}{object}"), reason);
            };
            let tracer = status.tracer_pid;
            if tracer != 0 && !(traced_by_us && is_own_thread(tracer)) {
                let reason = format!("it is traced by process {tracer} already");
                refuse("tracing", reason);
            }
            if let Err(reason) = filters.are_those_of(subject.pid, Filters::of(status)) {
                refuse("seccomp", reason);
            }
            for (what, ids) in [("user", status.uids), ("group", status.gids)] {
                if ids.iter().any(|id| *id != ids[0]) {
                    let [real, effective, saved, file] = ids;
                    let reason = format!(
                        "real, effective, saved and file system {what} differ ({real}, {effective}, {saved}, {file})"
                    );
                    refuse(&format!("{what} ids"), reason);
                }
            }
            if (status.uids, status.gids) != (subject.status.uids, subject.status.gids) {
                refuse(
                    "user ids",
                    "it runs as another user than its process".into(),
                );
            }
            for feature in &status.thread_features {
                let name = String::from_utf8_lossy(feature);
                refuse(
                    &format!("feature {name}"),
                    "shadow stacks cannot be carried".into(),
                );
            }
            if !traced_by_us {
                let call = call_of(subject, *tid);
                if let Some(reason) = call.and_then(|call| tied_to_machine(call.nr)) {
                    refuse("a call in progress", reason);
                }
                if let Some(reason) = stays_without_place(subject, *tid) {
                    refuse("a call in progress", reason);
                }
            }
            if status.untag_mask != u64::MAX {
                let reason = "linear address masking cannot be carried".into();
                refuse("address tags", reason);
            }
        }
        if is_32_bit(subject) {
            let reason = "it is a 32-bit program (i386), and only those of x86-64 can be carried";
            refusals.add(subject.who(), "program", reason);
        }
        namespaces(subject, &subjects[0], options, refusals)?;
        unshared(subject, refusals);
    }
    for (index, first) in subjects.iter().enumerate() {
        for second in &subjects[index + 1..] {
            let one = kcmp((first.pid, 0), (second.pid, 0), Compare::AddressSpace);
            if matches!(one, Ok(0)) {
                let reason = format!("it shares its memory with process {}", first.pid);
                refusals.add(second.who(), "memory", reason);
            }
        }
    }
    Ok(())
}

/// Why a call in progress cannot go on elsewhere: what it waits for is the machine's, by a number.
pub(super) fn tied_to_machine(nr: i64) -> Option<String> {
    let what = match nr {
        libc::SYS_semop | libc::SYS_semtimedop => "semaphore",
        libc::SYS_msgrcv | libc::SYS_msgsnd => "message queue",
        _ => return None,
    };
    Some(format!(
        "it waits for a System V {what}, which cannot be carried"
    ))
}

/// By the ELF header of its program. What goes over to 32-bit code by itself shows by its registers.
fn is_32_bit(subject: &Subject) -> bool {
    const EM_386: [u8; 2] = [3, 0];
    let mut head = [0; 20];
    let read =
        File::open(subject.dir.file("exe")).and_then(|file| file.read_exact_at(&mut head, 0));
    read.is_ok() && head.starts_with(b"\x7fELF") && head[18..] == EM_386
}

/// The system call that a thread is in.
struct Call {
    nr: i64,
    args: [u64; 6],
    rsp: u64,
}

/// From `/proc/PID/task/TID/syscall`.
fn call_of(subject: &Subject, tid: i32) -> Option<Call> {
    let text = subject.dir.thread(tid).bytes("syscall").ok()?;
    let text = std::str::from_utf8(&text).ok()?;
    let mut words = text.split_whitespace();
    let nr = words.next()?.parse().ok()?;
    let mut numbers =
        words.map_while(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    let mut args = [0; 6];
    if nr >= 0 {
        for arg in &mut args {
            *arg = numbers.next()?;
        }
    }
    let rsp = numbers.next()?;
    Some(Call { nr, args, rsp })
}

/// For how long a thread may stay in a call that it cannot be stopped in.
const LEAVES: Duration = Duration::from_millis(300);

/// Why a thread cannot be stopped in its call, if it stays in it: a stop ends it, and what would be left of its time-out
/// has no place (ADR 4).
fn stays_without_place(subject: &Subject, tid: i32) -> Option<String> {
    let deadline = Instant::now() + LEAVES;
    loop {
        let reason = lacks_place(subject, tid)?;
        if Instant::now() > deadline {
            return Some(reason);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn lacks_place(subject: &Subject, tid: i32) -> Option<String> {
    let call = call_of(subject, tid)?;
    let needed = reenter::place_needed(call.nr, call.args, call.rsp)?;
    let lines = subject.dir.parsed("maps", parse_maps).ok()?;
    let is_there = |place: Range<u64>| {
        let may_write = (libc::PROT_READ | libc::PROT_WRITE) as u32;
        lines.iter().any(|line| {
            line.start <= place.start && place.end <= line.end && line.prot & may_write == may_write
        })
    };
    let written_back = needed
        .written_back
        .is_some_and(|at| is_there(at..at.saturating_add(1)));
    (!written_back && !is_there(needed.place)).then(|| {
        format!(
            "what would be left of its time-out ({}) has no place below its stack pointer {:#x}: it has to leave that call first",
            needed.call, call.rsp
        )
    })
}

/// Tracers are threads.
fn is_own_thread(tid: i32) -> bool {
    ProcDir::of_self().thread(tid).path().exists()
}

fn namespaces(
    subject: &Subject,
    root: &Subject,
    options: &CaptureOptions,
    refusals: &mut Refusals,
) -> Result<(), CaptureError> {
    let own = ProcDir::of_self();
    let link = |dir: &ProcDir, name: &str| match dir.link(&format!("ns/{name}")) {
        Ok(target) => Ok(Some(target)),
        // A kernel without this kind of namespace.
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error),
    };
    for name in SHARED {
        if link(&subject.dir, name)? != link(&own, name)? {
            let reason = "it is not the one wayfarer runs in".to_owned();
            refusals.add(subject.who(), format!("{name} namespace"), reason);
        }
    }
    for name in OWN {
        let model = if options.own_pid_namespace {
            link(&root.dir, name.trim_end_matches("_for_children"))?
        } else {
            link(&own, name)?
        };
        if link(&subject.dir, name)? != model {
            let reason = if options.own_pid_namespace {
                "it is not the one the job's first process is in"
            } else {
                "it is not the one wayfarer runs in"
            };
            refusals.add(subject.who(), format!("{name} namespace"), reason);
        }
    }
    Ok(())
}

/// Threads that do not share what threads share.
fn unshared(subject: &Subject, refusals: &mut Refusals) {
    for (tid, _) in subject.threads.iter().skip(1) {
        for (what, name) in [
            (Compare::Descriptors, "descriptor table"),
            (Compare::FileSystem, "working directory and umask"),
        ] {
            match kcmp((subject.pid, 0), (*tid, 0), what) {
                Ok(0) => {}
                // On its way out it shares nothing any more.
                Ok(_) if is_ending(subject, *tid) => {}
                Ok(_) => {
                    let reason = format!("it has a {name} of its own");
                    refusals.add(subject.who(), format!("thread {tid}"), reason);
                }
                // It has ended since it was found.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => {
                    let reason = format!(
                        "kcmp says {error}, so it cannot be told whether they share their descriptors{}",
                        super::refusal::where_filters_are(&error)
                    );
                    return refusals.add(subject.who(), "threads", reason);
                }
            }
        }
    }
}

/// Whether a thread has ended or is about to.
fn is_ending(subject: &Subject, tid: i32) -> bool {
    let stat = subject.dir.thread(tid).parsed("stat", parse_stat);
    stat.map_or_else(|error| error.is_gone(), |stat| stat.is_ending())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// What they shared they let go of before they are gone.
    #[test]
    fn threads_that_come_and_go_share_all() {
        let pid = std::process::id() as i32;
        let is_over = AtomicBool::new(false);
        let churn = || {
            while !is_over.load(Ordering::Relaxed) {
                let some = [(); 8].map(|()| std::thread::spawn(|| ()));
                for one in some {
                    one.join().expect("ends");
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(churn);
            }
            let mut refusals = Refusals::default();
            for _ in 0..3000 {
                let subject = Subject::read(pid).expect("reads").expect("alive");
                unshared(&subject, &mut refusals);
            }
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(refusals.into_result(), Ok(()));
        });
    }
}
