//! What sock_diag(7) says of a unix socket: who its peer is, what has been shut down.

use crate::sys::channels::{Enough, ask_sock_diag};
use std::collections::HashMap;
use std::io;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const SHOW_NAME: u32 = 1;
const SHOW_PEER: u32 = 4;
const SHOW_RQLEN: u32 = 16;
const ATTR_NAME: u16 = 0;
const ATTR_PEER: u16 = 2;
const ATTR_SHUTDOWN: u16 = 6;
const HEADER: usize = 16;
const MESSAGE: usize = 16;
/// TCP_ESTABLISHED.
const ESTABLISHED: u8 = 1;

/// A unix socket as the kernel's diagnostics show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UnixSocket {
    /// It is connected, or one of a pair.
    pub(super) connected: bool,
    /// Inode of the other end; 0 if that has been closed.
    pub(super) peer: u64,
    /// Its own address, if it has one.
    pub(super) name: Option<Vec<u8>>,
    /// SHUT_RD (1) and SHUT_WR (2).
    pub(super) shutdown: u32,
}

/// The unix sockets of this machine's network namespace, as far as somebody wants to know.
#[derive(Debug, Default)]
pub(super) struct UnixSockets {
    /// Where many are asked for: all of them, by inode.
    known: HashMap<u64, UnixSocket>,
}

/// To find one, the kernel goes through all that there are.
const MANY: usize = 64;

impl UnixSockets {
    /// For questions about so many of a job's sockets.
    pub(super) fn for_questions(count: usize) -> Self {
        let known = match count > MANY {
            // Whatever is missing is asked for by itself.
            true => ask_all().unwrap_or_default(),
            false => HashMap::new(),
        };
        UnixSockets { known }
    }

    /// The one with this inode number.
    pub(super) fn get(&mut self, inode: u64) -> io::Result<UnixSocket> {
        self.known.remove(&inode).map_or_else(|| ask(inode), Ok)
    }
}

fn request(inode: u32, flags: u16) -> Vec<u8> {
    let mut request = vec![];
    request.extend(40_u32.to_ne_bytes()); // length with header
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(flags.to_ne_bytes());
    request.extend([0; 8]); // sequence, port
    request.extend([libc::AF_UNIX as u8, 0, 0, 0]); // family, protocol, padding
    request.extend(u32::MAX.to_ne_bytes()); // all states
    request.extend(inode.to_ne_bytes());
    request.extend((SHOW_NAME | SHOW_PEER | SHOW_RQLEN).to_ne_bytes());
    request.extend([0xff; 8]); // no cookie
    request
}

/// Asks about the socket with this inode number.
fn ask(inode: u64) -> io::Result<UnixSocket> {
    let number = u32::try_from(inode).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut found = None;
    ask_sock_diag(&request(number, NLM_F_REQUEST), |answer| {
        found = parse(answer)?;
        Ok(Enough::Yes)
    })?;
    found
        .map(|(_, socket)| socket)
        .ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Asks about all.
fn ask_all() -> io::Result<HashMap<u64, UnixSocket>> {
    let mut all = HashMap::new();
    ask_sock_diag(&request(0, NLM_F_REQUEST | NLM_F_DUMP), |answer| {
        let mut rest = answer;
        while !rest.is_empty() {
            let Some((inode, socket)) = parse(rest)? else {
                return Ok(Enough::Yes);
            };
            all.insert(inode, socket);
            let len = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(Enough::No)
    })?;
    Ok(all)
}

/// The first message of an answer: a socket and its inode; none: there are no more.
fn parse(answer: &[u8]) -> io::Result<Option<(u64, UnixSocket)>> {
    let cut = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "sock_diag's answer is cut short",
        )
    };
    let u16_at = |at: usize| -> io::Result<u16> {
        let bytes = answer.get(at..at + 2).ok_or_else(cut)?;
        Ok(u16::from_ne_bytes([bytes[0], bytes[1]]))
    };
    let u32_at = |at: usize| -> io::Result<u32> {
        Ok(u32::from(u16_at(at)?) | u32::from(u16_at(at + 2)?) << 16)
    };
    match u16_at(4)? {
        NLMSG_ERROR => {
            let code = u32_at(HEADER)?.cast_signed();
            return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
        }
        NLMSG_DONE => return Ok(None),
        SOCK_DIAG_BY_FAMILY => {}
        _ => return Err(cut()),
    }
    let end = u32_at(0)? as usize;
    if end < HEADER + MESSAGE || end > answer.len() {
        return Err(cut());
    }
    let inode = u32_at(HEADER + 4)?.into();
    let mut socket = UnixSocket {
        connected: *answer.get(HEADER + 2).ok_or_else(cut)? == ESTABLISHED,
        ..UnixSocket::default()
    };
    let mut at = HEADER + MESSAGE;
    while at + 4 <= end {
        let len = usize::from(u16_at(at)?);
        if len < 4 || at + len > end {
            return Err(cut());
        }
        let value = &answer[at + 4..at + len];
        match u16_at(at + 2)? {
            ATTR_NAME => socket.name = Some(value.to_vec()),
            ATTR_PEER => socket.peer = u64::from(u32_at(at + 4)?),
            ATTR_SHUTDOWN => socket.shutdown = value.first().copied().unwrap_or(0).into(),
            _ => {}
        }
        at += len.next_multiple_of(4);
    }
    Ok(Some((inode, socket)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    fn inode(socket: &UnixStream) -> u64 {
        nix::sys::stat::fstat(socket.as_fd()).expect("fstat").st_ino
    }

    #[test]
    fn the_ends_of_a_pair_name_each_other() {
        let (a, b) = UnixStream::pair().expect("pair");
        let found = ask(inode(&a)).expect("asks");
        assert_eq!((found.peer, found.connected), (inode(&b), true));
        assert_eq!((found.name, found.shutdown), (None, 0));
        b.shutdown(std::net::Shutdown::Write).expect("shutdown");
        assert_eq!(ask(inode(&b)).expect("asks").shutdown, 2);
        drop(b);
        let found = ask(inode(&a)).expect("asks");
        assert_eq!((found.peer, found.shutdown), (0, 3));
    }

    #[test]
    fn many_are_found_as_each_by_itself() {
        let pairs = (0..300).map(|_| UnixStream::pair().expect("pair"));
        let pairs: Vec<_> = pairs.collect();
        pairs[7]
            .1
            .shutdown(std::net::Shutdown::Read)
            .expect("shutdown");
        let mut all = UnixSockets::for_questions(pairs.len());
        assert!(all.known.len() >= 2 * pairs.len());
        for (a, b) in &pairs {
            for socket in [a, b] {
                let found = all.known.get(&inode(socket)).cloned();
                let asked = ask(inode(socket)).expect("asks");
                assert_eq!(found, Some(asked.clone()));
                assert_eq!(all.get(inode(socket)).expect("is known"), asked);
            }
        }
        assert!(UnixSockets::for_questions(1).known.is_empty());
    }

    #[test]
    fn what_is_no_unix_socket_is_an_error() {
        assert!(ask(u64::from(u32::MAX)).is_err());
        assert!(ask(u64::MAX).is_err());
    }

    proptest! {
        #[test]
        fn soup_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
            let mut bytes = bytes;
            if bytes.len() > 6 {
                bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
            }
            let _ = parse(&bytes);
        }
    }
}
