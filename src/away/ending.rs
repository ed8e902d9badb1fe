//! The end of a copy that was given up while its machine was not reached: somebody goes on trying to tell it.
//!
//! ```text
//! starter, which ends ──> nobody's child ──ssh──> HOST: out of reach    again, until the copy's lease is over and it has ended by itself
//!                                         ──ssh──> HOST: that copy is ended
//! ```

use super::far::{Errand, Far};
use crate::limits;
use crate::report::Outcome;
use crate::sys;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The first pause between two attempts, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(20));
/// How long after its lease a copy may have ended by itself.
const GRACE: Duration = Duration::from_secs(60);

/// Has the copy of this id ended as soon as its machine is reached; does not wait for that.
pub(crate) fn end_at_last(far: &Far<'_>, id: &str, by: &str) -> Outcome<()> {
    if limits::process()?.is_some() {
        return Ok(());
    }
    // Nobody waits for us, and nobody reads what we say.
    let told = (|| -> Outcome<()> {
        nix::unistd::setsid()?;
        let nothing = sys::nothing()?;
        nix::unistd::dup2_stdin(nothing.as_fd())?;
        nix::unistd::dup2_stdout(nothing.as_fd())?;
        nix::unistd::dup2_stderr(nothing.as_fd())?;
        sys::close_from(3);
        end_within(far, id, by, far.arguments.lease + GRACE);
        Ok(())
    })();
    std::process::exit(i32::from(told.is_err()));
}

fn end_within(far: &Far<'_>, id: &str, by: &str, time: Duration) {
    let began = Instant::now();
    let (mut pause, longest) = PAUSES;
    while began.elapsed() < time && !end(far, id, by) {
        std::thread::sleep(pause);
        pause = longest.min(2 * pause);
    }
}

/// Whether it is known to have ended.
fn end(far: &Far<'_>, id: &str, by: &str) -> bool {
    let reached = far.with(Errand::End { id, by }, |mut input, output| {
        drop(output);
        io::copy(&mut input.by_ref(), &mut io::sink())?;
        Ok(())
    });
    let status = reached.ok().and_then(|(ssh, ())| ssh.end());
    status.is_some_and(|status| status.success())
}
