//! Processes whose first thread has ended while others go on (`pthread_exit` in `main`).
//!
//! Their files in `/proc` are empty then: it had given back memory and descriptors when it ended, and is left only to be waited for
//! (kernel/exit.c, `do_exit`). `/proc/TID` of a thread that lives has all that `/proc/PID` had, and system calls that take the number
//! of a process take that thread's.

use super::{ProcDir, parse_stat, parse_status};

/// Whether a process has ended, or is about to: no thread of it will execute anything any more.
#[must_use]
pub fn has_ended(pid: i32) -> bool {
    let dir = ProcDir::of(pid);
    match dir.threads() {
        Ok(threads) => threads.into_iter().all(|tid| is_ending(&dir.thread(tid))),
        // That it cannot be looked at says nothing.
        Err(error) => error.is_gone(),
    }
}

/// A thread that is gone, is going, or has been killed and only has to notice.
fn is_ending(thread: &ProcDir) -> bool {
    const KILLED: u64 = 1 << (libc::SIGKILL - 1);
    // In this order: it goes from the one to the other.
    let status = thread.parsed("status", parse_status);
    let stat = thread.parsed("stat", parse_stat);
    status.is_ok_and(|status| status.pending & KILLED != 0)
        || stat.map_or_else(|error| error.is_gone(), |stat| stat.is_ending())
}

/// The first thread of a process; where it has ended, the one of those that live that was begun first. Itself where none lives, or
/// none can be seen.
#[must_use]
pub fn living_thread(pid: i32) -> i32 {
    let dir = ProcDir::of(pid);
    let first = dir.thread(pid).parsed("stat", parse_stat);
    if !first.is_ok_and(|stat| stat.is_ending()) {
        return pid;
    }
    let others = dir.threads().unwrap_or_default();
    let others = others.into_iter().filter(|tid| *tid != pid);
    let began = |tid| match dir.thread(tid).parsed("stat", parse_stat) {
        Ok(stat) if !stat.is_ending() => Some((stat.start_ticks, tid)),
        _ => None,
    };
    others.filter_map(began).min().map_or(pid, |(_, tid)| tid)
}

/// So often another thread may stand for a process.
const MOST_THREADS: u32 = 100;

/// Does something with a process by its [`living_thread`]. Where that is in vain and the thread has ended meanwhile, it is done by another.
///
/// # Errors
/// Those of what is done, with a thread that lives or a process that has ended.
pub fn by_living_thread<T, E>(pid: i32, mut act: impl FnMut(i32) -> Result<T, E>) -> Result<T, E> {
    let mut thread = living_thread(pid);
    for _ in 1..MOST_THREADS {
        let done = act(thread);
        let living = living_thread(pid);
        if done.is_ok() || living == thread {
            return done;
        }
        thread = living;
    }
    act(thread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn the_first_thread_stands_for_itself_as_long_as_it_lives() {
        let pid = std::process::id().cast_signed();
        assert_eq!(living_thread(pid), pid);
        assert!(!has_ended(pid));
        // What is in vain by a thread that lives is not done again.
        let mut times = 0;
        let in_vain = by_living_thread(pid, |thread| {
            times += 1;
            Err::<(), i32>(thread)
        });
        assert_eq!((in_vain, times), (Err(pid), 1));
        // Of one that is not there, there is none.
        assert_eq!(living_thread(i32::MAX), i32::MAX);
        assert!(has_ended(i32::MAX));
    }

    #[test]
    fn one_that_lives_stands_for_a_first_thread_that_has_ended() {
        let script = "import ctypes, threading, time\n\
                      threading.Thread(target=time.sleep, args=(60,)).start()\n\
                      ctypes.CDLL(None).syscall(60, 0)";
        let mut command = Command::new("python3");
        let child = command.args(["-c", script]).stdin(Stdio::null()).spawn();
        let mut child = child.expect("python3");
        let pid = child.id().cast_signed();
        let until = Instant::now() + Duration::from_secs(20);
        while living_thread(pid) == pid && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        let living = living_thread(pid);
        let maps = |id| ProcDir::of(id).bytes("maps").map_or(0, |text| text.len());
        let tried_by = by_living_thread(pid, |thread| match thread == living {
            true => Ok(thread),
            false => Err(thread),
        });
        assert_eq!(tried_by, Ok(living));
        let found = (living != pid, has_ended(pid), maps(pid), maps(living) > 0);
        child.kill().expect("kill");
        // A zombie: nobody has waited for it.
        while living_thread(pid) != pid && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        let ended = (has_ended(pid), living_thread(pid) == pid);
        child.wait().expect("wait");
        assert_eq!(found, (true, false, 0, true));
        assert_eq!(ended, (true, true));
    }
}
