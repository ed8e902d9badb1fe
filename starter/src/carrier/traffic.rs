//! What goes over the line: frames of rounds, out; pieces, handed out.

use super::{Carrier, LINE_OUT};
use crate::error::CarrierError;
use crate::job::Notice;
use crate::streams::Taken;
use line::{Frame, MOST_FRAME, Piece, Purpose};
use rustix::event::epoll::{self, EventData, EventFlags};
use std::io;

/// Bytes that wait for the line before no more is read from processes.
pub(super) const MOST_OUT: usize = 256 << 10;
/// Bytes read from the line at once.
pub(super) const PORTION: usize = 256 << 10;
/// Portions read from the line before anybody else has a turn.
const PORTIONS: usize = 8;

impl Carrier {
    /// Puts the frames of this round behind those that wait for the line.
    pub(super) fn collect(&mut self) {
        self.out.append(&mut self.front);
        if self.out.is_empty() {
            std::mem::swap(&mut self.out, &mut self.back);
        } else {
            self.out.append(&mut self.back);
        }
    }

    /// Sends what the line has room for.
    pub(super) fn flush(&mut self) -> Result<(), CarrierError> {
        let stalled = loop {
            let rest = &self.out[self.sent..];
            let result = if rest.is_empty() {
                self.line.output.flush().map(|()| 0)
            } else {
                self.line.output.write(rest)
            };
            match result {
                Ok(0) if rest.is_empty() => break false,
                Ok(0) => return Err(CarrierError::Lost(io::ErrorKind::WriteZero.into())),
                Ok(len) => self.sent += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(CarrierError::Lost(error)),
            }
        };
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        } else if self.sent > MOST_OUT {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        if stalled != self.stalled {
            let flags = if stalled {
                EventFlags::OUT
            } else {
                EventFlags::empty()
            };
            let name = EventData::new_u64(LINE_OUT);
            epoll::modify(&self.epoll, &self.line.ends.1, name, flags)?;
            self.stalled = stalled;
        }
        Ok(())
    }

    /// Hands out what has come; whether there may be more.
    pub(super) fn read_line(&mut self) -> Result<bool, CarrierError> {
        for _ in 0..PORTIONS {
            let len = match self.line.input.read(&mut self.inbox) {
                Ok(0) => {
                    let error = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Err(CarrierError::Lost(error));
                }
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(CarrierError::Lost(error)),
            };
            let inbox = std::mem::take(&mut self.inbox);
            let result = self.hand_out(&inbox[..len]);
            self.inbox = inbox;
            result?;
            self.collect();
            if len < PORTION {
                // The kernel tells if there is more.
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn hand_out(&mut self, mut bytes: &[u8]) -> Result<(), CarrierError> {
        while let Some(piece) = self.pieces.next(&mut bytes)? {
            let stream = match piece {
                Piece::Open(stream, _)
                | Piece::Data(stream, _)
                | Piece::Close(stream)
                | Piece::Credit(stream, _) => stream,
            };
            let broken = |rule| CarrierError::Rule { stream, rule };
            let found = self.streams.get_mut(&stream);
            let found = found.ok_or("it is not open").map_err(broken)?;
            match piece {
                Piece::Open(..) => return Err(broken("only a starter opens streams")),
                Piece::Data(_, bytes) if found.purpose == Purpose::Control => {
                    self.control_in.extend(bytes);
                    while let Some(notice) = Notice::take(&mut self.control_in) {
                        match (notice, &self.job) {
                            (Notice::Signal(signal), Some(job)) => job.signal(signal),
                            (Notice::Leave, Some(_)) => return Err(CarrierError::Left),
                            _ => {}
                        }
                    }
                }
                Piece::Data(_, bytes) if found.is_counted() => {
                    if let Some(missing) = found.hear_count(bytes).map_err(broken)? {
                        self.send_again(stream, &missing)?;
                    }
                }
                Piece::Data(_, bytes) => {
                    let taken = found.take(bytes).map_err(broken)?;
                    if found.purpose == Purpose::Calls {
                        self.overhear(stream, bytes);
                    }
                    self.tell(stream, taken)?;
                }
                Piece::Credit(_, len) => {
                    found.acknowledge(len).map_err(broken)?;
                    self.await_stream(stream)?;
                }
                Piece::Close(_) => {
                    if std::mem::replace(&mut found.closed, true) {
                        return Err(broken("it has been closed"));
                    }
                    if found.purpose == Purpose::Control {
                        found.told = true;
                        self.control = None;
                    }
                    self.tell(stream, Taken::Quiet)?;
                }
            }
        }
        Ok(())
    }

    /// What an output of the job's has sent on a line that broke, and has not come.
    fn send_again(&mut self, number: u32, missing: &[u8]) -> Result<(), CarrierError> {
        for part in missing.chunks(MOST_FRAME) {
            let frame = Frame::Data(number, part.len() as u32);
            self.back.extend(frame.to_bytes());
            self.back.extend(part);
        }
        match self.streams.get(&number) {
            Some(stream) if stream.fd.is_none() => self.close(number),
            _ => self.await_stream(number),
        }
    }
}
