//! The machine ad.

use super::values::parse_duration;
use clap::Args;
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

    /// As this configuration has it measured
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// In the words of this era of Condor: 6.1, 6.8 or 25
    #[arg(long, default_value = "25", value_name = "ERA")]
    pub(crate) dialect: classad::config::Dialect,

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

/// Tell a startd when somebody is at an X session, as condor_kbdd does: a file is touched (CONSOLE_STAMPS)
///
/// To be begun with the session; ends with it.
#[derive(Debug, Args)]
pub(crate) struct Kbdd {
    /// The file: its time of modification becomes that of the last key or movement
    #[arg(value_name = "STAMP")]
    pub(crate) stamp: PathBuf,

    /// The session, instead of $DISPLAY
    #[arg(long, value_name = "NAME")]
    pub(crate) display: Option<String>,

    /// Between two looks
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "5s")]
    pub(crate) every: std::time::Duration,
}
