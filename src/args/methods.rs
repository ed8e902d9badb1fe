//! Where a remote job's files are: Condor's submit commands `file_remaps`, `local_files`, `append_files`, `fetch_files`, `compress_files`,
//! `buffer_size`, `buffer_block_size` and `want_remote_io` (condor_submit(1), "standard universe"), and who it is.

use super::values::parse_size;
use clap::{ArgAction, Args, ValueEnum, builder::BoolishValueParser};
use std::ffi::OsString;

/// Which names of a job with a shadow lead elsewhere.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Where files are")]
pub(crate) struct Methods {
    /// Files and folders that have another name at the shadow, or (local:NEW) are of the machine where the job runs
    #[arg(long, value_name = "NAME=[local:|remote:]NEW;...")]
    pub(crate) remap: Vec<OsString>,

    /// Files and folders of the machine where the job runs
    #[arg(long, value_name = "NAME;...")]
    pub(crate) local_files: Vec<OsString>,

    /// Files that are only appended to, and never emptied
    #[arg(long, value_name = "NAME;...")]
    pub(crate) append_files: Vec<OsString>,

    /// Files that are fetched whole when they are opened for reading
    #[arg(long, value_name = "NAME;...")]
    pub(crate) fetch_files: Vec<OsString>,

    /// Files that are stored compressed (gzip) at the shadow: a program reads and writes what is in them
    #[arg(long, value_name = "NAME;...")]
    pub(crate) compress_files: Vec<OsString>,

    /// Bytes of a file that are kept, at most: read ahead of the program, or written and not yet sent; 0: none, at most 1M
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) buffer_size: Option<u64>,

    /// Bytes that are asked for at once, at least, of a file that is read from beginning to end [default: 32K]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) buffer_block_size: Option<u64>,

    #[command(flatten)]
    pub(crate) sight: Sight,

    /// Descriptors 3 to 31 are never those of remote files: what relies on low numbers is found so
    #[arg(long)]
    pub(crate) aggravate: bool,

    /// no: all files are of the machine where the job runs
    #[arg(long, value_name = "yes|no", default_value = "yes")]
    #[arg(action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub(crate) want_remote_io: bool,

    /// Whose user and group ids, and which host name, the job has
    #[arg(long, value_name = "MACHINE", default_value = "submit")]
    pub(crate) identity: Whose,
}

/// Which of the shadow's files the machine where a job runs sees, too: Condor's FILESYSTEM_DOMAIN and UID_DOMAIN.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Sight {
    /// The file system that machines of this name share: files are read directly where the shadow has been given the same
    #[arg(long, value_name = "NAME")]
    pub(crate) filesystem_domain: Option<String>,

    /// Whose users are the same everywhere; files are read directly only where the shadow has been given the same
    #[arg(long, value_name = "NAME", requires = "filesystem_domain")]
    pub(crate) uid_domain: Option<String>,

    /// What folders of the shadow's are called on the machine where the job runs, besides what the mount tables of both say
    #[arg(long, value_name = "THERE=HERE;...", requires = "filesystem_domain")]
    pub(crate) mounts: Vec<OsString>,
}

impl Sight {
    /// Machines that share files and users with the one where the job runs.
    pub(crate) fn domains(&self) -> shadow::Domains {
        shadow::Domains {
            file_system: self.filesystem_domain.clone().unwrap_or_default(),
            uid: self.uid_domain.clone().unwrap_or_default(),
        }
    }

    /// The same once more, as words.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let mut words = vec![];
        for (option, domain) in [
            ("--filesystem-domain", &self.filesystem_domain),
            ("--uid-domain", &self.uid_domain),
        ] {
            words.extend(
                domain
                    .iter()
                    .map(|domain| format!("{option}={domain}").into()),
            );
        }
        for mounts in &self.mounts {
            words.extend([OsString::from("--mounts"), mounts.clone()]);
        }
        words
    }
}

/// One of the two machines of a remote job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Whose {
    /// Those of the shadow's machine, where its files are
    Submit,
    /// Those of the machine where it runs
    Execute,
}

impl Methods {
    /// Each list with its option.
    pub(crate) fn lists(&self) -> [(&'static str, &[OsString]); 5] {
        [
            ("--remap", &self.remap),
            ("--local-files", &self.local_files),
            ("--append-files", &self.append_files),
            ("--fetch-files", &self.fetch_files),
            ("--compress-files", &self.compress_files),
        ]
    }

    /// The same once more, as words.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let mut words = vec![];
        for (option, list) in self.lists() {
            for value in list {
                words.extend([OsString::from(option), value.clone()]);
            }
        }
        for (option, size) in [
            ("--buffer-size", self.buffer_size),
            ("--buffer-block-size", self.buffer_block_size),
        ] {
            words.extend(size.map(|size| format!("{option}={size}").into()));
        }
        words.extend(self.sight.words());
        if self.aggravate {
            words.push("--aggravate".into());
        }
        if !self.want_remote_io {
            words.push("--want-remote-io=no".into());
        }
        if self.identity == Whose::Execute {
            words.push("--identity=execute".into());
        }
        words
    }
}
