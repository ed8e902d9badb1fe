//! The command line. Nothing but clap is used here, so that man pages and
//! completions can be made from it.

mod beside;
mod classad;
mod compile;
mod config;
mod examples;
mod images;
mod life;
mod machine;
mod methods;
mod policy;
mod startd;
mod submit;
mod values;

pub(crate) use beside::{Ahead, Home, Keeper, Reattach, Starter, Watcher};
pub(crate) use classad::{AdSyntax, Classad, ClassadVerb, EvalAd, MatchAds, PrintAds};
pub(crate) use compile::Compile;
pub(crate) use config::{CheckConfig, Config, ConfigVerb, DumpConfig, Which};
pub(crate) use images::{Flatten, Inspect, Verify};
pub(crate) use life::{
    Continue, Hold, ImageRate, ImagesAt, Life, Lines, Log, Migrate, Release, Remove, Status,
    Suspend, Tail, Vacate,
};
pub(crate) use machine::{Kbdd, Machine};
pub(crate) use methods::{Methods, Sight, Whose};
pub(crate) use policy::{
    ExplainPolicy, Policy, PolicyVerb, RecordPolicy, SimulatePolicy, SubmitPolicy, WhichPolicy,
};
pub(crate) use startd::{Startd, StartdStatus, StartdVerb, SubmitFile};
pub(crate) use submit::{Begun, Submit};
pub(crate) use values::{is_job_name, signal_name};

use crate::address::Address;
use clap::{Args, Parser, Subcommand, ValueEnum};
use examples::{CHECKPOINT_EXAMPLES, EXIT_STATUS, RESTART_EXAMPLES, RUN_EXAMPLES, SHADOW_EXAMPLES};
use values::{
    parse_compression, parse_duration, parse_level, parse_mode, parse_name, parse_rate,
    parse_signal, parse_size,
};

/// Checkpoint any Linux program, carry it to another machine, go on there.
#[derive(Debug, Parser)]
#[command(name = "wayfarer", version, after_long_help = EXIT_STATUS)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Arguments {
    /// Directory of jobs, instead of $XDG_STATE_HOME/wayfarer
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) dir: Option<std::path::PathBuf>,

    /// The folder of this copy of a job whose starter is on another machine
    #[arg(long, global = true, hide = true, value_name = "ID")]
    #[arg(conflicts_with = "dir", value_parser = parse_name)]
    pub(crate) away: Option<String>,

    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Run(Run),
    Submit(Submit),
    Checkpoint(Checkpoint),
    Restart(Restart),
    Ps(Ps),
    Kill(Kill),
    Status(Status),
    Log(Log),
    Tail(Tail),
    Suspend(Suspend),
    Migrate(Migrate),
    ImageRate(ImageRate),
    Continue(Continue),
    Vacate(Vacate),
    Hold(Hold),
    Release(Release),
    Remove(Remove),
    Inspect(Inspect),
    Io(Io),
    Verify(Verify),
    Flatten(Flatten),
    Doctor(Doctor),
    Platform(Platform),
    Machine(Machine),
    Kbdd(Kbdd),
    Export(Export),
    Classad(Classad),
    Config(Config),
    Policy(Policy),
    Startd(Startd),
    Shadow(Shadow),
    #[command(hide = true)]
    Watcher(Watcher),
    #[command(hide = true)]
    Starter(Starter),
    #[command(hide = true)]
    Home(Home),
    #[command(hide = true)]
    Reattach(Reattach),
    #[command(hide = true)]
    Ahead(Ahead),
    #[command(hide = true)]
    Keeper(Keeper),
    Cc(Compile),
    #[command(name = "c++")]
    Cxx(Compile),
    Fc(Compile),
    Completions(Completions),
    Man(Man),
}

/// Start a command as a job that can be checkpointed
#[derive(Clone, Debug, Args)]
#[command(after_long_help = RUN_EXAMPLES)]
pub(crate) struct Run {
    /// Name of the job [default: the command's name and a number]
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub(crate) name: Option<String>,

    /// Take over the name of an ended job, and remove its images
    #[arg(long, requires = "name")]
    pub(crate) replace: bool,

    /// Process ids: the job's own, this machine's, or its own if that is possible
    #[arg(long, value_enum, default_value_t = Pids::Auto, value_name = "WHOSE")]
    pub(crate) pids: Pids,

    /// Ask the job to be content with a lesser processor: x86-64-v2, x86-64-v3 or x86-64-v4
    /// (enforced where CPUID can be made to fault; else for glibc and the libraries that have a switch for it)
    #[arg(long, value_name = "LEVEL", value_parser = parse_level)]
    pub(crate) baseline: Option<ckpt_lib::platform::Level>,

    /// Files are those of this shadow's machine, not of this one
    #[arg(long, value_name = "ADDRESS", value_parser = Address::parse)]
    pub(crate) shadow: Option<Address>,

    /// Keep what the job changes in files, so that a restart undoes what came after its image
    #[arg(long, conflicts_with = "shadow")]
    pub(crate) journal: bool,

    /// The file that the shadow has written, for --shadow tls:HOST:PORT
    #[arg(long, value_name = "FILE", requires = "shadow")]
    pub(crate) identity_file: Option<std::path::PathBuf>,

    /// End when the process that began this one does
    #[arg(long, hide = true)]
    pub(crate) with_parent: bool,

    /// Write into this file why the job could not be begun
    #[arg(long, hide = true, value_name = "FILE")]
    pub(crate) why: Option<std::path::PathBuf>,

    #[command(flatten)]
    pub(crate) begun: Begun,

    /// The job sees no file of this machine: it has its files at the shadow, an empty /tmp and /dev/shm, and gains no rights
    #[arg(long, requires = "shadow", conflicts_with_all = ["local_files", "filesystem_domain"])]
    pub(crate) confine: bool,

    /// Raise the job's niceness by so much; its images keep it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=19))]
    pub(crate) nice: Option<u8>,

    /// The job's umask, in octal digits
    #[arg(long, hide = true, value_parser = parse_mode)]
    pub(crate) umask: Option<u32>,

    /// Where the job begins, at the shadow [default: a directory called as this one]
    #[arg(long, value_name = "DIR", requires = "shadow")]
    pub(crate) chdir: Option<std::path::PathBuf>,

    /// How long calls wait for a shadow that is gone, before this copy of the job ends
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "shadow")]
    #[arg(default_value = "40m")]
    pub(crate) lease: std::time::Duration,

    #[command(flatten)]
    pub(crate) methods: Methods,

    #[command(flatten)]
    pub(crate) life: Life,

    /// If the job of this name has begun already: go on from its newest image
    #[arg(long, requires = "name", conflicts_with = "replace")]
    #[arg(help_heading = "A life of its own")]
    pub(crate) resume: bool,

    /// Say nothing about what the job will miss
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

/// Serve jobs' files from this machine
#[derive(Debug, Args)]
#[command(after_long_help = SHADOW_EXAMPLES)]
pub(crate) struct Shadow {
    /// Where to listen: unix:PATH, tls:HOST:PORT (port 0: any), or stdio: one job, on standard input and output
    #[arg(long, value_name = "ADDRESS", value_parser = Address::parse)]
    pub(crate) listen: Address,

    /// Where to write what a job needs to come by TLS; a secret
    #[arg(long, value_name = "FILE")]
    pub(crate) identity_file: Option<std::path::PathBuf>,

    /// A directory that jobs may use, or only read [default: this one, and / for reading]
    #[arg(long, value_name = "PATH[:ro]")]
    pub(crate) allow: Vec<std::ffi::OsString>,

    /// Keep here what jobs change in files, so that it can be undone: one journal for each job
    #[arg(long, value_name = "DIR")]
    pub(crate) journal: Option<std::path::PathBuf>,

    /// Keep here images of jobs that are begun with `--images shadow`: a folder for each
    #[arg(long, value_name = "DIR")]
    pub(crate) images: Option<std::path::PathBuf>,

    /// The images of one job are no larger together
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "images")]
    pub(crate) images_max: Option<u64>,

    /// Each comes no faster than so many bytes in a second (50M) [default: as its job's starter says]
    #[arg(long, value_name = "SIZE", value_parser = parse_rate, requires = "images")]
    pub(crate) image_rate: Option<std::num::NonZeroU64>,

    /// Keep here what this shadow needs to go on with its jobs if it is killed and started again
    /// [default: a directory for each address in $XDG_STATE_HOME/wayfarer/shadows]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<std::path::PathBuf>,

    /// The file system that machines of this name share: jobs that were given the same read files where they run
    #[arg(long, value_name = "NAME")]
    pub(crate) filesystem_domain: Option<String>,

    /// Whose users are the same everywhere
    #[arg(long, value_name = "NAME", requires = "filesystem_domain")]
    pub(crate) uid_domain: Option<String>,

    /// Keep also the journals of jobs that were never checkpointed, or have ended well
    #[arg(long, requires = "journal")]
    pub(crate) keep_journals: bool,

    /// The journal of a job takes so much of the disk at most; a change that needs more fails with EDQUOT
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "journal")]
    pub(crate) journal_max: Option<u64>,

    /// What the journal survives
    #[arg(
        long,
        value_enum,
        default_value_t = Survives::Power,
        value_name = "WHAT",
        requires = "journal"
    )]
    pub(crate) journal_durability: Survives,
}

/// Write an image of a running job
#[derive(Debug, Args)]
#[command(after_long_help = CHECKPOINT_EXAMPLES)]
pub(crate) struct Checkpoint {
    /// Name of a job, or id of any process
    #[arg(value_name = "JOB|PID")]
    pub(crate) target: String,

    /// Where to write the image; the file must not exist [default: the job's directory; of a process that wayfarer did not begin, NAME-PID.img here]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<std::path::PathBuf>,

    /// What becomes of the job
    #[arg(long, value_enum, default_value_t = Then::GoOn, value_name = "WHAT")]
    pub(crate) then: Then,

    /// Compress memory
    #[arg(long, value_name = "zstd[:LEVEL]", value_parser = parse_compression)]
    pub(crate) compress: Option<i32>,

    /// Write the image no faster than so many bytes in a second (50M)
    #[arg(long, value_name = "SIZE", value_parser = parse_rate)]
    pub(crate) image_rate: Option<std::num::NonZeroU64>,

    /// Carry files of the program's system (executable, libraries) up to this size each
    #[arg(long, value_name = "SIZE", default_value_t = CARRY_MAX, value_parser = parse_size)]
    pub(crate) carry_max: u64,

    /// Carry every regular file that the job has open, data too
    #[arg(long)]
    pub(crate) carry_files: bool,

    /// Wait this long for connections to the outside to end (5s, 2m)
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) wait_for_sockets: Option<std::time::Duration>,

    /// Descriptor that leads out of the job and will be given by the restarter
    /// (like 0, 1 and 2; may be repeated)
    #[arg(long, value_name = "N")]
    pub(crate) inherit_fd: Vec<u32>,

    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Make none: give up the image that the job's starter is making; the job goes on
    #[arg(long, conflicts_with_all = ["output", "then", "compress", "image_rate", "carry_max", "carry_files", "wait_for_sockets", "inherit_fd", "json"])]
    pub(crate) abort: bool,

    /// Whoever is at our standard input and output is to have the image, not this machine, as the job's of this number
    #[arg(long, hide = true, value_name = "N", conflicts_with = "output")]
    pub(crate) carry: Option<u64>,

    /// With --carry: they have the whole image of this number, so that what is as it was then need not come again
    #[arg(long, hide = true, value_name = "N", requires = "carry")]
    pub(crate) since: Option<u64>,

    /// With --carry: a mark of the undo journal that they may go back to (may be repeated)
    #[arg(long, hide = true, value_name = "N", requires = "carry")]
    pub(crate) mark: Vec<u64>,

    /// The next image follows soon: it is watched what the job writes to until then
    #[arg(long, hide = true, requires = "carry")]
    pub(crate) watch: bool,

    /// With --carry: an image as large as --expected would leave so much of the disk here
    #[arg(long, hide = true, value_name = "SIZE", requires = "carry", value_parser = parse_size)]
    pub(crate) min_free: Option<u64>,

    /// With --min-free: how large it will be, as far as is known
    #[arg(long, hide = true, value_name = "SIZE", requires = "min_free", value_parser = parse_size)]
    pub(crate) expected: Option<u64>,
}

/// Bytes of a file of the program's system that an image carries, at most.
pub(crate) const CARRY_MAX: u64 = 256 << 20;

/// Go on from an image
#[derive(Clone, Debug, Args)]
#[command(after_long_help = RESTART_EXAMPLES)]
pub(crate) struct Restart {
    /// An image file, or the name of a job whose latest image is meant
    #[arg(value_name = "IMAGE|JOB")]
    pub(crate) image: std::path::PathBuf,

    /// Name of the job [default: the one it had; if that is not free, with a number]
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub(crate) name: Option<String>,

    /// The shadow that has the job's files
    #[arg(long, value_name = "ADDRESS", value_parser = Address::parse)]
    pub(crate) shadow: Option<Address>,

    /// The file that the shadow has written, for --shadow tls:HOST:PORT
    #[arg(long, value_name = "FILE", requires = "shadow")]
    pub(crate) identity_file: Option<std::path::PathBuf>,

    /// How long calls wait for a shadow that is gone, before this copy of the job ends
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "shadow")]
    #[arg(default_value = "40m")]
    pub(crate) lease: std::time::Duration,

    #[command(flatten)]
    pub(crate) sight: Sight,

    /// A file that the job was writing has changed since: refuse, keep it as it is,
    /// or cut it back (saving what is cut off beside it) [default: fail; with a starter: roll-back]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) files: Option<Files>,

    /// Process ids: the job's own, this machine's, or its own if that is possible
    #[arg(long, value_enum, default_value_t = Pids::Auto, value_name = "WHOSE")]
    pub(crate) pids: Pids,

    /// The job was begun with `run --journal` on this machine [default: if its record says so]
    #[arg(long, conflicts_with = "shadow")]
    pub(crate) journal: bool,

    /// Go on even if process ids cannot be what they were
    #[arg(long)]
    pub(crate) accept_new_ids: bool,

    /// Go on without what this machine does not grant (says what it is)
    #[arg(long)]
    pub(crate) degraded: bool,

    /// Descriptor of the caller that is given to the job (may be repeated)
    #[arg(long, value_name = "N")]
    pub(crate) inherit_fd: Vec<u32>,

    /// No thread of the job is less nice than we are, raised by so much [default: as it was]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=19))]
    pub(crate) nice: Option<u8>,

    /// The job sees no file of this machine, but those at the shadow [default: if it was begun so]
    #[arg(long, requires = "shadow", conflicts_with = "filesystem_domain")]
    pub(crate) confine: bool,

    /// End when the process that began this one does
    #[arg(long, hide = true)]
    pub(crate) with_parent: bool,

    /// Where it is told how the job fares: a copy whose starter is on another machine
    #[arg(long, hide = true, value_name = "N")]
    pub(crate) starter_fd: Option<i32>,

    /// How a child of ours is asked that has memory of the job in its place, and its id
    #[arg(long, hide = true, num_args = 2)]
    pub(crate) prepared: Vec<i32>,

    #[command(flatten)]
    pub(crate) life: Life,
}

/// List jobs
#[derive(Debug, Args)]
pub(crate) struct Ps {
    /// Only these jobs
    #[arg(value_name = "JOB")]
    pub(crate) jobs: Vec<String>,

    /// All that is known of each: a ClassAd in its old syntax, as `condor_q -l` prints them
    #[arg(long, short, conflicts_with_all = ["prune", "json"])]
    pub(crate) long: bool,

    /// Remove ended jobs and their images
    #[arg(long)]
    pub(crate) prune: bool,

    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Send a signal to a job
#[derive(Debug, Args)]
pub(crate) struct Kill {
    /// Name of a job, or id of any process
    #[arg(value_name = "JOB|PID")]
    pub(crate) target: String,

    /// The signal, by name or number
    #[arg(long, short, value_name = "SIGNAL", default_value = "TERM", value_parser = parse_signal)]
    pub(crate) signal: i32,
}

/// Show what a job does with its remote files: calls, bytes, round trips, time waited
#[derive(Debug, Args)]
pub(crate) struct Io {
    /// Name of a job, or id of any process of one
    #[arg(value_name = "JOB|PID")]
    pub(crate) target: String,

    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Say what this machine can and cannot do, and what that costs
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print this machine's platform string, or whether an image may restart here
#[derive(Debug, Args)]
pub(crate) struct Platform {
    /// Say whether this image may restart here, and if not, what is missing
    #[arg(long, value_name = "IMAGE")]
    pub(crate) check: Option<std::path::PathBuf>,

    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Convert an image for other tools
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// An ELF core file, for debuggers: `gdb PROGRAM FILE`
    #[arg(long, required = true)]
    pub(crate) core: bool,

    /// Which process of the image, by its id in the job [default: the first]
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,

    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// The image
    #[arg(value_name = "IMAGE")]
    pub(crate) image: std::path::PathBuf,

    /// Where to write; the file must not exist
    #[arg(value_name = "FILE")]
    pub(crate) output: std::path::PathBuf,
}

/// Print a completion script for a shell
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

/// Write the man pages into a directory
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The directory; made if absent
    #[arg(value_name = "DIR")]
    pub(crate) output: std::path::PathBuf,
}

/// Whose process ids a job has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pids {
    /// Its own if the machine allows namespaces, else the machine's
    Auto,
    /// The machine's
    Host,
    /// Its own, or fail
    Namespace,
}

/// What an undo journal survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Survives {
    /// A power loss: what was there is on the disk before it is changed
    Power,
    /// The end of any process, but not of the machine
    Kill,
}

/// What becomes of a job after its checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Then {
    /// It runs on
    GoOn,
    /// It is ended
    Kill,
}

/// What is done about a written file that has changed since the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Files {
    /// Refuse to restart
    Fail,
    /// Keep the file as it is
    Keep,
    /// Cut it back to its old length
    RollBack,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_command_of_run_is_taken_as_it_stands() {
        let command = |line: &[&str]| {
            let arguments = Arguments::try_parse_from(line).expect("parses");
            let Verb::Run(run) = arguments.verb else {
                panic!("not run")
            };
            run.command
        };
        let plain = [
            "wayfarer", "run", "--quiet", "--", "ls", "-l", "--", "--dir", "x",
        ];
        assert_eq!(command(&plain), ["ls", "-l", "--", "--dir", "x"]);
        let short = [
            "wayfarer", "run", "--pids", "host", "ls", "-l", "--name", "x",
        ];
        assert_eq!(command(&short), ["ls", "-l", "--name", "x"]);
    }
}
