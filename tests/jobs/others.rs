//! Children, orphans and threads that cannot be carried yet are refused, and never left out.

use super::refused;
use super::support::promise::{passed, with_job};
use super::support::scenario::{Guest, Job, Restart};
use super::support::stage::{Linking, c_guest};
use std::path::Path;

/// A job of `tests/guests/others.c`.
fn with_others(name: &str, body: impl FnOnce(&mut Job) -> Result<(), String>) {
    let program = c_guest("others", Linking::Dynamic).expect("the guest compiles");
    with_job(
        &Guest::new(&format!("others_{name}"), program, &[name]),
        |job| {
            passed(job.start()?)?;
            body(job)
        },
    );
}

#[test]
fn an_orphan_of_the_job_is_not_left_out() {
    with_others("orphan", |job| refused(job, &[], "has started process"));
}

#[test]
fn a_child_born_while_sockets_are_waited_for_is_not_left_out() {
    with_others("late", |job| {
        refused(job, &["--wait-for-sockets", "20s"], "has started process")
    });
}

#[test]
fn a_thread_that_waits_for_a_semaphore_of_the_machine_is_refused() {
    with_others("semaphore", |job| refused(job, &[], "System V semaphore"));
}

#[test]
fn an_orphan_whose_first_thread_has_ended_is_not_left_out() {
    with_others("orphan_first_ended", |job| {
        refused(job, &[], "has started process")
    });
}

#[test]
fn children_that_come_and_go_are_waited_for_or_refused_never_left_out() {
    with_others("coming", |job| {
        let mut moves = 0;
        for _ in 0..200 {
            let path = job
                .dir
                .join(format!("{moves}.img"))
                .to_string_lossy()
                .into_owned();
            let (code, said) = job.tell(&["checkpoint", "job", "-o", &path, "--then", "kill"])?;
            match code {
                Some(0) => {
                    job.wait_killed()?;
                    job.restart(Path::new(&path), Restart::Command)?;
                    job.wait_up()?;
                    moves += 1;
                    if moves == 3 {
                        break;
                    }
                }
                _ if said.contains("has started process") => {}
                _ => return Err(format!("found exit {code:?} and {said:?}")),
            }
        }
        if moves == 0 {
            return Err("none of 200 checkpoints came between two children".into());
        }
        job.let_go();
        passed(job.wait_pass()?)
    });
}
