//! What was not tested here, and why: printed, and counted at the end of `scripts/test`.

use std::fs;
use std::io::Write;

/// Says that `what` was not tested, and why.
pub(crate) fn note(what: &str, reason: &str) {
    eprintln!("SKIP {what}: {reason}");
    // TARGET/PROFILE/deps/TEST
    let test = std::env::current_exe().expect("the test program");
    let Some(target) = test.ancestors().nth(3) else {
        return;
    };
    let log = target.join("test-skips.log");
    let file = fs::OpenOptions::new().append(true).create(true).open(log);
    if let Err(error) = file.and_then(|mut file| writeln!(file, "{what}: {reason}")) {
        eprintln!("(not counted: {error})");
    }
}
