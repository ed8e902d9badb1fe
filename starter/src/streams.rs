//! One of the streams that are carried: a descriptor here, a number there.
//!
//! ```text
//! open --end of file: Close goes--> ours is over --Close comes--> over
//!   `--Close comes--> what waits is written, Close goes --> over
//! the line breaks: --of the job's input and outputs: another line--> how much has come is said; what has not goes again
//! ```

use line::{CREDIT_STEP, Purpose, WINDOW};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// See the module.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Gone when we have closed it.
    pub(crate) fd: Option<OwnedFd>,
    pub(crate) purpose: Purpose,
    /// Bytes that we may send.
    pub(crate) credit: u32,
    /// Bytes that the shadow may send.
    granted: u32,
    /// Bytes written for which no credit has been given yet.
    written: u32,
    /// What the descriptor has no room for.
    backlog: VecDeque<u8>,
    /// The shadow has closed it.
    pub(crate) closed: bool,
    /// We have told the shadow that it is closed.
    pub(crate) told: bool,
    /// What is waited for, as far as the kernel knows; none: nothing.
    pub(crate) awaited: Option<EventFlags>,
    /// The round in which something of it was put on the line last.
    pub(crate) round: u64,
    /// Bytes that have come from the shadow.
    came: u64,
    /// Bytes that have gone to it, of an output of the job's.
    went: u64,
    /// The last of these, which the shadow has not said that it has.
    kept: VecDeque<u8>,
    /// On another line than before: what the shadow has said so far of how much it has.
    count: Option<Vec<u8>>,
}

/// Bytes of a number that says how much has come.
pub(crate) const COUNT: usize = 8;

/// What is to be told after bytes were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Nothing.
    Quiet,
    /// So much credit.
    Credit(u32),
    /// Nobody reads here any more.
    Over,
}

impl Stream {
    pub(crate) fn new(fd: Option<OwnedFd>, purpose: Purpose) -> Self {
        Stream {
            fd,
            purpose,
            credit: WINDOW,
            granted: WINDOW,
            written: 0,
            backlog: VecDeque::new(),
            closed: false,
            told: false,
            awaited: None,
            round: 0,
            came: 0,
            went: 0,
            kept: VecDeque::new(),
            count: None,
        }
    }

    /// The job's, and it goes on when the line breaks.
    pub(crate) fn is_jobs(&self) -> bool {
        matches!(
            self.purpose,
            Purpose::Input | Purpose::Output | Purpose::Errors
        )
    }

    fn is_output(&self) -> bool {
        matches!(self.purpose, Purpose::Output | Purpose::Errors)
    }

    /// Whether there is anything to do on another line.
    pub(crate) fn goes_on(&self) -> bool {
        self.is_jobs() && (self.is_output() || self.fd.is_some())
    }

    /// As it begins on another line. What it says first, if it is the one to say how much has come.
    pub(crate) fn go_on(&mut self) -> Option<[u8; COUNT]> {
        (self.granted, self.written) = (WINDOW, 0);
        (self.closed, self.told) = (false, false);
        self.awaited = None;
        if self.is_output() {
            // Nothing goes before it is known from where.
            self.credit = 0;
            self.count = Some(vec![]);
            return None;
        }
        self.credit = WINDOW - COUNT as u32;
        Some(self.came.to_le_bytes())
    }

    /// Bytes are put on the line: they are kept until they have come.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.credit -= bytes.len() as u32;
        if self.is_output() {
            self.went += bytes.len() as u64;
            self.kept.extend(bytes);
        }
    }

    /// The shadow has so much more, and room for as much.
    pub(crate) fn acknowledge(&mut self, len: u32) -> Result<(), &'static str> {
        let credit = self.credit.checked_add(len);
        self.credit = credit.ok_or("it has too much credit")?;
        let known = self.kept.len().min(len as usize);
        self.kept.drain(..known);
        Ok(())
    }

    /// Whether the shadow says now how much it has.
    pub(crate) fn is_counted(&self) -> bool {
        self.count.is_some()
    }

    /// The shadow says how much it has: what it has not is returned, and is on the line again.
    pub(crate) fn hear_count(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
        const WRONG: &str = "it has another length";
        let Some(count) = &mut self.count else {
            return Err(WRONG);
        };
        count.extend(bytes);
        let Some(whole) = count.first_chunk::<COUNT>() else {
            return Ok(None);
        };
        let has = u64::from_le_bytes(*whole);
        let over = count.len() > COUNT;
        let missing = self.went.checked_sub(has).ok_or(WRONG)?;
        let missing = usize::try_from(missing).map_err(|_| WRONG)?;
        let known = self.kept.len().checked_sub(missing).ok_or(WRONG)?;
        if over {
            return Err(WRONG);
        }
        self.count = None;
        self.kept.drain(..known);
        self.credit = WINDOW.saturating_sub(missing as u32);
        Ok(Some(self.kept.iter().copied().collect()))
    }

    /// Both sides have closed it, and nothing waits to be written.
    pub(crate) fn is_over(&self) -> bool {
        self.closed && self.told
    }

    /// What is to be waited for now.
    pub(crate) fn wanted(&self) -> Option<EventFlags> {
        self.fd.as_ref()?;
        let mut flags = EventFlags::empty();
        if !self.backlog.is_empty() {
            flags |= EventFlags::OUT;
        }
        if self.credit > 0 && !self.told && !self.closed {
            match self.purpose {
                // Only its end.
                Purpose::Input => flags |= EventFlags::ERR,
                _ => flags |= EventFlags::IN | EventFlags::RDHUP,
            }
        }
        (!flags.is_empty()).then_some(flags)
    }

    /// Bytes have come from the shadow.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Taken, &'static str> {
        if self.closed {
            return Err("it has been closed");
        }
        let len = bytes.len() as u32;
        self.granted = self.granted.checked_sub(len).ok_or("it has no credit")?;
        self.came += u64::from(len);
        if self.fd.is_none() {
            // Nobody is there to read it.
            return Ok(Taken::Quiet);
        }
        let mut sent = 0;
        if self.backlog.is_empty() {
            match self.offer(bytes) {
                Ok(len) => sent = len,
                Err(_) => return Ok(Taken::Over),
            }
        }
        self.backlog.extend(&bytes[sent..]);
        Ok(self.give_back(sent))
    }

    /// There is room again.
    pub(crate) fn drain(&mut self) -> Taken {
        let mut done = 0;
        while !self.backlog.is_empty() {
            let (front, _) = self.backlog.as_slices();
            match self.offer(front) {
                Ok(0) => break,
                Ok(len) => {
                    done += len;
                    self.backlog.drain(..len);
                }
                Err(_) => {
                    self.backlog.clear();
                    return Taken::Over;
                }
            }
        }
        if self.backlog.is_empty() {
            self.backlog = VecDeque::new();
        }
        self.give_back(done)
    }

    /// What waits is thrown away.
    pub(crate) fn forget_backlog(&mut self) {
        self.backlog = VecDeque::new();
    }

    pub(crate) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// As much as there is room for.
    fn offer(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let Some(fd) = &self.fd else { return Ok(0) };
        let mut sent = 0;
        while sent < bytes.len() {
            match rustix::io::write(fd, &bytes[sent..]) {
                Ok(len) => sent += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }

    fn give_back(&mut self, len: usize) -> Taken {
        self.written += len as u32;
        if self.written < CREDIT_STEP || self.closed {
            return Taken::Quiet;
        }
        let step = std::mem::take(&mut self.written);
        self.granted += step;
        Taken::Credit(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_has_not_come_goes_again() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let mut stream = Stream::new(Some(ours.into()), Purpose::Output);
        stream.send(b"0123456789");
        stream.acknowledge(4).expect("sound");
        assert_eq!((stream.go_on(), stream.credit), (None, 0));
        assert!(stream.wanted().is_none(), "nothing goes yet");
        let count = 7_u64.to_le_bytes();
        assert_eq!(stream.hear_count(&count[..3]), Ok(None));
        assert_eq!(stream.hear_count(&count[3..]), Ok(Some(b"789".to_vec())));
        assert_eq!(stream.credit, WINDOW - 3);
        stream.send(b"ab");
        for wrong in [3_u64, 6, 13, u64::MAX] {
            stream.go_on();
            assert!(stream.hear_count(&wrong.to_le_bytes()).is_err(), "{wrong}");
        }
        stream.go_on();
        let all = stream.hear_count(&12_u64.to_le_bytes());
        assert_eq!(all, Ok(Some(vec![])));

        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let mut input = Stream::new(Some(ours.into()), Purpose::Input);
        input.take(b"12345").expect("is taken");
        assert_eq!(input.go_on(), Some(5_u64.to_le_bytes()));
        drop(input.fd.take());
        assert!(!input.goes_on());
    }

    #[test]
    fn what_nobody_reads_is_bounded_by_credit() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("sets");
        let mut stream = Stream::new(Some(ours.into()), Purpose::Calls);
        let portion = vec![1; 64 << 10];
        let mut taken = 0;
        while stream.take(&portion).is_ok() {
            taken += portion.len();
            assert!(taken < 10 << 20, "no end");
        }
        assert!(taken as u32 <= WINDOW + CREDIT_STEP, "{taken}");
        assert!(stream.has_backlog() && stream.wanted().expect("waits").contains(EventFlags::OUT));
        let mut read = vec![0; taken];
        let mut filled = 0;
        let mut credit = 0;
        while filled < taken {
            filled += theirs.read(&mut read[filled..]).expect("reads");
            if let Taken::Credit(more) = stream.drain() {
                credit += more as usize;
            }
        }
        assert!(!stream.has_backlog() && credit + CREDIT_STEP as usize > taken - WINDOW as usize);
        drop(theirs);
        assert_eq!(stream.take(&portion), Ok(Taken::Over));
        stream.closed = true;
        assert_eq!(stream.take(&portion), Err("it has been closed"));
    }
}
