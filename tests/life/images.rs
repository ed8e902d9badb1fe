//! Images that are kept elsewhere (`--images DIR`).

use super::*;

/// A directory for images, of the user's.
fn elsewhere(job: &Job) -> PathBuf {
    let dir = job.dir.join("elsewhere");
    fs::create_dir_all(&dir).expect("is made");
    User::Ordinary.own(&dir);
    dir
}

fn names(dir: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name != ".job").collect();
    names.sort();
    names
}

fn expect_names(dir: &std::path::Path, expected: &[&str]) -> Result<(), String> {
    match names(dir) {
        found if found == expected => Ok(()),
        found => Err(format!(
            "{}: found {found:?}, expected {expected:?}",
            dir.display()
        )),
    }
}

fn started_in(job: &mut Job, dir: &std::path::Path) -> Result<(), String> {
    let shown = dir.display().to_string();
    start(job, &["--images", &shown])?;
    until_longer(job)
}

#[test]
fn images_are_kept_where_it_was_said_and_go_with_the_job() {
    with_job(&chain("images"), |job| {
        let dir = elsewhere(job);
        started_in(job, &dir)?;
        ask(job, &["checkpoint", "job"])?;
        let folder = dir.join("job");
        expect_names(&folder, &["job-1.img"])?;
        let mode = fs::metadata(&folder).map_err(|error| error.to_string())?;
        let mode = std::os::unix::fs::MetadataExt::mode(&mode) & 0o7777;
        if mode != 0o700 {
            return Err(format!("mode {mode:04o}"));
        }
        kill(root_of(job)?, Signal::SIGKILL).map_err(|error| error.to_string())?;
        until(job, "it goes on", |status| status["NumRestarts"] == 1)?;
        until_longer(job)?;
        for _ in 0..2 {
            ask(job, &["checkpoint", "job"])?;
        }
        expect_names(&folder, &["job-2.img", "job-3.img"])?;
        ask(job, &["vacate", "job"])?;
        expect_end(job, 85)?;
        expect_names(&folder, &["job-3.img", "job-4.img"])?;
        for verb in ["verify", "inspect"] {
            ask(
                job,
                &[verb, &folder.join("job-4.img").display().to_string()],
            )?;
        }
        // They are this job's, by whatever name.
        let another = ["run", "--name", "job", "--", "true"];
        refused(job, &another, "still has 2 image(s) in")?;
        start(job, &["--resume"])?;
        ends_well(job)?;
        expect_names(&folder, &["job-3.img", "job-4.img"])?;
        let said = ask(job, &["ps", "--prune", "job"])?;
        if !said.contains("2 images") {
            return Err(said);
        }
        expect_names(&dir, &[])
    });
}

#[test]
fn an_image_file_elsewhere_is_its_jobs() {
    with_job(&chain("image file"), |job| {
        let dir = elsewhere(job);
        started_in(job, &dir)?;
        ask(job, &["vacate", "job"])?;
        expect_end(job, 85)?;
        let image = dir.join("job/job-1.img").display().to_string();
        let mut command = job.wayfarer(&["restart"]);
        command.arg(&image);
        job.equip(&mut command);
        let run = Run::start("the guest, from a file", command, User::Ordinary)?;
        job.runs.push(run);
        until_longer(job)?;
        ask(job, &["checkpoint", "job"])?;
        expect_names(&dir.join("job"), &["job-1.img", "job-2.img"])?;
        ends_well(job)
    });
}

#[test]
fn a_place_for_images_that_is_gone_is_named_and_nothing_is_lost() {
    with_job(&chain("images gone"), |job| {
        let dir = elsewhere(job);
        started_in(job, &dir)?;
        ask(job, &["checkpoint", "job"])?;
        let hidden = job.dir.join("hidden");
        let moved =
            |from: &PathBuf, to: &PathBuf| fs::rename(from, to).map_err(|error| error.to_string());
        moved(&dir, &hidden)?;
        let folder = dir.join("job").display().to_string();
        refused(job, &["checkpoint", "job"], &folder)?;
        // It cannot go on, and is not begun again as if it had none.
        kill(root_of(job)?, Signal::SIGKILL).map_err(|error| error.to_string())?;
        expect_end(job, 1)?;
        let status = status_of(job)?;
        let reason = status["HoldReason"].as_str().unwrap_or_default();
        if status["State"] != "Held" || !reason.contains(&folder) {
            return Err(format!("found {status}, expected a held job"));
        }
        moved(&hidden, &dir)?;
        ask(job, &["release", "job"])?;
        start(job, &["--resume"])?;
        until_longer(job)?;
        ask(job, &["vacate", "job"])?;
        expect_end(job, 85)?;
        moved(&dir, &hidden)?;
        refused(job, &["restart", "job"], &folder)?;
        start(job, &["--resume"])?;
        let status = end(job)?;
        let said = starter(job)?.err.text();
        if status == 0 || status == 85 || !said.contains(&folder) {
            return Err(format!("status {status}: {said}"));
        }
        moved(&hidden, &dir)?;
        start(job, &["--resume"])?;
        ends_well(job)
    });
}

#[test]
fn a_place_for_images_that_is_none_is_refused() {
    with_job(&chain("no place"), |job| {
        let dir = elsewhere(job);
        let file = dir.join("file");
        fs::write(&file, "").map_err(|error| error.to_string())?;
        let open = dir.join("open");
        let others = dir.join("others");
        for made in [&open, &others, &others.join("job")] {
            fs::create_dir(made).map_err(|error| error.to_string())?;
            User::Ordinary.own(made);
        }
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(&open, mode).map_err(|error| error.to_string())?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(others.join("job"), mode).map_err(|error| error.to_string())?;
        for (place, why) in [
            (dir.join("nothing"), "cannot find"),
            (file, "found no directory"),
            (open, "found mode 0777"),
            (others, "a folder of somebody else"),
        ] {
            start(job, &["--images", &place.display().to_string()])?;
            let status = end(job)?;
            let said = starter(job)?.err.text();
            let is_named = said.contains(why) && said.contains(&place.display().to_string());
            if status != 1 || !is_named {
                return Err(format!("{why}: status {status}: {said}"));
            }
            refused(job, &["status", "job"], "no job")?;
        }
        // Images do not move.
        started_in(job, &dir)?;
        ask(job, &["vacate", "job"])?;
        expect_end(job, 85)?;
        let another = dir.join("another");
        fs::create_dir(&another).map_err(|error| error.to_string())?;
        User::Ordinary.own(&another);
        start(
            job,
            &["--resume", "--images", &another.display().to_string()],
        )?;
        let status = end(job)?;
        let said = starter(job)?.err.text();
        if status != 1 || !said.contains("its images in") {
            return Err(format!("status {status}: {said}"));
        }
        start(job, &["--resume", "--images", &dir.display().to_string()])?;
        ends_well(job)
    });
}

#[test]
fn a_full_place_for_images_is_named_and_the_job_runs_on() {
    with_job(&chain("images full"), |job| {
        let dir = elsewhere(job);
        let mut tried = run::clean_command("unshare");
        tried.args(["-rm", "mount", "-t", "tmpfs", "none", "/mnt"]);
        let (status, tried) = finish("unshare", tried, User::Ordinary, STEP)?;
        if !status.success() {
            let why = tried.err.text();
            let why = format!("no file system of one's own: {}", why.trim());
            support::skip::note("a full place for images", &why);
            return Ok(());
        }
        let shown = dir.display().to_string();
        let starting = starting(job, &["--every", "100ms", "--images", &shown]);
        let mut command = run::clean_command("unshare");
        let script = "mount -t tmpfs -o size=256k,mode=700 none \"$0\" || exit 99\nexec \"$@\"";
        command.args(["-rm", "/bin/sh", "-c", script, &shown]);
        command
            .arg(starting.get_program())
            .args(starting.get_args());
        for (name, value) in starting.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        command.current_dir(job.dir.join("data"));
        job.runs
            .push(Run::start(THE_GUEST, command, User::Ordinary)?);
        let folder = dir.join("job").display().to_string();
        let is_named = |status: &serde_json::Value| {
            let why = status["CheckpointRefused"].as_str().unwrap_or_default();
            why.contains(&folder) && why.contains("No space left")
        };
        until(job, "a full disk that is named", is_named)?;
        until_longer(job)?;
        ends_well(job)
    });
}
