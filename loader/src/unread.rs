//! Bytes that lay unread in pipes and sockets: the image has them as the contents of a file, from which they are written to where they
//! were.
//!
//! ```text
//! FillInode -> memory file in a slot --pread--> buffer --write, sendmsg--> pipe, socket
//! ```

use crate::abi::*;
use crate::context::Context;
use crate::interpret::text;
use crate::report::{Outcome, Raw, failure};
use crate::sys::{self, Errno};
use loader::ops;

/// Most that is written at once: no message is longer, and a pipe is filled by whole pages.
pub const AT_ONCE: usize = 1 << 20;

/// Some of those bytes.
#[derive(Clone, Copy)]
pub struct Unread {
    /// Descriptor of the file.
    pub from: i32,
    at: u64,
    len: u64,
}

impl Unread {
    /// Bytes of the file in this slot, which has them ([`loader::meaning`] has looked).
    pub fn new(from: u64, at: u64, len: u64) -> Self {
        Unread {
            from: from as i32,
            at,
            len,
        }
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first of them, as many as there is room for.
    pub fn read<'a>(&self, buffer: &'a mut [u8]) -> Outcome<&'a [u8]> {
        let wanted = self.len.min(buffer.len() as u64) as usize;
        match sys::pread_full(self.from, &mut buffer[..wanted], self.at) {
            Ok(found) if found == wanted => Ok(&buffer[..wanted]),
            Ok(found) => Err(failure!(
                Failed,
                "unread bytes: found {found}, expected {wanted}"
            )),
            Err(error) => Err(failure!(Failed, "unread bytes: {error}")),
        }
    }

    /// So many of them, which have been read, are where they belong.
    pub fn pass(&mut self, len: usize) {
        let len = self.len.min(len as u64);
        self.at += len;
        self.len -= len;
    }
}

/// Where unread bytes are read to.
pub fn buffer(context: &Context) -> &'static mut [u8] {
    // SAFETY: the buffers are used by the one thread that carries out a stream.
    let buffers = unsafe { context.bytes(context.layout.buffers) };
    &mut buffers[..AT_ONCE]
}

/// Writes them into a pipe again.
pub fn refill(context: &Context, op: &ops::Refill, tail: &'static [u8]) -> Outcome<()> {
    let pipe = Raw(text(tail)?.to_bytes());
    let mut left = Unread::new(op.from, op.at, op.len);
    while !left.is_empty() {
        let bytes = left.read(buffer(context))?;
        match sys::write(op.slot as i32, bytes) {
            Ok(len) if len == bytes.len() => left.pass(len),
            Ok(_) | Err(Errno(EAGAIN)) => {
                const F_GETPIPE_SZ: u64 = 1032;
                let room = sys::fcntl(op.slot as i32, F_GETPIPE_SZ, 0).unwrap_or(0);
                return Err(failure!(
                    Host,
                    "{pipe}: it does not fit: this machine gives the pipe {room} bytes \
                     (fs.pipe-user-pages-soft, fs.pipe-max-size)"
                ));
            }
            Err(error) => return Err(failure!(Failed, "{pipe}: write: {error}")),
        }
    }
    Ok(())
}
