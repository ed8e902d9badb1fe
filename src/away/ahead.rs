//! A copy's memory is put in its place while the job still runs elsewhere (docs/adr/0029).
//!
//! ```text
//! starter there ──spawns──> holder (`wayfarer ahead`) ──forks──> D, the loader of the image that came first: maps, fills, waits
//!       │ an image has come ──> IMAGE ──> D: what differs                                                (loader/src/ahead.rs)
//!       └ the job has left: its words, its environment ──> it executes `wayfarer restart`: P0, whose P1 is made from D
//! ```
//! # What callers may rely on
//! Without it, or without D, the copy begins as ever. Both end with whoever spawned the holder.

use crate::args::{Ahead, Files, Pids};
use crate::launch::{self, Launch, Options};
use crate::limits;
use crate::report::{Exit, Failure, Outcome};
use crate::sys;
use crate::verbs::{image_failure, open_image};
use ckpt_lib::image::Image;
use loader::knock;
use loader::layout::SectionKind;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::Signal;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair,
};
use nix::unistd::Pid;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Behind it comes the path of an image.
const IMAGE: u8 = b'i';
/// Behind it come the words to go on with, each with a NUL, and the environment, if there is another.
const GO: u8 = b'g';
/// More is no order.
const LONGEST_ORDER: usize = 64 << 20;
/// Less memory is put in its place as fast as it is told of.
const LEAST: u64 = 16 << 20;

/// The process that becomes the copy's supervisor. Whoever drops it ends it.
pub(crate) struct Holder {
    child: Option<Child>,
    orders: UnixStream,
}

impl Drop for Holder {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Holder {
    /// Begins it with the image that came first.
    ///
    /// # Errors
    /// There is no process for it.
    pub(crate) fn begin(store: &Path, name: Option<&str>, image: &Path) -> Outcome<Self> {
        let (orders, theirs) = UnixStream::pair()?;
        // Without close-on-exec.
        let theirs = nix::unistd::dup(OwnedFd::from(theirs))?;
        let mut command = Command::new("/proc/self/exe");
        command.arg("--dir").arg(store).arg("ahead");
        command.args(["--orders-fd", &theirs.as_raw_fd().to_string()]);
        command.args(["--name", name.unwrap_or("a job")]);
        command.arg("--").arg(image);
        command.stdin(sys::nothing()?).stdout(sys::nothing()?);
        let child = command.stderr(Stdio::piped()).spawn()?;
        Ok(Holder {
            child: Some(child),
            orders,
        })
    }

    /// A newer image has come.
    pub(crate) fn tell(&mut self, image: &Path) {
        // One that is gone is found when it is to go on.
        let _ = send(&mut self.orders, IMAGE, image.as_os_str().as_bytes(), None);
    }

    /// Becomes the process that `command` would begin, with this environment if there is another; None if it is gone.
    pub(crate) fn go_on(mut self, command: &Command, environment: Option<&[u8]>) -> Option<Child> {
        let mut words = vec![];
        for word in command.get_args() {
            words.extend(word.as_bytes());
            words.push(0);
        }
        send(&mut self.orders, GO, &words, environment).ok()?;
        let child = self.child.as_mut()?;
        match child.try_wait() {
            Ok(None) => self.child.take(),
            _ => None,
        }
    }
}

fn send(to: &mut UnixStream, what: u8, text: &[u8], more: Option<&[u8]>) -> io::Result<()> {
    let mut order = vec![what, u8::from(more.is_some())];
    for part in [Some(text), more].into_iter().flatten() {
        order.extend((part.len() as u64).to_le_bytes());
        order.extend(part);
    }
    to.write_all(&order)
}

/// An order; none when nobody is left who gives any.
fn receive(from: &mut UnixStream) -> io::Result<(u8, Vec<u8>, Option<Vec<u8>>)> {
    let mut head = [0; 2];
    from.read_exact(&mut head)?;
    let mut part = || {
        let mut len = [0; 8];
        from.read_exact(&mut len)?;
        let len = usize::try_from(u64::from_le_bytes(len)).unwrap_or(usize::MAX);
        if len > LONGEST_ORDER {
            let message = format!("an order of {len} bytes, expected at most {LONGEST_ORDER}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let mut bytes = vec![0; len];
        from.read_exact(&mut bytes)?;
        Ok(bytes)
    };
    let text = part()?;
    let more = match head[1] {
        0 => None,
        _ => Some(part()?),
    };
    Ok((head[0], text, more))
}

/// `wayfarer ahead`: holds the place of a supervisor until it becomes that.
pub(crate) fn hold(arguments: &Ahead) -> Outcome {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    let orders = sys::inherited(arguments.orders_fd).ok_or_else(|| {
        let found = arguments.orders_fd;
        let message =
            format!("--orders-fd {found}: found no such descriptor, expected an open one");
        Failure::new(Exit::Usage, message)
    })?;
    fcntl(&orders, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    let mut orders = UnixStream::from(orders);
    limits::raise(0)?;
    // Whatever is in the way, the copy begins without it.
    let mut ahead = MemoryAhead::begin(arguments).ok().flatten();
    loop {
        let (what, text, environment) = receive(&mut orders)?;
        match (what, &mut ahead) {
            (IMAGE, Some(ahead)) => {
                let path = PathBuf::from(OsString::from_vec(text));
                // It knows what it has, and P0 says what there is to be.
                let _ = ahead.tell(&path);
            }
            (GO, ahead) => return Err(go_on(&text, environment.as_deref(), ahead.as_ref())),
            _ => {}
        }
    }
}

/// Becomes what it was held for.
fn go_on(words: &[u8], environment: Option<&[u8]>, ahead: Option<&MemoryAhead>) -> Failure {
    let words = words.split_inclusive(|byte| *byte == 0);
    let words = words.map(|word| OsStr::from_bytes(word.strip_suffix(&[0]).unwrap_or(word)));
    let mut command = Command::new("/proc/self/exe");
    command.arg0("wayfarer");
    let mut ahead = ahead;
    for word in words {
        command.arg(word);
        if let Some(ahead) = ahead.take_if(|_| word == "restart") {
            let (door, pid) = (ahead.door.as_raw_fd(), ahead.pid);
            command.args(["--prepared", &door.to_string(), &pid.to_string()]);
        }
    }
    if let Some(block) = environment {
        command.env_clear().envs(launch::entries(block));
    }
    command.exec().into()
}

/// A process that has memory of the job in its place.
struct MemoryAhead {
    pid: Pid,
    door: OwnedFd,
    argv0: String,
}

impl MemoryAhead {
    /// None if it is not worth it, or there is too little memory.
    fn begin(arguments: &Ahead) -> Outcome<Option<Self>> {
        let image = open_image(&arguments.image)?;
        let needed = image.contents_bytes();
        let needed = needed.map_err(|error| image_failure(&arguments.image, error))?;
        if needed < LEAST || available()? < needed + needed / 8 {
            return Ok(None);
        }
        let kind = SockType::SeqPacket;
        let (ours, theirs) = socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC)?;
        let argv0 = format!("wayfarer: {}", arguments.name);
        let us = nix::unistd::getpid();
        match sys::fork()? {
            Some(pid) => {
                // For what we are to execute.
                let door = nix::unistd::dup(&ours)?;
                Ok(Some(MemoryAhead { pid, door, argv0 }))
            }
            None => {
                drop(ours);
                let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
                if nix::unistd::getppid() == us {
                    let _ = execute(arguments, &image, argv0, theirs);
                }
                // Nothing of the parent's is to be undone here.
                sys::exit_at_once(Exit::Failed as i32)
            }
        }
    }

    fn tell(&self, path: &Path) -> Outcome<()> {
        let file = File::open(path)?;
        let (message, len) = knock::image(self.argv0.as_bytes(), path.as_os_str().as_bytes());
        let parts = [IoSlice::new(&message[..len])];
        let fds = [file.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&fds)];
        // One that is gone is missed by P0.
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        sendmsg::<()>(self.door.as_raw_fd(), &parts, &rights, flags, None)?;
        Ok(())
    }
}

fn execute(arguments: &Ahead, image: &Image, argv0: String, door: OwnedFd) -> Failure {
    let door = match nix::unistd::dup(&door) {
        // Without close-on-exec.
        Ok(door) => door,
        Err(errno) => return errno.into(),
    };
    launch::execute(&Launch {
        title: argv0,
        image: image.file(),
        path: Some(&arguments.image),
        prefix_len: Some(image.header().section(SectionKind::Pages).offset),
        fallback_dirs: launch::fallback_dirs(),
        options: Options {
            pids: Pids::Auto,
            files: Files::Fail,
            accept_new_ids: false,
            degraded: false,
            inherit_fds: vec![],
            keeper: None,
            starter: None,
            prepare: Some(door),
            prepared: None,
            confine: None,
            niceness: None,
        },
    })
}

/// Memory that can be had without taking any from others (proc_meminfo(5)), in bytes.
fn available() -> Outcome<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    // A kernel that does not say it is not asked for more.
    Ok(kib.unwrap_or(0).saturating_mul(1024))
}
