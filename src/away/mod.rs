//! A job that runs on another machine: what is said to that machine from here, and what is done there for its starter at home.
//!
//! ```text
//! home: starter (crate::life) ──forks──> keeper (keep.rs): the copy's shadow, with journals; line (service.rs) through ssh (far.rs, ssh.rs)
//!                    `──forks──> an image is fetched (fetch.rs, chunks.rs)                      ║
//! there:   wayfarer run --shadow stdio --at-home (verbs::starter, private.rs) ══════════════════╝
//!                    `──> supervisor ──> the job;  --starter-fd: what supervisors and starters say to each other, all the way
//! ```
//! The supervisor there and the starter here speak as if one were the other's child: RUNS, ENDED and their answers go along the line as
//! they are (loader::words), in place of the job's input and output, which are files here. Before RUNS the supervisor says once
//! `'o'`, a length (4 bytes, little-endian) and its session's state at the outset, and waits for `'k'`: it is durable. What the job asks
//! for by its board is read there, and answered there (asking.rs).
//!
//! # What callers may rely on
//! The image of a job counts only where its starter is. Nothing of a copy stays there when it has ended, or when its lease is over.

mod ahead;
mod arrival;
mod asking;
pub(crate) mod chunks;
mod ending;
mod far;
mod fetch;
mod keep;
mod last_words;
mod private;
mod service;
mod ssh;
mod streams;
mod update;
pub(crate) mod watcher;

pub(crate) use ahead::{Holder, hold};
pub(crate) use asking::{Asking, answer_said, wants_heard};
pub(crate) use chunks::{Sender, end_said};
pub(crate) use ending::end_at_last;
pub(crate) use far::{Errand, Far, quoted};
pub(crate) use fetch::{Fetch, fetch};
pub(crate) use keep::{Keep, keep};
pub(crate) use private::{Private, Seat};
pub(crate) use service::{Over, Service};
pub(crate) use ssh::Ssh;
pub(crate) use streams::JobState;
pub(crate) use update::Update;

use crate::identity::from_hex;
use crate::life::Tied;
use crate::remote::By;
use crate::report::{Exit, Explain, Failure, Outcome};
use crate::sys;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// Begins the state of a session at its outset.
const OUTSET: u8 = b'o';
/// It is durable.
const NOTED: u8 = b'k';
/// It is not.
const NOT_NOTED: u8 = b'n';
/// The longest state that is believed.
const LONGEST_OUTSET: usize = 64 << 10;

/// The tie of a copy whose starter is on another machine, if this is to be one.
pub(crate) fn tied(fd: Option<i32>, name: Option<&str>) -> Outcome<Option<Tied>> {
    let Some(fd) = fd else {
        return Ok(None);
    };
    let tells = sys::inherited(fd).ok_or_else(|| {
        let message = format!("--starter-fd {fd}: found no such descriptor, expected an open one");
        Failure::new(Exit::Usage, message)
    })?;
    Ok(Some(Tied {
        name: name.unwrap_or("job").to_owned(),
        tells,
        is_first: true,
        by: By::command()?,
        is_away: true,
    }))
}

/// The state that `--go-back` says.
pub(crate) fn outset(text: Option<&str>) -> Outcome<Option<Vec<u8>>> {
    let Some(text) = text else {
        return Ok(None);
    };
    let state = from_hex(text).ok_or_else(|| {
        let message = "--go-back: expected hexadecimal digits";
        Failure::new(Exit::Usage, message)
    })?;
    Ok(Some(state))
}

/// Tells the starter at home what the job begins with, and waits until that is durable there.
pub(crate) fn tell_outset(tied: &Tied, state: &[u8]) -> Outcome<()> {
    if state.len() > LONGEST_OUTSET {
        let found = state.len();
        let message = format!(
            "the job's session begins with {found} bytes of state, expected at most {LONGEST_OUTSET}"
        );
        return Err(Failure::new(Exit::Failed, message));
    }
    let mut tie = UnixStream::from(tied.tells.try_clone()?);
    let told = || -> std::io::Result<u8> {
        tie.write_all(&[OUTSET])?;
        tie.write_all(&(state.len() as u32).to_le_bytes())?;
        tie.write_all(state)?;
        let mut answer = [0];
        tie.read_exact(&mut answer)?;
        Ok(answer[0])
    };
    let mut told = told;
    let describe = || "the job's starter does not note what it begins with".to_owned();
    match told().context(describe).exit(Exit::Lost)? {
        NOTED => Ok(()),
        NOT_NOTED => Err(Failure::new(Exit::Failed, describe())),
        other => {
            let message = format!("{}: found {other}, expected {NOTED}", describe());
            Err(Failure::new(Exit::Failed, message))
        }
    }
}
