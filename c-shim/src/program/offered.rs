//! Files, and folders, that the shadow has opened in advance, because this process walks through a folder: an open, a read and a close of one of
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
use super::guarded::Guarded;
use super::known;
use super::lanes::{self, Put, ask};
use super::process;
use super::resident;
use super::stream;
use super::sys;
use crate::remembered::Asked;
use crate::versions::Version;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};
use wire::{Attributes, OFFERS_FOLDERS, Offer, OfferedFiles, Opened, Place, Request};

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
    asked: Option<Asked>,
    generation: u64,
    count: usize,
    files: [Waiting; FILES],
}

/// A walk through the files of a folder, and some through folders: who goes down a tree comes back.
const WALKS: usize = 4;
const OF_FILES: Range<usize> = 0..1;
const OF_FOLDERS: Range<usize> = 1..WALKS;

/// What may be taken of each, or more.
static COUNTS: [AtomicU32; WALKS] = [const { AtomicU32::new(0) }; WALKS];
/// When each was walked last.
static USED: [AtomicU32; WALKS] = [const { AtomicU32::new(0) }; WALKS];
static TICK: AtomicU32 = AtomicU32::new(0);

static KEPT: [Guarded<State>; WALKS] = [const {
    Guarded::new(State {
        memory: core::ptr::null_mut(),
        at: 0,
        folder: Text::NONE,
        last: Text::NONE,
        before: Text::NONE,
        streak: 0,
        unused: 0,
        taken: 0,
        strayed: false,
        asked: None,
        generation: 0,
        count: 0,
        files: [Waiting {
            handle: 0,
            attributes: None,
            version: Version::NONE,
            name: (0, 0),
            contents: (0, 0),
        }; FILES],
    })
}; WALKS];

fn with<T>(walk: usize, act: impl FnOnce(&mut State) -> T) -> Option<T> {
    KEPT[walk].with(|state| {
        let result = act(state);
        COUNTS[walk].store(state.count as u32, Ordering::Relaxed);
        result
    })
}

/// Which walks may be meant.
fn walks(is_folder: bool) -> Range<usize> {
    if is_folder { OF_FOLDERS } else { OF_FILES }
}

fn may_have(walk: usize) -> bool {
    COUNTS[walk].load(Ordering::Relaxed) != 0
}

fn note_use(walk: usize) {
    let now = TICK.fetch_add(1, Ordering::Relaxed);
    USED[walk].store(now, Ordering::Relaxed);
}

/// We are a fork's child: what is offered is our parent's to take.
pub(super) fn forget() {
    for (walk, kept) in KEPT.iter().enumerate() {
        COUNTS[walk].store(0, Ordering::Relaxed);
        kept.anew(|state| {
            state.count = 0;
            state.streak = 0;
            state.folder.len = 0;
        });
    }
}

/// Nothing will be taken any more: the process ends, or executes another program.
pub(super) fn end() {
    for walk in (0..WALKS).filter(|walk| may_have(*walk)) {
        with(walk, State::give_back);
    }
}

/// The folder's part of a name and the rest; the folder with its slash.
fn split(name: &[u8]) -> (&[u8], &[u8]) {
    let slash = name.iter().rposition(|byte| *byte == b'/');
    name.split_at(slash.map_or(0, |slash| slash + 1))
}

fn is_simple(open_flags: u32) -> bool {
    const HARMLESS: u32 = sys::O_CLOEXEC
        | sys::O_NOCTTY
        | sys::O_NOFOLLOW
        | sys::O_NONBLOCK
        | sys::O_DIRECTORY
        | 0o100_000;
    open_flags & !HARMLESS == 0
}

/// What an open for reading would find, if it was offered; `look` has it, and its contents or first entries, and makes a descriptor of it.
pub(super) fn take<T>(
    place: &Place<'_>,
    flags: u32,
    look: impl FnOnce(&Opened, &[u8], Learning, Asked) -> T,
) -> Option<T> {
    if !is_simple(flags) {
        return None;
    }
    let table = process::table()?;
    let (folder, name) = split(place.name);
    let is_in = |state: &mut State| state.count > 0 && state.is_in(place, folder);
    let mut walks = walks(flags & sys::O_DIRECTORY != 0).filter(|walk| may_have(*walk));
    let walk = walks.find(|walk| with(*walk, is_in) == Some(true))?;
    note_use(walk);
    with(walk, |state| {
        let asked = state.asked.filter(|_| is_in(state))?;
        let (memory, generation) = (state.memory, state.generation);
        let files = &mut state.files[..state.count];
        let found = files
            .iter_mut()
            .find(|file| file.handle != 0 && bytes(memory, file.name) == name)?;
        let attributes = found.attributes?;
        let age = sys::milliseconds().wrapping_sub(asked.ms);
        let now = table.versions.now(number(&attributes));
        if age >= BELIEVED_MS || !found.version.has_attributes_of(&now) {
            return None;
        }
        let handle = core::mem::take(&mut found.handle);
        let Some(learning) = claim(handle, age, generation) else {
            // Nobody has it; of another copy of the job it is nothing.
            if is_here(generation) {
                lanes::close(handle);
            }
            return None;
        };
        let opened = Opened { handle, attributes };
        let contents = bytes(memory, found.contents);
        state.taken += 1;
        state.strayed = false;
        let result = look(&opened, contents, learning, asked);
        state.step(name);
        Some(result)
    })?
}

/// What lstat(2) and stat(2) say of what was offered: it is no link.
pub(super) fn attributes(place: &Place<'_>) -> Option<Attributes> {
    let table = process::table()?;
    let (folder, name) = split(place.name);
    let look = |state: &mut State| {
        let asked = state.asked.filter(|_| state.is_in(place, folder))?;
        let (memory, files) = (state.memory, &state.files[..state.count]);
        let mut files = files.iter().filter(|file| file.handle != 0);
        let found = files.find(|file| bytes(memory, file.name) == name)?;
        let attributes = found.attributes?;
        let now = table.versions.now(number(&attributes));
        let age = sys::milliseconds().wrapping_sub(asked.ms);
        let is_same = age < BELIEVED_MS && found.version.has_attributes_of(&now);
        is_same.then_some(attributes)
    };
    let mut walks = (0..WALKS).filter(|walk| may_have(*walk));
    walks.find_map(|walk| with(walk, look)?)
}

pub(super) fn number(attributes: &Attributes) -> u64 {
    resident::number(attributes.device, attributes.inode)
}

/// What lies there in memory that is never unmapped.
pub(super) fn bytes(memory: *mut u8, (from, len): (usize, usize)) -> &'static [u8] {
    // SAFETY: it was put there, and the memory stays.
    unsafe { core::slice::from_raw_parts(memory.wrapping_add(from), len) }
}

/// The copy of the job that has asked is the one that is here.
pub(super) fn is_here(generation: u64) -> bool {
    stream::link().is_some_and(|link| link.generation == generation)
}

/// A handle that came when the job was this copy is the job's from now on; whether it is this copy still.
pub(super) fn take_over(handle: u64, generation: u64) -> bool {
    let Some(table) = process::table() else {
        return false;
    };
    // Taken before it is looked whether the job was moved since: whoever moves it knows then that it has this handle.
    if !table.taken.put(handle) {
        return false;
    }
    let is_here = is_here(generation);
    if !is_here {
        table.taken.remove(handle);
    }
    is_here
}

/// A handle that came so many milliseconds ago is somebody's from now on.
pub(super) fn claim(handle: u64, age_ms: u64, generation: u64) -> Option<Learning> {
    let learning = Learning::of(age_ms)?;
    take_over(handle, generation).then_some(learning)
}

/// A regular file was opened for reading, or a folder to be listed, and the shadow was asked for it. If this process walks through the folder that
/// it is in, what comes next is asked for, too.
pub(super) fn opened(place: &Place<'_>, flags: u32, attributes: &Attributes) {
    const SMALL: u64 = 32 << 10;
    let is_folder = flags & sys::O_DIRECTORY != 0;
    let kind = attributes.mode & 0o170_000;
    let is_worth = match is_folder {
        true => kind == 0o040_000,
        false => kind == 0o100_000 && attributes.size <= SMALL,
    };
    let (folder, name) = split(place.name);
    if !is_simple(flags) || !is_worth || matches!(name, b"" | b"." | b"..") {
        return;
    }
    let used = |walk: &usize| USED[*walk].load(Ordering::Relaxed);
    let is_in = |walk: &usize| with(*walk, |state| state.is_in(place, folder)) == Some(true);
    let known = walks(is_folder).find(is_in);
    let Some(walk) = known.or_else(|| walks(is_folder).min_by_key(used)) else {
        return;
    };
    with(walk, |state| {
        if !state.is_in(place, folder) {
            // A single file from elsewhere (glibc reads one of a locale in a folder below) is no end of the walk.
            let strays = !is_folder && state.is_any_left();
            if strays && !core::mem::replace(&mut state.strayed, true) {
                return;
            }
            state.walk_to(place, folder);
        }
        note_use(walk);
        state.strayed = false;
        let was_walking = state.taken > 0 && state.unused == 0;
        state.step(name);
        let enough = if was_walking { 1 } else { 2 };
        if state.streak >= enough && (state.unused < PATIENCE || state.streak.is_power_of_two()) {
            state.ask(place, folder, is_folder);
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
        let is_here = is_here(self.generation);
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

    fn ask(&mut self, place: &Place<'_>, folder: &[u8], is_folder: bool) {
        self.give_back();
        let (Some(table), Some(link)) = (process::table(), stream::link()) else {
            return;
        };
        let spoken = table.spoken.load(Ordering::Relaxed);
        if is_folder && spoken < OFFERS_FOLDERS.into() {
            return;
        }
        if self.memory.is_null() {
            // PROT_READ|WRITE, MAP_PRIVATE|ANONYMOUS|NORESERVE
            let Ok(memory) = sys::map(ROOM as u64, 3, 0x4022, -1) else {
                return;
            };
            self.memory = memory;
        }
        let before = table.versions.now(0);
        self.generation = link.generation;
        self.asked = known::ask();
        self.taken = 0;
        let trimmed = folder.strip_suffix(b"/").unwrap_or(folder);
        let request = Request::Offer(Offer {
            folder: Place {
                at: place.at,
                name: if folder == b"/" { folder } else { trimmed },
            },
            before: self.before.get(),
            after: self.last.get(),
            files: FILES as u32 | if is_folder { Offer::FOLDERS } else { 0 },
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
