//! Between two images of a job that is about to move, somebody holds what tells which memory it writes to ([`ckpt_lib::watch`]): each image is made by
//! a command of its own.
//!
//! ```text
//! checkpoint --begins--> watcher: nobody's child, listens in the job's folder
//! the next checkpoint --connects--> gets the descriptor, and the watcher ends
//! ```
//! It ends with the job, too, and when nobody comes for a while: then nothing is watched any more. Whoever finds none reads all memory.

use crate::args::Watcher;
use crate::identity::{from_hex, to_hex};
use crate::report::{Exit, Explain, Failure, Outcome};
use crate::rights::{Executes, keep_those_about_files};
use crate::sys;
use ckpt_lib::watch::Watch;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::{self, File};
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// So long the next image is waited for: each write to a page for the first time takes a little longer meanwhile.
const WITHIN_S: i64 = 600;
/// A watcher that is there answers at once, if its machine lets it.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
const NAME: &str = "watch";
const ID_LEN: usize = 32;

/// Has the job of this folder be watched until its next image.
///
/// # Errors
/// There is no process for it; then it is not watched any more.
pub(crate) fn leave(folder: &Path, pid: i32, watch: Watch) -> Outcome<()> {
    let place = Place::of(folder)?;
    let _ = fs::remove_file(place.path());
    let listener = UnixListener::bind(place.path())?;
    let image = to_hex(&watch.image());
    // Without close-on-exec.
    let handed = nix::unistd::dup(watch.as_fd())?;
    let mut command = Command::new("/proc/self/exe");
    command.args(["watcher", "--image", &image]);
    command.args(["--userfaultfd", &handed.as_raw_fd().to_string()]);
    command.args(["--process", &pid.to_string(), "--folder"]);
    command.arg(folder);
    command.stdin(OwnedFd::from(listener));
    command.stdout(sys::nothing()?).stderr(sys::nothing()?);
    let mut watcher = command
        .spawn()
        .context(|| "no watcher can be begun".to_owned())?;
    watcher.wait()?;
    Ok(())
}

/// What watches a job, if anything does; the caller's from now on.
pub(crate) fn take(folder: &Path) -> Option<Watch> {
    let place = Place::of(folder).ok()?;
    let stream = UnixStream::connect(place.path()).ok()?;
    stream.set_read_timeout(Some(ANSWERS_WITHIN)).ok()?;
    let mut image = [0; ID_LEN];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let mut parts = [IoSliceMut::new(&mut image)];
    let came = recvmsg(&stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
    let userfaultfd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut found) => found.next(),
        _ => None,
    });
    // Until it has none any more: only who has the last one can end the watch.
    let _ = (&stream).read(&mut [0]);
    match userfaultfd {
        Some(userfaultfd) if came.bytes == ID_LEN => Some(Watch::taken_over(userfaultfd, image)),
        _ => None,
    }
}

/// `wayfarer watcher`.
pub(crate) fn watch(what: &Watcher) -> Outcome {
    keep_those_about_files(&[], Executes::Nothing)?;
    let listener = UnixListener::from(io::stdin().as_fd().try_clone_to_owned()?);
    let missing = || Failure::new(Exit::Failed, "what watches the job is not handed down");
    let userfaultfd = sys::inherited(what.userfaultfd).ok_or_else(missing)?;
    let process = Pid::from_raw(what.process).ok_or_else(missing)?;
    let process = pidfd_open(process, PidfdFlags::empty())?;
    let image = from_hex(&what.image).filter(|image| image.len() == ID_LEN);
    let image = image.ok_or_else(missing)?;
    nix::unistd::daemon(false, false).context(|| "no process for the watcher".to_owned())?;
    let name = what.folder.join(NAME);
    hand_over(&listener, &process, userfaultfd, &image, &name)?;
    Ok(Exit::Done)
}

/// Waits for the next checkpoint, or for the job's end. When it returns we do not hold it any more: whoever has come in vain finds nothing watched.
fn hand_over(
    listener: &UnixListener,
    process: &OwnedFd,
    userfaultfd: OwnedFd,
    image: &[u8],
    name: &Path,
) -> io::Result<()> {
    let within = Timespec {
        tv_sec: WITHIN_S,
        tv_nsec: 0,
    };
    let mut fds = [
        PollFd::new(listener, PollFlags::IN),
        PollFd::new(process, PollFlags::IN),
    ];
    let came = poll(&mut fds, Some(&within)).is_ok() && !fds[0].revents().is_empty();
    let is_over = !fds[1].revents().is_empty();
    if is_over || !came {
        drop(userfaultfd);
        let _ = fs::remove_file(name);
        return Ok(());
    }
    // Before anybody can begin another of this name. The job's folder is its owner's alone.
    let _ = fs::remove_file(name);
    let (stream, _) = listener.accept()?;
    let descriptors = [userfaultfd.as_fd()];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(
        &stream,
        &[IoSlice::new(image)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    // Only then does the stream end.
    drop(userfaultfd);
    Ok(())
}

/// Where a watcher listens; a name that is short enough for it, as long as this is there.
struct Place(File);

impl Place {
    fn of(folder: &Path) -> io::Result<Self> {
        File::open(folder).map(Place)
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd())).join(NAME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A watcher in a thread, of this process, that holds a file.
    fn watcher(folder: &Path, pid: u32) -> std::thread::JoinHandle<io::Result<()>> {
        let listener = UnixListener::bind(Place::of(folder).expect("is there").path());
        let listener = listener.expect("binds");
        let process = Pid::from_raw(pid.cast_signed()).expect("a process");
        let process = pidfd_open(process, PidfdFlags::empty()).expect("lives");
        let held = OwnedFd::from(File::open(folder).expect("opens"));
        let name = folder.join(NAME);
        std::thread::spawn(move || hand_over(&listener, &process, held, &[7; ID_LEN], &name))
    }

    #[test]
    fn whoever_makes_the_next_image_gets_what_is_held() {
        let folder = tempfile::tempdir().expect("a folder");
        let deep = folder.path().join("d".repeat(200));
        fs::create_dir(&deep).expect("is made");
        assert!(take(&deep).is_none(), "nobody is there");
        let watcher = watcher(&deep, std::process::id());
        let watch = take(&deep).expect("is held");
        assert_eq!(watch.image(), [7; ID_LEN]);
        let held = fs::read_link(format!("/proc/self/fd/{}", watch.as_fd().as_raw_fd()));
        assert_eq!(
            held.expect("is open"),
            fs::canonicalize(&deep).expect("is there")
        );
        watcher.join().expect("ends").expect("hands over");
        assert!(take(&deep).is_none(), "it has ended");
    }

    #[test]
    fn it_ends_with_the_job() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut job = Command::new("sleep").arg("1000").spawn().expect("runs");
        let watcher = watcher(folder.path(), job.id());
        job.kill().expect("is there");
        job.wait().expect("ends");
        watcher
            .join()
            .expect("ends")
            .expect("has nobody to hand over to");
        assert!(take(folder.path()).is_none());
    }
}
