//! FIFOs and sockets whose names are at the shadow, among processes of a job; descriptors that come through sockets (docs/CALLS.md, "FIFOs
//! and named sockets").

use super::dispatched::same_on_musl;
use super::restart::{Traveller, UNDER_JOURNAL as OF_TRAVELLERS, job_words};
use super::undone::{picture, undo};
use super::*;
use std::os::unix::fs::FileTypeExt;
use support::stage::go_guest;

#[test]
fn fifos_and_passed_descriptors_do_what_they_do_here() {
    let what = "fifos_and_passed_descriptors_do_what_they_do_here";
    same_here_and_there(what, "remote_fifos", 150);
}

#[test]
fn named_sockets_do_what_they_do_here() {
    let what = "named_sockets_do_what_they_do_here";
    same_here_and_there(what, "remote_sockets", 250);
}

#[test]
fn fifos_by_musl_do_what_they_do_here() {
    let what = "fifos_by_musl_do_what_they_do_here";
    same_on_musl(what, "remote_fifos", Linking::Musl, 150);
}

#[test]
fn named_sockets_by_musl_do_what_they_do_here() {
    let what = "named_sockets_by_musl_do_what_they_do_here";
    same_on_musl(what, "remote_sockets", Linking::Musl, 250);
}

#[test]
fn a_go_program_speaks_through_its_sockets() {
    let what = "a_go_program_speaks_through_its_sockets";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new(what);
    let guest = go_guest("remote_named", false).expect("the guest compiles");
    same_program(&submit, &guest, 4, |all| submit.elsewhere(all));
}

/// Under a journal the names are announced, made and taken back like others.
#[test]
fn fifos_and_sockets_are_undone() {
    const LEAVES: &str = "import os, socket
os.mkfifo('left'); os.open('left', os.O_RDWR); os.remove('old'); os.rename('older', 'renamed')
s = socket.socket(socket.AF_UNIX); s.bind('socket'); os.chmod('socket', 0o600)
s = socket.socket(socket.AF_UNIX); s.bind('gone'); os.remove('gone')
print(sorted(os.listdir()))
";
    let what = "fifos_and_sockets_are_undone";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let journal = ["--allow", "/:ro", "--journal", "undo", "--keep-journals"];
    let submit = Submit::allowing(what, &journal);
    let mut furnish = clean_command("/bin/sh");
    furnish.args(["-c", "mkfifo -m 640 old; mkfifo older"]);
    furnish.current_dir(submit.home());
    assert_eq!(output("the old ones", furnish).2, Some(0));
    let before = picture::take(&submit.home());
    let job = submit.elsewhere(&words(&["/usr/bin/python3", "-c", LEAVES]));
    let (said, errors, status) = output("a job that leaves some", job);
    assert_eq!(
        (said.as_str(), errors.as_str(), status),
        ("['left', 'renamed', 'socket']\n", "", Some(0))
    );
    let is = |name: &str| {
        let found = fs::symlink_metadata(submit.home().join(name)).expect("is there");
        (found.file_type().is_fifo(), found.file_type().is_socket())
    };
    assert_eq!((is("left"), is("socket")), ((true, false), (false, true)));
    undo(submit, User::Ordinary, &before);
}

/// The transcripts once more, under a journal.
#[test]
fn fifos_and_sockets_under_a_journal_do_what_they_do_here() {
    let what = "fifos_and_sockets_under_a_journal_do_what_they_do_here";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let journal = ["--allow", "/:ro", "--journal", "undo", "--keep-journals"];
    for (guest, least_lines) in [("remote_fifos", 150), ("remote_sockets", 250)] {
        let submit = Submit::allowing("remote-named-journal", &journal);
        let before = picture::take(&submit.home());
        same_at(&submit, guest, least_lines);
        undo(submit, User::Ordinary, &before);
    }
}

/// What programs do with FIFOs and sockets; the same script here and there.
const SCRIPT: &str = r#"
set -e
export LC_ALL=C.UTF-8 TZ=UTC HOME=$PWD TMPDIR=$PWD TMUX_TMPDIR=$PWD
umask 022
mkfifo a b; ls -l a b | cut -c1-10; stat -c %F a; test -p a && echo a pipe
(seq 5000 | sort -rn > a) & head -n 2 a | tee b & cat b; wait
(cat a | tee b | md5sum) & (md5sum < b) & seq 20000 > a; wait
diff <(seq 100) <(seq 100) && echo the same; cat < <(echo substituted)
mkdir tree; for i in $(seq 50); do echo "$i" > tree/f$i; done; mkdir out; tar cf a tree & tar xf a -C out; wait; diff -r tree out/tree && echo the same
exec 3<> a; for i in 1 2 3; do echo token >&3; done
work() { read -r -u 3 _; echo "work $1" >> log; sleep 0.05; echo token >&3; }
for i in $(seq 9); do work "$i" & done; wait; sort log; exec 3>&-
status=0; timeout 0.3 cat a || status=$?; echo "timed out $status"
(sleep 0.2; echo late > a) & read -r line < a; echo "$line"; wait
coproc cat b; exec 4> b; echo by a coprocess >&4; read -r line <&"${COPROC[0]}"; echo "$line"; exec 4>&-; wait
{ trap 'echo a broken pipe' PIPE; (exec 5< a; sleep 0.1) & exec 6> a; wait; echo x >&6 || true; exec 6>&-; } 2>/dev/null
perl -MPOSIX -e 'POSIX::mkfifo("c", 0600) or die; if (!fork) { open F, ">", "c"; print F "perl\n"; exit } open F, "<", "c"; print <F>; wait; unlink "c"'
cat > served.py <<'EOF'
import asyncio, array, logging, logging.handlers, multiprocessing, os, selectors, socket, socketserver, stat, subprocess, sys, threading
from multiprocessing.connection import Client, Listener
def double(x): return 2 * x
def fill(data, lock, n):
    with lock: data[n] = os.getppid() > 0
def main():
    with multiprocessing.Manager() as manager:
        print(stat.S_ISSOCK(os.stat(manager.address).st_mode), manager.address.startswith(os.environ['TMPDIR']))
        data, lock, queue = manager.dict(), manager.Lock(), manager.Queue()
        all = [multiprocessing.Process(target=fill, args=(data, lock, n)) for n in range(4)]
        [p.start() for p in all]; [p.join() for p in all]; queue.put('queued'); print(sorted(data.items()), queue.get())
    for method in 'fork', 'spawn', 'forkserver':
        with multiprocessing.get_context(method).Pool(2) as pool: print(method, pool.map(double, range(5)))
    with Listener('listener', 'AF_UNIX', authkey=b'key') as listener:
        def ask():
            with Client('listener', authkey=b'key') as client: client.send([1, 'two']); client.send(client.recv() + 1)
        thread = threading.Thread(target=ask); thread.start()
        with listener.accept() as one: print(one.recv()); one.send(41); print(one.recv(), repr(listener.last_accepted))
        thread.join()
    print(os.path.exists('listener'))
    class Handler(socketserver.StreamRequestHandler):
        def handle(self): self.wfile.write(self.rfile.readline().upper())
    with socketserver.ThreadingUnixStreamServer('served', Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        for n in range(3):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(os.path.abspath('served')); client.sendall(b'line %d\n' % n); print(client.recv(99), client.getpeername())
        server.shutdown(); print(server.socket.getsockname())
    try: socketserver.UnixStreamServer('served', Handler)
    except OSError as error: print(error)
    os.unlink('served')
    async def talk():
        async def answer(reader, writer): writer.write((await reader.readline())[::-1]); await writer.drain(); writer.close()
        server = await asyncio.start_unix_server(answer, 'async'); reader, writer = await asyncio.open_unix_connection('async')
        writer.write(b'abc\n'); print(await reader.read()); writer.close(); server.close(); await server.wait_closed()
    asyncio.run(talk())
    log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); log.bind('log.socket')
    logger = logging.getLogger(); logger.addHandler(logging.handlers.SysLogHandler('log.socket')); logger.warning('logged'); print(log.recvfrom(99))
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with open('passed', 'w+') as f:
        f.write('passed on'); f.flush(); socket.send_fds(ours, [b'x'], [f.fileno()])
    if os.fork() == 0:
        _, [fd], _, _ = socket.recv_fds(theirs, 9, 9); os.lseek(fd, 0, 0); subprocess.run(['cat'], stdin=fd); sys.stdout.write('\n'); sys.stdout.flush(); os._exit(0)
    os.wait()
    os.mkfifo('fifo'); reader = os.open('fifo', os.O_RDONLY | os.O_NONBLOCK)
    child = subprocess.Popen(['sh', '-c', 'sleep 0.1; echo selected > fifo']); select = selectors.DefaultSelector(); select.register(reader, selectors.EVENT_READ)
    print([event for _, event in select.select(10)], os.read(reader, 99)); child.wait()
    print(os.path.samestat(os.fstat(reader), os.stat('fifo')), stat.filemode(os.fstat(reader).st_mode), os.stat('fifo').st_size)
if __name__ == '__main__': main()
EOF
/usr/bin/python3 served.py
rm -r fifo async log.socket a b tree out log
if command -v ssh-agent ssh-add > /dev/null; then
  eval "$(ssh-agent -a "$PWD/agent")" > /dev/null; test -S agent && echo an agent
  ssh-keygen -q -t ed25519 -N '' -C comment -f key; ssh-add -q key; ssh-add -l | cut -d' ' -f3-; ssh-add -q -D; ssh-add -l || true
  ssh-agent -k > /dev/null; for i in $(seq 100); do test -e agent || break; sleep 0.05; done; test -e agent || echo no agent; rm key key.pub
fi
if command -v gpg gpg-agent > /dev/null; then
  export GNUPGHOME=$PWD/g; mkdir -m 700 g; gpg --batch --passphrase '' --quick-gen-key a@b default default never 2> /dev/null
  echo secret | gpg --batch --trust-model always -e -r a@b | gpg -q --batch -d 2> /dev/null; test -S g/S.gpg-agent && echo an agent
  gpgconf --kill all; for i in $(seq 100); do test -e g/S.gpg-agent || break; sleep 0.05; done; test -e g/S.gpg-agent || echo no agent; rm -r g
fi
if command -v tmux > /dev/null; then
  tmux -f /dev/null new-session -d -s one 'cat > typed; tmux wait-for -S done'; tmux ls -F '#{session_name} #{session_windows}'
  tmux new-window -d -t one 'echo in a window > window; sleep 1000'; tmux send-keys -t one:0 'some keys' Enter C-d; tmux wait-for done
  for i in $(seq 200); do test -s window && break; sleep 0.05; done; cat typed window; tmux display-message -p '#{session_name}'; tmux kill-server; rm -r tmux-*
fi
"#;

#[test]
fn programs_speak_through_fifos_and_sockets() {
    let what = "programs_speak_through_fifos_and_sockets";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("remote-named");
    let script = ["/bin/bash", "-c", SCRIPT];
    let mut here = clean_command(script[0]);
    here.args(&script[1..]).current_dir(submit.local());
    let here = output("the programs, here", here);
    assert_eq!(here.2, Some(0), "{here:?}");
    let there = output("the programs, elsewhere", submit.elsewhere(&words(&script)));
    for (ours, theirs) in here.0.lines().zip(there.0.lines()) {
        assert_eq!(theirs, ours, "elsewhere, here: {}", there.1);
    }
    assert_eq!(there, here);
    assert_eq!(tree(&submit.home()), tree(&submit.local()));
}

/// Names that mean files of this machine are those of its sockets and FIFOs, too.
#[test]
fn sockets_lie_where_their_names_lead() {
    const SPEAKS: &str = "import os, socket, sys
here = sys.argv[1]
def serve(name):
    s = socket.socket(socket.AF_UNIX); s.bind(name); s.listen(); c = socket.socket(socket.AF_UNIX); c.connect(name)
    print(os.path.basename(c.getpeername()), os.path.basename(s.getsockname()), oct(os.stat(name).st_mode))
serve(here + '/socket'); serve('renamed'); serve('mine'); serve('link')
os.mkfifo(here + '/fifo'); f = os.open(here + '/fifo', os.O_RDWR); os.write(f, b'x'); print(os.read(f, 9))
print(sorted(os.listdir(here)), sorted(os.listdir()))
";
    let what = "sockets_lie_where_their_names_lead";
    if missing(what) {
        return;
    }
    let submit = Submit::new("named-methods");
    let here = submit.local();
    let remap = format!("mine=local:{0}/remapped;renamed=other", here.display());
    std::os::unix::fs::symlink("/proc/self/cwd/none", submit.home().join("away")).expect("links");
    std::os::unix::fs::symlink("reached", submit.home().join("link")).expect("links");
    let script = SPEAKS.replace(
        "serve('link')",
        "os.remove('link'); serve('link')
c = socket.socket(socket.AF_UNIX)
try: c.connect('away')
except OSError as error: print(error)",
    );
    let mut command = clean_command(stage::wayfarer());
    let options = [
        OsStr::new("--local-files"),
        here.as_os_str(),
        OsStr::new("--remap"),
        OsStr::new(&remap),
    ];
    let program = ["/usr/bin/python3", "-c", &script].map(OsStr::new);
    let program = [&program[..], &[here.as_os_str()]].concat();
    submit.run(&mut command, &options, &program);
    command.current_dir(submit.home());
    let (said, errors, status) = output("a job with rules", command);
    let expected = "socket socket 0o140755\nrenamed renamed 0o140755\nremapped remapped 0o140755\nlink link 0o140755\n\
        [Errno 2] No such file or directory\nb'x'\n\
        ['fifo', 'remapped', 'socket'] ['away', 'link', 'other']\n";
    assert_eq!(
        (said.as_str(), errors.as_str(), status),
        (expected, "", Some(0))
    );
    let is_socket = |path: PathBuf| {
        let found = fs::symlink_metadata(&path).expect("is there");
        found.file_type().is_socket()
    };
    for path in [here.join("socket"), here.join("remapped")] {
        assert!(is_socket(path));
    }
    for name in ["other", "link"] {
        assert!(is_socket(submit.home().join(name)));
    }
}

/// FIFOs of a job go on with it, on a machine that never had them: what lies in them, who waits at them, who opens them by name later.
#[test]
fn a_job_goes_on_with_its_fifos() {
    const SCRIPT: &str = "import os, signal, sys, threading, time
os.mkfifo('fifo'); os.mkfifo('waited'); os.mkfifo('gone')
reader = os.open('fifo', os.O_RDONLY | os.O_NONBLOCK); writer = os.open('fifo', os.O_WRONLY)
os.write(writer, b'unread'); before = os.fstat(reader)
gone = os.open('gone', os.O_RDWR); os.write(gone, b'nameless'); os.remove('gone')
came = []
thread = threading.Thread(target=lambda: came.append(open('waited').read())); thread.start()
time.sleep(0.3)
print('ready', flush=True)
while not os.path.exists('go'): time.sleep(0.02)
with open('waited', 'w') as waited: waited.write('waited for')
thread.join()
again = os.open('fifo', os.O_WRONLY | os.O_NONBLOCK); os.write(again, b' and more')
print(os.read(reader, 99), came, os.read(gone, 99))
os.close(writer); os.close(again); print(os.read(reader, 99))
after = os.fstat(reader); print((before.st_dev, before.st_ino) == (after.st_dev, after.st_ino))
both = os.open('fifo', os.O_RDWR); os.write(both, b'at last'); print(os.read(reader, 99))
";
    let what = "a_job_goes_on_with_its_fifos";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let mut traveller = Traveller::new(what, &OF_TRAVELLERS);
    let mut job = traveller.begin(&job_words("/usr/bin/python3", SCRIPT));
    job.wait_line("ready", SOON).expect("is ready");
    let image = traveller.checkpoint(&mut job).expect("it lives yet");
    traveller.kill(&mut job);
    let go = traveller.submit.home().join("go");
    let mut command = traveller.submit.bare_machine();
    command.arg("--dir").arg(traveller.submit.dir.join("state"));
    command.args(["restart", "--files", "keep", "--shadow"]);
    command.arg(address(&traveller.submit.dir)).arg(&image);
    fs::write(&go, "").expect("writes");
    let (said, errors, status) = output("the job there", command);
    let expected = "b'unread and more' ['waited for'] b'nameless'\nb''\nTrue\nb'at last'\n";
    assert_eq!(
        (said.as_str(), errors.as_str(), status),
        (expected, "", Some(0))
    );
}

/// Sockets and FIFOs are each job's own, and gone with it, however it ends: the kernel has none of its sockets any more.
#[test]
fn what_a_killed_job_had_is_gone() {
    const SERVES: &str = "import os, socket, time
s = socket.socket(socket.AF_UNIX); s.bind('socket'); s.listen(); os.mkfifo('fifo'); r = os.open('fifo', os.O_RDWR)
inode = str(os.fstat(s.fileno()).st_ino)
print(*[line.split()[7] for line in open('/proc/net/unix') if line.split()[6] == inode], flush=True); time.sleep(100)
";
    const ASKS: &str = "import os, socket, sys
def attempt(act):
    try: act(); print('done')
    except OSError as error: print(error)
attempt(lambda: socket.socket(socket.AF_UNIX).connect('socket'))
attempt(lambda: os.open('fifo', os.O_WRONLY | os.O_NONBLOCK))
";
    let what = "what_a_killed_job_had_is_gone";
    if missing(what) {
        return;
    }
    let submit = Submit::new("named-killed");
    let serves = submit.remote(&words(&["/usr/bin/python3", "-c", SERVES]));
    let mut job = Run::start("the job", serves, User::Ordinary).expect("starts");
    let is_there = support::run::poll(SOON, || {
        let said = job.out.text();
        said.ends_with('\n').then_some(said)
    });
    let name = is_there.unwrap_or_else(|| panic!("{}", job.describe()));
    let name = name.trim();
    let is_known = || {
        let known = fs::read_to_string("/proc/net/unix").expect("reads");
        known.lines().any(|line| line.ends_with(name))
    };
    assert!(
        name.starts_with("/proc/thread-self/fd/1011/b") && is_known(),
        "{name}"
    );
    for round in 0..2 {
        let asks = submit.remote(&words(&["/usr/bin/python3", "-c", ASKS]));
        let (said, errors, _) = output("another job", asks);
        let expected =
            "[Errno 111] Connection refused\n[Errno 6] No such device or address: 'fifo'\n";
        assert_eq!((said.as_str(), errors.as_str()), (expected, ""), "{round}");
        if round == 0 {
            let pid = nix::unistd::Pid::from_raw(job.pid() as i32);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("is there");
            job.wait(SOON).expect("is dead");
            let gone = support::run::poll(SOON, || (!is_known()).then_some(()));
            assert!(gone.is_some(), "{name} is there yet");
        }
    }
}

/// A job whose sockets have names cannot be carried, and is told which.
#[test]
fn a_job_with_a_named_socket_is_refused() {
    let script = "import socket, time
s = socket.socket(socket.AF_UNIX); s.bind('socket'); s.listen(); print('ready', flush=True); time.sleep(60)";
    let what = "a_job_with_a_named_socket_is_refused";
    if missing(what) {
        return;
    }
    let traveller = Traveller::new(what, &OF_TRAVELLERS);
    let mut job = traveller.begin(&job_words("/usr/bin/python3", script));
    job.wait_line("ready", SOON).expect("is ready");
    let image = traveller.submit.dir.join("state/image");
    let mut command = traveller.wayfarer(&words(&["checkpoint", "job", "-o"]));
    command.arg(image);
    let (_, said, status) = output("the checkpoint", command);
    assert_ne!(status, Some(0));
    assert!(said.contains("socket"), "{said}");
    assert!(job.ended().is_none(), "it runs on");
    traveller.kill(&mut job);
}

/// Where the kernel gives nobody a file system in memory, a job has no FIFOs, and all else.
#[test]
fn a_job_without_a_place_for_fifos_is_told_so() {
    let what = "a_job_without_a_place_for_fifos_is_told_so";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("named-nowhere");
    let mut command = clean_command("unshare");
    let forbid = "echo 0 > /proc/sys/user/max_user_namespaces; exec \"$@\"";
    command.args(["--user", "--map-root-user", "sh", "-c", forbid, "sh"]);
    command.arg(stage::wayfarer());
    let script = "mkfifo fifo; echo x > fifo; echo y > file; cat file";
    let program = words(&["/bin/sh", "-c", script]);
    submit.run(
        &mut command,
        &[OsStr::new("--pids"), OsStr::new("host")],
        &program,
    );
    command.current_dir(submit.home());
    let (said, errors, status) = output("a job without a place", command);
    assert_eq!((said.as_str(), status), ("y\n", Some(0)), "{errors}");
    assert!(errors.contains("fifo: Permission denied"), "{errors}");
}
