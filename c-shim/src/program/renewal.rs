//! After a restart: what only the kernel knew is made known to the new one.
//!
//! ```text
//! another generation in the link --one thread--> a watch for each placeholder that is open --> the table's generation
//! ```
//! All streams of a restarted job are broken, so each process comes by here before its first question; and before it makes
//! anything of what a watch tells, or has one told.

use super::sys::{self, DescriptorName};
use super::{ends, presence, resident, stream};
use crate::link::Link;
use crate::table::{FREE, LOST, OPEN, Table, UNWATCHED};
use core::sync::atomic::Ordering;

/// The same, if a restart may have been that nobody has noticed, because nobody has asked anything since.
pub(super) fn check(table: &Table) {
    if let Some(link) = stream::link() {
        look(table, &link);
    }
}

/// Renews what must be, if the job is another copy than the table knows.
pub(super) fn look(table: &Table, link: &Link) {
    let known = table.generation.load(Ordering::Acquire);
    if known == link.generation {
        return;
    }
    let ours = table.generation.compare_exchange(
        known,
        link.generation,
        Ordering::AcqRel,
        Ordering::Relaxed,
    );
    // The first generation has made its own watches.
    if ours.is_err() || known == 0 {
        return;
    }
    table.versions.count(crate::versions::Changes::Contents);
    for one in &table.descriptions {
        if one.state.load(Ordering::Acquire) != FREE {
            one.watch.store(UNWATCHED, Ordering::Relaxed);
            one.lock_watch.store(0, Ordering::Relaxed);
        }
    }
    let _ = sys::each_descriptor(|fd| {
        if let Some(index) = ends::placeholder(table, fd) {
            watch(table, fd, index);
        }
    });
    resident::renew();
    presence::renew();
    for one in &table.descriptions {
        let unwatched = one.watch.load(Ordering::Relaxed) == UNWATCHED;
        if unwatched && one.state.load(Ordering::Acquire) == OPEN {
            one.watch.store(LOST, Ordering::Relaxed);
            table.lost.store(1, Ordering::Release);
        }
    }
}

/// A file of mode 0 cannot be watched.
fn watch(table: &Table, fd: i32, index: usize) {
    let description = &table.descriptions[index];
    if description.watch.load(Ordering::Relaxed) != UNWATCHED {
        return;
    }
    let name = DescriptorName::of(fd);
    let _ = sys::chmod(name.get(), 0o600);
    // Who has locks has the shadow told of it when it locks again.
    if let Ok(watch) = ends::watch_end(fd) {
        description.watch.store(watch, Ordering::Relaxed);
    }
    let _ = sys::chmod(name.get(), 0);
}
