//! What other verbs begin beside a job. It is not for people.

use super::values::{parse_duration, parse_size};
use crate::address::Address;
use clap::Args;

/// Send what a job has written to its shadow; `run` begins it
#[derive(Debug, Args)]
pub(crate) struct Keeper {
    /// The job is being brought back
    #[arg(long)]
    pub(crate) restarted: bool,
}

/// Carry a job's streams to its shadow; `run` begins it
#[derive(Debug, Args)]
pub(crate) struct Starter {
    /// Where the shadow is
    #[arg(long, value_name = "ADDRESS", value_parser = Address::parse)]
    pub(crate) shadow: Address,

    /// The file that the shadow has written
    #[arg(long, value_name = "FILE")]
    pub(crate) identity_file: std::path::PathBuf,

    /// A folder for the socket, if there is no other
    #[arg(long, value_name = "DIR")]
    pub(crate) fallback: std::path::PathBuf,

    /// How long a broken line is tried to be made anew
    #[arg(long, value_name = "TIME", default_value = "40m", value_parser = parse_duration)]
    pub(crate) lease: std::time::Duration,
}

/// Serve one job's files from here, so that they go back with it; `run --journal` begins it
#[derive(Debug, Args)]
pub(crate) struct Home {
    /// How much old state the journal may keep
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) journal_max: Option<u64>,

    /// The directory of the job, whose starter is asked for images before that is reached
    #[arg(long, value_name = "DIR", requires = "journal_max")]
    pub(crate) job: Option<std::path::PathBuf>,
}

/// Hand our input and output over to a starter whose line broke; `submit` begins it
#[derive(Debug, Args)]
pub(crate) struct Reattach {
    /// The starter's socket
    #[arg(value_name = "SOCKET")]
    pub(crate) place: std::path::PathBuf,
}

/// Hold what tells which memory a job writes to, until its next image; `checkpoint` begins it
#[derive(Debug, Args)]
pub(crate) struct Watcher {
    /// The image that was made when that began
    #[arg(long, value_name = "ID")]
    pub(crate) image: String,

    /// What is held
    #[arg(long, value_name = "N")]
    pub(crate) userfaultfd: i32,

    /// The process that is watched
    #[arg(long, value_name = "PID")]
    pub(crate) process: i32,

    /// The job's folder
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: std::path::PathBuf,
}

/// Hold the place of a copy's supervisor until the job has left where it runs; `run --shadow stdio` begins it
#[derive(Debug, Args)]
pub(crate) struct Ahead {
    /// Where it is told what is to be done
    #[arg(long, value_name = "N")]
    pub(crate) orders_fd: i32,

    /// The job
    #[arg(long, value_name = "NAME")]
    pub(crate) name: String,

    /// The image that came first
    #[arg(value_name = "IMAGE")]
    pub(crate) image: std::path::PathBuf,
}
