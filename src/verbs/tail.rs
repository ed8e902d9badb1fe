//! `wayfarer tail JOB`: what a job has written to its standard output, or error, if that is a regular file.
//!
//! ```text
//! the last lines ──> done
//!      `─ with --follow: what comes behind them, until the job has ended or left, and the last of it
//! ```
//! # What callers may rely on
//! A file of any size is read from its end, a block at a time. A job that goes back to an image cuts its output back, and soon writes
//! on; that is noticed by comparing what was shown last with what is there, told on standard error, and followed from where the two
//! part, so that nothing is missed. If they have nothing in common, it is followed from the file's end.
//!
//! # What it does not do
//! It does not look at what a job writes elsewhere than it was begun with.

use crate::args::{Lines, Tail};
use crate::jobs::{FileId, Job, JobError, JobStore, Life, Output, OutputKind, Place};
use crate::output;
use crate::raw;
use crate::report::{Exit, Explain, Failure, Outcome, tell};
use crate::target;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::SystemTime;

/// So much is read at once.
const BLOCK: usize = 64 << 10;
/// Between two looks at a file that is followed, in milliseconds.
const PAUSE_MS: u16 = 100;
/// So many of the bytes that were shown last are compared with what is there later.
const REMEMBERED: usize = 64 << 10;

/// Shows the job's output.
pub(crate) fn tail(store: &JobStore, arguments: &Tail) -> Outcome {
    let job = target::named(store, &arguments.job)?;
    let output = written(&job, arguments.errors)?;
    let mut text = Text::open(&job, output, arguments.errors)?;
    text.begin(arguments.lines)?;
    if arguments.follow {
        follow(store, text, output.clone(), arguments)?;
    }
    Ok(Exit::Done)
}

fn stream(errors: bool) -> &'static str {
    match errors {
        false => "standard output",
        true => "standard error",
    }
}

/// The file that the job's output is.
fn written(job: &Job, errors: bool) -> Outcome<&Output> {
    let outputs = &job.record.outputs;
    let found = match errors {
        false => &outputs.out,
        true => &outputs.errors,
    };
    let whose = format!("{} of job {}", stream(errors), job.record.name);
    let Some(output) = found else {
        let message = format!(
            "{whose} is not known: its record does not say where it goes (a wayfarer of before has begun it, or its files are at a shadow)"
        );
        return Err(Failure::new(Exit::Failed, message));
    };
    let what = match output.kind {
        OutputKind::File => return Ok(output),
        OutputKind::Terminal => "a terminal",
        OutputKind::Pipe => "a pipe",
        OutputKind::Socket => "a socket",
        OutputKind::Device => "a device",
        OutputKind::Closed => "closed",
        OutputKind::Other => "no regular file",
    };
    let name = match output.path.as_os_str().is_empty() {
        true => String::new(),
        false => format!(" ({})", raw::shown_path(&output.path)),
    };
    let message =
        format!("{whose} is {what}{name}: found no text to show, expected a regular file");
    let advice = match errors {
        false => "wayfarer run ... > FILE, for the next one",
        true => "wayfarer run ... 2> FILE, for the next one",
    };
    Err(Failure::new(Exit::Failed, message).advise(advice))
}

/// Shows what comes behind, until the job has ended or left.
fn follow(store: &JobStore, mut text: Text, mut output: Output, arguments: &Tail) -> Outcome<()> {
    loop {
        // Looked at before the file is: what it wrote last is shown, too.
        let job = living(store, &arguments.job)?;
        text.go_on()?;
        let Some(job) = job else {
            return Ok(());
        };
        let now = written(&job, arguments.errors)?;
        if *now != output {
            // It has gone on, perhaps with another file.
            output = now.clone();
            let is_other = |noted: FileId| noted.inode != text.inode;
            if output.path != text.path || output.file.is_some_and(is_other) {
                let path = raw::shown_path(&output.path);
                tell(&format!("job {} writes to {path} now", arguments.job));
                // Compared with what was shown of the other.
                let (at, last) = (text.at, text.last);
                let opened = Text::open(&job, &output, arguments.errors)?;
                text = Text { at, last, ..opened };
            }
        }
        wait()?;
    }
}

/// The job, unless it has ended or left.
fn living(store: &JobStore, name: &str) -> Outcome<Option<Job>> {
    match store.find(name) {
        Ok(job) if job.life() == Life::Ended => Ok(None),
        Ok(job) => Ok(Some(job)),
        // It has been removed.
        Err(JobError::Missing { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Until it is time to look again; not longer than somebody reads what we print.
fn wait() -> Outcome<()> {
    let stdout = io::stdout();
    let mut fds = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    let _ = poll(&mut fds, PollTimeout::from(PAUSE_MS));
    let gone = PollFlags::POLLERR | PollFlags::POLLHUP;
    match fds[0].revents() {
        Some(found) if found.intersects(gone) => Err(Failure::reader_gone()),
        _ => Ok(()),
    }
}

/// A job's output that is being shown.
struct Text {
    path: PathBuf,
    file: File,
    inode: u64,
    /// What has been shown ends here.
    at: u64,
    /// The last bytes before that.
    last: Vec<u8>,
    /// When it was written last, as far as that was looked at.
    stamp: Option<SystemTime>,
}

impl Text {
    fn open(job: &Job, output: &Output, errors: bool) -> Outcome<Self> {
        let describe = || {
            let path = raw::shown_path(&output.path);
            format!("{} of job {}: {path}", stream(errors), job.record.name)
        };
        // Without waiting for whoever writes to a pipe that stands there now.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(&output.path)
            .context(describe)?;
        let found = file.metadata().context(describe)?;
        if !found.is_file() {
            let message = format!("{}: it is no regular file any more", describe());
            return Err(Failure::new(Exit::Failed, message));
        }
        // File systems are numbered anew at each boot.
        let same_boot = Place::here().boot_id == job.record.place.boot_id;
        let is_other = |noted: FileId| {
            let found = FileId::of(&found);
            noted.inode != found.inode || (same_boot && noted.device != found.device)
        };
        if output.file.is_some_and(is_other) {
            tell(&format!(
                "{}: this is another file than the one that the job was given",
                describe()
            ));
        }
        Ok(Text {
            path: output.path.clone(),
            file,
            inode: FileId::of(&found).inode,
            at: 0,
            last: vec![],
            stamp: None,
        })
    }

    fn context<T>(&self, result: io::Result<T>) -> Outcome<T> {
        result.context(|| raw::shown_path(&self.path))
    }

    fn len(&self) -> Outcome<u64> {
        Ok(self.context(self.file.metadata())?.len())
    }

    /// Shows the last lines.
    fn begin(&mut self, lines: Lines) -> Outcome<()> {
        loop {
            let len = self.len()?;
            let start = match lines {
                Lines::All => Ok(0),
                Lines::Last(count) => start_of_last(&self.file, len, count),
            };
            match start {
                // It was cut meanwhile.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
                start => {
                    let start = self.context(start)?;
                    self.move_to(start)?;
                    return self.show(len);
                }
            }
        }
    }

    /// Shows what has been added.
    fn go_on(&mut self) -> Outcome<()> {
        let found = self.context(self.file.metadata())?;
        let (len, stamp) = (found.len(), found.modified().ok());
        if len == self.at && stamp == self.stamp {
            return Ok(());
        }
        let from = self.at - self.last.len() as u64;
        let there = self.context(self.read(from, len.min(self.at)))?;
        self.stamp = stamp;
        let path = raw::shown_path(&self.path);
        match Shown::compare(from, &self.last, &there) {
            Shown::AllOf => {}
            Shown::UpTo(at) => {
                tell(&format!(
                    "{path} was cut back to {at} bytes: its job has gone back"
                ));
                self.move_to(at)?;
            }
            Shown::Unknown => {
                tell(&format!(
                    "{path} was cut back, and has {len} bytes now: its job has gone back; following from its end"
                ));
                self.move_to(len)?;
            }
        }
        self.show(len)
    }

    /// What is there between these, as far as the file goes.
    fn read(&self, from: u64, end: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(end.saturating_sub(from)).unwrap_or(0)];
        let mut len = 0;
        while len < bytes.len() {
            match self.file.read_at(&mut bytes[len..], from + len as u64) {
                Ok(0) => break,
                Ok(read) => len += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(len);
        Ok(bytes)
    }

    /// What is before this counts as shown.
    fn move_to(&mut self, at: u64) -> Outcome<()> {
        let from = at.saturating_sub(REMEMBERED as u64);
        self.last = self.context(self.read(from, at))?;
        // It may have been cut again, which is noticed when it is looked at next.
        self.at = from + self.last.len() as u64;
        Ok(())
    }

    /// Shows it up to here.
    fn show(&mut self, end: u64) -> Outcome<()> {
        let mut block = vec![0; BLOCK];
        while self.at < end {
            let most = usize::try_from(end - self.at).unwrap_or(BLOCK).min(BLOCK);
            let read = match self.file.read_at(&mut block[..most], self.at) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => self.context(read)?,
            };
            if read == 0 {
                return Ok(()); // it was cut meanwhile
            }
            output::print_bytes(&block[..read])?;
            self.at += read as u64;
            self.last.extend(&block[..read]);
            let surplus = self.last.len().saturating_sub(REMEMBERED);
            self.last.drain(..surplus);
        }
        Ok(())
    }
}

/// What of that which was shown is still in the file.
#[derive(Debug, PartialEq, Eq)]
enum Shown {
    /// All.
    AllOf,
    /// What is before this.
    UpTo(u64),
    /// Nothing that is remembered.
    Unknown,
}

impl Shown {
    /// `last` was shown last, from there on; `there` stands in its place now.
    fn compare(from: u64, last: &[u8], there: &[u8]) -> Self {
        let pairs = last.iter().zip(there);
        let common = pairs.take_while(|(shown, found)| shown == found).count();
        if common == last.len() {
            return Shown::AllOf;
        }
        if common == there.len() && common > 0 {
            return Shown::UpTo(from + common as u64);
        }
        // The line in which they part is shown anew.
        let line = last[..common].iter().rposition(|byte| *byte == b'\n');
        match line {
            Some(end) => Shown::UpTo(from + end as u64 + 1),
            None if from == 0 => Shown::UpTo(0),
            None => Shown::Unknown,
        }
    }
}

/// Where the last so many lines of a file of this length begin. A last line without an end counts, too.
fn start_of_last(file: &File, len: u64, lines: u64) -> io::Result<u64> {
    if lines == 0 {
        return Ok(len);
    }
    let mut block = vec![0; BLOCK];
    let mut left = lines;
    let mut end = len;
    while end > 0 {
        let begin = end.saturating_sub(BLOCK as u64);
        let part = &mut block[..(end - begin) as usize];
        file.read_exact_at(part, begin)?;
        for (index, _) in part
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, byte)| **byte == b'\n')
        {
            let behind = begin + index as u64 + 1;
            // What ends the last line begins none.
            if behind == len {
                continue;
            }
            left -= 1;
            if left == 0 {
                return Ok(behind);
            }
        }
        end = begin;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().expect("file");
        file.write_all(bytes).expect("writes");
        file
    }

    /// The last lines, the simple way.
    fn expected(bytes: &[u8], lines: usize) -> u64 {
        let all: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        let last = &all[all.len().saturating_sub(lines)..];
        (bytes.len() - last.concat().len()) as u64
    }

    #[test]
    fn the_last_lines_begin_where_they_do() {
        let long = [b"x".repeat(BLOCK - 1), b"\n".repeat(3), b"y".repeat(BLOCK)].concat();
        let two = [b"a\n".repeat(BLOCK), b"end".to_vec()].concat();
        for bytes in [
            b"",
            &b"\n"[..],
            b"a",
            b"a\nb",
            b"a\nb\n",
            b"\n\n\n",
            &long,
            &two,
        ] {
            for lines in [0, 1, 2, 3, 10, BLOCK] {
                let found = start_of_last(&file(bytes), bytes.len() as u64, lines as u64);
                let found = found.expect("reads");
                assert_eq!(found, expected(bytes, lines), "{} {lines}", bytes.len());
            }
        }
    }

    #[test]
    fn a_file_that_was_cut_meanwhile_is_looked_at_again() {
        let error = start_of_last(&file(b"a\n"), 5, 1).expect_err("too short");
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_was_cut_and_written_again_is_followed_from_where_it_parts() {
        let compare = |last: &[u8], there: &[u8]| Shown::compare(100, last, there);
        assert_eq!(compare(b"a\nb\n", b"a\nb\n"), Shown::AllOf);
        assert_eq!(compare(b"", b""), Shown::AllOf);
        assert_eq!(compare(b"a\nbb\n", b"a\nb"), Shown::UpTo(103));
        assert_eq!(compare(b"a\nbb\n", b"a\nbc\n"), Shown::UpTo(102));
        assert_eq!(compare(b"a\nbb\n", b"x\nbb\n"), Shown::Unknown);
        assert_eq!(compare(b"a\nbb\n", b""), Shown::Unknown);
        assert_eq!(Shown::compare(0, b"a\nb", b"b\nb"), Shown::UpTo(0));
        assert_eq!(Shown::compare(0, b"a\nb", b""), Shown::UpTo(0));
    }

    #[test]
    fn a_file_that_is_cut_is_followed_from_there() {
        let mut text = Text {
            path: "x".into(),
            file: file(b"one\ntwo\nthree\n"),
            inode: 0,
            at: 0,
            last: vec![],
            stamp: None,
        };
        text.move_to(14).expect("reads");
        text.go_on().expect("reads");
        assert_eq!(text.at, 14);
        // As long as before.
        text.file.write_all_at(b"THREE\n", 8).expect("writes");
        text.go_on().expect("reads");
        assert_eq!(text.last, b"one\ntwo\nTHREE\n");
        text.file.set_len(4).expect("is cut");
        text.go_on().expect("reads");
        assert_eq!((text.at, text.last.as_slice()), (4, &b"one\n"[..]));
        text.file.set_len(0).expect("is cut");
        text.go_on().expect("reads");
        assert_eq!(text.at, 0);
    }
}
