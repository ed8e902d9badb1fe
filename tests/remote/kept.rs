//! Images that are kept at the shadow: a job whose machine is lost, with its disk, goes on elsewhere by the same command.

use super::cut::start_secure;
use super::durable::{KEPT, Mortal, python};
use super::lines::processes_with;
use super::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::run::poll;

/// Appends a line for each file `go-1`, `go-2` ... that there is; all of its memory is checked at its end.
const SCRIPT: &str = "
import os, time, zlib
memory = bytearray(os.urandom(1 << 16) * 128)
digest = zlib.crc32(memory)
log = open('log', 'a'); done = 0
print('begun', flush=True)
while done < 8:
    while os.path.exists(f'go-{done + 1}'):
        done += 1
        memory[done] = done; digest = zlib.crc32(memory)
        log.write(f'{done}\\n'); log.flush()
    time.sleep(0.01)
assert digest == zlib.crc32(memory)
print('the end')
";

const KEEPS: [&str; 6] = [
    "--state",
    "keep-tls",
    "--journal",
    "undo-tls",
    "--images",
    "kept",
];

/// A shadow, and machines that know nothing of each other.
struct Pool {
    mortal: Mortal,
    shadow: Run,
    address: String,
}

impl Pool {
    fn new(options: &[&str]) -> Self {
        let mortal = Mortal::new(&KEPT);
        let (shadow, address) = start_secure(&mortal, 0, options);
        let pool = Pool {
            mortal,
            shadow,
            address,
        };
        pool.go(0);
        pool
    }

    fn dir(&self) -> &Path {
        &self.mortal.submit.dir
    }

    /// So many lines may be written. It never has these files open: another one in its place would be no file of an image.
    fn go(&self, lines: usize) {
        for line in 1..=8 {
            let go = self.mortal.submit.home().join(format!("go-{line}"));
            match line <= lines {
                true => fs::write(go, "").expect("writes"),
                false if go.exists() => fs::remove_file(go).expect("removes"),
                false => {}
            }
        }
    }

    /// When there are as many.
    fn until(&self, lines: usize) {
        let log = self.mortal.submit.home().join("log");
        let expected: String = (1..=lines).map(|line| format!("{line}\n")).collect();
        let there = poll(SOON, || {
            let found = fs::read_to_string(&log).unwrap_or_default();
            (found == expected).then_some(())
        });
        let found = fs::read_to_string(&log);
        assert!(there.is_some(), "{found:?}\n{}", self.shadow.err.text());
    }

    fn wayfarer(&self, machine: &str, words: &[&str]) -> Command {
        let mut command = clean_command(stage::wayfarer());
        command.env("XDG_RUNTIME_DIR", self.dir().join("door"));
        command.arg("--dir").arg(self.dir().join(machine));
        command.args(words);
        command
    }

    fn reach(&self, command: &mut Command) {
        command.args(["--shadow", &self.address, "--identity-file"]);
        command.arg(self.dir().join("door/identity"));
    }

    /// What every machine is told.
    fn run(&self, machine: &str) -> Run {
        self.run_with(machine, &[], SCRIPT)
    }

    fn run_with(&self, machine: &str, options: &[&str], script: &str) -> Run {
        let words = [
            "run", "--resume", "--name", "job", "--images", "shadow", "--every", "1h",
        ];
        let mut command = self.wayfarer(machine, &words);
        command.args(options);
        command.arg("--chdir").arg(self.mortal.submit.home());
        self.reach(&mut command);
        command.arg("--").args(python(script));
        Run::start(machine, command, User::Ordinary).expect("starts")
    }

    fn begun(&self, machine: &str) -> Run {
        let mut job = self.run(machine);
        job.wait_line("begun", SOON).expect("begins");
        job
    }

    /// An image is made; or why not.
    fn image(&self, machine: &str) -> Result<(), String> {
        let (_, said, status) = output(
            "the checkpoint",
            self.wayfarer(machine, &["checkpoint", "job"]),
        );
        match status {
            Some(0) => Ok(()),
            _ => Err(said),
        }
    }

    /// Nothing of a machine is left but what is elsewhere.
    fn lose(&self, machine: &str, job: Run) {
        self.kill_all(machine, job);
        fs::remove_dir_all(self.dir().join(machine)).expect("removes");
    }

    fn kill_all(&self, machine: &str, mut job: Run) {
        let path = self.dir().join(machine);
        let path = path.to_str().expect("is text");
        for pid in processes_with(path).into_iter().chain(self.starters()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        job.wait(SOON).expect("is gone");
    }

    fn starters(&self) -> Vec<i32> {
        let own = processes_with(&self.address);
        let starters = processes_with("starter");
        starters
            .into_iter()
            .filter(|pid| own.contains(pid))
            .collect()
    }

    /// Generations that are kept.
    fn kept(&self) -> Vec<u64> {
        let entries = fs::read_dir(self.dir().join("kept/job")).expect("lists");
        let number = |name: &str| {
            name.strip_prefix("job-")?
                .strip_suffix(".img")?
                .parse()
                .ok()
        };
        let mut found: Vec<u64> = entries
            .flatten()
            .filter_map(|entry| number(entry.file_name().to_str()?))
            .collect();
        found.sort_unstable();
        found
    }

    fn ends_well(&self, mut job: Run) -> Run {
        self.go(8);
        let status = job.wait(DEADLINE).expect("ends");
        let log = self.shadow.err.text();
        assert!(status.success(), "{}{log}", job.describe());
        assert!(job.out.text().ends_with("the end\n"), "{}", job.describe());
        self.until(8);
        job
    }
}

#[test]
fn a_job_whose_machine_is_lost_with_its_disk_goes_on_from_its_shadow() {
    let what = "a_job_whose_machine_is_lost_with_its_disk_goes_on_from_its_shadow";
    if missing(what) {
        return;
    }
    let pool = Pool::new(&KEEPS);
    let job = pool.begun("first");
    for lines in [1, 2, 3] {
        pool.go(lines);
        pool.until(lines);
        pool.image("first")
            .unwrap_or_else(|why| panic!("{why}{}", pool.shadow.err.text()));
    }
    assert_eq!(pool.kept(), [2, 3], "as many as are kept here");
    // Only what has changed has gone there.
    let log = pool.shadow.err.text();
    let number = |line: &str, key: &str| -> u64 {
        let at = line.find(key).expect("is said") + key.len();
        let digits = line[at..].split(|c: char| !c.is_ascii_digit()).next();
        digits
            .and_then(|digits| digits.parse().ok())
            .expect("a number")
    };
    let came: Vec<_> = log
        .lines()
        .filter(|line| line.contains("an image has come"))
        .collect();
    assert_eq!(came.len(), 3, "{log}");
    assert!(number(came[0], "sent=") > 8 << 20, "{}", came[0]);
    for line in &came[1..] {
        assert!(
            10 * number(line, "sent=") < number(line, "whole="),
            "{line}"
        );
    }
    // What it does since is undone.
    pool.go(5);
    pool.until(5);
    pool.lose("first", job);
    pool.go(3);
    let again = pool.run("second");
    pool.until(3);
    pool.go(4);
    pool.until(4);
    pool.image("second").expect("is made");
    assert_eq!(pool.kept(), [3, 4]);
    let ended = pool.ends_well(again);
    assert!(
        ended
            .err
            .text()
            .contains("image 3 of job job has come from the shadow"),
        "{}",
        ended.describe()
    );
    // It is completed, wherever it is asked for.
    let gone = poll(SOON, || pool.kept().is_empty().then_some(()));
    assert!(gone.is_some(), "images of a job that is completed stay");
    let mut third = pool.run("third");
    let status = third.wait(SOON).expect("ends");
    assert!(
        !status.success() && third.err.text().contains("has been completed"),
        "{}",
        third.describe()
    );
}

#[test]
fn a_damaged_image_at_the_shadow_is_passed_over() {
    let what = "a_damaged_image_at_the_shadow_is_passed_over";
    if missing(what) {
        return;
    }
    let pool = Pool::new(&KEEPS);
    let job = pool.begun("first");
    for lines in [1, 2] {
        pool.go(lines);
        pool.until(lines);
        pool.image("first").expect("is made");
    }
    pool.lose("first", job);
    let newest = pool.dir().join("kept/job/job-2.img");
    let mut bytes = fs::read(&newest).expect("reads");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&newest, bytes).expect("writes");
    let words = ["restart", "job", "--images", "shadow"];
    let mut command = pool.wayfarer("second", &words);
    pool.reach(&mut command);
    pool.go(1);
    let again = Run::start("the restarted job", command, User::Ordinary).expect("starts");
    pool.until(1);
    let ended = pool.ends_well(again);
    let said = ended.err.text();
    assert!(said.contains("image 2 at the shadow is not used"), "{said}");
    assert!(said.contains("image 1 of job job has come"), "{said}");
}

/// A machine is cut off, its job goes on elsewhere, and then the machine is there again: it finds its copy fenced, and does not go on with the job.
#[test]
fn a_machine_that_comes_back_does_not_take_its_job_away_again() {
    let what = "a_machine_that_comes_back_does_not_take_its_job_away_again";
    if missing(what) {
        return;
    }
    let pool = Pool::new(&KEEPS);
    let mut first = pool.begun("first");
    pool.go(1);
    pool.until(1);
    pool.image("first").expect("is made");
    pool.go(2);
    pool.until(2);
    let cut = pool.starters();
    assert!(!cut.is_empty(), "{}", first.describe());
    let tell = |signal| {
        for pid in &cut {
            kill(Pid::from_raw(*pid), signal).expect("is there");
        }
    };
    tell(Signal::SIGSTOP);
    pool.go(1);
    let second = pool.run("second");
    pool.until(1);
    pool.go(3);
    pool.until(3);
    tell(Signal::SIGCONT);
    let status = first.wait(DEADLINE).expect("ends");
    let said = first.err.text();
    assert_eq!(status.code(), Some(1), "{}", first.describe());
    assert!(said.contains("a newer copy of the job has begun"), "{said}");
    let (status, _, _) = output("its status", pool.wayfarer("first", &["status", "job"]));
    assert!(status.contains("Held"), "{status}");
    // What it has not taken part in is as it should be.
    pool.until(3);
    pool.image("second").expect("is made");
    pool.ends_well(second);
}

/// What it had stays, the job runs on, and the next one comes when there is a shadow again.
#[test]
fn a_shadow_that_is_killed_while_an_image_comes_keeps_what_it_had() {
    let what = "a_shadow_that_is_killed_while_an_image_comes_keeps_what_it_had";
    if missing(what) {
        return;
    }
    let mut pool = Pool::new(&KEEPS);
    let job = pool.begun("first");
    pool.go(1);
    pool.until(1);
    pool.image("first").expect("is made");
    let rate = |rate| {
        let command = pool.wayfarer("first", &["image-rate", "job", rate]);
        let (_, said, status) = output("the rate", command);
        assert_eq!(status, Some(0), "{said}");
    };
    // What is written here is fast enough, and what is sent there is not.
    pool.go(2);
    pool.until(2);
    rate("300K");
    let words = ["checkpoint", "job"];
    let command = pool.wayfarer("first", &words);
    let mut making = Run::start("the checkpoint", command, User::Ordinary).expect("starts");
    let part = pool.dir().join("kept/job/.carried");
    let comes = poll(DEADLINE, || part.exists().then_some(()));
    assert!(comes.is_some(), "{}", making.describe());
    kill(Pid::from_raw(pool.shadow.pid() as i32), Signal::SIGKILL).expect("is there");
    pool.shadow.wait(SOON).expect("is dead");
    pool.shadow = start_secure(&pool.mortal, 0, &KEEPS).0;
    let status = making.wait(DEADLINE).expect("ends");
    assert!(!status.success(), "{}", making.describe());
    assert_eq!(pool.kept(), [1]);
    let command = pool.wayfarer("first", &["image-rate", "job", "none"]);
    let (_, said, status) = output("the rate", command);
    assert_eq!(status, Some(0), "{said}");
    pool.image("first").expect("is made");
    let kept = pool.kept();
    assert!(kept.len() == 2 && kept[0] == 1, "{kept:?}");
    pool.ends_well(job);
}

/// What makes room is what is of no use, not the last image that is good; and one that is to be elsewhere is made beside them.
#[test]
fn a_damaged_image_makes_room_at_the_shadow_and_no_good_one() {
    let what = "a_damaged_image_makes_room_at_the_shadow_and_no_good_one";
    if missing(what) {
        return;
    }
    let mut pool = Pool::new(&KEEPS);
    let job = pool.begun("first");
    for lines in [1, 2] {
        pool.go(lines);
        pool.until(lines);
        pool.image("first").expect("is made");
    }
    let newest = pool.dir().join("kept/job/job-2.img");
    let mut bytes = fs::read(&newest).expect("reads");
    let (len, middle) = (bytes.len(), bytes.len() / 2);
    bytes[middle] ^= 1;
    fs::write(&newest, bytes).expect("writes");
    kill(Pid::from_raw(pool.shadow.pid() as i32), Signal::SIGKILL).expect("is there");
    pool.shadow.wait(SOON).expect("is dead");
    // Two of them, and no third.
    let most = (len * 5 / 2).to_string();
    let port = pool.address.rsplit_once(':').expect("has a port").1;
    let port = port.parse().expect("a number");
    let options = [&KEEPS[..], &["--images-max", &most]].concat();
    pool.shadow = start_secure(&pool.mortal, port, &options).0;
    pool.image("first").expect("is made");
    assert_eq!(pool.kept(), [1, 3]);
    let file = pool.dir().join("first/own.img");
    let words = ["checkpoint", "job", "-o", file.to_str().expect("is text")];
    let (_, said, status) = output("a checkpoint", pool.wayfarer("first", &words));
    assert_eq!(status, Some(0), "{said}");
    assert!(file.exists() && pool.kept() == [1, 3], "{:?}", pool.kept());
    pool.ends_well(job);
}

/// Why there is none, and that the job runs on and what is kept stays.
#[test]
fn an_image_that_the_shadow_does_not_take_is_refused_by_name() {
    let what = "an_image_that_the_shadow_does_not_take_is_refused_by_name";
    if missing(what) {
        return;
    }
    let pool = Pool::new(&KEEPS[..4]);
    let mut job = pool.run("first");
    let status = job.wait(SOON).expect("ends");
    let keeps_none = "it keeps no images (wayfarer shadow --images DIR)";
    let is_said = job.err.text().contains(keeps_none);
    assert!(!status.success() && is_said, "{}", job.describe());

    let pool = Pool::new(&[&KEEPS[..], &["--images-max", "1M"]].concat());
    let job = pool.begun("first");
    let why = pool.image("first").expect_err("it is too large");
    assert!(why.contains("expected 1048576 at most together"), "{why}");
    assert_eq!(pool.kept(), [0; 0]);
    pool.ends_well(job);

    let pool = Pool::new(&KEEPS);
    let job = pool.begun("first");
    fs::create_dir_all(pool.dir().join("kept/job")).expect("makes");
    for name in [".job", "job-1.img"] {
        fs::write(pool.dir().join("kept/job").join(name), "another").expect("writes");
    }
    for path in ["kept", "kept/job", "kept/job/.job"] {
        User::Ordinary.own(&pool.dir().join(path));
    }
    let why = pool.image("first").expect_err("they are another's");
    assert!(
        why.contains("has images of another job of the name job"),
        "{why}"
    );
    pool.ends_well(job);

    // Nor is there anything of a job whose files are here.
    let words = ["run", "--images", "shadow", "--", "true"];
    let (_, why, status) = output("a job without a shadow", pool.wayfarer("first", &words));
    assert_eq!(status, Some(2), "{why}");
    assert!(why.contains("--shadow ADDRESS"), "{why}");
}

#[test]
fn a_job_that_is_removed_goes_at_its_shadow_too() {
    let what = "a_job_that_is_removed_goes_at_its_shadow_too";
    if missing(what) {
        return;
    }
    let pool = Pool::new(&KEEPS);
    let remove = |machine| {
        let words = ["remove", "job"];
        let (_, said, status) = output("remove", pool.wayfarer(machine, &words));
        assert_eq!(status, Some(0), "{said}");
        said
    };
    let is_kept = || pool.dir().join("kept/job").exists();
    let journals = || {
        fs::read_dir(pool.dir().join("undo-tls"))
            .expect("lists")
            .count()
    };
    let first = pool.begun("first");
    pool.go(1);
    pool.until(1);
    pool.image("first").expect("is made");
    pool.kill_all("first", first);
    // It has gone on elsewhere since: that is not the first one's to remove.
    let mut second = pool.run("second");
    pool.go(2);
    pool.until(2);
    let said = remove("first");
    assert!(
        said.contains("keeps stay there") && said.contains("and not from here"),
        "{said}"
    );
    assert_eq!((pool.kept(), journals()), (vec![1], 1));
    pool.go(3);
    pool.until(3);
    assert_eq!(remove("second"), "");
    second.wait(SOON).expect("is gone");
    assert!(!is_kept(), "{:?}", pool.kept());
    assert_eq!(journals(), 0);

    // There is nothing to go on from, nor is it over.
    fs::remove_file(pool.mortal.submit.home().join("log")).expect("removes");
    pool.go(0);
    let mut third = pool.begun("third");
    pool.image("third").expect("is made");
    assert_eq!(pool.kept(), [1]);
    let (_, said, status) = output("vacate", pool.wayfarer("third", &["vacate", "job"]));
    assert_eq!(status, Some(0), "{said}");
    third.wait(SOON).expect("leaves");
    // Nor is another job of the name kept from having images by those of the one that it takes the place of.
    let mut command = pool.wayfarer("third", &["run", "--replace", "--name", "job"]);
    command.args(["--images", "shadow", "--every", "1h", "--chdir"]);
    command.arg(pool.mortal.submit.home());
    pool.reach(&mut command);
    command.arg("--").args(python(SCRIPT));
    let mut other = Run::start("other", command, User::Ordinary).expect("starts");
    other.wait_line("begun", SOON).expect("begins");
    pool.image("third").expect("is made");
    assert_eq!(pool.kept(), [1]);
    pool.ends_well(other);
}

#[test]
fn compressed_images_are_kept_and_gone_on_from() {
    let what = "compressed_images_are_kept_and_gone_on_from";
    if missing(what) {
        return;
    }
    let pool = Pool::new(&KEEPS);
    let script = SCRIPT.replace("os.urandom(1 << 16) * 128", "b'as ever ' * (1 << 20)");
    let compressed = |machine| pool.run_with(machine, &["--compress", "zstd"], &script);
    let mut job = compressed("first");
    job.wait_line("begun", SOON).expect("begins");
    for lines in [1, 2] {
        pool.go(lines);
        pool.until(lines);
        pool.image("first").expect("is made");
    }
    assert_eq!(pool.kept(), [1, 2]);
    let image = pool.dir().join("kept/job/job-2.img");
    let words = ["inspect", "--json", image.to_str().expect("is text")];
    let (described, why, status) = output("inspect", pool.wayfarer("first", &words));
    assert_eq!(status, Some(0), "{why}");
    let described: serde_json::Value = serde_json::from_str(&described).expect("is JSON");
    let bytes = |of: &str| described["contents"][of].as_u64().expect("a number");
    // How much else the interpreter has is not this test's to say: it is the greater part of what is stored.
    let whole = bytes("memory_bytes") + bytes("file_bytes");
    let stored = bytes("stored_bytes");
    assert!(whole > 8 << 20 && bytes("stored_in_bases_bytes") == 0);
    assert!(2 * stored < whole, "{stored} of {whole} bytes are stored");
    let len = fs::metadata(&image).expect("is there").len();
    assert!(len < stored + (1 << 20), "{len} bytes for {stored}");
    pool.lose("first", job);
    let again = compressed("second");
    pool.until(2);
    pool.go(3);
    pool.until(3);
    pool.image("second").expect("is made");
    assert_eq!(pool.kept(), [2, 3]);
    pool.ends_well(again);
}
