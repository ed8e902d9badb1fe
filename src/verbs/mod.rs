//! The verbs of the command, one file each; here is what several of them need.

pub(crate) mod checkpoint;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod flatten;
pub(crate) mod inspect;
pub(crate) mod kill;
pub(crate) mod man;
pub(crate) mod platform;
pub(crate) mod ps;
pub(crate) mod restart;
pub(crate) mod run;
pub(crate) mod verify;

use crate::jobs::JobError;
use crate::report::{Exit, Explain, Failure, Outcome};
use ckpt_lib::image::{Image, ImageError};
use ckpt_lib::platform::Platform;
use std::io::ErrorKind;
use std::path::Path;

/// Opens an image and checks everything but its pages.
fn open_image(path: &Path) -> Outcome<Image> {
    Image::open(path).map_err(image_failure)
}

/// What an image needs of a machine.
fn needed_by(image: &Image) -> Outcome<Platform> {
    image
        .platform()
        .parse()
        .context(|| {
            format!(
                "image {}: .wf.platform cannot be read",
                image.path().display()
            )
        })
        .exit(Exit::Image)
}

/// An error about an image: status 4, or what the file system had to say.
fn image_failure(error: ImageError) -> Failure {
    let failed = |exit, error| {
        let outcome: Outcome<()> = Err(error).exit(exit);
        outcome.err().unwrap_or_else(Failure::reader_gone)
    };
    match &error {
        ImageError::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
            failed(Exit::Usage, error)
        }
        ImageError::Io { source, .. } if source.kind() == ErrorKind::StorageFull => {
            failed(Exit::Failed, error).advise("another place for the image, with -o FILE")
        }
        ImageError::Io { .. } => failed(Exit::Failed, error),
        ImageError::Exists { .. } => failed(Exit::Failed, error).advise("another name with -o"),
        ImageError::Untrusted { .. } => failed(Exit::Image, error)
            .advise("a copy of your own with mode 600, if you trust where it comes from"),
        ImageError::Base { .. } => failed(Exit::Image, error)
            .advise("the images that this one builds on, in the same directory"),
        _ => failed(Exit::Image, error).advise("the image before it"),
    }
}

/// Says what to do when a job cannot be registered.
fn registration_advice(error: JobError) -> Failure {
    let advice = match &error {
        JobError::Taken { .. } => vec!["another --name, or none".to_owned()],
        JobError::HasImages { name, .. } => vec![
            format!("wayfarer restart {name}: goes on with it"),
            format!("wayfarer ps --prune {name}: removes it"),
        ],
        _ => vec!["--dir DIR with a directory that you may write".to_owned()],
    };
    advice
        .into_iter()
        .fold(Failure::from(error), Failure::advise)
}
