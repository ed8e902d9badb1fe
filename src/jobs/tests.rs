use super::*;

fn store() -> (tempfile::TempDir, JobStore) {
    let dir = tempfile::tempdir().expect("dir");
    let store = JobStore::locate(Some(dir.path())).expect("store");
    (dir, store)
}

fn new_job(name: Option<&str>) -> NewJob {
    NewJob {
        name: name.map(str::to_owned),
        base: "/bin/sleep".to_owned(),
        replace: false,
        continues: false,
        is_same: false,
        command: vec!["sleep".to_owned()],
        generation: 0,
        root_pid: None,
        journal: false,
        restarted_from: None,
        outputs: Outputs::default(),
        is_copy: false,
        confined: false,
    }
}

/// Lets the job's supervisor have ended.
fn end(job: &mut Job) {
    job.record.supervisor.start_ticks += 1;
    job.record.save(&job.dir).expect("save");
}

fn put_image(job: &Job, generation: u64) -> PathBuf {
    let path = job.image_path(generation).expect("path");
    fs::write(&path, b"image").expect("write");
    path
}

#[test]
fn a_living_jobs_name_is_taken_and_an_ended_jobs_is_not() {
    let (_dir, store) = store();
    let mut job = store.register(new_job(Some("x"))).expect("registers");
    assert_eq!(job.life(), Life::Living);
    assert!(matches!(
        store.register(new_job(Some("x"))),
        Err(JobError::Taken { .. })
    ));
    end(&mut job);
    assert_eq!(store.find("x").expect("found").life(), Life::Ended);
    store.register(new_job(Some("x"))).expect("registers again");
}

#[test]
fn images_of_an_ended_job_are_not_lost_to_a_new_one() {
    let (_dir, store) = store();
    let mut job = store.register(new_job(Some("x"))).expect("registers");
    let image = put_image(&job, 3);
    end(&mut job);
    let refused = store.register(new_job(Some("x")));
    assert!(
        matches!(refused, Err(JobError::HasImages { count: 1, .. })),
        "{refused:?}"
    );
    let continued = NewJob {
        continues: true,
        ..new_job(Some("x"))
    };
    let mut job = store.register(continued).expect("continues");
    assert!(image.exists());
    assert_eq!(job.next_generation(), 4);
    end(&mut job);
    let replaced = NewJob {
        replace: true,
        ..new_job(Some("x"))
    };
    store.register(replaced).expect("replaces");
    assert!(!image.exists());
}

#[test]
fn names_are_numbered_and_free_ones_used_again() {
    let (_dir, store) = store();
    let mut first = store.register(new_job(None)).expect("registers");
    let second = store.register(new_job(None)).expect("registers");
    assert_eq!(first.record.name, "sleep-1");
    assert_eq!(second.record.name, "sleep-2");
    end(&mut first);
    assert_eq!(
        store
            .register(new_job(None))
            .expect("registers")
            .record
            .name,
        "sleep-1"
    );
    let names: Vec<_> = store.list().expect("list").into_iter().flatten().collect();
    assert_eq!(names.len(), 2);
}

#[test]
fn a_job_of_another_machine_is_left_alone() {
    let (_dir, store) = store();
    let mut job = store.register(new_job(Some("x"))).expect("registers");
    job.record.place.host = "elsewhere.example".to_owned();
    job.record.place.boot_id = "another".to_owned();
    job.record.save(&job.dir).expect("save");
    let host = "elsewhere.example".to_owned();
    assert_eq!(job.life(), Life::Elsewhere { host });
    assert!(matches!(
        store.register(new_job(Some("x"))),
        Err(JobError::Taken { .. })
    ));
    job.record.place.host = Place::here().host;
    assert_eq!(
        job.life(),
        Life::Ended,
        "this machine has been started anew"
    );
}

#[test]
fn the_last_two_images_are_kept() {
    let (_dir, store) = store();
    let job = store.register(new_job(Some("x"))).expect("registers");
    for generation in [1, 2, 9, 10] {
        put_image(&job, generation);
    }
    let damaged = || ckpt_lib::image::Image::open(Path::new("/dev/null")).map(drop);
    let refused = job.trim(|_| damaged().map_err(JobError::Damaged));
    assert!(matches!(refused, Err(JobError::Damaged(_))), "{refused:?}");
    assert_eq!(job.images().expect("images").len(), 4, "none is removed");
    job.trim(|_| Ok(())).expect("trims");
    let left: Vec<_> = job
        .images()
        .expect("list")
        .into_iter()
        .map(|i| i.generation)
        .collect();
    assert_eq!(left, [9, 10]);
}

#[test]
fn a_second_checkpoint_at_the_same_time_is_refused() {
    let (_dir, store) = store();
    let job = store.register(new_job(Some("x"))).expect("registers");
    let held = job.lock().expect("locks");
    assert!(matches!(job.lock(), Err(JobError::Busy { .. })));
    drop(held);
    job.lock().expect("locks again");
}

#[test]
fn a_missing_job_is_named_with_those_that_are_there() {
    let (_dir, store) = store();
    store.register(new_job(Some("x"))).expect("registers");
    let error = store.find("y").expect_err("missing");
    assert!(error.to_string().contains("no job y"), "{error}");
    assert!(error.to_string().contains("found: x"), "{error}");
    assert!(store.find("../x").is_err());
}

#[test]
fn bases_of_names() {
    assert_eq!(name_base("/usr/bin/[x"), "_x");
    assert_eq!(name_base("..."), "job");
    assert!(crate::args::is_job_name(&format!("{}-1", name_base("12"))));
}

#[test]
fn what_a_newer_wayfarer_wrote_is_left_alone() {
    let (_dir, store) = store();
    let job = store.register(new_job(Some("sleep-1"))).expect("registers");
    let record = job.dir.join("job.json");
    fs::write(&record, b"{\"schema_version\": 9}").expect("write");
    let replacing = NewJob {
        replace: true,
        ..new_job(Some("sleep-1"))
    };
    for new in [new_job(Some("sleep-1")), replacing] {
        let refused = store.register(new);
        assert!(
            matches!(refused, Err(JobError::Newer { .. })),
            "{refused:?}"
        );
    }
    let next = store.register(new_job(None)).expect("registers");
    assert_eq!(next.record.name, "sleep-2");
    assert!(matches!(
        store.remove_unreadable("sleep-1"),
        Err(JobError::Newer { .. })
    ));
    assert_eq!(fs::read(&record).expect("read"), b"{\"schema_version\": 9}");
}

#[test]
fn directories_without_a_record_are_seen_and_removed() {
    let (_dir, store) = store();
    let job = store.register(new_job(Some("x"))).expect("registers");
    assert_eq!(store.unrecorded().expect("list"), []);
    assert!(matches!(
        store.remove_unreadable("x"),
        Err(JobError::Taken { .. })
    ));
    put_image(&job, 1);
    fs::remove_file(job.dir.join("job.json")).expect("remove");
    let found = store.unrecorded().expect("list");
    assert_eq!(found, [("x".to_owned(), 1)]);
    assert_eq!(store.remove_unreadable("x").expect("removes"), 1);
    assert!(!job.dir.exists());
}

#[test]
fn the_last_checkpoint_counts_wherever_its_image_is() {
    let (_dir, store) = store();
    let mut job = store.register(new_job(Some("x"))).expect("registers");
    put_image(&job, 1);
    put_image(&job, 3);
    let elsewhere = PathBuf::from("/elsewhere/x.img");
    for (generation, expected) in [(2, [1, 2, 3]), (4, [1, 3, 4])] {
        job.record.last_checkpoint = Some(CheckpointNote {
            image: elsewhere.clone(),
            generation,
            taken_at: 1,
            image_bytes: 1,
            whole_bytes: 1,
            sent_bytes: None,
            platform: None,
            made: None,
            files: None,
        });
        let found = job.known_images().expect("list");
        let found: Vec<_> = found.iter().map(|image| image.generation).collect();
        assert_eq!(found, expected);
    }
}
