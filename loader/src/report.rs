//! Failures and notes: one line each on stderr, and the exit code that goes with it.
//!
//! # What callers may rely on
//! Nothing here allocates. Long names are cut in their middle, so that what is wrong with them, which comes
//! behind, is always said.

use crate::abi::{ESRCH, SIGKILL};
use crate::sys::{self, Errno};
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use loader::visible;
use loader::words::REFUSED;

/// Exit codes, as in the table of the one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Exit {
    Failed = 1,
    Usage = 2,
    Host = 3,
    Image = 4,
    /// Somebody has killed what was being started, by SIGKILL: as shells say it. It could be tried again.
    Killed = 137,
}

/// Room for the image's name and three others at their longest, and the words between them.
const LINE_LEN: usize = 1400;
/// Bytes of a name that are shown, as they are shown: of a longer one its two ends.
const MOST_SHOWN: usize = 240;
const SHOWN_BEGIN: usize = 80;

/// A line of text under construction.
#[derive(Clone, Copy)]
pub struct Line {
    bytes: [u8; LINE_LEN],
    len: usize,
}

impl Line {
    pub const fn new() -> Self {
        Line {
            bytes: [0; LINE_LEN],
            len: 0,
        }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        let room = self.bytes.len() - self.len;
        let len = bytes.len().min(room);
        self.bytes[self.len..self.len + len].copy_from_slice(&bytes[..len]);
        self.len += len;
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

/// Bytes of a path or label, as people are to see them; a long one without its middle.
pub struct Raw<'a>(pub &'a [u8]);

impl fmt::Display for Raw<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        visible::write_ends(self.0, SHOWN_BEGIN, MOST_SHOWN, to)
    }
}

/// The first eight bytes of a checksum.
pub struct Short<'a>(pub &'a [u8]);

impl fmt::Display for Short<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.iter().take(8) {
            write!(to, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// How a process ended, from its wait status.
pub struct Status(pub u32);

impl fmt::Display for Status {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 & 0x7f {
            0 => write!(to, "exit code {}", self.0 >> 8 & 0xff),
            signal => write!(to, "killed by signal {signal}"),
        }
    }
}

/// The exit code when a process with this wait status has died before it ran.
pub fn exit_of_death(status: u32) -> Exit {
    match status & 0x7f {
        SIGKILL => Exit::Killed,
        _ => Exit::Failed,
    }
}

/// The exit code when something cannot be done to a thread of the job that stands still: those end by SIGKILL only.
pub fn exit_of_stopped(error: Errno) -> Exit {
    match error {
        Errno(ESRCH) => Exit::Killed,
        _ => Exit::Failed,
    }
}

/// Why a restart ends here.
pub struct Failure {
    pub exit: u32,
    pub line: Line,
    /// A process nearer to it has written the line; a starter may still have to be told.
    pub is_said: bool,
}

/// A value or the reason for the end.
pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub fn new(exit: Exit, text: fmt::Arguments<'_>) -> Self {
        let mut line = Line::new();
        let _ = line.write_fmt(text);
        Failure {
            exit: exit as u32,
            line,
            is_said: false,
        }
    }
}

/// A [`Failure`] with this exit code and text.
macro_rules! failure {
    ($exit:ident, $($text:tt)*) => {
        $crate::report::Failure::new($crate::report::Exit::$exit, format_args!($($text)*))
    };
}
pub(crate) use failure;

static STDERR: AtomicI32 = AtomicI32::new(2);

/// Whoever wants to know why there is no copy; below zero: nobody.
static STARTER: AtomicI32 = AtomicI32::new(-1);

/// The starter is told of a failure through this descriptor from now on; by this process only, if it has one.
pub fn tell_starter(fd: i32) {
    STARTER.store(fd, Ordering::Relaxed);
}

/// Lines go to this descriptor from now on.
pub fn write_to(fd: i32) {
    STDERR.store(fd, Ordering::Relaxed);
}

/// Nothing is said to anybody.
static SILENT: AtomicBool = AtomicBool::new(false);

/// This process says nothing from now on, or speaks again.
pub fn be_silent(silent: bool) {
    SILENT.store(silent, Ordering::Relaxed);
}

fn is_silent() -> bool {
    SILENT.load(Ordering::Relaxed)
}

/// Whether lines go to a terminal.
pub fn is_on_terminal() -> bool {
    !is_silent() && sys::is_terminal(STDERR.load(Ordering::Relaxed))
}

/// Writes a part of a line, as it is.
pub fn draw(line: &Line) {
    let _ = sys::write(STDERR.load(Ordering::Relaxed), line.bytes());
}

/// Writes `wayfarer: image NAME: TEXT`.
pub fn say(name: &[u8], text: fmt::Arguments<'_>) {
    let mut line = Line::new();
    let _ = line.write_fmt(text);
    print(name, line.bytes());
}

/// Writes the line of a failure, and tells the starter.
pub fn say_failure(name: &[u8], failure: &Failure) {
    if !failure.is_said {
        print(name, failure.line.bytes());
    }
    let starter = STARTER.load(Ordering::Relaxed);
    if starter >= 0 && !is_silent() {
        let mut told = Line::new();
        told.push(&[REFUSED]);
        push_named(&mut told, name, failure.line.bytes(), 0);
        let _ = sys::write(starter, told.bytes());
    }
}

fn print(name: &[u8], text: &[u8]) {
    if is_silent() {
        return;
    }
    let mut whole = Line::new();
    whole.push(b"wayfarer: ");
    push_named(&mut whole, name, text, 1);
    whole.push(b"\n");
    let _ = sys::write(STDERR.load(Ordering::Relaxed), whole.bytes());
}

/// `image NAME: TEXT`, so that so many bytes are left behind it.
fn push_named(line: &mut Line, name: &[u8], text: &[u8], left: usize) {
    if !name.is_empty() {
        let _ = write!(line, "image {}: ", Raw(name));
    }
    line.push(&text[..text.len().min(LINE_LEN - line.len - left)]);
}

const NAMES: [(i32, &str); 46] = [
    (1, "EPERM"),
    (2, "ENOENT"),
    (3, "ESRCH"),
    (4, "EINTR"),
    (5, "EIO"),
    (6, "ENXIO"),
    (7, "E2BIG"),
    (8, "ENOEXEC"),
    (9, "EBADF"),
    (10, "ECHILD"),
    (11, "EAGAIN"),
    (12, "ENOMEM"),
    (13, "EACCES"),
    (14, "EFAULT"),
    (16, "EBUSY"),
    (17, "EEXIST"),
    (18, "EXDEV"),
    (19, "ENODEV"),
    (20, "ENOTDIR"),
    (21, "EISDIR"),
    (22, "EINVAL"),
    (23, "ENFILE"),
    (24, "EMFILE"),
    (25, "ENOTTY"),
    (26, "ETXTBSY"),
    (27, "EFBIG"),
    (28, "ENOSPC"),
    (29, "ESPIPE"),
    (30, "EROFS"),
    (31, "EMLINK"),
    (32, "EPIPE"),
    (33, "EDOM"),
    (34, "ERANGE"),
    (35, "EDEADLK"),
    (36, "ENAMETOOLONG"),
    (38, "ENOSYS"),
    (39, "ENOTEMPTY"),
    (40, "ELOOP"),
    (61, "ENODATA"),
    (71, "EPROTO"),
    (75, "EOVERFLOW"),
    (95, "EOPNOTSUPP"),
    (110, "ETIMEDOUT"),
    (111, "ECONNREFUSED"),
    (116, "ESTALE"),
    (122, "EDQUOT"),
];

impl fmt::Display for Errno {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(number, _)| *number == self.0) {
            Some((_, name)) => to.write_str(name),
            None => write!(to, "error {}", self.0),
        }
    }
}
