//! Where shims knock: a socket in a folder that nobody else can enter ([`Folder`]), and the token beside it, as a shadow leaves them.

use crate::folder::{Folder, FolderKind};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use wire::Token;

/// What the socket is called.
pub(crate) const SOCKET: &str = "shadow";
/// A name of a socket has no more, with the NUL behind it.
const MOST_NAME: usize = 107;

/// There is no place for the socket.
#[derive(Debug, thiserror::Error)]
#[error("no folder for a private socket (tried: {tried})")]
pub struct DoorError {
    tried: String,
}

/// See the module. It is removed when dropped.
#[derive(Debug)]
pub struct Door {
    folder: Folder,
    socket: PathBuf,
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
        let folder = Folder::make_in(place, FolderKind::Doors)?;
        let socket = folder.path().join(SOCKET);
        if socket.as_os_str().len() > MOST_NAME {
            return Err(io::ErrorKind::InvalidFilename.into());
        }
        let door = Door { folder, socket };
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
        self.folder.path().join("again")
    }

    fn token_path(&self) -> PathBuf {
        self.folder.path().join("shadow.token")
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
        assert_eq!(mode(door.folder.path()), 0o700);
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
}
