//! The ticking job, as seen from the bench: started under wayfarer, asked through a shared page.

use memmap2::MmapMut;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const RESET_GAP: u64 = 1;
const FORK: u64 = 2;
const EXIT: u64 = 3;
const DEADLINE: Duration = Duration::from_secs(60);

/// Where everything lives: the guest, wayfarer's state, images.
pub(crate) struct Station {
    directory: tempfile::TempDir,
    guest: PathBuf,
    jobs: AtomicU64,
}

/// What came of a checkpoint.
pub(crate) struct Checkpointed {
    pub image: PathBuf,
    /// By wayfarer's own word.
    pub frozen: Duration,
    /// The same: behind all but contents, until it was durable.
    pub writing: Duration,
    /// The whole command.
    pub took: Duration,
    pub peak_kib: u64,
    /// Longest time between two ticks of the job.
    pub gap: Duration,
}

/// A ticking job; killed when dropped.
pub(crate) struct Job {
    child: Child,
    page: MmapMut,
    control: PathBuf,
    name: String,
}

impl Station {
    pub(crate) fn open() -> Self {
        let place = super::verdicts::setting("WF_BENCH_DIR", "/var/tmp");
        let directory = tempfile::tempdir_in(place).expect("a directory");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/guests/ticker.c");
        let guest = directory.path().join("ticker");
        let mut compiler = Command::new("cc");
        compiler
            .args(["-O2", "-pthread", "-o"])
            .arg(&guest)
            .arg(source);
        assert!(compiler.status().expect("cc").success());
        Station {
            directory,
            guest,
            jobs: AtomicU64::new(0),
        }
    }

    fn wayfarer(&self, verb: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wayfarer"));
        command
            .arg("--dir")
            .arg(self.directory.path().join("state"));
        command.arg(verb).stdin(Stdio::null());
        command
    }

    fn number(&self) -> u64 {
        self.jobs.fetch_add(1, Ordering::Relaxed)
    }

    /// How long `wayfarer run -- true` takes.
    pub(crate) fn run_true(&self) -> Duration {
        let begun = Instant::now();
        let status = self.wayfarer("run").args(["-q", "--", "true"]).status();
        assert!(status.expect("wayfarer run").success());
        begun.elapsed()
    }
}

impl Job {
    /// Starts the guest under `wayfarer run`; `size` is MiB, threads, mappings, GiB of reserve.
    pub(crate) fn start(station: &Station, size: &[u64; 4]) -> Self {
        let name = format!("bench-{}", station.number());
        let mut command = station.wayfarer("run");
        command
            .args(["-q", "--name", &name, "--"])
            .arg(&station.guest);
        Job::spawn(station, command, name, size)
    }

    /// Starts the guest by itself.
    pub(crate) fn start_alone(station: &Station, size: &[u64; 4]) -> Self {
        let name = format!("alone-{}", station.number());
        Job::spawn(station, Command::new(&station.guest), name, size)
    }

    fn spawn(station: &Station, mut command: Command, name: String, size: &[u64; 4]) -> Self {
        let control = station.directory.path().join(format!("{name}.page"));
        fs::write(&control, [0; 4096]).expect("control page");
        command
            .arg(&control)
            .args(size.map(|number| number.to_string()));
        let child = command.stdout(Stdio::null()).spawn().expect("start");
        let job = Job {
            child,
            page: map(&control),
            control,
            name,
        };
        job.wait_until("the job is ready", || job.word(5) == 1);
        job
    }

    /// Restarts an image; the job, and the time until its counter moved.
    pub(crate) fn restart(station: &Station, image: &Path) -> (Self, Duration) {
        let name = image
            .file_stem()
            .and_then(|stem| stem.to_str())
            .expect("name");
        let control = station.directory.path().join(format!("{name}.page"));
        let page = map(&control);
        let again = format!("again-{}", station.number());
        let mut command = station.wayfarer("restart");
        // The control page has gone on since the checkpoint.
        command
            .args(["--name", &again, "--files", "keep"])
            .arg(image);
        let mut job = Job {
            // The page is there already: it shows the last tick before the restart.
            child: {
                page_word(&page, 2).store(0, Ordering::SeqCst);
                Command::new("true").spawn().expect("true")
            },
            page,
            control,
            name: again,
        };
        job.child.wait().expect("true");
        let before = job.word(0);
        let begun = Instant::now();
        job.child = command.stdout(Stdio::null()).spawn().expect("restart");
        while job.word(0) == before {
            assert!(
                begun.elapsed() < DEADLINE,
                "the restarted job does not tick"
            );
            std::thread::sleep(Duration::from_micros(50));
        }
        (job, begun.elapsed())
    }

    /// Makes an image of the job, which goes on.
    pub(crate) fn checkpoint(&mut self, station: &Station) -> Checkpointed {
        self.ask(RESET_GAP);
        let image = station.directory.path().join(format!("{}.img", self.name));
        let mut command = station.wayfarer("checkpoint");
        command
            .arg("--json")
            .arg("--output")
            .arg(&image)
            .arg(&self.name);
        let begun = Instant::now();
        let child = command.stdout(Stdio::piped()).spawn().expect("checkpoint");
        let (output, peak_kib) = output_and_peak(child);
        let took = begun.elapsed();
        let report: serde_json::Value = serde_json::from_str(&output).expect("JSON");
        let time = |name: &str| Duration::from_micros(report[name].as_u64().expect("a time"));
        let ticks = self.word(0);
        self.wait_until("the job ticks on", || self.word(0) > ticks + 2);
        Checkpointed {
            image,
            frozen: time("frozen_us"),
            writing: time("writing_us"),
            took,
            peak_kib,
            gap: Duration::from_nanos(self.word(1)),
        }
    }

    /// Has the job fork, and returns how long that took.
    pub(crate) fn fork(&mut self) -> Duration {
        self.ask(FORK);
        Duration::from_nanos(self.word(4))
    }

    /// Has the job do work of this kind for a while, and returns how long that took.
    pub(crate) fn work(&mut self, kind: u64) -> Duration {
        self.ask(kind);
        Duration::from_nanos(self.word(4))
    }

    /// KiB of page tables of the guest.
    pub(crate) fn page_table_kib(&self) -> u64 {
        let control = self.control.as_os_str().as_encoded_bytes();
        let is_guest = |pid: &str| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut words = line.split(|byte| *byte == 0);
            words.next().is_some_and(|word| word.ends_with(b"/ticker"))
                && words.next() == Some(control)
        };
        let pids = fs::read_dir("/proc").expect("/proc").flatten();
        let names = pids.filter_map(|entry| entry.file_name().into_string().ok());
        let pid = names.into_iter().find(|pid| is_guest(pid)).expect("guest");
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmPTE:"));
        let value = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        value.expect("VmPTE")
    }

    /// Ends the job and waits for it.
    pub(crate) fn end(&mut self) {
        page_word(&self.page, 2).store(EXIT, Ordering::SeqCst);
        let until = Instant::now() + DEADLINE;
        while Instant::now() < until {
            if self.child.try_wait().expect("wait").is_some() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("job {} does not end", self.name);
    }

    fn ask(&mut self, request: u64) {
        let answered = self.word(3);
        page_word(&self.page, 2).store(request, Ordering::SeqCst);
        self.wait_until("the job answers", || self.word(3) > answered);
    }

    fn word(&self, index: usize) -> u64 {
        page_word(&self.page, index).load(Ordering::SeqCst)
    }

    fn wait_until(&self, what: &str, done: impl Fn() -> bool) {
        let until = Instant::now() + DEADLINE;
        while !done() {
            assert!(
                Instant::now() < until,
                "{}: waited in vain until {what}",
                self.name
            );
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        page_word(&self.page, 2).store(EXIT, Ordering::SeqCst);
        // Time to end by itself; whatever has not is killed.
        std::thread::sleep(Duration::from_millis(5));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn map(path: &Path) -> MmapMut {
    let file: File = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .expect("control page");
    // SAFETY: the file is ours and keeps its length; all access is by atomics.
    unsafe { MmapMut::map_mut(&file) }.expect("mapped")
}

fn page_word(page: &MmapMut, index: usize) -> &AtomicU64 {
    // SAFETY: the mapping is a page, shared and aligned, and all access to it is atomic.
    let word = unsafe { page.as_ptr().cast::<AtomicU64>().add(index) };
    // SAFETY: the word is inside the page, aligned, and only ever used as an atomic.
    unsafe { &*word }
}

/// What a child prints, and its peak memory in KiB: its own, without that of its children (rusage would
/// count the job's copy-on-write child, which is no memory of wayfarer's).
fn output_and_peak(mut child: Child) -> (String, u64) {
    use std::io::Read;
    let status = format!("/proc/{}/status", child.id());
    let ended = std::sync::atomic::AtomicBool::new(false);
    let (output, peak_kib) = std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut peak_kib = 0;
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                let text = std::fs::read_to_string(&status).unwrap_or_default();
                let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
                let word = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
                peak_kib = word.unwrap_or(0).max(peak_kib);
                std::thread::sleep(Duration::from_millis(2));
            }
            peak_kib
        });
        let mut output = String::new();
        let mut stdout = child.stdout.take().expect("piped");
        stdout.read_to_string(&mut output).expect("output");
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        (output, sampler.join().expect("sampler"))
    });
    let status = child.wait().expect("wait");
    assert!(status.success(), "wayfarer checkpoint failed: {output}");
    (output, peak_kib)
}
