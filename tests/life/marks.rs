//! To which moments a job's files can go back, and that a checkpoint which dies takes none of what is written.

use super::killed::{IN_PLACE, check_in_place, flip};
use super::*;

fn in_place(label: &str) -> Guest {
    Guest::new(label, "/usr/bin/python3", &["-c", IN_PLACE])
}

/// Waits until the table is another than now.
fn until_changed(job: &Job) -> Result<(), String> {
    let table = job.dir.join("data/table");
    let before = fs::read(&table).unwrap_or_default();
    let has_changed = || (fs::read(&table).is_ok_and(|now| now != before)).then_some(());
    run::poll(STEP, has_changed).ok_or("the job changes nothing".to_owned())
}

#[test]
fn files_go_back_to_the_oldest_image_that_is_kept() {
    with_job(&in_place("oldest"), |job| {
        start(job, &["--journal", "--keep", "4"])?;
        for _ in 0..6 {
            until_changed(job)?;
            ask(job, &["checkpoint", "job"])?;
        }
        let kept = images(job);
        let [oldest, newer @ ..] = &kept[..] else {
            return Err("there is no image".to_owned());
        };
        if newer.len() != 3 {
            return Err(format!("found {kept:?}, expected four"));
        }
        for image in newer {
            let len = fs::metadata(image)
                .map_err(|error| error.to_string())?
                .len();
            flip(image, len / 2)?;
        }
        until_changed(job)?;
        let root = root_of(job)?;
        kill(root, Signal::SIGKILL).map_err(|error| error.to_string())?;
        let status = until(job, "a restart", |status| {
            status["NumRestarts"] == 1 && status["State"] == "Running"
        })?;
        let passed = status["ImagePassedOver"].as_str().unwrap_or_default();
        if !passed.contains(&*newer[0].to_string_lossy()) {
            return Err(format!("{status}, expected to go on from {oldest:?}"));
        }
        until_changed(job)?;
        job.let_go();
        expect_end(job, 0)?;
        check_in_place(job)
    });
}

/// It was to leave with the image, and nobody has killed it.
#[test]
fn a_job_whose_checkpoint_is_killed_before_it_kills_loses_nothing() {
    with_job(&in_place("left"), |job| {
        let mut command = job.wayfarer(&["run", "--quiet", "--name", "job", "--journal", "--"]);
        command.arg(&job.guest.program).args(&job.guest.arguments);
        job.equip(&mut command);
        job.runs
            .push(Run::start(THE_GUEST, command, User::Ordinary)?);
        until_changed(job)?;
        let mut command = job.wayfarer(&["checkpoint", "job", "--then", "kill"]);
        command.env("WAYFARER_FAULT", "checkpoint:left:1");
        let (status, checkpoint) = finish("the checkpoint", command, User::Ordinary, STEP)?;
        if status.signal() != Some(libc::SIGKILL) {
            return Err(format!("{status}: {}", checkpoint.describe()));
        }
        // Nothing of it is sent for a moment.
        for _ in 0..3 {
            until_changed(job)?;
        }
        job.let_go();
        expect_end(job, 0)?;
        check_in_place(job)
    });
}
