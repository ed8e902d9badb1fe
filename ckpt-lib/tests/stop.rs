//! Stopping: every thread, at once, and nobody is hurt.
#![allow(unsafe_code)] // one signal handler

mod job;
#[path = "../../tests/support/skip.rs"]
mod skip;

use ckpt_lib::tracee::{CallNotes, HostPid, Quiesced, SharedNotes, StopError, reenter};
use job::{As, Job};
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
const COUNTERS: u64 = 0x1000_0000;

fn stop(job: &Job) -> Quiesced {
    Quiesced::stop(&[job.pid()], 10 * SECOND).expect("stops")
}

fn counts(quiesced: &Quiesced) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    let memory = quiesced.processes()[0].memory();
    memory.read(COUNTERS, &mut bytes).expect("read");
    bytes
}

#[test]
fn no_thread_runs_while_stopped_and_all_run_afterwards() {
    for who in [As::Self_, As::User] {
        let job = Job::start(who, &["count", "8"]);
        let mut last = vec![];
        for _ in 0..10 {
            let quiesced = stop(&job);
            assert_eq!(quiesced.processes()[0].threads.len(), 8);
            let first = counts(&quiesced);
            std::thread::sleep(Duration::from_millis(10));
            assert_eq!(counts(&quiesced), first);
            assert_ne!(first, last);
            last = first;
            quiesced.resume().expect("resumes");
            std::thread::sleep(Duration::from_millis(10));
        }
        // Dropped without a word, it runs on too.
        drop(stop(&job));
        std::thread::sleep(Duration::from_millis(10));
        assert_ne!(counts(&stop(&job)), last);
    }
}

#[test]
fn threads_that_come_and_go_are_all_caught() {
    for spawners in ["1", "2"] {
        let job = Job::start(As::Self_, &["spawn", spawners]);
        // Where there is something else to run, threads that end take their time, and can hide others from who lists them.
        let mut busy = vec![];
        for stops in 0..500 {
            if stops % 100 == 50 {
                busy.push(Job::start(As::Self_, &["count", "1"]));
            }
            let quiesced = stop(&job);
            let threads = &quiesced.processes()[0].threads;
            let mut stopped: Vec<i32> = threads.iter().map(|thread| thread.tid.0).collect();
            stopped.sort_unstable();
            assert_eq!(stopped, listed(job.pid()));
            quiesced.resume().expect("resumes");
        }
    }
}

fn listed(pid: HostPid) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", pid.0)).expect("task");
    let names = tasks.map(|entry| entry.expect("entry").file_name());
    let mut listed: Vec<i32> = names
        .map(|name| name.to_str().and_then(|name| name.parse().ok()))
        .map(|number| number.expect("number"))
        .collect();
    listed.sort_unstable();
    listed
}

#[test]
fn a_process_that_executes_programs_is_caught() {
    // It executes itself 1000 times from a second thread; whoever stops it must find it whole. On a busy
    // machine it is seldom at rest in between: as many such jobs as it takes.
    let deadline = Instant::now() + 60 * SECOND;
    let mut stops = 0;
    while stops < 20 {
        assert!(Instant::now() < deadline, "only {stops} stops");
        stops += stops_while_executing();
    }
}

/// How often a job that executes itself over and over was stopped before it ended.
fn stops_while_executing() -> usize {
    let mut child = Command::new(job::workload())
        .args(["exec", "1000"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("spawn");
    let pid = HostPid(i32::try_from(child.id()).expect("pid"));
    let mut stops = 0;
    // Its end may be told to the tracer instead of the parent, which are one here.
    while matches!(child.try_wait(), Ok(None)) {
        match Quiesced::stop(&[pid], 10 * SECOND) {
            Ok(quiesced) => {
                stops += 1;
                quiesced.resume().expect("resumes");
            }
            Err(StopError::Gone { .. }) => {}
            Err(error) => panic!("{error}: {error:?}"),
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    let mut output = String::new();
    let mut stdout = child.stdout.take().expect("stdout");
    stdout.read_to_string(&mut output).expect("read");
    assert!(output.ends_with("PASS\n"), "{output}");
    stops
}

/// Stops the job over and over until it has ended, which must be well.
fn stop_until_it_ends(job: Job, pause: Duration) {
    let deadline = Instant::now() + 30 * SECOND;
    let mut stops = 0;
    loop {
        assert!(Instant::now() < deadline, "runs on after {stops} stops");
        match Quiesced::stop(&[job.pid()], 10 * SECOND) {
            Ok(quiesced) => quiesced.resume().expect("resumes"),
            Err(StopError::Gone { .. }) => break,
            Err(error) => panic!("{error}: {error:?}"),
        }
        stops += 1;
        std::thread::sleep(pause);
    }
    println!("{stops} stops");
    assert!(stops >= 20, "{stops} stops");
    job.passes(10 * SECOND);
}

#[test]
fn calls_in_progress_do_not_notice() {
    for who in [As::Self_, As::User] {
        // At most a second late: the machine may be busy.
        let job = Job::start(who, &["calls", "4", "wwnnpPfeEsrochhtMu", "1"]);
        stop_until_it_ends(job, Duration::from_micros(3700));
    }
}

#[test]
fn a_call_that_has_only_begun_is_not_shortened_by_the_sleep_in_the_one_before() {
    // A thread whose call ends in the microseconds between the look at it and its stop, and that is in the next one by then.
    for who in [As::Self_, As::User] {
        let job = Job::start(who, &["calls", "6", "cccccccccccccccccccc", "3"]);
        stop_until_it_ends(job, Duration::from_micros(3700));
    }
}

#[test]
fn calls_end_in_time_though_they_never_sleep_a_millisecond() {
    for who in [As::Self_, As::User] {
        let job = Job::start(who, &["calls", "2", "e", "1"]);
        stop_until_it_ends(job, Duration::from_micros(20));
    }
}

#[test]
fn a_sleep_is_known_though_the_thread_was_moved_while_it_lasted() {
    // The scheduler forgets then when the thread ran last.
    let job = Job::start(As::Self_, &["doze", "10"]);
    let (mut dozing, mut stops) = (BTreeMap::new(), 0);
    let until = Instant::now() + 9 * SECOND;
    while Instant::now() < until {
        let moved: Vec<_> = listed(job.pid())
            .into_iter()
            .filter_map(moved_sleep)
            .collect();
        dozing.retain(|sleep, _| moved.contains(sleep));
        for sleep in moved {
            dozing.entry(sleep).or_insert_with(Instant::now);
        }
        // Without an account it would be one and a half seconds late.
        if dozing
            .values()
            .any(|seen| (3 * SECOND / 2..9 * SECOND / 5).contains(&seen.elapsed()))
        {
            stop(&job).resume().expect("resumes");
            dozing.clear();
            stops += 1;
        }
        // Nobody tells when the scheduler moves a thread: it is looked at again and again.
        std::thread::sleep(Duration::from_millis(20));
    }
    job.passes(10 * SECOND);
    println!("{stops} stops");
    if stops == 0 {
        skip::note(
            "sleeps of threads that were moved",
            "the scheduler moved none that slept",
        );
    }
}

/// A thread that the scheduler has moved to another processor while it sleeps, and which of its sleeps that is.
fn moved_sleep(tid: i32) -> Option<(i32, String)> {
    let sched = std::fs::read_to_string(format!("/proc/{tid}/sched")).ok()?;
    let field = |name: &str| {
        let line = sched.lines().find(|line| line.starts_with(name));
        line.and_then(|line| Some(line.rsplit_once(':')?.1.trim().to_owned()))
    };
    let ran_last = field("se.exec_start")?;
    (ran_last.parse() == Ok(0.0)).then_some((tid, field("nr_switches")?))
}

#[test]
fn threads_that_end_on_their_way_out_of_the_vdso_end_no_calls() {
    // The stop begins anew then: the others were let go in between.
    for who in [As::Self_, As::User] {
        let job = Job::start(who, &["calls", "4", "eEstocvvvv", "3"]);
        stop_until_it_ends(job, Duration::from_micros(700));
    }
}

#[test]
fn a_stop_that_is_given_up_ends_no_calls() {
    for who in [As::Self_, As::User] {
        let job = Job::start(who, &["calls", "3", "eEstocpPfn", "3"]);
        let mut given_up = 0;
        loop {
            match Quiesced::stop(&[job.pid()], Duration::ZERO) {
                Err(StopError::Deadline { .. }) => given_up += 1,
                Err(StopError::Gone { .. }) => break,
                Ok(quiesced) => quiesced.resume().expect("resumes"),
                Err(error) => panic!("{error}: {error:?}"),
            }
            std::thread::sleep(Duration::from_micros(3700));
        }
        assert!(given_up >= 20, "{given_up}");
        job.passes(10 * SECOND);
    }
}

#[test]
fn calls_go_on_when_who_has_stopped_them_is_killed() {
    for who in [As::Self_, As::User] {
        let job = Job::start(who, &["calls", "3", "eEstocpPfn", "3"]);
        let deadline = Instant::now() + 30 * SECOND;
        let mut killed = 0;
        let mut ended = false;
        while !ended {
            assert!(Instant::now() < deadline, "runs on after {killed}");
            // SAFETY: the child stops the job and dies; no other thread of ours is in the middle of anything.
            match unsafe { nix::unistd::fork() }.expect("forks") {
                nix::unistd::ForkResult::Child => {
                    let signal = match Quiesced::stop(&[job.pid()], 10 * SECOND) {
                        Ok(_stopped) => nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL),
                        Err(_) => Ok(()),
                    };
                    // SAFETY: takes a number.
                    unsafe { nix::libc::_exit(i32::from(signal.is_err())) };
                }
                nix::unistd::ForkResult::Parent { child } => {
                    match nix::sys::wait::waitpid(child, None).expect("waits") {
                        nix::sys::wait::WaitStatus::Signaled(..) => killed += 1,
                        nix::sys::wait::WaitStatus::Exited(_, 0) => ended = true,
                        other => panic!("{other:?}"),
                    }
                }
            }
            std::thread::sleep(Duration::from_micros(3700));
        }
        println!("{killed} killed");
        assert!(killed >= 20, "{killed}");
        job.passes(10 * SECOND);
    }
}

#[test]
fn a_handler_still_ends_a_wait() {
    let job = Job::start(As::Self_, &["alarm", "3"]);
    stop_until_it_ends(job, Duration::from_micros(700));
}

#[test]
fn a_stopped_job_stays_stopped() {
    let job = Job::start(As::Self_, &["count", "3"]);
    let kill = |signal| {
        let pid = nix::unistd::Pid::from_raw(job.pid().0);
        nix::sys::signal::kill(pid, signal).expect("kill");
    };
    kill(nix::sys::signal::SIGSTOP);
    job.await_status("T (stopped)");
    let quiesced = stop(&job);
    assert_eq!(quiesced.processes()[0].group_stopped, Some(libc::SIGSTOP));
    let before = counts(&quiesced);
    quiesced.resume().expect("resumes");
    std::thread::sleep(Duration::from_millis(20));
    assert!(job.state().contains("T (stopped)"), "{}", job.state());
    let quiesced = stop(&job);
    assert_eq!(counts(&quiesced), before);
    drop(quiesced);
    kill(nix::sys::signal::SIGCONT);
    std::thread::sleep(Duration::from_millis(50));
    let quiesced = stop(&job);
    assert_eq!(quiesced.processes()[0].group_stopped, None);
    assert_ne!(counts(&quiesced), before);
}

#[test]
fn the_time_already_slept_is_known() {
    let (job, lines) = Job::start_with_lines(As::Self_, &["sleep", "2000"]);
    let began_ns: u64 = lines[0].parse().expect("a moment");
    std::thread::sleep(Duration::from_millis(500));
    let quiesced = stop(&job);
    let process = &quiesced.processes()[0];
    let thread = &process.threads[0];
    let asleep = thread.before.asleep_ns.expect("known") / 1_000_000;
    // Never more than it was. Less, where it was late to fall asleep or a hypervisor took its CPU away meanwhile.
    let most = (thread.stopped_at_ns - began_ns) / 1_000_000;
    assert!((250..=most).contains(&asleep), "{asleep} of {most} ms");
    let (registers, call) =
        reenter::translate(thread, process.memory(), thread.stopped_at_ns).expect("in a call");
    let call = call.expect("timed");
    assert!([libc::SYS_nanosleep, libc::SYS_clock_nanosleep].contains(&(call.nr as i64)));
    let left = call.remaining_ns / 1_000_000 + asleep;
    assert!((1999..=2001).contains(&left), "{left} ms");
    assert_eq!(registers.orig_rax, call.nr);
    let expires_ns = thread.stopped_at_ns + call.remaining_ns;
    let mut quiesced = quiesced;
    let notes = CallNotes::open(None);
    quiesced.remember_in(notes.clone());
    assert_eq!(notes.borrow().notes().len(), 1);
    quiesced.resume().expect("resumes");
    // From the second time on the kernel says only restart_syscall.
    for remembered in [true, true, false, true] {
        std::thread::sleep(Duration::from_millis(200));
        // What nobody has written down is not known: at most, it is later.
        let notes = match remembered {
            true => notes.clone(),
            false => CallNotes::open(None),
        };
        let (due_ns, again) = due(&job, &notes);
        assert_eq!(again, call.nr);
        let exact = due_ns.abs_diff(expires_ns) <= 1;
        assert!(exact || !remembered, "{due_ns} instead of {expires_ns}");
        assert!(due_ns + 1 >= expires_ns, "less than is due");
        if !remembered {
            break;
        }
    }
    job.passes(10 * SECOND);
}

/// Stops and lets go; when the main thread's call times out, by CLOCK_MONOTONIC, and the call.
fn due(job: &Job, notes: &SharedNotes) -> (u64, u64) {
    let mut quiesced = stop(job);
    quiesced.remember_in(notes.clone());
    let process = &quiesced.processes()[0];
    let thread = &process.threads[0];
    let (registers, call) =
        reenter::translate(thread, process.memory(), thread.stopped_at_ns).expect("in a call");
    let call = call.expect("timed");
    assert_eq!(registers.orig_rax, call.nr);
    let due_ns = thread.stopped_at_ns + call.remaining_ns;
    quiesced.resume().expect("resumes");
    (due_ns, call.nr)
}

fn signal(job: &Job, signal: nix::sys::signal::Signal) {
    let pid = nix::unistd::Pid::from_raw(job.pid().0);
    nix::sys::signal::kill(pid, signal).expect("kill");
}

/// Stopped and continued by job control, so that the kernel says restart_syscall.
fn stop_and_continue(job: &Job) {
    signal(job, nix::sys::signal::SIGSTOP);
    job.await_status("T (stopped)");
    signal(job, nix::sys::signal::SIGCONT);
    job.await_status("S (sleeping)");
}

#[test]
fn a_note_is_never_about_another_call() {
    const NAP_NS: u64 = 2_000_000_000;
    let job = Job::start(As::Self_, &["naps", "2000"]);
    job.await_call(libc::SYS_nanosleep);
    let notes = CallNotes::open(None);
    let (first_due_ns, _) = due(&job, &notes);
    let note = notes.borrow().notes()[0];
    assert_eq!(note.expiry_ns, first_due_ns);
    // A handler ends the call; the next is the same in all that can be seen.
    let second_began = monotonic_ns();
    signal(&job, nix::sys::signal::SIGALRM);
    job.await_call(libc::SYS_nanosleep);
    stop_and_continue(&job);
    let (second_due_ns, _) = due(&job, &notes);
    assert!(
        second_due_ns >= second_began + NAP_NS,
        "a nap cut short by {} ms",
        (second_began + NAP_NS - second_due_ns) / 1_000_000
    );
    // Its time comes: the third nap has at least 1.5 s before it.
    while monotonic_ns() < second_due_ns + 100_000_000 {
        std::thread::sleep(Duration::from_millis(10));
    }
    stop_and_continue(&job);
    let (third_due_ns, _) = due(&job, &notes);
    assert!(third_due_ns >= second_due_ns + NAP_NS, "the note was stale");
}

#[test]
fn notes_survive_failures_and_lie_on_the_disk_at_once() {
    let name = format!("notes-{}", std::process::id());
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let job = Job::start(As::Self_, &["naps", "5000"]);
    job.await_call(libc::SYS_nanosleep);
    let mut quiesced = stop(&job);
    quiesced.remember_in(CallNotes::open(Some(&path)));
    let on_disk = CallNotes::open(Some(&path)).borrow().notes().to_vec();
    assert_eq!(on_disk.len(), 1);
    let expiry_ns = on_disk[0].expiry_ns;
    // As after a failure: nobody says anything.
    drop(quiesced);
    for _ in 0..3 {
        // Time that must not be lost, nor counted twice.
        std::thread::sleep(Duration::from_millis(300));
        let (due_ns, _) = due(&job, &CallNotes::open(Some(&path)));
        assert_eq!(due_ns, expiry_ns);
    }
    std::fs::remove_file(&path).expect("remove");
}

fn monotonic_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("clock");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

#[test]
fn a_thousand_threads_stop_quickly() {
    let job = Job::start(As::Self_, &["many", "1000"]);
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let quiesced = stop(&job);
        let threads = &quiesced.processes()[0].threads;
        assert_eq!(threads.len(), 1000);
        // From the first thread's stop to now: the look before the stop does not count.
        let first = threads.iter().map(|thread| thread.stopped_at_ns).min();
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("clock");
        let now = Duration::new(now.tv_sec() as u64, now.tv_nsec() as u32);
        let reading = now - Duration::from_nanos(first.expect("threads"));
        let began = Instant::now();
        quiesced.resume().expect("resumes");
        best = best.min(began.elapsed() + reading);
    }
    println!("1000 threads: read and resumed in {best:?}");
    assert!(best < Duration::from_millis(500), "{best:?}");
}

#[test]
fn what_may_not_be_stopped_is_named() {
    let job = Job::start(As::Self_, &["count", "1"]);
    // Traced by somebody else.
    let mut tracer = Command::new("strace")
        .args(["-qq", "-o", "/dev/null", "-p", &job.pid().0.to_string()])
        .process_group(0)
        .spawn();
    match &mut tracer {
        Ok(tracer) => {
            job.await_status(&format!("TracerPid:\t{}", tracer.id()));
            let error = Quiesced::stop(&[job.pid()], SECOND).expect_err("traced");
            assert!(
                matches!(error, StopError::Traced { tracer: found, .. } if found == tracer.id() as i32),
                "{error:?}"
            );
            let _ = tracer.kill();
            let _ = tracer.wait();
        }
        Err(error) => skip::note("a stop of a traced process", &format!("strace: {error}")),
    }
    let gone = Quiesced::stop(&[HostPid(0x3fff_fff0)], SECOND).expect_err("nobody");
    assert!(matches!(gone, StopError::Gone { .. }), "{gone:?}");
}

extern "C" fn ignore(_: i32) {}

#[test]
fn all_pending_signals_are_seen_by_one_who_gets_signals_too() {
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
    let handler = SigHandler::Handler(ignore);
    let action = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does nothing.
    unsafe { sigaction(Signal::SIGUSR2, &action) }.expect("sigaction");
    let job = Job::start(As::Self_, &["queued", "200"]);
    let quiesced = stop(&job);
    let thread = &quiesced.processes()[0].threads[0];
    // SAFETY: takes nothing.
    let us = unsafe { libc::pthread_self() };
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                // SAFETY: that thread waits for the end of this one.
                unsafe { libc::pthread_kill(us, libc::SIGUSR2) };
            }
        });
        let counts: Vec<usize> = (0..100)
            .map(|_| thread.process_pending().expect("reads").len())
            .collect();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(counts, vec![200; 100]);
    });
}

#[test]
fn kill_leaves_nothing() {
    let mut job = Job::start(As::Self_, &["count", "4"]);
    stop(&job).kill().expect("kills");
    let deadline = Instant::now() + 5 * SECOND;
    while job.ended().is_none() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(1));
    }
}
