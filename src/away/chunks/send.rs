//! From the machine of the job.

use super::{
    Carried, Checksum, GOOD, LONGEST, MAGIC, MOST_PAGES, NO_MORE, PAGE, PORTION, RATE, WHY,
    checksum, hear_magic, read_number, wrong,
};
use ckpt_lib::image::Away;
use ckpt_lib::pace::{Pace, Rate};
use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, IoSlice, Read, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// How long the other side may take to say why it has ended.
const SAYS_WITHIN: Duration = Duration::from_secs(2);

/// The line to where an image is kept; by several threads.
pub(crate) struct Sender {
    /// Pages that are there.
    known: HashSet<Checksum>,
    rate: Rate,
    pace: Pace,
    /// Told when the other side says that all is well; gone when it says nothing any more.
    good: Mutex<Receiver<()>>,
    /// Why it does not take the image, if it has said so.
    why: Arc<OnceLock<String>>,
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
    /// Hears which pages are there; others go there no faster than that. `rate` is what the other side wants then, and is given up when that is gone.
    ///
    /// # Errors
    /// The line ended, or something else was said.
    pub(crate) fn begin(
        rate: Rate,
        input: impl Read + Send + 'static,
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
        let why = Arc::default();
        Ok(Sender {
            known,
            good: Mutex::new(listen(input, rate.clone(), Arc::clone(&why))?),
            why,
            rate: rate.clone(),
            pace: Pace::new(rate),
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
    pub(crate) fn end(&self, whole: u64) -> io::Result<Carried> {
        self.explained(self.end_said(whole))
    }

    fn end_said(&self, whole: u64) -> io::Result<Carried> {
        let sent = {
            let mut line = self.line();
            line.begin()?;
            line.output.write_all(&NO_MORE.to_le_bytes())?;
            line.output.write_all(&whole.to_le_bytes())?;
            line.output.flush()?;
            line.sent
        };
        let good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = |_| io::Error::from(io::ErrorKind::UnexpectedEof);
        good.recv().map_err(gone)?;
        Ok(Carried { whole, sent })
    }

    /// If the other side has said why it failed, that is the error.
    fn explained<T>(&self, result: io::Result<T>) -> io::Result<T> {
        let error = match result {
            Err(error) if error.kind() != io::ErrorKind::InvalidData => error,
            result => return result,
        };
        if self.why.get().is_none() && self.rate.is_given_up() {
            return Err(error);
        }
        let good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        let began = Instant::now();
        // It has said all that it says when it says nothing any more.
        while good
            .recv_timeout(SAYS_WITHIN.saturating_sub(began.elapsed()))
            .is_ok()
        {}
        Err(match self.why.get() {
            Some(why) => io::Error::other(why.clone()),
            None => error,
        })
    }

    /// The other side says once more that all is well, within so long; whether it does.
    pub(crate) fn is_good_again(&self, within: Duration) -> bool {
        let good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        good.recv_timeout(within).is_ok()
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
        self.pace.pass((unknown * PAGE) as u64)?;
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

/// What the other side says behind what is there.
fn listen(
    mut input: impl Read + Send + 'static,
    rate: Rate,
    why: Arc<OnceLock<String>>,
) -> io::Result<Receiver<()>> {
    let (tells, told) = mpsc::channel();
    Builder::new().spawn(move || {
        let mut word = [0];
        while input.read_exact(&mut word).is_ok() {
            match word[0] {
                RATE => match read_number(&mut input) {
                    Ok(number) => drop(rate.set(NonZeroU64::new(number))),
                    Err(_) => break,
                },
                GOOD if tells.send(()).is_ok() => {}
                WHY => {
                    let said = read_text(&mut input).map(|text| why.set(text));
                    drop(said);
                    break;
                }
                _ => break,
            }
        }
        drop(rate.give_up());
    })?;
    Ok(told)
}

fn read_text(input: &mut dyn Read) -> io::Result<String> {
    let mut len = [0; 2];
    input.read_exact(&mut len)?;
    let mut text = vec![0; usize::from(u16::from_le_bytes(len))];
    input.read_exact(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
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
            let put = self.piece(at + (index * MOST_PAGES * PAGE) as u64, some);
            self.explained(put)?;
        }
        Ok(())
    }
}
