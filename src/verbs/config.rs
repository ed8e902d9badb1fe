//! `wayfarer config dump [NAME]`, `check`.

use crate::args::{CheckConfig, Config as Arguments, ConfigVerb, DumpConfig, Which};
use crate::config::Site;
use crate::measured;
use crate::output;
use crate::report::{Exit, Explain, Failure, Outcome, chain, tell};
use classad::config::{Config, ConfigError, ConfigOptions, Origin, Setting, Warning};
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;

/// The version of what is reported as JSON.
const SCHEMA_VERSION: u32 = 1;
/// Where Condor looks if it is not told.
const USUAL: &str = "/etc/condor/condor_config";

/// Does one of them.
pub(crate) fn config(arguments: &Arguments) -> Outcome {
    match &arguments.what {
        ConfigVerb::Dump(dump) => show(dump),
        ConfigVerb::Check(check) => examine(check),
    }
}

/// Reads a configuration; values of no use are among its faults.
pub(crate) fn read(which: &Which) -> Outcome<Result<Config, ConfigError>> {
    let named = || std::env::var_os("CONDOR_CONFIG").map(PathBuf::from);
    let path = which.config.clone().or_else(named);
    let path = path.unwrap_or_else(|| PathBuf::from(USUAL));
    let Some(path) = path.to_str() else {
        let message = format!("{}: its name is not UTF-8", crate::raw::shown_path(&path));
        return Err(Failure::new(Exit::Usage, message));
    };
    let options = ConfigOptions {
        dialect: which.dialect,
        subsystem: Some(which.subsystem.clone()),
        local_name: which.local_name.clone(),
        ..ConfigOptions::default()
    };
    let config = Config::examine(path, &Site::new(), &options);
    if let Err(error @ ConfigError::NoFile { .. }) = config {
        let failed: Outcome<_> = Err(error).exit(Exit::Usage);
        // Whoever has named a file knows how to.
        return match which.config {
            Some(_) => failed,
            None => failed.advise(|| "--config FILE".to_owned()),
        };
    }
    Ok(config)
}

/// Where something is from.
#[derive(Serialize)]
struct Place {
    text: String,
    file: Option<String>,
    line: Option<usize>,
}

impl From<&Origin> for Place {
    fn from(origin: &Origin) -> Self {
        let mut outermost = origin;
        while let Origin::Template { template, .. } = outermost {
            outermost = &template.used;
        }
        let (file, line) = match outermost {
            Origin::Line { path, line } => (Some(path.to_string()), Some(*line)),
            _ => (None, None),
        };
        Place {
            text: origin.to_string(),
            file,
            line,
        }
    }
}

#[derive(Serialize)]
struct Shown<'c> {
    name: &'c str,
    value: Option<&'c str>,
    raw: &'c str,
    origin: Place,
}

impl<'c> From<Setting<'c>> for Shown<'c> {
    fn from(setting: Setting<'c>) -> Self {
        Shown {
            name: setting.name,
            value: setting.value,
            raw: setting.raw,
            origin: setting.origin.into(),
        }
    }
}

#[derive(Serialize)]
struct Dump<'c> {
    dialect: String,
    settings: Vec<Shown<'c>>,
}

fn show(arguments: &DumpConfig) -> Outcome {
    let config = read(&arguments.which)?.map_err(Failure::from)?;
    let settings = match &arguments.name {
        Some(name) => config.setting(name).into_iter().collect(),
        None => config.settings(),
    };
    if let Some(name) = &arguments.name
        && settings.is_empty()
    {
        let message = format!("{name} is not defined");
        return Err(Failure::new(Exit::Failed, message));
    }
    let is_asked = |fault: &&ConfigError| match (&arguments.name, fault.name()) {
        (Some(name), Some(whose)) => whose.eq_ignore_ascii_case(name),
        (Some(_), None) => false,
        (None, _) => true,
    };
    let faults: Vec<&ConfigError> = config.faults().iter().filter(is_asked).collect();
    for fault in &faults {
        tell(&chain(fault));
    }
    if arguments.which.json {
        let report = Dump {
            dialect: config.dialect().to_string(),
            settings: settings.iter().copied().map(Shown::from).collect(),
        };
        output::print_json(SCHEMA_VERSION, &report)?;
    } else {
        let is_alone = arguments.name.is_some() && !arguments.verbose;
        let mut text = String::new();
        for setting in &settings {
            match is_alone {
                true => text.extend([setting.value.unwrap_or_default(), "\n"]),
                false => put(&mut text, setting, arguments.verbose),
            }
        }
        output::print(&text)?;
    }
    Ok(match faults.is_empty() {
        true => Exit::Done,
        false => Exit::Failed,
    })
}

/// A setting as a configuration has it; where it is from in comments behind it.
fn put(text: &mut String, setting: &Setting<'_>, verbose: bool) {
    let name = setting.name;
    // Writing to a string does not fail.
    let _ = match setting.value {
        None => writeln!(text, "# {name} has no value"),
        Some(value) if value.contains('\n') => writeln!(text, "{name} @=end\n{value}\n@end"),
        Some(value) => writeln!(text, "{name} = {value}"),
    };
    if verbose {
        let _ = writeln!(text, " # at: {}", setting.origin);
        for (at, line) in setting.raw.lines().enumerate() {
            let label = if at == 0 { "raw" } else { "   " };
            let _ = writeln!(text, " # {label}: {line}");
        }
    }
}

/// Something that is wrong, or probably not meant.
#[derive(Serialize)]
struct Finding {
    is_error: bool,
    name: Option<String>,
    message: String,
    origin: Option<Place>,
}

impl From<&ConfigError> for Finding {
    fn from(error: &ConfigError) -> Self {
        Finding {
            is_error: true,
            name: error.name().map(str::to_owned),
            message: chain(error),
            origin: error.at().map(Place::from),
        }
    }
}

impl Finding {
    fn unfit(failure: Failure) -> Self {
        Finding {
            is_error: true,
            name: None,
            message: failure.to_string(),
            origin: None,
        }
    }

    fn warning(warning: &Warning, strict: bool) -> Self {
        Finding {
            is_error: strict,
            name: None,
            message: warning.to_string(),
            origin: Some((&warning.at).into()),
        }
    }
}

#[derive(Serialize)]
struct Check {
    is_sound: bool,
    findings: Vec<Finding>,
    files: Vec<String>,
}

fn examine(arguments: &CheckConfig) -> Outcome {
    let (findings, files) = match &read(&arguments.which)? {
        Err(error) => (vec![Finding::from(error)], vec![]),
        Ok(config) => {
            let warnings = config.warnings().iter();
            let warnings = warnings.map(|warning| Finding::warning(warning, arguments.strict));
            let faults = config.faults().iter().map(Finding::from);
            let mut findings: Vec<Finding> = faults.chain(warnings).collect();
            // What the machine would not do with it; with faults nobody asks.
            let is_startd = arguments.which.subsystem.eq_ignore_ascii_case("STARTD");
            if is_startd && config.faults().is_empty() {
                findings.extend(measured::fits(config).err().map(Finding::unfit));
            }
            (findings, config.files().to_vec())
        }
    };
    let is_sound = !findings.iter().any(|finding| finding.is_error);
    if arguments.which.json {
        let report = Check {
            is_sound,
            findings,
            files,
        };
        output::print_json(SCHEMA_VERSION, &report)?;
    } else {
        let mut text = String::new();
        for finding in &findings {
            let kind = if finding.is_error { "error" } else { "warning" };
            let _ = writeln!(
                text,
                "{kind}: {}",
                crate::raw::visible_lines(&finding.message)
            );
        }
        output::print(&text)?;
    }
    Ok(match is_sound {
        true => Exit::Done,
        false => Exit::Failed,
    })
}
