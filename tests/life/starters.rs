//! What a starter leaves that is killed: nothing of its job, and all that was counted of it.

use super::*;

#[test]
fn a_killed_starter_leaves_nothing_of_a_job_with_this_machines_ids() {
    with_job(&chain("host_ids"), |job| {
        let options = ["--pids", "host", "--every", "200ms"];
        start(job, &options)?;
        until_images(job, 1)?;
        signal_starter(job, Signal::SIGKILL)?;
        expect_end(job, 128 + 9)?;
        goes_on_to_its_end(job, &options)
    });
}

/// Neither starter nor supervisor is left to end it.
#[test]
fn nothing_is_left_of_a_job_with_this_machines_ids_whose_starter_and_supervisor_are_killed_at_once()
{
    with_job(&chain("host_ids_alone"), |job| {
        let options = ["--pids", "host", "--every", "200ms"];
        start(job, &options)?;
        until_images(job, 1)?;
        for _ in 0..2 {
            let root = root_of(job)?;
            let supervisor = process_of(job, "supervisor_pid")?;
            signal_starter(job, Signal::SIGSTOP)?;
            kill(supervisor, Signal::SIGKILL).map_err(|error| error.to_string())?;
            signal_starter(job, Signal::SIGKILL)?;
            expect_end(job, 128 + 9)?;
            let exe = format!("/proc/{root}/exe");
            let is_gone = run::poll(STEP, || (!Path::new(&exe).exists()).then_some(()));
            is_gone.ok_or_else(|| format!("process {root} of the job is there yet"))?;
            start(job, &[&options[..], &["--resume"]].concat())?;
            until(job, "that it runs", |status| status["State"] == "Running")?;
        }
        ends_well(job)
    });
}

/// What the copy was that went with its starter is not forgotten.
#[test]
fn a_job_whose_starter_was_killed_is_counted_on() {
    counted_on("counted_on", false);
}

#[test]
fn a_job_that_is_held_when_its_starter_was_killed_is_counted_on() {
    counted_on("counted_and_held", true);
}

fn counted_on(name: &str, is_held: bool) {
    // The kernel counts in hundredths of a second.
    let program = format!("import time\nwhile time.process_time() < 0.2: pass\n{CHAIN}");
    let guest = Guest::new(name, "/usr/bin/python3", &["-c", &program]);
    with_job(&guest, |job| {
        start(job, &["--every", "200ms", "--pulse", "1s"])?;
        until_images(job, 1)?;
        ask(job, &["suspend", "job"])?;
        let suspended = until(job, "suspended", |status| status["State"] == "Suspended")?;
        let since = suspended["LastSuspensionTime"].as_u64().unwrap_or_default();
        let pulse = job.dir.join("state/jobs/job/pulse");
        let signed = run::poll(STEP, || {
            let last = fs::metadata(&pulse).ok()?.modified().ok()?;
            let last = last.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs();
            (last > since + 1).then_some(())
        });
        signed.ok_or("no sign of life")?;
        signal_starter(job, Signal::SIGKILL)?;
        expect_end(job, 128 + 9)?;
        if is_held {
            ask(job, &["hold", "job"])?;
            ask(job, &["release", "job"])?;
        }
        start(job, &["--resume", "--every", "600s"])?;
        let status = until(job, "another copy", |status| {
            status["NumJobStarts"] == 2 && status["State"] == "Running"
        })?;
        let number = |name: &str| status[name].as_f64().unwrap_or_default();
        let cpu = number("RemoteUserCpu") + number("RemoteSysCpu");
        let stood = number("CumulativeSuspensionTime");
        let is_known = stood >= 2.0 && number("RemoteWallClockTime") >= stood && cpu > 0.0;
        if !is_known || status["LastVacateTime"].is_null() || status["TotalSuspensions"] != 1 {
            return Err(status.to_string());
        }
        let log = ask(job, &["log", "job"])?;
        let headers = log.lines().filter(|line| line.get(3..5) == Some(" ("));
        let mut numbers: Vec<&str> = headers.filter_map(|line| line.get(..3)).collect();
        numbers.retain(|number| !matches!(*number, "003" | "006"));
        let held: &[&str] = if is_held { &["012", "013"] } else { &[] };
        let expected = [&["000", "001", "010", "004"], held, &["001"]].concat();
        match numbers == expected {
            true => ends_well(job),
            false => Err(format!("found {numbers:?}:\n{log}")),
        }
    });
}
