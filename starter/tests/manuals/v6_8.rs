//! Condor 6.8, section 3.5.10.

use crate::{Day, Manual, manual};
use classad::config::Dialect::V6_8;

const SMALL: &str = "Owner = \"ann\"; JobUniverse = 1; ImageSize = 5000";
const BIG: &str = "Owner = \"ann\"; JobUniverse = 1; ImageSize = 110000";
const VANILLA: &str = "Owner = \"ann\"; JobUniverse = 5; ImageSize = 110000";

fn the_manual() -> Option<Manual> {
    manual("condor-6.8-startd-policy.txt")
}

fn default_policy(manual: &Manual) -> String {
    let once_more =
        "For reference, the entire set of policy settings are included once more without comments:";
    manual.cut(once_more, "##  These macros", "3.5.10.2 Test-job")
}

fn desktop(manual: &Manual) -> String {
    default_policy(manual)
        + &manual.cut(
            "3.5.10.4 Desktop/Non-Desktop Policy",
            "# If \"IsDesktop\"",
            "With this policy in condor_ config",
        )
}

#[test]
fn default_jobs_start_when_nobody_is_there_and_the_processor_is_idle() {
    let Some(manual) = the_manual() else { return };
    let policy = default_policy(&manual);
    let outcome = Day::new()
        .types("00:00", "01:00")
        .job("00:00", SMALL)
        .until("02:00", &policy, V6_8, 1);
    outcome.is(&[("01:14", "Owner/Idle"), ("01:22", "Claimed/Busy")]);
    let outcome = Day::new()
        .load("00:00", 0.6)
        .job("00:00", SMALL)
        .load("01:00", 0.1)
        .until("02:00", &policy, V6_8, 1);
    outcome.is(&[("00:59", "Owner/Idle"), ("01:07", "Claimed/Busy")]);
}

#[test]
fn default_small_jobs_are_suspended_and_vacated_when_that_is_not_enough() {
    let Some(manual) = the_manual() else { return };
    let policy = default_policy(&manual);
    let day = Day::new()
        .job("00:00", SMALL)
        .key("02:00")
        .types("03:00", "03:30");
    day.until("04:30", &policy, V6_8, 1).is(&[
        // "Suspend a job if the keyboard has been touched."
        ("02:00:05", "Claimed/Suspended"),
        // "Continue a suspended job if the CPU is idle, the Keyboard has been idle for long enough [5 minutes], and the job has been
        // suspended more than 10 seconds."
        ("02:04:55", "Claimed/Suspended"),
        ("02:05:10", "Claimed/Busy"),
        ("03:00:05", "Claimed/Suspended"),
        ("03:09:55", "Claimed/Suspended"),
        // "The first condition is if the job is suspended, but it has been suspended too long": 10 minutes.
        ("03:10:30", "Owner/Idle"),
        ("03:44", "Owner/Idle"),
        ("03:52", "Claimed/Busy"),
    ]);
}

#[test]
fn default_a_busy_processor_suspends_after_two_minutes() {
    let Some(manual) = the_manual() else { return };
    let policy = default_policy(&manual);
    let day = Day::new()
        .job("00:00", BIG)
        .load("02:00", 0.9)
        .load("02:01:30", 0.0)
        .load("03:00", 0.9)
        .load("03:06", 0.1);
    // "Suspend if the CPU has been busy for more than two minutes and the job has been running for more than 90 seconds."
    day.until("04:00", &policy, V6_8, 1).is(&[
        ("02:01:29", "Claimed/Busy"),
        ("02:10", "Claimed/Busy"),
        ("03:01:55", "Claimed/Busy"),
        ("03:02:15", "Claimed/Suspended"),
        ("03:06:10", "Claimed/Busy"),
    ]);
}

#[test]
fn default_big_jobs_leave_at_once_when_a_key_is_pressed_unless_they_are_vanilla() {
    let Some(manual) = the_manual() else { return };
    let policy = default_policy(&manual);
    // "The second condition is if suspension is not desired and the machine is busy." "We want to gracefully vacate jobs which have been
    // running for more than 10 minutes." "Do not give jobs any time to retire."
    let outcome = Day::new()
        .job("00:00", BIG)
        .key("02:00")
        .until("02:10", &policy, V6_8, 1);
    assert_eq!(
        (
            outcome.vacated("02:00", "02:00:05"),
            outcome.suspended("00:00", "02:10")
        ),
        (1, 0),
        "{}",
        outcome.story()
    );
    let outcome = Day::new()
        .job("00:00", BIG)
        .key("00:08")
        .until("00:30", &policy, V6_8, 1);
    assert_eq!(
        (
            outcome.killed("00:08", "00:08:05"),
            outcome.vacated("00:00", "00:30")
        ),
        (1, 0),
        "{}",
        outcome.story()
    );
    let outcome = Day::new()
        .job("00:00", VANILLA)
        .key("00:08")
        .until("00:30", &policy, V6_8, 1);
    outcome.is(&[
        ("00:08:05", "Claimed/Suspended"),
        ("00:13:10", "Claimed/Busy"),
    ]);
}

#[test]
fn default_who_takes_ten_minutes_to_leave_is_killed() {
    let Some(manual) = the_manual() else { return };
    let job = "Owner = \"ann\"; JobUniverse = 1; ImageSize = 110000; SimVacate = 3000";
    let outcome = Day::new().job("00:00", job).types("02:00", "03:00").until(
        "03:00",
        &default_policy(&manual),
        V6_8,
        1,
    );
    // "Kill jobs that take too long leaving gracefully."
    outcome.is(&[
        ("02:09:55", "Preempting/Vacating"),
        ("02:10:20", "Owner/Idle"),
    ]);
    assert_eq!(outcome.killed("02:10", "02:10:20"), 1);
}

#[test]
fn default_images_are_made_every_six_hours_or_every_twelve() {
    let Some(manual) = the_manual() else { return };
    for (job, images) in [(SMALL, 2), (BIG, 1)] {
        let outcome =
            Day::new()
                .job("00:00", job)
                .until("12:30", &default_policy(&manual), V6_8, 1);
        assert_eq!(outcome.images("00:00", "12:30"), images);
    }
}

#[test]
fn test_jobs_of_coltrane_start_and_stay_whatever_happens() {
    let Some(manual) = the_manual() else { return };
    let policy = default_policy(&manual)
        + &manual.cut(
            "3.5.10.2 Test-job Policy Example",
            "        START ",
            "Notice that there is nothing",
        );
    let day = |owner: &str| {
        let job =
            format!("Owner = \"{owner}\"; JobUniverse = 1; ImageSize = 110000; SimWork = 3600");
        Day::new()
            .types("00:00", "03:00")
            .load("00:00", 2.0)
            .job("00:30", &job)
            .until("03:00", &policy, V6_8, 1)
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
fn time_of_day_jobs_run_after_hours_only() {
    let Some(manual) = the_manual() else { return };
    let section = "3.5.10.3 Time of Day Policy";
    let policy = default_policy(&manual)
        + &manual.cut(section, "WorkHours = (", "Of course, you can fine-tune")
        + &manual.cut(section, "# Only start jobs after hours.", "By default, the MachineBusy macro")
        + &manual.cut(section, "WANT_SUSPEND = $(AfterHours)", "3.5.10.4")
        // "You will need to add $(WorkHours) to your SUSPEND and PREEMPT expressions as appropriate": the default's do not have
        // MachineBusy.
        + "SUSPEND = ($(SUSPEND)) || $(WorkHours)\n";
    let policy = policy
        .split("\n\n\n3.5.10.4")
        .next()
        .expect("a policy")
        .to_owned();
    let outcome = Day::new()
        .job("00:00", SMALL)
        .until("6+00:00", &policy, V6_8, 1);
    outcome.is(&[
        ("00:02", "Claimed/Busy"),
        ("07:59:59", "Claimed/Busy"),
        // "… in the morning, if a job is running, it will be immediately preempted, instead of being suspended for some length of time."
        ("08:01", "Owner/Idle"),
        ("16:59", "Owner/Idle"),
        ("17:07", "Claimed/Busy"),
        ("1+12:00", "Owner/Idle"),
        // "Monday through Friday".
        ("4+12:00", "Owner/Idle"),
        ("5+12:00", "Claimed/Busy"),
    ]);
    assert_eq!(outcome.suspended("00:00", "6+00:00"), 0);
    assert_eq!(outcome.vacated("08:00", "08:00:10"), 1);
}

#[test]
fn a_desktop_minds_its_user_and_another_machine_does_not() {
    let Some(manual) = the_manual() else { return };
    let day = |policy: &str| {
        let day = Day::new()
            .types("00:00", "00:10")
            .job("00:00", SMALL)
            .types("02:00", "02:02")
            .key("03:00");
        day.until("04:00", policy, V6_8, 1)
    };
    let policy = desktop(&manual);
    day(&(policy.clone() + "IsDesktop = True\n")).is(&[
        // "… AND the user is not active (if a desktop)".
        ("00:24", "Owner/Idle"),
        ("00:32", "Claimed/Busy"),
        // "… OR suspend if this is a desktop and the user is active".
        ("02:00:05", "Claimed/Suspended"),
        // "… the keyboard has been idle for long enough (if this is a desktop)".
        ("02:06:55", "Claimed/Suspended"),
        ("02:07:10", "Claimed/Busy"),
        // "… we've been suspended more than 5 minutes".
        ("03:04:55", "Claimed/Suspended"),
        ("03:05:15", "Claimed/Busy"),
    ]);
    // "In all other cases, the default policy described above will ignore keyboard activity."
    let outcome = day(&policy);
    assert_eq!(outcome.started("00:00", "00:02"), 1, "{}", outcome.story());
    assert_eq!(outcome.suspended("00:00", "04:00"), 0);
    // "The CPU has been busy for more than 2 minutes": on any machine.
    let outcome = Day::new()
        .job("00:00", SMALL)
        .load("02:00", 0.9)
        .until("02:30", &policy, V6_8, 1);
    outcome.is(&[
        ("02:01:55", "Claimed/Busy"),
        ("02:02:15", "Claimed/Suspended"),
        ("02:11", "Claimed/Suspended"),
    ]);
    assert_eq!(
        outcome.vacated("02:12", "02:12:30"),
        1,
        "{}",
        outcome.story()
    );
}

#[test]
fn disabling_preemption_lets_jobs_run_for_two_days() {
    let Some(manual) = the_manual() else { return };
    let section = "3.5.10.5 Disabling Preemption";
    let policy = default_policy(&manual)
        + &manual.cut(
            section,
            "# When we want to kick a job off",
            "Construction of this expression",
        );
    // "Let it run uninterrupted for up to 2 days before forcing it to vacate."
    let outcome = Day::new()
        .job("00:00", BIG)
        .types("02:00", "3+00:00")
        .until("3+00:00", &policy, V6_8, 1);
    outcome.is(&[
        ("02:01", "Claimed/Retiring"),
        ("1+23:59", "Claimed/Retiring"),
    ]);
    assert_eq!(
        outcome.vacated("2+00:00", "2+00:02"),
        1,
        "{}",
        outcome.story()
    );
    // "This may only cause less retirement time to be used, never more."
    let less = BIG.to_owned() + "; MaxJobRetirementTime = 7200 + 600";
    let outcome = Day::new()
        .job("00:00", &less)
        .types("02:00", "04:00")
        .until("04:00", &policy, V6_8, 1);
    assert_eq!(
        outcome.vacated("02:09:55", "02:11:10"),
        1,
        "{}",
        outcome.story()
    );
}

#[test]
fn disabling_preemption_of_claims_keeps_them_from_the_owner_and_from_better_ones() {
    let Some(manual) = the_manual() else { return };
    let section = "3.5.10.5 Disabling Preemption";
    let policy = default_policy(&manual)
        + &manual.cut(
            section,
            "#Disable preemption by machine activity.",
            "Be aware of the consequences",
        );
    // "Disable preemption by machine activity", "by machine RANK by ranking all jobs equally".
    let day = Day::new()
        .job("00:00", BIG)
        .types("02:00", "04:00")
        .job("05:00", "Owner = \"eve\"; JobUniverse = 1; ImageSize = 1");
    let outcome = day.until("08:00", &policy, V6_8, 1);
    assert_eq!(
        outcome.vacated("00:00", "08:00") + outcome.killed("00:00", "08:00"),
        0,
        "{}",
        outcome.story()
    );
    assert_eq!(outcome.report.jobs[1].starts, 0);
}

#[test]
fn suspension_the_second_slot_runs_in_the_background_of_the_first() {
    let Some(manual) = the_manual() else { return };
    let policy = default_policy(&manual)
        + &manual.cut("3.5.10.6 Job Suspension", "# Lie to Condor", "3.5.11 Differences")
        // "Suspend if there is keyboard activity": 6.8 lets the first slot alone hear keys, if nobody says otherwise.
        + "VIRTUAL_MACHINES_CONNECTED_TO_KEYBOARD = 2\n";
    let day = Day::new()
        .job("00:00", VANILLA)
        .job(
            "02:00",
            "Owner = \"eve\"; JobUniverse = 5; IsHighPrioJob = TRUE; SimWork = 300",
        )
        .key("03:00");
    let outcome = day.until("04:00", &policy, V6_8, 1);
    // "Only start jobs on VM1 if the job is marked as a high-priority job."
    assert_eq!(outcome.place_of(1, "02:02"), "Claimed/Busy");
    outcome.slot_is(
        2,
        &[
            ("00:02", "Claimed/Busy"),
            // "Suspend if there is keyboard activity or if a job starts on VM1."
            ("02:02", "Claimed/Suspended"),
            // "CONTINUE … KeyboardIdle > ContinueIdleTime && vm1_Activity != Busy".
            ("02:07", "Claimed/Busy"),
            ("03:00:05", "Claimed/Suspended"),
            ("03:05:10", "Claimed/Busy"),
        ],
    );
    assert_eq!(outcome.report.jobs[0].starts, 1);
    assert_eq!(outcome.report.jobs[1].starts, 1);
}

#[test]
fn an_image_goes_on_on_its_platform_only() {
    let Some(manual) = the_manual() else { return };
    // "If a standard universe job has produced a checkpoint, then make sure the checkpoint platforms between the job and the machine
    // match." It is printed without continuations.
    let printed = manual.cut(
        "3.5.4 The IS_VALID_CHECKPOINT_PLATFORM",
        "IS_VALID_CHECKPOINT_PLATFORM = \n",
        "IS_VALID_CHECKPOINT_PLATFORM is a separate",
    );
    let policy = default_policy(&manual) + printed.trim_end().replace('\n', " ").as_str() + "\n";
    for (job, starts) in [
        ("JobUniverse = 1; NumCkpts = 0", 1),
        (
            "JobUniverse = 1; NumCkpts = 2; LastCheckpointPlatform = \"SIMULATED\"",
            1,
        ),
        (
            "JobUniverse = 1; NumCkpts = 2; LastCheckpointPlatform = \"LINUX INTEL 2.6.x\"",
            0,
        ),
        (
            "JobUniverse = 5; NumCkpts = 2; LastCheckpointPlatform = \"LINUX INTEL 2.6.x\"",
            1,
        ),
    ] {
        let outcome = Day::new()
            .job("00:00", job)
            .until("00:10", &policy, V6_8, 1);
        assert_eq!(
            outcome.started("00:00", "00:10"),
            starts,
            "{job}\n{}",
            outcome.story()
        );
    }
}
