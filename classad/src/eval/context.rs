//! In which an expression is evaluated.

use super::{Evaluated, Run};
use crate::ad::ClassAd;
use crate::error::EvalError;
use crate::expr::Expr;
use crate::limits::Limits;
use crate::name::Name;
use crate::parser::parse_ad;
use crate::scope::{Scope, Side};
use crate::surroundings::Surroundings;
use crate::value::Value;
use std::sync::{Arc, LazyLock};

/// What is around the two ads of a match, and around all of that.
static MATCH: LazyLock<[Arc<ClassAd>; 3]> = LazyLock::new(|| {
    [
        "[other = .RIGHT; target = .RIGHT; my = .LEFT; ad = .LEFT]",
        "[other = .LEFT; target = .LEFT; my = .RIGHT; ad = .RIGHT]",
        "[symmetricMatch = RIGHT.requirements && LEFT.requirements; leftMatchesRight = RIGHT.requirements;
          rightMatchesLeft = LEFT.requirements; leftRankValue = LEFT.rank; rightRankValue = RIGHT.rank]",
    ]
    .map(|text| Arc::new(parse_ad(text).unwrap_or_default()))
});

/// The ads an expression sees, and its [`Surroundings`].
///
/// A name is looked for in MY ad, then in the ads around it, then, if there is one, in the TARGET ad.
///
/// ```
/// use classad::{Context, Nowhere, parse_ad, parse_expression};
/// let machine = parse_ad("[ Memory = 64; Requirements = target.Owner == \"ann\" ]")?;
/// let job = parse_ad("[ Owner = \"Ann\" ]")?;
/// let context = Context::new(&Nowhere).with_my(machine).with_target(job);
/// assert_eq!(context.eval(&parse_expression("my.Memory * 2")?)?.to_string(), "128");
/// assert_eq!(context.eval_attribute("Requirements")?.to_string(), "true");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Context<'s> {
    surroundings: &'s dyn Surroundings,
    my: Arc<ClassAd>,
    target: Option<Arc<ClassAd>>,
    limits: Limits,
}

impl<'s> Context<'s> {
    /// No attributes.
    #[must_use]
    pub fn new(surroundings: &'s dyn Surroundings) -> Self {
        Self {
            surroundings,
            my: Arc::default(),
            target: None,
            limits: Limits::default(),
        }
    }

    /// With an ad that expressions are in.
    #[must_use]
    pub fn with_my(mut self, ad: impl Into<Arc<ClassAd>>) -> Self {
        self.my = ad.into();
        self
    }

    /// With an ad that is matched against.
    #[must_use]
    pub fn with_target(mut self, ad: impl Into<Arc<ClassAd>>) -> Self {
        self.target = Some(ad.into());
        self
    }

    /// With other limits.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn surroundings(&self) -> &'s dyn Surroundings {
        self.surroundings
    }

    /// The value of an expression.
    ///
    /// # Errors
    /// [`EvalError`] where there is no value: mostly, beyond the [`Limits`].
    pub fn eval(&self, expr: &Expr) -> Evaluated {
        let (mut run, scope) = self.begin();
        run.eval(expr, &scope)
    }

    /// The value of an attribute of MY ad; UNDEFINED if it has none of that name.
    ///
    /// # Errors
    /// [`EvalError`] where there is no value: mostly, beyond the [`Limits`].
    pub fn eval_attribute(&self, name: impl Into<Name>) -> Evaluated {
        match self.my.get(name) {
            Some(expr) => self.eval(expr),
            None => Ok(Value::Undefined),
        }
    }

    /// The values of a list's items.
    ///
    /// A list is not evaluated with what it is in: `{ a, b }` has two items that are expressions.
    ///
    /// # Errors
    /// [`EvalError`] where there is no value: mostly, beyond the [`Limits`].
    pub fn eval_items(&self, list: &crate::value::List) -> Result<Vec<Value>, EvalError> {
        let (mut run, scope) = self.begin();
        let home = list.scope.clone().unwrap_or(scope);
        list.items
            .iter()
            .map(|item| run.eval(item, &home))
            .collect()
    }

    /// An evaluation, and the scope of MY ad.
    pub(crate) fn begin(&self) -> (Run<'_>, Scope) {
        let Some(target) = &self.target else {
            let scope = Scope::of(Arc::clone(&self.my));
            return (Run::new(self, scope.clone(), None), scope);
        };
        // An ad that is matched against itself is two.
        let (left, mut right) = (Arc::clone(&self.my), Arc::clone(target));
        if Arc::ptr_eq(&left, &right) {
            right = Arc::new((*right).clone());
        }
        let parts = &*MATCH;
        let (left_around, right_around) = (Arc::clone(&parts[0]), Arc::clone(&parts[1]));
        let mut whole = ClassAd::clone(&parts[2]);
        for (name, ad) in [
            ("LEFT", &left),
            ("RIGHT", &right),
            ("lCtx", &left_around),
            ("rCtx", &right_around),
        ] {
            whole.insert(name, Expr::Ad(Arc::clone(ad)));
        }
        let root = Scope::of(Arc::new(whole));
        let side =
            |around, ad, side| Scope::of_side(ad, Scope::within(around, Some(root.clone())), side);
        let left = side(left_around, left, Side::Left);
        let right = side(right_around, right, Side::Right);
        (Run::new(self, root, Some([left.clone(), right])), left)
    }
}
