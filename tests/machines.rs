//! Machines that lack something: each lack is made with a seccomp filter or a
//! namespace (`tests/hosts/lesser_machine.c`), and a job is run, checkpointed,
//! checkpointed again and killed, and restarted there. It works, or the error
//! says what is missing and why.

#[path = "machines/doctor.rs"]
mod doctor;
#[path = "machines/namespaces.rs"]
mod namespaces;
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use support::random::seed;
use support::run::{self, clean_command};
use support::scenario::{Guest, Job, Mode, Variant};
use support::skip;
use support::stage::{self, Linking, c_guest};
use support::user::{User, is_root};

/// A scenario may take this long, on a loaded machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// A machine and what is done on it.
#[derive(Default)]
struct Machine<'a> {
    label: &'a str,
    /// Words for `lesser-machine`; `%` is the job's directory.
    lacks: &'a [&'a str],
    /// More arguments for `run`, `checkpoint` and `restart`.
    run: &'a str,
    checkpoint: &'a str,
    restart: &'a str,
    /// The guest's argument, if not `all`.
    guest: Option<&'a str>,
    /// How the guest is linked, if not dynamically.
    linking: Option<Linking>,
    /// The guest has one thread.
    alone: bool,
    /// Thread ids are others after the restart.
    new_ids: bool,
    /// More of the scenario's environment.
    environment: &'a [(&'a str, &'a str)],
    /// Carried out in the job's directory beforehand.
    prepare: Option<fn(&Path)>,
    /// Started by root; `lesser-machine` makes itself the ordinary user.
    as_root: bool,
}

/// What happened there.
struct Outcome {
    passed: bool,
    said: String,
}

impl Outcome {
    fn must_pass(self) -> String {
        assert!(self.passed, "expected PASS, found:\n{}", self.said);
        self.said
    }

    fn must_say(&self, words: &[&str]) {
        for word in words {
            assert!(
                self.said.contains(word),
                "expected {word:?}, found:\n{}",
                self.said
            );
        }
    }

    /// Passes, or is a refusal of its restart with this word, which says how it would work.
    fn must_work_or_say(self, works: bool, word: &str) {
        if works {
            self.must_pass();
        } else {
            self.must_fail_and_say(&["went on", word, "--accept-new-ids"]);
        }
    }

    fn must_fail_and_say(&self, words: &[&str]) {
        assert!(!self.passed, "expected a refusal, found:\n{}", self.said);
        self.must_say(words);
    }
}

fn tool() -> PathBuf {
    let source = stage::repository().join("tests/hosts/lesser_machine.c");
    let tool = stage::dir().join("lesser-machine");
    let header = source.with_file_name("host.h");
    stage::build_if_older(&tool, &[source.clone(), header], |beside| {
        let mut command = Command::new("gcc");
        command.args(["-O1", "-g", "-Wall", "-Wextra", "-static"]);
        command.arg(&source).arg("-o").arg(beside);
        command
    })
    .expect("lesser-machine compiles");
    tool
}

/// The script, where the ordinary user can read it.
fn script() -> PathBuf {
    let script = stage::dir().join("scenario.sh");
    let source = stage::repository().join("tests/hosts/scenario.sh");
    stage::build_if_older(&script, std::slice::from_ref(&source), |beside| {
        let mut command = Command::new("cp");
        command.arg(&source).arg(beside);
        command
    })
    .expect("copy the script to the stage");
    script
}

impl Machine<'_> {
    /// Runs the scenario; nothing if it cannot be run here.
    fn try_out(&self) -> Option<Outcome> {
        let missing = match self.as_root {
            true if !is_root() => Some("only root can make such a machine".to_owned()),
            _ => User::Ordinary.missing(),
        };
        if let Some(reason) = missing {
            skip::note(self.label, &reason);
            return None;
        }
        let linking = self.linking.unwrap_or(Linking::Dynamic);
        let program = match c_guest("machine", linking) {
            Ok(program) => program,
            Err(what) if what.contains("No such file") => {
                skip::note(self.label, &what);
                return None;
            }
            Err(what) => panic!("{what}"),
        };
        let guest = Guest::new(self.label, program, &[self.guest.unwrap_or("all")]);
        let variant = Variant {
            mode: Mode::KillRestart,
            user: User::Ordinary,
            threads: if self.alone { 0 } else { 2 },
        };
        let job = Job::new(&guest, variant, seed());
        User::Ordinary.own(&job.dir);
        let mut command = clean_command(tool());
        let dir = job.dir.to_string_lossy().into_owned();
        if self.lacks.iter().any(|word| word.starts_with("noexec=/")) {
            // What is tried out must itself stay executable, wherever the sources lie: a mount of its own.
            let built = stage::wayfarer();
            let built = built
                .ancestors()
                .nth(2)
                .expect("target directory")
                .display();
            command.arg(format!("bind={built}:{built}"));
        }
        command.args(self.lacks.iter().map(|word| word.replace('%', &dir)));
        if !self.lacks.is_empty() {
            command.arg("--");
        } else {
            command = clean_command("/usr/bin/env");
        }
        command.arg("/bin/sh").arg(script());
        command.arg(stage::wayfarer()).arg(&job.dir).arg("--");
        command.arg(&guest.program).args(&guest.arguments);
        let mut command = job.in_data(command);
        job.equip(&mut command);
        command
            .env("RUN", self.run)
            .env("CHECKPOINT", self.checkpoint);
        command
            .env("RESTART", self.restart)
            .env("WF_LATE_MS", "1500");
        command.envs(self.environment.iter().copied());
        if let Some(prepare) = self.prepare {
            prepare(&job.dir);
        }
        if self.as_root {
            command.env("HOME", "/home/wftest");
        }
        if self.new_ids {
            command.env("WF_NEW_IDS", "1");
        }
        let user = if self.as_root {
            User::Root
        } else {
            User::Ordinary
        };
        let ended = run::finish(self.label, command, user, DEADLINE);
        run::end_marked(&job.mark);
        let outcome = match &ended {
            Ok((status, run)) => {
                let said = run.out.text() + &run.err.text();
                let passed = status.success() && said.lines().any(|line| line == "PASS");
                Outcome { passed, said }
            }
            Err(said) => Outcome {
                passed: false,
                said: said.clone(),
            },
        };
        let _ = std::fs::remove_dir_all(&job.dir);
        Some(outcome)
    }
}

fn ids() -> String {
    #[allow(
        clippy::disallowed_methods,
        reason = "test programs are linked dynamically"
    )]
    let user = nix::unistd::User::from_name("wftest").ok().flatten();
    user.map(|user| format!("as={}:{}", user.uid, user.gid))
        .unwrap_or_default()
}

/// Kernel 5.15: no PAGEMAP_SCAN, timer ids by loop, no memory files that are asked to be executable.
#[test]
fn without_what_came_after_linux_5_15() {
    let machine = Machine {
        label: "old_kernel",
        lacks: &["old-kernel"],
        ..Machine::default()
    };
    if let Some(outcome) = machine.try_out() {
        outcome.must_pass();
    }
}

/// Before Linux 6.9 nobody has the descriptors of a process whose first thread has ended while others go on.
#[test]
fn without_pidfds_of_threads() {
    for (lack, new_ids, word) in [
        ("old-kernel", false, Some("before Linux 6.9")),
        ("no-namespaces", true, None),
    ] {
        let machine = Machine {
            label: "first_ended",
            lacks: &[lack],
            guest: Some("first_ended"),
            new_ids,
            ..Machine::default()
        };
        match (machine.try_out(), word) {
            (Some(outcome), Some(word)) => {
                outcome.must_fail_and_say(&["its first thread has ended", word]);
            }
            (Some(outcome), None) => {
                outcome.must_pass();
            }
            (None, _) => {}
        }
    }
}

/// Memory is written where it is, instead of coming together with its pages; or comes so, but not in huge pages.
#[test]
fn without_userfaultfd() {
    let lacks = [
        ("no_userfaultfd", "no-userfaultfd"),
        ("no_pages_given", "no-pages-given"),
        ("no_pages_moved", "old-kernel"),
    ];
    for (label, lack) in &lacks {
        let machine = Machine {
            label,
            lacks: &[lack],
            guest: Some("big"),
            ..Machine::default()
        };
        if let Some(outcome) = machine.try_out() {
            outcome.must_pass();
        }
    }
}

/// Docker's profile forbids to look at another process's descriptors.
#[test]
fn in_a_container_of_docker() {
    let machine = Machine {
        label: "docker",
        lacks: &["docker"],
        ..Machine::default()
    };
    if let Some(outcome) = machine.try_out() {
        outcome.must_fail_and_say(&["it runs on", "pidfd_getfd", "--cap-add SYS_PTRACE"]);
    }
}

#[test]
fn in_a_container_of_docker_that_may_trace() {
    let machine = Machine {
        label: "docker_ptrace",
        lacks: &["docker-ptrace"],
        new_ids: true,
        ..Machine::default()
    };
    if let Some(outcome) = machine.try_out() {
        outcome.must_pass();
    }
}

/// What Yama says to those who are not ancestors, where `PR_SET_PTRACER` does not help either.
#[test]
fn where_nobody_may_attach() {
    let machine = Machine {
        label: "no_attach",
        lacks: &["no-attach"],
        ..Machine::default()
    };
    if let Some(outcome) = machine.try_out() {
        outcome.must_fail_and_say(&[
            "it runs on",
            "cannot be traced",
            "PTRACE_SEIZE",
            "wayfarer doctor",
        ]);
    }
}

/// What wayfarer is confined by itself, its jobs may be, too.
#[test]
fn under_landlock() {
    let label = "landlock";
    let machine = Machine {
        label,
        lacks: &["landlock"],
        ..Machine::default()
    };
    match machine.try_out() {
        Some(outcome) if outcome.said.contains("landlock_create_ruleset: ") => {
            skip::note(label, "no Landlock, or none that knows the network");
        }
        Some(outcome) => {
            outcome.must_pass();
        }
        None => {}
    }
}

/// Yama lets only ancestors trace, and those whom a process names: `run` and `restart` name everybody of the
/// same user. There is no Yama here; a filter that kills whoever does it shows that they do.
#[test]
fn yama_is_told_that_a_job_may_be_traced() {
    let run = Machine {
        label: "tracer_run",
        lacks: &["tracer-kills"],
        ..Machine::default()
    };
    let Some(outcome) = run.try_out() else {
        return;
    };
    outcome.must_fail_and_say(&["READY does not come"]);
    let under_filter = format!("{} tracer-kills --", tool().display());
    for (on, works) in [(under_filter.as_str(), false), ("", true)] {
        let restart = Machine {
            label: "tracer_restart",
            environment: &[("RESTART_ON", on)],
            ..Machine::default()
        };
        let Some(outcome) = restart.try_out() else {
            return;
        };
        outcome.must_say(&["went on"]);
        assert_eq!(outcome.passed, works, "{}", outcome.said);
    }
}

/// Jobs, images and home lie where nothing may be executed: `./IMAGE` cannot, `restart` can.
#[test]
fn where_the_images_are_noexec() {
    let machine = Machine {
        label: "noexec",
        lacks: &["noexec=/home", "noexec=/tmp", "noexec=/var/tmp", "noexec=%"],
        environment: &[("NOEXEC", "1")],
        ..Machine::default()
    };
    if let Some(outcome) = machine.try_out() {
        outcome.must_say(&["Permission denied", "not executable"]);
        outcome.must_pass();
    }
}

/// `vm.memfd_noexec` = 2: the loader needs a nameless file somewhere.
#[test]
fn where_memory_files_cannot_be_executed() {
    let user = ids();
    let machine = Machine {
        label: "memfd_noexec",
        lacks: &["memfd-noexec", &user],
        as_root: true,
        ..Machine::default()
    };
    if let Some(outcome) = machine.try_out() {
        outcome.must_pass();
    }
}

#[test]
fn where_nothing_can_be_executed_every_attempt_is_named() {
    let user = ids();
    let places = ["/home", "/tmp", "/var/tmp", "/dev/shm"];
    let noexec = places.map(|place| format!("noexec={place}"));
    let mut lacks: Vec<&str> = noexec.iter().map(String::as_str).collect();
    lacks.extend(["memfd-noexec", &user]);
    let machine = Machine {
        label: "nothing_executable",
        lacks: &lacks,
        as_root: true,
        ..Machine::default()
    };
    if let Some(outcome) = machine.try_out() {
        outcome.must_fail_and_say(&["the loader cannot be executed", "memory file", "TMPDIR=DIR"]);
        outcome.must_say(&places);
    }
}

/// Control groups, of both versions, that say: 100 MiB at most, and almost all of it used.
fn full_control_group(dir: &Path) {
    let group = dir.join("cgroup");
    let write = |file: PathBuf, bytes: u64| std::fs::write(file, bytes.to_string()).expect("write");
    std::fs::create_dir_all(group.join("memory")).expect("directories");
    write(group.join("memory.max"), 100 << 20);
    write(group.join("memory.current"), 99 << 20);
    write(group.join("memory/memory.limit_in_bytes"), 100 << 20);
    write(group.join("memory/memory.usage_in_bytes"), 99 << 20);
}

/// A copy-on-write picture could need as much memory again: near the limit the job is copied while it is
/// stopped. A job that were asked to make a picture here would be killed by the filter.
#[test]
fn near_the_memory_limit_there_is_no_picture() {
    let near = Machine {
        label: "memory_limit",
        lacks: &["bind=%/cgroup:/sys/fs/cgroup", "picture-kills"],
        prepare: Some(full_control_group),
        guest: Some("big"),
        ..Machine::default()
    };
    let Some(outcome) = near.try_out() else {
        return;
    };
    outcome.must_pass();
    let far = Machine {
        label: "no_memory_limit",
        lacks: &["picture-kills"],
        guest: Some("big"),
        ..Machine::default()
    };
    if let Some(outcome) = far.try_out() {
        assert!(
            !outcome.passed,
            "the filter sees no picture:\n{}",
            outcome.said
        );
    }
}
