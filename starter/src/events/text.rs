//! Events as HTCondor's text, and the two kinds of foreign strings in it made safe.
//!
//! ```text
//! 012 (042.000.000) 2026-03-01 09:05:07 Job was held.
//!         what is known of it, each line begins with a tab or four blanks
//! ...
//! ```
//! Those who read look for a line that is `...` and, in places, for blanks and commas; so a sentence keeps to its line, and
//! a word has neither of them.

use super::{Event, JobNumber, Outcome, ReasonCode, Traffic, Usage, Usages};
use std::fmt;
use std::time::Duration;

/// What ends an event, on a line of its own.
pub(super) const END: &str = "...";
/// A sentence, in bytes; HTCondor itself cuts at 8191.
const MOST_SENTENCE: usize = 4096;
/// A word, in bytes; a name of a machine has 255 at most.
const MOST_WORD: usize = 512;
/// Whoever looks for the end takes this much of a line at a time, and takes what is left of it for a line.
const PIECE: usize = 511;

/// All the lines of an event, the last one too. `at` is local time, `YYYY-MM-DD HH:MM:SS`.
pub(super) fn event(number: JobNumber, at: &str, event: &Event) -> String {
    let JobNumber {
        cluster,
        process,
        subprocess,
    } = number;
    let kind = event.number();
    let body = Body(event);
    format!("{kind:03} ({cluster:03}.{process:03}.{subprocess:03}) {at} {body}{END}\n")
}

struct Body<'a>(&'a Event);

impl fmt::Display for Body<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Event::Submitted { host, notes } => {
                writeln!(out, "Job submitted from host: {}", word(host))?;
                reason(out, "    ", notes.as_deref())
            }
            Event::Executing { host } => writeln!(out, "Job executing on host: {}", word(host)),
            Event::Checkpointed { run, sent_bytes } => {
                writeln!(out, "Job was checkpointed.")?;
                usages(out, "\t", "Run", run)?;
                writeln!(
                    out,
                    "\t{sent_bytes}  -  Run Bytes Sent By Job For Checkpoint"
                )
            }
            Event::Evicted {
                checkpointed,
                run,
                traffic,
                reason: why,
                code,
            } => {
                out.write_str("Job was evicted.")?;
                if let Some(ReasonCode { code, subcode }) = code {
                    write!(out, " Code {code} Subcode {subcode}")?;
                }
                out.write_str(if *checkpointed {
                    "\n\t(1) Job was checkpointed.\n"
                } else {
                    "\n\t(0) CPU times\n"
                })?;
                usages(out, "\t\t", "Run", run)?;
                bytes(out, "Run", traffic)?;
                reason(out, "\tReason: ", why.as_deref())
            }
            Event::Terminated {
                outcome,
                run,
                total,
                run_traffic,
                total_traffic,
            } => {
                writeln!(out, "Job terminated.")?;
                match outcome {
                    Outcome::Exited(status) => {
                        writeln!(out, "\t(1) Normal termination (return value {status})")?;
                    }
                    Outcome::Signaled(signal) => {
                        writeln!(out, "\t(0) Abnormal termination (signal {signal})")?;
                        writeln!(out, "\t(0) No core file")?;
                    }
                }
                usages(out, "\t\t", "Run", run)?;
                usages(out, "\t\t", "Total", total)?;
                bytes(out, "Run", run_traffic)?;
                bytes(out, "Total", total_traffic)
            }
            Event::ImageSize {
                size_kib,
                memory_mib,
                resident_kib,
            } => {
                writeln!(out, "Image size of job updated: {size_kib}")?;
                if let Some(mib) = memory_mib {
                    writeln!(out, "\t{mib}  -  MemoryUsage of job (MB)")?;
                }
                if let Some(kib) = resident_kib {
                    writeln!(out, "\t{kib}  -  ResidentSetSize of job (KB)")?;
                }
                Ok(())
            }
            Event::ShadowException { message, traffic } => {
                // This line is always there.
                writeln!(out, "Shadow exception!\n\t{}", sentence(message))?;
                bytes(out, "Run", traffic)
            }
            Event::Remark { text } => writeln!(out, "{}", sentence(text)),
            Event::Aborted { reason: why } => {
                writeln!(out, "Job was aborted.")?;
                reason(out, "\t", why.as_deref())
            }
            Event::Suspended { processes } => {
                writeln!(out, "Job was suspended.")?;
                writeln!(out, "\tNumber of processes actually suspended: {processes}")
            }
            Event::Unsuspended => writeln!(out, "Job was unsuspended."),
            Event::Held { reason: why, code } => {
                let why = sentence(why.as_deref().unwrap_or_default());
                let ReasonCode { code, subcode } = code;
                writeln!(
                    out,
                    "Job was held.\n\t{}",
                    given(&why, "Reason unspecified")
                )?;
                writeln!(out, "\tCode {code} Subcode {subcode}")
            }
            Event::Released { reason: why } => {
                writeln!(out, "Job was released.")?;
                reason(out, "\t", why.as_deref())
            }
            Event::Disconnected {
                reason: why,
                name,
                host,
            } => {
                let (why, name, host) = (sentence(why), word(name), word(host));
                writeln!(out, "Job disconnected, attempting to reconnect")?;
                writeln!(out, "    {}", given(&why, "reason unspecified"))?;
                writeln!(out, "    Trying to reconnect to {name} {host}")
            }
            Event::Reconnected {
                name,
                host,
                starter,
            } => {
                writeln!(out, "Job reconnected to {}", word(name))?;
                writeln!(out, "    startd address: {}", word(host))?;
                writeln!(out, "    starter address: {}", word(starter))
            }
            Event::ReconnectFailed { reason: why, name } => {
                let why = sentence(why);
                writeln!(out, "Job reconnection failed")?;
                writeln!(out, "    {}", given(&why, "reason unspecified"))?;
                let name = word(name);
                writeln!(out, "    Can not reconnect to {name}, rescheduling job")
            }
        }
    }
}

/// A line with a reason, if there is one.
fn reason(out: &mut fmt::Formatter<'_>, before: &str, text: Option<&str>) -> fmt::Result {
    match sentence(text.unwrap_or_default()) {
        none if none.is_empty() => Ok(()),
        some => writeln!(out, "{before}{some}"),
    }
}

fn given<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

fn usages(out: &mut fmt::Formatter<'_>, before: &str, of: &str, usages: &Usages) -> fmt::Result {
    for (side, Usage { user, system }) in [("Remote", usages.remote), ("Local", usages.local)] {
        let (user, system) = (clock(user), clock(system));
        writeln!(
            out,
            "{before}Usr {user}, Sys {system}  -  {of} {side} Usage"
        )?;
    }
    Ok(())
}

/// `D HH:MM:SS`
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let (hours, minutes, seconds) = (hours % 24, minutes % 60, seconds % 60);
    format!("{days} {hours:02}:{minutes:02}:{seconds:02}")
}

fn bytes(out: &mut fmt::Formatter<'_>, of: &str, traffic: &Traffic) -> fmt::Result {
    let Traffic {
        sent_bytes,
        received_bytes,
    } = traffic;
    writeln!(out, "\t{sent_bytes}  -  {of} Bytes Sent By Job")?;
    writeln!(out, "\t{received_bytes}  -  {of} Bytes Received By Job")
}

/// Text that may have blanks: one line, no control characters; where a line ended there is a `|`, as in HTCondor's own logs.
fn sentence(text: &str) -> String {
    let one_line = text.trim().replace("\r\n", "\n");
    let clean = one_line.chars().map(|c| match c {
        '\n' => '|',
        c if c.is_control() => ' ',
        c => c,
    });
    let clean = clean.collect::<String>();
    let cut = cut(clean.trim(), MOST_SENTENCE).trim_end();
    // The last piece of a long line must not be three dots. What stands before a sentence is never this long.
    let long = cut.len() + END.len() + "\tReason: ".len() >= PIECE;
    let kept = if long { cut.trim_end_matches('.') } else { cut };
    kept.trim_end().to_owned()
}

/// A name or an address: no blanks, no commas, and it does not begin like the end.
fn word(text: &str) -> String {
    let clean = text.trim().chars().map(|c| match c {
        ',' => '_',
        c if c.is_whitespace() || c.is_control() => '_',
        c => c,
    });
    let clean = clean.collect::<String>();
    match cut(clean.trim_start_matches('.'), MOST_WORD).trim_end_matches('.') {
        "" => "unknown".to_owned(),
        word => word.to_owned(),
    }
}

/// No more than so many bytes of it.
fn cut(text: &str, most: usize) -> &str {
    let fits = text.char_indices().map(|(at, c)| at + c.len_utf8());
    let end = fits.take_while(|end| *end <= most).last();
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobNumber = JobNumber {
        cluster: 42,
        process: 3,
        subprocess: 0,
    };
    const AT: &str = "2026-03-01 09:05:07";

    fn held(why: &str) -> String {
        let held = Event::Held {
            reason: Some(why.to_owned()),
            code: ReasonCode {
                code: 36,
                subcode: -1,
            },
        };
        event(JOB, AT, &held)
    }

    #[test]
    fn an_event_is_a_header_a_body_and_an_end() {
        assert_eq!(
            held("no checkpoint"),
            "012 (042.003.000) 2026-03-01 09:05:07 Job was held.\n\tno checkpoint\n\tCode 36 Subcode -1\n...\n"
        );
        let job = JobNumber {
            cluster: 12345,
            process: 1000,
            subprocess: 1,
        };
        assert_eq!(
            event(job, AT, &Event::Unsuspended),
            "011 (12345.1000.001) 2026-03-01 09:05:07 Job was unsuspended.\n...\n"
        );
    }

    #[test]
    fn usage_is_in_days_hours_minutes_and_whole_seconds() {
        let usage = |user, system| Usage {
            user: Duration::from_millis(user),
            system: Duration::from_millis(system),
        };
        let run = Usages {
            remote: usage(((24 + 2) * 3600 + 3 * 60 + 4) * 1000 + 999, 59_999),
            local: usage(0, 86_400_000 * 40),
        };
        let sent_bytes = u64::MAX;
        let event = event(JOB, AT, &Event::Checkpointed { run, sent_bytes });
        let lines = event.lines().collect::<Vec<_>>();
        assert_eq!(
            lines[1..],
            [
                "\tUsr 1 02:03:04, Sys 0 00:00:59  -  Run Remote Usage",
                "\tUsr 0 00:00:00, Sys 40 00:00:00  -  Run Local Usage",
                "\t18446744073709551615  -  Run Bytes Sent By Job For Checkpoint",
                "...",
            ]
        );
    }

    #[test]
    fn a_sentence_keeps_to_its_line() {
        for (text, is) in [
            (
                "as it is, with (all) <signs> é",
                "as it is, with (all) <signs> é",
            ),
            ("two\nlines\r\nor three\n", "two|lines|or three"),
            ("\n...\n", "..."),
            ("a\n...\n005 (1.0.0)", "a|...|005 (1.0.0)"),
            ("\0a\x1b[31m\u{85}b\tc", "a [31m b c"),
            (" \t\r\n", ""),
            ("\0", ""),
        ] {
            assert_eq!(sentence(text), is, "{text:?}");
        }
        assert_eq!(sentence(&"é".repeat(3000)), "é".repeat(MOST_SENTENCE / 2));
        assert_eq!(sentence("waits ..."), "waits ...");
        let long = "x".repeat(PIECE - 1);
        assert_eq!(sentence(&format!("{long}...")), long);
    }

    #[test]
    fn a_word_is_one() {
        for (text, is) in [
            ("<[::1]:9618?addrs=a&b>", "<[::1]:9618?addrs=a&b>"),
            ("a b,c\nd", "a_b_c_d"),
            ("...", "unknown"),
            ("...a.b.", "a.b"),
            ("", "unknown"),
        ] {
            assert_eq!(word(text), is, "{text:?}");
        }
        assert_eq!(word(&"x".repeat(1000)).len(), MOST_WORD);
        let dots = format!("{}{}", "x".repeat(MOST_WORD - 3), ".".repeat(9) + "y");
        assert_eq!(word(&dots).len(), MOST_WORD - 3);
    }

    #[test]
    fn what_is_missing_leaves_no_empty_line() {
        let events = [
            Event::Aborted { reason: None },
            Event::Released {
                reason: Some("\n".to_owned()),
            },
        ];
        for it in events {
            let text = event(JOB, AT, &it);
            assert_eq!(text.lines().count(), 2, "{text}");
        }
        assert!(held(" ").contains("\n\tReason unspecified\n"));
    }
}
