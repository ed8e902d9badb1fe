//! Requirements that a job has to meet to come in.

use super::missing;
use crate::ad::ClassAd;
use crate::config::config::Config;
use crate::config::error::ConfigError;
use crate::config::origin::Origin;
use crate::eval::Context;
use crate::expr::Expr;
use crate::surroundings::{Nowhere, Surroundings};
use crate::value::Value;

/// `SUBMIT_REQUIREMENT_NAME`, with its `_REASON` and `_IS_WARNING`.
#[derive(Clone, Debug)]
pub struct SubmitRequirement {
    name: String,
    expr: Expr,
    reason: Option<Expr>,
    is_warning: bool,
}

/// What a requirement says of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is met.
    Met,
    /// It is not, and the job may come in; why.
    Warned(String),
    /// It is not, and the job may not come in; why.
    Refused(String),
}

/// A requirement, and what it says.
#[derive(Clone, Debug)]
pub struct Opinion {
    /// As it is listed.
    pub name: String,
    /// What it says.
    pub verdict: Verdict,
}

impl SubmitRequirement {
    pub(super) fn read(config: &Config, name: String) -> Result<Self, ConfigError> {
        let full = format!("SUBMIT_REQUIREMENT_{name}");
        let Some(expr) = config.expression(&full)? else {
            return Err(missing(config, "SUBMIT_REQUIREMENT_NAMES", name, &full));
        };
        let reason = config.expression(&format!("{full}_REASON"))?;
        let of_warning = format!("{full}_IS_WARNING");
        let is_warning = match config.expression(&of_warning)? {
            None => false,
            Some(expr) => {
                let value = Context::new(&Nowhere).eval(&expr);
                let truth = value.ok().and_then(|value| value.truth());
                truth.ok_or_else(|| {
                    let entry = config.table().lookup(&of_warning);
                    ConfigError::Submit {
                        at: entry.map_or(Origin::Default, |entry| entry.origin.clone()),
                        name: of_warning.clone(),
                        text: expr.to_string(),
                        what: "neither true nor false".to_owned(),
                        reason: None,
                    }
                })?
            }
        };
        Ok(Self {
            name,
            expr,
            reason,
            is_warning,
        })
    }

    /// What is neither true nor false is not met (the manual speaks of booleans only).
    pub(super) fn opinion(
        &self,
        my: &ClassAd,
        job: &ClassAd,
        surroundings: &dyn Surroundings,
    ) -> Opinion {
        let context = Context::new(surroundings)
            .with_my(my.clone())
            .with_target(job.clone());
        let value = context.eval(&self.expr);
        let truth = value.as_ref().ok().and_then(Value::truth);
        let name = &self.name;
        let reason = || match &value {
            Ok(value) if truth.is_none() => {
                format!("submit requirement {name} is {value}, neither true nor false")
            }
            Err(error) => format!("submit requirement {name} has no value: {error}"),
            Ok(_) => {
                let said = self.reason.as_ref().map(|reason| context.eval(reason));
                match said {
                    Some(Ok(Value::String(text))) => text.to_string(),
                    _ => format!("submit requirement {name} is not met"),
                }
            }
        };
        let verdict = match (truth, self.is_warning) {
            (Some(true), _) => Verdict::Met,
            (_, true) => Verdict::Warned(reason()),
            (_, false) => Verdict::Refused(reason()),
        };
        let name = name.clone();
        Opinion { name, verdict }
    }
}
