//! What the owner of a machine has decided: the expressions of a configuration, parsed.
//!
//! ```text
//! name --SLOT_TYPE_n_NAME, NAME, default--> text --parse--> attribute of the slot's ad
//! ```
//! # What callers may rely on
//! The settings are read once, by [`Policy::read`]; afterwards nothing is asked of the configuration. Expressions are attributes of the
//! slot's ad, as in the original, so that they see each other (`PREEMPT = … (SUSPEND && (WANT_SUSPEND == FALSE))`).
//!
//! # What it does not do
//! It expands no macros, and chooses no universe's variant: the settings come in expanded, the variant is chosen at each question.

use super::dialect::{Rules, default_of, rules};
use crate::measure::ATTRIBUTES;
use classad::config::Dialect;
use classad::{ClassAd, Context, Expr, Nowhere, ParseError, Value, parse_whole_old_expression};
use std::sync::Arc;
use thiserror::Error;

/// A setting that is no policy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// It is no expression.
    #[error("{name} = {text}: not an expression")]
    NotAnExpression {
        /// The setting.
        name: String,
        /// Its value.
        text: String,
        /// Why.
        #[source]
        reason: ParseError,
    },
    /// It is no number.
    #[error("{name} = {text}: its value is {found}, not a number of seconds or things")]
    NotANumber {
        /// The setting.
        name: String,
        /// Its value, as it is written.
        text: String,
        /// Its value.
        found: String,
    },
    /// A share of a slot type says nothing.
    #[error(
        "{name} = {text}: {part} is no share: NAME=SHARE or SHARE makes one, which is a number, at most all of it (3/4, 75%), or auto"
    )]
    NotAShare {
        /// The setting.
        name: String,
        /// Its value.
        text: String,
        /// The part of it.
        part: String,
    },
    /// A share is one of nothing that the machine has.
    #[error(
        "{name} = {text}: there is no resource {resource}, but {}; MACHINE_RESOURCE_{resource} would say how much there is of it",
        there.join(", ")
    )]
    NoResource {
        /// The setting.
        name: String,
        /// Its value.
        text: String,
        /// Of what.
        resource: String,
        /// What there is.
        there: Vec<String>,
    },
    /// Slots have more of something than there is.
    #[error("the slots want {wanted} {resource}, and the machine has {there}")]
    TooMuch {
        /// Of what.
        resource: String,
        /// How much they want.
        wanted: String,
        /// How much there is.
        there: String,
    },
    /// Too many slots.
    #[error("{name} = {found}: at most {limit} slots")]
    TooManySlots {
        /// The setting.
        name: String,
        /// How many.
        found: i64,
        /// The limit.
        limit: i64,
    },
}

/// A configuration: the expanded value of a setting, if it has one.
pub type Settings<'s> = dyn Fn(&str) -> Option<String> + 's;

/// START of a machine that is being drained gracefully, until those who are there have left (`DEFRAG_DRAINING_START_EXPR`); none, or FALSE: no job begins.
///
/// # Errors
/// [`PolicyError::NotAnExpression`].
pub fn draining_start(settings: &Settings<'_>) -> Result<Option<Arc<Expr>>, PolicyError> {
    let reader = Reader {
        settings,
        dialect: Dialect::V25,
        slot_type: None,
    };
    let start = reader.expression("DEFRAG_DRAINING_START_EXPR")?;
    Ok(start.filter(|start| **start != Expr::from(false)))
}

/// What a job asks for that does not say so (current manual, "Defaults for Partitionable Slot Sizes"): attributes for its ad where
/// `JOB_DEFAULT_REQUESTCPUS`, `…MEMORY` and `…DISK` say something.
///
/// # Errors
/// [`PolicyError::NotAnExpression`].
pub fn job_defaults(settings: &Settings<'_>) -> Result<ClassAd, PolicyError> {
    let reader = Reader {
        settings,
        dialect: Dialect::V25,
        slot_type: None,
    };
    let mut defaults = ClassAd::new();
    for name in ["RequestCpus", "RequestMemory", "RequestDisk"] {
        let setting = format!("JOB_DEFAULT_{}", name.to_ascii_uppercase());
        if let Some(expr) = reader.expression(&setting)? {
            defaults.insert(name, expr);
        }
    }
    Ok(defaults)
}

/// A job with them.
#[must_use]
pub fn with_defaults(mut job: ClassAd, defaults: &ClassAd) -> ClassAd {
    for (name, expr) in defaults.iter() {
        if job.get(name.clone()).is_none() {
            job.insert(name.clone(), Arc::clone(expr));
        }
    }
    job
}

/// Expressions that a slot's ad has, and the attribute that each becomes.
const EXPRESSIONS: &[(&str, &str)] = &[
    ("START", "START"),
    ("SUSPEND", "SUSPEND"),
    ("CONTINUE", "CONTINUE"),
    ("PREEMPT", "PREEMPT"),
    ("KILL", "KILL"),
    ("WANT_SUSPEND", "WANT_SUSPEND"),
    ("WANT_VACATE", "WANT_VACATE"),
    ("WANT_HOLD", "WANT_HOLD"),
    ("WANT_HOLD_REASON", "WANT_HOLD_REASON"),
    ("WANT_HOLD_SUBCODE", "WANT_HOLD_SUBCODE"),
    ("PERIODIC_CHECKPOINT", "PERIODIC_CHECKPOINT"),
    ("MAXJOBRETIREMENTTIME", "MaxJobRetirementTime"),
    ("MachineMaxVacateTime", "MachineMaxVacateTime"),
    ("CLAIM_WORKLIFE", "CLAIM_WORKLIFE"),
    ("RunBenchmarks", "RunBenchmarks"),
    ("START_BACKFILL", "START_BACKFILL"),
    ("EVICT_BACKFILL", "EVICT_BACKFILL"),
    ("RANK", "Rank"),
    (
        "IS_VALID_CHECKPOINT_PLATFORM",
        "IS_VALID_CHECKPOINT_PLATFORM",
    ),
    ("SLOT_WEIGHT", "SlotWeight"),
];
/// Those of which there may be one for vanilla jobs and one for virtual machines.
const OF_A_UNIVERSE: &[&str] = &[
    "SUSPEND",
    "CONTINUE",
    "PREEMPT",
    "KILL",
    "WANT_SUSPEND",
    "WANT_VACATE",
];

/// Where there is none: 6.8's own (its section 3.5.4). It asks jobs of the standard universe only.
const VALID_PLATFORM: &str = "((TARGET.JobUniverse == 1) == FALSE) || ((MY.CheckpointPlatform =!= UNDEFINED) && \
     ((TARGET.LastCheckpointPlatform =?= MY.CheckpointPlatform) || (TARGET.NumCkpts == 0)))";

/// A machine owner's decisions, for slots of one type.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Whose rules.
    pub dialect: Dialect,
    /// The type of the slots that it is for.
    pub slot_type: Option<u32>,
    /// Its rules.
    pub rules: Rules,
    /// What slots publish of it: the expressions, and what `STARTD_ATTRS` names.
    pub attributes: ClassAd,
    /// Attributes that slots see of each other, beside State and Activity.
    pub shared: Vec<String>,
    /// Attributes of its job that a slot publishes.
    pub of_the_job: Vec<String>,
    /// Expressions whose last change is published.
    pub latches: Vec<String>,
    /// The setting that says whose the machine is.
    pub owner_setting: &'static str,
    /// Seconds; see the manual for each.
    pub match_timeout: i64,
    /// How long a job that was killed may take to be gone.
    pub killing_timeout: i64,
    /// How often a slot is looked at that has a job.
    pub polling_interval: i64,
    /// How often one is that has none.
    pub update_interval: i64,
    /// How often who has a slot says that he is there.
    pub alive_interval: i64,
    /// How often he may fail to.
    pub alives_missed: i64,
    /// How many slots see keys of the console.
    pub console_slots: u32,
    /// How many slots see keys of all terminals.
    pub keyboard_slots: u32,
    /// How long the others take the keyboard to have been idle when the machine began.
    pub disconnected_boost: i64,
    /// Whether there is a backfill command.
    pub backfills: bool,
    /// Attributes that the slot is not to have, though they are measured.
    pub withheld: Vec<String>,
    /// What the owner of the machine may not have meant.
    pub doubts: Vec<String>,
}

impl Policy {
    /// Reads it. `slot_type`: the settings `SLOT_TYPE_n_…` of slots of this type win.
    ///
    /// # Errors
    /// [`PolicyError`]: an expression that does not parse, or a number that is none.
    pub fn read(
        settings: &Settings<'_>,
        dialect: Dialect,
        slot_type: Option<u32>,
    ) -> Result<Policy, PolicyError> {
        let reader = Reader {
            settings,
            dialect,
            slot_type,
        };
        let rules = rules(dialect);
        let mut attributes = ClassAd::new();
        for (setting, attribute) in EXPRESSIONS {
            if let Some(expr) = reader.expression(setting)? {
                attributes.insert(*attribute, expr);
            }
        }
        for name in OF_A_UNIVERSE {
            for universe in ["VANILLA", "VM"] {
                let name = format!("{name}_{universe}");
                if let Some(expr) = reader.expression(&name)? {
                    attributes.insert(name.as_str(), expr);
                }
            }
        }
        if attributes.get("IS_VALID_CHECKPOINT_PLATFORM").is_none() {
            // Condor 6.1 knows no platforms, neither in its ads nor here: what cannot go on is found out by who tries.
            let usual = match dialect {
                Dialect::V6_1 => "TRUE",
                _ => VALID_PLATFORM,
            };
            let expr = reader.parse("IS_VALID_CHECKPOINT_PLATFORM", usual)?;
            attributes.insert("IS_VALID_CHECKPOINT_PLATFORM", expr);
        }
        let (owner_setting, is_owner) = whose(&reader, &rules)?;
        attributes.insert("IsOwner", is_owner);
        let busy = match reader.expression("CpuBusy")? {
            Some(expr) => Some(expr),
            None => reader.expression("CPU_BUSY")?,
        };
        attributes.insert("CpuBusy", busy.unwrap_or_else(|| Arc::new(false.into())));
        // Whose last change is published is published itself (current manual, "STARTD_LATCH_EXPRS").
        for list in ["STARTD_LATCH_EXPRS", "STARTD_ATTRS", "STARTD_EXPRS"] {
            for name in reader.names(list) {
                if let Some(expr) = reader.expression(&name)? {
                    attributes.insert(name.as_str(), expr);
                }
            }
        }
        let mut shared = vec![];
        for list in [
            "STARTD_SLOT_ATTRS",
            "STARTD_SLOT_EXPRS",
            "STARTD_VM_ATTRS",
            "STARTD_VM_EXPRS",
        ] {
            shared.extend(reader.names(list));
        }
        let mut of_the_job = vec!["ImageSize".to_owned()];
        for list in ["STARTD_JOB_ATTRS", "STARTD_JOB_EXPRS"] {
            of_the_job.extend(reader.names(list));
        }
        let connected = |name: &str, old: &str| {
            reader.slots(&[
                &format!("SLOTS_CONNECTED_TO_{name}"),
                &format!("VIRTUAL_MACHINES_CONNECTED_TO_{name}"),
                old,
            ])
        };
        let keyboard_slots = connected("KEYBOARD", "KEYBOARD_VMS")?
            .unwrap_or(rules.keyboard_slots.unwrap_or(u32::MAX));
        let console_slots = connected("CONSOLE", "CONSOLE_VMS")?.unwrap_or(u32::MAX);
        let mut doubts = deaf(&attributes, keyboard_slots, console_slots);
        doubts.extend(unheard(&reader, &attributes));
        let latches = reader.names("STARTD_LATCH_EXPRS");
        let vain = |name: &&String| !is_attribute(name, &reader, &attributes, &of_the_job);
        doubts.extend(latches.iter().filter(vain).map(|name| in_vain(name)));
        Ok(Policy {
            dialect,
            slot_type,
            rules,
            shared,
            of_the_job,
            latches,
            owner_setting,
            match_timeout: match settings("MATCH_TIMEOUT") {
                Some(_) => reader.number("MATCH_TIMEOUT")?,
                None => rules.match_timeout,
            },
            killing_timeout: reader.number("KILLING_TIMEOUT")?.max(0),
            polling_interval: reader.number("POLLING_INTERVAL")?.max(1),
            update_interval: reader.number("UPDATE_INTERVAL")?.max(1),
            alive_interval: reader.number("ALIVE_INTERVAL")?.max(1),
            alives_missed: reader.number("MAX_CLAIM_ALIVES_MISSED")?.max(1),
            console_slots,
            keyboard_slots,
            disconnected_boost: reader.number("DISCONNECTED_KEYBOARD_IDLE_BOOST")?,
            backfills: rules.backfills
                && attributes.get("START_BACKFILL").is_some()
                && reader.is_true("ENABLE_BACKFILL"),
            attributes,
            withheld: vec![],
            doubts,
        })
    }
}

/// The settings that say whose the machine is, the one that counts first.
const OWNERS: [&str; 2] = ["IS_OWNER", "IsOwner"];

/// Whose the machine is, and which setting says so: in 6.1 none does, START alone.
fn whose(reader: &Reader<'_>, rules: &Rules) -> Result<(&'static str, Arc<Expr>), PolicyError> {
    if reader.dialect != Dialect::V6_1 {
        for setting in OWNERS {
            if let Some(expr) = reader.expression(setting)? {
                return Ok((setting, expr));
            }
        }
    }
    let setting = OWNERS[0];
    Ok((setting, reader.parse(setting, rules.is_owner)?))
}

/// Whether a slot can have an attribute: of its policy, of its job, a resource, or one that is measured.
fn is_attribute(
    name: &str,
    reader: &Reader<'_>,
    attributes: &ClassAd,
    of_the_job: &[String],
) -> bool {
    let is_it = |other: &str| other.eq_ignore_ascii_case(name);
    let ends_in = |end: &str| {
        let start = name.len().checked_sub(end.len());
        start
            .and_then(|start| name.get(start..))
            .is_some_and(|tail| tail.eq_ignore_ascii_case(end))
    };
    attributes.get(name).is_some()
        || of_the_job.iter().any(|known| is_it(known))
        || ATTRIBUTES
            .iter()
            .any(|(known, _)| is_it(known) || ends_in(&format!("_{known}")))
        || reader
            .names("MACHINE_RESOURCE_NAMES")
            .iter()
            .any(|known| ends_in(known))
}

/// What is said of a latch that watches nothing.
fn in_vain(name: &str) -> String {
    format!(
        "STARTD_LATCH_EXPRS: {name} is neither a setting nor an attribute of a slot, and has no value to watch"
    )
}

/// What the dialect does not have, and what it has to be told.
fn unheard(reader: &Reader<'_>, attributes: &ClassAd) -> Vec<String> {
    let mut doubts = vec![];
    if reader.dialect == Dialect::V6_1 {
        let said = OWNERS.iter().filter(|name| reader.text(name).is_some());
        doubts.extend(said.map(|name| {
            format!(
                "{name} means nothing in 6.1: a machine is its owner's while START is locally FALSE"
            )
        }));
    }
    if attributes.get("START").is_none() {
        let dialect = reader.dialect;
        doubts.push(format!(
            "START is not defined, and {dialect} has none of its own: no job ever begins"
        ));
    }
    doubts
}

/// A policy that asks for keys in slots that hear none: `SLOTS_CONNECTED_TO_KEYBOARD` is 0 in 25, if nobody sets it.
pub(super) fn deaf(attributes: &ClassAd, keyboard_slots: u32, console_slots: u32) -> Vec<String> {
    let doubt = |attribute: &str, slots: u32, setting: &str| {
        let asks = |(name, expr): (&classad::Name, &Arc<Expr>)| {
            let is_asked = expr
                .to_string()
                .to_ascii_lowercase()
                .contains(&attribute.to_ascii_lowercase());
            is_asked.then(|| name.to_string())
        };
        let asking: Vec<String> = attributes.iter().filter_map(asks).collect();
        let asking = (slots == 0 && !asking.is_empty()).then_some(asking)?;
        Some(format!(
            "no slot with a job hears keys ({setting} = 0), and {attribute} is asked for by {}",
            asking.join(", ")
        ))
    };
    [
        doubt(
            "KeyboardIdle",
            keyboard_slots,
            "SLOTS_CONNECTED_TO_KEYBOARD",
        ),
        doubt("ConsoleIdle", console_slots, "SLOTS_CONNECTED_TO_CONSOLE"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Reads settings of one slot type.
pub(super) struct Reader<'s> {
    pub(super) settings: &'s Settings<'s>,
    pub(super) dialect: Dialect,
    pub(super) slot_type: Option<u32>,
}

impl Reader<'_> {
    /// The text of a setting.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let typed = self
            .slot_type
            .and_then(|slot_type| (self.settings)(&format!("SLOT_TYPE_{slot_type}_{name}")));
        let text = typed.or_else(|| (self.settings)(name));
        let text = text.filter(|text| !text.trim().is_empty());
        text.or_else(|| default_of(self.dialect, name).map(str::to_owned))
    }

    /// The expression of a setting.
    pub(super) fn expression(&self, name: &str) -> Result<Option<Arc<Expr>>, PolicyError> {
        match self.text(name) {
            Some(text) => self.parse(name, &text).map(Some),
            None => Ok(None),
        }
    }

    /// A text as the expression of a setting.
    pub(super) fn parse(&self, name: &str, text: &str) -> Result<Arc<Expr>, PolicyError> {
        let expr = parse_whole_old_expression(text.as_bytes());
        expr.map(Arc::new)
            .map_err(|reason| PolicyError::NotAnExpression {
                name: name.to_owned(),
                text: text.to_owned(),
                reason,
            })
    }

    /// A number: an expression of constants.
    pub(super) fn number(&self, name: &str) -> Result<i64, PolicyError> {
        Ok(self.number_if(name)?.unwrap_or(0))
    }

    /// A number, if there is one.
    pub(super) fn number_if(&self, name: &str) -> Result<Option<i64>, PolicyError> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let expr = self.parse(name, &text)?;
        let found = Context::new(&Nowhere).eval(&expr);
        match found.as_ref().ok().and_then(whole) {
            Some(number) => Ok(Some(number)),
            None => Err(PolicyError::NotANumber {
                name: name.to_owned(),
                text,
                found: match found {
                    Ok(value) => value.to_string(),
                    Err(error) => error.to_string(),
                },
            }),
        }
    }

    /// A switch: an expression of constants that is TRUE.
    pub(super) fn is_true(&self, name: &str) -> bool {
        let value = self.text(name).and_then(|text| {
            let expr = parse_whole_old_expression(text.as_bytes()).ok()?;
            Context::new(&Nowhere).eval(&expr).ok()?.truth()
        });
        value == Some(true)
    }

    fn slots(&self, names: &[&str]) -> Result<Option<u32>, PolicyError> {
        for name in names {
            if let Some(number) = self.number_if(name)? {
                return Ok(Some(u32::try_from(number.max(0)).unwrap_or(u32::MAX)));
            }
        }
        Ok(None)
    }

    /// A list of names, with commas or blanks between them.
    pub(super) fn names(&self, name: &str) -> Vec<String> {
        let text = self.text(name).unwrap_or_default();
        let names = text.split([',', ' ', '\t']).map(str::trim);
        names
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    }
}

/// The whole number that a value is, or is cut to; booleans count.
pub(super) fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(number) => Some(*number),
        Value::Boolean(truth) => Some(i64::from(*truth)),
        #[allow(clippy::cast_possible_truncation, reason = "cut, as the original does")]
        Value::Real(number) | Value::RelTime(number) if number.is_finite() => Some(*number as i64),
        _ => None,
    }
}

/// The number that a value is; booleans count.
pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        #[allow(clippy::cast_precision_loss, reason = "ranks are reals")]
        Value::Integer(number) => Some(*number as f64),
        Value::Boolean(truth) => Some(f64::from(u8::from(*truth))),
        Value::Real(number) => Some(*number),
        _ => None,
    }
}
