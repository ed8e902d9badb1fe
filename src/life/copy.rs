//! A copy of the job: the process that becomes its supervisor, and all that comes from it.
//!
//! ```text
//! starter ──fork──> run or restart ──exec──> the loader: P0 -> P1 -> the job
//!    ^ ──────── a socket: "it cannot begin", "it runs", "it has ended so" ────────'
//!    |                   "that is written down" ──────────> P0, which ends then
//!    `─ whoever loses his parent in there becomes the starter's child
//! ```
//! # What callers may rely on
//! A copy that has ended has left no process, except where a program outlives SIGKILL in the kernel: then it has not ended.
//! When the starter is killed, so is the copy.

use super::counting::Spent;
use super::passing::Choice;
use super::said::{behind_runs, said_of_its_end, said_of_usage, understood};
use super::signals::Signals;
use super::standing::{kill_job, let_job_go, stop_job};
use super::words::{self, CUT, FAILED, JOINED, UPDATE, WANTS};
use crate::away::{Update, answer_said, wants_heard};
use crate::jobs::{JobProcesses, process};
use crate::limits;
use crate::remote::Tally;
use crate::report::Exit;
use crate::report::{Failure, Outcome, conclude};
use crate::rights;
use crate::sys::{self, Change, Usage};
use ckpt_lib::board::Want;
use ckpt_lib::procfs::living_thread;
use loader::words::{ASKS, COMMITTED, LOST, NOT_COMMITTED, RUNS};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use starter::life::End;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Ends what the job wants, and what is said of what it does.
const TEXT_END: u8 = b';';

/// A copy that was begun.
#[derive(Debug)]
pub(super) struct Copy {
    /// P0.
    pid: Pid,
    says: UnixStream,
    said: Vec<u8>,
    told_that_it_runs: bool,
    told_of_its_end: bool,
    /// It says nothing any more.
    is_silent: bool,
    /// P0 is gone, and went so.
    gone: Option<Change>,
    /// It is on another machine, and P0 keeps it from here.
    is_away: bool,
    /// The image it goes on from.
    choice: Option<Choice>,
    /// What it has done on another machine, as far as was said.
    update: Update,
    /// What it does with its files, on this machine.
    tally: Option<Tally>,
}

/// What a copy has to tell.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// It goes on from an image.
    Chose(Choice),
    Runs,
    /// The line to its machine is cut.
    Cut,
    /// There is another.
    Joined,
    /// The job has written something on its board.
    Asks,
    /// The same, on another machine, and what that is.
    Wants(u32, Want),
    /// What it has done on another machine is known anew.
    Updated,
    /// On another machine it has begun to stand still by itself, or ceased to.
    Stands(bool),
    /// It has ended so, and waits until that is written down.
    Ends(End),
    /// What kept it from beginning, if it was said.
    Ended(End, Option<String>),
}

impl Copy {
    /// Begins one: `become_supervisor` is called in a process of its own with the descriptor for the loader, and returns only if it
    /// has failed.
    pub(super) fn begin(
        signals: &Signals,
        is_away: bool,
        become_supervisor: impl FnOnce(OwnedFd) -> Failure,
    ) -> Outcome<Self> {
        let (says, tells) = UnixStream::pair()?;
        let parent = nix::unistd::getpid();
        let Some(pid) = limits::process()? else {
            let failed = begin_here(signals, parent, tells.into(), become_supervisor);
            std::process::exit(i32::from(failed));
        };
        drop(tells);
        Ok(Self::of(pid, says, is_away)?)
    }

    fn of(pid: Pid, says: UnixStream, is_away: bool) -> std::io::Result<Self> {
        says.set_nonblocking(true)?;
        Ok(Copy {
            pid,
            says,
            said: vec![],
            told_that_it_runs: false,
            told_of_its_end: false,
            is_silent: false,
            gone: None,
            is_away,
            choice: None,
            update: Update::default(),
            tally: None,
        })
    }

    /// What becomes readable when it says something.
    pub(super) fn watched(&self) -> BorrowedFd<'_> {
        self.says.as_fd()
    }

    /// Whether it can still say something.
    pub(super) fn is_watched(&self) -> bool {
        !self.is_silent
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Its processes, as far as they are found.
    fn processes(&self) -> JobProcesses {
        process::find_job(self.pid.as_raw())
    }

    /// The job's first process, if it is on this machine.
    pub(super) fn root(&self) -> Option<i32> {
        self.processes().root.filter(|_| !self.is_away)
    }

    /// How many processes it has.
    pub(super) fn count(&self) -> usize {
        match self.is_away {
            // Which is all that can have an image.
            true => 1,
            false => self.processes().all.len(),
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.is_some()
    }

    /// P0 is gone.
    pub(super) fn reaped(&mut self, status: Change) {
        self.gone = Some(status);
    }

    /// Reads what it has said since.
    fn listen(&mut self) {
        let mut buffer = [0; 4096];
        loop {
            match self.says.read(&mut buffer) {
                Ok(0) => {
                    self.is_silent = true;
                    return;
                }
                Ok(len) => self.said.extend(&buffer[..len]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    /// Whether what can be at its machine before it begins is there: not yet, yes, or why it never will.
    pub(super) fn is_seated(&mut self) -> Option<Result<(), String>> {
        self.listen();
        if self.said.first() == Some(&words::SEATED) {
            self.said.remove(0);
            return Some(Ok(()));
        }
        let status = self.gone?;
        let (_, why) = understood(&self.said, status);
        Some(Err(why.unwrap_or_else(|| "it has not said why".to_owned())))
    }

    /// A copy that is seated is told of an image, by [`words::IMAGE`] or [`words::MORE`].
    pub(super) fn is_told_of(&self, image: &Path, word: u8) -> std::io::Result<()> {
        let path = image.as_os_str().as_bytes();
        let len = (path.len() as u32).to_le_bytes();
        (&self.says).write_all(&[&[word], &len[..], path].concat())
    }

    /// What it has to tell now. `spared` are children of ours that are none of its.
    pub(super) fn news(&mut self, spared: &[Pid]) -> Option<News> {
        self.listen();
        if self.choice.is_none()
            && let Some(choice) = Choice::take(&mut self.said)
        {
            self.choice = Some(choice.clone());
            return Some(News::Chose(choice));
        }
        if !self.told_that_it_runs && self.said.first() == Some(&RUNS) {
            self.told_that_it_runs = true;
            let goes_on = self.choice.is_some();
            let root = self.root();
            self.tally = root.and_then(|root| Tally::of(root, goes_on).ok().flatten());
            return Some(News::Runs);
        }
        if let Some(news) = self.of_the_line() {
            return Some(news);
        }
        // The word that it runs is the first.
        let asked = self.said.iter().skip(1).take_while(|word| **word == ASKS);
        let asked = asked.count();
        if self.told_that_it_runs && asked > 0 {
            self.said.drain(1..=asked);
            return Some(News::Asks);
        }
        if let Some((number, want)) = self.text(WANTS).and_then(|text| wants_heard(&text)) {
            return Some(News::Wants(number, want));
        }
        if let Some(text) = self.text(UPDATE) {
            let before = self.update;
            self.update = Update::heard(&text).unwrap_or(before);
            return Some(match self.update.stands {
                same if same == before.stands => News::Updated,
                stands => News::Stands(stands),
            });
        }
        if !self.told_of_its_end
            && self.gone.is_none()
            && !self.has_lost_something()
            && let Some(end) = said_of_its_end(&self.said)
        {
            self.told_of_its_end = true;
            return Some(News::Ends(end));
        }
        let status = self.gone?;
        // Those of a supervisor that was killed have come to us.
        let left = left_behind(spared);
        if !left.is_empty() {
            left.into_iter().for_each(kill);
            return None;
        }
        let (end, why) = understood(&self.said, status);
        Some(News::Ended(end, why))
    }

    /// Something that it has written is nowhere, as its supervisor says.
    pub(super) fn has_lost_something(&self) -> bool {
        behind_runs(&self.said).first() == Some(&LOST)
    }

    /// How what is cut off the job's files for it would be called.
    pub(super) fn tails(&self) -> Vec<String> {
        let choice = self.choice.as_ref();
        choice
            .map(|choice| choice.tails.clone())
            .unwrap_or_default()
    }

    /// Whether it is known to have ended where it was.
    pub(super) fn has_ended_there(&self) -> bool {
        !self.is_away || said_of_its_end(&self.said).is_some() || self.used_there().is_some()
    }

    /// The processor time that it has used on another machine, if that was said at its end.
    fn used_there(&self) -> Option<Usage> {
        said_of_usage(&self.said)
    }

    /// What whoever keeps it says of the line to its machine.
    fn of_the_line(&mut self) -> Option<News> {
        let said = self.said.get(1..).filter(|_| self.told_that_it_runs)?;
        // It may have been cut in the middle of a text.
        let is_text = matches!(said.first(), Some(&(WANTS | UPDATE)));
        let among = said.iter().take_while(|word| is_text && **word != TEXT_END);
        let inside = among.enumerate().skip(1);
        let inside = inside.filter(|(_, word)| matches!(**word, CUT | JOINED));
        let at = inside.map(|(at, _)| at).next().unwrap_or(0);
        let news = match *said.get(at)? {
            CUT => News::Cut,
            JOINED => News::Joined,
            _ => return None,
        };
        self.said.remove(1 + at);
        Some(news)
    }

    /// The text behind this word, up to its end, if that is next and has come whole.
    fn text(&mut self, word: u8) -> Option<Vec<u8>> {
        let said = self.said.get(1..).filter(|_| self.told_that_it_runs)?;
        let text = said.strip_prefix(&[word])?;
        let len = text.iter().position(|word| *word == TEXT_END)?;
        let text = text[..len].to_vec();
        self.said.drain(1..len + 3);
        Some(text)
    }

    /// What the job on another machine wanted is done, or not.
    pub(super) fn answer_there(&self, number: u32, want: Want, result: Result<(), &str>) {
        if self.is_away {
            // One that is gone waits for nothing.
            let _ = (&self.says).write_all(&answer_said(number, want, result));
        }
    }

    /// What it was to go on from, if it has ended so because that cannot be used.
    pub(super) fn refused(&self, end: End) -> Option<&Choice> {
        let End::NotBegun(status) = end else {
            return None;
        };
        // What ends otherwise before the loader is there says nothing about the image.
        let is_by_loader = self.said.first() != Some(&FAILED);
        let may_be_by_image = [Exit::Failed, Exit::Host].map(|exit| exit as i32);
        let is_refused = status == Exit::Image as i32
            || is_by_loader && !self.is_away && may_be_by_image.contains(&status);
        self.choice.as_ref().filter(|_| is_refused)
    }

    /// How it has ended is written down, and nobody goes back behind that; or not. Not every supervisor waits for that.
    pub(super) fn has_been_noted(&self, is_final: bool) {
        let word = if is_final { COMMITTED } else { NOT_COMMITTED };
        // One that is gone needs no answer.
        let _ = (&self.says).write_all(&[word]);
    }

    /// Says it to whoever keeps it, if it is on another machine; whether it is.
    fn is_said(&self, word: u8) -> bool {
        // One that is gone hears nothing.
        self.is_away && (&self.says).write_all(&[word]).map_or(true, |()| true)
    }

    /// Kills the job; its supervisor is told by that.
    pub(super) fn kill(&self) {
        if !self.is_said(words::KILL) && !kill_job(self.pid) {
            kill(self.pid);
        }
    }

    /// Kills the job and whoever supervises it.
    pub(super) fn kill_all(&self) {
        let found = self.processes();
        for pid in found.all.into_iter().chain(found.init) {
            kill(Pid::from_raw(pid));
        }
        if self.gone.is_none() {
            kill(self.pid);
        }
    }

    /// Stops every process of the job.
    pub(super) fn stop(&self) {
        if !self.is_said(words::STOP) {
            stop_job(self.pid);
        }
    }

    /// Lets every process of the job go on that is stopped, and its supervisor.
    pub(super) fn go(&self) {
        if !self.is_said(words::GO) {
            let_job_go(self.pid);
        }
    }

    /// Lets the supervisor go on, which stops with the job.
    pub(super) fn wake(&self) {
        let _ = sys::send_signal(self.pid, libc::SIGCONT);
    }

    /// Whether what the copy says lets us go on if we stand still, by SIGCONT (fcntl(2), F_SETSIG).
    pub(super) fn wakes_us(&self, wakes: bool) {
        let _ = sys::wake_by(&self.says, wakes.then_some(libc::SIGCONT));
    }

    /// What it has spent until now, as far as that is known here.
    pub(super) fn spent_so_far(&self) -> Spent {
        let used = match self.is_away {
            true => self.update.used,
            false => {
                let all = self.processes().all.into_iter();
                let stats = all.filter_map(|pid| process::read_stat(pid).ok());
                stats.map(|stat| stat.used).sum()
            }
        };
        Spent {
            used,
            ..self.moved()
        }
    }

    /// What of it nobody else counts when it has ended: the processor time of processes here is told when they are reaped.
    pub(super) fn spent_at_last(&self) -> Spent {
        let used = match self.is_away {
            // Of one that is lost we know what was said last; and not everybody who has ended there was waited for.
            true => self
                .used_there()
                .unwrap_or_default()
                .at_least(self.update.used),
            false => Usage::default(),
        };
        Spent {
            used,
            ..self.moved()
        }
    }

    /// Bytes of files.
    fn moved(&self) -> Spent {
        let here = self.tally.as_ref().and_then(Tally::bytes);
        let (read, written) = here.unwrap_or((self.update.read_bytes, self.update.written_bytes));
        Spent {
            sent_bytes: written,
            received_bytes: read,
            ..Spent::default()
        }
    }

    /// Whether the job's first process stands still.
    pub(super) fn stands_still(&self) -> bool {
        let root = self.processes().root;
        root.is_some_and(|pid| matches!(process::state(pid), Ok('T')))
    }

    /// Sends the job's first process a signal, on another machine, too.
    pub(super) fn signal(&self, number: i32) {
        match (self.is_away, u8::try_from(number)) {
            // One that is gone hears nothing.
            (true, Ok(number)) => drop((&self.says).write_all(&[words::SIGNAL, number])),
            _ => self.pass_on(number),
        }
    }

    /// Passes a signal on to the job.
    pub(super) fn pass_on(&self, signal: i32) {
        let _ = sys::send_signal(self.pid, signal);
    }
}

/// In the new process: becomes the supervisor, or says why not; the exit status.
fn begin_here(
    signals: &Signals,
    parent: Pid,
    tells: OwnedFd,
    become_supervisor: impl FnOnce(OwnedFd) -> Failure,
) -> u8 {
    let tied = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
    if tied.is_err() || nix::unistd::getppid() != parent || signals.give_back().is_err() {
        return 1;
    }
    if rights::take_up().is_err() {
        return 1;
    }
    if !sys::has_terminal() {
        // A signal to our process group is for us: there is no shell that would move the job's with it.
        let _ = nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0));
    }
    let failed = match nix::unistd::dup(&tells) {
        // Without close-on-exec, for the loader.
        Ok(for_loader) => become_supervisor(for_loader),
        Err(error) => Failure::from(error),
    };
    let message = [&[FAILED], failed.to_string().as_bytes()].concat();
    let _ = File::from(tells).write_all(&message);
    conclude(Err(failed)) as u8
}

/// Our children, as the caller has begun us with or we have got since.
pub(super) fn children() -> Vec<Pid> {
    let all = process::children(nix::unistd::getpid().as_raw());
    all.into_iter().map(Pid::from_raw).collect()
}

/// Our children that are neither `spared` nor wayfarer itself (which keeps what a job has written, or its files).
fn left_behind(spared: &[Pid]) -> Vec<Pid> {
    let own = std::fs::read_link("/proc/self/exe").ok();
    let is_own = |pid: &Pid| {
        let exe = std::fs::read_link(format!("/proc/{}/exe", living_thread(pid.as_raw())));
        exe.ok().is_some_and(|exe| Some(exe) == own)
    };
    let lives =
        |pid: &Pid| process::state(pid.as_raw()).is_ok_and(|state| !matches!(state, 'Z' | 'X'));
    children()
        .into_iter()
        .filter(|pid| !spared.contains(pid) && lives(pid) && !is_own(pid))
        .collect()
}

pub(super) fn kill(pid: Pid) {
    let _ = nix::sys::signal::kill(pid, Signal::SIGKILL);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn away() -> (Copy, UnixStream) {
        let (says, theirs) = UnixStream::pair().expect("a pair");
        let copy = Copy::of(Pid::from_raw(i32::MAX), says, true).expect("is made");
        (copy, theirs)
    }

    #[test]
    fn what_a_job_elsewhere_wants_is_heard_wherever_the_line_is_cut() {
        let whole = b"W12,1;W13,3;";
        for at in 0..=whole.len() {
            let (mut copy, mut theirs) = away();
            let all = [b"r", &whole[..at], b"CJ", &whole[at..], b"e\0\x03\0\0"].concat();
            let mut news = vec![];
            for byte in all {
                theirs.write_all(&[byte]).expect("is said");
                news.extend(std::iter::from_fn(|| copy.news(&[])));
            }
            let wanted = [
                News::Wants(12, Want::Checkpoint),
                News::Wants(13, Want::GoBack),
            ];
            let of_the_line = |one: &News| matches!(one, News::Cut | News::Joined);
            let line: Vec<&News> = news.iter().filter(|one| of_the_line(one)).collect();
            assert_eq!(line, [&News::Cut, &News::Joined], "{at}");
            news.retain(|one| !of_the_line(one));
            let [first, last] = wanted;
            let ends = News::Ends(End::Exited(3));
            assert_eq!(news, [News::Runs, first, last, ends], "{at}");
        }
    }

    #[test]
    fn what_is_said_behind_an_update_is_heard_at_once() {
        let said = b"rD1000,2,3,4,0;W12,1;D1000,2,3,4,1;CJD2000,2,3,4,0;D3000,";
        let (mut copy, mut theirs) = away();
        theirs.write_all(said).expect("is said");
        let news: Vec<News> = std::iter::from_fn(|| copy.news(&[])).collect();
        let expected = [
            News::Runs,
            News::Updated,
            News::Wants(12, Want::Checkpoint),
            News::Stands(true),
            News::Cut,
            News::Joined,
            News::Stands(false),
        ];
        assert_eq!(news, expected);
        assert_eq!(copy.spent_at_last().used.user, Duration::from_millis(2));
        assert_eq!(copy.spent_at_last().received_bytes, 3);
        // Who has ended there was not waited for by those who tell.
        theirs
            .write_all(b"2,3,4,0;e\0\x03\0\0U\x01\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0")
            .expect("is said");
        let news: Vec<News> = std::iter::from_fn(|| copy.news(&[])).collect();
        assert_eq!(news, [News::Updated, News::Ends(End::Exited(3))]);
        let used = copy.spent_at_last().used;
        assert_eq!(
            (used.user, used.system),
            (Duration::from_millis(3), Duration::from_micros(9))
        );
    }
}
