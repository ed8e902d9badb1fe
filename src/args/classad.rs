//! Ads and expressions by hand.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Evaluate, match and print ClassAds, as HTCondor does
#[derive(Debug, Args)]
pub(crate) struct Classad {
    #[command(subcommand)]
    pub(crate) what: ClassadVerb,
}

/// What to do with ads.
#[derive(Debug, Subcommand)]
pub(crate) enum ClassadVerb {
    Eval(EvalAd),
    Match(MatchAds),
    Print(PrintAds),
}

/// Evaluate an expression and print its value
#[derive(Debug, Args)]
pub(crate) struct EvalAd {
    /// The expression
    #[arg(value_name = "EXPR", allow_hyphen_values = true)]
    pub(crate) expression: String,

    /// The ad it is in: old syntax, new, or JSON; - for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) my: Option<PathBuf>,

    /// The ad that TARGET is
    #[arg(long, value_name = "FILE")]
    pub(crate) target: Option<PathBuf>,

    /// The configuration whose maps of users userMap() asks (CLASSAD_USER_MAP_NAMES)
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Say whether two ads accept each other, and how much each wants the other; status 1 if they do not
#[derive(Debug, Args)]
pub(crate) struct MatchAds {
    /// An ad
    #[arg(value_name = "A")]
    pub(crate) left: PathBuf,

    /// Another one
    #[arg(value_name = "B")]
    pub(crate) right: PathBuf,

    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print ads in another syntax
#[derive(Debug, Args)]
pub(crate) struct PrintAds {
    /// The ads: old syntax, new, or JSON; - for standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// How
    #[arg(long, value_enum, default_value_t = AdSyntax::Old, value_name = "SYNTAX")]
    pub(crate) syntax: AdSyntax,
}

/// How ads are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AdSyntax {
    /// A line `name = expr` for each attribute, a blank line behind each ad
    Old,
    /// `[ name = expr; ... ]`, each ad on a line
    New,
    /// A JSON object for each ad
    Json,
}
