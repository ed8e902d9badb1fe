//! Copies of a job that are there when a newer one begins: they find themselves fenced, and end without having written anything more.

use super::cut::start_secure;
use super::durable::{KEPT, Mortal, python};
use super::*;

/// A line of its log every few milliseconds; in the middle it asks for something until that is there.
const SCRIPT: &str = "
import os, time
file = open('log', 'w')
for number in range(300):
    file.write(f'{number}\\n'); file.flush()
    if number == 20: print('begun', flush=True)
    time.sleep(0.005)
    while number == 60 and not os.path.exists('go'): time.sleep(0.005)
print('the end')
";

/// Both copies have good lines to one shadow; nobody has killed the first.
#[test]
fn a_copy_that_runs_yet_ends_when_a_newer_one_has_begun() {
    let what = "a_copy_that_runs_yet_ends_when_a_newer_one_has_begun";
    if missing(what) {
        return;
    }
    let mortal = Mortal::new(&KEPT);
    let options = ["--state", "keep-tls", "--journal", "undo-tls"];
    let (shadow, address) = start_secure(&mortal, 0, &options);
    let wayfarer = |state: &str, words: &[&str]| {
        let mut command = clean_command(stage::wayfarer());
        command.env("XDG_RUNTIME_DIR", mortal.submit.dir.join("door"));
        command.arg("--dir").arg(mortal.submit.dir.join(state));
        command.args(words);
        command
    };
    let reach = |command: &mut Command| {
        command.args(["--shadow", &address, "--identity-file"]);
        command.arg(mortal.submit.dir.join("door/identity"));
    };
    let mut command = wayfarer(
        "state",
        &["run", "--lease", "30s", "--name", "job", "--chdir"],
    );
    command.arg(mortal.submit.home());
    reach(&mut command);
    command.arg("--").args(python(SCRIPT));
    let mut job = Run::start("the job", command, User::Ordinary).expect("starts");
    job.wait_line("begun", SOON).expect("begins");
    let image = mortal.submit.dir.join("state/image");
    let mut command = wayfarer("state", &["checkpoint", "job", "-o"]);
    command.arg(&image);
    let (_, said, status) = output("the checkpoint", command);
    assert_eq!(status, Some(0), "{said}");
    // As on another machine: it knows nothing of the first.
    let mut command = wayfarer(
        "other",
        &["restart", "--name", "again", "--files", "roll-back"],
    );
    reach(&mut command);
    command.arg(&image);
    let mut again = Run::start("the newer copy", command, User::Ordinary).expect("starts");
    let ended = job.wait(DEADLINE).expect("ends");
    assert!(!ended.success(), "{}", job.describe());
    assert_eq!(job.out.text(), "begun\n", "the first has not ended well");
    let told = job.err.text();
    let log = shadow.err.text();
    assert!(
        told.contains("a newer copy of the job has begun"),
        "{told}{log}"
    );
    fs::write(mortal.submit.home().join("go"), "").expect("writes");
    let ended = again.wait(DEADLINE).expect("ends");
    let log = shadow.err.text();
    assert!(ended.success(), "{}{log}", again.describe());
    assert!(
        again.out.text().ends_with("the end\n"),
        "{}",
        again.describe()
    );
    let lines = fs::read_to_string(mortal.submit.home().join("log")).expect("is there");
    let expected: String = (0..300).map(|number| format!("{number}\n")).collect();
    assert_eq!(lines, expected);
}
