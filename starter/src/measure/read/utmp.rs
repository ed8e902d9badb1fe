//! The file of who is logged in where, utmp(5): records of 384 bytes on this architecture.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, PathBuf};

const RECORD_LEN: usize = 384;
const USER_PROCESS: i16 = 7;
/// Where the terminal's name is in a record.
const LINE: std::ops::Range<usize> = 8..40;

/// The terminals of users who are logged in, beneath /dev. What lies elsewhere (the `:0` of a display is a name without a device) is looked for and not found.
pub(in crate::measure) fn users_terminals(bytes: &[u8]) -> Vec<PathBuf> {
    let (records, _) = bytes.as_chunks::<RECORD_LEN>();
    let users = records
        .iter()
        .filter(|record| i16::from_le_bytes([record[0], record[1]]) == USER_PROCESS);
    let lines = users.map(|record| {
        let line = &record[LINE];
        line.split(|byte| *byte == 0).next().unwrap_or_default()
    });
    let named = lines.filter(|line| !line.is_empty() && !line.starts_with(b"unix:"));
    let paths = named.map(|line| PathBuf::from(OsString::from_vec(line.to_vec())));
    let beneath = |path: &PathBuf| path.components().all(|c| matches!(c, Component::Normal(_)));
    paths
        .filter(beneath)
        .map(|path| PathBuf::from("/dev").join(path))
        .collect()
}
