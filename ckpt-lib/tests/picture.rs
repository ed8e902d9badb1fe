//! The picture: the memory of one moment, seen by nobody in the job.

mod job;

use ckpt_lib::inject::{CallList, Workshop};
use ckpt_lib::pages::{self, PageKinds};
use ckpt_lib::picture::Picture;
use ckpt_lib::tracee::{HostPid, Quiesced};
use job::{As, Job};
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
const MEMORY: u64 = 0x2000_0000;

fn take(pid: HostPid) -> Picture {
    let mut quiesced = Quiesced::stop(&[pid], 10 * SECOND).expect("stops");
    let process = &mut quiesced.processes_mut()[0];
    let mut workshop = Workshop::open(process, None).expect("opens");
    let picture = workshop.take_picture(process).expect("picture");
    workshop.close(process).expect("closes");
    quiesced.resume().expect("resumes");
    picture
}

/// A file that an ordinary user may lock, too.
fn lock_file(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("wf-picture-{}-{name}", std::process::id()));
    std::fs::write(&path, "").expect("file");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(&path, open).expect("mode");
    path
}

fn words(memory: &ckpt_lib::tracee::Memory, mib: u64) -> Vec<u64> {
    let mut bytes = vec![0; (mib << 20) as usize];
    memory.read(MEMORY, &mut bytes).expect("read");
    let words = bytes.as_chunks::<8>().0;
    words.iter().map(|raw| u64::from_le_bytes(*raw)).collect()
}

fn is_alive(pid: HostPid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.0));
    status.is_ok_and(|status| !status.contains("State:\tZ"))
}

#[test]
fn it_shows_the_moment_of_the_freeze_while_the_job_goes_on() {
    for who in [As::Self_, As::User] {
        let lock = lock_file("moment");
        let job = Job::start(who, &["picture", "8", lock.to_str().expect("utf-8")]);
        for _ in 0..10 {
            let picture = take(job.pid());
            let seen = words(picture.memory(), 8);
            std::thread::sleep(Duration::from_millis(30));
            assert_eq!(words(picture.memory(), 8), seen, "the picture changes");
            // Written from below: the new number up to some word, the one before behind it.
            let (first, last) = (seen[0], seen[seen.len() - 1]);
            assert!(first == last || first == last + 1, "{first} {last}");
            let border = seen.partition_point(|word| *word == first);
            assert!(seen[border..].iter().all(|word| *word == last));
            let job_now = ckpt_lib::tracee::Memory::open(job.pid()).expect("memory");
            assert!(
                job_now.read_u64(MEMORY).expect("read") > first,
                "the job stands still"
            );
            let pid = picture.pid();
            drop(picture);
            assert!(!is_alive(pid));
        }
        let _ = std::fs::remove_file(lock);
    }
}

#[test]
fn nobody_in_the_job_notices_it() {
    for who in [As::Self_, As::User] {
        let lock = lock_file("notice");
        let mut job = Job::start(who, &["picture", "1", lock.to_str().expect("utf-8")]);
        let before = maps(job.pid());
        let picture = take(job.pid());
        assert_eq!(maps(job.pid()), before);
        assert_eq!(job.ask("w"), "wait -1 ECHILD children 0");
        // It holds no lock, though the job had the file open and locked when it was taken.
        let ours = std::fs::File::open(&lock).expect("open");
        assert!(!try_lock(&ours));
        assert_eq!(job.ask("c"), "closed");
        assert!(try_lock(&ours), "the picture holds the lock");
        let fds = std::fs::read_dir(format!("/proc/{}/fd", picture.pid().0));
        assert_eq!(fds.expect("fd").count(), 0);
        // Nor the write end of the job's output: its end is seen as soon as the job ends.
        let children = job.ask("w");
        assert_eq!(children, "wait -1 ECHILD children 0");
        job.send("q");
        assert_eq!(job.line(), "PASS");
        assert_eq!(job.line(), "");
        assert!(is_alive(picture.pid()));
        let pid = picture.pid();
        drop(picture);
        assert!(!is_alive(pid));
        let _ = std::fs::remove_file(lock);
    }
}

fn maps(pid: HostPid) -> String {
    std::fs::read_to_string(format!("/proc/{}/maps", pid.0)).expect("maps")
}

fn try_lock(file: &std::fs::File) -> bool {
    let _ = file.as_raw_fd();
    file.try_lock().is_ok()
}

#[test]
fn it_vanishes_with_whoever_took_it() {
    let lock = lock_file("vanish");
    let job = Job::start(As::Self_, &["picture", "1", lock.to_str().expect("utf-8")]);
    let mut taker = Command::new(std::env::current_exe().expect("exe"))
        .args(["--ignored", "--exact", "the_taker_that_dies", "--nocapture"])
        .env("WAYFARER_TEST_PID", job.pid().0.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("spawn");
    let mut lines = BufReader::new(taker.stdout.take().expect("stdout")).lines();
    let picture = lines.find_map(|line| {
        let line = line.expect("line");
        Some(HostPid(line.strip_prefix("picture ")?.parse().ok()?))
    });
    let picture = picture.expect("picture");
    assert!(is_alive(picture));
    taker.kill().expect("kill");
    taker.wait().expect("wait");
    let deadline = Instant::now() + 5 * SECOND;
    while is_alive(picture) {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(is_alive(job.pid()));
    let _ = std::fs::remove_file(lock);
}

/// Not a test of its own: see above.
#[test]
#[ignore = "run by the test above"]
fn the_taker_that_dies() {
    let Ok(pid) = std::env::var("WAYFARER_TEST_PID") else {
        return;
    };
    let picture = take(HostPid(pid.parse().expect("pid")));
    println!("picture {}", picture.pid().0);
    std::thread::sleep(30 * SECOND);
}

#[test]
fn a_job_that_takes_orphans_gets_no_picture() {
    let job = Job::start(As::Self_, &["reaper"]);
    let mut quiesced = Quiesced::stop(&[job.pid()], 10 * SECOND).expect("stops");
    let process = &mut quiesced.processes_mut()[0];
    let mut workshop = Workshop::open(process, None).expect("opens");
    let error = workshop.take_picture(process).expect_err("reaper");
    assert!(
        matches!(error, ckpt_lib::inject::InjectError::Reaper { .. }),
        "{error:?}"
    );
    workshop.close(process).expect("closes");
    quiesced.resume().expect("resumes");
    job.await_status("S (sleeping)");
}

#[test]
fn no_process_to_be_had_is_an_error_and_no_harm() {
    // A limit of its user's processes that is reached already; root has none.
    let job = Job::start(As::User, &["crowded"]);
    let mut quiesced = Quiesced::stop(&[job.pid()], 10 * SECOND).expect("stops");
    let process = &mut quiesced.processes_mut()[0];
    let mut workshop = Workshop::open(process, None).expect("opens");
    let result = workshop.take_picture(process);
    if job::is_root() {
        let error = result.expect_err("crowded");
        assert!(
            matches!(error, ckpt_lib::inject::InjectError::Refused { .. }),
            "{error:?}"
        );
    }
    workshop.close(process).expect("closes");
    quiesced.resume().expect("resumes");
    job.await_status("S (sleeping)");
}

#[test]
fn a_freeze_is_short() {
    let lock = lock_file("freeze");
    let job = Job::start(As::Self_, &["picture", "16", lock.to_str().expect("utf-8")]);
    let mut best: Option<[Duration; 6]> = None;
    for _ in 0..20 {
        let mut quiesced = Quiesced::stop(&[job.pid()], 10 * SECOND).expect("stops");
        let began = Instant::now();
        let process = &mut quiesced.processes_mut()[0];
        let mut workshop = Workshop::open(process, None).expect("opens");
        let opened = began.elapsed();
        let mut list = CallList::new();
        list.call(libc::SYS_getpid, &[]);
        let tid = process.threads[0].tid;
        workshop.run(process, vec![(tid, list)]).expect("runs");
        let listed = began.elapsed();
        let picture = workshop.take_picture(process).expect("picture");
        let taken = began.elapsed();
        workshop.close(process).expect("closes");
        let closed = began.elapsed();
        quiesced.resume().expect("resumes");
        let all = began.elapsed();
        if best.is_none_or(|best| all < best[5]) {
            best = Some([opened, listed, taken, closed, all, all]);
        }
        drop(picture);
    }
    let [opened, listed, taken, closed, resumed, all] = best.expect("measured");
    println!(
        "16 MiB: opened {opened:?}, list {listed:?}, picture {taken:?}, closed {closed:?}, resumed {resumed:?}"
    );
    assert!(all < Duration::from_millis(50), "{all:?}");
    let _ = std::fs::remove_file(lock);
}

#[test]
fn a_reserve_of_terabytes_costs_nothing() {
    let (job, lines) = Job::start_with_lines(As::Self_, &["reserve"]);
    let start = u64::from_str_radix(lines[0].trim_start_matches("0x"), 16).expect("address");
    let before = job.page_tables_kib();
    let picture = take(job.pid());
    let began = Instant::now();
    let range = start..start + (16 << 40);
    let found = pages::resident(picture.pid(), range, PageKinds::Anonymous).expect("pages");
    println!("16 TiB: pages found in {:?}", began.elapsed());
    assert!(began.elapsed() < SECOND);
    let touched = [start + (1 << 40), start + (9 << 40)];
    for address in touched {
        assert!(found.iter().any(|range| range.contains(&address)));
    }
    let total: u64 = found.iter().map(|range| range.end - range.start).sum();
    assert!(total <= 4 << 20, "{total}"); // at most a huge page each
    assert_eq!(job.page_tables_kib(), before);
}
