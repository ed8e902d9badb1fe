//! What goes with ENOENT: which names the folder does not have where a name ends ([`wire::Missing`]).

use crate::names::Last;
use crate::session::Session;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, IFlags, OFlags, RawDir};
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use wire::{MOST_NAMES, Missing, Names, Place, Request, steps};

/// How soon a folder is told of again. What was told is believed for a second; if it is asked about sooner, the job makes names
/// all the time, and has no good of it.
const TOLD_AGAIN: Duration = Duration::from_millis(500);
/// Folders that are known to have been told of.
const MOST_TOLD: usize = 256;
/// Bytes that the kernel is asked for at once.
const AT_ONCE: usize = 32 << 10;

/// By how much a file system may give a change the time of one before: a tick of a kernel of 100 Hz, and some. (Those that keep seconds only
/// have nothing that a rename hides.)
const TICKS: Duration = Duration::from_millis(20);

/// File systems of which a folder has no names but those that it lists, now (magic numbers of statfs(2)). Not so where names appear when
/// they are asked for (autofs, FUSE, procfs), are listed later than they are found (NFS and others of several machines), or are found in another spelling (FAT, SMB, ZFS).
const LISTED: [u32; 10] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x794c_7630, // overlayfs
    0xf2f5_2010, // F2FS
    0xca45_1a4e, // bcachefs
    0xe0f5_e1e2, // EROFS
    0x7371_7368, // squashfs
];
/// `FS_CASEFOLD_FL`.
const CASEFOLD: IFlags = IFlags::from_bits_retain(0x4000_0000);

/// Which folders were told of, and when.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<HashMap<Way, Instant>>);

/// How the job calls a folder: what the name is relative to, and the name.
type Way = (u64, Vec<u8>);

impl Told {
    /// This folder was told of just now.
    fn was_told(&self, folder: &Way, now: Instant) -> bool {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.get(folder)
            .is_some_and(|then| now.saturating_duration_since(*then) < TOLD_AGAIN)
    }

    /// Whether this folder is to be told of; then it counts as told.
    fn begin(&self, folder: Way, now: Instant) -> bool {
        if self.was_told(&folder, now) {
            return false;
        }
        let soon = |then: &Instant| now.saturating_duration_since(*then) < TOLD_AGAIN;
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= MOST_TOLD {
            told.retain(|_, then| soon(then));
        }
        let has_room = told.len() < MOST_TOLD;
        if has_room {
            told.insert(folder, now);
        }
        has_room
    }
}

impl Session {
    /// This request was answered with ENOENT: what else would be is put into `out`, if that can be told.
    pub(super) fn missing(&self, request: &Request<'_>, out: &mut Vec<u8>) {
        let place = match request {
            Request::Open(open) if open.flags & OFlags::CREATE.bits() == 0 => &open.place,
            Request::Attribute(asked) => &asked.place,
            Request::Access(access) => &access.place,
            _ => return,
        };
        if let Some(missing) = self.names_around(place) {
            out.extend_from_slice(&missing.encode());
        }
    }

    fn names_around(&self, place: &Place<'_>) -> Option<Missing> {
        let text = self.text(place).ok()?;
        let before = text.len() - place.name.len();
        let at = match before {
            0 => 0,
            _ => place.at,
        };
        let ways: Vec<usize> = steps(place.name).map(|(folder, _)| folder).collect();
        let nearest = *ways.last()?;
        if self
            .told
            .was_told(&(at, place.name[..nearest].to_vec()), Instant::now())
        {
            return None;
        }
        let opened = SystemTime::now();
        // The nearest folder that is there.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let (len, folder) = ways.into_iter().rev().find_map(|len| {
            let name = match &text[..before + len] {
                b"" => b"/",
                name => name,
            };
            let opened = self
                .allowed
                .at(name, Last::Followed, |spot| spot.open(flags));
            Some((len, opened.ok()?))
        })?;
        let way = (at, place.name[..len].to_vec());
        let before = settled(&folder, opened)?;
        if !lists_all(&folder) || !self.told.begin(way, Instant::now()) {
            return None;
        }
        let names = self.names_in(&folder)?;
        (settled(&folder, opened) == Some(before)).then_some(Missing {
            folder: u16::try_from(len).ok()?,
            names,
        })
    }

    /// All names in a folder; none if there are too many.
    fn names_in(&self, folder: &OwnedFd) -> Option<Names> {
        let mut names = Names::default();
        let mut count = 0;
        let mut probed = false;
        let mut buffer = [const { MaybeUninit::uninit() }; AT_ONCE];
        let mut entries = RawDir::new(folder, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry.ok()?;
            let name = entry.file_name().to_bytes();
            if !self.allowed.hides(name, entry.ino()) {
                names.insert(name);
            }
            if !probed && let Some(other) = in_another_case(name) {
                probed = true;
                if is_found_as(folder, &other, entry.ino()) {
                    return None;
                }
            }
            count += 1;
            if count > MOST_NAMES {
                return None;
            }
        }
        Some(names)
    }
}

/// When a folder changed last, by the clock of the system, if that was surely before the time at which it was opened: a file that another is
/// renamed over may be listed under neither then (Btrfs and tmpfs list no further than there was something when the folder was opened, and
/// the new one is behind that).
fn settled(folder: &OwnedFd, opened: SystemTime) -> Option<Duration> {
    let found = rustix::fs::fstat(folder).ok()?;
    let nanoseconds = u32::try_from(found.st_ctime_nsec).ok()?;
    let changed = Duration::new(u64::try_from(found.st_ctime).ok()?, nanoseconds);
    let opened = opened.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    (changed + TICKS < opened).then_some(changed)
}

/// The same name with its letters in the other case, if it has any.
fn in_another_case(name: &[u8]) -> Option<Vec<u8>> {
    let swap = |byte: &u8| match byte {
        b'a'..=b'z' => byte.to_ascii_uppercase(),
        byte => byte.to_ascii_lowercase(),
    };
    let has_letters = name.iter().any(u8::is_ascii_alphabetic);
    has_letters.then(|| name.iter().map(swap).collect())
}

/// Whether this name leads to that file: then the file system does not heed the case of letters (XFS may be made so), or nearly as good.
fn is_found_as(folder: &OwnedFd, name: &[u8], inode: u64) -> bool {
    let found = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|found| found.st_ino == inode)
}

/// Whether a folder has no names but those that it lists.
fn lists_all(folder: &OwnedFd) -> bool {
    let kind = rustix::fs::fstatfs(folder).map(|found| found.f_type as u32);
    let folds = rustix::fs::ioctl_getflags(folder).is_ok_and(|flags| flags.contains(CASEFOLD));
    kind.is_ok_and(|kind| LISTED.contains(&kind)) && !folds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_that_list_all_their_names_are_told_of() {
        let open = |name: &str| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            rustix::fs::open(name, flags, rustix::fs::Mode::empty()).expect("opens")
        };
        assert!(!lists_all(&open("/proc")));
        assert!(!lists_all(&open("/proc/self/fd")));
        assert!(!lists_all(&open("/sys")));
        assert!(lists_all(&open("/dev/shm")));
    }

    #[test]
    fn a_name_that_is_found_in_another_case_is_noticed() {
        assert_eq!(in_another_case(b"ReadMe.1"), Some(b"rEADmE.1".to_vec()));
        assert_eq!(in_another_case(b"1.2"), None);
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("name"), "").expect("writes");
        let folder = OwnedFd::from(std::fs::File::open(dir.path()).expect("opens"));
        let inode = |name: &str| {
            rustix::fs::statat(&folder, name, AtFlags::empty())
                .expect("is there")
                .st_ino
        };
        assert!(!is_found_as(&folder, b"NAME", inode("name")));
        std::fs::hard_link(dir.path().join("name"), dir.path().join("NAME")).expect("links");
        assert!(is_found_as(&folder, b"NAME", inode("name")));
    }

    #[test]
    fn a_folder_that_changes_is_not_told_of() {
        let dir = tempfile::tempdir().expect("a directory");
        let name = |name: &str| dir.path().join(name);
        std::fs::write(name("old"), "").expect("writes");
        std::fs::write(name("new"), "").expect("writes");
        let opened = std::fs::File::open(dir.path()).expect("opens");
        let folder = OwnedFd::from(opened.try_clone().expect("clones"));
        let (now, second) = (SystemTime::now(), Duration::from_secs(1));
        assert_eq!(settled(&folder, now), None, "just before");
        let before = settled(&folder, now + second);
        assert!(before.is_some());
        // Within a tick it has no later time.
        let until = Instant::now() + 20 * second;
        while settled(&folder, now + 30 * second) == before {
            assert!(Instant::now() < until, "a change is not seen");
            std::fs::rename(name("new"), name("old")).expect("renames");
            std::fs::write(name("new"), "").expect("writes");
        }
        // So is a change whose time is put back.
        opened.set_modified(now - second).expect("sets");
        assert_eq!(settled(&folder, SystemTime::now()), None);
    }

    #[test]
    fn a_folder_is_told_of_now_and_then() {
        let told = Told::default();
        let begin = Instant::now();
        let after = |ms| begin + Duration::from_millis(ms);
        let way = |name: &str| (1, name.as_bytes().to_vec());
        assert!(told.begin(way("a"), begin));
        assert!(!told.begin(way("a"), after(499)));
        assert!(told.begin(way("b"), after(499)));
        assert!(told.begin(way("a"), after(500)));
        for number in 0..1000 {
            told.begin(way(&number.to_string()), after(number / 100));
        }
        assert!(told.0.lock().expect("locks").len() <= MOST_TOLD);
    }
}
