//! What all threads of a process have in common, as far as it can be read from outside.

use super::CaptureError;
use super::inodes::Inodes;
use super::refusal::{Refusals, TOO_LONG};
use super::subject::{JobIds, Subject};
use crate::procfs::{TimerLine, TimerNotify, parse_limits, parse_timers};
use crate::shown;
use crate::snapshot::{KernelPath, MmLayout, PosixTimer, Process};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

/// A process with all that needs no call inside it; `brk`, signal actions, interval timers and
/// prctls are still to come.
pub(super) fn read(
    subject: &Subject,
    ids: &JobIds,
    inodes: &mut Inodes,
    refusals: &mut Refusals,
) -> Result<Process, CaptureError> {
    let dir = &subject.dir;
    let status = &subject.status;
    let stat = &subject.stat;
    let mut process = Process {
        pid: ids.task(subject.tgid).unwrap_or(0),
        ppid: ids.task(status.ppid).unwrap_or(0),
        pgid: ids.group(stat.pgrp),
        sid: ids.session(stat.session),
        cwd: folder("cwd", "working directory", subject, inodes, refusals)?,
        root: folder("root", "root directory", subject, inodes, refusals)?,
        umask: status.umask,
        rlimits: dir.parsed("limits", parse_limits)?,
        personality: u32::try_from(dir.hex("personality")?).unwrap_or(0),
        oom_score_adj: i32::try_from(dir.number("oom_score_adj")?).unwrap_or(0),
        thp_disabled: !status.thp_enabled,
        ..Process::default()
    };
    let memory = &mut process.memory;
    memory.auxv = dir.bytes("auxv")?;
    memory.coredump_filter = match dir.hex("coredump_filter") {
        Ok(filter) => u32::try_from(filter).unwrap_or(0),
        // A kernel without core dumps: nothing to be carried.
        Err(error) if error.is_gone() => 0,
        Err(error) => return Err(error.into()),
    };
    memory.layout = MmLayout {
        start_code: stat.start_code,
        end_code: stat.end_code,
        start_data: stat.start_data,
        end_data: stat.end_data,
        start_brk: stat.start_brk,
        brk: 0,
        start_stack: stat.start_stack,
        arg_start: stat.arg_start,
        arg_end: stat.arg_end,
        env_start: stat.env_start,
        env_end: stat.env_end,
    };
    memory.exe = program(subject, inodes, refusals)?;
    timers(subject, ids, &mut process, refusals)?;
    Ok(process)
}

fn folder(
    link: &str,
    what: &str,
    subject: &Subject,
    inodes: &Inodes,
    refusals: &mut Refusals,
) -> Result<KernelPath, CaptureError> {
    let path = match subject.dir.link(link) {
        Err(error) if error.is_too_long() => {
            refusals.add(subject.who(), what, TOO_LONG);
            return Ok(KernelPath::default());
        }
        path => path?,
    };
    let own = std::fs::metadata(subject.dir.file(link));
    let there = own.as_ref().is_ok_and(|own| {
        inodes.lookup(&path, own.dev(), own.ino()).is_same()
            // The root of another mount namespace shows as "/" there.
            || (link == "root" && path == b"/")
    });
    if !there {
        let path = shown::bytes(&path);
        let reason = format!("{path}: no path leads to it any more");
        refusals.add(subject.who(), what, reason);
    }
    Ok(KernelPath(path))
}

fn program(
    subject: &Subject,
    inodes: &mut Inodes,
    refusals: &mut Refusals,
) -> Result<Option<crate::snapshot::InodeId>, CaptureError> {
    let name = match subject.dir.link("exe") {
        Err(error) if error.is_too_long() => {
            refusals.add(subject.who(), "program", TOO_LONG);
            return Ok(None);
        }
        name => name?,
    };
    let opened = std::fs::File::options()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(subject.dir.file("exe"))
        .and_then(|file| {
            let stat = nix::sys::stat::fstat(&file).map_err(std::io::Error::from)?;
            Ok((file, stat))
        });
    match opened {
        Ok((file, stat)) => {
            let id = inodes.of_program(file.as_fd(), &stat, &name);
            inodes.get_mut(id).program = true;
            Ok(Some(id))
        }
        Err(error) => {
            let reason = format!("{} cannot be opened ({error})", shown::bytes(&name));
            refusals.add(subject.who(), "program", reason);
            Ok(None)
        }
    }
}

fn timers(
    subject: &Subject,
    ids: &JobIds,
    process: &mut Process,
    refusals: &mut Refusals,
) -> Result<(), CaptureError> {
    let lines = match subject.dir.parsed("timers", parse_timers) {
        Ok(lines) => lines,
        Err(error) if error.is_gone() => {
            let reason = "this kernel does not list them (CONFIG_CHECKPOINT_RESTORE), so that there may be some";
            refusals.add(subject.who(), "POSIX timers", reason);
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    for line in lines {
        let object = format!("POSIX timer {}", line.id);
        let clock = clock(&line, subject, ids).unwrap_or_else(|reason| {
            refusals.add(subject.who(), object.as_str(), reason);
            0
        });
        let mut timer = PosixTimer {
            id: line.id,
            clock,
            notify: libc::SIGEV_SIGNAL,
            signal: line.signal,
            value: line.value,
            ..PosixTimer::default()
        };
        match line.notify {
            TimerNotify::Signal => {}
            TimerNotify::None => timer.notify = libc::SIGEV_NONE,
            TimerNotify::Thread(tid) => {
                timer.notify = libc::SIGEV_THREAD_ID;
                match ids.task(tid) {
                    Some(tid) => timer.tid = tid,
                    None => {
                        let reason = format!("its thread {tid} has ended");
                        refusals.add(subject.who(), object, reason);
                    }
                }
            }
        }
        process.posix_timers.push(timer);
    }
    Ok(())
}

/// The clock of a timer, as the first thread of a copy can name it, or why it cannot be named. Clocks of processor time are numbers below 0
/// (include/linux/posix-timers.h): whose (bits inverted, 0: of whoever made the timer), whether a thread's, and which of three.
fn clock(line: &TimerLine, subject: &Subject, ids: &JobIds) -> Result<i32, String> {
    const WHICH: i32 = 3;
    const OF_DEVICE: i32 = 3;
    const SCHEDULED: i32 = 2;
    const OF_THREAD: i32 = 4;
    let named =
        |whose: u32, of_thread| (!whose.cast_signed() << 3) | of_thread | line.clock & WHICH;
    if line.clock >= 0 {
        return Ok(line.clock);
    }
    if line.clock & WHICH == OF_DEVICE {
        return Err("its clock is that of a device".to_owned());
    }
    let own = ids.task(subject.tgid);
    let whose = (!(line.clock >> 3)).cast_unsigned();
    let is_own = whose == 0 || Some(whose) == own;
    if line.clock & OF_THREAD == 0 {
        return match (is_own, line.clock & WHICH) {
            (true, SCHEDULED) => Ok(libc::CLOCK_PROCESS_CPUTIME_ID),
            (true, _) => Ok(named(0, 0)),
            (false, _) => Err(format!("its clock is that of another process ({whose})")),
        };
    }
    let mut threads = subject.threads.iter().map(|(tid, _)| ids.task(*tid));
    let ended = || "its clock is that of a thread that has ended".to_owned();
    match (whose, line.notify) {
        _ if is_own && subject.threads.len() == 1 && subject.ended_first.is_none() => {
            Ok(named(0, OF_THREAD))
        }
        // Programs that measure their threads do so: it is the thread's own.
        (0, TimerNotify::Thread(tid)) => {
            let tid = ids.task(tid).ok_or_else(ended)?;
            Ok(named(if Some(tid) == own { 0 } else { tid }, OF_THREAD))
        }
        (0, _) => Err(
            "its clock is a thread's processor time, and the kernel does not tell of which thread"
                .to_owned(),
        ),
        // By its id it stays known for the next image, too.
        (whose, _) if threads.any(|tid| tid == Some(whose)) => Ok(named(whose, OF_THREAD)),
        _ => Err(ended()),
    }
}
