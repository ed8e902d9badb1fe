//! Sessions of a shadow that was killed, taken over by the one that was started again.
//!
//! ```text
//! log ──> nobody of the job is there: forgotten
//!    `──> journal opened ── files found by their names ── what had begun: made or not? ── a new log ── locks ──> served
//! ```

use super::fault;
use super::intent::{Fate, Intent};
use super::log::{Doubtful, Log, forget};
use super::record::{Begun, Known};
use super::state::KeptSession;
use super::{Probe, State, StateError};
use crate::copies::{CopyOf, is_superseded};
use crate::saved::SavedFile;
use crate::session::Session;
use crate::undo::JobId;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use wire::{Opened, Others, Reply, Token};

/// A session again, or why it cannot go on.
pub(crate) struct Adopted {
    pub(crate) id: u64,
    pub(crate) session: Result<Session, String>,
}

/// All sessions that are kept and have not ended. `new` makes an empty one.
///
/// # Errors
/// [`StateError`]: then nothing was forgotten but what has ended.
pub(crate) fn adopt(
    state: &State,
    probe: Option<&Probe>,
    token: &Token,
    new: impl Fn(u64) -> Session,
) -> Result<Vec<Adopted>, StateError> {
    let mut adopted = vec![];
    let sessions = state.sessions()?;
    let newest = newest(&sessions);
    for KeptSession { id, dir, known } in sessions {
        let mut known = match known {
            Ok(known) => known,
            Err(why) => {
                let shown = dir.display();
                tracing::error!(why, "a session cannot go on: {shown} is no log of one");
                forget(&dir);
                let session = Err("what was kept of it is damaged".to_owned());
                adopted.push(Adopted { id, session });
                continue;
            }
        };
        let mut session = new(id);
        if let Some((job, incarnation, starter)) = known.copy {
            if newest.get(&job).is_some_and(|newest| *newest > incarnation) {
                tracing::info!(id, incarnation, "a newer copy of the job has begun");
                forget(&dir);
                let session = Err(is_superseded(incarnation));
                adopted.push(Adopted { id, session });
                continue;
            }
            let job = JobId(job);
            // Of a session that is new it cannot fail.
            let _ = session.copy.set(CopyOf {
                job,
                incarnation,
                starter,
            });
        }
        if known.has_journal && session.journals.is_none() {
            let path = state.dir().to_owned();
            return Err(StateError::NoJournal { path });
        }
        let presence = probe.filter(|_| known.is_here);
        let presence = presence.map(|probe| probe(token, id, known.began_ms));
        let presence = presence.filter(|presence| presence.is_all);
        if let Some(presence) = &presence {
            known.locks.keep_living(&presence.pids);
        }
        let is_over = presence.is_some_and(|presence| presence.is_over());
        let journal = open_journal(&session, &known);
        if is_over {
            tracing::info!(id, "a session has ended while there was no shadow");
            // With it its journal, if nobody needs that.
            drop(session);
            forget(&dir);
            continue;
        }
        fault::at("adopting");
        let taken = journal.and_then(|()| take_over(&mut session, known));
        let taken = match taken {
            Ok((known, doubtful)) => {
                let log = Log::begin(dir.clone(), known);
                // What there was is whole yet, and goes on when there is room.
                let path = dir.join("log.new");
                let log = log.map_err(|source| StateError::Unusable { path, source })?;
                log.doubt(doubtful);
                session.log = Some(log);
                Ok(())
            }
            Err(why) => Err(why),
        };
        fault::at("adopted");
        if let Err(why) = &taken {
            tracing::error!(id, why, "a session cannot go on");
            // An image may need it.
            session.changes.stay(true);
            forget(&dir);
        }
        let session = taken.map(|()| session);
        adopted.push(Adopted { id, session });
    }
    Ok(adopted)
}

/// The newest copies of all jobs that are kept.
fn newest(sessions: &[KeptSession]) -> HashMap<[u8; 16], u64> {
    let mut newest = HashMap::new();
    let copies = sessions
        .iter()
        .filter_map(|one| one.known.as_ref().ok()?.copy);
    for (job, incarnation, _) in copies {
        let known = newest.entry(job).or_insert(incarnation);
        *known = incarnation.max(*known);
    }
    newest
}

fn open_journal(session: &Session, known: &Known) -> Result<(), String> {
    let Some(journals) = session.journals.as_ref().filter(|_| known.has_journal) else {
        return Ok(());
    };
    let opened = session.open_journal(journals);
    opened.map_err(|error| chain(&error))?;
    if known.journal_stays {
        session.changes.stay(true);
    }
    Ok(())
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

/// The session is as it was; what is to be known of it from now on.
fn take_over(
    session: &mut Session,
    mut known: Known,
) -> Result<(Known, Vec<(u64, Doubtful)>), String> {
    session.go_on_from(&known);
    let fates: Vec<(Begun, Fate)> = known.begun.drain(..).map(told).collect();
    for (begun, fate) in &fates {
        if let (Fate::Made, Some(moves)) = (fate, begun.intent.moved()) {
            known.files.iter_mut().for_each(|file| rename(file, &moves));
        }
    }
    for file in &known.files {
        still_whole(file)?;
        match file.find(session, Others::Keep, None) {
            Ok(found) => {
                let open = file.open_again(session, found)?;
                open.offered.store(file.offered, Ordering::Relaxed);
                session.insert_as(file.handle, open);
            }
            // It may have been closed before it was removed: the close is not always told first.
            Err(why) => {
                if known.locks.has(file.handle) {
                    return Err(why);
                }
                tracing::warn!(why, "the job can only close this file");
                session.insert_gone(file.clone(), why);
            }
        }
    }
    session.begin_handles_at(known.next_handle);
    for answer in &known.answers {
        let reply = answer.reply().map_err(|error| error.to_string())?;
        session.lanes.remember(answer.lane, answer.number, reply);
    }
    let mut doubtful = vec![];
    for (begun, fate) in fates {
        let request = begun.request;
        let made = match fate {
            Fate::Made => Some(Reply::Done),
            Fate::NotMade => shifted(session, &begun.intent).then_some(Reply::Done),
            Fate::MadeFile(name, flags, id) => Some(open_made(session, name, flags, id)?),
            Fate::Appended { handle, before } => {
                if let Ok(file) = session.get(handle) {
                    let now = rustix::fs::fstat(&file.fd).map_or(0, |stat| stat.st_size);
                    let one = Doubtful {
                        number: request.number,
                        handle,
                        before,
                        now: u64::try_from(now).unwrap_or(0),
                    };
                    doubtful.push((begun, one));
                }
                None
            }
        };
        if let Some(reply) = made {
            session.lanes.remember(request.lane, request.number, reply);
        }
    }
    fault::at("settled");
    let locks = known.locks;
    let mut known = session.known().ok_or("what is open cannot be looked at")?;
    known.locks = locks.clone();
    let doubtful = doubtful.into_iter().map(|(begun, one)| {
        let lane = begun.request.lane;
        known.begun.push(begun);
        (lane, one)
    });
    let doubtful = doubtful.collect();
    session.await_locks(locks);
    Ok((known, doubtful))
}

fn told(begun: Begun) -> (Begun, Fate) {
    let fate = begun.intent.fate(begun.made).unwrap_or_else(|errno| {
        let what = &begun.intent;
        tracing::warn!(%errno, ?what, "it cannot be told whether this was done: it is done when it is asked for again");
        Fate::NotMade
    });
    (begun, fate)
}

/// Where bytes were to be moved.
fn shifted(session: &Session, intent: &Intent) -> bool {
    let Intent::Shift { handle, after, .. } = intent else {
        return false;
    };
    let stat = session.get(*handle).map(|file| rustix::fs::fstat(&file.fd));
    matches!(stat, Ok(Ok(stat)) if u64::try_from(stat.st_size) == Ok(*after))
}

/// A file that was made, and whose open has not been answered.
fn open_made(
    session: &Session,
    name: Vec<u8>,
    flags: u32,
    (device, inode): super::intent::Id,
) -> Result<Reply<'static>, String> {
    let file = SavedFile {
        name,
        flags,
        device,
        inode,
        // Of a regular one nothing else is looked at.
        mode: 0o100_000,
        ..SavedFile::default()
    };
    still_whole(&file)?;
    let found = file.find(session, Others::Keep, None)?;
    let open = file.open_again(session, found)?;
    let attributes = session.look_at(&open).map_err(|errno| errno.to_string())?;
    let handle = session.insert(open).map_err(|errno| errno.to_string())?;
    Ok(Reply::Opened(Opened { handle, attributes }))
}

/// What was written to a compressed file and not stored went with the shadow that had it.
fn still_whole(file: &SavedFile) -> Result<(), String> {
    if file.is_compressed() && file.writes() {
        let name = String::from_utf8_lossy(&file.name);
        return Err(format!(
            "the job was writing {name}, which is compressed, and what was not stored yet is lost"
        ));
    }
    Ok(())
}

/// What was renamed, or lies beneath it, has another name.
fn rename(file: &mut SavedFile, moves: &[(Vec<u8>, Vec<u8>); 2]) {
    for (from, to) in moves {
        let rest = file.name.strip_prefix(&from[..]);
        if let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with(b"/")) {
            file.name = [to, rest].concat();
            return;
        }
    }
}
