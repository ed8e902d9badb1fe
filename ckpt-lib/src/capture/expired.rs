//! Timers that expire while they are read: they go on while the job stands still.
//!
//! ```text
//! pending signals, once -> timers, by calls inside the job -> pending signals again, which count
//! ```
//! A signal that is there only the second time belongs to a timer that was read as armed yet: with both, it would come
//! twice. Read the other way round, it would be lost.
//!
//! ITIMER_REAL goes on only when its signal is taken: until then it is read as not armed, but with its interval. A process that is
//! made anew has nothing that would go on, so it is armed with that.

use super::CaptureError;
use crate::snapshot::Process;
use crate::tracee::StoppedProcess;

const SI_TIMER: i32 = -2;
const SI_KERNEL: i32 = 0x80;
/// Which interval timer (setitimer(2)) sends which signal.
const INTERVAL_SIGNALS: [i32; 3] = [libc::SIGALRM, libc::SIGVTALRM, libc::SIGPROF];

/// Signals pending for the whole process; `siginfo_t` each.
pub(super) fn of_process(stopped: &StoppedProcess) -> Result<Vec<Vec<u8>>, CaptureError> {
    let Some(first) = stopped.threads.first() else {
        return Ok(vec![]);
    };
    let pending = first
        .process_pending()
        .map_err(|error| CaptureError::Tracee(Box::new(error)))?;
    Ok(pending.iter().map(|info| info.to_vec()).collect())
}

/// All signals that are pending for a process and its threads; `siginfo_t` each.
pub(super) fn pending(process: &Process) -> Vec<Vec<u8>> {
    let threads = process.threads.iter().flat_map(|thread| &thread.pending);
    process.pending.iter().chain(threads).cloned().collect()
}

/// Takes what has expired since the signals in `before` were read for expired.
pub(super) fn settle(process: &mut Process, before: &[Vec<u8>]) {
    let mut new = pending(process);
    for old in before {
        if let Some(at) = new.iter().position(|info| same_signal(info, old)) {
            new.swap_remove(at);
        }
    }
    for info in &new {
        let (signal, code) = (word(info, 0), word(info, 8));
        if code == SI_TIMER {
            let id = word(info, 16);
            let timers = process.posix_timers.iter_mut();
            for timer in timers.filter(|timer| timer.id == id && timer.left_ns != 0) {
                timer.left_ns = again(timer.left_ns, timer.interval_ns);
            }
        } else if code == SI_KERNEL
            && let Some(which) = INTERVAL_SIGNALS.iter().position(|one| *one == signal)
        {
            let timer = &mut process.interval_timers[which];
            if timer.value_us != 0 {
                timer.value_us = again(timer.value_us, timer.interval_us);
            }
        }
    }
    // The others keep an interval without being armed, if the program says so.
    let [real, ..] = &mut process.interval_timers;
    if real.value_us == 0 {
        real.value_us = real.interval_us;
    }
}

/// Time to the next expiration of a timer that was read `left` before one.
fn again(left: u64, interval: u64) -> u64 {
    match interval {
        0 => 0,
        interval => left.saturating_add(interval),
    }
}

/// The same signal of the same sender or timer; how often a timer has overrun may have changed.
fn same_signal(one: &[u8], other: &[u8]) -> bool {
    let of_timer = word(one, 8) == SI_TIMER;
    [0, 8, 16]
        .into_iter()
        .all(|at| word(one, at) == word(other, at))
        && (of_timer || one == other)
}

/// A word of a `siginfo_t`: the signal at 0, its code at 8, who sent it or which timer at 16.
fn word(info: &[u8], at: usize) -> i32 {
    let bytes = info
        .get(at..)
        .and_then(|rest| rest.first_chunk::<4>())
        .copied();
    i32::from_le_bytes(bytes.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{IntervalTimer, PosixTimer};

    fn info(signal: i32, code: i32, id: i32, overrun: i32) -> Vec<u8> {
        let mut bytes = vec![0; 128];
        for (at, word) in [(0, signal), (8, code), (16, id), (20, overrun)] {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn process() -> Process {
        let timer = |id, interval_ns| PosixTimer {
            id,
            left_ns: 7,
            interval_ns,
            ..PosixTimer::default()
        };
        Process {
            posix_timers: vec![timer(0, 0), timer(1, 100), timer(2, 0)],
            interval_timers: [IntervalTimer {
                value_us: 3,
                interval_us: 50,
            }; 3],
            ..Process::default()
        }
    }

    fn left(process: &Process) -> [u64; 3] {
        [0, 1, 2].map(|at| process.posix_timers[at].left_ns)
    }

    #[test]
    fn what_expired_meanwhile_does_so_once() {
        let mut process = process();
        let before = [info(35, SI_TIMER, 2, 0), info(libc::SIGUSR1, 0, 99, 0)];
        process.pending = before.to_vec();
        process.pending.push(info(35, SI_TIMER, 0, 0));
        process.pending.push(info(35, SI_TIMER, 1, 0));
        process.pending.push(info(libc::SIGALRM, SI_KERNEL, 0, 0));
        settle(&mut process, &before);
        // The third had expired before, and was armed again since.
        assert_eq!(left(&process), [0, 107, 7]);
        let values = process.interval_timers.map(|timer| timer.value_us);
        assert_eq!(values, [53, 3, 3]);
    }

    #[test]
    fn what_was_there_before_changes_nothing() {
        let mut process = process();
        let before = [
            info(35, SI_TIMER, 1, 2),
            info(libc::SIGALRM, SI_KERNEL, 0, 0),
        ];
        process.pending = vec![
            info(35, SI_TIMER, 1, 9),
            info(libc::SIGALRM, SI_KERNEL, 0, 0),
        ];
        settle(&mut process, &before);
        assert_eq!(left(&process), [7, 7, 7]);
        assert_eq!(process.interval_timers[0].value_us, 3);
    }

    #[test]
    fn a_timer_whose_signal_waits_goes_on() {
        let mut process = process();
        let never = IntervalTimer::default();
        let waits = IntervalTimer {
            value_us: 0,
            ..process.interval_timers[0]
        };
        process.interval_timers = [waits, waits, never];
        process.pending = vec![info(libc::SIGALRM, SI_KERNEL, 0, 0)];
        let before = process.pending.clone();
        settle(&mut process, &before);
        let values = process.interval_timers.map(|timer| timer.value_us);
        assert_eq!(values, [50, 0, 0], "ITIMER_VIRTUAL is not armed");
    }
}
