//! What `use CATEGORY : NAME(arguments)` brings in.

use super::macros::next_argument;

const CATEGORIES: [(&str, &str); 3] = [
    ("POLICY", include_str!("templates/policy.conf")),
    ("FEATURE", include_str!("templates/feature.conf")),
    ("ROLE", include_str!("templates/role.conf")),
];

/// A template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Template {
    pub(super) category: &'static str,
    pub(super) name: &'static str,
    pub(super) text: &'static str,
}

fn texts(category: &str) -> Option<(&'static str, &'static str)> {
    let named = |(name, _): &&(&'static str, _)| name.eq_ignore_ascii_case(category);
    CATEGORIES.iter().find(named).copied()
}

pub(super) fn has_category(category: &str) -> bool {
    texts(category).is_some()
}

/// The template of a name, whatever its case.
pub(super) fn find(category: &str, name: &str) -> Option<Template> {
    let (category, text) = texts(category)?;
    all(category, text).find(|template| template.name.eq_ignore_ascii_case(name))
}

/// All of a category: each begins with its name in brackets and ends where the next one begins.
fn all(category: &'static str, text: &'static str) -> impl Iterator<Item = Template> {
    text.split("\n[").skip(1).filter_map(move |part| {
        let (name, text) = part.split_once("]\n")?;
        Some(Template {
            category,
            name,
            text,
        })
    })
}

/// The names behind `use CATEGORY :`, each with the arguments in its brackets.
pub(super) fn names(text: &str) -> Vec<(&str, &str)> {
    let mut names = vec![];
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
        let len = rest.find(|c: char| c.is_whitespace() || c == ',' || c == '(');
        let (name, behind) = rest.split_at(len.unwrap_or(rest.len()));
        if name.is_empty() {
            return names;
        }
        rest = behind.trim_start();
        let mut arguments = "";
        if let Some(inner) = rest.strip_prefix('(') {
            (arguments, rest) = match closing(rest) {
                Some(close) => (&inner[..close - 1], &inner[close..]),
                None => ("", inner),
            };
        }
        names.push((name, arguments));
    }
}

/// The byte of the bracket that closes the one a text begins with; those within count.
fn closing(text: &str) -> Option<usize> {
    const DEEPEST: usize = 25;
    let mut open = vec![];
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => open.push(b')'),
            b'[' => open.push(b']'),
            _ if open.last() == Some(&byte) => {
                open.pop();
            }
            _ => {}
        }
        if open.is_empty() {
            return Some(at);
        }
        if open.len() > DEEPEST {
            return None;
        }
    }
    None
}

/// Puts arguments in their places: `$(1)`, `$(1:default)`, `$(1?)` (0 or 1: it is not empty), `$(2+)` (the second and those
/// behind it), `$(0)` (all), `$(0#)` (how many).
pub(super) fn fill(text: &str, arguments: &str, limit: usize) -> Option<String> {
    let mut text = text.to_owned();
    let mut from = 0;
    while let Some(found) = next_argument(&text, from) {
        let value = argument(found.body, arguments);
        let (range, pending) = (found.start..found.end, found.pending);
        if text.len() + value.len() > limit {
            return None;
        }
        from = pending.min(range.start);
        text.replace_range(range, &value);
    }
    Some(text)
}

fn argument(body: &str, arguments: &str) -> String {
    let digits = body.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = body.split_at(digits);
    let number: usize = number.parse().unwrap_or(usize::MAX);
    let mark = suffix.chars().next().filter(|mark| "?#+".contains(*mark));
    let default = suffix[usize::from(mark.is_some())..].strip_prefix(':');
    let is_rest = matches!(mark, Some('#' | '+'));
    let list: Vec<&str> = match arguments.trim() {
        "" => vec![],
        _ => arguments.split(',').collect(),
    };
    let value = match number {
        0 if is_rest => list.len().to_string(),
        0 => arguments.trim().to_owned(),
        number => {
            let rest = list.get(number - 1..).unwrap_or_default();
            let value = match is_rest {
                true => rest.join(","),
                false => rest.first().copied().unwrap_or_default().to_owned(),
            };
            let is_missing = if is_rest {
                value.is_empty()
            } else {
                rest.is_empty()
            };
            match default {
                Some(default) if is_missing => default.trim().to_owned(),
                _ => value.trim().to_owned(),
            }
        }
    };
    match mark {
        Some('?') => u8::from(!value.is_empty()).to_string(),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_found_whatever_the_case() {
        let found = find("policy", "desktop");
        assert_eq!(
            found.map(|one| (one.category, one.name)),
            Some(("POLICY", "DESKTOP"))
        );
        assert!(find("POLICY", "NOPE").is_none());
        for name in [
            "DESKTOP",
            "DESKTOP_IDLE",
            "DESKTOP_HOURS",
            "ALWAYS_RUN_JOBS",
            "UWCS_DESKTOP",
            "LIMIT_JOB_RUNTIMES",
            "PREEMPT_IF_RUNTIME_EXCEEDS",
            "HOLD_IF_RUNTIME_EXCEEDS",
            "STARTD_PUBLISH_CpusUsage",
            "PREEMPT_IF_CPUS_EXCEEDED",
            "PREEMPT_IF_DISK_EXCEEDED",
            "PREEMPT_IF_MEMORY_EXCEEDED",
            "HOLD_IF_CPUS_EXCEEDED",
            "HOLD_IF_DISK_EXCEEDED",
            "HOLD_IF_MEMORY_EXCEEDED",
            "PREEMPT_IF",
            "WANT_HOLD_IF",
        ] {
            assert!(find("POLICY", name).is_some(), "{name}");
        }
    }

    #[test]
    fn names_are_parted_by_blanks_or_commas() {
        assert_eq!(names("A B, C"), [("A", ""), ("B", ""), ("C", "")]);
        assert_eq!(
            names("A(1, (2,3)), B ( x[)] )"),
            [("A", "1, (2,3)"), ("B", " x[)] ")]
        );
        assert_eq!(names(" , "), []);
    }

    #[test]
    fn arguments_are_put_in_their_places() {
        let filled = |text, arguments| fill(text, arguments, 1_000).unwrap_or_default();
        assert_eq!(filled("$(1)|$(2)|$(3)|$(0)|$(0#)", "a , b"), "a|b||a , b|2");
        assert_eq!(filled("$(1?)$(2?)$(3?) $(0?)", "a,,"), "100 1");
        assert_eq!(filled("$(1:x) $(2:y z) $(3:w)", "a,"), "a  w");
        assert_eq!(filled("$(2+)|$(2+:100%)|$(0#)", "1"), "|100%|1");
        assert_eq!(filled("$(2+)", "1, c=1, d"), "c=1, d");
        assert_eq!(filled("$($(1)) $(A) $$(1)", "X"), "$(X) $(A) $$(1)");
        assert_eq!(filled("$(0#)", ""), "0");
    }
}
