//! Any writes, by owners that are killed at any step, over lines that break at any step: the file is what it would be at once.

use super::*;
use crate::zeroed::zeroed;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::sync::atomic::Ordering::Relaxed;
use proptest::prelude::*;

const FILE: u64 = 7;

fn table() -> Box<Table> {
    let table = zeroed::<Table>();
    for (index, description) in table.descriptions.iter().enumerate().take(4) {
        description.name[0].store(100 + index as u64, Relaxed);
    }
    table
}

/// Nobody but these is alive.
struct One {
    id: u32,
    alive: &'static [u32],
}

impl Owner for One {
    fn id(&self) -> u32 {
        self.id
    }
    fn is_alive(&self, id: u32) -> bool {
        self.alive.contains(&id)
    }
    fn wait(&self, _: &AtomicU32, _: u32) {}
    fn wake(&self, _: &AtomicU32) {}
}

/// A shadow that keeps one answer for each lane, as the real one does.
#[derive(Default)]
struct Shadow {
    bytes: RefCell<Vec<u8>>,
    kept: RefCell<Vec<(u64, u64, Landed)>>,
    number: Cell<u64>,
    refuses: Cell<bool>,
}

impl Shadow {
    fn ask(
        &self,
        lane: u64,
        number: u64,
        piece: &Piece<'_>,
        most: usize,
    ) -> Result<Landed, Trouble> {
        let kept = self
            .kept
            .borrow()
            .iter()
            .find(|kept| kept.0 == lane)
            .copied();
        if let Some((_, known, landed)) = kept
            && known == number
        {
            return Ok(landed);
        }
        if self.refuses.get() {
            return Err(Trouble::Refused(28));
        }
        let mut bytes = self.bytes.borrow_mut();
        let appends = piece.handle == 1;
        let offset = if appends {
            bytes.len() as u64
        } else {
            piece.offset
        };
        let data = &piece.data[..piece.data.len().min(most)];
        write(&mut bytes, offset as usize, data);
        let landed = Landed {
            offset,
            len: data.len() as u64,
        };
        let mut all = self.kept.borrow_mut();
        all.retain(|kept| kept.0 != lane);
        all.push((lane, number, landed));
        Ok(landed)
    }
}

fn write(bytes: &mut Vec<u8>, at: usize, data: &[u8]) {
    if bytes.len() < at + data.len() {
        bytes.resize(at + data.len(), 0);
    }
    bytes[at..at + data.len()].copy_from_slice(data);
}

/// One owner's lane to it.
struct To<'a> {
    shadow: &'a Shadow,
    lane: u64,
    /// What becomes of the next request.
    fate: Fate,
    most: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    /// The answer does not come.
    Unanswered,
    /// The request does not arrive.
    Unheard,
}

impl Line for To<'_> {
    fn write(&mut self, piece: &Piece<'_>, sends: &dyn Fn(u64, u64)) -> Result<Landed, Trouble> {
        let number = self.shadow.number.get() + 1;
        self.shadow.number.set(number);
        sends(self.lane, number);
        self.again(self.lane, number, piece)
    }

    fn again(&mut self, lane: u64, number: u64, piece: &Piece<'_>) -> Result<Landed, Trouble> {
        let fate = core::mem::replace(&mut self.fate, Fate::Answered);
        if fate == Fate::Unheard {
            return Err(Trouble::Unreached);
        }
        let landed = self.shadow.ask(lane, number, piece, self.most);
        match fate {
            Fate::Unanswered => Err(Trouble::Unreached),
            _ => landed,
        }
    }
}

fn target(description: usize, offset: Option<u64>) -> Target {
    Target {
        file: FILE,
        handle: u64::from(offset.is_none()),
        description,
        name: 100 + description as u64,
        offset,
        most: ROOM,
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write {
        description: usize,
        at: Option<u64>,
        len: usize,
    },
    Send,
    /// Sent by somebody who does not hear the answer, and dies holding the buffer.
    Killed(Fate),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let fate = prop_oneof![Just(Fate::Unanswered), Just(Fate::Unheard)];
    let at = prop_oneof![Just(None), (0u64..3000).prop_map(Some)];
    let write = (0usize..3, at, 1usize..900);
    let write = write.prop_map(|(description, at, len)| Step::Write {
        description,
        at,
        len,
    });
    let step = prop_oneof![6 => write, 1 => Just(Step::Send), 2 => fate.prop_map(Step::Killed)];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn whatever_is_killed_all_is_written_once_and_in_order(steps in steps(), most in 1usize..2000) {
        let (table, shadow) = (table(), Shadow::default());
        let behind = &table.behind;
        let mut model = vec![];
        let mut lane = 1;
        for (number, step) in steps.iter().enumerate() {
            lane += 1;
            let me = One { id: lane as u32, alive: &[] };
            let mut held = behind.hold(place(FILE), &me);
            let mut line = To { shadow: &shadow, lane, fate: Fate::Answered, most };
            match step {
                Step::Write { description, at, len } => {
                    let data = vec![number as u8 + 1; *len];
                    let target = target(*description, *at);
                    if !held.fits(&target, *len) {
                        held.send(&table, &mut line).expect("is heard");
                    }
                    let put = held.put(&target, *len, |to| {
                        // SAFETY: there is room for so much.
                        #[allow(unsafe_code)]
                        unsafe { core::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) }
                    });
                    prop_assert_ne!(put, Put::Full);
                    prop_assert!(behind.is_dirty(place(FILE)));
                    let at = at.map_or(model.len(), |at| at as usize);
                    write(&mut model, at, &data);
                }
                Step::Send => {
                    held.send(&table, &mut line).expect("is heard");
                    prop_assert!(!behind.is_any_dirty());
                    prop_assert_eq!(&*shadow.bytes.borrow(), &model);
                }
                Step::Killed(fate) => {
                    line.fate = *fate;
                    let _ = held.send(&table, &mut line);
                    core::mem::forget(held);
                }
            }
        }
        let me = One { id: 9999, alive: &[] };
        let mut held = behind.hold(place(FILE), &me);
        held.send(&table, &mut To { shadow: &shadow, lane: 0, fate: Fate::Answered, most }).expect("is heard");
        prop_assert_eq!(&*shadow.bytes.borrow(), &model);
    }
}

#[test]
fn what_is_refused_is_told_to_its_description_and_gone() {
    let (table, shadow) = (table(), Shadow::default());
    let me = One { id: 1, alive: &[] };
    let mut held = table.behind.hold(place(FILE), &me);
    assert_eq!(
        held.put(&target(2, Some(0)), 5, |_| ()),
        Put::Done { first: true }
    );
    assert_eq!(
        held.put(&target(2, Some(5)), 5, |_| ()),
        Put::Done { first: false }
    );
    assert_eq!(
        held.put(&target(1, Some(10)), 5, |_| ()),
        Put::Full,
        "another description's"
    );
    assert!(held.is_of(2) && held.is_of_file(FILE) && !held.is_of_file(FILE + 1));
    shadow.refuses.set(true);
    let mut line = To {
        shadow: &shadow,
        lane: 1,
        fate: Fate::Answered,
        most: 100,
    };
    assert_eq!(held.send(&table, &mut line), Err(Trouble::Refused(28)));
    assert_eq!(table.descriptions[2].error.load(Relaxed), 28);
    assert!(!table.behind.is_any_dirty() && !held.is_of(2));
    shadow.refuses.set(false);
    assert_eq!(held.send(&table, &mut line), Ok(()));
    assert!(shadow.bytes.borrow().is_empty(), "it was dropped");
}

#[test]
fn an_append_tells_where_its_description_is_then() {
    let (table, shadow) = (table(), Shadow::default());
    shadow.bytes.borrow_mut().extend([1; 30]);
    let me = One { id: 1, alive: &[] };
    let mut held = table.behind.hold(place(FILE), &me);
    assert_eq!(
        held.put(&target(3, None), 12, |_| ()),
        Put::Done { first: true }
    );
    let mut line = To {
        shadow: &shadow,
        lane: 1,
        fate: Fate::Answered,
        most: 5,
    };
    assert_eq!(held.send(&table, &mut line), Ok(()));
    assert_eq!(table.descriptions[3].offset.load(Relaxed), 42);
}

#[test]
fn a_buffer_of_somebody_dead_is_taken_and_of_somebody_alive_is_waited_for() {
    let table = table();
    let dead = One { id: 5, alive: &[] };
    core::mem::forget(table.behind.hold(3, &dead));
    let me = One { id: 6, alive: &[6] };
    drop(table.behind.hold(3, &me));
    let held = table.behind.hold(3, &me);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let other = One {
                id: 7,
                alive: &[6, 7],
            };
            drop(table.behind.hold(3, &other));
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!other.is_finished());
        drop(held);
        other.join().expect("has it");
    });
}

#[test]
fn there_is_room_for_so_much() {
    let table = table();
    let me = One { id: 1, alive: &[] };
    let mut held = table.behind.hold(place(FILE), &me);
    assert_eq!(held.put(&target(0, Some(9)), ROOM + 1, |_| ()), Put::Full);
    assert_eq!(
        held.put(&target(0, Some(9)), ROOM - 1, |_| ()),
        Put::Done { first: true }
    );
    assert!(!held.fits(&target(0, Some(8)), 1), "before its beginning");
    assert!(held.fits(&target(0, Some(9 + ROOM as u64 - 1)), 1));
    assert!(!held.fits(&target(0, Some(9 + ROOM as u64 - 1)), 2));
    assert!(!held.fits(&target(0, Some(9 + ROOM as u64)), 1), "a gap");
    assert!(!held.fits(&target(0, None), 1), "an append");
}

#[test]
fn ids_are_never_given_twice_nor_none() {
    let table = table();
    table.behind.owners.store(u32::MAX - 1, Relaxed);
    let ids = [(); 3].map(|()| table.behind.new_id());
    assert_eq!(ids, [u32::MAX, 1, 2]);
}

#[test]
fn what_goes_behind_without_waiting_goes_nowhere_else() {
    let table = table();
    let behind = &table.behind;
    let try_put = |target: Target, claims: bool| {
        let copies = Cell::new(false);
        let done = behind.try_put(8, &target, 4, || claims, |_| copies.set(true));
        assert_eq!(done, copies.get());
        done
    };
    assert!(!try_put(target(0, Some(10)), true), "it is clean");
    let me = One { id: 1, alive: &[1] };
    let mut held = behind.hold(place(FILE), &me);
    let first = held.put(&target(0, Some(10)), 6, |_| ());
    assert_eq!(first, Put::Done { first: true });
    assert!(!try_put(target(0, Some(16)), true), "somebody has it");
    drop(held);
    assert!(!try_put(target(1, Some(16)), true), "another description's");
    assert!(!try_put(target(0, Some(17)), true), "a gap");
    assert!(!try_put(target(0, Some(16)), false), "not claimed");
    assert!(try_put(target(0, Some(16)), true));
    assert!(!try_put(target(0, Some(16 + ROOM as u64)), true), "no room");
    assert!(
        try_put(target(0, Some(20)), true),
        "it was let go each time"
    );
    let mut held = behind.hold(place(FILE), &me);
    assert!(held.fits(&target(0, Some(24)), 1) && !held.fits(&target(0, Some(25)), 1));
    let shadow = Shadow::default();
    let mut line = To {
        shadow: &shadow,
        lane: 1,
        fate: Fate::Answered,
        most: ROOM,
    };
    assert_eq!(held.send(&table, &mut line), Ok(()));
    assert_eq!(shadow.bytes.borrow().len(), 24);
}
