//! `wayfarer classad`: values, matches, syntaxes.

use crate::station::{Station, text};
use std::fs;

const MACHINE: &str =
    "Memory = 64\nOpSys = \"LINUX\"\nRequirements = target.Owner == \"ann\"\nRank = 3\n";
const JOB: &str = "[ Owner = \"Ann\"; Requirements = Memory > 32; Rank = target.Memory ]";

fn path(station: &Station, name: &str) -> String {
    station.state.path().join(name).display().to_string()
}

#[test]
fn expressions_are_evaluated_in_ads() {
    let station = Station::new();
    let (machine, job) = (path(&station, "machine"), path(&station, "job"));
    fs::write(&machine, MACHINE).expect("a file");
    fs::write(&job, JOB).expect("a file");
    let eval = |line: &[&str]| {
        let files = ["--my", machine.as_str(), "--target", job.as_str()];
        let output = station.output(&[&["classad", "eval"], line, &files].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert_eq!(eval(&["Memory * 2"]), "128\n");
    assert_eq!(
        eval(&["strcat(target.Owner, 1.5)"]),
        "\"Ann1.500000000000000E+00\"\n"
    );
    assert_eq!(eval(&["-1"]), "-1\n");
    assert_eq!(eval(&["nothing"]), "undefined\n");
    let json = eval(&["{ 1, \"a\" }", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["schema_version"], 1);
    assert_eq!(
        (&json["type"], &json["value"][1]),
        (&"list".into(), &"a".into())
    );
    let now = eval(&["time() > 1700000000 && random(10) < 10"]);
    assert_eq!(now, "true\n");
    let wrong = station.output(&["classad", "eval", "1 +"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("at byte 3"));
}

#[test]
fn ads_that_accept_each_other_match() {
    let station = Station::new();
    let (machine, job) = (path(&station, "machine"), path(&station, "job"));
    fs::write(&machine, MACHINE).expect("a file");
    fs::write(&job, JOB).expect("a file");
    let output = station.output(&["classad", "match", &machine, &job, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["matches"], true);
    assert_eq!(
        (&report["a_ranks_b"], &report["b_ranks_a"]),
        (&3.0.into(), &64.0.into())
    );
    let output = station.output(&["classad", "match", &machine, &machine]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("refuses"));
}

#[test]
fn ads_go_from_each_syntax_to_each() {
    let station = Station::new();
    let print = |from: &str, syntax: &str| {
        let file = path(&station, "ad");
        fs::write(&file, from).expect("a file");
        let output = station.output(&["classad", "print", &file, "--syntax", syntax]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let (new, json) = (print(MACHINE, "new"), print(MACHINE, "json"));
    assert!(
        new.starts_with("[ Rank = 3; OpSys = \"LINUX\"; Memory = 64; "),
        "{new}"
    );
    for text in [&new, &json] {
        assert_eq!(print(text, "new"), new);
        assert_eq!(print(text, "json"), json);
        assert_eq!(print(text, "old"), print(MACHINE, "old"));
    }
}

/// The name services of `nsswitch.conf` are not for a static program.
#[test]
fn a_user_whom_the_file_does_not_have_has_no_home() {
    let station = Station::new();
    let home = |user: &str| {
        let expr = format!("userHome(\"{user}\", \"def\")");
        let output = station.output(&["classad", "eval", &expr]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert_eq!(home("nosuchuser"), "\"def\"\n");
    assert_eq!(home("root"), "\"/root\"\n");
}

#[test]
fn a_file_that_is_too_large_is_an_error() {
    let station = Station::new();
    let large = path(&station, "large");
    fs::write(&large, "a = 1\n".repeat(3 << 20)).expect("a file");
    for line in [
        vec!["classad", "print", &large],
        vec!["classad", "eval", "a", "--my", &large],
    ] {
        let output = station.output(&line);
        assert_eq!(output.status.code(), Some(2), "{line:?}");
        let expected = format!("{large}: 18874368 bytes, at most 16777216 bytes are read");
        assert!(
            text(&output.stderr).contains(&expected),
            "{}",
            text(&output.stderr)
        );
    }
}
