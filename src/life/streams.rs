//! Input and outputs of a job on another machine: files here, which the job opens itself, so that they go back with it.
//!
//! ```text
//! input   a file at its beginning that the job may read: that file;  a pipe, or a file elsewhere: copied to jobs/NAME/streams/input first
//!         a terminal: nothing
//! output  a file at its end that the job may write: that file;  anything else: jobs/NAME/streams/output, which is shown at the job's end
//! ```
//! The command becomes `/bin/sh -c 'exec "$@" <INPUT >>OUTPUT 2>>ERRORS' sh COMMAND...`: the shell opens them by the job's own calls.

use crate::away::quoted;
use crate::jobs::{FileId, Output, OutputKind, Outputs, read_record, replace_record};
use crate::report::{Explain, Outcome, tell};
use nix::sys::stat::fstat;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const FOLDER: &str = "streams";
const NOTE: &str = "streams.json";
const SCHEMA_VERSION: u32 = 1;

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Streams {
    schema_version: u32,
    #[serde(with = "crate::raw::path")]
    input: PathBuf,
    out: Sink,
    /// None: the same as the output.
    errors: Option<Sink>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Sink {
    #[serde(with = "crate::raw::path")]
    path: PathBuf,
    /// It is ours, and shown at the end.
    is_kept: bool,
}

/// Where the job's input and outputs are kept that are not files of its own.
pub(super) fn folder(dir: &Path) -> PathBuf {
    dir.join(FOLDER)
}

/// What the job may use: what was asked for, and its streams.
pub(super) fn allowed(asked: &[OsString], dir: &Path) -> io::Result<Vec<OsString>> {
    let mut all = asked.to_vec();
    if all.is_empty() {
        all.push("/:ro".into());
        all.push(std::env::current_dir()?.into());
    }
    all.push(folder(dir).into());
    Ok(all)
}

/// Whether a job that may use these directories may read, or write, what has this path.
fn may(allowed: &[OsString], path: &Path, write: bool) -> bool {
    let deepest = allowed.iter().filter_map(|one| {
        let text = one.as_encoded_bytes();
        let (dir, writes) = match text.strip_suffix(b":ro") {
            Some(dir) => (dir, false),
            None => (text, true),
        };
        let dir = Path::new(OsStr::from_bytes(dir)).canonicalize().ok()?;
        path.starts_with(&dir)
            .then(|| (dir.components().count(), writes))
    });
    deepest.max().is_some_and(|(_, writes)| writes || !write)
}

/// The regular file behind a descriptor, and where that stands.
struct Found {
    path: PathBuf,
    offset: u64,
    size: u64,
}

fn regular(stream: BorrowedFd<'_>) -> Option<Found> {
    let mut file = File::from(stream.try_clone_to_owned().ok()?);
    let found = file.metadata().ok().filter(fs::Metadata::is_file)?;
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&stream));
    let path = fs::read_link(link).ok()?;
    // It may have been removed, or be hidden.
    let named = fs::metadata(&path).ok()?;
    let same = (named.dev(), named.ino()) == (found.dev(), found.ino());
    Some(Found {
        path: same.then_some(path)?,
        offset: file.stream_position().ok()?,
        size: found.len(),
    })
}

impl Streams {
    /// Of a new job with our input and outputs; what has to be copied is.
    pub(super) fn prepare(dir: &Path, allowed: &[OsString]) -> Outcome<Self> {
        let folder = folder(dir);
        let describe = || {
            format!(
                "no folder for input and outputs ({})",
                crate::raw::shown_path(&folder)
            )
        };
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).context(describe);
            }
            _ => {}
        }
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o700).create(&folder).context(describe)?;
        let input = input(&folder, allowed)?;
        let out = sink(io::stdout().as_fd(), &folder.join("output"), allowed)?;
        let errors = match same(io::stdout().as_fd(), io::stderr().as_fd()) {
            true => None,
            false => Some(sink(io::stderr().as_fd(), &folder.join("errors"), allowed)?),
        };
        let streams = Streams {
            schema_version: SCHEMA_VERSION,
            input,
            out,
            errors,
        };
        replace_record(dir.join(NOTE), &streams, true)?;
        Ok(streams)
    }

    /// Removes those of a job that has not begun.
    pub(super) fn withdraw(dir: &Path) {
        let _ = fs::remove_dir_all(folder(dir));
        let _ = fs::remove_file(dir.join(NOTE));
    }

    /// Those of a job that goes on.
    pub(super) fn load(dir: &Path) -> Outcome<Self> {
        Ok(read_record(dir.join(NOTE), SCHEMA_VERSION)?)
    }

    /// The command that opens them, and becomes this one.
    pub(super) fn around(&self, command: &[OsString]) -> Vec<OsString> {
        let mut script = OsString::from("exec \"$@\" <");
        script.push(quoted(self.input.as_os_str()));
        script.push(" >>");
        script.push(quoted(self.out.path.as_os_str()));
        match &self.errors {
            Some(errors) => {
                script.push(" 2>>");
                script.push(quoted(errors.path.as_os_str()));
            }
            None => script.push(" 2>&1"),
        }
        let mut all: Vec<OsString> = vec!["/bin/sh".into(), "-c".into(), script, "sh".into()];
        all.extend(command.iter().cloned());
        all
    }

    /// For whoever wants to see them.
    pub(super) fn outputs(&self) -> Outputs {
        let output = |sink: &Sink| Output {
            kind: OutputKind::File,
            path: sink.path.clone(),
            file: fs::metadata(&sink.path)
                .ok()
                .map(|found| FileId::of(&found)),
        };
        Outputs {
            out: Some(output(&self.out)),
            errors: Some(output(self.errors.as_ref().unwrap_or(&self.out))),
        }
    }

    /// Whether nothing of the job is seen before its end, unless somebody looks.
    pub(super) fn is_silent(&self) -> bool {
        self.out.is_kept
    }

    /// What was kept is shown, and whoever writes on behind the job writes behind it.
    pub(super) fn deliver(&self) {
        let errors = self.errors.as_ref();
        let all = [
            (Some(&self.out), io::stdout().as_fd()),
            (errors, io::stderr().as_fd()),
        ]
        .map(|(sink, stream)| (sink, stream.try_clone_to_owned()));
        for (sink, stream) in all {
            let (Some(sink), Ok(stream)) = (sink, stream) else {
                continue;
            };
            let mut stream = File::from(stream);
            if !sink.is_kept {
                let _ = stream.seek(SeekFrom::End(0));
                continue;
            }
            let shown =
                File::open(&sink.path).and_then(|mut kept| io::copy(&mut kept, &mut stream));
            if let Err(error) = shown {
                let path = crate::raw::shown_path(&sink.path);
                tell(&format!("what the job has written is in {path}: {error}"));
            }
        }
    }
}

fn same(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    let of = |stream| fstat(stream).map(|found| (found.st_dev, found.st_ino, found.st_rdev));
    matches!((of(one), of(other)), (Ok(one), Ok(other)) if one == other)
}

fn input(folder: &Path, allowed: &[OsString]) -> Outcome<PathBuf> {
    let nothing = PathBuf::from("/dev/null");
    let stdin = io::stdin();
    let stdin = stdin.as_fd();
    if let Some(found) = regular(stdin)
        && found.offset == 0
        && may(allowed, &found.path, false)
    {
        return Ok(found.path);
    }
    if stdin.is_terminal() {
        tell("the job's input is empty: a terminal does not go with it");
        return Ok(nothing);
    }
    let is_null = |found: nix::sys::stat::FileStat| found.st_rdev == libc::makedev(1, 3);
    if fstat(stdin).map_or(true, is_null) {
        return Ok(nothing);
    }
    let path = folder.join("input");
    let describe = || "the job's input cannot be kept".to_owned();
    let mut kept = make(&path).context(describe)?;
    let mut from = File::from(stdin.try_clone_to_owned()?);
    io::copy(&mut from.by_ref(), &mut kept).context(describe)?;
    kept.sync_all().context(describe)?;
    Ok(path)
}

fn sink(stream: BorrowedFd<'_>, kept: &Path, allowed: &[OsString]) -> Outcome<Sink> {
    if let Some(found) = regular(stream)
        && found.offset == found.size
        && may(allowed, &found.path, true)
    {
        return Ok(Sink {
            path: found.path,
            is_kept: false,
        });
    }
    make(kept).context(|| "the job's output cannot be kept".to_owned())?;
    Ok(Sink {
        path: kept.to_owned(),
        is_kept: true,
    })
}

fn make(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_directory_says_what_may_be_done() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().canonicalize().expect("is there");
        let inner = path.join("inner");
        fs::create_dir(&inner).expect("is made");
        let ro = |path: &Path| {
            let mut text = path.as_os_str().to_owned();
            text.push(":ro");
            text
        };
        let rules = [ro(Path::new("/")), path.clone().into(), ro(&inner)];
        let (file, deep) = (path.join("x"), inner.join("x"));
        assert!(may(&rules, &file, true) && may(&rules, &deep, false));
        assert!(!may(&rules, &deep, true) && !may(&rules, Path::new("/etc/x"), true));
        assert!(!may(&rules[1..], Path::new("/etc/x"), false));
    }

    #[test]
    fn the_command_opens_them_whatever_they_are_called() {
        let dir = tempfile::tempdir().expect("a folder");
        let odd = |name: &str| dir.path().join(name);
        fs::write(odd("it's in"), "from the input\n").expect("is written");
        fs::write(odd("$out"), "before\n").expect("is written");
        let mut streams = Streams {
            schema_version: SCHEMA_VERSION,
            input: odd("it's in"),
            out: Sink {
                path: odd("$out"),
                is_kept: false,
            },
            errors: Some(Sink {
                path: odd("err ors"),
                is_kept: true,
            }),
        };
        let words = ["sh", "-c", "cat; echo \"$0\" >&2", "a  word"];
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let run = |streams: &Streams| {
            let all = streams.around(&words);
            let status = std::process::Command::new(&all[0]).args(&all[1..]).status();
            assert!(status.expect("runs").success());
        };
        run(&streams);
        let read = |name: &str| fs::read_to_string(odd(name)).expect("is there");
        assert_eq!(read("$out"), "before\nfrom the input\n");
        assert_eq!(read("err ors"), "a  word\n");
        streams.errors = None;
        run(&streams);
        let both = "before\nfrom the input\nfrom the input\na  word\n";
        assert_eq!(read("$out"), both);
        replace_record(dir.path().join(NOTE), &streams, true).expect("is noted");
        assert_eq!(Streams::load(dir.path()).expect("is read"), streams);
    }
}
