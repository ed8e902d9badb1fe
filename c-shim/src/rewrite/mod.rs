//! Ring 2: the `syscall` instructions of libc and ld.so, found so that they can be led elsewhere.
//!
//! ```text
//! .eh_frame(_hdr) -> functions -> instructions -> all direct targets
//!                                    `-> syscall: a window of at least 5 bytes round it -> Site
//! ```
//! A jump of 5 bytes is written over a window. Nothing may jump into the middle of one. The best window is the
//! `mov $number, %eax` before the `syscall`: the jump is just as long, and the `syscall` stays where it is, so that
//! what jumps there all the same makes its call, unseen but unharmed.
//!
//! # What callers may rely on
//! Nothing is guessed: where a function cannot be decoded to its very end no window is taken, and where one leads on by an
//! address that is computed only windows of that best kind. What has no window is listed, too, and so is whatever looks like the
//! instruction outside of all functions: nobody can tell what it is.

mod functions;
mod sites;

pub use functions::{Function, Functions, Table, UnwindError};
pub use sites::{Found, Number, Refused, Site, find, make_tables};
