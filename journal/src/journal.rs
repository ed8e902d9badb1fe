//! A journal that is open.

use crate::format::left::LeftTable;
use crate::format::manifest::{Manifest, ReserveEntry};
use crate::format::segment;
use crate::reserve::Reserve;
use crate::state::State;
use crate::{Durability, JournalError, Settings, fault};
use rustix::fs::FlockOperation;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

/// The side folder in the journal's own folder.
const OWN_RESERVE: &str = "kept";

/// How the name of a journal ends that is being removed.
const GONE: &str = ".gone";

/// Removes what is left in `dir` of journals with names of 32 hexadecimal digits, whose removal somebody was killed at; or finishes it for
/// them. Anything else there stays.
///
/// # Errors
/// When the folder cannot be listed.
pub fn sweep(dir: &Path) -> std::io::Result<()> {
    for entry in dir.read_dir()?.flatten() {
        let name = entry.file_name();
        let stem = name.as_bytes().strip_suffix(GONE.as_bytes());
        if stem.is_some_and(|stem| stem.len() == 32 && stem.iter().all(u8::is_ascii_hexdigit)) {
            // What cannot be removed now is tried again another time.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

/// A journal. Any number of threads may make changes through it.
#[derive(Debug)]
pub struct Journal {
    pub(crate) dir: PathBuf,
    /// Held for reading while a change is made, for writing where an epoch begins or ends.
    pub(crate) gate: RwLock<()>,
    /// Held while names are changed: what is looked at before must be what is changed.
    pub(crate) names: Mutex<()>,
    pub(crate) state: Mutex<State>,
    /// Held by whoever makes a group of records durable.
    pub(crate) syncing: Mutex<()>,
    /// Locked: no other process has this journal.
    _lock: File,
}

impl Journal {
    /// Opens the journal in a folder, or begins one there. The folder is made if it is not there.
    ///
    /// What the journal says is checked. If an undo has begun, only [`Journal::undo_to`] is possible.
    ///
    /// # Errors
    /// [`JournalError::Damaged`], [`JournalError::Version`]: then nothing has been changed. [`JournalError::InUse`],
    /// [`JournalError::Io`].
    pub fn open(dir: &Path, settings: &Settings) -> Result<Self, JournalError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(|error| JournalError::io("make", dir, error))?;
        let dir = std::path::absolute(dir).map_err(|error| JournalError::io("find", dir, error))?;
        let lock = lock(&dir)?;
        let manifest = match Manifest::read(&dir)? {
            Some(manifest) => manifest,
            None => begin(&dir, settings)?,
        };
        Self::go_on(dir, settings, lock, manifest)
    }

    /// As [`Journal::open`], of one that is there; none if it is not, or has just been removed.
    ///
    /// # Errors
    /// As [`Journal::open`].
    pub fn open_existing(dir: &Path, settings: &Settings) -> Result<Option<Self>, JournalError> {
        let dir = std::path::absolute(dir).map_err(|error| JournalError::io("find", dir, error))?;
        if !dir.join(crate::format::manifest::NAME).exists() {
            return Ok(None);
        }
        let lock = match lock(&dir) {
            Err(_) if !dir.exists() => return Ok(None),
            lock => lock?,
        };
        match Manifest::read(&dir)? {
            Some(manifest) => Self::go_on(dir, settings, lock, manifest).map(Some),
            None => Ok(None),
        }
    }

    fn go_on(
        dir: PathBuf,
        settings: &Settings,
        lock: File,
        manifest: Manifest,
    ) -> Result<Self, JournalError> {
        let table = LeftTable::open(&dir)?;
        let head = table.head()?;
        let mut state = State::load(&dir, settings, manifest, table, head)?;
        if state.manifest.undoing.is_none() {
            remove_old_segments(&dir, &state.manifest)?;
            state.release()?;
            if state.crashed {
                state.adopt(state.power_lost)?;
            }
        }
        // All that was read is there to stay.
        if settings.durability == Durability::PowerLoss {
            let synced = state.log.file.sync_data();
            synced.map_err(|error| JournalError::io("sync", &dir, error))?;
        }
        state.log.durable = state.log.end;
        state.write_head(false)?;
        Ok(Journal {
            dir,
            gate: RwLock::new(()),
            names: Mutex::new(()),
            state: Mutex::new(state),
            syncing: Mutex::new(()),
            _lock: lock,
        })
    }

    /// Ends the use of the journal: it is known then that no change was being made.
    ///
    /// # Errors
    /// [`JournalError::Io`]
    pub fn close(self) -> Result<(), JournalError> {
        let mut state = self.lock_state();
        fault::at("clean")?;
        if state.settings.durability == Durability::PowerLoss {
            let synced = state.log.file.sync_data();
            synced.map_err(|error| JournalError::io("sync", &self.dir, error))?;
        }
        state.log.durable = state.log.end;
        state.write_head(true)
    }

    /// Removes the journal and all that it has kept: the job is complete. From the first moment on it is not found any more; what somebody who
    /// is killed behind that leaves goes with [`sweep`], but for what is kept on other mounts.
    ///
    /// # Errors
    /// [`JournalError::Io`]
    pub fn remove(self) -> Result<(), JournalError> {
        let state = self.lock_state();
        let mut gone = self.dir.clone().into_os_string();
        gone.push(GONE);
        let gone = PathBuf::from(gone);
        let failed = |error| JournalError::io("remove", &self.dir, error);
        fs::rename(&self.dir, &gone).map_err(failed)?;
        for reserve in &state.reserves {
            reserve.clean(|_| false)?;
            // The one in its own folder goes with that.
            if !reserve.path.starts_with(&self.dir) {
                let removed = fs::remove_dir(&reserve.path);
                removed.map_err(|error| JournalError::io("remove", &reserve.path, error))?;
            }
        }
        fs::remove_dir_all(&gone).map_err(failed)
    }

    pub(crate) fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the segment is durable up to `position`. Whoever comes first does it for all that have written.
    pub(crate) fn make_durable(&self, position: u64) -> Result<(), JournalError> {
        if self.lock_state().log.durable >= position {
            return Ok(());
        }
        let _leader = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, end, reserves, durability) = {
            let mut state = self.lock_state();
            if state.log.durable >= position {
                return Ok(());
            }
            if state.dead {
                return Err(JournalError::Dead);
            }
            let new = std::mem::take(&mut state.unsynced_reserves);
            let reserves: Vec<_> = new
                .into_iter()
                .filter_map(|number| state.reserves.get(number as usize))
                .map(|reserve| reserve.fd.try_clone())
                .collect();
            let durability = state.settings.durability;
            (state.log.file.clone(), state.log.end, reserves, durability)
        };
        let synced = fault::at("sync").and_then(|()| {
            if durability == Durability::Kill {
                return Ok(());
            }
            let all = file.sync_data().and_then(|()| {
                for reserve in reserves {
                    rustix::fs::fsync(reserve?)?;
                }
                Ok(())
            });
            all.map_err(|error| JournalError::io("sync", &self.dir, error))
        });
        let mut state = self.lock_state();
        if let Err(error) = synced {
            // What the disk holds is not known any more: fsync(2).
            state.dead = true;
            return Err(error);
        }
        state.log.durable = end;
        state.write_head(false)
    }
}

impl State {
    /// The side folder for a mount; one is made if there is none.
    pub(crate) fn reserve_for(
        &mut self,
        folder: impl rustix::fd::AsFd,
        seen: &crate::inode::Seen,
    ) -> Result<u32, JournalError> {
        use std::os::unix::ffi::OsStringExt;
        let serving = self
            .reserves
            .iter()
            .position(|reserve| reserve.serves(seen));
        if let Some(number) = serving {
            return Ok(number as u32);
        }
        let name = format!(
            "{}{}",
            crate::reserve::OWN_PREFIX,
            crate::format::manifest::hex(&self.manifest.id[..8])
        );
        let candidates = crate::reserve::candidates(&folder, &self.settings.side_folders)
            .map_err(|errno| JournalError::io("find a side folder for", &self.dir, errno))?;
        let mut last = JournalError::io(
            "make a side folder for",
            &self.dir,
            rustix::io::Errno::ACCESS,
        );
        for candidate in candidates {
            match Reserve::make(&candidate.join(&name)) {
                Ok(reserve) if reserve.serves(seen) => {
                    let mut manifest = self.manifest.clone();
                    manifest.reserves.push(ReserveEntry {
                        path: reserve.path.clone().into_os_string().into_vec(),
                        devices: vec![reserve.device],
                    });
                    manifest.write(&self.dir, self.settings.durability)?;
                    self.manifest = manifest;
                    self.reserves.push(reserve);
                    return Ok(self.reserves.len() as u32 - 1);
                }
                Ok(_) => {}
                Err(error @ JournalError::Killed { .. }) => return Err(error),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

fn lock(dir: &Path) -> Result<File, JournalError> {
    let path = dir.join("lock");
    let failed = |error: std::io::Error| JournalError::io("open", &path, error);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&path).map_err(failed)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(JournalError::InUse {
            path: dir.to_owned(),
        }),
        Err(errno) => Err(failed(errno.into())),
    }
}

/// A new journal: its first segment, then the manifest.
fn begin(dir: &Path, settings: &Settings) -> Result<Manifest, JournalError> {
    let path = dir.join(crate::format::manifest::NAME);
    let old = segment::path(dir, 1);
    // A journal dies here only before its first epoch, so this is all there can be.
    let foreign = fs::read_dir(dir)
        .map_err(|error| JournalError::io("read", dir, error))?
        .filter_map(Result::ok)
        .map(|entry| entry.file_name())
        .find(|name| {
            let own = ["lock", OWN_RESERVE, "manifest.new"];
            !own.iter().any(|own| name == own) && old.file_name() != Some(name)
        });
    if let Some(name) = foreign {
        let found = format!("none, beside {}", name.display());
        return Err(JournalError::damaged(
            path,
            "manifest",
            found,
            "one, or an empty folder",
        ));
    }
    let mut id = [0; 16];
    let random = "/dev/urandom";
    let read = File::open(random).and_then(|mut file| file.read_exact(&mut id));
    read.map_err(|error| JournalError::io("read", random, error))?;
    let mut manifest = Manifest::new(id);
    let reserve = Reserve::make(&dir.join(OWN_RESERVE))?;
    manifest.reserves.push(ReserveEntry {
        path: OWN_RESERVE.into(),
        devices: vec![reserve.device],
    });
    let first_object = crate::format::record::ObjectId(2);
    let first = segment::Segment::create(dir, (id, 1), manifest.key(1), first_object)?;
    if settings.durability == Durability::PowerLoss {
        let synced = first.file.sync_all();
        synced.map_err(|error| JournalError::io("sync", dir, error))?;
    }
    manifest.write(dir, settings.durability)?;
    Ok(manifest)
}

/// Removes segments that no epoch has any more, or not yet.
pub(crate) fn remove_old_segments(dir: &Path, manifest: &Manifest) -> Result<(), JournalError> {
    let failed = |error| JournalError::io("read", dir, error);
    let known: Vec<PathBuf> = manifest
        .segments_from(0)
        .iter()
        .map(|entry| segment::path(dir, entry.number))
        .collect();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if !name.is_some_and(|name| name.starts_with("segment-")) || known.contains(&path) {
            continue;
        }
        fault::at("drop-segment")?;
        fs::remove_file(&path).map_err(|error| JournalError::io("remove", &path, error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_left_of_journals_is_swept() {
        let dir = tempfile::tempdir().expect("a folder");
        let hex = "0123456789abcdef0123456789abcdef";
        let swept = format!("{hex}.gone/kept");
        let stays = [hex, "results.gone", &format!("{}x.gone", &hex[1..]), "a"];
        for name in stays.into_iter().chain([&swept[..]]) {
            fs::create_dir_all(dir.path().join(name)).expect("makes it");
        }
        sweep(dir.path()).expect("lists");
        let mut left: Vec<_> = fs::read_dir(dir.path())
            .expect("lists")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        left.sort();
        let mut expected = stays.map(std::ffi::OsString::from);
        expected.sort();
        assert_eq!(left, expected);
    }

    #[test]
    fn a_journal_that_is_removed_is_not_there() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("job");
        let settings = Settings {
            durability: Durability::Kill,
            ..Settings::default()
        };
        assert!(
            Journal::open_existing(&path, &settings)
                .expect("looks")
                .is_none()
        );
        let journal = Journal::open(&path, &settings).expect("begins");
        let again = Journal::open_existing(&path, &settings);
        assert!(
            matches!(again, Err(JournalError::InUse { .. })),
            "{again:?}"
        );
        journal.close().expect("closes");
        let journal = Journal::open_existing(&path, &settings).expect("opens");
        journal.expect("is there").remove().expect("removes");
        assert!(
            Journal::open_existing(&path, &settings)
                .expect("looks")
                .is_none()
        );
        assert_eq!(fs::read_dir(dir.path()).expect("lists").count(), 0);
    }
}
