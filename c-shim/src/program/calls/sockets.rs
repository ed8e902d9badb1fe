//! Sockets that have a name at the shadow (unix(7)), and descriptors that come through sockets.
//!
//! ```text
//! bind            --name of the shadow's--> made there, bound here ([`nodes`])
//! connect, sendto --name of the shadow's--> is it a socket, and may we? --> the kernel's, with the name it has here
//! accept, getsockname, recvfrom ... --name of ours--> what the program called it
//! recvmsg         --descriptors--> looked at, whether they are remote
//! ```
//! A socket of any other kind is the kernel's, and so are names of this machine and abstract ones.

use super::opening::without_umask;
use super::places::{checked, text};
use super::{File, Served, descriptors, methods, names};
use crate::program::lanes::tell;
use crate::program::nodes::{self, Address, LONGEST};
use crate::program::sys::{self, Errno, SysResult, call};
use crate::program::{ends, process};
use core::ffi::CStr;
use wire::{Access, MakeNode, Place, RemoveName, Request};

const UNIX: u64 = 1;
const DATAGRAM: u64 = 2;
const SOCKET: u32 = 0o140_000;
const TYPE: u32 = 0o170_000;
/// Options of SOL_SOCKET.
const SO_TYPE: u64 = 3;
const SO_DOMAIN: u64 = 39;
/// SOL_SOCKET, SCM_RIGHTS.
const DESCRIPTORS: [u32; 2] = [1, 1];
/// Most messages of one call (UIO_MAXIOV).
const MOST_MESSAGES: u64 = 1024;

/// Calls that are looked at here, and nowhere else.
pub(super) const NUMBERS: &[u64] = &[
    sys::BIND,
    sys::CONNECT,
    sys::ACCEPT,
    sys::ACCEPT4,
    sys::GETSOCKNAME,
    sys::GETPEERNAME,
    sys::SENDTO,
    sys::SENDMSG,
    sys::SENDMMSG,
    sys::RECVFROM,
    sys::RECVMSG,
    sys::RECVMMSG,
    sys::PIDFD_GETFD,
];

/// Calls that are the kernel's but of a remote file, which is no socket.
pub(super) const BY_DESCRIPTOR: &[u64] =
    &[sys::SHUTDOWN, sys::LISTEN, sys::SETSOCKOPT, sys::GETSOCKOPT];

/// `struct msghdr`: where what is.
type Header = [u64; 7];
const NAME: usize = 0;
const NAME_LEN: usize = 1;
const CONTROL: usize = 4;
const CONTROL_LEN: usize = 5;

/// `struct mmsghdr`: a header and, in the last word, a length.
type Message = [u64; 8];

pub(super) fn serve(number: u64, args: &[u64; 6]) -> Served {
    let [fd, a, b, c, d, e] = *args;
    if descriptors::hidden(fd as i32) {
        return Some(Err(Errno(sys::EBADF)));
    }
    if number == sys::PIDFD_GETFD {
        // SAFETY: pidfd_getfd(2) takes numbers.
        let got = unsafe { call(number, *args) };
        return Some(got.inspect(|fd| take_in(*fd as i32)));
    }
    if let Some(file) = File::of(fd) {
        let is_open = file.flags() & sys::O_PATH == 0;
        let errno = if is_open { sys::ENOTSOCK } else { sys::EBADF };
        return Some(Err(Errno(errno)));
    }
    match number {
        sys::BIND => bind(fd, a, b),
        sys::CONNECT => {
            let called = Called::read(a, b)?;
            is(fd, SO_DOMAIN, UNIX).then_some(())?;
            called.led(|[place, len]| {
                // SAFETY: the kernel reads the address.
                unsafe { call(number, [fd, place, len]) }
            })
        }
        sys::SENDTO => {
            let called = Called::read(d, e)?;
            takes_addresses(fd).then_some(())?;
            called.led(|[place, len]| {
                // SAFETY: the kernel reads the address, and what the program says.
                unsafe { call(number, [fd, a, b, c, place, len]) }
            })
        }
        sys::SENDMSG => send(fd, a as *const Header, b),
        sys::SENDMMSG => send_many(fd, a as *mut Message, b, c),
        sys::RECVFROM => with_address(number, args, [4, 5]),
        sys::RECVMSG => receive(fd, a as *mut Header, b),
        sys::RECVMMSG => receive_many(args),
        _ if BY_DESCRIPTOR.contains(&number) => None,
        _ => with_address(number, args, [1, 2]),
    }
}

/// An option of a socket that is a number.
fn option(fd: u64, which: u64) -> SysResult<u64> {
    const SOL_SOCKET: u64 = 1;
    let (mut value, mut len) = (0u32, 4u32);
    let (place, len) = (&raw mut value as u64, &raw mut len as u64);
    // SAFETY: the kernel writes the number and its length.
    unsafe { call(sys::GETSOCKOPT, [fd, SOL_SOCKET, which, place, len]) }?;
    Ok(value.into())
}

fn is(fd: u64, which: u64, wanted: u64) -> bool {
    option(fd, which) == Ok(wanted)
}

/// Whether a message can be sent to a name through it.
fn takes_addresses(fd: u64) -> bool {
    is(fd, SO_DOMAIN, UNIX) && is(fd, SO_TYPE, DATAGRAM)
}

/// The name in an address of the program's.
struct Called([u8; LONGEST + 1]);

impl Called {
    /// None if it is no name in the file system, or no address.
    fn read(address: u64, len: u64) -> Option<Self> {
        let len = (len as u32 as usize).checked_sub(2)?;
        if address == 0 || len == 0 || len > LONGEST {
            return None;
        }
        // SAFETY: the program says that an address of this length is there.
        let family = unsafe { (address as *const u16).read_unaligned() };
        if u64::from(family) != UNIX {
            return None;
        }
        let mut called = Called([0; LONGEST + 1]);
        let from = (address + 2) as *const u8;
        // SAFETY: as above; there is room for the longest.
        unsafe { core::ptr::copy_nonoverlapping(from, called.0.as_mut_ptr(), len) };
        (called.0[0] != 0).then_some(called)
    }

    fn get(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or_default()
    }

    fn at(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    /// Makes a call with the address to which the name leads, if that is another one.
    fn led(&self, act: impl Fn([u64; 2]) -> Result<u64, Errno>) -> Served {
        if !nodes::has_folder() {
            return None;
        }
        methods::led(
            self.at(),
            |place| {
                let address = bound_to(place)?;
                act(address.args()).map_err(|error| match error {
                    // It is none of this job's.
                    Errno(sys::ENOENT) => Errno(sys::ECONNREFUSED),
                    error => error,
                })
            },
            |name| {
                let address = Address::of(text(name).unwrap_or_default())?;
                act(address.args())
            },
        )
    }
}

/// Where a socket of the shadow's is bound here, if we may connect to it.
fn bound_to(place: Place<'_>) -> Result<Address, Errno> {
    const WRITE: u32 = 2;
    let attributes = names::attributes(place, true)?;
    tell(&Request::Access(Access {
        place,
        mode: WRITE,
        follow: true,
        effective: true,
    }))?;
    match attributes.mode & TYPE {
        SOCKET => Address::of_socket(&attributes),
        _ => Err(Errno(sys::ECONNREFUSED)),
    }
}

fn bind(fd: u64, address: u64, len: u64) -> Served {
    let called = Called::read(address, len)?;
    if !is(fd, SO_DOMAIN, UNIX) || !nodes::has_folder() {
        return None;
    }
    methods::led(
        called.at(),
        |place| bind_there(fd, &called, place),
        |name| {
            let address = Address::of(text(name).unwrap_or_default())?;
            let [place, len] = address.args();
            // SAFETY: the kernel reads the address.
            unsafe { call(sys::BIND, [fd, place, len]) }
        },
    )
}

fn bind_there(fd: u64, called: &Called, place: Place<'_>) -> Result<u64, Errno> {
    let place = checked(place)?;
    let mode = SOCKET | without_umask(sys::mode(fd as i32)? & 0o777);
    let made = tell(&Request::MakeNode(MakeNode { place, mode }));
    made.map_err(|error| match error {
        Errno(sys::EEXIST) => Errno(sys::EADDRINUSE),
        error => error,
    })?;
    let bound = names::attributes(place, false)
        .and_then(|attributes| nodes::bind(fd, called.get(), &attributes));
    if bound.is_err() {
        let directory = false;
        let _ = tell(&Request::RemoveName(RemoveName { place, directory }));
    }
    bound.map(|_| 0)
}

fn send(fd: u64, header: *const Header, flags: u64) -> Served {
    if header.is_null() {
        return None;
    }
    // SAFETY: the program says that it is there.
    let header = unsafe { header.read_unaligned() };
    let called = Called::read(header[NAME], header[NAME_LEN])?;
    takes_addresses(fd).then_some(())?;
    called.led(|[place, len]| {
        let mut header = header;
        (header[NAME], header[NAME_LEN]) = (place, len);
        // SAFETY: the kernel reads the header, and what the program says.
        unsafe { call(sys::SENDMSG, [fd, &raw const header as u64, flags]) }
    })
}

/// One after another, if any is sent to a name.
fn send_many(fd: u64, messages: *mut Message, count: u64, flags: u64) -> Served {
    let count = u64::from(count as u32).min(MOST_MESSAGES) as usize;
    if messages.is_null() || count == 0 {
        return None;
    }
    let message = |at: usize| messages.wrapping_add(at);
    let has_name = |at: usize| {
        // SAFETY: the program says that so many are there.
        let [name, len] = unsafe { (message(at) as *const [u64; 2]).read_unaligned() };
        Called::read(name, len).is_some()
    };
    if !takes_addresses(fd) || !(0..count).any(has_name) {
        return None;
    }
    for at in 0..count {
        let header = message(at).cast::<Header>().cast_const();
        let sent = send(fd, header, flags).unwrap_or_else(|| {
            // SAFETY: it is what the program asked for.
            unsafe { call(sys::SENDMSG, [fd, header as u64, flags]) }
        });
        match sent {
            Ok(len) => {
                let place = message(at)
                    .cast::<u32>()
                    .wrapping_add(2 * size_of::<Header>() / 8);
                // SAFETY: as above.
                unsafe { place.write_unaligned(len as u32) };
            }
            // What was sent is told first.
            Err(_) if at > 0 => return Some(Ok(at as u64)),
            Err(error) => return Some(Err(error)),
        }
    }
    Some(Ok(count as u64))
}

/// A call that tells an address; `at`: the arguments with the place for it, and for its length.
fn with_address(number: u64, args: &[u64; 6], at: [usize; 2]) -> Served {
    let [to, len_at] = at.map(|at| args[at]);
    if to == 0 || len_at == 0 || !is(args[0], SO_DOMAIN, UNIX) {
        return None;
    }
    // SAFETY: the program says that a length is there.
    let room = unsafe { (len_at as *const i32).read_unaligned() };
    let room = usize::try_from(room).ok()?;
    let (mut found, mut len) = ([0u8; 128], 128u32);
    let mut asked = *args;
    (asked[at[0]], asked[at[1]]) = (found.as_mut_ptr() as u64, &raw mut len as u64);
    // SAFETY: it is what the program asked for, with room of ours for the address.
    let result = unsafe { call(number, asked) };
    Some(result.inspect(|_| {
        let found = found.get(..len as usize).unwrap_or(&found);
        let len = give(found, to, room);
        // SAFETY: as above.
        unsafe { (len_at as *mut u32).write_unaligned(len) };
    }))
}

/// Puts an address, with what the program calls it, where it wants it; how long it is.
fn give(address: &[u8], to: u64, room: usize) -> u32 {
    let put = |bytes: &[u8]| {
        let len = bytes.len().min(room);
        // SAFETY: the program says that there is so much room.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, len) };
        bytes.len() as u32
    };
    let mut name = [0; LONGEST];
    let called = address
        .get(2..)
        .and_then(|path| nodes::called(path, &mut name));
    let Some(called) = called else {
        return put(address);
    };
    let mut own = [0; 2 + LONGEST + 1];
    own[0] = UNIX as u8;
    own[2..2 + called.len()].copy_from_slice(called);
    put(&own[..2 + called.len() + 1])
}

/// Whether something may come that has to be looked at.
fn is_looked_at(header: &Header) -> bool {
    header[NAME] != 0 || header[CONTROL] != 0 && header[CONTROL_LEN] != 0
}

fn receive(fd: u64, header: *mut Header, flags: u64) -> Served {
    if header.is_null() {
        return None;
    }
    // SAFETY: the program says that it is there.
    let before = unsafe { header.read_unaligned() };
    if !is_looked_at(&before) || !is(fd, SO_DOMAIN, UNIX) {
        return None;
    }
    let (mut name, mut asked) = ([0u8; 128], before);
    let has_name = before[NAME] != 0;
    if has_name {
        (asked[NAME], asked[NAME_LEN]) = (name.as_mut_ptr() as u64, 128);
    }
    // SAFETY: it is what the program asked for, with room of ours for the sender's name.
    let received = unsafe { call(sys::RECVMSG, [fd, &raw mut asked as u64, flags]) };
    Some(received.inspect(|_| {
        take_in_all(&asked);
        if has_name {
            let room = before[NAME_LEN] as u32 as usize;
            let name = name.get(..asked[NAME_LEN] as u32 as usize);
            asked[NAME] = before[NAME];
            asked[NAME_LEN] = give(name.unwrap_or_default(), before[NAME], room).into();
        }
        // SAFETY: as above.
        unsafe { header.write_unaligned(asked) };
    }))
}

fn receive_many(args: &[u64; 6]) -> Served {
    let [fd, place, count, ..] = *args;
    let messages = place as *mut Message;
    let count = u64::from(count as u32).min(MOST_MESSAGES) as usize;
    if messages.is_null() || !is(fd, SO_DOMAIN, UNIX) {
        return None;
    }
    let header = |at: usize| messages.wrapping_add(at).cast::<Header>();
    // SAFETY: the program says that so many are there.
    let read = |at: usize| unsafe { header(at).read_unaligned() };
    if !(0..count).any(|at| is_looked_at(&read(at))) {
        return None;
    }
    let mut rooms = [0u8; MOST_MESSAGES as usize];
    for (at, room) in rooms[..count].iter_mut().enumerate() {
        *room = (read(at)[NAME_LEN] as u32).min(128) as u8;
    }
    // SAFETY: it is what the program asked for.
    let received = unsafe { call(sys::RECVMMSG, *args) };
    Some(received.inspect(|came| {
        for (at, room) in rooms[..count].iter().enumerate().take(*came as usize) {
            let mut found = read(at);
            take_in_all(&found);
            let (room, len) = (usize::from(*room), found[NAME_LEN] as u32 as usize);
            if found[NAME] == 0 || len > room {
                continue;
            }
            let mut name = [0; 128];
            // SAFETY: the kernel has written so much there, and no address is longer.
            unsafe {
                core::ptr::copy_nonoverlapping(found[NAME] as *const u8, name.as_mut_ptr(), len);
            }
            found[NAME_LEN] = give(&name[..len], found[NAME], room).into();
            // SAFETY: as above.
            unsafe { header(at).write_unaligned(found) };
        }
    }))
}

/// Descriptors that have come may be remote.
fn take_in_all(found: &Header) {
    let (control, len) = (found[CONTROL], found[CONTROL_LEN]);
    let mut at = 0;
    // `struct cmsghdr`: length, level, type.
    while control != 0 && at + 16 <= len {
        let place = control + at;
        // SAFETY: the kernel has written it there.
        let part_len = unsafe { (place as *const u64).read_unaligned() };
        // SAFETY: as above.
        let kind = unsafe { ((place + 8) as *const [u32; 2]).read_unaligned() };
        if part_len < 16 || part_len > len - at {
            break;
        }
        if kind == DESCRIPTORS {
            for index in 0..(part_len - 16) / 4 {
                // SAFETY: as above.
                let fd = unsafe { ((place + 16 + 4 * index) as *const i32).read_unaligned() };
                take_in(fd);
            }
        }
        at += part_len.next_multiple_of(8);
    }
}

/// A descriptor that somebody else has opened is ours now.
fn take_in(fd: i32) {
    process::set_remote(fd, ends::recognise(fd));
}
