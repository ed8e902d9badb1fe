//! An image on its way from where its job runs to where it is kept: only what is not there yet.
//!
//! ```text
//! here  -> there  magic (8)  number (8)  a checksum (16) of each page of the images that are here
//! there -> here   magic (8)  pieces, in any order:
//!                   place (8)  pages (4)  a bit for each page, least first: it is here;  then of each page the checksum if it is here, else the bytes
//!                 the last: 8 × ff, length of the image (8)
//! here  -> there  at any time: RATE, bytes in a second (8), 0: as fast as they can
//! here  -> there  WHY, length (2), text: why it is not taken, and the end
//! here  -> there  GOOD: the image is durable here; ABORT, or the end, at any time: it is not, and is not wanted
//! there -> here   FILE, length (2), a name: the job wants a copy of its images there. Left out if it does not
//! there -> here   GOOD: the shadow knows it, the image counts
//! ```
//! Numbers are little-endian. Checksums are the first bytes of BLAKE3's. Memory that has not changed is found wherever it lies in the next image.
//! Pieces need no checksum: who receives them reads the image by its tables, which have one of each chunk.

mod receive;
mod send;
#[cfg(test)]
mod tests;

pub(crate) use receive::{Reception, receive, while_synced};
pub(crate) use send::Sender;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const PAGE: usize = 4 << 10;
/// Pages of a piece, at most.
const MOST_PAGES: usize = 1 << 10;
/// Bytes that are read at once.
const PORTION: usize = 1 << 20;
const MAGIC: [u8; 8] = *b"wf-pages";
/// In the place of a piece's: there is none any more.
const NO_MORE: u64 = u64::MAX;
/// The longest image: what would be as long is a mistake.
const LONGEST: u64 = 1 << 40;
/// All is well.
pub(crate) const GOOD: u8 = b'k';
/// The image is not wanted any more.
const ABORT: u8 = b'a';
/// A name follows.
const FILE: u8 = b'f';
/// Why the image is not taken follows.
const WHY: u8 = b'w';
/// No faster than that from now on.
const RATE: u8 = b'r';
/// Between two looks whether somebody wants another rate.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

type Checksum = [u8; 16];

fn checksum(bytes: &[u8]) -> Checksum {
    let mut sum = Checksum::default();
    sum.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
    sum
}

/// How much went along the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    /// Bytes of the image.
    pub(crate) whole: u64,
    /// Those that were not there yet.
    pub(crate) sent: u64,
}

/// The last that is said of an image that counts.
pub(crate) fn end_said(wanted: Option<&Path>) -> Vec<u8> {
    let mut said = vec![];
    let name = wanted.map(|name| name.as_os_str().as_bytes());
    if let Some((name, len)) = name.and_then(|name| Some((name, u16::try_from(name.len()).ok()?))) {
        said.push(FILE);
        said.extend(len.to_le_bytes());
        said.extend(name);
    }
    said.push(GOOD);
    said
}

/// Says why an image is not taken.
///
/// # Errors
/// Nobody hears it.
pub(crate) fn say_why_not(output: &mut dyn Write, why: &str) -> io::Result<()> {
    let mut end = why.len().min(usize::from(u16::MAX));
    while !why.is_char_boundary(end) {
        end -= 1;
    }
    let len = (end as u16).to_le_bytes();
    output.write_all(&[&[WHY], &len[..], &why.as_bytes()[..end]].concat())?;
    output.flush()
}

/// The other side says that the image counts, and where the job wants a copy of it.
///
/// # Errors
/// It says something else, or nothing any more.
pub(crate) fn hear_end(input: &mut dyn Read) -> io::Result<Option<PathBuf>> {
    let mut wanted = None;
    loop {
        let mut word = [0];
        input.read_exact(&mut word)?;
        match word[0] {
            GOOD => return Ok(wanted),
            FILE if wanted.is_none() => {
                let mut len = [0; 2];
                input.read_exact(&mut len)?;
                let mut name = vec![0; usize::from(u16::from_le_bytes(len))];
                input.read_exact(&mut name)?;
                wanted = Some(PathBuf::from(OsString::from_vec(name)));
            }
            word => return Err(wrong(format!("it said {word}, expected {GOOD}"))),
        }
    }
}

fn hear_magic(input: &mut dyn Read) -> io::Result<()> {
    let mut magic = [0; 8];
    input.read_exact(&mut magic)?;
    if magic != MAGIC {
        let (found, expected) = (
            String::from_utf8_lossy(&magic),
            String::from_utf8_lossy(&MAGIC),
        );
        return Err(wrong(format!("found {found:?}, expected {expected:?}")));
    }
    Ok(())
}

fn read_number(input: &mut dyn Read) -> io::Result<u64> {
    let mut number = [0; 8];
    input.read_exact(&mut number)?;
    Ok(u64::from_le_bytes(number))
}

fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
