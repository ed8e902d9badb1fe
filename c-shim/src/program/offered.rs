//! Files that the shadow has opened in advance, because this process walks through a folder: an open, a read and a close of one of
//! them need no question (DESIGN §6, "Round trips").
//!
//! ```text
//! open a, open b in a folder --Offer--> c, d, e ... open at the shadow, contents here
//! open c --here, a second old at most, unchanged by the job--> a placeholder for the shadow's handle
//!   `--otherwise--> asked for, as ever; what is left over is closed
//! ```
//! # What callers may rely on
//! What is taken is open at the shadow since it was offered, so it stays what it was, whatever becomes of its name.

use super::cache::Learning;
use super::lanes::{self, Put, ask};
use super::process;
use super::resident;
use super::stream;
use super::sys::{self, Undisturbed};
use crate::versions::Version;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};
use wire::{Attributes, Offer, OfferedFiles, Opened, Place, Request};

/// Files that are kept at once.
const FILES: usize = 64;
/// Bytes of them.
const ROOM: usize = 512 << 10;
/// Bytes of a name, or of a folder's.
const NAME_ROOM: usize = 256;
/// As long as other things that others may change.
const BELIEVED_MS: u64 = 1000;
/// How many folders in a row may come to nothing before it is asked seldom.
const PATIENCE: u32 = 4;

/// A name of limited length.
#[derive(Clone, Copy)]
struct Text {
    bytes: [u8; NAME_ROOM],
    len: usize,
}

impl Text {
    const NONE: Text = Text {
        bytes: [0; NAME_ROOM],
        len: 0,
    };

    fn set(&mut self, text: &[u8]) -> bool {
        self.len = 0;
        let Some(place) = self.bytes.get_mut(..text.len()) else {
            return false;
        };
        place.copy_from_slice(text);
        self.len = text.len();
        true
    }

    fn get(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A file that may be taken.
#[derive(Clone, Copy)]
struct Waiting {
    /// 0: it was taken.
    handle: u64,
    attributes: Option<Attributes>,
    version: Version,
    /// In the memory: its name, then its contents.
    name: (usize, usize),
    contents: (usize, usize),
}

struct State {
    memory: *mut u8,
    /// The folder that is walked through: a handle and a name.
    at: u64,
    folder: Text,
    /// What was opened in it last, and before that.
    last: Text,
    before: Text,
    /// Opens in it, one after another.
    streak: u32,
    /// Offers that were hardly used, in a row.
    unused: u32,
    taken: usize,
    /// What was opened last is in another folder.
    strayed: bool,
    asked_ms: u64,
    generation: u64,
    count: usize,
    files: [Waiting; FILES],
}

struct Kept {
    busy: AtomicU32,
    state: UnsafeCell<State>,
}

// SAFETY: the state is used by whoever has set `busy`.
unsafe impl Sync for Kept {}

/// Files that may be taken, or more.
static COUNT: AtomicU32 = AtomicU32::new(0);

static KEPT: Kept = Kept {
    busy: AtomicU32::new(0),
    state: UnsafeCell::new(State {
        memory: core::ptr::null_mut(),
        at: 0,
        folder: Text::NONE,
        last: Text::NONE,
        before: Text::NONE,
        streak: 0,
        unused: 0,
        taken: 0,
        strayed: false,
        asked_ms: 0,
        generation: 0,
        count: 0,
        files: [Waiting {
            handle: 0,
            attributes: None,
            version: Version::NONE,
            name: (0, 0),
            contents: (0, 0),
        }; FILES],
    }),
};

/// None: another thread is at it, or the memory is our parent's (vfork).
fn with<T>(act: impl FnOnce(&mut State) -> T) -> Option<T> {
    if !process::is_own() {
        return None;
    }
    let _undisturbed = Undisturbed::begin();
    if KEPT.busy.swap(1, Ordering::Acquire) != 0 {
        return None;
    }
    // SAFETY: `busy` is ours.
    let state = unsafe { &mut *KEPT.state.get() };
    let result = act(state);
    COUNT.store(state.count as u32, Ordering::Relaxed);
    KEPT.busy.store(0, Ordering::Release);
    Some(result)
}

/// We are a fork's child: what is offered is our parent's to take.
pub(super) fn forget() {
    // SAFETY: nobody else is in this process yet.
    let state = unsafe { &mut *KEPT.state.get() };
    COUNT.store(0, Ordering::Relaxed);
    state.count = 0;
    state.streak = 0;
    state.folder.len = 0;
    KEPT.busy.store(0, Ordering::Release);
}

/// Nothing will be taken any more: the process ends, or executes another program.
pub(super) fn end() {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    with(State::give_back);
}

/// The folder's part of a name and the rest; the folder with its slash.
fn split(name: &[u8]) -> (&[u8], &[u8]) {
    let slash = name.iter().rposition(|byte| *byte == b'/');
    name.split_at(slash.map_or(0, |slash| slash + 1))
}

fn is_simple(open_flags: u32) -> bool {
    const HARMLESS: u32 =
        sys::O_CLOEXEC | sys::O_NOCTTY | sys::O_NOFOLLOW | sys::O_NONBLOCK | 0o100_000;
    open_flags & !HARMLESS == 0
}

/// What an open for reading would find, if it was offered; `look` has it and its contents, and makes a descriptor of it.
pub(super) fn take<T>(
    place: &Place<'_>,
    flags: u32,
    look: impl FnOnce(&Opened, &[u8], Learning) -> T,
) -> Option<T> {
    if !is_simple(flags) || COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let table = process::table()?;
    let (folder, name) = split(place.name);
    with(|state| {
        if state.count == 0 || !state.is_in(place, folder) {
            return None;
        }
        let memory = state.memory;
        let files = &mut state.files[..state.count];
        let found = files
            .iter_mut()
            .find(|file| file.handle != 0 && bytes(memory, file.name) == name)?;
        let attributes = found.attributes?;
        let now = sys::milliseconds();
        let number = number(&attributes);
        let unchanged = found.version.has_attributes_of(&table.versions.now(number));
        let young = now.wrapping_sub(state.asked_ms) < BELIEVED_MS;
        // Taken before it is looked whether the job was moved since: whoever moves it knows then that it has this handle.
        if !young || !unchanged || !table.taken.put(found.handle) {
            return None;
        }
        let handle = core::mem::take(&mut found.handle);
        let is_here = stream::link().is_some_and(|link| link.generation == state.generation);
        let learning = is_here
            .then(|| Learning::of(now.wrapping_sub(state.asked_ms)))
            .flatten();
        let Some(learning) = learning else {
            table.taken.remove(handle);
            return None;
        };
        let opened = Opened { handle, attributes };
        let contents = bytes(memory, found.contents);
        state.taken += 1;
        state.strayed = false;
        let result = look(&opened, contents, learning);
        state.step(name);
        Some(result)
    })?
}

fn number(attributes: &Attributes) -> u64 {
    resident::number(attributes.device, attributes.inode)
}

fn bytes(memory: *mut u8, (from, len): (usize, usize)) -> &'static [u8] {
    // SAFETY: it was put there, and the memory stays.
    unsafe { core::slice::from_raw_parts(memory.wrapping_add(from), len) }
}

/// A regular file was opened for reading, and the shadow was asked for it. If this process walks through the folder, what comes next is asked
/// for, too.
pub(super) fn opened(place: &Place<'_>, flags: u32, attributes: &Attributes) {
    const SMALL: u64 = 32 << 10;
    let is_file = attributes.mode & 0o170_000 == 0o100_000;
    if !is_simple(flags) || !is_file || attributes.size > SMALL {
        return;
    }
    let (folder, name) = split(place.name);
    with(|state| {
        if !state.is_in(place, folder) {
            // A single file from elsewhere (glibc reads one of a locale in a folder below) is no end of the walk.
            if state.is_any_left() && !core::mem::replace(&mut state.strayed, true) {
                return;
            }
            state.walk_to(place, folder);
        }
        state.strayed = false;
        let was_walking = state.taken > 0 && state.unused == 0;
        state.step(name);
        let enough = if was_walking { 1 } else { 2 };
        if state.streak >= enough && (state.unused < PATIENCE || state.streak.is_power_of_two()) {
            state.ask(place, folder);
        }
    });
}

impl State {
    fn is_in(&self, place: &Place<'_>, folder: &[u8]) -> bool {
        // By an absolute name it does not matter where one is.
        let at = if folder.first() == Some(&b'/') {
            0
        } else {
            place.at
        };
        self.at == at && self.folder.get() == folder && self.streak > 0
    }

    fn is_any_left(&self) -> bool {
        self.files[..self.count].iter().any(|file| file.handle != 0)
    }

    fn walk_to(&mut self, place: &Place<'_>, folder: &[u8]) {
        self.give_back();
        self.at = if folder.first() == Some(&b'/') {
            0
        } else {
            place.at
        };
        self.streak = 0;
        (self.last.len, self.before.len) = (0, 0);
        // A name that is too long is never the same.
        if !self.folder.set(folder) {
            self.at = u64::MAX;
        }
    }

    fn step(&mut self, name: &[u8]) {
        self.before = self.last;
        if self.last.set(name) {
            self.streak = self.streak.saturating_add(1);
        } else {
            self.streak = 0;
        }
    }

    /// What was not taken is closed.
    fn give_back(&mut self) {
        if self.count > 0 {
            // A quarter is worth it.
            self.unused = if self.taken * 4 < self.count {
                self.unused.saturating_add(1)
            } else {
                0
            };
        }
        let is_here = stream::link().is_some_and(|link| link.generation == self.generation);
        let files = &mut self.files[..self.count];
        let left = files
            .iter_mut()
            .map(|file| core::mem::take(&mut file.handle));
        let left = left.filter(|handle| *handle != 0);
        // In another copy of the job the numbers are something else's.
        if is_here {
            lanes::close_all(left);
        }
        self.count = 0;
    }

    fn ask(&mut self, place: &Place<'_>, folder: &[u8]) {
        self.give_back();
        let (Some(table), Some(link)) = (process::table(), stream::link()) else {
            return;
        };
        if self.memory.is_null() {
            // PROT_READ|WRITE, MAP_PRIVATE|ANONYMOUS|NORESERVE
            let Ok(memory) = sys::map(ROOM as u64, 3, 0x4022, -1) else {
                return;
            };
            self.memory = memory;
        }
        let before = table.versions.now(0);
        self.generation = link.generation;
        self.asked_ms = sys::milliseconds();
        self.taken = 0;
        let trimmed = folder.strip_suffix(b"/").unwrap_or(folder);
        let request = Request::Offer(Offer {
            folder: Place {
                at: place.at,
                name: if folder == b"/" { folder } else { trimmed },
            },
            before: self.before.get(),
            after: self.last.get(),
            files: FILES as u32,
            bytes: ROOM as u32,
        });
        let nothing = (core::ptr::null(), 0);
        let asked = ask(
            &request,
            nothing,
            Put::Program(self.memory, ROOM),
            |answer| Ok(answer.data.len()),
        );
        let Ok(len) = asked else {
            return;
        };
        let data = bytes(self.memory, (0, len));
        let at = |part: &[u8]| (part.as_ptr() as usize - data.as_ptr() as usize, part.len());
        for ((file, contents), slot) in OfferedFiles::new(data).zip(&mut self.files) {
            *slot = Waiting {
                handle: file.handle,
                attributes: Some(file.attributes),
                version: table.versions.now(number(&file.attributes)),
                name: at(file.name),
                contents: at(contents),
            };
            self.count += 1;
        }
        if !table.versions.now(0).is(&before) {
            // The job has changed something meanwhile, perhaps one of these.
            self.give_back();
        }
        if self.count == 0 {
            self.unused = self.unused.saturating_add(1);
        }
    }
}
