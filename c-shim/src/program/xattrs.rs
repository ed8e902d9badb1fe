//! Extended attributes of files that have none: what getxattr(2) says of one in the namespaces `system` and `security` depends only
//! on the file system, the attribute's name and whether it is a folder, so it is asked once for all (`ls -l` asks for two of each file). In `user` it
//! depends on permissions, too.

use super::known;
use super::sys::{self, Errno};
use crate::hash::fnv;
use crate::remembered::Known;
use core::sync::atomic::{AtomicU64, Ordering};
use wire::Place;

/// What was learnt: a hash of device and name, and in the lowest byte the error.
static REFUSALS: [AtomicU64; 32] = [const { AtomicU64::new(0) }; 32];

/// What is like a file that is known to have no extended attributes: the number of its device, and whether it is a folder.
pub(super) type Alike = (u64, bool);

/// That of a regular file or folder which is known to have none.
pub(super) fn bare(place: &Place<'_>, follow: bool) -> Option<Alike> {
    const TYPE: u32 = 0o170_000;
    const FOLDER: u32 = 0o040_000;
    const FILE: u32 = 0o100_000;
    match known::find(place, follow)? {
        Known::Present(found) if found.bare && [FILE, FOLDER].contains(&(found.mode & TYPE)) => {
            Some((found.device, found.mode & TYPE == FOLDER))
        }
        _ => None,
    }
}

fn hash((device, is_folder): Alike, name: &[u8]) -> u64 {
    fnv(device << 1 | u64::from(is_folder), name) & !0xff
}

fn place(hash: u64) -> &'static AtomicU64 {
    &REFUSALS[(hash >> 40) as usize % REFUSALS.len()]
}

/// What is said there of this attribute of a file that has none.
pub(super) fn refusal(alike: Alike, name: &[u8]) -> Option<Errno> {
    let hash = hash(alike, name);
    let known = place(hash).load(Ordering::Relaxed);
    (known & !0xff == hash && known != hash).then_some(Errno((known & 0xff) as i32))
}

/// It was said of one.
pub(super) fn learn(alike: Alike, name: &[u8], error: Errno) {
    let depends_on_more = !name.starts_with(b"system.") && !name.starts_with(b"security.");
    if [sys::ENODATA, sys::EOPNOTSUPP].contains(&error.0) && !depends_on_more {
        let hash = hash(alike, name);
        place(hash).store(hash | error.0 as u64, Ordering::Relaxed);
    }
}
