//! The progress bar: on a terminal, for work longer than a second; nowhere else.

use crate::run::{on_a_terminal, read_until};
use crate::station::{Running, Station, eventually, finish, text};
use nix::sys::signal::Signal::SIGKILL;
use std::time::{Duration, Instant};

#[test]
fn a_long_checkpoint_shows_a_bar_on_a_terminal_only() {
    let station = Station::new();
    let script = "my $x = ''; $x .= pack('Q', int(rand(2**60))) for 1..12_000_000; $| = 1; print \"ready\\n\"; sleep 600";
    let words = ["run", "--name", "big", "--", "perl", "-e", script];
    let mut running = Running::start(station.wayfarer(&words));
    running.wait_for("ready");
    let image = station.state.path().join("big.img").display().to_string();
    // 96 MiB that cannot be compressed, with much effort: many seconds.
    let slow = ["checkpoint", "big", "-o", &image, "--compress", "zstd:19"];

    let (mut terminal, writing) = on_a_terminal(station.wayfarer(&slow));
    let first = read_until(&mut terminal, "writing memory [");
    assert!(!first.contains("MiB"), "{first:?}");
    // Drawn again in the same line, further on.
    let again = read_until(&mut terminal, "writing memory [");
    assert!(again.contains(" MiB") && again.contains('\r'), "{again:?}");
    writing.signal(SIGKILL);
    drop(writing);

    eventually("the copy of the killed checkpoint is gone", || {
        station.job("big")["processes"] == 1
    });
    let begun = Instant::now();
    let mut writing = Running::start(station.wayfarer(&slow));
    // Longer than the second after which there would be a bar, on a fast machine too.
    while begun.elapsed() < Duration::from_secs(3)
        && writing.child.try_wait().expect("wait").is_none()
    {
        std::thread::sleep(Duration::from_millis(5));
    }
    let lasted = begun.elapsed();
    let _ = writing.child.kill();
    let said = text(&finish(writing).stderr);
    assert_eq!(said, "");
    assert!(
        lasted > Duration::from_millis(1500),
        "no work for a bar: {lasted:?}"
    );
    station.output(&["kill", "big", "-s", "KILL"]);
    running.wait();
}
