//! Where macros are in a text: `$(NAME)`, `$(NAME:default)`, `$FUNCTION(…)`.
//!
//! `$$(…)` is none. What has other characters in its brackets than a name may have is none, but may become one when a macro
//! within them is replaced.

/// What replaces a macro.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    /// The value of a name.
    Value,
    Env,
    RandomChoice,
    RandomInteger,
    Choice,
    Substr,
    Int,
    Real,
    String,
    Eval,
    Basename,
    Dirname,
    /// `$F…`: parts of a path.
    Path,
}

/// A macro in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Macro<'t> {
    pub(super) function: Function,
    /// What is between `$` and `(`.
    pub(super) word: &'t str,
    /// What is in the brackets.
    pub(super) body: &'t str,
    /// The byte of its `$`.
    pub(super) start: usize,
    /// The byte behind its `)`.
    pub(super) end: usize,
    /// The byte of the first `$` that may begin a macro when another one is replaced.
    pub(super) pending: usize,
}

impl<'t> Macro<'t> {
    /// Name and default of `$(NAME:default)`.
    pub(super) fn name_and_default(&self) -> (&'t str, Option<&'t str>) {
        match self.body.split_once(':') {
            Some((name, default)) => (name, Some(default)),
            None => (self.body, None),
        }
    }

    /// `$(DOLLAR)`, which becomes `$` when all others are done.
    pub(super) fn is_dollar(&self) -> bool {
        self.function == Function::Value && self.body.eq_ignore_ascii_case("DOLLAR")
    }
}

/// Characters of names.
pub(super) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_./".contains(&byte)
}

/// What may be in brackets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
    Anything,
    Name,
    Argument,
}

fn function(word: &str) -> Option<(Function, Body)> {
    let letters = |rest: &str| {
        rest.bytes()
            .all(|byte| b"pnxdqabfwu".contains(&(byte | 0x20)))
    };
    let function = match word {
        "" => return Some((Function::Value, Body::Name)),
        "ENV" => return Some((Function::Env, Body::Name)),
        "RANDOM_CHOICE" => Function::RandomChoice,
        "RANDOM_INTEGER" => Function::RandomInteger,
        "CHOICE" => Function::Choice,
        "SUBSTR" => Function::Substr,
        "INT" => Function::Int,
        "REAL" => Function::Real,
        "STRING" => Function::String,
        "EVAL" => Function::Eval,
        "BASENAME" => Function::Basename,
        "DIRNAME" => Function::Dirname,
        word if word.strip_prefix('F').is_some_and(letters) => Function::Path,
        _ => return None,
    };
    Some((function, Body::Anything))
}

/// The first macro at or behind `from` that is wanted.
pub(super) fn next_macro<'t>(
    text: &'t str,
    from: usize,
    wanted: impl Fn(&Macro<'t>) -> bool,
) -> Option<Macro<'t>> {
    find(text, from, function, wanted)
}

/// The first argument of a template, `$(1)` and the like, at or behind `from`.
pub(super) fn next_argument(text: &str, from: usize) -> Option<Macro<'_>> {
    let argument = |word: &str| word.is_empty().then_some((Function::Value, Body::Argument));
    find(text, from, argument, |found| {
        found.body.starts_with(|first: char| first.is_ascii_digit())
    })
}

fn find<'t>(
    text: &'t str,
    from: usize,
    function: impl Fn(&str) -> Option<(Function, Body)>,
    wanted: impl Fn(&Macro<'t>) -> bool,
) -> Option<Macro<'t>> {
    let bytes = text.as_bytes();
    let mut at = from;
    let mut pending = usize::MAX;
    loop {
        let start = at + bytes.get(at..)?.iter().position(|byte| *byte == b'$')?;
        // `$$(…)` belongs to jobs, not to the configuration.
        let is_double = bytes.get(start + 1) == Some(&b'$');
        let word_start = start + 1 + usize::from(is_double);
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let word_len = bytes[word_start..]
            .iter()
            .take_while(|byte| is_word(byte))
            .count();
        let open = word_start + word_len;
        if bytes.get(open) != Some(&b'(') || is_double {
            at = open;
            continue;
        }
        let word = &text[word_start..open];
        let Some((function, body)) = function(word) else {
            at = open;
            continue;
        };
        let begin = open + 1;
        let Some(close) = close(bytes, begin, body) else {
            pending = pending.min(start);
            at = begin;
            continue;
        };
        let found = Macro {
            function,
            word,
            body: &text[begin..close],
            start,
            end: close + 1,
            pending: pending.min(start),
        };
        if wanted(&found) {
            return Some(found);
        }
        at = close;
    }
}

/// The byte of the `)` of brackets that begin before `begin`.
fn close(bytes: &[u8], begin: usize, body: Body) -> Option<usize> {
    let bracket = |from: usize| {
        let len = bytes.get(from..)?.iter().position(|byte| *byte == b')')?;
        Some(from + len)
    };
    if body == Body::Anything {
        return bracket(begin);
    }
    let mut is_default = false;
    let mut at = begin;
    loop {
        let byte = *bytes.get(at)?;
        at += 1;
        match byte {
            b')' => return Some(at - 1),
            b':' if !is_default => is_default = true,
            b'(' if is_default && let Some(close) = bracket(at) => at = close + 1,
            _ if is_default && body == Body::Argument && byte != b'(' => {}
            b'$' | b' ' | b',' | b'\\' | b':' if is_default => {}
            b'?' | b'#' | b'+' | b'0'..=b'9' if body == Body::Argument => {}
            _ if body == Body::Name && is_name_byte(byte) => {}
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(text: &str) -> Vec<&str> {
        let mut found = vec![];
        let mut from = 0;
        while let Some(one) = next_macro(text, from, |_| true) {
            from = one.end;
            found.push(one.body);
        }
        found
    }

    #[test]
    fn macros_are_found() {
        assert_eq!(
            bodies("$(A) $(B:x) $ENV(C) $Fpn(D)"),
            ["A", "B:x", "C", "D"]
        );
        assert_eq!(bodies("$$(A) $$([ 1+$(B) ]) $foo(C) $int(D) $(E"), ["B"]);
        assert_eq!(
            bodies("$(A B) $(A:a b,c:d) $(A:a-b) $(A:a(b)c)"),
            ["A:a b,c:d", "A:a(b)c"]
        );
        assert_eq!(bodies("$($(X)Y) $INT($(X) + 1) $$$(M)"), ["X", "$(X", "M"]);
    }

    #[test]
    fn what_may_become_a_macro_is_remembered() {
        let first = next_macro("a$($(X)Y)", 0, |_| true);
        assert_eq!(
            first.map(|found| (found.start, found.pending)),
            Some((3, 1))
        );
    }

    #[test]
    fn arguments_of_templates_are_digits() {
        let argument = |text| next_argument(text, 0).map(|found| found.body.to_owned());
        assert_eq!(argument("$(A) $(1?)").as_deref(), Some("1?"));
        assert_eq!(argument("$(2+:100%)").as_deref(), Some("2+:100%"));
        assert_eq!(argument("$($(1))").as_deref(), Some("1"));
        assert_eq!(
            argument("$(3:1/$(NUM_CPUS))").as_deref(),
            Some("3:1/$(NUM_CPUS)")
        );
        assert_eq!(argument("$INT(1) $(x1)"), None);
    }
}
