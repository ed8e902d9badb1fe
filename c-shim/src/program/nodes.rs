//! FIFOs and sockets that have their names at the shadow, and live here ([`crate::nodes`]).
//!
//! ```text
//! FIFO:   open -> the shadow lets it, and says which file it is -> made here, if it is not there yet -> open(2) of that: waiting, signals
//!         and errors are the kernel's
//! socket: bind -> made at the shadow -> bound here, to a name that nothing else has -> renamed to what tells its file
//! ```
//! # What callers may rely on
//! A process that is killed at any moment leaves nothing half done that another one of its job would trip over.
//!
//! # What it does not do
//! It asks the shadow nothing.

use super::entry::{ACTIONS, action};
use super::process;
use super::sys::{self, DescriptorName, Errno, SysResult, call};
use crate::nodes::{FOLDER, ID_LEN, Key, fifo, parse_digits, put_digits};
use crate::table::Reserved;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};
use wire::{Attributes, Stamp};

const TYPE: u32 = 0o170_000;
const FIFO: u32 = 0o010_000;
const DIRECTORY: u32 = 0o040_000;
/// Whoever may open it is told at the shadow.
const ANYBODYS: u64 = 0o666;
/// Longest name of a socket (`sun_path`).
pub(super) const LONGEST: usize = 108;
/// A FIFO may be asked for so often: after a restart its folder is another one.
const TRIES: usize = 8;

/// Not zero: this process has, or has had, a descriptor of such a FIFO.
static SEEN: AtomicU32 = AtomicU32::new(0);

fn folder() -> u64 {
    Reserved::Nodes.number() as u64
}

/// Whether there is a folder for them: without user namespaces, or before Linux 5.2, there is none.
pub(super) fn has_folder() -> bool {
    sys::mode(folder() as i32).is_ok_and(|mode| mode & TYPE == DIRECTORY)
}

/// A short name, with a zero at its end.
pub(super) struct Name {
    bytes: [u8; 128],
    len: usize,
}

impl Name {
    /// A letter and digits.
    fn new(kind: u8, digits: &[u8]) -> Self {
        let mut name = Name {
            bytes: [0; 128],
            len: 0,
        };
        name.push(&[kind]);
        name.push(digits);
        name
    }

    /// One that nothing else has.
    fn of_nothing(kind: u8) -> SysResult<Self> {
        let mut bytes = [0; 8];
        sys::random(&mut bytes)?;
        let mut digits = [0; ID_LEN];
        put_digits(u64::from_le_bytes(bytes), &mut digits);
        Ok(Name::new(kind, &digits))
    }

    /// The same with another letter.
    fn with(&self, kind: u8) -> Self {
        Name::new(kind, &self.bytes[1..self.len])
    }

    fn push(&mut self, bytes: &[u8]) {
        let place = self.bytes.get_mut(self.len..self.len + bytes.len());
        if let Some(place) = place.filter(|_| self.len + bytes.len() < 128) {
            place.copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }

    fn get(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }

    fn at(&self) -> u64 {
        self.bytes.as_ptr() as u64
    }
}

/// What a file of the shadow's is called in the folder.
fn named(kind: u8, attributes: &Attributes) -> Name {
    let born = attributes.born.unwrap_or_default();
    let key = Key {
        device: attributes.device,
        inode: attributes.inode,
        born: (born.seconds, born.nanoseconds),
    };
    Name::new(kind, &key.digits())
}

/// What the kernel is asked about names of the folder.
fn at_folder<const N: usize>(number: u64, rest: [u64; N]) -> SysResult<u64> {
    let mut args = [0; 6];
    args[0] = folder();
    args[1..=N].copy_from_slice(&rest);
    // SAFETY: the callers give names that end with a zero, and room.
    unsafe { call(number, args) }
}

fn unlink(name: &Name) {
    let _ = at_folder(sys::UNLINKAT, [name.at(), 0]);
}

fn rename(from: &Name, to: &Name, flags: u64) -> SysResult<u64> {
    at_folder(sys::RENAMEAT2, [from.at(), folder(), to.at(), flags])
}

fn link(target: &CStr, name: &Name) -> SysResult<u64> {
    let args = [target.as_ptr() as u64, folder(), name.at()];
    // SAFETY: the kernel reads both names.
    unsafe { call(sys::SYMLINKAT, args) }
}

fn read_link(name: &Name, room: &mut [u8]) -> SysResult<usize> {
    let (to, len) = (room.as_mut_ptr() as u64, room.len() as u64);
    at_folder(sys::READLINKAT, [name.at(), to, len]).map(|len| len as usize)
}

/// Opens the job's own FIFO in the place of that with these attributes; a signal may end the waiting.
pub(super) fn open_fifo(attributes: &Attributes, flags: u32) -> Result<i32, Errno> {
    let flags = flags & !(sys::O_CREAT | sys::O_EXCL | sys::O_TRUNC | sys::O_DIRECTORY);
    let name = named(b'f', attributes);
    tell_owner(attributes, &name.with(b'a'));
    for _ in 0..TRIES {
        match at_folder(sys::OPENAT, [name.at(), flags.into(), 0]) {
            Err(Errno(sys::ENOENT)) => make_fifo(&name)?,
            // There is no folder.
            Err(Errno(sys::ENOTDIR | sys::EBADF)) => break,
            opened => {
                return opened.map(|fd| {
                    process::set_remote(fd as i32, None);
                    seen();
                    fd as i32
                });
            }
        }
    }
    Err(Errno(sys::EACCES))
}

/// Makes one that anybody of the job may open from the first moment on.
fn make_fifo(name: &Name) -> SysResult<()> {
    const NOREPLACE: u64 = 1;
    let new = Name::of_nothing(b'm')?;
    at_folder(sys::MKNODAT, [new.at(), (FIFO as u64) | ANYBODYS, 0])?;
    // Whatever the umask is.
    let made = at_folder(sys::FCHMODAT, [new.at(), ANYBODYS]);
    let made = made.and_then(|_| rename(&new, name, NOREPLACE));
    if made.is_err() {
        unlink(&new);
    }
    match made {
        // Somebody else has made it.
        Ok(_) | Err(Errno(sys::EEXIST)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Digits of a number that is told by a link.
const NUMBER: usize = 8;

/// Keeps what fstat(2) is to tell of it.
fn tell_owner(attributes: &Attributes, name: &Name) {
    let mut told = [0; 3 * NUMBER + 1];
    let numbers = [attributes.mode, attributes.uid, attributes.gid];
    for (place, number) in told.chunks_exact_mut(NUMBER).zip(numbers) {
        put_digits(number.into(), place);
    }
    let mut known = [0; 3 * NUMBER];
    let is_known = read_link(name, &mut known) == Ok(known.len());
    if is_known && known == told[..known.len()] {
        return;
    }
    // Whoever fails here has other numbers told of it.
    let Ok(new) = Name::of_nothing(b'm') else {
        return;
    };
    let target = CStr::from_bytes_until_nul(&told).unwrap_or_default();
    if link(target, &new).and_then(|_| rename(&new, name, 0)) == Err(Errno(sys::EEXIST)) {
        unlink(&new);
    }
}

/// From now on it is looked what fstat(2) is asked about.
fn seen() {
    SEEN.store(1, Ordering::Relaxed);
    ACTIONS[sys::FSTAT as usize].store(action::ALWAYS, Ordering::Relaxed);
}

/// Looks at what `/proc` calls a descriptor that was inherited or received.
pub(super) fn look_at(name: &[u8]) {
    if fifo(name).is_some() {
        seen();
    }
}

/// The attributes of what a descriptor leads to, if it is such a FIFO: file, mode and owner are those at the shadow.
pub(super) fn attributes(fd: i32) -> Option<Attributes> {
    if SEEN.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let found = sys::status(fd).ok()?;
    if found[3] as u32 & TYPE != FIFO {
        return None;
    }
    let mut text = [0; 64];
    let len = sys::readlink(DescriptorName::of(fd).get(), &mut text).ok()?;
    let text = text.get(..len)?;
    let key = fifo(text)?;
    if sys::status(folder() as i32).ok()?[0] != found[0] {
        return None;
    }
    let mut told = [0; 3 * NUMBER];
    let of_owner = Name::new(b'a', text.strip_prefix(b"/f")?);
    let numbers = match read_link(&of_owner, &mut told) {
        Ok(len) if len == told.len() => told,
        _ => [b'g'; 3 * NUMBER],
    };
    let number = |at: usize| parse_digits(&numbers[at * NUMBER..(at + 1) * NUMBER]);
    let [mode, uid, gid] = [0, 1, 2].map(|at| number(at).map(|number| number as u32));
    let stamp = |at: usize| Stamp {
        seconds: found[at].cast_signed(),
        nanoseconds: found[at + 1] as u32,
    };
    Some(Attributes {
        device: key.device,
        inode: key.inode,
        mode: mode.unwrap_or(found[3] as u32),
        links: found[2],
        uid: uid.unwrap_or((found[3] >> 32) as u32),
        gid: gid.unwrap_or(found[4] as u32),
        block_size: found[7] as u32,
        accessed: stamp(9),
        modified: stamp(11),
        changed: stamp(13),
        born: Some(Stamp {
            seconds: key.born.0,
            nanoseconds: key.born.1,
        }),
        ..Attributes::default()
    })
}

/// `struct sockaddr_un`.
#[repr(C)]
pub(super) struct Address {
    family: u16,
    path: [u8; LONGEST],
    len: usize,
}

impl Address {
    /// That of a name of this machine.
    pub(super) fn of(name: &[u8]) -> Result<Self, Errno> {
        let mut address = Address {
            family: 1,
            path: [0; LONGEST],
            len: name.len(),
        };
        if name.len() >= LONGEST {
            return Err(Errno(sys::ENAMETOOLONG));
        }
        address.path[..name.len()].copy_from_slice(name);
        Ok(address)
    }

    fn of_node(name: &Name) -> Result<Self, Errno> {
        let mut whole = Name::new(FOLDER[0], &FOLDER[1..]);
        whole.push(name.get().to_bytes());
        Address::of(whole.get().to_bytes())
    }

    /// That to which the socket with these attributes was bound, if it was by this job.
    pub(super) fn of_socket(attributes: &Attributes) -> Result<Self, Errno> {
        Address::of_node(&named(b's', attributes))
    }

    /// As two arguments of a call.
    pub(super) fn args(&self) -> [u64; 2] {
        [&raw const self.family as u64, 2 + self.len as u64 + 1]
    }
}

/// Binds a socket that was made at the shadow; the program calls it so.
pub(super) fn bind(fd: u64, called: &CStr, attributes: &Attributes) -> Result<u64, Errno> {
    let bound = Name::of_nothing(b'b')?;
    let is_called = bound.with(b'n');
    link(called, &is_called)?;
    let address = Address::of_node(&bound)?;
    let [place, len] = address.args();
    // SAFETY: the kernel reads the address.
    if let Err(error) = unsafe { call(sys::BIND, [fd, place, len]) } {
        unlink(&is_called);
        return Err(error);
    }
    // Who may connect is told at the shadow.
    let _ = at_folder(sys::FCHMODAT, [bound.at(), 0o777]);
    rename(&bound, &named(b's', attributes), 0)
}

/// What a program calls a socket, if this is an address of ours.
pub(super) fn called<'a>(path: &[u8], room: &'a mut [u8; LONGEST]) -> Option<&'a [u8]> {
    let id = path.strip_prefix(FOLDER)?.strip_prefix(b"b")?;
    let len = read_link(&Name::new(b'n', id.get(..ID_LEN)?), room).ok()?;
    room.get(..len)
}
