//! Builds the loader, which images carry inside, as a program of its own.
//!
//! It is position independent, without std and libc; the profile, flags and target
//! directory of the build around it do not matter.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

fn main() {
    let from = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let loader = from.join("../loader");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let target_dir = out.join("loader-target");
    for watched in ["src", "loader.ld", "Cargo.toml"] {
        println!("cargo::rerun-if-changed={}", loader.join(watched).display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    let script = loader.join("loader.ld");
    let mut build = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build
        .current_dir(&loader)
        .args([
            "rustc",
            "--package",
            "loader",
            "--bin",
            "loader",
            "--release",
        ])
        .args(["--features", "program", "--target-dir"])
        .arg(&target_dir)
        .args(["--", "-C", "panic=abort", "-C", "relocation-model=pie"])
        .args(["-C", "target-feature=+crt-static", "-C", "codegen-units=1"])
        .args(["-C", "strip=symbols", "-C", "link-arg=-nostartfiles"])
        .args([
            "-C",
            "link-arg=-nostdlib",
            "-C",
            "link-arg=-Wl,--build-id=none",
        ])
        .args([
            "-C",
            "link-arg=-Wl,-z,norelro",
            "-C",
            "link-arg=-Wl,-z,noexecstack",
        ])
        .args(["-C", "link-arg=-Wl,--gc-sections", "-C"])
        .arg(format!("link-arg=-Wl,-T,{}", script.display()));
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let about_the_outer_build = text.starts_with("CARGO_")
            && !matches!(
                &*text,
                "CARGO_HOME" | "CARGO_NET_OFFLINE" | "CARGO_HTTP_CAINFO"
            )
            || text.starts_with("RUSTC_W")
            || matches!(
                &*text,
                "RUSTFLAGS" | "TARGET" | "PROFILE" | "OPT_LEVEL" | "DEBUG"
            );
        if about_the_outer_build {
            build.env_remove(&name);
        }
    }
    let status = build.status().expect("cargo can be started");
    assert!(status.success(), "the loader does not build: {status}");
    fs::copy(target_dir.join("release/loader"), out.join("loader")).expect("the loader was built");
}
