//! Flattening: evaluating what can be evaluated, leaving the rest as an expression.
//!
//! Constants of a sum, a product, a conjunction are brought together in front of what is not known:
//! `a + 1 + 2` is `3 + a`.

use crate::ad::ClassAd;
use crate::error::EvalError;
use crate::eval::operators::{binary, unary};
use crate::eval::reference::Found;
use crate::eval::{Context, Run};
use crate::expr::{BinaryOp, Expr};
use crate::functions::{self, is_function};
use crate::scope::Scope;
use crate::value::Value;
use std::sync::Arc;

/// What is left of an expression.
#[derive(Clone, Debug)]
pub enum Flat {
    /// It has a value.
    Value(Value),
    /// It has none, yet.
    Expr(Expr),
}

impl Flat {
    /// The expression, or one that has the value.
    #[must_use]
    pub fn into_expr(self) -> Expr {
        match self {
            Self::Value(value) => value.to_expr(),
            Self::Expr(expr) => expr,
        }
    }
}

impl Context<'_> {
    /// Evaluates what can be evaluated in MY ad. Attributes that have a value are replaced with it, others stay.
    ///
    /// ```
    /// use classad::{Context, Nowhere, parse_ad, parse_expression};
    /// let context = Context::new(&Nowhere).with_my(parse_ad("[ Request = 2 ]")?);
    /// let expr = parse_expression("target.Memory >= 1024 * Request && true")?;
    /// assert_eq!(context.flatten(&expr)?.into_expr().to_string(), "target.Memory >= 2048");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`EvalError`] beyond the limits.
    pub fn flatten(&self, expr: &Expr) -> Result<Flat, EvalError> {
        let (mut run, scope) = self.begin();
        Flattening {
            run: &mut run,
            in_progress: vec![],
            depth: 0,
        }
        .flatten(expr, &scope)
    }
}

/// An expression on its way: a value, or a tree, or `value op tree` that its parent may take apart.
enum Part {
    Value(Value),
    Tree(Expr),
    Both(BinaryOp, Value, Expr),
}

impl Part {
    fn into_expr(self) -> Expr {
        match self {
            Self::Value(value) => value.to_expr(),
            Self::Tree(tree) => tree,
            Self::Both(op, value, tree) => join(op, value.to_expr(), tree),
        }
    }
}

fn join(op: BinaryOp, left: Expr, right: Expr) -> Expr {
    Expr::Binary(op, Arc::new(left), Arc::new(right))
}

struct Flattening<'r, 'c> {
    run: &'r mut Run<'c>,
    /// Attributes that are being flattened, by their address.
    in_progress: Vec<*const Expr>,
    depth: usize,
}

impl Flattening<'_, '_> {
    fn flatten(&mut self, expr: &Expr, scope: &Scope) -> Result<Flat, EvalError> {
        Ok(match self.part(expr, scope)? {
            Part::Value(value) => Flat::Value(value),
            other => Flat::Expr(other.into_expr()),
        })
    }

    fn tree(&mut self, expr: &Expr, scope: &Scope) -> Result<Arc<Expr>, EvalError> {
        Ok(Arc::new(self.flatten(expr, scope)?.into_expr()))
    }

    fn part(&mut self, expr: &Expr, scope: &Scope) -> Result<Part, EvalError> {
        self.run.step()?;
        let limit = self.run.context.limits().depth;
        if self.depth >= limit {
            self.run.context.surroundings().circle();
            return Err(EvalError::TooDeep { limit });
        }
        self.depth += 1;
        let part = self.part_inner(expr, scope);
        self.depth -= 1;
        part
    }

    fn part_inner(&mut self, expr: &Expr, scope: &Scope) -> Result<Part, EvalError> {
        Ok(match expr {
            Expr::Literal(literal) => Part::Value(literal.into()),
            Expr::Reference {
                from,
                absolute,
                name,
            } => {
                // What a selection begins with is not flattened: it may be known only together with the name.
                match self.run.find(from.as_deref(), *absolute, name, scope)? {
                    Found::Attribute(found, home) => match self.found(&found, &home)? {
                        Some(value) => Part::Value(value),
                        None => Part::Tree(expr.clone()),
                    },
                    Found::Value(Value::Error) => Part::Value(Value::Error),
                    Found::Ad(_) | Found::Value(_) => Part::Tree(expr.clone()),
                }
            }
            Expr::Unary(op, operand) => match self.flatten(operand, scope)? {
                Flat::Value(value) => Part::Value(unary(*op, value)),
                Flat::Expr(tree) => Part::Tree(Expr::Unary(*op, Arc::new(tree))),
            },
            Expr::Parentheses(inner) => match self.flatten(inner, scope)? {
                Flat::Value(value) => Part::Value(value),
                Flat::Expr(tree) => Part::Tree(Expr::Parentheses(Arc::new(tree))),
            },
            Expr::Binary(op, left, right) => self.binary(*op, left, right, scope)?,
            Expr::Conditional(condition, then, otherwise) => {
                match self.flatten(condition, scope)? {
                    Flat::Value(value) => match value.truth() {
                        Some(true) => self.settled(then, scope)?,
                        Some(false) => self.settled(otherwise, scope)?,
                        // Undefined: nothing is decided, and the condition stays as it is.
                        None if value.is_undefined() => {
                            let then = self.tree(then, scope)?;
                            let otherwise = self.tree(otherwise, scope)?;
                            Part::Tree(Expr::Conditional(Arc::clone(condition), then, otherwise))
                        }
                        None => Part::Value(Value::Error),
                    },
                    Flat::Expr(condition) => {
                        let then = self.tree(then, scope)?;
                        let otherwise = self.tree(otherwise, scope)?;
                        Part::Tree(Expr::Conditional(Arc::new(condition), then, otherwise))
                    }
                }
            }
            Expr::Default(value, otherwise) => {
                match (self.flatten(value, scope)?, self.flatten(otherwise, scope)?) {
                    (Flat::Value(Value::Undefined), Flat::Value(value))
                    | (Flat::Value(value), Flat::Value(_)) => Part::Value(value),
                    (value, otherwise) => Part::Tree(Expr::Default(
                        Arc::new(value.into_expr()),
                        Arc::new(otherwise.into_expr()),
                    )),
                }
            }
            Expr::Subscript(whole, index) => {
                match (self.flatten(whole, scope)?, self.flatten(index, scope)?) {
                    (Flat::Value(_), Flat::Value(_)) => Part::Value(self.run.eval(expr, scope)?),
                    (whole, index) => Part::Tree(Expr::Subscript(
                        Arc::new(whole.into_expr()),
                        Arc::new(index.into_expr()),
                    )),
                }
            }
            Expr::Call { name, arguments } => {
                if !is_function(&name.to_string()) {
                    return Ok(Part::Value(Value::Error));
                }
                let mut known = true;
                let mut flat = vec![];
                for argument in arguments {
                    let argument = self.flatten(argument, scope)?;
                    known &= matches!(argument, Flat::Value(_));
                    flat.push(Arc::new(argument.into_expr()));
                }
                if known {
                    Part::Value(functions::call(self.run, name, arguments, scope)?)
                } else {
                    Part::Tree(Expr::Call {
                        name: name.clone(),
                        arguments: flat,
                    })
                }
            }
            Expr::List(items) => {
                let items: Result<Vec<_>, EvalError> =
                    items.iter().map(|item| self.tree(item, scope)).collect();
                Part::Tree(Expr::List(items?.into()))
            }
            Expr::Ad(ad) => {
                // As if nothing were around it: what it does not have stays.
                let inside = Scope::of(Arc::clone(ad));
                let mut flat = ClassAd::new();
                for (name, expr) in ad.iter() {
                    flat.insert(name.clone(), self.tree(expr, &inside)?);
                }
                Part::Tree(Expr::Ad(Arc::new(flat)))
            }
        })
    }

    /// An alternative that was chosen.
    fn settled(&mut self, expr: &Expr, scope: &Scope) -> Result<Part, EvalError> {
        Ok(match self.flatten(expr, scope)? {
            Flat::Value(value) => Part::Value(value),
            Flat::Expr(tree) => Part::Tree(tree),
        })
    }

    /// The value of an attribute, if nothing is missing for it.
    fn found(&mut self, expr: &Arc<Expr>, home: &Scope) -> Result<Option<Value>, EvalError> {
        if matches!(expr.as_ref(), Expr::Ad(_)) {
            return Ok(None);
        }
        // Circles of its own: what is evaluated on the way has others.
        let address = Arc::as_ptr(expr);
        if self.in_progress.contains(&address) {
            self.run.context.surroundings().circle();
            return Ok(Some(Value::Undefined));
        }
        self.in_progress.push(address);
        let flat = self.flatten(expr, home);
        self.in_progress.pop();
        Ok(match flat? {
            Flat::Value(value) => Some(value),
            Flat::Expr(_) => None,
        })
    }

    fn binary(
        &mut self,
        op: BinaryOp,
        left: &Expr,
        right: &Expr,
        scope: &Scope,
    ) -> Result<Part, EvalError> {
        use BinaryOp as Op;
        if !matches!(
            op,
            Op::Or | Op::And | Op::BitOr | Op::BitXor | Op::BitAnd | Op::Add | Op::Multiply
        ) {
            return Ok(
                match (self.flatten(left, scope)?, self.flatten(right, scope)?) {
                    (Flat::Value(left), Flat::Value(right)) => Part::Value(binary(op, left, right)),
                    (left, right) => Part::Tree(join(op, left.into_expr(), right.into_expr())),
                },
            );
        }
        let (left, right) = (self.part(left, scope)?, self.part(right, scope)?);
        Ok(combine(op, left, right))
    }
}

/// Brings the constants of both sides together.
fn combine(op: BinaryOp, mut left: Part, mut right: Part) -> Part {
    if matches!(op, BinaryOp::Or | BinaryOp::And) {
        for part in [&mut left, &mut right] {
            // A number that is taken for a condition is one from now on.
            if let Part::Value(value) = part
                && let Some(truth) = value.truth()
            {
                *part = Part::Value(Value::Boolean(truth));
            }
        }
        let one = match (&left, &right) {
            (Part::Value(_), Part::Value(_)) => None,
            (Part::Value(value), _) => Some((
                binary(op, value.clone(), Value::Undefined),
                value.clone(),
                true,
            )),
            (_, Part::Value(value)) => Some((
                binary(op, Value::Undefined, value.clone()),
                value.clone(),
                false,
            )),
            _ => None,
        };
        match one {
            Some((decided @ Value::Boolean(_), ..)) => return Part::Value(decided),
            // `true && tree` is the tree.
            Some((_, value, of_left)) if op == BinaryOp::And && value.truth() == Some(true) => {
                let other = if of_left { right } else { left };
                return match other {
                    Part::Both(..) => Part::Tree(other.into_expr()),
                    other => other,
                };
            }
            _ => {}
        }
    }
    match (left, right) {
        (Part::Value(left), Part::Value(right)) => Part::Value(constant(op, left, right)),
        (Part::Value(value), Part::Tree(tree)) | (Part::Tree(tree), Part::Value(value)) => {
            Part::Both(op, value, tree)
        }
        (Part::Both(same, value, tree), Part::Value(other)) if same == op => {
            Part::Both(op, binary(op, value, other), tree)
        }
        (Part::Value(other), Part::Both(same, value, tree)) if same == op => {
            Part::Both(op, binary(op, other, value), tree)
        }
        (Part::Both(left_op, left, left_tree), Part::Both(right_op, right, right_tree))
            if left_op == op && right_op == op =>
        {
            Part::Both(op, binary(op, left, right), join(op, left_tree, right_tree))
        }
        (Part::Both(same, value, tree), other) if same == op => {
            Part::Both(op, value, join(op, tree, other.into_expr()))
        }
        (other, Part::Both(same, value, tree)) if same == op => {
            Part::Both(op, value, join(op, other.into_expr(), tree))
        }
        (left, right) => Part::Tree(join(op, left.into_expr(), right.into_expr())),
    }
}

/// The value of two constants. Where `&&` and `||` are flattened, both sides must be what they can be of, also where
/// one decides.
fn constant(op: BinaryOp, left: Value, right: Value) -> Value {
    let is_condition =
        |value: &Value| value.truth().is_some() || value.is_undefined() || value.is_error();
    if matches!(op, BinaryOp::Or | BinaryOp::And) && !(is_condition(&left) && is_condition(&right))
    {
        return Value::Error;
    }
    binary(op, left, right)
}
