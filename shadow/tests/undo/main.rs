//! A session with a journal: whatever a job asks for can be undone.
#![allow(clippy::disallowed_methods)]

mod hidden;
mod kinds;
mod owner;
#[path = "../../../journal/tests/undo/picture.rs"]
mod picture;
mod races;
mod random;
mod refused;
mod site;
#[path = "../../../tests/support/skip.rs"]
mod skip;
