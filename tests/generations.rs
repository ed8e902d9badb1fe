//! Many generations of one job in a row: right result, and the last image is no
//! bigger and no slower than the first. 20 here, 500 with `WF_FULL`.

mod support;

use std::fs;
use std::time::{Duration, Instant};
use support::random::seed;
use support::run::{self, Run};
use support::scenario::{Guest, Job, Mode, Restart, Variant, Verdict};
use support::stage::{self, Linking, c_guest};
use support::user::User;

#[test]
fn the_last_generation_is_like_the_first() {
    if let Some(reason) = User::Ordinary.missing() {
        return stage::note_skip("generations", &reason);
    }
    let program = c_guest("threads", Linking::Dynamic).expect("the guest compiles");
    let guest = Guest::new("generations", program, &["ids"]);
    let variant = Variant {
        mode: Mode::TenTimes,
        user: User::Ordinary,
        threads: 2,
    };
    let mut job = Job::new(&guest, variant, seed());
    let result = generations(&mut job);
    let last = job.runs.len().saturating_sub(12);
    let log: String = job.runs[last..].iter().map(Run::describe).collect();
    drop(std::mem::take(&mut job.runs));
    run::end_marked(&job.mark);
    match result {
        Ok(()) => drop(fs::remove_dir_all(&job.dir)),
        Err(what) => {
            let place = stage::keep_artefacts(&job.dir, &log);
            panic!(
                "WF_SEED={}: {what}\n{log}\nfiles: {}",
                seed(),
                place.display()
            );
        }
    }
}

fn generations(job: &mut Job) -> Result<(), String> {
    let count = if std::env::var_os("WF_FULL").is_some() {
        500
    } else {
        20
    };
    let mut sizes = vec![];
    let mut times = vec![];
    let ready = job.start()?;
    if ready != Verdict::Passed {
        return Err(format!("{ready:?}"));
    }
    for generation in 1..=count {
        let began = Instant::now();
        let image = job
            .checkpoint("kill")
            .map_err(|error| format!("generation {generation}: {error}"))?;
        times.push(began.elapsed());
        job.wait_killed()?;
        sizes.push(
            fs::metadata(&image)
                .map_err(|error| error.to_string())?
                .len(),
        );
        job.restart(&image, Restart::Command)?;
        job.wait_up()
            .map_err(|error| format!("generation {generation}: {error}"))?;
        if generation > 2 {
            let old = job.dir.join(format!("{}.img", generation - 2));
            let _ = fs::remove_file(old);
        }
        let keep = job.runs.len().saturating_sub(6);
        job.runs.drain(..keep);
    }
    job.let_go();
    let verdict = job.wait_pass()?;
    let (first, last) = (sizes[1], sizes[sizes.len() - 1]);
    println!(
        "generations: {count}, image {first} -> {last} bytes, checkpoint {:?} -> {:?}",
        median(&times[..10]),
        median(&times[times.len() - 10..])
    );
    if last > first + first / 20 + 65536 {
        return Err(format!(
            "size of the last image: found {last}, expected about {first}"
        ));
    }
    let (early, late) = (median(&times[..10]), median(&times[times.len() - 10..]));
    if late > early * 2 + Duration::from_millis(50) {
        return Err(format!(
            "time of a checkpoint: found {late:?} at the end, {early:?} at first"
        ));
    }
    if verdict == Verdict::Passed {
        Ok(())
    } else {
        Err(format!("{verdict:?}"))
    }
}

fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted[sorted.len() / 2]
}
