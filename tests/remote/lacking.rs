//! Machines that lack what a job needs.

use super::away::Site;
use crate::support::user::User;
use std::fs;

/// A machine that lacks what the job needs says so while the job runs on.
#[test]
fn a_machine_that_lacks_something_is_known_before_the_job_leaves() {
    let what = "a_machine_that_lacks_something_is_known_before_the_job_leaves";
    let Some(mut site) = Site::new(what, "away-lacks") else {
        return;
    };
    let ssh = site.submit.dir.join("lesser-ssh");
    let real = &site.ssh;
    let script = format!(
        "case $1 in localhost) exec {real} \"$1\" \"ulimit -n 512; $2\" ;; esac\nexec {real} \"$1\" \"$2\"\n"
    );
    fs::write(&ssh, script).expect("writes");
    User::Ordinary.own(&ssh);
    site.ssh = format!("sh {}", ssh.display());
    let mut job = site.with_files(site.guest(&["127.0.0.1"], &["--every", "1h"]));
    site.until("Running", 1);
    site.until_lines(5);
    let away = ["migrate", "job", "--to", "localhost"];
    site.refused(
        &away,
        "localhost does not take it, so it stays where it is: ",
    );
    site.refused(&away, "hard limit nofile is 512");
    let status = site.status();
    assert_eq!(
        (&status["RemoteHost"], &status["NumJobStarts"]),
        (&"127.0.0.1".into(), &1.into()),
        "{}",
        site.story()
    );
    let before = site.lines();
    site.until_lines(before + 5);
    site.ends_well(&mut job);
}
