//! Promises about files: nothing that a job has written is lost in silence, nothing that changed
//! behind its back goes unnoticed, and no other file is touched.

#[path = "files/holes.rs"]
mod holes;
#[path = "files/only_read.rs"]
mod only_read;
mod support;

use ckpt_lib::image::Image;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::promise::{passed, with_job};
use support::python::python;
use support::run;
use support::scenario::{Guest, Job, Restart, check};
use support::stage::{Linking, c_guest};
use support::user::User;

fn text<T>(result: std::io::Result<T>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

/// A checkpoint that must be refused in these words, with nothing left of it.
fn refused(job: &mut Job, words: &[&str]) -> Result<(), String> {
    let image = job.dir.join("refused.img");
    let path = image.to_string_lossy().into_owned();
    let (code, said) = job.tell(&["checkpoint", "job", "-o", &path, "--then", "kill"])?;
    if code == Some(0) || image.exists() {
        return Err(format!("found a checkpoint, expected a refusal: {said}"));
    }
    match words.iter().find(|word| !said.contains(**word)) {
        Some(word) => Err(format!("found {said:?}, expected {word:?} in it")),
        None => Ok(()),
    }
}

/// Runs the image to its end (the job has been let go); exit code, and what it said on stderr.
fn run_image(
    job: &mut Job,
    image: &Path,
    how: Restart,
    options: &[&str],
) -> Result<(Option<i32>, String), String> {
    let mut command = match how {
        Restart::Command => {
            let mut command = job.wayfarer(&["restart"]);
            command.args(options).arg(image);
            command
        }
        _ => {
            let mut command = job.in_data(run::clean_command(image));
            command.args(options);
            command
        }
    };
    command.env("LANG", "C.UTF-8");
    let label = format!("{how:?} {options:?}");
    let (status, run) = run::finish(&label, command, User::Ordinary, Duration::from_secs(30))?;
    let said = run.err.text();
    job.runs.push(run);
    Ok((status.code(), said))
}

#[test]
fn output_is_not_lost_when_the_path_to_it_is_closed() {
    let guest = python(
        "unreachable",
        "os.mkdir('closed')\n\
         f = open('closed/out', 'w')\n\
         f.write('before '); f.flush()\n\
         os.dup2(f.fileno(), 2); os.chmod('closed', 0)\n\
         ready()\n\
         os.write(2, b'after'); os.chmod('closed', 0o700)\n\
         print('PASS' if open('closed/out').read() == 'before after' else 'lost')\n",
    );
    with_job(&guest, |job| {
        passed(job.start()?)?;
        refused(job, &["descriptor 2", "closed/out", "cannot be reached"])?;
        let closed = job.dir.join("data/closed");
        text(fs::set_permissions(
            &closed,
            fs::Permissions::from_mode(0o700),
        ))?;
        let out = closed.join("out");
        text(fs::set_permissions(&out, fs::Permissions::from_mode(0o400)))?;
        refused(job, &["closed/out", "may not be opened for writing"])?;
        text(fs::set_permissions(&out, fs::Permissions::from_mode(0o600)))?;
        let image = job.checkpoint("kill")?;
        job.wait_killed()?;
        job.restart(&image, Restart::Command)?;
        job.let_go();
        passed(job.wait_pass()?)
    });
}

/// What has become of a file, and what a restart does about it.
struct Change {
    name: &'static str,
    make: fn(&Path),
    /// With `--files fail`, `keep`, `roll-back`: none if the job goes on, else words of the error.
    expected: [Option<&'static str>; 3],
}

const WAS: &[u8] = &[b'x'; 300_000];
const WITHIN: Option<&str> = Some("has changed within the 300000 bytes it had");

fn append(path: &Path, bytes: &[u8]) {
    use std::io::Write;
    let file = fs::OpenOptions::new().append(true).open(path);
    file.and_then(|mut file| file.write_all(bytes))
        .expect("append");
}

fn overwrite(path: &Path, at: u64) {
    let file = fs::OpenOptions::new().write(true).open(path);
    file.and_then(|file| file.write_all_at(b"y", at))
        .expect("overwrite");
}

fn link_to_other(path: &Path) {
    fs::remove_file(path).expect("remove");
    std::os::unix::fs::symlink("other", path).expect("link");
}

const CHANGES: [Change; 10] = [
    Change {
        name: "unchanged",
        make: |_| {},
        expected: [None, None, None],
    },
    Change {
        name: "grown",
        make: |path| append(path, b"grown"),
        expected: [Some("has grown: found 300005 bytes"), None, None],
    },
    Change {
        name: "shrunk",
        make: |path| fs::write(path, &WAS[..5000]).expect("write"),
        expected: [
            Some("found 5000 bytes, expected 300000"),
            None,
            Some("found 5000 bytes, expected 300000"),
        ],
    },
    Change {
        // No sample lies there.
        name: "changed in the middle",
        make: |path| overwrite(path, 150_000),
        expected: [WITHIN, None, WITHIN],
    },
    Change {
        name: "changed and grown",
        make: |path| {
            overwrite(path, 0);
            append(path, b"grown");
        },
        expected: [WITHIN, None, WITHIN],
    },
    Change {
        name: "a link to another file",
        make: link_to_other,
        expected: [WITHIN, None, WITHIN],
    },
    Change {
        name: "a link to a file that begins like it",
        make: |path| {
            link_to_other(path);
            fs::write(path, WAS).expect("write");
            append(path, b"grown");
        },
        expected: [Some("has grown"), None, Some("a symbolic link has taken")],
    },
    Change {
        name: "missing",
        make: |path| fs::remove_file(path).expect("remove"),
        expected: [Some("is missing"), Some("is missing"), Some("is missing")],
    },
    Change {
        name: "replaced by a copy",
        make: |path| {
            fs::remove_file(path).expect("remove");
            fs::write(path, WAS).expect("write");
        },
        expected: [None, None, None],
    },
    Change {
        name: "replaced by a folder",
        make: |path| {
            fs::remove_file(path).expect("remove");
            fs::create_dir(path).expect("make");
        },
        expected: [
            Some("found a directory, expected a regular file"),
            Some("found a directory, expected a regular file"),
            Some("found a directory, expected a regular file"),
        ],
    },
];

/// Everything in the folder: names, and contents of files.
fn everything(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<_> = entries
        .map(|entry| (entry.path(), fs::read(entry.path()).unwrap_or_default()))
        .collect();
    all.sort();
    all
}

fn one_change(
    job: &mut Job,
    image: &Path,
    change: &Change,
    option: usize,
    how: Restart,
) -> Result<(), String> {
    let files = ["fail", "keep", "roll-back"][option];
    let folder = job.dir.join("data/files");
    let path = folder.join("out");
    let _ = fs::remove_dir_all(&folder);
    text(fs::create_dir(&folder))?;
    text(fs::write(&path, WAS))?;
    text(fs::write(folder.join("other"), [b'z'; 400_000]))?;
    // An older tail is nobody's to overwrite.
    text(fs::write(folder.join("out.wayfarer-tail"), b"older"))?;
    (change.make)(&path);
    User::Ordinary.own(&folder);
    for (path, _) in everything(&folder) {
        if path.exists() {
            User::Ordinary.own(&path);
        }
    }
    let before = everything(&folder);
    let (code, said) = run_image(job, image, how, &["--files", files])?;
    let wrong = |what: String| Err(format!("{}, {files}, {how:?}: {what}", change.name));
    if said.contains("panicked") {
        return wrong(said);
    }
    match change.expected[option] {
        Some(words) => {
            if code == Some(0) || !said.contains(words) || !said.contains("files/out") {
                return wrong(format!("found {code:?} and {said:?}, expected {words:?}"));
            }
            if everything(&folder) != before {
                return wrong("files are not as they were before a restart that failed".into());
            }
        }
        None => {
            let out = job.runs.last().map(|run| run.out.text());
            if code != Some(0) || out.as_deref() != Some("PASS\n") {
                return wrong(format!(
                    "found {code:?}, {out:?} and {said:?}, expected PASS"
                ));
            }
            if text(fs::read(folder.join("out.wayfarer-tail")))? != b"older" {
                return wrong("an older tail was overwritten".into());
            }
            if change.name == "grown" && files == "roll-back" {
                let tail = text(fs::read(folder.join("out.wayfarer-tail.001")))?;
                let named = said.contains("out.wayfarer-tail.001");
                if tail != b"grown" || !named {
                    return wrong(format!("tail {tail:?}, named: {named}: {said:?}"));
                }
            }
            if files == "roll-back" {
                let expected = [WAS, b"more".as_slice()].concat();
                if text(fs::read(&path))? != expected {
                    return wrong("the file is not what it would be undisturbed".into());
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_written_file_that_is_not_as_it_was_is_noticed() {
    let guest = python(
        "files_matrix",
        "os.mkdir('files')\n\
         f = open('files/out', 'w+b', buffering=0); f.write(b'x' * 300000)\n\
         ready()\n\
         f.write(b'more')\n\
         print('PASS')\n",
    );
    with_job(&guest, |job| {
        passed(job.start()?)?;
        let image = job.checkpoint("kill")?;
        job.wait_killed()?;
        job.let_go();
        let mut wrong = vec![];
        for change in &CHANGES {
            for option in 0..3 {
                for how in [Restart::Command, Restart::Image] {
                    wrong.extend(one_change(job, &image, change, option, how).err());
                }
            }
        }
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(wrong.join("\n")),
        }
    });
}

/// Names of files are written by whoever may make files, and must not write to the terminal of whoever restarts.
#[test]
fn names_in_an_image_do_not_reach_the_terminal_raw() {
    const NAME: &[u8] = b"a\x1b]0;t\x07\n\xe2\x80\xae\xff";
    const SHOWN: &str = "files/a\\x1b]0;t\\x07\\x0a\\u{202e}\\xff";
    let guest = python(
        "files_named",
        "os.mkdir('files')\n\
         f = open(b'files/a\\x1b]0;t\\x07\\n\\xe2\\x80\\xae\\xff', 'wb', 0); f.write(b'12345')\n\
         ready()\n\
         print('PASS')\n",
    );
    with_job(&guest, |job| {
        passed(job.start()?)?;
        let image = job.checkpoint("kill")?;
        job.wait_killed()?;
        job.let_go();
        let name = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(NAME);
        let path = job.dir.join("data/files").join(name);
        for how in [Restart::Command, Restart::Image] {
            for (files, words) in [
                ("fail", "has grown"),
                ("roll-back", "are saved in"),
                ("fail", "is missing"),
            ] {
                match words {
                    "is missing" => text(fs::remove_file(&path))?,
                    _ => text(fs::write(&path, b"1234567"))?,
                }
                if path.exists() {
                    User::Ordinary.own(&path);
                }
                let (_, said) = run_image(job, &image, how, &["--files", files])?;
                let raw = |c: char| c.is_control() && c != '\n' || "\u{202e}\u{fffd}".contains(c);
                if said.contains(raw) || !said.contains(SHOWN) || !said.contains(words) {
                    return Err(format!(
                        "{files}, {how:?}: found {said:?}, expected {words:?} of {SHOWN:?}"
                    ));
                }
            }
        }
        Ok(())
    });
}

/// The job goes on after the checkpoint and changes what it has written: its old image must not go on
/// with the new contents.
#[test]
fn what_a_job_changes_in_place_after_a_checkpoint_is_noticed() {
    let scripts = [
        (
            "text",
            "f = open('out', 'w+'); f.write('same length 1'); f.flush()\n\
             ready()\n\
             f.seek(0); f.write('same length 2'); f.flush()\n",
        ),
        (
            "large",
            "f = open('out', 'w+b', buffering=0); f.write(bytes(1 << 20))\n\
             ready()\n\
             f.seek(100); f.write(b'2')\n",
        ),
        (
            "mapped",
            "f = open('out', 'w+b'); f.write(bytes(1 << 20)); f.flush()\n\
             m = mmap.mmap(f.fileno(), 1 << 20); m[0] = 1; f.close()\n\
             ready()\n\
             m[0] = 2\n",
        ),
    ];
    for (name, script) in scripts {
        let guest = python(
            &format!("in_place_{name}"),
            &format!("{script}print('PASS')\n"),
        );
        with_job(&guest, |job| {
            passed(job.start()?)?;
            let image = job.checkpoint("go-on")?;
            job.let_go();
            passed(job.wait_pass()?)?;
            for how in [Restart::Command, Restart::Image] {
                for files in ["fail", "roll-back"] {
                    let (code, said) = run_image(job, &image, how, &["--files", files])?;
                    if code == Some(0) || !said.contains("data/out has changed within the") {
                        return Err(format!("{files}: found {code:?} and {said:?}"));
                    }
                }
            }
            let (code, said) = run_image(job, &image, Restart::Command, &["--files", "keep"])?;
            match code {
                Some(0) => Ok(()),
                _ => Err(format!("keep: found {code:?} and {said:?}")),
            }
        });
    }
}

/// A file that stays as it is after the checkpoint is compared whole, one that changes by samples.
#[test]
fn how_files_are_compared_is_said() {
    let guest = python(
        "compared",
        "rest = open('rest', 'w+b', buffering=0); rest.write(bytes(1 << 20))\n\
         os.utime('rest', (1, 1)); time.sleep(3)\n\
         moving = open('moving', 'w+b', buffering=0); moving.write(bytes(1 << 20))\n\
         ready(); print('PASS')\n",
    );
    with_job(&guest, |job| {
        passed(job.start()?)?;
        let image = job.checkpoint("go-on")?;
        let path = image.to_string_lossy().into_owned();
        let (_, said) = job.tell(&["inspect", &path])?;
        let compared = |name: &str| {
            let line = said.lines().rev().find(|line| line.contains(name))?;
            line.split_whitespace().last().map(String::from)
        };
        let found = [compared("data/rest"), compared("data/moving")];
        let expected = ["hash", "sampled"].map(|word| Some(word.to_owned()));
        if found != expected {
            return Err(format!("found {found:?}, expected {expected:?}\n{said}"));
        }
        job.let_go();
        passed(job.wait_pass()?)
    });
}

/// A thousand files open for writing are no reason to stop a job for long.
#[test]
fn many_written_files_do_not_hold_a_job_up() {
    let guest = python(
        "many_files",
        "import resource\n\
         hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n\
         resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))\n\
         fs = [open('f%d' % i, 'w+b', buffering=0) for i in range(800)]\n\
         for f in fs: f.truncate(60 << 20), f.write(bytes(200000))\n\
         ready(); print('PASS')\n",
    );
    with_job(&guest, |job| {
        passed(job.start()?)?;
        let image = job.dir.join("many.img");
        let path = image.to_string_lossy().into_owned();
        let (code, said) = job.tell(&["checkpoint", "job", "-o", &path, "--json"])?;
        eprintln!("800 files of 60 MiB: {said}");
        if code != Some(0) {
            return Err(format!("exit {code:?}: {said}"));
        }
        // To read them all takes minutes.
        let report: serde_json::Value =
            serde_json::from_str(&said).map_err(|error| format!("{error}: {said}"))?;
        let frozen = report["frozen_us"].as_u64().ok_or("no frozen_us")?;
        if frozen > 2_000_000 {
            return Err(format!("frozen for {frozen} us, expected 2 s at most"));
        }
        // Each is compared somehow, and it is said how.
        let (_, said) = job.tell(&["inspect", &path])?;
        let named = said.lines().filter(|line| line.contains("data/f"));
        let how = named.filter_map(|line| line.split_whitespace().last());
        let known = how.filter(|how| ["hash", "sampled", "size"].contains(how));
        if known.count() < 800 {
            return Err(format!(
                "expected 800 files and how each is compared, found {said}"
            ));
        }
        job.let_go();
        passed(job.wait_pass()?)
    });
}

#[test]
fn files_of_proc_about_the_job_itself_are_opened_again() {
    let mut guest = python(
        "own_proc",
        "import ctypes\n\
         status = os.open('/proc/self/status', os.O_RDONLY); first = os.read(status, 6)\n\
         twin = os.dup(status)\n\
         task = os.open('/proc/thread-self/stat', os.O_RDONLY | os.O_CLOEXEC)\n\
         maps = os.open('/proc/self/maps', os.O_RDONLY)\n\
         mem = os.open('/proc/self/mem', os.O_RDONLY)\n\
         fds = os.open('/proc/self/fd', os.O_RDONLY | os.O_DIRECTORY)\n\
         machine = open('/proc/meminfo'); line = machine.readline()\n\
         word = ctypes.create_string_buffer(b'a word in memory')\n\
         os.lseek(mem, ctypes.addressof(word), os.SEEK_SET)\n\
         ready()\n\
         text = lambda fd: os.read(fd, 65536).decode()\n\
         def verify():\n\
         \x20   if first != b'Name:\\t' or not text(status).startswith('python3\\n'): return 'status'\n\
         \x20   if os.lseek(twin, 0, os.SEEK_CUR) != os.lseek(status, 0, os.SEEK_CUR): return 'twin'\n\
         \x20   if not text(task).startswith('%d (python3)' % os.getpid()): return 'task'\n\
         \x20   if os.get_inheritable(task): return 'task inherited'\n\
         \x20   if '[stack]' not in open(maps).read(): return 'maps'\n\
         \x20   if os.read(mem, 16) != b'a word in memory': return 'mem'\n\
         \x20   if str(fds) not in os.listdir(fds): return 'fds'\n\
         \x20   if os.readlink('/proc/self/fd/%d' % status) != '/proc/%d/status' % os.getpid(): return 'name'\n\
         \x20   if 'MemFree' not in machine.read(): return 'meminfo'\n\
         \x20   return 'PASS'\n\
         print(verify())\n",
    );
    guest.needs_system = false;
    check(&guest);
}

/// Every chunk of an image is checked by both ways of a restart, also of files that this machine has.
#[test]
fn a_damaged_chunk_is_noticed_wherever_it_is() {
    let program = c_guest("memory", Linking::Dynamic).expect("the guest compiles");
    let guest = Guest::new("damaged_chunks", program, &["anonymous"]);
    with_job(&guest, |job| {
        passed(job.start()?)?;
        let image = job.checkpoint("kill")?;
        job.wait_killed()?;
        job.let_go();
        let sound = Image::open(&image).map_err(|error| error.to_string())?;
        let tables = sound.tables();
        let extents = tables.extents().collect::<Result<Vec<_>, _>>();
        let extents = extents.map_err(|error| error.to_string())?;
        let chunks = (0..tables.chunk_count()).map(|number| tables.chunk(number));
        let chunks = chunks
            .filter_map(Result::transpose)
            .collect::<Result<Vec<_>, _>>();
        let chunks = chunks.map_err(|error| error.to_string())?;
        let in_files: u64 = extents
            .iter()
            .filter(|extent| extent.space >> 32 == 2)
            .map(|extent| extent.chunk_count())
            .sum();
        if in_files < 4 {
            return Err(format!("found {in_files} chunks of files, expected libc"));
        }
        // Closed at once: what is open for writing is not executed.
        let flip = |at: u64| {
            let file = fs::OpenOptions::new().read(true).write(true).open(&image)?;
            let mut byte = [0];
            file.read_exact_at(&mut byte, at)?;
            file.write_all_at(&[byte[0] ^ 1], at)
        };
        for (number, chunk) in chunks.iter().enumerate() {
            let at = chunk.offset + u64::from(chunk.stored_len) * (number as u64 % 7) / 7;
            text(flip(at))?;
            for how in [Restart::Command, Restart::Image] {
                let (code, said) = run_image(job, &image, how, &[])?;
                if code != Some(4) || !said.contains(".wf.pages") {
                    return Err(format!(
                        "chunk {number}, {how:?}: found {code:?} and {said:?}, expected 4"
                    ));
                }
            }
            text(flip(at))?;
        }
        let (code, said) = run_image(job, &image, Restart::Image, &[])?;
        if code != Some(0) {
            return Err(format!("mended: found {code:?} and {said:?}"));
        }
        Ok(())
    });
}

#[test]
fn a_descriptor_that_is_not_there_cannot_be_inherited() {
    let guest = python("inherit_none", "ready(); print('PASS')\n");
    with_job(&guest, |job| {
        passed(job.start()?)?;
        let path = job.dir.join("none.img").to_string_lossy().into_owned();
        let asked = ["checkpoint", "job", "-o", &path, "--inherit-fd", "99"];
        let (code, said) = job.tell(&asked)?;
        if code == Some(0) || !said.contains("99") {
            return Err(format!("checkpoint: found {code:?} and {said:?}"));
        }
        let image = job.checkpoint("kill")?;
        job.wait_killed()?;
        job.let_go();
        for number in ["99", "3", "4", "5"] {
            for how in [Restart::Command, Restart::Image] {
                let (code, said) = run_image(job, &image, how, &["--inherit-fd", number])?;
                let named = said.contains(&format!("--inherit-fd {number}"));
                if code != Some(2) || !named {
                    return Err(format!("{how:?} {number}: found {code:?} and {said:?}"));
                }
            }
        }
        let (code, said) = run_image(job, &image, Restart::Image, &[])?;
        match code {
            Some(0) => Ok(()),
            _ => Err(format!("without: found {code:?} and {said:?}")),
        }
    });
}
