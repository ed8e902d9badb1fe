//! A configuration that was read.

use super::dialect::Dialect;
use super::doubts::doubts;
use super::error::{ConfigError, Warning, WarningKind};
use super::expand::{Expander, Problem};
use super::kinds::{self, kind_of};
use super::limits::ConfigLimits;
use super::macros::next_macro;
use super::origin::Origin;
use super::policy;
use super::reader::{Place, Reader, fault};
use super::sources::Sources;
use super::submit::{self, SubmitPolicy};
use super::table::{Entry, Table, key};
use crate::Expr;
use crate::parser::parse_whole_old_expression;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

/// What expanding one name may look at when all that may be looked at is used up; and all of those together.
const OWN_WORK: u64 = 256 << 10;
const MORE_WORK: u64 = 64 << 20;

/// How a configuration is read.
#[derive(Clone, Debug)]
pub struct ConfigOptions {
    /// What is built in.
    pub dialect: Dialect,
    /// Whose configuration it is: `STARTD.NAME` is stronger than `NAME` for `STARTD`.
    pub subsystem: Option<String>,
    /// The same for one of several of its kind; the strongest.
    pub local_name: Option<String>,
    /// What it may cost.
    pub limits: ConfigLimits,
}

impl Default for ConfigOptions {
    fn default() -> Self {
        Self {
            dialect: Dialect::default(),
            subsystem: Some("STARTD".to_owned()),
            local_name: None,
            limits: ConfigLimits::default(),
        }
    }
}

/// A name with its value.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'c> {
    /// The name as it was written first.
    pub name: &'c str,
    /// The value as it was written, but for references to itself.
    pub raw: &'c str,
    /// The value with its macros expanded; none where that is not possible.
    pub value: Option<&'c str>,
    /// Where it is from.
    pub origin: &'c Origin,
    /// No file has set it.
    pub is_built_in: bool,
}

/// Names and values: what files, templates and the environment have set, above what is built in.
///
/// Macros are expanded once, when it is read: `$RANDOM_CHOICE(…)` has chosen then.
///
/// ```
/// use classad::Nowhere;
/// use classad::config::{Config, ConfigOptions};
///
/// let text = "
///     use POLICY : ALWAYS_RUN_JOBS
///     START = ($(START)) && KeyboardIdle > $(StartIdleTime)
///     WANT_VACATE_VM = False
/// ";
/// let config = Config::parse(text, &Nowhere, &ConfigOptions::default())?;
/// assert_eq!(config.get("start").as_deref(), Some("(True) && KeyboardIdle > 15 * 60"));
/// assert_eq!(config.get_for_universe("WANT_VACATE", 13).as_deref(), Some("False"));
/// assert_eq!(config.get_for_universe("WANT_VACATE", 5).as_deref(), Some("True"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Config {
    table: Table,
    /// By key.
    values: BTreeMap<String, String>,
    warnings: Vec<Warning>,
    faults: Vec<ConfigError>,
    files: Vec<String>,
    dialect: Dialect,
}

impl Config {
    /// Reads a file, then the local ones that it names.
    ///
    /// # Errors
    /// The first [`ConfigError`] that is met.
    pub fn read(
        path: &str,
        sources: &dyn Sources,
        options: &ConfigOptions,
    ) -> Result<Self, ConfigError> {
        Self::examine(path, sources, options)?.sound()
    }

    /// The same with a text instead of a file; errors call it `-`.
    ///
    /// # Errors
    /// The first [`ConfigError`] that is met.
    pub fn parse(
        text: impl AsRef<[u8]>,
        sources: &dyn Sources,
        options: &ConfigOptions,
    ) -> Result<Self, ConfigError> {
        Self::examine_text(text, sources, options)?.sound()
    }

    /// Reads a file, and goes on where only a value is of no use: [`Self::faults`] has these.
    ///
    /// # Errors
    /// A [`ConfigError`] of a statement, or of a file.
    pub fn examine(
        path: &str,
        sources: &dyn Sources,
        options: &ConfigOptions,
    ) -> Result<Self, ConfigError> {
        let mut reader = Reader::new(sources, options)?;
        reader.root(path)?;
        Self::finish(reader)
    }

    /// The same with a text.
    ///
    /// # Errors
    /// A [`ConfigError`] of a statement, or of a file.
    pub fn examine_text(
        text: impl AsRef<[u8]>,
        sources: &dyn Sources,
        options: &ConfigOptions,
    ) -> Result<Self, ConfigError> {
        let mut reader = Reader::new(sources, options)?;
        reader.text(text.as_ref(), &Place::File("-".into()), 0)?;
        Self::finish(reader)
    }

    fn finish(mut reader: Reader<'_>) -> Result<Self, ConfigError> {
        reader.locals()?;
        let mut values = BTreeMap::new();
        let mut faults = vec![];
        let mut undefined = vec![];
        // Those who only refer to a circle: they are not to blame if somebody in it is.
        let mut victims: Vec<(Vec<String>, &Entry)> = vec![];
        // Those that cost too much: where one is in another's value, the other is not to blame.
        let mut costly: Vec<Costly<'_>> = vec![];
        let limits = &reader.options.limits;
        let mut bytes = 0_usize;
        let more = Cell::new(0);
        for (key, entry, is_built_in) in reader.table.entries() {
            if submit::waits_for_jobs(key, &entry.raw) {
                values.insert(key.clone(), entry.raw.clone());
                continue;
            }
            let own = Cell::new(0);
            let mut expander = Expander::new(&reader.table, reader.sources, limits, &reader.work);
            let mut expanded = expander.value(key, &entry.raw);
            let mut is_late = false;
            if expanded == Err(Problem::Exhausted) && more.get() < MORE_WORK {
                // Others have taken what all may take: what takes little by itself has it.
                is_late = more.get() > 0;
                own.set(limits.work_bytes.saturating_sub(OWN_WORK));
                let begun = own.get();
                expander = Expander::new(&reader.table, reader.sources, limits, &own);
                expanded = expander.value(key, &entry.raw);
                more.set(more.get().saturating_add(own.get() - begun));
            }
            let undefined_here = std::mem::take(&mut expander.undefined);
            match expanded {
                Ok(value) => {
                    bytes = bytes.saturating_add(value.len());
                    if bytes > limits.total_bytes {
                        let (at, what) = (entry.origin.clone(), entry.name.clone());
                        let limit = limits.total_bytes;
                        return Err(ConfigError::TooLarge { at, what, limit });
                    }
                    values.insert(key.clone(), value);
                }
                Err(Problem::Circle(circle)) if !circle.contains(&entry.name) => {
                    victims.push((circle, entry));
                }
                Err(problem @ (Problem::Exhausted | Problem::TooLarge { .. })) => {
                    let (name, at) = (&entry.name, &entry.origin);
                    costly.push(Costly {
                        key,
                        fault: fault(problem, name, at),
                        is_late,
                    });
                }
                Err(problem) => faults.push(fault(problem, &entry.name, &entry.origin)),
            }
            if !is_built_in {
                let mut names = undefined_here;
                names.sort();
                names.dedup();
                undefined.extend(names.into_iter().map(|macro_name| Warning {
                    at: entry.origin.clone(),
                    kind: WarningKind::Undefined {
                        name: entry.name.clone(),
                        macro_name,
                    },
                }));
            }
        }
        faults.extend(to_blame(costly, &reader.table));
        let named: Vec<&str> = faults.iter().filter_map(ConfigError::name).collect();
        victims.retain(|(circle, _)| !circle.iter().any(|name| named.contains(&name.as_str())));
        let faulty = |(circle, entry): (_, &Entry)| {
            fault(Problem::Circle(circle), &entry.name, &entry.origin)
        };
        let blamed: Vec<ConfigError> = victims.into_iter().map(faulty).collect();
        faults.extend(blamed);
        for (key, entry, _) in reader.table.entries() {
            // A number that is empty is what is built in, as in the original.
            let bare = reader.table.without_prefix(key).unwrap_or(key);
            let is_empty = values.get(key).is_some_and(|value| value.trim().is_empty());
            if is_empty
                && kind_of(bare).is_some()
                && let Some(built_in) = reader.table.built_in(bare)
            {
                let own = Cell::new(0);
                let mut expander = Expander::new(&reader.table, reader.sources, limits, &own);
                match expander.value(bare, &built_in.raw) {
                    Ok(value) => drop(values.insert(key.clone(), value)),
                    Err(problem) => faults.push(fault(problem, &entry.name, &entry.origin)),
                }
            }
        }
        reader.warnings.extend(undefined);
        let mut config = Self {
            table: reader.table,
            values,
            warnings: reader.warnings,
            faults,
            files: reader.files,
            dialect: reader.options.dialect,
        };
        config.check_expressions();
        let doubts = doubts(&config);
        config.warnings.extend(doubts);
        let (_, faults) = SubmitPolicy::examine(&config);
        // That of an expression is known already.
        let of_submit = |fault: &ConfigError| matches!(fault, ConfigError::Submit { .. });
        let faults: Vec<ConfigError> = faults.into_iter().filter(of_submit).collect();
        config.faults.extend(faults);
        Ok(config)
    }

    /// Values that have to be expressions are, and those that have to be numbers or truths.
    fn check_expressions(&mut self) {
        let keys = self.table.entries().map(|(key, _, _)| key.as_str());
        let listed = policy::listed_expressions(|name| self.get(name), keys);
        let (mut faults, mut warnings) = (vec![], vec![]);
        for (key, entry, _) in self.table.entries() {
            let bare = self.table.without_prefix(key).unwrap_or(key);
            let kind = kind_of(bare);
            if kind.is_none() && !policy::is_expression(bare) && !listed.contains(bare) {
                continue;
            }
            let expr = match self.values.get(key).map(|value| parsed(entry, value)) {
                Some(Ok(Some(expr))) => expr,
                Some(Err(error)) => {
                    faults.push(error);
                    continue;
                }
                Some(Ok(None)) | None => continue,
            };
            let Some(kind) = kind else {
                continue;
            };
            let text = self.values.get(key).map_or("", String::as_str);
            faults.extend(kind.check(entry, text, &expr).err());
            if kind == kinds::Kind::Seconds
                && let Some(reference) = kinds::lone_name(&expr)
                && !listed.contains(&reference.to_ascii_lowercase())
            {
                let (at, name) = (entry.origin.clone(), entry.name.clone());
                let kind = WarningKind::LoneName { name, reference };
                warnings.push(Warning { at, kind });
            }
        }
        self.faults.extend(faults);
        self.warnings.extend(warnings);
    }

    /// This, if there is no fault in it.
    ///
    /// # Errors
    /// The first of [`Self::faults`].
    pub fn sound(mut self) -> Result<Self, ConfigError> {
        match self.faults.is_empty() {
            true => Ok(self),
            false => Err(self.faults.remove(0)),
        }
    }

    /// The value of a name, with macros expanded; none: it is not defined, empty, or of no use.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<String> {
        self.value(name).map(str::to_owned)
    }

    fn value(&self, name: &str) -> Option<&str> {
        let (key, _) = self.table.resolve(name)?;
        let value = self.values.get(&key).map(String::as_str);
        value.filter(|value| !value.is_empty())
    }

    /// The value of a name for jobs of a universe: that of `NAME_VANILLA` for 5, of `NAME_VM` for 13, else of `NAME`.
    ///
    /// Whoever evaluates it takes [`Self::get`] where this is UNDEFINED or ERROR (6.8 manual, 3.5.6, "the vanilla
    /// expressions").
    #[must_use]
    pub fn get_for_universe(&self, name: &str, universe: i64) -> Option<String> {
        let own = policy::suffix(universe).and_then(|suffix| self.get(&format!("{name}{suffix}")));
        own.or_else(|| self.get(name))
    }

    /// The values that may decide for jobs of a universe, the first first: what comes behind a value is asked where it is
    /// UNDEFINED or ERROR.
    #[must_use]
    pub fn choices_for_universe(&self, name: &str, universe: i64) -> Vec<String> {
        let own = policy::suffix(universe).and_then(|suffix| self.get(&format!("{name}{suffix}")));
        own.into_iter().chain(self.get(name)).collect()
    }

    /// The value of a name as an expression, in the old syntax; none: it has no value.
    ///
    /// # Errors
    /// [`ConfigError::Expression`] if it is none.
    pub fn expression(&self, name: &str) -> Result<Option<Expr>, ConfigError> {
        let Some((key, entry)) = self.table.resolve(name) else {
            return Ok(None);
        };
        self.values
            .get(&key)
            .map_or(Ok(None), |value| parsed(entry, value))
    }

    /// What is wanted of jobs that are handed in.
    ///
    /// # Errors
    /// [`ConfigError::Submit`] or [`ConfigError::Expression`] of the first that is of no use.
    pub fn submit_policy(&self) -> Result<SubmitPolicy<'_>, ConfigError> {
        let (policy, faults) = SubmitPolicy::examine(self);
        match faults.into_iter().next() {
            Some(fault) => Err(fault),
            None => Ok(policy),
        }
    }

    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    /// All names that are defined, in their order, also those that are built in.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .table
            .entries()
            .map(|(_, entry, _)| entry.name.as_str())
            .collect();
        names.sort_by_key(|name| key(name));
        names
    }

    /// A name with its value, and where it is from.
    #[must_use]
    pub fn setting(&self, name: &str) -> Option<Setting<'_>> {
        let (key, _) = self.table.resolve(name)?;
        self.settings()
            .into_iter()
            .find(|setting| setting.name.eq_ignore_ascii_case(&key))
    }

    /// All names with their values, in the order of the names.
    #[must_use]
    pub fn settings(&self) -> Vec<Setting<'_>> {
        let mut settings: Vec<Setting<'_>> = self
            .table
            .entries()
            .map(|(key, entry, is_built_in)| Setting {
                name: &entry.name,
                raw: &entry.raw,
                value: self.values.get(key).map(String::as_str),
                origin: &entry.origin,
                is_built_in,
            })
            .collect();
        settings.sort_by_key(|setting| key(setting.name));
        settings
    }

    /// What is probably not meant.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Values that are of no use.
    #[must_use]
    pub fn faults(&self) -> &[ConfigError] {
        &self.faults
    }

    /// The files and commands that it was read from, in their order.
    #[must_use]
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// For which Condor it was read.
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }
}

/// A name whose value costs more than it may.
struct Costly<'t> {
    key: &'t str,
    fault: ConfigError,
    /// It had only what is left for those that come when all is used up.
    is_late: bool,
}

/// Those to blame: not those that only have another's value in theirs, nor those that had little left because of one whose value has theirs.
fn to_blame(costly: Vec<Costly<'_>>, table: &Table) -> Vec<ConfigError> {
    let (late, early): (Vec<_>, Vec<_>) = costly.into_iter().partition(|one| one.is_late);
    let keys: BTreeSet<String> = early.iter().map(|one| one.key.to_owned()).collect();
    let mut blamed: Vec<(BTreeSet<String>, Costly<'_>)> = vec![];
    for one in early {
        let within = names_within(one.key, table);
        if within.is_disjoint(&keys) {
            blamed.push((within, one));
        }
    }
    for one in late {
        let within = names_within(one.key, table);
        let is_related = blamed
            .iter()
            .any(|(others, other)| within.contains(other.key) || others.contains(one.key));
        if !is_related {
            blamed.push((within, one));
        }
    }
    blamed.into_iter().map(|(_, one)| one.fault).collect()
}

/// The keys that the value of a key refers to, over others too; itself is none of them.
fn names_within(own: &str, table: &Table) -> BTreeSet<String> {
    let mut within = BTreeSet::new();
    let mut open = vec![own.to_owned()];
    while let Some(next) = open.pop() {
        let raw = table.exact(&next).map_or("", |entry| entry.raw.as_str());
        let mut from = 0;
        while let Some(found) = next_macro(raw, from, |_| true) {
            let (name, _) = found.name_and_default();
            from = found.end;
            if let Some((name, _)) = table.resolve(name)
                && name != own
                && within.insert(name.clone())
            {
                open.push(name);
            }
        }
    }
    within
}

/// A value as an expression. What is empty is none; what waits for a job (`$$(…)`) cannot be looked at yet.
fn parsed(entry: &Entry, value: &str) -> Result<Option<Expr>, ConfigError> {
    if value.trim().is_empty() || value.contains("$$(") {
        return Ok(None);
    }
    let expr = parse_whole_old_expression(value.as_bytes());
    expr.map(Some).map_err(|reason| ConfigError::Expression {
        at: entry.origin.clone(),
        name: entry.name.clone(),
        text: value.to_owned(),
        reason: Box::new(reason),
    })
}
