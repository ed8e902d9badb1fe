//! The machine ad.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Say what this machine is and how busy it is, as Condor's policies see it
#[derive(Debug, Args)]
pub(crate) struct Machine {
    /// The whole ad, as condor_status -l prints it
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) long: bool,

    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// In the words of this era of Condor
    #[arg(long, value_enum, default_value_t = Era::Today, value_name = "ERA")]
    pub(crate) dialect: Era,

    /// Measure its speed too: about a second of one processor
    #[arg(long)]
    pub(crate) benchmark: bool,

    /// A file that is touched when somebody is at the console (under X or Wayland no terminal is read); may be given again
    #[arg(long, value_name = "FILE")]
    pub(crate) console_stamp: Vec<PathBuf>,

    /// Where jobs have their files, instead of $TMPDIR: whose free room is Disk
    #[arg(long, value_name = "DIR")]
    pub(crate) execute: Option<PathBuf>,
}

/// Eras of Condor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Era {
    /// Condor 6.1
    #[value(name = "6.1")]
    First,
    /// Condor 6.8
    #[value(name = "6.8")]
    Middle,
    /// HTCondor 25
    #[value(name = "25")]
    Today,
}
