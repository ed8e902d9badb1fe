//! What cannot be carried is refused before anything is touched, by name, and
//! the job runs on: PASS after the refusal.

mod support;

use support::random::seed;
use support::run::{self, Run};
use support::scenario::{Guest, Job, Mode, Variant, Verdict};
use support::skip;
use support::stage::{self, Linking, c_guest};
use support::user::User;

fn refuse(name: &str, phrase: &str) -> Result<Verdict, String> {
    let program = c_guest("refused", Linking::Dynamic)?;
    let guest = Guest::new(&format!("refused_{name}"), program, &[name]);
    let user = if ["device", "bpf"].contains(&name) {
        User::Root
    } else {
        User::Ordinary
    };
    if let Some(reason) = user.missing() {
        return Ok(Verdict::Skipped(reason));
    }
    let mut job = Job::new(
        &guest,
        Variant {
            mode: Mode::GoOn,
            user,
            threads: 1,
        },
        seed(),
    );
    let result = perform(&mut job, phrase);
    let log: String = job.runs.iter().map(Run::describe).collect();
    drop(std::mem::take(&mut job.runs));
    run::end_marked(&job.mark);
    match result {
        Ok(verdict) => {
            let _ = std::fs::remove_dir_all(&job.dir);
            Ok(verdict)
        }
        Err(what) => {
            let place = stage::keep_artefacts(&job.dir, &log);
            Err(format!("{what}\n{log}\nfiles: {}", place.display()))
        }
    }
}

fn perform(job: &mut Job, phrase: &str) -> Result<Verdict, String> {
    let ready = job.start()?;
    if ready != Verdict::Passed {
        return Ok(ready);
    }
    let image = job.dir.join("refused.img");
    let path = image.to_string_lossy().into_owned();
    let (code, said) = job.tell(&["checkpoint", "job", "-o", &path, "--then", "kill"])?;
    if code == Some(0) {
        return Err("found a checkpoint, expected a refusal".into());
    }
    if !said.contains(phrase) || said.contains("panicked") {
        return Err(format!("found {said:?}, expected {phrase:?}"));
    }
    if image.exists() {
        return Err("found an image under the final name after a refusal".into());
    }
    job.let_go();
    job.wait_pass()
}

macro_rules! refusals {
    ($($name:ident: $argument:literal, $phrase:literal;)*) => {
        $(#[test]
        fn $name() {
            match refuse($argument, $phrase) {
                Ok(Verdict::Passed) => {}
                Ok(Verdict::Skipped(reason)) => skip::note(stringify!($name), &reason),
                Err(what) => panic!("{what}"),
            }
        })*
    };
}

// Each phrase is the reason itself: no word of it stands in the other refusals.
refusals! {
    a_connection_by_ip_is_refused: "tcp", "TCP socket connected to 127.0.0.1:";
    io_uring_is_refused: "io_uring", "an io_uring cannot be carried";
    asynchronous_io_is_refused: "aio", "a ring of asynchronous I/O (io_setup) cannot be carried";
    perf_events_are_refused: "perf", "a perf event cannot be carried";
    bpf_objects_are_refused: "bpf", "a BPF object cannot be carried";
    devices_are_refused: "device", ": device /dev/";
    a_foreign_seccomp_filter_is_refused: "seccomp", "seccomp filters of its own";
    unread_inotify_events_are_refused: "unread_inotify", "inotify events wait unread in it";
    a_traced_process_is_refused: "traced", "is traced already, by process";
    light_guards_are_refused: "light_guard", "it has the unknown flag \"gu\"";
    a_process_that_hides_its_memory_is_refused: "undumpable", "it does not let itself be looked at (PR_SET_DUMPABLE";
    a_process_whose_first_thread_has_ended_is_refused: "headless", "its first thread has ended while others run";
    a_child_process_is_refused_yet: "child", "only jobs of one process can be carried yet";
    a_userfaultfd_of_the_job_is_refused: "userfaultfd", "a userfaultfd cannot be carried";
}
