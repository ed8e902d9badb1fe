//! A job that is told to leave goes on where it is started again.

use super::*;

#[test]
fn a_job_that_is_told_to_leave_goes_on_where_it_is_started_again() {
    with_job(&chain("told_to_leave"), |job| {
        for signal in [Signal::SIGTERM, Signal::SIGTSTP] {
            start(job, &["--resume"])?;
            until(job, "running", |status| status["State"] == "Running")?;
            until_longer(job)?;
            signal_starter(job, signal)?;
            expect_end(job, 85)?;
            let status = status_of(job)?;
            if status["State"] != "Idle" || status["LastVacateTime"].is_null() {
                return Err(format!("found {status}, expected a job that is idle"));
            }
        }
        goes_on_to_its_end(job, &[])?;
        let status = status_of(job)?;
        if (&status["NumCkpts"], &status["NumRestarts"]) != (&2.into(), &2.into()) {
            return Err(format!("found {status}, expected two of each"));
        }
        // What is completed is not begun again.
        start(job, &["--resume"])?;
        expect_end(job, 0)?;
        let said = starter(job)?.describe();
        match said.contains("was completed before") && !said.contains("at last") {
            true => Ok(()),
            false => Err(said),
        }
    });
}

#[test]
fn a_suspended_job_stands_still_and_leaves_as_one_that_works() {
    with_job(&chain("suspended"), |job| {
        start(job, &["--every", "150ms"])?;
        until_images(job, 1)?;
        signal_starter(job, Signal::SIGUSR1)?;
        let before = until(job, "suspended", |status| status["State"] == "Suspended")?;
        let len = |job: &Job| fs::metadata(job.dir.join("data/chain")).map_or(0, |file| file.len());
        let long = len(job);
        // Several times as long as it takes to become due.
        std::thread::sleep(Duration::from_millis(600));
        let after = status_of(job)?;
        if len(job) != long || after["NumCkpts"] != before["NumCkpts"] {
            return Err(format!(
                "{long} became {}; {before}, then {after}",
                len(job)
            ));
        }
        signal_starter(job, Signal::SIGCONT)?;
        until(job, "running", |status| status["State"] == "Running")?;
        until_longer(job)?;
        ask(job, &["suspend", "job"])?;
        ask(job, &["vacate", "job"])?;
        expect_end(job, 85)?;
        // Its image stands still, however often it goes on from that.
        start(job, &["--resume", "--every", "1h"])?;
        until(job, "running", |status| status["State"] == "Running")?;
        until_longer(job)?;
        let pid = root_of(job)?;
        kill(pid, Signal::SIGKILL).map_err(|error| error.to_string())?;
        until(job, "running again", |status| {
            status["NumRestarts"] == 2 && status["State"] == "Running"
        })?;
        until_longer(job)?;
        ends_well(job)?;
        let status = status_of(job)?;
        let stood = status["CumulativeSuspensionTime"].as_f64().unwrap_or(0.0);
        if status["TotalSuspensions"] != 2 || stood < 0.6 {
            return Err(format!("found {status}, expected two suspensions, 0.6 s"));
        }
        Ok(())
    });
}

/// It has a connection to the outside until it is let go.
const CONNECTED: &str = r#"
import os, socket, sys, time
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("READY", flush=True)
while not os.path.exists(os.environ["WF_GO"]):
    time.sleep(0.01)
connection.close()
print("closed", flush=True)
time.sleep(600)
"#;

/// A job with such a connection, to us.
fn connected(label: &str) -> (std::net::TcpListener, Guest) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listens");
    let port = listener.local_addr().expect("has a port").port();
    let words = ["-c", CONNECTED, &port.to_string()];
    let guest = Guest::new(label, "/usr/bin/python3", &words);
    (listener, guest)
}

#[test]
fn what_cannot_be_carried_is_named_and_the_job_stays() {
    let (_listener, guest) = connected("connected");
    with_job(&guest, |job| {
        start(job, &["--vacate-within", "700ms"])?;
        starter(job)?.wait_line("READY", STEP)?;
        refused(job, &["vacate", "job"], "connected")?;
        refused(job, &["hold", "job"], "connected")?;
        let status = until(job, "a job that runs on", |status| {
            status["State"] == "Running"
        })?;
        let reason = status["CheckpointRefused"].as_str().unwrap_or_default();
        if status["NumCkpts"] != 0 || !reason.contains("connected") {
            return Err(format!("found {status}, expected a refusal"));
        }
        refused(
            job,
            &["vacate", "job", "--latest"],
            "no image of the job yet",
        )?;
        // A batch system does not ask; what cannot be saved in time is left.
        signal_starter(job, Signal::SIGTERM)?;
        expect_end(job, 85)?;
        let said = starter(job)?.err.text();
        match said.contains("there is no image of it") {
            true => Ok(()),
            false => Err(said),
        }
    });
}

/// Without a time, a vacate by a signal waits for the moment in which it can be.
#[test]
fn a_vacate_waits_for_what_cannot_be_carried() {
    let (_listener, guest) = connected("connected_long");
    with_job(&guest, |job| {
        start(job, &["--keep", "1"])?;
        starter(job)?.wait_line("READY", STEP)?;
        signal_starter(job, Signal::SIGTERM)?;
        until(job, "a refusal", |status| {
            status["State"] == "Vacating" && status["CheckpointRefused"].is_string()
        })?;
        job.let_go();
        expect_end(job, 85)?;
        match status_of(job)?["NumCkpts"] == 1 {
            true => Ok(()),
            false => Err(status_of(job)?.to_string()),
        }
    });
}

#[test]
fn nobody_is_disturbed_when_a_job_leaves_with_its_last_image() {
    with_job(&chain("latest"), |job| {
        start(job, &["--every", "200ms"])?;
        until_images(job, 1)?;
        ask(job, &["suspend", "job"])?;
        let before = until(job, "suspended", |status| status["State"] == "Suspended")?;
        ask(job, &["vacate", "job", "--latest"])?;
        expect_end(job, 85)?;
        if status_of(job)?["NumCkpts"] != before["NumCkpts"] {
            return Err(format!("{before}, then {}", status_of(job)?));
        }
        start(job, &["--resume", "--every", "200ms"])?;
        until(job, "running", |status| status["State"] == "Running")?;
        signal_starter(job, Signal::SIGINT)?;
        expect_end(job, 85)?;
        goes_on_to_its_end(job, &[])
    });
}

/// A batch system, `timeout`, a shell: they signal a whole process group.
#[test]
fn a_signal_to_the_whole_group_is_a_vacate() {
    with_job(&chain("group"), |job| {
        start(job, &["--every", "200ms"])?;
        until_images(job, 1)?;
        let group = Pid::from_raw(-starter(job)?.pid().cast_signed());
        kill(group, Signal::SIGTERM).map_err(|error| error.to_string())?;
        expect_end(job, 85)?;
        goes_on_to_its_end(job, &[])
    });
}
