//! Carries the rules of a transform out on a job.

use super::rules::{Rule, Rules, Which, is_attribute};
use super::{Fault, attribute_key};
use crate::ad::ClassAd;
use crate::config::condition::{Conditions, Turn, decide, turn};
use crate::config::config::Config;
use crate::config::expand::{Expander, Problem};
use crate::config::limits::ConfigLimits;
use crate::config::origin::Origin;
use crate::config::sources::Sources;
use crate::config::table::Table;
use crate::eval::Context;
use crate::expr::{Expr, Literal};
use crate::parser::parse_whole_old_expression;
use crate::value::Value;
use std::cell::Cell;
use std::sync::Arc;

/// A job that has gone through transforms.
#[derive(Clone, Debug)]
pub struct Transformed {
    /// Its ad now.
    pub ad: ClassAd,
    /// The names of the transforms that wanted it, in their order.
    pub by: Vec<String>,
}

/// The new ad of a job; none: the transform does not want it.
pub(super) fn apply(
    config: &Config,
    rules: &Rules,
    job: &ClassAd,
    sources: &dyn Sources,
) -> Result<Option<ClassAd>, Fault> {
    let version = sources.version();
    let mut bench = Bench {
        table: config.table().clone(),
        ad: job.clone(),
        sources,
        limits: ConfigLimits::default(),
        work: Cell::new(0),
        version: version.unwrap_or_else(|| config.dialect().version()),
    };
    for (name, expr) in job.iter() {
        bench.show(&name.to_string(), expr);
    }
    if let Some(wanted) = &rules.wanted {
        let line = format!("REQUIREMENTS {}", wanted.expr);
        let expr = bench.expression(&line, &wanted.expr)?;
        let mut context = Context::new(sources).with_my(job.clone());
        if wanted.has_target {
            context = context.with_target(job.clone());
        }
        let value = context.eval(&expr);
        let value = value.map_err(|reason| Fault::new(&line, "no value").because(reason))?;
        if value.truth() != Some(true) {
            return Ok(None);
        }
    }
    let mut conditions = Conditions::default();
    for (line, rule) in &rules.lines {
        match rule {
            Rule::Turn => bench.turn(line, &mut conditions)?,
            _ if !conditions.is_on() => {}
            rule => bench.carry_out(line, rule)?,
        }
    }
    Ok(Some(bench.ad))
}

/// A job in work.
struct Bench<'b> {
    /// The configuration's names, the transform's macros, and the job's attributes behind `MY.`.
    table: Table,
    ad: ClassAd,
    sources: &'b dyn Sources,
    limits: ConfigLimits,
    work: Cell<u64>,
    version: [u32; 3],
}

impl Bench<'_> {
    fn expand(&self, line: &str, text: &str) -> Result<String, Fault> {
        let mut expander = Expander::new(&self.table, self.sources, &self.limits, &self.work);
        expander.ad = Some(&self.ad);
        expander
            .expand(text)
            .map_err(|problem| unexpanded(line, problem))
    }

    fn expression(&self, line: &str, text: &str) -> Result<Expr, Fault> {
        let text = self.expand(line, text)?;
        parse_whole_old_expression(text.as_bytes())
            .map_err(|reason| Fault::new(line, format!("no expression: {text}")).because(reason))
    }

    fn value(&self, line: &str, text: &str) -> Result<Value, Fault> {
        let expr = self.expression(line, text)?;
        let context = Context::new(self.sources).with_my(self.ad.clone());
        let value = context.eval(&expr);
        value.map_err(|reason| Fault::new(line, "no value").because(reason))
    }

    fn turn(&self, line: &str, conditions: &mut Conditions) -> Result<(), Fault> {
        let is_true = |condition: &str| {
            let expanded = self.expand(line, condition)?;
            let lookup = |name: &str| self.table.lookup(name).map(|entry| entry.raw.as_str());
            let is_expanded = condition.contains('$');
            decide(&expanded, is_expanded, self.version, lookup)
                .map_err(|what| Fault::new(line, what))
        };
        let turned = match turn(line) {
            Some(Turn::If(condition)) => {
                let is_on = conditions.is_on() && is_true(condition)?;
                conditions.begin(is_on, 0);
                Ok(())
            }
            Some(Turn::Elif(condition)) => {
                let is_on = conditions.asks_elif() && is_true(condition)?;
                conditions.elif(is_on)
            }
            Some(Turn::Else) => conditions.turn_else(),
            Some(Turn::Endif) => conditions.end(),
            None => Ok(()),
        };
        turned.map_err(|what| Fault::new(line, what))
    }

    fn carry_out(&mut self, line: &str, rule: &Rule) -> Result<(), Fault> {
        match rule {
            Rule::Turn | Rule::About => {}
            Rule::Assign { name, value } => {
                let mut expander =
                    Expander::new(&self.table, self.sources, &self.limits, &self.work);
                let value = expander.expand_self(value, name);
                let value = value.map_err(|problem| unexpanded(line, problem))?;
                self.table.set(name, value, Origin::Default);
            }
            Rule::Default { name, .. } if self.is_known(name) => {}
            Rule::Set { name, expr } | Rule::Default { name, expr } => {
                let expr = self.expression(line, expr)?;
                self.put(name, Arc::new(expr));
            }
            Rule::EvalSet { name, expr } => {
                let value = self.value(line, expr)?;
                self.put(name, Arc::new(value.to_expr()));
            }
            Rule::EvalMacro { name, expr } => {
                let text = match self.value(line, expr)? {
                    Value::String(text) => text.to_string(),
                    value => value.to_expr().to_old().to_string(),
                };
                self.table.set(name, text, Origin::Default);
            }
            Rule::Copy { from, to } => {
                for (_, to, expr) in self.moves(line, from, to)? {
                    self.put(&to, expr);
                }
            }
            Rule::Rename { from, to } => {
                for (from, to, expr) in self.moves(line, from, to)? {
                    self.remove(&from);
                    self.put(&to, expr);
                }
            }
            Rule::Delete { which } => {
                for (name, _, _) in self.moves(line, which, "deleted")? {
                    self.remove(&name);
                }
            }
        }
        Ok(())
    }

    /// Old name, new name and expression of each attribute that is meant.
    fn moves(
        &self,
        line: &str,
        which: &Which,
        to: &str,
    ) -> Result<Vec<(String, String, Arc<Expr>)>, Fault> {
        let to = self.expand(line, to)?;
        let mut moves = vec![];
        match which {
            Which::Name(name) => {
                let expr = self.ad.get(name.as_str());
                moves.extend(
                    expr.map(|expr| (name.clone(), to.trim().to_owned(), Arc::clone(expr))),
                );
            }
            Which::Pattern(pattern) => {
                for (name, expr) in self.ad.iter() {
                    let name = name.to_string();
                    // Names of attributes are ASCII; others are not matched.
                    let groups = pattern.groups(&name, 0);
                    let groups =
                        groups.ok_or_else(|| Fault::new(line, "the pattern takes too long"))?;
                    if let Some(groups) = groups.filter(|_| name.is_ascii()) {
                        let group = |at: usize| {
                            let (begin, end) = (*groups.get(at)?)?;
                            name.get(begin..end)
                        };
                        let to = filled(to.trim(), group);
                        moves.push((name.clone(), to, Arc::clone(expr)));
                    }
                }
            }
        }
        match moves.iter().find(|(_, to, _)| !is_attribute(to)) {
            Some((_, to, _)) => Err(Fault::new(
                line,
                format!("{to:?} is no name of an attribute"),
            )),
            None => Ok(moves),
        }
    }

    fn is_known(&self, name: &str) -> bool {
        let expr = self.ad.get(name).map(AsRef::as_ref);
        !matches!(expr, None | Some(Expr::Literal(Literal::Undefined)))
    }

    fn put(&mut self, name: &str, expr: Arc<Expr>) {
        self.show(name, &expr);
        self.ad.insert(name, expr);
    }

    fn remove(&mut self, name: &str) {
        self.ad.remove(name);
        self.table.forget(&attribute_key(name));
    }

    /// Lets macros know an attribute: strings without quotes, others as they are written.
    fn show(&mut self, name: &str, expr: &Expr) {
        let text = match expr {
            Expr::Literal(Literal::String(text)) => text.to_string(),
            other => other.to_old().to_string(),
        };
        let key = attribute_key(name);
        match expr {
            Expr::Literal(Literal::Undefined) => self.table.forget(&key),
            _ => self.table.set(&key, without_macros(&text), Origin::Default),
        }
    }
}

fn unexpanded(line: &str, problem: Problem) -> Fault {
    let what = match problem {
        Problem::Exhausted => "its macros take too long".to_owned(),
        Problem::Circle(circle) => format!("it refers to itself: {}", circle.join(" -> ")),
        Problem::Function { function, what } => format!("{function}: {what}"),
        Problem::TooLarge { limit } => format!("more than {limit} bytes"),
    };
    Fault::new(line, what)
}

/// What a job says is no macro: a `$` stays one. Two in a row begin none.
fn without_macros(text: &str) -> String {
    let mut safe = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let run = rest[at..].bytes().take_while(|byte| *byte == b'$').count();
        safe.push_str(&rest[..at]);
        safe.push_str(if run == 1 {
            "$(DOLLAR)"
        } else {
            &rest[at..at + run]
        });
        rest = &rest[at + run..];
    }
    safe.push_str(rest);
    safe
}

/// A pattern's replacement: `\0` to `\9` are what its groups have matched.
fn filled<'g>(replacement: &str, group: impl Fn(usize) -> Option<&'g str>) -> String {
    let mut filled = String::new();
    let mut characters = replacement.chars().peekable();
    while let Some(c) = characters.next() {
        let digit = characters.peek().and_then(|next| next.to_digit(10));
        match digit {
            Some(digit) if c == '\\' => {
                characters.next();
                filled.push_str(group(digit as usize).unwrap_or_default());
            }
            _ => filled.push(c),
        }
    }
    filled
}
