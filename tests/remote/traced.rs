//! strace(1) of a job: the kernel of the machine where it runs is asked about no name of the submit side.

use super::*;

/// What the job's processes have asked the kernel of names, in order, but for what may be asked.
struct Trace {
    /// Calls with names, of any kind.
    calls: usize,
    escaped: Vec<String>,
}

/// Quoted words of a line of strace's.
fn quoted(line: &str) -> Vec<&str> {
    let mut words = vec![];
    let mut rest = line;
    while let Some(begin) = rest.find('"') {
        let word = &rest[begin + 1..];
        let mut escapes = false;
        let end = word.bytes().position(|byte| {
            let ends = byte == b'"' && !escapes;
            escapes = byte == b'\\' && !escapes;
            ends
        });
        let Some(end) = end else { break };
        words.push(&word[..end]);
        rest = &word[end + 1..];
    }
    words
}

/// A name of this machine's, or none.
fn may_be_asked(name: &str) -> bool {
    let local = ["/proc", "/dev", "/sys"].iter().any(|folder| {
        let rest = name.strip_prefix(folder);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    name.is_empty() || local && !name.contains("..")
}

impl Trace {
    /// The job begins where its first process executes the shim; who was there before is wayfarer.
    fn read(text: &str) -> Self {
        const SHIM: [&str; 2] = ["execve(\"/proc/self/fd/1003\"", "execveat(1003"];
        let mut others = vec![];
        let mut trace = Trace {
            calls: 0,
            escaped: vec![],
        };
        let mut begun = false;
        for line in text.lines() {
            let Some((pid, call)) = line.split_once(' ') else {
                continue;
            };
            let call = call.trim_start();
            if !begun {
                begun = SHIM.iter().any(|begin| call.starts_with(begin));
                if begun {
                    others.retain(|other| *other != pid);
                } else {
                    others.push(pid);
                }
            }
            if !begun || others.contains(&pid) {
                continue;
            }
            let Some((name, arguments)) = call.split_once('(') else {
                continue;
            };
            if !name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            {
                continue;
            }
            trace.calls += 1;
            let mut words = quoted(arguments);
            match name {
                // The kernel's answer, and arguments of programs, are no names that it is asked about.
                "getcwd" => words.clear(),
                "readlink" | "readlinkat" | "execve" | "execveat" => words.truncate(1),
                _ => {}
            }
            // Guests call so what is not open: nothing is looked up there.
            let is_nowhere = arguments.starts_with("99, ");
            if !is_nowhere && !words.iter().all(|word| may_be_asked(word)) {
                trace.escaped.push(call.to_owned());
            }
        }
        trace
    }

    /// The names that escaped, the first of each call.
    fn names(&self) -> Vec<&str> {
        let words = self.escaped.iter().map(|call| quoted(call));
        words.filter_map(|words| words.first().copied()).collect()
    }
}

/// What a program says, and what the kernel was asked meanwhile.
fn traced(submit: &Submit, words: &[&OsStr]) -> (String, Trace) {
    let log = submit.dir.join("state/trace");
    let mut command = clean_command("strace");
    command.args(["-f", "-s", "4096", "-e", "trace=%file", "-o"]);
    command.arg(&log).arg(stage::wayfarer());
    submit
        .run(&mut command, &[], words)
        .current_dir(submit.home());
    let (out, error, status) = output("a job under strace", command);
    assert_eq!(status, Some(0), "{error}");
    let trace = fs::read(&log).expect("strace has written");
    (out, Trace::read(&String::from_utf8_lossy(&trace)))
}

fn cannot_trace(what: &str) -> bool {
    let there = clean_command("strace").arg("-V").output().is_ok();
    if !there {
        skip::note(what, "there is no strace");
    }
    missing(what) || !there
}

/// Programs of all kinds.
const SCRIPT: &str = r#"
set -e
export LC_ALL=C TMPDIR=$PWD
for i in $(seq 100); do echo "$((i * 79 % 203)) line $i"; done > in.txt
sort -n in.txt -o sorted.txt; sed -i 's/line 7/LINE 7/' sorted.txt; grep -c LINE sorted.txt
mkdir -p tree/a/b; cp in.txt tree/a/b/copy; ln -s b/copy tree/a/soft; ln in.txt tree/hard; cp -r tree tree2; mv tree2/a tree2/moved
find tree tree2 -type f | sort; tar cf all.tar tree; mkdir out; tar xf all.tar -C out; gzip -c in.txt > in.gz; stat -c %s all.tar; df . >/dev/null
ls -l tree/a >/dev/null; realpath tree/a/soft | sed 's/.*tree/tree/'; touch -d @5 in.txt; chmod 600 in.txt; truncate -s 10 in.txt; rm -r tree2 out
tail -n 1 sorted.txt; dd if=sorted.txt of=dd.txt bs=100 status=none; sync dd.txt; cmp sorted.txt dd.txt; install -m 755 dd.txt installed; mktemp -d d.XXXX >/dev/null
python3 - <<'PY'
import os, shutil, tempfile, glob, pathlib, json, sqlite3, subprocess
os.makedirs('py/deep'); pathlib.Path('py/deep/x').write_text('x'); print(glob.glob('py/**/*', recursive=True))
with tempfile.TemporaryFile() as f: f.write(b'nameless'); f.seek(0); print(f.read())
with tempfile.NamedTemporaryFile(dir='.') as f: f.write(b'named')
shutil.copytree('py', 'py2'); shutil.rmtree('py'); print(shutil.disk_usage('.').total > 0, os.statvfs('.').f_namemax)
db = sqlite3.connect('data.db'); db.execute('create table t(a)'); db.execute('insert into t values (5)'); db.commit(); print(list(db.execute('select * from t')))
os.setxattr('data.db', 'user.a', b'b'); print(os.listxattr('data.db')); os.chown('data.db', -1, -1); os.utime('data.db', (1, 2)); os.mkfifo('fifo')
fd = os.open('.', os.O_RDONLY); os.mkdir('made', dir_fd=fd); os.rename('made', 'renamed', src_dir_fd=fd, dst_dir_fd=fd); os.rmdir('renamed', dir_fd=fd)
print(subprocess.run(['cat', 'py2/deep/x'], capture_output=True).stdout, os.path.exists('none'), os.access('data.db', os.W_OK))
os.chdir('py2'); print(os.path.basename(os.getcwd()), os.listdir('.'))
PY
"#;

#[test]
fn the_kernel_is_asked_about_no_name_of_the_submit_side() {
    let what = "the_kernel_is_asked_about_no_name_of_the_submit_side";
    if cannot_trace(what) {
        return;
    }
    let submit = Submit::new("remote-traced-script");
    let (out, trace) = traced(&submit, &words(&["bash", "-c", SCRIPT]));
    assert!(out.contains("['deep']"), "{out}");
    assert!(trace.calls > 500, "{}", trace.calls);
    assert_eq!(trace.escaped, [""; 0]);
    for (guest, linking) in [
        ("remote_calls", Linking::Dynamic),
        ("remote_calls", Linking::Musl),
        ("remote_moves", Linking::Dynamic),
        ("remote_moves", Linking::Musl),
    ] {
        let submit = Submit::new("remote-traced");
        let program = c_guest(guest, linking).expect("the guest compiles");
        let (out, trace) = traced(&submit, &[program.as_os_str()]);
        assert!(out.lines().count() > 70, "{guest} {linking:?}: {out}");
        assert!(trace.calls > 5, "{guest} {linking:?}: {}", trace.calls);
        // In /proc/self, where the transcript goes for a moment.
        let local: &[&str] = match guest {
            "remote_calls" => &["status", "status", "inside"],
            _ => &[],
        };
        assert_eq!(
            trace.names(),
            local,
            "{guest} {linking:?}: {:?}",
            trace.escaped
        );
    }
}

/// What this would say of a call that nobody catches: one by instructions that the program has made itself.
#[test]
fn a_call_that_escapes_is_seen() {
    const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
int main(void) {
    /* mov $2, %eax; syscall; ret */
    static const unsigned char open_file[] = {0xb8, 2, 0, 0, 0, 0x0f, 5, 0xc3};
    void *code = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, open_file, sizeof open_file);
    if (mprotect(code, 4096, PROT_READ | PROT_EXEC)) return 1;
    if (open("served", O_RDONLY) >= 0) return 2;
    return ((int (*)(const char *, int))code)("escaped", O_RDONLY) >= 0;
}
"#;
    let what = "a_call_that_escapes_is_seen";
    if cannot_trace(what) {
        return;
    }
    let submit = Submit::new("remote-traced-escape");
    fs::write(submit.home().join("escape.c"), SOURCE).expect("writes");
    let mut compile = Command::new("gcc");
    compile
        .args(["escape.c", "-o", "escape"])
        .current_dir(submit.home());
    assert!(compile.status().expect("compiles").success());
    let (_, trace) = traced(&submit, &words(&["./escape"]));
    assert_eq!(trace.names(), ["escaped"], "{:?}", trace.escaped);
}
