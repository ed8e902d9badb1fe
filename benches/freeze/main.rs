//! How long a job stands still, how fast an image is written and a job brought back, each beside
//! its yardstick in the same run: a bare `fork()`, `dd conv=fsync`, one pass of hash and copy.
//!
//! ```text
//! cargo bench --bench freeze
//! WF_BENCH_SIZES=16,256 WF_BENCH_REPEAT=3 WF_BENCH_DIR=/var/tmp cargo bench --bench freeze
//! ```
//! Limits are those of docs/PERFORMANCE.md; a line that breaks one ends in OVER, and the bench
//! with status 1. `WF_BENCH_ONLY=size|scale|small` runs one part.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used)]

#[path = "../../tests/support/inherited.rs"]
mod inherited;
mod job;
#[path = "../support/verdicts.rs"]
mod verdicts;
mod yardsticks;

use job::{Checkpointed, Job, Station};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use verdicts::{Verdicts, median, milliseconds, setting};

const MIB: f64 = 1048576.0;
/// Peak memory that a wayfarer may use, KiB.
const PEAK_KIB: u64 = 64 * 1024;
/// What a job's page tables may grow by in a checkpoint, KiB.
const GROWN_KIB: f64 = 0.0;
/// Kinds of work between checkpoints, and their numbers in benches/guests/ticker.c.
const WORK: [(&str, u64); 5] = [
    ("  computing", 10),
    ("  system calls", 11),
    ("  clocks", 12),
    ("  fresh memory", 13),
    ("  threads", 14),
];

fn main() -> ExitCode {
    // `cargo test --benches` asks with --test, `cargo bench` with --bench.
    if std::env::args().any(|argument| argument == "--test") {
        return ExitCode::SUCCESS;
    }
    inherited::close_inherited();
    let repeat: usize = setting("WF_BENCH_REPEAT", "5").parse().expect("a number");
    let only = setting("WF_BENCH_ONLY", "");
    let wanted = |part: &str| only.is_empty() || only == part;
    let station = Station::open();
    let mut verdicts = Verdicts::default();
    if wanted("size") {
        for size in setting("WF_BENCH_SIZES", "16,256,1024,4096").split(',') {
            let mib = size.trim().parse().expect("a number of MiB");
            by_size(&station, mib, repeat, &mut verdicts);
        }
    }
    if wanted("scale") {
        by_count(&station, repeat, &mut verdicts);
    }
    if wanted("small") {
        starting(&station, &mut verdicts);
        overhead(&station, repeat, &mut verdicts);
    }
    if verdicts.over > 0 {
        println!("{} over their limits", verdicts.over);
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Freeze, image and restart of a job with `mib` MiB of memory.
fn by_size(station: &Station, mib: u64, repeat: usize, verdicts: &mut Verdicts) {
    println!("{mib} MiB, one thread, ticking every millisecond (median of {repeat})");
    let [
        mut frozen,
        mut gaps,
        mut forks,
        mut rates,
        mut whole,
        mut dds,
    ] = [const { vec![] }; 6];
    let [mut restarts, mut passes, mut fresh] = [const { vec![] }; 3];
    let [mut filled, mut given] = [const { vec![] }; 2];
    let mut peak = 0;
    // The last image, for `dd` to copy before the next is made: who writes first has the idle disk.
    let mut earlier: Option<PathBuf> = None;
    for _ in 0..repeat {
        let mut job = Job::start(station, &[mib, 0, 0, 0]);
        forks.push(milliseconds(job.fork()));
        let mut dd = |image: &Path| {
            let bytes = std::fs::metadata(image).expect("image").len() as f64;
            dds.push(bytes / MIB / yardsticks::dd(image).as_secs_f64());
        };
        let behind = earlier.is_none();
        if let Some(image) = earlier.take() {
            dd(&image);
            std::fs::remove_file(&image).expect("remove image");
        }
        let Checkpointed {
            image,
            frozen: stood,
            writing,
            took,
            peak_kib,
            gap,
        } = job.checkpoint(station);
        frozen.push(milliseconds(stood));
        gaps.push(milliseconds(gap));
        let bytes = std::fs::metadata(&image).expect("image").len() as f64;
        rates.push(bytes / MIB / writing.as_secs_f64());
        whole.push(bytes / MIB / took.as_secs_f64());
        if behind {
            dd(&image);
        }
        job.end();

        // Thrice, in turns: memory that a hypervisor has taken back meanwhile costs whoever is first.
        for _ in 0..3 {
            passes.push(milliseconds(yardsticks::hash_and_copy(&image)));
            fresh.push(milliseconds(yardsticks::fresh_memory((mib as usize) << 20)));
            let (mut again, moved) = Job::restart(station, &image);
            restarts.push(milliseconds(moved));
            again.end();
            let room = (mib as usize + 64) << 20;
            filled.push(milliseconds(yardsticks::have_memory_given(room)));
            let (mut again, moved) = Job::restart(station, &image);
            given.push(milliseconds(moved));
            again.end();
        }
        peak = peak.max(peak_kib);
        if behind {
            earlier = Some(image);
        } else {
            std::fs::remove_file(&image).expect("remove image");
        }
    }
    if let Some(image) = earlier {
        std::fs::remove_file(&image).expect("remove image");
    }
    let fork = median(forks);
    let note = format!("bare fork {fork:.2} ms");
    verdicts.line(
        "frozen, by its own word",
        median(frozen),
        3.0 + 1.5 * fork,
        "ms",
        &note,
    );
    // A tick is one millisecond and a little late by itself.
    verdicts.line(
        "longest gap between ticks",
        median(gaps),
        5.0 + 1.5 * fork,
        "ms",
        "",
    );
    let dd = median(dds);
    let (rate, whole) = (median(rates), median(whole));
    let note = format!("image at {rate:.0} MiB/s, dd at {dd:.0}");
    let mut line = |what: &str, rate: f64, limit: f64, note: &str| {
        verdicts.line(what, dd / rate, limit, "times", note);
    };
    line("dd's rate / image's rate", rate, 1.0 / 0.7, &note);
    line("  with all that the command does", whole, 1.0 / 0.7, "");
    let pass = median(passes);
    let fresh = median(fresh);
    let note = format!("hash and copy {pass:.1} ms, fresh memory alone {fresh:.1}");
    let per_gib = 250.0 * (mib as f64 / 1024.0).max(0.25);
    let limit = (1.3 * pass + 30.0).min(per_gib.max(62.5));
    verdicts.line(
        "restart until the counter moves",
        median(restarts),
        limit,
        "ms",
        &note,
    );
    let note = format!("filled by huge pages in {:.1} ms before", median(filled));
    verdicts.line(
        "  with its memory given just before",
        median(given),
        limit,
        "ms",
        &note,
    );
    peak_memory(peak, verdicts);
}

fn peak_memory(kib: u64, verdicts: &mut Verdicts) {
    let [peak, limit] = [kib, PEAK_KIB].map(|kib| kib as f64 / 1024.0);
    verdicts.line("wayfarer's peak memory", peak, limit, "MiB", "");
}

/// A job of this size: medians of some checkpoints and restarts.
struct Costs {
    frozen: f64,
    restart: f64,
    fork: f64,
    /// Most that its page tables grew by a checkpoint, KiB.
    grown_kib: f64,
    /// The most memory that wayfarer itself had.
    peak_kib: u64,
}

fn costs(station: &Station, size: &[u64; 4], repeat: usize) -> Costs {
    let [mut frozen, mut restarts, mut forks, mut grown] = [const { vec![] }; 4];
    let mut peak_kib = 0;
    for _ in 0..repeat {
        let mut job = Job::start(station, size);
        let tables = job.page_table_kib();
        forks.push(milliseconds(job.fork()));
        let made = job.checkpoint(station);
        frozen.push(milliseconds(made.frozen));
        peak_kib = made.peak_kib.max(peak_kib);
        grown.push(job.page_table_kib().saturating_sub(tables) as f64);
        job.end();
        let (mut again, moved) = Job::restart(station, &made.image);
        restarts.push(milliseconds(moved));
        again.end();
        let _ = std::fs::remove_file(&made.image);
    }
    Costs {
        frozen: median(frozen),
        restart: median(restarts),
        fork: median(forks),
        grown_kib: grown.into_iter().fold(0.0, f64::max),
        peak_kib,
    }
}

/// Cost grows linearly with what there is: each of many costs no more than each of a quarter as many
/// (and 30 %); and reserves cost nothing.
fn by_count(station: &Station, repeat: usize, verdicts: &mut Verdicts) {
    println!("many threads, many mappings, a reserve (median of {repeat})");
    let plain = costs(station, &[16, 0, 0, 0], repeat);
    for (what, many_of) in [
        ("threads", [16, 1000, 0, 0]),
        ("mappings", [16, 0, 60_000, 0]),
    ] {
        let few_of = [16, many_of[1] / 4, many_of[2] / 4, 0];
        let [few, many] = [few_of, many_of].map(|size| size[1] + size[2]);
        let [of_few, of_many] = [few_of, many_of].map(|size| costs(station, &size, repeat));
        for (step, few_took, many_took, without) in [
            ("frozen", of_few.frozen, of_many.frozen, plain.frozen),
            ("restart", of_few.restart, of_many.restart, plain.restart),
        ] {
            let each = |took: f64, count: u64| (took - without) * 1e3 / count as f64;
            let note = format!("{many} in {many_took:.1} ms, {few} in {few_took:.1} ms");
            verdicts.line(
                &format!("{many} {what}, {step}: each"),
                each(many_took, many),
                1.3 * each(few_took, few),
                "us",
                &note,
            );
        }
        verdicts.line(
            "  page tables grown",
            of_many.grown_kib,
            GROWN_KIB,
            "KiB",
            "",
        );
        peak_memory(of_many.peak_kib, verdicts);
    }
    let reserve = costs(station, &[16, 0, 0, 16 << 10], repeat);
    let note = format!("bare fork {:.2} ms", reserve.fork);
    let limit = 3.0 + 1.5 * reserve.fork;
    verdicts.line(
        "16 TiB reserved, frozen",
        reserve.frozen,
        limit,
        "ms",
        &note,
    );
    let note = format!("without {:.2} ms", plain.restart);
    let limit = 1.3 * plain.restart + 5.0;
    verdicts.line(
        "16 TiB reserved, restart",
        reserve.restart,
        limit,
        "ms",
        &note,
    );
    verdicts.line(
        "  page tables grown",
        reserve.grown_kib,
        GROWN_KIB,
        "KiB",
        "",
    );
}

/// `wayfarer run -- true`.
fn starting(station: &Station, verdicts: &mut Verdicts) {
    println!("small things");
    let times: Vec<f64> = (0..21).map(|_| milliseconds(station.run_true())).collect();
    verdicts.line("`true` under wayfarer run", median(times), 15.0, "ms", "");
}

/// Work of many kinds (benches/guests/ticker.c) under wayfarer, after a checkpoint, by turns with the same
/// without. The noise is the distance of the quartiles of what it takes alone, and 2 % at least.
fn overhead(station: &Station, repeat: usize, verdicts: &mut Verdicts) {
    println!("between checkpoints (median of {})", 3 * repeat);
    let mut alone = Job::start_alone(station, &[16, 0, 0, 0]);
    let mut job = Job::start(station, &[16, 0, 0, 0]);
    let made = job.checkpoint(station);
    for (name, kind) in WORK {
        let (mut plain, mut under) = (vec![], vec![]);
        for _ in 0..3 * repeat {
            plain.push(milliseconds(alone.work(kind)));
            under.push(milliseconds(job.work(kind)));
        }
        plain.sort_by(f64::total_cmp);
        let spread = plain[plain.len() * 3 / 4] - plain[plain.len() / 4];
        let (plain, under) = (median(plain), median(under));
        let limit = plain + spread.max(plain * 0.02);
        let note = format!("alone {plain:.1} ms, quartiles {spread:.1} apart");
        verdicts.line(name, under, limit, "ms", &note);
    }
    let _ = std::fs::remove_file(&made.image);
    alone.end();
    job.end();
}
