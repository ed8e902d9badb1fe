//! What a line says.

use super::macros::is_name_byte;

/// A line that is neither blank, a comment nor a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Statement<'t> {
    /// `NAME = value`, and its relatives.
    Assign {
        name: &'t str,
        value: &'t str,
        /// What stands between the old value and this one, if both are to be kept.
        append: Option<String>,
        /// It was written with `:`.
        is_colon: bool,
        /// Words before the operator that do not count.
        stray: &'t str,
    },
    /// `NAME @=tag`: what follows is the value, until a line is `@tag`.
    Here {
        name: &'t str,
        tag: &'t str,
    },
    Include(Include<'t>),
    /// `use CATEGORY : NAMES`.
    Use {
        category: &'t str,
        names: &'t str,
    },
    Error {
        code: i32,
        message: &'t str,
    },
    Warning {
        message: &'t str,
    },
    /// `[section]`, as in files of Windows: does nothing.
    Section,
}

/// `include [ifexist] [command [into FILE]] : WHAT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Include<'t> {
    /// It may be missing.
    pub(super) if_exists: bool,
    /// What is read is what a command prints.
    pub(super) is_command: bool,
    /// Where what is read is kept, and read from the next time.
    pub(super) into: Option<&'t str>,
    /// A path or a command.
    pub(super) what: &'t str,
}

/// Why a line says nothing.
pub(super) type Wrong = &'static str;

/// Whether a character separates words: C's `isspace`.
fn is_blank(character: char) -> bool {
    u8::try_from(character).is_ok_and(crate::text::is_blank)
}

/// Understands a line without blanks around it.
pub(super) fn parse(line: &str) -> Result<Statement<'_>, Wrong> {
    let end = line.find(|c| is_blank(c) || "=:".contains(c));
    let Some(end) = end else {
        return match line.starts_with('[') {
            true => Ok(Statement::Section),
            false => Err("a name without an operator behind it"),
        };
    };
    let (name, behind) = line.split_at(end);
    let at = behind
        .find(['=', ':', '@'])
        .ok_or("no operator behind the first word")?;
    let words = behind[..at].trim_matches(is_blank);
    let rest = &behind[at..];
    let Some((operator, value)) = ["@=", "=", ":"]
        .iter()
        .find_map(|operator| rest.strip_prefix(operator).map(|value| (*operator, value)))
    else {
        return Err("@ without = behind it");
    };
    let value = value.trim_start_matches(is_blank);
    let keyword = name.strip_prefix('@').unwrap_or(name).to_ascii_lowercase();
    if operator == ":" {
        match keyword.as_str() {
            "include" => return include(words, value).map(Statement::Include),
            "use" => {
                let (category, names) = (words, value);
                return Ok(Statement::Use { category, names });
            }
            "error" => {
                let code = match number(words) {
                    0 => -1,
                    code => code,
                };
                let message = value;
                return Ok(Statement::Error { code, message });
            }
            "warning" => return Ok(Statement::Warning { message: value }),
            _ => {}
        }
    }
    // The sign has to stand right before `=`.
    let is_close = behind[..at].ends_with(|last| !is_blank(last));
    let append = match words.split_once('+') {
        None => None,
        Some((_, sign)) if operator == "=" && is_close => Some(separator(sign)?),
        Some(_) => return Err("a + that belongs to no += before the value"),
    };
    if operator == "@=" {
        return Ok(Statement::Here { name, tag: value });
    }
    let stray = words.split_once('+').map_or(words, |(before, _)| before);
    Ok(Statement::Assign {
        name,
        value,
        append,
        is_colon: operator == ":",
        stray,
    })
}

/// What is put between two values by `+=`, `+,=`, `+||=` …: `sign` stands between `+` and `=`.
fn separator(sign: &str) -> Result<String, Wrong> {
    match sign.as_bytes() {
        [] => Ok(" ".to_owned()),
        [b',' | b';' | b'|' | b'&' | b'*'] => Ok(sign.to_owned()),
        [one @ (b',' | b';' | b'|' | b'&' | b'*'), two] if one == two => Ok(format!(" {sign} ")),
        _ => Err("between + and = there may be one of , ; | & * or two of the same"),
    }
}

/// `atoi`.
fn number(text: &str) -> i32 {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let len = digits.bytes().take_while(u8::is_ascii_digit).count();
    let number: i32 = digits[..len].parse().unwrap_or(0);
    if text.starts_with('-') {
        -number
    } else {
        number
    }
}

fn include<'t>(options: &'t str, what: &'t str) -> Result<Include<'t>, Wrong> {
    let mut words = options
        .split(is_blank)
        .filter(|word| !word.is_empty())
        .peekable();
    let if_exists = words
        .next_if(|word| ["ifexist", "ifexists"].contains(word))
        .is_some();
    let is_command = words
        .next_if(|word| ["output", "command"].contains(word))
        .is_some();
    let mut into = None;
    if is_command && words.next_if_eq(&"into").is_some() {
        into = Some(words.next().ok_or("no file behind into")?);
    }
    // The original takes whatever is behind `command`, too.
    if !is_command && words.next().is_some() {
        return Err("include takes ifexist, command and into before the :");
    }
    Ok(Include {
        if_exists,
        is_command,
        into,
        what,
    })
}

/// Whether a text can be a name.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_name_byte)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    fn assigned(line: &str) -> (&str, &str, Option<String>) {
        match parse(line).unwrap() {
            Statement::Assign {
                name,
                value,
                append,
                ..
            } => (name, value, append),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn assignments_are_read() {
        assert_eq!(assigned("A = 1 = 2"), ("A", "1 = 2", None));
        assert_eq!(assigned("A=1"), ("A", "1", None));
        assert_eq!(assigned("A : 3"), ("A", "3", None));
        assert_eq!(assigned("D := x"), ("D", "= x", None));
        assert_eq!(assigned("A -= 2"), ("A", "2", None));
        assert_eq!(assigned("use = 2"), ("use", "2", None));
    }

    #[test]
    fn values_are_appended_with_a_separator() {
        for (line, separator) in [
            ("A += b", " "),
            ("A +,= b", ","),
            ("A +||= b", " || "),
            ("A +;;= b", " ;; "),
            ("A x+|= b", "|"),
        ] {
            assert_eq!(assigned(line), ("A", "b", Some(separator.to_owned())));
        }
        for line in [
            "A + = b",
            "A +- = 2",
            "A +|&= 2",
            "A +|||= 2",
            "A +: b",
            "A + @=e",
            "A +/= b",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn what_is_no_statement_is_refused() {
        for line in [
            "A",
            "A B",
            "A @ b",
            "[foo bar]",
            "include foo : x",
            "use POLICY",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert_eq!(parse("[foo]").unwrap(), Statement::Section);
    }

    #[test]
    fn directives_are_read() {
        let here = Statement::Here {
            name: "A",
            tag: "end",
        };
        assert_eq!(parse("A @=end").unwrap(), here);
        let used = Statement::Use {
            category: "POLICY",
            names: "DESKTOP",
        };
        assert_eq!(parse("use POLICY : DESKTOP").unwrap(), used);
        assert_eq!(parse("@use POLICY:DESKTOP").unwrap(), used);
        let code = |line| match parse(line).unwrap() {
            Statement::Error { code, .. } => code,
            other => panic!("{other:?}"),
        };
        assert_eq!((code("error : x"), code("error 5 : x")), (-1, 5));
        let include = Statement::Include(Include {
            if_exists: true,
            is_command: true,
            into: Some("f"),
            what: "cmd a",
        });
        assert_eq!(
            parse("include ifexist command into f : cmd a").unwrap(),
            include
        );
    }
}
