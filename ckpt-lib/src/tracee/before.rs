//! What is seen of a thread before it is stopped, and how long it had been asleep (ADR 0004).
//!
//! A stop wakes a sleeping thread, so the moment it fell asleep must be read before: the scheduler's
//! `se.exec_start` of `/proc/PID/task/TID/sched`, right before the thread is asked to stop, and then its state: one that
//! is runnable has waited for a CPU since, or was at a stop of another tracer, and has not slept. The number of times it
//! gave its CPU up is compared afterwards: so it is known to be the sleep that the stop has ended, not one before. That
//! the CPU was taken from it, on its way from the sleep to the stop, does not count.
//!
//! The scheduler has a clock for each CPU (`rq_clock_task`), which stands still while a hypervisor has taken the CPU away: they
//! differ by all that was ever taken from each. So it is held against our own on the CPU where the thread sleeps,
//! measured after it fell asleep: what is taken meanwhile can only make the sleep seem shorter, never longer. All threads are looked at, then
//! the clocks are measured, then the threads are stopped; that of one that has fallen asleep in between is measured again when all stand still.

use super::HostTid;
use crate::filters::Filters;
use crate::sys::{affinity, ptrace};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// What was seen of a thread before it was stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BeforeStop {
    /// How long it had been asleep in a call with a time-out when it was stopped; none if it was in
    /// no such call, or the kernel does not tell.
    pub asleep_ns: Option<u64>,
    /// The same, but when it had been asked to stop: a call whose time was over by then had ended before.
    pub asleep_when_asked_ns: Option<u64>,
    /// When it was started, clock ticks after boot, if it was in such a call.
    pub started_ticks: Option<u64>,
    /// The kernel function it slept in (`/proc/PID/task/TID/wchan`); empty if not to be had.
    pub wchan: String,
    /// The call it was in, with its arguments (`/proc/PID/task/TID/syscall`).
    pub syscall: Option<(i64, [u64; 6])>,
    /// Its seccomp filters, if they could be read.
    pub filters: Option<Filters>,
}

/// A thread as seen before the stop, with what is needed to finish the account after it.
#[derive(Debug, Default)]
pub(super) struct Glimpse {
    before: BeforeStop,
    /// The scheduler's account of a thread in a call with a time-out.
    account: Option<Account>,
}

#[derive(Debug)]
struct Account {
    thread: (i32, HostTid),
    sched: File,
    /// The sleep that it was in before the clocks were measured.
    first: Option<Sleep>,
    /// The sleep that it was in when it was looked at last.
    last: Option<Sleep>,
    /// CLOCK_MONOTONIC when it had been asked to stop.
    asked_at_ns: u64,
}

/// A sleep as the scheduler accounts for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sleep {
    /// On which CPU.
    cpu: usize,
    /// When it began, by the clock of that CPU.
    since_ns: u64,
    /// How often the thread had given its CPU up by then.
    yields: u64,
}

impl Account {
    fn read(&self) -> Option<(u64, u64)> {
        let mut bytes = vec![0; 8192];
        let len = self.sched.read_at(&mut bytes, 0).ok()?;
        parse_sched(std::str::from_utf8(&bytes[..len]).ok()?)
    }

    /// The sleep it is in now (S, D), also if it is stopped in it by job control (T).
    fn sleep(&self) -> Option<Sleep> {
        let (since_ns, yields) = self.read()?;
        let stat = read_task(self.thread.0, self.thread.1, "stat");
        let sleep = Sleep {
            cpu: parse_cpu(&stat)?,
            since_ns,
            yields,
        };
        matches!(parse_state(&stat), Some(b'S' | b'D' | b'T')).then_some(sleep)
    }
}

fn read_task(pid: i32, tid: HostTid, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{}/{name}", tid.0));
    text.unwrap_or_default().trim_end().to_owned()
}

/// The clocks of the scheduler, as they were held against CLOCK_MONOTONIC.
#[derive(Debug, Default)]
pub(super) struct SchedulerClocks {
    measured: BTreeMap<usize, Option<Measured>>,
}

/// One clock of the scheduler held against CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug)]
struct Measured {
    /// From the scheduler's time to CLOCK_MONOTONIC.
    offset: i128,
    /// All threads stood still.
    all_stopped: bool,
}

impl Measured {
    fn moment(&self, since_ns: u64) -> u64 {
        u64::try_from(i128::from(since_ns) + self.offset).unwrap_or(u64::MAX)
    }
}

impl Glimpse {
    /// Looks at a running thread.
    pub(super) fn of(pid: i32, tid: HostTid) -> Self {
        let file = |name: &str| read_task(pid, tid, name);
        let mut glimpse = Glimpse::default();
        glimpse.before.filters = parse_filters(&file("status"));
        glimpse.before.syscall = parse_syscall(&file("syscall"));
        let Some((nr, _)) = glimpse.before.syscall else {
            return glimpse;
        };
        glimpse.before.wchan = file("wchan");
        if TIMED.contains(&nr) {
            let stat = file("stat");
            glimpse.before.started_ticks = parse_start(&stat);
            let sched = File::open(format!("/proc/{pid}/task/{}/sched", tid.0));
            glimpse.account = sched.ok().map(|sched| {
                let mut account = Account {
                    thread: (pid, tid),
                    sched,
                    first: None,
                    last: None,
                    asked_at_ns: 0,
                };
                account.first = account.sleep();
                account
            });
        }
        glimpse
    }

    /// The CPU where it sleeps.
    fn cpu(&self) -> Option<usize> {
        Some(self.account.as_ref()?.first?.cpu)
    }

    /// Looks again, right before the thread is asked to stop.
    pub(super) fn refresh(&mut self) {
        if let Some(account) = &mut self.account {
            account.last = account.sleep();
            // It was on its way into the call when it was looked at first.
            if matches!(self.before.wchan.as_str(), "" | "0") {
                self.before.wchan = read_task(account.thread.0, account.thread.1, "wchan");
            }
        }
    }

    /// The thread has been asked to stop.
    pub(super) fn asked(&mut self) {
        if let Some(account) = &mut self.account {
            account.asked_at_ns = ptrace::monotonic_ns();
        }
    }

    /// Finishes the account now that the thread has stopped, at `stopped_at_ns`.
    pub(super) fn finish(self, stopped_at_ns: u64, clocks: &mut SchedulerClocks) -> BeforeStop {
        let mut before = self.before;
        let Some((account, sleep)) = self.account.and_then(|account| {
            let sleep = account.last?;
            Some((account, sleep))
        }) else {
            return before;
        };
        // Woken by the stop, it gave its CPU up once. More: it was in another call by then.
        let same_sleep = account
            .read()
            .is_some_and(|(_, now)| now <= sleep.yields + 1);
        let was_asleep = account.first == Some(sleep);
        let began = clocks.moment(sleep.cpu, sleep.since_ns, was_asleep);
        let until = |moment_ns: u64| {
            began.map(|began| match same_sleep {
                true => moment_ns.saturating_sub(began),
                false => 0,
            })
        };
        before.asleep_ns = until(stopped_at_ns);
        before.asleep_when_asked_ns = until(account.asked_at_ns);
        before
    }
}

/// Calls whose remaining time is not written back by the kernel at a stop, or not always.
const TIMED: [i64; 13] = [
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_poll,
    libc::SYS_futex,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_semtimedop,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_ppoll,
    libc::SYS_restart_syscall,
];

impl SchedulerClocks {
    /// Measures the clocks of the CPUs where threads sleep: before anything stands still, it costs nobody anything.
    pub(super) fn look_at<'a>(&mut self, threads: impl Iterator<Item = &'a Glimpse>) {
        for cpu in threads.filter_map(Glimpse::cpu) {
            self.measured
                .entry(cpu)
                .or_insert_with(|| measure(cpu, false));
        }
    }

    /// When all stand still: the CLOCK_MONOTONIC moment of the one when a thread fell asleep, by the scheduler's clock of this CPU, or a later one;
    /// none if we may not run there, or the kernel does not tell. `was_asleep`: before [`SchedulerClocks::look_at`].
    fn moment(&mut self, cpu: usize, since_ns: u64, was_asleep: bool) -> Option<u64> {
        self.moment_by(cpu, since_ns, was_asleep, |cpu| measure(cpu, true))
    }

    fn moment_by(
        &mut self,
        cpu: usize,
        since_ns: u64,
        was_asleep: bool,
        measure: impl FnOnce(usize) -> Option<Measured>,
    ) -> Option<u64> {
        match self.measured.get(&cpu) {
            Some(Some(known)) if was_asleep || known.all_stopped => {}
            Some(None) => {}
            // What was taken from the CPU since would be missing.
            _ => {
                self.measured.insert(cpu, measure(cpu));
            }
        }
        let known = (*self.measured.get(&cpu)?)?;
        Some(known.moment(since_ns))
    }
}

/// Holds the scheduler's clock of a CPU against CLOCK_MONOTONIC, on that CPU.
fn measure(cpu: usize, all_stopped: bool) -> Option<Measured> {
    let measured = affinity::on_cpu(cpu, || {
        let text = fs::read_to_string("/proc/thread-self/sched").ok()?;
        let now = ptrace::monotonic_ns();
        let offset = i128::from(now) - i128::from(parse_sched(&text)?.0);
        Some(Measured {
            offset,
            all_stopped,
        })
    });
    measured.flatten()
}

/// `se.exec_start` in nanoseconds and `nr_voluntary_switches`.
fn parse_sched(text: &str) -> Option<(u64, u64)> {
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.rsplit_once(':')?.1.trim())
    };
    let (whole, part) = field("se.exec_start")?.split_once('.')?;
    let part = format!("{part:0<6}");
    let start: u64 = whole.parse().ok()?;
    let nanos: u64 = part.get(..6)?.parse().ok()?;
    let start_ns = start.checked_mul(1_000_000)?.checked_add(nanos)?;
    Some((start_ns, field("nr_voluntary_switches")?.parse().ok()?))
}

/// Its state: field 3 of `stat`.
fn parse_state(text: &str) -> Option<u8> {
    text.rsplit_once(')')?.1.trim_start().bytes().next()
}

/// The CPU it ran on last: field 39 of `stat`.
fn parse_cpu(text: &str) -> Option<usize> {
    let behind_name = text.rsplit_once(')')?.1;
    behind_name.split_whitespace().nth(36)?.parse().ok()
}

/// When it was started: field 22 of `stat`.
fn parse_start(text: &str) -> Option<u64> {
    let behind_name = text.rsplit_once(')')?.1;
    behind_name.split_whitespace().nth(19)?.parse().ok()
}

/// `nr arg0 ... arg5 sp pc`; "running" and "-1 sp pc" are no calls.
fn parse_syscall(text: &str) -> Option<(i64, [u64; 6])> {
    let mut words = text.split_whitespace();
    let nr: i64 = words.next()?.parse().ok().filter(|nr| *nr >= 0)?;
    let mut args = [0; 6];
    for arg in &mut args {
        *arg = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some((nr, args))
}

fn parse_filters(text: &str) -> Option<Filters> {
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line[name.len()..].trim().parse::<u32>().ok()
    };
    Some(Filters {
        mode: field("Seccomp:")?,
        count: field("Seccomp_filters:").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheduler_file_is_read() {
        let text = "sleep (5, #threads: 1)\n---\n\
            se.exec_start                                :       4183.015462\n\
            se.vruntime                                  :          0.1\n\
            nr_switches                                  :                    9\n\
            nr_voluntary_switches                        :                    7\n\
            nr_involuntary_switches                      :                    2\n";
        assert_eq!(parse_sched(text), Some((4_183_015_462, 7)));
        assert_eq!(parse_sched("se.exec_start : x"), None);
        let own = fs::read_to_string("/proc/thread-self/stat").expect("stat");
        assert!(parse_cpu(&own).is_some());
        assert!(parse_start(&own).is_some_and(|ticks| ticks > 0));
        assert_eq!(parse_state(&own), Some(b'R'));
        assert_eq!(parse_state("7 (a) S b) t 1 2"), Some(b't'));
    }

    #[test]
    fn calls_are_told_from_running() {
        assert_eq!(parse_syscall("running\n"), None);
        assert_eq!(parse_syscall("-1 0x7ffc 0x7f00\n"), None);
        let line = "230 0x0 0x0 0x7ffd 0x7ffd 0x0 0x1 0x7ff 0x7f0\n";
        assert_eq!(
            parse_syscall(line),
            Some((230, [0, 0, 0x7ffd, 0x7ffd, 0, 1]))
        );
    }

    #[test]
    fn the_clock_of_a_cpu_is_found() {
        let mut clocks = SchedulerClocks::default();
        let cpu = parse_cpu(&fs::read_to_string("/proc/thread-self/stat").expect("stat"));
        // A kernel without CONFIG_SCHED_DEBUG has no such file.
        if fs::exists("/proc/thread-self/sched").expect("exists") {
            assert!(clocks.moment(cpu.expect("cpu"), 0, false).is_some());
        }
    }

    #[test]
    fn a_clock_is_measured_after_the_sleep_has_begun() {
        let mut clocks = SchedulerClocks::default();
        let measured = |offset, all_stopped| {
            move |_| {
                Some(Measured {
                    offset,
                    all_stopped,
                })
            }
        };
        let unknown = |_| None;
        // As `look_at` does.
        clocks.measured.insert(1, measured(100, false)(1));
        let known = |_| panic!("known");
        assert_eq!(clocks.moment_by(1, 50, true, known), Some(150));
        // The CPU was taken away for 30, and then the thread fell asleep, however soon.
        let after = measured(130, true);
        assert_eq!(clocks.moment_by(1, 51, false, after), Some(181));
        // All others of that CPU slept before that.
        for was_asleep in [false, true] {
            assert_eq!(clocks.moment_by(1, 52, was_asleep, known), Some(182));
        }
        assert_eq!(clocks.moment_by(2, 50, true, measured(7, true)), Some(57));
        assert_eq!(clocks.moment_by(3, 50, false, unknown), None);
        let had = |_| panic!("not to be had");
        assert_eq!(clocks.moment_by(3, 50, false, had), None);
    }
}
