//! Jobs with remote files that are stopped, killed and go on elsewhere: they end as if nothing had happened, and so do their files.

use super::*;
use std::ffi::OsString;
use std::time::Instant;
use support::random::{Random, seed};

/// What the shadow of such a job keeps.
pub(super) const UNDER_JOURNAL: [&str; 4] = ["--allow", "/:ro", "--journal", "undo"];
/// How often a job is killed; a hundred times with `WF_FULL`, if it has a longer form.
const TIMES: usize = 3;
const TIMES_FULL: usize = 100;

/// Appends, renames, removes, overwrites and cuts for about two seconds; prints now and then.
pub(super) const PYTHON: &str = r#"
import os, sys, time
log = open("log", "a")
block = open("block", "w+b")
block.write(bytes(200000))
for i in range(400):
    log.write(f"{i} {i * i}\n")
    if i % 3 == 0: log.flush()
    with open(f"part-{i % 7}", "w") as part: part.write(str(i) * 100)
    if i % 5 == 0: os.replace(f"part-{i % 7}", f"kept-{i % 3}")
    if i % 11 == 0: os.remove(f"part-{i % 7}") if os.path.exists(f"part-{i % 7}") else None
    block.seek(i * 379 % 190000); block.write(b"%d" % i)
    if i % 50 == 49: block.truncate(200000 - i)
    if i % 17 == 0: os.makedirs(f"tree/{i % 4}/{i}"); os.symlink("../log", f"tree/{i % 4}/{i}/link")
    fd = os.open("appended", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640); os.write(fd, b"%d\n" % i); os.close(fd)
    time.sleep(0.003)
log.close(); block.close()
print("the end")
"#;

/// Four threads that append to one file each, and to one together.
pub(super) const THREADS: &str = r#"
import os, threading, time
def work(me):
    together = os.open("together", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with open(f"own-{me}", "w") as own:
        for i in range(400):
            own.write(f"{i}\n"); own.flush()
            os.write(together, b"%d %03d\n" % (me, i))
            time.sleep(0.005)
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
lines = sorted(open("together").readlines())
open("together", "w").writelines(lines)
print("the end")
"#;

/// A data base in rollback mode, by one process.
pub(super) const SQLITE: &str = r#"
import sqlite3, time
data = sqlite3.connect("data.db")
data.execute("pragma synchronous = normal")
data.execute("create table if not exists t(a integer primary key, b)")
for i in range(300):
    with data: data.execute("insert into t(b) values (?)", (str(i) * 50,))
    if i % 10 == 0:
        with data: data.execute("update t set b = b || 'x' where a % 3 = 0")
    time.sleep(0.005)
with open("result", "w") as out:
    for row in data.execute("select a, length(b) from t order by a"): print(*row, file=out)
data.close()
print("the end")
"#;

const PERL: &str = r#"
$| = 1; open(my $log, ">>", "log") or die; my $sum = 0;
for my $i (1 .. 300) {
    $sum += $i * $i; print $log "$i $sum\n";
    open(my $f, ">", "new") or die; print $f "$i\n" x 50; close $f; rename("new", "state") or die;
    select(undef, undef, undef, 0.004);
}
close $log; print "the end\n";
"#;

/// Walks through a tree again and again, with some of its files open.
const WALK: &str = r#"
import os, time
for folder in range(6):
    os.makedirs(f"tree/{folder}", exist_ok=True)
    for i in range(30):
        with open(f"tree/{folder}/{i}", "w") as f: f.write(f"{folder} {i} " * 50)
held = []
for turn in range(4):
    for folder, _, files in os.walk("tree"):
        for name in files:
            f = open(f"{folder}/{name}"); text = f.read()
            assert text == f"{folder[5:]} {name} " * 50, (folder, name, text)
            if int(name) % 9 == turn: held.append((f, text))
            else: f.close()
            time.sleep(0.002)
    for f, text in held: f.seek(3); assert f.read() == text[3:]
    if turn == 2: os.remove("tree/0/0"); open("tree/0/0", "w").write("0 0 " * 50)
print("the end")
"#;

pub(super) fn job_words(program: &str, script: &str) -> Vec<OsString> {
    let flag = if program.ends_with("perl") {
        "-e"
    } else {
        "-c"
    };
    [program, flag, script].map(OsString::from).to_vec()
}

/// The same, and when the script is through it waits for the end of its standard input.
pub(super) fn job_words_held(program: &str, script: &str) -> Vec<OsString> {
    let wait = if program.ends_with("perl") {
        "$| = 1; 1 while <STDIN>;"
    } else {
        "import sys; sys.stdout.flush(); sys.stdin.read()"
    };
    job_words(program, &format!("{script}\n{wait}\n"))
}

/// One job that goes on and on.
pub(super) struct Traveller {
    pub(super) submit: Submit,
    random: Random,
    image: usize,
    /// It begins with `--confine`.
    pub(super) is_confined: bool,
    /// More options that it begins with.
    pub(super) options: Vec<OsString>,
    /// Its standard input stays open, until somebody drops it.
    pub(super) is_held: bool,
}

impl Traveller {
    pub(super) fn new(label: &str, options: &[&str]) -> Self {
        Self::of(Submit::allowing(label, options), label)
    }

    pub(super) fn of(submit: Submit, label: &str) -> Self {
        let seed = seed();
        println!("WF_SEED={seed}");
        Traveller {
            submit,
            random: Random::new(seed, label),
            image: 0,
            is_confined: false,
            options: vec![],
            is_held: false,
        }
    }

    pub(super) fn wayfarer(&self, words: &[&OsStr]) -> Command {
        let mut command = clean_command(stage::wayfarer());
        command.arg("--dir").arg(self.submit.dir.join("state"));
        command.args(words);
        command
    }

    /// Begins it, named `job`.
    pub(super) fn begin(&self, job: &[OsString]) -> Run {
        let home = self.submit.home();
        let address = address(&self.submit.dir);
        let mut command = self.wayfarer(&words(&["run", "-q", "--name", "job", "--chdir"]));
        command.arg(home).arg("--shadow").arg(address);
        command.args(self.is_confined.then_some("--confine"));
        command.args(&self.options);
        command.arg("--").args(job);
        self.start("the job", command)
    }

    /// A checkpoint; none if the job has ended before.
    pub(super) fn checkpoint(&mut self, job: &mut Run) -> Option<PathBuf> {
        self.image += 1;
        let image = self
            .submit
            .dir
            .join("state")
            .join(format!("image-{}", self.image));
        let end = Instant::now() + SOON;
        let (said, status) = loop {
            let mut command = self.wayfarer(&words(&["checkpoint", "job", "-o"]));
            command.arg(&image);
            let (_, said, status) = output("the checkpoint", command);
            // It is just being brought back.
            let not_yet = said.contains("job has ended") && job.ended().is_none();
            if !not_yet || Instant::now() > end {
                break (said, status);
            }
        };
        if status != Some(0) && poll_end(job) {
            return None;
        }
        let shadow = self.submit.shadow.err.text();
        assert_eq!(status, Some(0), "{said}\n{}{shadow}", job.describe());
        Some(image)
    }

    /// Whether it had ended well before.
    pub(super) fn kill(&self, job: &mut Run) -> bool {
        let command = self.wayfarer(&words(&["kill", "job", "-s", "KILL"]));
        let _ = output("the kill", command);
        job.wait(SOON).expect("is dead").success()
    }

    pub(super) fn restart(&self, image: &Path, files: &'static str) -> Run {
        let mut command = self.wayfarer(&words(&["restart", "--name", "job", "--files", files]));
        command
            .arg("--shadow")
            .arg(address(&self.submit.dir))
            .arg(image);
        self.start("the restarted job", command)
    }

    fn start(&self, label: &str, mut command: Command) -> Run {
        if !self.is_held {
            return Run::start(label, command, User::Ordinary).expect("starts");
        }
        command.stdin(std::process::Stdio::piped());
        Run::start_with_stdin(label, command, User::Ordinary).expect("starts")
    }

    pub(super) fn pause(&mut self, most_ms: u64) {
        std::thread::sleep(self.random.millis(0, most_ms));
    }
}

fn poll_end(job: &mut Run) -> bool {
    let ended = support::run::poll(SOON, || job.ended());
    ended.is_some_and(|status| status.success())
}

/// Killed several times at random, each time after it has gone on for a while after a checkpoint.
pub(super) fn ends_as_undisturbed(what: &str, program: &'static str, script: &str) {
    ends_after(what, &job_words_held(program, script), TIMES);
}

/// The same, of any program that waits for the end of its standard input before it ends.
pub(super) fn ends_as_undisturbed_by(what: &str, words: &[OsString]) {
    ends_after(what, words, TIMES);
}

/// The same; with `WF_FULL` what stands first in `longer` is replaced by the second, and it is killed often.
fn ends_as_undisturbed_or_long(
    what: &str,
    program: &'static str,
    script: &str,
    longer: (&str, &str),
) {
    if std::env::var_os("WF_FULL").is_none() {
        return ends_as_undisturbed(what, program, script);
    }
    assert!(script.contains(longer.0), "{longer:?}");
    let script = script.replace(longer.0, longer.1);
    ends_after(what, &job_words_held(program, &script), TIMES_FULL);
}

fn ends_after(what: &str, words: &[OsString], times: usize) {
    if missing(what) {
        return;
    }
    travels(Traveller::new(what, &UNDER_JOURNAL), words, times);
}

/// The job ends as one that nobody disturbs. However long a checkpoint takes, it does not end before it has been moved so many times: it
/// waits for the end of its standard input.
pub(super) fn travels(mut traveller: Traveller, words: &[OsString], times: usize) {
    let mut here = clean_command(&words[0]);
    here.args(&words[1..]).current_dir(traveller.submit.local());
    let (said, error, status) = output("the job here", here);
    assert_eq!(
        (said.as_str(), error.as_str(), status),
        ("the end\n", "", Some(0))
    );
    traveller.is_held = true;
    let mut job = traveller.begin(words);
    let mut at_work = 0;
    for turn in 0..times {
        traveller.pause(500);
        let Some(image) = traveller.checkpoint(&mut job) else {
            panic!("it ended when it had been moved {turn} times");
        };
        traveller.pause(300);
        let has_ended = traveller.kill(&mut job);
        assert!(!has_ended, "it ended when it had been moved {turn} times");
        at_work += u32::from(!job.out.text().contains("the end"));
        job = traveller.restart(&image, "roll-back");
        // They would fill the disk.
        let before = image.with_file_name(format!("image-{}", traveller.image - 1));
        let _ = fs::remove_file(before);
    }
    println!("killed {times} times, {at_work} of them at work");
    drop(job.stdin());
    let status = job.wait(DEADLINE).expect("ends");
    let shadow = traveller.submit.shadow.err.text();
    assert!(status.success(), "{}{shadow}", job.describe());
    assert_eq!(
        tree(&traveller.submit.home()),
        tree(&traveller.submit.local())
    );
}

/// What a change of attributes was answered is remembered like any other answer.
#[test]
fn a_job_goes_on_whose_last_change_was_of_attributes() {
    const SCRIPT: &str = "import os, time
fd = os.open('file', os.O_RDWR | os.O_CREAT, 0o644)
for i in range(120):
    os.ftruncate(fd, i)
    os.chmod('file', 0o600 + i % 2)
    time.sleep(0.02)
assert os.fstat(fd).st_size == 119 and os.stat('file').st_mode & 0o777 == 0o601
print('the end')
";
    let what = "a_job_goes_on_whose_last_change_was_of_attributes";
    ends_as_undisturbed(what, "/usr/bin/python3", SCRIPT);
}

#[test]
fn a_job_that_changes_files_in_every_way_goes_on() {
    let what = "a_job_that_changes_files_in_every_way_goes_on";
    let longer = ("range(400)", "range(20000)");
    ends_as_undisturbed_or_long(what, "/usr/bin/python3", PYTHON, longer);
}

#[test]
fn a_job_of_several_threads_goes_on() {
    ends_as_undisturbed(
        "a_job_of_several_threads_goes_on",
        "/usr/bin/python3",
        THREADS,
    );
}

/// As `pthread_exit` in `main` leaves it.
#[test]
fn a_job_whose_first_thread_has_ended_goes_on() {
    let (work, rest) = THREADS.split_once("[t.start()").expect("begins");
    let rest = rest.trim_end().replace('\n', "\n    ");
    let script = format!(
        "{work}def rest():\n    [t.start(){rest}\n    import sys; sys.stdout.flush(); os._exit(0)\n\
         threading.Thread(target=rest).start()\n\
         import ctypes; ctypes.CDLL(None).syscall(60, 0)\n"
    );
    let what = "a_job_whose_first_thread_has_ended_goes_on";
    ends_as_undisturbed(what, "/usr/bin/python3", &script);
}

#[test]
fn threads_that_lock_go_on() {
    let guest = c_guest("remote_lockers", Linking::Dynamic).expect("the guest compiles");
    ends_as_undisturbed_by("threads_that_lock_go_on", &[guest.into_os_string()]);
}

#[test]
fn a_data_base_goes_on() {
    ends_as_undisturbed("a_data_base_goes_on", "/usr/bin/python3", SQLITE);
}

#[test]
fn a_perl_script_goes_on() {
    let longer = ("1 .. 300", "1 .. 14000");
    let what = "a_perl_script_goes_on";
    ends_as_undisturbed_or_long(what, "/usr/bin/perl", PERL, longer);
}

#[test]
fn a_walk_goes_on() {
    ends_as_undisturbed("a_walk_goes_on", "/usr/bin/python3", WALK);
}

/// The image is moved to a machine that has nothing but wayfarer.
#[test]
fn a_job_goes_on_where_nothing_is_installed() {
    let what = "a_job_goes_on_where_nothing_is_installed";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let mut traveller = Traveller::new(what, &UNDER_JOURNAL);
    let words = job_words_held("/usr/bin/python3", PYTHON);
    let mut here = clean_command(&words[0]);
    here.args(&words[1..]).current_dir(traveller.submit.local());
    let here = output("the job here", here);
    assert_eq!(here.2, Some(0), "{}", here.1);
    traveller.is_held = true;
    let mut job = traveller.begin(&words);
    traveller.pause(300);
    let image = traveller.checkpoint(&mut job).expect("it lives yet");
    traveller.pause(200);
    assert!(!traveller.kill(&mut job), "{}", job.describe());
    let mut command = traveller.submit.bare_machine();
    command.arg("--dir").arg(traveller.submit.dir.join("state"));
    command.args(["restart", "--files", "roll-back", "--shadow"]);
    command.arg(address(&traveller.submit.dir)).arg(&image);
    let there = output("the job there", command);
    assert_eq!(there.2, Some(0), "{}", there.1);
    assert_eq!(
        tree(&traveller.submit.home()),
        tree(&traveller.submit.local())
    );
}

/// Nobody can go back to where there is no image.
#[test]
fn journals_that_nobody_needs_go() {
    let what = "journals_that_nobody_needs_go";
    if missing(what) {
        return;
    }
    let traveller = Traveller::new(what, &UNDER_JOURNAL);
    let file = traveller.submit.home().join("file");
    fs::write(&file, "old").expect("writes");
    User::Ordinary.own(&file);
    let journals = traveller.submit.dir.join("undo");
    let count = || fs::read_dir(&journals).expect("lists").count();
    let script = "open('file', 'w').write('new'); print('written', flush=True); input()";
    let mut command = traveller
        .submit
        .remote(&words(&["/usr/bin/python3", "-c", script]));
    command.stdin(std::process::Stdio::piped());
    let mut job = Run::start_with_stdin("the job", command, User::Ordinary).expect("starts");
    job.wait_line("written", SOON).expect("writes");
    assert_eq!(count(), 1);
    // Its input ends, which input() does not bear.
    drop(job.stdin());
    job.wait(SOON).expect("ends");
    let gone = support::run::poll(SOON, || (count() == 0).then_some(()));
    assert!(gone.is_some(), "{}", traveller.submit.shadow.err.text());
    assert_eq!(fs::read(&file).expect("is there"), b"new");
    let names = tree(&traveller.submit.home()).into_keys();
    assert_eq!(names.collect::<Vec<_>>(), [PathBuf::from("file")]);
}

/// Without a journal: what is open for writing is cut back, and what somebody else has done is told.
#[test]
fn without_a_journal_changed_files_are_named() {
    const APPENDS: &str = r#"
import time
log = open("log", "a")
print("begun", flush=True)
for i in range(600):
    log.write(f"{i}\n"); log.flush(); time.sleep(0.005)
print("the end")
"#;
    let what = "without_a_journal_changed_files_are_named";
    if missing(what) {
        return;
    }
    let mut traveller = Traveller::new(what, &["--allow", "/:ro"]);
    let mut job = traveller.begin(&job_words("/usr/bin/python3", APPENDS));
    job.wait_line("begun", SOON).expect("begins");
    let image = traveller.checkpoint(&mut job).expect("it lives yet");
    let log = traveller.submit.home().join("log");
    let was = fs::metadata(&log).expect("is there").len();
    let end = Instant::now() + SOON;
    while fs::metadata(&log).expect("is there").len() <= was + 20 {
        assert!(Instant::now() < end, "it writes nothing");
        std::thread::sleep(Duration::from_millis(2));
    }
    traveller.kill(&mut job);
    let mut refused = traveller.restart(&image, "fail");
    assert_eq!(refused.wait(SOON).expect("ends").code(), Some(1));
    let said = refused.err.text();
    let expected = format!("{} has been changed since the checkpoint", log.display());
    assert!(said.contains(&expected), "{said}");
    let mut goes_on = traveller.restart(&image, "roll-back");
    let status = goes_on.wait(DEADLINE).expect("ends");
    assert!(status.success(), "{}", goes_on.describe());
    let lines: String = (0..600).map(|i| format!("{i}\n")).collect();
    assert_eq!(fs::read_to_string(log).expect("is text"), lines);
}

/// An image of such a job says what it needs.
#[test]
fn an_image_asks_for_its_shadow() {
    let what = "an_image_asks_for_its_shadow";
    if missing(what) {
        return;
    }
    let mut traveller = Traveller::new(what, &["--allow", "/:ro"]);
    let script = "print('begun', flush=True); import time; time.sleep(60)";
    let mut job = traveller.begin(&job_words("/usr/bin/python3", script));
    job.wait_line("begun", SOON).expect("begins");
    let image = traveller.checkpoint(&mut job).expect("it lives yet");
    traveller.kill(&mut job);
    let (_, by_itself, status) = output("the image", clean_command(&image));
    assert_eq!(status, Some(2), "{by_itself}");
    assert!(
        by_itself.contains("wayfarer restart --shadow"),
        "{by_itself}"
    );
    let mut command = traveller.wayfarer(&words(&["restart"]));
    command.arg(&image);
    let (_, without, status) = output("the restart", command);
    assert_eq!(status, Some(2), "{without}");
    assert!(without.contains("--shadow"), "{without}");
}
