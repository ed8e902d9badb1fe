//! Whole captures of stopped processes, with the calls made inside them.

use super::super::*;
use super::guest::Guest;
use crate::snapshot::{ContentCheck, mapping_flags};

const DEADLINE: Duration = Duration::from_secs(10);

struct Visit {
    captured: Captured,
    frozen: Duration,
}

/// Stops, captures, takes a picture, lets go, verifies.
fn visit(guest: &Guest, options: &CaptureOptions) -> Result<Visit, CaptureError> {
    let pids = [guest.host_pid()];
    let early = refuse_early(&pids, options)?;
    let began = Instant::now();
    let mut quiesced = Quiesced::stop(&pids, DEADLINE).expect("stops");
    let mut workshops =
        vec![Workshop::open(&mut quiesced.processes_mut()[0], None).expect("opens")];
    let captured = capture(&mut quiesced, &mut workshops, early, options);
    let process = &mut quiesced.processes_mut()[0];
    let mut workshop = workshops.remove(0);
    let picture = if options.flags_while_frozen {
        None
    } else {
        Some(workshop.take_picture(process).expect("a picture"))
    };
    workshop.close(process).expect("closes");
    quiesced.resume().expect("goes on");
    let frozen = began.elapsed();
    let mut captured = captured?;
    assert_eq!(captured.flags_unverified(), picture.is_some());
    if let Some(picture) = picture {
        captured.verify_mappings(0, picture.pid())?;
    }
    captured.finish_hashes(false)?;
    Ok(Visit { captured, frozen })
}

fn process(visit: &Visit) -> &Process {
    &visit.captured.snapshot.processes[0]
}

#[test]
fn what_only_the_process_itself_knows_is_recorded() {
    let guest = Guest::start(
        "signal.signal(signal.SIGUSR1, lambda *x: None); signal.signal(signal.SIGUSR2, signal.SIG_IGN)\n\
         signal.setitimer(signal.ITIMER_REAL, 1000, 2.5)\n\
         t = ctypes.c_int(); libc.timer_create(1, None, ctypes.byref(t))\n\
         libc.timer_settime(t, 0, (ctypes.c_long * 4)(3, 4, 500, 0), None)\n\
         libc.prctl(1, 12); libc.prctl(36, 1); libc.prctl(41, 1, 0, 0, 0); libc.prctl(29, 123456); libc.prctl(38, 1, 0, 0, 0)\n\
         libc.syscall(324, 1 << 4, 0, 0)\n\
         stack = ctypes.create_string_buffer(65536)\n\
         s = ctypes.create_string_buffer(struct.pack('QixxxxQ', ctypes.addressof(stack), 0, 65536)); call(libc.sigaltstack(s, None))\n\
         libc.sbrk.restype = ctypes.c_void_p; libc.pthread_self.restype = ctypes.c_ulong\n\
         say(ctypes.addressof(stack)); say(libc.pthread_self()); say(libc.sbrk(0))\n",
    );
    // Of a subreaper there is no picture.
    let options = CaptureOptions {
        flags_while_frozen: true,
        ..CaptureOptions::default()
    };
    let visit = visit(&guest, &options).expect("captured");
    let process = process(&visit);
    let action = |signal: i32| process.actions[signal as usize - 1];
    assert!(action(libc::SIGUSR1).handler > 1 && action(libc::SIGUSR1).restorer != 0);
    assert_eq!(action(libc::SIGUSR2).handler, libc::SIG_IGN as u64);
    assert_eq!(action(libc::SIGTERM).handler, libc::SIG_DFL as u64);
    assert_eq!(process.actions.len(), 64);
    let timer = process.interval_timers[0];
    assert_eq!(timer.interval_us, 2_500_000);
    assert!((900_000_000..=1_000_000_000).contains(&timer.value_us));
    let timer = process.posix_timers[0];
    assert_eq!((timer.interval_ns, timer.clock), (3_000_000_004, 1));
    assert!((400_000_000_000..=500_000_000_000).contains(&timer.left_ns));
    assert!(process.subreaper && process.thp_disabled);
    assert_eq!((process.dumpable, process.membarrier & 1 << 4), (1, 1 << 4));
    assert_eq!(process.memory.layout.brk, guest.number(2).cast_unsigned());
    assert_ne!(process.xcomp_permitted, 0);
    assert!(
        process
            .memory
            .vdso
            .as_ref()
            .is_some_and(|vdso| !vdso.symbols.is_empty())
    );
    let thread = &process.threads[0];
    assert_eq!(thread.tid, process.pid);
    assert_eq!(
        (thread.parent_death_signal, thread.timer_slack_ns),
        (12, 123_456)
    );
    assert!(thread.no_new_privs && !thread.tsc_faults && !thread.cpuid_faults);
    let stack = thread.alternate_stack;
    assert_eq!(
        (stack.address, stack.size, stack.flags),
        (guest.number(0).cast_unsigned(), 65536, 0)
    );
    assert_eq!(thread.registers.fs_base, guest.number(1).cast_unsigned());
    assert!(thread.clear_child_tid > thread.registers.fs_base);
    assert!(thread.rseq.is_some());
    assert!(thread.xstate.len() >= 576);
    assert_eq!(thread.registers.orig_rax, libc::SYS_read as u64);
    assert!(guest.finish().success());
}

#[test]
fn every_thread_is_recorded_with_its_own_state() {
    let guest = Guest::start(
        "import threading\n\
         def run(n):\n    libc.prctl(15, b'worker-%d' % n); libc.prctl(1, n); os.nice(n) if n else None\n    \
         signal.pthread_sigmask(signal.SIG_BLOCK, [34 + n]); ready.release(); libc.sleep(1000)\n\
         ready = threading.Semaphore(0)\n\
         for n in range(1, 9): threading.Thread(target=run, args=(n,), daemon=True).start()\n\
         [ready.acquire() for n in range(8)]\n\
         signal.pthread_kill(threading.main_thread().ident, 0)\n",
    );
    let visit = visit(&guest, &CaptureOptions::default()).expect("captured");
    let process = process(&visit);
    assert_eq!(process.threads.len(), 9);
    for n in 1..=8_u32 {
        let name = format!("worker-{n}");
        let thread = process
            .threads
            .iter()
            .find(|thread| thread.name.to_string() == name);
        let thread = thread.expect("recorded");
        assert_eq!(thread.parent_death_signal, n);
        assert_eq!(thread.scheduling.nice, n.cast_signed());
        assert_ne!(thread.blocked & 1 << (34 + n - 1), 0);
        let call = thread.in_call.expect("asleep");
        assert!(
            (900_000_000_000..=1_000_000_000_000).contains(&call.remaining_ns),
            "{call:?}"
        );
    }
    assert!(guest.finish().success());
}

#[test]
fn a_capture_changes_nothing_that_the_next_one_sees() {
    let guest = Guest::start(
        "r, w = os.pipe(); os.write(w, b'x'); e = libc.eventfd(3, 0); d = os.open('/usr', os.O_RDONLY)\n",
    );
    let options = CaptureOptions::default();
    let first = visit(&guest, &options).expect("captured").captured;
    let second = visit(&guest, &options).expect("captured").captured;
    let (mut one, mut two) = (first.snapshot, second.snapshot);
    for snapshot in [&mut one, &mut two] {
        snapshot.clocks = crate::snapshot::Clocks::default();
        snapshot.taken = Taken::default();
        // The interrupted read has written its registers into the extended state's header once.
        for thread in &mut snapshot.processes[0].threads {
            thread.xstate.clear();
        }
    }
    assert_eq!(one.processes, two.processes);
    assert_eq!(one.descriptions, two.descriptions);
    assert_eq!((one.pipes, one.inodes), (two.pipes, two.inodes));
    assert_eq!(first.memory_plan, second.memory_plan);
    assert!(guest.finish().success());
}

#[test]
fn files_are_hashed_when_the_job_runs_again() {
    let guest = Guest::start("f = open('/etc/passwd'); d = os.open('/tmp', os.O_RDONLY)\n");
    let visit = visit(&guest, &CaptureOptions::default()).expect("captured");
    let inodes = &visit.captured.snapshot.inodes;
    let passwd = inodes
        .iter()
        .find(|inode| inode.path.0 == b"/etc/passwd")
        .expect("there");
    let expected = blake3::hash(&std::fs::read("/etc/passwd").expect("read"));
    assert_eq!(passwd.check, ContentCheck::Full(expected.into()));
    eprintln!("frozen for {:?}", visit.frozen);
}

#[test]
fn flags_of_new_mappings_come_from_the_picture() {
    let guest = Guest::start(
        "a = call(libc.mmap(None, 8192, 3, 34, -1, 0)); say(a)\n\
         b = call(libc.mmap(None, 8192, 3, 34, -1, 0)); call(libc.madvise(b, 8192, 15)); say(b)\n",
    );
    let options = CaptureOptions::default();
    let pids = [guest.host_pid()];
    let mut early = refuse_early(&pids, &options).expect("not refused");
    // As if the second had come, and the first been changed, since.
    let [a, b] = [0, 1].map(|index| guest.number(index).cast_unsigned());
    let entries = early.smaps.get_mut(&guest.pid()).expect("read");
    entries.retain(|entry| !(entry.line.start <= b && b < entry.line.end));
    for entry in entries {
        if entry.line.start <= a && a < entry.line.end {
            entry.vm_flags = [&entry.vm_flags[..], &[*b"dd"]].concat().into();
        }
    }
    let mut quiesced = Quiesced::stop(&pids, DEADLINE).expect("stops");
    let mut workshops =
        vec![Workshop::open(&mut quiesced.processes_mut()[0], None).expect("opens")];
    let mut captured = capture(&mut quiesced, &mut workshops, early, &options).expect("captured");
    let process = &mut quiesced.processes_mut()[0];
    let picture = workshops[0].take_picture(process).expect("a picture");
    workshops.remove(0).close(process).expect("closes");
    quiesced.resume().expect("goes on");
    let flags = |captured: &Captured, address: u64| {
        let mappings = &captured.snapshot.processes[0].memory.mappings;
        let found = mappings
            .iter()
            .find(|mapping| mapping.start <= address && address < mapping.end);
        found.expect("mapped").flags
    };
    assert_eq!(flags(&captured, b), 0);
    captured
        .verify_mappings(0, picture.pid())
        .expect("verified");
    assert_eq!(flags(&captured, a) & mapping_flags::DONTDUMP, 0);
    assert_ne!(flags(&captured, b) & mapping_flags::NOHUGEPAGE, 0);
    // Contents that should have been copied while frozen were not.
    let fork = &mut captured.snapshot.processes[0].memory.mappings;
    let gone = Mapping {
        start: 0x1000,
        end: 0x2000,
        ..fork[0].clone()
    };
    fork.insert(0, gone);
    let error = captured
        .verify_mappings(0, picture.pid())
        .expect_err("changed");
    assert!(matches!(
        error,
        CaptureError::MappingChanged { start: 0x1000, .. }
    ));
}

#[test]
fn a_refused_job_runs_on() {
    let guest = Guest::start("libc.prctl(65, 1, 0, 0, 0)\n");
    match visit(&guest, &CaptureOptions::default()) {
        Err(CaptureError::Refused(refusals)) => {
            assert_eq!(refusals.len(), 1);
            assert_eq!(refusals[0].object, "PR_SET_MDWE");
        }
        Err(error) => panic!("{error}"),
        // A kernel before 6.3 has no such thing.
        Ok(_) => crate::skip::note("PR_SET_MDWE is refused", "not in this kernel"),
    }
    assert!(guest.finish().success());
}
