//! What lies unread in a socket, looked at and left there.
//!
//! The kernel shows messages one behind the other at an offset (SO_PEEK_OFF), but passes over an empty one that was looked at before (by an
//! earlier checkpoint, or by the program with MSG_PEEK: net/core/datagram.c, `__skb_try_recv_from_queue`). That there are such *hidden* ones, and
//! how many, shows in the memory that the sender's messages take (SIOCOUTQ). Once the sender is gone it shows nowhere; so a socket in which a
//! checkpoint has seen an empty message is *marked*, in an option that says nothing of a unix socket and stays with it (SO_MAX_PACING_RATE).

use crate::sys::channels::{
    peek, peek_whole_parts, poll_now, set_socket_option, set_socket_option_bytes, socket_option,
    socket_option_bytes, unread_len, unsent_len,
};
use crate::sys::guarded::Guarded;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Most that one message can hold.
const LONGEST_MESSAGE: usize = 1 << 20;

const HIDDEN: &str = "empty messages lie unread in it that were looked at before (by a checkpoint, or with MSG_PEEK), and the kernel does not show where among the others";

/// SO_MAX_PACING_RATE of a socket as it is by itself, and of one that is marked.
const UNMARKED: [u8; 8] = [0xff; 8];
const MARKED: [u8; 8] = *b"wayfarer";

/// Bytes and descriptors of one message.
type Message = (Vec<u8>, Vec<std::os::fd::OwnedFd>);

/// What lies unread in a socket.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    pub(super) messages: Vec<Message>,
    /// Process, user and group that sent each, as far as the kernel says so.
    pub(super) credentials: Vec<Option<[u32; 3]>>,
    /// Why it cannot be carried.
    pub(super) fault: Option<&'static str>,
}

/// All messages in a socket, left where they are.
pub(super) fn messages(
    fd: BorrowedFd<'_>,
    kind: i32,
    sender: Option<BorrowedFd<'_>>,
) -> io::Result<Inbox> {
    let events = poll_now(fd, libc::POLLIN | libc::POLLPRI)?;
    if events & libc::POLLPRI != 0 {
        return Ok(Inbox {
            fault: Some("an urgent byte (MSG_OOB) lies unread in it, which cannot be carried"),
            ..Inbox::default()
        });
    }
    if events & libc::POLLIN == 0 {
        return Ok(Inbox::default());
    }
    let told = socket_option(fd, libc::SO_PASSCRED)?;
    // An empty message names a sender then, the end of the queue none. A stream has no empty messages.
    let asked = if kind == libc::SOCK_STREAM { told } else { 1 };
    let mark = (kind != libc::SOCK_STREAM)
        .then(|| Mark::of(fd))
        .transpose()?;
    let guarded = Guarded::set(fd, &[(libc::SO_PASSCRED, asked), (libc::SO_PEEK_OFF, 0)])?;
    let mut inbox = read_messages(fd, kind)?;
    if let Some(mark) = mark {
        set_socket_option(fd, libc::SO_PEEK_OFF, -1)?;
        inbox.find_hidden(fd, kind, sender, mark.was_set)?;
        // Where it is not clear, what was there before may be there still.
        if inbox.fault.is_none() && inbox.messages.iter().all(|(bytes, _)| !bytes.is_empty()) {
            mark.take_off()?;
        }
    }
    guarded.restore()?;
    if told == 0 {
        inbox.credentials.fill(None);
    }
    Ok(inbox)
}

fn read_messages(fd: BorrowedFd<'_>, kind: i32) -> io::Result<Inbox> {
    let mut inbox = Inbox::default();
    // Of a stream, more than there is: one that ends within bytes shows the descriptors of what lies behind them, too.
    let room = match kind {
        libc::SOCK_STREAM => unread_len(fd)? + 1,
        _ => LONGEST_MESSAGE,
    };
    let mut buffer = vec![0; room];
    // Of a stream, how far it has been looked at.
    let mut at = 0;
    loop {
        let peeked = match peek(fd, &mut buffer) {
            Ok(peeked) => peeked,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(inbox),
            Err(error) => return Err(error),
        };
        let is_message = kind != libc::SOCK_STREAM && peeked.credentials.is_some();
        if peeked.len == 0 && peeked.descriptors.is_empty() && !is_message {
            return Ok(inbox);
        }
        if peeked.cut {
            inbox.fault = Some("a message in it is too large to be carried");
        }
        let mut bytes = buffer[..peeked.len].to_vec();
        if kind == libc::SOCK_STREAM && bytes.len() > 1 && !peeked.descriptors.is_empty() {
            // It has shown bytes that were sent before them, too.
            let begin = begin_with_descriptors(fd, at, &mut buffer[..peeked.len])?;
            if begin > 0 {
                let behind = bytes.split_off(begin);
                inbox.messages.push((bytes, vec![]));
                inbox.credentials.push(peeked.credentials);
                bytes = behind;
            }
        }
        at += peeked.len;
        inbox.messages.push((bytes, peeked.descriptors));
        inbox.credentials.push(peeked.credentials);
    }
}

/// Where the bytes begin with which descriptors were sent, among those of a stream that were seen with them from `at` on (SO_PEEK_OFF), up
/// to the last of them. It shows next what lies behind.
fn begin_with_descriptors(fd: BorrowedFd<'_>, at: usize, seen: &mut [u8]) -> io::Result<usize> {
    let go_to = |at: usize| {
        let at = i32::try_from(at).map_err(|_| io::Error::other("more unread than can be"))?;
        set_socket_option(fd, libc::SO_PEEK_OFF, at)
    };
    go_to(at)?;
    let end = seen.len() - 1;
    let begin = peek_whole_parts(fd, &mut seen[..end])?;
    go_to(at + end + 1)?;
    Ok(begin)
}

/// That empty messages of this socket may be hidden.
struct Mark<'a> {
    fd: BorrowedFd<'a>,
    /// It was there already.
    was_set: bool,
    /// The program uses the option for itself.
    is_foreign: bool,
}

impl<'a> Mark<'a> {
    /// Marks a socket, before anything in it is looked at.
    fn of(fd: BorrowedFd<'a>) -> io::Result<Self> {
        let (value, _) = socket_option_bytes(fd, libc::SO_MAX_PACING_RATE, UNMARKED.len())?;
        let was_set = value == MARKED;
        let is_foreign = !was_set && value != UNMARKED;
        if !was_set && !is_foreign {
            set_socket_option_bytes(fd, libc::SO_MAX_PACING_RATE, &MARKED)?;
        }
        Ok(Mark {
            fd,
            was_set,
            is_foreign,
        })
    }

    fn take_off(self) -> io::Result<()> {
        if self.is_foreign {
            return Ok(());
        }
        set_socket_option_bytes(self.fd, libc::SO_MAX_PACING_RATE, &UNMARKED)
    }
}

impl Inbox {
    /// Adds an empty message that is the only one to be hidden, at the front: where else they are is not to be seen. Without its sender only such at
    /// the front show, so that there is no telling in a socket that was marked.
    fn find_hidden(
        &mut self,
        fd: BorrowedFd<'_>,
        kind: i32,
        sender: Option<BorrowedFd<'_>>,
        marked: bool,
    ) -> io::Result<()> {
        // After the others: an empty one is hidden from now on. One byte, so that any other does not look empty.
        let first = match peek(fd, &mut [0]) {
            // The end of a queue names no sender.
            Ok(first) => Some(first).filter(|first| first.len == 0 && first.credentials.is_some()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => return Err(error),
        };
        let shown = self
            .messages
            .first()
            .is_some_and(|(bytes, _)| bytes.is_empty());
        // Without one, as where so long a message could not be sent any more.
        let counted = sender.and_then(|sender| hidden_behind(sender, kind, &self.messages).ok());
        let hidden = match counted {
            Some(hidden) => hidden,
            None if first.is_some() && !shown => None,
            None if marked && !self.messages.is_empty() => None,
            None => Some(0),
        };
        match (hidden, first) {
            (Some(0), _) => {}
            (Some(1), Some(first)) if !shown => {
                self.messages.insert(0, (vec![], first.descriptors));
                self.credentials.insert(0, first.credentials);
            }
            _ => self.fault = Some(HIDDEN),
        }
        Ok(())
    }
}

/// How many empty messages of a sender are unread besides these; none: what it has under way is nothing that is known.
fn hidden_behind(
    sender: BorrowedFd<'_>,
    kind: i32,
    shown: &[Message],
) -> io::Result<Option<usize>> {
    let kind = match kind {
        libc::SOCK_SEQPACKET => SockType::SeqPacket,
        _ => SockType::Datagram,
    };
    let (from, to) = socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC)?;
    // The kernel doubles what is set.
    let room = socket_option(sender, libc::SO_SNDBUF)? / 2;
    set_socket_option(from.as_fd(), libc::SO_SNDBUF, room)?;
    let mut lens = HashMap::new();
    let mut memory_of = |bytes: &[u8]| match lens.entry(bytes.len()) {
        Entry::Occupied(known) => Ok(*known.get()),
        Entry::Vacant(new) => {
            send(from.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT)?;
            let memory = unsent_len(from.as_fd())?;
            recv(to.as_raw_fd(), &mut [0], MsgFlags::MSG_DONTWAIT)?;
            io::Result::Ok(*new.insert(memory))
        }
    };
    let empty = memory_of(&[])?;
    let mut known = 0;
    for (bytes, _) in shown {
        known += memory_of(bytes)?;
    }
    let hidden = unsent_len(sender)?.checked_sub(known);
    Ok(hidden
        .filter(|hidden| empty > 0 && hidden % empty == 0)
        .map(|hidden| hidden / empty))
}

/// What can be read from a stream that leads outside.
pub(super) fn unread_of_stream(fd: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let len = unread_len(fd)?;
    if len == 0 {
        return Ok(vec![]);
    }
    let mut buffer = vec![0; len];
    let peeked = peek(fd, &mut buffer)?;
    buffer.truncate(peeked.len);
    if peeked.len < len || !peeked.descriptors.is_empty() {
        return Err(io::Error::other("descriptors are in flight in it"));
    }
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixDatagram, UnixStream};

    fn texts(messages: &[Message]) -> Vec<&[u8]> {
        messages.iter().map(|(bytes, _)| bytes.as_slice()).collect()
    }

    #[test]
    fn datagrams_stay_apart_and_unread() {
        let (a, b) = UnixDatagram::pair().expect("pair");
        for text in ["one", "", "three"] {
            a.send(text.as_bytes()).expect("send");
        }
        let found = messages(b.as_fd(), libc::SOCK_DGRAM, None).expect("messages");
        assert_eq!(found.fault, None);
        assert_eq!(texts(&found.messages), [&b"one"[..], b"", b"three"]);
        let mut buffer = [0; 8];
        assert_eq!(b.recv(&mut buffer).expect("recv"), 3);
    }

    /// Looked at twice, as by two checkpoints; what is found the second time, and whether it can be carried.
    fn twice(kind: i32, first: &[&str], then: &[&str], sender: bool) -> (Vec<Vec<u8>>, bool) {
        let kind_of = match kind {
            libc::SOCK_SEQPACKET => SockType::SeqPacket,
            _ => SockType::Datagram,
        };
        let (a, b) =
            socketpair(AddressFamily::Unix, kind_of, None, SockFlag::empty()).expect("pair");
        let sender = sender.then_some(a.as_fd());
        let send_all = |texts: &[&str]| {
            for text in texts {
                send(a.as_raw_fd(), text.as_bytes(), MsgFlags::empty()).expect("sends");
            }
        };
        send_all(first);
        let found = messages(b.as_fd(), kind, sender).expect("messages");
        let all: Vec<&[u8]> = first.iter().map(|text| text.as_bytes()).collect();
        assert_eq!((texts(&found.messages), found.fault), (all, None));
        send_all(then);
        let found = messages(b.as_fd(), kind, sender).expect("messages");
        let found_texts = texts(&found.messages).into_iter().map(<[u8]>::to_vec);
        (found_texts.collect(), found.fault.is_none())
    }

    #[test]
    fn empty_messages_that_were_looked_at_before_are_found_or_refused() {
        let long = "x".repeat(9000);
        for kind in [libc::SOCK_DGRAM, libc::SOCK_SEQPACKET] {
            for (first, then, clear) in [
                (&[""][..], &[][..], true),
                (&["", "two"], &["", "four"], true),
                (&["", "two"], &[long.as_str()], true),
                (&["one", "two"], &[""], true),
                (&["", &long], &["three"], true),
                (&[""], &["", "two"], false),
                (&["one", ""], &[], false),
                (&["", ""], &[], false),
                (&["", "two", ""], &["four"], false),
            ] {
                let (found, is_clear) = twice(kind, first, then, true);
                assert_eq!(is_clear, clear, "{kind} {first:?} {then:?}");
                let all = first.iter().chain(then).map(|text| text.as_bytes());
                if clear {
                    assert_eq!(found, all.collect::<Vec<_>>(), "{kind}");
                }
            }
            let (_, is_clear) = twice(kind, &["", "two"], &[], false);
            assert!(!is_clear, "{kind}: its sender is gone");
            let (_, is_clear) = twice(kind, &["one", "two"], &[""], false);
            assert!(is_clear, "{kind}: its sender is gone");
            let (_, is_clear) = twice(kind, &["one", ""], &[], false);
            assert!(!is_clear, "{kind}: an empty one was behind another");
        }
    }

    #[test]
    fn a_socket_whose_other_end_is_closed_is_clear_when_it_is_empty() {
        for kind in [SockType::Datagram, SockType::SeqPacket] {
            let (a, b) =
                socketpair(AddressFamily::Unix, kind, None, SockFlag::empty()).expect("pair");
            drop(a);
            let kind = kind as i32;
            let found = messages(b.as_fd(), kind, None).expect("messages");
            assert_eq!((found.messages.len(), found.fault), (0, None), "{kind}");
        }
    }

    #[test]
    fn a_sender_whose_buffer_has_become_small_is_no_fault() {
        let (a, b) = UnixDatagram::pair().expect("pair");
        a.send(&[7; 100_000]).expect("sends");
        set_socket_option(a.as_fd(), libc::SO_SNDBUF, 4000).expect("sets");
        let found = messages(b.as_fd(), libc::SOCK_DGRAM, Some(a.as_fd())).expect("messages");
        assert_eq!((found.messages.len(), found.fault), (1, None));
    }

    #[test]
    fn a_stream_that_was_shut_down_keeps_its_bytes() {
        let (mut a, mut b) = UnixStream::pair().expect("pair");
        a.write_all(b"hello").expect("write");
        drop(a);
        let found = messages(b.as_fd(), libc::SOCK_STREAM, None).expect("messages");
        assert_eq!(texts(&found.messages), [b"hello"]);
        let mut text = String::new();
        b.read_to_string(&mut text).expect("read");
        assert_eq!(text, "hello");
    }

    /// Parts that were sent, those of `true` with a descriptor; what has been read before; what is found.
    fn parts_of_a_stream(sent: &[(&str, bool)], read: usize) -> Vec<(String, usize)> {
        use nix::sys::socket::{ControlMessage, sendmsg};
        let file = std::fs::File::open("/dev/null").expect("open");
        let (a, mut b) = UnixStream::pair().expect("pair");
        set_socket_option(a.as_fd(), libc::SO_SNDBUF, i32::MAX / 4).expect("is set");
        for (text, with) in sent {
            let numbers = [file.as_raw_fd()];
            let rights = [ControlMessage::ScmRights(&numbers)];
            let rights = if *with { &rights[..] } else { &[] };
            let text = [io::IoSlice::new(text.as_bytes())];
            sendmsg::<()>(a.as_raw_fd(), &text, rights, MsgFlags::empty(), None).expect("send");
        }
        b.read_exact(&mut vec![0; read]).expect("read");
        let before = socket_option(b.as_fd(), libc::SO_PEEK_OFF).expect("is read");
        let found = messages(b.as_fd(), libc::SOCK_STREAM, Some(a.as_fd())).expect("messages");
        assert_eq!(found.fault, None);
        let after = socket_option(b.as_fd(), libc::SO_PEEK_OFF).expect("is read");
        assert_eq!(before, after);
        let part = |(bytes, descriptors): &Message| {
            let text = String::from_utf8(bytes.clone()).expect("text");
            (text, descriptors.len())
        };
        found.messages.iter().map(part).collect()
    }

    #[test]
    fn descriptors_in_a_stream_are_found_with_the_bytes_they_were_sent_with() {
        let long = "long".repeat(5000);
        let found = |sent: &[(&str, bool)]| parts_of_a_stream(sent, 0);
        let expected = |parts: &[(&str, usize)]| -> Vec<(String, usize)> {
            let part = |(text, count): &(&str, usize)| ((*text).to_owned(), *count);
            parts.iter().map(part).collect()
        };
        assert_eq!(found(&[("x", true)]), expected(&[("x", 1)]));
        assert_eq!(found(&[(&long, true)]), expected(&[(&long, 1)]));
        for (before, text) in [("hello", "x"), ("h", "four"), (&long, "four"), ("h", &long)] {
            let sent = [(before, false), (text, true), ("behind", false)];
            let all = [(before, 0), (text, 1), ("behind", 0)];
            assert_eq!(
                found(&sent),
                expected(&all),
                "{} {}",
                before.len(),
                text.len()
            );
        }
        // Two one behind the other, bytes of several calls before them.
        let sent = [
            ("one", false),
            ("two", false),
            ("3", true),
            ("four", true),
            ("5", true),
        ];
        let all = [("onetwo", 0), ("3", 1), ("four", 1), ("5", 1)];
        assert_eq!(found(&sent), expected(&all));
        // Whose first bytes have been read has given its descriptors then.
        let sent = [("first", true), ("second", false), ("third", true)];
        let all = [("stsecond", 0), ("third", 1)];
        assert_eq!(parts_of_a_stream(&sent, 3), expected(&all));
    }

    /// More than a message can hold, by calls that are cut in parts and in one whose descriptor would be before them.
    #[test]
    fn descriptors_behind_much_are_found() {
        // net.core.wmem_max says how much may lie in one.
        let (probe, _other) = UnixStream::pair().expect("pair");
        set_socket_option(probe.as_fd(), libc::SO_SNDBUF, i32::MAX / 4).expect("is set");
        let room = socket_option(probe.as_fd(), libc::SO_SNDBUF).expect("is read");
        let much = "much".repeat(60_000.min(room as usize / 120));
        eprintln!("{} bytes in one piece", much.len());
        let big = [
            (&much[..], false),
            (&much[..], true),
            ("x", true),
            (&much[..], false),
            ("y", true),
        ];
        let sent: Vec<_> = big.iter().cycle().take(20).copied().collect();
        let found = parts_of_a_stream(&sent, 0);
        let bytes: String = found.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(
            bytes,
            sent.iter().map(|(text, _)| *text).collect::<String>()
        );
        // Each begins where it was sent.
        let mut at = 0;
        let mut with = vec![];
        for (text, count) in &found {
            with.extend((*count > 0).then_some(at));
            at += text.len();
        }
        let mut at = 0;
        let mut expected = vec![];
        for (text, has) in &sent {
            expected.extend(has.then_some(at));
            at += text.len();
        }
        assert_eq!(with, expected);
    }

    proptest::proptest! {
        #[test]
        fn any_parts_of_a_stream_are_found(sent in proptest::collection::vec(("[a-z]{1,40}", proptest::bool::ANY), 1..12)) {
            let sent: Vec<(&str, bool)> = sent.iter().map(|(text, with)| (text.as_str(), *with)).collect();
            let mut all: Vec<(String, usize)> = vec![];
            let mut is_open = false;
            for (text, with) in &sent {
                match all.last_mut() {
                    Some((last, _)) if is_open && !with => last.push_str(text),
                    _ => all.push(((*text).to_owned(), usize::from(*with))),
                }
                is_open = !with;
            }
            proptest::prop_assert_eq!(parts_of_a_stream(&sent, 0), all);
        }
    }
}
