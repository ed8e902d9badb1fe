//! Waiting for a shadow that is gone: no call of the job fails because of the connection (DESIGN §7).
//!
//! ```text
//! broken --10 ms, 20 ms ... 1 s--> tried again --lease is over, or refused--> this copy of the job ends
//! ```

use super::stream::{self, Broken, Reason};
use super::sys::{self, Errno, call};

const FIRST_MS: u64 = 10;
const LONGEST_MS: u64 = 1000;

/// How long something has been tried.
pub(super) struct Patience {
    began: Option<u64>,
    next_ms: u64,
}

impl Patience {
    pub(super) fn new() -> Self {
        Patience {
            began: None,
            next_ms: FIRST_MS,
        }
    }

    /// Returns when it is time to try again.
    ///
    /// # Errors
    /// It is no use: [`Broken::Here`].
    pub(super) fn after(&mut self, broken: Broken) -> Result<(), Errno> {
        match broken {
            Broken::Refused(reason) => end(reason),
            Broken::Here(errno) => return Err(errno),
            Broken::Stream => {}
        }
        let now = sys::milliseconds();
        let Some(began) = self.began else {
            // A stream that was cut, or a job that goes on elsewhere: at once.
            self.began = Some(now);
            return Ok(());
        };
        let lease_ms = stream::link().map_or(0, |link| link.lease_ms);
        if now.wrapping_sub(began) >= lease_ms {
            end(Reason::new(b"it has been gone for longer than the lease"));
        }
        sys::sleep_ms(self.next_ms.min(lease_ms));
        self.next_ms = (2 * self.next_ms).min(LONGEST_MS);
        Ok(())
    }
}

/// This copy of the job is of no use any more; it must not go on with wrong answers.
fn end(reason: Reason) -> ! {
    for text in [
        b"wayfarer: this copy of the job ends, the shadow does not serve it any more: ".as_slice(),
        reason.text(),
        b"\n",
    ] {
        let _ = sys::write(2, text);
    }
    const SIGKILL: u64 = 9;
    loop {
        // SAFETY: it ends the process.
        let _ = unsafe { call(sys::KILL, [u64::from(sys::pid()), SIGKILL]) };
    }
}
