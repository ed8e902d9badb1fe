//! The machine that this runs on: the one place of the room that reads files and asks the kernel.

use super::read::{control_group, input_devices};
use super::source::{Document, LocalTime, Source, System};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use rustix::fs::{Mode, OFlags, major};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The largest file that is read: `/proc/interrupts` of a machine with thousands of processors has some MiB.
const MOST_BYTES: u64 = 64 << 20;
/// The major number of /dev/null and its like.
const MEMORY_DEVICES: u32 = 1;
const INPUT_LIST: &str = "/proc/bus/input/devices";
/// Where who is logged in may be written; a system without it keeps no such file.
const LOGINS: [&str; 2] = ["/run/utmp", "/var/run/utmp"];

/// This machine.
#[derive(Debug)]
pub struct Here {
    zone: TimeZone,
    /// Input devices that this user may read. Nothing of what is read from them is looked at.
    inputs: Vec<File>,
}

impl Here {
    /// This machine, with those of its keyboards and mice that this user may read.
    #[must_use]
    pub fn new() -> Self {
        let listed = input_devices(&fs::read(INPUT_LIST).unwrap_or_default());
        let paths = listed.iter().map(|name| Path::new("/dev/input").join(name));
        Here::with_inputs(paths)
    }

    /// This machine, with these input devices.
    #[must_use]
    pub fn with_inputs(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = |path: PathBuf| rustix::fs::open(path, flags, Mode::empty()).ok();
        Here {
            zone: TimeZone::system(),
            inputs: paths.into_iter().filter_map(open).map(File::from).collect(),
        }
    }
}

impl Default for Here {
    fn default() -> Self {
        Here::new()
    }
}

impl Source for Here {
    fn read(&self, document: Document) -> io::Result<Vec<u8>> {
        if document == Document::Logins {
            let found = LOGINS.iter().find_map(|path| limited(path.as_ref()).ok());
            return found.ok_or_else(|| io::ErrorKind::NotFound.into());
        }
        limited(document.path())
    }

    fn process(&self, pid: i32) -> io::Result<Vec<u8>> {
        let own = limited(format!("/proc/{pid}/stat").as_ref())?;
        Ok(match is_of_zombie(&own) {
            // Its first thread has ended, and has no memory any more: others may go on.
            true => of_others(pid).unwrap_or(own),
            false => own,
        })
    }

    fn now(&self) -> i64 {
        Timestamp::now().as_second()
    }

    fn local_time(&self, at: i64) -> LocalTime {
        let moment = Timestamp::from_second(at).unwrap_or_default();
        let shown = self.zone.to_datetime(moment);
        LocalTime {
            day: i64::from(shown.weekday().to_sunday_zero_offset()),
            minute: i64::from(shown.hour()) * 60 + i64::from(shown.minute()),
        }
    }

    fn system(&self) -> System {
        let uname = rustix::system::uname();
        let text = |of: &std::ffi::CStr| of.to_string_lossy().into_owned();
        System {
            sysname: text(uname.sysname()),
            nodename: text(uname.nodename()),
            release: text(uname.release()),
            version: text(uname.version()),
            machine: text(uname.machine()),
        }
    }

    fn terminals(&self) -> Vec<PathBuf> {
        let beneath = |folder: &str| {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let is_named = |path: &PathBuf, begins: &[&str]| {
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            begins
                .iter()
                .any(|begin| name.starts_with(begin.as_bytes()))
        };
        let mut found = beneath("/dev");
        found.retain(|path| is_named(path, &["tty", "pty"]));
        let mut pseudo = beneath("/dev/pts");
        // What is read from ptmx is what programs print, not what people type.
        pseudo.retain(|path| !is_named(path, &["ptmx"]));
        found.append(&mut pseudo);
        found
    }

    fn used_at(&self, device: &Path) -> Option<i64> {
        let found = fs::metadata(device).ok()?;
        let is_memory = major(found.rdev()) == MEMORY_DEVICES;
        let is_device = found.file_type().is_char_device();
        (is_device && !is_memory).then(|| found.atime())
    }

    fn touched_at(&self, file: &Path) -> Option<i64> {
        fs::metadata(file).ok().map(|found| found.mtime())
    }

    fn had_input(&self) -> Option<bool> {
        if self.inputs.is_empty() {
            return None;
        }
        let had = |mut device: &File| {
            let mut events = [0; 4096];
            let mut any = false;
            // A device that never ends to speak does not keep us for ever.
            for _ in 0..64 {
                match device.read(&mut events) {
                    Ok(count) if count > 0 => any = true,
                    Ok(_) | Err(_) => break,
                }
            }
            any
        };
        // Each is read until nothing is left, also behind one that has had an event.
        Some(self.inputs.iter().fold(false, |any, one| had(one) | any))
    }

    fn memory_limit(&self) -> Option<u64> {
        let group = control_group(&limited("/proc/self/cgroup".as_ref()).ok()?)?;
        let folder = Path::new("/sys/fs/cgroup").join(group.trim_start_matches('/'));
        let number = |name: &str| {
            let text = fs::read_to_string(folder.join(name)).ok()?;
            text.trim().parse::<u64>().ok().filter(|limit| *limit > 0)
        };
        number("memory.high").or_else(|| number("memory.max"))
    }

    fn free_disk_kib(&self, folder: &Path) -> io::Result<u64> {
        let found = rustix::fs::statvfs(folder)?;
        Ok(
            (u128::from(found.f_bavail) * u128::from(found.f_frsize) / 1024)
                .try_into()
                .unwrap_or(u64::MAX),
        )
    }
}

/// Whether this is the text of what has ended (proc(5), `/proc/pid/stat`).
fn is_of_zombie(stat: &[u8]) -> bool {
    let name_end = stat.iter().rposition(|byte| *byte == b')');
    name_end.and_then(|end| stat.get(end + 2)) == Some(&b'Z')
}

/// What is said of a process by another of its threads that lives.
fn of_others(pid: i32) -> Option<Vec<u8>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let stat = |thread: fs::DirEntry| {
        let tid = thread.file_name().into_string().ok()?;
        limited(format!("/proc/{tid}/stat").as_ref()).ok()
    };
    threads.filter_map(stat).find(|stat| !is_of_zombie(stat))
}

fn limited(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = vec![];
    File::open(path)?.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::read::ProcessUse;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn a_process_whose_first_thread_has_ended_has_a_size() {
        let script = "import ctypes, threading, time\n\
                      threading.Thread(target=time.sleep, args=(60,)).start()\n\
                      ctypes.CDLL(None).syscall(60, 0)";
        let mut command = Command::new("python3");
        let child = command.args(["-c", script]).stdin(Stdio::null()).spawn();
        let mut child = child.expect("python3");
        let pid = child.id().cast_signed();
        let own = || limited(format!("/proc/{pid}/stat").as_ref()).expect("reads");
        let until = Instant::now() + Duration::from_secs(20);
        while !is_of_zombie(&own()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        let size = |stat: &[u8]| {
            let used = ProcessUse::parse(stat).expect("makes sense");
            used.virtual_bytes
        };
        let found = Here::new().process(pid).expect("reads");
        let sizes = (size(&own()), size(&found) > 0);
        child.kill().expect("kill");
        child.wait().expect("wait");
        assert_eq!(sizes, (0, true));
    }
}
