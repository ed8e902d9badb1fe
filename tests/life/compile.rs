//! `wayfarer cc`, `c++` and `fc`.

use super::support::run::{Run, clean_command};
use super::support::stage;
use super::support::user::User;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(60);

const C: &str = r#"
#include <wayfarer.h>
#include <stdio.h>
int main(void) { ckpt(); printf("%d %s\n", wayfarer_checkpoint(), wayfarer_why()[0] ? "refused" : "not"); return 0; }
"#;
const CXX: &str = r#"
#include <iostream>
#include <wayfarer.h>
int main() { std::cout << wayfarer_disable() << wayfarer_enable() << std::endl; }
"#;
const FORTRAN: &str = "program simulate\n call ckpt()\n print '(a)', 'goes on'\nend program\n";
const PLAIN: &str = "int main(void) { return 7; }\n";

/// A folder with these programs, of an ordinary user.
struct Home(PathBuf);

impl Home {
    fn new(label: &str) -> Self {
        let dir = stage::job_dir(label, User::Ordinary);
        for (name, text) in [
            ("a.c", C),
            ("b.cc", CXX),
            ("c.f90", FORTRAN),
            ("d.c", PLAIN),
        ] {
            fs::write(dir.join(name), text).expect("writes");
        }
        Home(dir)
    }

    fn command(&self, program: &Path, words: &str) -> Command {
        let mut command = clean_command(program);
        command.args(words.split_whitespace()).current_dir(&self.0);
        command.env("XDG_CACHE_HOME", self.0.join("cache"));
        command
    }

    fn wayfarer(&self, words: &str) -> Command {
        self.command(&stage::wayfarer(), words)
    }

    fn says(&self, command: Command) -> (String, String, Option<i32>) {
        let mut run = Run::start("a command", command, User::Ordinary).expect("starts");
        let status = run.wait(DEADLINE).expect("ends");
        (run.out.text(), run.err.text(), status.code())
    }

    /// Compiles; what the program says then.
    fn program(&self, words: &str) -> (String, Option<i32>) {
        let (_, errors, status) = self.says(self.wayfarer(words));
        assert_eq!((errors.as_str(), status), ("", Some(0)), "{words}");
        let (said, errors, status) = self.says(self.command(&self.0.join("prog"), ""));
        assert_eq!(errors, "", "{words}");
        (said, status)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn programs_are_linked_with_what_they_ask_by() {
    let home = Home::new("compile");
    let asked = ("-1 refused\n".to_owned(), Some(0));
    for words in [
        "cc -Wall -Werror -o prog a.c",
        "cc -static -O2 a.c -o prog",
        "cc -x c -o prog a.c",
    ] {
        assert_eq!(home.program(words), asked, "{words}");
    }
    let (_, errors, status) = home.says(home.wayfarer("cc -Werror -c a.c -o a.o"));
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    assert_eq!(home.program("cc -o prog a.o"), asked, "linked by itself");
    assert_eq!(
        home.program("c++ -o prog b.cc"),
        ("10\n".to_owned(), Some(0))
    );
    assert_eq!(
        home.program("fc -o prog c.f90"),
        ("goes on\n".to_owned(), Some(0))
    );
    assert_eq!(home.program("cc -o prog d.c"), (String::new(), Some(7)));
    let mut musl = home.wayfarer("cc -static -o prog a.c");
    musl.env("WAYFARER_CC", "musl-gcc -O1");
    assert_eq!(home.says(musl).2, Some(0));
    let (said, _, status) = home.says(home.command(&home.0.join("prog"), ""));
    assert_eq!((said, status), asked, "another compiler, with arguments");
    let folders = fs::read_dir(home.0.join("cache/wayfarer"))
        .expect("lists")
        .count();
    assert_eq!(
        folders, 2,
        "what is linked is compiled once for each compiler"
    );
}

#[test]
fn what_the_compiler_says_is_said() {
    let home = Home::new("compile-says");
    let cc = |words: &str| home.says(home.command(Path::new("/usr/bin/cc"), words));
    for words in [
        "--version",
        "-dumpmachine",
        "-E d.c",
        "-c nothing.c",
        "--help",
        "-shared -fPIC -o lib.so d.c",
    ] {
        assert_eq!(
            home.says(home.wayfarer(&format!("cc {words}"))),
            cc(words),
            "{words}"
        );
    }
    let names = Command::new("nm")
        .arg(home.0.join("lib.so"))
        .output()
        .expect("runs");
    let names = String::from_utf8_lossy(&names.stdout).into_owned();
    assert!(
        names.contains(" main") && !names.contains("wayfarer"),
        "{names}"
    );
    let mut none = home.wayfarer("fc c.f90");
    none.env("WAYFARER_FC", "/nowhere/gfortran");
    let (_, errors, status) = home.says(none);
    assert_eq!(status, Some(127));
    assert!(
        errors.contains("cannot start the compiler, /nowhere/gfortran: No such file"),
        "{errors}"
    );
    let mut none = home.wayfarer("cc a.c");
    none.env("XDG_CACHE_HOME", home.0.join("a.c"));
    let (_, errors, status) = home.says(none);
    assert_eq!(status, Some(1));
    assert!(
        errors.contains("cannot make") && errors.contains("Not a directory"),
        "{errors}"
    );
}
