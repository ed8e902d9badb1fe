//! What `--remap`, `--local-files`, `--append-files`, `--fetch-files` and `--compress-files` say, as the job has it ([`c_shim::rules`]), and the other options of
//! [`Methods`] ([`c_shim::habits`]).
//!
//! Lists are separated by `;` or `,` (a remap's by `;`), and `*` in them stands for any characters; a backslash before such a character, or
//! `=`, takes its meaning away.

use crate::args::Methods;
use crate::report::{Exit, Failure, Outcome};
use c_shim::habits::{Habits, MOST_AHEAD, Wrong};
use c_shim::rules::{ANY, Kind, RULES_LEN, Rule, whole};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Where relative names of files begin: at the shadow, and on this machine.
pub(super) struct Beginnings<'a> {
    pub(super) there: &'a Path,
    pub(super) here: &'a Path,
}

/// The rules of a job.
pub(super) fn rules(
    methods: &Methods,
    beginnings: &Beginnings<'_>,
) -> Outcome<Box<[u8; RULES_LEN]>> {
    let mut bytes = Box::new([0; RULES_LEN]);
    for (option, lists) in methods.lists() {
        let kind = match option {
            "--remap" => None,
            "--local-files" => Some(Kind::Here),
            "--append-files" => Some(Kind::Append),
            "--fetch-files" => Some(Kind::Fetch),
            _ => Some(Kind::Compress),
        };
        let separators: &[u8] = if kind.is_none() { b";" } else { b";," };
        for list in lists {
            for text in pieces(list.as_bytes(), separators, usize::MAX) {
                let added = match kind {
                    None => remap(&text, beginnings, &mut bytes),
                    Some(kind) => about(kind, &text, beginnings, &mut bytes),
                };
                added.map_err(|why| wrong(option, &text, why))?;
            }
        }
    }
    Ok(bytes)
}

/// How a job's calls are served.
pub(super) fn habits(methods: &Methods) -> Outcome<Habits> {
    let (size, block) = (methods.buffer_size, methods.buffer_block_size);
    Habits::new(size, block, methods.aggravate).map_err(|wrong| {
        let (option, found, most) = match wrong {
            Wrong::Size => ("--buffer-size", size, MOST_AHEAD.into()),
            Wrong::Block => (
                "--buffer-block-size",
                block,
                size.unwrap_or(MOST_AHEAD.into()),
            ),
        };
        let found = found.unwrap_or_default();
        let message = format!("{option}: found {found} bytes, expected at most {most}");
        Failure::new(Exit::Usage, message)
    })
}

type Added = Result<(), &'static str>;

const TOO_MUCH: &str = "expected fewer or shorter names";

fn remap(text: &[u8], beginnings: &Beginnings<'_>, bytes: &mut [u8; RULES_LEN]) -> Added {
    let parts = pieces(text, b"=", 2);
    let [from, to] = &parts[..] else {
        return Err("expected NAME=NEW");
    };
    let (kind, beginning, to) = match to.strip_prefix(b"local:") {
        Some(to) => (Kind::RemapHere, beginnings.here, to),
        None => {
            let to = to.strip_prefix(b"remote:").unwrap_or(to);
            (Kind::Remap, beginnings.there, to)
        }
    };
    let to = unescaped(to);
    if to.is_empty() {
        return Err("expected a name behind =");
    }
    let to = absolute(beginning, &to)?;
    let from = name(&unescaped(from), beginnings)?;
    add(kind, &from, &to, bytes)
}

fn about(
    kind: Kind,
    text: &[u8],
    beginnings: &Beginnings<'_>,
    bytes: &mut [u8; RULES_LEN],
) -> Added {
    let from = name(&pattern(text), beginnings)?;
    let here = match kind {
        Kind::Here => absolute(beginnings.here, b".")?,
        _ => vec![],
    };
    add(kind, &from, &here, bytes)
}

fn add(kind: Kind, from: &[u8], to: &[u8], bytes: &mut [u8; RULES_LEN]) -> Added {
    let rule = Rule { kind, from, to };
    if rule.add(bytes) {
        Ok(())
    } else {
        Err(TOO_MUCH)
    }
}

/// A name that a rule is about: as it stands if it is simple, else without detours; relative if it lies where the job begins.
fn name(text: &[u8], beginnings: &Beginnings<'_>) -> Result<Vec<u8>, &'static str> {
    if text.is_empty() {
        return Err("expected a name");
    }
    if !text.contains(&b'/') && text != b"." && text != b".." {
        return Ok(text.to_vec());
    }
    let full = absolute(beginnings.there, text)?;
    if text.first() == Some(&b'/') {
        return Ok(full);
    }
    let start = absolute(beginnings.there, b".")?;
    let below = full
        .strip_prefix(&start[..])
        .and_then(|rest| rest.strip_prefix(b"/"));
    Ok(below.map_or(full.clone(), <[u8]>::to_vec))
}

fn absolute(beginning: &Path, text: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut room = [0; 4096];
    let beginning = beginning.as_os_str().as_bytes();
    let len = whole(Some(beginning), text, &mut room).ok_or(TOO_MUCH)?;
    Ok(room[..len].to_vec())
}

/// What stands between separators, at most so many pieces, without blanks around; backslashes are left.
fn pieces(text: &[u8], separators: &[u8], most: usize) -> Vec<Vec<u8>> {
    let mut all = vec![vec![]];
    let mut is_escaped = false;
    for byte in text {
        if separators.contains(byte) && !is_escaped && all.len() < most {
            all.push(vec![]);
            continue;
        }
        is_escaped = *byte == b'\\' && !is_escaped;
        if let Some(last) = all.last_mut() {
            last.push(*byte);
        }
    }
    let trimmed = all.iter().map(|piece| piece.trim_ascii().to_vec());
    trimmed.filter(|piece| !piece.is_empty()).collect()
}

fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut is_escaped = false;
    let mut kept = vec![];
    for byte in text {
        is_escaped = *byte == b'\\' && !is_escaped;
        if !is_escaped {
            kept.push(*byte);
        }
    }
    kept
}

/// As [`unescaped`], with stars that stand for any characters.
fn pattern(text: &[u8]) -> Vec<u8> {
    let mut is_escaped = false;
    let stars = text.iter().map(|byte| {
        let is_star = *byte == b'*' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        if is_star { ANY } else { *byte }
    });
    unescaped(&stars.collect::<Vec<u8>>())
}

fn wrong(option: &str, text: &[u8], why: &str) -> Failure {
    let shown = crate::raw::shown_path(OsStr::from_bytes(text));
    Failure::new(Exit::Usage, format!("{option}: found `{shown}`, {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Sight, Whose};

    fn methods() -> Methods {
        Methods {
            remap: vec![],
            local_files: vec![],
            append_files: vec![],
            fetch_files: vec![],
            compress_files: vec![],
            buffer_size: None,
            buffer_block_size: None,
            aggravate: false,
            sight: Sight::default(),
            want_remote_io: true,
            identity: Whose::Submit,
        }
    }

    fn made(methods: &Methods) -> Result<Vec<(u8, String, String)>, String> {
        let beginnings = Beginnings {
            there: Path::new("/home/me"),
            here: Path::new("/jobs/"),
        };
        let bytes = rules(methods, &beginnings).map_err(|failure| failure.to_string())?;
        let mut left =
            &bytes[4..4 + u32::from_le_bytes(bytes[..4].try_into().expect("four")) as usize];
        let mut all = vec![];
        while let [kind, a, b, c, d, rest @ ..] = left {
            let (from, to) = (
                usize::from(*a) + 256 * usize::from(*b),
                usize::from(*c) + 256 * usize::from(*d),
            );
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
            all.push((*kind, text(&rest[..from]), text(&rest[from..from + to])));
            left = &rest[from + to..];
        }
        Ok(all)
    }

    fn rule(kind: Kind, from: &str, to: &str) -> (u8, String, String) {
        (kind as u8, from.to_owned(), to.to_owned())
    }

    #[test]
    fn lists_are_as_condor_wrote_them() {
        let methods = Methods {
            remap: vec![
                r"dataset.1=other.dataset; very.big = local:/bigdisk/x;a\;b=remote:/c\=d".into(),
            ],
            local_files: vec!["/scratch/, tmp.dat;./sub/../x/y".into()],
            append_files: vec!["log".into(), r"/home/me/log2;*.out;./\*/\\*".into()],
            fetch_files: vec!["../z/".into()],
            compress_files: vec!["*.gz,out".into()],
            ..methods()
        };
        let expected = vec![
            rule(Kind::Remap, "dataset.1", "/home/me/other.dataset"),
            rule(Kind::RemapHere, "very.big", "/bigdisk/x"),
            rule(Kind::Remap, "a;b", "/c=d"),
            rule(Kind::Here, "/scratch", "/jobs"),
            rule(Kind::Here, "tmp.dat", "/jobs"),
            rule(Kind::Here, "x/y", "/jobs"),
            rule(Kind::Append, "log", ""),
            rule(Kind::Append, "/home/me/log2", ""),
            rule(Kind::Append, "\0.out", ""),
            rule(Kind::Append, "*/\\\0", ""),
            rule(Kind::Fetch, "/home/z", ""),
            rule(Kind::Compress, "\0.gz", ""),
            rule(Kind::Compress, "out", ""),
        ];
        assert_eq!(made(&methods), Ok(expected));
    }

    #[test]
    fn what_is_none_is_named() {
        for (remap, why) in [
            ("a", "expected NAME=NEW"),
            ("a=local:", "behind ="),
            ("=b", "expected NAME=NEW"),
        ] {
            let methods = Methods {
                remap: vec![remap.into()],
                ..methods()
            };
            let failure = made(&methods).expect_err("refused");
            assert!(
                failure.contains(why) && failure.contains(remap),
                "{failure}"
            );
        }
        let long = "x/".repeat(1500);
        let methods = Methods {
            local_files: vec![long.into(); 20],
            ..methods()
        };
        assert!(made(&methods).expect_err("refused").contains("fewer"));
        assert_eq!(made(&self::methods()), Ok(vec![]));
    }
}
