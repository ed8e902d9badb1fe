//! What is written behind (docs/adr/0015-written-behind.md): where it is, when, and what becomes of it if somebody is killed.

use super::restart::{Traveller, UNDER_JOURNAL, ends_as_undisturbed, job_words};
use super::*;
use std::process::Stdio;
use std::time::Instant;
use support::random::seed;

/// How long what is written may stay away from home, and a little for a busy machine.
const A_SECOND: Duration = Duration::from_millis(1500);

/// Writes to a file of its own, does something, and waits until somebody has looked at the file.
const SENT_BY: &str = r#"
import fcntl, mmap, os, sys
def child(act):
    pid = os.fork()
    if pid == 0: act(); os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
def execute(fd):
    os.set_inheritable(fd, True); os.execv('/bin/true', ['true'])
def mapped(fd):
    with mmap.mmap(fd, 0): pass
def replaced(fd):
    with open('other', 'w') as other: os.dup2(other.fileno(), fd)
actions = {
    'close': lambda fd, name: os.close(fd),
    'close of another descriptor': lambda fd, name: os.close(os.dup(fd)),
    'close_range': lambda fd, name: os.closerange(fd, fd + 1),
    'dup2': lambda fd, name: replaced(fd),
    'exit of a child': lambda fd, name: child(lambda: None),
    'exec of a child': lambda fd, name: child(lambda: execute(fd)),
    'fsync': lambda fd, name: os.fsync(fd),
    'fdatasync': lambda fd, name: os.fdatasync(fd),
    'a record lock': lambda fd, name: fcntl.lockf(fd, fcntl.LOCK_EX),
    'a record lock given up': lambda fd, name: fcntl.lockf(fd, fcntl.LOCK_UN),
    'flock': lambda fd, name: fcntl.flock(fd, fcntl.LOCK_SH),
    'flock given up': lambda fd, name: fcntl.flock(fd, fcntl.LOCK_UN),
    'rename': lambda fd, name: (os.rename(name, name + 'r'), os.rename(name + 'r', name)),
    'link': lambda fd, name: os.link(name, name + 'l'),
    'unlink of another name': lambda fd, name: (open(name + 'o', 'w').close(), os.unlink(name + 'o')),
    'chmod': lambda fd, name: os.chmod(name, 0o600),
    'truncate': lambda fd, name: os.truncate(name, 1000),
    'fstat': lambda fd, name: os.fstat(fd).st_size == 1000 or sys.exit('fstat'),
    'stat': lambda fd, name: os.stat(name).st_size == 1000 or sys.exit('stat'),
    'lseek END': lambda fd, name: os.lseek(fd, 0, os.SEEK_END) == 1000 or sys.exit('lseek'),
    'a read': lambda fd, name: os.pread(fd, 2000, 0) == b'x' * 1000 or sys.exit('pread'),
    'a mapping': lambda fd, name: mapped(fd),
    'a listing': lambda fd, name: [e.stat().st_size for e in os.scandir('.') if e.name == name] == [1000] or sys.exit('scandir'),
    'O_SYNC': lambda fd, name: None, 'O_DSYNC': lambda fd, name: None, 'descriptor 2': lambda fd, name: None,
}
for number, (what, act) in enumerate(actions.items()):
    flags = {'O_SYNC': os.O_SYNC, 'O_DSYNC': os.O_DSYNC}.get(what, 0) | (os.O_APPEND if number % 2 else 0)
    name = str(number)
    fd = os.open(name, os.O_RDWR | os.O_CREAT | flags, 0o644)
    if what == 'descriptor 2': kept = os.dup(2); os.dup2(fd, 2); os.write(2, b'x' * 1000); os.dup2(kept, 2)
    else: os.write(fd, b'x' * 1000)
    act(fd, name)
    print(name, what, flush=True)
    if sys.stdin.readline() == '': sys.exit('nobody looks')
print('all', flush=True)
"#;

#[test]
fn what_is_written_is_there_when_somebody_needs_it() {
    let what = "what_is_written_is_there_when_somebody_needs_it";
    if missing(what) {
        return;
    }
    let submit = Submit::new("remote-sent");
    let mut command = submit.remote(&words(&["/usr/bin/python3", "-c", SENT_BY]));
    command.stdin(Stdio::piped());
    let mut job = Run::start_with_stdin("the job", command, User::Ordinary).expect("starts");
    let mut stdin = job.stdin().expect("a pipe");
    for number in 0.. {
        let begin = format!("{number} ");
        let line = support::run::poll(SOON, || {
            let said = job.out.text();
            let mut lines = said.lines();
            let line = lines.find(|line| line.starts_with(&begin) || *line == "all");
            line.map(str::to_owned)
        });
        let line = line.unwrap_or_else(|| panic!("{}", job.describe()));
        if line == "all" {
            assert!(number > 20, "{number}");
            break;
        }
        let found = fs::read(submit.home().join(number.to_string())).expect("is there");
        assert_eq!(found, [b'x'; 1000], "{line}");
        std::io::Write::write_all(&mut stdin, b"seen\n").expect("listens");
    }
    assert!(
        job.wait(SOON).expect("ends").success(),
        "{}",
        job.describe()
    );
}

/// Until a file is what it should be.
fn comes(path: &Path, expected: &[u8], within: Duration) {
    let begun = Instant::now();
    let found = support::run::poll(within, || {
        (fs::read(path).unwrap_or_default() == expected).then_some(())
    });
    let now = fs::read(path).unwrap_or_default().len();
    let lost = begun.elapsed();
    assert!(
        found.is_some(),
        "{now} of {} after {lost:?}",
        expected.len()
    );
}

#[test]
fn what_is_written_comes_home_within_a_second() {
    const SCRIPT: &str = "import os, sys, signal
fd = os.open('log', os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
for line in sys.stdin: os.write(fd, line.encode())
";
    let what = "what_is_written_comes_home_within_a_second";
    if missing(what) {
        return;
    }
    let submit = Submit::new("remote-tail");
    let mut command = submit.remote(&words(&["/usr/bin/python3", "-c", SCRIPT]));
    command.stdin(Stdio::piped());
    let mut job = Run::start_with_stdin("the job", command, User::Ordinary).expect("starts");
    let mut stdin = job.stdin().expect("a pipe");
    let log = submit.home().join("log");
    comes(&log, b"", SOON);
    let mut expected = vec![];
    for line in 0..5 {
        let line = format!("line {line}\n");
        expected.extend(line.as_bytes());
        std::io::Write::write_all(&mut stdin, line.as_bytes()).expect("listens");
        let within = if expected.len() == line.len() {
            SOON
        } else {
            A_SECOND
        };
        comes(&log, &expected, within);
    }
    drop(stdin);
    assert!(
        job.wait(SOON).expect("ends").success(),
        "{}",
        job.describe()
    );
}

/// Writers are killed in the middle of anything: what they have told that they have written is there, once, and nothing else.
const KILLED: &str = r#"
import os, random, signal, time
random.seed(SEED)
def writer(told, flags):
    fd = os.open('file', os.O_WRONLY | flags)
    if not flags & os.O_APPEND: os.lseek(fd, 0, os.SEEK_END)
    number = 0
    while True:
        # Some fill the buffer, some are read at once.
        line = b'%d ' % number + b'.' * (number % 5 * 9000) + b'\n'
        assert os.write(fd, line) == len(line)
        number += 1
        os.write(told, b'x')
def reader(seed):
    # Has what was written sent by another process, which may be killed as well.
    random.seed(seed); fd = os.open('file', os.O_RDONLY)
    while True: os.pread(fd, 1, 0); time.sleep(random.random() * 0.003)
def fork(act):
    pid = os.fork()
    if pid == 0:
        try: act()
        finally: os._exit(1)
    return pid
for step in range(STEPS):
    flags = random.choice([0, os.O_APPEND])
    open('file', 'w').close()
    told, tell = os.pipe()
    pids = [fork(lambda: writer(tell, flags))] + [fork(lambda: reader(random.random())) for _ in range(step % 3)]
    os.close(tell)
    time.sleep(random.random() * 0.04)
    for pid in pids: os.kill(pid, signal.SIGKILL); assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    count = 0
    while part := os.read(told, 1 << 16): count += len(part)
    os.close(told)
    lines = open('file', 'rb').read().split(b'\n')
    # The last one may have been killed before it told.
    assert count <= len(lines) - 1 <= count + 1 and (lines[-1] == b'' or len(lines) - 1 == count), (step, count, len(lines), lines[-1][:20])
    for number, line in enumerate(lines[:-1]):
        assert line.split(b' ')[0] == b'%d' % number and len(line) == len(b'%d ' % number) + number % 5 * 9000, (step, number, line[:20])
print('all there')
"#;

#[test]
fn what_killed_processes_have_written_is_there_once() {
    let what = "what_killed_processes_have_written_is_there_once";
    if missing(what) {
        return;
    }
    let seed = seed();
    println!("WF_SEED={seed}");
    let submit = Submit::new("remote-killed");
    let script = KILLED
        .replace("SEED", &seed.to_string())
        .replace("STEPS", "60");
    let job = submit.remote(&[
        OsStr::new("/usr/bin/python3"),
        OsStr::new("-c"),
        OsStr::new(&script),
    ]);
    let found = output("the job", job);
    assert_eq!(found, ("all there\n".into(), String::new(), Some(0)));
}

#[test]
fn a_job_that_is_killed_leaves_what_it_has_written() {
    const SCRIPT: &str = "import os, signal
fd = os.open('file', os.O_WRONLY | os.O_CREAT, 0o644)
for i in range(1000): os.write(fd, b'%d\\n' % i)
os.kill(os.getpid(), signal.SIGKILL)
";
    let what = "a_job_that_is_killed_leaves_what_it_has_written";
    if missing(what) {
        return;
    }
    let expected: String = (0..1000).map(|i| format!("{i}\n")).collect();
    let submit = Submit::new("remote-last");
    for pids in ["namespace", "host"] {
        let mut command = clean_command(stage::wayfarer());
        let options = ["--pids", pids].map(OsStr::new);
        let script = words(&["/usr/bin/python3", "-c", SCRIPT]);
        submit
            .run(&mut command, &options, &script)
            .current_dir(submit.home());
        let mut run = Run::start("the job", command, User::Ordinary).expect("starts");
        let status = run.wait(SOON).expect("ends");
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        assert_eq!(signal, Some(9), "{}", run.describe());
        // Not a moment later.
        let found = fs::read_to_string(submit.home().join("file")).expect("is there");
        assert_eq!(found, expected, "{pids}");
        fs::remove_file(submit.home().join("file")).expect("removes");
    }
    // With all that stands above it.
    let script = SCRIPT.replace("SIGKILL)", "SIGSTOP)");
    let job = submit.remote(&[
        OsStr::new("/usr/bin/python3"),
        OsStr::new("-c"),
        OsStr::new(&script),
    ]);
    let mut run = Run::start("the job", job, User::Ordinary).expect("starts");
    let path = submit.home().join("file");
    let begun = support::run::poll(SOON, || path.exists().then_some(()));
    begun.expect("begins");
    let pid = nix_pid(run.pid());
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("kills");
    run.wait(SOON).expect("ends");
    let whole =
        |found: &str| expected.starts_with(found) && (found.is_empty() || found.ends_with('\n'));
    let found = fs::read_to_string(&path).expect("is there");
    assert!(whole(&found), "{found}");
}

fn nix_pid(pid: u32) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(pid.cast_signed()).expect("a process")
}

/// Where there is no room, each of the three says so, once.
const FULL: &str = r#"
import errno, os, time
def refused(act, what):
    try: act()
    except OSError as error: assert error.errno == errno.ENOSPC, (what, error); return
    raise SystemExit('no error: ' + what)
def fine(act): act()
fd = os.open('filler', os.O_WRONLY | os.O_CREAT, 0o644)
def fill():
    for _ in range(1000): os.write(fd, b'x' * 5000)
refused(fill, 'write')
try: os.fsync(fd)
except OSError: pass
fine(lambda: os.close(fd))
for flags in (0, os.O_APPEND):
    def begin(): fd = os.open('more', os.O_WRONLY | os.O_CREAT | flags, 0o644); assert os.write(fd, b'y' * 100000) == 100000; return fd
    fd = begin(); refused(lambda: os.fsync(fd), 'fsync'); fine(lambda: os.fsync(fd)); fine(lambda: os.close(fd))
    fd = begin(); refused(lambda: os.close(fd), 'close')
    fd = begin(); os.stat('more'); refused(lambda: os.write(fd, b'z'), 'the next write, after somebody else has sent it'); fine(lambda: os.close(fd))
    fd = begin(); time.sleep(1); refused(lambda: os.write(fd, b'z'), 'the next write, a second later'); fine(lambda: os.close(fd))
os.unlink('filler')
with open('more', 'wb') as more: more.write(b'fits')
assert open('more').read() == 'fits'
print('told')
"#;

#[test]
fn a_full_disk_is_told_at_write_fsync_or_close() {
    let what = "a_full_disk_is_told_at_write_fsync_or_close";
    if missing(what) {
        return;
    }
    let mount = "mount -t tmpfs -o size=1m,mode=777 none home && exec \"$@\"";
    let wrapped = ["unshare", "-rm", "/bin/sh", "-c", mount, "sh"];
    let mut tried = clean_command("unshare");
    tried.args(["-rm", "true"]);
    if output("unshare", tried).2 != Some(0) {
        return skip::note(what, "no file system of one's own can be mounted here");
    }
    let submit = Submit::wrapped(
        "remote-full",
        &wrapped,
        &["--allow", "/:ro"],
        User::Ordinary,
    );
    let job = submit.remote(&words(&["/usr/bin/python3", "-c", FULL]));
    let found = output("the job", job);
    assert_eq!(found, ("told\n".into(), String::new(), Some(0)));
    // Nobody is left to be told, so it is told to whoever waits for the job.
    let rest = "import os; fd = os.open('rest', os.O_WRONLY | os.O_CREAT); [os.write(fd, b'x' * 5000) for _ in range(40)]; \
                f = os.open('filler', os.O_WRONLY | os.O_CREAT)\nwhile True:\n try: os.write(f, b'x' * 300000)\n except OSError: break\n\
                os.write(fd, b'x' * 5000); os._exit(0)";
    let job = submit.remote(&[
        OsStr::new("/usr/bin/python3"),
        OsStr::new("-c"),
        OsStr::new(rest),
    ]);
    let (_, said, status) = output("the job", job);
    assert_eq!(status, Some(5), "{said}");
}

/// Processes and threads write and read the same files, by descriptors of their own, shared and inherited ones. What has been written
/// is noted in memory that they share, after the write has returned; whoever reads afterwards must find that, or something later.
const STRESS: &str = r#"
import fcntl, mmap, os, random, signal, struct, sys, threading
SEED, SECONDS, PROCESSES, THREADS, FILES, RECORDS, SIZE = int(sys.argv[1]), float(sys.argv[2]), 3, 3, 4, 8, 512
import time
end = time.monotonic() + SECONDS
names = [f'file-{n}' for n in range(FILES)]
for name in names: open(name, 'wb').write(b'\0' * (SIZE * RECORDS * PROCESSES * THREADS))
shared = [os.open(name, os.O_RDWR) for name in names]
notes = mmap.mmap(-1, 8 * FILES * RECORDS * PROCESSES * THREADS)
appended = mmap.mmap(-1, 8 * PROCESSES * THREADS)
# By fork, with its descriptors; the parent is one of them.
me = 0
children = []
for process in range(1, PROCESSES):
    pid = os.fork()
    if pid == 0: me = process; children = []; break
    children.append(pid)
def fail(*what):
    print('WRONG', *what, flush=True); os._exit(3)
def work(thread):
    who = me * THREADS + thread
    chance = random.Random(SEED * 1000 + who)
    own = [os.open(name, os.O_RDWR) for name in names]
    log = os.open('log', os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    version = 0; lines = 0
    while time.monotonic() < end:
        what = chance.random()
        file = chance.randrange(FILES)
        fd = chance.choice((own, shared))[file]
        if what < 0.4:
            # A run of neighbouring records, which one buffer may hold.
            first = chance.randrange(RECORDS); count = chance.randrange(1, RECORDS - first + 1)
            version += 1
            for record in range(first, first + count):
                at = who * RECORDS + record
                body = struct.pack('<QQQ', who, record, version) + bytes([version % 251]) * (SIZE - 24)
                if chance.random() < 0.5: written = os.pwrite(fd, body, at * SIZE)
                elif fd in own: os.lseek(fd, at * SIZE, 0); written = os.write(fd, body)
                else: written = os.pwritev(fd, [body[:100], body[100:]], at * SIZE)
                if written != SIZE: fail('short')
                place = 8 * ((file * PROCESSES * THREADS + who) * RECORDS + record)
                notes[place:place + 8] = struct.pack('<Q', version)
        elif what < 0.8:
            other = chance.randrange(PROCESSES * THREADS); record = chance.randrange(RECORDS)
            place = 8 * ((file * PROCESSES * THREADS + other) * RECORDS + record)
            least = struct.unpack('<Q', notes[place:place + 8])[0]
            at = (other * RECORDS + record) * SIZE
            # A read beside a write may see half of it, as it may on a disk, as long as the writer stands there.
            patience = time.monotonic() + 20
            while True:
                body = os.pread(fd, SIZE, at)
                if len(body) != SIZE: fail('length', len(body))
                found = struct.unpack('<QQQ', body[:24])
                if found[2] < least: fail('old', file, other, record, found, least, 'shared' if fd in shared else 'own')
                if not found[2] or (found[:2] == (other, record) and body[24:] == bytes([found[2] % 251]) * (SIZE - 24)): break
                if time.monotonic() > patience: fail('torn', found)
        elif what < 0.9:
            os.write(log, b'%d %d\n' % (who, lines)); lines += 1
            appended[8 * who:8 * who + 8] = struct.pack('<Q', lines)
        elif what < 0.93: os.fsync(fd)
        elif what < 0.95:
            if os.fstat(fd).st_size != os.lseek(own[file], 0, 2): fail('size')
        elif what < 0.96: os.close(own[file]); own[file] = os.open(names[file], os.O_RDWR)
        elif what < 0.965:
            with mmap.mmap(fd, 0) as m: m[0]
        elif what < 0.97:
            pid = os.fork()
            if pid == 0: os.pwrite(own[0], b'', 0); os._exit(0)
            os.waitpid(pid, 0)
        else:
            total = sum(struct.unpack('<Q', appended[8 * w:8 * w + 8])[0] for w in range(PROCESSES * THREADS))
            with open('log', 'rb') as log_now: found = log_now.read().count(b'\n')
            if found < total: fail('log', found, total)
threads = [threading.Thread(target=work, args=(n,)) for n in range(THREADS)]
[t.start() for t in threads]; [t.join() for t in threads]
if me: os._exit(0)
for pid in children:
    status = os.waitpid(pid, 0)[1]
    if status: sys.exit(f'child {status}')
counts = {}
for line in open('log'):
    who, number = map(int, line.split())
    if counts.get(who, 0) != number: fail('order', who, number, counts.get(who))
    counts[who] = number + 1
for who in range(PROCESSES * THREADS):
    if struct.unpack('<Q', appended[8 * who:8 * who + 8])[0] != counts.get(who, 0): fail('lines', who)
for file in range(FILES):
    body = open(names[file], 'rb').read()
    for at in range(PROCESSES * THREADS * RECORDS):
        place = 8 * (file * PROCESSES * THREADS * RECORDS + at)
        version = struct.unpack('<Q', notes[place:place + 8])[0]
        if struct.unpack('<Q', body[at * SIZE + 16:at * SIZE + 24])[0] != version: fail('end', file, at)
print('right')
"#;

#[test]
fn many_write_and_read_the_same_files() {
    let what = "many_write_and_read_the_same_files";
    if missing(what) {
        return;
    }
    let seed = (seed() % 1_000_000).to_string();
    println!("WF_SEED={seed}");
    let seconds = std::env::var("WF_SECONDS").unwrap_or_else(|_| "4".to_owned());
    let submit = Submit::new("remote-stress");
    let script = ["/usr/bin/python3", "-c", STRESS, &seed, &seconds].map(OsStr::new);
    let job = Run::start("the job", submit.remote(&script), User::Ordinary);
    let mut job = job.expect("starts");
    let runs = Duration::from_secs(seconds.parse().expect("WF_SECONDS is a number"));
    let status = job.wait(DEADLINE + runs).expect("ends");
    let found = (job.out.text(), job.err.text(), status.code());
    assert_eq!(found, ("right\n".into(), String::new(), Some(0)));
}

#[test]
fn bytes_that_memory_answers_are_those_that_were_written() {
    let what = "bytes_that_memory_answers_are_those_that_were_written";
    if missing(what) {
        return;
    }
    let seed = seed().to_string();
    println!("WF_SEED={seed}");
    let guest = c_guest("remote_bytes", Linking::Dynamic).expect("the guest compiles");
    let submit = Submit::new("remote-bytes");
    let job = submit.remote(&[guest.as_os_str(), OsStr::new(&seed)]);
    let found = output("the job", job);
    assert_eq!(found, ("PASS\n".into(), String::new(), Some(0)));
}

/// What an image has is not sent any more by who stays behind: without a journal it would be there twice.
#[test]
fn a_job_that_leaves_takes_what_was_not_sent_along() {
    const SCRIPT: &str = "import os, sys, time
fd = os.open('file', os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
print('begun', flush=True)
for i in range(1000): os.write(fd, b'%d\\n' % i); time.sleep(0.003)
sys.stdin.read()
print('the end')
";
    let what = "a_job_that_leaves_takes_what_was_not_sent_along";
    if missing(what) {
        return;
    }
    let mut traveller = Traveller::new(what, &["--allow", "/:ro"]);
    traveller.is_held = true;
    let mut job = traveller.begin(&job_words("/usr/bin/python3", SCRIPT));
    job.wait_line("begun", SOON).expect("begins");
    for step in 0..2 {
        traveller.pause(300);
        let image = traveller.submit.dir.join(format!("state/left-{step}"));
        let mut command =
            traveller.wayfarer(&words(&["checkpoint", "job", "--then", "kill", "-o"]));
        command.arg(&image);
        let (_, said, status) = output("the checkpoint", command);
        assert_eq!(status, Some(0), "{said}");
        job.wait(SOON).expect("ends");
        job = traveller.restart(&image, "fail");
        // When it can be stopped, it has been brought back.
        traveller.checkpoint(&mut job).expect("it lives yet");
    }
    drop(job.stdin());
    let status = job.wait(DEADLINE).expect("ends");
    assert!(status.success(), "{}", job.describe());
    let lines: String = (0..1000).map(|i| format!("{i}\n")).collect();
    let found = fs::read_to_string(traveller.submit.home().join("file")).expect("is there");
    assert_eq!(found, lines);
}

/// Small writes in every way, so that at any moment something is not sent yet.
const DIRTY: &str = r#"
import os, random, time
random.seed(5)
log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
other = os.open("log", os.O_WRONLY | os.O_APPEND)
block = os.open("block", os.O_RDWR | os.O_CREAT, 0o644)
stream = os.open("stream", os.O_WRONLY | os.O_CREAT, 0o644)
for i in range(900):
    os.write(log, b"%d\n" % i)
    if i % 70 == 0: os.write(other, b"other %d\n" % i)
    os.write(stream, b"%d " % i + b"." * random.randrange(3000))
    os.pwrite(block, b"%d" % i, random.randrange(20000))
    if i % 90 == 0: assert os.pread(block, 10, 19990) is not None
    if i % 200 == 199: os.fsync(stream); os.ftruncate(block, 15000)
    if i % 3 == 0: time.sleep(0.004)
print("the end")
"#;

#[test]
fn a_job_goes_on_with_what_was_not_sent() {
    ends_as_undisturbed(
        "a_job_goes_on_with_what_was_not_sent",
        "/usr/bin/python3",
        DIRTY,
    );
}

#[test]
fn what_was_not_sent_comes_home_after_a_restart() {
    const SCRIPT: &str = "import os, time
fd = os.open('file', os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
print('begun', flush=True)
for i in range(100000): os.write(fd, b'%d\\n' % i); time.sleep(0.001)
";
    const ONCE: &str = "import os, time
fd = os.open('file', os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
time.sleep(0.3); os.write(fd, b'once\\n'); print('begun', flush=True); time.sleep(1000)
";
    let what = "what_was_not_sent_comes_home_after_a_restart";
    if missing(what) {
        return;
    }
    let mut traveller = Traveller::new(what, &UNDER_JOURNAL);
    let file = traveller.submit.home().join("file");
    // It never asks for anything again.
    let mut job = traveller.begin(&job_words("/usr/bin/python3", ONCE));
    job.wait_line("begun", SOON).expect("begins");
    let image = traveller.checkpoint(&mut job).expect("it lives yet");
    traveller.kill(&mut job);
    let mut again = traveller.restart(&image, "roll-back");
    // When it can be stopped, it has been brought back.
    traveller.checkpoint(&mut again).expect("it lives yet");
    comes(&file, b"once\n", SOON);
    traveller.kill(&mut again);
    fs::remove_file(&file).expect("removes");
    // One that goes on writing, and is killed once more: its keeper is there, too.
    let mut job = traveller.begin(&job_words("/usr/bin/python3", SCRIPT));
    job.wait_line("begun", SOON).expect("begins");
    let image = traveller.checkpoint(&mut job).expect("it lives yet");
    traveller.kill(&mut job);
    let mut again = traveller.restart(&image, "roll-back");
    traveller.checkpoint(&mut again).expect("it lives yet");
    let grown = support::run::poll(SOON, || {
        (fs::metadata(&file).ok()?.len() > 500).then_some(())
    });
    grown.unwrap_or_else(|| panic!("{}", again.describe()));
    traveller.kill(&mut again);
    let found = fs::read_to_string(&file).expect("is there");
    let count = found.lines().count();
    let lines: String = (0..count).map(|i| format!("{i}\n")).collect();
    assert_eq!(found, lines);
}
