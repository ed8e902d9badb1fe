//! Whoever wants to hear of a job's end is told of it: once, and of nothing else.

use super::*;

/// Writes down what it is told, and what the record says by then.
const TELLER: &str = "{ env | grep ^WAYFARER_ | sort; cat; grep -o '\"state\": \"[A-Za-z]*\"' \"$WAYFARER_DIR/life.json\"; } >> told; \
                      echo said aloud";

fn told(job: &Job) -> String {
    fs::read_to_string(job.dir.join("data/told")).unwrap_or_default()
}

fn expect_told(job: &Job, state: &str, more: &[&str]) -> Result<(), String> {
    let dir = job.dir.join("state/jobs/job");
    let mut lines = vec![
        format!("WAYFARER_DIR={}", dir.display()),
        "WAYFARER_JOB=job".to_owned(),
        format!("WAYFARER_STATE={state}"),
    ];
    lines.extend(more.iter().map(|line| (*line).to_owned()));
    lines.sort();
    lines.push(format!("\"state\": \"{state}\"\n"));
    let (found, expected) = (told(job), lines.join("\n"));
    match found == expected {
        true => Ok(()),
        false => Err(format!("told: found {found}\nexpected {expected}")),
    }
}

fn log_has(job: &Job, text: &str) -> Result<(), String> {
    let log = fs::read_to_string(job.dir.join("state/jobs/job/starter.log"));
    let log = log.unwrap_or_default();
    match log.contains(text) {
        true => Ok(()),
        false => Err(format!("starter.log: found {log}\nexpected {text}")),
    }
}

#[test]
fn an_end_is_told_once_and_leaving_is_none() {
    with_job(&chain("notify"), |job| {
        start(job, &["--resume", "--notify", TELLER])?;
        until(job, "running", |status| status["State"] == "Running")?;
        until_longer(job)?;
        ask(job, &["vacate", "job"])?;
        expect_end(job, 85)?;
        if !told(job).is_empty() {
            return Err(format!("it has only left, but was told: {}", told(job)));
        }
        // What to do at its end is known to whoever goes on with it.
        let mut command = job.wayfarer(&["restart", "job"]);
        job.equip(&mut command);
        let run = Run::start("the guest, restarted", command, User::Ordinary)?;
        job.runs.push(run);
        ends_well(job)?;
        expect_told(job, "Completed", &["WAYFARER_EXIT_CODE=0"])?;
        log_has(job, "said aloud")?;
        // It has ended before.
        start(job, &["--resume"])?;
        expect_end(job, 0)?;
        expect_told(job, "Completed", &["WAYFARER_EXIT_CODE=0"])
    });
}

#[test]
fn a_hold_and_a_removal_are_told() {
    with_job(&chain("notify_hold"), |job| {
        start(job, &["--keep", "1", "--notify", TELLER])?;
        until(job, "running", |status| status["State"] == "Running")?;
        ask(job, &["hold", "job", "--reason", "its data: \"wrong\""])?;
        expect_end(job, 1)?;
        expect_told(job, "Held", &["WAYFARER_REASON=its data: \"wrong\""])?;
        fs::remove_file(job.dir.join("data/told")).map_err(|error| error.to_string())?;
        ask(job, &["release", "job"])?;
        // Nobody wants to hear of it any more.
        start(job, &["--resume", "--notify", ""])?;
        until(job, "running", |status| status["State"] == "Running")?;
        ask(job, &["hold", "job"])?;
        expect_end(job, 1)?;
        ask(job, &["release", "job"])?;
        start(job, &["--resume"])?;
        until(job, "running", |status| status["State"] == "Running")?;
        ask(job, &["hold", "job"])?;
        expect_end(job, 1)?;
        if !told(job).is_empty() {
            return Err(format!("found {}, expected that nobody is told", told(job)));
        }
        ask(job, &["release", "job"])?;
        // The directory is there as long as the command is.
        let slow = "sleep 0.3; test -d \"$WAYFARER_DIR\" && echo \"$WAYFARER_STATE\" > told";
        start(job, &["--resume", "--notify", slow])?;
        until(job, "running", |status| status["State"] == "Running")?;
        ask(job, &["remove", "job"])?;
        let found = told(job);
        if found != "Removed\n" || job.dir.join("state/jobs/job").exists() {
            return Err(format!(
                "found {found:?}, expected Removed, and no directory"
            ));
        }
        expect_end(job, 128 + 9)
    });
}

#[test]
fn what_comes_of_telling_changes_nothing() {
    let dies = Guest::new("notify_fails", "/bin/sh", &["-c", "kill -SEGV $$"]);
    with_job(&dies, |job| {
        let command = format!("{TELLER}; exit 3");
        start(job, &["--keep", "1", "--notify", &command])?;
        expect_end(job, 128 + 11)?;
        expect_told(job, "Completed", &["WAYFARER_EXIT_SIGNAL=11"])?;
        log_has(job, "has failed (exit status: 3)")?;
        let said = starter(job)?.err.text();
        match said.contains("has failed (exit status: 3)") {
            true => Ok(()),
            false => Err(said),
        }
    });
}

/// Processes that it has begun go with it.
#[test]
fn who_is_told_has_no_more_than_his_time() {
    let guest = Guest::new("notify_slow", "/bin/sh", &["-c", "exit 7"]);
    with_job(&guest, |job| {
        let slow = [
            "--notify-within",
            "300ms",
            "--notify",
            "sleep 600 & sleep 600",
        ];
        start(job, &slow)?;
        expect_end(job, 7)?;
        log_has(job, "was killed: found it running after 300ms")?;
        // A new job of this name has nothing of the old.
        let mut command = job.wayfarer(&["run", "--quiet", "--name", "job", "--keep", "1"]);
        command.args(["--", "true"]);
        let (status, run) = finish("another", command, User::Ordinary, STEP)?;
        match status.success() && run.err.text().is_empty() {
            true => Ok(()),
            false => Err(run.describe()),
        }
    });
}

#[test]
fn who_tells_is_told_to_leave() {
    let guest = Guest::new("notify_leaves", "/bin/sh", &["-c", "exit 0"]);
    with_job(&guest, |job| {
        start(job, &["--notify", "echo begun > told; sleep 600"])?;
        run::poll(STEP, || (told(job) == "begun\n").then_some(())).ok_or("nobody was told")?;
        signal_starter(job, Signal::SIGTERM)?;
        expect_end(job, 0)?;
        log_has(job, "was killed: its starter was told to leave")
    });
}
