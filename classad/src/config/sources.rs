//! What reading a configuration may ask of the world.

use crate::surroundings::{Nowhere, Surroundings};
use std::io;

/// Files, commands and the environment: whoever reads a configuration brings them; clock and chance are those of
/// [`Surroundings`].
///
/// Every method has a default that knows nothing.
pub trait Sources: Surroundings {
    /// The bytes of a file.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let _ = path;
        Err(io::ErrorKind::NotFound.into())
    }

    /// The names of the files in a directory, not those of directories.
    ///
    /// # Errors
    /// Why it cannot be listed.
    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let _ = directory;
        Err(io::ErrorKind::NotFound.into())
    }

    /// What a command, given in words, prints, and its status.
    ///
    /// # Errors
    /// Why it cannot be carried out.
    fn run(&self, command: &[String]) -> io::Result<(Vec<u8>, i32)> {
        let _ = command;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Keeps what a command has printed in a file (`include command into`).
    ///
    /// # Errors
    /// Why it cannot be written.
    fn write(&self, path: &str, contents: &[u8]) -> io::Result<()> {
        let _ = (path, contents);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// A variable of the environment.
    fn variable(&self, name: &str) -> Option<String> {
        let _ = name;
        None
    }

    /// Values that the environment has for names: `NAME` for each variable `_CONDOR_NAME`.
    fn overrides(&self) -> Vec<(String, String)> {
        vec![]
    }

    /// What is known about the machine: `HOSTNAME`, `DETECTED_CPUS` …
    fn detected(&self) -> Vec<(String, String)> {
        vec![]
    }

    /// Which version `if version` compares with; none: the dialect's.
    fn version(&self) -> Option<[u32; 3]> {
        None
    }
}

impl Sources for Nowhere {}
