//! Looks at machines that are made up, and the ads of their slots.

mod ads;
mod looks;
