//! Why an expression has its value: its parts, each with its own.

use super::context::Context;
use super::missing::{Missing, missing_function};
use super::reference::Found;
use super::{Evaluated, Run};
use crate::expr::{BinaryOp, Expr};
use crate::scope::{Scope, Side};
use std::sync::Arc;

/// How many parts are told, and how deep.
const MOST_PARTS: usize = 2_000;
const DEEPEST: usize = 64;

/// An expression, its value, and what that follows from.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The expression, as it is printed.
    pub text: String,
    /// Its value where it is written.
    pub value: Evaluated,
    /// Where an attribute was found; none: it is no attribute, or was not found.
    pub found: Option<FoundIn>,
    /// What is not there of it: the attribute, or the function.
    pub missing: Option<Missing>,
    /// It was not looked at: what stands before it decides.
    pub is_skipped: bool,
    /// What it follows from: operands, arguments, or what an attribute is bound to. Constants are not told.
    pub parts: Vec<Explanation>,
}

/// Where an attribute was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundIn {
    /// In MY ad, or in one in it.
    My,
    /// In the TARGET ad, or in one in it.
    Target,
}

impl Context<'_> {
    /// Why an expression has its value, part by part.
    ///
    /// ```
    /// use classad::{Context, Nowhere, parse_ad, parse_expression};
    /// let machine = parse_ad("[ KeyboardIdle = 34; Start = KeyboardIdle > 900 && target.Owner == \"ann\" ]")?;
    /// let context = Context::new(&Nowhere).with_my(machine);
    /// let why = context.explain(&parse_expression("Start")?);
    /// assert_eq!(why.value?.to_string(), "false");
    /// let both = &why.parts[0];
    /// assert_eq!(both.parts[0].text, "KeyboardIdle > 900");
    /// assert_eq!(both.parts[0].parts[0].value.clone()?.to_string(), "34");
    /// assert!(both.parts[1].is_skipped);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn explain(&self, expr: &Expr) -> Explanation {
        let (mut run, scope) = self.begin();
        let mut budget = MOST_PARTS;
        run.explain(expr, &scope, &mut budget, 0)
    }
}

impl Run<'_> {
    fn explain(
        &mut self,
        expr: &Expr,
        scope: &Scope,
        budget: &mut usize,
        depth: usize,
    ) -> Explanation {
        *budget = budget.saturating_sub(1);
        let mut explanation = Explanation {
            text: expr.to_string(),
            value: self.eval(expr, scope),
            found: None,
            missing: None,
            is_skipped: false,
            parts: vec![],
        };
        if *budget == 0 || depth >= DEEPEST {
            return explanation;
        }
        match expr {
            // Parentheses have nothing to say of their own.
            Expr::Parentheses(inner) => {
                let inner = self.explain(inner, scope, budget, depth);
                (explanation.found, explanation.parts) = (inner.found, inner.parts);
                explanation.missing = inner.missing;
            }
            Expr::Reference {
                from,
                absolute,
                name,
            } => {
                let from = from.as_deref();
                match self.find(from, *absolute, name, scope) {
                    Ok(Found::Attribute(bound, home)) => {
                        explanation.found = self.side_of(&home);
                        if !is_constant(&bound) {
                            explanation.parts =
                                vec![self.explain(&bound, &home, budget, depth + 1)];
                        }
                    }
                    Ok(Found::Value(_)) => {
                        explanation.missing = self.missing(from, *absolute, name, scope);
                        // What the name is selected from has a reason of its own.
                        if let Some(from) = from
                            && explanation.missing.is_none()
                            && !is_constant(from)
                        {
                            explanation.parts = vec![self.explain(from, scope, budget, depth + 1)];
                        }
                    }
                    Ok(Found::Ad(_)) | Err(_) => {}
                }
            }
            _ => {
                if let Expr::Call { name, arguments } = expr {
                    explanation.missing = missing_function(name, arguments.len());
                }
                let mut skipped = false;
                for (index, part) in parts(expr).into_iter().enumerate() {
                    if is_constant(part) {
                        continue;
                    }
                    let mut part = self.explain(part, scope, budget, depth + 1);
                    part.is_skipped = skipped || self.is_skipped(expr, index, scope);
                    if part.is_skipped {
                        part.parts.clear();
                    }
                    skipped |= index == 0 && decides(expr, &part);
                    explanation.parts.push(part);
                }
            }
        }
        explanation
    }

    /// Whether an alternative of `?:` is not the one that counts.
    fn is_skipped(&mut self, expr: &Expr, index: usize, scope: &Scope) -> bool {
        match expr {
            Expr::Conditional(condition, _, _) if index > 0 => {
                let truth = self
                    .eval(condition, scope)
                    .ok()
                    .and_then(|value| value.truth());
                truth != Some(index == 1)
            }
            Expr::Binary(BinaryOp::And | BinaryOp::Or, left, _)
                if index == 1 && is_constant(left) =>
            {
                let truth = self.eval(left, scope).ok().and_then(|value| value.truth());
                truth == Some(matches!(expr, Expr::Binary(BinaryOp::Or, _, _)))
            }
            _ => false,
        }
    }

    fn side_of(&self, home: &Scope) -> Option<FoundIn> {
        let mut scope = Some(home);
        while let Some(here) = scope {
            match here.side() {
                Some(Side::Left) => return Some(FoundIn::My),
                Some(Side::Right) => return Some(FoundIn::Target),
                None => scope = here.parent(),
            }
        }
        self.sides.is_none().then_some(FoundIn::My)
    }
}

/// What an expression is made of.
fn parts(expr: &Expr) -> Vec<&Expr> {
    let all: Vec<&Arc<Expr>> = match expr {
        Expr::Unary(_, operand) => vec![operand],
        Expr::Binary(_, left, right)
        | Expr::Default(left, right)
        | Expr::Subscript(left, right) => {
            vec![left, right]
        }
        Expr::Conditional(condition, then, otherwise) => vec![condition, then, otherwise],
        Expr::Call { arguments, .. } => arguments.iter().collect(),
        Expr::List(items) => items.iter().collect(),
        Expr::Literal(_) | Expr::Reference { .. } | Expr::Parentheses(_) | Expr::Ad(_) => vec![],
    };
    all.into_iter().map(AsRef::as_ref).collect()
}

/// Whether the first operand decides alone.
fn decides(expr: &Expr, first: &Explanation) -> bool {
    let Ok(value) = &first.value else {
        return false;
    };
    match expr {
        Expr::Binary(BinaryOp::And, _, _) => value.truth() == Some(false),
        Expr::Binary(BinaryOp::Or, _, _) => value.truth() == Some(true),
        Expr::Default(_, _) => !value.is_undefined(),
        _ => false,
    }
}

/// Whether an expression refers to nothing and calls nothing.
fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(_) => true,
        Expr::Parentheses(inner) => is_constant(inner),
        Expr::Reference { .. } | Expr::Call { .. } | Expr::Ad(_) => false,
        _ => parts(expr).into_iter().all(is_constant),
    }
}
