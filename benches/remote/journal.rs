//! What it costs that changes can be undone: the same changes here, through a shadow, and through shadows with a journal.

use super::{Shadow, Values, measure, median};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Small files in a folder, as many as the guest expects.
const FILES: usize = 300;

/// Without a journal, and with each kind.
const KINDS: [(&str, &[&str]); 3] = [
    ("plain", &[]),
    (
        "kill",
        &["--journal", "undo", "--journal-durability", "kill"],
    ),
    ("power", &["--journal", "undo"]),
];

/// What the guest finds, anew for each run.
fn furnish(dir: &Path) {
    let _ = fs::remove_dir_all(dir);
    for folder in ["many", "olds"] {
        fs::create_dir_all(dir.join(folder)).expect("makes it");
        for number in 0..FILES {
            let file = dir.join(folder).join(number.to_string());
            fs::write(file, [b'x'; 1024]).expect("writes");
        }
    }
    for block in ["4k", "64k", "1024k"] {
        let file = dir.join(format!("old-{block}"));
        fs::write(file, vec![b'x'; 32 << 20]).expect("writes");
    }
    fs::write(dir.join("tail"), [b'x'; 100]).expect("writes");
    rustix::fs::sync();
}

/// Prints a table; no limits are set.
pub(super) fn compare(dir: &Path, repeat: usize) {
    let guest = super::compile(dir, "remote_changes");
    let mut here = Values::new();
    let mut there = [const { Values::new() }; KINDS.len()];
    for _ in 0..repeat {
        let place = dir.join("local");
        furnish(&place);
        let mut local = Command::new(&guest);
        local.current_dir(&place);
        measure(local, &mut here);
        for ((kind, options), values) in KINDS.iter().zip(&mut there) {
            let place = dir.join(kind);
            furnish(&place.join("home"));
            let _shadow = Shadow::start(&place, options);
            let mut job = super::remote(&place);
            job.arg(&guest).current_dir(place.join("home"));
            measure(job, values);
        }
    }
    println!("changes of files that were there; ratios to the shadow without a journal");
    for (name, values) in &here {
        let [plain, kill, power] = [0, 1, 2].map(|kind| median(&there[kind][name]));
        let (k, p) = if name.ends_with("us") {
            (kill / plain, power / plain)
        } else {
            (plain / kill, plain / power)
        };
        let local = median(values);
        println!(
            "{name:<32} here {local:>9.2}  shadow {plain:>9.2}  journal, kill {kill:>9.2} ({k:.2})  power {power:>9.2} ({p:.2})"
        );
    }
}
