//! Telling of a job's end: `--notify CMD`.
//!
//! ```text
//! the record is durable, who asked is answered ──> sh -c CMD ──> it has ended ──────────────────> the starter ends as the job did
//!                                                       `─ its time is over, or we are told to leave: its group is killed ─^
//! ```
//! # What callers may rely on
//! It is carried out once at each end (Completed, Held, Removed), when nothing is left of the job; never when the job has merely left.
//! Whatever becomes of it is told, and changes nothing else.

use super::{Starter, voice};
use crate::jobs::Counted;
use crate::{raw, sys};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use starter::life::{End, Leave, State};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// What the command finds in its environment besides the job's name and directory.
const STATE: &str = "WAYFARER_STATE";
const EXIT_CODE: &str = "WAYFARER_EXIT_CODE";
const EXIT_SIGNAL: &str = "WAYFARER_EXIT_SIGNAL";
const REASON: &str = "WAYFARER_REASON";

/// How it ended.
enum Came {
    Ended(ExitStatus),
    /// Its time was over.
    Late,
    /// We were told to leave.
    Stopped,
}

impl Starter<'_> {
    /// Carries the command out, if there is one and this is an end.
    pub(super) fn notify(&mut self, leave: &Leave) {
        let Some(text) = self.record.notify.clone().filter(|text| !text.is_empty()) else {
            return;
        };
        let Some(facts) = facts(leave, &self.record.counted) else {
            return;
        };
        let within = self.arguments.notify_within;
        let came = self
            .begin_notifying(&text, facts)
            .and_then(|child| self.wait_notified(child, within));
        let what = match came {
            Ok(Came::Ended(status)) if status.success() => return,
            Ok(Came::Ended(status)) => format!("has failed ({status})"),
            Ok(Came::Late) => format!("was killed: found it running after {within:?}"),
            Ok(Came::Stopped) => "was killed: its starter was told to leave".to_owned(),
            Err(error) => format!("cannot be carried out: {error}"),
        };
        let text = raw::shown(&text);
        let message = format!("job {}: --notify {text:?} {what}", self.name);
        self.voice.say(&message);
    }

    fn begin_notifying(&self, text: &str, facts: Vec<(&str, String)>) -> io::Result<Child> {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(raw::decode(text));
        // Who has begun us may have been such a command himself.
        for name in [STATE, EXIT_CODE, EXIT_SIGNAL, REASON] {
            command.env_remove(name);
        }
        command.env("WAYFARER_JOB", &self.name);
        command.env("WAYFARER_DIR", &self.dir);
        command.envs(facts);
        command.stdin(Stdio::null());
        let log = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(self.dir.join(voice::NAME));
        let both = log.and_then(|log| Ok((log.try_clone()?, log)));
        match both {
            Ok((out, errors)) => command.stdout(out).stderr(errors),
            // Its directory has been removed.
            Err(_) => command.stdout(Stdio::null()).stderr(Stdio::null()),
        };
        command.process_group(0);
        sys::unblock_signals_of(&mut command);
        command.spawn()
    }

    fn wait_notified(&mut self, mut child: Child, within: Duration) -> io::Result<Came> {
        let begun = Instant::now();
        let kill = |child: &Child| {
            let group = Pid::from_raw(child.id().cast_signed());
            let _ = killpg(group, Signal::SIGKILL);
        };
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Came::Ended(status));
            }
            let left = within.saturating_sub(begun.elapsed());
            if left.is_zero() {
                kill(&child);
                return Ok(Came::Late);
            }
            let ms = left.as_micros().div_ceil(1000);
            let timeout = PollTimeout::from(u16::try_from(ms).unwrap_or(u16::MAX));
            let signals = &mut self.copies.signals;
            // That a child has changed is a signal, too.
            let mut fds = [PollFd::new(signals.watched(), PollFlags::POLLIN)];
            match poll(&mut fds, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            while let Some(meaning) = signals.next(None) {
                if meaning.is_to_leave() {
                    kill(&child);
                    return Ok(Came::Stopped);
                }
            }
        }
    }
}

/// What the command is told of an end; nothing if it is none.
fn facts(leave: &Leave, counted: &Counted) -> Option<Vec<(&'static str, String)>> {
    let (state, more) = match leave {
        Leave::Completed(end) => {
            let how = match end {
                End::Exited(status) | End::NotBegun(status) => (EXIT_CODE, *status),
                End::Signalled(signal) | End::Interrupted(signal) => (EXIT_SIGNAL, *signal),
                End::Gone => (EXIT_SIGNAL, libc::SIGKILL),
            };
            (State::Completed, Some((how.0, how.1.to_string())))
        }
        Leave::Held(_) => {
            let reason = counted.hold_reason.clone();
            (State::Held, reason.map(|reason| (REASON, reason)))
        }
        Leave::Killed => (State::Removed, None),
        Leave::Vacated | Leave::NotBegun(_) => return None,
    };
    let state = (STATE, state.name().to_owned());
    Some(std::iter::once(state).chain(more).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use starter::life::Hold;

    #[test]
    fn ends_are_told_and_nothing_else() {
        let counted = Counted {
            hold_reason: Some("why not".to_owned()),
            exit_code: Some(7), // of an earlier life
            ..Counted::default()
        };
        let told = |leave| {
            let facts = facts(&leave, &counted).unwrap_or_default();
            let words: Vec<String> = facts.iter().map(|(n, v)| format!("{n}={v}")).collect();
            words.join(" ")
        };
        let held = Leave::Held(Hold::new("why not".to_owned(), Hold::BY_USER));
        let ends = [
            (
                Leave::Completed(End::Exited(3)),
                "WAYFARER_STATE=Completed WAYFARER_EXIT_CODE=3",
            ),
            (
                Leave::Completed(End::Signalled(11)),
                "WAYFARER_STATE=Completed WAYFARER_EXIT_SIGNAL=11",
            ),
            (
                Leave::Completed(End::Gone),
                "WAYFARER_STATE=Completed WAYFARER_EXIT_SIGNAL=9",
            ),
            (held, "WAYFARER_STATE=Held WAYFARER_REASON=why not"),
            (Leave::Killed, "WAYFARER_STATE=Removed"),
            (Leave::Vacated, ""),
            (Leave::NotBegun(127), ""),
        ];
        for (leave, expected) in ends {
            assert_eq!(told(leave.clone()), expected, "{leave:?}");
        }
    }
}
