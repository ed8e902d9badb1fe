//! The bytes of a session's log: what is known of it at some moment, and what has happened since.
//!
//! | bytes | what |
//! |---|---|
//! | 0–7 | `WAYFSLOG` |
//! | 8–11 | version |
//! | 12– | records: length of the body (u32), the begin of its BLAKE3 (8 bytes), the body (bincode) |
//!
//! Only the end of a process is survived, so only the last record may be torn. The first is always whole: a log comes to be by a rename.

use super::intent::Intent;
use crate::locks::SavedLocks;
use crate::saved::{SavedAnswer, SavedFile};
use bincode::{Decode, Encode};

pub(super) const MAGIC: [u8; 8] = *b"WAYFSLOG";
pub(super) const VERSION: u32 = 5;
pub(super) const BEGINNING: usize = 12;
const FRAME: usize = 12;
/// Of one record.
const MOST_BODY: usize = 64 << 20;

const CODEC: bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Varint,
    bincode::config::Limit<MOST_BODY>,
> = bincode::config::standard().with_limit::<MOST_BODY>();

/// A request that has begun to change something, on a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct RequestId {
    pub(crate) lane: u64,
    pub(crate) number: u64,
}

/// All that is known of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Known {
    /// Handles are not used again.
    pub(crate) next_handle: u64,
    /// The job, which copy of it this is, and who has begun that.
    pub(crate) copy: Option<([u8; 16], u64, u64)>,
    /// It has an undo journal.
    pub(crate) has_journal: bool,
    /// It is needed when the session has ended.
    pub(crate) journal_stays: bool,
    /// How long the job waits for a shadow that is gone, in milliseconds; 0: nobody has said.
    pub(crate) lease_ms: u64,
    /// When it began, in milliseconds since the machine did.
    pub(crate) began_ms: u64,
    /// The job's processes are processes of this machine that can be seen.
    pub(crate) is_here: bool,
    pub(crate) files: Vec<SavedFile>,
    pub(crate) locks: SavedLocks,
    pub(crate) answers: Vec<SavedAnswer>,
    /// What was being done.
    pub(crate) begun: Vec<Begun>,
}

/// A change that was announced, and of which it is not known whether it was made.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Begun {
    pub(crate) request: RequestId,
    pub(crate) intent: Intent,
    /// It was made, though its answer is not known.
    pub(crate) made: bool,
}

/// What happens to a session.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum Record {
    /// Everything.
    Whole(Known),
    /// Something is open; the answer is kept if it has a lane.
    Opened(SavedFile, Option<SavedAnswer>),
    Closed(u64),
    /// A handle has other flags (`F_GETFL`).
    Flags(u64, u32),
    /// A handle's file has another name.
    Named(u64, Vec<u8>),
    /// A change is about to be made.
    Begun(RequestId, Intent),
    /// It was made; the answer comes with another record.
    Made(RequestId),
    /// It was not made, or is of no interest any more.
    GaveUp(RequestId),
    /// It was made, and this is the answer.
    Done(SavedAnswer),
    Locks(SavedLocks),
    /// The job, which copy of it this is, and who has begun that.
    Copy([u8; 16], u64, u64),
    /// The job's journal is begun, or had again.
    Journal,
    /// Whether the journal stays when the session has ended.
    JournalStays(bool),
    /// Milliseconds, and whether its processes can be seen.
    Lease(u64, bool),
}

impl Record {
    /// With its frame.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; FRAME];
        // A sink that cannot fail.
        let written = bincode::encode_into_std_write(self, &mut bytes, CODEC);
        debug_assert!(written.is_ok(), "{written:?}");
        let len = u32::try_from(bytes.len() - FRAME).unwrap_or(u32::MAX);
        let check = check(&bytes[FRAME..]);
        bytes[..4].copy_from_slice(&len.to_le_bytes());
        bytes[4..FRAME].copy_from_slice(&check);
        bytes
    }

    /// The first of these bytes, and how many it takes; none if it is torn.
    fn take(bytes: &[u8]) -> Option<(Self, usize)> {
        let len = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
        let body = bytes.get(FRAME..FRAME.checked_add(len)?)?;
        if check(body) != bytes[4..FRAME] {
            return None;
        }
        let (record, taken) = bincode::decode_from_slice(body, CODEC).ok()?;
        (taken == len).then_some((record, FRAME + len))
    }
}

fn check(body: &[u8]) -> [u8; 8] {
    let hash = blake3::hash(body);
    let mut begin = [0; 8];
    begin.copy_from_slice(&hash.as_bytes()[..8]);
    begin
}

/// What a log says; or why it is none.
pub(super) fn read(bytes: &[u8]) -> Result<Known, String> {
    if bytes.get(..8) != Some(&MAGIC) {
        return Err("it does not begin with WAYFSLOG".to_owned());
    }
    let version = bytes.get(8..BEGINNING).and_then(<[u8]>::first_chunk);
    let version = version.map(|four| u32::from_le_bytes(*four));
    if version != Some(VERSION) {
        return Err(format!("version {version:?}, expected {VERSION}"));
    }
    let mut rest = &bytes[BEGINNING..];
    let mut known = None;
    while let Some((record, taken)) = Record::take(rest) {
        rest = &rest[taken..];
        match (record, &mut known) {
            (Record::Whole(whole), known) => *known = Some(whole),
            (record, Some(known)) => known.heed(record),
            (_, None) => break,
        }
    }
    known.ok_or_else(|| "its first record is not whole".to_owned())
}

/// Any bytes, as they are and as bodies of records: a length that is there, and two bytes for that of each body.
pub(super) fn fuzzed(bytes: &[u8]) {
    let _ = read(bytes);
    let mut log = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
    // Nothing is heeded before it.
    log.extend(Record::Whole(Known::default()).to_bytes());
    let mut rest = bytes;
    while let [low, high, behind @ ..] = rest {
        let len = usize::from(u16::from_le_bytes([*low, *high])).min(behind.len());
        let (body, more) = behind.split_at(len);
        log.extend((body.len() as u32).to_le_bytes());
        log.extend(check(body));
        log.extend(body);
        rest = more;
    }
    let known = read(&log).unwrap_or_default();
    // What was read is written as it was.
    let again = [&log[..BEGINNING], &Record::Whole(known.clone()).to_bytes()].concat();
    assert_eq!(read(&again), Ok(known));
}

impl Known {
    /// Something has happened.
    fn heed(&mut self, record: Record) {
        match record {
            Record::Whole(known) => *self = known,
            Record::Opened(file, answer) => {
                self.next_handle = self.next_handle.max(file.handle.saturating_add(1));
                self.files.retain(|one| one.handle != file.handle);
                self.files.push(file);
                if let Some(answer) = answer {
                    self.answered(answer);
                }
            }
            Record::Closed(handle) => self.files.retain(|one| one.handle != handle),
            Record::Flags(handle, flags) => {
                if let Some(file) = self.file(handle) {
                    file.flags = flags;
                }
            }
            Record::Named(handle, name) => {
                if let Some(file) = self.file(handle) {
                    file.name = name;
                }
            }
            Record::Begun(request, intent) => {
                self.forget_begun(request.lane);
                self.begun.push(Begun {
                    request,
                    intent,
                    made: false,
                });
            }
            Record::Made(request) => {
                let mut begun = self.begun.iter_mut();
                if let Some(one) = begun.find(|one| one.request == request) {
                    one.made = true;
                }
            }
            Record::GaveUp(request) => self.forget_begun(request.lane),
            Record::Done(answer) => self.answered(answer),
            Record::Locks(locks) => self.locks = locks,
            Record::Copy(job, incarnation, starter) => {
                self.copy = Some((job, incarnation, starter))
            }
            Record::Journal => self.has_journal = true,
            Record::JournalStays(stays) => self.journal_stays = stays,
            Record::Lease(ms, is_here) => (self.lease_ms, self.is_here) = (ms, is_here),
        }
    }

    fn file(&mut self, handle: u64) -> Option<&mut SavedFile> {
        self.files.iter_mut().find(|one| one.handle == handle)
    }

    fn answered(&mut self, answer: SavedAnswer) {
        self.forget_begun(answer.lane);
        self.answers.retain(|one| one.lane != answer.lane);
        self.answers.push(answer);
    }

    fn forget_begun(&mut self, lane: u64) {
        self.begun.retain(|one| one.request.lane != lane);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::Reply;

    fn file(handle: u64, name: &[u8]) -> SavedFile {
        SavedFile {
            handle,
            name: name.to_vec(),
            ..SavedFile::default()
        }
    }

    fn log(records: &[Record]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        for record in records {
            bytes.extend(record.to_bytes());
        }
        bytes
    }

    fn story() -> Vec<Record> {
        let request = RequestId { lane: 5, number: 9 };
        let intent = Intent::Append {
            handle: 1,
            before: 77,
        };
        let opened = SavedAnswer::new(5, 8, &Reply::Number(1)).expect("fits");
        let done = SavedAnswer::new(5, 9, &Reply::Done).expect("fits");
        vec![
            Record::Whole(Known::default()),
            Record::Opened(file(1, b"/a"), Some(opened)),
            Record::Opened(file(2, b"/b"), None),
            Record::Named(1, b"/c".to_vec()),
            Record::Flags(2, 0o2000),
            Record::Begun(request, intent),
            Record::Done(done),
            Record::Closed(2),
            Record::Copy([4; 16], 3, 8),
            Record::Journal,
            Record::JournalStays(false),
            Record::JournalStays(true),
            Record::Lease(1000, true),
        ]
    }

    #[test]
    fn a_log_is_what_has_happened() {
        let known = read(&log(&story())).expect("reads");
        assert_eq!((known.next_handle, known.lease_ms), (3, 1000));
        assert_eq!(known.files, [file(1, b"/c")]);
        assert_eq!(known.answers.len(), 1);
        assert_eq!(known.answers[0].number, 9);
        assert_eq!((known.begun.len(), known.copy), (0, Some(([4; 16], 3, 8))));
        assert!(known.has_journal);
        let begun = read(&log(&story()[..6])).expect("reads").begun;
        assert_eq!(begun.len(), 1);
    }

    #[test]
    fn a_torn_end_is_left_out() {
        let whole = log(&story());
        let short = log(&story()[..10]);
        for cut in short.len()..whole.len() {
            let known = read(&whole[..cut]).expect("reads");
            assert_eq!(known.lease_ms, 0, "{cut}");
        }
        for cut in 0..log(&story()[..1]).len() {
            assert!(read(&whole[..cut]).is_err(), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_log_or_none(bytes: Vec<u8>, flip in 0usize..300) {
            let _ = read(&bytes);
            let mut changed = log(&story());
            let at = flip % changed.len();
            changed[at] ^= 0x11;
            let _ = read(&changed);
        }
    }
}
