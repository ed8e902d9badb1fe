//! Copies on other machines: which machine is next, and how a copy there is begun and copied.
//!
//! ```text
//! hosts (--on A --on B)   a copy is not begun on A ──> B ──> ... none is reached ──pause──> A again   (a job that has never run gives up here)
//!                         `migrate --to C` ──> C first
//! ```

use super::copy::Copy;
use super::inside;
use super::making::Making;
use super::passing::{self, Choice};
use super::streams::Streams;
use super::{How, Starter};
use crate::args::Submit;
use crate::away::{self, Far, Fetch, Keep};
use crate::identity::to_hex;
use crate::jobs::{JobStore, images_disk};
use crate::report::{Exit, Failure, Outcome};
use crate::verbs::shadow::allowed;
use ckpt_lib::image::Image;
use ckpt_lib::pace::Rate;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use rustix::rand::{GetRandomFlags, getrandom};
use shadow::Allowed;
use starter::life::{End, Event};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The first pause when no machine is reached, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Where copies run, and from what they are begun.
pub(super) struct Away<'a> {
    pub(super) submit: &'a Submit,
    /// The umask that we were given.
    pub(super) mode: Mode,
    /// Where the job begins.
    pub(super) directory: PathBuf,
    /// As it is begun there.
    pub(super) command: Vec<OsString>,
    /// What the job may use.
    pub(super) allowed: Vec<OsString>,
    pub(super) streams: Streams,
    pub(super) hosts: Hosts,
    /// What the folder of the copy there is called by.
    id: String,
    /// That of the copy before on the same machine, which may still be there until this one runs.
    before: Option<String>,
}

impl<'a> Away<'a> {
    pub(super) fn new(
        submit: &'a Submit,
        mode: Mode,
        streams: Streams,
        (command, allowed): (Vec<OsString>, Vec<OsString>),
    ) -> Outcome<Self> {
        Ok(Away {
            submit,
            mode,
            directory: submit.directory()?,
            command,
            allowed,
            streams,
            hosts: Hosts::new(submit.on.clone()),
            id: String::new(),
            before: None,
        })
    }

    /// A copy of this job, on this machine, in a folder called by this, from this image.
    pub(super) fn kept<'b>(
        &'b self,
        (store, dir, name): (&'b JobStore, &'b Path, &'b str),
        (host, id): (&'b str, &'b str),
        image: Option<&'b Image>,
    ) -> Keep<'b> {
        Keep {
            store,
            dir,
            name,
            host,
            id,
            instead_of: None,
            submit: self.submit,
            allowed: &self.allowed,
            mode: self.mode,
            directory: &self.directory,
            command: &self.command,
            image,
            is_seat: false,
        }
    }
}

/// The machines, and which is next.
#[derive(Debug)]
pub(super) struct Hosts {
    all: Vec<String>,
    at: usize,
    /// So many in a row have not begun it.
    failed: usize,
    /// None of those was reached.
    none_reached: bool,
    pause: Duration,
    /// When the next is tried.
    again_at: Option<Instant>,
    /// It is to go there.
    wanted: Option<String>,
}

impl Hosts {
    fn new(all: Vec<String>) -> Self {
        Hosts {
            all,
            at: 0,
            failed: 0,
            none_reached: true,
            pause: PAUSES.0,
            again_at: None,
            wanted: None,
        }
    }

    /// The machine that is, or was last.
    pub(super) fn here(&self) -> &str {
        self.all.get(self.at).map_or("", String::as_str)
    }

    /// It goes there when it goes on.
    pub(super) fn want(&mut self, host: Option<String>) {
        self.wanted = host;
    }

    /// The one on which the next copy is begun.
    fn next(&mut self) -> String {
        if let Some(wanted) = self.wanted.take() {
            self.failed = 0;
            self.none_reached = true;
            let known = self.all.iter().position(|host| *host == wanted);
            self.at = known.unwrap_or_else(|| {
                self.all.push(wanted);
                self.all.len() - 1
            });
        }
        self.here().to_owned()
    }

    /// A copy runs, or another is to be tried everywhere.
    pub(super) fn runs(&mut self) {
        (self.failed, self.none_reached, self.pause) = (0, true, PAUSES.0);
    }

    /// No copy was begun on the present one; whether another attempt is worth while. A machine that is away may come back.
    fn failed(&mut self, reached: bool, has_run: bool) -> bool {
        self.failed += 1;
        self.none_reached &= !reached;
        self.at = (self.at + 1) % self.all.len().max(1);
        if self.failed < self.all.len() {
            self.again_at = Some(Instant::now());
            return true;
        }
        if !(self.none_reached && has_run) {
            return false;
        }
        self.failed = 0;
        self.again_at = Some(Instant::now() + self.pause);
        self.pause = PAUSES.1.min(2 * self.pause);
        true
    }

    pub(super) fn again_in(&self) -> Option<Duration> {
        let at = self.again_at?;
        Some(at.saturating_duration_since(Instant::now()))
    }
}

/// What a folder on another machine is called by.
pub(super) fn random_id() -> Outcome<String> {
    let mut random = [0; 8];
    getrandom(&mut random, GetRandomFlags::empty())?;
    Ok(id_of(random))
}

/// It is a name, so it is not only digits.
fn id_of(random: [u8; 8]) -> String {
    format!("c{}", to_hex(&random))
}

impl Starter<'_> {
    pub(super) fn away(&self) -> Option<&Away<'_>> {
        match &self.copies.how {
            How::Away(away) => Some(away),
            How::Here { .. } => None,
        }
    }

    pub(super) fn hosts(&mut self) -> Option<&mut Hosts> {
        match &mut self.copies.how {
            How::Away(away) => Some(&mut away.hosts),
            How::Here { .. } => None,
        }
    }

    /// Where the next copy is begun, if somebody has asked for that.
    pub(super) fn moves_to(&self) -> Option<&str> {
        self.away()?.hosts.wanted.as_deref()
    }

    /// Begins a copy on the next machine.
    pub(super) fn begin_away(&mut self, again: bool) -> Outcome<Copy> {
        let stays_here = || Failure::new(Exit::Failed, "the job is not for another machine");
        let host = self.hosts().ok_or_else(stays_here)?.next();
        let seat = self.take_seat(&host);
        let id = match &seat {
            Some((id, _)) => id.clone(),
            None => random_id()?,
        };
        if self.record.on.as_ref() != Some(&host) {
            self.end_last_copy();
        }
        self.record.on = Some(host.clone());
        let instead_of = self.record.copy.replace(id.clone());
        let (store, name, dir) = (self.store, &self.name, &self.dir);
        let refused = &self.refused;
        self.record.save(dir)?;
        let How::Away(away) = &mut self.copies.how else {
            return Err(stays_here());
        };
        (away.id, away.before) = (id, instead_of.clone());
        if let Some((_, copy)) = seat {
            return Ok(copy);
        }
        let away = &*away;
        Copy::begin(&self.copies.signals, true, |tells| {
            let kept = || -> Outcome<Failure> {
                let chosen = match again {
                    true => Some(passing::latest(store.find(name)?, refused, &tells)?),
                    false => None,
                };
                if let Some(chosen) = &chosen {
                    Choice::of(chosen).tell(&tells)?;
                }
                let image = chosen.as_ref().map(|chosen| chosen.image());
                let keep = Keep {
                    instead_of: instead_of.as_deref(),
                    ..away.kept((store, dir, name), (&host, &away.id), image)
                };
                Ok(away::keep(&keep, tells))
            };
            kept().unwrap_or_else(|failure| failure)
        })
    }

    /// Has an image of the copy there made, and fetches it.
    pub(super) fn fetch(
        (away, rate): (&Away<'_>, &Rate),
        store: &JobStore,
        name: &str,
        (leaves, hurries): (bool, bool),
    ) -> Outcome {
        let wanted = away::fetch(&Fetch {
            store,
            name,
            host: away.hosts.here(),
            id: &away.id,
            submit: away.submit,
            rate,
            leaves,
            hurries,
        })?;
        // Of those that only go ahead of a move there is no copy.
        if let Some(file) = wanted.filter(|_| leaves || !hurries) {
            let may_write = || -> Outcome<Allowed> {
                let mut allowed = allowed(&away.allowed)?;
                // What is ours is not the job's, wherever it lies.
                allowed.hide(store.dir())?;
                allowed.hide(&images_disk(&store.find(name)?.dir))?;
                Ok(allowed)
            };
            inside::place(store, name, &file, Some(&may_write));
        }
        Ok(Exit::Done)
    }

    /// The copy has ended where it was, or has never run: then the one before may still be there.
    pub(super) fn is_gone_there(&mut self) {
        self.record.copy = match &mut self.copies.how {
            How::Away(away) => away.before.take(),
            How::Here { .. } => None,
        };
    }

    /// A copy on another machine runs.
    pub(super) fn runs_away(&mut self) {
        if let How::Away(away) = &mut self.copies.how {
            away.before = None;
        }
        if let Some(hosts) = self.hosts() {
            hosts.runs();
        }
    }

    /// A copy has not begun; whether that is tried once more, which only we know of.
    pub(super) fn tries_elsewhere(&mut self, end: End) -> bool {
        let End::NotBegun(status) = end else {
            return false;
        };
        let has_run = self.has_run || self.has_image();
        let is_leaving = self.life.is_leaving();
        let Some(hosts) = self.hosts() else {
            return false;
        };
        let here = hosts.here().to_owned();
        let tries = !is_leaving && hosts.failed(status != Exit::Lost as i32, has_run);
        if tries {
            let next = hosts.here().to_owned();
            let pause = hosts.again_in().unwrap_or_default().as_secs();
            let when = match pause {
                0 => String::new(),
                pause => format!(" in {} s", pause + 1),
            };
            let name = &self.name;
            self.voice.say(&format!(
                "job {name} does not begin on {here}; {next} is tried{when}"
            ));
        }
        tries
    }

    /// The next machine is tried when its time has come, or nobody wants that any more.
    pub(super) fn try_again(&mut self) {
        let is_leaving = self.life.is_leaving();
        let again = self.life.has_image();
        let Some(hosts) = self.hosts() else {
            return;
        };
        match hosts.again_in() {
            Some(_) if is_leaving => {
                hosts.again_at = None;
                let end = End::Interrupted(Signal::SIGTERM as i32);
                self.events.push_back(Event::Ended(end));
            }
            Some(Duration::ZERO) => {
                hosts.again_at = None;
                self.begin_copy_here_or_away(again);
            }
            _ => {}
        }
    }

    /// The last copy, which may still be there, out of reach, is ended as soon as it can be told.
    fn end_there(&self, host: &str, id: &str) {
        let Some(away) = self.away() else {
            return;
        };
        let name = &self.name;
        self.voice.say(&format!(
            "a copy of job {name} may still be on {host}: it is ended as soon as that is reached, or with its lease"
        ));
        let far = Far {
            host,
            mode: away.mode,
            directory: &away.directory,
            arguments: away.submit,
            quotes: false,
        };
        let told = random_id().and_then(|by| away::end_at_last(&far, id, &by));
        if let Err(failure) = told {
            tracing::error!("{failure}");
        }
    }

    /// The job goes on nowhere, or not where its last copy was: that one may be there still.
    pub(super) fn end_last_copy(&mut self) {
        let (on, copy) = (&self.record.on, self.record.copy.take());
        if let (Some(host), Some(id)) = (on, copy) {
            self.end_there(host, &id);
        }
    }

    /// What the job has written to outputs that were not files is shown.
    pub(super) fn deliver(&self) {
        if let Some(away) = self.away() {
            away.streams.deliver();
        }
    }

    pub(super) fn begin_fetch(&self, leaves: bool) -> Option<Outcome<Making>> {
        let away = self.away()?;
        let (store, name) = (self.store, &self.name);
        let how = (leaves, leaves || self.seat().is_some());
        Some(Making::begin(&self.copies.signals, self.rate, |rate| {
            Self::fetch((away, rate), store, name, how)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> Hosts {
        Hosts::new(vec!["a".to_owned(), "b".to_owned()])
    }

    #[test]
    fn the_next_is_taken_and_a_job_that_never_ran_gives_up_behind_the_last() {
        let mut hosts = hosts();
        assert_eq!(hosts.next(), "a");
        assert!(hosts.failed(false, false));
        assert_eq!(
            (hosts.again_in(), hosts.next().as_str()),
            (Some(Duration::ZERO), "b")
        );
        assert!(!hosts.failed(false, false));
    }

    #[test]
    fn one_that_has_run_waits_for_machines_that_are_away_but_not_for_what_they_refuse() {
        let mut away = hosts();
        assert!(away.failed(false, true) && away.failed(false, true));
        let first = away.again_in().expect("a pause");
        assert!(first > Duration::ZERO && first <= PAUSES.0, "{first:?}");
        assert!(away.failed(false, true) && away.failed(false, true));
        assert!(away.again_in().expect("a pause") > PAUSES.0);
        away.runs();
        assert_eq!(away.pause, PAUSES.0);
        let mut refused = hosts();
        assert!(refused.failed(true, true));
        assert!(!refused.failed(false, true));
    }

    #[test]
    fn a_machine_that_is_wanted_comes_first_and_the_others_behind_it() {
        let mut hosts = hosts();
        hosts.want(Some("c".to_owned()));
        assert_eq!((hosts.next().as_str(), hosts.here()), ("c", "c"));
        assert!(hosts.failed(true, true));
        assert_eq!(hosts.next(), "a");
        hosts.want(Some("b".to_owned()));
        assert_eq!(hosts.next(), "b");
        assert_eq!(hosts.all.len(), 3);
    }

    #[test]
    fn an_id_is_a_name_whatever_chance_says() {
        for random in [[0x12; 8], [0xef; 8], [0; 8]] {
            let id = id_of(random);
            assert!(crate::args::is_job_name(&id), "{id}");
        }
    }
}
