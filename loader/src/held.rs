//! Looks for locks that name threads of the job by ids that they do not have any more.

use crate::context::Context;
use crate::job::wants_ids;
use crate::report::{Outcome, failure};
use core::ops::Range;
use loader::layout::Space;
use loader::locks::{self, Place, WORDS};
use loader::ops::{AnyOp, StreamKind};

/// Ends a restart whose ids are new if a lock in the process's memory, which has been filled but for `except`, names an old one.
pub fn check(context: &Context, process: u64, except: &Range<u64>) -> Outcome<()> {
    if context.is_run() || wants_ids(context) || context.options.accept_new_ids {
        return Ok(());
    }
    let ids = || {
        let streams = (1..context.ops.header().streams).filter_map(|at| context.ops.stream(at));
        let threads = streams.filter(|entry| entry.kind == StreamKind::Thread as u64);
        threads.map(|entry| entry.id as u32)
    };
    let (Some(least), Some(most)) = (ids().min(), ids().max()) else {
        return Ok(());
    };
    let kinds: &[(locks::Names, usize)] = match is_of_musl(context) {
        true => &locks::OF_MUSL,
        false => &locks::OF_GLIBC,
    };
    let threads = ids().count() as u32;
    let near = |word: u32| (least..=most).contains(&(word & 0x3fff_ffff));
    let own = Space::Process(process as u32);
    let mut end = 0;
    for Ok(extent) in context.extents.extents_of(own) {
        let skipped = except.start < extent.at + extent.len && extent.at < except.end;
        if skipped {
            continue;
        }
        // A lock may begin in one extent and end in the next.
        if extent.at >= end {
            end = end_of_run(context, own, extent.at);
        }
        let word_at = |address: u64| match address < end {
            // SAFETY: it came from the image a moment ago, to memory that can be read until the protections are set.
            true => unsafe { (address as *const u32).read() },
            false => 0,
        };
        for address in (extent.at..extent.at + extent.len).step_by(8) {
            for &(names, owner) in kinds {
                if !near(word_at(address + 4 * owner as u64)) {
                    continue;
                }
                let words: [u32; WORDS] =
                    core::array::from_fn(|word| word_at(address + 4 * word as u64));
                let memory = |at: u64| {
                    // Zeros are not in the image.
                    let mut extents = context
                        .extents
                        .extents_within(own, at, at.saturating_add(8));
                    let there =
                        at.is_multiple_of(8) && !except.contains(&at) && extents.next().is_some();
                    // SAFETY: as above.
                    there.then(|| unsafe { (at as *const u64).read() })
                };
                let pointers = |to: u64, least: u32| points(context, own, except, to, least);
                let place = Place {
                    words: &words,
                    at: address,
                    threads,
                    memory: &memory,
                    pointers: &pointers,
                };
                let named = names(&place).filter(|id| ids().any(|own| own == *id));
                if let Some(id) = named {
                    return Err(failure!(
                        Host,
                        "thread {id} holds a lock that names it by its id (at {address:#x}), and its id cannot be given back \
                         without namespaces; --accept-new-ids goes on all the same"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Whether the C library is musl. Where it is, and there are several threads, ids cannot be new.
fn is_of_musl(context: &Context) -> bool {
    let streams = (1..context.ops.header().streams).filter_map(|at| context.ops.stream(at));
    streams
        .filter(|entry| entry.kind == StreamKind::Thread as u64)
        .any(|entry| {
            let (mut own_id, mut descriptor) = (0, 0);
            for record in context.ops.records(&entry).filter_map(Result::ok) {
                match record.op {
                    AnyOp::OwnId(op) => own_id = op.address,
                    AnyOp::Registers(op) => descriptor = op.fs_base,
                    _ => {}
                }
            }
            descriptor != 0 && own_id == descriptor.wrapping_add(locks::ID_OF_MUSL)
        })
}

/// Whether at least so many words of a process's memory, which has been filled but for `except`, are this address.
fn points(context: &Context, own: Space, except: &Range<u64>, to: u64, least: u32) -> bool {
    let mut found = 0;
    for Ok(extent) in context.extents.extents_of(own) {
        let skipped = except.start < extent.at + extent.len && extent.at < except.end;
        if skipped {
            continue;
        }
        for address in (extent.at..extent.at + extent.len).step_by(8) {
            // SAFETY: it came from the image a moment ago, to memory that can be read until the protections are set.
            let word = unsafe { (address as *const u64).read() };
            found += u32::from(word == to);
            if found >= least {
                return true;
            }
        }
    }
    false
}

/// Where the memory ends that the extent at `at` and those directly behind it fill.
fn end_of_run(context: &Context, own: Space, at: u64) -> u64 {
    let mut end = at;
    for Ok(extent) in context.extents.extents_within(own, at, u64::MAX) {
        if extent.at != end {
            break;
        }
        end = extent.at + extent.len;
    }
    end
}
