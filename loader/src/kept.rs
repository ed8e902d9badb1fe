//! Memory of the job that is put in its place before its process is made, which inherits it (docs/adr/0029).
//!
//! ```text
//! operations --wanted--> runs of private anonymous memory --ahead::put--> filled --clone--> P1 --clone--> the job
//! ```
//! # What callers may rely on
//! What a run holds is what the operations up to `Fill` would have made of it: the same mappings, the same advice, the
//! same contents of every chunk that lies in it as a whole.
//!
//! # What it does not do
//! Only large memory of a job with one process is worth it, and only what depends on nothing else that is set up before.

use crate::abi::*;
use crate::context::Context;
use crate::sys;
use core::ops::Range;
use loader::ops::{AnyOp, Call, StreamKind};

/// Most runs; the others are filled as ever.
const MOST: usize = 64;
/// Less than this is not worth a run.
const LEAST: u64 = 1 << 20;

/// How memory is mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    pub prot: u64,
    pub flags: u64,
    /// About the size of its pages; 0: none.
    pub advice: u64,
}

/// Adjacent mappings of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    pub start: u64,
    pub end: u64,
    pub kind: Kind,
    /// The part of it that was there before, and is as noted.
    pub known: (u64, u64),
}

impl Run {
    pub fn range(&self) -> Range<u64> {
        self.start..self.end
    }

    /// What it has in common with a range.
    pub fn common(&self, with: &Range<u64>) -> Range<u64> {
        let start = self.start.max(with.start);
        start..self.end.min(with.end).max(start)
    }
}

/// The runs, in order of their addresses.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    runs: [Run; MOST],
    count: usize,
}

impl Kept {
    /// None.
    pub const NONE: Kept = Kept {
        runs: [Run {
            start: 0,
            end: 0,
            kind: Kind {
                prot: 0,
                flags: 0,
                advice: 0,
            },
            known: (0, 0),
        }; MOST],
        count: 0,
    };

    /// What could be put in its place ahead, of the image that the context is about.
    pub fn wanted(context: &Context) -> Kept {
        let mut kept = Kept::NONE;
        let mut processes = (1..context.ops.header().streams)
            .filter_map(|index| context.ops.stream(index))
            .filter(|entry| entry.kind == StreamKind::Process as u64);
        let (Some(process), None) = (processes.next(), processes.next()) else {
            return kept;
        };
        let (mut run, mut mapping) = (Run::default(), Run::default());
        for record in context.ops.records(&process).filter_map(Result::ok) {
            match record.op {
                AnyOp::Call(call) if decides_places_or_sizes(&call) => return Kept::NONE,
                AnyOp::Call(call) if call.nr == SYS_MMAP => {
                    kept.join(&mut run, &mapping);
                    mapping = mapped(&call).unwrap_or_default();
                }
                AnyOp::Call(call) if is_about_pages(&call, &mapping) => {
                    mapping.kind.advice = call.a2;
                }
                AnyOp::Fill(_) => break,
                _ => {}
            }
        }
        kept.join(&mut run, &mapping);
        kept.add(&run);
        kept
    }

    /// Lets the run grow by a mapping, or begins another.
    fn join(&mut self, run: &mut Run, mapping: &Run) {
        if mapping.start == mapping.end {
            return;
        }
        if (run.end, run.kind) == (mapping.start, mapping.kind) {
            run.end = mapping.end;
            return;
        }
        self.add(run);
        *run = *mapping;
    }

    fn add(&mut self, run: &Run) {
        let is_worth_it = run.end - run.start >= LEAST;
        if let Some(place) = self.runs.get_mut(self.count).filter(|_| is_worth_it) {
            *place = *run;
            self.count += 1;
        }
    }

    pub fn runs(&self) -> &[Run] {
        &self.runs[..self.count]
    }

    pub fn runs_mut(&mut self) -> &mut [Run] {
        &mut self.runs[..self.count]
    }

    /// Keeps those for which `is_good`.
    pub fn retain(&mut self, mut is_good: impl FnMut(&mut Run) -> bool) {
        let mut count = 0;
        for index in 0..self.count {
            let mut run = self.runs[index];
            if is_good(&mut run) {
                self.runs[count] = run;
                count += 1;
            }
        }
        self.count = count;
    }

    /// Whether all of this lies in one of them.
    pub fn has(&self, at: u64, len: u64) -> bool {
        let end = at.saturating_add(len);
        let mut runs = self.runs().iter();
        runs.any(|run| run.start <= at && end <= run.end)
    }

    /// Whether some of it lies in one of them.
    pub fn touches(&self, at: u64, len: u64) -> bool {
        let end = at.saturating_add(len);
        let mut runs = self.runs().iter();
        runs.any(|run| run.start < end && at < run.end)
    }

    /// Whether all of this was there before.
    pub fn knows(&self, at: u64, len: u64) -> bool {
        let end = at.saturating_add(len);
        let mut runs = self.runs().iter();
        runs.any(|run| run.known.0 <= at && end <= run.known.1)
    }

    /// Whether this call would only map what is there.
    pub fn is_there(&self, call: &Call) -> bool {
        self.count > 0
            && call.nr == SYS_MMAP
            && mapped(call).is_some_and(|mapping| {
                let kind = |run: &Run| (run.kind.prot, run.kind.flags);
                let mut runs = self.runs().iter();
                runs.any(|run| {
                    run.start <= mapping.start
                        && mapping.end <= run.end
                        && kind(run) == kind(&mapping)
                })
            })
    }
}

/// The mapping that a call makes, if it is of private anonymous memory that can be written, and no more.
fn mapped(call: &Call) -> Option<Run> {
    const WANTED: u64 = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS;
    const ACCESS: u64 = PROT_READ | PROT_WRITE;
    let is_plain = call.a3 & !MAP_NORESERVE == WANTED && call.a4 == u64::MAX && call.pointers == 0;
    let is_good = is_plain && call.a2 & ACCESS == ACCESS;
    is_good.then(|| Run {
        start: call.a0,
        end: call.a0.saturating_add(call.a1),
        kind: Kind {
            prot: call.a2,
            flags: call.a3,
            advice: 0,
        },
        known: (0, 0),
    })
}

fn is_about_pages(call: &Call, mapping: &Run) -> bool {
    let is_advice = call.nr == SYS_MADVISE && matches!(call.a2, MADV_HUGEPAGE | MADV_NOHUGEPAGE);
    is_advice && (call.a0, call.a0.saturating_add(call.a1)) == (mapping.start, mapping.end)
}

/// Calls before memory is filled that decide from where it comes, or in what pieces: only the process itself has that set.
fn decides_places_or_sizes(call: &Call) -> bool {
    let is_option = |option| call.nr == SYS_PRCTL && call.a0 == option;
    match call.nr {
        SYS_MBIND | SYS_SET_MEMPOLICY_HOME_NODE => true,
        SYS_SET_MEMPOLICY => call.a0 != MPOL_DEFAULT,
        _ => is_option(PR_SET_THP_DISABLE),
    }
}

/// Gives up our share of it: the job has its own.
pub fn let_go(context: &mut Context) {
    for run in context.kept.runs() {
        // SAFETY: nothing of the loader's lies in memory of the job.
        let _ = unsafe { sys::unmap(run.start, run.end - run.start) };
    }
    context.kept = Kept::NONE;
}
