//! Names that the job has asked about, and what came of it: there is no such file, or its attributes (DESIGN §6, "names and
//! attributes at most 1 s old").
//!
//! ```text
//! (folder's handle, name) -> one of two slots -> { name, when, counts of changes then, ENOENT or attributes }
//! ```
//! All processes of a job share one table ([`crate::sequenced`]). What is in the way is forgotten.

use crate::hash::{fnv, places};
use crate::sequenced::{Sequenced, bytes_of};
use crate::versions::{Version, Versions};
use wire::{Attributes, Reply};

/// Names that are remembered at once.
const SLOTS: usize = 4096;
/// Longer ones are not.
const LONGEST: usize = 168;
/// How long what others may change is believed.
pub const BELIEVED_MS: u64 = 1000;
/// Bytes of a record.
const ROOM: usize = 360;
const WORDS: usize = ROOM / 8;
/// Where in a record what is.
const AT: usize = 0;
const MS: usize = 8;
const NAMES: usize = 16;
const CONTENTS: usize = 24;
const OF_FILE: usize = 32;
const NAME_LEN: usize = 40;
const MEANS: usize = 41;
const BODY_LEN: usize = 42;
const NAME: usize = 43;
const BODY: usize = NAME + LONGEST;
const _: () = assert!(BODY + 142 <= ROOM && LONGEST <= u8::MAX as usize);

/// Of what the answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Means {
    /// The name itself, if it is a link (lstat).
    Itself = 1,
    /// What it leads to (stat).
    Target = 2,
    /// Both: it is no link.
    Both = 3,
}

/// What is known of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// ENOENT.
    Absent,
    /// It is there.
    Present(Attributes),
}

/// A name: what it is relative to, and its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a> {
    /// A folder's handle at the shadow; 0 for absolute names.
    pub at: u64,
    /// As the program has it; empty for what is open itself.
    pub text: &'a [u8],
}

/// All of them.
#[derive(Debug)]
#[repr(C)]
pub struct Remembered {
    slots: [Sequenced<WORDS>; SLOTS],
}

/// When something was asked: what was learnt is believed as long as nothing that matters was changed since.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub(crate) any: Version,
    pub(crate) ms: u64,
}

impl Asked {
    /// Before it is asked.
    #[must_use]
    pub fn now(versions: &Versions, ms: u64) -> Self {
        Asked {
            any: versions.now(0),
            ms,
        }
    }

    /// The job has changed nothing since.
    #[must_use]
    pub fn is_of(&self, now: &Version) -> bool {
        self.any.is(now)
    }
}

impl Name<'_> {
    /// Where it may be.
    fn slots(&self) -> [usize; 2] {
        places(fnv(self.at, self.text), SLOTS)
    }
}

fn put(record: &mut [u8; ROOM], at: usize, word: u64) {
    record[at..at + 8].copy_from_slice(&word.to_ne_bytes());
}

fn get(record: &[u8; ROOM], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&record[at..at + 8]);
    u64::from_ne_bytes(word)
}

/// The bytes of a slot, if they were written at once.
fn read(slot: &Sequenced<WORDS>) -> Option<[u8; ROOM]> {
    slot.read(|words| {
        let mut record = [0; ROOM];
        bytes_of(words, &mut record);
        Some(record)
    })
}

impl Remembered {
    /// What is known of a name, and believed now. `file` tells most files from each other ([`Versions`]).
    pub fn find(
        &self,
        name: Name<'_>,
        follow: bool,
        versions: &Versions,
        ms: u64,
        file: impl Fn(&Attributes) -> u64,
    ) -> Option<Known> {
        let slots = name.slots().into_iter();
        let mut records = slots.filter_map(|slot| read(&self.slots[slot]));
        records.find_map(|record| believed(&record, name, follow, versions, ms, &file))
    }

    /// The place for what is learnt: where it is already, or nothing that is believed, or what is oldest.
    fn place(&self, name: Name<'_>, asked: &Asked) -> usize {
        let [first, other] = name.slots();
        let age = |slot: usize| match read(&self.slots[slot]) {
            Some(record) if is_of(&record, name) => u64::MAX,
            Some(record) if get(&record, NAMES) == asked.any.names() => {
                asked.ms.saturating_sub(get(&record, MS))
            }
            _ => u64::MAX - 1,
        };
        if age(other) > age(first) {
            other
        } else {
            first
        }
    }

    /// A question was answered. Nothing is remembered if the job has changed anything meanwhile.
    pub fn learn(
        &self,
        name: Name<'_>,
        means: Means,
        known: &Known,
        asked: &Asked,
        versions: &Versions,
        file: impl Fn(&Attributes) -> u64,
    ) {
        if name.text.len() > LONGEST || name.text.is_empty() && name.at == 0 {
            return;
        }
        let mut record = [0; ROOM];
        let (number, body_len) = match known {
            Known::Absent => (0, Ok(0)),
            Known::Present(attributes) => (
                file(attributes),
                Reply::Attributes(*attributes).encode(&mut record[BODY..]),
            ),
        };
        let now = versions.now(number);
        let Ok(body_len) = body_len else {
            return;
        };
        if !versions.now(0).is(&asked.any) {
            return;
        }
        for (at, word) in [
            (AT, name.at),
            (MS, asked.ms),
            (NAMES, now.names()),
            (CONTENTS, now.contents()),
            (OF_FILE, now.of_file()),
        ] {
            put(&mut record, at, word);
        }
        record[NAME_LEN] = name.text.len() as u8;
        record[MEANS] = means as u8;
        record[BODY_LEN] = body_len as u8;
        record[NAME..NAME + name.text.len()].copy_from_slice(name.text);
        self.slots[self.place(name, asked)].write((0..WORDS).map(|at| get(&record, at * 8)));
    }
}

fn is_of(record: &[u8; ROOM], name: Name<'_>) -> bool {
    let len = usize::from(record[NAME_LEN]);
    get(record, AT) == name.at && record.get(NAME..NAME + len) == Some(name.text)
}

/// What a record says of a name, if it is about that and believed.
fn believed(
    record: &[u8; ROOM],
    name: Name<'_>,
    follow: bool,
    versions: &Versions,
    ms: u64,
    file: impl Fn(&Attributes) -> u64,
) -> Option<Known> {
    let wanted = if follow { Means::Target } else { Means::Itself };
    let is_it = is_of(record, name) && record[MEANS] & wanted as u8 != 0;
    if !is_it || ms.wrapping_sub(get(record, MS)) >= BELIEVED_MS {
        return None;
    }
    let body = &record[BODY..][..usize::from(record[BODY_LEN]).min(ROOM - BODY)];
    let known = match body {
        [] => Known::Absent,
        body => match Reply::decode(KIND, body) {
            Ok(Reply::Attributes(attributes)) => Known::Present(attributes),
            _ => return None,
        },
    };
    let now = versions.now(match &known {
        Known::Absent => 0,
        Known::Present(attributes) => file(attributes),
    });
    let is_same = now.names() == get(record, NAMES)
        && (known == Known::Absent
            || (now.contents(), now.of_file()) == (get(record, CONTENTS), get(record, OF_FILE)));
    is_same.then_some(known)
}

/// Of [`Reply::Attributes`].
const KIND: u16 = 104;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versions::Changes;
    use crate::zeroed::zeroed;

    fn inode(attributes: &Attributes) -> u64 {
        attributes.inode
    }

    fn present(number: u64) -> Known {
        let most = wire::Stamp {
            seconds: i64::MIN,
            nanoseconds: u32::MAX,
        };
        Known::Present(Attributes {
            inode: number,
            device: u64::MAX,
            size: u64::MAX,
            links: u64::MAX,
            special: u64::MAX,
            blocks: u64::MAX,
            mode: u32::MAX,
            uid: u32::MAX,
            gid: u32::MAX,
            block_size: u32::MAX,
            accessed: most,
            modified: most,
            changed: most,
            born: Some(most),
            flags: (u64::MAX, u64::MAX),
            bare: true,
        })
    }

    const NAME_OF: fn(&'static [u8]) -> Name<'static> = |text| Name { at: 3, text };

    #[test]
    fn what_was_learnt_is_believed_for_a_second_and_until_it_may_be_otherwise() {
        let (all, versions) = (zeroed::<Remembered>(), zeroed::<Versions>());
        let name = NAME_OF(b"some/name");
        let find = |name, follow, ms| all.find(name, follow, &versions, ms, inode);
        let learn = |name, means, known: &Known| {
            let asked = Asked::now(&versions, 5000);
            all.learn(name, means, known, &asked, &versions, inode);
        };
        assert_eq!(find(name, true, 5000), None);
        learn(name, Means::Both, &present(7));
        assert_eq!(find(name, true, 5999), Some(present(7)));
        assert_eq!(find(name, false, 5000), Some(present(7)));
        assert_eq!(find(name, true, 6000), None, "a second old");
        assert_eq!(find(Name { at: 4, ..name }, true, 5000), None);
        assert_eq!(find(NAME_OF(b"some/nam"), true, 5000), None);
        versions.count(Changes::File(8));
        assert_eq!(find(name, true, 5000), Some(present(7)), "another file");
        versions.count(Changes::File(7));
        assert_eq!(find(name, true, 5000), None);
        learn(name, Means::Target, &present(7));
        assert_eq!(find(name, false, 5000), None, "it may be a link");
        let open = NAME_OF(b"");
        learn(open, Means::Both, &present(9));
        assert_eq!(find(open, true, 5000), Some(present(9)));
        learn(name, Means::Target, &Known::Absent);
        assert_eq!(find(name, true, 5000), Some(Known::Absent));
        versions.count(Changes::File(7));
        assert_eq!(find(name, true, 5000), Some(Known::Absent));
        versions.count(Changes::Attributes);
        assert_eq!(find(name, true, 5000), None);
        learn(name, Means::Both, &present(7));
        versions.count(Changes::Contents);
        assert_eq!(find(name, true, 5000), None);
    }

    #[test]
    fn nothing_is_learnt_while_something_changes() {
        let (all, versions) = (zeroed::<Remembered>(), zeroed::<Versions>());
        let name = NAME_OF(b"name");
        let asked = Asked::now(&versions, 1);
        versions.count(Changes::File(9));
        all.learn(name, Means::Both, &present(7), &asked, &versions, inode);
        assert_eq!(all.find(name, true, &versions, 1, inode), None);
    }

    #[test]
    fn most_names_of_a_large_folder_are_kept_and_what_was_learnt_last_counts() {
        let (all, versions) = (zeroed::<Remembered>(), zeroed::<Versions>());
        let texts: Vec<String> = (0..2000).map(|number| format!("file-{number}.h")).collect();
        let name = |text: &'static str| NAME_OF(text.as_bytes());
        let texts: Vec<&'static str> = texts.into_iter().map(|text| &*text.leak()).collect();
        for (ms, size) in [(1, 7), (2, 8)] {
            let asked = Asked::now(&versions, ms);
            for text in &texts {
                all.learn(
                    name(text),
                    Means::Both,
                    &present(size),
                    &asked,
                    &versions,
                    inode,
                );
            }
        }
        let found = |text: &&&'static str| {
            let known = all.find(name(text), true, &versions, 2, inode);
            assert!(known.is_none() || known == Some(present(8)));
            known.is_some()
        };
        let kept = texts.iter().filter(found).count();
        assert!(kept > 1800, "{kept} of 2000");
    }

    #[test]
    fn a_name_that_is_too_long_is_forgotten() {
        let (all, versions) = (zeroed::<Remembered>(), zeroed::<Versions>());
        for (len, is_kept) in [(LONGEST, true), (LONGEST + 1, false)] {
            let name = NAME_OF(&[b'x'; LONGEST + 1][..len]);
            let asked = Asked::now(&versions, 1);
            all.learn(name, Means::Both, &present(7), &asked, &versions, inode);
            let found = all.find(name, true, &versions, 1, inode);
            assert_eq!(found, is_kept.then(|| present(7)));
        }
    }
}
