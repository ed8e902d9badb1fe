//! An image on its way from where its job runs to where it is kept: only what is not there yet.
//!
//! ```text
//! here  -> there  magic (8)  number (8)  a checksum (16) of each page of the images that are here
//! there -> here   magic (8)  pieces, in any order:
//!                   place (8)  pages (4)  a bit for each page, least first: it is here;  then of each page the checksum if it is here, else the bytes
//!                 the last: 8 × ff, length of the image (8)
//! here  -> there  GOOD: the image is durable here; nothing, and the end: it is not
//! there -> here   GOOD: the shadow knows it, the image counts
//! ```
//! Numbers are little-endian. Checksums are the first bytes of BLAKE3's. Memory that has not changed is found wherever it lies in the next image.
//! Pieces need no checksum: who receives them reads the image by its tables, which have one of each chunk.

use ckpt_lib::image::{Away, write_behind};
use ckpt_lib::pace::Pace;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, IoSlice, Read, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

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

/// The line to where an image is kept; by several threads.
pub(crate) struct Sender {
    /// Pages that are there.
    known: HashSet<Checksum>,
    pace: Option<Pace>,
    line: Mutex<SenderLine>,
}

struct SenderLine {
    output: BufWriter<Box<dyn Write + Send>>,
    has_begun: bool,
    sent: u64,
}

impl fmt::Debug for Sender {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Sender({} pages are there)", self.known.len())
    }
}

impl Sender {
    /// Hears which pages are there; others go there no faster than so many bytes in a second.
    ///
    /// # Errors
    /// The line ended, or something else was said.
    pub(crate) fn begin(
        rate: Option<NonZeroU64>,
        input: &mut dyn Read,
        output: impl Write + Send + 'static,
    ) -> io::Result<Self> {
        let mut input = BufReader::with_capacity(PORTION, input);
        hear_magic(&mut input)?;
        let number = read_number(&mut input)?;
        if number > LONGEST / PAGE as u64 {
            return Err(wrong(format!("found {number} pages that are there")));
        }
        let mut known = HashSet::new();
        for _ in 0..number {
            let mut sum = Checksum::default();
            input.read_exact(&mut sum)?;
            known.insert(sum);
        }
        let output: Box<dyn Write + Send> = Box::new(output);
        Ok(Sender {
            known,
            pace: rate.map(Pace::new),
            line: Mutex::new(SenderLine {
                output: BufWriter::new(output),
                has_begun: false,
                sent: 0,
            }),
        })
    }

    /// Part of a file that is part of the image, at the same place.
    ///
    /// # Errors
    /// It cannot be read, or the line ended.
    pub(crate) fn put_file(&self, file: &File, part: std::ops::Range<u64>) -> io::Result<()> {
        let mut portion = vec![0; PORTION];
        let mut at = part.start;
        while at < part.end {
            let size = (part.end - at).min(PORTION as u64) as usize;
            file.read_exact_at(&mut portion[..size], at)?;
            self.put(at, &[IoSlice::new(&portion[..size])])?;
            at += size as u64;
        }
        Ok(())
    }

    /// All of it has been put; waits until it is durable there.
    ///
    /// # Errors
    /// It is not, or nobody knows.
    pub(crate) fn end(&self, whole: u64, input: &mut dyn Read) -> io::Result<Carried> {
        let sent = {
            let mut line = self.line();
            line.begin()?;
            line.output.write_all(&NO_MORE.to_le_bytes())?;
            line.output.write_all(&whole.to_le_bytes())?;
            line.output.flush()?;
            line.sent
        };
        hear_good(input)?;
        Ok(Carried { whole, sent })
    }

    fn line(&self) -> std::sync::MutexGuard<'_, SenderLine> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn piece(&self, at: u64, pages: &[&[u8]]) -> io::Result<()> {
        let is_known = |sum: &Checksum| self.known.contains(sum);
        let sums: Vec<Option<Checksum>> = match self.known.is_empty() {
            true => vec![None; pages.len()],
            false => pages
                .iter()
                .map(|page| Some(checksum(page)).filter(is_known))
                .collect(),
        };
        let mut bits = vec![0u8; pages.len().div_ceil(8)];
        for (index, _) in sums.iter().enumerate().filter(|(_, sum)| sum.is_some()) {
            bits[index / 8] |= 1 << (index % 8);
        }
        let unknown = sums.iter().filter(|sum| sum.is_none()).count();
        if let Some(pace) = &self.pace {
            pace.pass((unknown * PAGE) as u64);
        }
        let mut line = self.line();
        line.begin()?;
        let head = [
            &at.to_le_bytes()[..],
            &(pages.len() as u32).to_le_bytes(),
            &bits,
        ]
        .concat();
        line.output.write_all(&head)?;
        for (page, sum) in pages.iter().zip(&sums) {
            match sum {
                Some(sum) => line.output.write_all(sum)?,
                None => line.output.write_all(page)?,
            }
        }
        line.sent += (unknown * PAGE) as u64;
        Ok(())
    }
}

impl SenderLine {
    /// Nothing is said before there is something to be said: what could not be begun ends without a word.
    fn begin(&mut self) -> io::Result<()> {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.output.write_all(&MAGIC)?;
        }
        Ok(())
    }
}

impl Away for Sender {
    fn put(&self, at: u64, bytes: &[IoSlice<'_>]) -> io::Result<()> {
        let pages: Vec<&[u8]> = bytes.iter().flat_map(|part| part.chunks(PAGE)).collect();
        if !at.is_multiple_of(PAGE as u64) || pages.iter().any(|page| page.len() != PAGE) {
            return Err(wrong(format!("what lies at {at} is not made of pages")));
        }
        for (index, some) in pages.chunks(MOST_PAGES).enumerate() {
            self.piece(at + (index * MOST_PAGES * PAGE) as u64, some)?;
        }
        Ok(())
    }
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

/// Receives an image into `file`, which is empty, with what those `before` have of it. What came is an image only if it can be read as one.
///
/// # Errors
/// The line ended, the disk is full, or what came is not what is said.
pub(crate) fn receive(
    file: &File,
    before: &[File],
    input: &mut dyn Read,
    output: &mut dyn Write,
) -> io::Result<Carried> {
    let places = places(before)?;
    tell_known(&places, output)?;
    // The other side says nothing behind the last piece before it is answered.
    let mut input = BufReader::with_capacity(PORTION, input);
    hear_magic(&mut input)?;
    let mut sent = 0;
    let mut pages = vec![];
    loop {
        let at = read_number(&mut input)?;
        if at == NO_MORE {
            let whole = read_number(&mut input)?;
            check_length(whole)?;
            file.set_len(whole)?;
            return Ok(Carried { whole, sent });
        }
        sent += receive_piece(&mut input, &places, &mut pages)?;
        check_length(at.saturating_add(pages.len() as u64))?;
        file.write_all_at(&pages, at)?;
        write_behind(file, at, pages.len() as u64);
    }
}

/// Fills `pages`; how many bytes of them have come.
fn receive_piece(
    input: &mut dyn Read,
    places: &Places<'_>,
    pages: &mut Vec<u8>,
) -> io::Result<u64> {
    let mut number = [0; 4];
    input.read_exact(&mut number)?;
    let number = u32::from_le_bytes(number) as usize;
    if number == 0 || number > MOST_PAGES {
        return Err(wrong(format!(
            "found a piece of {number} pages, expected 1 to {MOST_PAGES}"
        )));
    }
    let mut bits = vec![0; number.div_ceil(8)];
    input.read_exact(&mut bits)?;
    pages.resize(number * PAGE, 0);
    let is_here = |index: usize| bits[index / 8] >> (index % 8) & 1 == 1;
    let mut sent = 0;
    let mut index = 0;
    while index < number {
        if is_here(index) {
            let mut sum = Checksum::default();
            input.read_exact(&mut sum)?;
            places.read(&sum, &mut pages[index * PAGE..][..PAGE])?;
            index += 1;
            continue;
        }
        let end = (index..number).find(|next| is_here(*next));
        let end = end.unwrap_or(number);
        input.read_exact(&mut pages[index * PAGE..end * PAGE])?;
        sent += ((end - index) * PAGE) as u64;
        index = end;
    }
    Ok(sent)
}

fn check_length(len: u64) -> io::Result<()> {
    if len > LONGEST || !len.is_multiple_of(PAGE as u64) {
        return Err(wrong(format!(
            "found {len} bytes, expected an image of at most {LONGEST}, of whole pages"
        )));
    }
    Ok(())
}

/// Where each page of images lies, by its checksum.
struct Places<'a> {
    images: &'a [File],
    /// Number of the image, and place in it.
    pages: HashMap<Checksum, (usize, u64)>,
}

fn places(images: &[File]) -> io::Result<Places<'_>> {
    let mut pages = HashMap::new();
    for (number, image) in images.iter().enumerate() {
        let sums = page_sums(image)?.into_iter().enumerate();
        pages.extend(sums.map(|(index, sum)| (sum, (number, (index * PAGE) as u64))));
    }
    Ok(Places { images, pages })
}

impl Places<'_> {
    fn read(&self, sum: &Checksum, page: &mut [u8]) -> io::Result<()> {
        let Some((number, at)) = self.pages.get(sum) else {
            return Err(wrong("found a page that is not here".to_owned()));
        };
        self.images[*number].read_exact_at(page, *at)?;
        match checksum(page) == *sum {
            true => Ok(()),
            false => Err(wrong(format!(
                "the page at {at} of an image that is here has changed since it was looked at"
            ))),
        }
    }
}

fn tell_known(places: &Places<'_>, output: &mut dyn Write) -> io::Result<()> {
    let mut output = BufWriter::with_capacity(PORTION, output);
    output.write_all(&MAGIC)?;
    output.write_all(&(places.pages.len() as u64).to_le_bytes())?;
    for sum in places.pages.keys() {
        output.write_all(sum)?;
    }
    output.flush()
}

/// The checksums of a file's whole pages, found by several threads.
fn page_sums(file: &File) -> io::Result<Vec<Checksum>> {
    let pages = file.metadata()?.len() / PAGE as u64;
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get().min(4) as u64);
    let share = pages.div_ceil(threads).max(1);
    let shares =
        (0..threads).map(|number| (number * share).min(pages)..((number + 1) * share).min(pages));
    std::thread::scope(|scope| {
        let parts: Vec<_> = shares
            .map(|share| scope.spawn(move || sums_between(file, share)))
            .collect();
        let mut all = vec![];
        for part in parts {
            let sums = part
                .join()
                .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
            all.extend(sums?);
        }
        Ok(all)
    })
}

fn sums_between(file: &File, pages: std::ops::Range<u64>) -> io::Result<Vec<Checksum>> {
    let mut portion = vec![0; PORTION];
    let mut sums = vec![];
    let (mut at, end) = (pages.start * PAGE as u64, pages.end * PAGE as u64);
    while at < end {
        let size = (end - at).min(PORTION as u64) as usize;
        file.read_exact_at(&mut portion[..size], at)?;
        sums.extend(portion[..size].chunks(PAGE).map(checksum));
        at += size as u64;
    }
    Ok(sums)
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

    fn random(pages: usize) -> Vec<u8> {
        let mut bytes = vec![0; pages * PAGE];
        let mut reader = blake3::Hasher::new().update(b"some").finalize_xof();
        reader.fill(&mut bytes);
        bytes
    }

    fn carried(image: &[u8], before: &[&[u8]]) -> (Carried, Vec<u8>) {
        let (mut there, mut here) = UnixStream::pair().expect("a pair");
        let image = file(image);
        let sending = std::thread::spawn(move || {
            let output = there.try_clone()?;
            let sender = Sender::begin(None, &mut there, output)?;
            let len = image.metadata()?.len();
            // Its end first, as contents come before what describes them.
            let middle = len / 2 / PAGE as u64 * PAGE as u64;
            sender.put_file(&image, middle..len)?;
            sender.put_file(&image, 0..middle)?;
            sender.end(len, &mut there)
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
        let image = random(2 * MOST_PAGES + 77);
        let (whole, copy) = carried(&image, &[]);
        assert_eq!((whole.sent, &copy), (image.len() as u64, &image));
        let mut next = image.clone();
        next[PAGE + 5] ^= 1;
        let (some, copy) = carried(&next, &[&image]);
        assert_eq!((some.sent, &copy), (PAGE as u64, &next));
        // Moved by whole pages, and shorter.
        let (none, copy) = carried(&image[PAGE..], &[&image]);
        assert_eq!((none.sent, &copy[..]), (0, &image[PAGE..]));
        assert_eq!(carried(&[], &[&image]).1, b"");
        // What lies in two, and an end that is no page.
        let (none, copy) = carried(&image, &[&image[..8192], &image[8192..]]);
        assert_eq!((none.sent, &copy), (0, &image));
        let (end, _) = carried(&image[..PAGE], &[&image[..PAGE - 1]]);
        assert_eq!(end.sent, PAGE as u64);
    }

    /// What comes, said by hand.
    fn tried(bytes: &[u8], before: &[File]) -> io::Result<Vec<u8>> {
        let to = file(&[]);
        receive(&to, before, &mut &bytes[..], &mut vec![])?;
        Ok(contents(&to))
    }

    #[test]
    fn what_is_no_image_is_refused() {
        let page = random(1);
        let piece = |at: u64, number: u32| [&at.to_le_bytes()[..], &number.to_le_bytes()].concat();
        let end = |len: u64| [NO_MORE.to_le_bytes(), len.to_le_bytes()].concat();
        let sound = [&MAGIC[..], &piece(0, 1), &[0], &page, &end(4096)].concat();
        assert_eq!(tried(&sound, &[]).expect("is sound"), page);
        for len in 0..sound.len() {
            assert!(tried(&sound[..len], &[]).is_err(), "{len}");
        }
        let here = [&MAGIC[..], &piece(0, 1), &[1], &checksum(&page), &end(4096)].concat();
        assert_eq!(tried(&here, &[file(&page)]).expect("is here"), page);
        for (bytes, why) in [
            (here, "not here"),
            (b"Welcome to this machine".to_vec(), "expected \"wf-pages\""),
            ([&MAGIC[..], &piece(0, 0)].concat(), "a piece of 0 pages"),
            ([&MAGIC[..], &piece(0, 1025)].concat(), "of 1025 pages"),
            ([&MAGIC[..], &end(1 << 41)].concat(), "at most"),
            ([&MAGIC[..], &end(100)].concat(), "whole pages"),
            (
                [&MAGIC[..], &piece(1 << 40, 1), &[0], &page].concat(),
                "at most",
            ),
            (
                [&MAGIC[..], &piece(7, 1), &[0], &page].concat(),
                "whole pages",
            ),
        ] {
            let error = tried(&bytes, &[]).expect_err(why);
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn who_says_what_is_there_says_nothing_else() {
        let begin = |bytes: &[u8]| Sender::begin(None, &mut &bytes[..], io::sink()).map(drop);
        let sound = [&MAGIC[..], &1u64.to_le_bytes(), &[7; 16]].concat();
        begin(&sound).expect("is sound");
        for len in 0..sound.len() {
            assert!(begin(&sound[..len]).is_err(), "{len}");
        }
        let many = [MAGIC, u64::MAX.to_le_bytes()].concat();
        let error = begin(&many).expect_err("too many");
        assert!(
            error.to_string().contains("pages that are there"),
            "{error}"
        );
        let sender = Sender::begin(None, &mut &sound[..], io::sink()).expect("is sound");
        let error = sender
            .put(0, &[IoSlice::new(&[0; 100])])
            .expect_err("no page");
        assert!(error.to_string().contains("made of pages"), "{error}");
    }
}
