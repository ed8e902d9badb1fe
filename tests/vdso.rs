//! A job moves to a kernel whose vDSO is laid out otherwise, and back.
//!
//! There is one machine, so the image is changed on the way: as if the job had been running on
//! the other kernel, with threads and signal frames inside that kernel's vDSO.

mod support;

use ckpt_lib::vdso::foreign;
use std::fs;
use support::random::seed;
use support::run::{self, Run};
use support::scenario::{Guest, Job, Mode, Restart, Variant, Verdict};
use support::skip;
use support::stage::{self, Linking, c_guest};
use support::user::User;

/// Changes the image, as a checkpoint on another kernel would have written it.
fn from_another_kernel(job: &mut Job) -> Result<std::path::PathBuf, String> {
    let image = job.checkpoint("kill")?;
    job.wait_killed()?;
    let foreign = image.with_extension("foreign.img");
    foreign::rewrite(&image, &foreign).map_err(|error| format!("{error:?}"))?;
    User::Ordinary.own(&foreign);
    Ok(foreign)
}

fn move_there_and_back(job: &mut Job) -> Result<Verdict, String> {
    let ready = job.start()?;
    if ready != Verdict::Passed {
        return Ok(ready);
    }
    job.wait_random();
    let foreign = from_another_kernel(job)?;
    job.restart(&foreign, Restart::Command)?;
    job.wait_up()?;
    job.wait_random();
    // The job now has two: the foreign one as ordinary memory, and this machine's.
    let image = job.checkpoint("kill")?;
    job.wait_killed()?;
    job.restart(&image, Restart::Image)?;
    job.wait_random();
    job.let_go();
    job.wait_pass()
}

/// A guest on its way to the other kernel and back, as an ordinary user.
fn travel(source: &str, guest: &str) {
    if let Some(reason) = User::Ordinary.missing() {
        return skip::note("another vDSO", &reason);
    }
    let program = c_guest(source, Linking::Dynamic).expect("the guest compiles");
    let guest = Guest::new(source, program, &[guest]);
    let variant = Variant {
        mode: Mode::KillRestart,
        user: User::Ordinary,
        threads: 0,
    };
    let mut job = Job::new(&guest, variant, seed());
    let result = move_there_and_back(&mut job);
    let log: String = job.runs.iter().map(Run::describe).collect();
    drop(std::mem::take(&mut job.runs));
    run::end_marked(&job.mark);
    match result {
        Ok(Verdict::Passed) => drop(fs::remove_dir_all(&job.dir)),
        Ok(Verdict::Skipped(reason)) => skip::note("another vDSO", &reason),
        Err(what) => {
            let place = stage::keep_artefacts(&job.dir, &log);
            let place = place.display();
            panic!("WF_SEED={}: {what}\n{log}\nfiles: {place}", seed());
        }
    }
}

#[test]
fn threads_inside_another_kernels_vdso_read_right_clocks() {
    travel("vdso", "readers");
}

#[test]
fn a_signal_frame_at_every_instruction_of_another_kernels_vdso_returns_right() {
    travel("vdso_frames", "frames");
}
