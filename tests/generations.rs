//! Many generations of one job in a row: right result, and the last image is no
//! bigger and no slower than the first. 20 here, 500 with `WF_FULL`.

mod support;

use std::fs;
use std::time::{Duration, Instant};
use support::random::seed;
use support::run::{self, Run};
use support::scenario::{Guest, Job, Mode, Restart, Variant, Verdict};
use support::skip;
use support::stage::{self, Linking, c_guest};
use support::user::User;

/// Generations of each job at the end that are compared.
const COMPARED: usize = 10;

#[test]
fn the_last_generation_is_like_the_first() {
    if let Some(reason) = User::Ordinary.missing() {
        return skip::note("generations", &reason);
    }
    let program = c_guest("threads", Linking::Dynamic).expect("the guest compiles");
    let guests = ["generations", "generations-fresh"]
        .map(|name| Guest::new(name, program.clone(), &["ids"]));
    let variant = Variant {
        mode: Mode::TenTimes,
        user: User::Ordinary,
        threads: 2,
    };
    let [mut old, mut fresh] =
        [0, 1].map(|index| Line::of(Job::new(&guests[index], variant, seed())));
    let result = generations(&mut old, &mut fresh);
    let mut whole_log = String::new();
    let mut places = vec![];
    for Line { job, .. } in [&mut old, &mut fresh] {
        let last = job.runs.len().saturating_sub(12);
        let log: String = job.runs[last..].iter().map(Run::describe).collect();
        drop(std::mem::take(&mut job.runs));
        run::end_marked(&job.mark);
        if result.is_ok() {
            drop(fs::remove_dir_all(&job.dir));
        } else {
            places.push(stage::keep_artefacts(&job.dir, &log));
        }
        whole_log.push_str(&log);
    }
    if let Err(what) = result {
        panic!("WF_SEED={}: {what}\n{whole_log}\nfiles: {places:?}", seed());
    }
}

/// A job and its generations.
struct Line<'a> {
    job: Job<'a>,
    times: Vec<Duration>,
    sizes: Vec<u64>,
    /// From the start of a restart until the job was up.
    restarts: Vec<Duration>,
}

impl<'a> Line<'a> {
    fn of(job: Job<'a>) -> Self {
        Line {
            job,
            times: vec![],
            sizes: vec![],
            restarts: vec![],
        }
    }

    fn start(&mut self) -> Result<(), String> {
        match self.job.start()? {
            Verdict::Passed => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    /// Checkpoint, kill, restart.
    fn next(&mut self) -> Result<(), String> {
        let generation = self.times.len() + 1;
        let named = |error: String| format!("generation {generation}: {error}");
        let began = Instant::now();
        let image = self.job.checkpoint("kill").map_err(named)?;
        self.times.push(began.elapsed());
        self.job.wait_killed()?;
        let metadata = fs::metadata(&image).map_err(|error| error.to_string())?;
        self.sizes.push(metadata.len());
        let began = Instant::now();
        self.job.restart(&image, Restart::Command)?;
        self.job.wait_up().map_err(named)?;
        self.restarts.push(began.elapsed());
        if generation > 2 {
            let old = self.job.dir.join(format!("{}.img", generation - 2));
            let _ = fs::remove_file(old);
        }
        let keep = self.job.runs.len().saturating_sub(6);
        self.job.runs.drain(..keep);
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        self.job.let_go();
        match self.job.wait_pass()? {
            Verdict::Passed => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    /// Shortest times of the last checkpoints and restarts, which the machine's other work has held up least, and the last size.
    fn last(&self) -> ([Duration; 2], u64) {
        let shortest = [&self.times, &self.restarts].map(|times| {
            let last = &times[times.len() - COMPARED..];
            last.iter().min().copied().unwrap_or_default()
        });
        (shortest, self.sizes[self.sizes.len() - 1])
    }
}

/// The last generations of the old job take turns with the first of a fresh one: so whatever else the
/// machine does then is the same for both.
fn generations(old: &mut Line<'_>, fresh: &mut Line<'_>) -> Result<(), String> {
    let count = if std::env::var_os("WF_FULL").is_some() {
        500
    } else {
        20
    };
    old.start()?;
    for _ in COMPARED..count {
        old.next()?;
    }
    fresh.start()?;
    for _ in 0..COMPARED {
        old.next()?;
        fresh.next()?;
    }
    old.end()?;
    fresh.end()?;
    let ((late, last), (early, first)) = (old.last(), fresh.last());
    println!(
        "generations: {count}, beside the first of a fresh job: image {first} -> {last} bytes, \
         shortest checkpoint and restart {early:?} -> {late:?}"
    );
    // A page for each few generations would show.
    if last > first + 65536 {
        return Err(format!(
            "size of the last image: found {last}, expected {first} or little more"
        ));
    }
    // Restarts are looked for every 20 ms.
    for (what, index, slack) in [("checkpoint", 0, 10), ("restart", 1, 40)] {
        let (late, early) = (late[index], early[index]);
        if late > early * 3 / 2 + Duration::from_millis(slack) {
            return Err(format!(
                "shortest {what}: found {late:?} at the end, {early:?} of a fresh job then"
            ));
        }
    }
    Ok(())
}
