//! The keeper: sends what a job has written and nobody else has sent ([`c_shim::behind`]), and what a process that was killed has left.
//!
//! ```text
//! run, restart ──begins──> keeper: nobody's child, with a stream of the session and the job's table
//!  `─executes─> loader ──"it runs"──> keeper: whenever something is dirty, a quarter of a second later it is sent
//!                      ──"it has ended"──> all is sent, the keeper ends, and with that the loader
//!                      ──"it may be complete"──> all is sent, and durable ──"done"──> loader: its starter writes the end down
//!                      ──"it is complete"──> its journal goes, the keeper ends
//! ```
//! # What callers may rely on
//! What the job has written is at the shadow when the job's supervisor ends, or that says what is not.
//! A checkpoint that has [`super::gate::Gate`] finds nothing half sent by a keeper.

use super::client::{Client, NotBegun, NotWritten};
use super::session::link_bytes;
use crate::fault;
use crate::jobs::process;
use crate::limits;
use crate::report::{Exit, Explain, Failure, Outcome};
use crate::sys;
use c_shim::behind::{Landed, Line, Owner, Piece, Trouble};
use c_shim::link::{LINK_LEN, Link};
use c_shim::table::{Description, OPEN, Reserved, Table};
use ckpt_lib::procfs::by_living_thread;
use loader::words::{COMPLETE, DONE, ENDED, LOST, MAY_BE_COMPLETE, READY, RUNS};
use nix::fcntl::{FcntlArg, fcntl};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};
use wire::Request;

/// How long what is written may wait.
const DELAY: Duration = Duration::from_millis(250);
/// How long a restarted job is looked for.
const FOUND_WITHIN: Duration = Duration::from_secs(20);
/// How long a buffer is waited for before it is looked whether its holder lives.
const LOOK_AFTER: Duration = Duration::from_millis(10);
/// Between two looks for something that has not happened yet.
const AGAIN: Duration = Duration::from_millis(20);
/// The same for a shadow that has been gone for long.
const SELDOM: Duration = Duration::from_secs(2);
/// How long a shadow has that is to be told of the job's end; what has to reach the disk first it goes on with when nobody waits any more.
const COMPLETE_WITHIN: Duration = Duration::from_secs(10);
/// How long its disk may take before a starter is told that the job has ended.
const DURABLE_WITHIN: Duration = Duration::from_secs(60);
/// What a checkpoint says before it kills a job ([`Behind::left`](c_shim::behind::Behind)).
const IS_TO_BE_KILLED: u32 = 1;
/// How long a job may take to die that is killed.
const DIES_WITHIN: Duration = Duration::from_secs(120);
/// Who is killed as he would wake us does not.
const LOOK_ANYWAY: Duration = Duration::from_millis(500);

/// Begins a keeper for the job whose descriptors have been made; what its supervisor speaks to it by. `restarted`: the table is
/// not there yet.
pub(crate) fn begin(restarted: bool) -> Outcome<OwnedFd> {
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new("/proc/self/exe");
    command.arg("keeper");
    if restarted {
        command.arg("--restarted");
    }
    let mut keeper = command
        .stdin(OwnedFd::from(theirs))
        .stdout(sys::nothing()?)
        .spawn()
        .context(|| "no keeper can be begun".to_owned())?;
    drop(command);
    keeper.wait()?;
    let mut said = [0];
    match ours.read_exact(&mut said) {
        // The loader gets it, and closes it when it executes the program.
        Ok(()) if said == [READY] => Ok(nix::unistd::dup(OwnedFd::from(ours))?),
        _ => {
            let message = "the keeper of what the job writes has ended at once";
            Err(Failure::new(Exit::Failed, message))
        }
    }
}

/// `wayfarer keeper`.
pub(crate) fn keep(restarted: bool) -> Outcome {
    let link = File::open(own(Reserved::Link))?;
    let files = if restarted {
        None
    } else {
        Some(JobFiles::open("/proc/self/fd")?)
    };
    let mut bytes = [0; LINK_LEN];
    link.read_exact_at(&mut bytes, 0)?;
    drop(link);
    let mut kept = vec![];
    kept.extend(files.iter().flat_map(JobFiles::numbers));
    sys::close_all_but(3, kept);
    nix::unistd::daemon(false, true).context(|| "no process for the keeper".to_owned())?;
    let link = Link::read(&bytes).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    let way = Way::new(link);
    hold_session(link)?;
    let speaks = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let told = listen(speaks.try_clone()?)?;
    (&speaks).write_all(&[READY])?;
    // Whoever reads what the job says is to see its end.
    let nothing = sys::nothing()?;
    nix::unistd::dup2_stderr(nothing)?;
    let end = match files.map_or_else(|| find(&bytes, &told), |files| Ok(Ok(files))) {
        Ok(Ok(files)) => Keeper::new(files, way, &told)?.keep(),
        Ok(Err(how)) => End {
            lost: false,
            is_complete: Some(how),
        },
        Err(_) => End {
            lost: true,
            is_complete: None,
        },
    };
    // Its supervisor may be gone.
    let say = |lost: bool| (&speaks).write_all(&[if lost { LOST } else { DONE }]);
    match end.is_complete {
        Some(Told::Complete) => drop(reach(
            link,
            COMPLETE_WITHIN,
            Request::Complete(wire::Complete {}),
        )),
        Some(Told::MayBeComplete) => {
            // It is at the shadow. Where the disk takes longer, only a power loss can still lose it.
            let durable = Request::MakeDurable(wire::MakeDurable {});
            let is_durable = reach(link, DURABLE_WITHIN, durable);
            fault::keeper("durable");
            let _ = say(end.lost);
            if told.recv() == Ok(Told::Complete) && is_durable {
                reach(link, COMPLETE_WITHIN, Request::Complete(wire::Complete {}));
            }
            return Ok(Exit::Done);
        }
        _ => {}
    }
    let _ = say(end.lost);
    Ok(Exit::Done)
}

/// How a job has ended, and its keeper's work.
struct End {
    /// Something that the job has written is nowhere.
    lost: bool,
    /// What was said of it, if nobody may want to go back to an image of it.
    is_complete: Option<Told>,
}

fn own(reserved: Reserved) -> String {
    format!("/proc/self/fd/{}", reserved.number())
}

fn begin_stream(link: &Link, lane: u64) -> Result<Client, NotBegun> {
    let socket = Path::new(OsStr::from_bytes(link.socket_name()));
    Client::join(socket, link, lane)
}

/// The session ends with its last stream: until all is sent, that is ours. A shadow that is started again gets another.
fn hold_session(link: Link) -> Outcome<()> {
    let begin = move || begin_stream(&link, 0)?.into_stream();
    let mut stream = begin()?;
    limits::thread(move || {
        let mut pause = AGAIN;
        loop {
            let mut nothing = [0];
            let _ = stream.read(&mut nothing);
            match begin() {
                Ok(again) => (stream, pause) = (again, AGAIN),
                Err(_) => {
                    std::thread::sleep(pause);
                    // One that refuses us writes that down each time.
                    pause = (2 * pause).min(SELDOM);
                }
            }
        }
    })
}

/// Files of a job that are needed.
struct JobFiles {
    table: File,
    shim: File,
}

impl JobFiles {
    fn open(folder: &str) -> io::Result<Self> {
        let name = |reserved: Reserved| format!("{folder}/{}", reserved.number());
        let mut writable = OpenOptions::new();
        writable.read(true).write(true);
        Ok(JobFiles {
            table: writable.open(name(Reserved::Table))?,
            shim: File::open(name(Reserved::Shim))?,
        })
    }

    fn numbers(&self) -> [u32; 2] {
        [&self.table, &self.shim].map(|file| file.as_raw_fd().cast_unsigned())
    }
}

/// What the supervisor says: that the job runs, has ended (well: it is complete, or is when a starter has said so), or (by its end) that
/// it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Runs,
    Ended,
    Complete,
    MayBeComplete,
    Gone,
}

/// Where [`Keeper::next`] sleeps.
static TABLE: OnceLock<&Table> = OnceLock::new();

fn listen(mut from: UnixStream) -> Outcome<Receiver<Told>> {
    let (sender, told) = mpsc::channel();
    limits::thread(move || {
        loop {
            let mut said = [0];
            let what = match from.read_exact(&mut said) {
                Ok(()) if said == [RUNS] => Told::Runs,
                Ok(()) if said == [ENDED] => Told::Ended,
                Ok(()) if said == [COMPLETE] => Told::Complete,
                Ok(()) if said == [MAY_BE_COMPLETE] => Told::MayBeComplete,
                Ok(()) => continue,
                Err(_) => Told::Gone,
            };
            let is_last = !matches!(what, Told::Runs | Told::MayBeComplete);
            if sender.send(what).is_err() {
                return;
            }
            if let Some(table) = TABLE.get() {
                // Whoever is about to sleep does not, or is woken.
                table.behind.idle.store(0, Ordering::SeqCst);
                sys::futex_wake(&table.behind.idle);
            }
            if is_last {
                return;
            }
        }
    })?;
    Ok(told)
}

/// Files of the restarted job, when it runs; or how it has ended before.
fn find(link: &[u8; LINK_LEN], told: &Receiver<Told>) -> Outcome<Result<JobFiles, Told>> {
    match told.recv() {
        Ok(Told::Runs) => {}
        how => return Ok(Err(how.unwrap_or(Told::Gone))),
    }
    let end = Instant::now() + FOUND_WITHIN;
    loop {
        for pid in process::all()? {
            if link_bytes(pid).as_ref() == Some(link)
                && let Ok(files) =
                    by_living_thread(pid, |thread| JobFiles::open(&format!("/proc/{thread}/fd")))
            {
                return Ok(Ok(files));
            }
        }
        match told.recv_timeout(AGAIN) {
            Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
            Err(RecvTimeoutError::Timeout) => {
                let message = "the keeper does not find the restarted job";
                return Err(Failure::new(Exit::Failed, message));
            }
            how => return Ok(Err(how.unwrap_or(Told::Gone))),
        }
    }
}

fn record(kind: i32, start: i64, len: i64) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: len,
        l_pid: 0,
    }
}

pub(super) fn whole(kind: i32) -> libc::flock {
    record(kind, 0, 0)
}

/// As others see us.
struct Us {
    shim: File,
    id: u32,
}

impl Us {
    /// Whether somebody else has a lock of these ids.
    fn is_locked(&self, first: i64, len: i64) -> bool {
        let mut found = record(libc::F_WRLCK, c_shim::behind::IDS + first, len);
        let asked = fcntl(&self.shim, FcntlArg::F_GETLK(&mut found));
        asked.is_err() || i32::from(found.l_type) != libc::F_UNLCK
    }
}

impl Owner for Us {
    fn id(&self) -> u32 {
        self.id
    }

    fn is_alive(&self, id: u32) -> bool {
        self.is_locked(id.into(), 1)
    }

    fn wait(&self, word: &AtomicU32, value: u32) {
        sys::futex_wait(word, value, Some(LOOK_AFTER));
    }

    fn wake(&self, word: &AtomicU32) {
        sys::futex_wake(word);
    }
}

/// To the shadow.
struct Way {
    link: Link,
    client: Option<Client>,
    lane: u64,
    number: u64,
    /// The shadow does not serve us, and never will.
    refused: bool,
}

impl Way {
    fn new(link: Link) -> Self {
        Way {
            link,
            client: None,
            lane: 0,
            number: 0,
            refused: false,
        }
    }

    fn begin(&mut self, lane: u64) -> Result<Client, Trouble> {
        begin_stream(&self.link, lane).map_err(|why| {
            self.refused |= matches!(why, NotBegun::Refused(_));
            Trouble::Unreached
        })
    }

    fn ask(
        &mut self,
        client: &mut Client,
        number: u64,
        piece: &Piece<'_>,
    ) -> Result<Landed, Trouble> {
        match client.write(number, piece.handle, piece.offset, piece.data) {
            Ok((offset, len)) => Ok(Landed { offset, len }),
            Err(NotWritten::Errno(errno)) => Err(Trouble::Refused(errno)),
            Err(NotWritten::Refused) => {
                self.refused = true;
                Err(Trouble::Unreached)
            }
            Err(NotWritten::Broken) => Err(Trouble::Unreached),
        }
    }
}

/// Tells the shadow something of the job's end; whether it has done that within so long. One that is not told that a job is complete keeps
/// what it has for an image.
fn reach(link: Link, within: Duration, request: Request<'static>) -> bool {
    let (sender, told) = mpsc::channel();
    let began = Instant::now();
    // A shadow that is there and says nothing keeps nobody waiting.
    let begun = limits::thread(move || {
        let is_done = loop {
            match begin_stream(&link, 0) {
                Ok(mut client) => {
                    if client.tell(&request) {
                        break true;
                    }
                }
                Err(NotBegun::Refused(_)) => break false,
                // One that is not there is not waited for as one that is at work.
                Err(NotBegun::Failed(_)) if began.elapsed() > COMPLETE_WITHIN => break false,
                Err(NotBegun::Failed(_)) => {}
            }
            std::thread::sleep(DELAY);
        };
        let _ = sender.send(is_done);
    });
    begun.is_ok() && told.recv_timeout(within) == Ok(true)
}

impl Line for Way {
    fn write(&mut self, piece: &Piece<'_>, sends: &dyn Fn(u64, u64)) -> Result<Landed, Trouble> {
        let client = match self.client.take() {
            Some(client) => Ok(client),
            None => {
                // Whether the last request on another was done is not known.
                self.lane = super::generation().unwrap_or(1);
                self.begin(self.lane)
            }
        };
        let mut client = client?;
        self.number += 1;
        let number = self.number;
        sends(self.lane, number);
        fault::keeper("noted");
        let landed = self.ask(&mut client, number, piece);
        fault::keeper("answered");
        if landed != Err(Trouble::Unreached) {
            self.client = Some(client);
        }
        landed
    }

    fn again(&mut self, lane: u64, number: u64, piece: &Piece<'_>) -> Result<Landed, Trouble> {
        let mut client = self.begin(lane)?;
        self.ask(&mut client, number, piece)
    }
}

/// See the module.
struct Keeper<'a> {
    table: &'static Table,
    gate: File,
    us: Us,
    way: Way,
    told: &'a Receiver<Told>,
    /// The job was left, as a checkpoint said, and is still there.
    left_since: Option<Instant>,
}

impl<'a> Keeper<'a> {
    fn new(files: JobFiles, way: Way, told: &'a Receiver<Told>) -> Outcome<Self> {
        let table = sys::map_table(&files.table)?;
        let table = *TABLE.get_or_init(|| table);
        let us = Us {
            id: table.behind.new_id(),
            shim: files.shim,
        };
        // It is executed, so nobody may open it for writing.
        let place = c_shim::behind::IDS + i64::from(us.id);
        fcntl(
            &us.shim,
            FcntlArg::F_SETLK(&record(libc::F_RDLCK, place, 1)),
        )?;
        Ok(Keeper {
            table,
            gate: files.table,
            us,
            way,
            told,
            left_since: None,
        })
    }

    /// Until the job has ended.
    fn keep(mut self) -> End {
        loop {
            match self.next() {
                Ok(Told::Runs) => {}
                Err(RecvTimeoutError::Timeout) => {
                    self.look_whether_it_is_left();
                    self.send();
                }
                Ok(told @ (Told::Ended | Told::Complete | Told::MayBeComplete)) => {
                    return self.finish(told);
                }
                // Its supervisor was killed, but it may live.
                Ok(Told::Gone) | Err(RecvTimeoutError::Disconnected) => {
                    while self.us.is_locked(0, 0) {
                        std::thread::sleep(DELAY);
                        self.look_whether_it_is_left();
                        self.send();
                    }
                    return self.finish(Told::Gone);
                }
            }
        }
    }

    /// What is said, or that something has been dirty for a while.
    fn next(&self) -> Result<Told, RecvTimeoutError> {
        let behind = &self.table.behind;
        loop {
            if behind.is_any_dirty() || behind.left.load(Ordering::Acquire) != 0 {
                return self.told.recv_timeout(DELAY);
            }
            behind.idle.store(1, Ordering::SeqCst);
            match self.told.try_recv() {
                Ok(told) => return Ok(told),
                Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
                Err(TryRecvError::Empty) => {}
            }
            if !behind.is_any_dirty() {
                sys::futex_wait(&behind.idle, 1, Some(LOOK_ANYWAY));
            }
            behind.idle.store(0, Ordering::SeqCst);
        }
    }

    /// Sends what is there; whether nothing is left of it, and whether something was refused.
    fn send(&mut self) -> (bool, bool) {
        let is_sent = fcntl(&self.gate, FcntlArg::F_OFD_SETLKW(&whole(libc::F_WRLCK)));
        if is_sent.is_err() {
            return (false, false);
        }
        let (mut all, mut refused) = (true, false);
        let behind = &self.table.behind;
        let left = behind.left.load(Ordering::Acquire) != 0;
        for index in behind.all_dirty().filter(|_| !left) {
            let mut held = behind.hold(index, &self.us);
            fault::keeper("held");
            match held.send(self.table, &mut self.way) {
                Ok(()) => {}
                Err(Trouble::Refused(_)) => refused = true,
                Err(Trouble::Unreached) => all = false,
            }
            fault::keeper("sent");
        }
        let _ = fcntl(&self.gate, FcntlArg::F_OFD_SETLK(&whole(libc::F_UNLCK)));
        (all, refused)
    }

    /// A checkpoint with which the job leaves says so, and then kills it. One that was killed in between has not: the job goes on here.
    fn look_whether_it_is_left(&mut self) {
        let behind = &self.table.behind;
        // While there is a checkpoint, it has the gate.
        let gate = |kind| fcntl(&self.gate, FcntlArg::F_OFD_SETLK(&whole(kind))).is_ok();
        if behind.left.load(Ordering::Acquire) == 0 || !gate(libc::F_WRLCK) {
            return self.left_since = None;
        }
        let left = behind.left.load(Ordering::Acquire);
        let since = *self.left_since.get_or_insert_with(Instant::now);
        let lives = || since.elapsed() > DIES_WITHIN && self.us.is_locked(0, 0);
        if left == IS_TO_BE_KILLED || lives() {
            behind.left.store(0, Ordering::Release);
        }
        gate(libc::F_UNLCK);
    }

    /// Has what was written to compressed files stored; whether all is.
    fn store(&self) -> bool {
        let is_open = |one: &&Description| one.state.load(Ordering::Acquire) == OPEN;
        let all = self.table.descriptions.iter().filter(is_open);
        let mut all = all.filter(|one| one.is_to_be_stored()).peekable();
        if all.peek().is_none() {
            return true;
        }
        let Ok(mut client) = begin_stream(&self.way.link, 0) else {
            return false;
        };
        all.fold(true, |stored, one| {
            let sync = Request::Sync(wire::Sync {
                handle: one.handle.load(Ordering::Relaxed),
                data_only: true,
            });
            client.has_done(&sync) && stored
        })
    }

    /// The job is not there any more, which was told so. Nothing is complete of which something is lost, and nobody goes back to what
    /// was never marked.
    fn finish(mut self, told: Told) -> End {
        let end = Instant::now() + Duration::from_millis(self.way.link.lease_ms);
        let ended = |lost, is_complete| End { lost, is_complete };
        fault::keeper("ended");
        loop {
            self.look_whether_it_is_left();
            let (all, refused) = self.send();
            if self.table.behind.left.load(Ordering::Acquire) != 0 {
                return ended(false, None);
            }
            let untold = || {
                let mut all = self.table.descriptions.iter();
                all.any(|one| one.error.load(Ordering::Relaxed) != 0)
            };
            if all {
                fault::keeper("complete");
                let lost = refused || untold() || !self.store();
                let was_marked = self.table.marked.load(Ordering::Relaxed) != 0;
                let was_told = self.table.told_to_end.load(Ordering::Relaxed) != 0;
                let is_complete = !lost && was_marked && !was_told;
                return ended(lost, is_complete.then_some(told));
            }
            if self.way.refused || Instant::now() > end {
                return ended(true, None);
            }
            std::thread::sleep(DELAY);
        }
    }
}
