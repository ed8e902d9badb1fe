//! The socket behind which a shadow is: its own, or that of a starter or a shadow which is begun for the purpose.
//!
//! ```text
//! run ──begins──> starter ──(a session of its own, nobody's child)──> line ──> shadow
//!  `──executes──> loader, job ──streams──^     ends with the last of them
//! ```
//! # What callers may rely on
//! The starter holds nothing that is the job's, hears no signal of its terminal, and is no child of the job or its supervisor.

use crate::address::Address;
use crate::jobs::JobStore;
use crate::report::{Exit, Explain, Failure, Outcome};
use crate::sys;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Begins what a starter says that is an error.
pub(crate) const ERROR_MARK: u8 = b'!';

/// The socket. `fallback` is a folder that is there whatever else is not.
pub(crate) fn socket(
    address: &Address,
    identity: Option<&Path>,
    fallback: &Path,
    lease: Duration,
) -> Outcome<PathBuf> {
    match address {
        Address::Unix(path) => Ok(path.clone()),
        Address::Tls { .. } => {
            let identity = identity.ok_or_else(|| {
                let message =
                    format!("{address} needs --identity-file, which the shadow has written");
                Failure::new(Exit::Usage, message)
            })?;
            begin_starter(address, identity, fallback, lease)
        }
        Address::Stdio => {
            let message = "a shadow on stdio cannot be reached from here";
            Err(Failure::new(Exit::Usage, message))
        }
    }
}

fn begin_starter(
    address: &Address,
    identity: &Path,
    fallback: &Path,
    lease: Duration,
) -> Outcome<PathBuf> {
    let mut starter = Command::new("/proc/self/exe");
    starter
        .args([
            OsString::from("starter"),
            "--shadow".into(),
            address.to_string().into(),
        ])
        .arg("--identity-file")
        .arg(std::path::absolute(identity)?)
        .arg("--fallback")
        .arg(fallback)
        .args(["--lease", &format!("{}s", lease.as_secs().max(1))]);
    begin(starter, &format!("starter for {address}"))
}

/// How long calls wait for a shadow at home: nobody starts one again that was killed.
pub(crate) const HOME_LEASE: Duration = Duration::from_secs(10);

/// A shadow of the job's own on this machine, which keeps a journal of what is changed in files (docs/adr/0019). `job`: the job's directory, if it has a
/// starter.
pub(crate) fn home(
    store: &JobStore,
    journal_max: Option<u64>,
    job: Option<&Path>,
) -> Outcome<PathBuf> {
    let mut home = Command::new("/proc/self/exe");
    home.arg("--dir").arg(store.dir()).arg("home");
    if let Some(most) = journal_max {
        home.arg(format!("--journal-max={most}"));
        if let Some(dir) = job {
            home.arg("--job").arg(dir);
        }
    }
    begin(home, "shadow at home")
}

/// Begins what becomes nobody's child and says where its socket is.
fn begin(mut command: Command, what: &str) -> Outcome<PathBuf> {
    let mut begun = command
        .stdin(sys::nothing()?)
        .stdout(Stdio::piped())
        .spawn()
        .context(|| format!("the {what} cannot be begun"))?;
    // What it says comes from its child, which is nobody's.
    let mut said = vec![];
    if let Some(mut out) = begun.stdout.take() {
        out.read_to_end(&mut said)?;
    }
    begun.wait()?;
    match said.split_first() {
        Some((&ERROR_MARK, message)) => {
            let message = String::from_utf8_lossy(message).into_owned();
            Err(Failure::new(Exit::Lost, message))
        }
        Some(_) => Ok(OsString::from_vec(said).into()),
        None => {
            let message = format!("the {what} has ended without a word");
            Err(Failure::new(Exit::Failed, message))
        }
    }
}

/// Folders in which a private socket may lie.
pub(crate) fn places(fallback: Option<&Path>) -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|path| path.is_absolute());
    let fixed = ["/tmp", "/dev/shm"].map(PathBuf::from);
    let fallback = fallback.map(Path::to_owned);
    runtime.into_iter().chain(fixed).chain(fallback).collect()
}

/// A name as the last thing that is said.
pub(crate) fn said(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
