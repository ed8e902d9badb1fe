//! Configurations in Condor's language.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Read configurations as Condor does: print and check them
#[derive(Debug, Args)]
pub(crate) struct Config {
    #[command(subcommand)]
    pub(crate) what: ConfigVerb,
}

/// What to do with a configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    Dump(DumpConfig),
    Check(CheckConfig),
}

/// Which configuration, and for whom.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The file that it begins with; local ones follow from it [default: $CONDOR_CONFIG, else /etc/condor/condor_config]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// The Condor that it is for: 6.1, 6.8 or 25
    #[arg(long, value_name = "VERSION", default_value = "25")]
    pub(crate) dialect: classad::config::Dialect,

    /// Whose it is: SUBSYSTEM.NAME is stronger than NAME
    #[arg(long, value_name = "SUBSYSTEM", default_value = "STARTD")]
    pub(crate) subsystem: String,

    /// The same for one of several of its kind
    #[arg(long, value_name = "NAME")]
    pub(crate) local_name: Option<String>,

    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print names and their values, macros expanded; of one name the value alone
#[derive(Debug, Args)]
pub(crate) struct DumpConfig {
    /// Only this one; status 1 if it is not defined
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Also where each value is from, and how it is written there
    #[arg(long, short)]
    pub(crate) verbose: bool,

    #[command(flatten)]
    pub(crate) which: Which,
}

/// Say what is wrong with a configuration; status 1 if something is
#[derive(Debug, Args)]
pub(crate) struct CheckConfig {
    /// What is probably not meant, such as a macro that is not defined, is wrong, too
    #[arg(long)]
    pub(crate) strict: bool,

    #[command(flatten)]
    pub(crate) which: Which,
}
