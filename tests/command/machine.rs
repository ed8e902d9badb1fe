//! `wayfarer machine`: this machine's ad.

use crate::station::{Station, text};
use std::fs;

fn run(station: &Station, line: &[&str]) -> String {
    let output = station.output(&[&["machine"], line].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn the_ad_of_this_machine_is_printed_in_each_form() {
    let station = Station::new();
    let table = run(&station, &[]);
    assert_eq!(table.lines().count(), 2, "{table}");
    assert!(
        table.contains("KEYBOARDIDLE") && table.contains("slot1@"),
        "{table}"
    );

    let json: serde_json::Value = serde_json::from_str(&run(&station, &["--json"])).expect("JSON");
    assert_eq!(
        (&json["schema_version"], &json["dialect"]),
        (&1.into(), &"25".into())
    );
    let ad = &json["ads"][0];
    assert_eq!(
        (&ad["OpSys"], &ad["State"]),
        (&"LINUX".into(), &"Owner".into())
    );
    assert!(ad["Mips"].is_null() && ad["LastBenchmark"] == 0, "{ad}");

    let fast = run(&station, &["--json", "--benchmark"]);
    let fast: serde_json::Value = serde_json::from_str(&fast).expect("JSON");
    let speed = |name: &str| fast["ads"][0][name].as_i64().expect("a number");
    assert!(speed("Mips") > 0 && speed("KFlops") > 0 && speed("LastBenchmark") > 0);
}

#[test]
fn the_ad_of_this_machine_is_one_that_expressions_are_evaluated_in() {
    let station = Station::new();
    let file = station.state.path().join("machine").display().to_string();
    let evaluate = |expr: &str| {
        let output = station.output(&["classad", "eval", expr, "--my", &file]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    fs::write(&file, run(&station, &["-l", "--dialect", "6.8"])).expect("a file");
    let platform = text(&station.output(&["platform"]).stdout);
    let is_ours = format!("CheckpointPlatform == \"{}\"", platform.trim());
    assert_eq!(evaluate(&is_ours), "true\n");
    let holds = "VirtualMachineID == 1 && CurrentTime - EnteredCurrentState < 600 && !CpuIsBusy";
    assert_eq!(evaluate(holds), "true\n");
    fs::write(&file, run(&station, &["-l"])).expect("a file");
    assert_eq!(
        evaluate("SlotID == 1 && CurrentTime is undefined"),
        "true\n"
    );
}

#[test]
fn who_touches_the_stamp_is_at_the_console() {
    let station = Station::new();
    let stamp = station.state.path().join("stamp");
    fs::write(&stamp, "").expect("a stamp");
    let stamp = stamp.display().to_string();
    let long = run(&station, &["-l", "--console-stamp", &stamp]);
    let idle = long
        .lines()
        .find_map(|line| line.strip_prefix("ConsoleIdle = "));
    let idle: i64 = idle.and_then(|idle| idle.parse().ok()).expect("a number");
    assert!(idle < 60, "found {idle}");
}

#[test]
fn what_cannot_be_measured_is_named() {
    let station = Station::new();
    let wrong = station.output(&["machine", "--execute", "/no/such/folder"]);
    assert_eq!(wrong.status.code(), Some(1));
    let said = text(&wrong.stderr);
    assert!(said.contains("the free room in /no/such/folder"), "{said}");
    let wrong = station.output(&["machine", "--dialect", "7"]);
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn what_is_offered_to_jobs_is_in_the_ad() {
    let station = Station::new();
    let file = station.state.path().join("config").display().to_string();
    fs::write(&file, "START = TARGET.Owner == \"ann\"\n").expect("a file");
    let ad = run(&station, &["-l", "--config", &file]);
    for name in ["Start = ", "Requirements = "] {
        assert!(
            ad.lines()
                .any(|line| line.starts_with(name) || line.starts_with(&name.to_uppercase())),
            "{name}: {ad}"
        );
    }
}
