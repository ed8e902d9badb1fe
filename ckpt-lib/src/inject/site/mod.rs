//! The workshop inside the process: where everything lies, and who stands where.
//!
//! ```text
//! base     runner            read-execute
//!          way home of thread 0, 1 ...
//! data     all-ones mask     read-write
//!          done word of thread 0, 1 ...
//!          slot of thread 0, 1 ...
//! pool     calls and data of the lists that run now (a mapping of its own, made when needed)
//! ```

mod roundup;

use super::asm::Asm;
use super::gate::Gate;
use super::hands::{self, ALL_SIGNALS};
use super::list::{CallList, CallResults, InPool, Layout};
use super::place::{self, Placed, write};
use super::runner::{self, PARK_S, PATIENCE_S, Runner, slot};
use super::stub::{self, HOME_CODE, Home};
use super::{InjectError, hands::trace};
use crate::snapshot::Registers;
use crate::sys::ptrace;
use crate::tracee::{
    Deadline, HostTid, Resident, StopError, StoppedProcess, StoppedThread, reenter,
};
use roundup::{LAUNCHED_AT_ONCE, Roundup};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::time::Duration;

/// The thread that does what one alone does.
pub(super) const HOST: usize = 0;
/// How long the lists of all threads may take together.
const LISTS_LIMIT: Duration = Duration::from_secs(10);
const PAGE: u64 = 4096;
const RUNNER_LEN: u64 = 1024;
const PROT_RW: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
const PROT_RX: u64 = (libc::PROT_READ | libc::PROT_EXEC) as u64;
const MAP_OURS: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64;

/// Where a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whereabouts {
    /// At its stop, with its own registers and mask.
    Home,
    /// At a stop in our code, all signals blocked.
    Held,
    /// Running our code, as far as is known.
    Running,
    /// Home by itself or on its way there, or ended: nothing is written to it any more.
    Astray,
}

/// What a thread runs that is let run; when it comes in, its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    List,
    Picture,
    Aside,
}

/// See the module's header.
#[derive(Debug)]
pub(super) struct Site {
    pid: i32,
    threads: Vec<HostTid>,
    whereabouts: RefCell<Vec<Whereabouts>>,
    gate: Gate,
    placed: Placed,
    pub(super) runner: Runner,
    base: u64,
    len: u64,
    code_len: u64,
    pool: RefCell<Option<Range<u64>>>,
    /// The first thread stands at the tail stub's call, at a stop of a system call.
    at_call: Cell<bool>,
    closed: Cell<bool>,
}

impl Site {
    /// Sets a workshop up. On an error the process is as it was.
    pub(super) fn set_up(
        process: &mut StoppedProcess,
        gate: Gate,
        apart: Option<u64>,
    ) -> Result<Site, InjectError> {
        let pid = process.pid.0;
        let at = place::find(process)?;
        let (threads, memory) = process.parts();
        for thread in threads {
            let settled = thread.settle_rseq(memory);
            settled.map_err(|source| InjectError::Trace { pid, source })?;
        }
        let count = process.threads.len() as u64;
        let code_len = (RUNNER_LEN + count * HOME_CODE).next_multiple_of(PAGE);
        let data_len =
            (64 + (count * 8).next_multiple_of(64) + count * slot::LEN).next_multiple_of(PAGE);
        let too_long = || InjectError::NoPlace {
            pid,
            why: "a stub is longer than its room",
        };
        let host = home_of(&process.threads[0], process);
        let tail = stub::tail_stub(gate, &host, at).ok_or_else(too_long)?;
        let mut site = Site {
            pid,
            threads: process.threads.iter().map(|thread| thread.tid).collect(),
            whereabouts: RefCell::new(vec![Whereabouts::Home; process.threads.len()]),
            gate,
            placed: Placed::put(process.memory(), at, tail)?,
            runner: runner::runner(gate, 0).ok_or_else(too_long)?,
            base: 0,
            len: code_len + data_len,
            code_len,
            pool: RefCell::new(None),
            at_call: Cell::new(false),
            closed: Cell::new(false),
        };
        match site.map(process, apart) {
            Ok(()) => Ok(site),
            Err(error) => Err(match site.close(process) {
                Ok(()) => error,
                Err(cleanup) => error.and_then(cleanup),
            }),
        }
    }

    fn map(&mut self, process: &mut StoppedProcess, apart: Option<u64>) -> Result<(), InjectError> {
        let len = self.len;
        let args = [apart.unwrap_or(0), len, PROT_RW, MAP_OURS, u64::MAX, 0];
        self.base = self.mapping(process, libc::SYS_mmap, args, len)?;
        self.runner = runner::runner(self.gate, self.base).ok_or(InjectError::NoPlace {
            pid: self.pid,
            why: "the runner is longer than its room",
        })?;
        // Not mprotect: a process may have given up making writable memory executable.
        let flags = MAP_OURS | libc::MAP_FIXED as u64;
        let args = [self.base, self.code_len, PROT_RX, flags, u64::MAX, 0];
        self.mapping(process, libc::SYS_mmap, args, len)?;
        write(process.memory(), self.base, &self.code()?)?;
        write(process.memory(), self.data(), &self.fresh_data(process))?;
        // From now on others may stand in it.
        self.placed.set_undo(process.memory(), 0)
    }

    /// Makes a mapping, to be undone by the stub with `undo` bytes if we die.
    fn mapping(
        &self,
        process: &mut StoppedProcess,
        nr: i64,
        args: [u64; 6],
        undo: u64,
    ) -> Result<u64, InjectError> {
        let result = self.host_call(process, nr, args, undo)?;
        u64::try_from(result).map_err(|_| InjectError::Refused {
            pid: self.pid,
            what: "mmap for injected calls",
            source: io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EINVAL)),
        })
    }

    /// A call made by the first thread at the tail stub.
    fn host_call(
        &self,
        process: &mut StoppedProcess,
        nr: i64,
        args: [u64; 6],
        undo: u64,
    ) -> Result<i64, InjectError> {
        self.nobody_astray()?;
        let home = home_of(&process.threads[0], process).registers;
        if self.at_call.replace(false) {
            // The result of the last call must not be taken for a mapping to be undone by the new length.
            let registers = stub::after_call(self.gate, &home, self.placed.stub.call);
            let tid = self.threads[0];
            ptrace::set_registers(tid.0, &registers).map_err(trace(
                self.pid,
                tid,
                "set registers",
            ))?;
        }
        self.placed.set_undo(process.memory(), undo)?;
        let first = self.whereabouts.borrow()[0] == Whereabouts::Home;
        let call = self.placed.stub.call;
        let registers = if first {
            stub::first_call(self.gate, &home, call, nr, args)
        } else {
            stub::later_call(self.gate, &home, call, nr, args)
        };
        // Until it is known to be at the stop behind the call.
        self.goes(process, 0, Whereabouts::Running);
        let (result, job_control) = hands::call(self.pid, self.threads[0], &registers, first)?;
        self.at_call.set(true);
        self.goes(process, 0, Whereabouts::Held);
        process.group_stopped = job_control.or(process.group_stopped);
        Ok(result)
    }

    fn goes(&self, process: &mut StoppedProcess, index: usize, to: Whereabouts) {
        self.whereabouts.borrow_mut()[index] = to;
        process.threads[index].leave();
    }

    fn data(&self) -> u64 {
        self.base + self.code_len
    }

    fn done_word(&self, index: usize) -> u64 {
        self.data() + 64 + 8 * index as u64
    }

    fn slot(&self, index: usize) -> u64 {
        let words = (self.threads.len() as u64 * 8).next_multiple_of(64);
        self.data() + 64 + words + index as u64 * slot::LEN
    }

    fn way_home(&self, index: usize) -> u64 {
        self.base + RUNNER_LEN + index as u64 * HOME_CODE
    }

    /// Addresses that are ours.
    pub(super) fn ranges(&self) -> Vec<Range<u64>> {
        let mut ranges = vec![];
        if !self.closed.get() {
            ranges.push(self.base..self.base + self.len);
            ranges.extend(self.pool.borrow().clone());
        }
        ranges
    }

    fn code(&self) -> Result<Vec<u8>, InjectError> {
        let wrong = InjectError::NoPlace {
            pid: self.pid,
            why: "a stub is longer than its room",
        };
        let mut code = self.runner.bytes.clone();
        if code.len() as u64 > RUNNER_LEN {
            return Err(wrong);
        }
        code.resize(RUNNER_LEN as usize, 0);
        // Ways home and slots are equally far apart, so the code is the same for all.
        let mut asm = Asm::at(self.way_home(0), self.gate);
        stub::emit_home(&mut asm, self.slot(0) + slot::HOME as u64);
        let mut way_home = asm.finish().ok_or(wrong)?;
        way_home.resize(HOME_CODE as usize, 0);
        for _ in &self.threads {
            code.extend(&way_home);
        }
        Ok(code)
    }

    /// Mask, done words and slots, no list in any.
    fn fresh_data(&self, process: &StoppedProcess) -> Vec<u8> {
        let mut data = ALL_SIGNALS.to_le_bytes().to_vec();
        let mut asm = Asm::at(self.way_home(0), self.gate);
        let entries = stub::emit_home(&mut asm, self.slot(0) + slot::HOME as u64);
        for (index, thread) in process.threads.iter().enumerate() {
            let at = self.slot(index);
            data.resize((at - self.data()) as usize, 0);
            let offset = self.way_home(index) - self.way_home(0);
            let words = [
                0,
                0,
                self.done_word(index),
                entries.plain + offset,
                entries.interrupted + offset,
                PARK_S,
                0,
                0,
                0,
                PATIENCE_S,
                0,
                0,
            ];
            data.extend(words.into_iter().flat_map(u64::to_le_bytes));
            let home = home_of(thread, process);
            data.extend(stub::home_data(&home, at + slot::HOME as u64));
        }
        data
    }

    /// See [`super::Workshop::run`].
    pub(super) fn run(
        &self,
        process: &mut StoppedProcess,
        lists: &[(HostTid, CallList)],
    ) -> Result<Vec<CallResults>, InjectError> {
        let indices = self.indices_of(lists)?;
        self.run_at(process, &indices, lists, Entry::List)
    }

    /// See [`super::Workshop::run_aside`].
    pub(super) fn run_aside(
        &self,
        process: &mut StoppedProcess,
        lists: &[(HostTid, CallList)],
    ) -> Result<Vec<io::Result<CallResults>>, InjectError> {
        let indices = self.indices_of(lists)?;
        // A thread's first entry leads to its list.
        let at_home = |index: &usize| self.whereabouts.borrow()[*index] == Whereabouts::Home;
        let first: Vec<usize> = indices.iter().copied().filter(at_home).collect();
        let nothing = vec![CallList::new(); first.len()];
        let entered: Vec<_> = first.iter().map(|index| self.threads[*index]).collect();
        let entered: Vec<_> = entered.into_iter().zip(nothing).collect();
        self.run_at(process, &first, &entered, Entry::List)?;
        let results = self.run_at(process, &indices, lists, Entry::Aside)?;
        let made = indices.into_iter().zip(results).map(|(index, results)| {
            let child = self.slot_word(process, index, slot::INTERMEDIATE)?;
            let error = i32::try_from(-child).ok().filter(|error| *error >= 0);
            Ok(match error {
                Some(error) => Err(io::Error::from_raw_os_error(error)),
                None => Ok(results),
            })
        });
        made.collect()
    }

    fn indices_of(&self, lists: &[(HostTid, CallList)]) -> Result<Vec<usize>, InjectError> {
        let pid = self.pid;
        let mut left: HashMap<HostTid, usize> = self.threads.iter().copied().zip(0..).collect();
        let indices = lists.iter().map(|(tid, _)| {
            let index = left.remove(tid);
            index.ok_or(InjectError::Stranger { pid, tid: tid.0 })
        });
        indices.collect()
    }

    fn run_at(
        &self,
        process: &mut StoppedProcess,
        indices: &[usize],
        lists: &[(HostTid, CallList)],
        entry: Entry,
    ) -> Result<Vec<CallResults>, InjectError> {
        let pid = process.pid.0;
        let InPool { layout, pool } = self.place(process, indices, lists)?;
        let deadline = Deadline::after(LISTS_LIMIT);
        let mut roundup = Roundup::default();
        for some in indices.chunks(LAUNCHED_AT_ONCE) {
            for index in some {
                self.launch(process, *index, entry)?;
            }
            roundup.running.extend(some);
            self.pass(process, &mut roundup)?;
        }
        self.finish(process, roundup, &deadline)?;
        let mut bytes = vec![0; layout.len as usize];
        process
            .memory()
            .read(pool, &mut bytes)
            .map_err(|source| InjectError::Memory {
                pid,
                address: pool,
                source,
            })?;
        Ok(layout.results(&bytes, lists))
    }

    /// Puts lists into the process's memory, and gives them to their threads.
    pub(super) fn place(
        &self,
        process: &mut StoppedProcess,
        indices: &[usize],
        lists: &[(HostTid, CallList)],
    ) -> Result<InPool, InjectError> {
        let layout = Layout::of(lists.iter().map(|(_, list)| list));
        let pool = self.pool(process, layout.len.max(1))?;
        write(process.memory(), pool, &layout.bytes(pool, lists))?;
        let handed: Vec<(usize, u64, u64)> = indices
            .iter()
            .zip(lists)
            .zip(&layout.starts)
            .map(|((index, (_, list)), start)| (*index, pool + start, list.len()))
            .collect();
        self.hand_out(process, &handed)?;
        Ok(InPool { layout, pool })
    }

    /// Room of at least `len` bytes for lists.
    fn pool(&self, process: &mut StoppedProcess, len: u64) -> Result<u64, InjectError> {
        let now = self.pool.borrow().clone();
        if let Some(range) = now {
            if range.end - range.start >= len {
                return Ok(range.start);
            }
            self.host_call(
                process,
                libc::SYS_munmap,
                [range.start, range.end - range.start, 0, 0, 0, 0],
                0,
            )?;
            *self.pool.borrow_mut() = None;
        }
        let len = len.next_multiple_of(16 * PAGE);
        // Beside the rest, not to need page tables elsewhere.
        let hint = self.base + self.len + PAGE;
        let args = [hint, len, PROT_RW, MAP_OURS, u64::MAX, 0];
        let start = self.mapping(process, libc::SYS_mmap, args, len)?;
        *self.pool.borrow_mut() = Some(start..start + len);
        self.placed.set_undo(process.memory(), 0)?;
        Ok(start)
    }

    /// Gives threads their lists (`(index, address of the calls, number of calls)`), and none to the others.
    pub(super) fn hand_out(
        &self,
        process: &StoppedProcess,
        lists: &[(usize, u64, u64)],
    ) -> Result<(), InjectError> {
        self.nobody_astray()?;
        let mut data = self.fresh_data(process);
        for (index, calls, count) in lists {
            let at = (self.slot(*index) - self.data()) as usize;
            data[at..at + 8].copy_from_slice(&calls.to_le_bytes());
            data[at + 8..at + 16].copy_from_slice(&count.to_le_bytes());
        }
        write(process.memory(), self.data(), &data)
    }

    /// Lets a thread run our code.
    pub(super) fn launch(
        &self,
        process: &mut StoppedProcess,
        index: usize,
        entry: Entry,
    ) -> Result<(), InjectError> {
        let tid = self.threads[index];
        let pid = self.pid;
        let home = home_of(&process.threads[index], process).registers;
        let first = self.whereabouts.borrow()[index] == Whereabouts::Home;
        if index == 0 {
            self.at_call.set(false);
        }
        let mut registers = if first {
            let args = [libc::SIG_SETMASK as u64, self.data(), 0, 8, 0, 0];
            let nr = libc::SYS_rt_sigprocmask;
            stub::first_call(self.gate, &home, self.runner.enter, nr, args)
        } else {
            let at = match entry {
                Entry::List => self.runner.list,
                Entry::Picture => self.runner.picture,
                Entry::Aside => self.runner.aside,
            };
            stub::at(&home, at)
        };
        registers.rbx = self.slot(index);
        self.goes(process, index, Whereabouts::Held);
        ptrace::set_registers(tid.0, &registers).map_err(trace(pid, tid, "set registers"))?;
        if first {
            ptrace::set_signal_mask(tid.0, ALL_SIGNALS).map_err(trace(
                pid,
                tid,
                "block signals",
            ))?;
        }
        self.goes(process, index, Whereabouts::Running);
        ptrace::cont(tid.0, 0).map_err(trace(pid, tid, "let run"))
    }

    /// The number of a stopped thread's slot word.
    pub(super) fn slot_word(
        &self,
        process: &StoppedProcess,
        index: usize,
        offset: i32,
    ) -> Result<i64, InjectError> {
        let address = self.slot(index) + offset as u64;
        let word = process
            .memory()
            .read_u64(address)
            .map_err(|source| InjectError::Memory {
                pid: self.pid,
                address,
                source,
            })?;
        Ok(word as i64)
    }

    /// Zeroes the tail stub in a copy of the memory.
    pub(super) fn clean(&self, memory: &crate::tracee::Memory) -> Result<(), InjectError> {
        self.placed.take_away(memory)
    }

    /// Takes everything away; the first error, after all has been tried.
    ///
    /// While a thread is not known to be out of it, what it stands in must stay: then the workshop (and, if
    /// it is the host, the tail stub) is left to it, as by a checkpoint that was killed.
    pub(super) fn close(&self, process: &mut StoppedProcess) -> Result<(), InjectError> {
        if self.closed.replace(true) {
            return Ok(());
        }
        let pid = self.pid;
        let mut result = self.halt_all(process);
        // If we die from now on, they are at home with what they are given here.
        process.enter_again(None);
        for index in self.indices(|place| place == Whereabouts::Held) {
            if index != 0 {
                result = result.and(self.start_home(process, index));
                result = result.and(self.bring_home(process, index));
            }
        }
        let is_out = |place| matches!(place, Whereabouts::Home | Whereabouts::Held);
        let pool = self.pool.borrow_mut().take();
        let workshop = (self.base != 0).then_some(self.base..self.base + self.len);
        let ranges: Vec<Range<u64>> = pool.into_iter().chain(workshop).collect();
        let len = ranges.iter().map(|range| range.end - range.start).sum();
        let mut left = ranges.len();
        if self.indices(|place| !is_out(place)).is_empty() {
            for range in &ranges {
                let args = [range.start, range.end - range.start, 0, 0, 0, 0];
                match self.host_call(process, libc::SYS_munmap, args, 0) {
                    Ok(_) => left -= 1,
                    Err(error) => result = result.and(Err(error)),
                }
            }
            result = result.and(self.halt_all(process));
        }
        if left > 0 {
            result = result.and(Err(InjectError::LeftBehind { pid, len }));
        }
        if self.indices(|place| place == Whereabouts::Held) == [0] {
            result = result.and(self.bring_home(process, 0));
        }
        // Where they are now nobody knows; each has all it needs to get home.
        for index in self.indices(|place| place != Whereabouts::Home) {
            self.stray(process, index);
        }
        if self.whereabouts.borrow()[0] == Whereabouts::Home {
            result = result.and(self.placed.take_away(process.memory()));
        }
        if self.at_call.replace(false) {
            match hands::to_event_stop(pid, self.threads[0]) {
                Ok(signal) => process.group_stopped = hands::by_job_control(signal),
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    fn halt_all(&self, process: &mut StoppedProcess) -> Result<(), InjectError> {
        let running = self.indices(|place| place == Whereabouts::Running);
        if running.is_empty() {
            return Ok(());
        }
        self.halt(process, &running, &Deadline::after(hands::CALL_LIMIT))
    }

    fn bring_home(&self, process: &mut StoppedProcess, index: usize) -> Result<(), InjectError> {
        let pid = self.pid;
        let home = process.threads[index].bring_home();
        home.map_err(|source| InjectError::Trace { pid, source })?;
        self.whereabouts.borrow_mut()[index] = Whereabouts::Home;
        Ok(())
    }

    /// Puts a thread whose call is to be entered again, because it has a mask of its own, at the
    /// beginning of its way home. Where it waits, a handler that its mask lets run would count as one that ends
    /// the call, if we died between setting its mask and its registers.
    fn start_home(&self, process: &StoppedProcess, index: usize) -> Result<(), InjectError> {
        let Some(registers) = process.threads[index].call_to_enter() else {
            return Ok(());
        };
        let tid = self.threads[index];
        let start = stub::at(&registers, self.way_home(index));
        ptrace::set_registers(tid.0, &start).map_err(trace(self.pid, tid, "set registers"))
    }

    fn indices(&self, which: impl Fn(Whereabouts) -> bool) -> Vec<usize> {
        let whereabouts = self.whereabouts.borrow();
        (0..whereabouts.len())
            .filter(|index| which(whereabouts[*index]))
            .collect()
    }
}

impl Resident for Site {
    fn leave(&self, process: &mut StoppedProcess) -> Result<(), StopError> {
        let pid = self.pid;
        self.close(process).map_err(|source| StopError::LeftBehind {
            pid,
            source: Box::new(source),
        })
    }
}

/// What a thread goes home with if we are not there any more: as what it goes on with when we are.
fn home_of(thread: &StoppedThread, process: &StoppedProcess) -> Home {
    let at = thread.stopped_at_ns;
    let again: Option<Registers> = reenter::go_on(thread, process.memory(), at);
    Home {
        registers: again.unwrap_or_else(|| thread.home_registers()),
        mask: thread.home_mask(),
        ending_mask: thread.ending_mask(),
    }
}
