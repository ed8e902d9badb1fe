//! Where a remote job's files are: Condor's submit commands `file_remaps`, `local_files`, `append_files`, `fetch_files` and
//! `want_remote_io` (condor_submit(1), "standard universe"), and who it is.

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

    /// no: all files are of the machine where the job runs
    #[arg(long, value_name = "yes|no", default_value = "yes")]
    #[arg(action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub(crate) want_remote_io: bool,

    /// Whose user and group ids, and which host name, the job has
    #[arg(long, value_name = "MACHINE", default_value = "submit")]
    pub(crate) identity: Whose,
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
    pub(crate) fn lists(&self) -> [(&'static str, &[OsString]); 4] {
        [
            ("--remap", &self.remap),
            ("--local-files", &self.local_files),
            ("--append-files", &self.append_files),
            ("--fetch-files", &self.fetch_files),
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
        if !self.want_remote_io {
            words.push("--want-remote-io=no".into());
        }
        if self.identity == Whose::Execute {
            words.push("--identity=execute".into());
        }
        words
    }
}
