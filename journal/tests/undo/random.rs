//! Any steps, with a crash anywhere: going back to a mark gives the picture that was taken there.
//!
//! `WF_SEED` chooses the cases, `WF_FULL` makes them many.

use super::job::{Job, Not};
use super::picture::{Picture, compare};
use super::steps::{Step, change, step};
use journal::{Boot, Epoch, Files, JournalError, Stamp, fault};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::time::{SystemTime, UNIX_EPOCH};

/// How the machine ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The process is killed.
    Kill,
    /// Records that were not durable are cut at a place, or garbled there.
    Power { at: usize, garble: bool },
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        Just(End::Kill),
        (any::<usize>(), any::<bool>()).prop_map(|(at, garble)| End::Power { at, garble }),
    ]
}

fn run<S: Strategy>(
    name: &str,
    cases: u32,
    strategy: S,
    test: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let full = std::env::var_os("WF_FULL").is_some();
    let asked = std::env::var("WF_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    // The short run is the same each time; the long one is to find what nobody has seen.
    let seed: u64 = asked.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(1, |now| if full { now.as_nanos() as u64 } else { 1 })
    });
    let config = Config {
        cases: if full { cases * 40 } else { cases },
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..Config::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    for (place, byte) in bytes[8..].iter_mut().zip(name.bytes()) {
        *place = byte;
    }
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    if let Err(error) = TestRunner::new_with_rng(config, rng).run(&strategy, test) {
        panic!("WF_SEED={seed}: {error}");
    }
}

/// A job, and pictures of its marks.
struct Story {
    job: Job,
    held: Option<OwnedFd>,
    pictures: BTreeMap<Epoch, Picture>,
    crashes: u32,
}

impl Story {
    fn begin() -> Self {
        fault::disarm();
        let job = Job::new();
        let first = job.journal().epoch();
        let picture = job.picture();
        Story {
            job,
            held: None,
            pictures: BTreeMap::from([(first, picture)]),
            crashes: 0,
        }
    }

    fn some_mark(&self, number: usize) -> Epoch {
        let marks = self.job.journal().marks();
        marks[number % marks.len()].epoch
    }

    /// One step; the journal "dies" in it perhaps.
    fn step(&mut self, step: &Step) -> Result<(), Not> {
        match step {
            Step::Mark => {
                let picture = self.job.picture();
                let marks = self.job.journal().marks().len();
                let begun = self.job.journal().begin_epoch(b"a mark");
                if let Ok(epoch) = begun {
                    self.pictures.insert(epoch, picture);
                } else if self.crashed() {
                    // It may have come to be.
                    let reopened = self.reopen(End::Kill);
                    reopened.map_err(Not::Journal)?;
                    let now = self.job.journal().marks();
                    if now.len() > marks {
                        self.pictures.insert(now[marks].epoch, picture);
                    }
                    return Ok(());
                }
                Ok(begun.map(|_| ())?)
            }
            Step::Abort => {
                let marks = self.job.journal().marks();
                match &marks[..] {
                    [.., _, last] => Ok(self.job.journal().abort_epoch(last.epoch)?),
                    _ => Ok(()),
                }
            }
            Step::Forget => {
                let marks = self.job.journal().marks();
                let middle = marks[marks.len() / 2].epoch;
                Ok(self.job.journal().forget_before(middle)?)
            }
            Step::Undo(number) => {
                self.held = None;
                let to = self.some_mark(*number);
                Ok(self.job.journal().undo_to(to, Files::Fail).map(|_| ())?)
            }
            Step::Reopen => {
                self.job.close()?;
                Ok(self.job.open()?)
            }
            step => change(&self.job, &mut self.held, step),
        }
    }

    fn crashed(&self) -> bool {
        fault::is_dead()
    }

    /// The journal is opened again after it "died".
    fn reopen(&mut self, end: End) -> Result<(), JournalError> {
        self.crashes += 1;
        // A descriptor may outlive the shadow: the job's own.
        self.job.crash();
        fault::disarm();
        if let End::Power { at, garble } = end {
            self.held = None;
            lose_power(&mut self.job, at, garble);
        }
        self.job.open()
    }

    /// Goes back to a mark, however often it is interrupted; all must be as it was there.
    fn go_back(&mut self, to: Epoch, deaths: &[u64], end: End) -> Result<(), TestCaseError> {
        self.held = None;
        for death in deaths {
            fault::arm(*death, None);
            let undone = self.job.journal().undo_to(to, Files::Fail);
            if !self.crashed() {
                fault::disarm();
                undone.map_err(|error| TestCaseError::fail(format!("undo: {error}")))?;
                return self.compare(to);
            }
            self.reopen(end)
                .map_err(|error| TestCaseError::fail(format!("reopen: {error}")))?;
        }
        if let Some(undoing) = self.job.journal().undoing() {
            prop_assert_eq!(undoing, to);
        }
        let undone = self.job.journal().undo_to(to, Files::Fail);
        undone.map_err(|error| TestCaseError::fail(format!("undo to {to}: {error}")))?;
        self.compare(to)
    }

    fn compare(&mut self, to: Epoch) -> Result<(), TestCaseError> {
        let now = self.job.picture();
        let same = compare(&now, &self.pictures[&to]);
        same.map_err(|text| TestCaseError::fail(format!("undo to {to}: {text}")))?;
        self.pictures.retain(|epoch, _| *epoch <= to);
        Ok(())
    }
}

/// What was not durable may be lost: the segment's end, and slots. The machine starts anew.
fn lose_power(job: &mut Job, at: usize, garble: bool) {
    let left = OpenOptions::new()
        .read(true)
        .write(true)
        .open(job.dir.join("left"))
        .expect("opens");
    let number = |at| {
        let mut bytes = [0; 8];
        left.read_exact_at(&mut bytes, at).expect("reads");
        u64::from_le_bytes(bytes)
    };
    let (segment, durable) = (number(32), number(40));
    let slots = left.metadata().expect("reads").len() / 96;
    if slots > 1 {
        let slot = 1 + at as u64 % (slots - 1);
        left.write_all_at(&[0xa5; 40], slot * 96 + 8)
            .expect("writes");
    }
    let path = job.dir.join(format!("segment-{segment:016}"));
    if let Ok(file) = OpenOptions::new().read(true).write(true).open(path) {
        let len = file.metadata().expect("reads").len();
        let lost = len.saturating_sub(durable);
        if lost > 0 {
            let place = durable + at as u64 % lost;
            if garble {
                let rest = (len - place).min(100) as usize;
                file.write_all_at(&vec![0x5a; rest], place).expect("writes");
            } else {
                file.set_len(place).expect("cuts");
            }
        }
    }
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("is later");
    let mut id = [0; 16];
    id[..8].copy_from_slice(&(now.as_nanos() as u64).to_le_bytes());
    job.settings.boot = Some(Boot {
        id,
        began: Stamp {
            seconds: now.as_secs() as i64,
            nanoseconds: now.subsec_nanos(),
        },
    });
}

fn as_error(not: Not) -> TestCaseError {
    TestCaseError::fail(format!("{not:?}"))
}

#[test]
fn any_steps_are_undone_to_any_mark() {
    let steps = prop::collection::vec(step(), 1..40);
    run("steps", 1_200, (steps, any::<usize>()), |(steps, to)| {
        let mut story = Story::begin();
        for step in &steps {
            story.step(step).map_err(as_error)?;
            if let Step::Undo(_) = step {
                let epoch = story.job.journal().epoch();
                story.compare(epoch)?;
            }
        }
        let to = story.some_mark(to);
        story.go_back(to, &[], End::Kill)?;
        // And from there further back.
        let oldest = story.some_mark(0);
        story.go_back(oldest, &[], End::Kill)
    });
}

#[test]
fn a_crash_at_any_step_is_undone_to_any_mark() {
    let steps = prop::collection::vec(step(), 1..30);
    let deaths = prop::collection::vec(1..60_u64, 0..3);
    let strategy = (
        steps,
        prop::collection::vec((1..120_u64, end()), 1..3),
        deaths,
        end(),
        any::<usize>(),
    );
    run(
        "crash",
        1_800,
        strategy,
        |(steps, crashes, deaths, last_end, to)| {
            let mut story = Story::begin();
            let mut crashes = crashes.into_iter();
            let mut next = crashes.next();
            if let Some((step, _)) = next {
                fault::arm(step, None);
            }
            for step in &steps {
                let crashes_before = story.crashes;
                let undo_to = if let Step::Undo(number) = step {
                    Some(story.some_mark(*number))
                } else {
                    None
                };
                let done = story.step(step);
                if !story.crashed() && story.crashes == crashes_before {
                    done.map_err(as_error)?;
                    if undo_to.is_some() {
                        let epoch = story.job.journal().epoch();
                        story.compare(epoch)?;
                    }
                    continue;
                }
                if story.crashed() {
                    let end = next.map_or(End::Kill, |(_, end)| end);
                    let reopened = story.reopen(end);
                    reopened.map_err(|error| TestCaseError::fail(format!("reopen: {error}")))?;
                }
                if let Some(to) = undo_to {
                    story.go_back(to, &[], End::Kill)?;
                }
                next = crashes.next();
                if let Some((step, _)) = next {
                    fault::arm(step, None);
                }
            }
            fault::disarm();
            let to = story.some_mark(to);
            story.go_back(to, &deaths, last_end)?;
            let oldest = story.some_mark(0);
            story.go_back(oldest, &[], End::Kill)
        },
    );
}
