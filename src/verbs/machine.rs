//! `wayfarer machine`.

use crate::args;
use crate::output::{self, Table};
use crate::report::{Exit, Explain, Outcome};
use ::classad::ClassAd;
use ckpt_lib::platform::Platform;
use serde::Serialize;
use starter::measure::{
    Benchmarks, Connected, Dialect, Facts, Here, Look, Machine, Score, Settings, Slot, Watch,
};

const SCHEMA_VERSION: u32 = 1;
/// The kernel feature of [`Platform`] that HTCondor calls HasUserNamespaces.
const OWN_IDS: &str = "own_ids";

#[derive(Serialize)]
struct Report {
    dialect: &'static str,
    /// An ad for each slot, as ClassAds in JSON.
    ads: Vec<serde_json::Value>,
}

/// Measures this machine, as one slot that has all of it and begins now.
pub(crate) fn machine(arguments: &args::Machine) -> Outcome {
    let ads = measure(arguments)?;
    if arguments.json {
        let value = |ad: &ClassAd| serde_json::from_slice(&ad.to_json().into_bytes());
        let report = Report {
            dialect: dialect(arguments.dialect).name(),
            ads: ads.iter().map(value).collect::<Result<_, _>>()?,
        };
        output::print_json(SCHEMA_VERSION, &report)?;
    } else if arguments.long {
        let texts = ads.iter().map(|ad| ad.to_old().into_bytes());
        let texts: Vec<_> = texts.collect();
        output::print_bytes(&texts.join(&b'\n'))?;
    } else {
        output::print(&render(&ads))?;
    }
    Ok(Exit::Done)
}

fn dialect(era: args::Era) -> Dialect {
    match era {
        args::Era::First => Dialect::V6_1,
        args::Era::Middle => Dialect::V6_8,
        args::Era::Today => Dialect::V25,
    }
}

fn measure(arguments: &args::Machine) -> Outcome<Vec<ClassAd>> {
    let machine = || "this machine cannot be measured".to_owned();
    let here = Here::with_inputs([]);
    let facts = Facts::of(&here).context(machine)?;
    let platform = Platform::of_this_machine();
    let mut settings = Settings::default_of(dialect(arguments.dialect), facts.processors.threads);
    settings.connected = Connected::ALL;
    settings.watched.stamps.clone_from(&arguments.console_stamp);
    settings.has_user_namespaces = Some(platform.kernel.contains(OWN_IDS));
    settings.checkpoint_platform = Some(platform.to_string());
    if let Some(execute) = &arguments.execute {
        settings.execute.clone_from(execute);
    }
    let mut benchmarks = Benchmarks::default();
    if arguments.benchmark {
        let score = Score::measure();
        benchmarks.note(starter::measure::Source::now(&here), score);
    }
    let look = Look::now(&here, &mut Watch::once(), &settings).context(machine)?;
    let memory = settings.memory_mib_of(&facts);
    let slot = Slot::whole(settings.cpus_of(&facts), memory, look.at);
    let machine = Machine {
        facts: &facts,
        look: &look,
        settings: &settings,
        benchmarks: &benchmarks,
        slots: &[slot],
        started_at: look.at,
    };
    Ok(machine.ads())
}

/// What people want to know first.
fn render(ads: &[ClassAd]) -> String {
    const SHOWN: [&str; 10] = [
        "Name",
        "OpSys",
        "Arch",
        "State",
        "Activity",
        "LoadAvg",
        "KeyboardIdle",
        "Cpus",
        "Memory",
        "Disk",
    ];
    let mut table = Table::new(&SHOWN.map(str::to_uppercase).each_ref().map(String::as_str));
    for ad in ads {
        let cell = |name: &&str| {
            let text = ad.get(*name).map(|expr| expr.to_string());
            let text = text.unwrap_or_else(|| "-".to_owned());
            match (*name, text.parse::<i64>(), text.parse::<f64>()) {
                ("KeyboardIdle", Ok(seconds), _) => since(seconds),
                ("Memory", Ok(mib), _) => output::bytes(u64::try_from(mib).unwrap_or(0) << 20),
                ("Disk", Ok(kib), _) => output::bytes(u64::try_from(kib).unwrap_or(0) << 10),
                ("LoadAvg", _, Ok(load)) => format!("{load:.2}"),
                _ => text.trim_matches('"').to_owned(),
            }
        };
        table.push(SHOWN.iter().map(cell).collect());
    }
    table.render()
}

/// For how long, in the largest unit that fits.
fn since(seconds: i64) -> String {
    if seconds >= starter::measure::NEVER {
        return "never used".to_owned();
    }
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}
