//! What a startd is told.

use super::*;

#[test]
fn a_machine_is_drained_and_takes_jobs_again() {
    with_job(&guest("drained"), |job| {
        begun(job, "")?;
        submit(job, "job", "")?;
        until_job(job, "job", "Running")?;
        until_longer(job, "job")?;
        ask(job, &["startd", "drain", "--quick"])?;
        let drained = until(job, "a drained machine", |status| {
            status["state"] == "Drained"
        })?;
        let line = line_of(&drained, "job");
        if line["state"] != "Idle"
            || line["images"] != 1
            || line["why"][0] != "the machine is drained"
        {
            return Err(format!(
                "found {drained}, expected a job that waits with an image"
            ));
        }
        let shown = ask(job, &["machine"])?;
        if !shown.contains("Drained") {
            return Err(format!("found {shown}, expected the slot of the startd"));
        }
        refused(job, &["startd", "drain"], "is being drained already")?;
        ask(job, &["startd", "drain", "--cancel"])?;
        until_job(job, "job", "Running")?;
        ends_well(job, &["job"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}

#[test]
fn a_startd_that_is_told_to_end_lets_its_jobs_leave() {
    with_job(&guest("shut_down"), |job| {
        begun(job, "")?;
        submit(job, "job", "")?;
        until_job(job, "job", "Running")?;
        until_longer(job, "job")?;
        refused(
            job,
            &["startd", "--config", "policy"],
            "there is a startd already",
        )?;
        ends(job, Signal::SIGTERM, 0)?;
        let fares = faring(job, "job")?;
        if fares["State"] != "Idle" || fares["NumCkpts"] != 1 {
            return Err(format!(
                "found {fares}, expected a job that has left with an image"
            ));
        }
        refused(job, &["startd", "drain"], "no startd is there")?;
        // At once: it goes on from what it has.
        begin(job)?;
        until_job(job, "job", "Running")?;
        until_longer(job, "job")?;
        ask(job, &["startd", "off", "--fast"])?;
        has_ended(job, 0)?;
        let fares = faring(job, "job")?;
        if fares["State"] != "Idle" || fares["NumCkpts"] != 1 {
            return Err(format!("found {fares}, expected no other image"));
        }
        begin(job)?;
        until_job(job, "job", "Running")?;
        ends_well(job, &["job"])?;
        ends(job, Signal::SIGINT, 0)
    });
}

#[test]
fn another_policy_is_read_while_jobs_run() {
    with_job(&guest("reconfigured"), |job| {
        begun(job, "START = False")?;
        submit(job, "job", "")?;
        until_job(job, "job", "Idle")?;
        configure(job, "START = (");
        refused(job, &["startd", "reconfig"], "policy, line 13: START")?;
        configure(job, "START = True");
        signal(job, Signal::SIGHUP)?;
        until_job(job, "job", "Running")?;
        until_longer(job, "job")?;
        ends_well(job, &["job"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}

#[test]
fn a_running_job_is_removed_and_another_held_and_released() {
    with_job(&guest("removed"), |job| {
        begun(job, "")?;
        submit(job, "gone", "")?;
        until_job(job, "gone", "Running")?;
        until_longer(job, "gone")?;
        ask(job, &["startd", "remove", "gone"])?;
        until(job, "no jobs", |status| {
            status["jobs"] == Value::Array(vec![])
        })?;
        submit(job, "job", "")?;
        until_job(job, "job", "Running")?;
        until_longer(job, "job")?;
        ask(job, &["hold", "job", "--reason", "a look"])?;
        let held = until_job(job, "job", "Held")?;
        if line_of(&held, "job")["why"][0] != "a look" {
            return Err(format!("found {held}, expected the reason"));
        }
        ask(job, &["startd", "release", "job"])?;
        until_job(job, "job", "Running")?;
        ends_well(job, &["job"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}
