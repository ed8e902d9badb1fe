//! Files that the machine where a job runs sees, too: read there, and the same bytes as at the shadow (docs/adr/0022-files-seen-twice.md).

use super::restart::Traveller;
use super::{DEADLINE, SOON, Submit, cannot_hide, io_report, missing, output, words};
use crate::support::run::{Run, clean_command};
use crate::support::stage;
use crate::support::user::User;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Reads all of a file and something in the middle.
const READS: &str = r#"
import hashlib, os, sys
f = os.open('data', os.O_RDONLY); h = hashlib.sha256()
while piece := os.read(f, 60000): h.update(piece)
print(h.hexdigest(), os.pread(f, 5, 3 << 20))
print('read', flush=True); sys.stdin.readline()
"#;

/// Writes what it reads to a file that is emptied first, and takes locks.
const COPIES: &str = r#"
import fcntl, hashlib, os, sys
f, h = open('data', 'rb', buffering=0), hashlib.sha256()
with open('copy', 'wb') as g:
    while piece := f.read(60000):
        h.update(piece); g.write(piece)
        if f.tell() % 900000 == 0: fcntl.lockf(g, fcntl.LOCK_EX); fcntl.lockf(g, fcntl.LOCK_UN)
assert open('copy', 'rb').read() == open('data', 'rb').read()
print(h.hexdigest(), os.pread(f.fileno(), 5, 3 << 20))
print('read', flush=True); sys.stdin.readline()
"#;

/// Others change the file, and the job itself.
const CHANGES: &str = r#"
import os, sys
def said(turn): print(turn, os.pread(f, 3, 2 << 20), os.pread(f, 3, 3 << 20), os.fstat(f).st_size, flush=True); sys.stdin.readline()
f = os.open('data', os.O_RDONLY)
said(1)
g = os.open('data', os.O_WRONLY); os.pwrite(g, b'own', 2 << 20)
said(2)
f = os.open('data', os.O_RDONLY)
said(3)
said(4)
f = os.open('data', os.O_RDONLY)
said(5)
"#;

/// Threads read a file again and again, by large pieces, and do hardly anything else. It ends when its input does.
const AGAIN: &str = r#"
import os, sys, threading
first = open('data', 'rb').read()
def work(me):
    f = os.open('data', os.O_RDONLY); piece = bytearray(1 << 20)
    for turn in range(2500):
        at = (turn * 5 + me) % 8 << 20
        assert os.preadv(f, [piece], at) == 1 << 20
        for i in range(0, 1 << 20, 70000): assert piece[i:i + 8] == first[at + i:at + i + 8], (turn, i)
    os.close(f)
threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
[t.start() for t in threads]; print('begun', flush=True); [t.join() for t in threads]
sys.stdin.read()
print(len(os.listdir('/proc/self/fd')) < 20, 'the end')
"#;

const DOMAIN: [&str; 2] = ["--filesystem-domain=cs", "--uid-domain=wisc"];

fn noise(len: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..len / 8).flat_map(step).collect()
}

fn sum(path: &Path) -> String {
    let mut command = clean_command("sha256sum");
    command.arg(path);
    let (said, error, status) = output("sha256sum", command);
    assert_eq!((error.as_str(), status), ("", Some(0)));
    said.split(' ').next().unwrap_or_default().to_owned()
}

/// A shadow in a domain, and what its job reads.
struct Seen {
    submit: Submit,
}

impl Seen {
    fn new(label: &str, shadow: &[&str]) -> Self {
        let options = [&["--allow", "/:ro"], shadow].concat();
        let submit = Submit::allowing(label, &options);
        let data = submit.home().join("data");
        fs::write(&data, noise(4 << 20)).expect("writes");
        User::Ordinary.own(&data);
        Seen { submit }
    }

    /// A job begun by `command`, which is wayfarer or executes it.
    fn start(&self, mut command: Command, job: &[&str], script: &'static str) -> Run {
        let home = self.submit.home();
        let mut options = vec![OsStr::new("--chdir"), home.as_os_str()];
        options.extend(["--name", "seen"].map(OsStr::new));
        options.extend(job.iter().map(OsStr::new));
        let line = words(&["/usr/bin/python3", "-c", script]);
        self.submit.run(&mut command, &options, &line);
        command.stdin(Stdio::piped());
        Run::start_with_stdin("the job", command, User::Ordinary).expect("starts")
    }

    /// What it reads, and how often it asks the shadow for that.
    fn reads(&self, command: Command, job: &[&str]) -> (String, u64) {
        self.reads_by(READS, command, job)
    }

    fn reads_by(&self, script: &'static str, command: Command, job: &[&str]) -> (String, u64) {
        let mut run = self.start(command, job, script);
        let line = run.wait_line("read", DEADLINE);
        line.unwrap_or_else(|why| panic!("{why}\n{}", run.describe()));
        let report = io_report(&self.submit, "seen");
        let files = report["files"].as_array().expect("files");
        let file = files.iter().find(|file| file["name"] == "data");
        let trips = file.and_then(|file| file["RoundTrips"].as_u64());
        let trips = trips.unwrap_or_else(|| panic!("no data in {report}"));
        drop(run.stdin());
        assert_eq!(run.wait(DEADLINE).expect("ends").code(), Some(0));
        (run.out.text(), trips)
    }

    fn expected(&self) -> String {
        let data = self.submit.home().join("data");
        let bytes = fs::read(&data).expect("reads");
        let middle = &bytes[3 << 20..][..5];
        let mut python = clean_command("/usr/bin/python3");
        let script = "import sys; print(bytes.fromhex(sys.argv[1]))";
        let hex: String = middle.iter().map(|byte| format!("{byte:02x}")).collect();
        python.args(["-c", script, &hex]);
        format!("{} {}read\n", sum(&data), output("python", python).0)
    }
}

/// Wayfarer on a machine where this is done before, with mounts of its own.
fn where_first(script: &str, places: &[&Path]) -> Command {
    let mut command = clean_command("unshare");
    let script = format!("set -e\n{script}\nexec \"$@\"");
    command.args([
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        &script,
        "sh",
    ]);
    command.arg(stage::wayfarer());
    for (at, place) in places.iter().enumerate() {
        command.env(format!("PLACE{at}"), place);
    }
    command
}

#[test]
fn files_of_the_domain_are_read_where_the_job_runs() {
    let what = "files_of_the_domain_are_read_where_the_job_runs";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let here = || clean_command(stage::wayfarer());
    let seen = Seen::new("direct", &DOMAIN);
    let expected = seen.expected();
    let (read, trips) = seen.reads(here(), &DOMAIN);
    assert_eq!(read, expected);
    assert!(trips <= 1, "{trips}");
    // Locks, and files that are emptied, are about any file: then its attributes are asked for once more, not its bytes.
    let (read, trips) = seen.reads_by(COPIES, here(), &DOMAIN);
    assert_eq!(read, expected);
    let (_, without) = seen.reads_by(COPIES, here(), &[]);
    assert!(trips <= 7 && trips + 4 < without, "{trips}, {without}");

    // Under another name, as the mount tables say, or as somebody says.
    let home = seen.submit.home();
    let elsewhere = seen.submit.local();
    let moved = r#"mount --bind "$PLACE0" "$PLACE1"; mount -t tmpfs none "$PLACE0""#;
    let command = where_first(moved, &[&home, &elsewhere]);
    let (read, trips) = seen.reads(command, &DOMAIN);
    assert_eq!(read, expected);
    assert!(trips <= 1, "by the tables: {trips}");
    let copied = r#"cp -a "$PLACE0/data" "$PLACE1"; mount -t tmpfs none "$PLACE0""#;
    let command = where_first(copied, &[&home, &elsewhere]);
    let given = format!("--mounts={}={}", home.display(), elsewhere.display());
    let (read, trips) = seen.reads(command, &[DOMAIN[0], DOMAIN[1], &given]);
    assert_eq!(read, expected);
    assert!(trips > 5, "a copy is another file: {trips}");

    // Not there, not the same domain, or none.
    let hidden = where_first(r#"mount -t tmpfs none "$PLACE0""#, &[&home]);
    for (command, job) in [
        (hidden, &DOMAIN[..]),
        (here(), &["--filesystem-domain=cs", "--uid-domain=other"]),
        (here(), &["--filesystem-domain=ee", "--uid-domain=wisc"]),
        (here(), &[]),
    ] {
        let (read, trips) = seen.reads(command, job);
        assert_eq!(read, expected);
        assert!(trips > 5, "{job:?}: {trips}");
    }
}

#[test]
fn what_becomes_of_a_file_that_is_read_directly_is_seen() {
    let what = "what_becomes_of_a_file_that_is_read_directly_is_seen";
    if missing(what) {
        return;
    }
    let seen = Seen::new("direct-changes", &DOMAIN);
    let data = seen.submit.home().join("data");
    let other = seen.submit.home().join("other");
    fs::write(&data, vec![b'a'; 4 << 20]).expect("writes");
    let mut job = seen.start(clean_command(stage::wayfarer()), &DOMAIN, CHANGES);
    let mut input = job.stdin().expect("an input");
    let says = |job: &mut Run, expected: &str| {
        let line = job.wait_line(expected, SOON);
        line.unwrap_or_else(|why| panic!("{why}\n{}", job.describe()));
    };
    let mut goes_on = || input.write_all(b"go\n").expect("goes on");
    says(&mut job, "1 b'aaa' b'aaa' 4194304");
    goes_on();
    // What it has just written itself, by a descriptor that was open before and by a new one.
    says(&mut job, "2 b'own' b'aaa' 4194304");
    goes_on();
    says(&mut job, "3 b'own' b'aaa' 4194304");
    let file = fs::OpenOptions::new()
        .write(true)
        .open(&data)
        .expect("opens");
    std::os::unix::fs::FileExt::write_all_at(&file, b"bbb", 3 << 20).expect("writes");
    goes_on();
    says(&mut job, "4 b'own' b'bbb' 4194304");
    // Another file of the same name is another file for the next open only.
    fs::write(&other, vec![b'c'; 3 << 20]).expect("writes");
    fs::rename(&other, &data).expect("renames");
    goes_on();
    says(&mut job, "5 b'ccc' b'' 3145728");
}

#[test]
fn a_job_that_reads_directly_goes_on_where_the_files_are_not() {
    let what = "a_job_that_reads_directly_goes_on_where_the_files_are_not";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let shadow = [&["--allow", "/:ro"][..], &DOMAIN].concat();
    let mut traveller = Traveller::new("direct-moves", &shadow);
    let home = traveller.submit.home();
    fs::write(home.join("data"), noise(8 << 20)).expect("writes");
    let options = [&["run", "-q", "--name", "job"][..], &DOMAIN].concat();
    let mut command = traveller.wayfarer(&options.iter().map(OsStr::new).collect::<Vec<_>>());
    command.arg("--chdir").arg(&home).arg("--shadow");
    command.arg(super::address(&traveller.submit.dir));
    command.args(["--", "/usr/bin/python3", "-c", AGAIN]);
    command.stdin(Stdio::piped());
    let mut job = Run::start_with_stdin("the job", command, User::Ordinary).expect("starts");
    job.wait_line("begun", DEADLINE).expect("begins");
    let images: Vec<PathBuf> = (0..3)
        .map(|_| {
            traveller.pause(150);
            let image = traveller.checkpoint(&mut job);
            image.expect("it lives yet")
        })
        .collect();
    traveller.kill(&mut job);
    for image in images {
        let mut command = traveller.submit.bare_machine();
        command.arg("--dir").arg(traveller.submit.dir.join("state"));
        command.args(["restart", "--shadow"]);
        command
            .arg(super::address(&traveller.submit.dir))
            .arg(&image);
        let there = output("the job there", command);
        assert_eq!(there, ("True the end\n".into(), String::new(), Some(0)));
    }
}

/// A checkpoint takes only what the shim reads for what the shim reads.
#[test]
fn a_local_file_that_is_opened_nearly_so_is_the_programs() {
    let what = "a_local_file_that_is_opened_nearly_so_is_the_programs";
    if missing(what) {
        return;
    }
    let shadow = [&["--allow", "/:ro"][..], &DOMAIN].concat();
    let mut traveller = Traveller::new("direct-alike", &shadow);
    let script = r#"
import os, tempfile, time
name = tempfile.mktemp(dir='/dev/shm')
f = os.open(name, os.O_RDWR | os.O_CREAT | os.O_SYNC | os.O_NONBLOCK | os.O_NOFOLLOW, 0o600)
os.write(f, b'before ')
print('begun', flush=True)
while not os.path.exists('go'): time.sleep(0.02)
os.write(f, b'after'); print(os.pread(f, 99, 0)); os.unlink(name)
"#;
    let mut job = traveller.begin(&super::restart::job_words("/usr/bin/python3", script));
    job.wait_line("begun", DEADLINE).expect("begins");
    let image = traveller.checkpoint(&mut job).expect("it lives yet");
    traveller.kill(&mut job);
    let mut job = traveller.restart(&image, "fail");
    fs::write(traveller.submit.home().join("go"), "").expect("writes");
    let status = job.wait(DEADLINE).expect("ends");
    let found = (job.out.text(), status.code());
    assert_eq!(
        found,
        ("b'before after'\n".into(), Some(0)),
        "{}",
        job.describe()
    );
}

#[test]
fn mounts_that_are_none_are_named() {
    let what = "mounts_that_are_none_are_named";
    if missing(what) {
        return;
    }
    let submit = Submit::new("direct-wrong");
    for (options, expected) in [
        (
            &["--filesystem-domain=cs", "--mounts=a=/b"][..],
            "--mounts: found `a=/b`, expected /FOLDER/THERE=/FOLDER/HERE",
        ),
        (&["--mounts=/a=/b"], "--filesystem-domain"),
    ] {
        let mut command = clean_command(stage::wayfarer());
        let options: Vec<_> = options.iter().map(OsStr::new).collect();
        submit.run(&mut command, &options, &words(&["true"]));
        let (_, errors, status) = output("wrong", command);
        assert!(errors.contains(expected) && status == Some(2), "{errors}");
    }
}
