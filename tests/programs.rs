//! Real programs, stopped at random moments and restarted on an empty host with
//! their data at the same paths: the result must be an undisturbed run's.
//!
//! Sizes are small so that all take a few minutes; `WF_FULL` makes them those
//! of docs/RELIABILITY.md.

mod support;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use support::program::{Program, missing};
use support::promise::with_job;
use support::run::{self, Run, clean_command};
use support::scenario::{Guest, Restart};
use support::skip;
use support::stage;
use support::user::User;

const DEADLINE: Duration = Duration::from_secs(30);

fn full() -> bool {
    std::env::var_os("WF_FULL").is_some()
}

fn source(name: &str) -> PathBuf {
    stage::repository().join("tests/programs").join(name)
}

/// The first of these that is there.
fn installed(paths: &[&str]) -> Result<PathBuf, String> {
    let found = paths.iter().map(PathBuf::from).find(|path| path.exists());
    found.ok_or_else(|| missing(paths[0]))
}

/// Copies a program's source into its data directory.
fn bring(data: &Path, name: &str) -> Result<(), String> {
    fs::copy(source(name), data.join(name))
        .map(drop)
        .map_err(|error| format!("{name}: {error}"))
}

/// Builds with this command; what is not installed is reported as missing.
fn build(mut command: Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        )),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(missing(&program)),
        Err(error) => Err(format!("{command:?}: {error}")),
    }
}

/// Numbers that look random and are always the same.
fn numbers(count: u64) -> impl Iterator<Item = u64> {
    let mut state = 88_172_645_463_325_252u64;
    (0..count).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    })
}

#[test]
fn python_with_big_lists() {
    Program {
        name: "python_lists",
        prepare: |data| {
            installed(&["/usr/bin/python3"])?;
            bring(data, "lists.py")
        },
        command: |_| {
            let mut command = clean_command("/usr/bin/python3");
            command.arg("lists.py").env("PYTHONHASHSEED", "1");
            command
        },
        moves: 3,
        new_ids: true,
    }
    .check();
}

#[test]
fn numpy_with_openblas_threads() {
    Program {
        name: "python_numpy",
        prepare: |data| {
            let mut probe = Command::new("/usr/bin/python3");
            probe.args(["-c", "import numpy"]);
            build(probe).map_err(|_| missing("python3-numpy"))?;
            bring(data, "matrices.py")
        },
        command: |_| {
            let mut command = clean_command("/usr/bin/python3");
            command.arg("matrices.py").env("OPENBLAS_NUM_THREADS", "4");
            command
        },
        moves: 2,
        new_ids: true,
    }
    .check();
}

#[test]
fn perl() {
    Program {
        name: "perl",
        prepare: |data| {
            installed(&["/usr/bin/perl"])?;
            bring(data, "sieve.pl")
        },
        command: |_| {
            let mut command = clean_command("/usr/bin/perl");
            command.arg("sieve.pl").env("PERL_HASH_SEED", "0");
            command
        },
        moves: 3,
        new_ids: true,
    }
    .check();
}

#[test]
fn fortran() {
    Program {
        name: "fortran",
        prepare: |data| {
            let mut command = Command::new("gfortran");
            command
                .arg("-O2")
                .arg(source("waves.f90"))
                .arg("-o")
                .arg(data.join("waves"));
            build(command)
        },
        command: |data| clean_command(data.join("waves")),
        moves: 2,
        new_ids: true,
    }
    .check();
}

#[test]
fn go() {
    Program {
        name: "go",
        prepare: |data| {
            let mut command = Command::new("go");
            command
                .arg("build")
                .arg("-o")
                .arg(data.join("workers"))
                .arg(source("workers.go"));
            command.env("CGO_ENABLED", "0").env("GO111MODULE", "off");
            command.env("GOCACHE", stage::dir().join("go-cache"));
            build(command)
        },
        command: |data| clean_command(data.join("workers")),
        moves: 3,
        new_ids: false,
    }
    .check();
}

#[test]
fn java() {
    Program {
        name: "java",
        prepare: |data| {
            let mut command = Command::new("javac");
            command.arg("-d").arg(data).arg(source("Words.java"));
            build(command)
        },
        command: |_| {
            let mut command = clean_command("/usr/bin/java");
            // An empty host has no file for its performance data.
            command.args(["-XX:-UsePerfData", "-Xmx256m", "-cp", ".", "Words"]);
            command
        },
        moves: 2,
        new_ids: true,
    }
    .check();
}

/// By default a JVM maps a file in /tmp for writing, where others look at it: data, which is carried only if asked for.
#[test]
fn a_default_java_needs_its_performance_data_or_carries_it() {
    let words = ["-Xmx64m", "-cp", ".", "Words"];
    let guest = Guest::new("default_java", "/usr/bin/java", &words);
    with_job(&guest, |job| {
        let mut command = Command::new("javac");
        command.arg("-d").arg(job.dir.join("data"));
        command.arg(source("Words.java"));
        if let Err(what) = build(command) {
            skip::note("default_java", &what);
            return Ok(());
        }
        let mut command = job.wayfarer(&["run", "--quiet", "--name", "job", "--"]);
        command.arg(&guest.program).args(&guest.arguments);
        let run = Run::start("the guest", command, User::Ordinary)?;
        job.runs.push(run);
        let line = || job.guest_output().contains('\n').then_some(());
        run::poll(DEADLINE, line).ok_or("it does not begin")?;
        let image = job.checkpoint("kill")?;
        job.wait_killed()?;
        job.restart(&image, Restart::Command)?;
        job.wait_up()?;
        let with = job.dir.join("with.img").to_string_lossy().into_owned();
        let options = ["-o", &with, "--carry-files", "--then", "kill"];
        let (code, said) = job.tell(&[&["checkpoint", "job"], &options[..]].concat())?;
        if code != Some(0) {
            return Err(format!("checkpoint: exit {code:?}: {said}"));
        }
        job.wait_killed()?;
        let (_, report) = job.tell(&["inspect", "--json", &with])?;
        let report: serde_json::Value =
            serde_json::from_str(&report).map_err(|error| error.to_string())?;
        let mut files = report["files"].as_array().into_iter().flatten();
        let data = files.find_map(|file| file["path"].as_str().filter(|p| p.contains("hsperf")));
        let data = data.ok_or("no performance data")?;
        fs::remove_file(data).map_err(|error| format!("{data}: {error}"))?;
        let (code, said) = job.tell(&["restart", &image.to_string_lossy()])?;
        if code == Some(0) || !said.contains(&format!("{data} is missing")) {
            return Err(format!("found exit {code:?}, expected a refusal\n{said}"));
        }
        job.restart(Path::new(&with), Restart::Command)?;
        match job.wait_end(DEADLINE)?.success() && job.guest_output().contains("\nend ") {
            true => Ok(()),
            false => Err(format!("found {:?}", job.guest_output())),
        }
    });
}

#[test]
fn static_musl() {
    Program {
        name: "static_musl",
        prepare: |data| {
            let mut command = Command::new("musl-gcc");
            command
                .args(["-O2", "-static"])
                .arg(source("digest.c"))
                .arg("-o")
                .arg(data.join("digest"));
            build(command)
        },
        command: |data| clean_command(data.join("digest")),
        moves: 3,
        new_ids: true,
    }
    .check();
}

#[test]
fn compiler() {
    Program {
        name: "compiler",
        prepare: |data| {
            let mut text = String::from("unsigned long sink;\n");
            let functions = if full() { 12_000 } else { 2_500 };
            for (index, number) in numbers(functions).enumerate() {
                let (a, b) = (number % 97 + 3, number / 97 % 89 + 5);
                text += &format!(
                    "unsigned long f{index}(unsigned long *p, unsigned long n) {{\n\
                     unsigned long s = {number}ul;\n\
                     for (unsigned long i = 0; i < n; i++) {{\n\
                       switch ((p[i] ^ s) % {a}) {{ case 0: s += p[i] * {b}; break; case 1: s ^= s << {}; break;\n\
                       case 2: s -= p[(i + {b}) % n]; break; default: s = s * {a} + i; }}\n\
                       if (s % {b} == 1) sink += s;\n\
                     }}\n return s; }}\n",
                    number % 31 + 1
                );
            }
            fs::write(data.join("big.c"), text).map_err(|error| error.to_string())?;
            cc1().map(drop)
        },
        command: |_| {
            let mut command = clean_command(cc1().expect("found before"));
            command.args(["-quiet", "-O2", "big.c", "-o", "big.s"]);
            command
        },
        moves: 3,
        new_ids: true,
    }
    .check();
}

fn cc1() -> Result<PathBuf, String> {
    let output = Command::new("gcc").arg("-print-prog-name=cc1").output();
    let text = output.map_err(|_| missing("gcc"))?.stdout;
    let path = PathBuf::from(String::from_utf8_lossy(&text).trim());
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(missing("cc1"))
    }
}

fn write_lines(path: &Path, bytes: u64) -> Result<(), String> {
    let file = fs::File::create(path).map_err(|error| error.to_string())?;
    let mut out = std::io::BufWriter::new(file);
    for number in numbers(bytes / 34) {
        writeln!(
            out,
            "{number:016x} {:016x}",
            number.wrapping_mul(0x9e37_79b9)
        )
        .map_err(|error| error.to_string())?;
    }
    out.flush().map_err(|error| error.to_string())
}

#[test]
fn sort() {
    Program {
        name: "sort",
        prepare: |data| {
            installed(&["/usr/bin/sort"])?;
            write_lines(
                &data.join("lines"),
                if full() { 500_000_000 } else { 80_000_000 },
            )
        },
        command: |_| {
            let mut command = clean_command("/usr/bin/sort");
            // Temporary files beside the data, so that they are there on the other host.
            command.args([
                "-S",
                "30M",
                "-T",
                ".",
                "--parallel=2",
                "-o",
                "sorted",
                "lines",
            ]);
            command.env("LC_ALL", "C");
            command
        },
        moves: 2,
        new_ids: true,
    }
    .check();
}

#[test]
fn xz_with_two_threads() {
    Program {
        name: "xz",
        prepare: |data| {
            installed(&["/usr/bin/xz"])?;
            write_lines(
                &data.join("lines"),
                if full() { 100_000_000 } else { 16_000_000 },
            )
        },
        command: |_| {
            let mut command = clean_command("/usr/bin/xz");
            command.args(["-T2", "-4", "--block-size=2MiB", "-k", "lines"]);
            command
        },
        moves: 2,
        new_ids: true,
    }
    .check();
}

#[test]
fn sqlite_in_a_big_transaction() {
    Program {
        name: "sqlite",
        prepare: |data| {
            installed(&["/usr/bin/sqlite3"])?;
            let rows = if full() { 5_000_000 } else { 1_000_000 };
            let script = format!(
                "pragma cache_size=-2000;\ncreate table t(id integer primary key, a int, b text);\n\
                 begin;\n\
                 insert into t(a, b) with recursive n(i) as (select 1 union all select i + 1 from n \
                 where i < {rows}) select i * 2654435761 % 1000003, 'row ' || (i * 7919 % 100003) from n;\n\
                 create index ta on t(a);\n\
                 update t set b = b || ' changed' where a % 3 = 0;\n\
                 delete from t where a % 7 = 0;\n\
                 commit;\n\
                 select count(*), sum(a), sum(length(b)) from t;\npragma integrity_check;\n"
            );
            fs::write(data.join("script.sql"), script).map_err(|error| error.to_string())
        },
        command: |_| {
            let mut command = clean_command("/usr/bin/sqlite3");
            command.args(["-batch", "-init", "/dev/null", "test.db", ".read script.sql"]);
            command
        },
        moves: 3,
        new_ids: true,
    }
    .check();
}
