//! What a transform says: lines, understood.
//!
//! ```text
//! REQUIREMENTS JobUniverse == 5          [ Requirements = JobUniverse == 5;
//! COPY Requirements OldRequirements        copy_Requirements = "OldRequirements";
//! DELETE Junk                              delete_Junk = true;
//! SET WantDocker true                      set_WantDocker = true;
//! EVALSET Day formatTime(time())           eval_set_Day = formatTime(time()) ]
//! ```
//! The right form, of the Condor before 8.9, becomes the left one, in the order copy, delete, set, eval_set.

use super::Fault;
use crate::config::condition::{Conditions, Turn, turn};
use crate::expr::{Expr, Literal};
use crate::parser::{parse_ad, parse_whole_old_expression};
use crate::pcre;

/// What a line does.
#[derive(Debug)]
pub(super) enum Rule {
    /// `name = value`: a macro.
    Assign {
        name: String,
        value: String,
    },
    /// `if` and the like; which, the line says.
    Turn,
    Set {
        name: String,
        expr: String,
    },
    Default {
        name: String,
        expr: String,
    },
    EvalSet {
        name: String,
        expr: String,
    },
    EvalMacro {
        name: String,
        expr: String,
    },
    Copy {
        from: Which,
        to: String,
    },
    Rename {
        from: Which,
        to: String,
    },
    Delete {
        which: Which,
    },
    /// What is said of the transform, not of the job.
    About,
}

/// Attributes that are meant.
#[derive(Debug)]
pub(super) enum Which {
    Name(String),
    /// All whose names match.
    Pattern(Box<pcre::Pattern>),
}

/// Which jobs are meant.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) expr: String,
    /// TARGET is the job too, as it was before 8.9.
    pub(super) has_target: bool,
}

#[derive(Debug, Default)]
pub(super) struct Rules {
    pub(super) wanted: Option<Wanted>,
    /// Each with its text.
    pub(super) lines: Vec<(String, Rule)>,
}

impl Rules {
    pub(super) fn parse(text: &str) -> Result<Self, Fault> {
        if text.trim_start().starts_with('[') {
            return of_ad(text);
        }
        let mut rules = Self::default();
        let mut conditions = Conditions::default();
        let lines = text.lines().map(str::trim);
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let rule = match turn(line) {
                Some(turn) => {
                    balance(&mut conditions, turn).map_err(|what| Fault::new(line, what))?;
                    Rule::Turn
                }
                None => rules.rule(line)?,
            };
            rules.lines.push((line.to_owned(), rule));
        }
        match conditions.open_line() {
            Some(_) => Err(Fault::new("if", "it does not end")),
            None => Ok(rules),
        }
    }

    fn rule(&mut self, line: &str) -> Result<Rule, Fault> {
        let fault = |what: &str| Fault::new(line, what);
        let (word, rest) = name_and_rest(line);
        if let Some(value) = rest.trim_start().strip_prefix('=') {
            let (name, value) = (word.to_owned(), value.trim().to_owned());
            return match name.is_empty() {
                true => Err(fault("= has no name in front")),
                false => Ok(Rule::Assign { name, value }),
            };
        }
        let argument = rest.trim_start();
        if argument.len() == rest.len() || argument.is_empty() {
            return Err(fault(
                "expected NAME = VALUE, or a command and what it is about",
            ));
        }
        let named = || -> Result<(String, String), Fault> {
            let (name, rest) = name_and_rest(argument);
            let rest = rest.trim_start();
            let rest = rest.strip_prefix(['=', ',']).unwrap_or(rest).trim();
            if !is_attribute(name) {
                return Err(fault("expected the name of an attribute"));
            }
            match rest.is_empty() {
                true => Err(fault("something is missing behind the name")),
                false => Ok((name.to_owned(), rest.to_owned())),
            }
        };
        let with_expr = || {
            let (name, expr) = named()?;
            check(line, &expr).map(|()| (name, expr))
        };
        let moved = || match argument.starts_with('/') {
            false => named().map(|(name, to)| (Which::Name(name), to)),
            true => {
                let (pattern, to) = pattern(argument).map_err(fault)?;
                match to.is_empty() {
                    true => Err(fault("something is missing behind the pattern")),
                    false => Ok((pattern, to.to_owned())),
                }
            }
        };
        match word.to_ascii_uppercase().as_str() {
            "SET" => with_expr().map(|(name, expr)| Rule::Set { name, expr }),
            "DEFAULT" => with_expr().map(|(name, expr)| Rule::Default { name, expr }),
            "EVALSET" => with_expr().map(|(name, expr)| Rule::EvalSet { name, expr }),
            "EVALMACRO" => with_expr().map(|(name, expr)| Rule::EvalMacro { name, expr }),
            "COPY" => moved().map(|(from, to)| Rule::Copy { from, to }),
            "RENAME" => moved().map(|(from, to)| Rule::Rename { from, to }),
            "DELETE" => {
                let (which, rest) = match argument.starts_with('/') {
                    true => pattern(argument).map_err(fault)?,
                    false => {
                        let (name, rest) = name_and_rest(argument);
                        (Which::Name(name.to_owned()), rest.trim())
                    }
                };
                match (&which, rest) {
                    (Which::Name(name), _) if !is_attribute(name) => {
                        Err(fault("expected the name of an attribute"))
                    }
                    (_, "") => Ok(Rule::Delete { which }),
                    _ => Err(fault("nothing may stand behind what is deleted")),
                }
            }
            "REQUIREMENTS" => {
                check(line, argument)?;
                self.wanted = Some(Wanted {
                    expr: argument.to_owned(),
                    has_target: false,
                });
                Ok(Rule::About)
            }
            "NAME" | "UNIVERSE" => Ok(Rule::About),
            "TRANSFORM" => Err(fault("one job is not made into several here")),
            _ => Err(fault("there is no such command")),
        }
    }
}

/// Follows a line of `if` and the like without deciding it.
fn balance(conditions: &mut Conditions, turn: Turn<'_>) -> Result<(), &'static str> {
    match turn {
        Turn::If(_) => {
            conditions.begin(true, 0);
            Ok(())
        }
        Turn::Elif(_) => conditions.elif(true),
        Turn::Else => conditions.turn_else(),
        Turn::Endif => conditions.end(),
    }
}

/// The name that a text begins with, which may be empty.
fn name_and_rest(text: &str) -> (&str, &str) {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_.".contains(c);
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    text.split_at(end)
}

pub(super) fn is_attribute(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(is_part) && name.bytes().next().is_some_and(|b| !b.is_ascii_digit())
}

/// What has no macros has to be an expression now; the rest is seen when a job is there.
fn check(line: &str, expr: &str) -> Result<(), Fault> {
    if expr.contains('$') {
        return Ok(());
    }
    match parse_whole_old_expression(expr.as_bytes()) {
        Ok(_) => Ok(()),
        Err(reason) => Err(Fault::new(line, "no expression").because(reason)),
    }
}

/// `/pattern/flags`, and what is behind it. Case never counts.
fn pattern(text: &str) -> Result<(Which, &str), &'static str> {
    let mut end = None;
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '/' if !is_escaped => {
                end = Some(at);
                break;
            }
            _ => is_escaped = c == '\\' && !is_escaped,
        }
    }
    let end = end.ok_or("the pattern does not end")?;
    let (flags, rest) = name_and_rest(&text[end + 1..]);
    let options = format!("i{}", flags.to_ascii_lowercase());
    let pattern = pcre::Pattern::compile(&text.as_bytes()[1..end], &options);
    let pattern = pattern.ok_or("no regular expression")?;
    Ok((Which::Pattern(Box::new(pattern)), rest.trim()))
}

/// An ad of before 8.9, as rules.
fn of_ad(text: &str) -> Result<Rules, Fault> {
    let shown = || text.lines().next().unwrap_or_default().trim().to_owned();
    let ad = parse_ad(text.trim());
    let ad = ad.map_err(|reason| Fault::new(&shown(), "no ad").because(reason))?;
    let mut rules = Rules::default();
    let mut kinds: [Vec<(String, Rule)>; 5] = Default::default();
    for (name, expr) in ad.iter() {
        let name = name.to_string();
        let expr_text = expr.to_old().to_string();
        let behind = |prefix: &str| {
            let (head, rest) = name.split_at_checked(prefix.len())?;
            let is_it = head.eq_ignore_ascii_case(prefix) && is_attribute(rest);
            is_it.then(|| rest.to_owned())
        };
        let (kind, rule) = if let Some(from) = behind("copy_") {
            let Expr::Literal(Literal::String(to)) = expr.as_ref() else {
                return Err(Fault::new(&name, "expected a string, the new name"));
            };
            let (from, to) = (Which::Name(from), to.to_string());
            (1, Rule::Copy { from, to })
        } else if let Some(name) = behind("delete_") {
            let which = Which::Name(name);
            (2, Rule::Delete { which })
        } else if let Some(name) = behind("eval_set_") {
            let expr = expr_text.clone();
            (4, Rule::EvalSet { name, expr })
        } else if let Some(name) = behind("set_") {
            let expr = expr_text.clone();
            (3, Rule::Set { name, expr })
        } else if name.eq_ignore_ascii_case("requirements") {
            rules.wanted = Some(Wanted {
                expr: expr_text,
                has_target: true,
            });
            continue;
        } else {
            let value = match expr.as_ref() {
                Expr::Literal(Literal::String(text)) => text.to_string(),
                _ => expr_text.clone(),
            };
            let name = name.clone();
            (0, Rule::Assign { name, value })
        };
        kinds[kind].push((format!("{name} = {expr_text}"), rule));
    }
    rules.lines = kinds.into_iter().flatten().collect();
    Ok(rules)
}
