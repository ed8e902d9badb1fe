//! Tiny processes, made by hand, brought back.

use crate::images::{
    CODE, Ended, HOLE, PID, STACK, TestImage, Tiny, execute, execute_as_user, map, spawn, tiny,
};
use ckpt_lib::plan::{Arg, StreamIndex};
use loader::ops::{
    Expect, InProgress, OpsHeader, OwnId, SpawnThreads, Stopped, StreamKind, timeout,
};
use std::time::{Duration, Instant};

/// Machine code, put together from the few instructions these programs need.
#[derive(Default)]
pub(crate) struct Code(pub(crate) Vec<u8>);

impl Code {
    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// `mov eax|edi|esi|edx, value`.
    pub(crate) fn mov(self, register: u8, value: u32) -> Self {
        self.bytes(&[0xb8 + register]).bytes(&value.to_le_bytes())
    }

    pub(crate) fn call(self, nr: i64, arguments: &[u32]) -> Self {
        let mut code = self;
        for (register, value) in [7, 6, 2].into_iter().zip(arguments) {
            code = code.mov(register, *value);
        }
        code.mov(0, nr as u32).bytes(&[0x0f, 0x05])
    }

    pub(crate) fn exit(self, status: u32) -> Self {
        self.call(libc::SYS_exit_group, &[status])
    }

    /// `exit(wrong)` unless the comparison just made was equal.
    pub(crate) fn or_exit(self, wrong: u32) -> Self {
        let way_out = Code::default().exit(wrong).0;
        self.bytes(&[0x74, way_out.len() as u8]).bytes(&way_out)
    }
}

const RAX: u8 = 0;

/// Writes what lies behind the code and ends with 5.
pub(crate) fn hello() -> Tiny {
    let text = b"went on\n";
    let code = Code::default()
        .call(
            libc::SYS_write,
            &[1, CODE as u32 + 0x800, text.len() as u32],
        )
        .exit(5);
    let mut bytes = code.0;
    bytes.resize(0x800, 0);
    bytes.extend(text);
    tiny(&bytes)
}

/// The image of the program above.
pub(crate) fn hello_image() -> TestImage {
    alone(hello())
}

pub(crate) fn alone(mut tiny: Tiny) -> TestImage {
    tiny.thread(PID, CODE, STACK + 8192);
    tiny.image()
}

fn went_on(ended: &Ended) {
    assert_eq!(
        (ended.code(), ended.stdout.as_str(), ended.stderr.as_str()),
        (Some(5), "went on\n", "")
    );
}

#[test]
fn a_process_goes_on_where_it_was() {
    let image = alone(hello());
    went_on(&execute(&image, &[]));
    went_on(&execute(&image, &["--pids", "namespace"]));
    if let Some(ended) = execute_as_user(&image, &["--pids", "namespace"]) {
        went_on(&ended);
    }
}

#[test]
fn it_has_its_registers_and_ids() {
    // cmp rbx, r15; cmp eax, PID after getpid and gettid.
    let code = Code::default()
        .bytes(&[0x4c, 0x39, 0xfb])
        .or_exit(1)
        .bytes(&[0x48, 0x81, 0xfd, 7, 0, 0, 0]) // cmp rbp, 7
        .or_exit(2)
        .call(libc::SYS_getpid, &[])
        .bytes(&[0x3d])
        .bytes(&(PID as u32).to_le_bytes())
        .or_exit(3)
        .call(libc::SYS_gettid, &[])
        .bytes(&[0x3d])
        .bytes(&(PID as u32).to_le_bytes())
        .or_exit(4)
        // The loader is gone: its place can be mapped.
        .bytes(&[0x48, 0xbf])
        .bytes(&HOLE.to_le_bytes())
        .mov(6, 4096)
        .mov(2, 4)
        .mov(RAX, libc::SYS_msync as u32)
        .bytes(&[0x0f, 0x05, 0x48, 0x83, 0xf8, 0xf4]) // cmp rax, -ENOMEM
        .or_exit(6)
        .exit(5);
    let mut tiny = tiny(&code.0);
    let stream = tiny.ops.stream(StreamKind::Thread, PID, tiny.process);
    tiny.registers(stream, CODE, STACK + 8192, |registers| {
        registers.rbx = 0x1234_5678_9abc_def0;
        registers.r15 = 0x1234_5678_9abc_def0;
        registers.rbp = 7;
    });
    let ended = execute(&tiny.image(), &["--pids", "namespace"]);
    assert_eq!(ended.code(), Some(5), "{}", ended.stderr);
}

#[test]
fn memory_in_the_place_of_our_stack_and_vdso_is_no_obstacle() {
    let mut tiny = hello();
    let process = tiny.process;
    let (from, to) = (0x7f00_0000_0000u64, 0x7fff_ffff_f000u64);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let args = [from, to - from, 0, flags as u64, u64::MAX, 0].map(Arg::Value);
    let label = "everything above";
    tiny.ops
        .call(process, label, libc::SYS_mmap, &args, Expect::Exactly, from);
    went_on(&execute(&alone(tiny), &[]));
}

/// A process whose first thread sleeps this long in its stream.
pub(crate) fn tiny_sleeping(seconds: u64) -> Tiny {
    let mut tiny = hello();
    let stream = tiny.ops.stream(StreamKind::Thread, PID, tiny.process);
    let time = [seconds, 0].map(u64::to_le_bytes).concat();
    let args = [Arg::Bytes(time), Arg::Value(0)];
    let nr = libc::SYS_nanosleep;
    tiny.ops.call(stream, "rest", nr, &args, Expect::Success, 0);
    tiny.registers(stream, CODE, STACK + 8192, |_| {});
    tiny
}

/// A program of two threads: the first one ends when the second has set a word.
fn two_threads() -> Tiny {
    let word = (STACK + 64) as u32;
    let first = Code::default()
        // spin: pause; cmp dword [word], 1; jne spin
        .bytes(&[0xf3, 0x90, 0x83, 0x3c, 0x25])
        .bytes(&word.to_le_bytes())
        .bytes(&[1, 0x75, 0xf4])
        .exit(5);
    let second = Code::default()
        .call(libc::SYS_gettid, &[])
        .bytes(&[0x3d])
        .bytes(&(PID as u32 + 1).to_le_bytes())
        .or_exit(3)
        // mov dword [word], 1; jmp self
        .bytes(&[0xc7, 0x04, 0x25])
        .bytes(&word.to_le_bytes())
        .bytes(&[1, 0, 0, 0, 0xeb, 0xfe]);
    let mut bytes = first.0;
    bytes.resize(0x400, 0);
    bytes.extend(second.0);
    let mut tiny = tiny(&bytes);
    let process = tiny.process;
    tiny.ops.push(process, &SpawnThreads::default(), &[]);
    tiny.thread(PID, CODE, STACK + 8192);
    tiny.thread(PID + 1, CODE + 0x400, STACK + 4096);
    tiny
}

#[test]
fn threads_go_on_with_their_ids() {
    let image = two_threads().image();
    for _ in 0..20 {
        let ended = execute(&image, &["--pids", "namespace"]);
        assert_eq!(ended.code(), Some(5), "{}", ended.stderr);
    }
    if let Some(ended) = execute_as_user(&image, &["--pids", "namespace"]) {
        assert_eq!(ended.code(), Some(5), "{}", ended.stderr);
    }
}

#[test]
fn five_hundred_threads_are_no_problem() {
    // The others wait for a signal; the first one ends the process.
    let first = Code::default().exit(5);
    let other = Code::default().call(libc::SYS_pause, &[]).exit(3);
    let mut bytes = first.0;
    bytes.resize(0x400, 0);
    bytes.extend(other.0);
    let mut tiny = tiny(&bytes);
    let process = tiny.process;
    tiny.ops.push(process, &SpawnThreads::default(), &[]);
    tiny.thread(PID, CODE, STACK + 8192);
    for number in 1..500 {
        tiny.thread(PID + number, CODE + 0x400, STACK + 4096);
    }
    let start = Instant::now();
    let ended = execute(&tiny.image(), &["--pids", "namespace"]);
    assert_eq!(ended.code(), Some(5), "{}", ended.stderr);
    println!("took {:?}", start.elapsed());
}

#[test]
fn without_namespaces_an_ordinary_user_is_told_about_the_ids() {
    let image = alone(hello());
    let Some(ended) = execute_as_user(&image, &["--pids", "host"]) else {
        return crate::skip::note("restart as an ordinary user", "not root, or no wftest");
    };
    assert_eq!(ended.code(), Some(3), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("--accept-new-ids"),
        "{}",
        ended.stderr
    );
    let ended = execute_as_user(&image, &["--pids", "host", "--accept-new-ids"]).expect("user");
    went_on(&ended);
}

/// A program stopped in `nanosleep` with this much left: afterwards `rax` must be 0.
fn sleeping(remaining: Duration) -> Tiny {
    let code = Code::default()
        .bytes(&[0x0f, 0x05]) // syscall: where it sleeps
        .bytes(&[0x48, 0x85, 0xc0]) // test rax, rax
        .or_exit(3)
        .exit(5);
    let mut tiny = tiny(&code.0);
    let stream = tiny.ops.stream(StreamKind::Thread, PID, tiny.process);
    let op = InProgress {
        nr: libc::SYS_nanosleep as u64,
        a0: STACK,
        timeout_in: timeout::TIMESPEC,
        timeout_arg: 0,
        remaining_ns: remaining.as_nanos() as u64,
        ..InProgress::default()
    };
    tiny.ops.push(stream, &op, &[]);
    tiny.registers(stream, CODE + 2, STACK + 8192, |registers| {
        registers.orig_rax = libc::SYS_nanosleep as u64;
        registers.rax = -516i64 as u64;
    });
    tiny
}

#[test]
fn a_sleep_goes_on_with_what_was_left_of_it() {
    let image = sleeping(Duration::from_millis(400)).image();
    let start = Instant::now();
    let ended = execute(&image, &[]);
    let took = start.elapsed();
    assert_eq!(
        ended.code(),
        Some(5),
        "{:?} {}",
        ended.signal(),
        ended.stderr
    );
    assert!(took >= Duration::from_millis(400), "{took:?}");
    // A machine that is busy takes longer; a rest that is misread is off by more.
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[test]
fn a_call_that_is_entered_again_finds_its_result() {
    // Stopped in read(2) of a pipe that has been fed since: rax = -512.
    let code = Code::default()
        .bytes(&[0x48, 0x83, 0xf8, 4]) // cmp rax, 4
        .or_exit(3)
        .exit(5);
    let mut tiny = tiny(&[Code::default().bytes(&[0x0f, 0x05]).0, code.0].concat());
    let process = tiny.process;
    let pipe = loader::ops::Pipe {
        read_slot: 200,
        write_slot: 201,
        flags: 0,
    };
    tiny.ops.push(StreamIndex(0), &pipe, &[]);
    let args = [Arg::Value(201), Arg::Bytes(b"late".to_vec()), Arg::Value(4)];
    tiny.ops.call(
        StreamIndex(0),
        "pipe",
        libc::SYS_write,
        &args,
        Expect::Exactly,
        4,
    );
    let args = [200, 7, 0].map(Arg::Value);
    tiny.ops.call(
        process,
        "descriptor 7",
        libc::SYS_dup3,
        &args,
        Expect::Exactly,
        7,
    );
    let stream = tiny.ops.stream(StreamKind::Thread, PID, process);
    tiny.registers(stream, CODE + 2, STACK + 8192, |registers| {
        registers.orig_rax = libc::SYS_read as u64;
        registers.rax = -512i64 as u64;
        (registers.rdi, registers.rsi, registers.rdx) = (7, STACK, 100);
    });
    let ended = execute(&tiny.image(), &[]);
    assert_eq!(ended.code(), Some(5), "{}", ended.stderr);
}

#[test]
fn a_thread_s_own_id_is_put_into_its_memory() {
    // In a namespace it is the id of the image: cmp dword [STACK+8], PID
    let code = Code::default()
        .bytes(&[0x81, 0x3c, 0x25])
        .bytes(&(STACK as u32 + 8).to_le_bytes())
        .bytes(&(PID as u32).to_le_bytes())
        .or_exit(3)
        .exit(5);
    let mut tiny = tiny(&code.0);
    let process = tiny.process;
    let own_id = OwnId { address: STACK + 8 };
    tiny.ops.push(process, &own_id, &[]);
    let ended = execute(&alone(tiny), &[]);
    assert_eq!(ended.code(), Some(5), "{}", ended.stderr);
}

#[test]
fn a_failing_call_is_named_and_nothing_is_left() {
    let mut tiny = hello();
    let process = tiny.process;
    let args = [Arg::Value(u64::MAX)];
    tiny.ops.call(
        process,
        "descriptor 9 (lamp)",
        libc::SYS_close,
        &args,
        Expect::Success,
        0,
    );
    let image = alone(tiny);
    for pids in ["namespace", "host"] {
        let ended = execute(&image, &["--pids", pids, "--accept-new-ids"]);
        assert_eq!((ended.code(), ended.stdout.as_str()), (Some(1), ""));
        let expected = "descriptor 9 (lamp): close: EBADF\n";
        assert!(ended.stderr.ends_with(expected), "{}", ended.stderr);
    }
}

#[test]
fn a_degraded_restart_must_be_asked_for() {
    let mut tiny = hello();
    let process = tiny.process;
    let args = [Arg::Value(u64::MAX)];
    tiny.ops.call(
        process,
        "lamp",
        libc::SYS_close,
        &args,
        Expect::OrDegraded,
        0,
    );
    tiny.ops
        .call(process, "bulb", libc::SYS_close, &args, Expect::OrNoted, 0);
    let image = alone(tiny);
    let refused = execute(&image, &[]);
    assert_eq!(refused.code(), Some(3));
    assert!(
        refused.stderr.contains("lamp: EBADF; --degraded"),
        "{}",
        refused.stderr
    );
    let ended = execute(&image, &["--degraded"]);
    assert_eq!(
        (ended.code(), ended.stdout.as_str()),
        (Some(5), "went on\n")
    );
    assert!(
        ended.stderr.contains("lost: lamp: EBADF"),
        "{}",
        ended.stderr
    );
    assert!(
        ended.stderr.contains("note: bulb: EBADF"),
        "{}",
        ended.stderr
    );
}

#[test]
fn pending_signals_arrive_when_it_goes_on() {
    let mut tiny = hello();
    let process = tiny.process;
    let mut info = vec![0u8; 128];
    info[0] = libc::SIGTERM as u8;
    info[8..12].copy_from_slice(&(-1i32).to_le_bytes()); // SI_QUEUE
    let args = [
        Arg::Value(PID),
        Arg::Value(libc::SIGTERM as u64),
        Arg::Bytes(info),
    ];
    let nr = libc::SYS_rt_sigqueueinfo;
    tiny.ops
        .call(process, "pending", nr, &args, Expect::Success, 0);
    let ended = execute(&alone(tiny), &[]);
    assert_eq!(ended.signal(), Some(libc::SIGTERM), "{}", ended.stderr);
    assert_eq!(ended.stdout, "");
}

#[test]
fn a_stopped_job_stays_stopped_and_so_do_we() {
    let mut tiny = hello();
    let process = tiny.process;
    let signal = libc::SIGSTOP as u64;
    tiny.ops.push(process, &Stopped { signal }, &[]);
    let image = alone(tiny);
    let mut command = std::process::Command::new(&image.path);
    let mut child = spawn(command.stdout(std::process::Stdio::piped()));
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat");
    let deadline = Instant::now() + Duration::from_secs(10);
    while !stat().contains(") T ") {
        assert!(Instant::now() < deadline, "not stopped: {}", stat());
        std::thread::sleep(Duration::from_millis(5));
    }
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).expect("continued");
    assert_eq!(child.wait().expect("waited").code(), Some(5));
}

#[test]
fn a_signal_to_us_is_a_signal_to_the_job() {
    let tiny = tiny(&Code::default().bytes(&[0xeb, 0xfe]).0); // jmp self
    let image = alone(tiny);
    for pids in ["namespace", "host"] {
        let mut command = std::process::Command::new(&image.path);
        let mut child = spawn(command.args(["--pids", pids, "--accept-new-ids"]));
        let pid = nix::unistd::Pid::from_raw(child.id() as i32);
        std::thread::sleep(Duration::from_millis(300));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGUSR1).expect("sent");
        let status = child.wait().expect("waited");
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        assert_eq!(signal, Some(libc::SIGUSR1), "{pids}");
    }
}

#[test]
fn much_memory_is_filled_exactly() {
    let ended = execute(&summing(64 << 20), &[]);
    assert_eq!(
        ended.code(),
        Some(5),
        "{:?} {}",
        ended.signal(),
        ended.stderr
    );
}

/// A process that adds up an area of this length and compares.
fn summing(len: u64) -> TestImage {
    let at = 0x2000_0000u64;
    let bytes: Vec<u8> = (0..len / 8)
        .flat_map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24 | 1).to_le_bytes())
        .collect();
    let sum = bytes
        .chunks_exact(8)
        .map(|raw| u64::from_le_bytes(raw.try_into().expect("8")))
        .fold(0u64, u64::wrapping_add);
    let code = Code::default()
        .bytes(&[0x31, 0xc0]) // xor eax, eax
        .mov(6, at as u32) // esi
        .mov(1, (len / 8) as u32) // ecx
        .bytes(&[0x48, 0x03, 0x06, 0x48, 0x83, 0xc6, 8])
        .bytes(&[0x48, 0xff, 0xc9, 0x75, 0xf4])
        .bytes(&[0x48, 0x39, 0xd8]) // cmp rax, rbx
        .or_exit(3)
        .exit(5);
    let mut page = code.0;
    page.resize(4096, 0xcc);
    let mut tiny = tiny_with(at, len, page, bytes);
    let stream = tiny.ops.stream(StreamKind::Thread, PID, tiny.process);
    tiny.registers(stream, CODE, STACK + 8192, |registers| registers.rbx = sum);
    tiny.image()
}

#[test]
fn compressed_memory_is_filled_exactly() {
    crate::images::COMPRESSION.set(Some(3));
    let image = summing(16 << 20);
    crate::images::COMPRESSION.set(None);
    let len = std::fs::metadata(&image.path).expect("metadata").len();
    assert!(len < 12 << 20, "{len}");
    let ended = execute(&image, &[]);
    assert_eq!(
        ended.code(),
        Some(5),
        "{:?} {}",
        ended.signal(),
        ended.stderr
    );
    let ended = execute(&image, &["--verify"]);
    assert_eq!(
        (ended.code(), ended.stdout.as_str()),
        (Some(0), "ok\n"),
        "{}",
        ended.stderr
    );
}

/// A tiny process with one large area.
fn tiny_with(at: u64, len: u64, page: Vec<u8>, bytes: Vec<u8>) -> Tiny {
    use ckpt_lib::plan::OpsBuilder;
    use loader::ops::{Fill, UnmapAll};
    let header = OpsHeader {
        slot_base: 200,
        uid: 1000,
        gid: 1000,
        ..OpsHeader::default()
    };
    let mut ops = OpsBuilder::new(header);
    let process = ops.stream(StreamKind::Process, PID, StreamIndex(0));
    ops.push(process, &UnmapAll::default(), &[]);
    map(&mut ops, process, CODE, 4096, 7);
    map(&mut ops, process, STACK, 8192, 3);
    map(&mut ops, process, at, len, 3);
    ops.push(process, &Fill { process: 0 }, &[]);
    Tiny {
        ops,
        process,
        contents: vec![(CODE, page), (at, bytes)],
        unread: vec![],
    }
}

#[test]
#[ignore = "measures; run alone, with --release"]
fn how_long_a_gibibyte_takes() {
    let (at, len) = (0x2000_0000u64, 1u64 << 30);
    let mut seed = 1u64;
    let mut next = || {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        seed
    };
    let bytes: Vec<u8> = (0..len / 8)
        .flat_map(|n| if n & 512 == 0 { next() | 1 } else { n | 1 }.to_le_bytes())
        .collect();
    let mut page = Code::default().exit(5).0;
    page.resize(4096, 0xcc);
    let mut tiny = tiny_with(at, len, page, bytes);
    tiny.thread(PID, CODE, STACK + 8192);
    let image = tiny.image();
    if let Some(copy) = std::env::var_os("KEEP_IMAGE") {
        std::fs::copy(&image.path, copy).expect("kept");
    }
    for options in [&["--verify"][..], &[], &[], &[], &[], &[]] {
        let start = Instant::now();
        let ended = execute(&image, options);
        println!(
            "{options:?}: {:?} {:?} {}",
            start.elapsed(),
            ended.code(),
            ended.stderr
        );
    }
}
