//! Which copy of the job its starter has begun last: `jobs/NAME/incarnation`.
//!
//! A copy that finds itself fenced, because the job goes on elsewhere, ends by SIGKILL, as one that has met with an accident. Its starter goes on with the job only in
//! the place of that copy, so it finds itself fenced, too (docs/adr/0033).

use crate::raw::shown_path;
use crate::report::tell;
use std::fs;
use std::io;
use std::path::Path;

const NAME: &str = "incarnation";

/// A copy of this number has begun.
pub(crate) fn note_incarnation(dir: &Path, incarnation: u64) {
    let path = dir.join(NAME);
    let new = dir.join("incarnation.new");
    let written = fs::write(&new, incarnation.to_string()).and_then(|()| fs::rename(&new, &path));
    if let Err(error) = written {
        tell(&format!("{}: {error}", shown_path(&path)));
        // None is better than another one.
        let _ = fs::remove_file(&path);
    }
}

/// The number of the last; none, if it is not known.
pub(crate) fn last_incarnation(dir: &Path) -> Option<u64> {
    let read = || -> io::Result<String> { fs::read_to_string(dir.join(NAME)) };
    let number = read().ok()?.trim().parse().ok()?;
    Some(number).filter(|number| *number != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_copy_is_known() {
        let dir = tempfile::tempdir().expect("a folder");
        assert_eq!(last_incarnation(dir.path()), None);
        note_incarnation(dir.path(), 12);
        assert_eq!(last_incarnation(dir.path()), Some(12));
        // A shadow that does not count them.
        note_incarnation(dir.path(), 0);
        assert_eq!(last_incarnation(dir.path()), None);
        fs::write(dir.path().join(NAME), "x").expect("writes");
        assert_eq!(last_incarnation(dir.path()), None);
    }
}
