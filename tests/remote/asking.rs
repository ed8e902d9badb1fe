//! Programs that ask for something themselves (contrib/inside), and run on another machine than their starter.

use super::DEADLINE;
use super::away::{Site, ends};
use crate::support::inside::{compiled, contrib};
use crate::support::stage;
use std::ffi::OsString;
use std::fs;
use std::process::Command;

const PYTHON: &str = "python3";

/// A job of this command under `submit`, which knows where wayfarer.py is.
fn submitted(site: &Site, options: &[&str], all: &[OsString]) -> Command {
    let words: Vec<_> = all.iter().map(OsString::as_os_str).collect();
    let mut command = site.submitted(&["127.0.0.1"], options, &words);
    let library = compiled("libwayfarer.so", "gcc", &["-shared", "-fPIC"], &[]);
    command.env("PYTHONPATH", stage::dir());
    command.env("WAYFARER_LIBRARY", library);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

fn said(site: &Site) -> String {
    fs::read_to_string(site.submit.home().join("out")).expect("is there")
}

/// It leaves by itself, and goes on; what it has said then. What was said behind an image to which it went back is not there any more.
fn leaves_and_ends(site: &Site, all: &[OsString]) -> String {
    let mut job = site.with_files(submitted(site, &["--every", "1h"], all));
    ends(&mut job, 85, site);
    let mut job = site.with_files(submitted(site, &["--resume"], all));
    ends(&mut job, 0, site);
    site.leaves_nothing();
    said(site)
}

fn c_program(scenario: &str) -> [OsString; 2] {
    let program = compiled("inside", "gcc", &["-Wextra"], &["tests/guests/inside.c"]);
    [program.into_os_string(), scenario.into()]
}

fn python(script: &str) -> [OsString; 4] {
    // A neighbour may just be importing it.
    let beside = tempfile::NamedTempFile::new_in(stage::dir()).expect("makes it");
    fs::copy(contrib("wayfarer.py"), beside.path()).expect("is copied");
    let renamed = beside.persist(stage::dir().join("wayfarer.py"));
    renamed.expect("is renamed");
    [PYTHON, "-u", "-c", script].map(OsString::from)
}

#[test]
fn a_program_elsewhere_makes_an_image_goes_back_and_leaves() {
    let what = "a_program_elsewhere_makes_an_image_goes_back_and_leaves";
    let Some(site) = Site::new(what, "ask-c") else {
        return;
    };
    let said = leaves_and_ends(&site, &c_program("asks"));
    assert_eq!(said, "begun\nwent back\nPASS\n", "{}", site.story());
    let status = site.status();
    assert_eq!(status["NumCkpts"], 2, "{status}");
    let log = site.told(&["log", "job"]);
    assert!(log.contains("goes back by itself"), "{log}");
    assert!(!log.contains("killed by somebody"), "{log}");
}

#[test]
fn condors_functions_are_heard_elsewhere() {
    let what = "condors_functions_are_heard_elsewhere";
    let Some(site) = Site::new(what, "ask-condor") else {
        return;
    };
    let said = leaves_and_ends(&site, &c_program("condors"));
    assert_eq!(said, "begun\nwent back\nPASS\n", "{}", site.story());
}

const SCRIPT: &str = "
import os, time, wayfarer
try:
    wayfarer.go_back()
except wayfarer.Refused as refused:
    print(refused.strerror)
order = []
wayfarer.hooks(lambda: order.append('before'), lambda: order.append('after'), lambda: order.append('restarted'))
with wayfarer.disabled():
    assert not wayfarer.checkpoint()
    assert not order
print(*order[:2])
before = os.path.exists('mark')
if not wayfarer.checkpoint():
    open('mark', 'w').close()
    wayfarer.go_back()
while 'restarted' not in order: time.sleep(0.01)
print(before, os.path.exists('mark'))
print(wayfarer.leave())
";

#[test]
fn python_is_heard_elsewhere() {
    let what = "python_is_heard_elsewhere";
    let Some(site) = Site::new(what, "ask-python") else {
        return;
    };
    let said = leaves_and_ends(&site, &python(SCRIPT));
    let expected = "there is no image of the job yet\nbefore after\nFalse False\nTrue\n";
    assert_eq!(said, expected, "{}", site.story());
}

/// One that wants each image in a file of its own, then where it may not have it.
const FILES: &str = "
import os, wayfarer
wayfarer.image_file('own.img')
assert not wayfarer.checkpoint()
def number():
    with open('own.img') as image:
        return os.fstat(image.fileno()).st_ino
first = number()
assert not wayfarer.checkpoint()
print('another', number() != first)
with open('precious', 'w') as file: file.write('precious')
for name in ('/etc/own.img', '/tmp/own.img', 'none/own.img', 'precious'):
    wayfarer.image_file(name)
    try:
        wayfarer.checkpoint()
    except wayfarer.Refused as refused:
        print('is not copied to' in refused.strerror, os.path.exists(name))
print(open('precious').read())
os.mkdir('below')
wayfarer.image_file('below/last.img')
print(wayfarer.leave())
";

#[test]
fn images_are_copied_to_where_a_job_elsewhere_may_have_them() {
    let what = "images_are_copied_to_where_a_job_elsewhere_may_have_them";
    let Some(site) = Site::new(what, "ask-files") else {
        return;
    };
    let said = leaves_and_ends(&site, &python(FILES));
    let expected = "another True\nTrue False\nTrue False\nTrue False\nTrue True\nprecious\nTrue\n";
    assert_eq!(said, expected, "{}", site.story());
    // The one that it has left with is based on another where it is kept; this is whole.
    for name in ["own.img", "below/last.img"] {
        let file = site.submit.home().join(name);
        site.told(&["verify", &file.to_string_lossy()]);
        let described = site.told(&["inspect", "--json", &file.to_string_lossy()]);
        let described: serde_json::Value = serde_json::from_str(&described).expect("is JSON");
        assert_eq!(
            described["contents"]["bases"].as_array().map(Vec::len),
            Some(0),
            "{described}"
        );
    }
    let left = fs::read_dir(site.submit.home()).expect("lists").flatten();
    let parts = left.filter(|one| one.file_name().to_string_lossy().contains("wayfarer-image"));
    assert_eq!(parts.count(), 0);
}

/// Asks until there is a file; each request has an answer, whatever became of the line.
const AGAIN: &str = "
import os, wayfarer
made, refused = 0, 0
log = open('log', 'a')
while not os.path.exists('enough'):
    try:
        wayfarer.checkpoint()
        made += 1
    except wayfarer.Refused:
        refused += 1
    print(made, refused, file=log, flush=True)
print('done', made > 2)
";

#[test]
fn requests_are_answered_though_lines_break() {
    let what = "requests_are_answered_though_lines_break";
    let Some(site) = Site::new(what, "ask-lines") else {
        return;
    };
    let all = python(AGAIN);
    let mut job = site.with_files(submitted(&site, &["--every", "1h"], &all));
    site.until("Running", 1);
    for _ in 0..2 {
        site.until_lines(site.lines() + 3);
        site.break_line();
    }
    site.until_lines(site.lines() + 3);
    fs::write(site.submit.home().join("enough"), "").expect("writes");
    ends(&mut job, 0, &site);
    assert_eq!(said(&site), "done True\n", "{}", site.story());
    assert_eq!(site.status()["NumJobStarts"], 1, "{}", site.story());
}

/// A job that is submitted without a life of its own has nobody who could do it.
#[test]
fn without_a_starter_at_home_requests_fail() {
    let what = "without_a_starter_at_home_requests_fail";
    let Some(site) = Site::new(what, "ask-nobody") else {
        return;
    };
    let mut job = site.with_files(submitted(&site, &[], &c_program("alone")));
    let ended = job.wait(DEADLINE).expect("ends");
    assert!(ended.success(), "{}", job.describe());
    let expected = "the job has no starter on this machine (wayfarer run --keep 2 ...)\nPASS\n";
    assert_eq!(said(&site), expected);
}
