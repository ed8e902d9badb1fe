//! Lines that break and are made anew, and jobs whose machine is lost.

use super::durable::{KEPT, Mortal, guest, python, undisturbed};
use super::lines::processes_with;
use super::restart::PYTHON;
use super::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use support::run::poll;

/// A way to a TCP port on which connections are cut now and then, and bytes are late.
struct Way {
    port: u16,
    cut: Arc<Mutex<Vec<TcpStream>>>,
}

impl Way {
    fn to(address: &str, delay: Duration) -> Self {
        let (_, to) = address.rsplit_once(':').expect("has a port");
        let to: u16 = to.parse().expect("is a number");
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let port = listener.local_addr().expect("is known").port();
        let cut = Arc::new(Mutex::new(vec![]));
        let all = cut.clone();
        std::thread::spawn(move || {
            for here in listener.incoming().flatten() {
                // There may be no shadow now.
                let Ok(there) = TcpStream::connect(("127.0.0.1", to)) else {
                    continue;
                };
                let mut ends = all.lock().expect("is not poisoned");
                for end in [&here, &there] {
                    end.set_nodelay(true).expect("sets");
                    ends.push(end.try_clone().expect("clones"));
                }
                drop(ends);
                let again = |end: &TcpStream| end.try_clone().expect("clones");
                let (back, forth) = ((again(&there), again(&here)), (here, there));
                for (from, to) in [back, forth] {
                    std::thread::spawn(move || pass(from, to, delay));
                }
            }
        });
        Way { port, cut }
    }

    /// Cuts what there is.
    fn cut(&self) {
        for end in self.cut.lock().expect("is not poisoned").drain(..) {
            let _ = end.shutdown(std::net::Shutdown::Both);
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let mut bytes = [0; 16 << 10];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        std::thread::sleep(delay);
        if to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    for end in [from, to] {
        let _ = end.shutdown(std::net::Shutdown::Both);
    }
}

/// Sessions that come by lines are kept here.
const OF_LINES: [&str; 2] = ["--state", "keep-tls"];

/// A shadow on TLS, started again with the same words.
pub(super) fn start_secure(mortal: &Mortal, port: u16, options: &[&str]) -> (Run, String) {
    let mut command = clean_command(stage::wayfarer());
    command.args(["shadow", "--allow", "/:ro"]).args(options);
    command.args(["--identity-file", "door/identity", "--listen"]);
    command.arg(format!("tls:127.0.0.1:{port}"));
    command.arg("--allow").arg(mortal.submit.home());
    command.current_dir(&mortal.submit.dir);
    let shadow = Run::start("the shadow", command, User::Ordinary).expect("starts");
    let address = poll(SOON, || {
        let said = shadow.out.text();
        let line = said.lines().next().filter(|_| said.contains('\n'))?;
        line.strip_prefix("listening on ").map(str::to_owned)
    });
    let address = address.unwrap_or_else(|| panic!("{}", shadow.describe()));
    (shadow, address)
}

/// Through a line that is cut at random; `kills`: the shadow is killed as well.
fn lines_are_cut(what: &str, words: &[&OsStr], said: &str, delay: Duration, kills: bool) {
    if missing(what) {
        return;
    }
    let mut mortal = Mortal::new(&KEPT);
    undisturbed(&mortal.submit, words);
    let (mut shadow, address) = start_secure(&mortal, 0, &OF_LINES);
    let way = Way::to(&address, delay);
    let mut command = clean_command(stage::wayfarer());
    command.env("XDG_RUNTIME_DIR", mortal.submit.dir.join("door"));
    command.arg("--dir").arg(mortal.submit.dir.join("state"));
    command.args(["run", "-q", "--shadow"]);
    command.arg(format!("tls:127.0.0.1:{}", way.port));
    command
        .arg("--identity-file")
        .arg(mortal.submit.dir.join("door/identity"));
    command.arg("--chdir").arg(mortal.submit.home());
    command.arg("--").args(words);
    let mut job = Run::start("the job", command, User::Ordinary).expect("starts");
    mortal.has_begun(&mut job);
    let mut times = 0;
    while job.ended().is_none() {
        let pause = mortal.random.millis(20, 300);
        std::thread::sleep(pause);
        if kills && times % 2 == 1 {
            let pid = Pid::from_raw(shadow.pid() as i32);
            let _ = kill(pid, Signal::SIGKILL);
            shadow.wait(SOON).expect("is dead");
            shadow = start_secure(&mortal, 0, &OF_LINES).0;
        } else {
            way.cut();
        }
        times += 1;
    }
    println!("cut {times} times");
    let status = job.wait(DEADLINE).expect("ends");
    let log = shadow.err.text();
    assert!(status.success(), "{}{log}", job.describe());
    assert_eq!(job.out.text(), said);
    assert!(times > 1, "it ended too early");
    // Nothing stays of it.
    let sessions = mortal.submit.dir.join("keep-tls/sessions");
    let gone = poll(SOON, || {
        let left = fs::read_dir(&sessions).expect("lists").count();
        (left == 0).then_some(())
    });
    assert!(gone.is_some(), "a session stays: {}", shadow.err.text());
    mortal.same_as_undisturbed();
}

#[test]
fn lines_that_are_cut_are_made_anew() {
    let what = "lines_that_are_cut_are_made_anew";
    let guest = guest();
    let words = [guest.as_os_str(), OsStr::new("60")];
    lines_are_cut(what, &words, "PASS\n", Duration::ZERO, false);
}

#[test]
fn slow_lines_that_are_cut_are_made_anew() {
    let what = "slow_lines_that_are_cut_are_made_anew";
    let guest = guest();
    let words = [guest.as_os_str(), OsStr::new("10")];
    lines_are_cut(what, &words, "PASS\n", Duration::from_millis(1), false);
}

#[test]
fn a_job_outlives_its_line_and_its_shadow() {
    let what = "a_job_outlives_its_line_and_its_shadow";
    let words = python(PYTHON);
    lines_are_cut(what, &words, "the end\n", Duration::ZERO, true);
}

/// Nobody asks anything while the line is cut, nor for longer than the lease after it.
#[test]
fn a_job_that_asks_for_nothing_outlives_its_line() {
    let what = "a_job_that_asks_for_nothing_outlives_its_line";
    let script = "
import time
file = open('file', 'w'); file.write('before '); file.flush()
time.sleep(2)
file.write('after'); file.close(); print('the end')
";
    let words = python(script);
    lines_are_cut(what, &words, "the end\n", Duration::ZERO, false);
}

/// The machine of a job is lost, with its starter: it goes on elsewhere at once, not when its lease is over.
#[test]
fn a_copy_whose_machine_is_lost_is_superseded() {
    let what = "a_copy_whose_machine_is_lost_is_superseded";
    if missing(what) {
        return;
    }
    let mortal = Mortal::new(&KEPT);
    let options = ["--state", "keep-tls", "--journal", "undo-tls"];
    let (_shadow, address) = start_secure(&mortal, 0, &options);
    let identity = mortal.submit.dir.join("door/identity");
    let wayfarer = |words: &[&str]| {
        let mut command = clean_command(stage::wayfarer());
        command.env("XDG_RUNTIME_DIR", mortal.submit.dir.join("door"));
        command.arg("--dir").arg(mortal.submit.dir.join("state"));
        command.args(words);
        command
    };
    let reach = |command: &mut Command| {
        command.args(["--shadow", &address, "--identity-file"]);
        command.arg(&identity);
    };
    let script = "import time; file = open('file', 'w'); file.write('x'); file.flush(); print('begun', flush=True); time.sleep(6); file.close(); print('the end')";
    // Longer than a restart waits for anything, and what is left of the first copy is gone soon.
    let mut command = wayfarer(&["run", "-q", "--lease", "30s", "--name", "job", "--chdir"]);
    command.arg(mortal.submit.home());
    reach(&mut command);
    command.arg("--").args(python(script));
    let mut job = Run::start("the job", command, User::Ordinary).expect("starts");
    job.wait_line("begun", SOON).expect("begins");
    let image = mortal.submit.dir.join("state/image");
    let mut command = wayfarer(&["checkpoint", "job", "-o"]);
    command.arg(&image);
    let (_, said, status) = output("the checkpoint", command);
    assert_eq!(status, Some(0), "{said}");
    let own = |pid: &i32| processes_with(&address).contains(pid);
    let starters = processes_with("starter");
    for starter in starters.into_iter().filter(own) {
        kill(Pid::from_raw(starter), Signal::SIGKILL).expect("is there");
    }
    let killed = output("the kill", wayfarer(&["kill", "job", "-s", "KILL"]));
    assert_eq!(killed.2, Some(0), "{}", killed.1);
    // Its supervisor waits for a shadow that it cannot reach any more.
    let mut command = wayfarer(&["restart", "--name", "again", "--files", "roll-back"]);
    reach(&mut command);
    command.arg(&image);
    let (said, error, status) = output("the restarted job", command);
    assert_eq!((said.as_str(), status), ("the end\n", Some(0)), "{error}");
}
