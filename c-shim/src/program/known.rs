//! Names that were asked about, by whatever process of the job ([`crate::remembered`]).

use super::calls;
use super::foreseen;
use super::process;
use super::resident::number;
use super::sys;
use crate::remembered::{Asked, Known, Means, Name};
use crate::sequenced::{Sequenced, bytes_of, words_of};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use wire::{Attributes, Entries, Manner, Place, Request};

/// A relative name begins at a folder; an empty one is what is open.
fn name<'a>(place: &Place<'a>) -> Name<'a> {
    let text = place.name;
    let at = match text.first() {
        Some(b'/') => 0,
        _ => place.at,
    };
    Name { at, text }
}

fn file(attributes: &Attributes) -> u64 {
    number(attributes.device, attributes.inode)
}

/// What is known of a name.
pub(super) fn find(place: &Place<'_>, follow: bool) -> Option<Known> {
    let name = name(place);
    let found = find_name(name, follow);
    match found {
        Some(Known::Absent) => {}
        Some(Known::Present(_)) => {
            USED.fetch_add(1, Ordering::Relaxed);
            HITS.fetch_add(1, Ordering::Relaxed);
        }
        None => {
            USED.fetch_add(1, Ordering::Relaxed);
        }
    }
    found.or_else(|| {
        let table = process::table()?;
        let (folders, versions) = (&table.folders, &table.versions);
        let missing = folders.is_missing(name, versions, sys::milliseconds());
        if missing {
            // The filter that says so came with a question that need not be asked once more.
            foreseen::missed(Manner::Target, name.text);
        }
        missing.then_some(Known::Absent)
    })
}

fn find_name(name: Name<'_>, follow: bool) -> Option<Known> {
    let table = process::table()?;
    let now = sys::milliseconds();
    let all = &table.remembered;
    all.find(name, follow, &table.versions, now, file)
}

/// Nothing has this name.
pub(super) fn is_absent(place: &Place<'_>, follow: bool) -> bool {
    find(place, follow) == Some(Known::Absent)
}

/// Before the shadow is asked.
pub(super) fn ask() -> Option<Asked> {
    let table = process::table()?;
    Some(Asked::now(&table.versions, sys::milliseconds()))
}

/// Before this is asked, if something may come with ENOENT.
pub(super) fn ask_missing(request: &Request<'_>) -> Option<Asked> {
    place_of(request).and_then(|_| ask())
}

fn place_of<'a>(request: &'a Request<'_>) -> Option<&'a Place<'a>> {
    match request {
        Request::Open(open) => Some(&open.place),
        Request::Attribute(asked) => Some(&asked.place),
        Request::Access(access) => Some(&access.place),
        _ => None,
    }
}

/// This came with ENOENT.
pub(super) fn learn_missing(request: &Request<'_>, data: &[u8], asked: Option<Asked>) {
    let table = process::table();
    if let (Some(table), Some(asked), Some(place)) = (table, asked, place_of(request)) {
        let (folders, versions) = (&table.folders, &table.versions);
        folders.learn(name(place), data, &asked, versions);
    }
}

/// The shadow has answered.
pub(super) fn learn(place: &Place<'_>, means: Means, known: &Known, asked: Option<Asked>) {
    learn_name(name(place), means, known, asked);
}

fn learn_name(name: Name<'_>, means: Means, known: &Known, asked: Option<Asked>) {
    if let (Some(table), Some(asked)) = (process::table(), asked) {
        let all = &table.remembered;
        all.learn(name, means, known, &asked, &table.versions, file);
    }
}

/// What an answer means that was asked for with or without following a link.
pub(super) fn means(follow: bool, known: &Known) -> Means {
    const LINK: u32 = 0o120_000;
    const TYPE: u32 = 0o170_000;
    match (follow, known) {
        (true, _) => Means::Target,
        (false, Known::Present(attributes)) if attributes.mode & TYPE == LINK => Means::Itself,
        (false, _) => Means::Both,
    }
}

/// Words of the longest name of a folder whose entries are known by it.
const NAME_WORDS: usize = 64;
const LONGEST: usize = 8 * NAME_WORDS;
/// The folder that was opened last: its handle, when it was opened and after how many changes of names, what its name is relative to, and that.
static FOLDER: Sequenced<{ 5 + NAME_WORDS }> = Sequenced::nothing();
/// Entries whose attributes have come, and names that this process has asked about.
static COME: AtomicU32 = AtomicU32::new(0);
static USED: AtomicU32 = AtomicU32::new(0);
/// How often entries were asked for ahead, and names that were known.
static LISTED: AtomicU64 = AtomicU64::new(0);
static HITS: AtomicU64 = AtomicU64::new(0);

/// A folder was opened, and its first entries have come, with attributes: they are known by what is open, and by the folder's name.
pub(super) fn learn_folder(place: &Place<'_>, handle: u64, entries: &[u8], asked: Option<Asked>) {
    // What is in "." is called by its name alone.
    let text = if place.name == b"." { b"" } else { place.name };
    // Who goes down a tree from one open folder to the next (fts(3)) calls what is in each by that: its longer names would only take room.
    let is_by_name = text.first() == Some(&b'/') || calls::is_current(place.at);
    if let Some(asked) = &asked
        && is_by_name
        && text.len() <= LONGEST
        && !place.name.is_empty()
        && process::is_own()
    {
        let (names, len) = (asked.any.names(), text.len() as u64);
        let head = [handle, asked.ms, names, place.at, len];
        FOLDER.write(head.into_iter().chain(words_of(text)));
    }
    learn_entries(handle, entries, asked);
}

/// Entries of a folder have come.
pub(super) fn learn_entries(handle: u64, entries: &[u8], asked: Option<Asked>) {
    let mut text = [0; LONGEST + 256];
    let name = &mut text[..LONGEST];
    // Later it may be called otherwise, and this name be another's: what is learnt by it ends a second after the open.
    let opened = asked.and_then(|asked| {
        FOLDER.read(|words| {
            let get = |at: usize| words[at].load(Ordering::Relaxed);
            bytes_of(&words[5..], name);
            let is_it = (get(0), get(2)) == (handle, asked.any.names());
            let asked = Asked {
                ms: get(1),
                ..asked
            };
            is_it.then(|| (get(3), get(4) as usize, asked))
        })
    });
    let mut come = 0;
    let mut behind = None;
    for entry in Entries::new(entries).flatten() {
        let Some(attributes) = entry.attributes else {
            // Nothing is behind the one without a name.
            behind = behind.filter(|_| !entry.name.is_empty());
            continue;
        };
        come += 1;
        behind = Some(entry.next);
        let known = Known::Present(attributes);
        let means = means(false, &known);
        let inside = Place {
            at: handle,
            name: entry.name,
        };
        learn(&inside, means, &known, asked);
        if let Some((at, len, asked)) = opened
            && let Some(name) = below(&mut text, len, entry.name)
        {
            learn(&Place { at, name }, means, &known, Some(asked));
        }
    }
    match behind {
        Some(behind) => note_ahead(handle, behind, 0),
        None if come > 0 => look_no_further(handle),
        None => {}
    }
    let before = COME.fetch_add(come, Ordering::Relaxed);
    if before > 1 << 16 {
        COME.store(before / 2, Ordering::Relaxed);
        USED.store(USED.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
    }
}

/// The name of an entry, behind the folder's of so many bytes.
fn below<'a>(text: &'a mut [u8], len: usize, name: &[u8]) -> Option<&'a [u8]> {
    let mut begin = len;
    if len > 0 && text[len - 1] != b'/' {
        text[len] = b'/';
        begin += 1;
    }
    text.get_mut(begin..begin + name.len())?
        .copy_from_slice(name);
    text.get(..begin + name.len())
}

/// Where the attributes of a folder's entries ended that came last, and how many of the entries behind were asked about one by one since.
static AHEAD: [Sequenced<3>; 8] = [const { Sequenced::nothing() }; 8];

fn ahead(handle: u64) -> Option<[u64; 2]> {
    AHEAD[handle as usize % AHEAD.len()].read(|words| {
        let get = |at: usize| words[at].load(Ordering::Relaxed);
        (get(0) == handle).then(|| [get(1), get(2)])
    })
}

fn note_ahead(handle: u64, behind: u64, asked: u64) {
    if process::is_own() {
        let place = &AHEAD[handle as usize % AHEAD.len()];
        place.write([handle, behind, asked].into_iter());
    }
}

/// Attributes of this name are to be asked for: if it is behind those of a folder that have come, and not the first such, then the folder's handle and where to
/// go on, since a program that has listed all of a large folder first (fts(3)) asks about all that is in it.
pub(super) fn look_ahead(place: &Place<'_>) -> Option<(u64, u64)> {
    let handle = place.at;
    if handle == 0 || place.name.is_empty() || place.name.contains(&b'/') {
        return None;
    }
    let [behind, asked] = ahead(handle)?;
    note_ahead(handle, behind, asked + 1);
    // Who looks at some of a very large folder has no good of it.
    let worth = LISTED.load(Ordering::Relaxed) * 16 <= 256 + HITS.load(Ordering::Relaxed);
    if asked == 0 || !worth {
        return None;
    }
    LISTED.fetch_add(1, Ordering::Relaxed);
    Some((handle, behind))
}

/// There is nothing more to be had of it.
pub(super) fn look_no_further(handle: u64) {
    if ahead(handle).is_some() {
        // There is no such handle.
        let place = &AHEAD[handle as usize % AHEAD.len()];
        place.write([0, 0, 0].into_iter());
    }
}

/// This process looks at what is in the folders that it lists: attributes are worth their while for the rest of a large one.
pub(super) fn entries_are_looked_at() -> bool {
    USED.load(Ordering::Relaxed) >= COME.load(Ordering::Relaxed) / 4
}
