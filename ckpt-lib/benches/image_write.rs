//! Writing an image to disk beside `dd bs=1M conv=fsync` of the same bytes, in turns.
//!
//! ```text
//! WF_BENCH_SIZES=256,1024 WF_BENCH_REPEAT=5 WF_BENCH_DIR=/tmp WF_BENCH_THREADS=2 cargo bench -p ckpt-lib --bench image_write
//! ```
//! The contents come from a file in the page cache: one copy by the kernel, as from a process. Half of the
//! pages is random, half compresses. Prints the median rates, their ratio, and this process's peak memory.
#![allow(missing_docs, clippy::expect_used)]

use ckpt_lib::image::{Bytes, Image, ImageParts, ImageWriter, WriteOptions};
use ckpt_lib::loader_code;
use ckpt_lib::plan::{Operations, OpsBuilder};
use ckpt_lib::snapshot::{Process, SnapshotV1, Thread};
use loader::layout::Space;
use loader::ops::OpsHeader;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const BASE: u64 = 0x2000_0000_0000;
const MIB: u64 = 1 << 20;

fn main() {
    let number = |name: &str, usual: &str| std::env::var(name).unwrap_or_else(|_| usual.to_owned());
    let dir = PathBuf::from(number("WF_BENCH_DIR", "/tmp"));
    let repeat: usize = number("WF_BENCH_REPEAT", "5").parse().expect("a number");
    let dir = tempfile::tempdir_in(dir).expect("a directory");
    println!("MiB     image MiB/s   dd MiB/s   ratio   verify MiB/s   zstd:1 MiB/s   peak KiB");
    for size in number("WF_BENCH_SIZES", "256,1024").split(',') {
        let size: u64 = size.trim().parse().expect("a number of MiB");
        measure(dir.path(), size, repeat);
    }
    let began = Instant::now();
    const TIMES: u32 = 200;
    for _ in 0..TIMES {
        in_memory();
    }
    println!("image in memory for `run`: {:?}", began.elapsed() / TIMES);
}

fn measure(dir: &Path, mib: u64, repeat: usize) {
    let source = dir.join("source");
    fill(&source, mib * MIB);
    let (path, copy) = (dir.join("image"), dir.join("copy"));
    let (mut ours, mut dd, mut verify) = (vec![], vec![], vec![]);
    for _ in 0..repeat {
        ours.push(timed(|| write(&path, &source, mib * MIB, None)));
        verify.push(timed(|| {
            let image = Image::open(&path).expect("opens");
            image.verify(&mut |_| ()).expect("sound");
        }));
        let _ = fs::remove_file(&copy);
        dd.push(timed(|| {
            let status = Command::new("dd")
                .args(["bs=1M", "conv=fsync", "status=none"])
                .arg(format!("if={}", path.display()))
                .arg(format!("of={}", copy.display()))
                .status();
            assert!(status.expect("dd runs").success());
        }));
        fs::remove_file(&path).expect("removes");
    }
    fs::remove_file(&copy).expect("removes");
    let packed = timed(|| write(&path, &source, mib * MIB, Some(1)));
    fs::remove_file(&path).expect("removes");
    let rate = |time: Duration| mib as f64 / time.as_secs_f64();
    let (ours, dd, verify) = (median(ours), median(dd), median(verify));
    println!(
        "{mib:<8}{:<14.0}{:<11.0}{:<8.2}{:<15.0}{:<15.0}{}",
        rate(ours),
        rate(dd),
        rate(ours) / rate(dd),
        rate(verify),
        rate(packed),
        peak_kib(),
    );
}

fn timed(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// One page random, one page that compresses, and so on.
fn fill(path: &Path, len: u64) {
    let mut x = 88_172_645_463_325_252u64;
    let mut file = BufWriter::new(File::create(path).expect("creates"));
    for index in 0..len / 8 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let word = if index / 512 % 2 == 0 {
            index / 512 + 1
        } else {
            x
        };
        file.write_all(&word.to_le_bytes()).expect("writes");
    }
    file.into_inner()
        .expect("flushes")
        .sync_all()
        .expect("syncs");
}

fn snapshot() -> Vec<u8> {
    let process = Process {
        pid: 1,
        threads: vec![Thread::default()],
        ..Process::default()
    };
    let snapshot = SnapshotV1 {
        processes: vec![process],
        ..SnapshotV1::default()
    };
    Image::encode_snapshot(&snapshot).expect("encodes")
}

fn no_operations() -> Operations {
    let ops = OpsBuilder::new(OpsHeader::default());
    ops.finish().expect("finishes")
}

fn write(path: &Path, source: &Path, len: u64, compression: Option<i32>) {
    let threads = std::env::var("WF_BENCH_THREADS").map(|count| count.parse());
    let options = WriteOptions {
        compression,
        threads: threads.map_or(0, |count| count.expect("a number")),
        ..WriteOptions::default()
    };
    let source = File::open(source).expect("opens");
    let mut writer = ImageWriter::create(path, options).expect("creates");
    let whole = 0..len;
    writer
        .store(Space::Process(0), &[whole], &source, &|_| ())
        .expect("stores");
    let began = Instant::now();
    let (ops, meta) = (no_operations(), snapshot());
    let parts = ImageParts {
        platform: "LINUX X86_64 v1 xsave=0x3 page=4096 va=47",
        ops: Bytes::from(&ops),
        meta: Bytes::from(&meta[..]),
        loader: &loader_code::link(BASE).expect("links"),
        hole: BASE..BASE + MIB,
    };
    writer.commit(&parts).expect("commits");
    if std::env::var_os("WF_BENCH_COMMIT").is_some() {
        println!("commit: {:?}", began.elapsed());
    }
}

fn in_memory() {
    let writer = ImageWriter::create_in_memory("wayfarer-bench").expect("creates");
    let ops = no_operations();
    let parts = ImageParts {
        platform: "LINUX X86_64 v1 xsave=0x3 page=4096 va=47",
        ops: Bytes::from(&ops),
        meta: Bytes::Memory(b""),
        loader: &loader_code::link(BASE).expect("links"),
        hole: BASE..BASE + MIB,
    };
    writer.commit_in_memory(&parts).expect("commits");
}

/// The most memory this process ever had.
fn peak_kib() -> String {
    let status = fs::read_to_string("/proc/self/status").expect("reads");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.unwrap_or("unknown").trim().to_owned()
}
