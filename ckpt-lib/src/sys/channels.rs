//! Looking into pipes, sockets and terminals without taking anything out of them.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `TCGETS2` (ioctl_tty(2)).
const TCGETS2: libc::c_ulong = 0x802c_542a;
/// Bytes of `struct termios2`.
const TERMIOS2_LEN: usize = 44;
/// Most descriptors that one message carries (SCM_MAX_FD).
const MAX_DESCRIPTORS: usize = 253;

fn check(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Bytes that can be read now (`FIONREAD`).
pub(crate) fn unread_len(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let mut len: libc::c_int = 0;
    // SAFETY: FIONREAD writes one int to the pointer.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &raw mut len) }.into())?;
    Ok(usize::try_from(len).unwrap_or(0))
}

/// Memory that messages sent through this socket and not yet received take (`SIOCOUTQ`).
pub(crate) fn unsent_len(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let mut len: libc::c_int = 0;
    // SAFETY: TIOCOUTQ, which is SIOCOUTQ, writes one int to the pointer.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut len) }.into())?;
    Ok(usize::try_from(len).unwrap_or(0))
}

/// `poll(2)` without waiting: the events that hold.
pub(crate) fn poll_now(fd: BorrowedFd<'_>, events: i16) -> io::Result<i16> {
    let mut entry = libc::pollfd {
        fd: fd.as_raw_fd(),
        events,
        revents: 0,
    };
    // SAFETY: one pollfd is passed, and it lives until the call is over.
    check(unsafe { libc::poll(&raw mut entry, 1, 0) }.into())?;
    Ok(entry.revents)
}

/// `struct termios2`, if the descriptor is a terminal.
pub(crate) fn termios2(fd: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0_u8; TERMIOS2_LEN];
    // SAFETY: TCGETS2 writes `struct termios2`, 44 bytes, which `bytes` has.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), TCGETS2, bytes.as_mut_ptr()) }.into())?;
    Ok(bytes)
}

/// Rows, columns, x and y pixels of a terminal.
pub(crate) fn window(fd: BorrowedFd<'_>) -> io::Result<[u16; 4]> {
    let mut size = [0_u16; 4];
    // SAFETY: TIOCGWINSZ writes `struct winsize`, four u16, which `size` is.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCGWINSZ, size.as_mut_ptr()) }.into())?;
    Ok(size)
}

/// `tee(2)` without waiting: copies what is in pipe `from` into pipe `to`, leaving it in `from`.
pub(crate) fn tee(from: BorrowedFd<'_>, to: BorrowedFd<'_>, len: usize) -> io::Result<usize> {
    // SAFETY: takes numbers only.
    let copied = unsafe {
        libc::tee(
            from.as_raw_fd(),
            to.as_raw_fd(),
            len,
            libc::SPLICE_F_NONBLOCK,
        )
    };
    check(copied as libc::c_long)
}

/// A socket option that is an int.
pub(crate) fn socket_option(fd: BorrowedFd<'_>, option: i32) -> io::Result<i32> {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `value`, and the length to `len`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    check(result.into())?;
    Ok(value)
}

/// A socket option of `len` bytes, and the length that the kernel says it has.
pub(crate) fn socket_option_bytes(
    fd: BorrowedFd<'_>,
    option: i32,
    len: usize,
) -> io::Result<(Vec<u8>, usize)> {
    let mut value = vec![0_u8; len];
    let mut len = len as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `value`, and the length to `len`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            value.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    check(result.into())?;
    Ok((value, len as usize))
}

/// Sets a socket option that is an int.
pub(crate) fn set_socket_option(fd: BorrowedFd<'_>, option: i32, value: i32) -> io::Result<()> {
    set_socket_option_bytes(fd, option, &value.to_ne_bytes())
}

/// Sets a socket option.
pub(crate) fn set_socket_option_bytes(
    fd: BorrowedFd<'_>,
    option: i32,
    value: &[u8],
) -> io::Result<()> {
    // SAFETY: the kernel reads at most `value.len()` bytes of `value`.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    check(result.into()).map(drop)
}

/// A message that was looked at.
#[derive(Debug)]
pub(crate) struct Peeked {
    /// Bytes copied to the buffer.
    pub(crate) len: usize,
    /// It did not fit into the buffer, or its descriptors did not.
    pub(crate) cut: bool,
    /// Duplicates of the descriptors in flight.
    pub(crate) descriptors: Vec<OwnedFd>,
    /// Process, user and group of its sender, if the socket has SO_PASSCRED.
    pub(crate) credentials: Option<[u32; 3]>,
}

/// Looks at the next message of a unix socket without taking it out and without waiting.
pub(crate) fn peek(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Peeked> {
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // u64: aligned as cmsghdr must be. Room for descriptors and credentials.
    let mut control = [0_u64; MAX_DESCRIPTORS / 2 + 16];
    // SAFETY: msghdr is plain data, and all zero is a valid one.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control);
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the kernel writes within the buffer and the control area, whose lengths it is told.
    let len =
        check(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags) } as libc::c_long)?;
    let mut descriptors = vec![];
    let mut credentials = None;
    // SAFETY: `header` was filled in by the kernel; its control area is `control`, alive.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    while !message.is_null() {
        // SAFETY: not null, so it points to a whole cmsghdr within `control`.
        let head = unsafe { *message };
        if head.cmsg_level == libc::SOL_SOCKET && head.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: as above; the data follows the head.
            let data = unsafe { libc::CMSG_DATA(message) };
            let start = data as usize - message as usize;
            let count = head.cmsg_len.saturating_sub(start) / size_of::<i32>();
            for index in 0..count {
                // SAFETY: `index` is below the number of descriptors the kernel wrote here.
                let at = unsafe { data.add(index * size_of::<i32>()) };
                // SAFETY: within `control`; no alignment is assumed.
                let number = unsafe { at.cast::<i32>().read_unaligned() };
                // SAFETY: the kernel has installed this descriptor for us just now.
                descriptors.push(unsafe { OwnedFd::from_raw_fd(number) });
            }
        }
        if head.cmsg_level == libc::SOL_SOCKET && head.cmsg_type == libc::SCM_CREDENTIALS {
            // SAFETY: not null, as above; the data follows the head.
            let data = unsafe { libc::CMSG_DATA(message) };
            // SAFETY: the kernel has written a whole `struct ucred`, three words; no alignment is assumed.
            credentials = Some(unsafe { data.cast::<[u32; 3]>().read_unaligned() });
        }
        // SAFETY: `message` came from CMSG_FIRSTHDR or CMSG_NXTHDR of the same header.
        message = unsafe { libc::CMSG_NXTHDR(&raw const header, message) };
    }
    Ok(Peeked {
        len,
        cut: header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0,
        descriptors,
        credentials,
    })
}

/// How many bytes of a stream lie, from where it shows them (SO_PEEK_OFF), in whole parts that were sent by a call each and fit into `buffer`;
/// 0: not even the first fits. The kernel copies part by part, and one that it cannot copy whole it does not show at all, nor descriptors that
/// came with it (net/unix/af_unix.c, `unix_stream_read_generic`; net/core/datagram.c, `skb_copy_datagram_iter`).
/// Only for what holds no descriptors in those parts.
pub(crate) fn peek_whole_parts(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let no_memory = libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 1,
    };
    let room = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut parts = [room, no_memory];
    // SAFETY: msghdr is plain data, and all zero is a valid one.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_iov = parts.as_mut_ptr();
    header.msg_iovlen = parts.len();
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the kernel writes within the buffer; at address 0 it finds no memory and writes nothing.
    let len = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags) };
    match check(len as libc::c_long) {
        Ok(len) => Ok(len),
        Err(error) if error.raw_os_error() == Some(libc::EFAULT) => Ok(0),
        Err(error) => Err(error),
    }
}

/// Asks the kernel's socket diagnostics (sock_diag(7)): sends `request`, and shows each part of the answer until `take` has had enough.
///
/// # Errors
/// What the kernel or `take` says; the kernel has no more parts.
pub(crate) fn ask_sock_diag(
    request: &[u8],
    mut take: impl FnMut(&[u8]) -> io::Result<Enough>,
) -> io::Result<()> {
    // SAFETY: takes numbers only.
    let raw = unsafe {
        libc::socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            libc::NETLINK_SOCK_DIAG,
        )
    };
    check(raw.into())?;
    // SAFETY: the kernel has just returned this descriptor to us.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    // SAFETY: the kernel reads `request.len()` bytes of `request`.
    let sent = unsafe {
        libc::send(
            socket.as_raw_fd(),
            request.as_ptr().cast(),
            request.len(),
            0,
        )
    };
    check(sent as libc::c_long)?;
    let mut answer = vec![0_u8; 32 << 10];
    loop {
        // The first part is there when `send` returns, each other when the one before has been taken: waiting would be for ever.
        // SAFETY: the kernel writes at most `answer.len()` bytes to `answer`.
        let got = unsafe {
            libc::recv(
                socket.as_raw_fd(),
                answer.as_mut_ptr().cast(),
                answer.len(),
                libc::MSG_DONTWAIT,
            )
        };
        let part = &answer[..check(got as libc::c_long)?];
        if take(part)? == Enough::Yes {
            return Ok(());
        }
    }
}

/// Whether all has come that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enough {
    Yes,
    No,
}

/// Asks a timerfd for its time (timerfd_gettime(2)): if it has expired, the kernel counts the periods that
/// have gone by and sets it going again; what is read from it does not change.
pub(crate) fn wake_periodic_timer(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: all zeros is a valid itimerspec.
    let mut left: libc::itimerspec = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one itimerspec.
    let result = unsafe { libc::timerfd_gettime(fd.as_raw_fd(), &raw mut left) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_pipe_keeps_what_tee_has_seen() {
        let (mut reader, mut writer) = std::io::pipe().expect("pipe");
        let (mut copy, sink) = std::io::pipe().expect("pipe");
        writer.write_all(b"hello").expect("write");
        assert_eq!(unread_len(reader.as_fd()).expect("FIONREAD"), 5);
        assert_eq!(tee(reader.as_fd(), sink.as_fd(), 100).expect("tee"), 5);
        let mut bytes = [0; 5];
        copy.read_exact(&mut bytes).expect("copy");
        reader.read_exact(&mut bytes).expect("original");
        assert_eq!(&bytes, b"hello");
    }

    #[test]
    fn a_socket_keeps_what_was_peeked() {
        let (mut a, mut b) = UnixStream::pair().expect("pair");
        a.write_all(b"hello").expect("write");
        let mut buffer = [0; 64];
        let peeked = peek(b.as_fd(), &mut buffer).expect("peek");
        assert_eq!((peeked.len, peeked.cut), (5, false));
        let mut bytes = [0; 5];
        b.read_exact(&mut bytes).expect("original");
        assert_eq!(&bytes, b"hello");
    }
}
