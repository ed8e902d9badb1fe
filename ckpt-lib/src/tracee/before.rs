//! What is seen of a thread before it is stopped, and how long it had been asleep (ADR 0004).
//!
//! A stop wakes a sleeping thread, so the moment it fell asleep must be read before: the scheduler's
//! `se.exec_start` of `/proc/PID/task/TID/sched`, right before the thread is asked to stop, and then its state: one that
//! is runnable has waited for a CPU since, or was at a stop of another tracer, and has not slept. The number of times it
//! gave its CPU up is compared afterwards: so it is known to be the sleep that it was in last. That
//! the CPU was taken from it, on its way from the sleep to the stop, does not count.
//!
//! Was it the stop that ended this sleep? A thread that woke by itself between the look and the stop may be in its next call
//! by then, without having slept there. When it began to run is known: when it gave its CPU up again, less what it ran in
//! between (`se.sum_exec_runtime`). Only who began after we had set about asking it was woken by the stop: asking takes
//! less than the way out of one call and into another. If it took longer, which is when our CPU was taken from us, nobody knows:
//! where all CPUs of a machine are taken at once, all time-outs of that while are over when they come back.
//!
//! The scheduler has a clock for each CPU (`rq_clock_task`), which stands still while a hypervisor has taken the CPU away: they
//! differ by all that was ever taken from each. So it is held against our own on the CPU where the thread sleeps,
//! measured after it fell asleep: what is taken meanwhile can only make the sleep seem shorter, never longer. For the same
//! reason a moment by a clock that was measured before it was not later than it seems. All threads are looked at, then
//! the clocks are measured, then the threads are stopped; that of one that has fallen asleep in between is measured again when all stand still.
//!
//! Of a thread that was moved to another CPU while it slept, which happens while the scheduler still holds its lag against it
//! (kernel/sched/fair.c, `DELAY_DEQUEUE`), `se.exec_start` is 0. What is left is when its load was last brought up to date
//! (`se.avg.last_update_time`), which is when the lag was forgiven: some milliseconds after it fell asleep. The clock of that (`cfs_rq_clock_pelt`) is
//! another for each cgroup too, since it stands still while one is throttled: it is held against ours if we are in the same one. On a CPU that runs
//! slower than it can it goes slower, and makes up for that when the CPU is idle, unless it was busy for long (kernel/sched/pelt.h): the sleep is taken to be
//! as much shorter as it may seem too long by that.

use super::HostTid;
use crate::filters::Filters;
use crate::sys::{affinity, cpu, ptrace};
use nix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// What was seen of a thread before it was stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BeforeStop {
    /// How long it had been asleep in a call with a time-out when it was stopped; none if it was in
    /// no such call, or the kernel does not tell.
    pub asleep_ns: Option<u64>,
    /// It is known that the stop has ended that sleep: else it may have been in another call before, and slept there.
    pub woken_by_stop: bool,
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
    /// CLOCK_MONOTONIC when it was about to be asked to stop.
    asked_at_ns: u64,
    /// Asking took no longer than [`ASKED_WITHIN_NS`].
    asked_at_once: bool,
}

/// A sleep as the scheduler accounts for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sleep {
    /// On which CPU.
    cpu: usize,
    /// What the scheduler said of the thread.
    told: Told,
}

impl Sleep {
    /// Whether both are looks at one sleep, by what tells when it began.
    fn is(&self, other: &Sleep) -> bool {
        let mut other = *other;
        if self.told.since_ns.is_some() {
            other.told.load_ns = self.told.load_ns;
        }
        *self == other
    }
}

/// What the scheduler says of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    /// When it ran last, by the clock of its CPU: `se.exec_start`; none if it was moved to another while it slept.
    since_ns: Option<u64>,
    /// When its load was last brought up to date, by another clock of its CPU: `se.avg.last_update_time`.
    load_ns: Option<u64>,
    /// For how long it has run: `se.sum_exec_runtime`.
    ran_ns: u64,
    /// How often another took its CPU: `nr_switches`.
    switches: u64,
    /// How often it gave it up by itself: `nr_voluntary_switches`.
    yields: u64,
}

impl Account {
    fn read(&self) -> Option<Told> {
        let mut bytes = vec![0; 8192];
        let len = self.sched.read_at(&mut bytes, 0).ok()?;
        parse_sched(std::str::from_utf8(&bytes[..len]).ok()?)
    }

    /// The sleep it is in now (S, D), also if it is stopped in it by job control (T).
    fn sleep(&self) -> Option<Sleep> {
        let told = self.read()?;
        let stat = self.stat();
        let sleep = Sleep {
            cpu: parse_cpu(&stat)?,
            told,
        };
        matches!(parse_state(&stat), Some(b'S' | b'D' | b'T')).then_some(sleep)
    }

    /// When it fell asleep, as far as can be told.
    fn since(&self, told: &Told) -> Option<Since> {
        let by_load =
            |ns| is_in_our_cgroups(self.thread.0, self.thread.1).then_some(Since::Load(ns));
        let ran = told.since_ns.map(Since::Ran);
        ran.or_else(|| told.load_ns.and_then(by_load))
    }

    fn stat(&self) -> String {
        read_task(self.thread.0, self.thread.1, "stat")
    }

    /// Whether a thread that has stopped now is known to have gone on from this sleep because it was asked to stop.
    fn woken_by_stop(&self, sleep: &Sleep, now: &Told, clocks: &SchedulerClocks) -> bool {
        // More: somebody else ran in between, and it is not known when it began.
        if !self.asked_at_once || now.switches != sleep.told.switches + 1 {
            return false;
        }
        let Some(since_ns) = now.since_ns else {
            return false;
        };
        let ran_ns = now.ran_ns.saturating_sub(sleep.told.ran_ns);
        let began_ns = since_ns.saturating_sub(ran_ns);
        // It may have been woken on another CPU than it slept on.
        let earliest = parse_cpu(&self.stat()).and_then(|cpu| clocks.earliest(cpu, began_ns));
        earliest.is_some_and(|earliest| earliest >= self.asked_at_ns)
    }
}

/// Whether a thread is in the cgroups that we are in.
fn is_in_our_cgroups(pid: i32, tid: HostTid) -> bool {
    let ours = fs::read_to_string("/proc/thread-self/cgroup").unwrap_or_default();
    ours.trim_end() == read_task(pid, tid, "cgroup")
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
    /// From the scheduler's time to CLOCK_MONOTONIC, at most.
    offset: i128,
    /// The same of the time of loads, in our cgroups.
    load_offset: Option<i128>,
    /// By how much that may seem too early, at most.
    load_ahead_ns: u64,
    /// The same, at least, for moments after the first measurement; none if threads had been asked to stop by then.
    least_offset: Option<i128>,
    /// All threads stood still.
    all_stopped: bool,
}

/// When a thread fell asleep, at the latest, by a clock of the scheduler, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    /// It ran last.
    Ran(u64),
    /// Its load was brought up to date.
    Load(u64),
}

/// What the clock of loads may make up for at once, where the kernel knows how fast a CPU runs (APERF and MPERF, arch/x86/kernel/cpu/aperfmperf.c): one
/// at half its speed that is busy for 345 periods of 1024 µs, after which it counts as busy for long, is 353 ms behind.
const LOAD_AHEAD_NS: u64 = 500_000_000;

impl Measured {
    fn moment(&self, since: Since) -> Option<u64> {
        match since {
            Since::Ran(ns) => Some(shifted(ns, self.offset)),
            Since::Load(ns) => {
                Some(shifted(ns, self.load_offset?).saturating_add(self.load_ahead_ns))
            }
        }
    }
}

fn shifted(ns: u64, offset: i128) -> u64 {
    u64::try_from(i128::from(ns) + offset).unwrap_or(u64::MAX)
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
                    asked_at_once: false,
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
            account.asked_at_ns = ptrace::monotonic_ns();
        }
    }

    /// It has been asked to stop.
    pub(super) fn asked(&mut self) {
        if let Some(account) = &mut self.account {
            let took_ns = ptrace::monotonic_ns().saturating_sub(account.asked_at_ns);
            account.asked_at_once = took_ns <= ASKED_WITHIN_NS;
        }
    }

    /// What is known now that the thread has stopped, at `stopped_at_ns`.
    pub(super) fn finished(&self, stopped_at_ns: u64, clocks: &mut SchedulerClocks) -> BeforeStop {
        let mut before = self.before.clone();
        let Some((account, sleep)) = self.account.as_ref().and_then(|account| {
            let sleep = account.last?;
            Some((account, sleep))
        }) else {
            return before;
        };
        // Woken by the stop, it gave its CPU up once. More: it was in another call by then.
        let now = account.read();
        let now = now.filter(|now| now.yields <= sleep.told.yields + 1);
        let was_asleep = account.first.is_some_and(|first| first.is(&sleep));
        let since = account.since(&sleep.told);
        let began = since.and_then(|since| clocks.moment(sleep.cpu, since, was_asleep));
        before.asleep_ns = began.map(|began| match now {
            Some(_) => stopped_at_ns.saturating_sub(began),
            None => 0,
        });
        before.woken_by_stop = now.is_some_and(|now| account.woken_by_stop(&sleep, &now, clocks));
        before
    }
}

/// Longer than asking takes, which is mostly to wake a CPU (2 to 10 µs here, 99 of 100 times at most 11); the thread is told at the beginning of that.
/// Who is held up for as long as a thread takes out of one call and into another may have told one that was in the next already.
const ASKED_WITHIN_NS: u64 = 12_000;

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
    fn moment(&mut self, cpu: usize, since: Since, was_asleep: bool) -> Option<u64> {
        self.moment_by(cpu, since, was_asleep, |cpu| measure(cpu, true))
    }

    /// The earliest CLOCK_MONOTONIC moment that can be this one by the scheduler's clock of this CPU, if it came after
    /// [`SchedulerClocks::look_at`]; none if that did not look at this CPU.
    fn earliest(&self, cpu: usize, moment_ns: u64) -> Option<u64> {
        let least_offset = (*self.measured.get(&cpu)?)?.least_offset?;
        Some(shifted(moment_ns, least_offset))
    }

    fn moment_by(
        &mut self,
        cpu: usize,
        since: Since,
        was_asleep: bool,
        measure: impl FnOnce(usize) -> Option<Measured>,
    ) -> Option<u64> {
        match self.measured.get(&cpu) {
            Some(Some(known)) if was_asleep || known.all_stopped => {}
            Some(None) => {}
            // What was taken from the CPU since would be missing.
            known => {
                let least_offset = known
                    .copied()
                    .flatten()
                    .and_then(|known| known.least_offset);
                let now = measure(cpu).map(|now| Measured {
                    least_offset,
                    ..now
                });
                self.measured.insert(cpu, now);
            }
        }
        let known = (*self.measured.get(&cpu)?)?;
        known.moment(since)
    }
}

/// Holds the scheduler's clock of a CPU against CLOCK_MONOTONIC, on that CPU.
fn measure(cpu: usize, all_stopped: bool) -> Option<Measured> {
    let measured = affinity::on_cpu(cpu, || {
        let before = i128::from(ptrace::monotonic_ns());
        // Asked how long we have run, the scheduler brings its account up to date (kernel/sched/core.c, `task_sched_runtime`).
        clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok()?;
        let text = fs::read_to_string("/proc/thread-self/sched").ok()?;
        let after = i128::from(ptrace::monotonic_ns());
        let own = parse_sched(&text)?;
        let told = i128::from(own.since_ns?);
        Some(Measured {
            offset: after - told,
            load_offset: own.load_ns.map(|ns| after - i128::from(ns)),
            load_ahead_ns: if cpu::tells_its_speed() {
                LOAD_AHEAD_NS
            } else {
                0
            },
            least_offset: (!all_stopped).then_some(before - told),
            all_stopped,
        })
    });
    measured.flatten()
}

fn parse_sched(text: &str) -> Option<Told> {
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.rsplit_once(':')?.1.trim())
    };
    // Milliseconds, with six places.
    let nanos = |name: &str| {
        let (whole, part) = field(name)?.split_once('.')?;
        let part: u64 = format!("{part:0<6}").get(..6)?.parse().ok()?;
        let whole: u64 = whole.parse().ok()?;
        whole.checked_mul(1_000_000)?.checked_add(part)
    };
    Some(Told {
        since_ns: Some(nanos("se.exec_start")?).filter(|ns| *ns > 0),
        load_ns: field("se.avg.last_update_time")
            .and_then(|ns| ns.parse().ok())
            .filter(|ns| *ns > 0),
        ran_ns: nanos("se.sum_exec_runtime")?,
        switches: field("nr_switches")?.parse().ok()?,
        yields: field("nr_voluntary_switches")?.parse().ok()?,
    })
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
            se.sum_exec_runtime                          :          0.70309\n\
            se.avg.last_update_time                      :        4183015424\n\
            nr_switches                                  :                    9\n\
            nr_voluntary_switches                        :                    7\n\
            nr_involuntary_switches                      :                    2\n";
        let told = Told {
            since_ns: Some(4_183_015_462),
            load_ns: Some(4_183_015_424),
            ran_ns: 703_090,
            switches: 9,
            yields: 7,
        };
        assert_eq!(parse_sched(text), Some(told));
        assert_eq!(parse_sched("se.exec_start : x"), None);
        let moved = text.replace("4183.015462", "0.000000");
        let moved_told = Told {
            since_ns: None,
            ..told
        };
        assert_eq!(parse_sched(&moved), Some(moved_told));
        // A kernel that does not tell of loads.
        let untold = moved.replace("last_update_time", "other");
        assert_eq!(parse_sched(&untold).map(|told| told.load_ns), Some(None));
        let own = fs::read_to_string("/proc/thread-self/stat").expect("stat");
        assert!(parse_cpu(&own).is_some());
        assert!(parse_start(&own).is_some_and(|ticks| ticks > 0));
        assert_eq!(parse_state(&own), Some(b'R'));
        assert_eq!(parse_state("7 (a) S b) t 1 2"), Some(b't'));
    }

    #[test]
    fn a_sleep_is_known_again_whatever_the_scheduler_does_about_its_load() {
        let sleep = |since_ns, load_ns| Sleep {
            cpu: 1,
            told: Told {
                since_ns,
                load_ns,
                ran_ns: 3,
                switches: 2,
                yields: 1,
            },
        };
        let ran = sleep(Some(7), Some(7));
        assert!(ran.is(&sleep(Some(7), Some(8))));
        assert!(!ran.is(&sleep(Some(8), Some(7))));
        assert!(!ran.is(&sleep(None, Some(7))));
        assert!(sleep(None, Some(7)).is(&sleep(None, Some(7))));
        assert!(!sleep(None, Some(7)).is(&sleep(None, Some(8))));
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
            assert!(
                clocks
                    .moment(cpu.expect("cpu"), Since::Ran(0), false)
                    .is_some()
            );
        }
    }

    #[test]
    fn a_clock_is_measured_after_the_sleep_has_begun() {
        let mut clocks = SchedulerClocks::default();
        let measured = |offset: i128, all_stopped: bool| {
            move |_| {
                Some(Measured {
                    offset,
                    load_offset: Some(offset + 4),
                    load_ahead_ns: 20,
                    least_offset: (!all_stopped).then_some(offset - 3),
                    all_stopped,
                })
            }
        };
        let unknown = |_| None;
        // As `look_at` does.
        clocks.measured.insert(1, measured(100, false)(1));
        let known = |_| panic!("known");
        assert_eq!(clocks.moment_by(1, Since::Ran(50), true, known), Some(150));
        // The CPU was taken away for 30, and then the thread fell asleep, however soon.
        let after = measured(130, true);
        assert_eq!(clocks.moment_by(1, Since::Ran(51), false, after), Some(181));
        // By the other clock, by as much later as that may have jumped.
        let by_load = clocks.moment_by(1, Since::Load(50), true, known);
        assert_eq!(by_load, Some(204));
        // All others of that CPU slept before that.
        for was_asleep in [false, true] {
            assert_eq!(
                clocks.moment_by(1, Since::Ran(52), was_asleep, known),
                Some(182)
            );
        }
        assert_eq!(
            clocks.moment_by(2, Since::Ran(50), true, measured(7, true)),
            Some(57)
        );
        assert_eq!(clocks.moment_by(3, Since::Ran(50), false, unknown), None);
        // What was taken before it was measured again could make a moment before that seem later.
        assert_eq!(clocks.earliest(1, 60), Some(157));
        assert_eq!(clocks.earliest(2, 60), None);
        assert_eq!(clocks.earliest(3, 60), None);
        let had = |_| panic!("not to be had");
        assert_eq!(clocks.moment_by(3, Since::Ran(50), false, had), None);
    }
}
