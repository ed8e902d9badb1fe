//! The command is one file: where there is nothing else but a job, it runs it, makes its image and goes on from it.

mod support;

use goblin::elf::Elf;
use std::fs;
use std::process::Command;
use std::time::Duration;
use support::host::Host;
use support::promise::{passed, with_job};
use support::run::{self, Run, clean_command};
use support::scenario::Guest;
use support::stage::{self, Linking, c_guest};
use support::user::User;

const DEADLINE: Duration = Duration::from_secs(20);

#[test]
fn the_command_needs_no_library_and_no_dynamic_linker() {
    let bytes = fs::read(stage::wayfarer()).expect("read");
    let elf = Elf::parse(&bytes).expect("an executable");
    assert_eq!(elf.interpreter, None);
    assert_eq!(elf.libraries, [""; 0]);
}

/// `command` on the machine that this process has made, which is the parent of all others there.
fn there(machine: u32, command: &Command) -> Result<Command, String> {
    let children = format!("/proc/{machine}/task/{machine}/children");
    let first = fs::read_to_string(children).map_err(|error| error.to_string())?;
    let mut entered = clean_command("nsenter");
    entered.args([
        "--user",
        "--preserve-credentials",
        "--mount",
        "--pid",
        "--ipc",
        "--uts",
    ]);
    entered.args(["--target", first.trim(), "--"]);
    entered.arg(command.get_program()).args(command.get_args());
    Ok(entered)
}

#[test]
fn it_runs_checkpoints_and_restarts_a_job_where_there_is_nothing_else() {
    let program = c_guest("memory", Linking::Static).expect("the guest compiles");
    with_job(&Guest::new("alone", &program, &["anonymous"]), |job| {
        let host = Host::empty()?.with(&stage::wayfarer()).with(&job.dir);
        let on = |host: &Host, command: &Command| {
            let mut all = host.command(command.get_program().as_ref());
            all.args(command.get_args());
            all
        };
        let mut command = job.wayfarer(&["run", "--quiet", "--name", "job", "--"]);
        command.arg(&program).args(&job.guest.arguments);
        let mut command = job.in_data(on(&host.clone().with(&program), &command));
        job.equip(&mut command);
        let mut run = Run::start("the guest", command, User::Ordinary)?;
        let ready = run.wait_line("READY", DEADLINE);
        let machine = run.pid();
        job.runs.push(run);
        ready?;

        let image = job.dir.join("1.img").to_string_lossy().into_owned();
        let command = job.wayfarer(&["checkpoint", "job", "-o", &image]);
        let command = job.in_data(there(machine, &command)?);
        let (status, run) = run::finish("checkpoint", command, User::Ordinary, DEADLINE)?;
        job.runs.insert(0, run);
        if !status.success() {
            return Err(format!("checkpoint: {status}"));
        }
        job.let_go();
        passed(job.wait_pass()?)?;
        let command = job.wayfarer(&["restart", "--name", "again", &image]);
        let command = job.in_data(on(&host, &command));
        let run = Run::start("the guest, restarted", command, User::Ordinary)?;
        job.runs.push(run);
        passed(job.wait_pass()?)
    });
}
