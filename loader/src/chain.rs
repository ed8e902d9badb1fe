//! The image files that contents lie in: the image itself and those it is based on; one chunk read and checked.
//!
//! # What callers may rely on
//! Bytes are hashed after they were read, and are those that the image's table names.

use crate::abi::*;
use crate::context::{Context, Own};
use crate::image::{check_length, read_header};
use crate::report::{Failure, Line, Outcome, Raw, Short, failure};
use crate::sys;
use crate::zstd;
use core::ffi::CStr;
use core::fmt;
use loader::layout::{CHUNK, Chunk, Encoding, Extent, SectionKind, damage_part, damage_sum};

/// Opens the folder of the image, if there are earlier images to be looked for in it.
pub fn open_folder(context: &mut Context) {
    if context.extents.base_count() == 0 {
        return;
    }
    let path = context.image.path();
    let mut folder = [0u8; 4097];
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => folder[0] = b'/',
        Some(at) => folder[..at].copy_from_slice(&path[..at]),
        None => folder[0] = b'.',
    }
    let folder = CStr::from_bytes_until_nul(&folder).unwrap_or(c".");
    if let Ok(fd) = sys::open(folder, O_PATH | O_DIRECTORY) {
        context.place(Own::Folder, fd);
    }
}

/// An open image of the chain; closed with the value.
pub struct ChainFile {
    fd: i32,
    own: bool,
    /// Its number in the tables.
    pub number: u32,
    pages: core::ops::Range<u64>,
}

impl Drop for ChainFile {
    fn drop(&mut self) {
        if self.own {
            sys::close(self.fd);
        }
    }
}

/// Opens image `number` of the chain: 0 is the image itself.
pub fn open_image(context: &Context, number: u32) -> Outcome<ChainFile> {
    let pages = |header: &loader::layout::Header| {
        let section = header.section(SectionKind::Pages);
        section.offset..section.offset + section.len
    };
    if number == 0 {
        return Ok(ChainFile {
            fd: context.fd(Own::Image),
            own: false,
            number,
            pages: pages(&context.image.header),
        });
    }
    let Ok(base) = context.extents.base(u64::from(number) - 1);
    let base = base.ok_or_else(|| failure!(Image, "section .wf.extents: no base {number}"))?;
    let mut name = [0u8; 225];
    name[..224].copy_from_slice(&base.name);
    let name = CStr::from_bytes_until_nul(&name).unwrap_or(c"");
    let shown = Raw(name.to_bytes());
    if name.is_empty() || name.to_bytes().contains(&b'/') {
        return Err(failure!(
            Image,
            "section .wf.extents: base {number}: {shown} is no file name"
        ));
    }
    // Opening a FIFO must not wait for somebody at its other end.
    let flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    let fd = sys::open_at(context.fd(Own::Folder), name, flags, 0).map_err(|error| {
        failure!(
            Image,
            "base image {shown} cannot be opened beside the image ({error})"
        )
    })?;
    // Out of the way of the job's descriptors.
    let place = context.own_number(Own::Base) as i32;
    let fd = if !context.is_run() && fd != place && sys::dup_to(fd, place).is_ok() {
        sys::close(fd);
        place
    } else {
        fd
    };
    let mut file = ChainFile {
        fd,
        own: true,
        number,
        pages: 0..0,
    };
    let header = read_header(fd)
        .and_then(|header| check_length(fd, &header).map(|()| header))
        .map_err(|failure| prefixed(name.to_bytes(), &failure))?;
    if header.id != base.id {
        return Err(failure!(
            Image,
            "base image {shown}: found id {}, expected {}",
            Short(&header.id),
            Short(&base.id)
        ));
    }
    file.pages = pages(&header);
    Ok(file)
}

fn prefixed(name: &[u8], failure: &Failure) -> Failure {
    let mut line = Line::new();
    line.push(b"base image ");
    line.push(name);
    line.push(b": ");
    line.push(failure.line.bytes());
    Failure {
        exit: failure.exit,
        line,
        is_said: failure.is_said,
    }
}

/// Reads one chunk and checks it. `scratch` is for chunks that are not stored as they are.
pub fn read_from(
    context: &Context,
    file: &ChainFile,
    extent: &Extent,
    index: u64,
    to: &mut [u8],
    scratch: &mut [u8],
) -> Outcome<()> {
    let (chunk, label) = locate(context, file, extent, index, to.len())?;
    if extent.encoding == Encoding::Raw as u32 {
        return read_stored(file.fd, &chunk, &label, to);
    }
    let stored = scratch.split_at_mut_checked(chunk.stored_len as usize);
    let (stored, rest) = stored.ok_or_else(|| failure!(Image, "{label}: too long"))?;
    read_stored(file.fd, &chunk, &label, stored)?;
    zstd::decode(stored, to, rest).map_err(|what| failure!(Image, "{label}: {what}"))
}

/// Checks a chunk as it is stored, without unpacking it.
pub fn check_stored(
    context: &Context,
    file: &ChainFile,
    extent: &Extent,
    index: u64,
    scratch: &mut [u8],
) -> Outcome<()> {
    let len = CHUNK.min(extent.len - index * CHUNK) as usize;
    let (chunk, label) = locate(context, file, extent, index, len)?;
    let stored = scratch.get_mut(..chunk.stored_len as usize);
    let stored = stored.ok_or_else(|| failure!(Image, "{label}: too long"))?;
    read_stored(file.fd, &chunk, &label, stored)
}

/// Chunk `index` of an extent, which must be `len` bytes long in memory.
fn locate(
    context: &Context,
    file: &ChainFile,
    extent: &Extent,
    index: u64,
    len: usize,
) -> Outcome<(Chunk, ChunkName)> {
    let number = extent.first_chunk + index;
    let pages = SectionKind::Pages.name();
    let Ok(chunk) = context.extents.chunk(number);
    let chunk = chunk
        .filter(|chunk| chunk.raw_len as usize == len)
        .ok_or_else(|| failure!(Image, "section .wf.extents: no chunk {number}"))?;
    let end = chunk.offset.saturating_add(u64::from(chunk.stored_len));
    let image = file.number;
    if chunk.offset < file.pages.start || end > file.pages.end {
        return Err(failure!(
            Image,
            "section {pages}: chunk {number} lies outside image {image}"
        ));
    }
    Ok((chunk, ChunkName { number, image }))
}

/// A chunk, for messages.
struct ChunkName {
    number: u64,
    image: u32,
}

impl fmt::Display for ChunkName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages = SectionKind::Pages.name();
        write!(to, "section {pages}: chunk {}", self.number)?;
        match self.image {
            0 => Ok(()),
            base => write!(to, " (in base image {base})"),
        }
    }
}

/// Reads the bytes of a chunk as they are in the file, and checks them.
fn read_stored(fd: i32, chunk: &Chunk, label: &ChunkName, to: &mut [u8]) -> Outcome<()> {
    let expected = to.len();
    let found = sys::pread_full(fd, to, chunk.offset)
        .map_err(|error| failure!(Image, "{label}: cannot be read ({error})"))?;
    if found != expected {
        return Err(failure!(
            Image,
            "{label}: found {found} bytes, expected {expected}"
        ));
    }
    let (found, expected) = (damage_sum(to), damage_part(&chunk.hash));
    if found != expected {
        return Err(failure!(
            Image,
            "{label}: damaged, xxh3 found {}, expected {}",
            Short(&found),
            Short(expected)
        ));
    }
    Ok(())
}

/// Reads one chunk of an extent, wherever in the chain it is.
pub fn read_chunk(
    context: &Context,
    extent: &Extent,
    index: u64,
    to: &mut [u8],
    scratch: &mut [u8],
) -> Outcome<()> {
    let file = open_image(context, extent.image)?;
    read_from(context, &file, extent, index, to, scratch)
}

/// Checks every chunk of the image and of those it is based on.
pub fn verify_all(context: &Context) -> Outcome<()> {
    // SAFETY: this process has one thread, and nobody else uses the buffers.
    let buffers = unsafe { context.bytes(context.layout.buffers) };
    let (chunk, scratch) = buffers.split_at_mut(CHUNK as usize);
    for image in 0..=context.extents.base_count() as u32 {
        let file = open_image(context, image)?;
        for Ok(extent) in context.extents.extents() {
            if extent.image != image {
                continue;
            }
            for index in 0..extent.chunk_count() {
                let len = CHUNK.min(extent.len - index * CHUNK) as usize;
                read_from(context, &file, &extent, index, &mut chunk[..len], scratch)?;
            }
        }
    }
    Ok(())
}
