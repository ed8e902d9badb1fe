//! Ring 2: the `syscall` instructions of programs and libraries, found so that they can be led elsewhere.
//!
//! ```text
//! bytes 0F 05 -> functions round them (.eh_frame(_hdr)) -> instructions -> what leads to them
//!                                    `-> syscall: a window of at least 5 bytes round it -> Site
//! ```
//! A jump of 5 bytes is written over a window. Nothing may jump into the middle of one. The best window is an
//! instruction before the `syscall` that is as long itself, as `mov $number, %eax` is: the `syscall` stays where it is, so that
//! what jumps there all the same makes its call, unseen but unharmed.
//!
//! # What callers may rely on
//! Nothing is guessed: where a function cannot be decoded to its very end no window is taken, and where one leads on by an
//! address that is computed only windows of that best kind. What nothing leads to is data, and is left alone. What has no window is
//! listed, and so is whatever looks like the instruction outside of all functions.

mod body;
mod bytes;
mod functions;
mod sites;

pub use bytes::may_call;
pub use functions::{Function, Functions, Table, UnwindError};
pub use sites::{Found, Missed, Number, Refused, Site, find, make_tables};
