//! HTCondor's own library, from its Python package, which `scripts/setup` puts into `TARGET/htcondor`: it reads our ads, and says the same
//! about this machine.

use crate::{ads, skip};
use serde_json::Value;
use starter::measure::Dialect;
use std::path::PathBuf;
use std::process::Command;

const READ: &str = r#"
import classad2, json, sys
ads = classad2.parseAds(open(sys.argv[1]).read(), classad2.ParserType.Old)
print(json.dumps([{name: ad.eval(name) for name in ad} for ad in ads]))
"#;

const ASK: &str = r#"
import htcondor2, json, sys
print(json.dumps({name: str(htcondor2.param[name]) for name in sys.argv[1:]}))
"#;

fn python(test: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().expect("the test program");
    // TARGET/PROFILE/deps/TEST
    let python = own.ancestors().nth(3)?.join("htcondor/bin/python");
    let mut command = Command::new("timeout");
    command.arg("60").arg(&python);
    command.args(["-c", "import htcondor2, classad2"]);
    if command.output().is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    let python = python.display();
    let reason = format!("{python} has no htcondor2: run scripts/setup where PyPI is reached");
    skip::note(test, &reason);
    None
}

fn run(python: &PathBuf, script: &str, arguments: &[&str]) -> Value {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "120"]).arg(python);
    command.args(["-c", script]).args(arguments);
    command.env("CONDOR_CONFIG", "/dev/null");
    let output = command.output().expect("runs");
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complained}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn ads_of_machines_come_back_through_condors_reader() {
    let Some(python) = python("ads_of_machines_come_back_through_condors_reader") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ads");
    for dialect in Dialect::ALL {
        let ads = ads(dialect);
        std::fs::write(&file, ads[0].to_old().into_bytes()).expect("a file");
        let found = run(&python, READ, &[&file.to_string_lossy()]);
        let found = found[0].as_object().expect("an ad");
        assert_eq!(found.len(), ads[0].len(), "{found:?}");
        for (name, expr) in ads[0].iter() {
            let context = classad::Context::new(&classad::Nowhere).with_my(ads[0].clone());
            let value = context.eval(expr).expect("a value").to_json().to_string();
            let ours: Value = serde_json::from_str(&value).expect("JSON");
            let theirs = &found[&name.to_string()];
            // It is another second there.
            if name.to_string() != "CurrentTime" {
                assert_eq!(*theirs, ours, "{name}");
            }
        }
    }
}

#[test]
fn the_original_says_the_same_about_this_machine() {
    let Some(python) = python("the_original_says_the_same_about_this_machine") else {
        return;
    };
    let names = [
        ("Arch", "ARCH"),
        ("OpSys", "OPSYS"),
        ("OpSysAndVer", "OPSYSANDVER"),
        ("OpSysVer", "OPSYSVER"),
        ("OpSysMajorVer", "OPSYSMAJORVER"),
        ("OpSysName", "OPSYSNAME"),
        ("OpSysLongName", "OPSYSLONGNAME"),
        ("OpSysShortName", "OPSYSSHORTNAME"),
        ("OpSysLegacy", "OPSYSLEGACY"),
        ("DetectedCpus", "DETECTED_CPUS"),
        ("DetectedMemory", "DETECTED_MEMORY"),
        ("UtsnameSysname", "UTSNAME_SYSNAME"),
        ("UtsnameNodename", "UTSNAME_NODENAME"),
        ("UtsnameRelease", "UTSNAME_RELEASE"),
        ("UtsnameVersion", "UTSNAME_VERSION"),
        ("UtsnameMachine", "UTSNAME_MACHINE"),
    ];
    let asked: Vec<&str> = names.iter().map(|(_, theirs)| *theirs).collect();
    let theirs = run(&python, ASK, &asked);
    let ad = &ads(Dialect::V25)[0];
    for (ours, name) in names {
        let expr = ad.get(ours).unwrap_or_else(|| panic!("has no {ours}"));
        let ours = expr.to_string();
        let expected = theirs[name].as_str().expect("a text");
        assert_eq!(ours.trim_matches('"'), expected, "{name}");
    }
}
