//! Another line for a starter that has begun its job itself: a second session on its machine hands its input and output over.
//!
//! ```text
//! submit ── ssh ══ wayfarer reattach ──the two pipes, as descriptors──> the starter's socket
//!                    `--ends when the starter lets the connection go <--'
//! ```

use line::{HANDSHAKE_WITHIN, Line};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// When a connection is lost its server closes the pipes, and then ends.
const SERVER_ENDS_WITHIN: Duration = Duration::from_secs(1);
/// What is said with the descriptors.
const WORD: &[u8] = b"wayfarer line";

/// Hands a line's two descriptors to the starter behind this socket, and waits until that does not need them any more.
///
/// # Errors
/// As connect(2): no starter is there.
pub fn hand_over(place: &Path, input: BorrowedFd<'_>, output: BorrowedFd<'_>) -> io::Result<()> {
    let mut starter = UnixStream::connect(place)?;
    let descriptors = [input, output];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let word = [IoSlice::new(WORD)];
    sendmsg(&starter, &word, &mut control, SendFlags::NOSIGNAL)?;
    // Reset or closed: it is over.
    let _ = starter.read(&mut [0]);
    Ok(())
}

/// Takes a line that has been handed over; none if there is none now.
///
/// # Errors
/// Whoever has come is a stranger, or has said something else.
pub fn take_over(listener: &UnixListener) -> io::Result<Option<Line>> {
    let (peer, _) = match listener.accept() {
        Ok(accepted) => accepted,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(error),
    };
    let found = rustix::net::sockopt::socket_peercred(&peer)?.uid;
    if found != rustix::process::geteuid() {
        let message = format!("a line of user {}", found.as_raw());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    peer.set_nonblocking(false)?;
    peer.set_read_timeout(Some(HANDSHAKE_WITHIN))?;
    let descriptors = receive(&peer)?;
    let [input, output] = <[OwnedFd; 2]>::try_from(descriptors).map_err(|descriptors| {
        let message = format!("{} descriptors, expected 2", descriptors.len());
        io::Error::new(io::ErrorKind::InvalidData, message)
    })?;
    let line = Line::plain(input, output)?;
    let by = rustix::net::sockopt::socket_peercred(&peer)?.pid;
    Ok(Some(Line {
        input: Box::new(Handed {
            input: line.input,
            _until: peer,
        }),
        is_left: Some(told_by(by.as_raw_nonzero().get())),
        ..line
    }))
}

/// Whether a line that has ended was left, which the end of the process tells that serves the connection: our parent, or that of whoever
/// has handed the line over. Over a connection that is lost it ends, too.
#[must_use]
pub fn told_by(pid: i32) -> Box<dyn FnMut() -> bool + Send> {
    let server = parent_of(pid).and_then(Pid::from_raw);
    let server = server.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    Box::new(move || {
        let within = Timespec {
            tv_sec: SERVER_ENDS_WITHIN.as_secs() as i64,
            tv_nsec: 0,
        };
        let Some(server) = &server else { return false };
        poll(&mut [PollFd::new(server, PollFlags::IN)], Some(&within)) == Ok(0)
    })
}

/// None: it is gone.
fn parent_of(pid: i32) -> Option<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let behind_name = text.rsplit_once(')')?.1;
    behind_name.split_whitespace().nth(1)?.parse().ok()
}

fn receive(peer: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut word = [0; 64];
    // One more than there should be.
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let mut slices = [IoSliceMut::new(&mut word)];
    let message = recvmsg(peer, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = vec![];
    for control in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = control {
            descriptors.extend(received);
        }
    }
    match word.get(..message.bytes) == Some(WORD) {
        true => Ok(descriptors),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// What comes, as long as whoever has handed it over is to stay.
struct Handed {
    input: Box<dyn Read + Send>,
    _until: UnixStream,
}

impl Read for Handed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.input.read(buffer)
    }
}

/// Reads what comes within a time, also of a pipe.
#[derive(Debug)]
pub struct Within<'a> {
    file: File,
    until: Instant,
    _of: std::marker::PhantomData<&'a Line>,
}

impl<'a> Within<'a> {
    /// What comes on this line within `time`; nobody else may read it meanwhile.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(line: &'a Line, time: Duration) -> io::Result<Self> {
        Ok(Within {
            file: line.ends.0.try_clone()?.into(),
            until: Instant::now() + time,
            _of: std::marker::PhantomData,
        })
    }
}

impl Read for Within<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&left))? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => self.file.read(buffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn a_line_is_left_as_long_as_its_server_is_there() {
        let own = std::process::id() as i32;
        assert!(told_by(own)());
        assert!(!told_by(1 << 30)(), "it is not there");
        let mut server = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & echo $!; read nothing"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("sh");
        let mut number = String::new();
        let out = server.stdout.take().expect("a pipe");
        std::io::BufRead::read_line(&mut io::BufReader::new(out), &mut number).expect("is said");
        let child: i32 = number.trim().parse().expect("a number");
        let mut is_left = told_by(child);
        assert!(is_left());
        drop(server.stdin.take());
        server.wait().expect("ends");
        assert!(!is_left());
        let pid = rustix::process::Pid::from_raw(child).expect("a number");
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }

    #[test]
    fn a_line_is_handed_over_and_let_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("again");
        let listener = UnixListener::bind(&place).expect("binds");
        listener.set_nonblocking(true).expect("sets");
        assert!(take_over(&listener).expect("nobody").is_none());
        let (input, mut theirs) = UnixStream::pair().expect("a pair");
        let there = place.clone();
        let handing = std::thread::spawn(move || hand_over(&there, input.as_fd(), input.as_fd()));
        let deadline = Instant::now() + HANDSHAKE_WITHIN;
        let mut line = loop {
            if let Some(line) = take_over(&listener).expect("is sound") {
                break line;
            }
            assert!(Instant::now() < deadline, "nobody comes");
        };
        theirs.write_all(b"first, second").expect("writes");
        let mut said = [0; 5];
        let mut within = Within::new(&line, HANDSHAKE_WITHIN).expect("is read");
        within.read_exact(&mut said).expect("has come");
        assert_eq!(&said, b"first");
        let mut said = [0; 8];
        line.input.read_exact(&mut said).expect("has come");
        assert_eq!(&said, b", second");
        let mut within = Within::new(&line, Duration::from_millis(1)).expect("is read");
        let error = within.read(&mut said).expect_err("nothing comes");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(line);
        handing.join().expect("ends").expect("was taken");

        let mut stranger = UnixStream::connect(&place).expect("connects");
        stranger.write_all(b"something else").expect("writes");
        assert!(take_over(&listener).is_err());
        drop((listener, std::fs::remove_file(&place)));
        let (one, _other) = UnixStream::pair().expect("a pair");
        assert!(hand_over(&place, one.as_fd(), one.as_fd()).is_err());
    }
}
