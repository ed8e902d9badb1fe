//! What of mappings is slow to read, or costs a call each: taken from before the stop, completed while the job is stopped, looked at again in
//! the picture.

use super::refusal::Refusals;
use super::subject::Subject;
use super::vm_flags::vm_flags;
use super::{CaptureError, Captured, EarlyView, policies};
use crate::inject::Workshop;
use crate::pages;
use crate::procfs::{ProcDir, ProcfsError, SmapsEntry};
use crate::snapshot::{Mapping, MappingKind, Process, mapping_flags};
use crate::tracee::{HostPid, HostTid, StoppedProcess};
use std::collections::HashMap;
use std::iter::Peekable;
use std::ops::Range;
use std::slice::IterMut;
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// What fork does not hand on.
const APART: u32 = mapping_flags::DONTFORK | mapping_flags::WIPEONFORK;

/// What of processes is slow to read, since the kernel looks at each of their pages for it: it is read while something else is done, if
/// a thread can be had for it.
#[derive(Debug, Default)]
pub(super) struct Slow<'scope> {
    smaps: HashMap<i32, ScopedJoinHandle<'scope, Result<Vec<SmapsEntry>, ProcfsError>>>,
    placed: HashMap<i32, ScopedJoinHandle<'scope, Option<u64>>>,
}

impl<'scope> Slow<'scope> {
    /// Begins to read of these processes.
    pub(super) fn begin(scope: &'scope Scope<'scope, '_>, pids: &[HostPid]) -> Self {
        let mut slow = Slow::default();
        for HostPid(pid) in pids.iter().copied() {
            let smaps = move || ProcDir::of(pid).smaps();
            let smaps = Builder::new().spawn_scoped(scope, smaps);
            slow.smaps.extend(smaps.ok().map(|reading| (pid, reading)));
            let placed = move || policies::first_placed(&ProcDir::of(pid));
            let placed = Builder::new().spawn_scoped(scope, placed);
            slow.placed
                .extend(placed.ok().map(|reading| (pid, reading)));
        }
        slow
    }

    /// The mappings of a process; read now if that was not begun.
    pub(super) fn smaps(&mut self, subject: &Subject) -> Result<Vec<SmapsEntry>, ProcfsError> {
        match self.smaps.remove(&subject.pid) {
            Some(reading) => ended(reading),
            None => subject.dir.smaps(),
        }
    }

    /// As [`policies::first_placed`].
    pub(super) fn first_placed(&mut self, subject: &Subject) -> Option<u64> {
        match self.placed.remove(&subject.pid) {
            Some(reading) => ended(reading),
            None => policies::first_placed(&subject.dir),
        }
    }
}

/// What a thread comes to.
fn ended<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    let panic = |panic| std::panic::resume_unwind(panic);
    thread.join().unwrap_or_else(panic)
}

/// What of the mappings of a process was read before it was stopped, and what it is asked for itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// Flags are from before the stop.
    pub(super) from_before: bool,
    /// Some of its memory has a policy: it is asked for that of each mapping.
    pub(super) placed: bool,
}

impl Asked {
    /// Looks at `numa_maps`, unless that was done before the stop and the picture shows what has become of it.
    pub(super) fn about(
        subject: &Subject,
        from_before: bool,
        stopped: bool,
        slow: &mut Slow<'_>,
        early: &mut EarlyView,
    ) -> Self {
        let placed = if from_before {
            !early.unplaced.contains(&subject.pid)
        } else {
            slow.first_placed(subject).is_some()
        };
        if !stopped && !placed {
            early.unplaced.insert(subject.pid);
        }
        Asked {
            from_before,
            placed,
        }
    }

    /// Adds what is read while the job is stopped: policies, and guards that no picture will show.
    pub(super) fn complete(
        self,
        stopped: &mut StoppedProcess,
        workshop: &mut Workshop,
        process: &mut Process,
    ) -> Result<(), CaptureError> {
        let pid = stopped.pid;
        let all = process.memory.mappings.iter();
        let unseen = all.clone().filter(|mapping| {
            self.placed || self.from_before && mapping.has(mapping_flags::DONTFORK)
        });
        process.settings.policies =
            policies::of_mappings(unseen, HostTid(pid.0), stopped, workshop)?;
        for mapping in all.filter(|mapping| !self.from_before || mapping.flags & APART != 0) {
            process.settings.guards.extend(guards_of(pid, mapping)?);
        }
        Ok(())
    }
}

/// The guards in a mapping, where its flags or the kernel say that there may be some.
fn guards_of(pid: HostPid, mapping: &Mapping) -> Result<Vec<Range<u64>>, CaptureError> {
    if is_of_kernel(mapping)
        || !mapping.has(mapping_flags::GUARDED) && !pages::guards_have_no_flag()
    {
        return Ok(vec![]);
    }
    let found = pages::guards(pid, mapping.start..mapping.end);
    found.map_err(|error| CaptureError::Pages(Box::new(error)))
}

/// The mappings of a process beside those of its picture, both in order.
struct Comparison<'a> {
    pid: i32,
    picture: HostPid,
    mappings: Peekable<IterMut<'a, Mapping>>,
    guards: Vec<Range<u64>>,
    refusals: Refusals,
}

impl Comparison<'_> {
    /// Takes the flags of the mappings that lie in this one of the picture's.
    fn with(&mut self, entry: &SmapsEntry) -> Result<(), CaptureError> {
        while let Some(mapping) = self
            .mappings
            .next_if(|mapping| mapping.start < entry.line.end)
        {
            if is_of_kernel(mapping) {
                continue;
            }
            if mapping.start < entry.line.start || entry.line.end < mapping.end {
                self.missing(mapping)?;
                continue;
            }
            let kept = mapping_flags::LOCKED | mapping_flags::LOCK_ONFAULT;
            match vm_flags(&entry.vm_flags, false) {
                Ok(found) => {
                    if found.bits & APART & !mapping.flags != 0 {
                        return Err(self.changed(mapping));
                    }
                    mapping.flags = found.bits & !kept | mapping.flags & kept;
                    mapping.pkey = entry.pkey;
                    if mapping.flags & APART == 0 {
                        self.guards.extend(guards_of(self.picture, mapping)?);
                    }
                }
                Err(reason) => {
                    let object = format!("mapping {:x}-{:x}", mapping.start, mapping.end);
                    self.refusals.add((self.pid, ""), object, reason);
                }
            }
        }
        Ok(())
    }

    /// When the picture has no more mappings.
    fn end(mut self) -> Result<(Vec<Range<u64>>, Refusals), CaptureError> {
        while let Some(mapping) = self.mappings.next() {
            if !is_of_kernel(mapping) {
                self.missing(mapping)?;
            }
        }
        Ok((self.guards, self.refusals))
    }

    /// The picture does not have it, as fork does not hand on some.
    fn missing(&self, mapping: &Mapping) -> Result<(), CaptureError> {
        if mapping.has(mapping_flags::DONTFORK) {
            return Ok(());
        }
        Err(self.changed(mapping))
    }

    fn changed(&self, mapping: &Mapping) -> CaptureError {
        CaptureError::MappingChanged {
            pid: self.pid,
            start: mapping.start,
            end: mapping.end,
        }
    }
}

fn is_of_kernel(mapping: &Mapping) -> bool {
    matches!(
        mapping.kind,
        MappingKind::Vdso | MappingKind::Vvar | MappingKind::VvarVclock
    )
}

impl Captured {
    /// Whether the flags of mappings are those from before the stop, and of new ones guesses, until [`Captured::verify_mappings`] has been
    /// called for each process.
    #[must_use]
    pub fn flags_unverified(&self) -> bool {
        self.flags_unverified
    }

    /// Takes the flags of process `index`'s mappings from its picture, which shows them as they were at
    /// the moment of the freeze; to be called when the job goes on, unless they were read while it
    /// was stopped.
    ///
    /// # Errors
    /// [`CaptureError::MappingChanged`] if contents were to be copied while frozen and have not been;
    /// [`CaptureError::Refused`] for flags that cannot be carried; [`CaptureError::Pages`].
    pub fn verify_mappings(&mut self, index: usize, picture: HostPid) -> Result<(), CaptureError> {
        let (dir, pid) = (ProcDir::of(picture.0), self.pids[index]);
        let process = &mut self.snapshot.processes[index];
        let mut comparison = Comparison {
            pid,
            picture,
            mappings: process.memory.mappings.iter_mut().peekable(),
            guards: vec![],
            refusals: Refusals::default(),
        };
        let mut compared = Ok(());
        let placed = std::thread::scope(|scope| {
            let placed = Builder::new().spawn_scoped(scope, || policies::first_placed(&dir));
            dir.each_of_smaps(|entry| {
                if compared.is_ok() {
                    compared = comparison.with(&entry);
                }
            })?;
            Ok::<_, ProcfsError>(placed.map_or_else(|_| policies::first_placed(&dir), ended))
        })?;
        compared?;
        if !self.placed[index]
            && let Some(start) = placed
        {
            return Err(CaptureError::MappingChanged {
                pid,
                start,
                end: start,
            });
        }
        let (guards, refusals) = comparison.end()?;
        let found = &mut process.settings.guards;
        found.extend(guards);
        found.sort_by_key(|range| range.start);
        refusals.into_result().map_err(CaptureError::Refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::MapsLine;
    use crate::snapshot::KernelPath;

    const DONTFORK: u32 = mapping_flags::DONTFORK;

    fn mapping((start, end): (u64, u64), kind: MappingKind, flags: u32) -> Mapping {
        Mapping {
            start,
            end,
            prot: 3,
            kind,
            flags,
            pkey: 0,
            name: KernelPath(vec![]),
        }
    }

    fn anonymous(range: (u64, u64), flags: u32) -> Mapping {
        mapping(range, MappingKind::Anonymous { huge_shift: 0 }, flags)
    }

    fn entry((start, end): (u64, u64), codes: &[[u8; 2]]) -> SmapsEntry {
        SmapsEntry {
            line: MapsLine {
                start,
                end,
                ..MapsLine::default()
            },
            pkey: 5,
            vm_flags: codes.into(),
            ..SmapsEntry::default()
        }
    }

    /// The mappings afterwards, or where the first lies that has changed.
    fn compare(mut mappings: Vec<Mapping>, entries: &[SmapsEntry]) -> Result<Vec<Mapping>, u64> {
        let pid = std::process::id() as i32;
        let mut comparison = Comparison {
            pid,
            picture: HostPid(pid),
            mappings: mappings.iter_mut().peekable(),
            guards: vec![],
            refusals: Refusals::default(),
        };
        let mut compared = Ok(());
        for entry in entries {
            compared = compared.and_then(|()| comparison.with(entry));
        }
        match compared.and_then(|()| comparison.end()) {
            Ok((_, refusals)) => assert!(refusals.into_result().is_ok()),
            Err(CaptureError::MappingChanged { start, .. }) => return Err(start),
            Err(error) => panic!("{error}"),
        }
        Ok(mappings)
    }

    #[test]
    fn mappings_get_the_flags_of_the_one_in_which_they_lie() {
        let before = vec![
            anonymous((0x1000, 0x2000), 0),
            anonymous((0x2000, 0x4000), mapping_flags::LOCKED),
            mapping((0x5000, 0x6000), MappingKind::Vdso, 0),
            anonymous((0x8000, 0x9000), 0),
        ];
        // The first two are one in the picture; it has what the job has not, too.
        let entries = [
            entry((0x1000, 0x4000), &[*b"rd", *b"dd"]),
            entry((0x6000, 0x7000), &[*b"hg"]),
            entry((0x8000, 0x9000), &[*b"nh"]),
        ];
        let after = compare(before, &entries).expect("the same");
        let found: Vec<(u32, u32)> = after.iter().map(|one| (one.flags, one.pkey)).collect();
        let dump = mapping_flags::DONTDUMP;
        let expected = [
            (dump, 5),
            (dump | mapping_flags::LOCKED, 5),
            (0, 0),
            (mapping_flags::NOHUGEPAGE, 5),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_the_picture_does_not_have_was_not_to_be_handed_on_or_has_changed() {
        let first = anonymous((0x1000, 0x2000), 0);
        let there = entry((0x1000, 0x2000), &[]);
        let apart = anonymous((0x3000, 0x4000), DONTFORK);
        let last = anonymous((0x5000, 0x6000), 0);
        let behind = entry((0x5000, 0x6000), &[]);
        // In the middle, and at the end.
        let all = vec![first.clone(), apart.clone(), last.clone()];
        assert!(compare(all, &[there.clone(), behind]).is_ok());
        assert!(compare(vec![first.clone(), apart], std::slice::from_ref(&there)).is_ok());
        let lost = vec![first.clone(), last];
        assert_eq!(compare(lost, std::slice::from_ref(&there)), Err(0x5000));
        // Before all else, cut at its end or its beginning, and now one that a fork does not get as it is.
        let cut = anonymous((0x1000, 0x3000), 0);
        assert_eq!(
            compare(vec![cut], std::slice::from_ref(&there)),
            Err(0x1000)
        );
        let begun = anonymous((0xf00, 0x2000), 0);
        assert_eq!(compare(vec![begun], &[there]), Err(0xf00));
        assert_eq!(compare(vec![first.clone()], &[]), Err(0x1000));
        let wiped = entry((0x1000, 0x2000), &[*b"wf"]);
        assert_eq!(compare(vec![first], &[wiped]), Err(0x1000));
    }
}
