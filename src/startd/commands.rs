//! What a startd is asked, by `wayfarer startd …` and by signals.

use super::ask::{Ask, How};
use super::pace::Pace;
use super::queue::{Phase, Queue};
use super::record::DrainLine;
use super::{Startd, configuration, measured, polling_interval};
use crate::config::user_maps;
use crate::life;
use crate::report::{Outcome, chain};
use classad::{Expr, parse_expression};
use starter::life::{Answer, Hold, Who};
use starter::machine::{Drain, Event, Shutdown, SlotId, draining_start, settings_of};
use std::sync::Arc;
use tracing::{error, info};

impl Startd<'_> {
    /// By a signal: nobody is answered.
    pub(super) fn told(&mut self, ask: Ask) {
        if let Err(why) = self.does(ask) {
            error!("{why}");
        }
    }

    pub(super) fn is_asked(&mut self, who: Who, ask: Ask) {
        let waits = matches!(ask, Ask::Off { .. });
        match self.does(ask) {
            Ok(()) if waits && !self.is_over => self.waiting.push(who),
            done => {
                self.save();
                let notice = self.notice.take().unwrap_or_default();
                let answer = match done {
                    Ok(()) => Answer::Done,
                    Err(why) => Answer::Refused(why),
                };
                self.control.answer(who, &answer, &notice);
            }
        }
    }

    fn does(&mut self, ask: Ask) -> Result<(), String> {
        match ask {
            Ask::Status {} => {
                self.find_out_why();
                self.publish();
            }
            // Slots are offered to it after the next look, which is at once.
            Ask::Submitted { job } => self.submitted(job.as_deref())?,
            Ask::Remove { job } => self.remove(&job)?,
            Ask::Release { job } => self.release(&job, "by its owner")?,
            Ask::Hold { job, reason } => self.hold(&job, reason)?,
            Ask::Drain {
                how,
                resumes,
                start,
            } => {
                let how = match how {
                    How::Quick => Drain::Quick,
                    How::Fast => Drain::Fast,
                    How::Graceful | How::Peaceful => Drain::Graceful,
                };
                if self.machine.is_draining() {
                    return Err("the machine is being drained already".to_owned());
                }
                let start = match how {
                    Drain::Graceful => self.start_meanwhile(start.as_deref())?,
                    Drain::Quick | Drain::Fast => None,
                };
                info!("the machine is to be drained");
                self.drain = Some(DrainLine {
                    how: match how {
                        Drain::Graceful => How::Graceful,
                        Drain::Quick => How::Quick,
                        Drain::Fast => How::Fast,
                    },
                    resumes,
                    start: start.as_ref().map(ToString::to_string),
                });
                self.tell(Event::Drain {
                    how,
                    resumes,
                    start,
                });
                // An era without draining has nothing to do.
                if !self.machine.is_draining() && !resumes {
                    let dialect = self.measured.dialect();
                    return Err(format!("Condor {dialect} does not drain machines"));
                }
            }
            Ask::CancelDrain {} => {
                if !self.machine.is_draining() {
                    return Err("the machine is not being drained".to_owned());
                }
                self.drain = None;
                self.tell(Event::CancelDrain);
            }
            Ask::Off { how } => {
                info!("the machine is to be shut down");
                self.shut_down(match how {
                    How::Peaceful => Shutdown::Peaceful,
                    How::Graceful | How::Quick => Shutdown::Graceful,
                    How::Fast => Shutdown::Fast,
                });
            }
            Ask::Vacate { slot, fast } => {
                let slot = slot.map(|name| self.slot_called(&name)).transpose()?;
                self.tell(Event::Vacate { slot, fast });
            }
            Ask::Checkpoint { slot } => {
                let slot = slot.map(|name| self.slot_called(&name)).transpose()?;
                self.has_a_job_that_runs(slot)?;
                self.tell(Event::Checkpoint { slot });
            }
            Ask::Reconfig {} => {
                self.reconfigure()
                    .map_err(|failure| format!("the configuration stays as it was: {failure}"))?;
                info!("the configuration was read again");
            }
        }
        Ok(())
    }

    /// Whether there is something to make an image of: in a slot, or in any.
    fn has_a_job_that_runs(&self, asked: Option<SlotId>) -> Result<(), String> {
        let slots = self.machine.slots();
        let is_asked = |id: SlotId| asked.is_none_or(|asked| asked == id);
        let mut these = slots.iter().filter(|slot| is_asked(slot.id()));
        if these.clone().any(|slot| slot.place().works()) {
            return Ok(());
        }
        Err(match these.next().filter(|_| asked.is_some()) {
            Some(slot) => format!("no job runs in {}: it is {}", slot.name(), slot.place()),
            None => "no job runs in any slot".to_owned(),
        })
    }

    /// START while the machine drains: what was asked for, or what the configuration has.
    fn start_meanwhile(&self, asked: Option<&str>) -> Result<Option<Arc<Expr>>, String> {
        let Some(text) = asked else {
            let settings = settings_of(&self.config);
            return draining_start(&settings).map_err(|error| chain(&error));
        };
        let start = parse_expression(text);
        let start = start.map_err(|error| format!("START = {text}: {error}"))?;
        Ok(Some(start)
            .filter(|start| *start != Expr::from(false))
            .map(Arc::new))
    }

    /// A startd that was killed has left the machine as it was being drained.
    pub(super) fn drains_on(&mut self, before: DrainLine) {
        info!("the machine is being drained, as it was before");
        let DrainLine {
            how,
            resumes,
            start,
        } = before;
        if let Err(why) = self.does(Ask::Drain {
            how,
            resumes,
            // Nobody is let in whom the last one did not let in.
            start: Some(start.unwrap_or_else(|| "false".to_owned())),
        }) {
            self.drain = None;
            error!("{why}");
        }
    }

    fn slot_called(&self, name: &str) -> Result<SlotId, String> {
        let slots = self.machine.slots();
        let found = slots
            .iter()
            .find(|slot| slot.name().eq_ignore_ascii_case(name));
        found.map(|slot| slot.id()).ok_or_else(|| {
            let names: Vec<String> = slots.iter().map(|slot| slot.name()).collect();
            format!("no slot {name} (found: {})", names.join(", "))
        })
    }

    pub(super) fn remove(&mut self, name: &str) -> Result<(), String> {
        if self.queue.damaged.contains_key(name) {
            self.queue.forget(name);
            return Ok(());
        }
        let Some(entry) = self.queue.entries.get_mut(name) else {
            return Err(format!("no job {name} in the queue"));
        };
        match &mut entry.phase {
            // It is removed when its starter has ended, told or not.
            Phase::Running(runner) => {
                entry.is_removed = true;
                runner.ask(life::Ask::Kill {});
                self.hear_starters();
                return Ok(());
            }
            Phase::Leaving => {
                return Err(format!("job {name} is leaving another startd; ask again"));
            }
            Phase::Claiming(claim) => {
                let claim = *claim;
                self.claims.remove(&claim);
                let slots = self.machine.slots().iter();
                let waits = slots
                    .filter(|slot| slot.waiting() == Some(claim))
                    .map(|slot| slot.id());
                for slot in waits.collect::<Vec<_>>() {
                    self.tell(Event::Withdrawn { slot, claim });
                }
            }
            Phase::Claimed(slot) => {
                let slot = *slot;
                self.queue.forget(name);
                self.tell(Event::Released { slot });
            }
            Phase::Idle | Phase::Held(_) => {}
        }
        self.queue.forget(name);
        info!("job {name} was removed");
        Ok(())
    }

    /// By the user, of a job that runs or has not begun.
    fn hold(&mut self, name: &str, reason: String) -> Result<(), String> {
        let Some(entry) = self.queue.entries.get(name) else {
            return Err(format!("no job {name} in the queue"));
        };
        let is_running = matches!(entry.phase, Phase::Running(_));
        if !is_running && !matches!(entry.phase, Phase::Idle) {
            return Err(format!("job {name} is on its way, or held; ask again"));
        }
        self.put_on_hold(name, &Hold::new(reason, Hold::BY_USER));
        Ok(())
    }

    pub(super) fn release(&mut self, name: &str, why: &str) -> Result<(), String> {
        let Some(entry) = self.queue.entries.get_mut(name) else {
            return Err(format!("no job {name} in the queue"));
        };
        if !matches!(entry.phase, Phase::Held(_)) {
            return Err(format!("job {name} is not held"));
        }
        self.admit(name)?;
        let Some(entry) = self.queue.entries.get_mut(name) else {
            return Ok(());
        };
        if let Some(job) = Queue::job(self.store, name)
            && let Some(life) = &job.life
        {
            life::idle::release(&job, life, why).map_err(|error| chain(&error))?;
        }
        entry.phase = Phase::Idle;
        entry.hold_code = None;
        entry.pace = Pace::default();
        info!("job {name} was released");
        self.offers = true;
        Ok(())
    }

    fn reconfigure(&mut self) -> Outcome<()> {
        let path = self.which.config.clone().unwrap_or_default();
        let config = configuration(&path, self.which.dialect)?;
        let polling_interval = polling_interval(&config)?;
        // Nothing is changed before all is known to be right.
        let detected = self.measured.detected(&config)?;
        let users = user_maps(&config)?;
        let now = self.now();
        let before = std::mem::replace(&mut self.config, config);
        let changed = self.measured.reconfigure(&self.config).and_then(|()| {
            let settings = settings_of(&self.config);
            let heeded = self.machine.reconfigure(&settings, &detected, now);
            heeded.map_err(|error| measured::placed(&self.config, error))
        });
        match changed {
            Ok(unheeded) => {
                self.notice = unheeded;
                self.machine.set_users(users);
            }
            Err(failure) => {
                self.config = before;
                self.measured.reconfigure(&self.config)?;
                return Err(failure);
            }
        }
        if let Some(unheeded) = &self.notice {
            tracing::warn!("{unheeded}");
        }
        self.polling_interval = polling_interval;
        self.next_look = now;
        self.backfill_anew();
        for warning in self.config.warnings() {
            tracing::warn!("{warning}");
        }
        Ok(())
    }
}
