//! Which values have to be expressions, and whose jobs they are for.

use super::kinds;
use std::collections::BTreeSet;

/// Names whose values are expressions, small letters.
const EXPRESSIONS: &[&str] = &[
    "start",
    "defrag_draining_start_expr",
    "suspend",
    "continue",
    "preempt",
    "kill",
    "want_suspend",
    "want_vacate",
    "want_hold",
    "want_hold_reason",
    "want_hold_subcode",
    "rank",
    "is_owner",
    "isowner",
    "is_valid_checkpoint_platform",
    "periodic_checkpoint",
    "maxjobretirementtime",
    "machinemaxvacatetime",
    "start_backfill",
    "evict_backfill",
    "runbenchmarks",
    "slot_weight",
    "preemption_requirements",
    "preemption_rank",
    "negotiator_pre_job_rank",
    "negotiator_post_job_rank",
    "negotiator_job_constraint",
    "prio",
    "update_prio",
    "cpubusy",
    "cpu_busy",
    "claim_worklife",
    "start_local_universe",
    "start_scheduler_universe",
    "system_periodic_hold",
    "system_periodic_release",
    "system_periodic_remove",
    "system_periodic_vacate",
    "append_rank",
    "append_requirements",
    "default_rank",
    "job_renice_increment",
    "job_default_requestcpus",
    "job_default_requestdisk",
    "job_default_requestmemory",
];

/// Those that may have a value of their own for a universe.
const BY_UNIVERSE: &[&str] = &[
    "start",
    "suspend",
    "continue",
    "preempt",
    "kill",
    "want_suspend",
    "want_vacate",
];

/// What stands behind a name for jobs of a universe.
pub(super) fn suffix(universe: i64) -> Option<&'static str> {
    match universe {
        5 => Some("_VANILLA"),
        13 => Some("_VM"),
        _ => None,
    }
}

/// Whether the value of a key has to be an expression.
pub(super) fn is_expression(key: &str) -> bool {
    let key = kinds::of_type(key).unwrap_or(key);
    let bare = key
        .strip_suffix("_vanilla")
        .or_else(|| key.strip_suffix("_vm"));
    let of_a_resource = ["consumption_", "modify_request_expr_"]
        .iter()
        .any(|prefix| key.starts_with(prefix));
    (of_a_resource && key != "consumption_policy")
        || EXPRESSIONS.contains(&key)
        || bare.is_some_and(|bare| BY_UNIVERSE.contains(&bare))
}

/// Keys that other values list as expressions: attributes of the machine, and what submitted jobs have to be.
/// `all` are the keys that there are.
pub(super) fn listed_expressions<'k>(
    get: impl Fn(&str) -> Option<String>,
    all: impl Iterator<Item = &'k str>,
) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    // Each slot may have attributes of its own, and its own value of one that all have.
    let prefixes: BTreeSet<&str> = all.filter_map(slot_prefix).collect();
    let mut add = |list: &str, prefix: &str| {
        let list = get(list).unwrap_or_default();
        let names = list
            .split([' ', ',', '\t', '\n'])
            .filter(|name| !name.is_empty());
        keys.extend(names.map(|name| format!("{prefix}{}", name.to_ascii_lowercase())));
    };
    for list in ["STARTD_ATTRS", "STARTD_EXPRS", "STARTD_LATCH_EXPRS"] {
        add(list, "");
        for prefix in &prefixes {
            add(list, prefix);
            add(&format!("{prefix}{list}"), "");
            add(&format!("{prefix}{list}"), prefix);
        }
    }
    add("SUBMIT_REQUIREMENT_NAMES", "submit_requirement_");
    // Those that have a reason have it as an expression, too.
    let reasons: Vec<String> = keys
        .iter()
        .filter(|key| key.starts_with("submit_requirement_"))
        .map(|key| format!("{key}_reason"))
        .collect();
    keys.extend(reasons);
    keys
}

/// `slot1_`, `vm1_` in front of a key.
pub(super) fn slot_prefix(key: &str) -> Option<&str> {
    let word = ["slot", "vm"].iter().find(|word| key.starts_with(**word))?;
    let digits = key[word.len()..].bytes().take_while(u8::is_ascii_digit);
    let end = word.len() + digits.count();
    (end > word.len() && key.as_bytes().get(end) == Some(&b'_')).then(|| &key[..=end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_known_by_their_names() {
        for key in [
            "start",
            "suspend_vanilla",
            "want_vacate_vm",
            "slot_type_2_start",
            "start_vanilla",
            "consumption_gpus",
        ] {
            assert!(is_expression(key), "{key}");
        }
        for key in [
            "starter",
            "consumption_policy",
            "slot_type_2",
            "slot_type_2_partitionable",
            "memory",
        ] {
            assert!(!is_expression(key), "{key}");
        }
    }

    #[test]
    fn attributes_of_the_machine_are_expressions() {
        let get = |name: &str| (name == "STARTD_ATTRS").then(|| "IsDesktop, Room".to_owned());
        let listed: Vec<String> = listed_expressions(get, [].into_iter())
            .into_iter()
            .collect();
        assert_eq!(listed, ["isdesktop", "room"]);
    }

    /// Technical summary of Condor 4.1b, 8.2 and 8.3.
    #[test]
    fn the_priorities_of_4_1_are_expressions_that_evaluate() {
        use crate::config::{Config, ConfigOptions, Dialect};
        use crate::{Context, Nowhere, parse_ad};
        let read = |text: &str| {
            let options = ConfigOptions {
                dialect: Dialect::V6_1,
                ..ConfigOptions::default()
            };
            Config::parse(text, &Nowhere, &options)
        };
        let text = "Expanded = 1\nPRIO : (UserPrio * 10) + $(Expanded) - (QDate / 1000000000.0)\n\
            UPDATE_PRIO : Prio + Users - Running\n";
        let config = read(text).ok();
        let value = |name: &str, ad: &str| {
            let expr = config.as_ref()?.expression(name).ok()??;
            let context = Context::new(&Nowhere).with_my(parse_ad(ad).ok()?);
            context.eval(&expr).ok().map(|value| value.to_string())
        };
        let prio = value("PRIO", "[ UserPrio = 2; QDate = 500000000 ]");
        assert_eq!(prio.as_deref(), Some("2.050000000000000E+01"));
        let update = value("UPDATE_PRIO", "[ Prio = 3; Users = 2; Running = 4 ]");
        assert_eq!(update.as_deref(), Some("1"));
        let nothing = value("UPDATE_PRIO", "[ Prio = 3 ]");
        assert_eq!(nothing.as_deref(), Some("undefined"));
        for name in ["PRIO", "UPDATE_PRIO"] {
            let fault = read(&format!("{name} : Users +\n")).err();
            assert_eq!(fault.as_ref().and_then(|fault| fault.name()), Some(name));
        }
    }
}
