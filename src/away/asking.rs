//! What a job on another machine asks of its starter at home by its board (docs/adr/0024): read there, where it can be, and answered there.
//!
//! ```text
//! supervisor ──ASKS──> here: reads the boards ──WANTS number, kind──> keeper ──> starter
//! boards <──written── here <───────────────── ANSWER number, kind, result, why ──────────'
//! ```
//! What the job does (update.rs) is said from here, too, while it runs.
//! Everything else that supervisor and starter say to each other passes as it is.

use super::keep::{Split, split};
use super::update::{LOOK_EVERY, Watch};
use crate::jobs::process;
use crate::life::words::{ANSWER, WANTS};
use crate::limits;
use crate::report::{Outcome, tell};
use ckpt_lib::board::{Board, Want};
use ckpt_lib::procfs::by_living_thread;
use ckpt_lib::tracee::HostPid;
use loader::words::{ASKS, RUNS};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The longest reason that is carried.
const LONGEST_WHY: usize = 1024;
/// Bytes of an answer up to its reason: the word, number, kind, result, and how long the reason is.
const HEAD: usize = 12;

/// What is wanted, as it is said to the starter: text without letters, in which what is said of the line can be told apart.
fn wants_said(number: u32, want: Want) -> String {
    format!("{}{number},{};", char::from(WANTS), want.number())
}

/// Takes it from what follows the word, up to its end; none: that is nothing of ours.
pub(crate) fn wants_heard(text: &[u8]) -> Option<(u32, Want)> {
    let (number, kind) = std::str::from_utf8(text).ok()?.split_once(',')?;
    Some((number.parse().ok()?, Want::from(kind.parse::<u32>().ok()?)))
}

/// An answer, as it is said to whoever can write it on the board.
pub(crate) fn answer_said(number: u32, want: Want, result: Result<(), &str>) -> Vec<u8> {
    let why = result.err().unwrap_or_default();
    let mut len = why.len().min(LONGEST_WHY);
    while !why.is_char_boundary(len) {
        len -= 1;
    }
    let mut said = vec![ANSWER];
    said.extend(number.to_le_bytes());
    said.extend(want.number().to_le_bytes());
    said.push(u8::from(result.is_err()));
    said.extend((len as u16).to_le_bytes());
    said.extend(&why.as_bytes()[..len]);
    said
}

/// How long an answer is of which this is the beginning; none: that is not said yet.
pub(crate) fn answer_len(said: &[u8]) -> Option<usize> {
    let len = said.get(HEAD - 2..HEAD)?;
    Some(HEAD + usize::from(u16::from_le_bytes([len[0], len[1]])))
}

/// Bytes up to the reason.
pub(crate) const ANSWER_HEAD: usize = HEAD;

/// The job under this supervisor, whose words come by `theirs`; those for its starter go by `ours`.
pub(crate) struct Asking {
    pub(crate) supervisor: i32,
    pub(crate) theirs: UnixStream,
    pub(crate) ours: UnixStream,
    /// Whether the job was told to stand still, and not yet to go on.
    pub(crate) told_to_stand: Arc<AtomicBool>,
    /// It goes on from an image.
    pub(crate) goes_on: bool,
    /// To be done as soon as the job runs.
    pub(crate) runs: Option<Box<dyn FnOnce() + Send>>,
}

impl Asking {
    /// Passes everything on in a thread, until either is gone. It takes no signals.
    pub(crate) fn begin(self) -> Outcome<()> {
        let all = nix::sys::signal::SigSet::all();
        let before = all.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_SETMASK)?;
        let begun = limits::thread(move || match self.pass() {
            Err(error) if error.kind() == ErrorKind::InvalidData => tell(&error.to_string()),
            // Whoever is gone has said all that he had to say.
            _ => {}
        });
        before.thread_set_mask()?;
        begun
    }

    fn pass(mut self) -> io::Result<()> {
        let mut said = Said::default();
        let mut heard = vec![];
        let mut portion = [0; 4096];
        let mut watch: Option<Watch> = None;
        loop {
            let mut both = [&self.theirs, &self.ours].map(|stream| {
                let flags = PollFlags::POLLIN;
                PollFd::new(stream.as_fd(), flags)
            });
            let time = match watch {
                Some(_) => PollTimeout::from(LOOK_EVERY.as_millis() as u16),
                None => PollTimeout::NONE,
            };
            match poll(&mut both, time) {
                Ok(_) => {}
                Err(nix::errno::Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let [by_supervisor, by_starter] = both.map(|fd| fd.any() == Some(true));
            if by_supervisor {
                let len = read(&mut self.theirs, &mut portion)?;
                let boards = || boards(self.supervisor);
                let passed = said.pass(&portion[..len], boards)?;
                if matches!(said, Said::Ends)
                    && let Some(update) = watch.take().and_then(|mut watch| watch.look_at_last())
                {
                    self.ours.write_all(update.as_bytes())?;
                }
                self.ours.write_all(&passed)?;
                if matches!(said, Said::Runs(_)) && watch.is_none() {
                    let told_to_stand = self.told_to_stand.clone();
                    watch = Some(Watch::begin(self.supervisor, told_to_stand, self.goes_on));
                    if let Some(runs) = self.runs.take() {
                        // Without a thread it is left undone.
                        let _ = std::thread::Builder::new().spawn(runs);
                    }
                }
            }
            // Behind a line that is cut for long there is no room, and numbers may be said later.
            let has_room = has_room(&self.ours);
            let update = watch.as_mut().filter(|_| has_room).and_then(Watch::look);
            if let Some(update) = update {
                self.ours.write_all(update.as_bytes())?;
            }
            if by_starter {
                let len = read(&mut self.ours, &mut portion)?;
                heard.extend(&portion[..len]);
                self.hear(&mut heard)?;
            }
        }
    }

    /// What the starter has said.
    fn hear(&mut self, heard: &mut Vec<u8>) -> io::Result<()> {
        while let Some(&word) = heard.first() {
            if word != ANSWER {
                self.theirs.write_all(&[word])?;
                heard.remove(0);
                continue;
            }
            let Some(len) = answer_len(heard).filter(|len| *len <= heard.len()) else {
                break;
            };
            let answer: Vec<u8> = heard.drain(..len).collect();
            write_answer(&answer, &boards(self.supervisor));
        }
        Ok(())
    }
}

fn has_room(stream: &UnixStream) -> bool {
    let mut one = [PollFd::new(stream.as_fd(), PollFlags::POLLOUT)];
    let is_known = poll(&mut one, PollTimeout::ZERO).is_ok();
    is_known
        && one[0]
            .revents()
            .is_some_and(|found| found.contains(PollFlags::POLLOUT))
}

fn read(stream: &mut UnixStream, portion: &mut [u8]) -> io::Result<usize> {
    match stream.read(portion) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        read => read,
    }
}

fn boards(supervisor: i32) -> Vec<Board> {
    let root = process::find_job(supervisor).root;
    let boards = root.map(|root| by_living_thread(root, |thread| Board::all_of(HostPid(thread))));
    // Of a job that has just ended there are none.
    boards.and_then(Result::ok).unwrap_or_default()
}

/// Writes it where that is still waited for.
fn write_answer(answer: &[u8], boards: &[Board]) {
    let number = |at: usize| -> Option<u32> {
        let bytes = answer.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes))
    };
    let (Some(asked), Some(kind)) = (number(1), number(5)) else {
        return;
    };
    let why = String::from_utf8_lossy(&answer[HEAD..]);
    let result = match answer.get(9) {
        Some(0) => Ok(()),
        _ => Err(&*why),
    };
    for board in boards {
        let wants = board.read().ok().and_then(|notice| notice.wants);
        if wants == Some((asked, Want::from(kind))) {
            // If it is gone, nobody waits.
            let _ = board.answer(asked, result);
        }
    }
}

/// What the supervisor has said so far.
#[derive(Debug)]
enum Said {
    /// What it begins with, as far as it has come.
    Begins(Vec<u8>),
    /// The job runs, and this was asked for last.
    Runs(Option<(u32, Want)>),
    /// It has ended, or was not begun.
    Ends,
}

impl Default for Said {
    fn default() -> Self {
        Said::Begins(vec![])
    }
}

impl Said {
    /// What of this is said to the starter, and in which words.
    fn pass(&mut self, bytes: &[u8], boards: impl Fn() -> Vec<Board>) -> io::Result<Vec<u8>> {
        let mut passed = vec![];
        let mut rest = bytes.to_vec();
        if let Said::Begins(begun) = self {
            begun.extend(rest);
            let whole = begun.clone();
            rest = match split(whole.clone())? {
                Split::Wants(_) => return Ok(passed),
                Split::Whole { rest, .. } => rest,
            };
            // The beginning goes as it is.
            passed.extend(&whole[..whole.len() - rest.len()]);
            let Some(&word) = rest.first() else {
                // Behind the beginning there is no other.
                *self = Said::Begins(vec![]);
                return Ok(passed);
            };
            *self = match word {
                RUNS => Said::Runs(None),
                _ => Said::Ends,
            };
            passed.push(word);
            rest.remove(0);
        }
        for (index, word) in rest.iter().enumerate() {
            match self {
                Said::Runs(last) if *word == ASKS => {
                    for board in boards() {
                        let wants = board.read().ok().and_then(|notice| notice.wants);
                        // It is told again and again until it is answered.
                        if let Some((number, want)) = wants.filter(|wants| Some(*wants) != *last) {
                            *last = wants;
                            passed.extend(wants_said(number, want).bytes());
                        }
                    }
                }
                _ => {
                    *self = Said::Ends;
                    passed.extend(&rest[index..]);
                    break;
                }
            }
        }
        Ok(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_heard_as_it_is_said() {
        for want in [
            Want::Checkpoint,
            Want::Leave,
            Want::GoBack,
            Want::Unknown(77),
        ] {
            let said = wants_said(u32::MAX, want);
            let text = said.as_bytes().strip_prefix(&[WANTS]).expect("its word");
            let text = text.strip_suffix(b";").expect("its end");
            assert_eq!(wants_heard(text), Some((u32::MAX, want)));
        }
        for nonsense in [
            &b""[..],
            b"1",
            b"1,",
            b",1",
            b"1,2,3",
            b"-1,2",
            b"4294967296,1",
        ] {
            assert_eq!(wants_heard(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn an_answer_says_how_long_it_is() {
        let long = "ü".repeat(LONGEST_WHY);
        for result in [Ok(()), Err("no image"), Err(&*long)] {
            let said = answer_said(7, Want::Leave, result);
            assert_eq!(answer_len(&said), Some(said.len()));
            assert!(said.len() <= HEAD + LONGEST_WHY);
            assert_eq!(answer_len(&said[..HEAD - 1]), None);
        }
    }

    #[test]
    fn nothing_is_taken_for_a_request_but_the_word_of_a_job_that_runs() {
        let mut all = vec![b'o', 4, 0, 0, 0];
        all.extend([ASKS; 4]);
        all.extend([RUNS, ASKS, ASKS]);
        let end = [b'e', ASKS, ASKS, 0, 0];
        all.extend(end);
        // Those of the job that runs are looked after here, and it wants nothing.
        let mut expected = all.clone();
        expected.drain(10..12);
        for size in 1..=all.len() {
            let mut said = Said::default();
            let mut passed = vec![];
            for portion in all.chunks(size) {
                passed.extend(said.pass(portion, Vec::new).expect("is understood"));
            }
            assert_eq!(passed, expected, "{size}");
        }
        let mut said = Said::default();
        let refused = said.pass(b"xa reason, at all", Vec::new);
        assert_eq!(refused.expect("is passed"), b"xa reason, at all");
    }

    #[test]
    fn when_the_job_runs_what_is_to_be_done_then_is_done_and_not_before() {
        let (theirs, mut supervisor) = UnixStream::pair().expect("a pair");
        let (ours, mut starter) = UnixStream::pair().expect("a pair");
        let (tells, told) = std::sync::mpsc::channel();
        let asking = Asking {
            supervisor: 0,
            theirs,
            ours,
            told_to_stand: Arc::default(),
            goes_on: false,
            runs: Some(Box::new(move || tells.send(()).expect("is heard"))),
        };
        asking.begin().expect("begins");
        // An outset of no length.
        let mut passed = [0; 6];
        supervisor.write_all(&[b'o', 0, 0, 0, 0]).expect("is heard");
        starter.read_exact(&mut passed[..5]).expect("is passed on");
        assert!(told.try_recv().is_err(), "it does not run yet");
        supervisor.write_all(&[RUNS]).expect("is heard");
        starter.read_exact(&mut passed[5..]).expect("is passed on");
        assert_eq!(passed[5], RUNS);
        let within = std::time::Duration::from_secs(20);
        told.recv_timeout(within).expect("is done");
        assert!(told.recv_timeout(within).is_err(), "once");
    }
}
