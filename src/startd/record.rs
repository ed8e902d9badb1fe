//! `startd.json`: how slots and queue are, for who looks; and what a startd that is begun again has to know.

use super::ask::How;
use crate::jobs::{Place, ProcessName, RecordError, read_record, replace_record};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Version of [`Record`].
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// How all is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) schema_version: u32,
    /// Who has written it.
    pub(crate) startd: ProcessName,
    /// Where that runs.
    pub(crate) place: Place,
    /// Since when, in seconds since 1970.
    pub(crate) since: i64,
    /// The configuration.
    pub(crate) config: String,
    pub(crate) dialect: String,
    /// `Running`, `Draining`, `Drained`, `ShuttingDown`.
    pub(crate) state: String,
    /// How it is being drained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) drain: Option<DrainLine>,
    pub(crate) slots: Vec<SlotLine>,
    pub(crate) jobs: Vec<JobLine>,
}

/// A drain that goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DrainLine {
    pub(crate) how: How,
    pub(crate) resumes: bool,
    /// START meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) start: Option<String>,
}

/// A slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SlotLine {
    pub(crate) name: String,
    pub(crate) id: u32,
    pub(crate) sub_id: Option<u32>,
    /// `SlotType`.
    pub(crate) kind: String,
    pub(crate) state: String,
    pub(crate) activity: String,
    /// Since when, in seconds since 1970.
    pub(crate) entered_state: i64,
    pub(crate) entered_activity: i64,
    /// What runs there.
    pub(crate) job: Option<String>,
    pub(crate) cpus: i64,
    /// MiB.
    pub(crate) memory: i64,
    /// Its ad as it is published, in the old syntax, as of the last time somebody asked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) ad: String,
    /// The ad of its job, likewise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) job_ad: String,
}

/// A job of the queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct JobLine {
    pub(crate) name: String,
    /// `ClusterId`.
    pub(crate) number: i64,
    /// `Idle`, `Running`, `Suspended`, `Vacating`, `Killing`, `Leaving`, `Held`, `Damaged`.
    pub(crate) state: String,
    pub(crate) slot: Option<String>,
    /// When it was handed in.
    pub(crate) submitted: i64,
    pub(crate) starts: u64,
    pub(crate) images: u64,
    /// Why it does not run.
    pub(crate) why: Vec<String>,
    /// `HoldReasonCode`, of one that is held before it has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hold_code: Option<i32>,
    /// It is no more as soon as it has left.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_removed: bool,
    /// The configuration has let it in, as it is now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_admitted: bool,
}

impl Record {
    /// That of a directory of jobs, if there is one.
    pub(crate) fn load(path: &Path) -> Result<Option<Self>, RecordError> {
        match read_record(path.to_owned(), SCHEMA_VERSION) {
            Err(RecordError::File { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    pub(crate) fn save(&self, path: &Path) -> Result<(), RecordError> {
        replace_record(path.to_owned(), self, false)
    }
}
