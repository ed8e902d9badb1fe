//! Names that are looked for and are not there: one question tells of a whole folder (docs/CALLS.md), and nobody can tell but by the time.

use super::walks::{TWO, trips_of};
use super::{DEADLINE, Submit, cannot_hide, missing, output, words};
use crate::support::run::Run;
use crate::support::user::User;
use std::ffi::OsStr;
use std::fs;

/// Looks for many names in few folders, then waits.
const SEARCH: &str = r#"
import os, sys
for i in range(600):
    name = 'p%d/%s%d' % (i % 3, ['none', 'deep/none', 'none/deep/'][i // 3 % 3], i)
    assert not os.path.exists(name) and not os.path.lexists(os.path.abspath(name)), name
    try: open(name); assert False
    except FileNotFoundError: pass
for i in range(3):
    assert 'deep' in os.listdir('p%d' % i) and all(os.path.exists('p%d/%d' % (i, j)) for j in range(40))
print('searched', flush=True); sys.stdin.readline()
"#;

/// What the job makes is there at once, whoever of it has made it and however often it was looked for before.
const OWN_NAMES: &str = r#"
import os, shutil
os.makedirs('d/deep')
for i in range(20): open('d/there%d' % i, 'w').close()
folder = os.open('d', os.O_RDONLY)
def missing(name):
    for i in range(3): assert not os.path.exists('d/never%d' % i)
    assert not os.path.lexists('d/' + name) and not os.path.lexists(os.path.abspath('d/' + name))
    try: os.stat(name, dir_fd=folder); assert False, name
    except FileNotFoundError: pass
def there(name):
    os.lstat('d/' + name); os.lstat(os.path.abspath('d/' + name)); os.lstat(name, dir_fd=folder)
n = 0
for who in mine, other:
    for make in ["open('d/%s', 'w').close()", "os.mkdir('d/%s')", "os.symlink('nowhere', 'd/%s')", "os.link('d/there0', 'd/%s')",
                 "os.rename('d/there%d', 'd/%%s')" % (n // 7 + 1), "os.mkfifo('d/%s')", "os.close(os.open('d/%s', os.O_WRONLY | os.O_CREAT | os.O_EXCL))"]:
        n += 1; name = 'new%d' % n
        missing(name); missing(name + '/below'); who(make % name); there(name)
    missing('deep/x%d' % n); who("os.makedirs('d/deep/x%d/y')" % n); there('deep/x%d/y' % n)
    missing('.hidden%d' % n); who("open('d/.hidden%d', 'w').close()" % n); there('.hidden%d' % n)
    # Another folder is called so now.
    missing('moved'); who("os.rename('d', 'e'); os.mkdir('d'); open('d/moved', 'w').close()"); os.stat('d/moved')
    who("os.unlink('d/moved'); os.rmdir('d'); os.rename('e', 'd')"); missing('moved')
    # What is listed of a folder that was called so when it was opened is not there by that name.
    os.mkdir('big')
    for i in range(400): open('big/%03d' % i, 'w').close()
    listed = os.open('big', os.O_RDONLY | os.O_DIRECTORY); who("os.rename('big', 'old'); os.mkdir('big')")
    names = os.listdir(listed); assert len(names) == 400 and all(os.stat(name, dir_fd=listed) for name in names)
    assert not any(os.path.lexists('big/' + name) for name in names) and all(os.path.lexists('old/' + name) for name in names)
    os.close(listed); os.rmdir('big'); shutil.rmtree('old')
    base = os.getcwd(); os.mkdir('here'); os.chdir('here'); assert os.getcwd() == base + '/here'
    who("os.rename('%s/here', '%s/there')" % (base, base)); assert os.getcwd() == base + '/there'
    who("os.rmdir('%s/there')" % base)
    try: os.getcwd(); assert False
    except FileNotFoundError: os.chdir(base)
    assert os.getcwd() == base
print('all there')
"#;

/// Asks for a name until somebody else has made it.
const LATE: &str = r#"
import os, sys, time
while not os.path.exists('p/none'):
    if os.path.exists('p/late'): break
    time.sleep(0.01)
print('seen', flush=True)
"#;

/// Extended attributes of files that have none, and then have some.
const EXTENDED: &str = r#"
import os, struct, errno
acl = struct.pack('<I', 2) + b''.join(struct.pack('<HHI', tag, 6, who) for tag, who in
    [(1, 0xffffffff), (2, os.getuid()), (4, 0xffffffff), (16, 0xffffffff), (32, 0xffffffff)])
def refused(name, key):
    try: os.getxattr(name, key); assert False, (name, key)
    except OSError as error: return error.errno
os.mkdir('d')
for i in range(50): open('d/%d' % i, 'w').close()
keys = ['system.posix_acl_access', 'security.selinux', 'security.capability']
seen = {(kind, key): {refused(name, key) for name in names} for key in keys
        for kind, names in [('file', ['d/%d' % i for i in range(50)]), ('folder', ['d', '.'])]}
assert all(len(errors) == 1 for errors in seen.values()), seen
for i in range(50):
    name = 'd/%d' % i
    assert os.listxattr(name) == [] and refused(name, 'user.x') == errno.ENODATA
    key, value = [('user.x', b'y'), ('system.posix_acl_access', acl)][i % 2]
    os.setxattr(name, key, value)
    assert os.getxattr(name, key) == value and key in os.listxattr(name), name
    os.removexattr(name, key)
    assert refused(name, key) == errno.ENODATA and os.listxattr(name) == []
print('as set')
"#;

/// A job that says `line`, and ends well when it is told to go on, has asked the shadow less often by then.
fn asks_less_than(most: u64, submit: &Submit, name: &str, words: &[&OsStr], line: &str) -> Run {
    let (trips, job) = trips_of(submit, name, words, line);
    println!("{trips} round trips");
    assert!(trips < most, "{trips}");
    job
}

#[test]
fn what_is_in_a_large_folder_needs_few_questions() {
    let what = "what_is_in_a_large_folder_needs_few_questions";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("large");
    let folder = submit.home().join("large");
    for below in 0..3 {
        fs::create_dir_all(folder.join(format!("below{below}"))).expect("makes it");
    }
    for file in 0..1000 {
        fs::write(folder.join(format!("file{file}")), "x").expect("writes");
    }
    let script = "find large -size +0 | wc -l; ls -l large | wc -l; cd large; ls -l | wc -l; echo looked; read x";
    let words = ["/bin/bash", "-c", script].map(OsStr::new);
    // Three times a thousand files, for `ls` with two extended attributes each, and the start of seven programs.
    let job = asks_less_than(500, &submit, "large", &words, "looked");
    let counts = job.out.text();
    let counts: Vec<&str> = counts.lines().map(str::trim).collect();
    assert_eq!(counts, ["1004", "1004", "1004", "looked"]);
}

#[test]
fn extended_attributes_are_there_at_once() {
    let what = "extended_attributes_are_there_at_once";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("extended");
    let job = submit.elsewhere(&words(&["/usr/bin/python3", "-c", EXTENDED]));
    let found = output("attributes", job);
    assert_eq!(found, ("as set\n".into(), String::new(), Some(0)));
}

#[test]
fn a_search_needs_few_questions() {
    let what = "a_search_needs_few_questions";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("search");
    for folder in 0..3 {
        let folder = submit.home().join(format!("p{folder}"));
        fs::create_dir_all(folder.join("deep")).expect("makes it");
        for file in 0..40 {
            fs::write(folder.join(file.to_string()), "x").expect("writes");
        }
    }
    let words = ["/usr/bin/python3", "-c", SEARCH].map(OsStr::new);
    // 1800 questions about what is not there, and those of python's own start.
    let _job = asks_less_than(150, &submit, "search", &words, "searched");
}

#[test]
fn names_that_the_job_makes_are_there_at_once() {
    let what = "names_that_the_job_makes_are_there_at_once";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("search-own");
    let script = [TWO, OWN_NAMES].concat();
    let job = submit.elsewhere(&["/usr/bin/python3", "-c", &script].map(OsStr::new));
    let found = output("names", job);
    assert_eq!(found, ("all there\n".into(), String::new(), Some(0)));
}

#[test]
fn names_that_others_make_are_seen_within_a_second() {
    let what = "names_that_others_make_are_seen_within_a_second";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("search-late");
    fs::create_dir(submit.home().join("p")).expect("makes it");
    let job = submit.elsewhere(&words(&["/usr/bin/python3", "-c", LATE]));
    let mut job = Run::start("the search", job, User::Ordinary).expect("starts");
    // It has asked often by then.
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(job.ended().is_none(), "{}", job.describe());
    fs::write(submit.home().join("p/late"), "x").expect("writes");
    let made = std::time::Instant::now();
    job.wait_line("seen", DEADLINE).expect("sees it");
    let after = made.elapsed();
    // A second, and a busy machine.
    assert!(after < std::time::Duration::from_secs(4), "after {after:?}");
    let status = job.wait(DEADLINE).expect("ends");
    assert_eq!(status.code(), Some(0), "{}", job.describe());
}

/// Python's start, cold: 85 before folders told what they do not have, libraries came with their open, and programs were read in one
/// round trip.
#[test]
fn a_program_begins_with_few_questions() {
    let what = "a_program_begins_with_few_questions";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("begins");
    let wait = "import sys; print('here', flush=True); sys.stdin.readline()";
    let words = ["/usr/bin/python3", "-I", "-S", "-c", wait].map(OsStr::new);
    let _job = asks_less_than(50, &submit, "begins", &words, "here");
}

/// The C library opens its parts one after another, in an order of its own.
#[test]
fn a_locale_is_set_with_few_questions() {
    let what = "a_locale_is_set_with_few_questions";
    if missing(what) || cannot_hide(what) {
        return;
    }
    if !std::path::Path::new("/usr/lib/locale/C.utf8").is_dir() {
        return crate::skip::note(what, "no /usr/lib/locale/C.utf8 here");
    }
    let trips = |locale: &str| {
        // One that has not learnt from the other.
        let submit = Submit::new("locale");
        let script = "$| = 1; print \"here\\n\"; <STDIN>";
        let words = ["/usr/bin/env", locale, "/usr/bin/perl", "-e", script].map(OsStr::new);
        trips_of(&submit, "locale", &words, "here").0
    };
    let (without, with) = (trips("LC_ALL=C"), trips("LC_ALL=C.UTF-8"));
    println!("{} round trips", with - without);
    assert!(with > without && with - without < 16, "{without}, {with}");
}
