//! What `doctor` says of machines that lack something.

use super::support::run::{self, clean_command};
use super::support::skip;
use super::support::stage;
use super::support::user::User;
use super::tool;
use std::time::Duration;

/// `doctor --json` on a machine with this lack (none: on this one), and its exit status.
fn examined(lack: Option<&str>) -> (Option<i32>, serde_json::Value) {
    let doctor = ["doctor", "--json", "--dir", "/tmp/none"];
    let mut command = match lack {
        Some(lack) => {
            let mut command = clean_command(tool());
            command.args([lack, "--"]).arg(stage::wayfarer());
            command
        }
        None => clean_command(stage::wayfarer()),
    };
    command.args(doctor);
    let ended = run::finish("doctor", command, User::Ordinary, Duration::from_secs(30));
    let (status, run) = ended.expect("ends");
    let said = run.out.text();
    let report = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    (status.code(), report)
}

/// What a machine was found to have: "good", "absent" or "unknown".
fn verdict(report: &serde_json::Value, fact: &str) -> String {
    let facts = report["facts"].as_array().expect("facts");
    let found = facts.iter().find(|found| found["name"] == fact);
    let found = found.unwrap_or_else(|| panic!("no fact {fact} in {report}"));
    found["verdict"].as_str().expect("verdict").to_owned()
}

/// `doctor` says what is missing, without a job: what a whole machine has and this one lacks.
#[test]
fn doctor_names_the_lacks() {
    if let Some(reason) = User::Ordinary.missing() {
        return skip::note("doctor_names_the_lacks", &reason);
    }
    let (_, whole) = examined(None);
    for (lack, absent, usable) in [
        ("old-kernel", &["pagemap_scan", "timer_ids"][..], true),
        ("no-namespaces", &["user_namespace"], true),
        (
            "docker",
            &["pidfd_getfd", "kcmp", "user_namespace", "userfaultfd"],
            false,
        ),
        ("docker-ptrace", &["user_namespace", "userfaultfd"], true),
        ("no-attach", &["attach"], false),
        ("no-userfaultfd", &["userfaultfd"], true),
    ] {
        let (code, report) = examined(Some(lack));
        for fact in absent {
            if verdict(&whole, fact) != "good" {
                let reason = format!("{fact} is not there without it either");
                skip::note(&format!("doctor on {lack}"), &reason);
            }
            assert_eq!(verdict(&report, fact), "absent", "{lack}: {fact}");
        }
        if whole["usable"] == true {
            assert_eq!(report["usable"], usable, "{lack}");
            assert_eq!(code, Some(if usable { 0 } else { 3 }), "{lack}");
        }
    }
}

/// The same in words: the verdict first, then what makes it impossible, with what to do.
#[test]
fn doctor_says_in_words_why_a_machine_is_of_no_use() {
    if let Some(reason) = User::Ordinary.missing() {
        return skip::note("doctor_says_in_words", &reason);
    }
    let mut command = clean_command(tool());
    command.args(["docker", "--"]).arg(stage::wayfarer());
    command.args(["doctor", "--dir", "/tmp/none"]);
    let ended = run::finish("doctor", command, User::Ordinary, Duration::from_secs(30));
    let (status, run) = ended.expect("ends");
    assert_eq!(status.code(), Some(3), "{}", run.describe());
    let said = run.out.text();
    let head: Vec<&str> = said.lines().take(6).collect();
    assert!(
        head[0].starts_with("Jobs cannot be checkpointed and restarted"),
        "{said}"
    );
    assert!(
        head[1].is_empty() || head[1].starts_with("What makes it impossible"),
        "{said}"
    );
    assert!(
        head.concat().contains("pidfd_getfd") && said.contains("--cap-add SYS_PTRACE"),
        "{said}"
    );
}
