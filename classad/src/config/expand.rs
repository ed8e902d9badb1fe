//! Macros become what they stand for.
//!
//! A macro is replaced in the text, and what has come in is looked at again: `$($(X)Y)` is the value of the name that `$(X)Y`
//! makes. Who is replaced within his own value goes in a circle.

use super::functions;
use super::limits::ConfigLimits;
use super::macros::{Function, Macro, next_macro};
use super::sources::Sources;
use super::table::Table;
use crate::ad::ClassAd;
use crate::{Context, Surroundings};
use std::cell::Cell;

/// Why a text cannot be expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// The names, from the one that is met twice.
    Circle(Vec<String>),
    Function {
        function: String,
        what: String,
    },
    TooLarge {
        limit: usize,
    },
    /// What is expanded has taken more than all may take.
    Exhausted,
}

/// Expands texts with the values of a table.
pub(super) struct Expander<'e> {
    pub(super) table: &'e Table,
    pub(super) sources: &'e dyn Sources,
    pub(super) limits: &'e ConfigLimits,
    /// What expanding has looked at until now, in bytes: shared by all of a configuration.
    pub(super) work: &'e Cell<u64>,
    /// The job that `MY.` means, if there is one.
    pub(super) ad: Option<&'e ClassAd>,
    /// The names within whose values we are.
    active: Vec<Active>,
    /// Names that were not defined, without those that had a default.
    pub(super) undefined: Vec<String>,
}

/// What a macro becomes.
struct Replacement {
    text: String,
    /// Whose value it is.
    within: Option<Active>,
}

/// How often what a function makes of a value may refer to that value again, each time within the other.
const MOST_AGAIN: usize = 8;

/// A name within whose value we are.
#[derive(Clone)]
struct Active {
    key: String,
    /// We are in what a function has made of it: that may refer to it again, as `$SUBSTR(A,1)` does where A is `$$(A)`.
    is_made: bool,
}

/// A part of a text that is the value of a name.
struct Region {
    active: Active,
    start: usize,
    end: usize,
}

impl<'e> Expander<'e> {
    pub(super) fn new(
        table: &'e Table,
        sources: &'e dyn Sources,
        limits: &'e ConfigLimits,
        work: &'e Cell<u64>,
    ) -> Self {
        Self {
            table,
            sources,
            limits,
            work,
            ad: None,
            active: vec![],
            undefined: vec![],
        }
    }

    /// The value of a key, expanded.
    pub(super) fn value(&mut self, key: &str, raw: &str) -> Result<String, Problem> {
        self.within(key, |expander| expander.expand(raw))
    }

    /// Does something within the value of a name.
    fn within<T>(
        &mut self,
        key: &str,
        act: impl FnOnce(&mut Self) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        self.check_circle(key)?;
        if self.active.len() >= self.limits.depth {
            let limit = self.limits.depth;
            let (function, what) = ("$".to_owned(), format!("nested more than {limit} deep"));
            return Err(Problem::Function { function, what });
        }
        self.active.push(Active {
            key: key.to_owned(),
            is_made: false,
        });
        let outcome = act(self);
        self.active.pop();
        outcome
    }

    fn check_circle(&self, key: &str) -> Result<(), Problem> {
        let meets = |active: &&Active| active.key == key;
        let met = self.active.iter().filter(meets).count();
        let is_circle = self
            .active
            .iter()
            .filter(meets)
            .any(|active| !active.is_made);
        if !is_circle && met < MOST_AGAIN {
            return Ok(());
        }
        let name = |key: &str| {
            let entry = self.table.exact(key);
            entry.map_or_else(|| key.to_owned(), |entry| entry.name.clone())
        };
        // Those in brackets are no names: they count how deep arguments are.
        let inner = (self.active.iter())
            .skip_while(|active| active.key != key)
            .filter(|active| !active.key.starts_with('('));
        let mut circle: Vec<String> = inner.map(|active| name(&active.key)).collect();
        circle.push(name(key));
        Err(Problem::Circle(circle))
    }

    fn spend(&self, bytes: usize) -> Result<(), Problem> {
        let work = self.work.get().saturating_add(bytes as u64 + 64);
        self.work.set(work);
        if work > self.limits.work_bytes {
            return Err(Problem::Exhausted);
        }
        Ok(())
    }

    fn check_len(&self, len: usize) -> Result<(), Problem> {
        let limit = self.limits.value_bytes;
        match len > limit {
            true => Err(Problem::TooLarge { limit }),
            false => Ok(()),
        }
    }

    /// A text without macros: `$$(…)`, and what is no macro, stays.
    pub(super) fn expand(&mut self, text: &str) -> Result<String, Problem> {
        let mut text = text.to_owned();
        let mut regions: Vec<Region> = vec![];
        let mut from = 0;
        self.spend(text.len())?;
        while let Some(found) = next_macro(&text, from, |found| !found.is_dollar()) {
            self.spend(text.len() - from + regions.len() * 64)?;
            let (start, end, pending) = (found.start, found.end, found.pending);
            let base = self.active.len();
            let around = regions
                .iter()
                .filter(|region| region.start <= start && end <= region.end);
            self.active
                .extend(around.map(|region| region.active.clone()));
            let replaced = self.replace(&found);
            self.active.truncate(base);
            let replaced = replaced?;
            let new_end = start + replaced.text.len();
            self.check_len(text.len() - (end - start) + replaced.text.len())?;
            // Values that this has broken into have ended here; those around it move their end.
            regions.retain(|region| {
                region.end <= start
                    || region.start >= end
                    || (region.start <= start && end <= region.end)
            });
            for region in &mut regions {
                if region.start >= end {
                    region.start = region.start - end + new_end;
                }
                if region.end >= end {
                    region.end = region.end - end + new_end;
                }
            }
            if let Some(active) = replaced.within {
                regions.push(Region {
                    active,
                    start,
                    end: new_end,
                });
            }
            text.replace_range(start..end, &replaced.text);
            from = pending.min(start);
            // What has ended before the place where it goes on holds nothing any more.
            regions.retain(|region| region.end > from);
        }
        let mut from = 0;
        while let Some(found) = next_macro(&text, from, Macro::is_dollar) {
            from = found.start;
            let range = found.start..found.end;
            self.spend(text.len() - from)?;
            text.replace_range(range, "$");
        }
        Ok(text)
    }

    /// A text in which references to `name` itself have become its value of now: only these.
    pub(super) fn expand_self(&mut self, text: &str, name: &str) -> Result<String, Problem> {
        let bare = self.table.without_prefix(name);
        let is_self = |found: &Macro<'_>| {
            let (reference, _) = found.name_and_default();
            let names = |name: &str| reference.eq_ignore_ascii_case(name);
            matches!(found.function, Function::Value | Function::Path)
                && (names(name) || bare.is_some_and(names))
        };
        let mut text = text.to_owned();
        let mut from = 0;
        self.spend(text.len())?;
        while let Some(found) = next_macro(&text, from, is_self) {
            self.spend(text.len() - from)?;
            let (start, end, pending) = (found.start, found.end, found.pending);
            let replaced = self.replace(&found)?;
            self.check_len(text.len() - (end - start) + replaced.text.len())?;
            text.replace_range(start..end, &replaced.text);
            from = pending.min(start);
        }
        Ok(text)
    }

    fn replace(&mut self, found: &Macro<'_>) -> Result<Replacement, Problem> {
        if found.function != Function::Value {
            let text = functions::call(self, found)?;
            let name = found.body.split(',').next().unwrap_or_default();
            let within = self
                .table
                .resolve(name)
                .map(|(key, _)| Active { key, is_made: true });
            return Ok(Replacement { text, within });
        }
        let (name, default) = found.name_and_default();
        let resolved = self.table.resolve(name);
        if resolved.is_none() && default.is_none() {
            self.note_undefined(name);
        }
        let value = resolved.filter(|(_, entry)| !entry.raw.is_empty());
        let Some((key, entry)) = value else {
            let text = default.unwrap_or_default().to_owned();
            return Ok(Replacement { text, within: None });
        };
        self.check_circle(&key)?;
        Ok(Replacement {
            text: entry.raw.clone(),
            within: Some(Active {
                key,
                is_made: false,
            }),
        })
    }

    /// The expanded value of a name; none: it is not defined.
    pub(super) fn lookup(&mut self, name: &str) -> Result<Option<String>, Problem> {
        let Some((key, entry)) = self.table.resolve(name) else {
            return Ok(None);
        };
        self.value(&key, &entry.raw).map(Some)
    }

    /// The value of an attribute of the job, as an expression; none: the name means none.
    pub(super) fn attribute(&self, name: &str) -> Option<String> {
        let (prefix, name) = name.trim().split_at_checked(3)?;
        let ad = self.ad.filter(|_| prefix.eq_ignore_ascii_case("my."))?;
        let surroundings: &dyn Surroundings = self.sources;
        let context = Context::new(surroundings).with_my(ad.clone());
        let value = context.eval(ad.get(name)?).ok()?;
        Some(value.to_expr().to_old().to_string())
    }

    /// The expanded value of a name, or the text itself if it names nothing.
    pub(super) fn lookup_or_text(&mut self, text: &str) -> Result<String, Problem> {
        match self.lookup(text)? {
            Some(value) => Ok(value),
            None => self.nested(text),
        }
    }

    /// A text within an argument, expanded.
    pub(super) fn nested(&mut self, text: &str) -> Result<String, Problem> {
        // No name is called so: this only counts.
        self.active.push(Active {
            key: format!("({})", self.active.len()),
            is_made: false,
        });
        let deep = self.active.len() > self.limits.depth;
        let outcome = match deep {
            true => Err(Problem::Function {
                function: "$".to_owned(),
                what: format!("nested more than {} deep", self.limits.depth),
            }),
            false => self.expand(text),
        };
        self.active.pop();
        outcome
    }

    /// Remembers a name that is not defined, if the value that is asked for refers to it itself.
    pub(super) fn note_undefined(&mut self, name: &str) {
        if self.active.len() <= 1 {
            self.undefined.push(name.to_owned());
        }
    }
}
