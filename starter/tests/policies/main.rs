//! The policies that come along (`classad/policies/`): each is read without a warning, and does on a simulated day what its comments say.

#[path = "../manuals/day.rs"]
mod day;

use classad::Nowhere;
use classad::config::{Config, ConfigOptions, Dialect};
use day::{Day, Outcome};
use std::path::PathBuf;

const JOB: &str = "Owner = \"ann\"; JobUniverse = 1; ImageSize = 1000000; SimVacate = 30";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../classad/policies")
}

fn policy(name: &str) -> String {
    let path = folder().join(name);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // One slot, so that its places can be asked for.
    text + "\nNUM_SLOTS = 1\nRunBenchmarks = False\n"
}

fn lives(name: &str, day: Day, until: &str) -> Outcome {
    day.until(until, &policy(name), Dialect::V25, 1)
}

#[test]
fn every_policy_is_read_without_a_warning_and_has_a_day() {
    let files = std::fs::read_dir(folder()).expect("the policies");
    let mut names: Vec<_> = files
        .map(|file| file.expect("a file").file_name())
        .collect();
    names.sort();
    assert_eq!(names.len(), 6, "{names:?}: each has a test below");
    for name in names {
        let name = name.to_str().expect("a name");
        let config = Config::parse(policy(name), &Nowhere, &ConfigOptions::default()).expect(name);
        let warnings = config.warnings();
        // NUM_CPUS is the machine's.
        let odd: Vec<_> = warnings
            .iter()
            .filter(|warning| !warning.to_string().contains("DETECTED"))
            .collect();
        assert!(odd.is_empty(), "{name}: {odd:?}");
        let outcome = lives(
            name,
            Day::new().job("00:00", JOB).types("09:00", "10:00"),
            "1+00:00",
        );
        assert!(
            outcome.report.doubts.is_empty(),
            "{name}: {:?}",
            outcome.report.doubts
        );
        assert!(
            outcome.report.goodput() > 3 * 3600,
            "{name}\n{}",
            outcome.story()
        );
        // As it is, with a partitionable slot.
        let as_is = std::fs::read_to_string(folder().join(name)).expect(name);
        let day = Day::new().job("00:00", JOB).types("09:00", "10:00");
        let outcome = day.until("12:00", &as_is, Dialect::V25, 2);
        assert!(
            outcome.report.goodput() > 3 * 3600,
            "{name}\n{}",
            outcome.story()
        );
    }
}

#[test]
fn desktop_stands_still_then_leaves_with_an_image() {
    let day = Day::new()
        .job("00:00", JOB)
        .key("04:00")
        .load("05:00", 0.9)
        .load("05:05", 0.0)
        .types("06:00", "07:00");
    let outcome = lives("desktop.conf", day, "09:00");
    outcome.is(&[
        ("00:02", "Claimed/Busy"),
        ("04:00:05", "Claimed/Suspended"),
        ("04:05:10", "Claimed/Busy"),
        ("05:00:05", "Claimed/Suspended"),
        ("05:05:10", "Claimed/Busy"),
        ("06:00:05", "Claimed/Suspended"),
        ("06:10:15", "Preempting/Vacating"),
        ("06:11", "Owner/Idle"),
        ("07:14", "Owner/Idle"),
        ("07:22", "Claimed/Busy"),
    ]);
    assert_eq!(outcome.report.badput(), 0);
    assert_eq!(outcome.images("00:00", "06:00"), 2);
}

#[test]
fn dedicated_is_not_disturbed_and_keeps_its_promises() {
    let day = Day::new()
        .job("00:00", JOB)
        .types("01:00", "20:00")
        .load("01:00", 4.0)
        .vacate("02:00");
    let outcome = lives("dedicated.conf", day, "1+01:00");
    outcome.is(&[
        ("01:59", "Claimed/Busy"),
        ("02:00:05", "Claimed/Retiring"),
        ("23:49", "Claimed/Retiring"),
    ]);
    // "Ten minutes … taken from the end of the day that it was promised."
    assert_eq!(
        outcome.vacated("23:50", "23:50:10"),
        1,
        "{}",
        outcome.story()
    );
    let short = "Owner = \"ann\"; JobUniverse = 1; SimWork = 3600";
    let day = (0..13).fold(Day::new(), |day, _| day.job("00:00", short));
    let outcome = lives("dedicated.conf", day, "1+00:00");
    let over = outcome
        .report
        .changes()
        .filter(|change| change.reason == "CLAIM_WORKLIFE is over")
        .count();
    assert_eq!(over, 1, "{}", outcome.story());
}

#[test]
fn office_hours_are_the_owners() {
    let day = Day::new()
        .job("00:00", JOB)
        .key("02:00")
        .job("07:10", "Owner = \"bob\"; JobUniverse = 1");
    let outcome = lives("office_hours.conf", day, "6+00:00");
    outcome.is(&[
        ("02:00:05", "Claimed/Suspended"),
        ("02:05:10", "Claimed/Busy"),
        ("07:59", "Claimed/Busy"),
        ("08:00:10", "Preempting/Vacating"),
        ("08:01", "Owner/Idle"),
        ("12:00", "Owner/Idle"),
        ("17:07", "Claimed/Busy"),
        ("5+12:00", "Claimed/Busy"),
    ]);
    assert_eq!(outcome.report.badput(), 0);
    let late = lives("office_hours.conf", Day::new().job("07:10", JOB), "09:00");
    assert_eq!(late.started("00:00", "09:00"), 0, "{}", late.story());
}

#[test]
fn suspend_never_lets_a_job_leave() {
    let outcome = lives(
        "suspend.conf",
        Day::new().job("00:00", JOB).types("01:30", "20:00"),
        "1+00:00",
    );
    outcome.is(&[
        ("01:30:05", "Claimed/Suspended"),
        ("20:04", "Claimed/Suspended"),
        ("20:05:10", "Claimed/Busy"),
    ]);
    assert_eq!(outcome.report.jobs[0].starts, 1);
    assert_eq!(outcome.images("00:00", "01:30"), 1);
}

#[test]
fn image_size_decides_how_a_job_goes() {
    let day = |size: &str| {
        let job = format!("Owner = \"ann\"; JobUniverse = 1; {size} SimVacate = 30");
        lives(
            "image_size.conf",
            Day::new().job("00:00", &job).types("04:30", "05:00"),
            "05:00",
        )
    };
    let small = day("ImageSize = 100000;");
    assert_eq!(
        (
            small.suspended("04:30", "04:30:05"),
            small.vacated("04:40", "04:40:15")
        ),
        (1, 1),
        "{}",
        small.story()
    );
    for medium in [day("ImageSize = 1000000;"), day("")] {
        assert_eq!(
            (
                medium.suspended("00:00", "05:00"),
                medium.vacated("04:30", "04:30:05")
            ),
            (0, 1),
            "{}",
            medium.story()
        );
        assert_eq!(
            (medium.images("00:00", "04:30"), medium.report.badput()),
            (1, 0)
        );
    }
    let large = day("ImageSize = 10000000;");
    assert_eq!(
        (
            large.killed("04:30", "04:30:05"),
            large.vacated("00:00", "05:00")
        ),
        (1, 0),
        "{}",
        large.story()
    );
    // Not more than an hour is lost.
    assert_eq!(large.images("00:00", "04:30"), 4);
    assert!((1..=3600).contains(&large.report.badput()));
}

#[test]
fn own_first_those_who_have_paid_wait_an_hour_at_most() {
    let day = Day::new()
        .job("00:00", JOB)
        .job("02:00", "Owner = \"Garrison\"; JobUniverse = 1")
        .job("04:00", "Owner = \"jones\"; JobUniverse = 1");
    let outcome = lives("own_first.conf", day, "06:00");
    // It has run for two hours: its hour is over.
    assert_eq!(
        outcome.vacated("02:00", "02:00:10"),
        1,
        "{}",
        outcome.story()
    );
    assert_eq!(outcome.report.jobs[1].starts, 1);
    // The same is not more.
    assert_eq!(outcome.report.jobs[2].starts, 0);
    let day = Day::new()
        .job("00:00", JOB)
        .job("00:10", "Owner = \"jones\"; JobUniverse = 1");
    let outcome = lives("own_first.conf", day, "02:00");
    outcome.is(&[("00:12", "Claimed/Retiring"), ("00:49", "Claimed/Retiring")]);
    assert_eq!(
        outcome.vacated("00:50", "00:50:10"),
        1,
        "{}",
        outcome.story()
    );
}
