//! `--min-free`, on both machines.

use super::pool::{DEADLINE, EMPTY, FULL, Pool, Work};
use crate::support::run::{clean_command, finish, poll};
use crate::support::user::User;
use nix::sys::statvfs::statvfs;
use std::path::Path;
use std::time::Duration;

fn free(path: &Path) -> u64 {
    let place = statvfs(path).expect("is known");
    place.blocks_available() * place.fragment_size()
}

/// Bytes that what is done here may take.
const ROOM: u64 = 32 << 20;

#[test]
fn the_other_machine_keeps_room_on_its_disk() {
    let what = "the_other_machine_keeps_room_on_its_disk";
    let work = Work {
        steps: 400,
        pause: Duration::from_millis(20),
    };
    let Some(pool) = Pool::with_homes(what, User::Ordinary, work, Some(512)) else {
        return;
    };
    let (here, there) = (free(&pool.home()), free(&pool.on(FULL, "/home")));
    if here < there + 4 * ROOM {
        let why = format!("{here} bytes are free here, too few for more than {there}");
        return crate::support::skip::note(what, &why);
    }
    // More than is there, and not more than is here: no copy is begun.
    let too_much = (there + ROOM).to_string();
    let mut job = pool.submit(&[FULL, EMPTY], &["--min-free", &too_much]);
    let ended = job.wait(DEADLINE).expect("ends");
    let said = job.err.text();
    assert!(!ended.success(), "{said}");
    assert!(said.contains("bytes are free in /home/.cache"), "{said}");
    assert_eq!(pool.steps(), 0);
    // One is begun, and then there is less: no image is made.
    let enough = there - 4 * ROOM;
    let options = [
        "--replace",
        "--every",
        "1h",
        "--min-free",
        &enough.to_string(),
    ];
    let mut job = pool.submit(&[FULL], &options);
    pool.until_on(FULL, 1);
    // The shell that begins it has a pipe that leads out.
    pool.after_steps(1);
    pool.told(&["checkpoint", "job"]);
    let filler = pool.on(FULL, "/home/filler");
    let mut shell = clean_command("/bin/sh");
    shell.args(["-c", "exec head -c \"$0\" /dev/zero >\"$1\""]);
    shell.arg((5 * ROOM).to_string()).arg(&filler);
    let (status, run) = finish("the filler", shell, User::Ordinary, DEADLINE).expect("ends");
    assert!(status.success(), "{}", run.describe());
    let (said, status) = pool.tell(&["checkpoint", "job"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("on the job's machine: "), "{said}");
    let refused = poll(DEADLINE, || {
        pool.status()["CheckpointRefused"]
            .as_str()
            .map(str::to_owned)
    });
    let refused = refused.expect("is known");
    assert!(
        refused.contains("bytes are free in /home/.cache"),
        "{refused}"
    );
    let ended = job.wait(DEADLINE).expect("ends");
    assert_eq!(
        ended.code(),
        Some(0),
        "{}\n{}",
        job.describe(),
        pool.story()
    );
    pool.check()
        .unwrap_or_else(|why| panic!("{why}\n{}", pool.story()));
    pool.remove();
}
