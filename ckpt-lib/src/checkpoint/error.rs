//! Why a checkpoint has made no image.

use super::session::SessionError;
use crate::capture::{CaptureError, Refusal};
use crate::image::ImageError;
use crate::inject::InjectError;
use crate::loader_code::LoaderCodeError;
use crate::pages::PagesError;
use crate::plan::PlanError;
use crate::tracee::StopError;

/// Why there is no image. The job runs on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// Something about the job cannot be carried, or could not be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// Connections to the outside did not end in time.
    #[error("{} sockets of the job lead outside after {} s of waiting: {}", .left.len(), waited.as_secs_f64(), list(.left))]
    Sockets {
        /// What is left.
        left: Vec<Refusal>,
        /// How long was waited.
        waited: std::time::Duration,
    },
    /// The job has other processes.
    #[error(
        "process {root} has started {}, and only jobs of one process can be carried yet",
        numbers(.others)
    )]
    Tree {
        /// First process.
        root: i32,
        /// Those that it has started and that live.
        others: Vec<i32>,
    },
    /// A copy of it, which a killed checkpoint has left, does not end.
    #[error(
        "{} of process {root}, left by a checkpoint that was killed, should have ended by itself and is still there",
        leavings(.copies)
    )]
    Copies {
        /// Whose.
        root: i32,
        /// The copies.
        copies: Vec<i32>,
    },
    /// The job does not want to be checkpointed now.
    #[error(
        "the job has disabled checkpoints for now ({times} times, and not yet enabled them again)"
    )]
    Disabled {
        /// How often.
        times: u32,
    },
    /// What the job does before a checkpoint takes too long.
    #[error(
        "what process {pid} does before a checkpoint (wayfarer_hooks) has not ended within {waited_s} s"
    )]
    NotReady {
        /// Which.
        pid: i32,
        /// How long was waited.
        waited_s: u64,
    },
    /// The job could not be stopped.
    #[error(transparent)]
    Stop(#[from] StopError),
    /// Calls could not be made inside it.
    #[error(transparent)]
    Inject(#[from] InjectError),
    /// Its pages could not be listed.
    #[error(transparent)]
    Pages(#[from] PagesError),
    /// The snapshot makes no sense.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The image could not be written.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The shadow, which has the job's files, does not say what state they are in.
    #[error("the state of the job's files cannot be had from its shadow")]
    Session(#[source] SessionError),
    /// The image did not come where it counts.
    #[error("the image was made, and has not come where it is kept")]
    Carry(#[source] SessionError),
    /// The carried loader is broken.
    #[error(transparent)]
    Loader(#[from] LoaderCodeError),
    /// The process has ended, and something failed: because of that, or not.
    #[error("process {pid} has ended")]
    Ended {
        /// Which.
        pid: i32,
        /// What failed.
        #[source]
        first: Box<CheckpointError>,
    },
    /// Something failed, and then something else while the job was being let go.
    #[error("the job was not let go as it should be ({})", chain(.cleanup))]
    Unclean {
        /// What failed first.
        #[source]
        first: Box<CheckpointError>,
        /// What failed then.
        cleanup: StopError,
    },
}

impl CheckpointError {
    /// This error, beside what came of letting the job go because of it.
    pub(super) fn and_then(self, let_go: Result<(), StopError>) -> Self {
        match let_go {
            Ok(()) => self,
            Err(cleanup) => CheckpointError::Unclean {
                first: Box::new(self),
                cleanup,
            },
        }
    }
}

/// An error and its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}

fn list(refusals: &[Refusal]) -> String {
    let texts: Vec<String> = refusals.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

fn numbers(others: &[i32]) -> String {
    let word = if others.len() == 1 {
        "process"
    } else {
        "processes"
    };
    let others: Vec<String> = others.iter().map(ToString::to_string).collect();
    format!("{word} {}", others.join(", "))
}

fn leavings(copies: &[i32]) -> String {
    let word = if copies.len() == 1 {
        "the copy"
    } else {
        "the copies"
    };
    format!("{word} ({})", numbers(copies))
}
