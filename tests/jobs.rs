//! Promises about jobs as a whole, beyond what one guest can check by itself.

#[path = "jobs/defaults.rs"]
mod defaults;
#[path = "jobs/ids.rs"]
mod ids;
#[path = "jobs/others.rs"]
mod others;
#[path = "jobs/redirected.rs"]
mod redirected;
#[path = "jobs/scattered.rs"]
mod scattered;
mod support;
#[path = "jobs/tables.rs"]
mod tables;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use support::host::Host;
use support::promise::{passed, with_job};
use support::random::{Random, seed};
use support::run::{self, Run};
use support::scenario::{Guest, Job, Restart};
use support::skip;
use support::stage::{Linking, c_guest};
use support::user::User;

fn simple(label: &str) -> Guest {
    let program = c_guest("memory", Linking::Dynamic).expect("the guest compiles");
    Guest::new(label, program, &["anonymous"])
}

/// The processes of the job that run the guest itself, by host pid.
fn guests_of(job: &Job, program: &Path) -> Vec<i32> {
    let name = program
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let name: String = name.chars().take(15).collect();
    run::marked(&job.mark)
        .into_iter()
        .filter(|pid| {
            let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            comm.trim() == name
        })
        .collect()
}

fn state_of(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn signal(pid: i32, signal: nix::sys::signal::Signal) {
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal);
}

#[test]
fn a_stopped_job_stays_stopped() {
    let guest = simple("stopped_job");
    with_job(&guest, |job| {
        passed(job.start()?)?;
        let before = guests_of(job, &guest.program);
        let pid = *before.first().ok_or("no guest process found")?;
        signal(pid, nix::sys::signal::Signal::SIGSTOP);
        run::poll(Duration::from_secs(5), || {
            (state_of(pid) == Some('T')).then_some(())
        })
        .ok_or("the guest does not stop")?;
        let image = job.checkpoint("kill")?;
        job.wait_killed()?;
        job.restart(&image, Restart::Command)?;
        job.let_go();
        let pid = run::poll(Duration::from_secs(10), || {
            let found = guests_of(job, &guest.program);
            found.into_iter().find(|pid| state_of(*pid) == Some('T'))
        })
        .ok_or("no stopped guest after the restart")?;
        // It stays so: nothing announces that it will not go on by itself.
        std::thread::sleep(Duration::from_millis(300));
        if state_of(pid) != Some('T') {
            return Err(format!("state: found {:?}, expected T", state_of(pid)));
        }
        signal(pid, nix::sys::signal::Signal::SIGCONT);
        passed(job.wait_pass()?)
    });
}

/// What only root may set, and not in a user namespace, is there again.
fn keeps_what_only_root_may_have(file: &str, argument: &str) {
    let program = c_guest(file, Linking::Dynamic).expect("the guest compiles");
    let mut guest = Guest::new(argument, program, &[argument]);
    guest.only_root = true;
    with_job(&guest, |job| {
        let host = ["--pids", "host"];
        let mut command = job.wayfarer(&["run", "--quiet", "--name", "job"]);
        command.args(host).arg("--").arg(&guest.program);
        command.args(&guest.arguments);
        job.equip(&mut command);
        let mut run = Run::start("the guest", command, User::Root)?;
        let ready = run.wait_line("READY", Duration::from_secs(20));
        let said = run.out.text();
        job.runs.push(run);
        if let Some(reason) = said.lines().find_map(|line| line.strip_prefix("SKIP: ")) {
            skip::note(&guest.label, reason);
            return Ok(());
        }
        ready?;
        let image = job.checkpoint("kill")?;
        job.wait_killed()?;
        let mut command = job.wayfarer(&["restart", "--name", "job"]);
        command.args(host).arg(&image);
        let run = Run::start("the guest, restarted", command, User::Root)?;
        job.runs.push(run);
        job.let_go();
        passed(job.wait_pass()?)
    });
}

#[test]
fn urgent_threads_keep_their_policies() {
    keeps_what_only_root_may_have("threads", "urgent");
}

#[test]
fn threads_that_write_for_others_stay_such() {
    keeps_what_only_root_may_have("settings", "io_flusher");
}

#[test]
fn ten_copies_of_one_image_at_once() {
    let program = c_guest("threads", Linking::Dynamic).expect("the guest compiles");
    let guest = Guest::new("ten_copies", program, &["ids"]);
    with_job(&guest, |job| {
        passed(job.start()?)?;
        let image = job.checkpoint("kill")?;
        job.wait_killed()?;
        let mut copies = vec![];
        for number in 0..10 {
            let command = job.in_data(support::run::clean_command(&image));
            copies.push(Run::start(
                &format!("copy {number}"),
                command,
                User::Ordinary,
            )?);
        }
        // All ten live at the same time, each a process of the guest itself and not of the loader any more.
        let live = run::poll(Duration::from_secs(60), || {
            (guests_of(job, &guest.program).len() == 10).then_some(())
        });
        let found = guests_of(job, &guest.program).len();
        job.let_go();
        let mut wrong = vec![];
        if live.is_none() {
            wrong.push(format!("found {found} copies alive at once, expected 10\n"));
        }
        for mut copy in copies {
            let ended = copy.wait(Duration::from_secs(30));
            if !ended.is_ok_and(|status| status.success()) || !copy.out.text().ends_with("PASS\n") {
                wrong.push(copy.describe());
            }
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(wrong.concat())
        }
    });
}

#[test]
fn an_image_without_proc_needs_degraded() {
    // A guest that looks at nothing in /proc.
    let program = c_guest("registers", Linking::Dynamic).expect("the guest compiles");
    let guest = Guest::new("without_proc", program, &["general"]);
    with_job(&guest, |job| {
        passed(job.start()?)?;
        let image = job.checkpoint("kill")?;
        job.wait_killed()?;
        let data = job.dir.join("data");
        let host = Host::empty()?.without_proc().with(&image).with(&data);
        let deadline = Duration::from_secs(20);
        let (status, run) =
            run::finish("no /proc", host.command(&image), User::Ordinary, deadline)?;
        let said = run.err.text();
        let lost = ["user and group ids", "65534", "clocks"];
        let names = |said: &str| lost.iter().all(|word| said.contains(word));
        if status.code() != Some(3) || !said.contains("--degraded") || !names(&said) {
            return Err(format!(
                "found {status}, expected a refusal that names --degraded and {lost:?}\n{}",
                run.describe()
            ));
        }
        // By the command, too, which says which image it is.
        let wayfarer = support::stage::wayfarer();
        let host = host.with(&wayfarer);
        let mut command = host.command(&wayfarer);
        let state = data.join("state");
        command.arg("--dir").arg(&state).arg("restart").arg(&image);
        let (status, run) = run::finish("restart", command, User::Ordinary, deadline)?;
        let said = run.err.text();
        let named = said.contains(&format!(
            "image {}: this root has no /proc",
            image.display()
        ));
        if status.code() != Some(3) || !named {
            return Err(format!(
                "found {status}, expected a refusal that names the image\n{}",
                run.describe()
            ));
        }
        let mut command = host.command(&image);
        command.arg("--version");
        let (status, run) = run::finish("--version", command, User::Ordinary, deadline)?;
        let expected = concat!("wayfarer ", env!("CARGO_PKG_VERSION"), "\n");
        if status.code() != Some(0) || run.out.text() != expected {
            return Err(format!(
                "found {status}, expected {expected:?}\n{}",
                run.describe()
            ));
        }
        let mut command = host.command(&image);
        command.arg("--degraded");
        job.runs
            .push(Run::start("the guest, degraded", command, User::Ordinary)?);
        run::poll(Duration::from_secs(20), || {
            (!guests_of(job, &guest.program).is_empty()).then_some(())
        })
        .ok_or("the guest does not come up")?;
        job.let_go();
        passed(job.wait_pass()?)?;
        let said = job.runs.last().map(|run| run.err.text());
        match said {
            Some(said) if names(&said) => Ok(()),
            said => Err(format!("found {said:?}, expected {lost:?} in it")),
        }
    });
}

#[test]
fn the_exit_status_of_a_restarted_job_is_passed_on() {
    let program = c_guest("stdio", Linking::Dynamic).expect("the guest compiles");
    for (argument, code) in [("exit", Some(42)), ("die", Some(128 + 15))] {
        let guest = Guest::new(&format!("status_{argument}"), program.clone(), &[argument]);
        with_job(&guest, |job| {
            passed(job.start()?)?;
            let image = job.checkpoint("kill")?;
            job.wait_killed()?;
            job.restart(&image, Restart::Image)?;
            job.let_go();
            let status = job.wait_end(Duration::from_secs(20))?;
            let found = status.code().or_else(|| {
                use std::os::unix::process::ExitStatusExt;
                status.signal().map(|signal| 128 + signal)
            });
            if found == code {
                Ok(())
            } else {
                Err(format!("found {found:?}, expected {code:?}"))
            }
        });
    }
}

/// A limit on file sizes is an error that names the file; it kills neither wayfarer nor the job.
#[test]
fn a_limit_on_file_sizes_is_an_error_that_names_the_file() {
    let guest = simple("file_size_limit");
    with_job(&guest, |job| {
        passed(job.start()?)?;
        let image = job.dir.join("large.img");
        let command = job.wayfarer(&["checkpoint", "job", "-o", &image.to_string_lossy()]);
        let mut shell = support::run::clean_command("/bin/sh");
        shell.args(["-c", "ulimit -f 100; exec \"$@\"", "sh"]);
        shell.arg(command.get_program()).args(command.get_args());
        let command = job.in_data(shell);
        let (status, run) =
            run::finish("ulimit", command, User::Ordinary, Duration::from_secs(20))?;
        let said = run.err.text();
        if status.code() != Some(1) || !said.contains("large.img") || !said.contains("too large") {
            return Err(format!(
                "found {status}, expected an error that names the image\n{said}"
            ));
        }
        let left: Vec<_> = fs::read_dir(&job.dir)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name())
            .filter(|name| name.to_string_lossy().contains("large.img"))
            .collect();
        if !left.is_empty() {
            return Err(format!("found {left:?}, expected nothing of the image"));
        }
        job.let_go();
        passed(job.wait_pass()?)
    });
}

/// Kills the guest this long after its checkpoint has begun (never: without); whether there is an image.
fn dies_after(
    job: &mut Job,
    name: &str,
    supervised: bool,
    then: &str,
    delay: Option<Duration>,
) -> Result<bool, String> {
    const DEADLINE: Duration = Duration::from_secs(10);
    let guest = job.guest;
    let mut command = job.in_data(run::clean_command(&guest.program));
    if supervised {
        command = job.wayfarer(&["run", "--quiet", "--name", name, "--"]);
        command.arg(&guest.program);
    }
    command.args(&guest.arguments);
    job.equip(&mut command);
    let mut victim = Run::start(name, command, User::Ordinary)?;
    victim.wait_line("READY", DEADLINE)?;
    let pid = *guests_of(job, &guest.program).first().ok_or("no guest")?;
    let image = job.dir.join(format!("{name}.img"));
    let path = image.to_string_lossy().into_owned();
    let pid_text = pid.to_string();
    let command = job.wayfarer(&["checkpoint", &pid_text, "-o", &path, "--then", then]);
    let mut checkpoint = Run::start("checkpoint", command, User::Ordinary)?;
    if let Some(delay) = delay {
        std::thread::sleep(delay);
        signal(pid, nix::sys::signal::Signal::SIGKILL);
    }
    let ended = checkpoint.wait(DEADLINE);
    signal(pid, nix::sys::signal::Signal::SIGKILL);
    let made = ended.map(|status| status.success());
    let said = checkpoint.err.text();
    job.runs.push(checkpoint);
    let made = made?;
    victim.wait(DEADLINE)?;
    run::poll(DEADLINE, || run::marked(&job.mark).is_empty().then_some(()))
        .ok_or("a process is left")?;
    let left: Vec<_> = fs::read_dir(&job.dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|file| file.contains("img"))
        .collect();
    if made {
        let (code, said) = job.tell(&["verify", &path])?;
        let removed = fs::remove_file(&image).is_ok();
        return match code {
            Some(0) if removed && left.len() == 1 => Ok(true),
            code => Err(format!("found {left:?}, {code:?}: {said}")),
        };
    }
    let named = said.contains(&pid_text) || said.contains(name);
    let why = ["has ended", "does not exist", "no process"];
    let right = named && why.iter().any(|why| said.contains(why)) && !said.contains("runs on");
    if !right || said.contains("pthread_exit") || !left.is_empty() {
        return Err(format!("after {delay:?} found {left:?} and {said:?}"));
    }
    Ok(false)
}

/// At whatever moment of its checkpoint it is killed: soon there is a whole image, or none and an error that
/// says why.
#[test]
fn a_process_that_dies_during_its_checkpoint_is_named() {
    let mut guest = simple("dies");
    guest.environment = vec![("WF_THREADS".into(), "4".into())];
    with_job(&guest, |job| {
        let began = Instant::now();
        if !dies_after(job, "whole", false, "kill", None)? {
            return Err("found no image of a process that was left alone".into());
        }
        // What it took with all around it: not every one is killed in time.
        let longest_ms = began.elapsed().as_millis() as u64 / 2;
        let mut random = Random::new(seed(), "dies");
        let mut without = 0;
        for round in 0..40 {
            let delay = random.millis(0, longest_ms.min(100));
            let then = ["kill", "go-on"][round / 2 % 2];
            let name = format!("round{round}");
            if !dies_after(job, &name, round % 2 == 0, then, Some(delay))? {
                without += 1;
            }
        }
        match without {
            5.. => Ok(()),
            _ => Err(format!("only {without} of 40 died during their checkpoint")),
        }
    });
}

/// A checkpoint with these options is refused with these words, and the job runs on.
fn refused(job: &mut Job, options: &[&str], words: &str) -> Result<(), String> {
    let image = job.dir.join("refused.img");
    let path = image.to_string_lossy().into_owned();
    let arguments = ["checkpoint", "job", "-o", &path, "--then", "kill"];
    let (code, said) = job.tell(&[&arguments, options].concat())?;
    if code == Some(0) || !said.contains(words) || image.exists() {
        return Err(format!(
            "found exit {code:?} and {said:?}, expected a refusal with {words:?}"
        ));
    }
    job.let_go();
    passed(job.wait_pass()?)
}

#[test]
fn a_job_that_an_image_has_resumed_is_a_job_like_others() {
    let guest = simple("executed_image");
    with_job(&guest, |job| {
        passed(job.start()?)?;
        let mut image = job.checkpoint("kill")?;
        job.wait_killed()?;
        // By its first process, and by what the user has started.
        for (turn, by_guest) in [(1, true), (2, false)] {
            job.restart(&image, Restart::Image)?;
            let of_guest = || guests_of(job, &guest.program).first().copied();
            let root =
                run::poll(Duration::from_secs(20), of_guest).ok_or("the guest is not back")?;
            let started = job.runs.last().map(|run| run.pid().cast_signed());
            let pid = if by_guest { Some(root) } else { started };
            let pid = pid.ok_or("nothing was started")?.to_string();
            image = job.dir.join(format!("again-{turn}.img"));
            let path = image.to_string_lossy().into_owned();
            let (code, said) = job.tell(&["checkpoint", &pid, "-o", &path, "--then", "kill"])?;
            if code != Some(0) {
                return Err(format!("turn {turn}: exit {code:?}: {said}"));
            }
            job.wait_killed()?;
        }
        job.restart(&image, Restart::Command)?;
        job.let_go();
        passed(job.wait_pass()?)
    });
}

/// As an ordinary user, who has no way to such memory but through the process.
fn through_python(label: &str, script: &str) {
    let program = Path::new("/usr/bin/python3");
    with_job(&Guest::new(label, program, &["-c", script]), |job| {
        passed(job.start()?)?;
        let image = job.checkpoint("go-on")?;
        job.let_go();
        passed(job.wait_pass()?)?;
        job.restart(&image, Restart::Command)?;
        passed(job.wait_pass()?)
    });
}

#[test]
fn shared_memory_that_was_never_touched_stays_so() {
    // Also where it is a memfd that was closed, in the middle of which a page is hidden from this process's page table.
    through_python(
        "untouched",
        "import mmap, os, time\n\
         SIZE = 1 << 30\n\
         fd = os.memfd_create('closed')\n\
         os.ftruncate(fd, SIZE)\n\
         maps = [mmap.mmap(-1, SIZE), mmap.mmap(fd, SIZE)]\n\
         os.close(fd)\n\
         def leads_there(n): return 'memfd:closed' in os.readlink('/proc/self/fd/' + n)\n\
         fds = os.open('/proc/self/fd', os.O_RDONLY)\n\
         numbers = [n for n in os.listdir(fds) if n != str(fds)]\n\
         os.close(fds)\n\
         for n in numbers:\n\
         \x20   if os.path.lexists('/proc/self/fd/' + n) and leads_there(n): os.close(int(n))\n\
         for at in (0, 5 << 20, SIZE - 1):\n\
         \x20   for m in maps: m[at] = 7\n\
         for m in maps: m.madvise(mmap.MADV_DONTNEED, 5 << 20, 4096)\n\
         def held():\n\
         \x20   lines = open('/proc/self/status').read().splitlines()\n\
         \x20   return next(int(l.split()[1]) for l in lines if l.startswith('RssShmem'))\n\
         before = held()\n\
         print('READY', flush=True)\n\
         while not os.path.exists(os.environ['WF_GO']): time.sleep(0.01)\n\
         assert held() <= before + 64, (before, held())\n\
         for at in (0, 5 << 20, SIZE - 1):\n\
         \x20   for m in maps: assert m[at] == 7, at\n\
         for m in maps: assert m[9 << 20] == 0\n\
         print('PASS')",
    );
}

#[test]
fn an_epoll_set_goes_on_watching_what_has_another_number_now() {
    through_python(
        "watched",
        "import os, select, time\n\
         r, w = os.pipe()\n\
         other = os.dup(r)\n\
         poll = select.epoll()\n\
         poll.register(r, select.EPOLLIN)\n\
         os.close(r)\n\
         print('READY', flush=True)\n\
         while not os.path.exists(os.environ['WF_GO']): time.sleep(0.01)\n\
         assert poll.poll(0) == []\n\
         os.write(w, b'x')\n\
         assert poll.poll(0) == [(r, select.EPOLLIN)]\n\
         assert os.read(other, 1) == b'x'\n\
         print('PASS')",
    );
}

#[test]
fn an_epoll_set_whose_number_is_anothers_by_now_is_refused() {
    let script = "import os, select, time\n\
         r, w = os.pipe()\n\
         other = os.dup(r)\n\
         poll = select.epoll()\n\
         poll.register(r, select.EPOLLIN)\n\
         os.dup2(w, r)\n\
         print('READY', flush=True)\n\
         while not os.path.exists(os.environ['WF_GO']): time.sleep(0.01)\n\
         print('PASS')";
    let program = Path::new("/usr/bin/python3");
    with_job(&Guest::new("rewatched", program, &["-c", script]), |job| {
        passed(job.start()?)?;
        refused(job, &[], "which is another's by now")
    });
}

#[test]
fn a_job_that_holds_a_lease_is_refused_and_keeps_it() {
    // Undisturbed by SIGIO, which would end it.
    let script = "import fcntl, os, time\n\
         fd = os.open('leased', os.O_CREAT | os.O_RDWR)\n\
         fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n\
         print('READY', flush=True)\n\
         while not os.path.exists(os.environ['WF_GO']): time.sleep(0.01)\n\
         assert fcntl.fcntl(fd, fcntl.F_GETLEASE) == fcntl.F_WRLCK\n\
         print('PASS')";
    let program = Path::new("/usr/bin/python3");
    with_job(&Guest::new("leased", program, &["-c", script]), |job| {
        passed(job.start()?)?;
        refused(job, &[], "a lease or an unknown kind of lock")
    });
}
