//! A second, empty machine: a root made with pivot_root that holds nothing but
//! /proc and what is asked for, entered as an ordinary user.
//!
//! `tests/hosts/empty_host.c` does it (statically linked, since nothing of this
//! machine is left after pivot_root); `scripts/empty-host` is the same for people.

use super::run::clean_command;
use super::stage;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An empty host, as it will be.
#[derive(Clone, Debug)]
pub struct Host {
    tool: PathBuf,
    proc_mounted: bool,
    files: Vec<PathBuf>,
}

impl Host {
    /// Empty but for /proc.
    ///
    /// # Errors
    /// Why the tool cannot be built here.
    pub fn empty() -> Result<Self, String> {
        Ok(Host {
            tool: stage::host_tool("empty_host")?,
            proc_mounted: true,
            files: vec![],
        })
    }

    /// Without /proc, too.
    #[must_use]
    pub fn without_proc(mut self) -> Self {
        self.proc_mounted = false;
        self
    }

    /// With this file or directory, at the path it has here.
    #[must_use]
    pub fn with(mut self, path: &Path) -> Self {
        self.files.push(path.to_path_buf());
        self
    }

    /// The command that runs `program` there; arguments can be added.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = clean_command(&self.tool);
        if !self.proc_mounted {
            command.arg("--no-proc");
        }
        for file in &self.files {
            command.arg("--with").arg(file);
        }
        command.arg("--").arg(program);
        command
    }
}
