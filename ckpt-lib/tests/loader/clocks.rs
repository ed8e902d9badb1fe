//! The clocks of a job go on where they were.

use crate::images::{STACK, TestImage, execute, tiny};
use crate::restore::{Code, alone};
use loader::ops::OpsHeader;
use nix::time::{ClockId, clock_gettime};

/// What the clocks of these images showed, seconds.
const SECONDS: u64 = 5_000_000;
const NANOSECONDS: u64 = SECONDS * 1_000_000_000;

/// An image of a program that ends with 5 if a clock shows [`SECONDS`] or up to 16 s more, else with 3.
fn asks(clock: ClockId, monotonic_ns: u64, monotonic_raw_ns: u64) -> TestImage {
    let clock = clock.as_raw().cast_unsigned();
    let code = Code::default()
        .call(libc::SYS_clock_gettime, &[clock, STACK as u32])
        .bytes(&[0x48, 0x8b, 0x04, 0x25])
        .bytes(&(STACK as u32).to_le_bytes()) // mov rax, [STACK]
        .bytes(&[0x48, 0x2d])
        .bytes(&(SECONDS as u32).to_le_bytes()) // sub rax, SECONDS
        .bytes(&[0x48, 0xc1, 0xe8, 4, 0x48, 0x85, 0xc0]) // shr rax, 4; test rax, rax
        .or_exit(3)
        .exit(5);
    let mut tiny = tiny(&code.0);
    *tiny.ops.header_mut() = OpsHeader {
        monotonic_ns,
        monotonic_raw_ns,
        boottime_ns: NANOSECONDS,
        ..*tiny.ops.header_mut()
    };
    alone(tiny)
}

fn goes_on(image: &TestImage) {
    let ended = execute(image, &["--pids", "namespace"]);
    assert_eq!(ended.code(), Some(5), "{}", ended.stderr);
}

#[test]
fn the_monotonic_clock_goes_on_from_the_checkpoint() {
    let image = asks(ClockId::CLOCK_MONOTONIC, NANOSECONDS, 0);
    goes_on(&image);
    let refused = execute(&image, &["--pids", "host", "--accept-new-ids"]);
    assert_eq!(refused.code(), Some(3), "{}", refused.stderr);
    let why = refused.stderr;
    assert!(why.contains("CLOCK_MONOTONIC"), "{why}");
}

#[test]
fn the_boottime_clock_goes_on_from_the_checkpoint() {
    goes_on(&asks(ClockId::CLOCK_BOOTTIME, NANOSECONDS, 0));
}

#[test]
fn the_coarse_clock_does_not_go_back_to_a_tick_before_the_checkpoint() {
    // A restart that takes longer than a tick proves nothing.
    for _ in 0..10 {
        goes_on(&asks(ClockId::CLOCK_MONOTONIC_COARSE, NANOSECONDS, 0));
    }
}

#[test]
fn the_raw_clock_does_not_go_back_by_what_machines_have_corrected_less_than_a_second() {
    let shows = |clock| {
        let time = clock_gettime(clock).expect("clock");
        time.tv_sec() * 1_000_000_000 + time.tv_nsec()
    };
    let ahead = shows(ClockId::CLOCK_MONOTONIC_RAW) - shows(ClockId::CLOCK_MONOTONIC);
    // As another machine would have it that is half a second behind.
    let monotonic = NANOSECONDS.cast_signed() - ahead - 500_000_000;
    let raw = ClockId::CLOCK_MONOTONIC_RAW;
    goes_on(&asks(raw, monotonic.cast_unsigned(), NANOSECONDS));
}
