//! The process that keeps a copy on another machine: the copy's shadow, and for its starter what a supervisor would be here.
//!
//! ```text
//! starter <── RUNS, ENDED, LOST ── keeper <══ line ══ supervisor there
//!         ── COMMITTED, NOT_COMMITTED ─>   ══════════>
//!         ── STOP, GO, KILL, SIGNAL ──>    a signal of the starter's there
//!         <── SEATED, MORE, IMAGE ────>    (a seat) what can be there is there; this, too; the job has left with this
//! ```
//! # What callers may rely on
//! It ends when the copy has, or is lost. What the copy has written is under the job's journal here, so that another copy begins where its
//! image was made, and what a lost copy still does reaches nobody: its session ends with this process.

use super::asking::{ANSWER_HEAD, answer_len};
use super::far::{Arriving, Copied, Errand, Far, Next};
use super::last_words::LastWords;
use super::service::{Over, Service};
use super::streams::JobState;
use super::{LONGEST_OUTSET, NOT_NOTED, NOTED, OUTSET};
use crate::args::Submit;
use crate::jobs::{JobStore, Outset};
use crate::life::Choice;
use crate::life::usage_said;
use crate::life::words::{
    ANSWER, CUT, FAILED, GO, IMAGE, JOINED, KILL, MORE, SEATED, SIGNAL, STOP,
};
use crate::limits;
use crate::report::{Exit, Failure, Outcome, chain, tell};
use crate::rights::{Executes, keep_those_about_files};
use crate::temporary::{self, Temporary};
use crate::verbs::home::journals;
use crate::verbs::shadow::{allowed, new_token, sessions};
use ckpt_lib::image::Image;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::Mode;
use starter::{Notice, Status};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

/// A copy that is to be kept.
pub(crate) struct Keep<'a> {
    pub(crate) store: &'a JobStore,
    /// The job's.
    pub(crate) dir: &'a Path,
    pub(crate) name: &'a str,
    pub(crate) host: &'a str,
    /// What the copy's folder there is called by.
    pub(crate) id: &'a str,
    /// The same of one that was there before.
    pub(crate) instead_of: Option<&'a str>,
    pub(crate) submit: &'a Submit,
    /// Directories that the job may use.
    pub(crate) allowed: &'a [OsString],
    /// The umask it has.
    pub(crate) mode: Mode,
    /// Where it begins.
    pub(crate) directory: &'a Path,
    pub(crate) command: &'a [OsString],
    /// It goes on from this image.
    pub(crate) image: Option<&'a Image>,
    /// The job still runs elsewhere: it goes on from an image that is based on this one, and of which the starter tells.
    pub(crate) is_seat: bool,
}

/// Keeps it; returns only if it is lost, or cannot be begun. `tells` is the starter's socket.
pub(crate) fn keep(what: &Keep<'_>, tells: OwnedFd) -> Failure {
    match begin(what, tells) {
        Ok(failure) | Err(failure) => failure,
    }
}

fn begin(what: &Keep<'_>, tells: OwnedFd) -> Outcome<Failure> {
    // No ssh is to hold it.
    fcntl(&tells, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    // Before there is another thread, which would have them.
    let passed = [
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
        Signal::SIGHUP,
    ];
    let mut set: SigSet = passed.into_iter().collect();
    // The terminal's ^Z is for the starter.
    set.add(Signal::SIGTSTP);
    set.thread_block()?;
    keep_those_about_files(&[], Executes::Others)?;
    let token = new_token()?;
    let mut allowed = allowed(what.allowed)?;
    temporary::cover(&mut allowed, Temporary::in_folder(what.dir));
    let sessions = sessions(
        allowed,
        token,
        Some(journals(
            what.store,
            what.submit.life.journal_max,
            Some(what.dir),
        )?),
        Some(what.store),
    )?
    .of_lines();
    let sessions = Arc::new(sessions.in_domains(what.submit.methods.sight.domains()));
    sessions.watch();
    let starter = UnixStream::from(tells);
    let (answers, answered) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let answered = File::from(answered);
    let has_spoken = Arc::new(AtomicBool::new(false));
    let said = LastWords::default();
    let words = Words {
        starter: starter.try_clone()?,
        answers: answered.try_clone()?,
        dir: what.dir.to_owned(),
        outset: Some(vec![]),
        has_spoken: has_spoken.clone(),
    };
    let job = JobState::new(File::from(answers), Box::new(words), Box::new(said.clone()));
    let job = Arc::new(job);
    let (hearing, asked) = (job.clone(), starter.try_clone()?);
    let (tells_image, image) = mpsc::channel();
    let tells = tells_at_last(job.clone())?;
    limits::thread(move || hear(asked, &hearing, &tells, answered, &tells_image))?;
    let (passing, used) = (job.clone(), job.clone());
    limits::thread(move || {
        while let Ok(signal) = set.wait() {
            if passed.contains(&signal) {
                passing.tell(Notice::Signal(signal as u32));
            }
        }
    })?;
    let back_to = match what.image {
        Some(_) => None,
        None => Outset::load(what.dir)?.map(|outset| outset.state),
    };
    let service = Service {
        far: Far {
            host: what.host,
            mode: what.mode,
            directory: what.directory,
            arguments: what.submit,
            quotes: true,
        },
        sessions,
        token,
        job,
    };
    let next = || await_image(&starter, &image);
    let arriving = what.image.map(|image| match what.is_seat {
        true => Arriving::Seat {
            base: image,
            next: &next,
        },
        false => Arriving::Now(image),
    });
    let copied = Copied {
        id: what.id,
        instead_of: what.instead_of,
        name: what.name,
        command: what.command,
        back_to: back_to.as_deref(),
        image: arriving,
    };
    let is_cut = AtomicBool::new(false);
    let over = service.serve(Errand::Copy(&copied), |ssh| {
        let was_cut = is_cut.swap(ssh.is_none(), Ordering::Relaxed);
        let news = match ssh {
            None => CUT,
            Some(_) => JOINED,
        };
        if was_cut == ssh.is_some() && has_spoken.load(Ordering::Acquire) {
            // A starter that is gone needs no news.
            let _ = (&starter).write_all(&[news]);
        }
        true
    });
    let (status, ssh) = match over {
        Over::Ended(status, ssh) => (status, ssh),
        Over::Refused(failure) => return Ok(failure.with(Exit::Failed)),
        Over::Lost(failure) => return Ok(failure),
    };
    // What it has had there is gone then.
    ssh.end();
    let status = match status {
        Status::Exited(status) => status as i32,
        Status::Killed(signal) => 128 + signal as i32,
    };
    if let (true, Some(used)) = (has_spoken.load(Ordering::Acquire), used.used()) {
        (&starter).write_all(&usage_said(used))?;
    }
    if !has_spoken.load(Ordering::Acquire) {
        let message = [&[FAILED], said.in_short().as_bytes()].concat();
        (&starter).write_all(&message)?;
    }
    std::process::exit(status);
}

/// Says that all is there that can be before the job leaves, and waits for the image with which it does.
fn await_image(starter: &UnixStream, told: &Receiver<(u8, PathBuf)>) -> Outcome<Next> {
    (&mut &*starter).write_all(&[SEATED])?;
    let gone = |_| Failure::new(Exit::Lost, "the job's starter is gone");
    let (word, path) = told.recv().map_err(gone)?;
    let image = Image::open(&path)?;
    if word == MORE {
        return Ok(Next::More(image));
    }
    Choice::of_new(&image).tell(starter)?;
    Ok(Next::Last(image))
}

/// The path behind [`IMAGE`] and [`MORE`].
fn path_said(starter: &mut UnixStream) -> io::Result<PathBuf> {
    let mut len = [0; 4];
    starter.read_exact(&mut len)?;
    let mut path = vec![0; u32::from_le_bytes(len) as usize];
    starter.read_exact(&mut path)?;
    Ok(PathBuf::from(OsString::from_vec(path)))
}

/// What the starter says, until it is gone.
fn hear(
    mut starter: UnixStream,
    job: &JobState,
    tells: &Sender<Notice>,
    mut answered: File,
    tells_image: &Sender<(u8, PathBuf)>,
) {
    let signal = |signal: i32| {
        let _ = tells.send(Notice::Signal(signal as u32));
    };
    let mut word = [0];
    while starter.read_exact(&mut word).is_ok() {
        match word[0] {
            word @ (IMAGE | MORE) => {
                let Ok(path) = path_said(&mut starter) else {
                    return;
                };
                // Nobody waits for a second one.
                let _ = tells_image.send((word, path));
            }
            STOP => signal(libc::SIGSTOP),
            GO => signal(libc::SIGCONT),
            SIGNAL => {
                let mut number = [0];
                if starter.read_exact(&mut number).is_err() {
                    return;
                }
                // Without a line it is lost, as the starter knows that there is none.
                job.tell(Notice::Signal(number[0].into()));
            }
            KILL => {
                if !job.tell(Notice::Signal(libc::SIGKILL as u32)) {
                    // It is ended there when its lease is over, and nobody waits for it.
                    std::process::exit(Exit::Lost as i32);
                }
            }
            ANSWER => {
                let mut answer = vec![0; ANSWER_HEAD];
                answer[0] = ANSWER;
                if starter.read_exact(&mut answer[1..]).is_err() {
                    return;
                }
                let len = answer_len(&answer).unwrap_or(ANSWER_HEAD);
                answer.resize(len, 0);
                if starter.read_exact(&mut answer[ANSWER_HEAD..]).is_err() {
                    return;
                }
                let _ = answered.write_all(&answer);
            }
            _ => {
                // Whoever does not read it any more has ended.
                let _ = answered.write_all(&word);
            }
        }
    }
}

/// Tells the job to stand still, or to go on, as soon as there is a line: what was asked for last.
fn tells_at_last(job: Arc<JobState>) -> Outcome<Sender<Notice>> {
    let (tells, told) = mpsc::channel();
    limits::thread(move || {
        while let Ok(mut notice) = told.recv() {
            while !job.tell(notice) {
                job.wait_for_line();
                notice = told.try_iter().last().unwrap_or(notice);
            }
        }
    })?;
    Ok(tells)
}

/// What the supervisor says to the starter.
struct Words {
    starter: UnixStream,
    answers: File,
    /// The job's.
    dir: PathBuf,
    /// What has come of what it says first, until that is whole.
    outset: Option<Vec<u8>>,
    /// The starter has been told something.
    has_spoken: Arc<AtomicBool>,
}

impl Write for Words {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes.to_vec();
        if let Some(mut begun) = self.outset.take() {
            begun.extend(&rest);
            rest = match split(begun)? {
                Split::Wants(begun) => {
                    self.outset = Some(begun);
                    return Ok(bytes.len());
                }
                Split::Whole { state, rest } => {
                    state.into_iter().try_for_each(|state| self.note(state))?;
                    rest
                }
            };
        }
        if !rest.is_empty() {
            self.has_spoken.store(true, Ordering::Release);
            self.starter.write_all(&rest)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Words {
    /// What the job begins with is durable, or it does not begin.
    fn note(&mut self, state: Vec<u8>) -> io::Result<()> {
        if let Err(error) = Outset::from_afar(state).save(&self.dir) {
            tell(&format!(
                "what the job begins with cannot be noted, so it does not begin: {}",
                chain(&error)
            ));
            return self.answers.write_all(&[NOT_NOTED]);
        }
        self.answers.write_all(&[NOTED])
    }
}

/// What has come of what a supervisor says first.
pub(super) enum Split {
    /// There is more to come.
    Wants(Vec<u8>),
    /// It is whole; none was said.
    Whole {
        state: Option<Vec<u8>>,
        rest: Vec<u8>,
    },
}

pub(super) fn split(mut begun: Vec<u8>) -> io::Result<Split> {
    match begun.first() {
        Some(&OUTSET) => {}
        _ => {
            return Ok(Split::Whole {
                state: None,
                rest: begun,
            });
        }
    }
    let Some(len) = begun.get(1..5).and_then(|len| len.try_into().ok()) else {
        return Ok(Split::Wants(begun));
    };
    let len = u32::from_le_bytes(len) as usize;
    if len > LONGEST_OUTSET {
        let message = format!("an outset of {len} bytes, expected at most {LONGEST_OUTSET}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    if begun.len() < 5 + len {
        return Ok(Split::Wants(begun));
    }
    let rest = begun.split_off(5 + len);
    Ok(Split::Whole {
        state: Some(begun.split_off(5)),
        rest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(dir: &Path) -> (Words, UnixStream, File) {
        let (starter, ours) = UnixStream::pair().expect("a pair");
        let (answers, answered) = nix::unistd::pipe().expect("a pipe");
        let words = Words {
            starter,
            answers: File::from(answered),
            dir: dir.to_owned(),
            outset: Some(vec![]),
            has_spoken: Arc::default(),
        };
        (words, ours, File::from(answers))
    }

    #[test]
    fn an_outset_is_noted_however_it_comes_and_the_rest_goes_on() {
        let mut all = vec![OUTSET];
        all.extend(5u32.to_le_bytes());
        all.extend(b"staterest");
        for size in 1..=all.len() {
            let dir = tempfile::tempdir().expect("a folder");
            let (mut words, ours, mut answers) = words(dir.path());
            for portion in all.chunks(size) {
                words.write_all(portion).expect("is taken");
            }
            let noted = Outset::load(dir.path()).expect("is read");
            assert_eq!(noted.map(|outset| outset.state), Some(b"state".to_vec()));
            drop(words);
            let mut said = String::new();
            (&ours).read_to_string(&mut said).expect("is said");
            assert_eq!(said, "rest");
            let mut answer = vec![];
            answers.read_to_end(&mut answer).expect("is answered");
            assert_eq!(answer, [NOTED]);
        }
    }

    #[test]
    fn a_copy_without_one_is_heard_and_nonsense_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let (mut begun, ours, _answers) = words(dir.path());
        begun.write_all(b"r").expect("is taken");
        begun.write_all(b"o").expect("goes on as it is");
        assert!(begun.has_spoken.load(Ordering::Acquire));
        drop(begun);
        let mut said = String::new();
        (&ours).read_to_string(&mut said).expect("is said");
        assert_eq!(said, "ro");
        let (mut long, _ours, _answers) = words(dir.path());
        let error = long.write_all(&[OUTSET, 255, 255, 255, 255]);
        let error = error.expect_err("too long");
        assert!(error.to_string().contains("at most 65536"), "{error}");
        assert_eq!(Outset::load(dir.path()).expect("is read"), None);
    }

    #[test]
    fn an_outset_that_cannot_be_noted_is_told() {
        let (mut words, _ours, mut answers) = words(Path::new("/nowhere"));
        words
            .write_all(&[OUTSET, 1, 0, 0, 0, b's'])
            .expect("is taken");
        drop(words);
        let mut answer = vec![];
        answers.read_to_end(&mut answer).expect("is answered");
        assert_eq!(answer, [NOT_NOTED]);
    }
}
