//! Machines that lack what a job needs.

use super::away::Site;
use crate::support::stage::{Linking, c_guest};
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

/// A shell there gets no threads, only processes (as at `ulimit -u`).
fn without_threads(site: &mut Site, host: &str) {
    let program = c_guest("no_threads", Linking::Dynamic).expect("compiles");
    let ssh = site.submit.dir.join("threadless-ssh");
    let real = &site.ssh;
    let script = format!(
        "case $1 in {host}) ;; *) exec {real} \"$1\" \"$2\" ;; esac\nexec {real} \"$1\" \"words=\\$(cat <<'END'\n$2\nEND\n); exec {} sh -c \\\"\\$words\\\"\"\n",
        program.display()
    );
    fs::write(&ssh, script).expect("writes");
    User::Ordinary.own(&ssh);
    site.ssh = format!("sh {}", ssh.display());
}

#[test]
fn a_job_comes_back_from_a_machine_that_makes_no_more_threads() {
    let what = "a_job_comes_back_from_a_machine_that_makes_no_more_threads";
    let Some(mut site) = Site::new(what, "away-threadless") else {
        return;
    };
    without_threads(&mut site, "localhost");
    let mut job = site.with_files(site.guest(&["127.0.0.1"], &["--every", "1h"]));
    site.until("Running", 1);
    site.until_lines(5);
    // Threads are wanted when the job is there.
    let away = ["migrate", "job", "--to", "localhost"];
    site.refused(&away, "it goes on on 127.0.0.1, not on localhost");
    site.until("Running", 2);
    let before = site.lines();
    site.until_lines(before + 5);
    site.ends_well(&mut job);
    let said = job.err.text();
    assert!(
        said.contains("no thread can be made") && !said.contains("panicked"),
        "{said}"
    );
}
