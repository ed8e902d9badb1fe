//! An image of a copy on another machine is made there, and comes here: it counts when it is here.
//!
//! ```text
//! ssh ... checkpoint --carry N ──pages that are not here yet──> images/.carried ──every byte is read──> GOOD ──> there: the shadow knows it
//!                                            images/NAME-N.img <──renamed── GOOD <──────────────────────────────────'
//! ```

use super::chunks::{GOOD, Reception, hear_end, receive, while_synced};
use super::far::{Errand, Far};
use crate::args::Submit;
use crate::jobs::{CheckpointNote, JobStore};
use crate::leftovers;
use crate::limits;
use crate::raw;
use crate::report::{Exit, Explain, Failure, Outcome};
use crate::verbs::checkpoint::{check_images, note};
use ckpt_lib::image::Image;
use ckpt_lib::pace::Rate;
use nix::sys::stat::Mode;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Where an image lies until it is whole.
const PART: &str = ".carried";

/// What is to be fetched.
pub(crate) struct Fetch<'a> {
    pub(crate) store: &'a JobStore,
    /// The job.
    pub(crate) name: &'a str,
    pub(crate) host: &'a str,
    /// What the copy's folder there is called by.
    pub(crate) id: &'a str,
    pub(crate) submit: &'a Submit,
    /// It is made, and comes, no faster.
    pub(crate) rate: &'a Rate,
    /// The copy ends with it.
    pub(crate) leaves: bool,
    /// The sooner it is here the better: it is based on the one before.
    pub(crate) hurries: bool,
}

/// So many images one is based on, at most: whoever needs it needs all of them.
const MOST_BASES: usize = 8;
/// How long it may take until it counts where it was made, before whoever wants us to end is heard.
const COUNTS_WITHIN: Duration = Duration::from_secs(60);

/// Has an image made, and keeps it; where the job wants a copy of it.
pub(crate) fn fetch(what: &Fetch<'_>) -> Outcome<Option<PathBuf>> {
    leftovers::remove_when_ended();
    let mut job = what.store.find(what.name)?;
    let _lock = job.lock()?;
    // Before images go to make room.
    let marks = job.marks();
    let most = what.submit.life.images_max;
    check_images(&job, most, None)?;
    let generation = job.next_generation();
    let path = job.image_path(generation)?;
    let part = path.with_file_name(PART);
    let far = Far {
        host: what.host,
        mode: Mode::empty(),
        directory: Path::new("/"),
        arguments: what.submit,
        quotes: false,
    };
    let newest = job.known_images()?.pop();
    let newest = newest.and_then(|image| Some((Image::open(&image.path).ok()?, image.generation)));
    let since = newest.as_ref().filter(|(image, _)| {
        // It is to lie beside it, under that name; and what it would be based on may have been damaged since. The job runs meanwhile.
        let is_beside = image.path().parent() == path.parent();
        let may_be_base = is_beside && image.base_path(MOST_BASES - 1).is_none();
        what.hurries && may_be_base && image.verify(&mut |_| {}).is_ok()
    });
    let last = job.record.last_checkpoint.as_ref();
    let last = last.map(CheckpointNote::size);
    let begun_at = what.rate.get();
    let options = options(
        (what, begun_at),
        generation,
        since.map(|(_, generation)| *generation),
        (last, &marks),
    );
    let errand = Errand::Fetch {
        id: what.id,
        name: what.name,
        options: &options,
    };
    let mut before = vec![];
    for image in newest.iter().map(|(image, _)| image) {
        before.extend(image.files().map(File::open).filter_map(Result::ok));
    }
    let fetched = far.with(errand, |mut input, mut output| {
        let describe = || crate::raw::shown_path(&part);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        leftovers::remove_also(part.clone(), String::new());
        let file = options.mode(0o600).open(&part).context(describe)?;
        let mut crowded = None;
        // Older ones go when all of it is here.
        let mut grows = |len| match most.map(|most| job.could_have(most, len)).transpose() {
            Ok(None | Some(Ok(()))) => Ok(()),
            Ok(Some(Err(too_much))) => {
                crowded = Some(Failure::new(Exit::Failed, too_much.to_string()));
                Err(ErrorKind::QuotaExceeded.into())
            }
            Err(error) => {
                crowded = Some(error.into());
                Err(ErrorKind::Other.into())
            }
        };
        let how = Reception {
            rate: what.rate,
            begun_at,
            grows: &mut grows,
        };
        let carried = receive(&file, &before, how, &mut input, &mut output);
        if let Some(crowded) = crowded {
            // It is not taken: what the job did before the last one stays known there.
            return Ok(Err(crowded));
        }
        let carried = carried.context(|| "the image does not come".to_owned())?;
        if let Err(crowded) = check_images(&job, most, Some(carried.whole)) {
            return Ok(Err(crowded));
        }
        let image = Image::open(&part)?;
        // What it is based on was read when it came.
        let (verified, synced) = while_synced(&file, || image.verify_own(&mut |_| {}));
        verified?;
        synced.context(describe)?;
        let taken = image.snapshot()?.taken;
        if what.rate.is_given_up() {
            return Err(Failure::new(Exit::Failed, "it was given up"));
        }
        // There it counts as soon as this is heard.
        leftovers::hold();
        let (answered, answers) = mpsc::channel::<()>();
        limits::thread(move || {
            if answers.recv_timeout(COUNTS_WITHIN) == Err(RecvTimeoutError::Timeout) {
                // It may be said over a line that is cut, and nobody is to wait for that.
                leftovers::lose_patience();
            }
        })?;
        let agreed = output.write_all(&[GOOD]).and_then(|()| output.flush());
        let agreed = agreed.and_then(|()| hear_end(&mut input));
        drop(answered);
        leftovers::hold();
        let wanted = agreed.context(|| "the image is here, and does not count".to_owned())?;
        Ok(Ok((carried, taken, wanted)))
    });
    let (ssh, fetched) = match fetched {
        Ok(fetched) => fetched,
        Err(unreached) => {
            leftovers::let_go();
            let _ = fs::remove_file(&part);
            return Err(match unreached.has_refused() {
                // It has said why.
                true => Failure::said(Exit::Failed),
                false => unreached.failure,
            });
        }
    };
    let (carried, taken, wanted) = match fetched {
        Ok(fetched) => fetched,
        Err(crowded) => {
            let _ = fs::remove_file(&part);
            ssh.end();
            return Err(crowded);
        }
    };
    let kept = fs::rename(&part, &path).and_then(|()| match path.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    });
    kept.context(|| raw::shown_path(&path))?;
    leftovers::remove_no_more();
    let whole = carried.whole;
    let sent = carried.sent;
    tracing::info!(generation, whole, sent, "an image has come");
    let image = Image::open(&path).ok();
    let files = image.iter().flat_map(Image::files);
    let sizes = files.filter_map(|file| Some(std::fs::metadata(file).ok()?.len()));
    let noted = CheckpointNote {
        whole_bytes: sizes.max().unwrap_or(whole),
        sent_bytes: Some(sent),
        platform: image.map(|image| image.platform().to_owned()),
        image: path,
        generation,
        taken_at: taken.unix_seconds,
        image_bytes: whole,
        made: None,
        files: None,
    };
    note(&mut job, noted, what.hurries);
    leftovers::done();
    ssh.end();
    Ok(wanted)
}

/// As `checkpoint` there understands them.
fn options(
    (what, rate): (&Fetch<'_>, Option<NonZeroU64>),
    generation: u64,
    since: Option<u64>,
    (last, marks): (Option<u64>, &[u64]),
) -> Vec<OsString> {
    let life = &what.submit.life;
    let mut words = vec!["--carry".to_owned(), generation.to_string()];
    if what.leaves {
        words.extend(["--then".to_owned(), "kill".to_owned()]);
    }
    if let Some(since) = since {
        words.extend(["--since".to_owned(), since.to_string()]);
    }
    for mark in marks {
        words.extend(["--mark".to_owned(), mark.to_string()]);
    }
    if what.hurries && !what.leaves {
        words.push("--watch".to_owned());
    }
    if let Some(least) = life.min_free {
        words.extend(["--min-free".to_owned(), least.to_string()]);
        words.extend(["--expected".to_owned(), last.unwrap_or(0).to_string()]);
    }
    if let Some(level) = life.compress {
        words.extend(["--compress".to_owned(), format!("zstd:{level}")]);
    }
    if let Some(rate) = rate {
        words.extend(["--image-rate".to_owned(), rate.to_string()]);
    }
    if life.carry_files {
        words.push("--carry-files".to_owned());
    }
    if let Some(patience) = life.wait_for_sockets {
        let ms = patience.as_millis();
        words.extend(["--wait-for-sockets".to_owned(), format!("{ms}ms")]);
    }
    words.into_iter().map(OsString::from).collect()
}
