//! The socket at which a starter is asked for something: `jobs/NAME/control`; and, in its own directory, who gives jobs to this machine
//! (crate::startd).
//!
//! ```text
//! {"version":1,"ask":"vacate","within_ms":5000}\n  ──>  starter
//!                                                  <──  {"version":1,"done":true,"state":"Idle"}\n   when it has been done
//! ```
//! # What callers may rely on
//! Only processes of the same user, and of root, are heard (`SO_PEERCRED`, unix(7)). Whoever stalls, says too much or nonsense is cut
//! off, and holds up nobody.

use super::question::Question;
use crate::report::{Exit, Explain, Failure, Outcome};
use nix::sys::socket::{getsockopt, sockopt};
use serde::{Deserialize, Serialize};
use starter::life::{Answer, Who};
use std::collections::VecDeque;
use std::fs::{File, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::marker::PhantomData;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Version of what is said here.
const VERSION: u32 = 1;
const NAME: &str = "control";
/// The longest question.
const LONGEST: usize = 4096;
/// So many may ask at once.
const MOST: usize = 16;
/// Between two looks whether the starter stands still.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How long somebody may take to say what he wants.
const SAID_WITHIN: Duration = Duration::from_secs(5);

#[derive(Serialize, Deserialize)]
struct Said<A> {
    version: u32,
    #[serde(flatten)]
    ask: A,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reply {
    version: u32,
    /// It has been done.
    pub(crate) done: bool,
    /// The job's state behind that.
    pub(crate) state: String,
    /// Why it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

/// The side of who is asked.
#[derive(Debug)]
pub(crate) struct Control<A> {
    listener: UnixListener,
    path: PathBuf,
    clients: Vec<Client>,
    next: u64,
    asks: PhantomData<A>,
}

#[derive(Debug)]
struct Client {
    who: Who,
    stream: UnixStream,
    said: Vec<u8>,
    since: Instant,
    has_asked: bool,
}

impl<A: Question> Control<A> {
    /// Listens in a job's directory, which nobody else may enter.
    pub(crate) fn open(dir: &Path) -> Outcome<Self> {
        let path = dir.join(NAME);
        let _ = std::fs::remove_file(&path);
        let describe = || format!("cannot listen at {}", crate::raw::shown_path(&path));
        let listener = by_short_name(dir, |short| UnixListener::bind(short)).context(describe)?;
        listener.set_nonblocking(true)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o700)).context(describe)?;
        Ok(Control {
            listener,
            path,
            clients: vec![],
            next: 1,
            asks: PhantomData,
        })
    }

    /// What has to be looked at when it becomes readable.
    pub(crate) fn watched(&self) -> Vec<BorrowedFd<'_>> {
        let clients = self.clients.iter().map(|client| client.stream.as_fd());
        std::iter::once(self.listener.as_fd())
            .chain(clients)
            .collect()
    }

    /// When somebody has to be cut off.
    pub(crate) fn wakes_in(&self) -> Option<Duration> {
        let slow = self.clients.iter().filter(|client| !client.has_asked);
        let left = slow.map(|client| SAID_WITHIN.saturating_sub(client.since.elapsed()));
        left.min()
    }

    /// What has been asked since the last time.
    pub(crate) fn asked(&mut self) -> Vec<(Who, A)> {
        // Who has gone makes room.
        let mut all = self.heard();
        self.accept();
        all.extend(self.heard());
        all
    }

    fn heard(&mut self) -> Vec<(Who, A)> {
        let mut all = vec![];
        self.clients.retain_mut(|client| match client.hear::<A>() {
            Heard::Nothing => true,
            Heard::Asked(ask) => {
                all.push((client.who, ask));
                true
            }
            Heard::Nonsense(found) => {
                let reason = format!(
                    "found {found}, expected a command of version {VERSION} in one line of JSON"
                );
                client.answer(&Answer::Refused(reason), "");
                false
            }
            Heard::Gone => false,
        });
        all
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            let own = nix::unistd::geteuid().as_raw();
            let peer = getsockopt(&stream, sockopt::PeerCredentials).map(|peer| peer.uid());
            let known = matches!(peer, Ok(uid) if uid == own || uid == 0);
            let can_wait = stream.set_nonblocking(true).is_ok();
            let mut client = Client {
                who: Who(self.next),
                stream,
                said: vec![],
                since: Instant::now(),
                has_asked: false,
            };
            let refused = match (known, self.clients.len() < MOST) {
                (false, _) => Some("it belongs to another user"),
                (_, false) => Some("too many ask at once"),
                _ => None,
            };
            if let Some(reason) = refused {
                client.answer(&Answer::Refused(reason.to_owned()), "");
            } else if can_wait {
                self.next += 1;
                self.clients.push(client);
            }
        }
    }

    /// Tells somebody, and is through with him.
    pub(crate) fn answer(&mut self, who: Who, answer: &Answer, state: &str) {
        if let Some(place) = self.clients.iter().position(|client| client.who == who) {
            self.clients.remove(place).answer(answer, state);
        }
    }

    /// Nobody is heard any more; whoever waits is told so.
    pub(crate) fn close(&mut self, answer: &Answer, state: &str) {
        let _ = std::fs::remove_file(&self.path);
        for mut client in self.clients.drain(..) {
            client.answer(answer, state);
        }
    }
}

enum Heard<A> {
    Nothing,
    Asked(A),
    Nonsense(String),
    Gone,
}

impl Client {
    fn hear<A: Question>(&mut self) -> Heard<A> {
        let mut buffer = [0; LONGEST];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Heard::Gone,
                Ok(_) if self.has_asked => {} // he has said it
                Ok(len) => self.said.extend(&buffer[..len]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Heard::Gone,
            }
            if self.said.len() > LONGEST {
                return Heard::Nonsense(format!("more than {LONGEST} bytes"));
            }
        }
        if self.has_asked {
            return Heard::Nothing;
        }
        let Some(end) = self.said.iter().position(|byte| *byte == b'\n') else {
            return match self.since.elapsed() > SAID_WITHIN {
                true => Heard::Gone,
                false => Heard::Nothing,
            };
        };
        self.has_asked = true;
        match serde_json::from_slice::<Said<A>>(&self.said[..end]) {
            Ok(Said {
                version: VERSION,
                ask,
            }) => Heard::Asked(ask),
            Ok(Said { version, .. }) => Heard::Nonsense(format!("version {version}")),
            Err(error) => Heard::Nonsense(error.to_string()),
        }
    }

    /// A stream takes so little without being read.
    fn answer(&mut self, answer: &Answer, state: &str) {
        let reason = match answer {
            Answer::Done => None,
            Answer::Refused(reason) => Some(reason.clone()),
        };
        let reply = Reply {
            version: VERSION,
            done: reason.is_none(),
            state: state.to_owned(),
            reason,
        };
        if let Ok(mut line) = serde_json::to_vec(&reply) {
            line.push(b'\n');
            let _ = self.stream.write_all(&line);
            // A copy that was begun meanwhile may have the socket, too.
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }
}

/// A question that is on its way to a starter, or has no answer yet. Nobody waits for it.
#[derive(Debug)]
pub(crate) struct Asking<A> {
    /// What is asked.
    pub(crate) ask: A,
    stream: UnixStream,
    answer: Vec<u8>,
}

impl<A: Question> Asking<A> {
    /// Asks who listens in this directory; none: nobody does yet.
    pub(crate) fn begin(dir: &Path, ask: A) -> io::Result<Self> {
        let mut stream = by_short_name(dir, |short| UnixStream::connect(short))?;
        let question = Said {
            version: VERSION,
            ask: ask.clone(),
        };
        let mut line = serde_json::to_vec(&question)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        stream.set_nonblocking(true)?;
        Ok(Asking {
            ask,
            stream,
            answer: vec![],
        })
    }

    pub(crate) fn watched(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// The answer, when all of it has come: why it was not done, if it was not. Who has ended has answered.
    pub(crate) fn answer(&mut self) -> Option<Result<(), String>> {
        let mut buffer = [0; LONGEST];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(len) if self.answer.len() < LONGEST => self.answer.extend(&buffer[..len]),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(_) => break,
            }
        }
        let reply = serde_json::from_slice::<Reply>(&self.answer);
        Some(match reply.ok().map(|reply| reply.reason) {
            Some(None) => Ok(()),
            Some(Some(reason)) => Err(reason),
            None => Err(format!("the {} has ended", A::WHO)),
        })
    }
}

/// Questions to a starter that may not listen yet: asked in their order, as soon as it does.
#[derive(Debug)]
pub(crate) struct Asked<A> {
    waiting: VecDeque<A>,
    asking: Vec<Asking<A>>,
}

impl<A: Question> Asked<A> {
    /// None yet.
    pub(crate) fn new() -> Self {
        Asked {
            waiting: VecDeque::new(),
            asking: vec![],
        }
    }

    /// One more.
    pub(crate) fn push(&mut self, ask: A) {
        self.waiting.push_back(ask);
    }

    /// Whether this is asked already, and not answered.
    pub(crate) fn is_pending(&self, ask: &A) -> bool
    where
        A: PartialEq,
    {
        self.waiting.contains(ask) || self.asking.iter().any(|asking| asking.ask == *ask)
    }

    /// Whether there are some that are not answered.
    pub(crate) fn is_asking(&self) -> bool {
        !self.waiting.is_empty() || !self.asking.is_empty()
    }

    /// Whether there are some that nobody has heard yet.
    pub(crate) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) fn watched(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.asking.iter().map(Asking::watched)
    }

    /// Asks what has not been heard, and what was answered meanwhile.
    pub(crate) fn answers(&mut self, dir: &Path) -> Vec<(A, Result<(), String>)> {
        while let Some(ask) = self.waiting.front() {
            match Asking::begin(dir, ask.clone()) {
                Ok(asking) => self.asking.push(asking),
                Err(_) => break,
            }
            self.waiting.pop_front();
        }
        let mut answers = vec![];
        self.asking.retain_mut(|asking| match asking.answer() {
            Some(answer) => {
                answers.push((asking.ask.clone(), answer));
                false
            }
            None => true,
        });
        answers
    }
}

/// Asks who listens in this directory, and waits for the answer.
/// `wake` is called now and then meanwhile: a starter that its terminal has stopped hears nothing.
pub(crate) fn ask<A: Question>(dir: &Path, ask: A, wake: impl Fn()) -> Outcome<Reply> {
    let who = A::WHO;
    let path = dir.join(NAME);
    let describe = || {
        format!(
            "the {who} at {} does not answer",
            crate::raw::shown_path(&path)
        )
    };
    let stream = by_short_name(dir, |short| UnixStream::connect(short));
    let mut stream = stream.context(describe).exit(Exit::Lost)?;
    let question = Said {
        version: VERSION,
        ask,
    };
    let mut line = serde_json::to_vec(&question)?;
    line.push(b'\n');
    // Whoever is not heard is answered nevertheless.
    let said = stream.write_all(&line);
    let mut answer = vec![];
    stream.set_read_timeout(Some(LOOK_AGAIN))?;
    let read = loop {
        wake();
        match stream.read_to_end(&mut answer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            read => break read,
        }
    };
    if answer.is_empty() {
        said.context(describe).exit(Exit::Lost)?;
        read.context(describe).exit(Exit::Lost)?;
    }
    match serde_json::from_slice::<Reply>(&answer) {
        Ok(reply) if reply.version == VERSION => Ok(reply),
        Ok(reply) => {
            let found = reply.version;
            let message = format!("the {who}'s answer has version {found}, expected {VERSION}");
            Err(Failure::new(Exit::Lost, message))
        }
        Err(_) if answer.is_empty() => {
            let message = format!(
                "the {who} at {} has ended without an answer",
                crate::raw::shown_path(&path)
            );
            Err(Failure::new(Exit::Lost, message))
        }
        Err(error) => Err(error).context(describe).exit(Exit::Lost),
    }
}

/// Names of sockets may be no longer than 107 bytes (unix(7)), those of directories may.
fn by_short_name<T>(dir: &Path, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let folder = File::open(dir)?;
    act(&PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(NAME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::life::question::{Ask, Wanted};
    use starter::life::{Command, Hold};

    /// What comes of these bytes.
    fn hear(said: &[u8]) -> (Vec<(Who, Ask)>, String) {
        let dir = tempfile::tempdir().expect("dir");
        let mut control = Control::<Ask>::open(dir.path()).expect("listens");
        let mut stream =
            by_short_name(dir.path(), |short| UnixStream::connect(short)).expect("connects");
        stream.write_all(said).expect("is said");
        let asked = control.asked();
        control.close(&Answer::Done, "Idle");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("is answered");
        (asked, answer)
    }

    #[test]
    fn questions_are_commands() {
        let (asked, answer) = hear(b"{\"version\":1,\"ask\":\"vacate\",\"within_ms\":5000}\n");
        let ask = Ask::Vacate {
            within_ms: Some(5000),
            insists: false,
        };
        assert_eq!(asked, [(Who(1), ask)]);
        assert_eq!(answer, "{\"version\":1,\"done\":true,\"state\":\"Idle\"}\n");
        let (asked, _) = hear(b"{\"version\":1,\"ask\":\"hold\",\"reason\":\"x\"}\n");
        let hold = Hold::new("x".to_owned(), Hold::BY_USER);
        assert_eq!(asked, [(Who(1), Ask::hold(hold, false))]);
        let mut hold = Hold::new("y".to_owned(), Hold::BY_MACHINE);
        hold.code.subcode = 102;
        let said = Said {
            version: VERSION,
            ask: Ask::hold(hold.clone(), true),
        };
        let mut line = serde_json::to_vec(&said).expect("JSON");
        line.push(b'\n');
        let (asked, _) = hear(&line);
        assert_eq!(asked.len(), 1);
        let meaning = asked.into_iter().next().map(|(_, ask)| ask.meaning());
        let insists = true;
        let expected = Wanted::Command(Command::Hold { hold, insists });
        assert_eq!(meaning, Some(expected));
        let (asked, _) = hear(b"{\"version\":1,\"ask\":\"image-rate\",\"bytes_per_second\":0}\n");
        assert_eq!(asked, [], "none is said by null");
    }

    #[test]
    fn nonsense_is_answered_and_moves_nothing() {
        let long = vec![b'x'; LONGEST + 1];
        for (said, found) in [
            (&b"nonsense\n"[..], "expected a command"),
            (b"{\"version\":9,\"ask\":\"kill\"}\n", "found version 9"),
            (
                b"{\"version\":1,\"ask\":\"fly\"}\n",
                "unknown variant `fly`",
            ),
            (&long, "more than 4096 bytes"),
        ] {
            let (asked, answer) = hear(said);
            assert_eq!(asked, []);
            assert!(answer.contains(found), "{answer}");
        }
    }

    #[test]
    fn too_many_are_told() {
        let dir = tempfile::tempdir().expect("dir");
        let mut control = Control::<Ask>::open(dir.path()).expect("listens");
        let connect = || by_short_name(dir.path(), |short| UnixStream::connect(short));
        let mut streams: Vec<UnixStream> = (0..=MOST)
            .map(|_| {
                let stream = connect().expect("connects");
                assert_eq!(control.asked(), []);
                stream
            })
            .collect();
        let mut answer = String::new();
        let last = streams.last_mut().expect("is there");
        last.read_to_string(&mut answer).expect("is answered");
        assert!(answer.contains("too many ask at once"), "{answer}");
        // Who goes makes room.
        streams.clear();
        let mut next = connect().expect("connects");
        assert_eq!(control.asked(), []);
        next.write_all(b"{\"version\":1,\"ask\":\"kill\"}\n")
            .expect("is said");
        assert_eq!(control.asked().len(), 1);
    }
}
