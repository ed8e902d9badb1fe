//! The real library, in a Python process that answers lines of JSON.

use serde_json::{Value as Json, json};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Oracle {
    script: &'static str,
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
}

impl Oracle {
    /// The library, if `scripts/setup` has installed it; else the reason why there is none.
    ///
    /// `script` is what the process does: it answers each line of JSON with one.
    pub(crate) fn start(script: &'static str) -> Result<Self, String> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        // TARGET/PROFILE/deps/TEST
        let target = own
            .ancestors()
            .nth(3)
            .ok_or("the test is in no target directory")?;
        let python: PathBuf = target.join("htcondor/bin/python");
        let missing = || {
            format!(
                "{} has no classad2: run scripts/setup where PyPI is reached",
                python.display()
            )
        };
        let mut command = Command::new(&python);
        command
            .args(["-c", script])
            .env("CONDOR_CONFIG", "/dev/null")
            .env("TZ", "UTC");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().map_err(|_| missing())?;
        let requests = child.stdin.take().ok_or("no pipe to the oracle")?;
        let output = child.stdout.take().ok_or("no pipe from the oracle")?;
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut oracle = Self {
            script,
            child,
            requests,
            answers,
        };
        oracle
            .answer(&json!({ "expr": "1" }))
            .map_err(|_| missing())?
            .ok_or_else(missing)?;
        Ok(oracle)
    }

    /// What the library makes of something; none where that kills it, in which case there is a new one.
    pub(crate) fn ask(&mut self, request: &Json) -> Result<Option<Json>, String> {
        let answer = self.answer(request)?;
        if answer.is_none() {
            *self = Self::start(self.script)?;
        }
        Ok(answer)
    }

    fn answer(&mut self, request: &Json) -> Result<Option<Json>, String> {
        if writeln!(self.requests, "{request}").is_err() {
            return Ok(None);
        }
        match self.answers.recv_timeout(PATIENCE) {
            Ok(line) => serde_json::from_str(&line)
                .map(Some)
                .map_err(|error| format!("{error}: {line}")),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(format!("the oracle does not answer {request}")),
        }
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
