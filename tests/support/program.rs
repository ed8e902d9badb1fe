//! Real programs: run once undisturbed, then stopped at a random moment, moved
//! to an empty host with their data at the same paths, and compared.

use super::random::{Random, seed};
use super::run::{self, Run};
use super::scenario::{Guest, Job, Mode, Restart, Variant};
use super::skip;
use super::stage;
use super::user::User;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A real program and its data.
pub struct Program {
    /// Names the test and its files.
    pub name: &'static str,
    /// Puts inputs and built programs into the job's data directory.
    pub prepare: fn(&Path) -> Result<(), String>,
    /// The command, carried out in that directory.
    pub command: fn(&Path) -> Command,
    /// How often it is stopped and moved.
    pub moves: u32,
    /// It does not notice that its ids are new: at its first move they are.
    pub new_ids: bool,
}

/// Everything that a program leaves: its output, and all files.
type Outcome = (String, BTreeMap<String, blake3::Hash>);

/// Why a program is not tested here.
const MISSING: &str = "missing: ";

/// A program that ends before it could be stopped is begun again so often.
const AGAIN: u32 = 3;

/// For `prepare`: what is not installed is skipped, not failed.
pub fn missing(what: &str) -> String {
    format!("{MISSING}{what}; run scripts/setup")
}

fn files(dir: &Path) -> BTreeMap<String, blake3::Hash> {
    let entries = fs::read_dir(dir).expect("data directory").flatten();
    let regular = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    regular
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            Some((name, blake3::hash(&fs::read(entry.path()).ok()?)))
        })
        .collect()
}

fn compare(found: &Outcome, expected: &Outcome) -> Result<(), String> {
    if found.0 != expected.0 {
        return Err(format!(
            "output differs; found:\n{}\nexpected:\n{}",
            found.0, expected.0
        ));
    }
    if found.1 != expected.1 {
        let (found, expected) = (found.1.keys(), expected.1.keys());
        return Err(format!(
            "files differ; found {found:?}, expected {expected:?} (or contents)"
        ));
    }
    Ok(())
}

/// An image of the program, with which it is killed; none if it has ended.
fn stop(job: &mut Job) -> Result<Option<PathBuf>, String> {
    if let Some(run) = job
        .runs
        .last_mut()
        .filter(|run| run.label.starts_with("the guest"))
        && run.ended().is_some()
    {
        return Ok(None);
    }
    match job.checkpoint("kill") {
        Ok(image) => Ok(Some(image)),
        // In the moment in which it was looked at.
        Err(why) if why.contains(" has ended") => Ok(None),
        Err(why) => Err(why),
    }
}

/// It ends well, and what it leaves is this; `output` has come before.
fn ends_as(job: &mut Job, output: String, expected: &Outcome) -> Result<(), String> {
    let status = job.wait_end(Duration::from_secs(240))?;
    if !status.success() {
        return Err(format!("the program ended with {status}"));
    }
    let output = output + &job.guest_output();
    compare(&(output, files(&job.dir.join("data"))), expected)
}

impl Program {
    /// The test.
    ///
    /// # Panics
    /// With everything that was said, and where the files lie.
    pub fn check(&self) {
        let user = User::Ordinary;
        if let Some(reason) = user.missing() {
            return skip::note(self.name, &reason);
        }
        let seed = seed();
        let mut guest = Guest::new(self.name, "", &[]);
        guest.deadline = Duration::from_secs(240);
        let variant = Variant {
            mode: Mode::EmptyHost,
            user,
            threads: 0,
        };
        let mut job = Job::new(&guest, variant, seed);
        let result = self.compare_runs(&mut job, seed);
        let alive = run::marked(&job.mark);
        let log: String = job.runs.iter().map(Run::describe).collect();
        let autopsy = run::autopsy(&alive);
        drop(std::mem::take(&mut job.runs));
        run::end_marked(&job.mark);
        match result {
            Ok(()) => drop(fs::remove_dir_all(&job.dir)),
            Err(what) if what.starts_with(MISSING) => {
                let _ = fs::remove_dir_all(&job.dir);
                skip::note(self.name, &what);
            }
            Err(what) => {
                let log = format!("WF_SEED={seed}\n{what}\n{log}{autopsy}");
                let place = stage::keep_artefacts(&job.dir, &log);
                panic!("{}: {log}\nfiles: {}", self.name, place.display());
            }
        }
    }

    fn compare_runs(&self, job: &mut Job, seed: u64) -> Result<(), String> {
        let mut random = Random::new(seed, self.name);
        let data = job.dir.join("data");
        let user = User::Ordinary;
        (self.prepare)(&data)?;
        for entry in fs::read_dir(&data).expect("data directory").flatten() {
            user.own(&entry.path());
        }
        let inputs = files(&data);
        let began = Instant::now();
        let command = job.in_data((self.command)(&data));
        let (status, mut run) =
            run::finish("undisturbed", command, user, Duration::from_secs(240))?;
        let took = began.elapsed();
        if !status.success() {
            return Err(format!("undisturbed: {status}\n{}", run.describe()));
        }
        let expected = (run.out.text(), files(&data));
        let _ = run.ended();
        let clear = || {
            for name in expected.1.keys().filter(|name| !inputs.contains_key(*name)) {
                fs::remove_file(data.join(name)).expect("remove an output");
            }
        };
        clear();

        if std::env::var("WF_ONLY").is_ok_and(|only| only == "Undisturbed") {
            // Is the program itself the same each time?
            let command = job.in_data((self.command)(&data));
            let (_, run) = run::finish("again", command, user, Duration::from_secs(240))?;
            return compare(&(run.out.text(), files(&data)), &expected);
        }

        self.start(job)?;
        let mut began = Instant::now();
        let mut output = String::new();
        let mut per_move = took.as_millis() as u64 / u64::from(self.moves);
        let mut again = 0;
        let mut turn = 0;
        while turn < self.moves {
            // A random moment of its work, which nothing announces.
            std::thread::sleep(random.millis(per_move / 8, per_move * 3 / 4));
            let Some(image) = stop(job)? else {
                if again == AGAIN {
                    let (turn, moves) = (turn + 1, self.moves);
                    return Err(format!("it ended before move {turn} of {moves}, each time"));
                }
                again += 1;
                // Undisturbed it took longer: the machine had more to do then.
                let took = began.elapsed().as_millis() as u64;
                per_move = (per_move * 2 / 3).min(took / u64::from(self.moves));
                ends_as(job, std::mem::take(&mut output), &expected)?;
                turn = 0;
                clear();
                began = Instant::now();
                self.start(job)?;
                continue;
            };
            job.wait_killed()?;
            output += &job.guest_output();
            // There it is no job of this machine, so this is the last move.
            let how = match turn {
                _ if turn + 1 == self.moves => Restart::EmptyHost,
                0 if self.new_ids => Restart::NewIds,
                _ => Restart::Command,
            };
            job.restart(&image, how)?;
            turn += 1;
            if turn < self.moves {
                job.wait_up()?;
            }
        }
        ends_as(job, output, &expected)
    }

    /// Begins it, with wayfarer.
    fn start(&self, job: &mut Job) -> Result<(), String> {
        let command = (self.command)(&job.dir.join("data"));
        let mut under = job.wayfarer(&["run", "--quiet", "--name", "job", "--"]);
        under.arg(command.get_program()).args(command.get_args());
        under.envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        let run = Run::start("the guest", under, User::Ordinary)?;
        job.runs.push(run);
        Ok(())
    }
}
