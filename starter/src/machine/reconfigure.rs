//! Another configuration for a machine that has begun (`condor_reconfig`).

use super::division::Detected;
use super::part::Division;
use super::policy::{Policy, PolicyError, Settings};
use super::slot::Kind;
use super::words::Moment;
use super::{Machine, division};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

impl Machine {
    /// Goes by other settings from now on: the next look at the machine is at once. The slots stay those that there are, and so does what
    /// they have; as in the original, others need a new beginning.
    ///
    /// # Errors
    /// [`PolicyError`]: a setting says nothing; everything is as it was.
    pub fn reconfigure(
        &mut self,
        settings: &Settings<'_>,
        detected: &Detected,
        now: Moment,
    ) -> Result<(), PolicyError> {
        let mut policies: BTreeMap<Option<u32>, Arc<Policy>> = BTreeMap::new();
        let mut divisions = BTreeMap::new();
        for slot in &self.slots {
            // What the next beginning would fail of is said now.
            division::plan(settings, slot.policy.dialect, detected)?;
            let slot_type = slot.policy.slot_type;
            if let Entry::Vacant(place) = policies.entry(slot_type) {
                let policy = Policy::read(settings, slot.policy.dialect, slot_type)?;
                place.insert(Arc::new(policy));
            }
            if slot.kind == Kind::Partitionable {
                let division = Division::read(settings, slot, slot_type)?;
                divisions.insert(slot.id.number, division);
            }
        }
        for slot in &mut self.slots {
            if let Some(policy) = policies.get(&slot.policy.slot_type) {
                slot.goes_by(Arc::clone(policy));
            }
        }
        if let Some(slot) = self.slots.first() {
            self.polling_interval = slot.policy.polling_interval;
            self.update_interval = slot.policy.update_interval;
        }
        self.divisions = divisions;
        self.next_poll = now;
        Ok(())
    }
}
