//! What whole-system tests are made of.
//!
//! ```text
//! stage      where programs are built and where jobs keep their files
//! user       root, or an ordinary user
//! run        one started program: its output, its end, and nothing left of it
//! scenario   checkpoint and go on; checkpoint, kill, restart; ten times in a row
//! variants   in which ways each guest goes through that
//! promise    one test of its own with one job: set up, tried, cleared up
//! program    real programs, compared with an undisturbed run
//! chain      what a job's file has to be, line by line
//! python     guests that are scripts of a few lines
//! filling    a program that fills its undo journal
//! skip       what was not tested here, and why
//! without    which guests notice that something is not brought back
//! memory     how much wayfarer's own processes have
//! machine    one that jobs are sent to, reached by a line that can be cut
//! host       a second, empty machine: a root of its own, with nothing but /proc
//! random     the moments at which it happens, from a printed seed
//! ```
//! # What callers may rely on
//! Every wait has a deadline, nothing that was started outlives its test, and
//! a failure says where the images and logs of the job lie.
#![allow(dead_code, unreachable_pub)] // each test program uses its part

pub mod chain;
pub mod filling;
pub mod host;
pub mod htcondor;
pub mod inherited;
pub mod inside;
pub mod machine;
pub mod memory;
pub mod program;
pub mod promise;
pub mod python;
pub mod random;
pub mod run;
pub mod scenario;
pub mod skip;
pub mod stage;
pub mod user;
pub mod variants;
pub mod without;
