//! A job file: a submit description, or a job's ad in the old syntax.
//!
//! ```text
//! executable = sim                      Cmd = "/home/ann/sim"
//! arguments  = "-n 'a b'"               Arguments = "-n 'a b'"
//! request_memory = 2G                   RequestMemory = 2048
//! +Project = "p"                        Project = "p"
//! queue
//!        `──────────────── ad ──────────────┘──> Spec
//! ```
//! A file with `executable` is a submit description (current manual, "condor_submit"), one with `Cmd` is an ad. What is kept in the
//! queue is always an ad.
//!
//! # What callers may rely on
//! What is wrong is an error with file and line; no bytes make it panic.
//! # What it does not do
//! It expands no macros, and queues one job of a file. Commands about a file transfer, a log or a mail mean nothing here: they are named.

use super::words::{
    attribute_of, pairs, plain_words, quoted_words, truth, variables, with_unit, words_of,
};
use crate::classad::arguments as joined;
use classad::{
    ClassAd, Context, Expr, Name, Nowhere, ParseError, Value, parse_whole_old_expression,
};
use starter::machine::resource_of;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The longest file.
pub(crate) const MOST_BYTES: usize = 1 << 20;
/// Universes that a job can say.
const STANDARD: i64 = 1;
const VANILLA: i64 = 5;

/// Why a file is no job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum JobFileError {
    /// A line means nothing.
    #[error("{file}:{line}: {why}")]
    Line {
        file: String,
        line: usize,
        why: String,
    },
    /// A value is no expression.
    #[error("{file}:{line}: {name} = {text}: not an expression")]
    NotAnExpression {
        file: String,
        line: usize,
        name: String,
        text: String,
        #[source]
        reason: Box<ParseError>,
    },
    /// Something is missing in it.
    #[error("{file}: {why}")]
    File { file: String, why: String },
}

/// A job, as it was handed in.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// All that was said, and what is usual where nothing was.
    pub(crate) ad: ClassAd,
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    /// Where it begins.
    pub(crate) directory: PathBuf,
    pub(crate) input: Option<PathBuf>,
    pub(crate) output: Option<PathBuf>,
    pub(crate) errors: Option<PathBuf>,
    /// None: that of whoever starts it.
    pub(crate) environment: Option<Vec<(OsString, OsString)>>,
    /// What it changes in files is undone with it.
    pub(crate) journal: bool,
}

/// What was read, and what of it means nothing here.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) spec: Spec,
    pub(crate) ignored: Vec<String>,
    /// What may not be meant so, each with file and line.
    pub(crate) warnings: Vec<String>,
    /// What it asks for is no number: no slot would take it.
    pub(crate) request: Option<JobFileError>,
}

/// Where it is handed in.
#[derive(Debug)]
pub(crate) struct Surrounding {
    /// For what is said without a directory.
    pub(crate) directory: PathBuf,
    /// For `getenv`.
    pub(crate) environment: Vec<(OsString, OsString)>,
}

/// A line, with what continues it.
struct Line {
    number: usize,
    name: String,
    value: String,
    is_attribute: bool,
}

struct Reader<'f> {
    file: &'f str,
    /// Where attributes are from.
    lines: BTreeMap<Name, usize>,
    ad: ClassAd,
    ignored: Vec<String>,
    warnings: Vec<String>,
}

/// Reads a job file of this name.
///
/// # Errors
/// [`JobFileError`].
pub(crate) fn read(file: &str, bytes: &[u8], around: &Surrounding) -> Result<Read, JobFileError> {
    let mut reader = Reader {
        file,
        lines: BTreeMap::new(),
        ad: ClassAd::new(),
        ignored: vec![],
        warnings: vec![],
    };
    if bytes.len() > MOST_BYTES {
        return Err(reader.whole(format!("more than {MOST_BYTES} bytes")));
    }
    let (lines, is_queued) = reader.lines_of(bytes)?;
    reader.find_doubles(&lines);
    let has = |wanted: &str| {
        let mut lines = lines.iter().filter(|line| !line.is_attribute);
        lines.any(|line| line.name.eq_ignore_ascii_case(wanted))
    };
    match (has("executable"), has("cmd")) {
        (true, false) => {
            if !is_queued {
                let last = lines.last().map_or(0, |line| line.number);
                let warning = "no `queue` behind it; one job is queued";
                reader.warn(last, warning);
            }
            reader.description(lines, around)?;
        }
        (false, true) => reader.ad_lines(lines)?,
        (true, true) => {
            return Err(
                reader.whole("both `executable` (a submit description) and `Cmd` (an ad)".into())
            );
        }
        (false, false) => {
            return Err(reader.whole(
                "neither `executable = PROGRAM` (a submit description) nor `Cmd = \"PROGRAM\"` (an ad)".into(),
            ));
        }
    }
    let request = reader.requests().err();
    let spec = reader.spec(around)?;
    Ok(Read {
        spec,
        ignored: reader.ignored,
        warnings: reader.warnings,
        request,
    })
}

impl Reader<'_> {
    fn whole(&self, why: String) -> JobFileError {
        let file = self.file.to_owned();
        JobFileError::File { file, why }
    }

    fn at(&self, line: usize, why: impl Into<String>) -> JobFileError {
        JobFileError::Line {
            file: self.file.to_owned(),
            line,
            why: why.into(),
        }
    }

    fn warn(&mut self, line: usize, why: &str) {
        self.warnings.push(format!("{}:{line}: {why}", self.file));
    }

    /// What is said twice counts as it is said last, as in the original; which may not be meant.
    fn find_doubles(&mut self, lines: &[Line]) {
        let mut known: BTreeMap<String, usize> = BTreeMap::new();
        for line in lines {
            let name = match attribute_of(&line.name.to_ascii_lowercase()) {
                Some(attribute) if !line.is_attribute => attribute,
                _ => line.name.clone(),
            };
            if let Some(before) = known.insert(name.to_ascii_lowercase(), line.number) {
                let name = &line.name;
                let why = format!("`{name}` again: what line {before} says is left out");
                self.warn(line.number, &why);
            }
        }
    }

    /// What it asks for, as far as it can be said without a machine, is a number.
    fn requests(&self) -> Result<(), JobFileError> {
        for (name, _) in self.ad.iter() {
            let name = name.to_string();
            if resource_of(&name).is_none() {
                continue;
            }
            match self.value(&name) {
                Value::Undefined | Value::Boolean(_) => {}
                Value::Integer(number) if number >= 0 => {}
                Value::Real(number) if number.is_finite() && number >= 0.0 => {}
                found => {
                    let why =
                        format!("{name}: found {found}, expected a number that is not negative");
                    return Err(self.at(self.line_of(&name), why));
                }
            }
        }
        Ok(())
    }

    /// The lines, but for `queue`; and whether that is there.
    fn lines_of(&self, bytes: &[u8]) -> Result<(Vec<Line>, bool), JobFileError> {
        let mut lines = vec![];
        let mut queue: Option<usize> = None;
        let mut begun: Option<(usize, String)> = None;
        let mut number = 0;
        for raw in bytes.split(|byte| *byte == b'\n') {
            number += 1;
            let text = std::str::from_utf8(raw).map_err(|_| self.at(number, "not UTF-8"))?;
            let text = text.trim();
            if text.contains('\0') {
                return Err(self.at(number, "a byte 0"));
            }
            let (first, mut whole) = match begun.take() {
                Some(begun) => begun,
                None if text.is_empty() || text.starts_with('#') => continue,
                None => (number, String::new()),
            };
            if let Some(part) = text.strip_suffix('\\') {
                whole.push_str(part);
                begun = Some((first, whole));
                continue;
            }
            whole.push_str(text);
            self.add(first, &whole, &mut lines, &mut queue)?;
        }
        if let Some((first, whole)) = begun {
            self.add(first, &whole, &mut lines, &mut queue)?;
        }
        Ok((lines, queue.is_some()))
    }

    fn add(
        &self,
        number: usize,
        text: &str,
        lines: &mut Vec<Line>,
        queue: &mut Option<usize>,
    ) -> Result<(), JobFileError> {
        let line = self.line(number, text)?;
        match (*queue, &line) {
            (None, None) => *queue = Some(number),
            (None, Some(_)) => {}
            (Some(before), None) => {
                let why =
                    format!("`queue` again, as in line {before}: one job of a file is queued");
                return Err(self.at(number, why));
            }
            (Some(before), Some(line)) => {
                let why = format!(
                    "`{}` is behind `queue` in line {before}, and would change no job",
                    line.name
                );
                return Err(self.at(number, why));
            }
        }
        lines.extend(line);
        Ok(())
    }

    fn line(&self, number: usize, text: &str) -> Result<Option<Line>, JobFileError> {
        let mut words = text.split_ascii_whitespace();
        if words
            .next()
            .is_some_and(|word| word.eq_ignore_ascii_case("queue"))
            && !text.contains('=')
        {
            return match (words.next(), words.next()) {
                (None | Some("1"), None) => Ok(None),
                _ => Err(self.at(
                    number,
                    format!("`{text}`: one job of a file is queued, expected `queue`"),
                )),
            };
        }
        let Some((name, value)) = text.split_once('=') else {
            return Err(self.at(number, format!("found `{text}`, expected NAME = VALUE")));
        };
        let name = name.trim();
        let (name, is_attribute) = match name.strip_prefix('+') {
            Some(name) => (name.trim(), true),
            None => match name.split_at_checked(3) {
                Some((prefix, rest)) if prefix.eq_ignore_ascii_case("my.") => (rest, true),
                _ => (name, false),
            },
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "_.".contains(c);
        let begins = name.chars().next().is_some_and(|c| !c.is_ascii_digit());
        if !begins || !name.chars().all(plain) {
            return Err(self.at(number, format!("`{name}` is no name")));
        }
        if value.contains("$(") {
            return Err(self.at(number, "macros, `$(…)`, are not expanded in job files"));
        }
        Ok(Some(Line {
            number,
            name: name.to_owned(),
            value: value.trim().to_owned(),
            is_attribute,
        }))
    }

    fn put(&mut self, line: usize, name: &str, value: impl Into<Arc<Expr>>) {
        self.lines.insert(Name::from(name), line);
        self.ad.insert(name, value);
    }

    fn expression(&mut self, line: &Line, attribute: &str, text: &str) -> Result<(), JobFileError> {
        let expr = parse_whole_old_expression(text.as_bytes()).map_err(|reason| {
            JobFileError::NotAnExpression {
                file: self.file.to_owned(),
                line: line.number,
                name: line.name.clone(),
                text: text.to_owned(),
                reason: Box::new(reason),
            }
        })?;
        self.put(line.number, attribute, expr);
        Ok(())
    }

    fn ad_lines(&mut self, lines: Vec<Line>) -> Result<(), JobFileError> {
        for line in &lines {
            self.expression(line, &line.name, &line.value)?;
        }
        Ok(())
    }

    /// A submit description, as the ad that it means.
    fn description(&mut self, lines: Vec<Line>, around: &Surrounding) -> Result<(), JobFileError> {
        let mut environment = None;
        let mut gets_all = false;
        for line in &lines {
            if line.is_attribute {
                self.expression(line, &line.name, &line.value)?;
                continue;
            }
            let (number, value) = (line.number, line.value.as_str());
            match line.name.to_ascii_lowercase().as_str() {
                "executable" => self.put(number, "Cmd", Expr::string(value)),
                "arguments" | "args" => {
                    let words = words_of(value).map_err(|why| self.at(number, why))?;
                    self.put(number, "Arguments", Expr::string(joined(&words).as_str()));
                }
                "environment" | "env" => {
                    environment = Some((
                        number,
                        variables(value).map_err(|why| self.at(number, why))?,
                    ));
                }
                "getenv" => {
                    gets_all =
                        truth(value).ok_or_else(|| self.at(number, "expected true or false"))?;
                }
                "initialdir" | "initial_dir" | "iwd" => {
                    self.put(number, "Iwd", Expr::string(value))
                }
                "input" | "stdin" => self.put(number, "In", Expr::string(value)),
                "output" | "stdout" => self.put(number, "Out", Expr::string(value)),
                "error" | "stderr" => self.put(number, "Err", Expr::string(value)),
                "universe" => {
                    let universe = match value.to_ascii_lowercase().as_str() {
                        "standard" => STANDARD,
                        "vanilla" => VANILLA,
                        _ => {
                            let why = format!("universe {value}: expected standard or vanilla");
                            return Err(self.at(number, why));
                        }
                    };
                    self.put(number, "JobUniverse", Expr::from(universe));
                }
                "request_memory" => match with_unit(value, 20) {
                    Some(mib) => self.put(number, "RequestMemory", Expr::from(mib)),
                    None => self.expression(line, "RequestMemory", value)?,
                },
                "request_disk" => match with_unit(value, 10) {
                    Some(kib) => self.put(number, "RequestDisk", Expr::from(kib)),
                    None => self.expression(line, "RequestDisk", value)?,
                },
                name => match attribute_of(name) {
                    Some(attribute) => {
                        self.expression(line, &attribute, value)?;
                        self.check_whole(line, &attribute)?;
                    }
                    None => self.ignored.push(line.name.clone()),
                },
            }
        }
        let kept = |name: &OsString| {
            const USUAL: [&str; 8] = [
                "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR",
            ];
            let is_usual = |name: &str| USUAL.contains(&name) || name.starts_with("LC_");
            gets_all || name.to_str().is_some_and(is_usual)
        };
        let mut all: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in around.environment.iter().filter(|(name, _)| kept(name)) {
            match (name.to_str(), value.to_str()) {
                (Some(name), Some(value)) if !value.contains('\n') => {
                    all.insert(name.to_owned(), value.to_owned());
                }
                _ => self.ignored.push(format!("${}", name.to_string_lossy())),
            }
        }
        let (number, said) = environment.unwrap_or((0, vec![]));
        all.extend(said);
        let words: Vec<String> = all
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        self.put(number, "Environment", Expr::string(joined(&words).as_str()));
        Ok(())
    }

    /// What only a number can be is one.
    fn check_whole(&self, line: &Line, attribute: &str) -> Result<(), JobFileError> {
        if !matches!(attribute, "JobPrio" | "KillSigTimeout" | "ImageSize") {
            return Ok(());
        }
        match self.value(attribute) {
            Value::Integer(_) => Ok(()),
            found => {
                let (name, text) = (&line.name, &line.value);
                let why = format!("{name} = {text}: found {found}, expected a whole number");
                Err(self.at(line.number, why))
            }
        }
    }

    fn value(&self, name: &str) -> Value {
        let context = Context::new(&Nowhere).with_my(self.ad.clone());
        context.eval_attribute(name).unwrap_or(Value::Error)
    }

    fn line_of(&self, name: &str) -> usize {
        self.lines.get(&Name::from(name)).copied().unwrap_or(0)
    }

    /// A string, if the attribute is there.
    fn string(&self, name: &str) -> Result<Option<Vec<u8>>, JobFileError> {
        if self.ad.get(name).is_none() {
            return Ok(None);
        }
        match self.value(name) {
            Value::String(text) if !text.as_bytes().contains(&0) => Ok(Some(text.into_bytes())),
            found => {
                let why = format!("{name}: found {found}, expected a string");
                Err(self.at(self.line_of(name), why))
            }
        }
    }

    fn path(&self, name: &str, from: &Path) -> Result<Option<PathBuf>, JobFileError> {
        let text = self.string(name)?.filter(|text| !text.is_empty());
        Ok(text.map(|text| from.join(OsString::from_vec(text))))
    }

    /// Words, under the name of today or that of before.
    fn words(&self, today: &str, before: &str) -> Result<Option<(String, bool)>, JobFileError> {
        let (name, is_today) = match self.ad.get(today) {
            Some(_) => (today, true),
            None => (before, false),
        };
        let Some(text) = self.string(name)? else {
            return Ok(None);
        };
        let text = String::from_utf8(text)
            .map_err(|_| self.at(self.line_of(name), format!("{name} is not UTF-8")))?;
        Ok(Some((text, is_today)))
    }

    fn spec(&mut self, around: &Surrounding) -> Result<Spec, JobFileError> {
        let directory = self.path("Iwd", &around.directory)?;
        let directory = directory.unwrap_or_else(|| around.directory.clone());
        let program = self.string("Cmd")?.unwrap_or_default();
        let cmd = self.line_of("Cmd");
        if program.is_empty() {
            return Err(self.at(cmd, "the program has no name"));
        }
        let mut program = OsString::from_vec(program);
        // As condor_submit has it, from where it is handed in; else it is looked for along the job's PATH.
        let here = around.directory.join(&program);
        if program.as_encoded_bytes().contains(&b'/') || here.is_file() {
            program = here.into_os_string();
        }
        let arguments = match self.words("Arguments", "Args")? {
            Some((text, is_today)) => {
                let words = match is_today {
                    true => quoted_words(&text),
                    false => Ok(plain_words(&text)),
                };
                words.map_err(|why| self.at(self.line_of("Arguments"), why))?
            }
            None => vec![],
        };
        let environment = match self.words("Environment", "Env")? {
            Some((text, is_today)) => {
                let pairs = match is_today {
                    true => quoted_words(&text).and_then(|words| pairs(words.into_iter())),
                    false => pairs(text.split(';').map(str::to_owned)),
                };
                let pairs = pairs.map_err(|why| self.at(self.line_of("Environment"), why))?;
                let own = |(name, value): (String, String)| (name.into(), value.into());
                Some(pairs.into_iter().map(own).collect())
            }
            None => None,
        };
        if self.ad.get("JobUniverse").is_none() {
            self.put(0, "JobUniverse", Expr::from(STANDARD));
        }
        match self.value("JobUniverse") {
            Value::Integer(STANDARD | VANILLA) => {}
            found => {
                let why =
                    format!("JobUniverse: found {found}, expected 1 (standard) or 5 (vanilla)");
                return Err(self.at(self.line_of("JobUniverse"), why));
            }
        }
        let journal = match self.ad.get("WantJournal") {
            None => false,
            Some(_) => self.value("WantJournal").truth().ok_or_else(|| {
                self.at(
                    self.line_of("WantJournal"),
                    "WantJournal: expected true or false",
                )
            })?,
        };
        let [input, output, errors] = ["In", "Out", "Err"].map(|name| self.path(name, &directory));
        let spec = Spec {
            program,
            arguments: arguments.into_iter().map(OsString::from).collect(),
            input: input?,
            output: output?,
            errors: errors?,
            environment,
            journal,
            directory,
            ad: std::mem::take(&mut self.ad),
        };
        Ok(spec.settled())
    }
}

impl Spec {
    /// Names of files in the ad are whole now.
    fn settled(mut self) -> Self {
        use std::os::unix::ffi::OsStrExt;
        let bytes = |path: &Path| Expr::string(path.as_os_str().as_bytes().to_vec());
        self.ad.insert("Cmd", bytes(Path::new(&self.program)));
        self.ad.insert("Iwd", bytes(&self.directory));
        for (name, path) in [
            ("In", &self.input),
            ("Out", &self.output),
            ("Err", &self.errors),
        ] {
            match path {
                Some(path) => self.ad.insert(name, bytes(path)),
                None => self.ad.remove(name),
            };
        }
        self
    }
}

#[cfg(test)]
mod tests;
