//! Builds the loader, which images carry inside, as a program of its own.
//!
//! It is position independent, without std and libc; the profile, flags and target
//! directory of the build around it do not matter.

mod nested_cargo;

use std::path::PathBuf;
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
    println!("cargo::rerun-if-changed=nested_cargo.rs");
    let script = loader.join("loader.ld");
    let mut build = nested_cargo::rustc(&loader, &target_dir);
    build
        .args([
            "--package",
            "loader",
            "--bin",
            "loader",
            "--features",
            "program",
        ])
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
    let status = build.status().expect("cargo can be started");
    assert!(status.success(), "the loader does not build: {status}");
    fs::copy(target_dir.join("release/loader"), out.join("loader")).expect("the loader was built");
}
