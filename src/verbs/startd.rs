//! `wayfarer startd`, and what is asked of the one that is there.

use super::queue;
use crate::args::{Startd, StartdStatus, StartdVerb, SubmitFile};
use crate::jobs::JobStore;
use crate::life;
use crate::output::{self, Table};
use crate::raw;
use crate::report::{Exit, Explain, Failure, Outcome, tell};
use crate::startd::{self, Ask, How, JobLine, Places, Record, SlotLine, Surrounding};
use crate::verbs::policy::{judged, with_owner};
use classad::config::Verdict;
use classad::{ClassAd, Expr};
use serde::Serialize;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

const SCHEMA_VERSION: u32 = 1;
/// What a job's name is made from, where its file has none that jobs may have.
const USUAL_NAME: &str = "job";

/// Is one, or asks one.
pub(crate) fn startd(store: &JobStore, arguments: &Startd) -> Outcome {
    let how = |graceful: bool, quick: bool, fast: bool| match (quick, fast, graceful) {
        (true, ..) => How::Quick,
        (_, true, _) => How::Fast,
        _ => How::Graceful,
    };
    let Some(what) = &arguments.what else {
        return startd::run(store, arguments);
    };
    let ask = match what {
        StartdVerb::Submit(file) => return submit(store, file),
        StartdVerb::Status(status) => return show(store, status),
        StartdVerb::Remove(job) => return queue::remove(store, &job.job),
        StartdVerb::Release(job) => Ask::Release {
            job: job.job.clone(),
        },
        StartdVerb::Hold(hold) => Ask::Hold {
            job: hold.job.clone(),
            reason: hold.reason.clone(),
        },
        StartdVerb::Drain(drain) if drain.cancel => Ask::CancelDrain {},
        StartdVerb::Drain(drain) => Ask::Drain {
            how: how(drain.graceful, drain.quick, drain.fast),
            resumes: drain.resume_on_completion,
            start: drain.start.clone(),
        },
        StartdVerb::Off(off) if off.peaceful => Ask::Off { how: How::Peaceful },
        StartdVerb::Off(off) => Ask::Off {
            how: how(off.graceful, false, off.fast),
        },
        StartdVerb::Vacate(vacate) => Ask::Vacate {
            slot: vacate.slot.clone(),
            fast: vacate.fast,
        },
        StartdVerb::Checkpoint(checkpoint) => Ask::Checkpoint {
            slot: checkpoint.slot.clone(),
        },
        StartdVerb::Reconfig => Ask::Reconfig {},
    };
    let notice = asked(store, ask)?;
    if !notice.is_empty() {
        tell(&notice);
    }
    Ok(Exit::Done)
}

/// Asks the one that is there; what it has to say besides.
pub(super) fn asked(store: &JobStore, ask: Ask) -> Outcome<String> {
    let places = Places::of(store.dir());
    if !places.is_watched() {
        let message = format!(
            "no startd is there for the jobs in {}",
            crate::raw::shown_path(store.dir())
        );
        return Err(Failure::new(Exit::Lost, message).advise("wayfarer startd --config FILE"));
    }
    let reply = life::ask(&places.own, ask, || ())?;
    match reply.reason {
        None => Ok(reply.state),
        Some(reason) => Err(Failure::new(Exit::Failed, reason)),
    }
}

/// Hands a job in.
fn submit(store: &JobStore, arguments: &SubmitFile) -> Outcome {
    let path = &arguments.file;
    let shown = raw::shown_path(path);
    let bytes = startd::read_limited(path);
    let bytes = bytes.context(|| shown.clone()).exit(Exit::Usage)?;
    let around = Surrounding {
        directory: std::env::current_dir()?,
        environment: std::env::vars_os().collect(),
    };
    let read = startd::read_job(&shown, &bytes, &around).exit(Exit::Usage)?;
    if !read.ignored.is_empty() {
        tell(&format!(
            "{shown}: without meaning here: {}",
            read.ignored.join(", ")
        ));
    }
    for warning in &read.warnings {
        tell(&format!("warning: {warning}"));
    }
    if let Some(wrong) = read.request {
        return Err(wrong).exit(Exit::Usage);
    }
    let places = Places::of(store.dir());
    places.make()?;
    let mut ad = read.spec.ad;
    if let Some(config) = &arguments.config {
        ad = admitted(config, ad)?;
        // What transforms have made has to be a job as well.
        let whole = ad.to_old().into_bytes();
        let read = startd::read_job(&format!("{shown}, transformed"), &whole, &around)?;
        if let Some(wrong) = read.request {
            return Err(wrong).exit(Exit::Failed);
        }
    }
    let now = i64::try_from(crate::jobs::unix_now()).unwrap_or(i64::MAX);
    ad.insert("QDate", Expr::from(now));
    let _guard = numbering(&places)?;
    let number = next_number(&places)?;
    ad.insert("ClusterId", Expr::from(number));
    let name = match &arguments.name {
        Some(name) => name.clone(),
        None => free_name(store, &places, path),
    };
    if !is_free(store, &places, &name) {
        let message = format!("there is a job {name} already");
        let failure = Failure::new(Exit::Failed, message);
        return Err(failure
            .advise("another --name, or none")
            .advise(format!("wayfarer remove {name}")));
    }
    write_whole(
        &startd::file_of(&places.spool, &name),
        &ad.to_old().into_bytes(),
    )?;
    if places.is_watched() {
        let job = Some(name.clone());
        // It looks when it begins, too.
        let reply = life::ask(&places.own, Ask::Submitted { job }, || ());
        if let Ok(Some(reason)) = reply.map(|reply| reply.reason) {
            return Err(Failure::new(Exit::Failed, reason));
        }
    }
    output::print(&format!("{name}\n"))?;
    Ok(Exit::Done)
}

/// A job as a configuration wants it, if its requirements let it in.
fn admitted(config: &Path, ad: ClassAd) -> Outcome<ClassAd> {
    let (done, opinions) = judged(config, &ClassAd::new(), &with_owner(ad))?;
    for opinion in opinions {
        match opinion.verdict {
            Verdict::Met => {}
            Verdict::Warned(reason) => tell(&format!("{}: warning: {reason}", opinion.name)),
            Verdict::Refused(reason) => {
                let message = format!("{}: the job is refused: {reason}", opinion.name);
                return Err(Failure::new(Exit::Failed, message));
            }
        }
    }
    Ok(done.ad)
}

/// Held while a job gets its number and its name.
fn numbering(places: &Places) -> Outcome<nix::fcntl::Flock<fs::File>> {
    let path = places.spool.join(".lock");
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path);
    let file = file.context(|| crate::raw::shown_path(&path))?;
    nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusive)
        .map_err(|(_, errno)| errno)
        .context(|| crate::raw::shown_path(&path))
}

fn next_number(places: &Places) -> Outcome<i64> {
    let path = places.spool.join(".number");
    let last = fs::read_to_string(&path).unwrap_or_default();
    let number = last.trim().parse().unwrap_or(0i64).saturating_add(1);
    write_whole(&path, format!("{number}\n").as_bytes())?;
    Ok(number)
}

fn is_free(store: &JobStore, places: &Places, name: &str) -> bool {
    !startd::file_of(&places.spool, name).exists() && !store.dir().join("jobs").join(name).exists()
}

fn free_name(store: &JobStore, places: &Places, path: &Path) -> String {
    let stem = path
        .file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or_default();
    let stem = match crate::args::is_job_name(stem) && stem.len() < 40 {
        true => stem,
        false => USUAL_NAME,
    };
    let names = (1u64..).map(|number| format!("{stem}-{number}"));
    let mut free = names.filter(|name| is_free(store, places, name));
    free.next().unwrap_or_else(|| stem.to_owned())
}

/// A file that is there whole, or not at all.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Outcome<()> {
    let describe = || format!("cannot write {}", crate::raw::shown_path(path));
    let beside = path.with_extension(format!("new{}", std::process::id()));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)
        .context(describe)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&beside, path))
        .and_then(|()| match path.parent() {
            Some(dir) => fs::File::open(dir)?.sync_all(),
            None => Ok(()),
        });
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written.context(describe)
}

#[derive(Serialize)]
struct Report<'r> {
    is_running: bool,
    #[serde(flatten)]
    record: &'r Shown,
}

/// What is shown of the record.
#[derive(Serialize)]
struct Shown {
    state: String,
    config: String,
    dialect: String,
    since: i64,
    slots: Vec<SlotLine>,
    jobs: Vec<JobLine>,
    /// When a startd that is not running has written that down, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    as_of: Option<u64>,
}

fn written_at(record: &Path) -> Option<u64> {
    let written = fs::metadata(record).ok()?.modified().ok()?;
    let since = written.duration_since(UNIX_EPOCH).ok()?;
    Some(since.as_secs())
}

/// Shows slots and queue.
fn show(store: &JobStore, arguments: &StartdStatus) -> Outcome {
    let places = Places::of(store.dir());
    let is_running = places.is_watched();
    if is_running {
        asked(store, Ask::Status {})?;
    }
    let as_of = (!is_running).then(|| written_at(&places.record)).flatten();
    let Some(record) = Record::load(&places.record)? else {
        let message = format!(
            "no startd was there for the jobs in {}",
            crate::raw::shown_path(store.dir())
        );
        return Err(Failure::new(Exit::Failed, message).advise("wayfarer startd --config FILE"));
    };
    let shown = Shown {
        state: match is_running {
            true => record.state,
            false => "Off".to_owned(),
        },
        config: record.config,
        dialect: record.dialect,
        since: record.since,
        slots: match is_running {
            true => record.slots,
            false => vec![],
        },
        jobs: match is_running {
            true => record.jobs,
            false => queue::without_startd(store, &places, record.jobs),
        },
        as_of,
    };
    if arguments.json {
        let record = &shown;
        output::print_json(SCHEMA_VERSION, &Report { is_running, record })?;
    } else {
        output::print(&render(&shown))?;
    }
    Ok(Exit::Done)
}

fn render(shown: &Shown) -> String {
    let now = i64::try_from(crate::jobs::unix_now()).unwrap_or(i64::MAX);
    let since = |moment: i64| format!("{} s", now.saturating_sub(moment).max(0));
    let mut text = format!(
        "{}, {} (Condor {})\n",
        shown.state,
        raw::shown(&shown.config),
        shown.dialect
    );
    if let Some(moment) = shown.as_of {
        let ago = output::ago(moment);
        text.push_str(&format!("startd is not running: as of {ago}\n"));
    }
    if !shown.slots.is_empty() {
        let mut table = Table::new(&[
            "SLOT", "STATE", "ACTIVITY", "SINCE", "CPUS", "MEMORY", "JOB",
        ]);
        for slot in &shown.slots {
            table.push(vec![
                slot.name.clone(),
                slot.state.clone(),
                slot.activity.clone(),
                since(slot.entered_activity),
                slot.cpus.to_string(),
                format!("{} MiB", slot.memory),
                slot.job.clone().unwrap_or_else(|| "-".to_owned()),
            ]);
        }
        text.push_str(&table.render());
    }
    if shown.jobs.is_empty() {
        text.push_str("no jobs\n");
        return text;
    }
    let mut table = Table::new(&["JOB", "STATE", "SLOT", "STARTS", "IMAGES", "WHY"]);
    for job in &shown.jobs {
        table.push(vec![
            job.name.clone(),
            job.state.clone(),
            job.slot.clone().unwrap_or_else(|| "-".to_owned()),
            job.starts.to_string(),
            job.images.to_string(),
            job.why.join("; "),
        ]);
    }
    text.push_str(&table.render());
    text
}
