//! Looks for locks that name threads of the job by ids that they do not have any more.

use crate::abi::*;
use crate::address_space::TOP;
use crate::context::Context;
use crate::job::wants_ids;
use crate::report::{Outcome, failure};
use crate::sys::{self, Errno};
use crate::unread;
use core::ops::{Range, RangeInclusive};
use loader::layout::Space;
use loader::locks::{self, Place, WORDS};
use loader::ops::{AnyOp, StreamKind};

/// Ends a restart whose ids are new if a lock in the process's memory names an old one: in its private memory, which has been filled
/// but for `except`, or in what it maps shared and may write to. `stream` is the process's.
pub fn check(context: &Context, stream: u64, process: u64, except: &Range<u64>) -> Outcome<()> {
    if context.is_run() || wants_ids(context) || context.options.accept_new_ids {
        return Ok(());
    }
    let (Some(least), Some(most)) = (ids(context).min(), ids(context).max()) else {
        return Ok(());
    };
    let search = Search {
        context,
        own: Space::Process(process as u32),
        except,
        kinds: match is_of_musl(context) {
            true => &locks::OF_MUSL,
            false => &locks::OF_GLIBC,
        },
        ids: least..=most,
        threads: ids(context).count() as u32,
    };
    search.private()?;
    search.shared(stream)
}

/// Ids of the job's threads.
fn ids(context: &Context) -> impl Iterator<Item = u32> {
    let streams = (1..context.ops.header().streams).filter_map(|at| context.ops.stream(at));
    let threads = streams.filter(|entry| entry.kind == StreamKind::Thread as u64);
    threads.map(|entry| entry.id as u32)
}

struct Search<'a> {
    context: &'a Context,
    own: Space,
    except: &'a Range<u64>,
    kinds: &'static [(locks::Names, usize)],
    /// The least and the greatest.
    ids: RangeInclusive<u32>,
    threads: u32,
}

impl Search<'_> {
    fn private(&self) -> Outcome<()> {
        let mut end = 0;
        for Ok(extent) in self.context.extents.extents_of(self.own) {
            let range = extent.at..extent.at + extent.len;
            if self.except.start < range.end && range.start < self.except.end {
                continue;
            }
            // A lock may begin in one extent and end in the next.
            if extent.at >= end {
                end = end_of_run(self.context, self.own, extent.at);
            }
            self.look(range, &|address| match address < end {
                // SAFETY: it came from the image a moment ago, to memory that can be read until the protections are set.
                true => unsafe { (address as *const u32).read() },
                false => 0,
            })?;
        }
        Ok(())
    }

    /// What is mapped shared is read from its file: it need not be readable where it is mapped.
    fn shared(&self, stream: u64) -> Outcome<()> {
        let entry = self.context.ops.stream(stream);
        let records = entry
            .iter()
            .flat_map(|entry| self.context.ops.records(entry));
        for record in records.filter_map(Result::ok) {
            let AnyOp::Call(call) = record.op else {
                continue;
            };
            let is_shared = call.nr == SYS_MMAP && call.a3 & MAP_SHARED != 0;
            if !is_shared || call.a0.saturating_add(call.a1) > TOP {
                continue;
            }
            let flags = sys::fcntl(call.a4 as i32, F_GETFL, 0);
            if flags.is_ok_and(|flags| flags & O_ACCMODE == O_RDWR) {
                self.mapped(
                    call.a0,
                    call.a4 as i32,
                    call.a5..call.a5.saturating_add(call.a1),
                )?;
            }
        }
        Ok(())
    }

    /// A part of a file that is mapped at `address`. Its open file description may be the job's, and is left where it was.
    fn mapped(&self, address: u64, fd: i32, part: Range<u64>) -> Outcome<()> {
        let was = sys::position(fd);
        let found = self.between_holes(address, fd, part);
        if let Ok(was) = was {
            let _ = sys::seek(fd, was);
        }
        found
    }

    fn between_holes(&self, address: u64, fd: i32, part: Range<u64>) -> Outcome<()> {
        const LOCK: u64 = 4 * WORDS as u64;
        let failed = |error: Errno| {
            failure!(
                Failed,
                "what is mapped at {address:#x} cannot be searched for locks that name their holder by its id ({error}); \
                 --accept-new-ids goes on all the same"
            )
        };
        let buffer = unread::buffer(self.context);
        let mut at = part.start;
        while at < part.end {
            let data = match sys::seek_data(fd, at) {
                Err(Errno(ENXIO)) => break,
                found => found.map_err(failed)?,
            };
            if data >= part.end {
                break;
            }
            at = data & !7;
            // A lock may end behind this mapping, in the next one of the file.
            let want = (part.end.saturating_add(LOCK) - at).min(buffer.len() as u64) as usize;
            let len = sys::pread_full(fd, &mut buffer[..want], at).map_err(failed)?;
            let bytes = &buffer[..len];
            let first = address + (at - part.start);
            let word_at = |address: u64| {
                let place = (address - first) as usize;
                let word = bytes.get(place..place.saturating_add(4));
                word.and_then(|word| word.try_into().ok())
                    .map_or(0, u32::from_le_bytes)
            };
            // What begins at the end of this piece is looked at once more, whole.
            let is_cut = len == buffer.len();
            let looked_at = if is_cut {
                len as u64 - LOCK
            } else {
                len as u64
            };
            let end = looked_at.min(part.end - at) & !7;
            self.look(first..first + end, &word_at)?;
            at += if is_cut {
                looked_at & !7
            } else {
                (len as u64).max(8)
            };
        }
        Ok(())
    }

    /// Looks for a lock that begins in this range.
    fn look(&self, range: Range<u64>, word_at: &dyn Fn(u64) -> u32) -> Outcome<()> {
        let near = |word: u32| self.ids.contains(&(word & 0x3fff_ffff));
        for address in range.step_by(8) {
            for &(names, owner) in self.kinds {
                if near(word_at(address + 4 * owner as u64)) {
                    self.judge(address, names, word_at)?;
                }
            }
        }
        Ok(())
    }

    fn judge(
        &self,
        address: u64,
        names: locks::Names,
        word_at: &dyn Fn(u64) -> u32,
    ) -> Outcome<()> {
        let words: [u32; WORDS] = core::array::from_fn(|word| word_at(address + 4 * word as u64));
        let memory = |at: u64| {
            // Zeros are not in the image.
            let end = at.saturating_add(8);
            let mut extents = self.context.extents.extents_within(self.own, at, end);
            let there =
                at.is_multiple_of(8) && !self.except.contains(&at) && extents.next().is_some();
            // SAFETY: it came from the image a moment ago, to memory that can be read until the protections are set.
            there.then(|| unsafe { (at as *const u64).read() })
        };
        let pointers = |to: u64, least: u32| points(self.context, self.own, self.except, to, least);
        let place = Place {
            words: &words,
            at: address,
            threads: self.threads,
            memory: &memory,
            pointers: &pointers,
        };
        let named = names(&place).filter(|id| ids(self.context).any(|own| own == *id));
        match named {
            Some(id) => Err(failure!(
                Host,
                "thread {id} holds a lock that names it by its id (at {address:#x}), and its id cannot be given back \
                 without namespaces; --accept-new-ids goes on all the same"
            )),
            None => Ok(()),
        }
    }
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
