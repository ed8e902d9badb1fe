//! A program that fills its undo journal: it overwrites a file that was there, piece by piece.

use super::user::User;
use std::fs;
use std::path::Path;

/// Bytes of the file.
const SIZE: usize = 32 << 20;
/// How much of a journal it may have, which is less.
pub const MOST: &str = "16M";

/// It says how it has ended, and ends well if nothing was refused.
pub const PROGRAM: &str = "
import os, time
piece = 128 << 10
fd = os.open('filled', os.O_RDWR)
for at in range(0, os.fstat(fd).st_size, piece):
    os.pwrite(fd, b'y' * piece, at)
    os.fsync(fd)
    time.sleep(0.04)
print('filled', flush=True)
";

/// The file as it is before.
pub fn prepare(dir: &Path, user: User) {
    let path = dir.join("filled");
    fs::write(&path, vec![b'x'; SIZE]).expect("writes");
    user.own(&path);
}

/// Whether all of it has been overwritten.
pub fn is_filled(dir: &Path) -> bool {
    fs::read(dir.join("filled")).is_ok_and(|found| found == vec![b'y'; SIZE])
}
