//! Strings from outside.

use crate::reader::{here, read};
use crate::{append, events};
use proptest::prelude::*;
use starter::events::{Event, EventLog, Outcome, ReasonCode, Traffic, Usages};
use std::fs;

/// What could end an event, begin one, or be taken for something else.
const MEAN: [&str; 20] = [
    "...",
    ".",
    "\n",
    "\r",
    "\n...\n",
    "\n...\r\n",
    "\u{85}",
    "\u{2028}",
    "\0",
    "\t",
    " ",
    ",",
    "|",
    "005 (001.000.000) 2026-01-01 00:00:00 Job terminated.\n",
    "Partitionable Resources : Usage",
    "    Can not reconnect to ",
    "Code 1 Subcode 2",
    "[ a = 1 ]",
    "<event>",
    "{\"a\":1}",
];

fn foreign() -> impl Strategy<Value = String> {
    let mean = prop::sample::select(MEAN.to_vec()).prop_map(str::to_owned);
    // A reader that takes a line in pieces has one that begins where this ends.
    let filler = (490usize..530).prop_map(|len| "x".repeat(len));
    let part = prop_oneof![6 => mean, 2 => any::<String>(), 1 => filler];
    prop::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
}

prop_compose! {
    fn strange()(
        kind in 0usize..10,
        [a, b, c] in [foreign(), foreign(), foreign()],
        code in any::<i32>(),
        is_there in any::<bool>(),
    ) -> Event {
        let reason = is_there.then(|| a.clone());
        let code = ReasonCode { code, subcode: code };
        let traffic = Traffic { sent_bytes: u64::MAX, received_bytes: 0 };
        let run = Usages::default();
        match kind {
            0 => Event::Submitted { host: b, notes: reason },
            1 => Event::Executing { host: a },
            2 => Event::Evicted { checkpointed: is_there, run, traffic, reason, code: Some(code) },
            3 => Event::ShadowException { message: a, traffic },
            4 => Event::Aborted { reason },
            5 => Event::Held { reason, code },
            6 => Event::Released { reason },
            7 => Event::Disconnected { reason: a, name: b, host: c },
            8 => Event::Reconnected { name: a, host: b, starter: c },
            _ => Event::ReconnectFailed { reason: a, name: b },
        }
    }
}

fn plain() -> Event {
    Event::Terminated {
        outcome: Outcome::Exited(0),
        run: Usages::default(),
        total: Usages::default(),
        run_traffic: Traffic::default(),
        total_traffic: Traffic::default(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn there_are_as_many_events_as_were_written(
        strange in prop::collection::vec(strange(), 1..8),
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let log = EventLog::open(&path).expect("opens");
        for (cluster, event) in (0..).zip(&strange) {
            append(&log, cluster, event);
        }
        let text = fs::read_to_string(&path).expect("is text");
        let found = events(&text);
        prop_assert_eq!(found.len(), strange.len());
        for (cluster, (event, found)) in strange.iter().zip(&found).enumerate() {
            let header = format!("{:03} ({cluster:03}.000.000) ", event.number());
            prop_assert!(found.starts_with(&header), "{:?}", found);
            prop_assert!(found.lines().count() <= 7, "{:?}", found);
            for line in found.lines().skip(1) {
                prop_assert!(line.starts_with('\t') || line.starts_with("    "), "{:?}", found);
                prop_assert!(line.trim_start_matches('\t').chars().all(|c| !c.is_control()));
            }
        }
    }
}

#[test]
fn the_reader_finds_every_event_whatever_the_strings() {
    let Some(python) = here("strange strings as HTCondor reads them") else {
        return;
    };
    let config = ProptestConfig::with_cases(12);
    proptest!(config, |(strange in prop::collection::vec(strange(), 100))| {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let log = EventLog::open(&path).expect("opens");
        for (cluster, event) in (0..).zip(&strange) {
            append(&log, 2 * cluster, event);
            append(&log, 2 * cluster + 1, &plain());
        }
        let found = read(&python, "UTC", std::slice::from_ref(&path)).remove(0);
        prop_assert_eq!(found.errors, 0);
        let numbers = found.events.iter().map(|event| event["EventTypeNumber"].clone());
        let meant = strange.iter().flat_map(|event| [event.number().to_string(), "5".to_owned()]);
        prop_assert!(numbers.eq(meant));
        let clusters = (0..200).map(|cluster| cluster.to_string());
        prop_assert!(found.clusters().into_iter().eq(clusters.collect::<Vec<_>>()));
    });
}
