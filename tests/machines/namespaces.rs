//! Machines that give no user namespaces: a job has other ids there after a restart.

use super::Machine;
use super::support::stage::Linking;

#[test]
fn without_user_namespaces() {
    for (pids, linking) in [
        ("", Linking::Dynamic),
        ("--pids host", Linking::Dynamic),
        ("", Linking::Static),
    ] {
        let machine = Machine {
            label: "no_namespaces",
            lacks: &["no-namespaces"],
            linking: Some(linking),
            run: pids,
            restart: pids,
            new_ids: true,
            ..Machine::default()
        };
        let Some(outcome) = machine.try_out() else {
            return;
        };
        let said = outcome.must_pass();
        // With `auto` the user is told, who asked for it knows.
        assert_eq!(said.contains("no namespaces"), pids.is_empty(), "{said}");
    }
}

/// musl keeps thread ids where nobody knows: without namespaces they are not corrected behind its back.
#[test]
fn without_user_namespaces_ids_that_cannot_be_corrected_are_refused() {
    for (restart, works) in [("", false), ("--accept-new-ids", true)] {
        let machine = Machine {
            label: "uncorrectable_ids",
            lacks: &["no-namespaces"],
            linking: Some(Linking::Musl),
            restart,
            new_ids: true,
            ..Machine::default()
        };
        let Some(outcome) = machine.try_out() else {
            return;
        };
        outcome.must_work_or_say(works, "its id cannot be given back");
    }
}

/// A lock that names its holder is nobody's where ids are new.
#[test]
fn without_user_namespaces_held_locks_that_name_a_thread_are_refused() {
    let kinds = [
        "recursive",
        "checking",
        "inheriting",
        "shared",
        "writing",
        "waited",
    ];
    // Those of musl in memory that is shared are in the kernel's list (below); who writes is not asked for by it, and its ids of
    // several threads cannot be new.
    for (linking, kinds) in [(Linking::Dynamic, &kinds[..]), (Linking::Musl, &kinds[..3])] {
        for kind in kinds {
            for (restart, works) in [("", false), ("--accept-new-ids", true)] {
                let Some(outcome) = holding(kind, linking, restart).try_out() else {
                    return;
                };
                outcome.must_work_or_say(works, "holds a lock that names it by its id");
            }
        }
        let Some(outcome) = holding("normal", linking, "").try_out() else {
            return;
        };
        outcome.must_pass();
    }
}

/// A robust lock, which is known by the kernel's list, is known when the image is made.
#[test]
fn without_user_namespaces_held_robust_locks_are_refused() {
    for linking in [Linking::Dynamic, Linking::Static, Linking::Musl] {
        for (restart, works) in [("", false), ("--accept-new-ids", true)] {
            let Some(outcome) = holding("robust", linking, restart).try_out() else {
                return;
            };
            outcome.must_work_or_say(works, "its id cannot be given back");
        }
    }
}

/// A job of one thread that holds a lock, on a machine that gives no ids.
fn holding(kind: &'static str, linking: Linking, restart: &'static str) -> Machine<'static> {
    Machine {
        label: "held_lock",
        guest: Some(kind),
        alone: true,
        lacks: &["no-namespaces"],
        linking: Some(linking),
        restart,
        new_ids: true,
        ..Machine::default()
    }
}

#[test]
fn without_user_namespaces_they_cannot_be_demanded() {
    let machine = Machine {
        label: "namespaces_demanded",
        lacks: &["no-namespaces"],
        restart: "--pids namespace",
        ..Machine::default()
    };
    if let Some(outcome) = machine.try_out() {
        outcome.must_fail_and_say(&["went on", "no namespaces for the job (clone: EPERM)"]);
    }
}
