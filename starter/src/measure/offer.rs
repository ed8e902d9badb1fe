//! START and Requirements in the ad that others see (manual 6.1 and current, "The START expression"; 6.8 §3.5.3).

use classad::{BinaryOp, ClassAd, Context, EvalError, Expr, Surroundings};
use std::sync::Arc;

/// Under which conditions a slot takes jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// START.
    pub start: Arc<Expr>,
    /// IS_VALID_CHECKPOINT_PLATFORM, in the eras that have it.
    pub valid_checkpoint_platform: Option<Arc<Expr>>,
    /// WithinResourceLimits, of partitionable and dynamic slots.
    pub within_resource_limits: Option<Arc<Expr>>,
    /// Whether it takes jobs at all: not while it preempts, drains or shuts down.
    pub is_available: bool,
}

impl Offer {
    /// Writes START, Requirements and what these refer to into an ad. Requirements is START and the other two, FALSE of a slot that takes no
    /// jobs. A START that is TRUE of the ad alone is not published, and is no part of Requirements.
    ///
    /// # Errors
    /// [`EvalError`] if START cannot be evaluated within the limits.
    pub fn publish(
        &self,
        ad: &mut ClassAd,
        surroundings: &dyn Surroundings,
    ) -> Result<(), EvalError> {
        let mut all: Vec<Expr> = vec![];
        let parts = [
            ("IsValidCheckpointPlatform", &self.valid_checkpoint_platform),
            ("WithinResourceLimits", &self.within_resource_limits),
        ];
        for (name, part) in parts {
            ad.remove(name);
            if let Some(part) = part {
                ad.insert(name, part.clone());
                all.push(Expr::attribute(name));
            }
        }
        ad.insert("Start", self.start.clone());
        let context = Context::new(surroundings).with_my(ad.clone());
        // Numbers count as conditions, as everywhere.
        if context.eval(&self.start)?.truth() == Some(true) {
            ad.remove("Start");
        } else {
            all.insert(0, Expr::attribute("Start"));
        }
        let joined = all
            .into_iter()
            .reduce(|left, right| Expr::Binary(BinaryOp::And, Arc::new(left), Arc::new(right)));
        let requirements = match self.is_available {
            true => joined.unwrap_or_else(|| Expr::from(true)),
            false => Expr::from(false),
        };
        ad.insert("Requirements", requirements);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use classad::{Nowhere, parse_expression, parse_old_ad};

    fn published(start: &str, limits: Option<&str>, is_available: bool) -> (String, String) {
        let parse = |text: &str| Arc::new(parse_expression(text).expect("is there"));
        let offer = Offer {
            start: parse(start),
            valid_checkpoint_platform: None,
            within_resource_limits: limits.map(parse),
            is_available,
        };
        let mut ad = parse_old_ad("KeyboardIdle = 1000\nStart = false").expect("is there");
        offer.publish(&mut ad, &Nowhere).expect("is there");
        let text = |name| ad.get(name).map_or(String::new(), |expr| expr.to_string());
        (text("Start"), text("Requirements"))
    }

    #[test]
    fn a_start_that_is_true_of_the_machine_alone_is_not_published() {
        let is = |start: &str, requirements: &str| (start.to_owned(), requirements.to_owned());
        let found = published("KeyboardIdle > 15 * 60", None, true);
        assert_eq!(found, is("", "true"));
        let limits = Some("TARGET.RequestCpus <= 1");
        let found = published("KeyboardIdle > 15 * 60", limits, true);
        assert_eq!(found, is("", "WithinResourceLimits"));
        let found = published("1", None, true);
        assert_eq!(found, is("", "true"));
    }

    #[test]
    fn a_start_that_asks_for_a_job_or_is_false_is_published() {
        for start in [
            "KeyboardIdle > 2000",
            "TARGET.Owner == \"ann\"",
            "\"true\"",
            "error",
        ] {
            let (published, requirements) = published(start, None, true);
            assert_eq!(
                (published.as_str(), requirements.as_str()),
                (start, "Start")
            );
        }
        let (_, requirements) = published("Owner == \"ann\"", Some("true"), true);
        assert_eq!(requirements, "Start && WithinResourceLimits");
    }

    #[test]
    fn a_slot_that_takes_no_jobs_says_false() {
        let (start, requirements) = published("KeyboardIdle > 2000", None, false);
        assert_eq!(
            (start.as_str(), requirements.as_str()),
            ("KeyboardIdle > 2000", "false")
        );
        assert_eq!(published("true", None, false).1, "false");
    }
}
