//! What a copy has said, as bytes, and what that means: how it has ended, and what it has used.

use super::words::{FAILED, USED};
use crate::sys::{Change, Usage};
use loader::words::{ENDED, LOST, REFUSED, RUNS};
use starter::life::End;
use std::time::Duration;

/// How a loader ends if somebody has killed what it was starting (loader::report::Exit).
const KILLED: i32 = 128 + libc::SIGKILL;

pub(super) fn understood(said: &[u8], status: Change) -> (End, Option<String>) {
    // Of what was to start it: the loader, or whoever keeps a copy on another machine and says the same.
    let was_killed = status == Change::Exited(KILLED);
    if was_killed && matches!(said.first(), None | Some(&FAILED | &REFUSED)) {
        return (End::Signalled(libc::SIGKILL), None);
    }
    if let Some((&(FAILED | REFUSED), message)) = said.split_first() {
        let why = String::from_utf8_lossy(message).into_owned();
        let status = match status {
            Change::Exited(status) => status,
            _ => 1,
        };
        return (End::NotBegun(status), Some(why));
    }
    match (said_of_its_end(said), status) {
        (Some(end), _) => (end, None),
        (None, Change::Exited(status)) if said.is_empty() => (End::NotBegun(status), None),
        (None, _) => (End::Gone, None),
    }
}

pub(super) fn behind_runs(said: &[u8]) -> &[u8] {
    said.strip_prefix(&[RUNS]).unwrap_or(said)
}

pub(super) fn said_of_its_end(said: &[u8]) -> Option<End> {
    // Behind it may come that the line is cut.
    let (&(ENDED | LOST), [a, b, c, d, ..]) = behind_runs(said).split_first()? else {
        return None;
    };
    let has_run = said.first() == Some(&RUNS);
    let status = i32::from_le_bytes([*a, *b, *c, *d]);
    let signal = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
    Some(match (has_run, signal) {
        // Its start was ended by a signal.
        (false, Some(signal)) => End::Interrupted(signal),
        (_, Some(signal)) => End::Signalled(signal),
        (_, None) => End::Exited(libc::WEXITSTATUS(status)),
    })
}

pub(super) fn said_of_usage(said: &[u8]) -> Option<Usage> {
    // What is said before it runs is text.
    let mut rest = said.strip_prefix(&[RUNS])?;
    loop {
        let (&word, behind) = rest.split_first()?;
        let time = |at: usize| -> Option<Duration> {
            let bytes = behind.get(at..at + 8)?.try_into().ok()?;
            Some(Duration::from_micros(u64::from_le_bytes(bytes)))
        };
        rest = match word {
            ENDED | LOST => behind.get(4..)?,
            USED => {
                let (user, system) = (time(0)?, time(8)?);
                return Some(Usage { user, system });
            }
            _ => behind,
        };
    }
}

/// As it is said.
pub(crate) fn usage_said(used: Usage) -> Vec<u8> {
    let times = [used.user, used.system].map(|time| time.as_micros() as u64);
    let mut said = vec![USED];
    said.extend(times.into_iter().flat_map(u64::to_le_bytes));
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_is_found_behind_whatever_else_was_said() {
        let used = Usage {
            user: Duration::from_millis(1234),
            system: Duration::from_millis(50),
        };
        let said = usage_said(used);
        // U is a byte of an end, too.
        for before in [
            &b"r"[..],
            b"re\x00UUU",
            b"re\x00\x03\x00\x00C",
            b"rCJe\x55\x00\x00\x00",
        ] {
            let whole = [before, &said[..]].concat();
            let found = said_of_usage(&whole).map(|used| (used.user, used.system));
            assert_eq!(found, Some((used.user, used.system)), "{whole:?}");
            for len in 0..whole.len() {
                assert!(
                    said_of_usage(&whole[..len]).is_none(),
                    "{:?}",
                    &whole[..len]
                );
            }
        }
        assert!(said_of_usage(b"fUnusable, at any time whatsoever").is_none());
    }

    #[test]
    fn an_end_is_what_was_said_of_it() {
        let end = |said: &[u8], status| understood(said, status).0;
        assert_eq!(
            end(b"re\x00\x03\x00\x00", Change::Exited(3)),
            End::Exited(3)
        );
        assert_eq!(
            end(b"re\x0f\x00\x00\x00", Change::Exited(143)),
            End::Signalled(15)
        );
        // Killed before it ran: its first process, its supervisor; there, its first process.
        let killed = End::Signalled(9);
        assert_eq!(end(b"", Change::Exited(137)), killed);
        assert_eq!(end(b"fit died", Change::Exited(137)), killed);
        assert_eq!(end(b"", Change::Signalled(9)), End::Gone);
        // A program that says 137 itself.
        assert_eq!(
            end(b"re\x00\x89\x00\x00", Change::Exited(137)),
            End::Exited(137)
        );
        // A start that was told to end.
        assert_eq!(
            end(b"e\x01\x00\x00\x00", Change::Exited(129)),
            End::Interrupted(1)
        );
        let killed = Change::Signalled(9);
        assert_eq!(end(b"r", killed), End::Gone);
        assert_eq!(end(b"", killed), End::Gone);
        assert_eq!(end(b"", Change::Exited(126)), End::NotBegun(126));
        let said = understood(b"fno such file", Change::Exited(2));
        assert_eq!(said, (End::NotBegun(2), Some("no such file".to_owned())));
    }
}
