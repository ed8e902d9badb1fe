//! Others make and remove names meanwhile; several streams ask while marks are made.

use crate::picture;
use crate::site::*;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// However the test ends, the others do.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn opens_are_right_while_others_make_and_remove_the_name() {
    let site = Site::new();
    let over = AtomicBool::new(false);
    let path = site.path("name");
    let (mut made, mut there) = (0, 0);
    let deadline = Instant::now() + Duration::from_secs(60);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                fs::write(&path, "theirs").expect("writes");
                let _ = fs::remove_file(&path);
            }
        });
        let _ends = Ends(&over);
        // On one processor the others may not run for long.
        let mut round = 0;
        while round < 2000 || ((made == 0 || there == 0) && Instant::now() < deadline) {
            round += 1;
            let flags = O_RDWR | O_CREAT | [0, O_EXCL, O_TRUNC][round % 3];
            match site.handle("name", flags) {
                Ok(handle) => {
                    made += 1;
                    site.close(handle);
                    // It may be another's by now, or gone.
                    let removed = site.remove("name", false);
                    assert!(matches!(removed, Ok(()) | Err(ENOENT)), "{removed:?}");
                }
                Err(EEXIST) if flags & O_EXCL != 0 => there += 1,
                Err(errno) => panic!("{errno}"),
            }
        }
    });
    assert!(made > 0 && there > 0, "{made} made, {there} there");
}

/// Whatever is asked by several streams at once: each mark is a moment.
#[test]
fn marks_are_moments_though_several_streams_change_files() {
    let site = Site::new();
    for number in 0..4 {
        fs::write(site.path(&format!("counter{number}")), [0; 8]).expect("writes");
    }
    let first = site.mark();
    let over = AtomicBool::new(false);
    let mut marks = vec![];
    thread::scope(|scope| {
        for number in 0..4 {
            let (site, over) = (&site, &over);
            scope.spawn(move || {
                let name = format!("counter{number}");
                let handle = site.handle(&name, O_RDWR).expect("opens");
                let mut count = 0_u64;
                while !over.load(Ordering::Relaxed) {
                    count += 1;
                    // First the number, then a file that says that it was written, then no more the one before.
                    site.write_to(handle, 0, &count.to_le_bytes())
                        .expect("writes");
                    let made = format!("{name}-{count}");
                    site.write(&made, O_WRONLY | O_CREAT | O_EXCL, 0, b"x")
                        .expect("makes");
                    if count > 1 {
                        let before = format!("{name}-{}", count - 1);
                        site.remove(&before, false).expect("removes");
                    }
                }
            });
        }
        let _ends = Ends(&over);
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(5));
            marks.push(site.mark());
        }
    });
    for mark in marks.into_iter().rev() {
        site.undo(mark);
        for number in 0..4 {
            let name = format!("counter{number}");
            let bytes = fs::read(site.path(&name)).expect("reads");
            let count = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
            let all = picture::take(&site.root());
            let prefix = format!("{name}-");
            let names: Vec<u64> = all
                .keys()
                .filter_map(|key| key.to_str()?.strip_prefix(&prefix)?.parse().ok())
                .collect();
            let possible = names
                .iter()
                .all(|made| (count.saturating_sub(2)..=count).contains(made));
            assert!(possible && names.len() <= 2, "{count}: {names:?}");
            assert!(count < 2 || !names.is_empty(), "{count}: {names:?}");
        }
    }
    site.undo(first);
    assert_eq!(site.picture().len(), 5);
}
