//! What the command says when it fails, and the status it ends with.
//!
//! ```text
//! wayfarer: cannot checkpoint job night: descriptor 5 is a connected socket: ...
//!   try: wayfarer checkpoint --wait-for-sockets 10s ...
//! ```
//! # What callers may rely on
//! An error is printed once, with the whole chain of its causes, and with what
//! to do next if there is something. A reader who went away (a closed pipe) is
//! not an error.

use std::error::Error;
use std::io::Write;

/// Has what a shadow says of its work go to standard error, from this level on.
pub(crate) fn log(least: tracing_subscriber::filter::LevelFilter) {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .with_max_level(least)
        .init();
}

/// Exit statuses of the command; a job's own status passes through beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// Failed.
    Failed = 1,
    /// Wrong arguments, or the name of something that is not there.
    Usage = 2,
    /// This machine cannot do it.
    Host = 3,
    /// An image is damaged, or does not fit this machine.
    Image = 4,
    /// The other side is gone, or was never there.
    Lost = 5,
    /// `run`: found, but cannot be executed.
    NotExecutable = 126,
    /// `run`: not found.
    NotFound = 127,
}

/// A failure on its way to the user.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    error: Option<anyhow::Error>,
    advice: Vec<String>,
}

/// What every verb returns.
pub(crate) type Outcome<T = Exit> = Result<T, Failure>;

impl Failure {
    /// A failure with this message.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Failure {
            exit,
            error: Some(anyhow::Error::msg(message.into())),
            advice: vec![],
        }
    }

    /// Nobody reads what is printed any more.
    pub(crate) fn reader_gone() -> Self {
        Failure {
            exit: Exit::Done,
            error: None,
            advice: vec![],
        }
    }

    /// Somebody else has said what there is to say.
    pub(crate) fn said(exit: Exit) -> Self {
        Failure {
            exit,
            ..Failure::reader_gone()
        }
    }

    /// The same, with another status.
    pub(crate) fn with(self, exit: Exit) -> Self {
        Failure { exit, ..self }
    }

    /// Adds what the user can do about it.
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice.push(advice.into());
        self
    }

    /// The status the command ends with.
    pub(crate) fn exit_status(&self) -> Exit {
        self.exit
    }

    pub(crate) fn message(&self) -> Option<String> {
        Some(chain(self.error.as_ref()?.as_ref()))
    }
}

/// An error with all its causes in one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.ends_with(&text) {
            message = format!("{message}: {text}");
        }
        cause = error.source();
    }
    message
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message().unwrap_or_default())
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure {
            exit: Exit::Failed,
            error: Some(error.into()),
            advice: vec![],
        }
    }
}

/// Says more about an error on its way up.
pub(crate) trait Explain<T> {
    /// What was attempted, or which object it was: stands before the error.
    fn context(self, message: impl FnOnce() -> String) -> Outcome<T>;
    /// Which exit status it is.
    fn exit(self, exit: Exit) -> Outcome<T>;
    /// What the user can do about it.
    fn advise(self, advice: impl FnOnce() -> String) -> Outcome<T>;
}

impl<T, E: Into<Failure>> Explain<T> for Result<T, E> {
    fn context(self, message: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|error| {
            let mut failure = error.into();
            failure.error = failure.error.map(|inner| inner.context(message()));
            failure
        })
    }

    fn exit(self, exit: Exit) -> Outcome<T> {
        self.map_err(|error| Failure {
            exit,
            ..error.into()
        })
    }

    fn advise(self, advice: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|error| error.into().advise(advice()))
    }
}

/// Prints to stderr, where there may be nobody.
pub(crate) fn tell(message: &str) {
    let message = crate::raw::visible_lines(message);
    let _ = writeln!(std::io::stderr(), "wayfarer: {message}");
}

/// Prints what went wrong, if something did, and gives the exit status.
pub(crate) fn conclude(outcome: Outcome) -> Exit {
    match outcome {
        Ok(exit) => exit,
        Err(failure) => {
            if let Some(message) = failure.message() {
                tell(&message);
            }
            for advice in &failure.advice {
                let advice = crate::raw::visible_lines(advice);
                let _ = writeln!(std::io::stderr(), "  try: {advice}");
            }
            failure.exit
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_said_once_and_in_order() {
        let error = std::io::Error::from_raw_os_error(libc::EACCES);
        let outcome: Outcome<()> = Err(error).context(|| "cannot open x".to_owned());
        let failure = outcome.expect_err("failed");
        let expected = "cannot open x: Permission denied (os error 13)";
        assert_eq!(failure.message().as_deref(), Some(expected));
    }

    #[test]
    fn a_cause_already_in_the_text_is_not_repeated() {
        let failure = Failure {
            error: Some(anyhow::anyhow!("inner").context("outer: inner")),
            ..Failure::reader_gone()
        };
        assert_eq!(failure.message().as_deref(), Some("outer: inner"));
    }
}
