//! What a session does with requests, held against the file system itself.

mod allowed;
mod contents;
mod home;
mod names;
#[path = "../../../tests/support/skip.rs"]
mod skip;
