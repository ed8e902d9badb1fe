//! P1 (or P0 with `--pids host`): makes what the job's processes share, creates its first
//! process, finishes it, and is its parent from then on.
//!
//! ```text
//! Prepare stream -> root process -> all threads parked -> finish (ptrace) -> keep
//! keep: reap, pass signals on, report stops, end with the root's status
//! ```
//! # What callers may rely on
//! When the start fails nothing of the job is left. When the job's root ends, so does
//! everything else of the job.

use crate::abi::*;
use crate::context::{CONTEXT, Context, Own};
use crate::enforcer::Enforcer;
use crate::family::Family;
use crate::feed;
use crate::finish;
use crate::interpret::{self, Runner};
use crate::job;
use crate::kept;
use crate::message::{Message, hear_said, receive, send, send_at_once, send_failure};
use crate::report::{self, Failure, Line, Outcome, failure};
use crate::supervise::{self, Held};
use crate::sys::{self, Errno};
use crate::traced;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use loader::ops::StreamKind;
use loader::words::{ASKING, WITH_STARTER, WITHOUT_STARTER};

/// Who is told how the job fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Superior {
    /// We are P0 ourselves.
    Nobody,
    /// P0, through the control socket.
    Control,
}

/// P1's life.
pub fn main(context: &mut Context) -> ! {
    let result = keep(context, Superior::Control);
    let control = context.fd(Own::Control);
    match result {
        Ok(status) => send(control, Message::Ended(status)),
        Err(failure) => {
            supervise::report_failure(context, &failure);
            send_failure(control, &failure);
        }
    }
    // Everything else in the namespace goes with its pid 1.
    sys::exit_group(0)
}

/// Starts the job and keeps it; the wait status of its root.
pub fn keep(context: &mut Context, superior: Superior) -> Outcome<u32> {
    be_known(context.options.starter_fd.is_some());
    let mut feeds = feed::Feeds::new();
    let mut held = Held::default();
    let mut family = Family::meet();
    let mut enforcer = Enforcer::new(context);
    let started = start(
        context,
        superior,
        &mut feeds,
        &mut held,
        &mut family,
        &mut enforcer,
    );
    let root = match started {
        Ok(Started::Running(root)) => root,
        // As pid 1 we take everything along.
        Ok(Started::Interrupted(signal)) => {
            if superior == Superior::Nobody {
                family.end();
            }
            return Ok(signal);
        }
        Err(failure) => {
            if superior == Superior::Nobody {
                family.end();
            }
            return Err(failure);
        }
    };
    feeds.go(context);
    supervise::let_go(context);
    supervise::tell_it_runs(context);
    if superior == Superior::Nobody && context.fd(Own::Starter) >= 0 {
        // From here on its death is noticed below, where we can take the job along.
        let _ = sys::prctl(PR_SET_PDEATHSIG, 0);
    }
    if superior == Superior::Control {
        send(context.fd(Own::Control), Message::Running);
    }
    let mut keeper = Keeper {
        superior,
        control: context.fd(Own::Control),
        signals: context.fd(Own::Signals),
        starter: context.fd(Own::Starter),
        root,
        family,
        stopped: false,
        stops: 0,
        continues: false,
        had_cont: None,
        enforcer,
    };
    keeper.enforcer.job_runs = true;
    let mut ended = None;
    while let (None, Some((signal, from_kernel))) = (ended, held.take()) {
        ended = keeper.pass_on(signal, from_kernel, None);
    }
    loop {
        if let Some(status) = ended.or_else(|| keeper.step()) {
            if superior == Superior::Nobody {
                keeper.family.end();
            }
            return Ok(status);
        }
    }
}

/// Takes a name by which the job knows who its parent is, and whether that is the one it had before.
fn be_known(has_starter: bool) {
    let known = match has_starter {
        true => WITH_STARTER,
        false => WITHOUT_STARTER,
    };
    let mut name = [0; 16];
    let mut own = [0; 6];
    // Without chance, a moment in nanoseconds is all but as good.
    if sys::random(&mut own).is_err() {
        let nanoseconds = sys::clock(CLOCK_BOOTTIME);
        own.copy_from_slice(&nanoseconds.to_le_bytes()[..6]);
    }
    let own = own.map(|byte| b"abcdefghijklmnopqrstuvwxyz012345"[usize::from(byte % 32)]);
    for (to, byte) in name.iter_mut().zip(known.iter().chain(&own)) {
        *to = *byte;
    }
    let _ = sys::set_name(&name);
}

enum Started {
    Running(i32),
    Interrupted(u32),
}

fn start(
    context: &mut Context,
    superior: Superior,
    feeds: &mut feed::Feeds,
    held: &mut Held,
    family: &mut Family,
    enforcer: &mut Enforcer,
) -> Outcome<Started> {
    let pipe_failed = |error: Errno| no_descriptor("status pipe", error);
    let [report, reporter] = sys::pipe(O_CLOEXEC).map_err(pipe_failed)?;
    context.place(Own::ReportRead, report);
    context.place(Own::ReportWrite, reporter);
    if !context.is_run() {
        raise_limits();
    }
    let prepare = context
        .ops
        .stream(0)
        .ok_or_else(|| failure!(Image, "section .wf.ops: no streams"))?;
    {
        let mut runner = Runner::new(context, 0, Some(feeds));
        interpret::run(&mut runner, &prepare)?;
    }
    match superior {
        Superior::Nobody => {
            sys::set_mask(supervise::ALL_SIGNALS);
        }
        Superior::Control => send(context.fd(Own::Control), Message::Prepared),
    }
    let (stream, entry) = context
        .streams_of(StreamKind::Process, 0)
        .next()
        .ok_or_else(|| failure!(Image, "section .wf.ops: no process to start"))?;
    let root = job::create(context, stream, &entry)?;
    family.add(root);
    for (stream, entry) in context.streams_of(StreamKind::Process, 0).skip(1) {
        family.add(job::create(context, stream, &entry)?);
    }
    kept::let_go(context);
    context.forget(Own::ReportWrite);
    if let Some(signal) = wait_for_parking(context, superior, root, held, family, enforcer)? {
        return Ok(Started::Interrupted(signal));
    }
    feeds.start(context, family)?;
    if !context.is_run() {
        interpret::cut_back_files(context, &prepare)?;
        interpret::take_over(context, &prepare);
        finish::finish(context)?;
        supervise::close_the_jobs(context);
        finish::let_run(context)?;
    }
    Ok(Started::Running(root))
}

/// Why there is no descriptor for ourselves.
pub fn no_descriptor(what: &str, error: Errno) -> Failure {
    let (soft, _) = sys::limit(RLIMIT_NOFILE).unwrap_or((0, 0));
    match error {
        Errno(EMFILE) => failure!(
            Host,
            "{what}: limit on open files (RLIMIT_NOFILE): found {soft}, expected more"
        ),
        error => failure!(Host, "{what}: {error}"),
    }
}

/// What the job had may need more than our soft limits grant; its own are set last.
pub fn raise_limits() {
    for resource in RLIMITS_IN_THE_WAY {
        if let Ok((soft, hard)) = sys::limit(resource)
            && soft != hard
        {
            let _ = sys::set_limit(resource, hard, hard);
        }
    }
}

/// Waits until every thread has carried out its stream (or, in run mode, the program runs).
/// Gives the signal that ended the wait.
///
/// Signals meant for the job are held until it is there: a program under `run` may be executed, and
/// speak, before we know.
fn wait_for_parking(
    context: &mut Context,
    superior: Superior,
    root: i32,
    held: &mut Held,
    family: &mut Family,
    enforcer: &mut Enforcer,
) -> Outcome<Option<u32>> {
    let is_run = context.is_run();
    let ends_it = |signal| !is_run && supervise::ends_a_start(signal);
    let streams = 1..context.ops.header().streams;
    let ops = context.ops;
    let process = |index: &u64| {
        let entry = ops.stream(*index);
        entry.is_some_and(|entry| entry.kind == StreamKind::Process as u64)
    };
    let mut left = streams.filter(process).count();
    let watched = [Own::ReportRead, Own::Signals, Own::Control].map(|own| context.fd(own));
    let mut line = Line::new();
    loop {
        let [report, signals, control] = watched.map(|fd| PollFd {
            fd,
            events: POLLIN,
            revents: 0,
        });
        let mut fds = [report, signals, control, enforcer.watched()];
        let _ = sys::poll(&mut fds, enforcer.patience());
        enforcer.serve(&fds[3]);
        if fds[0].revents != 0 {
            match receive(watched[0]) {
                Some(Message::Parked(_)) => left = left.saturating_sub(1),
                Some(Message::Listener(fd)) => enforcer.take(context, root, fd)?,
                Some(Message::Said(words)) => hear_said(&mut line, words),
                Some(Message::Failed(exit)) => {
                    let is_said = true;
                    return Err(Failure {
                        exit,
                        line,
                        is_said,
                    });
                }
                Some(_) => {}
                None if context.is_run() => return Ok(None),
                None => {
                    // All who could have reported are gone.
                    let _ = sys::kill(root, SIGKILL);
                    let status = sys::wait(root, WALL).map_or(SIGKILL, |(_, status)| status);
                    family.reaped(root);
                    return Err(gone(root, status));
                }
            }
            if left == 0 && !context.is_run() {
                return Ok(None);
            }
            continue;
        }
        while let Some(info) = sys::next_signal(watched[1]) {
            if superior == Superior::Nobody && info.signal != SIGCHLD {
                if ends_it(info.signal) {
                    return Ok(Some(info.signal));
                }
                held.put(info.signal, info.code == SI_KERNEL);
            }
            // A program that has ended already is found by `keep`.
            if info.signal == SIGCHLD && !context.is_run() && fds[0].revents == 0 {
                // One signal may stand for several who have ended.
                while let Ok((pid @ 1.., status)) = sys::wait(-1, WALL | WNOHANG) {
                    family.reaped(pid);
                    if pid == root {
                        return Err(gone(root, status));
                    }
                }
            }
        }
        if fds[2].revents != 0 && superior == Superior::Control {
            match receive(watched[2]) {
                None => sys::exit_group(0),
                Some(Message::Signal { signal, .. }) if ends_it(signal) => {
                    return Ok(Some(signal));
                }
                Some(Message::Signal {
                    signal,
                    from_kernel,
                    ..
                }) => held.put(signal, from_kernel),
                Some(_) => {}
            }
        }
    }
}

fn gone(root: i32, status: u32) -> Failure {
    let how = report::Status(status);
    Failure::new(
        report::exit_of_death(status),
        format_args!("process {root} died in the middle of the restart: {how}"),
    )
}

/// The job's parent.
struct Keeper {
    superior: Superior,
    control: i32,
    signals: i32,
    starter: i32,
    root: i32,
    family: Family,
    stopped: bool,
    /// How often our superior was told that the root was stopped.
    stops: u32,
    /// It was stopped, and we have continued it.
    continues: bool,
    /// When the root was last known to have got a SIGCONT that was not ours.
    had_cont: Option<i128>,
    enforcer: Enforcer,
}

/// How long after the root has got a SIGCONT itself one that we get is taken for the same, sent to a whole group.
const SAME_CONT_NS: i128 = 1_000_000_000;

impl Keeper {
    /// Waits for something to happen; the root's wait status when it has ended.
    fn step(&mut self) -> Option<u32> {
        if let Some(status) = self.reap() {
            return Some(status);
        }
        let [signals, control] = [self.signals, self.control].map(|fd| PollFd {
            fd,
            events: POLLIN,
            revents: 0,
        });
        // Its reader is gone: the pipe tells that by an error.
        let starter = PollFd {
            fd: self.starter,
            events: 0,
            revents: 0,
        };
        let mut fds = [signals, control, self.enforcer.watched(), starter];
        let _ = sys::poll(&mut fds, self.enforcer.patience());
        self.enforcer.serve(&fds[2]);
        if fds[3].revents != 0 && self.superior == Superior::Nobody {
            self.family.end();
            sys::exit_group(0);
        }
        while let Some(info) = sys::next_signal(self.signals) {
            if (info.signal, info.code, info.value) == (SIGURG, SI_QUEUE, ASKING) {
                match self.superior {
                    Superior::Control => send_at_once(self.control, Message::Asks),
                    Superior::Nobody => supervise::tell_it_asks(self.starter),
                }
                continue;
            }
            let own = info.signal == SIGCHLD || info.pid as i32 == sys::pid();
            let in_group = || sys::process_group(self.root) == sys::process_group(0);
            if info.signal == SIGCONT && self.superior == Superior::Control && in_group() {
                // Nobody but P0 is sent any alone: this came to all of our group.
                self.had_cont = Some(sys::clock(CLOCK_MONOTONIC));
            }
            if self.superior == Superior::Nobody && !own {
                let from_kernel = info.code == SI_KERNEL;
                if let Some(status) = self.pass_on(info.signal, from_kernel, None) {
                    return Some(status);
                }
            }
        }
        if fds[1].revents != 0 {
            match receive(self.control) {
                Some(Message::Signal {
                    signal,
                    from_kernel,
                    stops,
                }) => return self.pass_on(signal, from_kernel, Some(stops)),
                Some(_) => {}
                // P0 is gone, and with us goes the namespace.
                None => sys::exit_group(0),
            }
        }
        None
    }

    /// Takes away whoever has ended.
    fn reap(&mut self) -> Option<u32> {
        loop {
            let options = WALL | WNOHANG | WUNTRACED | WCONTINUED;
            let met = self.enforcer.ended.take();
            let Some((pid, status)) = met.or_else(|| sys::wait(-1, options).ok()) else {
                return None;
            };
            if pid == 0 {
                return None;
            }
            if status >> 16 != 0 {
                // It was to be held, and came too late.
                traced::let_go(pid);
                continue;
            }
            if status != 0xffff && status & 0xff != 0x7f {
                self.family.reaped(pid);
            }
            if pid != self.root {
                continue;
            }
            if status == 0xffff {
                self.stopped = false;
                if !core::mem::take(&mut self.continues) {
                    self.had_cont = Some(sys::clock(CLOCK_MONOTONIC));
                }
                if self.superior == Superior::Control {
                    send(self.control, Message::Continued);
                }
            } else if status & 0xff == 0x7f {
                self.stopped = true;
                let signal = status >> 8 & 0xff;
                match self.superior {
                    Superior::Control => {
                        self.stops = (self.stops + 1) & supervise::MOST_STOPS;
                        send(self.control, Message::Stopped(signal));
                    }
                    Superior::Nobody => supervise::stop_too(signal, None),
                }
            } else {
                return Some(status);
            }
        }
    }

    /// Sends a signal that we were sent to the job's root; our superior had heard of so many `stops` then.
    fn pass_on(&mut self, signal: u32, from_kernel: bool, stops: Option<u32>) -> Option<u32> {
        supervise::note_signal(signal);
        if signal == SIGCONT {
            // A shell continues the whole group at once: the job may run already.
            if let Some(status) = self.reap() {
                return Some(status);
            }
            if !self.stopped {
                let since = self
                    .had_cont
                    .take()
                    .map(|at| sys::clock(CLOCK_MONOTONIC) - at);
                if since.is_some_and(|since| since < SAME_CONT_NS) {
                    return None;
                }
            } else if stops.is_some_and(|stops| stops != self.stops) {
                // It has been stopped again since.
                return None;
            } else {
                self.continues = true;
            }
        } else if from_kernel && supervise::is_of_terminal(signal) {
            let group = sys::process_group(self.root);
            if group == sys::process_group(0) {
                return None;
            }
        }
        let _ = sys::kill(self.root, signal);
        None
    }
}

/// Ends a process of the job whose stream failed.
pub fn end_child(context: &Context, failure: &Failure) -> ! {
    report::say_failure(context.name(), failure);
    send_failure(context.fd(Own::ReportWrite), failure);
    sys::exit_group(failure.exit)
}

/// Who we are, for [`end_anywhere`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Role {
    Supervisor = 0,
    Init = 1,
    OfTheJob = 2,
}

static ROLE: AtomicU32 = AtomicU32::new(Role::Supervisor as u32);

/// A new process tells who it is.
pub fn become_role(role: Role) {
    // What is to be told comes to the supervisor.
    report::tell_starter(-1);
    ROLE.store(role as u32, Ordering::Relaxed);
}

/// The image's name for messages, as long as there is no context.
static EARLY_NAME: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());

/// Whoever ends us before there is a context names the image so.
pub fn name_early(name: &'static CStr) {
    EARLY_NAME.store(name.as_ptr().cast_mut(), Ordering::Relaxed);
}

/// Ends the restart from wherever we are.
pub fn end_anywhere(failure: &Failure) -> ! {
    // SAFETY: the pointer is null, or to the context in the hole, which lives as long as the loader.
    let context = unsafe { CONTEXT.load(Ordering::Relaxed).as_ref() };
    let Some(context) = context else {
        let name = EARLY_NAME.load(Ordering::Relaxed);
        let name = match name.is_null() {
            true => c"",
            // SAFETY: a word of the command line, which the kernel has left.
            false => unsafe { CStr::from_ptr(name) },
        };
        report::say_failure(name.to_bytes(), failure);
        sys::exit_group(failure.exit);
    };
    let role = ROLE.load(Ordering::Relaxed);
    if role == Role::OfTheJob as u32 {
        end_child(context, failure);
    }
    supervise::report_failure(context, failure);
    if role == Role::Init as u32 {
        send_failure(context.fd(Own::Control), failure);
    }
    sys::exit_group(failure.exit)
}

/// Notes the id of a process or thread of the job.
pub fn note_id(context: &Context, stream: u64) {
    let tid = sys::tid() as u32;
    context.shared(stream + 1).tid.store(tid, Ordering::Release);
}
