//! What calls on remote files cost, beside the same calls on files of this machine and a bare ping, in one run.
//!
//! ```text
//! cargo bench --bench remote
//! WF_BENCH_REPEAT=9 WF_BENCH_DIR=/var/tmp cargo bench --bench remote
//! WF_BENCH_ONLY=calls cargo bench --bench remote         or `programs`: a sort; or `journal`: what it costs that changes can be undone; or `peers`: beside sshfs
//! ```
//! Shadow and job are on one machine. A line that breaks its limit (docs/PERFORMANCE.md) ends in OVER, and the bench with status 1.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod calls;
mod delay;
#[path = "../../tests/support/inherited.rs"]
mod inherited;
mod journal;
mod peers;
mod programs;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

/// By name: one value a run.
type Values = BTreeMap<String, Vec<f64>>;

fn setting(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

struct Shadow(Child);

impl Shadow {
    fn start(dir: &Path, options: &[&str]) -> Self {
        Self::listening(dir, &address(dir), options).0
    }

    /// And where it listens.
    fn listening(dir: &Path, listen: &str, options: &[&str]) -> (Self, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wayfarer"));
        command.args(["shadow", "--allow", "/:ro", "--allow"]);
        command.arg(dir).args(["--listen", listen]);
        command.args(options).current_dir(dir);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
        let mut said = String::new();
        let out = child.stdout.take().expect("a pipe");
        BufReader::new(out).read_line(&mut said).expect("listens");
        let address = said.trim_end().strip_prefix("listening on ");
        (Shadow(child), address.expect("an address").to_owned())
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
    inherited::close_inherited();
    let repeat: usize = setting("WF_BENCH_REPEAT", "5").parse().expect("a number");
    let dir = tempfile::tempdir_in(setting("WF_BENCH_DIR", "/var/tmp")).expect("a directory");
    let dir = dir.path();
    let only = setting("WF_BENCH_ONLY", "");
    let wanted = |part: &str| only.is_empty() || only == part;
    let mut over = 0;
    if wanted("calls") {
        over += calls::compare(dir, repeat);
    }
    if wanted("programs") {
        over += programs::compare(dir, repeat);
    }
    if wanted("journal") {
        journal::compare(dir, repeat);
    }
    if wanted("peers") {
        match peers::missing() {
            Some(what) => println!("not compared with sshfs: this needs {what}"),
            None => over += peers::compare(dir, repeat),
        }
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
