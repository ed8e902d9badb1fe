//! Where shims knock: a socket in a folder that nobody else can enter, and the token beside it, as a shadow leaves them.
//!
//! Whoever has made one holds a lock on its folder; so what somebody has left who was killed is known, and the next takes it away.

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use rustix::rand::{GetRandomFlags, getrandom};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::Token;

/// A name of a socket has no more, with the NUL behind it.
const MOST_NAME: usize = 107;
/// What folders are called; 16 digits follow.
const PREFIX: &str = "wayfarer-";
/// Nobody takes so long to give one its name.
const LONG: Duration = Duration::from_secs(3600);

/// There is no place for the socket.
#[derive(Debug, thiserror::Error)]
#[error("no folder for a private socket (tried: {tried})")]
pub struct DoorError {
    tried: String,
}

/// See the module. It is removed when dropped.
#[derive(Debug)]
pub struct Door {
    folder: PathBuf,
    socket: PathBuf,
    _lock: OwnedFd,
}

impl Door {
    /// Makes the folder in the first of `places` that allows it, and listens.
    ///
    /// # Errors
    /// [`DoorError`].
    pub fn make(places: &[PathBuf]) -> Result<(Self, UnixListener), DoorError> {
        let mut tried = vec![];
        for place in places {
            match Self::make_in(place) {
                Ok(made) => return Ok(made),
                Err(error) => tried.push(format!("{}: {error}", place.display())),
            }
        }
        let tried = tried.join("; ");
        Err(DoorError { tried })
    }

    fn make_in(place: &Path) -> io::Result<(Self, UnixListener)> {
        let mut random = [0; 8];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let name = format!("{PREFIX}{:016x}", u64::from_ne_bytes(random));
        let place = std::path::absolute(place)?;
        let folder = place.join(&name);
        let socket = folder.join("shadow");
        if socket.as_os_str().len() > MOST_NAME {
            return Err(io::ErrorKind::InvalidFilename.into());
        }
        sweep(&place);
        // It has its name when it has its lock, so nobody takes it for one that was left.
        let unnamed = place.join(format!(".{name}"));
        fs::DirBuilder::new().mode(0o700).create(&unnamed)?;
        let named = lock(&unnamed).and_then(|lock| {
            fs::rename(&unnamed, &folder)?;
            Ok(lock)
        });
        let lock = named.inspect_err(|_| drop(fs::remove_dir(&unnamed)))?;
        let door = Door {
            folder,
            socket,
            _lock: lock,
        };
        // Between bind and chmod the folder is all that protects it.
        let listener = UnixListener::bind(&door.socket)?;
        fs::set_permissions(&door.socket, fs::Permissions::from_mode(0o600))?;
        Ok((door, listener))
    }

    /// The socket's name.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Lets those in who can read the folder.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn admit(&self, token: &Token) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options.open(self.token_path())?.write_all(token)
    }

    /// Listens where another line may be handed over (`reattach`), and says where that is.
    ///
    /// # Errors
    /// As bind(2).
    pub fn listen_again(&self) -> io::Result<(UnixListener, PathBuf)> {
        let place = self.again_path();
        let listener = UnixListener::bind(&place)?;
        fs::set_permissions(&place, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok((listener, place))
    }

    fn again_path(&self) -> PathBuf {
        self.folder.join("again")
    }

    fn token_path(&self) -> PathBuf {
        self.folder.join("shadow.token")
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

fn remove(folder: &Path) {
    for file in ["shadow.token", "again", "shadow"] {
        let _ = fs::remove_file(folder.join(file));
    }
    let _ = fs::remove_dir(folder);
}

/// A lock that goes with whoever has it.
fn lock(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    let fd = openat(CWD, folder, flags, Mode::empty())?;
    flock(&fd, FlockOperation::NonBlockingLockExclusive)?;
    Ok(fd)
}

/// Takes away what was left by others of the same user that were killed.
fn sweep(place: &Path) {
    let own = rustix::process::geteuid().as_raw();
    let is_ours = |name: &str| {
        let digits = name.strip_prefix(PREFIX);
        digits.is_some_and(|digits| digits.len() == 16 && u64::from_str_radix(digits, 16).is_ok())
    };
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let folder = entry.path();
        // One without a name yet, whose maker was killed long ago, is empty.
        if entry
            .file_name()
            .to_str()
            .and_then(|name| name.strip_prefix('.'))
            .is_some_and(is_ours)
        {
            let made = entry.metadata().and_then(|found| found.modified());
            if made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > LONG)) {
                let _ = fs::remove_dir(&folder);
            }
            continue;
        }
        if !entry.file_name().to_str().is_some_and(is_ours)
            || !fs::symlink_metadata(&folder)
                .is_ok_and(|found| found.is_dir() && found.uid() == own)
        {
            continue;
        }
        let Ok(_lock) = lock(&folder) else { continue };
        // One of a version that had no lock.
        if UnixStream::connect(folder.join("shadow")).is_err() {
            remove(&folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_is_private_and_leaves_nothing() {
        let place = tempfile::tempdir().expect("a folder");
        let places = ["/nonexistent".into(), place.path().to_owned()];
        let (door, _listener) = Door::make(&places).expect("is made");
        door.admit(&[3; 32]).expect("is written");
        let (_again, there) = door.listen_again().expect("listens");
        let mode = |path: &Path| {
            let metadata = fs::metadata(path).expect("is there");
            metadata.permissions().mode() & 0o7777
        };
        assert_eq!(mode(&door.folder), 0o700);
        assert_eq!(mode(door.socket()), 0o600);
        assert_eq!(mode(&door.token_path()), 0o600);
        assert_eq!(mode(&there), 0o600);
        drop(door);
        let count = || fs::read_dir(place.path()).expect("lists").count();
        assert_eq!(count(), 0);
        let long = place.path().join("x".repeat(90));
        fs::create_dir(&long).expect("is made");
        let error = Door::make(&[long]).expect_err("is too long");
        assert!(error.to_string().contains("invalid filename"), "{error}");
    }

    #[test]
    fn what_somebody_has_left_who_was_killed_goes() {
        let place = tempfile::tempdir().expect("a folder");
        let places = [place.path().to_owned()];
        let names = || {
            let entries = fs::read_dir(place.path()).expect("lists").flatten();
            let mut names: Vec<_> = entries.map(|entry| entry.path()).collect();
            names.sort();
            names
        };
        let (living, _listener) = Door::make(&places).expect("is made");
        let (dead, listener) = Door::make(&places).expect("is made");
        dead.admit(&[3; 32]).expect("is written");
        let left = dead.folder.clone();
        // As the kernel does.
        drop(listener);
        let unlocked = std::mem::ManuallyDrop::new(dead);
        flock(&unlocked._lock, FlockOperation::Unlock).expect("unlocks");
        for other in ["wayfarer-0123", "wayfarer-000000000000000g", "another"] {
            fs::create_dir(place.path().join(other)).expect("is made");
        }
        assert_eq!(names().len(), 5);
        let (next, _other) = Door::make(&places).expect("is made");
        assert!(!left.exists());
        assert!(living.socket().exists() && next.socket().exists());
        assert_eq!(names().len(), 5);
    }
}
