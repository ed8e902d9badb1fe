//! Events of every kind, with what HTCondor's reader makes of them.

use starter::events::{Event, Outcome, ReasonCode, Traffic, Usage, Usages};
use std::time::Duration;

/// What the reader calls it, and what it must say.
pub(crate) type Fields = Vec<(&'static str, &'static str)>;

fn usage(user: u64, system: u64) -> Usage {
    Usage {
        user: Duration::from_secs(user),
        system: Duration::from_secs(system),
    }
}

fn run() -> Usages {
    Usages {
        remote: usage(3600, 61),
        local: usage(1, 2),
    }
}

fn traffic(sent_bytes: u64, received_bytes: u64) -> Traffic {
    Traffic {
        sent_bytes,
        received_bytes,
    }
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

const RUN: [(&str, &str); 2] = [
    ("RunRemoteUsage", "Usr 0 01:00:00, Sys 0 00:01:01"),
    ("RunLocalUsage", "Usr 0 00:00:01, Sys 0 00:00:02"),
];

/// Each kind, some of them twice.
pub(crate) fn all() -> Vec<(Event, Fields)> {
    let mut all = ends();
    all.extend(waits());
    all.extend(lines());
    all
}

fn ends() -> Vec<(Event, Fields)> {
    let total = Usages {
        remote: usage(2 * 86400 + 3, 86399),
        local: usage(4, 5),
    };
    let terminated = |outcome| Event::Terminated {
        outcome,
        run: run(),
        total,
        run_traffic: traffic(1 << 40, 2),
        total_traffic: traffic(1 << 41, 4),
    };
    let fields = |more: &[(&'static str, &'static str)]| {
        let mut fields = RUN.to_vec();
        fields.extend([
            ("TotalRemoteUsage", "Usr 2 00:00:03, Sys 0 23:59:59"),
            ("TotalLocalUsage", "Usr 0 00:00:04, Sys 0 00:00:05"),
            ("SentBytes", "1099511627776.0"),
            ("ReceivedBytes", "2.0"),
            ("TotalSentBytes", "2199023255552.0"),
            ("TotalReceivedBytes", "4.0"),
        ]);
        fields.extend(more);
        fields
    };
    let evicted = |checkpointed, reason, code| Event::Evicted {
        checkpointed,
        run: run(),
        traffic: traffic(5_000_000_001, 6),
        reason,
        code,
    };
    let vacated = ReasonCode {
        code: 1002,
        subcode: 7,
    };
    let left = [("SentBytes", "5000000001.0"), ("ReceivedBytes", "6.0")];
    vec![
        (
            terminated(Outcome::Exited(0)),
            fields(&[("TerminatedNormally", "True"), ("ReturnValue", "0")]),
        ),
        (
            terminated(Outcome::Exited(255)),
            fields(&[("TerminatedNormally", "True"), ("ReturnValue", "255")]),
        ),
        (
            terminated(Outcome::Signaled(9)),
            fields(&[("TerminatedNormally", "False"), ("TerminatedBySignal", "9")]),
        ),
        (
            evicted(true, text("the owner is back"), Some(vacated)),
            [
                &RUN[..],
                &left,
                &[
                    ("Checkpointed", "True"),
                    ("Reason", "the owner is back"),
                    ("ReasonCode", "1002"),
                    ("ReasonSubCode", "7"),
                ],
            ]
            .concat(),
        ),
        (
            evicted(false, None, None),
            [&RUN[..], &left, &[("Checkpointed", "False")]].concat(),
        ),
        (
            Event::ShadowException {
                message: "the disk is full".to_owned(),
                traffic: traffic(5_000_000_001, 6),
            },
            [&left[..], &[("Message", "the disk is full")]].concat(),
        ),
        (
            Event::Aborted {
                reason: text("via wayfarer remove (by user ann)"),
            },
            vec![("Reason", "via wayfarer remove (by user ann)")],
        ),
        (Event::Aborted { reason: None }, vec![]),
    ]
}

fn waits() -> Vec<(Event, Fields)> {
    let code = ReasonCode {
        code: 36,
        subcode: 28,
    };
    vec![
        (
            Event::Checkpointed {
                run: run(),
                sent_bytes: 1 << 40,
            },
            [&RUN[..], &[("SentBytes", "1099511627776.0")]].concat(),
        ),
        (
            Event::ImageSize {
                size_kib: 5_000_000_000,
                memory_mib: Some(12),
                resident_kib: Some(11_999),
            },
            vec![
                ("Size", "5000000000"),
                ("MemoryUsage", "12"),
                ("ResidentSetSize", "11999"),
            ],
        ),
        (
            Event::ImageSize {
                size_kib: 1,
                memory_mib: None,
                resident_kib: None,
            },
            vec![("Size", "1")],
        ),
        (
            Event::Remark {
                text: "an image was passed over: /é, damaged".to_owned(),
            },
            vec![("Info", "an image was passed over: /é, damaged")],
        ),
        (
            Event::Suspended { processes: 17 },
            vec![("NumberOfPIDs", "17")],
        ),
        (Event::Unsuspended, vec![]),
        (
            Event::Held {
                reason: text("no space left: /tmp, é"),
                code,
            },
            vec![
                ("HoldReason", "no space left: /tmp, é"),
                ("HoldReasonCode", "36"),
                ("HoldReasonSubCode", "28"),
            ],
        ),
        (
            Event::Held { reason: None, code },
            vec![("HoldReasonCode", "36"), ("HoldReasonSubCode", "28")],
        ),
        (
            Event::Released {
                reason: text("by ann"),
            },
            vec![("Reason", "by ann")],
        ),
        (Event::Released { reason: None }, vec![]),
    ]
}

fn lines() -> Vec<(Event, Fields)> {
    let host = || "<192.0.2.1:9618>".to_owned();
    let name = || "slot1@far.example".to_owned();
    let machine = [
        ("StartdName", "slot1@far.example"),
        ("StartdAddr", "<192.0.2.1:9618>"),
    ];
    vec![
        (
            Event::Submitted {
                host: host(),
                notes: text("sort big.txt, nightly"),
            },
            vec![
                ("SubmitHost", "<192.0.2.1:9618>"),
                ("LogNotes", "sort big.txt, nightly"),
            ],
        ),
        (
            Event::Executing {
                host: "<[2001:db8::1]:9618>".to_owned(),
            },
            vec![("ExecuteHost", "<[2001:db8::1]:9618>")],
        ),
        (
            Event::Disconnected {
                reason: "the lease ran out".to_owned(),
                name: name(),
                host: host(),
            },
            [&machine[..], &[("DisconnectReason", "the lease ran out")]].concat(),
        ),
        (
            Event::Reconnected {
                name: name(),
                host: host(),
                starter: "<192.0.2.1:40000>".to_owned(),
            },
            [&machine[..], &[("StarterAddr", "<192.0.2.1:40000>")]].concat(),
        ),
        (
            Event::ReconnectFailed {
                reason: "the machine is gone".to_owned(),
                name: name(),
            },
            vec![machine[0], ("Reason", "the machine is gone")],
        ),
    ]
}
