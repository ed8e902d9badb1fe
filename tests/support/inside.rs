//! Programs that are compiled together with contrib/inside/wayfarer.c.

use super::stage;
use std::path::PathBuf;
use std::process::Command;

/// A file of that folder.
pub fn contrib(name: &str) -> PathBuf {
    stage::repository().join("contrib/inside").join(name)
}

/// `sources`, compiled together with wayfarer.c.
pub fn compiled(name: &str, compiler: &str, flags: &[&str], sources: &[&str]) -> PathBuf {
    let mut all = vec![contrib("wayfarer.c"), contrib("wayfarer.h")];
    all.extend(sources.iter().map(|one| stage::repository().join(one)));
    let product = stage::dir().join(name);
    let built = stage::build_if_older(&product, &all, |beside| {
        let mut command = Command::new(compiler);
        command.args(["-O1", "-g", "-Wall", "-pthread"]).args(flags);
        let compiled = all.iter().filter(|one| !one.ends_with("wayfarer.h"));
        command.args(compiled).arg("-o").arg(beside);
        command
    });
    built.expect("compiles");
    product
}
