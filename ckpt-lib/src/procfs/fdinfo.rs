//! `/proc/PID/fdinfo/N`: what the kernel tells about a descriptor.

use super::text::{ParseError, decimal, hexadecimal, key_value, lines, octal, words};

/// An eventfd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventFdInfo {
    /// Its counter.
    pub count: u64,
    /// EFD_SEMAPHORE, where the kernel tells (6.5 and later).
    pub semaphore: Option<bool>,
}

/// A timerfd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimerFdInfo {
    /// Its clock.
    pub clock: i32,
    /// Expirations not read.
    pub ticks: u64,
    /// Flags of the last timerfd_settime.
    pub settime_flags: u32,
    /// Time to the next expiration.
    pub value_ns: u64,
    /// Period.
    pub interval_ns: u64,
}

/// A member of an epoll set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EpollLine {
    /// Descriptor it was added under.
    pub fd: i32,
    /// Event bits.
    pub events: u32,
    /// User data.
    pub data: u64,
    /// Inode number of the target, where the kernel tells (4.13 and later).
    pub inode: u64,
}

/// An inotify watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InotifyLine {
    /// Its number.
    pub wd: i32,
    /// Inode it watches.
    pub inode: u64,
    /// Device as the kernel numbers it: major, minor.
    pub device: (u32, u32),
    /// Its mask.
    pub mask: u32,
    /// Type and bytes of the file handle.
    pub handle: Option<(i32, Vec<u8>)>,
}

/// Kinds of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// flock(2).
    Flock,
    /// fcntl(2) F_SETLK.
    Posix,
    /// fcntl(2) F_OFD_SETLK.
    Ofd,
}

/// A lock on a description or, for POSIX locks, of the process on its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockLine {
    /// Its kind.
    pub kind: LockKind,
    /// WRITE instead of READ.
    pub exclusive: bool,
    /// First byte.
    pub start: u64,
    /// Last byte; `None` for the end of the file, however far.
    pub last: Option<u64>,
}

/// What fdinfo says of a descriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FdInfo {
    /// Position.
    pub pos: i64,
    /// Access mode and status flags; O_CLOEXEC is the descriptor's.
    pub flags: u32,
    /// Mount.
    pub mount: i32,
    /// Inode number, where the kernel tells (5.14 and later).
    pub inode: Option<u64>,
    /// Of an eventfd.
    pub eventfd: Option<EventFdInfo>,
    /// Accepted signals of a signalfd.
    pub sigmask: Option<u64>,
    /// Of a timerfd.
    pub timerfd: Option<TimerFdInfo>,
    /// Of an epoll.
    pub epoll: Vec<EpollLine>,
    /// Of an inotify.
    pub inotify: Vec<InotifyLine>,
    /// Process of a pidfd: -1 if it has been reaped, 0 if the reader cannot name it.
    pub pid: Option<i32>,
    /// Locks.
    pub locks: Vec<LockLine>,
    /// Lines of locks of a kind this reader does not know (leases).
    pub unknown_locks: Vec<String>,
}

/// Reads fdinfo. Lines with unknown keys are passed over: what a descriptor is, is known from its
/// link.
///
/// # Errors
/// The first known line that makes no sense.
pub fn parse_fdinfo(bytes: &[u8]) -> Result<FdInfo, ParseError> {
    let mut info = FdInfo::default();
    let mut timer: Option<TimerFdInfo> = None;
    let mut event: Option<EventFdInfo> = None;
    for line in lines(bytes) {
        if let Some(watch) = line.strip_prefix(b"inotify ") {
            info.inotify.push(inotify(watch)?);
            continue;
        }
        let Some((key, value)) = key_value(line) else {
            continue;
        };
        match key {
            b"pos" => info.pos = decimal("a position", value)?,
            b"flags" => info.flags = small(octal("flags", value)?, value)?,
            b"mnt_id" => info.mount = decimal("a mount", value)?,
            b"ino" => info.inode = Some(decimal("an inode", value)?),
            b"eventfd-count" => {
                event.get_or_insert_default().count = hexadecimal("a counter", value)?;
            }
            b"eventfd-semaphore" => event.get_or_insert_default().semaphore = Some(value != b"0"),
            b"sigmask" => info.sigmask = Some(hexadecimal("signals", value)?),
            b"clockid" => timer.get_or_insert_default().clock = decimal("a clock", value)?,
            b"ticks" => timer.get_or_insert_default().ticks = decimal("ticks", value)?,
            b"settime flags" => {
                timer.get_or_insert_default().settime_flags = small(octal("flags", value)?, value)?;
            }
            b"it_value" => timer.get_or_insert_default().value_ns = duration(value)?,
            b"it_interval" => timer.get_or_insert_default().interval_ns = duration(value)?,
            b"tfd" => info.epoll.push(epoll(line)?),
            b"Pid" => info.pid = Some(decimal("an id", value)?),
            b"lock" => lock(value, &mut info)?,
            _ => {}
        }
    }
    info.timerfd = timer;
    info.eventfd = event;
    Ok(info)
}

fn small(number: u64, found: &[u8]) -> Result<u32, ParseError> {
    u32::try_from(number).map_err(|_| ParseError::new("a smaller number", found))
}

/// `(seconds, nanoseconds)`.
fn duration(value: &[u8]) -> Result<u64, ParseError> {
    let wrong = || ParseError::new("seconds and nanoseconds", value);
    let inner = value
        .strip_prefix(b"(")
        .and_then(|rest| rest.strip_suffix(b")"))
        .ok_or_else(wrong)?;
    let comma = inner
        .iter()
        .position(|byte| *byte == b',')
        .ok_or_else(wrong)?;
    let seconds: u64 = decimal("seconds", inner[..comma].trim_ascii())?;
    let nanoseconds: u64 = decimal("nanoseconds", inner[comma + 1..].trim_ascii())?;
    seconds
        .checked_mul(1_000_000_000)
        .and_then(|ns| ns.checked_add(nanoseconds))
        .ok_or_else(wrong)
}

/// `tfd: 3 events: 19 data: 3  pos:0 ino:4768 sdev:f`.
fn epoll(line: &[u8]) -> Result<EpollLine, ParseError> {
    let mut target = EpollLine::default();
    let mut words = words(line);
    while let Some(word) = words.next() {
        let Some((key, value)) = key_value(word) else {
            return Err(ParseError::new("a member of an epoll set", line));
        };
        let value = if value.is_empty() {
            words.next().unwrap_or_default()
        } else {
            value
        };
        match key {
            b"tfd" => target.fd = decimal("a descriptor", value)?,
            b"events" => target.events = small(hexadecimal("events", value)?, value)?,
            b"data" => target.data = hexadecimal("data", value)?,
            b"ino" => target.inode = hexadecimal("an inode", value)?,
            _ => {}
        }
    }
    Ok(target)
}

/// `wd:1 ino:3c4a7 sdev:fe00000 mask:100 ignored_mask:0 fhandle-bytes:8 fhandle-type:1 f_handle:...`.
fn inotify(line: &[u8]) -> Result<InotifyLine, ParseError> {
    let mut watch = InotifyLine::default();
    let mut kind = 0;
    for word in words(line) {
        let Some((key, value)) = key_value(word) else {
            return Err(ParseError::new("an inotify watch", line));
        };
        match key {
            b"wd" => {
                let number = small(hexadecimal("a watch", value)?, value)?;
                watch.wd = number.cast_signed();
            }
            b"ino" => watch.inode = hexadecimal("an inode", value)?,
            b"sdev" => {
                // The kernel's own packing: 12 bits of major, 20 of minor.
                let device = small(hexadecimal("a device", value)?, value)?;
                watch.device = (device >> 20, device & 0xf_ffff);
            }
            b"mask" => watch.mask = small(hexadecimal("a mask", value)?, value)?,
            b"fhandle-type" => kind = small(hexadecimal("a handle's type", value)?, value)?,
            b"f_handle" => {
                let bytes: Result<Vec<u8>, _> = value
                    .chunks(2)
                    .map(|pair| hexadecimal("a handle", pair).map(|byte| byte as u8))
                    .collect();
                watch.handle = Some((kind.cast_signed(), bytes?));
            }
            _ => {}
        }
    }
    Ok(watch)
}

/// `1: FLOCK  ADVISORY  WRITE 11085 fe:00:10010689 0 EOF`.
fn lock(value: &[u8], info: &mut FdInfo) -> Result<(), ParseError> {
    let fields: Vec<&[u8]> = words(value).collect();
    let kind = match fields.get(1).copied() {
        Some(b"FLOCK") => LockKind::Flock,
        Some(b"POSIX") => LockKind::Posix,
        Some(b"OFDLCK") => LockKind::Ofd,
        _ => {
            info.unknown_locks
                .push(String::from_utf8_lossy(value).into_owned());
            return Ok(());
        }
    };
    let wrong = || ParseError::new("a lock", value);
    let exclusive = match fields.get(3).copied() {
        Some(b"WRITE") => true,
        Some(b"READ") => false,
        _ => return Err(wrong()),
    };
    let last = fields.get(7).copied().ok_or_else(wrong)?;
    info.locks.push(LockLine {
        kind,
        exclusive,
        start: decimal("a lock's start", fields.get(6).copied().ok_or_else(wrong)?)?,
        last: if last == b"EOF" {
            None
        } else {
            Some(decimal("a lock's end", last)?)
        },
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> FdInfo {
        parse_fdinfo(text.as_bytes()).expect("parses")
    }

    #[test]
    fn the_first_lines_read_right() {
        let info = read("pos:\t92\nflags:\t02100001\nmnt_id:\t27\nino:\t10010716\n");
        assert_eq!(
            (info.pos, info.mount, info.inode),
            (92, 27, Some(10_010_716))
        );
        assert_eq!(info.flags, 0o2_100_001);
    }

    #[test]
    fn eventfd_signalfd_and_timerfd_read_right() {
        let info = read("eventfd-count:               1f\neventfd-id: 1\neventfd-semaphore: 1\n");
        let expected = EventFdInfo {
            count: 0x1f,
            semaphore: Some(true),
        };
        assert_eq!(info.eventfd, Some(expected));
        assert_eq!(read("sigmask:\t0000000000000200\n").sigmask, Some(0x200));
        let info = read(
            "clockid: 1\nticks: 2\nsettime flags: 01\nit_value: (99, 999304993)\nit_interval: (1, 0)\n",
        );
        let timer = info.timerfd.expect("timer");
        assert_eq!((timer.ticks, timer.settime_flags), (2, 1));
        assert_eq!(timer.value_ns, 99_999_304_993);
        assert_eq!(timer.interval_ns, 1_000_000_000);
    }

    #[test]
    fn epoll_and_inotify_read_right() {
        let info =
            read("tfd:        3 events:       19 data: ff00000000000003  pos:0 ino:4768 sdev:f\n");
        let expected = EpollLine {
            fd: 3,
            events: 0x19,
            data: 0xff00_0000_0000_0003,
            inode: 0x4768,
        };
        assert_eq!(info.epoll, [expected]);
        let info = read(
            "inotify wd:1 ino:3c4a7 sdev:fe00000 mask:100 ignored_mask:0 fhandle-bytes:8 fhandle-type:1 f_handle:a7c4030000000000\n",
        );
        let watch = &info.inotify[0];
        assert_eq!((watch.wd, watch.inode, watch.mask), (1, 0x3c4a7, 0x100));
        assert_eq!(watch.device, (0xfe, 0));
        assert_eq!(watch.handle, Some((1, vec![0xa7, 0xc4, 3, 0, 0, 0, 0, 0])));
    }

    #[test]
    fn locks_read_right_and_leases_are_unknown() {
        let info = read(
            "lock:\t1: FLOCK  ADVISORY  WRITE 11085 fe:00:10010689 0 EOF\n\
             lock:\t2: POSIX  ADVISORY  READ 11085 fe:00:10010689 5 14\n\
             lock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:10010713 100 EOF\n\
             lock:\t1: LEASE  ACTIVE    READ 11085 fe:00:10010713 0 EOF\n",
        );
        let kinds: Vec<LockKind> = info.locks.iter().map(|lock| lock.kind).collect();
        assert_eq!(kinds, [LockKind::Flock, LockKind::Posix, LockKind::Ofd]);
        assert_eq!((info.locks[1].start, info.locks[1].last), (5, Some(14)));
        assert!(!info.locks[1].exclusive);
        assert_eq!(info.unknown_locks.len(), 1);
    }
}
