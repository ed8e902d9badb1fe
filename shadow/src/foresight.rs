//! What programs ask about as they begin, learnt from those before them (docs/adr/0030-how-programs-begin.md).
//!
//! ```text
//! Began: names ──> known of this program ──> a file for other shadows of this user
//! Foresee ──> these names, looked at now ([`crate::serve`])
//! ```
//! # What callers may rely on
//! Only names are kept, never what was found at them. A file that cannot be read or written, or has something else in it, costs round trips and
//! nothing more.
// The files are no files of a job's.
#![allow(clippy::disallowed_methods)]

use rustix::fs::Stat;
use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use wire::{FORESEEN_NAME, MOST_FORESEEN, Manner, Sought};

/// Programs that are known at once, and files of them.
const MOST_PROGRAMS: usize = 512;
/// Names that have been asked about by one process only, so far.
const MOST_NOVEL: usize = 256;
/// How a file begins.
const MAGIC: &[u8] = b"wayfarer begins 1\n";
/// Bytes of a file.
const LARGEST_FILE: u64 = (MAGIC.len() + MOST_FORESEEN * (FORESEEN_NAME + 2)) as u64;

/// A program: a file and when it was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Program([u64; 5]);

impl Program {
    /// By what fstat(2) says.
    pub(crate) fn of(stat: &Stat) -> Self {
        Program([
            stat.st_dev,
            stat.st_ino,
            stat.st_size as u64,
            stat.st_mtime as u64,
            stat.st_mtime_nsec,
        ])
    }

    fn file_name(&self) -> String {
        let words: Vec<String> = self.0.iter().map(|word| format!("{word:x}")).collect();
        words.join("-")
    }
}

/// A name, and how it is asked about.
pub(crate) type Asked = (Manner, Vec<u8>);

/// What one program asks about.
#[derive(Clone, Debug, Default)]
struct Habit {
    /// In the order in which they were learnt; those that were learnt first go first.
    names: VecDeque<Asked>,
    /// Asked about by one process: most likely its own business.
    novel: VecDeque<Asked>,
}

impl Habit {
    /// A process has asked about these, and nobody knew. Whether anything is to be kept.
    fn learn(&mut self, sought: impl Iterator<Item = Asked>) -> bool {
        // The first process is believed: who runs a program once more is served at once.
        let is_first = self.names.is_empty();
        let mut changed = false;
        for asked in sought {
            let known = self.names.iter().filter(|other| **other == asked);
            if known.count() >= times(asked.0) {
                continue;
            }
            let again = self.novel.iter().position(|other| *other == asked);
            if let Some(at) = again {
                self.novel.remove(at);
            }
            if is_first || again.is_some() {
                self.names.push_back(asked);
                changed = true;
            } else {
                self.novel.push_back(asked);
            }
        }
        let many = self.names.len().saturating_sub(MOST_FORESEEN);
        self.names.drain(..many);
        let many = self.novel.len().saturating_sub(MOST_NOVEL);
        self.novel.drain(..many);
        changed
    }
}

/// What is known of programs, for all sessions of a shadow.
#[derive(Debug, Default)]
pub struct Foresight {
    dir: Option<PathBuf>,
    habits: Mutex<HashMap<Program, Habit>>,
}

impl Foresight {
    /// What shadows learn is kept in this folder, which need not be there yet.
    #[must_use]
    pub fn in_folder(dir: PathBuf) -> Self {
        Foresight {
            dir: Some(dir),
            habits: Mutex::default(),
        }
    }

    fn habits(&self) -> MutexGuard<'_, HashMap<Program, Habit>> {
        self.habits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this program will ask about, perhaps.
    pub(crate) fn of(&self, program: Program) -> Vec<Asked> {
        let mut habits = self.habits();
        make_room(&mut habits, program);
        let habit = habits.entry(program).or_insert_with(|| self.read(program));
        habit.names.iter().cloned().collect()
    }

    /// A process of this program has asked about these names, of which it was not told in advance.
    pub(crate) fn learn<'a>(&self, program: Program, sought: impl Iterator<Item = Sought<'a>>) {
        let sought = sought.filter(|sought| is_kept(sought.name));
        let sought = sought.map(|sought| (sought.manner, sought.name.to_vec()));
        let mut habits = self.habits();
        make_room(&mut habits, program);
        let habit = habits.entry(program).or_insert_with(|| self.read(program));
        if !habit.learn(sought.take(MOST_FORESEEN)) {
            return;
        }
        let bytes = to_bytes(&habit.names);
        drop(habits);
        if let Err(error) = self.write(program, &bytes) {
            tracing::debug!(%error, "what a program asks about as it begins is not kept");
        }
    }

    fn read(&self, program: Program) -> Habit {
        let read = || -> io::Result<Vec<u8>> {
            let dir = self.dir.as_ref().ok_or(io::ErrorKind::NotFound)?;
            let mut bytes = vec![];
            let file = fs::File::open(dir.join(program.file_name()))?;
            file.take(LARGEST_FILE + 1).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        Habit {
            names: read()
                .ok()
                .and_then(|bytes| from_bytes(&bytes))
                .unwrap_or_default(),
            novel: VecDeque::new(),
        }
    }

    /// Nothing waits for a disk: what a power loss damages is learnt anew.
    fn write(&self, program: Program, bytes: &[u8]) -> io::Result<()> {
        let Some(dir) = &self.dir else {
            return Ok(());
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)?;
        make_room_on_disk(dir)?;
        let name = program.file_name();
        let new = dir.join(format!("{name}.{}", std::process::id()));
        let mut options = fs::OpenOptions::new();
        let opened = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new);
        let written = opened
            .and_then(|mut file| file.write_all(bytes))
            .and_then(|()| fs::rename(&new, dir.join(name)));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written
    }
}

/// How often one process may ask so: what is opened is closed again, and opened once more.
fn times(manner: Manner) -> usize {
    match manner {
        Manner::File | Manner::Folder => 2,
        Manner::Target | Manner::Itself | Manner::Link => 1,
    }
}

/// Names that will not be asked about by others are not kept.
fn is_kept(name: &[u8]) -> bool {
    const OF_ONE_PROCESS: [&[u8]; 2] = [b"/tmp/", b"/var/tmp/"];
    name.starts_with(b"/")
        && name.len() <= FORESEEN_NAME
        && !name.contains(&0)
        && !OF_ONE_PROCESS.iter().any(|folder| name.starts_with(folder))
}

/// For one more program.
fn make_room(habits: &mut HashMap<Program, Habit>, program: Program) {
    if habits.len() >= MOST_PROGRAMS && !habits.contains_key(&program) {
        habits.clear();
    }
}

/// For one more program: what was written longest ago goes.
fn make_room_on_disk(dir: &std::path::Path) -> io::Result<()> {
    let mut files: Vec<_> = fs::read_dir(dir)?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.metadata().ok()?.modified().ok()?, entry.path()))
        })
        .collect();
    if files.len() >= MOST_PROGRAMS {
        files.sort();
        for (_, path) in &files[..=files.len() - MOST_PROGRAMS] {
            let _ = fs::remove_file(path);
        }
    }
    Ok(())
}

const MANNERS: [(u8, Manner); 5] = [
    (b'f', Manner::File),
    (b'd', Manner::Folder),
    (b't', Manner::Target),
    (b'i', Manner::Itself),
    (b'l', Manner::Link),
];

fn to_bytes(names: &VecDeque<Asked>) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for (manner, name) in names {
        let letter = MANNERS.iter().find(|(_, other)| other == manner);
        bytes.extend(letter.map(|(letter, _)| letter));
        bytes.extend(name);
        bytes.push(0);
    }
    bytes
}

/// None: it is something else, or was not written to its end.
fn from_bytes(bytes: &[u8]) -> Option<VecDeque<Asked>> {
    let names = bytes.strip_prefix(MAGIC)?;
    let names = match names.split_last() {
        None => return Some(VecDeque::new()),
        Some((0, names)) => names,
        Some(_) => return None,
    };
    let parse = |record: &[u8]| {
        let (letter, name) = record.split_first()?;
        let (_, manner) = MANNERS.iter().find(|(other, _)| other == letter)?;
        is_kept(name).then(|| (*manner, name.to_vec()))
    };
    let parsed = names.split(|byte| *byte == 0).map(parse);
    let parsed: Option<VecDeque<Asked>> = parsed.collect();
    parsed.filter(|names| names.len() <= MOST_FORESEEN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn program(number: u64) -> Program {
        Program([number; 5])
    }

    fn learn(foresight: &Foresight, names: &[&str]) {
        let sought = names.iter().map(|name| Sought {
            manner: Manner::File,
            name: name.as_bytes(),
        });
        foresight.learn(program(1), sought);
    }

    fn known(foresight: &Foresight) -> Vec<String> {
        let names = foresight.of(program(1)).into_iter();
        names
            .map(|(_, name)| String::from_utf8(name).expect("text"))
            .collect()
    }

    #[test]
    fn the_first_process_is_believed_and_what_two_others_ask() {
        let foresight = Foresight::default();
        learn(&foresight, &["/a", "/b", "relative", "/tmp/x", "/a", "/a"]);
        assert_eq!(known(&foresight), ["/a", "/b", "/a"], "twice at most");
        learn(&foresight, &["/c", "/a"]);
        assert_eq!(known(&foresight), ["/a", "/b", "/a"], "one alone has asked");
        learn(&foresight, &["/d", "/c"]);
        assert_eq!(known(&foresight), ["/a", "/b", "/a", "/c"]);
        assert!(foresight.of(program(2)).is_empty());
    }

    #[test]
    fn what_was_learnt_first_goes_first() {
        let foresight = Foresight::default();
        let names: Vec<String> = (0..MOST_FORESEEN)
            .map(|number| format!("/{number}"))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        learn(&foresight, &names);
        for _ in 0..2 {
            learn(&foresight, &["/new"]);
        }
        let known = known(&foresight);
        assert_eq!(known.len(), MOST_FORESEEN);
        assert_eq!(
            (known[0].as_str(), known[MOST_FORESEEN - 1].as_str()),
            ("/1", "/new")
        );
    }

    #[test]
    fn another_shadow_knows_it_too() {
        let dir = tempfile::tempdir().expect("a directory");
        let folder = dir.path().join("begins");
        let new = || Foresight::in_folder(folder.clone());
        assert!(new().of(program(1)).is_empty());
        learn(&new(), &["/a", "/b\n"]);
        assert_eq!(known(&new()), ["/a", "/b\n"]);
        let files: Vec<_> = fs::read_dir(&folder).expect("lists").collect();
        assert_eq!(files.len(), 1);
        let file = folder.join(program(1).file_name());
        for damage in [
            &b"something else"[..],
            b"wayfarer begins 1\nf/a",
            b"",
            b"wayfarer begins 1\nx/a\0",
        ] {
            fs::write(&file, damage).expect("writes");
            assert!(new().of(program(1)).is_empty(), "{damage:?}");
        }
        learn(&new(), &["/c"]);
        assert_eq!(known(&new()), ["/c"]);
    }

    #[test]
    fn files_are_few() {
        let dir = tempfile::tempdir().expect("a directory");
        let foresight = Foresight::in_folder(dir.path().to_owned());
        for number in 0..MOST_PROGRAMS as u64 + 20 {
            let name = &b"/a"[..];
            let manner = Manner::Target;
            foresight.learn(program(number), [Sought { manner, name }].into_iter());
        }
        let files = fs::read_dir(dir.path()).expect("lists").count();
        assert_eq!(files, MOST_PROGRAMS);
    }

    proptest! {
        #[test]
        fn files_read_back_as_written(names in prop::collection::vec((0..5usize, prop::collection::vec(1u8..=255, 0..200)), 0..100)) {
            let names: VecDeque<Asked> = names.into_iter()
                .map(|(manner, name)| (MANNERS[manner].1, [b"/x", &name[..]].concat())).collect();
            let bytes = to_bytes(&names);
            prop_assert_eq!(from_bytes(&bytes), Some(names));
        }

        #[test]
        fn any_bytes_are_names_or_nothing(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let all = [MAGIC, &bytes].concat();
            for bytes in [&bytes, &all] {
                prop_assert!(from_bytes(bytes).is_none_or(|names| names.iter().all(|(_, name)| is_kept(name))));
            }
        }
    }
}
