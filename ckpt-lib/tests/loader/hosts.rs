//! Hosts that have nothing: an empty root, with /proc and without.

use crate::images::{Ended, TestImage, finish};
use crate::restore::hello_image;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The program that makes such hosts, built once.
fn empty_host() -> &'static PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let to = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("loader-empty-host");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/hosts/empty_host.c");
        let partial = to.with_extension(std::process::id().to_string());
        let status = Command::new("cc")
            .args(["-O1", "-o"])
            .arg(&partial)
            .arg(source)
            .status()
            .expect("a C compiler");
        assert!(status.success());
        std::fs::rename(&partial, &to).expect("renamed");
        to
    })
}

fn on_empty_host(image: &TestImage, host: &[&str], options: &[&str]) -> Ended {
    let mut command = Command::new(empty_host());
    command.args(host).arg("--with").arg(&image.path).arg("--");
    command.arg(&image.path).args(options);
    finish(command)
}

#[test]
fn an_empty_host_with_proc_is_enough() {
    let image = hello_image();
    for pids in ["auto", "namespace"] {
        let ended = on_empty_host(&image, &[], &["--pids", pids]);
        let found = (ended.code(), ended.stdout.as_str(), ended.stderr.as_str());
        assert_eq!(found, (Some(5), "went on\n", ""), "{pids}");
    }
}

#[test]
fn without_proc_what_is_lost_is_said_and_must_be_accepted() {
    let image = hello_image();
    let refused = on_empty_host(&image, &["--no-proc"], &[]);
    assert_eq!((refused.code(), refused.stdout.as_str()), (Some(3), ""));
    assert!(refused.stderr.contains("no /proc"), "{}", refused.stderr);
    assert!(refused.stderr.contains("--degraded"), "{}", refused.stderr);
    let ended = on_empty_host(&image, &["--no-proc"], &["--degraded"]);
    assert_eq!(
        (ended.code(), ended.stdout.as_str()),
        (Some(5), "went on\n"),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("65534"), "{}", ended.stderr);
}
