//! Chains: files of which each line follows from the one before. What a job has left of one is held against links made anew.

use super::run::{self, Run, finish};
use super::user::User;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

/// The same links, made anew, as many as there are.
const CHECK: &str = r#"
import hashlib, sys
lines = open(sys.argv[1], "rb").read().splitlines()
assert lines
link = b"begin"
for number, line in enumerate(lines):
    for _ in range(300):
        link = hashlib.sha256(link).digest()
    expected = b"%d %s" % (number, link.hex().encode())
    assert line == expected, (number, line, expected)
print("at last", link.hex())
"#;

/// Holds a file of a directory against the links that it should have; the check's output is what a job says that nobody has disturbed.
pub fn check(directory: &Path, file: &str, within: Duration) -> Result<(ExitStatus, Run), String> {
    let mut command = run::clean_command("/usr/bin/python3");
    command.args(["-c", CHECK, file]).current_dir(directory);
    finish("the check", command, User::Ordinary, within)
}
