//! `wayfarer checkpoint`, killed in the middle: the job runs on untouched, and what stands under the
//! image's final name, if anything does, is whole.
//!
//! ```text
//! start --READY--> checkpoint, killed at its K-th step --> go! --> PASS
//!                                    `- the image was there already, and so the job
//!                                       was killed as it should be: restart --> PASS
//! ```
//! A few steps chosen by the seed; with `WF_FULL` every one. The engine's own functions go through
//! the same in ckpt-lib/tests/inject.rs.

mod support;

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Mutex;
use std::time::Duration;
use support::promise::{passed, with_job};
use support::random::{Random, seed};
use support::run;
use support::scenario::{Guest, Job, Restart};
use support::stage::{Linking, c_guest};
use support::user::User;

/// A checkpoint may take this long, on a loaded machine.
const STEP: Duration = Duration::from_secs(30);
/// No checkpoint of such a job has so many steps.
const MANY: u64 = 1500;

/// The steps at which it is to be killed.
struct Steps {
    random: Random,
    /// Known to lie behind the last.
    beyond: u64,
    /// Of a sample, those that are left; without one, the last that was tried.
    left: Option<u32>,
    tried: u64,
}

impl Steps {
    fn next(&mut self) -> Option<u64> {
        self.tried = match &mut self.left {
            Some(0) => return None,
            Some(left) => {
                *left -= 1;
                1 + self.random.below(self.beyond - 1)
            }
            None => self.tried + 1,
        };
        (self.tried < self.beyond).then_some(self.tried)
    }
}

/// Kills a checkpoint of a new job at this step; whether it has so many.
fn killed_at(step: u64, job: &mut Job, then: &str) -> Result<bool, String> {
    passed(job.start()?)?;
    let image = job.dir.join("killed.img");
    let path = image.to_string_lossy().into_owned();
    let mut command = job.wayfarer(&["checkpoint", "job", "-o", &path, "--then", then]);
    command.env("WAYFARER_FAULT", format!("ptrace:{step}"));
    let (status, run) = run::finish("checkpoint", command, User::Ordinary, STEP)?;
    job.runs.push(run);
    let killed = status.signal() == Some(nix::libc::SIGKILL);
    if !killed && !status.success() {
        return Err(format!("step {step}: {status}"));
    }
    if image.exists() {
        let (code, said) = job.tell(&["verify", &path])?;
        if code != Some(0) {
            return Err(format!("step {step}: a damaged image: {said}"));
        }
    } else if !killed {
        return Err(format!("step {step}: no image, and not killed"));
    }
    job.let_go();
    let died = |status: ExitStatus| status.signal() == Some(nix::libc::SIGKILL);
    if then == "kill" && image.exists() && died(job.wait_end(STEP)?) {
        job.restart(&image, Restart::Command)?;
    }
    passed(job.wait_pass()?).map(|()| killed)
}

fn killed_everywhere(argument: &str, then: &str) {
    let program = c_guest("calls", Linking::Dynamic).expect("the guest compiles");
    let label = format!("killed_{argument}_{then}");
    let full = std::env::var_os("WF_FULL").is_some();
    let steps = Mutex::new(Steps {
        random: Random::new(seed(), &label),
        beyond: MANY,
        left: (!full).then_some(24),
        tried: 0,
    });
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let Some(step) = steps.lock().expect("steps").next() else {
                        return;
                    };
                    let name = format!("{label}_{step}");
                    let mut guest = Guest::new(&name, program.clone(), &[argument]);
                    guest.environment = vec![("WF_THREADS".into(), "2".into())];
                    with_job(&guest, |job| {
                        let killed = killed_at(step, job, then)?;
                        let mut steps = steps.lock().expect("steps");
                        if !killed {
                            steps.beyond = steps.beyond.min(step);
                        }
                        Ok(())
                    });
                }
            });
        }
    });
    let steps = steps.into_inner().expect("steps");
    println!("{} steps", steps.beyond - 1);
    assert!(steps.beyond > 50);
}

#[test]
fn a_checkpoint_killed_at_any_step_harms_nobody() {
    killed_everywhere("repeated", "go-on");
}

#[test]
fn a_checkpoint_that_is_to_kill_killed_at_any_step_harms_nobody() {
    killed_everywhere("repeated", "kill");
}

/// The job stands still while it is copied.
#[test]
fn a_checkpoint_without_a_picture_killed_at_any_step_harms_nobody() {
    killed_everywhere("repeated_alone", "go-on");
}
