//! A slot of the startd that is there: what it publishes, and the job that it has.

use crate::jobs::JobStore;
use crate::report::{Exit, Explain, Failure, Outcome};
use crate::startd::{Record, SlotLine};
use crate::verbs::machine::watched;
use classad::{ClassAd, Expr, Literal, parse_old_ad};
use std::fmt;
use std::str::FromStr;

/// Which slot: `2`, or `2_1` for a part of it; `slot2_1` and `vm2` are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WhichSlot {
    pub(crate) number: u32,
    pub(crate) part: Option<u32>,
}

impl FromStr for WhichSlot {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("found `{text}`, expected a slot's number, such as 2 or 2_1");
        let digits = text.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let (number, part) = match digits.split_once('_') {
            Some((number, part)) => (number, Some(part)),
            None => (digits, None),
        };
        let parsed = |digits: &str| digits.parse::<u32>().map_err(|_| expected());
        Ok(WhichSlot {
            number: parsed(number)?,
            part: part.map(parsed).transpose()?,
        })
    }
}

impl fmt::Display for WhichSlot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            Some(part) => write!(out, "{}_{part}", self.number),
            None => write!(out, "{}", self.number),
        }
    }
}

impl WhichSlot {
    /// Whether this is the slot's ad.
    pub(crate) fn is_of(self, ad: &ClassAd) -> bool {
        let number = |names: &[&str]| {
            let found = names.iter().find_map(|name| ad.get(*name));
            match found.map(AsRef::as_ref) {
                Some(Expr::Literal(Literal::Integer(number))) => u32::try_from(*number).ok(),
                _ => None,
            }
        };
        number(&["SlotID", "VirtualMachineID"]) == Some(self.number)
            && number(&["DSlotID"]) == self.part
    }
}

/// A slot of a startd that is there.
pub(super) struct Running {
    /// What the startd has written down.
    pub(super) record: Record,
    /// What the slot publishes.
    pub(super) ad: ClassAd,
    /// Its job.
    pub(super) job: Option<ClassAd>,
}

/// The slot of the startd for these jobs, if one is there.
///
/// # Errors
/// The startd does not say, or there is no such slot.
pub(super) fn running(store: &JobStore, which: WhichSlot) -> Outcome<Option<Running>> {
    let Some(record) = watched(store)? else {
        return Ok(None);
    };
    let is_it = |line: &&SlotLine| (line.id, line.sub_id) == (which.number, which.part);
    let Some(line) = record.slots.iter().find(is_it) else {
        let names: Vec<&str> = record.slots.iter().map(|line| line.name.as_str()).collect();
        let message = format!("no slot {which} (found: {})", names.join(", "));
        return Err(Failure::new(Exit::Usage, message));
    };
    let read = |text: &str| parse_old_ad(text).context(|| format!("the ad of {}", line.name));
    let job = match line.job_ad.is_empty() {
        true => None,
        false => Some(read(&line.job_ad)?),
    };
    Ok(Some(Running {
        ad: read(&line.ad)?,
        job,
        record,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_named_by_its_number_and_known_by_its_ad() {
        let parsed = |text: &str| text.parse::<WhichSlot>().map(|which| which.to_string());
        for (text, expected) in [("2", "2"), ("slot2_1", "2_1"), ("vm3", "3"), ("2_1", "2_1")] {
            assert_eq!(parsed(text).as_deref(), Ok(expected));
        }
        for text in ["", "slot", "2_", "-1", "2_1_1", "2 "] {
            assert!(parsed(text).is_err(), "{text}");
        }
        let ad = |text: &str| parse_old_ad(text).expect("an ad");
        let part = ad("SlotID = 2\nDSlotID = 1\n");
        let is_of = |text: &str, ad: &ClassAd| text.parse::<WhichSlot>().expect("a slot").is_of(ad);
        assert!(is_of("2_1", &part) && !is_of("2", &part));
        let old = ad("VirtualMachineID = 2\n");
        assert!(is_of("2", &old) && !is_of("1", &old) && !is_of("2_1", &old));
    }
}
