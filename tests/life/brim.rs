//! A job's undo journal that is nearly full.

use super::*;
use crate::support::filling;

#[test]
fn a_journal_that_is_nearly_full_has_images_made_before_it_is() {
    let guest = Guest::new("brim", "/usr/bin/python3", &["-c", filling::PROGRAM]);
    with_job(&guest, |job| {
        let data = job.dir.join("data");
        filling::prepare(&data, User::Ordinary);
        let most = filling::MOST;
        start(job, &["--journal", "--every", "1h", "--journal-max", most])?;
        expect_end(job, 0)?;
        let status = status_of(job)?;
        let made = status["NumCkpts"].as_u64();
        if made.is_none_or(|made| made < 3) || !filling::is_filled(&data) {
            return Err(format!("{status}: {}", starter(job)?.describe()));
        }
        Ok(())
    });
}
