//! The image file: found, and every byte but the pages checked.
//!
//! ```text
//! find -> open -> header -> length -> checksums of all sections -> tables
//! ```
//! # What callers may rely on
//! After [`Image::check_sections`] everything but the contents of memory and files is
//! known to be as it was written. Contents are checked chunk by chunk when they are read.

use crate::abi::*;
use crate::options::Options;
use crate::report::{Failure, Outcome, Raw, Short, failure};
use crate::sys::{self, Errno};
use core::ffi::CStr;
use loader::layout::{self, HEADER_LEN, HEADER_OFFSET, Header, LayoutError, SectionKind};

/// Longest path of an image that is kept.
const PATH_LEN: usize = 4096;

/// An open image.
pub struct Image {
    pub fd: i32,
    pub header: Header,
    path: [u8; PATH_LEN],
    path_len: usize,
}

impl Image {
    /// Opens the image and reads its header.
    pub fn open(options: &Options, argv0: &CStr, exec_name: &CStr) -> Outcome<Image> {
        let mut path = [0; PATH_LEN];
        let (fd, path_len) = match options.image_fd {
            Some(fd) => {
                let len = name_of(fd, options.image_name.unwrap_or(argv0), &mut path);
                let _ = sys::fcntl(fd, F_SETFD, FD_CLOEXEC);
                (fd, len)
            }
            None => open_self(argv0, exec_name, &mut path)?,
        };
        let header = read_header(fd)?;
        Ok(Image {
            fd,
            header,
            path,
            path_len,
        })
    }

    /// The path, for messages and to find base images beside it.
    pub fn path(&self) -> &[u8] {
        &self.path[..self.path_len]
    }

    /// Checks the length of the file and the checksums of all sections but Header and Pages.
    pub fn check_sections(&self, buffer: &mut [u8]) -> Outcome<()> {
        check_length(self.fd, &self.header)?;
        for kind in SectionKind::ALL {
            if !matches!(kind, SectionKind::Header | SectionKind::Pages) {
                self.check_section(kind, buffer)?;
            }
        }
        Ok(())
    }

    fn check_section(&self, kind: SectionKind, buffer: &mut [u8]) -> Outcome<()> {
        let section = *self.header.section(kind);
        let mut hasher = blake3::Hasher::new();
        let mut done = 0;
        while done < section.len {
            let len = (section.len - done).min(buffer.len() as u64) as usize;
            let part = &mut buffer[..len];
            self.read_part(kind.name(), section.offset + done, part)?;
            hasher.update(part);
            done += len as u64;
        }
        compare(kind.name(), &hasher.finalize().into(), &section.hash)
    }

    /// Reads the used bytes of a section and checks what was read, not what was read before.
    pub fn read_section(&self, kind: SectionKind, to: &mut [u8]) -> Outcome<()> {
        let section = *self.header.section(kind);
        let whole = to.get_mut(..section.len as usize);
        let whole = whole.ok_or_else(|| failure!(Image, "section {}: too long", kind.name()))?;
        self.read_part(kind.name(), section.offset, whole)?;
        compare(kind.name(), blake3::hash(whole).as_bytes(), &section.hash)?;
        let padding = &whole[section.used as usize..];
        let found = padding.iter().position(|byte| *byte != 0);
        check_padding(kind.name(), found.map(|at| at as u64))
    }

    /// Reads bytes of the pages that belong to no chunk: they must be zero.
    pub fn read_gap(&self, offset: u64, to: &mut [u8]) -> Outcome<()> {
        let name = SectionKind::Pages.name();
        self.read_part(name, offset, to)?;
        match to.iter().position(|byte| *byte != 0) {
            None => Ok(()),
            Some(at) => {
                let (at, found) = (offset + at as u64, to[at]);
                Err(failure!(
                    Image,
                    "section {name}: byte {at} of the file belongs to no chunk: found {found}, expected 0"
                ))
            }
        }
    }

    /// Reads bytes of a section, all of them or an error.
    pub fn read_part(&self, name: &str, offset: u64, to: &mut [u8]) -> Outcome<()> {
        let found = sys::pread_full(self.fd, to, offset).map_err(unreadable(name))?;
        if found != to.len() {
            let expected = to.len();
            return Err(failure!(
                Image,
                "section {name}: found {found} bytes at {offset}, expected {expected}"
            ));
        }
        Ok(())
    }
}

/// Whether a section is what it was written as.
pub fn compare(name: &str, found: &layout::Hash, expected: &layout::Hash) -> Outcome<()> {
    if found == expected {
        return Ok(());
    }
    Err(failure!(
        Image,
        "section {name}: damaged, blake3 found {}, expected {}",
        Short(found),
        Short(expected)
    ))
}

/// `not_zero`: the first byte of a section's padding that is not.
pub fn check_padding(name: &str, not_zero: Option<u64>) -> Outcome<()> {
    match not_zero {
        None => Ok(()),
        Some(at) => Err(failure!(
            Image,
            "section {name}: byte {at} of its padding is not 0"
        )),
    }
}

fn unreadable(what: &str) -> impl Fn(Errno) -> Failure + '_ {
    move |error| failure!(Image, "section {what}: cannot be read ({error})")
}

fn stat(fd: i32) -> Outcome<Stat> {
    sys::stat(fd).map_err(|error| failure!(Image, "descriptor {fd} cannot be looked at ({error})"))
}

/// Whether the file is as long as its header says.
pub fn check_length(fd: i32, header: &Header) -> Outcome<()> {
    let found = stat(fd)?.size as u64;
    let expected = header.image_len;
    if found != expected {
        return Err(failure!(
            Image,
            "length: found {found} bytes, expected {expected}; the file has been {}",
            match found < expected {
                true => "cut short",
                false => "added to",
            }
        ));
    }
    Ok(())
}

/// Reads and checks the header of an image file.
pub fn read_header(fd: i32) -> Outcome<Header> {
    let mode = stat(fd)?.mode & S_IFMT;
    if mode != S_IFREG {
        return Err(failure!(
            Image,
            "found a file of kind {mode:#o}, expected a regular file ({S_IFREG:#o})"
        ));
    }
    let mut page = [0; HEADER_LEN];
    let name = SectionKind::Header.name();
    let found = sys::pread_full(fd, &mut page, HEADER_OFFSET).map_err(unreadable(name))?;
    Header::decode(&page[..found]).map_err(|error| match error {
        LayoutError::Short { found, expected } => {
            failure!(
                Image,
                "section {name}: found {found} bytes, expected {expected}"
            )
        }
        LayoutError::Magic => failure!(Image, "section {name}: not a wayfarer image (wrong magic)"),
        LayoutError::Version { found } => failure!(
            Image,
            "section {name}: format version: found {found}, expected {}",
            layout::FORMAT_VERSION
        ),
        LayoutError::HeaderHash => failure!(
            Image,
            "section {name}: damaged, its checksum does not match"
        ),
        LayoutError::Sections { index } => {
            failure!(
                Image,
                "section {name}: entry {index} of the section table does not fit"
            )
        }
        LayoutError::TooLong { kind, found, limit } => failure!(
            Image,
            "section {}: found {found} bytes, expected {limit} at most",
            kind.name()
        ),
        LayoutError::Table(error) => failure!(Image, "section {name}: {error}"),
    })
}

fn keep(bytes: &[u8], path: &mut [u8; PATH_LEN]) -> usize {
    let len = bytes.len().min(PATH_LEN - 1);
    path[..len].copy_from_slice(&bytes[..len]);
    path[len..].fill(0);
    len
}

/// What `/proc` says a descriptor is, else what whoever opened it calls it, or the name the program was started under.
fn name_of(fd: i32, otherwise: &CStr, path: &mut [u8; PATH_LEN]) -> usize {
    let mut link = [0u8; 40];
    let mut at = b"/proc/self/fd/".len();
    link[..at].copy_from_slice(b"/proc/self/fd/");
    let mut digits = [0u8; 10];
    let mut count = 0;
    let mut rest = fd;
    loop {
        digits[count] = b'0' + (rest % 10) as u8;
        count += 1;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    for digit in digits[..count].iter().rev() {
        link[at] = *digit;
        at += 1;
    }
    let mut found = [0; PATH_LEN];
    if let Ok(link) = CStr::from_bytes_until_nul(&link)
        && let Ok(name) = sys::read_link(link, &mut found)
        && name.first() == Some(&b'/')
    {
        return keep(name, path);
    }
    keep(otherwise.to_bytes(), path)
}

fn open_self(argv0: &CStr, exec_name: &CStr, path: &mut [u8; PATH_LEN]) -> Outcome<(i32, usize)> {
    let own = c"/proc/self/exe";
    let mut link = [0; PATH_LEN];
    // Not the name: the file may have been renamed or replaced since. That it is an image whose loader
    // is linked for where we are is checked with its header.
    if let Ok(fd) = sys::open(own, O_RDONLY) {
        let len = match sys::read_link(own, &mut link) {
            Ok(name) => keep(name, path),
            Err(_) => keep(argv0.to_bytes(), path),
        };
        return Ok((fd, len));
    }
    let len = keep(exec_name.to_bytes(), path);
    match sys::open(exec_name, O_RDONLY) {
        Ok(fd) => Ok((fd, len)),
        Err(error) => Err(failure!(
            Failed,
            "{}: the image cannot be opened ({error})",
            Raw(exec_name.to_bytes())
        )),
    }
}
