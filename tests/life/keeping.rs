//! A job with a starter that nobody disturbs.

use super::*;
use std::time::Instant;

/// Seconds after which a starter that gives no sign is taken for lost, if nobody says otherwise.
const LEASE: u64 = 240;

#[test]
fn images_are_made_as_work_is_done() {
    with_job(&chain("images"), |job| {
        start(job, &["--every", "200ms", "--keep", "3"])?;
        until_images(job, 5)?;
        // None is made, and so none goes, while it stands still.
        ask(job, &["suspend", "job"])?;
        until(job, "suspended", |status| status["State"] == "Suspended")?;
        let kept = images(job);
        if kept.len() != 3 {
            return Err(format!("found {kept:?}, expected the last three"));
        }
        for image in &kept {
            ask(job, &["verify", &image.to_string_lossy()])?;
        }
        ask(job, &["continue", "job"])?;
        ends_well(job)?;
        let status = status_of(job)?;
        let found = [
            &status["State"],
            &status["JobStatus"],
            &status["NumJobStarts"],
            &status["NumRestarts"],
            &status["ExitCode"],
            &status["ExitBySignal"],
            &status["JobLeaseDuration"],
        ];
        let expected = serde_json::json!(["Completed", 4, 1, 0, 0, false, LEASE]);
        if serde_json::json!(found) != expected {
            return Err(format!("found {status}, expected {expected}"));
        }
        let cpu = status["RemoteUserCpu"].as_f64().unwrap_or(0.0);
        let wall = status["RemoteWallClockTime"].as_f64().unwrap_or(0.0);
        // One that was being made when the job ended may have taken no other's place yet.
        let kept = images(job).len();
        if cpu <= 0.0 || wall < 1.0 || !(3..=4).contains(&kept) {
            return Err(format!("{status}, {:?}", images(job)));
        }
        Ok(())
    });
}

/// An image of a job that goes on takes as long as its bytes take at this rate, and the job works meanwhile.
#[test]
fn an_image_is_made_no_faster_than_it_may_be() {
    with_job(&chain("image_rate"), |job| {
        start(job, &["--every", "1h", "--image-rate", "4M"])?;
        until_longer(job)?;
        let chain = job.dir.join("data/chain");
        let lines = || {
            let text = fs::read_to_string(&chain).unwrap_or_default();
            text.lines().count()
        };
        let (before, began) = (lines(), Instant::now());
        signal_starter(job, Signal::SIGUSR2)?;
        until_images(job, 1)?;
        let (took, written) = (began.elapsed(), lines() - before);
        let image = images(job).pop().ok_or("no image")?;
        let bytes = fs::metadata(image).map_err(|error| error.to_string())?;
        let bytes = bytes.len() as f64;
        // The last portion is not waited for.
        let least = Duration::from_secs_f64(bytes * 0.8 / f64::from(4 << 20));
        if took < least || written < 5 {
            return Err(format!(
                "{bytes} bytes took {took:?}, expected {least:?}; {written} lines meanwhile"
            ));
        }
        ends_well(job)
    });
}

#[test]
fn no_image_is_made_that_would_fill_the_disk() {
    with_job(&chain("min_free"), |job| {
        start(job, &["--every", "100ms", "--min-free", "1000T"])?;
        let status = until(job, "a refusal", |status| {
            status["CheckpointRefused"].is_string()
        })?;
        let reason = status["CheckpointRefused"].as_str().unwrap_or_default();
        if !reason.contains("bytes are free") {
            return Err(reason.to_owned());
        }
        refused(job, &["checkpoint", "job"], "bytes are free")?;
        ends_well(job)
    });
}

/// The state machine is told of it, and the event log; one that is to be otherwise is made beside the starter, and is in the log, too.
#[test]
fn an_image_that_is_asked_for_is_the_starters() {
    with_job(&chain("asked_for"), |job| {
        start(job, &["--every", "600s"])?;
        until(job, "that it runs", |status| status["State"] == "Running")?;
        let said = ask(job, &["checkpoint", "job", "--json"])?;
        let said: serde_json::Value =
            serde_json::from_str(&said).map_err(|error| error.to_string())?;
        let image = images(job).pop().ok_or("there is no image")?;
        let is_it = said["image"] == *image.to_string_lossy() && said["generation"] == 1;
        if !is_it || said["frozen_us"].as_u64().is_none_or(|time| time == 0) {
            return Err(format!("found {said}, expected {}", image.display()));
        }
        let log = job.dir.join("state/jobs/job/starter.log");
        let log = fs::read_to_string(log).map_err(|error| error.to_string())?;
        if log.matches("Checkpointing").count() != 1 {
            return Err(log);
        }
        ask(job, &["checkpoint", "job", "--compress", "zstd"])?;
        let status = status_of(job)?;
        let known = [
            &status["NumCkpts"],
            &status["CkptArch"],
            &status["CkptOpSys"],
        ];
        let platform = status["LastCheckpointPlatform"]
            .as_str()
            .unwrap_or_default();
        if serde_json::json!(known) != serde_json::json!([2, "X86_64", "LINUX"])
            || !platform.starts_with("LINUX X86_64")
        {
            return Err(status.to_string());
        }
        let log = ask(job, &["log", "job"])?;
        let events = ["003 (", "006 ("]
            .map(|event| log.lines().filter(|line| line.starts_with(event)).count());
        match events {
            [2, 2] => ends_well(job),
            found => Err(format!(
                "found {found:?} of images, expected two each:\n{log}"
            )),
        }
    });
}

/// Older ones go to make room, the newest never; what would be too much is refused.
#[test]
fn images_take_no_more_than_they_may() {
    let size = std::sync::Mutex::new(0);
    let bytes = |job: &Job| -> u64 {
        let lengths = images(job)
            .into_iter()
            .map(|image| fs::metadata(image).map_or(0, |found| found.len()));
        lengths.sum()
    };
    with_job(&chain("images_max"), |job| {
        start(job, &["--every", "100ms", "--images-max", "1K"])?;
        let status = until(job, "a refusal", |status| {
            status["CheckpointRefused"].is_string()
        })?;
        let reason = status["CheckpointRefused"].as_str().unwrap_or_default();
        if !reason.contains("expected 1024 at most together (--images-max)") {
            return Err(reason.to_owned());
        }
        // How large the first is turns out while it is made.
        let kept = images(job);
        match kept.is_empty() {
            true => ends_well(job),
            false => Err(format!("found {kept:?}, expected none")),
        }
    });
    with_job(&chain("images_max_one"), |job| {
        start(job, &["--every", "100ms"])?;
        until_images(job, 1)?;
        ask(job, &["suspend", "job"])?;
        let first = images(job).into_iter().next().ok_or("no image")?;
        let first = fs::metadata(first).map_err(|error| error.to_string())?;
        *size.lock().map_err(|error| error.to_string())? = first.len();
        ask(job, &["continue", "job"])?;
        ends_well(job)
    });
    let size = size.into_inner().expect("is known");
    with_job(&chain("images_max_room"), |job| {
        let most = size * 5 / 2;
        start(
            job,
            &[
                "--every",
                "50ms",
                "--keep",
                "9",
                "--images-max",
                &most.to_string(),
            ],
        )?;
        until(job, "images", |status| {
            status["NumCkpts"].as_u64().is_some_and(|made| made >= 6)
        })?;
        ask(job, &["suspend", "job"])?;
        until(job, "suspended", |status| status["State"] == "Suspended")?;
        let (kept, bytes) = (images(job), bytes(job));
        if bytes > most || kept.is_empty() || kept.len() > 2 {
            return Err(format!(
                "found {kept:?} of {bytes} bytes, expected at most {most}"
            ));
        }
        ask(job, &["verify", &kept[kept.len() - 1].to_string_lossy()])?;
        ask(job, &["continue", "job"])?;
        ends_well(job)
    });
}

/// Nothing wakes a starter that has nothing to do, and it needs little memory.
#[test]
fn an_idle_starter_costs_nothing() {
    with_job(&chain("idle"), |job| {
        start(job, &["--every", "1h"])?;
        until(job, "running", |status| status["State"] == "Running")?;
        let pid = starter(job)?.pid();
        let read = |name: &str| -> Result<u64, String> {
            let status = fs::read_to_string(format!("/proc/{pid}/status"))
                .map_err(|error| error.to_string())?;
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
            number.ok_or_else(|| format!("no {name} in {status}"))
        };
        let switches = || read("voluntary_ctxt_switches:");
        // What has just begun may still have things to do.
        let mut woken = u64::MAX;
        for _ in 0..4 {
            let before = switches()?;
            std::thread::sleep(Duration::from_secs(1));
            woken = woken.min(switches()? - before);
        }
        let (resident, anonymous) = (read("VmRSS:")?, read("RssAnon:")?);
        if woken > 2 || resident > 20 << 10 {
            return Err(format!(
                "found {woken} wake-ups in a second, {resident} KiB ({anonymous} of its own); expected at most 2, 20480"
            ));
        }
        ask(job, &["kill", "-s", "KILL", "job"])?;
        expect_end(job, 128 + 9)
    });
}

/// What cannot be checkpointed yet (several processes) runs to its end, and it is told why.
#[test]
fn a_tree_of_processes_runs_to_its_end() {
    let guest = Guest::new("tree", "/bin/sh", &["-c", "sleep 1; (exit 3); exit 7"]);
    with_job(&guest, |job| {
        start(job, &["--every", "100ms"])?;
        expect_end(job, 7)?;
        let status = status_of(job)?;
        match status["ExitCode"] == 7 && status["CheckpointRefused"].is_string() {
            true => Ok(()),
            false => Err(status.to_string()),
        }
    });
}

#[test]
fn what_cannot_be_started_leaves_nothing() {
    let guest = Guest::new("absent", "/no/such/program", &[]);
    with_job(&guest, |job| {
        start(job, &["--every", "1s"])?;
        expect_end(job, 127)?;
        match job.dir.join("state/jobs/job").exists() {
            false => Ok(()),
            true => Err("the job's directory is still there".to_owned()),
        }
    });
}

/// Whoever becomes the starter by exec(2) may have children, and may ignore what becomes of them.
#[test]
fn children_that_a_starter_finds_are_none_of_the_jobs() {
    let guest = Guest::new("strangers", "/bin/sh", &["-c", "seq 1 1000"]);
    with_job(&guest, |job| {
        let wayfarer = job.wayfarer(&[]);
        let program = wayfarer.get_program().to_string_lossy().into_owned();
        let state = job.dir.join("state").display().to_string();
        let script = format!(
            "trap '' CHLD; exec {program} --dir {state} run --name job --every 1h -- seq 1 1000 \
             > >(sleep 0.5; cat > got; echo all >> got)"
        );
        let mut command = job.in_data(std::process::Command::new("/bin/bash"));
        command.args(["-c", &script]);
        let (status, run) = finish("a shell", command, User::Ordinary, STEP)?;
        if status.code() != Some(0) {
            return Err(run.describe());
        }
        let got = job.dir.join("data/got");
        let lines = run::poll(STEP, || {
            let text = fs::read_to_string(&got).ok()?;
            text.ends_with("all\n").then(|| text.lines().count())
        });
        match lines {
            Some(1001) => Ok(()),
            found => Err(format!("found {found:?} lines, expected 1001")),
        }
    });
}
