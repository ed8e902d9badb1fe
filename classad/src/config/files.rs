//! Where the text of a configuration is from: files, what commands print, the local files that it names, the environment.

use super::command;
use super::error::{ConfigError, WarningKind};
use super::origin::Origin;
use super::reader::{Outcome, Place, Reader, fault};
use super::statement::is_name;
use fancy_regex::Regex;
use std::io;

impl Reader<'_> {
    /// Carries out a file, or what a command has printed.
    pub(super) fn file(&mut self, bytes: &[u8], name: &str, depth: usize) -> Outcome {
        self.files.push(name.to_owned());
        self.text(bytes, &Place::File(name.into()), depth)
    }

    /// A file, or what a command prints, and what it is called.
    pub(super) fn read(
        &mut self,
        what: &str,
        is_command: bool,
        at: &Origin,
    ) -> io::Result<(Vec<u8>, String)> {
        let Some(command) = as_command(what, is_command)? else {
            return Ok((self.sources.read(what)?, what.to_owned()));
        };
        let (bytes, status) = self.run(&command)?;
        if status != 0 {
            let command = command.clone();
            self.warn(at.clone(), WarningKind::Status { command, status });
        }
        Ok((bytes, format!("{command} |")))
    }

    /// The same, which is kept in a file.
    pub(super) fn read_into(
        &mut self,
        what: &str,
        is_command: bool,
        into: &str,
        at: &Origin,
    ) -> io::Result<(Vec<u8>, String)> {
        let Some(command) = as_command(what, is_command)? else {
            return self.read(what, false, at);
        };
        let (bytes, status) = self.run(&command)?;
        if status != 0 {
            return Err(io::Error::other(format!("it ended with status {status}")));
        }
        self.sources.write(into, &bytes)?;
        Ok((bytes, into.to_owned()))
    }

    fn run(&self, command: &str) -> io::Result<(Vec<u8>, i32)> {
        let words = command::words(command).map_err(invalid)?;
        if words.is_empty() {
            return Err(invalid("there is no command"));
        }
        self.sources.run(&words)
    }

    /// The file that all begins with.
    pub(super) fn root(&mut self, path: &str) -> Outcome {
        let no_file = |reason| ConfigError::NoFile {
            path: path.to_owned(),
            reason,
        };
        let bytes = self.sources.read(path).map_err(no_file)?;
        let at = Origin::Line {
            path: path.into(),
            line: 0,
        };
        self.take(bytes.len(), path, &at)?;
        self.file(&bytes, path, 0)
    }

    /// What the file names as local, then the environment.
    pub(super) fn locals(&mut self) -> Outcome {
        let directories = self.directory(None)?;
        self.local_files()?;
        self.directory(directories)?;
        for (name, value) in self.sources.overrides() {
            if is_name(&name) {
                let value = self.expander().expand_self(&value, &name);
                let value = value.map_err(|problem| fault(problem, &name, &Origin::Environment))?;
                self.set(&name, value, Origin::Environment)?;
            }
        }
        Ok(())
    }

    /// The value of a name as it is now, and where it is from; none: it is not defined, or empty.
    fn current(&self, name: &str) -> Outcome<Option<(String, Origin)>> {
        let Some((key, entry)) = self.table.resolve(name) else {
            return Ok(None);
        };
        let value = self.expander().value(&key, &entry.raw);
        let value = value.map_err(|problem| fault(problem, name, &entry.origin))?;
        Ok(Some((value, entry.origin.clone())).filter(|(value, _)| !value.is_empty()))
    }

    fn has_to_exist(&self) -> Outcome<bool> {
        let value = self.current("REQUIRE_LOCAL_CONFIG_FILE")?;
        let is_false =
            |text: &str| ["false", "f", "no", "0"].contains(&text.to_lowercase().as_str());
        Ok(!value.is_some_and(|(value, _)| is_false(value.trim())))
    }

    /// The files of the directories in `LOCAL_CONFIG_DIR`, in their order by name; not again if it is what it was.
    fn directory(&mut self, before: Option<String>) -> Outcome<Option<String>> {
        let Some((list, at)) = self.current("LOCAL_CONFIG_DIR")? else {
            return Ok(None);
        };
        if before.as_ref() == Some(&list) {
            return Ok(before);
        }
        for directory in listed(&list) {
            let excluded = self.current("LOCAL_CONFIG_DIR_EXCLUDE_REGEXP")?;
            let excluded = excluded.and_then(|(pattern, _)| Regex::new(&pattern).ok());
            let Ok(mut names) = self.sources.list(directory) else {
                let path = directory.to_owned();
                self.warn(at.clone(), WarningKind::NoDirectory { path });
                continue;
            };
            names.sort();
            // A pattern that gives up excludes nothing.
            let is_excluded = |name: &str| {
                let pattern = excluded.as_ref();
                pattern.is_some_and(|pattern| pattern.is_match(name).unwrap_or(false))
            };
            for name in names.iter().filter(|name| !is_excluded(name)) {
                let path = format!("{}/{name}", directory.trim_end_matches('/'));
                self.local_file(&path, &at)?;
            }
        }
        Ok(Some(list))
    }

    /// The files of `LOCAL_CONFIG_FILE`; one that names others there brings these in, too.
    fn local_files(&mut self) -> Outcome {
        let mut done: Vec<String> = vec![];
        while let Some((list, at)) = self.current("LOCAL_CONFIG_FILE")? {
            let names = match list.contains('|') {
                true => vec![list.trim()],
                false => listed(&list).collect(),
            };
            let is_new = |name: &&str| !done.iter().any(|one| one == name);
            let Some(next) = names.into_iter().find(is_new).map(str::to_owned) else {
                break;
            };
            self.local_file(&next, &at)?;
            done.push(next);
        }
        Ok(())
    }

    fn local_file(&mut self, path: &str, at: &Origin) -> Outcome {
        let (bytes, name) = match self.read(path, false, at) {
            Ok(read) => read,
            Err(reason) => {
                if !self.has_to_exist()? {
                    return Ok(());
                }
                let (at, what) = (at.clone(), path.to_owned());
                return Err(ConfigError::Unreadable { at, what, reason });
            }
        };
        self.take(bytes.len(), &name, at)?;
        self.file(&bytes, &name, 0)
    }
}

/// The items of a list of paths.
fn listed(list: &str) -> impl Iterator<Item = &str> {
    list.split([' ', ',', '\t', '\n'])
        .filter(|item| !item.is_empty())
}

/// The command, without the `|` behind it, if what is to be read is one.
fn as_command(what: &str, is_command: bool) -> io::Result<Option<String>> {
    let piped = what.trim_end().strip_suffix('|');
    match piped {
        Some(command) => Ok(Some(command.trim_end_matches([' ', '|']).to_owned())),
        None if what.contains('|') => Err(invalid("the | of a command stands at its end")),
        None => Ok(is_command.then(|| what.to_owned())),
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
