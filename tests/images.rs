//! What can be done with the image of a real job: it carries what it is asked to, is compressed, made whole,
//! looked into, given to a debugger; and nobody else's is started.

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;
use support::host::Host;
use support::promise::{passed, with_job};
use support::python::python;
use support::run::{self, Run, clean_command};
use support::scenario::{Guest, Job, Restart};
use support::skip;
use support::stage::{self, Linking, c_guest};
use support::user::{User, is_root};

const DEADLINE: Duration = Duration::from_secs(30);

/// An image of the job, made with these options; what was said.
fn checkpoint(job: &mut Job, name: &str, options: &[&str]) -> Result<PathBuf, String> {
    let image = job.dir.join(name);
    let path = image.to_string_lossy().into_owned();
    done(
        job,
        &[&["checkpoint", "job", "-o", &path], options].concat(),
    )?;
    Ok(image)
}

/// Runs wayfarer, which must succeed; what it said.
fn done(job: &mut Job, arguments: &[&str]) -> Result<String, String> {
    match job.tell(arguments)? {
        (Some(0), said) => Ok(said),
        (code, said) => Err(format!("{arguments:?}: exit {code:?}: {said}")),
    }
}

/// Executes the image where there is nothing but it and `files`, to its end.
fn on_empty_host(
    job: &mut Job,
    image: &Path,
    files: &[&Path],
) -> Result<(ExitStatus, String), String> {
    let host = files
        .iter()
        .fold(Host::empty()?.with(image), |host, file| host.with(file));
    let command = job.in_data(host.command(image));
    let (status, run) = run::finish("on an empty host", command, User::Ordinary, DEADLINE)?;
    let said = run.out.text() + &run.err.text();
    job.runs.push(run);
    Ok((status, said))
}

fn io<T>(result: std::io::Result<T>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

#[test]
fn data_files_are_carried_where_that_is_asked_for() {
    let guest = python(
        "carry_files",
        "words = open('words'); first = words.readline()\n\
         log = open('log', 'w+'); log.write('before '); log.flush()\n\
         ready()\n\
         rest = words.read(); log.write('after'); log.seek(0)\n\
         found = (first, rest, log.read())\n\
         print('PASS' if found == ('one\\n', 'two\\n', 'before after') else found)\n",
    );
    with_job(&guest, |job| {
        let data = job.dir.join("data");
        io(fs::write(data.join("words"), "one\ntwo\n"))?;
        passed(job.start()?)?;
        let without = checkpoint(job, "without.img", &[])?;
        let with = checkpoint(job, "with.img", &["--carry-files", "--then", "kill"])?;
        job.wait_killed()?;
        job.let_go();
        let go = data.join("go");
        let (status, said) = on_empty_host(job, &without, &[&go])?;
        if status.success() || !said.contains("data/words") || !said.contains("missing") {
            return Err(format!("not carried: found {status} and {said:?}"));
        }
        match on_empty_host(job, &with, &[&go])? {
            (status, said) if status.success() && said == "PASS\n" => Ok(()),
            (status, said) => Err(format!("carried: found {status} and {said:?}")),
        }
    });
}

#[test]
fn files_of_the_system_are_carried_up_to_the_size_that_is_asked_for() {
    let program = c_guest("memory", Linking::Dynamic).expect("the guest compiles");
    let guest = Guest::new("carry_max", program, &["anonymous"]);
    with_job(&guest, |job| {
        passed(job.start()?)?;
        let image = checkpoint(job, "small.img", &["--carry-max", "1M", "--then", "kill"])?;
        job.wait_killed()?;
        job.let_go();
        let data = job.dir.join("data");
        let (status, said) = on_empty_host(job, &image, &[&data])?;
        if status.success() || !said.contains("/libc.so.6") || !said.contains("missing") {
            return Err(format!(
                "found {status} and {said:?}, expected libc missing"
            ));
        }
        // It is all that is: with it there, the job goes on.
        let libc = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
        match on_empty_host(job, &image, &[&data, libc])? {
            (status, said) if status.success() && said == "PASS\n" => Ok(()),
            (status, said) => Err(format!("with libc: found {status} and {said:?}")),
        }
    });
}

#[test]
fn a_compressed_image_is_smaller_and_goes_on_like_any_other() {
    let guest = python(
        "compressed",
        "def text(): return b''.join(b'%d bottles\\n' % i for i in range(400000))\n\
         kept = text()\n\
         ready()\n\
         print('PASS' if kept == text() else 'changed')\n",
    );
    with_job(&guest, |job| {
        passed(job.start()?)?;
        let plain = checkpoint(job, "plain.img", &[])?;
        let usual = checkpoint(job, "usual.img", &["--compress", "zstd"])?;
        let small = ["--compress", "zstd:12", "--then", "kill"];
        let small = checkpoint(job, "small.img", &small)?;
        job.wait_killed()?;
        let flat = job.dir.join("flat.img");
        let [from, to] = [&small, &flat].map(|path| path.to_string_lossy().into_owned());
        done(job, &["flatten", &from, "-o", &to])?;
        let images = [&plain, &usual, &small, &flat];
        let lens = images.map(|path| fs::metadata(path).map_or(0, |found| found.len()));
        if lens[1] > lens[0] / 2 || lens[2] >= lens[1] {
            return Err(format!("plain, zstd, zstd:12: found {lens:?} bytes"));
        }
        job.let_go();
        for (image, how) in [
            (&usual, Restart::Command),
            (&small, Restart::Image),
            (&flat, Restart::Image),
        ] {
            done(job, &["verify", &image.to_string_lossy()])?;
            job.restart(image, how)?;
            passed(job.wait_pass()?)?;
        }
        Ok(())
    });
}

#[test]
fn gdb_shows_every_thread_of_a_job_where_it_was() {
    let source = stage::repository().join("ckpt-lib/tests/programs/three_threads.c");
    let program = stage::dir().join("three_threads");
    stage::build_if_older(&program, std::slice::from_ref(&source), |beside| {
        let mut command = Command::new("gcc");
        command.args(["-g", "-O0", "-pthread"]);
        command.arg(&source).arg("-o").arg(beside);
        command
    })
    .expect("the program compiles");
    if Command::new("gdb").arg("--version").output().is_err() {
        return skip::note("gdb_shows_every_thread_of_a_job", "no gdb on this machine");
    }
    with_job(&Guest::new("core", &program, &[]), |job| {
        let mut command = job.wayfarer(&["run", "--quiet", "--name", "job", "--"]);
        command.arg(&program);
        let mut run = Run::start("the guest", command, User::Ordinary)?;
        let ready = run.wait_line("ready", DEADLINE);
        job.runs.push(run);
        ready?;
        let image = job.checkpoint("kill")?;
        let core = job.dir.join("core");
        let [from, to] = [&image, &core].map(|path| path.to_string_lossy().into_owned());
        done(job, &["export", "--core", &from, &to])?;
        let mut gdb = job.in_data(clean_command("gdb"));
        gdb.args(["-nx", "-batch", "-ex", "thread apply all bt"]);
        gdb.args(["-ex", "print turns", "-ex", "print $ymm0.v4_int64"]);
        gdb.arg(&program).arg(&core);
        let (_, run) = run::finish("gdb", gdb, User::Ordinary, DEADLINE)?;
        let shown = run.out.text() + &run.err.text();
        job.runs.push(run);
        let ymm = usize::from(std::arch::is_x86_feature_detected!("avx"));
        for (count, text) in [
            (3, "\nThread "),
            (3, "wait_for_input (depth="),
            (1, "main () at"),
            (1, "spinner (count=0x"),
            (1, "sleep_long (seconds=1000)"),
            (1, "sleeper (unused=0x0)"),
            (1, "$1 = 4711"),
            (0, "Cannot access memory"),
            // Extended registers of a processor that has them elsewhere than Intel's, too.
            (ymm, "$2 = {"),
            (0, "<unavailable>"),
            (0, "too small"),
        ] {
            let found = shown.matches(text).count();
            if found != count {
                return Err(format!("{text:?}: found {found}, expected {count}"));
            }
        }
        Ok(())
    });
}

#[test]
fn inspect_shows_the_descriptors_of_a_job() {
    let guest = python(
        "inspected",
        "os.dup2(os.open('words', os.O_RDONLY), 40); os.lseek(40, 4, os.SEEK_SET)\n\
         r, w = os.pipe(); os.write(w, b'12345'); os.dup2(r, 41, inheritable=False)\n\
         a, b = socket.socketpair(); a.send(b'hello'); os.dup2(b.fileno(), 42)\n\
         os.dup2(os.eventfd(7), 43)\n\
         os.dup2(os.memfd_create('sheet'), 44)\n\
         os.dup2(os.open('log', os.O_CREAT | os.O_WRONLY), 45)\n\
         ready(); print('PASS')\n",
    );
    with_job(&guest, |job| {
        io(fs::write(job.dir.join("data/words"), "one\ntwo\n"))?;
        passed(job.start()?)?;
        let image = job.checkpoint("go-on")?.to_string_lossy().into_owned();
        let report = done(job, &["inspect", "--json", &image])?;
        let report: serde_json::Value =
            serde_json::from_str(&report).map_err(|error| error.to_string())?;
        let shown = done(job, &["inspect", &image])?;
        let descriptors = report["processes"][0]["descriptors"].as_array();
        let descriptors = descriptors.ok_or("no descriptors")?;
        for (fd, kind, what, access, offset, close_on_exec) in [
            (1, "external", "will be descriptor 1", "write", None, false),
            (40, "file", "data/words", "read", Some(4), false),
            (41, "pipe", "5 bytes unread", "read", None, true),
            (
                42,
                "socket",
                "1 messages unread",
                "read and write",
                None,
                false,
            ),
            (43, "eventfd", "count 7", "read and write", None, false),
            (44, "memfd", "sheet", "read and write", Some(0), false),
            (45, "file", "data/log", "write", Some(0), false),
        ] {
            let found = descriptors.iter().find(|found| found["fd"] == fd);
            let found = found.ok_or_else(|| format!("no descriptor {fd}"))?;
            let right = found["kind"] == kind
                && found["what"]
                    .as_str()
                    .is_some_and(|text| text.contains(what))
                && found["access"] == access
                && found["offset"].as_u64() == offset
                && found["close_on_exec"] == close_on_exec;
            let fd = fd.to_string();
            let in_words = shown
                .lines()
                .any(|line| line.split_whitespace().next() == Some(&fd) && line.contains(what));
            if !right || !in_words {
                return Err(format!("{fd}, {kind}: found {found} and\n{shown}"));
            }
        }
        job.let_go();
        passed(job.wait_pass()?)
    });
}

/// Its user has as many processes as they may have (`ulimit -u`): what several threads would do is done by one.
#[test]
fn an_image_is_made_and_checked_where_no_thread_can_be_had() {
    let program = c_guest("memory", Linking::Dynamic).expect("the guest compiles");
    with_job(&Guest::new("no_threads", program, &["anonymous"]), |job| {
        passed(job.start()?)?;
        let image = job.dir.join("x.img");
        let path = image.to_string_lossy().into_owned();
        for arguments in [&["checkpoint", "job", "-o", &path][..], &["verify", &path]] {
            let (code, said) = without_threads(job, arguments)?;
            if code != Some(0) {
                return Err(format!("{arguments:?}: exit {code:?}: {said}"));
            }
        }
        let mut bytes = io(fs::read(&image))?;
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        let damaged = job.dir.join("damaged.img");
        io(fs::write(&damaged, bytes))?;
        let (code, said) = without_threads(job, &["verify", &damaged.to_string_lossy()])?;
        if code != Some(4) || !said.contains("damaged.img") {
            return Err(format!("damaged: exit {code:?}: {said}"));
        }
        job.let_go();
        passed(job.wait_pass()?)?;
        job.restart(&image, Restart::Command)?;
        passed(job.wait_pass()?)
    });
}

fn without_threads(job: &mut Job, arguments: &[&str]) -> Result<(Option<i32>, String), String> {
    let wayfarer = job.wayfarer(arguments);
    let mut command = clean_command("prlimit");
    command.arg("--nproc=1:1").arg(wayfarer.get_program());
    command.args(wayfarer.get_args());
    let command = job.in_data(command);
    let (status, run) = run::finish("without threads", command, User::Ordinary, DEADLINE)?;
    let said = run.out.text() + &run.err.text();
    job.runs.push(run);
    Ok((status.code(), said))
}

/// An image is a program: somebody else's is not looked into and not started.
#[test]
fn the_image_of_another_user_is_refused() {
    if !is_root() {
        return skip::note("the_image_of_another_user", "not started by root");
    }
    let program = c_guest("memory", Linking::Dynamic).expect("the guest compiles");
    let guest = Guest::new("foreign_image", program, &["anonymous"]);
    with_job(&guest, |job| {
        passed(job.start()?)?;
        let image = job.checkpoint("kill")?;
        job.wait_killed()?;
        job.let_go();
        // Readable, so that only its owner speaks against it.
        io(fs::set_permissions(
            &image,
            fs::Permissions::from_mode(0o755),
        ))?;
        let path = image.to_string_lossy().into_owned();
        io(chown(&image, Some(65_534), None))?;
        for verb in ["inspect", "verify", "restart"] {
            let (code, said) = job.tell(&[verb, &path])?;
            if code == Some(0) || !said.contains(&path) || !said.contains("owned by user 65534") {
                return Err(format!("{verb}: found exit {code:?} and {said:?}"));
            }
        }
        // Root may do anything to everybody, so that its images are trusted.
        io(chown(&image, Some(0), None))?;
        job.restart(&image, Restart::Command)?;
        passed(job.wait_pass()?)
    });
}
