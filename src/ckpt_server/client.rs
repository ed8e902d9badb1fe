//! A job's newest image comes from the shadow, if that has a newer one than there is here.

use crate::address::Address;
use crate::args::ImagesAt;
use crate::jobs::{JobError, JobStore, Life, LifeRecord, StoredImage};
use crate::raw::shown_path;
use crate::reach;
use crate::remote::{Client, connect};
use crate::report::{Exit, Explain, Failure, Outcome, chain, tell};
use ckpt_lib::image::Image;
use starter::life::State;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::{FetchImage, KeptImage, KeptImages, Request};

/// Where images of jobs that are not known here lie until they are.
const FOLDER: &str = "fetched";
const PART: &str = ".fetched";

/// What has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fetched {
    /// Nothing: there is none at the shadow, or what is here is as new.
    Nothing,
    /// An image among those of the job.
    Here,
    /// An image of a job that is not known here.
    Strange(PathBuf),
}

/// Where the shadow is.
pub(crate) struct Where<'a> {
    pub(crate) images: Option<&'a ImagesAt>,
    pub(crate) shadow: Option<&'a Address>,
    pub(crate) identity: Option<&'a Path>,
    pub(crate) lease: Duration,
}

/// Has the newest good image of a job come, if it is not here. What is newer here does not count.
///
/// # Errors
/// The shadow cannot be reached, or the disk is full; not that one of them is damaged, which is told.
pub(crate) fn newer_than_here(store: &JobStore, name: &str, at: &Where<'_>) -> Outcome<Fetched> {
    let job = match store.find(name) {
        Ok(job) => Some(job),
        Err(JobError::Missing { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let had = job.as_ref().and_then(|job| job.life.as_ref());
    let is_wanted = match at.images {
        Some(images) => *images == ImagesAt::Shadow,
        None => had.is_some_and(|life| life.images_at_shadow),
    };
    let Some(address) = at.shadow.filter(|_| is_wanted) else {
        return Ok(Fetched::Nothing);
    };
    // Who runs, or is over, is told so by whoever has asked.
    let is_over = |life: &LifeRecord| {
        matches!(
            life.state(),
            Some(State::Completed | State::Removed | State::Held)
        )
    };
    if had.is_some_and(is_over) || job.as_ref().is_some_and(|job| job.life() == Life::Living) {
        return Ok(Fetched::Nothing);
    }
    let _lock = job.as_ref().map(crate::jobs::Job::lock).transpose()?;
    let here = job.as_ref().map(|job| job.images()).transpose()?;
    let here = here.unwrap_or_default();
    let socket = reach::socket(address, at.identity, store.dir(), at.lease)?;
    // As long as there is this, so is what has brought us there.
    let (held, token) = connect(&socket)?;
    held.is_spoken(wire::KEEPS_IMAGES, "it keeps no images")?;
    let mut asks = Client::begin(&socket, &token)?;
    let listed = asks.ask(&Request::KeptImages(KeptImages {}), name.as_bytes());
    let listed = listed.context(|| format!("images of job {name} at the shadow"))?;
    let there = listed.as_chunks().0.iter().map(KeptImage::read).rev();
    let strange = store.dir().join(FOLDER);
    for kept in there {
        let generation = kept.generation;
        let is_it = |one: &StoredImage| {
            let image = Image::open(&one.path).ok();
            image.is_some_and(|image| {
                image.header().id == kept.id && image.verify(&mut |_| {}).is_ok()
            })
        };
        if here.iter().any(is_it) {
            only_those_that_count(&here, generation)?;
            return Ok(Fetched::Nothing);
        }
        let to = match &job {
            Some(job) => job.image_path(generation)?,
            None => {
                let made = DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(&strange);
                made.context(|| shown_path(&strange))?;
                strange.join(format!("{name}-{generation}.img"))
            }
        };
        let part = to.with_file_name(PART);
        let mut client = Client::begin(&socket, &token)?;
        fetch(&mut client, name, (generation, kept.len), &part).inspect_err(|_| {
            let _ = fs::remove_file(&part);
        })?;
        let good = Image::open(&part).and_then(|image| image.verify(&mut |_| {}).map(drop));
        match good {
            Ok(()) => {
                only_those_that_count(&here, generation)?;
                fs::rename(&part, &to).context(|| shown_path(&to))?;
                tell(&format!(
                    "image {generation} of job {name} has come from the shadow"
                ));
                return Ok(match job {
                    Some(_) => Fetched::Here,
                    None => Fetched::Strange(to),
                });
            }
            Err(error) => {
                let _ = fs::remove_file(&part);
                let why = chain(&error);
                tell(&format!(
                    "image {generation} at the shadow is not used: {why}"
                ));
            }
        }
    }
    drop(held);
    Ok(Fetched::Nothing)
}

/// What was made here and did not come to the shadow does not count: the job may have gone on elsewhere since from what did.
fn only_those_that_count(here: &[StoredImage], newest: u64) -> Outcome<()> {
    for one in here.iter().filter(|one| one.generation > newest) {
        tell(&format!(
            "{} is not at the shadow, and does not count",
            shown_path(&one.path)
        ));
        fs::remove_file(&one.path).context(|| shown_path(&one.path))?;
    }
    Ok(())
}

/// Whether this image has come for a job that was not known here.
pub(crate) fn is_fetched(store: &JobStore, image: &Path) -> bool {
    image.parent() == Some(&store.dir().join(FOLDER))
}

fn fetch(
    client: &mut Client,
    name: &str,
    (generation, expected): (u64, u64),
    to: &Path,
) -> Outcome<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file: File = options.open(to).context(|| shown_path(to))?;
    let request = Request::FetchImage(FetchImage { generation });
    let (len, mut bytes) = client.ask_for_bytes(&request, name.as_bytes())?;
    let came = io::copy(&mut bytes, &mut file).context(|| shown_path(to))?;
    if came != len || len != expected {
        let message =
            format!("image {generation} has ended: {came} bytes have come, expected {expected}");
        return Err(Failure::new(Exit::Lost, message));
    }
    file.sync_all().context(|| shown_path(to))
}
