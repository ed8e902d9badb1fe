//! What a program sees of its own job's changes, and of others' (DESIGN §6, "What a program sees").

use super::{DEADLINE, SOON, Submit, cannot_hide, missing, output, words};
use crate::support::run::Run;
use crate::support::user::User;
use std::ffi::OsStr;
use std::fs;
use std::time::Instant;

/// A process writes where others have read; they must see it as soon as the write has returned.
const ONE_JOB: &str = r#"
import mmap, os, random
random.seed(1)
size = 300000
model = bytearray(random.randbytes(size))
with open('file', 'wb') as f: f.write(model)
reader, reader2, writer = os.open('file', os.O_RDONLY), os.open('file', os.O_RDONLY), os.open('file', os.O_RDWR)
ask, asked = os.pipe(); told, tell = os.pipe()
child = os.fork()
if child == 0:
    os.close(asked); os.close(told)
    while True:
        line = os.read(ask, 16)
        if not line: os._exit(0)
        at, byte = int.from_bytes(line[:8], 'little'), line[8]
        assert os.pread(reader, 1, at) is not None
        os.pwrite(writer, bytes([byte]) * 100, at)
        os.write(tell, b'x')
os.close(ask); os.close(tell)
def check(what, at, fd):
    found = os.pread(fd, 4096, at)
    assert found == model[at:at + 4096], (what, at)
for step in range(300):
    at, byte = random.randrange(size - 100), random.randrange(256)
    check('before', at, reader)
    if step % 2:
        os.write(asked, at.to_bytes(8, 'little') + bytes([byte] * 8)); os.read(told, 1)
    else:
        os.pwrite(writer, bytes([byte]) * 100, at)
    model[at:at + 100] = bytes([byte]) * 100
    check('after', at, reader); check('another', max(0, at - 2000), reader2)
    if step % 50 == 0:
        with mmap.mmap(reader, 0, prot=mmap.PROT_READ) as m: assert m[:] == bytes(model), 'mapping'
os.lseek(reader, 0, os.SEEK_SET)
got = b''
while part := os.read(reader, 1000):
    got += part
    if len(got) == 5000: os.pwrite(writer, b'HERE', 6000); model[6000:6004] = b'HERE'
assert got == bytes(model), 'read on'
assert os.read(reader, 10) == b''
os.pwrite(writer, b'more', size); assert os.read(reader, 10) == b'more' and os.fstat(reader2).st_size == size + 4
os.truncate('file', 10); assert os.fstat(reader).st_size == 10 and os.pread(reader, 100, 0) == bytes(model[:10])
open('file', 'w').close(); assert os.pread(reader, 100, 0) == b'' and os.fstat(reader).st_size == 0
os.chmod('file', 0o600); assert os.fstat(reader).st_mode & 0o777 == 0o600
os.link('file', 'link'); assert os.fstat(reader).st_nlink == 2
with open('other', 'w') as f: f.write('other')
os.rename('other', 'file'); assert open('file').read() == 'other' and os.fstat(reader).st_nlink == 1
os.close(asked); assert os.waitpid(child, 0)[1] == 0
print('coherent')
"#;

/// A process changes names and attributes that another has just asked about.
const NAMES: &str = r#"
import os, stat
ask, asked = os.pipe(); told, tell = os.pipe()
os.mkdir('dir')
if os.fork() == 0:
    os.close(asked); os.close(told)
    for line in os.fdopen(ask):
        exec(line); os.write(tell, b'x')
    os._exit(0)
def other(what):
    os.write(asked, what.encode() + bytes([10])); os.read(told, 1)
def there(name):
    try: return os.lstat(name).st_size
    except FileNotFoundError: return None
def target(name):
    try: return os.stat(name).st_size
    except FileNotFoundError: return None
def opens(name):
    try: os.close(os.open(name, os.O_RDONLY)); return True
    except FileNotFoundError: return False
def known(): return there('dir/a'), target('dir/a'), opens('dir/a'), os.access('dir/a', os.F_OK), sorted(os.listdir('dir'))
for step in range(20):
    for _ in range(2): assert known() == (None, None, False, False, []), known()
    other("open('dir/a', 'w').close()")
    for _ in range(2): assert known() == (0, 0, True, True, ['a']), known()
    other("f = open('dir/a', 'a'); f.write('more'); f.close()")
    for _ in range(2): assert known() == (4, 4, True, True, ['a']), known()
    other("os.truncate('dir/a', 3)"); assert known()[:2] == (3, 3)
    other("os.chmod('dir/a', 0o600)"); assert stat.S_IMODE(os.stat('dir/a').st_mode) == 0o600
    other("os.utime('dir/a', (5, 6))"); assert os.stat('dir/a').st_mtime == 6
    other("os.link('dir/a', 'dir/b')"); assert os.stat('dir/a').st_nlink == 2 and os.stat('dir').st_nlink >= 1
    other("os.rename('dir/b', 'dir/a'); os.unlink('dir/b')"); assert os.stat('dir/a').st_nlink == 1
    try: os.readlink('dir/a'); assert False
    except OSError as error: assert error.errno == 22
    other("os.unlink('dir/a'); os.symlink('nowhere', 'dir/a')")
    for _ in range(2): assert known() == (7, None, False, False, ['a']), known()
    assert os.readlink('dir/a') == 'nowhere'
    other("os.rename('dir', 'dir2')"); assert there('dir') is None and there('dir/a') is None and there('dir2/a') == 7
    other("os.mkdir('dir')"); assert known() == (None, None, False, False, [])
    other("os.unlink('dir2/a'); os.rmdir('dir2')"); assert there('dir2') is None and there('dir2/a') is None
os.close(asked); os.wait()
print('known')
"#;

#[test]
fn a_job_sees_what_becomes_of_names_at_once() {
    let what = "a_job_sees_what_becomes_of_names_at_once";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("remote-names");
    let job = submit.elsewhere(&words(&["/usr/bin/python3", "-c", NAMES]));
    let found = output("one job", job);
    assert_eq!(found, ("known\n".into(), String::new(), Some(0)));
}

#[test]
fn a_job_sees_its_own_writes_at_once() {
    let what = "a_job_sees_its_own_writes_at_once";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("remote-coherent");
    let job = submit.elsewhere(&words(&["/usr/bin/python3", "-c", ONE_JOB]));
    let found = output("one job", job);
    assert_eq!(found, ("coherent\n".into(), String::new(), Some(0)));
}

/// Runs commands as jobs of their own, at once; what they said.
fn at_once(submit: &Submit, scripts: &[&str]) -> Vec<String> {
    let start = |script: &&str| {
        let words = [
            OsStr::new("/bin/sh"),
            OsStr::new("-ec"),
            OsStr::new(*script),
        ];
        Run::start("a job", submit.elsewhere(&words), User::Ordinary).expect("starts")
    };
    let mut runs: Vec<Run> = scripts.iter().map(start).collect();
    let said = runs.iter_mut().map(|run| {
        let status = run.wait(DEADLINE).expect("ends");
        assert!(status.success(), "{}", run.describe());
        run.out.text()
    });
    said.collect()
}

#[test]
fn lines_that_many_append_are_all_there_and_whole() {
    let what = "lines_that_many_append_are_all_there_and_whole";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("remote-append");
    let writer = "for who in 1 2; do (i=0; while [ $i -lt 300 ]; do echo \"$0 $who $i and some more\" >> log; \
                  i=$((i+1)); done) & (exec >> log; i=0; while [ $i -lt 300 ]; do echo \"$0 $who $i kept open\"; \
                  i=$((i+1)); done) & done; wait";
    let (one, two) = (writer.replace("$0", "a"), writer.replace("$0", "b"));
    at_once(&submit, &[&one, &two]);
    let log = fs::read_to_string(submit.home().join("log")).expect("is there");
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_unstable();
    let mut expected: Vec<String> = vec![];
    for job in ["a", "b"] {
        for who in 1..=2 {
            for i in 0..300 {
                expected.push(format!("{job} {who} {i} and some more"));
                expected.push(format!("{job} {who} {i} kept open"));
            }
        }
    }
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

#[test]
fn what_others_do_is_seen_within_a_second() {
    let what = "what_others_do_is_seen_within_a_second";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("remote-others");
    fs::write(submit.home().join("grows"), "one\n").expect("writes");
    User::Ordinary.own(&submit.home().join("grows"));
    let script = "exec 3< grows; read -r line <&3; echo waiting; while [ ! -e flag ]; do :; done; echo seen; \
                  until read -r line <&3; do :; done; echo \"$line\"";
    let words = [
        OsStr::new("/bin/bash"),
        OsStr::new("-ec"),
        OsStr::new(script),
    ];
    let mut run = Run::start("a job", submit.elsewhere(&words), User::Ordinary).expect("starts");
    run.wait_line("waiting", SOON).expect("waits");
    // What is done here, nobody tells the job.
    fs::write(submit.home().join("flag"), "").expect("writes");
    let begun = Instant::now();
    run.wait_line("seen", SOON).expect("sees it");
    let seen = begun.elapsed();
    // A second, and a busy machine.
    assert!(seen.as_millis() < 4000, "{seen:?}");
    let mut grows = fs::OpenOptions::new();
    let mut grows = grows
        .append(true)
        .open(submit.home().join("grows"))
        .expect("opens");
    std::io::Write::write_all(&mut grows, b"two\n").expect("writes");
    let begun = Instant::now();
    run.wait_line("two", SOON).expect("sees it");
    let seen = begun.elapsed();
    assert!(seen.as_millis() < 4000, "{seen:?}");
    assert!(run.wait(SOON).expect("ends").success());
}

#[test]
fn a_lock_makes_another_jobs_writes_visible() {
    const COUNT: &str = r#"
import fcntl, os
lock, count = os.open('lock', os.O_RDWR | os.O_CREAT, 0o644), os.open('count', os.O_RDWR | os.O_CREAT, 0o644)
for step in range(150):
    (fcntl.lockf if step % 2 else fcntl.flock)(lock, fcntl.LOCK_EX)
    fcntl.lockf(count, fcntl.LOCK_EX)
    now = int(os.pread(count, 100, 0) or b'0')
    os.pwrite(count, b'%d' % (now + 1), 0)
    fcntl.lockf(count, fcntl.LOCK_UN)
    (fcntl.lockf if step % 2 else fcntl.flock)(lock, fcntl.LOCK_UN)
"#;
    let what = "a_lock_makes_another_jobs_writes_visible";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("remote-counted");
    let script =
        "/usr/bin/python3 -c \"$COUNT\" & other=$!; /usr/bin/python3 -c \"$COUNT\"; wait $other";
    let script = format!("COUNT='{}'; {script}", COUNT.replace('\'', "'\\''"));
    at_once(&submit, &[&script, &script]);
    let count = fs::read_to_string(submit.home().join("count")).expect("is there");
    assert_eq!(count, "600");
}
