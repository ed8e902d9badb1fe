//! `wayfarer kbdd STAMP`: when somebody was last at an X session, for who cannot look into it (condor_kbdd).
//!
//! ```text
//! connect -> how long has nobody been there? -> the file's time of modification -> the next look, or the session's end
//! ```
//! The X server counts keys and movements, of the screen saver's extension (MIT-SCREEN-SAVER, XScreenSaverQueryInfo(3)); a
//! startd counts from the file's time (CONSOLE_STAMPS, docs/MACHINE_AD.md).
//!
//! # What callers may rely on
//! The file's time never goes back. It is nobody's input that is read, only how long ago there was any.

use crate::args::Kbdd;
use crate::raw;
use crate::report::{Exit, Explain, Failure, Outcome, tell};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};
use x11rb::connection::{Connection, RequestConnection};
use x11rb::errors::{ConnectionError, ReplyError};
use x11rb::protocol::screensaver::{self, ConnectionExt};
use x11rb::protocol::xproto::Window;
use x11rb::rust_connection::RustConnection;

/// Times that differ by less are one: the server counts from the last event, we from its answer.
const SAME: Duration = Duration::from_millis(500);
/// Nobody looks more often.
const LEAST: Duration = Duration::from_millis(50);

/// Touches the file whenever somebody was there, until the session ends.
pub(crate) fn kbdd(arguments: &Kbdd) -> Outcome {
    let variable = std::env::var("DISPLAY").ok();
    let display = arguments.display.clone().or(variable);
    let Some(display) = display.filter(|name| !name.is_empty()) else {
        let failure = Failure::new(Exit::Usage, "which X session is not known");
        return Err(failure.advise("name it by --display, or in DISPLAY"));
    };
    let (session, screen) = RustConnection::connect(Some(&display))
        .context(|| format!("X session {display}: cannot be reached"))
        .exit(Exit::Host)?;
    let name = screensaver::X11_EXTENSION_NAME;
    if session.extension_information(name)?.is_none() {
        let what = format!(
            "X session {display}: it has no extension {name}, which counts how long nobody was there"
        );
        return Err(Failure::new(Exit::Host, what));
    }
    let screens = &session.setup().roots;
    let Some(root) = screens.get(screen).map(|screen| screen.root) else {
        let what = format!(
            "X session {display}: found {} screens, expected one with number {screen}",
            screens.len()
        );
        return Err(Failure::new(Exit::Host, what));
    };
    let mut stamp = Stamp::open(&arguments.stamp)?;
    loop {
        match last_used(&session, root) {
            Ok(used) => stamp.set(used)?,
            Err(ReplyError::ConnectionError(error)) => return ended(&display, &error),
            Err(ReplyError::X11Error(error)) => {
                let what = format!("X session {display}: {name}: error {}", error.error_code);
                return Err(Failure::new(Exit::Failed, what));
            }
        }
        if let Err(error) = rest(&session, arguments.every.max(LEAST)) {
            return ended(&display, &error);
        }
    }
}

fn ended(display: &str, error: &ConnectionError) -> Outcome {
    tell(&format!("X session {display} has ended ({error})"));
    Ok(Exit::Done)
}

/// When there was a key or a movement last.
fn last_used(session: &RustConnection, root: Window) -> Result<SystemTime, ReplyError> {
    let info = session.screensaver_query_info(root)?.reply()?;
    let idle = Duration::from_millis(u64::from(info.ms_since_user_input));
    let now = SystemTime::now();
    Ok(now.checked_sub(idle).unwrap_or(now))
}

/// Waits so long, or until the session ends.
fn rest(session: &RustConnection, time: Duration) -> Result<(), ConnectionError> {
    let until = std::time::Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(session.stream().as_fd(), PollFlags::POLLIN)];
        // A signal that is caught: nothing came.
        let _ = poll(&mut fds, timeout);
        while session.poll_for_event()?.is_some() {}
    }
}

/// The file that is touched.
struct Stamp<'a> {
    path: &'a Path,
    file: File,
    /// What its time is; none: it is new.
    time: Option<SystemTime>,
}

impl<'a> Stamp<'a> {
    fn open(path: &'a Path) -> Outcome<Self> {
        let name = || format!("stamp {}", raw::shown_path(path));
        let mut options = OpenOptions::new();
        // A FIFO is nothing to wait for.
        options
            .append(true)
            .mode(0o644)
            .custom_flags(libc::O_NONBLOCK);
        let (file, is_new) = match options.open(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                (options.create_new(true).open(path), true)
            }
            other => (other, false),
        };
        let file = file.context(name)?;
        let found = file.metadata().context(name)?;
        if !found.is_file() {
            let what = format!("{}: it is no regular file", name());
            return Err(Failure::new(Exit::Usage, what));
        }
        let time = (!is_new).then(|| found.modified()).transpose();
        let time = time.context(name)?;
        Ok(Stamp { path, file, time })
    }

    /// Somebody was there then.
    fn set(&mut self, used: SystemTime) -> Outcome<()> {
        if self.time.is_some_and(|time| used < time + SAME) {
            return Ok(());
        }
        let done = self.file.set_modified(used);
        done.context(|| format!("stamp {}", raw::shown_path(self.path)))?;
        self.time = Some(used);
        Ok(())
    }
}
