//! Evaluating: expressions to values.
//!
//! ```text
//! eval -- literal, list, ad ----------------> value
//!      |- operator --> operators -----------> value
//!      |- reference --> reference: find --> eval in the ad it was found in
//!      `- call --> functions ---------------> value
//! ```
//! # What callers may rely on
//! No I/O, no clock: [`Surroundings`](crate::Surroundings) has them. What a text costs is limited
//! ([`Limits`](crate::Limits)); beyond that there is an [`EvalError`], never a panic.

mod context;
mod explain;
mod missing;
pub(crate) mod operators;
pub(crate) mod reference;

pub use context::Context;
pub use explain::{Explanation, FoundIn};
pub use missing::Missing;

use crate::error::EvalError;
use crate::expr::{BinaryOp, Expr};
use crate::functions;
use crate::scope::{Scope, Side};
use crate::value::{List, Value};
use operators::{binary, unary};
use std::sync::Arc;

/// An evaluation that is going on.
pub(crate) struct Run<'c> {
    pub(crate) context: &'c Context<'c>,
    /// The outermost ad.
    pub(crate) root: Scope,
    /// The two ads of a match: what looks for one of them by its place finds it with its own surroundings.
    pub(crate) sides: Option<[Scope; 2]>,
    /// Attributes that are being evaluated, by their address: who refers to one of them gets UNDEFINED.
    in_progress: Vec<*const Expr>,
    depth: usize,
    steps: u64,
}

pub(crate) type Evaluated = Result<Value, EvalError>;

impl<'c> Run<'c> {
    pub(crate) fn new(context: &'c Context<'c>, root: Scope, sides: Option<[Scope; 2]>) -> Self {
        Self {
            context,
            root,
            sides,
            in_progress: vec![],
            depth: 0,
            steps: 0,
        }
    }

    /// The value of an expression that is looked at from an ad.
    pub(crate) fn eval(&mut self, expr: &Expr, scope: &Scope) -> Evaluated {
        match expr {
            Expr::Literal(literal) => Ok(literal.into()),
            Expr::List(items) => Ok(Value::List(List {
                items: Arc::clone(items),
                scope: Some(scope.clone()),
                is_of_function: false,
            })),
            Expr::Ad(ad) => Ok(Value::Ad(self.enter(ad, Some(scope.clone())))),
            _ => {
                self.step()?;
                self.deeper(|run| run.eval_inner(expr, scope))
            }
        }
    }

    /// Goes on one level below, if there may be one.
    pub(crate) fn deeper<T>(
        &mut self,
        with: impl FnOnce(&mut Self) -> Result<T, EvalError>,
    ) -> Result<T, EvalError> {
        let limit = self.context.limits().depth;
        if self.depth >= limit {
            self.context.surroundings().circle();
            return Err(EvalError::TooDeep { limit });
        }
        self.depth += 1;
        let done = with(self);
        self.depth -= 1;
        done
    }

    /// Counts a step.
    pub(crate) fn step(&mut self) -> Result<(), EvalError> {
        self.steps += 1;
        let limit = self.context.limits().steps;
        if self.steps > limit {
            Err(EvalError::TooLong { limit })
        } else {
            Ok(())
        }
    }

    /// The scope that an ad is, seen from where it is written.
    pub(crate) fn enter(&self, ad: &Arc<crate::ClassAd>, parent: Option<Scope>) -> Scope {
        let mut sides = self.sides.iter().flatten();
        match sides.find(|side| Arc::ptr_eq(side.ad(), ad)) {
            Some(side) => side.clone(),
            None => Scope::within(Arc::clone(ad), parent),
        }
    }

    fn eval_inner(&mut self, expr: &Expr, scope: &Scope) -> Evaluated {
        match expr {
            Expr::Literal(_) | Expr::List(_) | Expr::Ad(_) => self.eval(expr, scope),
            Expr::Reference {
                from,
                absolute,
                name,
            } => self.eval_reference(from.as_deref(), *absolute, name, scope),
            Expr::Parentheses(inner) => self.eval(inner, scope),
            Expr::Unary(op, operand) => Ok(unary(*op, self.eval(operand, scope)?)),
            Expr::Binary(op, left, right) => {
                let left = self.eval(left, scope)?;
                match (op, left.truth()) {
                    (BinaryOp::Or, Some(true)) => return Ok(Value::Boolean(true)),
                    (BinaryOp::And, Some(false)) => return Ok(Value::Boolean(false)),
                    _ => {}
                }
                let right = self.eval(right, scope)?;
                Ok(binary(*op, left, right))
            }
            Expr::Conditional(condition, then, otherwise) => {
                let condition = self.eval(condition, scope)?;
                match condition.truth() {
                    Some(true) => self.eval(then, scope),
                    Some(false) => self.eval(otherwise, scope),
                    None if condition.is_undefined() => Ok(Value::Undefined),
                    None => Ok(Value::Error),
                }
            }
            Expr::Default(value, otherwise) => match self.eval(value, scope)? {
                Value::Undefined => self.eval(otherwise, scope),
                value => Ok(value),
            },
            Expr::Subscript(whole, index) => {
                let whole = self.eval(whole, scope)?;
                let index = self.eval(index, scope)?;
                self.subscript(&whole, &index, scope)
            }
            Expr::Call { name, arguments } => functions::call(self, name, arguments, scope),
        }
    }

    /// An item of a list, as `list[index]` has it: looked at from where the list is written.
    fn item_at_home(&mut self, list: &List, item: &Expr, scope: &Scope) -> Evaluated {
        let scope = list.scope.as_ref().unwrap_or(scope);
        self.eval(item, scope)
    }

    /// An item of a list, as functions have it: looked at from where they are called, but for ads.
    pub(crate) fn item(&mut self, list: &List, item: &Expr, scope: &Scope) -> Evaluated {
        match item {
            Expr::Ad(ad) => Ok(Value::Ad(self.enter(ad, list.scope.clone()))),
            other => self.eval(other, scope),
        }
    }

    fn subscript(&mut self, whole: &Value, index: &Value, scope: &Scope) -> Evaluated {
        if whole.is_error() || index.is_error() {
            return Ok(Value::Error);
        }
        if whole.is_undefined() || index.is_undefined() {
            return Ok(Value::Undefined);
        }
        match (whole, index) {
            (Value::List(list), Value::Integer(index)) => {
                let index = usize::try_from(crate::number::low_half(*index)).ok();
                match index.and_then(|index| list.items.get(index)) {
                    Some(item) => settled(self.item_at_home(list, item, scope)),
                    None => Ok(Value::Error),
                }
            }
            (Value::Ad(ad), Value::String(name)) => {
                let name = name.clone().into();
                match ad.ad().lookup(&name) {
                    // As from outside: the outermost ad is another one.
                    Some(found) => {
                        let found = Arc::clone(found);
                        settled(self.rooted(ad.root().clone(), |run| run.eval_found(&found, ad)))
                    }
                    None => Ok(Value::Undefined),
                }
            }
            _ => Ok(Value::Error),
        }
    }

    /// Evaluates with another outermost ad.
    pub(crate) fn rooted<T>(&mut self, root: Scope, with: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.root, root);
        let done = with(self);
        self.root = before;
        done
    }

    /// Whether a string of that length may be made.
    pub(crate) fn room(&self, len: usize) -> Result<(), EvalError> {
        let limit = self.context.limits().string_bytes;
        if len > limit {
            Err(EvalError::TooLarge { len, limit })
        } else {
            Ok(())
        }
    }

    /// The ad on the other side of a match.
    pub(crate) fn other_side(&self, scope: &Scope) -> Option<Scope> {
        let [left, right] = self.sides.as_ref()?;
        Some(match scope.side()? {
            Side::Left => right.clone(),
            Side::Right => left.clone(),
        })
    }
}

/// What cannot be evaluated behind a subscript is ERROR; what takes too much is given up all the same.
fn settled(value: Evaluated) -> Evaluated {
    match value {
        Err(EvalError::TooLong { .. } | EvalError::TooLarge { .. }) | Ok(_) => value,
        Err(_) => Ok(Value::Error),
    }
}
