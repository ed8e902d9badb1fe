//! Run mode: a program is started, its end is ours.

use crate::images::{execute, execute_as_user, finish, run_image};
use std::process::Command;

#[test]
fn a_program_ends_with_its_own_exit_code() {
    for code in [0, 1, 42, 255] {
        let script = format!("exit {code}");
        let image = run_image(&["/bin/sh", "-c", &script]);
        for pids in ["host", "namespace", "auto"] {
            let ended = execute(&image, &["--pids", pids]);
            assert_eq!(ended.code(), Some(code), "{pids}: {}", ended.stderr);
            assert_eq!(ended.stderr, "");
        }
    }
}

/// Ids of first processes (docs/VISIBLE.md).
const BY_CHANCE: std::ops::RangeInclusive<u32> = 4_001..=28_000;

#[test]
fn an_ordinary_user_can_do_it_too() {
    let image = run_image(&["/bin/sh", "-c", "echo $$; exit 7"]);
    let Some(ended) = execute_as_user(&image, &["--pids", "namespace"]) else {
        return crate::skip::note(
            "an_ordinary_user_can_do_it_too",
            "not root, or no user wftest",
        );
    };
    let id = ended.stdout.trim().parse::<u32>();
    let own = id.is_ok_and(|id| BY_CHANCE.contains(&id));
    let said = format!("{} {}", ended.stdout, ended.stderr);
    assert_eq!((ended.code(), own), (Some(7), true), "{said}");
}

#[test]
fn a_program_that_dies_of_a_signal_takes_us_with_it() {
    for (name, signal) in [("KILL", 9), ("SEGV", 11), ("TERM", 15)] {
        let script = format!("kill -{name} $$");
        let image = run_image(&["/bin/sh", "-c", &script]);
        for pids in ["host", "namespace"] {
            let ended = execute(&image, &["--pids", pids]);
            assert_eq!(ended.signal(), Some(signal), "{pids}: {}", ended.stderr);
        }
    }
}

#[test]
fn a_namespace_has_pids_of_its_own() {
    let image = run_image(&["/bin/sh", "-c", "echo $$; exec cat /proc/self/stat"]);
    let ended = execute(&image, &["--pids", "namespace"]);
    let said = format!("{} {}", ended.stdout, ended.stderr);
    let (id, stat) = ended.stdout.split_once('\n').expect(&said);
    assert!(stat.starts_with(&format!("{id} (cat)")), "{said}");
    assert!(BY_CHANCE.contains(&id.parse().expect(&said)), "{said}");
}

#[test]
fn what_cannot_be_started_is_said() {
    let image = run_image(&["/nonexistent/program"]);
    let ended = execute(&image, &[]);
    assert_eq!(ended.code(), Some(127));
    assert!(
        ended
            .stderr
            .contains("/nonexistent/program cannot be started: ENOENT"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_program_is_given_our_descriptors_and_no_others() {
    let program = ["/bin/sh", "-c", "ls /proc/self/fd | tr '\\n' ' '"];
    let mut plain = Command::new(program[0]);
    plain.args(&program[1..]);
    let plain = finish(plain);
    let image = run_image(&program);
    for pids in ["host", "namespace"] {
        let ended = execute(&image, &["--pids", pids]);
        assert_eq!(ended.stdout, plain.stdout, "{}", ended.stderr);
    }
}

#[test]
fn a_wrong_argument_is_a_usage_error() {
    let image = run_image(&["/bin/true"]);
    for wrong in [
        &["--nonsense"][..],
        &["--pids", "moon"],
        &["--image-fd", "x"],
        &["--files"],
    ] {
        let ended = execute(&image, wrong);
        assert_eq!(ended.code(), Some(2), "{wrong:?}: {}", ended.stderr);
        assert!(ended.stderr.starts_with("wayfarer: "), "{}", ended.stderr);
    }
}
