//! Images that need another processor: refused by the image itself, with exit code 4, before anything
//! of the job runs.

use crate::images::{Ended, PLATFORM, execute, execute_as_user};
use crate::restore::hello_image;
use ckpt_lib::platform::{Level, Platform};

/// Executes an image that says it needs `platform`, as root and as an ordinary user.
fn with(platform: String) -> Vec<Ended> {
    with_options(platform, &[])
}

fn with_options(platform: String, options: &[&str]) -> Vec<Ended> {
    let before = PLATFORM.replace(platform.leak());
    let image = hello_image();
    PLATFORM.set(before);
    let mut ended = vec![execute(&image, options)];
    ended.extend(execute_as_user(&image, options));
    ended
}

fn here() -> Platform {
    Platform::of_this_machine_for(&Platform::default())
}

#[test]
fn what_this_machine_offers_goes_on() {
    for ended in with(here().to_string()) {
        assert_eq!(
            (ended.code(), ended.stdout.as_str()),
            (Some(5), "went on\n"),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn what_the_processor_lacks_is_named() {
    let mut feature = here();
    feature.features.insert("quantum".to_owned());
    let mut state = here();
    state.xsave |= 1 << 62;
    let mut room = here();
    room.within = Some(0);
    let mut frame = here();
    frame.sigframe = Some(100);
    let mut layout = here();
    let moved = layout.layout.iter_mut().next();
    let moved = moved.map(|(bit, at)| {
        *at += 64;
        *bit
    });
    let mut many = here();
    many.features.extend((0..40).map(|n| format!("feature{n}")));
    let mut cases = vec![
        (feature, "processor features quantum"),
        (state, "register state component-62"),
        (room, "has no room for"),
        (many, "28 more processor features"),
    ];
    if frame.missing(&here()).is_empty() {
        println!("not tried: this kernel does not say how long a signal frame is");
    } else {
        cases.push((frame, "alternate signal stacks have room for 100"));
    }
    match moved {
        Some(_) => cases.push((layout, "on this processor, expected")),
        None => println!("not tried: this processor has no register state beyond AVX"),
    }
    for (needed, text) in cases {
        for ended in with(needed.to_string()) {
            assert_eq!(ended.code(), Some(4), "{text}: {}", ended.stderr);
            assert_eq!(ended.stdout, "", "{text}: something ran");
            assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
            assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        }
    }
}

#[test]
fn a_platform_that_cannot_be_judged_is_refused() {
    for text in [
        "",
        "LINUX ARM64 v1",
        "LINUX X86_64 v9",
        "LINUX X86_64 v1 gpu=1",
        "LINUX X86_64 v1 xsave=7",
    ] {
        for ended in with(text.to_owned()) {
            assert_eq!(ended.code(), Some(4), "{text}: {}", ended.stderr);
            assert!(
                ended.stderr.contains("section .wf.platform"),
                "{text}: {}",
                ended.stderr
            );
            assert_eq!(ended.stdout, "", "{text}: something ran");
        }
    }
}

#[test]
fn a_request_can_be_trusted_but_only_where_it_is_met() {
    let mut asked = here();
    asked.features.insert("quantum".to_owned());
    asked.requested = Some(Level::V1);
    for ended in with(asked.to_string()) {
        assert_eq!(ended.code(), Some(4), "{}", ended.stderr);
        assert!(
            ended
                .stderr
                .contains("without --degraded (it was asked, not made, to be content with v1)")
        );
    }
    for ended in with_options(asked.to_string(), &["--degraded"]) {
        assert_eq!(
            (ended.code(), ended.stdout.as_str()),
            (Some(5), "went on\n"),
            "{}",
            ended.stderr
        );
        assert!(
            ended
                .stderr
                .contains("goes on without: processor features quantum"),
            "{}",
            ended.stderr
        );
    }
    asked.requested = None;
    let mut elsewhere = asked.clone();
    elsewhere.requested = Some(Level::V1);
    elsewhere.within = Some(0);
    for needed in [asked, elsewhere] {
        for ended in with_options(needed.to_string(), &["--degraded"]) {
            assert_eq!(
                (ended.code(), ended.stdout.as_str()),
                (Some(4), ""),
                "{}",
                ended.stderr
            );
        }
    }
}
