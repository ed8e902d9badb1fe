//! Whoever is killed: the startd, a starter.

use super::*;

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
        let text = fs::read_to_string(job.dir.join("state/jobs/job/life.json"));
        let life: Value = serde_json::from_str(&text.map_err(|error| error.to_string())?)
            .map_err(|error| error.to_string())?;
        let pid = life["starter"]["pid"]
            .as_i64()
            .and_then(|pid| i32::try_from(pid).ok());
        let pid = Pid::from_raw(pid.ok_or("no starter")?);
        kill(pid, Signal::SIGKILL).map_err(|error| error.to_string())?;
        until_fares(job, "job", "a restart", |status| {
            status["NumRestarts"] == 1 && status["State"] == "Running"
        })?;
        until_longer(job, "job")?;
        ends_well(job, &["job"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}
