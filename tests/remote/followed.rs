//! Programs that want to be told when a file changes: the kernel cannot tell them of remote ones, so they look themselves.

use super::*;
use std::io::Write;
use std::process::Stdio;

/// tail(1) waits for lines by the job itself, by others, and (-F) for another file of that name.
const FOLLOW: &str = r#"
echo one > log
tail -n +1 -s 0.1 $HOW log & tail=$!
read -r go; echo two >> log
read -r go; read -r go
mv log log.1; echo four > log
read -r go; kill $tail
"#;

fn follows(how: &str, submit: &Submit) -> String {
    let mut job = submit.remote(&words(&["bash", "-c", FOLLOW]));
    job.env("HOW", how).stdin(Stdio::piped());
    let mut job = Run::start_with_stdin("a job", job, User::Ordinary).expect("starts");
    let mut stdin = job.stdin().expect("is piped");
    let mut go_on = || stdin.write_all(b"go\n").expect("listens");
    job.wait_line("one", SOON).expect("it follows");
    go_on();
    job.wait_line("two", SOON).expect("the job's own line");
    let log = submit.home().join("log");
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(log)
        .expect("opens");
    file.write_all(b"three\n").expect("writes");
    job.wait_line("three", SOON).expect("somebody else's line");
    go_on();
    go_on();
    if how == "-F" {
        job.wait_line("four", SOON)
            .expect("another file of that name");
    }
    go_on();
    let status = job.wait(SOON).expect("ends");
    assert!(status.success(), "{}", job.describe());
    job.err.text()
}

#[test]
fn files_are_followed() {
    let what = "files_are_followed";
    if missing(what) {
        return;
    }
    let error = follows("-f", &Submit::new("remote-followed"));
    assert_eq!(error, "");
    let error = follows("-F", &Submit::new("remote-followed-by-name"));
    let lines: Vec<_> = error.lines().collect();
    assert!(
        !lines.is_empty() && lines.iter().all(|line| line.contains(" has ")),
        "{error}"
    );
}

/// What inotify_add_watch(2) says of remote names, and of those of this machine.
const WATCH: &str = r#"
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
open('file', 'w').close(); os.symlink('file', 'link'); os.symlink('/dev/shm', 'shm')
instance = libc.inotify_init1(0)
def watch(fd, name, mask):
    done = libc.inotify_add_watch(fd, name, mask)
    return errno.errorcode[ctypes.get_errno()] if done < 0 else 'watched'
MODIFY, ONLYDIR = 2, 0x1000000
print(*(watch(instance, name, MODIFY) for name in [b'file', b'.', b'none', b'file/x', b'', b'link', b'/proc/self', b'shm', b'/etc']))
print(watch(instance, b'file', ONLYDIR | MODIFY), watch(instance, b'.', ONLYDIR | MODIFY), watch(instance, b'file', 0))
print(watch(99, b'file', MODIFY), watch(1, b'file', MODIFY))
"#;

#[test]
fn a_watch_of_a_remote_name_is_refused_and_says_so() {
    let what = "a_watch_of_a_remote_name_is_refused_and_says_so";
    if missing(what) {
        return;
    }
    let submit = Submit::new("remote-watched");
    let job = submit.remote(&words(&["/usr/bin/python3", "-c", WATCH]));
    let (out, error, status) = output("watches", job);
    assert_eq!((error.as_str(), status), ("", Some(0)));
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(
        lines,
        [
            "ENOSPC ENOSPC ENOENT ENOTDIR ENOENT ENOSPC watched watched ENOSPC",
            "ENOTDIR ENOSPC EINVAL",
            "EBADF EINVAL",
        ]
    );
}
