//! Real processes, set up in each way, against what is recorded of them. But for `inside` they are
//! not stopped by ptrace but at rest in a read, so that what is seen from outside is tested alone.

mod guest;
mod inside;
mod memory;
mod records;
mod refusals;

use super::*;
use guest::Guest;

/// What is seen of a guest as if it were stopped.
fn look_at(guest: &Guest) -> Look {
    look_with(guest, &CaptureOptions::default())
}

fn look_with(guest: &Guest, options: &CaptureOptions) -> Look {
    let mut refusals = Refusals::default();
    let seen = look_and_refuse(guest, options, &mut refusals);
    assert!(refusals.is_empty(), "{:?}", refusals.texts());
    seen
}

fn look_and_refuse(guest: &Guest, options: &CaptureOptions, refusals: &mut Refusals) -> Look {
    let mut early = EarlyView::default();
    let skip = [vec![]];
    look(
        &[guest.host_pid()],
        options,
        Some(&skip),
        &mut early,
        refusals,
    )
    .expect("looks")
}
