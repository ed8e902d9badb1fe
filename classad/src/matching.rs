//! Whether two ads suit each other, and how well.

use crate::ad::ClassAd;
use crate::error::EvalError;
use crate::eval::Context;
use crate::surroundings::Surroundings;
use crate::value::Value;
use std::sync::Arc;

/// What two ads have to say about each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Match {
    /// The first ad's `Requirements` hold for the second.
    pub left_accepts: bool,
    /// The second ad's `Requirements` hold for the first.
    pub right_accepts: bool,
    /// How much the first wants the second: its `Rank`, 0 where that is no number.
    pub left_rank: f64,
    /// How much the second wants the first.
    pub right_rank: f64,
}

impl Match {
    /// Compares two ads, each being MY in its own expressions, and TARGET in the other's.
    ///
    /// ```
    /// use classad::{Match, Nowhere, parse_ad};
    /// let job = parse_ad("[ Requirements = Memory >= 64; Rank = target.Memory; Owner = \"ann\" ]")?;
    /// let machine = parse_ad("[ Requirements = target.Owner != \"bob\"; Memory = 128 ]")?;
    /// let both = Match::of(job, machine, &Nowhere)?;
    /// assert!(both.is_symmetric());
    /// assert_eq!(both.left_rank, 128.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`EvalError`] where an expression is beyond the limits.
    pub fn of(
        left: impl Into<Arc<ClassAd>>,
        right: impl Into<Arc<ClassAd>>,
        surroundings: &dyn Surroundings,
    ) -> Result<Self, EvalError> {
        let (left, right) = (left.into(), right.into());
        let (left_accepts, left_rank) = opinion(&left, &right, surroundings)?;
        let (right_accepts, right_rank) = opinion(&right, &left, surroundings)?;
        Ok(Self {
            left_accepts,
            right_accepts,
            left_rank,
            right_rank,
        })
    }

    /// Whether both accept each other.
    #[must_use]
    pub fn is_symmetric(&self) -> bool {
        self.left_accepts && self.right_accepts
    }
}

fn opinion(
    my: &Arc<ClassAd>,
    target: &Arc<ClassAd>,
    surroundings: &dyn Surroundings,
) -> Result<(bool, f64), EvalError> {
    let context = Context::new(surroundings)
        .with_my(Arc::clone(my))
        .with_target(Arc::clone(target));
    let accepts = context.eval_attribute("Requirements")?.truth() == Some(true);
    let rank = match context.eval_attribute("Rank")? {
        Value::Integer(rank) => rank as f64,
        Value::Real(rank) => rank,
        Value::Boolean(rank) => f64::from(u8::from(rank)),
        _ => 0.0,
    };
    Ok((accepts, rank))
}
