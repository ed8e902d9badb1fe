//! What a configuration says in vain: lists of names that nothing defines, types of slots that there are none of, numbers that are cut.

use super::config::Config;
use super::error::{Warning, WarningKind};
use super::kinds;
use super::policy::slot_prefix;
use super::table::Entry;
use crate::{Context, Nowhere, Value};
use std::collections::{BTreeMap, BTreeSet};

/// How nice a job can be.
const NICENESS: std::ops::RangeInclusive<i64> = 0..=19;
/// How many types of slots there are, if nothing is said.
const SLOT_TYPES: i64 = 10;

/// Lists of names that have to be defined, small letters.
const LISTS: &[&str] = &["startd_attrs", "startd_exprs"];
/// What stands before the number of a slot type in the settings that say how much a type has, and how many slots are of it.
const SHARES: &[&str] = &["slot_type_", "virtual_machine_type_"];
const COUNTS: &[&str] = &["num_slots_type_", "num_virtual_machines_type_"];

/// Things that are said in vain, in the order of their keys.
pub(super) fn doubts(config: &Config) -> Vec<Warning> {
    let table = config.table();
    let said = || {
        let entries = table.entries().filter(|(_, _, is_built_in)| !is_built_in);
        entries.map(|(key, entry, _)| (table.without_prefix(key).unwrap_or(key), entry))
    };
    let all = table.entries();
    let defined: BTreeSet<&str> = all
        .flat_map(|(key, _, _)| {
            let bare = table.without_prefix(key).unwrap_or(key);
            [bare, kinds::of_type(bare).unwrap_or(bare), of_slot(bare)]
        })
        .collect();
    let mut doubts = vec![];
    for (key, entry) in said() {
        let list = kinds::of_type(key).unwrap_or_else(|| of_slot(key));
        if LISTS.contains(&list) {
            doubts.extend(undefined(config, entry, &defined));
        }
        if key == "job_renice_increment" {
            doubts.extend(cut(config, entry));
        }
    }
    doubts.extend(types(config, &said().collect::<Vec<_>>(), &defined));
    doubts
}

/// A key without `slot1_` before it.
fn of_slot(key: &str) -> &str {
    slot_prefix(key).map_or(key, |prefix| &key[prefix.len()..])
}

/// Names of a list that nothing defines.
fn undefined(config: &Config, entry: &Entry, defined: &BTreeSet<&str>) -> Vec<Warning> {
    let text = config.get(&entry.name).unwrap_or_default();
    let mut names: Vec<&str> = text
        .split([' ', ',', '\t', '\n'])
        .filter(|name| !name.is_empty())
        .filter(|name| !defined.contains(name.to_ascii_lowercase().as_str()))
        .collect();
    names.sort_unstable();
    names.dedup();
    let warning = |name: &str| Warning {
        at: entry.origin.clone(),
        kind: WarningKind::Nowhere {
            name: entry.name.clone(),
            listed: name.to_owned(),
        },
    };
    names.into_iter().map(warning).collect()
}

/// How nice `JOB_RENICE_INCREMENT` makes a job for which it has this value: 0 to 19 (current manual, "JOB_RENICE_INCREMENT"); none where it is no number,
/// which counts as 0.
#[must_use]
pub fn niceness(value: &Value) -> Option<i64> {
    let number = match value {
        Value::Integer(number) => *number,
        Value::Boolean(truth) => i64::from(*truth),
        #[allow(clippy::cast_possible_truncation, reason = "cut, as the original does")]
        Value::Real(number) if number.is_finite() => *number as i64,
        _ => return None,
    };
    Some(number.clamp(*NICENESS.start(), *NICENESS.end()))
}

/// A number that counts as another one. What a job says may decide, and is not known here.
fn cut(config: &Config, entry: &Entry) -> Option<Warning> {
    let expr = config.expression(&entry.name).ok()??;
    let found = Context::new(&Nowhere).eval(&expr).ok()?;
    if matches!(found, Value::Undefined | Value::Error) {
        return None;
    }
    let counts_as = niceness(&found).unwrap_or(0);
    let is_cut = !matches!(found, Value::Integer(number) if number == counts_as);
    is_cut.then(|| Warning {
        at: entry.origin.clone(),
        kind: WarningKind::Cut {
            name: entry.name.clone(),
            found: found.to_string(),
            counts_as,
        },
    })
}

/// Types of slots that are not read, or that no slot is of.
fn types(config: &Config, said: &[(&str, &Entry)], defined: &BTreeSet<&str>) -> Vec<Warning> {
    let limit = config.expression("MAX_SLOT_TYPES").ok().flatten();
    let limit = limit.and_then(|expr| match Context::new(&Nowhere).eval(&expr) {
        Ok(Value::Integer(limit)) => Some(limit),
        _ => None,
    });
    let limit = limit.unwrap_or(SLOT_TYPES);
    let mut doubts = vec![];
    // One for each type: the one that says how much it has is the first of its settings.
    let mut of_none: BTreeMap<i64, &Entry> = BTreeMap::new();
    for (key, entry) in said {
        let Some((number, is_count)) = slot_type(key) else {
            continue;
        };
        if !(1..=limit).contains(&number) {
            doubts.push(Warning {
                at: entry.origin.clone(),
                kind: WarningKind::BeyondTypes {
                    name: entry.name.clone(),
                    limit,
                },
            });
            continue;
        }
        let is_counted = COUNTS
            .iter()
            .any(|prefix| defined.contains(format!("{prefix}{number}").as_str()));
        if !is_count && !is_counted {
            of_none.entry(number).or_insert(entry);
        }
    }
    doubts.extend(of_none.into_iter().map(|(number, entry)| Warning {
        at: entry.origin.clone(),
        kind: WarningKind::NoSuchSlot {
            name: entry.name.clone(),
            count: format!("NUM_SLOTS_TYPE_{number}"),
        },
    }));
    doubts
}

/// The number of the slot type that a key speaks of, and whether it says how many slots there are of it.
fn slot_type(key: &str) -> Option<(i64, bool)> {
    let behind = |prefixes: &[&str]| {
        let rest = prefixes
            .iter()
            .find_map(|prefix| key.strip_prefix(prefix))?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = rest.split_at(digits);
        let number = number.parse().ok()?;
        (rest.is_empty() || rest.starts_with('_')).then_some((number, rest.is_empty()))
    };
    match behind(COUNTS) {
        Some((number, true)) => Some((number, true)),
        Some(_) => None,
        None => behind(SHARES).map(|(number, _)| (number, false)),
    }
}

#[cfg(test)]
mod tests {
    use crate::Nowhere;
    use crate::config::{Config, ConfigOptions};

    fn doubts(text: &str) -> Vec<String> {
        let config = Config::parse(text, &Nowhere, &ConfigOptions::default());
        let config = config.expect("no fault");
        config.warnings().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_list_of_attributes_that_are_defined_nowhere_is_doubted() {
        assert_eq!(
            doubts("Room = 1\nSTARTD_ATTRS = Room, Flor\n"),
            ["-, line 2: STARTD_ATTRS: Flor is defined nowhere"]
        );
        assert_eq!(
            doubts("SLOT1_STARTD_ATTRS = Flor\n"),
            ["-, line 1: SLOT1_STARTD_ATTRS: Flor is defined nowhere"]
        );
        for defined in ["SLOT2_Flor", "SLOT_TYPE_1_Flor", "STARTD.flor", "FLOR"] {
            let text = format!("STARTD_ATTRS = Flor\nNUM_SLOTS_TYPE_1 = 1\n{defined} = 1\n");
            assert_eq!(doubts(&text), [""; 0], "{defined}");
        }
    }

    #[test]
    fn types_of_slots_that_there_are_none_of_are_doubted() {
        assert_eq!(
            doubts("\nSLOT_TYPE_11 = 10%\nNUM_SLOTS_TYPE_11 = 1\n"),
            [
                "-, line 3: NUM_SLOTS_TYPE_11: there are slot types 1 to 10 (MAX_SLOT_TYPES), others are not read",
                "-, line 2: SLOT_TYPE_11: there are slot types 1 to 10 (MAX_SLOT_TYPES), others are not read",
            ]
        );
        assert_eq!(
            doubts("SLOT_TYPE_2 = 10%\nSLOT_TYPE_2_START = True\n"),
            ["-, line 1: SLOT_TYPE_2: no slot is of this type without NUM_SLOTS_TYPE_2"]
        );
        assert_eq!(
            doubts("SLOT_TYPE_3_START = True\n"),
            ["-, line 1: SLOT_TYPE_3_START: no slot is of this type without NUM_SLOTS_TYPE_3"]
        );
        for text in [
            "MAX_SLOT_TYPES = 11\nSLOT_TYPE_11 = 10%\nNUM_SLOTS_TYPE_11 = 1\n",
            "SLOT_TYPE_2 = 10%\nNUM_SLOTS_TYPE_2 = 0\n",
            "use FEATURE : PartitionableSlot\n",
        ] {
            assert_eq!(doubts(text), [""; 0], "{text}");
        }
    }

    /// Current manual, "JOB_RENICE_INCREMENT".
    #[test]
    fn a_niceness_that_there_is_not_is_doubted() {
        assert_eq!(
            doubts("JOB_RENICE_INCREMENT = 99\n"),
            ["-, line 1: JOB_RENICE_INCREMENT: 99 counts as 19"]
        );
        assert_eq!(
            doubts("JOB_RENICE_INCREMENT = -1\n"),
            ["-, line 1: JOB_RENICE_INCREMENT: -1 counts as 0"]
        );
        assert_eq!(
            doubts("JOB_RENICE_INCREMENT = \"x\"\n"),
            ["-, line 1: JOB_RENICE_INCREMENT: \"x\" counts as 0"]
        );
        assert_eq!(
            doubts("JOB_RENICE_INCREMENT = 20.5\n"),
            ["-, line 1: JOB_RENICE_INCREMENT: 2.050000000000000E+01 counts as 19"]
        );
        for text in ["19", "0", "5 + (Nice ?: 0)", "MY.HowNice"] {
            let text = format!("JOB_RENICE_INCREMENT = {text}\n");
            assert_eq!(doubts(&text), [""; 0], "{text}");
        }
        let faulty = Config::parse(
            "JOB_RENICE_INCREMENT = ((",
            &Nowhere,
            &ConfigOptions::default(),
        );
        assert_eq!(
            faulty
                .err()
                .and_then(|fault| fault.name().map(str::to_owned))
                .as_deref(),
            Some("JOB_RENICE_INCREMENT")
        );
    }
}
