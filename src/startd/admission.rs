//! Jobs that come in are what the owner's configuration makes of them (`JOB_TRANSFORM_…`), if it lets them in (`SUBMIT_REQUIREMENT_…`), whoever
//! has handed them in and however.
//!
//! ```text
//! spool/NAME.job ──transforms──> requirements ──met──> the queue
//!                                       `──refused──> who hands it in is told; of a job that was there before us: Held
//! ```
//! # What callers may rely on
//! It is done once with each job: `startd.json` says with which.

use super::Startd;
use super::queue::{self, Entry};
use crate::verbs::policy::{judged_by, with_owner};
use crate::verbs::startd::write_whole;
use classad::ClassAd;
use classad::config::Verdict;
use tracing::{info, warn};

impl Startd<'_> {
    /// Lets a job in, as the configuration wants it.
    ///
    /// # Errors
    /// Why it is refused.
    pub(super) fn admit(&mut self, name: &str) -> Result<(), String> {
        let Some(entry) = self.queue.entries.get(name) else {
            return Ok(());
        };
        if entry.is_admitted {
            return Ok(());
        }
        let said = |list| {
            self.config
                .get(list)
                .is_some_and(|names| !names.trim().is_empty())
        };
        const ASKED: [&str; 5] = [
            "JOB_TRANSFORM_NAMES",
            "SUBMIT_REQUIREMENT_NAMES",
            "JOB_DEFAULT_REQUESTCPUS",
            "JOB_DEFAULT_REQUESTMEMORY",
            "JOB_DEFAULT_REQUESTDISK",
        ];
        if ASKED.into_iter().any(said) {
            let job = with_owner(entry.spec.ad.clone());
            let (done, opinions) = judged_by(&self.config, &ClassAd::new(), &job)
                .map_err(|failure| failure.to_string())?;
            for opinion in opinions {
                match opinion.verdict {
                    Verdict::Met => {}
                    Verdict::Warned(why) => warn!("job {name}: {}: {why}", opinion.name),
                    Verdict::Refused(why) => {
                        return Err(format!("{}: the job is refused: {why}", opinion.name));
                    }
                }
            }
            if done.ad != job {
                self.transformed(name, &done.ad)?;
            }
            if !done.by.is_empty() {
                info!("job {name} was transformed by {}", done.by.join(", "));
            }
        }
        if let Some(entry) = self.queue.entries.get_mut(name) {
            entry.is_admitted = true;
        }
        Ok(())
    }

    /// The job is another one now.
    fn transformed(&mut self, name: &str, ad: &ClassAd) -> Result<(), String> {
        let bytes = ad.to_old().into_bytes();
        let spec = queue::parse(&format!("{name}, transformed"), &bytes)?;
        let path = queue::file_of(&self.queue.places.spool, name);
        write_whole(&path, &bytes).map_err(|failure| failure.to_string())?;
        if let Some(entry) = self.queue.entries.get_mut(name) {
            let phase = std::mem::replace(&mut entry.phase, queue::Phase::Idle);
            let is_removed = entry.is_removed;
            *entry = Entry::new(name.to_owned(), spec);
            (entry.phase, entry.is_removed) = (phase, is_removed);
        }
        Ok(())
    }

    /// Lets jobs in that were found in the spool. Those that are refused are held if nobody waits for an answer, else they are no more.
    pub(super) fn admit_all(&mut self, names: &[String], somebody_waits: bool) {
        for name in names {
            let Err(why) = self.admit(name) else {
                continue;
            };
            warn!("job {name}: {why}");
            if somebody_waits {
                self.queue.forget(name);
                self.refused.insert(name.clone(), why);
            } else if let Some(entry) = self.queue.entries.get_mut(name) {
                entry.phase = queue::Phase::Held(why);
            }
        }
    }

    /// Looks for jobs that were handed in; whether this one was let in.
    ///
    /// # Errors
    /// Why it is refused, or the spool cannot be read.
    pub(super) fn submitted(&mut self, job: Option<&str>) -> Result<(), String> {
        self.read_spool(None)
            .map_err(|failure| failure.to_string())?;
        match job.and_then(|name| self.refused.remove(name)) {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }
}
