//! What the process has used of processors: the kernel's answer, and what it had used before it was restarted ([`crate::used`]).
//!
//! ```text
//! freezes -> which slot counts -> the kernel is asked -> its answer and the slot's    --freezes is another now--> once more
//! ```
//! The kernel writes its answer where the program wants it, so what is no place for one is the kernel's to say; then it is changed
//! there.
//!
//! # What it does not do
//! `/proc/self/stat` and RLIMIT_CPU count from the restart. A call that waits for a moment of a CPU clock while it is restarted (TIMER_ABSTIME)
//! waits for that many more.

use super::Served;
use crate::program::sys::{self, SysResult, call};
use crate::program::{process, stream};
use crate::used::{Amount, Slot, USAGE_WORDS, Used, sum};
use core::ffi::CStr;
use core::sync::atomic::{Ordering, fence};

const RUSAGE_SELF: i32 = 0;
const RUSAGE_CHILDREN: i32 = -1;
const RUSAGE_THREAD: i32 = 1;
const TIMER_ABSTIME: u64 = 1;
const SECOND_NS: u64 = 1_000_000_000;

pub(super) fn serve(number: u64, args: &[u64; 6]) -> Served {
    match number {
        sys::GETRUSAGE => usage(args),
        sys::TIMES => Some(times(args)),
        sys::CLOCK_GETTIME => clock(args),
        sys::CLOCK_NANOSLEEP if args[1] & TIMER_ABSTIME != 0 => sleep(args),
        sys::TIMER_SETTIME if args[1] & TIMER_ABSTIME != 0 => set_timer(args),
        _ => None,
    }
}

/// Does something with what was used before, if anything was, as often as the job is frozen meanwhile.
fn with_before<T>(act: impl Fn(Option<&Slot>) -> SysResult<T>) -> SysResult<T> {
    let used = process::table()
        .filter(|_| process::is_first())
        .map(|table| &table.used);
    let Some(used) = used else {
        return act(None);
    };
    loop {
        let freeze = used.freezes.load(Ordering::Acquire);
        let done = act(before(used, freeze));
        fence(Ordering::Acquire);
        if used.freezes.load(Ordering::Relaxed) == freeze {
            return done;
        }
    }
}

/// The slot that counts in this copy of the job. Which copy it is need be asked once for each freeze, since a restart comes behind one.
fn before(used: &Used, freeze: u64) -> Option<&Slot> {
    if freeze == 0 {
        return None;
    }
    let found = used.found.load(Ordering::Acquire);
    let slot = if found >> 2 == freeze {
        found & 3
    } else {
        let link = stream::link()?;
        let slot = used
            .in_use(link.generation)
            .map_or(0, |index| index as u64 + 1);
        used.found.store(freeze << 2 | slot, Ordering::Release);
        slot
    };
    used.slots.get(usize::try_from(slot.checked_sub(1)?).ok()?)
}

/// Where the thread's own data is, by which it is known.
fn own_data() -> u64 {
    const ARCH_GET_FS: u64 = 0x1003;
    let mut base = 0u64;
    // SAFETY: the kernel writes a word.
    let _ = unsafe { call(sys::ARCH_PRCTL, [ARCH_GET_FS, &raw mut base as u64]) };
    base
}

fn own_thread(slot: &Slot) -> Option<Amount> {
    slot.thread(sys::tid(), own_data(), slot.is_of(sys::pid()))
}

fn usage(args: &[u64; 6]) -> Served {
    let [who, place, ..] = *args;
    let who = who as i32;
    if !matches!(who, RUSAGE_SELF | RUSAGE_CHILDREN | RUSAGE_THREAD) {
        return None;
    }
    Some(with_before(|slot| {
        // SAFETY: it is what the program asked for.
        let result = unsafe { call(sys::GETRUSAGE, [who as u64, place]) }?;
        let before = slot.and_then(|slot| match who {
            RUSAGE_SELF => Some(slot.itself.read()),
            RUSAGE_CHILDREN => Some(slot.children.read()),
            _ => own_thread(slot),
        });
        if let Some(before) = before {
            let place = place as *mut [u64; USAGE_WORDS];
            // SAFETY: the kernel has just written that there.
            let now = unsafe { place.read_unaligned() };
            // SAFETY: as above.
            unsafe { place.write_unaligned(sum(&before.usage, &now)) };
        }
        Ok(result)
    }))
}

fn usage_of(who: i32) -> SysResult<Amount> {
    let mut amount = Amount::default();
    let place = amount.usage.as_mut_ptr() as u64;
    // SAFETY: the kernel writes a `struct rusage`.
    unsafe { call(sys::GETRUSAGE, [who as u64, place]) }?;
    Ok(amount)
}

/// times(2) is getrusage(2) in other units.
fn times(args: &[u64; 6]) -> SysResult<u64> {
    /// Microseconds of a clock tick (sysconf(_SC_CLK_TCK) is 100 everywhere).
    const TICK_US: u64 = 10_000;
    let place = args[0];
    with_before(|slot| {
        // SAFETY: it is what the program asked for.
        let result = unsafe { call(sys::TIMES, [place]) }?;
        if let Some(slot) = slot.filter(|_| place != 0) {
            let itself = slot.itself.read().and(&usage_of(RUSAGE_SELF)?);
            let children = slot.children.read().and(&usage_of(RUSAGE_CHILDREN)?);
            let all = [&itself, &children].map(|all| [all.user_us(), all.system_us()]);
            let all = all.map(|both| both.map(|time| time / TICK_US));
            // SAFETY: the kernel has just written four numbers there (`struct tms`).
            unsafe { (place as *mut [[u64; 2]; 2]).write_unaligned(all) };
        }
        Ok(result)
    })
}

/// Whose time a clock tells.
#[derive(Clone, Copy)]
enum Whose {
    Process,
    /// One of its threads, by its id; 0: ours.
    Thread(u32),
}

/// Which of its times.
#[derive(Clone, Copy)]
enum What {
    Both,
    User,
    /// To the nanosecond; what clocks tell that C libraries know.
    Runtime,
}

/// A CPU clock of this process (the kernel's include/linux/posix-timers_types.h); none: another clock, or another process's.
fn cpu_clock(id: u64) -> Option<(Whose, What)> {
    const PROCESS_CPUTIME_ID: i32 = 2;
    const THREAD_CPUTIME_ID: i32 = 3;
    const PER_THREAD: i32 = 4;
    let id = id as i32;
    match id {
        PROCESS_CPUTIME_ID => return Some((Whose::Process, What::Runtime)),
        THREAD_CPUTIME_ID => return Some((Whose::Thread(0), What::Runtime)),
        0.. => return None,
        _ => {}
    }
    let what = match id & 3 {
        0 => What::Both,
        1 => What::User,
        2 => What::Runtime,
        // A descriptor.
        _ => return None,
    };
    let of = !(id >> 3) as u32;
    if id & PER_THREAD != 0 {
        return Some((Whose::Thread(of), what));
    }
    (of == 0 || of == sys::pid()).then_some((Whose::Process, what))
}

fn before_ns(slot: &Slot, (whose, what): (Whose, What)) -> u64 {
    let amount = match whose {
        Whose::Process => Some(slot.itself.read()),
        Whose::Thread(0) => own_thread(slot),
        Whose::Thread(tid) if slot.is_of(sys::pid()) => slot.thread_called(tid),
        Whose::Thread(tid) if tid == sys::tid() => own_thread(slot),
        Whose::Thread(_) => None,
    };
    amount.map_or(0, |amount| match what {
        What::Runtime => amount.runtime_ns,
        What::User => amount.user_us().wrapping_mul(1000),
        What::Both => {
            let both = amount.user_us().wrapping_add(amount.system_us());
            both.wrapping_mul(1000)
        }
    })
}

fn clock(args: &[u64; 6]) -> Served {
    let [id, place, ..] = *args;
    let asked = cpu_clock(id)?;
    Some(with_before(|slot| {
        // SAFETY: it is what the program asked for.
        let result = unsafe { call(sys::CLOCK_GETTIME, [id, place]) }?;
        if let Some(slot) = slot {
            let place = place as *mut [u64; 2];
            // SAFETY: the kernel has just written that there (`struct timespec`).
            let [seconds, nanoseconds] = unsafe { place.read_unaligned() };
            let now = seconds * SECOND_NS + nanoseconds + before_ns(slot, asked);
            // SAFETY: as above.
            unsafe { place.write_unaligned([now / SECOND_NS, now % SECOND_NS]) };
        }
        Ok(result)
    }))
}

/// A moment of a clock of the job's as one of the kernel's; what is past stays so, and is not nothing.
fn shifted([seconds, nanoseconds]: [u64; 2], before_ns: u64) -> [u64; 2] {
    let at = seconds
        .saturating_mul(SECOND_NS)
        .saturating_add(nanoseconds);
    let at = at.saturating_sub(before_ns).max(1);
    [at / SECOND_NS, at % SECOND_NS]
}

fn is_valid([seconds, nanoseconds]: [u64; 2]) -> bool {
    seconds.cast_signed() >= 0 && nanoseconds < SECOND_NS
}

/// Whether anything has been used before.
fn has_before() -> bool {
    with_before(|slot| Ok(slot.is_some())).is_ok_and(|has| has)
}

/// clock_nanosleep(2) until a moment.
fn sleep(args: &[u64; 6]) -> Served {
    let [id, flags, place, rest, ..] = *args;
    let asked = cpu_clock(id)?;
    if !has_before() {
        return None;
    }
    // SAFETY: the program says that a moment is there.
    let until = *unsafe { (place as *const [u64; 2]).as_ref() }?;
    if !is_valid(until) {
        return None;
    }
    Some(with_before(|slot| {
        let until = shifted(until, slot.map_or(0, |slot| before_ns(slot, asked)));
        let args = [id, flags, until.as_ptr() as u64, rest];
        // SAFETY: the kernel reads two words.
        unsafe { call(sys::CLOCK_NANOSLEEP, args) }
    }))
}

/// timer_settime(2) to a moment.
fn set_timer(args: &[u64; 6]) -> Served {
    let [timer, flags, new, old, ..] = *args;
    if !has_before() {
        return None;
    }
    // SAFETY: the program says that a `struct itimerspec` is there.
    let [every, at] = *unsafe { (new as *const [[u64; 2]; 2]).as_ref() }?;
    // Who sets it to 0 stops it.
    if at == [0, 0] || !is_valid(at) {
        return None;
    }
    let asked = cpu_clock(clock_of_timer(timer)?)?;
    Some(with_before(|slot| {
        let at = shifted(at, slot.map_or(0, |slot| before_ns(slot, asked)));
        let changed = [every, at];
        let args = [timer, flags, changed.as_ptr() as u64, old];
        // SAFETY: the kernel reads four words, and writes what the program asked for.
        unsafe { call(sys::TIMER_SETTIME, args) }
    }))
}

/// So often a timer is looked for that is not listed.
const LISTINGS: u32 = 3;

/// By which clock a timer goes (proc(5), `/proc/pid/timers`).
fn clock_of_timer(timer: u64) -> Option<u64> {
    // Another thread may delete a timer between two reads, which hides the next one (fs/proc/base.c, `timers_start`): once more.
    (0..LISTINGS).find_map(|_| {
        let timers = sys::open(c"/proc/self/timers", sys::O_CLOEXEC).ok()?;
        let found = find_clock(timers, timer as i32);
        sys::close(timers);
        found.map(|clock| clock as u64)
    })
}

fn find_clock(timers: i32, wanted: i32) -> Option<i32> {
    let (mut text, mut len) = ([0u8; 1024], 0);
    let mut is_it = false;
    loop {
        let read = sys::read(timers, &mut text[len..]).ok()?;
        len += read;
        while let Some(end) = text[..len].iter().position(|byte| *byte == b'\n') {
            text[end] = 0;
            let line = CStr::from_bytes_until_nul(&text).ok()?.to_str().ok()?;
            if let Some(id) = line.strip_prefix("ID: ") {
                is_it = id.parse() == Ok(wanted);
            }
            if let Some(clock) = line.strip_prefix("ClockID: ").filter(|_| is_it) {
                return clock.parse().ok();
            }
            text.copy_within(end + 1..len, 0);
            len -= end + 1;
        }
        if read == 0 || len == text.len() {
            return None;
        }
    }
}
