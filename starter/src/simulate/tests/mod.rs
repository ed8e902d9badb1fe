//! Traces, and days by hand.

use super::run::{Limits, simulate_within};
use super::*;
use crate::machine::{Detected, Dialect, UserMaps};
use classad::{ClassAd, parse_ad};
use proptest::prelude::*;
use std::sync::Arc;

const TRACE: &str = "time,keyboard,console,load,job,command
# A Monday.
2026-11-23 00:00:00,,,0.1,\"[ Owner = \"\"ann\"\"; SimWork = 7200 ]\",
2026-11-23 01:00,0,,,,
2026-11-23 02:00:00,busy,busy,,,
2026-11-23 02:30:00,0,0,,,
2026-11-23 03:00:00,,,,,drain quick resume
";

fn day(trace: &Trace, lines: &[(&str, &str)], seconds: i64) -> Report {
    day_within(trace, lines, seconds, Limits::USUAL).expect("a day")
}

fn day_within(
    trace: &Trace,
    lines: &[(&str, &str)],
    seconds: i64,
    limits: Limits,
) -> Result<Report, Fault> {
    let settings = |name: &str| {
        let found = lines
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| (*value).to_owned())
    };
    let setting = Setting {
        dialect: Dialect::V25,
        detected: Detected {
            cpus: 1,
            memory_mib: 1024,
            disk_kib: 1 << 20,
            swap_kib: 0,
            inventories: vec![],
        },
        seconds: Some(seconds),
        attributes: ClassAd::new(),
        users: UserMaps::default(),
    };
    simulate_within(&settings, &setting, trace, limits)
}

#[test]
fn a_trace_is_read_and_printed() {
    let trace = Trace::parse(TRACE.as_bytes()).expect("a trace");
    assert_eq!(trace.rows.len(), 5);
    assert_eq!(civil(trace.rows[1].at), "2026-11-23 01:00:00");
    assert_eq!(
        (trace.rows[2].keyboard, trace.rows[3].console),
        (Some(Keys::Busy), Some(Keys::Idle(0)))
    );
    let printed = trace.to_string();
    assert_eq!(
        Trace::parse(printed.as_bytes()).expect("a trace"),
        trace,
        "{printed}"
    );
}

#[test]
fn what_is_no_trace_is_refused_with_its_row() {
    for (text, part) in [
        ("", "no time"),
        ("keyboard\n0\n", "no time"),
        ("time,mouse\n0,1\n", "\"mouse\" is no column"),
        ("time,load\nnoon,1\n", "row 1 of the trace: time \"noon\""),
        ("time,load\n10,1\n5,1\n", "row 2 of the trace is earlier"),
        (
            "time,load\n10,much\n",
            "load \"much\" is not a load average",
        ),
        ("time,keyboard\n10,-4\n", "keyboard \"-4\""),
        ("time,job\n10,[\n", "row 1 of the trace: the job is no ad"),
        ("time,command\n10,reboot\n", "command \"reboot\""),
        ("time,load\n10\n", "no CSV"),
    ] {
        let error = Trace::parse(text.as_bytes())
            .err()
            .unwrap_or_else(|| panic!("{text}"));
        assert!(error.to_string().contains(part), "{text}: {error}");
    }
}

#[test]
fn a_day_is_counted_to_the_second() {
    let trace = Trace::parse(TRACE.as_bytes()).expect("a trace");
    let lines = [
        ("NUM_SLOTS", "1"),
        ("RunBenchmarks", "FALSE"),
        ("WANT_SUSPEND", "TRUE"),
        ("SUSPEND", "KeyboardIdle < 60"),
        ("CONTINUE", "KeyboardIdle > 300"),
        ("PERIODIC_CHECKPOINT", "FALSE"),
    ];
    let report = day(&trace, &lines, 6 * 3600);
    let all: i64 = report.spent.values().sum();
    assert_eq!(all, 6 * 3600);
    let job = &report.jobs[0];
    // Two hours of work, five minutes and 35 minutes of standing still, in steps of five seconds.
    assert!((2400..2430).contains(&job.suspended), "{job:?}");
    assert_eq!((job.goodput, job.badput, job.starts), (7200, 0, 1));
    let done = job.done.expect("it is done");
    assert_eq!(done - job.came, 7200 + job.suspended);
    assert_eq!(report, day_again(&trace, &lines), "the same day twice");
}

fn day_again(trace: &Trace, lines: &[(&str, &str)]) -> Report {
    day(trace, lines, 6 * 3600)
}

#[test]
fn work_without_an_image_is_lost_and_said() {
    let job = |ad: &str| Some(Arc::new(parse_ad(ad).expect("an ad")));
    let row = |at, job, command| Row {
        at,
        job,
        command,
        ..Row::default()
    };
    let at = moment("2026-11-23 00:00").expect("a moment");
    for (ad, lost) in [
        ("[ JobUniverse = 5 ]", 3600),
        ("[ JobUniverse = 1; SimVacate = 10 ]", 0),
        ("[ JobUniverse = 1; SimVacate = 900 ]", 3600),
    ] {
        let vacate = Command::Vacate { fast: false };
        let trace = Trace {
            rows: vec![row(at, job(ad), None), row(at + 3600, None, Some(vacate))],
        };
        let report = day(
            &trace,
            &[("NUM_SLOTS", "1"), ("RunBenchmarks", "FALSE")],
            3 * 3600,
        );
        assert_eq!(report.badput(), lost, "{ad}");
        assert_eq!(report.jobs[0].starts, 2);
    }
}

#[test]
fn a_job_that_is_held_goes_on_when_it_is_released() {
    let trace = Trace::parse(
        &b"time,job,command
2026-11-23 00:00:00,\"[ Owner = \"\"ann\"\"; SimWork = 7200; ImageSize = 102400 ]\",
2026-11-23 03:00:00,,release
"[..],
    )
    .expect("a trace");
    // After an hour, once.
    let lines = [
        ("NUM_SLOTS", "1"),
        ("RunBenchmarks", "FALSE"),
        ("PERIODIC_CHECKPOINT", "FALSE"),
        ("PREEMPT", "NumCkpts == 0 && TotalJobRunTime >= 3600"),
        ("WANT_HOLD", "TRUE"),
        ("WANT_HOLD_REASON", "\"an hour is enough\""),
    ];
    let report = day(&trace, &lines, 2 * 3600);
    let job = &report.jobs[0];
    assert_eq!(job.held.as_deref(), Some("an hour is enough"));
    assert_eq!(
        (job.starts, job.images, job.done, job.badput),
        (1, 1, None, 0)
    );
    assert!((3600..3700).contains(&job.goodput), "{job:?}");
    let report = day(&trace, &lines, 6 * 3600);
    let job = &report.jobs[0];
    assert_eq!((job.starts, job.held.as_deref()), (2, None));
    assert_eq!((job.goodput, job.badput), (7200, 0));
    let again = report.place_at(crate::machine::SlotId::of(1), trace.rows[1].at);
    let busy = again.map(|place| place.to_string());
    assert_eq!(busy.as_deref(), Some("Claimed/Busy"));
}

#[test]
fn more_than_one_job_of_an_owner_share_a_claim() {
    let at = moment("2026-11-23 00:00").expect("a moment");
    let job = parse_ad("[ Owner = \"ann\"; SimWork = 100 ]").expect("an ad");
    let row = Row {
        at,
        job: Some(Arc::new(job)),
        ..Row::default()
    };
    let trace = Trace {
        rows: vec![row.clone(), row.clone(), row],
    };
    let report = day(
        &trace,
        &[("NUM_SLOTS", "1"), ("RunBenchmarks", "FALSE")],
        1000,
    );
    assert!(report.jobs.iter().all(|job| job.done.is_some()));
    let claims = report
        .changes()
        .filter(|change| change.transition.number == Some(9))
        .count();
    assert_eq!(claims, 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(7), ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_a_trace_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Trace::parse(&bytes);
        let with_head = [b"time,keyboard,console,load,job,command\n".as_slice(), &bytes].concat();
        if let Ok(trace) = Trace::parse(&with_head) {
            let again = Trace::parse(trace.to_string().as_bytes()).expect("what is printed is read");
            prop_assert_eq!(again, trace);
        }
    }
}

#[test]
fn a_policy_that_goes_round_in_circles_ends() {
    let trace = Trace::parse(TRACE.as_bytes()).expect("a trace");
    // A job stands still and goes on in turn, once each second.
    let restless = [
        ("START", "TRUE"),
        ("WANT_SUSPEND", "TRUE"),
        ("SUSPEND", "TRUE"),
        ("CONTINUE", "TRUE"),
        ("POLLING_INTERVAL", "1"),
        ("RunBenchmarks", "FALSE"),
        ("NUM_SLOTS", "1"),
    ];
    let within = |lines: &[(&str, &str)], steps, questions| {
        let limits = Limits { steps, questions };
        let ended = day_within(&trace, lines, 3600, limits);
        ended.map(|_| ()).map_err(|fault| fault.to_string())
    };
    let error = within(&restless, 1000, 1000).expect_err("too many moments");
    let expected = "more than 1000 things happen before 2026-11-23 00:";
    assert!(error.starts_with(expected), "{error}");
    assert_eq!(within(&restless, 10_000, 1000), Ok(()));
    // Nobody is let in, and asks once a minute.
    let closed = [("START", "FALSE"), ("NUM_SLOTS", "1")];
    let error = within(&closed, 10_000, 10).expect_err("too many questions");
    let expected = "more than 10 things happen before 2026-11-23 00:1";
    assert!(error.starts_with(expected), "{error}");
    assert_eq!(within(&closed, 10_000, 100), Ok(()));
}

#[test]
fn a_trace_that_never_ends_is_refused() {
    let mut text = "time,load\n".to_owned();
    for _ in 0..=1_000_000 {
        text.push_str("5,0\n");
    }
    let error = Trace::parse(text.as_bytes()).expect_err("too many rows");
    assert_eq!(error.to_string(), "the trace has more than 1000000 rows");
    let text = text.strip_suffix("5,0\n").expect("a row");
    assert!(Trace::parse(text.as_bytes()).is_ok());
}

#[test]
fn a_drain_of_a_simulated_day_has_the_start_of_the_configuration() {
    let text = "time,job,command
2026-11-23 00:00:00,\"[ Owner = \"\"ann\"\"; SimWork = 3600 ]\",
2026-11-23 00:10:00,,drain graceful
2026-11-23 00:11:00,\"[ Owner = \"\"bob\"\"; SimWork = 60 ]\",
";
    let trace = Trace::parse(text.as_bytes()).expect("a trace");
    let done = |start: &str| {
        let lines = [
            ("START", "TRUE"),
            ("MAXJOBRETIREMENTTIME", "7200"),
            ("DEFRAG_DRAINING_START_EXPR", start),
            ("NUM_SLOTS", "2"),
            ("NUM_CPUS", "2"),
        ];
        let report = day(&trace, &lines, 7200);
        report.jobs.iter().filter(|job| job.done.is_some()).count()
    };
    assert_eq!(done("FALSE"), 1);
    assert_eq!(done("TARGET.Owner == \"bob\""), 2);
}

#[test]
fn what_a_trace_says_twice_or_in_vain_is_an_error() {
    for (trace, expected) in [
        (
            "time,time\n2026-11-23 00:00,2026-11-23 00:00\n",
            "the trace's first line: time is there twice",
        ),
        (
            "time,job\n2026-11-23 00:00,\"[ SimWork = \"\"x\"\" ]\"\n",
            "row 1 of the trace: SimWork is \"x\", expected a whole number of seconds",
        ),
        (
            "time,job\n2026-11-23 00:00,[ SimVacate = 1 / 0 ]\n",
            "row 1 of the trace: SimVacate is error, expected a whole number of seconds",
        ),
    ] {
        let error = Trace::parse(trace.as_bytes()).expect_err(trace);
        assert_eq!(error.to_string(), expected);
    }
    assert!(Trace::parse(b"time,job\n2026-11-23 00:00,[ SimWork = 60 * 60 ]\n").is_ok());
}
