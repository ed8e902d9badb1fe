//! The file: each event goes to its end in one write, under its lock.
//!
//! ```text
//! opened --lock--> locked --the last event was left half: its end goes first--> written --close--> unlocked
//!                    `--taken away meanwhile: opened anew  `--only in part: cut back
//! ```

use super::{Event, JobNumber, text};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Nobody writes or reads an event for so long.
const LOCKED_WITHIN: Duration = Duration::from_secs(10);
/// Between two attempts to lock it: at first, and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(16)];
/// The longest end of a whole event: a line feed, the dots, and how a line may end.
const MOST_END: u64 = 6;

/// The event could not be written; the file is as it was, if nothing else is said.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// It can be neither opened nor made.
    #[error("cannot open event log {path}")]
    Open {
        /// The log.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A directory, a pipe, a device.
    #[error("event log {path} is not a file")]
    NotAFile {
        /// The log.
        path: PathBuf,
    },
    /// Somebody keeps it locked.
    #[error("event log {path} is locked by another for more than {} s", within.as_secs())]
    Locked {
        /// The log.
        path: PathBuf,
        /// How long it was waited for.
        within: Duration,
    },
    /// Its file system has no locks, or no more.
    #[error("cannot lock event log {path}")]
    Lock {
        /// The log.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its end cannot be read.
    #[error("cannot read event log {path}")]
    Read {
        /// The log.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The disk is full, or the like.
    #[error("cannot write to event log {path}")]
    Write {
        /// The log.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The same, and a part of the event stays; who appends next ends it.
    #[error("cannot write to event log {path}, nor cut half an event off it ({clean_up})")]
    Half {
        /// The log.
        path: PathBuf,
        /// Why it cannot be written.
        source: io::Error,
        /// Why it cannot be cut.
        clean_up: io::Error,
    },
    /// Before the year −9999 or after 9999.
    #[error("no event can be at that time")]
    Time {
        /// Why.
        source: jiff::Error,
    },
}

/// A file that events are appended to; any number of threads and processes may do so.
///
/// Its name is what is kept: a log that was moved away or removed between two events is made anew.
#[derive(Clone, Debug)]
pub struct EventLog {
    path: PathBuf,
    /// How long its lock is waited for.
    within: Duration,
}

impl EventLog {
    /// Makes the file if there is none, readable for all whom the umask does not exclude.
    ///
    /// # Errors
    /// [`EventError::Open`], [`EventError::NotAFile`].
    pub fn open(path: &Path) -> Result<Self, EventError> {
        let absolute = std::path::absolute(path).map_err(|source| EventError::Open {
            path: path.to_owned(),
            source,
        })?;
        let log = EventLog {
            path: absolute,
            within: LOCKED_WITHIN,
        };
        log.file()?;
        Ok(log)
    }

    /// Appends what happened to a job at that time, which is written as local time in whole seconds. While another has the
    /// lock, it waits for 10 s at most.
    ///
    /// An event that somebody was killed in is ended first, with what `missing_end` finds that HTCondor's reader needs to go
    /// on: it reports an error, or the event if only its end lacks, and finds all that follow.
    ///
    /// # Errors
    /// Any [`EventError`].
    pub fn append(
        &self,
        number: JobNumber,
        at: SystemTime,
        event: &Event,
    ) -> Result<(), EventError> {
        let at = local(at)?;
        let (file, len) = self.locked()?;
        let end = missing_end(&file, len).map_err(|source| EventError::Read {
            path: self.path.clone(),
            source,
        })?;
        let text = format!("{end}{}", text::event(number, &at, event));
        (&file).write_all(text.as_bytes()).map_err(|source| {
            let path = self.path.clone();
            match file.set_len(len) {
                Ok(()) => EventError::Write { path, source },
                Err(clean_up) => EventError::Half {
                    path,
                    source,
                    clean_up,
                },
            }
        })
    }

    fn file(&self) -> Result<File, EventError> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o644);
        // What is no file must not make us wait, nor become our terminal.
        options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        let failed = |source| EventError::Open {
            path: self.path.clone(),
            source,
        };
        let file = options.open(&self.path).map_err(failed)?;
        if file.metadata().map_err(failed)?.is_file() {
            Ok(file)
        } else {
            let path = self.path.clone();
            Err(EventError::NotAFile { path })
        }
    }

    /// The file, locked until it is closed, and its length.
    fn locked(&self) -> Result<(File, u64), EventError> {
        let until = Instant::now() + self.within;
        loop {
            let file = self.file()?;
            self.lock(&file, until)?;
            let metadata = file.metadata().map_err(|source| EventError::Read {
                path: self.path.clone(),
                source,
            })?;
            if metadata.nlink() > 0 || Instant::now() > until {
                return Ok((file, metadata.len()));
            }
        }
    }

    /// An fcntl lock of the whole file, as HTCondor's writer takes; the open file has it, not the process, so it keeps our own
    /// threads apart, too. It is asked for again and again: one that somebody keeps must not stop us for ever.
    fn lock(&self, file: &File, until: Instant) -> Result<(), EventError> {
        let whole = libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        let [mut pause, longest] = PAUSES;
        loop {
            let path = || self.path.clone();
            match fcntl(file, FcntlArg::F_OFD_SETLK(&whole)) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN | Errno::EACCES) if Instant::now() < until => {
                    thread::sleep(pause);
                    pause = longest.min(pause * 2);
                }
                Err(Errno::EAGAIN | Errno::EACCES) => {
                    let (path, within) = (path(), self.within);
                    return Err(EventError::Locked { path, within });
                }
                Err(errno) => {
                    let (path, source) = (path(), errno.into());
                    return Err(EventError::Lock { path, source });
                }
            }
        }
    }
}

fn local(at: SystemTime) -> Result<String, EventError> {
    let at = Timestamp::try_from(at).map_err(|source| EventError::Time { source })?;
    let at = at.to_zoned(TimeZone::system());
    Ok(at.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

/// What the last event of a file of `len` bytes lacks to be ended.
///
/// Three dots that were begun are completed. Else a line with a blank and the dots follow: without it HTCondor's reader takes
/// the dots for a line that an event 22, 23 or 24 lacks, and loses the event after it; an empty line would spoil an event 9
/// that lacks nothing else. What is no more than the event's number gets its three digits and a blank, since the reader takes
/// less for an event that is still being written, and waits.
fn missing_end(file: &File, len: u64) -> io::Result<&'static str> {
    let from = len.saturating_sub(MOST_END);
    let mut tail = [0; MOST_END as usize];
    let tail = &mut tail[..(len - from) as usize];
    file.read_exact_at(tail, from)?;
    let mut lines = tail.rsplit(|byte| *byte == b'\n');
    let begun = lines.next().unwrap_or_default();
    if tail.is_empty() {
        return Ok("");
    }
    if begun.is_empty() {
        let last = lines.next().unwrap_or_default();
        let last = last.strip_suffix(b"\r").unwrap_or(last);
        return Ok(if last == text::END.as_bytes() {
            ""
        } else {
            " \n...\n"
        });
    }
    Ok(match begun {
        b"." => "..\n",
        b".." => ".\n",
        b"..." => "\n",
        [b'0'..=b'9'] => "00 \n \n...\n",
        [b'0'..=b'9', b'0'..=b'9'] => "0 \n \n...\n",
        [b'0'..=b'9', b'0'..=b'9', b'0'..=b'9'] => " \n \n...\n",
        _ => "\n \n...\n",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::BufRead;
    use std::process::{Command, Stdio};
    use std::time::UNIX_EPOCH;

    const JOB: JobNumber = JobNumber {
        cluster: 7,
        process: 0,
        subprocess: 0,
    };

    fn log(within: Duration) -> (tempfile::TempDir, EventLog) {
        let dir = tempfile::tempdir().expect("a directory");
        let mut log = EventLog::open(&dir.path().join("log")).expect("opens");
        log.within = within;
        (dir, log)
    }

    fn append(log: &EventLog) -> Result<(), EventError> {
        log.append(JOB, UNIX_EPOCH, &Event::Unsuspended)
    }

    /// The lock that HTCondor's writer takes is one of a process.
    #[test]
    fn nothing_is_written_while_another_process_has_the_lock() {
        let (_dir, mut log) = log(Duration::ZERO);
        let script = "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX); \
                      print(flush=True); sys.stdin.read()";
        let mut other = Command::new("timeout");
        other.args(["60", "/usr/bin/python3", "-c", script]);
        other.arg(&log.path);
        let mut other = other
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut said = String::new();
        let out = other.stdout.take().expect("piped");
        io::BufReader::new(out).read_line(&mut said).expect("reads");
        assert_eq!(said, "\n");
        let error = append(&log).expect_err("is locked");
        assert!(matches!(error, EventError::Locked { .. }), "{error}");
        assert!(fs::read(&log.path).expect("reads").is_empty());
        // It is let go of while it is waited for.
        log.within = Duration::from_secs(60);
        thread::scope(|scope| {
            let appends = scope.spawn(|| append(&log));
            drop(other.stdin.take());
            appends.join().expect("no panic").expect("is written");
        });
        assert!(other.wait().expect("is waited for").success());
        assert!(fs::read(&log.path).expect("reads").ends_with(b"\n...\n"));
    }

    #[test]
    fn a_lock_keeps_threads_of_one_process_apart() {
        let (_dir, log) = log(Duration::ZERO);
        let held = log.locked().expect("locks");
        let error = append(&log.clone()).expect_err("is locked");
        assert!(matches!(error, EventError::Locked { .. }), "{error}");
        drop(held);
        append(&log).expect("is free");
    }

    #[test]
    fn what_an_end_lacks_is_known() {
        for (file, missing) in [
            ("", ""),
            ("...\n", ""),
            ("a\n...\n", ""),
            ("a\r\n...\r\n", ""),
            ("a\n...", "\n"),
            ("a\n..", ".\n"),
            ("a\n.", "..\n"),
            ("...", "\n"),
            ("a\n", " \n...\n"),
            ("a a...\n", " \n...\n"),
            ("a....\n", " \n...\n"),
            ("...a\n", " \n...\n"),
            ("a", "\n \n...\n"),
            ("a...", "\n \n...\n"),
            ("012 (1", "\n \n...\n"),
            ("...\n0", "00 \n \n...\n"),
            ("02", "0 \n \n...\n"),
            ("...\n022", " \n \n...\n"),
            ("\t022", "\n \n...\n"),
        ] {
            let (_dir, log) = log(Duration::ZERO);
            fs::write(&log.path, file).expect("writes");
            let (open, len) = log.locked().expect("locks");
            assert_eq!(missing_end(&open, len).expect("reads"), missing, "{file:?}");
        }
    }

    #[test]
    fn a_log_that_is_taken_away_is_made_anew() {
        let (_dir, log) = log(Duration::ZERO);
        append(&log).expect("is written");
        let moved = log.path.with_extension("old");
        fs::rename(&log.path, &moved).expect("renames");
        append(&log).expect("is written");
        assert_eq!(
            fs::read(&moved).expect("reads"),
            fs::read(&log.path).expect("reads")
        );
    }

    #[test]
    fn only_a_file_is_a_log() {
        let dir = tempfile::tempdir().expect("a directory");
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("makes");
        for path in [pipe.as_path(), Path::new("/dev/null")] {
            let error = EventLog::open(path).expect_err("is none");
            assert!(matches!(error, EventError::NotAFile { .. }), "{error}");
            assert!(error.to_string().contains(&path.display().to_string()));
        }
        let error = EventLog::open(dir.path()).expect_err("is a directory");
        assert!(matches!(error, EventError::Open { .. }), "{error}");
    }
}
