//! Who traces a thread besides us: a debugger, for as long as it likes, or one of ours, for a moment.

use crate::procfs::ProcDir;
use loader::words::{WITH_STARTER, WITHOUT_STARTER};

/// Whether a tracer is what has restarted a job and supervises it. It traces each thread until the last one
/// has been given its registers, lets go of them one after the other, of which the first run already, and traces
/// one again only while it answers CPUID for it (`loader/src/enforcer.rs`).
pub(crate) fn lets_go_soon(tracer: i32) -> bool {
    let name = ProcDir::of(tracer).bytes("comm").unwrap_or_default();
    name.starts_with(WITH_STARTER) || name.starts_with(WITHOUT_STARTER)
}
