//! `run --baseline`: enforced where CPUID can be made to fault (docs/adr/0007), a request elsewhere.
//!
//! What is enforced is only tested where the processor has CPUID faulting; the pages that answer are tested
//! everywhere (`ckpt-lib`, `baseline::enforced`).

#![allow(unsafe_code)] // one system call

mod support;

use nix::libc;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;
use support::program::missing;
use support::promise::{passed, with_job};
use support::run::{self, Run};
use support::scenario::{Guest, Job, Restart};
use support::skip;
use support::stage::{self, Linking, c_guest};
use support::user::User;

/// Also for an emulated processor.
const DEADLINE: Duration = Duration::from_secs(240);
const LEVEL: &str = "x86-64-v2";

/// Why nothing can be enforced here, or would not be seen.
fn not_enforced() -> Option<String> {
    const ARCH_SET_CPUID: libc::c_int = 0x1012;
    // SAFETY: CPUID is switched on, which it is; no pointers.
    let able = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_CPUID, 1) };
    if able != 0 {
        let error = std::io::Error::last_os_error();
        return Some(format!("this processor has no CPUID faulting ({error})"));
    }
    let avx = std::arch::is_x86_feature_detected!("avx");
    (!avx).then(|| format!("this processor has no more than {LEVEL}"))
}

/// Starts the job's guest on a lesser processor.
fn start(job: &mut Job) -> Result<(), String> {
    let arguments = ["run", "--quiet", "--name", "job", "--baseline", LEVEL, "--"];
    let mut command = job.wayfarer(&arguments);
    command.arg(&job.guest.program).args(&job.guest.arguments);
    job.equip(&mut command);
    let mut run = Run::start("the guest", command, User::Ordinary)?;
    let ready = run.wait_line("READY", DEADLINE);
    job.runs.push(run);
    ready
}

/// What an image needs must say so.
fn check_needs(job: &mut Job, image: &Path, degree: &str) -> Result<(), String> {
    let path = image.to_string_lossy().into_owned();
    let (_, said) = job.tell(&["inspect", &path])?;
    let needs = said.lines().find(|line| line.starts_with("needs "));
    let needs = needs.ok_or_else(|| format!("inspect: no needs in {said}"))?;
    let words: Vec<&str> = needs.split_whitespace().collect();
    if !words.contains(&format!("baseline=v2,{degree}").as_str()) {
        return Err(format!("found {needs}, expected baseline=v2,{degree}"));
    }
    let shrunk = words.contains(&"v2") && !needs.contains("+aes") && !needs.contains("within=");
    if shrunk != (degree == "proven") {
        return Err(format!("{degree}, but found {needs}"));
    }
    Ok(())
}

/// Checkpoint, kill, restart, checkpoint, end: each image says `degree`.
fn carried(label: &str, argument: &str, degree: &str) {
    if let Some(reason) = not_enforced() {
        return skip::note(label, &reason);
    }
    for linking in [Linking::Dynamic, Linking::Static] {
        let program = c_guest("processor", linking).expect("the guest compiles");
        let guest = Guest::new(label, program, &[argument]);
        with_job(&guest, |job| {
            start(job)?;
            let image = job.checkpoint("kill")?;
            check_needs(job, &image, degree)?;
            job.wait_killed()?;
            job.restart(&image, Restart::Command)?;
            job.wait_up()?;
            let image = job.checkpoint("kill")?;
            check_needs(job, &image, degree)?;
            job.wait_killed()?;
            job.restart(&image, Restart::Image)?;
            job.let_go();
            passed(job.wait_pass()?)
        });
    }
}

#[test]
fn a_lesser_processor_is_seen_from_before_the_first_instruction() {
    carried("baseline_seen", "seen", "proven");
}

#[test]
fn real_faults_end_a_program_as_ever() {
    carried("baseline_ends", "ends", "proven");
}

#[test]
fn what_a_program_executes_sees_the_lesser_processor_too() {
    carried("baseline_executes", "executes", "proven");
}

#[test]
fn a_program_with_a_handler_of_its_own_runs_on_with_the_whole_processor() {
    carried("baseline_handles", "handles", "requested");
}

#[test]
fn a_program_that_blocks_the_signal_runs_on_with_the_whole_processor() {
    carried("baseline_blocks", "blocks", "requested");
    carried("baseline_masks", "masks", "requested");
}

/// Runs `wayfarer` with these arguments and a directory of jobs, to its end.
fn finish(label: &str, arguments: &[&str]) -> (ExitStatus, Run) {
    let mut wayfarer = run::clean_command(stage::wayfarer());
    let jobs = stage::job_dir(label, User::Ordinary);
    wayfarer.arg("--dir").arg(&jobs).args(arguments);
    let ended = run::finish(label, wayfarer, User::Ordinary, DEADLINE);
    let _ = std::fs::remove_dir_all(jobs);
    ended.expect("runs")
}

/// Runs a command on a lesser processor without the switches that libraries have of their own; what it says.
fn said_by(label: &str, level: &str, command: &[&str]) -> Option<String> {
    if let Some(reason) = not_enforced().or_else(|| {
        let tried = run::finish(
            label,
            run::clean_command(command[0]),
            User::Ordinary,
            DEADLINE,
        );
        tried.err().map(|_| missing(command[0]))
    }) {
        skip::note(label, &reason);
        return None;
    }
    let mut arguments = vec!["run", "--quiet", "--baseline", level, "--", "env"];
    for name in ["OPENBLAS_CORETYPE", "OPENSSL_ia32cap", "GLIBC_TUNABLES"] {
        arguments.extend(["-u", name]);
    }
    arguments.extend(command);
    let (status, run) = finish(label, &arguments);
    assert!(status.success(), "{}", run.describe());
    Some(run.out.text())
}

#[test]
fn openssl_sees_the_lesser_processor() {
    let Some(said) = said_by("baseline_openssl", LEVEL, &["openssl", "version", "-c"]) else {
        return;
    };
    // OPENSSL_ia32cap=0xECX_EDX_OF_LEAF_1:0xECX_EBX_OF_LEAF_7
    let value = said.split("ia32cap=0x").nth(1).unwrap_or_default();
    let (first, rest) = value.split_once(":0x").expect("two words");
    let second = rest.split_whitespace().next().unwrap_or_default();
    let [first, second] = [first, second].map(|hex| u64::from_str_radix(hex, 16).expect("hex"));
    let (avx, aes, sse4_2) = (first >> 60 & 1, first >> 57 & 1, first >> 52 & 1);
    assert_eq!((avx, aes, sse4_2), (0, 0, 1), "{said}");
    assert_eq!(second >> 5 & 1, 0, "AVX2: {said}");
}

#[test]
fn numpy_and_openblas_see_the_lesser_processor() {
    const ASK: &str = "
import sys
try:
    import numpy
except ImportError:
    print('no numpy'); sys.exit()
try:
    from numpy._core._multiarray_umath import __cpu_features__ as seen
except ImportError:
    # Before numpy 2.
    from numpy.core._multiarray_umath import __cpu_features__ as seen
print('seen', *(name for name in seen if seen[name]))
import ctypes, glob, os
own = os.path.dirname(numpy.__file__) + '.libs/*openblas*'
for path in glob.glob(own) + glob.glob('/usr/lib/*/openblas-pthread/libopenblas.so.0'):
    library = ctypes.CDLL(path)
    core = getattr(library, 'scipy_openblas_get_corename64_', None) or library.openblas_get_corename
    core.restype = ctypes.c_char_p
    print('core', core().decode())
a = numpy.arange(10000.).reshape(100, 100)
print('sum', (a @ a).sum())
";
    let label = "baseline_numpy";
    let more = std::arch::is_x86_feature_detected!("avx512f");
    // Level, what is seen of it, what is not, and kernels of OpenBLAS that need more.
    let levels: [(&str, &str, &str, &[&str]); 2] = [
        (
            LEVEL,
            "SSE42",
            "AVX",
            &["Haswell", "SkylakeX", "Zen", "Sandybridge"],
        ),
        ("x86-64-v3", "AVX2", "AVX512", &["SkylakeX", "Cooperlake"]),
    ];
    for (level, some, none, wide) in levels {
        if level != LEVEL && !more {
            return skip::note(label, "this processor has no AVX-512 that v3 would hide");
        }
        let Some(said) = said_by(label, level, &["python3", "-c", ASK]) else {
            return;
        };
        if said.contains("no numpy") {
            return skip::note(label, &missing("numpy"));
        }
        let line = |word: &str| said.lines().find_map(|line| line.strip_prefix(word));
        let seen = line("seen").expect("features");
        assert!(seen.contains(some) && !seen.contains(none), "{said}");
        let core = line("core ").unwrap_or_default();
        assert!(!wide.contains(&core), "{said}");
        assert_eq!(line("sum "), Some("25078325250000.0"), "{said}");
    }
}

#[test]
fn a_handler_of_pythons_runs_and_the_status_is_the_true_one() {
    use std::os::unix::process::ExitStatusExt;
    let label = "baseline_faulthandler";
    if let Some(reason) = not_enforced() {
        return skip::note(label, &reason);
    }
    let crash = "import ctypes; ctypes.string_at(0)";
    let python = ["python3", "-X", "faulthandler", "-c", crash];
    let mut arguments = vec!["run", "--quiet", "--baseline", LEVEL, "--"];
    arguments.extend(python);
    let (status, run) = finish(label, &arguments);
    let said = run.err.text();
    if said.contains("python3") && said.contains("not found") {
        return skip::note(label, &missing("python3"));
    }
    assert_eq!(status.signal(), Some(libc::SIGSEGV), "{}", run.describe());
    assert!(said.contains("Current thread"), "{}", run.describe());
}

#[test]
fn where_cpuid_does_not_fault_the_image_keeps_the_full_requirement() {
    let label = "baseline_requested";
    if not_enforced().is_none() {
        return skip::note(label, "CPUID can be made to fault here");
    }
    let program = c_guest("memory", Linking::Dynamic).expect("the guest compiles");
    let guest = Guest::new(label, program, &["anonymous"]);
    with_job(&guest, |job| {
        start(job)?;
        let image = job.checkpoint("kill")?;
        job.wait_killed()?;
        let path = image.to_string_lossy().into_owned();
        let (_, said) = job.tell(&["inspect", &path])?;
        for expected in ["baseline=v2,requested", "not enforced"] {
            if !said.contains(expected) {
                return Err(format!("inspect: found {said}, expected {expected}"));
            }
        }
        job.restart(&image, Restart::Command)?;
        job.let_go();
        passed(job.wait_pass()?)
    });
}
