//! For build scripts: a cargo that builds a freestanding part as if nobody built anything around it.

use std::env;
use std::path::Path;
use std::process::Command;

/// `cargo rustc` in `folder`; the flags, profile and target of the outer build do not reach it.
pub(crate) fn rustc(folder: &Path, target_dir: &Path) -> Command {
    let mut build = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.current_dir(folder);
    build.args(["rustc", "--release", "--target-dir"]);
    build.arg(target_dir);
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
    build
}
