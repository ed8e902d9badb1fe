//! What this program is likely to ask about as it begins: the shadow has learnt it from processes of the same program before, and tells it
//! all at once (docs/adr/0030-how-programs-begin.md).
//!
//! ```text
//! the program is about to begin --Foresee--> names: open, with contents | attributes | links | nothing there
//! open, stat, readlink --a second old at most, unchanged by the job--> no question
//!                      `--not foreseen--> asked for as ever, and noted
//! exit, exec, enough noted --Began--> the shadow learns; what is left over is closed
//! ```
//! # What callers may rely on
//! As with files that are offered in a walk ([`super::offered`]): what is taken is open at the shadow since it was told. Only names are learnt.

use super::cache::Learning;
use super::calls;
use super::guarded::Guarded;
use super::known;
use super::lanes::{self, PARTS, Put, ask};
use super::offered::{bytes, claim, is_here, number, take_over};
use super::process;
use super::stream;
use super::sys;
use crate::libraries::is_object;
use crate::remembered::{Asked, Known, Means};
use crate::table::Reserved;
use crate::versions::Version;
use core::sync::atomic::{AtomicU32, Ordering};
use wire::{
    AllForeseen, Attributes, Began, FORESEEN_NAME, FORESEES, Finding, Foresee, MOST_FORESEEN,
    Manner, Opened, Packer, Place, Request, Sought,
};

/// Bytes of what is told.
const ROOM: usize = 1 << 20;
/// As long as other things that others may change.
const BELIEVED_MS: u64 = 1000;
/// Bytes of the names that are noted.
const NOTES: usize = 12 << 10;
/// Names that are noted: a program has begun when it has asked for so many.
const MOST_NOTED: usize = 96;
/// Fewer are not worth a question of their own.
const WORTH_TELLING: usize = 4;

/// Something that may be taken.
#[derive(Clone, Copy)]
struct Item {
    manner: Manner,
    /// In the memory.
    name: (usize, usize),
    /// First bytes or entries; a link's target.
    contents: (usize, usize),
    /// 0: a link, or it was taken.
    handle: u64,
    /// Something was asked about it, so that it is the job's already.
    is_ours: bool,
    attributes: Option<Attributes>,
    version: Version,
}

struct State {
    memory: *mut u8,
    asked: Option<Asked>,
    generation: u64,
    count: usize,
    items: [Item; MOST_FORESEEN],
    noted: usize,
    notes_len: usize,
    notes: [u8; NOTES],
}

/// Things that may be taken.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// Not zero: names that are asked about are noted.
static NOTING: AtomicU32 = AtomicU32::new(0);

static FORESEEN: Guarded<State> = Guarded::new(State {
    memory: core::ptr::null_mut(),
    asked: None,
    generation: 0,
    count: 0,
    items: [Item {
        manner: Manner::File,
        name: (0, 0),
        contents: (0, 0),
        handle: 0,
        is_ours: false,
        attributes: None,
        version: Version::NONE,
    }; MOST_FORESEEN],
    noted: 0,
    notes_len: 0,
    notes: [0; NOTES],
});

fn with<T>(act: impl FnOnce(&mut State) -> T) -> Option<T> {
    FORESEEN.with(|state| {
        let result = act(state);
        COUNT.store(state.count as u32, Ordering::Relaxed);
        result
    })
}

/// We are a fork's child: what is foreseen is our parent's to take, and we do not begin.
pub(super) fn forget() {
    COUNT.store(0, Ordering::Relaxed);
    NOTING.store(0, Ordering::Relaxed);
    FORESEEN.anew(|state| (state.count, state.noted) = (0, 0));
}

/// The program is about to be put into this process.
pub(super) fn begin() {
    let program = Reserved::Program.number();
    let spoken = process::table().map_or(0, |table| table.spoken.load(Ordering::Relaxed));
    let Some(program) = handle_of(program).filter(|_| spoken >= FORESEES.into()) else {
        return;
    };
    with(|state| state.ask(program));
    NOTING.store(1, Ordering::Relaxed);
}

fn handle_of(fd: i32) -> Option<u64> {
    let index = process::remote(fd)?;
    let description = process::table()?.descriptions.get(index)?;
    Some(description.handle.load(Ordering::Relaxed))
}

/// Nothing will be taken any more: the process ends, or executes another program.
pub(super) fn end() {
    if COUNT.load(Ordering::Relaxed) == 0 && NOTING.load(Ordering::Relaxed) == 0 {
        return;
    }
    with(|state| {
        state.give_back();
        state.tell();
    });
}

/// Nobody knew that this would be asked.
pub(super) fn missed(manner: Manner, name: &[u8]) {
    let is_kept = name.first() == Some(&b'/') && name.len() <= FORESEEN_NAME;
    if NOTING.load(Ordering::Relaxed) == 0 || !is_kept {
        return;
    }
    with(|state| state.note(manner, name));
}

/// What an open for reading would find; `look` has it and what came along, and makes a descriptor of it.
pub(super) fn take<T>(
    place: &Place<'_>,
    flags: u32,
    look: impl FnOnce(&Opened, &[u8], Learning, Asked) -> T,
) -> Option<T> {
    const HARMLESS: u32 = sys::O_CLOEXEC | sys::O_NOCTTY | sys::O_NONBLOCK | 0o100_000;
    if COUNT.load(Ordering::Relaxed) == 0 || flags & !HARMLESS & !sys::O_DIRECTORY != 0 {
        return None;
    }
    let manner = manner_of(flags);
    with(|state| {
        let Some(asked) = state.young() else {
            state.give_back();
            return None;
        };
        let (memory, generation) = (state.memory, state.generation);
        let found = state.find(manner, place.name)?;
        let attributes = found.attributes.filter(|_| found.handle != 0)?;
        let now = process::table()?.versions.now(number(&attributes));
        if !found.version.has_attributes_of(&now) {
            return None;
        }
        let handle = core::mem::take(&mut found.handle);
        let contents = bytes(memory, found.contents);
        let age = sys::milliseconds().wrapping_sub(asked.ms);
        let learning = if found.is_ours {
            Learning::of(age)
        } else {
            claim(handle, age, generation)
        };
        let Some(learning) = learning else {
            give_back(generation, core::iter::once((handle, found.is_ours)));
            return None;
        };
        let opened = Opened { handle, attributes };
        Some(look(&opened, contents, learning, asked))
    })?
}

/// How an open asks.
pub(super) fn manner_of(flags: u32) -> Manner {
    if flags & sys::O_DIRECTORY == 0 {
        Manner::File
    } else {
        Manner::Folder
    }
}

/// What this link leads to.
pub(super) fn link<T>(place: &Place<'_>, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    with(|state| {
        state.young()?;
        let memory = state.memory;
        let found = state.find(Manner::Link, place.name)?;
        let now = process::table()?.versions.now(0);
        let is_same = found.version.names() == now.names();
        is_same.then(|| look(bytes(memory, found.contents)))
    })?
}

impl State {
    /// When it was asked, if that is believed still.
    fn young(&self) -> Option<Asked> {
        let asked = self.asked?;
        let age = sys::milliseconds().wrapping_sub(asked.ms);
        (age < BELIEVED_MS).then_some(asked)
    }

    fn find(&mut self, manner: Manner, name: &[u8]) -> Option<&mut Item> {
        let memory = self.memory;
        let mut items = self.items[..self.count].iter_mut();
        items.find(|item| item.manner == manner && bytes(memory, item.name) == name)
    }

    fn ask(&mut self, program: u64) {
        let (Some(table), Some(link)) = (process::table(), stream::link()) else {
            return;
        };
        // PROT_READ|WRITE, MAP_PRIVATE|ANONYMOUS|NORESERVE
        let Ok(memory) = sys::map(ROOM as u64, 3, 0x4022, -1) else {
            return;
        };
        self.memory = memory;
        self.generation = link.generation;
        self.asked = known::ask();
        let request = Request::Foresee(Foresee {
            program,
            bytes: ROOM as u32,
        });
        let nothing = (core::ptr::null(), 0);
        let into = Put::Program(memory, ROOM);
        let Ok(len) = ask(&request, nothing, into, |answer| Ok(answer.data.len())) else {
            return;
        };
        let data = bytes(memory, (0, len));
        let at = |part: &[u8]| (part.as_ptr() as usize - data.as_ptr() as usize, part.len());
        for (foreseen, behind) in AllForeseen::new(data) {
            let sought = foreseen.sought;
            let (handle, attributes, contents) = match foreseen.finding {
                Finding::Absent => {
                    self.learn(&sought, &Known::Absent);
                    continue;
                }
                Finding::There(attributes) => {
                    self.learn(&sought, &Known::Present(attributes));
                    continue;
                }
                Finding::Open {
                    handle, attributes, ..
                } => (handle, Some(attributes), at(behind)),
                Finding::Link(target) => (0, None, at(target)),
            };
            let file = attributes.as_ref().map_or(0, number);
            if let Some(place) = self.items.get_mut(self.count) {
                *place = Item {
                    manner: sought.manner,
                    name: at(sought.name),
                    contents,
                    handle,
                    is_ours: false,
                    attributes,
                    version: table.versions.now(file),
                };
                self.count += 1;
            }
        }
        let unchanged = |asked: Asked| asked.is_of(&table.versions.now(0));
        if !self.asked.is_some_and(unchanged) {
            // The job has changed something meanwhile, perhaps one of these.
            self.give_back();
        }
        self.fetch();
    }

    /// Libraries are wanted whole by the dynamic linker, and by all processes of the job.
    fn fetch(&mut self) {
        let (memory, generation) = (self.memory, self.generation);
        let mut files = [(0, Attributes::default()); PARTS];
        let mut count = 0;
        for item in &mut self.items[..self.count] {
            if let Some(attributes) = item.attributes
                && let Some(place) = files.get_mut(count)
                && item.manner == Manner::File
                && attributes.size > item.contents.1 as u64
                && is_object(bytes(memory, item.name))
                && take_over(item.handle, generation)
            {
                item.is_ours = true;
                *place = (item.handle, attributes);
                count += 1;
            }
        }
        calls::fetch_ahead(&files[..count]);
    }

    fn learn(&self, sought: &Sought<'_>, known: &Known) {
        let place = Place {
            at: 0,
            name: sought.name,
        };
        let means = match sought.manner {
            Manner::Itself | Manner::Link => known::means(false, known),
            Manner::File | Manner::Folder | Manner::Target => Means::Target,
        };
        known::learn(&place, means, known, self.asked);
    }

    fn note(&mut self, manner: Manner, name: &[u8]) {
        let mut writer = Packer::new(&mut self.notes[self.notes_len..]);
        let is_noted = writer.push(&Sought { manner, name }, &[]).is_ok();
        self.notes_len += writer.len();
        self.noted += usize::from(is_noted);
        if !is_noted || self.noted == MOST_NOTED {
            self.tell();
        }
    }

    /// What was noted is the shadow's to learn; nothing more is.
    fn tell(&mut self) {
        NOTING.store(0, Ordering::Relaxed);
        let program = handle_of(Reserved::Program.number());
        if let Some(program) = program.filter(|_| self.noted >= WORTH_TELLING) {
            let request = Request::Began(Began { program });
            let data = (self.notes.as_ptr(), self.notes_len);
            // A shadow that does not learn has its questions asked.
            let _ = ask(&request, data, Put::Lane, |_| Ok(()));
        }
        (self.noted, self.notes_len) = (0, 0);
    }

    /// What was not taken is closed.
    fn give_back(&mut self) {
        let items = &mut self.items[..self.count];
        let left = items
            .iter_mut()
            .map(|item| (core::mem::take(&mut item.handle), item.is_ours));
        give_back(self.generation, left.filter(|(handle, _)| *handle != 0));
        self.count = 0;
    }
}

/// Closes what was told when the job was this copy.
fn give_back(generation: u64, handles: impl Iterator<Item = (u64, bool)>) {
    let is_here = is_here(generation);
    let left = handles.filter_map(|(handle, is_ours)| {
        if is_ours && let Some(table) = process::table() {
            table.taken.remove(handle);
        }
        // In another copy of the job the numbers of what was only offered are something else's.
        (is_here || is_ours).then_some(handle)
    });
    lanes::close_all(left);
}
