//! One test for each thing that is refused, by the words that are said.

use super::super::*;
use super::guest::Guest;
use crate::procfs::parse_status;
use std::time::Duration;

/// All that is said about a guest before it is touched.
fn said_with(guest: &Guest, options: &CaptureOptions) -> Vec<String> {
    match refuse_early(&[guest.host_pid()], options) {
        Ok(_) => vec![],
        Err(CaptureError::Refused(refusals)) => refusals.iter().map(Refusal::to_string).collect(),
        Err(error) => panic!("{error}"),
    }
}

fn said(guest: &Guest) -> Vec<String> {
    said_with(guest, &CaptureOptions::default())
}

/// The guest is refused once, for `object`, in words that contain `reason`.
#[track_caller]
fn refused(body: &str, object: &str, reason: &str) {
    let Some(guest) = Guest::try_start(body) else {
        return;
    };
    let said = said(&guest);
    let pid = guest.pid();
    assert_eq!(said.len(), 1, "{said:?}");
    let expected = format!("process {pid} (python3): {object}");
    assert!(said[0].starts_with(&expected), "{said:?}");
    assert!(said[0].contains(reason), "{said:?}");
}

#[test]
fn a_plain_program_is_not_refused() {
    let guest = Guest::start("");
    assert_eq!(said(&guest), [] as [&str; 0]);
}

#[test]
fn all_refusals_are_named_at_once() {
    let guest = Guest::start(
        "a = socket.socket(); a.bind(('127.0.0.1', 0)); a.listen()\nb = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n",
    );
    assert_eq!(said(&guest).len(), 2);
}

#[test]
fn a_connected_tcp_socket_is_named_with_its_address() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listens");
    let port = listener.local_addr().expect("address").port();
    let body = format!(
        "c = socket.create_connection(('127.0.0.1', {port})); os.dup2(c.fileno(), 40); c.close()\n"
    );
    let guest = Guest::start(&body);
    let expected = format!(
        "process {} (python3): descriptor 40: TCP socket connected to 127.0.0.1:{port} leads out of the job",
        guest.pid()
    );
    assert_eq!(said(&guest), [expected]);
}

#[test]
fn waiting_for_sockets_ends_when_they_are_gone() {
    let body = "import threading\n\
        l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen()\n\
        threading.Timer(0.3, l.close).start()\n";
    let guest = Guest::start(body);
    let options = CaptureOptions::default();
    let pids = [guest.host_pid()];
    assert_eq!(said(&guest).len(), 1);
    let left =
        wait_for_sockets(&pids, &options, Duration::from_secs(10), &|| false).expect("waits");
    assert_eq!(left, []);
    let stubborn = Guest::start("l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen()\n");
    let pids = [stubborn.host_pid()];
    let left =
        wait_for_sockets(&pids, &options, Duration::from_millis(50), &|| false).expect("waits");
    let began = std::time::Instant::now();
    let given_up = wait_for_sockets(&pids, &options, Duration::from_secs(60), &|| true);
    assert_eq!(given_up.expect("waits").len(), left.len());
    assert!(began.elapsed() < Duration::from_secs(30));
    assert_eq!(left.len(), 1);
}

#[test]
fn listening_udp_unix_and_netlink_sockets_are_refused() {
    refused(
        "a = socket.socket(); a.bind(('127.0.0.1', 0)); a.listen()",
        "descriptor ",
        "TCP socket listening at 127.0.0.1:",
    );
    refused(
        "a = socket.socket()",
        "descriptor ",
        "TCP socket cannot be carried, though not connected",
    );
    refused(
        "a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); a.bind(('127.0.0.1', 0))",
        "descriptor ",
        "UDP socket bound to 127.0.0.1:",
    );
    refused(
        "a = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)",
        "descriptor ",
        "UDP socket cannot",
    );
    refused(
        "a = socket.socket(socket.AF_UNIX); a.bind('\\0wf-test-%d' % os.getpid()); a.listen()",
        "descriptor ",
        "unix socket listening at @wf-test",
    );
    refused(
        "a = socket.socket(socket.AF_UNIX); a.bind('\\0wf-bound-%d' % os.getpid())",
        "descriptor ",
        "unix socket bound to @wf-bound",
    );
    // Connected to one that is not connected to it any more.
    refused(
        "import ctypes; a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n\
         ctypes.CDLL(None).connect(b.fileno(), bytes(16), 16)",
        "descriptor ",
        "unix socket whose other end is not in the job",
    );
    refused(
        "a = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "descriptor ",
        "netlink socket",
    );
}

#[test]
fn the_other_end_of_what_is_refused_is_not_called_a_strangers() {
    // SO_PASSSEC.
    let body = "a, b = socket.socketpair(); os.dup2(a.fileno(), 40); os.dup2(b.fileno(), 41); a.close(); b.close()\n\
        socket.socket(fileno=os.dup(40)).setsockopt(socket.SOL_SOCKET, 34, 1)\n";
    let guest = Guest::start(body);
    let pid = guest.pid();
    let expected = [
        format!(
            "process {pid} (python3): descriptor 40: unix socket with SO_PASSSEC, which cannot be carried"
        ),
        format!(
            "process {pid} (python3): descriptor 41: unix socket whose other end, descriptor 40, cannot be carried"
        ),
    ];
    assert_eq!(said(&guest), expected);
}

/// Nobody looks into sockets before the job stands still.
#[test]
fn an_end_whose_other_may_be_in_flight_is_not_refused_before_the_stop() {
    let guest = Guest::start(
        "a, b = socket.socketpair(); r, w = os.pipe(); c, d = socket.socketpair()\n\
         socket.send_fds(a, [b'x'], [r, d.fileno()]); os.close(r); d.close()\n",
    );
    assert_eq!(said(&guest), [] as [&str; 0]);
}

#[test]
fn ends_whose_other_end_is_elsewhere_are_refused() {
    let child = "pid = os.fork()\nif pid == 0:\n    time.sleep(60)\n    os._exit(0)\n\
        import atexit; signal.set_wakeup_fd(-1)\n";
    let kill = "import threading\n";
    for (set_up, reason) in [
        (
            "r, w = os.pipe()\nCHILD\nos.close(r)",
            "the writing end of pipe:[",
        ),
        (
            "r, w = os.pipe()\nCHILD\nos.close(w)",
            "the reading end of pipe:[",
        ),
        (
            "a, b = socket.socketpair()\nCHILD\nb.close()",
            "unix socket whose other end is not in the job",
        ),
    ] {
        let body = format!("libc.prctl(1, 9)\n{}", set_up.replace("CHILD", child));
        // The child dies with its parent: its parent-death signal is set in it.
        let body = body.replace("if pid == 0:\n", "if pid == 0:\n    libc.prctl(1, 9)\n");
        refused(&format!("{kill}{body}"), "descriptor ", reason);
    }
}

#[test]
fn a_named_descriptor_may_lead_outside() {
    let guest = Guest::start(
        "r, w = os.pipe()\nif os.fork() == 0:\n    libc.prctl(1, 9)\n    time.sleep(60)\n    os._exit(0)\nos.close(r)\nos.dup2(w, 9); os.close(w)\n",
    );
    assert_eq!(said(&guest).len(), 1);
    let options = CaptureOptions {
        inherit_fds: vec![9],
        ..CaptureOptions::default()
    };
    assert_eq!(said_with(&guest, &options), [] as [&str; 0]);
}

#[test]
fn anonymous_inodes_that_cannot_be_carried_are_refused() {
    for (call, reason) in [
        (
            "libc.syscall(425, 4, ctypes.create_string_buffer(120))",
            "an io_uring cannot be carried",
        ),
        (
            "libc.syscall(298, ctypes.create_string_buffer(struct.pack('<IIQQQQQ', 1, 64, 0, 0, 0, 0, 1 << 5), 64), 0, -1, -1, 0)",
            "a perf event cannot be carried",
        ),
        ("libc.syscall(323, 1)", "a userfaultfd cannot be carried"),
        (
            "libc.fanotify_init(0x200, 0)",
            "a fanotify group cannot be carried",
        ),
    ] {
        refused(
            &format!("fd = {call}\nif fd < 0: say('skip: not possible here', {reason:?})"),
            "descriptor ",
            reason,
        );
    }
}

#[test]
fn devices_and_other_terminals_are_refused() {
    refused(
        "fd = os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY)",
        "descriptor ",
        "/dev/p",
    );
    refused(
        "m, s = os.openpty(); os.close(m) if False else None\nos.dup2(m, 1000)\nos.close(m)\nif os.fork() == 0:\n    libc.prctl(1, 9)\n    time.sleep(60)\nos.close(1000)",
        "descriptor ",
        "is none of those that are carried",
    );
    refused(
        "try: fd = os.open('/dev/kmsg', os.O_WRONLY)\nexcept OSError: say('skip: no /dev/kmsg')",
        "descriptor ",
        "device /dev/kmsg (1:11)",
    );
}

#[test]
fn timers_of_unknown_threads_are_refused() {
    let made = |clock: &str| {
        format!(
            "import threading\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n\
             t = ctypes.c_int(); call(libc.syscall(222, {clock}, None, ctypes.byref(t)))"
        )
    };
    let object = "POSIX timer 0";
    refused(
        &made("3"),
        object,
        "the kernel does not tell of which thread",
    );
    // A process's, by its id: pid 1 has one, of whatever kind.
    refused(&made("(~os.getppid() << 3) | 2"), object, "another process");
}

#[test]
fn lost_names_are_refused() {
    let folder = "import tempfile\nd = tempfile.mkdtemp()\n";
    refused(
        &format!("{folder}fd = os.open(d, os.O_RDONLY); os.rmdir(d)"),
        "descriptor ",
        "a deleted directory",
    );
    refused(
        &format!("{folder}os.chdir(d); os.rmdir(d)"),
        "working directory",
        "no path leads to it",
    );
    refused(
        &format!(
            "{folder}p = d + '/f'; os.mkfifo(p); fd = os.open(p, os.O_RDWR); os.unlink(p); os.rmdir(d)"
        ),
        "descriptor ",
        "which has been deleted",
    );
}

#[test]
fn an_epoll_target_that_was_closed_but_lives_is_refused() {
    refused(
        "r, w = os.pipe(); e = select.epoll(); e.register(r, 1); os.dup2(r, 50); r2 = os.dup(r)\n\
         os.close(r); os.close(50)\nif os.fork() == 0:\n    libc.prctl(1, 9)\n    time.sleep(60)\nos.close(r2); os.close(w)",
        "descriptor ",
        "an epoll set that still watches what was descriptor",
    );
}

#[test]
fn unread_inotify_events_are_refused() {
    refused(
        "import tempfile\nd = tempfile.mkdtemp()\ni = libc.inotify_init1(0)\nlibc.inotify_add_watch(i, d.encode(), 0x100)\nos.mkdir(d + '/x'); os.rmdir(d + '/x'); os.rmdir(d) if False else None",
        "descriptor ",
        "inotify events wait unread",
    );
}

#[test]
fn leases_and_foreign_owners_are_refused() {
    refused(
        "import tempfile\nf = tempfile.NamedTemporaryFile(); g = os.open(f.name, os.O_RDONLY); f.close() if False else None\nos.close(f.fileno()) if False else None\nh = open(os.path.join(tempfile.gettempdir(), 'wf-lease-%d' % os.getpid()), 'w'); h.close()\nk = os.open(h.name, os.O_RDONLY); os.unlink(h.name)\ntry: fcntl.fcntl(k, 1024, 0)\nexcept OSError as e: say('skip: no leases', e)",
        "descriptor ",
        "a lease",
    );
    refused(
        "r, w = os.pipe(); fcntl.fcntl(r, 8, os.getppid())",
        "descriptor ",
        "its signals (F_SETOWN) go to",
    );
    refused(
        "fd = libc.syscall(434, os.getppid(), 0)",
        "descriptor ",
        "which is not of the job",
    );
}

#[test]
fn memory_that_cannot_be_carried_is_refused() {
    refused(
        "i = libc.shmget(0, 4096, 0o1600)\nlibc.shmat.restype = ctypes.c_void_p\ncall(libc.shmat(i, None, 0)); libc.shmctl(i, 0, None)",
        "mapping ",
        "System V shared memory",
    );
    refused(
        "c = ctypes.c_ulong(0)\nif libc.syscall(206, 8, ctypes.byref(c)): say('skip: no AIO')",
        "mapping ",
        "a ring of asynchronous I/O",
    );
    refused(
        "m = call(libc.mmap(None, 4096, 3, 34, -1, 0))\nlibc.syscall.argtypes = [ctypes.c_long, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]\nif libc.syscall(462, m, 4096, 0): say('skip: no mseal')",
        "mapping ",
        "a sealed mapping",
    );
    refused(
        "f = libc.syscall(447, 0)\nif f < 0: say('skip: no secret memory')\n\
         else: os.ftruncate(f, 4096); call(libc.mmap(None, 4096, 3, 1, f, 0)); os.close(f)",
        "mapping ",
        "secret memory",
    );
}

#[test]
fn a_traced_process_is_refused() {
    // Traced by its own child: PTRACE_SEIZE = 0x4206.
    let body = "libc.prctl(0x59616d61, -1)\nr, w = os.pipe()\nif os.fork() == 0:\n    libc.prctl(1, 9)\n    \
        ok = libc.ptrace(0x4206, os.getppid(), None, None)\n    os.write(w, b'y' if ok == 0 else b'n')\n    time.sleep(60)\n\
        ok = os.read(r, 1)\nos.close(r); os.close(w)\nif ok != b'y': say('skip: cannot be traced by a child')\n";
    refused(body, "tracing", "it is traced by process");
}

/// The guest is traced by its own child, which is called like a restart and lets go when `flag` is there.
fn held_like_a_restart(flag: &std::path::Path) -> Option<Guest> {
    let body = format!(
        "FLAG = {flag:?}\nlibc.prctl(0x59616d61, -1)\nr, w = os.pipe()\nif os.fork() == 0:\n    libc.prctl(1, 9)\n    \
         libc.prctl(15, b'wayfarer-abcdef')\n    parent = os.getppid()\n    \
         ok = libc.ptrace(0x4206, parent, None, None)\n    os.write(w, b'y' if ok == 0 else b'n')\n    \
         while not os.path.exists(FLAG): time.sleep(0.001)\n    \
         call(libc.ptrace(0x4207, parent, None, None)); os.waitpid(parent, 0x40000000)\n    \
         call(libc.ptrace(17, parent, None, None))\n    time.sleep(60)\n\
         ok = os.read(r, 1)\nos.close(r); os.close(w)\nif ok != b'y': say('skip: cannot be traced by a child')\n"
    );
    Guest::try_start(&body)
}

fn tracer(guest: &Guest) -> i32 {
    let status = crate::procfs::ProcDir::of(guest.pid()).parsed("status", parse_status);
    status.expect("its status").tracer_pid
}

#[test]
fn a_restart_that_lets_go_of_threads_is_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let flag = folder.path().join("let go");
    let Some(guest) = held_like_a_restart(&flag) else {
        return;
    };
    assert_ne!(tracer(&guest), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Were it refused at once, that would be told by then.
            std::thread::sleep(Duration::from_millis(200));
            std::fs::write(&flag, "").expect("a flag");
        });
        assert_eq!(said(&guest), [] as [&str; 0]);
    });
    assert_eq!(tracer(&guest), 0);
}

#[test]
fn a_restart_that_does_not_let_go_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(guest) = held_like_a_restart(&folder.path().join("never")) else {
        return;
    };
    let said = said(&guest);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("it is traced by process"), "{said:?}");
}

#[test]
fn foreign_seccomp_is_refused() {
    // One instruction: allow.
    let body = "libc.prctl(38, 1, 0, 0, 0)\n\
        code = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))\n\
        program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 1, ctypes.addressof(code)))\n\
        call(libc.prctl(22, 2, program))\n";
    refused(body, "seccomp", "1 seccomp filters of its own");
}

#[test]
fn a_process_of_two_users_is_refused() {
    let body = "if os.getuid() != 0: say('skip: needs root')\nelse: os.setresuid(0, 0, 1001)\n";
    refused(body, "user ids", "differ (0, 0, 1001, 0)");
}

#[test]
fn another_namespace_is_refused() {
    let body = "if libc.unshare(0x04000000): say('skip: no UTS namespace')\n";
    refused(body, "uts namespace", "it is not the one wayfarer runs in");
}

#[test]
fn name_spaces_are_not_taken_for_deleted_files() {
    refused(
        "f = os.open('/proc/self/ns/net', os.O_RDONLY)",
        "descriptor ",
        "a name space (nsfs) cannot be carried",
    );
}

#[test]
fn files_of_proc_that_are_written_or_of_others_are_refused() {
    refused(
        "f = os.open('/proc/self/oom_score_adj', os.O_RDWR)",
        "descriptor ",
        "oom_score_adj is open for writing",
    );
    refused(
        "f = os.open('/proc/%d/stat' % os.getppid(), os.O_RDONLY)",
        "descriptor ",
        "is about another process",
    );
    refused(
        "import threading\n\
        e = threading.Event(); t = threading.Thread(target=e.wait, daemon=True); t.start()\n\
        f = os.open('/proc/self/task/%d/stat' % t.native_id, os.O_RDONLY)",
        "descriptor ",
        "is about a thread other than the first",
    );
}

#[test]
fn files_whose_path_cannot_be_reached_are_not_taken_for_deleted() {
    let folder = tempfile::tempdir().expect("a folder");
    let within = |name: &str| format!("d = {:?}; os.mkdir(d)\n", folder.path().join(name));
    // Root reaches everything; a mount in the way stops root, too.
    let hide = "f = os.open(d + '/out', os.O_RDWR | os.O_CREAT); os.write(f, b'x' * 4096)\n\
        m = mmap.mmap(f, 4096) if 'mapped' in WHAT else None\n\
        if m: os.close(f)\n\
        os.rename(d, d + '.away'); os.mkdir(d); open(d + '/out', 'w').close()\n";
    // Renaming a folder is seen through: the kernel tells the new path.
    let guest = Guest::start(&format!("WHAT = 'open'\n{}{hide}", within("hidden")));
    assert_eq!(said(&guest), [] as [&str; 0]);
    drop(guest);
    let linked = "f = os.open(d + '/out', os.O_WRONLY | os.O_CREAT)\n\
        os.link(d + '/out', d + '/other'); os.unlink(d + '/out')\n";
    refused(
        &format!("{}{linked}", within("linked")),
        "descriptor ",
        "the file has another name",
    );
}
