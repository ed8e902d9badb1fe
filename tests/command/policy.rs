//! `wayfarer policy`: a day of a policy, and why an expression has its value.

use crate::station::{Station, text};
use std::fs;

const POLICY: &str = "\
NUM_SLOTS = 1
SLOTS_CONNECTED_TO_KEYBOARD = 1
RunBenchmarks = False
START = KeyboardIdle > 15 * $(MINUTE) && TARGET.Owner != \"mallory\"
WANT_SUSPEND = True
SUSPEND = KeyboardIdle < $(MINUTE)
CONTINUE = KeyboardIdle > 5 * $(MINUTE)
PREEMPT = Activity == \"Suspended\" && $(ActivityTimer) > 10 * $(MINUTE)
WANT_VACATE = True
";
const TRACE: &str = "\
time,keyboard,load,job
2026-11-23 00:00:00,,0.1,\"[ Owner = \"\"ann\"\"; SimWork = 14400 ]\"
2026-11-23 01:00:00,0,,
2026-11-23 02:00:00,busy,0.7,
2026-11-23 02:30:00,0,0.1,
";

fn written(station: &Station, name: &str, contents: &str) -> String {
    let path = format!("{}/{name}", station.state.path().display());
    fs::write(&path, contents).expect("a file");
    path
}

#[test]
fn a_day_of_a_policy_is_told_counted_and_drawn() {
    let station = Station::new();
    let policy = written(&station, "policy", POLICY);
    let trace = written(&station, "trace.csv", TRACE);
    let plot = format!("{}/day.svg", station.state.path().display());
    let line = [
        "policy", "simulate", "--config", &policy, "--trace", &trace, "--until", "6h",
    ];
    let output = station.output(&[&line[..], &["--plot", &plot]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let told = text(&output.stdout);
    let has = |parts: &[&str]| {
        let found = told
            .lines()
            .any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found, "{parts:?}\n{told}");
    };
    has(&[
        "2026-11-23 01:00:00",
        "slot1",
        "Claimed/Busy -> Claimed/Suspended",
        "14",
        "SUSPEND is TRUE",
    ]);
    has(&[
        "2026-11-23 01:05:05",
        "Claimed/Suspended -> Claimed/Busy",
        "15",
    ]);
    has(&["Claimed/Retiring -> Preempting/Vacating", "18"]);
    has(&["slot1", "Claimed/Busy", "4:00:00"]);
    has(&["goodput 4:00:00, badput 0:00:00"]);
    let drawn = fs::read_to_string(&plot).expect("a plot");
    assert!(
        drawn.starts_with("<svg")
            && drawn.contains("Claimed/Suspended")
            && drawn.contains("slot 1"),
        "{drawn}"
    );
    let json = station.output(&[&line[..], &["--json"]].concat());
    let day: serde_json::Value = serde_json::from_str(&text(&json.stdout)).expect("JSON");
    assert_eq!(
        (&day["schema_version"], &day["goodput_s"], &day["badput_s"]),
        (&1.into(), &14400.into(), &0.into())
    );
    assert_eq!(day["jobs"][0]["starts"], 2);
    let numbers: Vec<_> = day["timeline"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|line| line["number"].as_u64())
        .collect();
    assert_eq!(numbers[..6], [1, 6, 9, 11, 14, 15]);
}

#[test]
fn a_policy_that_hears_no_keys_and_a_trace_that_is_none_are_said() {
    let station = Station::new();
    let policy = written(&station, "policy", "START = KeyboardIdle > 900\n");
    let trace = written(&station, "trace.csv", TRACE);
    let output = station.output(&["policy", "simulate", "--config", &policy, "--trace", &trace]);
    assert_eq!(output.status.code(), Some(0));
    let said = text(&output.stderr);
    assert!(said.contains("no slot with a job hears keys (SLOTS_CONNECTED_TO_KEYBOARD = 0), and KeyboardIdle is asked for by START"), "{said}");
    let wrong = written(&station, "wrong.csv", "time,load\n2026-11-23 00:00,much\n");
    let output = station.output(&["policy", "simulate", "--config", &policy, "--trace", &wrong]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("row 1 of the trace: load \"much\" is not a load average")
    );
    let wrong = written(&station, "wrong", "NUM_SLOTS = several\n");
    let output = station.output(&["policy", "simulate", "--config", &wrong, "--trace", &trace]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("NUM_SLOTS"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn the_policies_that_come_along_live_through_a_day() {
    let station = Station::new();
    let trace = written(&station, "trace.csv", TRACE);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/classad/policies");
    let policy = format!("{folder}/desktop.conf");
    let output = station.output(&[
        "policy", "simulate", "--config", &policy, "--cpus", "2", "--memory", "512", "--trace",
        &trace, "--until", "1d",
    ]);
    assert_eq!(
        (output.status.code(), text(&output.stderr).as_str()),
        (Some(0), "")
    );
    let told = text(&output.stdout);
    assert!(
        told.contains("slot1_1") && told.contains("goodput 4:00:00"),
        "{told}"
    );
}

#[test]
fn why_an_expression_has_its_value_is_said_term_by_term() {
    let station = Station::new();
    let policy = written(&station, "policy", POLICY);
    let my = written(&station, "my.ad", "KeyboardIdle = 34\n");
    let target = written(&station, "job.ad", "Owner = \"ann\"\n");
    let explain = |my: &str, more: &[&str]| {
        let line = [
            "policy", "explain", "START", "--config", &policy, "--my", my, "--target", &target,
        ];
        let output = station.output(&[&line[..], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let lines = explain(&my, &[]);
    let words: Vec<String> = lines
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        words,
        [
            "START false (MY)",
            "KeyboardIdle > 15 * 60 && TARGET.Owner != \"mallory\" false",
            "KeyboardIdle > 15 * 60 false",
            "KeyboardIdle 34 (MY)",
            "TARGET.Owner != \"mallory\" not looked at: what stands before it decides",
        ]
    );
    let idle = written(&station, "idle.ad", "KeyboardIdle = 1000\n");
    let lines = explain(&idle, &[]);
    assert!(
        lines.contains("(TARGET)") && lines.starts_with("START"),
        "{lines}"
    );
    let json: serde_json::Value = serde_json::from_str(&explain(&idle, &["--json"])).expect("JSON");
    assert_eq!(json["value"], "true");
    assert_eq!(
        json["parts"][0]["parts"][1]["parts"][0]["found_in"],
        "TARGET"
    );
    let output = station.output(&["policy", "explain", "1 +"]);
    assert_eq!(output.status.code(), Some(2));
    // What is not there is named.
    let named = |line: &[&str]| {
        let output = station.output(&[&["policy", "explain"], line].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let both = ["Keyboard", "--my", &my, "--target", &target];
    let said = named(&both);
    assert!(
        said.ends_with("undefined  (Keyboard is in neither ad)\n"),
        "{said}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&named(&[&both[..], &["--json"]].concat())).expect("JSON");
    assert_eq!(json["missing"], "Keyboard is in neither ad");
    let said = named(&["foo(3)", "--my", &my]);
    assert!(
        said.ends_with("error  (there is no function foo)\n"),
        "{said}"
    );
    // On this machine, now.
    let here = [
        "policy",
        "explain",
        "KeyboardIdle >= 0 && LoadAvg >= 0",
        "--config",
        &policy,
    ];
    let output = station.output(&here);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let first = text(&output.stdout)
        .lines()
        .next()
        .map(str::to_owned)
        .unwrap_or_default();
    assert!(first.ends_with("  true"), "{first}");
}

#[test]
fn whatever_the_machine_says_of_itself_can_be_explained() {
    let station = Station::new();
    let json = |line: &[&str]| -> serde_json::Value {
        let output = station.output(line);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        serde_json::from_str(&text(&output.stdout)).expect("JSON")
    };
    let policy = written(
        &station,
        "policy",
        "STARTD_NAME = here\nSTARTD_ATTRS = Room, IsNear\nRoom = \"B 12\"\nIsNear = Room == \"B 12\"\n",
    );
    for dialect in ["6.1", "6.8", "25"] {
        let which = ["--config", &policy, "--dialect", dialect, "--json"];
        let machine = json(&[&["machine"], &which[..]].concat());
        let ad = machine["ads"][0].as_object().expect("an ad");
        assert!(ad.len() > 30, "{machine}");
        let names: Vec<&str> = ad.keys().map(String::as_str).collect();
        let all = format!("{{ {} }}", names.join(", "));
        let why = json(&[&["policy", "explain", &all], &which[..]].concat());
        let parts = why["parts"].as_array().expect("terms");
        assert_eq!(parts.len(), names.len(), "{why}");
        for (name, part) in names.iter().zip(parts) {
            let value = part["value"].as_str().unwrap_or_default();
            // Without a job, what is wanted of jobs has no value.
            let of_jobs = ["IS_VALID_CHECKPOINT_PLATFORM", "Requirements"].contains(name);
            assert!(
                part["found_in"] == "MY" && (value != "undefined" || of_jobs) && value != "error",
                "{dialect}, {name}: {part}"
            );
            let same = [
                "Machine",
                "OpSys",
                "Arch",
                "UidDomain",
                "CheckpointPlatform",
                "Room",
                "TotalMemory",
                "DetectedCpus",
                "Microarch",
            ];
            if same.contains(name) {
                let value: serde_json::Value = serde_json::from_str(value).expect("a literal");
                assert_eq!(value, ad[*name], "{dialect}, {name}");
            }
        }
    }
    // Without a configuration, and with the ad of another machine.
    let why = json(&["policy", "explain", "Name", "--config", &policy, "--json"]);
    assert_eq!(why["value"], "\"slot1@here\"");
    let why = json(&["policy", "explain", "Memory > 0", "--json"]);
    assert_eq!(why["value"], "true");
    let my = written(&station, "my.ad", "KeyboardIdle = 34\n");
    let why = json(&["policy", "explain", "Memory", "--my", &my, "--json"]);
    assert_eq!(why["value"], "undefined");
}

#[test]
fn what_happens_here_is_recorded_as_a_trace_that_is_read_back() {
    let station = Station::new();
    let output = station.output(&["policy", "record", "--every", "1s", "--for", "1s"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let recorded = text(&output.stdout);
    let rows: Vec<&str> = recorded.lines().collect();
    assert_eq!(
        (rows.len(), rows[0]),
        (3, "time,keyboard,console,load,job,command"),
        "{recorded}"
    );
    let policy = written(&station, "policy", POLICY);
    let trace = written(&station, "here.csv", &recorded);
    let output = station.output(&[
        "policy", "simulate", "--config", &policy, "--trace", &trace, "--until", "1h",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = station.output(&["policy", "record", "--every", "10ms"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_job_is_transformed_then_asked_whether_it_may_come_in() {
    let station = Station::new();
    let policy = "\
JOB_TRANSFORM_NAMES = Memory, Docker
JOB_TRANSFORM_Memory = DEFAULT RequestMemory 600
JOB_TRANSFORM_Docker @=end
REQUIREMENTS WantSL6
SET Requirements TARGET.HasDocker && $(MY.Requirements)
@end
SUBMIT_REQUIREMENT_NAMES = OneGig, NotTwice
SUBMIT_REQUIREMENT_OneGig = RequestMemory > 1024
SUBMIT_REQUIREMENT_OneGig_REASON = strcat(\"only \", RequestMemory, \" MiB\")
SUBMIT_REQUIREMENT_OneGig_IS_WARNING = True
SUBMIT_REQUIREMENT_NotTwice = Twice =!= true
";
    let config = written(&station, "policy", policy);
    let job = "executable = /bin/true\nrequirements = Memory > 1\n+WantSL6 = true\n";
    let file = written(&station, "good.sub", job);
    let line = ["policy", "submit", "--config", &config];
    let output = station.output(&[&line[..], &[file.as_str()]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    for part in [
        "Requirements = TARGET.HasDocker && Memory > 1\n",
        "RequestMemory = 600\n",
        "# transformed by Memory\n# transformed by Docker\n",
        "# OneGig: warning: only 600 MiB\n# NotTwice: met\n",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    let twice = written(&station, "bad.sub", &format!("{job}+Twice = true\n"));
    let output = station.output(&[&line[..], &[twice.as_str()]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stdout)
            .contains("# NotTwice: refused: submit requirement NotTwice is not met\n")
    );
    for (file, status) in [(&file, 0), (&twice, 1)] {
        let output = station.output(&["startd", "submit", "--config", &config, file]);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{}",
            text(&output.stderr)
        );
    }
    let wrong = written(
        &station,
        "wrong",
        &format!("{policy}JOB_TRANSFORM_Memory = DEFAULT RequestMemory 1 +\n"),
    );
    let output = station.output(&["config", "check", "--config", &wrong]);
    assert_eq!(output.status.code(), Some(1));
    let place = format!(
        "error: {wrong}, line 12: JOB_TRANSFORM_Memory: DEFAULT RequestMemory 1 +: no expression"
    );
    assert!(
        text(&output.stdout).contains(&place),
        "{}",
        text(&output.stdout)
    );
}

#[test]
fn a_simulated_machine_has_the_devices_of_its_inventory() {
    let station = Station::new();
    let inventory = "MACHINE_RESOURCE_INVENTORY_GPUs = /bin/echo DetectedGPUs=\"GPU-a,GPU-b\"\n";
    let policy = format!("NUM_CPUS = 8\nSTART = True\nRunBenchmarks = False\n{inventory}");
    let policy = written(&station, "policy", &policy);
    let job = "2026-11-23 00:00:00,\"[ SimWork = 60; RequestGPUs = 1 ]\"\n";
    let trace = format!("time,job\n{}", job.repeat(3));
    let trace = written(&station, "trace.csv", &trace);
    let day = ["policy", "simulate", "--config", &policy, "--trace", &trace];
    let output = station.output(&[&day[..], &["--until", "1h"]].concat());
    let told = text(&output.stdout);
    assert!(told.contains("goodput 0:03:00"), "{told}");
    // Two have a device each, the third one of theirs when they are done.
    let began = |minute: &str| {
        let starts = |line: &&str| line.contains(minute) && line.contains("-> Claimed/Busy");
        told.lines().filter(starts).count()
    };
    assert_eq!((began(" 00:00:"), began(" 00:01:")), (2, 1), "{told}");
    let broken = "MACHINE_RESOURCE_INVENTORY_GPUs = /bin/false\n";
    let broken = written(&station, "broken", broken);
    let output = station.output(&["policy", "simulate", "--config", &broken, "--trace", &trace]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let expected = "MACHINE_RESOURCE_INVENTORY_GPUs = /bin/false: found status 1, expected 0";
    assert!(said.contains(expected), "{said}");
}

/// Current manual, "Defaults for Partitionable Slot Sizes", and the transform AssignGroup of "condor_schedd Policy Configuration".
#[test]
fn a_job_has_the_requests_and_the_group_that_the_configuration_gives_it() {
    let station = Station::new();
    let user = text(
        &std::process::Command::new("id")
            .arg("-un")
            .output()
            .expect("id")
            .stdout,
    );
    let user = user.trim();
    let map = written(
        &station,
        "groups",
        &format!("# who is where\n* {user} physics,chemistry\n"),
    );
    let policy = format!(
        "JOB_DEFAULT_REQUESTMEMORY = 300 + 12\nCLASSAD_USER_MAP_NAMES = Groups\nCLASSAD_USER_MAPFILE_Groups = {map}\n\
         JOB_TRANSFORM_NAMES = AssignGroup\nJOB_TRANSFORM_AssignGroup @=end\nEVALSET AcctGroup userMap(\"Groups\",Owner,AcctGroup)\n@end\n"
    );
    let config = written(&station, "policy", &policy);
    // Who he is is not the job's to say.
    let job =
        "executable = /bin/true\n+AcctGroup = \"chemistry\"\n+Owner = \"boss\"\nrequest_cpus = 2\n";
    let file = written(&station, "one.sub", job);
    let output = station.output(&["policy", "submit", "--config", &config, &file]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let owner = format!("Owner = \"{user}\"\n");
    for part in [
        "AcctGroup = \"chemistry\"\n",
        "RequestMemory = 300 + 12\n",
        "RequestCpus = 2\n",
        owner.as_str(),
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    let asked = format!("userMap(\"Groups\", \"{user}\")");
    let output = station.output(&["classad", "eval", &asked, "--config", &config]);
    assert_eq!(
        text(&output.stdout),
        "\"physics,chemistry\"\n",
        "{}",
        text(&output.stderr)
    );
    let wrong = written(&station, "wrong", &policy.replace(&map, "/nowhere"));
    let output = station.output(&["config", "check", "--config", &wrong]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    let place = format!("error: {wrong}, line 2: CLASSAD_USER_MAP_NAMES");
    assert!(said.contains(&place) && said.contains("/nowhere"), "{said}");
}

/// docs/POLICY.md: what says nothing is warned of; `IS_OWNER` ends the day.
#[test]
fn what_says_nothing_is_warned_of_in_a_simulated_day() {
    let station = Station::new();
    let trace = "time,job\n2026-11-23 00:00:00,\"[ SimWork = 600 ]\"\n2026-11-23 01:00:00,\n";
    let trace = written(&station, "day.csv", trace);
    let simulate = |policy: &str| {
        let config = written(&station, "policy", policy);
        let output =
            station.output(&["policy", "simulate", "--config", &config, "--trace", &trace]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let said = simulate("START = NoSuch\nRANK = NoSuch\n");
    let warned = |line: &&str| line.contains("START is undefined") && line.contains("it counts as");
    assert_eq!(said.lines().filter(warned).count(), 1, "{said}");
    let said = simulate("RANK = \"x\"\nCLAIM_WORKLIFE = NoSuch\n");
    for part in [
        "RANK is \"x\"",
        "it counts as 0",
        "CLAIM_WORKLIFE is undefined",
    ] {
        assert_eq!(said.matches(part).count(), 1, "{part}\n{said}");
    }
    let said = simulate("START = TRUE\nIS_OWNER = Foo\n");
    assert!(
        said.contains("IS_OWNER is undefined") && said.contains("shut down"),
        "{said}"
    );
    assert!(!said.contains("Claimed"), "{said}");
}

/// What a configuration says of one slot: in the simulation, and where somebody asks why.
#[test]
fn each_slot_goes_by_what_is_said_of_it() {
    let station = Station::new();
    let lines = "NUM_SLOTS = 2\nRunBenchmarks = False\nSTART = Color =?= \"green\"\nSTARTD_ATTRS = Color\nColor = \"blue\"\n\
                 SLOT2_Color = \"green\"\nSLOT1_STARTD_ATTRS = Taste\nTaste = 1\n";
    let policy = written(&station, "policy", lines);
    let old = lines
        .replace("SLOT", "VM")
        .replace("NUM_VMS", "NUM_VIRTUAL_MACHINES");
    let old = written(&station, "old", &old);
    let trace = written(&station, "trace.csv", TRACE);
    for (policy, dialect, prefix) in [(&policy, "25", "slot"), (&old, "6.8", "vm")] {
        let which = ["--config", policy, "--dialect", dialect, "--cpus", "2"];
        let line = [
            &["policy", "simulate", "--trace", &trace, "--json"],
            &which[..],
        ]
        .concat();
        let output = station.output(&line);
        let day: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let busy: Vec<_> = day["places"]
            .as_array()
            .expect("a list")
            .iter()
            .filter(|spent| spent["place"] == "Claimed/Busy")
            .map(|spent| spent["slot"].clone())
            .collect();
        assert_eq!(busy, [format!("{prefix}2")], "{day}");
        let explained = |expr: &str, slot: &str| {
            let line = [&["policy", "explain", expr, "--slot", slot], &which[..]].concat();
            let output = station.output(&line);
            let told = text(&output.stdout);
            let value = told
                .lines()
                .next()
                .unwrap_or_default()
                .split_whitespace()
                .nth(1);
            value.unwrap_or_default().to_owned()
        };
        assert_eq!(
            ["1", "2"].map(|slot| explained("START", slot)),
            ["false", "true"]
        );
        assert_eq!(
            ["1", "2"].map(|slot| explained("Taste", slot)),
            ["1", "undefined"]
        );
    }
}

#[test]
fn why_a_simulated_job_never_starts_is_said() {
    let station = Station::new();
    let policy = written(
        &station,
        "policy",
        "NUM_SLOTS = 1\nRunBenchmarks = False\nSTART = TARGET.Owner != \"mallory\" && TARGET.Fits\n",
    );
    let trace = written(
        &station,
        "trace.csv",
        "time,job\n\
         2026-11-23 00:00:00,\"[ Fits = true; RequestCpus = 99 ]\"\n\
         2026-11-23 00:00:00,\"[ Fits = true; RequestMemory = \"\"much\"\" ]\"\n\
         2026-11-23 00:00:00,\"[ Owner = \"\"ann\"\" ]\"\n\
         2026-11-23 00:00:00,\"[ Fits = true; Requirements = TARGET.Nothing ]\"\n\
         2026-11-23 00:00:00,\"[ Fits = true ]\"\n\
         2026-11-23 00:00:00,\"[ Fits = true ]\"\n",
    );
    let line = [
        "policy", "simulate", "--config", &policy, "--cpus", "2", "--memory", "512", "--trace",
        &trace, "--until", "1h",
    ];
    let day = station.json(&[&line[..], &["--json"]].concat());
    let why = |job: usize| day["jobs"][job]["why"].to_string();
    assert_eq!(
        why(0),
        r#"["slot1: the job asks for 99 Cpus, and there are 2"]"#
    );
    assert!(why(1).contains("the job's RequestMemory is"), "{}", why(1));
    assert_eq!(why(2), r#"["slot1: START is undefined: TARGET.Fits"]"#);
    assert!(
        why(3).contains("the job's Requirements are undefined: TARGET.Nothing"),
        "{}",
        why(3)
    );
    assert_eq!(why(4), "[]", "{day}");
    assert_eq!(why(5), r#"["slot1: it is Claimed/Busy"]"#);
    let told = text(&station.output(&line).stdout);
    assert!(
        told.contains("WHY") && told.contains("START is undefined: TARGET.Fits"),
        "{told}"
    );
}
