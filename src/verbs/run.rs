//! `wayfarer run`: a restart of nothing (docs/adr/0006).

use crate::address::Address;
use crate::args::{Files, Pids, Run, Whose};
use crate::away;
use crate::confine;
use crate::jobs::{JobStore, NewJob, Outputs, Outset, has_more_descriptors, process};
use crate::launch::{self, Launch, Options};
use crate::life::{self, Tied};
use crate::limits;
use crate::lookup::{self, Program};
use crate::raw;
use crate::reach;
use crate::remote::{self, AtOutset, Beginning, By};
use crate::report::{Exit, Explain, Failure, Outcome, tell};
use crate::sys;
use ckpt_lib::baseline;
use ckpt_lib::image::{Bytes, ImageParts, ImageWriter};
use ckpt_lib::loader_code;
use ckpt_lib::plan::{Arg, Operations, OpsBuilder, StreamIndex, find_hole};
use ckpt_lib::snapshot::SnapshotV1;
use loader::hole::hole_needed;
use loader::ops::{Enforce, Exec, Expect, OpsHeader, StreamKind, flags};
use nix::sys::signal::Signal;
use std::ffi::CString;
use std::fs::File;
use std::io::IsTerminal;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Starts the command, under a starter if that was asked for.
pub(crate) fn run(store: &JobStore, arguments: &Run) -> Outcome {
    let has_starter = arguments.life.is_wanted() || arguments.resume;
    if arguments.shadow == Some(Address::Stdio) {
        if has_starter {
            let message = "a job whose shadow is on stdio cannot have a starter of its own yet";
            return Err(Failure::new(Exit::Usage, message));
        }
        return super::starter::host(store, arguments);
    }
    if let Some(tied) = away::tied(arguments.begun.starter_fd, arguments.name.as_deref())? {
        return begin(store, arguments, Some(tied));
    }
    if has_starter {
        return life::run(store, arguments);
    }
    begin(store, arguments, None)
}

/// Becomes the supervisor of the command; returns only if that failed.
pub(crate) fn begin(store: &JobStore, arguments: &Run, tied: Option<Tied>) -> Outcome {
    if arguments.with_parent {
        // Our supervisor ends with us, and the job with that.
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    }
    if let Some(mode) = arguments.umask {
        nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(mode));
    }
    let shadow = arguments
        .shadow
        .as_ref()
        .filter(|_| arguments.methods.want_remote_io);
    if arguments.shadow.is_none()
        && let Some(word) = arguments.methods.words().first()
    {
        let message = format!("{} is for jobs with --shadow", crate::raw::shown_path(word));
        return Err(Failure::new(Exit::Usage, message));
    }
    if let (None, Some(directory)) = (shadow, &arguments.chdir) {
        let describe = || format!("cannot begin in {}", crate::raw::shown_path(directory));
        std::env::set_current_dir(directory).context(describe)?;
    }
    if arguments.confine {
        let starter = tied.as_ref().map(|tied| tied.tells.as_raw_fd());
        confine::check(arguments, shadow.is_some(), starter)?;
    }
    let niceness = match arguments.nice {
        Some(by) => Some(niceness(by)?),
        None => None,
    };
    let program = match shadow.is_some() || arguments.journal {
        true => remote::program(&arguments.command),
        false => lookup::find(&arguments.command, std::env::var_os("PATH").as_deref())?,
    };
    if !arguments.quiet && arguments.pids != Pids::Host {
        say_what_it_costs(&program.path);
    }
    let environment = environment(arguments);
    limits::raise(words_len(&program, &environment))?;
    let command = arguments.command.iter();
    let job = super::register(
        store,
        NewJob {
            is_copy: tied.as_ref().is_some_and(|tied| !tied.is_away),
            name: match &tied {
                Some(tied) => Some(tied.name.clone()),
                None => arguments.name.clone(),
            },
            base: arguments.command[0].to_string_lossy().into_owned(),
            replace: arguments.replace,
            continues: false,
            is_same: false,
            command: command.map(raw::encode).collect(),
            generation: 0,
            root_pid: None,
            journal: arguments.journal,
            restarted_from: None,
            outputs: Outputs::of_self(),
            confined: arguments.confine,
        },
    )?;
    let mut keeper = None;
    let mut door = None;
    let mut identity = remote::Identity::own();
    let reached = match shadow {
        Some(address) => {
            let identity = arguments.identity_file.as_deref();
            let socket = reach::socket(address, identity, store.dir(), arguments.lease)?;
            Some((socket, arguments.lease, arguments.methods.identity))
        }
        None if arguments.journal => {
            let dir = job.as_ref().map(|job| job.dir.as_path());
            let dir = dir.filter(|_| tied.is_some());
            Some((
                reach::home(store, arguments.life.journal_max, dir)?,
                reach::HOME_LEASE,
                Whose::Execute,
            ))
        }
        None => None,
    };
    if let Some((socket, lease, whose)) = reached {
        let dir = job.as_ref().map(|job| job.dir.as_path());
        let again = match dir.filter(|_| tied.is_some() && arguments.journal) {
            Some(dir) => Outset::load(dir)?,
            None => None,
        };
        let is_first = tied.as_ref().is_some_and(|tied| tied.is_first);
        let away = tied.as_ref().filter(|tied| tied.is_away);
        let back = away::outset(arguments.begun.go_back.as_deref())?;
        let tells = tied.as_ref().map(|tied| tied.tells.as_raw_fd());
        let none_else = !has_more_descriptors(tells.as_slice());
        let prepared = remote::prepare(&Beginning {
            socket: &socket,
            lease,
            directory: arguments.chdir.as_deref(),
            methods: &arguments.methods,
            whose,
            at_home: shadow.is_none(),
            outset: match (&again, &back) {
                (Some(Outset { state, .. }), _) | (_, Some(state)) => AtOutset::GoBack(state),
                _ if is_first && (arguments.journal || away.is_some()) => AtOutset::Mark,
                _ => AtOutset::Nothing,
            },
            by: match &tied {
                Some(tied) => tied.by,
                None => By::command()?,
            },
        })?;
        identity = prepared.identity;
        if arguments.confine {
            door = Some(confine::door(&socket)?);
        }
        if let (Some(away), Some(mark)) = (away, &prepared.mark) {
            away::tell_outset(away, mark)?;
        }
        let state = match (again, dir) {
            // What this starter was given is as it was; of what an earlier one was given only what the job has written may be here.
            (Some(outset), Some(dir)) if !is_first => {
                outset.give_back_streams(dir);
                None
            }
            (Some(outset), _) => {
                if let Some(tied) = &tied {
                    outset.cut_outputs_back(&tied.name);
                }
                Some(outset.state)
            }
            (None, _) => prepared.mark,
        };
        if let (Some(state), Some(dir), None) = (state, dir, away) {
            Outset::of(state, none_else).save(dir)?;
        }
        keeper = Some(remote::keeper::begin(false)?);
    }
    let name = job.as_ref().map_or("a job", |job| &job.record.name);
    let pages = enforcement(arguments);
    let start_of = Start {
        program: &program,
        environment: &environment,
        identity: (identity.uid, identity.gid),
        niceness,
        pages: pages.as_deref(),
        limits: limits::to_give_back(),
        // A starter has put its own there, and the shim counts on three that are open.
        closed: match tied.is_some() || shadow.is_some() || arguments.journal {
            true => vec![],
            false => (0..3).filter(|fd| sys::was_closed(*fd)).collect(),
        },
    };
    let options = Options {
        pids: arguments.pids,
        files: Files::Fail,
        accept_new_ids: false,
        degraded: false,
        inherit_fds: vec![],
        keeper,
        starter: tied.map(|tied| tied.tells),
        prepare: None,
        prepared: None,
        confine: door,
        niceness: None,
    };
    let failure = start(name, &start_of, options);
    if let Some(job) = job {
        job.withdraw();
    }
    Err(failure)
}

/// The niceness of a job that is to be nicer than we are by so much.
pub(crate) fn niceness(by: u8) -> Outcome<i32> {
    const MOST: i32 = 19;
    let own = process::read_stat(nix::unistd::getpid().as_raw())?.nice;
    let niceness = own + i32::from(by);
    if niceness > MOST {
        let message = format!(
            "--nice {by}: found niceness {own}, so {niceness} for the job, expected at most {MOST}"
        );
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(niceness)
}

/// What is started.
struct Start<'a> {
    program: &'a Program,
    environment: &'a [CString],
    /// User and group, in its namespace.
    identity: (u32, u32),
    /// Another than ours.
    niceness: Option<i32>,
    /// The pages that answer CPUID.
    pages: Option<&'a [u8]>,
    /// Limits that it is to have and we have not: number, soft, hard.
    limits: Vec<[u64; 3]>,
    /// Standard descriptors that it is to have closed.
    closed: Vec<u32>,
}

/// Bytes of what a program is told.
fn words_len(program: &Program, environment: &[CString]) -> u64 {
    let words = program.arguments.iter().map(|word| word.len() + 1);
    let entries = environment.iter().map(|entry| entry.count_bytes() + 1);
    let path = program.path.as_os_str().len();
    (path + words.chain(entries).sum::<usize>()) as u64
}

/// The pages that answer CPUID, if that was asked for and can be. The shim of a job with remote files, or with a journal, makes
/// too many of the calls that would have to be looked at.
fn enforcement(arguments: &Run) -> Option<Vec<u8>> {
    let level = arguments.baseline?;
    let possible = can_be_enforced(arguments);
    possible.then(|| baseline::pages(level))
}

fn can_be_enforced(arguments: &Run) -> bool {
    let with_shim = arguments.shadow.is_some() || arguments.journal;
    arguments.pids != Pids::Host && !with_shim && baseline::can_be_enforced()
}

fn start(name: &str, what: &Start<'_>, options: Options) -> Failure {
    let image = match small_image(what) {
        Ok(image) => image,
        Err(failure) => return failure,
    };
    launch::execute(&Launch {
        title: format!("wayfarer: {name}"),
        image: &image,
        path: None,
        prefix_len: None,
        fallback_dirs: launch::fallback_dirs(),
        options,
    })
}

/// Our own environment, and what `--baseline` adds to it.
fn environment(arguments: &Run) -> Vec<CString> {
    let mut environment = launch::environment();
    let Some(level) = arguments.baseline else {
        return environment;
    };
    let request = baseline::environment(level, |name| std::env::var_os(name));
    if !arguments.quiet {
        let level = level.name();
        if can_be_enforced(arguments) {
            tell(&format!(
                "--baseline {level}: programs that ask this processor (CPUID) see no more, until they handle or block \
                 SIGSEGV themselves"
            ));
        } else {
            tell(&format!(
                "--baseline {level} is a request: glibc and some libraries heed it, nothing enforces it; \
                 images keep the full requirement"
            ));
        }
        for name in &request.left_alone {
            let name = name.to_string_lossy();
            tell(&format!("{name} is set already and stays as it is"));
        }
    }
    for (name, value) in request.set {
        let prefix = [name.as_bytes(), b"="].concat();
        environment.retain(|entry| !entry.to_bytes().starts_with(&prefix));
        environment.extend(CString::new([&prefix, value.as_bytes()].concat()));
    }
    environment
}

/// An image in memory that holds nothing but the command.
fn small_image(what: &Start<'_>) -> Outcome<File> {
    let ops = operations(what, free_fd())?;
    let extents_len = loader::layout::EXTENTS_HEADER_BYTES as u64;
    let span = loader_code::span()?;
    let needed = hole_needed(span, ops.size(), extents_len, STREAMS, 0);
    let hole = find_hole(&SnapshotV1::default(), needed)?;
    let parts = ImageParts {
        platform: "",
        ops: Bytes::from(&ops),
        meta: Bytes::Memory(&[]),
        loader: &loader_code::link(hole.start)?,
        hole,
    };
    let writer = ImageWriter::create_in_memory("wayfarer-run")?;
    Ok(writer.commit_in_memory(&parts)?)
}

/// Streams of [`operations`]: the one that prepares, and the process.
const STREAMS: u64 = 2;

/// The operations of a job that has yet to begin.
fn operations(what: &Start<'_>, free_fd: u64) -> std::io::Result<Operations> {
    let Start {
        program,
        environment,
        identity: (uid, gid),
        niceness,
        pages,
        limits,
        closed,
    } = what;
    let mut ops = OpsBuilder::new(OpsHeader {
        flags: flags::RUN,
        slot_base: free_fd,
        uid: u64::from(*uid),
        gid: u64::from(*gid),
        ..OpsHeader::default()
    });
    if let Some(pages) = pages {
        ops.push(StreamIndex(0), &Enforce { pkru_at: 0 }, pages);
    }
    let process = ops.stream(StreamKind::Process, 0, StreamIndex(0));
    // Where only ancestors may trace (Yama), this process allows others of the same user.
    let allow = [libc::PR_SET_PTRACER as u64, libc::PR_SET_PTRACER_ANY].map(Arg::Value);
    ops.call(
        process,
        "permission to trace",
        libc::SYS_prctl,
        &allow,
        Expect::Ignore,
        0,
    );
    if let Some(niceness) = niceness {
        let nice = i64::from(*niceness).cast_unsigned();
        let args = [libc::PRIO_PROCESS as u64, 0, nice].map(Arg::Value);
        let nr = libc::SYS_setpriority;
        ops.call(process, "niceness (--nice)", nr, &args, Expect::Success, 0);
    }
    for fd in closed {
        let args = [Arg::Value(u64::from(*fd))];
        let nr = libc::SYS_close;
        ops.call(process, "closed descriptor", nr, &args, Expect::Success, 0);
    }
    let words = limits.iter().flatten();
    let mut tail: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
    tail.extend(program.path.as_os_str().as_bytes());
    tail.push(0);
    for argument in &program.arguments {
        tail.extend(argument.as_bytes());
        tail.push(0);
    }
    for entry in *environment {
        tail.extend(entry.as_bytes_with_nul());
    }
    let exec = Exec {
        args: program.arguments.len() as u64,
        envs: environment.len() as u64,
        limits: limits.len() as u64,
    };
    ops.push(process, &exec, &tail);
    ops.finish()
}

/// A descriptor number behind all that are open.
fn free_fd() -> u64 {
    let entries = std::fs::read_dir("/proc/self/fd");
    let names = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name());
    let highest = names
        .filter_map(|name| name.to_str()?.parse::<u64>().ok())
        .max();
    // One is the directory that was just read, so this leaves room for the image's own.
    highest.map_or(64, |fd| fd + 8)
}

/// On a terminal, says what the program will miss in a namespace of its own.
fn say_what_it_costs(program: &Path) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let mode = std::fs::metadata(program).map_or(0, |metadata| {
        std::os::unix::fs::PermissionsExt::mode(&metadata.permissions())
    });
    let own = nix::unistd::getegid();
    let groups = nix::unistd::getgroups().unwrap_or_default();
    let others = groups.into_iter().filter(|group| *group != own).count();
    for cost in costs(&crate::raw::shown_path(program), mode, others) {
        tell(&cost);
    }
}

/// What a program with this mode misses, whose user has so many other groups than its own.
fn costs(program: &str, mode: u32, others: usize) -> Vec<String> {
    let mut costs = vec![];
    if mode & (libc::S_ISUID | libc::S_ISGID) != 0 {
        costs.push(format!(
            "{program} is setuid or setgid and will gain nothing (--pids host lets it)"
        ));
    }
    if others > 0 {
        costs.push(format!(
            "the job sees {others} of your groups as 65534, as it does other owners of files (--pids host shows them)"
        ));
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::*;
    use loader::ops::{AnyOp, OpsList};

    #[test]
    fn what_a_namespace_costs_is_said() {
        assert!(costs("/bin/ls", 0o755, 0).is_empty());
        let costs = costs("/bin/su", 0o4755, 2);
        assert_eq!(costs.len(), 2);
        assert!(costs[0].contains("/bin/su is setuid"), "{costs:?}");
        assert!(costs[1].contains("2 of your groups as 65534"), "{costs:?}");
    }

    #[test]
    fn the_list_ends_in_the_command_with_all_its_words() {
        let program = Program {
            path: "/bin/echo".into(),
            arguments: vec!["echo".into(), "".into(), "a b".into()],
        };
        let environment = [c"A=1".to_owned(), c"odd".to_owned()];
        let what = Start {
            program: &program,
            environment: &environment,
            identity: (7, 8),
            niceness: Some(5),
            pages: None,
            limits: vec![[7, 8, 9]],
            closed: vec![1],
        };
        let list = operations(&what, 20).expect("finishes");
        let bytes = list.bytes().expect("reads");
        let list = OpsList::read(&bytes).expect("sound");
        let header = list.header();
        assert_eq!((header.flags, header.slot_base), (flags::RUN, 20));
        assert_eq!((header.uid, header.gid), (7, 8));
        let process = list.stream(1).expect("process");
        let last = list
            .records(&process)
            .last()
            .expect("records")
            .expect("sound");
        let AnyOp::Exec(exec) = last.op else {
            panic!("{:?}", last.op)
        };
        assert_eq!((exec.args, exec.envs, exec.limits), (3, 2, 1));
        let (limits, words) = last.tail.split_at(24);
        assert_eq!([limits[0], limits[8], limits[16]], [7, 8, 9]);
        assert!(words.starts_with(b"/bin/echo\0echo\0\0a b\0A=1\0odd\0"));
    }

    #[test]
    fn the_free_descriptor_is_free() {
        let held = std::fs::File::open("/dev/null").expect("open");
        let free = free_fd();
        assert!(free > std::os::fd::AsRawFd::as_raw_fd(&held) as u64);
    }
}
