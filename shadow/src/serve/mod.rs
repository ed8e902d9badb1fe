//! What each request does.

mod attributes;
pub(crate) mod contents;
mod foreseeing;
mod listing;
mod locking;
mod missing;
mod names;
mod offering;
mod opening;
mod owner;

pub(crate) use attributes::LocalDevices;
pub(crate) use missing::Told;
pub use owner::Domains;

use crate::names::{Last, own_descriptor};
use crate::session::{OpenFile, Session};
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use wire::{Place, Reply, Request};

impl Session {
    /// Answers a request, at once. `data` came with it; what goes with the answer is put into `out`.
    pub fn answer(&self, request: &Request<'_>, data: &[u8], out: &mut Vec<u8>) -> Reply<'static> {
        out.clear();
        let answer = match request {
            Request::Open(open) => self.open(open, out),
            Request::OpenWithin(within) => self.open_within(within, out),
            Request::Close(close) => self.close(close.handle).map(|()| Reply::Done),
            Request::CloseAll(_) => self.close_all(data),
            Request::Offer(offer) => self.offer(offer, out),
            Request::Foresee(foresee) => self.foresee(foresee, out),
            Request::Began(began) => self.began(began, data),
            Request::Read(read) => self.read(read, out),
            Request::Write(write) => self.write(write, data),
            Request::WriteAs(write) => self.write_as(write, data),
            Request::Attribute(asked) => self.attributes(asked),
            Request::Change(change) => self.change(change),
            Request::Sync(sync) => self.sync(sync),
            Request::SyncAll(sync) => self.sync_all(sync),
            Request::FlagsOf(of) => self.flags_of(of),
            Request::List(list) => self.list(list, out),
            Request::Allocate(allocate) => self.allocate(allocate),
            Request::Seek(seek) => self.seek(seek),
            Request::Access(access) => self.access(access),
            Request::ReadLink(link) => self.read_link(link, out),
            Request::MakeDirectory(make) => self.make_directory(make),
            Request::MakeNode(make) => self.make_node(make),
            Request::RemoveName(remove) => self.remove_name(remove),
            Request::Rename(rename) => self.rename(rename),
            Request::Link(link) => self.link(link),
            Request::SymbolicLink(link) => self.symbolic_link(link),
            Request::FileSystemOf(of) => self.file_system(of),
            Request::GetXattr(get) => self.get_xattr(get, out),
            Request::SetXattr(set) => self.set_xattr(set, data),
            Request::ListXattr(list) => self.list_xattr(list, out),
            Request::RemoveXattr(remove) => self.remove_xattr(remove),
            Request::Copy(copy) => self.copy(copy),
            Request::SetAppend(set) => self.set_append(set),
            Request::NameOf(of) => self.name_of(of, out),
            Request::Leads(leads) => self.leads(leads, out),
            Request::Lock(lock) => self.lock(lock),
            Request::TestLock(test) => self.test_lock(test),
            Request::TestOwn(test) => self.test_own(test),
            Request::Release(release) => self.release(release),
            Request::Lease(lease) => self.set_lease(lease),
            Request::Identify(_) => Ok(owner::identify(&self.domains, out)),
            Request::Complete(_) => self.store_all().map_err(|(errno, _)| errno).map(|()| {
                self.journal_goes();
                if let (Some(images), Some(copy)) = (&self.images, self.copy_of()) {
                    images.complete(copy.job);
                }
                Reply::Done
            }),
            Request::MakeDurable(_) => self.store_all().map_err(|(errno, _)| errno).map(|()| {
                self.make_durable();
                Reply::Done
            }),
            _ => Err(Errno::NOSYS),
        };
        answer.unwrap_or_else(|errno| {
            out.clear();
            if errno == Errno::NOENT {
                self.missing(request, out);
            }
            failed(errno)
        })
    }

    /// The absolute name that a place means, which is not empty.
    fn text(&self, place: &Place<'_>) -> Result<Vec<u8>, Errno> {
        if place.name.is_empty() {
            return Err(Errno::NOENT);
        }
        if place.name.starts_with(b"/") {
            return Ok(place.name.to_vec());
        }
        let mut text = self.folder_name(place.at)?;
        text.push(b'/');
        text.extend_from_slice(place.name);
        Ok(text)
    }

    /// The absolute name of an open folder.
    fn folder_name(&self, handle: u64) -> Result<Vec<u8>, Errno> {
        let folder = self.get(handle)?;
        let metadata = rustix::fs::fstat(&folder.fd)?;
        if rustix::fs::FileType::from_raw_mode(metadata.st_mode) != rustix::fs::FileType::Directory
        {
            return Err(Errno::NOTDIR);
        }
        if metadata.st_nlink == 0 {
            return Err(Errno::NOENT);
        }
        Ok(self.allowed.told(name_now(&folder)?))
    }

    /// What a place means, as an `O_PATH` descriptor, and whether it may be changed.
    fn find(&self, place: &Place<'_>, last: Last) -> Result<Found, Errno> {
        if place.name.is_empty() {
            return self.get(place.at).map(Found::Open);
        }
        let mut flags = OFlags::PATH;
        if last == Last::Kept {
            flags |= OFlags::NOFOLLOW;
        }
        self.allowed.at(&self.text(place)?, last, |spot| {
            Ok(Found::Named {
                fd: spot.open(flags)?,
                writable: spot.writable(),
            })
        })
    }

    /// Attributes of what was found, as the job sees it.
    fn look_found(&self, found: &Found) -> Result<wire::Attributes, Errno> {
        match found {
            Found::Open(file) => self.look_at(file),
            Found::Named { fd, .. } => self.look(fd),
        }
    }

    /// As [`Session::find`], of something that is to be changed.
    fn find_to_change(
        &self,
        place: &Place<'_>,
        last: Last,
        what: &'static str,
    ) -> Result<Found, Errno> {
        let found = self.find(place, last)?;
        if !found.writable() {
            return Err(refuse(what, place.name));
        }
        Ok(found)
    }
}

/// The answer that says so.
pub(crate) fn failed(errno: Errno) -> Reply<'static> {
    Reply::Failed(u16::try_from(errno.raw_os_error()).unwrap_or(5))
}

/// Something that is there.
enum Found {
    Open(Arc<OpenFile>),
    Named { fd: OwnedFd, writable: bool },
}

impl Found {
    fn fd(&self) -> &OwnedFd {
        match self {
            Found::Open(file) => file.stored(),
            Found::Named { fd, .. } => fd,
        }
    }

    fn writable(&self) -> bool {
        match self {
            Found::Open(file) => file.writable,
            Found::Named { writable, .. } => *writable,
        }
    }

    /// A name that leads to it, for calls that take no `O_PATH` descriptor.
    fn name(&self) -> String {
        own_descriptor(self.fd().as_raw_fd())
    }
}

/// The absolute name of something open.
pub(crate) fn name_now(file: &OpenFile) -> Result<Vec<u8>, Errno> {
    let name =
        rustix::fs::readlink(own_descriptor(file.stored().as_raw_fd()), vec![])?.into_bytes();
    if name.ends_with(b" (deleted)") {
        let linked = file.linked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |name: &Vec<u8>| {
            let id = (file.id.device, file.id.inode);
            rustix::fs::lstat(&**name).is_ok_and(|found| (found.st_dev, found.st_ino) == id)
        };
        if let Some(linked) = linked.clone().filter(is_it) {
            return Ok(linked);
        }
    }
    Ok(name)
}

/// Something may not be changed: EACCES, and a line in the log.
fn refuse(what: &'static str, name: &[u8]) -> Errno {
    let name = Path::new(OsStr::from_bytes(name));
    tracing::info!(what, name = %name.display(), "refused: not allowed");
    Errno::ACCESS
}
