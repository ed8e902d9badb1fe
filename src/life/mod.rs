//! A starter: the process that a job with a life of its own has above it (docs/adr/0023).
//!
//! ```text
//! wayfarer run --every 30m ...          the starter: one thread, waits for
//!  |- a copy of the job (copy.rs)         signals (signals.rs), commands (control.rs), news, time
//!  `- a checkpoint of it (making.rs)      and does what the state machine says (starter::life)
//! ```
//! # What callers may rely on
//! The starter ends when the job has: as the job did; or with [`VACATED`], if the job has left and can go on. Nothing of the job is
//! left then. What it knows is in `life.json` at each change of state, durable at the end.

mod actions;
mod away;
mod begin;
mod chronicle;
mod commit;
mod control;
mod copy;
mod counting;
mod end;
pub(crate) mod idle;
mod inside;
mod killed;
mod making;
mod notify;
mod noting;
mod owner;
mod passing;
mod question;
mod said;
mod seat;
mod sign;
mod signals;
mod standing;
mod streams;
mod tails;
mod voice;
pub(crate) mod words;

pub(crate) use begin::{restart, run, submit};
pub(crate) use chronicle::{Chronicle, NAME as EVENTS};
pub(crate) use control::{Asked, Control, ask};
pub(crate) use counting::Spent;
pub(crate) use making::check_room;
pub(crate) use owner::by_policy;
pub(crate) use passing::Choice;
pub(crate) use question::{Ask, Question};
pub(crate) use said::usage_said;
pub(crate) use standing::heed;

use crate::args::{Life as Arguments, Restart, Run};
use crate::jobs::{Job, JobStore, LifeRecord, Outset, pulse};
use crate::remote::By;
use crate::report::{Failure, Outcome};
use crate::rights;
use crate::sys;
use crate::sys::Change;
use away::Away;
use copy::{Copy, News};
use counting::since_boot;
use inside::Inside;
use killed::Lost;
use making::Making;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::Pid;
use owner::Owner;
use passing::Refused;
use seat::Move;
use signals::{Meaning, Signals};
use starter::life::{Answer, Command, End, Event, First, Leave, Life, Policy, Who};
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use voice::Voice;

/// The status of a starter whose job has left and can go on (HTCondor's `checkpoint_exit_code`).
const VACATED: u8 = 85;
/// How long a copy has to be gone before everything is killed that may be in its way (Condor's KILLING_TIMEOUT).
const KILLING_TIMEOUT: Duration = Duration::from_secs(30);
/// So many times a job that is killed goes on from one image.
const RESTARTS_PER_IMAGE: u32 = 3;
/// Between two looks at what a killed copy has left.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Whom nobody has to answer.
const NOBODY: Who = Who::NOBODY;
/// The job itself.
const JOB: Who = Who(u64::MAX);
/// We, for a job that moves.
const MOVER: Who = Who(u64::MAX - 1);

/// A copy's tie to its starter.
#[derive(Debug)]
pub(crate) struct Tied {
    /// The job.
    pub(crate) name: String,
    /// What the loader tells its fate by.
    pub(crate) tells: OwnedFd,
    /// It is the first copy of its starter.
    pub(crate) is_first: bool,
    pub(crate) by: By,
    /// The starter is on another machine, and so is the job's record.
    pub(crate) is_away: bool,
}

/// How copies are begun.
struct Copies<'a> {
    how: How<'a>,
    /// The job has been there before.
    go_on: bool,
    /// Held from now on, until somebody can heed them.
    signals: Signals,
}

/// Where copies are begun.
enum How<'a> {
    /// On this machine.
    Here {
        run: Option<&'a Run>,
        restart: Box<Restart>,
        /// The image that was named, and which checkpoint it is; it counts until somebody has made a newer one.
        image: Option<(PathBuf, u64)>,
        /// It was named itself, not its job.
        is_named: bool,
        /// Images of the job that were damaged.
        passed_over: Vec<String>,
    },
    /// On others.
    Away(Box<Away<'a>>),
}

struct Starter<'a> {
    store: &'a JobStore,
    dir: PathBuf,
    name: String,
    arguments: &'a Arguments,
    copies: Copies<'a>,
    life: Life,
    record: LifeRecord,
    /// When the next sign of life is due, also of a machine that slept.
    minute: TimerFd,
    /// When the last was given.
    last_sign: Duration,
    /// Another starter has taken the job over.
    is_fenced: bool,
    /// It could not be written, which was told.
    unwritten: bool,
    copy: Option<Copy>,
    /// Children that were there before us, of whoever became us.
    strangers: Vec<Pid>,
    copies_begun: u64,
    copy_since: Instant,
    stands_since: Option<Instant>,
    /// The copy before this one stood still, and this one has not worked yet.
    stood_before: bool,
    making: Option<Making>,
    /// How fast images are written and come; none: as fast as they can.
    rate: Option<NonZeroU64>,
    /// It is to go on elsewhere.
    moving: Option<Move>,
    inside: Inside,
    /// Why the job does not have a copy of its last image, which it may have asked for.
    not_copied: Option<String>,
    control: Control<Ask>,
    /// Who has a say about the job (`--policy`).
    owner: Option<Owner>,
    voice: Voice,
    begun: Instant,
    events: VecDeque<Event>,
    chronicle: Chronicle,
    /// What copies before this one have spent.
    spent_before: Spent,
    /// It leaves with an image.
    leaves_with_image: bool,
    /// The job's end is written down.
    is_committed: bool,
    /// A copy of it has run, ours or an earlier starter's.
    has_run: bool,
    /// The copy that there is has begun to run.
    copy_runs: bool,
    /// By a command, until a copy runs: then the job is ours, as far as we know.
    by: By,
    /// The generation of the newest image that there was when a copy ended.
    went_on_from: Option<u64>,
    /// Why the copy could not begin.
    not_begun: Option<String>,
    /// The same, where there was no copy that could say it.
    unsaid: Option<Failure>,
    /// Images that a copy could not go on from.
    refused: Vec<Refused>,
    /// The line to the copy's machine is cut.
    is_cut: bool,
    /// Whoever kept the last copy from here is gone without a word.
    is_keeper_lost: bool,
    /// The next copy goes on from an older image than the last one, or from none.
    passes_over: bool,
    /// The job was stopped by this signal, and we are to stand still with it.
    stops_by: Option<i32>,
    /// We have stood still with the job, until somebody woke us.
    was_stopped: bool,
    left: Option<Leave>,
    /// The last copy of an earlier starter, of whose loss nothing is in the event log yet.
    lost: Option<Lost>,
    answers: Vec<(Who, Answer)>,
}

impl<'a> Starter<'a> {
    fn begin(
        store: &'a JobStore,
        job: &Job,
        copies: Copies<'a>,
        has_image: bool,
        arguments: &'a Arguments,
    ) -> Outcome<Self> {
        match copies.how {
            How::Here { .. } => rights::lay_down()?,
            How::Away(_) => rights::keep_those_about_files(&[], rights::Executes::Others)?,
        }
        let owner = match &arguments.policy {
            Some(path) => Some(Owner::begin(path, arguments.dialect, job)?),
            None => None,
        };
        let before = job.life_before.clone().filter(|_| copies.go_on);
        let lost = killed::with_its_copy(before.as_ref(), &job.dir);
        let mut record = LifeRecord::begin(before, arguments)?;
        lost.iter().for_each(|lost| lost.count(&mut record.counted));
        let minute = TimerFd::new(
            ClockId::CLOCK_BOOTTIME,
            TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK,
        )?;
        let every = Expiration::Interval(arguments.pulse.into());
        minute.set(every, TimerSetTimeFlags::empty())?;
        record.counted.job_lease_duration = Some(match &copies.how {
            How::Here { .. } => record.lease_ms / 1000,
            How::Away(away) => away.submit.lease.as_secs(),
        });
        pulse::touch(&job.dir)?;
        record.save(&job.dir)?;
        let control = Control::open(&job.dir)?;
        // Whoever loses his parent in the job comes to us.
        nix::sys::prctl::set_child_subreaper(true)?;
        let policy = Policy {
            every: arguments.every,
            vacate_within: arguments.vacate_within,
            killing_timeout: KILLING_TIMEOUT,
            restarts_per_image: RESTARTS_PER_IMAGE,
        };
        let first = match has_image {
            true => First::Restart {
                may_stand: record.may_stand,
            },
            false => First::Start,
        };
        let (life, actions) = Life::begin(policy, first);
        let mut starter = Starter {
            store,
            dir: job.dir.clone(),
            name: job.record.name.clone(),
            arguments,
            copies,
            life,
            record,
            minute,
            last_sign: since_boot(),
            is_fenced: false,
            unwritten: false,
            copy: None,
            strangers: copy::children(),
            copies_begun: 0,
            copy_since: Instant::now(),
            stands_since: None,
            stood_before: false,
            making: None,
            rate: arguments.image_rate,
            moving: None,
            inside: Inside::default(),
            not_copied: None,
            control,
            owner,
            voice: Voice::open(&job.dir),
            begun: Instant::now(),
            events: VecDeque::new(),
            chronicle: Chronicle::open(job),
            spent_before: Spent::default(),
            leaves_with_image: false,
            is_committed: false,
            has_run: Outset::is_in(&job.dir),
            copy_runs: false,
            by: By::command()?,
            went_on_from: None,
            not_begun: None,
            unsaid: None,
            refused: vec![],
            is_cut: false,
            is_keeper_lost: false,
            passes_over: false,
            stops_by: None,
            was_stopped: false,
            left: None,
            lost,
            answers: vec![],
        };
        starter.spent_before = starter.record.counted.spent();
        // One that begins again was submitted already.
        let is_known = starter.copies.go_on && starter.chronicle.has_events();
        if !has_image && !is_known {
            starter.chronicle.submitted();
        }
        if let How::Here { passed_over, .. } = &mut starter.copies.how {
            let passed_over = std::mem::take(passed_over);
            starter.pass_over(&passed_over);
        }
        starter.act(actions);
        Ok(starter)
    }

    /// Until there is nothing left to do.
    fn work(&mut self) -> Outcome<Leave> {
        loop {
            while let Some(event) = self.events.pop_front() {
                self.step(event);
            }
            if let Some(leave) = self.left.take() {
                return Ok(leave);
            }
            if let Some(signal) = self.stops_by.take() {
                self.stop(signal);
            }
            self.wait()?;
            self.give_sign();
            self.try_again();
            while let Some(meaning) = self.copies.signals.next(self.arguments.vacate_within) {
                self.heed(meaning);
            }
            for (who, ask) in self.control.asked() {
                self.is_asked(who, ask);
            }
            self.hear_copy();
            self.hear_seat();
            self.hear_owner();
            if self.wakes_in() == Some(Duration::ZERO) {
                self.events.push_back(Event::Time);
            }
        }
    }

    fn wakes_in(&self) -> Option<Duration> {
        let now = self.begun.elapsed();
        let at = self.life.wake_at(now)?;
        Some(at.saturating_sub(now))
    }

    fn wait(&self) -> Outcome<()> {
        let copy = self.copy.as_ref();
        let mut fds = vec![self.copies.signals.watched(), self.minute.as_fd()];
        let watched = copy.into_iter().chain(self.seat());
        fds.extend(watched.filter(|copy| copy.is_watched()).map(Copy::watched));
        fds.extend(self.control.watched());
        let mut fds: Vec<PollFd<'_>> = fds
            .into_iter()
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        let leftovers = copy.filter(|copy| !copy.is_watched()).map(|_| LOOK_AGAIN);
        let again = self.away().and_then(|away| away.hosts.again_in());
        let owner = self.owner.as_ref().filter(|_| copy.is_some());
        let owner = owner.map(Owner::wakes_in);
        let wakes = [
            self.wakes_in(),
            self.control.wakes_in(),
            leftovers,
            again,
            owner,
        ];
        let timeout = wakes.into_iter().flatten().min().map(|time| {
            // Not before its time.
            let ms = time.as_micros().div_ceil(1000);
            PollTimeout::from(u16::try_from(ms).unwrap_or(u16::MAX))
        });
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn heed(&mut self, meaning: Meaning) {
        match meaning {
            Meaning::Child => self.reap(),
            // A shell wakes us with the job; whoever wakes us to be heard does not mean the job.
            Meaning::Command(Command::Continue) if std::mem::take(&mut self.was_stopped) => {}
            Meaning::Command(command) => {
                self.tell_owner(&command);
                self.events.push_back(Event::Asked(NOBODY, command));
            }
            Meaning::PassOn(signal) => {
                if let Some(copy) = &self.copy {
                    copy.pass_on(signal);
                }
            }
            Meaning::Nothing => {}
        }
    }

    fn reap(&mut self) {
        while let Some((pid, status, usage)) = sys::wait_any() {
            let is_copy = self.copy.as_ref().is_some_and(|copy| copy.pid() == pid);
            let is_making = self.making.as_ref().is_some_and(|one| one.pid() == pid);
            match status {
                Change::Stopped(signal) if is_copy => self.stands_still(signal),
                Change::Continued if is_copy => self.events.push_back(Event::Continued),
                Change::Stopped(_) | Change::Continued => {}
                ended if is_making => {
                    if let Some(making) = self.making.take() {
                        let is_unwanted = making.is_unwanted();
                        let made = making.result(ended);
                        self.not_copied = made.as_ref().ok().cloned().flatten();
                        if let Some(why) = &self.not_copied {
                            self.voice.say(why);
                        }
                        let made = made.map(drop);
                        if made.is_ok() || is_unwanted || !self.postpones() {
                            self.events.push_back(Event::Checkpointed(made));
                        }
                    }
                }
                // Its number may be given to others now.
                _ if self.strangers.contains(&pid) => self.strangers.retain(|known| *known != pid),
                ended => {
                    // What a keeper has used is not the job's.
                    if self.away().is_none() {
                        self.record.counted.add(Spent {
                            used: usage,
                            ..Spent::default()
                        });
                    }
                    if let Some(copy) = self.copy.as_mut().filter(|_| is_copy) {
                        copy.reaped(ended);
                    } else if let Some(seat) = self.seat_mut().filter(|seat| seat.pid() == pid) {
                        seat.reaped(ended);
                    }
                }
            }
        }
    }

    /// The copy's supervisor has stopped, as it does with the job.
    fn stands_still(&mut self, signal: i32) {
        let Some(copy) = &self.copy else {
            return;
        };
        if !copy.stands_still() {
            // The job was continued before its supervisor was through with that.
            return copy.wake();
        }
        self.events.push_back(Event::Stopped);
        if !self.life.is_suspended() && (sys::is_of_terminal(signal) || sys::is_in_foreground()) {
            self.stops_by = Some(signal);
        }
    }

    /// Stands still with the job, so that its shell notices. When the copy says something, that wakes us.
    fn stop(&mut self, signal: i32) {
        let Some(copy) = self.copy.as_ref().filter(|_| self.life.is_still()) else {
            return;
        };
        copy.wakes_us(true);
        self.was_stopped = sys::stop_as_by(signal);
        copy.wakes_us(false);
    }

    fn hear_copy(&mut self) {
        let making = self.making.as_ref().map(Making::pid);
        let spared: Vec<Pid> = self.strangers.iter().copied().chain(making).collect();
        while let Some(copy) = &mut self.copy {
            match copy.news(&spared) {
                Some(News::Chose(choice)) => self.pass_over(&choice.passed_over),
                Some(News::Runs) => {
                    let tails = copy.tails();
                    self.note_tails(&tails);
                    (self.has_run, self.copy_runs) = (true, true);
                    self.by.takes_no_more();
                    if self.record.images_at_shadow {
                        self.record.kept_at = self.copies.how.kept_at(self.by);
                    }
                    self.record.counted.begun(self.life.state());
                    self.tell_lost();
                    self.chronicle.executing(self.record.on.as_deref());
                    self.events.push_back(Event::Runs);
                    self.runs_away();
                }
                Some(News::Cut) => self.line_is(false),
                Some(News::Joined) => self.line_is(true),
                Some(News::Asks) => self.is_asked_by_job(),
                Some(News::Wants(number, want)) => self.wants(number, want),
                Some(News::Updated) => {}
                Some(News::Stands(true)) => self.events.push_back(Event::Stopped),
                Some(News::Stands(false)) => self.events.push_back(Event::Continued),
                Some(News::Ends(end)) => self.commit(end),
                Some(News::Ended(end, why)) => {
                    let lost = copy.has_lost_something();
                    let refused = copy.refused(end).cloned();
                    // One that has never run ends by itself as soon as nobody is at the other end.
                    let is_gone = copy.has_ended_there() || matches!(end, End::NotBegun(_));
                    self.is_keeper_lost = !is_gone && end == End::Gone;
                    self.record.counted.add(copy.spent_at_last());
                    self.copy = None;
                    self.copy_runs = false;
                    if is_gone {
                        self.is_gone_there();
                    }
                    let goes_back = lost && (self.has_image() || Outset::is_possible_in(&self.dir));
                    let end = if goes_back { End::Gone } else { end };
                    if lost {
                        let name = &self.name;
                        self.voice.say(&format!(
                            "not all that job {name} has written is known to be where it belongs"
                        ));
                    }
                    // There is nothing left to copy, but what has been copied may have to be noted.
                    let may_be_by_it = matches!(end, End::Gone | End::Signalled(libc::SIGKILL))
                        && self.life.is_leaving();
                    if let Some(making) = self.making.as_mut().filter(|_| !may_be_by_it) {
                        making.abandon(Signal::SIGTERM);
                    }
                    self.not_begun = why;
                    if !self.tries_elsewhere(end) {
                        self.record.counted.was_there(self.copy_since.elapsed());
                        let event = self.refusal(refused, end).unwrap_or(Event::Ended(end));
                        self.events.push_back(event);
                    }
                    self.abandon_postponed("the job has ended");
                }
                None => return,
            }
        }
    }

    fn step(&mut self, event: Event) {
        let before = self.life.state();
        match &event {
            Event::Ended(_) | Event::Asked(_, Command::VacateLatest { .. }) => {
                if let Some(newest) = self.newest_image() {
                    let before = self.went_on_from.replace(newest);
                    self.life.note_image(before != Some(newest));
                }
            }
            Event::Checkpointed(made) => self.note(made),
            Event::Asked(_, Command::Migrate { to }) => {
                let to = to.clone();
                self.hosts()
                    .into_iter()
                    .for_each(|hosts| hosts.want(Some(to.clone())));
                self.move_begins();
            }
            _ => {}
        }
        // One that has never run has not begun, whatever has been prepared.
        if self.has_run && Outset::is_in(&self.dir) {
            self.life.note_outset(Outset::is_possible_in(&self.dir));
        }
        let actions = self.life.step(event, self.begun.elapsed());
        let after = self.life.state();
        let is_new = self.record.may_stand != self.life.may_stand();
        self.record.may_stand = self.life.may_stand();
        let stands_or_not = self.note_standing();
        if before != after {
            self.entered(before, after);
        } else if is_new || stands_or_not {
            // An image that is being made may be of a job that stands still.
            self.save();
        }
        self.act(actions);
        self.look_at_move();
    }
}
