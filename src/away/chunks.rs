//! An image on its way from where its job runs to where it is kept: only what is not there yet.
//!
//! ```text
//! there -> here   magic (8)  length (8)  a checksum (16) of each chunk
//! here  -> there  a bit for each chunk, least first: it is wanted
//! there -> here   the chunks that are wanted, one behind the other
//! here  -> there  GOOD: the image is durable here; nothing, and the end: it is not
//! there -> here   GOOD: the shadow knows it, the image counts
//! ```
//! Numbers are little-endian. Chunks are as long as a page, but for the last; their checksums are the first bytes of BLAKE3's. Memory that has not changed
//! is found wherever it lies in the next image. What an image of before has is taken from there by its checksum, and checked.

use ckpt_lib::pace::Pace;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;

/// Bytes of a chunk.
const CHUNK: u64 = 4 << 10;
/// Bytes that are read at once.
const PORTION: u64 = 1 << 20;
const MAGIC: [u8; 8] = *b"wf-image";
/// The longest image: what would be as long is a mistake.
const LONGEST: u64 = 1 << 40;
/// What is there is read for an image that is at least the so many-th part of it.
const WORTH_READING: u64 = 16;
/// All is well.
pub(crate) const GOOD: u8 = b'k';

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
    /// Those of them that were not there yet.
    pub(crate) sent: u64,
}

fn chunks_of(len: u64) -> impl Iterator<Item = (u64, usize)> {
    (0..len.div_ceil(CHUNK)).map(move |index| {
        let at = index * CHUNK;
        (at, (len - at).min(CHUNK) as usize)
    })
}

/// The checksums of a file's chunks.
fn checksums(file: &File, len: u64) -> io::Result<Vec<Checksum>> {
    let mut portion = vec![0; PORTION as usize];
    let mut sums = vec![];
    let mut at = 0;
    while at < len {
        let size = (len - at).min(PORTION) as usize;
        file.read_exact_at(&mut portion[..size], at)?;
        sums.extend(portion[..size].chunks(CHUNK as usize).map(checksum));
        at += size as u64;
    }
    Ok(sums)
}

/// Sends an image, no faster than so many bytes in a second, and waits until it is durable at the other side.
///
/// # Errors
/// It is not, or nobody knows.
pub(crate) fn send(
    image: &File,
    rate: Option<NonZeroU64>,
    input: &mut dyn Read,
    output: &mut dyn Write,
) -> io::Result<Carried> {
    let pace = rate.map(Pace::new);
    let whole = image.metadata()?.len();
    let sums = checksums(image, whole)?;
    let mut output = BufWriter::with_capacity(PORTION as usize, output);
    output.write_all(&MAGIC)?;
    output.write_all(&whole.to_le_bytes())?;
    output.write_all(&sums.concat())?;
    output.flush()?;
    let mut wanted = vec![0; sums.len().div_ceil(8)];
    input.read_exact(&mut wanted)?;
    let mut portion = vec![0; CHUNK as usize];
    let mut sent = 0;
    for (index, (at, size)) in chunks_of(whole).enumerate() {
        if wanted[index / 8] >> (index % 8) & 1 == 1 {
            image.read_exact_at(&mut portion[..size], at)?;
            if let Some(pace) = &pace {
                pace.pass(size as u64);
            }
            output.write_all(&portion[..size])?;
            sent += size as u64;
        }
    }
    output.flush()?;
    hear_good(input)?;
    Ok(Carried { whole, sent })
}

/// The other side says that all is well.
///
/// # Errors
/// It says something else, or nothing any more.
pub(crate) fn hear_good(input: &mut dyn Read) -> io::Result<()> {
    let mut word = [0];
    input.read_exact(&mut word)?;
    match word == [GOOD] {
        true => Ok(()),
        false => Err(wrong(format!("it said {word:?}, expected {GOOD}"))),
    }
}

/// Receives an image into `file`, which is empty, with what those `before` have of it; each chunk has the checksum that was said.
///
/// # Errors
/// The line ended, the disk is full, or what came is not what was said.
pub(crate) fn receive(
    file: &File,
    before: &[File],
    input: &mut dyn Read,
    output: &mut dyn Write,
) -> io::Result<Carried> {
    // The other side says nothing behind what is awaited.
    let mut input = BufReader::with_capacity(PORTION as usize, input);
    let mut head = [0; 16];
    input.read_exact(&mut head)?;
    let (magic, len) = head.split_at(8);
    let whole = u64::from_le_bytes(len.try_into().map_err(io::Error::other)?);
    if magic != MAGIC || whole > LONGEST {
        let found = String::from_utf8_lossy(magic);
        return Err(wrong(format!(
            "found {found:?} and {whole} bytes, expected an image of at most {LONGEST}"
        )));
    }
    let mut sums: Vec<Checksum> = vec![];
    for _ in chunks_of(whole) {
        let mut sum = Checksum::default();
        input.read_exact(&mut sum)?;
        sums.push(sum);
    }
    let known = places(before, whole)?;
    file.set_len(whole)?;
    let mut wanted = vec![0u8; sums.len().div_ceil(8)];
    let mut portion = vec![0; CHUNK as usize];
    for (index, (at, size)) in chunks_of(whole).enumerate() {
        let sum = &sums[index];
        let there = known.get(sum).is_some_and(|(before, from)| {
            let part = &mut portion[..size];
            // It may be damaged since it was looked at, or end earlier.
            before.read_exact_at(part, *from).is_ok() && checksum(part) == *sum
        });
        match there {
            true => file.write_all_at(&portion[..size], at)?,
            false => wanted[index / 8] |= 1 << (index % 8),
        }
    }
    output.write_all(&wanted)?;
    output.flush()?;
    let mut sent = 0;
    for (index, (at, size)) in chunks_of(whole).enumerate() {
        if wanted[index / 8] >> (index % 8) & 1 == 0 {
            continue;
        }
        let part = &mut portion[..size];
        input.read_exact(part)?;
        if checksum(part) != sums[index] {
            return Err(wrong(format!(
                "the chunk at {at} has another checksum than was said"
            )));
        }
        file.write_all_at(part, at)?;
        sent += size as u64;
    }
    Ok(Carried { whole, sent })
}

/// Where each chunk of these images lies, by its checksum. What is much smaller than they are comes sooner than they can be read.
fn places(before: &[File], whole: u64) -> io::Result<HashMap<Checksum, (&File, u64)>> {
    let lens = before.iter().map(|image| Ok(image.metadata()?.len()));
    let lens = lens.collect::<io::Result<Vec<u64>>>()?;
    let mut places = HashMap::new();
    if whole < lens.iter().sum::<u64>() / WORTH_READING {
        return Ok(places);
    }
    for (image, len) in before.iter().zip(lens) {
        let sums = checksums(image, len)?.into_iter();
        places.extend(
            sums.zip(chunks_of(len))
                .map(|(sum, (at, _))| (sum, (image, at))),
        );
    }
    Ok(places)
}

fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(bytes).expect("writes");
        file
    }

    fn contents(file: &File) -> Vec<u8> {
        let mut bytes = vec![0; file.metadata().expect("is there").len() as usize];
        file.read_exact_at(&mut bytes, 0).expect("reads");
        bytes
    }

    fn random(len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let mut reader = blake3::Hasher::new().update(b"some").finalize_xof();
        reader.fill(&mut bytes);
        bytes
    }

    fn carried(image: &[u8], before: &[&[u8]]) -> (Carried, Vec<u8>) {
        let (mut there, mut here) = UnixStream::pair().expect("a pair");
        let image = file(image);
        let sending = std::thread::spawn(move || {
            let mut input = there.try_clone().expect("a copy");
            send(&image, None, &mut input, &mut there)
        });
        let before: Vec<File> = before.iter().map(|bytes| file(bytes)).collect();
        let to = file(&[]);
        let mut input = here.try_clone().expect("a copy");
        let carried = receive(&to, &before, &mut input, &mut here).expect("comes");
        here.write_all(&[GOOD]).expect("is told");
        assert_eq!(sending.join().expect("ends").expect("is sent"), carried);
        (carried, contents(&to))
    }

    #[test]
    fn only_what_is_not_there_is_sent() {
        let image = random(5 * CHUNK as usize + 77);
        let (whole, copy) = carried(&image, &[]);
        assert_eq!((whole.sent, &copy), (image.len() as u64, &image));
        let mut next = image.clone();
        next[CHUNK as usize + 5] ^= 1;
        let (some, copy) = carried(&next, &[&image]);
        assert_eq!((some.sent, &copy), (CHUNK, &next));
        // Moved by whole chunks, and shorter.
        let (none, copy) = carried(&image[CHUNK as usize..], &[&image]);
        assert_eq!((none.sent, &copy[..]), (0, &image[CHUNK as usize..]));
        assert_eq!(carried(&[], &[&image]).1, b"");
        // What lies in two, and what is too little to be looked for.
        let (none, copy) = carried(&image, &[&image[..8192], &image[8192..]]);
        assert_eq!((none.sent, &copy), (0, &image));
        let much = random(40 * CHUNK as usize);
        let (little, _) = carried(&much[..CHUNK as usize], &[&much]);
        assert_eq!(little.sent, CHUNK);
    }

    #[test]
    fn what_is_no_image_or_another_is_refused() {
        let mut sums = MAGIC.to_vec();
        sums.extend(3u64.to_le_bytes());
        sums.extend(checksum(b"abc"));
        let tried = |bytes: &[u8]| {
            let mut said = vec![];
            receive(&file(&[]), &[], &mut &bytes[..], &mut said)
        };
        let sound = [&sums[..], b"abc"].concat();
        assert_eq!(tried(&sound).expect("is sound").sent, 3);
        let other = tried(&[&sums[..], b"abd"].concat()).expect_err("another");
        assert!(other.to_string().contains("another checksum"), "{other}");
        for len in 0..sound.len() {
            assert!(tried(&sound[..len]).is_err(), "{len}");
        }
        let long = [&MAGIC[..], &u64::MAX.to_le_bytes()].concat();
        let error = tried(&long).expect_err("too long");
        assert!(error.to_string().contains("at most"), "{error}");
        assert!(tried(b"Welcome to this machine").is_err());
    }
}
