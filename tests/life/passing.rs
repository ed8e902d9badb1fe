//! Images that cannot be gone on from: the one before is taken, and that is said.

use super::*;

/// The chain, by a job that has a file open as soon as that is there.
fn chain_with_more(label: &str) -> Guest {
    let program = CHAIN.replace(
        "    time.sleep(0.02)",
        "    if os.path.exists(\"more\") and len(sys.argv) < 2:\n        sys.argv.append(open(\"more\"))\n    time.sleep(0.02)",
    );
    Guest::new(label, "/usr/bin/python3", &["-c", &program])
}

/// It has left with two images, the second one made while `more` was open; what its loader is to find missing is gone.
fn left_without(job: &mut Job, gone: &str) -> Result<(), String> {
    let at = |error: std::io::Error| error.to_string();
    start(job, &["--keep", "2"])?;
    until_longer(job)?;
    ask(job, &["checkpoint", "job"])?;
    let more = job.dir.join("data/more");
    fs::write(&more, "more").map_err(at)?;
    let folder = format!("/proc/{}/fd", root_of(job)?);
    let is_open = || {
        let mut open = fs::read_dir(&folder).ok()?.flatten();
        open.find(|entry| fs::read_link(entry.path()).is_ok_and(|path| path.ends_with("more")))
    };
    run::poll(STEP, is_open).ok_or("the job does not open its file")?;
    ask(job, &["checkpoint", "job"])?;
    ask(job, &["vacate", "--latest", "job"])?;
    expect_end(job, 85)?;
    fs::remove_file(job.dir.join("data").join(gone)).map_err(at)
}

/// An image of this name was passed over, as status, event log and the starter's log say.
pub(super) fn expect_said(job: &mut Job, image: &str) -> Result<(), String> {
    let status = status_of(job)?;
    let in_status = status["ImagePassedOver"].as_str().unwrap_or_default();
    let shown = ask(job, &["status", "job"])?;
    let events = ask(job, &["log", "job"])?;
    let remarks = events.lines().filter(|line| line.starts_with("008 ("));
    let remarks: String = remarks.collect();
    let log = fs::read_to_string(job.dir.join("state/jobs/job/starter.log"));
    for (place, text) in [
        ("status --json", in_status),
        ("status", &shown),
        ("events", &remarks),
        ("starter.log", &log.unwrap_or_default()),
    ] {
        if !text.contains(image) {
            return Err(format!("{place}: found {text:?}, expected {image}"));
        }
    }
    Ok(())
}

#[test]
fn an_image_that_its_loader_refuses_is_passed_over() {
    with_job(&chain_with_more("refused"), |job| {
        left_without(job, "more")?;
        start(job, &["--resume"])?;
        until(job, "a restart", |status| {
            status["NumRestarts"] == 1 && status["State"] == "Running"
        })?;
        expect_said(job, "job-2.img")?;
        ends_well(job)
    });
}

#[test]
fn a_job_none_of_whose_images_can_be_used_is_held_and_says_why() {
    with_job(&chain_with_more("all_refused"), |job| {
        left_without(job, "chain")?;
        start(job, &["--resume"])?;
        expect_end(job, 1)?;
        let status = status_of(job)?;
        let reason = status["HoldReason"].as_str().unwrap_or_default();
        let named = ["job-2.img", "job-1.img", "/data/chain"];
        if status["State"] != "Held" || named.iter().any(|name| !reason.contains(name)) {
            return Err(format!("found {status}, expected a reason with {named:?}"));
        }
        Ok(())
    });
}

#[test]
fn a_job_all_of_whose_images_are_damaged_is_held_and_says_why() {
    with_job(&chain("all_damaged"), |job| {
        start(job, &["--keep", "2"])?;
        until_longer(job)?;
        ask(job, &["checkpoint", "job"])?;
        ask(job, &["vacate", "job"])?;
        expect_end(job, 85)?;
        for image in images(job) {
            let len = fs::metadata(&image)
                .map_err(|error| error.to_string())?
                .len();
            killed::flip(&image, len / 2)?;
        }
        start(job, &["--resume"])?;
        expect_end(job, 1)?;
        let status = status_of(job)?;
        let reason = status["HoldReason"].as_str().unwrap_or_default();
        let named = ["job-2.img", "job-1.img", "is damaged"];
        match status["State"] == "Held" && named.iter().all(|name| reason.contains(name)) {
            true => expect_said(job, "job-1.img"),
            false => Err(format!("found {status}, expected a reason")),
        }
    });
}

/// With a journal, its files go back to its beginning, too.
#[test]
fn a_job_none_of_whose_images_verifies_begins_again_if_it_can() {
    let guest = Guest::new(
        "begins_again",
        "/usr/bin/python3",
        &["-c", killed::IN_PLACE],
    );
    with_job(&guest, |job| {
        gone::journalled(job, true)?;
        ask(job, &["vacate", "--latest", "job"])?;
        expect_end(job, 85)?;
        for image in images(job) {
            let len = fs::metadata(&image).map_err(|error| error.to_string())?;
            killed::flip(&image, len.len() / 2)?;
        }
        start(job, &["--resume"])?;
        until(job, "another beginning", |status| {
            status["NumJobStarts"] == 2 && status["State"] == "Running"
        })?;
        if status_of(job)?["NumRestarts"] != 0 {
            return Err(status_of(job)?.to_string());
        }
        expect_said(job, "job-1.img")?;
        job.let_go();
        expect_end(job, 0)?;
        killed::check_in_place(job)
    });
}
