//! An image of a copy on another machine is made there, and comes here: it counts when it is here.
//!
//! ```text
//! ssh ... checkpoint --carry N ──chunks that are not here yet──> images/.carried ──every byte is read──> GOOD ──> there: the shadow knows it
//!                                            images/NAME-N.img <──renamed── GOOD <──────────────────────────────────'
//! ```

use super::chunks::{GOOD, hear_good, receive};
use super::far::{Errand, Far};
use crate::args::Submit;
use crate::jobs::{CheckpointNote, JobStore};
use crate::raw;
use crate::report::{Exit, Explain, Failure, Outcome};
use crate::verbs::checkpoint::{check_images, note};
use ckpt_lib::image::Image;
use nix::sys::stat::Mode;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

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
    /// The copy ends with it.
    pub(crate) leaves: bool,
}

/// Has an image made, and keeps it.
pub(crate) fn fetch(what: &Fetch<'_>) -> Outcome<()> {
    let mut job = what.store.find(what.name)?;
    let _lock = job.lock()?;
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
    };
    let last = job.record.last_checkpoint.as_ref();
    let options = options(what, generation, last.map(|last| last.image_bytes));
    let errand = Errand::Fetch {
        id: what.id,
        name: what.name,
        options: &options,
    };
    let before = job.known_images()?.pop();
    let before = before.and_then(|image| File::open(image.path).ok());
    let fetched = far.with(errand, |mut input, mut output| {
        let describe = || crate::raw::shown_path(&part);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.mode(0o600).open(&part).context(describe)?;
        let carried = receive(&file, before.as_ref(), &mut input, &mut output);
        let carried = carried.context(|| "the image does not come".to_owned())?;
        if let Err(crowded) = check_images(&job, most, Some(carried.whole)) {
            // It is not taken: what the job did before the last one stays known there.
            return Ok(Err(crowded));
        }
        let image = Image::open(&part)?;
        image.verify(&mut |_| {})?;
        let taken = image.snapshot()?.taken;
        file.sync_all().context(describe)?;
        let agreed = output.write_all(&[GOOD]).and_then(|()| output.flush());
        let agreed = agreed.and_then(|()| hear_good(&mut input));
        agreed.context(|| "the image is here, and does not count".to_owned())?;
        Ok(Ok((carried, taken)))
    });
    let (ssh, fetched) = match fetched {
        Ok(fetched) => fetched,
        Err(unreached) => {
            let _ = fs::remove_file(&part);
            return Err(match unreached.has_refused() {
                // It has said why.
                true => Failure::said(Exit::Failed),
                false => unreached.failure,
            });
        }
    };
    let (carried, taken) = match fetched {
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
    let whole = carried.whole;
    let sent = carried.sent;
    tracing::info!(generation, whole, sent, "an image has come");
    note(
        &mut job,
        CheckpointNote {
            image: path,
            generation,
            taken_at: taken.unix_seconds,
            image_bytes: whole,
            files: None,
        },
    );
    ssh.end();
    Ok(())
}

/// As `checkpoint` there understands them.
fn options(what: &Fetch<'_>, generation: u64, last: Option<u64>) -> Vec<OsString> {
    let life = &what.submit.life;
    let mut words = vec!["--carry".to_owned(), generation.to_string()];
    if what.leaves {
        words.extend(["--then".to_owned(), "kill".to_owned()]);
    }
    if let Some(least) = life.min_free {
        words.extend(["--min-free".to_owned(), least.to_string()]);
        words.extend(["--expected".to_owned(), last.unwrap_or(0).to_string()]);
    }
    if let Some(level) = life.compress {
        words.extend(["--compress".to_owned(), format!("zstd:{level}")]);
    }
    if let Some(rate) = life.image_rate {
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
