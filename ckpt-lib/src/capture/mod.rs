//! From a stopped job to a snapshot.
//!
//! ```text
//! refuse_early  what is wrong with the job, while it runs; remembers what is slow to find
//! capture       stopped: subjects -> descriptors -> mappings -> processes, threads (outside)
//!                         `-> one list of calls in each thread (inside) -> SnapshotV1
//! Captured      running again: verify_mappings against the picture, finish_hashes
//! ```
//! # What callers may rely on
//! Everything that the job has is in the snapshot or was refused by name; all refusals are listed at
//! once. [`refuse_early`] neither stops nor changes anything. No duplicate of a descriptor of the
//! job that could keep a pipe, socket or lock alive outlives [`capture`].
//!
//! # What it does not do
//! It does not stop or resume (`tracee`), read memory (`pages`), or write an image (`image`).

mod clocks;
mod conditions;
mod contents;
mod descriptors;
mod early;
mod expired;
mod file_systems;
mod holes;
mod inodes;
mod inside;
mod landlock;
mod mappings;
mod open_files;
mod others;
mod outside;
mod pictures;
mod pipes;
mod policies;
mod process;
mod refusal;
mod settings;
mod shim;
mod sockets;
mod subject;
#[cfg(test)]
mod tests;
mod threads;
mod unix_diag;
mod unread;
mod unread_bytes;
mod used;
mod verify;
mod vm_flags;
mod watches;

pub use contents::{FULL_MAX, hash_file};
pub use early::EarlyView;
pub use inodes::{InodeBytes, InodeSource, MemoryPiece};
pub use mappings::MemoryRange;
pub use others::others;
pub use pictures::{is_picture, others_but_pictures};
pub use refusal::{CaptureError, Refusal};
pub use used::{ProcessUsed, ThreadUsed, Used};
use verify::Slow;

use crate::inject::{CallList, Workshop};
use crate::procfs::{SmapsEntry, parse_maps};
use crate::snapshot::{
    Enforcement, InodeId, JobLabel, KernelPath, Mapping, MappingKind, Process, SnapshotV1, Taken,
};
use crate::tracee::{HostPid, HostTid, Memory, Quiesced};
use inodes::{HashTask, Inodes};
use mappings::Found;
use refusal::Refusals;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use subject::{JobIds, Subject, is_confined, view_of};
use unread_bytes::UnreadBytes;

/// What the user wants.
#[derive(Clone, Debug)]
pub struct CaptureOptions {
    /// Files of the program's system up to this size are carried by content.
    pub carry_max: u64,
    /// Every regular file is carried by content.
    pub carry_files: bool,
    /// Descriptors beside 0 to 2 that may lead out of the job.
    pub inherit_fds: Vec<u32>,
    /// Device and inode of what descriptors 0 to 2 were when the job was begun: it may have moved them to others, as shells do for
    /// a redirection, and has them there still.
    pub streams: [Option<(u64, u64)>; 3],
    /// The job lives in namespaces of its own that wayfarer made (user, pid, mount, time).
    pub own_pid_namespace: bool,
    /// Read the flags of mappings while the job is stopped, though that takes long: there will be no
    /// picture to verify them with, or it showed others.
    pub flags_while_frozen: bool,
    /// Before it is stopped its memory may be watched by us ([`crate::watch`]).
    pub watched: bool,
    /// What the job is called, for the image.
    pub job: JobLabel,
    /// A folder in which is put aside what goes into the image later; one for temporary files if there is none.
    pub aside: Option<PathBuf>,
}

impl Default for CaptureOptions {
    fn default() -> Self {
        CaptureOptions {
            carry_max: 256 << 20,
            carry_files: false,
            inherit_fds: vec![],
            streams: [None; 3],
            own_pid_namespace: false,
            flags_while_frozen: false,
            watched: false,
            job: JobLabel::default(),
            aside: None,
        }
    }
}

/// A job as a snapshot, and what is still to be read.
#[derive(Debug)]
pub struct Captured {
    /// The snapshot. `platform` and `taken.generation` are the caller's to fill in.
    pub snapshot: SnapshotV1,
    /// Where the contents of each carried inode are.
    pub inode_sources: Vec<(InodeId, InodeSource)>,
    /// What each process has used of processors.
    pub used: Vec<ProcessUsed>,
    /// For each process, the addresses whose contents belong to the checkpoint, in order.
    pub memory_plan: Vec<Vec<MemoryRange>>,
    hash_tasks: Vec<HashTask>,
    skipped: Vec<Vec<Range<u64>>>,
    pids: Vec<i32>,
    flags_unverified: bool,
    /// For each process, whether it was asked for the policies of its memory.
    placed: Vec<bool>,
}

/// Lists everything about these processes that cannot be carried and can be seen without touching
/// them. Parents come before children; the first is the job's root.
///
/// # Errors
/// [`CaptureError::Refused`] with all that is wrong; others when `/proc` cannot be read.
pub fn refuse_early(pids: &[HostPid], options: &CaptureOptions) -> Result<EarlyView, CaptureError> {
    let mut early = EarlyView::default();
    let mut refusals = Refusals::default();
    look(pids, options, None, &mut early, &mut refusals)?;
    refusals.into_result().map_err(CaptureError::Refused)?;
    Ok(early)
}

/// Waits until no descriptor leads out of the job that may not, but at most `patience`, and not when nobody wants that any more. Returns
/// the refusals of that kind that are left.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn wait_for_sockets(
    pids: &[HostPid],
    options: &CaptureOptions,
    patience: Duration,
    is_given_up: &dyn Fn() -> bool,
) -> Result<Vec<Refusal>, CaptureError> {
    const PAUSE: Duration = Duration::from_millis(20);
    let deadline = Instant::now() + patience;
    loop {
        let left: Vec<Refusal> = match refuse_early(pids, options) {
            Ok(_) => return Ok(vec![]),
            Err(CaptureError::Refused(refusals)) => refusals
                .into_iter()
                .filter(|refusal| refusal.reason.contains("socket"))
                .collect(),
            Err(error) => return Err(error),
        };
        if left.is_empty() || Instant::now() >= deadline || is_given_up() {
            return Ok(left);
        }
        std::thread::sleep(PAUSE);
    }
}

/// What was seen from outside.
struct Look {
    subjects: Vec<Subject>,
    ids: JobIds,
    inodes: Inodes,
    descriptors: descriptors::Descriptors,
    spaces: Vec<(Vec<Mapping>, Vec<MemoryRange>)>,
    processes: Vec<Process>,
    /// For each process, what of its mappings only itself can be asked for.
    asked: Vec<verify::Asked>,
}

/// Reads all that can be read from outside. `skip`: the job is stopped, and these addresses of each
/// process are not its own.
fn look(
    pids: &[HostPid],
    options: &CaptureOptions,
    skip: Option<&[Vec<Range<u64>>]>,
    early: &mut EarlyView,
    refusals: &mut Refusals,
) -> Result<Look, CaptureError> {
    std::thread::scope(|scope| {
        let slow = match skip.is_none() || options.flags_while_frozen {
            true => Slow::begin(scope, pids),
            false => Slow::default(),
        };
        look_beside(slow, pids, options, skip, early, refusals)
    })
}

/// As [`look`], while what is slow to read is being read.
fn look_beside(
    mut slow: Slow<'_>,
    pids: &[HostPid],
    options: &CaptureOptions,
    skip: Option<&[Vec<Range<u64>>]>,
    early: &mut EarlyView,
    refusals: &mut Refusals,
) -> Result<Look, CaptureError> {
    let subjects = Subject::read_all(pids, skip.is_some())?;
    let Some(root) = subjects.first() else {
        return Err(CaptureError::Kernel {
            pid: pids.first().map_or(0, |pid| pid.0),
            what: "anything of it: it has ended",
            source: std::io::Error::from_raw_os_error(libc::ESRCH),
        });
    };
    let view = view_of(root)?;
    let ids = JobIds::read(&subjects)?;
    let mut inodes = Inodes::new(view, early.opened.clone());
    conditions::examine(&subjects, options, skip.is_some(), refusals)?;
    let job = descriptors::Survey {
        subjects: &subjects,
        ids: &ids,
        options,
        stopped: skip.is_some(),
        unread: UnreadBytes::aside_in(options.aside.as_deref()),
    };
    let descriptors = descriptors::survey(&job, &mut inodes, &mut early.watches, refusals)?;
    if let Some((file, len)) = job.unread.finish().map_err(CaptureError::Unread)? {
        inodes.add_unread(file, len);
    }
    let mut processes = vec![];
    let mut spaces = vec![];
    let mut asked = vec![];
    for (index, subject) in subjects.iter().enumerate() {
        let mut record = process::read(subject, &ids, &mut inodes, refusals)?;
        let (found, from_before) = mappings_of(subject, options, skip.is_some(), &mut slow, early)?;
        asked.push(verify::Asked::about(
            subject,
            from_before,
            skip.is_some(),
            &mut slow,
            early,
        ));
        let ours = skip
            .and_then(|skip| skip.get(index))
            .map_or(&[][..], Vec::as_slice);
        record.memory.lock_future = mappings::lock_future(&found, ours);
        processes.push(record);
        let space = mappings::record(subject, &found, ours, &mut inodes, refusals);
        spaces.push(space);
        if skip.is_none() {
            let entries = found.into_iter().map(|found| found.entry);
            early.smaps.insert(subject.pid, entries.collect());
        }
    }
    holes::refuse(&subjects, &inodes, refusals);
    if skip.is_none() {
        landlock::warm(&subjects);
        inodes.warm();
        early.opened = inodes.opened();
    }
    Ok(Look {
        subjects,
        ids,
        inodes,
        descriptors,
        spaces,
        processes,
        asked,
    })
}

/// The mappings of a process, and whether their flags are from before the stop.
fn mappings_of(
    subject: &Subject,
    options: &CaptureOptions,
    stopped: bool,
    slow: &mut Slow<'_>,
    early: &mut EarlyView,
) -> Result<(Vec<Found>, bool), CaptureError> {
    let known = |entries: Vec<SmapsEntry>| {
        let found = entries.into_iter().map(|entry| Found { entry });
        found.collect()
    };
    // The picture does not show what is locked: fork does not hand it on.
    let locked = subject.status.locked_kib > 0;
    if stopped
        && !options.flags_while_frozen
        && !locked
        && let Some(before) = early.smaps.remove(&subject.pid)
    {
        let now = subject.dir.parsed("maps", parse_maps)?;
        if let Some(found) = mappings::join(now, before) {
            return Ok((found, true));
        }
    }
    let mut entries = slow.smaps(subject)?;
    if !stopped && options.watched {
        for entry in &mut entries {
            let of_job = entry.vm_flags.iter().filter(|code| *code != b"uw");
            entry.vm_flags = of_job.copied().collect();
        }
    }
    Ok((known(entries), false))
}

/// Makes a snapshot of a stopped job; `workshops[i]` is open in process `i` of `quiesced`. Nothing of
/// the job is changed.
///
/// # Errors
/// [`CaptureError::Refused`] with all that cannot be carried; others when something could not be
/// read.
pub fn capture(
    quiesced: &mut Quiesced,
    workshops: &mut [Workshop],
    mut early: EarlyView,
    options: &CaptureOptions,
) -> Result<Captured, CaptureError> {
    let mut refusals = Refusals::default();
    let pids: Vec<HostPid> = quiesced
        .processes()
        .iter()
        .map(|process| process.pid)
        .collect();
    let skip: Vec<Vec<Range<u64>>> = workshops
        .iter()
        .map(|workshop| workshop.ranges().to_vec())
        .collect();
    let seen = look(&pids, options, Some(&skip), &mut early, &mut refusals)?;
    let Look {
        subjects,
        ids,
        mut inodes,
        mut descriptors,
        spaces,
        mut processes,
        asked,
    } = seen;
    // What stands in the way may be that no call can be made inside.
    std::mem::take(&mut refusals)
        .into_result()
        .map_err(CaptureError::Refused)?;
    let (mut memory_plan, mut used) = (vec![], vec![]);
    let records = processes.iter_mut().zip(spaces);
    for (index, (record, (mappings, contents))) in records.enumerate() {
        memory_plan.push(contents);
        record.memory.mappings = mappings;
        record.descriptors = descriptors.tables.get(index).cloned().unwrap_or_default();
        record.record_locks = descriptors
            .record_locks
            .get(index)
            .cloned()
            .unwrap_or_default();
        let workshop = workshops.get_mut(index);
        let context = Inside {
            subject: &subjects[index],
            ids: &ids,
            index,
        };
        used.push(context.complete(quiesced, workshop, record, &mut refusals)?);
        if let Some(workshop) = workshops.get_mut(index) {
            let stopped = &mut quiesced.processes_mut()[index];
            holes::find(&subjects[index], stopped, workshop, &mut inodes)?;
            asked[index].complete(stopped, workshop, record)?;
        }
    }
    refusals.into_result().map_err(CaptureError::Refused)?;
    // Behind the timers: what they have left is counted from then on, and never too short.
    let clocks = clocks::of(&subjects[0])?;
    let (inodes, inode_sources, hash_tasks) = inodes.finish(options);
    let tables = processes.iter_mut().map(|process| &mut process.descriptors);
    outside::stand_apart(tables, &mut descriptors.descriptions);
    let snapshot = SnapshotV1 {
        taken: taken(),
        clocks,
        identity: ids.identity(&subjects[0], options.own_pid_namespace),
        platform: String::new(),
        inodes,
        descriptions: descriptors.descriptions,
        pipes: descriptors.pipes,
        sockets: descriptors.sockets,
        processes,
        job: JobLabel::default(),
        enforcement: Enforcement::default(),
        confined: is_confined(&subjects[0])?,
    };
    Ok(Captured {
        snapshot,
        inode_sources,
        used,
        memory_plan,
        hash_tasks,
        skipped: skip,
        pids: pids.iter().map(|pid| pid.0).collect(),
        flags_unverified: asked.iter().any(|asked| asked.from_before),
        placed: asked.iter().map(|asked| asked.placed).collect(),
    })
}

/// One process, to be completed with what ptrace and its own calls tell.
struct Inside<'a> {
    subject: &'a Subject,
    ids: &'a JobIds,
    index: usize,
}

impl Inside<'_> {
    fn complete(
        &self,
        quiesced: &mut Quiesced,
        workshop: Option<&mut Workshop>,
        record: &mut Process,
        refusals: &mut Refusals,
    ) -> Result<ProcessUsed, CaptureError> {
        let tracee = |error| CaptureError::Tracee(error);
        let stopped = &mut quiesced.processes_mut()[self.index];
        let pid = self.subject.tgid;
        record.stopped_by = stopped
            .group_stopped
            .and_then(|signal| u32::try_from(signal).ok())
            .unwrap_or(0);
        record.pending = expired::of_process(stopped)?;
        record.ended_first = self.subject.ended_first.clone().map(KernelPath);
        let mut lists = vec![];
        // All threads are asked the same, and the first one about its process.
        let mut of_each = CallList::new();
        let questions = (
            inside::ask_thread(&mut of_each),
            settings::ask_thread(&mut of_each),
        );
        let use_of_each = used::ask_thread(&mut of_each);
        let (mut about_process, mut use_of_all) = (None, None);
        for (index, (tid, status)) in self.subject.threads.iter().enumerate() {
            let mut thread = threads::read(*tid, status, self.ids)?;
            let seen = stopped
                .thread(HostTid(*tid))
                .ok_or_else(|| CaptureError::Kernel {
                    pid: *tid,
                    what: "its registers: it was not stopped",
                    source: std::io::Error::from_raw_os_error(libc::ESRCH),
                })?;
            threads::add_traced(&mut thread, seen, stopped.memory())?;
            if let Some(reason) = seen.in_call().and_then(conditions::tied_to_machine) {
                refusals.add(self.subject.who(), format!("thread {tid}"), reason);
            }
            record.threads.push(thread);
            let mut list = of_each.clone();
            if index == 0 {
                let segments = settings::ask_descriptors(&mut list);
                about_process = Some((inside::ask_process(&mut list, record), segments));
                use_of_all = Some(used::ask_process(&mut list));
            }
            lists.push((HostTid(*tid), list));
        }
        self.vdso(stopped.memory(), record, refusals)?;
        let Some(workshop) = workshop else {
            return Err(CaptureError::Kernel {
                pid,
                what: "its signal actions: no call can be made inside it",
                source: std::io::Error::from_raw_os_error(libc::EPERM),
            });
        };
        let before = expired::pending(record);
        let results = workshop
            .run(stopped, lists)
            .map_err(|error| tracee(Box::new(error)))?;
        landlock::examine(self.subject, &record.threads, stopped, workshop, refusals)?;
        let alone = self.subject.threads.len() == 1;
        let answered = self.subject.threads.iter().zip(&results);
        for (index, ((tid, _), results)) in answered.enumerate() {
            let thread = &mut record.threads[index];
            inside::answer_thread(&questions.0, *tid, results, thread)?;
            let own = &mut thread.settings;
            for (object, reason) in settings::answer_thread(&questions.1, *tid, results, own) {
                let object = match *tid == self.subject.tgid {
                    true => object.to_owned(),
                    false => format!("thread {tid}: {object}"),
                };
                refusals.add(self.subject.who(), object, reason);
            }
            threads::find_own_id(thread, alone, stopped.memory());
        }
        if let (Some((questions, segments)), Some(results)) = (about_process, results.first()) {
            for (object, reason) in inside::answer_process(&questions, pid, results, record)? {
                refusals.add(self.subject.who(), object, reason);
            }
            let answer = results.result(segments);
            settings::read_ldt(answer, HostTid(self.subject.pid), stopped, workshop, record)?;
        }
        let tids = self.subject.threads.iter().map(|(tid, _)| *tid);
        let used = match &use_of_all {
            Some(all) => used::answers((all, &use_of_each), tids, &results, record)?,
            None => ProcessUsed::default(),
        };
        // P1 has told the program's view of SIGSEGV.
        if let Some(action) = crate::baseline::handler_action(record, stopped.memory()) {
            record.actions[libc::SIGSEGV as usize - 1] = action;
        }
        // What has come since is not lost, and does not come twice.
        record.pending = expired::of_process(stopped)?;
        for (thread, (tid, _)) in record.threads.iter_mut().zip(&self.subject.threads) {
            if let Some(seen) = stopped.thread(HostTid(*tid)) {
                thread.pending = threads::pending(seen)?;
            }
        }
        expired::settle(record, &before);
        Ok(used)
    }

    fn vdso(
        &self,
        memory: &Memory,
        record: &mut Process,
        refusals: &mut Refusals,
    ) -> Result<(), CaptureError> {
        let found = record
            .memory
            .mappings
            .iter()
            .find(|mapping| mapping.kind == MappingKind::Vdso);
        let Some(mapping) = found else {
            return Ok(());
        };
        let (start, len) = (mapping.start, mapping.len());
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0).min(1 << 20)];
        memory
            .read(start, &mut bytes)
            .map_err(|source| CaptureError::Kernel {
                pid: self.subject.tgid,
                what: "its vDSO",
                source,
            })?;
        match crate::vdso::record(&bytes, start) {
            Ok(vdso) => record.memory.vdso = Some(vdso),
            Err(error) => refusals.add(self.subject.who(), "vDSO", error.to_string()),
        }
        Ok(())
    }
}

impl Captured {
    /// Hashes the files by which a restart knows them again. `still`: the job has not gone on since it
    /// was captured, and will not before this is done; else what it has changed meanwhile keeps the sample that was
    /// taken while it was stopped.
    ///
    /// # Errors
    /// [`CaptureError::Contents`] with the file that could not be read.
    pub fn finish_hashes(&mut self, still: bool) -> Result<(), CaptureError> {
        for task in self.hash_tasks.drain(..) {
            let record = &mut self.snapshot.inodes[task.inode.0 as usize];
            task.finish(record, still)
                .map_err(|source| CaptureError::Contents {
                    path: record.path.to_string(),
                    source,
                })?;
        }
        Ok(())
    }

    /// The snapshot alone: all else has been read.
    #[must_use]
    pub fn into_snapshot(self) -> SnapshotV1 {
        self.snapshot
    }

    /// Addresses of process `index` that belong to wayfarer, not to the job.
    #[must_use]
    pub fn skipped(&self, index: usize) -> &[Range<u64>] {
        self.skipped.get(index).map_or(&[], Vec::as_slice)
    }
}

fn taken() -> Taken {
    let system = nix::sys::utsname::uname().ok();
    let text = |value: Option<&std::ffi::OsStr>| {
        value.map_or_else(String::new, |value| value.to_string_lossy().into_owned())
    };
    Taken {
        unix_seconds: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
        host: text(system.as_ref().map(nix::sys::utsname::UtsName::nodename)),
        kernel: text(system.as_ref().map(nix::sys::utsname::UtsName::release)),
        wayfarer: env!("CARGO_PKG_VERSION").into(),
        generation: 0,
    }
}
