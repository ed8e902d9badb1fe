//! `run --confine`: what is refused, what is kept from the job, and real programs that do not notice (docs/adr/0027-confined-jobs.md).

use super::restart::{
    PYTHON, SQLITE, Traveller, UNDER_JOURNAL, job_words, job_words_held, travels,
};
use super::*;
use std::ffi::OsString;

fn confined(submit: &Submit, options: &[&'static str], job: &[&'static str]) -> Command {
    let mut command = clean_command(stage::wayfarer());
    let options = [&["--confine"], options].concat();
    submit.run(&mut command, &words(&options), &words(job));
    command.current_dir(submit.home());
    command
}

fn travels_confined(what: &str, script: &str) {
    if missing(what) {
        return;
    }
    let mut traveller = Traveller::new(what, &UNDER_JOURNAL);
    traveller.is_confined = true;
    travels(traveller, &job_words_held("/usr/bin/python3", script), 3);
}

#[test]
fn a_confined_job_that_changes_files_in_every_way_goes_on() {
    let what = "a_confined_job_that_changes_files_in_every_way_goes_on";
    travels_confined(what, PYTHON);
}

#[test]
fn a_data_base_of_a_confined_job_goes_on() {
    travels_confined("a_data_base_of_a_confined_job_goes_on", SQLITE);
}

/// A shell, and what it begins: sort with files in /tmp, gcc with all that it executes.
#[test]
fn confined_programs_do_what_they_do_elsewhere() {
    const SCRIPT: &str = "set -e
seq 200000 | awk '{print $1 * 7919 % 200003}' > numbers
sort -n -S 100K numbers | tail -n 1
echo 'int puts(const char *); int main(void) { return puts(\"compiled\") < 0; }' > a.c
gcc -o a a.c; ./a; echo to nobody > /dev/null; head -c 3 /dev/zero | wc -c; cat < /dev/fd/0";
    let what = "confined_programs_do_what_they_do_elsewhere";
    if missing(what) {
        return;
    }
    let submit = Submit::new("confined-programs");
    fs::write(submit.home().join("in"), "the input\n").expect("writes");
    let mut command = clean_command("/bin/sh");
    command.args(["-c", "exec \"$@\" <in", "sh"]);
    command.arg(stage::wayfarer()).current_dir(submit.home());
    submit.run(
        &mut command,
        &words(&["--confine"]),
        &words(&["sh", "-c", SCRIPT]),
    );
    let (out, error, status) = output("the job", command);
    let expected = "200002\ncompiled\n3\nthe input\n";
    assert_eq!((out.as_str(), status), (expected, Some(0)), "{error}");
}

/// Directories that whoever begins it has open lead nowhere.
#[test]
fn what_is_open_is_kept_from_a_confined_job() {
    let what = "what_is_open_is_kept_from_a_confined_job";
    if missing(what) {
        return;
    }
    let submit = Submit::new("confined-open");
    let guest = c_guest("confined", Linking::Dynamic).expect("the guest compiles");
    for (is_confined, reaches) in [(true, false), (false, true)] {
        let mut shell = clean_command("/bin/sh");
        shell.args(["-c", "exec 9</etc; exec \"$@\"", "sh"]);
        shell.arg(stage::wayfarer());
        let options = words(if is_confined { &["--confine"] } else { &[] });
        let job = ["/etc/passwd", "1", "mark"].map(OsStr::new);
        let job = [&[guest.as_os_str()], &job[..]].concat();
        submit.run(&mut shell, &options, &job);
        let (out, error, status) = output("the job", shell);
        assert_eq!(status, Some(0), "{error}");
        let reached = out.lines().any(|line| line == "reached descriptors");
        assert_eq!(reached, reaches, "{out}");
    }
}

#[test]
fn what_would_be_files_of_the_machine_is_refused() {
    let what = "what_would_be_files_of_the_machine_is_refused";
    if missing(what) {
        return;
    }
    let submit = Submit::new("confined-refused");
    let marker = "echo begun > begun";
    let refused = |mut command: Command, status: i32, why: &str| {
        command.current_dir(submit.home());
        let (out, error, found) = output("the job", command);
        assert_eq!((out.as_str(), found), ("", Some(status)), "{error}");
        assert!(error.contains(why), "{error}");
        assert!(!submit.home().join("begun").exists());
    };
    let job = ["sh", "-c", marker];
    for (options, why) in [
        (&["--local-files", "x"][..], "--local-files"),
        (&["--filesystem-domain", "x"], "--filesystem-domain"),
        (
            &["--remap", "a = local:/etc"],
            "found a file of this machine",
        ),
        (&["--want-remote-io", "no"], "of which it would see none"),
        (&["--pids", "host"], "which --pids host forbids"),
    ] {
        refused(confined(&submit, options, &job), 2, why);
    }
    let mut alone = clean_command(stage::wayfarer());
    alone.args(["run", "--confine", "--"]).args(job);
    refused(alone, 2, "--shadow");
    let mut folder = clean_command("/bin/sh");
    folder.args(["-c", "exec \"$@\" </etc", "sh"]);
    folder.arg(stage::wayfarer());
    submit.run(&mut folder, &words(&["--confine"]), &words(&job));
    let why = "descriptor 0 leads into this machine's file system: found a directory";
    refused(folder, 2, why);
    // Where there are no user namespaces.
    let tool = stage::host_tool("lesser_machine").expect("the tool compiles");
    let mut lesser = clean_command(tool);
    lesser.args(["no-namespaces", "--"]).arg(stage::wayfarer());
    submit.run(&mut lesser, &words(&["--confine"]), &words(&job));
    refused(
        lesser,
        3,
        "--confine: this machine gives the job no namespaces, so it is not started (clone: EPERM)",
    );
}

/// Its loader knows, and who restarts it.
#[test]
fn an_image_of_a_confined_job_is_confined() {
    let what = "an_image_of_a_confined_job_is_confined";
    if missing(what) {
        return;
    }
    let mut traveller = Traveller::new(what, &UNDER_JOURNAL);
    traveller.is_confined = true;
    let script = "import os, time
while not os.path.exists('enough'): time.sleep(0.01)
for line in open('/proc/self/status'):
    if line.startswith(('CapBnd', 'NoNewPrivs')): print(line, end='')
print(open('/proc/self/mountinfo').read().count('wayfarer-confined'))
";
    let mut job = traveller.begin(&job_words("/usr/bin/python3", script));
    let record = traveller.submit.dir.join("state/jobs/job/job.json");
    let begun = || fs::read_to_string(&record).ok();
    let record = support::run::poll(SOON, begun).expect("a record");
    assert!(record.contains("\"confined\": true"), "{record}");
    let image = traveller.checkpoint(&mut job).expect("it runs");
    traveller.kill(&mut job);
    let by_itself = clean_command(&image);
    let (_, error, status) = output("the image", by_itself);
    assert_eq!(status, Some(2), "{error}");
    assert!(
        error.contains("sees nothing of the machine (--confine)"),
        "{error}"
    );
    let mut job = traveller.restart(&image, "roll-back");
    fs::write(traveller.submit.home().join("enough"), "").expect("writes");
    let status = job.wait(DEADLINE).expect("ends");
    assert!(status.success(), "{}", job.describe());
    let out: Vec<OsString> = job.out.text().lines().map(OsString::from).collect();
    assert_eq!(
        out,
        ["CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "1"],
        "{}",
        job.describe()
    );
}
