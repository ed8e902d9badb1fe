//! `wayfarer cc`, `c++` and `fc`: the compiler, and with what it links the functions that a program asks by (contrib/inside).

use crate::args::Compile;
use crate::jobs;
use crate::report::{Exit, Explain, Failure, Outcome};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const HEADER: &[u8] = include_bytes!("../../contrib/inside/wayfarer.h");
const SOURCE: &[u8] = include_bytes!("../../contrib/inside/wayfarer.c");
const OBJECT: &str = "wayfarer.o";

/// A compiler driver, and the variable that names another one.
#[derive(Clone, Copy)]
pub(crate) enum Driver {
    C,
    Cxx,
    Fortran,
}

impl Driver {
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Driver::C => ("WAYFARER_CC", "cc"),
            Driver::Cxx => ("WAYFARER_CXX", "c++"),
            Driver::Fortran => ("WAYFARER_FC", "gfortran"),
        }
    }

    /// The program and its first arguments.
    fn words(self) -> Vec<OsString> {
        let (variable, usual) = self.names();
        let named = std::env::var_os(variable).unwrap_or_default();
        let words = named.as_bytes().split(u8::is_ascii_whitespace);
        let words = words.filter(|word| !word.is_empty());
        let words: Vec<_> = words
            .map(|word| OsStr::from_bytes(word).to_owned())
            .collect();
        if words.is_empty() {
            vec![usual.into()]
        } else {
            words
        }
    }
}

/// Becomes the compiler; returns if that failed.
pub(crate) fn compile(driver: Driver, arguments: &Compile) -> Outcome {
    let folder = inside()?;
    let mut command = command(&driver.words());
    command
        .args(&arguments.words)
        .env("CPATH", with_folder(std::env::var_os("CPATH"), &folder));
    if links(&arguments.words) {
        // What stands before may have said of what language files are.
        command
            .args(["-x", "none"])
            .arg(folder.join(OBJECT))
            .arg("-pthread");
    }
    let error = command.exec();
    Err(not_started(&command, error))
}

/// Where headers are looked for behind all that the arguments say. (An option would be one too many where nothing is compiled.)
fn with_folder(before: Option<OsString>, folder: &Path) -> OsString {
    match before.filter(|before| !before.is_empty()) {
        Some(mut folders) => {
            folders.push(":");
            folders.push(folder);
            folders
        }
        None => folder.into(),
    }
}

fn command(words: &[OsString]) -> Command {
    let (program, first) = words
        .split_first()
        .map_or((OsStr::new("cc"), &[][..]), |(program, first)| {
            (program, first)
        });
    let mut command = Command::new(program);
    command.args(first);
    command
}

fn not_started(command: &Command, error: io::Error) -> Failure {
    let exit = match error.kind() {
        io::ErrorKind::NotFound => Exit::NotFound,
        _ => Exit::NotExecutable,
    };
    let shown = crate::raw::shown_path(command.get_program());
    let failed: Outcome<()> = Err(error).context(|| format!("cannot start the compiler, {shown}"));
    let failed = failed
        .exit(exit)
        .advise(|| "WAYFARER_CC, WAYFARER_CXX, WAYFARER_FC: other compilers".to_owned());
    failed.err().unwrap_or_else(Failure::reader_gone)
}

/// Options whose value is the next word.
const WITH_VALUE: [&str; 27] = [
    "-o",
    "-x",
    "-I",
    "-L",
    "-l",
    "-D",
    "-U",
    "-include",
    "-imacros",
    "-isystem",
    "-iquote",
    "-idirafter",
    "-isysroot",
    "-MF",
    "-MT",
    "-MQ",
    "-Xlinker",
    "-Xassembler",
    "-Xpreprocessor",
    "-T",
    "-u",
    "-e",
    "-z",
    "-J",
    "-B",
    "-aux-info",
    "--param",
];
/// Options with which no program is linked.
const NO_PROGRAM: [&str; 11] = [
    "-c",
    "-S",
    "-E",
    "-M",
    "-MM",
    "-fsyntax-only",
    "-shared",
    "-r",
    "-nostdlib",
    "-nostartfiles",
    "-nodefaultlibs",
];

/// Whether the compiler makes a program of these: it has something to make one of, and is told nothing else.
fn links(words: &[OsString]) -> bool {
    let mut words = words.iter().map(OsString::as_os_str);
    let mut has_input = false;
    while let Some(word) = words.next() {
        let is = |option: &&str| word == OsStr::new(option);
        if NO_PROGRAM.iter().any(&is) {
            return false;
        }
        if WITH_VALUE.iter().any(is) {
            let value = words.next();
            // A program may consist of a library only.
            has_input |= word == "-l" && value.is_some();
        } else {
            let bytes = word.as_bytes();
            has_input |= !bytes.starts_with(b"-") || bytes.starts_with(b"-l") || bytes == b"-";
        }
    }
    has_input
}

/// The folder with wayfarer.h and what is linked, which is made once.
fn inside() -> Outcome<PathBuf> {
    let compiler = Driver::C.words();
    let mut hasher = blake3::Hasher::new();
    hasher.update(HEADER).update(SOURCE);
    for word in &compiler {
        hasher.update(word.as_bytes()).update(b"\0");
    }
    let cache = jobs::cache()?;
    let folder = cache.join(format!("inside-{}", &hasher.finalize().to_hex()[..32]));
    if folder.join(OBJECT).exists() {
        return Ok(folder);
    }
    let describe = || format!("cannot make {}", crate::raw::shown_path(&folder));
    let mut builder = fs::DirBuilder::new();
    builder
        .mode(0o700)
        .recursive(true)
        .create(&cache)
        .context(describe)?;
    let new = cache.join(format!(".inside-{}", std::process::id()));
    let made =
        make(&new, &compiler)
            .context(describe)
            .and_then(|()| match fs::rename(&new, &folder) {
                // Somebody else was faster.
                Err(_) if folder.join(OBJECT).exists() => Ok(()),
                renamed => renamed.context(describe),
            });
    let _ = fs::remove_dir_all(&new);
    made.map(|()| folder)
}

fn make(folder: &Path, compiler: &[OsString]) -> Outcome<()> {
    let _ = fs::remove_dir_all(folder);
    fs::DirBuilder::new().mode(0o700).create(folder)?;
    fs::write(folder.join("wayfarer.h"), HEADER)?;
    let source = folder.join("wayfarer.c");
    fs::write(&source, SOURCE)?;
    let mut command = command(compiler);
    command
        .args(["-O2", "-g", "-fPIC", "-pthread", "-c"])
        .arg(&source);
    command.arg("-o").arg(folder.join(OBJECT));
    let status = command
        .status()
        .map_err(|error| not_started(&command, error))?;
    if !status.success() {
        let message = format!("wayfarer.c cannot be compiled ({status})");
        return Err(Failure::new(Exit::Failed, message).advise("WAYFARER_CC: another C compiler"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_linked_where_there_is_something_to_link() {
        for (line, expected) in [
            ("x.c", true),
            ("-O2 -o prog x.o y.o -lm", true),
            ("-o prog -l m", true),
            ("-static prog.f90", true),
            ("-x c++ -", true),
            ("-c x.c", false),
            ("-E x.c", false),
            ("-shared -o x.so x.o", false),
            ("-r -o y.o x.o", false),
            ("-nostdlib x.o", false),
            ("-MM x.c", false),
            ("--version", false),
            ("-v", false),
            ("-print-prog-name=ld", false),
            ("-o prog", false),
            ("-I . -D X", false),
            ("", false),
        ] {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            assert_eq!(links(&words), expected, "{line}");
        }
    }
}
