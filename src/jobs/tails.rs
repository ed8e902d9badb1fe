//! How what is cut off a file is called that goes back: it stays beside it (`FILE.wayfarer-tail`, loader::roll_back), and is the user's.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// How the loader calls them.
const ENDING: &str = ".wayfarer-tail";
/// So many of one file.
const MOST: u32 = 1000;

/// The first name of a tail of this file that is free.
pub(crate) fn next_of(path: &Path) -> Option<PathBuf> {
    let name = |number: u32| {
        let mut name = OsString::from(path);
        name.push(ENDING);
        if number > 0 {
            name.push(format!(".{number:03}"));
        }
        PathBuf::from(name)
    };
    (0..MOST)
        .map(name)
        .find(|name| name.symlink_metadata().is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_name_is_the_first_that_is_free() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("log");
        let next = || next_of(&path).expect("a name");
        assert_eq!(next(), dir.path().join("log.wayfarer-tail"));
        std::fs::write(next(), "").expect("writes");
        assert_eq!(next(), dir.path().join("log.wayfarer-tail.001"));
        std::fs::write(next(), "").expect("writes");
        assert_eq!(next(), dir.path().join("log.wayfarer-tail.002"));
    }
}
