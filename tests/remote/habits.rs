//! How calls are served where there is a choice: buffers of another size, and no low descriptors (docs/CALLS.md, "Where a file is").

use super::{DEADLINE, Submit, cannot_hide, io_report, missing, output, words};
use crate::support::run::{Run, clean_command};
use crate::support::stage;
use crate::support::user::User;
use std::ffi::OsStr;
use std::fs;
use std::process::Stdio;

/// A file is read from beginning to end by small pieces, and another written.
const JOB: &str = r#"
import os, sys
f = os.open('data', os.O_RDONLY)
read = b''
while piece := os.read(f, 1000): read += piece
assert read == bytes(i % 251 for i in range(1 << 20))
g = os.open('result', os.O_WRONLY | os.O_CREAT, 0o644)
for i in range(200): os.write(g, b'%5d' % i * 100)
os.fsync(g)
print('counted', flush=True); sys.stdin.readline()
"#;

/// The descriptors that files get: by open, dup, fcntl, and as a program wants them.
const DESCRIPTORS: &str = r#"
import fcntl, os, subprocess, sys
f = os.open('data', os.O_RDONLY); d = os.dup(f); e = fcntl.fcntl(f, fcntl.F_DUPFD, 5); c = fcntl.fcntl(f, fcntl.F_DUPFD_CLOEXEC, 100)
print([fd >= 32 for fd in (f, d, e, c)], [fcntl.fcntl(fd, fcntl.F_GETFD) for fd in (d, e, c)], c >= 100)
print([os.pread(fd, 3, 0) for fd in (f, d, e, c)], os.dup2(f, 7), os.read(7, 3), os.read(d, 3))
r, w = os.pipe(); print(r < 32)
os.close(0); print(os.open('data', os.O_RDONLY)); os.close(0); print(os.dup(f))
print(subprocess.check_output(['cat'], stdin=os.open('text', os.O_RDONLY)))
"#;

/// Programs that rely on descriptors in their own ways.
const PROGRAMS: &str = r#"
set -e
exec 3<text; read -r line <&3; echo "$line"; exec 3<&-
sort -r < text > sorted; cat sorted
while read -r one; do echo "<$one>"; done < text | tail -1
tar cf all.tar text sorted; tar tf all.tar
printf 'int main(void) { return 7; }' > p.c; gcc p.c -o p; ./p || echo $?
python3 -c 'import sqlite3; b = sqlite3.connect("base"); b.execute("create table t(a)"); b.execute("insert into t values(7)"); b.commit(); print(b.execute("select a from t").fetchall())'
(echo a; echo b) | tee -a text >/dev/null; wc -l < text
"#;

/// Round trips of the reads of `data` and of the writes of `result`.
fn trips(options: &[&str]) -> [u64; 2] {
    let submit = Submit::new("habits");
    let data: Vec<u8> = (0..1 << 20).map(|i| (i % 251) as u8).collect();
    fs::write(submit.home().join("data"), data).expect("writes");
    let mut all = vec!["--name", "counted"];
    all.extend(options);
    let all: Vec<&OsStr> = all.into_iter().map(OsStr::new).collect();
    let mut command = clean_command(stage::wayfarer());
    submit.run(&mut command, &all, &words(&["/usr/bin/python3", "-c", JOB]));
    command.current_dir(submit.home()).stdin(Stdio::piped());
    let mut job = Run::start_with_stdin("the job", command, User::Ordinary).expect("starts");
    let counted = job.wait_line("counted", DEADLINE);
    counted.unwrap_or_else(|why| panic!("{why}\n{}", job.describe()));
    let report = io_report(&submit, "counted");
    let found = ["data", "result"].map(|name| {
        let files = report["files"].as_array().expect("files");
        let file = files.iter().find(|file| file["name"] == name);
        let trips = file.and_then(|file| file["RoundTrips"].as_u64());
        trips.unwrap_or_else(|| panic!("no {name} in {report}"))
    });
    drop(job.stdin());
    assert_eq!(job.wait(DEADLINE).expect("ends").code(), Some(0));
    let written = fs::read(submit.home().join("result")).expect("result");
    let expected: String = (0..200).map(|i| format!("{i:5}").repeat(100)).collect();
    assert_eq!(String::from_utf8(written).as_deref(), Ok(&expected[..]));
    found
}

#[test]
fn buffers_are_as_large_as_was_said() {
    let what = "buffers_are_as_large_as_was_said";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let [read, written] = trips(&[]);
    assert!(read <= 10 && written <= 5, "{read} {written}");
    // Each call is a question, but for what came with the open.
    let [read, written] = trips(&["--buffer-size=0"]);
    assert!(
        (1033..=1049).contains(&read) && (200..=205).contains(&written),
        "{read} {written}"
    );
    let [read, written] = trips(&["--buffer-size=64K", "--buffer-block-size=64K"]);
    assert!(
        (16..=22).contains(&read) && written <= 6,
        "{read} {written}"
    );
    let [read, written] = trips(&["--buffer-size=4K", "--buffer-block-size=4K"]);
    assert!(
        (250..=262).contains(&read) && (24..=32).contains(&written),
        "{read} {written}"
    );
}

#[test]
fn files_have_no_low_descriptors() {
    let what = "files_have_no_low_descriptors";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("aggravate");
    for name in ["data", "text"] {
        let path = submit.home().join(name);
        fs::write(&path, "one\ntwo\n").expect("writes");
        User::Ordinary.own(&path);
    }
    let home = submit.home();
    let options = [
        OsStr::new("--aggravate"),
        OsStr::new("--chdir"),
        home.as_os_str(),
    ];
    let mut job = submit.bare_machine();
    let line = words(&["/usr/bin/python3", "-c", DESCRIPTORS]);
    submit.run(&mut job, &options, &line);
    let expected = "[True, True, True, True] [1, 0, 1] True\n[b'one', b'one', b'one', b'one'] 7 b'one' b'\\ntw'\n\
                    True\n0\n0\nb'one\\ntwo\\n'\n";
    let found = output("descriptors", job);
    assert_eq!(found, (expected.into(), String::new(), Some(0)));

    let mut job = submit.bare_machine();
    submit.run(&mut job, &options, &words(&["/bin/bash", "-c", PROGRAMS]));
    let found = output("programs", job);
    let expected = "one\ntwo\none\n<two>\ntext\nsorted\n7\n[(7,)]\n4\n";
    assert_eq!(found, (expected.into(), String::new(), Some(0)));
}

#[test]
fn buffers_that_cannot_be_are_refused() {
    let what = "buffers_that_cannot_be_are_refused";
    if missing(what) {
        return;
    }
    let submit = Submit::new("habits-wrong");
    for (options, expected) in [
        (
            &["--buffer-size=2M"][..],
            "--buffer-size: found 2097152 bytes, expected at most 1048576",
        ),
        (
            &["--buffer-size=64K", "--buffer-block-size=128K"],
            "--buffer-block-size: found 131072 bytes, expected at most 65536",
        ),
    ] {
        let mut command = clean_command(stage::wayfarer());
        let options: Vec<_> = options.iter().map(OsStr::new).collect();
        submit.run(&mut command, &options, &words(&["true"]));
        let (_, errors, status) = output("wrong", command);
        assert!(errors.contains(expected) && status == Some(2), "{errors}");
    }
}
