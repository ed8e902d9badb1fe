//! A stream's other end.

use crate::copies::Ender;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What a stream is served on.
pub trait Peer: Read + Write + AsFd {
    /// A descriptor that has come with what was read, if such a stream can carry one.
    fn take_descriptor(&mut self) -> Option<OwnedFd> {
        None
    }

    /// What tells that it has ended though its process may be there, because what it came through has broken; none: it came by itself.
    fn loss(&self) -> Option<Arc<AtomicBool>> {
        None
    }

    /// What ends it from another thread.
    ///
    /// # Errors
    /// If there is no descriptor for it.
    fn ender(&self) -> io::Result<Ender> {
        let end = self.as_fd().try_clone_to_owned()?;
        Ok(Box::new(move || {
            // It may have ended already.
            let _ = rustix::net::shutdown(&end, rustix::net::Shutdown::Both);
        }))
    }

    /// To be written to while it is read.
    ///
    /// # Errors
    /// If there is no descriptor for it.
    fn writer(&self) -> io::Result<Box<dyn Write + Send>> {
        let end = self.as_fd().try_clone_to_owned()?;
        Ok(Box::new(UnixStream::from(end)))
    }

    /// Whether the process at the other end can be seen from here.
    fn is_here(&self) -> bool {
        false
    }
}

impl Peer for UnixStream {}

/// A unix stream that takes descriptors: the last that has come.
#[derive(Debug)]
pub(crate) struct Local {
    stream: UnixStream,
    descriptor: Option<OwnedFd>,
}

impl Local {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Local {
            stream,
            descriptor: None,
        }
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }
}

impl Peer for Local {
    fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptor.take()
    }

    fn is_here(&self) -> bool {
        // The kernel gives processes of a foreign pid namespace no number.
        let peer = getsockopt(&self.stream, PeerCredentials);
        peer.is_ok_and(|peer| peer.pid() > 0)
    }
}

impl AsFd for Local {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Read for Local {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut with = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(buffer)];
        let received = recvmsg(&self.stream, &mut into, &mut with, RecvFlags::CMSG_CLOEXEC)?;
        for message in with.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                // The others are closed, and those for which there was no room.
                self.descriptor = descriptors.last().or(self.descriptor.take());
            }
        }
        Ok(received.bytes)
    }
}

impl Write for Local {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.stream.write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
