//! The verbs of the command, one file each; here is what several of them need.

pub(crate) mod ad;
pub(crate) mod checkpoint;
pub(crate) mod classad;
pub(crate) mod compile;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod flatten;
pub(crate) mod home;
pub(crate) mod inspect;
pub(crate) mod io;
pub(crate) mod kbdd;
pub(crate) mod keeper;
pub(crate) mod kept;
pub(crate) mod kill;
pub(crate) mod life;
pub(crate) mod machine;
pub(crate) mod man;
pub(crate) mod platform;
pub(crate) mod policy;
pub(crate) mod ps;
pub(crate) mod queue;
pub(crate) mod reattach;
pub(crate) mod restart;
pub(crate) mod run;
pub(crate) mod shadow;
pub(crate) mod startd;
pub(crate) mod starter;
pub(crate) mod status;
pub(crate) mod submit;
pub(crate) mod tail;
pub(crate) mod verify;

use crate::jobs::{Job, JobError, JobStore, NewJob};
use crate::report::{Exit, Explain, Failure, Outcome, chain, tell};
use ckpt_lib::image::{Image, ImageError};
use ckpt_lib::platform::Platform;
use std::io::ErrorKind;
use std::path::Path;

/// Opens an image and checks everything but its pages.
pub(crate) fn open_image(path: &Path) -> Outcome<Image> {
    Image::open(path).map_err(|error| image_failure(path, error))
}

/// What an image needs of a machine.
fn needed_by(image: &Image) -> Outcome<Platform> {
    image
        .platform()
        .parse()
        .context(|| {
            format!(
                "image {}: .wf.platform cannot be read",
                crate::raw::shown_path(image.path())
            )
        })
        .exit(Exit::Image)
}

fn failed(exit: Exit, error: impl Into<Failure>) -> Failure {
    let outcome: Outcome<()> = Err(error).exit(exit);
    outcome.err().unwrap_or_else(Failure::reader_gone)
}

/// An error about the image at `path`: status 4, or what the file system had to say.
pub(crate) fn image_failure(path: &Path, error: ImageError) -> Failure {
    match &error {
        ImageError::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
            failed(Exit::Usage, error)
        }
        ImageError::Io { .. } => failed(Exit::Failed, error),
        ImageError::Untrusted { .. } => failed(Exit::Image, error)
            .advise("a copy of your own with mode 600, if you trust where it comes from"),
        ImageError::Base { .. } => failed(Exit::Image, error)
            .advise("the images that this one builds on, in the same directory"),
        _ => {
            let failure = failed(Exit::Image, error);
            match crate::jobs::image_before(path) {
                Some(before) => failure.advise(format!(
                    "the image before it, {}",
                    crate::raw::shown_path(before)
                )),
                None => failure,
            }
        }
    }
}

/// An error about an image that is being written.
fn output_failure(error: ImageError) -> Failure {
    match &error {
        ImageError::NotAFile { .. } => {
            failed(Exit::Usage, error).advise("the name of a file in it, with -o FILE")
        }
        ImageError::Io { source, .. } => match source.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => {
                failed(Exit::Usage, error).advise("a directory that is there, with -o FILE")
            }
            ErrorKind::StorageFull => {
                failed(Exit::Failed, error).advise("another place for the image, with -o FILE")
            }
            _ => failed(Exit::Failed, error),
        },
        ImageError::Exists { .. } => failed(Exit::Failed, error).advise("another name with -o"),
        _ => failed(Exit::Failed, error),
    }
}

/// Registers a job. Only a name that is not free is a failure; any other trouble with the record is told,
/// and the job goes without one.
pub(crate) fn register(store: &JobStore, new: NewJob) -> Outcome<Option<Job>> {
    match registered(store, new)? {
        Ok(job) => Ok(Some(job)),
        Err(error) => {
            tell(&format!(
                "the job is not written down, and is known by its process id only: {}",
                chain(&error)
            ));
            Ok(None)
        }
    }
}

/// Writes a job down; the inner error says why it cannot be.
///
/// # Errors
/// Its name is taken.
pub(crate) fn registered(store: &JobStore, new: NewJob) -> Outcome<Result<Job, JobError>> {
    let error = match store.register(new) {
        Ok(job) => return Ok(Ok(job)),
        Err(error) => error,
    };
    match &error {
        JobError::Taken { .. } | JobError::Newer { .. } => {
            Err(Failure::from(error).advise("another --name, or none"))
        }
        JobError::HasImages { name, .. } => {
            let goes_on = format!("wayfarer restart {name}: goes on with it");
            let removes = format!("wayfarer ps --prune {name}: removes it");
            Err(Failure::from(error).advise(goes_on).advise(removes))
        }
        _ => Ok(Err(error)),
    }
}
