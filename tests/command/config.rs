//! `wayfarer config`: values and where they are from, what is wrong.

use crate::station::{Station, text};
use std::fs;

const GLOBAL: &str = "\
use POLICY : ALWAYS_RUN_JOBS
START = ($(START)) && KeyboardIdle > $(StartIdleTime)
LOCAL_CONFIG_FILE = @DIR@/local
SUSPEND_VANILLA = False
";
const LOCAL: &str = "StartIdleTime = 7 * $(MINUTE)\nSTARTD.Room = \"x\"\n";

fn written(station: &Station, global: &str) -> String {
    let directory = station.state.path().display().to_string();
    fs::write(format!("{directory}/local"), LOCAL).expect("a file");
    let path = format!("{directory}/global");
    fs::write(&path, global.replace("@DIR@", &directory)).expect("a file");
    path
}

#[test]
fn a_value_is_shown_with_its_origin() {
    let station = Station::new();
    let path = written(&station, GLOBAL);
    let dump = |line: &[&str]| {
        let output = station.output(&[&["config", "dump", "--config", &path], line].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert_eq!(dump(&["start"]), "(True) && KeyboardIdle > 7 * 60\n");
    let verbose = dump(&["START", "--verbose"]);
    let lines: Vec<&str> = verbose.lines().collect();
    assert_eq!(lines[0], "START = (True) && KeyboardIdle > 7 * 60");
    assert_eq!(lines[1], format!(" # at: {path}, line 2"));
    assert_eq!(
        lines[2],
        " # raw: (True) && KeyboardIdle > $(StartIdleTime)"
    );
    let suspend = dump(&["SUSPEND", "-v"]);
    assert!(
        suspend.contains("line 1, use POLICY:ALWAYS_RUN_JOBS line"),
        "{suspend}"
    );
    assert!(dump(&["HOUR", "-v"]).contains("built in"));
    assert_eq!(dump(&["room"]), "\"x\"\n");
    let all = dump(&[]);
    assert!(
        all.contains("StartIdleTime = 7 * 60\n") && all.contains("MINUTE = 60\n"),
        "{all}"
    );
    let json: serde_json::Value = serde_json::from_str(&dump(&["start", "--json"])).expect("JSON");
    assert_eq!(json["schema_version"], 1);
    assert_eq!(json["settings"][0]["origin"]["line"], 2);
    assert_eq!(dump(&["StartIdleTime", "--dialect", "6.1"]), "7 * 60\n");
    assert_eq!(dump(&["MaxVacateTime", "--dialect", "6.1"]), "5 * 60\n");
    let missing = station.output(&["config", "dump", "--config", &path, "Nope"]);
    assert_eq!(missing.status.code(), Some(1));
}

#[test]
fn what_is_wrong_is_said_with_file_line_and_name() {
    let station = Station::new();
    let check = |global: &str, strict: bool, expected: Option<i32>| {
        let path = written(&station, global);
        let mut line = vec!["config", "check", "--config", &path];
        line.extend(strict.then_some("--strict"));
        let output = station.output(&line);
        assert_eq!(
            output.status.code(),
            expected,
            "{global}: {}",
            text(&output.stdout)
        );
        text(&output.stdout).replace(&path, "FILE")
    };
    assert_eq!(check(GLOBAL, true, Some(0)), "");
    let undefined = "A = 1\nSTART = $(Nope) True\n";
    let said = "FILE, line 2: START: Nope is not defined\n";
    assert_eq!(check(undefined, false, Some(0)), format!("warning: {said}"));
    assert_eq!(check(undefined, true, Some(1)), format!("error: {said}"));
    let circle = check("A = $(B)\n\nB = x $(A)\n", false, Some(1));
    assert!(
        circle.contains("error: FILE, line 1: A refers to itself: A -> B -> A\n"),
        "{circle}"
    );
    let expression = check("\nSUSPEND = (KeyboardIdle < 5\n", false, Some(1));
    assert!(
        expression.contains("FILE, line 2: SUSPEND is no expression: (KeyboardIdle < 5"),
        "{expression}"
    );
    let line = check("A = 1\nbogus\n", false, Some(1));
    assert!(line.starts_with("error: FILE, line 2: "), "{line}");
    let missing = station.output(&["config", "check", "--config", "/nope/file"]);
    assert_eq!(missing.status.code(), Some(2));
}

#[test]
fn the_environment_is_stronger_than_files() {
    let station = Station::new();
    let path = written(&station, GLOBAL);
    let mut command = station.wayfarer(&["config", "dump", "Room", "--config", &path]);
    let output = command
        .env("_CONDOR_STARTD.Room", "\"y\"")
        .output()
        .expect("an output");
    assert_eq!(text(&output.stdout), "\"y\"\n");
}

/// One setting each that startd, simulate and `run --policy` refuse.
#[test]
fn check_tells_with_file_and_line_what_the_others_refuse() {
    let station = Station::new();
    let trace = station.state.path().join("trace.csv").display().to_string();
    fs::write(
        &trace,
        "time,keyboard\n2026-11-23 08:00:00,0\n2026-11-23 08:01:00,0\n",
    )
    .expect("a trace");
    for (lines, place) in [
        ("NUM_CPUS = x", 1),
        ("MEMORY = 99999999999999999999", 1),
        ("POLLING_INTERVAL = -1", 1),
        ("KILLING_TIMEOUT = ((", 1),
        ("ENABLE_BACKFILL = perhaps", 1),
        ("SLOT_TYPE_1 = foo\nNUM_SLOTS_TYPE_1 = 1", 1),
        ("SLOT_TYPE_1 = foo=3\nNUM_SLOTS_TYPE_1 = 1", 1),
        ("NUM_SLOTS_TYPE_1 = 1\nSLOT_TYPE_1 = cpus=200%", 2),
        ("NUM_CPUS = 2\nNUM_SLOTS_TYPE_1 = 3", 2),
        ("CONSUMPTION_POLICY = True\nCONSUMPTION_CPUS = ((", 2),
        ("SLOT1_STARTD_ATTRS = Foo\nSLOT1_Foo = ((", 2),
    ] {
        let path = written(&station, &format!("{lines}\n"));
        let expected = format!("{path}, line {place}: ");
        let check = station.output(&["config", "check", "--config", &path]);
        let said = text(&check.stdout);
        assert_eq!(check.status.code(), Some(1), "{lines}: {said}");
        assert!(
            said.contains(&format!("error: {expected}")),
            "{lines}: {said}"
        );
        assert!(!said.contains("neither"), "{said}");
        for line in [
            vec!["policy", "simulate", "--config", &path, "--trace", &trace],
            vec!["policy", "explain", "START", "--config", &path],
        ] {
            let output = station.output(&line);
            let said = text(&output.stderr);
            assert!(!output.status.success(), "{line:?}: {lines}");
            assert!(said.contains(&expected), "{line:?}: {lines}: {said}");
        }
    }
}
