//! Job ads, read back by HTCondor's own reader, from its Python package, which `scripts/setup` puts into `TARGET/htcondor`.

use super::*;
use serde_json::{Value, json};
use std::process::Command;
use support::htcondor;

const SCRIPT: &str = r#"
import classad2, json, sys
ads = classad2.parseAds(open(sys.argv[1]).read(), classad2.ParserType.Old)
print(json.dumps([{name: ad.eval(name) for name in ad} for ad in ads]))
"#;

/// What has a meaning in an ad.
const WORDS: [&str; 7] = [
    "say \"so\"",
    "back\\slash\\",
    "both \\\" of them",
    "it's",
    "",
    "two\nlines\r\n\\n",
    "t\tab \u{1b} \u{e4}",
];
const REASON: &str = "its \"data\" are\nwrong, see C:\\new\\";

/// The ads that `ps -l` prints, as text and as the reader has them.
fn ads(job: &mut Job, python: &Path, names: &[&str]) -> Result<(String, Vec<Value>), String> {
    let text = ask(job, &[&["ps", "-l"], names].concat())?;
    let file = job.dir.join("ads");
    fs::write(&file, &text).map_err(|error| error.to_string())?;
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "120"]).arg(python);
    command.args(["-c", SCRIPT]).arg(&file);
    command.env("CONDOR_CONFIG", "/dev/null");
    let output = command.output().map_err(|error| error.to_string())?;
    let complained = String::from_utf8_lossy(&output.stderr);
    let read = serde_json::from_slice(&output.stdout);
    let ads = read.map_err(|error| format!("{error}: {complained}\n{text}"))?;
    Ok((text, ads))
}

/// The words of `Arguments`, as Condor parts them.
fn parted(text: &str) -> Vec<String> {
    let mut words = vec![];
    let mut word: Option<String> = None;
    let mut quoted = false;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\'' if quoted && rest.peek() == Some(&'\'') => {
                word.get_or_insert_default().extend(rest.next());
            }
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

#[test]
fn ads_come_back_through_condors_reader() {
    let what = "ads_come_back_through_condors_reader";
    let Some(python) = htcondor::reader(what, "classad2") else {
        return;
    };
    let words = [&["-c", CHAIN], &WORDS[..]].concat();
    let guest = Guest::new("ads", "/usr/bin/python3", &words);
    with_job(&guest, |job| {
        start(job, &["--every", "200ms"])?;
        until_images(job, 1)?;
        ask(job, &["suspend", "job"])?;
        until(job, "suspended", |status| status["State"] == "Suspended")?;
        let (_, found) = ads(job, &python, &["job"])?;
        if found[0]["JobStatus"] != 7 || found[0]["HasStarter"] != true {
            return Err(format!("{found:?}"));
        }
        ask(job, &["hold", "job", "--reason", REASON])?;
        expect_end(job, 1)?;
        ask(job, &["run", "--quiet", "--name", "plain", "--", "true"])?;
        let (text, found) = ads(job, &python, &[])?;
        let [held, plain] = found.as_slice() else {
            return Err(format!("found {found:?}, expected two ads\n{text}"));
        };
        if text.matches("\n\n").count() != 1 {
            return Err(format!("expected one blank line:\n{text}"));
        }
        // All that its status says, and no more than is known.
        let status = status_of(job)?;
        for (name, value) in status.as_object().into_iter().flatten() {
            let found = held.get(name);
            let expected = Some(value).filter(|value| !value.is_null());
            if name != "schema_version" && found != expected {
                return Err(format!(
                    "{name}: found {found:?}, expected {expected:?}\n{text}"
                ));
            }
        }
        let data = job.dir.join("data");
        let expected = json!({
            "MyType": "Job", "ClusterId": 1, "ProcId": 0, "JobStatus": 5, "State": "Held",
            "Cmd": "/usr/bin/python3", "Iwd": data.to_string_lossy(),
            "HoldReason": REASON, "HoldReasonCode": 1, "HasStarter": false,
            "QDate": held["JobStartDate"], "Owner": owner(&data),
        });
        for (name, value) in expected.as_object().into_iter().flatten() {
            if held[name] != *value {
                return Err(format!(
                    "{name}: found {}, expected {value}\n{text}",
                    held[name]
                ));
            }
        }
        let found = parted(held["Arguments"].as_str().unwrap_or_default());
        if found != words {
            return Err(format!("found {found:?}, expected {words:?}\n{text}"));
        }
        // Of a job that had no starter nobody has counted anything.
        let found = [&plain["ClusterId"], &plain["Name"], &plain["JobStatus"]];
        let counted = plain.get("NumJobStarts").or(plain.get("ExitBySignal"));
        if json!(found) != json!([2, "plain", 4]) || counted.is_some() || plain["QDate"] == 0 {
            return Err(text);
        }
        refused(job, &["ps", "-l", "nobody"], "no job nobody")?;
        refused(job, &["ps", "-l", "--json"], "cannot be used with")
    });
}

/// Whose directory it is.
fn owner(dir: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let uid = nix::unistd::Uid::from_raw(fs::metadata(dir).ok()?.uid());
    #[allow(
        clippy::disallowed_methods,
        reason = "test programs are linked dynamically"
    )]
    let user = nix::unistd::User::from_uid(uid).ok()??;
    Some(user.name)
}
