//! Whoever keeps a job's images, as the machine where it runs sees him.

use super::away::Site;
use super::{SOON, words};
use crate::support::run::{Run, clean_command, poll};
use crate::support::stage;
use crate::support::user::User;
use std::fs;

/// Writes, and asks for nothing: what it has written is at home only because somebody beside it sends it.
const WRITER: &str = "\
import time
for n in range(1500):
    print('out', n, flush=True)
    time.sleep(0.01)
";

/// He reads what he has before he says what that is: what the job writes is sent meanwhile.
#[test]
fn whoever_takes_an_image_may_take_his_time() {
    let what = "whoever_takes_an_image_may_take_his_time";
    let Some(site) = Site::new(what, "taken") else {
        return;
    };
    let all = words(&["python3", "-c", WRITER]);
    let mut job = site.with_files(site.submitted(&["127.0.0.1"], &["--every", "1h"], &all));
    site.until("Running", 1);
    let out = site.submit.home().join("out");
    let longer = || {
        let len = || fs::metadata(&out).map_or(0, |file| file.len());
        let before = len();
        poll(SOON, || (len() > before).then_some(()))
    };
    longer().expect("it works");
    let there = site.copies_there()[0].to_string_lossy().into_owned();
    let id = there.strip_prefix("away-").expect("a copy");
    let mut command = clean_command(stage::wayfarer());
    command.env("XDG_CACHE_HOME", site.submit.dir.join("state/cache"));
    command.args(["--away", id, "checkpoint", "--carry", "1", "--", "job"]);
    let (stdin, silent) = std::io::pipe().expect("a pipe");
    command.stdin(stdin);
    let mut taking = Run::start_with_stdin("the taking", command, User::Ordinary).expect("starts");
    let place = format!("/proc/{}/wchan", taking.pid());
    let waits = || fs::read_to_string(&place).is_ok_and(|place| place.contains("pipe_read"));
    poll(SOON, || waits().then_some(())).expect("it waits");
    // What was on its way then, and what was written since.
    for _ in 0..3 {
        longer().expect("what it writes is sent");
    }
    drop(silent);
    let status = taking.wait(SOON).expect("ends");
    let said = taking.err.text();
    assert!(
        !status.success() && said.contains("nobody is there who takes the image"),
        "{said}"
    );
    assert!(job.wait(super::DEADLINE).expect("ends").success());
    let text = fs::read_to_string(&out).expect("is there");
    let expected: String = (0..1500).map(|n| format!("out {n}\n")).collect();
    assert!(text == expected, "{} bytes", text.len());
}
