//! Real processes, set up in each way, against what is recorded of them. They are not stopped by
//! ptrace here but at rest in a read, so that everything seen from outside can be tested alone.

mod guest;
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
