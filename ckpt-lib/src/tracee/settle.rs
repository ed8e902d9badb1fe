//! Settling: seizing threads until the kernel's task lists hold no other.

use super::before::{BeforeStop, Glimpse, SchedulerClocks};
use super::holder::lets_go_soon;
use super::reaper::Reaper;
use super::thread::StoppedThread;
use super::vdso_exit::{self, Moved};
use super::{HostPid, HostTid, Memory, StopError, StoppedProcess, reenter};
use crate::procfs::{ProcDir, ProcfsError, parse_stat, parse_status};
use crate::sys::ptrace::{self, Waited};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

/// When something must have happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    started: Instant,
    limit: Duration,
}

impl Deadline {
    pub(crate) fn after(limit: Duration) -> Self {
        Deadline {
            started: Instant::now(),
            limit,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.started.elapsed() > self.limit
    }

    /// Looks again and again, with naps that grow, until there is an answer; none when the time is over.
    pub(crate) fn poll<T>(&self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let mut tries = 0;
        loop {
            let answer = look();
            if answer.is_some() || self.is_over() {
                return answer;
            }
            ptrace::pause(tries);
            tries += 1;
        }
    }

    fn missed(&self, pid: HostPid, tid: i32) -> StopError {
        StopError::Deadline {
            pid: pid.0,
            tid,
            waited_ms: self.limit_ms(),
        }
    }

    pub(crate) fn limit_ms(&self) -> u64 {
        u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asked,
    Stopped { job_control: Option<i32> },
}

/// What was seen of threads before they were stopped, and by which clocks.
#[derive(Debug, Default)]
struct Glimpses {
    threads: BTreeMap<i32, Glimpse>,
    clocks: SchedulerClocks,
}

impl Glimpses {
    /// What is known of a thread that has stopped, at `stopped_at_ns`.
    fn finished(&mut self, tid: i32, stopped_at_ns: u64) -> BeforeStop {
        let glimpse = self.threads.get(&tid);
        glimpse.map_or_else(BeforeStop::default, |glimpse| {
            glimpse.finished(stopped_at_ns, &mut self.clocks)
        })
    }
}

/// Threads seized so far; whatever is still in it when it is dropped is let go, in the calls that they were stopped in.
#[derive(Debug)]
struct Seized<'a> {
    threads: BTreeMap<i32, (HostPid, State)>,
    /// Of what each thread that stands for its process is one: the id of the first of its threads.
    firsts: BTreeMap<HostPid, i32>,
    glimpses: &'a mut Glimpses,
}

impl Seized<'_> {
    /// Keeps, for the next look at a process, what its last stops said of job control.
    fn remember(&mut self, process: &StoppedProcess) {
        for thread in &process.threads {
            if let Some((_, state)) = self.threads.get_mut(&thread.tid.0) {
                let job_control = process.group_stopped;
                *state = State::Stopped { job_control };
            }
        }
    }
}

impl Drop for Seized<'_> {
    fn drop(&mut self) {
        for tid in std::mem::take(&mut self.threads).into_keys() {
            let_go_when(tid, || enter_again(HostTid(tid), self.glimpses));
        }
    }
}

/// Has a thread at a stop go on in a call that would return EINTR only because of the stop.
fn enter_again(tid: HostTid, glimpses: &mut Glimpses) {
    // If it is not at its stop, or cannot be read, it has been killed.
    let Ok(mut thread) = StoppedThread::read(tid, BeforeStop::default()) else {
        return;
    };
    // By itself: what its process is looked at by may have ended.
    let Ok(memory) = Memory::open(HostPid(tid.0)) else {
        return;
    };
    thread.before = glimpses.finished(tid.0, thread.stopped_at_ns);
    if let Some(registers) = reenter::go_on(&thread, &memory, ptrace::monotonic_ns()) {
        thread.set_registers(&registers);
        let _ = thread.bring_home();
    }
}

/// Detaches a thread, whether it is at a stop or not; if it is not, within a second. A signal that it stands
/// before is delivered.
pub(super) fn let_go(tid: i32) {
    let_go_when(tid, || {});
}

/// The same; what is to be done first, when it is at a stop.
fn let_go_when(tid: i32, mut stopped: impl FnMut()) {
    let mut asked = false;
    Deadline::after(Duration::from_secs(1)).poll(|| {
        let signal = match ptrace::try_wait(tid) {
            Ok(Some(Waited::Ended)) | Err(_) => return Some(()),
            Ok(Some(Waited::Signal(signal))) => signal,
            Ok(Some(_)) => 0,
            // At a stop that was told before. Of a thread believed to be stopped, the id may by now be that
            // of one that has executed a program, and is not.
            Ok(None) if is_at_known_stop(tid) => 0,
            Ok(None) => {
                if !asked {
                    asked = ptrace::interrupt(tid).is_ok();
                }
                return None;
            }
        };
        stopped();
        ptrace::detach(tid, signal).is_ok().then_some(())
    });
}

/// Whether a thread is at a stop that was told already.
pub(crate) fn is_at_known_stop(tid: i32) -> bool {
    // Registers can be read only of a thread at a stop.
    ptrace::registers(tid).is_ok() && !ptrace::is_told(tid)
}

/// Waits until a thread that was asked to has stopped; the signal it was stopped by says whether by
/// us (SIGTRAP) or by job control. Signals that come first are delivered. `Ok(None)`: it has ended.
pub(crate) fn wait_stopped(tid: i32, deadline: &Deadline) -> Result<Option<i32>, Deadline> {
    let stopped = deadline.poll(|| match ask(tid) {
        Answer::Stopped(signal) => Some(Some(signal)),
        Answer::Ended => Some(None),
        Answer::Going => None,
    });
    stopped.ok_or(*deadline)
}

/// What a thread that is to stop is doing.
enum Answer {
    Stopped(i32),
    Ended,
    Going,
}

/// Looks, without waiting; delivers signals that come before the stop.
fn ask(tid: i32) -> Answer {
    loop {
        match ptrace::try_wait(tid) {
            Ok(Some(Waited::EventStop { signal })) => return Answer::Stopped(signal),
            Ok(Some(Waited::Signal(signal))) => {
                let _ = ptrace::cont(tid, signal);
            }
            Ok(Some(Waited::Event(_) | Waited::Syscall)) => {
                let _ = ptrace::cont(tid, 0);
            }
            Ok(Some(Waited::Ended)) | Err(_) => return Answer::Ended,
            Ok(None) => return Answer::Going,
        }
    }
}

/// Stops all threads of these processes; with them, who looks after those that die all the same.
pub(super) fn stop_all(
    roots: &[HostPid],
    limit: Duration,
) -> Result<(Vec<StoppedProcess>, Reaper), StopError> {
    let deadline = Deadline::after(limit);
    let mut glimpses = Glimpses::default();
    let mut vdsos = BTreeMap::new();
    for pid in roots {
        for tid in listed(*pid, ProcDir::threads)? {
            let glimpse = Glimpse::of(pid.0, HostTid(tid));
            glimpses.threads.insert(tid, glimpse);
        }
        if let Some(range) = vdso_exit::range(*pid) {
            vdsos.insert(*pid, range);
        }
    }
    glimpses.clocks.look_at(glimpses.threads.values());
    let (mut processes, reaper) = loop {
        if let Some(stopped) = attempt(roots, &vdsos, &mut glimpses, &deadline)? {
            break stopped;
        }
        if deadline.is_over() {
            let pid = roots.first().copied().unwrap_or(HostPid(0));
            return Err(deadline.missed(pid, pid.0));
        }
    };
    for process in &mut processes {
        process.vdso = vdsos.remove(&process.pid);
        for thread in &mut process.threads {
            thread.before = glimpses.finished(thread.tid.0, thread.stopped_at_ns);
        }
    }
    Ok((processes, reaper))
}

/// Stops everything once. `Ok(None)`: something moved on in a way that asks for starting over.
fn attempt(
    roots: &[HostPid],
    vdsos: &BTreeMap<HostPid, Range<u64>>,
    glimpses: &mut Glimpses,
    deadline: &Deadline,
) -> Result<Option<(Vec<StoppedProcess>, Reaper)>, StopError> {
    let reaper = Reaper::start();
    let mut seized = Seized {
        threads: BTreeMap::new(),
        firsts: BTreeMap::new(),
        glimpses,
    };
    for pid in roots {
        let status = ProcDir::of(pid.0).parsed("status", parse_status);
        let first = status.map_or(pid.0, |status| status.tgid);
        seized.firsts.insert(*pid, first);
    }
    let mut may_leave = true;
    loop {
        let mut waits = 0;
        loop {
            let held = seized.threads.len();
            if !seize_new(roots, &mut seized, &reaper)? {
                break;
            }
            // It may start threads as fast as they are seized.
            if deadline.is_over() {
                let pid = roots.first().copied().unwrap_or(HostPid(0));
                return Err(deadline.missed(pid, pid.0));
            }
            if seized.threads.len() == held {
                // For those that end to be gone.
                ptrace::pause(waits);
                waits += 1;
            }
            settle(&mut seized, deadline)?;
        }
        let mut processes = vec![];
        let mut moved = false;
        for pid in roots {
            let Some(mut process) = read_process(*pid, &seized)? else {
                return Ok(None);
            };
            if let Some(vdso) = vdsos.get(pid).filter(|_| may_leave) {
                match vdso_exit::leave(&mut process, vdso, deadline)? {
                    Moved::Nobody => {}
                    Moved::Some => moved = true,
                    Moved::Ended => return Ok(None),
                }
                seized.remember(&process);
            }
            processes.push(process);
        }
        // Whoever ran may have started threads.
        if !moved || !seize_new(roots, &mut seized, &reaper)? {
            seized.threads.clear();
            return Ok(Some((processes, reaper)));
        }
        settle(&mut seized, deadline)?;
        may_leave = false;
    }
}

/// What its folder in `/proc` says of its threads.
fn listed<T>(
    pid: HostPid,
    read: impl FnOnce(&ProcDir) -> Result<T, ProcfsError>,
) -> Result<T, StopError> {
    read(&ProcDir::of(pid.0)).map_err(|error| match error.is_gone() {
        true => StopError::Gone { pid: pid.0 },
        false => StopError::Unlisted {
            pid: pid.0,
            source: error,
        },
    })
}

/// Seizes every listed thread that is not yet; whether there were any, also such as end and cannot be seized any more.
///
/// A thread that ends while the threads are listed can hide others (fs/proc/base.c, `next_tid`). If it was listed itself, it is not seized:
/// no such thread may be there any more when nobody is left to be seized. If it was not (`proc_task_readdir`), there are more than listed.
fn seize_new(
    roots: &[HostPid],
    seized: &mut Seized<'_>,
    reaper: &Reaper,
) -> Result<bool, StopError> {
    let mut found = false;
    for pid in roots {
        let listed_now = listed(*pid, |dir| dir.numbers("task"))?;
        let mut is_complete = true;
        for tid in &listed_now {
            if seized.threads.contains_key(tid) || is_leaving_first(&seized.firsts, *pid, *tid) {
                continue;
            }
            is_complete = false;
            if seize(*pid, *tid, seized.glimpses.threads.get_mut(tid))? {
                seized.threads.insert(*tid, (*pid, State::Asked));
                reaper.look_after(*tid);
            }
        }
        // Counted when all that are listed stand still.
        let count = || listed(*pid, ProcDir::thread_count);
        if !is_complete || count()? != listed_now.len() as u64 {
            found = true;
            continue;
        }
        // A thread that executes a program takes the leader's id: its own is not listed any more.
        seized
            .threads
            .retain(|tid, (owner, _)| owner != pid || listed_now.binary_search(tid).is_ok());
        if !seized.threads.values().any(|(owner, _)| owner == pid) {
            return Err(StopError::Gone { pid: pid.0 });
        }
    }
    Ok(found)
}

/// Whether a thread is the first of its process and on its way out. Its end is told to nobody as long as others go on, and a
/// tracer cannot let go of it then.
fn is_leaving_first(firsts: &BTreeMap<HostPid, i32>, pid: HostPid, tid: i32) -> bool {
    let stat = || ProcDir::of(tid).parsed("stat", parse_stat);
    firsts.get(&pid) == Some(&tid) && stat().is_ok_and(|stat| stat.is_ending())
}

/// Seizes a thread and asks it to stop; `false` if it has ended.
fn seize(pid: HostPid, tid: i32, glimpse: Option<&mut Glimpse>) -> Result<bool, StopError> {
    let mut tries = 0;
    loop {
        let source = match ptrace::seize(tid, ptrace::OPTION_SYSGOOD) {
            Ok(()) => break,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(false),
            Err(error) => error,
        };
        let status = ProcDir::of(pid.0)
            .thread(tid)
            .parsed("status", parse_status);
        let Ok(status) = status else {
            return Ok(false);
        };
        let own = nix::unistd::gettid().as_raw();
        match (status.state, status.tracer_pid) {
            // Of an earlier stop of ours that gave up before it had ended: listed until notice is taken of it.
            (b'Z', tracer) if tracer == own => {
                ptrace::reap(tid);
                return Ok(false);
            }
            (b'Z', 0) | (b'X', _) => return Ok(false),
            (b'Z', tracer) if lets_go_soon(tracer) => return Ok(false),
            // Ours under an id it did not have before: it has executed a program.
            (_, tracer) if tracer == own => break,
            // A thread about to end, or to give its id to one that executes a program, is EPERM, too. So is one that its
            // restart, or what answers CPUID for it, holds for a moment.
            (_, tracer) if tries < SEIZE_TRIES && (tracer == 0 || lets_go_soon(tracer)) => {
                ptrace::pause(tries);
                tries += 1;
            }
            (_, 0) => {
                return Err(StopError::Denied {
                    pid: pid.0,
                    tid,
                    source,
                });
            }
            (_, tracer) => return Err(StopError::Traced { pid: pid.0, tracer }),
        }
    }
    let mut glimpse = glimpse;
    if let Some(glimpse) = &mut glimpse {
        glimpse.refresh();
    }
    // If this fails it has ended, which the wait will tell.
    let _ = ptrace::interrupt(tid);
    if let Some(glimpse) = glimpse {
        glimpse.asked();
    }
    Ok(true)
}

/// How often a refusal is believed to be about a moment only.
const SEIZE_TRIES: u32 = 400;

/// Waits until every seized thread has stopped or ended.
///
/// A thread that executes a program first kills the others, those that have stopped too, and waits
/// until their tracer has taken notice of it: therefore stopped ones are looked at again and again.
/// Then it takes the leader's id, traced or not: therefore those that do not stop are asked again.
fn settle(seized: &mut Seized<'_>, deadline: &Deadline) -> Result<(), StopError> {
    let mut round = 0;
    loop {
        let mut going = None;
        let firsts = &seized.firsts;
        seized.threads.retain(|tid, (pid, state)| {
            let again = round % ROUNDS_PER_SECOND_LOOK == ROUNDS_PER_SECOND_LOOK - 1;
            match *state {
                State::Asked if again && ptrace::interrupt(*tid).is_err() => return false,
                State::Stopped { .. } if !again => return true,
                _ => {}
            }
            match (ask(*tid), &state) {
                (Answer::Stopped(signal), _) => {
                    let job_control = (signal != libc::SIGTRAP).then_some(signal);
                    *state = State::Stopped { job_control };
                    true
                }
                (Answer::Ended, _) => false,
                (Answer::Going, State::Asked) if again && is_leaving_first(firsts, *pid, *tid) => {
                    false
                }
                (Answer::Going, State::Asked) => {
                    going = Some((*pid, *tid));
                    if again {
                        have_it_told_again(*tid);
                    }
                    true
                }
                (Answer::Going, State::Stopped { .. }) => true,
            }
        });
        let Some((pid, tid)) = going else {
            return Ok(());
        };
        if deadline.is_over() {
            return Err(deadline.missed(pid, tid));
        }
        ptrace::pause(round);
        round += 1;
    }
}

/// A thread that was told to have stopped under another id, or before it was lost sight of, stays at
/// that stop and is not told of again: it is let go, to stop anew since it was asked to.
fn have_it_told_again(tid: i32) {
    // One that is told of stops for the first time.
    if is_at_known_stop(tid) {
        let _ = ptrace::cont(tid, 0);
    }
}

/// Every so many rounds, threads that have stopped are looked at again, and others asked again.
const ROUNDS_PER_SECOND_LOOK: u32 = 32;

/// Reads all threads of a stopped process. `Ok(None)`: one of them is not at its stop any more, since
/// another has executed a program or ended the process.
fn read_process(pid: HostPid, seized: &Seized<'_>) -> Result<Option<StoppedProcess>, StopError> {
    let mut threads = vec![];
    let mut group_stopped = None;
    for (tid, (owner, state)) in &seized.threads {
        if *owner != pid {
            continue;
        }
        if let State::Stopped {
            job_control: Some(signal),
        } = state
        {
            group_stopped = Some(*signal);
        }
        match StoppedThread::read(HostTid(*tid), BeforeStop::default()) {
            Err(error) if error.is_not_stopped() => return Ok(None),
            read => threads.push(read?),
        }
    }
    threads.sort_by_key(|thread| (thread.tid.0 != pid.0, thread.tid.0));
    // The thread by which it is looked at may have ended meanwhile.
    let held = threads.first().map_or(pid, |thread| HostPid(thread.tid.0));
    let memory = Memory::open(held).map_err(|source| StopError::Denied {
        pid: pid.0,
        tid: pid.0,
        source,
    })?;
    Ok(Some(StoppedProcess {
        pid,
        threads,
        group_stopped,
        memory,
        vdso: None,
        resident: None,
    }))
}
