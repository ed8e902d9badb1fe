//! `wayfarer shadow`: serves jobs' files from here.

use crate::address::Address;
use crate::args::{Shadow, Survives};
use crate::output;
use crate::report::{Exit, Failure, Outcome, tell};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use shadow::{Allowed, Durability, Journals, Limits, Server, Sessions};
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use wire::Token;

/// Serves until it is ended by a signal; then its socket and token are removed.
pub(crate) fn shadow(arguments: &Shadow) -> Outcome {
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(false)
        .with_target(false)
        .init();
    let allowed = allowed(arguments)?;
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    let Address::Unix(socket) = &arguments.listen;
    let token = new_token()?;
    let sessions = match journals(arguments)? {
        Some(journals) => Sessions::journalled(allowed, token, Limits::default(), journals)?,
        None => Sessions::new(allowed, token, Limits::default()),
    };
    let (sender, end) = mpsc::channel();
    end_by_signal(sender.clone())?;
    let server = Arc::new(Server::bind(socket, sessions)?);
    let token_file = TokenFile::write(socket, &token)?;
    // Modes come as the job's umask leaves them.
    nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    output::print(&format!("listening on {}\n", arguments.listen))?;
    let serving = server.clone();
    std::thread::spawn(move || sender.send(serving.run()));
    let ended = end.recv();
    drop(token_file);
    server.remove_socket();
    // Somebody has always ended it.
    ended.unwrap_or(Ok(()))?;
    Ok(Exit::Done)
}

/// Waits for the signals that end a service; no other thread is to get them.
fn end_by_signal(sender: mpsc::Sender<io::Result<()>>) -> Outcome<()> {
    let ending = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM];
    let signals: SigSet = ending.into_iter().collect();
    signals.thread_block()?;
    std::thread::spawn(move || {
        let waited = signals.wait().map(|_| ()).map_err(io::Error::from);
        sender.send(waited)
    });
    Ok(())
}

/// What was asked for; else the directory we are in, and the rest for reading.
fn allowed(arguments: &Shadow) -> Outcome<Allowed> {
    let mut allowed = Allowed::none();
    if arguments.allow.is_empty() {
        allowed.allow("/".into(), false)?;
        allowed.allow(std::env::current_dir()?, true)?;
    }
    for text in &arguments.allow {
        allowed.allow_text(text)?;
    }
    Ok(allowed)
}

fn journals(arguments: &Shadow) -> Outcome<Option<Journals>> {
    let durability = match arguments.journal_durability {
        Survives::Power => Durability::PowerLoss,
        Survives::Kill => Durability::Kill,
    };
    let journals = arguments
        .journal
        .as_ref()
        .map(|dir| Journals::new(dir, durability));
    Ok(journals.transpose()?)
}

fn new_token() -> io::Result<Token> {
    let mut token = [0; 32];
    fs::File::open("/dev/urandom")?.read_exact(&mut token)?;
    Ok(token)
}

/// Beside the socket, for the owner only.
struct TokenFile(PathBuf);

impl TokenFile {
    fn write(socket: &Path, token: &Token) -> io::Result<Self> {
        let path = token_path(socket);
        let _ = fs::remove_file(&path);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options.open(&path)?.write_all(token)?;
        Ok(TokenFile(path))
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Where a shadow leaves the token of those it serves.
pub(crate) fn token_path(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".token");
    name.into()
}

/// The token that a shadow on this socket wants.
pub(crate) fn read_token(socket: &Path) -> Outcome<Token> {
    let path = token_path(socket);
    let bytes = fs::read(&path).map_err(|error| {
        Failure::from(error).advise(format!(
            "wayfarer shadow --listen unix:{}",
            socket.display()
        ))
    })?;
    Token::try_from(bytes).map_err(|bytes| {
        let found = bytes.len();
        let shown = path.display();
        tell(&format!("{shown}: a token of {found} bytes, expected 32"));
        io::Error::from(io::ErrorKind::InvalidData).into()
    })
}
