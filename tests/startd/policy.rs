//! What the owner's expressions order.

use super::*;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

#[test]
fn images_are_made_as_the_policy_says() {
    with_job(&guest("periodic"), |job| {
        begun(
            job,
            "PERIODIC_CHECKPOINT = time() - LastPeriodicCheckpoint > 1",
        )?;
        submit(job, "job", "")?;
        until(job, "three images", |status| {
            line_of(status, "job")["images"].as_u64() >= Some(3)
        })?;
        until_job(job, "job", "Running")?;
        ends_well(job, &["job"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}

/// It has a connection to the outside, and so cannot leave with an image.
const CONNECTED: &str = r#"
import os, socket, sys, time
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("connected", flush=True)
while not os.path.exists(os.environ["WF_GO"]):
    time.sleep(0.02)
print("closed", flush=True)
"#;

#[test]
fn a_job_that_takes_too_long_to_leave_is_killed_and_begins_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listens");
    let port = listener.local_addr().expect("has a port").port();
    with_job(&guest("kill"), |job| {
        begun(job, "KILL = $(ActivityTimer) > 1")?;
        fs::write(job.dir.join("data/connected.py"), CONNECTED).expect("a program");
        submit(job, "job", &format!("arguments = connected.py {port}"))?;
        let out = job.dir.join("data/job.out");
        let says = |wanted: &str| {
            let said = run::poll(STEP, || {
                let said = fs::read_to_string(&out).unwrap_or_default();
                (said == wanted).then_some(())
            });
            said.ok_or_else(|| format!("it does not say {wanted:?}"))
        };
        says("connected\n")?;
        ask(job, &["startd", "vacate", "slot1"])?;
        // Its next copy has nothing to go on from.
        until(job, "a second start", |status| {
            line_of(status, "job")["starts"] == 2
        })?;
        until_fares(job, "job", "a second copy", |status| {
            status["NumJobStarts"] == 2
        })?;
        says("connected\n")?;
        until_said(
            job,
            "Preempting/Vacating -> Preempting/Killing (21: KILL is TRUE)",
        )?;
        job.let_go();
        until(job, "no jobs", |status| {
            status["jobs"] == Value::Array(vec![])
        })?;
        ends(job, Signal::SIGTERM, 0)
    });
}

#[test]
fn the_machine_prefers_a_job_that_it_ranks_higher() {
    with_job(&guest("rank"), |job| {
        begun(job, "RANK = TARGET.Weight\nMAXJOBRETIREMENTTIME = 0")?;
        submit(job, "light", "+Weight = 1")?;
        until(job, "the light one", |status| {
            line_of(status, "light")["state"] == "Running"
        })?;
        until_longer(job, "light")?;
        submit(job, "heavy", "+Weight = 2")?;
        until(job, "the heavy one", |status| {
            line_of(status, "heavy")["state"] == "Running"
                && line_of(status, "light")["state"] == "Idle"
        })?;
        until_longer(job, "heavy")?;
        // The one that left has its image, and goes on when the other is done.
        if line_of(&status(job)?, "light")["images"] != 1 {
            return Err(format!("found {}, expected an image", status(job)?));
        }
        ends_well(job, &["light", "heavy"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}

#[test]
fn a_job_that_the_machine_does_not_suit_waits_and_says_why() {
    with_job(&guest("unsuited"), |job| {
        begun(job, "START = TARGET.Project =?= \"good\"")?;
        submit(
            job,
            "picky",
            "requirements = Memory > 1 && Memory > 1000000000\n+Project = \"good\"",
        )?;
        submit(job, "stranger", "")?;
        let status = until(job, "two that wait", |status| {
            line_of(status, "picky")["why"] != Value::Null
                && line_of(status, "stranger")["why"] != Value::Null
        })?;
        for (name, why) in [
            (
                "picky",
                "slot1: the job's Requirements are false: Memory > 1000000000",
            ),
            (
                "stranger",
                "slot1: START is false: TARGET.Project is \"good\"",
            ),
        ] {
            let line = line_of(&status, name);
            let found = line["why"][0].as_str().unwrap_or_default().to_owned();
            if line["state"] != "Idle" || found != why {
                return Err(format!("found {line}, expected {why:?}"));
            }
            ask(job, &["startd", "remove", name])?;
        }
        ends(job, Signal::SIGTERM, 0)
    });
}

#[test]
fn backfill_works_while_nobody_wants_the_slot() {
    with_job(&guest("backfill"), |job| {
        // It begins something that leaves its process group.
        begun(
            job,
            "ENABLE_BACKFILL = True\nSTART_BACKFILL = $(StateTimer) >= 0\nEVICT_BACKFILL = False\n\
             BACKFILL_COMMAND = setsid sleep 600 & sleep 600",
        )?;
        until(job, "backfill", |status| place(status) == "Backfill/Busy")?;
        submit(job, "job", "")?;
        until_job(job, "job", "Running")?;
        let sleeping = || {
            let mut pids = run::marked(&job.mark).into_iter();
            pids.any(|pid| {
                fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n")
            })
        };
        let gone = run::poll(STEP, || (!sleeping()).then_some(()));
        gone.ok_or("something of the backfill is left")?;
        ends_well(job, &["job"])?;
        until(job, "backfill again", |status| {
            place(status) == "Backfill/Busy"
        })?;
        ends(job, Signal::SIGTERM, 0)
    });
}

#[test]
fn backfill_that_ends_at_once_is_begun_more_and_more_seldom_and_says_why() {
    with_job(&guest("backfill_ends"), |job| {
        let since = Instant::now();
        begun(
            job,
            "ENABLE_BACKFILL = True\nSTART_BACKFILL = True\nEVICT_BACKFILL = False\nBACKFILL_COMMAND = /nonexist",
        )?;
        let begins = |job: &mut Job| -> Result<usize, String> {
            let said = startd(job)?.err.text();
            Ok(said.matches("backfill begins, process").count())
        };
        until_said_often(job, "backfill begins, process", 3)?;
        // Two pauses, of 1 s and 2 s.
        if since.elapsed() < Duration::from_millis(2500) {
            return Err(format!("a third beginning after {:?}", since.elapsed()));
        }
        let said = startd(job)?.err.text();
        let why = "slot1: backfill: it has ended with status 127: there is no such command; it begins again in 1 s";
        if said.matches(why).count() != 1 || said.matches("status 127").count() != 1 {
            return Err(format!("found {said}, expected once: {why}"));
        }
        // The slot is a job's at once, though its command is waited for.
        submit(job, "job", "")?;
        until_job(job, "job", "Running")?;
        let before = begins(job)?;
        until_longer(job, "job")?;
        if begins(job)? != before {
            return Err("backfill begins beside a job".to_owned());
        }
        ends_well(job, &["job"])?;
        // Another command does not wait for what the last one has earned.
        configure(
            job,
            "ENABLE_BACKFILL = True\nSTART_BACKFILL = True\nEVICT_BACKFILL = False\nBACKFILL_COMMAND = sleep 600",
        );
        ask(job, &["startd", "reconfig"])?;
        until(job, "backfill", |status| place(status) == "Backfill/Busy")?;
        ends(job, Signal::SIGTERM, 0)
    });
}

/// Waits until the startd has said something so often.
fn until_said_often(job: &mut Job, what: &str, times: usize) -> Tried {
    let said = startd(job)?.err.clone();
    let found = run::poll(STEP, || {
        (said.text().matches(what).count() >= times).then_some(())
    });
    found.ok_or_else(|| format!("found {}, expected {times} times: {what}", said.text()))
}

/// A policy that never lets a job be: without time to vacate, and with it.
#[test]
fn a_job_that_has_to_leave_again_and_again_is_begun_more_and_more_seldom() {
    for (label, vacates) in [("evicted", "False"), ("evicted_in_peace", "True")] {
        with_job(&guest(label), |job| {
            begun(
                job,
                &format!("PREEMPT = LoadAvg >= 0\nWANT_VACATE = {vacates}\nPOLLING_INTERVAL = 5"),
            )?;
            let since = Instant::now();
            submit(job, "job", "")?;
            until_said_often(job, "job job begins in slot1", 1)?;
            let status = until(job, "a job that waits", |status| {
                let why = line_of(status, "job")["why"].to_string();
                why.contains("it has just left, and waits for")
            })?;
            // Two pauses, of 2 s and 4 s, and nobody waits for the next look.
            until_said_often(job, "job job begins in slot1", 3)?;
            let took = since.elapsed();
            if took < Duration::from_millis(5500) {
                return Err(format!("a third beginning after {took:?}; {status}"));
            }
            // It is in nobody's way when it may stay.
            configure(job, "");
            ask(job, &["startd", "reconfig"])?;
            until_job(job, "job", "Running")?;
            until_longer(job, "job")?;
            ends_well(job, &["job"])?;
            ends(job, Signal::SIGTERM, 0)
        });
    }
}

#[test]
fn a_job_that_the_policy_holds_goes_on_when_it_is_released() {
    with_job(&guest("held"), |job| {
        begun(
            job,
            "PREEMPT = TARGET.Project == \"sums\" && TARGET.NumCkpts == 0 && TotalJobRunTime > 1\nWANT_HOLD = True\n\
             WANT_HOLD_REASON = strcat(\"enough of \", TARGET.Project)\nWANT_HOLD_SUBCODE = 7",
        )?;
        submit(job, "job", "+Project = \"sums\"")?;
        let held = until_job(job, "job", "Held")?;
        let fares = faring(job, "job")?;
        if line_of(&held, "job")["why"][0] != "enough of sums"
            || fares["HoldReason"] != "enough of sums"
            || fares["HoldReasonCode"] != 21
            || fares["HoldReasonSubCode"] != 7
            || fares["NumCkpts"] != 1
        {
            return Err(format!("found {held}, {fares}, expected reason and image"));
        }
        let log = ask(job, &["log", "job"])?;
        if !log.contains("enough of sums\n\tCode 21 Subcode 7") {
            return Err(format!("found {log}, expected reason and codes"));
        }
        // Another has the slot meanwhile.
        submit(job, "other", "+Project = \"x\"\narguments = chain.py")?;
        until(job, "another that has ended", |status| {
            line_of(status, "other").is_null()
        })?;
        if line_of(&status(job)?, "job")["state"] != "Held" {
            return Err(format!("found {}, expected Held", status(job)?));
        }
        ask(job, &["startd", "release", "job"])?;
        let fares = until_fares(job, "job", "a job that goes on", |fares| {
            fares["State"] == "Running" && fares["NumRestarts"] == 1
        })?;
        if !fares["HoldReasonCode"].is_null() {
            return Err(format!("found {fares}, expected no hold"));
        }
        until_longer(job, "job")?;
        ends_well(job, &["job"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}

#[test]
fn a_lone_job_has_a_policy_of_its_own() {
    with_job(&guest("lone"), |job| {
        fs::write(job.dir.join("data/chain.py"), CHAIN).expect("a program");
        // Whatever START says, it has begun.
        configure(
            job,
            "START = False\nPERIODIC_CHECKPOINT = time() - LastPeriodicCheckpoint > 1\nPREEMPT = TARGET.NumCkpts >= 2",
        );
        let run = |job: &mut Job, options: &[&str]| -> Tried {
            let mut command = job.wayfarer(&["run", "--quiet", "--name", "job", "--resume"]);
            command
                .args(options)
                .args(["--", "/usr/bin/python3", "chain.py", "job.chain"]);
            job.equip(&mut command);
            let out = fs::OpenOptions::new()
                .append(true)
                .create(true)
                .open(job.dir.join("data/job.out"));
            let out = out.map_err(|error| error.to_string())?;
            User::Ordinary.own(&job.dir.join("data/job.out"));
            job.runs
                .push(Run::start_into(out, STARTD, command, User::Ordinary)?);
            Ok(())
        };
        run(job, &["--policy", "policy"])?;
        has_ended(job, 85)?;
        let fares = faring(job, "job")?;
        if fares["State"] != "Idle" || fares["NumCkpts"].as_u64() < Some(3) {
            return Err(format!(
                "found {fares}, expected two images, and one with which it left"
            ));
        }
        // It may hold it, too.
        configure(
            job,
            "PREEMPT = True\nWANT_HOLD = True\nWANT_HOLD_REASON = \"enough\"",
        );
        run(job, &["--policy", "policy"])?;
        has_ended(job, 1)?;
        let fares = faring(job, "job")?;
        if fares["State"] != "Held" || fares["HoldReason"] != "enough" {
            return Err(format!("found {fares}, expected a job that is held"));
        }
        ask(job, &["release", "job"])?;
        configure(job, "PREEMPT = (1 +");
        run(job, &["--policy", "policy"])?;
        let status = startd(job)?.wait(STEP)?;
        let said = startd(job)?.err.text();
        if status.success() || !said.contains("policy, line 13: PREEMPT") {
            return Err(format!("found {status}: {said}, expected file and line"));
        }
        run(job, &[])?;
        until_fares(job, "job", "a job that runs", |status| {
            status["State"] == "Running"
        })?;
        until_longer(job, "job")?;
        job.let_go();
        has_ended(job, 0)?;
        check_chain(job, "job")
    });
}

#[test]
fn a_lone_job_that_stands_still_and_is_killed_goes_on_standing_still() {
    with_job(&guest("lone_still"), |job| {
        fs::write(job.dir.join("data/chain.py"), CHAIN).expect("a program");
        configure(
            job,
            "PERIODIC_CHECKPOINT = TARGET.NumCkpts == 0\nWANT_SUSPEND = True\nSUSPEND = TARGET.NumCkpts > 0\nCONTINUE = False",
        );
        let mut command = job.wayfarer(&["run", "--quiet", "--name", "job", "--policy", "policy"]);
        command.args(["--", "/usr/bin/python3", "chain.py", "job.chain"]);
        job.equip(&mut command);
        let out =
            fs::File::create(job.dir.join("data/job.out")).map_err(|error| error.to_string())?;
        User::Ordinary.own(&job.dir.join("data/job.out"));
        let run = Run::start_into(out, STARTD, command, User::Ordinary)?;
        job.runs.push(run);
        until_fares(job, "job", "a job that stands still", |fares| {
            fares["State"] == "Suspended" && fares["NumCkpts"].as_u64() >= Some(1)
        })?;
        for pid in run::marked(&job.mark) {
            let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            if program.to_string_lossy().contains("python3") {
                kill(Pid::from_raw(pid), Signal::SIGKILL).map_err(|error| error.to_string())?;
            }
        }
        // Its image was made while it worked.
        until_fares(job, "job", "a copy that stands still", |fares| {
            fares["State"] == "Suspended" && fares["NumRestarts"] == 1
        })?;
        ask(job, &["continue", "job"])?;
        until_longer(job, "job")?;
        job.let_go();
        has_ended(job, 0)?;
        fs::write(job.dir.join("data/job.err"), "").expect("a file");
        check_chain(job, "job")
    });
}

#[test]
fn a_lone_job_that_stands_still_and_cannot_have_an_image_does_not_do_so_for_ever() {
    with_job(&guest("lone_stuck"), |job| {
        fs::write(job.dir.join("data/chain.py"), CHAIN).expect("a program");
        let still = "WANT_SUSPEND = True\nSUSPEND = True\nCONTINUE = False\nWANT_VACATE = True";
        let stuck = |job: &mut Job, options: &[&str]| -> Tried {
            let mut command = job.wayfarer(&["run", "--quiet", "--name", "job", "--replace"]);
            command.args(["--policy", "policy"]).args(options);
            command.args(["--", "/usr/bin/python3", "chain.py", "job.chain"]);
            job.equip(&mut command);
            let path = job.dir.join("data/job.out");
            let _ = fs::remove_file(&path);
            let out = fs::File::create(&path).map_err(|error| error.to_string())?;
            User::Ordinary.own(&path);
            // Nobody but root could open it again, and so no image can go on with it.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o0))
                .map_err(|error| error.to_string())?;
            let run = Run::start_into(out, STARTD, command, User::Ordinary)?;
            job.runs.push(run);
            until_fares(job, "job", "a job that stands still", |fares| {
                fares["State"] == "Suspended"
            })?;
            signal(job, Signal::SIGTERM)
        };
        // It works on while it is tried again, and ends by itself.
        configure(job, still);
        stuck(job, &[])?;
        until_longer(job, "job")?;
        job.let_go();
        has_ended(job, 0)?;
        let fares = faring(job, "job")?;
        if fares["State"] != "Completed" || fares["NumCkpts"] != 0 {
            return Err(format!(
                "found {fares}, expected a job without an image that has ended"
            ));
        }
        fs::remove_file(job.dir.join("data/go")).expect("is removed");
        // Its user's time is over, or its machine's owner's.
        stuck(job, &["--vacate-within", "1s"])?;
        has_ended(job, 85)?;
        configure(job, &format!("{still}\nMachineMaxVacateTime = 1"));
        stuck(job, &[])?;
        has_ended(job, 85)?;
        configure(job, &format!("{still}\nKILL = True"));
        stuck(job, &[])?;
        has_ended(job, 85)
    });
}
