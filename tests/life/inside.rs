//! Programs that ask for something themselves: contrib/inside, from C, Fortran and Python.

use super::*;
use std::process::Stdio;
use support::inside::{compiled, contrib};
use support::stage;

fn inside(scenario: &str) -> Guest {
    let program = compiled("inside", "gcc", &["-Wextra"], &["tests/guests/inside.c"]);
    Guest::new(&format!("inside {scenario}"), program, &[scenario])
}

fn says(job: &mut Job, line: &str) -> Result<(), String> {
    starter(job)?.wait_line(line, STEP)
}

/// The job is let go by a file, once.
fn let_go_on(job: &Job) -> Result<(), String> {
    job.let_go();
    let go = job.dir.join("data/go");
    let heeded = run::poll(STEP, || (!go.exists()).then_some(()));
    heeded.ok_or_else(|| format!("{} is still there", go.display()))
}

/// What all its copies have said.
fn said(job: &Job) -> String {
    let guests = job.runs.iter();
    let guests = guests.filter(|run| run.label.starts_with("the guest"));
    guests.map(|run| run.out.text()).collect()
}

fn expect_said(job: &Job, expected: &str) -> Result<(), String> {
    match said(job) {
        found if found == expected => Ok(()),
        found => Err(format!("said {found:?}, expected {expected:?}")),
    }
}

fn asks(guest: &Guest) {
    with_job(guest, |job| {
        start(job, &["--keep", "2"])?;
        expect_end(job, 85)?;
        let status = status_of(job)?;
        let counts = (&status["NumCkpts"], &status["NumRestarts"]);
        if counts != (&2.into(), &1.into()) {
            return Err(format!("found {status}, expected two images and a restart"));
        }
        start(job, &["--resume"])?;
        expect_end(job, 0)?;
        expect_said(job, "begun\nmade\nwent back\nPASS\n")?;
        // It was no accident.
        let log = ask(job, &["log", "job"])?;
        match log.contains("goes back by itself") && !log.contains("killed by somebody") {
            true => Ok(()),
            false => Err(log),
        }
    });
}

#[test]
fn a_program_makes_an_image_goes_back_and_leaves() {
    asks(&inside("asks"));
}

#[test]
fn a_static_program_makes_an_image_goes_back_and_leaves() {
    let sources = ["tests/guests/inside.c"];
    let program = compiled("inside-static", "gcc", &["-static"], &sources);
    asks(&Guest::new("inside static", program, &["asks"]));
}

#[test]
fn no_image_is_made_of_a_job_that_has_disabled_checkpoints_until_it_enables_them() {
    with_job(&inside("disabled"), |job| {
        start(job, &["--keep", "5"])?;
        says(job, "disabled")?;
        let asked = job.wayfarer(&["checkpoint", "job"]);
        let mut asked = Run::start("a checkpoint", asked, User::Ordinary)?;
        signal_starter(job, Signal::SIGUSR2)?;
        let seen = |status: &serde_json::Value| status["State"] == "Checkpointing";
        until(job, "the starter waits", seen)?;
        let waits = run::poll(STEP, || asked.err.text().contains("disabled").then_some(()));
        waits.ok_or_else(|| asked.describe())?;
        // What cannot wait is not kept from anything.
        refused(job, &["vacate", "--latest", "job"], "no image")?;
        if !images(job).is_empty() || asked.ended().is_some() {
            return Err(format!("{:?} {}", images(job), asked.describe()));
        }
        let_go_on(job)?;
        says(job, "enabled")?;
        let status = asked.wait(STEP)?;
        if !status.success() {
            return Err(asked.describe());
        }
        // That of the signal, or of the job's own request, and that of the command.
        let made = run::poll(STEP, || (images(job).len() >= 2).then_some(()));
        made.ok_or_else(|| format!("found {:?}, expected two", images(job)))?;
        job.let_go();
        expect_end(job, 0)?;
        expect_said(job, "disabled\nenabled\nPASS\n")
    });
}

#[test]
fn a_job_that_has_disabled_checkpoints_can_be_killed_and_can_leave_in_time() {
    with_job(&inside("disabled"), |job| {
        start(job, &["--keep", "2"])?;
        says(job, "disabled")?;
        let command = job.wayfarer(&["vacate", "--within", "300ms", "job"]);
        let (status, vacate) = finish("vacate", command, User::Ordinary, STEP)?;
        if !status.success() {
            return Err(vacate.describe());
        }
        expect_end(job, 85)?;
        match images(job).is_empty() {
            true => Ok(()),
            false => Err("there is an image".to_owned()),
        }
    });
}

#[test]
fn hooks_are_called_around_each_image() {
    with_job(&inside("hooks"), |job| {
        start(job, &["--keep", "2"])?;
        says(job, "hooked")?;
        ask(job, &["checkpoint", "job"])?;
        says(job, "hook: after")?;
        kill(root_of(job)?, Signal::SIGKILL).map_err(|error| error.to_string())?;
        says(job, "hook: restarted")?;
        signal_starter(job, Signal::SIGUSR2)?;
        until_images(job, 1)?;
        let twice = run::poll(STEP, || {
            (said(job).matches("hook: after").count() == 2).then_some(())
        });
        twice.ok_or_else(|| said(job))?;
        job.let_go();
        expect_end(job, 0)?;
        expect_said(
            job,
            "hooked\nhook: before\nhook: after\nhook: restarted\nhook: before\nhook: after\nPASS\n",
        )
    });
}

#[test]
fn hooks_are_called_when_the_first_thread_has_ended() {
    with_job(&inside("hooks first ended"), |job| {
        start(job, &["--keep", "2"])?;
        says(job, "hooked")?;
        ask(job, &["checkpoint", "job"])?;
        says(job, "hook: after")?;
        kill(root_of(job)?, Signal::SIGKILL).map_err(|error| error.to_string())?;
        says(job, "hook: restarted")?;
        job.let_go();
        expect_end(job, 0)
    });
}

/// It is shown as a zombie, whatever its other threads do.
#[test]
fn a_job_whose_first_thread_has_ended_stands_still_and_goes_on() {
    with_job(&inside("hooks first ended"), |job| {
        start(job, &["--keep", "2"])?;
        says(job, "hooked")?;
        let supervisor = process_of(job, "supervisor_pid")?.as_raw();
        let root = root_of(job)?;
        // Its supervisor stands still when it does, and goes on when it does.
        let state = |pid: i32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit(") ")
                .next()
                .and_then(|rest| rest.chars().next())
        };
        let is = |wanted| run::poll(STEP, || (state(supervisor) == wanted).then_some(()));
        let by = |signal| kill(root, signal).map_err(|error| error.to_string());
        by(Signal::SIGSTOP)?;
        is(Some('T')).ok_or("its supervisor does not stand still")?;
        // Nor is it woken.
        std::thread::sleep(Duration::from_millis(300));
        let stays = is(Some('T')).is_some() && !said(job).contains("PASS");
        if !stays || state(root.as_raw()) != Some('Z') {
            return Err(format!("{:?}: {}", state(root.as_raw()), said(job)));
        }
        ask(job, &["continue", "job"])?;
        is(Some('S')).ok_or("its supervisor does not go on")?;
        ask(job, &["suspend", "job"])?;
        until(job, "suspended", |status| status["State"] == "Suspended")?;
        job.let_go();
        // It does not look for that.
        std::thread::sleep(Duration::from_millis(300));
        if said(job).contains("PASS") {
            return Err(said(job));
        }
        ask(job, &["continue", "job"])?;
        expect_end(job, 0)
    });
}

#[test]
fn a_hook_that_does_not_end_keeps_an_image_from_being_made_and_nothing_else() {
    with_job(&inside("slow hooks"), |job| {
        start(job, &["--keep", "2"])?;
        says(job, "hooked")?;
        refused(job, &["checkpoint", "job"], "has not ended within 10 s")?;
        let_go_on(job)?;
        says(job, "hook: after")?;
        ask(job, &["checkpoint", "job"])?;
        job.let_go();
        expect_end(job, 0)
    });
}

#[test]
fn without_a_starter_requests_fail_and_the_program_goes_on() {
    let guest = inside("alone");
    with_job(&guest, |job| {
        start(job, &[])?;
        expect_end(job, 0)?;
        expect_said(
            job,
            "the job has no starter on this machine (wayfarer run --keep 2 ...)\nPASS\n",
        )
    });
    let mut command = run::clean_command(&guest.program);
    command.args(&guest.arguments);
    let (_, alone) = finish("alone", command, User::Ordinary, STEP).expect("runs");
    assert_eq!(
        alone.out.text(),
        "this is not the first process of a wayfarer job\nPASS\n"
    );
}

#[test]
fn fortran_calls_condors_functions() {
    let sources = ["tests/programs/inside.f90"];
    let guest = Guest::new(
        "inside fortran",
        compiled(
            "inside-fortran",
            "gfortran",
            &["-fallow-leading-underscore"],
            &sources,
        ),
        &[],
    );
    with_job(&guest, |job| {
        start(job, &["--keep", "2"])?;
        expect_end(job, 85)?;
        let image = job.dir.join("data/inside.img");
        ask(job, &["verify", &image.display().to_string()])?;
        start(job, &["--resume"])?;
        expect_end(job, 0)?;
        expect_said(job, "while disabled F\nbehind that T\ntotal   14.392727\n")
    });
}

const SCRIPT: &str = "
import os, wayfarer
try:
    wayfarer.go_back()
except wayfarer.Refused as refused:
    print(refused.strerror)
order = []
wayfarer.hooks(lambda: order.append('before'), lambda: order.append('after'))
wayfarer.image_file('own.img')
with wayfarer.disabled():
    assert not wayfarer.checkpoint()
    assert not os.path.exists('own.img')
print(os.path.exists('own.img'), order[0])
print(wayfarer.leave())
";

/// Python has ended when libc calls its function, and the process goes on until there is a line.
const ENDS: &str = "
import ctypes, wayfarer
wayfarer.hooks(lambda: print('before'), lambda: print('after'))
libc = ctypes.CDLL(None)
libc.on_exit(ctypes.cast(libc.getchar, ctypes.c_void_p), None)
print('ends')
";

fn python(name: &str, script: &'static str) -> Guest {
    let library = compiled("libwayfarer.so", "gcc", &["-shared", "-fPIC"], &[]);
    let module = stage::dir().join("wayfarer.py");
    fs::copy(contrib("wayfarer.py"), &module).expect("is copied");
    let mut guest = Guest::new(name, "/usr/bin/python3", &["-c", script]);
    let folder = stage::dir().display().to_string();
    let library = library.display().to_string();
    guest.environment = vec![
        ("PYTHONPATH".to_owned(), folder),
        ("WAYFARER_LIBRARY".to_owned(), library),
        ("PYTHONUNBUFFERED".to_owned(), "1".to_owned()),
        ("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned()),
    ];
    guest
}

#[test]
fn a_python_that_ends_is_not_called_any_more() {
    with_job(&python("inside python that ends", ENDS), |job| {
        let mut command = starting(job, &["--keep", "2"]);
        command.stdin(Stdio::piped());
        let run = Run::start_with_stdin(THE_GUEST, command, User::Ordinary)?;
        job.runs.push(run);
        says(job, "ends")?;
        run::poll(STEP, || waits_for_a_line().then_some(())).ok_or("python goes on")?;
        let command = job.wayfarer(&["checkpoint", "job"]);
        let mut checkpoint = Run::start("the checkpoint", command, User::Ordinary)?;
        // It waits, or is refused; whoever calls python now ends it.
        let _ = run::poll(STEP / 15, || {
            let runs = [starter(job).ok()?.ended(), checkpoint.ended()];
            runs.into_iter().flatten().next()
        });
        drop(starter(job)?.stdin());
        expect_end(job, 0)?;
        checkpoint.wait(STEP)?;
        expect_said(job, "ends\n")
    });
}

/// A process of this test's script is in read(2) of its input.
fn waits_for_a_line() -> bool {
    let all = fs::read_dir("/proc").expect("lists").flatten();
    let mut ours = all.filter(|entry| {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        words.starts_with(b"/usr/bin/python3")
            && words.windows(12).any(|part| part == b"libc.getchar")
    });
    ours.any(|entry| {
        let call = fs::read_to_string(entry.path().join("syscall")).unwrap_or_default();
        call.starts_with("0 0x0 ")
    })
}

#[test]
fn python_calls_them() {
    let guest = python("inside python", SCRIPT);
    with_job(&guest, |job| {
        start(job, &["--keep", "2"])?;
        expect_end(job, 85)?;
        start(job, &["--resume"])?;
        expect_end(job, 0)?;
        expect_said(job, "there is no image of the job yet\nTrue before\nTrue\n")
    });
}

#[test]
fn a_relinked_program_understands_condors_arguments() {
    let program = stage::dir().join("relinked");
    let source = stage::repository().join("tests/guests/inside.c");
    let sources = [source.clone(), contrib("wayfarer.c"), stage::wayfarer()];
    let built = stage::build_if_older(&program, &sources, |beside| {
        let mut command = run::clean_command(stage::wayfarer());
        command.args(["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
        command.arg(beside).arg(&source);
        // Whatever the user's is, that of the tests does not touch it.
        command.env("XDG_CACHE_HOME", stage::dir().join("cache"));
        command
    });
    built.expect("compiles");
    let guest = Guest::new("relinked", program, &["asks"]);
    with_job(&guest, |job| {
        let wayfarer = job.wayfarer(&[]);
        let folder = Path::new(wayfarer.get_program()).parent();
        let folder = folder.ok_or("no folder")?.display().to_string();
        let relinked = |job: &Job, words: &[&str]| {
            let mut command = run::clean_command(&job.guest.program);
            command.args(words);
            job.equip(&mut command);
            command
                .env("PATH", format!("{folder}:/usr/bin:/bin"))
                .env("XDG_STATE_HOME", job.dir.join("state"))
                .current_dir(job.dir.join("data"));
            command
        };
        let command = relinked(job, &["-_condor_ckpt", "image", "asks"]);
        job.runs
            .push(Run::start(THE_GUEST, command, User::Ordinary)?);
        expect_end(job, 85)?;
        let command = relinked(job, &["-_condor_restart", "image"]);
        job.runs
            .push(Run::start(THE_GUEST, command, User::Ordinary)?);
        expect_end(job, 0)?;
        expect_said(job, "begun\nmade\nwent back\nPASS\n")?;
        // Nobody who runs it so knows of jobs.
        let left = fs::read_dir(job.dir.join("state/wayfarer/jobs"));
        let names = left.map_err(|error| error.to_string())?.flatten();
        let names: Vec<_> = names.map(|entry| entry.file_name()).collect();
        match names
            .iter()
            .all(|name| name.to_string_lossy().starts_with('.'))
        {
            true => Ok(()),
            false => Err(format!("found {names:?}, expected no job")),
        }
    });
}
