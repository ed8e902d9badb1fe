//! Arguments, help, man pages, completions; how failures end.

use crate::station::{Running, Station, finish, text};
use std::os::fd::OwnedFd;
use std::process::Stdio;

#[test]
fn wrong_arguments_end_with_2() {
    let station = Station::new();
    let lines: [&[&str]; 9] = [
        &[],
        &["fly"],
        &["run"],
        &["run", "--pids", "mine", "--", "true"],
        &["run", "--name", "../x", "--", "true"],
        &["run", "--name", "12", "--", "true"],
        &["checkpoint"],
        &["checkpoint", "x", "--compress", "gzip"],
        &["kill", "x", "-s", "NOPE"],
    ];
    for line in lines {
        let output = station.output(line);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{line:?}: {}",
            text(&output.stderr)
        );
        assert!(output.stdout.is_empty(), "{line:?} printed on stdout");
        assert!(!output.stderr.is_empty(), "{line:?} said nothing");
    }
}

#[test]
fn help_goes_to_stdout_and_tells_the_exit_statuses() {
    let station = Station::new();
    let output = station.output(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = text(&output.stdout);
    for expected in ["checkpoint", "restart", "NO_COLOR", "127"] {
        assert!(help.contains(expected), "no {expected} in {help}");
    }
    let output = station.output(&["run", "--help"]);
    assert!(text(&output.stdout).contains("--pids host"));
}

#[test]
fn names_of_jobs_that_are_not_there() {
    let station = Station::new();
    for line in [
        &["kill", "ghost"],
        &["checkpoint", "ghost"],
        &["ps", "ghost"],
    ] {
        let output = station.output(line);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line:?}: {said}");
        assert!(said.contains("no job ghost"), "{said}");
        assert!(said.contains("try: wayfarer ps"), "{said}");
    }
    let output = station.output(&["restart", "ghost"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let output = station.output(&["kill", "999999999"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no process 999999999"));
}

#[test]
fn commands_that_cannot_be_started_end_as_in_a_shell() {
    let station = Station::new();
    let output = station.output(&["run", "--", "no-such-command-here"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(text(&output.stderr).contains("no-such-command-here"));
    let plain = station.state.path().join("plain");
    std::fs::write(&plain, "words").expect("write");
    let plain = plain.display().to_string();
    let output = station.output(&["run", "--", &plain]);
    assert_eq!(output.status.code(), Some(126));
    assert!(text(&output.stderr).contains(&plain));
    let jobs = station.json(&["ps", "--json"]);
    assert_eq!(
        jobs["jobs"].as_array().map(Vec::len),
        Some(0),
        "a record was left: {jobs}"
    );
}

#[test]
fn man_pages_for_the_command_and_each_verb() {
    let station = Station::new();
    let dir = station.state.path().join("man");
    let output = station.output(&["man".as_ref(), dir.as_os_str()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let help = text(&station.output(&["--help"]).stdout);
    let verbs = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let verbs: Vec<_> = verbs
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|verb| !["", "help"].contains(verb))
        .map(|verb| format!("wayfarer-{verb}"))
        .collect();
    assert!(verbs.len() > 20, "{help}");
    for page in ["wayfarer"]
        .into_iter()
        .chain(verbs.iter().map(String::as_str))
    {
        let path = dir.join(format!("{page}.1"));
        let page = std::fs::read_to_string(&path).expect("page");
        assert!(
            [
                ".TH",
                ".SH NAME",
                ".SH SYNOPSIS",
                ".SH DESCRIPTION",
                ".SH OPTIONS"
            ]
            .iter()
            .all(|part| page.contains(part)),
            "{}",
            path.display()
        );
    }
}

#[test]
fn completions_for_every_shell() {
    let station = Station::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = station.output(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains("checkpoint"), "{shell}");
    }
    let output = station.output(&["completions", "no-shell"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let station = Station::new();
    for line in [
        &["completions", "bash"][..],
        &["ps"],
        &["ps", "--json"],
        &["--help"],
    ] {
        let (reader, writer) = nix::unistd::pipe().expect("pipe");
        drop::<OwnedFd>(reader);
        let mut command = station.wayfarer(line);
        command.stdout(Stdio::from(writer)).stderr(Stdio::piped());
        let output = finish(Running::start_as_is(command));
        assert_eq!(output.status.code(), Some(0), "{line:?}");
        assert_eq!(text(&output.stderr), "", "{line:?}");
    }
}

#[test]
fn what_cannot_be_printed_is_an_error() {
    let station = Station::new();
    for line in [
        &["--help"][..],
        &["--version"],
        &["help", "run"],
        &["run", "--help"],
        &["ps"],
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let mut command = station.wayfarer(line);
        command
            .stdout(full.expect("/dev/full"))
            .stderr(Stdio::piped());
        let output = finish(Running::start_as_is(command));
        assert_eq!(output.status.code(), Some(1), "{line:?}");
        let said = text(&output.stderr);
        assert!(said.contains("No space left"), "{line:?}: {said}");
        // The parser's own words have no name.
        assert!(
            line[0] != "ps" || said.contains("standard output"),
            "{said}"
        );
    }
    let output = station.output(&["--version"]);
    let expected = format!("wayfarer {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(0), expected)
    );
}
