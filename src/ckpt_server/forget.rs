//! A job that is removed here goes at the shadow, too, if its images are kept there.

use crate::address::Address;
use crate::jobs::{Job, JobStore, KeptAt, state_in};
use crate::raw;
use crate::reach;
use crate::remote::connect;
use crate::report::{Exit, Explain, Failure, Outcome, tell};
use std::path::PathBuf;
use std::time::Duration;
use wire::{Forget, Request};

/// Nobody waits for a shadow that is away, for a job that there is no more.
const LEASE: Duration = Duration::from_secs(10);

/// Has what the shadow keeps of this ended job go; that it stays is told.
pub(crate) fn forget(store: &JobStore, job: &Job) {
    let life = job.life.as_ref();
    let Some(kept_at) = life.and_then(|life| life.kept_at.as_ref()) else {
        return;
    };
    if let Err(failure) = ask(store, job, kept_at) {
        let name = &job.record.name;
        tell(&format!(
            "images of job {name} that the shadow keeps stay there: {failure}"
        ));
    }
}

fn ask(store: &JobStore, job: &Job, kept_at: &KeptAt) -> Outcome<()> {
    // Each of them knows which job it is of.
    let images = job.images()?;
    let Some(state) = images.iter().rev().find_map(|one| state_in(&one.path)) else {
        return Ok(());
    };
    let unread = |why| Failure::new(Exit::Failed, format!("{}: {why}", kept_at.address));
    let address = Address::parse(&kept_at.address).map_err(unread)?;
    let identity = kept_at.identity.as_deref();
    let identity: Option<PathBuf> = identity.map(|path| raw::decode(path).into());
    let socket = reach::socket(&address, identity.as_deref(), store.dir(), LEASE)?;
    let (mut client, _) = connect(&socket)?;
    client.is_spoken(
        wire::FORGETS_JOBS,
        "it does not remove what it keeps of a job",
    )?;
    let request = Request::Forget(Forget {
        starter: kept_at.starter,
    });
    let done = client.ask(&request, &state);
    done.map(drop)
        .context(|| format!("the shadow on {address}"))
}
