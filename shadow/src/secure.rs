//! A TCP port on which lines come, through TLS whose other end has the one certificate that was made for it.

use crate::carried::{CarryError, Taker, carry, introduce};
use crate::crowd::{Crowd, Stranger};
use crate::listen::{REST, passes};
use crate::sessions::Sessions;
use line::{Acceptor, Preface, SecureError};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use wire::Token;

/// Lines at once, all with the certificate. A starter has one; another is one that was lost and not noticed yet.
const MOST_LINES: usize = 1024;

/// Listens on a TCP port.
#[derive(Debug)]
pub struct SecureServer {
    listener: TcpListener,
    acceptor: Acceptor,
    token: Token,
    sessions: Arc<Sessions>,
}

#[derive(Debug, thiserror::Error)]
enum LineError {
    #[error("a connection is refused")]
    Secure(#[from] SecureError),
    #[error("a line has ended")]
    Carry(#[from] CarryError),
}

impl SecureServer {
    /// Listens where `listener` does. Whoever comes through `acceptor` is told the token.
    #[must_use]
    pub fn new(
        listener: TcpListener,
        acceptor: Acceptor,
        token: Token,
        sessions: Sessions,
    ) -> Self {
        let sessions = Arc::new(sessions.of_lines());
        sessions.watch();
        SecureServer {
            listener,
            acceptor,
            token,
            sessions,
        }
    }

    /// Serves every line in a thread of its own, until the socket fails.
    ///
    /// # Errors
    /// What accept(2) says, but for what passes.
    pub fn run(&self) -> io::Result<()> {
        let strangers = Arc::new(Crowd::default());
        let lines = Arc::new(AtomicUsize::new(0));
        loop {
            let (socket, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if passes(&error) => {
                    tracing::warn!(%error, "no further connection can be accepted now");
                    std::thread::sleep(REST);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Some(stranger) = strangers.enter() else {
                tracing::warn!(%from, "a connection is refused: too many have not said who they are");
                continue;
            };
            let lines = lines.clone();
            let acceptor = self.acceptor.clone();
            let (token, sessions) = (self.token, self.sessions.clone());
            let spawned = std::thread::Builder::new().spawn(move || {
                let served = serve(socket, &acceptor, token, &sessions, stranger, &lines);
                if let Err(error) = served {
                    let error: &dyn std::error::Error = &error;
                    tracing::info!(%from, error);
                }
            });
            if let Err(error) = spawned {
                tracing::warn!(%error, %from, "a connection is refused: no thread for it");
            }
        }
    }

    /// Where it listens.
    ///
    /// # Errors
    /// As getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// One more, until it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn count(all: &Arc<AtomicUsize>) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Counted(all.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn serve(
    socket: TcpStream,
    acceptor: &Acceptor,
    token: Token,
    sessions: &Arc<Sessions>,
    stranger: Stranger,
    lines: &Arc<AtomicUsize>,
) -> Result<(), LineError> {
    let mut line = acceptor.accept(socket)?;
    drop(stranger);
    if lines.load(Ordering::Relaxed) >= MOST_LINES {
        tracing::warn!("a line is refused: one too many");
        return Ok(());
    }
    let _counted = Counted::count(lines);
    let preface = Preface {
        token,
        environment: None,
    };
    // A job that was started by hand has its input and output where it was started.
    let taker: Arc<Taker> = Arc::new(|_, _| {});
    introduce(&mut line, &preface)?;
    Ok(carry(line, sessions, &taker)?)
}
