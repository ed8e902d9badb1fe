//! The loader, on images made by hand: programs started, tiny processes brought back,
//! damaged images refused before anything runs.

mod clocks;
mod damage;
mod executed;
mod files;
mod filter;
mod hosts;
mod images;
mod limits;
mod meaning;
mod platform;
mod restore;
mod run;
#[path = "../../../tests/support/skip.rs"]
mod skip;
mod supervisor;
mod vdso;
