//! Namespaces for the job: user, pid, mount and time, made as an ordinary user.
//!
//! ```text
//! P0 --clone(NEWUSER|NEWPID|NEWNS)--> P1: uid_map, gid_map -> clocks -> /proc -> Ready
//! ```
//! # What callers may rely on
//! Whether the machine allows all this is known before anything of the job exists; a
//! refusal leaves P0 as it was.

use crate::abi::*;
use crate::confine;
use crate::context::{Context, Own};
use crate::door;
use crate::init;
use crate::job::no_more_processes;
use crate::message::{Message, receive, send};
use crate::report::{self, Failure, Line, Outcome, failure};
use crate::supervise;
use crate::sys::{self, Errno, SysResult};
use core::ffi::CStr;
use core::fmt::Write;
use loader::clocks::Reading;

/// Why there are no namespaces.
pub enum NoNamespaces {
    /// The machine does not allow them; the text says which step.
    Refused(Line),
    /// They are not the problem.
    Fatal(Failure),
}

/// The steps of P1, for messages.
const STEPS: [&str; 7] = [
    "",
    "/proc/self/uid_map",
    "time namespace",
    "clock offsets",
    "mounting /proc",
    "a root of its own",
    "taking rights away",
];
const UID_MAP: u32 = 1;
const TIME_NAMESPACE: u32 = 2;
const CLOCK_OFFSETS: u32 = 3;
const MOUNT_PROC: u32 = 4;
const OWN_ROOT: u32 = 5;
const NO_RIGHTS: u32 = 6;

/// The namespaces of P1.
pub const FLAGS: u64 = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS;

/// Starts P1 in namespaces of its own; its pid.
pub fn enter(context: &mut Context) -> Result<i32, NoNamespaces> {
    let fatal = |what: &str, error: Errno| NoNamespaces::Fatal(init::no_descriptor(what, error));
    let has_proc = sys::open(c"/proc/self/uid_map", O_RDONLY)
        .map(sys::close)
        .is_ok();
    if !has_proc && context.options.confine.is_some() {
        return Err(NoNamespaces::Fatal(failure!(
            Host,
            "--confine: this root has no /proc, which it takes"
        )));
    }
    if !has_proc {
        without_proc(context).map_err(NoNamespaces::Fatal)?;
    }
    let [ours, theirs] = sys::socket_pair(SOCK_SEQPACKET | SOCK_CLOEXEC)
        .map_err(|error| fatal("control socket", error))?;
    let ids = sys::effective_ids();
    let prepared = match has_proc {
        true => door::ask(context, theirs),
        false => {
            door::end(context);
            None
        }
    };
    let created = match prepared {
        Some(pid) => Ok(pid),
        None => sys::clone_process(FLAGS, None),
    };
    match created {
        Ok(0) => {
            sys::close(ours);
            become_init(context, theirs, ids, has_proc)
        }
        Ok(pid) => {
            sys::close(theirs);
            match receive(ours) {
                Some(Message::Ready) => {
                    context.place(Own::Control, ours);
                    Ok(pid)
                }
                answer => {
                    sys::close(ours);
                    let status = sys::wait(pid, WALL).map_or(SIGKILL, |(_, status)| status);
                    let mut why = Line::new();
                    let _ = match answer {
                        Some(Message::Refused { step, errno }) => {
                            let name = STEPS.get(step as usize).unwrap_or(&"");
                            write!(why, "{name}: {}", Errno(errno))
                        }
                        _ => {
                            let how = report::Status(status);
                            write!(why, "process {pid} ended while making them: {how}")
                        }
                    };
                    Err(NoNamespaces::Refused(why))
                }
            }
        }
        Err(Errno(EAGAIN)) => Err(NoNamespaces::Fatal(no_more_processes("process"))),
        Err(error) => {
            sys::close(ours);
            sys::close(theirs);
            let mut why = Line::new();
            let _ = write!(why, "clone: {error}");
            Err(NoNamespaces::Refused(why))
        }
    }
}

/// A new P1, with this end of what P0 and it say to each other.
pub fn become_init(context: &mut Context, control: i32, ids: (u64, u64), has_proc: bool) -> ! {
    sys::set_mask(supervise::ALL_SIGNALS);
    init::become_role(init::Role::Init);
    context.place(Own::Control, control);
    context.forget(Own::Keeper);
    context.forget(Own::Starter);
    let _ = sys::prctl(PR_SET_PDEATHSIG, u64::from(SIGKILL));
    // From in here a parent that is gone already looks like any other.
    if sys::is_hung_up(context.fd(Own::Control)) {
        sys::exit_group(0);
    }
    context.namespaces = true;
    if let Err((step, Errno(errno))) = settle(context, ids, has_proc) {
        send(context.fd(Own::Control), Message::Refused { step, errno });
        sys::exit_group(0);
    }
    send(context.fd(Own::Control), Message::Ready);
    init::main(context)
}

/// What is lost in a root without /proc; an error unless that was accepted.
fn without_proc(context: &Context) -> Outcome<()> {
    if context.is_run() || context.options.degraded {
        if !context.is_run() {
            report::say(
                context.name(),
                format_args!(
                    "this root has no /proc: user and group ids show as 65534, and the clocks are this machine's"
                ),
            );
        }
        return Ok(());
    }
    Err(failure!(
        Host,
        "this root has no /proc, so that the job's user and group ids (they show as 65534) and its clocks \
         cannot be given back; --degraded goes on without them"
    ))
}

/// P1's first steps. The number of the step that failed.
fn settle(context: &Context, (uid, gid): (u64, u64), has_proc: bool) -> Result<(), (u32, Errno)> {
    if has_proc {
        let header = context.ops.header();
        let _ = write_file(c"/proc/self/setgroups", b"deny");
        for (path, inside, outside) in [
            (c"/proc/self/uid_map", header.uid, uid),
            (c"/proc/self/gid_map", header.gid, gid),
        ] {
            let mut line = Line::new();
            let _ = write!(line, "{inside} {outside} 1");
            write_file(path, line.bytes()).map_err(|error| (UID_MAP, error))?;
        }
        if let Err(why) = set_clocks(context) {
            // As good as no time namespace, if no clock would go back.
            check_host_clocks(context).map_err(|_| why)?;
        }
    }
    let made_private = sys::mount(c"none", c"/", c"", MS_REC | MS_PRIVATE);
    if let Some(socket) = context.options.confine {
        made_private.map_err(|error| (OWN_ROOT, error))?;
        confine::leave_the_machine(socket).map_err(|error| (OWN_ROOT, error))?;
        count_ids_on(context);
        confine::take_rights().map_err(|error| (NO_RIGHTS, error))?;
    } else if has_proc {
        let flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
        sys::mount(c"proc", c"/proc", c"proc", flags).map_err(|error| (MOUNT_PROC, error))?;
        count_ids_on(context);
    }
    Ok(())
}

/// Lets the namespace give ids behind those of the image, or behind a number by chance, where a kernel can
/// (CONFIG_CHECKPOINT_RESTORE, kernel/pid_namespace.c).
///
/// Programs call files by their process's id (`$$`) and keep ids to know others by them: jobs that begin at 2, all of
/// them, would come into each other's way.
fn count_ids_on(context: &Context) {
    /// Where first ids are: in reach of a machine with the least usual pid_max (32768), with room for others behind them.
    const FIRST: (u64, u64) = (4_000, 28_000);
    let last = match context.is_run() {
        true => {
            let mut bytes = [0; 8];
            // Without chance, a moment in nanoseconds is all but as good.
            if sys::random(&mut bytes).is_err() {
                bytes = (sys::clock(CLOCK_BOOTTIME) as u64).to_le_bytes();
            }
            FIRST.0 + u64::from_le_bytes(bytes) % (FIRST.1 - FIRST.0)
        }
        false => {
            let streams = (1..context.ops.header().streams).filter_map(|at| context.ops.stream(at));
            streams.map(|entry| entry.id).max().unwrap_or(0)
        }
    };
    let mut line = Line::new();
    let _ = write!(line, "{last}");
    let _ = write_file(c"/proc/sys/kernel/ns_last_pid", line.bytes());
}

fn write_file(path: &CStr, bytes: &[u8]) -> SysResult<()> {
    let fd = sys::open(path, O_WRONLY)?;
    let result = sys::write(fd, bytes);
    sys::close(fd);
    result.map(|_| ())
}

/// Children from now on see the clocks go on from the values of the image.
fn set_clocks(context: &Context) -> Result<(), (u32, Errno)> {
    let header = context.ops.header();
    if header.monotonic_ns == 0 && header.boottime_ns == 0 {
        return Ok(());
    }
    sys::unshare(CLONE_NEWTIME).map_err(|error| (TIME_NAMESPACE, error))?;
    let fail = |error| (CLOCK_OFFSETS, error);
    let path = c"/proc/self/timens_offsets";
    let mut text = [0u8; 256];
    let fd = sys::open(path, O_RDONLY).map_err(fail)?;
    let found = sys::pread_full(fd, &mut text, 0);
    sys::close(fd);
    let text = &text[..found.map_err(fail)?];
    let mut line = Line::new();
    // Offsets count from the machine's clocks, ours may be under an offset already.
    let ours = offset_of(text, "monotonic");
    let here = Reading {
        monotonic: sys::clock(CLOCK_MONOTONIC) - ours,
        raw: sys::clock(CLOCK_MONOTONIC_RAW) - ours,
        boottime: sys::clock(CLOCK_BOOTTIME) - offset_of(text, "boottime"),
    };
    let coarse = sys::clock(CLOCK_MONOTONIC_COARSE) - ours;
    let (monotonic, boottime) = here.offsets_for(
        coarse,
        &Reading {
            monotonic: header.monotonic_ns.into(),
            raw: header.monotonic_raw_ns.into(),
            boottime: header.boottime_ns.into(),
        },
    );
    for (name, offset) in [("monotonic", monotonic), ("boottime", boottime)] {
        let (seconds, rest) = (
            offset.div_euclid(1_000_000_000),
            offset.rem_euclid(1_000_000_000),
        );
        let _ = writeln!(line, "{name} {seconds} {rest}");
    }
    write_file(path, line.bytes()).map_err(fail)
}

/// The offset of a clock in the text of `timens_offsets`, nanoseconds.
fn offset_of(text: &[u8], name: &str) -> i128 {
    let text = core::str::from_utf8(text).unwrap_or("");
    let line = text
        .lines()
        .find(|line| line.starts_with(name))
        .unwrap_or("");
    let mut numbers = line.split_ascii_whitespace().skip(1);
    let mut number = || {
        numbers
            .next()
            .and_then(|word| word.parse::<i64>().ok())
            .unwrap_or(0)
    };
    i128::from(number()) * 1_000_000_000 + i128::from(number())
}

/// Without namespaces the clocks are the machine's: never back, unless accepted.
pub fn check_host_clocks(context: &Context) -> Outcome<()> {
    let header = context.ops.header();
    for (name, clock, wanted) in [
        ("CLOCK_MONOTONIC", CLOCK_MONOTONIC, header.monotonic_ns),
        ("CLOCK_BOOTTIME", CLOCK_BOOTTIME, header.boottime_ns),
    ] {
        let behind = i128::from(wanted) - sys::clock(clock);
        if wanted == 0 || behind <= 0 {
            continue;
        }
        let seconds = behind / 1_000_000_000;
        if !context.options.degraded {
            return Err(failure!(
                Host,
                "{name} of this machine is {seconds} s behind the job's and cannot be set without a time \
                 namespace; --degraded lets it jump back"
            ));
        }
        report::say(
            context.name(),
            format_args!("{name} jumps back by {seconds} s"),
        );
    }
    Ok(())
}
