//! What it costs to bring a job's image home, to take it off a machine, to have it go on at another, and to stand above it.
//!
//! ```text
//! cargo bench --bench life
//! WF_BENCH_MIB=256 WF_BENCH_REPEAT=1 WF_BENCH_DIR=/var/tmp cargo bench --bench life
//! WF_BENCH_ONLY=image|leave|move|idle|crowd cargo bench --bench life
//! ```
//! All machines are this one, and ssh is a shell script. A line that breaks its limit (docs/PERFORMANCE.md) ends in OVER, and the bench with status 1.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../../tests/support/inherited.rs"]
mod inherited;
mod job;
mod standing;
#[path = "../support/verdicts.rs"]
mod verdicts;

use job::{Job, Station};
use std::fs::File;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use verdicts::{Verdicts, median, milliseconds, setting};

const MIB: f64 = 1048576.0;

fn main() -> ExitCode {
    // `cargo test --benches` asks with --test, `cargo bench` with --bench.
    if std::env::args().any(|argument| argument == "--test") {
        return ExitCode::SUCCESS;
    }
    inherited::close_inherited();
    let number =
        |name: &str, default: &str| -> u64 { setting(name, default).parse().expect("a number") };
    let (mib, repeat) = (
        number("WF_BENCH_MIB", "1024"),
        number("WF_BENCH_REPEAT", "3"),
    );
    let only = setting("WF_BENCH_ONLY", "");
    let wanted = |part: &str| only.is_empty() || only == part;
    let station = Station::open();
    let mut verdicts = Verdicts::default();
    println!("a job of {mib} MiB, elsewhere (median of {repeat})");
    if wanted("image") {
        images(&station, mib, repeat, &mut verdicts);
    }
    if wanted("leave") {
        leaving(&station, mib, repeat, &mut verdicts);
    }
    if wanted("move") {
        moving(&station, mib, repeat, &mut verdicts);
    }
    if wanted("idle") {
        standing::idle(&station, &mut verdicts);
    }
    if wanted("crowd") {
        standing::crowd(&station, &mut verdicts);
    }
    if verdicts.over > 0 {
        println!("{} over their limits", verdicts.over);
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// How long it stands still for an image that is brought home, beside one that stays.
fn images(station: &Station, mib: u64, repeat: u64, verdicts: &mut Verdicts) {
    let here = stands_for_images(Job::start_here(station, mib), repeat);
    let home = stands_for_images(Job::start(station, mib, false), repeat);
    let (stood, took) = home;
    // Its calls are answered over a line, too.
    let limit = 1.3 * here.0 + 5.0;
    let note = format!(
        "one that stays here {:.1} ms; the whole commands {took:.0} and {:.0} ms",
        here.0, here.1
    );
    verdicts.line(
        "an image comes home: it stands still",
        stood,
        limit,
        "ms",
        &note,
    );
}

/// Medians: how long it stood still for each, and the command took, in milliseconds.
fn stands_for_images(mut job: Job<'_>, repeat: u64) -> (f64, f64) {
    let (mut stood, mut took) = (vec![], vec![]);
    for _ in 0..repeat {
        job.longest_gap();
        let begun = Instant::now();
        job.tell(&["checkpoint", "job"]);
        took.push(milliseconds(begun.elapsed()));
        stood.push(job.longest_gap());
    }
    job.end();
    (median(stood), median(took))
}

/// A vacate without any image before, beside the same bytes that somebody else brings.
fn leaving(station: &Station, mib: u64, repeat: u64, verdicts: &mut Verdicts) {
    let (mut took, mut yardstick) = (vec![], vec![]);
    for _ in 0..repeat {
        let mut job = Job::start(station, mib, false);
        let begun = Instant::now();
        job.tell(&["vacate", "job"]);
        took.push(milliseconds(begun.elapsed()));
        job.has_left();
        let image = station.newest_image();
        yardstick.push(milliseconds(over_a_connection(&image)));
        job.forget();
    }
    let other = median(yardstick);
    let note = format!("the same bytes over TCP into a file, and fsync: {other:.0} ms");
    verdicts.line("vacate", median(took) / other, 1.3, "x", &note);
}

/// As `socat` from the file to a file of this machine, which is durable then.
fn over_a_connection(source: &Path) -> Duration {
    let copy = source.with_extension("copy");
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = listener.local_addr().expect("an address");
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut to = TcpStream::connect(address).expect("connects");
            let mut from = File::open(source).expect("opens");
            io::copy(&mut from, &mut to).expect("sends");
        });
        let (mut from, _) = listener.accept().expect("accepts");
        let mut to = File::create(&copy).expect("opens");
        io::copy(&mut from, &mut to).expect("receives");
        to.sync_all().expect("is durable");
    });
    let took = begun.elapsed();
    std::fs::remove_file(&copy).expect("removes");
    took
}

/// A job that changes 10 MB in a second moves.
fn moving(station: &Station, mib: u64, repeat: u64, verdicts: &mut Verdicts) {
    let (mut stood, mut took) = (vec![], vec![]);
    let mut job = Job::start(station, mib, true);
    for round in 0..repeat {
        job.longest_gap();
        let to = if round % 2 == 0 { "b" } else { "a" };
        let begun = Instant::now();
        job.tell(&["migrate", "job", "--to", to]);
        took.push(milliseconds(begun.elapsed()));
        stood.push(job.longest_gap());
    }
    let image = std::fs::metadata(station.newest_image())
        .expect("is there")
        .len();
    job.end();
    let note = format!(
        "the whole command {:.0} ms; the last image {:.1} MiB",
        median(took),
        image as f64 / MIB
    );
    verdicts.line(
        "migrate: it stands still",
        median(stood),
        300.0,
        "ms",
        &note,
    );
}
