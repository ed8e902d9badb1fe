//! One open file: how it is written down, and found again.

use super::MoveError;
use super::format::SavedFile;
use crate::compressed;
use crate::locks::FileId;
use crate::names::{Last, NAMELESS, Spot};
use crate::session::{OpenFile, Session};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use wire::{Attributes, Open, Others};

/// Of a file that has no name any more, so many bytes are carried.
const MOST_NAMELESS: u64 = 256 << 10;

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn not_carried(what: String) -> MoveError {
    MoveError::NotCarried { what }
}

/// As it is now.
pub(super) fn save(handle: u64, file: &OpenFile) -> Result<SavedFile, MoveError> {
    let failed =
        |errno: Errno| not_carried(format!("an open file that cannot be looked at ({errno})"));
    let name = crate::serve::name_now(file).map_err(failed)?;
    let stat = rustix::fs::fstat(file.stored()).map_err(failed)?;
    let flags = flags_of(file).map_err(failed)?;
    let there = rustix::fs::lstat(&*name);
    let is_there =
        |there: &rustix::fs::Stat| (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino);
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let mut nameless = None;
    if !there.as_ref().is_ok_and(is_there) {
        let name = shown(name.strip_suffix(b" (deleted)").unwrap_or(&name));
        if flags.contains(NAMELESS) && stat.st_nlink > 0 {
            return Err(not_carried(format!(
                "{name} was made without a name, and has got one that is not known"
            )));
        }
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || size > MOST_NAMELESS {
            return Err(not_carried(format!(
                "{name} ({size} bytes) has been removed or replaced while it is open; of such files at most {MOST_NAMELESS} bytes can be carried"
            )));
        }
        let readable = crate::names::reopen(file.stored(), OFlags::RDONLY).map_err(failed)?;
        let mut bytes = vec![];
        crate::serve::contents::read_into(&readable, 0, size as usize, &mut bytes)
            .map_err(failed)?;
        nameless = Some(bytes);
    }
    Ok(SavedFile {
        handle,
        name,
        flags: flags.bits(),
        device: stat.st_dev,
        inode: stat.st_ino,
        mode: stat.st_mode,
        size,
        modified: (stat.st_mtime, stat.st_mtime_nsec as u32),
        nameless,
        offered: false,
    })
}

/// The same for the log of a session: no contents, and what is known of it already.
pub(crate) fn note(
    handle: u64,
    file: &OpenFile,
    attributes: &Attributes,
) -> Result<SavedFile, Errno> {
    let stored = match file.compressed {
        Some(_) => Some(rustix::fs::fstat(file.stored())?),
        None => None,
    };
    Ok(SavedFile {
        handle,
        name: crate::serve::name_now(file)?,
        flags: flags_of(file)?.bits(),
        device: stored.map_or(attributes.device, |stored| stored.st_dev),
        inode: attributes.inode,
        mode: attributes.mode,
        size: attributes.size,
        modified: (attributes.modified.seconds, attributes.modified.nanoseconds),
        nameless: None,
        offered: file.offered.load(Ordering::Relaxed),
    })
}

/// As `F_GETFL` gives them, and whether it is stored compressed.
fn flags_of(file: &OpenFile) -> Result<OFlags, Errno> {
    let mut flags = rustix::fs::fcntl_getfl(&file.fd)?;
    if file.compressed.is_some() {
        flags |= OFlags::from_bits_retain(Open::COMPRESSED);
    }
    Ok(flags)
}

/// An open file again.
pub(crate) struct Found {
    pub(crate) fd: OwnedFd,
    pub(crate) writable: bool,
    pub(crate) id: FileId,
}

impl SavedFile {
    /// Nobody else has it, so it need not lie in a file system.
    fn make_nameless(&self, bytes: &[u8]) -> Result<Found, Errno> {
        let memory = rustix::fs::memfd_create("nameless", MemfdFlags::CLOEXEC)?;
        let mut file = std::fs::File::from(memory);
        std::io::Write::write_all(&mut file, bytes).map_err(|_| Errno::NOSPC)?;
        let stat = rustix::fs::fstat(&file)?;
        // Its name in /proc is a link.
        let flags = self.flags().difference(OFlags::NOFOLLOW);
        Ok(Found {
            fd: crate::names::reopen(&file, flags)?,
            writable: true,
            id: FileId {
                device: stat.st_dev,
                inode: stat.st_ino,
            },
        })
    }

    /// What was made with a mode that forbids to open it so, or has got one since: it is the job's owner's.
    fn open_forbidden(
        &self,
        session: &Session,
        spot: &Spot<'_>,
        flags: OFlags,
    ) -> Result<OwnedFd, Errno> {
        let path = spot.open(OFlags::PATH | OFlags::NOFOLLOW)?;
        let stat = rustix::fs::fstat(&path)?;
        let same = (stat.st_dev, stat.st_ino) == (self.device, self.inode);
        if !same || stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(Errno::ACCESS);
        }
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        session
            .changes
            .set_mode(&path, mode | Mode::RUSR | Mode::WUSR)?;
        let opened = spot.open(flags);
        session.changes.set_mode(&path, mode)?;
        opened
    }

    fn flags(&self) -> OFlags {
        let own = OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC;
        let mut flags = OFlags::from_bits_retain(self.flags).difference(own);
        if self.is_compressed() {
            flags = compressed::stored_flags(flags);
        }
        if flags.contains(NAMELESS) {
            // It was a folder's in which it was made.
            flags.difference(OFlags::TMPFILE)
        } else {
            flags
        }
    }

    /// Its contents are kept by the shadow until they are stored.
    pub(crate) fn is_compressed(&self) -> bool {
        compressed::is_asked(self.flags)
    }

    fn is_path(&self) -> bool {
        self.flags().contains(OFlags::PATH)
    }

    pub(crate) fn writes(&self) -> bool {
        !self.is_path() && self.flags().intersects(OFlags::WRONLY | OFlags::RDWR)
    }

    fn is_regular(&self) -> bool {
        FileType::from_raw_mode(self.mode) == FileType::RegularFile
    }

    /// What was found, as the job has it open.
    pub(crate) fn open_again(&self, session: &Session, found: Found) -> Result<OpenFile, String> {
        if !self.is_compressed() {
            return Ok(OpenFile::new(found.fd, found.writable, found.id));
        }
        let flags = OFlags::from_bits_retain(self.flags);
        let opened = session.decompressed(found.fd, flags, (found.writable, found.id));
        opened.map_err(|errno| {
            let name = shown(&self.name);
            format!("{name}, which is compressed, cannot be read ({errno})")
        })
    }

    /// Opens it; or says how what is there differs. `others`: what is done about its contents; `asked`: what the user wants
    /// of a job that goes back, nothing where one goes on and its contents are what it has made of them since.
    pub(crate) fn find(
        &self,
        session: &Session,
        others: Others,
        asked: Option<Others>,
    ) -> Result<Found, String> {
        let name = shown(&self.name);
        if let Some(bytes) = &self.nameless {
            let made = self.make_nameless(bytes);
            return made
                .map_err(|errno| format!("{name}, which had no name, cannot be made ({errno})"));
        }
        let found = session.allowed.at(&self.name, Last::Kept, |spot| {
            let flags = self.flags() | OFlags::NOFOLLOW;
            let waiting = if self.is_path() {
                flags
            } else {
                flags | OFlags::NONBLOCK | OFlags::NOCTTY
            };
            if self.writes() && !spot.writable() {
                return Err(Errno::ACCESS);
            }
            let opened = match spot.open(waiting) {
                Err(Errno::ACCESS) if spot.writable() => {
                    self.open_forbidden(session, spot, waiting)
                }
                opened => opened,
            };
            Ok((opened?, spot.writable()))
        });
        let (fd, writable) =
            found.map_err(|errno| format!("{name} cannot be opened as it was ({errno})"))?;
        let cannot_tell = |errno: Errno| format!("{name} cannot be looked at ({errno})");
        let stat = rustix::fs::fstat(&fd).map_err(cannot_tell)?;
        let found = Found {
            fd,
            writable,
            id: FileId {
                device: stat.st_dev,
                inode: stat.st_ino,
            },
        };
        let same = (stat.st_dev, stat.st_ino) == (self.device, self.inode);
        // A program that was replaced by a newer one, say.
        let bearable = asked == Some(Others::Keep) && !self.writes();
        if !same && !bearable {
            return Err(format!("{name} is another file than the job had open"));
        }
        // What it says of O_NONBLOCK was ours.
        if !self.is_path() {
            let flags = match self.is_compressed() {
                true => self.flags(),
                false => OFlags::from_bits_retain(self.flags),
            };
            rustix::fs::fcntl_setfl(&found.fd, flags).map_err(cannot_tell)?;
        }
        if !self.is_regular() || self.is_path() {
            return Ok(found);
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let same = size == self.size && (stat.st_mtime, stat.st_mtime_nsec as u32) == self.modified;
        let was = self.size;
        let goes_back = matches!(asked, Some(Others::Fail | Others::RollBack));
        match others {
            _ if same => {}
            Others::Fail => {
                return Err(format!(
                    "{name} has been changed since the checkpoint ({size} bytes, then {was})"
                ));
            }
            // What the job writes on would come behind a hole. An undo journal has brought back what the job itself has cut.
            _ if goes_back && self.writes() && size < was => {
                return Err(format!(
                    "{name} is shorter than at the checkpoint ({size} bytes, then {was})"
                ));
            }
            Others::RollBack if self.writes() && size > was => {
                let cut = session.changes.resize(&found.fd, was);
                cut.map_err(|errno| format!("{name} cannot be cut back ({errno})"))?;
            }
            Others::Keep | Others::RollBack => {}
        }
        Ok(found)
    }
}
