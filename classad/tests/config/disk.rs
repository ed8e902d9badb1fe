//! The files of a case, and what a configuration may ask of this machine.

use classad::Surroundings;
use classad::config::Sources;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

/// A variable that is set for both.
pub(crate) const SET: (&str, &str) = ("WF_SET", "some value");

/// Real files and commands; what is detected is what the original has found.
pub(crate) struct Disk {
    pub(crate) detected: Vec<(String, String)>,
}

impl Surroundings for Disk {
    fn now(&self) -> i64 {
        0
    }
}

impl Sources for Disk {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let mut names = vec![];
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                names.extend(entry.file_name().into_string());
            }
        }
        Ok(names)
    }

    fn run(&self, command: &[String]) -> io::Result<(Vec<u8>, i32)> {
        let output = Command::new(&command[0]).args(&command[1..]).output()?;
        Ok((output.stdout, output.status.code().unwrap_or(-1)))
    }

    fn write(&self, path: &str, contents: &[u8]) -> io::Result<()> {
        fs::write(path, contents)
    }

    fn variable(&self, name: &str) -> Option<String> {
        (name == SET.0).then(|| SET.1.to_owned())
    }

    fn detected(&self) -> Vec<(String, String)> {
        self.detected.clone()
    }
}

/// Writes the files of a case into an empty directory; the first one is `main`, others follow lines `---- NAME`.
pub(crate) fn lay_out(case: &str, directory: &Path) -> io::Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    fs::create_dir_all(directory)?;
    let case = case.replace("@DIR@", &directory.to_string_lossy());
    let mut parts = case.split("---- ");
    fs::write(directory.join("main"), parts.next().unwrap_or_default())?;
    for part in parts {
        let (name, text) = part.split_once('\n').unwrap_or((part, ""));
        let path = directory.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, text)?;
    }
    Ok(())
}
