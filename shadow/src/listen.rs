//! A unix socket on which streams come.
// The socket is no file of a job's.
#![allow(clippy::disallowed_methods)]

use crate::connection::{Incoming, StreamError, greet, serve};
use crate::crowd::{Crowd, Stranger};
use crate::peer::Local;
use crate::sessions::Sessions;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A peer must have said who it is by then.
const HELLO_WITHIN: Duration = Duration::from_secs(10);
/// How long to wait when no more streams can be accepted, until some have ended.
pub(crate) const REST: Duration = Duration::from_millis(50);

/// A socket cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {}", path.display())]
pub struct ListenError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Listens on a unix socket, whose streams must come from processes of the same user.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: Option<PathBuf>,
    sessions: Arc<Sessions>,
}

impl Server {
    /// On a socket that is somebody else's to remove.
    #[must_use]
    pub fn of(listener: UnixListener, sessions: Sessions) -> Self {
        Self::new(listener, None, sessions)
    }

    fn new(listener: UnixListener, path: Option<PathBuf>, sessions: Sessions) -> Self {
        let sessions = Arc::new(sessions);
        sessions.watch();
        Server {
            listener,
            path,
            sessions,
        }
    }

    /// Whom it serves.
    #[must_use]
    pub fn sessions(&self) -> &Arc<Sessions> {
        &self.sessions
    }

    /// Makes the socket, with mode 0600. One that nobody listens on any more is replaced.
    ///
    /// # Errors
    /// [`ListenError`], also if something else is there already.
    pub fn bind(path: &Path, sessions: Sessions) -> Result<Self, ListenError> {
        let bound = listen(path).and_then(|listener| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
            Ok(listener)
        });
        match bound {
            Ok(listener) => Ok(Self::new(listener, Some(path.to_owned()), sessions)),
            Err(source) => Err(ListenError {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// Removes the socket's name: nobody finds it any more.
    pub fn remove_socket(&self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Serves every stream in a thread of its own, until the socket fails.
    ///
    /// # Errors
    /// What accept(2) says, but for what passes.
    pub fn run(&self) -> io::Result<()> {
        let strangers = Arc::new(Crowd::default());
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if passes(&error) => {
                    tracing::warn!(%error, "no further stream can be accepted now");
                    std::thread::sleep(REST);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if !is_own(&stream) {
                tracing::info!("a stream of another user is refused");
                continue;
            }
            let Some(stranger) = strangers.enter() else {
                tracing::warn!("a stream is refused: too many have not said who they are");
                continue;
            };
            let sessions = self.sessions.clone();
            let spawned = std::thread::Builder::new().spawn(move || {
                if let Err(error) = converse(stream, &sessions, stranger) {
                    let error: &dyn std::error::Error = &error;
                    tracing::info!(error, "a stream has ended");
                }
            });
            if let Err(error) = spawned {
                tracing::warn!(%error, "a stream is refused: no thread for it");
            }
        }
    }
}

/// A shadow that was killed leaves its socket behind.
fn listen(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let socket = std::fs::symlink_metadata(path)?.file_type().is_socket();
            let left = UnixStream::connect(path)
                .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
            if !socket || !left {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        bound => bound,
    }
}

fn converse(
    stream: UnixStream,
    sessions: &Arc<Sessions>,
    stranger: Stranger,
) -> Result<(), StreamError> {
    let mut incoming = Incoming::new();
    stream.set_read_timeout(Some(HELLO_WITHIN))?;
    let mut stream = Local::new(stream);
    let Some(membership) = greet(&mut stream, &mut incoming, sessions)? else {
        return Ok(());
    };
    drop(stranger);
    stream.stream().set_read_timeout(None)?;
    serve(&mut stream, &mut incoming, &membership)
}

fn is_own(stream: &UnixStream) -> bool {
    let peer = rustix::net::sockopt::socket_peercred(stream);
    peer.is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// Too many descriptors or too little memory, now; or a peer that has gone meanwhile.
pub(crate) fn passes(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let passing = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOBUFS,
        Errno::NOMEM,
        Errno::CONNABORTED,
        Errno::INTR,
        Errno::PROTO,
    ];
    Errno::from_io_error(error).is_some_and(|errno| passing.contains(&errno))
}
