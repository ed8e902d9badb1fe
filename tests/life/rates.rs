//! Images that are slowed down, hastened and given up while they are made.

use super::*;

/// At this rate no image is made before somebody says something else.
const FOR_EVER: &str = "16K";

fn begin(job: &mut Job) -> Result<(), String> {
    start(job, &["--every", "1h"])?;
    until_longer(job)?;
    ask(job, &["image-rate", "job", FOR_EVER])?;
    signal_starter(job, Signal::SIGUSR2)?;
    is_being_made(job, "Checkpointing")
}

/// It is, and not made.
fn is_being_made(job: &mut Job, state: &str) -> Result<(), String> {
    until(job, state, |status| status["State"] == state)?;
    expect_images(job, 0)
}

fn expect_images(job: &Job, count: usize) -> Result<(), String> {
    let found = images(job);
    let whole = found
        .iter()
        .filter(|path| path.extension().is_some_and(|one| one == "img"));
    match whole.count() == count {
        true => Ok(()),
        false => Err(format!("found {found:?}, expected {count}")),
    }
}

#[test]
fn an_image_that_is_aborted_leaves_nothing_and_the_next_is_made() {
    with_job(&chain("aborted"), |job| {
        begin(job)?;
        // It works meanwhile, and afterwards.
        until_longer(job)?;
        ask(job, &["checkpoint", "job", "--abort"])?;
        let status = status_of(job)?;
        if status["State"] != "Running" || status["CheckpointRefused"] != "it was aborted" {
            return Err(status.to_string());
        }
        if !images(job).is_empty() {
            return Err(format!("found {:?}, expected none", images(job)));
        }
        until_longer(job)?;
        refused(
            job,
            &["checkpoint", "job", "--abort"],
            "no image of the job is being made",
        )?;
        ask(job, &["image-rate", "job", "none"])?;
        signal_starter(job, Signal::SIGUSR2)?;
        until_images(job, 1)?;
        let image = images(job).pop().ok_or("no image")?;
        ask(job, &["verify", &image.to_string_lossy()])?;
        ends_well(job)
    });
}

#[test]
fn an_image_that_is_being_made_is_hastened() {
    with_job(&chain("hastened"), |job| {
        begin(job)?;
        ask(job, &["image-rate", "job", "none"])?;
        until_images(job, 1)?;
        expect_images(job, 1)?;
        ends_well(job)
    });
}

#[test]
fn a_job_whose_last_image_is_aborted_stays_and_can_still_leave() {
    with_job(&chain("stays"), |job| {
        start(job, &["--every", "1h"])?;
        until_longer(job)?;
        ask(job, &["image-rate", "job", FOR_EVER])?;
        let command = job.wayfarer(&["vacate", "job"]);
        let mut vacate = Run::start("vacate", command, User::Ordinary)?;
        is_being_made(job, "Vacating")?;
        ask(job, &["checkpoint", "job", "--abort"])?;
        let ended = vacate.wait(STEP)?;
        let said = vacate.err.text();
        if ended.code() != Some(1) || !said.contains("job job: it was aborted") {
            return Err(format!("{ended}: {said}"));
        }
        until_longer(job)?;
        expect_images(job, 0)?;
        ask(job, &["image-rate", "job", "none"])?;
        ask(job, &["vacate", "job"])?;
        expect_end(job, 85)?;
        goes_on_to_its_end(job, &[])
    });
}

#[test]
fn a_job_without_a_starter_has_nobody_who_makes_its_images() {
    with_job(&chain("nobody"), |job| {
        let mut command = job.wayfarer(&["run", "--quiet", "--name", "job", "--"]);
        command.arg(&job.guest.program).args(&job.guest.arguments);
        job.equip(&mut command);
        job.runs
            .push(Run::start(THE_GUEST, command, User::Ordinary)?);
        until_longer(job)?;
        for words in [
            &["checkpoint", "job", "--abort"][..],
            &["image-rate", "job", "1M"],
        ] {
            refused(job, words, "job job has no starter")?;
        }
        ends_well(job)
    });
}
