//! What the owner of a machine wants of jobs and of what serves them: niceness, quotas, no more rights than they need.

use super::restart::{Traveller, UNDER_JOURNAL, job_words};
use super::*;
use std::os::unix::fs::PermissionsExt;
use support::run::{finish, poll};

/// Niceness of its first thread and of another when it may end.
const NICE: &str = "import os, threading, time
def tell():
    while not os.path.exists('enough'): time.sleep(0.01)
    tid = threading.get_native_id()
    open(f'nice-{threading.current_thread().name}', 'w').write(str(os.getpriority(os.PRIO_PROCESS, tid)))
other = threading.Thread(target=tell, name='other'); other.start(); tell(); other.join()
";

#[test]
fn a_job_that_goes_on_can_be_made_nicer() {
    let what = "a_job_that_goes_on_can_be_made_nicer";
    if missing(what) {
        return;
    }
    let own = niceness_of(std::process::id());
    let mut traveller = Traveller::new(what, &UNDER_JOURNAL);
    let home = traveller.submit.home();
    let mut job = traveller.begin(&job_words("/usr/bin/python3", NICE));
    let record = traveller.submit.dir.join("state/jobs/job/job.json");
    poll(SOON, || record.exists().then_some(())).expect("a record");
    let mut image = None;
    // From each image as nice as was asked for, not nicer each time; one that is nicer already stays so.
    for (by, expected) in [("4", own + 4), ("4", own + 4), ("2", own + 4)] {
        let made = traveller.checkpoint(&mut job).expect("it runs");
        traveller.kill(&mut job);
        let address = address(&traveller.submit.dir);
        let line = [
            "restart",
            "--name",
            "job",
            "--files",
            "roll-back",
            "--nice",
            by,
        ];
        let mut command = traveller.wayfarer(&line.map(OsStr::new));
        command.args(["--shadow", &address]).arg(&made);
        job = Run::start("the job", command, User::Ordinary).expect("starts");
        image = Some((made, expected));
    }
    fs::write(home.join("enough"), "").expect("writes");
    assert!(
        job.wait(DEADLINE).expect("ends").success(),
        "{}",
        job.describe()
    );
    let (image, expected) = image.expect("one");
    for thread in ["MainThread", "other"] {
        let found = fs::read_to_string(home.join(format!("nice-{thread}")));
        assert_eq!(found.expect("is there"), expected.to_string(), "{thread}");
    }
    // More than there is.
    let mut command = clean_command("/usr/bin/nice");
    command.args(["-n", "1"]).arg(stage::wayfarer());
    command.args(["restart", "--nice", "19", "--shadow"]);
    command.arg(address(&traveller.submit.dir)).arg(image);
    command.env("XDG_STATE_HOME", traveller.submit.dir.join("state"));
    let (_, error, status) = output("the restart", command);
    assert_eq!(status, Some(2), "{error}");
    assert!(error.contains("expected at most 19"), "{error}");
}

fn niceness_of(pid: u32) -> i64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("is there");
    let (_, rest) = stat.rsplit_once(") ").expect("a name");
    let word = rest.split(' ').nth(16).expect("a niceness");
    word.parse().expect("a number")
}

/// Changes a small and a large file, and says what came of it.
const CHANGES: &str = "import errno, os
def change(name, size):
    try:
        fd = os.open(name, os.O_RDWR); os.pwrite(fd, b'y' * size, 0); os.fsync(fd); os.close(fd)
        return 'changed'
    except OSError as error: return errno.errorcode[error.errno]
print(change('small', 4096), change('large', 1 << 20), change('small', 4096))
";
const LIMITS: [(&str, &str); 2] = [
    ("256K", "changed EDQUOT changed\n"),
    ("16M", "changed changed changed\n"),
];

/// A job that is run so does [`CHANGES`], with so much of a journal.
fn changes_within(submit: &Submit, mut command: Command, most: &str, expected: &str) {
    let home = submit.home();
    for (name, size) in [("small", 4096), ("large", 1 << 20)] {
        fs::write(home.join(name), vec![b'x'; size]).expect("writes");
        User::Ordinary.own(&home.join(name));
    }
    command.args(["--", "/usr/bin/python3", "-c", CHANGES]);
    command.current_dir(&home);
    let (out, error, status) = output("the job", command);
    assert_eq!(
        (out.as_str(), status),
        (expected, Some(0)),
        "{most}: {error}"
    );
    let large = fs::read(home.join("large")).expect("is there");
    let is_old = large == vec![b'x'; 1 << 20];
    assert_eq!(is_old, most == "256K");
}

#[test]
fn a_change_that_would_need_more_journal_than_there_may_be_is_refused() {
    let what = "a_change_that_would_need_more_journal_than_there_may_be_is_refused";
    if missing(what) {
        return;
    }
    let submit = Submit::new("journal-max");
    for (most, expected) in LIMITS {
        let mut command = clean_command(stage::wayfarer());
        command.env("XDG_RUNTIME_DIR", submit.dir.join("door"));
        command.arg("--dir").arg(submit.dir.join("state"));
        command.args(["run", "-q", "--journal", "--journal-max", most]);
        changes_within(&submit, command, most, expected);
    }
}

#[test]
fn a_shadow_keeps_no_more_journal_than_it_may() {
    let what = "a_shadow_keeps_no_more_journal_than_it_may";
    if missing(what) {
        return;
    }
    for (most, expected) in LIMITS {
        let options = [
            "--allow",
            "/:ro",
            "--journal",
            "undo",
            "--journal-max",
            most,
        ];
        let submit = Submit::allowing("shadow-journal-max", &options);
        let mut command = clean_command(stage::wayfarer());
        command.env("XDG_STATE_HOME", submit.dir.join("state"));
        command.args(["run", "-q", "--shadow"]);
        command.arg(address(&submit.dir));
        changes_within(&submit, command, most, expected);
    }
}

/// Sets of capabilities of a process: effective, and what it could ever have.
fn capabilities(pid: i32) -> [u64; 2] {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    ["CapEff:\t", "CapBnd:\t"].map(|name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map_or(u64::MAX, |set| {
            u64::from_str_radix(set, 16).expect("a number")
        })
    })
}

/// CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, LINUX_IMMUTABLE, SYS_RESOURCE, MKNOD, SETFCAP.
const ABOUT_FILES: u64 = 0b1_1111 | 1 << 9 | 1 << 24 | 1 << 27 | 1 << 31;
const TRACE: u64 = 1 << 19;
const KILL: u64 = 1 << 5;

/// It has no more rights than it needs, and its copies and images all of them.
#[test]
fn a_starter_of_root_lays_down_what_only_its_children_need() {
    let what = "a_starter_of_root_lays_down_what_only_its_children_need";
    if let Some(why) = User::Root.missing() {
        return skip::note(what, &why);
    }
    let dir = tempfile::tempdir().expect("a directory");
    let wayfarer = |words: &[&str]| {
        let mut command = clean_command(stage::wayfarer());
        command.arg("--dir").arg(dir.path()).args(words);
        command
    };
    let told = |words: &[&str]| {
        let ended = finish(words[0], wayfarer(words), User::Root, SOON);
        let (status, run) = ended.expect("ends");
        assert!(status.success(), "{}", run.describe());
        run.out.text()
    };
    let all = capabilities(std::process::id() as i32);
    let mut command = wayfarer(&["run", "-q", "--name", "job", "--every", "1h", "--"]);
    command.args(["/usr/bin/python3", "-u", "-c"]);
    command.arg("import time\nprint('READY')\nwhile True: time.sleep(0.05)");
    let mut job = Run::start("the job", command, User::Root).expect("starts");
    job.wait_line("READY", SOON)
        .unwrap_or_else(|why| panic!("{why}\n{}", job.describe()));
    let starter = job.pid() as i32;
    let root = || {
        let ps: serde_json::Value = serde_json::from_str(&told(&["ps", "--json"])).ok()?;
        i32::try_from(ps["jobs"][0]["root_pid"].as_i64()?).ok()
    };
    let mut before = 0;
    for restarts in 0..2 {
        let few = [(ABOUT_FILES | TRACE | KILL) & all[0], all[1]];
        assert_eq!(capabilities(starter), few);
        let pid = poll(SOON, || root().filter(|pid| *pid != before)).expect("is there");
        // In a namespace of its own it has more.
        let has = capabilities(pid);
        assert_eq!(has[0] & all[0], all[0], "what a program of root has");
        told(&["checkpoint", "job"]);
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(pid),
            nix::sys::signal::Signal::SIGKILL,
        )
        .expect("is there");
        before = pid;
        let goes_on = || {
            let status = told(&["status", "--json", "job"]);
            let status: serde_json::Value = serde_json::from_str(&status).ok()?;
            let is_so = status["NumRestarts"] == restarts + 1 && status["State"] == "Running";
            is_so.then_some(())
        };
        poll(SOON, goes_on).unwrap_or_else(|| panic!("{}", job.describe()));
    }
    told(&["vacate", "job"]);
    assert_eq!(job.wait(SOON).expect("ends").code(), Some(85));
}

#[test]
fn what_serves_a_job_of_root_has_no_more_rights_than_it_needs() {
    let what = "what_serves_a_job_of_root_has_no_more_rights_than_it_needs";
    if let Some(why) = User::Root.missing() {
        return skip::note(what, &why);
    }
    let submit = Submit::with("rights", &["--allow", "/:ro"], User::Root);
    let expected = (ABOUT_FILES | TRACE) & capabilities(std::process::id() as i32)[0];
    assert_eq!(capabilities(submit.shadow.pid() as i32), [expected; 2]);
    // A file of somebody else's that nobody else may read.
    let private = submit.home().join("private");
    fs::write(&private, "private").expect("writes");
    User::Ordinary.own(&private);
    fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).expect("sets");
    let script =
        "test \"$(cat private)\" = private && chown 0:0 private && echo READY; exec sleep 100";
    let mut command = submit.remote(&words(&["sh", "-c", script]));
    command.env("WF_RIGHTS", submit.dir.as_os_str());
    let mut job = Run::start("the job", command, User::Root).expect("starts");
    job.wait_line("READY", SOON)
        .unwrap_or_else(|why| panic!("{why}\n{}", job.describe()));
    let supervisor = job.pid() as i32;
    let gives_up = || (capabilities(supervisor)[0] == 0).then_some(());
    poll(SOON, gives_up).unwrap_or_else(|| panic!("{:x?}", capabilities(supervisor)));
    let mark = format!("WF_RIGHTS={}", submit.dir.display());
    let is_keeper = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == b"keeper")
    };
    let marked = support::run::marked(&mark);
    let keepers: Vec<_> = marked.into_iter().filter(is_keeper).collect();
    assert_eq!(keepers.len(), 1, "{keepers:?}");
    assert_eq!(capabilities(keepers[0]), [expected; 2]);
    // They can still end.
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(supervisor),
        nix::sys::signal::Signal::SIGTERM,
    )
    .expect("is there");
    job.wait(SOON).expect("ends");
}
