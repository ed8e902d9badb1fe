//! The command `wayfarer`: arguments in, one verb, one exit status out.
#![deny(unsafe_code)]

mod args;
mod jobs;
mod launch;
mod lookup;
mod output;
mod permission;
mod progress;
mod report;
mod sys;
mod target;
mod verbs;

use args::{Arguments, Verb};
use clap::Parser;
use jobs::JobStore;
use report::Outcome;
use std::process::ExitCode;

fn main() -> ExitCode {
    report::conclude(perform(&Arguments::parse()))
}

fn perform(arguments: &Arguments) -> Outcome {
    let store = || JobStore::locate(arguments.dir.as_deref());
    match &arguments.verb {
        Verb::Ps(ps) => verbs::ps::ps(&store()?, ps),
        Verb::Kill(kill) => verbs::kill::kill(&store()?, kill),
        Verb::Doctor(doctor) => verbs::doctor::doctor(&store()?, doctor),
        Verb::Completions(completions) => verbs::completions::completions(completions),
        Verb::Man(man) => verbs::man::man(man),
        _ => Err(report::Failure::new(
            report::Exit::Failed,
            "this verb is not built yet",
        )),
    }
}
