//! The loader: the program inside every image. It brings a stopped job back, or starts a
//! new one (docs/adr/0003, 0006).
//!
//! ```text
//! first     P0: is the loader whole?
//! start     P0: arguments; image opened, every section checked; hole mapped, tables read
//! supervise P0: namespaces or not; signals, status
//!  `- init  P1: Prepare stream (inodes, objects, feed), root process, finish; reaps
//!      `- job     process stream: address_space, vdso, fill ... (interpret)
//!          `- threads   thread streams, parked
//! finish    P1: registers set, loader unmapped, all detached
//! ```
//! # What callers may rely on
//! Nothing of the job exists before the image was checked; no instruction of it runs before
//! every byte it is given was. A failure says in one line what was found and expected, and
//! leaves nothing behind.
//!
//! # What it does not do
//! It allocates nothing (but for `zstd`), uses no libc, and does not know how its list was made.
#![no_std]
#![no_main]
// Nothing is allocated: a failure carries its line of text by value.
#![allow(clippy::result_large_err)]

mod abi;
mod address_space;
mod ahead;
mod chain;
mod confine;
mod context;
mod device;
mod door;
mod enforce;
mod enforcer;
mod epoll;
mod exec;
mod family;
mod feed;
mod fill;
mod finish;
mod first;
mod fresh_pages;
mod held;
mod image;
mod init;
mod inodes;
mod interpret;
mod job;
mod kept;
mod memory_functions;
mod message;
mod namespaces;
mod objects;
mod options;
mod platform;
mod progress;
mod raw_call;
mod report;
mod roll_back;
mod sockets;
mod start;
mod supervise;
mod sys;
mod tables;
mod tasks;
mod threads;
mod traced;
mod unread;
mod vdso;
mod vdso_copy;
mod zstd;

/// Nothing here is meant to panic but the zstd decoder, over a frame that is not what it says; the restart
/// ends as after any other failure.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let failure = match zstd::is_decoding() {
        true => report::failure!(
            Image,
            "section .wf.pages: a zstd frame under a right checksum that cannot be decoded ({info})"
        ),
        false => report::failure!(Failed, "loader: {info}"),
    };
    init::end_anywhere(&failure)
}
