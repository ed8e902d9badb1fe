//! The command `wayfarer`: arguments in, one verb, one exit status out.
#![deny(unsafe_code)]

mod address;
mod args;
mod away;
mod ckpt_server;
mod classad;
mod config;
mod confine;
mod fault;
mod identity;
mod inventory;
mod jobs;
mod launch;
mod leftovers;
mod life;
mod limits;
mod lookup;
mod measured;
mod output;
mod permission;
mod progress;
mod raw;
mod reach;
mod remote;
mod report;
mod rights;
mod startd;
mod summary;
mod sys;
mod target;
mod temporary;
mod users;
mod verbs;

use args::{Arguments, Verb};
use clap::Parser;
use jobs::JobStore;
use report::Outcome;
use std::process::ExitCode;
use verbs::compile::Driver;

fn main() -> ExitCode {
    sys::ignore_sigxfsz();
    let exit = match sys::with_room_on_the_stack(|| report::conclude(begin())) {
        Ok(exit) => exit,
        Err(errno) => report::conclude(Err(limits::no_stack(errno))),
    };
    ExitCode::from(exit as u8)
}

fn begin() -> Outcome {
    limits::check()?;
    match Arguments::try_parse() {
        Ok(arguments) => perform(&arguments),
        Err(error) => output::of_parser(&error),
    }
}

fn perform(arguments: &Arguments) -> Outcome {
    let store = || match &arguments.away {
        Some(id) => JobStore::away(id),
        None => JobStore::locate(arguments.dir.as_deref()),
    };
    match &arguments.verb {
        Verb::Run(run) => verbs::run::run(&store()?, run),
        Verb::Restart(restart) => verbs::restart::restart(&store()?, restart),
        Verb::Checkpoint(checkpoint) => verbs::checkpoint::checkpoint(&store()?, checkpoint),
        Verb::Export(export) => verbs::export::export(export),
        Verb::Inspect(inspect) => verbs::inspect::inspect(inspect),
        Verb::Io(io) => verbs::io::io(&store()?, io),
        Verb::Verify(verify) => verbs::verify::verify(verify),
        Verb::Flatten(flatten) => verbs::flatten::flatten(flatten),
        Verb::Platform(platform) => verbs::platform::platform(platform),
        Verb::Machine(machine) => verbs::machine::machine(store().ok().as_ref(), machine),
        Verb::Kbdd(kbdd) => verbs::kbdd::kbdd(kbdd),
        Verb::Ps(ps) => verbs::ps::ps(&store()?, ps),
        Verb::Kill(kill) => verbs::kill::kill(&store()?, kill),
        Verb::Suspend(suspend) => verbs::life::suspend(&store()?, suspend),
        Verb::Continue(go_on) => verbs::life::go_on(&store()?, go_on),
        Verb::Vacate(vacate) => verbs::life::vacate(&store()?, vacate),
        Verb::ImageRate(rate) => verbs::life::image_rate(&store()?, rate),
        Verb::Migrate(migrate) => verbs::life::migrate(&store()?, migrate),
        Verb::Hold(hold) => verbs::life::hold(&store()?, hold),
        Verb::Release(release) => verbs::life::release(&store()?, release),
        Verb::Remove(remove) => verbs::life::remove(&store()?, remove),
        Verb::Log(log) => verbs::life::log(&store()?, log),
        Verb::Tail(tail) => verbs::tail::tail(&store()?, tail),
        Verb::Status(status) => verbs::status::status(&store()?, status),
        Verb::Doctor(doctor) => verbs::doctor::doctor(&store()?, doctor),
        Verb::Classad(classad) => verbs::classad::classad(classad),
        Verb::Config(config) => verbs::config::config(config),
        Verb::Policy(policy) => verbs::policy::policy(store().ok().as_ref(), policy),
        Verb::Startd(startd) => verbs::startd::startd(&store()?, startd),
        Verb::Shadow(shadow) => verbs::shadow::shadow(store().ok().as_ref(), shadow),
        Verb::Home(home) => verbs::home::home(&store()?, home),
        Verb::Keeper(keeper) => verbs::keeper::keeper(keeper),
        Verb::Ahead(ahead) => away::hold(ahead),
        Verb::Watcher(watcher) => away::watcher::watch(watcher),
        Verb::Reattach(reattach) => verbs::reattach::reattach(reattach),
        Verb::Starter(starter) => verbs::starter::starter(starter),
        Verb::Submit(submit) => verbs::submit::submit(&store, submit),
        Verb::Cc(compile) => verbs::compile::compile(Driver::C, compile),
        Verb::Cxx(compile) => verbs::compile::compile(Driver::Cxx, compile),
        Verb::Fc(compile) => verbs::compile::compile(Driver::Fortran, compile),
        Verb::Completions(completions) => verbs::completions::completions(completions),
        Verb::Man(man) => verbs::man::man(man),
    }
}
