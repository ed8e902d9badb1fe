//! The progress bar: on a terminal, for work longer than a second; nowhere else.

use crate::run::{on_a_terminal, read_for, read_until};
use crate::station::{Running, Station, eventually, finish, text};
use nix::sys::signal::Signal::{SIGCONT, SIGKILL, SIGSTOP};
use nix::sys::signal::kill;
use nix::unistd::Pid;
use std::fs;
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

/// Processes below this one that have so much memory of their own.
fn large_below(pid: i32, least_kib: u64, found: &mut Vec<Pid>) {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    for child in children.unwrap_or_default().split_whitespace() {
        let status = fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
        let rss = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = rss.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        let child = child.parse().expect("a number");
        if kib.is_some_and(|kib| kib >= least_kib) {
            found.push(Pid::from_raw(child));
        }
        large_below(child, least_kib, found);
    }
}

#[test]
fn a_long_restart_shows_a_bar_on_a_terminal() {
    let station = Station::new();
    let script = "my $x = 'wayfarer' x 20_000_000; $| = 1; print \"ready\\n\"; sleep 600";
    let words = ["run", "--name", "large", "--", "perl", "-e", script];
    let mut running = Running::start(station.wayfarer(&words));
    running.wait_for("ready");
    let image = station.state.path().join("large.img").display().to_string();
    let made = [
        "checkpoint",
        "large",
        "-o",
        &image,
        "--compress",
        "zstd:1",
        "--then",
        "kill",
    ];
    station.output(&made);
    running.wait();
    // No machine is so slow: it is stopped for a second while it fills its memory. It may be through before that.
    let mut tries = vec![];
    let shown = (0..5).any(|_| {
        let (mut terminal, restarting) = on_a_terminal(station.wayfarer(&["restart", &image]));
        let pid = restarting.child.id() as i32;
        let begun = Instant::now();
        let mut filling = vec![];
        while filling.is_empty() && begun.elapsed() < Duration::from_secs(20) {
            large_below(pid, 4 << 10, &mut filling);
        }
        for one in &filling {
            let _ = kill(*one, SIGSTOP);
        }
        std::thread::sleep(Duration::from_millis(1100));
        for one in &filling {
            let _ = kill(*one, SIGCONT);
        }
        // It is gone when the job runs.
        let mut said = String::new();
        let is_over = |said: &str| said.ends_with("\r\u{1b}[K");
        while !is_over(&said) && begun.elapsed() < Duration::from_secs(30) {
            said += &read_for(&mut terminal, Duration::from_millis(500));
        }
        restarting.signal(SIGKILL);
        drop(restarting);
        let shown = said.contains(" MiB") && is_over(&said);
        tries.push((filling.len(), said));
        shown
            && tries
                .iter()
                .any(|(_, said)| said.contains("filling memory ["))
    });
    assert!(shown, "{tries:?}");
}

/// What a command says on a terminal that stands still for longer than a second when it has read so much.
fn said_by_a_slow_one(station: &Station, words: &[&str], read: u64) -> String {
    let (mut terminal, running) = on_a_terminal(station.wayfarer(words));
    let pid = running.child.id() as i32;
    let begun = Instant::now();
    let has_read = || {
        let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
        let line = io.lines().find_map(|line| line.strip_prefix("rchar: "));
        line.and_then(|bytes| bytes.parse::<u64>().ok())
    };
    while begun.elapsed() < Duration::from_secs(20) && has_read().is_some_and(|bytes| bytes < read)
    {
        std::thread::sleep(Duration::from_micros(200));
    }
    running.signal(SIGSTOP);
    std::thread::sleep(Duration::from_millis(1100));
    running.signal(SIGCONT);
    let mut said = String::new();
    loop {
        let more = read_for(&mut terminal, Duration::from_millis(500));
        let over = more.is_empty();
        said += &more;
        if over
            && fs::read_to_string(format!("/proc/{pid}/stat"))
                .is_ok_and(|stat| stat.contains(") Z "))
            || begun.elapsed() > Duration::from_secs(30)
        {
            return said;
        }
    }
}

#[test]
fn long_work_on_images_shows_a_bar_on_a_terminal() {
    let station = Station::new();
    let script = "my $x = ''; $x .= pack('Q', int(rand(2**60))) for 1..16_000_000; $| = 1; print \"ready\\n\"; sleep 600";
    let words = ["run", "--name", "read", "--", "perl", "-e", script];
    let mut running = Running::start(station.wayfarer(&words));
    running.wait_for("ready");
    let place = |name: &str| station.state.path().join(name).display().to_string();
    let image = place("read.img");
    station.output(&["checkpoint", "read", "-o", &image, "--then", "kill"]);
    running.wait();
    let (flat, core) = (place("flat.img"), place("core"));
    let verbs: [(&[&str], &str); 3] = [
        (&["verify", &image], "checking ["),
        (&["flatten", &image, "-o", &flat], "writing image ["),
        (&["export", "--core", &image, &core], "writing the core "),
    ];
    for (words, bar) in verbs {
        // It may be through before it stands still.
        let mut tries = vec![];
        let shown = (0..5).any(|_| {
            let _ = [&flat, &core].map(fs::remove_file);
            let said = said_by_a_slow_one(&station, words, 16 << 20);
            // It is cleared at the end.
            let rest = said.rsplit("\u{1b}[2K").next().unwrap_or_default();
            let shown = said.contains(bar) && said.contains(" MiB") && !rest.contains(bar);
            tries.push(said);
            shown
        });
        assert!(shown, "{words:?}: {tries:?}");
    }
}
