//! Deleted files and memfds that are mostly holes.

use super::support::promise::{passed, with_job};
use super::support::python::python;
use super::support::scenario::{Guest, Restart};
use super::{refused, text};
use std::fs;
use std::time::Duration;

/// A tebibyte of file, with three pages of contents: a deleted file whose descriptor is open, one whose mapping is all that is left of
/// it (`closed`), and a memfd.
fn vast(closed: &str) -> Guest {
    python(
        "vast",
        &format!(
            "import mmap\n\
             SIZE, PLACES = 1 << 40, (0, 77 << 30, (1 << 40) - 4096)\n\
             fds = [os.open('open', os.O_RDWR | os.O_CREAT), os.memfd_create('memory')]\n\
             closed = {closed} and os.open('closed', os.O_RDWR | os.O_CREAT)\n\
             for fd in fds + [closed] * {closed}:\n\
             \x20   os.ftruncate(fd, SIZE)\n\
             \x20   for at in PLACES: os.pwrite(fd, b'contents', at)\n\
             m = {closed} and mmap.mmap(closed, SIZE)\n\
             # The mapping has a descriptor of its own.\n\
             for n in os.listdir('/proc/self/fd'):\n\
             \x20   if m and os.path.realpath('/proc/self/fd/' + n).endswith('/closed'): os.close(int(n))\n\
             if m: os.unlink('closed')\n\
             os.unlink('open')\n\
             ready()\n\
             for fd in fds:\n\
             \x20   assert os.fstat(fd).st_size == SIZE\n\
             \x20   assert os.fstat(fd).st_blocks < 1000, os.fstat(fd).st_blocks\n\
             \x20   for at in PLACES: assert os.pread(fd, 9, at)[:8] == b'contents', at\n\
             \x20   assert os.pread(fd, 8, 5 << 30) == bytes(8)\n\
             for at in PLACES: assert not m or m[at:at + 8] == b'contents', at\n\
             print('PASS')\n"
        ),
    )
}

#[test]
fn holes_of_deleted_files_cost_nothing() {
    with_job(&vast("0"), |job| {
        passed(job.start()?)?;
        let began = std::time::Instant::now();
        let image = job.checkpoint("kill")?;
        job.wait_killed()?;
        job.restart(&image, Restart::Command)?;
        let (len, took) = (text(fs::metadata(&image))?.len(), began.elapsed());
        if len > 64 << 20 || took > Duration::from_secs(20) {
            return Err(format!("{took:?} and {len} bytes for three pages of each"));
        }
        job.let_go();
        passed(job.wait_pass()?)
    });
}

#[test]
fn a_deleted_file_of_which_only_a_mapping_is_left_is_not_read_for_ever() {
    // An ordinary user may not open it by its mapping, and nothing else tells where it has holes.
    with_job(&vast("1"), |job| {
        passed(job.start()?)?;
        refused(
            job,
            &[
                "mapping ",
                "1024 GiB of a deleted file to which no descriptor leads",
            ],
        )
    });
}
