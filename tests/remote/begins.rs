//! What a program asks as it begins is told at once, if it was run before (docs/adr/0030-how-programs-begin.md).

use super::walks::trips_of;
use super::{DEADLINE, Submit, cannot_hide, missing, output};
use crate::support::run::{Run, clean_command};
use crate::support::stage;
use crate::support::user::User;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::symlink;

/// A program that asks about what is in the home by absolute names, in all manners.
const LOOKS: &str = r#"
import os, sys
home = os.getcwd() + '/'
def tell(what, act):
    try: print(what, act())
    except OSError as error: print(what, error.strerror)
def read(name):
    with open(home + name) as file: return file.read()
for name in 'kept', 'rewritten', 'removed', 'made': tell('file ' + name, lambda: read(name))
for name in 'folder', 'late': tell('folder ' + name, lambda: sorted(os.listdir(home + name)))
for name in 'kept', 'rewritten', 'removed', 'made', 'folder': tell('stat ' + name, lambda: (os.stat(home + name).st_size if os.path.isfile(home + name) else 'folder', os.lstat(home + name).st_mode))
for name in 'link', 'loose': tell('link ' + name, lambda: os.readlink(home + name))
tell('through', lambda: read('link'))
"#;

/// What the job changes before it asks: it wins.
const CHANGES: &str = r#"
import os, sys
home, word = os.getcwd() + '/', sys.argv[1]
def read(name):
    with open(home + name) as file: return file.read()
if word != 'first':
    with open(home + 'rewritten', 'w') as file: file.write(word)
    os.rename(home + 'kept', home + 'away'); os.symlink('rewritten', home + 'kept')
    os.mkdir(home + 'folder/' + word); os.unlink(home + 'removed')
for name in 'rewritten', 'kept', 'removed', 'away':
    try: print(name, read(name))
    except FileNotFoundError: print(name, 'none')
print(sorted(os.listdir(home + 'folder')))
if word != 'first':
    os.rename(home + 'away', home + 'kept'); os.rmdir(home + 'folder/' + word)
    open(home + 'removed', 'w').write('removed')
"#;

/// Opens many files, or one, and waits each time.
const MANY: &str = r#"
import os, sys, time
home = os.getcwd() + '/'
opened = [open(home + '%02d' % i) for i in range(60 if sys.argv[1] == 'all' else 1)]
assert all(file.read() == str(i) for i, file in enumerate(opened))
time.sleep(1.2)
os.path.exists(home + 'anything'); open(home + '59').close()
print('here', flush=True); sys.stdin.readline()
"#;

fn home_of(submit: &Submit) {
    let home = submit.home();
    for name in ["kept", "rewritten", "removed"] {
        fs::write(home.join(name), name).expect("writes");
    }
    fs::create_dir(home.join("folder")).expect("makes it");
    fs::write(home.join("folder/inside"), "").expect("writes");
    symlink("kept", home.join("link")).expect("links");
    for name in ["kept", "rewritten", "removed", "folder"] {
        User::Ordinary.own(&home.join(name));
    }
}

fn python(script: &str, more: &[&str]) -> Vec<OsString> {
    let first = ["/usr/bin/python3", "-c", script];
    first.iter().chain(more).map(OsString::from).collect()
}

fn said(submit: &Submit, words: &[OsString]) -> String {
    let words: Vec<&OsStr> = words.iter().map(OsString::as_os_str).collect();
    let (text, errors, status) = output("the job", submit.elsewhere(&words));
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    text
}

#[test]
fn a_program_that_was_run_before_begins_with_few_questions() {
    let what = "a_program_that_was_run_before_begins_with_few_questions";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("begins-again");
    let wait = "import sys; print('here', flush=True); sys.stdin.readline()";
    let python = ["/usr/bin/python3", "-c", wait].map(OsStr::new);
    let shell = ["/bin/bash", "-c", "echo here; read x"].map(OsStr::new);
    for (program, most) in [(&python, 20), (&shell, 20)] {
        let trips = |name: &str| trips_of(&submit, name, program, "here").0;
        let (first, again) = (trips("first"), trips("again"));
        println!("{first} round trips, then {again}");
        assert!(again <= most && again < first, "{first}, then {again}");
    }
}

#[test]
fn what_was_learnt_is_how_programs_ask_and_not_what_they_found() {
    let what = "what_was_learnt_is_how_programs_ask_and_not_what_they_found";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("begins-changed");
    home_of(&submit);
    let home = submit.home();
    let here = |script: &str| {
        let mut command = clean_command("/usr/bin/python3");
        command.args(["-c", script]).current_dir(&home);
        output("here", command).0
    };
    // The second process of a program is told what the first one has asked.
    for _ in 0..2 {
        assert_eq!(said(&submit, &python(LOOKS, &[])), here(LOOKS));
    }
    fs::write(home.join("rewritten"), "rewritten once more").expect("writes");
    fs::remove_file(home.join("removed")).expect("removes");
    fs::write(home.join("made"), "made").expect("writes");
    fs::write(home.join("folder/late"), "").expect("writes");
    fs::create_dir(home.join("late")).expect("makes it");
    fs::remove_file(home.join("link")).expect("removes");
    symlink("rewritten", home.join("link")).expect("links");
    symlink("nowhere", home.join("loose")).expect("links");
    let (there, expected) = (said(&submit, &python(LOOKS, &[])), here(LOOKS));
    assert!(expected.contains("rewritten once more"), "{expected}");
    assert_eq!(there, expected);
}

#[test]
fn what_the_job_itself_changes_counts_more_than_what_was_foreseen() {
    let what = "what_the_job_itself_changes_counts_more_than_what_was_foreseen";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("begins-own");
    home_of(&submit);
    let first = said(&submit, &python(CHANGES, &["first"]));
    let expected = "rewritten rewritten\nkept kept\nremoved removed\naway none\n['inside']\n";
    assert_eq!(first, expected);
    for word in ["second", "third"] {
        let expected = format!(
            "rewritten {word}\nkept {word}\nremoved none\naway kept\n['inside', '{word}']\n"
        );
        assert_eq!(said(&submit, &python(CHANGES, &[word])), expected);
    }
}

#[test]
fn what_was_foreseen_and_is_not_wanted_is_closed() {
    let what = "what_was_foreseen_and_is_not_wanted_is_closed";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("begins-many");
    for number in 0..60 {
        let name = submit.home().join(format!("{number:02}"));
        fs::write(name, number.to_string()).expect("writes");
    }
    let open = || {
        let fds = format!("/proc/{}/fd", submit.shadow.pid());
        let links = fs::read_dir(fds).expect("lists").flatten();
        let targets = links.filter_map(|link| fs::read_link(link.path()).ok());
        let home = submit.home();
        targets.filter(|target| target.starts_with(&home)).count()
    };
    let words = |which: &'static str| ["/usr/bin/python3", "-c", MANY, which].map(OsStr::new);
    let mut trips = vec![];
    for which in ["all", "one"] {
        let (asked, job) = trips_of(&submit, which, &words(which), "here");
        trips.push(asked);
        drop(job);
    }
    // While the third one waits, only what it has open is open.
    let mut command = clean_command(stage::wayfarer());
    submit
        .run(&mut command, &[], &words("one"))
        .current_dir(submit.home());
    command.stdin(std::process::Stdio::piped());
    let mut job = Run::start_with_stdin("the job", command, User::Ordinary);
    let job = job.as_mut().expect("starts");
    job.wait_line("here", DEADLINE).expect("has come so far");
    assert!(open() < 10, "{} files are open at the shadow", open());
    drop(job.stdin());
    assert_eq!(job.wait(DEADLINE).expect("ends").code(), Some(0));
    assert!(trips[1] < trips[0], "{trips:?}");
}

/// One program after another in one process, each of which has been told what it will ask.
const CHAIN: &str = r#"
import os, sys
home, left = os.getcwd() + '/', int(sys.argv[1])
if left == 60:
    for i in range(20):
        with open(home + str(i), 'w') as file: file.write('x' * i)
assert sum(len(open(home + str(i)).read()) for i in range(20)) == 190
with open(home + 'log', 'a') as file: file.write('%d\n' % left)
if left == 0: print('the end'); sys.stdin.read()
else: os.execv(sys.executable, ['python3', '-c', os.environ['CHAIN'], str(left - 1)])
"#;

#[test]
fn a_job_that_is_killed_while_its_programs_begin_goes_on() {
    let what = "a_job_that_is_killed_while_its_programs_begin_goes_on";
    let chain = format!("CHAIN={CHAIN}");
    let job = [
        "/usr/bin/env",
        &chain,
        "/usr/bin/python3",
        "-c",
        CHAIN,
        "60",
    ];
    super::restart::ends_as_undisturbed_by(what, &job.map(OsString::from));
}
