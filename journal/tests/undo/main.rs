//! What a job has done is undone: each kind of change, and any of them in any order with a crash anywhere.

mod damage;
mod epochs;
mod foreign;
mod job;
mod killed;
mod kinds;
mod limits;
mod names;
mod picture;
mod random;
mod steps;
