//! The other machine: how it is reached, and what is done there.
//!
//! ```text
//! spawn ssh --the program is copied, if it is not there--> "ready" --an image, if the job goes on--> --what both sides say first--> a line
//!                                                                `--what the errand says--
//! ```

use super::arrival;
use super::ssh::Ssh;
use crate::args::Submit;
use crate::identity::to_hex;
use crate::report::{Exit, Explain, Failure, Outcome};
use crate::sys;
use ckpt_lib::image::Image;
use line::{Line, Preface};
use nix::sys::stat::Mode;
use shadow::introduce;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

/// Begins what the other machine says before the line begins.
const MARK: &str = "wayfarer-submit: ";
/// What a login may print before that.
const MOST_GREETING: usize = 64 << 10;

/// What is to be done there.
#[derive(Clone, Copy)]
pub(crate) enum Errand<'a> {
    /// The job is begun, and its life is there, too.
    Run,
    /// A copy is begun of a job whose life is here.
    Copy(&'a Copied<'a>),
    /// An image of that copy is made, and comes here.
    Fetch {
        /// The copy's [`Copied::id`].
        id: &'a str,
        /// The job.
        name: &'a str,
        /// What else is asked for.
        options: &'a [OsString],
    },
    /// The starter at this place gets another line.
    Reattach(&'a [u8]),
    /// A copy is ended that does not know that it is none any more.
    End {
        /// Its [`Copied::id`].
        id: &'a str,
        /// Another, for the folder of whoever ends it.
        by: &'a str,
    },
}

/// A copy of a job whose life is here.
pub(crate) struct Copied<'a> {
    /// What its folder there is called by.
    pub(crate) id: &'a str,
    /// A copy that was there before, and may not know that it is none any more.
    pub(crate) instead_of: Option<&'a str>,
    /// The job.
    pub(crate) name: &'a str,
    /// It begins so.
    pub(crate) command: &'a [OsString],
    /// It begins again: its session's state at its outset.
    pub(crate) back_to: Option<&'a [u8]>,
    /// It goes on from this image.
    pub(crate) image: Option<Arriving<'a>>,
}

/// An image that comes there before its copy.
#[derive(Clone, Copy)]
pub(crate) enum Arriving<'a> {
    Now(&'a Image),
    /// The job still runs elsewhere, and leaves with an image that is based on this one.
    Seat {
        base: &'a Image,
        /// Called when that is there, and again until it gives the last; waits for it.
        next: &'a dyn Fn() -> Outcome<Next>,
    },
}

impl Arriving<'_> {
    /// How much of the disk it takes there, as far as is known.
    fn bytes(self) -> u64 {
        let (Arriving::Now(image) | Arriving::Seat { base: image, .. }) = self;
        let len = |path: &Path| path.metadata().map_or(0, |found| found.len());
        image.files().map(len).sum()
    }
}

/// An image of a job that is about to come.
pub(crate) enum Next {
    /// It is to be there, and the job still runs elsewhere.
    More(Image),
    /// It goes on from this one.
    Last(Image),
}

/// See the module.
pub(crate) struct Far<'a> {
    pub(crate) host: &'a str,
    pub(crate) mode: Mode,
    pub(crate) directory: &'a Path,
    pub(crate) arguments: &'a Submit,
    /// What ssh says is a part of the reason why a machine is lost: whoever hears that has not seen it.
    pub(crate) quotes: bool,
}

/// The other machine is there.
pub(crate) struct Reached {
    pub(crate) ssh: Ssh,
    pub(crate) line: Line,
    /// Where the starter is found again; empty: nowhere.
    pub(crate) place: Vec<u8>,
}

/// It is not, or not any more.
pub(crate) struct Unreached {
    pub(crate) failure: Failure,
    /// How ssh has ended.
    status: Option<ExitStatus>,
}

impl Unreached {
    /// Whether there is nothing left to reach: `reattach` has said so, or there is no ssh.
    pub(crate) fn is_for_ever(&self) -> bool {
        let gone = Some(Exit::Lost as i32);
        self.status.is_none_or(|status| status.code() == gone)
    }

    /// Whether it was reached, and has said why it does not do what it was asked for: ssh passes its status on, and has 255 of its own.
    pub(crate) fn has_refused(&self) -> bool {
        let code = self.status.and_then(|status| status.code());
        // Those of sh(1): wayfarer is not there, or cannot be executed.
        code.is_some_and(|code| matches!(code, 1..=4 | 126 | 127))
    }
}

impl From<Unreached> for Failure {
    fn from(unreached: Unreached) -> Self {
        unreached.failure
    }
}

impl Far<'_> {
    /// A line to the other machine.
    pub(crate) fn reach(
        &self,
        errand: Errand<'_>,
        preface: &Preface,
    ) -> Result<Reached, Unreached> {
        let (ssh, (line, place)) = self.with(errand, |input, output| {
            self.begin(errand, input, output, preface)
        })?;
        Ok(Reached { ssh, line, place })
    }

    /// Has the errand done, and speaks with whoever does it.
    pub(crate) fn with<T>(
        &self,
        errand: Errand<'_>,
        speak: impl FnOnce(ChildStdout, ChildStdin) -> Outcome<T>,
    ) -> Result<(Ssh, T), Unreached> {
        let spawned = self.spawn(errand);
        let mut ssh = spawned.map_err(|failure| Unreached {
            failure,
            status: None,
        })?;
        let spoken = match ssh.pipes() {
            Some((input, output)) => self.installed(input, output, speak),
            None => Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
        };
        match spoken {
            Ok(spoken) => Ok((ssh, spoken)),
            Err(failure) => Err(self.lost(ssh, Some(failure))),
        }
    }

    fn installed<T>(
        &self,
        mut input: ChildStdout,
        mut output: ChildStdin,
        speak: impl FnOnce(ChildStdout, ChildStdin) -> Outcome<T>,
    ) -> Outcome<T> {
        if self.arguments.wayfarer.is_none() {
            install(&mut input, &mut output)?;
        }
        speak(input, output)
    }

    fn begin(
        &self,
        errand: Errand<'_>,
        mut input: ChildStdout,
        mut output: ChildStdin,
        preface: &Preface,
    ) -> Outcome<(Line, Vec<u8>)> {
        if let Errand::Copy(Copied {
            image: Some(image), ..
        }) = errand
        {
            send_image(*image, &mut input, &mut output)?;
        }
        let mut line = Line::plain(input.into(), output.into())?;
        let place = introduce(&mut line, preface)?;
        Ok((line, place))
    }

    /// What is said of a machine that was there.
    pub(crate) fn lost(&self, ssh: Ssh, failure: Option<Failure>) -> Unreached {
        let (status, words) = ssh.end_with_words();
        let mut how = match status {
            Some(status) => shown(status),
            None => "is nobody's child any more".to_owned(),
        };
        if self.quotes && !words.is_empty() {
            how.push_str(&format!(" ({words})"));
        }
        let host = self.host;
        let message = format!("{host} is lost: {} {how}", self.program());
        let outcome: Outcome<()> = Err(failure.unwrap_or_else(|| {
            let message = "the job has not said how it ended";
            Failure::new(Exit::Lost, message)
        }));
        let advice = || format!("ssh {host} true: whether it can be reached");
        let outcome = outcome.context(|| message).exit(Exit::Lost).advise(advice);
        Unreached {
            failure: outcome.err().unwrap_or_else(Failure::reader_gone),
            status,
        }
    }

    fn program(&self) -> &str {
        let mut words = self.arguments.ssh.split_whitespace();
        words.next().unwrap_or("ssh")
    }

    fn spawn(&self, errand: Errand<'_>) -> Outcome<Ssh> {
        let words = self.arguments.ssh.split_whitespace();
        let command = match &self.arguments.wayfarer {
            // Whatever the login's shell is: there may be no other.
            Some(path) => self.script(&quoted(path.as_os_str()), errand),
            None => self.installing(errand)?,
        };
        let mut ssh = Command::new(self.program());
        ssh.args(words.skip(1)).arg(self.host).arg(command);
        ssh.stdin(Stdio::piped()).stdout(Stdio::piped());
        ssh.stderr(Stdio::piped());
        // What is blocked here would be blocked there.
        sys::unblock_signals_of(&mut ssh);
        // A key that is pressed at the terminal is for the job.
        let started = sys::ignoring_keys(|| ssh.spawn())?;
        let started = started
            .context(|| format!("cannot start {}", self.program()))
            .exit(Exit::Lost)?;
        Ssh::new(started)
    }
}

fn shown(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("has ended with status {code}"),
        None => format!("was ended ({status})"),
    }
}

impl Far<'_> {
    /// In the words of its shell, which `wayfarer` is one of.
    fn script(&self, wayfarer: &OsStr, errand: Errand<'_>) -> OsString {
        let mut command = OsString::from("exec ");
        command.push(wayfarer);
        match errand {
            Errand::Run => {
                command.push(" run --quiet --shadow stdio");
                let name = self.arguments.name.as_deref();
                self.add_job(&mut command, name, &self.arguments.command);
            }
            Errand::Copy(copy) => {
                command.push(format!(" --away {}", copy.id));
                command.push(" run --quiet --shadow stdio --at-home");
                match &copy.image {
                    Some(Arriving::Seat { base, .. }) => {
                        let files = base.files().count();
                        command.push(format!(" --arriving --seated {files}"));
                    }
                    Some(Arriving::Now(_)) => command.push(" --arriving"),
                    None => {}
                }
                if let Some(least) = self.arguments.life.min_free {
                    let room = least.saturating_add(copy.image.map_or(0, Arriving::bytes));
                    command.push(format!(" --leave-free {room}"));
                }
                if let Some(old) = copy.instead_of {
                    command.push(" --instead-of ");
                    command.push(quoted(OsStr::new(old)));
                }
                if let Some(state) = copy.back_to {
                    command.push(format!(" --go-back {}", to_hex(state)));
                }
                self.add_job(&mut command, Some(copy.name), copy.command);
            }
            Errand::Fetch { id, name, options } => {
                command.push(format!(" --away {id} checkpoint"));
                for word in options {
                    command.push(" ");
                    command.push(quoted(word));
                }
                command.push(" -- ");
                command.push(quoted(OsStr::new(name)));
            }
            Errand::End { id, by } => {
                command.push(format!(" --away {by} run --quiet"));
                command.push(" --shadow stdio --at-home --only-ends --instead-of ");
                command.push(quoted(OsStr::new(id)));
                command.push(" -- true");
            }
            Errand::Reattach(place) => {
                command.push(" reattach -- ");
                command.push(quoted(OsStr::from_bytes(place)));
            }
        }
        command
    }

    fn add_job(&self, command: &mut OsString, name: Option<&str>, words: &[OsString]) {
        command.push(format!(" --umask {:03o}", self.mode.bits()));
        let lease = self.arguments.lease.as_secs().max(1);
        command.push(format!(" --lease {lease}s"));
        if let Some(name) = name {
            command.push(" --name ");
            command.push(quoted(OsStr::new(name)));
        }
        if let Some(by) = self.arguments.nice {
            command.push(format!(" --nice {by}"));
        }
        if self.arguments.confine {
            command.push(" --confine");
        }
        command.push(" --chdir ");
        command.push(quoted(self.directory.as_os_str()));
        for word in self.arguments.methods.words() {
            command.push(" ");
            command.push(quoted(&word));
        }
        command.push(" --");
        for word in words {
            command.push(" ");
            command.push(quoted(word));
        }
    }

    /// The same with this program, which is taken from our standard output if it is not there.
    fn installing(&self, errand: Errand<'_>) -> Outcome<OsString> {
        let (name, len) = own_name()?;
        let mut script = OsString::from(format!(
            r#"d="${{XDG_CACHE_HOME:-$HOME/.cache}}/wayfarer"; f="$d/{name}"
if test ! -x "$f"; then
  t="$d/.new.$$"; (umask 077; mkdir -p "$d" && : > "$t") || exit 1
  echo "{MARK}want"; head -c {len} > "$t"
  if test "$(wc -c < "$t")" -eq {len} && chmod 700 "$t" && mv -f "$t" "$f"; then :; else
    rm -f "$t"; echo "{MARK}failed"; exit 1; fi
fi
echo "{MARK}ready"
"#
        ));
        script.push(self.script(OsStr::new("\"$f\""), errand));
        Ok(by_shell(&script))
    }
}

fn by_shell(script: &OsStr) -> OsString {
    let mut command = OsString::from("exec sh -c ");
    command.push(quoted(script));
    command
}

fn send_image(arriving: Arriving<'_>, input: &mut dyn Read, output: &mut dyn Write) -> Outcome<()> {
    let describe = || "the image cannot be brought there".to_owned();
    let mut sent: Vec<PathBuf> = vec![];
    let mut send = |image: &Image, output: &mut dyn Write| -> io::Result<()> {
        for path in image.files() {
            if !sent.iter().any(|known| known == path) {
                arrival::send(path, output)?;
                sent.push(path.to_owned());
            }
        }
        Ok(())
    };
    match arriving {
        Arriving::Now(image) => send(image, output).context(describe)?,
        Arriving::Seat { base, next } => {
            send(base, output).context(describe)?;
            let fits = || "it is not said that the job can go on there".to_owned();
            arrival::hear_fits(input).context(fits)?;
            loop {
                let next = next()?;
                let (Next::More(image) | Next::Last(image)) = &next;
                send(image, output).context(describe)?;
                if matches!(next, Next::Last(_)) {
                    break;
                }
            }
        }
    }
    arrival::end(output).context(describe)
}

/// What this program is called there, so that another version is another file; and its length.
fn own_name() -> Outcome<(String, u64)> {
    let describe = || "cannot read this program".to_owned();
    let mut file = File::open("/proc/self/exe").context(describe)?;
    let mut hasher = blake3::Hasher::new();
    let mut portion = vec![0; 256 << 10];
    let mut whole = 0;
    loop {
        let len = file.read(&mut portion).context(describe)?;
        if len == 0 {
            break;
        }
        whole += len as u64;
        hasher.update(&portion[..len]);
    }
    let hash = hasher.finalize().to_hex();
    Ok((format!("wayfarer-{}", &hash[..32]), whole))
}

/// Until the program is there.
fn install(input: &mut ChildStdout, output: &mut ChildStdin) -> Outcome<()> {
    let mut left = MOST_GREETING;
    loop {
        let said = next_line(input, &mut left)?;
        match said.strip_prefix(MARK) {
            Some("ready") => return Ok(()),
            Some("want") => {
                copy_self(output).context(|| "it cannot be copied there".to_owned())?;
            }
            Some(other) => {
                let message = format!("it cannot be copied to ~/.cache/wayfarer there ({other})");
                return Err(Failure::new(Exit::Lost, message));
            }
            // What a login says.
            None => {}
        }
    }
}

fn copy_self(output: &mut dyn Write) -> io::Result<()> {
    let mut own = File::open("/proc/self/exe")?;
    let mut portion = vec![0; 256 << 10];
    loop {
        match own.read(&mut portion)? {
            0 => return output.flush(),
            len => output.write_all(&portion[..len])?,
        }
    }
}

/// Byte by byte, since what comes behind is not ours.
fn next_line(input: &mut dyn Read, left: &mut usize) -> Outcome<String> {
    let mut line = vec![];
    let mut byte = [0];
    while *left > 0 {
        *left -= 1;
        if input.read(&mut byte)? == 0 {
            let message = "it ended before wayfarer ran there";
            return Err(Failure::new(Exit::Lost, message));
        }
        if byte == *b"\n" {
            return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
        }
        line.extend(byte);
    }
    let message = format!("it said {MOST_GREETING} bytes, and nothing of wayfarer's");
    Err(Failure::new(Exit::Lost, message))
}

/// As one word of any shell.
pub(crate) fn quoted(word: &OsStr) -> OsString {
    let mut quoted = vec![b'\''];
    for byte in word.as_bytes() {
        match byte {
            b'\'' => quoted.extend(br"'\''"),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'\'');
    OsString::from_vec(quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_comes_through_a_shell_as_it_is() {
        let words = ["a b", "", "it's", "$HOME `x` \\ \"", "new\nline", "*"];
        let quoted: Vec<_> = words.iter().map(|word| quoted(OsStr::new(word))).collect();
        let mut script = OsString::from("printf '%s\\0' ");
        script.push(quoted.join(OsStr::new(" ")));
        let output = Command::new("sh")
            .arg("-c")
            .arg(script)
            .output()
            .expect("runs");
        let expected: Vec<u8> = words
            .iter()
            .flat_map(|word| [word.as_bytes(), b"\0"].concat())
            .collect();
        assert_eq!(output.stdout, expected);
    }

    #[test]
    fn what_a_login_says_is_skipped_but_not_for_ever() {
        let mut said = &b"Welcome\nto this machine\nwayfarer-submit: ready\nrest"[..];
        let mut left = 100;
        let lines = std::iter::from_fn(|| next_line(&mut said, &mut left).ok());
        let lines: Vec<_> = lines.take(3).collect();
        assert_eq!(lines[2], "wayfarer-submit: ready");
        assert_eq!(said, b"rest");
        let endless = [b'x'; 200];
        assert!(next_line(&mut &endless[..], &mut 100).is_err());
    }
}
