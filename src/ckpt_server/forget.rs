//! A job that is removed here goes at the shadow, too, if its images are kept there.

use crate::address::Address;
use crate::jobs::{Job, JobStore, KeptAt, state_in};
use crate::raw;
use crate::reach;
use crate::remote::connect;
use crate::report::{Exit, Explain, Failure, Outcome, tell};
use starter::life::End;
use std::path::PathBuf;
use std::time::Duration;
use wire::{Forget, Request};

/// Nobody waits for a shadow that is away, for a job that there is no more.
const LEASE: Duration = Duration::from_secs(10);

/// What a shadow keeps of a job, and how that is known from here.
#[derive(Debug)]
pub(crate) struct Kept {
    name: String,
    at: KeptAt,
    /// That of its newest image, by which the shadow knows the job; none: there is no image here.
    state: Option<Vec<u8>>,
}

impl Kept {
    /// To be looked for before the job is removed here; none: a shadow keeps nothing of it.
    pub(crate) fn of(job: &Job) -> Option<Self> {
        let life = job.life.as_ref()?;
        let at = life.kept_at.clone()?;
        // All that is kept of one that has ended well is that it has.
        if life.end() == Some(End::Exited(0)) {
            return None;
        }
        let images = job.images().unwrap_or_default();
        let state = images.iter().rev().find_map(|one| state_in(&one.path));
        // Of one that has never had an image there is none there.
        let may_be = state.is_some() || job.record.last_checkpoint.is_some();
        may_be.then(|| Kept {
            name: job.record.name.clone(),
            at,
            state,
        })
    }

    /// Has it go; that it stays is told.
    pub(crate) fn forget(&self, store: &JobStore) {
        if let Err(failure) = self.ask(store) {
            let (name, address) = (&self.name, &self.at.address);
            tell(&format!(
                "images of job {name} that the shadow on {address} keeps stay there: {failure}"
            ));
        }
    }

    fn ask(&self, store: &JobStore) -> Outcome<()> {
        let unknown = || {
            let message = "there was no image here by which it would know the job";
            Failure::new(Exit::Failed, message)
        };
        let state = self.state.as_ref().ok_or_else(unknown)?;
        let unread = |why| Failure::new(Exit::Failed, why);
        let address = Address::parse(&self.at.address).map_err(unread)?;
        let identity = self.at.identity.as_deref();
        let identity: Option<PathBuf> = identity.map(|path| raw::decode(path).into());
        let socket = reach::socket(&address, identity.as_deref(), store.dir(), LEASE)?;
        let (mut client, _) = connect(&socket)?;
        let what = "it does not remove what it keeps of a job";
        client.is_spoken(wire::FORGETS_JOBS, what)?;
        let request = Request::Forget(Forget {
            starter: self.at.starter,
        });
        let done = client.ask(&request, state);
        done.map(drop)
            .context(|| format!("the shadow on {address}"))
    }
}
