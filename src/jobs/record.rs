//! `job.json`: what is written down about a job.
//!
//! ```text
//! jobs/NAME/job.json   this record, written beside and renamed
//! jobs/NAME/life.json  of a job with a starter: how it fares (super::life)
//! jobs/NAME/events.log  what happened to the job, for HTCondor's tools (crate::life::chronicle)
//! jobs/NAME/starter.log what that did
//! jobs/NAME/pulse      touched by its starter every minute (super::pulse)
//! jobs/NAME/control    where its starter listens (crate::life)
//! jobs/NAME/images/    NAME-1.img, NAME-2.img ...: the images, the last two of them; or a link to where they are (super::elsewhere)
//! jobs/NAME/lock       held while a checkpoint is made
//! ```
//! jobs/.number         the number of the last job
//! The record is a note for people and for finding the job, not part of any
//! promise: losing it loses no image.

use super::outputs::{FileId, Outputs};
use super::process::ProcessName;
use crate::raw::shown_path;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Version of [`JobRecord`].
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// A job, as written down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct JobRecord {
    /// [`SCHEMA_VERSION`].
    pub(crate) schema_version: u32,
    /// Its name, which is also its directory's.
    pub(crate) name: String,
    /// Its number among the jobs of its directory, from 1, for who knows jobs by numbers (`ClusterId`).
    #[serde(default)]
    pub(crate) number: u32,
    /// Program and arguments
    /// (as [`crate::raw::encode`] has it).
    pub(crate) command: Vec<String>,
    /// Directory it was started in.
    #[serde(with = "crate::raw::path")]
    pub(crate) cwd: PathBuf,
    /// The process that supervises it.
    pub(crate) supervisor: ProcessName,
    /// Where that process runs.
    pub(crate) place: Place,
    /// The root process's id as the job sees it, if it is known.
    pub(crate) root_pid: Option<u32>,
    /// When it was started or restarted, seconds since 1970.
    pub(crate) started_at: u64,
    /// Number of checkpoints it has behind it, over restarts.
    pub(crate) generation: u64,
    /// What it changes in files of this machine is journalled, and goes back with it.
    #[serde(default)]
    pub(crate) journal: bool,
    /// It sees nothing of the machine where it runs (`--confine`).
    #[serde(default)]
    pub(crate) confined: bool,
    /// The image it was restarted from.
    #[serde(with = "crate::raw::some_path")]
    pub(crate) restarted_from: Option<PathBuf>,
    /// Where its standard output and error go.
    #[serde(default)]
    pub(crate) outputs: Outputs,
    /// What descriptors 0 to 2 of this copy were when it was begun: the job may have moved them.
    #[serde(default)]
    pub(crate) streams: [Option<FileId>; 3],
    /// Its last checkpoint.
    pub(crate) last_checkpoint: Option<CheckpointNote>,
}

/// A checkpoint, as written down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CheckpointNote {
    /// The image file.
    #[serde(with = "crate::raw::path")]
    pub(crate) image: PathBuf,
    /// Which checkpoint of the job it is, from 1.
    pub(crate) generation: u64,
    /// When, seconds since 1970.
    pub(crate) taken_at: u64,
    /// Size of the image file.
    pub(crate) image_bytes: u64,
    /// About its size if it were not based on others.
    #[serde(default)]
    pub(crate) whole_bytes: u64,
    /// So much of it was sent; none: it was made here, and is whole.
    #[serde(default)]
    pub(crate) sent_bytes: Option<u64>,
    /// The CheckpointPlatform that it needs.
    #[serde(default)]
    pub(crate) platform: Option<String>,
    /// How it was made, if that was on this machine.
    #[serde(default)]
    pub(crate) made: Option<Made>,
    /// What it had done with remote files by then, if it has any.
    #[serde(default)]
    pub(crate) files: Option<FileNumbers>,
}

impl CheckpointNote {
    /// About how large an image of the job is, and so the next one.
    pub(crate) fn size(&self) -> u64 {
        self.image_bytes.max(self.whole_bytes)
    }
}

/// What is told of an image that was made here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Made {
    /// The image's id, in hexadecimal digits.
    pub(crate) id: String,
    /// First thread stopped to last resumed.
    pub(crate) frozen_us: u64,
    /// From the end of that, or of all but copying, until it was durable.
    #[serde(default)]
    pub(crate) writing_us: u64,
    /// From the beginning until it was durable.
    pub(crate) took_us: u64,
    /// So many are in it.
    pub(crate) processes: usize,
    pub(crate) threads: usize,
}

/// What a job has done with its remote files, all of them or one, under Condor's names where it had such.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FileNumbers {
    /// Opens.
    #[serde(rename = "FileOpenCount")]
    pub(crate) opens: u64,
    /// Calls that read.
    #[serde(rename = "FileReadCount")]
    pub(crate) reads: u64,
    /// Bytes that they gave.
    #[serde(rename = "FileReadBytes")]
    pub(crate) read_bytes: u64,
    /// Calls that read and were served without a question.
    #[serde(rename = "FileReadHits")]
    pub(crate) read_hits: u64,
    /// Calls that write.
    #[serde(rename = "FileWriteCount")]
    pub(crate) writes: u64,
    /// Bytes that they took.
    #[serde(rename = "FileWriteBytes")]
    pub(crate) write_bytes: u64,
    /// Calls of lseek(2).
    #[serde(rename = "FileSeekCount")]
    pub(crate) seeks: u64,
    /// Questions to the shadow that were waited for.
    #[serde(rename = "RoundTrips")]
    pub(crate) round_trips: u64,
    /// How long, in microseconds.
    #[serde(rename = "WaitedMicroseconds")]
    pub(crate) waited_us: u64,
}

/// A running kernel, and a view of its processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// Host name.
    pub(crate) host: String,
    /// `/proc/sys/kernel/random/boot_id`.
    pub(crate) boot_id: String,
    /// `/proc/self/ns/pid`.
    pub(crate) pid_namespace: String,
}

impl Place {
    /// This kernel, as this process sees it.
    pub(crate) fn here() -> Self {
        let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let host = nix::unistd::gethostname().unwrap_or_default();
        Place {
            host: host.to_string_lossy().into_owned(),
            boot_id: boot_id.trim().to_owned(),
            pid_namespace: link.to_string_lossy().into_owned(),
        }
    }

    /// Whether pids written down there mean the same here.
    pub(crate) fn same_pids(&self, other: &Place) -> bool {
        self.boot_id == other.boot_id && self.pid_namespace == other.pid_namespace
    }

    /// Whether the machine that was meant has been started anew since.
    pub(crate) fn rebooted_since(&self, then: &Place) -> bool {
        self.host == then.host && self.boot_id != then.boot_id
    }
}

/// Why a record cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum RecordError {
    /// The file.
    #[error("job record {path}", path = shown_path(.path))]
    File { path: PathBuf, source: io::Error },
    /// Something else has its name: a FIFO would be waited for without end.
    #[error("job record {path} is damaged: found {found}, expected a regular file", path = shown_path(.path))]
    NotAFile { path: PathBuf, found: &'static str },
    /// Its text.
    #[error("job record {path} is damaged", path = shown_path(.path))]
    Text {
        path: PathBuf,
        source: serde_json::Error,
    },
    /// Its version.
    #[error("job record {path} has version {found}, expected {expected}", path = shown_path(.path))]
    Version {
        path: PathBuf,
        found: u32,
        expected: u32,
    },
}

impl RecordError {
    /// Whether a newer wayfarer has written it, so that this one must not touch it.
    pub(crate) fn is_newer(&self) -> bool {
        matches!(self, RecordError::Version { found, expected, .. } if found > expected)
    }

    /// Whether the record is there, but no record.
    pub(crate) fn is_damage(&self) -> bool {
        !self.is_newer() && !matches!(self, RecordError::File { .. })
    }
}

#[derive(Deserialize)]
struct VersionOnly {
    schema_version: u32,
}

impl JobRecord {
    /// Reads the record of a job's directory.
    pub(crate) fn load(dir: &Path) -> Result<Self, RecordError> {
        read_record(dir.join("job.json"), SCHEMA_VERSION)
    }

    /// Writes the record into a job's directory, beside the old one, and renames it.
    pub(crate) fn save(&self, dir: &Path) -> Result<(), RecordError> {
        replace_record(dir.join("job.json"), self, false)
    }
}

/// Reads a file, waiting for nobody; what else it is, if it is none.
pub(super) fn read_regular(path: &Path) -> io::Result<Result<Vec<u8>, &'static str>> {
    // Only looked at: opening a device may do something.
    let kind = fs::metadata(path)?.file_type();
    let mut file = fs::File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(match kind.is_file() {
            true => path,
            false => return Ok(Err(other_kind(kind))),
        })?;
    let kind = file.metadata()?.file_type(); // it may be another by now
    if !kind.is_file() {
        return Ok(Err(other_kind(kind)));
    }
    let mut bytes = vec![];
    file.read_to_end(&mut bytes)?;
    Ok(Ok(bytes))
}

fn other_kind(kind: fs::FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

/// Reads a record of this version.
pub(crate) fn read_record<T: DeserializeOwned>(
    path: PathBuf,
    expected: u32,
) -> Result<T, RecordError> {
    let text = match read_regular(&path) {
        Ok(Ok(text)) => text,
        Ok(Err(found)) => return Err(RecordError::NotAFile { path, found }),
        Err(source) => return Err(RecordError::File { path, source }),
    };
    match serde_json::from_slice::<VersionOnly>(&text) {
        Ok(VersionOnly { schema_version }) if schema_version != expected => {
            return Err(RecordError::Version {
                path,
                found: schema_version,
                expected,
            });
        }
        Ok(_) => {}
        Err(source) => return Err(RecordError::Text { path, source }),
    }
    serde_json::from_slice(&text).map_err(|source| RecordError::Text { path, source })
}

/// Writes a record beside the old one, and renames it. One that is durable outlives a power failure.
pub(crate) fn replace_record<T: Serialize>(
    path: PathBuf,
    record: &T,
    durable: bool,
) -> Result<(), RecordError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let text = serde_json::to_vec_pretty(record).map_err(|source| RecordError::Text {
        path: path.clone(),
        source,
    })?;
    // What somebody has left there of this name is not followed.
    let _ = fs::remove_file(&beside);
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)
        .and_then(|mut file| {
            io::Write::write_all(&mut file, &text)?;
            give_to_owner(&file, path.parent());
            if durable { file.sync_all() } else { Ok(()) }
        })
        .and_then(|()| fs::rename(&beside, &path))
        .and_then(|()| match path.parent().filter(|_| durable) {
            Some(dir) => fs::File::open(dir)?.sync_all(),
            None => Ok(()),
        });
    written.map_err(|source| {
        // One that is there already is somebody else's.
        if source.kind() != io::ErrorKind::AlreadyExists {
            let _ = fs::remove_file(&beside);
        }
        RecordError::File { path, source }
    })
}

/// What root writes in a user's folder is the user's: who cannot read it would be without a record.
fn give_to_owner(file: &fs::File, folder: Option<&Path>) {
    let folder = folder.filter(|_| nix::unistd::geteuid().is_root());
    let owner = folder.and_then(|folder| fs::metadata(folder).ok());
    if let Some(owner) = owner.filter(|owner| owner.uid() != 0) {
        // Root of a namespace to which that user is unknown cannot, nor can it be asked to.
        let _ = std::os::unix::fs::fchown(file, Some(owner.uid()), Some(owner.gid()));
    }
}

/// The number of a new job. One that cannot be remembered is given again.
pub(super) fn next_number(jobs_dir: &Path) -> u32 {
    let path = jobs_dir.join(".number");
    let last = match read_regular(&path) {
        Ok(Ok(bytes)) => String::from_utf8(bytes).unwrap_or_default(),
        Ok(Err(_)) => return 1,
        Err(_) => String::new(),
    };
    let number = last.trim().parse().unwrap_or(0u32).saturating_add(1);
    // In place: ext4 brings a file that is cut and written anew to the disk at once, which takes as long as all of a short job.
    if let Ok(file) = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
    {
        let line = format!("{number}\n");
        let _ = file.set_len(line.len() as u64);
        let _ = file.write_all_at(line.as_bytes(), 0);
    }
    number
}

#[cfg(test)]
pub(super) fn example(name: &str) -> JobRecord {
    JobRecord {
        schema_version: SCHEMA_VERSION,
        name: name.to_owned(),
        number: 1,
        command: vec!["sleep".to_owned(), "1".to_owned()],
        cwd: PathBuf::from("/"),
        supervisor: ProcessName {
            pid: 1 << 28,
            start_ticks: 1,
        },
        place: Place::here(),
        root_pid: None,
        started_at: 1,
        generation: 0,
        journal: false,
        confined: false,
        restarted_from: None,
        outputs: Outputs::default(),
        streams: [None; 3],
        last_checkpoint: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::outputs::{Output, OutputKind};
    use super::*;

    #[test]
    fn a_record_of_before_outputs_were_noted_is_read() {
        let dir = tempfile::tempdir().expect("dir");
        let mut text = serde_json::to_value(example("x")).expect("JSON");
        let fields = text.as_object_mut().expect("an object");
        assert!(fields.remove("outputs").is_some());
        fs::write(dir.path().join("job.json"), text.to_string()).expect("write");
        assert_eq!(JobRecord::load(dir.path()).expect("loads"), example("x"));
    }

    #[test]
    fn a_record_reads_back_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().expect("dir");
        let record = example("x");
        record.save(dir.path()).expect("saves");
        record.save(dir.path()).expect("saves again");
        assert_eq!(JobRecord::load(dir.path()).expect("loads"), record);
        assert_eq!(fs::read_dir(dir.path()).expect("lists").count(), 1);
    }

    #[test]
    fn paths_that_are_no_text_come_back() {
        let dir = tempfile::tempdir().expect("dir");
        let odd: PathBuf =
            <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"/d\xff").into();
        let mut record = example("x");
        record.cwd = odd.clone();
        record.restarted_from = Some(odd.clone());
        record.outputs.out = Some(Output {
            kind: OutputKind::File,
            path: odd.clone(),
            file: None,
        });
        record.last_checkpoint = Some(CheckpointNote {
            image: odd,
            generation: 1,
            taken_at: 1,
            image_bytes: 1,
            whole_bytes: 1,
            sent_bytes: Some(1),
            platform: Some("LINUX X86_64".to_owned()),
            made: Some(Made {
                id: "0a".to_owned(),
                frozen_us: 1,
                writing_us: 1,
                took_us: 2,
                processes: 1,
                threads: 3,
            }),
            files: Some(FileNumbers {
                read_bytes: 7,
                ..FileNumbers::default()
            }),
        });
        record.save(dir.path()).expect("saves");
        assert_eq!(JobRecord::load(dir.path()).expect("loads"), record);
    }

    #[test]
    fn damage_and_other_versions_are_named() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("job.json");
        fs::write(&path, b"{\"schema_version\": 1, \"name\"").expect("write");
        assert!(matches!(
            JobRecord::load(dir.path()),
            Err(RecordError::Text { .. })
        ));
        fs::write(&path, b"{\"schema_version\": 9}").expect("write");
        let error = JobRecord::load(dir.path()).expect_err("version");
        assert!(
            error.to_string().contains("version 9, expected 1"),
            "{error}"
        );
    }
}
