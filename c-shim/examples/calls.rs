//! Which programs and libraries make system calls themselves, and what would be done about it: one line for each that has the bytes of a
//! `syscall` instruction in its code, and a summary.
//!
//! ```text
//! cargo run --release -p c-shim --example calls -- /usr/bin /usr/lib ...
//! ```

use c_shim::elf::Elf;
use c_shim::rewrite::{Found, Missed, Number, find, may_call};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn main() {
    let mut left: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let mut sums = BTreeMap::new();
    let mut time = Duration::ZERO;
    while let Some(path) = left.pop() {
        let Ok(found) = fs::symlink_metadata(&path) else {
            continue;
        };
        if found.is_dir() {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            left.extend(entries.map(|entry| entry.path()));
        } else if found.is_file()
            && let Ok(file) = fs::read(&path)
            && let Some(elf) = Elf::read(&file).filter(|elf| elf.texts().next().is_some())
        {
            let begun = Instant::now();
            let verdict = look(&elf, &path);
            time += begun.elapsed();
            *sums.entry(verdict).or_insert(0u32) += 1;
        }
    }
    println!("{sums:?}, {} ms", time.as_millis());
}

/// Says what is in an object; what would be done.
fn look(elf: &Elf<'_>, path: &Path) -> &'static str {
    if !elf.texts().any(|text| may_call(elf.bytes_of(&text))) {
        return "without the bytes";
    }
    let (begun, image) = (Instant::now(), image(elf));
    let code: Vec<_> = elf.code().collect();
    let table = elf.functions();
    let all = |table| find(&image, &code, table, |_| true);
    let found = all(table.as_ref()).or_else(|_| all(None));
    let Found { sites, missed } = found.unwrap_or_default();
    let (certain, data): (Vec<_>, Vec<_>) = missed.iter().partition(|one| one.is_certain());
    let verdict = match (sites.is_empty(), certain.is_empty()) {
        (true, true) => "no call",
        (false, true) => "rewritten",
        // If any of these is about files.
        _ => "dispatched",
    };
    let flags = sites.iter().filter(|site| site.needs_flags).count();
    println!(
        "{verdict}: {}{}: {} sites ({flags} keep flags), cannot be led: {}; data: {}; {} ms",
        path.display(),
        if elf.interpreter().is_some() {
            ""
        } else {
            " (no linker)"
        },
        sites.len(),
        listed(&certain),
        data.len(),
        begun.elapsed().as_millis()
    );
    verdict
}

fn listed(missed: &[&Missed]) -> String {
    let mut kinds = BTreeMap::new();
    for one in missed {
        let number = match one.number {
            Number::Known(number) => number.to_string(),
            Number::Computed => "?".to_owned(),
        };
        let kind = kinds.entry(format!("{number} {:?}", one.why));
        kind.or_insert_with(Vec::new).push(one.at);
    }
    let kinds = kinds
        .iter()
        .map(|(kind, at)| format!("{} x {kind} ({:x})", at.len(), at[0]));
    kinds.collect::<Vec<_>>().join(", ")
}

/// The object as it is mapped.
fn image(elf: &Elf<'_>) -> Vec<u8> {
    let mut image = vec![0; elf.span().end as usize];
    for load in elf.loads() {
        let bytes = elf.bytes_of(&load);
        image[load.address as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    image
}
