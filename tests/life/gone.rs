//! What a job leaves behind when it leaves the queue: nothing that is not the user's.

use super::killed::{IN_PLACE, journals};
use super::*;

/// A job with a journal, and with an image if that is wanted.
pub(super) fn journalled(job: &mut Job, has_image: bool) -> Result<(), String> {
    start(job, &["--journal", "--keep", "2"])?;
    until(job, "a job that runs", |status| {
        status["State"] == "Running"
    })?;
    let table = job.dir.join("data/table");
    run::poll(STEP, || table.exists().then_some(())).ok_or("the job does not work")?;
    if has_image {
        ask(job, &["checkpoint", "job"])?;
    }
    match journals(job) {
        1 => Ok(()),
        found => Err(format!(
            "found {found} journals of a job that runs, expected 1"
        )),
    }
}

fn expect_no_journal(job: &Job) -> Result<(), String> {
    let gone = || (journals(job) == 0).then_some(());
    run::poll(STEP, gone).ok_or_else(|| format!("found {} journals, expected none", journals(job)))
}

#[test]
fn the_journal_of_a_job_that_is_removed_goes_with_it() {
    for has_image in [true, false] {
        let guest = Guest::new("removed", "/usr/bin/python3", &["-c", IN_PLACE]);
        with_job(&guest, |job| {
            journalled(job, has_image)?;
            ask(job, &["remove", "job"])?;
            expect_end(job, 128 + 9)?;
            expect_no_journal(job)
        });
    }
}

#[test]
fn the_journal_of_a_job_that_has_left_goes_when_it_is_removed() {
    let guest = Guest::new("left_removed", "/usr/bin/python3", &["-c", IN_PLACE]);
    with_job(&guest, |job| {
        journalled(job, true)?;
        ask(job, &["vacate", "job"])?;
        expect_end(job, 85)?;
        if journals(job) != 1 {
            return Err("a job that can go on has no journal any more".to_owned());
        }
        ask(job, &["remove", "job"])?;
        expect_no_journal(job)
    });
}

/// Nobody has asked us for that; without an image nobody can go back.
#[test]
fn the_journal_of_a_job_that_somebody_has_ended_goes() {
    let guest = Guest::new("ended_by", "/usr/bin/python3", &["-c", IN_PLACE]);
    with_job(&guest, |job| {
        journalled(job, false)?;
        let root = root_of(job)?;
        kill(root, Signal::SIGTERM).map_err(|error| error.to_string())?;
        expect_end(job, 128 + 15)?;
        expect_no_journal(job)
    });
}

/// It is the user's, and stays; where it is, is said.
#[test]
fn what_is_cut_off_a_file_is_named() {
    with_job(&chain("tails"), |job| {
        start(job, &["--keep", "2"])?;
        until_longer(job)?;
        ask(job, &["checkpoint", "job"])?;
        until_longer(job)?;
        let root = root_of(job)?;
        kill(root, Signal::SIGKILL).map_err(|error| error.to_string())?;
        until(job, "a restart", |status| {
            status["NumRestarts"] == 1 && status["State"] == "Running"
        })?;
        let shown = ask(job, &["status", "job"])?;
        let log = fs::read_to_string(job.dir.join("state/jobs/job/starter.log"));
        let log = log.map_err(|error| error.to_string())?;
        for text in [&shown, &log] {
            if !text.contains("/data/chain.wayfarer-tail") {
                return Err(format!(
                    "found {text}, expected the name of what was cut off"
                ));
            }
        }
        if !job.dir.join("data/chain.wayfarer-tail").exists() {
            return Err("it is not there".to_owned());
        }
        ends_well(job)
    });
}
