//! `outset.json`: what a job under a journal has begun with, so that it can begin again if it is killed before there is an image of it.
//!
//! ```text
//! before its first copy:   the shadow's mark, where standard input, output and errors stand   ──durable──> jobs/NAME/outset.json
//! before another one:      the shadow goes back to the mark, input is rewound, output is cut back (its tail is kept in jobs/NAME/)
//! under another starter:   the shadow goes back, what it was given is read and written; outputs that are the same files are cut back (tails beside them)
//! ```

use super::record::{RecordError, read_record, replace_record};
use super::tails;
use crate::report::tell;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const NAME: &str = "outset.json";
/// Version of [`Outset`].
const SCHEMA_VERSION: u32 = 1;
/// Input, output, errors, as their tails are called.
const STREAMS: [&str; 3] = ["input", "output", "errors"];

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outset {
    /// [`SCHEMA_VERSION`].
    schema_version: u32,
    /// The state of the session, which only a shadow understands.
    pub(crate) state: Vec<u8>,
    /// What its starter has been given can be read again, as far as that is known.
    is_possible: bool,
    /// Those of input, output and errors that are regular files.
    streams: [Option<Stand>; 3],
}

/// Where an open regular file stands.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Stand {
    device: u64,
    inode: u64,
    offset: u64,
    size: u64,
}

impl Outset {
    /// Of a job that gets our input and outputs, and other descriptors only if `none_else` is false.
    pub(crate) fn of(state: Vec<u8>, none_else: bool) -> Self {
        Outset {
            schema_version: SCHEMA_VERSION,
            state,
            is_possible: none_else && input_is_there_again(),
            streams: own_streams().map(|stream| Stand::of(stream?)),
        }
    }

    /// Of a job on another machine: its input and outputs are files of its session.
    pub(crate) fn from_afar(state: Vec<u8>) -> Self {
        Outset {
            schema_version: SCHEMA_VERSION,
            state,
            is_possible: true,
            streams: [None; 3],
        }
    }

    /// Writes it down, so that it outlives a power failure.
    pub(crate) fn save(&self, dir: &Path) -> Result<(), RecordError> {
        replace_record(dir.join(NAME), self, true)
    }

    /// Whether a job has one: under another starter it begins again.
    pub(crate) fn is_in(dir: &Path) -> bool {
        dir.join(NAME).exists()
    }

    /// Whether a job can begin again under the same starter.
    pub(crate) fn is_possible_in(dir: &Path) -> bool {
        match Self::load(dir) {
            Ok(found) => found.is_some_and(|outset| outset.is_possible),
            // Whoever begins again says what is wrong with it.
            Err(_) => true,
        }
    }

    /// A job's, if it has one.
    pub(crate) fn load(dir: &Path) -> Result<Option<Self>, RecordError> {
        match read_record(dir.join(NAME), SCHEMA_VERSION) {
            Err(RecordError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    /// Removes that of a job that is another now.
    pub(crate) fn withdraw(dir: &Path) {
        let _ = fs::remove_file(dir.join(NAME));
    }

    /// Our output and errors, those of them that are the files to which an earlier starter's job has written, are cut back to where it began: it
    /// begins again. What is cut off is kept beside them (`FILE.wayfarer-tail`), and that is told.
    pub(crate) fn cut_outputs_back(&self, job: &str) {
        let mut told = vec![];
        let mut cut = vec![];
        let streams = own_streams().into_iter().zip(&self.streams).zip(STREAMS);
        for ((stream, stand), name) in streams.skip(1) {
            let (Some(stream), Some(stand)) = (stream, stand) else {
                continue;
            };
            if cut.contains(&stand.file()) {
                continue;
            }
            cut.push(stand.file());
            let tail = path_of(&stream).and_then(|path| tails::next_of(&path));
            let Some(tail) = tail else {
                continue;
            };
            match stand.cut_back(&mut File::from(stream), &tail) {
                Ok(true) => told.push(format!(
                    "job {job} begins again: what was behind its beginning in standard {name} is in {}",
                    crate::raw::shown_path(&tail)
                )),
                Ok(false) => {}
                Err(error) => told.push(format!(
                    "standard {name} does not go back with the job: {error}"
                )),
            }
        }
        // It may be said in one of them.
        told.iter().for_each(|one| tell(one));
    }

    /// Our input, output and errors are as they were, those of them that are files. What does not go back is told: the job is to go on.
    pub(crate) fn give_back_streams(&self, dir: &Path) {
        let streams = own_streams().into_iter().zip(&self.streams).zip(STREAMS);
        for ((stream, stand), name) in streams {
            let (Some(stream), Some(stand)) = (stream, stand) else {
                continue;
            };
            let tail = dir.join(format!("{name}.wayfarer-tail"));
            if let Err(error) = stand.give_back(File::from(stream), &tail) {
                tell(&format!(
                    "standard {name} does not go back with the job: {error}"
                ));
            }
        }
    }
}

/// Whether input that was read could be read again: it is a file, or there is nothing in it and never will be.
fn input_is_there_again() -> bool {
    let input = io::stdin();
    let input = input.as_fd();
    let Ok(stat) = nix::sys::stat::fstat(input) else {
        return true;
    };
    match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG => true,
        // Documentation/admin-guide/devices.txt: /dev/null.
        libc::S_IFCHR => stat.st_rdev == libc::makedev(1, 3),
        // One with a name may get another writer.
        libc::S_IFIFO => {
            let name = fs::read_link("/proc/self/fd/0").unwrap_or_default();
            let mut fds = [PollFd::new(input, PollFlags::POLLIN)];
            let _ = poll(&mut fds, PollTimeout::ZERO);
            fds[0].revents() == Some(PollFlags::POLLHUP)
                && name.as_os_str().as_encoded_bytes().starts_with(b"pipe:")
        }
        _ => false,
    }
}

/// Whether a program that we execute would get more than input, outputs and these.
pub(crate) fn has_more_descriptors(but: &[i32]) -> bool {
    let entries = fs::read_dir("/proc/self/fd");
    let numbers = entries.into_iter().flatten().flatten();
    numbers
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|fd| *fd > 2 && !but.contains(fd))
        .any(is_inherited)
}

/// proc_pid_fdinfo(5).
fn is_inherited(fd: i32) -> bool {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & libc::O_CLOEXEC == 0)
}

impl Stand {
    fn of(stream: impl AsFd) -> Option<Self> {
        let mut file = File::from(stream.as_fd().try_clone_to_owned().ok()?);
        let found = file.metadata().ok().filter(fs::Metadata::is_file)?;
        Some(Stand {
            device: found.dev(),
            inode: found.ino(),
            offset: file.stream_position().ok()?,
            size: found.len(),
        })
    }

    fn give_back(&self, mut file: File, tail: &Path) -> io::Result<()> {
        if !self.is_of(&file.metadata()?) {
            return Ok(());
        }
        self.cut_back(&mut file, tail)?;
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(self.offset.min(len))).map(drop)
    }

    fn file(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    fn is_of(&self, found: &fs::Metadata) -> bool {
        (found.dev(), found.ino()) == self.file()
    }

    /// Whether something was cut off.
    fn cut_back(&self, file: &mut File, tail: &Path) -> io::Result<bool> {
        let found = file.metadata()?;
        let is_longer = self.is_of(&found) && found.len() > self.size && is_written(file)?;
        if is_longer {
            // It may not be open for reading.
            let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
            let mut source = File::open(path)?;
            source.seek(SeekFrom::Start(self.size))?;
            // Behind what was cut before.
            let mut kept = fs::OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .open(tail)?;
            // Others may write to it meanwhile: until there is no more.
            io::copy(&mut source, &mut kept)?;
            kept.sync_all()?;
            io::copy(&mut source, &mut kept)?;
            file.set_len(self.size)?;
            if file.stream_position()? > self.size {
                file.seek(SeekFrom::End(0))?;
            }
        }
        Ok(is_longer)
    }
}

/// What a file is called, if it still is.
fn path_of(stream: &OwnedFd) -> Option<PathBuf> {
    let number = std::os::fd::AsRawFd::as_raw_fd(stream);
    let path = fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
    path.is_file().then_some(path)
}

fn is_written(file: &File) -> io::Result<bool> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let flags = OFlag::from_bits_retain(fcntl(file, FcntlArg::F_GETFL)?);
    Ok(flags & OFlag::O_ACCMODE != OFlag::O_RDONLY)
}

/// Copies of our input, output and errors; none for one that is closed.
fn own_streams() -> [Option<OwnedFd>; 3] {
    let copy = |stream: BorrowedFd<'_>| stream.try_clone_to_owned().ok();
    [
        copy(io::stdin().as_fd()),
        copy(io::stdout().as_fd()),
        copy(io::stderr().as_fd()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_file_stands_as_it_stood_and_what_it_had_grown_by_is_kept() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("out");
        let tail = dir.path().join("tail");
        let mut file = File::create(&path).expect("is made");
        file.write_all(b"before").expect("writes");
        let stand = Stand::of(&file).expect("a file");
        file.write_all(b" and behind").expect("writes");
        let copy = |file: &File| file.try_clone().expect("a copy");
        stand.give_back(copy(&file), &tail).expect("goes back");
        assert_eq!(fs::read(&tail).expect("reads"), b" and behind");
        file.write_all(b" again").expect("writes");
        assert_eq!(fs::read(&path).expect("reads"), b"before again");
        stand.give_back(copy(&file), &tail).expect("goes back");
        assert_eq!(fs::read(&tail).expect("reads"), b" and behind again");
        // Another file at its descriptor is not touched.
        let mut other = File::create(dir.path().join("other")).expect("is made");
        other
            .write_all(b"much more than there was")
            .expect("writes");
        let copy = other.try_clone().expect("a copy");
        stand.give_back(copy, &tail).expect("nothing to do");
        assert_eq!(other.metadata().expect("is there").len(), 24);
    }

    #[test]
    fn what_is_read_goes_back_and_is_not_cut() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("in");
        fs::write(&path, "one two").expect("writes");
        let mut file = File::open(&path).expect("opens");
        let stand = Stand::of(&file).expect("a file");
        let mut text = String::new();
        file.read_to_string(&mut text).expect("reads");
        fs::write(&path, "one two three").expect("writes");
        let copy = file.try_clone().expect("a copy");
        stand
            .give_back(copy, &dir.path().join("tail"))
            .expect("goes back");
        text.clear();
        file.read_to_string(&mut text).expect("reads");
        assert_eq!(text, "one two three");
    }
}
