//! The job's input, outputs and end, as they come over lines that may break.
//!
//! ```text
//! first line:  Output ──────── bytes ───────> ours        Input <──────── bytes ──────── ours
//! later lines: Output <─ how much has come ──             Input ── how much has come ──>
//!              Output ──── what has not ────>             Input <───── what has not ─────
//! ```
//! # What callers may rely on
//! Each byte goes once, in its order, whatever lines break between.

use crate::sys::Usage;
use line::{Purpose, WINDOW};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use shadow::{Carried, CarriedWriter, Taker};
use starter::{Notice, Status};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Between two attempts to say something on a line that may have broken.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// What is known of the job.
pub(crate) struct JobState {
    control: Mutex<Option<CarriedWriter>>,
    has_control: Condvar,
    status: Mutex<Option<Status>>,
    /// Processor time, of programs and of the kernel for them, in hundredths of a second.
    used: Mutex<Option<(u32, u32)>>,
    input: Mutex<Fed>,
    output: Mutex<Poured>,
    errors: Mutex<Poured>,
}

impl JobState {
    /// Of a job whose input and outputs are these.
    pub(crate) fn new(
        input: File,
        output: Box<dyn Write + Send>,
        errors: Box<dyn Write + Send>,
    ) -> Self {
        JobState {
            control: Mutex::new(None),
            has_control: Condvar::new(),
            status: Mutex::new(None),
            used: Mutex::new(None),
            input: Mutex::new(Fed::from(input)),
            output: Mutex::new(Poured::into(output)),
            errors: Mutex::new(Poured::into(errors)),
        }
    }

    /// How the job has ended, if it has said so.
    pub(crate) fn status(&self) -> Option<Status> {
        *lock(&self.status)
    }

    /// What it has used there, if that was said before its end.
    pub(crate) fn used(&self) -> Option<Usage> {
        let hundredths = |time: u32| Duration::from_millis(10 * u64::from(time));
        let (user, system) = (*lock(&self.used))?;
        Some(Usage {
            user: hundredths(user),
            system: hundredths(system),
        })
    }

    /// Says something to the starter; whether there is a line.
    pub(crate) fn tell(&self, notice: Notice) -> bool {
        let control = lock(&self.control).clone();
        control.is_some_and(|mut control| control.write_all(&notice.to_bytes()).is_ok())
    }

    /// Waits until there is another line, or a while: one that has broken is in its place until then.
    pub(crate) fn wait_for_line(&self) {
        let control = lock(&self.control);
        drop(self.has_control.wait_timeout(control, LOOK_AGAIN));
    }

    /// For the first line, or for one in the place of one that broke.
    pub(crate) fn taker(self: &Arc<Self>, again: bool) -> Arc<Taker> {
        let job = self.clone();
        // One line's threads wait here for those of the line before, which end with it.
        Arc::new(move |purpose, stream| match purpose {
            Purpose::Input => lock(&job.input).feed(stream, again),
            Purpose::Output => lock(&job.output).pour(stream, again),
            Purpose::Errors => lock(&job.errors).pour(stream, again),
            _ => job.listen(stream),
        })
    }

    /// What is said of the job, until its end.
    fn listen(&self, mut stream: Carried) {
        *lock(&self.control) = Some(stream.writer());
        self.has_control.notify_all();
        let mut said = vec![];
        let mut portion = [0; 64];
        while let Ok(len @ 1..) = stream.read(&mut portion) {
            said.extend(&portion[..len]);
            while let Some(notice) = Notice::take(&mut said) {
                match notice {
                    Notice::Ended(status) => *lock(&self.status) = Some(status),
                    Notice::User(time) => lock(&self.used).get_or_insert_default().0 = time,
                    Notice::System(time) => lock(&self.used).get_or_insert_default().1 = time,
                    Notice::Signal(_) | Notice::Leave => {}
                }
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What has gone of our input.
struct Fed {
    input: File,
    len: u64,
    /// The last of it, as much as can be on its way.
    kept: VecDeque<u8>,
    ended: bool,
}

impl Fed {
    fn from(input: File) -> Self {
        Fed {
            input,
            len: 0,
            kept: VecDeque::new(),
            ended: false,
        }
    }

    /// Our input, until its end or the job's disinterest.
    fn feed(&mut self, mut stream: Carried, again: bool) {
        let mut writer = stream.writer();
        if again {
            let mut count = [0; 8];
            let told = stream.read_exact(&mut count);
            let missing = told
                .ok()
                .and_then(|()| self.behind(u64::from_le_bytes(count)));
            let Some(missing) = missing else { return };
            if writer.write_all(&missing).is_err() {
                return;
            }
        }
        let mut portion = [0; 32 << 10];
        while !self.ended && either(&self.input, &stream) {
            match self.input.read(&mut portion) {
                Ok(len @ 1..) => {
                    self.keep(&portion[..len]);
                    if writer.write_all(&portion[..len]).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => self.ended = true,
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.len += bytes.len() as u64;
        self.kept.extend(bytes);
        let known = self.kept.len().saturating_sub(WINDOW as usize);
        self.kept.drain(..known);
    }

    /// What has gone behind the first so many bytes; none if that is not known any more.
    fn behind(&self, count: u64) -> Option<Vec<u8>> {
        let missing = usize::try_from(self.len.checked_sub(count)?).ok()?;
        let from = self.kept.len().checked_sub(missing)?;
        Some(self.kept.range(from..).copied().collect())
    }
}

/// What has come of one of the job's outputs.
struct Poured {
    output: Box<dyn Write + Send>,
    len: u64,
    /// Nobody reads it here any more.
    unread: bool,
}

impl Poured {
    fn into(output: Box<dyn Write + Send>) -> Self {
        Poured {
            output,
            len: 0,
            unread: false,
        }
    }

    /// One of the job's outputs, until its end or our reader's.
    fn pour(&mut self, mut stream: Carried, again: bool) {
        if self.unread || again && stream.write_all(&self.len.to_le_bytes()).is_err() {
            return;
        }
        let mut portion = [0; 32 << 10];
        while let Ok(len @ 1..) = stream.read(&mut portion) {
            self.len += len as u64;
            let written = self.output.write_all(&portion[..len]);
            if written.and_then(|()| self.output.flush()).is_err() {
                self.unread = true;
                return;
            }
        }
    }
}

/// Waits until the first can be read (true), or the second has come to its end.
fn either(first: &impl AsFd, second: &impl AsFd) -> bool {
    loop {
        let mut both = [
            PollFd::new(first.as_fd(), PollFlags::POLLIN),
            PollFd::new(second.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut both, PollTimeout::NONE) {
            Ok(_) => return both[1].any() != Some(true),
            Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_gone_is_known_as_far_back_as_it_may_be_missing() {
        let mut fed = Fed::from(File::open("/dev/null").expect("is there"));
        fed.keep(b"0123456789");
        assert_eq!(fed.behind(7), Some(b"789".to_vec()));
        assert_eq!((fed.behind(10), fed.behind(11)), (Some(vec![]), None));
        for _ in 0..WINDOW / 1024 {
            fed.keep(&[7; 1024]);
        }
        assert_eq!(fed.behind(9), None);
        let all = fed.behind(10).map(|missing| missing.len());
        assert_eq!(all, Some(WINDOW as usize));
    }
}
