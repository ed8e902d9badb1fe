//! What a copy on another machine has done so far, as whoever is there says now and then to its starter at home (HTCondor's starters
//! update their shadow's job ad so).
//!
//! ```text
//! there: a look each second ──UPDATE "user,system,read,written,stands;"──> keeper ──> starter
//!                              (when it begins or ceases to stand still; else each minute, if anything is new; at its end)
//! ```
//! # What callers may rely on
//! No number is less than it was said before of the same copy.

use crate::jobs::process;
use crate::life::words::UPDATE;
use crate::remote::Tally;
use crate::sys::Usage;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two looks at the job.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long it must have been so that it stands still.
const SURE_AFTER: Duration = Duration::from_millis(900);
/// Between two updates of numbers.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// So long after a copy has begun from an image its starter may be about to tell it to stand still, or to go on.
const GRACE: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Update {
    /// Processor time.
    pub(crate) used: Usage,
    /// Bytes that it has read from its files, and written to them, since it began there.
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    /// It stands still, and nobody has told it to from home.
    pub(crate) stands: bool,
}

impl Update {
    /// As it is said to the starter: behind the word text without letters, as [`super::asking`] has it, too.
    fn said(&self) -> String {
        let [user, system] = [self.used.user, self.used.system].map(|time| time.as_micros());
        let (read, written, stands) = (self.read_bytes, self.written_bytes, u8::from(self.stands));
        let word = char::from(UPDATE);
        format!("{word}{user},{system},{read},{written},{stands};")
    }

    /// Takes it from what follows the word, up to its end; none: that is nothing of ours.
    pub(crate) fn heard(text: &[u8]) -> Option<Self> {
        let numbers = std::str::from_utf8(text).ok()?.split(',');
        let numbers: Vec<u64> = numbers.map(str::parse).collect::<Result<_, _>>().ok()?;
        let [user, system, read_bytes, written_bytes, stands] = numbers[..] else {
            return None;
        };
        Some(Update {
            used: Usage {
                user: Duration::from_micros(user),
                system: Duration::from_micros(system),
            },
            read_bytes,
            written_bytes,
            stands: stands != 0,
        })
    }

    /// No number is less than it was.
    fn but_at_least(self, before: Update) -> Self {
        Update {
            used: self.used.at_least(before.used),
            read_bytes: self.read_bytes.max(before.read_bytes),
            written_bytes: self.written_bytes.max(before.written_bytes),
            stands: self.stands,
        }
    }
}

/// Looks at the job under a supervisor.
pub(super) struct Watch {
    supervisor: i32,
    tally: Option<Tally>,
    /// It was told to stand still, and not yet to go on.
    told_to_stand: Arc<AtomicBool>,
    /// Before this moment it is not said that it stands still.
    told_from: Instant,
    /// In which state it was at the last look, and since when.
    seen: (Seen, Instant),
    /// What was said last, and when.
    said: Update,
    at: Instant,
}

impl Watch {
    /// Of a job that has just begun to run, or `goes_on` from an image.
    pub(super) fn begin(supervisor: i32, told_to_stand: Arc<AtomicBool>, goes_on: bool) -> Self {
        let root = process::find_job(supervisor).root;
        // One whose numbers are not to be had has none.
        let tally = root.and_then(|root| Tally::of(root, goes_on).ok().flatten());
        let now = Instant::now();
        Watch {
            supervisor,
            tally,
            told_to_stand,
            told_from: if goes_on { now + GRACE } else { now },
            seen: (Seen::Else, now),
            said: Update::default(),
            at: now,
        }
    }

    /// What is to be said now, if anything is.
    pub(super) fn look(&mut self) -> Option<String> {
        let stands = self.stands();
        if stands == self.said.stands && self.at.elapsed() < SAY_EVERY {
            return None;
        }
        self.say(stands)
    }

    /// The same when the job has ended.
    pub(super) fn look_at_last(&mut self) -> Option<String> {
        self.say(self.said.stands)
    }

    fn say(&mut self, stands: bool) -> Option<String> {
        let all = process::find_job(self.supervisor).all.into_iter();
        let stats = all.filter_map(|pid| process::read_stat(pid).ok());
        let bytes = self.tally.as_ref().and_then(Tally::bytes);
        let (read_bytes, written_bytes) = bytes.unwrap_or_default();
        let update = Update {
            used: stats.map(|stat| stat.used).sum(),
            read_bytes,
            written_bytes,
            stands,
        };
        let update = update.but_at_least(self.said);
        self.at = Instant::now();
        let is_new = update != self.said;
        self.said = update;
        is_new.then(|| update.said())
    }

    /// Whether it stands still by itself. That is so only when it has been seen for a while: whoever tells it to stand still, or to go on, may be
    /// about to.
    fn stands(&mut self) -> bool {
        let root = process::find_job(self.supervisor).root;
        let state = root.and_then(|root| process::state(root).ok());
        let is_told = self.told_to_stand.load(Ordering::Acquire);
        let now = match state {
            // An image is made of it, and whether it stood still before is not to be seen.
            Some('t') => return self.said.stands,
            Some('T') if is_told => Seen::Else,
            Some('T') => Seen::Stands,
            _ if is_told => Seen::RunsThoughTold,
            _ => Seen::Else,
        };
        if self.seen.0 != now {
            self.seen = (now, Instant::now());
        }
        let (seen, since) = self.seen;
        let is_sure = since.max(self.told_from).elapsed() >= SURE_AFTER;
        if seen == Seen::RunsThoughTold && is_sure {
            // Somebody there has let it go on.
            self.told_to_stand.store(false, Ordering::Release);
        }
        seen == Seen::Stands && is_sure
    }
}

/// What a look at the job has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// It stands still, and was not told to.
    Stands,
    /// It was told to stand still, and does not.
    RunsThoughTold,
    Else,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn an_update_is_heard_as_it_is_said() {
        let update = Update {
            used: Usage {
                user: Duration::from_micros(1_234_567),
                system: Duration::from_micros(89),
            },
            read_bytes: u64::MAX,
            written_bytes: 7,
            stands: true,
        };
        let said = update.said();
        let text = said.as_bytes().strip_prefix(&[UPDATE]).expect("its word");
        assert!(!text.iter().any(u8::is_ascii_alphabetic), "{said}");
        let text = text.strip_suffix(b";").expect("its end");
        assert_eq!(Update::heard(text), Some(update));
        for nonsense in [
            &b""[..],
            b"1,2,3,4",
            b"1,2,3,4,0,0",
            b"1,2,3,4,-1",
            b"1,2,,4,0",
            b"18446744073709551616,0,0,0,0",
        ] {
            assert_eq!(Update::heard(nonsense), None, "{nonsense:?}");
        }
    }

    /// A supervisor whose one child is the job.
    fn job() -> (std::process::Child, i32) {
        let mut supervisor = Command::new("sh");
        supervisor.args(["-c", "sleep 60 & wait"]).process_group(0);
        let supervisor = supervisor.spawn().expect("begins");
        let pid = supervisor.id() as i32;
        let begun = Instant::now();
        let child = loop {
            match process::children(pid).first() {
                Some(child) => break *child,
                None => assert!(begun.elapsed() < Duration::from_secs(20), "no child"),
            }
        };
        (supervisor, child)
    }

    #[test]
    fn who_stands_still_by_himself_is_told_and_who_was_told_to_is_not() {
        let (mut supervisor, child) = job();
        let told = Arc::new(AtomicBool::new(false));
        let mut watch = Watch::begin(supervisor.id() as i32, told.clone(), false);
        let pid = nix::unistd::Pid::from_raw(child);
        let signal = |signal| nix::sys::signal::kill(pid, signal).expect("is there");
        let until = |watch: &mut Watch, wanted: Option<&str>| {
            let begun = Instant::now();
            loop {
                let said = watch.look();
                match (&said, wanted) {
                    (Some(said), Some(end)) if said.ends_with(end) => return,
                    (None, None) => {}
                    (None, Some(_)) => {}
                    other => panic!("{other:?}"),
                }
                if begun.elapsed() > Duration::from_secs(20) {
                    panic!("not said: {wanted:?}");
                }
                if wanted.is_none() && begun.elapsed() > 2 * SURE_AFTER {
                    return;
                }
            }
        };
        until(&mut watch, None);
        signal(nix::sys::signal::Signal::SIGSTOP);
        until(&mut watch, Some(",1;"));
        signal(nix::sys::signal::Signal::SIGCONT);
        until(&mut watch, Some(",0;"));
        told.store(true, Ordering::Release);
        signal(nix::sys::signal::Signal::SIGSTOP);
        until(&mut watch, None);
        // Somebody else lets it go on, and it stops itself later.
        signal(nix::sys::signal::Signal::SIGCONT);
        let begun = Instant::now();
        while told.load(Ordering::Acquire) {
            assert_eq!(watch.look(), None);
            assert!(begun.elapsed() < Duration::from_secs(20), "is not noticed");
        }
        signal(nix::sys::signal::Signal::SIGSTOP);
        until(&mut watch, Some(",1;"));
        // That it ends is no news of its own.
        assert_eq!(watch.look_at_last(), None);
        let group = nix::unistd::Pid::from_raw(supervisor.id() as i32);
        nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL).expect("is there");
        supervisor.wait().expect("ends");
    }
}
