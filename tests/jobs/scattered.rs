//! What memory wayfarer itself takes for a job whose pages lie scattered: the tables of such an image are long.

use super::support::memory::{kib, supervisors};
use super::support::promise::{passed, with_job};
use super::support::run::{self, Run};
use super::support::scenario::{Guest, Job, Restart};
use super::support::skip;
use super::support::stage::{Linking, c_guest};
use super::support::user::User;
use ckpt_lib::image::Image;
use loader::layout::SectionKind;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const STEP: Duration = Duration::from_secs(60);
/// A checkpoint of a small job takes 12 MiB. With all runs of pages in a list it was 38.
const MOST_OF_A_CHECKPOINT_KIB: u64 = 20 << 10;
/// With the tables, of 12 MiB, in memory it was 23 and more.
const MOST_OF_A_READER_KIB: u64 = 18 << 10;
/// Less would say that nobody has looked.
const LEAST_KIB: u64 = 4 << 10;
/// Who watches over the job keeps none of its tables.
const MOST_OF_A_SUPERVISOR_KIB: u64 = 2 << 10;
/// Nor has it had them all at once, which was 14.
const MOST_OF_A_START_KIB: u64 = 8 << 10;

/// Most memory that a command of wayfarer's takes, in KiB.
fn peak_of(job: &mut Job<'_>, words: &[&str]) -> Result<u64, String> {
    let command = job.wayfarer(words);
    let mut run = Run::start("wayfarer", command, User::Ordinary)?;
    let pid = run.pid() as i32;
    let mut peak = 0;
    let ended = run::poll(STEP, || {
        peak = kib(pid, "VmHWM:").unwrap_or(0).max(peak);
        run.ended()
    });
    match ended {
        Some(status) if status.success() => Ok(peak),
        _ => Err(run.describe()),
    }
}

#[test]
fn a_job_with_scattered_pages_costs_wayfarer_little_memory() {
    let program = c_guest("scattered", Linking::Dynamic).expect("the guest compiles");
    let guest = Guest::new("scattered", program, &["scattered"]);
    with_job(&guest, |job| {
        passed(job.start()?)?;
        let image = job.dir.join("image");
        let name = image.to_string_lossy().into_owned();
        let words = ["checkpoint", "job", "-o", &name, "--then", "kill"];
        let peak = peak_of(job, &words)?;
        println!("checkpoint: {peak} KiB");
        let expected = LEAST_KIB..=MOST_OF_A_CHECKPOINT_KIB;
        if !expected.contains(&peak) {
            return Err(format!("found {peak} KiB, expected {expected:?}"));
        }
        job.wait_killed()?;
        for verb in ["verify", "inspect"] {
            let peak = peak_of(job, &[verb, &name])?;
            println!("{verb}: {peak} KiB");
            let expected = LEAST_KIB..=MOST_OF_A_READER_KIB;
            if !expected.contains(&peak) {
                return Err(format!("{verb}: found {peak} KiB, expected {expected:?}"));
            }
        }
        job.restart(&image, Restart::Command)?;
        job.wait_up()?;
        let are_small = || {
            let all = supervisors(job);
            let are_small = all.iter().all(|(_, now, most)| {
                *now <= MOST_OF_A_SUPERVISOR_KIB && *most <= MOST_OF_A_START_KIB
            });
            // P0 and P1.
            (all.len() == 2 && are_small).then_some(())
        };
        run::poll(STEP, are_small).ok_or_else(|| {
            let all = supervisors(job);
            format!(
                "found {all:?}, expected two of {MOST_OF_A_SUPERVISOR_KIB} KiB each at most, \
                 {MOST_OF_A_START_KIB} as they started"
            )
        })?;
        println!("supervisors: {:?}", supervisors(job));
        job.let_go();
        passed(job.wait_pass()?)
    });
}

/// Which read of each thread is held up, and for how long.
const HELD_UP: (usize, Duration) = (1000, Duration::from_secs(2));

/// A command of which strace(1) holds reads up, and writes them down.
fn held_up(command: &Command, log: &Path) -> Command {
    let (which, how_long) = (HELD_UP.0, HELD_UP.1.as_micros());
    let mut traced = Command::new("strace");
    traced.args(["-f", "-e", "trace=pread64", "-o"]).arg(log);
    let inject = format!("inject=pread64:delay_enter={how_long}:when={which}");
    traced.args(["-e", &inject, "--"]);
    traced.arg(command.get_program()).args(command.get_args());
    let set = command.get_envs();
    traced.envs(set.filter_map(|(name, value)| Some((name, value?))));
    traced
}

/// How many threads have read so often that they are held up.
fn are_held_up(log: &Path) -> usize {
    let log = fs::read(log).unwrap_or_default();
    let mut reads: BTreeMap<&[u8], usize> = BTreeMap::new();
    for line in log.split(|byte| *byte == b'\n') {
        let tid = line.split(|byte| *byte == b' ').next().unwrap_or(line);
        *reads.entry(tid).or_default() += 1;
    }
    let held_up = reads.values().filter(|count| **count >= HELD_UP.0 - 1);
    held_up.count()
}

#[test]
fn tables_that_change_while_memory_is_filled_end_the_restart() {
    let name = "tables_that_change_while_memory_is_filled_end_the_restart";
    if Command::new("strace").arg("-V").output().is_err() {
        return skip::note(name, "there is no strace");
    }
    let program = c_guest("scattered", Linking::Dynamic).expect("the guest compiles");
    let guest = Guest::new("scattered_changed", program, &["scattered"]);
    with_job(&guest, |job| {
        passed(job.start()?)?;
        let image = job.checkpoint("kill")?;
        job.wait_killed()?;
        job.let_go();
        let sound = Image::open(&image).map_err(|error| error.to_string())?;
        let tables = *sound.header().section(SectionKind::Extents);
        let log = job.dir.join("data/reads");
        let command = job.wayfarer(&["restart", "--name", "again", &image.to_string_lossy()]);
        let mut run = Run::start("restart", held_up(&command, &log), User::Ordinary)?;
        // Who checks the image, and one that fills memory.
        let filling = run::poll(STEP, || (are_held_up(&log) >= 2).then_some(()));
        filling.ok_or_else(|| format!("nobody fills memory: {}", run.describe()))?;
        let file = fs::OpenOptions::new().read(true).write(true).open(&image);
        let file = file.map_err(|error| error.to_string())?;
        let mut bytes = vec![0; tables.used as usize];
        let changed = file
            .read_exact_at(&mut bytes, tables.offset)
            .and_then(|()| {
                bytes.iter_mut().for_each(|byte| *byte ^= 0x10);
                file.write_all_at(&bytes, tables.offset)
            });
        changed.map_err(|error| error.to_string())?;
        let status = run::poll(STEP, || run.ended());
        let said = run.describe();
        let expected = ".wf.extents: the image was changed while it was read";
        if status.and_then(|status| status.code()) != Some(4) || said.matches(expected).count() != 1
        {
            return Err(format!("expected status 4 and once {expected:?}: {said}"));
        }
        let nobody = || run::marked(&job.mark).is_empty().then_some(());
        run::poll(STEP, nobody).ok_or("processes are left")?;
        Ok(())
    });
}
