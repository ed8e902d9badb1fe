//! Names that were asked about, by whatever process of the job ([`crate::remembered`]).

use super::process;
use super::resident::number;
use super::sys;
use crate::remembered::{Asked, Known, Means, Name};
use wire::{Attributes, Entries, Place};

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
    find_name(name(place), follow)
}

fn find_name(name: Name<'_>, follow: bool) -> Option<Known> {
    let table = process::table()?;
    let now = sys::milliseconds();
    let all = &table.remembered;
    all.find(name, follow, &table.versions, now, file)
}

/// What a name leads to may be executed, as was asked before.
pub(super) fn may_be_executed(place: &Place<'_>) -> bool {
    find_name(name(place).executed(), true).is_some()
}

/// It may.
pub(super) fn learn_executed(place: &Place<'_>, asked: Option<Asked>) {
    learn_name(name(place).executed(), Means::Target, &Known::Absent, asked);
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

/// A folder's entries have come, with attributes: they are known by what is open.
pub(super) fn learn_entries(handle: u64, entries: &[u8], asked: Option<Asked>) {
    for entry in Entries::new(entries).flatten() {
        if let Some(attributes) = entry.attributes {
            let known = Known::Present(attributes);
            let inside = Place {
                at: handle,
                name: entry.name,
            };
            learn(&inside, means(false, &known), &known, asked);
        }
    }
}

/// The same by the name that the folder was opened by.
pub(super) fn learn_entries_by_name(place: &Place<'_>, entries: &[u8], asked: Option<Asked>) {
    const LONGEST: usize = 512;
    let mut text = [0; LONGEST];
    let folder = place.name;
    let slash = usize::from(folder.last() != Some(&b'/'));
    let before = folder.len() + slash;
    if folder.is_empty() || before >= LONGEST {
        return;
    }
    text[..folder.len()].copy_from_slice(folder);
    text[before - 1] = b'/';
    for entry in Entries::new(entries).flatten() {
        let (Some(attributes), Some(room)) = (
            entry.attributes,
            text.get_mut(before..before + entry.name.len()),
        ) else {
            continue;
        };
        room.copy_from_slice(entry.name);
        let known = Known::Present(attributes);
        let inside = Place {
            at: place.at,
            name: &text[..before + entry.name.len()],
        };
        learn(&inside, means(false, &known), &known, asked);
    }
}
