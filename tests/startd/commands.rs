//! What a startd is told.

use super::*;

#[test]
fn a_machine_is_drained_and_takes_jobs_again() {
    with_job(&guest("drained"), |job| {
        begun(job, "")?;
        let undrained = ["startd", "drain", "--cancel"];
        refused(job, &undrained, "the machine is not being drained")?;
        let empty = ["startd", "checkpoint", "slot1"];
        refused(job, &empty, "no job runs in slot1")?;
        refused(job, &empty[..2], "no job runs in any slot")?;
        submit(job, "job", "")?;
        until_job(job, "job", "Running")?;
        until_longer(job, "job")?;
        ask(job, &["startd", "drain", "--quick"])?;
        let drained = until(job, "a drained machine", |status| {
            let why = &line_of(status, "job")["why"][0];
            status["state"] == "Drained" && *why == "the machine is drained"
        })?;
        let line = line_of(&drained, "job");
        if line["state"] != "Idle" || line["images"] != 1 {
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
fn a_fast_drain_takes_no_new_image_and_loses_no_old_one() {
    with_job(&guest("drained_fast"), |job| {
        begun(job, "MAXJOBRETIREMENTTIME = 3600")?;
        submit(job, "job", "")?;
        until_job(job, "job", "Running")?;
        until_longer(job, "job")?;
        ask(job, &["startd", "checkpoint", "slot1"])?;
        until(job, "an image", |status| {
            line_of(status, "job")["images"] == 1
        })?;
        until_longer(job, "job")?;
        ask(job, &["startd", "drain", "--fast"])?;
        let drained = until(job, "a drained machine", |status| {
            status["state"] == "Drained"
        })?;
        let line = line_of(&drained, "job");
        if line["state"] != "Idle" || line["images"] != 1 {
            return Err(format!("found {drained}, expected the old image"));
        }
        until_said(job, "Claimed/Retiring -> Preempting/Killing (18: draining)")?;
        ask(job, &["startd", "drain", "--cancel"])?;
        let goes_on = |job: &mut Job, times: u64| {
            until_fares(job, "job", "a job that goes on", |fares| {
                fares["State"] == "Running" && fares["NumRestarts"] == times
            })
        };
        goes_on(job, 1)?;
        until_longer(job, "job")?;
        // When all is drained, it takes jobs again by itself.
        let again = ["startd", "drain", "--fast", "--resume-on-completion"];
        ask(job, &again)?;
        let fares = goes_on(job, 2)?;
        if fares["NumCkpts"] != 1 {
            return Err(format!("found {fares}, expected no other image"));
        }
        ends_well(job, &["job"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}

#[test]
fn a_peaceful_end_waits_for_the_job_to_end_by_itself() {
    with_job(&guest("peaceful"), |job| {
        // Otherwise it would have to leave at once.
        begun(job, "MAXJOBRETIREMENTTIME = 0\nMachineMaxVacateTime = 1")?;
        submit(job, "job", "")?;
        until_job(job, "job", "Running")?;
        submit(job, "next", "")?;
        let command = job.wayfarer(&["startd", "off", "--peaceful"]);
        let mut off = Run::start("off", command, User::Ordinary)?;
        let status = until(job, "a startd that is to end", |status| {
            let why = &line_of(status, "next")["why"][0];
            status["state"] == "ShuttingDown" && *why == "the machine is shut down"
        })?;
        let next = line_of(&status, "next");
        if place(&status) != "Claimed/Retiring"
            || line_of(&status, "job")["state"] != "Running"
            || next["state"] != "Idle"
        {
            return Err(format!("found {status}, expected a job that works on"));
        }
        for _ in 0..3 {
            until_longer(job, "job")?;
        }
        if let Some(status) = off.ended() {
            return Err(format!("found {status}, expected somebody who waits"));
        }
        job.let_go();
        has_ended(job, 0)?;
        let status = off.wait(STEP)?;
        let fares = faring(job, "job")?;
        if !status.success() || fares["State"] != "Completed" || fares["NumCkpts"] != 0 {
            return Err(format!("found {status}, {fares}, expected the end of it"));
        }
        check_chain(job, "job")?;
        // What waited has its turn with the next.
        begin(job)?;
        ends_well(job, &["next"])?;
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
        // Other slots need a new beginning.
        configure(job, "START = True\nNUM_CPUS = 2\nNUM_SLOTS = 2");
        let command = job.wayfarer(&["startd", "reconfig"]);
        let (status, run) = finish("reconfig", command, User::Ordinary, STEP)?;
        let expected = "the slots stay as they are until the next beginning: found 1 Static";
        if !status.success() || !run.err.text().contains(expected) {
            return Err(format!("found {}, expected {expected}", run.describe()));
        }
        until_said(job, expected)?;
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

#[test]
fn a_job_that_has_not_begun_is_one_as_others() {
    with_job(&guest("unbegun_commands"), |job| {
        begun(job, "START = False")?;
        submit(job, "job", "")?;
        until(job, "a job that waits for a reason", |status| {
            !line_of(status, "job")["why"][0].is_null()
        })?;
        let fares = faring(job, "job")?;
        if fares["State"] != "Idle" || fares["why"][0] != "slot1: START is false: false" {
            return Err(format!("found {fares}, expected a job that waits"));
        }
        ask(job, &["hold", "job", "--reason", "a look"])?;
        let fares = faring(job, "job")?;
        if fares["State"] != "Held"
            || fares["HoldReason"] != "a look"
            || fares["HoldReasonCode"] != 1
        {
            return Err(format!("found {fares}, expected a job that is held"));
        }
        ask(job, &["log", "job"])?;
        // It stays so over a new beginning.
        signal(job, Signal::SIGKILL)?;
        startd(job)?.wait(STEP)?;
        begun(job, "")?;
        until_job(job, "job", "Held")?;
        ask(job, &["release", "job"])?;
        until_job(job, "job", "Running")?;
        until_longer(job, "job")?;
        // One that has begun is no more in the queue than in its directory, whatever the startd is about to do.
        ask(job, &["remove", "job"])?;
        until(job, "no jobs", |status| {
            status["jobs"] == Value::Array(vec![])
        })?;
        let left = job.dir.join("state/jobs/job").exists();
        if left {
            return Err("its directory is left".to_owned());
        }
        configure(job, "START = False");
        ask(job, &["startd", "reconfig"])?;
        submit(job, "one", "")?;
        submit(job, "two", "")?;
        ask(job, &["remove", "one"])?;
        until(job, "no such job", |status| {
            line_of(status, "one").is_null()
        })?;
        refused(job, &["hold", "one"], "no job one")?;
        ends(job, Signal::SIGTERM, 0)?;
        // Without a startd it is the same queue.
        let found = status(job)?;
        if found["is_running"] != false
            || found["as_of"].as_u64().is_none()
            || line_of(&found, "two")["state"] != "Idle"
        {
            return Err(format!("found {found}, expected one that waits"));
        }
        refused(job, &["hold", "two"], "no startd is there")?;
        ask(job, &["startd", "remove", "two"])?;
        let found = status(job)?;
        if found["jobs"] != Value::Array(vec![]) {
            return Err(format!("found {found}, expected no jobs"));
        }
        refused(job, &["startd", "remove", "two"], "no job two")
    });
}
