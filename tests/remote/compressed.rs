//! Files that are stored compressed at home (docs/CALLS.md, "Compressed files"): programs see what is in them, and `gzip` agrees.

use super::durable::{KEPT, Mortal, over_a_killed_shadow_with};
use super::full::{cannot_mount, with_small_disk};
use super::restart::{Traveller, UNDER_JOURNAL, job_words};
use super::{DEADLINE, Submit, cannot_hide, missing, output, tree, words};
use crate::support::random::{Random, seed};
use crate::support::run::{Stream, clean_command};
use crate::support::user::User;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Reads and writes them in many ways; prints what it finds.
const WORK: &str = r#"
set -e
cat in.gz; sort in.gz > out.sorted; sort -o out.again out.sorted; cat out.sorted
dd if=in.gz bs=1 skip=4 count=3 2>/dev/null; echo
wc -c < in.gz; stat -c %s in.gz out.sorted; cat plain; cat *.gz | head -n 1
echo one > out.log; echo two >> out.log; cat out.log; echo more >> plain
: > out.empty; printf 'first\nsecond\n' > out.dd; printf X | dd of=out.dd bs=1 seek=2 conv=notrunc 2>/dev/null; cat out.dd
cp in.gz out.copy; mv out.copy out.moved; cmp in.gz out.moved; ln out.moved out.linked; rm out.moved
cp -p in.gz raw; cat raw
/usr/bin/python3 -c '
import os
f = open("out.both", "w+b"); f.write(bytes(range(256)) * 4000); f.seek(1000); print(f.read(3))
f.seek(500000); f.write(b"here"); f.truncate(600000); f.flush(); print(os.fstat(f.fileno()).st_size, os.stat("out.both").st_size, os.path.getsize("out.both"))
g = open("out.both", "rb"); g.seek(499999); print(g.read(6)); f.seek(0); f.write(b"both"); f.flush(); g.seek(0); print(g.read(5))
os.fsync(f.fileno()); f.close(); print(len(open("out.both", "rb").read()), g.seek(0, 2))
os.truncate("out.both", 10); print(open("out.both", "rb").read())
again = os.open("/proc/self/fd/%d" % os.open("in.gz", os.O_RDONLY), os.O_RDONLY); print(os.read(again, 3))
os.utime("out.both", (7, 7)); print(int(os.stat("out.both").st_mtime), os.stat("out.both").st_size)
a, b = os.stat("in.gz"), os.fstat(os.open("in.gz", os.O_RDONLY)); print((a.st_dev, a.st_ino, a.st_size) == (b.st_dev, b.st_ino, b.st_size))
print(sorted(os.listdir(".")), oct(os.stat("in.gz").st_mode))
'
"#;

/// Reads and writes, and says when others may do something to it.
const TRAVELS: &str = r#"
import os, time
source, out = open("in.gz"), open("out.gz", "w")
again = os.open("out.both", os.O_RDWR | os.O_CREAT | os.O_APPEND)
for i in range(900):
    assert source.readline() == f"line {i}\n"
    out.write(f"{i} {i * i}\n")
    os.write(again, b"%d\n" % i)
    if i % 7 == 0: out.flush()
    if i % 97 == 0:
        with open("out.part", "a") as part: part.write(f"{i}\n")
    if i == 300: out.flush(); os.fsync(out.fileno()); print("half", flush=True)
    if i == 600: print("more", flush=True)
    time.sleep(0.003)
out.close(); os.close(again)
print("the end")
"#;

/// Files that are not compressed, though a rule says so.
const REFUSED: &str = r#"
import errno, os
def told(call, *arguments):
    try: return call(*arguments)
    except OSError as error: return errno.errorcode[error.errno]
local = os.environ["SCRATCH"] + "/x.gz"
print(told(open, local, "w"), told(os.stat, local), told(os.truncate, local, 0))
print(open("null.gz", "w").write("gone"), os.path.getsize("folder.gz") > 0, os.listdir("folder.gz"), told(os.stat, "none.gz"))
os.symlink("in.gz", "link.gz"); print(open("link.gz").read(), os.stat("link.gz").st_size, os.readlink("link.gz"), os.lstat("link.gz").st_size)
print(told(open, "closed.gz", "w"), told(open, "closed.gz", "r"), told(open, "/etc/passwd", "a"), len(open("/etc/passwd").read()) > 9)
"#;

/// What `gzip` makes of bytes.
fn gzipped(bytes: &[u8]) -> Vec<u8> {
    by_gzip(&["-c"], bytes).expect("compresses")
}

fn by_gzip(options: &[&str], bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut command = clean_command("gzip");
    command.args(options).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut gzip = command.spawn().expect("is installed");
    let mut input = gzip.stdin.take().expect("is piped");
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let found = gzip.wait_with_output().expect("ends");
    let _ = writer.join();
    match found.status.success() {
        true => Ok(found.stdout),
        false => Err(String::from_utf8_lossy(&found.stderr).into_owned()),
    }
}

/// What is in a file that is stored compressed.
fn inside(path: &Path) -> Vec<u8> {
    let stored = fs::read(path).expect("is there");
    let found = by_gzip(&["-dc"], &stored);
    found.unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

fn put(submit: &Submit, name: &str, contents: &[u8]) -> PathBuf {
    let path = submit.home().join(name);
    fs::write(&path, contents).expect("writes");
    User::Ordinary.own(&path);
    path
}

fn job(submit: &Submit, files: &str, words: &[&OsStr]) -> Command {
    let home = submit.home();
    let files = format!("--compress-files={files}");
    let options = [OsStr::new("--chdir"), home.as_os_str(), OsStr::new(&files)];
    let mut command = submit.bare_machine();
    submit.run(&mut command, &options, words);
    command
}

/// One of its lines has all these words.
fn says(log: &Stream, words: &[&str]) {
    let line_has = |line: &str| words.iter().all(|words| line.contains(words));
    let has = |log: &str| log.lines().any(line_has);
    let log = log.text_once(has);
    assert!(has(&log), "{words:?}: {log}");
}

#[test]
fn compressed_files_are_read_and_written_as_if_they_were_not() {
    let what = "compressed_files_are_read_and_written_as_if_they_were_not";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("rm-compress");
    // Two members, as `cat a.gz b.gz` makes them.
    let members = [gzipped(b"c\nb\n"), gzipped(b"a\n")].concat();
    put(&submit, "in.gz", &members);
    put(&submit, "plain", b"as it is\n");
    let job = job(&submit, "*.gz,out*;plain", &words(&["/bin/sh", "-c", WORK]));
    let (found, errors, status) = output("compressed", job);
    let expected = "c\nb\na\na\nb\nc\na\n\n6\n6\n6\nas it is\nc\none\ntwo\nfiXst\nsecond\nc\nb\na\n\
        b'\\xe8\\xe9\\xea'\n600000 600000 600000\nb'\\x1fhere$'\nb'both\\x04'\n600000 600000\nb'both\\x04\\x05\\x06\\x07\\x08\\t'\n\
        b'c\\nb'\n7 10\nTrue\n\
        ['in.gz', 'out.again', 'out.both', 'out.dd', 'out.empty', 'out.linked', 'out.log', 'out.sorted', 'plain', 'raw'] 0o100644\n";
    assert_eq!(
        (found.as_str(), errors.as_str(), status),
        (expected, "", Some(0))
    );
    for (name, contents) in [
        ("in.gz", &b"c\nb\na\n"[..]),
        ("out.sorted", b"a\nb\nc\n"),
        ("out.again", b"a\nb\nc\n"),
        ("out.log", b"one\ntwo\n"),
        ("out.dd", b"fiXst\nsecond\n"),
        ("out.linked", b"c\nb\na\n"),
        ("out.both", b"both\x04\x05\x06\x07\x08\t"),
        ("out.empty", b""),
        ("plain", b"as it is\nmore\n"),
    ] {
        let path = submit.home().join(name);
        assert_eq!(inside(&path), contents, "{name}");
    }
    let home = submit.home();
    assert_eq!(fs::read(home.join("in.gz")).expect("is there"), members);
    assert_eq!(fs::read(home.join("raw")).expect("is there"), b"c\nb\na\n");
}

#[test]
fn a_damaged_compressed_file_is_an_error_and_is_named() {
    let what = "a_damaged_compressed_file_is_an_error_and_is_named";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("rm-damaged");
    let whole = gzipped(&b"some text that is long enough\n".repeat(50));
    put(&submit, "cut.gz", &whole[..whole.len() - 9]);
    let mut flipped = whole.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x40;
    put(&submit, "flipped.gz", &flipped);
    put(&submit, "good.gz", &whole);
    let script = "for f in cut flipped good; do cat $f.gz | wc -c; done; stat cut.gz; echo new > cut.gz; cat cut.gz";
    let job = job(&submit, "*.gz", &words(&["/bin/sh", "-c", script]));
    let (found, errors, status) = output("damaged", job);
    assert_eq!((found.as_str(), status), ("0\n0\n1500\nnew\n", Some(0)));
    assert_eq!(errors.matches("Input/output error").count(), 3, "{errors}");
    for name in ["cut.gz", "flipped.gz"] {
        says(&submit.shadow.err, &["is damaged", name]);
    }
    let home = submit.home();
    assert_eq!(fs::read(home.join("flipped.gz")).ok(), Some(flipped));
    assert_eq!(inside(&home.join("cut.gz")), b"new\n");
}

#[test]
fn a_job_with_compressed_files_goes_on_from_its_image() {
    let what = "a_job_with_compressed_files_goes_on_from_its_image";
    if missing(what) {
        return;
    }
    let mut traveller = Traveller::new("rm-compress-moves", &UNDER_JOURNAL);
    traveller.options = vec!["--compress-files=*.gz;out.*".into()];
    let lines: String = (0..1000).map(|i| format!("line {i}\n")).collect();
    put(&traveller.submit, "in.gz", &gzipped(lines.as_bytes()));
    let mut job = traveller.begin(&job_words("/usr/bin/python3", TRAVELS));
    job.wait_line("half", DEADLINE).expect("writes");
    let image = traveller.checkpoint(&mut job).expect("is running");
    // Others see what it had written when it said so.
    let home = traveller.submit.home();
    let stored = String::from_utf8(inside(&home.join("out.gz"))).expect("text");
    assert!(stored.contains("\n300 90000\n"), "{stored}");
    job.wait_line("more", DEADLINE).expect("goes on");
    assert!(!traveller.kill(&mut job), "{}", job.describe());
    let mut job = traveller.restart(&image, "fail");
    let status = job.wait(DEADLINE).expect("ends");
    assert_eq!(
        (job.err.text(), status.code()),
        (String::new(), Some(0)),
        "{}",
        job.describe()
    );
    assert!(job.out.text().ends_with("more\nthe end\n"));
    let squares: String = (0..900).map(|i| format!("{i} {}\n", i * i)).collect();
    let numbers: String = (0..900).map(|i| format!("{i}\n")).collect();
    let parts: String = (0..900).step_by(97).map(|i| format!("{i}\n")).collect();
    for (name, contents) in [
        ("in.gz", lines),
        ("out.gz", squares),
        ("out.both", numbers),
        ("out.part", parts),
    ] {
        let found = String::from_utf8(inside(&home.join(name))).expect("text");
        assert!(found == contents, "{name}: {found}");
    }
    assert_eq!(tree(&home).len(), 4);
}

#[test]
fn what_cannot_be_compressed_is_refused_or_is_as_ever() {
    let what = "what_cannot_be_compressed_is_refused_or_is_as_ever";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("rm-refused");
    put(&submit, "in.gz", &gzipped(b"in it"));
    let closed = put(&submit, "closed.gz", &gzipped(b"nobody's"));
    let nobody = std::os::unix::fs::PermissionsExt::from_mode(0o000);
    fs::set_permissions(closed, nobody).expect("its owner may");
    let folder = submit.home().join("folder.gz");
    fs::create_dir(&folder).expect("makes it");
    User::Ordinary.own(&folder);
    let scratch = submit.dir.join("state/scratch");
    fs::create_dir(&scratch).expect("makes it");
    User::Ordinary.own(&scratch);
    let home = submit.home();
    let local = format!("--local-files={}", scratch.display());
    let options = [
        OsStr::new("--chdir"),
        home.as_os_str(),
        OsStr::new("--compress-files=*.gz;/etc/passwd"),
        OsStr::new("--remap=null.gz=/dev/null"),
        OsStr::new(&local),
    ];
    let mut job = submit.bare_machine();
    submit.run(
        &mut job,
        &options,
        &words(&["/usr/bin/python3", "-c", REFUSED]),
    );
    job.env("SCRATCH", &scratch);
    let (found, errors, status) = output("refused", job);
    let expected = "ENOTSUP ENOTSUP ENOTSUP\n4 True [] ENOENT\nin it 5 in.gz 5\n\
        EACCES EACCES EACCES True\n";
    assert_eq!(
        (found.as_str(), errors.as_str(), status),
        (expected, "", Some(0))
    );
    assert_eq!(tree(&scratch).len(), 0);
}

#[test]
fn a_compressed_file_that_cannot_be_stored_stays_as_it_was() {
    let what = "a_compressed_file_that_cannot_be_stored_stays_as_it_was";
    if missing(what) || cannot_mount(what) {
        return;
    }
    let options = ["--allow", "/:ro", "--journal", "room/undo"];
    let submit = with_small_disk("rm-no-room", 4, &options);
    let mut random = Random::new(seed(), what);
    let noise: Vec<u8> = (0..1 << 20)
        .flat_map(|_| random.next().to_le_bytes())
        .collect();
    let before = gzipped(&noise);
    let path = put(&submit, "big.gz", &before);
    let script = "
import errno, os
def told(call, *arguments):
    try: return call(*arguments)
    except OSError as error: return errno.errorcode[error.errno]
f = os.open('big.gz', os.O_RDWR); print(os.write(f, b'new'), told(os.fsync, f), os.pread(f, 3, 0), told(os.close, f))
";
    let home = submit.home();
    let options = [OsStr::new("--compress-files=*.gz")];
    let mut job = clean_command(super::stage::wayfarer());
    submit.run(
        &mut job,
        &options,
        &[
            OsStr::new("/usr/bin/python3"),
            OsStr::new("-c"),
            OsStr::new(script),
        ],
    );
    job.current_dir(&home);
    let (found, _, status) = output("no room", job);
    assert_eq!(
        (found.as_str(), status),
        ("3 ENOSPC b'new' ENOSPC\n", Some(5))
    );
    assert!(fs::read(path).expect("is there") == before);
    says(&submit.shadow.err, &["cannot be stored", "big.gz"]);
}

#[test]
fn a_killed_shadow_loses_no_compressed_byte_unnoticed() {
    let what = "a_killed_shadow_loses_no_compressed_byte_unnoticed";
    if missing(what) {
        return;
    }
    let options = ["--compress-files=*.gz"];
    let mortal = Mortal::new(&KEPT);
    put(&mortal.submit, "in.gz", &gzipped(b"some text"));
    let reads = "
import sys
f = open('in.gz', 'rb', 0); print(f.read(4)); print('ready', flush=True); sys.stdin.readline()
print(f.read(), open('in.gz').read())
";
    let (_mortal, job, status) = over_a_killed_shadow_with(mortal, &options, reads);
    assert!(status.success(), "{}", job.describe());
    assert_eq!(job.out.text(), "b'some'\nready\nb' text' some text\n");
    let writes = "
import os, sys
f = os.open('out.gz', os.O_RDWR | os.O_CREAT); os.write(f, b'kept'); os.fsync(f); os.write(f, b'lost'); os.pread(f, 1, 0)
print('ready', flush=True); sys.stdin.readline()
os.write(f, b'more'); os.fsync(f); print('nobody has noticed')
";
    let (mortal, job, status) = over_a_killed_shadow_with(Mortal::new(&KEPT), &options, writes);
    assert!(!status.success(), "{}", job.describe());
    assert_eq!(job.out.text(), "ready\n");
    says(&mortal.submit.shadow.err, &["cannot go on", "out.gz"]);
    assert_eq!(inside(&mortal.submit.home().join("out.gz")), b"kept");
}

#[test]
fn what_is_not_closed_is_stored_when_the_job_ends() {
    let what = "what_is_not_closed_is_stored_when_the_job_ends";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("rm-left-open");
    for (end, expected) in [("os._exit(0)", Some(0)), ("os.kill(os.getpid(), 9)", None)] {
        let script = format!(
            "
import os
f = os.open('out.gz', os.O_CREAT | os.O_TRUNC | os.O_WRONLY); os.write(f, b'left')
other = os.open('other.gz', os.O_CREAT | os.O_TRUNC | os.O_WRONLY); os.write(other, b'replaced'); os.dup2(f, other)
if os.fork() == 0: os.write(f, b' open'); os._exit(0)
os.wait(); {end}
"
        );
        let words = ["/usr/bin/python3", "-c", &script].map(OsStr::new);
        let (_, errors, status) = output("left open", job(&submit, "*.gz", &words));
        if let Some(expected) = expected {
            assert_eq!((errors.as_str(), status), ("", Some(expected)));
        }
        assert_ne!(status, Some(5), "{errors}");
        let home = submit.home();
        for (name, contents) in [("out.gz", &b"left open"[..]), ("other.gz", b"replaced")] {
            assert_eq!(inside(&home.join(name)), contents, "{name} by {end}");
            fs::remove_file(home.join(name)).expect("is there");
        }
    }
}
