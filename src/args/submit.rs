//! What is said of a job that runs on another machine: by its user, and to that machine.

use super::examples::SUBMIT_EXAMPLES;
use super::values::{parse_duration, parse_name, parse_size};
use super::{Life, Methods};
use clap::Args;

/// Run a command on another machine, with the files, input and outputs of this one
#[derive(Clone, Debug, Args)]
#[command(after_long_help = SUBMIT_EXAMPLES)]
pub(crate) struct Submit {
    /// The other machine, as ssh knows it; several (with a life of its own): the next is taken when one cannot be reached
    #[arg(long, required = true, value_name = "[USER@]HOST")]
    pub(crate) on: Vec<String>,

    /// How it is reached: a command and its options, to which the machine and a command for it are added
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = "ssh -o ServerAliveInterval=20"
    )]
    pub(crate) ssh: String,

    /// This program on the other machine [default: copied to ~/.cache/wayfarer there, if it is not yet]
    #[arg(long, value_name = "PATH")]
    pub(crate) wayfarer: Option<std::path::PathBuf>,

    /// Name of the job there [default: the command's name and a number]
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub(crate) name: Option<String>,

    /// Where the job begins, on this machine [default: here]
    #[arg(long, value_name = "DIR")]
    pub(crate) chdir: Option<std::path::PathBuf>,

    /// A directory of this machine that the job may use, or only read [default: this one, and / for reading]
    #[arg(long, value_name = "PATH[:ro]")]
    pub(crate) allow: Vec<std::ffi::OsString>,

    /// How long the other machine is tried to be reached again when the line breaks, and the job waits there, before both give up
    #[arg(long, value_name = "TIME", default_value = "40m", value_parser = parse_duration)]
    pub(crate) lease: std::time::Duration,

    /// The job sees no file of the other machine: it has its files here, an empty /tmp and /dev/shm there, and gains no rights
    #[arg(long, conflicts_with_all = ["local_files", "filesystem_domain"])]
    pub(crate) confine: bool,

    /// Raise the job's niceness there by so much (Condor's JOB_RENICE_INCREMENT)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=19))]
    pub(crate) nice: Option<u8>,

    #[command(flatten)]
    pub(crate) methods: Methods,

    #[command(flatten)]
    pub(crate) life: Life,

    /// If the job of this name has begun already: go on from its newest image
    #[arg(long, requires = "name", conflicts_with = "replace")]
    #[arg(help_heading = "A life of its own")]
    pub(crate) resume: bool,

    /// Remove what is left of an ended job of this name
    #[arg(long)]
    #[arg(help_heading = "A life of its own")]
    pub(crate) replace: bool,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

impl Submit {
    /// Whether the job is to outlive the machine that it runs on.
    pub(crate) fn has_life(&self) -> bool {
        self.life.is_wanted() || self.resume || self.replace || self.on.len() > 1
    }

    /// Where it begins.
    pub(crate) fn directory(&self) -> std::io::Result<std::path::PathBuf> {
        match &self.chdir {
            Some(directory) => std::path::absolute(directory),
            None => std::env::current_dir(),
        }
    }
}

/// How a job is begun whose life is elsewhere: `submit` says it.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Begun {
    /// With --shadow stdio: the job's starter and its images are where its files are
    #[arg(long, hide = true)]
    pub(crate) at_home: bool,

    /// With --at-home: it goes on from an image that comes first, behind those that it is based on
    #[arg(long, hide = true, requires = "at_home")]
    pub(crate) arriving: bool,

    /// With --arriving: behind so many files it is said whether this machine can go on from them; the job still runs elsewhere
    #[arg(long, hide = true, value_name = "COUNT", requires = "arriving")]
    pub(crate) seated: Option<u32>,

    /// With --at-home: the copy of this id, if it is still there, is ended first
    #[arg(long, hide = true, value_name = "ID", requires = "at_home", value_parser = parse_name)]
    pub(crate) instead_of: Option<String>,

    /// With --instead-of: nothing takes the place of that copy
    #[arg(long, hide = true, requires = "instead_of")]
    pub(crate) only_ends: bool,

    /// With --at-home: no copy is begun that would leave less of the disk here
    #[arg(long, hide = true, value_name = "SIZE", requires = "at_home", value_parser = parse_size)]
    pub(crate) leave_free: Option<u64>,

    /// It begins again: the session's state at its outset, in hexadecimal digits
    #[arg(long, hide = true, value_name = "STATE")]
    pub(crate) go_back: Option<String>,

    /// Where it is told how the job fares: a copy whose starter is on another machine
    #[arg(long, hide = true, value_name = "N")]
    pub(crate) starter_fd: Option<i32>,
}
