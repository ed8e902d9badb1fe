//! A job on a terminal, in the hands of a shell with job control
//! (`tests/hosts/on_terminal.c`): foreground, `^Z` and `fg`, settings.

mod support;

use std::process::Command;
use std::time::Duration;
use support::random::seed;
use support::run::{self, clean_command};
use support::scenario::{Guest, Job, Mode, Variant};
use support::skip;
use support::stage::{self, Linking, c_guest};
use support::user::User;

#[test]
fn a_job_on_a_terminal() {
    on_terminal("terminal");
}

#[test]
fn a_job_that_leads_its_own_process_group_in_the_foreground() {
    on_terminal("leader");
}

#[test]
fn a_job_on_a_terminal_with_a_starter() {
    on_terminal("starter");
}

fn on_terminal(argument: &str) {
    if let Some(reason) = User::Ordinary.missing() {
        return skip::note(argument, &reason);
    }
    let source = stage::repository().join("tests/hosts/on_terminal.c");
    let tool = stage::dir().join("on-terminal");
    stage::build_if_older(&tool, std::slice::from_ref(&source), |beside| {
        let mut command = Command::new("gcc");
        command.args(["-O1", "-g", "-Wall", "-Wextra", "-static"]);
        command.arg(&source).arg("-o").arg(beside);
        command
    })
    .expect("on-terminal compiles");
    let program = c_guest("terminal", Linking::Dynamic).expect("the guest compiles");
    let guest = Guest::new(argument, program, &[argument]);
    let variant = Variant {
        mode: Mode::KillRestart,
        user: User::Ordinary,
        threads: 0,
    };
    let job = Job::new(&guest, variant, seed());
    let mut command = clean_command(tool);
    command
        .arg(stage::wayfarer())
        .arg(&job.dir)
        .arg(&guest.program)
        .arg(argument);
    let mut command = job.in_data(command);
    // The guest answers keys, it does not wait for a file.
    command.env("WF_GO", "/");
    let ended = run::finish(
        "on-terminal",
        command,
        User::Ordinary,
        Duration::from_secs(120),
    );
    run::end_marked(&job.mark);
    let _ = std::fs::remove_dir_all(&job.dir);
    let (status, run) = ended.expect("it ends");
    let said = run.describe();
    assert!(
        status.success() && run.out.text().ends_with("PASS\n"),
        "{said}"
    );
}
