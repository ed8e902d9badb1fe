//! `wayfarer platform`.

use crate::args;
use crate::output;
use crate::report::{Exit, Outcome, tell};
use crate::verbs::{needed_by, open_image};
use ckpt_lib::platform::{Missing, Platform};
use serde::Serialize;
use std::path::{Path, PathBuf};

const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Report {
    /// What this machine offers.
    platform: String,
    level: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<Check>,
}

#[derive(Serialize)]
struct Check {
    #[serde(with = "crate::raw::path")]
    image: PathBuf,
    /// What the image needs.
    needs: String,
    may_restart: bool,
    missing: Vec<MissingLine>,
}

#[derive(Serialize)]
struct MissingLine {
    text: String,
    what: Missing,
}

/// Prints what this machine offers, or what it lacks for an image; status 4 if something.
pub(crate) fn platform(arguments: &args::Platform) -> Outcome {
    let offered = Platform::of_this_machine();
    let check = match &arguments.check {
        Some(image) => Some(check(image, &offered)?),
        None => None,
    };
    let fits = check.as_ref().is_none_or(|check| check.may_restart);
    if arguments.json {
        let report = Report {
            platform: offered.to_string(),
            level: offered.level().map(|level| level.name()),
            check,
        };
        output::print_json(SCHEMA_VERSION, &report)?;
    } else {
        output::print(&match &check {
            None => format!("{offered}\n"),
            Some(check) => render(check),
        })?;
    }
    Ok(if fits { Exit::Done } else { Exit::Image })
}

/// What the image at this path needs; none: it cannot be read.
pub(crate) fn needed(path: &Path) -> Option<Platform> {
    needed_by(&open_image(path).ok()?).ok()
}

fn check(path: &Path, offered: &Platform) -> Outcome<Check> {
    let image = open_image(path)?;
    let needed = needed_by(&image)?;
    let missing = needed.missing(offered);
    if !ckpt_lib::host::has_proc() {
        tell(
            "this root has no /proc: a restart here needs --degraded, if the job is to have ids of its own",
        );
    }
    let line = |what: Missing| MissingLine {
        text: what.to_string(),
        what,
    };
    Ok(Check {
        image: path.to_owned(),
        needs: needed.to_string(),
        may_restart: missing.is_empty(),
        missing: missing.into_iter().map(line).collect(),
    })
}

fn render(check: &Check) -> String {
    let image = crate::raw::shown_path(&check.image);
    if check.may_restart {
        return format!("{image} may restart on this machine\n");
    }
    let mut text = format!("{image} may not restart on this machine:\n");
    for line in &check.missing {
        text.push_str(&format!("  {}\n", line.text));
    }
    text
}
