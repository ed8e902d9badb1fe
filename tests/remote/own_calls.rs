//! Programs and libraries that make system calls by instructions of their own: these mean what they mean in a C library.

use super::*;

/// Makes the guest, or one of its libraries, in both folders.
fn compile(submit: &Submit, product: &str, flags: &[&str]) {
    let source = stage::repository().join("tests/guests/own_calls.c");
    let local = submit.local();
    let mut compile = Command::new("gcc");
    compile.args(["-O1", "-Wall", "-Wextra", "-pthread"]);
    compile.args(flags).arg("-o").arg(product).arg(source);
    compile.args(["-L.", "-Wl,-rpath,$ORIGIN"]);
    if flags.contains(&"-DLIBRARIES") {
        compile.arg("-llinked");
    }
    let compiled = compile.current_dir(&local).output().expect("compiles");
    let said = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{flags:?}: {said}");
    fs::copy(local.join(product), submit.home().join(product)).expect("copies");
}

/// A submit machine with the guest's file.
fn submit(what: &str) -> Submit {
    let submit = Submit::new(what);
    for folder in [submit.home(), submit.local()] {
        fs::write(folder.join("file"), "the contents").expect("writes");
    }
    submit
}

/// It says and leaves the same here, and where there is nothing of it.
fn is_the_same(submit: &Submit, program: &'static str, least_lines: usize) {
    let mut here = clean_command(submit.local().join(program));
    here.current_dir(submit.local());
    let here = output("the program, here", here);
    assert_eq!(here.2, Some(0), "{here:?}");
    assert!(here.0.lines().count() > least_lines, "{here:?}");
    let there = output(
        "the program, elsewhere",
        submit.elsewhere(&words(&[program])),
    );
    assert_eq!(there, here, "elsewhere, here");
    assert_eq!(tree(&submit.home()), tree(&submit.local()));
}

fn is_dispatched(submit: &Submit) -> bool {
    let asked = submit.elsewhere(&words(&["./program", "dispatched"]));
    let (said, error, _) = output("whether it is dispatched", asked);
    match said.as_str() {
        "dispatched: 0\n" => false,
        "dispatched: 1\n" => true,
        _ => panic!("{said}{error}"),
    }
}

/// In the program, in a library that it needs, in one that it loads, in threads and children: openat, read, stat and others. What only
/// looks like a call stays as it is.
#[test]
fn calls_by_instructions_of_its_own_are_led() {
    let what = "calls_by_instructions_of_its_own_are_led";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = submit(what);
    let library = |look| ["-shared", "-fPIC", look];
    compile(&submit, "liblinked.so", &library("-DLOOK=look_linked"));
    compile(&submit, "loaded.so", &library("-DLOOK=look_loaded"));
    let kinds: [(&[&str], bool); 8] = [
        (&["-DLIBRARIES"], false),
        (&["-DLIBRARIES", "-O0"], false),
        (
            &[
                "-DLIBRARIES",
                "-O3",
                "-no-pie",
                "-s",
                "-Wl,-z,noseparate-code",
            ],
            false,
        ),
        // Its code lies in two places; so that there is no room near one of them.
        (&["-DFAR", "-Wl,--section-start=.far=0x1000000"], false),
        (
            &["-DFAR", "-no-pie", "-Wl,--section-start=.far=0x10000000"],
            true,
        ),
        // A jump has no room.
        (&["-DLIBRARIES", "-DTIGHT"], true),
        // Its functions are not known.
        (
            &["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"],
            true,
        ),
        // The C library is in it, and what may be data is not told from its calls.
        (&["-static"], true),
    ];
    for (flags, dispatched) in kinds {
        let flags = [flags, &["-DPROGRAM", "-DLOOK=look_own"]].concat();
        compile(&submit, "program", &flags);
        is_the_same(&submit, "./program", 24);
        assert_eq!(is_dispatched(&submit), dispatched, "{flags:?}");
    }
}

/// A library with a call that cannot be rewritten, which is loaded when the C library is rewritten already: from then on the calls of the
/// process are dispatched.
#[test]
fn a_library_that_cannot_be_rewritten_is_dispatched() {
    let what = "a_library_that_cannot_be_rewritten_is_dispatched";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = submit(what);
    let library = |look| ["-shared", "-fPIC", "-DTIGHT", look];
    compile(
        &submit,
        "liblinked.so",
        &["-shared", "-fPIC", "-DLOOK=look_linked"],
    );
    compile(&submit, "loaded.so", &library("-DLOOK=look_loaded"));
    let program = ["-DPROGRAM", "-DLIBRARIES", "-DLOOK=look_own"];
    compile(&submit, "program", &program);
    is_the_same(&submit, "./program", 40);
    assert!(!is_dispatched(&submit), "before it is loaded");
    compile(&submit, "liblinked.so", &library("-DLOOK=look_linked"));
    is_the_same(&submit, "./program", 40);
    assert!(is_dispatched(&submit));
}

/// Sanitizers write their reports by calls of their own.
#[test]
fn a_sanitizer_leaves_its_report_at_the_shadow() {
    const SOURCE: &str = "#include <stdlib.h>\n#include <string.h>\n\
        int main(void) { char *p = malloc(3); int c = strlen(strcpy(p, \"no\")); free(p); return p[1] + c; }\n";
    let what = "a_sanitizer_leaves_its_report_at_the_shadow";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = submit(what);
    fs::write(submit.home().join("bad.c"), SOURCE).expect("writes");
    let mut compile = Command::new("gcc");
    compile.args(["-g", "-w", "-fsanitize=address", "bad.c", "-o", "bad"]);
    let compiled = compile
        .current_dir(submit.home())
        .output()
        .expect("compiles");
    if !compiled.status.success() {
        skip::note(what, &String::from_utf8_lossy(&compiled.stderr));
        return;
    }
    let mut job = submit.elsewhere(&words(&["./bad"]));
    job.env("ASAN_OPTIONS", "log_path=report:symbolize=0:detect_leaks=0");
    let (said, error, status) = output("the job", job);
    assert_eq!((said.as_str(), error.as_str(), status), ("", "", Some(1)));
    let names = tree(&submit.home());
    let is_report = |name: &Path| name.to_string_lossy().starts_with("report.");
    let report = names.iter().find(|(name, _)| is_report(name));
    let (_, (_, report)) = report.unwrap_or_else(|| panic!("no report among {:?}", names.keys()));
    let report = String::from_utf8_lossy(report);
    assert!(report.contains("heap-use-after-free"), "{report}");
}
