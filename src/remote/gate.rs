//! What others do to a job's file table while it runs: a checkpoint holds its keeper off, and `kill` says that it was told to end.

use super::reserved::open_table;
use crate::report::{Exit, Explain, Failure, Outcome};
use c_shim::behind::Behind;
use c_shim::table::{Header, MAGIC, Table, VERSION};
use nix::fcntl::{FcntlArg, fcntl};
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Of the job of this process, if it has one: a signal that ends programs is about to be sent to it.
pub(crate) fn is_told_to_end(pid: i32) {
    // One without remote files has none.
    if let Ok(table) = table_of(pid) {
        let at = offset_of!(Table, told_to_end);
        let _ = table.write_all_at(&1u32.to_ne_bytes(), at as u64);
    }
}

fn table_of(pid: i32) -> io::Result<File> {
    let table = open_table(pid, true)?;
    let (mut magic, mut version) = ([0; 8], [0; 4]);
    table.read_exact_at(&mut magic, offset_of!(Header, magic) as u64)?;
    table.read_exact_at(&mut version, offset_of!(Header, version) as u64)?;
    let found = (u64::from_le_bytes(magic), u32::from_le_bytes(version));
    if found == (MAGIC, VERSION) {
        Ok(table)
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// What a checkpoint has while it is taken: no keeper is in the middle of something.
#[derive(Debug)]
pub(crate) struct Gate {
    table: File,
}

impl Gate {
    /// Of the job of this process.
    pub(crate) fn close(pid: i32) -> Outcome<Self> {
        const WITHIN: Duration = Duration::from_secs(10);
        let table = table_of(pid).context(|| format!("no file table of process {pid}"))?;
        let end = Instant::now() + WITHIN;
        while fcntl(
            &table,
            FcntlArg::F_OFD_SETLK(&super::keeper::whole(libc::F_WRLCK)),
        )
        .is_err()
        {
            if Instant::now() > end {
                let message = format!(
                    "what process {pid} has written is being sent to its shadow, which does not answer"
                );
                return Err(Failure::new(Exit::Lost, message));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        table.write_all_at(&1u32.to_ne_bytes(), offset_of!(Table, marked) as u64)?;
        Ok(Gate { table })
    }

    /// It does not leave after all.
    pub(crate) fn stay(&self) -> io::Result<()> {
        let at = offset_of!(Table, behind) + offset_of!(Behind, left);
        self.table.write_all_at(&0u32.to_ne_bytes(), at as u64)
    }

    /// The job goes on elsewhere, with what is not sent: here it is nobody's any more, and is about to be killed, or `is_killed`.
    pub(crate) fn leave(&self, is_killed: bool) -> io::Result<()> {
        let at = offset_of!(Table, behind) + offset_of!(Behind, left);
        let left = 1 + u32::from(is_killed);
        self.table.write_all_at(&left.to_ne_bytes(), at as u64)
    }
}
