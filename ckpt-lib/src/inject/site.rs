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

use super::asm::Asm;
use super::hands::{self, ALL_SIGNALS};
use super::list::{CallList, CallResults, Layout};
use super::place::{self, Placed, write};
use super::stub::{self, HOME_CODE, Home, PARK_S, PATIENCE_S, Runner, slot};
use super::{InjectError, hands::trace};
use crate::snapshot::Registers;
use crate::sys::ptrace;
use crate::tracee::{Deadline, HostTid, Resident, StoppedProcess, StoppedThread, reenter};
use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Range;
use std::time::Duration;

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
    /// Running our code.
    Running,
}

/// See the module's header.
#[derive(Debug)]
pub(super) struct Site {
    pid: i32,
    threads: Vec<HostTid>,
    whereabouts: RefCell<Vec<Whereabouts>>,
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
    pub(super) fn set_up(process: &mut StoppedProcess) -> Result<Site, InjectError> {
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
        let tail = stub::tail_stub(&host, at).ok_or_else(too_long)?;
        let mut site = Site {
            pid,
            threads: process.threads.iter().map(|thread| thread.tid).collect(),
            whereabouts: RefCell::new(vec![Whereabouts::Home; process.threads.len()]),
            placed: Placed::put(process.memory(), at, tail)?,
            runner: stub::runner(0).ok_or_else(too_long)?,
            base: 0,
            len: code_len + data_len,
            code_len,
            pool: RefCell::new(None),
            at_call: Cell::new(false),
            closed: Cell::new(false),
        };
        match site.map(process) {
            Ok(()) => Ok(site),
            Err(error) => {
                site.leave(process);
                Err(error)
            }
        }
    }

    fn map(&mut self, process: &mut StoppedProcess) -> Result<(), InjectError> {
        let len = self.len;
        let args = [0, len, PROT_RW, MAP_OURS, u64::MAX, 0];
        self.base = self.mapping(process, libc::SYS_mmap, args, len)?;
        self.runner = stub::runner(self.base).ok_or(InjectError::NoPlace {
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
        let home = home_of(&process.threads[0], process).registers;
        if self.at_call.get() {
            // The result of the last call must not be taken for a mapping to be undone by the new length.
            let registers = stub::after_call(&home, self.placed.stub.call);
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
            stub::first_call(&home, call, nr, args)
        } else {
            stub::later_call(&home, call, nr, args)
        };
        self.goes(process, 0, Whereabouts::Held);
        let result = hands::call(self.pid, self.threads[0], &registers, first);
        self.at_call.set(result.is_ok());
        if matches!(result, Err(InjectError::Deadline { .. })) {
            self.goes(process, 0, Whereabouts::Running);
        }
        result
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
        code.resize(RUNNER_LEN as usize, 0);
        // Ways home and slots are equally far apart, so the code is the same for all.
        let mut asm = Asm::at(self.way_home(0));
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
        let mut asm = Asm::at(self.way_home(0));
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
        let pid = process.pid.0;
        let mut indices = vec![];
        for (tid, _) in lists {
            let index = self.threads.iter().position(|known| known == tid);
            let index = index.filter(|index| !indices.contains(index));
            indices.push(index.ok_or(InjectError::Stranger { pid, tid: tid.0 })?);
        }
        let layout = Layout::of(lists.iter().map(|(_, list)| list));
        let pool = self.pool(process, layout.len.max(1))?;
        write(process.memory(), pool, &layout.bytes(pool, lists))?;
        let handed: Vec<(usize, u64, u64)> = indices
            .iter()
            .zip(lists)
            .zip(&layout.starts)
            .map(|((index, (_, list)), start)| (*index, pool + start, list.calls.len() as u64))
            .collect();
        self.hand_out(process, &handed)?;
        for index in &indices {
            self.launch(process, *index, false)?;
        }
        self.gather(process, &indices, &Deadline::after(LISTS_LIMIT))?;
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
        let args = [0, len, PROT_RW, MAP_OURS, u64::MAX, 0];
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
        let mut data = self.fresh_data(process);
        for (index, calls, count) in lists {
            let at = (self.slot(*index) - self.data()) as usize;
            data[at..at + 8].copy_from_slice(&calls.to_le_bytes());
            data[at + 8..at + 16].copy_from_slice(&count.to_le_bytes());
        }
        write(process.memory(), self.data(), &data)
    }

    /// Lets a thread run our code: its list, or the picture.
    pub(super) fn launch(
        &self,
        process: &mut StoppedProcess,
        index: usize,
        picture: bool,
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
            stub::first_call(&home, self.runner.enter, nr, args)
        } else {
            let at = if picture {
                self.runner.picture
            } else {
                self.runner.list
            };
            stub::later_call(&home, at, 0, [0; 6])
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

    /// Waits until all these threads say they are done, then stops them.
    pub(super) fn gather(
        &self,
        process: &mut StoppedProcess,
        indices: &[usize],
        deadline: &Deadline,
    ) -> Result<(), InjectError> {
        let words = self.data() + 64;
        let mut done = vec![0; self.threads.len() * 8];
        let mut tries = 0;
        loop {
            process
                .memory()
                .read(words, &mut done)
                .map_err(|source| InjectError::Memory {
                    pid: self.pid,
                    address: words,
                    source,
                })?;
            let missing = indices.iter().find(|index| done[**index * 8] == 0);
            let Some(missing) = missing else { break };
            let missing = self.threads[*missing];
            if deadline.is_over() {
                return Err(InjectError::Deadline {
                    tid: missing.0,
                    waited_ms: deadline.limit_ms(),
                });
            }
            if tries % 64 == 63 {
                self.attend(missing)?;
            }
            ptrace::pause(tries);
            tries += 1;
        }
        self.halt(process, indices, deadline)
    }

    /// Looks why a thread is not done: it may stand at a stop that nobody asked for.
    fn attend(&self, tid: HostTid) -> Result<(), InjectError> {
        let waited = match ptrace::try_wait(tid.0) {
            Ok(None) => return Ok(()),
            Ok(Some(ptrace::Waited::Ended)) | Err(_) => {
                return Err(InjectError::Gone { pid: self.pid });
            }
            Ok(Some(waited)) => waited,
        };
        let signal = match waited {
            ptrace::Waited::Signal(signal) if signal != libc::SIGSTOP => {
                let rip = ptrace::registers(tid.0).map_or(0, |registers| registers.rip);
                let _ = ptrace::cont(tid.0, signal);
                return Err(InjectError::Escaped {
                    tid: tid.0,
                    what: format!("signal {signal} at {rip:#x}"),
                });
            }
            ptrace::Waited::Signal(signal) => signal,
            _ => 0,
        };
        ptrace::cont(tid.0, signal).map_err(trace(self.pid, tid, "let run"))
    }

    fn halt(
        &self,
        process: &mut StoppedProcess,
        indices: &[usize],
        deadline: &Deadline,
    ) -> Result<(), InjectError> {
        for index in indices {
            let tid = self.threads[*index];
            ptrace::interrupt(tid.0).map_err(trace(self.pid, tid, "stop"))?;
        }
        for index in indices {
            let tid = self.threads[*index];
            hands::wait_for_stop(self.pid, tid, deadline)?;
            self.goes(process, *index, Whereabouts::Held);
        }
        for index in indices {
            let tid = self.threads[*index];
            let registers =
                ptrace::registers(tid.0).map_err(trace(self.pid, tid, "read registers"))?;
            if !(self.base..self.base + self.code_len).contains(&registers.rip) {
                return Err(InjectError::Escaped {
                    tid: tid.0,
                    what: format!("it is at {:#x}", registers.rip),
                });
            }
        }
        Ok(())
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
    pub(super) fn close(&self, process: &mut StoppedProcess) -> Result<(), InjectError> {
        if self.closed.replace(true) {
            return Ok(());
        }
        let mut result = Ok(());
        let running: Vec<usize> = self.indices(|place| place == Whereabouts::Running);
        if !running.is_empty() {
            let deadline = Deadline::after(hands::CALL_LIMIT);
            result = result.and(self.halt(process, &running, &deadline));
        }
        let pid = self.pid;
        // If we die from now on, they are at home with what they are given here.
        process.enter_again();
        for index in self.indices(|place| place != Whereabouts::Home) {
            if index != 0 {
                let home = process.threads[index].bring_home();
                result = result.and(home.map_err(|source| InjectError::Trace { pid, source }));
                self.whereabouts.borrow_mut()[index] = Whereabouts::Home;
            }
        }
        let pool = self.pool.borrow_mut().take();
        let workshop = (self.base != 0).then_some(self.base..self.base + self.len);
        for range in pool.into_iter().chain(workshop) {
            let args = [range.start, range.end - range.start, 0, 0, 0, 0];
            let unmapped = self.host_call(process, libc::SYS_munmap, args, 0);
            result = result.and(unmapped.map(|_| ()));
        }
        if self.whereabouts.borrow()[0] != Whereabouts::Home {
            let home = process.threads[0].bring_home();
            result = result.and(home.map_err(|source| InjectError::Trace { pid, source }));
            self.whereabouts.borrow_mut()[0] = Whereabouts::Home;
        }
        result = result.and(self.placed.take_away(process.memory()));
        if self.at_call.replace(false) {
            result = result.and(hands::to_event_stop(pid, self.threads[0]));
        }
        result
    }

    fn indices(&self, which: impl Fn(Whereabouts) -> bool) -> Vec<usize> {
        let whereabouts = self.whereabouts.borrow();
        (0..whereabouts.len())
            .filter(|index| which(whereabouts[*index]))
            .collect()
    }
}

impl Resident for Site {
    fn leave(&self, process: &mut StoppedProcess) {
        let _ = self.close(process);
    }
}

/// What a thread goes home with if we are not there any more: as what it goes on with when we are.
fn home_of(thread: &StoppedThread, process: &StoppedProcess) -> Home {
    let now = ptrace::monotonic_ns();
    let again: Option<Registers> = reenter::go_on(thread, process.memory(), now);
    Home {
        registers: again.unwrap_or_else(|| thread.home_registers()),
        mask: thread.home_mask(),
    }
}
