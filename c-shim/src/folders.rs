//! Folders of which it is known which names they do not have ([`wire::Missing`]), so that searches along paths ask little.
//!
//! ```text
//! (folder's handle, text up to the folder) -> one of two slots -> { text, when, count of changes then, filter }
//! ```
//! All processes of a job share them ([`crate::sequenced`]); they are believed as long as a name that is not there is
//! ([`crate::remembered`]). What is in the way is forgotten.

use crate::hash::{fnv, places};
use crate::remembered::{Asked, BELIEVED_MS, Name};
use crate::sequenced::{Sequenced, words_of};
use crate::versions::Versions;
use core::sync::atomic::{AtomicU64, Ordering};
use wire::{FILTER_WORDS, Missing, bits, steps};

/// Folders that are known at once.
const SLOTS: usize = 512;
/// Words of the longest text of one.
const TEXT_WORDS: usize = 32;
/// Where in a slot what is.
const AT: usize = 0;
const MS: usize = 1;
const NAMES: usize = 2;
const LEN: usize = 3;
const TEXT: usize = 4;
const FILTER: usize = TEXT + TEXT_WORDS;
const WORDS: usize = FILTER + FILTER_WORDS;

/// All of them.
#[derive(Debug)]
#[repr(C)]
pub struct Folders {
    slots: [Sequenced<WORDS>; SLOTS],
}

/// Where it may be.
fn slots(folder: Name<'_>) -> [usize; 2] {
    places(fnv(folder.at, folder.text), SLOTS)
}

fn get(words: &[AtomicU64; WORDS], at: usize) -> u64 {
    words[at].load(Ordering::Relaxed)
}

fn is_of(words: &[AtomicU64; WORDS], folder: Name<'_>) -> bool {
    (get(words, AT), get(words, LEN)) == (folder.at, folder.text.len() as u64)
        && is_text(&words[TEXT..FILTER], folder.text)
}

impl Folders {
    /// A folder on the way to this name is known not to have what comes next.
    #[must_use]
    pub fn is_missing(&self, name: Name<'_>, versions: &Versions, ms: u64) -> bool {
        let names = versions.now(0).names();
        steps(name.text).any(|(folder, step)| {
            let folder = Name {
                at: name.at,
                text: &name.text[..folder],
            };
            self.lacks(folder, step, names, ms)
        })
    }

    fn lacks(&self, folder: Name<'_>, name: &[u8], names: u64, ms: u64) -> bool {
        // Some file systems hide such names from who lists a folder (`.snapshot`, `.zfs`).
        if name.first() == Some(&b'.') {
            return false;
        }
        let mut found = slots(folder).into_iter().filter_map(|slot| {
            self.slots[slot].read(|words| {
                let is_it = get(words, NAMES) == names
                    && ms.wrapping_sub(get(words, MS)) < BELIEVED_MS
                    && is_of(words, folder);
                let lacks = |(word, bit): (usize, u64)| get(words, FILTER + word) & bit == 0;
                is_it.then(|| bits(name).into_iter().any(lacks))
            })
        });
        found.next() == Some(true)
    }

    /// The place for what is learnt: where it is already, or nothing that is believed, or what is oldest.
    fn place(&self, folder: Name<'_>, asked: &Asked) -> usize {
        let [first, other] = slots(folder);
        let age = |slot: usize| {
            let found = self.slots[slot].read(|words| {
                let is_believed = get(words, NAMES) == asked.any.names();
                Some(match is_of(words, folder) {
                    true => u64::MAX,
                    false if is_believed => asked.ms.saturating_sub(get(words, MS)),
                    false => u64::MAX - 1,
                })
            });
            found.unwrap_or(u64::MAX - 1)
        };
        if age(other) > age(first) {
            other
        } else {
            first
        }
    }

    /// What came with ENOENT for this name. Nothing is learnt if the job has changed anything meanwhile. Nothing of it is copied: this may be a
    /// handler's small stack.
    pub fn learn(&self, name: Name<'_>, data: &[u8], asked: &Asked, versions: &Versions) {
        let Ok((len, filter)) = Missing::split(data) else {
            return;
        };
        let Some(text) = name.text.get(..usize::from(len)) else {
            return;
        };
        let now = versions.now(0);
        if text.len() > 8 * TEXT_WORDS || !now.is(&asked.any) {
            return;
        }
        let folder = Name { at: name.at, text };
        let padding = core::iter::repeat_n(0, TEXT_WORDS - text.len().div_ceil(8));
        let head = [name.at, asked.ms, now.names(), text.len() as u64];
        let words = head.into_iter().chain(words_of(text)).chain(padding);
        self.slots[self.place(folder, asked)].write(words.chain(filter));
    }
}

fn is_text(words: &[AtomicU64], text: &[u8]) -> bool {
    let expected = words_of(text);
    words
        .iter()
        .zip(expected)
        .all(|(found, word)| found.load(Ordering::Relaxed) == word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versions::Changes;
    use crate::zeroed::zeroed;
    use wire::Names;

    fn name(text: &[u8]) -> Name<'_> {
        Name { at: 0, text }
    }

    fn missing(folder: &str, has: &[&str]) -> [u8; wire::MISSING_LEN] {
        let mut names = Names::default();
        has.iter().for_each(|name| names.insert(name.as_bytes()));
        let folder = folder.len() as u16;
        Missing { folder, names }.encode()
    }

    #[test]
    fn a_folder_tells_what_it_does_not_have() {
        let (folders, versions) = (zeroed::<Folders>(), zeroed::<Versions>());
        let asked = Asked::now(&versions, 10);
        let is_missing = |text: &str, ms| folders.is_missing(name(text.as_bytes()), &versions, ms);
        assert!(!is_missing("/usr/bin/x", 10));
        folders.learn(
            name(b"/usr/bin/x"),
            &missing("/usr/bin", &["sh", "env"]),
            &asked,
            &versions,
        );
        for absent in [
            "/usr/bin/x",
            "/usr/bin/y",
            "/usr/bin/lib/os.py",
            "/usr/bin/z/",
        ] {
            assert!(is_missing(absent, 10), "{absent}");
        }
        let others = [
            "/usr/bin/sh",
            "/usr/bin/env/x",
            "/usr/bin",
            "/usr/bin/",
            "/usr/lib/x",
            "/usr/bin/.hidden",
            "/usr/bin//x",
            "/usr/bin/./x",
            "/usr/bin/../x",
            "usr/bin/x",
        ];
        for other in others {
            assert!(!is_missing(other, 10), "{other}");
        }
        let below = Name {
            at: 5,
            text: b"/usr/bin/x",
        };
        assert!(!folders.is_missing(below, &versions, 10));
        assert!(is_missing("/usr/bin/x", 10 + BELIEVED_MS - 1));
        assert!(!is_missing("/usr/bin/x", 10 + BELIEVED_MS));
        versions.count(Changes::File(3));
        assert!(is_missing("/usr/bin/x", 10));
        versions.count(Changes::Attributes);
        assert!(!is_missing("/usr/bin/x", 10));
    }

    #[test]
    fn the_root_and_where_a_relative_name_begins_are_folders_too() {
        let (folders, versions) = (zeroed::<Folders>(), zeroed::<Versions>());
        let asked = Asked::now(&versions, 10);
        folders.learn(name(b"/x"), &missing("", &["usr"]), &asked, &versions);
        assert!(folders.is_missing(name(b"/y/z"), &versions, 10));
        assert!(!folders.is_missing(name(b"/usr"), &versions, 10));
        let relative = |text| Name { at: 7, text };
        assert!(!folders.is_missing(relative(b"y"), &versions, 10));
        folders.learn(relative(b"x"), &missing("", &["sub"]), &asked, &versions);
        assert!(folders.is_missing(relative(b"y"), &versions, 10));
        assert!(!folders.is_missing(relative(b"sub/y"), &versions, 10));
    }

    #[test]
    fn many_folders_are_known_at_once() {
        let (folders, versions) = (zeroed::<Folders>(), zeroed::<Versions>());
        let asked = Asked::now(&versions, 10);
        let names: Vec<String> = (0..100).map(|number| format!("/a/b{number}")).collect();
        let absent = |folder: &String| format!("{folder}/x").into_bytes();
        for folder in &names {
            let missing = missing(folder, &["y"]);
            folders.learn(name(&absent(folder)), &missing, &asked, &versions);
        }
        let is_known = |folder: &&String| folders.is_missing(name(&absent(folder)), &versions, 10);
        let kept = names.iter().filter(is_known).count();
        assert!(kept >= 90, "{kept} of 100");
    }

    #[test]
    fn what_was_changed_meanwhile_is_not_learnt() {
        let (folders, versions) = (zeroed::<Folders>(), zeroed::<Versions>());
        let asked = Asked::now(&versions, 10);
        versions.count(Changes::Attributes);
        folders.learn(name(b"/x"), &missing("", &[]), &asked, &versions);
        assert!(!folders.is_missing(name(b"/x"), &versions, 10));
        // Longer than the name it is about.
        let asked = Asked::now(&versions, 10);
        folders.learn(name(b"/x"), &missing("/longer", &[]), &asked, &versions);
        assert!(!folders.is_missing(name(b"/x"), &versions, 10));
        let long = [b'/', b'a'].repeat(200);
        let whole = std::str::from_utf8(&long).expect("text");
        folders.learn(name(&long), &missing(whole, &[]), &asked, &versions);
        assert!(!folders.is_missing(name(&[&long[..], b"/b"].concat()), &versions, 10));
    }
}
