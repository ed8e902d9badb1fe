//! What a process writes to while it is watched, against what has really changed.

mod job;
#[path = "../../tests/support/skip.rs"]
mod skip;

use ckpt_lib::inject::Workshop;
use ckpt_lib::tracee::{HostPid, Memory, Quiesced};
use ckpt_lib::watch::Watch;
use job::As;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

const PAGE: u64 = 4096;
const LEN: u64 = 64 << 20;
/// Nobody has this image.
const IMAGE: [u8; 32] = [7; 32];

/// Has memory of which every page is there, and does with it what it is told, line by line.
const GUEST: &str = r"
import ctypes, mmap, os, sys
c = ctypes.CDLL(None, use_errno=True)
c.mmap.restype = c.mremap.restype = ctypes.c_void_p
A = lambda n: ctypes.c_void_p(n)
at = c.mmap(None, A(64 << 20), 3, 0x22, -1, A(0))
def fill(page): ctypes.memset(A(at + page * 4096), page % 251 + 1, 4096)
for page in range(16384): fill(page)
# Of a kind that cannot be watched (MAP_DROPPABLE), if the kernel has it.
c.mmap(None, A(4 << 20), 3, 0x28, -1, A(0))
zero = os.open('/dev/zero', os.O_RDONLY)
print(at, flush=True)
for line in sys.stdin:
    exec(line)
    print('done', flush=True)
";

struct Guest {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    at: u64,
}

impl Guest {
    fn start(who: As) -> Guest {
        let mut command = Command::new("python3");
        command.args(["-c", GUEST]).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        who.apply(&mut command);
        let mut child = command.spawn().expect("python3");
        let input = child.stdin.take().expect("a pipe");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("reads");
        let at = line.trim().parse().expect("an address");
        Guest {
            child,
            input,
            output,
            at,
        }
    }

    fn pid(&self) -> HostPid {
        HostPid(i32::try_from(self.child.id()).expect("pid"))
    }

    fn told(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("takes it");
        let mut answer = String::new();
        self.output.read_line(&mut answer).expect("answers");
        assert_eq!(answer, "done\n", "{line}");
    }

    fn memory(&self) -> Vec<u8> {
        let mut bytes = vec![0; LEN as usize];
        let memory = Memory::open(self.pid()).expect("memory");
        memory.read(self.at, &mut bytes).expect("reads");
        bytes
    }

    /// Numbers of the pages of its memory that are in these ranges.
    fn pages(&self, ranges: &[Range<u64>]) -> Vec<u64> {
        let ours = self.at..self.at + LEN;
        let pages = ranges.iter().flat_map(|range| {
            let (start, end) = (range.start.max(ours.start), range.end.min(ours.end));
            (start..end.max(start))
                .step_by(PAGE as usize)
                .map(|page| (page - ours.start) / PAGE)
        });
        pages.collect()
    }

    fn is_watched(&self) -> bool {
        let smaps = std::fs::read_to_string(format!("/proc/{}/smaps", self.pid().0));
        let smaps = smaps.expect("smaps");
        let mut flags = smaps.lines().filter(|line| line.starts_with("VmFlags"));
        flags.any(|line| line.contains(" uw"))
    }

    fn descriptors(&self) -> usize {
        let list = std::fs::read_dir(format!("/proc/{}/fd", self.pid().0));
        list.expect("a list").count()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn stop(pid: HostPid) -> Quiesced {
    Quiesced::stop(&[pid], Duration::from_secs(10)).expect("stops")
}

/// None, with the reason noted, where the kernel cannot.
fn begin(guest: &Guest, what: &str) -> Option<Watch> {
    let mut quiesced = stop(guest.pid());
    let process = &mut quiesced.processes_mut()[0];
    let mut workshop = Workshop::open(process, None).expect("opens");
    let fd = workshop.userfaultfd(process);
    workshop.close(process).expect("closes");
    let begun = fd
        .map_err(|error| error.to_string())
        .and_then(|fd| Watch::begin(fd, guest.pid()).map_err(|error| error.to_string()));
    quiesced.resume().expect("resumes");
    match begun {
        Ok(watch) => Some(watch.of(IMAGE)),
        Err(why) => {
            skip::note(what, &why);
            None
        }
    }
}

#[test]
fn what_is_not_written_to_is_known_and_nothing_else_is_taken_for_it() {
    for who in [As::Self_, As::User] {
        let mut guest = Guest::start(who);
        let (before, descriptors) = (guest.memory(), guest.descriptors());
        let what = "what_is_not_written_to_is_known_and_nothing_else_is_taken_for_it";
        let Some(watch) = begin(&guest, what) else {
            return;
        };
        assert!(guest.is_watched());
        assert_eq!(
            guest.descriptors(),
            descriptors,
            "it has no descriptor more"
        );
        // By itself, by the kernel, given back and touched again, read anew, moved away and mapped anew, by a process of ours, the same bytes.
        for line in [
            "ctypes.memset(A(at + 3 * 4096 + 7), 0, 1)",
            "os.readv(zero, [(ctypes.c_char * 8192).from_address(at + 700 * 4096)])",
            "c.madvise(A(at + 1000 * 4096), A(8 * 4096), 4); fill(1002)",
            "c.madvise(A(at + 2000 * 4096), A(4096), 4); ctypes.string_at(at + 2000 * 4096, 9)",
            "c.munmap(A(at + 3000 * 4096), A(16 * 4096)); c.mmap(A(at + 3000 * 4096), A(16 * 4096), 3, 0x32, -1, A(0)); fill(3001)",
            "c.mremap(A(at + 4000 * 4096), A(512 * 4096), A(512 * 4096), 3, A(at + 8000 * 4096)); c.mmap(A(at + 4000 * 4096), A(512 * 4096), 3, 0x32, -1, A(0))",
            "if os.fork() == 0: fill(6000); os._exit(0)",
            "os.wait(); c.mprotect(A(at + 7000 * 4096), A(16 * 4096), 1)",
            "fill(9000)",
        ] {
            guest.told(line);
        }
        let quiesced = stop(guest.pid());
        let unwritten = watch.end(guest.pid()).expect("is known");
        let after = guest.memory();
        assert!(!guest.is_watched());
        quiesced.resume().expect("resumes");
        let pages = guest.pages(&unwritten);
        let of =
            |bytes: &[u8], page: u64| bytes[(page * PAGE) as usize..][..PAGE as usize].to_vec();
        for page in &pages {
            assert_eq!(of(&after, *page), of(&before, *page), "page {page}");
        }
        for page in [3, 700, 1000, 1002, 2000, 3000, 3001, 4000, 8000, 8511, 9000] {
            assert!(
                !pages.contains(&page),
                "{page} has been written to or replaced"
            );
        }
        for page in [0, 2, 4, 699, 999, 1008, 2999, 3016, 6000, 7000, 16383] {
            assert!(pages.contains(&page), "{page} has not been written to");
        }
        assert!(pages.len() > 15_000, "{}", pages.len());
        // It can be watched once more.
        let watch = begin(&guest, what).expect("as before");
        guest.told("fill(5)");
        let quiesced = stop(guest.pid());
        let unwritten = watch.end(guest.pid()).expect("is known");
        quiesced.resume().expect("resumes");
        let pages = guest.pages(&unwritten);
        assert!(!pages.contains(&5) && pages.contains(&3) && pages.contains(&9000));
    }
}

#[test]
fn a_watch_that_is_dropped_is_over() {
    let mut guest = Guest::start(As::User);
    guest.told("c.munmap(A(at + 100 * 4096), A(8 * 4096))");
    let Some(watch) = begin(&guest, "a_watch_that_is_dropped_is_over") else {
        return;
    };
    // What was watched is in small pieces by now.
    guest.told("[c.munmap(A(at + n * 4096), A(4096)) for n in range(200, 16384, 50)]");
    assert!(guest.is_watched());
    drop(watch);
    assert!(!guest.is_watched());
    let watch = begin(&guest, "a_watch_that_is_dropped_is_over").expect("as before");
    guest.told("[c.munmap(A(at + n * 4096), A(4096)) for n in range(20, 200, 50)]");
    let quiesced = stop(guest.pid());
    watch.end(guest.pid()).expect("is known");
    assert!(
        !guest.is_watched(),
        "pieces that are too small to be watched"
    );
    quiesced.resume().expect("resumes");
}
