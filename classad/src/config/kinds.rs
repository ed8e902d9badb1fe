//! Which values have to be numbers or truths (`param_integer` and `param_boolean` of the original).
//!
//! # What callers may rely on
//! The original has types for these names: `htcondor2.param` tells a number or a truth, and what is built in where the value is empty. Its
//! daemons end where the value is none; here it is a fault.

use super::error::{ConfigError, WrongValue};
use super::table::Entry;
use crate::{Context, Expr, Nowhere, Value};

/// The largest number of the original, whose integers have 32 bits.
const MOST: i64 = i32::MAX as i64;

/// What a value has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A whole number that is not less than this; reals are cut, truths count 0 and 1.
    Integer(i64),
    /// TRUE or FALSE; numbers count.
    Truth,
    /// An expression whose value is a number of seconds where it is looked at.
    Seconds,
}

/// Names of whole numbers, small letters, with the least that makes sense. Of `num_cpus` and `memory` 0 is what was detected.
const INTEGERS: &[(&str, i64)] = &[
    ("alive_interval", 0),
    ("console_cpus", 0),
    ("console_vms", 0),
    ("disconnected_keyboard_idle_boost", 0),
    ("job_default_lease_duration", 0),
    ("keyboard_cpus", 0),
    ("keyboard_vms", 0),
    ("killing_timeout", 0),
    ("match_timeout", 0),
    ("max_claim_alives_missed", 1),
    ("max_slot_types", 0),
    ("memory", 0),
    ("num_cpus", 0),
    ("num_slots", 0),
    ("num_virtual_machines", 0),
    ("polling_interval", 1),
    ("reserved_disk", 0),
    ("reserved_memory", 0),
    ("slots_connected_to_console", 0),
    ("slots_connected_to_keyboard", 0),
    ("update_interval", 1),
    ("virtual_machines_connected_to_console", 0),
    ("virtual_machines_connected_to_keyboard", 0),
];
const TRUTHS: &[&str] = &[
    "claim_partitionable_leftovers",
    "consumption_policy",
    "count_hyperthread_cpus",
    "enable_backfill",
    "negotiator_consider_preemption",
    "require_local_config_file",
    "startd_has_bad_utmp",
];
const SECONDS: &[&str] = &[
    "claim_worklife",
    "machinemaxvacatetime",
    "maxjobretirementtime",
];

/// What stands behind `SLOT_TYPE_n_`.
pub(super) fn of_type(key: &str) -> Option<&str> {
    let rest = key.strip_prefix("slot_type_")?;
    let name = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    (name.len() < rest.len()).then(|| name.strip_prefix('_'))?
}

/// What the value of a key has to be, if that is known.
pub(super) fn kind_of(key: &str) -> Option<Kind> {
    let typed = of_type(key);
    if typed == Some("partitionable") {
        return Some(Kind::Truth);
    }
    let numbered = ["num_slots_type_", "num_virtual_machines_type_"]
        .iter()
        .find_map(|prefix| key.strip_prefix(prefix));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if numbered.is_some_and(is_number) {
        return Some(Kind::Integer(0));
    }
    let key = typed.unwrap_or(key);
    let integer = INTEGERS.iter().find(|(name, _)| *name == key);
    if let Some((_, least)) = integer {
        return Some(Kind::Integer(*least));
    }
    match key {
        _ if TRUTHS.contains(&key) => Some(Kind::Truth),
        _ if SECONDS.contains(&key) => Some(Kind::Seconds),
        _ => None,
    }
}

impl Kind {
    fn expected(self) -> String {
        match self {
            Self::Integer(least) => format!("a whole number from {least} to {MOST}"),
            Self::Truth => "TRUE or FALSE".to_owned(),
            Self::Seconds => "a number of seconds".to_owned(),
        }
    }

    /// Whether an expression's value is of this kind.
    ///
    /// # Errors
    /// [`ConfigError::Value`].
    pub(super) fn check(self, entry: &Entry, text: &str, expr: &Expr) -> Result<(), ConfigError> {
        let found = Context::new(&Nowhere).eval(expr);
        let is_right = match (self, &found) {
            (Self::Integer(least), Ok(Value::Integer(number))) => (least..=MOST).contains(number),
            (Self::Integer(least), Ok(Value::Real(number))) => {
                #[allow(clippy::cast_precision_loss, reason = "both are small")]
                let (least, most) = (least as f64, MOST as f64);
                (least..=most).contains(&number.trunc())
            }
            (Self::Integer(least), Ok(Value::Boolean(truth))) => i64::from(*truth) >= least,
            (Self::Truth, Ok(Value::Boolean(_) | Value::Integer(_) | Value::Real(_))) => true,
            (Self::Integer(_) | Self::Truth, _) => false,
            // What it refers to may be known where it is looked at.
            (Self::Seconds, Ok(Value::String(_) | Value::List(_) | Value::Ad(_))) => false,
            (Self::Seconds, _) => true,
        };
        // The language takes a number of more than 64 bits for another one.
        let too_large = number_too_large(text);
        if is_right && too_large.is_none() {
            return Ok(());
        }
        Err(ConfigError::Value {
            at: entry.origin.clone(),
            name: entry.name.clone(),
            value: Box::new(WrongValue {
                text: text.to_owned(),
                found: match found {
                    _ if too_large.is_some() => too_large.unwrap_or_default().to_owned(),
                    Ok(value) => value.to_string(),
                    Err(error) => error.to_string(),
                },
                expected: self.expected(),
            }),
        })
    }
}

/// The first number of a text that has more than 64 bits.
fn number_too_large(text: &str) -> Option<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.')));
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    let mut numbers = words.filter(|word| is_number(word));
    numbers.find(|word| word.parse::<i64>().is_err())
}

/// The name that an expression is, if it is nothing else.
pub(super) fn lone_name(expr: &Expr) -> Option<String> {
    let text = expr.to_string();
    let is_name = |text: &str| {
        let begins = |c: char| c.is_ascii_alphabetic() || c == '_';
        text.starts_with(begins) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let is_word = ["true", "false", "undefined", "error"]
        .iter()
        .any(|word| text.eq_ignore_ascii_case(word));
    (is_name(&text) && !is_word).then_some(text)
}

#[cfg(test)]
mod tests {
    use crate::Nowhere;
    use crate::config::{Config, ConfigOptions};

    fn fault(line: &str) -> Option<String> {
        let options = ConfigOptions::default();
        let config = Config::examine_text(format!("# one\n{line}\n"), &Nowhere, &options);
        let config = config.expect("it can be read");
        config.faults().first().map(ToString::to_string)
    }

    #[test]
    fn values_that_are_no_numbers_or_truths_are_faults_with_file_line_and_name() {
        for line in [
            "NUM_CPUS = x",
            "NUM_SLOTS = two",
            "NUM_SLOTS = -1",
            "MEMORY = lots",
            "MEMORY = 99999999999999999999",
            "RESERVED_MEMORY = -1000",
            "POLLING_INTERVAL = abc",
            "POLLING_INTERVAL = -1",
            "MATCH_TIMEOUT = -5",
            "KILLING_TIMEOUT = ((",
            "CpuBusy = ((",
            "CONSUMPTION_CPUS = ((",
            "START_VANILLA = ((",
            "SLOT_TYPE_1_CpuBusy = ((",
            "NUM_SLOTS_TYPE_1 = many",
            "MachineMaxVacateTime = \"x\"",
            "ENABLE_BACKFILL = perhaps",
            "SLOT_TYPE_1_PARTITIONABLE = maybe",
            "SLOTS_CONNECTED_TO_KEYBOARD = -3",
            "COUNT_HYPERTHREAD_CPUS = maybe",
        ] {
            let name = line.split(' ').next().unwrap_or_default();
            let fault = fault(line).unwrap_or_default();
            assert!(
                fault.starts_with(&format!("-, line 2: {name}")),
                "{line}: {fault}"
            );
        }
        let found = fault("MATCH_TIMEOUT = -5");
        let expected = "-, line 2: MATCH_TIMEOUT = -5: its value is -5, expected a whole number from 0 to 2147483647";
        assert_eq!(found.as_deref(), Some(expected));
    }

    /// Measured with `htcondor2.param`.
    #[test]
    fn what_the_original_takes_for_numbers_and_truths_is_taken() {
        for line in [
            // A number, or the names of devices (current manual, "MACHINE_RESOURCE_<name>").
            "MACHINE_RESOURCE_gpu = x",
            "MACHINE_RESOURCE_gpu = 2",
            "KILLING_TIMEOUT = 3*4",
            "KILLING_TIMEOUT = 3.5",
            "ALIVE_INTERVAL = true",
            "ENABLE_BACKFILL = 1",
            "ENABLE_BACKFILL = 1==1",
            "CLAIM_WORKLIFE = -1",
            "MAXJOBRETIREMENTTIME = TARGET.HowLong",
            "NUM_CPUS = 0",
        ] {
            assert_eq!(fault(line), None, "{line}");
        }
    }

    #[test]
    fn attributes_of_one_slot_are_expressions() {
        let fault = |text: &str| fault(text).unwrap_or_default();
        assert!(
            fault("SLOT1_STARTD_ATTRS = Foo\nSLOT1_Foo = ((").starts_with("-, line 3: SLOT1_Foo")
        );
        assert!(fault("STARTD_ATTRS = Foo\nSLOT2_Foo = ((").starts_with("-, line 3: SLOT2_Foo"));
        assert_eq!(fault("SLOT2_Foo = (("), "");
    }

    #[test]
    fn a_lone_name_where_seconds_are_wanted_is_doubted() {
        let read = |text: &str| {
            let config = Config::parse(text, &Nowhere, &ConfigOptions::default());
            let config = config.expect("no fault");
            config
                .warnings()
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        let said = [
            "-, line 1: CLAIM_WORKLIFE: it has no value unless a job or the machine has an attribute x",
        ];
        assert_eq!(read("CLAIM_WORKLIFE = x\n"), said);
        assert!(read("CLAIM_WORKLIFE = x + 1\n").is_empty());
    }

    /// Each of the first twenty doubles the one before; all that is built in is innocent.
    #[test]
    fn who_costs_too_much_is_blamed_alone() {
        let mut text = "V0 = 0123456789abcdef\n".to_owned();
        for n in 1..=40 {
            text.push_str(&format!("V{n} = $(V{0})$(V{0})\n", n - 1));
        }
        let config = Config::examine_text(&text, &Nowhere, &ConfigOptions::default());
        let config = config.expect("it can be read");
        let faults: Vec<String> = config.faults().iter().map(ToString::to_string).collect();
        let [fault] = faults.as_slice() else {
            panic!("one is to blame: {faults:?}");
        };
        assert!(fault.starts_with("-, line 18: V17"), "{fault}");
        assert_eq!(config.get("WANT_SUSPEND").as_deref(), Some("False"));
    }

    /// Measured with `htcondor2.param`: a number or a truth that is empty is what is built in, `$(NAME)` stays empty.
    #[test]
    fn an_empty_number_is_what_is_built_in() {
        let text = "CLAIM_WORKLIFE = $(NOPE)\nPOLLING_INTERVAL =\nKILLING_TIMEOUT = $(NOPE:)\nSTARTD.MATCH_TIMEOUT =\n\
            MATCH_TIMEOUT = 7\nENABLE_BACKFILL =\nSTART =\nUSED = $(POLLING_INTERVAL)\nDEFAULT = $(POLLING_INTERVAL:77)\nRESERVED_DISK =\n";
        let config = Config::parse(text, &Nowhere, &ConfigOptions::default()).expect("no fault");
        for (name, expected) in [
            ("CLAIM_WORKLIFE", Some("1200")),
            ("POLLING_INTERVAL", Some("5")),
            ("KILLING_TIMEOUT", Some("30")),
            ("MATCH_TIMEOUT", Some("120")),
            ("ENABLE_BACKFILL", Some("False")),
            ("START", None),
            ("USED", None),
            ("DEFAULT", Some("77")),
            ("RESERVED_DISK", None),
        ] {
            assert_eq!(config.get(name).as_deref(), expected, "{name}");
        }
        let desktop = Config::parse(
            "use POLICY : UWCS_DESKTOP\n",
            &Nowhere,
            &ConfigOptions::default(),
        );
        assert_eq!(
            desktop.expect("no fault").get("CLAIM_WORKLIFE").as_deref(),
            Some("1200")
        );
    }
}
