//! Marks: gone back to in any order, merged, forgotten; and answers, which belong to them.

use super::job::Job;
use super::picture::assert_same;
use journal::{Epoch, Files, JournalError};
use std::fs;

#[test]
fn each_kept_epoch_can_be_gone_back_to() {
    for target in 0..5 {
        let job = Job::new();
        let mut marks = vec![];
        for round in 0..5_u8 {
            marks.push((job.journal().epoch(), job.picture()));
            let text = [round; 80_000];
            job.write("file", u64::from(round) * 30_000, &text)
                .expect("writes");
            job.write(&format!("file {round}"), 0, &text)
                .expect("writes");
            if round > 1 {
                job.remove(&format!("file {}", round - 2)).expect("removes");
                job.truncate("file", 50_000).expect("cuts");
            }
            job.mark();
        }
        for (epoch, picture) in marks[..=target].iter().rev() {
            job.undo(*epoch);
            assert_same(&job.picture(), picture, "the mark");
            // And again, from there.
            job.write("file", 7, b"once more").expect("writes");
            job.undo(*epoch);
            assert_same(&job.picture(), picture, "the mark again");
        }
    }
}

#[test]
fn an_aborted_epoch_is_part_of_the_one_before() {
    let job = Job::new();
    job.write("file", 0, b"before").expect("writes");
    let mark = job.mark();
    let picture = job.picture();
    job.write("file", 0, b"AFTER").expect("writes");
    let aborted = job.mark();
    job.write("file", 3, b"later, and longer").expect("writes");
    job.remove("file").expect("removes");
    job.journal().abort_epoch(aborted).expect("merges");
    assert_eq!(job.journal().epoch(), mark);
    job.write("other", 0, b"after the merge").expect("writes");
    let gone = job.journal().undo_to(aborted, Files::Fail);
    assert!(
        matches!(gone, Err(JournalError::NoEpoch { .. })),
        "{gone:?}"
    );
    job.undo(mark);
    assert_same(&job.picture(), &picture, "the mark");
    let oldest = job.journal().abort_epoch(Epoch(1));
    assert!(
        matches!(oldest, Err(JournalError::NoEpoch { .. })),
        "{oldest:?}"
    );
}

#[test]
fn what_no_kept_epoch_needs_is_released() {
    let job = Job::new();
    job.write("first", 0, &[1; 1000]).expect("writes");
    job.write("second", 0, &[2; 1000]).expect("writes");
    job.mark();
    job.remove("first").expect("removes");
    let mark = job.mark();
    let picture = job.picture();
    job.remove("second").expect("removes");
    let kept = || fs::read_dir(job.dir.join("kept")).expect("reads").count();
    assert_eq!(kept(), 2);
    job.journal().forget_before(mark).expect("forgets");
    assert_eq!(kept(), 1);
    let segments = fs::read_dir(&job.dir).expect("reads").filter(|entry| {
        let name = entry.as_ref().expect("reads").file_name();
        name.to_string_lossy().starts_with("segment-")
    });
    assert_eq!(segments.count(), 1);
    let gone = job.journal().undo_to(Epoch(1), Files::Fail);
    assert!(
        matches!(gone, Err(JournalError::NoEpoch { .. })),
        "{gone:?}"
    );
    job.undo(mark);
    assert_same(&job.picture(), &picture, "the mark");
    assert_eq!(kept(), 0);
}

#[test]
fn answers_roll_back_with_their_epoch() {
    let mut job = Job::new();
    let remember = |job: &Job, request: u64| {
        let answer = request.to_le_bytes();
        job.journal().remember(request, &answer).expect("remembers");
    };
    let known = |job: &Job| -> Vec<u64> {
        (0..10)
            .filter(|request| job.journal().answer(*request).is_some())
            .collect()
    };
    remember(&job, 1);
    remember(&job, 2);
    let second = job.mark();
    remember(&job, 3);
    job.journal().forget_answers_below(2).expect("forgets");
    let third = job.mark();
    remember(&job, 4);
    assert_eq!(known(&job), [2, 3, 4]);
    assert_eq!(job.journal().answer(4), Some(4_u64.to_le_bytes().to_vec()));
    for again in 0..2 {
        job.undo(third);
        assert_eq!(known(&job), [2, 3], "{again}");
        job.crash();
        job.open().expect("opens");
        assert_eq!(known(&job), [2, 3], "{again}");
        remember(&job, 5);
    }
    job.journal().forget_before(second).expect("forgets");
    job.undo(second);
    assert_eq!(known(&job), [1, 2]);
}

#[test]
fn a_mark_keeps_its_note() {
    let mut job = Job::new();
    let epoch = job.journal().begin_epoch(b"image 7").expect("begins");
    job.close().expect("closes");
    job.open().expect("opens");
    let marks = job.journal().marks();
    let last = marks.last().expect("is there");
    assert_eq!((last.epoch, &last.note[..]), (epoch, &b"image 7"[..]));
    assert!(job.journal().begin_epoch(&[0; 5000]).is_err());
}
