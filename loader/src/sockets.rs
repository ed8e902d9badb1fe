//! Messages that lay unread in sockets, sent again.
//!
//! ```text
//! send --does not fit--> the send buffer as large as it may be --> send ... --> the send buffer as it was
//! ```

use crate::abi::*;
use crate::context::Context;
use crate::interpret::fits;
use crate::report::{Outcome, Raw, failure};
use crate::sys::{Errno, SysResult, call};
use crate::unread::{self, Unread};
use loader::ops;
use loader::ops::tails::{MOST_SENT, SendTail};

const SYS_SETSOCKOPT: u64 = 54;
const SYS_GETSOCKOPT: u64 = 55;
const SOL_SOCKET: u64 = 1;
const SO_TYPE: u64 = 3;
const SO_SNDBUF: u64 = 7;
const SOCK_STREAM: u32 = 1;
const MSG_DONTWAIT: u64 = 0x40;
const EMSGSIZE: i32 = 90;

/// Bytes of a stream that the kernel takes in one piece; it cuts what is longer (net/unix/af_unix.c, `unix_stream_sendmsg`: 32 KiB, and a page
/// but for the 320 bytes of its `struct skb_shared_info`). No others take less of the memory that a socket may have for what it has sent.
const PART: u64 = 32768 + 4096 - 320;

/// Sends a message.
pub fn send(context: &Context, op: &ops::Send, tail: &'static [u8]) -> Outcome<()> {
    let tail = fits(SendTail::read(op, tail))?;
    let socket = Raw(match tail.socket.to_bytes() {
        b"" => b"a socket",
        name => name,
    });
    // struct cmsghdr, then the descriptors.
    let mut control = [0u32; 4 + MOST_SENT as usize];
    control[0] = 16 + 4 * op.fds as u32;
    control[2] = SOL_SOCKET as u32;
    control[3] = 1; // SCM_RIGHTS
    for (to, slot) in control[4..].iter_mut().zip(tail.slots()) {
        *to = slot as u32;
    }
    let mut control = match op.fds {
        0 => &[][..],
        fds => &control[..4 + fds as usize],
    };
    let mut left = Unread::new(op.from, op.at, op.len);
    let is_stream = option(op.slot, SO_TYPE) == Ok(SOCK_STREAM);
    let mut buffer_was = None;
    loop {
        let wanted = match is_stream {
            true => first_of_stream(left.len(), !control.is_empty()),
            false => unread::AT_ONCE as u64,
        };
        let bytes = left.read(&mut unread::buffer(context)[..wanted as usize])?;
        match send_bytes(op, bytes, control) {
            Ok(sent) => left.pass(sent),
            Err(Errno(EAGAIN | EMSGSIZE)) if buffer_was.is_none() => {
                buffer_was = Some(option(op.slot, SO_SNDBUF).unwrap_or(0));
                set_send_buffer(op.slot, i32::MAX as u32);
                continue;
            }
            Err(Errno(EAGAIN | EMSGSIZE)) => {
                let room = option(op.slot, SO_SNDBUF).unwrap_or(0);
                let or_messages = match is_stream {
                    true => "",
                    false => ", net.unix.max_dgram_qlen",
                };
                return Err(failure!(
                    Host,
                    "{socket}: its unread messages do not fit: the send buffer found is of {room} bytes \
                     (net.core.wmem_max{or_messages})"
                ));
            }
            Err(error) => return Err(failure!(Failed, "{socket}: unread message: {error}")),
        }
        if left.is_empty() {
            break;
        }
        // The descriptors went with the first bytes of a stream.
        control = &[];
    }
    if let Some(was) = buffer_was {
        // The kernel doubles what it is given (socket(7)).
        set_send_buffer(op.slot, was / 2);
    }
    Ok(())
}

/// How many bytes of a stream are sent first. The kernel lets a socket have more by what is sent last, so that this is as long as can be: what is
/// left over comes first. Descriptors come with as many bytes as they can.
fn first_of_stream(len: u64, with_descriptors: bool) -> u64 {
    match len % PART {
        over if over > 0 && !with_descriptors => over,
        _ => len.min(PART),
    }
}

fn send_bytes(op: &ops::Send, bytes: &[u8], control: &[u32]) -> SysResult<usize> {
    let part = IoVec {
        base: bytes.as_ptr() as u64,
        len: bytes.len() as u64,
    };
    let control_len = size_of_val(control) as u64;
    let header = MessageHeader::new(&part, control.as_ptr() as u64, control_len);
    let flags = op.flags | MSG_DONTWAIT;
    // SAFETY: the header and everything it points to live until the call returns.
    let sent = unsafe { call(SYS_SENDMSG, [op.slot, &raw const header as u64, flags]) };
    sent.map(|sent| sent as usize)
}

/// An option of one number.
fn option(fd: u64, option: u64) -> SysResult<u32> {
    let (mut value, mut len) = (0u32, 4u32);
    let places = [&raw mut value as u64, &raw mut len as u64];
    let args = [fd, SOL_SOCKET, option, places[0], places[1]];
    // SAFETY: the kernel writes an int and its length.
    unsafe { call(SYS_GETSOCKOPT, args) }?;
    Ok(value)
}

/// As much as it may be, if that is less.
fn set_send_buffer(fd: u64, bytes: u32) {
    let place = &raw const bytes as u64;
    let args = [fd, SOL_SOCKET, SO_SNDBUF, place, 4];
    // SAFETY: the kernel reads an int.
    let _ = unsafe { call(SYS_SETSOCKOPT, args) };
}
