//! The bytes of a saved session: a fixed beginning, then a bincode body.
//!
//! | bytes | what |
//! |---|---|
//! | 0–7 | `WAYFSESS` |
//! | 8–11 | version |
//! | 12–15 | bytes of the body |
//! | 16– | the body |

use super::MoveError;
use crate::copies::CopyOf;
use crate::locks::SavedLocks;
use crate::undo::JobId;
use bincode::{Decode, Encode};
use wire::{FIRST_COPY, Reply};

const MAGIC: [u8; 8] = *b"WAYFSESS";
const VERSION: u32 = 4;
/// Copies were not counted yet, and only those with a journal were known again.
const WITHOUT_COPIES: u32 = 3;
const BEGINNING: usize = 16;
const MOST_BODY: usize = 1 << 20;

const CODEC: bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Varint,
    bincode::config::Limit<MOST_BODY>,
> = bincode::config::standard().with_limit::<MOST_BODY>();

/// See the module above.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub(crate) struct SavedSession {
    /// Handles are not used again.
    pub(crate) next_handle: u64,
    /// The epoch of the job's journal that begins here.
    pub(crate) epoch: Option<u64>,
    pub(crate) files: Vec<SavedFile>,
    pub(crate) locks: SavedLocks,
    pub(crate) answers: Vec<SavedAnswer>,
    /// The job, and which copy of it was stopped.
    pub(crate) copy: Option<([u8; 16], u64)>,
}

/// The fields of a state of version 3: the second is the job and the epoch.
type WithoutCopies = (
    u64,
    Option<([u8; 16], u64)>,
    Vec<SavedFile>,
    SavedLocks,
    Vec<SavedAnswer>,
);

/// An open file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub(crate) struct SavedFile {
    pub(crate) handle: u64,
    /// Absolute, without links.
    pub(crate) name: Vec<u8>,
    /// As `F_GETFL` gives them.
    pub(crate) flags: u32,
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// `st_mode`.
    pub(crate) mode: u32,
    pub(crate) size: u64,
    /// Seconds and nanoseconds.
    pub(crate) modified: (i64, u32),
    /// Its bytes, if it has no name any more.
    pub(crate) nameless: Option<Vec<u8>>,
    /// Perhaps nobody of the job has it open: it was opened in advance.
    pub(crate) offered: bool,
}

/// What was answered last on a lane.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct SavedAnswer {
    pub(crate) lane: u64,
    pub(crate) number: u64,
    pub(crate) kind: u16,
    /// The reply's body.
    pub(crate) body: Vec<u8>,
}

impl SavedAnswer {
    pub(crate) fn new(lane: u64, number: u64, reply: &Reply<'_>) -> Option<Self> {
        let mut room = [0; 1024];
        let len = reply.encode(&mut room).ok()?;
        Some(SavedAnswer {
            lane,
            number,
            kind: reply.kind(),
            body: room[..len].to_vec(),
        })
    }

    /// What is answered again.
    pub(crate) fn reply(&self) -> Result<Reply<'static>, MoveError> {
        match Reply::decode(self.kind, &self.body) {
            Ok(Reply::Done) => Ok(Reply::Done),
            Ok(Reply::Failed(errno)) => Ok(Reply::Failed(errno)),
            Ok(Reply::Opened(opened)) => Ok(Reply::Opened(opened)),
            Ok(Reply::Written(written)) => Ok(Reply::Written(written)),
            Ok(Reply::Attributes(attributes)) => Ok(Reply::Attributes(attributes)),
            Ok(Reply::Number(number)) => Ok(Reply::Number(number)),
            Ok(other) => Err(damaged(format!("an answer {other:?}"))),
            Err(error) => Err(damaged(format!("an answer: {error}"))),
        }
    }
}

impl SavedSession {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        // Only sinks that fail can fail, and what is above the limit is refused by whoever asked.
        let body = bincode::encode_to_vec(self, bincode::config::standard()).unwrap_or_default();
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    fn of_first_copy((next_handle, journal, files, locks, answers): WithoutCopies) -> Self {
        SavedSession {
            next_handle,
            epoch: journal.map(|(_, epoch)| epoch),
            files,
            locks,
            answers,
            copy: journal.map(|(job, _)| (job, FIRST_COPY)),
        }
    }

    /// Which copy was stopped.
    pub(crate) fn copy(&self) -> Option<CopyOf> {
        self.copy.map(|(job, incarnation)| CopyOf {
            job: JobId(job),
            incarnation,
            starter: 0,
        })
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, MoveError> {
        let word = |at: usize| {
            let word = bytes.get(at..at + 4)?.first_chunk::<4>()?;
            Some(u32::from_le_bytes(*word))
        };
        let (Some(magic), Some(version), Some(len)) = (bytes.get(..8), word(8), word(12)) else {
            let found = bytes.len();
            return Err(damaged(format!(
                "{found} bytes, expected {BEGINNING} at least"
            )));
        };
        if magic != MAGIC {
            return Err(damaged("it does not begin with WAYFSESS".to_owned()));
        }
        if ![WITHOUT_COPIES, VERSION].contains(&version) {
            return Err(damaged(format!("version {version}, expected {VERSION}")));
        }
        let body = &bytes[BEGINNING..];
        if body.len() as u64 != u64::from(len) {
            let found = body.len();
            return Err(damaged(format!("a body of {found} bytes, expected {len}")));
        }
        let decoded = match version {
            WITHOUT_COPIES => bincode::decode_from_slice(body, CODEC)
                .map(|(fields, taken)| (Self::of_first_copy(fields), taken)),
            _ => bincode::decode_from_slice(body, CODEC),
        };
        match decoded {
            Ok((saved, taken)) if taken == body.len() => Ok(saved),
            Ok((_, taken)) => {
                let more = body.len() - taken;
                Err(damaged(format!("{more} bytes behind it")))
            }
            Err(error) => Err(damaged(error.to_string())),
        }
    }
}

/// Any bytes, as they are and as the body of a state.
pub fn fuzzed(bytes: &[u8]) {
    let _ = SavedSession::from_bytes(bytes);
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let whole = [
        &MAGIC[..],
        &VERSION.to_le_bytes(),
        &len.to_le_bytes(),
        bytes,
    ]
    .concat();
    let Ok(saved) = SavedSession::from_bytes(&whole) else {
        return;
    };
    for answer in &saved.answers {
        let _ = answer.reply();
    }
    let again = SavedSession::from_bytes(&saved.to_bytes());
    assert_eq!(
        again.ok(),
        Some(saved),
        "what was read is written as it was"
    );
}

fn damaged(why: String) -> MoveError {
    MoveError::Damaged { why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::{Attributes, Opened, Written};

    fn sample(name: Vec<u8>, handle: u64) -> SavedSession {
        let done = SavedAnswer::new(7, handle, &Reply::Done).expect("fits");
        SavedSession {
            next_handle: handle,
            epoch: Some(handle),
            copy: Some(([9; 16], handle)),
            files: vec![SavedFile {
                handle,
                name,
                modified: (-1, 999_999_999),
                ..SavedFile::default()
            }],
            locks: SavedLocks::default(),
            answers: vec![done],
        }
    }

    /// Whatever a request that is made once only is answered.
    #[test]
    fn every_answer_is_given_again() {
        let attributes = Attributes::default();
        let written = Written {
            len: 1,
            offset: 2,
            size: 3,
        };
        let replies = [
            Reply::Done,
            Reply::Failed(2),
            Reply::Opened(Opened {
                handle: 1,
                attributes,
            }),
            Reply::Written(written),
            Reply::Attributes(attributes),
            Reply::Number(7),
        ];
        for reply in replies {
            let saved = SavedAnswer::new(1, 2, &reply).expect("fits");
            assert_eq!(saved.reply().expect("is one"), reply);
        }
    }

    #[test]
    fn a_state_from_before_copies_were_counted_is_that_of_a_first_copy() {
        let mut saved = sample(b"/name".to_vec(), 5);
        let fields: WithoutCopies = (
            saved.next_handle,
            Some(([9; 16], 5)),
            saved.files.clone(),
            saved.locks.clone(),
            saved.answers.clone(),
        );
        let body = bincode::encode_to_vec(fields, CODEC).expect("encodes");
        let len = u32::try_from(body.len()).expect("is short");
        let version = WITHOUT_COPIES.to_le_bytes();
        let bytes = [&MAGIC[..], &version, &len.to_le_bytes(), &body].concat();
        saved.copy = Some(([9; 16], FIRST_COPY));
        assert_eq!(SavedSession::from_bytes(&bytes).expect("reads"), saved);
    }

    proptest! {
        #[test]
        fn states_read_back_and_cut_ones_do_not(name: Vec<u8>, handle: u64) {
            let saved = sample(name, handle);
            let bytes = saved.to_bytes();
            prop_assert_eq!(&SavedSession::from_bytes(&bytes).expect("reads"), &saved);
            for cut in 0..bytes.len() {
                prop_assert!(SavedSession::from_bytes(&bytes[..cut]).is_err());
            }
        }

        #[test]
        fn any_bytes_are_a_state_or_an_error(bytes: Vec<u8>, flip in 0usize..60) {
            let _ = SavedSession::from_bytes(&bytes);
            let mut changed = sample(bytes, 3).to_bytes();
            let at = flip % changed.len();
            changed[at] ^= 0x41;
            let _ = SavedSession::from_bytes(&changed);
        }
    }
}
