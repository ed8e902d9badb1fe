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
use std::path::Path;
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
        for name in expected.1.keys().filter(|name| !inputs.contains_key(*name)) {
            fs::remove_file(data.join(name)).expect("remove an output");
        }

        if std::env::var("WF_ONLY").is_ok_and(|only| only == "Undisturbed") {
            // Is the program itself the same each time?
            let command = job.in_data((self.command)(&data));
            let (_, run) = run::finish("again", command, user, Duration::from_secs(240))?;
            return compare(&(run.out.text(), files(&data)), &expected);
        }

        let command = (self.command)(&data);
        let mut under = job.wayfarer(&["run", "--quiet", "--name", "job", "--"]);
        under.arg(command.get_program()).args(command.get_args());
        under.envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        job.runs.push(Run::start("the guest", under, user)?);
        let mut output = String::new();
        let per_move = took.as_millis() as u64 / u64::from(self.moves);
        for turn in 0..self.moves {
            // A random moment of its work, which nothing announces.
            std::thread::sleep(random.millis(per_move / 8, per_move * 3 / 4));
            if let Some(run) = job
                .runs
                .last_mut()
                .filter(|run| run.label.starts_with("the guest"))
                && run.ended().is_some()
            {
                if turn == 0 {
                    return Err("the program ended before it could be stopped".into());
                }
                let what = format!("{} on an empty host", self.name);
                let reason = format!("it ended before move {} of {}", turn + 1, self.moves);
                skip::note(&what, &reason);
                break;
            }
            let image = match job.checkpoint("kill") {
                Ok(image) => image,
                // In the moment in which it was looked at. How it has ended is seen below.
                Err(why) if turn > 0 && why.contains(" has ended") => {
                    let what = format!("{} on an empty host", self.name);
                    let reason = format!("it ended at move {} of {}", turn + 1, self.moves);
                    skip::note(&what, &reason);
                    break;
                }
                Err(why) => return Err(why),
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
            if turn + 1 < self.moves {
                job.wait_up()?;
            }
        }
        let status = job.wait_end(Duration::from_secs(240))?;
        output += &job.guest_output();
        if !status.success() {
            return Err(format!("the restarted program ended with {status}"));
        }
        compare(&(output, files(&data)), &expected)
    }
}
