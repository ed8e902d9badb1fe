//! Any requests, marks and undos: a mark gives the picture that was taken there.
//!
//! `WF_SEED` chooses the cases, `WF_FULL` makes them many.

use crate::picture::{Picture, compare};
use crate::site::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use shadow::Epoch;
use std::collections::BTreeMap;
use wire::{Allocate, Copy, Request, SetXattr, Stamp, What};

/// What a job, or its checkpointer, asks for next. Names are few, so that steps meet.
#[derive(Clone, Debug)]
enum Step {
    Open(String, u32),
    Write(usize, u64, usize),
    WriteNamed(String, u32, u64, usize),
    Allocate(usize, u32, u64, u64),
    Copy(usize, usize, u64, u64, u64),
    Close(usize),
    Size(String, u64),
    Mode(String, u32),
    Times(String, i64),
    Xattr(String, u8),
    NoXattr(String, u8),
    Folder(String),
    Fifo(String),
    SoftLink(String, String),
    Remove(String, bool),
    Rename(String, String, u32),
    Link(String, String),
    Mark,
    Abort,
    Forget,
    Undo(usize),
}

fn name() -> impl Strategy<Value = String> {
    let part = || prop::sample::select(vec!["a", "b", "c"]);
    prop_oneof![
        3 => part().prop_map(str::to_owned),
        4 => (part(), part()).prop_map(|(one, two)| format!("{one}/{two}")),
        2 => (part(), part(), part()).prop_map(|(one, two, three)| format!("{one}/{two}/{three}")),
    ]
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..5_000_u64, 3 => 65_000..66_500_u64, 1 => 0..300_000_u64]
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 0..3_000_usize, 1 => 60_000..140_000_usize]
}

fn flags() -> impl Strategy<Value = u32> {
    let making = O_CREAT;
    prop::sample::select(vec![
        O_RDONLY,
        O_RDWR,
        O_RDWR | making,
        O_RDWR | making,
        O_WRONLY | making | O_EXCL,
        O_WRONLY | making | O_TRUNC,
        O_RDWR | O_TRUNC,
        O_RDONLY | O_TRUNC,
        O_WRONLY | O_APPEND,
        O_RDWR | O_APPEND | making,
    ])
}

fn step() -> impl Strategy<Value = Step> {
    let modes = vec![0o755, 0o700, 0o1777, 0o644, 0o600];
    prop_oneof![
        6 => (name(), flags()).prop_map(|(name, flags)| Step::Open(name, flags)),
        8 => (any::<usize>(), offset(), len()).prop_map(|(at, offset, len)| Step::Write(at, offset, len)),
        8 => (name(), flags(), offset(), len())
            .prop_map(|(name, flags, offset, len)| Step::WriteNamed(name, flags, offset, len)),
        2 => (any::<usize>(), prop::sample::select(vec![0_u32, 1, 3, 0x10, 0x8, 0x20]), offset(), offset())
            .prop_map(|(at, mode, offset, len)| Step::Allocate(at, mode, offset, len + 1)),
        2 => (any::<usize>(), any::<usize>(), offset(), offset(), offset())
            .prop_map(|(from, to, one, two, len)| Step::Copy(from, to, one, two, len)),
        2 => any::<usize>().prop_map(Step::Close),
        3 => (name(), offset()).prop_map(|(name, size)| Step::Size(name, size)),
        2 => (name(), prop::sample::select(modes)).prop_map(|(name, mode)| Step::Mode(name, mode)),
        2 => (name(), -5_000_000_000..5_000_000_000_i64).prop_map(|(name, at)| Step::Times(name, at)),
        2 => (name(), 0..3_u8).prop_map(|(name, key)| Step::Xattr(name, key)),
        1 => (name(), 0..3_u8).prop_map(|(name, key)| Step::NoXattr(name, key)),
        8 => name().prop_map(Step::Folder),
        1 => name().prop_map(Step::Fifo),
        2 => (name(), name()).prop_map(|(name, target)| Step::SoftLink(name, target)),
        6 => (name(), any::<bool>()).prop_map(|(name, folder)| Step::Remove(name, folder)),
        8 => (name(), name(), prop::sample::select(vec![0_u32, 0, 1, 2]))
            .prop_map(|(from, to, flags)| Step::Rename(from, to, flags)),
        4 => (name(), name()).prop_map(|(from, to)| Step::Link(from, to)),
        4 => Just(Step::Mark),
        1 => Just(Step::Abort),
        1 => Just(Step::Forget),
        1 => any::<usize>().prop_map(Step::Undo),
    ]
}

struct Story {
    site: Site,
    open: Vec<u64>,
    pictures: BTreeMap<Epoch, Picture>,
}

impl Story {
    fn begin() -> Self {
        let site = Site::new();
        let first = site.session.marks().expect("has some")[0].epoch;
        let pictures = BTreeMap::from([(first, site.picture())]);
        Story {
            site,
            open: vec![],
            pictures,
        }
    }

    fn handle(&self, number: usize) -> u64 {
        match self.open.len() {
            0 => u64::MAX,
            len => self.open[number % len],
        }
    }

    /// What a job asks for; what fails, fails.
    fn ask(&mut self, step: &Step) -> Done {
        let filled = |len: usize| vec![(len % 251) as u8; len];
        let site = &self.site;
        match step {
            Step::Open(name, flags) => {
                let handle = site.handle(name, *flags)?;
                self.open.push(handle);
                Ok(())
            }
            Step::Write(at, offset, len) => site.write_to(self.handle(*at), *offset, &filled(*len)),
            Step::WriteNamed(name, flags, offset, len) => {
                site.write(name, *flags, *offset, &filled(*len))
            }
            Step::Allocate(at, mode, offset, len) => {
                let (offset, len) = match mode {
                    // Of whole blocks only.
                    0x8 | 0x20 => (offset / 4096 * 4096, (len / 4096 + 1) * 4096),
                    _ => (*offset, *len),
                };
                let handle = self.handle(*at);
                let request = Allocate {
                    handle,
                    mode: *mode,
                    offset,
                    len,
                };
                site.ask(Request::Allocate(request), &[]).map(|_| ())
            }
            Step::Copy(from, to, from_offset, to_offset, len) => {
                let copy = Copy {
                    from: self.handle(*from),
                    from_offset: *from_offset,
                    to: self.handle(*to),
                    to_offset: *to_offset,
                    len: *len,
                };
                site.ask(Request::Copy(copy), &[]).map(|_| ())
            }
            Step::Close(at) => {
                if !self.open.is_empty() {
                    let at = at % self.open.len();
                    site.close(self.open.swap_remove(at));
                }
                Ok(())
            }
            Step::Size(name, size) => site.change(name, What::Size(*size)),
            Step::Mode(name, mode) => site.change(name, What::Mode(*mode | 0o700)),
            Step::Times(name, seconds) => {
                let stamp = Stamp {
                    seconds: *seconds,
                    nanoseconds: 77,
                };
                site.change(name, What::Times(Some(None), Some(Some(stamp))))
            }
            Step::Xattr(name, key) | Step::NoXattr(name, key) => {
                let path = site.path(name);
                let (place, name) = (place(&path), format!("user.key{key}"));
                let follow = false;
                let name = name.as_bytes();
                let request = match step {
                    Step::Xattr(..) => Request::SetXattr(SetXattr {
                        place,
                        follow,
                        name,
                        flags: 0,
                    }),
                    _ => Request::RemoveXattr(wire::RemoveXattr {
                        place,
                        follow,
                        name,
                    }),
                };
                site.ask(request, &filled(usize::from(*key) * 50))
                    .map(|_| ())
            }
            Step::Folder(name) => site.make_folder(name),
            Step::Fifo(name) => site.make_fifo(name),
            Step::SoftLink(name, target) => site.make_link(name, target),
            Step::Remove(name, folder) => site.remove(name, *folder),
            Step::Rename(from, to, flags) => site.rename(from, to, *flags),
            Step::Link(from, to) => site.link(from, to),
            Step::Mark | Step::Abort | Step::Forget | Step::Undo(_) => Ok(()),
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let marks = self.site.session.marks().expect("has some");
        match step {
            Step::Mark => {
                let picture = self.site.picture();
                self.pictures.insert(self.site.mark(), picture);
            }
            Step::Abort => {
                if let [.., _, last] = &marks[..] {
                    self.site.session.abort(last.epoch).map_err(as_error)?;
                }
            }
            Step::Forget => {
                let middle = marks[marks.len() / 2].epoch;
                self.site.session.forget_before(middle).map_err(as_error)?;
            }
            Step::Undo(number) => self.go_back(*number)?,
            step => {
                // The journal's own failure.
                if let Err(errno @ (EIO | ENOSPC | EDQUOT)) = self.ask(step) {
                    return Err(TestCaseError::fail(format!("{step:?}: errno {errno}")));
                }
            }
        }
        Ok(())
    }

    fn go_back(&mut self, number: usize) -> Result<(), TestCaseError> {
        let marks = self.site.session.marks().expect("has some");
        let to = marks[number % marks.len()].epoch;
        // A job that goes back opens its files again.
        for handle in self.open.drain(..) {
            self.site.close(handle);
        }
        self.site.try_undo(to).map_err(as_error)?;
        let same = compare(&self.site.picture(), &self.pictures[&to]);
        same.map_err(|text| TestCaseError::fail(format!("undo to {to}: {text}")))?;
        self.pictures.retain(|epoch, _| *epoch <= to);
        Ok(())
    }
}

fn as_error(error: impl std::error::Error) -> TestCaseError {
    TestCaseError::fail(format!("{error}: {:?}", error.source()))
}

#[test]
fn any_requests_are_undone_to_any_mark() {
    let full = std::env::var_os("WF_FULL").is_some();
    let asked = std::env::var("WF_SEED").ok();
    // The short run is the same each time; the long one is to find what nobody has seen.
    let seed: u64 = asked.and_then(|text| text.parse().ok()).unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| if full { now.as_nanos() as u64 } else { 1 })
    });
    let config = Config {
        cases: if full { 24_000 } else { 600 },
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..Config::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let steps = prop::collection::vec(step(), 1..60);
    let told =
        TestRunner::new_with_rng(config, rng).run(&(steps, any::<usize>()), |(steps, to)| {
            let mut story = Story::begin();
            for step in &steps {
                story.step(step)?;
            }
            story.go_back(to)?;
            // And from there to the begin of what is kept.
            story.go_back(0)
        });
    if let Err(error) = told {
        panic!("WF_SEED={seed}: {error}");
    }
}
