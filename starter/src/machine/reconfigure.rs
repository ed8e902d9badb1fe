//! Another configuration for a machine that has begun (`condor_reconfig`).

use super::division::Detected;
use super::part::Division;
use super::policy::{Policy, PolicyError, Settings};
use super::slot::Kind;
use super::words::Moment;
use super::{Machine, division};
use classad::ClassAd;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

impl Machine {
    /// Goes by other settings from now on: the next look at the machine is at once. The slots stay those that there are, and so does what
    /// they have; as in the original, others need a new beginning.
    ///
    /// Returns in words what of it counts only then.
    ///
    /// # Errors
    /// [`PolicyError`]: a setting says nothing; everything is as it was.
    pub fn reconfigure(
        &mut self,
        settings: &Settings<'_>,
        detected: &Detected,
        now: Moment,
    ) -> Result<Option<String>, PolicyError> {
        let mut policies: BTreeMap<Option<u32>, Arc<Policy>> = BTreeMap::new();
        let mut own: BTreeMap<u32, Arc<Policy>> = BTreeMap::new();
        let mut divisions = BTreeMap::new();
        let mut unheeded = None;
        if let Some(slot) = self.slots.first() {
            // What the next beginning would fail of is said now.
            let planned = division::plan(settings, slot.policy.dialect, detected)?;
            let planned: Vec<String> = planned
                .iter()
                .map(|slot| shown(slot.kind, &slot.resources))
                .collect();
            let whole = self.slots.iter().filter(|slot| slot.id.part.is_none());
            let found: Vec<String> = whole
                .map(|slot| shown(slot.kind, &slot.resources))
                .collect();
            if found != planned {
                unheeded = Some(format!(
                    "the slots stay as they are until the next beginning: found {}, configured {}",
                    counted(&found),
                    counted(&planned)
                ));
            }
        }
        for slot in &self.slots {
            let slot_type = slot.policy.slot_type;
            let policy = match policies.entry(slot_type) {
                Entry::Occupied(place) => place.into_mut(),
                Entry::Vacant(place) => {
                    let policy = Policy::read(settings, slot.policy.dialect, slot_type)?;
                    place.insert(Arc::new(policy))
                }
            };
            if let Entry::Vacant(place) = own.entry(slot.id.number) {
                place.insert(policy.of_slot(settings, slot.id.number)?);
            }
            if slot.kind == Kind::Partitionable {
                let division = Division::read(settings, slot, slot_type)?;
                divisions.insert(slot.id.number, division);
            }
        }
        for slot in &mut self.slots {
            if let Some(policy) = own.get(&slot.id.number) {
                slot.goes_by(Arc::clone(policy));
            }
        }
        if let Some(slot) = self.slots.first() {
            self.polling_interval = slot.policy.polling_interval;
            self.update_interval = slot.policy.update_interval;
        }
        self.divisions = divisions;
        self.next_poll = now;
        Ok(unheeded)
    }
}

/// A slot as its owner has planned it; what changes by itself is left out.
fn shown(kind: Kind, resources: &ClassAd) -> String {
    let names = division::resource_names(resources)
        .filter(|name| !matches!(name.as_str(), "Disk" | "VirtualMemory"));
    let planned = names.filter_map(|name| {
        let amount = resources.get(format!("TotalSlot{name}").as_str())?;
        Some(format!("{amount} {name}"))
    });
    let planned: Vec<String> = planned.collect();
    format!("{} with {}", kind.name(), planned.join(", "))
}

/// Slots, those that are alike together.
fn counted(slots: &[String]) -> String {
    let alike = slots.chunk_by(|one, other| one == other);
    let alike: Vec<String> = alike
        .map(|alike| format!("{} {}", alike.len(), alike[0]))
        .collect();
    alike.join("; ")
}
