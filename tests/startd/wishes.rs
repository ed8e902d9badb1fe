//! What jobs and their users want meanwhile: periodic expressions, and what is done to a job by hand.

use super::*;

#[test]
fn a_job_is_held_released_and_removed_as_its_own_expressions_say() {
    with_job(&guest("wishes"), |job| {
        begun(
            job,
            "NUM_CPUS = 2\nNUM_SLOTS = 2\nPERIODIC_EXPR_INTERVAL = 1",
        )?;
        submit(
            job,
            "job",
            "periodic_hold = JobStatus == 2 && NumCkpts == 1\nperiodic_hold_reason = \"enough\"\n\
             periodic_hold_subcode = 9\nperiodic_release = JobStatus == 5 && NumJobStarts > 0 && time() - EnteredCurrentStatus > 3",
        )?;
        submit(
            job,
            "gone",
            "periodic_remove = JobStatus == 2 && time() - EnteredCurrentStatus > 3",
        )?;
        until_job(job, "job", "Running")?;
        until_longer(job, "job")?;
        // It may have been removed before it is looked at.
        let chain = job.dir.join("data/gone.chain");
        let has_worked = || fs::metadata(&chain).is_ok_and(|file| file.len() > 0);
        run::poll(STEP, || has_worked().then_some(())).ok_or("job gone does not work")?;
        until(job, "a job that is no more", |status| {
            line_of(status, "gone").is_null()
        })?;
        ask(job, &["startd", "checkpoint"])?;
        until_job(job, "job", "Held")?;
        let fares = faring(job, "job")?;
        if fares["HoldReason"] != "enough"
            || fares["HoldReasonCode"] != 3
            || fares["HoldReasonSubCode"] != 9
            || fares["NumCkpts"] != 2
        {
            return Err(format!("found {fares}, expected reason, codes and image"));
        }
        // After a while it lets itself go.
        until_fares(job, "job", "a job that goes on", |fares| {
            fares["State"] == "Running" && fares["NumRestarts"] == 1
        })?;
        let fares = faring(job, "job")?;
        let why = fares["ReleaseReason"].as_str().unwrap_or_default();
        if !why.contains("PeriodicRelease") || fares["NumSystemHolds"] != 1 {
            return Err(format!(
                "found {fares}, expected one hold, and why it is over"
            ));
        }
        let log = ask(job, &["log", "job"])?;
        if !log.contains("012 (") || !log.contains("013 (") || !log.contains(why) {
            return Err(format!("expected a hold and a release:\n{log}"));
        }
        until_longer(job, "job")?;
        ends_well(job, &["job"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}

#[test]
fn a_user_is_not_let_go_whom_he_holds_himself() {
    with_job(&guest("own_hold"), |job| {
        begun(job, "PERIODIC_EXPR_INTERVAL = 1")?;
        submit(job, "job", "periodic_release = JobStatus == 5")?;
        until_job(job, "job", "Running")?;
        until_longer(job, "job")?;
        ask(job, &["hold", "job"])?;
        until_job(job, "job", "Held")?;
        // Another one goes through the queue, and is looked at.
        submit(job, "other", "periodic_remove = JobStatus == 2")?;
        until(job, "another that was removed", |status| {
            line_of(status, "other").is_null()
        })?;
        until_job(job, "job", "Held")?;
        ask(job, &["startd", "release", "job"])?;
        until_job(job, "job", "Running")?;
        until_longer(job, "job")?;
        ends_well(job, &["job"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}

#[test]
fn a_slot_knows_that_its_job_was_suspended_by_hand() {
    with_job(&guest("by_hand"), |job| {
        // CONTINUE does not let go whom his user has stopped.
        begun(job, "CONTINUE = True")?;
        submit(job, "job", "")?;
        until_job(job, "job", "Running")?;
        until_longer(job, "job")?;
        ask(job, &["suspend", "job"])?;
        until(job, "a slot that stands still", |status| {
            place(status) == "Claimed/Suspended" && line_of(status, "job")["state"] == "Suspended"
        })?;
        ask(job, &["continue", "job"])?;
        until(job, "a slot that works", |status| {
            place(status) == "Claimed/Busy"
        })?;
        for (number, reason) in [(14, "suspended by command"), (15, "continued by command")] {
            until_said(job, &format!("({number}: {reason})"))?;
        }
        until_longer(job, "job")?;
        ends_well(job, &["job"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}
