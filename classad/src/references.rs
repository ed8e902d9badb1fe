//! Which names an expression refers to.

use crate::ad::ClassAd;
use crate::error::EvalError;
use crate::eval::reference::Found;
use crate::eval::{Context, Run};
use crate::expr::Expr;
use crate::name::Name;
use crate::scope::Scope;
use crate::value::Value;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    External,
    Internal,
}

impl Context<'_> {
    /// The names that an expression refers to and MY ad has not, those of its attributes' expressions among them.
    ///
    /// ```
    /// use classad::{Context, Nowhere, parse_ad, parse_expression};
    /// let context = Context::new(&Nowhere).with_my(parse_ad("[ a = b + 1 ]")?);
    /// let expr = parse_expression("a > target.Memory")?;
    /// assert_eq!(context.external_references(&expr)?, ["b", "target.Memory"]);
    /// assert_eq!(context.internal_references(&expr)?, ["a"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`EvalError::NoAd`] for `expr.name` where `expr` is no ad, others beyond the limits.
    pub fn external_references(&self, expr: &Expr) -> Result<Vec<String>, EvalError> {
        let (mut run, scope) = self.begin();
        run.root = scope.clone();
        external_in(&mut run, expr, &scope)
    }

    /// The attributes of MY ad that an expression refers to, those that they refer to among them.
    ///
    /// # Errors
    /// As of [`Context::external_references`].
    pub fn internal_references(&self, expr: &Expr) -> Result<Vec<String>, EvalError> {
        let (mut run, scope) = self.begin();
        run.root = scope.clone();
        let mut search = Search {
            wanted: Wanted::Internal,
            names: vec![],
            depth: 0,
            selecting: false,
        };
        search.visit(&mut run, expr, &scope)?;
        Ok(search.sorted())
    }
}

/// The names that are bound to nothing.
pub(crate) fn external_in(
    run: &mut Run<'_>,
    expr: &Expr,
    scope: &Scope,
) -> Result<Vec<String>, EvalError> {
    let mut search = Search {
        wanted: Wanted::External,
        names: vec![],
        depth: 0,
        selecting: false,
    };
    search.visit(run, expr, scope)?;
    Ok(search.sorted())
}

struct Search {
    wanted: Wanted,
    names: Vec<String>,
    depth: usize,
    /// Looking at what something is selected from: not all that is in that.
    selecting: bool,
}

impl Search {
    /// By their letters, each once.
    fn sorted(mut self) -> Vec<String> {
        self.names.sort_by_key(|name| name.to_ascii_lowercase());
        self.names.dedup_by_key(|name| name.to_ascii_lowercase());
        self.names
    }

    fn visit(&mut self, run: &mut Run<'_>, expr: &Expr, scope: &Scope) -> Result<(), EvalError> {
        run.step()?;
        let limit = run.context.limits().depth;
        if self.depth >= limit {
            run.context.surroundings().circle();
            return Err(EvalError::TooDeep { limit });
        }
        self.depth += 1;
        let visited = self.visit_inner(run, expr, scope);
        self.depth -= 1;
        visited
    }

    fn visit_inner(
        &mut self,
        run: &mut Run<'_>,
        expr: &Expr,
        scope: &Scope,
    ) -> Result<(), EvalError> {
        match expr {
            Expr::Literal(_) => Ok(()),
            Expr::Reference {
                from,
                absolute,
                name,
            } => self.reference(run, from.as_deref(), *absolute, name, scope),
            Expr::Unary(_, inner) | Expr::Parentheses(inner) => self.visit(run, inner, scope),
            Expr::Binary(_, left, right)
            | Expr::Default(left, right)
            | Expr::Subscript(left, right) => {
                self.visit(run, left, scope)?;
                self.visit(run, right, scope)
            }
            Expr::Conditional(condition, then, otherwise) => {
                self.visit(run, condition, scope)?;
                self.visit(run, then, scope)?;
                self.visit(run, otherwise, scope)
            }
            Expr::Call { arguments, .. } => self.visit_all(run, arguments, scope),
            Expr::List(items) => self.visit_all(run, items, scope),
            Expr::Ad(_) if self.selecting => Ok(()),
            Expr::Ad(ad) => self.ad(run, ad, scope),
        }
    }

    fn visit_all(
        &mut self,
        run: &mut Run<'_>,
        all: &[Arc<Expr>],
        scope: &Scope,
    ) -> Result<(), EvalError> {
        all.iter().try_for_each(|expr| self.visit(run, expr, scope))
    }

    /// Attributes of an ad that is written out count as if they were not in one.
    fn ad(&mut self, run: &mut Run<'_>, ad: &ClassAd, scope: &Scope) -> Result<(), EvalError> {
        ad.iter()
            .try_for_each(|(_, expr)| self.visit(run, expr, scope))
    }

    fn reference(
        &mut self,
        run: &mut Run<'_>,
        from: Option<&Expr>,
        absolute: bool,
        name: &Name,
        scope: &Scope,
    ) -> Result<(), EvalError> {
        let start = match from {
            None if absolute => run.root.clone(),
            None => scope.clone(),
            Some(from) => {
                if self.wanted == Wanted::Internal {
                    let before = std::mem::replace(&mut self.selecting, true);
                    self.visit(run, from, scope)?;
                    self.selecting = before;
                }
                match run.eval(from, scope)? {
                    Value::Ad(ad) => ad,
                    Value::Undefined => {
                        if self.wanted == Wanted::External {
                            self.names.push(format!("{from}.{name}"));
                        }
                        return Ok(());
                    }
                    _ => return Err(EvalError::NoAd),
                }
            }
        };
        match run.find_in(&start, name) {
            Found::Attribute(expr, home) => {
                if self.wanted == Wanted::Internal && home.is(&run.root) {
                    self.names.push(name.to_string());
                }
                self.visit(run, &expr, &home)
            }
            Found::Ad(_) if self.selecting => Ok(()),
            // All of MY, say, which refers to what its attributes refer to.
            Found::Ad(scope) => self.ad(run, scope.ad(), &scope),
            Found::Value(_) => {
                if self.wanted == Wanted::External {
                    self.names.push(name.to_string());
                }
                Ok(())
            }
        }
    }
}
