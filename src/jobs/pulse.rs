//! A sign of life for other machines that see the same directory of jobs: `jobs/NAME/pulse`, touched every minute by the job's starter.
//!
//! ```text
//! starter: touch ── a minute ── touch ── a minute ── touch            machine lost
//! another machine:                                        ── the lease, four minutes ──> the job can go on there
//! ```
//! # What callers may rely on
//! Times are those of the file system's clock, so that machines whose clocks differ agree. A starter that cannot touch the file ends its
//! copy before the lease is over (after [`HOLD`] of it), and so does one that finds another in its place.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

const NAME: &str = "pulse";
/// Without so many signs, a starter has lost its job to whoever wants it.
pub(crate) const LEASE: u32 = 4;
/// Without being able to give so many, it has to end its copy.
pub(crate) const HOLD: u32 = 3;

/// Gives the sign.
pub(crate) fn touch(dir: &Path) -> io::Result<()> {
    let file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(dir.join(NAME))?;
    // The time is the server's, whatever ours is.
    let now = nix::sys::time::TimeSpec::UTIME_NOW;
    nix::sys::stat::futimens(&file, &now, &now)?;
    Ok(())
}

/// When the last was given, seconds since 1970; 0 if there was none.
pub(crate) fn last(dir: &Path) -> u64 {
    let last = fs::metadata(dir.join(NAME)).and_then(|pulse| pulse.modified());
    let last = last.unwrap_or(SystemTime::UNIX_EPOCH);
    let since = last.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Removes that of a job that has not begun.
pub(crate) fn withdraw(dir: &Path) {
    let _ = fs::remove_file(dir.join(NAME));
}

/// How long until the starter of this directory has lost its job; none if it has.
pub(crate) fn left(dir: &Path, lease: Duration) -> Option<Duration> {
    let last = fs::metadata(dir.join(NAME)).and_then(|pulse| pulse.modified());
    let last = last.unwrap_or(SystemTime::UNIX_EPOCH);
    let since = now_in(dir).duration_since(last).unwrap_or_default();
    lease.checked_sub(since).filter(|left| !left.is_zero())
}

/// The file system's time.
fn now_in(dir: &Path) -> SystemTime {
    let probe = dir.join(format!(".time.{}", std::process::id()));
    let made = File::create(&probe).and_then(|file| file.metadata()?.modified());
    let _ = fs::remove_file(&probe);
    made.unwrap_or_else(|_| SystemTime::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_holds_for_a_while() {
        let dir = tempfile::tempdir().expect("dir");
        const MINUTE: Duration = Duration::from_secs(60);
        assert_eq!(left(dir.path(), MINUTE), None, "there was never one");
        touch(dir.path()).expect("touches");
        let left_now = left(dir.path(), MINUTE).expect("just now");
        assert!(left_now > MINUTE / 2 && left_now <= MINUTE);
        let pulse = File::options().write(true).open(dir.path().join(NAME));
        let before = SystemTime::now() - MINUTE - Duration::from_secs(1);
        pulse
            .and_then(|pulse| pulse.set_modified(before))
            .expect("is old");
        assert_eq!(left(dir.path(), MINUTE), None);
        let files = fs::read_dir(dir.path()).expect("lists").count();
        assert_eq!(files, 1, "nothing else is left");
    }
}
