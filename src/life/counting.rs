//! What is counted over all copies of a job.

use crate::jobs::{Counted, unix_now};
use crate::sys::Usage;
use starter::life::{End, Leave, State};
use std::time::Duration;

/// A record may hold anything.
fn seconds(number: f64) -> Duration {
    Duration::try_from_secs_f64(number).unwrap_or_default()
}

/// What a copy, or all of them, have used of the processor, and moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(super) used: Usage,
    /// Written to files that are served, and images.
    pub(super) sent_bytes: u64,
    /// Read from files that are served.
    pub(super) received_bytes: u64,
}

impl Spent {
    /// How much more this is than it was.
    pub(super) fn since(self, before: Spent) -> Spent {
        Spent {
            used: self.used.since(before.used),
            sent_bytes: self.sent_bytes.saturating_sub(before.sent_bytes),
            received_bytes: self.received_bytes.saturating_sub(before.received_bytes),
        }
    }

    /// This and more.
    pub(super) fn plus(self, more: Spent) -> Spent {
        Spent {
            used: [self.used, more.used].into_iter().sum(),
            sent_bytes: self.sent_bytes.saturating_add(more.sent_bytes),
            received_bytes: self.received_bytes.saturating_add(more.received_bytes),
        }
    }
}

impl Counted {
    /// A copy runs that was being started or restarted.
    pub(super) fn begun(&mut self, state: State) {
        let now = unix_now();
        if self.job_start_date == 0 {
            self.job_start_date = now;
        }
        self.job_current_start_date = now;
        self.num_job_starts = self.num_job_starts.saturating_add(1);
        if state == State::Restarting {
            self.num_restarts = self.num_restarts.saturating_add(1);
        }
    }

    /// It has come into another state.
    pub(super) fn entered(&mut self) {
        self.entered_current_status = unix_now();
    }

    /// It stands still.
    pub(super) fn suspended(&mut self) {
        self.total_suspensions = self.total_suspensions.saturating_add(1);
        self.last_suspension_time = Some(unix_now());
    }

    /// It does no longer, after so long.
    pub(super) fn stood(&mut self, time: Duration) {
        self.cumulative_suspension_time += time.as_secs_f64();
    }

    /// Processes of the job have ended that spent so much.
    pub(super) fn add(&mut self, spent: Spent) {
        self.remote_user_cpu += spent.used.user.as_secs_f64();
        self.remote_sys_cpu += spent.used.system.as_secs_f64();
        self.bytes_sent = self.bytes_sent.saturating_add(spent.sent_bytes);
        self.bytes_recvd = self.bytes_recvd.saturating_add(spent.received_bytes);
    }

    /// What all copies have spent that have ended, and all images.
    pub(super) fn spent(&self) -> Spent {
        Spent {
            used: Usage {
                user: seconds(self.remote_user_cpu),
                system: seconds(self.remote_sys_cpu),
            },
            sent_bytes: self.bytes_sent,
            received_bytes: self.bytes_recvd,
        }
    }

    /// A copy has ended that was there for so long.
    pub(super) fn was_there(&mut self, time: Duration) {
        self.remote_wall_clock_time += time.as_secs_f64();
    }

    /// The starter leaves it so. `why`: what kept the last copy from beginning.
    pub(super) fn left(&mut self, leave: &Leave, why: Option<&str>) {
        self.is_not_held();
        match leave {
            Leave::Completed(end) => {
                let signal = match end {
                    End::Signalled(signal) | End::Interrupted(signal) => Some(*signal),
                    End::Gone => Some(libc::SIGKILL),
                    End::Exited(_) | End::NotBegun(_) => None,
                };
                self.exit_by_signal = Some(signal.is_some());
                self.exit_signal = signal;
                self.exit_code = match end {
                    End::Exited(code) => Some(*code),
                    _ => None,
                };
            }
            Leave::Vacated => self.last_vacate_time = Some(unix_now()),
            Leave::Held(hold) => {
                self.is_held(hold);
                if let Some(why) = why {
                    self.hold_reason = Some(why.to_owned());
                }
                self.last_vacate_time = Some(unix_now());
            }
            Leave::Killed | Leave::NotBegun(_) => {}
        }
    }
}

/// Time since the machine came up, while it slept, too.
pub(super) fn since_boot() -> Duration {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
    now.map(Duration::from).unwrap_or_default()
}
