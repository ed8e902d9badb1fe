//! A session with a journal: whatever a job asks for can be undone.
#![allow(clippy::disallowed_methods)]

mod hidden;
mod kinds;
#[path = "../../../journal/tests/undo/picture.rs"]
mod picture;
mod random;
mod refused;
mod site;
