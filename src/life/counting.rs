//! What is counted over all copies of a job.

use crate::jobs::{Counted, unix_now};
use crate::sys::Usage;
use starter::life::{End, Leave, State};
use std::time::Duration;

/// A record may hold anything.
fn seconds(number: f64) -> Duration {
    Duration::try_from_secs_f64(number).unwrap_or_default()
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

    /// Processes of the job have ended that used so much.
    pub(super) fn add_usage(&mut self, usage: Usage) {
        self.remote_user_cpu += usage.user.as_secs_f64();
        self.remote_sys_cpu += usage.system.as_secs_f64();
    }

    /// Processor time of all copies that have ended.
    pub(super) fn used(&self) -> Usage {
        Usage {
            user: seconds(self.remote_user_cpu),
            system: seconds(self.remote_sys_cpu),
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
