//! The table against one that knows every byte, and all of it against the kernel.

use super::table::{FileId, LockTable, Owner, Wanted};
use super::{Asked, Attendance, Locks};
use crate::session::OpenFile;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use proptest::prelude::*;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use wire::{Attend, LockMode, LockOwner, Span};

/// Bytes that the tests look at; the last stands for all behind it.
const BYTES: u64 = 12;
const OWNERS: u64 = 4;
const FILES: u64 = 2;

fn file(number: u64) -> FileId {
    FileId {
        device: 1,
        inode: number,
    }
}

/// What somebody does.
#[derive(Clone, Copy, Debug)]
enum Step {
    Set(u64, u64, Option<LockMode>, Span),
    /// Closes a descriptor of a file.
    Close(u64, u64),
    Die(u64),
    /// Waits, if it cannot have it.
    Wait(u64, u64, LockMode, Span),
}

fn span() -> impl Strategy<Value = Span> {
    (0..BYTES, 0..=BYTES).prop_map(|(first, len)| Span {
        first,
        last: if first + len >= BYTES - 1 {
            Span::END
        } else {
            first + len
        },
    })
}

fn mode() -> impl Strategy<Value = LockMode> {
    prop_oneof![Just(LockMode::Shared), Just(LockMode::Exclusive)]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (owner, of) = (0..OWNERS, 0..FILES);
    let set = (
        owner.clone(),
        of.clone(),
        prop::option::weighted(0.7, mode()),
        span(),
    );
    let wait = (owner.clone(), of.clone(), mode(), span());
    let step = prop_oneof![
        8 => set.prop_map(|(owner, of, mode, span)| Step::Set(owner, of, mode, span)),
        4 => wait.prop_map(|(owner, of, mode, span)| Step::Wait(owner, of, mode, span)),
        1 => (owner.clone(), of).prop_map(|(owner, of)| Step::Close(owner, of)),
        1 => owner.prop_map(Step::Die),
    ];
    prop::collection::vec(step, 0..60)
}

/// Who has which byte, and who waits for what: nothing clever.
#[derive(Debug, Default)]
struct Naive {
    held: BTreeMap<(u64, u64), BTreeMap<u64, LockMode>>,
    waits: BTreeMap<u64, (u64, LockMode, Span)>,
}

impl Naive {
    fn bytes(span: Span) -> impl Iterator<Item = u64> {
        span.first..=span.last.min(BYTES - 1)
    }

    fn blockers(&self, owner: u64, of: u64, mode: LockMode, span: Span) -> Vec<u64> {
        let mut found: Vec<u64> = Self::bytes(span)
            .filter_map(|byte| self.held.get(&(of, byte)))
            .flatten()
            .filter(|(other, held)| {
                **other != owner && (mode == LockMode::Exclusive || **held == LockMode::Exclusive)
            })
            .map(|(other, _)| *other)
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    fn set(&mut self, owner: u64, of: u64, mode: Option<LockMode>, span: Span) {
        for byte in Self::bytes(span) {
            let held = self.held.entry((of, byte)).or_default();
            match mode {
                Some(mode) => held.insert(owner, mode),
                None => held.remove(&owner),
            };
        }
    }

    /// Whether a chain of any length leads from one owner back to itself.
    fn deadlock(&self, owner: u64, of: u64, mode: LockMode, span: Span) -> bool {
        let mut waits = self.waits.clone();
        waits.insert(owner, (of, mode, span));
        let mut reached = [[false; OWNERS as usize]; OWNERS as usize];
        for (from, (of, mode, span)) in waits {
            for to in self.blockers(from, of, mode, span) {
                reached[from as usize][to as usize] = true;
            }
        }
        for over in 0..OWNERS as usize {
            for from in 0..OWNERS as usize {
                for to in 0..OWNERS as usize {
                    reached[from][to] |= reached[from][over] && reached[over][to];
                }
            }
        }
        reached[owner as usize][owner as usize]
    }
}

fn wanted(owner: u64, of: u64, mode: LockMode, span: Span) -> Wanted {
    Wanted {
        owner: Owner::Process(owner),
        file: file(of),
        mode,
        span,
    }
}

fn blockers(table: &LockTable, wanted: Wanted) -> Vec<u64> {
    let mut found: Vec<u64> = table
        .blockers(wanted)
        .map(|(owner, _)| match owner {
            Owner::Process(number) | Owner::Description(number) => number,
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn same(table: &LockTable, naive: &Naive) -> Result<(), TestCaseError> {
    let mut count = 0;
    for of in 0..FILES {
        for byte in 0..BYTES {
            let last = if byte == BYTES - 1 { Span::END } else { byte };
            let one = Span { first: byte, last };
            let held = naive.held.get(&(of, byte)).cloned().unwrap_or_default();
            for owner in 0..OWNERS {
                let has = table.of(Owner::Process(owner), file(of));
                let has = has.and_then(|pieces| pieces.overlapping(one).next());
                prop_assert_eq!(has.map(|one| one.mode), held.get(&owner).copied());
            }
            let most = table.most(file(of), one);
            let most = most.iter().map(|one| one.mode).next();
            prop_assert_eq!(most, held.values().max().copied());
        }
        for owner in 0..OWNERS {
            let has = table.of(Owner::Process(owner), file(of));
            count += has.map_or(0, super::pieces::Pieces::len);
            let all: Vec<_> = has.map(|one| one.iter().collect()).unwrap_or_default();
            for pair in all.windows(2) {
                let apart = pair[0].span.last + 1 < pair[1].span.first;
                let touch = pair[0].span.last + 1 == pair[1].span.first;
                prop_assert!(apart || touch && pair[0].mode != pair[1].mode, "{:?}", all);
            }
        }
    }
    prop_assert_eq!(table.count(), count);
    Ok(())
}

proptest! {
    #[test]
    fn the_table_is_as_one_that_knows_every_byte(steps in steps()) {
        let mut table = LockTable::default();
        let mut naive = Naive::default();
        for step in steps {
            match step {
                // Who waits does nothing else.
                Step::Set(owner, ..) | Step::Wait(owner, ..) | Step::Close(owner, _)
                    if naive.waits.contains_key(&owner) =>
                {
                    let (of, mode, span) = naive.waits[&owner];
                    if naive.blockers(owner, of, mode, span).is_empty() {
                        naive.waits.remove(&owner);
                        table.wait_is_over(owner);
                    }
                }
                Step::Set(owner, of, mode, span) => {
                    let expected = mode.map_or(vec![], |mode| naive.blockers(owner, of, mode, span));
                    let found = mode.map_or(vec![], |mode| blockers(&table, wanted(owner, of, mode, span)));
                    prop_assert_eq!(&found, &expected);
                    if expected.is_empty() {
                        naive.set(owner, of, mode, span);
                        table.put(Owner::Process(owner), file(of), span, mode);
                    }
                }
                Step::Wait(owner, of, mode, span) => {
                    let wanted = wanted(owner, of, mode, span);
                    let deadlock = naive.deadlock(owner, of, mode, span);
                    prop_assert_eq!(table.would_deadlock(wanted), deadlock);
                    if !deadlock && !naive.blockers(owner, of, mode, span).is_empty() {
                        naive.waits.insert(owner, (of, mode, span));
                        table.wait(owner, wanted);
                    }
                }
                Step::Close(owner, of) => {
                    naive.set(owner, of, None, Span::ALL);
                    table.put(Owner::Process(owner), file(of), Span::ALL, None);
                }
                Step::Die(owner) => {
                    naive.waits.remove(&owner);
                    table.wait_is_over(owner);
                    for of in 0..FILES {
                        naive.set(owner, of, None, Span::ALL);
                    }
                    for of in table.files_of(Owner::Process(owner)) {
                        table.put(Owner::Process(owner), of, Span::ALL, None);
                    }
                }
            }
            same(&table, &naive)?;
        }
    }

    /// The kernel's own locks of open file descriptions follow the same rules: each step must end as there, and who is
    /// outside must see the same.
    #[test]
    fn what_others_see_is_what_the_kernel_would_show(steps in steps()) {
        let folder = tempfile::tempdir().expect("a folder");
        let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
        let opened: Vec<_> = (0..OWNERS).map(|_| (open(&ours), open_std(&theirs))).collect();
        let (outside, there) = (open_std(&ours), open_std(&theirs));
        let locks = Locks::default();
        for step in steps {
            let (owner, mode, span) = match step {
                Step::Set(owner, _, mode, span) => (owner, mode, span),
                Step::Wait(owner, _, mode, span) => (owner, Some(mode), span),
                Step::Close(owner, _) | Step::Die(owner) => (owner, None, Span::ALL),
            };
            let (file, kernels) = &opened[owner as usize];
            let asked = Asked { handle: owner, file, owner: LockOwner::Description, span, watch: 0 };
            if let Some(mode) = mode {
                let found = locks.test(&asked, mode).expect("can be asked");
                let expected = get(kernels, span, mode);
                prop_assert_eq!(found.is_some(), expected.is_some());
            }
            let found = locks.set(&asked, mode);
            prop_assert_eq!(found, set(kernels, span, mode));
            for byte in 0..BYTES {
                let one = Span { first: byte, last: byte };
                for mode in [LockMode::Shared, LockMode::Exclusive] {
                    let (seen, expected) = (get(&outside, one, mode), get(&there, one, mode));
                    prop_assert_eq!(seen.is_some(), expected.is_some(), "byte {}", byte);
                }
            }
        }
        for (owner, (file, _)) in opened.iter().enumerate() {
            locks.end_description(owner as u64, file);
        }
        prop_assert_eq!(get(&outside, Span::ALL, LockMode::Exclusive), None);
        prop_assert!(locks.state().stands.is_empty());
    }
}

#[test]
fn somebody_outside_is_in_the_way_and_nothing_is_half_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = folder.path().join("file");
    let (file, outside) = (open(&name), open_std(&name));
    let locks = Locks::default();
    let asked = |first, last| Asked {
        handle: 1,
        file: &file,
        owner: LockOwner::Description,
        span: Span { first, last },
        watch: 0,
    };
    let middle = Span { first: 5, last: 6 };
    set(&outside, middle, Some(LockMode::Exclusive)).expect("is free");
    let held = locks.set(&asked(2, 3), Some(LockMode::Shared));
    assert_eq!(held, Ok(()));
    // It has a part already, and the rest is in two pieces.
    let refused = locks.set(&asked(0, 9), Some(LockMode::Exclusive));
    assert_eq!(refused, Err(Errno::AGAIN));
    let others = |first, last| get(&outside, Span { first, last }, LockMode::Exclusive);
    assert_eq!(others(0, 1), None);
    assert_eq!(others(2, 3).expect("is kept").l_type, libc::F_RDLCK as i16);
    assert_eq!(others(4, 100), None);
    let told = locks.test(&asked(0, 9), LockMode::Shared).expect("asked");
    assert_eq!(told.map(|held| (held.span, held.pid)), Some((middle, -1)));
}

/// Before anybody has read the end of its stream, as here nobody does.
#[test]
fn who_has_ended_is_not_in_the_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = open(&folder.path().join("file"));
    let locks = Locks::default();
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let (_here, here) = UnixStream::pair().expect("a pair");
    let begin = |pid, stream: &UnixStream| {
        Attendance::begin(&locks, Attend { number: 0, pid }, stream).expect("a descriptor")
    };
    let (dies, lives) = (begin(11, &theirs), begin(22, &here));
    let by = |process: &Attendance<'_>| Asked {
        handle: 1,
        file: &file,
        owner: LockOwner::Process(process.number),
        span: Span::ALL,
        watch: 0,
    };
    let (one, other) = (by(&dies), by(&lives));
    assert_eq!(locks.set(&one, Some(LockMode::Exclusive)), Ok(()));
    let refused = locks.set(&other, Some(LockMode::Shared));
    assert_eq!(refused, Err(Errno::AGAIN));
    let held = locks.test(&other, LockMode::Shared).expect("asked");
    assert_eq!(held.map(|held| held.pid), Some(11));
    drop(ours);
    assert_eq!(locks.test(&other, LockMode::Shared), Ok(None));
    assert_eq!(locks.set(&other, Some(LockMode::Exclusive)), Ok(()));
}

#[test]
fn what_is_no_span_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = open(&folder.path().join("file"));
    let locks = Locks::default();
    for (first, last) in [(1, 0), (0, Span::END + 1), (u64::MAX, u64::MAX)] {
        let asked = Asked {
            handle: 1,
            file: &file,
            owner: LockOwner::Description,
            span: Span { first, last },
            watch: 0,
        };
        assert_eq!(locks.set(&asked, None), Err(Errno::INVAL));
        assert_eq!(locks.test(&asked, LockMode::Shared), Err(Errno::INVAL));
    }
    let asked = Asked {
        handle: 1,
        file: &file,
        owner: LockOwner::Process(3),
        span: Span::ALL,
        watch: 0,
    };
    let stranger = locks.set(&asked, Some(LockMode::Shared));
    assert_eq!(stranger, Err(Errno::NOLCK), "a process that nobody knows");
}

fn open_std(name: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(name).expect("opens")
}

fn open(name: &Path) -> Arc<OpenFile> {
    Arc::new(OpenFile::new(open_std(name).into(), true, file(7)))
}

fn record(span: Span, mode: Option<LockMode>) -> libc::flock {
    libc::flock {
        l_type: match mode {
            Some(LockMode::Shared) => libc::F_RDLCK as i16,
            Some(LockMode::Exclusive) => libc::F_WRLCK as i16,
            None => libc::F_UNLCK as i16,
        },
        l_whence: 0,
        l_start: span.first as i64,
        l_len: match span.last {
            Span::END => 0,
            last => (last - span.first + 1) as i64,
        },
        l_pid: 0,
    }
}

fn set(fd: &impl AsFd, span: Span, mode: Option<LockMode>) -> Result<(), Errno> {
    let record = record(span, mode);
    match fcntl(fd.as_fd(), FcntlArg::F_OFD_SETLK(&record)) {
        Ok(_) => Ok(()),
        Err(error) => Err(Errno::from_raw_os_error(error as i32)),
    }
}

fn get(fd: &impl AsFd, span: Span, mode: LockMode) -> Option<libc::flock> {
    let mut record = record(span, Some(mode));
    fcntl(fd.as_fd(), FcntlArg::F_OFD_GETLK(&mut record)).expect("can be asked");
    (i32::from(record.l_type) != libc::F_UNLCK).then_some(record)
}
