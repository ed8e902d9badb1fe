//! What calls on remote files cost, beside the same calls on files of this machine and a bare ping, in one run.
//!
//! ```text
//! cargo bench --bench remote
//! WF_BENCH_REPEAT=9 WF_BENCH_DIR=/var/tmp cargo bench --bench remote
//! WF_BENCH_ONLY=calls cargo bench --bench remote         or `journal`: what it costs that changes can be undone
//! ```
//! Shadow and job are on one machine, over a unix socket, here and there in turn. Medians. A line that breaks its limit (docs/PERFORMANCE.md) ends in OVER, and the
//! bench with status 1.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod journal;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// By name: one value a run.
type Values = BTreeMap<String, Vec<f64>>;

fn setting(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

struct Shadow(Child);

impl Shadow {
    fn start(dir: &Path, options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wayfarer"));
        command.args(["shadow", "--allow", "/:ro", "--allow"]);
        command.arg(dir).arg("--listen").arg(address(dir));
        command.args(options).current_dir(dir);
        let child = command.stdout(Stdio::null()).spawn().expect("starts");
        let deadline = Instant::now() + Duration::from_secs(20);
        while !dir.join("socket").exists() {
            assert!(Instant::now() < deadline, "the shadow does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Shadow(child)
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn address(dir: &Path) -> String {
    format!("unix:{}", dir.join("socket").display())
}

fn measure(mut command: Command, values: &mut Values) {
    let output = command.output().expect("starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let mut words = line.split(' ');
        let (name, value) = (
            words.next().expect("a name"),
            words.next().expect("a value"),
        );
        let unit = words.next().expect("a unit");
        let values = values.entry(format!("{name} {unit}")).or_default();
        values.push(value.parse().expect("a number"));
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn main() -> ExitCode {
    let repeat: usize = setting("WF_BENCH_REPEAT", "5").parse().expect("a number");
    let dir = tempfile::tempdir_in(setting("WF_BENCH_DIR", "/var/tmp")).expect("a directory");
    let dir = dir.path();
    let only = setting("WF_BENCH_ONLY", "");
    let over = if only == "journal" {
        0
    } else {
        calls(dir, repeat)
    };
    if only != "calls" {
        journal::compare(dir, repeat);
    }
    ExitCode::from(u8::from(over > 0))
}

/// Compiles a guest.
fn compile(dir: &Path, name: &str) -> PathBuf {
    let guest = dir.join(name);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/guests");
    let compiled = Command::new("cc")
        .args(["-O2", "-o"])
        .arg(&guest)
        .arg(sources.join(name).with_extension("c"))
        .status();
    assert!(compiled.expect("cc").success());
    guest
}

/// A job whose files are those of the shadow in this folder; the command comes behind.
fn remote(dir: &Path) -> Command {
    let mut remote = Command::new(env!("CARGO_BIN_EXE_wayfarer"));
    remote.arg("--dir").arg(dir.join("state"));
    remote.args(["run", "-q", "--shadow"]).arg(address(dir));
    remote.arg("--");
    remote
}

/// How many of the calls cost more than they may.
fn calls(dir: &Path, repeat: usize) -> usize {
    let guest = compile(dir, "remote_io");
    let _shadow = Shadow::start(dir, &[]);
    let (mut here, mut there) = (Values::new(), Values::new());
    for _ in 0..repeat {
        let mut local = Command::new(&guest);
        local.current_dir(dir);
        measure(local, &mut here);
        let mut remote = remote(dir);
        remote.arg(&guest).current_dir(dir);
        measure(remote, &mut there);
    }
    let ping = median(&here["ping us"]);
    println!("{repeat} runs each, medians; a ping is {ping:.1} us");
    let mut over = 0;
    for (name, values) in &there {
        let (remote, local) = (median(values), median(&here[name]));
        let limit = limit(name, ping, local);
        let verdict = match limit {
            Some((limit, at_least)) if (remote < limit) == at_least => {
                over += 1;
                format!("limit {limit:.3} OVER")
            }
            Some((limit, _)) => format!("limit {limit:.3}"),
            None => String::new(),
        };
        println!("{name:<28} remote {remote:>10.3}   here {local:>10.3}   {verdict}");
    }
    over
}

/// What is asked of it, and whether that is the least (or the most).
fn limit(name: &str, ping: f64, local: f64) -> Option<(f64, bool)> {
    Some(match name {
        "read_1024k MB/s" | "read_64k MB/s" => (1200.0, true),
        "read_4k MB/s" => (800.0, true),
        "pread_4k_random us" | "stat us" | "open_fstat_read_close us" => (1.5 * ping, false),
        "fgetc us" => (1.2 * local, false),
        "read_1_byte us" => (0.02, false),
        _ if name.starts_with("write") || name.starts_with("append") => (800.0, true),
        _ => return None,
    })
}
