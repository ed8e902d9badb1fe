//! How a starter keeps a job alive, and what can be asked of one.

use super::values::{parse_compression, parse_duration, parse_name, parse_rate, parse_size};
use clap::Args;
use clap::builder::TypedValueParser as _;
use std::ffi::OsString;
use std::num::NonZeroU64;
use std::time::Duration;

/// Where images of a job are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ImagesAt {
    /// Below this directory.
    Dir(std::path::PathBuf),
    /// Where the job's files are, and in the job's directory.
    Shadow,
}

impl From<OsString> for ImagesAt {
    fn from(text: OsString) -> Self {
        match text.to_str() {
            Some("shadow") => ImagesAt::Shadow,
            _ => ImagesAt::Dir(text.into()),
        }
    }
}

/// What a starter does by itself. With any of these, the job has one.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "A life of its own")]
pub(crate) struct Life {
    /// Make an image after every so much work
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    pub(crate) every: Option<Duration>,

    /// How many images are kept [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) keep: Option<u32>,

    /// Keep the job's images in a folder below this directory, not in the job's; it must be there whenever the job goes on. Or (shadow): they count when
    /// the shadow has them, too, which goes on with the job on another machine
    #[arg(long, value_name = "DIR|shadow", value_parser = clap::builder::OsStringValueParser::new().map(ImagesAt::from))]
    pub(crate) images: Option<ImagesAt>,

    /// Told to leave by a signal (TERM, TSTP), leave without a new image after so long [default: try until there is one]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) vacate_within: Option<Duration>,

    /// Make no image that would leave less room than this on its disk
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) min_free: Option<u64>,

    /// Make no image with which the job's images would be larger together; older ones go to make room, but for the newest that verifies
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) images_max: Option<u64>,

    /// What of the job's files is kept to go back to takes so much of the disk at most; a change that needs more fails with EDQUOT
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) journal_max: Option<u64>,

    /// Compress images
    #[arg(long, value_name = "zstd[:LEVEL]", value_parser = parse_compression)]
    pub(crate) compress: Option<i32>,

    /// Write and send images no faster than so many bytes in a second (50M)
    #[arg(long, value_name = "SIZE", value_parser = parse_rate)]
    pub(crate) image_rate: Option<NonZeroU64>,

    /// Images carry every regular file that the job has open, data too
    #[arg(long)]
    pub(crate) carry_files: bool,

    /// Images wait this long for connections to the outside to end
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) wait_for_sockets: Option<Duration>,

    /// At the job's end (not when it only leaves) carry this out, by `sh -c`; '' for nothing again
    #[arg(long, value_name = "CMD")]
    pub(crate) notify: Option<OsString>,

    /// How long that may take
    #[arg(long, hide = true, value_name = "TIME", value_parser = parse_duration, default_value = "60s")]
    pub(crate) notify_within: Duration,

    /// How often other machines are given a sign of life
    #[arg(long, hide = true, value_name = "TIME", value_parser = parse_period, default_value = "60s")]
    pub(crate) pulse: Duration,

    /// Suspend, continue, checkpoint and vacate the job as this configuration of Condor's says (SUSPEND, PREEMPT, PERIODIC_CHECKPOINT …)
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<std::path::PathBuf>,

    /// The Condor that the policy is for: 6.1, 6.8 or 25
    #[arg(
        long,
        value_name = "VERSION",
        default_value = "25",
        requires = "policy"
    )]
    pub(crate) dialect: classad::config::Dialect,

    /// When the job is completed, remove all that is known of it here
    #[arg(long)]
    pub(crate) forget: bool,

    /// The status that says: the job has left, start it again and it goes on [default: 85]
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) vacated_status: Option<u8>,
}

impl Life {
    /// Whether anything of it was asked for.
    pub(crate) fn is_wanted(&self) -> bool {
        let Life {
            every,
            keep,
            images,
            vacate_within,
            min_free,
            images_max,
            journal_max,
            compress,
            image_rate,
            carry_files,
            wait_for_sockets,
            vacated_status,
            notify,
            policy,
            forget,
            dialect: _,
            notify_within: _,
            pulse: _,
        } = self;
        every.is_some()
            || keep.is_some()
            || images.is_some()
            || vacate_within.is_some()
            || min_free.is_some()
            || images_max.is_some()
            || journal_max.is_some()
            || compress.is_some()
            || image_rate.is_some()
            || *carry_files
            || wait_for_sockets.is_some()
            || vacated_status.is_some()
            || notify.is_some()
            || policy.is_some()
            || *forget
    }
}

/// A time that lets some work be done.
fn parse_period(text: &str) -> Result<Duration, String> {
    let period = parse_duration(text)?;
    match period >= Duration::from_millis(50) {
        true => Ok(period),
        false => Err("expected at least 50ms".to_owned()),
    }
}

/// Let a job stand still
#[derive(Debug, Args)]
pub(crate) struct Suspend {
    /// Name of the job
    #[arg(value_name = "JOB", value_parser = parse_name)]
    pub(crate) job: String,
}

/// Let a job that stands still go on
#[derive(Debug, Args)]
pub(crate) struct Continue {
    /// Name of the job
    #[arg(value_name = "JOB", value_parser = parse_name)]
    pub(crate) job: String,
}

/// Make an image of a job, with which it leaves this machine
#[derive(Debug, Args)]
pub(crate) struct Vacate {
    /// Name of the job
    #[arg(value_name = "JOB", value_parser = parse_name)]
    pub(crate) job: String,

    /// Leave with the last image, without a new one
    #[arg(long, conflicts_with = "within")]
    pub(crate) latest: bool,

    /// Try again while no image can be made; after so long, leave without
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) within: Option<Duration>,
}

/// Have a job that was begun by `submit` go on on another machine
#[derive(Debug, Args)]
pub(crate) struct Migrate {
    /// Name of the job
    #[arg(value_name = "JOB", value_parser = parse_name)]
    pub(crate) job: String,

    /// The other machine, reached as the job's are; if the job cannot go on there, it goes on on one of those
    #[arg(long, value_name = "[USER@]HOST")]
    pub(crate) to: String,
}

/// Say how fast images of a job are written and brought home, also the one that is being made
#[derive(Debug, Args)]
pub(crate) struct ImageRate {
    /// Name of the job
    #[arg(value_name = "JOB", value_parser = parse_name)]
    pub(crate) job: String,

    /// No faster than so many bytes in a second (50M), as --image-rate; or none: as fast as they can. It counts until the job's starter ends
    #[arg(value_name = "SIZE|none", value_parser = parse_rate_or_none)]
    pub(crate) rate: OptionalRate,
}

/// A rate, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OptionalRate(pub(crate) Option<NonZeroU64>);

fn parse_rate_or_none(text: &str) -> Result<OptionalRate, String> {
    match text {
        "none" => Ok(OptionalRate(None)),
        _ => parse_rate(text).map(|rate| OptionalRate(Some(rate))),
    }
}

/// Have a job leave, and not go on before it is released
#[derive(Debug, Args)]
pub(crate) struct Hold {
    /// Name of the job
    #[arg(value_name = "JOB", value_parser = parse_name)]
    pub(crate) job: String,

    /// Why, for whoever looks at it
    #[arg(long, value_name = "TEXT", default_value = "by its owner")]
    pub(crate) reason: String,
}

/// Let a held job go on when it is started again
#[derive(Debug, Args)]
pub(crate) struct Release {
    /// Name of the job
    #[arg(value_name = "JOB", value_parser = parse_name)]
    pub(crate) job: String,
}

/// Kill a job, and remove its images and all that is known of it
#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// Name of the job
    #[arg(value_name = "JOB", value_parser = parse_name)]
    pub(crate) job: String,
}

/// Show how a job fares
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Name of the job
    #[arg(value_name = "JOB", value_parser = parse_name)]
    pub(crate) job: String,

    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show what has happened to a job: an event log as HTCondor writes one
#[derive(Debug, Args)]
pub(crate) struct Log {
    /// Name of the job
    #[arg(value_name = "JOB", value_parser = parse_name)]
    pub(crate) job: String,
}

/// Show what a job has written so far, if that goes to a file
#[derive(Debug, Args)]
pub(crate) struct Tail {
    /// Name of the job
    #[arg(value_name = "JOB", value_parser = parse_name)]
    pub(crate) job: String,

    /// How many lines, from the last on; or all
    #[arg(long, short = 'n', value_name = "LINES|all", default_value = "10", value_parser = parse_lines)]
    pub(crate) lines: Lines,

    /// Go on with what it writes, until it has ended or left
    #[arg(long, short)]
    pub(crate) follow: bool,

    /// What it writes to its standard error, not its output
    #[arg(long)]
    pub(crate) errors: bool,
}

/// How much of a text is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lines {
    /// All of it.
    All,
    /// The last so many.
    Last(u64),
}

fn parse_lines(text: &str) -> Result<Lines, String> {
    match (text, text.parse()) {
        ("all", _) => Ok(Lines::All),
        (_, Ok(count)) => Ok(Lines::Last(count)),
        _ => Err("expected a number of lines, or all".to_owned()),
    }
}
