//! Macro functions: `$ENV(…)`, `$INT(…)`, `$CHOICE(…)` …

use super::expand::{Expander, Problem};
use super::format::{Conversion, Format};
use super::macros::{Function, Macro};
use super::path::{PathParts, parts_of};
use crate::parser::parse_whole_old_expression;
use crate::value::Value;
use crate::{Context, Surroundings, number};

type Outcome = Result<String, Problem>;

/// What a function becomes.
pub(super) fn call(expander: &mut Expander<'_>, found: &Macro<'_>) -> Outcome {
    let call = Call { found };
    let body = found.body;
    match found.function {
        // Values are not for functions to find.
        Function::Value => Ok(String::new()),
        Function::Env => {
            let (name, default) = found.name_and_default();
            let value = expander.sources.variable(name);
            Ok(value.unwrap_or_else(|| default.unwrap_or("UNDEFINED").to_owned()))
        }
        Function::RandomChoice => call.random_choice(expander),
        Function::RandomInteger => call.random_integer(expander),
        Function::Choice => call.choice(expander),
        Function::Substr => call.substr(expander),
        Function::Int | Function::Real => call.number(expander),
        Function::String => call.string(expander),
        Function::Eval => call.eval(expander),
        Function::Basename => call.path(expander, &parts_of("nx")),
        Function::Dirname => call.path(expander, &parts_of("p")),
        Function::Path => call.path(expander, &parts_of(&found.word[1..])),
    }
    .map_err(|problem| match problem {
        Problem::Function { function, what } if function.is_empty() => Problem::Function {
            function: format!("${}({body})", found.word),
            what,
        },
        other => other,
    })
}

/// A problem of the function that is being carried out.
fn fault(what: impl Into<String>) -> Problem {
    Problem::Function {
        function: String::new(),
        what: what.into(),
    }
}

/// A text as the value of an expression, in an ad without attributes.
fn evaluate(expander: &Expander<'_>, text: &str) -> Option<Value> {
    let expr = parse_whole_old_expression(text.as_bytes()).ok()?;
    let surroundings: &dyn Surroundings = expander.sources;
    Context::new(surroundings).eval(&expr).ok()
}

/// `strtoll`, or the integer that an expression is.
fn integer(expander: &Expander<'_>, text: &str) -> Option<i64> {
    if let Ok(number) = text.trim().parse() {
        return Some(number);
    }
    match evaluate(expander, text)? {
        Value::Integer(number) => Some(number),
        Value::Real(number) => Some(number::truncate(number)),
        Value::Boolean(truth) => Some(i64::from(truth)),
        _ => None,
    }
}

fn real(expander: &Expander<'_>, text: &str) -> Option<f64> {
    let trimmed = text.trim();
    if let Some((number, len)) = number::read_prefix(trimmed.as_bytes())
        && len == trimmed.len()
    {
        return Some(number);
    }
    match evaluate(expander, text)? {
        #[expect(clippy::cast_precision_loss, reason = "as C converts it")]
        Value::Integer(number) => Some(number as f64),
        Value::Real(number) => Some(number),
        Value::Boolean(truth) => Some(f64::from(u8::from(truth))),
        _ => None,
    }
}

/// The items of a list that are not empty.
fn items<'t>(list: &'t str, separators: &[char]) -> Vec<&'t str> {
    let items = list.split(separators).map(str::trim);
    items.filter(|item| !item.is_empty()).collect()
}

/// The number that a text begins with: `strtol`.
fn leading(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let len = digits.bytes().take_while(u8::is_ascii_digit).count();
    text[..text.len() - digits.len() + len].parse().ok()
}

struct Call<'f> {
    found: &'f Macro<'f>,
}

impl Call<'_> {
    fn random_choice(&self, expander: &mut Expander<'_>) -> Outcome {
        let body = self.found.body;
        let own = items(body, &[',']);
        let list = match own.as_slice() {
            [name] => expander.lookup(name)?,
            _ => None,
        };
        let chosen = match &list {
            Some(list) => items(list, &[',', ' ', '\t']),
            None => own,
        };
        let random = usize::try_from(expander.sources.random()).unwrap_or(0);
        let chosen = chosen.get(random % chosen.len().max(1));
        chosen
            .map(|item| (*item).to_owned())
            .ok_or_else(|| fault("no list to choose from"))
    }

    fn random_integer(&self, expander: &mut Expander<'_>) -> Outcome {
        let numbers = items(self.found.body, &[',']);
        let number = |at: usize| numbers.get(at).and_then(|text| leading(text));
        let lowest = number(0).ok_or_else(|| fault("the lowest number is none"))?;
        let highest = number(1).ok_or_else(|| fault("the highest number is none"))?;
        let step = match numbers.get(2) {
            Some(text) => leading(text).filter(|step| *step >= 1),
            None => Some(1),
        };
        let step = step.ok_or_else(|| fault("the step is no number above 0"))?;
        if lowest > highest {
            return Err(fault("the lowest number is above the highest"));
        }
        let count =
            (i128::from(highest) - i128::from(lowest) + i128::from(step)) / i128::from(step);
        let random = i128::from(expander.sources.random());
        let number = i128::from(lowest) + random.rem_euclid(count) * i128::from(step);
        Ok(number.to_string())
    }

    fn choice(&self, expander: &mut Expander<'_>) -> Outcome {
        let arguments: Vec<&str> = self.found.body.split(',').map(str::trim).collect();
        let [index, rest @ ..] = arguments.as_slice() else {
            return Err(fault("no index"));
        };
        let text = expander.lookup_or_text(index)?;
        let index = integer(expander, &text).and_then(|index| usize::try_from(index).ok());
        let index = index.ok_or_else(|| fault(format!("{text:?} is no index")))?;
        let item = match rest {
            [] => return Err(fault("no list")),
            [name] => {
                let list = expander.lookup(name)?;
                let list = list.ok_or_else(|| fault(format!("there is no list {name}")))?;
                items(&list, &[','])
                    .get(index)
                    .map(|item| (*item).to_owned())
            }
            list => list.get(index).map(|item| (*item).to_owned()),
        };
        item.ok_or_else(|| fault(format!("the list has no item {index}")))
    }

    fn substr(&self, expander: &mut Expander<'_>) -> Outcome {
        let mut arguments = self.found.body.splitn(3, ',');
        let name = arguments.next().unwrap_or_default();
        let mut bound = |what: &str, expander: &mut Expander<'_>| {
            let Some(text) = arguments.next() else {
                return Ok(None);
            };
            let text = expander.lookup_or_text(text)?;
            let number = integer(expander, &text).filter(|number| i32::try_from(*number).is_ok());
            let number = number.ok_or_else(|| fault(format!("{text:?} is no {what}")))?;
            Ok(Some(number))
        };
        let start = bound("start", expander)?.ok_or_else(|| fault("no start"))?;
        let len = bound("length", expander)?;
        let Some(value) = expander.lookup(name)? else {
            expander.note_undefined(name);
            return Ok(String::new());
        };
        // Below 0 both count from the end.
        let whole = i64::try_from(value.len()).unwrap_or(i64::MAX);
        let start = if start < 0 { whole + start } else { start }.clamp(0, whole);
        let rest = whole - start;
        let len = len.unwrap_or(rest);
        let len = if len < 0 { rest + len } else { len }.clamp(0, rest);
        let at = |number: i64| usize::try_from(number).unwrap_or(0);
        let part = value.as_bytes()[at(start)..at(start + len)].to_vec();
        String::from_utf8(part).map_err(|_| fault("the part cuts a character"))
    }

    /// The argument's value, and the format behind it.
    fn formatted(&self, expander: &mut Expander<'_>) -> Result<(String, Option<Format>), Problem> {
        let (name, format) = match self.found.body.split_once(',') {
            Some((name, format)) => (name, Some(format)),
            None => (self.found.body, None),
        };
        let format = match format {
            None => None,
            Some(text) => {
                let format = Format::parse(text);
                Some(format.ok_or_else(|| fault(format!("{text:?} is no format for one value")))?)
            }
        };
        let text = match expander.attribute(name) {
            Some(text) => text,
            None => expander.lookup_or_text(name)?,
        };
        Ok((text, format))
    }

    fn number(&self, expander: &mut Expander<'_>) -> Outcome {
        let (text, format) = self.formatted(expander)?;
        let kind = format.as_ref().map(Format::conversion);
        if self.found.function == Function::Int {
            if kind.is_some_and(|kind| kind != Conversion::Integer) {
                return Err(fault("the format is none for integers"));
            }
            let number = integer(expander, &text);
            let number = number.ok_or_else(|| fault(format!("{text:?} is no integer")))?;
            return Ok(match format {
                Some(format) => format.integer(number),
                None => number.to_string(),
            });
        }
        if kind.is_some_and(|kind| kind != Conversion::Real) {
            return Err(fault("the format is none for reals"));
        }
        let number = real(expander, &text);
        let number = number.ok_or_else(|| fault(format!("{text:?} is no number")))?;
        let Some(format) = format else {
            return Ok(super::format::shortest(number));
        };
        let text = format.real(number);
        // It shall look like a real.
        Ok(if text.contains('.') {
            text
        } else {
            text + ".0"
        })
    }

    fn string(&self, expander: &mut Expander<'_>) -> Outcome {
        let (text, format) = self.formatted(expander)?;
        if format
            .as_ref()
            .is_some_and(|format| format.conversion() != Conversion::String)
        {
            return Err(fault("the format is none for strings"));
        }
        let text = match evaluate(expander, &text) {
            Some(Value::String(value)) => value.to_string(),
            _ => text,
        };
        Ok(match format {
            Some(format) => format.string(&text),
            None => text,
        })
    }

    fn eval(&self, expander: &mut Expander<'_>) -> Outcome {
        let body = self.found.body;
        let raw = expander.table.lookup(body).map_or(body, |entry| &entry.raw);
        let had_macros = raw.contains('$');
        let text = expander.lookup_or_text(body)?;
        Ok(match evaluate(expander, &text) {
            Some(Value::String(value)) => value.to_string(),
            Some(value) => value.to_string(),
            // What is no expression stays if it was made by macros: so it is with the original.
            None if had_macros => text,
            None => String::new(),
        })
    }

    fn path(&self, expander: &mut Expander<'_>, parts: &PathParts) -> Outcome {
        let path = expander.lookup_or_text(self.found.body)?;
        Ok(parts.of(&path))
    }
}
