//! The slow way: a name is followed in user space, into one without links, `.` and `..`.
//!
//! Nothing is decided here. The name that comes out is resolved again by the kernel, which follows no link.

use super::allow::{Allowed, Place};
use super::spot::{Last, Spot};
use rustix::fs::{FileType, OFlags, ResolveFlags};
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
    walk_within(allowed, b"", (text, ResolveFlags::empty()), last)
}

/// A name from a folder on, whose own name has no links and no slash at its end, with what openat2(2) may ask of the way.
pub(super) fn walk_within(
    allowed: &Allowed,
    folder: &[u8],
    (text, flags): (&[u8], ResolveFlags),
    last: Last,
) -> Result<Walked, Errno> {
    let of_a_folder = |text: &[u8]| text.ends_with(b"/") || text.ends_with(b"/.");
    let mut slash = of_a_folder(text);
    let mut ahead: Vec<Vec<u8>> = parts(text).collect();
    let mut done = folder.to_vec();
    let mut links = 0;
    let stays = ResolveFlags::BENEATH | ResolveFlags::IN_ROOT | ResolveFlags::NO_XDEV;
    let device = if flags.contains(ResolveFlags::NO_XDEV) {
        let folder = if folder.is_empty() { b"/" } else { folder };
        Some(look(allowed, folder)?.1)
    } else {
        None
    };
    while let Some(part) = ahead.pop() {
        if part == b".." {
            if done.len() <= folder.len() && flags.contains(ResolveFlags::BENEATH) {
                return Err(Errno::XDEV);
            }
            if done.len() <= folder.len() && flags.contains(ResolveFlags::IN_ROOT) {
                continue;
            }
            let parent = done.iter().rposition(|byte| *byte == b'/');
            done.truncate(parent.unwrap_or(0));
            continue;
        }
        let at_end = ahead.is_empty();
        let before = done.len();
        done.push(b'/');
        done.extend_from_slice(&part);
        if is_local(&done) {
            if flags.intersects(stays) {
                return Err(Errno::XDEV);
            }
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
        let (kind, on) = look(allowed, &done)?;
        if device.is_some_and(|device| on.is_some() && on != device) {
            return Err(Errno::XDEV);
        }
        match kind {
            Kind::Link(target) if !at_end || slash || last == Last::Followed => {
                if flags.contains(ResolveFlags::NO_SYMLINKS) {
                    return Err(Errno::LOOP);
                }
                links += 1;
                if links > MOST_LINKS {
                    return Err(Errno::LOOP);
                }
                // What is behind a link that ends so is a folder, too.
                slash |= at_end && of_a_folder(&target);
                let from_root = target.starts_with(b"/");
                // As Linux, which takes the root for another device where the name did not begin there.
                let crosses = flags.contains(ResolveFlags::NO_XDEV) && !folder.is_empty();
                if from_root && (crosses || flags.contains(ResolveFlags::BENEATH)) {
                    return Err(Errno::XDEV);
                }
                done.truncate(match (from_root, flags.contains(ResolveFlags::IN_ROOT)) {
                    (true, true) => folder.len(),
                    (true, false) => 0,
                    (false, _) => before,
                });
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

/// What has a name, and on which device that is, if it is known.
fn look(allowed: &Allowed, name: &[u8]) -> Result<(Kind, Option<u64>), Errno> {
    let (root, rest) = match allowed.place(name) {
        Place::Beneath(root, rest) => (root, rest),
        Place::Above => return Ok((Kind::Directory, None)),
        Place::Outside => return Err(Errno::ACCESS),
        Place::Hidden => return Ok((Kind::Missing, None)),
    };
    let spot = Spot::new(root, rest);
    let found = match spot.open(OFlags::PATH | OFlags::NOFOLLOW) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok((Kind::Missing, None)),
        Err(errno) => return Err(errno),
    };
    let stat = rustix::fs::fstat(&found)?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Kind::Directory,
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(&found, c"", vec![])?;
            Kind::Link(target.into_bytes())
        }
        _ => Kind::Other,
    };
    Ok((kind, Some(stat.st_dev)))
}
