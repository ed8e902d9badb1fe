//! Signs of life for other machines, and whether the job is still ours.

use super::{NOBODY, Starter, since_boot};
use crate::jobs::{LifeRecord, pulse};
use starter::life::{Command, Event};

impl Starter<'_> {
    /// Tells other machines that we are there, or ends the copy if they may think that we are not.
    pub(super) fn give_sign(&mut self) {
        if self.minute.wait().is_err() {
            return; // not yet
        }
        let now = since_boot();
        if self.is_taken() {
            self.lose("another starter has it");
        } else if pulse::touch(&self.dir).is_ok() {
            self.last_sign = now;
            // What the copy has used until now, for whoever goes on if we are killed.
            if self.copy_runs {
                self.save();
            }
        } else if now.saturating_sub(self.last_sign)
            >= self.arguments.pulse.saturating_mul(pulse::HOLD)
        {
            self.lose("its directory cannot be written");
        }
    }

    /// Whether another starter has taken the job over: then nothing in its directory is ours to write.
    pub(super) fn is_taken(&mut self) -> bool {
        let found = LifeRecord::load(&self.dir).ok().flatten();
        let ours = (self.record.starter, &self.record.place);
        self.is_fenced |= found.is_some_and(|found| (found.starter, &found.place) != ours);
        self.is_fenced
    }

    pub(super) fn lose(&mut self, why: &str) {
        let message = format!("job {} ends here: {why}", self.name);
        self.voice.say(&message);
        let leave = Command::VacateLatest { at_any_price: true };
        self.events.push_back(Event::Asked(NOBODY, leave));
    }
}
