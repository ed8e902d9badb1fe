//! `wayfarer shadow`: serves jobs' files from here.

use crate::address::Address;
use crate::args::{Shadow, Survives};
use crate::ckpt_server::Store;
use crate::identity::{IdentityFile, KeptKeys};
use crate::jobs::JobStore;
use crate::limits;
use crate::output;
use crate::report::{self, Exit, Explain, Failure, Outcome, chain, tell};
use crate::rights::{Executes, keep_those_about_files};
use crate::temporary::{self, Temporary};
use crate::verbs::kept;
use caps::Capability;
use line::{Acceptor, Keys, Line, Preface, Purpose};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use rustix::rand::{GetRandomFlags, getrandom};
use shadow::{
    Allowed, Domains, Durability, Foresight, Journals, Limits, Probe, SecureServer, Server,
    Sessions, State, StateError, Taker, carry, introduce,
};
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use tracing_subscriber::filter::LevelFilter;
use wire::Token;

/// Serves until it is ended by a signal; then its socket, token and identity file are removed. On stdio, until the job ends.
pub(crate) fn shadow(store: Option<&JobStore>, arguments: &Shadow) -> Outcome {
    report::log(LevelFilter::INFO);
    let more = match arguments.listen {
        // Whose job is still there is looked for in /proc.
        Address::Unix(_) => Capability::CAP_SYS_PTRACE,
        Address::Tls { .. } | Address::Stdio => Capability::CAP_NET_BIND_SERVICE,
    };
    keep_those_about_files(&[more], Executes::Nothing)?;
    let state = state(store, arguments)?;
    let mut token = new_token()?;
    if let Some(state) = &state {
        token = state.token(token)?;
    }
    let state_dir = state.as_ref().map(|state| state.dir().to_owned());
    let mut allowed = allowed(&arguments.allow)?;
    let images = images(arguments)?;
    if let Some(images) = &images {
        allowed.hide(images.dir())?;
    }
    let temporary = state_dir.as_deref().map(Temporary::in_folder);
    let temporary = temporary::cover(&mut allowed, temporary.unwrap_or_else(Temporary::of_now));
    let mut sessions = sessions(allowed, token, journals(arguments)?, store)?;
    sessions = sessions.in_domains(Domains {
        file_system: arguments.filesystem_domain.clone().unwrap_or_default(),
        uid: arguments.uid_domain.clone().unwrap_or_default(),
    });
    if let Some(images) = images {
        sessions = sessions.with_images(Arc::new(images));
    }
    if let Some(state) = state {
        // Of processes on another machine nothing is seen.
        let probe: Option<Box<Probe>> = match arguments.listen {
            Address::Unix(_) => Some(Box::new(kept::presence)),
            Address::Tls { .. } | Address::Stdio => None,
        };
        sessions = sessions.kept(state, probe)?;
    }
    let (sender, end) = mpsc::channel();
    end_by_signal(sender.clone())?;
    let left = match &arguments.listen {
        Address::Unix(socket) => listen_here(socket, sessions, token, sender)?,
        Address::Tls { host, port } => {
            let file = arguments.identity_file.as_deref().ok_or_else(|| {
                let message = "--listen tls:HOST:PORT needs --identity-file FILE";
                Failure::new(Exit::Usage, message)
            })?;
            let place = (host, *port);
            let files = (file, state_dir.as_deref());
            listen_securely(place, files, sessions, token, sender)?
        }
        Address::Stdio => serve_stdio(sessions, token, sender)?,
    };
    // Somebody has always ended it.
    let ended = end.recv();
    drop((left, temporary));
    ended.unwrap_or(Ok(()))?;
    Ok(Exit::Done)
}

fn images(arguments: &Shadow) -> Outcome<Option<Store>> {
    let Some(dir) = &arguments.images else {
        return Ok(None);
    };
    Store::open(dir, arguments.images_max, arguments.image_rate).map(Some)
}

/// Where sessions are kept. On stdio there is one job, and nobody who could start its shadow again.
fn state(store: Option<&JobStore>, arguments: &Shadow) -> Outcome<Option<State>> {
    if let Some(dir) = &arguments.state {
        return Ok(Some(State::open(dir)?));
    }
    if arguments.listen == Address::Stdio {
        return Ok(None);
    }
    if matches!(arguments.listen, Address::Tls { port: 0, .. }) {
        tell("jobs will end with this shadow: it listens on any port (--state DIR)");
        return Ok(None);
    }
    let opened = store.map(|store| State::open(&kept::default_dir(store, &arguments.listen)));
    match opened {
        Some(Ok(state)) => Ok(Some(state)),
        Some(Err(error @ StateError::InUse { .. })) => Err(error.into()),
        Some(Err(error)) => {
            let why = chain(&error);
            tell(&format!(
                "jobs will end with this shadow (--state DIR): {why}"
            ));
            Ok(None)
        }
        None => {
            let why = "neither --state nor XDG_STATE_HOME nor HOME is set";
            tell(&format!("jobs will end with this shadow: {why}"));
            Ok(None)
        }
    }
}

/// Files as it is allowed, with the modes and limits that a shadow has; what programs ask about as they begin is learnt in the store.
pub(crate) fn sessions(
    allowed: Allowed,
    token: Token,
    journals: Option<Journals>,
    store: Option<&JobStore>,
) -> Outcome<Sessions> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    // Modes come as the job's umask leaves them.
    nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    let limits = Limits::default();
    let sessions = match journals {
        Some(journals) => Sessions::journalled(allowed, token, limits, journals)?,
        None => Sessions::new(allowed, token, limits),
    };
    Ok(match store {
        Some(store) => sessions.with_foresight(Foresight::in_folder(store.dir().join("begins"))),
        None => sessions,
    })
}

/// What is removed when the shadow ends: dropped, no more.
#[allow(dead_code)]
enum Left {
    Socket(TokenFile, Socket),
    Identity(IdentityFile),
    Nothing,
}

struct Socket(Arc<Server>);

impl Drop for Socket {
    fn drop(&mut self) {
        self.0.remove_socket();
    }
}

type Ended = mpsc::Sender<Outcome<()>>;

fn listen_here(socket: &Path, sessions: Sessions, token: Token, ended: Ended) -> Outcome<Left> {
    let server = Arc::new(Server::bind(socket, sessions)?);
    let token_file = TokenFile::write(socket, &token)?;
    let left = Left::Socket(token_file, Socket(server.clone()));
    limits::thread(move || ended.send(server.run().map_err(Failure::from)))?;
    output::print(&format!("listening on unix:{}\n", socket.display()))?;
    Ok(left)
}

fn listen_securely(
    (host, port): (&String, u16),
    (file, state_dir): (&Path, Option<&Path>),
    sessions: Sessions,
    token: Token,
    ended: Ended,
) -> Outcome<Left> {
    let describe = || format!("cannot listen on port {port} of {host}");
    let kept = state_dir.map(KeptKeys::read).transpose()?.flatten();
    // A starter comes again to the port that there was.
    let port = match (&kept, port) {
        (Some(kept), 0) => kept.port,
        _ => port,
    };
    let listener = TcpListener::bind((host.as_str(), port)).context(describe)?;
    let port = listener.local_addr().context(describe)?.port();
    let address = Address::Tls {
        host: host.clone(),
        port,
    };
    let KeptKeys { ours, theirs, .. } = match kept {
        Some(kept) => kept,
        None => {
            let (ours, theirs) = (Keys::make()?, Keys::make()?);
            let made = KeptKeys { port, ours, theirs };
            state_dir.map_or(Ok(()), |dir| made.write(dir))?;
            made
        }
    };
    let acceptor = Acceptor::new(&ours, &theirs.certificate)?;
    let server = SecureServer::new(listener, acceptor, token, sessions);
    let identity = IdentityFile::write(file, &address.to_string(), &ours, &theirs)?;
    limits::thread(move || ended.send(server.run().map_err(Failure::from)))?;
    output::print(&format!("listening on {address}\n"))?;
    Ok(Left::Identity(identity))
}

/// The job's outputs have nowhere to go but to our standard error; its input is empty.
fn serve_stdio(sessions: Sessions, token: Token, ended: Ended) -> Outcome<Left> {
    let mut line = Line::plain(
        io::stdin().as_fd().try_clone_to_owned()?,
        io::stdout().as_fd().try_clone_to_owned()?,
    )?;
    let preface = Preface {
        token,
        environment: None,
    };
    let taker: Arc<Taker> = Arc::new(|purpose, mut stream| {
        if matches!(purpose, Purpose::Output | Purpose::Errors) {
            let _ = io::copy(&mut stream, &mut io::stderr());
        }
        if purpose == Purpose::Control {
            // Until the job has ended.
            let _ = io::copy(&mut stream, &mut io::sink());
        }
    });
    limits::thread(move || {
        let carried =
            introduce(&mut line, &preface).and_then(|_| carry(line, &Arc::new(sessions), &taker));
        ended.send(carried.map_err(Failure::from).exit(Exit::Lost))
    })?;
    Ok(Left::Nothing)
}

/// Waits for the signals that end a service; no other thread is to get them.
pub(crate) fn end_by_signal(sender: Ended) -> Outcome<()> {
    let ending = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM];
    let signals: SigSet = ending.into_iter().collect();
    signals.thread_block()?;
    limits::thread(move || {
        let waited = signals.wait().map(|_| ()).map_err(Failure::from);
        sender.send(waited)
    })
}

/// What was asked for; else the directory we are in, and the rest for reading.
pub(crate) fn allowed(asked: &[OsString]) -> Outcome<Allowed> {
    let mut allowed = Allowed::none();
    if asked.is_empty() {
        allowed.allow("/".into(), false)?;
        allowed.allow(std::env::current_dir()?, true)?;
    }
    for text in asked {
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
        .map(|dir| Journals::new(dir, durability))
        .transpose()?;
    let limited = |journals: Journals| match arguments.journal_max {
        Some(most) => journals.limited(most),
        None => journals,
    };
    Ok(journals.map(|journals| match arguments.keep_journals {
        true => limited(journals).kept(),
        false => limited(journals),
    }))
}

pub(crate) fn new_token() -> io::Result<Token> {
    let mut token = [0; 32];
    getrandom(&mut token, GetRandomFlags::empty())?;
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
            crate::raw::shown_path(socket)
        ))
    })?;
    Token::try_from(bytes).map_err(|bytes| {
        let found = bytes.len();
        let shown = crate::raw::shown_path(&path);
        tell(&format!("{shown}: a token of {found} bytes, expected 32"));
        io::Error::from(io::ErrorKind::InvalidData).into()
    })
}
