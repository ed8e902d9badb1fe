//! Programs whose files are on another machine: what they do there is what they would have done here.

#[path = "remote/again.rs"]
mod again;
#[path = "remote/asking.rs"]
mod asking;
#[path = "remote/away.rs"]
mod away;
#[path = "remote/begins.rs"]
mod begins;
#[path = "remote/behind.rs"]
mod behind;
#[path = "remote/clocks.rs"]
mod clocks;
#[path = "remote/coherence.rs"]
mod coherence;
#[path = "remote/compressed.rs"]
mod compressed;
#[path = "remote/confined.rs"]
mod confined;
#[path = "remote/cut.rs"]
mod cut;
#[path = "remote/deaths.rs"]
mod deaths;
#[path = "remote/direct.rs"]
mod direct;
#[path = "remote/dispatched.rs"]
mod dispatched;
#[path = "remote/durable.rs"]
mod durable;
#[path = "remote/events.rs"]
mod events;
#[path = "remote/fenced.rs"]
mod fenced;
#[path = "remote/followed.rs"]
mod followed;
#[path = "remote/full.rs"]
mod full;
#[path = "remote/habits.rs"]
mod habits;
#[path = "remote/home.rs"]
mod home;
#[path = "remote/identity.rs"]
mod identity;
#[path = "remote/images.rs"]
mod images;
#[path = "remote/kept.rs"]
mod kept;
#[path = "remote/lacking.rs"]
mod lacking;
#[path = "remote/limits.rs"]
mod limits;
#[path = "remote/lines.rs"]
mod lines;
#[path = "remote/locks.rs"]
mod locks;
#[path = "remote/mappings.rs"]
mod mappings;
#[path = "remote/methods.rs"]
mod methods;
#[path = "remote/named.rs"]
mod named;
#[path = "remote/own_calls.rs"]
mod own_calls;
#[path = "remote/owners.rs"]
mod owners;
#[path = "remote/reconnecting.rs"]
mod reconnecting;
#[path = "remote/restart.rs"]
mod restart;
#[path = "remote/searches.rs"]
mod searches;
#[path = "remote/stops.rs"]
mod stops;
#[path = "remote/submit.rs"]
mod submit;
mod support;
#[path = "remote/taken.rs"]
mod taken;
#[path = "remote/temporary.rs"]
mod temporary;
#[path = "remote/traced.rs"]
mod traced;
#[path = "remote/undone.rs"]
mod undone;
#[path = "remote/usage.rs"]
mod usage;
#[path = "remote/walks.rs"]
mod walks;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use submit::*;
use support::run::{Run, clean_command};
use support::skip;
use support::stage::{self, Linking, c_guest};
use support::user::User;

/// A guest says the same of files of this machine and of remote ones, and leaves the same.
fn same_here_and_there(what: &str, guest: &str, least_lines: usize) {
    if missing(what) || cannot_hide(what) {
        return;
    }
    same_at(&Submit::new(guest), guest, least_lines);
}

fn same_at(submit: &Submit, guest: &str, least_lines: usize) {
    same_through(submit, guest, least_lines, |all| submit.elsewhere(all));
}

/// The same, however the other machine is reached.
fn same_through(
    submit: &Submit,
    guest: &str,
    least_lines: usize,
    elsewhere: impl FnOnce(&[&OsStr]) -> Command,
) {
    let guest = c_guest(guest, Linking::Dynamic).expect("the guest compiles");
    same_program(submit, &guest, least_lines, elsewhere);
}

/// The same of any program.
fn same_program(
    submit: &Submit,
    guest: &Path,
    least_lines: usize,
    elsewhere: impl FnOnce(&[&OsStr]) -> Command,
) {
    let mut here = clean_command(guest);
    here.current_dir(submit.local());
    let here = output("the calls on files of this machine", here);
    let there = elsewhere(&[guest.as_os_str()]);
    let there = output("the calls on remote files", there);
    assert!(here.0.lines().count() > least_lines, "{here:?}");
    for (ours, theirs) in here.0.lines().zip(there.0.lines()) {
        assert_eq!(theirs, ours, "remote, local");
    }
    assert_eq!(there, here);
    assert_eq!(tree(&submit.home()), tree(&submit.local()));
}

#[test]
fn every_call_does_what_it_does_here() {
    same_here_and_there("every_call_does_what_it_does_here", "remote_calls", 500);
}

#[test]
fn bytes_move_and_descriptors_are_ready_as_here() {
    let what = "bytes_move_and_descriptors_are_ready_as_here";
    same_here_and_there(what, "remote_moves", 70);
}

/// What many programs do with files; the same script here and there.
const SCRIPT: &str = r#"
set -e
export LC_ALL=C TZ=UTC GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b GIT_CONFIG_GLOBAL=/dev/null
export TMPDIR=$PWD
umask 022
for i in $(seq 2000); do echo "$((i * 7919 % 2003)) line $i"; done > in.txt
cat in.txt | wc
sort -n in.txt -o sorted.txt; head -n 3 sorted.txt; tail -n 2 sorted.txt
grep -c 'line 1' in.txt; sed -i 's/line 7/LINE 7/' sorted.txt; grep LINE sorted.txt | cut -c1-20 | tail -1
awk '{ sum += $1 } END { print sum }' in.txt
md5sum in.txt sorted.txt
mkdir -p tree/a/b; cp in.txt tree/a/b/copy; ln -s b/copy tree/a/soft; ln tree/a/b/copy tree/hard; chmod 640 tree/hard
cp -r tree tree2; mv tree2/a tree2/moved; rm tree2/hard; find tree tree2 -type f | sort; find . -size +5 -name 'i*'
tar cf all.tar tree; mkdir out; tar xf all.tar -C out; diff -r tree out/tree && echo the same
rm all.tar; gzip -k in.txt; gunzip -c in.txt.gz | cmp - in.txt && rm in.txt.gz
ls tree/a; test -L tree/a/soft && readlink tree/a/soft; (cd tree/a/b && pwd | sed 's/.*tree/tree/')
echo one > log; echo two >> log; exec 7>>log; echo three >&7; exec 7>&-; cat log
while read -r word; do echo "got $word"; done < log
cat <<EOF > here.txt
a here document
EOF
cat here.txt; : > log; wc -c < log; rm log
perl -e 'open F, ">", "p.txt"; print F "x" x 100000; close F; print -s "p.txt", "\n"; rename "p.txt", "q.txt"; unlink "q.txt"'
cat > prog.py <<'EOF'
import os, json, shutil, mmap
os.makedirs('data/deep')
for n in range(50):
    with open(f'data/deep/{n}.json', 'w') as f:
        json.dump({'n': n, 'text': 'x' * n}, f)
print(sum(json.load(open(f'data/deep/{n}.json'))['n'] for n in range(50)), sorted(os.listdir('data/deep'))[:3])
print(sum(len(files) for _, _, files in os.walk('data')))
with open('data/bin', 'w+b') as f:
    f.write(bytes(range(256)) * 100); f.seek(1000); f.write(b'HERE'); f.seek(998); print(f.read(8))
    print(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)[1000:1004])
os.truncate('data/bin', 2000); print(os.stat('data/bin').st_size)
shutil.copytree('data', 'data2'); shutil.rmtree('data'); print(os.path.exists('data'), len(os.listdir('data2/deep')))
EOF
python3 prog.py
cat > main.c <<'EOF'
#include <stdio.h>
int half(int);
int main(void) { printf("half of 42 is %d\n", half(42)); return 0; }
EOF
echo 'int half(int n) { return n / 2; }' > half.c
gcc -c main.c half.c; gcc -o program main.o half.o; rm main.o half.o; cp program program2; cmp program program2; rm program2
printf '#!/usr/bin/perl\n$0 = "renamed"; print "$0\n";\n' > p.pl; chmod +x p.pl; ./p.pl
printf '#!/bin/sh\r\necho no\n' > crlf; chmod +x crlf; ./crlf 2>/dev/null || echo "crlf $?"
(ulimit -n 512; ls p.pl; cat p.pl | wc -l)
ln -s /proc/self/comm to-comm; cat to-comm; ln -s /dev/null to-null; echo gone > to-null; wc -c < to-null; readlink to-null; [ -c to-null ] && echo device
ln -s /dev/fd to-fd; echo through | cat to-fd/0; ln -s /dev/stdout to-out; (echo said > to-out) | cat; mv p.pl to-null/x 2>/dev/null || echo "mv $?"
ln -s /dev/../etc to-etc; head -c 4 to-etc/passwd; (cd / && echo gone > dev/null && stat -L -c %F dev/zero dev/../etc && cat proc/self/comm)
ln -s /proc/self to-self; (cd to-self && cat comm)
exec 8>numbered; echo by number > /proc/$$/fd/8; exec 8>&-; wc -c < numbered
cat > nest.c <<'EOF'
#include <stdio.h>
static void call(void (*f)(int)) { f(3); }
int main(int c, char **v) { int s = c; (void)v; void add(int x) { s += x; } call(add); return printf("nested %d\n", s) < 0; }
EOF
gcc -o nest nest.c 2>/dev/null; ./nest; rm nest
python3 - <<'EOF'
import os, resource
os.utime('p.pl', (1600000000, 1600000000)); os.close(os.open('p.pl', os.O_RDONLY)); print(os.stat('p.pl').st_atime)
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
if most > 1100: resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4096), most))
pipes = [os.pipe() for _ in range(520)] if most > 1100 else []
print(all(os.write(w, b'x') == 1 and os.read(r, 1) == b'x' for r, w in pipes))
EOF
"#;

/// Programs of many files and processes.
const LARGER: &str = r#"
set -e
export LC_ALL=C TZ=UTC HOME=$PWD TMPDIR=$PWD
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b GIT_CONFIG_NOSYSTEM=1
umask 022
git init -q -b main repo; cd repo
for i in 1 2 3; do echo "line $i" > f$i; git add f$i; git commit -q -m "commit $i"; done
git log --format='%H %s'; git status --short; cd ..
git clone -q repo clone; git -C clone log --oneline | wc -l
rsync -a --exclude .git clone/ copy/; diff -r copy clone | head -3
rm -rf repo/.git clone/.git
mkdir proj; cd proj
for i in $(seq 20); do echo "int f$i(int x) { return x + $i; }" > f$i.c; done
{ for i in $(seq 20); do echo "int f$i(int);"; done; echo '#include <stdio.h>'; echo 'int main(void) { int s = 0;'
  for i in $(seq 20); do echo "s = f$i(s);"; done; echo 'printf("%d\n", s); return 0; }'; } > main.c
printf 'OBJS=$(patsubst %%.c,%%.o,$(wildcard *.c))\nprog: $(OBJS)\n\tgcc -o $@ $(sort $(OBJS))\n' > Makefile
make -s -j2; ./prog; cd ..
cat > d.f90 <<'EOF'
program d
  integer :: i, u
  real(8) :: x
  open(newunit=u, file='out.dat', access='direct', recl=16, form='unformatted', status='replace')
  do i = 1, 100
    write(u, rec=101-i) i, real(i,8)*0.5d0
  end do
  read(u, rec=7) i, x
  print '(i5,f8.2)', i, x
  close(u)
  open(newunit=u, file='out.txt', status='replace')
  write(u,'(3f10.3)') 1.0, 2.0, 3.0
  rewind(u)
  read(u,*) x
  print *, x
  close(u)
end program
EOF
gfortran -o d d.f90; ./d; cat out.txt; rm d
/usr/bin/python3 -c 'import numpy, unittest, asyncio; print(numpy.arange(10).sum()); numpy.save("a.npy", numpy.eye(3))'
/usr/bin/python3 - <<'EOF'
import os, subprocess, sys
print(os.readlink('/proc/self/exe') == os.path.realpath(sys.executable), os.stat('/proc/self/exe').st_size > 1000)
print(subprocess.run([sys.executable, '-c', 'print(6 * 7)'], env={}, capture_output=True).stdout)
print(subprocess.run(['./absent'], executable='/bin/echo', capture_output=True).stdout)
for name in ['./absent', './a.npy', './proj', './notes']:
    if name == './notes':
        with open(name, 'w') as f: f.write('no program\n')
        os.chmod(name, 0o755)
    try: os.execv(name, [name])
    except OSError as error: print(name, error.errno)
with open('script', 'w') as f: f.write('#!/bin/sh -e\necho "$0 $# $1"\n')
with open('script2', 'w') as f: f.write('#!./script with a blank\n')
os.chmod('script', 0o755); os.chmod('script2', 0o755)
for name in ['./script', './script2']: print(subprocess.run([name, 'x y'], capture_output=True))
fd = os.open('/bin/echo', os.O_RDONLY)
print(os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)[1])
sys.stdout.flush()
if os.fork() == 0: os.execve(fd, ['echo', 'by its descriptor'], {})
os.wait()
EOF
cat > H.java <<'EOF'
import java.nio.file.*; import java.util.*;
public class H { public static void main(String[] a) throws Exception {
  Files.write(Path.of("j.txt"), List.of("x", "y")); System.out.println(Files.readAllLines(Path.of("j.txt"))); } }
EOF
java -XX:-UsePerfData H.java
cat > killed.c <<'EOF'
#define _GNU_SOURCE
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
/* Children of vfork that are killed at any moment do their parent no harm. */
int main(void) {
  int group = fork();
  if (!group) { setpgid(0, 0); pause(); }
  setpgid(group, group);
  int killer = fork();
  if (!killer) { unsigned s = 1; for (;;) { kill(-group, 9); usleep(300 + rand_r(&s) % 900); } }
  char *words[] = {"true", 0}, *none[] = {0};
  posix_spawnattr_t how; posix_spawnattr_init(&how);
  posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP); posix_spawnattr_setpgroup(&how, group);
  pid_t child;
  for (int i = 0; i < 100; i++) if (!posix_spawn(&child, "/bin/true", 0, &how, words, none)) waitpid(child, 0, 0);
  kill(killer, 9); waitpid(killer, 0, 0); waitpid(group, 0, 0);
  int status = -1, error = posix_spawn(&child, "/bin/true", 0, 0, words, none);
  waitpid(child, &status, 0);
  return printf("%d %d\n", error, status) < 0;
}
EOF
gcc -o killed killed.c; timeout 60 ./killed; rm killed
"#;

#[test]
fn programs_work_on_files_that_their_machine_does_not_have() {
    let what = "programs_work_on_files_that_their_machine_does_not_have";
    here_and_elsewhere(what, "remote-programs", SCRIPT, |submit, all| {
        submit.elsewhere(all)
    });
}

#[test]
fn larger_programs_start_where_nothing_is_installed() {
    let what = "larger_programs_start_where_nothing_is_installed";
    here_and_elsewhere(what, "remote-larger", LARGER, |submit, all| {
        submit.elsewhere(all)
    });
}

/// A script does the same on files of this machine, and on remote ones where there are no others.
fn here_and_elsewhere(
    what: &str,
    label: &str,
    script: &'static str,
    elsewhere: impl FnOnce(&mut Submit, &[&OsStr]) -> Command,
) {
    if missing(what) || cannot_hide(what) {
        return;
    }
    let mut submit = Submit::new(label);
    let script = ["/bin/bash", "-c", script];
    let mut here = clean_command(script[0]);
    here.args(&script[1..]).current_dir(submit.local());
    let here = output("the programs, here", here);
    assert_eq!(here.2, Some(0), "{here:?}");
    let there = elsewhere(&mut submit, &words(&script));
    let there = output("the programs, elsewhere", there);
    for (ours, theirs) in here.0.lines().zip(there.0.lines()) {
        assert_eq!(theirs, ours, "elsewhere, here: {}", there.1);
    }
    assert_eq!(there, here);
    let (here, there) = (tree(&submit.local()), tree(&submit.home()));
    assert!(here.len() > 60);
    for (name, found) in &there {
        assert!(here.get(name) == Some(found), "{} differs", name.display());
    }
    assert_eq!(there.len(), here.len());
}

#[test]
fn where_the_shadow_allows_only_reading_nothing_is_written() {
    if missing("where_the_shadow_allows_only_reading_nothing_is_written") {
        return;
    }
    let submit = Submit::new("remote-read-only");
    let outside = submit.local().join("file");
    fs::write(&outside, "kept").expect("writes");
    User::Ordinary.own(&outside);
    let script =
        "cat ../local/file; echo x > ../local/new; echo x > ../local/file; rm ../local/file";
    let job = submit.remote(&[OsStr::new("sh"), OsStr::new("-c"), OsStr::new(script)]);
    let (out, error, status) = output("writes where it may not", job);
    assert_eq!(out, "kept");
    assert_eq!(status, Some(1), "{error}");
    assert_eq!(error.matches("Permission denied").count(), 3, "{error}");
    let refused = |log: &str| log.matches("refused: not allowed").count();
    let log = submit.shadow.err.text_once(|log| refused(log) >= 3);
    assert_eq!(refused(&log), 3, "{log}");
    assert_eq!(fs::read(&outside).expect("is there"), b"kept");
    assert_eq!(fs::read_dir(submit.local()).expect("lists").count(), 1);
}

#[test]
fn a_job_without_a_shadow_is_told_so() {
    if missing("a_job_without_a_shadow_is_told_so") {
        return;
    }
    let dir = stage::job_dir("remote-none", User::Ordinary);
    let mut command = clean_command(stage::wayfarer());
    command
        .arg("--dir")
        .arg(dir.join("state"))
        .args(["run", "-q", "--shadow"])
        .arg(address(&dir))
        .args(["--", "true"]);
    let (_, error, status) = output("no shadow", command);
    assert_eq!(status, Some(1));
    assert!(error.contains("wayfarer shadow --listen unix:"), "{error}");
    let _ = fs::remove_dir_all(dir);
}

#[test]
fn a_job_that_may_not_be_where_it_begins_does_not_start() {
    if missing("a_job_that_may_not_be_where_it_begins_does_not_start") {
        return;
    }
    let submit = Submit::allowing("remote-elsewhere", &[]);
    fs::write(submit.local().join("file"), "of this machine").expect("writes");
    let mut job = submit.remote(&words(&["cat", "file"]));
    job.current_dir(submit.local());
    let (out, error, status) = output("outside", job);
    assert_eq!((out.as_str(), status), ("", Some(3)));
    assert!(
        error.contains("the shadow does not let it begin"),
        "{error}"
    );
}

#[test]
fn a_shadow_that_is_ended_leaves_nothing_behind() {
    if missing("a_shadow_that_is_ended_leaves_nothing_behind") {
        return;
    }
    let mut submit = Submit::new("remote-ended");
    let pid = nix::unistd::Pid::from_raw(submit.shadow.pid() as i32);
    assert!(submit.dir.join("door/socket.token").exists());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("is there");
    let status = submit.shadow.wait(SOON).expect("ends");
    assert!(status.success(), "{}", submit.shadow.describe());
    for name in ["socket", "socket.token"] {
        assert!(!submit.dir.join("door").join(name).exists(), "{name}");
    }
}

#[test]
fn what_does_not_leave_the_machine_is_local() {
    if missing("what_does_not_leave_the_machine_is_local") {
        return;
    }
    let submit = Submit::new("remote-local");
    let script = "exec 5<>/dev/null; echo x >&5; read -r name < /proc/self/comm; echo $name; cd /proc/self && pwd \
                  && [ -e status ] && cd - >/dev/null && echo y | cat; : > made; ls";
    let job = submit.remote(&[OsStr::new("sh"), OsStr::new("-c"), OsStr::new(script)]);
    let (out, error, status) = output("local files", job);
    assert_eq!((status, error.as_str()), (Some(0), ""));
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines[0], "sh");
    assert!(lines[1].starts_with("/proc/"), "{out}");
    assert_eq!(lines[2..], ["y", "made"]);
}
