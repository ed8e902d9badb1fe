//! The folder of a copy whose life is elsewhere: its record, its image, its sockets; for as long as it is there.

use super::arrival;
use crate::jobs::{AWAY, JobStore};
use crate::report::{Exit, Explain, Outcome};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LOCK: &str = ".lock";
/// Where images come.
const ARRIVED: &str = "arrived";
/// How long one that is killed may take to be gone.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// A folder that nobody holds is somebody's who is about to hold it, for so long.
const MADE_WITHIN: Duration = Duration::from_secs(60);

/// See the module. It is removed when it is dropped, and by the next one if we are killed.
pub(crate) struct Private {
    dir: PathBuf,
    /// Held as long as we live.
    _lock: Flock<File>,
}

impl Private {
    /// Makes it, ends the copy whose id is `instead_of`, and removes what others beside it have left that were killed.
    pub(crate) fn make(store: &JobStore, instead_of: Option<&str>) -> Outcome<Self> {
        let dir = store.dir().to_owned();
        let describe = || format!("no folder for the job ({})", crate::raw::shown_path(&dir));
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o700).recursive(true);
        builder.create(&dir).context(describe)?;
        let lock = lock(&dir).context(describe)?.ok_or_else(|| {
            crate::report::Failure::from(io::Error::from(io::ErrorKind::ResourceBusy))
        });
        let lock = lock.context(describe)?;
        let mut held = &*lock;
        let noted = writeln!(held, "{}", std::process::id());
        noted.context(describe)?;
        if let Some(old) = instead_of {
            end(&dir.with_file_name(format!("{AWAY}{old}")));
        }
        sweep(&dir);
        Ok(Private { dir, _lock: lock })
    }

    /// Gives back the disk that images which have come take. A job that runs needs them no more, and one that leaves is not to wait for it.
    pub(crate) fn give_back(&self) -> impl FnOnce() + Send + 'static {
        let dir = self.dir.join(ARRIVED);
        move || {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                // Where that cannot be they stay until the folder goes.
                let _ = ckpt_lib::image::leave_tables(&entry.path());
            }
        }
    }

    /// An image that comes, behind those that it is based on (see [`super::arrival`]).
    pub(crate) fn receive(&self, input: &mut dyn Read, seat: Option<Seat<'_>>) -> Outcome<PathBuf> {
        let dir = self.dir.join(ARRIVED);
        let describe = || {
            format!(
                "the image cannot be brought here ({})",
                crate::raw::shown_path(&dir)
            )
        };
        let made = fs::DirBuilder::new().mode(0o700).create(&dir);
        made.context(describe).exit(Exit::Lost)?;
        let mut first = None;
        let mut nobody = |_: &Path| {};
        let mut came: &mut dyn FnMut(&Path) = &mut nobody;
        if let Some(seat) = seat {
            let received = arrival::receive_first(&dir, seat.files, input);
            first = received.context(describe).exit(Exit::Lost)?;
            if let Some(first) = &first {
                (seat.fits)(first)?;
            }
            arrival::say_fits(seat.answers).context(describe)?;
            came = seat.came;
            if let Some(first) = &first {
                came(first);
            }
        }
        let received = arrival::receive(&dir, first, input, came);
        received.context(describe).exit(Exit::Lost)
    }
}

/// The job still runs elsewhere, and is to know whether it can go on here.
pub(crate) struct Seat<'a> {
    /// So many files come first.
    pub(crate) files: u32,
    /// Whether this machine has what the last of them needs.
    pub(crate) fits: &'a dyn Fn(&Path) -> Outcome<()>,
    /// Where that is said.
    pub(crate) answers: &'a mut dyn Write,
    /// Called with the last of those that come first, and with each that comes behind.
    pub(crate) came: &'a mut dyn FnMut(&Path),
}

impl Drop for Private {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// None if somebody else has it.
fn lock(dir: &Path) -> io::Result<Option<Flock<File>>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600);
    let file = options.open(dir.join(LOCK))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(errno.into()),
    }
}

/// Ends the copy that has this folder: its supervisor and the job end with who holds it.
fn end(dir: &Path) {
    let begun = Instant::now();
    while dir.join(LOCK).exists() && begun.elapsed() < ENDS_WITHIN {
        match lock(dir) {
            Ok(Some(_held)) => {
                let _ = fs::remove_dir_all(dir);
                return;
            }
            Ok(None) => {
                let text = fs::read_to_string(dir.join(LOCK)).unwrap_or_default();
                let holder = text.trim().parse().ok().filter(|pid| *pid > 1);
                if let Some(pid) = holder {
                    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
                }
            }
            Err(_) => return,
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Removes what is nobody's beside this folder.
fn sweep(own: &Path) {
    let entries = own.parent().and_then(|parent| fs::read_dir(parent).ok());
    for entry in entries.into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let is_private = name.to_string_lossy().starts_with(AWAY);
        let made = path.metadata().and_then(|found| found.modified());
        let is_old = made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > MADE_WITHIN));
        if path == own || !is_private || !is_old || !path.join(LOCK).exists() {
            continue;
        }
        if let Ok(Some(_held)) = lock(&path) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(dir: &Path, name: &str) -> Private {
        let store = JobStore::locate(Some(&dir.join(name))).expect("a place");
        Private::make(&store, None).expect("is made")
    }

    #[test]
    fn whoever_comes_instead_of_another_ends_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let old = dir.path().join("away-old");
        fs::create_dir(&old).expect("is made");
        let mut holder = std::process::Command::new("flock")
            .arg("--no-fork")
            .arg(old.join(LOCK))
            .args(["sh", "-c", "echo $$ >\"$0\"; echo held; exec sleep 60 >&-"])
            .arg(old.join(LOCK))
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("runs");
        let mut said = [0; 5];
        let out = holder.stdout.as_mut().expect("a pipe");
        out.read_exact(&mut said).expect("is said");
        let text = fs::read_to_string(old.join(LOCK)).expect("is there");
        assert_eq!(text.trim(), holder.id().to_string());
        let store = JobStore::locate(Some(&dir.path().join("away-new"))).expect("a place");
        let made = Private::make(&store, Some("old")).expect("is made");
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(holder.wait().expect("ends").signal(), Some(9));
        assert!(!old.exists());
        drop(made);
    }

    #[test]
    fn it_goes_with_its_holder_and_so_does_what_a_killed_one_has_left() {
        let dir = tempfile::tempdir().expect("a folder");
        let old = dir.path().join("away-killed");
        fs::create_dir(&old).expect("is made");
        fs::write(old.join(LOCK), "").expect("is made");
        let unlocked = dir.path().join("other");
        fs::create_dir(&unlocked).expect("is made");
        let held = make(dir.path(), "away-held");
        let long_ago = std::time::SystemTime::now() - 2 * MADE_WITHIN;
        for one in [&old, &held.dir, &unlocked] {
            let folder = File::open(one).expect("is there");
            folder.set_modified(long_ago).expect("is set");
        }
        let own = make(dir.path(), "away-own");
        assert!(!old.exists() && held.dir.exists() && unlocked.exists());
        let mut comes = &b"\x01i\x05\0\0\0\0\0\0\x0012345\0"[..];
        let path = own.receive(&mut comes, None).expect("comes");
        assert_eq!(fs::read(path).expect("is there"), b"12345");
        let dir = own.dir.clone();
        drop(own);
        assert!(!dir.exists());
    }

    #[test]
    fn an_image_that_is_cut_off_is_none() {
        let dir = tempfile::tempdir().expect("a folder");
        let own = make(dir.path(), "away-own");
        let mut comes = &b"\x01i\x05\0\0\0\0\0\0\x00123"[..];
        let failure = own.receive(&mut comes, None).expect_err("is cut");
        let text = failure.to_string();
        assert!(text.contains("found 3 bytes, expected 5"), "{text}");
    }
}
