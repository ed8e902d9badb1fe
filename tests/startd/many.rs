//! Thousands of jobs.

use super::*;

/// So many wait.
const MANY: usize = 5000;
/// So many looks are measured.
const LOOKS: u32 = 5;
/// The most that a look may take of a processor, with all that is done between two.
const MOST: Duration = Duration::from_millis(500);

/// What a process has used of processors.
fn used(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let behind = stat.rsplit_once(") ").map_or("", |(_, behind)| behind);
    let mut ticks = behind.split(' ').skip(11).take(2);
    let mut next = || ticks.next().and_then(|ticks| ticks.parse::<u32>().ok());
    let ticks = next().unwrap_or(0) + next().unwrap_or(0);
    // 100 a second.
    Duration::from_millis(10) * ticks
}

#[test]
fn thousands_of_jobs_that_wait_do_not_hold_up_one_that_runs() {
    with_job(&guest("many"), |job| {
        begun(job, "START = TARGET.IsWanted =?= True")?;
        let spool = job.dir.join("state/spool");
        for number in 0..MANY {
            let path = spool.join(format!("idle-{number}.job"));
            let text = format!("Cmd = \"/bin/true\"\nClusterId = {}\n", 10_000 + number);
            fs::write(&path, text).expect("a job");
            User::Ordinary.own(&path);
        }
        submit(job, "job", "+IsWanted = True\npriority = 1")?;
        let status = until_job(job, "job", "Running")?;
        let jobs = status["jobs"].as_array().map_or(0, Vec::len);
        let why = line_of(&status, "idle-7")["why"][0].clone();
        if jobs != MANY + 1 || why == Value::Null {
            return Err(format!("found {jobs} jobs, one waits since {why}"));
        }
        let pid = startd(job)?.pid();
        let (before, began) = (used(pid), std::time::Instant::now());
        // A look is made each second.
        let passed = run::poll(STEP, || {
            until_longer(job, "job").ok()?;
            (began.elapsed() > Duration::from_secs(LOOKS.into())).then_some(())
        });
        passed.ok_or("time does not pass")?;
        let looks = u32::try_from(began.elapsed().as_secs()).unwrap_or(1).max(1);
        let each = (used(pid) - before) / looks;
        println!("a look at {MANY} jobs takes {each:?}");
        if each > MOST {
            return Err(format!(
                "found {each:?} for a look, expected {MOST:?} at most"
            ));
        }
        job.let_go();
        until(job, "a job that is done", |status| {
            line_of(status, "job").is_null()
        })?;
        check_chain(job, "job")?;
        ends(job, Signal::SIGTERM, 0)
    });
}
