//! Why a job cannot be found, registered or removed.

use super::record::RecordError;
use crate::raw::shown_path;
use std::io;
use std::path::PathBuf;

/// Why a job cannot be found, registered or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum JobError {
    /// There is no place for jobs.
    #[error("no directory for jobs: neither {variable} nor HOME is set")]
    NoHome { variable: &'static str },
    /// A directory or file of the job directory.
    #[error("{action} {path}", path = shown_path(.path))]
    File {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A job's record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// This process cannot be named.
    #[error("/proc cannot be read")]
    Proc(#[source] io::Error),
    /// No such job.
    #[error("no job {name} in {dir} (found: {found})", dir = shown_path(.dir))]
    Missing {
        name: String,
        dir: PathBuf,
        found: String,
    },
    /// The name belongs to a living job.
    #[error("job {name} is still there ({state})")]
    Taken { name: String, state: String },
    /// The name belongs to an ended job that has images.
    #[error("the ended job {name} still has {count} image(s) in {dir}", dir = shown_path(.dir))]
    HasImages {
        name: String,
        count: usize,
        dir: PathBuf,
    },
    /// A place for images that is none (`--images`).
    #[error("{path}: found {found}, expected {expected}", path = shown_path(.path))]
    Unfit {
        path: PathBuf,
        found: String,
        expected: &'static str,
    },
    /// A newer wayfarer knows the job.
    #[error("job {name} in {dir} was written by a newer wayfarer", dir = shown_path(.dir))]
    Newer { name: String, dir: PathBuf },
    /// Its newest image is not what was written.
    #[error("its newest image is damaged, so none is removed")]
    Damaged(#[source] ckpt_lib::image::ImageError),
    /// Somebody makes a checkpoint of it.
    #[error("another checkpoint of job {name} is being made")]
    Busy { name: String },
}

impl JobError {
    /// Whether it says that the name is not free.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(
            self,
            JobError::Taken { .. } | JobError::HasImages { .. } | JobError::Newer { .. }
        )
    }
}
