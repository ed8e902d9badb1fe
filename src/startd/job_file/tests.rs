//! Job files that are right, wrong, and anything at all.

use super::*;

fn around() -> Surrounding {
    let variable = |name: &str, value: &str| (name.into(), value.into());
    Surrounding {
        directory: "/home/ann".into(),
        environment: vec![variable("PATH", "/bin"), variable("EDITOR", "ed")],
    }
}

fn parsed(text: &str) -> Spec {
    read("f", text.as_bytes(), &around())
        .expect("is a job")
        .spec
}

fn error(text: &str) -> String {
    read("f", text.as_bytes(), &around())
        .expect_err("is wrong")
        .to_string()
}

#[test]
fn a_description_and_its_ad_are_the_same_job() {
    let text = "# a job\nuniverse = standard\nExecutable = bin/sim\narguments = \"-n 'a b' it''s\"\n\
        environment = \"A=1 'B=x y'\"\ninitialdir = run\noutput = out\nerror = /tmp/err\n\
        request_memory = 2G\nrequirements = Memory > 1 && \\\n  Arch == \"X86_64\"\n+Project = \"p\"\nqueue\n";
    let first = parsed(text);
    let ad = String::from_utf8(first.ad.to_old().into_bytes()).expect("UTF-8");
    let again = parsed(&ad);
    for spec in [&first, &again] {
        assert_eq!(spec.program, "/home/ann/bin/sim");
        assert_eq!(spec.arguments, ["-n", "a b", "its"]);
        assert_eq!(spec.directory, Path::new("/home/ann/run"));
        assert_eq!(spec.output.as_deref(), Some(Path::new("/home/ann/run/out")));
        assert_eq!(spec.errors.as_deref(), Some(Path::new("/tmp/err")));
        let variables = [("A", "1"), ("B", "x y"), ("PATH", "/bin")];
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        assert_eq!(spec.environment.as_deref(), Some(&variables[..]));
        let text = |name: &str| spec.ad.get(name).map(ToString::to_string);
        assert_eq!(text("RequestMemory").as_deref(), Some("2048"));
        assert_eq!(text("Project").as_deref(), Some("\"p\""));
        assert_eq!(text("JobUniverse").as_deref(), Some("1"));
        assert!(text("Requirements").is_some_and(|text| text.contains("Arch")));
    }
    assert_eq!(first.ad.to_string(), again.ad.to_string());
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    for (text, expected) in [
        (
            "executable = a\nrequirements = (Memory > \n",
            "f:2: requirements = (Memory >: not an expression",
        ),
        (
            "executable = a\n\nwhat is this\n",
            "f:3: found `what is this`, expected NAME = VALUE",
        ),
        (
            "executable = a\nqueue 10\n",
            "f:2: `queue 10`: one job of a file is queued, expected `queue`",
        ),
        (
            "executable = $(x)\n",
            "f:1: macros, `$(…)`, are not expanded in job files",
        ),
        (
            "executable = a\nuniverse = vm\n",
            "f:2: universe vm: expected standard or vanilla",
        ),
        (
            "executable = a\narguments = \"a 'b\"\n",
            "f:2: a single quote is not closed",
        ),
        (
            "executable = a\nenvironment = B\n",
            "f:2: found `B`, expected NAME=VALUE",
        ),
        ("Cmd = 7\n", "f:1: Cmd: found 7, expected a string"),
        (
            "Cmd = \"a\"\nJobUniverse = 13\n",
            "f:2: JobUniverse: found 13, expected 1 (standard) or 5 (vanilla)",
        ),
        (
            "output = a\n",
            "f: neither `executable = PROGRAM` (a submit description) nor `Cmd = \"PROGRAM\"` (an ad)",
        ),
    ] {
        assert_eq!(error(text), expected);
    }
    let error = read("f", b"a = \xff\n", &around()).expect_err("is wrong");
    assert_eq!(error.to_string(), "f:1: not UTF-8");
}

#[test]
fn what_would_be_dropped_is_an_error_or_a_warning_with_its_line() {
    for (text, expected) in [
        (
            "executable = a\nqueue\n\nqueue\n",
            "f:4: `queue` again, as in line 2: one job of a file is queued",
        ),
        (
            "executable = a\nqueue\n# all\nrank = 1\n",
            "f:4: `rank` is behind `queue` in line 2, and would change no job",
        ),
        (
            "executable = a\npriority = x\nqueue\n",
            "f:2: priority = x: found undefined, expected a whole number",
        ),
        (
            "executable = a\nkill_sig_timeout = abc\nqueue\n",
            "f:2: kill_sig_timeout = abc: found undefined, expected a whole number",
        ),
    ] {
        assert_eq!(error(text), expected);
    }
    let warnings = |text: &str| {
        let read = read("f", text.as_bytes(), &around()).expect("is a job");
        read.warnings
    };
    let twice =
        "executable = a\nrequirements = A\n+Requirements = B\npriority = 1\nprio = 2\nqueue\n";
    let expected = [
        "f:3: `Requirements` again: what line 2 says is left out",
        "f:5: `prio` again: what line 4 says is left out",
    ];
    assert_eq!(warnings(twice), expected);
    let none = warnings("executable = a\nlog = b\n");
    assert_eq!(none, ["f:2: no `queue` behind it; one job is queued"]);
    assert!(warnings("executable = a\nqueue\n").is_empty());
}

#[test]
fn a_request_is_a_number_whatever_it_is_for() {
    let text = "executable = a\nrequest_gpus = 1\nrequest_Lasers = 2\nrequire_gpus = Capability > 8\nqueue\n";
    let read_it = |text: &str| read("f", text.as_bytes(), &around()).expect("is a job");
    let found = read_it(text);
    assert!(found.ignored.is_empty() && found.request.is_none());
    let ad = found.spec.ad.to_string();
    for wanted in ["RequestGPUs = 1", "RequestLasers = 2", "RequireGPUs = "] {
        assert!(ad.contains(wanted), "{ad}");
    }
    for (request, found) in [
        ("request_cpus = \"x\"", "RequestCpus: found \"x\""),
        ("request_memory = 1/0", "RequestMemory: found error"),
        ("request_disk = -5", "RequestDisk: found -5"),
        ("+RequestGPUs = -1", "RequestGPUs: found -1"),
    ] {
        let wrong = read_it(&format!("executable = a\n{request}\nqueue\n")).request;
        let expected = format!("f:2: {found}, expected a number that is not negative");
        assert_eq!(wrong.expect("is wrong").to_string(), expected);
    }
    // The machine may know what that is.
    assert!(
        read_it("executable = a\nrequest_cpus = lots\nqueue\n")
            .request
            .is_none()
    );
}

#[test]
fn what_means_nothing_here_is_named() {
    let text = "executable = a\nlog = x\ngetenv = true\nshould_transfer_files = yes\n";
    let read = read("f", text.as_bytes(), &around()).expect("is a job");
    assert_eq!(read.ignored, ["log", "should_transfer_files"]);
    let names = read
        .spec
        .environment
        .expect("is there")
        .into_iter()
        .map(|(name, _)| name);
    assert_eq!(names.collect::<Vec<_>>(), ["EDITOR", "PATH"]);
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        let _ = read("f", &bytes, &around());
        let _ = read("f", &[b"executable = a\n".as_slice(), &bytes].concat(), &around());
    }
}
