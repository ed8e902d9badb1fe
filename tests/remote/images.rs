//! Images of jobs on other machines that are kept elsewhere at home (`--images DIR`).

use super::away::Site;
use crate::support::user::User;
use nix::sys::signal::{Signal, kill};
use std::fs;

#[test]
fn images_that_come_home_are_kept_where_it_was_said() {
    let what = "images_that_come_home_are_kept_where_it_was_said";
    let Some(site) = Site::new(what, "away-images") else {
        return;
    };
    let dir = site.submit.dir.join("elsewhere");
    fs::create_dir(&dir).expect("is made");
    User::Ordinary.own(&dir);
    let shown = dir.display().to_string();
    let options = ["--every", "1h", "--images", &shown];
    let mut job = site.with_files(site.guest(&["127.0.0.1"], &options));
    site.until("Running", 1);
    site.until_lines(10);
    site.told(&["checkpoint", "job"]);
    assert!(dir.join("job/job-1.img").is_file(), "{}", site.story());
    site.told(&["migrate", "job", "--to", "localhost"]);
    site.until("Running", 2);
    assert!(dir.join("job/job-2.img").is_file(), "{}", site.story());
    kill(site.keeper(), Signal::SIGKILL).expect("is there");
    site.until("Running", 3);
    site.told(&["vacate", "job"]);
    super::away::ends(&mut job, 85, &site);
    let mut job = site.with_files(site.guest(&["127.0.0.1"], &["--resume"]));
    site.until("Running", 4);
    site.ends_well(&mut job);
    site.told(&["ps", "--prune", "job"]);
    let left = fs::read_dir(&dir).expect("lists").count();
    assert_eq!(left, 0, "{dir:?}");
}
