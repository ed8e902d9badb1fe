//! The command line of an image, the same for `./IMAGE` and `wayfarer restart`.

use crate::abi::F_GETFD;
use crate::report::{Outcome, Raw, failure};
use core::ffi::CStr;

/// What happens with files that are not as they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// The restart ends.
    Fail,
    /// They are used as they are.
    Keep,
    /// Files that have grown are cut back, the tail saved beside them.
    RollBack,
}

/// Where the job's ids come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pids {
    /// Namespaces if the machine lets us make them, else the machine's.
    Auto,
    /// The machine's.
    Host,
    /// Namespaces, or an error.
    Namespace,
}

/// Descriptors that may be named with `--inherit-fd`.
const MOST_INHERITED: usize = 64;

/// A child of ours that has memory of the job in its place.
#[derive(Clone, Copy, Debug)]
pub struct Prepared {
    /// The socket by which it is asked.
    pub door: i32,
    pub pid: i32,
}

/// The options given.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub image_fd: Option<i32>,
    pub pids: Pids,
    pub accept_new_ids: bool,
    pub files: Files,
    pub degraded: bool,
    pub verify: bool,
    pub help: bool,
    pub version: bool,
    /// What the image is called, for messages, where `/proc` does not tell.
    pub image_name: Option<&'static CStr>,
    /// Who is told when the job runs and when it has ended, and whose end is waited for then.
    pub keeper_fd: Option<i32>,
    /// Who is told when the job runs and how it has ended, and answers when that is written down.
    pub starter_fd: Option<i32>,
    /// Memory is put in its place ahead, as this socket tells ([`crate::ahead`]).
    pub prepare_fd: Option<i32>,
    /// A process that has done so.
    pub prepared: Option<Prepared>,
    /// The job sees nothing of the machine but this socket.
    pub confine: Option<&'static CStr>,
    /// No thread of the job is less nice.
    pub niceness: Option<i32>,
    inherit: [i32; MOST_INHERITED],
    inherit_count: usize,
}

/// What `--help` prints.
pub const HELP: &str = "\
An image of a stopped job; executing it lets the job go on.

Usage: IMAGE [OPTIONS]

  --pids auto|host|namespace     where process ids come from [auto]
  --accept-new-ids               go on even if the job's processes get other ids
  --files fail|keep|roll-back    what to do with files that are not as they were [fail]
  --degraded                     go on even if something that was there cannot be given back
  --inherit-fd N                 a descriptor that may take the place of an outside one
                                 (0, 1 and 2 always may; repeatable)
  --image-fd N                   read the image from this descriptor
  --verify                       check every byte of the image, print ok, start nothing
  --version                      the version of wayfarer that made the image
  --help                         this text
";

/// What `--version` prints.
pub const VERSION: &str = concat!("wayfarer ", env!("CARGO_PKG_VERSION"), "\n");

impl Options {
    /// Reads the arguments behind the program's name.
    pub fn read(arguments: impl Iterator<Item = &'static CStr>) -> Outcome<Options> {
        let mut options = Options {
            image_fd: None,
            pids: Pids::Auto,
            accept_new_ids: false,
            files: Files::Fail,
            degraded: false,
            verify: false,
            help: false,
            version: false,
            image_name: None,
            keeper_fd: None,
            starter_fd: None,
            prepare_fd: None,
            prepared: None,
            confine: None,
            niceness: None,
            inherit: [0; MOST_INHERITED],
            inherit_count: 0,
        };
        let mut arguments = arguments;
        while let Some(word) = arguments.next() {
            let argument = word.to_bytes();
            if argument == b"--image-name" {
                options.image_name = arguments.next();
                continue;
            }
            if argument == b"--confine" {
                let socket = arguments.next();
                options.confine =
                    Some(socket.ok_or_else(|| failure!(Usage, "--confine: a value is missing"))?);
                continue;
            }
            let (name, mut attached) = match argument.iter().position(|byte| *byte == b'=') {
                Some(at) => (&argument[..at], Some(&argument[at + 1..])),
                None => (argument, None),
            };
            let mut value = || {
                let missing = failure!(Usage, "{}: a value is missing", Raw(name));
                let mut next = || arguments.next().map(CStr::to_bytes);
                attached.take().or_else(&mut next).ok_or(missing)
            };
            let unknown =
                |value: &[u8]| failure!(Usage, "{}: unknown value {}", Raw(name), Raw(value));
            match name {
                b"--image-fd" => options.image_fd = Some(number(name, value()?)?),
                b"--keeper-fd" => options.keeper_fd = Some(number(name, value()?)?),
                b"--starter-fd" => options.starter_fd = Some(number(name, value()?)?),
                b"--prepare-fd" => options.prepare_fd = Some(number(name, value()?)?),
                b"--prepared-fd" => {
                    let door = number(name, value()?)?;
                    options.prepared = Some(Prepared { door, pid: 0 });
                }
                b"--prepared-pid" => {
                    let pid = number(name, value()?)?;
                    options.prepared = options.prepared.map(|one| Prepared { pid, ..one });
                }
                b"--inherit-fd" => options.inherit(number(name, value()?)?)?,
                b"--niceness" => options.niceness = Some(number(name, value()?)?),
                b"--accept-new-ids" => options.accept_new_ids = true,
                b"--degraded" => options.degraded = true,
                b"--verify" => options.verify = true,
                b"--help" | b"-h" => options.help = true,
                b"--version" | b"-V" => options.version = true,
                b"--pids" => {
                    options.pids = match value()? {
                        b"auto" => Pids::Auto,
                        b"host" => Pids::Host,
                        b"namespace" => Pids::Namespace,
                        other => return Err(unknown(other)),
                    }
                }
                b"--files" => {
                    options.files = match value()? {
                        b"fail" => Files::Fail,
                        b"keep" => Files::Keep,
                        b"roll-back" => Files::RollBack,
                        other => return Err(unknown(other)),
                    }
                }
                other => {
                    return Err(failure!(
                        Usage,
                        "unknown argument {} (see --help)",
                        Raw(other)
                    ));
                }
            }
        }
        Ok(options)
    }

    /// Refuses an `--inherit-fd` that names nothing of the caller's; before anything is opened that could
    /// get its number.
    pub fn check_inherited(&self) -> Outcome<()> {
        let missing =
            |fd: &&i32| Some(**fd) == self.image_fd || crate::sys::fcntl(**fd, F_GETFD, 0).is_err();
        match self.inherited().iter().find(missing) {
            Some(fd) => Err(failure!(
                Usage,
                "--inherit-fd {fd}: no such descriptor is open"
            )),
            None => Ok(()),
        }
    }

    fn inherit(&mut self, fd: i32) -> Outcome<()> {
        let most = failure!(Usage, "--inherit-fd: at most {MOST_INHERITED} are possible");
        *self.inherit.get_mut(self.inherit_count).ok_or(most)? = fd;
        self.inherit_count += 1;
        Ok(())
    }

    /// Whether the job may be given this descriptor.
    pub fn may_inherit(&self, fd: u64) -> bool {
        fd < 3 || self.inherited().iter().any(|allowed| *allowed as u64 == fd)
    }

    /// The descriptors named with `--inherit-fd`.
    pub fn inherited(&self) -> &[i32] {
        &self.inherit[..self.inherit_count]
    }
}

fn number(name: &[u8], digits: &[u8]) -> Outcome<i32> {
    core::str::from_utf8(digits)
        .ok()
        .and_then(|text| text.parse::<i32>().ok())
        .filter(|number| *number >= 0)
        .ok_or_else(|| {
            failure!(
                Usage,
                "{}: {} is not a descriptor number",
                Raw(name),
                Raw(digits)
            )
        })
}
