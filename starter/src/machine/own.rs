//! What one slot publishes otherwise than the others of its type (current manual, "Configuring STARTD_ATTRS on a per-slot basis").
//!
//! ```text
//! STARTD_EXPRS, STARTD_ATTRS, STARTD_LATCH_EXPRS   SLOTn_NAME          over the policy of the slot's type
//! SLOTn_STARTD_EXPRS, SLOTn_STARTD_ATTRS   SLOTn_NAME, or NAME
//! ```
//! In former times `VMn_` stands for `SLOTn_`.

use super::policy::{Policy, PolicyError, Reader, Settings, deaf};
use std::sync::Arc;

/// The lists of names.
const LISTS: [&str; 3] = ["STARTD_EXPRS", "STARTD_ATTRS", "STARTD_LATCH_EXPRS"];

impl Policy {
    /// The policy of a slot of this number; the same one, if the slot has nothing of its own.
    ///
    /// # Errors
    /// [`PolicyError::NotAnExpression`].
    pub(super) fn of_slot(
        self: &Arc<Self>,
        settings: &Settings<'_>,
        number: u32,
    ) -> Result<Arc<Self>, PolicyError> {
        let reader = Reader {
            settings,
            dialect: self.dialect,
            slot_type: self.slot_type,
        };
        let prefix = format!("{}{number}_", self.rules.slot_prefix).to_ascii_uppercase();
        let for_all = LISTS.iter().flat_map(|list| reader.names(list));
        let for_it = LISTS
            .iter()
            .flat_map(|list| reader.names(&format!("{prefix}{list}")));
        let names: Vec<(String, bool)> = for_all
            .map(|name| (name, false))
            .chain(for_it.map(|name| (name, true)))
            .collect();
        let mut own: Option<Policy> = None;
        for (name, is_its_own) in names {
            let setting = format!("{prefix}{name}");
            let found = match settings(&setting) {
                // It has none, though others have.
                Some(text) if text.trim().is_empty() => None,
                Some(text) => Some(reader.parse(&setting, text.trim())?),
                None if is_its_own => match reader.expression(&name)? {
                    Some(expr) => Some(expr),
                    None => continue,
                },
                None => continue,
            };
            let own = own.get_or_insert_with(|| Policy::clone(self));
            match found {
                Some(expr) => {
                    own.attributes.insert(name.as_str(), expr);
                }
                None => {
                    own.attributes.remove(name.as_str());
                    own.withheld.push(name);
                }
            }
        }
        Ok(match own {
            Some(mut own) => {
                own.doubts = deaf(&own.attributes, own.keyboard_slots, own.console_slots);
                Arc::new(own)
            }
            None => Arc::clone(self),
        })
    }
}
