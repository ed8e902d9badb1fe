//! Bytes that are gathered before they go into an image: few in memory, more in a file without a name beside it, so that wayfarer's own memory
//! does not grow with them. Where a file takes no more, they are in a memory file.

use crate::image::ByteSource;
use crate::sys::memfd;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes that are in memory before they are written; no more than that never see a disk, which could be waited for.
const GATHERED: usize = 1 << 20;

/// Bytes, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Spool {
    len: u64,
    /// The last of them, which are not in the file yet.
    last: Vec<u8>,
    file: Option<File>,
    /// Where the file is made; where temporary files are if there is none.
    folder: Option<PathBuf>,
}

impl Spool {
    /// None yet. More than few will be in this folder, the image's: one for temporary files is in memory on many machines.
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Spool {
            folder: Some(folder.to_owned()),
            ..Spool::default()
        }
    }

    /// How many they are.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Adds some, and tells where they begin.
    ///
    /// # Errors
    /// There is no room for them.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<u64> {
        let at = self.len;
        self.last.extend_from_slice(bytes);
        self.len += bytes.len() as u64;
        if self.last.len() > GATHERED {
            self.write_last()?;
        }
        Ok(at)
    }

    /// A file with all of them; none if there are none.
    ///
    /// # Errors
    /// There is no room for them.
    pub(crate) fn into_file(mut self) -> io::Result<Option<File>> {
        if self.len == 0 {
            return Ok(None);
        }
        if self.file.is_none() {
            self.file = memfd::create("wayfarer").ok();
        }
        self.write_last()?;
        Ok(self.file)
    }

    /// How many are in the file.
    fn written(&self) -> u64 {
        self.len - self.last.len() as u64
    }

    fn write_last(&mut self) -> io::Result<()> {
        let at = self.written();
        if self.file.is_none() {
            let made = match &self.folder {
                Some(folder) => tempfile::tempfile_in(folder),
                None => tempfile::tempfile(),
            };
            self.file = made.ok();
        }
        let file = self.file.as_ref();
        if file.is_none_or(|file| file.write_all_at(&self.last, at).is_err()) {
            let memory = memfd::create("wayfarer")?;
            let mut copied = 0;
            let mut part = vec![0; GATHERED];
            while let Some(file) = file.filter(|_| copied < at) {
                let part = &mut part[..(at - copied).min(GATHERED as u64) as usize];
                file.read_exact_at(part, copied)?;
                memory.write_all_at(part, copied)?;
                copied += part.len() as u64;
            }
            memory.write_all_at(&self.last, at)?;
            self.file = Some(memory);
        }
        self.last.clear();
        Ok(())
    }
}

impl ByteSource for Spool {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let beyond = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let written = self.written();
        let in_file = written.saturating_sub(at).min(buf.len() as u64) as usize;
        let (first, rest) = buf.split_at_mut(in_file);
        if let Some(file) = self.file.as_ref().filter(|_| !first.is_empty()) {
            file.read_exact_at(first, at)?;
        }
        if rest.is_empty() {
            return Ok(());
        }
        let from = usize::try_from(at.max(written) - written).map_err(|_| beyond())?;
        let found = self.last.get(from..from + rest.len());
        rest.copy_from_slice(found.ok_or_else(beyond)?);
        Ok(())
    }
}

impl Write for Spool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.append(bytes).map(|_| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    fn part(index: u8) -> Vec<u8> {
        vec![index; 300_000 + usize::from(index)]
    }

    /// Appends these parts, and tells where each is.
    fn append(spool: &mut Spool, parts: std::ops::Range<u8>) -> Vec<(u8, u64)> {
        let place = |index| (index, spool.append(&part(index)).expect("is kept"));
        parts.map(place).collect()
    }

    fn assert_has(source: &dyn ByteSource, parts: &[(u8, u64)]) {
        for (index, at) in parts {
            let mut found = vec![0; part(*index).len()];
            source.read_at(*at, &mut found).expect("reads");
            assert!(found == part(*index), "part {index}");
        }
    }

    #[test]
    fn few_and_many_are_all_there_one_behind_the_other() {
        for count in [1, 3, 4, 12] {
            let mut spool = Spool::default();
            let parts = append(&mut spool, 0..count);
            assert!(spool.last.len() <= GATHERED);
            assert_has(&spool, &parts);
            // Also over the end of what is in the file.
            let mut all = vec![0; spool.len() as usize];
            spool.read_at(0, &mut all).expect("reads");
            assert!(all == (0..count).flat_map(part).collect::<Vec<_>>());
            spool.read_at(1, &mut all).expect_err("not so many");
            spool
                .read_at(1 << 40, &mut [0])
                .expect_err("nothing is there");
            let len = spool.len();
            let file = spool.into_file().expect("is kept").expect("some");
            assert_eq!(file.metadata().expect("is there").len(), len);
            assert_has(&file, &parts);
        }
        assert!(Spool::default().into_file().expect("nothing").is_none());
    }

    #[test]
    fn many_are_on_the_file_system_of_the_image() {
        use std::os::unix::fs::MetadataExt;
        let device = |file: &File| file.metadata().expect("is there").dev();
        // One in memory, and one that is not.
        for folder in ["/dev/shm", env!("CARGO_MANIFEST_DIR")] {
            let own = File::open(folder).expect("opens");
            let mut spool = Spool::in_folder(Path::new(folder));
            append(&mut spool, 0..4);
            let file = spool.into_file().expect("is kept").expect("some");
            assert_eq!(device(&file), device(&own), "{folder}");
        }
        // No file can be made there.
        let mut spool = Spool::in_folder(Path::new("/proc"));
        let parts = append(&mut spool, 0..4);
        let file = spool.into_file().expect("is kept").expect("some");
        assert_has(&file, &parts);
    }

    #[test]
    fn where_a_file_takes_no_more_they_are_in_memory() {
        let mut spool = Spool::default();
        let mut parts = append(&mut spool, 0..4);
        // Twice: the one in memory, too.
        for next in [4..8, 8..12] {
            // It can be read only, from now on, and somebody has read in it.
            let file = spool.file.take().expect("more than is gathered");
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            let mut read_only = File::open(path).expect("opens");
            std::io::copy(&mut read_only, &mut std::io::sink()).expect("reads");
            spool.file = Some(read_only);
            parts.extend(append(&mut spool, next));
            assert_has(&spool, &parts);
        }
        let file = spool.into_file().expect("is kept").expect("some");
        assert_has(&file, &parts);
    }
}
