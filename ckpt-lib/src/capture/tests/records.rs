//! What is recorded of each kind of object.

use super::super::*;
use super::guest::Guest;
use super::look_at;
use crate::snapshot::{
    ContentCheck, Description, DescriptionKind, DescriptionLock, InodeKind, InodeRecord, LockRange,
    Unread,
};
use std::os::unix::fs::FileExt;

fn at(seen: &Look, fd: i64) -> &Description {
    let table = &seen.descriptors.tables[0];
    let entry = table.iter().find(|entry| i64::from(entry.fd) == fd);
    let id = entry.expect("in the table").description;
    &seen.descriptors.descriptions[id.0 as usize]
}

/// What lay unread, from the file that has it.
fn unread(seen: &Look, Unread { at, len }: Unread) -> Vec<u8> {
    let mut drafts = seen.inodes.drafts.iter();
    let kept = drafts.find(|draft| draft.record.kind == InodeKind::Unread);
    let kept = kept.expect("is kept");
    assert!(at + len <= kept.record.size);
    let file = kept.file.as_deref().expect("is kept in a file");
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, at).expect("reads");
    bytes
}

fn inode(seen: &Look, fd: i64) -> &InodeRecord {
    match at(seen, fd).kind {
        DescriptionKind::Inode(id) => &seen.inodes.get(id).record,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn standard_streams_lead_outside_and_take_unread_bytes_along() {
    use std::io::Write;
    let mut kept = None;
    let guest = Guest::start_with("say('ready')\nsignal.pause()\n", |command| {
        // A pipe that holds bytes which the guest does not read.
        let (reader, mut writer) = std::io::pipe().expect("pipe");
        writer.write_all(b"unread").expect("write");
        command.stdin(reader);
        // Open as long as the test runs, so that it leads outside.
        kept = Some(writer);
    });
    let guest = guest.expect("starts");
    let seen = look_at(&guest);
    let DescriptionKind::External(input) = &at(&seen, 0).kind else {
        panic!("{:?}", at(&seen, 0))
    };
    assert_eq!(input.inherit, 0);
    assert_eq!(unread(&seen, input.unread), b"unread");
    assert!(input.was.0.starts_with(b"pipe:["));
    let DescriptionKind::External(output) = &at(&seen, 1).kind else {
        panic!("{:?}", at(&seen, 1))
    };
    assert_eq!(output.inherit, 1);
    assert_eq!(output.unread.len, 0);
    drop(kept);
}

#[test]
fn pipes_keep_contents_capacity_and_sharing() {
    let guest = Guest::start(
        "r, w = os.pipe(); fcntl.fcntl(w, 1031, 8192); os.write(w, b'hello'); d = os.dup2(w, 60, inheritable=True)\n\
         pr, pw = os.pipe2(os.O_DIRECT | os.O_NONBLOCK); os.write(pw, b'one'); os.write(pw, b'three')\n\
         cr, cw = os.pipe(); os.write(cw, b'rest'); os.close(cw)\n\
         say(r); say(w); say(pr); say(pw); say(cr)\n",
    );
    let seen = look_at(&guest);
    let pipe = |fd| match at(&seen, fd).kind {
        DescriptionKind::Pipe(id) => id,
        ref other => panic!("{other:?}"),
    };
    let record = |fd| &seen.descriptors.pipes[pipe(fd).0 as usize];
    let texts = |fd| -> Vec<Vec<u8>> {
        let parts = record(fd).contents.iter();
        parts.map(|part| unread(&seen, *part)).collect()
    };
    let [r, w, pr, pw, cr] = [0, 1, 2, 3, 4].map(|index| guest.number(index));
    assert_eq!(pipe(r), pipe(w));
    assert_eq!((record(r).capacity, record(r).packets), (8192, false));
    assert_eq!(texts(r), [b"hello".to_vec()]);
    assert_eq!(texts(pr), [b"one".to_vec(), b"three".to_vec()]);
    assert!(record(pw).packets);
    assert_ne!(at(&seen, pr).flags & libc::O_NONBLOCK as u32, 0);
    assert_eq!(texts(cr), [b"rest".to_vec()]);
    let entry = |fd: i64| {
        let table = seen.descriptors.tables[0].iter();
        *table
            .into_iter()
            .find(|entry| i64::from(entry.fd) == fd)
            .expect("there")
    };
    assert_eq!(entry(w).description, entry(60).description);
    assert!(entry(w).close_on_exec && !entry(60).close_on_exec);
}

#[test]
fn socket_pairs_keep_messages_and_descriptors_in_flight() {
    let guest = Guest::start(
        "a, b = socket.socketpair(); f = open('/etc/hostname') if os.path.exists('/etc/hostname') else open('/etc/passwd')\n\
         f.read(3); socket.send_fds(a, [b'with'], [f.fileno()]); f.close(); a.shutdown(socket.SHUT_WR)\n\
         c, d = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); c.send(b'one'); c.send(b'two')\n\
         e, g = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET); e.send(b'last'); e.close()\n\
         for s in (a, b, c, d, g): say(s.fileno())\n",
    );
    let seen = look_at(&guest);
    let [a, b, c, d, g] = [0, 1, 2, 3, 4].map(|index| guest.number(index));
    let id = |fd| match at(&seen, fd).kind {
        DescriptionKind::Socket(id) => id,
        ref other => panic!("{other:?}"),
    };
    let record = |fd| &seen.descriptors.sockets[id(fd).0 as usize];
    assert_eq!((record(a).peer, record(b).peer), (Some(id(b)), Some(id(a))));
    let texts = |fd| -> Vec<Vec<u8>> {
        let inbox = record(fd).inbox.iter();
        inbox.map(|message| unread(&seen, message.bytes)).collect()
    };
    assert_eq!(texts(b), [b"with"]);
    let flight = record(b).inbox[0].descriptions[0];
    let file = &seen.descriptors.descriptions[flight.0 as usize];
    assert!(matches!(file.kind, DescriptionKind::Inode(_)), "{file:?}");
    assert_ne!(file.offset, 0);
    assert_eq!(record(a).shutdown, 2);
    assert_eq!(
        (record(c).kind, texts(d)),
        (libc::SOCK_DGRAM, vec![b"one".to_vec(), b"two".to_vec()])
    );
    assert_eq!((record(g).peer, texts(g)), (None, vec![b"last".to_vec()]));
    // They are still there.
    let again = look_at(&guest);
    assert_eq!(again.descriptors.sockets, seen.descriptors.sockets);
}

#[test]
fn event_descriptors_are_recorded() {
    let guest = Guest::start(
        "e = libc.eventfd(7, 0o4001)\n\
         m = (ctypes.c_ulong * 16)(); m[0] = 1 << 9; s = libc.signalfd(-1, m, 0)\n\
         t = libc.timerfd_create(1, 0); it = (ctypes.c_long * 4)(2, 5, 100, 0); libc.timerfd_settime(t, 0, it, None)\n\
         p = select.epoll(); p.register(e, select.EPOLLIN | select.EPOLLET); p.register(t, select.EPOLLIN)\n\
         q = libc.syscall(434, os.getpid(), 0)\n\
         import tempfile\n\
         d = tempfile.mkdtemp(); i = libc.inotify_init1(0); libc.inotify_add_watch(i, d.encode(), 0x100); libc.inotify_add_watch(i, b'/etc', 0x200)\n\
         for x in (e, s, t, p.fileno(), q, i): say(x)\n\
         say(d)\n",
    );
    let seen = look_at(&guest);
    let [e, s, t, p, q, i] = [0, 1, 2, 3, 4, 5].map(|index| guest.number(index));
    let expected = DescriptionKind::EventFd {
        count: 7,
        semaphore: true,
    };
    assert_eq!(at(&seen, e).kind, expected);
    assert_ne!(at(&seen, e).flags & libc::O_NONBLOCK as u32, 0);
    assert_eq!(
        at(&seen, s).kind,
        DescriptionKind::SignalFd { mask: 1 << 9 }
    );
    let DescriptionKind::TimerFd {
        clock,
        value_ns,
        interval_ns,
        ..
    } = at(&seen, t).kind
    else {
        panic!()
    };
    assert_eq!((clock, interval_ns), (1, 2_000_000_005));
    assert!((90_000_000_000..100_000_000_000).contains(&value_ns));
    let DescriptionKind::Epoll { entries } = &at(&seen, p).kind else {
        panic!()
    };
    let mut members: Vec<_> = entries
        .iter()
        // The kernel adds EPOLLERR and EPOLLHUP to what was asked for.
        .map(|entry| (i64::from(entry.fd), entry.events & !0x18))
        .collect();
    members.sort_unstable();
    let edge = libc::EPOLLET as u32 | 1;
    let mut expected = [(e, edge), (t, 1)];
    expected.sort_unstable();
    assert_eq!(members, expected);
    for entry in entries {
        let table = seen.descriptors.tables[0].iter();
        let found = table
            .into_iter()
            .find(|found| found.fd == entry.fd)
            .expect("there");
        assert_eq!(found.description, entry.target);
    }
    let pid = guest.pid().cast_unsigned();
    assert_eq!(at(&seen, q).kind, DescriptionKind::PidFd { pid });
    let DescriptionKind::Inotify { watches } = &at(&seen, i).kind else {
        panic!()
    };
    let mut paths: Vec<_> = watches
        .iter()
        .map(|watch| (watch.wd, watch.mask, watch.path.to_string()))
        .collect();
    paths.sort();
    let expected = [(1, 0x100, guest.said[6].clone()), (2, 0x200, "/etc".into())];
    assert_eq!(paths, expected);
    let _ = std::fs::remove_dir(&guest.said[6]);
}

#[test]
fn files_are_told_apart_by_what_became_of_them() {
    let guest = Guest::start(
        "import tempfile\n\
         d = tempfile.mkdtemp(); fds = []\n\
         def put(name, text):\n\
        \x20   with open(d + '/' + name, 'w') as f: f.write(text)\n\
        \x20   return d + '/' + name\n\
         def keep(fd): say(fd); fds.append(fd)\n\
         keep(os.open(put('read', 'hello'), os.O_RDONLY)); os.lseek(fds[-1], 3, 0)\n\
         keep(os.open(put('written', 'hello'), os.O_RDWR | os.O_APPEND))\n\
         keep(os.open(put('deleted', 'gone'), os.O_RDONLY)); os.unlink(d + '/deleted')\n\
         keep(os.open(put('replaced', 'old'), os.O_RDWR)); os.rename(put('other', 'new'), d + '/replaced')\n\
         keep(os.open(put('real (deleted)', 'x'), os.O_RDONLY))\n\
         keep(os.open(d, os.O_RDONLY)); keep(os.open('/dev/null', os.O_RDWR)); keep(os.memfd_create('name', 2))\n\
         os.write(fds[-1], b'memory'); fcntl.fcntl(fds[-1], 1033, 8)\n\
         keep(os.open('/proc/self/status', os.O_RDONLY)); keep(os.open('/usr/bin/env', os.O_RDONLY))\n\
         keep(os.open(d + '/read', os.O_PATH))\n\
         say(d)\n",
    );
    let seen = look_at(&guest);
    let fd = |index| guest.number(index);
    let folder = guest.said[11].clone();
    let path = |index| inode(&seen, fd(index)).path.to_string();
    let kind = |index| inode(&seen, fd(index)).kind.clone();
    assert_eq!(
        (path(0), kind(0)),
        (format!("{folder}/read"), InodeKind::Regular)
    );
    assert_eq!(at(&seen, fd(0)).offset, 3);
    assert!(!inode(&seen, fd(0)).written);
    assert!(inode(&seen, fd(1)).written);
    assert_ne!(at(&seen, fd(1)).flags & libc::O_APPEND as u32, 0);
    assert_eq!(
        (path(2), kind(2)),
        (format!("{folder}/deleted"), InodeKind::Deleted)
    );
    assert_eq!(
        (path(3), kind(3)),
        (format!("{folder}/replaced"), InodeKind::Deleted)
    );
    assert_eq!(
        (path(4), kind(4)),
        (format!("{folder}/real (deleted)"), InodeKind::Regular)
    );
    assert_eq!((path(5), kind(5)), (folder.clone(), InodeKind::Directory));
    assert_eq!((path(6), kind(6)), ("/dev/null".into(), InodeKind::Device));
    let expected = InodeKind::MemFd {
        name: b"name"[..].into(),
        seals: 8,
        huge_shift: 0,
    };
    assert_eq!((kind(7), inode(&seen, fd(7)).size), (expected, 6));
    assert_eq!(kind(8), InodeKind::OfProcess);
    assert_ne!(at(&seen, fd(10)).flags & libc::O_PATH as u32, 0);
    let ids: Vec<_> = (0..11)
        .map(|index| match at(&seen, fd(index)).kind {
            DescriptionKind::Inode(id) => id,
            ref other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids[0], ids[10], "one inode");
    let (records, sources, tasks) = seen.inodes.finish(&CaptureOptions::default());
    let carried = |index: usize| records[ids[index].0 as usize].carried;
    assert_eq!(
        (0..10).map(carried).collect::<Vec<_>>(),
        [
            false, false, true, true, false, false, false, true, false, true
        ]
    );
    let frozen = |index: usize| {
        let source = sources.iter().find(|(id, _)| *id == ids[index]);
        source.expect("a source").1.while_frozen
    };
    // Read only, open for writing, sealed.
    assert_eq!((frozen(2), frozen(3), frozen(7)), (false, true, false));
    let has_task = |index: usize| tasks.iter().any(|task| task.inode == ids[index]);
    assert!(has_task(0) && has_task(1) && !has_task(8));
    // What the job can write to has been sampled already.
    let check = |index: usize| records[ids[index].0 as usize].check.clone();
    let hello = ContentCheck::Full(*blake3::hash(b"hello").as_bytes());
    assert_eq!((check(0), check(1)), (ContentCheck::Size, hello));
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn locks_are_recorded_with_their_kind_and_range() {
    let guest = Guest::start(
        "import tempfile\n\
         f = tempfile.TemporaryFile(); fcntl.flock(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_EX, 10, 5)\n\
         g = os.open('/proc/self/fd/%d' % f.fileno(), os.O_RDWR)\n\
         fcntl.fcntl(g, 37, struct.pack('hhqqi4x', 0, 0, 100, 0, 0))\n\
         say(f.fileno()); say(g)\n",
    );
    let seen = look_at(&guest);
    let exclusive = DescriptionLock::Flock { exclusive: true };
    assert_eq!(at(&seen, guest.number(0)).locks, [exclusive]);
    let range = LockRange {
        exclusive: false,
        start: 100,
        len: 0,
    };
    assert_eq!(
        at(&seen, guest.number(1)).locks,
        [DescriptionLock::Ofd(range)]
    );
    let locks = &seen.descriptors.record_locks[0];
    assert_eq!(locks.len(), 1);
    let expected = LockRange {
        exclusive: true,
        start: 5,
        len: 10,
    };
    assert_eq!(locks[0].range, expected);
}

#[test]
fn a_process_is_recorded_as_it_sees_itself() {
    let guest = Guest::start(
        "import resource\n\
         os.chdir('/usr'); os.umask(0o27); resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))\n\
         t = ctypes.c_int(); libc.timer_create(1, None, ctypes.byref(t))\n\
         open('/proc/self/oom_score_adj', 'w').write('500'); os.nice(5)\n",
    );
    let seen = look_at(&guest);
    let process = &seen.processes[0];
    assert_eq!(process.cwd.to_string(), "/usr");
    assert_eq!(process.root.to_string(), "/");
    assert_eq!(process.umask, 0o27);
    assert_eq!(process.rlimits[libc::RLIMIT_NOFILE as usize], (100, 200));
    assert_eq!(process.oom_score_adj, 500);
    assert_eq!(
        (process.pid, process.ppid),
        (guest.pid().cast_unsigned(), 0)
    );
    assert_eq!(process.posix_timers.len(), 1);
    let layout = &process.memory.layout;
    assert!(layout.start_code < layout.end_code && layout.arg_start < layout.arg_end);
    assert!(!process.memory.auxv.is_empty());
    let (tid, status) = &seen.subjects[0].threads[0];
    let thread = threads::read(*tid, status, &seen.ids).expect("reads");
    assert_eq!(thread.scheduling.nice, 5);
    assert_eq!(thread.name.to_string(), "python3");
    assert_ne!(thread.robust_list.0, 0);
}

#[test]
fn a_terminal_leads_outside_with_its_settings() {
    let window = nix::pty::Winsize {
        ws_row: 33,
        ws_col: 99,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = nix::pty::openpty(Some(&window), None).expect("a terminal");
    let slave = pty.slave;
    let body = "import termios\nos.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n\
        os.dup2(os.open(os.ttyname(0), os.O_RDWR), 77)\nos.closerange(3, 70)\n";
    let guest = Guest::start_with(body, |command| {
        command.stdin(slave);
    });
    let guest = guest.expect("starts");
    let seen = look_at(&guest);
    let external = |fd| match &at(&seen, fd).kind {
        DescriptionKind::External(external) => external.clone(),
        other => panic!("{other:?}"),
    };
    let terminal = external(0).terminal.expect("a terminal");
    assert_eq!(terminal.window, [33, 99, 0, 0]);
    assert_eq!(terminal.termios2.len(), 44);
    assert!(terminal.controlling && terminal.foreground);
    assert_eq!(
        external(77).inherit,
        0,
        "another opening of the same terminal"
    );
    assert_eq!(seen.processes[0].sid, seen.processes[0].pid);
}

#[test]
fn two_processes_share_what_they_share() {
    let guest = Guest::start(
        "r, w = os.pipe(); f = open('/etc/passwd'); pid = os.fork()\n\
         if pid == 0:\n    libc.prctl(1, 9); os.close(w); g = open('/etc/passwd'); os.read(r, 1)\n\
         os.close(r); say(pid); say(w); say(f.fileno()); time.sleep(0.3)\n",
    );
    let child = i32::try_from(guest.number(0)).expect("a pid");
    let pids = [guest.host_pid(), HostPid(child)];
    let options = CaptureOptions::default();
    let mut early = EarlyView::default();
    let mut refusals = Refusals::default();
    let skip = [vec![], vec![]];
    let seen = look(&pids, &options, Some(&skip), &mut early, &mut refusals).expect("looks");
    assert!(refusals.is_empty(), "{:?}", refusals.texts());
    assert_eq!(seen.processes[1].ppid, seen.processes[0].pid);
    let shared = guest.number(2);
    let of = |process: usize, fd: i64| {
        let table = seen.descriptors.tables[process].iter();
        table
            .into_iter()
            .find(|entry| i64::from(entry.fd) == fd)
            .map(|entry| entry.description)
    };
    assert_eq!(of(0, shared), of(1, shared));
    assert_eq!(seen.descriptors.pipes.len(), 1);
    let passwd = seen
        .inodes
        .drafts
        .iter()
        .filter(|draft| draft.record.path.0 == b"/etc/passwd");
    assert_eq!(passwd.count(), 1);
    let openings = seen.descriptors.descriptions.iter().filter(|description| {
        matches!(description.kind, DescriptionKind::Inode(id) if seen.inodes.get(id).record.path.0 == b"/etc/passwd")
    });
    assert_eq!(openings.count(), 2);
}

#[test]
fn ids_are_those_of_the_jobs_own_namespaces() {
    // unshare: NEWUSER; then NEWPID | NEWNS | NEWTIME; pid 1 there forks the job.
    let body = "uid, gid = os.getuid(), os.getgid()\n\
        if libc.unshare(0x10000000): say('skip: no user namespaces')\n\
        open('/proc/self/setgroups', 'w').write('deny')\n\
        open('/proc/self/uid_map', 'w').write('7 %d 1' % uid); open('/proc/self/gid_map', 'w').write('8 %d 1' % gid)\n\
        if libc.unshare(0x20020000 | 0x80): say('skip: no pid namespaces')\n\
        open('/proc/self/timens_offsets', 'w').write('monotonic 1000 0\\nboottime 2000 0')\n\
        r, w = os.pipe()\n\
        if os.fork() == 0:\n    libc.prctl(1, 9)\n    if os.fork() == 0:\n        libc.prctl(1, 9); os.setsid()\n        \
        q = libc.syscall(434, 2, 0)\n        os.write(w, os.readlink('/proc/self').encode()); os.close(r); os.close(w); sys.stdin.close(); time.sleep(60)\n    time.sleep(60)\n\
        say(os.read(r, 20).decode())\ntime.sleep(0.3)\n";
    let Some(guest) = Guest::try_start(body) else {
        return;
    };
    let job = HostPid(i32::try_from(guest.number(0)).expect("a pid"));
    let options = CaptureOptions {
        own_pid_namespace: true,
        ..CaptureOptions::default()
    };
    let mut refusals = Refusals::default();
    let skip = [vec![]];
    let mut early = EarlyView::default();
    let seen = look(&[job], &options, Some(&skip), &mut early, &mut refusals).expect("looks");
    assert!(refusals.is_empty(), "{:?}", refusals.texts());
    let process = &seen.processes[0];
    assert_eq!((process.pid, process.ppid), (2, 0));
    assert_eq!((process.sid, process.pgid), (2, 2));
    let identity = seen.ids.identity(&seen.subjects[0], true);
    assert_eq!((identity.uid, identity.gid), (7, 8));
    let pidfd = seen
        .descriptors
        .descriptions
        .iter()
        .find_map(|description| match description.kind {
            DescriptionKind::PidFd { pid } => Some(pid),
            _ => None,
        });
    assert_eq!(pidfd, Some(2));
    let own = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("clock");
    let theirs = clocks::of(&seen.subjects[0]).expect("clocks").monotonic_ns / 1_000_000_000;
    let ahead = theirs.cast_signed() - own.tv_sec();
    assert!((999..=1001).contains(&ahead), "{ahead} s ahead");
    // Not arranged by wayfarer: refused.
    let error = refuse_early(&[job], &CaptureOptions::default()).expect_err("other namespaces");
    assert!(
        error
            .to_string()
            .contains("pid namespace: it is not the one wayfarer runs in")
    );
}
