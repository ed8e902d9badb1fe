//! What sock_diag(7) says of a unix socket: who its peer is, what has been shut down.

use crate::sys::channels::ask_sock_diag;
use std::io;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
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

/// Asks about the socket with this inode number.
pub(super) fn ask(inode: u64) -> io::Result<UnixSocket> {
    let number = u32::try_from(inode).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut request = vec![];
    request.extend(40_u32.to_ne_bytes()); // length with header
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(NLM_F_REQUEST.to_ne_bytes());
    request.extend([0; 8]); // sequence, port
    request.extend([libc::AF_UNIX as u8, 0, 0, 0]); // family, protocol, padding
    request.extend(u32::MAX.to_ne_bytes()); // all states
    request.extend(number.to_ne_bytes());
    request.extend((SHOW_NAME | SHOW_PEER | SHOW_RQLEN).to_ne_bytes());
    request.extend([0xff; 8]); // no cookie
    parse(&ask_sock_diag(&request)?)
}

fn parse(answer: &[u8]) -> io::Result<UnixSocket> {
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
        SOCK_DIAG_BY_FAMILY => {}
        _ => return Err(cut()),
    }
    let mut socket = UnixSocket {
        connected: *answer.get(HEADER + 2).ok_or_else(cut)? == ESTABLISHED,
        ..UnixSocket::default()
    };
    let end = answer.len().min(u32_at(0)? as usize);
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
    Ok(socket)
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
