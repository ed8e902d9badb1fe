//! Jobs that begin again, as if they had not begun; and those that do not.

use super::killed::{IN_PLACE, check_in_place, check_table, count_events, journals};
use super::*;

/// The same with a table that is there already; it reads a line first, and says which.
fn from_the_beginning() -> String {
    let begins = "import sys\nprint('begins with', sys.stdin.readline().strip(), flush=True)\n";
    let goes_on = IN_PLACE.replace("os.pwrite(table, bytes(4000), 0)\n", "");
    assert_ne!(goes_on, IN_PLACE);
    format!("{begins}{goes_on}")
}

fn make_table(job: &Job) -> Result<(), String> {
    let table = job.dir.join("data/table");
    fs::write(&table, [0; 4000]).map_err(|error| error.to_string())?;
    User::Ordinary.own(&table);
    Ok(())
}

/// Killed before there is an image: its files, its input and its output are as they were, and it begins again; under the next starter
/// its files and its output are.
#[test]
fn a_job_without_an_image_begins_again_with_its_files() {
    let program = from_the_beginning();
    let guest = Guest::new("begins_again", "/usr/bin/python3", &["-c", &program]);
    with_job(&guest, |job| {
        let data = job.dir.join("data");
        let made = |error: std::io::Error| error.to_string();
        fs::write(data.join("in"), "one\ntwo\n").map_err(made)?;
        fs::write(data.join("out"), "before\n").map_err(made)?;
        make_table(job)?;
        for name in ["in", "out"] {
            User::Ordinary.own(&data.join(name));
        }
        let begin = |job: &mut Job, options: &[&str]| -> Result<(), String> {
            let open = |name: &str, append: bool| {
                let mut options = fs::OpenOptions::new();
                options.read(!append).append(append).open(data.join(name))
            };
            let mut command = starting(job, options);
            command.stdin(open("in", false).map_err(made)?);
            let output = open("out", true).map_err(made)?;
            let run = Run::start_into(output, THE_GUEST, command, User::Ordinary)?;
            job.runs.push(run);
            Ok(())
        };
        let until_it_works = |job: &mut Job, starts: u64| -> Result<(), String> {
            until(job, "a copy", |status| {
                status["NumJobStarts"] == starts && status["State"] == "Running"
            })?;
            let changed = run::poll(STEP, || {
                let table = fs::read(data.join("table")).ok()?;
                (table != [0; 4000]).then_some(())
            });
            changed.ok_or_else(|| "the job does not work".to_owned())
        };
        begin(job, &["--journal", "--keep", "2", "--resume"])?;
        until_it_works(job, 1)?;
        for (which, starts) in [("root_pid", 2), ("supervisor_pid", 3)] {
            let pid = process_of(job, which)?;
            kill(pid, Signal::SIGKILL).map_err(|error| error.to_string())?;
            until_it_works(job, starts)?;
        }
        signal_starter(job, Signal::SIGKILL)?;
        expect_end(job, 128 + 9)?;
        // It goes on as it was begun, with a journal.
        begin(job, &["--resume"])?;
        until_it_works(job, 4)?;
        job.let_go();
        expect_end(job, 0)?;
        let status = status_of(job)?;
        let found = (&status["State"], &status["NumRestarts"], journals(job));
        if found != (&"Completed".into(), &0.into(), 0) {
            return Err(format!(
                "found {found:?}, expected Completed, no restart, no journal"
            ));
        }
        if (count_events(job, "000"), count_events(job, "001")) != (1, 4) {
            return Err(format!("found {}", ask(job, &["log", "job"])?));
        }
        let told = starter(job)?.err.text();
        if !told.contains("what was behind its beginning in standard output is in") {
            return Err(format!("found {told:?}, expected where the rest is"));
        }
        let said = fs::read_to_string(data.join("out")).map_err(made)?;
        match said.lines().collect::<Vec<_>>().as_slice() {
            ["before", "begins with one", steps] => check_table(job, steps),
            _ => Err(format!(
                "found {said:?}, expected what was before, and one beginning"
            )),
        }
    });
}

/// What it has read from a pipe is gone: it cannot begin again.
#[test]
fn a_job_whose_input_is_gone_does_not_begin_again() {
    let program = from_the_beginning();
    let guest = Guest::new("input_gone", "/usr/bin/python3", &["-c", &program]);
    with_job(&guest, |job| {
        make_table(job)?;
        let mut command = starting(job, &["--journal", "--keep", "2"]);
        command.stdin(std::process::Stdio::piped());
        let mut run = Run::start_with_stdin(THE_GUEST, command, User::Ordinary)?;
        let mut input = run.stdin().ok_or("it has no input")?;
        std::io::Write::write_all(&mut input, b"one\n").map_err(|error| error.to_string())?;
        run.wait_line("begins with one", STEP)?;
        job.runs.push(run);
        let root = root_of(job)?;
        kill(root, Signal::SIGKILL).map_err(|error| error.to_string())?;
        expect_end(job, 128 + 9)?;
        let status = status_of(job)?;
        match (&status["State"], &status["NumJobStarts"]) {
            (state, starts) if state == "Completed" && *starts == 1 => {}
            _ => return Err(format!("found {status}, expected an end")),
        }
        match starter(job)?.err.text() {
            said if said.contains("does not begin again") => Ok(()),
            said => Err(said),
        }
    });
}

/// What its starter has begun again is its own, and goes on when it is killed once more.
#[test]
fn a_job_that_has_begun_again_goes_on_from_its_image() {
    let guest = Guest::new("again_and_on", "/usr/bin/python3", &["-c", IN_PLACE]);
    with_job(&guest, |job| {
        make_table(job)?;
        let nothing = job.dir.join("data/nothing");
        fs::write(&nothing, "").map_err(|error| error.to_string())?;
        User::Ordinary.own(&nothing);
        let mut command = starting(job, &["--journal", "--every", "600s"]);
        let nothing = fs::File::open(&nothing).map_err(|error| error.to_string())?;
        command.stdin(nothing);
        let run = Run::start(THE_GUEST, command, User::Ordinary)?;
        job.runs.push(run);
        for (starts, restarts) in [(1, 0), (2, 0), (3, 1), (4, 2)] {
            until(job, "a copy", |status| {
                let found = (&status["NumJobStarts"], &status["NumRestarts"]);
                found == (&starts.into(), &restarts.into()) && status["State"] == "Running"
            })?;
            if starts > 1 {
                ask(job, &["checkpoint", "job"])?;
            }
            if starts < 4 {
                let root = root_of(job)?;
                kill(root, Signal::SIGKILL).map_err(|error| error.to_string())?;
            }
        }
        job.let_go();
        expect_end(job, 0)?;
        check_in_place(job)
    });
}

#[test]
fn a_job_without_journal_that_begins_again_says_so_and_is_the_same_job() {
    let program = "import time\nprint('begun', flush=True)\nwhile True: time.sleep(1)";
    let guest = Guest::new("begins_anew", "/usr/bin/python3", &["-c", program]);
    with_job(&guest, |job| {
        start(job, &["--every", "1h", "--resume"])?;
        until(job, "a copy", |status| status["State"] == "Running")?;
        signal_starter(job, Signal::SIGKILL)?;
        expect_end(job, 128 + 9)?;
        start(job, &["--every", "1h", "--resume"])?;
        until(job, "another", |status| status["NumJobStarts"] == 2)?;
        ask(job, &["kill", "-s", "KILL", "job"])?;
        expect_end(job, 128 + 9)?;
        let counts = ["000", "001", "004", "009"].map(|number| count_events(job, number));
        let told = starter(job)?.err.text();
        match told.contains("its files are as it left them") && counts == [1, 2, 1, 1] {
            true => Ok(()),
            false => Err(format!("found {counts:?}, {told}")),
        }
    });
}

#[test]
fn a_job_that_is_over_is_not_begun_again_because_its_record_is_damaged() {
    let guest = Guest::new("over", "/bin/true", &[]);
    with_job(&guest, |job| {
        start(job, &["--every", "1h", "--resume"])?;
        expect_end(job, 0)?;
        let record = job.dir.join("state/jobs/job/life.json");
        fs::write(&record, "garbage").map_err(|error| error.to_string())?;
        start(job, &["--resume"])?;
        expect_end(job, 1)?;
        let told = starter(job)?.err.text();
        match told.contains("has ended, as its event log says") {
            true => Ok(()),
            false => Err(told),
        }
    });
}
