//! Whoever is killed: the startd, a starter.

use super::*;

/// The starter of the job.
fn starter(job: &Job) -> Result<Pid, String> {
    let text = fs::read_to_string(job.dir.join("state/jobs/job/life.json"));
    let life: Value = serde_json::from_str(&text.map_err(|error| error.to_string())?)
        .map_err(|error| error.to_string())?;
    let pid = life["starter"]["pid"].as_i64();
    let pid = pid.and_then(|pid| i32::try_from(pid).ok());
    pid.map(Pid::from_raw)
        .ok_or_else(|| "no starter".to_owned())
}

#[test]
fn jobs_leave_a_startd_that_is_killed_and_the_next_goes_on_with_them() {
    with_job(&guest("killed"), |job| {
        begun(job, "")?;
        submit(job, "job", "")?;
        until_job(job, "job", "Running")?;
        until_longer(job, "job")?;
        signal(job, Signal::SIGKILL)?;
        startd(job)?.wait(STEP)?;
        // Nothing runs without a policy.
        nothing_is_left(job)?;
        until_fares(job, "job", "an image", |status| {
            status["State"] == "Idle" && status["NumCkpts"] == 1
        })?;
        // What the startd has written last is not true any more.
        let found = status(job)?;
        let line = line_of(&found, "job");
        if line["state"] != "Idle" || !line["slot"].is_null() || line["images"] != 1 {
            return Err(format!(
                "found {found}, expected what the job's record says"
            ));
        }
        begin(job)?;
        until_job(job, "job", "Running")?;
        until_longer(job, "job")?;
        ends_well(job, &["job"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}

#[test]
fn a_job_whose_starter_is_killed_goes_on() {
    with_job(&guest("starter"), |job| {
        begun(job, "")?;
        submit(job, "job", "")?;
        until_job(job, "job", "Running")?;
        until_longer(job, "job")?;
        ask(job, &["startd", "checkpoint"])?;
        until(job, "an image", |status| {
            line_of(status, "job")["images"] == 1
        })?;
        let pid = starter(job)?;
        kill(pid, Signal::SIGKILL).map_err(|error| error.to_string())?;
        until_fares(job, "job", "a restart", |status| {
            status["NumRestarts"] == 1 && status["State"] == "Running"
        })?;
        until_longer(job, "job")?;
        ends_well(job, &["job"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}

#[test]
fn a_job_is_held_whose_starter_had_to_be_killed() {
    with_job(&guest("killed_hold"), |job| {
        let rules = "WANT_HOLD = True\nWANT_HOLD_REASON = \"enough\"\nWANT_VACATE = False\nKILLING_TIMEOUT = 2";
        begun(job, rules)?;
        submit(job, "job", "")?;
        until_job(job, "job", "Running")?;
        until_longer(job, "job")?;
        ask(job, &["startd", "checkpoint"])?;
        until(job, "an image", |status| {
            line_of(status, "job")["images"] == 1
        })?;
        // It hears nothing any more.
        kill(starter(job)?, Signal::SIGSTOP).map_err(|error| error.to_string())?;
        configure(job, &format!("{rules}\nPREEMPT = True"));
        ask(job, &["startd", "reconfig"])?;
        let held = until_job(job, "job", "Held")?;
        let fares = faring(job, "job")?;
        if line_of(&held, "job")["why"][0] != "enough"
            || fares["State"] != "Held"
            || fares["HoldReasonCode"] != 21
        {
            return Err(format!(
                "found {held}, {fares}, expected a job that is held"
            ));
        }
        configure(job, "");
        ask(job, &["startd", "reconfig"])?;
        ask(job, &["startd", "release", "job"])?;
        until_fares(job, "job", "a job that goes on", |fares| {
            fares["State"] == "Running" && fares["NumRestarts"] == 1
        })?;
        until_longer(job, "job")?;
        ends_well(job, &["job"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}

#[test]
fn a_machine_that_drains_goes_on_with_that_under_the_next_startd() {
    with_job(&guest("drains_on"), |job| {
        begun(job, "MAXJOBRETIREMENTTIME = 3600")?;
        submit(job, "job", "")?;
        until_job(job, "job", "Running")?;
        until_longer(job, "job")?;
        ask(job, &["startd", "drain"])?;
        until(job, "a machine that drains", |status| {
            status["state"] == "Draining"
        })?;
        signal(job, Signal::SIGKILL)?;
        startd(job)?.wait(STEP)?;
        nothing_is_left(job)?;
        begin(job)?;
        let found = until(job, "a drained machine", |status| {
            status["state"] == "Drained"
        })?;
        if line_of(&found, "job")["state"] != "Idle" {
            return Err(format!("found {found}, expected a job that waits"));
        }
        // One that ends in order begins anew.
        ends(job, Signal::SIGTERM, 0)?;
        begin(job)?;
        until_job(job, "job", "Running")?;
        until_longer(job, "job")?;
        ends_well(job, &["job"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}

#[test]
fn the_next_startd_ends_what_backfill_has_left() {
    with_job(&guest("backfill_left"), |job| {
        begun(
            job,
            "ENABLE_BACKFILL = True\nSTART_BACKFILL = True\nEVICT_BACKFILL = False\n\
             BACKFILL_COMMAND = setsid sleep 600 & touch sleeps; wait",
        )?;
        let sleeping = |job: &Job| {
            let mut pids = run::marked(&job.mark).into_iter();
            pids.any(|pid| {
                fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n")
            })
        };
        let sleeps = run::poll(STEP, || sleeping(job).then_some(()));
        sleeps.ok_or("backfill does not begin")?;
        signal(job, Signal::SIGKILL)?;
        startd(job)?.wait(STEP)?;
        if !sleeping(job) {
            return Err("nothing has outlived the startd: nothing is tested".to_owned());
        }
        begun(job, "")?;
        let gone = run::poll(STEP, || (!sleeping(job)).then_some(()));
        gone.ok_or("something of the backfill is left")?;
        ends(job, Signal::SIGTERM, 0)
    });
}
