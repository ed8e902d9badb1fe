//! The slow way: a name is followed in user space, into one without links, `.` and `..`.
//!
//! Nothing is decided here. The name that comes out is resolved again by the kernel, which follows no link.

use super::allow::{Allowed, Place};
use super::spot::{Last, Spot};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use wire::is_local;

/// As many links as the kernel follows (MAXSYMLINKS).
const MOST_LINKS: u32 = 40;

enum Kind {
    Directory,
    Link(Vec<u8>),
    Other,
    Missing,
}

/// Where a walk ends.
pub(super) enum Walked {
    /// At this name.
    Here(Vec<u8>),
    /// At one of the machine where the job runs, of which nothing was followed but what leads there.
    Elsewhere(Vec<u8>),
}

/// `text` is absolute.
pub(super) fn walk(allowed: &Allowed, text: &[u8], last: Last) -> Result<Walked, Errno> {
    let slash = text.ends_with(b"/") || text.ends_with(b"/.");
    let mut ahead: Vec<Vec<u8>> = parts(text).collect();
    let mut done = vec![];
    let mut links = 0;
    while let Some(part) = ahead.pop() {
        if part == b".." {
            let parent = done.iter().rposition(|byte| *byte == b'/');
            done.truncate(parent.unwrap_or(0));
            continue;
        }
        let at_end = ahead.is_empty();
        let before = done.len();
        done.push(b'/');
        done.extend_from_slice(&part);
        if is_local(&done) {
            let mut whole = done.clone();
            for part in ahead.iter().rev() {
                whole.push(b'/');
                whole.extend_from_slice(part);
            }
            if !is_local(&whole) {
                // `..` leads out again: nothing of that machine is looked at on the way.
                continue;
            }
            if slash {
                whole.push(b'/');
            }
            return Ok(Walked::Elsewhere(whole));
        }
        match look(allowed, &done)? {
            Kind::Link(target) if !at_end || slash || last == Last::Followed => {
                links += 1;
                if links > MOST_LINKS {
                    return Err(Errno::LOOP);
                }
                done.truncate(if target.starts_with(b"/") { 0 } else { before });
                ahead.extend(parts(&target));
            }
            Kind::Missing if !at_end => return Err(Errno::NOENT),
            Kind::Other if !at_end => return Err(Errno::NOTDIR),
            _ => {}
        }
    }
    if done.is_empty() || slash {
        done.push(b'/');
    }
    Ok(Walked::Here(done))
}

/// The parts of a name, the last first.
fn parts(text: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    text.rsplit(|byte| *byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .map(<[u8]>::to_vec)
}

fn look(allowed: &Allowed, name: &[u8]) -> Result<Kind, Errno> {
    let (root, rest) = match allowed.place(name) {
        Place::Beneath(root, rest) => (root, rest),
        Place::Above => return Ok(Kind::Directory),
        Place::Outside => return Err(Errno::ACCESS),
        Place::Hidden => return Ok(Kind::Missing),
    };
    let spot = Spot::new(root, rest);
    let found = match spot.open(OFlags::PATH | OFlags::NOFOLLOW) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(Kind::Missing),
        Err(errno) => return Err(errno),
    };
    match FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) {
        FileType::Directory => Ok(Kind::Directory),
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(&found, c"", vec![])?;
            Ok(Kind::Link(target.into_bytes()))
        }
        _ => Ok(Kind::Other),
    }
}
