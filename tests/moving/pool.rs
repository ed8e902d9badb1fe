//! A home, machines that its jobs are sent to, and one job that leaves what nobody can mistake.

use crate::support::machine::{self, Machine, children};
use crate::support::run::{Run, autopsy, clean_command, finish, poll};
use crate::support::skip;
use crate::support::stage;
use crate::support::user::User;
use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub(super) const DEADLINE: Duration = Duration::from_secs(100);
pub(super) const SOON: Duration = Duration::from_secs(20);

/// The two machines: what the first has, as any machine, and the second, which has nothing.
pub(super) const FULL: &str = "full";
pub(super) const EMPTY: &str = "empty";
const OF_A_SYSTEM: [&str; 6] = ["/usr", "/bin", "/lib", "/lib64", "/etc", "/dev"];

/// How the job works.
#[derive(Clone, Copy)]
pub(super) struct Work {
    pub(super) steps: usize,
    pub(super) pause: Duration,
}

/// See the module.
pub(super) struct Pool {
    dir: PathBuf,
    user: User,
    work: Work,
    home_mib: Option<u32>,
    machines: BTreeMap<&'static str, Machine>,
    /// What is known of jobs, and their images, have a disk of their own.
    has_disk: bool,
}

impl Pool {
    /// None, and said why, if it cannot be had here.
    pub(super) fn new(what: &str, user: User, work: Work) -> Option<Self> {
        Self::with_homes(what, user, work, None)
    }

    /// The same; home directories of the machines are disks of so many MiB.
    pub(super) fn with_homes(
        what: &str,
        user: User,
        work: Work,
        home_mib: Option<u32>,
    ) -> Option<Self> {
        if let Some(why) = user.missing() {
            skip::note(what, &why);
            return None;
        }
        let dir = stage::job_dir("pool", user);
        for name in ["home", "alone", "sockets", "own"] {
            fs::create_dir(dir.join(name)).expect("makes it");
            user.own(&dir.join(name));
        }
        for folder in ["home", "alone"] {
            for (name, bytes) in inputs(work) {
                let path = dir.join(folder).join(name);
                fs::write(&path, bytes).expect("writes");
                user.own(&path);
            }
        }
        let mut pool = Pool {
            dir,
            user,
            work,
            home_mib,
            machines: BTreeMap::new(),
            has_disk: false,
        };
        for name in [FULL, EMPTY] {
            pool.begin(name);
        }
        Some(pool)
    }

    /// What is known of jobs, and their images, get a disk of so many MiB. Whether that can be had.
    pub(super) fn with_disk(&mut self, mib: u32) -> bool {
        let jobs = self.dir.join("own/jobs");
        fs::create_dir(&jobs).expect("makes it");
        let size = format!("size={mib}m,mode=700");
        let none: Option<&str> = None;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        let mounted = mount(none, &jobs, Some("tmpfs"), flags, Some(size.as_str()));
        self.has_disk = mounted.is_ok();
        self.user.own(&jobs);
        self.has_disk
    }

    /// There is no room on that disk, or there is some again.
    pub(super) fn fill(&self, is_full: bool) {
        let filler = self.dir.join("own/jobs/filler");
        if is_full {
            let zeros = File::open("/dev/zero").and_then(|mut zeros| {
                let mut file = File::create(&filler)?;
                std::io::copy(&mut zeros, &mut file)
            });
            assert!(zeros.is_err(), "a disk without end");
        } else {
            let _ = fs::remove_file(&filler);
        }
    }

    pub(super) fn has_disk(&self) -> bool {
        self.has_disk
    }

    pub(super) fn home(&self) -> PathBuf {
        self.dir.join("home")
    }

    /// The machine of this name is there.
    pub(super) fn begin(&mut self, name: &'static str) {
        let wayfarer = stage::wayfarer();
        let mut files = vec![wayfarer.as_path()];
        if name == FULL {
            files.extend(OF_A_SYSTEM.map(Path::new));
        }
        let sockets = self.dir.join("sockets");
        let machine = Machine::begin(name, &sockets, &files, (self.user, self.home_mib));
        self.machines.insert(name, machine.expect("a machine"));
    }

    /// It is taken away, with all that runs there.
    pub(super) fn take_away(&mut self, name: &str) {
        self.machines.remove(name);
    }

    /// Nobody reaches it from now on; false if it is cut off already, or was when it was taken away.
    pub(super) fn unplug(&self, name: &str) -> bool {
        let sockets = self.dir.join("sockets");
        let hidden = sockets.join(format!(".{name}"));
        !hidden.exists() && fs::rename(sockets.join(name), hidden).is_ok()
    }

    /// It can be reached again, unless another machine has its name now.
    pub(super) fn plug(&self, name: &str) {
        let sockets = self.dir.join("sockets");
        let hidden = sockets.join(format!(".{name}"));
        match sockets.join(name).exists() {
            true => fs::remove_file(hidden).expect("removes"),
            false => fs::rename(hidden, sockets.join(name)).expect("is there again"),
        }
    }

    pub(super) fn is_there(&self, name: &str) -> bool {
        self.machines.contains_key(name)
    }

    /// What runs on these machines.
    pub(super) fn processes(&self) -> Vec<i32> {
        self.machines
            .values()
            .flat_map(Machine::processes)
            .collect()
    }

    /// A verb of ours.
    pub(super) fn wayfarer(&self, words: &[&str]) -> Command {
        let mut command = clean_command(stage::wayfarer());
        command.arg("--dir").arg(self.dir.join("own"));
        command.args(words).current_dir(self.home());
        command
    }

    /// The job begins, or goes on; these machines are tried in turn.
    pub(super) fn submit(&self, machines: &[&str], options: &[&str]) -> Run {
        self.submit_other(machines, options, &self.program(self.work.pause))
    }

    /// The same with another program.
    pub(super) fn submit_other(
        &self,
        machines: &[&str],
        options: &[&str],
        program: &[String],
    ) -> Run {
        let ssh = machine::ssh(&self.dir.join("sockets")).expect("the tool compiles");
        let mut command = self.wayfarer(&["submit", "--name", "job", "--ssh", &ssh]);
        command.arg("--wayfarer").arg(stage::wayfarer());
        for machine in machines {
            command.args(["--on", machine]);
        }
        command.args(options).args(["--allow", "/:ro", "--allow"]);
        command.arg(self.home()).arg("--").args(program);
        let home = self.home();
        command.stdin(File::open(home.join("in")).expect("opens"));
        let out = File::options()
            .append(true)
            .create(true)
            .open(home.join("out"));
        self.user.own(&home.join("out"));
        Run::start_into(out.expect("opens"), "the job", command, self.user).expect("starts")
    }

    fn program(&self, pause: Duration) -> Vec<String> {
        let script = stage::repository().join("tests/programs/ledger.py");
        let staged = stage::dir().join("ledger.py");
        stage::build_if_older(&staged, std::slice::from_ref(&script), |beside| {
            let mut command = Command::new("cp");
            command.arg(&script).arg(beside);
            command
        })
        .expect("copies the program");
        let staged = staged.to_string_lossy().into_owned();
        let (steps, pause) = (self.work.steps.to_string(), pause.as_secs_f64().to_string());
        vec!["/usr/bin/python3".to_owned(), staged, steps, pause]
    }

    /// Carries out a verb; what it says, and how it ends.
    pub(super) fn tell(&self, words: &[&str]) -> (String, Option<i32>) {
        let (status, run) =
            finish(words[0], self.wayfarer(words), self.user, DEADLINE).expect("ends");
        (
            format!("{}{}", run.out.text(), run.err.text()),
            status.code(),
        )
    }

    /// The same of one that nothing is to be in the way of.
    pub(super) fn told(&self, words: &[&str]) -> String {
        let (said, status) = self.tell(words);
        assert_eq!(status, Some(0), "{words:?}: {said}\n{}", self.story());
        said
    }

    /// One that goes on meanwhile.
    pub(super) fn begin_telling(&self, words: &[&str]) -> Run {
        Run::start(&words.join(" "), self.wayfarer(words), self.user).expect("starts")
    }

    pub(super) fn status(&self) -> Value {
        let (status, run) = finish(
            "status",
            self.wayfarer(&["status", "--json", "job"]),
            self.user,
            DEADLINE,
        )
        .expect("ends");
        match status.success() {
            true => serde_json::from_str(&run.out.text()).unwrap_or_default(),
            false => Value::Null,
        }
    }

    /// Waits until it runs on this machine, `starts` copies of it having run.
    pub(super) fn until_on(&self, machine: &str, starts: u64) {
        let is_so = || {
            let found = self.status();
            let is_so = found["State"] == "Running"
                && found["NumJobStarts"] == starts
                && found["RemoteHost"] == machine;
            is_so.then_some(())
        };
        poll(DEADLINE, is_so).unwrap_or_else(|| panic!("not on {machine}: {}", self.story()));
    }

    /// How many steps it has done.
    pub(super) fn steps(&self) -> usize {
        let text = fs::read_to_string(self.home().join("log"));
        text.unwrap_or_default().lines().count()
    }

    /// So many more of them, unless it has none left.
    pub(super) fn after_steps(&self, more: usize) {
        let least = self.work.steps.min(self.steps() + more);
        let there = || (self.steps() >= least).then_some(());
        poll(DEADLINE, there).unwrap_or_else(|| panic!("{} steps: {}", self.steps(), self.story()));
    }

    /// A file of the job's.
    pub(super) fn job(&self, name: &str) -> PathBuf {
        self.dir.join("own/jobs/job").join(name)
    }

    /// Its images, the oldest first.
    pub(super) fn images(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.job("images"))
            .into_iter()
            .flatten()
            .flatten();
        let paths = entries.map(|entry| entry.path());
        let is_image = |path: &PathBuf| path.extension().is_some_and(|one| one == "img");
        let mut images: Vec<_> = paths.filter(is_image).collect();
        images.sort();
        images
    }

    /// Where what has this path on a machine is found here.
    pub(super) fn on(&self, machine: &str, path: &str) -> PathBuf {
        self.machines[machine].path(path)
    }

    /// How many images are on this machine, whole.
    pub(super) fn images_on(&self, machine: &str) -> usize {
        let copies = self.machines[machine].path("/home/.cache/wayfarer");
        let copies = fs::read_dir(copies).into_iter().flatten().flatten();
        let folders = copies.map(|copy| copy.path().join("jobs/job/images"));
        let images = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten());
        let names = images.flatten().map(|image| image.path());
        names
            .filter(|path| path.extension().is_some_and(|one| one == "img"))
            .count()
    }

    /// The processes between a starter and its machine: keepers, and what they reach it through.
    pub(super) fn between(starter: &Run) -> (Vec<i32>, Vec<i32>) {
        let keepers = children(starter.pid() as i32);
        let lines = keepers
            .iter()
            .flat_map(|keeper| children(*keeper))
            .collect();
        (keepers, lines)
    }

    /// What its starter did, and what is known of the job.
    pub(super) fn story(&self) -> String {
        let log = fs::read_to_string(self.job("starter.log"));
        format!("{}\n{}", self.status(), log.unwrap_or_default())
    }

    /// What the job has left and said is what one does that nobody disturbs.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut alone = clean_command("/usr/bin/python3");
        alone.args(&self.program(Duration::ZERO)[1..]);
        let folder = self.dir.join("alone");
        alone.current_dir(&folder);
        alone.stdin(File::open(folder.join("in")).expect("opens"));
        let out = File::create(folder.join("out")).expect("opens");
        let mut run = Run::start_into(out, "undisturbed", alone, self.user)?;
        let status = run.wait(DEADLINE)?;
        if !status.success() {
            return Err(run.describe());
        }
        let (expected, found) = (tree(&folder), tree(&self.home()));
        for name in expected.keys().chain(found.keys()) {
            let sizes = [&expected, &found].map(|one| one.get(name).map(Vec::len));
            if expected.get(name) != found.get(name) {
                return Err(format!(
                    "{name}: {sizes:?} bytes expected and found, or others"
                ));
            }
        }
        Ok(())
    }

    /// Removes the folders of copies on the machines that nobody holds; how many they were.
    pub(super) fn remove_left(&self) -> usize {
        let folders = self.machines.values().flat_map(|machine| {
            let folders = fs::read_dir(machine.path("/home/.cache/wayfarer"));
            folders.into_iter().flatten().flatten()
        });
        let is_left = |folder: &PathBuf| {
            let lock = File::open(folder.join(".lock"));
            lock.is_ok_and(|lock| Flock::lock(lock, FlockArg::LockExclusiveNonblock).is_ok())
        };
        let left = folders.map(|folder| folder.path()).filter(is_left);
        left.map(|folder| fs::remove_dir_all(folder).expect("removes"))
            .count()
    }

    /// Nothing of a job is left on the machines.
    pub(super) fn nothing_is_left(&self) -> Result<(), String> {
        let left = || {
            let mut left: Vec<String> = vec![];
            for machine in self.machines.values() {
                left.extend(machine.processes().iter().map(i32::to_string));
                let folders = fs::read_dir(machine.path("/home/.cache/wayfarer"));
                let names = folders.into_iter().flatten().flatten();
                left.extend(names.map(|one| one.path().display().to_string()));
            }
            left
        };
        let is_nothing = poll(SOON, || left().is_empty().then_some(()));
        is_nothing.ok_or_else(|| format!("left: {:?}\n{}", left(), autopsy(&self.processes())))
    }

    /// It ended as it should; what it kept is not needed any more.
    pub(super) fn remove(mut self) {
        self.unmount();
        let _ = fs::remove_dir_all(&self.dir);
    }

    fn unmount(&mut self) {
        if std::mem::take(&mut self.has_disk) {
            let _ = umount2(&self.dir.join("own/jobs"), MntFlags::MNT_DETACH);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// Ends or stops it, if it is there.
pub(super) fn signal(pid: i32, signal: Signal) -> bool {
    kill(Pid::from_raw(pid), signal).is_ok()
}

/// What the job finds.
fn inputs(work: Work) -> [(&'static str, Vec<u8>); 2] {
    let lines = (0..work.steps).map(|line| format!("line {line} of the input\n"));
    let table = (0..64 * 32).map(|at| (at * 7 % 251) as u8);
    [
        ("in", lines.collect::<String>().into_bytes()),
        ("table", table.collect()),
    ]
}

fn tree(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).expect("lists").flatten();
    entries
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, fs::read(entry.path()).unwrap_or_default())
        })
        .collect()
}
