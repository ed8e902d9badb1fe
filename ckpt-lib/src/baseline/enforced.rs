//! Whether CPUID was answered in a job, from its first instruction to the checkpoint.
//!
//! # What callers may rely on
//! [`note_enforcement`] gives a proof or a reason, and touches nothing but the snapshot. It is for a job that
//! stands still.

use crate::pages::{PageKinds, resident};
use crate::platform::Level;
use crate::platform::component_place;
use crate::snapshot::{Process, SignalAction, SnapshotV1, Thread};
use crate::sys::probe::features::cpuid_faults;
use crate::tracee::Memory;
use loader::processor::handler::{self, HANDLER_AT, HANDLER_LEN};
use loader::xstate::IN_USE_AT;

/// Whether this machine can answer CPUID for a job.
#[must_use]
pub fn can_be_enforced() -> bool {
    cpuid_faults().works()
}

/// The pages that show a processor of `level` to a job begun here.
#[must_use]
pub fn pages(level: Level) -> Vec<u8> {
    handler::pages(level).to_vec()
}

/// The pages in a process, if it has some. They are looked for before they are read: to read a reserve that was never touched
/// makes page tables for it.
fn pages_in(memory: &Memory) -> Option<Vec<u8>> {
    let range = HANDLER_AT..HANDLER_AT + HANDLER_LEN as u64;
    if resident(memory.pid(), range, PageKinds::Anonymous).is_ok_and(|there| there.is_empty()) {
        return None;
    }
    let mut pages = vec![0; HANDLER_LEN];
    memory.read(HANDLER_AT, &mut pages).ok()?;
    handler::are_pages(&pages).then_some(pages)
}

/// What is true of SIGSEGV in a process where CPUID is answered; the process itself is told of the default
/// action.
pub(crate) fn handler_action(process: &Process, memory: &Memory) -> Option<SignalAction> {
    let pages = pages_in(memory)?;
    let faults = process.threads.iter().any(|thread| thread.cpuid_faults);
    if handler::have_fallen(&pages) || !faults {
        return None;
    }
    let [handler, flags, restorer, mask] = handler::action();
    Some(SignalAction {
        handler,
        flags,
        restorer,
        mask,
    })
}

/// Notes the proof that the job of `snapshot` could see no more than a level (that of its pages, or what was `asked` for), or what is
/// missing. Without proof its threads go on with CPUID as it is, since nobody would be there to answer.
pub(crate) fn note_enforcement(snapshot: &mut SnapshotV1, memory: &Memory, asked: Option<Level>) {
    let pages = pages_in(memory);
    let Some(level) = pages.as_deref().and_then(handler::level).or(asked) else {
        return;
    };
    match judge(&snapshot.processes, pages.as_deref(), level) {
        Ok(pages) => {
            snapshot.enforcement.pages = pages.to_vec();
            let (pkru_at, _) = component_place(PKRU).unwrap_or((0, 0));
            snapshot.enforcement.pkru_at = u32::try_from(pkru_at).unwrap_or(0);
            for process in &mut snapshot.processes {
                for thread in &mut process.threads {
                    forget_initial(&mut thread.xstate, component_place);
                }
            }
        }
        Err(missing) => {
            snapshot.enforcement.missing = missing.to_owned();
            let ours = pages.is_some_and(|pages| !handler::have_fallen(&pages));
            for process in snapshot.processes.iter_mut().filter(|_| ours) {
                for thread in &mut process.threads {
                    thread.cpuid_faults = false;
                }
                if let Some(action) = process.actions.get_mut(libc::SIGSEGV as usize - 1)
                    && action.handler == handler::action()[0]
                {
                    *action = SignalAction::default();
                }
            }
        }
    }
}

/// Bit of PKRU among XSAVE components.
const PKRU: u32 = 9;

/// Says of components that hold their initial state, zero, that they are not in use: so a machine need not have
/// them. (Processors may say that of some, as they like.)
fn forget_initial(xstate: &mut [u8], place: impl Fn(u32) -> Option<(usize, usize)>) {
    for bit in 2..63 {
        let component = place(bit).and_then(|(at, len)| xstate.get(at..at.checked_add(len)?));
        let initial = component.is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0));
        if initial && let Some(byte) = xstate.get_mut(IN_USE_AT + bit as usize / 8) {
            *byte &= !(1 << (bit % 8));
        }
    }
}

/// The level that is proven, if one is.
pub(crate) fn proven(snapshot: &SnapshotV1) -> Option<Level> {
    handler::level(&snapshot.enforcement.pages)
}

fn judge<'a>(
    processes: &[Process],
    pages: Option<&'a [u8]>,
    level: Level,
) -> Result<&'a [u8], &'static str> {
    let [process] = processes else {
        return Err("the job has several processes");
    };
    let pages = pages.ok_or("CPUID was not answered where this program began")?;
    if handler::have_fallen(pages) {
        return Err(
            "the program handles or blocks SIGSEGV itself, or went on where CPUID does not fault",
        );
    }
    if process.threads.iter().any(|thread| !thread.cpuid_faults) {
        return Err("CPUID does not fault in every thread");
    }
    let action = process.actions.get(libc::SIGSEGV as usize - 1);
    let [handler, ..] = handler::action();
    if action.is_none_or(|action| action.handler != handler) {
        return Err("SIGSEGV leads elsewhere");
    }
    let segv = 1 << (libc::SIGSEGV - 1);
    let blocked =
        |thread: &Thread| thread.blocked & segv != 0 && thread.blocked & OF_THE_LIBRARY == 0;
    if process.threads.iter().any(blocked) {
        return Err("SIGSEGV is blocked");
    }
    if !handler::show_no_more_than(pages, level) {
        return Err("the pages that answer CPUID were changed");
    }
    Ok(pages)
}

/// Signal 32, which only C libraries can block: with all others, for a moment or while a thread ends.
const OF_THE_LIBRARY: u64 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    fn process() -> Process {
        let mut actions = vec![SignalAction::default(); 64];
        actions[10].handler = handler::action()[0];
        Process {
            threads: vec![
                Thread {
                    cpuid_faults: true,
                    ..Thread::default()
                };
                2
            ],
            actions,
            ..Process::default()
        }
    }

    #[test]
    fn a_component_without_contents_is_not_in_use() {
        let mut xstate = vec![0; 640];
        xstate[IN_USE_AT] = 0b1111;
        xstate[IN_USE_AT + 1] = 1;
        xstate[610] = 1;
        let place = |bit| {
            [(2, (576, 16)), (3, (600, 16)), (8, (620, 8))]
                .iter()
                .find(|(b, _)| *b == bit)
                .map(|(_, at)| *at)
        };
        forget_initial(&mut xstate, place);
        assert_eq!(xstate[IN_USE_AT..IN_USE_AT + 2], [0b1011, 0]);
    }

    #[test]
    fn a_proof_needs_every_thread_the_action_and_pages_that_nobody_changed() {
        let pages = pages(Level::V2);
        let why = |process: Process, pages: Option<&[u8]>, level| {
            judge(&[process], pages, level).err().unwrap_or("proven")
        };
        assert_eq!(why(process(), Some(&pages), Level::V2), "proven");
        assert!(why(process(), None, Level::V2).contains("not answered"));
        assert!(why(process(), Some(&pages), Level::V1).contains("changed"));
        let mut one = process();
        one.threads[1].cpuid_faults = false;
        assert!(why(one, Some(&pages), Level::V2).contains("every thread"));
        let mut other = process();
        other.actions[10].handler = 0x1000;
        assert!(why(other, Some(&pages), Level::V2).contains("elsewhere"));
        let mut blocked = process();
        blocked.threads[0].blocked = 1 << 10;
        assert!(why(blocked.clone(), Some(&pages), Level::V2).contains("blocked"));
        blocked.threads[0].blocked = !0;
        assert_eq!(why(blocked, Some(&pages), Level::V2), "proven");
        let mut fallen = pages.clone();
        fallen[handler::FALLEN_AT] = 1;
        assert!(why(process(), Some(&fallen), Level::V2).contains("SIGSEGV"));
    }
}
