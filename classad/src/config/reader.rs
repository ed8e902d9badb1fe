//! Carries out the statements of a configuration, file after file.
//!
//! ```text
//! built in -> the file -> LOCAL_CONFIG_DIR -> LOCAL_CONFIG_FILE (again if it has changed) -> the environment
//!              `- include, use -'
//! ```

use super::condition::{Conditions, Turn, decide, turn};
use super::config::ConfigOptions;
use super::error::{ConfigError, Warning, WarningKind};
use super::expand::{Expander, Problem};
use super::lines::{Line, Lines};
use super::origin::{Origin, TemplateUse};
use super::sources::Sources;
use super::statement::{Include, Statement, is_name, parse};
use super::table::{Table, key};
use super::templates;
use std::cell::Cell;
use std::sync::Arc;

pub(super) type Outcome<T = ()> = Result<T, ConfigError>;

/// What reads a configuration, and what it has read.
pub(super) struct Reader<'r> {
    pub(super) table: Table,
    pub(super) sources: &'r dyn Sources,
    pub(super) options: &'r ConfigOptions,
    pub(super) work: Cell<u64>,
    pub(super) warnings: Vec<Warning>,
    /// The files and commands that were read.
    pub(super) files: Vec<String>,
    bytes: usize,
}

/// Where a text is from.
#[derive(Clone)]
pub(super) enum Place {
    File(Arc<str>),
    Template(Arc<TemplateUse>),
    BuiltIn,
}

impl Place {
    fn origin(&self, line: usize) -> Origin {
        match self {
            Self::File(path) => Origin::Line {
                path: Arc::clone(path),
                line,
            },
            Self::Template(template) => Origin::Template {
                template: Arc::clone(template),
                line,
            },
            Self::BuiltIn => Origin::Default,
        }
    }
}

/// A value of several lines that has not ended.
struct Here {
    name: String,
    tag: String,
    lines: String,
    at: Origin,
}

impl<'r> Reader<'r> {
    pub(super) fn new(sources: &'r dyn Sources, options: &'r ConfigOptions) -> Outcome<Self> {
        let prefixes = [&options.local_name, &options.subsystem];
        let prefixes = prefixes.into_iter().flatten().map(|prefix| key(prefix));
        let mut reader = Self {
            table: Table::new(prefixes.collect()),
            sources,
            options,
            work: Cell::new(0),
            warnings: vec![],
            files: vec![],
            bytes: 0,
        };
        let defaults = options.dialect.defaults();
        reader.text(defaults.as_bytes(), &Place::BuiltIn, 0)?;
        reader.table.build_in();
        let subsystem = options.subsystem.clone().unwrap_or_default();
        let local_name = options
            .local_name
            .clone()
            .unwrap_or_else(|| subsystem.clone());
        let own = [("SUBSYSTEM", subsystem), ("LOCALNAME", local_name)];
        let own = own.map(|(name, value)| (name.to_owned(), value));
        for (name, value) in sources.detected().into_iter().chain(own) {
            reader.table.set(&name, value, Origin::Detected);
        }
        reader.table.build_in();
        Ok(reader)
    }

    pub(super) fn expander(&self) -> Expander<'_> {
        Expander::new(&self.table, self.sources, &self.options.limits, &self.work)
    }

    fn version(&self) -> [u32; 3] {
        self.sources
            .version()
            .unwrap_or_else(|| self.options.dialect.version())
    }

    pub(super) fn warn(&mut self, at: Origin, kind: WarningKind) {
        self.warnings.push(Warning { at, kind });
    }

    /// The text of a statement with its macros expanded.
    fn expanded(&self, text: &str, name: &str, at: &Origin) -> Outcome<String> {
        let expanded = self.expander().expand(text);
        expanded.map_err(|problem| fault(problem, name, at))
    }

    /// Room for more bytes that are read.
    pub(super) fn take(&mut self, len: usize, what: &str, at: &Origin) -> Outcome {
        self.bytes = self.bytes.saturating_add(len);
        let limits = &self.options.limits;
        let limit = match len > limits.file_bytes {
            true => limits.file_bytes,
            false if self.bytes > limits.total_bytes => limits.total_bytes,
            false => return Ok(()),
        };
        let (at, what) = (at.clone(), what.to_owned());
        Err(ConfigError::TooLarge { at, what, limit })
    }

    pub(super) fn set(&mut self, name: &str, value: String, at: Origin) -> Outcome {
        let limits = &self.options.limits;
        let (value_bytes, total_bytes) = (limits.value_bytes, limits.total_bytes);
        let limit = if value.len() > value_bytes {
            Some(value_bytes)
        } else {
            let total = self.table.bytes().saturating_add(value.len());
            (total > total_bytes).then_some(total_bytes)
        };
        if let Some(limit) = limit {
            let what = name.to_owned();
            return Err(ConfigError::TooLarge { at, what, limit });
        }
        self.table.set(name, value, at);
        Ok(())
    }

    /// Carries out all statements of a text.
    pub(super) fn text(&mut self, text: &[u8], place: &Place, depth: usize) -> Outcome {
        let mut conditions = Conditions::default();
        let mut here: Option<Here> = None;
        for line in Lines::new(text) {
            let line = line.map_err(|no_text| ConfigError::Statement {
                at: place.origin(no_text.number),
                what: no_text.what,
                text: String::new(),
            })?;
            let at = place.origin(line.number);
            if line.ends_in_comment {
                self.warn(at.clone(), WarningKind::CommentEnds);
            }
            if line.is_comment || line.text.is_empty() {
                continue;
            }
            if let Some(open) = here.as_mut() {
                if line.text.strip_prefix('@') != Some(open.tag.as_str()) {
                    if !open.lines.is_empty() {
                        open.lines.push('\n');
                    }
                    open.lines.push_str(&line.text);
                } else if let Some(closed) = here.take() {
                    self.assign(&closed.name, &closed.lines, None, &closed.at)?;
                }
                continue;
            }
            here = self.line(&line, at, &mut conditions, depth)?;
        }
        if let Some(here) = here {
            let what = format!("{} @={}", here.name, here.tag);
            return Err(ConfigError::Unclosed { at: here.at, what });
        }
        if let Some(line) = conditions.open_line() {
            let what = "if".to_owned();
            let at = place.origin(line);
            return Err(ConfigError::Unclosed { at, what });
        }
        Ok(())
    }

    fn line(
        &mut self,
        line: &Line,
        at: Origin,
        conditions: &mut Conditions,
        depth: usize,
    ) -> Outcome<Option<Here>> {
        let mut text = line.text.as_str();
        // Condor before 8.1.5 ignored lines that begin with a colon: conditions could be hidden from it.
        if let Some(rest) = text.strip_prefix(':')
            && (conditions.depth() > 0
                || turn(rest).is_some_and(|turn| matches!(turn, Turn::If(_))))
        {
            text = rest;
        }
        if let Some(turn) = turn(text) {
            self.turn(turn, line.number, &at, conditions)?;
            return Ok(None);
        }
        if !conditions.is_on() {
            return Ok(None);
        }
        let statement = parse(text).map_err(|what| ConfigError::Statement {
            at: at.clone(),
            what,
            text: shortened(text),
        })?;
        self.carry_out(statement, at, depth)
    }

    fn turn(
        &mut self,
        turn: Turn<'_>,
        line: usize,
        at: &Origin,
        conditions: &mut Conditions,
    ) -> Outcome {
        let condition_fault = |condition: &str, what| ConfigError::Condition {
            at: at.clone(),
            condition: shortened(condition),
            what,
        };
        let decide = |condition: &str| -> Outcome<bool> {
            let has_macros = condition.contains('$');
            let expanded = match has_macros {
                true => self.expanded(condition, "if", at)?,
                false => condition.to_owned(),
            };
            let lookup = |name: &str| self.table.lookup(name).map(|entry| entry.raw.as_str());
            decide(&expanded, has_macros, self.version(), lookup)
                .map_err(|what| condition_fault(&expanded, what))
        };
        let turned = match turn {
            Turn::If(condition) => {
                let limit = self.options.limits.conditions;
                if conditions.depth() >= limit {
                    let at = at.clone();
                    return Err(ConfigError::TooDeep { at, limit });
                }
                let is_on = conditions.is_on() && decide(condition)?;
                conditions.begin(is_on, line);
                Ok(())
            }
            Turn::Elif(condition) => {
                let is_true = conditions.asks_elif() && decide(condition)?;
                conditions.elif(is_true)
            }
            Turn::Else => conditions.turn_else(),
            Turn::Endif => conditions.end(),
        };
        turned.map_err(|what| ConfigError::Statement {
            at: at.clone(),
            what,
            text: String::new(),
        })
    }

    fn carry_out(
        &mut self,
        statement: Statement<'_>,
        at: Origin,
        depth: usize,
    ) -> Outcome<Option<Here>> {
        match statement {
            Statement::Section => {}
            Statement::Assign {
                name,
                value,
                append,
                is_colon,
                stray,
            } => {
                let name = self.name(name, &at)?;
                if !stray.is_empty() {
                    let words = stray.to_owned();
                    self.warn(at.clone(), WarningKind::Stray { words });
                }
                // The files that Condor came with had it for this one for long.
                let is_usual = name.eq_ignore_ascii_case("RunBenchmarks");
                if is_colon && !is_usual && self.options.dialect.warns_of_colons() {
                    let name = name.clone();
                    self.warn(at.clone(), WarningKind::Colon { name });
                }
                self.assign(&name, value, append.as_deref(), &at)?;
            }
            Statement::Here { name, tag } => {
                return Ok(Some(Here {
                    name: self.name(name, &at)?,
                    tag: tag.to_owned(),
                    lines: String::new(),
                    at,
                }));
            }
            Statement::Error { code, message } => {
                let message = self.expanded(message, "error", &at)?;
                return Err(ConfigError::Stopped { at, code, message });
            }
            Statement::Warning { message } => {
                let message = self.expanded(message, "warning", &at)?;
                self.warn(at, WarningKind::Said { message });
            }
            Statement::Use { category, names } => {
                self.use_templates(category, names, &at, depth)?
            }
            Statement::Include(include) => self.include(include, &at, depth)?,
        }
        Ok(None)
    }

    /// A name, whose macros are expanded.
    fn name(&self, text: &str, at: &Origin) -> Outcome<String> {
        let name = match text.contains('$') {
            true => self.expanded(text, text, at)?,
            false => text.to_owned(),
        };
        match is_name(&name) {
            true => Ok(name),
            false => Err(ConfigError::Name {
                at: at.clone(),
                name: shortened(&name),
            }),
        }
    }

    fn assign(&mut self, name: &str, value: &str, append: Option<&str>, at: &Origin) -> Outcome {
        let mut expander = self.expander();
        let value = expander.expand_self(value, name);
        let undefined = std::mem::take(&mut expander.undefined);
        let mut value = value.map_err(|problem| fault(problem, name, at))?;
        if let Some(macro_name) = undefined.into_iter().next()
            && *at != Origin::Default
        {
            let name = name.to_owned();
            self.warn(at.clone(), WarningKind::Undefined { name, macro_name });
        }
        if let Some(separator) = append
            && let Some(old) = self.table.exact(&key(name))
            && !old.raw.is_empty()
        {
            value = [old.raw.as_str(), separator, &value].concat();
        }
        self.set(name, value, at.clone())
    }

    fn check_depth(&self, depth: usize, at: &Origin) -> Outcome {
        let limit = self.options.limits.nesting;
        match depth >= limit {
            true => Err(ConfigError::TooDeep {
                at: at.clone(),
                limit,
            }),
            false => Ok(()),
        }
    }

    fn use_templates(&mut self, category: &str, names: &str, at: &Origin, depth: usize) -> Outcome {
        self.check_depth(depth + 1, at)?;
        let category = self.expanded(category, "use", at)?;
        let missing = |name: &str| ConfigError::Template {
            at: at.clone(),
            category: shortened(&category),
            name: shortened(name),
        };
        if !templates::has_category(&category) {
            return Err(missing(names));
        }
        for (name, arguments) in templates::names(names) {
            let template = templates::find(&category, name).ok_or_else(|| missing(name))?;
            let limit = self.options.limits.value_bytes;
            let filled = templates::fill(template.text, arguments, limit);
            let Some(filled) = filled else {
                let (at, what) = (at.clone(), name.to_owned());
                return Err(ConfigError::TooLarge { at, what, limit });
            };
            self.take(filled.len(), name, at)?;
            let place = Place::Template(Arc::new(TemplateUse {
                category: template.category,
                name: template.name,
                used: at.clone(),
            }));
            self.text(filled.as_bytes(), &place, depth + 1)?;
        }
        Ok(())
    }

    fn include(&mut self, include: Include<'_>, at: &Origin, depth: usize) -> Outcome {
        let what = self.expanded(include.what, "include", at)?;
        let into = include
            .into
            .map(|into| self.expanded(into, "include", at))
            .transpose()?;
        let read = match &into {
            None => self.read(&what, include.is_command, at),
            Some(into) => match self.sources.read(into) {
                Ok(bytes) => Ok((bytes, into.clone())),
                Err(_) => self.read_into(&what, include.is_command, into, at),
            },
        };
        let (bytes, name) = match read {
            Ok(read) => read,
            Err(_) if include.if_exists => return Ok(()),
            Err(reason) => {
                let at = at.clone();
                return Err(ConfigError::Unreadable { at, what, reason });
            }
        };
        self.check_depth(depth + 1, at)?;
        self.take(bytes.len(), &name, at)?;
        self.file(&bytes, &name, depth + 1)
    }
}

/// A text that is not too long to be shown.
fn shortened(text: &str) -> String {
    const MOST: usize = 120;
    match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{} …", &text[..at]),
        None => text.to_owned(),
    }
}

/// A problem with the value of a name.
pub(super) fn fault(problem: Problem, name: &str, at: &Origin) -> ConfigError {
    let (at, name) = (at.clone(), shortened(name));
    match problem {
        Problem::Circle(circle) => ConfigError::Circle { at, name, circle },
        Problem::Function { function, what } => ConfigError::Function {
            at,
            name,
            function: shortened(&function),
            what: shortened(&what),
        },
        Problem::Exhausted => ConfigError::Function {
            at,
            name,
            function: "$(…)".to_owned(),
            what: "this and what was before it take too long".to_owned(),
        },
        Problem::TooLarge { limit } => ConfigError::TooLarge {
            at,
            what: name,
            limit,
        },
    }
}
