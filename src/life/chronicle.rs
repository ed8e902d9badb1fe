//! What happens to a job, in its event log: `jobs/NAME/events.log`, as HTCondor writes one (starter::events).

use super::counting::Spent;
use crate::jobs::{Counted, Job};
use crate::report::{chain, tell};
use starter::events::{Event, EventLog, JobNumber, Outcome, Traffic, Usages};
use starter::life::{End, Hold, Leave};
use std::cell::Cell;
use std::path::Path;
use std::time::SystemTime;

/// The log's name in a job's directory.
pub(crate) const NAME: &str = "events.log";

/// The log of one job.
#[derive(Debug)]
pub(crate) struct Chronicle {
    log: Option<EventLog>,
    number: JobNumber,
    host: String,
    /// Of a copy that runs it has been said that it does, and not yet that it has left or ended.
    runs: Cell<bool>,
    has_events: bool,
}

impl Chronicle {
    /// Opens it. What cannot be written is told once, and not missed by the job.
    pub(crate) fn open(job: &Job) -> Self {
        let has_events = last_event(&job.dir, job.record.number).is_some();
        let log = match EventLog::open(&job.dir.join(NAME)) {
            Ok(log) => Some(log),
            Err(error) => {
                tell(&format!("no event log: {}", chain(&error)));
                None
            }
        };
        Chronicle {
            log,
            number: JobNumber {
                cluster: job.record.number,
                process: 0,
                subprocess: 0,
            },
            host: job.record.place.host.clone(),
            runs: Cell::new(false),
            has_events,
        }
    }

    fn write(&self, event: &Event) {
        let Some(log) = &self.log else {
            return;
        };
        if let Err(error) = log.append(self.number, SystemTime::now(), event) {
            tracing::error!("{}", chain(&error));
        }
    }

    /// Whether there were some of this job when it was opened.
    pub(super) fn has_events(&self) -> bool {
        self.has_events
    }

    /// Whether it says of a copy that it runs, and no more.
    pub(super) fn runs(&self) -> bool {
        self.runs.get()
    }

    pub(crate) fn submitted(&self) {
        self.write(&Event::Submitted {
            host: self.host.clone(),
            notes: None,
        });
    }

    /// A copy runs, on another machine if that is said.
    pub(crate) fn executing(&self, on: Option<&str>) {
        self.runs.set(true);
        self.write(&Event::Executing {
            host: on.map_or_else(|| self.host.clone(), str::to_owned),
        });
    }

    /// An image was made, and the job goes on.
    pub(crate) fn checkpointed(&self, spent: Spent, image_bytes: u64, sent_bytes: u64) {
        self.write(&Event::ImageSize {
            size_kib: image_bytes >> 10,
            memory_mib: None,
            resident_kib: None,
        });
        self.write(&Event::Checkpointed {
            run: usages(spent),
            sent_bytes,
        });
    }

    pub(crate) fn suspended(&self, processes: usize) {
        let processes = u32::try_from(processes).unwrap_or(u32::MAX);
        self.write(&Event::Suspended { processes });
    }

    pub(crate) fn unsuspended(&self) {
        self.write(&Event::Unsuspended);
    }

    /// A copy is gone, and the job is not over.
    pub(crate) fn evicted(&self, spent: Spent, checkpointed: bool, reason: &str) {
        self.runs.set(false);
        self.write(&Event::Evicted {
            checkpointed,
            run: usages(spent),
            traffic: traffic(spent),
            reason: Some(reason.to_owned()),
            code: None,
        });
    }

    /// The line to the machine where it runs is cut.
    pub(crate) fn disconnected(&self, on: &str) {
        self.write(&Event::Disconnected {
            reason: format!("the line to {on} is cut"),
            name: on.to_owned(),
            host: address(on),
        });
    }

    /// There is another.
    pub(crate) fn reconnected(&self, on: &str) {
        self.write(&Event::Reconnected {
            name: on.to_owned(),
            host: address(on),
            starter: address(on),
        });
    }

    /// There is none, and the copy is given up.
    pub(crate) fn not_reconnected(&self, on: &str) {
        self.runs.set(false);
        self.write(&Event::ReconnectFailed {
            reason: format!("{on} was not reached again"),
            name: on.to_owned(),
        });
    }

    /// The process that kept the copy on that machine, and was its shadow, is gone without a word.
    pub(crate) fn shadow_lost(&self, on: &str, spent: Spent) {
        self.runs.set(false);
        self.write(&Event::ShadowException {
            message: format!("the process that kept the copy on {on} was killed by somebody"),
            traffic: traffic(spent),
        });
    }

    /// An image is not gone on from, and why.
    pub(crate) fn passed_over(&self, text: &str) {
        self.write(&Event::Remark {
            text: format!("image passed over: {text}"),
        });
    }

    pub(crate) fn held(&self, hold: &Hold) {
        self.write(&Event::Held {
            reason: Some(hold.reason.clone()),
            code: hold.code,
        });
    }

    pub(crate) fn released(&self, reason: &str) {
        self.write(&Event::Released {
            reason: Some(reason.to_owned()),
        });
    }

    /// The starter leaves the job so. `spent`: by the last copy, which has left `with_image`.
    pub(crate) fn left(&self, leave: &Leave, counted: &Counted, spent: Spent, with_image: bool) {
        match leave {
            Leave::Completed(end) => self.write(&Event::Terminated {
                outcome: match end {
                    End::Exited(status) | End::NotBegun(status) => Outcome::Exited(*status),
                    End::Signalled(signal) | End::Interrupted(signal) => Outcome::Signaled(*signal),
                    End::Gone => Outcome::Signaled(libc::SIGKILL),
                },
                run: usages(spent),
                total: usages(counted.spent()),
                run_traffic: traffic(spent),
                total_traffic: traffic(counted.spent()),
            }),
            // Of one whose last copy is gone already that has been said.
            Leave::Vacated if !self.runs() => {}
            Leave::Vacated => self.evicted(spent, with_image, "vacated"),
            Leave::Held(hold) => {
                if self.runs() {
                    self.evicted(spent, with_image, "held");
                }
                let reason = counted.hold_reason.as_ref();
                let reason = reason.unwrap_or(&hold.reason).clone();
                let code = hold.code;
                self.held(&Hold { reason, code });
            }
            Leave::Killed => self.write(&Event::Aborted {
                reason: Some("killed by its owner".to_owned()),
            }),
            Leave::NotBegun(_) => {}
        }
    }

    /// Removes that of a job that has not begun.
    pub(crate) fn withdraw(dir: &Path) {
        let _ = std::fs::remove_file(dir.join(NAME));
    }
}

/// What stands where HTCondor has `<ip:port>`: we know the name that ssh knows.
fn address(on: &str) -> String {
    let (_, host) = on.rsplit_once('@').unwrap_or(("", on));
    format!("<{host}:22>")
}

fn usages(spent: Spent) -> Usages {
    let used = spent.used;
    Usages {
        remote: starter::events::Usage {
            user: used.user,
            system: used.system,
        },
        ..Usages::default()
    }
}

fn traffic(spent: Spent) -> Traffic {
    Traffic {
        sent_bytes: spent.sent_bytes,
        received_bytes: spent.received_bytes,
    }
}

/// The number of the last event of the job with this number in a log; none: there is none.
pub(super) fn last_event(dir: &Path, job: u32) -> Option<u32> {
    let text = std::fs::read(dir.join(NAME)).ok()?;
    let text = String::from_utf8_lossy(&text);
    // `005 (008.000.000) date time ...`: no other line begins so.
    let own = format!(" ({job:03}.");
    let heads = text
        .lines()
        .filter(|line| line.get(3..).is_some_and(|rest| rest.starts_with(&own)));
    heads.rev().find_map(|line| line.get(..3)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_event_is_found_by_its_head() {
        let dir = tempfile::tempdir().expect("a folder");
        assert_eq!(last_event(dir.path(), 8), None);
        let text = "000 (008.000.000) 2026-11-27 09:00:00 Job submitted\n...\n\
                    005 (008.000.000) 2026-11-27 09:00:01 Job terminated.\n\
                    \t(1) Normal termination (return value 0)\n...\n";
        std::fs::write(dir.path().join(NAME), text).expect("writes");
        assert_eq!(last_event(dir.path(), 8), Some(5));
        // Of an earlier job of the same name.
        assert_eq!(last_event(dir.path(), 9), None);
        assert_eq!(last_event(dir.path(), 80), None);
    }
}
