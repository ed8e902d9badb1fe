//! Policies of machine owners, tried by hand.

use super::values::parse_duration;
use crate::verbs::policy::WhichSlot;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// See what a policy of Condor's does, and why
#[derive(Debug, Args)]
pub(crate) struct Policy {
    #[command(subcommand)]
    pub(crate) what: PolicyVerb,
}

/// What to do with a policy.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyVerb {
    Simulate(SimulatePolicy),
    Explain(ExplainPolicy),
    Record(RecordPolicy),
    Submit(SubmitPolicy),
}

/// Which policy, and of what machine.
#[derive(Debug, Args)]
pub(crate) struct WhichPolicy {
    /// The configuration that it is in
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// The Condor that it is for: 6.1, 6.8 or 25
    #[arg(long, value_name = "VERSION", default_value = "25")]
    pub(crate) dialect: classad::config::Dialect,

    /// How many processors the machine has [default: as many as this one]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) cpus: Option<u16>,

    /// How much memory the machine has, in MiB [default: as much as this one]
    #[arg(long, value_name = "MIB")]
    pub(crate) memory: Option<u32>,

    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Run a machine with this policy over a recorded or invented day, in virtual time
#[derive(Debug, Args)]
pub(crate) struct SimulatePolicy {
    #[command(flatten)]
    pub(crate) which: WhichPolicy,

    /// What happens, as CSV (docs/POLICY.md); - for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: PathBuf,

    /// How long after the trace's first row it ends, such as 90m, 8h or 7d [default: with its last row]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) until: Option<Duration>,

    /// Also draw it
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

/// Say term by term why an expression has its value: in a slot of the startd that is there, else on this machine
#[derive(Debug, Args)]
pub(crate) struct ExplainPolicy {
    /// The expression, or the name of one, such as START
    #[arg(value_name = "EXPR", allow_hyphen_values = true)]
    pub(crate) expression: String,

    #[command(flatten)]
    pub(crate) which: WhichPolicy,

    /// An ad for the machine, instead of what is seen of this one; it is stronger than the configuration
    #[arg(long, value_name = "FILE")]
    pub(crate) my: Option<PathBuf>,

    /// The ad of the job [default: the job in the slot of the startd that is there]
    #[arg(long, value_name = "FILE")]
    pub(crate) target: Option<PathBuf>,

    /// Which slot, such as 2, or 2_1 for a part of it; also which ad, if the file of --my has several
    #[arg(long, value_name = "SLOTID", default_value = "1")]
    pub(crate) slot: WhichSlot,
}

/// Write what happens on this machine as a trace for `policy simulate`
#[derive(Debug, Args)]
pub(crate) struct RecordPolicy {
    /// How often the machine is looked at
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) every: Duration,

    /// For how long [default: until it is interrupted]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    pub(crate) span: Option<Duration>,
}

/// Show what job transforms make of a job, and what submit requirements say of it; status 1 if it is refused
#[derive(Debug, Args)]
pub(crate) struct SubmitPolicy {
    /// The job file: a submit description, or an ad in the old syntax
    #[arg(value_name = "JOBFILE")]
    pub(crate) file: PathBuf,

    /// The configuration that they are in
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) config: PathBuf,

    /// The ad of who takes the job in, which is MY to requirements [default: none]
    #[arg(long, value_name = "FILE")]
    pub(crate) my: Option<PathBuf>,

    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
