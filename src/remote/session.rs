//! The session of a running job, for its checkpoint.

use super::client::Client;
use super::gate::Gate;
use super::reserved::{open_link, open_table};
use crate::away::{Sender, end_said};
use crate::fault;
use crate::leftovers;
use crate::report::{Exit, Explain, Failure, Outcome, tell};
use crate::sys::map_table;
use c_shim::handles::Handles;
use c_shim::link::{LINK_LEN, Link};
use c_shim::table::Table;
use c_shim::used::{Amount, ThreadAmount};
use ckpt_lib::image::{Away, Image};
use ckpt_lib::pace::Rate;
use ckpt_lib::procfs::living_thread;
use ckpt_lib::{JobSession, ProcessUsed, SessionError, Used};
use loader::layout::SectionKind;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::mem::offset_of;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use wire::{KEEPS_IMAGES, KeepImage, Mark, Request, Settle};

const NOT_KEPT: &str = "the image counts here, and is not known to be kept at the shadow";
/// How long the shadow may take to give an image its name.
const KEPT_WITHIN: Duration = Duration::from_secs(60);

/// A stream of it, begun before the job is frozen.
#[derive(Debug)]
pub(crate) struct RunningSession {
    client: Client,
    /// A process of the job.
    pid: i32,
    gate: Option<Gate>,
    /// The job ends here with the checkpoint.
    leaves: bool,
    /// Its image goes to whoever is at our standard input and output, or to the shadow.
    carries: Option<Arc<Sender>>,
    /// It goes there, whole, when it is here; and where that is told.
    stays: Option<UnixStream>,
    /// The shadow has said that it keeps it.
    is_kept: bool,
    /// What it contains has gone there.
    has_contents: bool,
    /// The shadow knows that the checkpoint counts.
    has_settled: bool,
    /// Marks that the job may go back to for now.
    needed: Vec<u8>,
    table: File,
    /// The same, in our memory.
    mapped: &'static Table,
    /// Which copy of the job it is.
    copy: u64,
}

impl RunningSession {
    /// That of a process; none if it has its files here.
    pub(crate) fn of(pid: i32, leaves: bool) -> Outcome<Option<Self>> {
        let Some(link) = link_of(pid) else {
            return Ok(None);
        };
        let shown = crate::raw::shown_path(OsStr::from_bytes(link.socket_name()));
        let client = begin(pid, &link);
        let client = client
            .context(|| format!("no stream to the shadow of process {pid} at unix:{shown}"))?;
        let gate = Some(Gate::close(pid)?);
        let describe = || format!("the file table of process {pid}");
        let table = open_table(pid, true).context(describe)?;
        let mapped = map_table(&table).context(describe)?;
        Ok(Some(RunningSession {
            client,
            pid,
            gate,
            leaves,
            carries: None,
            stays: None,
            is_kept: false,
            has_contents: false,
            has_settled: false,
            needed: vec![],
            table,
            mapped,
            copy: link.generation,
        }))
    }

    /// The job may go back to these marks, whatever comes of the image; oldest first.
    pub(crate) fn keeps(&mut self, marks: &[u64]) {
        self.needed = marks.iter().flat_map(|mark| mark.to_le_bytes()).collect();
    }

    /// Its image goes there.
    pub(crate) fn carries(&mut self, to: Sender) {
        self.carries = Some(Arc::new(to));
    }

    /// Its image goes to the shadow, too, before it counts.
    pub(crate) fn is_kept_by(&mut self, (sender, stream): (Sender, UnixStream)) {
        self.carries = Some(Arc::new(sender));
        self.stays = Some(stream);
    }

    /// Whether it does not only count, but is known to be kept there, if it was to be.
    pub(crate) fn has_been_kept(&self) -> Outcome<()> {
        if self.stays.is_none() || self.is_kept {
            return Ok(());
        }
        Err(Failure::new(Exit::Lost, NOT_KEPT))
    }

    /// Tells him that the image counts, and where the job wants a copy of it.
    pub(crate) fn has_carried(&self, wanted: Option<&Path>) -> Outcome {
        if !self.has_settled {
            let message = "the shadow was not told that the image counts, so it does not";
            return Err(Failure::new(Exit::Lost, message));
        }
        stdout()?.write_all(&end_said(wanted))?;
        Ok(Exit::Done)
    }
}

/// The shadow of this process of a job, which takes its image and is sent it as fast as `rate` says. It says first what is there already, which takes it as long as it
/// takes to read that.
///
/// # Errors
/// It does not take it, and why.
pub(crate) fn keeper_of_image(
    pid: i32,
    job: &str,
    asked: KeepImage,
    rate: &Rate,
) -> Outcome<(Sender, UnixStream)> {
    let missing = "the job has no files at a shadow, where its images would be kept";
    let link = link_of(pid).ok_or_else(|| Failure::new(Exit::Failed, missing))?;
    let describe = || "the shadow does not take the image".to_owned();
    let mut client = begin(pid, &link)?;
    client.is_spoken(KEEPS_IMAGES, "it keeps no images")?;
    let asked = client.ask(&Request::KeepImage(asked), job.as_bytes());
    asked.context(describe)?;
    let stream = client.into_stream()?;
    let sender = Sender::begin(rate.clone(), stream.try_clone()?, stream.try_clone()?);
    Ok((sender.context(describe)?, stream))
}

/// Who takes an image sees that nothing comes any more, whoever else has the stream.
impl Drop for RunningSession {
    fn drop(&mut self) {
        if let Some(stream) = &self.stays {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Whoever is at our standard input and output and takes the image, and how fast he wants it to be made: so many bytes in a second, until he says another
/// number; when he is gone, not at all. He says first what is there already, which takes him as long as it takes to read it.
pub(crate) fn taker(rate: Option<NonZeroU64>) -> Outcome<(Sender, Rate)> {
    let file = memfd_create(c"image rate", MFdFlags::MFD_CLOEXEC)?;
    let told = Rate::told_by(File::from(file));
    told.set(rate)?;
    let sender = Sender::begin(told.clone(), stdin()?, stdout()?);
    let sender = sender.context(|| "nobody is there who takes the image".to_owned())?;
    Ok((sender, told))
}

/// Without a buffer.
fn stdin() -> io::Result<File> {
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

/// Without a buffer.
fn stdout() -> io::Result<File> {
    Ok(io::stdout().as_fd().try_clone_to_owned()?.into())
}

fn link_of(pid: i32) -> Option<Link> {
    Link::read(&link_bytes(pid)?)
}

/// The link of a process, if it has one that can be read.
pub(super) fn link_bytes(pid: i32) -> Option<[u8; LINK_LEN]> {
    let mut bytes = [0; LINK_LEN];
    let read = open_link(pid).and_then(|link| link.read_exact_at(&mut bytes, 0));
    read.ok().map(|()| bytes)
}

/// The job may have another root, in which we see the socket by a name that is too long for connect(2).
fn begin(pid: i32, link: &Link) -> Outcome<Client> {
    let name = Path::new(OsStr::from_bytes(link.socket_name()));
    let below = name.strip_prefix("/").unwrap_or(name);
    let inside = PathBuf::from(format!("/proc/{}/root", living_thread(pid))).join(below);
    let folder = inside.parent().filter(|_| inside.exists());
    let (Some(folder), Some(last)) = (folder, inside.file_name()) else {
        return Ok(Client::join(name, link, 0)?);
    };
    let folder = File::open(folder)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(last);
    Ok(Client::join(&short, link, 0)?)
}

impl RunningSession {
    /// Which handles are not what the shadow thinks, in the frozen job.
    fn untold(&self) -> Result<Vec<u8>, SessionError> {
        let read = |at: usize| -> Result<Vec<u64>, SessionError> {
            let mut bytes = vec![0; size_of::<Handles>()];
            self.table.read_exact_at(&mut bytes, at as u64)?;
            Ok(Handles::read(&bytes))
        };
        let closed = read(offset_of!(Table, closing))?;
        let taken = read(offset_of!(Table, taken))?;
        let all = [closed.len() as u64].into_iter().chain(closed).chain(taken);
        Ok(all.flat_map(u64::to_le_bytes).collect())
    }
}

impl JobSession for RunningSession {
    fn mark(&mut self) -> Result<Vec<u8>, SessionError> {
        let state = self.client.ask(&Request::Mark(Mark {}), &self.untold()?);
        state.map_err(|failure| failure.to_string().into())
    }

    fn used(&mut self, used: &ProcessUsed) -> Result<(), SessionError> {
        let amount = |used: &Used| Amount {
            runtime_ns: used.runtime_ns,
            usage: used.usage,
        };
        let threads = used.threads.iter().map(|thread| ThreadAmount {
            tid: thread.tid,
            data: thread.fs_base,
            amount: amount(&thread.used),
        });
        let all = [amount(&used.itself), amount(&used.children)];
        self.mapped.used.note(self.copy, used.pid, &all, threads);
        Ok(())
    }

    fn goes_on(&mut self) {
        self.gate = None;
    }

    fn away(&mut self) -> Result<Option<Arc<dyn Away>>, SessionError> {
        let sender = self.carries.clone().filter(|_| self.stays.is_none());
        let Some(sender) = sender else {
            return Ok(None);
        };
        // A line that takes nothing would keep the job's starter from ending with it.
        self.client.ends_with(self.pid)?;
        self.has_contents = true;
        Ok(Some(sender))
    }

    fn carry(&mut self, image: &Path) -> Result<(), SessionError> {
        let Some(sender) = &self.carries else {
            return Ok(());
        };
        if !self.has_contents {
            // As above.
            self.client.ends_with(self.pid)?;
        }
        let image = Image::open(image)?;
        let (file, header) = (image.file(), image.header());
        let contents = header.section(SectionKind::Pages);
        let contents = contents.offset..contents.offset + contents.len;
        sender.put_file(file, 0..contents.start)?;
        if !self.has_contents {
            sender.put_file(file, contents.clone())?;
        }
        sender.put_file(file, contents.end..header.image_len)?;
        sender.end(header.image_len)?;
        // It counts where it was brought, if we live to say so.
        leftovers::hold();
        leftovers::remove_no_more();
        Ok(())
    }

    fn may_leave(&mut self) -> Result<(), SessionError> {
        match self.stays.is_some() && !self.is_kept {
            true => {
                // It goes on here, and so does what it writes.
                let _ = self.gate.as_ref().map(Gate::stay);
                Err(NOT_KEPT.into())
            }
            false => Ok(()),
        }
    }

    fn kills(&mut self) {
        // If it cannot be said, it was not said before, either.
        let _ = self.gate.as_ref().map(|gate| gate.leave(true));
    }

    fn settle(&mut self, committed: bool) {
        if let Some(gate) = self.gate.as_ref().filter(|_| committed && self.leaves)
            && let Err(error) = gate.leave(false)
        {
            // It is done once more when the job goes on.
            tell(&format!(
                "what the job has written last is sent to the shadow, although the image has it: {error}"
            ));
        }
        if committed && self.leaves {
            fault::checkpoint("left");
        }
        let settle = Request::Settle(Settle { committed });
        let settled = self.client.ask(&settle, &self.needed);
        self.has_settled = committed && settled.is_ok();
        if let (true, Some(stream), Some(sender)) = (self.has_settled, &self.stays, &self.carries) {
            let told = (&*stream).write_all(&end_said(None));
            self.is_kept = told.is_ok() && sender.is_good_again(KEPT_WITHIN);
        }
        if let Err(failure) = settled {
            // It keeps one mark too many.
            tell(&format!(
                "the shadow was not told what became of the checkpoint: {failure}"
            ));
        }
    }
}
