//! What HTCondor's reader makes of our logs.

use crate::kinds;
use crate::reader::{here, read};
use crate::{append, child, given, job, passed, winter};
use starter::events::{Event, EventLog};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Half a year.
const SUMMER: Duration = Duration::from_secs(182 * 86400);
/// Local time that needs no files: five hours and a half behind, and one less in summer.
const ZONE: &str = "AAA5:30BBB,M3.2.0,M11.1.0";

#[test]
fn every_kind_is_read_back_with_its_fields() {
    let Some(python) = here("events as HTCondor reads them") else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    let mut command = child("readback::every_kind", &log, "");
    passed(&command.env("TZ", ZONE).output().expect("runs"));
    let text = fs::read_to_string(&log).expect("reads");
    assert!(text.contains(") 2025-12-31 18:30:00 "), "{text}");
    assert!(text.contains(") 2026-07-01 19:30:00 "), "{text}");

    let found = read(&python, ZONE, &[log]).remove(0);
    assert_eq!(found.errors, 0);
    let all = kinds::all();
    assert_eq!(found.events.len(), 2 * all.len());
    let mut kinds = BTreeSet::new();
    for (at, found) in found.events.iter().enumerate() {
        let (event, fields) = &all[at % all.len()];
        kinds.insert(event.number());
        let when = if at < all.len() {
            winter()
        } else {
            winter() + SUMMER
        };
        let when = when.duration_since(std::time::UNIX_EPOCH).expect("after");
        let (number, cluster) = (event.number().to_string(), at.to_string());
        let seconds = when.as_secs().to_string();
        let mut fields: Vec<(&str, &str)> = fields.clone();
        fields.extend([
            ("EventTypeNumber", number.as_str()),
            ("Cluster", &cluster),
            ("Proc", "0"),
            ("Subproc", "0"),
            ("Timestamp", &seconds),
        ]);
        for (name, value) in &fields {
            assert_eq!(
                found.get(*name).map(String::as_str),
                Some(*value),
                "{name} of {event:?}: {found:?}"
            );
        }
        // Nothing is read that was not written.
        for name in [
            "Reason",
            "HoldReason",
            "ReasonCode",
            "ReturnValue",
            "TerminatedBySignal",
            "CoreFile",
        ] {
            let meant = fields.iter().any(|(field, _)| *field == name);
            assert_eq!(found.contains_key(name), meant, "{name} of {event:?}");
        }
    }
    assert_eq!(
        kinds.into_iter().collect::<Vec<_>>(),
        [0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 22, 23, 24]
    );
}

#[test]
#[ignore = "writes a log in another time zone, for the test above"]
fn every_kind() {
    let log = given();
    let all = kinds::all();
    let mut cluster = 0;
    for at in [winter(), winter() + SUMMER] {
        for (event, _) in &all {
            log.append(job(cluster), at, event).expect("is written");
            cluster += 1;
        }
    }
}

/// A log with an event before, so much of this one as there is, and two of which the first ends what was torn.
fn torn(dir: &tempfile::TempDir, name: &str, half: &[u8]) -> PathBuf {
    let path = dir.path().join(name);
    let log = EventLog::open(&path).expect("opens");
    append(&log, 1, &Event::Unsuspended);
    let before = fs::read(&path).expect("reads");
    fs::write(&path, [&before, half].concat()).expect("writes");
    append(&log, 3, &Event::Unsuspended);
    append(&log, 4, &Event::Unsuspended);
    path
}

/// The text of this event, of job 2.
fn text(event: &Event) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("log");
    append(&EventLog::open(&path).expect("opens"), 2, event);
    fs::read(&path).expect("reads")
}

/// Cut in its number, in and behind each of its lines, and in its end.
#[test]
fn behind_a_torn_event_the_reader_goes_on() {
    let Some(python) = here("torn events as HTCondor reads them") else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let (mut logs, mut whole) = (vec![], vec![]);
    for (at, (event, _)) in kinds::all().iter().enumerate() {
        let text = text(event);
        let mut cuts = BTreeSet::from([1, 2, 3, 7]);
        cuts.extend(text.len() - "\n...\n".len()..text.len());
        for (at, _) in text.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
            cuts.extend([at - 2, at, at + 1, at + 2]);
        }
        cuts.retain(|cut| *cut < text.len());
        for cut in cuts {
            logs.push(torn(&dir, &format!("{at}-{cut}"), &text[..cut]));
            // Nothing but its end is lacking.
            whole.push(cut + "\n...\n".len() >= text.len());
        }
    }
    for ((log, whole), found) in logs.iter().zip(whole).zip(read(&python, "UTC", &logs)) {
        let clusters = found.clusters();
        let text = fs::read_to_string(log).expect("reads");
        let (first, last) = (clusters.first(), clusters.last_chunk::<2>());
        assert_eq!(first, Some(&"1"), "{clusters:?}: {text}");
        assert_eq!(last, Some(&["3", "4"]), "{clusters:?}: {text}");
        let among = &clusters[1..clusters.len() - 2];
        assert_eq!(among.len() + found.errors, 1, "{found:?}: {text}");
        if whole {
            assert_eq!((among, found.errors), (&["2"][..], 0), "{text}");
        }
    }
}
