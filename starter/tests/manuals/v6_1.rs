//! Condor 6.1: "We offer two example policy settings", and one for testing.

use crate::{Day, Manual, manual};
use classad::config::Dialect::V6_1;

const SMALL: &str = "Owner = \"ann\"; JobUniverse = 1; ImageSize = 5000";
const MEDIUM: &str = "Owner = \"ann\"; JobUniverse = 1; ImageSize = 20000";
const BIG: &str = "Owner = \"ann\"; JobUniverse = 1; ImageSize = 110000";
const BIG_VANILLA: &str = "Owner = \"ann\"; JobUniverse = 5; ImageSize = 110000";

fn the_manual() -> Option<Manual> {
    manual("condor-6.1-startd-policy.txt")
}

fn default_policy(manual: &Manual) -> String {
    manual.cut(
        "These settings are the default as shipped with Condor",
        "\n## These macros are here to help write legible expressions:\nMINUTE",
        "Due to a recent increase",
    )
}

fn madison(manual: &Manual) -> String {
    // It goes on where the default has begun: MINUTE and HOUR are the default's.
    default_policy(manual)
        + &manual.cut(
            "Due to a recent increase",
            "\nActivationTimer = (CurrentTime - JobStart)\nStateTimer",
            "As a final example",
        )
}

#[test]
fn default_jobs_start_when_the_processor_and_the_keyboard_are_idle() {
    let Some(manual) = the_manual() else { return };
    let day = Day::new()
        .types("00:00", "01:00")
        .job("00:00", MEDIUM)
        .load("01:00", 0.8)
        .load("02:00", 0.1);
    let outcome = day.until("03:00", &default_policy(&manual), V6_1, 1);
    // "START: CPU_Idle && KeyboardIdle > StartIdleTime", 15 minutes; the machine looks every 5 minutes.
    outcome.is(&[
        ("00:59", "Owner/Idle"),
        ("01:59", "Owner/Idle"),
        ("02:07", "Claimed/Busy"),
    ]);
    let outcome = Day::new()
        .types("00:00", "01:00")
        .job("00:00", MEDIUM)
        .until("03:00", &default_policy(&manual), V6_1, 1);
    outcome.is(&[("01:15", "Owner/Idle"), ("01:22", "Claimed/Busy")]);
}

#[test]
fn default_jobs_are_suspended_continued_vacated_and_killed_step_by_step() {
    let Some(manual) = the_manual() else { return };
    let policy = default_policy(&manual);
    let day = Day::new()
        .job(
            "00:00",
            "Owner = \"ann\"; JobUniverse = 1; ImageSize = 20000; SimVacate = 60",
        )
        .key("02:00")
        .load("03:00", 0.9)
        .load("03:05", 0.1)
        .types("04:00", "04:30");
    let outcome = day.until("06:00", &policy, V6_1, 1);
    outcome.is(&[
        ("01:59:59", "Claimed/Busy"),
        // "Suspend a job if the machine is busy": a key, then the processor.
        ("02:00:05", "Claimed/Suspended"),
        ("02:04:59", "Claimed/Suspended"),
        // "Continue a suspended job if the CPU is idle and the Keyboard has been idle for long enough": 5 minutes.
        ("02:05:10", "Claimed/Busy"),
        ("03:00:05", "Claimed/Suspended"),
        ("03:05:10", "Claimed/Busy"),
        // "… if we have suspended the job, but it's been suspended too long": 10 minutes.
        ("04:09:55", "Claimed/Suspended"),
        ("04:10:15", "Preempting/Vacating"),
        // Gone, and START is FALSE.
        ("04:11:30", "Owner/Idle"),
        // Idle for 15 minutes again.
        ("04:44", "Owner/Idle"),
        ("04:52", "Claimed/Busy"),
    ]);
    assert_eq!(
        (
            outcome.vacated("00:00", "06:00"),
            outcome.killed("00:00", "06:00")
        ),
        (1, 0)
    );
    // Nothing is lost.
    assert_eq!(outcome.report.badput(), 0);
    assert_eq!(outcome.report.jobs[0].starts, 2);
    assert!(outcome.report.jobs[0].goodput > 5 * 3600);
}

#[test]
fn default_a_job_that_takes_too_long_to_leave_is_killed() {
    let Some(manual) = the_manual() else { return };
    let day = Day::new()
        .job(
            "00:00",
            "Owner = \"ann\"; JobUniverse = 1; ImageSize = 20000; SimVacate = 3000",
        )
        .types("02:00", "04:00");
    let outcome = day.until("04:00", &default_policy(&manual), V6_1, 1);
    // "Kill a job if we've been vacating for too long": 5 minutes.
    outcome.is(&[
        ("02:15:00", "Preempting/Vacating"),
        ("02:15:25", "Owner/Idle"),
    ]);
    assert_eq!(
        outcome.killed("02:15:10", "02:15:25"),
        1,
        "{}",
        outcome.story()
    );
    assert!(outcome.report.badput() > 3600);
}

#[test]
fn default_a_job_that_has_run_for_less_than_ten_minutes_is_killed_and_not_vacated() {
    let Some(manual) = the_manual() else { return };
    // "… unless they've only been running for less than 10 minutes anyway, in which case we'll just kill them."
    for (time, kills) in [("00:09", 1), ("00:20", 0)] {
        let outcome = Day::new().job("00:00", MEDIUM).vacate(time).until(
            "00:30",
            &default_policy(&manual),
            V6_1,
            1,
        );
        assert_eq!(
            (
                outcome.killed("00:00", "00:30"),
                outcome.vacated("00:00", "00:30")
            ),
            (kills, 1 - kills),
            "{}",
            outcome.story()
        );
    }
}

#[test]
fn default_images_are_made_every_six_hours_or_every_twelve() {
    let Some(manual) = the_manual() else { return };
    // "For jobs smaller than 60 megs, we periodic checkpoint every 6 hours. For larger jobs, we only checkpoint every 12 hours."
    for (job, at_six) in [(MEDIUM, 1), (BIG, 0)] {
        let outcome =
            Day::new()
                .job("00:00", job)
                .until("12:30", &default_policy(&manual), V6_1, 1);
        assert_eq!(outcome.images("00:00", "06:00"), 0);
        assert_eq!(outcome.images("06:00", "06:15"), at_six);
        assert_eq!(outcome.images("00:00", "12:30"), at_six + 1);
        assert_eq!(outcome.place_of(1, "12:29"), "Claimed/Busy");
    }
}

#[test]
fn madison_by_image_size_small_is_suspended_medium_vacated_big_killed() {
    let Some(manual) = the_manual() else { return };
    let policy = madison(&manual);
    let day = |job| {
        Day::new()
            .job("00:00", job)
            .types("02:00", "02:30")
            .until("03:30", &policy, V6_1, 1)
    };
    // "If the job is small, it goes through the normal progression of suspend to vacate to kill based on the tried and true times."
    let small = day(SMALL);
    small.is(&[
        ("02:00:05", "Claimed/Suspended"),
        ("02:09:55", "Claimed/Suspended"),
        ("02:10:30", "Owner/Idle"),
    ]);
    assert_eq!(
        (
            small.vacated("02:10", "02:10:30"),
            small.killed("00:00", "03:30")
        ),
        (1, 0)
    );
    // "If the job is medium, when the user comes back, we start vacating the job right away."
    let medium = day(MEDIUM);
    assert_eq!(
        (
            medium.vacated("02:00", "02:00:05"),
            medium.suspended("00:00", "03:30")
        ),
        (1, 0),
        "{}",
        medium.story()
    );
    assert_eq!(medium.report.badput(), 0);
    // "If the job is big, don't even bother checkpointing."
    let big = day(BIG);
    assert_eq!(
        (
            big.killed("02:00", "02:00:05"),
            big.vacated("00:00", "03:30")
        ),
        (1, 0),
        "{}",
        big.story()
    );
    assert!(big.report.badput() > 3600);
    // "We still want to always suspend Vanilla jobs, regardless of their size."
    let vanilla = day(BIG_VANILLA);
    assert_eq!(
        vanilla.suspended("02:00", "02:00:05"),
        1,
        "{}",
        vanilla.story()
    );
}

#[test]
fn madison_big_jobs_have_images_every_three_hours() {
    let Some(manual) = the_manual() else { return };
    let policy = madison(&manual);
    // "… we want to periodically checkpoint them more frequently (every 3 hours) … So, we only periodic checkpoint small or medium jobs every 12 hours."
    for (job, images) in [(BIG, 4), (MEDIUM, 1), (SMALL, 1)] {
        let outcome = Day::new()
            .job("00:00", job)
            .until("12:30", &policy, V6_1, 1);
        assert_eq!(outcome.images("00:00", "12:30"), images, "{job}");
    }
}

#[test]
fn testing_coltranes_jobs_start_and_stay_whatever_happens() {
    let Some(manual) = the_manual() else { return };
    let policy = madison(&manual)
        + &manual.cut(
            "As a final example",
            "\nSTART : ($(CS_START))",
            "Notice that you don't have",
        );
    let day = |owner: &str| {
        let job =
            format!("Owner = \"{owner}\"; JobUniverse = 1; ImageSize = 20000; SimWork = 3600");
        Day::new()
            .types("00:00", "03:00")
            .load("00:00", 2.0)
            .job("00:30", &job)
            .until("03:00", &policy, V6_1, 1)
    };
    // "We want that job to start regardless of what's happening on the machine, and we don't want the job suspended, vacated or killed."
    let outcome = day("coltrane");
    assert_eq!(outcome.started("00:30", "00:31"), 1, "{}", outcome.story());
    let orders = outcome.suspended("00:00", "03:00")
        + outcome.vacated("00:00", "03:00")
        + outcome.killed("00:00", "03:00");
    assert_eq!(orders, 0);
    assert!(outcome.report.jobs[0].done.is_some());
    // "… to behave just like normal" for everybody else.
    assert_eq!(day("ann").started("00:00", "03:00"), 0);
}
