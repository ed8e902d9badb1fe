//! The same calls over a unix socket, over two pipes as those of ssh (`wayfarer submit`, a starter between), over TLS, and
//! here, in turn. Medians.

use super::{Shadow, Values, address, compile, measure, median, remote};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What is executed in place of ssh.
fn stand_in(dir: &Path) -> PathBuf {
    let path = dir.join("stand-in");
    std::fs::write(&path, "#!/bin/sh\nshift\nexec sh -c \"$*\"\n").expect("writes");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, mode).expect("sets");
    path
}

fn submitted(dir: &Path, ssh: &Path) -> Command {
    let wayfarer = env!("CARGO_BIN_EXE_wayfarer");
    let mut command = Command::new(wayfarer);
    command.args(["submit", "--on", "here", "--wayfarer", wayfarer, "--ssh"]);
    command
        .arg(ssh)
        .args(["--allow", "/:ro", "--allow"])
        .arg(dir);
    command.env("XDG_STATE_HOME", dir.join("state"));
    command.stdin(Stdio::null()).arg("--");
    command
}

fn secure(dir: &Path, address: &str, identity: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wayfarer"));
    command.arg("--dir").arg(dir.join("state"));
    command.args(["run", "-q", "--shadow", address]);
    command.args(["--identity-file", identity, "--"]);
    command
}

/// How many of the calls cost more than they may.
pub(super) fn compare(dir: &Path, repeat: usize) -> usize {
    let guest = compile(dir, "remote_io");
    let identity = dir.join("identity").display().to_string();
    let (_near, _) = Shadow::listening(dir, &address(dir), &[]);
    let options = ["--identity-file", &identity];
    let (_far, tls) = Shadow::listening(dir, "tls:127.0.0.1:0", &options);
    let ssh = stand_in(dir);
    let mut values: [Values; 4] = Default::default();
    for _ in 0..repeat {
        let local = Command::new(&guest);
        let mut others = [
            remote(dir),
            submitted(dir, &ssh),
            secure(dir, &tls, &identity),
        ];
        others.iter_mut().for_each(|other| {
            other.arg(&guest);
        });
        let [unix, pipes, tls] = others;
        for (mut command, values) in [local, unix, pipes, tls].into_iter().zip(&mut values) {
            command.current_dir(dir);
            measure(command, values);
        }
    }
    let [here, ..] = &values;
    let ping = median(&here["ping us"]);
    println!("{repeat} runs each, medians; a ping is {ping:.1} us");
    println!(
        "{:<26}{:>12}{:>12}{:>12}{:>12}",
        "", "here", "unix", "pipes", "tls"
    );
    let mut over = 0;
    for name in here.keys() {
        let found = values.each_ref().map(|values| median(&values[name]));
        let [local, unix, pipes, _] = found;
        let mut verdict = String::new();
        let limits = [
            (limit(name, ping, local), unix, "unix"),
            (carried_limit(name, ping), pipes, "pipes"),
        ];
        for (limit, value, way) in limits {
            if let Some((limit, at_least)) = limit {
                let broken = (value < limit) == at_least;
                over += usize::from(broken);
                let mark = if broken { " OVER" } else { "" };
                verdict += &format!("   {way} {limit:.3}{mark}");
            }
        }
        let columns: String = found.iter().map(|value| format!("{value:>12.3}")).collect();
        println!("{name:<26}{columns}{verdict}");
    }
    over
}

/// What is asked of a line without encryption.
fn carried_limit(name: &str, ping: f64) -> Option<(f64, bool)> {
    Some(match name {
        "read_1024k MB/s" => (1000.0, true),
        "pread_4k_random us" => (2.5 * ping, false),
        _ => return None,
    })
}

/// What is asked of it, and whether that is the least (or the most).
fn limit(name: &str, ping: f64, local: f64) -> Option<(f64, bool)> {
    Some(match name {
        "read_1024k MB/s" | "read_64k MB/s" => (1200.0, true),
        "read_4k MB/s" => (800.0, true),
        "pread_4k_random us" | "stat us" | "open_fstat_read_close us" => (1.5 * ping, false),
        "fgetc us" => (1.2 * local, false),
        "read_1_byte us" | "write_1_byte us" => (0.02, false),
        _ if name.starts_with("write") || name.starts_with("append") => (800.0, true),
        _ => return None,
    })
}
