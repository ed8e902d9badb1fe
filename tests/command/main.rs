//! The command, as its users meet it: real runs of the built binary.

mod arguments;
mod classad;
mod config;
mod given;
mod images;
#[path = "../support/inherited.rs"]
mod inherited;

mod jobs;
mod kbdd;
mod machine;
mod policy;
mod progress;
mod records;
mod restart;
mod run;
#[path = "../support/skip.rs"]
mod skip;
mod station;
