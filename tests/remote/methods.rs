//! Names that lead elsewhere: remaps, files of the execute machine, files that are appended to or fetched (docs/CALLS.md, "Where a
//! file is").

use super::lines::{stand_in, submitted};
use super::{DEADLINE, Submit, cannot_hide, missing, output, tree, words};
use crate::support::run::{Run, clean_command};
use crate::support::stage;
use crate::support::user::User;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Remapped files and folders, by whatever program and call; what it prints is what it finds.
const REMAPS: &str = r#"
cat dataset.1 sub/dataset.1 ./dataset.1
cat data/x "$PWD/data/x"; (cd data && cat x && /bin/pwd); ls data
stat -c %s dataset.1; test -e data/none || echo none
echo kept > log; echo more > log; echo last >> sub/log
echo 1 > sub/a.out; echo 2 > ./sub/a.out; cat sub/a.out; rm sub/a.out
echo gone > null; test -e null && echo there
data/run && dataset.1 2>/dev/null || echo no
/usr/bin/python3 -c '
import os, shutil
print(open("data/x").read().strip(), sorted(os.listdir("data")), os.path.getsize("dataset.1"))
os.mkdir("data/made"); os.rename("data/made", "data/moved"); os.symlink("x", "data/link"); print(os.readlink("data/link"))
os.chdir("data"); print(open("x").read().strip(), open("../dataset.1").read().strip())
fd = os.open(".", os.O_RDONLY); print(os.stat("moved", dir_fd=fd).st_nlink > 0)
open("../log", "w").write("python\n")
f = os.open("../log", os.O_RDWR | os.O_TRUNC); print(os.read(f, 5)); os.close(f)
'
"#;

/// Files of the machine where the job runs.
const LOCAL: &str = r#"
set -e
echo big > very.big; cat very.big
echo t > tmp.dat; cat tmp.dat ./tmp.dat
cp file "$SCRATCH/copy"; cat "$SCRATCH/copy"
mv file2 "$SCRATCH/"; mv "$SCRATCH/copy" back; ls "$SCRATCH"
cd "$SCRATCH"; echo here > here; cat here; pwd; ls; mkdir dir; cd dir; echo deep > deep; cat ../dir/deep; cd ..
sort here tmp "$START/file"
cd "$START/../home"; pwd; test -e here || echo home
/usr/bin/python3 -c '
import errno, os, sqlite3
scratch = os.environ["SCRATCH"]
for call in os.rename, os.link:
    for pair in ("file", scratch + "/x"), (scratch + "/here", "x"):
        try: call(*pair); print("moved")
        except OSError as error: print(errno.errorcode[error.errno])
base = sqlite3.connect(scratch + "/base"); base.execute("create table t(a)"); base.execute("insert into t values(7)"); base.commit()
print(base.execute("select a from t").fetchall(), os.path.exists(scratch + "/base"))
print(sorted(os.listdir(scratch)))
f = os.open(scratch + "/dir/deep", os.O_RDONLY); d = os.open(scratch + "/dir", os.O_RDONLY)
print(os.read(f, 9), os.read(os.open("deep", os.O_RDONLY, dir_fd=d), 9), os.path.realpath(scratch) == scratch)
'
"#;

/// Files that are to be had here, at the shadow, or nowhere.
const NOT_HERE: &str = r#"
import errno, os
def told(call, *arguments):
    try: return call(*arguments)
    except OSError as error: return errno.errorcode[error.errno]
def read(name): return open(name).read().strip()
def made(name, flags): return os.close(os.open(name, os.O_CREAT | os.O_WRONLY | flags))
print(*[told(read, name) for name in ("both", "gone", "secret", "none", "data/x", "folder")])
print(*[told(os.path.getsize, name) for name in ("both", "gone", "none", "folder")])
print(*[os.access(name, os.R_OK) for name in ("both", "gone", "secret", "none", "folder")])
print(*[told(made, *call) for call in (("new", 0), ("sub/made", 0), ("sub/lock", os.O_EXCL), ("sub/lock", os.O_EXCL), ("both", os.O_EXCL), ("nowhere/made", 0))])
print(*[told(*call) for call in ((os.remove, "gone"), (os.mkdir, "nowhere/dir"), (os.listdir, "folder"), (os.rename, "gone", "both"))])
open("secret", "a").write("more")
"#;

/// A large file is opened; when its contents have changed at home, those it had are read.
const FETCHED: &str = r#"
import os, sys
fetched, other = os.open('fetched', os.O_RDONLY), os.open('other', os.O_RDONLY)
print(os.read(fetched, 2), os.read(other, 2), flush=True)
sys.stdin.readline()
for f in fetched, other: print(os.pread(f, 2, 5 << 20), os.fstat(f).st_size >> 20, end=' ')
fd = os.open('fetched', os.O_RDWR); os.pwrite(fd, b'own', 5 << 20)
print(os.pread(fetched, 3, 5 << 20), os.pread(os.open('fetched', os.O_RDONLY), 3, 5 << 20))
os.lseek(fetched, -2, os.SEEK_END); print(os.read(fetched, 9), os.read(fetched, 9))
"#;

impl Submit {
    /// A command in an empty machine, begun at home, with names that lead elsewhere.
    fn with_methods(&self, methods: &[OsString], words: &[&OsStr]) -> Command {
        let home = self.home();
        let mut options = vec![OsStr::new("--chdir"), home.as_os_str()];
        options.extend(methods.iter().map(OsString::as_os_str));
        let mut command = self.bare_machine();
        self.run(&mut command, &options, words);
        command
    }

    fn put(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.home().join(name);
        let folder = path.parent().expect("below home");
        fs::create_dir_all(folder).expect("makes it");
        fs::write(&path, contents).expect("writes");
        let home = self.home();
        let made = path.ancestors().take_while(|made| *made != home);
        made.for_each(|made| User::Ordinary.own(made));
        path
    }
}

fn option(name: &str, value: impl AsRef<OsStr>) -> OsString {
    let mut option = OsString::from(format!("--{name}="));
    option.push(value);
    option
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| format!("{}: {error}", path.display()))
}

#[test]
fn remapped_names_lead_to_other_files() {
    let what = "remapped_names_lead_to_other_files";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("rm-remap");
    submit.put("other.dataset", "other\n");
    submit.put("sub/y", "");
    submit.put("big/data/x", "x of data\n");
    let run = submit.put("big/data/run", "#!/bin/sh\necho ran $0\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(run, mode).expect("may run");
    let methods = [
        option(
            "remap",
            "dataset.1=other.dataset; data = remote:big/data;null=/dev/null",
        ),
        option("append-files", "log,*.out"),
    ];
    let job = submit.with_methods(&methods, &words(&["/bin/sh", "-c", REMAPS]));
    let (found, errors, status) = output("remaps", job);
    let home = submit.home();
    let home = home.display();
    let expected = format!(
        "other\nother\nother\nx of data\nx of data\nx of data\n{home}/big/data\nrun\nx\n6\nnone\n1\n2\nthere\nran {home}/big/data/run\nno\n\
         x of data ['run', 'x'] 6\nx\nx of data other\nTrue\nb'pytho'\n"
    );
    assert_eq!(
        (found.as_str(), errors.as_str(), status),
        (expected.as_str(), "", Some(0))
    );
    assert_eq!(text(&submit.home().join("log")), "kept\nmore\n");
    let left: Vec<_> = tree(&submit.home()).into_keys().collect();
    let names = [
        "big",
        "big/data",
        "big/data/link",
        "big/data/moved",
        "big/data/run",
        "big/data/x",
        "big/log",
        "log",
        "other.dataset",
        "sub",
        "sub/log",
        "sub/y",
    ];
    assert_eq!(left, names.map(PathBuf::from));
}

#[test]
fn local_files_are_those_of_the_execute_machine() {
    let what = "local_files_are_those_of_the_execute_machine";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("rm-local");
    submit.put("file", "file\n");
    submit.put("file2", "file2\n");
    let scratch = submit.dir.join("state/scratch");
    fs::create_dir(&scratch).expect("makes it");
    User::Ordinary.own(&scratch);
    let mut remap = OsString::from("very.big=local:");
    remap.push(scratch.join("vb"));
    let methods = [
        option("remap", remap),
        option("local-files", scratch.as_os_str()),
        option("remap", {
            let mut remap = OsString::from("tmp.dat=local:");
            remap.push(scratch.join("tmp"));
            remap
        }),
    ];
    let mut job = submit.with_methods(&methods, &words(&["/bin/sh", "-c", LOCAL]));
    job.env("SCRATCH", &scratch).env("START", submit.home());
    let (found, errors, status) = output("local files", job);
    let shown = scratch.display();
    let home = submit.home();
    let home = home.display();
    let expected = format!(
        "big\nt\nt\nfile\nfile2\ntmp\nvb\nhere\n{shown}\nfile2\nhere\ntmp\nvb\ndeep\nfile\nhere\nt\n{home}\nhome\n\
         EXDEV\nEXDEV\nEXDEV\nEXDEV\n[(7,)] True\n['base', 'dir', 'file2', 'here', 'tmp', 'vb']\nb'deep\\n' b'deep\\n' True\n"
    );
    assert_eq!(
        (found.as_str(), errors.as_str(), status),
        (expected.as_str(), "", Some(0))
    );
    let left: Vec<_> = tree(&submit.home()).into_keys().collect();
    assert_eq!(left, ["back", "file"].map(PathBuf::from));
    let here = ["base", "dir", "dir/deep", "file2", "here", "tmp", "vb"];
    let found: Vec<_> = tree(&scratch).into_keys().collect();
    assert_eq!(found, here.map(PathBuf::from));
}

#[test]
fn local_files_that_are_not_to_be_had_are_the_shadows() {
    let what = "local_files_that_are_not_to_be_had_are_the_shadows";
    if missing(what) {
        return;
    }
    let submit = Submit::new("rm-fall-back");
    for name in ["both", "gone", "secret", "data/x", "folder/x", "sub/x"] {
        submit.put(name, format!("{name} at home\n"));
    }
    let here = submit.local();
    for name in ["both", "secret"] {
        fs::write(here.join(name), "here\n").expect("writes");
        User::Ordinary.own(&here.join(name));
    }
    let nobody = std::os::unix::fs::PermissionsExt::from_mode(0o000);
    fs::set_permissions(here.join("secret"), nobody).expect("its owner may");
    let files = "both;gone;secret;none;data;folder;new;./sub/made;./sub/lock;./nowhere";
    let local = option("local-files", files);
    let home = submit.home();
    let options = [OsStr::new("--chdir"), home.as_os_str(), &local];
    let mut job = clean_command(stage::wayfarer());
    submit.run(
        &mut job,
        &options,
        &words(&["/usr/bin/python3", "-c", NOT_HERE]),
    );
    job.current_dir(&here);
    let (found, errors, status) = output("not here", job);
    let expected = "here gone at home secret at home ENOENT data/x at home ENOENT\n\
        5 13 ENOENT ENOENT\n\
        True True True False False\n\
        None None None EEXIST EEXIST ENOENT\n\
        ENOENT ENOENT ENOENT ENOENT\n";
    assert_eq!(
        (found.as_str(), errors.as_str(), status),
        (expected, "", Some(0))
    );
    assert_eq!(text(&home.join("secret")), "secret at home\nmore");
    assert_eq!(text(&home.join("gone")), "gone at home\n");
    let left: Vec<_> = tree(&home.join("sub")).into_keys().collect();
    assert_eq!(left, ["lock", "made", "x"].map(PathBuf::from));
    let left: Vec<_> = tree(&here).into_keys().collect();
    assert_eq!(left, ["both", "new", "secret"].map(PathBuf::from));
}

#[test]
fn a_machine_that_has_no_local_files_has_the_shadows() {
    let what = "a_machine_that_has_no_local_files_has_the_shadows";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("rm-none-here");
    submit.put("in", "b\na\n");
    // That folder is not there.
    let methods = [option("local-files", submit.home())];
    let script = "cat in && sort in > out && dd if=in of=copy bs=1 skip=2 2>/dev/null";
    let job = submit.with_methods(&methods, &words(&["/bin/sh", "-c", script]));
    let found = output("none here", job);
    assert_eq!(found, ("b\na\n".into(), String::new(), Some(0)));
    assert_eq!(text(&submit.home().join("out")), "a\nb\n");
    assert_eq!(text(&submit.home().join("copy")), "a\n");
}

#[test]
fn a_submitted_job_has_its_names_too() {
    let what = "a_submitted_job_has_its_names_too";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("rm-submit");
    submit.put("it's other", "other\n");
    let more = [
        OsString::from("--wayfarer"),
        stage::wayfarer().into(),
        option("remap", "in=it's other;out=b c"),
    ];
    let script = words(&["sh", "-c", "cat in > out"]);
    let ssh = stand_in(&submit);
    let job = submitted(&submit, ssh.as_os_str(), &more, &script);
    let found = output("a submitted job", job);
    assert_eq!(found, (String::new(), String::new(), Some(0)));
    assert_eq!(text(&submit.home().join("b c")), "other\n");
}

#[test]
fn fetched_files_are_what_they_were_when_they_were_opened() {
    let what = "fetched_files_are_what_they_were_when_they_were_opened";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("rm-fetch");
    let contents = vec![b'a'; 8 << 20];
    let files = ["fetched", "other"].map(|name| submit.put(name, &contents));
    let methods = [option("fetch-files", "fetched,nothing")];
    let words = words(&["/usr/bin/python3", "-c", FETCHED]);
    let mut job = submit.with_methods(&methods, &words);
    job.stdin(Stdio::piped());
    let mut run = Run::start_with_stdin("fetched", job, User::Ordinary).expect("starts");
    run.wait_line("b'aa' b'aa'", DEADLINE).expect("opens");
    for file in files {
        fs::write(file, vec![b'b'; 8 << 20]).expect("writes");
    }
    let mut input = run.stdin().expect("an input");
    input.write_all(b"go\n").expect("goes on");
    let status = run.wait(DEADLINE).expect("ends");
    let found = (run.out.text(), run.err.text(), status.code());
    let expected = "b'aa' b'aa'\nb'aa' 8 b'bb' 8 b'own' b'own'\nb'bb' b''\n";
    assert_eq!(found, (expected.into(), String::new(), Some(0)));
}

#[test]
fn a_job_that_wants_no_remote_io_has_none() {
    let what = "a_job_that_wants_no_remote_io_has_none";
    if missing(what) {
        return;
    }
    let submit = Submit::new("rm-none");
    let here = submit.local();
    fs::write(here.join("file"), "here\n").expect("writes");
    let mut command = clean_command(stage::wayfarer());
    // Nobody is there to be asked.
    command
        .arg("--dir")
        .arg(submit.dir.join("state"))
        .args([
            "run",
            "-q",
            "--shadow=unix:/none/socket",
            "--want-remote-io=no",
        ])
        .arg("--chdir")
        .arg(&here)
        .args(["--", "cat", "file"]);
    let found = output("no remote calls", command);
    assert_eq!(found, ("here\n".into(), String::new(), Some(0)));
}

#[test]
fn wrong_lists_are_named() {
    let what = "wrong_lists_are_named";
    if missing(what) {
        return;
    }
    let submit = Submit::new("rm-wrong");
    for (options, expected) in [
        (
            &["--remap", "a"][..],
            "--remap: found `a`, expected NAME=NEW",
        ),
        (&["--remap=a=local:"], "expected a name behind ="),
    ] {
        let mut command = clean_command(stage::wayfarer());
        let options: Vec<_> = options.iter().map(OsStr::new).collect();
        submit.run(&mut command, &options, &words(&["true"]));
        let (_, errors, status) = output("wrong", command);
        assert!(errors.contains(expected) && status == Some(2), "{errors}");
    }
    let mut command = clean_command(stage::wayfarer());
    command.arg("--dir").arg(submit.dir.join("state"));
    command.args(["run", "--local-files=x", "--", "true"]);
    let (_, errors, status) = output("without a shadow", command);
    let said = "--local-files is for jobs with --shadow";
    assert!(errors.contains(said) && status == Some(2), "{errors}");
}
