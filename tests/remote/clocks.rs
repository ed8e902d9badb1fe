//! What a job has used of processors counts on when it is restarted: every clock of it, in C, Python and a shell.

use super::away::Site;
use super::restart::{Traveller, UNDER_JOURNAL, job_words};
use super::*;
use crate::support::stage::{Linking, c_guest};
use std::ffi::OsString;
use std::time::{Duration, Instant};

/// How often it is killed.
const TIMES: usize = 3;
/// How long it works between two of these at least.
const WORK: Duration = Duration::from_millis(400);

/// Killed again and again, each time a while after a checkpoint; may end then. What it has said.
fn killed_again_and_again(what: &str, words: &[OsString]) -> String {
    let mut traveller = Traveller::new(what, &UNDER_JOURNAL);
    let mut job = traveller.begin(words);
    job.wait_line("ready", DEADLINE).expect("is ready");
    for _ in 0..TIMES {
        std::thread::sleep(WORK);
        let image = traveller.checkpoint(&mut job);
        let image = image.unwrap_or_else(|| panic!("it has ended: {}", job.describe()));
        traveller.pause(300);
        assert!(!traveller.kill(&mut job), "{}", job.describe());
        job = traveller.restart(&image, "roll-back");
    }
    std::thread::sleep(WORK);
    fs::write(traveller.submit.home().join("enough"), "").expect("writes");
    let status = job.wait(DEADLINE).expect("ends");
    assert!(status.success(), "{}", job.describe());
    let said = job.out.text();
    assert!(said.ends_with("the end\n"), "{said}");
    println!("{said}");
    said
}

/// Three times nothing of the last 400 ms but what came before an image is lost, of one thread at least.
fn used_as_much(said: &str) {
    let number = said.lines().find_map(|line| line.strip_prefix("used "));
    let ms: u64 = number.expect("it says").parse().expect("a number");
    println!("{ms} ms");
    // What it has from the last copy alone is no more than that copy's time, on two processors.
    assert!(ms > 500, "{ms}");
}

fn c_program(what: &str, linking: Linking) {
    if missing(what) {
        return;
    }
    let guest = c_guest("remote_clocks", linking).expect("the guest compiles");
    used_as_much(&killed_again_and_again(what, &[guest.into_os_string()]));
}

#[test]
fn no_clock_of_a_job_goes_back() {
    c_program("no_clock_of_a_job_goes_back", Linking::Dynamic);
}

#[test]
fn no_clock_of_a_static_job_goes_back() {
    c_program("no_clock_of_a_static_job_goes_back", Linking::Static);
}

/// Its calls are dispatched by the kernel, those of the vDSO, too.
#[test]
fn no_clock_of_a_job_on_musl_goes_back() {
    c_program("no_clock_of_a_job_on_musl_goes_back", Linking::Musl);
}

const PYTHON: &str = "\
import os, resource, sys, time
def now():
    one, all = resource.getrusage(resource.RUSAGE_SELF), os.times()
    return (time.process_time_ns(), time.thread_time_ns(), one.ru_utime + one.ru_stime, one.ru_minflt, one.ru_nvcsw,
            one.ru_maxrss, all.user + all.system)
big = bytearray(os.urandom(1 << 20)) * 40
del big
last, n = now(), 0
peak = last[5]
print('ready', flush=True)
while not os.path.exists('enough'):
    sum(range(1000))
    found = now()
    assert all(a <= b for a, b in zip(last, found)), (last, found)
    assert abs(found[0] / 1e9 - found[2]) < 0.1 and abs(found[6] - found[2]) < 0.1, found
    last = found
assert last[5] >= peak > 40000
print('used', last[0] // 1000000)
print('the end')
";

#[test]
fn no_clock_of_a_python_program_goes_back() {
    let what = "no_clock_of_a_python_program_goes_back";
    if missing(what) {
        return;
    }
    let words = job_words("/usr/bin/python3", PYTHON);
    used_as_much(&killed_again_and_again(what, &words));
}

/// `times` of a shell, whose output is a file that it reads back.
const BASH: &str = "\
value() { local m=${1%m*} s=${1#*m}; s=${s%s}; all=$((m * 60000 + 10#${s%.*} * 1000 + 10#${s#*.})); }
sh -c 'i=0; while [ $i -lt 60000 ]; do i=$((i + 1)); done'
last=0
times > t; { read -r u s; read -r cu cs; } < t
value $cu; first=$all
[ $first -gt 10 ] || { echo \"the child's: $cu $cs\" >&2; exit 1; }
echo ready
while ! [ -e enough ]; do
    for ((i = 0; i < 2000; i++)); do :; done
    times > t; { read -r u s; read -r cu cs; } < t
    value $u; now=$all; value $s; now=$((now + all)); value $cu
    [ $now -ge $last ] && [ $all -ge $first ] || { echo \"$last $first: $u $s $cu $cs\" >&2; exit 1; }
    last=$now
done
echo used $last
echo the end
";

#[test]
fn no_times_of_a_shell_go_back() {
    let what = "no_times_of_a_shell_go_back";
    if missing(what) {
        return;
    }
    let words = ["/bin/bash", "-c", BASH].map(OsString::from);
    used_as_much(&killed_again_and_again(what, &words));
}

/// From one machine to another, killed there, and after it has left.
#[test]
fn no_clock_of_a_submitted_job_goes_back() {
    const SCRIPT: &str = "\
import os, resource, time
def now():
    one = resource.getrusage(resource.RUSAGE_SELF)
    return time.process_time_ns(), time.thread_time_ns(), int(1e9 * (one.ru_utime + one.ru_stime))
last, n = now(), 0
with open('log', 'w') as log:
    while not os.path.exists('enough'):
        end = time.process_time_ns() + 5000000
        while time.process_time_ns() < end: pass
        found = now()
        assert all(a <= b for a, b in zip(last, found)), (last, found)
        last = found
        n += 1
        print(last[0], file=log, flush=True)
        time.sleep(0.01)
    assert last[0] >= 5000000 * n, (last, n)
";
    let what = "no_clock_of_a_submitted_job_goes_back";
    let Some(site) = Site::new(what, "away-clocks") else {
        return;
    };
    fs::write(site.submit.home().join("guest.py"), SCRIPT).expect("writes");
    let mut job = site.with_files(site.guest(&["127.0.0.1"], &["--every", "1h"]));
    site.until("Running", 1);
    let mut lines = 0;
    let mut work = || {
        lines = site.lines() + 30;
        site.until_lines(lines);
    };
    work();
    site.told(&["checkpoint", "job"]);
    work();
    site.told(&["migrate", "job", "--to", "localhost"]);
    site.until("Running", 2);
    work();
    site.told(&["checkpoint", "job"]);
    nix::sys::signal::kill(site.keeper(), nix::sys::signal::Signal::SIGKILL).expect("is there");
    site.until("Running", 3);
    work();
    site.told(&["vacate", "job"]);
    super::away::ends(&mut job, 85, &site);
    let mut job = site.with_files(site.guest(&["127.0.0.1"], &["--resume"]));
    site.until("Running", 4);
    work();
    let begun = Instant::now();
    fs::write(site.submit.home().join("enough"), "").expect("writes");
    super::away::ends(&mut job, 0, &site);
    println!("ended within {:?}", begun.elapsed());
    let log = fs::read_to_string(site.submit.home().join("log")).expect("is there");
    let used: Vec<u64> = log
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    assert!(used.is_sorted() && used.len() >= 120, "{used:?}");
    site.leaves_nothing();
}
