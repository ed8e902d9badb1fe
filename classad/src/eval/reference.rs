//! Finding what a name refers to.

use super::{Evaluated, Run};
use crate::error::EvalError;
use crate::expr::Expr;
use crate::name::Name;
use crate::scope::Scope;
use crate::value::{List, Value};
use std::sync::Arc;

/// What a reference leads to.
pub(crate) enum Found {
    /// An attribute, and the ad that it is in.
    Attribute(Arc<Expr>, Scope),
    /// An ad around it, or itself.
    Ad(Scope),
    /// Nothing: UNDEFINED, ERROR, or a list of what each item of a list has.
    Value(Value),
}

impl Run<'_> {
    pub(super) fn eval_reference(
        &mut self,
        from: Option<&Expr>,
        absolute: bool,
        name: &Name,
        scope: &Scope,
    ) -> Evaluated {
        match self.find(from, absolute, name, scope)? {
            Found::Attribute(expr, home) => self.eval_found(&expr, &home),
            Found::Ad(ad) => Ok(Value::Ad(ad)),
            Found::Value(value) => Ok(value),
        }
    }

    /// Evaluates an attribute; one that is being evaluated already refers to itself, and is UNDEFINED.
    pub(crate) fn eval_found(&mut self, expr: &Arc<Expr>, home: &Scope) -> Evaluated {
        let address = Arc::as_ptr(expr);
        if self.in_progress.contains(&address) {
            self.context.surroundings().circle();
            return Ok(Value::Undefined);
        }
        self.in_progress.push(address);
        let value = self.eval(expr, home);
        self.in_progress.pop();
        value
    }

    pub(crate) fn find(
        &mut self,
        from: Option<&Expr>,
        absolute: bool,
        name: &Name,
        scope: &Scope,
    ) -> Result<Found, EvalError> {
        let Some(from) = from else {
            let start = if absolute {
                self.root.clone()
            } else {
                scope.clone()
            };
            let found = self.find_in(&start, name);
            if absolute || !matches!(found, Found::Value(_)) {
                return Ok(found);
            }
            // Where no side of a match is named, the other ad is asked as well.
            return Ok(match self.other_side(&start) {
                Some(other) => self.find_in(&other, name),
                None => found,
            });
        };
        let value = self.eval(from, scope)?;
        self.select(value, name, scope)
    }

    /// An attribute of a value: of an ad, or of each item of a list.
    fn select(&mut self, value: Value, name: &Name, scope: &Scope) -> Result<Found, EvalError> {
        match value {
            Value::Ad(ad) => Ok(self.find_in(&ad, name)),
            Value::Undefined => Ok(Found::Value(Value::Undefined)),
            Value::List(list) => {
                let mut items = vec![];
                for item in list.items.iter() {
                    self.step()?;
                    let item = self.item(&list, item, scope)?;
                    // A list may be an item of itself.
                    let value = match self.deeper(|run| run.select(item, name, scope))? {
                        Found::Attribute(expr, home) => self.eval_found(&expr, &home)?,
                        Found::Ad(ad) => Value::Ad(ad),
                        Found::Value(value) => value,
                    };
                    items.push(Arc::new(value.to_expr()));
                }
                Ok(Found::Value(Value::List(List {
                    items: items.into(),
                    scope: None,
                    is_of_function: false,
                })))
            }
            _ => Ok(Found::Value(Value::Error)),
        }
    }

    /// Looks a name up in an ad and in those around it.
    pub(crate) fn find_in(&self, start: &Scope, name: &Name) -> Found {
        let mut current = start;
        loop {
            if let Some(expr) = current.ad().lookup(name) {
                return Found::Attribute(Arc::clone(expr), current.clone());
            }
            let parent = if current.is(&self.root) {
                None
            } else {
                current.parent()
            };
            let special = |word: &str| name.text().is_like(word);
            if special("root") || special("toplevel") {
                return Found::Ad(self.root.clone());
            }
            if special("self") || special("my") {
                return Found::Ad(current.clone());
            }
            match parent {
                Some(parent) if special("parent") => return Found::Ad(parent.clone()),
                Some(parent) => current = parent,
                None => return Found::Value(Value::Undefined),
            }
        }
    }
}
