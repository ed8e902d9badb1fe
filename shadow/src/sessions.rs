//! All sessions of a shadow: who may join one, when one ends, and which survive the shadow's own end.
//!
//! ```text
//! 0 --Hello--> begun --its last stream ends--> over: its journal and its log go
//! log of a shadow that was killed --adopted--> alone --Hello--> joined --its last stream ends--> alone --nobody is there--> over
//! ```

use crate::copies::Copies;
use crate::foresight::Foresight;
use crate::images::Images;
use crate::kept::{self, Probe, State, StateError, fault_point};
use crate::lanes::Lane;
use crate::living::Living;
use crate::names::{AllowError, Allowed};
use crate::serve::Domains;
use crate::session::{Limits, Session};
use crate::undo::Journals;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wire::{Role, Token};

/// So often sessions without streams are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Why a stream is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotServed {
    pub(crate) reason: Cow<'static, str>,
    /// A little later it may be.
    pub(crate) passing: bool,
}

impl NotServed {
    fn for_good(reason: &'static str) -> Self {
        NotServed {
            reason: reason.into(),
            passing: false,
        }
    }

    fn now(reason: &'static str) -> Self {
        NotServed {
            reason: reason.into(),
            passing: true,
        }
    }
}

/// A stream's part in its session; the session ends with the last.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) session: Arc<Session>,
    /// Which of the session's streams it is, if that matters.
    pub(crate) lane: Option<Arc<Lane>>,
    /// Who speaks.
    pub(crate) role: Role,
    /// Version of the protocol that is spoken.
    pub(crate) version: u16,
    pub(crate) sessions: Arc<Sessions>,
}

impl Membership {
    pub(crate) fn of(self, role: Role, version: u16) -> Self {
        let mut membership = self;
        (membership.role, membership.version) = (role, version);
        membership
    }

    /// Whether there is somebody who makes a broken line anew.
    pub(crate) fn may_come_again(&self) -> bool {
        self.sessions.lines_come_again
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let all = &self.sessions.all;
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        let streams = &self.session.streams;
        let mut streams = streams.lock().unwrap_or_else(PoisonError::into_inner);
        *streams -= 1;
        if *streams > 0 {
            return;
        }
        drop(streams);
        if self.session.goes_on_alone() {
            // Processes that have had nothing to ask since have no stream.
            let alone = &self.session.alone;
            *alone.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            self.sessions.alone.notify_all();
        } else {
            Sessions::end(&mut all, self.session.id());
            self.sessions.ended.notify_all();
        }
    }
}

/// All sessions of one shadow.
pub struct Sessions {
    allowed: Arc<Allowed>,
    domains: Arc<Domains>,
    images: Option<Arc<dyn Images>>,
    foresight: Arc<Foresight>,
    token: Token,
    limits: Limits,
    journals: Option<Journals>,
    next: AtomicU64,
    all: Mutex<HashMap<u64, Arc<Session>>>,
    /// What survives this process, and who tells whether a job is there.
    state: Option<State>,
    probe: Option<Box<Probe>>,
    /// Sessions of a shadow before us that cannot go on, and why.
    lost: HashMap<u64, String>,
    /// A line that breaks is made anew by its starter.
    lines_come_again: bool,
    /// Rings when a session is without a stream.
    alone: Condvar,
    /// Rings when one has ended.
    pub(crate) ended: Condvar,
    pub(crate) copies: Copies,
    living: Arc<Living>,
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

impl Sessions {
    /// For whoever has the token.
    #[must_use]
    pub fn new(allowed: Allowed, token: Token, limits: Limits) -> Self {
        Sessions {
            allowed: Arc::new(allowed),
            domains: Arc::default(),
            images: None,
            foresight: Arc::default(),
            token,
            limits,
            journals: None,
            next: AtomicU64::new(1),
            all: Mutex::default(),
            state: None,
            probe: None,
            lost: HashMap::new(),
            lines_come_again: false,
            alone: Condvar::new(),
            ended: Condvar::new(),
            copies: Copies::default(),
            living: Arc::default(),
        }
    }

    /// Waits until there has been a session, which is to begin within this time, and there is none any more, nor anything to be done for one.
    pub fn wait_for_end(&self, begins_within: Duration) {
        self.living.wait_for_end(begins_within);
    }

    /// Has sessions survive the end of a line that breaks, until its starter makes another or the job's lease is over.
    #[must_use]
    pub fn of_lines(mut self) -> Self {
        self.lines_come_again = true;
        self
    }

    /// Tells jobs in which domains it is; for sessions that begin after it.
    #[must_use]
    pub fn in_domains(mut self, domains: Domains) -> Self {
        self.domains = Arc::new(domains);
        self
    }

    /// Images of jobs are kept by this; for sessions that begin after it.
    #[must_use]
    pub fn with_images(mut self, images: Arc<dyn Images>) -> Self {
        self.images = Some(images);
        self
    }

    /// Has what programs ask about as they begin outlive this shadow; for sessions that begin after it.
    #[must_use]
    pub fn with_foresight(mut self, foresight: Foresight) -> Self {
        self.foresight = Arc::new(foresight);
        self
    }

    /// Has sessions survive the end of this process, and goes on with those of the one before. What `probe` tells is believed of processes
    /// that can be seen from here.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn kept(mut self, state: State, probe: Option<Box<Probe>>) -> Result<Self, StateError> {
        if let Some(allowed) = Arc::get_mut(&mut self.allowed) {
            let hidden = allowed.hide(state.dir());
            hidden.map_err(|error| StateError::Unusable {
                path: state.dir().to_owned(),
                source: std::io::Error::other(error),
            })?;
        }
        let adopted = kept::adopt(&state, probe.as_deref(), &self.token, |id| self.empty(id))?;
        let mut all = HashMap::new();
        for one in adopted {
            match one.session {
                Ok(session) => {
                    tracing::info!(session = one.id, "a session goes on");
                    all.insert(one.id, Arc::new(session));
                }
                Err(why) => {
                    self.lost.insert(one.id, why);
                }
            }
        }
        self.all = Mutex::new(all);
        self.state = Some(state);
        self.probe = probe;
        Ok(self)
    }

    fn empty(&self, id: u64) -> Session {
        let mut session = Session::new(id, self.allowed.clone(), self.limits);
        session.journals.clone_from(&self.journals);
        session.domains = self.domains.clone();
        session.images.clone_from(&self.images);
        session.foresight = self.foresight.clone();
        session.alive = Some(self.living.begin());
        session
    }

    /// A new session, which is kept if that is to be.
    fn begin(&self) -> Session {
        if let Some(state) = &self.state {
            match kept::begin(state) {
                Ok((id, log)) => {
                    let mut session = self.empty(id);
                    session.log = Some(log);
                    fault_point("session");
                    return session;
                }
                Err(error) => {
                    let shown = state.dir().display();
                    tracing::error!(%error, "{shown} cannot be written: this session will end with the shadow");
                }
            }
        }
        self.empty(self.next.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn all(&self) -> MutexGuard<'_, HashMap<u64, Arc<Session>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session is over.
    pub(crate) fn end(all: &mut HashMap<u64, Arc<Session>>, id: u64) {
        if let Some(session) = all.remove(&id)
            && let Some(log) = &session.log
        {
            log.is_over();
        }
    }

    /// Forgets sessions that have had no stream for too long, as long as there are sessions to be served.
    pub fn watch(self: &Arc<Self>) {
        if self.state.is_none() && !self.lines_come_again {
            return;
        }
        let sessions = Arc::downgrade(self);
        let spawned = std::thread::Builder::new().spawn(move || {
            while let Some(sessions) = sessions.upgrade() {
                sessions.forget_forsaken();
                drop(sessions);
                std::thread::sleep(LOOK_EVERY);
            }
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "sessions that nobody comes back to stay");
        }
    }

    fn forget_forsaken(&self) {
        let all = self
            .alone
            .wait_while(self.all(), |all| !all.values().any(|one| one.is_alone()));
        let all = all.unwrap_or_else(PoisonError::into_inner);
        let alone: Vec<_> = all.values().filter(|one| one.is_alone()).cloned().collect();
        drop(all);
        for session in alone {
            if !session.is_forsaken(&self.token, self.probe.as_deref()) {
                continue;
            }
            let mut all = self.all();
            // Somebody may have come meanwhile.
            if session.is_alone() {
                tracing::info!(session = session.id(), "nobody comes back to a session");
                Self::end(&mut all, session.id());
            }
        }
    }

    /// As [`Sessions::new`]; each session's changes of files are journalled.
    ///
    /// # Errors
    /// [`AllowError`], if the folder of the journals is not there.
    pub fn journalled(
        mut allowed: Allowed,
        token: Token,
        limits: Limits,
        journals: Journals,
    ) -> Result<Self, AllowError> {
        allowed.hide(journals.dir())?;
        let journals = Some(journals.with_roots(allowed.writable_roots()));
        Ok(Sessions {
            journals,
            ..Self::new(allowed, token, limits)
        })
    }

    /// Joins a session, or begins one (0); or why not.
    pub(crate) fn join(
        self: &Arc<Self>,
        token: &Token,
        id: u64,
        lane: u64,
        incarnation: u64,
    ) -> Result<Membership, NotServed> {
        if !same(token, &self.token) {
            return Err(NotServed::for_good("the token is not this job's"));
        }
        let mut all = self.all();
        let session = if id != 0 {
            let cannot_go_on = |why: &str| NotServed {
                reason: format!("the session cannot go on: {why}").into(),
                passing: false,
            };
            let found = all.get(&id).cloned();
            let found = found.ok_or_else(|| match self.lost.get(&id) {
                Some(why) => cannot_go_on(why),
                None => self
                    .copies
                    .why_over(id)
                    .unwrap_or_else(|| NotServed::for_good("there is no such session")),
            })?;
            found.is_copy(incarnation)?;
            if let Some(why) = found.lost() {
                return Err(cannot_go_on(why));
            }
            found
        } else {
            if all.len() >= self.limits.sessions {
                return Err(NotServed::now("too many sessions"));
            }
            let session = self.begin();
            let id = session.id();
            all.entry(id).or_insert(Arc::new(session)).clone()
        };
        if !session.has_its_locks() {
            return Err(NotServed::now("it waits for locks that the job had"));
        }
        let mut streams = session
            .streams
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *streams >= self.limits.streams {
            return Err(NotServed::now("too many streams"));
        }
        *streams += 1;
        drop(streams);
        *session.alone.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(Membership {
            lane: session.lanes.get(lane),
            session,
            role: Role::Shim,
            version: wire::VERSION,
            sessions: self.clone(),
        })
    }
}

/// Compares without telling by its time where they differ.
fn same(one: &Token, other: &Token) -> bool {
    let different = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(different) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions(limits: Limits) -> Arc<Sessions> {
        Arc::new(Sessions::new(Allowed::none(), [1; 32], limits))
    }

    #[test]
    fn a_session_lives_as_long_as_its_streams() {
        let sessions = sessions(Limits::default());
        let first = sessions.join(&[1; 32], 0, 0, 0).expect("begins");
        let id = first.session.id();
        let second = sessions.join(&[1; 32], id, 0, 0).expect("joins");
        drop(first);
        drop(sessions.join(&[1; 32], id, 0, 0).expect("is there yet"));
        drop(second);
        let gone = sessions.join(&[1; 32], id, 0, 0).expect_err("has ended");
        assert_eq!(gone, NotServed::for_good("there is no such session"));
    }

    /// Threads that served a line that broke may notice that when the starter has said on another that the job has ended.
    #[test]
    fn who_notices_late_that_a_line_broke_does_not_keep_a_session() {
        let sessions = sessions(Limits::default());
        let late = sessions.join(&[1; 32], 0, 0, 0).expect("begins");
        let id = late.session.id();
        let starter = sessions.join(&[1; 32], id, 0, 0).expect("joins");
        starter.session.is_over_with_its_streams();
        drop(starter);
        late.session.go_on_alone();
        drop(late);
        let gone = sessions.join(&[1; 32], id, 0, 0).expect_err("has ended");
        assert_eq!(gone, NotServed::for_good("there is no such session"));
    }

    #[test]
    fn strangers_and_too_many_are_refused() {
        let limits = Limits {
            streams: 2,
            sessions: 1,
            ..Limits::default()
        };
        let sessions = sessions(limits);
        assert!(sessions.join(&[2; 32], 0, 0, 0).is_err());
        let one = sessions.join(&[1; 32], 0, 0, 0).expect("begins");
        assert!(
            sessions.join(&[1; 32], 0, 0, 0).is_err(),
            "a second session"
        );
        let _two = sessions
            .join(&[1; 32], one.session.id(), 0, 0)
            .expect("joins");
        assert!(
            sessions.join(&[1; 32], one.session.id(), 0, 0).is_err(),
            "a third stream"
        );
    }
}
