//! A job's memory is put in its place at the other machine before the job leaves.

use super::pool::{DEADLINE, EMPTY, FULL, Pool, signal};
use super::prepared::{IDLE, steps, works};
use crate::support::run::{Run, poll};
use crate::support::user::User;
use nix::sys::signal::Signal;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Memory that changes in all the ways between two images: bytes, pages that are given back and are zeros then, mappings that come and go,
/// one that grows. It knows what there has to be, and looks at the end.
const GUEST: &str = "\
import mmap, os, time
page = 4096
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
def region(mib):
    memory = mmap.mmap(-1, mib << 20, flags=flags)
    memory.write(os.urandom(mib << 20))
    return memory
large = region(64)
model = bytearray(large[:])
growing = mmap.mmap(-1, 8 << 20, flags=flags)
growing.write(b'g' * (8 << 20))
others = [(region(2), None)]
others = [(one, bytes(one[:])) for one, _ in others]
at = steps = 0
while not os.path.exists('enough'):
    byte = os.urandom(1)
    large[at:at + 1] = model[at:at + 1] = byte
    gone = (at + 777 * page) % (64 << 20) // page * page
    if steps % 7 == 0:
        large.madvise(mmap.MADV_DONTNEED, gone, page)
        model[gone:gone + page] = bytes(page)
    at = (at + 2 * page + 1) % (64 << 20)
    steps += 1
    time.sleep(0.004)
    if steps % 25 == 0:
        one = region(2)
        others.append((one, bytes(one[:])))
        if len(others) > 4:
            others.pop(0)[0].close()
        with open('steps.new', 'w') as out:
            out.write(str(steps))
        os.rename('steps.new', 'steps')
assert large[:] == model
assert growing[:] == b'g' * (8 << 20)
assert all(one[:] == bytes for one, bytes in others)
for memory in [large, growing] + [one for one, _ in others]:
    memory.madvise(mmap.MADV_DONTNEED)
    assert memory[:] == bytes(len(memory))
growing.resize(16 << 20)
growing[(16 << 20) - 1] = 1
";

pub(super) fn begin(pool: &Pool, options: &[&str]) -> Run {
    let program = ["/usr/bin/python3", "-c", GUEST].map(str::to_owned);
    let options = [&["--every", "1h"], options].concat();
    let job = pool.submit_other(&[FULL, EMPTY], &options, &program);
    pool.until_on(FULL, 1);
    works(pool, 50);
    job
}

pub(super) fn words(pid: i32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).replace('\0', " ")
}

/// Those whose memory was put in its place ahead, or whose ancestor's was.
fn ahead(pool: &Pool) -> Vec<i32> {
    let all = pool.processes().into_iter();
    all.filter(|pid| words(*pid).contains(" --prepare-fd "))
        .collect()
}

/// Bytes of memory that a process has.
fn resident(pid: i32) -> usize {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = text.split_whitespace().nth(1);
    pages.and_then(|pages| pages.parse().ok()).unwrap_or(0) * 4096
}

/// Bytes of disk that images take which came to a machine.
fn arrived(pool: &Pool, machine: &str) -> u64 {
    let copies = fs::read_dir(pool.on(machine, "/home/.cache/wayfarer"));
    let copies = copies.into_iter().flatten().flatten();
    let images = copies.flat_map(|copy| fs::read_dir(copy.path().join("arrived")));
    let images = images.flatten().flatten();
    let blocks = images.filter_map(|image| Some(image.metadata().ok()?.blocks()));
    512 * blocks.sum::<u64>()
}

pub(super) fn ends_well(pool: Pool, mut job: Run) {
    fs::write(pool.home().join("enough"), "").expect("writes");
    let ended = job.wait(DEADLINE).expect("ends");
    assert_eq!(ended.code(), Some(0), "{}", pool.story());
    pool.nothing_is_left().expect("nothing is left");
    pool.remove();
}

#[test]
fn memory_is_in_its_place_before_the_job_leaves() {
    let what = "memory_is_in_its_place_before_the_job_leaves";
    moves_with_memory_ahead(what, User::Ordinary, &[]);
}

#[test]
fn memory_is_in_its_place_before_a_job_of_root_leaves() {
    let what = "memory_is_in_its_place_before_a_job_of_root_leaves";
    moves_with_memory_ahead(what, User::Root, &[]);
}

#[test]
fn memory_is_in_its_place_before_a_confined_job_leaves() {
    let what = "memory_is_in_its_place_before_a_confined_job_leaves";
    moves_with_memory_ahead(what, User::Ordinary, &["--confine"]);
}

fn moves_with_memory_ahead(what: &str, user: User, options: &[&str]) {
    let Some(pool) = Pool::new(what, user, IDLE) else {
        return;
    };
    let job = begin(&pool, options);
    for (starts, machine) in [(2, EMPTY), (3, FULL)] {
        pool.told(&["migrate", "job", "--to", machine]);
        pool.until_on(machine, starts);
        works(&pool, steps(&pool));
        // The supervisor in its namespaces comes from whoever has put it there, who is gone.
        let made = ahead(&pool);
        assert_eq!(made.len(), 1, "{made:?}: {}", pool.story());
        // And has given up its share of what is the job's.
        assert!(resident(made[0]) < 16 << 20, "{}", resident(made[0]));
        // Nor do the images that came take disk while it runs: when it leaves, that would be waited for.
        let given_back = poll(DEADLINE, || {
            (arrived(&pool, machine) < 16 << 20).then_some(())
        });
        assert!(given_back.is_some(), "{}", arrived(&pool, machine));
    }
    ends_well(pool, job);
}

/// Whoever has put memory in its place is killed, or whoever is to become the supervisor: the job moves all the same.
#[test]
fn a_move_does_without_what_was_put_in_its_place() {
    let what = "a_move_does_without_what_was_put_in_its_place";
    let Some(pool) = Pool::new(what, User::Ordinary, IDLE) else {
        return;
    };
    let job = begin(&pool, &[]);
    for (starts, machine, whose) in [
        (2, EMPTY, " --prepare-fd "),
        (3, FULL, " ahead --orders-fd "),
    ] {
        let before = ahead(&pool);
        let mut moving = pool.begin_telling(&["migrate", "job", "--to", machine]);
        let victim = poll(DEADLINE, || {
            let mut all = pool.processes().into_iter();
            all.find(|pid| !before.contains(pid) && words(*pid).contains(whose))
        });
        signal(
            victim.unwrap_or_else(|| panic!("{}", pool.story())),
            Signal::SIGKILL,
        );
        let told = moving.wait(DEADLINE).expect("ends");
        assert_eq!(told.code(), Some(0), "{}", moving.err.text());
        pool.until_on(machine, starts);
        works(&pool, steps(&pool));
        assert!(ahead(&pool).is_empty(), "{}", pool.story());
    }
    ends_well(pool, job);
}
