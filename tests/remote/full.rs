//! Disks that are full: of what the shadow keeps, and of what wayfarer keeps where a job runs. Whoever needs the room is told what is full, nothing
//! that was good is lost, and when there is room again all goes on.

use super::restart::job_words;
use super::*;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use support::run::poll;

/// A disk of its own for one folder.
pub(super) fn cannot_mount(what: &str) -> bool {
    let mut tried = clean_command("unshare");
    tried.args(["-rm", "mount", "-t", "tmpfs", "none", "/mnt"]);
    let (_, why, status) = output("unshare", tried);
    if status != Some(0) {
        skip::note(
            what,
            &format!("no file system of one's own: {}", why.trim()),
        );
    }
    status != Some(0)
}

/// A submit machine whose shadow has a disk of so many MiB in its folder `room`.
pub(super) fn with_small_disk(label: &str, mib: u32, options: &[&str]) -> Submit {
    let mount =
        format!("mkdir room && mount -t tmpfs -o size={mib}m,mode=700 none room && exec \"$@\"");
    let wrapped = ["unshare", "-rm", "/bin/sh", "-c", &mount, "sh"];
    Submit::wrapped(label, &wrapped, options, User::Ordinary)
}

/// A folder of a shadow's own file system, seen from here.
fn within(submit: &Submit, folder: &str) -> PathBuf {
    let below = submit.dir.join(folder);
    let below = below.strip_prefix("/").expect("is absolute");
    Path::new(&format!("/proc/{}/root", submit.shadow.pid())).join(below)
}

/// Carries it out there as the shadow's user: nobody else is known to its file system.
fn there(folder: &Path, script: &str) {
    let mut command = clean_command("/bin/sh");
    command
        .args(["-c", &format!("cd \"$0\" && {script}")])
        .arg(folder);
    let (_, said, status) = output("there", command);
    assert_eq!(status, Some(0), "{said}");
}

/// Takes all the room there is.
fn fill(folder: &Path) {
    there(folder, "! cat /dev/zero > filler 2> /dev/null");
}

fn make_room(folder: &Path) {
    there(folder, "rm filler");
}

/// Makes folders, or changes a file that was there, until it cannot; says how many it has made.
const CHANGES: &str = r#"
import errno, os, sys
file = os.open('big', os.O_RDWR)
made = dict(names=0, contents=0)
def change(how, number):
    if how == 'names': os.mkdir('f' * (1 + number * 7 % 90) + str(number))
    else: os.pwrite(file, b'x' * 5000, number * 4096 * 3); os.fsync(file)
print('begun', flush=True)
for line in sys.stdin:
    how, most = line.split()
    said = 'none'
    for _ in range(int(most)):
        try: change(how, made[how])
        except OSError as error: said = errno.errorcode[error.errno]; break
        made[how] += 1
    print(how, most, said, flush=True)
os.close(file)
# Who ends well wants nothing back.
sys.exit(3)
"#;

/// No old state can be kept: nothing is changed, the call says so, and the next one is made.
#[test]
fn a_full_disk_of_the_journal_is_told_and_does_no_harm() {
    let what = "a_full_disk_of_the_journal_is_told_and_does_no_harm";
    if missing(what) || cannot_mount(what) {
        return;
    }
    let submit = with_small_disk(
        "journal-full",
        4,
        &["--allow", "/:ro", "--journal", "room/undo"],
    );
    let big = submit.home().join("big");
    fs::write(&big, vec![b'a'; 16 << 20]).expect("writes");
    User::Ordinary.own(&big);
    let before = tree(&submit.home());
    let mut traveller = super::restart::Traveller::of(submit, "journal-full");
    let room = within(&traveller.submit, "room");
    let mut command = traveller.wayfarer(&words(&["run", "-q", "--name", "job", "--chdir"]));
    command.arg(traveller.submit.home()).arg("--shadow");
    command.arg(address(&traveller.submit.dir)).arg("--");
    command
        .args(job_words("/usr/bin/python3", CHANGES))
        .stdin(Stdio::piped());
    let mut job = Run::start_with_stdin("the job", command, User::Ordinary).expect("starts");
    let mut stdin = job.stdin().expect("a pipe");
    job.wait_line("begun", SOON).expect("begins");
    let image = traveller.checkpoint(&mut job).expect("it lives yet");
    let mut lines = 0;
    let mut ask = |how: &str, most: usize| {
        writeln!(stdin, "{how} {most}").expect("listens");
        lines += 1;
        let said = poll(DEADLINE, || {
            job.out.text().lines().nth(lines).map(str::to_owned)
        });
        let said = said.unwrap_or_else(|| panic!("{}", job.describe()));
        said.rsplit(' ').next().expect("a word").to_owned()
    };
    for turn in 0..10 {
        for how in ["names", "contents"] {
            // So that it is full at another step of a change each time.
            assert_eq!(
                ask(how, 1 + turn % 4),
                "none",
                "{how}, turn {turn}: {}",
                traveller.submit.shadow.err.text()
            );
            fill(&room);
            assert_eq!(
                ask(how, 2000),
                "ENOSPC",
                "{how}, turn {turn}: {}",
                traveller.submit.shadow.err.text()
            );
            make_room(&room);
        }
    }
    assert_eq!(ask("names", 3), "none");
    let names = |line: &str| {
        line.contains("refused: what is there cannot be kept for an undo")
            && line.contains("/room/undo/")
            && line.contains("No space left on device")
            && line.contains("home")
    };
    let named = |said: &str| said.lines().any(names);
    let said = traveller.submit.shadow.err.text_once(named);
    assert!(named(&said), "{said}");
    drop(stdin);
    let status = job.wait(DEADLINE).expect("ends");
    assert_eq!(status.code(), Some(3), "{}", job.describe());
    // All of it can be taken back.
    assert!(tree(&traveller.submit.home()) != before);
    let mut back = traveller.restart(&image, "roll-back");
    back.wait(DEADLINE).expect("ends");
    let mut found = tree(&traveller.submit.home());
    // The journal's own: the job may be wanted back once more.
    found.retain(|name, _| !name.display().to_string().starts_with(".wayfarer-kept-"));
    let differs = |name: &&PathBuf| found.get(*name) != before.get(*name);
    let names: Vec<_> = found.keys().chain(before.keys()).filter(differs).collect();
    let shadow = traveller.submit.shadow.err.text();
    assert!(names.is_empty(), "{names:?} {}{shadow}", back.describe());
}

/// A journal cannot even be begun.
#[test]
fn a_job_whose_journal_has_no_room_is_told_so() {
    let what = "a_job_whose_journal_has_no_room_is_told_so";
    if missing(what) || cannot_mount(what) {
        return;
    }
    let submit = with_small_disk(
        "journal-none",
        1,
        &["--allow", "/:ro", "--journal", "room/undo"],
    );
    let room = within(&submit, "room");
    let tried = || {
        output(
            "the job",
            submit.remote(&words(&["/bin/sh", "-c", "echo x > file"])),
        )
    };
    fill(&room);
    let (_, said, status) = tried();
    assert_ne!(status, Some(0), "{said}");
    assert!(
        said.contains("No space left on device") || said.contains("ENOSPC"),
        "{said}"
    );
    let named = |log: &str| {
        let words = [
            "a journal cannot be begun",
            "/room/undo",
            "No space left on device",
        ];
        words.iter().all(|words| log.contains(words))
    };
    let log = submit.shadow.err.text_once(named);
    assert!(named(&log), "{log}");
    make_room(&room);
    assert_eq!(tried(), (String::new(), String::new(), Some(0)));
    assert_eq!(
        fs::read(submit.home().join("file")).expect("is there"),
        b"x\n"
    );
}

/// Where its sessions are kept there is no room: it serves them, says that they end with it, and keeps them as soon as there is room.
#[test]
fn a_session_is_kept_as_soon_as_there_is_room() {
    let what = "a_session_is_kept_as_soon_as_there_is_room";
    if missing(what) || cannot_mount(what) {
        return;
    }
    let submit = with_small_disk(
        "state-full",
        1,
        &["--allow", "/:ro", "--state", "room/keep"],
    );
    let room = within(&submit, "room");
    let logs = || {
        let sessions = fs::read_dir(room.join("keep/sessions"))
            .expect("lists")
            .flatten();
        sessions
            .filter(|one| one.path().join("log").exists())
            .count()
    };
    let said = |words: &str| {
        let told = || submit.shadow.err.text().contains(words).then_some(());
        poll(SOON, told).unwrap_or_else(|| panic!("{words}: {}", submit.shadow.err.text()));
    };
    let script = "import sys; file = open('log', 'w')\nfor line in sys.stdin: file.write(line); file.flush(); open(line.strip(), 'w').close(); print(line, end='', flush=True)";
    let begin = |script| {
        let mut command = submit.remote(&words(&["/usr/bin/python3", "-c", script]));
        command.stdin(Stdio::piped());
        Run::start_with_stdin("the job", command, User::Ordinary).expect("starts")
    };
    // Full from the beginning, and later.
    for is_first in [true, false] {
        if is_first {
            fill(&room);
        }
        let mut job = begin(script);
        let mut stdin = job.stdin().expect("a pipe");
        let mut ask = |job: &mut Run, line: &str| {
            writeln!(stdin, "{line}").expect("listens");
            job.wait_line(line, SOON)
                .unwrap_or_else(|why| panic!("{why}: {}", job.describe()));
        };
        ask(&mut job, "one");
        if !is_first {
            assert_eq!(logs(), 1);
            fill(&room);
            // Each is noted, so the room that was left in the log's last block is used up.
            let mut number = 0;
            let given_up = || {
                number += 1;
                ask(&mut job, &format!("more-{number}"));
                (logs() == 0).then_some(())
            };
            poll(SOON, given_up).unwrap_or_else(|| panic!("{}", submit.shadow.err.text()));
        }
        said("cannot be written: this session will end with the shadow");
        let named = |log: &str| {
            log.contains("room/keep/sessions/") && log.contains("No space left on device")
        };
        let log = submit.shadow.err.text_once(named);
        assert!(named(&log), "{log}");
        if is_first {
            assert_eq!(logs(), 0);
        }
        make_room(&room);
        let kept = poll(SOON, || {
            ask(&mut job, "two");
            (logs() == 1).then_some(())
        });
        kept.unwrap_or_else(|| panic!("{}", submit.shadow.err.text()));
        said("is written again: this session outlives the shadow");
        drop(stdin);
        let status = job.wait(SOON).expect("ends");
        assert!(status.success(), "{}", job.describe());
        let gone = || (logs() == 0).then_some(());
        poll(SOON, gone).expect("it is over");
    }
}

/// A shadow that comes again and has no room for what it took over says so; nothing of it is lost.
#[test]
fn a_shadow_that_has_no_room_to_take_over_loses_nothing() {
    let what = "a_shadow_that_has_no_room_to_take_over_loses_nothing";
    if missing(what) || cannot_mount(what) {
        return;
    }
    let dir = stage::job_dir("state-taken", User::Ordinary);
    let mut command = clean_command("unshare");
    command
        .args(["-rm", "/bin/sh", "-c", TAKEN, "sh"])
        .arg(&dir);
    command.env("WF", stage::wayfarer());
    let (out, said, status) = output("all of it", command);
    let failed = said
        .lines()
        .filter(|line| line.contains("No space left on device"));
    let named = failed.filter(|line| {
        line.contains("cannot keep the state of sessions in") && line.contains("/room/keep/")
    });
    assert_eq!(
        (out.as_str(), status, named.count()),
        (TAKEN_SAID, Some(0), 1),
        "{said}"
    );
    fs::remove_dir_all(&dir).expect("removes");
}

const TAKEN_SAID: &str = "begun\nno room: 1\nroom: the job ends with 0\none two\n";

/// A job, and shadows that are killed, the first when the job has closed its file; the last but one has no room.
const TAKEN: &str = r#"
cd "$1" && mkdir room home state && mount -t tmpfs -o size=1m,mode=700 none room || exit 99
soon() { for i in $(seq 500); do "$@" 2>/dev/null && return 0; sleep 0.02; done; echo "never: $*"; exit 98; }
shadow() { exec "$WF" shadow --state room/keep --allow /:ro --allow "$PWD/home" --listen "unix:$PWD/socket" >/dev/null; }
mkfifo go; (shadow) & dead=$!; soon test -e socket.token
"$WF" --dir state run -q --chdir "$PWD/home" --shadow "unix:$PWD/socket" -- sh -c 'printf "one " > file; echo begun; read line; echo two >> file' < go > said & job=$!
exec 3> go; soon test -s home/file; soon grep -qx begun said; cat said
kill -KILL $dead; wait $dead 2>/dev/null; rm socket.token
cat /dev/zero > room/filler 2>/dev/null
(shadow); echo "no room: $?"
rm room/filler
(shadow) & last=$!; soon test -e socket.token
echo go >&3; wait $job; echo "room: the job ends with $?"
cat home/file; kill $last; wait $last
"#;

/// Wayfarer's own folder where jobs run is on a disk of its own, `$1`, which is full for a while.
const HERE: &str = r#"
mount -t tmpfs -o size=96m,mode=700 none "$1" && cd "$1" || exit 99
say() { echo "$@"; echo "-- $*" >&2; }
go() { exec "$WF" --dir "$PWD/state" "$@"; }
wf() { (go "$@"); }
soon() { for i in $(seq 500); do "$@" >/dev/null 2>&1 && return 0; sleep 0.02; done; echo "never: $*"; exit 98; }
works() { for child in $(cat /proc/$1/task/$1/children); do grep -qx python3 /proc/$child/comm || works $child && return 0; done; return 1; }
end() { soon works $1; kill -USR1 $1; wait $1; say "ended $?"; }
go run -q --name job -- /usr/bin/python3 -c 'import signal, sys
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7)); open("up", "w").close()
while True: signal.pause()' & first=$!
soon test -e up; soon wf checkpoint job
cat /dev/zero > filler 2>/dev/null
wf checkpoint job; say "checkpoint $?"
ls -A state/jobs/job/images
wf verify state/jobs/job/images/job-1.img >/dev/null; say "verify $?"
wf run -q --name other -- echo ran; say "run $?"
end $first
go restart job & end $!
rm filler
go restart job & last=$!
soon wf checkpoint job
ls -A state/jobs/job/images; say "room"
wf verify state/jobs/job/images/job-2.img >/dev/null; say "verify $?"
end $last
"#;
const HERE_SAID: &str = "checkpoint 1\njob-1.img\nverify 0\nran\nrun 0\nended 7\nended 7\njob-1.img\njob-2.img\nroom\nverify 0\nended 7\n";

#[test]
fn a_full_disk_of_wayfarers_own_is_named_and_the_last_image_stays() {
    let what = "a_full_disk_of_wayfarers_own_is_named_and_the_last_image_stays";
    if missing(what) || cannot_mount(what) {
        return;
    }
    let dir = stage::job_dir("full-here", User::Ordinary);
    let mut command = clean_command("unshare");
    command.args(["-rm", "/bin/sh", "-c", HERE, "sh"]).arg(&dir);
    command.env("WF", stage::wayfarer()).current_dir("/");
    let (out, said, status) = output("all of it", command);
    assert_eq!((out.as_str(), status), (HERE_SAID, Some(0)), "{said}");
    let images = dir
        .join("state/jobs/job/images/job-2.img")
        .display()
        .to_string();
    let checkpoint = said.split("-- ").next().unwrap_or_default();
    for words in ["and it runs on", &images, "No space left on device"] {
        assert!(checkpoint.contains(words), "{words}: {said}");
    }
    let record = |job: &str| {
        dir.join("state/jobs")
            .join(job)
            .join("job.json")
            .display()
            .to_string()
    };
    for job in ["other", "job"] {
        let told = format!(
            "the job is not written down, and is known by its process id only: job record {}: No space left on device",
            record(job)
        );
        assert!(said.contains(&told), "{told}: {said}");
    }
    fs::remove_dir_all(&dir).expect("removes");
}
