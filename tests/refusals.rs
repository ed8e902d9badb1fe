//! What cannot be carried is refused before anything is touched, by name, and
//! the job runs on: PASS after the refusal.

mod support;

use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;
use support::promise::{passed, with_job};
use support::python::python;
use support::random::seed;
use support::run::{self, Run, clean_command};
use support::scenario::{Guest, Job, Mode, Variant, Verdict};
use support::skip;
use support::stage::{self, Linking, c_guest};
use support::user::{User, is_root};

fn refuse(name: &str, phrase: &str) -> Result<Verdict, String> {
    let program = c_guest("refused", Linking::Dynamic)?;
    let guest = Guest::new(&format!("refused_{name}"), program, &[name]);
    let user = if ["device", "bpf", "ports", "roots_undumpable"].contains(&name) {
        User::Root
    } else {
        User::Ordinary
    };
    if let Some(reason) = user.missing() {
        return Ok(Verdict::Skipped(reason));
    }
    let mut job = Job::new(
        &guest,
        Variant {
            mode: Mode::GoOn,
            user,
            threads: 1,
        },
        seed(),
    );
    let result = perform(&mut job, phrase);
    let log: String = job.runs.iter().map(Run::describe).collect();
    drop(std::mem::take(&mut job.runs));
    run::end_marked(&job.mark);
    match result {
        Ok(verdict) => {
            let _ = std::fs::remove_dir_all(&job.dir);
            Ok(verdict)
        }
        Err(what) => {
            let place = stage::keep_artefacts(&job.dir, &log);
            Err(format!("{what}\n{log}\nfiles: {}", place.display()))
        }
    }
}

fn perform(job: &mut Job, phrase: &str) -> Result<Verdict, String> {
    let ready = job.start()?;
    if ready != Verdict::Passed {
        return Ok(ready);
    }
    let image = job.dir.join("refused.img");
    let path = image.to_string_lossy().into_owned();
    let (code, said) = job.tell(&["checkpoint", "job", "-o", &path, "--then", "kill"])?;
    if code == Some(0) {
        return Err("found a checkpoint, expected a refusal".into());
    }
    if !names_a_process(&said) || !said.contains(phrase) || said.contains("panicked") {
        return Err(format!(
            "found {said:?}, expected the process and {phrase:?}"
        ));
    }
    if image.exists() {
        return Err("found an image under the final name after a refusal".into());
    }
    job.let_go();
    job.wait_pass()
}

macro_rules! refusals {
    ($($name:ident: $argument:literal, $phrase:literal;)*) => {
        $(#[test]
        fn $name() {
            match refuse($argument, $phrase) {
                Ok(Verdict::Passed) => {}
                Ok(Verdict::Skipped(reason)) => skip::note(stringify!($name), &reason),
                Err(what) => panic!("{what}"),
            }
        })*
    };
}

// Each phrase is the reason itself: no word of it stands in the other refusals.
refusals! {
    a_connection_by_ip_is_refused: "tcp", "TCP socket connected to 127.0.0.1:";
    io_uring_is_refused: "io_uring", "an io_uring cannot be carried";
    asynchronous_io_is_refused: "aio", "a ring of asynchronous I/O (io_setup) cannot be carried";
    perf_events_are_refused: "perf", "a perf event cannot be carried";
    bpf_objects_are_refused: "bpf", "a BPF object cannot be carried";
    devices_are_refused: "device", ": device /dev/";
    ports_of_devices_are_refused: "ports", ": ioperm: access to ports of devices cannot be carried";
    calls_that_a_program_answers_itself_are_refused: "dispatched", "has its system calls dispatched by the program";
    a_cookie_of_core_scheduling_is_refused: "cookie", ": core scheduling: it may only run beside threads of its own";
    a_foreign_seccomp_filter_is_refused: "seccomp", "seccomp filters of its own";
    a_landlock_domain_is_refused: "confined", ": Landlock: it has a domain of its own";
    a_landlock_domain_of_one_thread_is_refused: "confined_thread", ": Landlock: it has a domain of its own";
    unread_inotify_events_are_refused: "unread_inotify", "inotify events wait unread in it";
    a_traced_process_is_refused: "traced", "is traced already, by process";
    keys_of_a_thread_are_refused: "thread_key", ": thread keyring: its keys cannot be carried";
    keys_of_a_process_are_refused: "process_key", ": process keyring: its keys cannot be carried";
    segments_of_the_global_table_are_refused: "thread_area", "segments of the global descriptor table cannot be carried";
    the_pidfd_of_a_thread_is_refused: "pidfd_of_thread", "(PIDFD_THREAD), which cannot be carried";
    an_unread_message_of_a_process_that_has_ended_is_refused: "sent_by_child", "as its sender (SCM_CREDENTIALS), which is not of the job or has ended";
    an_urgent_byte_is_refused: "urgent_byte", "an urgent byte (MSG_OOB) lies unread in it";
    a_filter_of_a_socket_is_refused: "socket_filter", "unix socket with a filter (SO_ATTACH_FILTER)";
    a_process_that_hides_its_memory_is_refused: "undumpable", "it does not let itself be looked at (PR_SET_DUMPABLE";
    a_process_of_root_that_hides_its_memory_is_refused: "roots_undumpable", ": dumpable: it does not let itself be looked at";
    a_child_process_is_refused_yet: "child", "only jobs of one process can be carried yet";
    a_time_out_whose_rest_has_no_place_is_refused: "no_place", "a call in progress: what would be left of its time-out (rt_sigtimedwait) has no place";
    a_userfaultfd_of_the_job_is_refused: "userfaultfd", "a userfaultfd cannot be carried";
}

#[test]
fn the_process_of_another_user_is_refused_and_not_touched() {
    if !is_root() {
        return skip::note("the_process_of_another_user", "not started by root");
    }
    with_job(&Guest::new("foreign_process", "/bin/cat", &[]), |job| {
        let mut command = job.in_data(clean_command("/bin/cat"));
        command.stdin(Stdio::piped());
        let mut run = Run::start_with_stdin("root's", command, User::Root)?;
        let pid = run.pid();
        let mut input = run.stdin().ok_or("no standard input")?;
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}"));
        run::poll(Duration::from_secs(20), || {
            let call = read("syscall").unwrap_or_default();
            call.starts_with("0 ").then_some(())
        })
        .ok_or("cat does not read")?;
        // How often it has run is in it, too. Memory may be taken from it by others.
        let status = || {
            let text = read("status").map_err(|error| error.to_string())?;
            let lines = text
                .lines()
                .filter(|line| !line.starts_with("Vm") && !line.starts_with("Rss"));
            Ok::<_, String>(lines.collect::<Vec<_>>().join("\n"))
        };
        let before = status()?;
        let image = job.dir.join("foreign.img");
        let path = image.to_string_lossy().into_owned();
        let (code, said) = job.tell(&["checkpoint", &pid.to_string(), "-o", &path])?;
        let expected =
            format!("process {pid} (cat) cannot be traced: it belongs to user 0, not to");
        if code != Some(1) || !said.contains(&expected) || image.exists() {
            return Err(format!(
                "found exit {code:?} and {said:?}, expected {expected:?}"
            ));
        }
        let after = status()?;
        if after != before {
            return Err(format!("touched: found {after}, expected {before}"));
        }
        let written = input.write_all(b"hello\n");
        written.map_err(|error| error.to_string())?;
        let echo = run.wait_line("hello", Duration::from_secs(20));
        job.runs.push(run);
        echo
    });
}

/// Whether a refusal says which process it is about.
fn names_a_process(said: &str) -> bool {
    let mut numbers = said.split("process ").skip(1);
    numbers.any(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// A checkpoint of this guest is refused in these words.
fn refused_with(guest: &Guest, phrase: &str) {
    with_job(guest, |job| {
        if job.start()? != Verdict::Passed {
            return Err("it did not start".into());
        }
        let path = job.dir.join("refused.img").to_string_lossy().into_owned();
        let (code, said) = job.tell(&["checkpoint", "job", "-o", &path])?;
        match code == Some(1) && names_a_process(&said) && said.contains(phrase) {
            true => Ok(()),
            false => Err(format!(
                "found exit {code:?} and {said:?}, expected {phrase:?}"
            )),
        }
    });
}

/// What a script of a few lines has that cannot be carried, and the words for it.
#[test]
fn what_else_cannot_be_carried_is_refused_by_name() {
    const CALL: &str = "import ctypes, threading; c = ctypes.CDLL(None, use_errno=True)\n";
    // In a thread that does not end.
    const APART: &str = "def apart(flag):\n    assert c.unshare(flag) == 0; done.set(); time.sleep(1000)\n\
         done = threading.Event(); t = threading.Thread(target=apart, args=(FLAG,), daemon=True); t.start(); done.wait()\n";
    let cases = [
        (
            "queue",
            "assert c.syscall(240, b'wf-%d' % os.getpid(), 0o102, 0o600, None) >= 0; c.syscall(241, b'wf-%d' % os.getpid())\n".to_owned(),
            "a POSIX message queue cannot be carried",
        ),
        (
            "looked_at",
            "import socket as s; a, b = s.socketpair(s.AF_UNIX, s.SOCK_DGRAM); a.send(b'one'); a.send(b''); a.send(b'three')\n\
             b.setsockopt(s.SOL_SOCKET, 42, 0); b.recv(9, s.MSG_PEEK); b.recv(9, s.MSG_PEEK); b.setsockopt(s.SOL_SOCKET, 42, -1)\n"
                .to_owned(),
            "empty messages lie unread in it that were looked at before",
        ),
        (
            "epoll_in_flight",
            "import select, socket as s; a, b = s.socketpair(); e = select.epoll(); e.register(a); s.send_fds(a, [b'x'], [e.fileno()]); e.close()\n"
                .to_owned(),
            "an epoll set with members of which the job has no descriptor but one in flight",
        ),
        (
            "owner_in_flight",
            "import fcntl, socket as s; a, b = s.socketpair(); c, d = s.socketpair(); fcntl.fcntl(c, 8, os.getpid())\n\
             s.send_fds(a, [b'x'], [c.fileno()]); c.close()\n"
                .to_owned(),
            "it has an owner or a signal (F_SETOWN, F_SETSIG, O_ASYNC), which cannot be carried where it is in flight only",
        ),
        ("own_folder", APART.replace("FLAG", "0x200"), "it has a working directory and umask of its own"),
        ("own_descriptors", APART.replace("FLAG", "0x400"), "it has a descriptor table of its own"),
        ("link_itself", "os.symlink('a', 'l'); f = os.open('l', 0o10400000)\n".to_owned(), "a symbolic link opened with O_PATH cannot be carried"),
        (
            "other_link",
            "f = open('one', 'w+b'); f.write(b'x'); f.flush(); os.link('one', 'two'); os.remove('one')\n".to_owned(),
            "has been deleted, but the file has another name, which cannot be found",
        ),
        ("deleted_fifo", "os.mkfifo('p'); f = os.open('p', os.O_RDWR); os.remove('p')\n".to_owned(), "which has been deleted, cannot be carried"),
        ("deleted_cwd", "os.mkdir('d'); os.chdir('d'); os.rmdir('../d')\n".to_owned(), "(python3): working directory: "),
        ("deleted_folder", "os.mkdir('d'); f = os.open('d', os.O_RDONLY); os.rmdir('d')\n".to_owned(), "a deleted directory cannot be carried"),
    ];
    for (label, script, phrase) in cases {
        let script = format!("{CALL}{script}ready(); print('PASS')\n");
        refused_with(&python(label, &script), phrase);
    }
}

#[test]
fn what_has_a_path_beyond_path_max_is_refused_by_name() {
    for (label, last, phrase) in [
        (
            "long_folder",
            "",
            "(python3): working directory: its path is longer",
        ),
        (
            "long_file",
            "f = open('file', 'w'); os.chdir('/')\n",
            "(python3): descriptor 3: its path is longer",
        ),
    ] {
        let script = format!(
            "for _ in range(25):\n\
             \x20   os.mkdir('d' * 200); os.chdir('d' * 200)\n\
             {last}ready()\n"
        );
        refused_with(&python(label, &script), phrase);
    }
}

/// A 32-bit ELF file with this code, mapped at 0x10000.
fn elf_32(code: &[u8]) -> Vec<u8> {
    const BASE: u32 = 0x10000;
    const HEADERS: u32 = 52 + 32;
    let mut file = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let halves = |file: &mut Vec<u8>, words: &[u16]| {
        file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    };
    let words = |file: &mut Vec<u8>, words: &[u32]| {
        file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    };
    halves(&mut file, &[2, 3]);
    words(&mut file, &[1, BASE + HEADERS, 52, 0, 0]);
    halves(&mut file, &[52, 32, 1, 0, 0, 0]);
    let len = HEADERS + code.len() as u32;
    words(&mut file, &[1, 0, BASE, BASE, len, len, 5, 4096]);
    file.extend_from_slice(code);
    file
}

#[test]
fn a_32_bit_program_is_refused_by_name() {
    use std::os::unix::fs::PermissionsExt;
    // write(1, "READY\n", 6); then pause() for ever.
    let code = [
        &b"\xb8\x04\0\0\0\xbb\x01\0\0\0\xb9"[..],
        &(0x10000u32 + 84 + 31).to_le_bytes(),
        b"\xba\x06\0\0\0\xcd\x80\xb8\x1d\0\0\0\xcd\x80\xeb\xf7READY\n",
    ]
    .concat();
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("small");
    fs::write(&program, elf_32(&code)).expect("written");
    for (path, mode) in [(folder.path(), 0o755), (&program, 0o755)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
    }
    // A kernel without IA32_EMULATION.
    match std::process::Command::new(&program)
        .stdout(Stdio::null())
        .spawn()
    {
        Ok(mut child) => {
            child.kill().expect("killed");
            child.wait().expect("waited");
        }
        Err(error) => return skip::note("a_32_bit_program", &error.to_string()),
    }
    let guest = Guest::new("small", &program, &[]);
    refused_with(&guest, "(small): program: it is a 32-bit program (i386)");
}

/// It looks at another process again and again, as `ps` and psutil do: most of the time it has nothing of that open.
#[test]
fn what_is_open_for_a_moment_only_is_not_in_the_way() {
    let script = "print('READY', flush=True)\n\
         while not os.path.exists(os.environ['WF_GO']):\n\
         \x20   with open('/proc/1/stat') as stat: stat.read()\n\
         \x20   time.sleep(0.001)\n\
         print('PASS', flush=True)\n";
    with_job(&python("looks_at_others", script), |job| {
        if job.start()? != Verdict::Passed {
            return Err("it did not start".into());
        }
        // By chance one try in twelve finds the file open, and now and then all five of a checkpoint.
        let mut refused = 0;
        for number in 0..60 {
            let (code, said) = job.tell(&["checkpoint", "job"])?;
            if code == Some(1) && said.contains("is about another process") && refused < 2 {
                refused += 1;
            } else if code != Some(0) {
                return Err(format!("checkpoint {number}: exit {code:?}: {said}"));
            }
        }
        println!("{refused} of 60 were refused");
        job.let_go();
        passed(job.wait_pass()?)
    });
}
