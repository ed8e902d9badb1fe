//! The current manual, "Examples of Policy Configuration".

use crate::{Day, Manual, manual};
use classad::config::Dialect::V25;

const SMALL: &str = "Owner = \"ann\"; JobUniverse = 5; ImageSize = 5000; SimCheckpoints = TRUE";
const EXAMPLES: &str = "Examples of Policy Configuration";

fn the_manual() -> Option<Manual> {
    manual("htcondor-current-policy.txt")
}

/// One slot as of old, where the policy says nothing about slots: 25 has a partitionable one.
const ONE_SLOT: &str = "NUM_SLOTS = 1\n";

fn default_policy(manual: &Manual) -> String {
    ONE_SLOT.to_owned()
        + &manual.cut(
            EXAMPLES,
            "## These macros are here",
            " Preemption is disabled as a default",
        )
        + &manual.cut(
            EXAMPLES,
            "WANT_SUSPEND = False\nWANT_VACATE = False\nSTART = True",
            ":index:`test job`",
        )
}

#[test]
fn default_jobs_always_run() {
    let Some(manual) = the_manual() else { return };
    let day = Day::new()
        .types("00:00", "05:00")
        .job("00:30", SMALL)
        .load("02:00", 3.0);
    let outcome = day.until("05:00", &default_policy(&manual), V25, 1);
    // "Preemption is disabled as a default. Always desire to start jobs."
    assert_eq!(outcome.started("00:30", "00:31"), 1, "{}", outcome.story());
    assert_eq!(outcome.place_of(1, "05:00"), "Claimed/Busy");
    assert_eq!(outcome.suspended("00:00", "05:00"), 0);
}

#[test]
fn default_jobs_that_take_too_long_leaving_gracefully_are_killed() {
    let Some(manual) = the_manual() else { return };
    let job = SMALL.to_owned() + "; SimVacate = 3000";
    let outcome = Day::new().job("00:00", &job).vacate("02:00").until(
        "03:00",
        &default_policy(&manual),
        V25,
        1,
    );
    outcome.is(&[("02:09:55", "Preempting/Vacating")]);
    assert_eq!(
        outcome.killed("02:10", "02:10:05"),
        1,
        "{}",
        outcome.story()
    );
    let quick = SMALL.to_owned() + "; SimVacate = 3000; JobMaxVacateTime = 60";
    let outcome = Day::new().job("00:00", &quick).vacate("02:00").until(
        "03:00",
        &default_policy(&manual),
        V25,
        1,
    );
    assert_eq!(
        outcome.killed("02:01", "02:01:05"),
        1,
        "{}",
        outcome.story()
    );
}

#[test]
fn test_jobs_of_coltrane_start_and_stay_whatever_happens() {
    let Some(manual) = the_manual() else { return };
    // "We want the machine to behave normally, except if user coltrane submits a job": on a machine that is not always willing.
    let normal = "START = KeyboardIdle > 900\nWANT_SUSPEND = True\nSUSPEND = KeyboardIdle < 60\nPREEMPT = Activity == \"Suspended\" && $(ActivityTimer) > 600\nSLOTS_CONNECTED_TO_KEYBOARD = 1\n";
    let policy = default_policy(&manual)
        + normal
        + &manual.cut(
            EXAMPLES,
            "START = ($(START)) || Owner == \"coltrane\"",
            " Notice that there is nothing",
        );
    let day = |owner: &str| {
        let job = format!("Owner = \"{owner}\"; JobUniverse = 5; SimWork = 3600");
        Day::new()
            .types("00:00", "03:00")
            .load("00:00", 2.0)
            .job("00:30", &job)
            .until("03:00", &policy, V25, 1)
    };
    let outcome = day("coltrane");
    assert_eq!(outcome.started("00:30", "00:31"), 1, "{}", outcome.story());
    let orders = outcome.suspended("00:00", "03:00")
        + outcome.vacated("00:00", "03:00")
        + outcome.killed("00:00", "03:00");
    assert_eq!(orders, 0);
    assert!(outcome.report.jobs[0].done.is_some());
    assert_eq!(day("ann").started("00:00", "03:00"), 0);
}

#[test]
fn time_of_day_jobs_start_after_hours_only() {
    let Some(manual) = the_manual() else { return };
    let policy = default_policy(&manual)
        + &manual.cut(EXAMPLES, "WorkHours = ( (ClockMin", "\n\nOf course")
        + &manual.cut(
            EXAMPLES,
            "# Only start jobs after hours.",
            "\n\nThis ``MachineBusy``",
        );
    let short = "Owner = \"ann\"; JobUniverse = 5; SimWork = 1800";
    let day = || Day::new().job("07:00", short).job("07:50", SMALL);
    let outcome = day()
        .job("09:00", "Owner = \"bob\"; JobUniverse = 5")
        .until("18:00", &(policy.clone() + "NUM_SLOTS = 1\n"), V25, 1);
    assert_eq!(outcome.started("07:00", "07:02"), 1, "{}", outcome.story());
    // "Only start jobs after hours."
    assert_eq!(outcome.started("08:00", "16:59:59"), 0);
    // "This MachineBusy macro is convenient if other than the default SUSPEND and PREEMPT expressions are used."
    let leaves = policy + "PREEMPT = $(MachineBusy)\nWANT_VACATE = True\n";
    let outcome = day().until("18:00", &leaves, V25, 1);
    assert_eq!(
        outcome.vacated("08:00", "08:00:10"),
        1,
        "{}",
        outcome.story()
    );
    assert_eq!(outcome.started("08:00", "16:59:59"), 0);
    assert_eq!(outcome.started("17:00", "17:07"), 1);
}

#[test]
fn a_desktop_minds_its_user_and_another_machine_does_not() {
    let Some(manual) = the_manual() else { return };
    // What the example takes for granted: JustCpu, and what `use POLICY : Desktop` has for keys and owners.
    let prelude = "JustCpu = ($(CPUBusy) && ($(KeyboardBusy) == False))\nSLOTS_CONNECTED_TO_KEYBOARD = 1024*1024\nIS_OWNER = (START =?= False)\n";
    let policy = default_policy(&manual)
        + prelude
        + &manual.cut(
            EXAMPLES,
            "# If \"IsDesktop\" is configured",
            " With this policy in the global",
        );
    let day = |policy: &str| {
        let day = Day::new()
            .types("00:00", "00:10")
            .job("00:00", SMALL)
            .types("02:00", "02:02")
            .types("03:00", "03:20");
        day.until("05:00", policy, V25, 1)
    };
    let outcome = day(&(policy.clone() + "IsDesktop = True\n"));
    outcome.is(&[
        ("00:24", "Owner/Idle"),
        ("00:32", "Claimed/Busy"),
        ("02:00:05", "Claimed/Suspended"),
        ("02:06:55", "Claimed/Suspended"),
        ("02:07:10", "Claimed/Busy"),
        ("03:00:05", "Claimed/Suspended"),
        ("03:09:55", "Claimed/Suspended"),
        // "The job is suspended and has been suspended longer than we want."
        ("03:10:20", "Owner/Idle"),
        ("03:34", "Owner/Idle"),
        ("03:42", "Claimed/Busy"),
    ]);
    assert_eq!(
        (
            outcome.vacated("03:10", "03:10:20"),
            outcome.killed("00:00", "05:00")
        ),
        (1, 0)
    );
    // "In all other cases, the default policy described above will ignore keyboard activity."
    let outcome = day(&policy);
    assert_eq!(outcome.started("00:00", "00:02"), 1, "{}", outcome.story());
    assert_eq!(outcome.suspended("00:00", "05:00"), 0);
    let outcome = Day::new()
        .job("00:00", SMALL)
        .load("02:00", 0.9)
        .load("02:05", 0.0)
        .until("03:00", &policy, V25, 1);
    outcome.is(&[
        ("02:01:55", "Claimed/Busy"),
        ("02:02:15", "Claimed/Suspended"),
        ("02:07", "Claimed/Suspended"),
        ("02:07:30", "Claimed/Busy"),
    ]);
}

#[test]
fn suspension_jobs_decide_whether_they_are_suspended_or_evicted() {
    let Some(manual) = the_manual() else { return };
    let policy = default_policy(&manual)
        + &manual.cut(EXAMPLES, "# Lie to HTCondor", "\n\nNote that in this example")
        // "To achieve 2 slots for each real slot": before HTCondor 23 there was a slot for each processor by itself.
        + "NUM_SLOTS = $(NUM_CPUS)\n";
    let day = Day::new()
        .job(
            "00:00",
            "Owner = \"ann\"; JobUniverse = 5; IsSuspendableJob = True",
        )
        .job("01:00", "Owner = \"bob\"; JobUniverse = 5; SimWork = 7200");
    let outcome = day.until("05:00", &policy, V25, 1);
    // "A job identifies which category of slot it wishes to run on."
    outcome.slot_is(
        1,
        &[
            ("00:30", "Unclaimed/Idle"),
            ("01:02", "Claimed/Busy"),
            ("03:05", "Unclaimed/Idle"),
        ],
    );
    outcome.slot_is(
        2,
        &[
            ("00:02", "Claimed/Busy"),
            ("00:59", "Claimed/Busy"),
            // "… the currently running job is suspended, in favor of running the nonsuspendable one."
            ("01:02", "Claimed/Suspended"),
            // However long it takes: it is not evicted …
            ("02:59", "Claimed/Suspended"),
            // "… and will later be unfrozen when the preempting job is finished."
            ("03:03", "Claimed/Busy"),
        ],
    );
    assert_eq!(outcome.report.jobs[0].starts, 1);
    // "If the currently running job is one that identifies itself as nonsuspendable, and the potentially running job identifies itself as
    // suspendable, the currently running job continues running."
    let day = Day::new()
        .job("00:00", "Owner = \"bob\"; JobUniverse = 5; SimWork = 7200")
        .job(
            "01:00",
            "Owner = \"ann\"; JobUniverse = 5; IsSuspendableJob = True",
        );
    let outcome = day.until("03:00", &policy, V25, 1);
    outcome.slot_is(1, &[("01:30", "Claimed/Busy")]);
    assert_eq!(outcome.started("00:05", "01:59"), 0, "{}", outcome.story());
    assert_eq!(outcome.started("02:00", "02:03"), 1, "{}", outcome.story());
}

#[test]
fn interactive_jobs_are_preferred_or_the_only_ones() {
    let Some(manual) = the_manual() else { return };
    let section = "Configuration for Interactive Jobs";
    let interactive = "Owner = \"eve\"; JobUniverse = 5; InteractiveJob = True";
    let prefers = default_policy(&manual)
        + &manual.cut(
            section,
            "RANK = ( (MY.SlotID == 1)",
            " Or, if slot 1 should be reserved",
        );
    // "Slot 1 prefers interactive jobs."
    let outcome = Day::new()
        .job("00:00", SMALL)
        .job("01:00", interactive)
        .until("02:00", &prefers, V25, 1);
    assert_eq!(outcome.vacated("01:00", "01:01"), 1, "{}", outcome.story());
    assert_eq!(
        (outcome.report.jobs[1].starts, outcome.place_of(1, "01:59")),
        (1, "Claimed/Busy".to_owned())
    );
    // "Or, if slot 1 should be reserved for interactive jobs."
    let reserved = default_policy(&manual)
        + &manual.cut(section, "START = ( (MY.SlotID == 1)", "\n\nMulti-Core");
    let outcome = Day::new()
        .job("00:00", SMALL)
        .job("01:00", interactive)
        .until("02:00", &reserved, V25, 1);
    assert_eq!(outcome.started("00:00", "00:59"), 0);
    assert_eq!(outcome.started("01:00", "01:02"), 1, "{}", outcome.story());
    assert_eq!(outcome.report.jobs[0].starts, 0);
}
