//! Time goes on from the checkpoint: calls in progress take what they had left, clocks do not jump back.

mod support;

use ckpt_lib::image::{Image, ImageError};
use ckpt_lib::snapshot::Thread;
use std::fs;
use std::path::Path;
use std::time::Duration;
use support::promise::{passed, with_job};
use support::run::{self, Run};
use support::scenario::{Guest, Job, Restart};
use support::stage::{Linking, c_guest};
use support::user::User;

/// Kinds of calls that the guest makes, one in each thread.
const KINDS: usize = 14;

/// Three of a call's four seconds have gone when it is stopped: the last is what it has left, also if
/// the thread had to wait for a processor on its way to the stop.
#[test]
fn timed_calls_go_on_with_the_time_that_was_left() {
    let program = c_guest("calls", Linking::Dynamic).expect("the guest compiles");
    for then in ["go-on", "kill"] {
        let mut guest = Guest::new(&format!("timed_{then}"), program.clone(), &["timed"]);
        guest.environment = vec![("WF_THREADS".into(), "8".into())];
        with_job(&guest, |job| {
            passed(job.start()?)?;
            let run = job.runs.last_mut().ok_or("nothing was started")?;
            run.wait_line("three seconds", Duration::from_secs(20))?;
            let image = job.checkpoint(then)?;
            let waiting = calls_in_progress(&image)?;
            if waiting < KINDS {
                return Err(format!(
                    "{waiting} calls were in progress, expected {KINDS}"
                ));
            }
            if then == "kill" {
                job.wait_killed()?;
                job.restart(&image, Restart::Command)?;
            }
            job.let_go();
            passed(job.wait_pass()?)
        });
    }
}

/// Threads that were waiting when the image was taken.
fn calls_in_progress(image: &Path) -> Result<usize, String> {
    let failed = |error: ImageError| error.to_string();
    let snapshot = Image::open(image).map_err(failed)?.snapshot();
    let snapshot = snapshot.map_err(failed)?;
    let threads = snapshot
        .processes
        .iter()
        .flat_map(|process| &process.threads);
    let waits =
        |thread: &&Thread| thread.in_call.is_some() || thread.registers.orig_rax.cast_signed() >= 0;
    Ok(threads.filter(waits).count())
}

/// The machine that it is restarted on was switched on ten days later.
#[test]
fn clocks_go_on_where_the_machines_are_ten_days_behind() {
    let program = c_guest("timers", Linking::Dynamic).expect("the guest compiles");
    let guest = Guest::new("ten_days", program, &["clocks"]);
    with_job(&guest, |job| {
        let there = |job: &Job, words: &[&str], arguments: &[&str]| {
            let inner = job.wayfarer(arguments);
            let mut command = job.in_data(run::clean_command(words[0]));
            command.args(&words[1..]).arg(inner.get_program());
            command.args(inner.get_args());
            command
        };
        let ahead = "--user --map-root-user --fork --time --monotonic 864000 --boottime 864000";
        let words: Vec<&str> = std::iter::once("unshare").chain(ahead.split(' ')).collect();
        let mut command = there(job, &words, &["run", "--quiet", "--name", "job", "--"]);
        command.arg(&guest.program).args(&guest.arguments);
        job.equip(&mut command);
        let mut run = Run::start("the guest", command, User::Ordinary)?;
        let ready = run.wait_line("READY", Duration::from_secs(20));
        let pid = run.pid();
        job.runs.push(run);
        ready?;
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let supervisor = children.map_err(|error| error.to_string())?;
        let image = job.dir.join("ahead.img");
        let path = image.to_string_lossy().into_owned();
        let words = ["nsenter", "--user", "--time", "--preserve-credentials"];
        let words = [&words[..], &["--target", supervisor.trim()]].concat();
        let arguments = ["checkpoint", "job", "-o", &path, "--then", "kill"];
        let command = there(job, &words, &arguments);
        let (status, run) = run::finish("ahead", command, User::Ordinary, Duration::from_secs(20))?;
        if !status.success() {
            return Err(format!("checkpoint ten days ahead: {}", run.describe()));
        }
        job.wait_killed()?;
        job.restart(&image, Restart::Command)?;
        job.let_go();
        passed(job.wait_pass()?)
    });
}
