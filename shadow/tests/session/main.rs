//! What a session does with requests, held against the file system itself.
#![allow(clippy::disallowed_methods)]

mod allowed;
mod contents;
mod foreseen;
mod home;
mod names;
#[path = "../../../tests/support/skip.rs"]
mod skip;
mod within;
