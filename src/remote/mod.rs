//! What a job with remote files is started with: the shim, its table, a session at the shadow.
//!
//! ```text
//! run:        session begun, table made      ──descriptors 1000..──> the shim, which starts every program of the job
//! checkpoint: session/                       ──its state──> the image
//! restart:    session resumed from the state ──descriptors 1001, 1009 to 1011──> the job
//! ```
//! # What callers may rely on
//! The session lives as long as any process of the job.

mod client;
pub(crate) mod gate;
pub(crate) mod keeper;
pub(crate) mod relief;
pub(crate) mod reserved;
mod rules;
mod sees;
mod session;
mod usage;

pub(crate) use session::{RunningSession, keeper_of_image, taker};
pub(crate) use usage::{Tally, used_by};

use crate::args::{Files, Methods, Sight, Whose};
use crate::limits;
use crate::lookup::Program;
use crate::report::{Exit, Explain, Failure, Outcome};
use crate::sys;
use crate::verbs::shadow::read_token;
use c_shim::link::{Link, MOUNTS_AT};
use c_shim::residents;
use c_shim::table::{Header, RESERVED, Reserved, Table};
pub(crate) use client::Client;
use client::NotResumed;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::inotify::{InitFlags, Inotify};
use nix::sys::memfd::{MFdFlags, memfd_create};
use rules::Beginnings;
use rustix::rand::{GetRandomFlags, getrandom};
use sees::{Seen, Sees};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};
use wire::{FIRST_COPY, Lease, Mark, Others, Request, Settle, Token, WatchEnds};

/// What is executed in place of every program of the job, and puts that into its own process.
const SHIM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/shim"));
/// Descriptors that a job with remote files needs to be able to have.
const FEWEST_DESCRIPTORS: u64 = 1100;

/// What is executed for a command, which the shim then looks for at the shadow.
pub(crate) fn program(command: &[OsString]) -> Program {
    Program {
        path: format!("/proc/self/fd/{}", Reserved::Shim.number()).into(),
        arguments: command.to_vec(),
    }
}

/// How a job with a shadow begins.
#[derive(Debug)]
pub(crate) struct Beginning<'a> {
    /// Where the shadow is.
    pub(crate) socket: &'a Path,
    /// How long calls wait for one that is gone.
    pub(crate) lease: Duration,
    /// In which folder of the shadow's; by default one that is called as that where we are.
    pub(crate) directory: Option<&'a Path>,
    pub(crate) methods: &'a Methods,
    pub(crate) whose: Whose,
    /// The shadow is of this machine and this user.
    pub(crate) at_home: bool,
    pub(crate) outset: AtOutset<'a>,
    /// Who begins it, if it begins again.
    pub(crate) by: By,
}

/// Whether a job may have to begin again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AtOutset<'a> {
    /// It does not.
    Nothing,
    /// It may: the shadow marks where its files stand.
    Mark,
    /// It does: files are what they were at this mark.
    GoBack(&'a [u8]),
}

/// What is known of a job that is about to begin.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Who it is.
    pub(crate) identity: Identity,
    /// The state of the session, if that was to be marked.
    pub(crate) mark: Option<Vec<u8>>,
}

/// Makes what the job inherits.
pub(crate) fn prepare(beginning: &Beginning<'_>) -> Outcome<Prepared> {
    let Beginning {
        socket,
        lease,
        directory,
        methods,
        whose,
        at_home,
        outset,
        by,
    } = beginning;
    let here = std::env::current_dir()?;
    let directory = directory.unwrap_or(&here);
    let rules = rules::rules(
        methods,
        &Beginnings {
            there: directory,
            here: &here,
        },
    )?;
    let habits = rules::habits(methods)?;
    let (mut client, token) = connect(socket)?;
    let (mark, incarnation) = at_outset(&mut client, *outset, *by)?;
    let mut sees = Sees::default();
    let mut identity = Identity::own();
    if *whose == Whose::Submit || methods.sight.filesystem_domain.is_some() {
        let owner = client.identify(&mut sees).context(|| {
            let shown = crate::raw::shown_path(socket);
            format!("the shadow on {shown} does not say whose files it has")
        })?;
        if *whose == Whose::Submit {
            identity = owner;
        }
    }
    let seen = sees.here(&methods.sight, *at_home)?;
    let machine = identity.machine.each_ref().map(Vec::as_slice);
    let directory = directory.as_os_str().as_bytes();
    let header = Header::bytes(directory, machine, &habits);
    let header = header.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidFilename))?;
    limits::make_room_for_files(residents::FILE_LEN.max(size_of::<Table>() as u64))?;
    let table = memory_file(c"wf-table", &header, size_of::<Table>() as u64)?;
    let written = File::from(table.try_clone()?);
    written.write_all_at(&rules[..], offset_of!(Table, rules) as u64)?;
    let is_marked = u32::from(!matches!(outset, AtOutset::Nothing));
    written.write_all_at(&is_marked.to_ne_bytes(), offset_of!(Table, marked) as u64)?;
    let shim = crate::launch::executable_memory_file(c"wayfarer-shim")?;
    shim.write_all_at(SHIM, 0)?;
    let store = memory_file(c"wf-store", &[], residents::FILE_LEN)?;
    hand_down(&table, Reserved::Table)?;
    hand_down(&inotify()?, Reserved::Ends)?;
    hand_down(&shim, Reserved::Shim)?;
    hand_down(&store, Reserved::Store)?;
    let held = Held {
        client,
        incarnation,
    };
    hand_down_session(held, &token, (socket, *lease), &seen)?;
    // Its own directory is at the shadow; this one must be there wherever it goes on.
    std::env::set_current_dir("/")?;
    Ok(Prepared { identity, mark })
}

/// The mark, if one is made, and which copy of the job begins.
fn at_outset(client: &mut Client, outset: AtOutset<'_>, by: By) -> Outcome<(Option<Vec<u8>>, u64)> {
    match outset {
        AtOutset::Nothing => Ok((None, FIRST_COPY)),
        AtOutset::Mark => {
            // It has no handles yet of which the shadow would have to be told.
            let state = client.ask(&Request::Mark(Mark {}), &[])?;
            client.ask(&Request::Settle(Settle { committed: true }), &[])?;
            Ok((Some(state), FIRST_COPY))
        }
        AtOutset::GoBack(state) => {
            let others = Others::RollBack;
            take_up(client, (others, by), state)
                .context(|| "the job's files do not become what they were when it began".to_owned())
                .map(|incarnation| (None, incarnation))
        }
    }
}

/// Who a job is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Its user, where it has a namespace of its own.
    pub(crate) uid: u32,
    /// Its group, there.
    pub(crate) gid: u32,
    /// What it calls the machine, and the machine's domain; empty: what that is called.
    machine: [Vec<u8>; 2],
}

impl Identity {
    /// We, on this machine.
    pub(crate) fn own() -> Self {
        Identity {
            uid: nix::unistd::geteuid().as_raw(),
            gid: nix::unistd::getegid().as_raw(),
            machine: Default::default(),
        }
    }
}

/// Descriptors that [`resume`] makes.
pub(crate) fn of_a_restart() -> impl Iterator<Item = u32> {
    let made = [
        Reserved::Session,
        Reserved::LockEnds,
        Reserved::Link,
        Reserved::Nodes,
    ];
    made.into_iter().map(|one| one.number().cast_unsigned())
}

/// How long what is done for the copy before it may take.
const RESUMES_WITHIN: Duration = Duration::from_secs(600);
const RESUMES_AGAIN: Duration = Duration::from_millis(500);

/// Who has a job go on (docs/adr/0033).
#[derive(Clone, Copy, Debug)]
pub(crate) struct By {
    /// A number of his own.
    starter: u64,
    /// Whoever has the job now.
    takes: bool,
}

impl By {
    /// Somebody by a command.
    pub(crate) fn command() -> io::Result<Self> {
        Ok(By {
            starter: generation()?,
            takes: true,
        })
    }

    /// His number.
    pub(crate) fn starter(self) -> u64 {
        self.starter
    }

    /// From now on only unless somebody else has it go on.
    pub(crate) fn takes_no_more(&mut self) {
        self.takes = false;
    }
}

/// How a job with a shadow is taken up again.
#[derive(Debug)]
pub(crate) struct Resumption<'a> {
    /// Where the shadow is.
    pub(crate) socket: &'a Path,
    /// How long calls wait for one that is gone.
    pub(crate) lease: Duration,
    pub(crate) sight: &'a Sight,
    /// The shadow is of this machine and this user.
    pub(crate) at_home: bool,
    pub(crate) by: By,
}

/// Has the shadow go on from a state, and makes what the restarted job takes over.
pub(crate) fn resume(begin: &Resumption<'_>, state: &[u8], files: Files) -> Outcome<()> {
    let Resumption {
        socket,
        lease,
        sight,
        at_home,
        by,
    } = begin;
    let others = match files {
        Files::Fail => Others::Fail,
        Files::Keep => Others::Keep,
        Files::RollBack => Others::RollBack,
    };
    let (mut client, token) = connect(socket)?;
    let incarnation = take_up(&mut client, (others, *by), state).context(|| {
        let shown = crate::raw::shown_path(socket);
        format!("the shadow on {shown} does not go on with the job's files")
    })?;
    let mut sees = Sees::default();
    if sight.filesystem_domain.is_some() {
        client.identify(&mut sees)?;
    }
    let seen = sees.here(sight, *at_home)?;
    let held = Held {
        client,
        incarnation,
    };
    hand_down_session(held, &token, (socket, *lease), &seen)
}

/// Has the session go on from the state; which copy of the job it is of.
///
/// What is done for the copy before this one ends: that is waited for, on the same stream, whose session whoever brings us to the shadow has heard of.
fn take_up(client: &mut Client, how: (Others, By), state: &[u8]) -> Result<u64, NotResumed> {
    let began = Instant::now();
    loop {
        match client.resume(how, state) {
            Err(NotResumed::Now(why)) if began.elapsed() < RESUMES_WITHIN => {
                tracing::info!(why, "the shadow does not go on yet");
                std::thread::sleep(RESUMES_AGAIN);
            }
            resumed => return resumed,
        }
    }
}

pub(crate) fn connect(socket: &Path) -> Outcome<(Client, Token)> {
    let token = read_token(socket)?;
    limits::leave_the_job(FEWEST_DESCRIPTORS)?;
    let client = Client::begin(socket, &token).context(|| {
        format!(
            "no session with the shadow on {}",
            crate::raw::shown_path(socket)
        )
    })?;
    Ok((client, token))
}

/// The stream that keeps the session of a copy of the job.
struct Held {
    client: Client,
    incarnation: u64,
}

/// That stream, what tells the shadow of ends, and the link.
fn hand_down_session(
    Held {
        mut client,
        incarnation,
    }: Held,
    token: &Token,
    (socket, lease): (&Path, Duration),
    seen: &Seen,
) -> Outcome<()> {
    let lock_ends = inotify()?;
    // A shadow on another machine cannot have it: what a process that is killed has locked is free when the job notices.
    client.hand_over(&Request::WatchEnds(WatchEnds {}), lock_ends.as_fd())?;
    let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
    client
        .ask(&Request::Lease(Lease { ms: lease_ms }), &[])
        .context(|| "the shadow is not told of the lease".to_owned())?;
    let name = socket.as_os_str().as_bytes();
    let link = Link::new(token, client.session(), generation()?, lease_ms, name);
    let mut link = link.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidFilename))?;
    link.reads_here = seen.reads_here.into();
    link.incarnation = incarnation;
    let len = MOUNTS_AT + seen.mounts.len() as u64;
    let link = memory_file(c"wf-link", &link.bytes(), len)?;
    File::from(link.try_clone()?).write_all_at(&seen.mounts[..], MOUNTS_AT)?;
    hand_down(&client.into_stream()?, Reserved::Session)?;
    hand_down(&lock_ends, Reserved::LockEnds)?;
    hand_down(&link, Reserved::Link)?;
    let nodes = match sys::memory_mounted_nowhere() {
        Some(folder) => folder,
        // The job has no FIFOs and named sockets then.
        None => memory_file(c"wf-nodes", &[], 0)?,
    };
    hand_down(&nodes, Reserved::Nodes)
}

/// No two copies of a job have the same, nor two starters.
fn generation() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes).max(1))
}

/// A job has two of these. The machine allows each user so many (inotify(7)).
fn inotify() -> Outcome<Inotify> {
    let made = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC);
    made.map_err(|errno| match errno {
        Errno::EMFILE => {
            let most = fs::read_to_string("/proc/sys/fs/inotify/max_user_instances");
            let most = most.unwrap_or_default();
            let message = format!(
                "no inotify instance: found as many as this user may have (fs.inotify.max_user_instances = {}), expected room for the two of a job with remote files",
                most.trim()
            );
            Failure::new(Exit::Host, message)
                .advise("sysctl fs.inotify.max_user_instances=1024, by root")
        }
        other => other.into(),
    })
}

fn memory_file(name: &std::ffi::CStr, bytes: &[u8], len: u64) -> io::Result<OwnedFd> {
    let file = File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC)?);
    file.set_len(len)?;
    file.write_all_at(bytes, 0)?;
    Ok(file.into())
}

/// Gives a descriptor the number that the job knows it by, and lets it be inherited.
fn hand_down(fd: &impl AsFd, reserved: Reserved) -> Outcome<()> {
    let number = reserved.number();
    let held = fcntl(fd.as_fd(), FcntlArg::F_DUPFD(number))?;
    if held != number {
        let message = format!("descriptor {number} is open already; {RESERVED:?} must be free");
        return Err(Failure::new(crate::report::Exit::Failed, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use wire::{HEAD_LEN, Head, Refusal, Reply, Welcome};

    /// Reads a message, and answers it.
    fn answer(stream: &mut UnixStream, reply: &Reply<'_>) {
        let mut head = [0; HEAD_LEN];
        stream.read_exact(&mut head).expect("a head");
        let head = Head::read(&head).expect("sound");
        let mut rest = vec![0; (head.body_len + head.data_len) as usize];
        stream.read_exact(&mut rest).expect("the rest");
        let mut room = [0; HEAD_LEN + 1024];
        let len = reply.message(head.number, 0, &mut room).expect("fits");
        stream.write_all(&room[..len]).expect("answers");
    }

    /// Whoever brings us to a shadow on another machine knows the job's session by the first stream.
    #[test]
    fn who_is_refused_for_now_asks_again_in_the_same_session() {
        let dir = tempfile::tempdir().expect("a folder");
        let socket = dir.path().join("shadow");
        fs::write(dir.path().join("shadow.token"), [1; 32]).expect("writes");
        let listener = UnixListener::bind(&socket).expect("binds");
        let shadow = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("comes");
            let welcome = Reply::Welcome(Welcome {
                version: wire::VERSION,
                session: 1,
                most_in_flight: 1,
            });
            answer(&mut stream, &welcome);
            let refused = Reply::Refused(Refusal {
                reason: "copy 1 of the job is being served yet",
                passing: true,
            });
            answer(&mut stream, &refused);
            answer(&mut stream, &refused);
            answer(&mut stream, &Reply::Number(5));
        });
        let by = By::command().expect("has a number");
        let (mut client, _) = connect(&socket).expect("is welcome");
        let incarnation = take_up(&mut client, (Others::Keep, by), b"state").expect("goes on");
        assert_eq!(incarnation, 5);
        shadow.join().expect("has served");
    }
}
