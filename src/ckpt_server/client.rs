//! A job's newest image comes from the shadow, if that has a newer one than there is here.

use crate::address::Address;
use crate::args::{ImagesAt, Life};
use crate::jobs::{self, CheckpointNote, Job, JobError, JobStore, LifeRecord, StoredImage};
use crate::life::check_room;
use crate::raw::shown_path;
use crate::reach;
use crate::remote::{Client, connect};
use crate::report::{Exit, Explain, Failure, Outcome, chain, tell};
use ckpt_lib::image::Image;
use nix::fcntl::{Flock, FlockArg};
use starter::life::State;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::{FetchImage, KeptImage, KeptImages, Request};

/// Where images of jobs that are not known here lie until they are.
const FOLDER: &str = "fetched";

/// Where the shadow is, and what the job's starter was told.
pub(crate) struct Where<'a> {
    pub(crate) shadow: Option<&'a Address>,
    pub(crate) identity: Option<&'a Path>,
    pub(crate) lease: Duration,
    pub(crate) life: &'a Life,
}

/// Has the newest good image of a job come, if it is not here: among those of the job, or, if that is not known here, to the place that is answered. What is
/// newer here does not count.
///
/// # Errors
/// The shadow cannot be reached, or the disk is full; not that one of them is damaged, which is told.
pub(crate) fn newer_than_here(
    store: &JobStore,
    name: &str,
    at: &Where<'_>,
) -> Outcome<Option<PathBuf>> {
    let mut job = match store.find(name) {
        Ok(job) => Some(job),
        Err(JobError::Missing { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let had = job.as_ref().and_then(|job| job.life.as_ref());
    let is_wanted = match &at.life.images {
        Some(images) => *images == ImagesAt::Shadow,
        None => had.is_some_and(|life| life.images_at_shadow),
    };
    let Some(address) = at.shadow.filter(|_| is_wanted) else {
        return Ok(None);
    };
    // Who runs, here or elsewhere, or is over, is told so by whoever has asked.
    let is_over = |life: &LifeRecord| {
        matches!(
            life.state(),
            Some(State::Completed | State::Removed | State::Held)
        )
    };
    if had.is_some_and(is_over)
        || job
            .as_ref()
            .is_some_and(|job| job.life() != jobs::Life::Ended)
    {
        return Ok(None);
    }
    let strange = store.dir().join(FOLDER);
    let _lock = match &job {
        Some(job) => job.lock()?,
        None => lock(&strange, name)?,
    };
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
    let mut why_not = vec![];
    for kept in there {
        let generation = kept.generation;
        let is_it = |one: &StoredImage| {
            let image = Image::open(&one.path).ok();
            image.is_some_and(|image| {
                image.header().id == kept.id && image.verify(&mut |_| {}).is_ok()
            })
        };
        if let Some(one) = here.iter().find(|one| is_it(one)) {
            only_those_that_count(&here, generation)?;
            if let Some(job) = &mut job {
                is_newest(job, one.path.clone(), kept)?;
            }
            return Ok(None);
        }
        let to = match &job {
            Some(job) => job.image_path(generation)?,
            None => strange.join(format!("{name}-{generation}.img")),
        };
        let part = to.with_file_name(format!(".{name}.part"));
        if let Some(least) = at.life.min_free {
            let dir = part.parent().unwrap_or(&part);
            let room = check_room(dir, least, Some(kept.len));
            room.map_err(|why| Failure::new(Exit::Failed, why))?;
        }
        let mut client = Client::begin(&socket, &token)?;
        let fetched = fetch(&mut client, name, (generation, kept.len), &part);
        let fetched = fetched.inspect_err(|_| {
            let _ = fs::remove_file(&part);
        })?;
        let good = fetched.and_then(|()| {
            let image = Image::open(&part).map_err(|error| chain(&error))?;
            if image.header().id != kept.id {
                return Err("it is another than was said".to_owned());
            }
            let verified = image.verify(&mut |_| {});
            verified.map(drop).map_err(|error| chain(&error))
        });
        match good {
            Ok(()) => {
                only_those_that_count(&here, generation)?;
                fs::rename(&part, &to).context(|| shown_path(&to))?;
                tell(&format!(
                    "image {generation} of job {name} has come from the shadow"
                ));
                let Some(job) = &mut job else {
                    return Ok(Some(to));
                };
                is_newest(job, to, kept)?;
                return Ok(None);
            }
            Err(why) => {
                let _ = fs::remove_file(&part);
                let why = format!("image {generation} at the shadow is not used: {why}");
                tell(&why);
                why_not.push(why);
            }
        }
    }
    drop(held);
    if why_not.is_empty() {
        return Ok(None);
    }
    // It would begin anew, as if it had never been.
    let message = format!(
        "job {name} cannot go on from the shadow: {}",
        why_not.join("; ")
    );
    let failure = Failure::new(Exit::Image, message);
    Err(failure.advise(
        "--replace without --resume, to begin it anew; its images there are to be removed then",
    ))
}

/// One command at a time fetches images of a job that is not known here.
fn lock(folder: &Path, name: &str) -> Outcome<Flock<File>> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.context(|| shown_path(folder))?;
    let path = folder.join(format!(".{name}.lock"));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&path).context(|| shown_path(&path))?;
    Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, errno)| errno)
        .context(|| shown_path(&path))
}

/// The job goes on from this image, whatever it was stopped with here last.
fn is_newest(job: &mut Job, image: PathBuf, kept: KeptImage) -> Outcome<()> {
    let opened = Image::open(&image)?;
    let taken = opened.snapshot()?.taken;
    let noted = job.note(CheckpointNote {
        platform: Some(opened.platform().to_owned()),
        made: None,
        image,
        generation: kept.generation,
        taken_at: taken.unix_seconds,
        image_bytes: kept.len,
        whole_bytes: kept.len,
        sent_bytes: None,
        files: None,
    });
    Ok(noted?)
}

/// What was made here and did not come to the shadow does not count: the job may have gone on elsewhere since from what did.
fn only_those_that_count(here: &[StoredImage], newest: u64) -> Outcome<()> {
    for one in here.iter().filter(|one| one.generation > newest) {
        let aside = one.path.with_extension("uncounted");
        fs::rename(&one.path, &aside).context(|| shown_path(&one.path))?;
        tell(&format!(
            "{} is not at the shadow, and does not count",
            shown_path(&aside)
        ));
    }
    Ok(())
}

/// Whether this image has come for a job that was not known here.
pub(crate) fn is_fetched(store: &JobStore, image: &Path) -> bool {
    image.parent() == Some(&store.dir().join(FOLDER))
}

/// Brings it here; or why the shadow does not give it.
///
/// # Errors
/// The line broke, or the disk is full: it may be had another time.
fn fetch(
    client: &mut Client,
    name: &str,
    (generation, expected): (u64, u64),
    to: &Path,
) -> Outcome<Result<(), String>> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file: File = options.open(to).context(|| shown_path(to))?;
    let request = Request::FetchImage(FetchImage { generation });
    let (len, mut bytes) = match client.ask_for_bytes(&request, name.as_bytes())? {
        Ok(found) => found,
        Err(refused) => return Ok(Err(refused)),
    };
    let ended = |came: u64| {
        let message =
            format!("image {generation} has ended: {came} bytes have come, expected {expected}");
        Failure::new(Exit::Lost, message)
    };
    if len != expected {
        return Err(ended(len));
    }
    let came = io::copy(&mut bytes, &mut file).context(|| shown_path(to))?;
    if came != len {
        return Err(ended(came));
    }
    file.sync_all().context(|| shown_path(to)).map(Ok)
}
