//! What a running job has done with its remote files, as it counts that itself ([`c_shim::usage`]).

use super::reserved::open_table;
use crate::report::{Explain, Outcome};
use c_shim::table::{Header, MAGIC, Table, VERSION};
use c_shim::usage::{Count, Usage, Used};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;

/// Numbers of the job that a process belongs to; none if it has its files here.
///
/// # Errors
/// Its table cannot be read, or is not of this version.
pub(crate) fn used_by(pid: i32) -> Outcome<Option<Used>> {
    match table_of(pid)? {
        Some(table) => Ok(read(&table).context(|| described(pid))?),
        None => Ok(None),
    }
}

/// What a copy of a job does with its files, also when its processes are gone.
#[derive(Debug)]
pub(crate) struct Tally {
    table: File,
    /// As the copy began.
    before: [u64; 2],
}

impl Tally {
    /// Of a copy that has just begun to run; one that `goes_on` from an image has in its numbers what was done before that. None: it has its files here.
    ///
    /// # Errors
    /// As [`used_by`].
    pub(crate) fn of(pid: i32, goes_on: bool) -> Outcome<Option<Self>> {
        let Some(table) = table_of(pid)? else {
            return Ok(None);
        };
        let mut tally = Tally {
            table,
            before: [0; 2],
        };
        if goes_on {
            let (read, written) = tally.bytes().unwrap_or_default();
            tally.before = [read, written];
        }
        Ok(Some(tally))
    }

    /// Bytes that it has read and written since then; none: they cannot be read.
    pub(crate) fn bytes(&self) -> Option<(u64, u64)> {
        let all = read(&self.table).ok()??.all();
        let [read, written] = self.before;
        Some((
            all.get(Count::ReadBytes).saturating_sub(read),
            all.get(Count::WrittenBytes).saturating_sub(written),
        ))
    }
}

fn described(pid: i32) -> String {
    format!("the file table of process {pid}")
}

fn read(table: &File) -> io::Result<Option<Used>> {
    let mut bytes = vec![0; size_of::<Usage>()];
    table.read_exact_at(&mut bytes, offset_of!(Table, usage) as u64)?;
    Ok(Used::read(&bytes))
}

fn table_of(pid: i32) -> Outcome<Option<File>> {
    let table = match open_table(pid, false) {
        Ok(table) => table,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        // Not ours to look into (also our own process, when its first thread has ended): who stops it says why.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(None),
        Err(error) => return Err(error).context(|| described(pid)),
    };
    let describe = || described(pid);
    let mut magic = [0; 8];
    let begun = table.read_exact_at(&mut magic, 0);
    if begun.is_err() || u64::from_le_bytes(magic) != MAGIC {
        // Somebody else's descriptor.
        return Ok(None);
    }
    let mut version = [0; 4];
    table
        .read_exact_at(&mut version, offset_of!(Header, version) as u64)
        .context(describe)?;
    let found = u32::from_le_bytes(version);
    if found != VERSION {
        let message = format!("version {found}, expected {VERSION}");
        return Err(io::Error::new(ErrorKind::InvalidData, message)).context(describe);
    }
    Ok(Some(table))
}
