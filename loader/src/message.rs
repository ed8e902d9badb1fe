//! What P0 and P1, and P1 and the job's processes, tell each other.

use crate::report::{Failure, Line};
use crate::sys;

/// A message: two words on a packet socket or a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// P1 → P0: the namespaces are there.
    Ready,
    /// P1 → P0: they are not; at this step (see `namespaces::STEPS`), with this error.
    Refused { step: u32, errno: i32 },
    /// P1 → P0: what the job's processes share is there.
    Prepared,
    /// P1 → P0: the job runs.
    Running,
    /// P1 → P0: the start failed, everything is said; exit code. Job → P1: the same.
    Failed(u32),
    /// Before that, as often as needed: eight bytes of what is said, the last with zeros behind it.
    Said([u32; 2]),
    /// P1 → P0: the job's root was stopped by this signal.
    Stopped(u32),
    /// P1 → P0: it was continued.
    Continued,
    /// P1 → P0: the job asks for something.
    Asks,
    /// P1 → P0: wait status of the job's root.
    Ended(u32),
    /// P0 → P1: pass this signal on, unless the terminal has already done so. It came behind so many [`Message::Stopped`].
    Signal {
        signal: u32,
        from_kernel: bool,
        stops: u32,
    },
    /// Job → P1: a thread of this process stream has parked, the last one.
    Parked(u32),
    /// Job → P1: P1 is asked about its calls through this descriptor of the job's first process.
    Listener(u32),
}

impl Message {
    fn bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        for (to, word) in bytes.chunks_exact_mut(4).zip(self.encode()) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn encode(self) -> [u32; 3] {
        match self {
            Message::Ready => [1, 0, 0],
            Message::Refused { step, errno } => [2, step, errno as u32],
            Message::Running => [3, 0, 0],
            Message::Failed(exit) => [4, exit, 0],
            Message::Stopped(signal) => [5, signal, 0],
            Message::Ended(status) => [6, status, 0],
            Message::Signal {
                signal,
                from_kernel,
                stops,
            } => [7, signal, u32::from(from_kernel) | stops << 1],
            Message::Parked(stream) => [8, stream, 0],
            Message::Continued => [9, 0, 0],
            Message::Prepared => [10, 0, 0],
            Message::Listener(fd) => [11, fd, 0],
            Message::Asks => [12, 0, 0],
            Message::Said([first, second]) => [13, first, second],
        }
    }

    fn decode(words: [u32; 3]) -> Option<Self> {
        Some(match words {
            [1, ..] => Message::Ready,
            [2, step, errno] => Message::Refused {
                step,
                errno: errno as i32,
            },
            [3, ..] => Message::Running,
            [4, exit, _] => Message::Failed(exit),
            [5, signal, _] => Message::Stopped(signal),
            [6, status, _] => Message::Ended(status),
            [9, ..] => Message::Continued,
            [10, ..] => Message::Prepared,
            [7, signal, word] => Message::Signal {
                signal,
                from_kernel: word & 1 != 0,
                stops: word >> 1,
            },
            [11, fd, _] => Message::Listener(fd),
            [8, stream, _] => Message::Parked(stream),
            [12, ..] => Message::Asks,
            [13, first, second] => Message::Said([first, second]),
            _ => return None,
        })
    }
}

/// Sends a message; whoever is gone does not hear it.
pub fn send(fd: i32, message: Message) {
    let _ = sys::write(fd, &message.bytes());
}

/// Sends a failure with its line, which has been said.
pub fn send_failure(fd: i32, failure: &Failure) {
    for part in failure.line.bytes().chunks(8) {
        let mut bytes = [0; 8];
        bytes[..part.len()].copy_from_slice(part);
        let [a, b, c, d, e, f, g, h] = bytes;
        let words = [[a, b, c, d], [e, f, g, h]].map(u32::from_le_bytes);
        send(fd, Message::Said(words));
    }
    send(fd, Message::Failed(failure.exit));
}

/// Adds what was said to the line that it belongs to.
pub fn hear_said(line: &mut Line, words: [u32; 2]) {
    for byte in words.iter().flat_map(|word| word.to_le_bytes()) {
        if byte != 0 {
            line.push(&[byte]);
        }
    }
}

/// Sends one that comes again if there is no room for it now: whoever does not read is not waited for.
pub fn send_at_once(fd: i32, message: Message) {
    let _ = sys::send_at_once(fd, &message.bytes());
}

/// Receives a message; none at the end of file.
pub fn receive(fd: i32) -> Option<Message> {
    let mut bytes = [0; 12];
    let mut done = 0;
    while done < bytes.len() {
        match sys::read(fd, &mut bytes[done..]) {
            Ok(0) => return None,
            Ok(len) => done += len,
            // ECONNRESET: the other end has left something unread and is gone; what it said before that comes after the error.
            Err(sys::Errno(crate::abi::EINTR | crate::abi::ECONNRESET)) => {}
            Err(_) => return None,
        }
    }
    let mut words = [0; 3];
    for (word, raw) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]);
    }
    Message::decode(words)
}
