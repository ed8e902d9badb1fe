//! What is done with a job that is handed in: it is transformed, then asked whether it may come in.
//!
//! ```text
//! JOB_TRANSFORM_NAMES ------ job's ad --transform--> job's ad, one transform after the other
//! SUBMIT_REQUIREMENT_NAMES - job's ad --opinions---> met, warned or refused, up to the first refusal
//! ```
//! Current manual, "condor_schedd Policy Configuration" and "ClassAd Transforms".
//!
//! # What it does not do
//! It knows no `TRANSFORM` that makes several jobs of one. `UNIVERSE` and `NAME` of a transform are read, and change nothing in an ad.

mod apply;
mod requirement;
mod rules;
#[cfg(test)]
#[allow(clippy::expect_used, reason = "a test")]
mod tests;

pub use apply::Transformed;
pub use requirement::{Opinion, SubmitRequirement, Verdict};

use super::config::Config;
use super::error::ConfigError;
use super::origin::Origin;
use super::sources::Sources;
use super::table::key;
use crate::ad::ClassAd;
use crate::surroundings::Surroundings;
use rules::Rules;

/// A transform.
#[derive(Debug)]
struct Transform {
    /// As it is listed.
    name: String,
    at: Origin,
    rules: Rules,
}

/// What a configuration wants of jobs that are handed in.
///
/// ```
/// use classad::{ClassAd, Nowhere, parse_old_ad};
/// use classad::config::{Config, ConfigOptions, Verdict};
///
/// let text = "
///     JOB_TRANSFORM_NAMES = Small
///     JOB_TRANSFORM_Small = DEFAULT RequestMemory 256
///     SUBMIT_REQUIREMENT_NAMES = Enough
///     SUBMIT_REQUIREMENT_Enough = RequestMemory > 512
/// ";
/// let config = Config::parse(text, &Nowhere, &ConfigOptions::default())?;
/// let policy = config.submit_policy()?;
/// let job = policy.transform(&parse_old_ad("Owner = \"ann\"")?, &Nowhere)?.ad;
/// let opinions = policy.opinions(&ClassAd::new(), &job, &Nowhere);
/// assert!(matches!(opinions[0].verdict, Verdict::Refused(_)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SubmitPolicy<'c> {
    config: &'c Config,
    transforms: Vec<Transform>,
    requirements: Vec<SubmitRequirement>,
}

/// The names of a list.
fn names(config: &Config, list: &str) -> Vec<String> {
    let list = config.get(list).unwrap_or_default();
    let names = list.split([' ', ',', '\t', '\n']);
    let names = names.filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// Whether the value of a key is the text of a transform, whose macros wait for a job. One in brackets has none.
pub(super) fn waits_for_jobs(key: &str, raw: &str) -> bool {
    key.starts_with("job_transform_")
        && key != "job_transform_names"
        && !raw.trim_start().starts_with('[')
}

impl<'c> SubmitPolicy<'c> {
    /// What a configuration has, and what is wrong with the rest.
    pub(super) fn examine(config: &'c Config) -> (Self, Vec<ConfigError>) {
        let mut faults = vec![];
        let mut policy = Self {
            config,
            transforms: vec![],
            requirements: vec![],
        };
        for name in names(config, "JOB_TRANSFORM_NAMES") {
            match policy.read_transform(name) {
                Ok(transform) => policy.transforms.push(transform),
                Err(fault) => faults.push(fault),
            }
        }
        for name in names(config, "SUBMIT_REQUIREMENT_NAMES") {
            match SubmitRequirement::read(config, name) {
                Ok(requirement) => policy.requirements.push(requirement),
                Err(fault) => faults.push(fault),
            }
        }
        (policy, faults)
    }

    fn read_transform(&self, name: String) -> Result<Transform, ConfigError> {
        let full = format!("JOB_TRANSFORM_{name}");
        let Some((key, entry)) = self.config.table().resolve(&full) else {
            return Err(missing(self.config, "JOB_TRANSFORM_NAMES", name, &full));
        };
        let at = entry.origin.clone();
        // What is in brackets has been expanded with all the others.
        let text = match waits_for_jobs(&key, &entry.raw) {
            true => entry.raw.clone(),
            false => self.config.get(&full).unwrap_or_default(),
        };
        let rules = Rules::parse(&text).map_err(|fault| fault.at(at.clone(), &full))?;
        Ok(Transform { name, at, rules })
    }

    /// Does all transforms, in order, that want this job.
    ///
    /// # Errors
    /// [`ConfigError::Submit`] of the first rule that cannot be carried out on it: the job is of no use then.
    pub fn transform(
        &self,
        job: &ClassAd,
        sources: &dyn Sources,
    ) -> Result<Transformed, ConfigError> {
        let mut done = Transformed {
            ad: job.clone(),
            by: vec![],
        };
        for transform in &self.transforms {
            let applied = apply::apply(self.config, &transform.rules, &done.ad, sources);
            let full = || format!("JOB_TRANSFORM_{}", transform.name);
            let applied = applied.map_err(|fault| fault.at(transform.at.clone(), &full()))?;
            if let Some(ad) = applied {
                done.ad = ad;
                done.by.push(transform.name.clone());
            }
        }
        Ok(done)
    }

    /// What the requirements say of a job, in order, up to the first that refuses it. `my` is the ad of who takes it in.
    #[must_use]
    pub fn opinions(
        &self,
        my: &ClassAd,
        job: &ClassAd,
        surroundings: &dyn Surroundings,
    ) -> Vec<Opinion> {
        let mut opinions = vec![];
        for requirement in &self.requirements {
            let opinion = requirement.opinion(my, job, surroundings);
            let is_refusal = matches!(opinion.verdict, Verdict::Refused(_));
            opinions.push(opinion);
            if is_refusal {
                break;
            }
        }
        opinions
    }
}

/// A name that is listed, and nowhere defined.
fn missing(config: &Config, list: &str, name: String, full: &str) -> ConfigError {
    let entry = config.table().lookup(list);
    ConfigError::Submit {
        at: entry.map_or(Origin::Default, |entry| entry.origin.clone()),
        name: list.to_owned(),
        text: name,
        what: format!("{full} is not defined"),
        reason: None,
    }
}

/// What is wrong with a rule; where it is from is known to who asked.
#[derive(Debug)]
struct Fault {
    text: String,
    what: String,
    reason: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Fault {
    fn new(text: &str, what: impl Into<String>) -> Self {
        Self {
            text: text.to_owned(),
            what: what.into(),
            reason: None,
        }
    }

    fn because(mut self, reason: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.reason = Some(Box::new(reason));
        self
    }

    fn at(self, at: Origin, name: &str) -> ConfigError {
        ConfigError::Submit {
            at,
            name: name.to_owned(),
            text: self.text,
            what: self.what,
            reason: self.reason,
        }
    }
}

/// The key of an attribute of the job, as macros name it.
fn attribute_key(name: &str) -> String {
    key(&format!("my.{name}"))
}
