//! Why a job does not get a slot, in words.

use super::{Machine, Moment, Refusal, SlotId, State};
use classad::{BinaryOp, ClassAd, Context, Expr};
use std::sync::Arc;

/// So many parts of a condition are told.
const MOST: usize = 8;

impl Machine {
    /// Why a job does not get a slot now: who of the two does not accept the other, or where the slot is; none: it could have it.
    #[must_use]
    pub fn why_not(&self, id: SlotId, job: &Arc<ClassAd>, now: Moment) -> Option<String> {
        let slot = self.slot(id)?;
        Some(match self.refusal(id, job, now) {
            Some(Refusal::Start { value }) => {
                let failing = self.failing("START", slot.ad(), job, now);
                format!("START is {value}{failing}")
            }
            Some(Refusal::Platform { value }) => format!(
                "its images are not for this machine (IS_VALID_CHECKPOINT_PLATFORM is {value})"
            ),
            Some(Refusal::Resources {
                name,
                wanted,
                there,
            }) => format!("the job asks for {wanted} {name}, and there are {there}"),
            Some(Refusal::NoNumber { name, value }) => {
                format!("the job's {name} is {value}, expected a number")
            }
            Some(Refusal::Requirements { value }) => {
                let failing = self.failing("Requirements", job, slot.ad(), now);
                format!("the job's Requirements are {value}{failing}")
            }
            None if !matches!(slot.place().state, State::Owner | State::Unclaimed) => {
                format!("it is {}", slot.place())
            }
            None => return None,
        })
    }

    /// The parts of a condition that are not TRUE, where it says that all are to be.
    fn failing(&self, name: &str, my: &Arc<ClassAd>, target: &Arc<ClassAd>, now: Moment) -> String {
        let clock = self.common.clock(now);
        let context = Context::new(&clock)
            .with_my(Arc::clone(my))
            .with_target(Arc::clone(target));
        let Some(expr) = my.get(name) else {
            return String::new();
        };
        let mut parts = vec![];
        conjuncts(expr, &mut parts);
        let is_failing = |part: &&&Expr| {
            let value = context.eval(part);
            !value.is_ok_and(|value| value.truth() == Some(true))
        };
        let failing = parts.iter().filter(is_failing).take(MOST);
        let failing: Vec<String> = failing.map(|part| part.to_string()).collect();
        match failing.is_empty() {
            true => String::new(),
            false => format!(": {}", failing.join(", ")),
        }
    }
}

fn conjuncts<'e>(expr: &'e Expr, parts: &mut Vec<&'e Expr>) {
    match expr {
        Expr::Binary(BinaryOp::And, left, right) => {
            conjuncts(left, parts);
            conjuncts(right, parts);
        }
        Expr::Parentheses(inner) => conjuncts(inner, parts),
        other => parts.push(other),
    }
}
