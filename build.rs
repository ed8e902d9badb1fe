//! Builds the shim that the command carries: a shared object that needs nothing, made of `c-shim` without std.

#[path = "ckpt-lib/nested_cargo.rs"]
mod nested_cargo;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    for watched in [
        "c-shim/src",
        "c-shim/Cargo.toml",
        "wire/src",
        "loader/src/raw_call.rs",
        "loader/src/memory_functions.rs",
        "build.rs",
        "ckpt-lib/nested_cargo.rs",
    ] {
        println!("cargo::rerun-if-changed={watched}");
    }
    let target_dir = out.join("shim-target");
    let mut build = nested_cargo::rustc(&root.join("c-shim"), &target_dir);
    build
        .args(["--package", "c-shim", "--lib", "--crate-type", "staticlib"])
        .args(["--no-default-features", "--features", "program"])
        .args(["--", "-C", "panic=abort", "-C", "relocation-model=pic"])
        .args(["-C", "codegen-units=1", "-C", "strip=debuginfo"]);
    let status = build.status().expect("cargo can be started");
    assert!(status.success(), "the shim does not build: {status}");
    link(&target_dir.join("release/libc_shim.a"), &out);
}

/// An executable file that needs no dynamic linker and lies anywhere.
fn link(archive: &Path, out: &Path) {
    let exports = out.join("shim.map");
    fs::write(&exports, "{ local: *; };\n").expect("can be written");
    let status = Command::new("cc")
        .args(["-shared", "-nostdlib", "-s", "-Wl,--entry=wf_start", "-o"])
        .arg(out.join("shim"))
        .arg("-Wl,--whole-archive")
        .arg(archive)
        .arg("-Wl,--no-whole-archive")
        .arg(format!("-Wl,--version-script={}", exports.display()))
        .args(["-Wl,--gc-sections", "-Wl,-Bsymbolic", "-Wl,--build-id=none"])
        .args(["-Wl,-z,noexecstack", "-Wl,-z,norelro", "-Wl,--no-undefined"])
        .status()
        .expect("cc can be started");
    assert!(status.success(), "the shim cannot be linked: {status}");
}
