//! Programs that walk through folders: small files come along with what was asked (docs/CALLS.md), and nobody can tell but by the time.

use super::{DEADLINE, Submit, cannot_hide, io_report, missing, output, words};
use crate::support::run::{Run, clean_command};
use crate::support::stage;
use crate::support::user::User;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::process::Stdio;

/// Reads all files of a tree in the order of its listing, then in that of its names; and waits.
const WALK: &str = r#"
import os, sys
def read(name):
    with open(name, 'rb') as f: return f.read()
found = {}
for folder, folders, files in os.walk('tree'):
    for name in files: found[folder + '/' + name] = read(folder + '/' + name)
for name in sorted(found): assert read(name) == found[name], name
assert all(found[name] == (name * 20).encode() for name in found), 'contents'
print(len(found), flush=True); sys.stdin.readline()
"#;

/// What is done by `mine` or by `other`: two processes of one job.
pub(super) const TWO: &str = r#"
import os
ask, asked = os.pipe(); told, tell = os.pipe()
if os.fork() == 0:
    os.close(asked); os.close(told)
    for line in os.fdopen(ask):
        exec(line); os.write(tell, b'x')
    os._exit(0)
def other(what):
    os.write(asked, what.encode() + bytes([10])); os.read(told, 1)
def mine(what): exec(what)
"#;

/// What the job changes itself is seen by every open, whatever came along before.
const OWN_CHANGES: &str = r#"
import os, subprocess
os.mkdir('d')
for i in range(40):
    with open('d/%02d' % i, 'w') as f: f.write('old %d' % i)
def read(i, folder='d'):
    with open(folder + '/%02d' % i) as f: return f.read()
def walk(upto): return [read(i) for i in range(upto)]
for who in mine, other:
    walk(4); who("open('d/06', 'w').write('new')"); assert read(6) == 'new', who
    walk(4); who("f = os.open('d/07', os.O_WRONLY); os.pwrite(f, b'OLD', 0); os.close(f)"); assert read(7) == 'OLD 7', who
    walk(4); who("os.rename('d/09', 'd/08')"); assert read(8) == 'old 9', who
    try: read(9); assert False
    except FileNotFoundError: pass
    walk(4); who("os.unlink('d/10')")
    try: read(10); assert False
    except FileNotFoundError: pass
    walk(4); who("os.rename('d', 'e'); os.mkdir('d'); open('d/11', 'w').write('other')"); assert read(11) == 'other' and read(11, 'e') == 'old 11', who
    who("os.unlink('d/11'); os.rmdir('d'); os.rename('e', 'd')")
    walk(4); who("os.chmod('d/12', 0o600); os.truncate('d/13', 3)"); assert os.stat('d/12').st_mode & 0o777 == 0o600 and read(13) == 'old'
    walk(4); f = open('d/14'); who("os.unlink('d/14')"); assert os.fstat(f.fileno()).st_nlink == 0 and f.read() == 'old 14'; f.close()
    for i in 6, 7, 8, 9, 10, 12, 13, 14: open('d/%02d' % i, 'w').write('old %d' % i)
    os.chmod('d/12', 0o644)
# What was opened stays open across fork and exec, and may be locked, mapped and written below.
walk(4); f = os.open('d/05', os.O_RDONLY)
if os.fork() == 0:
    os.set_inheritable(f, True); os.execv('/bin/cat', ['cat', '/dev/fd/%d' % f])
assert os.wait()[1] == 0
import fcntl, mmap
walk(3); f = open('d/04', 'rb'); fcntl.flock(f, fcntl.LOCK_SH); assert mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[:] == b'old 4'
subprocess.run(['sh', '-c', 'printf more >> d/04'], check=True); assert f.read() == b'old 4more'
print(' done')
"#;

/// The same of folders.
const OWN_FOLDERS: &str = r#"
import os, shutil
for i in range(40):
    os.makedirs('d/%02d' % i); open('d/%02d/a' % i, 'w').close()
def listed(i, folder='d'): return sorted(os.listdir(folder + '/%02d' % i))
def walk(upto): assert all(listed(i) == ['a'] for i in range(upto))
for who in mine, other:
    walk(4); who("open('d/06/new', 'w').close()"); assert listed(6) == ['a', 'new'], who
    walk(4); who("os.rename('d/07', 'd/away')")
    try: listed(7); assert False
    except FileNotFoundError: pass
    walk(4); who("os.unlink('d/08/a')"); assert listed(8) == [], who
    walk(4); who("os.rename('d', 'e'); os.mkdir('d'); os.mkdir('d/09')"); assert listed(9) == [] and listed(9, 'e') == ['a'], who
    who("os.rmdir('d/09'); os.rmdir('d'); os.rename('e', 'd')")
    who("os.unlink('d/06/new'); os.rename('d/away', 'd/07'); open('d/08/a', 'w').close()")
# What was opened is that folder, whatever it is called later.
walk(4); f = os.open('d/05', os.O_RDONLY | os.O_DIRECTORY)
os.rename('d/05', 'moved'); os.mkdir('d/05')
os.close(os.open('below', os.O_CREAT | os.O_WRONLY, dir_fd=f))
assert sorted(os.listdir(f)) == ['a', 'below'] == sorted(os.listdir('moved')) and listed(5) == []
os.fchdir(f); assert os.getcwd().endswith('/moved') and os.path.exists('below')
print('done')
"#;

/// Processes that are killed while files are open for them in advance.
const KILLED: &str = r#"
import os, signal
for _ in range(60):
    pid = os.fork()
    if pid == 0:
        for i in range(3):
            with open('d/%03d' % i) as f: f.read()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
held = [open('d/%03d' % i) for i in range(200)]
assert all(f.read() == str(i) for i, f in enumerate(held))
print('open')
"#;

/// Runs a job until it says `line`; how often it has asked the shadow by then. It is told to go on, and ends well.
pub(super) fn trips_of(submit: &Submit, name: &str, words: &[&OsStr], line: &str) -> (u64, Run) {
    let mut command = clean_command(stage::wayfarer());
    submit.run(&mut command, &["--name", name].map(OsStr::new), words);
    command.current_dir(submit.home()).stdin(Stdio::piped());
    let mut job = Run::start_with_stdin("the job", command, User::Ordinary).expect("starts");
    job.wait_line(line, DEADLINE).expect("has come so far");
    let report = io_report(submit, name);
    let trips = report["all"]["RoundTrips"].as_u64().expect("a number");
    let mut input = job.stdin().expect("an input");
    input.write_all(b"\n").expect("goes on");
    let status = job.wait(DEADLINE).expect("ends");
    assert_eq!(status.code(), Some(0), "{}", job.describe());
    (trips, job)
}

#[test]
fn a_walk_needs_few_questions() {
    let what = "a_walk_needs_few_questions";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("walk");
    for folder in 0..10 {
        let folder = format!("tree/{folder}");
        fs::create_dir_all(submit.home().join(&folder)).expect("makes it");
        for file in 0..60 {
            let name = format!("{folder}/{}", file * 7919 % 1000);
            fs::write(submit.home().join(&name), name.repeat(20)).expect("writes");
        }
    }
    let words = ["/usr/bin/python3", "-c", WALK].map(OsStr::new);
    let (trips, _job) = trips_of(&submit, "walk", &words, "600");
    // 1200 opens, as many reads and closes.
    println!("{trips} round trips");
    assert!(trips < 500, "{trips}");
}

#[test]
fn what_came_along_is_not_believed_when_the_job_has_changed_it() {
    let what = "what_came_along_is_not_believed_when_the_job_has_changed_it";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("walk-own");
    let script = [TWO, OWN_CHANGES].concat();
    let job = submit.elsewhere(&["/usr/bin/python3", "-c", &script].map(OsStr::new));
    let found = output("changes", job);
    assert_eq!(found, ("old 5 done\n".into(), String::new(), Some(0)));
}

#[test]
fn a_walk_through_folders_needs_few_questions() {
    let what = "a_walk_through_folders_needs_few_questions";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("walk-tree");
    for folder in 0..60 {
        let folder = submit.home().join(format!("tree/{folder}"));
        for below in ["x", "y", "z"] {
            fs::create_dir_all(folder.join(below)).expect("makes it");
            fs::write(folder.join(below).join("file"), below).expect("writes");
        }
    }
    let script =
        "find tree -size -2 -type f | wc -l; find tree -type d | wc -l; echo looked; read x";
    let words = ["/bin/bash", "-c", script].map(OsStr::new);
    let (trips, job) = trips_of(&submit, "tree", &words, "looked");
    // Twice 241 folders, and the start of five programs.
    println!("{trips} round trips");
    assert!(trips < 450, "{trips}");
    let counts = job.out.text();
    let counts: Vec<&str> = counts.lines().map(str::trim).collect();
    assert_eq!(counts, ["180", "241", "looked"]);
}

#[test]
fn folders_that_came_along_are_not_believed_when_the_job_has_changed_them() {
    let what = "folders_that_came_along_are_not_believed_when_the_job_has_changed_them";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("walk-folders");
    let script = [TWO, OWN_FOLDERS].concat();
    let job = submit.elsewhere(&["/usr/bin/python3", "-c", &script].map(OsStr::new));
    let found = output("changes", job);
    assert_eq!(found, ("done\n".into(), String::new(), Some(0)));
}

#[test]
fn processes_that_are_killed_within_a_walk_leave_room_for_others() {
    let what = "processes_that_are_killed_within_a_walk_leave_room_for_others";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("walk-killed");
    let folder = submit.home().join("d");
    fs::create_dir(&folder).expect("makes it");
    for file in 0..300 {
        fs::write(folder.join(format!("{file:03}")), file.to_string()).expect("writes");
    }
    let job = submit.elsewhere(&words(&["/usr/bin/python3", "-c", KILLED]));
    let found = output("killed", job);
    assert_eq!(found, ("open\n".into(), String::new(), Some(0)));
}
