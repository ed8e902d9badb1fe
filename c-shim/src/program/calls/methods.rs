//! Names that mean something else than the program thinks ([`crate::rules`]): looked at before a call is served.
//!
//! ```text
//! call --no rules, no names--> served
//!   `--rules--> another name at the shadow: served with that      a name of this machine: the kernel's, with that, or [`fallback`]
//! served: the shadow says that a link leads to /proc, /dev or /sys --> as a name of this machine
//! ```

use super::places::text;
use super::{
    File, Served, compressed, descriptors, directory, fallback, memory, places, serve_as_meant,
};
use crate::program::lanes::{Put, ask};
use crate::program::process;
use crate::program::sys::{self, AT_FDCWD, Errno, call};
use crate::rules::{Meaning, Name, Rules, whole};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};
use wire::{Leads, NameOf, Place, Request};

const NOTHING: (*const u8, usize) = (core::ptr::null(), 0);
/// Bytes of a name and its end (PATH_MAX).
const NAME_ROOM: usize = 4096;
/// Folders whose names are remembered.
const FOLDERS: usize = 8;
/// Bytes of such a name.
const FOLDER_ROOM: usize = 1000;
/// As long as other things that were asked about (docs/CALLS.md).
const BELIEVED_MS: u64 = 1000;

/// Where a call has a name: the arguments with its folder, if any, and with itself.
type At = (Option<usize>, usize);

/// The names of a call.
fn names_of(number: u64) -> &'static [At] {
    match number {
        sys::OPEN
        | sys::CREAT
        | sys::STAT
        | sys::LSTAT
        | sys::ACCESS
        | sys::READLINK
        | sys::MKDIR
        | sys::RMDIR
        | sys::UNLINK
        | sys::CHMOD
        | sys::CHOWN
        | sys::LCHOWN
        | sys::TRUNCATE
        | sys::UTIME
        | sys::UTIMES
        | sys::MKNOD
        | sys::STATFS
        | sys::SETXATTR
        | sys::LSETXATTR
        | sys::GETXATTR
        | sys::LGETXATTR
        | sys::LISTXATTR
        | sys::LLISTXATTR
        | sys::REMOVEXATTR
        | sys::LREMOVEXATTR
        | sys::CHDIR
        | sys::EXECVE => &[(None, 0)],
        sys::OPENAT
        | sys::OPENAT2
        | sys::NEWFSTATAT
        | sys::STATX
        | sys::FACCESSAT
        | sys::FACCESSAT2
        | sys::READLINKAT
        | sys::MKDIRAT
        | sys::MKNODAT
        | sys::UNLINKAT
        | sys::FCHMODAT
        | sys::FCHMODAT2
        | sys::NAME_TO_HANDLE_AT
        | sys::FCHOWNAT
        | sys::UTIMENSAT
        | sys::FUTIMESAT
        | sys::EXECVEAT => &[(Some(0), 1)],
        sys::SYMLINK | sys::INOTIFY_ADD_WATCH => &[(None, 1)],
        sys::SYMLINKAT => &[(Some(1), 2)],
        sys::RENAME | sys::LINK => &[(None, 0), (None, 1)],
        sys::RENAMEAT | sys::RENAMEAT2 | sys::LINKAT => &[(Some(0), 1), (Some(2), 3)],
        _ => &[],
    }
}

/// Serves a call.
pub(super) fn serve(number: u64, args: &[u64; 6]) -> Served {
    let names = names_of(number);
    let rules = process::table().map(|table| &table.rules);
    match rules.filter(|rules| !names.is_empty() && !rules.is_empty()) {
        Some(rules) => serve_by_rules(rules, names, number, args),
        None => serve_led(number, args),
    }
}

/// Serves a call; where a link at the shadow leads to `/proc`, `/dev` or `/sys` that is of this machine.
fn serve_led(number: u64, args: &[u64; 6]) -> Served {
    match serve_as_meant(number, args) {
        Some(Err(Errno(sys::ELSEWHERE))) => Some(lead(number, args)),
        served => served,
    }
}

/// Does something where a name leads: at the shadow, or `here` with another name of this machine. None if that is the name as it was given.
pub(super) fn led(
    name: u64,
    there: impl Fn(Place<'static>) -> Result<u64, Errno>,
    here: impl Fn(u64) -> Result<u64, Errno>,
) -> Served {
    let mut call = Call::new(sys::STAT, &[name, 0, 0, 0, 0, 0]);
    let mut room = None;
    let rules = process::table().map(|table| &table.rules);
    if let Some(rules) = rules.filter(|rules| !rules.is_empty()) {
        match call.mean(rules, (None, 0), &mut room) {
            Ok(false) => {}
            Ok(true) => return call.changed.then(|| here(call.args[0])),
            Err(error) => return Some(Err(error)),
        }
    }
    let Some(place) = places::place(AT_FDCWD as u64, call.args[0], 0) else {
        return call.changed.then(|| here(call.args[0]));
    };
    Some(match there(place) {
        Err(Errno(sys::ELSEWHERE)) => led_by(place).and_then(|led| here(led.0 as u64)),
        done => done,
    })
}

/// The name of this machine to which one of the shadow's leads.
fn led_by(place: Place<'_>) -> Result<Room, Errno> {
    let request = Request::Leads(Leads { place });
    ask(&request, NOTHING, Put::Lane, |answer| {
        let led = Room::new()?;
        led.name(answer.data, b"")?;
        Ok(led)
    })
}

/// Does a call with the names of this machine to which its own lead.
pub(super) fn lead(number: u64, args: &[u64; 6]) -> Result<u64, Errno> {
    let names = names_of(number);
    let mut call = Call::new(number, args);
    call.changed = true;
    let mut rooms = [None, None];
    for ((folder, name), room) in names.iter().zip(&mut rooms) {
        let at = folder.map_or(AT_FDCWD as u64, |at| args[at]);
        let Some(place) = places::place(at, args[*name], 0) else {
            continue;
        };
        let led = led_by(place).inspect(|led| call.args[*name] = led.0 as u64);
        *room = Some(match led {
            // It leads nowhere else any more.
            Err(Errno(sys::EINVAL)) if names.len() == 1 => {
                return serve_as_meant(number, args).unwrap_or(Err(Errno(sys::EACCES)));
            }
            // The other name stays at the shadow.
            Err(Errno(sys::EINVAL)) => return Err(Errno(sys::EXDEV)),
            led => led?,
        });
        if let Some(folder) = folder {
            call.args[*folder] = AT_FDCWD as u64;
        }
    }
    serve_as_meant(number, &call.args).unwrap_or_else(|| call.of_the_kernel())
}

fn serve_by_rules(rules: &Rules, names: &[At], number: u64, args: &[u64; 6]) -> Served {
    let mut call = Call::new(number, args);
    let mut rooms = [None, None];
    let mut here = [false; 2];
    for ((at, room), here) in names.iter().zip(&mut rooms).zip(&mut here) {
        match call.mean(rules, *at, room) {
            Ok(is_here) => *here = is_here,
            Err(error) => return Some(Err(error)),
        }
    }
    match here {
        // Nobody would compress it.
        [true, _] if call.compress => Some(Err(Errno(sys::EOPNOTSUPP))),
        [true, _] if names.len() == 1 => Some(call.here_or_there()),
        [true, true] => Some(call.of_the_kernel()),
        [false, false] => call.serve(),
        // Of a name that no rule is about it has not been looked at whether it is here.
        [first, _] => {
            let (folder, name) = names[usize::from(first)];
            let folder = folder.map_or(AT_FDCWD as u64, |at| call.args[at]);
            Some(match places::place(folder, call.args[name], 0) {
                Some(_) => Err(Errno(sys::EXDEV)),
                None => call.of_the_kernel(),
            })
        }
    }
}

/// A call whose names are replaced.
struct Call {
    number: u64,
    args: [u64; 6],
    /// With them a file of this machine that is not to be had here is asked for at the shadow.
    there: [u64; 6],
    changed: bool,
    fetch: bool,
    compress: bool,
}

impl Call {
    fn new(number: u64, args: &[u64; 6]) -> Self {
        Call {
            number,
            args: *args,
            there: *args,
            changed: false,
            fetch: false,
            compress: false,
        }
    }

    /// Replaces a name by what is meant; whether that is on this machine.
    fn mean(
        &mut self,
        rules: &Rules,
        (folder, name): At,
        room: &mut Option<Room>,
    ) -> Result<bool, Errno> {
        let Some(given) = text(self.args[name]).filter(|given| !given.is_empty()) else {
            return Ok(false);
        };
        let folder_fd = folder.map_or(AT_FDCWD as u64, |at| self.args[at]);
        let is_relative = given.first() != Some(&b'/');
        let beginning = match (is_relative, folder_fd as i32 == AT_FDCWD) {
            (false, _) => None,
            (true, true) => directory(),
            (true, false) => File::of(folder_fd),
        };
        // Below a folder of this machine is this machine.
        if is_relative && beginning.is_none() {
            return Ok(false);
        }
        let scratch = Room::new()?;
        let len = match beginning {
            None => whole(None, given, scratch.bytes()),
            Some(folder) => with_name(folder.handle(), |folder| {
                whole(Some(folder), given, scratch.bytes())
            })?,
        };
        let start = start();
        let meaning = rules.meaning(&Name {
            given,
            whole: len.map(|len| &scratch.bytes()[..len] as &[u8]),
            start,
        });
        let is_program = matches!(self.number, sys::EXECVE | sys::EXECVEAT);
        if is_program && meaning.here {
            return Ok(false);
        }
        self.heed(&meaning);
        self.there = self.args;
        if let Some((to, rest)) = meaning.renamed {
            let renamed = Room::new()?;
            self.args[name] = renamed.name(to, rest)?;
            if let Some(folder) = folder {
                self.args[folder] = AT_FDCWD as u64;
            }
            self.changed = true;
            if !meaning.same_name {
                self.there = self.args;
            }
            *room = Some(renamed);
        }
        Ok(meaning.here)
    }

    /// What does not depend on the name.
    fn heed(&mut self, meaning: &Meaning<'_, '_>) {
        self.compress = meaning.compress && compressed::is_about(self.number);
        let flags = match self.number {
            sys::CREAT => {
                let [name, mode, ..] = self.args;
                let flags = sys::O_WRONLY | sys::O_CREAT | sys::O_TRUNC;
                self.number = sys::OPEN;
                self.args = [name, u64::from(flags), mode, 0, 0, 0];
                1
            }
            sys::OPEN => 1,
            sys::OPENAT => 2,
            _ => return,
        };
        let asked = self.args[flags] as u32;
        let reads = asked & sys::O_ACCMODE == 0;
        if meaning.append && !reads {
            let appends = asked & !sys::O_TRUNC | sys::O_APPEND;
            self.args[flags] = u64::from(appends);
            self.changed = true;
        }
        self.fetch = meaning.fetch && reads && asked & sys::O_PATH == 0;
    }

    /// At the shadow, or wherever the name leads.
    fn serve(&self) -> Served {
        let served = match self.compress {
            true => compressed::serve(self.number, &self.args),
            false => None,
        };
        match served.or_else(|| serve_led(self.number, &self.args)) {
            Some(Ok(fd)) if self.fetch => {
                let file = File::of(fd).filter(|file| file.kind() == 0o100_000);
                if let Some(file) = file {
                    memory::fetch(&file);
                }
                Some(Ok(fd))
            }
            // With the names as they were it would be another call.
            None if self.changed => Some(self.of_the_kernel()),
            served => served,
        }
    }

    /// On this machine, or at the shadow if it is not to be had here.
    fn here_or_there(&self) -> Result<u64, Errno> {
        let error = match self.of_the_kernel() {
            Err(error) if fallback::is_due(error, self.number, &self.there) => error,
            done => return done,
        };
        let there = Call {
            args: self.there,
            ..*self
        };
        let served = there.serve().unwrap_or(Err(error));
        served.map_err(|found| fallback::told(error, found))
    }

    fn of_the_kernel(&self) -> Result<u64, Errno> {
        if self.number == sys::CHDIR {
            return descriptors::move_here(self.args[0]);
        }
        // SAFETY: it is the program's call, with names that live as long.
        unsafe { call(self.number, self.args) }
    }
}

/// Where the job begins, without a slash at its end.
fn start() -> &'static [u8] {
    let Some(table) = process::table() else {
        return b"/";
    };
    let len = table.header.directory_len as usize;
    let name = table.header.directory.get(..len).unwrap_or_default();
    match name.strip_suffix(b"/") {
        Some(b"") | None => name,
        Some(name) => name,
    }
}

/// Memory for a name, which is taken from the kernel: the stack of a signal handler may be small.
struct Room(*mut u8);

impl Room {
    fn new() -> Result<Self, Errno> {
        // PROT_READ|WRITE, MAP_PRIVATE|ANONYMOUS
        sys::map(NAME_ROOM as u64, 3, 0x22, -1).map(Room)
    }

    #[allow(clippy::mut_from_ref)]
    fn bytes(&self) -> &mut [u8; NAME_ROOM] {
        // SAFETY: it was mapped, is so long, and nobody else has it.
        unsafe { &mut *self.0.cast() }
    }

    /// Puts a name there; its address.
    fn name(&self, to: &[u8], rest: &[u8]) -> Result<u64, Errno> {
        let slash: &[u8] = if rest.is_empty() && !to.is_empty() {
            b""
        } else {
            b"/"
        };
        let bytes = self.bytes();
        let mut len = 0;
        for part in [to, slash, rest] {
            // The last byte is the end.
            let place = bytes.get_mut(len..len + part.len());
            place.ok_or(Errno(sys::ENAMETOOLONG))?.copy_from_slice(part);
            len += part.len();
        }
        match bytes.get_mut(len) {
            Some(end) => *end = 0,
            None => return Err(Errno(sys::ENAMETOOLONG)),
        }
        Ok(self.0 as u64)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: it was mapped by us, and nothing of it is used any more.
        let _ = unsafe { call(sys::MUNMAP, [self.0 as u64, NAME_ROOM as u64]) };
    }
}

/// Names of folders that were asked for, by their handles.
struct Folders {
    busy: AtomicU32,
    next: UnsafeCell<usize>,
    all: UnsafeCell<[Folder; FOLDERS]>,
}

// SAFETY: used by whoever has set `busy`.
unsafe impl Sync for Folders {}

#[derive(Clone, Copy)]
struct Folder {
    handle: u64,
    asked_ms: u64,
    len: usize,
    name: [u8; FOLDER_ROOM],
}

static KNOWN: Folders = Folders {
    busy: AtomicU32::new(0),
    next: UnsafeCell::new(0),
    all: UnsafeCell::new(
        [Folder {
            handle: 0,
            asked_ms: 0,
            len: 0,
            name: [0; FOLDER_ROOM],
        }; FOLDERS],
    ),
};

impl Folders {
    /// None: somebody else looks, or a handler has interrupted us, or it is our parent's (vfork).
    fn with<T>(&self, act: impl FnOnce(&mut [Folder; FOLDERS], &mut usize) -> T) -> Option<T> {
        if !process::is_own() || self.busy.swap(1, Ordering::Acquire) != 0 {
            return None;
        }
        // SAFETY: `busy` is ours.
        let next = unsafe { &mut *self.next.get() };
        // SAFETY: `busy` is ours.
        let all = unsafe { &mut *self.all.get() };
        let result = act(all, next);
        self.busy.store(0, Ordering::Release);
        Some(result)
    }
}

/// Does something with the name of an open folder.
fn with_name<T>(handle: u64, act: impl Fn(&[u8]) -> T) -> Result<T, Errno> {
    let now = sys::milliseconds();
    let known = KNOWN.with(|all, _| {
        let found = all.iter().find(|one| {
            one.handle == handle && one.len > 0 && now.wrapping_sub(one.asked_ms) < BELIEVED_MS
        })?;
        Some(act(&found.name[..found.len]))
    });
    if let Some(result) = known.flatten() {
        return Ok(result);
    }
    let request = Request::NameOf(NameOf { handle });
    ask(&request, NOTHING, Put::Lane, |answer| {
        let name = answer.data;
        KNOWN.with(|all, next| {
            let one = &mut all[*next % FOLDERS];
            *next = (*next + 1) % FOLDERS;
            one.len = 0;
            if let Some(place) = one.name.get_mut(..name.len()) {
                place.copy_from_slice(name);
                (one.handle, one.asked_ms, one.len) = (handle, now, name.len());
            }
        });
        Ok(act(name))
    })
}
