//! Files that are mapped shared and written through memory.

use super::{DEADLINE, Submit, cannot_hide, missing, output, same_here_and_there, words};
use crate::support::run::{Run, clean_command};
use crate::support::user::User;
use std::ffi::OsStr;
use std::fs;

#[test]
fn mappings_and_descriptors_see_each_other_as_here() {
    let what = "mappings_and_descriptors_see_each_other_as_here";
    same_here_and_there(what, "remote_mappings", 80);
}

/// Two processes write, one has it open meanwhile, and a checkpoint comes in between.
const DATABASE: &str = r#"
set -e
sqlite3 a.db "pragma journal_mode=wal; create table t(k integer primary key, v text); insert into t(v) values('x'),('y')"
for who in 1 2; do
  (for i in $(seq 15); do sqlite3 -cmd '.timeout 20000' a.db "insert into t(v) values('p$who $i')"; done) &
done
wait
mkfifo /tmp/sql.$$; (sqlite3 -cmd '.timeout 20000' a.db < /tmp/sql.$$ > open.txt) & exec 9> /tmp/sql.$$; rm /tmp/sql.$$
echo "begin; select count(*) from t;" >&9; until [ -s open.txt ]; do :; done
sqlite3 -cmd '.timeout 20000' a.db "insert into t(v) values('w'); pragma wal_checkpoint(passive); select count(*) from t"
test -e a.db-wal && test -e a.db-shm
echo "select count(*) from t; commit; select count(*) from t; insert into t(v) values('z');" >&9; exec 9>&-; wait; cat open.txt
sqlite3 a.db "select count(*), count(distinct v) from t; pragma wal_checkpoint(truncate); pragma integrity_check"
sqlite3 a.db "pragma mmap_size=1000000; select sum(length(v)) from t; update t set v = v || v; select sum(length(v)) from t"
ls a.db*
"#;

#[test]
fn a_database_with_a_write_ahead_log_is_shared_by_processes() {
    let what = "a_database_with_a_write_ahead_log_is_shared_by_processes";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("remote-wal");
    // The pipe is on neither machine's disk: a remote one cannot be opened.
    let script = DATABASE.replace("/tmp/sql.$$", "/dev/shm/wf-sql.$$");
    let script = ["/bin/bash", "-c", script.leak()];
    let mut here = clean_command(script[0]);
    here.args(&script[1..]).current_dir(submit.local());
    let here = output("the database, here", here);
    assert_eq!((here.2, here.1.as_str()), (Some(0), ""), "{here:?}");
    let there = output("the database, elsewhere", submit.elsewhere(&words(&script)));
    assert_eq!(there, here);
    // What has come to be on the submit machine is whole.
    let mut check = clean_command("sqlite3");
    check.args(["a.db", "pragma integrity_check; select count(*) from t"]);
    check.current_dir(submit.home());
    let found = output("the check", check);
    assert_eq!(found, ("ok\n34\n".into(), String::new(), Some(0)));
}

/// A job is killed while it has a file mapped; what it had written back is there.
#[test]
fn what_was_synchronised_is_there_whatever_comes_after() {
    const WRITES: &str = r#"
import mmap, os, signal
fd = os.open('file', os.O_RDWR)
m = mmap.mmap(fd, 8192)
m[0:4] = b'SYNC'; m.flush(); m[10:14] = b'last'
print(os.pread(fd, 14, 0)); print('ready', flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"#;
    let what = "what_was_synchronised_is_there_whatever_comes_after";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("remote-flushed");
    let file = submit.home().join("file");
    fs::write(&file, [b'.'; 8192]).expect("writes");
    User::Ordinary.own(&file);
    let script = [
        "/bin/sh",
        "-c",
        "/usr/bin/python3 -c \"$0\"; : | cat",
        WRITES,
    ];
    let script: Vec<&OsStr> = script.iter().map(OsStr::new).collect();
    let mut run = Run::start("a job", submit.elsewhere(&script), User::Ordinary).expect("starts");
    assert!(run.wait(DEADLINE).expect("ends").success());
    // The shell has gone on, and so has what its child had written without asking.
    let found = fs::read(&file).expect("is there");
    assert_eq!(&found[..14], b"SYNC......last", "{}", run.describe());
}
