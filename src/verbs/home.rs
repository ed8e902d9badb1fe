//! `wayfarer home`: a shadow for one job on the very machine that has its files, so that they go back with it. `run --journal` and `restart`
//! begin it; it is not for people.

use crate::args::Home;
use crate::jobs::JobStore;
use crate::limits;
use crate::reach::{self, ERROR_MARK};
use crate::remote::relief::when_nearly_full;
use crate::report::{self, Exit, Explain, Failure, Outcome};
use crate::rights::{Executes, keep_those_about_files};
use crate::sys;
use crate::verbs::shadow::{allowed, end_by_signal, new_token, sessions};
use shadow::{Durability, Journals, Server};
use starter::Door;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;
use tracing_subscriber::filter::LevelFilter;

/// How long it waits for its job.
const BEGINS_WITHIN: Duration = Duration::from_secs(60);

/// Becomes nobody's child, says where it is, and serves until the job has ended.
pub(crate) fn home(store: &JobStore, arguments: &Home) -> Outcome {
    report::log(LevelFilter::WARN);
    // Not the job's: neither its descriptors nor its terminal.
    sys::close_from(3);
    keep_those_about_files(&[], Executes::Nothing)?;
    nix::unistd::daemon(false, true).context(|| "no process for the shadow".to_owned())?;
    let (ended, end) = mpsc::channel();
    // Before there are other threads, which would take the signals.
    let begun = end_by_signal(ended.clone()).and_then(|()| {
        let (door, server) = begin(store, arguments)?;
        let sessions = server.sessions().clone();
        let failed = ended.clone();
        limits::thread(move || failed.send(server.run().map_err(Failure::from)))?;
        limits::thread(move || {
            sessions.wait_for_end(BEGINS_WITHIN);
            ended.send(Ok(()))
        })?;
        Ok(door)
    });
    let mut out = io::stdout();
    let door = match begun {
        Ok(begun) => begun,
        Err(failure) => {
            out.write_all(&[ERROR_MARK])?;
            out.write_all(failure.to_string().as_bytes())?;
            out.flush()?;
            // It has been said.
            return Err(Failure::reader_gone());
        }
    };
    out.write_all(reach::said(door.socket()))?;
    out.flush()?;
    let nothing = sys::nothing()?;
    nix::unistd::dup2_stdout(nothing.as_fd())?;
    let ended = end.recv();
    drop(door);
    ended.unwrap_or(Ok(()))?;
    Ok(Exit::Done)
}

/// Where the journals of jobs are that have their files on this machine; that of the job in this directory may keep so many bytes, and has its starter
/// asked for images before there are as many.
pub(crate) fn journals(
    store: &JobStore,
    most: Option<u64>,
    job: Option<&Path>,
) -> Outcome<Journals> {
    let journals = store.dir().join("journals");
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&journals);
    made.context(|| {
        format!(
            "no folder for journals ({})",
            crate::raw::shown_path(&journals)
        )
    })?;
    let journals = Journals::new(&journals, Durability::PowerLoss)?;
    let Some(most) = most else {
        return Ok(journals);
    };
    let journals = journals.limited(most);
    Ok(match job {
        Some(dir) => journals.with_brim(when_nearly_full(dir.to_owned())),
        None => journals,
    })
}

fn begin(store: &JobStore, arguments: &Home) -> Outcome<(Door, Server)> {
    let token = new_token()?;
    let sessions = sessions(
        allowed(&[OsString::from("/")])?,
        token,
        Some(journals(
            store,
            arguments.journal_max,
            arguments.job.as_deref(),
        )?),
        Some(store),
    )?;
    let (door, listener) = Door::make(&reach::places(Some(store.dir())))?;
    door.admit(&token)?;
    Ok((door, Server::of(listener, sessions)))
}
