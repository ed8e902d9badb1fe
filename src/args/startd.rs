//! Who gives jobs to this machine, as its owner allows.

use super::values::parse_name;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Offer this machine to jobs of one's own, by a policy in Condor's language
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Startd {
    /// The file that the configuration begins with
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) config: Option<PathBuf>,

    /// The Condor that it is for: 6.1, 6.8 or 25
    #[arg(long, value_name = "VERSION", default_value = "25")]
    pub(crate) dialect: classad::config::Dialect,

    #[command(subcommand)]
    pub(crate) what: Option<StartdVerb>,
}

/// What is asked of it.
#[derive(Debug, Subcommand)]
pub(crate) enum StartdVerb {
    Submit(SubmitFile),
    Status(StartdStatus),
    Remove(OfQueue),
    Release(OfQueue),
    Hold(super::Hold),
    Drain(DrainAll),
    Off(Off),
    Vacate(VacateSlots),
    Checkpoint(CheckpointSlots),
    /// Read the configuration again (also: SIGHUP)
    Reconfig,
}

/// Hand in a job: a submit description, or an ad in the old syntax
#[derive(Debug, Args)]
pub(crate) struct SubmitFile {
    /// The job file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Name of the job [default: the file's name and a number]
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub(crate) name: Option<String>,

    /// A configuration whose job transforms and submit requirements the job goes through first
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Show slots and queue
#[derive(Debug, Args)]
pub(crate) struct StartdStatus {
    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A job of the queue
#[derive(Debug, Args)]
pub(crate) struct OfQueue {
    /// Name of the job
    #[arg(value_name = "JOB", value_parser = parse_name)]
    pub(crate) job: String,
}

/// Take no more jobs, and let those that run leave, as condor_drain does
#[derive(Debug, Args)]
pub(crate) struct DrainAll {
    /// Jobs have their retirement time, and time to vacate
    #[arg(long, group = "how")]
    pub(crate) graceful: bool,

    /// Jobs have time to vacate
    #[arg(long, group = "how")]
    pub(crate) quick: bool,

    /// Jobs are killed: they go on from their last images
    #[arg(long, group = "how")]
    pub(crate) fast: bool,

    /// Take jobs again when all are gone
    #[arg(long)]
    pub(crate) resume_on_completion: bool,

    /// START until the last job has left that was there before: others may fill the machine meanwhile (else DEFRAG_DRAINING_START_EXPR of the configuration)
    #[arg(long, value_name = "EXPR", conflicts_with_all = ["quick", "fast"])]
    pub(crate) start: Option<String>,

    /// Take jobs again
    #[arg(long, conflicts_with_all = ["how", "resume_on_completion", "start"])]
    pub(crate) cancel: bool,
}

/// End it, as condor_off does; returns when all jobs are gone
#[derive(Debug, Args)]
#[command(visible_alias = "shutdown")]
pub(crate) struct Off {
    /// Jobs may run as long as they want to
    #[arg(long, group = "how")]
    pub(crate) peaceful: bool,

    /// Jobs have their retirement time, and time to vacate (also: SIGTERM)
    #[arg(long, group = "how")]
    pub(crate) graceful: bool,

    /// Jobs are killed: they go on from their last images (also: SIGINT, SIGQUIT)
    #[arg(long, group = "how")]
    pub(crate) fast: bool,
}

/// Let jobs leave their slots, as condor_vacate does; they wait in the queue
#[derive(Debug, Args)]
pub(crate) struct VacateSlots {
    /// Only this slot's, say slot1 or slot1_2
    #[arg(value_name = "SLOT")]
    pub(crate) slot: Option<String>,

    /// Without time to vacate
    #[arg(long)]
    pub(crate) fast: bool,
}

/// Make images of jobs, as condor_checkpoint does
#[derive(Debug, Args)]
pub(crate) struct CheckpointSlots {
    /// Only this slot's
    #[arg(value_name = "SLOT")]
    pub(crate) slot: Option<String>,
}
