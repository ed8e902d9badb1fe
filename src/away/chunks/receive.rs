//! To where it is kept.

use super::{
    ABORT, Carried, Checksum, LONGEST, LOOK_AGAIN, MAGIC, MOST_PAGES, NO_MORE, PAGE, PORTION, RATE,
    checksum, hear_magic, read_number, wrong,
};
use ckpt_lib::image::write_behind;
use ckpt_lib::pace::Rate;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::Builder;

/// How an image is received.
pub(crate) struct Reception<'a> {
    /// The other side is told whenever that is another than this, with which it begins.
    pub(crate) rate: &'a Rate,
    pub(crate) begun_at: Option<NonZeroU64>,
    /// Told how long it is at least, whenever that is more; whether that may be.
    pub(crate) grows: &'a mut dyn FnMut(u64) -> io::Result<()>,
}

/// Receives an image into `file`, which is empty, with what those `before` have of it. What came is an image only if it can be read as one.
///
/// # Errors
/// The line ended, the disk is full, what came is not what is said, or it may not be so long.
pub(crate) fn receive(
    file: &File,
    before: &[File],
    how: Reception<'_>,
    input: &mut dyn Read,
    output: &mut (dyn Write + Send),
) -> io::Result<Carried> {
    let places = places(before)?;
    tell_known(&places, output)?;
    let Reception {
        rate,
        begun_at,
        grows,
    } = how;
    std::thread::scope(|scope| {
        let (ended, ends) = mpsc::channel();
        let tells = move || tell_rate((rate, begun_at), output, &ends);
        Builder::new().spawn_scoped(scope, tells)?;
        let received = receive_pieces(file, &places, grows, input);
        drop(ended);
        received
    })
}

/// Says of each other rate, until nothing comes any more; and that nothing is to come.
pub(super) fn tell_rate(
    (rate, begun_at): (&Rate, Option<NonZeroU64>),
    output: &mut (dyn Write + Send),
    ends: &Receiver<()>,
) {
    let mut last = begun_at;
    while ends.recv_timeout(LOOK_AGAIN) == Err(RecvTimeoutError::Timeout) {
        if rate.is_given_up() {
            let _ = output.write_all(&[ABORT]).and_then(|()| output.flush());
            return;
        }
        let now = rate.get();
        if now != last {
            let number = now.map_or(0, NonZeroU64::get).to_le_bytes();
            let said = [&[RATE][..], &number].concat();
            // Who is gone sends nothing, either.
            let _ = output.write_all(&said).and_then(|()| output.flush());
            last = now;
        }
    }
}

fn receive_pieces(
    file: &File,
    places: &Places<'_>,
    grows: &mut dyn FnMut(u64) -> io::Result<()>,
    input: &mut dyn Read,
) -> io::Result<Carried> {
    // The other side says nothing behind the last piece before it is answered.
    let mut input = BufReader::with_capacity(PORTION, input);
    hear_magic(&mut input)?;
    let (mut sent, mut end) = (0, 0);
    let mut pages = vec![];
    loop {
        let at = read_number(&mut input)?;
        if at == NO_MORE {
            let whole = read_number(&mut input)?;
            check_length(whole)?;
            grows(whole)?;
            file.set_len(whole)?;
            return Ok(Carried { whole, sent });
        }
        sent += receive_piece(&mut input, places, &mut pages)?;
        let to = at.saturating_add(pages.len() as u64);
        check_length(to)?;
        if to > end {
            grows(to)?;
            end = to;
        }
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

/// Does `work` while the disk takes the file, or before it does where no thread can be had. What has come of both.
pub(crate) fn while_synced<T>(file: &File, work: impl FnOnce() -> T) -> (T, io::Result<()>) {
    std::thread::scope(|scope| {
        let syncing = Builder::new().spawn_scoped(scope, || file.sync_all());
        let done = work();
        let lost = |_| Err(io::ErrorKind::Other.into());
        let synced = match syncing {
            Ok(syncing) => syncing.join().unwrap_or_else(lost),
            Err(_) => file.sync_all(),
        };
        (done, synced)
    })
}

/// The checksums of a file's whole pages, found by several threads.
fn page_sums(file: &File) -> io::Result<Vec<Checksum>> {
    let pages = file.metadata()?.len() / PAGE as u64;
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get().min(4) as u64);
    let share = pages.div_ceil(threads).max(1);
    let shares =
        (0..threads).map(|number| (number * share).min(pages)..((number + 1) * share).min(pages));
    std::thread::scope(|scope| {
        let begun = shares.map(|share| {
            let its = share.clone();
            let sums = move || sums_between(file, its);
            (share, Builder::new().spawn_scoped(scope, sums))
        });
        let begun: Vec<_> = begun.collect();
        let mut all = vec![];
        for (share, part) in begun {
            let sums = match part {
                Ok(part) => part
                    .join()
                    .unwrap_or_else(|_| Err(io::ErrorKind::Other.into())),
                // There is no thread to be had.
                Err(_) => sums_between(file, share),
            };
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
