//! Images that are kept here: what they are is not the shadow's to know, so whoever begins it brings who keeps them.

use crate::connection::{StreamError, send};
use crate::peer::Peer;
use crate::session::Session;
use crate::sessions::Membership;
use crate::undo::JobId;
use journal::Epoch;
use std::fs::File;
use std::io::{self, Read, Write};
use wire::{KeepImage, KeptImage, Refusal, Reply, Request};

/// Bytes of a reason that a refusal has room for.
const LONGEST_REASON: usize = 900;

/// Which image is to be kept.
#[derive(Clone, Copy, Debug)]
pub struct ToKeep<'a> {
    /// Of this job.
    pub job: JobId,
    /// As it calls itself.
    pub name: &'a [u8],
    /// And the rest.
    pub asked: KeepImage,
}

/// Takes an image from a stream; or why there is none. The last says, when it is about to count, whether whoever sends it still may.
pub type Taking<'a> = Box<
    dyn FnOnce(&mut dyn Read, &mut (dyn Write + Send), &dyn Fn() -> bool) -> Result<(), String>
        + 'a,
>;

/// Keeps images of jobs whose files are here.
pub trait Images: Send + Sync + std::fmt::Debug {
    /// What takes an image; or why none is taken.
    ///
    /// # Errors
    /// For the job's owner.
    fn keep<'a>(&'a self, image: ToKeep<'a>) -> Result<Taking<'a>, String>;

    /// Those of this job, oldest first.
    ///
    /// # Errors
    /// For the job's owner.
    fn list(&self, name: &[u8]) -> Result<Vec<KeptImage>, String>;

    /// One of them.
    ///
    /// # Errors
    /// For the job's owner.
    fn open(&self, name: &[u8], generation: u64) -> Result<File, String>;

    /// Nobody goes back to images of the job that need another mark of its journal than those that there are when none gets its name.
    fn only_those_with(&self, job: JobId, marks: &dyn Fn() -> Option<Vec<Epoch>>);

    /// The job has ended well: nobody goes back to its images.
    fn complete(&self, job: JobId);

    /// Whether [`Images::forget`] would be refused.
    ///
    /// # Errors
    /// For the job's owner.
    fn may_forget(&self, job: JobId, copy: u64) -> Result<(), String>;

    /// The job is removed, as if it had never been, by whoever knows it up to this copy: not if there is an image of a newer one.
    ///
    /// # Errors
    /// For the job's owner.
    fn forget(&self, job: JobId, copy: u64) -> Result<(), String>;
}

/// Serves a request of this kind, with which the stream ends.
pub(crate) fn serve<S: Peer>(
    stream: &mut S,
    membership: &Membership,
    number: u64,
    (request, data): (&Request<'_>, &[u8]),
) -> Result<(), StreamError> {
    let Some(images) = membership.session.images.as_deref() else {
        let why = "it keeps no images (wayfarer shadow --images DIR)";
        return refuse(stream, number, why);
    };
    match request {
        Request::KeepImage(asked) => keep(stream, membership, number, (images, asked, data))?,
        Request::KeptImages(_) => match images.list(data) {
            Ok(all) => {
                let bytes: Vec<u8> = all.iter().flat_map(KeptImage::to_bytes).collect();
                send(stream, number, &Reply::Done, &bytes)?;
            }
            Err(why) => refuse(stream, number, &why)?,
        },
        Request::FetchImage(asked) => {
            let opened = images.open(data, asked.generation);
            let opened = opened.and_then(|file| match file.metadata() {
                Ok(found) => Ok((file, found.len())),
                Err(error) => Err(error.to_string()),
            });
            match opened {
                Ok((file, len)) => {
                    send(stream, number, &Reply::Number(len), &[])?;
                    io::copy(&mut file.take(len), stream)?;
                }
                Err(why) => refuse(stream, number, &why)?,
            }
        }
        _ => {}
    }
    Ok(())
}

fn keep<S: Peer>(
    stream: &mut S,
    membership: &Membership,
    number: u64,
    (images, asked, name): (&dyn Images, &KeepImage, &[u8]),
) -> Result<(), StreamError> {
    let session = &membership.session;
    let copy = match session.first_copy() {
        Ok(copy) => copy,
        Err(error) => return refuse(stream, number, &error.to_string()),
    };
    let (job, generation) = (copy.job, asked.generation);
    let begun = images.keep(ToKeep {
        job,
        name,
        asked: *asked,
    });
    let taking = match begun {
        Ok(taking) => taking,
        Err(why) => {
            tracing::info!(%job, generation, why, "an image is not taken");
            return refuse(stream, number, &why);
        }
    };
    send(stream, number, &Reply::Done, &[])?;
    let mut output = stream.writer()?;
    match taking(stream, &mut *output, &|| session.lost().is_none()) {
        Ok(()) => {
            tracing::info!(%job, generation, "an image is kept");
            session.lets_images_go();
        }
        Err(why) => tracing::info!(%job, generation, why, "an image is not kept"),
    }
    Ok(())
}

impl Session {
    /// Images that need a mark that there is not any more go.
    pub(crate) fn lets_images_go(&self) {
        let (Some(images), Some(job)) = (&self.images, self.job()) else {
            return;
        };
        images.only_those_with(job, &|| {
            let marks = self.marks().ok()?;
            Some(marks.iter().map(|mark| mark.epoch).collect())
        });
    }
}

fn refuse<S: Write>(stream: &mut S, number: u64, why: &str) -> Result<(), StreamError> {
    let end = (0..=why.len().min(LONGEST_REASON))
        .rev()
        .find(|at| why.is_char_boundary(*at));
    let refusal = Refusal {
        reason: &why[..end.unwrap_or(0)],
        passing: false,
    };
    send(stream, number, &Reply::Refused(refusal), &[])
}
