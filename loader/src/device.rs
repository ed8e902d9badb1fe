//! Devices that are the same everywhere: null, zero, full, random, urandom, tty (null(4), random(4), tty(4)).
//!
//! ```text
//! the name leads to it -> opened
//! the restarter has it as one of its descriptors -> that, opened once more
//! it is null, and --degraded -> an empty pipe for reading, the restarter's output for writing
//! ```
//! A machine may have no /dev at all, and most jobs have null open: who starts one in the background gives it that as its input.

use crate::abi::*;
use crate::context::Context;
use crate::interpret::text;
use crate::objects::to_slot;
use crate::report::{self, Line, Outcome, Raw, failure};
use crate::sys::{self, SysResult};
use core::ffi::CStr;
use core::fmt::{self, Write};
use loader::ops;

/// `st_rdev` of /dev/null.
const NULL: u64 = 1 << 8 | 3;
const S_IFCHR: u32 = 0o020000;

/// Opens it.
pub fn open(context: &Context, op: &ops::Device, tail: &'static [u8]) -> Outcome<()> {
    let path = text(tail)?;
    let is_it = |fd: i32| {
        let stat = sys::stat(fd);
        stat.is_ok_and(|stat| stat.mode & S_IFMT == S_IFCHR && stat.rdev == op.device)
    };
    let why = match sys::open(path, op.flags | O_NOCTTY) {
        Ok(fd) if is_it(fd) => return to_slot(fd, op.slot, "device"),
        Ok(fd) => {
            sys::close(fd);
            None
        }
        Err(error) => Some(error),
    };
    let standard = 0..3;
    let mut given = standard.chain(context.options.inherited().iter().copied());
    let found = given
        .find(|fd| is_it(*fd))
        .and_then(|fd| once_more(fd, op.flags).ok());
    if let Some(fd) = found {
        return to_slot(fd, op.slot, "device");
    }
    let what = Descriptor(op.fd);
    if context.options.degraded
        && op.device == NULL
        && let Some((fd, instead)) = instead_of_null(op)
    {
        report::say(
            context.name(),
            format_args!("lost: {what} was {}: {instead}", Raw(path.to_bytes())),
        );
        return to_slot(fd, op.slot, "device");
    }
    let mut reason = Line::new();
    let _ = match why {
        Some(error) => write!(reason, "{error}"),
        None => write!(reason, "something else has this name here"),
    };
    let degraded = match op.device {
        NULL if !context.options.degraded => ", or go on without it (--degraded)",
        _ => "",
    };
    Err(failure!(
        Host,
        "{what} was the device {}, which is not on this machine ({}): give it to the restart as one of its descriptors, from outside{degraded}",
        Raw(path.to_bytes()),
        Raw(reason.bytes())
    ))
}

/// Another open file description of what the restarter has as `fd`; without /proc, its own, if it can be used as the job did.
fn once_more(fd: i32, flags: u64) -> SysResult<i32> {
    let mut link = Line::new();
    let _ = write!(link, "/proc/self/fd/{fd}\0");
    let link = CStr::from_bytes_until_nul(link.bytes()).unwrap_or(c"");
    sys::open(link, (flags | O_NOCTTY) & !O_NOFOLLOW).or_else(|error| {
        let access = sys::fcntl(fd, F_GETFL, 0)? & O_ACCMODE;
        match access == O_RDWR || access == flags & O_ACCMODE {
            true => duplicate(fd),
            false => Err(error),
        }
    })
}

fn duplicate(fd: i32) -> SysResult<i32> {
    sys::fcntl(fd, F_DUPFD_CLOEXEC, 3).map(|fd| fd as i32)
}

/// What is read from it is nothing; what is written to it anybody may see.
fn instead_of_null(op: &ops::Device) -> Option<(i32, &'static str)> {
    if op.flags & O_ACCMODE == O_RDONLY {
        let [read, write] = sys::pipe(O_CLOEXEC | op.flags & O_NONBLOCK).ok()?;
        sys::close(write);
        return Some((read, "it is an empty pipe now"));
    }
    let fd = i32::try_from(op.fd).ok().filter(|fd| (1..3).contains(fd))?;
    let fd = duplicate(fd).ok()?;
    Some((
        fd,
        "what is written to it goes where the restart's output goes",
    ))
}

/// How a descriptor is called in a message.
struct Descriptor(u64);

impl fmt::Display for Descriptor {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            u64::MAX => to.write_str("a descriptor in a message"),
            fd => write!(to, "descriptor {fd}"),
        }
    }
}
