//! `/proc`, read: pure parsers of its texts, and readers that name the file in every error.
//!
//! # What callers may rely on
//! Parsers take bytes and return records or a [`ParseError`]; no text, however strange, makes
//! them panic. Fields that newer kernels added are `Option`s. Ids are those of the pid namespace
//! of the mounted `/proc`, unless a field's name says otherwise.
//!
//! # What it does not do
//! It does not judge: what is refused is decided in `capture`.

mod cgroup;
mod fdinfo;
mod idmap;
mod limits;
mod living;
mod maps;
mod mounts;
mod stat;
mod status;
mod text;
mod timers;

pub use cgroup::{MemoryRoom, memory_room};
pub use fdinfo::{
    EpollLine, EventFdInfo, FdInfo, InotifyLine, LockKind, LockLine, TimerFdInfo, parse_fdinfo,
};
pub use idmap::{IdMap, TimeOffsets, parse_id_map, parse_time_offsets};
pub use limits::parse_limits;
pub use living::{by_living_thread, has_ended, living_thread};
use maps::SmapsReader;
#[cfg(test)]
pub(crate) use maps::parse_smaps;
pub use maps::{MapsLine, SmapsEntry, parse_maps};
pub use mounts::{MountLine, parse_mountinfo};
pub use stat::{Stat, parse_stat};
pub use status::{Status, parse_status};
pub use text::ParseError;
pub use timers::{TimerLine, TimerNotify, parse_timers};

use crate::shown::shown;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why something in `/proc` could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcfsError {
    /// The kernel refused.
    #[error("cannot read {path}", path = shown(.path))]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The text is not what it should be.
    #[error("{path} makes no sense", path = shown(.path))]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// Where.
        #[source]
        source: ParseError,
    },
}

impl ProcfsError {
    /// Whether the process or thread has ended.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        match self {
            ProcfsError::Read { source, .. } => {
                matches!(source.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
            }
            ProcfsError::Malformed { .. } => false,
        }
    }

    /// Whether it is a link to a path that the kernel does not tell, because it is longer than PATH_MAX.
    #[must_use]
    pub fn is_too_long(&self) -> bool {
        match self {
            ProcfsError::Read { source, .. } => source.raw_os_error() == Some(libc::ENAMETOOLONG),
            ProcfsError::Malformed { .. } => false,
        }
    }
}

/// The directory of a process (`/proc/PID`), of one of its threads (`/proc/PID/task/TID`) or of
/// the reader itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcDir {
    path: PathBuf,
}

impl ProcDir {
    /// Of process `pid`.
    #[must_use]
    pub fn of(pid: i32) -> Self {
        ProcDir {
            path: PathBuf::from(format!("/proc/{pid}")),
        }
    }

    /// Of the reader itself.
    #[must_use]
    pub fn of_self() -> Self {
        ProcDir {
            path: PathBuf::from("/proc/self"),
        }
    }

    /// Of thread `tid` of this process.
    #[must_use]
    pub fn thread(&self, tid: i32) -> Self {
        ProcDir {
            path: self.path.join(format!("task/{tid}")),
        }
    }

    /// The path of one of its files.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// All bytes of one of its files.
    ///
    /// # Errors
    /// [`ProcfsError::Read`].
    pub fn bytes(&self, name: &str) -> Result<Vec<u8>, ProcfsError> {
        let path = self.file(name);
        let read = File::open(&path).and_then(|mut file| whole(&mut file));
        read.map_err(|source| ProcfsError::Read { path, source })
    }

    /// One of its files, parsed.
    ///
    /// # Errors
    /// Of reading, or what `parse` did not understand.
    pub fn parsed<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&[u8]) -> Result<T, ParseError>,
    ) -> Result<T, ProcfsError> {
        parse(&self.bytes(name)?).map_err(|source| ProcfsError::Malformed {
            path: self.file(name),
            source,
        })
    }

    /// Its mappings as `smaps` describes them, in order.
    ///
    /// # Errors
    /// As [`ProcDir::each_of_smaps`].
    pub fn smaps(&self) -> Result<Vec<SmapsEntry>, ProcfsError> {
        let mut entries = vec![];
        self.each_of_smaps(|entry| entries.push(entry))?;
        Ok(entries)
    }

    /// Shows its mappings, as `smaps` describes them, to `each`, in order. The text is not kept: it is 700 bytes for each.
    ///
    /// # Errors
    /// Of reading, the first line that makes no sense, or an attribute before the first mapping.
    pub fn each_of_smaps(&self, mut each: impl FnMut(SmapsEntry)) -> Result<(), ProcfsError> {
        const AT_ONCE: usize = 256 * 1024;
        let path = self.file("smaps");
        let failed = |source| ProcfsError::Read {
            path: path.clone(),
            source,
        };
        let file = File::open(&path).map_err(failed)?;
        let mut text = BufReader::with_capacity(AT_ONCE, file);
        let (mut reader, mut line) = (SmapsReader::default(), vec![]);
        while text.read_until(b'\n', &mut line).map_err(failed)? != 0 {
            let read = reader.line(&line);
            let complete = read.map_err(|source| ProcfsError::Malformed {
                path: path.clone(),
                source,
            })?;
            complete.into_iter().for_each(&mut each);
            line.clear();
        }
        reader.last().into_iter().for_each(each);
        Ok(())
    }

    /// The target of one of its links.
    ///
    /// # Errors
    /// [`ProcfsError::Read`].
    pub fn link(&self, name: &str) -> Result<Vec<u8>, ProcfsError> {
        let path = self.file(name);
        match std::fs::read_link(&path) {
            Ok(target) => Ok(OsString::from(target).into_vec()),
            Err(source) => Err(ProcfsError::Read { path, source }),
        }
    }

    /// The numbers among the names in one of its folders (`fd`, `task`), in order.
    ///
    /// # Errors
    /// [`ProcfsError::Read`].
    pub fn numbers(&self, name: &str) -> Result<Vec<i32>, ProcfsError> {
        let path = self.file(name);
        let wrong = |source| ProcfsError::Read {
            path: path.clone(),
            source,
        };
        let mut numbers = vec![];
        for entry in std::fs::read_dir(&path).map_err(wrong)? {
            let name = entry.map_err(wrong)?.file_name();
            if let Some(number) = name.to_str().and_then(|name| name.parse().ok()) {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The ids of its threads, in order. One that ends while they are listed can hide others (fs/proc/base.c, `proc_task_readdir` and
    /// `next_tid`): they are listed until it is the same twice, and as many as there are. Threads that come and go all the time are
    /// listed as well as can be.
    ///
    /// # Errors
    /// [`ProcfsError::Read`].
    pub fn threads(&self) -> Result<Vec<i32>, ProcfsError> {
        let mut listed = self.numbers("task")?;
        for _ in 1..MOST_READINGS {
            let before = std::mem::replace(&mut listed, self.numbers("task")?);
            if listed == before && self.thread_count()? == listed.len() as u64 {
                break;
            }
        }
        Ok(listed)
    }

    /// How many threads it has, those that end among them: `task` has two links, and one for each (fs/proc/base.c, `proc_task_getattr`).
    ///
    /// # Errors
    /// [`ProcfsError::Read`].
    pub fn thread_count(&self) -> Result<u64, ProcfsError> {
        let path = self.file("task");
        match std::fs::metadata(&path) {
            Ok(found) => Ok(found.nlink().saturating_sub(2)),
            Err(source) => Err(ProcfsError::Read { path, source }),
        }
    }

    /// Pids of the children of all its threads, of each the oldest first, as the mounted `/proc` counts them. A thread that ends leaves its
    /// children to another: they are looked for again if any has.
    ///
    /// # Errors
    /// [`ProcfsError::Read`] if the process is gone; threads that end meanwhile are passed over.
    pub fn children(&self) -> Result<Vec<i32>, ProcfsError> {
        let mut children = vec![];
        for _ in 0..MOST_READINGS {
            let threads = self.threads()?;
            children = self.children_of(&threads)?;
            if self.numbers("task")? == threads {
                break;
            }
        }
        Ok(children)
    }

    fn children_of(&self, threads: &[i32]) -> Result<Vec<i32>, ProcfsError> {
        let mut children = vec![];
        for tid in threads {
            let thread = self.thread(*tid);
            match thread.children_of_thread() {
                Ok(found) => children.extend(found),
                // A kernel without CONFIG_PROC_CHILDREN has no such file.
                Err(error) if error.is_gone() && thread.file("stat").exists() => {
                    return self.children_by_search();
                }
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(children)
    }

    /// Those of one thread. One that is reaped while they are listed can hide the next (fs/proc/array.c, `get_children_pid`): they are
    /// listed until it is the same twice.
    fn children_of_thread(&self) -> Result<Vec<i32>, ProcfsError> {
        let list = || self.parsed("children", text::parse_numbers);
        let mut listed = list()?;
        for _ in 1..MOST_READINGS {
            if listed.is_empty() {
                break;
            }
            // Who ends behind that has told what it had.
            let Ok(now) = list() else { break };
            let before = std::mem::replace(&mut listed, now);
            if listed == before {
                break;
            }
        }
        Ok(listed)
    }

    /// Children of all threads, by looking at every process there is.
    fn children_by_search(&self) -> Result<Vec<i32>, ProcfsError> {
        let own = self.parsed("status", parse_status)?.tgid;
        let all = ProcDir {
            path: PathBuf::from("/proc"),
        };
        let mut children = vec![];
        for pid in all.numbers("")? {
            match ProcDir::of(pid).parsed("stat", parse_stat) {
                Ok(stat) if stat.ppid == own => children.push((stat.start_ticks, pid)),
                Ok(_) => {}
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        children.sort_unstable();
        Ok(children.into_iter().map(|(_, pid)| pid).collect())
    }

    /// The single number in one of its files (`oom_score_adj`, `timerslack_ns`).
    ///
    /// # Errors
    /// Of reading, or no number there.
    pub fn number(&self, name: &str) -> Result<i64, ProcfsError> {
        self.parsed(name, text::parse_number)
    }

    /// The single hexadecimal number in one of its files (`personality`, `coredump_filter`).
    ///
    /// # Errors
    /// Of reading, or no number there.
    pub fn hex(&self, name: &str) -> Result<u64, ProcfsError> {
        self.parsed(name, text::parse_hex)
    }

    /// Where this directory is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// All that is left in a file of `/proc`, of which nobody knows how long it is: most fit into a page, and end with the second read.
fn whole(file: &mut File) -> io::Result<Vec<u8>> {
    const PAGE: usize = 4096;
    const MOST_MORE: usize = 1 << 20;
    let (mut bytes, mut len) = (vec![0; PAGE], 0);
    loop {
        match file.read(&mut bytes[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if len == bytes.len() {
            bytes.resize(len + len.min(MOST_MORE), 0);
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// So often a list is read that is never the same twice: what it says then is good enough for what changes all the time.
const MOST_READINGS: u32 = 16;

#[cfg(test)]
mod soup {
    //! Every parser against bytes that nobody promised anything about.
    use super::*;
    use proptest::prelude::*;

    fn all(bytes: &[u8]) {
        let _ = parse_maps(bytes);
        let _ = parse_smaps(bytes);
        let _ = parse_status(bytes);
        let _ = parse_stat(bytes);
        let _ = parse_fdinfo(bytes);
        let _ = parse_timers(bytes);
        let _ = parse_limits(bytes);
        let _ = parse_id_map(bytes);
        let _ = parse_time_offsets(bytes);
        let _ = parse_mountinfo(bytes);
        let _ = text::parse_numbers(bytes);
        let _ = text::parse_number(bytes);
        let _ = text::parse_hex(bytes);
    }

    const WORDS: [&str; 44] = [
        "VmFlags:",
        "rd",
        "-",
        ":",
        "\n",
        "\t",
        " ",
        "(",
        ")",
        "0",
        "18446744073709551616",
        "ffff",
        "7f00-7f10",
        "rw-p",
        "fe:00",
        "[heap]",
        "Uid:",
        "Gid:",
        "NSpid:",
        "State:",
        "R",
        "tfd:",
        "events:",
        "data:",
        "lock:",
        "FLOCK",
        "ADVISORY",
        "WRITE",
        "EOF",
        "inotify",
        "wd:1",
        "ID:",
        "signal:",
        "notify:",
        "ClockID:",
        "it_value:",
        "Max",
        "cpu time",
        "unlimited",
        "monotonic",
        "\\012",
        "eventfd-count:",
        "Name:",
        "\u{1F980}",
    ];

    proptest! {
        #[test]
        fn bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            all(&bytes);
        }

        #[test]
        fn words_never_panic(words in proptest::collection::vec(0..WORDS.len(), 0..60)) {
            let text: Vec<&str> = words.into_iter().map(|word| WORDS[word]).collect();
            all(text.concat().as_bytes());
            all(text.join(" ").as_bytes());
            all(text.join("\n").as_bytes());
        }

        #[test]
        fn damaged_lines_never_panic(
            which in 0..6usize,
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
            len in any::<prop::sample::Index>(),
        ) {
            let file = ["smaps", "status", "stat", "limits", "mountinfo", "fdinfo/0"][which];
            let mut bytes = ProcDir::of_self().bytes(file).expect("own file");
            let index = at.index(bytes.len());
            bytes[index] = byte;
            all(&bytes);
            bytes.truncate(len.index(bytes.len()));
            all(&bytes);
        }
    }

    #[test]
    fn ones_own_files_parse() {
        let own = ProcDir::of_self();
        let maps = own.parsed("maps", parse_maps).expect("maps");
        assert!(maps.iter().any(|line| line.name == b"[stack]"));
        let smaps = own.smaps().expect("smaps");
        assert!(smaps.iter().all(|entry| !entry.vm_flags.is_empty()));
        let status = own.parsed("status", parse_status).expect("status");
        assert_eq!(status.pid, i32::try_from(std::process::id()).expect("pid"));
        let stat = own.parsed("stat", parse_stat).expect("stat");
        assert_eq!(stat.pid, status.pid);
        assert_eq!(
            own.parsed("limits", parse_limits).expect("limits").len(),
            16
        );
        assert!(
            !own.parsed("mountinfo", parse_mountinfo)
                .expect("mounts")
                .is_empty()
        );
        assert!(own.numbers("fd").expect("fds").contains(&0));
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep");
        let pid = child.id() as i32;
        let found = (
            own.children().expect("children"),
            own.children_by_search().expect("all"),
        );
        child.kill().expect("kill");
        child.wait().expect("wait");
        assert!(
            found.0.contains(&pid) && found.1.contains(&pid),
            "{pid} in {found:?}"
        );
    }
}
