//! Jobs under a journal: all that they did with files of the submit machine is undone, and they notice nothing of the journal.

#[path = "../../journal/tests/undo/picture.rs"]
pub(super) mod picture;

use super::*;
use shadow::{Durability, Files, JobId, Journals};

const PLACE: &str = "WF_UNDO_PLACE";
const UNDER_JOURNAL: [&str; 5] = ["--allow", "/:ro", "--journal", "undo", "--keep-journals"];

#[test]
fn every_call_under_a_journal_does_what_it_does_here() {
    let what = "every_call_under_a_journal_does_what_it_does_here";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::allowing("remote-journal-calls", &UNDER_JOURNAL);
    let before = picture::take(&submit.home());
    same_at(&submit, "remote_calls", 500);
    undo(submit, User::Ordinary, &before);
}

/// What a job finds.
const FURNISH: &str = r#"
set -e
export LC_ALL=C HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
umask 022
seq 30000 > numbers; cp numbers big; for i in 1 2 3 4; do cat numbers >> big; done
ln big big2; ln -s numbers soft; mkdir -p tree/a/b empty; echo one > tree/a/b/one; chmod 640 tree/a/b/one
touch -d @1000000 tree/a/b/one; mkfifo fifo; tar cf all.tar tree; chmod 700 tree/a
printf '#!/bin/sh\necho script\n' > script; chmod 755 script; truncate -s 3M sparse; echo end >> sparse
{ echo 'create table t(a, b); begin;'; for i in $(seq 500); do echo "insert into t values($i, hex(randomblob(50)));"; done; echo 'commit;'; } | sqlite3 data.db
git init -q -b main repo; cd repo; seq 100 > f; git add f; git commit -q -m one; seq 200 > f; git commit -q -a -m two; git gc -q
"#;

/// What it does with that.
const SPOIL: &str = r#"
set -e
export LC_ALL=C HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
export TMPDIR=$PWD
/usr/bin/python3 - <<'EOF'
import os, shutil
with open('big', 'r+b') as f:
    f.seek(70000); f.write(b'X' * 5000); f.seek(0, 2); f.write(b'more'); f.truncate(900000)
with open('numbers', 'w') as f: f.write('new\n')
with open('sparse', 'r+b') as f: f.seek(1000000); f.write(b'hole no more')
shutil.copytree('tree', 'tree2'); os.rename('script', 'tree/script'); os.link('soft', 'soft2', follow_symlinks=False)
os.rename('empty', 'full'); open('full/x', 'w').close()
os.setxattr('big', 'user.key', b'value'); os.chmod('tree/a', 0o755); os.utime('soft', (5, 5), follow_symlinks=False)
EOF
sqlite3 data.db 'delete from t where a % 3 = 0; update t set b = a; vacuum; create index i on t(b);'
(cd repo; echo more >> f; git commit -q -a -m three; git checkout -q -b other HEAD~1; git rm -q f; git commit -q -m gone; git gc -q --prune=now)
git clone -q repo clone 2>/dev/null
sed -i 's/1/one/' numbers; rm -rf tree; tar xf all.tar; mv all.tar tree/a; gzip tree/a/all.tar
echo log >> log; for i in $(seq 20); do echo $i > log.$i; done; rm log.1*; mv -f log log.2
rm fifo big2; ln -sf big soft; dd if=/dev/zero of=big bs=1000 seek=10 count=5 conv=notrunc status=none; : > sparse; sync
sort -n numbers -o numbers; cp --reflink=auto big data.db.copy; chmod 600 data.db; cp numbers data.db.copy
"#;

#[test]
fn what_programs_did_is_undone() {
    jobs_are_undone("what_programs_did_is_undone", User::Ordinary, "kill");
}

#[test]
fn what_roots_programs_did_is_undone() {
    jobs_are_undone("what_roots_programs_did_is_undone", User::Root, "power");
}

fn jobs_are_undone(what: &str, user: User, durability: &str) {
    if let Some(reason) = user.missing() {
        return skip::note(what, &reason);
    }
    let options = [&UNDER_JOURNAL[..], &["--journal-durability", durability]].concat();
    let submit = Submit::with("remote-undone", &options, user);
    let mut furnish = clean_command("/bin/bash");
    furnish.args(["-c", FURNISH]).current_dir(submit.home());
    said_nothing(furnish, user);
    let before = picture::take(&submit.home());
    said_nothing(submit.remote(&words(&["/bin/bash", "-c", SPOIL])), user);
    assert!(before.len() > 40, "{}", before.len());
    let spoilt = picture::take(&submit.home());
    for name in ["tree/a/all.tar.gz", "clone/.git/HEAD", "full/x", "soft2"] {
        assert!(spoilt.contains_key(Path::new(name)), "{name} is missing");
    }
    undo(submit, user, &before);
}

#[test]
fn what_cannot_be_kept_is_not_removed_and_the_log_says_why() {
    let what = "what_cannot_be_kept_is_not_removed_and_the_log_says_why";
    if missing(what) {
        return;
    }
    let submit = Submit::allowing("remote-unkept", &UNDER_JOURNAL);
    let file = submit.home().join("precious");
    fs::write(&file, "old").expect("writes");
    User::Ordinary.own(&file);
    let mut job = submit.remote(&words(&["sh", "-c", "echo ready; read -r go; rm precious"]));
    job.stdin(std::process::Stdio::piped());
    let mut job = Run::start_with_stdin("a job", job, User::Ordinary).expect("starts");
    job.wait_line("ready", SOON).expect("is ready");
    for journal in fs::read_dir(submit.dir.join("undo")).expect("lists") {
        let kept = journal.expect("an entry").path().join("kept");
        fs::remove_dir_all(kept).expect("removes");
    }
    // Its input ends.
    drop(job.stdin());
    let status = job.wait(DEADLINE).expect("ends");
    let error = job.err.text();
    assert_eq!(status.code(), Some(1), "{error}");
    assert!(error.contains("Input/output error"), "{error}");
    assert_eq!(fs::read(&file).expect("is there"), b"old");
    let says = [
        "what is there cannot be kept",
        "cannot keep",
        "home/precious",
    ];
    let named = |line: &&str| says.iter().all(|part| line.contains(part));
    let times = |log: &str| log.lines().filter(named).count();
    let log = submit.shadow.err.text_once(|log| times(log) > 0);
    assert_eq!(times(&log), 1, "{log}");
}

fn said_nothing(command: Command, user: User) {
    let mut run = Run::start("a script", command, user).expect("starts");
    let status = run.wait(DEADLINE).expect("ends");
    assert!(status.success(), "{}", run.describe());
    assert_eq!(run.err.text(), "");
}

/// Ends the shadow, and undoes all that its one job did, as its owner.
pub(super) fn undo(mut submit: Submit, user: User, before: &picture::Picture) {
    let pid = nix::unistd::Pid::from_raw(submit.shadow.pid() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("is there");
    submit.shadow.wait(SOON).expect("ends");
    let mut child = clean_command(std::env::current_exe().expect("is known"));
    child
        .args(["--exact", "undone::child"])
        .current_dir("/")
        .env(PLACE, submit.dir.join("undo"));
    let mut run = Run::start("the undo", child, user).expect("starts");
    let status = run.wait(DEADLINE).expect("ends");
    assert!(status.success(), "{}", run.describe());
    let after = picture::take(&submit.home());
    picture::assert_same(&after, before, "after the undo");
    let kept = fs::read_dir(submit.dir.join("undo"))
        .expect("lists")
        .count();
    assert_eq!(kept, 0, "journals");
}

/// Not a test of its own: the process that undoes.
#[test]
fn child() {
    let Some(place) = std::env::var_os(PLACE) else {
        return;
    };
    let journals = Journals::new(Path::new(&place), Durability::Kill).expect("is there");
    let jobs: Vec<_> = fs::read_dir(place).expect("lists").collect();
    let [Ok(job)] = &jobs[..] else {
        panic!("{jobs:?}");
    };
    let hex = job.file_name().into_string().expect("is text");
    let byte = |at: usize| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("is hex");
    let journal = journals.open(JobId(std::array::from_fn(byte)));
    let journal = journal.expect("opens");
    let first = journal.marks()[0].epoch;
    let undone = journal.undo_to(first, Files::Fail).expect("undoes");
    assert_eq!(undone.differences, []);
    journal.remove().expect("removes");
}
