//! What transforms make of a job, and what requirements say of it.

use super::{SCHEMA_VERSION, read};
use crate::args::SubmitPolicy;
use crate::config::Site;
use crate::measured::placed;
use crate::output;
use crate::raw;
use crate::report::{Exit, Explain, Failure, Outcome, tell};
use crate::startd::{self, Surrounding};
use classad::config::{Config, ConfigOptions, Opinion, Transformed, Verdict};
use classad::{ClassAd, Expr, parse_any_ads};
use serde::Serialize;
use starter::machine::{job_defaults, with_defaults};
use std::fmt::Write;
use std::path::Path;

pub(super) fn submit(arguments: &SubmitPolicy) -> Outcome {
    let my = match &arguments.my {
        Some(path) => {
            let ads = parse_any_ads(&read(path)?);
            let ads = ads.context(|| raw::shown_path(path).to_string());
            ads.exit(Exit::Usage)?.pop().unwrap_or_default()
        }
        None => ClassAd::new(),
    };
    let (done, opinions) = judged(&arguments.config, &my, &job(&arguments.file)?)?;
    match arguments.json {
        true => output::print_json(SCHEMA_VERSION, &Report::of(&done.ad, &done.by, &opinions))?,
        false => {
            let mut text = done.ad.to_old().to_string();
            for name in &done.by {
                let _ = writeln!(text, "# transformed by {name}");
            }
            for opinion in &opinions {
                let (word, reason) = said(&opinion.verdict);
                let reason = reason.map(|reason| format!(": {}", raw::visible_lines(reason)));
                let _ = writeln!(
                    text,
                    "# {}: {word}{}",
                    opinion.name,
                    reason.unwrap_or_default()
                );
            }
            output::print(&text)?;
        }
    }
    let refused = |opinion: &Opinion| matches!(opinion.verdict, Verdict::Refused(_));
    Ok(match opinions.iter().any(refused) {
        true => Exit::Failed,
        false => Exit::Done,
    })
}

/// What a configuration's transforms make of a job, and what its requirements say of that.
pub(crate) fn judged(
    config: &Path,
    my: &ClassAd,
    job: &ClassAd,
) -> Outcome<(Transformed, Vec<Opinion>)> {
    let Some(name) = config.to_str() else {
        let message = format!("{}: its name is not UTF-8", raw::shown_path(config));
        return Err(Failure::new(Exit::Usage, message));
    };
    let config = Config::read(name, &Site::new(), &ConfigOptions::default()).exit(Exit::Usage)?;
    judged_by(&config, my, job)
}

/// The same, of a configuration that was read.
pub(crate) fn judged_by(
    config: &Config,
    my: &ClassAd,
    job: &ClassAd,
) -> Outcome<(Transformed, Vec<Opinion>)> {
    let site = Site::of(config)?;
    let policy = config.submit_policy().exit(Exit::Usage)?;
    let defaults = job_defaults(&|name: &str| config.get(name));
    let defaults = defaults.map_err(|error| placed(config, error))?;
    let job = with_defaults(job.clone(), &defaults);
    let done = policy.transform(&job, &site)?;
    let opinions = policy.opinions(my, &done.ad, &site);
    Ok((done, opinions))
}

/// Says who hands a job in, whatever the job says.
pub(crate) fn with_owner(mut ad: ClassAd) -> ClassAd {
    let user = crate::users::name_of(nix::unistd::getuid());
    ad.insert("Owner", Expr::from(user));
    ad
}

/// A job as it would be handed in here, by this user.
fn job(path: &Path) -> Outcome<ClassAd> {
    let shown = raw::shown_path(path).to_string();
    let around = Surrounding {
        directory: std::env::current_dir()?,
        environment: std::env::vars_os().collect(),
    };
    let read = startd::read_job(&shown, &read(path)?, &around).exit(Exit::Usage)?;
    if !read.ignored.is_empty() {
        let ignored = read.ignored.join(", ");
        tell(&format!("{shown}: without meaning here: {ignored}"));
    }
    Ok(with_owner(read.spec.ad))
}

/// A word for it, and the reason.
fn said(verdict: &Verdict) -> (&'static str, Option<&str>) {
    match verdict {
        Verdict::Met => ("met", None),
        Verdict::Warned(reason) => ("warning", Some(reason)),
        Verdict::Refused(reason) => ("refused", Some(reason)),
    }
}

#[derive(Serialize)]
struct Report<'r> {
    /// In the old syntax.
    job: String,
    transformed_by: &'r [String],
    requirements: Vec<Said<'r>>,
}

#[derive(Serialize)]
struct Said<'r> {
    name: &'r str,
    verdict: &'static str,
    reason: Option<&'r str>,
}

impl<'r> Report<'r> {
    fn of(job: &ClassAd, by: &'r [String], opinions: &'r [Opinion]) -> Self {
        let one = |opinion: &'r Opinion| {
            let (verdict, reason) = said(&opinion.verdict);
            let name = opinion.name.as_str();
            Said {
                name,
                verdict,
                reason,
            }
        };
        Report {
            job: job.to_old().to_string(),
            transformed_by: by,
            requirements: opinions.iter().map(one).collect(),
        }
    }
}
