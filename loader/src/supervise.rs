//! P0, the process the user started: decides where the job's ids come from, forwards signals,
//! ends as the job ends.
//!
//! ```text
//! --pids auto|namespace: P0 -clone-> P1 (pid 1 of new namespaces) -> job    control socket P0 <-> P1
//! --pids host:           P0 does P1's work                        -> job
//!
//! preparing --Prepared--> starting --Running--> running --Stopped--> stopped (with us) --SIGCONT--> running
//!  `--signal--> end           `--Failed, signal--> end        `--Ended--> the same end
//! ```
//! Until everything that the job's processes share is there (Prepared), signals that end a restart have
//! their default action: P1 goes with us, and nothing else is there. From then on all signals are
//! blocked and read from a descriptor.
//! # What callers may rely on
//! P0 and P1 keep no descriptor of the job once it runs. A signal that the terminal has
//! already sent to the job is not sent to it again.

use crate::abi::*;
use crate::context::{Context, Own};
use crate::door;
use crate::init;
use crate::message::{Message, hear_said, receive, send};
use crate::namespaces::{self, NoNamespaces};
use crate::options::Pids;
use crate::report::{self, Failure, Line, Outcome, failure};
use crate::sys;
use core::sync::atomic::{AtomicBool, Ordering};
use loader::hole::TABLES_LEN;
use loader::ops::flags;
use loader::words::{ASKS, COMMITTED, COMPLETE, DONE, ENDED, LOST, MAY_BE_COMPLETE, RUNS};

/// Everything that can be blocked, and so read from a descriptor.
pub const ALL_SIGNALS: u64 = !0;

/// Entry on the loader's own stack.
pub extern "C" fn main(context: &'static mut Context) -> ! {
    match supervise(context) {
        Ok(status) => end_like(settle_end(context, status)),
        Err(failure) => {
            report::say_failure(context.name(), &failure);
            sys::exit_group(failure.exit)
        }
    }
}

/// Runs the job; how it ended.
fn supervise(context: &mut Context) -> Outcome<u32> {
    if context.is_run() {
        sys::set_mask(ALL_SIGNALS);
    }
    look_around(context)?;
    let is_confined = context.options.confine.is_some();
    if context.ops.header().flags & flags::CONFINED != 0 && !is_confined {
        return Err(failure!(
            Usage,
            "the job of this image sees nothing of the machine (--confine): wayfarer restart lets it go on so"
        ));
    }
    if context.options.pids != Pids::Host || is_confined {
        match namespaces::enter(context) {
            Ok(init) => return watch(context, init),
            Err(NoNamespaces::Fatal(failure)) => return Err(failure),
            Err(NoNamespaces::Refused(why)) => {
                if is_confined {
                    return Err(failure!(
                        Host,
                        "--confine: this machine gives the job no namespaces, so it is not started ({})",
                        report::Raw(why.bytes())
                    ));
                }
                if context.options.pids == Pids::Namespace {
                    return Err(failure!(
                        Host,
                        "no namespaces for the job ({})",
                        report::Raw(why.bytes())
                    ));
                }
                let why = report::Raw(why.bytes());
                report::say(
                    context.name(),
                    format_args!(
                        "no namespaces for the job ({why}): it goes on among the ids of this machine"
                    ),
                );
            }
        }
    }
    door::end(context);
    namespaces::check_host_clocks(context)?;
    let _ = sys::prctl(PR_SET_CHILD_SUBREAPER, 1);
    init::keep(context, init::Superior::Nobody)
}

/// What both P0 and P1 go by.
pub fn look_around(context: &mut Context) -> Outcome<()> {
    let fd = sys::signal_fd(ALL_SIGNALS)
        .map_err(|error| init::no_descriptor("descriptor for signals", error))?;
    context.place(Own::Signals, fd);
    let inherited = context.options.inherited().iter().copied();
    context.in_foreground = (0..3).chain(inherited).any(sys::is_in_foreground);
    Ok(())
}

/// Waits for what P1 reports.
fn watch(context: &mut Context, init: i32) -> Outcome<u32> {
    let control = context.fd(Own::Control);
    let signals = context.fd(Own::Signals);
    let mut running = false;
    let mut stops = 0;
    let mut line = Line::new();
    loop {
        let mut fds = [control, signals].map(|fd| PollFd {
            fd,
            events: POLLIN,
            revents: 0,
        });
        let _ = sys::poll(&mut fds, None);
        while let Some(info) = sys::next_signal(signals) {
            let by_message = info.signal == SIGCONT && (1..=6).contains(&info.code); // POLL_IN ...
            if info.signal == SIGCHLD || info.pid as i32 == sys::pid() || by_message {
                continue;
            }
            note_signal(info.signal);
            // Only P1 knows whether the job runs already, and so what the signal means.
            let from_kernel = info.code == SI_KERNEL;
            let message = Message::Signal {
                signal: info.signal,
                from_kernel,
                stops,
            };
            send(control, message);
        }
        if fds[0].revents == 0 {
            continue;
        }
        match receive(control) {
            Some(Message::Prepared) => {
                sys::set_mask(ALL_SIGNALS);
            }
            Some(Message::Running) => {
                running = true;
                door::has_done(context);
                let_go(context);
                // It only passes on what it hears now, and ends.
                let _ = sys::give_up_capabilities();
                tell_it_runs(context);
            }
            Some(Message::Stopped(signal)) => {
                stops = (stops + 1) & MOST_STOPS;
                stop_too(signal, Some(control));
            }
            Some(Message::Asks) => tell_it_asks(context.fd(Own::Starter)),
            Some(Message::Ended(status)) => {
                let _ = sys::wait(init, WALL);
                return Ok(status);
            }
            Some(Message::Said(words)) => hear_said(&mut line, words),
            Some(Message::Failed(exit)) => {
                let _ = sys::wait(init, WALL);
                let is_said = true;
                return Err(Failure {
                    exit,
                    line,
                    is_said,
                });
            }
            Some(_) => {}
            None => {
                let (_, status) = sys::wait(init, WALL).unwrap_or((0, SIGKILL));
                if running {
                    // The job was killed with its pid 1; nobody is left to hear more.
                    return Ok(SIGKILL);
                }
                return Err(Failure::new(
                    report::exit_of_death(status),
                    format_args!(
                        "the job's supervisor (process {init}) ended before the job was running: {}",
                        report::Status(status)
                    ),
                ));
            }
        }
    }
}

/// How far stops are counted before that begins anew: as much as a message holds.
pub const MOST_STOPS: u32 = u32::MAX >> 1;

/// Signals that came while the job was not yet there.
#[derive(Debug, Default)]
pub struct Held {
    signals: u64,
    from_kernel: u64,
}

impl Held {
    /// Keeps one for later.
    pub fn put(&mut self, signal: u32, from_kernel: bool) {
        if let bit @ 1.. = 1u64.checked_shl(signal.wrapping_sub(1)).unwrap_or(0) {
            self.signals |= bit;
            self.from_kernel |= if from_kernel { bit } else { 0 };
        }
    }

    /// Gives them back, the lowest first, and whether the kernel sent it.
    pub fn take(&mut self) -> Option<(u32, bool)> {
        let bit = self.signals & self.signals.wrapping_neg();
        self.signals &= !bit;
        (bit != 0).then(|| (bit.trailing_zeros() + 1, self.from_kernel & bit != 0))
    }
}

/// Whether a signal that comes before the job runs ends the restart.
pub fn ends_a_start(signal: u32) -> bool {
    matches!(signal, SIGHUP | SIGINT | SIGQUIT | SIGTERM)
}

/// Whether the terminal sends this signal to a whole process group.
pub fn is_of_terminal(signal: u32) -> bool {
    matches!(
        signal,
        SIGHUP | SIGINT | SIGQUIT | SIGTSTP | SIGTTIN | SIGTTOU | SIGWINCH | SIGCONT
    )
}

/// Closes every descriptor the job may have, too, before it runs: its readers and writers must see others end.
pub fn close_the_jobs(context: &Context) {
    sys::close_range(0, context.own_number(Own::Image) - 1);
}

/// Gives up every descriptor that is not needed while the job runs, and the tables.
pub fn let_go(context: &mut Context) {
    let kept = [
        Own::Control,
        Own::Signals,
        Own::Keeper,
        Own::Listener,
        Own::Starter,
    ];
    let mut keep = kept.map(|own| context.fd(own));
    keep.sort_unstable();
    let mut from = 0u64;
    for fd in keep {
        if fd >= 0 {
            if fd as u64 > from {
                sys::close_range(from, fd as u64 - 1);
            }
            from = fd as u64 + 1;
        }
    }
    sys::close_range(from, u64::from(u32::MAX));
    for own in [
        Own::Image,
        Own::Stderr,
        Own::ReportRead,
        Own::ReportWrite,
        Own::Folder,
    ] {
        context.fds[own as usize] = -1;
    }
    context.extents = context.extents.rows().none();
    forget_contents(context);
}

/// Gives back the memory of what only a start needs: for who asks no more where contents lie, nor reads any.
pub fn forget_contents(context: &Context) {
    let (tables, buffers) = (context.layout.extents, context.layout.buffers);
    // What is noted about the tables stays.
    let read = tables.len.saturating_sub(TABLES_LEN);
    let _ = sys::empty(context.address(tables) + TABLES_LEN, read);
    let _ = sys::empty(context.address(buffers), buffers.len);
}

/// Something of the job's is lost, though it has ended well: a peer was lost.
const LOST_STATUS: u32 = 5 << 8;

/// A signal has come for the job by which batch systems and people end programs, or warn them.
static TOLD_TO_END: AtomicBool = AtomicBool::new(false);

/// Remembers a signal that is passed on to the job.
pub fn note_signal(signal: u32) {
    if ends_a_start(signal) || matches!(signal, SIGUSR1 | SIGUSR2 | SIGXCPU) {
        TOLD_TO_END.store(true, Ordering::Relaxed);
    }
}

/// Tells keeper and starter, if there are such, that the job runs.
pub fn tell_it_runs(context: &Context) {
    tell_keeper(context, RUNS);
    let _ = sys::write(context.fd(Own::Starter), &[RUNS]);
}

/// Tells the starter that the job asks for something. One that does not read has been told already.
pub fn tell_it_asks(starter: i32) {
    let _ = sys::send_at_once(starter, &[ASKS]);
}

fn tell_keeper(context: &Context, what: u8) {
    let _ = sys::write(context.fd(Own::Keeper), &[what]);
}

/// Nothing of the job is left: the keeper brings away what it has left, a starter writes the end down; how we end then.
///
/// ```text
/// P0 --may be complete--> keeper: all is sent, and durable --done--> P0 --ended--> starter: it is written down --committed--> P0 --complete--> keeper
/// ```
/// Whoever is killed on the way leaves a job that goes on from its last image, or one whose end is written down.
fn settle_end(context: &Context, status: u32) -> u32 {
    let (keeper, starter) = (context.fd(Own::Keeper), context.fd(Own::Starter));
    let was_told = TOLD_TO_END.load(Ordering::Relaxed);
    let what = match (starter >= 0, status) {
        _ if was_told => ENDED,
        (true, _) => MAY_BE_COMPLETE,
        (false, 0) => COMPLETE,
        (false, _) => ENDED,
    };
    tell_keeper(context, what);
    let mut status = status;
    let (mut word, mut is_settled) = (ENDED, keeper < 0);
    if keeper >= 0 {
        match hear(context, keeper, what == MAY_BE_COMPLETE) {
            Heard::Said(DONE) => is_settled = true,
            // Nobody has said that it has ended well; so this has ended it.
            Heard::ToldToEnd(signal) if starter >= 0 => status = signal,
            Heard::ToldToEnd(_) => {}
            // Whoever reads what the job says sees its end, so we have nowhere to say more.
            _ => {
                word = LOST;
                if status == 0 {
                    status = LOST_STATUS;
                }
            }
        }
    }
    let [a, b, c, d] = status.to_le_bytes();
    let _ = sys::write(starter, &[word, a, b, c, d]);
    if what == MAY_BE_COMPLETE
        && is_settled
        && matches!(hear(context, starter, true), Heard::Said(COMMITTED))
        && keeper >= 0
    {
        tell_keeper(context, COMPLETE);
        let _ = hear(context, keeper, false);
    }
    status
}

enum Heard {
    /// This, at last.
    Said(u8),
    /// Nothing before its end.
    Nothing,
    /// Somebody wants us to end, by this signal.
    ToldToEnd(u32),
}

/// What somebody says: one word, or the last before its end.
fn hear(context: &Context, from: i32, one_word: bool) -> Heard {
    let signals = context.fd(Own::Signals);
    let mut heard = Heard::Nothing;
    loop {
        let mut fds = [from, signals].map(|fd| PollFd {
            fd,
            events: POLLIN,
            revents: 0,
        });
        let _ = sys::poll(&mut fds, None);
        while let Some(info) = sys::next_signal(signals) {
            if ends_a_start(info.signal) {
                return Heard::ToldToEnd(info.signal);
            }
        }
        if fds[0].revents != 0 {
            let mut said = [0];
            match sys::read(from, &mut said) {
                Ok(1..) => heard = Heard::Said(said[0]),
                Err(sys::Errno(EINTR)) => continue,
                _ => return heard,
            }
            if one_word {
                return heard;
            }
        }
    }
}

/// The job has been stopped by `signal`; so are we, until somebody continues us, or until P1 has
/// something to say (that the job was continued, or has ended): its message brings SIGCONT along.
pub fn stop_too(signal: u32, control: Option<i32>) {
    let bit = |signal: u32| 1u64 << (signal - 1);
    let signal = if matches!(signal, SIGTSTP | SIGTTIN | SIGTTOU) {
        signal
    } else {
        SIGSTOP
    };
    let action = sys::default_action(signal);
    let mut said_more = false;
    // Raised first: while it is blocked, the SIGCONT of a message that comes now takes it back (signal(7)).
    if signal != SIGSTOP {
        let _ = sys::kill(sys::pid(), signal);
    }
    if let Some(control) = control {
        let _ = sys::fcntl(control, F_SETOWN, sys::pid() as u64);
        let _ = sys::fcntl(control, F_SETSIG, u64::from(SIGCONT));
        let flags = sys::fcntl(control, F_GETFL, 0).unwrap_or(O_RDWR);
        let _ = sys::fcntl(control, F_SETFL, flags | O_ASYNC);
        let mut fds = [PollFd {
            fd: control,
            events: POLLIN,
            revents: 0,
        }];
        let _ = sys::poll(&mut fds, Some(Timespec::default()));
        said_more = fds[0].revents != 0;
    }
    if said_more {
        sys::discard(signal);
    } else if signal == SIGSTOP {
        let _ = sys::kill(sys::pid(), signal);
    } else {
        sys::set_mask(ALL_SIGNALS & !bit(signal));
        sys::set_mask(ALL_SIGNALS);
    }
    if let Some(control) = control {
        let flags = sys::fcntl(control, F_GETFL, 0).unwrap_or(O_RDWR);
        let _ = sys::fcntl(control, F_SETFL, flags & !O_ASYNC);
    }
    sys::set_action(signal, &action);
}

/// Ends with this wait status: by the same exit code or the same signal, without a core.
pub fn end_like(status: u32) -> ! {
    let signal = status & 0x7f;
    if signal == 0 {
        sys::exit_group(status >> 8 & 0xff);
    }
    let _ = sys::set_limit(RLIMIT_CORE, 0, 0);
    let _ = sys::prctl(PR_SET_DUMPABLE, 0);
    sys::default_action(signal);
    let _ = sys::kill(sys::pid(), signal);
    sys::set_mask(0);
    sys::exit_group(128 + signal)
}

/// Whether the job's ids must be those it had.
pub fn ids_must_match(context: &Context) -> bool {
    context.ops.header().flags & flags::IDS_MUST_MATCH != 0 && !context.options.accept_new_ids
}

/// Ends a start that failed: the line, and the exit code.
pub fn report_failure(context: &Context, failure: &Failure) -> u32 {
    report::say_failure(context.name(), failure);
    failure.exit
}
