//! Names, resolved beneath allowed roots and never out of them.
//!
//! ```text
//! text of the name ── longest root that it lies in ──> openat2(root, rest, BENEATH | NO_SYMLINKS)
//!      ^                                                   | ELOOP: a link is in the way, or there is ".."
//!      `────────── walk: link by link, into a name without them ──'
//! ```
//! # What callers may rely on
//! What is opened is what the kernel found without following any link, beneath a root that the owner allowed. A
//! link or rename made in between makes the call fail, and the name is walked again.

mod allow;
mod spot;
mod walk;

pub use allow::{AllowError, Allowed};
pub(crate) use spot::{Last, Spot};

/// Most bytes of a name, without the NUL (PATH_MAX).
const LONGEST_NAME: usize = 4095;
