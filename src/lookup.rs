//! Finding the program that a command names, as `execvp` does.

use crate::report::{Exit, Failure};
use nix::errno::Errno;
use nix::unistd::AccessFlags;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What is executed for a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The file.
    pub(crate) path: PathBuf,
    /// Its arguments, its name first.
    pub(crate) arguments: Vec<OsString>,
}

/// Where `execvp` looks when PATH is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Finds the program for a command line in `search_path`.
///
/// # Errors
/// With the statuses that shells use: 127 not found, 126 not executable.
pub(crate) fn find(command: &[OsString], search_path: Option<&OsStr>) -> Result<Program, Failure> {
    let name = command.first().map(OsString::as_os_str).unwrap_or_default();
    let candidates = if name.as_bytes().contains(&b'/') {
        vec![PathBuf::from(name)]
    } else {
        let dirs = std::env::split_paths(search_path.unwrap_or(OsStr::new(DEFAULT_PATH)));
        dirs.map(|dir| if name.is_empty() { dir } else { dir.join(name) })
            .collect()
    };
    let mut worst = None;
    for path in candidates {
        match executable(&path) {
            Ok(()) => {
                let program = program(path, command);
                check_format(&program.path)?;
                return Ok(program);
            }
            Err(Errno::ENOENT | Errno::ENOTDIR) => {}
            Err(errno) => worst = worst.or(Some((path, errno))),
        }
    }
    let shown = crate::raw::shown_path(name);
    Err(match worst {
        Some((path, errno)) => {
            let message = format!(
                "cannot execute {}: {}",
                crate::raw::shown_path(&path),
                errno.desc()
            );
            Failure::new(Exit::NotExecutable, message)
        }
        None if name.as_bytes().contains(&b'/') => {
            Failure::new(Exit::NotFound, format!("command {shown} does not exist"))
        }
        None => Failure::new(
            Exit::NotFound,
            format!("command {shown} was not found in PATH"),
        ),
    })
}

fn executable(path: &Path) -> Result<(), Errno> {
    let metadata = std::fs::metadata(path)
        .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))?;
    if metadata.is_dir() {
        return Err(Errno::EISDIR);
    }
    nix::unistd::access(path, AccessFlags::X_OK)
}

/// Refuses what the kernel would: an interpreter that is not there, a program of another machine. Then nothing
/// has begun that a job would have to be written down for.
fn check_format(path: &Path) -> Result<(), Failure> {
    let Ok(file) = std::fs::File::open(path) else {
        return Ok(()); // may be executed, not read
    };
    let refuse = |why: String| {
        let message = format!("cannot execute {}: {why}", crate::raw::shown_path(path));
        Err(Failure::new(Exit::NotExecutable, message))
    };
    let mut head = [0; 256];
    let len = file.read_at(&mut head, 0).unwrap_or(0);
    let head = &head[..len];
    let interpreter = if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let words = line.split(|byte| b" \t".contains(byte));
        words
            .into_iter()
            .find(|word| !word.is_empty())
            .map(<[u8]>::to_vec)
    } else if head.starts_with(b"\x7fELF") {
        if !is_ours(head) {
            return refuse("a program for another machine".to_owned());
        }
        elf_interpreter(&file, head)
    } else {
        None // text for the shell, or what the kernel has been taught (binfmt_misc)
    };
    let Some(interpreter) = interpreter else {
        return Ok(());
    };
    let interpreter = PathBuf::from(OsString::from_vec(interpreter));
    match executable(&interpreter) {
        Ok(()) => Ok(()),
        Err(errno) => {
            let interpreter = crate::raw::shown_path(&interpreter);
            refuse(format!("its interpreter {interpreter}: {}", errno.desc()))
        }
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(bytes.get(at..at + N)?);
    Some(u64::from_le_bytes(wide))
}

/// Whether the kernel could execute this ELF file: x86-64, or 32-bit x86, or what binfmt_misc knows.
fn is_ours(head: &[u8]) -> bool {
    let known = [(2, 62), (1, 3), (1, 62)]; // class, machine: x86-64, i386, x32
    let class = head.get(4).copied().map(u64::from);
    let found = class.zip(number::<2>(head, 18));
    found.is_some_and(|found| known.contains(&found)) || others_are_known()
}

/// Whether the kernel has been taught formats.
fn others_are_known() -> bool {
    let entries = std::fs::read_dir("/proc/sys/fs/binfmt_misc");
    let names = entries.into_iter().flatten().flatten();
    names
        .map(|entry| entry.file_name())
        .any(|name| name != "register" && name != "status")
}

/// The dynamic linker that a 64-bit program names.
fn elf_interpreter(file: &std::fs::File, head: &[u8]) -> Option<Vec<u8>> {
    const PT_INTERP: u64 = 3;
    if head.get(4) != Some(&2) {
        return None;
    }
    let (table, size, count) = (
        number::<8>(head, 32)?,
        number::<2>(head, 54)?,
        number::<2>(head, 56)?,
    );
    for index in 0..count {
        let mut entry = [0; 56];
        file.read_exact_at(&mut entry, table.checked_add(index * size)?)
            .ok()?;
        if number::<4>(&entry, 0) == Some(PT_INTERP) {
            let len = number::<8>(&entry, 32).filter(|len| (2..4096).contains(len))?;
            let mut name = vec![0; len as usize];
            file.read_exact_at(&mut name, number::<8>(&entry, 8)?)
                .ok()?;
            name.pop();
            return Some(name);
        }
    }
    None
}

/// A text file without `#!` is given to the shell, as `execvp` does.
fn program(path: PathBuf, command: &[OsString]) -> Program {
    let mut head = [0; 128];
    let read = std::fs::File::open(&path).and_then(|mut file| file.read(&mut head));
    let head = &head[..read.unwrap_or(0)];
    let known = head.starts_with(b"#!") || head.starts_with(b"\x7fELF") || head.contains(&0);
    if known || head.is_empty() {
        let arguments = command.to_vec();
        return Program { path, arguments };
    }
    let mut arguments = vec![OsString::from("sh"), path.into_os_string()];
    arguments.extend_from_slice(&command[1..]);
    Program {
        path: PathBuf::from("/bin/sh"),
        arguments,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn put(dir: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, text).expect("write");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("chmod");
        path
    }

    #[test]
    fn the_first_executable_of_path_is_taken() {
        let (a, b) = (
            tempfile::tempdir().expect("a"),
            tempfile::tempdir().expect("b"),
        );
        put(a.path(), "tool", "#!/bin/sh\n", 0o644);
        let good = put(b.path(), "tool", "#!/bin/sh\n", 0o755);
        let path = std::env::join_paths([a.path(), b.path()]).expect("path");
        let found = find(&["tool".into(), "-x".into()], Some(&path)).expect("found");
        assert_eq!(found.path, good);
        assert_eq!(found.arguments, ["tool", "-x"]);
    }

    #[test]
    fn a_script_without_interpreter_line_goes_to_the_shell() {
        let dir = tempfile::tempdir().expect("dir");
        let script = put(dir.path(), "s", "exit 3\n", 0o755);
        let found = find(&[script.clone().into(), "a".into()], None).expect("found");
        assert_eq!(found.path, Path::new("/bin/sh"));
        assert_eq!(
            found.arguments,
            [OsStr::new("sh"), script.as_os_str(), OsStr::new("a")]
        );
    }

    #[test]
    fn what_is_absent_and_what_may_not_be_executed_differ() {
        let dir = tempfile::tempdir().expect("dir");
        let path = put(dir.path(), "f", "x", 0o644);
        let absent = find(&["nope".into()], Some(dir.path().as_os_str())).expect_err("absent");
        assert_eq!(absent.exit_status(), Exit::NotFound);
        let refused = find(&[path.into()], None).expect_err("refused");
        assert_eq!(refused.exit_status(), Exit::NotExecutable);
        let directory = find(&[dir.path().into()], None).expect_err("refused");
        assert_eq!(directory.exit_status(), Exit::NotExecutable);
    }
}
